"""The catalog: what is known of each document of an index.

Invariants:
- One row a document; a document that failed keeps the row fields of its last good version, beside the status, reason
  and attempts of the failure.
- ``stamp`` sums up the document's rows, so that both stores can be compared with the catalog without a list of all
  chunks. Stamps add up and can be taken off again, so totals follow what is written.
- What is asked of all documents is read from single columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from indexes.storage import tables
from indexes.storage.tables import Files, Table

_TABLE: Final = "documents"
NOT_READ: Final = ("failed", "unsupported", "skipped")  # statuses of a document whose last good version stays
_INDEX_AT: Final = 20_000  # rows above which the ids get an index
WAITING: Final = 2_000  # rows that wait for one write: each makes a version and a piece of the table


def status_of_today(status: str) -> str:
    """Return a document's status by its present name: ``skipped`` was called ``unsupported`` once."""
    return "skipped" if status == "unsupported" else status


class CatalogRow(msgspec.Struct, frozen=True, kw_only=True):
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
        document: cache key of the parsed document whose chunks are in the index; empty where there is none.
        chunks: cache key of those chunks.
        notes: cache keys of their notes, in the chunks' order; none where no notes were made.
        title: that document's title or base name.
        labels: of the document: its own, those of the settings, and those that the source states.
        stated: those that the source states, as last read.
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
    stated: list[str] = []
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
        ("stated", pa.list_(pa.string())),
        ("chunk_ids", pa.list_(pa.string())),
        ("stamp", pa.string()),
        ("tokens", pa.int64()),
        ("unknown", pa.int64()),
    ]
)


def stamp(chunk_ids: Sequence[str], row_digests: Sequence[str]) -> str:
    """Return a digest of (chunk id, row digest) pairs that does not depend on their order; stamps add up.

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
    """Return the stamp of all the pairs behind several stamps."""
    if not stamps:
        return "0" * 32
    first, second = _words(stamps).sum(axis=0, dtype=np.uint64).tolist()
    return f"{first:016x}{second:016x}"


def stamp_difference(whole: str, part: str) -> str:
    """Return the stamp of the pairs behind one stamp without those behind another."""
    pair = _words([whole, part])
    first, second = (pair[0] - pair[1]).tolist()
    return f"{first:016x}{second:016x}"


def _words(digits: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Strings of as many hexadecimal digits each as rows of 64-bit numbers."""
    flat = bytes.fromhex("".join(digits))
    return np.frombuffer(flat, ">u8").astype(np.uint64).reshape(len(digits), -1)


class Totals(msgspec.Struct, frozen=True):
    """A catalog in figures: documents, their chunks, the tokens of their embedded texts, and the stamp of all rows."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    stamp: str = "0" * 32

    @classmethod
    def of(cls, rows: pa.Table) -> Totals:
        """Return the figures of some rows, of which the columns ``FIGURES`` are read."""
        return cls(
            documents=len(rows),
            chunks=int(pc.sum(pc.list_value_length(rows["chunk_ids"])).as_py() or 0),
            tokens=int(pc.sum(rows["tokens"]).as_py() or 0),
            stamp=stamp_sum(rows["stamp"].to_pylist()),
        )

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.documents + other.documents,
            self.chunks + other.chunks,
            self.tokens + other.tokens,
            stamp_sum([self.stamp, other.stamp]),
        )

    def __sub__(self, other: Totals) -> Totals:
        return Totals(
            self.documents - other.documents,
            self.chunks - other.chunks,
            self.tokens - other.tokens,
            stamp_difference(self.stamp, other.stamp),
        )


def _row(values: dict[str, Any]) -> CatalogRow:
    """Return the row of a table's values; None stands in a column that was added later."""
    return msgspec.convert({name: value for name, value in values.items() if value is not None}, CatalogRow)


FIGURES: Final = ("chunk_ids", "tokens", "stamp")


class Catalog:
    """The documents of a generation, in a LanceDB table.

    Args:
        db: the generation's LanceDB connection.
        version: the exact version to read; None for the newest, to write to.
    """

    def __init__(self, db: Any, version: int | None = None) -> None:
        if version is not None:
            self._table = Table(db, _TABLE, version)
        else:
            self._table = tables.existing(db, _TABLE) or Table.create(db, _TABLE, SCHEMA)
        self._waiting: dict[str, CatalogRow] = {}
        self.change = Totals()
        """What the writes since the last :meth:`restore` added, less what they removed."""

    @property
    def version(self) -> int:
        """The LanceDB version that is open."""
        self._flush()
        return self._table.version

    def restore(self, version: int) -> None:
        """Put the head back to an earlier version, where it is not there already."""
        self._waiting.clear()
        self.change = Totals()
        self._table.restore(version)

    def rows(self) -> Iterator[CatalogRow]:
        """Yield all rows, in no particular order."""
        self._flush()
        for batch in self._table.scan(self._there(SCHEMA.names), batch_size=1_024):
            for values in batch.to_pylist():
                yield _row(values)

    def columns(self, names: Sequence[str], source: str | None = None) -> pa.Table:
        """Return some columns of all rows, or of those of one source, in no particular order."""
        self._flush()
        wanted = list(dict.fromkeys([*names, "source"]))
        there = self._there(wanted)
        table = pa.Table.from_batches(self._table.scan(there), pa.schema([SCHEMA.field(name) for name in there]))
        for name in wanted:
            if name not in there:
                table = table.append_column(SCHEMA.field(name), pa.nulls(len(table), SCHEMA.field(name).type))
        if source is not None:
            table = table.filter(pc.equal(table["source"], source))
        return table.select(list(names))

    def statuses(self) -> dict[str, int]:
        """Return how many documents have each status."""
        self._flush()
        counts: Counter[str] = Counter()
        for batch in self._table.scan(["status"]):
            counts.update({str(one["values"]): one["counts"] for one in batch["status"].value_counts().to_pylist()})
        found: Counter[str] = Counter()
        for name, count in counts.items():
            found[status_of_today(name)] += count
        return dict(sorted(found.items()))

    def troubled(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some columns, the status among them, of the documents whose status is not ``ok``."""
        self._flush()
        for batch in self._table.scan(list(dict.fromkeys([*names, "status"])), "status != 'ok'", 1_024):
            for values in batch.to_pylist():
                yield values | {"status": status_of_today(values["status"])}

    def totals(self) -> Totals:
        """Return the catalog in figures, from all its rows."""
        self._flush()
        parts = (Totals.of(pa.Table.from_batches([batch])) for batch in self._table.scan(FIGURES))
        return sum(parts, Totals())

    def named(self, document_ids: Iterable[str]) -> dict[str, CatalogRow]:
        """Return those of these documents that are there, by id."""
        self._flush()
        found: dict[str, CatalogRow] = {}
        for part in self._table.select("document_id", document_ids, self._there(SCHEMA.names)):
            found.update((values["document_id"], _row(values)) for values in part.to_pylist())
        return found

    def columns_of(self, document_ids: Iterable[str], names: Sequence[str]) -> Iterator[pa.Table]:
        """Return some columns of those of these documents that are there, some documents at a time."""
        self._flush()
        return self._table.select("document_id", document_ids, names)

    def __len__(self) -> int:
        self._flush()
        return self._table.count()

    def put(self, rows: Iterable[CatalogRow]) -> None:
        """Insert or replace rows by document id; the next reading, or enough of them, has them written."""
        self._waiting.update((row.document_id, row) for row in rows)
        if len(self._waiting) >= WAITING:
            self._flush()

    def remove(self, document_ids: Iterable[str]) -> None:
        """Delete rows."""
        self._flush()
        self._delete(set(document_ids))

    def finish(self) -> None:
        """Merge young pieces where there are many, and index the ids of a large catalog; may make new versions."""
        self._flush()
        self._table.compact()
        if len(self) >= _INDEX_AT:
            self._table.refresh_index("document_id", BTree())

    def prune(self, kept: Collection[int], files: Files, folder: str) -> int:
        """Drop all versions but these, see :meth:`indexes.storage.tables.Table.prune`."""
        return self._table.prune(kept, files, folder)

    def _flush(self) -> None:
        if self._waiting:
            written = pa.Table.from_pylist([msgspec.to_builtins(row) for row in self._waiting.values()], schema=SCHEMA)
            self._delete(self._waiting.keys())
            self._waiting = {}
            for name in SCHEMA.names:
                if name not in self._there(SCHEMA.names):
                    self._table.raw.add_columns(SCHEMA.field(name))
            self._table.add(written)
            self.change += Totals.of(written)

    def _there(self, names: Sequence[str]) -> list[str]:
        """Return those of these columns that the table has: one made by an earlier version lacks the youngest."""
        own = set(self._table.schema.names)
        return [name for name in names if name in own]

    def _delete(self, document_ids: Collection[str]) -> None:
        if not self._table.count():
            return
        before = [Totals.of(part) for part in self._table.select("document_id", document_ids, FIGURES)]
        there = sum(before, Totals())
        if there.documents:
            self._table.delete("document_id", document_ids)
            self.change -= there
