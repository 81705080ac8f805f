"""Read the horizontal and vertical lines drawn on a PDF page.

They are rules, borders and the edges of shaded boxes.

Invariants:
- A page is read once, object by object. A page with more than ``_OBJECTS`` objects is a drawing and has no rules.
- Every rule is in page space; ``upright`` rotates it into the frame of a direction of writing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from parsers.pdf.layout.words import Angle, to_upright

_OBJECTS: Final = 50_000
_DEPTH: Final = 3  # levels of nested form objects
_THIN: Final = 3.0  # points: a narrower shape is a line
_SHORTEST: Final = 3.0  # points
_SEGMENTS: Final = 2_000  # segments of a path; a path with more is a drawing
_RECTANGLE: Final = (4, 5, 6)  # segments of the path of a rectangle
_WHOLE: Final = 0.95  # of the page's width and height: a larger box is the page's background

_Box = tuple[float, float, float, float]
_Matrix = tuple[float, float, float, float, float, float]
_IDENTITY: Final[_Matrix] = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


class Rule(NamedTuple):
    """A straight line in points.

    Attributes:
        horizontal: whether it runs along x; along y otherwise.
        at: its height, or its x where it is vertical.
        low, high: its ends, along its own direction.
    """

    horizontal: bool
    at: float
    low: float
    high: float


def page_rules(page: pdfium.PdfPage) -> list[Rule]:
    """Return the rules of a page in page space (y upwards), in drawing order."""
    reader = _Reader(page.get_bbox())
    found = list(reader.read(page.raw, raw.FPDFPage_CountObjects, raw.FPDFPage_GetObject, _IDENTITY, 0))
    return found if reader.objects <= _OBJECTS else []


def upright(rules: Sequence[Rule], angle: Angle) -> list[Rule]:
    """Return rules in the upright frame of a direction of writing (y downwards)."""
    turned = []
    for rule in rules:
        ends = [(rule.low, rule.at), (rule.high, rule.at)] if rule.horizontal else None
        (x0, y0), (x1, y1) = (to_upright(x, y, angle) for x, y in ends or [(rule.at, rule.low), (rule.at, rule.high)])
        if abs(y1 - y0) < abs(x1 - x0):
            turned.append(Rule(True, y0, min(x0, x1), max(x0, x1)))
        else:
            turned.append(Rule(False, x0, min(y0, y1), max(y0, y1)))
    return turned


class _Reader:
    """Reader of the objects of one page, through PDFium's C interface."""

    def __init__(self, bounds: _Box) -> None:
        self.objects = 0
        self._bounds = bounds
        self._edges = [ctypes.c_float() for _ in range(4)]
        self._x, self._y = ctypes.c_float(), ctypes.c_float()
        self._fill, self._stroke = ctypes.c_int(), ctypes.c_int()
        self._matrix = raw.FS_MATRIX()

    def read(self, holder: object, count: object, get: object, matrix: _Matrix, depth: int) -> Iterator[Rule]:
        """Yield the rules among the objects of a page or a form.

        ``count`` and ``get`` are PDFium's functions to count and get the objects of the holder.
        """
        for index in range(count(holder)):  # type: ignore[operator]
            self.objects += 1
            if self.objects > _OBJECTS:
                return
            item = get(holder, index)  # type: ignore[operator]
            kind = raw.FPDFPageObj_GetType(item)
            if kind == raw.FPDF_PAGEOBJ_PATH:
                yield from self._path(item, matrix)
            elif kind == raw.FPDF_PAGEOBJ_FORM and depth < _DEPTH:
                inner = _product(self._matrix_of(item), matrix)
                yield from self.read(item, raw.FPDFFormObj_CountObjects, raw.FPDFFormObj_GetObject, inner, depth + 1)

    def _path(self, item: object, matrix: _Matrix) -> Iterator[Rule]:
        raw.FPDFPath_GetDrawMode(item, self._fill, self._stroke)
        if not (self._fill.value or self._stroke.value):
            return
        segments = raw.FPDFPath_CountSegments(item)
        box = self._box(item, matrix)
        if box is None:
            return
        thin = box[2] - box[0] <= _THIN or box[3] - box[1] <= _THIN
        if thin or segments in _RECTANGLE:
            yield from self._sides(box)
        elif segments <= _SEGMENTS:
            yield from self._segments(item, segments, _product(self._matrix_of(item), matrix))

    def _box(self, item: object, matrix: _Matrix) -> _Box | None:
        """Return the area of the page that an object covers."""
        left, bottom, right, top = self._edges
        if not raw.FPDFPageObj_GetBounds(item, left, bottom, right, top):
            return None
        corners = [_moved(x.value, y.value, matrix) for x, y in ((left, bottom), (right, top))]
        xs, ys = sorted(x for x, _ in corners), sorted(y for _, y in corners)
        return xs[0], ys[0], xs[1], ys[1]

    def _sides(self, box: _Box) -> Iterator[Rule]:
        """Yield a thin box as one line, and any other box as its four edges."""
        x0, y0, x1, y1 = box
        if y1 - y0 <= _THIN and x1 - x0 > _SHORTEST:
            yield Rule(True, (y0 + y1) / 2, x0, x1)
        elif x1 - x0 <= _THIN and y1 - y0 > _SHORTEST:
            yield Rule(False, (x0 + x1) / 2, y0, y1)
        elif x1 - x0 > _SHORTEST and y1 - y0 > _SHORTEST and not self._is_background(box):
            yield Rule(True, y0, x0, x1)
            yield Rule(True, y1, x0, x1)
            yield Rule(False, x0, y0, y1)
            yield Rule(False, x1, y0, y1)

    def _is_background(self, box: _Box) -> bool:
        left, bottom, right, top = self._bounds
        return box[2] - box[0] > _WHOLE * (right - left) and box[3] - box[1] > _WHOLE * (top - bottom)

    def _segments(self, item: object, count: int, matrix: _Matrix) -> Iterator[Rule]:
        """Yield the horizontal and vertical segments of a path."""
        here = start = (0.0, 0.0)
        for index in range(count):
            segment = raw.FPDFPath_GetPathSegment(item, index)
            raw.FPDFPathSegment_GetPoint(segment, self._x, self._y)
            there = _moved(self._x.value, self._y.value, matrix)
            kind = raw.FPDFPathSegment_GetType(segment)
            if kind == raw.FPDF_SEGMENT_MOVETO:
                start = there
            elif kind == raw.FPDF_SEGMENT_LINETO:
                yield from _straight(here, there)
            here = there
            if raw.FPDFPathSegment_GetClose(segment):
                yield from _straight(here, start)
                here = start

    def _matrix_of(self, item: object) -> _Matrix:
        if not raw.FPDFPageObj_GetMatrix(item, self._matrix):
            return _IDENTITY
        found = self._matrix
        return found.a, found.b, found.c, found.d, found.e, found.f


def _straight(here: tuple[float, float], there: tuple[float, float]) -> Iterator[Rule]:
    (x0, y0), (x1, y1) = here, there
    if abs(y1 - y0) < 0.5 and abs(x1 - x0) > _SHORTEST:
        yield Rule(True, (y0 + y1) / 2, min(x0, x1), max(x0, x1))
    elif abs(x1 - x0) < 0.5 and abs(y1 - y0) > _SHORTEST:
        yield Rule(False, (x0 + x1) / 2, min(y0, y1), max(y0, y1))


def _moved(x: float, y: float, matrix: _Matrix) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _product(first: _Matrix, then: _Matrix) -> _Matrix:
    a, b, c, d, e, f = first
    g, h, i, j, k, m = then
    return a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m
