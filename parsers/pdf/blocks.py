"""Group the lines of a PDF into blocks: paragraphs, list items, tables, code, running heads.

Invariants:
- Every line is in exactly one block, and blocks are in reading order.
- A block begins at a wider gap, another font size, an indent, a bullet, or after a line that ends early with its
  sentence.
- A paragraph that continues in the next column or on the next page is one block, on the page where it begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from parsers.pdf.layout.baselines import is_bullet, is_clause, is_number
from parsers.pdf.layout.lines import Line

BlockKind = Literal[
    "paragraph", "heading", "item", "table", "code", "caption", "footnote", "header", "footer", "watermark"
]
MARGINS: Final = ("header", "footer", "watermark")
"""Kinds of blocks outside the running text."""

_TERMINAL: Final = (".", "!", "?", "…", ":", '"', "”", "’", "»", ")", "。", "！", "？", "؟")
_LEADING: Final = 1.22  # of the font size: the line pitch where it cannot be measured in the column
_WIDER: Final = 1.3  # of the pitch: a wider step ends a paragraph
_CODE_GAP: Final = 3.5  # font sizes: lines of code further apart are two blocks
_HANGING: Final = 0.4  # of the font size: wider than a space in a line that is not justified
_INDENT: Final = 0.8  # of the font size
_EARLY: Final = 0.25  # of the column's width: a line shorter by this much was ended by the author
_LONG: Final = 15  # lines: a paragraph with at least this many on a new page is split there
_SENTENCE_END: Final = re.compile(r"(?<=[^\W\d_]{3})[.!?][\"”’»)]*(?:\s+(?=[^\W\d_a-zß-ÿ]|[\"“‘«(])|$)")


class PdfBlock(msgspec.Struct):
    """A part of the document.

    Attributes:
        lines: its lines; the rows of a table.
        hard: for each line, whether the author ended it on purpose.
        kind: the kind of block.
        mark: bullet or number of an item, as printed.
        number: number of an item in an ordered list.
        doubtful: whether it is a block only because its first word looks like the number of an item.
        level: level of a heading, 1 for the highest.
        contents: whether it is part of a table of contents, with dots that lead to page numbers.
    """

    lines: list[Line]
    hard: list[bool]
    kind: BlockKind = "paragraph"
    mark: str = ""
    number: int | None = None
    doubtful: bool = False
    level: int = 0
    contents: bool = False

    @property
    def text(self) -> str:
        """The printed lines joined by spaces; used for detection, not for the document."""
        return " ".join(line.text for line in self.lines)

    @property
    def place(self) -> tuple[int, int]:
        """Page and column where it begins."""
        return self.lines[0].page, self.lines[0].column


def blocks(pages: Sequence[Sequence[Line]], running: Mapping[int, BlockKind]) -> list[PdfBlock]:
    """Return the blocks of a document in reading order.

    Args:
        pages: the lines of each page in reading order.
        running: kind of each line that is a running head, running foot or watermark, by the line's ``id``.
    """
    found: list[PdfBlock] = []
    for lines in pages:
        margins = [PdfBlock([line], [True], running[id(line)]) for line in lines if id(line) in running]
        found.extend(block for block in margins if block.kind == "header")
        for column in _columns([line for line in lines if id(line) not in running]):
            found.extend(_column_blocks(column))
        found.extend(block for block in margins if block.kind != "header")
    return found


def _columns(lines: Sequence[Line]) -> Iterator[list[Line]]:
    column: list[Line] = []
    for line in lines:
        if column and line.column != column[-1].column:
            yield column
            column = []
        column.append(line)
    if column:
        yield column


def _column_blocks(lines: Sequence[Line]) -> Iterator[PdfBlock]:
    pitch = _pitch(lines)
    edge = _left_edge(lines)
    block: PdfBlock | None = None
    for line in lines:
        reason = "new" if block is None else _reason(block, line, pitch, edge)
        if block is None or reason:
            if block is not None:
                yield block
            kind: BlockKind = "table" if line.table else "code" if line.mono else "paragraph"
            block = PdfBlock([line], [], kind, doubtful=reason == "number")
        else:
            block.hard.append(ended_early(block.lines[-1], line))
            block.lines.append(line)
    if block is not None:
        yield block


def _pitch(lines: Sequence[Line]) -> dict[float, float]:
    """Return the line pitch for each font size.

    It is the most common step from the baseline of a full line to the next.
    """
    steps: dict[float, Counter[float]] = {}
    for above, below in pairwise(lines):
        step = below.base - above.base
        if above.size == below.size and 0.8 * above.size < step < 3 * above.size and not _would_fit(above, below):
            steps.setdefault(above.size, Counter())[round(step, 1)] += 1
    return {size: min(counts, key=lambda step: (-counts[step], step)) for size, counts in steps.items()}


def _left_edge(lines: Sequence[Line]) -> float:
    """Return the most common left edge of the lines; the leftmost of equals."""
    starts = Counter(round(line.x0) for line in lines)
    return min(starts, key=lambda x: (-starts[x], x), default=0.0)


def _reason(block: PdfBlock, line: Line, pitch: dict[float, float], edge: float) -> str:
    """Return why a line begins a new block; empty when it continues the block above."""
    last = block.lines[-1]
    if line.table != last.table:
        return "table"
    if line.table:
        return ""
    step = line.base - last.base
    if line.mono and last.mono and 0 < step <= _CODE_GAP * line.size:
        return ""
    usual = pitch.get(line.size, _LEADING * line.size)
    if not 0 < step <= max(usual, 0.9 * line.size) * _WIDER + 0.5 or not 0.9 <= line.size / last.size <= 1.11:
        return "gap"
    if line.mono or last.mono:
        return "" if line.mono == last.mono else "font"
    first = line.text.partition(" ")[0]
    if is_bullet(first) and first != line.text:
        return "bullet"
    if line.bold != last.bold and (_would_fit(last, line) or line.bold):
        return "weight"
    return _indent_reason(block, line, edge) or ("number" if numbers(line) else "")


def numbers(line: Line) -> bool:
    """Return whether a line begins with the number of an item or paragraph.

    A bare number counts only if the gap after it is wider than a space.
    """
    mark, _, rest = line.text.partition(" ")
    hangs = line.second - line.x0 - line.first > _HANGING * line.size
    return bool(rest) and (is_number(mark) or (hangs and is_clause(mark)))


def _indent_reason(block: PdfBlock, line: Line, edge: float) -> str:
    last, first = block.lines[-1], block.lines[0]
    if abs((line.x0 + line.x1) - (last.x0 + last.x1)) < 2 and line.x0 > edge + line.size:  # both centred
        return ""
    if is_bullet(first.text.partition(" ")[0]) or numbers(first):
        return "outdent" if line.x0 <= first.x0 + 0.3 * line.size and _ends(last, line) else ""
    if line.x0 > last.x0 + _INDENT * line.size and last.x0 <= edge + _INDENT * line.size:
        return "indent" if len(block.lines) > 1 or _ends(last, line) or _would_fit(last, line) else ""
    if line.x0 < last.x0 - _INDENT * line.size and len(block.lines) > 1:
        return "outdent"
    return "end" if _ends(last, line) else ""


def _ends(last: Line, line: Line) -> bool:
    """Return whether a line ends a paragraph.

    It ends a sentence, and the next word would have fitted on it.
    """
    return last.text.endswith(_TERMINAL) and _would_fit(last, line)


def _would_fit(last: Line, line: Line) -> bool:
    return last.x1 + 0.3 * line.size + line.first <= last.right - 0.5


def ended_early(last: Line, line: Line) -> bool:
    """Return whether the author ended a line on purpose.

    The next word would have fitted on it, with a quarter of the column to spare.
    """
    spare = last.right - last.x1 - 0.3 * line.size - line.first
    return spare > _EARLY * (last.right - last.left) and last.right - last.left > 5 * line.size


def joined_across(found: list[PdfBlock]) -> list[PdfBlock]:
    """Return the blocks with paragraphs merged across columns and pages.

    Blocks between the two parts follow the merged paragraph.
    """
    kept: list[PdfBlock] = []
    tail: PdfBlock | None = None
    for block in found:
        if block.kind in ("paragraph", "item", "heading"):
            if tail is not None and _goes_on(tail, block):
                rest = _sentences_of_new_page(tail, block)
                tail.hard.append(False)
                tail.lines.extend(block.lines)
                tail.hard.extend(block.hard)
                if rest is None:
                    continue
                block = rest
            tail = block
        kept.append(block)
    return kept


def _sentences_of_new_page(above: PdfBlock, below: PdfBlock) -> PdfBlock | None:
    """Split a long paragraph after the sentence that crosses the page break.

    The rest keeps its own page.
    """
    if below.lines[0].page == above.lines[-1].page or len(below.lines) < _LONG:
        return None
    for index, line in enumerate(below.lines):
        match = _SENTENCE_END.search(line.text)
        if match is None:
            continue
        lines = [msgspec.structs.replace(line, text=line.text[match.end() :]), *below.lines[index + 1 :]]
        rest = PdfBlock([part for part in lines if part.text], below.hard[index:])
        rest.hard = rest.hard[len(lines) - len(rest.lines) :]
        below.lines = [*below.lines[:index], msgspec.structs.replace(line, text=line.text[: match.end()].rstrip())]
        below.hard = below.hard[:index]
        return rest if rest.lines else None
    return None


def _goes_on(above: PdfBlock, below: PdfBlock) -> bool:
    last, first = above.lines[-1], below.lines[0]
    if below.kind != "paragraph" or above.kind == "heading" or (last.page, last.column) == (first.page, first.column):
        return False
    if first.page > last.page + 1 or not 0.9 <= first.size / last.size <= 1.11 or first.bold != last.bold:
        return False
    if last.text[-1:] in "-\u2010" and first.text[:1].islower():
        return True
    if last.text.endswith(_TERMINAL) or ended_early(last, first):
        return False
    return first.text[:1].islower() or (first.x0 <= first.left + 0.3 * first.size and len(above.lines) > 2)
