"""Group the words of a PDF page into rows by baseline.

Invariants:
- Every word is in exactly one row.
- Rows are ordered from top to bottom, their words from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from parsers.pdf.layout.words import Word

_CLAUSE: Final = re.compile(r"[(\[]?\d{1,3}(?:\.\d{1,3}){0,5}[.)\]]?")
_MANY: Final = 500  # words: in a longer row, overlaps with another word are not checked
ABOVE: Final = 0.75  # of the font size: from the baseline to the top of capitals
BELOW: Final = 0.22  # of the font size: from the baseline to the foot of descenders


class Baseline(msgspec.Struct):
    """Words on one baseline, from left to right."""

    words: list[Word]
    base: float
    size: float

    @property
    def x0(self) -> float:
        return self.words[0].x0

    @property
    def x1(self) -> float:
        return max(word.x1 for word in self.words)


def rows(words: Sequence[Word]) -> list[Baseline]:
    """Return words grouped by baseline, from top to bottom.

    A raised or lowered small word is in the row of its neighbours.
    """
    grouped: list[Baseline] = []
    for word in sorted(words, key=lambda word: (word.base, word.x0, word.order)):
        row = _row_of(word, grouped)
        if row is None:
            grouped.append(Baseline([word], word.base, word.size))
        else:
            row.words.append(word)
            if len(word.text) > 1 and word.size > row.size:
                row.base, row.size = word.base, word.size
    for row in grouped:
        row.words.sort(key=lambda word: (word.x0, word.order))
    grouped.sort(key=lambda row: (row.base, row.x0))
    return grouped


def _row_of(word: Word, grouped: list[Baseline]) -> Baseline | None:
    """Return the row of a word; None if it is in none.

    The middle of one must be within the height of the other.
    """
    for row in grouped[-1:-4:-1]:
        if abs(word.base - row.base) < 0.05 * row.size:
            return row
        small, base, size = (word, row.base, row.size) if word.size <= row.size else (None, word.base, word.size)
        middle = word.base - 0.3 * word.size if small else row.base - 0.3 * row.size
        if base - ABOVE * size < middle < base + 0.1 * size and _beside(word, row):
            return row
    return None


def _beside(word: Word, row: Baseline) -> bool:
    """Return whether a word overlaps no word of a row; overlapping text is two lines."""
    if len(row.words) > _MANY:
        return True
    return not any(word.x0 < other.x1 - 0.3 * word.size and other.x0 < word.x1 - 0.3 * word.size for other in row.words)


def segments(row: Baseline, gap: float) -> list[list[Word]]:
    """Return a row's words, split at gaps of at least ``gap`` font sizes."""
    parts = [[row.words[0]]]
    edge = row.words[0].x1
    for word in row.words[1:]:
        if word.x0 - edge >= gap * min(row.size, max(word.size, 0.5 * row.size)):
            parts.append([])
        parts[-1].append(word)
        edge = max(edge, word.x1)
    return parts


def is_mono(row: Baseline) -> bool:
    """Return whether at least 90 % of a row's characters are in a monospace font."""
    return sum(len(word.text) for word in row.words if word.mono) >= 0.9 * sum(len(word.text) for word in row.words)


def is_marker(text: str) -> bool:
    """Return whether a word is the bullet or number of a list item."""
    return is_bullet(text) or is_number(text)


def is_bullet(text: str) -> bool:
    """Return whether a word is a bullet or a symbol font's private use character."""
    return len(text) == 1 and (text in "•◦▪▫‣⁃●○■□◆◇➢➤►▶✓✔∙·–—-*" or "\ue000" <= text <= "\uf8ff")


def is_number(text: str) -> bool:
    """Return whether a word is the number of an item: ``3.``, ``3)``, ``(3)``, ``c)``."""
    body = text.strip("().")
    number = body.isdigit() and len(body) <= 3
    letter = body.isalpha() and len(body) == 1
    return body != text and text[-1] in ".)" and (number or letter)


def is_clause(text: str) -> bool:
    """Return whether a word may be the number of a paragraph: ``3``, ``3.1``, ``(3.1.2)``, ``12.4.``."""
    return bool(_CLAUSE.fullmatch(text))
