"""Character references (``&amp;``, ``&#233;``) in texts that keep them as the file has them.

Invariants:
- Only references that end with a semicolon and stand for one character count; what stands in code, CDATA,
  comments or behind a backslash means itself.
- A reference is longer than what it stands for.
- Time is linear in the length of the text, but for a logarithm.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

_REFERENCE: Final = r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_ONE: Final = re.compile(_REFERENCE)
_MARKDOWN: Final = re.compile(rf"\\.|`+|{_REFERENCE}", re.DOTALL)
_TICKS: Final = re.compile("`+")
_XML: Final = re.compile(
    rf"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)|<!DOCTYPE[^>\[]*\[.*?(?:\]\s*>|\Z)|{_REFERENCE}",
    re.DOTALL,
)


def meant(text: str, start: int, end: int | None = None) -> tuple[int, str] | None:
    """Return where the reference at a place of a text ends and the character it stands for.

    None where there is none.
    """
    found = _ONE.match(text, start, len(text) if end is None else end)
    if not found:
        return None
    character = html.unescape(found[0])
    return (found.end(), character) if len(character) == 1 else None


def in_markdown(text: str, start: int, end: int) -> Iterator[int]:
    """Places of the references in a block of Markdown, outside its code spans."""
    if text.find("&", start, end) < 0:
        return
    runs: dict[int, list[int]] = {}  # where runs of backticks begin, by their length
    for run in _TICKS.finditer(text, start, end):
        runs.setdefault(len(run[0]), []).append(run.start())
    position = start
    while found := _MARKDOWN.search(text, position, end):
        position = found.end()
        mark = found[0]
        if mark[0] == "`":
            same = runs.get(len(mark), [])
            closing = bisect_right(same, found.start())
            position = same[closing] + len(mark) if closing < len(same) else position
        elif mark[0] == "&" and _counts(text, found.start(), position):
            yield found.start()


def in_xml(text: str) -> Iterator[int]:
    """Places of the references in an XML file, outside comments, CDATA and declarations."""
    for found in _XML.finditer(text):
        if found[0][0] == "&" and _counts(text, found.start(), found.end()):
            yield found.start()


def _counts(text: str, start: int, end: int) -> bool:
    """Whether a reference stands for something that is read: no white space but one that holds two words together."""
    known = meant(text, start, end)
    if known is None:
        return False
    if not known[1].isspace():
        return True
    around = text[start - 1 : start], text[end : end + 1]
    return known[1] == "\u00a0" and all(one.isalnum() for one in around)
