"""From the document tree to what the packer packs: regions of units.

Invariants:
- Every non-blank character of the kept text stands in exactly one unit.
- A region never reaches over a section boundary; left-out parts change nothing, since the kept text has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from chunker.kept import Kept, KeptSpan, Leaf
from chunker.sentences import iterate_sentences
from parsers.document import ROOT, Document, Kind, Node

_UNWRAPPED: Final = 150  # code points of a line from which nobody is taken to have wrapped it
_BLANK_LINES: Final = re.compile(r"\n(?:[^\S\n]*\n)+")
_LINE_ENDS: Final = re.compile(r"\n+")
_LONGEST_HEADER: Final = 10_000  # characters of a table's header rows, far more than any budget has room for


@dataclass(slots=True)
class Unit:
    """What stays together if it can: a paragraph, a heading, a whole table, a code block.

    Attributes:
        start, end: its extent in the kept text, marks included.
        header: of a table, the text of the header rows that it begins with.
        header_rows: how many those are.
        rows: of a table, the extents of its rows.
    """

    kind: Kind
    start: int
    end: int
    node: Node
    header: str = ""
    header_rows: int = 0
    rows: list[KeptSpan] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether it stays in one chunk even where that leaves the chunk before it short."""
        return self.kind in ("table", "code", "heading")


@dataclass(slots=True)
class Region:
    """A run of units that may share chunks: one section's own text.

    Attributes:
        path: titles from the document's own, or its base name, down to the section.
        section: ``[start, end)`` of the section in the document; of the whole text outside any section.
        work: how a citation names the work that holds it; empty where it is cited by the file's name.
    """

    path: tuple[str, ...]
    section: KeptSpan
    units: list[Unit]
    work: str = ""

    @property
    def only_headings(self) -> bool:
        """Whether its headings have no body of their own."""
        return all(unit.kind == "heading" for unit in self.units)


def regions(document: Document, kept: Kept, title: str) -> Iterator[Region]:
    """Yield the document's regions in reading order.

    Args:
        kept: its kept text, which the units are of.
        title: the document's own title or, for an untitled one, its base name.
    """
    nodes = document.nodes
    sections = _section_of_each(nodes)
    region: Region | None = None
    owner = ROOT
    for leaf in kept.leaves():
        if region is None or owner != sections[leaf.index]:
            if region is not None:
                yield region
            owner = sections[leaf.index]
            region = Region(_path(nodes, owner, title), _section_span(document, owner), [], _work(document, owner))
        _add_leaf(kept.text, nodes, leaf, region.units)
    if region is not None:
        yield region


def pieces(text: str, unit: Unit) -> Iterator[KeptSpan]:
    """Yield where a unit may be cut at first: sentences of prose, rows of a table, blank lines in code."""
    if unit.kind == "heading":
        yield unit.start, unit.end
    elif unit.kind == "table":
        yield from unit.rows
    elif unit.kind in ("code", "markup"):
        yield from _split_at(_BLANK_LINES, text, unit.start, unit.end)
    else:
        yield from iterate_sentences(text, unit.start, unit.end)


def lines(text: str, span: KeptSpan) -> Iterator[KeptSpan]:
    """Return where a piece that is alone over the budget is cut next: its lines."""
    return _split_at(_LINE_ENDS, text, *span)


def _split_at(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[KeptSpan]:
    """Yield the text between the matches, each with the match behind it; drop blank parts."""
    begin, found = start, False
    for match in pattern.finditer(text, start, end):
        if match.end() < end and not text[begin : match.end()].isspace():
            found = True
            yield begin, match.end()
        begin = match.end() if match.end() < end else begin
    if text[begin:end].strip():
        yield begin, end
    elif not found:
        yield start, end


def _section_of_each(nodes: tuple[Node, ...]) -> list[int]:
    """Return the innermost section around each node, or the node itself where it is a section."""
    owners: list[int] = []
    for index, node in enumerate(nodes):
        owners.append(index if node.kind == "section" else (owners[node.parent] if node.parent != ROOT else ROOT))
    return owners


def _section_span(document: Document, section: int) -> KeptSpan:
    return document.nodes[section].extent if section != ROOT else (0, len(document.text))


def _path(nodes: tuple[Node, ...], section: int, title: str) -> tuple[str, ...]:
    titles: list[str] = []
    while section != ROOT:
        titles.append(nodes[section].title or "")
        section = nodes[section].parent
    titles = [name for name in reversed(titles) if name]
    return tuple(titles if titles and titles[0] == title else [title, *titles])


def _paragraphs(text: str, node: Node, start: int, end: int) -> list[KeptSpan]:
    """Return a paragraph.

    Or its lines, where most of it stands in lines that nobody wrapped: each is a paragraph then.
    """
    if node.kind != "paragraph" or "\n" not in text[start:end]:
        return [(start, end)]
    lines = [(a, a + len(text[a:b].rstrip())) for a, b in _split_at(_LINE_ENDS, text, start, end)]
    unwrapped = sum(b - a for a, b in lines if b - a > _UNWRAPPED)
    return lines if unwrapped * 2 > end - start else [(start, end)]


def _work(document: Document, section: int) -> str:
    while section != ROOT:
        if work := document.nodes[section].work:
            return work
        section = document.nodes[section].parent
    return document.work


def _add_leaf(text: str, nodes: tuple[Node, ...], leaf: Leaf, units: list[Unit]) -> None:
    node = nodes[leaf.index]
    own = text[leaf.start : leaf.end]
    start, end = leaf.start + len(own) - len(own.lstrip("\n")), leaf.start + len(own.rstrip())
    if start >= end:
        return
    table = nodes[node.parent] if node.kind == "row" and node.parent != ROOT else None
    if table is None:
        units += [Unit(node.kind, low, high, node) for low, high in _paragraphs(text, node, start, end)]
        return
    if not units or units[-1].node is not table:
        units.append(Unit("table", start, end, table))
    unit = units[-1]
    unit.end = end
    unit.rows.append((start, end))
    if node.header and unit.header_rows == len(unit.rows) - 1 and len(unit.header) < _LONGEST_HEADER:
        unit.header += ("\n" if unit.header else "") + text[start:end]
        unit.header_rows += 1
