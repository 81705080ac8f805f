"""Read a PDF with PDFium: the lines of its pages, its outline, metadata and attachments.

Invariants:
- PDFium is not thread-safe. One lock is held while any of its objects exists, and all are closed before its release.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from parsers.errors import BrokenDocument
from parsers.pdf.headings import OutlineEntry
from parsers.pdf.layout.lines import Line
from parsers.pdf.layout.reading_order import page_lines
from parsers.pdf.layout.rules import page_rules
from parsers.pdf.layout.words import SKEWED, Angle, Word, page_text, to_upright

_LOCK: Final = threading.Lock()
_HEADER_WITHIN: Final = 1024  # bytes that are searched for ``%PDF-`` (PDF 1.7, implementation note 13)
_DRAWN: Final = 20  # shapes: a page with at least this many may show drawn text; fewer are rules and frames
_UNNAMED: Final = 0.5  # share: a page with more characters without a Unicode mapping is unreadable
_STAMP: Final = 8  # most words of a stamp or a page number
_COVERED: Final = 0.6  # least share of the page that the image of a scan covers
_OUTLINE_DEPTH: Final = 8


class Page(msgspec.Struct):
    """A page as read.

    Attributes:
        lines: its lines in reading order.
        bounds: ``(left, bottom, right, top)`` of its visible area in points, in page space.
        rotation: clockwise degrees by which it is rotated for display.
        problem: why it has no usable text though it is not blank: ``image``, ``drawing``, ``unnamed``,
            ``unreadable``; ``scan`` where it has hardly any.
    """

    lines: list[Line]
    bounds: tuple[float, float, float, float] = (0.0, 0.0, 612.0, 792.0)
    rotation: int = 0
    problem: str = ""

    def extents(self) -> dict[Angle, tuple[float, float]]:
        """Return the page's top and foot by direction of writing, in upright frames."""
        left, bottom, right, top = self.bounds
        heights = {
            angle: (to_upright(left, bottom, angle)[1], to_upright(right, top, angle)[1]) for angle in range(SKEWED + 1)
        }
        return {angle: (min(pair), max(pair)) for angle, pair in heights.items()}


class PdfFile(msgspec.Struct):
    """A file as read: its pages, outline, information dictionary and the names of its attachments."""

    pages: list[Page]
    outline: list[OutlineEntry]
    information: dict[str, str]
    attachments: list[str]


def read_file(data: bytes) -> PdfFile:
    """Read a PDF.

    Raises:
        BrokenDocument: when it is not a PDF, needs a password, or is too damaged for PDFium to repair.
    """
    if b"%PDF-" not in data[:_HEADER_WITHIN]:
        raise BrokenDocument(f"not a PDF: no %PDF- in its first {_HEADER_WITHIN} bytes, it begins with {data[:8]!r}")
    with _LOCK:
        try:
            document = pdfium.PdfDocument(data)
        except pdfium.PdfiumError as error:
            raise _broken(error, len(data)) from error
        try:
            return _read_open(document, len(data))
        finally:
            document.close()


def _broken(error: pdfium.PdfiumError, size: int) -> BrokenDocument:
    code = getattr(error, "err_code", None)
    if code == raw.FPDF_ERR_PASSWORD:
        return BrokenDocument("encrypted PDF: it opens only with a password", "Store a copy without one")
    if code == raw.FPDF_ERR_SECURITY:
        return BrokenDocument("encrypted PDF: PDFium does not support its method", "Store a copy without encryption")
    return BrokenDocument(f"damaged or truncated PDF: PDFium finds no document in its {size:,} bytes")


def _read_open(document: pdfium.PdfDocument, size: int) -> PdfFile:
    count = len(document)
    if not count:
        raise BrokenDocument(f"damaged or truncated PDF: no page in its {size:,} bytes")
    return PdfFile(
        pages=[_read_page(document, index) for index in range(count)],
        outline=list(_outline(document)),
        information=dict(document.get_metadata_dict(skip_empty=True)),
        attachments=list(_attachments(document)),
    )


def _read_page(document: pdfium.PdfDocument, index: int) -> Page:
    try:
        page = document[index]
    except pdfium.PdfiumError:
        return Page([], problem="unreadable")
    try:
        page = _with_forms(document, page, index)
        text = page_text(page)
        unnamed = text.unnamed > _UNNAMED * text.characters
        problem = "unnamed" if unnamed else _scan(page, text.words) if text.words else _picture(page)
        rules = page_rules(page) if text.words else []
        return Page(page_lines(text.words, index + 1, rules), page.get_bbox(), page.get_rotation(), problem)
    except pdfium.PdfiumError:
        return Page([], problem="unreadable")
    finally:
        page.close()


def _with_forms(document: pdfium.PdfDocument, page: pdfium.PdfPage, index: int) -> pdfium.PdfPage:
    """Return the page with its form fields and text notes drawn, in memory."""
    kinds = set()
    for number in range(raw.FPDFPage_GetAnnotCount(page.raw)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, number)
        if annotation:
            kinds.add(raw.FPDFAnnot_GetSubtype(annotation))
            raw.FPDFPage_CloseAnnot(annotation)
    if not kinds & {raw.FPDF_ANNOT_WIDGET, raw.FPDF_ANNOT_FREETEXT}:
        return page
    if raw.FPDFPage_Flatten(page.raw, raw.FLAT_NORMALDISPLAY) != raw.FLATTEN_SUCCESS:
        return page
    page.close()
    return document[index]


def _scan(page: pdfium.PdfPage, words: Sequence[Word]) -> str:
    """Return ``scan`` where an image covers a page with hardly any words; empty otherwise."""
    if len(words) > _STAMP:
        return ""
    left, bottom, right, top = page.get_bbox()
    for item in page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE,), max_depth=3):
        x0, y0, x1, y1 = item.get_bounds()
        width, height = min(x1, right) - max(x0, left), min(y1, top) - max(y0, bottom)
        if width > 0 and height > 0 and width * height >= _COVERED * (right - left) * (top - bottom):
            return "scan"
    return ""


def _picture(page: pdfium.PdfPage) -> str:
    """Return the content of a page without text: ``image``, ``drawing``, or empty."""
    kinds = Counter(item.type for item in page.get_objects(max_depth=3))
    if kinds[raw.FPDF_PAGEOBJ_IMAGE]:
        return "image"
    return "drawing" if kinds.total() >= _DRAWN else ""


def _outline(document: pdfium.PdfDocument) -> Iterator[OutlineEntry]:
    try:
        for bookmark in document.get_toc(max_depth=_OUTLINE_DEPTH):
            target = bookmark.get_dest()
            index = target.get_index() if target else None
            yield OutlineEntry(bookmark.level + 1, bookmark.get_title(), 0 if index is None else index + 1)
    except pdfium.PdfiumError:  # a damaged outline: keep the entries read so far
        return


def _attachments(document: pdfium.PdfDocument) -> Iterator[str]:
    for index in range(document.count_attachments()):
        try:
            yield document.get_attachment(index).get_name() or f"attachment {index + 1}"
        except pdfium.PdfiumError:
            yield f"attachment {index + 1}"
