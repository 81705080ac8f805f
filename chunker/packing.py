"""Greedy packing of units into chunks, within one region.

Invariants:
- A unit is cut only where it alone is over the budget, or where it is prose and the chunk before it would stay short; a
  sentence, a row or a line only where that alone is over the budget, and then the atom says so.
- A chunk is bounded in tokens and in characters, ``CHARACTERS`` for each token of the budget, whatever the tokenizer
  makes of a text.
- Sums over its parts decide where a unit is cut, and a chunk whose sum may be wrong is counted again.
- What is measured at a time is bounded, so time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from chunker.blocks import Unit, lines, pieces
from chunker.breaks import cut_before
from chunker.kept import KeptSpan
from chunker.tokens import SLAB, Measure, Ruler

FILL: Final = 0.5  # a chunk filled less than this takes the first sentences of a paragraph that does not fit whole
CHARACTERS: Final = 16  # code points a token of the budget may stand for; in prose, code and tables it is 2 to 8
_UNMEASURED: Final = 1 << 40  # tokens of what is too long to be measured
_NO_PROSE: Final = frozenset({"heading", "table", "code", "markup"})
_FIRST_LOOK: Final = 4  # code points a token of the budget, at which a forced cut is looked for at first


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

    def drop_first(self) -> None:
        """Drop the first of the atoms that are repeated."""
        self.tokens -= self.atoms.pop(0).tokens
        self.repeated -= 1


class Packer:
    """Packs one region.

    Args:
        text: the document's.
        first: budget in tokens of the first chunk, which holds the region's headings.
        rest: budget of the others.
        count: tokens of a short text that comes again and again, such as a table's header.
        room: tokens that the text of a pack may have, with the headings that it holds.
        overlap: tokens at a chunk's end that the next one may begin with, in whole sentences.
        most: code points that a chunk may have.
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
        most: int,
        overlap: int = 0,
    ) -> None:
        self._text = text
        self._units = units
        self._ruler = ruler
        self._rest = rest
        self._least = min(first, rest)
        self._count = count
        self._room = room
        self._most = most
        self._overlap = overlap
        self._now = Pack(first)

    def packs(self) -> Iterator[Pack]:
        """Yield the packs in reading order, each with the tokens of its text."""
        for index, unit in enumerate(self._units):
            measure = self._measured(unit)
            total = measure.total if measure else _UNMEASURED
            self._make_room(total, unit.end)
            if not self._fits(total, unit.end) and (self._enough() or (unit.whole and total <= self._rest)):
                yield from self._finish()
            now = self._now
            if now.tokens + total <= now.budget and self._spans(unit.start, unit.end):
                now.add(Atom(unit.start, unit.end, total, index))
                continue
            for atom in self._atoms(index, unit, measure):
                self._make_room(atom.tokens, atom.end)
                if not self._fits(atom.tokens, atom.end):
                    yield from self._finish(atom)
                self._now.add(atom)
        while self._now.atoms[self._now.repeated :]:
            yield from self._finish()

    def _measured(self, unit: Unit) -> Measure | None:
        """Return the tokens of a unit; None for one that is over the bound in characters and has to be cut anyway."""
        return self._measure(unit.start, unit.end) if unit.end - unit.start <= self._most else None

    def _measure(self, start: int, end: int) -> Measure:
        return self._ruler.measure(self._text[start:end])

    def _spans(self, start: int, end: int) -> bool:
        """Return whether a chunk to ``end`` is within the bound in characters.

        ``start`` begins it where there is none yet.
        """
        return end - (self._now.atoms[0].start if self._now.atoms else start) <= self._most

    def _fits(self, tokens: int, end: int) -> bool:
        now = self._now
        return not now.atoms or (now.tokens + tokens <= now.budget and self._spans(end, end))

    def _make_room(self, tokens: int, end: int) -> None:
        """Drop what is repeated from the chunk before where it alone keeps the next part out."""
        now = self._now
        while now.atoms and now.repeated == len(now.atoms) and not self._fits(tokens, end):
            now.drop_first()

    def _enough(self) -> bool:
        """Return whether the chunk may end here: it is well filled, and not with headings alone."""
        now = self._now
        return now.tokens >= FILL * now.budget and any(self._units[atom.unit].kind != "heading" for atom in now.atoms)

    def _finish(self, following: Atom | None = None) -> Iterator[Pack]:
        """End the pack, and begin the next with what did not fit into it."""
        done = self._now
        left: list[Atom] = []
        while True:
            tokens = self._tokens_of(done)
            if tokens <= self._room(done):
                break
            if done.repeated:
                done.drop_first()
            elif len(done.atoms) > 1:
                left.insert(0, done.atoms.pop())
            elif halves := self._halves(done.atoms[0]):
                done.atoms = halves[:1]
                left[:0] = halves[1:]
            else:
                break
        done.tokens = tokens
        yield done
        self._now = Pack(self._rest)
        begin = [*left, *([following] if following else [])]
        if begin and (header := self.header(begin[0])):
            self._now.header = header
            self._now.budget -= self._count(header)
        for atom in self._tail(done, begin):
            self._now.add(atom)
            self._now.repeated += 1
        for atom in left:
            self._now.add(atom)

    def _tokens_of(self, pack: Pack) -> int:
        if self._ruler.additive and all(atom.exact for atom in pack.atoms):
            return sum(atom.tokens for atom in pack.atoms)
        return self._ruler.count(self._text[pack.atoms[0].start : pack.atoms[-1].end].rstrip())

    def header(self, atom: Atom) -> str:
        """Return the header that rows of a split table need, unless it would take half of the budget."""
        unit = self._units[atom.unit]
        if not unit.header or len(unit.header) * 2 > self._most or atom.start < unit.rows[unit.header_rows - 1][1]:
            return ""
        fits = self._count(unit.header) <= min(self._rest // 2, self._rest - atom.tokens)
        return unit.header if fits else ""

    def _tail(self, done: Pack, begin: list[Atom]) -> list[Atom]:
        """Whole sentences at the end of a pack, of one unit or of several, that the next one begins with."""
        if not self._overlap:
            return []
        room = min(self._overlap, self._now.budget - sum(atom.tokens for atom in begin))
        earliest = begin[-1].end - self._most if begin else 0
        tail: list[Atom] = []
        for sentence in self._from_the_end(done):
            room -= sentence.tokens
            if room < 0 or sentence.start < earliest or sentence.start <= done.atoms[0].start:
                break
            tail.insert(0, sentence)
        return tail

    def _from_the_end(self, pack: Pack) -> Iterator[Atom]:
        """Yield the sentences of a pack from the last one back to what is no prose, or is cut within a sentence."""
        for atom in reversed(pack.atoms):
            unit = self._units[atom.unit]
            if unit.kind in _NO_PROSE or atom.cut:
                return
            if (atom.start, atom.end) != (unit.start, unit.end):
                yield atom
                continue
            for start, end in reversed(list(pieces(self._text, unit))):
                yield Atom(start, end, self._ruler.count(self._text[start:end]), atom.unit)

    def _atoms(self, index: int, unit: Unit, measure: Measure | None) -> Iterator[Atom]:
        """Yield a unit's sentences, rows, lines or forced pieces of them, each at most the least budget."""
        over = measure is None or measure.total > self._rest
        parted = unit.kind if unit.kind in ("table", "code", "markup") and over else ""
        for start, end, count, exact in self._counted(unit, measure):
            if count <= self._least:
                yield Atom(start, end, count, index, parted, exact)
            else:
                yield from self._reduced(index, unit, (start, end))

    def _counted(self, unit: Unit, measure: Measure | None) -> Iterator[tuple[int, int, int, bool]]:
        """Yield the pieces of a unit with their tokens, and whether those are exact."""
        if measure is not None:
            spans = list(pieces(self._text, unit))
            counts = measure.parts([0, *(start - unit.start for start, _ in spans[1:]), unit.end - unit.start])
            for (start, end), count in zip(spans, counts, strict=True):
                yield start, end, count, measure.exact
            return
        for start, end in pieces(self._text, unit):
            own = self._measure(start, end) if end - start <= self._most else None
            yield start, end, own.total if own else _UNMEASURED, own is not None and own.exact

    def _reduced(self, index: int, unit: Unit, span: KeptSpan) -> Iterator[Atom]:
        """Yield an atom over the budget as its lines, and those over the budget as forced pieces."""
        name = {"code": "code", "table": "row", "heading": "heading", "markup": "markup"}.get(unit.kind, "sentence")
        for start, end in lines(self._text, span) if unit.kind != "heading" else [span]:
            measure = self._measure(start, end) if end - start <= self._most else None
            if measure is not None and measure.total <= self._least:
                yield Atom(start, end, measure.total, index, name, measure.exact)
            else:
                yield from self._forced(index, (start, end), name)

    def _forced(self, index: int, span: KeptSpan, name: str) -> Iterator[Atom]:
        """Cut at a pause, else at white space, else between words or characters; within the last half of what fits."""
        start, end = span
        look = self._least * _FIRST_LOOK
        while start < end:
            fits = self._reach(start, end, look)
            look = (fits - start) * 5 // 4 + 8
            cut = end if fits >= end else cut_before(self._text, start, max(fits, start + 1))
            exact = self._ruler.additive and _apart(self._text, start) and _apart(self._text, cut)
            yield Atom(start, cut, self._ruler.count(self._text[start:cut]), index, name, exact)
            start = cut

    def _reach(self, start: int, end: int, look: int) -> int:
        """Return how far the least budget reaches from a place on; ``look`` characters are tried first."""
        while True:
            look = min(look, self._most, SLAB)
            stop = min(end, start + look)
            fits = start + self._ruler.reach(self._text[start:stop], self._least)
            if fits < stop or stop == end or look in (self._most, SLAB):
                return fits
            look *= 2

    def _halves(self, atom: Atom) -> list[Atom]:
        """Return an atom that has more tokens by itself than beside its neighbours, in two.

        Empty if it is one character.
        """
        cut = cut_before(self._text, atom.start, atom.start + max(1, (atom.end - atom.start) // 2))
        if not atom.start < cut < atom.end:
            return []
        name = atom.cut or "sentence"
        return [
            Atom(a, b, self._ruler.count(self._text[a:b]), atom.unit, name, exact=False)
            for a, b in ((atom.start, cut), (cut, atom.end))
        ]


def _apart(text: str, position: int) -> bool:
    """Return whether white space stands at a cut, so that the words on both sides are tokenized as if uncut."""
    return position in (0, len(text)) or text[position - 1].isspace() or text[position].isspace()
