"""From a document's chunks to the rows that both stores and the catalog keep of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from chunker.chunk import Chunk, document_id, locator
from enrich.memo import Embedding
from flows.plan import Entry
from flows.workshop import Workshop
from indexes import rows as index_rows
from indexes.catalog import Row, stamp


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """What the index keeps of one document.

    Attributes:
        rows: its chunk rows, in reading order.
        vectors: one for each row; None for a document that BM25 alone finds.
        catalog_row: its own row.
    """

    rows: list[index_rows.Row]
    vectors: list[index_rows.Vector | None]
    catalog_row: Row


def document_rows(
    shop: Workshop,
    entry: Entry,
    chunks: Sequence[Chunk],
    notes: Sequence[str],
    embeddings: Sequence[Embedding | None],
) -> DocumentRows:
    """The rows of a document.

    Args:
        chunks: all its chunks, in reading order.
        notes: of each chunk; empty where there is none.
        embeddings: of each chunk's embedded text; None for a document that BM25 alone finds.
    """
    made = index_rows.document_rows(
        document_id(shop.source.name, entry.key),
        entry.key,
        chunks,
        notes=notes,
        locators=[locator(entry.key, chunk) for chunk in chunks],
        unknown_tokens=[embedding.unknown if embedding else 0 for embedding in embeddings],
        labels=entry.labels,
    )
    vectors = [index_rows.Vector(one.vector, one.runtime) if one else None for one in embeddings]
    catalog_row = _catalog_row(
        shop,
        entry,
        document=entry.document,
        title=entry.title,
        labels=entry.labels,
        chunk_ids=[row.chunk_id for row in made],
        stamp=stamp(
            (row.chunk_id, index_rows.row_digest(row, has_vector=vector is not None))
            for row, vector in zip(made, vectors, strict=True)
        ),
        tokens=sum(embedding.tokens for embedding in embeddings if embedding),
        unknown=sum(embedding.unknown for embedding in embeddings if embedding),
    )
    return DocumentRows(made, vectors, catalog_row)


def row_without_chunks(shop: Workshop, entry: Entry) -> Row:
    """The catalog row of a document of which nothing new goes into the index; what is in it stays."""
    before = entry.row
    if before is not None and entry.touched:
        return msgspec.structs.replace(before, version=entry.object.version)
    if before is None or not shop.continues:
        return _catalog_row(shop, entry)
    return _catalog_row(
        shop,
        entry,
        document=before.document,
        title=before.title,
        labels=before.labels,
        chunk_ids=before.chunk_ids,
        stamp=before.stamp,
        tokens=before.tokens,
        unknown=before.unknown,
    )


def _catalog_row(shop: Workshop, entry: Entry, **content: Any) -> Row:
    failed_before = entry.row.attempts if entry.row is not None else 0
    return Row(
        document_id=document_id(shop.source.name, entry.key),
        source=shop.source.name,
        key=entry.key,
        version="" if entry.transient else entry.object.version,
        size=entry.object.size,
        bytes_digest=entry.bytes_digest,
        media_type=entry.media_type,
        recipe="" if entry.unfinished else shop.recipe(entry.key, entry.media_type),
        status=entry.status,
        reason=entry.reason,
        attempts=failed_before + 1 if entry.failed else 0,
        **content,
    )
