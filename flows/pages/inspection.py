"""How one file is parsed and cut, as a page that is read in a browser.

Invariants:
- The text stands on the page whole, once, in order and with its white space.
- Every number and reason that is shown in it comes from the style, so what is copied from the page is the text alone.
- The work grows with the text and the number of its parts, not with their product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape

from chunker.chunk import PATH_SEPARATOR
from flows.pages.page import render

LISTED: Final = 2000  # rows of the list of nodes
_PREVIEW: Final = 80  # characters of a node's text in it
OPEN_OUTLINE: Final = 60  # sections up to which the outline stands open
BLANK: Final = "white space"
UNCOVERED: Final = "in no chunk"


class Stretch(NamedTuple):
    """A stretch of the text that the same chunks cover.

    Attributes:
        start, end: ``[start, end)`` in the text.
        chunks: numbers of the chunks that cover it, from 1; more than one where they overlap.
        begin: numbers of the chunks that begin here.
        reason: why it is in no chunk; empty where it is in one.
    """

    start: int
    end: int
    chunks: tuple[int, ...]
    begin: tuple[int, ...]
    reason: str


def inspection_page(found: Mapping[str, Any], name: str) -> str:
    """Return the page of a file.

    Args:
        found: as :func:`flows.inspection.inspect_file` gives it.
        name: the file's name.
    """
    document, chunks = found["document"], found["chunks"]
    text, nodes = document["text"], document["nodes"]
    stretches = runs(text, chunks, nodes)
    facts = [_facts(number, chunk) for number, chunk in enumerate(chunks, 1)]
    values = {
        "name": name,
        "document": document,
        "chunks": chunks,
        "separator": PATH_SEPARATOR,
        "tokens": _tokens(chunks),
        "shares": _shares(stretches),
        "outline": _outline(nodes),
        "sections": sum(node["kind"] == "section" for node in nodes),
        "open_outline": OPEN_OUTLINE,
        "text": Markup("").join(_marked(text, stretches, nodes, facts)),
        "left": [run for run in stretches if run.reason not in ("", BLANK)],
        "nodes": [_node(text, node) for node in nodes[:LISTED]],
        "listed": LISTED,
    }
    return render("inspection", values)


def runs(text: str, chunks: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> list[Stretch]:
    """Cut the text where chunks and left-out parts begin and end, in one sweep, without gaps."""
    covers = _Sweep((number, chunk["start"], chunk["end"]) for number, chunk in enumerate(chunks, 1))
    outs = _Sweep((index, *_extent(node)) for index, node in enumerate(nodes) if node.get("left_out"))
    positions = sorted({0, len(text)} | covers.positions() | outs.positions())
    found: list[Stretch] = []
    for low, high in zip(positions, [*positions[1:], len(text)], strict=True):
        begin = tuple(covers.at(low))
        outs.at(low)
        numbers = () if outs.open else tuple(sorted(covers.open))  # a chunk may reach over what is left out
        if low == high and not begin:
            continue
        if numbers and found and found[-1].chunks == numbers and not begin:
            found[-1] = found[-1]._replace(end=high)
            continue
        if numbers or low == high:
            found.append(Stretch(low, high, numbers, begin, ""))
        elif outs.open:  # the innermost of them is the last
            found.append(Stretch(low, high, (), begin, str(nodes[max(outs.open)]["left_out"])))
        else:
            found += _outside(text, low, high, begin)
    return found


class _Sweep:
    """Which of a number of extents are open, asked from the front to the back."""

    def __init__(self, extents: Iterable[tuple[int, int, int]]) -> None:
        self.open: set[int] = set()
        self._begin: dict[int, list[int]] = defaultdict(list)
        self._end: dict[int, list[int]] = defaultdict(list)
        self._empty: set[int] = set()
        for index, start, end in extents:
            self._begin[start].append(index)
            self._end[end].append(index)
            if start == end:
                self._empty.add(index)

    def positions(self) -> set[int]:
        return self._begin.keys() | self._end.keys()

    def at(self, position: int) -> list[int]:
        """Close what ends here, and open and give what begins here; what is empty only begins."""
        self.open.difference_update(self._end.get(position, ()))
        begin = self._begin.get(position, [])
        self.open.update(set(begin) - self._empty)
        return begin


def _outside(text: str, low: int, high: int, begin: tuple[int, ...]) -> list[Stretch]:
    """Return a part that is neither in a chunk nor left out: white space, or words with white space around them."""
    part = text[low:high]
    first, last = high - len(part.lstrip()), low + len(part.rstrip())
    if first == high:
        return [Stretch(low, high, (), begin, BLANK)]
    parts = [(low, first, BLANK), (first, last, UNCOVERED), (last, high, BLANK)]
    made = [Stretch(start, end, (), (), reason) for start, end, reason in parts if start < end]
    made[0] = made[0]._replace(begin=begin)
    return made


def _extent(node: Mapping[str, Any]) -> tuple[int, int]:
    start, end = node.get("outer") or (node["start"], node["end"])
    return start, end


def _marked(
    text: str, stretches: Sequence[Stretch], nodes: Sequence[Mapping[str, Any]], facts: Sequence[str]
) -> Iterator[Markup]:
    """Yield the text with its marks. Everything but the text itself stands in attributes."""
    sections = [(_extent(node)[0], index) for index, node in enumerate(nodes) if node["kind"] == "section"]
    waiting = sorted(sections, reverse=True)
    for run in stretches:
        yield _opened(text, run, facts)
        position = run.start
        while waiting and (waiting[-1][0] < run.end or run.end == len(text)):
            start, index = waiting.pop()
            yield _escaped(text[position:start])
            yield _section_mark(index, nodes[index])
            position = start
        yield _escaped(text[position : run.end])
        yield Markup("</span>")


def _opened(text: str, run: Stretch, facts: Sequence[str]) -> Markup:
    if not run.chunks:
        kind = "blank" if run.reason in ("", BLANK) else "out"
        title = f"{run.reason}, [{run.start}, {run.end})"
        marks = Markup("").join(_chunk_mark(number, facts[number - 1]) for number in run.begin)
        return Markup('<span class="{}{}" title="{}" data-label="{}">{}').format(
            kind, _layout(text, run), title, run.reason, marks
        )
    several = len(run.chunks) > 1
    shade = "both" if several else ("even", "odd")[run.chunks[-1] % 2]
    title = "\n\n".join(facts[number - 1] for number in run.chunks)
    marks = Markup("").join(_chunk_mark(number, facts[number - 1]) for number in run.begin)
    if several or not run.begin:
        label = " + ".join(map(str, run.chunks)) + ("" if several else " …")
        marks += Markup('<span class="mark" data-label="{}"></span>').format(label)
    return Markup('<span class="chunk {}{}" title="{}">{}').format(shade, _layout(text, run), title, marks)


def _layout(text: str, run: Stretch) -> str:
    """Whole lines stand as a block, so that their shade has no holes at blank lines."""
    if run.start == run.end:
        return ""
    if run.reason == BLANK:
        own = text[run.start] == "\n" and text[run.end - 1] == "\n"
    else:
        own = (run.start == 0 or text[run.start - 1] == "\n") and (run.end == len(text) or text[run.end] == "\n")
    return " lines" if own else ""


def _chunk_mark(number: int, facts: str) -> Markup:
    mark = Markup('<a class="mark" id="c{0}" href="#r{0}" aria-label="chunk {0}" title="{1}" data-label="{0}"></a>')
    return mark.format(number, facts)


def _section_mark(index: int, node: Mapping[str, Any]) -> Markup:
    title = f"section of level {node['level']}: {node.get('title') or ''}"
    return Markup('<span class="section" id="s{}" title="{}" data-label="§{}"></span>').format(
        index, title, node["level"]
    )


def _escaped(part: str) -> Markup:
    """Text as text. A carriage return as it stands would be read as a line feed."""
    return Markup(str(escape(part)).replace("\r", "&#13;"))


def _facts(number: int, chunk: Mapping[str, Any]) -> str:
    lines = [
        f"chunk {number}, [{chunk['start']}, {chunk['end']}), {chunk['tokens']} tokens",
        chunk["locator"],
        f"headings: {PATH_SEPARATOR.join(chunk['heading_path'])}" if chunk["heading_path"] else "",
        f"cut: {chunk['cut']}" if chunk["cut"] else "",
    ]
    return "\n".join(line for line in lines if line)


def _tokens(chunks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Shortest, middle and longest chunk, and what had to be cut; None without chunks."""
    if not chunks:
        return None
    tokens = [chunk["tokens"] for chunk in chunks]
    return {
        "min": min(tokens),
        "median": f"{median(tokens):g}",
        "max": max(tokens),
        "cut": sorted(Counter(chunk["cut"] for chunk in chunks if chunk["cut"]).items()),
    }


def _shares(stretches: Sequence[Stretch]) -> list[tuple[str, int]]:
    """Return how many characters are in chunks, and how many are not by their reason, the most first."""
    counts: Counter[str] = Counter({"in chunks": 0})
    for run in stretches:
        counts[run.reason or "in chunks"] += run.end - run.start
    return sorted(counts.items(), key=lambda one: (one[0] != "in chunks", -one[1], one[0]))


def _outline(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the sections, each with those below it."""
    top: list[dict[str, Any]] = []
    below: list[list[dict[str, Any]]] = []  # of each node: where a section inside it goes
    for index, node in enumerate(nodes):
        around = below[node["parent"]] if node["parent"] >= 0 else top
        if node["kind"] == "section":
            section: dict[str, Any] = {"index": index, "title": node.get("title") or "(no words)", "below": []}
            around.append(section)
            around = section["below"]
        below.append(around)
    return top


def _node(text: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the list of nodes."""
    start, end = node["start"], node["end"]
    words = " ".join(text[start : min(end, start + 4 * _PREVIEW)].split())
    cut = len(words) > _PREVIEW or end > start + 4 * _PREVIEW
    places = [f"{place} {node[place]}" for place in ("page", "slide", "line", "cells") if node.get(place)]
    return {
        "kind": node["kind"],
        "start": start,
        "end": end,
        "level": node["level"] or "",
        "place": ", ".join(places),
        "left_out": node.get("left_out") or "",
        "text": words[:_PREVIEW] + ("…" if cut else ""),
    }
