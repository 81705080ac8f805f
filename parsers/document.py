"""The document tree: the one interface between parsing and everything after it.

Invariants, tested for every adapter and every real file:
- Each offset counts Unicode code points of ``Document.text``.
- Nodes stand in reading order, parents before children, children inside their parents.
- The leaves' outer spans are disjoint and together hold every non-blank character of the text.
- Encoded data (``parsers/blobs.py``) is a part of its own that is left out, in every format.
- Where the builder writes the text, left-out leaves stand behind everything else, so that they part nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal
from unicodedata import category

import msgspec

from parsers.blobs import leave_blobs_out

Kind = Literal[
    "section",  # a heading and everything below it; its extent begins at the heading
    "heading",
    "paragraph",
    "list",
    "item",
    "table",  # holds rows
    "row",
    "code",
    "quote",
    "caption",
    "footnote",
    "figure",  # an image, by its alternative text or caption
    "formula",
    "rule",  # a thematic break
    "markup",  # raw markup kept as it stands
    "front_matter",
    "header",  # a running head
    "footer",  # a running foot
    "blob",  # encoded data, always left out
]
Status = Literal["ok", "partial", "empty", "skipped", "failed"]
Box = tuple[float, float, float, float]

CONTAINERS: Final = frozenset({"section", "list", "item", "table", "quote"})
ROOT: Final = -1
LONGEST_TITLE: Final = 1_000  # code points of a title; what is longer is cut


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a document.

    Attributes:
        kind: what the part is.
        start, end: ``[start, end)`` of its content in the text, in code points, without the marks around it
            (heading hashes, code fences, list bullets).
        outer: ``[start, end)`` with the marks around it; None where it equals ``(start, end)``.
        parent: index of the parent in ``Document.nodes``; -1 for a child of the document itself.
        level: of a section or heading, 1 for the highest; of a list, its depth from 1.
        title: of a section or heading, its words without markup.
        left_out: why this part and all below it stay out of the index; None for a part that is indexed.
        page: 1-based page; of a part that crosses pages, the first.
        box: ``(left, top, right, bottom)`` in points from the top left corner of its page.
        cells: cell range of a row or table of a spreadsheet, such as ``A1:C9``.
        slide: 1-based slide.
        line: 1-based line of the file where the part begins.
        language: of code, the language its source names.
        number: of an item of an ordered list, its number.
        header: whether a table row is a header row.
        work: of a section, how a citation names the work that it holds (``Caesar, Gallic War``).
        ref: where in its work the part stands, as a citation prints it (``4.25``).
        continued: whether it goes on the part before it, from which only left-out parts divide it.
    """

    kind: Kind
    start: int
    end: int
    outer: tuple[int, int] | None = None
    parent: int = ROOT
    level: int = 0
    title: str | None = None
    left_out: str | None = None
    page: int | None = None
    box: Box | None = None
    cells: str | None = None
    slide: int | None = None
    line: int | None = None
    language: str | None = None
    number: int | None = None
    header: bool = False
    work: str | None = None
    ref: str | None = None
    continued: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """``[start, end)`` with the marks around the content."""
        return self.outer or (self.start, self.end)


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parsed document; a function of its bytes, its media type and the parser alone.

    Attributes:
        text: the normalized text; what every offset counts in.
        title: the document's own title; empty for an untitled one, which is then called by its base name.
        nodes: the tree in reading order, parents before their children.
        work: how a citation names the work that the document holds; empty where it is cited by its file's name.
        metadata: what the document says of itself (author, date, …), as text.
        labels: access and other labels that the document itself carries.
        media_type: what it was read as.
        status: ``ok``; ``partial`` when something in it could not be read; ``empty`` when there is no text in it;
            ``skipped`` when no adapter reads its type; ``failed`` when one does and it could not be read at all.
        reason: why the status is not ``ok``; empty otherwise.
        references: where in the text character references (``&amp;``) stand that are searched as what they mean, in
            rising order.
    """

    text: str
    title: str = ""
    work: str = ""
    nodes: tuple[Node, ...] = ()
    metadata: dict[str, str] = {}
    labels: tuple[str, ...] = ()
    media_type: str = "text/plain"
    status: Status = "ok"
    reason: str = ""
    references: tuple[int, ...] = ()

    def children(self) -> dict[int, list[int]]:
        """Indexes of each node's children in reading order, by the parent's index (-1: the document)."""
        below: dict[int, list[int]] = {ROOT: []}
        for index, node in enumerate(self.nodes):
            below.setdefault(node.parent, []).append(index)
        return below

    def encode(self) -> bytes:
        """Return the document as canonical JSON: equal documents give equal bytes."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Document:
        """Return the document that :meth:`encode` wrote.

        Raises:
            msgspec.MsgspecError: when the bytes are no document.
        """
        return _DECODER.decode(data)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.encode()).hexdigest()


_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(Document)


class TreeBuilder:
    """Builds a document tree; adapters call it in reading order.

    Two ways to use it. A text format hands over its whole text and gives offsets into it (:meth:`leaf`,
    :meth:`open`, :meth:`close`). A format without a text of its own lets the builder write it (:meth:`write`).
    Headings open sections by themselves and close those of their level and below; between two headings every other
    part falls into the section that is open.

    Args:
        text: the document's text where it is known beforehand; None to have it written part by part.
    """

    def __init__(self, text: str | None = None) -> None:
        self._given = text
        self._pieces: list[str] = []
        self._length = 0
        self._nodes: list[Node] = []
        self._open: list[int] = []
        self._aside: list[tuple[Kind, str, dict[str, object]]] = []  # what is left out of a text that is written

    @property
    def position(self) -> int:
        """How many code points have been written so far (only where the builder writes the text)."""
        return self._length

    def heading(
        self,
        title: str,
        level: int,
        start: int,
        end: int,
        *,
        outer: tuple[int, int] | None = None,
        page: int | None = None,
        box: Box | None = None,
        line: int | None = None,
        slide: int | None = None,
        work: str | None = None,
    ) -> None:
        """Close the sections of this level and below, open a new one, and put the heading into it.

        Within a list or a quote a heading opens no section: it is a leaf there.

        Args:
            title: the heading's words without markup.
            level: 1 for the highest.
            start, end: its content in the text.
            outer: with its marks.
            work: how a citation names the work that begins here.
        """
        title = title[:LONGEST_TITLE]
        if not self._inside_block():
            while self._open and self._nodes[self._open[-1]].level >= level:
                self._close_section()
            extent = outer or (start, end)
            self._add("section", *extent, level=level, title=title, page=page, line=line, slide=slide, work=work)
            self._open.append(len(self._nodes) - 1)
        self._add(
            "heading", start, end, outer=outer, level=level, title=title, page=page, box=box, line=line, slide=slide
        )

    def leaf(self, kind: Kind, start: int, end: int, **attributes: object) -> None:
        """Add a part without children. ``attributes`` are those of :class:`Node`."""
        self._add(kind, start, end, **attributes)

    def open(self, kind: Kind, start: int, **attributes: object) -> None:
        """Open a list, item, table or quote; what follows falls into it until :meth:`close`."""
        self._add(kind, start, start, **attributes)
        self._open.append(len(self._nodes) - 1)

    def close(self, end: int | None = None) -> None:
        """Close what :meth:`open` opened last; ``end`` defaults to the end of its last child."""
        index = self._open.pop()
        node = self._nodes[index]
        if node.kind == "section":
            raise ValueError("close() without a matching open(): the innermost open part is a section")
        last = max((self._nodes[i].extent[1] for i in range(index, len(self._nodes))), default=node.end)
        stop = last if end is None else max(end, last)
        outer = (node.outer[0], max(node.outer[1], stop)) if node.outer else None
        self._nodes[index] = msgspec.structs.replace(node, end=stop, outer=outer)

    @contextmanager
    def inside(self, kind: Kind, **attributes: object) -> Iterator[None]:
        """Open a part that the builder writes, and close it at the end of the block."""
        self.open(kind, self._length, **attributes)
        yield
        self.close()

    def write(self, text: str, separator: str = "\n\n") -> tuple[int, int]:
        """Append text, behind a separator where there is text before it, and return its ``[start, end)``."""
        if self._given is not None:
            raise ValueError("write() needs a builder without a given text")
        if self._length and text:
            self._pieces.append(separator)
            self._length += len(separator)
        start = self._length
        self._pieces.append(text)
        self._length += len(text)
        return start, self._length

    def write_leaf(self, kind: Kind, text: str, separator: str = "\n\n", **attributes: object) -> None:
        """Write text and add it as a leaf, behind everything else if it is left out; blank text adds nothing."""
        if text.strip() and attributes.get("left_out"):
            self._aside.append((kind, text, attributes))
        elif text.strip():
            start, end = self.write(text, separator)
            self.leaf(kind, start, end, **attributes)

    def write_heading(self, title: str, level: int, **attributes: object) -> None:
        """Write a heading and open its section; a blank one adds nothing."""
        if title.strip():
            start, end = self.write(title)
            self.heading(title, level, start, end, **attributes)  # type: ignore[arg-type]

    def finish(
        self,
        *,
        title: str = "",
        work: str = "",
        metadata: Mapping[str, str] | None = None,
        labels: Sequence[str] = (),
        media_type: str,
        problems: Sequence[str] = (),
        empty_reason: str = "no text in it",
    ) -> Document:
        """Close what is open and make the document.

        Args:
            title: the document's own title, empty where it has none.
            work: how a citation names it, empty where by its file's name.
            problems: what could not be read; any makes the document ``partial``.
            empty_reason: the reason given when no text outside the left-out parts was found.

        Raises:
            ValueError: when the tree breaks the rules at the top of this module; a defect of the adapter.
        """
        while self._open:
            if self._nodes[self._open[-1]].kind == "section":
                self._close_section()
            else:
                self.close()
        for kind, part, attributes in self._aside:
            start, end = self.write(part)
            self._add(kind, start, end, **attributes)
        text = self._given if self._given is not None else "".join(self._pieces)
        nodes, blobs = leave_blobs_out(text, _grow_to_cover(text, self._nodes))
        document = Document(
            text=text,
            title=" ".join(title.split())[:LONGEST_TITLE],
            work=work,
            nodes=tuple(nodes),
            metadata=dict(sorted(({**(metadata or {}), "left_out": blobs} if blobs else metadata or {}).items())),
            labels=tuple(sorted(set(labels))),
            media_type=media_type,
        )
        check(document)
        empty = [] if has_text(document) else [empty_reason, *([f"left out: {blobs}"] if blobs else [])]
        status: Status = "empty" if empty else "partial" if problems else "ok"
        return msgspec.structs.replace(document, status=status, reason="; ".join([*problems, *empty]))

    def _inside_block(self) -> bool:
        return bool(self._open) and self._nodes[self._open[-1]].kind != "section"

    def _close_section(self) -> None:
        index = self._open.pop()
        end = max(node.extent[1] for node in self._nodes[index:])
        self._nodes[index] = msgspec.structs.replace(self._nodes[index], end=end)

    def _add(self, kind: Kind, start: int, end: int, **attributes: object) -> None:
        parent = self._open[-1] if self._open else ROOT
        outer = attributes.pop("outer", None)
        if outer == (start, end):
            outer = None
        self._nodes.append(
            Node(kind=kind, start=start, end=end, outer=outer, parent=parent, **attributes)  # type: ignore[arg-type]
        )


def leaves(document: Document) -> list[int]:
    """Indexes of the nodes without children, in reading order. An empty container is no leaf."""
    parents = {node.parent for node in document.nodes}
    return [
        index
        for index, node in enumerate(document.nodes)
        if index not in parents and (node.kind not in CONTAINERS or node.extent[0] < node.extent[1])
    ]


def left_out(document: Document) -> list[str | None]:
    """Why each node stays out of the index: its own reason or that of the nearest part around it."""
    reasons: list[str | None] = []
    for node in document.nodes:
        inherited = reasons[node.parent] if node.parent != ROOT else None
        reasons.append(node.left_out or inherited)
    return reasons


def has_text(document: Document) -> bool:
    """Return whether any character that can be seen stands outside the left-out parts; a zero-width space cannot."""
    reasons = left_out(document)
    return any(
        reasons[index] is None and _shows(document.text[slice(*document.nodes[index].extent)])
        for index in leaves(document)
    )


def _shows(text: str) -> bool:
    return any(not one.isspace() and category(one) not in ("Cf", "Cc") for one in text)


def check(document: Document) -> None:
    """Check the rules at the top of this module.

    Raises:
        ValueError: naming the first node that breaks one.
    """
    text, nodes = document.text, document.nodes
    for index, node in enumerate(nodes):
        low, high = node.extent
        if not 0 <= low <= node.start <= node.end <= high <= len(text):
            raise ValueError(f"node {index} ({node.kind}): spans {node.extent} and {(node.start, node.end)} do not fit")
        if node.parent >= index:
            raise ValueError(f"node {index} ({node.kind}) stands before its parent {node.parent}")
        if node.parent != ROOT:
            outer = nodes[node.parent].extent
            if nodes[node.parent].kind not in CONTAINERS:
                raise ValueError(f"node {index} ({node.kind}) is a child of a {nodes[node.parent].kind}")
            if low < outer[0] or high > outer[1]:
                raise ValueError(f"node {index} ({node.kind}) at {node.extent} is not inside its parent at {outer}")
    position = 0
    for index in leaves(document):
        low, high = nodes[index].extent
        if low < position:
            raise ValueError(f"node {index} ({nodes[index].kind}) at {(low, high)} overlaps what ends at {position}")
        if text[position:low].strip():
            raise ValueError(f"text at {position} belongs to no node: {text[position:low].strip()[:60]!r}")
        position = high
    if text[position:].strip():
        raise ValueError(f"text at {position} belongs to no node: {text[position:].strip()[:60]!r}")


def _grow_to_cover(text: str, nodes: list[Node]) -> list[Node]:
    """Give marks that stand in no leaf to one: bullets to what they open, the rest of a part to its last leaf.

    A mark goes to the leaf behind it when a container opens between the two, and to the leaf before it otherwise.
    """
    grown = list(nodes)
    draft = Document(text=text, nodes=tuple(nodes))
    order = leaves(draft)
    position = 0
    previous: int | None = None
    for index in order:
        low, high = grown[index].extent
        gap = text[position:low]
        if low > position and gap.strip():
            opening = _opening(grown, index, position, low)
            if previous is None or opening < low:
                first = opening if previous is not None else position
                first += len(text[first:low]) - len(text[first:low].lstrip())
                _stretch(grown, index, low=first)
                low = first
            if previous is not None and text[position:low].strip():
                _stretch(grown, previous, high=position + len(text[position:low].rstrip()))
        position = max(position, high)
        previous = index
    if previous is not None and text[position:].strip():
        _stretch(grown, previous, high=len(text.rstrip()))
    return grown


def _opening(nodes: list[Node], index: int, position: int, low: int) -> int:
    """Return where the outermost container that begins between ``position`` and the leaf begins.

    ``low`` if none does.
    """
    first = low
    parent = nodes[index].parent
    while parent != ROOT and nodes[parent].extent[0] >= position:
        first = min(first, nodes[parent].extent[0])
        parent = nodes[parent].parent
    return first


def _stretch(nodes: list[Node], index: int, low: int | None = None, high: int | None = None) -> None:
    """Widen a node's extent, and with it that of everything around it."""
    while index != ROOT:
        node = nodes[index]
        extent = (
            node.extent[0] if low is None else min(low, node.extent[0]),
            node.extent[1] if high is None else max(high, node.extent[1]),
        )
        if extent != node.extent:
            if node.kind == "section":
                nodes[index] = msgspec.structs.replace(node, start=extent[0], end=extent[1])
            else:
                nodes[index] = msgspec.structs.replace(node, outer=extent)
        index = node.parent
