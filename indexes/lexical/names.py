"""Names that words alone do not tell: capitals, numbers with marks, brands with signs, sections of a law.

Invariants: the names of a token depend on that token alone; work grows linearly with its length.

- Capitals that spell a word of grammar: ``WHO``, ``IT``, ``US``. Taking all words in capitals for names cost recall at
  10 of BM25: 85.9 to 81.7 on the code benchmark.
- Numbers with points, thousands marks, colons or slashes (``2.1``, ``1,000.50``, ``3:16``), as they are written. Those
  with thousands marks also without them and with a decimal point: ``1.000,50`` and ``1,000.50`` are ``1000.50``.
- Brands with signs: ``AT&T``, ``C++``, ``.NET``, ``Yahoo!``, ``I/O``, ``T-Mobile``.
- Sections: ``§12``, ``5(1)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LIMIT: Final = 64  # characters; a longer token has no names

_CAPITALS: Final = re.compile(r"(?<![^\W_])[A-Z]{2,}(?![^\W_])")
_NUMBER: Final = re.compile(r"(?<![\w.,'’])[vV]?(\d+(?:[.,'’:/]\d+)+)(?!\w)")
_SIGNED: Final = re.compile(
    r"(?<![\w&=;?])[^\W\d_]+(?:&[^\W\d_]+)+(?![\w&=;])"  # AT&T, R&D
    r"|(?<!\w)[A-Za-z]\w*(?:\+\+\d*|\+|#)(?![\w+])"  # C++, C++17, Notepad++, C#, Disney+
    r"|(?<![\w.)\]}])\.[A-Za-z]\w*"  # .NET
    r"|(?<!\w)[A-Za-z]\w*!(?![\w!=])"  # Yahoo!
    r"|(?<!\w)[A-Za-z]+[$!][A-Za-z]+(?!\w)"  # P!nk
    r"|(?<![\w*])[A-Za-z]\*(?![\w*])"  # A*
    r"|(?<![\w/])[A-Z]{1,5}(?:/[A-Z]{1,5})+(?![\w/])"  # I/O, TCP/IP
    r"|(?<![\w-])[A-Za-z]-[A-Za-z]+(?![\w-])"  # T-Mobile
    r"|§+\d+[A-Za-z]?(?!\w)"  # §12
    r"|(?<!\w)\d{1,5}[A-Za-z]?(?:\(\w{1,4}\))+"  # 5(1)
)
_ENGLISH: Final = re.compile(r"\d{1,3}(?:[,'’]\d{3})+(?:\.\d+)?")
_CONTINENTAL: Final = re.compile(r"\d{1,3}(?:[.'’]\d{3})+(?:,\d+)?")
_SECTION: Final = re.compile(r"§+\s*(?=\d)")


def join_sections(text: str) -> str:
    """Write a section's sign and its number as one token."""
    return _SECTION.sub("§", text) if "§" in text else text


def names_of(token: str) -> Iterator[str]:
    """Yield names in a text without blanks, as they are written."""
    if len(token) > LIMIT or (token.islower() and token.isalpha()):
        return
    for match in _NUMBER.finditer(token):
        yield from dict.fromkeys(_spellings(match[1]))
    for match in _SIGNED.finditer(token):
        yield match[0].replace("§§", "§")


def capitals(token: str) -> list[str]:
    """Return Words of a few capitals in a text without blanks, but for those within another name."""
    return _CAPITALS.findall(_SIGNED.sub(" ", token)) if len(token) <= LIMIT and not token.islower() else []


def _spellings(number: str) -> Iterator[str]:
    """Yield a number as it is written, and without thousands marks."""
    yield number
    if _ENGLISH.fullmatch(number):
        yield re.sub("[,'’]", "", number)
    if _CONTINENTAL.fullmatch(number):
        yield re.sub("[.'’]", "", number).replace(",", ".")
