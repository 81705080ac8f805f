"""The text that is cut: a document's without its left-out parts, its character references as what they mean.

Invariants:
- Whatever is left out, the kept text and its parts are those of the same document written without it, so it changes
  no cut.
- A left-out part takes with it the white space on one side of it, the side with fewer line ends.
- Every place of the kept text has one place in the document.

A reference is a character that stands in place of its ``&``, with a gap behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from parsers.document import Document, leaves, left_out
from parsers.references import meant

KeptSpan = tuple[int, int]

MOST_LEFT_OUT: Final = 4_096  # characters of left-out parts that may stand within a chunk
_LONGEST_SPACE: Final = 1_000  # characters of white space that a left-out part takes with it


@dataclass(slots=True)
class Leaf:
    """A part of the kept text: index of its node, and ``[start, end)`` in the kept text."""

    index: int
    start: int
    end: int


class Kept:
    """The kept text of a document.

    Attributes:
        text: what stays.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._reasons = left_out(document)
        self._order = leaves(document)
        self._gaps: list[KeptSpan] = []  # left-out stretches of the document
        self._apart: list[bool] = []  # of each, whether no chunk may reach over it
        self._find_gaps()
        self._meant: dict[int, str] = {}  # by the place behind them in the document, what references mean
        if document.references:
            self._find_references()
        source = document.text
        self._places: list[int] = []  # of each gap, where it is in the kept text
        pieces: list[str] = []
        position = removed = 0
        for start, end in self._gaps:
            instead = self._meant.get(start, "")
            pieces += source[position : start - len(instead)], instead
            self._places.append(start - removed)
            removed += end - start
            position = end
        self._removed = [0]  # characters left out up to each gap
        for start, end in self._gaps:
            self._removed.append(self._removed[-1] + end - start)
        self.text: Final = "".join([*pieces, source[position:]]) if self._gaps else source

    def leaves(self) -> Iterator[Leaf]:
        """Yield the parts that stay, in reading order; those that only left-out parts divide are one."""
        nodes = self._document.nodes
        last: Leaf | None = None
        crossed = False  # whether something left out stands behind the last part
        for index in self._order:
            if self._reasons[index] is not None:
                crossed = True
                continue
            leaf = Leaf(index, *self._inside(nodes[index].extent))
            if last is not None and crossed and self._goes_on(last, leaf):
                last.end = leaf.end
            else:
                if last is not None:
                    yield last
                last = leaf
            crossed = False
        if last is not None:
            yield last

    def span(self, start: int, end: int) -> KeptSpan:
        """``[start, end)`` of the kept text, which is not empty, in the document."""
        first = self._removed[bisect_right(self._places, start)]
        gap = bisect_left(self._places, end)
        gap += gap < len(self._gaps) and self._places[gap] == end and self._gaps[gap][0] in self._meant
        return start + first, end + self._removed[gap]

    def within(self, start: int, end: int) -> tuple[KeptSpan, ...]:
        """Left-out stretches between two places of the kept text, from the first one's place in the document."""
        low, high = bisect_right(self._places, start), bisect_left(self._places, end)
        begin = start + self._removed[low]
        return tuple((a - begin, b - begin) for a, b in self._gaps[low:high] if a not in self._meant)

    def references(self, start: int, end: int) -> tuple[int, ...]:
        """Return the references between two places of the kept text, from the first one's place in the document."""
        if not self._meant:
            return ()
        low, high = bisect_right(self._places, start), bisect_right(self._places, end)
        begin = start + self._removed[low]
        found = (a for a, _ in self._gaps[low:high] if a in self._meant)
        return tuple(a - len(self._meant[a]) - begin for a in found)

    def divided(self, start: int, end: int) -> list[KeptSpan]:
        """``[start, end)`` of the kept text cut where left-out parts stand that no chunk reaches over."""
        low, high = bisect_right(self._places, start), bisect_left(self._places, end)
        cuts, room = [start], MOST_LEFT_OUT
        for gap in range(low, high):
            if self._gaps[gap][0] in self._meant:
                continue
            room -= self._gaps[gap][1] - self._gaps[gap][0]
            if self._apart[gap] or room < 0:
                cuts.append(self._places[gap])
                room = MOST_LEFT_OUT
        return list(zip(cuts, [*cuts[1:], end], strict=True))

    def _find_gaps(self) -> None:
        text, nodes = self._document.text, self._document.nodes
        for index in self._order:
            if self._reasons[index] is None:
                continue
            start, end = nodes[index].extent
            apart = nodes[index].kind == "blob"
            if self._gaps and not text[self._gaps[-1][1] : start].strip():
                start = self._gaps.pop()[0]
                apart = self._apart.pop() or apart
            self._gaps.append(_with_space(text, start, end))
            self._apart.append(apart)

    def _find_references(self) -> None:
        """Put the gaps behind references that stand in what is kept between the others."""
        text = self._document.text
        for start in self._document.references:
            gap = bisect_right(self._gaps, (start, len(text))) - 1
            known = meant(text, start)
            if known is not None and (gap < 0 or self._gaps[gap][1] <= start):
                self._meant[start + len(known[1])] = known[1]
        gaps = {start: (end, apart) for (start, end), apart in zip(self._gaps, self._apart, strict=True)}
        for start, instead in self._meant.items():
            known = meant(text, start - len(instead))
            assert known is not None
            gaps[start] = known[0], False
        self._gaps = sorted((start, end) for start, (end, _) in gaps.items())
        self._apart = [gaps[start][1] for start, _ in self._gaps]

    def _inside(self, extent: KeptSpan) -> KeptSpan:
        """Return a part that stays, in the kept text."""
        start, end = extent
        first, last = self._before(start), self._before(end)
        return first, max(first, last)

    def _before(self, position: int) -> int:
        """Return how much of the kept text stands before a place of the document."""
        gap = bisect_right(self._gaps, (position, 0)) - 1
        if gap >= 0 and self._gaps[gap][1] > position:
            return self._places[gap]
        return position - self._removed[gap + 1]

    def _goes_on(self, last: Leaf, leaf: Leaf) -> bool:
        nodes = self._document.nodes
        before, node = nodes[last.index], nodes[leaf.index]
        if before.kind != node.kind or before.parent != node.parent:
            return False
        return node.continued or (node.kind == "paragraph" and self.text.count("\n", last.end, leaf.start) < 2)


def _with_space(text: str, start: int, end: int) -> KeptSpan:
    """Return a left-out part with the white space on its side with fewer line ends."""
    above, below = text[max(0, start - _LONGEST_SPACE) : start], text[end : end + _LONGEST_SPACE]
    above, below = above[len(above.rstrip()) :], below[: len(below) - len(below.lstrip())]
    if not above or not below:
        return start, end
    return (start, end + len(below)) if above.count("\n") > below.count("\n") else (start - len(above), end)
