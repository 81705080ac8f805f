"""PDF files with tables whose rows are known, drawn in the ways that reports draw them; the same ones in every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pdf_writer import Sheet, width, wrapped, written

LEADING = 12.0
PADDING = 6.0
_NAMES = """
Alder Bergen Caldon Dunmore Elster Farrow Garmond Hollis Ivrea Jarrow Kelso Lindow Marden Norwick Ostrava
Perth Quimper Rostock Selby Tarbert Ulverston Varese Wigan Yarrow Zwolle
"""
_WORDS = """
the pump must be stopped before its cover is opened and the operator checks that no pressure is left in line
valves are closed by hand where power fails because springs wear out over time each report names who was there
"""
NAMES = _NAMES.split()
WORDS = _WORDS.split()

Rows = list[list[str]]


@dataclass
class Sample:
    """A PDF with tables.

    Attributes:
        rows: the rows without headers, in order.
        header: the last header row of each table.
    """

    data: bytes
    rows: Rows
    header: list[str]


@dataclass
class Style:
    """How a table is drawn.

    Attributes:
        widths: of the columns, in points.
        right: columns whose text is set to the right.
        lines: ``all``, ``rows``, ``head`` (below the header and at the end), ``columns`` or none.
        padding: space between rows, in points.
        bold: whether the header is bold.
        middle: whether short cells stand in the middle of their row's height.
        by_column: whether the file draws one column after the other.
        size: of the font, in points.
    """

    widths: Sequence[float]
    right: frozenset[int] = frozenset()
    lines: str = ""
    padding: float = PADDING
    bold: bool = False
    middle: bool = False
    by_column: bool = False
    size: float = 10.0
    groups: Sequence[tuple[int, int, str]] = field(default=())


def draw(sheet: Sheet, y: float, header: Sequence[str], rows: Rows, style: Style, x: float = 50.0) -> float:
    """Draw a table from a height downwards, and return the height below it."""
    xs = [x]
    for room in style.widths:
        xs.append(xs[-1] + room)
    ys = [y]
    drawn: list[tuple[int, float, float, str, str]] = []
    if style.groups:
        for first, last, text in style.groups:
            middle = (xs[first] + xs[last + 1]) / 2 - width(text, style.size) / 2
            drawn.append((first, middle, ys[-1] + style.size + 1, text, "F2"))
        ys.append(ys[-1] + LEADING + style.padding)
    leading = 1.2 * style.size
    for index, cells in enumerate([*([header] if header else []), *rows]):
        heading = bool(header) and index == 0
        parts = [wrapped(cell, room - 8, style.size) for cell, room in zip(cells, style.widths, strict=True)]
        height = max(len(lines) for lines in parts) * leading + style.padding
        for column, lines in enumerate(parts):
            top = ys[-1] + style.padding / 2 + 0.8 * style.size
            if style.middle:
                top += (height - style.padding - len(lines) * leading) / 2
            for number, line in enumerate(lines):
                shift = style.widths[column] - 8 - width(line, style.size) if column in style.right else 0.0
                font = "F2" if heading and style.bold else "F1"
                drawn.append((column, xs[column] + 4 + shift, top + number * leading, line, font))
        ys.append(ys[-1] + height)
    for _, left, base, text, font in sorted(drawn, key=lambda one: one[0]) if style.by_column else drawn:
        if text:
            sheet.text(left, base, text, style.size, font)
    _rules(sheet, xs, ys, style)
    return ys[-1] + 20


def _rules(sheet: Sheet, xs: Sequence[float], ys: Sequence[float], style: Style) -> None:
    head = 1 + bool(style.groups)
    if style.lines == "all" and style.groups:
        sheet.grid(xs, ys[1:])
        sheet.rule(xs[0], ys[0], xs[-1], ys[0])
        inner = {edge for first, last, _ in style.groups for edge in range(first + 1, last + 1)}
        for index, at in enumerate(xs):
            if index not in inner:
                sheet.rule(at, ys[0], at, ys[1])
    elif style.lines == "all":
        sheet.grid(xs, ys)
    elif style.lines == "columns":
        sheet.grid(xs, [ys[0], ys[head], ys[-1]])
    elif style.lines:
        for at in ys if style.lines == "rows" else (ys[0], ys[head], ys[-1]):
            sheet.rule(xs[0], at, xs[-1], at)


def _rows(seed: str, count: int, columns: str) -> Rows:
    """Rows of cells: ``n`` a name, ``f`` a figure, ``d`` a date, ``t`` a sentence, ``w`` a word, ``-`` often empty."""
    chance = random.Random(seed)
    make: dict[str, Callable[[], str]] = {
        "n": lambda: " ".join(chance.sample(NAMES, 2)),
        "f": lambda: f"{chance.randrange(10, 99_999):,}",
        "d": lambda: f"{chance.randrange(1, 13):02}/{chance.randrange(1, 29):02}/2024",
        "t": lambda: " ".join(chance.choices(WORDS, k=chance.randrange(6, 22))).capitalize() + ".",
        "w": lambda: chance.choice(WORDS),
        "-": lambda: chance.choice(["", "", "yes"]),
        "c": lambda: f"{chance.randrange(1, 9)}.{chance.randrange(1, 9)}.{chance.randrange(1, 30)}",
    }
    return [[make[kind]() for kind in columns] for _ in range(count)]


def _single(name: str, columns: str, header: str, style: Style, count: int = 12, **page: object) -> Sample:
    rows, titles = _rows(name, count, columns), header.split("|")
    sheet = Sheet(**page)  # type: ignore[arg-type]
    room = sheet.room[0] - 100
    y = sheet.paragraph(50, 60, "What was found is listed below. " + " ".join(WORDS).capitalize() + ".", room)
    y = draw(sheet, y + 20, titles, rows, style)
    sheet.paragraph(50, y + 10, "So much for this list. " + " ".join(WORDS).capitalize() + ".", room)
    return Sample(written(sheet), rows, titles)


def _over_pages(name: str, repeated: bool, style: Style) -> Sample:
    rows, titles = _rows(name, 90, "ndfw"), ["Plant", "Seen on", "Litres", "State"]
    sheets = []
    for first in range(0, len(rows), 30):
        sheet = Sheet()
        draw(sheet, 60, titles if repeated or not first else [], rows[first : first + 30], style)
        sheet.text(280, 770, f"Page {first // 30 + 1}", 8)
        sheets.append(sheet)
    return Sample(written(*sheets), rows, titles)


FOUR = "Plant|Seen on|Litres|State"
WIDE = "|".join(["Plant", *(f"Q{number}" for number in range(1, 12))])


def samples() -> Iterator[tuple[str, Sample]]:
    """All samples, by set and name."""
    plain = (150.0, 100.0, 80.0, 120.0)
    figures = frozenset({2})
    for group, lines in (("ruled", "all"), ("unruled", "")):
        yield f"{group}/plain", _single("a", "ndfw", FOUR, Style(plain, lines=lines, bold=True))
        yield f"{group}/plain header", _single("b", "ndfw", FOUR, Style(plain, lines=lines))
        yield f"{group}/figures to the right", _single("c", "ndfw", FOUR, Style(plain, figures, lines, bold=True))
        cells = Style((60, 250, 80, 80), lines=lines, bold=True)
        yield f"{group}/cells of several lines", _single("d", "ctfw", "No.|Rule|Litres|State", cells, 9)
        cells = Style((60, 250, 80, 80), lines=lines, bold=True, middle=True)
        yield f"{group}/cells in the middle", _single("e", "ctfw", "No.|Rule|Litres|State", cells, 9)
        cells = Style((60, 270, 50, 50, 60), lines=lines, bold=True)
        yield f"{group}/many empty cells", _single("f", "ct--f", "No.|Rule|Old|New|CWE", cells, 9)
        wide = Style((110, *[55.0] * 11), frozenset(range(1, 12)), lines, bold=True, size=8)
        yield f"{group}/wide", _single("g", "n" + "f" * 11, WIDE, wide, 14, room=(850, 600))
        yield f"{group}/turned page", _single("h", "ndfw", FOUR, Style(plain, figures, lines, bold=True), rotate=90)
        turned = Style(plain, figures, lines, bold=True)
        yield f"{group}/turned text", _single("i", "ndfw", FOUR, turned, matrix="0 1 -1 0 700 0")
        column = Style(plain, figures, lines, bold=True, by_column=True)
        yield f"{group}/drawn by column", _single("j", "ndfw", FOUR, column)
        spanning = Style((120, 80, 80, 80, 80), frozenset({1, 2, 3, 4}), lines, bold=True)
        spanning.groups = ((1, 2, "First half"), (3, 4, "Second half"))
        yield f"{group}/spanning header", _single("k", "nffff", "Plant|Built|Sold|Built|Sold", spanning)
        yield f"{group}/over pages, header repeated", _over_pages("l", True, Style(plain, figures, lines, bold=True))
        yield f"{group}/over pages", _over_pages("m", False, Style(plain, figures, lines, bold=True))
        prose = Style((60, 210, 210), lines=lines, bold=True)
        yield f"{group}/two columns of prose", _single("n", "ctt", "No.|Rule|Reason", prose, 6)
    yield (
        "ruled/lines below rows",
        _single("o", "ctfw", "No.|Rule|Litres|State", Style((60, 250, 80, 80), lines="rows"), 9),
    )
    middle = Style((60, 250, 80, 80), lines="rows", middle=True)
    yield "ruled/lines below rows, cells in the middle", _single("p", "ctfw", "No.|Rule|Litres|State", middle, 9)
    yield "ruled/lines around the header", _single("q", "ndfw", FOUR, Style(plain, figures, "head"))
    yield "ruled/columns only", _single("r", "ndfw", FOUR, Style(plain, figures, "columns"))
