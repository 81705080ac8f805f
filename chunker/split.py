"""The chunker: one function that cuts a document tree, whatever format it came from.

Kept here, and tested as properties over generated trees and real files:
1. ``chunk.text == document.text[chunk.start:chunk.end]`` for every chunk, in code points.
2. The chunks cover every non-blank character outside the left-out parts, without overlap exactly once.
3. No chunk crosses a section boundary, or cuts a sentence, a code block or a table row, unless that piece alone is
   over the budget; then ``chunk.cut`` says so. The one crossing: a heading without a body of its own joins the chunk
   below it, the last one the chunk above.
4. Budget of a chunk's text = limit - special tokens - prefix - printed heading path - repeated table header - note
   reserve; the reserve is kept without notes too, so that notes move no boundary.
5. The same document, title, ruler and settings give the same chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

import msgspec

from chunker.blocks import Region, Unit, regions
from chunker.chunk import PATH_SEPARATOR, Chunk
from chunker.packing import Pack, Packer
from chunker.tokens import Ruler
from parsers.document import Document

VERSION: Final = 3  # raise when the output for any document changes


class ChunkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the cuts besides the document.

    Attributes:
        note_reserve: tokens kept free for a note, with or without notes.
        overlap: tokens at a chunk's end, in whole sentences, that the next one in the section begins with.
        path_share: the largest share of the budget that the printed heading path may take.
    """

    note_reserve: int = 40
    overlap: int = 0
    path_share: float = 0.25


def fingerprint(ruler: Ruler, settings: ChunkerSettings) -> str:
    """What decides the chunker's output besides the document and its title."""
    sentences = f"sentencex={version('sentencex')}"
    own = f"{settings.note_reserve}:{settings.overlap}:{settings.path_share}"
    return f"chunker:{VERSION}:{sentences}:{ruler.fingerprint}:{own}"


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
    """The chunks of :func:`split`, one at a time: what is held besides the document does not grow with it."""
    cutter = _Cutter(document.text, ruler, settings, titled=bool(document.title))
    last: Chunk | None = None  # held back for headings that may stand below it
    for region in _with_bodies(regions(document, title)):
        if region.only_headings and region.joined and last is not None and (whole := cutter.join(last, region)):
            last = whole
            continue
        for chunk in cutter.cut(region):
            if last is not None:
                yield last
            last = chunk
    if last is not None:
        yield last


def _with_bodies(found: Iterator[Region]) -> Iterator[Region]:
    """The regions, headings without a body put to the region below; those with nothing below come by themselves."""
    waiting: Region | None = None
    for region in found:
        if waiting is not None and region.joined:
            region.units = waiting.units + region.units
        elif waiting is not None:
            waiting.joined = False  # something left out stands below it: it joins neither side
            yield waiting
        waiting = region if region.only_headings else None
        if waiting is None:
            yield region
    if waiting is not None:
        yield waiting


class _Cutter:
    def __init__(self, text: str, ruler: Ruler, settings: ChunkerSettings, *, titled: bool) -> None:
        self._text = text
        self._ruler = ruler
        self._titled = titled
        self._room = max(1, ruler.room - settings.note_reserve)
        self._path_room = int(self._room * settings.path_share)
        self._overlap = settings.overlap
        self._counted: dict[str, int] = {}
        self._paths: dict[tuple[tuple[str, ...], frozenset[str | None]], tuple[str, ...]] = {}

    def cut(self, region: Region) -> Iterator[Chunk]:
        """The chunks of one region."""
        headings = [index for index, unit in enumerate(region.units) if unit.kind == "heading"]

        def printed(first: int, last: int) -> tuple[str, ...]:
            """The printed heading path of a chunk with the units from ``first`` to ``last``."""
            inside = headings[bisect_left(headings, first) : bisect_right(headings, last)]
            return self._printed(region.path, frozenset(region.units[index].node.title for index in inside))

        def room(pack: Pack) -> int:
            return max(1, self._budget(printed(pack.atoms[0].unit, pack.atoms[-1].unit), pack.header))

        packer = Packer(
            self._text,
            region.units,
            self._ruler,
            first=max(1, self._budget(printed(0, len(region.units)))),
            rest=max(1, self._budget(self._printed(region.path, frozenset()))),
            count=self._count,
            room=room,
            overlap=self._overlap,
        )
        for pack in packer.packs():
            yield self._chunk(region, pack, printed(pack.atoms[0].unit, pack.atoms[-1].unit))

    def join(self, chunk: Chunk, headings: Region) -> Chunk | None:
        """The chunk with headings that stand below it, or None where they do not fit."""
        text = self._text[chunk.start : headings.units[-1].end]
        tokens = self._ruler.count(text)
        if tokens > self._budget(chunk.printed_path, chunk.header):
            return None
        return msgspec.structs.replace(chunk, end=chunk.start + len(text), text=text, tokens=tokens)

    def _chunk(self, region: Region, pack: Pack, printed: tuple[str, ...]) -> Chunk:
        start = pack.atoms[0].start
        text = self._text[start : pack.atoms[-1].end].rstrip()
        end = start + len(text)
        units = region.units[pack.atoms[0].unit : pack.atoms[-1].unit + 1]
        return Chunk(
            start=start,
            end=end,
            text=text,
            heading_path=region.path if self._titled else region.path[1:],
            printed_path=printed,
            header=pack.header,
            place=_place(self._text, region.path, units, start),
            citation=_citation(region.work, [unit.node.ref for unit in units if unit.node.ref]),
            tokens=pack.tokens,
            section_start=min(region.section[0], start),
            section_end=max(region.section[1], end),
            cut=next((atom.cut for atom in pack.atoms if atom.cut), ""),
        )

    def _budget(self, printed: tuple[str, ...], header: str = "") -> int:
        path = self._count(PATH_SEPARATOR.join(printed)) if printed else 0
        return self._room - path - (self._count(header) if header else 0)

    def _printed(self, path: tuple[str, ...], inside: frozenset[str | None]) -> tuple[str, ...]:
        """The titles to print: those not in the chunk, at most the path's share, middle titles dropped first."""
        if (path, inside) not in self._paths:
            self._paths[path, inside] = self._shortened([title for title in path if title not in inside])
        return self._paths[path, inside]

    def _shortened(self, titles: list[str]) -> tuple[str, ...]:
        while len(titles) > 2 and self._count(PATH_SEPARATOR.join(titles)) > self._path_room:
            del titles[len(titles) // 2]
        if len(titles) > 1 and self._count(PATH_SEPARATOR.join(titles)) > self._path_room:
            del titles[0]
        while titles and self._count(titles[0]) > self._path_room:
            shorter = titles[0].rsplit(None, 1)[0] if " " in titles[0] else ""
            titles = [shorter] if shorter else []
        return tuple(titles)

    def _count(self, text: str) -> int:
        if text not in self._counted:
            self._counted[text] = self._ruler.count(text)
        return self._counted[text]


def _citation(work: str, refs: list[str]) -> str:
    """A work and where in it: ``Caesar, Gallic War 4.25-26``, ``Grote, History of Greece, ch. 55``."""
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


def _place(text: str, path: tuple[str, ...], units: list[Unit], start: int) -> str:
    """Where a chunk stands, as a citation names it: headings, then page, slide, cells or line."""
    return PATH_SEPARATOR.join([*path[1:], *_position(text, units, start, in_section=len(path) > 1)])


def _position(text: str, units: list[Unit], start: int, *, in_section: bool) -> Iterator[str]:
    pages = [unit.node.page for unit in units if unit.node.page is not None]
    node = units[0].node
    if pages:
        yield f"p. {pages[0]}" if pages[0] == pages[-1] else f"pp. {pages[0]}-{pages[-1]}"
    elif node.slide is not None:
        yield f"slide {node.slide}"
    elif node.cells is not None:
        yield node.cells
    elif node.line is not None and (not in_section or node.kind == "code"):
        yield f"line {node.line + text.count(chr(10), node.start, max(node.start, start))}"
