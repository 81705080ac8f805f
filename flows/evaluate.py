"""Measuring a published index against a golden set: recall by mode, by category, by both kinds of cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from enrich.memo import Memo
from flows.searching import open_searcher, published
from flows.settings import Mode, Settings
from indexes.evaluation.golden import Question, Requirement, first_ranks, load_golden, requirements
from indexes.generation import published_catalog
from indexes.search import Searcher
from parsers.document import Document
from parsers.errors import UsageError

DEPTHS: Final = (1, 5, 10, 20, 50, 100)
MODES: Final[tuple[Mode, ...]] = ("hybrid", "dense", "bm25")


def evaluate(settings: Settings, golden: Path) -> dict[str, Any]:
    """Recall at each depth, by mode.

    A requirement counts as found at k when one of the first k hits covers one of its spans; a question's recall is
    the share of its requirements that are.

    Raises:
        UsageError: when a quote does not resolve exactly once.
    """
    questions = [question for question in load_golden(golden) if question.spans]
    if not questions:
        raise UsageError(f"golden set {golden}: no question in it is answerable", "Add some with spans.")
    texts = _texts(settings, {span.doc for question in questions for span in question.spans})
    needed = [requirements(question, texts) for question in questions]
    _, pointer = published(settings)
    modes = MODES if pointer.counts["vectors"] else MODES[2:]
    searcher = open_searcher(settings, modes[0])
    return {
        "golden": str(golden),
        "generation": pointer.generation,
        "revision": pointer.revision,
        "runs": [_run(searcher, mode, questions, needed) for mode in modes],
    }


def _texts(settings: Settings, keys: set[str]) -> dict[str, str]:
    """The indexed texts of documents, by key."""
    storage, pointer = published(settings)
    rows = [row for row in published_catalog(storage, pointer).rows() if row.key in keys and row.document]
    documents = Memo(storage.memory(), "documents").get(row.document for row in rows)
    return {row.key: Document.decode(documents[row.document]).text for row in rows}


def _run(
    searcher: Searcher, mode: Mode, questions: Sequence[Question], needed: Sequence[list[Requirement]]
) -> dict[str, Any]:
    ranks: dict[str, list[list[int | None]]] = {"midpoint": [], "full": []}
    for question, each in zip(questions, needed, strict=True):
        hits = searcher.search(question.question, mode, k=DEPTHS[-1], depth=4 * DEPTHS[-1])
        spans = [(hit.key, hit.start, hit.end) for hit in hits]
        ranks["midpoint"].append(first_ranks(each, spans, midpoint=True))
        ranks["full"].append(first_ranks(each, spans, midpoint=False))
    categories: dict[str, list[list[int | None]]] = defaultdict(list)
    for question, found in zip(questions, ranks["midpoint"], strict=True):
        categories[question.category or "none"].append(found)
    return {
        "mode": mode,
        "n": len(questions),
        "recall": _curve(ranks["midpoint"]),
        "full_recall": _curve(ranks["full"]),
        "mrr": round(fmean(1 / min((rank for rank in found if rank), default=10**9) for found in ranks["midpoint"]), 4),
        "by_category": {name: {"n": len(found), "recall": _curve(found)} for name, found in sorted(categories.items())},
        "missed_at_5": [
            question.id
            for question, found in zip(questions, ranks["midpoint"], strict=True)
            if not all(rank and rank <= 5 for rank in found)
        ],
    }


def _curve(found: Sequence[list[int | None]]) -> dict[str, float]:
    return {
        str(k): round(fmean(fmean(bool(rank and rank <= k) for rank in ranks) for ranks in found), 4) for k in DEPTHS
    }
