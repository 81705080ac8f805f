"""Join printed lines into running text.

Invariants:
- A joined line end becomes one space; between Chinese or Japanese characters, nothing.
- A hyphen at a line end is removed where it only breaks the word.
- Where the document has the word elsewhere, its spelling there decides: without the hyphen, or only with it.
- For any other word the hyphen stays in four cases: no lower-case letter follows; it follows a hyphenated prefix; the
  word already has a hyphen; or both parts are words of the document or parts of compounds of the language.
- The last case is not applied in languages that write compounds as one word (German, Dutch, Swedish …).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from parsers.pdf.compounds import FIRST, LAST, ONE_WORD

_HYPHENS: Final = "-\u2010"
_WORDS: Final = re.compile(r"\w+(?:[-\u2010]\w+)*")
_BEFORE: Final = re.compile(r"([\w\u2010-]+)[-\u2010]$")
_AFTER: Final = re.compile(r"\w+")
_HANGING: Final = frozenset(["and", "or", "nor", "und", "oder", "et", "ou", "och", "og", "eller"])
_SENTENCE_START: Final = re.compile(r"(?:^|[.!?:]\s+)[^\W\d_]")
_WORD: Final = 4  # letters: a shorter word is often a syllable too
_CLOSED: Final = ("der", "und", "die", "ist", "nicht", "het", "een", "och", "att", "som", "og", "det", "ja", "egy")
_PARTED: Final = ("the", "of", "and", "is", "to", "de", "la", "les", "el", "que", "et")
_NO_PARTS: Final = """
able ably ages ally also ance ants ated ates been ence ever from have here ings into ions ison just like made make
more most must ness once only over self ship some such than that them then there these they this thus time ting tion
tions under upon very ward well were what when where which will wise with your
"""  # words that are also syllables, or are in no compound
_FUNCTION_WORDS: Final = frozenset(_NO_PARTS.split())
_PREFIXES: Final = frozenset(
    ["all", "anti", "co", "cross", "ex", "half", "ill", "multi", "non", "post", "pre", "pro", "quasi", "self", "well"]
)


class Vocabulary:
    """The words of a document, without those broken at line ends."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._count: Counter[str] = Counter()
        self._lower: set[str] = set()
        broken = False
        for line in lines:
            inner = line[: line.rfind(" ")] if line[-1:] in _HYPHENS and line else line
            if broken:  # the rest of a word
                inner = inner.partition(" ")[2]
            broken = line[-1:] in _HYPHENS and bool(line)
            self._count.update(word.casefold() for word in _WORDS.findall(inner))
            self._lower.update(_WORDS.findall(_SENTENCE_START.sub(lambda match: match.group().lower(), inner)))
        closed = sum(self._count[word] for word in _CLOSED)
        self._parted = closed <= sum(self._count[word] for word in _PARTED)

    def breaks(self, before: str, after: str) -> bool:
        """Return whether a hyphen at a line end only breaks a word."""
        joined, compound = f"{before}{after}".casefold(), f"{before}-{after}".casefold()
        if self._count[joined]:
            return True
        if self._count[compound]:
            return False
        if not after[0].islower() or not before[-1].isalpha():
            return False
        if before.casefold() in _PREFIXES or any(hyphen in before for hyphen in _HYPHENS):
            return False
        return not (self._parted and joined not in ONE_WORD and self._are_words(before.casefold(), after.casefold()))

    def _are_words(self, before: str, after: str) -> bool:
        """Return whether both parts are words, in this document or as parts of compounds."""
        if not (before in FIRST or (before in self._lower and before not in _FUNCTION_WORDS and len(before) >= _WORD)):
            return False
        return after in LAST or (after in self._lower and after not in _FUNCTION_WORDS and len(after) >= _WORD)


def join(lines: Sequence[str], hard: Sequence[bool], vocabulary: Vocabulary) -> str:
    """Return the text of a paragraph.

    Args:
        lines: its lines.
        hard: for each line, whether the author ended it on purpose (an address, a verse): its line end stays.
        vocabulary: the words of the document.
    """
    pieces = list(lines[:1])
    for index, line in enumerate(lines[1:]):
        if hard[index] and pieces[-1][-1:] not in _HYPHENS:
            pieces.append(f"\n{line}")
        else:
            pieces[-1], seam = _seam(pieces[-1], line, vocabulary)
            pieces.append(seam + line)
    return "".join(pieces)


def _seam(above: str, below: str, vocabulary: Vocabulary) -> tuple[str, str]:
    """Return the upper of two lines and the separator before the lower one.

    The upper line comes with or without its hyphen.
    """
    before, after = _BEFORE.search(above) if above[-1:] in _HYPHENS else None, _AFTER.match(below)
    if before and after:
        word = after.group()
        if word in _HANGING:
            return above, " "
        return (above[:-1] if vocabulary.breaks(before.group(1), word) else above), ""
    wide = above[-1:] and below[:1] and _is_wide(above[-1]) and _is_wide(below[0])
    return above, "" if wide else " "


def _is_wide(char: str) -> bool:
    """Return whether a character belongs to a script written without spaces: Chinese or Japanese."""
    return unicodedata.east_asian_width(char) in "WF" and not "\uac00" <= char <= "\ud7a3"
