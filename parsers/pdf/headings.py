"""Find the headings of a PDF and their levels.

Invariants:
- A block that the outline names is a heading, with the outline's level.
- Otherwise a heading is a short block in a larger font than the body, or in bold above a block that is not bold.
- Its level is the rank of its size; within a size, the rank of its numbering (``2`` above ``2.1``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from parsers.pdf.blocks import MARGINS, PdfBlock
from parsers.pdf.layout.lines import Line
from parsers.pdf.layout.words import SKEWED

_LARGER: Final = 1.12  # of the body size
_ALIKE: Final = 1.03  # ratio: sizes that differ by less are one size
_WORDS: Final = 25
_BOLD_WORDS: Final = 14
_LINES: Final = 4
_LEVELS: Final = 6
_TITLE_WORDS: Final = 30  # most words between a title and the first section: names, addresses, a date
_NUMBERING: Final = re.compile(r"(\d+(?:\.\d+)*)\.?\s+\D")
_NO_HEADING: Final = (".", ";", ",", "!")


class OutlineEntry(NamedTuple):
    """An entry of the outline: level from 1, title, 1-based page (0 without one)."""

    level: int
    title: str
    page: int


def body_size(pages: Sequence[Sequence[Line]]) -> float:
    """Return the font size of most characters; the smallest of equals, 1 without text."""
    weights: Counter[float] = Counter()
    for lines in pages:
        for line in lines:
            weights[line.size] += len(line.text)
    return min(weights, key=lambda size: (-weights[size], size), default=1.0)


def mark_headings(found: list[PdfBlock], outline: Sequence[OutlineEntry], body: float) -> list[PdfBlock]:
    """Return the blocks with ``kind`` and ``level`` set on headings.

    Where the outline names only the first lines of a block, they are split off as the heading.
    """
    found = _by_outline(found, outline)
    mostly_bold = sum(len(b.text) for b in found if b.lines[0].bold) > 0.5 * sum(len(b.text) for b in found)
    named = [block for block in found if block.level]
    for index, block in enumerate(found):
        if block.kind == "paragraph" and not block.contents and _looks_like_heading(found, index, body, mostly_bold):
            block.kind = "heading"
    _demote_below_title(found)
    _rank([block for block in found if block.kind == "heading" and not block.level], named)
    return found


def _looks_like_heading(found: Sequence[PdfBlock], index: int, body: float, mostly_bold: bool) -> bool:
    block = found[index]
    text, size = block.text, block.lines[0].size
    words = len(text.split())
    if (
        block.lines[0].angle == SKEWED
        or words > _WORDS
        or len(block.lines) > _LINES
        or sum(char.isalpha() for char in text) < 2
    ):
        return False
    if text[:1].islower() or (text.endswith(_NO_HEADING) and not _NUMBERING.match(text) and size < 1.5 * body):
        return False
    if size >= _LARGER * body:
        return True
    bold = all(line.bold for line in block.lines) and size >= 0.95 * body and not mostly_bold
    short = words <= _BOLD_WORDS and len(block.lines) <= 2 and text[-1] not in ".:;,"
    return bold and short and _above_text(found, index)


def _above_text(found: Sequence[PdfBlock], index: int) -> bool:
    """Return whether the next block is near and not bold throughout.

    Near means on the same page or the next.
    """
    block = found[index]
    for below in found[index + 1 :]:
        if below.kind in ("header", "footer", "footnote"):
            continue
        return below.lines[0].page <= block.lines[0].page + 1 and (
            below.level > 0 or not all(line.bold for line in below.lines)
        )
    return False


def _demote_below_title(found: Sequence[PdfBlock]) -> None:
    """Turn author, date and the like below the title of page 1 back into paragraphs.

    They are larger than the body, and are between the title and a larger heading, or the first heading of the
    outline, with hardly any text.
    """
    body = [block for block in found if block.kind not in MARGINS]
    headings = [block for block in body if block.kind == "heading"]
    if not body or body[0] not in headings[:1] or body[0].lines[0].page != 1:
        return
    outlined = next((block for block in headings if block.level), None)
    words = 0
    run: list[PdfBlock] = []
    for block in body[1:]:
        if block is outlined:
            for above in run:
                above.kind = "paragraph"
            return
        if block.kind == "heading":
            for above in run if words <= _TITLE_WORDS else ():
                if above.lines[0].size * _ALIKE < block.lines[0].size:
                    above.kind = "paragraph"
            run.extend([block] if block.lines[0].page == 1 else [])
        elif block.lines[0].page > 1 and outlined is None:
            return
        else:
            words += len(block.text.split())
            if words > _TITLE_WORDS and outlined is None:
                return


def _rank(headings: Sequence[PdfBlock], named: Sequence[PdfBlock]) -> None:
    """Set levels by size, then by numbering; with an outline, below its larger headings."""
    sizes: list[float] = []
    for size in sorted({block.lines[0].size for block in headings}, reverse=True):
        if not sizes or sizes[-1] > _ALIKE * size:
            sizes.append(size)
    keys = {id(block): (_size_rank(block, sizes), _depth(block)) for block in headings}
    order = sorted(set(keys.values()))
    ordered = sorted((-block.lines[0].size, block.level) for block in named)
    deepest = list(accumulate((level for _, level in ordered), max))
    for block in headings:
        if named:
            larger = bisect_left(ordered, (-_ALIKE * block.lines[0].size, 0))
            block.level = min(_LEVELS, (deepest[larger - 1] if larger else 0) + 1)
        else:
            block.level = min(_LEVELS, order.index(keys[id(block)]) + 1)


def _size_rank(block: PdfBlock, sizes: Sequence[float]) -> int:
    return next(rank for rank, size in enumerate(sizes) if block.lines[0].size * _ALIKE >= size)


def _depth(block: PdfBlock) -> int:
    match = _NUMBERING.match(block.text)
    return match.group(1).count(".") + 1 if match else 1


def _by_outline(found: list[PdfBlock], outline: Sequence[OutlineEntry]) -> list[PdfBlock]:
    """Return the blocks with the headings of the outline marked, each on its page."""
    kept: list[PdfBlock] = []
    wanted: dict[int, dict[str, list[OutlineEntry]]] = {}
    for entry in outline:
        title = _folded(entry.title)
        if title:
            wanted.setdefault(entry.page, {}).setdefault(title, []).append(entry)
    for block in found:
        titles = wanted.get(block.lines[0].page, {})
        match = _named(block, titles) if block.kind in ("paragraph", "item", "caption") else None
        if match is None:
            kept.append(block)
            continue
        entry, count = match
        kept.append(PdfBlock(block.lines[:count], block.hard[: count - 1], "heading", level=min(entry.level, _LEVELS)))
        if count < len(block.lines):
            kept.append(PdfBlock(block.lines[count:], block.hard[count:]))
    return kept


def _named(block: PdfBlock, titles: dict[str, list[OutlineEntry]]) -> tuple[OutlineEntry, int] | None:
    """Take the outline entry with a block's first lines as its title.

    Return it and the number of lines.
    """
    text = ""
    for count, line in enumerate(block.lines[:_LINES] if titles else (), 1):
        text = f"{text} {line.text}" if text else line.text
        for title in (_folded(text), _folded(re.sub(r"^[\dA-Z.]+\.?\s+", "", text))):
            if titles.get(title):
                return titles[title].pop(0), count
    return None


def _folded(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())
