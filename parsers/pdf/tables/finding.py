"""Extract the tables of a PDF page before its columns are searched.

Invariants:
- Every word is either left on the page or in one row of a table.
- A placeholder word as wide as the row replaces it on the page. Columns beside a table and text above and below it are
  found as if the row were one word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from parsers.pdf.layout.baselines import Baseline, rows
from parsers.pdf.layout.bidi import base_is_right_to_left
from parsers.pdf.layout.lines import Line
from parsers.pdf.layout.rules import Rule
from parsers.pdf.layout.words import Word
from parsers.pdf.tables.grid import grids
from parsers.pdf.tables.grid_rows import grid_table, inside
from parsers.pdf.tables.unruled import Aligned, cell_words, find_table
from parsers.pdf.tables.unruled_rows import column_kind, table_lines

_SURE_ROWS: Final = 3
_SURE_COLUMNS: Final = 3
_PADDED: Final = 1.1  # of the smallest step between lines: the step before a row of several lines is larger


class Tables(NamedTuple):
    """Page words with tables replaced by placeholders, and table rows by placeholder ``order``."""

    words: list[Word]
    rows: dict[int, Line]


def page_tables(words: Sequence[Word], rules: Sequence[Rule], first: int) -> Tables:
    """Extract the tables of a page.

    Args:
        words: the page's words in one direction of writing.
        rules: the page's rules in the upright frame of that direction.
        first: number of the first table.
    """
    found: dict[int, Line] = {}
    kept = _ruled(list(words), rules, first, found)
    number = max((line.table for line in found.values()), default=first - 1) + 1
    return Tables(_aligned(kept, rules, number, found), found)


def _ruled(words: list[Word], rules: Sequence[Rule], number: int, found: dict[int, Line]) -> list[Word]:
    """Extract the tables with ruled columns.

    A grid within another one is part of its cell.
    """
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
    """Set the table number of its rows, and yield a placeholder word for each."""
    for line in lines:
        line.table = number
        found[line.order] = line
        yield Word(line.text, line.x0, line.x1, line.base, line.size, line.bold, False, line.angle, line.order, True)


def _aligned(words: list[Word], rules: Sequence[Rule], number: int, found: dict[int, Line]) -> list[Word]:
    """Extract the tables without ruled columns that cannot be columns of prose or a list."""
    region = rows(words)
    taken: set[int] = set()
    marks: list[Word] = []
    position = 0
    while position < len(region):
        if any(word.order in found for word in region[position].words):
            position += 1
            continue
        table = find_table(region, position)
        end = next((i for i in range(position, table.end) if any(w.order in found for w in region[i].words)), table.end)
        band = region[position:end]
        if table.strips and is_sure(band, table):
            turned = base_is_right_to_left([word.text for row in band for word in row.words])
            lines = table_lines(band, table, turned, rules)
            taken.update(word.order for row in band for word in row.words)
            marks.extend(_marks(lines, number, found))
            number += 1
        position = end
    return [*(word for word in words if word.order not in taken), *marks]


def is_sure(band: Sequence[Baseline], table: Aligned) -> bool:
    """Return whether rows are certainly a table, whatever their place and drawing order."""
    body = band[table.heads :]
    columns = list(zip(*(cell_words(row, table.strips) for row in body), strict=True))
    if len(body) < _SURE_ROWS or len(columns) < _SURE_COLUMNS:
        return False
    kinds = [column_kind([cell for cell in column if cell]) for column in columns]
    labels = sum(a != "prose" and b == "prose" for a, b in pairwise(kinds))
    return kinds.count("cells") - labels >= 2 or (kinds[0] != "prose" and _is_of_records(body, columns))


def _is_of_records(body: Sequence[Baseline], columns: Sequence[Sequence[list[Word]]]) -> bool:
    """Return whether labels in the first column begin full rows, drawn in order."""
    starts = [index for index, cell in enumerate(columns[0]) if cell]
    if len(starts) < _SURE_ROWS or starts[0] or not all(column[index] for column in columns for index in starts):
        return False
    latest = -1
    for first, last in pairwise([*starts, len(body)]):
        orders = [word.order for row in body[first:last] for word in row.words]
        if min(orders) < latest:
            return False
        latest = max(orders)
    steps = [below.base - above.base for above, below in pairwise(body)]
    return all(steps[index - 1] > _PADDED * min(steps) for index in starts[1:])
