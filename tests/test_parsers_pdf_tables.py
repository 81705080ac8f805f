"""Tables of PDF files: rows whole, headers known, columns read in order, and work that grows with the size."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pdf_table_sets import Sample, Style, draw, samples
from pdf_writer import Sheet, wrapped, written

from parsers.document import Document, check
from parsers.pdf import adapter as pdf
from parsers.pdf.layout.rules import Rule
from parsers.pdf.tables.grid import grids
from parsers.pdf.tables.row_grouping import grouped

PROSE = (
    "The pump stands in the cellar and is looked at twice a year. Its seals dry out when it does not run, and a dry "
    "seal lets air in. Nobody hears it at first. Later the pressure falls at night, and the valve at the far end of "
    "the line begins to knock, which people take for the wind. "
)
SAMPLES = dict(samples())


def rows(document: Document, header: bool | None = None) -> list[list[str]]:
    """The cells of the rows, of all or of those that are headers or none."""
    nodes = [node for node in document.nodes if node.kind == "row" and header in (None, node.header)]
    return [[cell.strip() for cell in document.text[node.start : node.end].split(" |")] for node in nodes]


def trimmed(cells: list[str]) -> list[str]:
    while cells and not cells[-1]:
        cells = cells[:-1]
    return cells


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_are_whole_and_their_header_is_known(name: str) -> None:
    sample: Sample = SAMPLES[name]
    document = pdf.parse(sample.data)
    check(document)
    assert [trimmed(row) for row in rows(document, header=False)] == [trimmed(row) for row in sample.rows]
    heads = rows(document, header=True)
    assert sample.header in heads
    assert document.status == "ok"


def test_a_table_over_pages_is_one_where_only_the_first_page_has_its_header() -> None:
    whole = pdf.parse(SAMPLES["ruled/over pages"].data)
    assert [node.kind for node in whole.nodes].count("table") == 1
    assert {node.page for node in whole.nodes if node.kind == "row"} == {1, 2, 3}
    parted = pdf.parse(SAMPLES["ruled/over pages, header repeated"].data)
    assert [node.kind for node in parted.nodes].count("table") == 3
    assert len(rows(parted, header=True)) == 3


def test_another_table_on_the_next_page_is_another_table() -> None:
    sheets = [Sheet(), Sheet()]
    draw(sheets[0], 60, ["Part", "Made of", "Price"], [["Seal", "rubber", "4"]] * 5, Style((100, 100, 80), lines="all"))
    draw(sheets[1], 60, [], [["Ann", "Smith", "12", "x"]] * 5, Style((80, 90, 60, 50), lines="all"))
    document = pdf.parse(written(*sheets))
    assert [node.kind for node in document.nodes].count("table") == 2


def test_a_cell_over_several_rows_stands_in_each_of_them() -> None:
    sheet = Sheet()
    xs, ys = [50, 150, 250, 350], [60, 80, 100, 120, 140]
    for row, cells in enumerate([("Region", "Plant", "Litres"), ("", "Perth", "12"), ("", "Kelso", "14")]):
        for x, cell in zip(xs, cells, strict=False):
            if cell:
                sheet.text(x + 4, ys[row] + 14, cell, font="F2" if not row else "F1")
    sheet.text(54, 104, "North")  # in the middle of two rows
    sheet.text(54, 134, "South"), sheet.text(154, 134, "Wigan"), sheet.text(254, 134, "9")
    for x in xs:
        sheet.rule(x, 60, x, 140)
    for y in ys:
        sheet.rule(150 if y == 100 else 50, y, 350, y)
    assert rows(pdf.parse(written(sheet))) == [
        ["Region", "Plant", "Litres"],
        ["North", "Perth", "12"],
        ["North", "Kelso", "14"],
        ["South", "Wigan", "9"],
    ]


def test_a_frame_around_a_page_and_lines_between_columns_of_prose_make_no_table() -> None:
    sheet = Sheet()
    left, right = f"Left begins. {PROSE * 2}".strip(), f"Right begins. {PROSE * 2}".strip()
    columns = [[(x, line) for line in wrapped(text, 230)] for x, text in ((50.0, left), (312.0, right))]
    for row, pair in enumerate(zip(*columns, strict=False)):
        for x, line in pair:
            sheet.text(x, 90 + 12 * row, line)
    longer = max(columns, key=len)
    for row in range(min(map(len, columns)), len(longer)):
        sheet.text(longer[row][0], 90 + 12 * row, longer[row][1])
    sheet.grid([40, 300, 560], [60, 400, 500])
    document = pdf.parse(written(sheet))
    assert not rows(document)
    paragraphs = [document.text[n.start : n.end] for n in document.nodes if n.kind == "paragraph"]
    assert paragraphs == [left, right]


def test_a_left_column_with_bullets_is_read_to_its_end_first() -> None:
    sheet = Sheet()
    for x, name in ((60, "Left"), (310, "Right")):
        y = sheet.paragraph(x, 60, f"{name} begins. {PROSE}", 220) + 8
        for number in range(8):
            sheet.text(x + 18, y, "\u2022")
            y = sheet.lines(
                x + 36, y, wrapped(f"{name} item {number} says a little more than one line holds here.", 180)
            )
    text = pdf.parse(written(sheet)).text
    order = [text.index(mark) for mark in ("Left begins", "Left item 7", "Right begins", "Right item 7")]
    assert order == sorted(order)


def test_a_table_beside_prose_keeps_its_rows_and_the_prose_its_lines() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE * 3, 230)
    table = [["Perth", "12"], ["Kelso", "14"], ["Wigan", "9"], ["Selby", "31"]]
    draw(sheet, 80, ["Plant", "Litres"], table, Style((120, 90), lines="all"), x=320)
    document = pdf.parse(written(sheet))
    assert rows(document, header=False) == table
    assert [document.text[n.start : n.end] for n in document.nodes if n.kind == "paragraph"] == [(PROSE * 3).strip()]


def test_pages_whose_rows_may_not_be_whole_are_named() -> None:
    clear, unclear = Sheet(), Sheet()
    clear.paragraph(50, 60, PROSE, 500)
    for row in range(4):  # columns that overlap from row to row
        shift = 55 * (row % 2)
        for column, x in enumerate((50, 170, 300, 420)):
            unclear.text(x + shift, 60 + 40 * row, f"Cell {column} {row}")
    document = pdf.parse(written(clear, unclear))
    assert document.status == "partial"
    assert document.reason == "page 2: rows of a table may not be whole (its columns are not clear)"


@pytest.mark.parametrize(
    ("cells", "bases", "groups"),
    [
        ([["1", "one"], ["", "more"], ["2", "two"]], [0, 12, 30], [0, 0, 1]),
        ([["1", "one"], ["", "more"], ["2", "two"]], [0, 12, 24], [0, 0, 1]),
        (
            [["", "one"], ["1", ""], ["", "more"], ["", "two"], ["2", ""], ["", "end"]],
            [0, 6, 12, 30, 36, 42],
            [0, 0, 0, 1, 1, 1],
        ),
        ([["Europe", "France", "10"], ["", "Spain", "12"], ["Asia", "Japan", "9"]], [0, 12, 24], [0, 1, 2]),
        ([["a", "1"], ["b", "2"], ["c", "3"]], [0, 12, 24], [0, 1, 2]),
    ],
)
def test_rows_of_print_make_rows_of_the_table(cells: list[list[str]], bases: list[float], groups: list[int]) -> None:
    assert grouped(bases, cells) == groups


# --- numbered paragraphs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marks",
    [("1.1", "1.2", "1.3"), ("1", "2", "3"), ("(1)", "(2)", "(3)"), ("12.9.", "12.10.", "12.11."), ("2", "2.1", "3")],
)
@pytest.mark.parametrize("gap", [0.0, 6.0])
def test_numbered_paragraphs_are_no_table(marks: tuple[str, ...], gap: float) -> None:
    sheet, y = Sheet(), 60.0
    for mark in marks:
        sheet.text(50, y, mark)
        y = sheet.lines(90, y, wrapped(f"Clause begins. {PROSE}", 400)) + gap
    document = pdf.parse(written(sheet))
    assert not rows(document)
    texts = [document.text[slice(*node.extent)] for node in document.nodes if node.kind == "item"]
    assert texts == [f"{mark} Clause begins. {PROSE}".strip() for mark in marks]


def test_numbers_before_short_cells_are_a_table_still() -> None:
    sheet = Sheet()
    for row, cells in enumerate(
        [("1", "Perth", "12"), ("2", "Kelso", "14"), ("3", "Wigan", "9"), ("4", "Selby", "31")]
    ):
        for x, cell in zip((50, 100, 250), cells, strict=True):
            sheet.text(x, 60 + 14 * row, cell)
    assert len(rows(pdf.parse(written(sheet)))) == 4


# --- real files ------------------------------------------------------------------------------------------------------


def real(shared: Path, name: str) -> Document:
    path = shared / "realdocs" / "round2" / name
    if not path.is_file():
        pytest.skip(f"needs {path}, which is not there")
    document = pdf.parse(path.read_bytes())
    check(document)
    return document


def test_the_requirements_of_a_standard(shared: Path) -> None:
    found = {tuple(trimmed(row)) for row in rows(real(shared, "asvs-4.0.3-en.pdf"))}
    with (shared / "realdocs/round2/asvs-4.0.3-en.csv").open(encoding="utf-8-sig", newline="") as file:
        entries = list(csv.DictReader(file))
    whole = 0
    for entry in entries:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", entry["req_description"]).replace("`", "")
        levels = [entry[f"level{number}"] for number in (1, 2, 3)]
        whole += (
            tuple(trimmed([entry["req_id"][1:], " ".join(text.split()), *levels, entry["cwe"], entry["nist"]])) in found
        )
    assert whole >= 0.98 * len(entries)


def test_a_report_over_sixteen_pages_is_one_table(shared: Path) -> None:
    document = real(shared, "ca-warn-report.pdf")
    notices = [row for row in rows(document) if re.fullmatch(r"\d\d/\d\d/\d{4}", row[0])]
    assert len(notices) == 633
    assert all(len(row) == 7 and all(row) for row in notices)
    assert [node.kind for node in document.nodes].count("table") == 2
    assert rows(document, header=True)[0] == [
        "Notice Date",
        "Effective",
        "Received",
        "Company",
        "City",
        "No. Of",
        "Layoff/Closure",
    ]


def test_a_wide_table_on_a_turned_page(shared: Path) -> None:
    found = rows(real(shared, "nics-background-checks-2015-11-rotated.pdf"), header=False)
    figures = {row[0]: [int(cell.replace(",", "").replace(" ", "") or 0) for cell in row[1:]] for row in found}
    assert len(figures) == 56 and all(len(row) == 24 for row in figures.values())
    assert all(sum(row[:-1]) == row[-1] for row in figures.values())
    states = [row for name, row in figures.items() if name != "Totals"]
    assert [sum(column) for column in zip(*states, strict=True)] == figures["Totals"]


def test_notes_stand_in_their_rows(shared: Path) -> None:
    document = real(shared, "layout-parser-paper-with-table.pdf")
    assert rows(document, header=True) == [["Dataset", "Base Model1", "Large Model", "Notes"]]
    assert ["HJDataset [31]", "F / M", "-", "Layouts of history Japanese documents"] in rows(document)


def test_the_left_column_is_read_to_its_end(shared: Path) -> None:
    text = real(shared, "list-item-example.pdf").text
    marks = [
        "Module One",
        "Timescales and conduct of development",
        "Module Two",
        "objective?",
        "Module Three",
        "market factors",
    ]
    assert [text.index(mark) for mark in marks] == sorted(text.index(mark) for mark in marks)


# --- properties ------------------------------------------------------------------------------------------------------

WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEF", min_size=2, max_size=9)
PLACED = st.lists(
    st.tuples(WORDS, st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=60, unique_by=lambda part: part[1:]
)
DRAWN = st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 12), st.integers(1, 12)), max_size=30)


@settings(max_examples=80, deadline=None)
@given(PLACED, DRAWN, st.sampled_from([0, 90, 270]))
def test_no_word_is_lost_whatever_lines_are_drawn(
    placed: list[tuple[str, int, int]], drawn: list[tuple[bool, int, int, int]], rotate: int
) -> None:
    sheet = Sheet(rotate=rotate)
    for word, column, row in placed:
        sheet.text(25 + column * 115, 62 + row * 24, word)
    for across, at, low, length in drawn:
        ends = (20 + 45 * low, 20 + 45 * (low + length))
        if across:
            sheet.rule(ends[0], 50 + 60 * at, ends[1], 50 + 60 * at)
        else:
            sheet.rule(20 + 45 * at, ends[0], 20 + 45 * at, ends[1])
    document = pdf.parse(written(sheet))
    check(document)
    assert set(re.findall(r"[A-Za-z]+", document.text)) == {word for word, *_ in placed}
    assert len(re.findall(r"[A-Za-z]+", document.text)) >= len(placed)


# --- growth ----------------------------------------------------------------------------------------------------------


def _many_rows(count: int) -> bytes:
    sheet = Sheet(room=(600, 14 * count + 100))
    for row in range(count):
        for x, text in zip((50, 150, 300), (f"name {row}", f"{row}", "word here"), strict=True):
            sheet.text(x, 60 + 14 * row, text)
    return written(sheet)


def _many_items(count: int) -> bytes:
    sheet = Sheet(room=(600, 14 * count + 100))
    for row in range(count):
        sheet.text(50, 60 + 14 * row, f"{row % 900}.")
        sheet.text(90, 60 + 14 * row, "An item of a list without an end.")
    return written(sheet)


def _many_cells(count: int) -> bytes:
    sheet = Sheet(room=(600, 14 * count + 100))
    sheet.grid([40, 140, 290, 500], [50 + 14 * row for row in range(count)])
    for row in range(count):
        for x, text in zip((50, 150, 300), (f"name {row}", f"{row}", "word here"), strict=True):
            sheet.text(x, 60 + 14 * row, text)
    return written(sheet)


def _many_steps(count: int) -> bytes:
    sheet = Sheet(room=(4 * count + 400, 14 * count + 100))
    for row in range(count):
        sheet.text(50 + 4 * row, 60 + 14 * row, "left")
        sheet.text(90 + 4 * row, 60 + 14 * row, "right")
    return written(sheet)


def _many_pages(count: int) -> bytes:
    sheets = []
    for number in range(count // 2):
        sheet = Sheet()
        sheet.text(50, 40, f"The handbook {number}", 8)
        sheet.lines(50, 90, [f"Line {row} of page {number} says little." for row in range(4)])
        sheets.append(sheet)
    return written(*sheets)


@pytest.mark.parametrize("make", [_many_rows, _many_items, _many_cells, _many_steps, _many_pages])
def test_twice_the_size_is_not_four_times_the_time(make: Callable[[int], bytes]) -> None:
    def seconds(data: bytes) -> float:
        spent = []
        for _ in range(2):
            begin = time.process_time()
            pdf.parse(data)
            spent.append(time.process_time() - begin)
        return min(spent)

    once, fourfold = make(60), make(240)
    assert seconds(fourfold) < 8 * seconds(once) + 0.2  # 16 where it is quadratic


def test_a_drawing_of_many_lines_is_no_grid() -> None:
    lines = [Rule(index % 2 == 0, index * 3.0, 0.0, 9000.0) for index in range(4000)]
    begin = time.process_time()
    assert grids(lines) == []
    assert time.process_time() - begin < 2
