"""What a build remembers: the result of each stage by the digest of what it was made from.

Kept here: an entry is written once and never changed; what is flushed survives a kill; a build asks for the keys it
needs and computes those that are missing; and nothing is forgotten that whoever sweeps has marked or that is younger
than a time they name. LanceDB keeps the tables, so the memory can live wherever an index can.
"""

from __future__ import annotations

import hashlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree

from enrich import tables

Value = TypeVar("Value")
KEEP: Final = timedelta(hours=1)  # superseded states of a table stay this long for whoever reads them
_KEY: Final = re.compile("[0-9a-f]+")
RUNTIMES: Final = "runtimes"  # table of what each runtime was, by the id of its provenance; a few rows, never swept
VECTORS: Final = "vectors-"  # tables of vectors, by their dimension

ASK: Final = 2_000  # keys asked for in one query
INDEX_AT: Final = 20_000  # rows above which the keys get an index
STALE_SHARE: Final = 0.05  # of the rows not in that index before it is brought up to date
SCAN_ROWS: Final = 65_536  # rows in a batch of a scan over keys


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
        self._schema = pa.schema([("key", pa.string()), ("made", pa.int64()), *columns])
        existing = name in set(db.list_tables(limit=1_000).tables)
        self._table: Any = (
            db.open_table(name) if existing else None
        )  # made by the first entry: who reads writes nothing

    def get(self, keys: Iterable[str]) -> dict[str, Value]:
        """The values of those keys that are known."""
        found: dict[str, Value] = {}
        for table in self._ask(keys, self._schema.names):
            found.update(zip(table["key"].to_pylist(), self._unpack(table), strict=True))
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
                self._table = self._db.create_table(self._name, schema=self._schema)
            self._table.add(pa.table(columns, schema=self._schema))
            self._added += 1
            if self._added % tables.COMPACT_AT == 0:
                self.tidy()

    def tidy(self, keep: timedelta = KEEP) -> None:
        """Compact what many small writes left behind, and index the keys of a large table.

        Args:
            keep: superseded states younger than this stay, for whoever still reads them.
        """
        total = len(self)
        if not total:
            return
        if tables.pieces(self._table) > tables.COMPACT_AT:
            self._table.optimize(cleanup_older_than=keep)
        if total > INDEX_AT:
            indexes = self._table.list_indices()
            if not indexes:
                self._table.create_index("key", config=BTree())
            elif self._table.index_stats(indexes[0].name).num_unindexed_rows > STALE_SHARE * total:
                self._table.optimize(cleanup_older_than=keep)

    def sweep(self, marked: npt.NDArray[np.uint64], before: float) -> int:
        """Forget entries that nobody marked, and return how many.

        Args:
            marked: the :func:`marks` of the keys that stay, in any order.
            before: entries made at this time or later stay, in seconds since 1970.
        """
        gone: list[str] = []
        if not len(self):
            return 0
        for batch in self._table.search().select(["key", "made"]).limit(None).to_batches(SCAN_ROWS):
            old = batch.filter(pc.less(batch["made"], int(before)))
            keys = old["key"].to_pylist()
            stays = np.isin(marks(keys), marked)
            gone += [key for key, stay in zip(keys, stays.tolist(), strict=True) if not stay]
        self.forget(gone)
        return len(gone)

    def forget(self, keys: Iterable[str]) -> None:
        """Forget entries; those that are not there are passed over."""
        ids = sorted(set(keys)) if len(self) else []
        for start in range(0, len(ids), ASK):
            listed = ", ".join(f"'{_hex(key)}'" for key in ids[start : start + ASK])
            self._table.delete(f"key IN ({listed})")

    def prune(self, before: datetime) -> None:
        """Drop states superseded before a time, and what killed writers left; nobody may write meanwhile."""
        if self._table is not None:
            tables.prune(self._table, before)

    def rewrite(self) -> None:
        """Write every entry anew and drop all else: what was forgotten is then on no disk."""
        if self._table is not None:
            self._table = tables.rewrite(self._db, self._name, self._table)
            tables.drop_others(self._table)

    def __len__(self) -> int:
        return int(self._table.count_rows()) if self._table is not None else 0

    def _ask(self, keys: Iterable[str], columns: list[str]) -> Iterator[pa.Table]:
        wanted = sorted(set(keys))
        if not wanted or not len(self):
            return
        for start in range(0, len(wanted), ASK):
            listed = ", ".join(f"'{_hex(key)}'" for key in wanted[start : start + ASK])
            yield self._table.search().where(f"key IN ({listed})").select(columns).limit(ASK).to_arrow()

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
        if len(self):
            self._table.delete(f"runtime = '{_hex(runtime)}'")

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


def _hex(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"a memory key is hexadecimal, not {key!r}")
    return key


def _compressed(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _expanded(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return stream.read()  # type: ignore[no-any-return]
