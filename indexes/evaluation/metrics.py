"""Metrics of rankings against golden questions.

Invariants:
- Every figure is a mean over questions of a number that each question has by itself, so that two runs are compared
  question by question.
- An interval says how far the mean would move with other questions of the same kind.
- The same rankings give the same figures to the last digit, the resampling included.

- recall@k of a question: requirements met by its first k hits ÷ its requirements, by full cover (a hit holds the whole
  span) and by midpoint (it holds the span's middle).
- MRR and nDCG@10 come from ir-measures (MacAvaney et al., "Streamlining Evaluation with ir-measures", ECIR 2022):
  relevant is every chunk that holds the middle of a span, each with gain 1.
- Token IoU and token precision@5 of Chroma's chunking evaluation (Smith and Troynikov, "Evaluating Chunking Strategies
  for Retrieval", 2024), counted in code points: the characters of the spans within the first k hits ÷ all characters of
  both, and ÷ those of the hits.
- Intervals are percentile bootstrap intervals of 95 % over questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec
import numpy as np
from ir_measures import RR, Qrel, ScoredDoc, iter_calc, nDCG
from scipy import stats

from indexes.evaluation.golden import GoldenHit, Place, Requirement, first_ranks

METRICS_VERSION: Final = (
    1  # raised by hand when the same rankings give other figures; records of two versions are not compared
)
MEASURED_DEPTH: Final = 200  # hits looked at
SHOWN: Final = (1, 2, 5, 10, 20, 50, 100, 200)  # depths that tables show
CUT: Final = 5  # hits that token precision and IoU look at
RESAMPLES: Final = 9_999
_NDCG: Final = nDCG @ 10


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What one question's ranking is worth.

    Attributes:
        midpoint, full: 1-based rank of the first hit that covers each requirement, by its middle or wholly; None where
            none of the first ``DEPTH`` does.
        reciprocal_rank, ndcg: over relevant chunks; ndcg of the first 10.
        precision, iou: of characters, over the first ``CUT`` hits.
        top: the score of the first hit, as its channel or the fusion gives it; None without a hit.
    """

    midpoint: list[int | None]
    full: list[int | None]
    reciprocal_rank: float
    ndcg: float
    precision: float
    iou: float
    top: float | None = None

    def recall(self, k: int, *, full: bool = False) -> float:
        """Share of the requirements that the first ``k`` hits meet."""
        ranks = self.full if full else self.midpoint
        return sum(rank is not None and rank <= k for rank in ranks) / len(ranks)


class Ranked(msgspec.Struct, frozen=True):
    """A question's ranking.

    Attributes:
        names: chunk ids, best first.
        texts: what stands for the text of each: chunks of equal text share it, and stand in a ranking once.
        places: where the text of each stands.
        scores: of each.
    """

    names: list[str]
    texts: list[str]
    places: list[GoldenHit]
    scores: list[float]


def score(
    needed: Sequence[Sequence[Requirement]],
    rankings: Sequence[Ranked],
    texts: Mapping[str, Iterable[tuple[str, Place]]],
) -> list[Score]:
    """Return the scores of one run, a question each.

    Args:
        needed: what each question requires; at least one requirement each.
        rankings: what each question was given.
        texts: what stands for the text of each chunk, and its place, by document, for the documents with spans.
    """
    relevant = [_relevant(requirements, texts) for requirements in needed]
    qrels = [Qrel(str(index), name, 1) for index, names in enumerate(relevant) for name in sorted(names)]
    run = [
        ScoredDoc(str(index), text, -float(rank))
        for index, ranked in enumerate(rankings)
        for rank, text in enumerate(ranked.texts)
    ]
    standard: dict[tuple[str, str], float] = {}
    if qrels and run:
        standard = {(one.query_id, str(one.measure)): one.value for one in iter_calc([RR, _NDCG], qrels, run)}
    scores = []
    for index, (requirements, ranked) in enumerate(zip(needed, rankings, strict=True)):
        precision, iou = _overlap(requirements, ranked.places[:CUT])
        scores.append(
            Score(
                midpoint=first_ranks(requirements, ranked.places, midpoint=True),
                full=first_ranks(requirements, ranked.places, midpoint=False),
                reciprocal_rank=standard.get((str(index), str(RR)), 0.0),
                ndcg=standard.get((str(index), str(_NDCG)), 0.0),
                precision=precision,
                iou=iou,
                top=ranked.scores[0] if ranked.scores else None,
            )
        )
    return scores


def mean(values: Sequence[float]) -> float:
    """Return the mean, to four decimals."""
    return round(fmean(values), 4)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the bootstrap interval of a mean: between which two numbers it lies in 95 % of resamples.

    Args:
        values: one a question, at least one.
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2 or (array == array[0]).all():
        return mean(values), mean(values)
    found = stats.bootstrap(
        (array,), np.mean, n_resamples=RESAMPLES, batch=1_000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return round(float(found.low), 4), round(float(found.high), 4)


def separation(answerable: Sequence[float], unanswerable: Sequence[float]) -> float | None:
    """How well top scores tell answerable questions from others: the chance that one of the former scores higher.

    0.5 is no better than guessing; the area under the ROC curve, by the Mann-Whitney statistic. None when one of the
    kinds is missing.
    """
    if not answerable or not unanswerable:
        return None
    u = stats.mannwhitneyu(answerable, unanswerable).statistic
    return round(float(u) / (len(answerable) * len(unanswerable)), 4)


def _relevant(requirements: Sequence[Requirement], texts: Mapping[str, Iterable[tuple[str, Place]]]) -> set[str]:
    found: set[str] = set()
    for place in {place for places in requirements for place in places}:
        middle = (place.start + place.end) // 2
        found.update(text for text, chunk in texts.get(place.doc, ()) if chunk.start <= middle < chunk.end)
    return found


def _overlap(requirements: Sequence[Requirement], hits: Sequence[GoldenHit]) -> tuple[float, float]:
    """Token precision and IoU, in code points; of a hit with several places, the one that overlaps the spans most."""
    wanted = _merged({place for places in requirements for place in places})
    chosen = [max(hit, key=lambda place: _shared(_merged([place]), wanted)) for hit in hits]
    given = _merged(chosen)
    shared = _shared(given, wanted)
    total, gold = _length(given), _length(wanted)
    return (shared / total if total else 0.0, shared / (total + gold - shared))


def _merged(places: Iterable[Place]) -> dict[str, list[tuple[int, int]]]:
    """Ranges by document, sorted, overlapping ones joined."""
    merged: dict[str, list[tuple[int, int]]] = {}
    for place in sorted(places, key=lambda one: (one.doc, one.start, one.end)):
        ranges = merged.setdefault(place.doc, [])
        if ranges and place.start <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], place.end))
        else:
            ranges.append((place.start, place.end))
    return merged


def _length(ranges: Mapping[str, Sequence[tuple[int, int]]]) -> int:
    return sum(end - start for own in ranges.values() for start, end in own)


def _shared(one: Mapping[str, Sequence[tuple[int, int]]], other: Mapping[str, Sequence[tuple[int, int]]]) -> int:
    return sum(
        max(0, min(end, until) - max(start, since))
        for doc, ranges in one.items()
        for start, end in ranges
        for since, until in other.get(doc, ())
    )
