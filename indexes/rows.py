"""A row of the index: one chunk with everything that a reader sees of it.

Invariants:
- The embedded text of a row is ``prefix`` and ``text`` without what is left out within it.
- A row's digest covers every column that a reader sees and whether the row has a vector, but neither the vector's
  numbers nor the runtime that made them, in an encoding that no two different rows share.
- A row names its vector's provenance if and only if it has a vector.
- Hits stand in one order everywhere: falling score, then chunk id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chunker.chunk import Chunk, chunk_ids, indexed_text, prefix
from indexes.cache.store import text_digest

_ID: Final = re.compile("[0-9a-f]{32}")  # of a document or a chunk, see chunker.chunk
LENGTH_ERROR: Final = 1e-3  # how far the length of a normalized vector may be from 1
TIES: Final = 10_000  # hits with the score of the last one wanted; the order of more of them is the index's own


class ChunkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk as it stands in the index, without its vector.

    Attributes:
        chunk_id, document_id: 32 hexadecimal digits.
        key: the object's key in its source.
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the document's text between them.
        prefix: what stands before the text in the embedded text; it ends with a line end or is empty.
        note: what places the chunk in its document; empty where there is none.
        heading_path: titles from the document's own down to the section; an untitled document has none of its own.
        locator: the citation a person would write.
        tokens: tokens by the ruler of ``text`` without what is left out within it.
        unknown_tokens: how many of the embedded text's tokens the embedder does not know.
        section_start, section_end: ``[start, end)`` of the innermost section around the chunk.
        previous_id, next_id: the neighbours in the document; empty at its ends.
        labels: the document's labels, sorted.
        cut: what of the chunk had to be cut, which stretches of its text are left out of the index, and where character
            references stand in it, as ``Chunk.remarks`` writes them; empty where there is nothing to remark.
    """

    chunk_id: str
    document_id: str
    key: str
    start: int
    end: int
    text: str
    prefix: str = ""
    note: str = ""
    heading_path: tuple[str, ...] = ()
    locator: str = ""
    tokens: int = 0
    unknown_tokens: int = 0
    section_start: int = 0
    section_end: int = 0
    previous_id: str = ""
    next_id: str = ""
    labels: tuple[str, ...] = ()
    cut: str = ""

    @property
    def embedded_text(self) -> str:
        """The text that goes to the embedder, to BM25 and to a reranker."""
        return embedded({"prefix": self.prefix, "text": self.text, "cut": self.cut})


EMBEDDED: Final = ("prefix", "text", "cut")  # the columns that an embedded text is made of


def embedded(row: Mapping[str, Any]) -> str:
    """Return the embedded text of a row that holds at least the columns ``EMBEDDED``."""
    return str(row["prefix"] + indexed_text(row["text"], row["cut"]))


class Vector(NamedTuple):
    """A vector and where it comes from.

    Attributes:
        values: shape (dimension,), float32, finite, not all zero.
        provenance: id of the runtime that made it; not empty.
    """

    values: npt.NDArray[np.float32]
    provenance: str


def schema(dimension: int) -> pa.Schema:
    """Return the columns of the table: those of :class:`ChunkRow`, digests, provenance and the vector.

    The vector alone may be null.
    """
    text, texts = pa.string(), pa.list_(pa.field("item", pa.string(), nullable=False))
    types = dict.fromkeys([*ChunkRow.__struct_fields__, "text_digest", "row_digest", "provenance"], text)
    types |= dict.fromkeys(("start", "end", "section_start", "section_end"), pa.int64())
    types |= dict.fromkeys(("tokens", "unknown_tokens"), pa.int32())
    types |= dict.fromkeys(("heading_path", "labels"), texts)
    fields = [pa.field(name, kind, nullable=False) for name, kind in types.items()]
    return pa.schema([*fields, pa.field("vector", pa.list_(pa.float32(), dimension))])


def document_rows(
    document_id: str,
    key: str,
    chunks: Sequence[Chunk],
    *,
    notes: Sequence[str],
    locators: Sequence[str],
    unknown_tokens: Sequence[int],
    labels: Sequence[str],
) -> list[ChunkRow]:
    """Return the rows of one document.

    Args:
        chunks: all chunks of the document, in reading order.
        notes, locators, unknown_tokens: one for each chunk.
    """
    ids = chunk_ids(document_id, chunks)
    around = ["", *ids, ""]
    return [
        ChunkRow(
            chunk_id=ids[i],
            document_id=document_id,
            key=key,
            start=chunk.start,
            end=chunk.end,
            text=chunk.text,
            prefix=prefix(notes[i], chunk),
            note=notes[i],
            heading_path=chunk.heading_path,
            locator=locators[i],
            tokens=chunk.tokens,
            unknown_tokens=unknown_tokens[i],
            section_start=chunk.section_start,
            section_end=chunk.section_end,
            previous_id=around[i],
            next_id=around[i + 2],
            labels=tuple(sorted(set(labels))),
            cut=chunk.remarks,
        )
        for i, chunk in enumerate(chunks)
    ]


def row_digest(row: ChunkRow, *, has_vector: bool) -> str:
    """SHA-256 of everything in a row that a reader sees, in hexadecimal.

    The encoding is a JSON array of the row's fields in their order: strings are quoted and lists bracketed, so no
    two rows share one.

    Args:
        has_vector: whether the row is stored with a vector; turning vectors on or off renews the row.
    """
    return hashlib.sha256(msgspec.json.encode([*msgspec.structs.astuple(row), has_vector])).hexdigest()


def to_table(rows: Sequence[ChunkRow], vectors: Sequence[Vector | None], dimension: int) -> pa.Table:
    """Return rows and their vectors as a table of :func:`schema`.

    Args:
        vectors: one for each row; None for a row that is found by BM25 alone.

    Raises:
        ValueError: when there are not as many vectors as rows, or one of them has another dimension.
    """
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in ChunkRow.__struct_fields__}
    columns["text_digest"] = [text_digest(row.embedded_text) for row in rows]
    columns["row_digest"] = [
        row_digest(row, has_vector=vector is not None) for row, vector in zip(rows, vectors, strict=True)
    ]
    columns["provenance"] = [vector.provenance if vector else "" for vector in vectors]
    columns["vector"] = _vector_column(vectors, dimension)
    return pa.table(columns, schema=schema(dimension))


def check_rows(table: pa.Table, dimension: int) -> None:
    """Check that a table may be written.

    Raises:
        ValueError: a defect of the caller: other columns, an id twice or not in the form of an id, a vector that is
            not finite or has no direction, provenance without a vector or the other way round.
    """
    if not table.schema.equals(schema(dimension)):
        raise ValueError(f"rows have the columns {table.schema}, expected {schema(dimension)}")
    ids = table["chunk_id"].to_pylist()
    check_ids(ids)
    if len(set(ids)) != len(ids):
        raise ValueError(f"{len(ids)} rows hold only {len(set(ids))} different chunk ids")
    if pc.any(pc.equal(pc.is_null(table["vector"]), pc.not_equal(table["provenance"], ""))).as_py():
        raise ValueError("a row has provenance without a vector, or a vector without provenance")
    for chunk in table["vector"].chunks:
        vectors = chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
        lengths = np.linalg.norm(vectors, axis=1)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise ValueError("a vector is not finite or all zero, so it has no cosine")


def no_vector(rows: pa.Table | pa.RecordBatch, *, normalized: bool) -> list[tuple[str, str]]:
    """Return those of these rows whose vector is none, as (chunk id, what is wrong with it).

    Args:
        rows: with the columns chunk_id, provenance and vector.
        normalized: whether the model makes vectors of length 1.
    """
    made = rows.filter(pc.not_equal(rows["provenance"], ""))
    vectors = made["vector"].combine_chunks() if isinstance(made, pa.Table) else made["vector"]
    if not len(made):
        return []
    lengths = np.linalg.norm(np.asarray(vectors.flatten()).reshape(len(made), -1), axis=1)
    right = np.isfinite(lengths) & (lengths > 0)
    if normalized:
        right &= np.abs(lengths - 1) < LENGTH_ERROR
    return [
        (name, f"the vector of chunk {name} is not finite or has a length of {length:.4f}")
        for name, length, fine in zip(made["chunk_id"].to_pylist(), lengths.tolist(), right.tolist(), strict=True)
        if not fine
    ]


def check_ids(ids: Sequence[str]) -> None:
    """Check the form of document or chunk ids.

    Raises:
        ValueError: naming the first that is none.
    """
    for name in ids:
        if not _ID.fullmatch(name):
            raise ValueError(f"expected an id of 32 hexadecimal digits, got {name!r}")


_Place = TypeVar("_Place")


def best(
    ask: Callable[[int], list[tuple[float, _Place]]], names: Callable[[list[_Place]], list[str]], k: int
) -> list[tuple[str, float]]:
    """Return the ``k`` best hits by falling score, those of equal score by rising chunk id.

    An index breaks ties by where rows happen to lie, so it is asked deeper until every hit with the score of the
    ``k``-th is among the answers, or ``TIES`` more than ``k`` are.

    Args:
        ask: gives that many best hits, fewer only where there are no more, each with its score and place.
        names: gives the chunk ids at these places.
    """
    depth = k + 16
    hits = ask(depth)
    while len(hits) == depth and hits[-1][0] == hits[k - 1][0] and depth < k + TIES:
        depth = min(depth * 4, k + TIES)
        hits = ask(depth)
    if len(hits) > k:
        hits = [hit for hit in hits if hit[0] >= hits[k - 1][0]]
    ids = names([place for _, place in hits])
    return sorted(((name, score) for name, (score, _) in zip(ids, hits, strict=True)), key=hit_order)[:k]


def hit_order(hit: tuple[str, float]) -> tuple[float, str]:
    """Sorting key of a hit (chunk id, score)."""
    return -hit[1], hit[0]


def _vector_column(vectors: Sequence[Vector | None], dimension: int) -> pa.Array:
    values = np.zeros((len(vectors), dimension), dtype=np.float32)
    for index, vector in enumerate(vectors):
        if vector is not None:
            if vector.values.shape != (dimension,):
                raise ValueError(f"expected a vector of {dimension} numbers, got shape {vector.values.shape}")
            values[index] = vector.values
    nulls = pa.array([vector is None for vector in vectors], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), dimension, mask=nulls)
