"""Steps of a build over one batch: fetch, chunk, note, embed; parsing stands in :mod:`flows.build.parsing`.

Invariants:
- Each step asks its cache first and computes what is missing.
- Nothing is cached that an interrupt may have spoilt.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from chunker.chunk import Chunk, embedded_text
from chunker.split import split
from enrich.notes.note import fit
from enrich.notes.prompts import Window, Windows
from flows import interrupts
from flows.build.batch import Entry
from flows.models.note_writers import NoteMaker, asks_for_documents, window_settings
from flows.models.vector_cache import NotEmbedded, cache_vectors
from flows.sources import Fetched, Object, Source
from flows.state import BuildState
from indexes.cache.caches import Version
from indexes.cache.store import cache_key, text_digest, vector_key, version_key
from parsers.document import Document
from parsers.errors import ModelError
from parsers.registry import media_type, parser_fingerprint

GIVE_UP: Final = 5  # documents in a row that cannot be embedded: then the embedder itself is tried
HARMLESS: Final = "A short text."


def fetch(state: BuildState, batch: Collection[Entry]) -> None:
    """Fetch the bytes of a batch, unless their document is cached."""
    with state.report.timed("fetch"):
        asked = {version_key(entry.document_id, entry.object.version): entry for entry in batch if _may_be_known(entry)}
        for key, version in state.caches.versions.get(asked).items():
            entry = asked[key]
            entry.bytes_digest, entry.media_type = version.bytes_digest, version.media_type
            entry.state(version.labels)
            if state.resources.source.trusted:  # its labels may change while its version stays
                _read_labels(state, entry)
        for entry in batch:
            row = entry.row
            if row is not None and _only_labels_may_have_changed(state, entry) and _read_labels(state, entry):
                entry.bytes_digest, entry.media_type = row.bytes_digest, row.media_type
            if entry.failed:
                entry.fail(entry.status, entry.reason, transient=entry.transient)
            elif entry.bytes_digest and entry.media_type:
                _identify(state, entry)
        known = state.caches.documents.known(entry.document for entry in batch if entry.live)
        fetched = [entry for entry in batch if not entry.failed and not entry.touched and entry.document not in known]
        for entry, found in _fetched(state.resources.source, fetched):
            _take_bytes(state, entry, found)
        _cache_versions(state, [entry for entry in fetched if not entry.failed])


def _may_be_known(entry: Entry) -> bool:
    """Return whether the cache may know the bytes of the listed version."""
    return not entry.failed and not entry.reread and not entry.bytes_digest and entry.object.version != ""


def _identify(state: BuildState, entry: Entry) -> None:
    """Name the document that an entry's bytes parse to, or record that the catalog has them."""
    row = entry.row
    entry.touched = (
        row is not None
        and not entry.again
        and row.version != ""
        and row.bytes_digest == entry.bytes_digest
        and tuple(row.stated) == entry.stated
        and row.recipe == state.recipe(entry.key, entry.media_type)
        and state.continues
    )
    if not entry.touched:
        entry.document = document_key(entry)


def document_key(entry: Entry) -> str:
    """Return the cache key of the document that an entry's bytes parse to with today's parsers."""
    return cache_key(entry.bytes_digest, entry.media_type, parser_fingerprint(entry.media_type))


def _only_labels_may_have_changed(state: BuildState, entry: Entry) -> bool:
    """Return whether a document is read again whose bytes are known by its version."""
    row = entry.row
    known = entry.reread and not entry.again and not entry.failed and row is not None and bool(row.bytes_digest)
    return known and row is not None and row.version == entry.object.version and state.resources.source.trusted


def _read_labels(state: BuildState, entry: Entry) -> bool:
    """Ask the source for a document's labels, without its bytes; return whether it gave them."""
    try:
        found = state.resources.source.labels(entry.key, entry.object.version)
    except OSError as error:
        entry.fail("failed", f"its labels cannot be read: {error.strerror or error}", transient=True)
        return False
    if found is None:  # it is gone, and fetching says so
        entry.bytes_digest = entry.media_type = ""
        return False
    entry.state(found)
    return True


def _fetched(source: Source, entries: list[Entry]) -> Iterator[tuple[Entry, Fetched | OSError | None]]:
    """Yield what the source gives for each entry, in their order; several are asked for at a time."""

    def ask(entry: Entry) -> Fetched | OSError | None:
        try:
            return source.fetch(entry.key, entry.object.version)
        except OSError as error:
            return error

    if source.parallel == 1 or len(entries) < 2:
        yield from ((entry, ask(entry)) for entry in entries)
        return
    with ThreadPoolExecutor(min(source.parallel, len(entries)), "fetch") as threads:
        yield from zip(entries, threads.map(ask, entries), strict=True)


def _take_bytes(state: BuildState, entry: Entry, found: Fetched | OSError | None) -> None:
    if isinstance(found, OSError):
        entry.fail("failed", f"cannot be read: {found.strerror or found}", transient=True)
        return
    if found is None:
        entry.fail("failed", "it was gone when it was to be fetched: removed during the build", transient=True)
        return
    state.report.work["fetched"] += 1
    data = found.data
    entry.object = Object(entry.key, found.version, len(data))  # it may have changed since it was listed
    entry.bytes_digest = hashlib.sha256(data).hexdigest()
    entry.media_type = media_type(entry.key, data)
    entry.state(found.labels)
    _identify(state, entry)
    if not entry.touched:
        entry.content.data = data


def _cache_versions(state: BuildState, fetched: Collection[Entry]) -> None:
    """Cache digest and media type of each fetched version; the latest read wins where one differs."""
    versions = {
        version_key(entry.document_id, entry.object.version): Version(
            entry.bytes_digest, entry.media_type, entry.stated
        )
        for entry in fetched
        if not entry.object.version.endswith("?")
    }
    before = state.caches.versions.get(versions)
    state.caches.versions.forget(key for key, value in before.items() if value != versions[key])
    state.caches.versions.add({key: value for key, value in versions.items() if before.get(key) != value})


def chunk(state: BuildState, batch: Collection[Entry]) -> None:
    """Cut the documents of a batch whose chunks are not cached."""
    with state.report.timed("chunk"):
        _take_documents(state, batch)
        live = [entry for entry in batch if entry.live]
        for entry in live:
            entry.chunks = state.resources.chunks_key(entry.document, entry.title)
        known = state.caches.chunks.get(entry.chunks for entry in live)
        fresh: dict[str, list[Chunk]] = {}
        for entry in live:
            interrupts.raise_if_interrupted()
            if entry.chunks not in known:
                assert entry.content.document is not None
                known[entry.chunks] = fresh[entry.chunks] = _cut(state, entry.content.document, entry.title)
                state.report.work["chunked"] += 1
            entry.content.chunks = known[entry.chunks]
            if state.resources.note_writer is None:
                entry.content.document = None
        state.caches.chunks.add(fresh)


def _take_documents(state: BuildState, batch: Collection[Entry]) -> None:
    """Give each live entry its document: as just parsed, or from the cache."""
    missing = [entry for entry in batch if entry.live and entry.content.document is None]
    cached = state.caches.documents.get(entry.document for entry in missing)
    for entry in missing:
        entry.content.document = cached.get(entry.document)
        if entry.content.document is None:
            entry.drop_document()
    for entry in batch:
        if entry.live and entry.content.document is not None:
            entry.take(entry.content.document)


def _cut(state: BuildState, document: Document, title: str) -> list[Chunk]:
    if document.status == "empty":  # its characters may show nothing
        return []
    return split(document, title, state.resources.ruler, state.resources.chunker)


def note(state: BuildState, batch: Collection[Entry]) -> None:
    """Make the notes of a batch that are not cached, a few at a time, so that a kill loses no more."""
    writer = state.resources.note_writer
    if writer is None:
        return
    with state.report.timed("note"):
        windows: dict[str, Window] = {}
        by_section = 0
        for entry in batch:
            if not entry.live:
                continue
            assert entry.content.document is not None
            around = Windows(entry.content.document, entry.title, window_settings(state.settings), entry.content.chunks)
            by_section += not around.whole and asks_for_documents(state.settings)
            own = [around.of(one) for one in entry.content.chunks]
            entry.notes = writer.keys(own)
            windows.update(zip(entry.notes, own, strict=True))
        _write_notes(state, writer, windows)
        _take_notes(state, batch, windows)
        state.report.notes_by_section += by_section


def _write_notes(state: BuildState, writer: NoteMaker, windows: dict[str, Window]) -> None:
    known = state.caches.notes.known(windows)
    missing = [key for key in windows if key not in known]
    if writer.limited and state.settings.notes_limit is not None:
        missing = missing[: max(0, state.settings.notes_limit - state.report.work["notes"])]
    for start in range(0, len(missing), writer.flush):
        keys = missing[start : start + writer.flush]
        begun = time.perf_counter()
        written = writer.write([windows[key] for key in keys])
        interrupts.raise_if_interrupted()
        state.caches.notes.add({key: one for key, one in zip(keys, written, strict=True) if one.final})
        state.report.work["notes"] += len(keys)
        state.progress.noted(len(keys), time.perf_counter() - begun)


def _take_notes(state: BuildState, batch: Collection[Entry], windows: Iterable[str]) -> None:
    """Give each entry the notes of its chunks, cut to their reserve, and what became of each."""
    finished = state.caches.notes.get(windows)
    count, reserve = state.resources.ruler.count, state.settings.note_reserve
    fitted = {key: fit(one.text, reserve, count) if one.text else "" for key, one in finished.items()}
    for entry in batch:
        entry.outcomes = [finished[key].outcome if key in finished else "missing" for key in entry.notes]
        entry.content.notes = [fitted.get(key, "") for key in entry.notes]
        entry.content.document = None
        state.report.notes_narrowed += sum(key in finished and finished[key].narrowed for key in entry.notes)
        entry.unfinished = entry.unfinished or "missing" in entry.outcomes


def embed(state: BuildState, batch: Collection[Entry]) -> None:
    """Embed the texts of a batch whose vectors are not cached.

    Where that fails, each document is tried by itself, so that one does not stop the others.

    Raises:
        ModelError: when the embedder fails for document after document, and for a harmless text too.
    """
    with state.report.timed("embed"):
        for entry in batch:
            _take_texts(state, entry)
        try:
            _embed(state, [entry for entry in batch if entry.live])
        except NotEmbedded as error:  # an error of the store, or a model that cannot be loaded, ends the build
            _embed_each(state, batch, error)


def _take_texts(state: BuildState, entry: Entry) -> None:
    """Make the embedded texts of an entry and the cache keys of their vectors."""
    if not entry.live or not state.embeds(entry.key):
        return
    content = entry.content
    notes: Sequence[str] = content.notes or [""] * len(content.chunks)
    content.texts = [embedded_text(note, one) for note, one in zip(notes, content.chunks, strict=True)]
    content.vector_keys = [vector_key(text_digest(text), state.embedder.fingerprint) for text in content.texts]


def _embed_each(state: BuildState, batch: Collection[Entry], error: Exception) -> None:
    failed = 0
    fallen_back: list[Entry] = []
    for entry in batch:
        if not entry.live or not entry.content.texts:
            continue
        try:
            _embed(state, [entry])
            failed = 0
        except NotEmbedded as own:
            failed += 1
            if failed % GIVE_UP == 0:
                _check_embedder(state, error)
            tried = entry.document
            entry.fail("failed", f"cannot be embedded: {own}", transient=True)
            if entry.document == tried:
                entry.drop_document()
            else:
                fallen_back.append(entry)
    _embed_last_good(state, fallen_back)


def _check_embedder(state: BuildState, error: Exception) -> None:
    """Raise a ModelError if the embedder itself fails, not only these documents."""
    try:
        state.embedder.encode([HARMLESS])
    except Exception as own:  # then it is the runtime itself, whatever it raises
        raise ModelError(
            f"{state.settings.embedder} embeds nothing any more: {error}",
            "Finished work is cached. Look at the runtime with `gristmill doctor`, then build again.",
        ) from own


def _embed_last_good(state: BuildState, batch: Collection[Entry]) -> None:
    """Continue with the last good versions of documents, under today's labels and settings.

    The labels of the version that could not be embedded hold too: it may have been made to tighten them.
    """
    if not batch:
        return
    chunk(state, batch)
    note(state, batch)
    for entry in batch:
        _take_texts(state, entry)
        try:
            _embed(state, [entry] if entry.live else [])
        except NotEmbedded:  # the reason is reported already, for the new version
            entry.drop_document()


def _embed(state: BuildState, entries: Iterable[Entry]) -> None:
    def done(count: int, seconds: float) -> None:
        interrupts.raise_if_interrupted()
        state.report.work["embedded"] += count
        state.progress.embedded(count, seconds)

    texts: dict[str, str] = {}
    for entry in entries:
        texts.update(zip(entry.content.vector_keys, entry.content.texts, strict=True))
    if texts:
        cache_vectors(state.storage, state.caches, state.embedder, texts, done)
