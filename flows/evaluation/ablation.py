"""The ladder: what each part of the embedded text is worth on one corpus, and what the size of chunks is worth.

Every rung is a pair of stores of its own, made of the documents that the published index remembers, with nothing
fetched and nothing parsed: the same chunks under another text, or other chunks under the same. So what is measured is
what a build with these settings would serve. The rungs' vectors go into the cache, and a second run makes none.

Invariants:
- Rungs differ in the one thing that their name says.
- The published index is not touched.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lancedb
import msgspec

from chunker.chunk import Chunk, locator
from chunker.split import split
from chunker.tokens import Ruler
from enrich.embedding.embedder import Embedder
from enrich.notes.note import fit
from enrich.notes.prompts import Windows
from flows.evaluation.evaluate import COMPARED_K, finish
from flows.evaluation.golden_set import resolve, texts_of
from flows.evaluation.runs import make_record, measure, published_index, worst_questions
from flows.models.embedding import open_query_embedder
from flows.models.note_writers import NoteMaker, open_notes, window_settings
from flows.models.ruler import chunker_settings, open_ruler
from flows.models.vector_cache import cache_vectors
from flows.opening import published
from flows.pages.page import check_page
from flows.searching import fusion
from flows.settings import Settings
from indexes import rows as index_rows
from indexes.cache.caches import Caches
from indexes.cache.store import text_digest, vector_key
from indexes.catalog import CatalogRow
from indexes.evaluation.compare import compare
from indexes.evaluation.golden import load_golden
from indexes.evaluation.reading import figures_in_words, verdict_of
from indexes.evaluation.record import Run
from indexes.lexical.index import LexicalIndex
from indexes.revisions.generation import published_catalog
from indexes.search.search import Fusion
from indexes.storage.storage import Storage
from indexes.vectors import ChunkTable
from parsers.document import Document
from parsers.errors import StoreError, UsageError

PATH: Final = "heading path"
BATCH_BYTES: Final = 8_000_000  # of documents whose chunks are held at a time


@dataclass(frozen=True, slots=True)
class Rung:
    """One way of making the embedded text.

    Attributes:
        name: as tables show it.
        path: whether the heading path stands in it.
        notes: who writes the notes in it; None for none.
        ruler: what its chunks are cut by.
    """

    name: str
    path: bool
    notes: NoteMaker | None
    ruler: Ruler


def ablate(
    settings: Settings,
    golden: Path,
    *,
    sizes: Sequence[int] = (),
    strict: bool = True,
    html: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure the ladder over the documents of the published index, and keep it as a record.

    Its rungs: bare text, heading path, notes of each kind.

    Notes by the LLM are those that the cache holds for the settings; a rung with them says how many chunks have one.

    Args:
        sizes: further rungs with heading path and chunks cut for so many tokens.
        strict: whether a question that does not resolve is an error.
        html: where to write the report page.
        say: is told what is being done.

    Returns:
        As :func:`flows.evaluation.evaluate.evaluate` does.

    Raises:
        UsageError: when the index has no vectors, or a size is over the ruler's limit or too small for any text.
        StoreError: when a parsed document is no longer cached.
    """
    questions = load_golden(golden)
    storage, pointer = published(settings)
    if not pointer.counts["vectors"]:
        raise UsageError("the ladder compares vectors with BM25, and this index has none", "Build it with vectors.")
    check_page(html)
    rungs = _rungs(settings, sizes)
    with storage.lock():
        rows = list(published_catalog(storage, pointer).rows())
        texts = texts_of(storage, rows)
        resolved = resolve(golden, questions, texts, strict=strict)
        embedder = open_query_embedder(settings, storage, pointer)
        vectors = embedder.encode(resolved.texts, "query").vectors
        runs: list[Run] = []
        try:
            maker = _Maker(storage, settings, embedder, rows)
            for rung in rungs:
                began = time.perf_counter()
                table, lexical, name = maker.stores(rung)
                measured = measure(name, table, lexical, resolved, vectors, _how(settings, rung))
                runs += measured.runs
                if rung is rungs[0]:
                    record = make_record(settings, *published_index(storage, pointer), rows, measured)
                    examples = worst_questions(measured.runs[0], resolved, table, texts)
                maker.drop()
                say(f"{name}: {len(measured.lengths):,} chunks, {time.perf_counter() - began:.0f} s")
        finally:
            storage.scratch()
        lines = [f"What follows is said of the rung with the {PATH}.", *record.reading, *_steps(runs)]
        record = msgspec.structs.replace(record, runs=runs, examples=examples, reading=lines)
        return finish(storage, record, None, html)


class _Maker:
    """Makes the stores of a rung in the scratch folder."""

    def __init__(self, storage: Storage, settings: Settings, embedder: Embedder, rows: Sequence[CatalogRow]) -> None:
        self._storage = storage
        self._settings = settings
        self._embedder = embedder
        self._rows = [row for row in rows if row.document]
        self._folder = storage.scratch()
        self._caches = Caches(storage, lambda: embedder.dimension)

    def stores(self, rung: Rung) -> tuple[ChunkTable, LexicalIndex, str]:
        """Return the rung's stores, and its name with how many of its chunks have a note."""
        folder = self._folder / "rung"
        table = ChunkTable.create(lancedb.connect(str(folder)), self._embedder.dimension)
        lexical = LexicalIndex.create(folder / "lexical")
        total = noted = 0
        for batch in _batches(self._rows):
            made = [row for document in batch for row in self._document(rung, document)]
            if made:
                written = index_rows.to_table(made, self._embedded(made), self._embedder.dimension)
                table.apply([], written)
                lexical.apply([], written)
            total += len(made)
            noted += sum(bool(row.note) for row in made)
        lexical.commit()
        lexical.close()
        name = f"{rung.name} ({noted:,} of {total:,})" if rung.notes is not None and noted < total else rung.name
        return table, LexicalIndex.open(folder / "lexical"), name

    def drop(self) -> None:
        """Remove the stores of the last rung."""
        shutil.rmtree(self._folder / "rung")

    def _document(self, rung: Rung, row: CatalogRow) -> list[index_rows.ChunkRow]:
        document = self._caches.documents.get([row.document]).get(row.document)
        if document is None:
            raise StoreError(f"document {row.key} is no longer cached", "Build the index again.")
        chunks = split(document, row.title, rung.ruler, chunker_settings(self._settings))
        notes = self._noted(rung, document, row.title, chunks)
        if not rung.path:
            chunks = [msgspec.structs.replace(one, heading_path=(), printed_path=()) for one in chunks]
        return index_rows.document_rows(
            row.document_id,
            row.key,
            chunks,
            notes=notes,
            locators=[locator(row.key, one) for one in chunks],
            unknown_tokens=[0] * len(chunks),
            labels=row.labels,
        )

    def _noted(self, rung: Rung, document: Document, title: str, chunks: Sequence[Chunk]) -> list[str]:
        """Return the notes within their reserve; those by rule are made, those by the LLM are taken from the cache."""
        if rung.notes is None:
            return [""] * len(chunks)
        around = Windows(document, title, window_settings(self._settings), chunks)
        windows = [around.of(one) for one in chunks]
        if rung.notes.limited:
            keys = rung.notes.keys(windows)
            known = self._caches.notes.get(keys)
            texts = [known[key].text if key in known else "" for key in keys]
        else:
            texts = [note.text for note in rung.notes.write(windows)]
        return [fit(text, self._settings.note_reserve, rung.ruler.count) if text else "" for text in texts]

    def _embedded(self, rows: Sequence[index_rows.ChunkRow]) -> list[index_rows.Vector | None]:
        """Return a vector for each row of a document that gets them, from the cache where it has one."""
        embeds = self._settings.embeds
        keys = [
            vector_key(text_digest(row.embedded_text), self._embedder.fingerprint) if embeds(row.key) else ""
            for row in rows
        ]
        texts = {key: row.embedded_text for key, row in zip(keys, rows, strict=True) if key}
        cache_vectors(self._storage, self._caches, self._embedder, texts)
        found = self._caches.vectors.get(texts)
        return [index_rows.Vector(found[key].vector, found[key].runtime) if key else None for key in keys]


def _rungs(settings: Settings, sizes: Sequence[int]) -> list[Rung]:
    ruler = open_ruler(settings)
    makers = {name: open_notes(settings.model_copy(update={"notes": name}), ruler.count) for name in _writers(settings)}
    rungs = [Rung(PATH, True, None, ruler), Rung("bare", False, None, ruler)]
    rungs += [Rung(f"{name} note", True, maker, ruler) for name, maker in makers.items()]
    return rungs + [Rung(f"{PATH}, {size} tokens", True, None, open_ruler(settings, size)) for size in sizes]


def _how(settings: Settings, rung: Rung) -> Fusion:
    """Of a document's name and titles a bare rung sees nothing in BM25 either."""
    how = fusion(settings)
    if rung.path:
        return how
    return msgspec.structs.replace(how, weights=msgspec.structs.replace(how.weights, headings=0.0))


def _writers(settings: Settings) -> list[str]:
    """Kinds of notes on the ladder: those by the LLM where the settings ask for them."""
    return ["extractive", "llm"] if settings.notes == "llm" else ["extractive"]


def _batches(rows: Sequence[CatalogRow]) -> Iterator[list[CatalogRow]]:
    """Yield some megabytes of documents at a time."""
    batch: list[CatalogRow] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += row.size
        if held > BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _steps(runs: Sequence[Run]) -> list[str]:
    """Return each rung against the one with the heading path alone, hybrid, in a sentence."""
    hybrid = [run for run in runs if run.mode == "hybrid"]
    base = next(run for run in hybrid if run.variant == PATH)
    lines = []
    for run in hybrid:
        if run is not base:
            change = compare(base.recalls(COMPARED_K), run.recalls(COMPARED_K))
            lines.append(
                f"{run.variant}, hybrid at {COMPARED_K}, is {verdict_of(change)} {PATH}: {figures_in_words(change)}."
            )
    return lines
