"""The chunker: one function that cuts a document tree, whatever format it came from.

Kept here, and tested as properties over generated trees and real files:
1. ``chunk.text == document.text[chunk.start:chunk.end]`` for every chunk, in code points.
2. The chunks cover every non-blank character outside the left-out parts exactly once.
3. No chunk crosses a section boundary, or cuts a sentence, a code block or a table row, unless that piece alone is
   over the budget; then ``chunk.cut`` says so. The one crossing: a heading without a body of its own joins the chunk
   below it, the last one the chunk above.
4. Budget of a chunk's text = limit - special tokens - prefix - printed heading path - repeated table header - note
   reserve; the reserve is kept without notes too, so that notes move no boundary.
5. The same document, title, ruler and settings give the same chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

import msgspec

from chunker.blocks import Region, Span, Unit, regions
from chunker.chunk import PATH_SEPARATOR, Chunk
from chunker.packing import Pack, atomize, pack
from chunker.tokens import Ruler
from parsers.document import Document

VERSION: Final = 3  # raise when the output for any document changes


class ChunkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the cuts besides the document.

    Attributes:
        note_reserve: tokens kept free for a note, with or without notes.
        path_share: the largest share of the budget that the printed heading path may take.
    """

    note_reserve: int = 40
    path_share: float = 0.25


def fingerprint(ruler: Ruler, settings: ChunkerSettings) -> str:
    """What decides the chunker's output besides the document and its title."""
    sentences = f"sentencex={version('sentencex')}"
    return f"chunker:{VERSION}:{sentences}:{ruler.fingerprint}:{settings.note_reserve}:{settings.path_share}"


def split(document: Document, title: str, ruler: Ruler, settings: ChunkerSettings) -> list[Chunk]:
    """Cut a document.

    Args:
        title: the document's own title or, for an untitled one, its base name.
        ruler: counts tokens and knows the limit.

    Returns:
        The chunks in reading order; none for a document without text.
    """
    cutter = _Cutter(document.text, ruler, settings, titled=bool(document.title))
    chunks: list[Chunk] = []
    waiting: Region | None = None  # headings without a body, on their way to the region below
    for region in regions(document, title):
        if waiting is not None and region.joined:
            region.units = waiting.units + region.units
        elif waiting is not None:
            chunks += cutter.cut(waiting)
        waiting = region if region.only_headings else None
        if waiting is None:
            chunks += cutter.cut(region)
    if waiting is not None:
        joined = cutter.join(chunks[-1], waiting) if chunks and waiting.joined else None
        if joined is not None:
            chunks[-1] = joined
        else:
            chunks += cutter.cut(waiting)
    return chunks


class _Cutter:
    def __init__(self, text: str, ruler: Ruler, settings: ChunkerSettings, *, titled: bool) -> None:
        self._text = text
        self._ruler = ruler
        self._titled = titled
        self._room = max(1, ruler.room - settings.note_reserve)
        self._path_room = int(self._room * settings.path_share)
        self._counted: dict[str, int] = {}

    def cut(self, region: Region) -> list[Chunk]:
        """The chunks of one region. Cut again with less room where a tokenizer's counts do not add up."""
        for tenths in range(10, 0, -1):
            chunks = self._try(region, tenths / 10)
            if chunks is not None:
                return chunks
        raise ValueError(f"no cut fits at {region.units[0].start}: the tokenizer counts a text over all its parts")

    def join(self, chunk: Chunk, headings: Region) -> Chunk | None:
        """The chunk with headings that stand below it, or None where they do not fit."""
        text = self._text[chunk.start : headings.units[-1].end]
        tokens = self._ruler.count(text)
        if tokens > self._budget(chunk.printed_path, chunk.header):
            return None
        return msgspec.structs.replace(chunk, end=chunk.start + len(text), text=text, tokens=tokens)

    def _try(self, region: Region, share: float) -> list[Chunk] | None:
        own = {unit.node.title for unit in region.units if unit.kind == "heading"}
        first = max(1, int(share * self._budget(self._printed(region.path, own))))
        rest = max(1, int(share * self._budget(self._printed(region.path, set()))))
        atoms = atomize(self._text, region.units, self._ruler, min(first, rest))
        headers = {unit.header: self._count(unit.header) for unit in region.units if unit.header}
        packs = list(pack(region.units, atoms, first, rest, headers))
        spans = [(one.atoms[0].start, one.atoms[-1].end) for one in packs]
        spans = [(start, start + len(self._text[start:end].rstrip())) for start, end in spans]
        counts = self._counts(packs, spans)
        chunks = [
            self._chunk(region, one, span, tokens) for one, span, tokens in zip(packs, spans, counts, strict=True)
        ]
        fits = all(chunk.tokens <= max(1, self._budget(chunk.printed_path, chunk.header)) for chunk in chunks)
        return chunks if fits or share <= 0.1 else None

    def _counts(self, packs: Sequence[Pack], spans: Sequence[Span]) -> list[int]:
        """Tokens of each chunk's text: the sum over its atoms where that is exact, counted again otherwise."""
        exact = [self._ruler.additive and not any(atom.cut for atom in one.atoms) for one in packs]
        unsure = [self._text[start:end] for (start, end), sure in zip(spans, exact, strict=True) if not sure]
        again = iter(self._ruler.count_all(unsure))
        return [
            sum(atom.tokens for atom in one.atoms) if sure else next(again)
            for one, sure in zip(packs, exact, strict=True)
        ]

    def _chunk(self, region: Region, packed: Pack, span: Span, tokens: int) -> Chunk:
        start, end = span
        units = region.units[packed.first : packed.last + 1]
        inside = {unit.node.title for unit in units if unit.kind == "heading"}
        return Chunk(
            start=start,
            end=end,
            text=self._text[start:end],
            heading_path=region.path if self._titled else region.path[1:],
            printed_path=self._printed(region.path, inside),
            header=packed.header,
            place=_place(self._text, region.path, units, start),
            citation=_citation(region.work, [unit.node.ref for unit in units if unit.node.ref]),
            tokens=tokens,
            section_start=min(region.section[0], start),
            section_end=max(region.section[1], end),
            cut=next((atom.cut for atom in packed.atoms if atom.cut), ""),
        )

    def _budget(self, printed: tuple[str, ...], header: str = "") -> int:
        path = self._count(PATH_SEPARATOR.join(printed)) if printed else 0
        return self._room - path - (self._count(header) if header else 0)

    def _printed(self, path: tuple[str, ...], inside: set[str | None]) -> tuple[str, ...]:
        """The titles to print: those not in the chunk, at most the path's share, middle titles dropped first."""
        titles = [title for title in path if title not in inside]
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
