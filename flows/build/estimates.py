"""How many chunks documents will make that nobody has read yet: a sample of each type is parsed and cut.

Invariants:
- Nothing is written: what is parsed here is parsed again by the build.
- The work is bounded: so many documents and bytes a type, and so many seconds of this process.
- The same documents give the same sample, whatever their order.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from chunker.split import split
from flows.parser_pool import parse_one
from flows.state import BuildState

SAMPLED: Final = 40  # documents of a type
SAMPLED_BYTES: Final = 4_000_000  # of a type
SECONDS: Final = 30.0  # of processor time for all types together
BYTES_A_CHUNK: Final = 700  # where nothing could be sampled: 150 tokens of English
BYTES_A_TOKEN: Final = 4.3  # likewise; the 60 books of the benchmarks
# Of formats whose files are mostly not text; measured on the documents of realdocs/.
BYTES_A_CHUNK_OF: Final = {".pdf": 4_000, ".docx": 6_000, ".html": 1_500, ".htm": 1_500}


class _Found(NamedTuple):
    """What a document made, or is estimated to make: chunks, their tokens, and seconds to parse and to cut."""

    chunks: float
    tokens: float
    parse: float = 0.0
    chunk: float = 0.0


class Unread(NamedTuple):
    """A document that a build would parse."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What documents make: as it was found of those sampled, otherwise by their size as others of their type do.

    Attributes:
        found: of the sampled documents, by key.
        by_type: of a byte of each type.
    """

    found: dict[str, _Found]
    by_type: dict[str, _Found]

    def of(self, one: Unread) -> _Found:
        """Return the estimate for a document."""
        known = self.found.get(one.key)
        if known is not None:
            return known
        kind = _kind(one.key)
        ratio = self.by_type.get(kind)
        if ratio is None:
            chunks = one.size / BYTES_A_CHUNK_OF.get(kind, BYTES_A_CHUNK)
            return _Found(chunks, chunks * BYTES_A_CHUNK / BYTES_A_TOKEN)
        return _Found(*(value * one.size for value in ratio))


def estimate(state: BuildState, documents: Iterable[Unread]) -> Estimate:
    """Parse and cut a sample of these documents.

    Raises:
        ModelError: when the chunker's tokenizer is missing.
    """
    found: dict[str, _Found] = {}
    sums: dict[str, list[_Found]] = {}
    sizes: dict[str, int] = {}
    samples = _samples(documents)
    begun = time.process_time()
    for kind, sample in sorted(samples.items(), key=lambda pair: sum(one.size for one in pair[1])):
        for one in sample:
            if time.process_time() - begun > SECONDS:
                break
            made = _made(state, one)
            if made is not None:
                found[one.key] = made
                sums.setdefault(kind, []).append(made)
                sizes[kind] = sizes.get(kind, 0) + one.size
    by_type = {
        kind: _Found(*(sum(column) / max(1, sizes[kind]) for column in zip(*own, strict=True)))
        for kind, own in sums.items()
    }
    return Estimate(found, by_type)


def _samples(documents: Iterable[Unread]) -> dict[str, list[Unread]]:
    """Return some documents of each type, chosen by a digest of their keys."""
    heaps: dict[str, list[tuple[int, str, int]]] = {}
    for one in documents:
        heap = heaps.setdefault(_kind(one.key), [])
        rank = -int.from_bytes(hashlib.sha256(one.key.encode()).digest()[:8], "big")
        (heapq.heappush if len(heap) < SAMPLED else heapq.heappushpop)(heap, (rank, one.key, one.size))
    samples: dict[str, list[Unread]] = {}
    for kind, heap in heaps.items():
        held = 0
        for _, key, size in sorted(heap, reverse=True):
            if not held or held + size <= SAMPLED_BYTES:
                samples.setdefault(kind, []).append(Unread(key, size))
                held += size
    return samples


def _made(state: BuildState, one: Unread) -> _Found | None:
    """Parse and cut a document; None where it cannot be fetched now."""
    try:
        fetched = state.resources.source.fetch(one.key)
    except OSError:
        return None
    if fetched is None:
        return None
    begun = time.perf_counter()
    document = parse_one(state.resources.parsers, one.key, fetched.data)
    parsed = time.perf_counter()
    if not document.nodes or document.status in ("failed", "skipped", "empty"):
        return _Found(0, 0, parsed - begun)
    title = document.title or one.key.rsplit("/", 1)[-1]
    chunks = split(document, title, state.resources.ruler, state.resources.chunker)
    tokens = sum(chunk.tokens for chunk in chunks)
    return _Found(len(chunks), tokens, parsed - begun, time.perf_counter() - parsed)


def _kind(key: str) -> str:
    path = PurePosixPath(key)
    return path.suffix.lower() or path.name
