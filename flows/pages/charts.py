"""The charts of an evaluation's page, drawn as SVG elements of that page.

Drawn here and by no chart library: those draw with scripts or make pictures, and the page allows neither.

Invariants:
- All text and every attribute is escaped.
- Colours stand in the page's style sheet by class, so that they follow the reader's light or dark mode.
- Nothing is told by colour alone.
- The same figures give the same bytes.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from indexes.evaluation.record import Run

STYLES: Final = 5  # colours and markers there are; further modes begin again
_MODES: Final = ("hybrid", "dense", "bm25")  # in this order, whatever was run first
_WIDE: Final = 720
_NARROW: Final = 350
_LINE: Final = 16  # between labels, so that they do not touch
_DODGE: Final = 5  # between the curves of two modes, so that their whiskers are told apart


class _Box(NamedTuple):
    """The plotting area within a picture."""

    left: float
    top: float
    right: float
    bottom: float


def in_order(modes: Sequence[str]) -> list[str]:
    """Return the modes once each, the known ones first; a mode's place here is its style."""
    others = [mode for mode in dict.fromkeys(modes) if mode not in _MODES]
    return [mode for mode in _MODES if mode in modes] + others


def style(mode: str, modes: Sequence[str]) -> int:
    """Return the number of a mode's colour and marker: always the same for a known mode."""
    if mode in _MODES:
        return _MODES.index(mode)
    return (len(_MODES) + [one for one in modes if one not in _MODES].index(mode)) % STYLES


def curves(runs: Sequence[Run]) -> Markup:
    """Recall by depth of some runs, one a mode: by midpoint solid, by full cover dashed, whiskers for the intervals."""
    names = ", ".join(run.mode for run in runs)
    return _both(lambda width: _curves(runs, width), f"Recall by number of hits looked at: {names}")


def by_variant(runs: Sequence[Run], k: int) -> Markup:
    """Recall at a depth of every run: a row a variant, under the name of each mode."""
    return _both(lambda width: _dots(runs, k, width), f"Recall at {k} by mode and variant, with 95 % intervals")


def bar(share: float, number: int | None = None, tick: float | None = None) -> Markup:
    """Return a bar as wide as its cell would be at 1, with a tick to compare it with."""
    parts = [_tag("rect", class_="track", width="100%", height="100%")]
    drawn = "bar" if number is None else f"bar fill{number}"
    parts.append(_tag("rect", class_=drawn, width=f"{100 * min(max(share, 0.0), 1.0):.1f}%", height="100%"))
    if tick is not None:
        at = f"{100 * min(max(tick, 0.0), 1.0):.1f}%"
        parts.append(_tag("line", class_="tick", x1=at, x2=at, y1=-3, y2=11))
    return _tag("svg", Markup().join(parts), class_="cell", height=8, aria_hidden="true")


def swatch(number: int) -> Markup:
    """Return the line style of a mode, for the legend."""
    line = _tag("line", class_=f"curve line{number}", x1=1, x2=27, y1=7, y2=7)
    return _tag("svg", line + _marker(number, 14, 7), class_="swatch", width=28, height=14, aria_hidden="true")


def cover(drawn: str) -> Markup:
    """Return the line style of a cover, ``solid`` or ``full``, for the legend."""
    line = _tag("line", class_=f"curve {drawn} plain", x1=1, x2=27, y1=7, y2=7)
    return _tag("svg", line, class_="swatch", width=28, height=14, aria_hidden="true")


def _both(draw: Callable[[int], Markup], label: str) -> Markup:
    """Return the picture for wide and for narrow windows; the style sheet shows one, with letters of the same size."""
    pictures = []
    for name, width in (("wide", _WIDE), ("narrow", _NARROW)):
        pictures.append(_tag("div", draw(width), class_=f"chart {name}", role="img", aria_label=label))
    return Markup().join(pictures)


def _picture(parts: Sequence[Markup], width: float, height: float) -> Markup:
    return _tag("svg", Markup().join(parts), viewBox=f"0 0 {_value(width)} {_value(height)}", aria_hidden="true")


def _curves(runs: Sequence[Run], width: int) -> Markup:
    height = 400 if width == _WIDE else 320
    box = _Box(34, 10, width - 78, height - 42)
    depths = sorted({int(k) for run in runs for k in run.recall}) or [1]
    modes = in_order([run.mode for run in runs])

    def across(k: int, shift: float = 0.0) -> float:
        steps = math.log(depths[-1] / depths[0]) or 1.0
        return box.left + 12 + (box.right - box.left - 24) * math.log(k / depths[0]) / steps + shift

    marked = sorted({int(k) for run in runs for k in run.intervals} | {depths[-1]})
    parts = _upright_axis(box) + [_across_tick(box, across(k), str(k)) for k in marked if depths[0] <= k <= depths[-1]]
    parts.append(_text((box.left + box.right) / 2, height - 6, "hits looked at", "axis middle"))
    for run in runs:
        shift = (modes.index(run.mode) - (len(modes) - 1) / 2) * _DODGE
        parts += _series(run, style(run.mode, modes), partial(across, shift=shift), box)
    return _picture(parts + _ends(runs, modes, box), width, height)


def _upright_axis(box: _Box) -> list[Markup]:
    """Return lines across and figures from 0 to 1."""
    parts = []
    for tenth in range(0, 11, 2):
        y = _upright(tenth / 10, box)
        drawn = "grid base" if tenth == 0 else "grid"
        parts.append(_tag("line", class_=drawn, x1=box.left, x2=box.right, y1=y, y2=y))
        parts.append(_text(box.left - 6, y + 4, f"{tenth / 10:.1f}", "axis end"))
    return parts


def _across_tick(box: _Box, x: float, label: str) -> Markup:
    line = _tag("line", class_="grid base", x1=x, x2=x, y1=box.bottom, y2=box.bottom + 4)
    return line + _text(x, box.bottom + 17, label, "axis middle")


def _series(run: Run, number: int, across: Callable[[int], float], box: _Box) -> list[Markup]:
    """Return both curves of a run; a mark says its figures when it is pointed at."""
    full = _points(run.full_recall, across, box)
    parts = [_tag("polyline", class_=f"curve full line{number}", points=full)]
    for k in sorted(map(int, run.intervals)):
        low, high = run.intervals[str(k)]
        parts.append(_whisker(number, across(k), _upright(low, box), _upright(high, box)))
    parts.append(_tag("polyline", class_=f"curve line{number}", points=_points(run.recall, across, box)))
    for k in sorted(map(int, run.intervals)):
        figures = (
            f"{run.mode} at {k}: {run.recall[str(k)]:.3f} by midpoint, {run.full_recall[str(k)]:.3f} by full cover"
        )
        marks = _marker(number, across(k), _upright(run.full_recall[str(k)], box), hollow=True)
        marks += _marker(number, across(k), _upright(run.recall[str(k)], box))
        parts.append(_tag("g", _tag("title", figures) + marks))
    return parts


def _ends(runs: Sequence[Run], modes: Sequence[str], box: _Box) -> list[Markup]:
    """Return the name of each mode where its curve ends, moved apart, with a line to the curve."""
    ends = [_upright(run.recall[max(run.recall, key=int)], box) for run in runs]
    parts = []
    for run, end, y in zip(runs, ends, _spread(ends, box.top, box.bottom), strict=True):
        number = style(run.mode, modes)
        path = f"{_value(box.right - 2)},{_value(end)} {_value(box.right + 10)},{_value(y)}"
        parts.append(_tag("polyline", class_=f"leader line{number}", points=path))
        parts.append(_text(box.right + 14, y + 4, _short(run.mode, 9), f"label ink{number}"))
    return parts


def _dots(runs: Sequence[Run], k: int, width: int) -> Markup:
    modes = in_order([run.mode for run in runs])
    variants = list(dict.fromkeys(run.variant for run in runs))
    letters = 26 if width == _WIDE else 15
    rows = sum(1 for run in runs if str(k) in run.recall) + len(modes)
    box = _Box(letters * 6.8 + 12, 4, width - 46, 4 + rows * 20 + 8)
    low, high = _range(runs, k)

    def across(share: float) -> float:
        return box.left + (box.right - box.left) * (share - low) / (high - low)

    parts = []
    for step in range(round(low * 10), round(high * 10) + 1):
        if width == _WIDE or high - low < 0.55 or step % 2 == 0:
            parts.append(
                _tag("line", class_="grid", x1=across(step / 10), x2=across(step / 10), y1=box.top, y2=box.bottom)
            )
            parts.append(_across_tick(box, across(step / 10), f"{step / 10:.1f}"))
    parts.append(_text((box.left + box.right) / 2, box.bottom + 36, f"recall at {k}", "axis middle"))
    y = box.top + 12
    for mode in modes:
        parts.append(_text(0, y + 4, _short(mode, letters), f"label ink{style(mode, modes)}"))
        y += 20
        for run in sorted((one for one in runs if one.mode == mode), key=lambda one: variants.index(one.variant)):
            if str(k) in run.recall:
                parts.append(_dot(run, k, style(mode, modes), y, across, letters))
                y += 20
    return _picture(parts, width, box.bottom + 42)


def _dot(run: Run, k: int, number: int, y: float, across: Callable[[float], float], letters: int) -> Markup:
    """Return a row: the variant's name, the interval as a line, the marker and its figure."""
    value = run.recall[str(k)]
    low, high = run.intervals.get(str(k), (value, value))
    lying = _tag("line", class_=f"whisker line{number}", x1=across(low), x2=across(high), y1=y, y2=y)
    for x in (across(low), across(high)):
        lying += _tag("line", class_=f"whisker line{number}", x1=x, x2=x, y1=y - 4, y2=y + 4)
    name = _text(10, y + 4, _short(run.variant, letters - 2), "axis")
    figure = _text(across(high) + 6, y + 4, f"{value:.3f}", "axis")
    title = _tag("title", f"{run.variant} {run.mode}: {value:.3f} ({low:.3f} to {high:.3f})")
    return _tag("g", title + name + lying + _marker(number, across(value), y) + figure)


def _range(runs: Sequence[Run], k: int) -> tuple[float, float]:
    """Between which tenths all intervals lie."""
    ends = [end for run in runs for end in (run.recall.get(str(k), 0.0), *run.intervals.get(str(k), ()))]
    low, high = math.floor(min(ends) * 10 + 1e-9) / 10, math.ceil(max(ends) * 10 - 1e-9) / 10
    return (low, high) if high - low >= 0.1 else (max(0.0, low - 0.1), min(1.0, low + 0.1))


def _upright(share: float, box: _Box) -> float:
    return box.bottom - (box.bottom - box.top) * min(max(share, 0.0), 1.0)


def _points(curve: Mapping[str, float], across: Callable[[int], float], box: _Box) -> str:
    return " ".join(f"{_value(across(k))},{_value(_upright(curve[str(k)], box))}" for k in sorted(map(int, curve)))


def _whisker(number: int, x: float, low: float, high: float) -> Markup:
    path = f"M{_value(x - 3)} {_value(low)}h6m-3 0V{_value(high)}m-3 0h6"
    return _tag("path", class_=f"whisker line{number}", d=path)


def _marker(number: int, x: float, y: float, *, hollow: bool = False) -> Markup:
    """Return a disc, a square, a triangle, a diamond or a flat bar."""
    drawn = f"mark hollow line{number}" if hollow else f"mark fill{number}"
    size = 3.0 if hollow else 4.0
    if number == 0:
        return _tag("circle", class_=drawn, cx=x, cy=y, r=size)
    shapes = {
        1: [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2: [(0, -1.2), (1.2, 0.9), (-1.2, 0.9)],
        3: [(0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)],
        4: [(-1.3, -0.45), (1.3, -0.45), (1.3, 0.45), (-1.3, 0.45)],
    }
    points = " ".join(f"{_value(x + dx * size)},{_value(y + dy * size)}" for dx, dy in shapes[number])
    return _tag("polygon", class_=drawn, points=points)


def _spread(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights at least a line apart, in the same order and near to the given ones."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + _LINE)
    limit = bottom
    for index in reversed(order):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LINE
    return [max(height, top) for height in placed]


def _short(name: str, letters: int) -> str:
    """Return a name cut to a width; a wide letter, as of Chinese, counts twice."""
    used = 0
    for index, letter in enumerate(name):
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > letters:
            return name[: max(index - 1, 1)] + "…"
    return name


def _text(x: float, y: float, text: str, drawn: str) -> Markup:
    return _tag("text", text, class_=drawn, x=x, y=y)


def _tag(name: str, content: str = "", **attributes: Any) -> Markup:
    """Return an element, escaped; content that is markup already is taken as it is."""
    given = Markup().join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value)) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, content)


def _value(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
