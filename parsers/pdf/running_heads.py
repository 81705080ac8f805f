"""Find the running heads and feet of a PDF.

Invariants:
- A running line is at the top or foot of its page, with no other text between it and the edge.
- Other pages have the same text at the same height, except for numbers that count the pages; or the line is an
  isolated page number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from parsers.pdf.layout.lines import Line

_ZONE: Final = 0.2  # of the page's height, at its top and its foot: the widest margins of books
_OUTERMOST: Final = 3  # lines of a page, from its top and from its foot
_NEAR: Final = 8  # heads of the same pattern, before and after, with which one is compared
_SAME_HEIGHT: Final = 3.0  # points
_LARGE: Final = 1.15  # of the body size: a larger line is a heading unless most pages have it
_MOST: Final = 0.4  # of the pages
_NEXT_LINE: Final = 1.55  # font sizes: the most from a line to the next one of its paragraph
_FORM: Final = 0.5  # of a page's characters: with a larger share also on other pages, the page is a form
_FORM_LINES: Final = 5
_ROMAN: Final = re.compile(r"[ivxlc]{1,7}", re.IGNORECASE)
_PAGE_NUMBER: Final = re.compile(
    r"\W*(?:(?:page|p\.|seite|s\.|página|pagina|strana|sida|side)\s*)?(?:\d{1,4}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von|de|sur|di|af|av|z)\s*\d{1,4})?\W*",
    re.IGNORECASE,
)


def running_lines(
    pages: Sequence[Sequence[Line]],
    extents: Sequence[Mapping[int, tuple[float, float]]],
    body: float,
    scans: Collection[int] = (),
) -> dict[int, Literal["header", "footer"]]:
    """Return ``header`` or ``footer`` for each running line, by its ``id``.

    Args:
        pages: the lines of each page.
        extents: heights of each page's top and foot in the upright frame of each direction of writing.
        body: font size of most of the text, in points.
        scans: pages, from 0, that are images with hardly any text.
    """
    bodies = [_body(lines, extents[number]) for number, lines in enumerate(pages)]
    stacks = [stack for number, lines in enumerate(pages) for stack in _stacks(number, lines, extents[number])]
    repeated, counting = _repeated([head for stack in stacks for head in stack], bodies, body)
    forms = _forms(pages, bodies)
    found: dict[int, Literal["header", "footer"]] = {}
    for stack in stacks:
        kept: list[_Head] = []
        for head in stack:
            alike = id(head.lines[0]) in repeated and (head.page not in forms or id(head.lines[0]) in counting)
            if not alike and not _is_lone_number(head, pages[head.page], head.page in scans):
                break
            kept.append(head)
        while kept and not _PAGE_NUMBER.fullmatch(kept[-1].text) and _joins(kept[-1], pages[kept[-1].page]):
            kept.pop()
        found.update((id(line), head.zone) for head in kept for line in head.lines)
    return found


def _joins(head: _Head, lines: Sequence[Line]) -> bool:
    """Return whether a head and the next line inwards look like one paragraph."""
    line, sign = head.lines[0], 1 if head.zone == "header" else -1
    steps = [sign * (other.base - line.base) for other in lines if other.angle == line.angle]
    near = min((step for step in steps if step > 0.5 * line.size), default=float("inf"))
    beside = [
        other
        for other in lines
        if other.angle == line.angle and abs(sign * (other.base - line.base) - near) < 0.5 * line.size
    ]
    alike = [other for other in beside if 0.93 <= other.size / line.size <= 1.08 and other.bold == line.bold]
    return bool(alike) and near <= _NEXT_LINE * line.size


def _forms(pages: Sequence[Sequence[Line]], bodies: Sequence[str]) -> set[int]:
    """Return the pages, from 0, that are forms.

    Most of a form's text is also at the same places on other pages that are not copies of it.
    """
    texts: dict[tuple[str, int], set[str]] = defaultdict(set)
    for number, lines in enumerate(pages):
        for line in lines:
            texts[line.text, round(line.base / _SAME_HEIGHT)].add(bodies[number])
    found = set()
    for number, lines in enumerate(pages):
        same = sum(len(line.text) for line in lines if len(texts[line.text, round(line.base / _SAME_HEIGHT)]) > 1)
        if len(lines) >= _FORM_LINES and same > _FORM * sum(len(line.text) for line in lines):
            found.add(number)
    return found


class _Head(NamedTuple):
    """The lines at one height at the top or foot of a page.

    Pages count from 0.
    """

    page: int
    zone: Literal["header", "footer"]
    text: str
    lines: list[Line]

    def stands_like(self, other: _Head) -> bool:
        mine, theirs = self.lines[0], other.lines[0]
        return abs(mine.base - theirs.base) <= _SAME_HEIGHT and mine.angle == theirs.angle


def _stacks(number: int, lines: Sequence[Line], extents: Mapping[int, tuple[float, float]]) -> Iterator[list[_Head]]:
    """Yield the outermost lines at the top and foot of a page.

    At most three of each, nearest the edge first.
    """
    zones: tuple[tuple[Literal["header", "footer"], int], ...] = (("header", 1), ("footer", -1))
    for zone, sign in zones:
        heights: dict[int, list[list[Line]]] = defaultdict(list)
        for line in sorted(lines, key=lambda line: (sign * line.base, line.x0)):
            if line.table or _zone(line, extents) != zone:
                continue
            seen = heights[line.angle]
            if seen and abs(seen[-1][0].base - line.base) < 0.5 * line.size:
                seen[-1].append(line)
            else:
                seen.append([line])
        for seen in heights.values():
            yield [_Head(number, zone, _text(members), members) for members in seen[:_OUTERMOST]]


def _text(lines: Sequence[Line]) -> str:
    return " ".join(line.text for line in sorted(lines, key=lambda line: line.x0))


def _zone(line: Line, extents: Mapping[int, tuple[float, float]]) -> str:
    top, foot = extents[line.angle]
    share = (line.base - 0.3 * line.size - top) / max(foot - top, 1.0)
    if share < _ZONE:
        return "header"
    return "footer" if share > 1 - _ZONE else ""


def _pattern(text: str) -> str:
    """Return the text in lower case, with each number replaced by ``#``."""
    return "#" if _ROMAN.fullmatch(text) else re.sub(r"\d+", "#", text.casefold())


def _body(lines: Sequence[Line], extents: Mapping[int, tuple[float, float]]) -> str:
    """Return a page's text without its number."""
    return "\n".join(line.text for line in lines if not (_zone(line, extents) and _PAGE_NUMBER.fullmatch(line.text)))


def _repeated(heads: Sequence[_Head], bodies: Sequence[str], body: float) -> tuple[set[int], set[int]]:
    """Return the heads that repeat on several pages, by the ``id`` of their first lines.

    Pages that are copies of each other count once.

    Returns:
        All repeated heads, and the heads whose numbers count the pages.
    """
    alike: dict[tuple[str, str], list[_Head]] = defaultdict(list)
    exact: dict[tuple[str, str], set[str]] = defaultdict(set)
    for head in heads:
        alike[head.zone, _pattern(head.text)].append(head)
        exact[head.zone, head.text].add(bodies[head.page])
    found: set[int] = set()
    counting: set[int] = set()
    for group in alike.values():
        for index, head in enumerate(group):
            if head.lines[0].size > _LARGE * body:
                repeated = len(exact[head.zone, head.text]) >= max(3, _MOST * len(bodies))
            else:
                near = group[max(index - _NEAR, 0) : index + _NEAR + 1]
                alike_here = [other for other in near if head.stands_like(other) and _counts_pages(head, other)]
                repeated = len({bodies[other.page] for other in alike_here}) > 1
                if any(other.text != head.text for other in alike_here):
                    counting.add(id(head.lines[0]))
            if repeated:
                found.add(id(head.lines[0]))
    return found, counting


def _counts_pages(head: _Head, other: _Head) -> bool:
    """Return whether two heads are equal, or differ only in consistent page numbers.

    Their numbers must differ by the distance between their pages.
    """
    if head.text == other.text:
        return True
    mine, theirs = re.findall(r"\d+", head.text), re.findall(r"\d+", other.text)
    if not mine or len(mine) != len(theirs):
        return bool(_ROMAN.fullmatch(head.text) and _ROMAN.fullmatch(other.text))
    changed = [int(b) - int(a) for a, b in zip(mine, theirs, strict=True) if a != b]
    return all(step == other.page - head.page for step in changed)


def _is_lone_number(head: _Head, lines: Sequence[Line], scan: bool) -> bool:
    """Return whether a head is a page number with no text near or beyond.

    On a scanned page the number may be the only text.
    """
    if not _PAGE_NUMBER.fullmatch(head.text) or not any(char.isalnum() for char in head.text):
        return False
    line = head.lines[0]
    others = [other.base for other in lines if other not in head.lines and other.angle == line.angle]
    if not others:
        return scan
    if min(abs(base - line.base) for base in others) <= 1.5 * line.size:
        return False
    return line.base > max(others) or line.base < min(others)
