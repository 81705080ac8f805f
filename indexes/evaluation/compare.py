"""Two runs compared question by question.

Invariants:
- Only questions that both runs answer are compared, and what was won and lost is said by name.
- The test is a paired permutation test of the mean difference (Fisher.
- See Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
  Evaluation", CIKM 2007): exact up to 13 questions that differ, sampled with a fixed seed beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from scipy import stats

from indexes.evaluation.metrics import RESAMPLES, interval, mean

Alternative = Literal["two-sided", "less", "greater"]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one run to another.

    Attributes:
        n: questions that both answer.
        before, after: their mean recall.
        difference: after - before, with its bootstrap interval.
        p: chance of a difference as large by luck, under the alternative asked.
        won, lost: ids of the questions whose recall rose or fell.
        missing: ids of questions that only one of the runs has.
    """

    n: int
    before: float
    after: float
    difference: float
    interval: tuple[float, float]
    p: float
    won: list[str]
    lost: list[str]
    missing: list[str]


def compare(
    before: Mapping[str, float], after: Mapping[str, float], alternative: Alternative = "two-sided"
) -> Comparison:
    """Compare a number that each question has in two runs, by question id.

    Args:
        alternative: ``less`` asks whether ``after`` is worse, ``greater`` whether it is better.
    """
    shared = sorted(before.keys() & after.keys())
    differences = [after[name] - before[name] for name in shared]
    return Comparison(
        n=len(shared),
        before=mean([before[name] for name in shared]) if shared else 0.0,
        after=mean([after[name] for name in shared]) if shared else 0.0,
        difference=mean(differences) if shared else 0.0,
        interval=interval(differences) if shared else (0.0, 0.0),
        p=_p_value(differences, alternative),
        won=[name for name, change in zip(shared, differences, strict=True) if change > 0],
        lost=[name for name, change in zip(shared, differences, strict=True) if change < 0],
        missing=sorted(before.keys() ^ after.keys()),
    )


def _p_value(differences: list[float], alternative: Alternative) -> float:
    """By flipping the signs of the differences; 1 where nothing differs."""
    moved = [change for change in differences if change]
    if not moved:
        return 1.0
    if len(moved) == 1:
        moved.append(0.0)  # scipy takes no single observation, and a zero changes nothing
    found = stats.permutation_test(
        (np.asarray(moved),),
        np.mean,
        permutation_type="samples",
        alternative=alternative,
        n_resamples=RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return round(float(found.pvalue), 4)
