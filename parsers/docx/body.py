"""Write the body of a Word document into a tree.

Invariants:
- Paragraphs, lists, tables, notes and text boxes appear in document order, each once.
- A heading carries its automatic number, as a reader sees it.
- A row is one line with `` | `` between its cells. All rows of a table have the same number of cells: a cell that spans
  rows is repeated in each of them; a cell that spans columns is written in the first.
- A layout table is written as the blocks in its cells.
- Code keeps its lines and indentation.
- Headers and footers are written once and marked as left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.document import Kind, TreeBuilder
from parsers.docx.headings import looks_like_headings
from parsers.docx.lists import BULLET, Mark, Numbering
from parsers.docx.styles import Styles, W, switched, value
from parsers.docx.tables import (
    Cell,
    block_children,
    cell_contents,
    is_deleted,
    is_layout,
    row_cells,
    sets_off_first_row,
    table_rows,
)
from parsers.docx.text import Paragraph, read_paragraph
from parsers.header_rows import names_columns

_LONGEST_HEADING: Final = 250  # characters: a longer "heading" is a numbered clause or a whole paragraph
_CODE_STYLES: Final = ("source code", "html preformatted", "code", "code*", "macro", "plain text", "preformatted text")
_QUOTE_STYLES: Final = ("quote", "intense quote", "block text", "quotations")
_CONTENTS_STYLES: Final = ("toc *", "table of figures")
_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_LONGEST_SPANNING: Final = 200  # characters: a cell that spans rows and is longer is written in the first row only
_NO_NOTES: Final = frozenset(["-1", "0"])  # ids of the separators, which are not notes


class Parts(msgspec.Struct):
    """The parts of a document other than its body.

    Attributes:
        styles, numbering, settings: roots of these parts; None where the document has none.
        notes: roots of the footnote, endnote and comment parts, by part name.
        margins: roots of headers and footers, by relation id.
    """

    styles: _Element | None = None
    numbering: _Element | None = None
    settings: _Element | None = None
    notes: dict[str, _Element] = {}
    margins: dict[str, _Element] = {}


class Body:
    """Writer of a document's body.

    Attributes:
        builder: tree builder that receives the blocks.
        title: text of the first paragraph in the title style; empty without one.
        problems: content that could not be read.
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
        self._code: list[str] = []  # lines of the open code block
        self._code_page: int | None = None
        self._heads: dict[_Element, int] = {}  # levels of the headings that are known only by their look
        self._monospace_is_code = True
        self._found: dict[_Element, Paragraph] = {}

    def write(self, body: _Element) -> None:
        """Write the whole document: headers, body, comments, footers."""
        if next(body.iter(f"{W}lastRenderedPageBreak"), None) is not None:
            self._page = 1
        self._look_ahead(body)
        for text in self._margins(body, "header"):
            self.builder.write_leaf("header", text, left_out="running head")
        self._blocks(body)
        self._close_code()
        self._close_lists()
        self._comments()
        for text in self._margins(body, "footer"):
            self.builder.write_leaf("footer", text, left_out="running foot")

    def _look_ahead(self, body: _Element) -> None:
        """Detect how headings and code look in the body, where styles do not say."""
        paragraphs = list(body.iter(f"{W}p"))
        headings = sum(self._styles.heading_level(one.find(f"{W}pPr")) is not None for one in paragraphs)
        read = {one: self._read(one) for one in paragraphs}
        lengths = [(len(found.text), found.monospace) for found in read.values()]
        self._monospace_is_code = 2 * sum(size for size, mono in lengths if mono) <= sum(size for size, _ in lengths)
        if headings <= 1:
            self._heads = looks_like_headings(list(self._flow(body)), read, self._styles)
        self._found = read

    def _flow(self, parent: _Element) -> Iterator[_Element]:
        """Yield the blocks of a part in order, including those in layout tables."""
        for child in block_children(parent):
            if child.tag == f"{W}tbl":
                cells = [list(row_cells(row)) for row in table_rows(child) if not is_deleted(row)]
                if is_layout(cells, self._styles):
                    for content in cell_contents(cells):
                        yield from self._flow(content)
                    continue
            yield child

    def _read(self, paragraph: _Element) -> Paragraph:
        return self._found.get(paragraph) or read_paragraph(paragraph, self._styles)

    def _blocks(self, parent: _Element, left_out: str | None = None) -> None:
        for child in block_children(parent):
            if child.tag == f"{W}p":
                self._paragraph(child, left_out)
            elif child.tag == f"{W}tbl":
                self._close_code()
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
        found = self._read(element)
        self._note_problems(found)
        page = None if self._page is None else self._page + found.early_breaks
        listed = self._styles.numbering(properties)
        level = self._styles.heading_level(properties) or self._heads.get(element)
        mark = self._numbering.next(*listed) if listed else None
        is_title = self._styles.named(properties, "title")
        if self._styles.named(properties, *_CONTENTS_STYLES):
            left_out, level = left_out or "contents list", None
        if self._is_code(found, properties) and left_out is None and not listed:
            self._add_code(found, page)
        elif found.text:
            self._close_code()
            if level and not is_title and left_out is None and len(found.text) <= _LONGEST_HEADING:
                self._close_lists()
                self.builder.write_heading(_numbered(found.text, mark), min(level, 9), page=page)
            elif listed and mark and left_out is None and not is_title:
                self._item(found.text, *listed, mark, page)
            else:
                self.title = self.title or (found.text if is_title else "")
                self._plain(found, properties, page, left_out)
        self._page = None if self._page is None else self._page + found.breaks
        self._attached(found, page, left_out)

    def _note_problems(self, found: Paragraph) -> None:
        self.problems += [problem for problem in dict.fromkeys(found.problems) if problem not in self.problems]

    def _is_code(self, found: Paragraph, properties: _Element | None) -> bool:
        if not found.text:
            return bool(self._code)  # a blank line, if more code follows
        by_font = found.monospace and self._monospace_is_code
        return by_font or self._styles.named(properties, *_CODE_STYLES)

    def _add_code(self, found: Paragraph, page: int | None) -> None:
        if not self._code:
            self._close_lists()
            self._code_page = page
        self._code += [line.rstrip() for line in found.laid_out.split("\n")]

    def _close_code(self) -> None:
        text = "\n".join(self._code).rstrip()
        self._code = []
        self.builder.write_leaf("code", text, page=self._code_page)

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
        """Write a paragraph's pictures, text boxes and notes after it."""
        if found.pictures or found.boxes or found.notes:
            self._close_code()
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
        """Return the text of a footnote or endnote."""
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
        """Yield the texts of the headers or footers that are printed, each once."""
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
        rows = [row for row in table_rows(table) if not is_deleted(row)]
        cells = [list(row_cells(row)) for row in rows]
        if is_layout(cells, self._styles):
            for content in cell_contents(cells):
                self._blocks(content, left_out)
                self._close_code()
                self._close_lists()
            return
        texts = self._row_texts(cells)
        heads = self._head_rows(table, rows, cells) or int(names_columns(texts))
        opened = False
        for index, row in enumerate(texts):
            page = None if self._page is None else self._page + self._breaks_before(rows[index])
            if row:
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

    def _row_texts(self, cells: list[list[Cell]]) -> list[list[str]]:
        """Return the texts of the cells by row, with row-spanning cells repeated.

        A row without text of its own is an empty list.
        """
        width = max((len(row) for row in cells), default=0)
        texts: list[list[str]] = []
        above = [""] * width
        for row in cells:
            own = [self._cell(cell) for cell in row] + [""] * (width - len(row))
            spanned = [cell.spanned for cell in row] + [False] * (width - len(row))
            filled = [upper if spans else text for text, upper, spans in zip(own, above, spanned, strict=True)]
            texts.append(filled if any(own) else [])
            above = [text if len(text) <= _LONGEST_SPANNING else "" for text in filled]
        return texts

    def _notes_of(self, rows: Iterable[_Element], left_out: str | None) -> None:
        for row in rows:
            for paragraph in row.iter(f"{W}p"):
                for part, identifier in self._read(paragraph).notes:
                    self.builder.write_leaf(
                        "footnote", self._note(part, identifier), page=self._page, left_out=left_out
                    )

    def _head_rows(self, table: _Element, rows: list[_Element], cells: list[list[Cell]]) -> int:
        """Return the number of header rows of a table.

        The file states them; otherwise the first row is one where it alone is bold.
        """
        said = 0
        while said < len(rows) and switched(rows[said].find(f"{W}trPr"), "tblHeader"):
            said += 1
        if said or len(rows) < 2:
            return said if said < len(rows) else 0
        properties = table.find(f"{W}tblPr")
        look = properties.find(f"{W}tblLook") if properties is not None else None
        style = value(properties.find(f"{W}tblStyle")) if properties is not None else None
        if look is not None and sets_off_first_row(look) and self._styles.has_header_row(style):
            return 1
        return int(self._is_bold(cells[0]) and not all(self._is_bold(row) for row in cells[1:]))

    def _is_bold(self, cells: Iterable[Cell]) -> bool:
        paragraphs = [
            self._read(part) for cell in cells if cell.content is not None for part in cell.content.iter(f"{W}p")
        ]
        return all(part.bold for part in paragraphs if part.text) and any(part.text for part in paragraphs)

    def _breaks_before(self, row: _Element) -> int:
        """Return the number of page breaks before a row's first text."""
        first = next(row.iter(f"{W}p"), None)
        return self._read(first).early_breaks if first is not None else 0

    def _cell(self, cell: Cell) -> str:
        return self._flat(cell.content, " ") if cell.content is not None else ""

    def _flat(self, parent: _Element, separator: str) -> str:
        """Return the text of a cell, note or header, without its block structure."""
        return separator.join(text.replace("\n", separator) for text in self._texts(parent) if text)

    def _texts(self, parent: _Element) -> Iterator[str]:
        for child in block_children(parent):
            if child.tag == f"{W}p":
                found = self._read(child)
                self._note_problems(found)
                listed = self._styles.numbering(child.find(f"{W}pPr"))
                label = self._numbering.next(*listed).label if listed else ""
                yield f"{label} {found.text}".strip() if found.text else ""
                yield from found.pictures
                for box in found.boxes:
                    yield from self._texts(box)
            elif child.tag == f"{W}tbl":
                for row in table_rows(child):
                    if not is_deleted(row):
                        yield ", ".join(filter(None, (self._cell(cell) for cell in row_cells(row))))
            elif child.tag == f"{W}sdt":
                for content in child.iterfind(f"{W}sdtContent"):
                    yield from self._texts(content)


def _numbered(text: str, mark: Mark | None) -> str:
    """Return a heading with its automatic number, on one line."""
    title = " ".join(text.split())
    label = mark.label if mark is not None else ""
    return title if label in ("", BULLET) or title.startswith(label) else f"{label} {title}"
