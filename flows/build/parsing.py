"""The parse step: documents of a batch that are not cached are parsed in worker processes, ahead of the other steps.

Invariants:
- The workers hold the files of two batches at most: of the one at hand, and of the next.
- A document is parsed once a build, however many keys hold its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from flows import interrupts
from flows.build.batch import Batch, Entry
from flows.state import BuildState
from parsers.document import Document
from parsers.isolation import Parsed
from parsers.registry import read, unread_labels


def parsed_ahead(
    state: BuildState, batches: Iterator[Batch], fetch: Callable[[Batch], None], parse: Callable[[Batch], None]
) -> Iterator[Batch]:
    """Yield each batch when it is parsed and the next one is fetched and handed to the workers.

    Args:
        fetch: fetches a batch.
        parse: collects and caches the parsed documents of a batch.
    """
    batch = _begun(state, next(batches, None), fetch)
    while batch is not None:
        parse(batch)
        following = _begun(state, next(batches, None), fetch)
        yield batch
        batch = following


def _begun(state: BuildState, batch: Batch | None, fetch: Callable[[Batch], None]) -> Batch | None:
    if batch is not None:
        fetch(batch)
        begin_parsing(state, batch)
    return batch


def begin_parsing(state: BuildState, batch: Collection[Entry]) -> None:
    """Hand the documents of a batch that are not cached to the workers."""
    waiting = _waiting(batch)
    known = state.caches.documents.known(entry.document for entry in waiting)
    pool = state.resources.parsers if any(entry.document not in known for entry in waiting) else None
    for entry in waiting:
        if entry.document not in known and pool is not None:
            known.add(entry.document)
            entry.content.parsing = pool.submit(entry.key, entry.content.data, entry.media_type)


def parse(state: BuildState, batch: Collection[Entry]) -> None:
    """Collect the parsed documents of a batch, and cache them."""
    with state.report.timed("parse"):
        waiting = _waiting(batch)
        known = state.caches.documents.known(entry.document for entry in waiting)
        fresh: dict[str, Document] = {}
        for entry in waiting:
            state.progress.read(1, entry.object.size)
            if entry.document not in known and entry.document not in fresh:
                _take(state, entry, _outcome(state, entry), fresh)
        for entry in waiting:
            entry.content.data = b""
            entry.content.document = fresh.get(entry.document)
        state.caches.documents.add(fresh)


def _waiting(batch: Collection[Entry]) -> list[Entry]:
    return [entry for entry in batch if entry.live and not entry.failed]


def _outcome(state: BuildState, entry: Entry) -> Parsed:
    """Return what a worker made of a document; have a copy of one that failed parsed too, by a worker as well."""
    asked, entry.content.parsing = entry.content.parsing, None
    if asked is not None:
        return asked.result()
    pool = state.resources.parsers
    if pool is not None:
        return pool.read(entry.key, entry.content.data, entry.media_type)
    return Parsed(read(entry.key, entry.content.data))


def _take(state: BuildState, entry: Entry, outcome: Parsed, fresh: dict[str, Document]) -> None:
    document = outcome.document
    interrupts.raise_if_interrupted()
    state.report.work["parsed"] += 1
    if document.status in ("failed", "skipped"):
        entry.labels = sorted({*entry.labels, *unread_labels(entry.key, entry.content.data)})
        entry.fail(document.status, document.reason, transient=outcome.transient)
    else:
        fresh[entry.document] = document
