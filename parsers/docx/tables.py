"""Read the rows and cells of a Word table, and detect layout tables.

Invariants:
- A row has one cell for each column of the table's grid that it reaches, however cells are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.docx.styles import Styles, W, value, whole_number

_WRAPPERS: Final = frozenset(f"{W}{name}" for name in ("sdtContent", "customXml", "smartTag", "ins", "moveTo"))
_MOST_COLUMNS: Final = 63  # Word's limit
_LONGEST_CELL: Final = 4_000  # characters: a cell of several blocks that is longer makes the table a layout
_SHORT_CELL: Final = 200  # characters: the same limit in a table of one row or one column


class Cell(msgspec.Struct):
    """A cell of a row, one for each column of the grid.

    Attributes:
        content: its ``w:tc``; None where a merged cell covers it or it is missing.
        spanned: whether a cell of the row above covers it.
    """

    content: _Element | None
    spanned: bool = False


def block_children(parent: _Element) -> Iterator[_Element]:
    """Yield the block-level children of an element, looking through wrappers."""
    for child in parent:
        if child.tag in _WRAPPERS:
            yield from block_children(child)
        elif isinstance(child.tag, str):
            yield child


def table_rows(table: _Element) -> Iterator[_Element]:
    for child in block_children(table):
        if child.tag == f"{W}tr":
            yield child
        elif child.tag == f"{W}sdt":
            for content in child.iterfind(f"{W}sdtContent"):
                yield from table_rows(content)


def is_deleted(row: _Element) -> bool:
    properties = row.find(f"{W}trPr")
    return properties is not None and properties.find(f"{W}del") is not None


def row_cells(row: _Element) -> Iterator[Cell]:
    """Yield the cells of a row from left to right, one per column."""
    properties = row.find(f"{W}trPr")
    yield from _missing(properties, "gridBefore")
    yield from _filled(row)
    yield from _missing(properties, "gridAfter")


def _filled(row: _Element) -> Iterator[Cell]:
    for child in block_children(row):
        if child.tag == f"{W}sdt":
            for content in child.iterfind(f"{W}sdtContent"):
                yield from _filled(content)
        if child.tag != f"{W}tc":
            continue
        properties = child.find(f"{W}tcPr")
        merge = properties.find(f"{W}vMerge") if properties is not None else None
        covered = merge is not None and value(merge) != "restart"
        yield Cell(None, spanned=True) if covered else Cell(child)
        span = whole_number(value(properties.find(f"{W}gridSpan"))) if properties is not None else None
        yield from (Cell(None) for _ in range(min(span or 1, _MOST_COLUMNS) - 1))


def _missing(properties: _Element | None, name: str) -> Iterator[Cell]:
    count = whole_number(value(properties.find(f"{W}{name}"))) if properties is not None else None
    return (Cell(None) for _ in range(min(count or 0, _MOST_COLUMNS)))


def sets_off_first_row(look: _Element) -> bool:
    flags = look.get(f"{W}val", "")
    return look.get(f"{W}firstRow") == "1" or bool(int(flags, 16) & 0x20 if _is_hexadecimal(flags) else 0)


def _is_hexadecimal(text: str) -> bool:
    return 0 < len(text) <= 4 and all(char in "0123456789abcdefABCDEF" for char in text)


def cell_contents(cells: Sequence[Sequence[Cell]]) -> Iterator[_Element]:
    """Yield the content of the cells that have any, row by row."""
    return (cell.content for row in cells for cell in row if cell.content is not None)


def is_layout(cells: Sequence[Sequence[Cell]], styles: Styles) -> bool:
    """Return whether a table only lays out a page.

    A layout table is a frame, columns of text, or has sections in its cells.

    Args:
        cells: the cells of each row.
        styles: the document's styles.
    """
    filled = [[cell.content for cell in row if cell.content is not None and _length(cell.content)] for row in cells]
    is_frame = all(len(row) <= 1 for row in filled)
    if is_frame and len(cells) == 1:
        return True
    for content in (content for row in filled for content in row):
        blocks = list(block_children(content))
        if len(blocks) == 1 and blocks[0].tag == f"{W}p" and not is_frame:
            continue
        blocks = [block for block in blocks if _length(block)]
        levels = [styles.heading_level(child.find(f"{W}pPr")) if child.tag == f"{W}p" else None for child in blocks]
        if any(level and below is None for level, below in pairwise(levels)):
            return True
        is_mixed = len(blocks) > 1 or any(block.tag == f"{W}tbl" for block in blocks)
        longest = 0 if is_frame and is_mixed else _SHORT_CELL if is_frame or len(cells) == 1 else _LONGEST_CELL
        if (is_frame or is_mixed) and _length(content) > longest:
            return True
    return False


def _length(element: _Element) -> int:
    return sum(len((part.text or "").strip()) for part in element.iter(f"{W}t"))
