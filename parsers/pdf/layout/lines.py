"""Build printed lines and table rows of a PDF page from words.

Invariants:
- Every word of a row is in its line's text once. Words that touch have no space between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from parsers.pdf.layout.baselines import ABOVE, BELOW, Baseline, is_bullet, is_mono
from parsers.pdf.layout.bidi import RIGHT_TO_LEFT, base_is_right_to_left, brackets_set_right, logical_order
from parsers.pdf.layout.words import Angle, Word

MONO_WIDTH: Final = 0.6  # of the font size: the width of a character in Courier and similar fonts
_RAISED: Final = 0.8  # of the font size: a smaller word at the beginning of a line is a footnote mark
_TOUCHING: Final = 0.12  # of the font size: words nearer than this have no space between them


class Line(msgspec.Struct):
    """A line of a column, or a row of a table.

    Attributes:
        text: its words joined by spaces; for a row, its cells joined by `` | ``.
        x0, x1: edges in points, in the upright frame of its direction of writing.
        base: height of the baseline in points, downwards.
        size: font size of most of its characters, in points.
        bold, mono: whether nearly all of its characters are bold or monospace.
        first: width of its first word in points.
        second: left edge of its second word; of its first where it has only one.
        column: number of its column on the page, from 0 in reading order.
        left, right: edges of its column in points.
        cells: texts of the cells of a row, with the line ends within a cell; empty for a line.
        table: number of the row's table on the page, from 1; 0 for a line.
        header: whether a row is a header row, by drawn lines or by its place; None where unknown.
        edges: right edges of the table's columns in points, or the middles of the strips between them; for a row.
        gaps: number of gaps at least as wide as between cells; for a line.
        page: 1-based page.
        angle: direction of writing in quarter turns anticlockwise, in page space.
        order: its position in drawing order.
        mirrored: whether its edges count from the right; a line read from the right then also begins at ``x0``.
    """

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    mono: bool
    first: float
    second: float = 0.0
    column: int = 0
    left: float = 0.0
    right: float = 0.0
    cells: tuple[str, ...] = ()
    table: int = 0
    header: bool | None = None
    edges: tuple[float, ...] = ()
    gaps: int = 0
    page: int = 0
    angle: Angle = 0
    order: int = 0
    mirrored: bool = False

    def mirror(self) -> None:
        """Mirror the edges, so that they count from the right."""
        self.x0, self.x1 = -self.x1, -self.x0
        self.left, self.right = -self.right, -self.left
        self.second, self.mirrored = self.x0, True

    @property
    def top(self) -> float:
        return self.base - ABOVE * self.size

    @property
    def bottom(self) -> float:
        return self.base + BELOW * self.size


def line_of(row: Baseline, cells: tuple[str, ...] = (), turned: bool = False) -> Line:
    """Return a row of words as a line.

    Args:
        row: its words.
        cells: texts of the cells, for a row of a table.
        turned: whether it is read from the right.
    """
    first = row.words[-1] if turned else row.words[0]
    total = sum(len(word.text) for word in row.words)
    mono = is_mono(row) and not is_bullet(row.words[0].text)
    text = row_text(cells) if cells else _set_out(row) if mono else words_text(row.words, row.size, turned)
    return Line(
        text=text,
        x0=row.x0,
        x1=row.x1,
        base=row.base,
        size=_most(row.words, lambda word: word.size),
        bold=sum(len(word.text) for word in row.words if word.bold) >= 0.9 * total,
        mono=mono,
        first=first.x1 - first.x0,
        second=row.words[1].x0 if len(row.words) > 1 else row.x0,
        cells=cells,
        order=min(word.order for word in row.words),
    )


def row_text(cells: Sequence[str]) -> str:
    """Return the text of a table row, with the lines of its cells joined."""
    return " | ".join(cell.replace("\n", " ") for cell in cells).strip()


def words_text(words: Sequence[Word], size: float, turned: bool) -> str:
    """Return the text of words in reading order, without spaces between words that touch.

    Args:
        words: the words from left to right.
        size: font size in points.
        turned: whether the line is read from the right when its words leave it open.
    """
    texts = [word.text for word in words]
    if RIGHT_TO_LEFT.search("".join(texts)):
        ordered = logical_order(words, texts, base_is_right_to_left(texts, turned))
        return brackets_set_right(" ".join(word.text for word in ordered))
    pieces: list[str] = []
    for index, word in enumerate(words):
        gap = word.x0 - words[index - 1].x1 if index else 0.0
        raised = index == 1 and words[0].size < _RAISED * size  # the mark of a footnote
        if index and (raised or gap > _TOUCHING * size or (word.space and gap > -_TOUCHING * size)):
            pieces.append(" ")
        pieces.append(word.text)
    return "".join(pieces)


def _set_out(row: Baseline) -> str:
    """Return a line of code with as many spaces as its gaps are wide."""
    text = row.words[0].text
    for above, word in pairwise(row.words):
        spaces = round((word.x0 - above.x1) / (MONO_WIDTH * row.size))
        text += " " * max(spaces, int(word.space)) + word.text
    return text


def _most(words: Sequence[Word], key: Callable[[Word], float]) -> float:
    weights: Counter[float] = Counter()
    for word in words:
        weights[key(word)] += len(word.text)
    return min(weights, key=lambda value: (-weights[value], -value))
