"""Greedy packing of units into chunks, within one region.

Kept here: a unit is cut only where it alone is over the budget, or where it is prose and the chunk before it would
stay short; a sentence, a row or a line only where that alone is over the budget, and then the atom says so. Sums
over its parts decide where a unit is cut, and a chunk whose sum may be wrong is counted again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from chunker.blocks import Span, Unit, lines, pieces
from chunker.tokens import Measure, Ruler

FILL: Final = 0.5  # a chunk filled less than this takes the first sentences of a paragraph that does not fit whole
_PAUSES: Final = ",;:，；：、،؛—–"


@dataclass(slots=True)
class Atom:
    """What is never cut again: a unit that fits, a sentence, row or line, or a forced piece of one.

    Attributes:
        start, end: ``[start, end)`` in the text.
        tokens: with the white space up to the next atom.
        unit: index of the unit that it is of.
        cut: what was cut to make it; empty for a whole one.
        exact: whether its tokens are those it has beside any other atom, where the tokenizer is additive.
    """

    start: int
    end: int
    tokens: int
    unit: int
    cut: str = ""
    exact: bool = True


@dataclass(slots=True)
class Pack:
    """One chunk in the making.

    Attributes:
        budget: tokens that its text may have.
        header: the table header that its text needs before it.
        tokens: the sum over its atoms; once it is done, the tokens of its text.
        repeated: how many of its atoms end the chunk before it, too.
    """

    budget: int
    header: str = ""
    atoms: list[Atom] = field(default_factory=list)
    tokens: int = 0
    repeated: int = 0

    def add(self, atom: Atom) -> None:
        self.atoms.append(atom)
        self.tokens += atom.tokens


class Packer:
    """Packs one region.

    Args:
        text: the document's.
        first: budget in tokens of the first chunk, which holds the region's headings.
        rest: budget of the others.
        count: tokens of a short text that comes again and again, such as a table's header.
        room: tokens that the text of a pack may have, with the headings that it holds.
        overlap: tokens at a chunk's end that the next one may begin with, in whole sentences.
    """

    def __init__(
        self,
        text: str,
        units: Sequence[Unit],
        ruler: Ruler,
        *,
        first: int,
        rest: int,
        count: Callable[[str], int],
        room: Callable[[Pack], int],
        overlap: int = 0,
    ) -> None:
        self._text = text
        self._units = units
        self._ruler = ruler
        self._rest = rest
        self._least = min(first, rest)
        self._count = count
        self._room = room
        self._overlap = overlap
        self._now = Pack(first)

    def packs(self) -> Iterator[Pack]:
        """The packs in reading order, each with the tokens of its text."""
        for index, unit in enumerate(self._units):
            measure = self._ruler.measure(self._text[unit.start : unit.end])
            total = measure.total
            self._make_room(total)
            if not self._fits(total) and (self._enough() or (unit.whole and total <= self._rest)):
                yield from self._finish()
            if self._now.tokens + total <= self._now.budget:
                self._now.add(Atom(unit.start, unit.end, total, index))
                continue
            for atom in self._atoms(index, unit, measure):
                self._make_room(atom.tokens)
                if not self._fits(atom.tokens):
                    yield from self._finish(atom)
                self._now.add(atom)
        while self._now.atoms[self._now.repeated :]:
            yield from self._finish()

    def _fits(self, tokens: int) -> bool:
        return not self._now.atoms or self._now.tokens + tokens <= self._now.budget

    def _make_room(self, tokens: int) -> None:
        """Drop what is repeated from the chunk before where it alone keeps the next part out."""
        if self._now.repeated == len(self._now.atoms) and not self._fits(tokens):
            self._now.atoms, self._now.tokens, self._now.repeated = [], 0, 0

    def _enough(self) -> bool:
        """Whether the chunk may end here: it is well filled, and not with headings alone."""
        now = self._now
        return now.tokens >= FILL * now.budget and any(self._units[atom.unit].kind != "heading" for atom in now.atoms)

    def _finish(self, following: Atom | None = None) -> Iterator[Pack]:
        """End the pack, and begin the next with what did not fit into it."""
        done = self._now
        left: list[Atom] = []
        while True:
            done.tokens = self._tokens_of(done)
            if done.tokens <= self._room(done):
                break
            if len(done.atoms) > 1:
                left.insert(0, done.atoms.pop())
            elif halves := self._halves(done.atoms[0]):
                done.atoms = halves[:1]
                left[:0] = halves[1:]
            else:
                break
        yield done
        self._now = Pack(self._rest)
        begin = [*left, *([following] if following else [])]
        if begin and (header := self._header(begin[0])):
            self._now.header = header
            self._now.budget -= self._count(header)
        for atom in self._tail(done, begin) if not left else ():
            self._now.add(atom)
            self._now.repeated += 1
        for atom in left:
            self._now.add(atom)

    def _tokens_of(self, pack: Pack) -> int:
        if self._ruler.additive and all(atom.exact for atom in pack.atoms):
            return sum(atom.tokens for atom in pack.atoms)
        return self._ruler.count(self._text[pack.atoms[0].start : pack.atoms[-1].end].rstrip())

    def _header(self, atom: Atom) -> str:
        """The header that rows of a split table need, unless it would take half of the budget."""
        unit = self._units[atom.unit]
        if not unit.header or atom.start < unit.rows[unit.header_rows - 1][1]:
            return ""
        fits = self._count(unit.header) <= min(self._rest // 2, self._rest - atom.tokens)
        return unit.header if fits else ""

    def _tail(self, done: Pack, begin: list[Atom]) -> list[Atom]:
        """Sentences at the end of a pack that the next one begins with."""
        if not self._overlap:
            return []
        last = done.atoms[-1]
        unit = self._units[last.unit]
        if unit.kind in ("heading", "table") or last.cut:
            return []
        spans = pieces(self._text, unit) if (last.start, last.end) == (unit.start, unit.end) else []
        sentences = [Atom(a, b, self._ruler.count(self._text[a:b]), last.unit) for a, b in spans] or [
            atom for atom in done.atoms if atom.unit == last.unit and not atom.cut
        ]
        room = min(self._overlap, self._now.budget - sum(atom.tokens for atom in begin))
        tail: list[Atom] = []
        while sentences[1:] and (room := room - sentences[-1].tokens) >= 0:
            tail.insert(0, sentences.pop())
        return tail

    def _atoms(self, index: int, unit: Unit, measure: Measure) -> Iterator[Atom]:
        """A unit's sentences, rows, lines or forced pieces of them, each at most the least budget."""
        parted = unit.kind if unit.kind in ("table", "code", "markup") and measure.total > self._rest else ""
        spans = pieces(self._text, unit)
        counts = measure.parts([0, *(start - unit.start for start, _ in spans[1:]), unit.end - unit.start])
        for (start, end), count in zip(spans, counts, strict=True):
            if count <= self._least:
                yield Atom(start, end, count, index, parted, measure.exact)
            else:
                yield from self._reduced(index, unit, (start, end))

    def _reduced(self, index: int, unit: Unit, span: Span) -> Iterator[Atom]:
        """An atom over the budget as its lines, and those over the budget as forced pieces."""
        name = {"code": "code", "table": "row", "heading": "heading", "markup": "markup"}.get(unit.kind, "sentence")
        for start, end in lines(self._text, span) if unit.kind != "heading" else [span]:
            measure = self._ruler.measure(self._text[start:end])
            if measure.total <= self._least:
                yield Atom(start, end, measure.total, index, name, measure.exact)
            else:
                yield from self._forced(index, (start, end), measure, name)

    def _forced(self, index: int, span: Span, measure: Measure, name: str) -> Iterator[Atom]:
        """Cut at a pause, else at white space, else between tokens; within the last half of what fits."""
        begin, end = start, _ = span
        while start < end:
            fits = begin + measure.reach(start - begin, self._least)
            cut = end if fits >= end else _cut_before(self._text, start, max(fits, start + 1))
            exact = measure.exact and _apart(self._text, start) and _apart(self._text, cut)
            yield Atom(start, cut, self._ruler.count(self._text[start:cut]), index, name, exact)
            start = cut

    def _halves(self, atom: Atom) -> list[Atom]:
        """An atom that has more tokens by itself than beside its neighbours, in two; empty if it is one character."""
        cut = _cut_before(self._text, atom.start, atom.start + max(1, (atom.end - atom.start) // 2))
        if not atom.start < cut < atom.end:
            return []
        name = atom.cut or "sentence"
        return [
            Atom(a, b, self._ruler.count(self._text[a:b]), atom.unit, name, exact=False)
            for a, b in ((atom.start, cut), (cut, atom.end))
        ]


def _apart(text: str, position: int) -> bool:
    """Whether white space stands at a cut, so that the words on both sides are tokenized as if uncut."""
    return position in (0, len(text)) or text[position - 1].isspace() or text[position].isspace()


def _cut_before(text: str, start: int, fits: int) -> int:
    """The best place for a cut in ``(start, fits]``."""
    half = start + (fits - start) // 2
    for position in range(fits, half, -1):
        if text[position - 1].isspace() and position - 2 >= start and text[position - 2] in _PAUSES:
            return position
    for position in range(fits, half, -1):
        if text[position - 1].isspace():
            return position
    position = fits
    while position > start + 1 and _continues(text, position):
        position -= 1
    return position if position > start + 1 or not _continues(text, position) else fits


def _continues(text: str, position: int) -> bool:
    """Whether the character at ``position`` belongs to the one before it (combining marks, joiners, selectors)."""
    if position >= len(text):
        return False
    character = text[position]
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or text[position - 1] == "\u200d"
    )
