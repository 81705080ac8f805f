"""Parse PDF from its text layer: headings, paragraphs, lists, tables, running heads.

Invariants:
- Each word of the text layer is in the document once. The exception is a ruled cell over several rows: its text is
  repeated in each.
- A page without text and a page with possibly incomplete table rows are reported as problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from parsers.document import Document, TreeBuilder
from parsers.pdf.blocks import MARGINS, PdfBlock, blocks, joined_across
from parsers.pdf.headings import body_size, mark_headings
from parsers.pdf.joining import Vocabulary
from parsers.pdf.layout.lines import Line
from parsers.pdf.marks import mark_parts
from parsers.pdf.pages import Page, PdfFile, read_file
from parsers.pdf.running_heads import running_lines
from parsers.pdf.tables.continued import doubtful_pages, tables_joined
from parsers.pdf.tree import Writer
from parsers.pdf.watermarks import watermarks
from parsers.titles import said_of_itself, sensible_title

PDF_VERSION: Final = 3
PDF_LIBRARIES: Final = ("pypdfium2",)
PDF_MEDIA_TYPE: Final = "application/pdf"

_TAIL: Final = 1 << 16  # bytes at the end that are searched for the end-of-file mark
_TITLE_SIZE: Final = 1.2  # of the body size: the least size at which the largest heading of page 1 is the title
_NO_TITLE: Final = re.compile(
    r"\W*(?:(?:table of )?contents|index|inhalt(?:sverzeichnis)?|sommaire|table des matières|índice|indice|innehåll|"
    r"inhoud(?:sopgave)?|abstract|summary|introduction|preface|foreword|notes?|appendix|annex)\W*",
    re.IGNORECASE,
)  # names of parts that any document may have
_NUMBERED: Final = re.compile(r"\d{1,2}(?:\.\d+)*\.?\s+\D")
_DATE: Final = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(Z|[+-]\d\d'?\d\d'?)?")


def parse(data: bytes) -> Document:
    """Parse a PDF.

    Raises:
        BrokenDocument: when it is not a PDF, needs a password, or is too damaged for PDFium to repair.
    """
    file = read_file(data)
    pages = [page.lines for page in file.pages]
    _forget_typewriter(pages)
    body = body_size(pages)
    scans = {number for number, page in enumerate(file.pages) if page.problem == "scan"}
    running = running_lines(pages, [page.extents() for page in file.pages], body, scans) | watermarks(pages, body)
    found = mark_parts(blocks(pages, running), body)
    found = tables_joined(joined_across(mark_headings(found, file.outline, body)))
    builder = TreeBuilder()
    Writer(builder, file.pages, Vocabulary(line.text for lines in pages for line in lines)).write(found)
    problems, empty = _problems(file.pages, data)
    problems.extend(_doubts(found))
    return builder.finish(
        title=_own_title(file) or _title(found, body),
        metadata=_metadata(file),
        media_type=PDF_MEDIA_TYPE,
        problems=problems,
        empty_reason=empty,
    )


def _problems(pages: Sequence[Page], data: bytes) -> tuple[list[str], str]:
    """Return the unreadable parts, and the reason if the document turns out empty."""
    reasons = {
        "image": ("has no text (an image: needs OCR)", "have no text (images: they need OCR)"),
        "scan": (
            "has hardly any text beside an image (may need OCR)",
            "have hardly any text beside images (may need OCR)",
        ),
        "drawing": ("has no text (a drawing: needs OCR)", "have no text (drawings: they need OCR)"),
        "unnamed": ("has text whose fonts name no characters (needs OCR)",) * 2,
        "unreadable": ("is damaged and cannot be read", "are damaged and cannot be read"),
    }
    found: list[str] = []
    for kind, (one, many) in reasons.items():
        numbers = [number for number, page in enumerate(pages, 1) if page.problem == kind]
        if numbers:
            subject = "page" if len(numbers) == 1 else "pages"
            found.append(f"{subject} {_ranges(numbers)} {one if len(numbers) == 1 else many}")
    if b"%%EOF" not in data[-_TAIL:]:
        found.append("the file is cut short (no end-of-file mark): pages may be missing")
    if not any(page.lines for page in pages):
        without = all(page.problem in ("image", "drawing") for page in pages)
        return ([], "no text (needs OCR)") if without else (found, "no text in it")
    return found, "no text outside running heads and feet"


def _doubts(found: Iterable[PdfBlock]) -> list[str]:
    """Return the problem that names the pages with possibly incomplete table rows, if any."""
    numbers = doubtful_pages(found)
    if not numbers:
        return []
    subject = "page" if len(numbers) == 1 else "pages"
    return [f"{subject} {_ranges(numbers)}: rows of a table may not be whole (its columns are not clear)"]


def _ranges(numbers: Sequence[int]) -> str:
    """Return page numbers as ranges: ``2-5, 7``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _metadata(file: PdfFile) -> dict[str, str]:
    told = file.information
    return said_of_itself(
        author=told.get("Author"),
        subject=told.get("Subject"),
        keywords=told.get("Keywords"),
        created=_date(told.get("CreationDate", "")),
        modified=_date(told.get("ModDate", "")),
        pages=str(len(file.pages)),
        attachments=", ".join(file.attachments),
    )


def _date(text: str) -> str:
    """Return a PDF date as ISO 8601, with its own precision; empty if invalid."""
    match = _DATE.match(text)
    if not match:
        return ""
    year, month, day, hour, minute, second, zone = match.groups()
    date = "-".join(part for part in (year, month, day) if part)
    if not (day and hour):
        return date
    zone = "Z" if zone == "Z" else f"{zone[:3]}:{zone[3:].strip(chr(39))}" if zone else ""
    return f"{date}T{hour}:{minute or '00'}:{second or '00'}{zone}"


def _title(found: Sequence[PdfBlock], body: float) -> str:
    """Return the title: the largest heading of page 1; empty without a clear one.

    It must be unique in size, come first, and be clearly larger than the body.
    """
    first_page = [b for b in found if b.lines[0].page == 1 and b.kind not in MARGINS]
    headings = [block for block in first_page if block.kind == "heading"]
    if not headings:
        return ""
    largest = max(headings, key=lambda block: block.lines[0].size)
    size = largest.lines[0].size
    alone = sum(block.lines[0].size > 0.97 * size for block in headings) == 1
    clear = size >= _TITLE_SIZE * body or (largest is first_page[0] and largest.level == 1)
    numbered = [block for block in found if block.kind == "heading" and _NUMBERED.match(block.text)]
    section = _NO_TITLE.fullmatch(largest.text) or (len(numbered) > 1 and numbered[0] is largest)
    named = alone and clear and largest is headings[0] and not section
    return sensible_title(largest.text) if named else ""


def _own_title(file: PdfFile) -> str:
    title = sensible_title(file.information.get("Title"))
    return "" if _NO_TITLE.fullmatch(title) else title


def _forget_typewriter(pages: Sequence[Sequence[Line]]) -> None:
    """Clear the code marks of a document that is mostly in a monospace font."""
    lines = [line for page in pages for line in page]
    if sum(len(line.text) for line in lines if line.mono) > 0.5 * sum(len(line.text) for line in lines):
        for line in lines:
            line.mono, line.text = False, " ".join(line.text.split())
