"""Vectors into the memory, and the samples by which a gate proves them.

Kept here: a vector is remembered with the record of the runtime that made it; and what was remembered since the gate of
vectors last passed is in doubt, whoever made it and however that ended, until that gate has seen a sample of it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enrich.embedder import Embedder
from enrich.memo import RUNTIMES, Embedding, Memo, VectorMemo
from indexes.storage import Storage

FLUSH: Final = 512  # texts embedded before their vectors are written to the memory
PROBES: Final = 16  # vectors in a sample; a wrong pooling or prefix shows in each of them

LENGTH_ERROR: Final = 1e-3  # how far the length of a normalized vector may be from 1

Sample = list[tuple[str, str]]


def remember_vectors(
    storage: Storage,
    memo: VectorMemo,
    embedder: Embedder,
    texts: Mapping[str, str],
    done: Callable[[int, float], None] = lambda texts, seconds: None,
) -> None:
    """Embed those texts whose vectors are not remembered, a few hundred at a time, so that a kill loses no more.

    Args:
        texts: by memory key.
        done: is told how many more were embedded, in how many seconds.
    """
    known = memo.known(texts)
    missing = [key for key in texts if key not in known]
    for start in range(0, len(missing), FLUSH):
        keys = missing[start : start + FLUSH]
        begun = time.perf_counter()
        _remember(storage, memo, embedder, {key: texts[key] for key in keys})
        done(len(keys), time.perf_counter() - begun)


def _remember(storage: Storage, memo: VectorMemo, embedder: Embedder, texts: Mapping[str, str]) -> None:
    storage.doubt_vectors()
    encoded = embedder.encode(list(texts.values()))
    provenance = embedder.provenance
    Memo(storage.memory(), RUNTIMES).put({provenance.id: msgspec.json.encode(provenance, order="sorted")})
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


def no_vector(rows: pa.Table | pa.RecordBatch, *, normalized: bool) -> list[tuple[str, str]]:
    """Those of these rows whose vector is none, as (chunk id, what is wrong with it).

    Args:
        rows: with the columns chunk_id, provenance and vector.
        normalized: whether the model makes vectors of length 1.
    """
    made = rows.filter(pc.not_equal(rows["provenance"], ""))
    vectors = made["vector"].combine_chunks() if isinstance(made, pa.Table) else made["vector"]
    if not len(made):
        return []
    lengths = np.linalg.norm(np.asarray(vectors.flatten()).reshape(len(made), -1), axis=1)
    right = np.isfinite(lengths) & (lengths > 0)
    if normalized:
        right &= np.abs(lengths - 1) < LENGTH_ERROR
    return [
        (name, f"the vector of chunk {name} is not finite or has a length of {length:.4f}")
        for name, length, fine in zip(made["chunk_id"].to_pylist(), lengths.tolist(), right.tolist(), strict=True)
        if not fine
    ]
