"""The catalog: what is known of each document of an index.

Kept here: one row a document; a document that failed keeps the row fields of its last good version, beside the
status, reason and attempts of the failure; ``stamp`` sums up the document's rows so that both stores can be compared
with the catalog without holding a list of all chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

TABLE: Final = "documents"
_MODULUS: Final = 1 << 128
_ASK: Final = 1_000  # ids named in one statement


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One document of an index.

    Attributes:
        document_id: from the source's name and the key.
        source, key: where it comes from.
        version: what the source called the state that was last looked at.
        size: in bytes.
        bytes_digest: SHA-256 of the bytes last fetched.
        media_type: what those bytes were taken for.
        recipe: digest of every fingerprint and setting that decides the document's rows.
        status, reason: of the last attempt.
        attempts: how many attempts in a row failed.
        document: memory key of the parsed document whose chunks are in the index; empty where there is none.
        title: that document's title or base name.
        labels: of the document, its own and those of the settings.
        chunk_ids: in reading order.
        stamp: multiset digest of (chunk id, row digest), 32 hexadecimal digits.
        tokens, unknown: of its embedded texts, by the embedder's tokenizer; 0 where it has no vectors.
    """

    document_id: str
    source: str
    key: str
    version: str
    size: int = 0
    bytes_digest: str = ""
    media_type: str = ""
    recipe: str = ""
    status: str = "ok"
    reason: str = ""
    attempts: int = 0
    document: str = ""
    title: str = ""
    labels: list[str] = []
    chunk_ids: list[str] = []
    stamp: str = "0" * 32
    tokens: int = 0
    unknown: int = 0


SCHEMA: Final = pa.schema(
    [
        ("document_id", pa.string()),
        ("source", pa.string()),
        ("key", pa.string()),
        ("version", pa.string()),
        ("size", pa.int64()),
        ("bytes_digest", pa.string()),
        ("media_type", pa.string()),
        ("recipe", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("attempts", pa.int32()),
        ("document", pa.string()),
        ("title", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("chunk_ids", pa.list_(pa.string())),
        ("stamp", pa.string()),
        ("tokens", pa.int64()),
        ("unknown", pa.int64()),
    ]
)


def stamp(pairs: Iterable[tuple[str, str]]) -> str:
    """A digest of (chunk id, row digest) pairs that does not depend on their order; stamps add up."""
    total = 0
    for chunk_id, row_digest in pairs:
        total += int.from_bytes(hashlib.sha256(f"{chunk_id} {row_digest}".encode()).digest()[:16], "big")
    return f"{total % _MODULUS:032x}"


def stamp_sum(stamps: Iterable[str]) -> str:
    """The stamp of all the pairs behind several stamps."""
    return f"{sum(int(one, 16) for one in stamps) % _MODULUS:032x}"


class Catalog:
    """The documents of a generation, in a LanceDB table.

    Args:
        db: the generation's LanceDB connection.
        version: the exact version to read; None for the newest, to write to.
    """

    def __init__(self, db: Any, version: int | None = None) -> None:
        exists = TABLE in set(db.list_tables(limit=1_000).tables)
        self._table = db.open_table(TABLE) if exists else db.create_table(TABLE, schema=SCHEMA)
        if version is not None:
            self._table.checkout(version)

    @property
    def version(self) -> int:
        """The LanceDB version that is open."""
        return int(self._table.version)

    def restore(self, version: int) -> None:
        """Put the head back to an earlier version, where it is not there already."""
        if self.version != version:
            self._table.restore(version)

    def rows(self) -> Iterator[Row]:
        """All rows, in no particular order."""
        for batch in self._table.search().limit(None).to_batches():
            for values in batch.to_pylist():
                yield msgspec.convert(values, Row)

    def named(self, document_ids: Iterable[str]) -> dict[str, Row]:
        """Those of these documents that are there, by id."""
        found: dict[str, Row] = {}
        ids = sorted(set(document_ids))
        for start in range(0, len(ids), _ASK):
            listed = ", ".join(f"'{int(one, 16):032x}'" for one in ids[start : start + _ASK])
            for values in self._table.search().where(f"document_id IN ({listed})").limit(_ASK).to_arrow().to_pylist():
                found[values["document_id"]] = msgspec.convert(values, Row)
        return found

    def __len__(self) -> int:
        return int(self._table.count_rows())

    def put(self, rows: Iterable[Row]) -> None:
        """Insert or replace rows by document id."""
        values = [msgspec.to_builtins(row) for row in rows]
        if values:
            (
                self._table.merge_insert("document_id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute(pa.Table.from_pylist(values, schema=SCHEMA))
            )

    def remove(self, document_ids: Iterable[str]) -> None:
        """Delete rows."""
        ids = sorted(set(document_ids))
        for start in range(0, len(ids), _ASK):
            listed = ", ".join(f"'{int(one, 16):032x}'" for one in ids[start : start + _ASK])
            self._table.delete(f"document_id IN ({listed})")
