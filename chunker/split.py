"""The chunker: one function that cuts a document tree, whatever format it came from.

Invariants, tested as properties over generated trees and real files:
- ``chunk.text == document.text[chunk.start:chunk.end]`` for every chunk, in code points.
- The chunks cover every non-blank character outside the left-out parts, without overlap exactly once.
- No chunk crosses a section boundary, or cuts a sentence, a code block or a table row, unless that piece alone is over
  the budget; then ``chunk.cut`` says so. The one crossing: a heading without a body of its own joins the chunk below
  it, the last one the chunk above.
- What is left out changes nothing about the cuts around it: the text is cut as if it were not there. A chunk may reach
  over up to ``MOST_LEFT_OUT`` characters of it, which are then in its text and not in its embedded text. It is divided
  where there are more, and at a blob of any length.
- Budget of a chunk's text = limit - special tokens - prefix - printed heading path - repeated table header - note
  reserve; the reserve is kept without notes too, so that notes move no boundary. ``CHARACTERS`` for each
  token bounds it in characters too.
- The same document, title, ruler and settings give the same chunks; time is linear in the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Final, NamedTuple

import msgspec

from chunker.blocks import Region, Unit, regions
from chunker.chunk import PATH_SEPARATOR, Chunk
from chunker.kept import MOST_LEFT_OUT, Kept, KeptSpan
from chunker.packing import CHARACTERS, Pack, Packer
from chunker.sentences import SENTENCE_WINDOW
from chunker.tokens import Ruler
from parsers.document import Document

CHUNKER_VERSION: Final = 4  # raise when the output for any document changes
_HEADINGS: Final = 100  # units at the beginning of a region whose headings may stand in its first chunk


class ChunkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the cuts besides the document.

    Attributes:
        note_reserve: tokens kept free for a note, with or without notes.
        overlap: tokens at a chunk's end, in whole sentences of one or more paragraphs or list items, that the next
            one in the section begins with; no more than there is room for beside what it adds.
        path_share: the largest share of the budget that the printed heading path may take.
    """

    note_reserve: int = 40
    overlap: int = 0
    path_share: float = 0.25


def chunker_fingerprint(ruler: Ruler, settings: ChunkerSettings) -> str:
    """Return the digest of everything that decides the cuts besides the document and its title."""
    sentences = f"sentencex={version('sentencex')}:regex={version('regex')}"
    limits = f"{CHARACTERS}:{MOST_LEFT_OUT}:{SENTENCE_WINDOW}"
    own = f"{settings.note_reserve}:{settings.overlap}:{settings.path_share}:{limits}"
    return f"chunker:{CHUNKER_VERSION}:{sentences}:{ruler.fingerprint}:{own}"


def split(document: Document, title: str, ruler: Ruler, settings: ChunkerSettings) -> list[Chunk]:
    """Cut a document.

    Args:
        title: the document's own title or, for an untitled one, its base name.
        ruler: counts tokens and knows the limit.

    Returns:
        The chunks in reading order; none for a document without text.
    """
    return list(cut(document, title, ruler, settings))


def cut(document: Document, title: str, ruler: Ruler, settings: ChunkerSettings) -> Iterator[Chunk]:
    """Yield the chunks of :func:`split`, one at a time: what is held besides the document does not grow with it."""
    kept = Kept(document)
    cutter = _Cutter(document.text, kept, ruler, settings, titled=bool(document.title))
    last: _Piece | None = None  # held back for headings that may stand below it
    for region in _with_bodies(regions(document, kept, title)):
        if region.only_headings and last is not None and (whole := cutter.join(last, region)):
            last = whole
            continue
        for piece in cutter.cut(region):
            if last is not None:
                yield last.chunk
            last = piece
    if last is not None:
        yield last.chunk


def _with_bodies(found: Iterator[Region]) -> Iterator[Region]:
    """Yield the regions, headings without a body put to the region below.

    Those with nothing below come by themselves.
    """
    waiting: Region | None = None
    for region in found:
        bare = region.only_headings
        if waiting is not None:
            waiting.units += region.units
            region.units = waiting.units
        waiting = region if bare else None
        if waiting is None:
            yield region
    if waiting is not None:
        yield waiting


class _Piece(NamedTuple):
    """A chunk and where it begins in the kept text."""

    start: int
    chunk: Chunk


class _Cutter:
    def __init__(self, text: str, kept: Kept, ruler: Ruler, settings: ChunkerSettings, *, titled: bool) -> None:
        self._text = text
        self._kept = kept
        self._ruler = ruler
        self._titled = titled
        self._room = max(1, ruler.room - settings.note_reserve)
        self._most = self._room * CHARACTERS
        self._path_room = int(self._room * settings.path_share)
        self._overlap = settings.overlap
        self._counted: dict[str, int] = {}
        self._paths: dict[tuple[tuple[str, ...], frozenset[str | None]], tuple[str, ...]] = {}
        self._line = (-1, 0, 0)  # of a node that begins at the first, line ends up to the second are the third

    def cut(self, region: Region) -> Iterator[_Piece]:
        """Yield the chunks of one region."""
        headings = [index for index, unit in enumerate(region.units) if unit.kind == "heading"]

        def printed(first: int, last: int) -> tuple[str, ...]:
            """Return the printed heading path of a chunk with the units from ``first`` to ``last``."""
            inside = headings[bisect_left(headings, first) : bisect_right(headings, last)]
            return self._printed(region.path, frozenset(region.units[index].node.title for index in inside))

        def room(pack: Pack) -> int:
            return max(1, self._budget(printed(pack.atoms[0].unit, pack.atoms[-1].unit), pack.header))

        packer = Packer(
            self._kept.text,
            region.units,
            self._ruler,
            first=max(1, self._budget(printed(0, min(len(region.units), _HEADINGS)))),
            rest=max(1, self._budget(self._printed(region.path, frozenset()))),
            count=self._count,
            room=room,
            most=self._most,
            overlap=self._overlap,
        )
        for pack in packer.packs():
            shown = printed(pack.atoms[0].unit, pack.atoms[-1].unit)
            spans = self._kept.divided(pack.atoms[0].start, pack.atoms[-1].end)
            if len(spans) == 1:
                yield self._piece(region, pack, shown, spans[0])
                continue
            for span in spans:
                if part := self._part(pack, span, packer):
                    yield self._piece(region, part, shown, span)

    def join(self, piece: _Piece, headings: Region) -> _Piece | None:
        """Return the chunk with headings that stand below it, or None where they do not fit."""
        start, end = piece.start, headings.units[-1].end
        if end - start > self._most or len(self._kept.divided(start, end)) > 1:
            return None
        tokens = self._ruler.count(self._kept.text[start:end])
        if tokens > self._budget(piece.chunk.printed_path, piece.chunk.header):
            return None
        first, last = self._kept.span(start, end)
        chunk = msgspec.structs.replace(
            piece.chunk,
            end=last,
            text=self._text[first:last],
            tokens=tokens,
            gaps=self._kept.within(start, end),
            references=self._kept.references(start, end),
        )
        return _Piece(start, chunk)

    def _part(self, pack: Pack, span: KeptSpan, packer: Packer) -> Pack | None:
        """Return the part of a pack within a span of the kept text; None where it is blank."""
        text = self._kept.text[slice(*span)]
        start, end = span[0] + len(text) - len(text.lstrip()), span[0] + len(text.rstrip())
        atoms = [replace(atom) for atom in pack.atoms if atom.start < end and atom.end > start]
        if start >= end or not atoms:
            return None
        for atom, inside in ((atoms[0], atoms[0].start < start), (atoms[-1], atoms[-1].end > end)):
            if inside and not self._kept.text[atom.start : atom.end].isspace():
                atom.cut = atom.cut or "left-out part"
        atoms[0].start, atoms[-1].end = max(atoms[0].start, start), min(atoms[-1].end, end)
        tokens = self._ruler.count(self._kept.text[start:end])
        header = pack.header or packer.header(atoms[0])
        fits = tokens + (self._count(header) if header else 0) <= pack.budget
        return Pack(pack.budget, header if pack.header or fits else "", atoms, tokens)

    def _piece(self, region: Region, pack: Pack, printed: tuple[str, ...], span: KeptSpan) -> _Piece:
        first = pack.atoms[0].start
        last = first + len(self._kept.text[first : min(pack.atoms[-1].end, span[1])].rstrip())
        start, end = self._kept.span(first, last)
        units = region.units[pack.atoms[0].unit : pack.atoms[-1].unit + 1]
        chunk = Chunk(
            start=start,
            end=end,
            text=self._text[start:end],
            heading_path=region.path if self._titled else region.path[1:],
            printed_path=printed,
            header=pack.header,
            place=self._place(region.path, units, start),
            citation=_citation(region.work, [unit.node.ref for unit in units if unit.node.ref]),
            tokens=pack.tokens,
            section_start=min(region.section[0], start),
            section_end=max(region.section[1], end),
            cut=next((atom.cut for atom in pack.atoms if atom.cut), ""),
            gaps=self._kept.within(first, last),
            references=self._kept.references(first, last),
        )
        return _Piece(first, chunk)

    def _place(self, path: tuple[str, ...], units: list[Unit], start: int) -> str:
        """Return where a chunk stands, as a citation names it: headings, then page, slide, cells or line."""
        return PATH_SEPARATOR.join([*path[1:], *self._position(units, start, in_section=len(path) > 1)])

    def _position(self, units: list[Unit], start: int, *, in_section: bool) -> Iterator[str]:
        pages = [unit.node.page for unit in units if unit.node.page is not None]
        node = units[0].node
        if pages:
            yield f"p. {pages[0]}" if pages[0] == pages[-1] else f"pp. {pages[0]}-{pages[-1]}"
        elif node.slide is not None:
            yield f"slide {node.slide}"
        elif node.cells is not None:
            yield node.cells
        elif node.line is not None and (not in_section or node.kind == "code"):
            yield f"line {node.line + self._line_ends(node.start, start)}"

    def _line_ends(self, begin: int, position: int) -> int:
        """Line ends from where a node begins to a place in it; each stretch of the text is looked at once."""
        node, counted, found = self._line
        if node != begin or counted > position:
            counted, found = begin, 0
        found += self._text.count("\n", counted, max(counted, position))
        self._line = (begin, max(counted, position), found)
        return found

    def _budget(self, printed: tuple[str, ...], header: str = "") -> int:
        path = self._count(PATH_SEPARATOR.join(printed)) if printed else 0
        return self._room - path - (self._count(header) if header else 0)

    def _printed(self, path: tuple[str, ...], inside: frozenset[str | None]) -> tuple[str, ...]:
        """Return the titles to print: those not in the chunk, at most the path's share, middle titles dropped first."""
        if (path, inside) not in self._paths:
            self._paths[path, inside] = self._shortened([title for title in path if title not in inside])
        return self._paths[path, inside]

    def _shortened(self, titles: list[str]) -> tuple[str, ...]:
        while len(titles) > 2 and self._count(PATH_SEPARATOR.join(titles)) > self._path_room:
            del titles[len(titles) // 2]
        if len(titles) > 1 and self._count(PATH_SEPARATOR.join(titles)) > self._path_room:
            del titles[0]
        if titles and self._count(titles[0]) > self._path_room:
            titles = [self._beginning(titles[0])]
        return tuple(title for title in titles if title)

    def _beginning(self, title: str) -> str:
        """As many words of a title as the path has room for."""
        title = title[: self._ruler.reach(title, self._path_room) + 1]
        while " " in title:
            title = title.rsplit(None, 1)[0] if not title[-1].isspace() else title.rstrip()
            if self._count(title) <= self._path_room:
                return title
        return ""

    def _count(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self._ruler.count(text)
        return self._counted[text]


def _citation(work: str, refs: list[str]) -> str:
    """Return a work and where in it: ``Caesar, Gallic War 4.25-26``, ``Grote, History of Greece, ch. 55``."""
    if not work or not refs:
        return ""
    first, last = refs[0], refs[-1]
    if last.startswith(f"{first}."):  # a book's summary and its first chapter
        first = last
    if first != last:
        head, dot, number = last.rpartition("." if "." in last.rpartition(" ")[2] else " ")
        same = first.startswith(head + dot) and first.removeprefix(head + dot).isdigit()
        first = f"{first}-{number if same else last}"
    return f"{work}{', ' if first[0].isalpha() else ' '}{first}"
