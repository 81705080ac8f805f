"""Write the blocks of a PDF into a tree.

Invariants:
- Blocks are written in order, each once.
- A box covers the part of a block on the page and in the column where it begins. It is in points, from the top left
  corner of the page as displayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from parsers.document import Box, Kind, TreeBuilder
from parsers.pdf.blocks import PdfBlock
from parsers.pdf.joining import Vocabulary, join
from parsers.pdf.layout.lines import MONO_WIDTH, Line
from parsers.pdf.layout.words import from_upright
from parsers.pdf.pages import Page
from parsers.pdf.tables.continued import header_rows

_LEFT_OUT: Final = {"header": "running head", "footer": "running foot", "watermark": "watermark"}
_CODE_LEADING: Final = 1.2  # of the font size: the usual step from one line of code to the next
_NESTED: Final = 0.8  # of the font size: an item indented further than the one above is nested in it


class Writer:
    """Writer of blocks.

    Args:
        builder: tree builder that receives the blocks.
        pages: the pages of the document.
        vocabulary: the words of the document.
    """

    def __init__(self, builder: TreeBuilder, pages: Sequence[Page], vocabulary: Vocabulary) -> None:
        self._builder = builder
        self._pages = pages
        self._vocabulary = vocabulary
        self._lists: list[tuple[float, bool]] = []  # left edge of each open list, and whether it is numbered

    def write(self, found: Sequence[PdfBlock]) -> None:
        """Write all blocks of the document, in reading order."""
        for block in found:
            if block.kind == "item":
                self._item(block)
                continue
            self._close_lists()
            self._block(block)
        self._close_lists()

    def _block(self, block: PdfBlock) -> None:
        page, box = block.lines[0].page, self._box(block)
        if block.kind == "table":
            self._table(block, page, box)
        elif block.kind == "heading":
            self._builder.write_heading(self._text(block).replace("\n", " "), block.level, page=page, box=box)
        elif block.kind == "code":
            self._builder.write_leaf("code", _layout(block.lines), page=page, box=box)
        else:
            reason = _LEFT_OUT.get(block.kind) or ("contents list" if block.contents else None)
            kind: Kind = "paragraph" if block.kind == "watermark" else block.kind
            self._builder.write_leaf(kind, self._text(block), page=page, box=box, left_out=reason)

    def _text(self, block: PdfBlock) -> str:
        return join([line.text for line in block.lines], block.hard, self._vocabulary)

    def _item(self, block: PdfBlock) -> None:
        left, size = block.lines[0].x0, block.lines[0].size
        page, box = block.lines[0].page, self._box(block)
        numbered = block.number is not None
        while len(self._lists) > 1 and left < self._lists[-1][0] - 0.5 * size:
            self._close_list()
        if self._is_beside(left, size) and self._lists[-1][1] != numbered:
            self._close_list()
        text = self._text(block)
        start, end = self._builder.write(text, "\n" if self._lists else "\n\n")
        if self._is_beside(left, size):
            self._builder.close()
        else:
            self._lists.append((left, numbered))
            self._builder.open("list", start, level=len(self._lists), page=page)
        content = end - len(text[len(block.mark) :].lstrip())
        self._builder.open("item", content, outer=(start, content), number=block.number, page=page, box=box)
        self._builder.leaf("paragraph", content, end, page=page, box=box)

    def _is_beside(self, left: float, size: float) -> bool:
        """Return whether an item belongs to the innermost open list itself."""
        return bool(self._lists) and left <= self._lists[-1][0] + _NESTED * size

    def _close_list(self) -> None:
        self._builder.close()  # its last item
        self._builder.close()
        self._lists.pop()

    def _close_lists(self) -> None:
        while self._lists:
            self._close_list()

    def _table(self, block: PdfBlock, page: int, box: Box) -> None:
        header = header_rows(block.lines)
        for index, line in enumerate(block.lines):
            start, end = self._builder.write(self._row(line), "\n" if index else "\n\n")
            if not index:
                self._builder.open("table", start, page=page, box=box)
            row_box = self._box(PdfBlock([line], [True]))
            self._builder.leaf("row", start, end, page=line.page, box=row_box, header=index < header)
        self._builder.close()

    def _row(self, line: Line) -> str:
        """Return the text of a row, with the lines of each cell joined."""
        cells = [cell.split("\n") for cell in line.cells]
        return " | ".join(join(lines, [False] * len(lines), self._vocabulary) for lines in cells).strip()

    def _box(self, block: PdfBlock) -> Box:
        """Return the box of a block on the page and column where it begins."""
        first = block.lines[0]
        lines = [line for line in block.lines if (line.page, line.column) == (first.page, first.column)]
        page, side = self._pages[first.page - 1], -1 if first.mirrored else 1
        low = (side * min(line.x0 for line in lines), min(line.top for line in lines))
        high = (side * max(line.x1 for line in lines), max(line.bottom for line in lines))
        (x0, y0), (x1, y1) = (_shown(*from_upright(u, v, first.angle), page) for u, v in (low, high))
        return round(min(x0, x1), 1), round(min(y0, y1), 1), round(max(x0, x1), 1), round(max(y0, y1), 1)


def _shown(x: float, y: float, page: Page) -> tuple[float, float]:
    """Convert a point in page space to the displayed page, from its top left."""
    left, bottom, right, top = page.bounds
    return {
        90: (y - bottom, x - left),
        180: (right - x, y - bottom),
        270: (top - y, right - x),
    }.get(page.rotation, (x - left, top - y))


def _layout(lines: Sequence[Line]) -> str:
    """Return lines of code with their indents and the empty lines between them."""
    left = min(line.x0 for line in lines)
    text = ""
    for index, line in enumerate(lines):
        step = (line.base - lines[index - 1].base) / (_CODE_LEADING * line.size) if index else 0.0
        text += "\n" * max(round(step), index > 0)
        text += " " * round((line.x0 - left) / (MONO_WIDTH * line.size)) + line.text
    return text
