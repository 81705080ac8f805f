"""Join the tables of a PDF across pages, and find their header rows.

Invariants:
- A table continues the one at the end of the previous page only if it has no header of its own and the same number of
  columns at the same places.
- Rows keep their pages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from parsers.header_rows import names_columns
from parsers.pdf.blocks import MARGINS, PdfBlock
from parsers.pdf.layout.lines import Line

_RULED: Final = 4.0  # points: largest difference between the places of ruled columns from page to page
_ALIGNED: Final = 20.0  # points: the same for columns separated only by white space
_HEADER_ROWS: Final = 4
_LOOSE_GAPS: Final = 2  # least number of wide gaps in a line that looks like a row
_LOOSE_ROWS: Final = 3  # least number of such lines on a page that may be a table
_SAME_HEIGHT: Final = 6.0  # points


def tables_joined(found: Sequence[PdfBlock]) -> list[PdfBlock]:
    """Return the blocks with tables joined across pages; running heads and feet between them follow."""
    kept: list[PdfBlock] = []
    table: PdfBlock | None = None
    for block in found:
        if block.kind == "table" and table is not None and _goes_on(table, block):
            for line in block.lines:
                line.header = None if table.lines[0].header is None else False
            table.lines.extend(block.lines)
            table.hard.extend([True, *block.hard])
            continue
        if block.kind not in MARGINS:
            table = block if block.kind == "table" else None
        kept.append(block)
    return kept


def _goes_on(above: PdfBlock, below: PdfBlock) -> bool:
    last, first = above.lines[-1], below.lines[0]
    if first.page != last.page + 1 or first.angle != last.angle or len(first.cells) != len(last.cells):
        return False
    if not first.edges or len(first.edges) != len(last.edges) or header_rows(below.lines):
        return False
    ruled = len(first.edges) == len(first.cells)
    room = _RULED if ruled else _ALIGNED
    return all(abs(a - b) <= room for a, b in zip(last.edges, first.edges, strict=True))


def header_rows(rows: Sequence[Line]) -> int:
    """Return the number of header rows of a table.

    They are known from drawn lines; otherwise they are the first rows in bold, if not all are, or the first row if it
    names columns of figures.
    """
    if rows[0].header is not None:
        return sum(bool(row.header) for row in rows)
    bold = next((index for index, row in enumerate(rows) if not row.bold), len(rows))
    if bold:
        return min(bold, _HEADER_ROWS) if bold < len(rows) else 0
    return int(names_columns([[cell.replace("\n", " ") for cell in row.cells] for row in rows]))


def doubtful_pages(found: Iterable[PdfBlock]) -> list[int]:
    """Return the pages with lines like rows of a missed table, or adjacent tables."""
    loose: Counter[int] = Counter()
    spans: dict[int, list[tuple[float, float, float, float]]] = defaultdict(list)
    for block in found:
        if block.kind in (*MARGINS, "code") or block.contents:
            continue
        if block.kind != "table":
            loose.update(line.page for line in block.lines if line.gaps >= _LOOSE_GAPS)
            continue
        pages: dict[int, list[Line]] = defaultdict(list)
        for line in block.lines:
            pages[line.page].append(line)
        for page, lines in pages.items():
            if len(lines) >= _LOOSE_ROWS:
                left, right = min(line.x0 for line in lines), max(line.x1 for line in lines)
                spans[page].append((lines[0].base, lines[-1].base, left, right))
    doubtful = {page for page, count in loose.items() if count >= _LOOSE_ROWS}
    return sorted(doubtful | {page for page, tables in spans.items() if _side_by_side(tables)})


def _side_by_side(tables: Sequence[tuple[float, float, float, float]]) -> bool:
    """Return whether two tables begin and end at the same heights.

    They may be halves of one.
    """
    ordered = sorted(tables)
    return any(
        abs(a[0] - b[0]) <= _SAME_HEIGHT and abs(a[1] - b[1]) <= _SAME_HEIGHT and (a[3] <= b[2] or b[3] <= a[2])
        for a, b in pairwise(ordered)
    )
