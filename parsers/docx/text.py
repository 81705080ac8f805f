"""Read the text of a Word paragraph.

Invariants:
- The text is what a reader of the finished document sees, once. It has insertions but no deletions, one of the
  alternatives for a drawing, no soft hyphens, no comments and no hidden text.
- Characters of symbol fonts and formulas are in Unicode.
- Text boxes, notes and pictures anchored in the paragraph are returned separately.
- An unknown symbol and a drawing whose text is not read are reported as problems.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.docx.formulas import M, formula_text
from parsers.docx.styles import Look, Styles, W, switched
from parsers.docx.symbol_fonts import is_symbol_font, symbol

_MC: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_WP: Final = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_SKIPPED: Final = frozenset(
    f"{W}{name}"
    for name in (
        "del",
        "moveFrom",
        "delText",
        "instrText",
        "delInstrText",
        "pPr",
        "rPr",
        "rt",
        "rubyPr",
        "annotationRef",
    )
)
_CHARACTERS: Final = {
    f"{W}tab": "\t",
    f"{W}ptab": "\t",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
    f"{W}softHyphen": "",
}
_NOTES: Final = {f"{W}footnoteReference": "footnotes", f"{W}endnoteReference": "endnotes"}
_DROPPED: Final = str.maketrans({"\u00ad": None, "\u200b": None, "\ufeff": None, "\u00a0": " "})
# Drawings whose text is in a part of its own, by the last segment of their namespace.
_UNREAD: Final = {"chart": "a chart", "diagram": "a diagram (SmartArt)"}
_GRAPHIC: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}graphicData"
_MONOSPACE: Final = re.compile(
    r"courier|consolas|menlo|monaco|inconsolata|hack|fixedsys|terminal|lucida (console|sans typewriter)|andale mono"
    r"|.*\b(mono|monospace|code|typewriter)\b",
    re.IGNORECASE,
)
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Paragraph(msgspec.Struct):
    """A paragraph's text, look and anchored content.

    Attributes:
        text: its text; a line break is a line feed.
        laid_out: its text with the original spaces and tabs, for code.
        boxes: the contents of text boxes anchored in it.
        notes: ``(part, id)`` of its footnotes and endnotes.
        pictures: alternative texts of its pictures.
        bold: whether all of its text is bold.
        size: font size of its smallest text in half-points; 0 where the document does not say.
        monospace: whether all of its text is in a monospace font.
        problems: content of it that could not be read.
        breaks: number of page breaks in it, as Word last rendered it.
        early_breaks: number of these page breaks that come before its text.
        is_formula: whether it consists of formulas alone.
    """

    text: str = ""
    laid_out: str = ""
    boxes: list[_Element] = []
    notes: list[tuple[str, str]] = []
    pictures: list[str] = []
    bold: bool = False
    size: int = 0
    monospace: bool = False
    problems: list[str] = []
    breaks: int = 0
    early_breaks: int = 0
    is_formula: bool = False


def read_paragraph(element: _Element, styles: Styles) -> Paragraph:
    """Read a ``w:p``."""
    reader = _Reader(styles, element.find(f"{W}pPr"))
    reader.read(element)
    found = reader.found
    found.laid_out = _UNSTORABLE.sub("", "".join(reader.pieces).translate(_DROPPED))
    lines = (" ".join(line.split()) for line in found.laid_out.split("\n"))
    found.text = "\n".join(line for line in lines if line)
    if found.text and reader.looks:
        found.bold = all(look.bold for look in reader.looks)
        found.size = min(look.size for look in reader.looks)
        found.monospace = all(is_monospace(look.font) for look in reader.looks)
    found.is_formula = bool(found.text) and reader.formulas > 0 and not reader.words
    return found


def is_monospace(font: str) -> bool:
    """Return whether a font is monospace, by its name."""
    return bool(_MONOSPACE.match(font))


class _Reader:
    def __init__(self, styles: Styles, properties: _Element | None) -> None:
        self.found = Paragraph()
        self.pieces: list[str] = []
        self.looks: set[Look] = set()
        self.words = False
        self.formulas = 0
        self._styles = styles
        self._properties = properties
        self._font = ""

    def read(self, element: _Element) -> None:
        for child in element:
            tag = child.tag
            if not isinstance(tag, str) or tag in _SKIPPED:
                continue
            if tag == f"{W}r":
                self._run(child)
            elif tag == f"{_MC}AlternateContent":
                self._alternative(child)
            elif tag == f"{M}oMath":
                self.formulas += 1
                self.pieces.append(f" {formula_text(child)} ")
            else:
                self._other(child, tag)

    def _run(self, run: _Element) -> None:
        properties = run.find(f"{W}rPr")
        if switched(properties, "vanish") or switched(properties, "webHidden"):
            return
        before, around = len(self.pieces), self._font
        look = self._styles.look(properties, self._properties)
        self._font = look.font
        self.read(run)
        self._font = around
        if "".join(self.pieces[before:]).strip():
            self.words = True
            self.looks.add(look)

    def _other(self, child: _Element, tag: str) -> None:
        if tag == f"{W}t":
            self._letters(child.text or "")
        elif tag in _CHARACTERS:
            self.pieces.append(_CHARACTERS[tag])
        elif tag == f"{W}br":
            self.pieces.append(" " if child.get(f"{W}type") in ("page", "column") else "\n")
        elif tag == f"{W}lastRenderedPageBreak":
            self.found.breaks += 1
            self.found.early_breaks += not "".join(self.pieces).strip()
        elif tag in _NOTES:
            self.found.notes.append((_NOTES[tag], child.get(f"{W}id", "")))
        elif tag == f"{W}sym":
            self._symbol(child.get(f"{W}font", ""), child.get(f"{W}char", ""))
        elif tag == f"{W}txbxContent":
            self.found.boxes.append(child)
        elif tag == f"{_WP}docPr":
            self._picture(child.get("descr") or "")
        else:
            if tag == _GRAPHIC and (kind := child.get("uri", "").rsplit("/", 1)[-1]) in _UNREAD:
                self.found.problems.append(f"{_UNREAD[kind]} was not read")
            self.read(child)

    def _letters(self, text: str) -> None:
        """Append text; convert it to Unicode where its font is a symbol font."""
        if not is_symbol_font(self._font):
            self.pieces.append(text)
            return
        for letter in text:
            if ord(letter) <= 0xFF or 0xF000 <= ord(letter) <= 0xF0FF:
                self._sign(self._font, ord(letter))
            else:
                self.pieces.append(letter)  # not a code of this font: Word shows it in another one

    def _symbol(self, font: str, code: str) -> None:
        """Append a ``w:sym``."""
        try:
            point = int(code, 16)
        except ValueError:
            return
        if is_symbol_font(font) or 0xD800 <= point <= 0xF8FF:
            self._sign(font, point)
        elif 0x20 <= point <= 0x10FFFF:
            self.pieces.append(chr(point))

    def _sign(self, font: str, point: int) -> None:
        known = symbol(font, point)
        if known is None:
            self.found.problems.append(f"signs of the font {font or '(unnamed)'} were left out: no known meaning")
        else:
            self.pieces.append(known)

    def _picture(self, description: str) -> None:
        text = " ".join(_UNSTORABLE.sub("", description).split())
        if text:
            self.found.pictures.append(text)

    def _alternative(self, element: _Element) -> None:
        """Read the first alternative that has content: a choice, or the fallback."""
        for branch in element:
            if branch.tag in (f"{_MC}Choice", f"{_MC}Fallback") and len(branch):
                self.read(branch)
                return
