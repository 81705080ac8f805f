"""Vectors into the memory, and the samples by which a gate proves them.

Kept here: a vector is remembered with the record of the runtime that made it; and what was remembered since the gate of
vectors last passed is in doubt, whoever made it and however that ended, until that gate has seen a sample of it.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Final

import msgspec

from enrich.embedding.embedder import Embedder
from indexes.cache.memo import RUNTIMES, Embedding, Memo, VectorMemo
from indexes.storage.storage import Storage

FULL: Final = (errno.ENOSPC, errno.EDQUOT)  # a full disk is no fault of a text
PROBES: Final = 16  # vectors in a sample; a wrong pooling or prefix shows in each of them


Sample = list[tuple[str, str]]


class NotEmbedded(Exception):
    """The embedder failed at some texts, whatever its runtime raised; the store has nothing to do with it."""


def remember_vectors(
    storage: Storage,
    memo: VectorMemo,
    embedder: Embedder,
    texts: Mapping[str, str],
    done: Callable[[int, float], None] = lambda texts, seconds: None,
) -> None:
    """Embed those texts whose vectors are not remembered, a window at a time: a kill loses no more.

    Args:
        texts: by memory key.
        done: is told how many more were embedded, in how many seconds.

    Raises:
        NotEmbedded: when the embedder fails at these texts.
    """
    known = memo.known(texts)
    missing = [key for key in texts if key not in known]
    if not missing:
        return
    storage.doubt_vectors()
    records = Memo(storage.memory(), RUNTIMES)
    embedder.load()
    for start in range(0, len(missing), embedder.window):
        keys = missing[start : start + embedder.window]
        begun = time.perf_counter()
        _remember(memo, records, embedder, {key: texts[key] for key in keys})
        done(len(keys), time.perf_counter() - begun)


def _remember(memo: VectorMemo, records: Memo, embedder: Embedder, texts: Mapping[str, str]) -> None:
    try:
        encoded = embedder.encode(list(texts.values()))
    except Exception as error:  # whatever a runtime raises of a text
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise NotEmbedded(str(error)) from error
    provenance = embedder.provenance
    records.put({provenance.id: msgspec.json.encode(provenance, order="sorted")})
    memo.add(
        {
            key: Embedding(encoded.vectors[i], int(encoded.tokens[i]), int(encoded.unknown[i]), provenance.id)
            for i, key in enumerate(texts)
        }
    )


def sample(so_far: Sample, names: Iterable[str], revision: int) -> Sample:
    """A few of many chunk ids, met a batch at a time: another choice in each revision, the same one everywhere."""
    met = ((hashlib.sha256(f"{revision} {name}".encode()).hexdigest(), name) for name in names)
    return nsmallest(PROBES, {*so_far, *met})
