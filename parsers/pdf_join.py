"""Lines of print joined to running text.

Kept here: a joined line end is one space, none between Chinese or Japanese characters; a hyphen at a line end goes
where it only breaks the word. The document itself says so where it writes the word elsewhere, without or only with the
hyphen. For any other word the hyphen stays where no lower-case letter follows, after a prefix that is written with one,
and in a word that already has one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

_HYPHENS: Final = "-\u2010"
_WORDS: Final = re.compile(r"\w+(?:[-\u2010]\w+)*")
_BEFORE: Final = re.compile(r"([\w\u2010-]+)[-\u2010]$")
_AFTER: Final = re.compile(r"\w+")
_HANGING: Final = frozenset(["and", "or", "nor", "und", "oder", "et", "ou", "och", "og", "eller"])
_PREFIXES: Final = frozenset(
    ["all", "anti", "co", "cross", "ex", "half", "ill", "multi", "non", "post", "pre", "pro", "quasi", "self", "well"]
)


class Vocabulary:
    """The words of a document, as they stand within its lines."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._count: Counter[str] = Counter()
        for line in lines:
            inner = line[: line.rfind(" ")] if line[-1:] in _HYPHENS and line else line
            self._count.update(word.casefold() for word in _WORDS.findall(inner))

    def breaks(self, before: str, after: str) -> bool:
        """Whether the hyphen between two parts of a word only breaks it at a line end."""
        joined, compound = f"{before}{after}".casefold(), f"{before}-{after}".casefold()
        if self._count[joined]:
            return True
        if self._count[compound]:
            return False
        if not after[0].islower() or not before[-1].isalpha():
            return False
        return before.casefold() not in _PREFIXES and not any(hyphen in before for hyphen in _HYPHENS)


def join(lines: Sequence[str], hard: Sequence[bool], vocabulary: Vocabulary) -> str:
    """The text of a paragraph.

    Args:
        lines: its lines.
        hard: for each line, whether it ends where the writer ended it (an address, a verse): the line end stays.
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
    """The upper of two lines, with its hyphen or without, and what stands between it and the lower one."""
    before, after = _BEFORE.search(above) if above[-1:] in _HYPHENS else None, _AFTER.match(below)
    if before and after:
        word = after.group()
        if word in _HANGING:
            return above, " "
        return (above[:-1] if vocabulary.breaks(before.group(1), word) else above), ""
    wide = above[-1:] and below[:1] and _is_wide(above[-1]) and _is_wide(below[0])
    return above, "" if wide else " "


def _is_wide(char: str) -> bool:
    """Whether a character belongs to a script written without spaces: Chinese or Japanese."""
    return unicodedata.east_asian_width(char) in "WF" and not "\uac00" <= char <= "\ud7a3"
