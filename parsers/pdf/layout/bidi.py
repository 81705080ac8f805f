"""Put the right-to-left text of a PDF into logical order.

A file draws glyphs at positions. PDFium guesses their order, and reverses a line with right-to-left letters.

Invariants:
- A glyph keeps the text that its font gives it.
- Glyphs are ordered by position alone: from right to left in right-to-left words, from left to right in other words and
  in numbers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

_LETTERS: Final = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
RIGHT_TO_LEFT: Final = re.compile(f"[{_LETTERS}]")
_PRESENTATION_FORMS: Final = (*range(0xFB1D, 0xFE00), *range(0xFE70, 0xFEFD))
_SPELLED_OUT: Final = frozenset(
    text for text in (unicodedata.normalize("NFKC", chr(code)) for code in _PRESENTATION_FORMS) if len(text) > 1
)
_TURNED: Final = str.maketrans("()[]{}", ")(][}{")
_WORD_GAP: Final = 0.15  # of the font size; letters of one word touch, and spaces are a quarter wide

Item = TypeVar("Item")


class Glyph(NamedTuple):
    """A character as PDFium lists it.

    Attributes:
        text: the character.
        place: its index in PDFium's list.
        left, right: its edges in points; the characters of a ligature share them.
        unnamed: whether the font has no Unicode mapping for it.
    """

    text: str
    place: int
    left: float
    right: float
    unnamed: bool = False


def is_right_to_left(text: str) -> bool:
    """Return whether a text has a right-to-left letter."""
    return any(unicodedata.bidirectional(match.group()) in ("R", "AL") for match in RIGHT_TO_LEFT.finditer(text))


def base_is_right_to_left(texts: Sequence[str], otherwise: bool = False) -> bool:
    """Return whether most parts of a line with letters are right-to-left.

    Args:
        texts: its parts.
        otherwise: the result when as many parts are left-to-right.
    """
    if not any(RIGHT_TO_LEFT.search(text) for text in texts):
        return False
    directions = [_direction(text) for text in texts]
    right, left = directions.count("R"), directions.count("L")
    return right > left or (otherwise and right == left)


def logical_order(items: Sequence[Item], texts: Sequence[str], right_to_left: bool) -> list[Item]:
    """Return items in reading order.

    Args:
        items: the items of a line, from left to right.
        texts: their texts, which give the direction of each.
        right_to_left: whether the line as a whole is read from right to left.
    """
    order = list(range(len(items)))
    base, other = ("R", "L") if right_to_left else ("L", "R")
    if right_to_left:
        order.reverse()
    directions = [_direction(texts[index]) for index in order]
    start = 0
    while start < len(order):
        if directions[start] != other:
            start += 1
            continue
        end = next((i for i in range(start, len(order)) if directions[i] == base), len(order))
        last = max(i for i in range(start, end) if directions[i] == other)
        order[start : last + 1] = order[start : last + 1][::-1]
        start = last + 1
    return [items[index] for index in order]


def brackets_set_right(text: str) -> str:
    """Return a line with its brackets mirrored if more of them match that way.

    In right-to-left text, some PDF writers encode a bracket by its meaning and others by its shape.
    """
    turned = text.translate(_TURNED)
    return turned if _unmatched(turned) < _unmatched(text) else text


def _unmatched(text: str) -> int:
    opened, wrong = [], 0
    for char in text:
        if char in "([{":
            opened.append(char)
        elif char in ")]}":
            if opened and opened[-1] == char.translate(_TURNED):
                opened.pop()
            else:
                wrong += 1
    return wrong + len(opened)


def logical_words(glyphs: Sequence[Glyph], size: float) -> Iterator[tuple[str, list[Glyph]]]:
    """Yield the words of a line from left to right, with text and glyphs.

    The text is in logical order.

    Args:
        glyphs: the line as PDFium lists it, spaces included.
        size: its font size in points.
    """
    turned = any(is_right_to_left(glyph.text) for glyph in glyphs)
    clusters = _clusters([glyph for glyph in glyphs if glyph.text.isprintable() or glyph.text.isspace()], turned)
    if turned:
        clusters = sorted(_without_shadows(clusters), key=lambda cluster: (cluster.left + cluster.right, cluster.place))
    word: list[Glyph] = []
    for cluster in clusters:
        apart = cluster.text.isspace() or bool(word and cluster.left - word[-1].right > _WORD_GAP * size and turned)
        if word and apart:
            yield _word(word), word
            word = []
        if not cluster.text.isspace():
            word.append(cluster)
    if word:
        yield _word(word), word


def _direction(text: str) -> str:
    """Return ``R`` for right-to-left text, ``L`` for text with other letters, and empty without letters."""
    if is_right_to_left(text):
        return "L" if text[-1].isascii() and text[-1].isalpha() else "R"
    return "L" if any(char.isalpha() for char in text) else ""


def _word(clusters: Sequence[Glyph]) -> str:
    """Return a word's text: its glyphs in reading order, with combining marks after their letter."""
    letters: list[Glyph] = []
    marks: list[Glyph] = []
    for cluster in clusters:
        (marks if all(unicodedata.combining(char) for char in cluster.text) else letters).append(cluster)
    texts = [cluster.text for cluster in letters]
    for mark in sorted(marks, key=lambda mark: mark.place):
        middle = (mark.left + mark.right) / 2
        nearest = min(range(len(letters)), key=lambda i: _distance(letters[i], middle), default=None)
        if nearest is None:
            texts.append(mark.text)
        else:
            texts[nearest] += mark.text
    right_to_left = any(_direction(text) == "R" for text in texts)
    kinds = ["a" if text[:1].isdigit() else text for text in texts[: len(letters)]]  # a number is read from the left
    ordered = logical_order(texts[: len(letters)], kinds, right_to_left) if letters else texts
    return "".join(ordered)


def _distance(letter: Glyph, middle: float) -> float:
    if letter.left <= middle <= letter.right:
        return 0.0
    return min(abs(letter.left - middle), abs(letter.right - middle))


def _clusters(glyphs: Sequence[Glyph], turned: bool) -> list[Glyph]:
    """Merge the characters of each ligature, in the order of the font's mapping.

    These characters share their edges.
    """
    shared: dict[tuple[float, float], list[Glyph]] = {}
    alone: list[Glyph] = []
    for glyph in glyphs:
        if turned and glyph.right - glyph.left > 0.01:
            shared.setdefault((round(glyph.left, 2), round(glyph.right, 2)), []).append(glyph)
        else:
            alone.append(glyph)
    # PDFium reverses the parts of a line unless most of them are left-to-right.
    reverse = base_is_right_to_left(["".join(g.text for g in glyphs)]) if turned else False
    return alone + [_cluster(group, reverse) for group in shared.values()]


def _cluster(group: list[Glyph], reverse: bool) -> Glyph:
    if len(group) == 1:
        return group[0]
    pieces: list[list[Glyph]] = [[group[0]]]
    for glyph in group[1:]:
        if glyph.place == pieces[-1][-1].place + 1:
            pieces[-1].append(glyph)
        else:
            pieces.append([glyph])
    texts = ["".join(glyph.text for glyph in piece) for piece in pieces]
    texts = [text[::-1] if is_right_to_left(text) and text not in _SPELLED_OUT else text for text in texts]
    text = "".join(reversed(texts) if reverse else texts)
    return group[0]._replace(text=text, unnamed=all(glyph.unnamed for glyph in group))


def _without_shadows(clusters: Sequence[Glyph]) -> list[Glyph]:
    """Return the glyphs without unmapped ones and those inside a whole-word glyph.

    Some PDF writers map the first glyph of a word to the whole word and leave the others unmapped. PDFium then invents
    characters for these.
    """
    wide = [cluster for cluster in clusters if len(cluster.text.strip()) > 3]
    return [
        cluster
        for cluster in clusters
        if cluster in wide
        or not (
            (cluster.unnamed and not cluster.text.isascii())
            or any(word.left <= cluster.left and cluster.right <= word.right for word in wide)
        )
    ]
