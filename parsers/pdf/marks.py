"""Mark list items, captions, footnotes and tables of contents among a PDF's blocks.

Invariants:
- A number makes an item only where a neighbouring numbered block has the number before or after it.
- A dash, star or middle dot makes an item only where a neighbour has the same mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from parsers.pdf.blocks import PdfBlock, ended_early, numbers
from parsers.pdf.layout.baselines import is_bullet

_DOTTED: Final = re.compile(r"\d+(?:\.\d+)+\s")
_FOOTNOTE_SIZE: Final = 0.92  # of the body size
_CAPTION_LINES: Final = 8
_CAPTION: Final = re.compile(
    r"(?:Fig(?:ure|\.)|Tab(?:le|\.|elle)|Abb(?:ildung|\.)|Listing|Algorithm|Tableau|Figura|Tabla)\s*\d+[\w.]*\s*[:.–—-]?",
    re.IGNORECASE,
)
_LEADER: Final = re.compile(r"(?:[.…·_]\s?){4,}\s*(?:\d{1,4}|[ivxlc]{1,7})$")
_LEADER_ROOM: Final = 120  # characters at the end of a line that are searched for a leader
_NOTE_MARK: Final = re.compile(r"(?:\d{1,3}|[*†‡§¶])\s?[^\s\d.)]")


def mark_parts(found: list[PdfBlock], body: float) -> list[PdfBlock]:
    """Return the blocks with items, captions, footnotes and tables of contents marked.

    Args:
        found: all blocks in reading order.
        body: font size of most of the text, in points.
    """
    _mark_contents(found)
    _mark_items(found)
    found = _without_doubtful(found)
    _mark_captions_and_notes(found, body)
    return found


def _mark_contents(found: list[PdfBlock]) -> None:
    for block in found:
        leading = [bool(_LEADER.search(line.text[-_LEADER_ROOM:])) for line in block.lines]
        if 2 * sum(leading) >= len(leading):
            block.kind, block.contents = "paragraph", True
            block.hard = leading[:-1]


def _mark_items(found: list[PdfBlock]) -> None:
    """Mark bulleted paragraphs as items, and numbered ones whose numbers are consecutive."""
    for index, block in enumerate(found):
        mark, _, rest = block.lines[0].text.partition(" ")
        if block.kind != "paragraph" or block.contents or not rest:
            continue
        if is_bullet(mark) and (mark not in "-–—*·" or _has_neighbour(found, index, mark)):
            block.kind, block.mark = "item", mark
        elif _is_numbered(block) and _counts_on(found, index):
            block.kind, block.mark, block.number = "item", mark, _value(mark)


def _is_numbered(block: PdfBlock) -> bool:
    """Return whether a block begins with the number of an item, not a heading."""
    line = block.lines[0]
    return numbers(line) and not (line.bold and _DOTTED.match(line.text))


def _has_neighbour(found: list[PdfBlock], index: int, mark: str) -> bool:
    near = found[max(index - 1, 0) : index] + found[index + 1 : index + 2]
    return any(block.lines[0].text.partition(" ")[0] == mark for block in near)


def _counts_on(found: list[PdfBlock], index: int) -> bool:
    """Return whether a nearby numbered block has the previous or next number."""
    block = found[index]
    mark = block.lines[0].text.partition(" ")[0]
    for step in (-1, 1):
        for other in _numbered(found, index, step):
            if _follows(other, mark, step):
                return True
    return False


def _numbered(found: list[PdfBlock], index: int, step: int) -> Iterator[str]:
    """Yield the marks of numbered blocks next to a block.

    They are at most four away, with only numbered or bulleted blocks between.
    """
    position, seen = index + step, 0
    while 0 <= position < len(found) and seen < 4:
        mark = found[position].lines[0].text.partition(" ")[0]
        if found[position].kind in ("paragraph", "item") and _is_numbered(found[position]):
            yield mark
        elif not is_bullet(mark):
            return
        position, seen = position + step, seen + 1


def _follows(other: str, mark: str, step: int) -> bool:
    """Return whether a number is the next (step 1) or previous (step -1) one.

    1.3 follows 1.2, and 2.1 follows any number under 1.
    """
    if _shape(other) == _shape(mark) and _path(other)[:-1] == _path(mark)[:-1]:
        return _value(other) == _value(mark) + step
    low, high = (_path(mark), _path(other)) if step > 0 else (_path(other), _path(mark))
    if len(high) < 2 and len(low) < 2:
        return False
    if len(high) > len(low):  # 2.1 below 2
        return high[:-1] == low and high[-1] == 1
    return high[:-1] == [*low[: len(high) - 2], low[len(high) - 2] + 1] if high[-1] == 1 else _deeper(low, high)


def _deeper(low: list[int], high: list[int]) -> bool:
    """Return whether ``low`` is nested in the predecessor of ``high``: 1.2.4 before 1.3."""
    return len(low) > len(high) and [*high[:-1], high[-1] - 1] == low[: len(high)]


def _path(mark: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", mark)] or [0]


def _shape(mark: str) -> str:
    return re.sub(r"\d+", "1", re.sub(r"[^\W\d_]", "a", mark))


def _value(mark: str) -> int:
    body = mark.strip("().[]").rpartition(".")[2]
    return int(body) if body.isdigit() else ord(body.casefold()) - ord("a") + 1


def _without_doubtful(found: list[PdfBlock]) -> list[PdfBlock]:
    """Merge each doubtful block that is not an item into the block above."""
    kept: list[PdfBlock] = []
    for block in found:
        if block.doubtful and block.kind == "paragraph" and kept and kept[-1].kind in ("paragraph", "item"):
            above = kept[-1]
            above.hard.append(ended_early(above.lines[-1], block.lines[0]))
            above.lines.extend(block.lines)
            above.hard.extend(block.hard)
        else:
            kept.append(block)
    return kept


def _mark_captions_and_notes(found: list[PdfBlock], body: float) -> None:
    below: dict[tuple[int, int], bool] = {}
    for block in reversed(found):
        if block.kind != "paragraph":
            continue
        first = block.lines[0]
        label = _CAPTION.match(first.text)
        if label and len(block.lines) <= _CAPTION_LINES and label.group().rstrip()[-1] in ":.–—-":
            block.kind = "caption"
        elif not below.get(block.place) and first.size <= _FOOTNOTE_SIZE * body and _NOTE_MARK.match(first.text):
            block.kind = "footnote"
        else:
            below[block.place] = True
