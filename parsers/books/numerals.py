"""Numbers as books print them: ``IV``, ``4``, ``Forty-five``, ``FOURTH``."""

from __future__ import annotations

import re
from typing import Final

_ROMAN: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
# IIII for IV is how old editions print it.
_IS_ROMAN: Final = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,4})(?:IX|IV|V?I{0,4})")
_CARDINALS: Final = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_ORDINALS: Final = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)  # fmt: skip
_TENS: Final = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS: Final = (
    {word: n for n, word in enumerate(_CARDINALS, 1)}
    | {word: n for n, word in enumerate(_ORDINALS, 1)}
    | {word: n * 10 for n, word in enumerate(_TENS, 2)}
    | {word[:-1] + "ieth": n * 10 for n, word in enumerate(_TENS, 2)}
)


def number(word: str) -> int | None:
    """Return the number that a word stands for: Arabic or Roman figures, or an English word up to ninety-nine."""
    if word.isascii() and word.isdigit():
        return int(word)
    if word and word.isupper() and _IS_ROMAN.fullmatch(word):
        values = [_ROMAN[letter] for letter in word]
        return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))
    parts = word.lower().split("-")
    if len(parts) > 2 or any(part not in _WORDS for part in parts):
        return None
    if len(parts) == 1:
        return _WORDS[parts[0]]
    tens, ones = _WORDS[parts[0]], _WORDS[parts[1]]
    return tens + ones if tens >= 20 and tens % 10 == 0 and ones < 10 else None
