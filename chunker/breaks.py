"""Where a text without sentence ends may be cut.

Invariants:
- A cut is made behind white space where there is some, after a pause rather than elsewhere; else where a word or
  syllable ends by the rules below; else between grapheme clusters of Unicode; inside a cluster only where it alone is
  longer than what may be taken.
- Cuts lie in the last half of what fits, so that no more than twice the text is looked at.

Thai, Lao, Khmer, Burmese and Tibetan put white space between phrases. In a phrase too long for a chunk, a cut stands at
a zero-width space or a Tibetan tsheg, else between syllables as far as letters alone tell: never before a vowel that is
written behind its consonant, nor behind one written before it, nor before a final or a stacked consonant.
"""

from __future__ import annotations

from typing import Final

import regex  # type: ignore[import-untyped]  # it ships no types

_PAUSES: Final = ",;:，；：、،؛—–།༎၊။៕។"
_WORD_ENDS: Final = "\u200b\u0f0b\u0f0c"  # zero-width space, tsheg
_LATE_ENDS: Final = ",;:，；：、。！？）」』】|/&?!)]}>="  # signs behind which a run without white space is cut
_NOT_BEFORE: Final = regex.compile(  # Thai and Lao vowels and signs behind a consonant; Burmese finals and stacks
    r"[\u0e2f\u0e30\u0e32\u0e33\u0e45\u0e46\u0eaf\u0eb0\u0eb2\u0eb3\u0ebd\u0ec6]|[\u1000-\u1021]\u1037?[\u1039\u103a]"
)
_NOT_BEHIND: Final = "\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u17d2\u1039"
_CLUSTER: Final = regex.compile(r"\X")
_LOOK_BACK: Final = 64  # characters before a place in which the beginning of its cluster is looked for
_LONGEST_CLUSTER: Final = 128  # characters; a longer cluster is cut
_FLAG_LETTERS: Final = ("\U0001f1e6", "\U0001f1ff")


def cut_before(text: str, start: int, fits: int) -> int:
    """Return the best place for a cut in ``(start, fits]``."""
    half = start + (fits - start) // 2
    spaced = 0
    for position in range(fits, half, -1):
        if text[position - 1].isspace():
            if position - 2 >= start and text[position - 2] in _PAUSES:
                return position
            spaced = spaced or position
    if spaced:
        return spaced
    for signs in (_WORD_ENDS, _LATE_ENDS):
        for position in range(fits, half, -1):
            if text[position - 1] in signs and is_boundary(text, start, position):
                return position
    for position in range(fits, max(half, fits - _LONGEST_CLUSTER), -1):
        if _between_syllables(text, position) and is_boundary(text, start, position):
            return position
    for position in range(fits, max(start, fits - _LONGEST_CLUSTER), -1):
        if is_boundary(text, start, position):
            return position
    return fits


def _between_syllables(text: str, position: int) -> bool:
    return text[position - 1] not in _NOT_BEHIND and not _NOT_BEFORE.match(text, position)


def is_boundary(text: str, start: int, position: int) -> bool:
    """Return whether no grapheme cluster reaches over a place, seen from ``start`` or a little before the place."""
    if position >= len(text):
        return True
    if text[position - 1].isascii() and text[position].isascii():
        return text[position - 1 : position + 1] != "\r\n"
    if _is_flag_letter(text[position - 1]) and _is_flag_letter(text[position]):
        first = position
        while first > start and _is_flag_letter(text[first - 1]):
            first -= 1
        return (position - first) % 2 == 0
    begin = max(start, position - _LOOK_BACK)
    for cluster in _CLUSTER.finditer(text, begin, position + 2):
        if cluster.end() >= position:
            return bool(cluster.end() == position)
    return True


def _is_flag_letter(character: str) -> bool:
    return _FLAG_LETTERS[0] <= character <= _FLAG_LETTERS[1]
