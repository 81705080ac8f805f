"""The table of chunk rows in LanceDB: what is stored of a chunk, and search by vector.

Invariants:
- No chunk id stands twice, and a diff is applied with every count checked.
- Rows without a vector never answer a search by vector.
- A view of a version never changes, and a pruning is told by number which versions stay.

Every write makes a version of its own, so a diff is whole only once :meth:`ChunkTable.apply` has returned: whoever
publishes names the version that it returned, and whoever finds a later one at the head puts the table back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree, IvfFlat, LabelList

from indexes import rows
from indexes.nearest import Nearest
from indexes.storage import tables
from indexes.storage.tables import Files, Table
from parsers.errors import StoreError

TABLE: Final = "chunks"
WIDE_SCAN_ROWS: Final = tables.SCAN_ROWS
# Up to here a search reads every vector: 15 to 20 ms, as long as a search through the index takes. 110,000 rows took
# 200 ms and more, nearly all of it reading vectors, and rows without one count too: they are stored as zeros.
EXACT_ROWS: Final = 10_000
PARTITION: Final = 4_096  # vectors in a partition of the index
_PROBES: Final = 32  # partitions searched: all of them, so exactly, up to 131,072 vectors
SAMPLES: Final = 64  # vectors a partition to find its centre from; the default, 256, took 5 to 10 times as long
MINIMUM_VECTORS: Final = 256  # LanceDB cannot find centres among fewer


class Applied(NamedTuple):
    """What a diff did: rows removed, rows that stood there before and were written again, new rows, and the version."""

    deleted: int
    updated: int
    inserted: int
    version: int


class ChunkTable:
    """The rows of one generation.

    Made by :meth:`create`, :meth:`open` and :meth:`checkout`. One writer at a time: LanceDB lets two write at once, the
    counts then disagree and the diff is refused.
    """

    def __init__(self, db: lancedb.DBConnection, table: Table) -> None:
        self._db = db
        self._table = table

    @classmethod
    def create(cls, db: lancedb.DBConnection, dimension: int) -> ChunkTable:
        """Make an empty table for vectors of that many numbers.

        Raises:
            StoreError: when there is one already, or it cannot be written.
        """
        with _store("create the table"):
            return cls(db, Table.create(db, TABLE, rows.schema(dimension)))

    @classmethod
    def open(cls, db: lancedb.DBConnection, version: int | None = None) -> ChunkTable:
        """Open the table at its head, for reading and writing; with a version, a view of that one for reading alone.

        Raises:
            StoreError: when there is no table, no such version, or it has other columns than this program writes.
        """
        with _store("open the table"):
            opened = cls(db, Table(db, TABLE, version))
            if not opened._table.schema.equals(rows.schema(opened.dimension)):
                raise StoreError(f"table {TABLE} has other columns than this version writes", "Build a new index.")
            return opened

    @property
    def version(self) -> int:
        """The version that is read, or at the head the last one written."""
        return self._table.version

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        return int(self._table.schema.field("vector").type.list_size)

    def checkout(self, version: int) -> ChunkTable:
        """Return a view of a version, for reading alone.

        Raises:
            StoreError: when there is no such version, as after a pruning.
        """
        return ChunkTable.open(self._db, version)

    def restore(self, version: int) -> int:
        """Put the head back to what a version held, and return the version that now stands there.

        Where the head is that version already nothing is written; otherwise this makes a new one, so call it when
        there is something to write.

        Raises:
            ValueError: when this is a view.
            StoreError: when there is no such version.
        """
        if not self._table.writable:
            raise ValueError(f"a view of version {self.version} cannot be put back to version {version}")
        with _store(f"put the table back to version {version}"):
            return self._table.restore(version)

    def count(self) -> int:
        """Return how many rows there are."""
        return self._table.count()

    def count_vectors(self) -> int:
        """Return how many rows have a vector."""
        # Looking for null vectors reads every one of them: 400 ms for 110,000 rows, against 10 by provenance.
        return self._table.count("provenance != ''")

    def apply(self, delete_ids: Iterable[str], written: pa.Table, present: Iterable[str] | None = None) -> Applied:
        """Apply one diff: remove rows, and write rows, in place of those that stand there under the same ids.

        Args:
            delete_ids: chunk ids to remove; ids that are not there are passed over.
            written: rows as :func:`indexes.rows.to_table` makes them.
            present: which of all these ids are there, where the caller has read that; otherwise the whole column is.

        Raises:
            ValueError: when the rows break a rule of :func:`check_rows`, or an id is both removed and written.
            StoreError: when a count does not come out; the head then holds a half-applied diff, to be put back.
        """
        rows.check_rows(written, self.dimension)
        gone, kept = sorted(set(delete_ids)), written["chunk_id"].to_pylist()
        rows.check_ids(gone)
        if not set(gone).isdisjoint(kept):
            raise ValueError(f"{len(set(gone).intersection(kept))} chunk ids are both to be removed and to be written")
        with _store("apply a diff to the table"):
            before = self.count()
            there = self._present([*gone, *kept]) if present is None and before else set(present or ())
            deleted = self._delete_checked([name for name in gone if name in there])
            updated = self._delete_checked([name for name in kept if name in there])
            if kept:
                self._table.add(written)
            expected, found = before - deleted - updated + len(kept), self.count()
        if found != expected:
            raise StoreError(f"table {TABLE} has {found} rows after a diff, expected {expected}", "Build again.")
        return Applied(deleted, updated, len(kept) - updated, self.version)

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows whose ids are not there, as they are, a batch at a time."""
        with _store("write the table"):
            self._table.add(pa.RecordBatchReader.from_batches(self._table.schema, iter(batches)))

    def delete_documents(self, document_ids: Iterable[str]) -> int:
        """Remove all rows of these documents and return how many there were."""
        ids = list(document_ids)
        rows.check_ids(ids)
        with _store("remove documents from the table"):
            return self._table.delete("document_id", ids)

    def stamps(self) -> Iterator[pa.RecordBatch]:
        """Batches of (chunk_id, row_digest) of all rows, in no order."""
        return self.rows(["chunk_id", "row_digest"], WIDE_SCAN_ROWS)

    def stamps_of(self, document_ids: Iterable[str]) -> dict[str, str]:
        """Row digests by chunk id, of the rows of these documents."""
        found: dict[str, str] = {}
        for part in self.columns_of(document_ids, ["chunk_id", "row_digest"]):
            found.update(zip(part["chunk_id"].to_pylist(), part["row_digest"].to_pylist(), strict=True))
        return found

    def columns_of(self, document_ids: Iterable[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of the rows of these documents, some documents at a time."""
        ids = list(document_ids)
        rows.check_ids(ids)
        with _store("read the table"):
            yield from self._table.select("document_id", ids, columns)

    def of_documents(self, document_ids: Iterable[str]) -> pa.Table:
        """Return the rows of these documents with all columns, vectors too."""
        shape = rows.schema(self.dimension)
        parts = (part.cast(shape) for part in self.columns_of(document_ids, shape.names))
        return pa.concat_tables([shape.empty_table(), *parts])

    def take(self, offsets: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return these columns of the rows at these places, from 0 to :meth:`count`, in the table's own order."""
        with _store("read the table"):
            found: list[dict[str, Any]] = self._table.raw.take_offsets(list(offsets)).select(list(columns)).to_list()
        return found

    def rows(
        self, columns: Sequence[str], batch_size: int = 1_024, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, or of those for which a condition holds, a batch at a time.

        Args:
            batch_size: rows in a batch at most.
            where: as :func:`indexes.search.filters.to_sql` writes it.
        """
        with _store("read the table"):
            yield from self._table.scan(columns, where, batch_size)

    def fetch(self, chunk_ids: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return these columns of these rows, in the order asked.

        Raises:
            StoreError: when one of them is not there.
        """
        rows.check_ids(chunk_ids)
        wanted = list(dict.fromkeys(["chunk_id", *columns]))
        found: dict[str, dict[str, Any]] = {}
        with _store("read the table"):
            for part in self._table.select("chunk_id", chunk_ids, wanted):
                found.update((row["chunk_id"], row) for row in part.to_pylist())
        for name in chunk_ids:
            if name not in found:
                raise StoreError(
                    f"chunk {name} is not in version {self.version} of the table {TABLE}",
                    "Run `gristmill verify`, then `gristmill repair`.",
                )
        return [{column: found[name][column] for column in columns} for name in chunk_ids]

    def dense(
        self, vector: npt.NDArray[np.float32], k: int, where: str | None = None, *, exact: bool = False
    ) -> list[tuple[str, float]]:
        """Return the ``k`` rows whose vectors lie nearest, as (chunk id, cosine), equal cosines by rising chunk id.

        Args:
            vector: shape (dimension,).
            where: a condition on rows, as :func:`indexes.search.filters.to_sql` writes it; applied before ranking.
            exact: read every vector, whatever index there is.

        Raises:
            ValueError: when the vector has another shape, is not finite or all zero.
        """
        self._check_query(vector)

        def ask(depth: int) -> list[tuple[float, str]]:
            query = self._table.raw.search(vector, vector_column_name="vector").distance_type("cosine")
            query = query.minimum_nprobes(_PROBES).maximum_nprobes(0)  # more of them where a filter leaves too few
            query = query.bypass_vector_index() if exact else query
            query = query.where(where) if where else query
            found = query.select(["chunk_id", "_distance"]).limit(depth).to_arrow()
            scores = (1.0 - found["_distance"].to_numpy().astype(np.float64)).tolist()
            return list(zip(scores, found["chunk_id"].to_pylist(), strict=True))

        with _store("search the table"):
            return rows.best(ask, lambda names: names, k)

    def nearest(
        self, vectors: npt.NDArray[np.float32], k: int, where: str | None = None
    ) -> list[list[tuple[str, float]]]:
        """Run an exact :meth:`dense` for several vectors in one scan of the table.

        Cosines are those of :mod:`indexes.nearest`; LanceDB's may differ in the last digits.

        Args:
            vectors: shape (n, dimension).
            where: as for :meth:`dense`.

        Raises:
            ValueError: when a vector has another shape, is not finite or all zero.
        """
        for vector in vectors:
            self._check_query(vector)
        if not len(vectors):
            return []
        found = Nearest(vectors, k)
        for batch in self.rows(["chunk_id", "vector"], where=where):
            made = batch.filter(batch["vector"].is_valid())
            found.add(made["chunk_id"].to_pylist(), made["vector"].flatten().to_numpy().reshape(-1, self.dimension))
        return found.hits()

    def refresh_indexes(self) -> int:
        """Make indexes where they pay and again where they are stale; return the version at the head.

        For the builder, at the end of its writes: until then new rows are found one by one, and correctly. Below
        ``EXACT_ROWS`` no index is made; it and small changes to an indexed table write nothing.
        """
        if self.count() >= EXACT_ROWS:
            with _store("index the table"):
                for column in ("chunk_id", "document_id", "key"):
                    self._table.refresh_index(column, BTree())
                self._table.refresh_index("labels", LabelList())
                vectors = self.count_vectors()
                if vectors >= MINIMUM_VECTORS:
                    self._table.refresh_index("vector", _vector_index(vectors))
        return self.version

    def compact(self) -> int:
        """Merge young pieces where there are many, as each diff adds one; return the version at the head.

        Searches give the same afterwards.
        """
        with _store("compact the table"):
            self._table.compact()
        return self.version

    def prune(self, kept: Collection[int], files: Files, folder: str) -> int:
        """Drop all versions but these, see :meth:`indexes.storage.tables.Table.prune`."""
        with _store("prune the table"):
            return self._table.prune(kept, files, folder)

    def uncovered(self) -> int:
        """Return how many rows the vector index does not cover.

        They are searched one by one. 0 where there is no index.
        """
        with _store("look at the table's indexes"):
            table = self._table.raw
            found = [index.name for index in table.list_indices() if index.columns == ["vector"]]
            return sum(int(table.index_stats(name).num_unindexed_rows) for name in found)

    def _check_query(self, vector: npt.NDArray[np.float32]) -> None:
        length = np.linalg.norm(vector)
        if vector.shape != (self.dimension,) or not np.isfinite(length) or length == 0:
            raise ValueError(f"expected {self.dimension} finite numbers, not all zero, got shape {vector.shape}")

    def _present(self, ids: Sequence[str]) -> set[str]:
        """Return which of these chunk ids are there.

        By a scan of the column: an index that had lost rows would hide them here and leave their ids twice.
        """
        wanted = pa.array(ids, pa.string())
        found: set[str] = set()
        if ids:
            for batch in self.rows(["chunk_id"], WIDE_SCAN_ROWS):
                names = batch["chunk_id"]
                found.update(names.filter(pc.is_in(names, wanted)).to_pylist())
        return found

    def _delete_checked(self, ids: Sequence[str]) -> int:
        """Remove rows that are there, each once."""
        deleted = self._table.delete("chunk_id", ids)
        if deleted != len(ids):
            raise StoreError(f"table {TABLE} removed {deleted} rows, expected {len(ids)}", "Build again.")
        return deleted


def _vector_index(vectors: int) -> IvfFlat:
    return IvfFlat(distance_type="cosine", num_partitions=max(1, vectors // PARTITION), sample_rate=SAMPLES)


@contextmanager
def _store(what: str) -> Iterator[None]:
    """Say what could not be done where LanceDB only says why."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"cannot {what}: {error}", "Check that the index is there, whole and writable.") from error
