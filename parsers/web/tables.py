"""HTML tables as rows of text.

Invariants:
- Each cell stands in its own column, whatever spans before it; cells are separated by ``" | "``.
- A short cell is repeated in every row and column that it spans, unless it spans a whole row; a long one stands once.
- What stands in a cell is flattened without loss: blocks separated by ``"; "``, the cells of a nested table by
  ``", "``; code in it keeps its lines.

A table that only lays out a page is none: its cells are read as blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.header_rows import names_columns
from parsers.web.code import code_text
from parsers.web.dom import Walk, fold_space, replaced, tags
from parsers.web.grid import CellGrid
from parsers.web.noise import tick

CELL_SEPARATOR: Final = " | "
DEEPEST_LAYOUT: Final = 8  # tables within each other that are looked into before they are taken for layout
_MOST_IN_CELL: Final = 1000  # characters; a cell with more is a column of a page

BLOCKS: Final = tags(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main menu nav noframes "
    "noscript ol option p plaintext pre search section summary table tbody td tfoot th thead tr ul xmp"
)
HEADINGS: Final = tags("h1 h2 h3 h4 h5 h6")
_CELLS: Final = tags("td th")
_OWN: Final = tags("tr td th thead tbody tfoot caption")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row: its cells, and whether it is a header row."""

    cells: tuple[str, ...]
    header: bool

    @property
    def text(self) -> str:
        """The cells as they are written."""
        return CELL_SEPARATOR.join(self.cells).strip()


class _Flat:
    """Collects text that is laid out in blocks, and gives it on one line."""

    def __init__(self) -> None:
        self._line = ""
        self._pieces: list[str] = []
        self._mark = ""

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def code(self, text: str) -> None:
        """Add code; several lines of it stand apart, as they are."""
        if "\n" not in text:
            self.add(f" {text} ")
            return
        self.part("; ")
        self._line += ("\n" if self._line else "") + dedent(text)
        self._mark = "\n"

    def part(self, mark: str) -> None:
        """End a block; ``mark`` goes before the next one, unless a mark stands there already."""
        text = fold_space("".join(self._pieces))
        self._pieces.clear()
        if text:
            ended = self._mark != "\n" and self._line[-1:] in (*".,;:!?…",)
            self._line += ("" if not self._line else " " if ended else self._mark) + text
            self._mark = mark
        elif mark == "; " and self._mark != "\n":
            self._mark = mark

    def text(self) -> str:
        self.part("")
        return self._line


def flat_text(root: LexborNode) -> str:
    """Return the text below an element, on one line."""
    flat = _Flat()
    walk = Walk(root)
    for node, begins in walk:
        _take(flat, walk, node, begins)
    return flat.text()


def read_table(table: LexborNode) -> tuple[str, list[_Row]]:
    """Return a table's caption and its rows that are not blank."""
    return _Rows(table).read()


def lays_out(table: LexborNode) -> bool:
    """Return whether a table only lays out a page.

    It does where it says so, or where it has no header cells and no caption, and either a single cell or one with
    headings or more text than a cell of data has.
    """
    if (table.attributes.get("role") or "") in ("presentation", "none"):
        return True
    cells = nested = length = 0
    for node, begins in Walk(table):
        tag = node.tag or ""
        if tag == "table":
            nested += 1 if begins else -1
        elif not begins:
            continue
        elif not nested and tag in ("th", "thead", "caption"):
            return False
        elif not nested and tag == "td":
            cells, length = cells + 1, 0
        elif node.is_text_node:
            length += len((node.text_content or "").strip())
        if tag in HEADINGS or length > _MOST_IN_CELL:
            return not _has_header(table)
    return cells <= 1


class _Rows:
    def __init__(self, table: LexborNode) -> None:
        self._walk = Walk(table)
        self._rows: list[_Row] = []
        self._captions: list[str] = []
        self._grid = CellGrid()
        self._all_headers = True
        self._in_head = False
        self._flat: _Flat | None = None

    def read(self) -> tuple[str, list[_Row]]:
        nested = 0
        for node, begins in self._walk:
            tag = node.tag or ""
            if tag == "table":
                nested += 1 if begins else -1
            if nested == 0 and tag in _OWN:
                self._own(node, tag, begins)
                continue
            if self._flat is None:
                self._flat = _Flat()  # text outside any cell, which a parser moves out of the table, as a rule
            _take(self._flat, self._walk, node, begins)
        self._end_row()
        self._rows = _without_spacers(self._rows)
        if not any(row.header for row in self._rows) and names_columns([row.cells for row in self._rows]):
            self._rows[0] = _Row(self._rows[0].cells, header=True)
        return " ".join(self._captions), self._rows

    def _own(self, node: LexborNode, tag: str, begins: bool) -> None:
        if tag in _CELLS or tag == "caption":
            text = self._flat.text() if self._flat is not None else ""
            self._flat = _Flat() if begins else None
            if begins:
                self._stray(text)
                self._all_headers &= tag != "td"
            elif tag == "caption":
                self._captions.append(text)
            else:
                self._grid.cell(text or tick(node), node.attributes.get("colspan"), node.attributes.get("rowspan"))
        elif tag == "tr":
            self._end_row()
            if begins:
                self._grid.begin_row()
        else:
            self._end_row()
            self._grid.end_group()
            self._in_head = begins and tag == "thead"

    def _stray(self, text: str) -> None:
        if text:
            self._grid.cell(text)
            self._all_headers = False

    def _end_row(self) -> None:
        self._stray(self._flat.text() if self._flat is not None else "")
        self._flat = None
        cells = self._grid.end_row()
        if any(cells):
            self._rows.append(_Row(cells, self._in_head or self._all_headers))
        self._all_headers = True


def _without_spacers(rows: list[_Row]) -> list[_Row]:
    """Return the rows without the columns that are empty in all of them."""
    filled: set[int] = set()
    for row in rows:
        filled.update(column for column, cell in enumerate(row.cells) if cell)
    return [_Row(tuple(cell for column, cell in enumerate(row.cells) if column in filled), row.header) for row in rows]


def _has_header(table: LexborNode) -> bool:
    nested = 0
    for node, begins in Walk(table):
        if node.tag == "table":
            nested += 1 if begins else -1
        elif begins and not nested and node.tag in ("th", "thead", "caption"):
            return True
    return False


def _take(flat: _Flat, walk: Walk, node: LexborNode, begins: bool) -> None:
    tag = node.tag or ""
    if node.is_text_node:
        flat.add(node.text_content or "")
    elif tag == "br":
        flat.add(" ")
    elif tag in _CELLS:
        flat.part(", ")
    elif tag == "pre":
        if begins:
            walk.skip()
            flat.code(code_text(node))
    elif tag in BLOCKS:
        flat.part("; ")
    elif begins and (text := replaced(node)) is not None:
        flat.add(f" {text} ")
        walk.skip()
