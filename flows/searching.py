"""Opening a published index for questions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from enrich.embedder import open_embedder
from enrich.models import ModelFolder, load_registry
from flows.settings import Mode, Settings
from indexes.generation import open_stores
from indexes.search import Searcher
from indexes.storage import Pointer, Storage
from parsers.errors import ModelError, StoreError, UsageError


def published(settings: Settings) -> tuple[Storage, Pointer]:
    """The index and what it has published.

    Raises:
        StoreError: when it has published nothing.
    """
    storage = Storage(settings.index)
    pointer = storage.pointer()
    if pointer is None:
        raise StoreError(
            f"index {settings.index}: nothing is published there",
            f"Build it: gristmill build SOURCE --index {settings.index}",
        )
    return storage, pointer


def open_searcher(settings: Settings, mode: Mode) -> Searcher:
    """The published revision, ready for questions; the embedder is opened only where the mode needs it.

    Raises:
        StoreError: when nothing is published or a part of it is missing.
        ModelError: when the model that made the vectors is missing, or is not the one of that name here.
    """
    storage, pointer = published(settings)
    table, lexical = open_stores(storage, pointer)
    return Searcher(table, lexical, None if mode == "bm25" else _query_embedder(settings, pointer))


def ask(settings: Settings, query: str, mode: Mode, k: int, filters: list[str], started: float) -> dict[str, Any]:
    """The answer to one question, as ``gristmill search --json`` prints it.

    Args:
        filters: expressions such as ``label=public``, all of which hold.
        started: when the command began, on the clock of ``time.time``.

    Raises:
        UsageError: for a blank query or a filter that is none.
    """
    if not query.strip():
        raise UsageError("the query is blank", "Ask something.")
    searcher = open_searcher(settings, mode)
    searcher.search("start-up", mode, k=1)  # loads what the first question needs
    ready = time.time()
    hits = searcher.search(query, mode, k=k, filters=filters)
    return {
        "query": query,
        "mode": mode,
        "hits": [msgspec.to_builtins(hit) for hit in hits],
        "seconds": {"start": round(ready - started, 3), "search": round(time.time() - ready, 4)},
    }


def _query_embedder(settings: Settings, pointer: Pointer) -> Callable[[str], np.ndarray]:
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    embedder = open_embedder(
        pointer.embedder,
        load_registry(*settings.model_files),
        folder,
        device=settings.device,
        batch_tokens=settings.batch_tokens,
    )
    if embedder.fingerprint != pointer.embedder_fingerprint:
        raise ModelError(
            f"the index was made with {pointer.embedder} of fingerprint {pointer.embedder_fingerprint[:8]}; the model "
            f"of that name here has {embedder.fingerprint[:8]}",
            "Use the models.toml that the index was built with, or build the index again.",
        )
    return embedder.query
