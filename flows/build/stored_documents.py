"""Documents as an index stores them: what a build can go on from without their source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flows.build.batch import Batch, Entry
from flows.build.steps import document_key
from flows.state import BuildState
from indexes.catalog import NOT_READ
from indexes.revisions.generation import published_catalog


def stored_documents(state: BuildState, document_ids: Iterable[str] | None = None) -> Iterator[Batch]:
    """Yield documents of the published catalog in batches, by ascending id; all of them by default."""
    assert state.published is not None
    limit, count = state.settings.batch_bytes, state.settings.batch_documents
    table = published_catalog(state.storage, state.published).columns(["document_id", "size"]).sort_by("document_id")
    wanted = None if document_ids is None else set(document_ids)
    batch: list[str] = []
    held = 0
    for piece in table.to_batches(count):
        for name, size in zip(piece["document_id"].to_pylist(), piece["size"].to_pylist(), strict=True):
            if wanted is not None and name not in wanted:
                continue
            if batch and (held + size > limit or len(batch) >= count):
                yield _entries(state, batch)
                batch, held = [], 0
            batch.append(name)
            held += size
    if batch:
        yield _entries(state, batch)


def _entries(state: BuildState, document_ids: list[str]) -> Batch:
    found = []
    for row in state.published_rows(document_ids).values():
        pending = not row.recipe and bool(row.labels)
        kept = row.labels if pending or row.status in NOT_READ else []  # those of a version that is not stored hold
        entry = Entry.of(row, sorted({*state.labels(row.key), *kept}))
        # Parsed by other rules than today's, so the next build from the source has something left to do.
        read = row.status not in NOT_READ and bool(row.document)
        entry.unfinished = pending or (read and row.document != document_key(entry))
        found.append(entry)
    return Batch(sorted(found, key=lambda entry: entry.document_id))
