"""The figures of an evaluation in plain sentences: what each channel misses, and what stands in the way.

Invariants:
- A sentence says no more than its figures do.
- A difference that the paired test takes for luck is said to be within chance.
- Nothing is concluded from fewer than ten questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from indexes.evaluation.compare import Comparison, compare
from indexes.evaluation.record import Run

FEW: Final = 10  # questions; with fewer nothing is concluded
CHANNEL_K: Final = 10  # hits within which a channel is said to have found something
CHANCE: Final = 0.05  # of luck, from which on a difference is said to be within chance
POOL_K: Final = 100  # what a reranker is handed
DEEP_K: Final = 200
LOST: Final = 0.1  # share of the requirements beyond the pool above which recall is the bottleneck
NOTABLE: Final = 0.05  # difference of midpoint and full cover that is said
LOW: Final = 0.1  # share that is in the pool and not among the first ten, above which order is the bottleneck


def channels(dense: Run | None, bm25: Run) -> dict[str, Any]:
    """Compare the first :data:`CHANNEL_K` hits of the channels, alone and together.

    Returns:
        ``k``; ``dense_only``, ``bm25_only``: ids of questions that one channel answers wholly and the other does not;
        ``neither``; ``best_of_both``: mean recall when each question takes the better channel. Empty without vectors.
    """
    if dense is None:
        return {}
    one, other = dense.recalls(CHANNEL_K), bm25.recalls(CHANNEL_K)
    best = [max(one[name], other[name]) for name in one]
    return {
        "k": CHANNEL_K,
        "dense_only": [name for name in one if one[name] == 1 > other[name]],
        "bm25_only": [name for name in one if other[name] == 1 > one[name]],
        "neither": [name for name in one if one[name] < 1 and other[name] < 1],
        "best_of_both": round(sum(best) / len(best), 4) if best else 0.0,
    }


def reading(runs: Sequence[Run], found: dict[str, Any], stale: int) -> list[str]:
    """Sentences on the runs of the first variant.

    Args:
        found: as :func:`channels` gives it.
        stale: how many questions did not resolve.
    """
    variant = runs[0].variant
    modes = {run.mode: run for run in runs if run.variant == variant}
    main = modes.get("hybrid", modes["bm25"])
    left_out = [f"{stale} questions did not resolve and were left out; a parser that lost text looks like this."]
    if main.n < FEW:
        few = f"{main.n} question{'s' if main.n > 1 else ''}: too few to conclude anything; write {FEW} or more."
        return [few, *(left_out if stale else [])]
    lines = [_bottleneck(main)]
    cut_through = main.recall["10"] - main.full_recall["10"]
    if cut_through > NOTABLE:
        lines.append(
            f"{_percent(cut_through)} of what is required stands in the first ten hits by its middle and not wholly: "
            f"chunks of {main.mean_tokens:.0f} tokens cut through the spans."
        )
    if found:
        lines += _fusion(modes, found)
    return lines + (left_out if stale else [])


def verdict(p: float, difference: float, n: int = FEW) -> str:
    """Whether what changed over so many questions is ``better``, ``worse``, ``within chance``, or not to be told."""
    if n < FEW:
        return "too few questions"
    if p >= CHANCE:
        return "within chance"
    return "better" if difference > 0 else "worse"


def verdict_of(change: Comparison) -> str:
    """Return the same, to go before what was before."""
    found = verdict(change.p, change.difference)
    return f"{found} of" if found == "within chance" else f"{found} than"


def figures_in_words(change: Comparison) -> str:
    """Return a comparison's figures."""
    low, high = change.interval
    return (
        f"{change.difference * 100:+.1f} points ({low * 100:+.1f} to {high * 100:+.1f}, p = {change.p:.3f}), "
        f"{len(change.won)} questions won, {len(change.lost)} lost"
    )


def _bottleneck(run: Run) -> str:
    ten, pool, deep = (run.recall[str(k)] for k in (10, POOL_K, DEEP_K))
    figures = f"{run.mode}: recall {_percent(ten)} at 10, {_percent(pool)} at {POOL_K}, {_percent(deep)} at {DEEP_K}"
    if 1 - pool >= LOST and 1 - pool >= pool - ten:
        return (
            f"{figures}. Recall is the bottleneck: {_percent(1 - pool)} never comes among {POOL_K}; look at what is "
            "indexed: parsing, cutting, the text around a chunk."
        )
    if pool - ten >= LOW:
        return (
            f"{figures}. Order is the bottleneck: {_percent(pool - ten)} comes and stands below ten; a reranker can "
            "mend it."
        )
    return f"{figures}. Neither recall nor order loses much on this set."


def _fusion(modes: dict[str, Run], found: dict[str, Any]) -> list[str]:
    lines = [
        f"At {found['k']} hits the vectors alone answer {len(found['dense_only'])} questions that BM25 misses, and "
        f"BM25 alone {len(found['bm25_only'])} that the vectors miss; {len(found['neither'])} are answered by neither. "
        f"The better channel of each question would reach {_percent(found['best_of_both'])}."
    ]
    hybrid = modes["hybrid"]
    for mode in ("dense", "bm25"):
        against = compare(modes[mode].recalls(CHANNEL_K), hybrid.recalls(CHANNEL_K))
        lines.append(f"Hybrid is {verdict_of(against)} {mode} at {CHANNEL_K}: {figures_in_words(against)}.")
    return lines


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"
