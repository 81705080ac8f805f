"""Embedding into the cache, and the samples by which a gate checks the vectors.

Invariants:
- A vector is cached with the description of the runtime that made it.
- Vectors that were cached since the gate of vectors last passed are in doubt until that gate has seen a sample of them.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import msgspec

from enrich.embedding.embedder import Embedder, Encoded
from indexes.cache.caches import Caches
from indexes.cache.store import Embedding
from indexes.storage.storage import Storage

FULL: Final = (errno.ENOSPC, errno.EDQUOT)  # a full disk is no fault of a text
PROBES: Final = 16  # vectors in a sample; a wrong pooling or prefix shows in each of them


Sample = list[tuple[str, str]]


class NotEmbedded(Exception):
    """Failure of the embedder at some texts, not of the store."""


def cache_vectors(
    storage: Storage,
    caches: Caches,
    embedder: Embedder,
    texts: Mapping[str, str],
    done: Callable[[int, float], None] = lambda texts, seconds: None,
) -> None:
    """Embed the texts whose vectors are not cached, a window at a time, so that a kill loses no more.

    Args:
        texts: by cache key.
        done: called with the number of texts just embedded and the seconds it took.

    Raises:
        NotEmbedded: when the embedder fails at these texts.
    """
    known = caches.vectors.known(texts)
    missing = [key for key in texts if key not in known]
    if not missing:
        return
    storage.doubt_vectors()
    embedder.load()
    for start in range(0, len(missing), embedder.window):
        keys = missing[start : start + embedder.window]
        begun = time.perf_counter()
        embed_window(caches, embedder, {key: texts[key] for key in keys})
        done(len(keys), time.perf_counter() - begun)


def embed_window(caches: Caches, embedder: Embedder, texts: Mapping[str, str]) -> None:
    """Embed texts and cache their vectors, with the description of the runtime.

    Raises:
        NotEmbedded: when the embedder fails at these texts.
    """
    try:
        encoded = embedder.encode(list(texts.values()))
    except Exception as error:  # whatever a runtime raises of a text
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise NotEmbedded(str(error)) from error
    keep_vectors(caches, embedder, list(texts), encoded)


def keep_vectors(caches: Caches, embedder: Embedder, keys: Sequence[str], encoded: Encoded) -> None:
    """Cache vectors by their keys, with the description of the runtime that made them."""
    provenance = embedder.provenance
    caches.runtimes.put({provenance.id: msgspec.to_builtins(provenance)})
    caches.vectors.add(
        {
            key: Embedding(encoded.vectors[i], int(encoded.tokens[i]), int(encoded.unknown[i]), provenance.id)
            for i, key in enumerate(keys)
        }
    )


def sample(so_far: Sample, names: Iterable[str], revision: int) -> Sample:
    """Return a sample of the chunk ids met so far: another one in each revision, the same one on every machine."""
    met = ((hashlib.sha256(f"{revision} {name}".encode()).hexdigest(), name) for name in names)
    return nsmallest(PROBES, {*so_far, *met})
