"""Number the list items of a Word document.

Invariants:
- A list counts as Word does. It continues across other paragraphs and lists, restarts below a new item of a higher
  level, and starts from its own start value where it sets one.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.docx.styles import W, is_on, value, whole_number

BULLET: Final = "•"
_LEVELS: Final = 9
_ROMAN: Final = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"))
_ROMAN_UNITS: Final = ((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


class _Level(msgspec.Struct):
    form: str = "decimal"
    text: str = ""
    start: int = 1
    restarts: bool = True
    plain: bool = False


class _List(msgspec.Struct):
    abstract: str
    starts: dict[int, int]
    levels: dict[int, _Level]


class Mark(msgspec.Struct, frozen=True):
    """The printed label of a list item, and its number in an ordered list."""

    label: str
    number: int | None


class Numbering:
    """The lists of one document, with their counters.

    Args:
        root: root of its numbering part; None without one.
    """

    def __init__(self, root: _Element | None) -> None:
        self._abstract: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, _List] = {}
        self._counters: dict[str, dict[int, int]] = {}
        self._begun: set[str] = set()
        if root is not None:
            self._read(root)

    def _read(self, root: _Element) -> None:
        links: dict[str, str] = {}
        names: dict[str, str] = {}
        for element in root.iterfind(f"{W}abstractNum"):
            identifier = element.get(f"{W}abstractNumId", "")
            self._abstract[identifier] = _levels(element)
            name, link = value(element.find(f"{W}styleLink")), value(element.find(f"{W}numStyleLink"))
            if name:
                names[name] = identifier
            if link:
                links[identifier] = link
        for identifier, link in links.items():
            self._abstract[identifier] = self._abstract.get(names.get(link, ""), {})
        for element in root.iterfind(f"{W}num"):
            self._lists[element.get(f"{W}numId", "")] = _list(element)

    def next(self, identifier: str, level: int) -> Mark:
        """Count one item and return its mark.

        Args:
            identifier: the ``numId`` of its list.
            level: from 0.
        """
        level = min(max(level, 0), _LEVELS - 1)
        listing = self._lists.get(identifier) or _List(identifier, {}, {})
        counters = self._counters.setdefault(listing.abstract, {})
        if identifier not in self._begun:
            self._begun.add(identifier)
            for low, start in listing.starts.items():
                counters[low] = start - 1
        own = self._level(listing, level)
        counters[level] = counters.get(level, own.start - 1) + 1
        for deeper in [low for low in counters if low > level and self._level(listing, low).restarts]:
            del counters[deeper]
        if own.form == "bullet":
            return Mark(BULLET, None)
        if own.form == "none":
            return Mark("", None)
        return Mark(self._label(listing, own, counters), counters[level])

    def _level(self, listing: _List, level: int) -> _Level:
        found = listing.levels.get(level) or self._abstract.get(listing.abstract, {}).get(level)
        return found or _Level(text=f"%{level + 1}.")

    def _label(self, listing: _List, own: _Level, counters: dict[int, int]) -> str:
        def counted(match: re.Match[str]) -> str:
            at = int(match.group(1)) - 1
            level = self._level(listing, at)
            return _formatted(counters.get(at, level.start), "decimal" if own.plain else level.form)

        return re.sub(r"%([1-9])", counted, own.text).strip()


def _levels(element: _Element) -> dict[int, _Level]:
    found = {}
    for part in element.iterfind(f"{W}lvl"):
        level = whole_number(part.get(f"{W}ilvl"))
        if level is not None:
            found[level] = _level(part)
    return found


def _level(part: _Element) -> _Level:
    start = whole_number(value(part.find(f"{W}start")))
    plain = part.find(f"{W}isLgl")
    return _Level(
        form=value(part.find(f"{W}numFmt")) or "decimal",
        text=value(part.find(f"{W}lvlText")) or "",
        start=1 if start is None else start,
        restarts=value(part.find(f"{W}lvlRestart")) != "0",
        plain=plain is not None and is_on(value(plain)),
    )


def _list(element: _Element) -> _List:
    listing = _List(value(element.find(f"{W}abstractNumId")) or "", {}, {})
    for part in element.iterfind(f"{W}lvlOverride"):
        level = whole_number(part.get(f"{W}ilvl"))
        start = whole_number(value(part.find(f"{W}startOverride")))
        own = part.find(f"{W}lvl")
        if level is not None and own is not None:
            listing.levels[level] = _level(own)
        if level is not None and start is not None:
            listing.starts[level] = start
    return listing


def _formatted(count: int, form: str) -> str:
    if count > 0 and form in ("lowerLetter", "upperLetter"):
        text = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)  # a … z, aa, bb, as Word counts
        return text.upper() if form == "upperLetter" else text
    if 0 < count < 4000 and form in ("lowerRoman", "upperRoman"):
        text = ""
        for size, digits in (*_ROMAN, *_ROMAN_UNITS):
            text += digits * (count // size)
            count %= size
        return text.upper() if form == "upperRoman" else text
    return f"{count:02d}" if form == "decimalZero" else str(count)
