"""Whether the first row of a table heads it, where the file does not say.

Invariants:
- A row heads a table where it names, in words, a column that holds figures and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_LONGEST: Final = 40  # characters: no figure with its unit is longer
_MOST_COLUMNS: Final = 200  # columns that are looked at
_FIGURE: Final = re.compile(r"[^\w]*\d[\d.,:%/\s\u2212-]*[^\w]*\w{0,3}")  # 83,879  £41  -3.2 %  12 kg


def names_columns(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first of some rows, each a sequence of cells, names a column of figures."""
    if len(rows) < 2:
        return False
    body = rows[1:]
    return any(
        cell and not is_figure(cell) and _is_of_figures(row[column] for row in body if column < len(row))
        for column, cell in enumerate(rows[0][:_MOST_COLUMNS])
    )


def _is_of_figures(cells: Iterable[str]) -> bool:
    found = False
    for cell in filter(None, cells):
        if not is_figure(cell):
            return False
        found = True
    return found


def is_figure(cell: str) -> bool:
    return len(cell) <= _LONGEST and bool(_FIGURE.fullmatch(cell))
