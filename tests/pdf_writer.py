"""A minimal writer of PDF files: words at places, lines, rotation, an outline; the tests' own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WIDTHS = [278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, *[556] * 10, 278, 278]
_WIDTHS += [584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667]
_WIDTHS += [778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556]
_WIDTHS += [278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500]
_WIDTHS += [334, 260, 334, 584]  # Helvetica's own metrics, from the space to the tilde, in thousandths of the size

HEIGHT, WIDTH = 800, 600
Drawn = tuple[float, float, str, float, str]


def width(text: str, size: float = 10) -> float:
    return sum(_WIDTHS[ord(char) - 32] if 32 <= ord(char) < 127 else 556 for char in text) * size / 1000


class Sheet:
    """A page being written; heights count from its top."""

    def __init__(
        self,
        rotate: int = 0,
        matrix: str = "1 0 0 1 0 0",
        extra: bytes = b"",
        room: tuple[int, int] = (WIDTH, HEIGHT),
    ) -> None:
        self.drawn: list[Drawn] = []
        self.rules: list[tuple[float, float, float, float]] = []
        self.rotate, self.matrix, self.extra, self.room = rotate, matrix, extra, room

    def text(self, x: float, y: float, text: str, size: float = 10, font: str = "F1") -> float:
        self.drawn.append((x, y, text, size, font))
        return y

    def lines(self, x: float, y: float, lines: Iterable[str], size: float = 10, step: float = 12) -> float:
        """Write lines below each other, and return where the next one would stand."""
        for line in lines:
            self.text(x, y, line, size)
            y += step
        return y

    def paragraph(self, x: float, y: float, text: str, room: float, size: float = 10) -> float:
        return self.lines(x, y, wrapped(text, room, size), size)

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Draw a line."""
        self.rules.append((x0, y0, x1, y1))

    def grid(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Draw the lines of a table, all of them from side to side."""
        for x in xs:
            self.rule(x, ys[0], x, ys[-1])
        for y in ys:
            self.rule(xs[0], y, xs[-1], y)

    def content(self) -> bytes:
        parts = [b"q %s cm" % self.matrix.encode()]
        height = self.room[1]
        for x0, y0, x1, y1 in self.rules:
            parts.append(b"%g %g m %g %g l S" % (x0, height - y0, x1, height - y1))
        for x, y, text, size, font in self.drawn:
            escaped = re.sub(rb"([()\\])", rb"\\\1", text.encode("cp1252"))
            parts.append(b"BT /%s %g Tf %g %g Td (%s) Tj ET" % (font.encode(), size, x, height - y, escaped))
        return b"\n".join([*parts, b"Q", self.extra])


def wrapped(text: str, room: float, size: float = 10) -> list[str]:
    """Lines no wider than ``room``; ``|`` in a word says where it may be broken."""
    lines, line = [], ""
    for word in text.split():
        bare = word.replace("|", "")
        if width(f"{line} {bare}".strip(), size) <= room:
            line = f"{line} {bare}".strip()
            continue
        head, _, tail = word.partition("|")
        if tail and width(f"{line} {head}-".strip(), size) <= room:
            lines.append(f"{line} {head}-".strip())
            line = tail
        else:
            lines.append(line)
            line = bare
    return [*lines, line]


def written(
    *sheets: Sheet,
    info: str = "",
    outline: Sequence[tuple[str, int]] = (),
    trailer: str = "",
    resources: str = "",
) -> bytes:
    """A PDF of some pages; ``outline`` has titles and pages from 0."""
    fonts = {"F1": "Helvetica", "F2": "Helvetica-Bold", "F3": "Courier"}
    listed = " ".join(
        f"/{name} << /Type /Font /Subtype /Type1 /BaseFont /{base} /Encoding /WinAnsiEncoding >>"
        for name, base in fonts.items()
    )
    first = 5 + len(outline)
    objects = [b""] * (first - 1)
    kids = " ".join(f"{first + 2 * index} 0 R" for index in range(len(sheets)))
    catalog = "/Type /Catalog /Pages 2 0 R" + (" /Outlines 4 0 R" if outline else "")
    objects[0] = f"<< {catalog} >>".encode()
    objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(sheets)} >>".encode()
    objects[2] = f"<< {info} >>".encode("latin-1")
    objects[3] = f"<< /First 5 0 R /Last {4 + len(outline)} 0 R /Count {len(outline)} >>".encode()
    for index, (title, page) in enumerate(outline):
        follows = f"/Next {6 + index} 0 R" if index + 1 < len(outline) else ""
        before = f"/Prev {4 + index} 0 R" if index else ""
        target = f"/Dest [{first + 2 * page} 0 R /Fit]"
        objects[4 + index] = f"<< /Title ({title}) /Parent 4 0 R {target} {follows} {before} >>".encode()
    for index, sheet in enumerate(sheets):
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {sheet.room[0]} {sheet.room[1]}] /Rotate {sheet.rotate}"
        page += f" /Resources << /Font << {listed} >> {resources} >> /Contents {first + 2 * index + 1} 0 R >>"
        content = sheet.content()
        objects += [page.encode(), b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)]
    data, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info 3 0 R {trailer} >>".encode("latin-1")
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return bytes(data) + b"trailer\n%s\nstartxref\n%d\n%%%%EOF\n" % (head, start)
