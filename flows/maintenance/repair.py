"""Whether what is published is whole, and setting it right.

Invariants:
- What is whole is kept; what can be made again from it or from the cache is made again; the rest is named, with what
  to build anew.
- A repair ends in a revision that passes the gates of a build, or leaves the published one as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from chunker.chunk import document_id
from enrich.models.registry import load_registry
from flows.build import steps
from flows.build.stored_documents import stored_documents
from flows.build.writing import write
from flows.opening import open_storage, published
from flows.settings import Settings
from flows.state import BuildState
from indexes.cache import health
from indexes.catalog import Catalog, CatalogRow, stamp
from indexes.integrity import mending
from indexes.integrity.verification import Finding, Verdict, unprovable, whole_index
from indexes.integrity.verification import verify as look
from indexes.revisions import retention
from indexes.rows import schema
from indexes.storage.errors import clear_errors
from indexes.storage.pointer import Damaged
from indexes.storage.storage import POINTER, Pointer, Storage
from indexes.vectors import ChunkTable
from parsers.errors import GristmillError, StoreError, UsageError

_Say = Callable[[str], None]
_LOST: Final = "what the index held of it was broken and is no longer cached; it is fetched again by the next build"
_AT_ONCE: Final = 1_000  # rows of the catalog that are written at a time


def verify_index(settings: Settings, *, everything: bool = False) -> dict[str, Any]:
    """Return whether the index is whole, as ``gristmill verify --json`` prints it.

    Every file of it is read; rows are read of the published revision.

    Args:
        everything: read the rows of all kept revisions.
    """
    storage, pointer, lost = _meant(settings)
    with clear_errors(storage.address):
        looked_at = storage.revisions() if everything and not lost else [pointer]
        verdicts = [look(storage, one, normalized=_normalized(settings, one)) for one in looked_at]
        beside = [*lost, *([] if lost else whole_index(storage, pointer))]
    shown = [_shown(verdict) for verdict in verdicts]
    shown[-1]["findings"] += [msgspec.to_builtins(finding) for finding in beside]
    shown[-1]["whole"] = shown[-1]["whole"] and not any(finding.fault for finding in beside)
    return {"index": settings.index, "whole": all(one["whole"] for one in shown), "revisions": shown}


def _meant(settings: Settings) -> tuple[Storage, Pointer, list[Finding]]:
    """Return the index and what it has published; where the pointer is lost, what it would be made from again."""
    try:
        return *published(settings), []
    except Damaged as error:
        storage = open_storage(settings)
        pointer = mending.newest(storage)
        if pointer is None:
            raise
        remedy = f"gristmill repair: it points readers to revision {pointer.revision}"
        return storage, pointer, [Finding(f"the pointer is lost: {error.message}", 1, [POINTER], remedy=remedy)]


def repair_index(settings: Settings, say: _Say) -> dict[str, Any]:
    """Set the index right from what is whole and from the cache, and publish it as the next revision.

    Rows of documents that cannot be made again are taken out; the next build fetches those documents.

    Raises:
        StoreError: when neither the rows nor the catalog can be read, or nothing is published.
    """
    storage = open_storage(settings)
    storage.unchecked = True
    with storage.lock(), clear_errors(storage.address):
        mended = mending.mend_pointer(storage)
        if mended is not None:
            say(f"The pointer was lost; readers are pointed to revision {mended.revision}")
        pointer = storage.pointer()
        if pointer is None:
            raise StoreError(f"index {settings.index}: nothing is published there", "Build it first.")
        cache = health.heal(storage, thorough=True)
        given_up = mending.mend_records(storage, pointer)
        retention.clear_leftovers(storage)
        for line in [*cache, *(f"revision {number} is damaged, and is given up" for number in given_up)]:
            say(line)
        state = BuildState(settings, storage)
        verdict = look(storage, pointer, normalized=_normalized(settings, pointer))
        probes = _renew_probes(state, pointer, verdict)
        if probes:
            verdict = look(storage, pointer, normalized=_normalized(settings, pointer))
        found = _shown(verdict) | {"repaired": False, "removed": 0, "renewed": 0, "probes": probes}
        found |= {"pointer": mended is not None, "cache": cache, "revisions_given_up": given_up}
        if verdict.whole:
            return found | {"repaired": bool(mended or cache or given_up)}
        if verdict.damaged and all(key.startswith("files/") for key in verdict.damaged) and _only_files(verdict):
            storage.publish(pointer)  # with a list of its files as they are: their rows are what their digests say
            return found | {"repaired": True, "revision": pointer.revision}
        lost, renewed, made = _published_anew(state, pointer, verdict, say)
        found["revisions_given_up"] = sorted({*given_up, *mending.mend_records(storage, made)})
        health.record_cache_digests(storage.objects)
        return found | {"repaired": True, "removed": lost, "renewed": renewed, "revision": made.revision}


def _only_files(verdict: Verdict) -> bool:
    faults = [finding for finding in verdict.findings if finding.fault]
    return len(faults) == 1


def _published_anew(state: BuildState, pointer: Pointer, verdict: Verdict, say: _Say) -> tuple[int, int, Pointer]:
    """Set rows and catalog right and publish them; how many documents were lost, how many made again."""
    if not state.same_model:
        raise UsageError(
            f"the index is made with {pointer.embedder}, the settings name {state.settings.embedder}",
            "Repair it with the settings that it was built with.",
        )
    if {"chunks", "documents"} <= set(verdict.lost):
        raise StoreError(
            f"index {state.storage.address}: neither the rows nor the catalog of revision {pointer.revision} can be "
            f"read: {', '.join(verdict.damaged[:3])}",
            "Build anew: remove `generations`, `revisions`, `files` and `pointer.json` below the index and keep "
            "`memory`, then run `gristmill build`: nothing that is cached is computed again.",
        )
    if verdict.lost or any(".lance/" in key for key in verdict.damaged):
        state = BuildState(state.settings, state.storage, state.report, state.progress, anew=True)
    say(f"Repairing {len(verdict.documents)} documents; deleting rows of {len(verdict.strangers)} unknown documents")
    try:
        lost, renewed = _rebuilt(state, pointer, verdict) if state.anew else _renew(state, verdict)
        return lost, renewed, _publish(state, pointer)
    finally:
        state.close()


def _rebuilt(state: BuildState, pointer: Pointer, verdict: Verdict) -> tuple[int, int]:
    """Write a new generation from what can be read of the published one, and from the cache."""
    tables = state.storage.tables(pointer.generation)
    wrong = {*verdict.documents, *verdict.strangers}
    if "documents" in verdict.lost:
        table = ChunkTable.open(tables, pointer.chunks_version)
        state.draft.append(_without(table, wrong))
        state.draft.catalog.put(_catalog_of(table, pointer))
        return 0, len(state.draft.catalog)
    catalog = Catalog(tables, pointer.documents_version)
    everything = "chunks" in verdict.lost
    forgotten = set(verdict.forgotten) if not everything else _forgotten(state, catalog)
    if not everything:
        state.draft.append(_without(ChunkTable.open(tables, pointer.chunks_version), wrong))
    again: list[str] = []
    lost = 0
    waiting: list[CatalogRow] = []
    for row in catalog.rows():
        redone = everything or row.document_id in wrong
        if redone and row.document_id not in forgotten:
            again.append(row.document_id)
        else:
            lost += redone
            waiting.append(_lost(row) if redone else row)
        if len(waiting) >= _AT_ONCE:
            state.draft.catalog.put(waiting)
            waiting = []
    state.draft.catalog.put(waiting)
    _from_cache(state, again)
    return lost, len(again)


def _without(table: ChunkTable, documents: set[str]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table but those of these documents."""
    gone = pa.array(sorted(documents), pa.string())
    for batch in table.rows(schema(table.dimension).names):
        yield batch.filter(pc.invert(pc.is_in(batch["document_id"], gone)))


def _catalog_of(table: ChunkTable, pointer: Pointer) -> Iterator[CatalogRow]:
    """Yield the catalog as far as the rows tell it; the next build looks at every document again."""
    columns = ["document_id", "start", "key", "chunk_id", "row_digest", "labels"]
    shape = pa.schema([schema(table.dimension).field(name) for name in columns])
    rows = pa.Table.from_batches(list(table.rows(columns)), shape).sort_by(
        [("document_id", "ascending"), ("start", "ascending")]
    )
    records: Iterator[dict[str, Any]] = (one for batch in rows.to_batches(_AT_ONCE) for one in batch.to_pylist())
    for name, own in groupby(records, itemgetter("document_id")):
        found = list(own)
        key: str = found[0]["key"]
        source = next((one for one in pointer.sources if document_id(one, key) == name), next(iter(pointer.sources)))
        ids = [one["chunk_id"] for one in found]
        yield CatalogRow(
            document_id=name,
            source=source,
            key=key,
            version="",
            labels=found[0]["labels"],
            chunk_ids=ids,
            stamp=stamp(ids, [one["row_digest"] for one in found]),
        )


def _forgotten(state: BuildState, catalog: Catalog) -> set[str]:
    """Return documents of a catalog that the cache does not hold."""
    found: set[str] = set()
    for batch in catalog.columns(["document_id", "document"]).to_batches(_AT_ONCE):
        pairs = list(zip(batch["document_id"].to_pylist(), batch["document"].to_pylist(), strict=True))
        known = state.caches.documents.known(key for _, key in pairs if key)
        found.update(name for name, key in pairs if key and key not in known)
    return found


def _renew_probes(state: BuildState, pointer: Pointer, verdict: Verdict) -> bool:
    """Make missing or broken probes again, by the model's own runtime.

    The runtime at hand must have made vectors of the index and agree with it.

    Raises:
        GateRefused: when it does not agree.
        ModelError: when the model's own runtime, or the one at hand, cannot run.
        StoreError: when the runtime at hand made no vectors of the index.
    """
    damaged = any(key.startswith("probes/") for key in verdict.damaged)
    if not (damaged or unprovable(state.storage, pointer)) or not state.continues:
        return False
    state.storage.drop_probes(pointer.embedder_fingerprint)
    state.embedder.load()
    return True


def _renew(state: BuildState, verdict: Verdict) -> tuple[int, int]:
    """Make the rows of broken documents again; returns how many could not be and how many were."""
    state.draft.rewrite_lexical()
    state.draft.table.delete_documents([*verdict.documents, *verdict.strangers])
    forgotten = set(verdict.forgotten)
    lost = [name for name in verdict.documents if name in forgotten]
    state.draft.catalog.put(_lost(row) for row in state.published_rows(lost).values())
    renewed = [name for name in verdict.documents if name not in forgotten]
    _from_cache(state, renewed)
    return len(lost), len(renewed)


def _from_cache(state: BuildState, documents: Iterable[str]) -> None:
    """Make the rows of documents from the cache."""
    wanted = list(documents)
    for batch in stored_documents(state, wanted) if wanted else []:
        steps.chunk(state, batch)
        steps.note(state, batch)
        steps.embed(state, batch)
        write(state, batch)


def _lost(row: CatalogRow) -> CatalogRow:
    return CatalogRow(
        document_id=row.document_id,
        source=row.source,
        key=row.key,
        version="",
        size=row.size,
        status="failed",
        reason=_LOST,
        attempts=row.attempts,
        labels=row.labels,  # they hold for the rows that a rollback brings back
    )


def _publish(state: BuildState, like: Pointer) -> Pointer:
    """Finish the draft, check it, and publish it with what is said of another revision."""
    draft = state.draft
    draft.compare_everything()
    draft.finish()
    runtimes = state.runtimes()
    checks = {"stores": draft.check_stores(), "fingerprint": draft.check_fingerprint(runtimes)}
    return draft.publish(
        sources=like.sources, runtimes=runtimes, checks=checks, made_by="repair", held=like.held, rates=like.rates
    )


def _normalized(settings: Settings, pointer: Pointer) -> bool:
    """Return whether the embedder of a revision makes vectors of length 1; not asked of one that is not known here."""
    try:
        return load_registry(*settings.model_files).embedder(pointer.embedder).normalize
    except GristmillError:
        return False


def _shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "generation": verdict.generation,
        "revision": verdict.revision,
        "whole": verdict.whole,
        "checked": verdict.checked,
        "findings": [msgspec.to_builtins(finding) for finding in verdict.findings],
        "damaged": verdict.damaged,
    }
