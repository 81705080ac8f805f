"""What happens to a batch of documents at each stage. Each asks the memory and computes what is missing.

A batch is a list of entries; what a stage makes is remembered under a key, and the entries carry the keys.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from chunker.chunk import Chunk, embedded_text
from chunker.split import split
from enrich.notes.note import Note, fit
from enrich.notes.prompts import Window, Windows
from flows import interrupts
from flows.build.batch import Entry, State
from flows.build.document_rows import DocumentRows, document_rows, row_without_chunks, standing_labels
from flows.build.seen_versions import SeenVersion
from flows.context import Workshop
from flows.models.note_writers import asks_for_documents, window_settings
from flows.models.vector_cache import NotEmbedded, remember_vectors, sample
from flows.sources import Object
from indexes.cache.memo import Embedding, memory_key, text_digest, vector_key, version_key
from indexes.catalog import Row
from indexes.revisions.relabelling import relabel
from indexes.rows import no_vector, to_table
from parsers.document import Document
from parsers.errors import ModelError
from parsers.registry import fingerprint, media_type, read, unread_labels

GIVE_UP: Final = 5  # documents in a row that cannot be embedded: then the embedder itself is looked at
HARMLESS: Final = "A short text."
_CHUNKS: Final = msgspec.json.Decoder(list[Chunk])
_NOTE: Final = msgspec.json.Decoder(Note)


def fetch(shop: Workshop, batch: Collection[Entry]) -> None:
    """Bytes of a batch by their digest, for the parsers, unless what they parse to is known already."""
    asked = {version_key(entry.document_id, entry.object.version): entry for entry in batch if _asks(entry)}
    for key, value in shop.versions.get(asked).items():
        state, entry = State.decode(value), asked[key]
        entry.bytes_digest, entry.media_type = state.bytes_digest, state.media_type
    for entry in batch:
        if entry.failed:
            entry.fail(entry.status, entry.reason)
        elif entry.bytes_digest and entry.media_type:
            _read_before(shop, entry)
    known = shop.documents.known(entry.document for entry in batch if entry.live)
    fetched = [entry for entry in batch if not entry.failed and not entry.touched and entry.document not in known]
    for entry in fetched:
        _fetch_one(shop, entry)
    _remember_versions(shop, [entry for entry in fetched if not entry.failed])


def _remember_versions(shop: Workshop, fetched: Collection[Entry]) -> None:
    """Remember what the bytes of each version are that was read; the latest read is right, where one differs."""
    states = {
        version_key(entry.document_id, entry.object.version): msgspec.json.encode(
            State(entry.bytes_digest, entry.media_type)
        )
        for entry in fetched
        if not entry.object.version.endswith("?")
    }
    before = shop.versions.get(states)
    shop.versions.forget(key for key, value in before.items() if value != states[key])
    shop.versions.add({key: value for key, value in states.items() if before.get(key) != value})


def parse(shop: Workshop, batch: Collection[Entry]) -> None:
    """Documents into the memory."""
    waiting = [entry for entry in batch if entry.live and not entry.failed]
    known = shop.documents.known(entry.document for entry in waiting)
    fresh: dict[str, bytes] = {}
    for entry in waiting:
        shop.progress.read(1, entry.object.size)
        if entry.document in known or entry.document in fresh:
            continue
        document = read(entry.key, shop.fetched[entry.bytes_digest])
        interrupts.check()  # before anything is kept that an interrupt may have spoilt
        shop.report.work["parsed"] += 1
        if document.status in ("failed", "skipped"):
            entry.labels = sorted({*entry.labels, *unread_labels(entry.key, shop.fetched[entry.bytes_digest])})
            entry.fail(document.status, document.reason)
        else:
            fresh[entry.document] = document.encode()
    shop.fetched.clear()
    shop.documents.add(fresh)


def chunk(shop: Workshop, batch: Collection[Entry]) -> None:
    """Chunks into the memory, a document's as one value."""
    documents = shop.documents.get(entry.document for entry in batch if entry.live)
    decoded: dict[str, Document] = {}
    for entry in batch:
        if entry.live and entry.document not in documents:
            _lost(entry)
        elif entry.live:
            document = decoded.setdefault(entry.document, Document.decode(documents[entry.document]))
            entry.read(document)
            entry.chunks = shop.chunks_key(entry.document, entry.title)
    known = shop.chunks.known(entry.chunks for entry in batch if entry.live)
    fresh: dict[str, bytes] = {}
    for entry in batch:
        interrupts.check()
        if entry.live and entry.chunks not in known and entry.chunks not in fresh:
            document = decoded[entry.document]
            empty = document.status == "empty"  # of characters that show nothing, perhaps
            chunks = [] if empty else split(document, entry.title, shop.ruler, shop.chunker)
            fresh[entry.chunks] = msgspec.json.encode(chunks)
            shop.report.work["chunked"] += 1
    shop.chunks.add(fresh)


def note(shop: Workshop, batch: Collection[Entry]) -> None:
    """Notes into the memory, a few at a time, so that a kill loses no more."""
    maker = shop.notes
    if maker is None:
        return
    windows: dict[str, Window] = {}
    documents = shop.documents.get(entry.document for entry in batch if entry.live)
    for entry, chunks in _with_chunks(shop, batch):
        document = Document.decode(documents[entry.document])
        around = Windows(document, entry.title, window_settings(shop.settings), chunks)
        shop.report.notes_by_section += not around.whole and asks_for_documents(shop.settings)
        own = [around.of(one) for one in chunks]
        entry.notes = maker.keys(own)
        windows.update(zip(entry.notes, own, strict=True))
    known = shop.note_memo.known(windows)
    missing = [key for key in windows if key not in known]
    if maker.limited and shop.settings.notes_limit is not None:
        missing = missing[: max(0, shop.settings.notes_limit - shop.report.work["notes"])]
    for start in range(0, len(missing), maker.flush):
        keys = missing[start : start + maker.flush]
        begun = time.perf_counter()
        written = maker.write([windows[key] for key in keys])
        interrupts.check()
        made = {key: msgspec.json.encode(one) for key, one in zip(keys, written, strict=True) if one.final}
        shop.note_memo.add(made)
        shop.report.work["notes"] += len(keys)
        shop.progress.noted(len(keys), time.perf_counter() - begun)
    finished = {key: _NOTE.decode(value) for key, value in shop.note_memo.get(windows).items()}
    for entry in batch:
        entry.outcomes = [finished[key].outcome if key in finished else "missing" for key in entry.notes]
        shop.report.notes_narrowed += sum(key in finished and finished[key].narrowed for key in entry.notes)
        entry.unfinished = entry.unfinished or "missing" in entry.outcomes


def embed(shop: Workshop, batch: Collection[Entry]) -> None:
    """Vectors into the memory. Where that fails it is tried a document at a time, so that one stops no other.

    Raises:
        ModelError: when the embedder fails for document after document, and for a harmless text too.
    """
    notes = _notes(shop, batch)
    texts = {
        entry.document_id: list(_texts(shop, entry, chunks, notes[entry.document_id]))
        for entry, chunks in _with_chunks(shop, batch)
    }
    everything = [text for own in texts.values() for text in own]
    if not everything:
        return
    try:
        _embed(shop, everything)
    except NotEmbedded as error:  # an error of the store, or a model that cannot be loaded, ends the build
        failed = 0
        fallen_back: list[Entry] = []
        for entry in batch:
            if texts.get(entry.document_id):
                try:
                    _embed(shop, texts[entry.document_id])
                    failed = 0
                except NotEmbedded as own:  # this document waits, the others go on
                    failed += 1
                    if failed % GIVE_UP == 0:
                        _check_embedder(shop, error)
                    tried = entry.document
                    entry.fail("failed", f"cannot be embedded: {own}", transient=True)
                    if entry.document == tried:
                        _lost(entry)
                    else:
                        fallen_back.append(entry)
        _embed_last_good(shop, fallen_back)


def _check_embedder(shop: Workshop, error: Exception) -> None:
    """Whether it is the embedder that fails, and not these documents."""
    try:
        shop.embedder.encode([HARMLESS])
    except Exception as own:  # then it is the runtime itself, whatever it raises
        raise ModelError(
            f"{shop.settings.embedder} embeds nothing any more: {error}",
            "What was finished is remembered. Look at the runtime with `gristmill doctor`, then build again.",
        ) from own


def _embed_last_good(shop: Workshop, batch: Collection[Entry]) -> None:
    """Go on with the last good versions of documents, for which today's labels and settings hold as for all others.

    The labels of the version that could not be embedded hold too: it may have been made to tighten them.
    """
    chunk(shop, batch)
    note(shop, batch)
    notes = _notes(shop, batch)
    for entry, chunks in list(_with_chunks(shop, batch)):
        try:
            _embed(shop, list(_texts(shop, entry, chunks, notes[entry.document_id])))
        except NotEmbedded:  # why is said already, of the new version
            _lost(entry)


def _embed(shop: Workshop, texts: Sequence[str]) -> None:
    def done(count: int, seconds: float) -> None:
        interrupts.check()
        shop.report.work["embedded"] += count
        shop.progress.embedded(count, seconds)

    remember_vectors(shop.storage, shop.vectors, shop.embedder, {_vector_key(shop, text): text for text in texts}, done)


def write(shop: Workshop, batch: Collection[Entry]) -> None:
    """The difference between these documents' rows and those in the index, into both stores and the catalog."""
    interrupts.check()
    made = _rows_of(shop, batch)
    standing = _standing(shop, batch, made)
    renewed = {name: one for name, one in made.items() if name not in standing}
    if renewed:
        rows = to_table(
            [row for one in renewed.values() for row in one.rows],
            [vector for one in renewed.values() for vector in one.vectors],
            shop.embedder.dimension,
        )
        for _, wrong in no_vector(rows, normalized=shop.embedder.model.normalize):
            shop.no_vector = shop.no_vector or wrong
        written = shop.draft.replace(renewed, rows)
        shop.sampled = sample(shop.sampled, _with_vector(rows), shop.draft.revision)
        shop.report.chunks["added"] += written.added
        shop.report.chunks["removed"] += written.removed
        shop.report.work["rows_written"] += written.added + written.rewritten
    changed = []
    shop.seen.add([seen for entry in batch if (seen := _seen(entry)) is not None])
    relabelled = _relabel_standing(shop, batch)
    for entry in batch:
        before = relabelled.get(entry.document_id, entry.row)
        row = made[entry.document_id].catalog_row if entry.live else row_without_chunks(shop, entry, before)
        _count(shop, entry)
        for outcome, chunk_row in zip(entry.outcomes, made[entry.document_id].rows if entry.live else [], strict=False):
            dropped = outcome == "written" and not chunk_row.note
            shop.report.notes["too_long" if dropped else outcome] += 1
        shop.note_status(row)
        if not entry.touched and (_says_more(row, entry.row) or not shop.continues):
            changed.append(row)
    if changed:
        shop.draft.catalog.put(changed)
    shop.progress.advance(len(batch), sum(entry.object.size for entry in batch if not entry.object.problem))


def _standing(shop: Workshop, batch: Collection[Entry], made: Mapping[str, DocumentRows]) -> set[str]:
    """Documents whose attempt failed again and whose rows stand as they are: the catalog's stamp tells."""
    return {
        entry.document_id
        for entry in batch
        if entry.failed and not entry.stored and shop.continues and entry.document_id in made
        if not _says_more(made[entry.document_id].catalog_row, entry.row)
    }


def _relabel_standing(shop: Workshop, batch: Collection[Entry]) -> dict[str, Row]:
    """Give the rows that stay of documents which cannot be made again the labels that hold today; by document id."""
    waiting = {
        entry.document_id: (entry.row, labels)
        for entry in batch
        if shop.continues and not entry.live and not entry.touched and entry.row is not None
        if (labels := standing_labels(entry)) != entry.row.labels
    }
    if not waiting:
        return {}
    rows, written = relabel(
        shop.draft, [row for row, _ in waiting.values()], {name: labels for name, (_, labels) in waiting.items()}
    )
    shop.report.work["rows_written"] += written.rewritten
    return {row.document_id: row for row in rows}


def _says_more(row: Row, before: Row | None) -> bool:
    """Whether a catalog row says anything else than the one before, the time apart.

    Of a document that is skipped and in no index, the bytes are not asked for: they change nothing.
    """
    if before is None:
        return True
    own = {"looked_at"}
    if row.status == before.status == "skipped" and not row.chunk_ids and not before.chunk_ids:
        own |= {"version", "size", "bytes_digest"}
    return row != msgspec.structs.replace(before, **{name: getattr(row, name) for name in own})


def _seen(entry: Entry) -> SeenVersion | None:
    """The version of a document whose bytes did not change, where the catalog does not know it yet."""
    version = entry.object.version
    if not entry.touched or entry.row is None or entry.row.version == version or version.endswith("?"):
        return None
    return SeenVersion(entry.document_id, version, entry.object.size)


def _rows_of(shop: Workshop, batch: Collection[Entry]) -> dict[str, DocumentRows]:
    """What the index is to keep of the live documents of a batch, by document id."""
    live = list(_with_chunks(shop, batch))
    notes = _notes(shop, batch)
    texts = {entry.document_id: list(_texts(shop, entry, chunks, notes[entry.document_id])) for entry, chunks in live}
    keys = {_vector_key(shop, text) for own in texts.values() for text in own}
    embeddings = shop.vectors.get(keys) if keys else {}
    made: dict[str, DocumentRows] = {}
    for entry, chunks in live:
        name = entry.document_id
        own: list[Embedding | None] = [embeddings[_vector_key(shop, text)] for text in texts[name]]
        own = own or [None] * len(chunks)
        shop.seen_runtimes.update(embedding.runtime for embedding in own if embedding)
        shop.report.truncated += sum(embedding.tokens > shop.embedder.limit for embedding in own if embedding)
        made[name] = document_rows(shop, entry, chunks, notes[name] or [""] * len(chunks), own)
    return made


def _fetch_one(shop: Workshop, entry: Entry) -> None:
    try:
        found = shop.source.fetch(entry.key)
    except OSError as error:
        entry.fail("failed", f"cannot be read: {error.strerror or error}", transient=True)
        return
    if found is None:
        entry.fail("failed", "it was gone when it was to be fetched: removed during the build", transient=True)
        return
    shop.report.work["fetched"] += 1
    data = found.data
    entry.object = Object(entry.key, found.version, len(data))  # it may have changed since it was listed
    entry.bytes_digest = hashlib.sha256(data).hexdigest()
    entry.media_type = media_type(entry.key, data)
    _read_before(shop, entry)
    if not entry.touched:
        shop.fetched[entry.bytes_digest] = data


def _asks(entry: Entry) -> bool:
    """Whether the memory may know the bytes of the listed state."""
    return not entry.failed and not entry.reread and not entry.bytes_digest and entry.object.version != ""


def _read_before(shop: Workshop, entry: Entry) -> None:
    """Note what a document's bytes parse to, or that they are those of the catalog."""
    entry.touched = _same_as_before(shop, entry)
    if not entry.touched:
        entry.document = document_key(entry)


def _same_as_before(shop: Workshop, entry: Entry) -> bool:
    row = entry.row
    return (
        row is not None
        and not entry.again
        and row.version != ""
        and row.bytes_digest == entry.bytes_digest
        and row.recipe == shop.recipe(entry.key, entry.media_type)
        and shop.continues
    )


def document_key(entry: Entry) -> str:
    """Memory key of the document that these bytes parse to with today's parsers."""
    return memory_key(entry.bytes_digest, entry.media_type, fingerprint(entry.media_type))


def _lost(entry: Entry) -> None:
    """The last good document is not remembered any more: its rows stay as they are, where they are."""
    entry.document = ""


def _with_chunks(shop: Workshop, batch: Collection[Entry]) -> Iterator[tuple[Entry, list[Chunk]]]:
    """The live entries of a batch with their chunks."""
    encoded = shop.chunks.get(entry.chunks for entry in batch if entry.live)
    for entry in batch:
        if entry.live:
            yield entry, _CHUNKS.decode(encoded[entry.chunks])


def _vector_key(shop: Workshop, text: str) -> str:
    return vector_key(text_digest(text), shop.embedder.fingerprint)


def _notes(shop: Workshop, batch: Collection[Entry]) -> dict[str, list[str]]:
    """The notes of each live entry's chunks within their reserve, by key; empty where there is none."""
    encoded = shop.note_memo.get(key for entry in batch for key in entry.notes) if shop.notes else {}
    fitted: dict[str, str] = {}
    for key, value in encoded.items():
        text = _NOTE.decode(value).text
        fitted[key] = fit(text, shop.settings.note_reserve, shop.ruler.count) if text else ""
    return {entry.document_id: [fitted.get(key, "") for key in entry.notes] for entry in batch}


def _texts(shop: Workshop, entry: Entry, chunks: Sequence[Chunk], notes: Sequence[str]) -> Iterator[str]:
    """The embedded texts of a document's chunks; none for a document that BM25 alone finds."""
    if shop.embeds(entry.key):
        for position, one in enumerate(chunks):
            yield embedded_text(notes[position] if notes else "", one)


def _with_vector(rows: pa.Table) -> list[str]:
    names, provenances = rows["chunk_id"].to_pylist(), rows["provenance"].to_pylist()
    return [name for name, provenance in zip(names, provenances, strict=True) if provenance]


def _count(shop: Workshop, entry: Entry) -> None:
    """Whether a document counts as added, changed or unchanged; a failed one whose old version stays is unchanged."""
    if entry.touched or entry.stored or (entry.failed and entry.row is not None):
        shop.report.documents["unchanged"] += 1
    elif not entry.failed:
        shop.report.documents["added" if entry.row is None else "changed"] += 1
