"""Greedy packing of units into chunks, within one region.

Kept here: a unit is cut only where it alone is over the budget, or where it is prose and the chunk before it would
stay short; a sentence, a row or a line only where that alone is over the budget, and then the atom says so.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from chunker.blocks import Span, Unit, lines, pieces
from chunker.tokens import Ruler

FILL: Final = 0.5  # a chunk filled less than this takes the first sentences of a paragraph that does not fit whole
_WINDOW: Final = 24  # code points looked at for each token of the budget when a piece must be cut by force
_PAUSES: Final = ",;:，；：、،؛—–"


@dataclass(slots=True)
class Atom:
    """What is never cut again: a sentence, row or line, or a forced piece of one.

    Attributes:
        start, end: ``[start, end)`` in the text.
        tokens: with the white space up to the next atom.
        cut: what was cut to make it; empty for a whole one.
    """

    start: int
    end: int
    tokens: int
    cut: str = ""


@dataclass(slots=True)
class Pack:
    """One chunk in the making.

    Attributes:
        first: index of the unit it begins in.
        last: index of the unit it ends in.
        header: the table header that its text needs before it.
    """

    first: int
    last: int
    header: str = ""
    atoms: list[Atom] = field(default_factory=list)
    tokens: int = 0


def atomize(text: str, units: list[Unit], ruler: Ruler, budget: int) -> list[list[Atom]]:
    """The atoms of each unit, each at most ``budget`` tokens."""
    spans = [pieces(text, unit) for unit in units]
    counts = iter(ruler.count_all([text[a:b] for a, b in _with_gaps(spans)]))
    result = []
    for unit, unit_spans in zip(units, spans, strict=True):
        atoms = [Atom(a, b, next(counts)) for a, b in unit_spans]
        if any(atom.tokens > budget for atom in atoms):
            atoms = [small for atom in atoms for small in _reduced(text, unit, atom, ruler, budget)]
        result.append(atoms)
    return result


def pack(
    units: list[Unit], atoms: list[list[Atom]], first: int, rest: int, header_tokens: dict[str, int]
) -> Iterator[Pack]:
    """Pack a region.

    Args:
        atoms: of each unit, as :func:`atomize` gives them.
        first: budget in tokens of the first chunk, which holds the region's headings.
        rest: budget of the others.
        header_tokens: tokens of each table header that may have to be repeated.
    """
    current, budget = Pack(0, 0), first
    headings_only = True
    for index, (unit, parts) in enumerate(zip(units, atoms, strict=True)):
        total = sum(atom.tokens for atom in parts)
        enough = current.tokens >= FILL * budget and not headings_only
        if current.atoms and current.tokens + total > budget and (enough or (unit.whole and total <= rest)):
            yield current
            current, budget, headings_only = Pack(index, index), rest, True
        for position, atom in enumerate(parts):
            if current.atoms and current.tokens + atom.tokens > budget:
                yield current
                header = unit.header if position >= unit.header_rows else ""
                if header_tokens.get(header, 0) > min(rest // 2, rest - atom.tokens):
                    header = ""
                current, budget = Pack(index, index, header), rest - header_tokens.get(header, 0)
            if total > rest and unit.kind in ("table", "code", "markup") and not atom.cut:
                atom.cut = unit.kind
            current.atoms.append(atom)
            current.tokens += atom.tokens
            current.last = index
        headings_only = headings_only and unit.kind == "heading"
    if current.atoms:
        yield current


def _with_gaps(spans: list[list[Span]]) -> Iterator[Span]:
    flat = [span for unit in spans for span in unit]
    for (start, end), following in zip(flat, [*flat[1:], None], strict=True):
        yield start, max(end, following[0]) if following else end


def _reduced(text: str, unit: Unit, atom: Atom, ruler: Ruler, budget: int) -> Iterator[Atom]:
    """An atom over the budget as its lines, and those over the budget as forced pieces."""
    if atom.tokens <= budget:
        yield atom
        return
    spans = lines(text, (atom.start, atom.end)) if unit.kind not in ("heading", "row") else [(atom.start, atom.end)]
    name = {"code": "code", "table": "row", "heading": "heading", "markup": "markup"}.get(unit.kind, "sentence")
    for span, tokens in zip(spans, ruler.count_all([text[a:b] for a, b in spans]), strict=True):
        if tokens <= budget:
            yield Atom(*span, tokens, name)
        else:
            yield from _forced(text, span, ruler, budget, name)


def _forced(text: str, span: Span, ruler: Ruler, budget: int, name: str) -> Iterator[Atom]:
    """Cut at a pause, else at white space, else between tokens; within the last half of what fits."""
    start, end = span
    while start < end:
        stop = min(end, start + max(64, budget * _WINDOW))
        offsets = ruler.spans(text[start:stop])
        if len(offsets) <= budget and stop == end:
            yield Atom(start, end, len(offsets), name)
            return
        fits = start + offsets[min(budget, len(offsets) - 1)][0] if offsets else stop
        cut = _cut_before(text, start, max(fits, start + 1))
        yield Atom(start, cut, ruler.count(text[start:cut]), name)
        start = cut


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
