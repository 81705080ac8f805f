"""The body of a Word document, written into a tree.

Kept here: paragraphs, lists, tables, notes and text boxes stand in the order of the document, each once. A row is one
line, its cells with `` | `` between; a merged cell is told where it begins and leaves the others that it covers empty,
so that the rows of a table have the same number of cells. What is printed on every page is told once, left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.document import Kind, TreeBuilder
from parsers.docx_lists import Mark, Numbering
from parsers.docx_styles import Styles, W, number, switched, value
from parsers.docx_text import Paragraph, read_paragraph
from parsers.tables import names_columns

_LONGEST_HEADING: Final = 250  # characters: a longer "heading" is a numbered clause or a whole paragraph
_WRAPPERS: Final = frozenset(f"{W}{name}" for name in ("sdtContent", "customXml", "smartTag", "ins", "moveTo"))
_CODE_STYLES: Final = ("source code", "html preformatted", "code", "code*", "macro", "plain text", "preformatted text")
_QUOTE_STYLES: Final = ("quote", "intense quote", "block text", "quotations")
_CONTENTS_STYLES: Final = ("toc *", "table of figures")
_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MOST_COLUMNS: Final = 63  # Word's limit
_NO_NOTES: Final = frozenset(["-1", "0"])  # ids of the separators, which are no notes


class Parts(msgspec.Struct):
    """The parts of a document beside its body.

    Attributes:
        styles, numbering, settings: their roots; None where the document has none.
        notes: roots of the parts with foot- and endnotes and comments, by the name of the part.
        margins: roots of headers and footers, by the id of their relation.
    """

    styles: _Element | None = None
    numbering: _Element | None = None
    settings: _Element | None = None
    notes: dict[str, _Element] = {}
    margins: dict[str, _Element] = {}


class Body:
    """Writes a document's body.

    Attributes:
        builder: what it is written into.
        title: the text of the first paragraph in the style for titles; empty for none.
        problems: what could not be read.
    """

    def __init__(self, parts: Parts) -> None:
        self.builder = TreeBuilder()
        self.title = ""
        self.problems: list[str] = []
        self._parts = parts
        self._styles = Styles(parts.styles)
        self._numbering = Numbering(parts.numbering)
        self._lists: list[tuple[int, str]] = []  # level and numId of each open list, each with an open item
        self._page: int | None = None

    def write(self, body: _Element) -> None:
        """Write the whole document: running heads, body, comments, running feet."""
        if next(body.iter(f"{W}lastRenderedPageBreak"), None) is not None:
            self._page = 1
        for text in self._margins(body, "header"):
            self.builder.write_leaf("header", text, left_out="running head")
        self._blocks(body)
        self._close_lists()
        self._comments()
        for text in self._margins(body, "footer"):
            self.builder.write_leaf("footer", text, left_out="running foot")

    def _blocks(self, parent: _Element, left_out: str | None = None) -> None:
        for child in _children(parent):
            if child.tag == f"{W}p":
                self._paragraph(child, left_out)
            elif child.tag == f"{W}tbl":
                self._close_lists()
                self._table(child, left_out)
            elif child.tag == f"{W}sdt":
                gallery = value(next(child.iter(f"{W}docPartGallery"), None))
                contents = "contents list" if gallery == "Table of Contents" else None
                for content in child.iterfind(f"{W}sdtContent"):
                    self._blocks(content, left_out or contents)
            elif child.tag == f"{W}altChunk":
                self.problems.append("a part in another format (altChunk) was not read")

    def _paragraph(self, element: _Element, left_out: str | None) -> None:
        properties = element.find(f"{W}pPr")
        found = read_paragraph(element)
        page = None if self._page is None else self._page + found.early_breaks
        listed = self._styles.numbering(properties)
        level = self._styles.heading_level(properties)
        mark = self._numbering.next(*listed) if listed else None
        is_title = self._styles.named(properties, "title")
        if self._styles.named(properties, *_CONTENTS_STYLES):
            left_out, level = left_out or "contents list", None
        if not found.text:
            pass
        elif level and not is_title and left_out is None and len(found.text) <= _LONGEST_HEADING:
            self._close_lists()
            self.builder.write_heading(" ".join(found.text.split()), min(level, 9), page=page)
        elif listed and mark and left_out is None and not is_title:
            self._item(found.text, *listed, mark, page)
        else:
            self.title = self.title or (found.text if is_title else "")
            self._plain(found, properties, page, left_out)
        self._page = None if self._page is None else self._page + found.breaks
        self._attached(found, page, left_out)

    def _plain(self, found: Paragraph, properties: _Element | None, page: int | None, left_out: str | None) -> None:
        if self._lists and left_out is None and self._styles.named(properties, "list continue*", "list paragraph"):
            self.builder.write_leaf("paragraph", found.text, "\n", page=page)
            return
        self._close_lists()
        if self._styles.named(properties, *_QUOTE_STYLES):
            start, end = self.builder.write(found.text)
            self.builder.open("quote", start, page=page, left_out=left_out)
            self.builder.leaf("paragraph", start, end, page=page)
            self.builder.close()
            return
        kind: Kind = "formula" if found.is_formula else "paragraph"
        if self._styles.named(properties, "caption"):
            kind = "caption"
        elif self._styles.named(properties, *_CODE_STYLES):
            kind = "code"
        self.builder.write_leaf(kind, found.text, page=page, left_out=left_out)

    def _item(self, text: str, listing: str, level: int, mark: Mark, page: int | None) -> None:
        while self._lists and self._lists[-1][0] > level:
            self._close_list()
        if self._lists and self._lists[-1][0] == level and self._lists[-1] != (level, listing):
            self._close_list()
        start, end = self.builder.write(f"{mark.label} {text}".lstrip(), "\n" if self._lists else "\n\n")
        if self._lists and self._lists[-1] == (level, listing):
            self.builder.close()
        else:
            self._lists.append((level, listing))
            self.builder.open("list", start, level=len(self._lists), page=page)
        content = end - len(text)
        self.builder.open("item", content, outer=(start, content), number=mark.number, page=page)
        self.builder.leaf("paragraph", content, end, page=page)

    def _close_list(self) -> None:
        self.builder.close()  # its last item
        self.builder.close()
        self._lists.pop()

    def _close_lists(self) -> None:
        while self._lists:
            self._close_list()

    def _attached(self, found: Paragraph, page: int | None, left_out: str | None) -> None:
        """What hangs on a paragraph, behind it."""
        for picture in found.pictures:
            self.builder.write_leaf("figure", picture, page=page, left_out=left_out)
        for box in found.boxes:
            self._close_lists()
            self._blocks(box, left_out)
        for part, identifier in found.notes:
            text = self._note(part, identifier)
            if text:
                self.builder.write_leaf("footnote", text, page=page, left_out=left_out)

    def _note(self, part: str, identifier: str) -> str:
        """The text of a foot- or endnote."""
        root = self._parts.notes.get(part)
        if root is None or identifier in _NO_NOTES:
            return ""
        note = next((note for note in root if note.get(f"{W}id") == identifier), None)
        return self._flat(note, "\n") if note is not None else ""

    def _comments(self) -> None:
        root = self._parts.notes.get("comments")
        for comment in root if root is not None else ():
            text = self._flat(comment, "\n")
            author = " ".join((comment.get(f"{W}author") or "").split())
            if text:
                self.builder.write_leaf("paragraph", f"{author}: {text}" if author else text, left_out="comment")

    def _margins(self, body: _Element, kind: str) -> Iterator[str]:
        """The texts of the headers or footers that are printed, each once."""
        seen = set()
        even = switched(self._parts.settings, "evenAndOddHeaders")
        for section in body.iter(f"{W}sectPr"):
            shown = {"default", "first"} if switched(section, "titlePg") else {"default"}
            for reference in section.iterfind(f"{W}{kind}Reference"):
                root = self._parts.margins.get(reference.get(f"{_RELATION}id", ""))
                if root is None or reference.get(f"{W}type") not in (shown | {"even"} if even else shown):
                    continue
                text = self._flat(root, "\n")
                if text and text not in seen:
                    seen.add(text)
                    yield text

    def _table(self, table: _Element, left_out: str | None) -> None:
        rows = [row for row in _rows(table) if not _is_deleted(row)]
        cells = [list(_cells(row)) for row in rows]
        if len(cells) == 1 and len(cells[0]) == 1 and cells[0][0].content is not None:
            self._blocks(cells[0][0].content, left_out)  # a frame around text
            return
        width = max((len(row) for row in cells), default=0)
        texts = [[self._cell(cell) for cell in row] + [""] * (width - len(row)) for row in cells]
        heads = self._head_rows(table, rows, cells) or int(names_columns(texts))
        opened = False
        for index, row in enumerate(texts):
            page = None if self._page is None else self._page + _breaks_before(rows[index])
            if any(row):
                start, end = self.builder.write(" | ".join(row).strip(), "\n" if opened else "\n\n")
                if not opened:
                    self.builder.open("table", start, page=page, left_out=left_out)
                    opened = True
                self.builder.leaf("row", start, end, header=index < heads, page=page)
            if self._page is not None:
                self._page += sum(1 for _ in rows[index].iter(f"{W}lastRenderedPageBreak"))
        if opened:
            self.builder.close()
        self._notes_of(rows, left_out)

    def _notes_of(self, rows: Iterable[_Element], left_out: str | None) -> None:
        for row in rows:
            for paragraph in row.iter(f"{W}p"):
                for part, identifier in read_paragraph(paragraph).notes:
                    self.builder.write_leaf(
                        "footnote", self._note(part, identifier), page=self._page, left_out=left_out
                    )

    def _head_rows(self, table: _Element, rows: list[_Element], cells: list[list[_Cell]]) -> int:
        """How many rows at the top of a table head it: as the file says, or the first where it alone is bold."""
        said = 0
        while said < len(rows) and switched(rows[said].find(f"{W}trPr"), "tblHeader"):
            said += 1
        if said or len(rows) < 2:
            return said if said < len(rows) else 0
        properties = table.find(f"{W}tblPr")
        look = properties.find(f"{W}tblLook") if properties is not None else None
        style = value(properties.find(f"{W}tblStyle")) if properties is not None else None
        if look is not None and _sets_off_first_row(look) and self._styles.has_header_row(style):
            return 1
        return int(_is_bold(cells[0]) and not all(_is_bold(row) for row in cells[1:]))

    def _cell(self, cell: _Cell) -> str:
        return self._flat(cell.content, " ") if cell.content is not None else ""

    def _flat(self, parent: _Element, separator: str) -> str:
        """The text of blocks without their structure: of a cell, a note, a header."""
        return separator.join(text.replace("\n", separator) for text in self._texts(parent) if text)

    def _texts(self, parent: _Element) -> Iterator[str]:
        for child in _children(parent):
            if child.tag == f"{W}p":
                found = read_paragraph(child)
                listed = self._styles.numbering(child.find(f"{W}pPr"))
                label = self._numbering.next(*listed).label if listed else ""
                yield f"{label} {found.text}".strip() if found.text else ""
                yield from found.pictures
                for box in found.boxes:
                    yield from self._texts(box)
            elif child.tag == f"{W}tbl":
                for row in _rows(child):
                    if not _is_deleted(row):
                        yield ", ".join(filter(None, (self._cell(cell) for cell in _cells(row))))
            elif child.tag == f"{W}sdt":
                for content in child.iterfind(f"{W}sdtContent"):
                    yield from self._texts(content)


class _Cell(msgspec.Struct):
    """A place in a row: its ``w:tc``, or None where it is covered by a merged cell or missing."""

    content: _Element | None


def _children(parent: _Element) -> Iterator[_Element]:
    """Block-level children, through what only wraps them."""
    for child in parent:
        if child.tag in _WRAPPERS:
            yield from _children(child)
        elif isinstance(child.tag, str):
            yield child


def _rows(table: _Element) -> Iterator[_Element]:
    for child in _children(table):
        if child.tag == f"{W}tr":
            yield child
        elif child.tag == f"{W}sdt":
            for content in child.iterfind(f"{W}sdtContent"):
                yield from _rows(content)


def _is_deleted(row: _Element) -> bool:
    properties = row.find(f"{W}trPr")
    return properties is not None and properties.find(f"{W}del") is not None


def _cells(row: _Element) -> Iterator[_Cell]:
    """The places of a row from left to right, one for each column of the table."""
    properties = row.find(f"{W}trPr")
    yield from _missing(properties, "gridBefore")
    yield from _filled(row)
    yield from _missing(properties, "gridAfter")


def _filled(row: _Element) -> Iterator[_Cell]:
    for child in _children(row):
        if child.tag == f"{W}sdt":
            for content in child.iterfind(f"{W}sdtContent"):
                yield from _filled(content)
        if child.tag != f"{W}tc":
            continue
        properties = child.find(f"{W}tcPr")
        merge = properties.find(f"{W}vMerge") if properties is not None else None
        covered = merge is not None and value(merge) != "restart"
        yield _Cell(None if covered else child)
        span = number(value(properties.find(f"{W}gridSpan"))) if properties is not None else None
        yield from (_Cell(None) for _ in range(min(span or 1, _MOST_COLUMNS) - 1))


def _missing(properties: _Element | None, name: str) -> Iterator[_Cell]:
    count = number(value(properties.find(f"{W}{name}"))) if properties is not None else None
    return (_Cell(None) for _ in range(min(count or 0, _MOST_COLUMNS)))


def _sets_off_first_row(look: _Element) -> bool:
    flags = look.get(f"{W}val", "")
    return look.get(f"{W}firstRow") == "1" or bool(int(flags, 16) & 0x20 if _is_hexadecimal(flags) else 0)


def _is_hexadecimal(text: str) -> bool:
    return 0 < len(text) <= 4 and all(char in "0123456789abcdefABCDEF" for char in text)


def _is_bold(cells: Iterable[_Cell]) -> bool:
    paragraphs = [
        read_paragraph(part) for cell in cells if cell.content is not None for part in cell.content.iter(f"{W}p")
    ]
    return all(part.bold for part in paragraphs if part.text) and any(part.text for part in paragraphs)


def _breaks_before(row: _Element) -> int:
    """Page breaks in front of a row's first text."""
    first = next(row.iter(f"{W}p"), None)
    return read_paragraph(first).early_breaks if first is not None else 0
