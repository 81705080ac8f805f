"""The text of a Word paragraph.

Kept here: what a reader of the finished document sees, once: insertions but no deletions, the result of a field but
not its code, one of the alternatives for a drawing, no soft hyphens, no comments, no hidden text. What only hangs on
the paragraph (text boxes, notes, pictures) is handed back beside it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from lxml.etree import _Element

from parsers.docx_styles import W, switched

_MC: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_M: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
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
    f"{W}tab": " ",
    f"{W}ptab": " ",
    f"{W}cr": "\n",
    f"{W}noBreakHyphen": "-",
    f"{W}softHyphen": "",
}
_NOTES: Final = {f"{W}footnoteReference": "footnotes", f"{W}endnoteReference": "endnotes"}
_DROPPED: Final = str.maketrans({"\u00ad": None, "\u200b": None, "\ufeff": None, "\u00a0": " "})
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Paragraph(msgspec.Struct):
    """A paragraph's text and what hangs on it.

    Attributes:
        text: its text; a line break in it is a line feed.
        boxes: the contents of text boxes anchored in it.
        notes: ``(part, id)`` of its foot- and endnotes.
        pictures: alternative texts of its pictures.
        bold: whether all of its text is set bold by itself.
        breaks: page breaks in it, as Word last set it.
        early_breaks: those of them in front of its text.
        is_formula: whether it holds a formula and nothing else.
    """

    text: str = ""
    boxes: list[_Element] = []
    notes: list[tuple[str, str]] = []
    pictures: list[str] = []
    bold: bool = False
    breaks: int = 0
    early_breaks: int = 0
    is_formula: bool = False


def read_paragraph(element: _Element) -> Paragraph:
    """Read a ``w:p``."""
    reader = _Reader()
    reader.read(element)
    text = "".join(reader.pieces).translate(_DROPPED)
    lines = (" ".join(_UNSTORABLE.sub("", line).split()) for line in text.split("\n"))
    found = reader.found
    found.text = "\n".join(line for line in lines if line)
    found.bold = bool(found.text) and not reader.light
    found.is_formula = bool(found.text) and reader.formulas > 0 and not reader.words
    return found


class _Reader:
    def __init__(self) -> None:
        self.found = Paragraph()
        self.pieces: list[str] = []
        self.light = False
        self.words = False
        self.formulas = 0

    def read(self, element: _Element) -> None:
        for child in element:
            tag = child.tag
            if not isinstance(tag, str) or tag in _SKIPPED:
                continue
            if tag == f"{W}r":
                self._run(child)
            elif tag == f"{_MC}AlternateContent":
                self._alternative(child)
            elif tag == f"{_M}oMath":
                self.formulas += 1
                self.pieces.append(" " + "".join(part.text or "" for part in child.iter(f"{_M}t")) + " ")
            else:
                self._other(child, tag)

    def _run(self, run: _Element) -> None:
        properties = run.find(f"{W}rPr")
        if switched(properties, "vanish") or switched(properties, "webHidden"):
            return
        before = len(self.pieces)
        self.read(run)
        if "".join(self.pieces[before:]).strip():
            self.words = True
            self.light = self.light or not switched(properties, "b")

    def _other(self, child: _Element, tag: str) -> None:
        if tag == f"{W}t":
            self.pieces.append(child.text or "")
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
            self.pieces.append(_symbol(child.get(f"{W}char", "")))
        elif tag == f"{W}txbxContent":
            self.found.boxes.append(child)
        elif tag == f"{_WP}docPr":
            self._picture(child.get("descr") or "")
        else:
            self.read(child)

    def _picture(self, description: str) -> None:
        text = " ".join(_UNSTORABLE.sub("", description).split())
        if text:
            self.found.pictures.append(text)

    def _alternative(self, element: _Element) -> None:
        """One of the alternatives: the first choice that holds anything, or the fallback."""
        for branch in element:
            if branch.tag in (f"{_MC}Choice", f"{_MC}Fallback") and len(branch):
                self.read(branch)
                return


def _symbol(code: str) -> str:
    """A character of a symbol font: those in the private area have no meaning of their own."""
    try:
        point = int(code, 16)
    except ValueError:
        return ""
    return "" if point < 0x20 or 0xD800 <= point <= 0xF8FF or point > 0x10FFFF else chr(point)
