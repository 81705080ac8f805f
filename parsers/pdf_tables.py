"""The tables of a PDF page, taken out before its columns are looked for.

Invariants:
- Every word is left as it is or stands in one row of a table; in its place a mark as wide as the row stays behind,
  so that columns beside a table and text above and below it are found as if the row were one word.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from parsers.pdf_bidi import base_is_right_to_left
from parsers.pdf_grid import grids
from parsers.pdf_grid_rows import grid_table, inside
from parsers.pdf_lines import Line, line_of, row_text, words_text
from parsers.pdf_rows import Row, is_marker, rows
from parsers.pdf_rules import Rule
from parsers.pdf_table import Strip, continuations, find_table
from parsers.pdf_text import Word

_PROSE_WORDS: Final = 4  # words of a filled cell, on average, from which a column holds prose
_SURE_ROWS: Final = 3
_SURE_COLUMNS: Final = 3


class Tables(NamedTuple):
    """The words of a page without those of its tables, and the rows of these by the ``order`` of their marks."""

    words: list[Word]
    rows: dict[int, Line]


def page_tables(words: Sequence[Word], rules: Sequence[Rule], first: int) -> Tables:
    """Take the tables out of a page.

    Args:
        words: those of one direction of writing.
        rules: the page's lines in the upright frame of that direction.
        first: number of the first table.
    """
    found: dict[int, Line] = {}
    kept = _ruled(list(words), rules, first, found)
    number = max((line.table for line in found.values()), default=first - 1) + 1
    return Tables(_aligned(kept, number, found), found)


def _ruled(words: list[Word], rules: Sequence[Rule], number: int, found: dict[int, Line]) -> list[Word]:
    """Take out the tables whose columns are ruled; a grid within another one is part of its cell."""
    for grid in sorted(grids(rules), key=lambda grid: (grid.xs[0] - grid.xs[-1]) * (grid.ys[-1] - grid.ys[0])):
        members = [word for word in inside(grid, words) if word.order not in found]
        turned = base_is_right_to_left([word.text for word in members])
        lines, rest = grid_table(grid, members, turned) if members else ([], [])
        if not lines:
            continue
        taken = {word.order for word in members} - {word.order for word in rest}
        words = [word for word in words if word.order not in taken]
        words.extend(_marks(lines, number, found))
        number += 1
    return words


def _marks(lines: Sequence[Line], number: int, found: dict[int, Line]) -> Iterator[Word]:
    """Number the rows of a table, and put a mark in the place of each."""
    for line in lines:
        line.table = number
        found[line.order] = line
        yield Word(line.text, line.x0, line.x1, line.base, line.size, line.bold, False, line.angle, line.order, True)


def _aligned(words: list[Word], number: int, found: dict[int, Line]) -> list[Word]:
    """Take out the tables without ruled columns that are sure to be tables, not columns of prose or a list."""
    region = rows(words)
    taken: set[int] = set()
    marks: list[Word] = []
    position = 0
    while position < len(region):
        if any(word.order in found for word in region[position].words):
            position += 1
            continue
        end, strips = find_table(region, position)
        ready = next((i for i in range(position, end) if any(w.order in found for w in region[i].words)), end)
        band = region[position:ready]
        if strips and is_sure(band, strips):
            turned = base_is_right_to_left([word.text for row in band for word in row.words])
            lines = table_lines(band, strips, turned)
            taken.update(word.order for row in band for word in row.words)
            marks.extend(_marks(lines, number, found))
            number += 1
        position = ready
    return [*(word for word in words if word.order not in taken), *marks]


def is_sure(band: Sequence[Row], strips: Sequence[Strip]) -> bool:
    """Whether rows are those of a table, wherever on the page they stand and in whatever order the file draws them."""
    columns = list(zip(*(cell_words(row, strips) for row in band), strict=True))
    if len(band) < _SURE_ROWS or len(columns) < _SURE_COLUMNS:
        return False
    kinds = [_column_kind([cell for cell in column if cell]) for column in columns]
    labels = sum(a != "prose" and b == "prose" for a, b in pairwise(kinds))
    return kinds.count("cells") - labels >= 2


def _column_kind(cells: Sequence[Sequence[Word]]) -> str:
    """``prose``, ``marks`` of items, or the ``cells`` of a table."""
    if not cells or all(len(cell) == 1 and is_marker(cell[0].text) for cell in cells):
        return "marks"
    return "prose" if statistics.mean(len(cell) for cell in cells) >= _PROSE_WORDS else "cells"


def cell_words(row: Row, strips: Sequence[Strip]) -> list[list[Word]]:
    """A row's words by the column of the table in which they begin."""
    edges = [(low + high) / 2 for low, high in strips]
    cells: list[list[Word]] = [[] for _ in range(len(edges) + 1)]
    for word in row.words:
        cells[bisect_left(edges, word.x0)].append(word)
    return cells


def table_lines(band: Sequence[Row], strips: Sequence[Strip], turned: bool) -> list[Line]:
    """The rows of a table between free strips; one whose cells have several lines is made of as many rows of print."""
    printed = []
    for row in band:
        texts = [words_text(words, row.size, turned) for words in cell_words(row, strips)]
        printed.append(tuple(reversed(texts)) if turned else tuple(texts))
    edges = tuple((low + high) / 2 for low, high in strips)
    lines: list[Line] = []
    for goes_on, row, cells in zip(continuations(band, printed), band, printed, strict=True):
        line = line_of(row, cells, turned)
        if goes_on and lines:
            above = lines[-1]
            above.cells = tuple(f"{old}\n{new}".strip() for old, new in zip(above.cells, cells, strict=True))
            above.text = row_text(above.cells)
            above.x0, above.x1 = min(above.x0, line.x0), max(above.x1, line.x1)
        else:
            line.edges = edges
            lines.append(line)
    return lines
