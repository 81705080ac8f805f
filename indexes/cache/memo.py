"""What a build remembers: the result of each stage by the digest of what it was made from.

Invariants:
- An entry is written once and never changed, and what is flushed survives a kill.
- A key that two writers made serves like any other; the doubles of those that were asked for go with the next tidying.
- Nothing is forgotten that whoever sweeps has marked, or that is younger than a time they name.

LanceDB keeps the tables, so the memory can live wherever an index can.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from indexes.storage import tables
from indexes.storage.tables import Table

Value = TypeVar("Value")
KEEP: Final = timedelta(hours=1)  # superseded states of a table stay this long for whoever reads them
RUNTIMES: Final = "runtimes"  # table of what each runtime was, by the id of its provenance; a few rows, never swept
VECTORS: Final = "vectors-"  # tables of vectors, by their dimension

INDEX_AT: Final = 20_000  # rows above which the keys get an index


def marks(keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Keys as numbers, by their first 16 digits: enough to tell what stays, at 8 bytes a key."""
    return np.fromiter((int(key[:16], 16) for key in keys), np.uint64, len(keys))


def memory_key(*parts: str) -> str:
    """The key of a result: 32 hexadecimal digits from the digests and fingerprints that it was made from."""
    joined = b"".join(len(data).to_bytes(8, "big") + data for data in (part.encode() for part in parts))
    return hashlib.sha256(joined).hexdigest()[:32]


def text_digest(embedded_text: str) -> str:
    """SHA-256 of an embedded text, in hexadecimal."""
    return hashlib.sha256(embedded_text.encode()).hexdigest()


def vector_key(digest: str, embedder_fingerprint: str) -> str:
    """The key of the vector of an embedded text, by that text's digest."""
    return memory_key("vector", digest, embedder_fingerprint)


def version_key(document_id: str, version: str) -> str:
    """The key of what the bytes of a document were in a state of the source."""
    return memory_key("version", document_id, version)


class _Table(ABC, Generic[Value]):
    """Keys and values in one LanceDB table."""

    def __init__(self, db: Any, name: str, columns: list[tuple[str, pa.DataType]]) -> None:
        self._db = db
        self._name = name
        self._added = 0
        self._doubles: set[str] = set()
        self._schema = pa.schema([("key", pa.string()), ("made", pa.int64()), *columns])
        self._table = tables.existing(db, name)  # made by the first entry: who reads writes nothing

    def get(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of those keys that are known."""
        found: dict[str, Value] = {}
        for table in self._ask(keys, self._schema.names):
            for key, value in zip(table["key"].to_pylist(), self._unpack(table), strict=True):
                found.setdefault(key, value)
        return found

    def known(self, keys: Iterable[str]) -> set[str]:
        """Those keys that are known, without their values."""
        return {key for table in self._ask(keys, ["key"]) for key in table["key"].to_pylist()}

    def put(self, entries: Mapping[str, Value]) -> None:
        """Remember results whose keys are not known yet; they are on disk when this returns."""
        known = self.known(entries)
        self.add({key: value for key, value in entries.items() if key not in known})

    def add(self, entries: Mapping[str, Value]) -> None:
        """:meth:`put` for whoever has asked already: none of these keys is known."""
        if entries:
            columns = [pa.array(entries, pa.string()), pa.array([int(time.time())] * len(entries), pa.int64())]
            columns += self._pack(list(entries.values()))
            if self._table is None:
                self._table = Table.create(self._db, self._name, self._schema)
            self._table.add(pa.table(columns, schema=self._schema))
            self._added += 1
            if self._added % tables.COMPACT_AT == 0:
                self.tidy()

    def tidy(self, keep: timedelta = KEEP) -> None:
        """Compact what many small writes left behind, drop doubles, and index the keys of a large table.

        Args:
            keep: superseded states younger than this stay, for whoever still reads them.
        """
        if self._table is None or not len(self):
            return
        self._drop_doubles()
        self._table.compact(states=keep)
        if len(self) > INDEX_AT:
            self._table.refresh_index("key", BTree())

    def sweep(self, marked: npt.NDArray[np.uint64], before: float) -> int:
        """Forget entries that nobody marked, and return how many.

        Entries dated later than now, by a clock that was ahead, are dated anew, so that they age from today on.

        Args:
            marked: the :func:`marks` of the keys that stay, in any order.
            before: entries made at this time or later stay, in seconds since 1970.
        """
        gone: list[str] = []
        if self._table is None or not len(self):
            return 0
        now = int(time.time())
        ahead = f"made > {now + 1}"
        if before <= now and self._table.count(ahead):
            self._table.raw.update(where=ahead, values={"made": now})
        seen = [np.empty(0, np.uint64)]
        for batch in self._table.scan(["key", "made"]):
            numbers = marks(batch["key"].to_pylist())
            unmarked = ~np.isin(numbers, marked)
            old = np.asarray(batch["made"]) < int(before)
            gone += batch["key"].filter(pa.array(unmarked & old)).to_pylist()
            seen.append(numbers)
        numbers, counts = np.unique(np.concatenate(seen), return_counts=True)
        twice = numbers[counts > 1]
        for batch in self._table.scan(["key"]) if len(twice) else ():
            keys = batch["key"].to_pylist()
            self._doubles.update(np.asarray(keys, object)[np.isin(marks(keys), twice)].tolist())
        self._drop_doubles()
        self.forget(gone)
        return len(set(gone))

    def forget(self, keys: Iterable[str]) -> None:
        """Forget entries; those that are not there are passed over."""
        if self._table is not None and len(self):
            self._table.delete("key", keys)

    def prune(self, age: timedelta) -> None:
        """Drop superseded states of that age, and what killed writers left; nobody may write meanwhile.

        By whatever clock: the newest state, which alone is ever gone on from, stays.
        """
        if self._table is not None:
            self._table.forget_states(age)

    def rewrite(self) -> None:
        """Write every entry anew and drop all else: what was forgotten is then on no disk."""
        if self._table is not None:
            tables.copy_over(self._db, self._name)
            self._table = Table(self._db, self._name)

    def __len__(self) -> int:
        return self._table.count() if self._table is not None else 0

    def _ask(self, keys: Iterable[str], columns: list[str]) -> Iterator[pa.Table]:
        if self._table is None or not len(self):
            return
        for found in self._table.select("key", keys, columns):
            names = found["key"]
            if pc.count_distinct(names).as_py() < len(names):
                self._doubles.update(key for key, times in Counter(names.to_pylist()).items() if times > 1)
            yield found

    def _drop_doubles(self) -> None:
        if self._doubles and self._table is not None:
            self._table.drop_doubles("key", self._doubles)
        self._doubles = set()

    @abstractmethod
    def _pack(self, values: Sequence[Value]) -> list[pa.Array]:
        """Values as columns, in the schema's order."""

    @abstractmethod
    def _unpack(self, table: pa.Table) -> Iterable[Value]:
        """Columns as values, in the table's order."""


class Memo(_Table[bytes]):
    """Results kept as bytes, compressed.

    Args:
        db: a LanceDB connection.
        name: of the table: ``documents``, ``chunks``, ``notes``, ``versions``, ``runtimes``.
    """

    def __init__(self, db: Any, name: str) -> None:
        super().__init__(db, name, [("value", pa.large_binary())])

    def _pack(self, values: Sequence[bytes]) -> list[pa.Array]:
        return [pa.array([_compressed(value) for value in values], pa.large_binary())]

    def _unpack(self, table: pa.Table) -> Iterable[bytes]:
        return (_expanded(value) for value in table["value"].to_pylist())


class Embedding(NamedTuple):
    """What is remembered of an embedded text.

    Attributes:
        vector: (dimension,), float32.
        tokens: of the text with prefix and special tokens, before the limit.
        unknown: those among them that the model does not know.
        runtime: id of the provenance of the vector.
    """

    vector: np.ndarray
    tokens: int
    unknown: int
    runtime: str


class VectorMemo(_Table[Embedding]):
    """Vectors of one dimension.

    Args:
        db: a LanceDB connection.
        dimension: of the vectors; each has its own table.
    """

    def __init__(self, db: Any, dimension: int) -> None:
        self._dimension = dimension
        super().__init__(
            db,
            f"{VECTORS}{dimension}",
            [
                ("vector", pa.list_(pa.float32(), dimension)),
                ("tokens", pa.int32()),
                ("unknown", pa.int32()),
                ("runtime", pa.string()),
            ],
        )

    def forget_runtime(self, runtime: str) -> None:
        """Forget all vectors of a runtime, by the id of its provenance."""
        if self._table is not None and len(self):
            self._table.delete("runtime", [runtime])

    def _pack(self, values: Sequence[Embedding]) -> list[pa.Array]:
        flat = np.stack([value.vector for value in values]).astype(np.float32, copy=False).reshape(-1)
        return [
            pa.FixedSizeListArray.from_arrays(pa.array(flat), self._dimension),
            pa.array([value.tokens for value in values], pa.int32()),
            pa.array([value.unknown for value in values], pa.int32()),
            pa.array([value.runtime for value in values], pa.string()),
        ]

    def _unpack(self, table: pa.Table) -> Iterable[Embedding]:
        matrix = np.concatenate(
            [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["vector"].chunks] or [np.empty(0)]
        ).reshape(-1, self._dimension)
        columns = (table[name].to_pylist() for name in ("tokens", "unknown", "runtime"))
        return map(Embedding, matrix, *columns)


def _compressed(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _expanded(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return stream.read()  # type: ignore[no-any-return]
