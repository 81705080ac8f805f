"""Opening a published index for questions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc

from enrich.reranking.reranker import CrossEncoderReranker
from flows.models.embedding import open_query_embedder
from flows.opening import naming_the_place, open_storage, published
from flows.settings import Mode, Settings
from indexes.cache.caches import Caches
from indexes.lexical.index import Boosts, LexicalIndex
from indexes.revisions.generation import open_stores, published_catalog
from indexes.search.filters import check_matched, parse_filters
from indexes.search.reader import LOOK_EVERY, Reader
from indexes.search.search import Fusion, Hit, Searcher
from indexes.search.sections import sections_of
from indexes.storage.storage import Pointer, Storage
from parsers.errors import UsageError


@naming_the_place
def open_searcher(settings: Settings, mode: Mode) -> Searcher:
    """Return the published revision, ready for questions; the embedder is opened only where the mode needs it.

    Raises:
        StoreError: when nothing is published or a part of it is missing.
        ModelError: when the model that made the vectors is missing, or is not the one of that name here, or the
            folder of the reranker holds none.
    """
    return _searcher(settings, *published(settings), mode)


def open_reader(settings: Settings, mode: Mode = "hybrid", *, look_every: float = LOOK_EVERY) -> Reader:
    """Return the published index, followed from revision to revision: what a service holds.

    Args:
        look_every: seconds between two looks at the pointer.

    Raises:
        StoreError: when nothing is published or a part of it is missing.
        ModelError: as :func:`open_searcher` says.
    """
    storage = open_storage(settings)
    return Reader(storage, lambda pointer: _searcher(settings, storage, pointer, mode), look_every=look_every)


@naming_the_place
def _searcher(settings: Settings, storage: Storage, pointer: Pointer, mode: Mode) -> Searcher:
    table, lexical = open_stores(storage, pointer)
    return Searcher(
        table,
        lexical,
        None if mode == "bm25" else open_query_embedder(settings, storage, pointer).query,
        fusion=fusion(settings),
        reranker=CrossEncoderReranker(Path(settings.reranker).expanduser(), settings.device)
        if settings.reranker
        else None,
        rerank_depth=settings.rerank_depth,
        labels=lambda: labels_of(storage, pointer),
        allow_unmatched=settings.allow_unmatched_filters,
    )


def labels_of(storage: Storage, pointer: Pointer) -> set[str]:
    """Return the labels of all documents of a published revision."""
    column = published_catalog(storage, pointer).columns(["labels"])["labels"]
    return set(pc.list_flatten(column).to_pylist())


def check_always(settings: Settings, storage: Storage, pointer: Pointer, lexical: LexicalIndex) -> None:
    """Make sure that the filters which always hold name what the published revision has.

    Raises:
        UsageError: when one names a label that no document carries, or is no filter.
    """
    if not settings.allow_unmatched_filters:
        check_matched(parse_filters(settings.always_filter), lexical.has, lambda: labels_of(storage, pointer))


@naming_the_place
def answer_query(
    settings: Settings, query: str, mode: Mode, k: int, filters: list[str], started: float, *, expand: bool = False
) -> dict[str, Any]:
    """Return the answer to one question, as ``gristmill search --json`` prints it.

    Args:
        filters: expressions such as ``label=public``, all of which hold, beside those that the settings always apply.
        started: when the command began, on the clock of ``time.time``.
        expand: give each hit its ``section``, None where the parsed document is no longer cached.

    Raises:
        UsageError: for a blank query, a filter that is none, or one that names a label no document carries.
    """
    if not query.strip():
        raise UsageError("the query is blank", "Ask something.")
    storage, pointer = published(settings)
    searcher = _searcher(settings, storage, pointer, mode)
    searcher.search("start-up", mode, k=1)  # loads what the first question needs
    ready = time.time()
    hits = searcher.search(query, mode, k=k, filters=filters)
    shown = [msgspec.to_builtins(hit) for hit in hits]
    if expand:
        for hit, section in zip(shown, _sections(storage, pointer, hits), strict=True):
            hit["section"] = section
    return {
        "query": query,
        "mode": mode,
        "hits": shown,
        "seconds": {"start": round(ready - started, 3), "search": round(time.time() - ready, 4)},
    }


def _sections(storage: Storage, pointer: Pointer, hits: list[Hit]) -> list[Any]:
    found = sections_of(hits, published_catalog(storage, pointer), Caches(storage).documents)
    return [msgspec.to_builtins(section) for section in found]


def fusion(settings: Settings) -> Fusion:
    """Return how the settings fuse the channels."""
    weights = Boosts(
        identifiers=settings.bm25_identifiers,
        headings=settings.bm25_headings,
        notes=settings.bm25_notes,
        phrases=settings.bm25_phrases,
    )
    return Fusion(settings.rrf_k, settings.search_depth, weights, tuple(settings.always_filter))
