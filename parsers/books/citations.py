"""How a work is cited: ``Livy, History of Rome``."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Final

from parsers.books.numerals import number

# Volumes, ranges of books and the like, which belong to an edition and not to the work.
_EDITION: Final = re.compile(
    r"[\s,;:.]*(?:\(?(?:vol(?:ume|s)?|v)\b\.?\s*(?:\d+|[IVXLC]+)?.*|\bbooks?\s+(?:\w+ to |\d|[IVXLC]+\b).*|\(of \d+\).*"
    r"|\bcomplete\b.*|\(?abridged\)?.*)$",
    re.IGNORECASE,
)
_VOLUME: Final = re.compile(r"\bv(?:ol(?:ume)?)?\b\.?\s*(\d{1,3}|[IVXLC]+)\b", re.IGNORECASE)
_NOTE: Final = re.compile(r"\s*\[\d+\]")
_OR: Final = re.compile(r"[\"”]|[,;]?\s+or,?\s+(?:the\s+)?(?=[A-Z])", re.IGNORECASE)
_ARTICLE: Final = re.compile(r"^the\s+", re.IGNORECASE)
_WRAPPED: Final = 45  # columns from which a title's first line is taken to go on in the next
_SMALL: Final = frozenset(["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"])
_MARKS: Final = ' \t_*.,:;"“”-—'


def cited(author: str, title: str) -> str:
    """Return author and title as a citation names them.

    Args:
        author: as a book's header prints it; empty where it prints none.
        title: of the book, in the lines that its header prints, or of one of the works in it.
    """
    name = _author(author)
    first, _, subtitle = title.partition("\n")
    work = _work(first if len(first) < _WRAPPED else f"{first} {subtitle}", name)
    return f"{name}, {work}" if name else work


def volume(title: str) -> int | None:
    """Return the number of the volume that a title names."""
    found = _VOLUME.search(title)
    return number(found[1]) if found else None


def _author(author: str) -> str:
    """Return the name that a citation gives: the last of a modern one, the place of an ancient one left off."""
    known = _names()["authors"]
    names = []
    for person in re.split(r"\s+and\s+|\s*&\s*", " ".join(author.split())):
        if person:
            names.append(known.get(person) or re.split(r"\s+(?:of|the)\s+", person)[0].split()[-1])
    return " and ".join(names)


def _work(title: str, name: str) -> str:
    words = _EDITION.sub("", _NOTE.sub("", " ".join(title.split()))).strip(_MARKS)
    words = _OR.split(words)[0].strip(_MARKS)
    capitals = words.isupper()
    words = " ".join(
        word.lower() if place and word.lower() in _SMALL else word.capitalize() if capitals else word
        for place, word in enumerate(words.split())
    )
    words = _ARTICLE.sub("", words)
    if known := _names()["works"].get(words):
        return known
    if name:
        own = "|".join(map(re.escape, sorted({name, _plain(name)})))
        words = re.sub(rf"^(?:{own})['’]s?\s+|\s+of\s+(?:{own})\b.*$", "", words, flags=re.IGNORECASE)
        words = _ARTICLE.sub("", words)
    words = words[:1].upper() + words[1:]
    return _names()["works"].get(words, words)


def _plain(word: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))


@cache
def _names() -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = tomllib.loads(
        files("parsers.books").joinpath("works.toml").read_text(encoding="utf-8")
    )
    return names
