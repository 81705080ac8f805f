"""One table of LanceDB: what the chunk rows, the catalog and the cache have in common.

Invariants:
- Whoever prunes names the versions that stay, by number; no clock decides it, and where one of them is missing nothing
  is removed.
- Rows are asked for by id in pieces and without a limit, so that an id that stands twice cuts no other off.
- Merging pieces writes about as many rows as were written since the last merging, not the whole table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from parsers.errors import StoreError

COMPACT_AT: Final = 40  # pieces above which some are merged: each write adds one, and every scan opens all of them
GROWTH: Final = 2  # an older piece joins a merging while it has at most so many times the rows of the younger ones
_DELETED_SHARE: Final = 0.3  # of the rows in the files, above which the whole table is written anew
COPY: Final = "-copy"  # ends the name of a passing table
AT_ONCE: Final = 2_000  # ids in one condition
SCAN_ROWS: Final = 65_536  # rows in a batch of a scan over short columns
STALE_SHARE: Final = 0.05  # of the rows not in an index before it is made again
# LanceDB's optimize() prunes by age, by default what is older than 7 days: far enough back to spare every version.
_NEVER: Final = timedelta(days=36_500)
_MANIFEST: Final = re.compile(r"(\d+)\.manifest")
_TEXT: Final = re.compile(r"[0-9a-f]+")


class _Stat(Protocol):
    """An object in a listing."""

    @property
    def key(self) -> str: ...


class Files(Protocol):
    """The objects among which a table's files lie, see :class:`indexes.storage.objects.Objects`."""

    def stats(self, prefix: str) -> Iterator[Any]: ...
    def delete(self, keys: Iterable[str]) -> None: ...


class Table:
    """A LanceDB table: at its head, for reading and writing; with a version, a view of it for reading alone.

    Args:
        db: the LanceDB connection.
        name: of the table, which is there.
        version: the exact version to read.
    """

    def __init__(self, db: Any, name: str, version: int | None = None) -> None:
        self._db = db
        self.name: Final = name
        self.raw: Any = db.open_table(name)
        """LanceDB's own table, for searches."""
        self.writable: Final = version is None
        if version is not None:
            self.raw.checkout(version)

    @classmethod
    def create(cls, db: Any, name: str, schema: pa.Schema) -> Table:
        """Make an empty table."""
        db.create_table(name, schema=schema)
        return cls(db, name)

    @property
    def version(self) -> int:
        """The version that is read; at the head, the last one written."""
        return int(self.raw.version)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.raw.schema

    def count(self, where: str | None = None) -> int:
        """Return how many rows there are, or for how many a condition holds; without one no row is read."""
        return int(self.raw.count_rows(where))

    def restore(self, version: int) -> int:
        """Put the head back to what a version held, unless it is that one; return the version at the head."""
        self.raw.checkout_latest()
        if self.version != version:
            self.raw.restore(version)
        return self.version

    def scan(
        self, columns: Sequence[str], where: str | None = None, batch_size: int = SCAN_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of all rows, or of those for which a condition holds, in no particular order."""
        query = self.raw.search().select(list(columns))
        yield from (query.where(where) if where else query).limit(None).to_batches(batch_size)

    def select(self, column: str, ids: Iterable[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of all rows with one of these ids, some ids at a time; each is hexadecimal."""
        for condition in _conditions(column, ids):
            yield self.raw.search().where(condition).select(list(columns)).limit(None).to_arrow()

    def add(self, rows: pa.Table | Iterable[pa.RecordBatch]) -> None:
        """Append rows."""
        self.raw.add(rows)

    def delete(self, column: str, ids: Iterable[str]) -> int:
        """Remove all rows with one of these ids, and return how many there were."""
        return sum(self.delete_where(condition) for condition in _conditions(column, ids))

    def delete_where(self, condition: str) -> int:
        """Remove the rows for which a condition holds, and return how many there were."""
        return int(self.raw.delete(condition).num_deleted_rows)

    def drop_doubles(self, column: str, ids: Iterable[str]) -> int:
        """Remove all but the first row of each of these ids, and return how many those were."""
        seen: set[str] = set()
        gone: list[int] = []
        for condition in _conditions(column, ids):
            query = self.raw.search().where(condition).select([column]).with_row_id(True).limit(None)
            found = query.to_arrow().sort_by("_rowid")
            for name, row in zip(found[column].to_pylist(), found["_rowid"].to_pylist(), strict=True):
                if name in seen:
                    gone.append(row)
                seen.add(name)
        for start in range(0, len(gone), AT_ONCE):
            self.delete_where(f"_rowid IN ({', '.join(map(str, gone[start : start + AT_ONCE]))})")
        return len(gone)

    def refresh_index(self, column: str, config: Any) -> None:
        """Make the index of a column where there is none, or too many rows are not in it."""
        for index in self.raw.list_indices():
            if index.columns == [column]:
                if self.raw.index_stats(index.name).num_unindexed_rows <= STALE_SHARE * self.count():
                    return
                break
        self.raw.create_index(column, config=config, replace=True)

    def pieces(self) -> int:
        """In how many pieces the rows lie."""
        return int(self.raw.stats()["fragment_stats"]["num_fragments"])

    def compact(self, at: int | None = None, states: timedelta = _NEVER) -> None:
        """Merge the younger pieces where there are many; older versions keep theirs.

        Where a large share of the rows in the files is deleted, or the younger pieces are most of the table, everything
        is written anew.

        Args:
            at: pieces that are left alone; by default ``COMPACT_AT``.
            states: versions older than this may go where everything is written anew; by default all stay.
        """
        figures = self.raw.stats()
        pieces, spread = figures["fragment_stats"]["num_fragments"], figures["fragment_stats"]["lengths"]
        stored = spread["mean"] * pieces
        if stored and figures["num_rows"] < (1 - _DELETED_SHARE) * stored:
            self.raw.optimize(cleanup_older_than=states)
        elif pieces > (COMPACT_AT if at is None else at):
            self._merge(states)

    def _merge(self, states: timedelta) -> None:
        rows = self._rows_by_piece()
        numbers = sorted(rows)
        first, young = len(numbers) - 1, rows[numbers[-1]] if numbers else 0
        while first > 0 and rows[numbers[first - 1]] <= GROWTH * young:
            first -= 1
            young += rows[numbers[first]]
        if first <= 0:
            self.raw.optimize(cleanup_older_than=states)
            return
        # Row ids hold the piece's number in their upper half. What is added takes later ones.
        here = f"_rowid >= {numbers[first] << 32} AND _rowid < {(numbers[-1] + 1) << 32}"
        self.add(pa.RecordBatchReader.from_batches(self.schema, self.scan(self.schema.names, here, 1_024)))
        self.delete_where(here)

    def _rows_by_piece(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for batch in self.raw.search().select(["_rowid"]).with_row_id(True).limit(None).to_batches(SCAN_ROWS):
            numbers, counts = np.unique(batch["_rowid"].to_numpy() >> np.uint64(32), return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                found[number] = found.get(number, 0) + count
        return found

    def prune(self, kept: Collection[int], files: Files, folder: str) -> int:
        """Remove all versions but these, and every file that none of these needs; return how many versions went.

        The head is put back to the last of them. Nobody may write meanwhile. A kill leaves the kept versions whole and
        may leave the head empty; whoever writes next puts it back first.

        LanceDB's own pruning goes by age and copies the head's rows first, so the versions that go are removed by the
        numbers in their names, with an empty head, and LanceDB removes the files that no version names.

        Args:
            kept: numbers of the versions that stay, at least one.
            files: the objects among which the table lies.
            folder: where the table lies among them.

        Raises:
            StoreError: when one of the versions that are to stay is not there; nothing was removed.
        """
        found = self._versions(files, folder)
        missing = sorted(set(kept) - found.keys())
        if missing or not kept:
            raise StoreError(
                f"table {self.name} has no version {', '.join(map(str, missing))}, which a kept revision names",
                "Nothing was removed. Run `gristmill verify`.",
            )
        self.raw.checkout_latest()
        self.raw.delete("true")
        gone = [key for number, key in found.items() if number not in kept]
        files.delete(gone)
        self.raw.optimize(cleanup_older_than=_NEVER, delete_unverified=True)
        self.restore(max(kept))
        return len(gone)

    def _versions(self, files: Files, folder: str) -> dict[int, str]:
        """Return where the description of each version lies, by its number."""
        found: dict[int, str] = {}
        for stat in files.stats(f"{folder}/{self.name}.lance/_versions/"):
            named = _MANIFEST.fullmatch(stat.key.rsplit("/", 1)[1])
            if named is not None:  # 20 digits count down from 2**64 - 1, so that the youngest is listed first
                number = int(named[1])
                found[2**64 - 1 - number if len(named[1]) == 20 else number] = stat.key
        return found

    def forget_states(self, age: timedelta) -> None:
        """Write everything anew and drop the versions that are older; the head stays. Nobody may write meanwhile."""
        self.raw.optimize(cleanup_older_than=_NEVER)  # what takes long first, so that the age is counted from now
        self.raw.optimize(cleanup_older_than=age, delete_unverified=True)


def table_names(db: Any) -> set[str]:
    """Return the tables of a connection, without temporary ones and without dropped ones."""
    return {name for name in db.list_tables(limit=1_000).tables if not name.endswith(COPY)}


def existing(db: Any, name: str) -> Table | None:
    """Return the table of that name at its head.

    None where there is none, whatever a store still lists of a dropped one.
    """
    if name not in table_names(db):
        return None
    try:
        return Table(db, name)
    except ValueError as error:
        if "was not found" not in str(error):
            raise
        return None


def _conditions(column: str, ids: Iterable[str]) -> Iterator[str]:
    """Conditions that together hold for the rows with one of these ids.

    Raises:
        ValueError: when an id is not hexadecimal.
    """
    wanted = sorted(set(ids))
    for name in wanted:
        if not _TEXT.fullmatch(name):
            raise ValueError(f"an id is hexadecimal, not {name!r}")
    for start in range(0, len(wanted), AT_ONCE):
        listed = ", ".join(f"'{name}'" for name in wanted[start : start + AT_ONCE])
        yield f"{column} IN ({listed})"


def copy_over(db: Any, name: str) -> None:
    """Write every row of a table anew and drop all else, so that nothing deleted or superseded is left of it.

    A kill leaves the table, its copy, or both; :func:`finish_copies` goes on from there. Nobody may read or write
    meanwhile.
    """
    _copy(db, name, name + COPY)
    _take_copy(db, name)


def finish_copies(db: Any) -> None:
    """Finish what a kill broke off in :func:`copy_over`."""
    for spare in sorted(name for name in db.list_tables(limit=1_000).tables if name.endswith(COPY)):
        if _whole(db, spare):
            _take_copy(db, spare.removesuffix(COPY))
        else:  # still being written or already being dropped: the table itself is whole
            db.drop_table(spare, ignore_missing=True)


def _take_copy(db: Any, name: str) -> None:
    db.drop_table(name, ignore_missing=True)
    _copy(db, name + COPY, name)
    db.drop_table(name + COPY)


def _whole(db: Any, name: str) -> bool:
    """Return whether every row of a table can be read."""
    try:
        table = Table(db, name)
        return sum(len(batch) for batch in table.scan(table.schema.names, batch_size=1_024)) == table.count()
    except (OSError, RuntimeError, ValueError):  # whatever LanceDB raises of files that are not there
        return False


def _copy(db: Any, name: str, other: str) -> None:
    table = Table(db, name)
    if not table.count():
        db.create_table(other, schema=table.schema)
        return
    rows = table.scan(table.schema.names, batch_size=1_024)
    db.create_table(other, data=pa.RecordBatchReader.from_batches(table.schema, rows), schema=table.schema)
