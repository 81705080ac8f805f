"""Find watermarks and stamps drawn across the text of a PDF page.

Invariants:
- A watermark is a line of a few words. It is slanted, and large or repeated on several pages; or it is very large, with
  lines of text running through it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Literal

from parsers.pdf.layout.lines import Line
from parsers.pdf.layout.words import SKEWED, from_upright

_WORDS: Final = 6
_SLANTED: Final = 1.5  # of the body size: a slanted line this large is a watermark even on a single page
_LARGE: Final = 2.5  # of the body size: a line this large is a watermark where text runs through it
_CROSSED: Final = 2  # least number of lines of text that run through it
_PAGES: Final = 2


def watermarks(pages: Sequence[Sequence[Line]], body: float) -> dict[int, Literal["watermark"]]:
    """Return the lines that are watermarks, by their ``id``.

    Args:
        pages: the lines of each page.
        body: font size of most of the text, in points.
    """
    slanted: dict[str, set[int]] = defaultdict(set)
    for number, lines in enumerate(pages):
        for line in lines:
            if line.angle == SKEWED:
                slanted[line.text].add(number)
    found: dict[int, Literal["watermark"]] = {}
    for lines in pages:
        for line in lines:
            if line.table or len(line.text.split()) > _WORDS:
                continue
            if line.angle == SKEWED:
                marked = line.size >= _SLANTED * body or len(slanted[line.text]) >= _PAGES
            else:
                marked = line.size >= _LARGE * body and _crossed(line, lines)
            if marked:
                found[id(line)] = "watermark"
    return found


def _crossed(line: Line, lines: Sequence[Line]) -> bool:
    """Return whether at least ``_CROSSED`` lines of smaller text run through a line."""
    x0, y0, x1, y1 = _box(line)
    count = 0
    for other in lines:
        if other.size < 0.6 * line.size:
            a0, b0, a1, b1 = _box(other)
            count += min(x1, a1) - max(x0, a0) > other.size and min(y1, b1) - max(y0, b0) > 0.5 * (b1 - b0)
    return count >= _CROSSED


def _box(line: Line) -> tuple[float, float, float, float]:
    """Return the area of the page that a line covers."""
    side = -1 if line.mirrored else 1
    (ax, ay), (bx, by) = (
        from_upright(u, v, line.angle) for u, v in ((side * line.x0, line.top), (side * line.x1, line.bottom))
    )
    return min(ax, bx), min(ay, by), max(ax, bx), max(ay, by)
