"""The catalog: what is known of each document of an index.

Kept here: one row a document; a document that failed keeps the row fields of its last good version, beside the
status, reason and attempts of the failure; ``stamp`` sums up the document's rows so that both stores can be compared
with the catalog without holding a list of all chunks; and what is asked of all documents is read from single columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from enrich import tables

TABLE: Final = "documents"
_ASK: Final = 1_000  # ids named in one statement
INDEX_AT: Final = 20_000  # rows above which the ids get an index
STALE_SHARE: Final = 0.05  # of the rows not in that index before it is made again
SCAN_ROWS: Final = 65_536  # rows in a batch of a scan over short columns


def status_of_today(status: str) -> str:
    """A document's status by its present name: ``skipped`` was called ``unsupported`` once."""
    return "skipped" if status == "unsupported" else status


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
        looked_at: when it was last looked at and this row written, in seconds since 1970.
        document: memory key of the parsed document whose chunks are in the index; empty where there is none.
        chunks: memory key of those chunks.
        notes: memory keys of their notes, in the chunks' order; none where no notes were made.
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
    looked_at: int = 0
    document: str = ""
    chunks: str = ""
    notes: list[str] = []
    title: str = ""
    labels: list[str] = []
    chunk_ids: list[str] = []
    stamp: str = "0" * 32
    tokens: int = 0
    unknown: int = 0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "status", status_of_today(self.status))


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
        ("looked_at", pa.int64()),
        ("document", pa.string()),
        ("chunks", pa.string()),
        ("notes", pa.list_(pa.string())),
        ("title", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("chunk_ids", pa.list_(pa.string())),
        ("stamp", pa.string()),
        ("tokens", pa.int64()),
        ("unknown", pa.int64()),
    ]
)


def stamp(chunk_ids: Sequence[str], row_digests: Sequence[str]) -> str:
    """A digest of (chunk id, row digest) pairs that does not depend on their order; stamps add up.

    It tells stores apart that differ by accident, and is no defence against forgery.

    Args:
        chunk_ids: 32 hexadecimal digits each.
        row_digests: of these rows, 64 hexadecimal digits each.
    """
    if not chunk_ids:
        return "0" * 32
    ids, digests = _words(chunk_ids), _words(row_digests)
    with np.errstate(over="ignore"):
        # Products bind each id to its digest; sums modulo 2**64 forget the order.
        first = ((ids[:, 0] | 1) * (digests[:, 0] | 1) + ids[:, 1] * digests[:, 1]).sum(dtype=np.uint64)
        second = ((ids[:, 1] | 1) * (digests[:, 2] | 1) + ids[:, 0] * digests[:, 3]).sum(dtype=np.uint64)
    return f"{int(first):016x}{int(second):016x}"


def stamp_sum(stamps: Sequence[str]) -> str:
    """The stamp of all the pairs behind several stamps."""
    if not stamps:
        return "0" * 32
    first, second = _words(stamps).sum(axis=0, dtype=np.uint64).tolist()
    return f"{first:016x}{second:016x}"


def _words(digits: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Strings of as many hexadecimal digits each as rows of 64-bit numbers."""
    flat = bytes.fromhex("".join(digits))
    return np.frombuffer(flat, ">u8").astype(np.uint64).reshape(len(digits), -1)


class Totals(msgspec.Struct, frozen=True):
    """A catalog in figures: documents, their chunks, the tokens of their embedded texts, and the stamp of all rows."""

    documents: int
    chunks: int
    tokens: int
    stamp: str


class Catalog:
    """The documents of a generation, in a LanceDB table.

    Args:
        db: the generation's LanceDB connection.
        version: the exact version to read; None for the newest, to write to.
    """

    def __init__(self, db: Any, version: int | None = None) -> None:
        self._db = db
        exists = version is not None or TABLE in set(db.list_tables(limit=1_000).tables)
        self._table = db.open_table(TABLE) if exists else db.create_table(TABLE, schema=SCHEMA)
        if version is not None:
            self._table.checkout(version)

    @property
    def version(self) -> int:
        """The LanceDB version that is open."""
        return int(self._table.version)

    def restore(self, version: int) -> None:
        """Put the head back to an earlier version, where it is not there already."""
        self._table.checkout_latest()
        if self.version != version:
            self._table.restore(version)

    def rows(self) -> Iterator[Row]:
        """All rows, in no particular order."""
        for batch in self._table.search().limit(None).to_batches():
            for values in batch.to_pylist():
                yield msgspec.convert(values, Row)

    def columns(self, names: Sequence[str], source: str | None = None) -> pa.Table:
        """Some columns of all rows, or of those of one source, in no particular order."""
        wanted = list(dict.fromkeys([*names, "source"]))
        table = self._table.search().select(wanted).limit(None).to_arrow()
        if source is not None:
            table = table.filter(pc.equal(table["source"], source))
        return table.select(list(names))

    def totals(self) -> Totals:
        """The catalog in figures."""
        table = self.columns(["chunk_ids", "tokens", "stamp"])
        return Totals(
            documents=len(table),
            chunks=int(pc.sum(pc.list_value_length(table["chunk_ids"])).as_py() or 0),
            tokens=int(pc.sum(table["tokens"]).as_py() or 0),
            stamp=stamp_sum(table["stamp"].to_pylist()),
        )

    def named(self, document_ids: Iterable[str]) -> dict[str, Row]:
        """Those of these documents that are there, by id."""
        found: dict[str, Row] = {}
        ids = sorted(set(document_ids))
        for start in range(0, len(ids), _ASK):
            listed = _listed(ids[start : start + _ASK])
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
            self._table.delete(f"document_id IN ({_listed(ids[start : start + _ASK])})")

    def finish(self) -> None:
        """Compact what many writes left and keep the ids of a large catalog indexed; may make new versions."""
        tables.compact(self._table)
        total = len(self)
        if total >= INDEX_AT:
            indexes = self._table.list_indices()
            stale = not indexes or self._table.index_stats(indexes[0].name).num_unindexed_rows > STALE_SHARE * total
            if stale:
                self._table.create_index("document_id", config=BTree(), replace=True)

    def version_time(self, version: int) -> datetime:
        """When a version was written.

        Raises:
            StoreError: when there is no such version.
        """
        return tables.version_time(self._table, version)

    def prune(self, before: datetime) -> None:
        """Drop versions written before a time, except the head, and what killed writers left."""
        tables.prune(self._table, before)

    def rewrite(self) -> None:
        """Write every row anew, so that no file of the version at the head holds what was deleted."""
        self._table = tables.rewrite(self._db, TABLE, self._table)

    def drop_others(self) -> None:
        """Drop all versions but the head. Nobody may read or write meanwhile."""
        tables.drop_others(self._table)


def _listed(document_ids: Sequence[str]) -> str:
    return ", ".join(f"'{int(one, 16):032x}'" for one in document_ids)
