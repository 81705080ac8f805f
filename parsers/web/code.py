"""Code in HTML: its lines as they are shown, without the numbers beside them.

Invariants:
- Each line that a browser shows is one line here, with its indentation, whether line ends, ``br``, blocks or the rows
  of a table part them.
- A table is code only where every cell beside the code is empty or holds line numbers; any other stays a table.
"""

from __future__ import annotations

import re
from itertools import chain, pairwise
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.languages import LANGUAGES
from parsers.web.dom import Walk, tags
from parsers.web.noise import classes_of, is_gutter, numbers_only

_LINES: Final = tags("div p li ul ol tr table tbody thead pre figure blockquote section")
_ITEMS: Final = tags("li tr")  # lines even where they are empty
_LINE_CLASSES: Final = tags("line token-line code-line view-line ec-line cl")
_CODE_CELL: Final = re.compile(r"(?:[\w-]+-)?code(?:-[\w-]+)*|lines?|line-content|source|lntd|main")
_CODE_TABLE: Final = re.compile(
    r"(?:[\w-]+-)?(?:highlight|code|blob|source|syntax|listing|rouge|lntable|hljs|diff)\w*(?:-[\w-]+)*"
)
_MOST_CELLS: Final = 4  # of a row: two numbers, a sign and the code

_LANGUAGE: Final = re.compile(r"(?:language|lang|highlight-source|highlight|brush:?)[-:]([\w+#.-]+)")
_BESIDE: Final = tags(
    "syntaxhighlighter highlight highlighter-rouge sourcecode hljs codehilite prettyprint code brush:"
)
_NO_LANGUAGE: Final = tags("default none notranslate plaintext text")
_KNOWN: Final = frozenset(LANGUAGES.values())


def code_text(root: LexborNode) -> str:
    """Return the lines below an element as a browser shows them, without blank ones at the ends."""
    return _Lines(root).read().rstrip().lstrip("\n")


def listing(table: LexborNode) -> tuple[str, str | None] | None:
    """Code and language of a table that shows code beside line numbers; None for every other table."""
    rows = _cells(table)
    if not rows or any(len(row) < 2 for row in rows):
        return None
    named = any(map(_CODE_TABLE.fullmatch, classes_of(table.attributes)))
    lines: list[str] = []
    numbers: list[int] = []
    for row in rows:
        *beside, cell = row
        sure = named or any(map(_CODE_CELL.fullmatch, classes_of(cell.attributes)))
        if not (sure or _only_code(cell)) or not all(map(_is_beside, beside)):
            return None
        lines.append(code_text(cell) if len(rows) == 1 else _one_line(cell))
        numbers += _numbers(beside)
    code = "\n".join(lines)
    gutters = all(is_gutter(cell) for row in rows for cell in row[:-1])
    if not gutters and not _counts(numbers, code.count("\n") + 1, sure=named):
        return None
    return code.rstrip().lstrip("\n"), code_language(rows[0][-1].css_first("code, pre") or table) or code_language(
        table
    )


def code_language(node: LexborNode) -> str | None:
    """Return the language that the classes of a code block, of what is in it or around it name."""
    around = [node, node.css_first("code"), node.parent, node.parent.parent if node.parent is not None else None]
    parts = [part for part in around if part is not None]
    names = [(part.attributes.get("class") or "").split() for part in parts]
    for name in chain.from_iterable(names):
        found = _LANGUAGE.fullmatch(name)
        if found and found[1] not in _NO_LANGUAGE:
            return found[1]
    for part in parts:
        stated = part.attributes.get("data-lang") or part.attributes.get("data-language") or ""
        if re.fullmatch(r"[\w+#.-]+", stated) and stated not in _NO_LANGUAGE:
            return stated
    for own in names:
        if not _BESIDE.isdisjoint(name.lower() for name in own):
            return next((name for name in own if name.lower() in _KNOWN), None)
    return None


class _Lines:
    """Writes what is shown below an element, line by line."""

    def __init__(self, root: LexborNode) -> None:
        self._walk = Walk(root)
        self._pieces: list[str] = []
        self._fresh = True  # whether the last line is still empty
        self._begun: list[int] = []  # of the items that are open, how many pieces stood before them

    def read(self) -> str:
        for node, begins in self._walk:
            tag = node.tag or ""
            if node.is_text_node:
                if not _between_lines(node):
                    self._add(node.text_content or "")
            elif tag == "br":
                if begins:
                    self._add("\n")
            elif tag == "button" or (tag in ("td", "th") and begins and is_gutter(node)):
                self._walk.skip()
            elif tag in _LINES:
                self._line(tag, begins)
            elif begins and tag in ("span", "code") and _follows_line(node):
                self._end_line()
        return "".join(self._pieces).replace("\r\n", "\n").replace("\u00a0", " ")

    def _line(self, tag: str, begins: bool) -> None:
        if begins:
            self._end_line()
            if tag in _ITEMS:
                self._begun.append(len(self._pieces))
        elif tag in _ITEMS and self._begun and self._begun.pop() == len(self._pieces):
            self._add("\n")
        else:
            self._end_line()

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._fresh = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._fresh:
            self._add("\n")


def _between_lines(node: LexborNode) -> bool:
    """Return whether a text is the white space between two blocks that are lines."""
    if (node.text_content or "").strip():
        return False
    return any(beside is not None and beside.tag in _LINES for beside in (node.prev, node.next))


def _follows_line(node: LexborNode) -> bool:
    """Return whether an inline element is a line of its own, straight behind another."""
    before = node.prev
    if before is None or before.is_text_node or before.tag != node.tag:
        return False
    return all(not _LINE_CLASSES.isdisjoint(classes_of(one.attributes)) for one in (before, node))


def _cells(table: LexborNode) -> list[list[LexborNode]]:
    """Return the cells of each row of a table that might be a listing; no rows where it cannot be one."""
    rows: list[list[LexborNode]] = []
    in_head = False
    for node, begins in Walk(table):
        tag = node.tag or ""
        if tag == "table":
            return []
        if tag == "thead":
            in_head = begins
        elif in_head or not begins:
            continue
        elif tag == "tr":
            rows.append([])
        elif tag in ("td", "th"):
            if not rows or len(rows[-1]) >= _MOST_CELLS:
                return []
            rows[-1].append(node)
    return [row for row in rows if row]


def _is_beside(cell: LexborNode) -> bool:
    """Return whether a cell may stand beside code: it is empty, holds numbers, or the sign of a change."""
    return numbers_only(cell) or (cell.text() or "").strip() in ("+", "-", "±", "…", "...")


def _only_code(cell: LexborNode) -> bool:
    """Return whether all that stands in a cell stands in ``pre`` or ``code``."""
    found = False
    node = cell.child
    while node is not None:
        if node.is_text_node:
            if (node.text_content or "").strip():
                return False
        elif node.tag in ("pre", "code", "samp") or (node.tag == "div" and node.css_first("pre") is not None):
            found = True
        else:
            return False
        node = node.next
    return found


def _one_line(cell: LexborNode) -> str:
    """Return the code of a cell that is one line; longer where it holds more."""
    return _Lines(cell).read().strip("\n").rstrip()


def _numbers(cells: list[LexborNode]) -> list[int]:
    """Return the line numbers in the last of some cells that has any."""
    for cell in reversed(cells):
        if found := re.findall(r"\d+", cell.text(separator=" ") or cell.attributes.get("data-line-number") or ""):
            return [int(number[:9]) for number in found]
    return []


def _counts(numbers: list[int], lines: int, *, sure: bool) -> bool:
    """Return whether numbers count lines: one after the other, about as many as there are lines, at least two."""
    if any(b != a + 1 for a, b in pairwise(numbers)):
        return False
    return abs(len(numbers) - lines) <= 1 + lines // 10 and (len(numbers) > 1 or (sure and bool(numbers)))
