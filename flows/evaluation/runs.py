"""Runs of a golden set over a pair of stores, and the record made of them.

The vectors are searched exactly and every channel deeper than a search goes, so what is missed here is not lost by the
vector index.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from flows.evaluation.golden_set import GoldenSet
from flows.settings import Settings
from indexes.catalog import CatalogRow
from indexes.evaluation import metrics
from indexes.evaluation.asking import Corpus, ask
from indexes.evaluation.golden import covers
from indexes.evaluation.reading import channels, reading
from indexes.evaluation.record import AskedQuestion, Example, Record, Run, summarize
from indexes.lexical import analysis
from indexes.lexical.index import LexicalIndex
from indexes.search.search import Fusion
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import ChunkTable
from parsers.errors import UsageError

PUBLISHED: Final = "published"  # the variant that is an index as it is
_MODES: Final = ("hybrid", "dense", "bm25")
WORST: Final = 10  # questions shown with what they wanted and got
SHOWN_HITS: Final = 3
SHOWN_CHARACTERS: Final = 1_500
_STEPS: Final = (16, 32, 64, 96, 128, 160, 192, 224, 256, 384, 512, 768, 1024)  # tokens; bars of the chunk lengths
# Of a search; what made the index is in the recipes' digest.
SETTINGS: Final = (
    "rrf_k",
    "search_depth",
    "bm25_identifiers",
    "bm25_headings",
    "bm25_notes",
    "bm25_phrases",
    "always_filter",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A golden set asked of a pair of stores.

    Attributes:
        golden: the set as it resolved there.
        runs: one a mode.
        lengths: tokens of each chunk.
    """

    golden: GoldenSet
    runs: list[Run]
    lengths: list[int]


def measure(
    variant: str,
    table: ChunkTable,
    lexical: LexicalIndex,
    golden: GoldenSet,
    vectors: npt.NDArray[np.float32] | None,
    how: Fusion,
) -> Measured:
    """Return one run a mode over a pair of stores.

    Args:
        vectors: of the golden set's texts, shape (n, dimension); None for stores without vectors.

    Raises:
        UsageError: when no question of the set has an answer there.
    """
    if not golden.asked:
        raise UsageError(f"golden set {golden.path}: no question in it has an answer here", "Add some with spans.")
    corpus = Corpus(table)
    rankings = ask(table, lexical, corpus, golden.texts, vectors, how)
    texts = corpus.texts({place.doc for one in golden.asked for places in one.requirements for place in places})
    needed = [one.requirements for one in golden.asked]
    runs = []
    for mode in _MODES:
        if mode in rankings:
            own, others = rankings[mode][: len(needed)], rankings[mode][len(needed) :]
            scores = metrics.score(needed, own, texts)
            runs.append(summarize(variant, mode, golden.asked, own, scores, corpus.lengths, others))
    return Measured(golden, runs, corpus.lengths)


def make_record(
    settings: Settings,
    index: dict[str, Any],
    fingerprints: dict[str, str],
    rows: Sequence[CatalogRow],
    measured: Measured,
) -> Record:
    """Return the record of what was measured over a revision; the worst questions are still to be added.

    Args:
        index: address, generation, revision and counts.
        fingerprints: of what made the revision.
        rows: of its catalog.
    """
    golden, runs = measured.golden, measured.runs
    first = {run.mode: run for run in runs if run.variant == runs[0].variant}
    found = channels(first.get("dense"), first["bm25"])
    lines = reading(runs, found, len(golden.stale))
    if settings.reranker:
        lines.append("A reranker is set; what it makes of the order is not measured here.")
    return Record(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        corpus=corpus_digest(rows),
        golden={
            "path": str(golden.path),
            "digest": golden.digest,
            "answerable": len(golden.asked),
            "unanswerable": len(golden.unanswerable),
            "stale": golden.stale,
        },
        index=index,
        fingerprints=fingerprints
        | {"analysis": analysis.analysis_fingerprint(), "recipes": _digest(sorted({row.recipe for row in rows}))},
        settings={name: getattr(settings, name) for name in SETTINGS} | {"gristmill": version("gristmill")},
        questions=golden.asked,
        runs=runs,
        channels=found,
        lengths=_histogram(measured.lengths),
        examples=[],
        reading=lines,
    )


def published_index(storage: Storage, pointer: Pointer) -> tuple[dict[str, Any], dict[str, str]]:
    """Return ``index`` and ``fingerprints`` of :func:`make_record` for a published revision."""
    index = {"address": storage.address, "generation": pointer.generation, "revision": pointer.revision}
    return index | pointer.counts, {"embedder": f"{pointer.embedder} {pointer.embedder_fingerprint}"}


def corpus_digest(rows: Iterable[CatalogRow]) -> str:
    """Return the digest of a corpus: SHA-256 of keys and bytes of its documents, in hexadecimal."""
    return _digest(sorted(f"{row.key}\0{row.bytes_digest}" for row in rows if row.document))


def worst_questions(run: Run, golden: GoldenSet, table: ChunkTable, texts: Mapping[str, str]) -> list[Example]:
    """Return the questions of which most is missing or stands lowest."""

    def badness(one: AskedQuestion) -> tuple[float, float, str]:
        ranks = run.scores[one.id].midpoint
        return (-sum(rank is None for rank in ranks) / len(ranks), -max(rank or 0 for rank in ranks), one.id)

    worst = [one for one in sorted(golden.asked, key=badness) if run.scores[one.id].recall(5) < 1][:WORST]
    return [_example(one, run, table, texts) for one in worst]


def _example(one: AskedQuestion, run: Run, table: ChunkTable, texts: Mapping[str, str]) -> Example:
    ranks = run.scores[one.id].midpoint
    wanted = [
        {
            "requirement": str(number),
            "key": place.doc,
            "locator": f"[{place.start}, {place.end})",
            "text": _shown(texts[place.doc][place.start : place.end]),
        }
        for number, places in enumerate(one.requirements, 1)
        for place in places
    ]
    columns = ["key", "locator", "text", "start", "end"]
    got = [
        {"key": row["key"], "locator": row["locator"], "text": _shown(row["text"]), "met": _meets(row, one)}
        for row in table.fetch(run.hits[one.id][:SHOWN_HITS], columns)
    ]
    last = None if None in ranks else max(rank or 0 for rank in ranks)
    return Example(id=one.id, question=one.question, category=one.category, rank=last, wanted=wanted, got=got)


def _meets(row: Mapping[str, Any], one: AskedQuestion) -> bool:
    places = (place for requirement in one.requirements for place in requirement if place.doc == row["key"])
    return any(covers(row["start"], row["end"], place, midpoint=True) for place in places)


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def _histogram(lengths: Sequence[int]) -> dict[str, int]:
    """Return how many chunks have up to so many tokens, and more than the step before."""
    steps = list(_STEPS)
    while lengths and steps[-1] < max(lengths):
        steps.append(2 * steps[-1])
    counts = Counter(next(step for step in steps if length <= step) for length in lengths)
    return {str(step): counts[step] for step in steps if step <= max(counts, default=0)}


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
