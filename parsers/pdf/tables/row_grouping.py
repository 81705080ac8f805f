"""Group printed rows into table rows.

Invariants:
- A group is a run of consecutive printed rows, and every printed row is in one group.
- Without evidence, each printed row is a row of the table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from parsers.header_rows import is_figure

_PADDED: Final = 1.2  # least ratio of a step between table rows to a step between the lines of a cell

Cells = Sequence[str]


def grouped(bases: Sequence[float], cells: Sequence[Cells]) -> list[int]:
    """Return the number of the table row of each printed row, from 0.

    Args:
        bases: baseline heights of the printed rows, downwards.
        cells: texts of the cells of each printed row.
    """
    for group in (_by_steps, _by_text_column, _by_first_column):
        found = group(bases, cells)
        if found is not None:
            return found
    return list(range(len(bases)))


def _by_steps(bases: Sequence[float], cells: Sequence[Cells]) -> list[int] | None:
    """Group by the step before each row; None without evidence.

    Evidence: there are two sizes of step, and every row after a small step leaves a used cell empty.
    """
    steps = [below - above for above, below in pairwise(bases)]
    if not steps or max(steps) < _PADDED * min(steps):
        return None
    near = [False, *(step < _PADDED * min(steps) for step in steps)]
    used = [column for column in range(len(cells[0])) if any(row[column] for row in cells)]
    if not all(any(not cells[index][column] for column in used) for index, close in enumerate(near) if close):
        return None
    return _numbered(not close for close in near)


def _by_text_column(bases: Sequence[float], cells: Sequence[Cells]) -> list[int] | None:
    """Group by the steps between the lines of one text column; None without evidence.

    Evidence: its lines have two sizes of step. Short cells are beside them at any height.
    """
    alone = {texts.index(next(filter(None, texts))) for texts in cells if sum(map(bool, texts)) == 1}
    for column in sorted(alone):
        lines = [index for index, texts in enumerate(cells) if texts[column]]
        steps = [bases[below] - bases[above] for above, below in pairwise(lines)]
        if not steps or max(steps) < _PADDED * min(steps):
            continue
        starts = {
            lines[0],
            *(line for line, step in zip(lines[1:], steps, strict=True) if step >= _PADDED * min(steps)),
        }
        groups = _numbered(index in starts for index in range(len(bases)))
        _attach(groups, bases, lines)
        keys = [other for other in range(len(cells[0])) if other not in alone]
        if _at_most_one(groups, cells, keys) and all(_filled(groups, cells, keys)):
            return groups
    return None


def _attach(groups: list[int], bases: Sequence[float], lines: Sequence[int]) -> None:
    """Assign each printed row without a line in the text column to the nearest group."""
    for index in range(len(groups)):
        place = bisect_left(lines, index)
        if place < len(lines) and lines[place] == index:
            continue
        near = [lines[at] for at in (place - 1, place) if 0 <= at < len(lines)]
        groups[index] = groups[min(near, key=lambda line: abs(bases[line] - bases[index]))]


def _by_first_column(bases: Sequence[float], cells: Sequence[Cells]) -> list[int] | None:
    """Group by the first column: a row begins where it is filled; None without evidence.

    Evidence: every other printed row only continues filled cells, and not with figures.
    """
    groups = _numbered(bool(texts[0]) for texts in cells)
    if not cells[0][0] or len(set(groups)) == len(groups):
        return None
    for index, texts in enumerate(cells):
        if texts[0]:
            continue
        above = cells[index - 1]
        goes_on = [column for column, text in enumerate(texts) if text]
        if len(goes_on) > len(texts) / 2 and len(goes_on) > 1:
            return None
        if any(not above[column] or is_figure(texts[column]) for column in goes_on):
            return None
    return groups


def _numbered(starts: Iterable[bool]) -> list[int]:
    groups: list[int] = []
    for begins in starts:
        groups.append(groups[-1] + int(begins) if groups else 0)
    return groups


def _at_most_one(groups: Sequence[int], cells: Sequence[Cells], columns: Sequence[int]) -> bool:
    """Return whether each group has at most one figure in each column."""
    seen: set[tuple[int, int]] = set()
    for group, texts in zip(groups, cells, strict=True):
        for column in columns:
            if texts[column] and is_figure(texts[column]):
                if (group, column) in seen:
                    return False
                seen.add((group, column))
    return True


def _filled(groups: Sequence[int], cells: Sequence[Cells], columns: Sequence[int]) -> list[bool]:
    """Return, for each group, whether any of the columns is filled in it."""
    found = [False] * (max(groups) + 1)
    for group, texts in zip(groups, cells, strict=True):
        found[group] |= any(texts[column] for column in columns)
    return found
