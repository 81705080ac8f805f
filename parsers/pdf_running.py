"""Running heads and feet of a PDF.

Kept here: a line is one only at the top or foot of its page, and only where other pages have the same words, but for
numbers that count the pages, at the same height, and nothing else stands between it and the edge; or where it is a
page number that stands by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from parsers.pdf_lines import Line

_ZONE: Final = 0.2  # of the page's height, at its top and its foot: text blocks of books leave as much
_OUTERMOST: Final = 3  # lines of a page, from its top and from its foot
_NEAR: Final = 8  # heads of the same pattern before and behind one that it is compared with
_SAME_HEIGHT: Final = 3.0  # points
_LARGE: Final = 1.15  # of the body size: a larger line is a heading unless most pages have it
_MOST: Final = 0.4  # of the pages
_ROMAN: Final = re.compile(r"[ivxlc]{1,7}", re.IGNORECASE)
_PAGE_NUMBER: Final = re.compile(
    r"\W*(?:(?:page|p\.|seite|s\.|página|pagina|strana|sida|side)\s*)?(?:\d{1,4}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von|de|sur|di|af|av|z)\s*\d{1,4})?\W*",
    re.IGNORECASE,
)


def running_lines(
    pages: Sequence[Sequence[Line]], extents: Sequence[Mapping[int, tuple[float, float]]], body: float
) -> dict[int, str]:
    """``header`` or ``footer`` for each running line, by its ``id``.

    Args:
        pages: the lines of each page.
        extents: of each page and direction of writing, the heights of its top and foot in the upright frame.
        body: font size of most of the text, in points.
    """
    bodies = [_body(lines, extents[number]) for number, lines in enumerate(pages)]
    stacks = [stack for number, lines in enumerate(pages) for stack in _stacks(number, lines, extents[number])]
    repeated = _repeated([head for stack in stacks for head in stack], bodies, body)
    found: dict[int, str] = {}
    for stack in stacks:
        for head in stack:
            first = id(head.lines[0])
            if first not in repeated and not _is_lone_number(head, pages[head.page]):
                break
            found.update((id(line), head.zone) for line in head.lines)
    return found


class _Head(NamedTuple):
    """What stands at one height at the top or the foot of a page, from 0."""

    page: int
    zone: str
    text: str
    lines: list[Line]

    def stands_like(self, other: _Head) -> bool:
        mine, theirs = self.lines[0], other.lines[0]
        return abs(mine.base - theirs.base) <= _SAME_HEIGHT and mine.angle == theirs.angle


def _stacks(number: int, lines: Sequence[Line], extents: Mapping[int, tuple[float, float]]) -> Iterator[list[_Head]]:
    """What stands at the top and the foot of a page, height by height from its edge: no more than three of each."""
    for zone, sign in (("header", 1), ("footer", -1)):
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
    """The words with each number as one mark."""
    return "#" if _ROMAN.fullmatch(text) else re.sub(r"\d+", "#", text.casefold())


def _body(lines: Sequence[Line], extents: Mapping[int, tuple[float, float]]) -> str:
    """A page's text without its number."""
    return "\n".join(line.text for line in lines if not (_zone(line, extents) and _PAGE_NUMBER.fullmatch(line.text)))


def _repeated(heads: Sequence[_Head], bodies: Sequence[str], body: float) -> set[int]:
    """Those that stand on several pages, by the ``id`` of their first lines; pages that are copies count once."""
    alike: dict[tuple[str, str], list[_Head]] = defaultdict(list)
    exact: dict[tuple[str, str], set[str]] = defaultdict(set)
    for head in heads:
        alike[head.zone, _pattern(head.text)].append(head)
        exact[head.zone, head.text].add(bodies[head.page])
    found = set()
    for group in alike.values():
        for index, head in enumerate(group):
            if head.lines[0].size > _LARGE * body:
                repeated = len(exact[head.zone, head.text]) >= max(3, _MOST * len(bodies))
            else:
                near = group[max(index - _NEAR, 0) : index + _NEAR + 1]
                alike_here = [other for other in near if head.stands_like(other) and _counts_pages(head, other)]
                repeated = len({bodies[other.page] for other in alike_here}) > 1
            if repeated:
                found.add(id(head.lines[0]))
    return found


def _counts_pages(head: _Head, other: _Head) -> bool:
    """Whether two heads are the same, or the numbers that differ between them are as far apart as their pages."""
    if head.text == other.text:
        return True
    mine, theirs = re.findall(r"\d+", head.text), re.findall(r"\d+", other.text)
    if not mine or len(mine) != len(theirs):
        return bool(_ROMAN.fullmatch(head.text) and _ROMAN.fullmatch(other.text))
    changed = [int(b) - int(a) for a, b in zip(mine, theirs, strict=True) if a != b]
    return all(step == other.page - head.page for step in changed)


def _is_lone_number(head: _Head, lines: Sequence[Line]) -> bool:
    """Whether a head is a page number and nothing else of the page's text is near or beyond it."""
    if not _PAGE_NUMBER.fullmatch(head.text) or not any(char.isalnum() for char in head.text):
        return False
    line = head.lines[0]
    others = [other.base for other in lines if other not in head.lines and other.angle == line.angle]
    if not others or min(abs(base - line.base) for base in others) <= 1.5 * line.size:
        return False
    return line.base > max(others) or line.base < min(others)
