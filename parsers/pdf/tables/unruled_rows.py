"""Build the rows of a table without ruled columns.

Invariants:
- Every word of its printed rows is in one cell.
- Drawn lines between rows separate the rows. A drawn line below the first rows makes them header rows.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from parsers.header_rows import is_figure, names_columns
from parsers.pdf.layout.baselines import Baseline, is_marker
from parsers.pdf.layout.lines import Line, line_of, row_text, words_text
from parsers.pdf.layout.rules import Rule
from parsers.pdf.layout.words import Word
from parsers.pdf.tables.row_grouping import grouped
from parsers.pdf.tables.unruled import Aligned, cell_words

_PROSE_WORDS: Final = 4  # least average number of words in the filled cells of a column of prose
_WIDE: Final = 0.6  # least share of the table's width that the pieces of a line at one height cover
_SAME: Final = 2.5  # points: pieces nearer than this are one line
_HEADS: Final = 3  # most printed rows above the line below the header
_LINED: Final = 3  # lines between rows: with as many, each of them ends a row


def column_kind(cells: Sequence[Sequence[Word]]) -> str:
    """Return the kind of a column: ``prose``, ``marks`` of items, or ``cells`` of a table."""
    if not cells or all(len(cell) == 1 and is_marker(cell[0].text) for cell in cells):
        return "marks"
    return "prose" if statistics.mean(len(cell) for cell in cells) >= _PROSE_WORDS else "cells"


def table_lines(band: Sequence[Baseline], table: Aligned, turned: bool, rules: Sequence[Rule] = ()) -> list[Line]:
    """Return the rows of a table whose columns are separated by free strips.

    Args:
        band: its printed rows.
        table: its strips.
        turned: whether its first column is the rightmost one.
        rules: the page's rules in the same frame.
    """
    printed: list[tuple[str, ...]] = []
    for index, row in enumerate(band):
        cells = cell_words(row, table.strips, index < table.heads)
        texts = [words_text(words, row.size, turned) for words in cells]
        printed.append(tuple(reversed(texts)) if turned else tuple(texts))
    parts = _parted(band, _separators(band, rules))
    groups = _grouped(band, printed, parts, table.heads)
    edges = tuple((low + high) / 2 for low, high in table.strips)
    lines: list[Line] = []
    for index, (row, texts_of_row) in enumerate(zip(band, printed, strict=True)):
        line = line_of(row, texts_of_row, turned)
        if index and groups[index] == groups[index - 1]:
            above = lines[-1]
            above.cells = tuple(f"{old}\n{new}".strip("\n") for old, new in zip(above.cells, texts_of_row, strict=True))
            above.text = row_text(above.cells)
            above.x0, above.x1 = min(above.x0, line.x0), max(above.x1, line.x1)
            above.bold = above.bold and line.bold
        else:
            line.edges, line.mono = edges, False
            lines.append(line)
    _mark_header(lines, groups, parts, table.heads)
    return lines


def _separators(band: Sequence[Baseline], rules: Sequence[Rule]) -> list[float]:
    """Return the heights of lines between rows across most of the table."""
    left, right = min(row.x0 for row in band), max(row.x1 for row in band)
    pieces = sorted(
        (rule.at, min(rule.high, right) - max(rule.low, left))
        for rule in rules
        if rule.horizontal and band[0].base < rule.at < band[-1].base and rule.high > left and rule.low < right
    )
    found: list[float] = []
    covered: list[float] = []
    for at, length in pieces:
        if found and at - found[-1] <= _SAME:
            covered[-1] += length
        else:
            found.append(at)
            covered.append(length)
    return [at for at, length in zip(found, covered, strict=True) if length >= _WIDE * (right - left)]


def _parted(band: Sequence[Baseline], separators: Sequence[float]) -> list[int]:
    """Return the number of separators above each printed row."""
    return [bisect_left(separators, row.base) for row in band]


def _grouped(
    band: Sequence[Baseline], printed: Sequence[tuple[str, ...]], parts: Sequence[int], heads: int
) -> list[int]:
    """Return the number of the table row of each printed row."""
    if parts[-1] >= _LINED and not _too_full(printed, parts):
        return list(parts)
    groups: list[int] = []
    start = 0
    while start < len(band):
        end = start + 1 if start < heads else start
        while end < len(band) and parts[end] == parts[start] and start >= heads:
            end += 1
        first = groups[-1] + 1 if groups else 0
        found = grouped([row.base for row in band[start:end]], printed[start:end])
        groups.extend(first + group for group in found)
        start = end
    return groups


def _too_full(printed: Sequence[tuple[str, ...]], parts: Sequence[int]) -> bool:
    """Return whether two figures of one column are between the same lines.

    Then not every row has a line.
    """
    seen: set[tuple[int, int]] = set()
    for part, cells in zip(parts, printed, strict=True):
        for column, text in enumerate(cells):
            if text and is_figure(text):
                if (part, column) in seen:
                    return True
                seen.add((part, column))
    return False


def _mark_header(lines: Sequence[Line], groups: Sequence[int], parts: Sequence[int], heads: int) -> None:
    """Mark header rows, shown by a line below or cells over several columns."""
    above = [group for group, part in zip(groups, parts, strict=True) if part == 0]
    count = above[-1] + 1 if above and parts[-1] and len(above) <= _HEADS else 0
    count = count if count < len(lines) else 0
    if heads and count <= heads:
        rest = [[cell.replace("\n", " ") for cell in line.cells] for line in lines[heads:]]
        bold = lines[heads].bold and not all(line.bold for line in lines[heads:])
        count = heads + int(bold or names_columns(rest))
    if count and count < len(lines):
        for index, line in enumerate(lines):
            line.header = index < count
