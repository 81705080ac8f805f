"""Find the grids of drawn lines on a PDF page: tables with ruled columns.

Invariants:
- A grid has at least two columns. Each inner column edge has a drawn line; an outer side may be open.
- Lines are merged by sorting, and crossings are found by bisection, to avoid comparing all pairs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from parsers.pdf.layout.rules import Rule

_SAME: Final = 2.5  # points: lines nearer than this are one line
_GAP: Final = 3.5  # points: a wider gap ends a line, or separates it from a crossing line
_MOST: Final = 1_500  # merged lines of a direction; a page with more is a drawing
_OPEN: Final = 12.0  # points: lines that extend further beyond the outermost edge show an open outer column
_NARROWEST: Final = 4.0  # points: a narrower column or row is the space within a double line


class RuledGrid(msgspec.Struct):
    """A grid in the upright frame of a direction of writing.

    Attributes:
        xs: edges of its columns from left to right.
        ys: heights of its lines from top to bottom.
        walls: ``(row, column)`` of the cells that have a drawn line on their right.
        floors: ``(row, column)`` of the cells that have a drawn line below.
    """

    xs: list[float]
    ys: list[float]
    walls: set[tuple[int, int]]
    floors: set[tuple[int, int]]

    def spans_right(self, row: int, column: int) -> int:
        """Return the column after the last one that a cell covers."""
        end = column
        while end < len(self.xs) - 2 and (row, end) not in self.walls:
            end += 1
        return end + 1


def grids(rules: Sequence[Rule]) -> list[RuledGrid]:
    """Return the grids of a page from top to bottom.

    Args:
        rules: its rules in the upright frame of a direction of writing.
    """
    across = _merged([rule for rule in rules if rule.horizontal])
    down = _merged([rule for rule in rules if not rule.horizontal])
    if not (across and len(down) > 1) or max(len(across), len(down)) > _MOST:
        return []
    found = [_grid(*parts) for parts in _components(across, down)]
    return sorted((grid for grid in found if grid is not None), key=lambda grid: (grid.ys[0], grid.xs[0]))


def _merged(rules: list[Rule]) -> list[Rule]:
    """Return the rules with those on one line merged where they touch."""
    kept: list[Rule] = []
    for group in _clusters(sorted(rules, key=lambda rule: rule.at)):
        at = sorted(rule.at for rule in group)[len(group) // 2]
        low, high = None, 0.0
        for rule in sorted(group, key=lambda rule: rule.low):
            if low is None or rule.low > high + _GAP:
                if low is not None:
                    kept.append(Rule(rule.horizontal, at, low, high))
                low, high = rule.low, rule.high
            high = max(high, rule.high)
        if low is not None:
            kept.append(Rule(group[0].horizontal, at, low, high))
    return kept


def _clusters(rules: Sequence[Rule]) -> Iterator[list[Rule]]:
    group: list[Rule] = []
    for rule in rules:
        if group and rule.at - group[0].at > _SAME:
            yield group
            group = []
        group.append(rule)
    if group:
        yield group


def _components(across: list[Rule], down: list[Rule]) -> Iterator[tuple[list[Rule], list[Rule]]]:
    """Yield the groups of lines that are connected, directly or through others."""
    parent = list(range(len(across) + len(down)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    down.sort(key=lambda rule: rule.at)
    places = [rule.at for rule in down]
    for index, line in enumerate(across):
        first, last = bisect_left(places, line.low - _GAP), bisect_right(places, line.high + _GAP)
        for other in range(first, last):
            if down[other].low - _GAP <= line.at <= down[other].high + _GAP:
                parent[root(index)] = root(len(across) + other)
    groups: dict[int, tuple[list[Rule], list[Rule]]] = defaultdict(lambda: ([], []))
    for index, line in enumerate([*across, *down]):
        groups[root(index)][index >= len(across)].append(line)
    yield from groups.values()


def _grid(across: list[Rule], down: list[Rule]) -> RuledGrid | None:
    xs, ys = _edges([rule.at for rule in down]), _edges([rule.at for rule in across])
    xs, ys = _opened(xs, across), _opened(ys, down)
    if len(xs) < 3 or len(ys) < 2:
        return None
    walls: set[tuple[int, int]] = set()
    floors: set[tuple[int, int]] = set()
    for rule in down:
        column = _nearest(xs, rule.at) - 1
        walls.update((row, column) for row in _covered(ys, rule))
    for rule in across:
        row = _nearest(ys, rule.at) - 1
        floors.update((row, column) for column in _covered(xs, rule))
    return RuledGrid(xs, ys, walls, floors)


def _edges(places: Sequence[float]) -> list[float]:
    edges: list[float] = []
    for at in sorted(places):
        if not edges or at - edges[-1] > _NARROWEST:
            edges.append(at)
    return edges


def _opened(edges: list[float], crossing: Sequence[Rule]) -> list[float]:
    """Return the edges, plus open sides where two crossing lines end further out."""
    if len(crossing) < 2 or not edges:
        return edges
    low = sorted(rule.low for rule in crossing)[1]
    high = sorted(rule.high for rule in crossing)[-2]
    before = [low] if low < edges[0] - _OPEN else []
    after = [high] if high > edges[-1] + _OPEN else []
    return [*before, *edges, *after]


def _nearest(edges: Sequence[float], at: float) -> int:
    return max(bisect_right(edges, at + 0.01) - 1, 0)


def _covered(edges: Sequence[float], rule: Rule) -> Iterator[int]:
    """Yield the indexes of the intervals between edges whose middle a line covers."""
    first = max(bisect_left(edges, rule.low) - 1, 0)
    for index in range(first, len(edges) - 1):
        middle = (edges[index] + edges[index + 1]) / 2
        if middle > rule.high:
            return
        if middle >= rule.low:
            yield index
