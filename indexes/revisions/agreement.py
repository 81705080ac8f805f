"""Whether the vector table and the BM25 index hold what the catalog says: all rows, or those of some documents.

Invariants:
- Nothing holds a list of all chunks: stamps add up, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from indexes.catalog import Catalog, stamp, stamp_sum
from indexes.lexical.index import LexicalIndex
from indexes.vectors import ChunkTable

_AT_ONCE: Final = 500  # documents compared at a time


def store_stamp(store: ChunkTable | LexicalIndex) -> str:
    """Return the stamp of all rows of a store, see :func:`indexes.catalog.stamp`."""
    return stamp_sum([_stamp(batch) for batch in store.stamps()])


def differing(document_ids: Iterable[str], catalog: Catalog, table: ChunkTable, lexical: LexicalIndex) -> int:
    """Compare the rows of these documents; return a lower bound of how many differ.

    A document without rows counts too.
    """
    return sum(not _agrees(names, catalog, table, lexical) for names in _pieces(sorted(document_ids)))


def _agrees(names: list[str], catalog: Catalog, table: ChunkTable, lexical: LexicalIndex) -> bool:
    meant = [one for part in catalog.columns_of(names, ["stamp"]) for one in part["stamp"].to_pylist()]
    parts = list(table.columns_of(names, ["chunk_id", "row_digest"]))
    if stamp_sum(meant) != stamp_sum([_stamp(part) for part in parts]):
        return False
    if sum(lexical.count_of("document_id", name) for name in names) != sum(map(len, parts)):
        return False
    return all(
        lexical.count_of("stamp", f"{chunk_id} {digest}") == 1
        for part in parts
        for chunk_id, digest in zip(part["chunk_id"].to_pylist(), part["row_digest"].to_pylist(), strict=True)
    )


def _stamp(rows: pa.RecordBatch | pa.Table) -> str:
    return stamp(rows["chunk_id"].to_pylist(), rows["row_digest"].to_pylist())


def _pieces(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]
