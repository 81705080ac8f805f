"""Tables of the cache: the result of each stage, by the digest of its input.

Invariants:
- An entry is written once and never changed; written entries survive a kill.
- A key that two writers added counts once; its duplicates are removed at the next tidying.
- A sweep keeps every marked entry and every entry younger than the time it is given.

LanceDB keeps the tables, so the cache can be wherever an index can.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from indexes.storage import tables
from indexes.storage.layout import vectors_table
from indexes.storage.tables import Table

_Value = TypeVar("_Value")
KEEP: Final = timedelta(hours=1)  # superseded versions of a table stay this long for their readers

INDEX_AT: Final = 20_000  # rows above which the keys get an index


def marks(keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return keys as numbers of 8 bytes, by their first 16 digits."""
    return np.fromiter((int(key[:16], 16) for key in keys), np.uint64, len(keys))


def cache_key(*parts: str) -> str:
    """Return the key of a result: 32 hexadecimal digits, from the digests and fingerprints of its input."""
    joined = b"".join(len(data).to_bytes(8, "big") + data for data in (part.encode() for part in parts))
    return hashlib.sha256(joined).hexdigest()[:32]


def text_digest(embedded_text: str) -> str:
    """Return the SHA-256 of an embedded text, in hexadecimal."""
    return hashlib.sha256(embedded_text.encode()).hexdigest()


def vector_key(digest: str, embedder_fingerprint: str) -> str:
    """Return the key of the vector of an embedded text, by that text's digest."""
    return cache_key("vector", digest, embedder_fingerprint)


def version_key(document_id: str, version: str) -> str:
    """Return the key of a document's version in the source."""
    return cache_key("version", document_id, version)


class _CacheTable(ABC, Generic[_Value]):
    """Keys and values in one LanceDB table."""

    def __init__(self, db: Any, name: str, columns: list[tuple[str, pa.DataType]]) -> None:
        self._db = db
        self._name = name
        self._added = 0
        self._doubles: set[str] = set()
        self._schema = pa.schema([("key", pa.string()), ("made", pa.int64()), *columns])
        self._table = tables.existing(db, name)  # made with the first entry: readers write nothing

    def get(self, keys: Iterable[str]) -> dict[str, _Value]:
        """Return the values of the keys that are cached."""
        found: dict[str, _Value] = {}
        for table in self._ask(keys, self._schema.names):
            for key, value in zip(table["key"].to_pylist(), self._unpack(table), strict=True):
                found.setdefault(key, value)
        return found

    def known(self, keys: Iterable[str]) -> set[str]:
        """Return the keys that are cached."""
        return {key for table in self._ask(keys, ["key"]) for key in table["key"].to_pylist()}

    def put(self, entries: Mapping[str, _Value]) -> None:
        """Add the entries whose keys are not cached yet; they are on disk when this returns."""
        known = self.known(entries)
        self.add({key: value for key, value in entries.items() if key not in known})

    def add(self, entries: Mapping[str, _Value]) -> None:
        """Add entries of which none is cached yet; see :meth:`put`."""
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
        """Compact the table, drop duplicates, and index the keys of a large table.

        Args:
            keep: superseded versions younger than this stay for their readers.
        """
        if self._table is None or not len(self):
            return
        self._drop_doubles()
        self._table.compact(states=keep)
        if len(self) > INDEX_AT:
            self._table.refresh_index("key", BTree())

    def sweep(self, marked: npt.NDArray[np.uint64], before: float) -> int:
        """Remove entries that are not marked, and return how many.

        Entries dated in the future, by a clock that was ahead, are dated now, so that they age from today on.

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
        """Remove entries; ignore keys that are not cached."""
        if self._table is not None and len(self):
            self._table.delete("key", keys)

    def prune(self, age: timedelta) -> None:
        """Drop superseded versions of that age and files of killed writers; nobody may write meanwhile.

        Whatever the clock says, the newest version stays; it is the only one that is ever continued.
        """
        if self._table is not None:
            self._table.forget_states(age)

    def rewrite(self) -> None:
        """Rewrite every entry and drop all else: removed entries are then on no disk."""
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
    def _pack(self, values: Sequence[_Value]) -> list[pa.Array]:
        """Return values as columns, in the schema's order."""

    @abstractmethod
    def _unpack(self, table: pa.Table) -> Iterable[_Value]:
        """Return columns as values, in the table's order."""


class Codec(NamedTuple, Generic[_Value]):
    """Encoding of the values of a cache."""

    encode: Callable[[_Value], bytes]
    decode: Callable[[bytes], _Value]


class Cache(_CacheTable[_Value]):
    """Results of one type, encoded and compressed.

    Args:
        db: a LanceDB connection.
        name: of the table.
        codec: encodes and decodes the values.
    """

    def __init__(self, db: Any, name: str, codec: Codec[_Value]) -> None:
        self._codec = codec
        super().__init__(db, name, [("value", pa.large_binary())])

    def _pack(self, values: Sequence[_Value]) -> list[pa.Array]:
        return [pa.array([_compressed(self._codec.encode(value)) for value in values], pa.large_binary())]

    def _unpack(self, table: pa.Table) -> Iterable[_Value]:
        return (self._codec.decode(_expanded(value)) for value in table["value"].to_pylist())


class BytesCache(Cache[bytes]):
    """Results as bytes, whatever they encode.

    Args:
        db: a LanceDB connection.
        name: of the table.
    """

    def __init__(self, db: Any, name: str) -> None:
        super().__init__(db, name, Codec(bytes, bytes))


class Embedding(NamedTuple):
    """Vector of an embedded text, and its tokens.

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


class VectorCache(_CacheTable[Embedding]):
    """Vectors of one dimension.

    Args:
        db: a LanceDB connection.
        dimension: of the vectors; each has its own table.
    """

    def __init__(self, db: Any, dimension: int) -> None:
        self._dimension = dimension
        super().__init__(
            db,
            vectors_table(dimension),
            [
                ("vector", pa.list_(pa.float32(), dimension)),
                ("tokens", pa.int32()),
                ("unknown", pa.int32()),
                ("runtime", pa.string()),
            ],
        )

    def forget_runtime(self, runtime: str) -> None:
        """Remove all vectors of a runtime, by the id of its provenance."""
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
