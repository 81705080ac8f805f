"""Split a PDF page into columns, in reading order.

Invariants:
- Every word is in exactly one region.
- Columns are read one after the other, between the rows that cross them.
- Drawing order decides whether two blocks side by side are columns or a table. Where the file draws line by line across
  both, they are columns only if both look like prose.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from parsers.pdf.layout.baselines import Baseline, is_marker, rows, segments
from parsers.pdf.layout.bidi import base_is_right_to_left
from parsers.pdf.layout.words import Word
from parsers.pdf.tables.unruled import CELL_GAP

_COLUMN_GAP: Final = 0.6  # of the font size: the narrowest gutter; spaces of justified text are narrower on most lines
_DEPTH: Final = 12  # most levels of splitting of a page
_PROSE_WORDS: Final = 4  # least average number of words on a line, where the file draws across both columns
_PROSE_ROWS: Final = 5
_COLUMN_ROWS: Final = 4  # least number of rows below the right column that still belong to the left one
_PROSE_FILL: Final = 0.7  # of the widest line: the least median width of the lines of prose


def page_regions(words: list[Word], depth: int = 0) -> Iterator[list[Baseline]]:
    """Yield the columns and the regions between them in reading order, each as rows.

    Args:
        words: the words of a page, or of a part of it.
        depth: how many times the page has been split already.
    """
    region = rows(words)
    best: tuple[float, list[tuple[int, int]]] = (0.0, [])
    for cut in _gutters(region) if depth < _DEPTH else ():
        bands = _bands(region, cut)
        if _covered(bands) > _covered(best[1]):
            best = cut, bands
    if best[1]:
        yield from _split(region, *best, depth + 1)
    elif region:
        yield region


def _covered(bands: Sequence[tuple[int, int]]) -> int:
    return sum(last - first for first, last in bands)


def _split(region: list[Baseline], cut: float, bands: list[tuple[int, int]], depth: int) -> Iterator[list[Baseline]]:
    position = 0
    for first, last in bands:
        yield from page_regions(_words(region[position:first]), depth)
        band = _words(region[first:last])
        left = [word for word in band if word.x0 < cut - 0.5]
        right = [word for word in band if word.x0 >= cut - 0.5]
        sides = (right, left) if base_is_right_to_left([word.text for word in band]) else (left, right)
        for side in sides:
            yield from page_regions(side, depth)
        position = last
    yield from page_regions(_words(region[position:]), depth)


def _words(region: Sequence[Baseline]) -> list[Word]:
    return [word for row in region for word in row.words]


def _gutters(region: Sequence[Baseline]) -> list[float]:
    """Return possible left edges of columns, shared by several lines inside the region."""
    if len(region) < 2:
        return []
    left = min(row.x0 for row in region)
    starts: Counter[int] = Counter()
    exact: dict[int, float] = {}
    for row in region:
        for index, word in enumerate(row.words):
            gap = word.x0 - row.words[index - 1].x1 if index else word.size
            if index and _marks(row.words[index - 1], row.words[index - 2] if index > 1 else None):
                continue
            if gap >= _COLUMN_GAP * word.size and word.x0 > left + 2 * word.size:
                bucket = round(word.x0 / 2)
                starts[bucket] += 1
                exact[bucket] = min(exact.get(bucket, word.x0), word.x0)
    found = [(count + starts[bucket + 1] + starts[bucket - 1], bucket) for bucket, count in starts.items()]
    found = sorted((item for item in found if item[0] >= 2), key=lambda item: (-item[0], item[1]))
    return [min(exact.get(b, exact[bucket]) for b in (bucket - 1, bucket)) for _, bucket in found[:8]]


def _marks(word: Word, before: Word | None) -> bool:
    """Return whether a word marks an item, so that its text begins no column."""
    return is_marker(word.text) and (before is None or word.x0 - before.x1 >= _COLUMN_GAP * word.size)


def _bands(region: Sequence[Baseline], cut: float) -> list[tuple[int, int]]:
    """Return the ranges ``[first, last)`` of rows in two columns, either side of ``cut``."""
    accepted: list[tuple[int, int]] = []
    start = 0
    while start < len(region):
        if _crosses(region[start], cut):
            start += 1
            continue
        end = next((i for i in range(start, len(region)) if _crosses(region[i], cut)), len(region))
        for band in _stacked(region, cut, *_trimmed(region, cut, start, end)):
            if _is_columns(region[band[0] : band[1]], cut):
                accepted.append(band)
        start = end
    return accepted


def _crosses(row: Baseline, cut: float) -> bool:
    gap = _COLUMN_GAP * row.size
    return any(word.x0 < cut - 0.5 and word.x1 > cut - gap + 0.1 for word in row.words)


def _sides(row: Baseline, cut: float) -> tuple[list[Word], list[Word]]:
    return [w for w in row.words if w.x0 < cut - 0.5], [w for w in row.words if w.x0 >= cut - 0.5]


def _trimmed(region: Sequence[Baseline], cut: float, first: int, last: int) -> tuple[int, int, int]:
    """Trim a band of two columns.

    Rows at the end that are on the left alone, and that the file draws after the right column, are removed. They stay
    if they are as wide as the left column: text over the whole page would not break there. Headings in a larger font at
    the start, on the left alone, are removed too.

    Returns:
        The first row, the index after the last row, and the index from which rows may be below both columns.
    """
    right = [word.order for row in region[first:last] for word in _sides(row, cut)[1]]
    end = last
    while end > first and right:
        left_words, right_words = _sides(region[end - 1], cut)
        if right_words or min(word.order for word in left_words) < max(right):
            break
        end -= 1
    if last - end < _COLUMN_ROWS or not _is_as_wide(region[first:end], region[end:last], cut):
        last = end
    while first < last and right:
        left_words, right_words = _sides(region[first], cut)
        if right_words or not left_words or region[first].size < 1.15 * region[last - 1].size:
            break
        first += 1
    return first, last, end


def _is_as_wide(above: Sequence[Baseline], below: Sequence[Baseline], cut: float) -> bool:
    """Return whether the rows below fill the width of the left column above."""
    edges = [max(word.x1 for word in left) for left in (_sides(row, cut)[0] for row in above) if left]
    start = min((row.x0 for row in above), default=0.0)
    return bool(edges) and max(row.x1 for row in below) - start >= _PROSE_FILL * (max(edges) - start)


def _stacked(region: Sequence[Baseline], cut: float, first: int, last: int, end: int) -> Iterator[tuple[int, int]]:
    """Split a band before row ``end``, where everything above is drawn before anything below."""
    spans = [(min(w.order for w in row.words), max(w.order for w in row.words)) for row in region[first:last]]
    latest: list[int] = []
    for span in spans:
        latest.append(max(span[1], latest[-1] if latest else -1))
    earliest = [0] * len(spans)
    lowest = 1 << 60
    for index in range(len(spans) - 1, -1, -1):
        lowest = min(lowest, spans[index][0])
        earliest[index] = lowest
    start = first
    for index in range(1, min(end - first, len(spans))):
        if latest[index - 1] < earliest[index] and _alone(region[first + index], cut):
            yield start, first + index
            start = first + index
    yield start, last


def _alone(row: Baseline, cut: float) -> bool:
    """Return whether a row has no words on the right, like a short heading."""
    return not _sides(row, cut)[1]


def _is_columns(band: Sequence[Baseline], cut: float) -> bool:
    left = [words for words in (_sides(row, cut)[0] for row in band) if words]
    right = [words for words in (_sides(row, cut)[1] for row in band) if words]
    if len(left) < 2 or len(right) < 2:
        return False
    marked = sorted([(w.order, 0) for words in left for w in words] + [(w.order, 1) for words in right for w in words])
    changes = sum(a[1] != b[1] for a, b in pairwise(marked))
    if changes <= 1 + min(len(left), len(right)) // 10:
        return not _looks_tabular(band)
    return min(len(left), len(right)) >= _PROSE_ROWS and _is_prose(left) and _is_prose(right)


def _looks_tabular(band: Sequence[Baseline]) -> bool:
    """Return whether most rows have three or more short cells, though drawn column by column."""
    parted = [segments(row, CELL_GAP) for row in band]
    many = [parts for parts in parted if len(parts) >= 3]
    words = [len(part) for parts in many for part in parts]
    return len(many) >= 0.8 * len(band) and statistics.mean(words) <= 2.5


def _is_prose(side: Sequence[Sequence[Word]]) -> bool:
    widths = [words[-1].x1 - words[0].x0 for words in side]
    return statistics.mean(len(words) for words in side) >= _PROSE_WORDS and statistics.median(
        widths
    ) >= _PROSE_FILL * max(widths)
