"""Tables of a PDF, by the free strips between their columns.

Kept here: each row of a table leaves the same strips free, wider than the spaces between words; a list with its
bullets or numbers, and code, are no tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from parsers.pdf_rows import Row, is_marker, is_mono, segments

CELL_GAP: Final = 0.9  # of the font size: the narrowest gap between the cells of a table
_STRETCHED: Final = 1.6  # font sizes: no space of a justified line is wider
_EVEN: Final = 0.4  # of the widest: the narrowest space of such a line
_NARROWEST: Final = 0.5  # of the font size: what the gaps of all its rows leave in common, at least
_FAR: Final = 3.0  # font sizes: a table has no rows further apart
_NEAR: Final = 1.6  # font sizes: a row of print that goes on with a cell is no further down
_PADDED: Final = 1.2  # a step between rows that is this much larger than one between the lines of a cell

Strip = tuple[float, float]


def find_table(region: Sequence[Row], first: int) -> tuple[int, list[Strip]]:
    """Where the table that begins at a row ends, and the free strips between its columns.

    Returns:
        The index behind its last row, and its strips from left to right; no strips where no table begins, and the
        index of the next row.
    """
    strips = [] if is_mono(region[first]) else _free(region[first])
    last = end = first + 1
    while strips and end < len(region) and not is_mono(region[end]):
        step = region[end].base - region[end - 1].base
        narrowed = _common(strips, region[end])
        if len(narrowed) < len(strips) or step > _FAR * region[end].size:
            break
        alone = len(segments(region[end], CELL_GAP)) == 1
        if alone and (step > _NEAR * region[end].size or region[end].size > 1.1 * region[first].size):
            break
        strips, end = narrowed, end + 1
        if not alone or region[end - 1].x0 >= strips[0][0]:
            last = end
    full = sum(len(segments(row, CELL_GAP)) > 1 for row in region[first:last])
    if full < 2 or (full == 2 and len(strips) < 2):
        return first + 1, []
    if _is_list(region[first:last], strips[0]):
        return last, []
    return last, strips


def continuations(region: Sequence[Row], cells: Sequence[Sequence[str]]) -> list[bool]:
    """For each row of print, whether it goes on with the cells of the row above it.

    It does where rows come at two steps, and all those that come at the smaller one leave a cell empty.
    """
    none = [False] * len(region)
    steps = [below.base - above.base for above, below in pairwise(region)]
    if not steps or max(steps) < _PADDED * min(steps):
        return none
    near = [False, *(step < _PADDED * min(steps) for step in steps)]
    partial = [not all(texts) for texts in cells]
    if all(partial[index] for index, close in enumerate(near) if close):
        return near
    return none


def _is_list(region: Sequence[Row], strip: Strip) -> bool:
    """Whether what stands left of the first strip are bullets or numbers of items."""
    marks = [[word for word in row.words if word.x1 <= strip[0] + 0.5] for row in region]
    return all(len(words) <= 1 and (not words or is_marker(words[0].text)) for words in marks)


def _free(row: Row) -> list[Strip]:
    gaps = [right.x0 - left.x1 for left, right in pairwise(row.words)]
    if len(gaps) > 2 and max(gaps) < _STRETCHED * row.size and min(gaps) > _EVEN * max(gaps):
        return []  # a line of prose whose spaces are stretched to fill it
    parts = segments(row, CELL_GAP)
    return [(a[-1].x1, b[0].x0) for a, b in pairwise(parts)]


def _common(strips: Sequence[Strip], row: Row) -> list[Strip]:
    """The strips as far as a row leaves them free."""
    gaps: list[Strip] = []
    edge = float("-inf")
    for word in row.words:
        gaps.append((edge, word.x0))
        edge = max(edge, word.x1)
    gaps.append((edge, float("inf")))
    kept = []
    for low, high in strips:
        left, right = max(((max(a, low), min(b, high)) for a, b in gaps), key=lambda strip: strip[1] - strip[0])
        if right - left >= _NARROWEST * row.size:
            kept.append((left, right))
    return kept
