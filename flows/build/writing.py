"""Writing a batch: the difference between its rows and those of the index, into both stores and the catalog."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
import pyarrow as pa

from flows import interrupts
from flows.build.batch import Entry
from flows.build.diff import Plan
from flows.build.document_rows import DocumentRows, row_without_chunks, rows_of_document, standing_labels
from flows.models.vector_cache import sample
from flows.seen_versions import SeenVersion
from flows.state import BuildState
from indexes.cache.store import Embedding
from indexes.catalog import CatalogRow
from indexes.revisions.relabelling import relabel
from indexes.rows import no_vector, to_table


def write(state: BuildState, batch: Collection[Entry]) -> None:
    """Write the rows of a batch that differ from those in the index."""
    interrupts.raise_if_interrupted()
    with state.report.timed("write"):
        made = _rows_of(state, batch)
        standing = _standing(state, batch, made)
        _write_rows(state, {name: one for name, one in made.items() if name not in standing})
        state.seen_versions.add([seen for entry in batch if (seen := _seen(entry)) is not None])
        relabelled = _relabel_standing(state, batch)
        changed = []
        for entry in batch:
            before = relabelled.get(entry.document_id, entry.row)
            own = made.get(entry.document_id)
            row = own.catalog_row if own is not None else row_without_chunks(state, entry, before)
            _report(state, entry, own)
            state.report_status(row)
            if not entry.touched and (_says_more(row, entry.row) or not state.continues):
                changed.append(row)
        if changed:
            state.draft.catalog.put(changed)
        state.progress.advance(len(batch), sum(entry.object.size for entry in batch if not entry.object.problem))


def _write_rows(state: BuildState, renewed: Mapping[str, DocumentRows]) -> None:
    if not renewed:
        return
    rows = to_table(
        [row for one in renewed.values() for row in one.rows],
        [vector for one in renewed.values() for vector in one.vectors],
        state.embedder.dimension,
    )
    for _, wrong in no_vector(rows, normalized=state.embedder.model.normalize):
        state.invalid_vector = state.invalid_vector or wrong
    written = state.draft.replace(renewed, rows)
    state.sampled = sample(state.sampled, _with_vector(rows), state.draft.revision)
    state.report.chunks["added"] += written.added
    state.report.chunks["removed"] += written.removed
    state.report.work["rows_written"] += written.added + written.rewritten


def _rows_of(state: BuildState, batch: Collection[Entry]) -> dict[str, DocumentRows]:
    """Return the rows of the live documents of a batch, by document id."""
    live = [entry for entry in batch if entry.live]
    keys = {key for entry in live for key in entry.content.vector_keys}
    embeddings = state.caches.vectors.get(keys) if keys else {}
    made: dict[str, DocumentRows] = {}
    for entry in live:
        count = len(entry.content.chunks)
        own: list[Embedding | None] = [embeddings[key] for key in entry.content.vector_keys] or [None] * count
        state.seen_runtimes.update(embedding.runtime for embedding in own if embedding)
        state.report.truncated += sum(embedding.tokens > state.embedder.limit for embedding in own if embedding)
        notes = entry.content.notes or [""] * count
        made[entry.document_id] = rows_of_document(state, entry, entry.content.chunks, notes, own)
    return made


def _standing(state: BuildState, batch: Collection[Entry], made: Mapping[str, DocumentRows]) -> set[str]:
    """Return the documents that failed again and whose rows are as they were, as the catalog's stamp shows."""
    return {
        entry.document_id
        for entry in batch
        if entry.failed and not entry.stored and state.continues and entry.document_id in made
        if not _says_more(made[entry.document_id].catalog_row, entry.row)
    }


def _relabel_standing(state: BuildState, batch: Collection[Entry]) -> dict[str, CatalogRow]:
    """Give today's labels to the rows of documents that cannot be made again; return their rows by document id."""
    waiting = {
        entry.document_id: (entry.row, labels)
        for entry in batch
        if state.continues and not entry.live and not entry.touched and entry.row is not None
        if (labels := standing_labels(entry)) != entry.row.labels
    }
    if not waiting:
        return {}
    rows, written = relabel(
        state.draft, [row for row, _ in waiting.values()], {name: labels for name, (_, labels) in waiting.items()}
    )
    state.report.work["rows_written"] += written.rewritten
    return {row.document_id: row for row in rows}


def _report(state: BuildState, entry: Entry, made: DocumentRows | None) -> None:
    """Count a document as added, changed or unchanged, and the outcomes of its notes.

    A failed document whose old version stays is unchanged.
    """
    if entry.touched or entry.stored or (entry.failed and entry.row is not None):
        state.report.documents["unchanged"] += 1
    elif not entry.failed:
        state.report.documents["added" if entry.row is None else "changed"] += 1
    for outcome, row in zip(entry.outcomes, made.rows if made is not None else [], strict=False):
        state.report.notes["too_long" if outcome == "written" and not row.note else outcome] += 1


def _says_more(row: CatalogRow, before: CatalogRow | None) -> bool:
    """Return whether a catalog row differs from the one before, its time apart.

    The bytes of a document that is skipped and in no index do not count: they change nothing.
    """
    if before is None:
        return True
    own = {"looked_at"}
    if row.status == before.status == "skipped" and not row.chunk_ids and not before.chunk_ids:
        own |= {"version", "size", "bytes_digest"}
    return row != msgspec.structs.replace(before, **{name: getattr(row, name) for name in own})


def _seen(entry: Entry) -> SeenVersion | None:
    """Return a version whose bytes did not change, where the catalog does not know it yet."""
    version = entry.object.version
    if not entry.touched or entry.row is None or entry.row.version == version or version.endswith("?"):
        return None
    return SeenVersion(entry.document_id, version, entry.object.size)


def _with_vector(rows: pa.Table) -> list[str]:
    names, provenances = rows["chunk_id"].to_pylist(), rows["provenance"].to_pylist()
    return [name for name, provenance in zip(names, provenances, strict=True) if provenance]


def remove(state: BuildState, plan: Plan) -> None:
    """Remove the rows of documents that are gone from the source."""
    with state.report.timed("write"):
        if state.continues:
            for rows in plan.removed(state):
                state.report.chunks["removed"] += state.draft.remove(rows).removed
        else:
            state.draft.catalog  # noqa: B018 - opens the draft: nothing is written, and yet there is something to publish
        state.report.documents["removed"] += plan.steps["remove"]
