"""The model swap ahead of its lock: vectors of the stored texts by the new model, while builds go on.

Invariants:
- The index is held only while finished vectors are added to the cache, some at a time, so that builds go on publishing.
- A vector that is cached is not made again: a swap that was broken off goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from enrich.embedding.embedder import Embedder
from flows import interrupts
from flows.context import Resources
from flows.models.embedding import prove
from flows.models.vector_cache import keep_vectors
from flows.opening import open_storage
from flows.report import Progress
from flows.settings import Settings
from indexes.cache.store import text_digest, vector_key
from indexes.rows import EMBEDDED, embedded
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import ChunkTable
from parsers.errors import IndexBusy

_READ: Final = 1_024  # rows that are looked at at a time
_PASSES: Final = 5  # over the published texts; each later one finds what builds have changed meanwhile
_WAIT: Final = 0.5  # seconds between two tries to hold the index


class Ahead(NamedTuple):
    """Texts that were embedded ahead of the swap, and the seconds it took."""

    embedded: int = 0
    seconds: float = 0.0


def embed_ahead(settings: Settings, progress: Progress) -> Ahead:
    """Embed the texts of the published revision with the model of the settings, as far as they are not cached.

    Ends when a pass over the published texts finds nothing new.
    """
    begun, total = time.perf_counter(), 0
    storage = open_storage(settings)
    resources = Resources(settings, storage)
    for _ in range(_PASSES):
        pointer = storage.pointer()
        if pointer is None:
            break
        resources.expected_texts = pointer.counts["chunks"]
        count = _pass(resources, pointer, progress, total)
        total += count
        if not count:
            break
    return Ahead(total, time.perf_counter() - begun)


def _pass(resources: Resources, pointer: Pointer, progress: Progress, before: int) -> int:
    """Embed what one look at the published texts finds missing; return how much."""
    storage, embedder, count = resources.storage, resources.embedder, 0
    if embedder.fingerprint == pointer.embedder_fingerprint:
        return 0
    table = ChunkTable.open(storage.tables(pointer.generation), pointer.chunks_version)
    for batch in table.rows(["provenance", *EMBEDDED], _READ):
        rows = [row for row in batch.to_pylist() if row["provenance"]]
        texts = {vector_key(text_digest(text), embedder.fingerprint): text for text in map(embedded, rows)}
        known = resources.caches.vectors.known(texts)
        missing = {key: text for key, text in texts.items() if key not in known}
        if not missing:
            continue
        _embed(resources, embedder, missing)
        count += len(missing)
        progress.say(f"  {before + count:,} of {pointer.counts['vectors']:,} texts embedded ahead of the swap")
    return count


def _embed(resources: Resources, embedder: Embedder, texts: dict[str, str]) -> None:
    """Embed texts and add their vectors to the cache; only adding them holds the index."""
    storage, settings = resources.storage, resources.settings
    embedder.prove_by(lambda one: prove(one, storage, settings.cache_dir, resources.reference_probes))
    with _held(storage):  # the proof may keep new probes
        storage.doubt_vectors()
        embedder.load()
    keys = list(texts)
    for start in range(0, len(keys), embedder.window):
        window = keys[start : start + embedder.window]
        encoded = embedder.encode([texts[key] for key in window])
        interrupts.raise_if_interrupted()
        with _held(storage):
            keep_vectors(resources.caches, embedder, window, encoded)


@contextmanager
def _held(storage: Storage) -> Iterator[None]:
    """Hold the index as soon as it is free, for a moment."""
    while True:
        with ExitStack() as stack:
            try:
                stack.enter_context(storage.lock())
            except IndexBusy:
                interrupts.raise_if_interrupted()
                time.sleep(_WAIT)
                continue
            yield
            return
