"""A listing of an S3 bucket in the order of its keys, of any length.

Invariants:
- A listing is complete before its first entry is given; one that breaks off is an error, never a short one.
- It lies in a private temporary database, not in memory, in code point order; not every store lists in that order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

SIDECAR: Final = ".metadata.json"

_TABLES: Final = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE documents (key BLOB PRIMARY KEY, stamp TEXT, size INTEGER) WITHOUT ROWID;
    CREATE TABLE sidecars (key BLOB PRIMARY KEY, stamp TEXT) WITHOUT ROWID;
"""
_IN_ORDER: Final = """
    SELECT key, documents.stamp, size, coalesce(sidecars.stamp, '')
    FROM documents LEFT JOIN sidecars USING (key) ORDER BY key
"""


class S3Listed(NamedTuple):
    """An object that a store has.

    Attributes:
        key: below the prefix.
        stamp: its etag and the second of its last change.
        size: in bytes.
        sidecar: the stamp of its sidecar; empty where it has none.
    """

    key: str
    stamp: str
    size: int
    sidecar: str = ""

    @property
    def version(self) -> str:
        """Version of the object and its sidecar."""
        return f"{self.stamp}+{self.sidecar}" if self.sidecar else self.stamp


class BrokenListing(Exception):
    """A listing is not complete, or not to be trusted."""


def s3_stamp(answer: Mapping[str, Any]) -> str:
    """Return etag and second of the last change.

    Args:
        answer: an entry of a listing, or an answer to HEAD or GET.
    """
    etag = answer.get("ETag", "").strip('"').replace("+", "%2B")  # a plus stands before the sidecar's stamp
    return f"{etag}:{int(answer['LastModified'].timestamp())}"


def checked_pages(pages: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the entries of each page of a listing.

    Raises:
        BrokenListing: when a page does not lead on to the next one, or leads in a circle.
    """
    seen: set[int] = set()
    for page in pages:
        if "IsTruncated" not in page:
            raise BrokenListing("an answer is no page of a listing")
        entries: list[Mapping[str, Any]] = page.get("Contents", [])
        marks = {hash(tuple(entry["Key"] for entry in entries))} if entries else set()
        if page["IsTruncated"]:
            if not page.get("NextContinuationToken"):
                raise BrokenListing("a page says that more follow, and not where")
            marks.add(hash(("token", page["NextContinuationToken"])))
        if not seen.isdisjoint(marks):
            raise BrokenListing("a page is repeated")
        seen |= marks
        yield entries


def sorted_listing(fill: Callable[[], Iterable[Iterable[tuple[S3Listed, bool]]]]) -> Iterator[S3Listed]:
    """Yield all objects of a listing by ascending key, each with its sidecar's stamp.

    Args:
        fill: gives the pages: of each object, and whether it is the sidecar of the document of this key.

    Raises:
        BrokenListing: when there is no room for the temporary database.
    """
    try:
        with closing(sqlite3.connect("", check_same_thread=False)) as kept:
            kept.executescript(_TABLES)
            for page in fill():
                _keep(kept, list(page))
            for key, stamp, size, sidecar in kept.execute(_IN_ORDER):
                yield S3Listed(key.decode(), stamp, size, sidecar)
    except sqlite3.Error as error:
        raise BrokenListing(f"it cannot be kept in the folder of temporary files: {error}") from error


def _keep(kept: sqlite3.Connection, page: list[tuple[S3Listed, bool]]) -> None:
    """Keep the objects of a page."""
    documents = [(one.key.encode(), one.stamp, one.size) for one, is_sidecar in page if not is_sidecar]
    sidecars = [(one.key.encode(), one.stamp) for one, is_sidecar in page if is_sidecar]
    kept.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", documents)
    kept.executemany("INSERT OR REPLACE INTO sidecars VALUES (?, ?)", sidecars)
