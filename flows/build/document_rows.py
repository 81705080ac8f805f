"""From a document's chunks to the rows that both stores and the catalog keep of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chunker.chunk import Chunk, locator
from flows.build.batch import Entry
from flows.report import KEPT
from flows.state import BuildState
from indexes import rows as index_rows
from indexes.cache.store import Embedding
from indexes.catalog import CatalogRow, stamp


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """What the index keeps of one document.

    Attributes:
        rows: its chunk rows, in reading order.
        vectors: one for each row; None for a document that BM25 alone finds.
        catalog_row: its own row.
    """

    rows: list[index_rows.ChunkRow]
    vectors: list[index_rows.Vector | None]
    catalog_row: CatalogRow


def rows_of_document(
    state: BuildState,
    entry: Entry,
    chunks: Sequence[Chunk],
    notes: Sequence[str],
    embeddings: Sequence[Embedding | None],
) -> DocumentRows:
    """Return the rows of a document.

    Args:
        chunks: all its chunks, in reading order.
        notes: of each chunk; empty where there is none.
        embeddings: of each chunk's embedded text; None for a document that BM25 alone finds.
    """
    made = index_rows.document_rows(
        entry.document_id,
        entry.key,
        chunks,
        notes=notes,
        locators=[locator(entry.key, chunk) for chunk in chunks],
        unknown_tokens=[embedding.unknown if embedding else 0 for embedding in embeddings],
        labels=entry.labels,
    )
    vectors = [index_rows.Vector(one.vector, one.runtime) if one else None for one in embeddings]
    digests = [
        index_rows.row_digest(row, has_vector=vector is not None) for row, vector in zip(made, vectors, strict=True)
    ]
    catalog_row = _catalog_row(
        state,
        entry,
        document=entry.document,
        chunks=entry.chunks,
        notes=entry.notes,
        title=entry.title,
        labels=entry.labels,
        chunk_ids=[row.chunk_id for row in made],
        stamp=stamp([row.chunk_id for row in made], digests),
        tokens=sum(embedding.tokens for embedding in embeddings if embedding),
        unknown=sum(embedding.unknown for embedding in embeddings if embedding),
    )
    return DocumentRows(made, vectors, catalog_row)


def row_without_chunks(state: BuildState, entry: Entry, standing: CatalogRow | None = None) -> CatalogRow:
    """Return the catalog row of a document of which nothing new goes into the index; what is in it stays.

    Args:
        standing: its row as it is published, or with the labels that its rows were given by this build.
    """
    before = standing or entry.row
    if before is not None and entry.touched:
        return before
    if before is None or not state.continues:
        # Labels are kept without rows too: they hold for the rows that a rollback brings back.
        return _catalog_row(state, entry, labels=standing_labels(entry))
    kept = ("document", "chunks", "notes", "title", "labels", "chunk_ids", "stamp", "tokens", "unknown")
    return _catalog_row(state, entry, **{name: getattr(before, name) for name in kept})


def _attempts(entry: Entry, most: int) -> int:
    """Return how many attempts in a row failed, this one among them.

    A document that is left alone stays at ``most``, so that a further failure changes nothing; where it has changed
    since, its attempts begin anew.
    """
    before = entry.row
    if entry.stored and before is not None:
        return before.attempts
    if not entry.failed or entry.status != "failed":
        return 0
    if before is None or before.status != "failed":
        return 1
    if before.attempts < most:
        return before.attempts + 1
    return 1 if before.version not in ("", entry.object.version) else before.attempts


def standing_labels(entry: Entry) -> list[str]:
    """Return the labels of a document whose rows stay: those it has, and those that hold for it today."""
    return sorted({*entry.labels, *(entry.row.labels if entry.row is not None else ())})


def _catalog_row(state: BuildState, entry: Entry, **content: Any) -> CatalogRow:
    attempts = _attempts(entry, state.settings.guards.attempts)
    parked = entry.transient and attempts >= state.settings.guards.attempts
    reason = f"{entry.reason}; left alone after {attempts} attempts until it changes" if parked else entry.reason
    if entry.status == "skipped" and content.get("chunk_ids") and KEPT not in reason:
        reason = f"{reason}; {KEPT}"
    return CatalogRow(
        document_id=entry.document_id,
        source=entry.source,
        key=entry.key,
        version="" if entry.transient and not parked else entry.object.version,
        size=entry.object.size,
        bytes_digest=entry.bytes_digest,
        media_type=entry.media_type,
        stated=list(entry.stated),
        recipe="" if entry.unfinished else state.recipe(entry.key, entry.media_type),
        status=entry.status,
        reason=reason,
        attempts=attempts,
        looked_at=int(time.time()),
        **content,
    )
