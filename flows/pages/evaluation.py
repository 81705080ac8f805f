"""The report of an evaluation as a page that is read in a browser, kept beside others and sent to others.

Kept by ``flows/pages/page.py``: the page fetches nothing and runs no script, and nothing that it shows becomes markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flows.pages import charts as charts
from flows.pages.page import render
from indexes.evaluation.reading import verdict
from indexes.evaluation.record import Group, Record, Run

LADDER: Final = (1, 5, 10, 20, 50, 100)  # depths of the table of all runs
_PARTS: Final = (5, 10, 20)  # depths of the tables by category and kind
MAIN: Final = 10  # depth of intervals, bars and deltas
NAMED: Final = 20  # questions named in a comparison
_LISTED: Final = 100  # questions named of a channel
_PREVIEW: Final = 400  # characters of a text that stand outside its <details>
LONG: Final = 220  # characters from which a text has one


def evaluation_page(record: Record, comparison: Mapping[str, Any] | None = None, against: str = "") -> str:
    """Return the page of a record.

    Args:
        comparison: as :func:`indexes.evaluation.record.compare_records` gives it; None where nothing was compared.
        against: id of the record that it is compared with.

    Returns:
        HTML that can be written as UTF-8; a letter that cannot is U+FFFD.
    """
    values = {
        "record": record,
        "stale": _ids(record.golden.get("stale")),
        "unanswerable": _count(record.golden.get("unanswerable")),
        "questions": {one.id: one.question for one in record.questions},
        "comparison": _comparison(comparison),
        "against": against,
        **_first_variant(record),
        **_ladder(record.runs),
        "channels": _channels(record.channels),
        "lengths": _lengths(record.lengths),
        "main_k": MAIN,
        "named": NAMED,
        "listed": _LISTED,
        "preview": _PREVIEW,
        "long": LONG,
    }
    return render("evaluation", values, {"share": _share, "signed": _signed, "p": _p})


def _first_variant(record: Record) -> dict[str, Any]:
    """Return the curves and the tables of parts: of the variant that was run first, a run a mode."""
    runs = _by_mode([run for run in record.runs if run.variant == record.runs[0].variant])
    modes = [run.mode for run in runs]
    return {
        "first": runs,
        "depths": sorted({int(k) for run in runs for k in run.recall}),
        "curves": charts.curves(runs) if runs else "",
        "legend": [(mode, charts.swatch(charts.style(mode, modes))) for mode in modes]
        + [("by midpoint", charts.cover("solid")), ("by full cover", charts.cover("full"))],
        "parts_at": _PARTS,
        "parts": [
            ("category", "Questions by category", _parts(runs, [run.by_category for run in runs])),
            ("kind", "Questions by kind", _parts(runs, [run.by_kind for run in runs])),
        ],
    }


def _by_mode(runs: Sequence[Run]) -> list[Run]:
    modes = charts.in_order([run.mode for run in runs])
    return sorted(runs, key=lambda run: modes.index(run.mode))


def _parts(runs: Sequence[Run], groups: Sequence[Mapping[str, Group]]) -> list[dict[str, Any]]:
    """Return a row a group after one of all questions: what each mode finds of it, and how far that is from all."""
    names = sorted({name for own in groups for name in own})
    everything = [Group(run.n, run.recall) for run in runs]
    rows = [{"name": "all questions", "n": runs[0].n, "cells": _cells(runs, everything)}] if runs else []
    for name in names:
        own = [group.get(name) for group in groups]
        rows.append({"name": name, "n": next(one.n for one in own if one), "cells": _cells(runs, own)})
    return rows


def _cells(runs: Sequence[Run], groups: Sequence[Group | None]) -> list[dict[str, Any]]:
    """Return the values of a row for each mode."""
    modes = [run.mode for run in runs]
    cells = []
    for run, group in zip(runs, groups, strict=True):
        values = [group.recall.get(str(k)) if group else None for k in _PARTS]
        at, mean = values[_PARTS.index(MAIN)], run.recall.get(str(MAIN))
        known = at is not None and mean is not None
        cells.append(
            {
                "values": values,
                "delta": at - mean if at is not None and mean is not None else None,
                "bar": charts.bar(at or 0.0, charts.style(run.mode, modes), mean) if known else "",
            }
        )
    return cells


def _ladder(runs: Sequence[Run]) -> dict[str, Any]:
    """Return all runs by variant and mode, with the best figures of each column marked."""
    others = [f"full@{MAIN}", "MRR", "nDCG@10", "IoU@5"]
    separated = any(run.separation is not None for run in runs)
    if separated:
        others.append("separation")
    figures = {(run.variant, run.mode): _figures(run, separated) for run in runs}
    best = [_best(column) for column in zip(*figures.values(), strict=True)]
    variants = {}
    for variant in dict.fromkeys(run.variant for run in runs):
        variants[variant] = [
            {
                "run": run,
                "interval": run.intervals.get(str(MAIN)),
                "values": [
                    (value, value is not None and round(value, 3) == top)
                    for value, top in zip(figures[variant, run.mode], best, strict=True)
                ],
            }
            for run in _by_mode([run for run in runs if run.variant == variant])
        ]
    several = len(variants) > 1
    return {
        "ladder": LADDER,
        "others": others,
        "variants": variants,
        "by_variant": charts.by_variant(runs, MAIN) if several and all(str(MAIN) in run.recall for run in runs) else "",
    }


def _figures(run: Run, separated: bool) -> list[float | None]:
    figures = [run.recall.get(str(k)) for k in LADDER] + [run.full_recall.get(str(MAIN)), run.mrr, run.ndcg, run.iou]
    return [*figures, run.separation] if separated else figures


def _best(column: Sequence[float | None]) -> float | None:
    """Return the highest figure as it is printed; None where no two differ."""
    shown = {round(value, 3) for value in column if value is not None}
    return max(shown) if len(shown) > 1 else None


def _comparison(comparison: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    if comparison is None:
        return None
    rows = []
    for name, one in comparison.items():
        low, high = one["interval"]
        rows.append(
            {"name": name, "low": low, "high": high, "verdict": verdict(one["p"], one["difference"], one["n"]), **one}
        )
    return rows


def _channels(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answers of each channel, as titles with ids; None where there is one channel."""
    if not found:
        return None
    titles = {
        "dense_only": "The vectors alone answer",
        "bm25_only": "BM25 alone answers",
        "neither": "Neither answers wholly",
    }
    return {
        "k": found["k"],
        "best_of_both": found["best_of_both"],
        "lists": [(title, found[name]) for name, title in titles.items()],
    }


def _lengths(lengths: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a row a step, from the shortest chunks to the longest."""
    most = max(lengths.values(), default=0) or 1
    rows = []
    low = 0
    for high in sorted(map(int, lengths)):
        count = lengths[str(high)]
        rows.append({"low": low, "high": high, "count": count, "bar": charts.bar(count / most)})
        low = high + 1
    return rows


def _ids(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, Iterable) and not isinstance(value, str) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) else len(_ids(value))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    """With its sign, a real minus; nothing that rounds to nothing has one."""
    if value is None:
        return "–"
    text = f"{value:+.3f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
