"""Find the tables of a PDF without ruled columns, by the free strips between columns.

Invariants:
- Each row of a table leaves the same strips free, except for top rows that head several columns.
- A bulleted or numbered list is not a table, nor is code.
- A run of rows is searched once. Where it is a list, its rows are not tried again.
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from parsers.pdf.layout.baselines import Baseline, is_clause, is_marker, is_mono, segments
from parsers.pdf.layout.words import Word

CELL_GAP: Final = 0.9  # of the font size: the narrowest gap between the cells of a row
_STRETCHED: Final = 1.6  # font sizes: the widest space of a justified line
_EVEN: Final = 0.4  # of the widest space: the narrowest space of a justified line
_NARROWEST: Final = 0.5  # of the font size: the least width of a strip that all rows leave free
_FAR: Final = 3.0  # font sizes: the largest step between rows of a table
_NEAR: Final = 1.6  # font sizes: the largest step before a printed row in the first column alone
_SURE_ROWS: Final = 4  # rows: a strip that as many leave free separates columns, even with no wide gap
_LIST_PARTS: Final = 2  # parts of a line in a list: its mark and its text
_PROSE_WORDS: Final = 4  # least average number of words on a line after the number of a paragraph
_HEADS: Final = 2  # most rows at the top that head several columns

Strip = tuple[float, float]


class Aligned(NamedTuple):
    """A table without ruled columns.

    Attributes:
        end: index after its last row; without a table, after the rows that are not one.
        strips: the free strips between its columns, from left to right; empty without a table.
        heads: number of rows at its top that head several columns and do not leave all strips free.
    """

    end: int
    strips: list[Strip]
    heads: int = 0


def find_table(region: Sequence[Baseline], first: int) -> Aligned:
    """Return the table that begins at a row."""
    strips = [] if is_mono(region[first]) else free_strips(region[first])
    last = end = first + 1
    while strips and end < len(region) and not is_mono(region[end]):
        step = region[end].base - region[end - 1].base
        narrowed = _common(strips, region[end])
        if len(narrowed) < len(strips) or step > _FAR * region[end].size:
            break
        alone = len(segments(region[end], CELL_GAP)) == 1
        before = region[end].x0 < strips[0][0]
        if alone and ((before and step > _NEAR * region[end].size) or region[end].size > 1.1 * region[first].size):
            break
        strips, end = narrowed, end + 1
        if not alone or not before:
            last = end
    full = sum(len(segments(row, CELL_GAP)) > 1 for row in region[first:last])
    if full < 2 or (full == 2 and len(strips) < 2):
        return Aligned(first + 1, [])
    if _is_list(region[first:last], strips):
        wide = (index for index in range(first + 1, last) if len(segments(region[index], CELL_GAP)) > _LIST_PARTS)
        return Aligned(next(wide, last), [])
    return Aligned(last, *_refined(region[first:last], strips))


def _refined(band: Sequence[Baseline], strips: list[Strip]) -> tuple[list[Strip], int]:
    """Return the refined strips and the number of top rows across them.

    Many rows together show further strips.
    """
    best, heads = strips, 0
    for skipped in range(_HEADS + 1):
        body = band[skipped:]
        if len(body) < _SURE_ROWS:
            break
        found = _projected(body)
        if len(found) > len(best):
            best, heads = found, skipped
    return best, heads


def _projected(body: Sequence[Baseline]) -> list[Strip]:
    """Return the strips that no word of any row touches."""
    spans = sorted((word.x0, word.x1) for row in body for word in row.words)
    room = _NARROWEST * statistics.median(row.size for row in body)
    found: list[Strip] = []
    edge = spans[0][1]
    for low, high in spans:
        if low - edge >= room:
            found.append((edge, low))
        edge = max(edge, high)
    return found


def cell_words(row: Baseline, strips: Sequence[Strip], head: bool = False) -> list[list[Word]]:
    """Return a row's words by column.

    Args:
        row: the row.
        strips: the free strips of its table.
        head: whether it may head several columns; a run of words is then in the column where it begins.
    """
    edges = [(low + high) / 2 for low, high in strips]
    cells: list[list[Word]] = [[] for _ in range(len(edges) + 1)]
    for part in segments(row, CELL_GAP) if head else [[word] for word in row.words]:
        cells[bisect_left(edges, part[0].x0)].extend(part)
    return cells


def _is_list(region: Sequence[Baseline], strips: Sequence[Strip]) -> bool:
    """Return whether only bullets, item numbers or paragraph numbers precede the first strip."""
    marks = [[word for word in row.words if word.x1 <= strips[0][0] + 0.5] for row in region]
    if any(len(words) > 1 for words in marks):
        return False
    texts = [words[0].text for words in marks if words]
    return all(is_marker(text) for text in texts) or (len(strips) == 1 and _are_clauses(region, texts, strips[0]))


def _are_clauses(region: Sequence[Baseline], texts: Sequence[str], strip: Strip) -> bool:
    """Return whether the texts are ascending numbers before prose."""
    if not all(is_clause(text) for text in texts):
        return False
    numbers = [[int(part) for part in re.findall(r"\d+", text)] for text in texts]
    words = [sum(word.x0 >= strip[1] - 0.5 for word in row.words) for row in region]
    return all(a < b for a, b in pairwise(numbers)) and statistics.mean(words) >= _PROSE_WORDS


def free_strips(row: Baseline) -> list[Strip]:
    """Return the gaps of a row that are at least as wide as between cells."""
    gaps = [right.x0 - left.x1 for left, right in pairwise(row.words)]
    if len(gaps) > 2 and max(gaps) < _STRETCHED * row.size and min(gaps) > _EVEN * max(gaps):
        return []  # a line of prose whose spaces are stretched to fill it
    parts = segments(row, CELL_GAP)
    return [(a[-1].x1, b[0].x0) for a, b in pairwise(parts)]


def _common(strips: Sequence[Strip], row: Baseline) -> list[Strip]:
    """Return the parts of the strips that a row leaves free."""
    kept = []
    starts = [word.x0 for word in row.words]
    ends: list[float] = []
    for word in row.words:
        ends.append(max(word.x1, ends[-1] if ends else float("-inf")))
    for low, high in strips:
        # the gaps that overlap the strip: before each word that begins in it, and after the last word before it
        index = bisect_left(starts, low)
        best = (low, low)
        while index <= len(starts):
            left = max(ends[index - 1] if index else float("-inf"), low)
            right = min(starts[index] if index < len(starts) else float("inf"), high)
            if right - left > best[1] - best[0]:
                best = left, right
            if index == len(starts) or starts[index] >= high:
                break
            index += 1
        if best[1] - best[0] >= _NARROWEST * row.size:
            kept.append(best)
    return kept
