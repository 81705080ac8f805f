"""The cells of a table row by row, with those that span rows and columns in each place that they span.

Invariants:
- A cell stands in the first column that no cell of a row above still spans, as the HTML standard places it.
- No span reaches beyond its group of rows (``thead``, ``tbody``, ``tfoot``), and a row has at most 1,000 columns.
- What is repeated is bounded by what the table itself holds: once a table has used that up, spans are no longer
  followed, and each of its cells stands once.
"""

from __future__ import annotations

import re
from typing import Final

_MOST_COLUMNS: Final = 1000  # the standard's bound on a colspan, here on the whole row
_TO_THE_END: Final = 65534  # the standard's bound on a rowspan
_LONGEST: Final = 300  # characters of a cell that is repeated
_FREE_CELLS: Final = 20_000  # places that spans may fill in any table
_FREE_TEXT: Final = 50_000  # characters that may be repeated in any table
_SHARE: Final = 8  # times what the cells read so far come to, of both
_NUMBER: Final = re.compile(r"\s*(\d{1,6})")


class CellGrid:
    """Places the cells of one table; rows come one after the other."""

    def __init__(self) -> None:
        self._row: list[str] = []
        self._pending: dict[int, tuple[int, str]] = {}  # by column: rows still spanned, and the text there
        self._next: dict[int, tuple[int, str]] = {}  # the same for the row below
        self._cells, self._text = _FREE_CELLS, _FREE_TEXT
        self._begun = self._own = 0
        self._width = 0  # columns of the last cell

    def begin_row(self) -> None:
        """Begin a row, which stands below the one before even where that was empty."""
        self._begun += 1

    def cell(self, text: str, colspan: str | None = None, rowspan: str | None = None) -> None:
        """Add a cell to the row; the spans as the file writes them."""
        self._own += 1
        self._cells += _SHARE
        self._text += _SHARE * len(text)
        self._fill()
        column = len(self._row)
        self._width = width = max(1, min(_span(colspan, 1), _MOST_COLUMNS - column))
        height = _span(rowspan, _TO_THE_END)
        repeated = text if len(text) <= _LONGEST else ""
        for offset in range(width if self._cells > 0 else 1):
            again = repeated if offset == 0 or self._takes(repeated) else ""
            self._row.append(text if offset == 0 else again)
            self._cells -= offset > 0
            below = (height - 1, again)
            if column + offset in self._pending:  # two cells overlap: the one that reaches further down goes on
                rows, over = self._pending.pop(column + offset)
                below = max(below, (rows - 1, over), key=lambda one: one[0])
            if below[0] > 0 and column + offset < _MOST_COLUMNS:
                self._next[column + offset] = below

    def end_row(self) -> tuple[str, ...]:
        """End the row; its cells, with those that reach into it from above. No cells where it has none of its own."""
        if not self._begun and not self._own:
            return ()  # between two rows
        title = self._own == 1 and len(self._row) == self._width
        self._fill(to_the_end=True)
        row = tuple(self._row[:1] if title and len(self._row) == self._width else self._row) if self._own else ()
        self._pending, self._next = self._next, {}
        self._row, self._begun, self._own = [], 0, 0
        return row

    def end_group(self) -> None:
        """End the spans: they do not reach from one group of rows into the next."""
        self._pending.clear()
        self._next.clear()

    def _fill(self, *, to_the_end: bool = False) -> None:
        """Write the cells that reach down from above, up to the next free column or to the end of the row."""
        while self._pending:
            column = len(self._row)
            if column not in self._pending:
                further = [one for one in self._pending if one > column] if to_the_end else []
                if not further:
                    return
                self._row += [""] * (min(further) - column)
                self._cells -= min(further) - column
                continue
            rows, text = self._pending.pop(column)
            self._cells -= 1
            if self._cells < 0:
                self._pending.clear()
                return
            self._row.append(text if self._takes(text) else "")
            if rows > 1:
                self._next.setdefault(column, (rows - 1, text))

    def _takes(self, text: str) -> bool:
        """Return whether there is room to repeat a text; takes it up."""
        if len(text) > self._text:
            return False
        self._text -= len(text)
        return True


def _span(value: str | None, otherwise: int) -> int:
    """Return how far a cell spans; ``otherwise`` for 0, which HTML has for rows alone."""
    found = _NUMBER.match(value or "1")
    number = int(found[1]) if found else 1
    return min(number or otherwise, _TO_THE_END)
