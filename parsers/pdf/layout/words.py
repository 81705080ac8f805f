"""Read the words of a PDF page, with their positions.

Invariants:
- Every character of the text layer is in exactly one word, as a code point that can be stored.
- Ligatures are spelled out, soft hyphens are removed, right-to-left words are in logical order.
- Positions are in an upright frame, whatever the rotation of the page or of the text.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from parsers.pdf.layout.bidi import RIGHT_TO_LEFT, Glyph, logical_words

Angle = int
"""Direction of writing in quarter turns anticlockwise: 0, 1, 2, 3; ``SKEWED`` for anything between."""

SKEWED: Final = 4
HYPHEN: Final = "-"
_LINE_END_HYPHENS: Final = str.maketrans({"\x02": HYPHEN, "\ufffe": HYPHEN})  # PDFium's code points for it
_LIGATURES: Final = {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB18)}
_DROPPED: Final = {"\u00ad": "", "\u200b": "", "\ufeff": ""}  # soft hyphen, zero-width space, byte-order mark
_TRANSLATION: Final = str.maketrans({**_LIGATURES, **_DROPPED})
_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_PIECES: Final = re.compile("[^\\s\x00\x02\ufffe]*[\x02\ufffe]|[^\\s\x00\x02\ufffe]+")  # a line-end hyphen ends one
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BOLD_NAME: Final = re.compile(r"bold|black|heavy|semibold|demi|CMBX|CMB\d", re.IGNORECASE)
_MONO_NAME: Final = re.compile(r"courier|mono|consol|typewriter|CMTT|menlo", re.IGNORECASE)
_BOLD_WEIGHT: Final = 700  # OpenType's weight class for bold


class Word(NamedTuple):
    """A word in the upright frame of its direction of writing.

    Units are points, x to the right, y downwards.

    Attributes:
        x0, x1: left and right edge.
        base: height of the baseline.
        size: font size as drawn.
        order: its position in drawing order.
        space: whether the file has a space before it.
    """

    text: str
    x0: float
    x1: float
    base: float
    size: float
    bold: bool
    mono: bool
    angle: Angle
    order: int
    space: bool


class _Style(NamedTuple):
    size: float
    bold: bool
    mono: bool
    angle: Angle


class PageText(NamedTuple):
    """The words of a page, with counts of their characters.

    Attributes:
        words: the words in drawing order.
        unnamed: number of characters in words whose fonts have no Unicode mapping; PDFium guesses these.
        characters: number of characters in all words.
    """

    words: list[Word]
    unnamed: int
    characters: int


def page_text(page: pdfium.PdfPage) -> PageText:
    """Return the words of a page in drawing order."""
    text_page = page.get_textpage()
    try:
        return _Reader(text_page).read()
    finally:
        text_page.close()


class _Reader:
    """Reader of one text page through PDFium's C interface, with few calls per character."""

    def __init__(self, text_page: pdfium.PdfTextPage) -> None:
        self._page = text_page.raw
        self._count = text_page.count_chars()
        self._box = raw.FS_RECTF()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._matrix = raw.FS_MATRIX()
        self._styles: dict[int, _Style] = {}
        self._fonts: dict[int, tuple[bool, bool]] = {}

    def read(self) -> PageText:
        codes = self._codes()
        words = list(self._words_by_glyph(codes) if RIGHT_TO_LEFT.search(codes) else self._words(codes))
        unnamed = sum(len(word.text) for word in words if raw.FPDFText_HasUnicodeMapError(self._page, word.order) == 1)
        return PageText(words, unnamed, sum(len(word.text) for word in words))

    def _codes(self) -> str:
        """Return PDFium's characters: from one bulk call if its length agrees, one by one otherwise."""
        buffer = (ctypes.c_ushort * (self._count + 1))()
        written = raw.FPDFText_GetText(self._page, 0, self._count, buffer)
        if written == self._count + 1:
            codes = bytes(buffer)[: 2 * self._count].decode("utf-16-le", "surrogatepass")
            if len(codes) == self._count:
                return codes
        return "".join(chr(raw.FPDFText_GetUnicode(self._page, index)) for index in range(self._count))

    def _words(self, codes: str) -> Iterator[Word]:
        for match in _PIECES.finditer(codes):
            first, last = match.start(), match.end() - 1
            style = self._style(first)
            left, right = self._edges(first, style.angle), self._edges(last, style.angle)
            x0, x1 = min(left[0], right[0]), max(left[1], right[1])
            if x1 - x0 <= 1.5 * style.size * (last - first + 1) and self._style(last).size == style.size:
                spans = [(first, last, x0, x1)]
            else:
                spans = list(self._unbroken(first, last))
            for start, end, x0, x1 in spans:
                text = _clean(codes[start : end + 1])
                if text:
                    style = self._style(start)
                    space = start == 0 or codes[start - 1] in " \t\xa0"
                    yield Word(text, x0, x1, self._base(start, style.angle), *style, start, space)

    def _unbroken(self, first: int, last: int) -> Iterator[tuple[int, int, float, float]]:
        """Yield ``(first, last, left, right)`` of a word's parts, split at jumps and size changes.

        Some files draw two columns, two lines, or a raised mark without a space between them.
        """
        start, style = first, self._style(first)
        x0, x1 = self._edges(first, style.angle)
        for index in range(first + 1, last + 1):
            left, right = self._edges(index, style.angle)
            size = self._style(index).size
            if left - x1 > style.size or right < x1 - style.size or size != style.size:
                yield start, index - 1, x0, x1
                start, style = index, self._style(index)
                x0, x1 = self._edges(index, style.angle)
            else:
                x0, x1 = min(x0, left), max(x1, right)
        yield start, last, x0, x1

    def _words_by_glyph(self, codes: str) -> Iterator[Word]:
        """Yield the words of a page with right-to-left text, with glyphs sorted by position.

        PDFium reverses such lines.
        """
        for match in re.finditer(r"[^\r\n]+", codes):
            first = match.start()
            style = self._style(first + next((i for i, code in enumerate(match.group()) if not code.isspace()), 0))
            glyphs = [self._glyph(codes, index, style.angle) for index in range(first, match.end())]
            for place, (text, members) in enumerate(logical_words(glyphs, style.size)):
                text = _clean(text)
                if text:
                    x0, x1 = min(g.left for g in members), max(g.right for g in members)
                    order = min(g.place for g in members)
                    base = self._base(order, style.angle)
                    yield Word(text, x0, x1, base, *self._style(order), order=order, space=place > 0)

    def _glyph(self, codes: str, index: int, angle: Angle) -> Glyph:
        left, right = self._edges(index, angle)
        unnamed = raw.FPDFText_HasUnicodeMapError(self._page, index) == 1
        return Glyph(codes[index], index, left, right, unnamed)

    def _style(self, index: int) -> _Style:
        handle = raw.FPDFText_GetTextObject(self._page, index)
        if not handle:
            return _Style(1.0, False, False, 0)
        key = ctypes.addressof(handle.contents)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._read_style(handle, index)
        return style

    def _read_style(self, handle: object, index: int) -> _Style:
        raw.FPDFText_GetMatrix(self._page, index, self._matrix)
        a, b, c, d = self._matrix.a, self._matrix.b, self._matrix.c, self._matrix.d
        size = raw.FPDFText_GetFontSize(self._page, index) * math.hypot(c, d)
        bold, mono = self._font(raw.FPDFTextObj_GetFont(handle))
        return _Style(round(size, 2) if 0.1 < size < 5000 else 1.0, bold, mono, _angle(a, b))

    def _font(self, font: object) -> tuple[bool, bool]:
        if not font:
            return False, False
        key = ctypes.addressof(font.contents)  # type: ignore[attr-defined]
        if key not in self._fonts:
            buffer = ctypes.create_string_buffer(256)
            raw.FPDFFont_GetBaseFontName(font, buffer, 256)
            name = buffer.value.decode("utf-8", "replace")
            bold = bool(_BOLD_NAME.search(name)) or raw.FPDFFont_GetWeight(font) >= _BOLD_WEIGHT
            self._fonts[key] = bold, bool(_MONO_NAME.search(name))
        return self._fonts[key]

    def _edges(self, index: int, angle: Angle) -> tuple[float, float]:
        raw.FPDFText_GetLooseCharBox(self._page, index, self._box)
        box = self._box
        if angle == 1:
            return box.bottom, box.top
        if angle == 2:
            return -box.right, -box.left
        if angle == 3:
            return -box.top, -box.bottom
        return box.left, box.right

    def _base(self, index: int, angle: Angle) -> float:
        raw.FPDFText_GetCharOrigin(self._page, index, self._x, self._y)
        return to_upright(self._x.value, self._y.value, angle)[1]


def _angle(a: float, b: float) -> Angle:
    """Return the quarter turns of the direction ``(a, b)``, or ``SKEWED``.

    Within 10 degrees of an axis counts as on it.
    """
    turns = math.atan2(b, a) / (math.pi / 2)
    nearest = round(turns)
    return nearest % 4 if abs(turns - nearest) < 1 / 9 else SKEWED


def to_upright(x: float, y: float, angle: Angle) -> tuple[float, float]:
    """Convert a point in page space (y upwards) to an upright frame (y downwards)."""
    return ((x, -y), (y, x), (-x, y), (-y, -x), (x, -y))[angle]


def from_upright(u: float, v: float, angle: Angle) -> tuple[float, float]:
    """Convert a point in the upright frame to page space; the inverse of :func:`to_upright`."""
    return ((u, -v), (v, u), (-u, v), (-v, -u), (u, -v))[angle]


def _clean(text: str) -> str:
    """Return the text with ligatures spelled out, without soft hyphens and unstorable characters."""
    text = text.translate(_LINE_END_HYPHENS)
    if text.isascii():
        return _UNSTORABLE.sub("", text)
    text = _SURROGATE_PAIR.sub(_joined, text.translate(_TRANSLATION))
    return unicodedata.normalize("NFC", _UNSTORABLE.sub("", text)).strip()


def _joined(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le")
