"""Build the rows of a table with ruled columns.

Invariants:
- Every word inside a grid is in one cell: the one that contains its middle.
- Full-width title lines above the first row and notes below the last are returned, not part of the table.
- A drawn line ends a row. Between two drawn lines, several printed rows can be rows of the table: at least three of
  them fill every used column, or two do and a column holds only figures or the grid has at most two bands. Otherwise
  they are lines of its cells.
- A cell that covers several rows, with no drawn line inside, is repeated in each; over header rows it is in the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from parsers.header_rows import is_figure, names_columns
from parsers.pdf.layout.baselines import Baseline, rows
from parsers.pdf.layout.lines import Line, line_of, row_text, words_text
from parsers.pdf.layout.words import Word
from parsers.pdf.tables.grid import RuledGrid
from parsers.pdf.tables.row_grouping import grouped

_MIDDLE: Final = 0.3  # of the font size: from the baseline to the middle of a letter
_LAYOUT: Final = 8  # printed lines: with as many in two cells of one row, the grid may only lay out a page
_PROSE_WORDS: Final = 4
_EVEN: Final = 0.9  # of their lines: cells with a larger share of lines at the same heights are rows of a table
_MID_SENTENCE: Final = 0.4  # least share of the lines of running text that begin with a small letter
_NOTES: Final = 4  # a row of notes below a table fills at most one in this many of its columns
_HEADER_ROWS: Final = 4
_LEVEL: Final = 0.35  # of the font size: lines of two cells whose heights differ by less are at the same height
_ROWS: Final = 3  # printed rows that fill every used column: as many are always rows of the table

_Cell = list[Baseline]


class _TableRow(msgspec.Struct):
    """The printed lines of each cell in a row, and whether one covers several columns."""

    cells: list[_Cell]
    spans: bool = False

    def words(self) -> list[Word]:
        return [word for cell in self.cells for line in cell for word in line.words]

    def filled(self) -> list[int]:
        return [column for column, cell in enumerate(self.cells) if cell]


def inside(grid: RuledGrid, words: Sequence[Word]) -> list[Word]:
    """Return the words whose middle is inside a grid."""
    return [
        word
        for word in words
        if grid.xs[0] - 1 <= (word.x0 + word.x1) / 2 <= grid.xs[-1] + 1
        and grid.ys[0] <= word.base - _MIDDLE * word.size <= grid.ys[-1]
    ]


def grid_table(grid: RuledGrid, words: Sequence[Word], turned: bool) -> tuple[list[Line], list[Word]]:
    """Return the rows of a table and the other words in its grid.

    Args:
        grid: its drawn lines.
        words: the words inside the grid.
        turned: whether its first column is the rightmost one.

    Returns:
        The rows and the other words. There are no rows where the grid only lays out a page or frames one column.
    """
    bands = _bands(grid, words)
    if _lays_out(bands) or len({column for band in bands for column in band.filled()}) < 2:
        return [], list(words)
    _spread(grid, bands)
    parts = [part for part in (_rows(band, len(bands)) for band in bands) if part]
    found, rest = _without_titles([row for part in parts for row in part])
    if len(found) < 2:
        return [], list(words)
    header = _header_rows(found)
    if not header and len(parts) == 2 and len(parts[0]) == 1 and len(parts[1]) >= _ROWS and found[0] is parts[0][0]:
        header = 1
    for above, row in pairwise(found[:header]):
        _lower(above, row)
    edges = tuple(grid.xs[1:])
    seen: set[int] = set()
    lines = []
    for index, row in enumerate(found):
        fresh = [word.order for word in row.words() if word.order not in seen]
        seen.update(fresh)
        lines.append(_line(row, turned, index < header, edges))
        lines[-1].order = min(fresh)
    return lines, rest


def _bands(grid: RuledGrid, words: Sequence[Word]) -> list[_TableRow]:
    """Return the words between consecutive horizontal lines, by column and printed line."""
    count = len(grid.xs) - 1
    sorted_in: list[list[list[Word]]] = [[[] for _ in range(count)] for _ in grid.ys[1:]]
    spanning = [False] * len(sorted_in)
    for word in words:
        row = min(max(bisect_right(grid.ys, word.base - _MIDDLE * word.size) - 1, 0), len(sorted_in) - 1)
        column = min(max(bisect_right(grid.xs, (word.x0 + word.x1) / 2) - 1, 0), count - 1)
        first = column
        while first and (row, first - 1) not in grid.walls:
            first -= 1
        spanning[row] |= grid.spans_right(row, first) - first > 1
        sorted_in[row][first].append(word)
    return [_TableRow([rows(cell) for cell in cells], spans) for cells, spans in zip(sorted_in, spanning, strict=True)]


def _lays_out(bands: Sequence[_TableRow]) -> bool:
    """Return whether cells side by side are columns of prose."""
    for band in bands:
        long = [cell for cell in band.cells if len(cell) >= _LAYOUT and _words_a_line(cell) >= _PROSE_WORDS]
        if len(long) < 2:
            continue
        if _full(band) < _EVEN * max(len(cell) for cell in long) or sum(map(_goes_on, long)) > 1:
            return True
    return False


def _goes_on(cell: _Cell) -> bool:
    """Return whether many lines of a cell begin in the middle of a sentence."""
    return sum(line.words[0].text[:1].islower() for line in cell) >= _MID_SENTENCE * len(cell)


def _words_a_line(cell: _Cell) -> float:
    return sum(len(line.words) for line in cell) / len(cell)


def _spread(grid: RuledGrid, bands: list[_TableRow]) -> None:
    """Repeat the text of a cell that covers several rows in each of them."""
    for column in range(len(grid.xs) - 1):
        top = 0
        for row in range(len(bands)):
            if row == len(bands) - 1 or (row, column) in grid.floors:
                _spread_cell(bands[top : row + 1], column)
                top = row + 1


def _spread_cell(bands: Sequence[_TableRow], column: int) -> None:
    lines = [line for band in bands for line in band.cells[column]]
    if len(bands) < 2 or not lines or any(band.spans for band in bands[1:]):
        return
    beside = sorted(
        line.base for band in bands for other, cell in enumerate(band.cells) if other != column for line in cell
    )
    aligned = all(_nearest(beside, line.base) < 0.2 * line.size for line in lines)
    if len(lines) >= len(bands) and aligned:
        return
    others = [any(cell for other, cell in enumerate(band.cells) if other != column) for band in bands]
    for band, used in zip(bands, others, strict=True):
        band.cells[column] = list(lines) if used else []
    if not any(others):
        bands[0].cells[column] = lines


def _full(band: _TableRow) -> int:
    """Return the number of printed lines that fill every used column."""
    filled = [cell for cell in band.cells if cell]
    if len(filled) < 2:
        return 0
    heights = [[line.base for line in cell] for cell in filled[1:]]
    return sum(all(_nearest(bases, line.base) < _LEVEL * line.size for bases in heights) for line in filled[0])


def _nearest(ordered: Sequence[float], base: float) -> float:
    """Return the distance from a height to the nearest of some ordered heights."""
    place = bisect_right(ordered, base)
    return min((abs(other - base) for other in ordered[max(place - 1, 0) : place + 1]), default=float("inf"))


def _rows(band: _TableRow, bands: int) -> list[_TableRow]:
    """Return the rows between two drawn lines."""
    filled = band.filled()
    if not filled:
        return []
    full = _full(band)
    if full < 2 or not (full >= _ROWS or bands <= 2 or _has_figures(band, full)):
        return [band]
    joined = rows([word for cell in band.cells for row in cell for word in row.words])
    place = {id(word): index for index, line in enumerate(joined) for word in line.words}
    printed: list[tuple[Baseline, list[_Cell]]] = [(line, [[] for _ in band.cells]) for line in joined]
    for column, cell in enumerate(band.cells):
        for part in cell:
            printed[place[id(part.words[0])]][1][column].append(part)
    texts = [[_cell_text(cells[column]) for column in filled] for _, cells in printed]
    found: list[_TableRow] = []
    last = -1
    for group, (_, cells) in zip(grouped([line.base for line, _ in printed], texts), printed, strict=True):
        if group == last:
            for column, cell in enumerate(cells):
                found[-1].cells[column] = [*found[-1].cells[column], *cell]
        else:
            found.append(_TableRow(cells, band.spans))
        last = group
    return found


def _has_figures(band: _TableRow, full: int) -> bool:
    """Return whether a column has exactly one figure for each full line, and nothing else."""
    return any(len(cell) == full and all(is_figure(_cell_text([line])) for line in cell) for cell in band.cells)


def _without_titles(found: list[_TableRow]) -> tuple[list[_TableRow], list[Word]]:
    """Remove titles above and notes below the table; return the rows and the removed words."""
    first, last = 0, len(found)
    while first < last and found[first].spans and len(found[first].filled()) == 1 and found[first].cells[0]:
        first += 1
    while last > first and found[last - 1].spans and found[last - 1].cells[0]:
        if len(found[last - 1].filled()) > max(1, len(found[last - 1].cells) // _NOTES):
            break
        last -= 1
    return found[first:last], [word for row in [*found[:first], *found[last:]] for word in row.words()]


def _header_rows(found: Sequence[_TableRow]) -> int:
    """Return the number of header rows.

    They are bold, have cells over several columns, or name columns of figures.
    """
    bold = [all(word.bold for word in row.words()) for row in found]
    count = 0
    while count < min(_HEADER_ROWS, len(found) - 1):
        row = found[count]
        if not (bold[count] and not all(bold)) and not (row.spans and len(row.filled()) > 1):
            break
        count += 1
    if count == len(found) - 1 or not all(bold[:count]):
        count = min(count, len(found) - 1)
    texts = [[_cell_text(cell).replace("\n", " ") for cell in row.cells] for row in found[count:]]
    spanning = bool(count) and found[count - 1].spans
    if count < _HEADER_ROWS and (not count or spanning) and names_columns(texts):
        count += 1
    return count


def _lower(above: _TableRow, row: _TableRow) -> None:
    """Move a cell that covers two header rows to the lower one."""
    for column, cell in enumerate(above.cells):
        if cell and row.cells[column] and all(a is b for a, b in zip(cell, row.cells[column], strict=False)):
            above.cells[column] = []


def _cell_text(cell: _Cell, turned: bool = False) -> str:
    return "\n".join(words_text(line.words, line.size, turned) for line in cell)


def _line(row: _TableRow, turned: bool, header: bool, edges: tuple[float, ...]) -> Line:
    words = sorted(row.words(), key=lambda word: (word.x0, word.order))
    texts = tuple(_cell_text(cell, turned) for cell in row.cells)
    cells = tuple(reversed(texts)) if turned else texts
    first = min(words, key=lambda word: (word.base, word.x0))
    line = line_of(Baseline(words, first.base, first.size), cells, turned)
    line.text, line.header, line.edges, line.mono = row_text(cells), header, edges, False
    return line
