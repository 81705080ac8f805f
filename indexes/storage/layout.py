"""Names of the tables that an index consists of."""

from __future__ import annotations

from typing import Final

# Tables of the cache.
VERSIONS: Final = "versions"
DOCUMENTS: Final = "documents"
CHUNKS: Final = "chunks"
NOTES: Final = "notes"
RUNTIMES_TABLE: Final = "runtimes"  # a few rows, never swept
_VECTORS: Final = "vectors-"


def vectors_table(dimension: int) -> str:
    """Return the name of the table of cached vectors of a dimension."""
    return f"{_VECTORS}{dimension}"


def dimension_of(table: str) -> int | None:
    """Return the dimension of a table of cached vectors; None for another table."""
    return int(table.removeprefix(_VECTORS)) if table.startswith(_VECTORS) else None
