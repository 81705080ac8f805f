"""PDF: rules on small files written here, and what must be in the output of real ones."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pdf_writer import HEIGHT, Sheet, width, wrapped, written

from parsers import registry
from parsers.document import Document, Node, check, left_out
from parsers.errors import BrokenDocument, DocumentError
from parsers.pdf import adapter as pdf
from parsers.pdf.joining import Vocabulary, join
from parsers.pdf.layout.bidi import Glyph, brackets_set_right, logical_order, logical_words
from parsers.titles import sensible_title


def nodes(document: Document, kind: str) -> list[str]:
    return [text_of(document, node) for node in document.nodes if node.kind == kind]


def text_of(document: Document, node: Node) -> str:
    return document.text[node.start : node.end]


def headings(document: Document) -> list[tuple[int, str]]:
    return [(node.level, text_of(document, node)) for node in document.nodes if node.kind == "heading"]


def indexed(document: Document) -> str:
    """The text of the leaves that are not left out."""
    reasons = left_out(document)
    parents = {node.parent for node in document.nodes}
    return "\n".join(
        text_of(document, node)
        for index, node in enumerate(document.nodes)
        if index not in parents and reasons[index] is None
    )


PROSE = (
    "The pump stands in the cellar and is looked at twice a year. Its seals dry out when it does not run, and a dry "
    "seal lets air in. Nobody hears it at first. Later the pressure falls at night, and the valve at the far end of "
    "the line begins to knock, which people take for the wind. "
)

# --- lines and paragraphs --------------------------------------------------------------------------------------------


def test_lines_are_joined_by_one_space_and_indents_and_gaps_part_paragraphs() -> None:
    sheet = Sheet()
    y = sheet.paragraph(50, 60, PROSE.strip(), 300)
    first, *rest = wrapped("Second one. " + PROSE.strip(), 300 - 20)
    sheet.text(70, y, first)
    y = sheet.lines(50, y + 12, rest)
    sheet.paragraph(50, y + 10, "Third one. " + PROSE.strip(), 300)
    document = pdf.parse(written(sheet))
    assert nodes(document, "paragraph") == [
        PROSE.strip(),
        f"Second one. {PROSE.strip()}",
        f"Third one. {PROSE.strip()}",
    ]


def test_a_sentence_that_ends_early_ends_its_paragraph() -> None:
    sheet = Sheet()
    y = sheet.paragraph(50, 60, f"{PROSE}So it is.", 300)
    sheet.paragraph(50, y, f"Another paragraph. {PROSE}".strip(), 300)
    assert len(nodes(pdf.parse(written(sheet)), "paragraph")) == 2


def test_lines_that_their_writer_ended_stay_lines() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE, 400)
    sheet.lines(50, 300, ["Water board", "12 Mill Lane", "Lower Fallow"])
    assert nodes(pdf.parse(written(sheet)), "paragraph")[1] == "Water board\n12 Mill Lane\nLower Fallow"


@pytest.mark.parametrize(
    ("lines", "elsewhere", "joined"),
    [
        (["a con-", "nection is made"], "", "a connection is made"),
        (["a well-", "known case"], "", "a well-known case"),
        (["a state-of-the-", "art pump"], "", "a state-of-the-art pump"),
        (["the Anglo-", "Saxon king"], "", "the Anglo-Saxon king"),
        (["COVID-", "19 cases"], "", "COVID-19 cases"),
        (["a cast-", "iron lid"], "a cast-iron pot", "a cast-iron lid"),
        (["a non-", "stop train"], "the nonstop train", "a nonstop train"),
        (["the UNI-", "VERSITY"], "a UNIVERSITY here", "the UNIVERSITY"),
        (["price-", "determining facts"], "The price. Determining it", "price-determining facts"),
        (["a long-", "term plan"], "", "a long-term plan"),
        (["the first-", "floor rooms"], "", "the first-floor rooms"),
        (["a work-", "shop there"], "", "a workshop there"),
        (["main-", "tenance of", "it"], "", "maintenance of it"),
        (["die Wasser-", "leitung"], "die Wasser und das ist die leitung der Stadt", "die Wasserleitung"),
        (["pre-", "and post-war"], "", "pre- and post-war"),
        (["two \u2010", "three"], "", "two \u2010 three"),
        (["die Wasser\u2010", "leitung"], "", "die Wasserleitung"),
        (["水泵在", "地下室"], "", "水泵在地下室"),
        (["一 pump", "二"], "", "一 pump 二"),
        (["한국어", "문장"], "", "한국어 문장"),
    ],
)
def test_hyphens_at_line_ends_go_where_they_only_break_the_word(lines: list[str], elsewhere: str, joined: str) -> None:
    assert join(lines, [False] * len(lines), Vocabulary([*lines, elsewhere])) == joined


def test_hyphenation_in_a_file() -> None:
    sheet = Sheet()
    text = (
        "A long con|nection of main|tenance and well-known instru|ments was men|tioned in the hand|book of the board."
    )
    sheet.paragraph(50, 60, text, 140)
    assert sum(line.endswith("-") for line in wrapped(text, 140)) >= 2
    assert nodes(pdf.parse(written(sheet)), "paragraph") == [text.replace("|", "")]


def test_ligatures_are_spelled_out() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "the x x", font="F9")
    ligature = (
        "/Font << /F9 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Type /Encoding "
        "/BaseEncoding /WinAnsiEncoding /Differences [120 /fi] >> >> >>"
    )
    document = pdf.parse(written(sheet, resources=ligature).replace(b"/Font << /F1", b"/Old << /F1"))
    assert document.text == "the fi fi"


# --- columns ---------------------------------------------------------------------------------------------------------


def two_columns(by_line: bool) -> tuple[Sheet, str, str]:
    left, right = f"Left one begins. {PROSE * 2}".strip(), f"Right one begins. {PROSE * 2}".strip()
    columns = [[(50.0, line) for line in wrapped(left, 230)], [(312.0, line) for line in wrapped(right, 230)]]
    sheet = Sheet()
    sheet.text(150, 50, "A heading over both of the columns", 18)
    placed = [[(x, 90.0 + 12 * row, line) for row, (x, line) in enumerate(column)] for column in columns]
    order = [part for pair in zip(*placed, strict=False) for part in pair] if by_line else [*placed[0], *placed[1]]
    longest = max(placed, key=len)
    order += [part for part in longest if part not in order]
    for x, y, line in order:
        sheet.text(x, y, line)
    return sheet, left, right


@pytest.mark.parametrize("by_line", [False, True], ids=["drawn by column", "drawn by line"])
def test_two_columns_are_read_one_after_the_other(by_line: bool) -> None:
    sheet, left, right = two_columns(by_line)
    document = pdf.parse(written(sheet))
    assert headings(document) == [(1, "A heading over both of the columns")]
    assert nodes(document, "paragraph") == [left, right]


def test_what_crosses_the_columns_splits_them() -> None:
    sheet, _, _ = two_columns(by_line=False)
    sheet.text(
        50, 400, "This line runs over both of the columns, from the left edge of one to the right edge of the other."
    )
    y = sheet.paragraph(50, 440, "Third part. " + PROSE, 230)
    sheet.paragraph(312, 440, "Fourth part. " + PROSE, 230)
    assert y < HEIGHT
    text = pdf.parse(written(sheet)).text
    order = [text.index(mark) for mark in ("Left one", "Right one", "This line runs", "Third part", "Fourth part")]
    assert order == sorted(order)


def test_a_paragraph_goes_on_in_the_next_column_and_on_the_next_page() -> None:
    lines = wrapped(PROSE * 4, 230)
    sheets = [Sheet(), Sheet()]
    sheets[0].lines(50, 60, lines[:10])
    sheets[0].lines(312, 60, lines[10:20])
    sheets[1].lines(50, 60, lines[20:])
    document = pdf.parse(written(*sheets))
    assert nodes(document, "paragraph") == [(PROSE * 4).strip()]
    node = document.nodes[0]
    assert node.page == 1
    assert node.box is not None and node.box[2] < 300  # of the column where it begins


def test_a_long_paragraph_keeps_its_pages_from_sentence_to_sentence() -> None:
    lines = wrapped(PROSE * 24, 500)
    sheets = [Sheet(), Sheet()]
    sheets[0].lines(50, 60, lines[:40])
    sheets[1].lines(50, 60, lines[40:])
    document = pdf.parse(written(*sheets))
    assert [node.page for node in document.nodes] == [1, 2]
    assert all(text.endswith(".") for text in nodes(document, "paragraph"))
    assert " ".join(nodes(document, "paragraph")) == (PROSE * 24).strip()


# --- headings --------------------------------------------------------------------------------------------------------


def test_headings_by_size_by_bold_and_by_numbering() -> None:
    sheet = Sheet()
    sheet.text(50, 50, "Handbook of the station", 24)
    sheet.text(50, 90, "1 Pumps", 14, "F2")
    sheet.paragraph(50, 110, PROSE, 500)
    sheet.text(50, 180, "1.1 Seals", 14, "F2")
    sheet.paragraph(50, 200, PROSE, 500)
    sheet.text(50, 270, "Care of seals", 10, "F2")
    sheet.paragraph(50, 286, PROSE, 500)
    sheet.text(50, 350, "2 Valves", 14, "F2")
    sheet.paragraph(50, 370, f"It is not a heading that is bold within a line. {PROSE}", 500)
    document = pdf.parse(written(sheet))
    expected = [(1, "Handbook of the station"), (2, "1 Pumps"), (3, "1.1 Seals"), (4, "Care of seals"), (2, "2 Valves")]
    assert headings(document) == expected
    assert document.title == "Handbook of the station"


def test_the_outline_wins() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "Plain title", 10)
    sheet.paragraph(50, 90, PROSE, 500)
    sheet.text(50, 200, "Another one", 10)
    sheet.paragraph(50, 230, PROSE, 500)
    without = pdf.parse(written(sheet))
    assert headings(without) == []
    document = pdf.parse(written(sheet, outline=[("Plain title", 0), ("Another one", 0)]))
    assert headings(document) == [(1, "Plain title"), (1, "Another one")]


def test_names_below_the_title_are_no_headings() -> None:
    sheet = Sheet()
    sheet.text(200, 60, "On the care of pumps", 20)
    sheet.text(240, 90, "Ada Person", 13)
    sheet.text(240, 115, "3 May 2024", 13)
    sheet.text(50, 150, "Summary", 15)
    sheet.paragraph(50, 180, PROSE * 2, 500)
    assert headings(pdf.parse(written(sheet))) == [(1, "On the care of pumps"), (2, "Summary")]


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("Annual report", True),
        ("habibi", True),
        ("untitled", False),
        ("(anonymous)", False),
        ("Microsoft Word - plan.doc", False),
        ("report_final-v2", False),
        ("header-test-doc", False),
        ("Anglo-Saxon", True),
        ("C:\\texts\\plan", False),
        ("plan.indd", False),
        ("2024", False),
        ("", False),
    ],
)
def test_titles_that_name_nothing_are_none(title: str, kept: bool) -> None:
    assert sensible_title(title) == (title if kept else "")


def test_title_and_metadata_of_the_file() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE, 500)
    info = "/Title (Care of pumps) /Author (A. Person) /CreationDate (D:20240503101500+02'00') /Subject (unspecified)"
    document = pdf.parse(written(sheet, info=info))
    assert document.title == "Care of pumps"
    assert document.metadata == {"author": "A. Person", "created": "2024-05-03T10:15:00+02:00", "pages": "1"}


# --- running heads ---------------------------------------------------------------------------------------------------


TOLD = ("Pumps", "Valves", "Seals")


def book(pages: int, head: str = "The station, chapter 3") -> list[Sheet]:
    sheets = []
    for number in range(pages):
        sheet = Sheet()
        sheet.text(50, 40, head, 8)
        sheet.text(500, 40, str(number + 11), 8)
        sheet.paragraph(50, 90, f"{TOLD[number % 3]} are told here. {PROSE * 3}", 480)
        sheet.text(280, 770, f"- {number + 11} -", 8)
        sheets.append(sheet)
    return sheets


def test_running_heads_and_feet_are_left_out_once_a_page() -> None:
    document = pdf.parse(written(*book(3)))
    heads = [node for node in document.nodes if node.kind == "header"]
    feet = [node for node in document.nodes if node.kind == "footer"]
    assert [node.left_out for node in heads] == ["running head"] * 3
    assert [node.left_out for node in feet] == ["running foot"] * 3
    assert [node.page for node in feet] == [1, 2, 3]
    assert "The station" not in indexed(document)
    assert all(f"{told} are told here." in indexed(document) for told in TOLD)


def test_pages_that_are_copies_have_no_running_heads_for_that() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "3 May 2024")
    sheet.paragraph(50, 100, PROSE, 500)
    document = pdf.parse(written(sheet, sheet))
    assert not nodes(document, "header")
    assert indexed(document).count("3 May 2024") == 2


def test_headings_at_the_top_of_pages_are_kept() -> None:
    sheets = []
    for number in range(4):
        sheet = Sheet()
        sheet.text(50, 60, f"Chapter {number + 1}", 18)
        sheet.paragraph(50, 100, f"Number {number}. {PROSE * 2}", 500)
        sheets.append(sheet)
    assert [title for _, title in headings(pdf.parse(written(*sheets)))] == [f"Chapter {n}" for n in range(1, 5)]


def test_a_watermark_is_left_out_and_named() -> None:
    sheets = []
    for number in range(2):
        slanted = Sheet(extra=b"BT /F2 60 Tf 0.7 0.7 -0.7 0.7 150 300 Tm (DRAFT) Tj ET")
        slanted.text(50, 60, f"{number + 1} {TOLD[number]}", 14, "F2")
        slanted.paragraph(50, 90, f"{TOLD[number]} are told here. {PROSE * 6}", 480)
        sheets.append(slanted)
    document = pdf.parse(written(*sheets))
    assert [n.left_out for n in document.nodes if text_of(document, n) == "DRAFT"] == ["watermark"] * 2
    assert [title for _, title in headings(document)] == ["1 Pumps", "2 Valves"]
    assert indexed(document).count("told here") == 2


def test_a_large_word_that_text_runs_through_is_a_watermark_and_a_large_title_is_none() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "CONFIDENTIAL", 40)
    sheet.paragraph(50, 110, PROSE * 3, 480)
    title = pdf.parse(written(sheet))
    assert headings(title) == [(1, "CONFIDENTIAL")]
    sheet.text(60, 160, "COPY", 60)
    document = pdf.parse(written(sheet))
    assert [n.left_out for n in document.nodes if text_of(document, n) == "COPY"] == ["watermark"]


def test_lines_of_the_body_that_stand_on_every_page_are_kept() -> None:
    sheets = []
    for number in range(3):
        sheet = Sheet()
        sheet.paragraph(50, 60, f"Read this first. {PROSE * 4}", 480)
        sheet.text(50, 400, f"Answer {number}: {TOLD[number]}")
        sheet.text(500, 770, f"Page {number + 1}", 8)
        sheets.append(sheet)
    document = pdf.parse(written(*sheets))
    assert indexed(document).count("Read this first.") == 3
    assert [node.kind for node in document.nodes if node.left_out] == ["footer"] * 3


def test_forms_keep_what_their_pages_have_in_common() -> None:
    sheets = []
    for number in range(3):
        sheet = Sheet()
        for row, label in enumerate(
            ["Inspection of the pump", "Name of the keeper", "Seal looked at", "Lid shut", "Date"]
        ):
            sheet.text(50, 60 + 40 * row, label)
        sheet.text(300, 100, TOLD[number])
        sheets.append(sheet)
    document = pdf.parse(written(*sheets))
    assert indexed(document).count("Inspection of the pump") == 3


@pytest.mark.parametrize("title", ["Contents", "Table of Contents", "Inhaltsverzeichnis"])
def test_the_name_of_a_part_is_no_title(title: str) -> None:
    sheet = Sheet()
    sheet.text(50, 60, title, 24)
    sheet.paragraph(50, 110, PROSE, 480)
    assert pdf.parse(written(sheet)).title == ""
    assert pdf.parse(written(sheet, info=f"/Title ({title})")).title == ""


# --- lists, tables, code ---------------------------------------------------------------------------------------------


def test_lists_with_their_numbers_and_nesting() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "What to do on the first day:")
    y = 80.0
    for mark, x, text in [("1.", 60, "Shut the valve."), ("2.", 60, "Open the lid, which is heavy.")]:
        sheet.text(x, y, mark)
        sheet.text(x + 16, y, text)
        y += 14
    for text in ("Lift with two people.", "Mind the seal."):
        sheet.text(80, y, "\u2022")
        sheet.text(92, y, text)
        y += 14
    sheet.text(60, y, "3.")
    y = sheet.lines(76, y, wrapped(f"Wait for a minute. {PROSE}", 400))
    sheet.text(50, y + 10, "Then it is done, and you may go home again, as long as the lamp is out.")
    document = pdf.parse(written(sheet))
    items = [node for node in document.nodes if node.kind == "item"]
    assert [node.number for node in items] == [1, 2, None, None, 3]
    lists = [node.level for node in document.nodes if node.kind == "list"]
    assert lists == [1, 2]
    assert text_of(document, items[2]) == "Lift with two people."
    assert document.text[slice(*items[2].extent)] == "\u2022 Lift with two people."
    assert document.nodes[items[2].parent].parent == document.nodes.index(items[1])
    assert nodes(document, "paragraph")[-1].startswith("Then it is done")


def test_a_number_at_a_line_start_is_no_item() -> None:
    sheet = Sheet()
    lines = wrapped(PROSE, 300)
    sheet.lines(50, 60, [lines[0], f"3. {lines[1]}", *lines[2:]])
    document = pdf.parse(written(sheet))
    assert not nodes(document, "item")
    assert len(nodes(document, "paragraph")) == 1


TABLE = [("Part", "Made of", "Price"), ("Seal", "rubber", "4.20"), ("Lid", "cast iron", "38.00"), ("Ring", "", "1.10")]


def test_a_table_with_its_header_between_paragraphs() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE, 500)
    for row, cells in enumerate(TABLE):
        for x, cell in zip((60, 200, 320), cells, strict=True):
            sheet.text(x, 150 + 14 * row, cell)
    sheet.paragraph(50, 230, PROSE, 500)
    document = pdf.parse(written(sheet))
    assert nodes(document, "row") == [
        "Part | Made of | Price",
        "Seal | rubber | 4.20",
        "Lid | cast iron | 38.00",
        "Ring |  | 1.10",
    ]
    assert [node.header for node in document.nodes if node.kind == "row"] == [True, False, False, False]
    assert [node.kind for node in document.nodes if node.parent == -1] == ["paragraph", "table", "paragraph"]


def test_rows_whose_cells_have_several_lines() -> None:
    sheet = Sheet()
    y = 60.0
    for name, text, price in [
        ("Part", "What it does", "Price"),
        ("Seal", PROSE[:60], "4.20"),
        ("Lid", PROSE[:50], "38.00"),
    ]:
        sheet.text(60, y, name)
        sheet.text(320, y, price)
        y = sheet.lines(140, y, wrapped(text, 150)) + 6
    rows = nodes(pdf.parse(written(sheet)), "row")
    assert rows == [
        "Part | What it does | Price",
        f"Seal | {PROSE[:60].strip()} | 4.20",
        f"Lid | {PROSE[:50].strip()} | 38.00",
    ]


def test_stretched_lines_are_no_table() -> None:
    sheet = Sheet()
    for row, line in enumerate(["one neo eon noe eno", "neo one noe eno eon", "eon noe one neo eno"]):
        x = 60.0
        for word in line.split():
            sheet.text(x, 60 + 12 * row, word)
            x += width(word) + 11
    assert not nodes(pdf.parse(written(sheet)), "row")


def test_footnotes_at_the_foot_of_a_page() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE * 3, 500)
    sheet.text(50, 700, "1", 6)
    sheet.text(54, 703, "See the report of 1990, which tells it otherwise.", 8)
    document = pdf.parse(written(sheet))
    assert nodes(document, "footnote") == ["1 See the report of 1990, which tells it otherwise."]


def test_code_keeps_its_lines_and_indents() -> None:
    code = ["def f(x):", "    if x:", "        return 1", "", "    return 2"]
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE * 2, 500)
    for row, line in enumerate(code):
        if line:
            sheet.text(60 + 6 * (len(line) - len(line.lstrip())), 200 + 12 * row, line.strip(), 10, "F3")
    assert nodes(pdf.parse(written(sheet)), "code") == ["\n".join(code)]


def test_a_list_of_contents_is_left_out() -> None:
    sheet = Sheet()
    for row, title in enumerate(["Pumps", "Valves", "Seals and rings"]):
        sheet.text(50, 60 + 14 * row, f"{row + 1} {title} {'. ' * 40}{row + 3}")
    sheet.paragraph(50, 200, PROSE, 500)
    document = pdf.parse(written(sheet))
    assert {node.left_out for node in document.nodes if "Pumps" in text_of(document, node)} == {"contents list"}
    assert "Valves" not in indexed(document)


# --- pages and boxes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_a_rotated_page_reads_the_same(rotate: int) -> None:
    straight, _, _ = two_columns(by_line=False)
    turned, _, _ = two_columns(by_line=False)
    turned.rotate = rotate
    assert pdf.parse(written(turned)).text == pdf.parse(written(straight)).text


@pytest.mark.parametrize("matrix", ["0 1 -1 0 700 0", "-1 0 0 -1 600 800", "0 -1 1 0 0 700"], ids=["90", "180", "270"])
def test_text_that_is_turned_reads_the_same(matrix: str) -> None:
    straight, _, _ = two_columns(by_line=False)
    turned, _, _ = two_columns(by_line=False)
    turned.matrix = matrix
    assert pdf.parse(written(turned)).text == pdf.parse(written(straight)).text


def test_boxes_are_points_from_the_top_left_corner_of_the_page_as_shown() -> None:
    sheet = Sheet()
    sheet.text(100, 200, "Word", 20)
    straight = pdf.parse(written(sheet)).nodes[0].box
    assert straight is not None
    left, top, right, bottom = straight
    assert left == pytest.approx(100, abs=2) and right == pytest.approx(100 + width("Word", 20), abs=2)
    assert top == pytest.approx(200 - 15, abs=3) and bottom == pytest.approx(204, abs=3)
    sheet.rotate = 90
    turned = pdf.parse(written(sheet)).nodes[0].box
    assert turned is not None
    assert turned == pytest.approx((HEIGHT - bottom, left, HEIGHT - top, right), abs=0.2)


def test_text_written_another_way_comes_last_and_is_kept() -> None:
    sheet = Sheet(extra=b"BT /F1 9 Tf 0 1 -1 0 20 300 Tm (Stamp at the side) Tj ET")
    sheet.paragraph(50, 60, PROSE, 500)
    assert nodes(pdf.parse(written(sheet)), "paragraph") == [PROSE.strip(), "Stamp at the side"]


# --- right-to-left ---------------------------------------------------------------------------------------------------


def glyphs(seen: str, size: float = 10) -> list[Glyph]:
    """Glyphs as they stand on the page from left to right, each half a font size wide."""
    return [Glyph(char, index, index * size / 2, (index + 1) * size / 2) for index, char in enumerate(seen)]


@pytest.mark.parametrize(
    ("meant", "words"),
    [
        ("שלום עולם", ["שלום", "עולם"]),
        ("גרסה 2.15 כאן", ["גרסה", "2.15", "כאן"]),
        ("קובץ README.md חדש", ["קובץ", "README.md", "חדש"]),
    ],
)
def test_right_to_left_lines_are_read_in_logical_order(meant: str, words: list[str]) -> None:
    seen = " ".join(word if word[0].isascii() else word[::-1] for word in reversed(words))
    found = [text for text, _ in logical_words(glyphs(seen), 10)]
    assert " ".join(logical_order(found, found, right_to_left=True)) == meant


def test_a_glyph_for_a_whole_word_keeps_the_order_that_the_font_says() -> None:
    listed = [Glyph(char, index, 10, 40) for index, char in enumerate(reversed("حبيبي"))]
    shadow = Glyph("\u02f4", 5, 20, 30)
    assert [text for text, _ in logical_words([*listed, shadow], 10)] == ["حبيبي"]


@pytest.mark.parametrize(
    ("text", "right"), [(")שלום( כאן", "(שלום) כאן"), ("(שלום) כאן", "(שלום) כאן"), ("1) a", "1) a")]
)
def test_brackets(text: str, right: str) -> None:
    assert brackets_set_right(text) == right


# --- what cannot be read ---------------------------------------------------------------------------------------------

IMAGE = b"q 100 0 0 100 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"


def test_a_page_without_text_is_said() -> None:
    page = Sheet()
    page.paragraph(50, 60, PROSE, 500)
    document = pdf.parse(written(page, Sheet(extra=IMAGE)))
    assert (document.status, document.reason) == ("partial", "page 2 has no text (an image: needs OCR)")
    several = pdf.parse(written(Sheet(extra=IMAGE), page, *[Sheet(extra=IMAGE)] * 3))
    assert several.reason == "pages 1, 3-5 have no text (images: they need OCR)"


SCAN = b"q 600 0 0 800 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"


def test_a_scan_with_only_a_number_or_a_stamp_is_said() -> None:
    page, numbered, stamped = Sheet(), Sheet(extra=SCAN), Sheet(extra=SCAN)
    page.paragraph(50, 60, PROSE, 500)
    numbered.text(300, 770, "2 / 3")
    stamped.text(400, 60, "RECEIVED 3 May 2024")
    document = pdf.parse(written(page, numbered, stamped))
    assert document.status == "partial"
    assert document.reason == "pages 2-3 have hardly any text beside images (may need OCR)"
    assert "2 / 3" not in indexed(document)
    alone = pdf.parse(written(numbered))
    assert alone.status == "empty" and "page 1 has hardly any text beside an image (may need OCR)" in alone.reason


def test_a_page_of_text_over_an_image_is_no_scan() -> None:
    page = Sheet(extra=SCAN)
    page.paragraph(50, 60, PROSE, 500)
    assert pdf.parse(written(page)).status == "ok"


def test_a_blank_page_is_no_problem() -> None:
    page = Sheet()
    page.paragraph(50, 60, PROSE, 500)
    assert pdf.parse(written(page, Sheet())).status == "ok"


def test_no_text_at_all() -> None:
    document = pdf.parse(written(Sheet(extra=IMAGE), Sheet(extra=IMAGE)))
    assert (document.status, document.reason, document.text) == ("empty", "no text (needs OCR)", "")
    assert pdf.parse(written(Sheet())).reason == "no text in it"


def test_nothing_but_running_feet() -> None:
    sheet = Sheet(extra=IMAGE)
    sheet.text(300, 400, "4")
    sheet.text(300, 770, "4")
    document = pdf.parse(written(sheet))
    assert document.status == "ok"


def test_what_is_no_pdf_is_refused_with_what_it_is() -> None:
    with pytest.raises(BrokenDocument, match=r"not a PDF: .* begins with b'<html>"):
        pdf.parse(b"<html><body>no</body></html>")
    with pytest.raises(BrokenDocument, match="damaged or truncated PDF"):
        pdf.parse(b"%PDF-1.4\nnothing follows")


def test_a_password_is_said() -> None:
    sheet = Sheet()
    sheet.text(50, 60, "secret")
    key = "(" + "k" * 32 + ")"
    name = "(0123456789abcdef)"
    locked = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O {key} /U {key} /P -4 >> /ID [{name} {name}]"
    with pytest.raises(BrokenDocument, match="encrypted PDF: it opens only with a password"):
        pdf.parse(written(sheet, trailer=locked))


def test_a_file_cut_short_that_can_be_repaired_is_partial() -> None:
    sheet = Sheet()
    sheet.paragraph(50, 60, PROSE, 500)
    data = written(sheet)
    document = pdf.parse(data[: data.index(b"startxref")])
    assert document.status == "partial"
    assert "cut short" in document.reason
    assert PROSE.strip() in document.text


# --- properties ------------------------------------------------------------------------------------------------------

WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEF", min_size=2, max_size=9)
PLACED = st.lists(
    st.tuples(
        WORDS, st.integers(0, 4), st.integers(0, 30), st.sampled_from([8, 10, 14]), st.sampled_from(["F1", "F2", "F3"])
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda part: part[1:3],
)


@settings(max_examples=60, deadline=None)
@given(pages=st.lists(PLACED, min_size=1, max_size=3))
def test_every_word_is_in_the_document_once(pages: list[list[tuple[str, int, int, int, str]]]) -> None:
    sheets = []
    for page in pages:
        sheet = Sheet()
        for word, column, row, size, font in page:
            sheet.text(20 + column * 115, 60 + row * 24, word, size, font)
        sheets.append(sheet)
    document = pdf.parse(written(*sheets))
    check(document)
    put = Counter(word for page in pages for word, *_ in page)
    assert Counter(re.findall(r"[A-Za-z]+", document.text)) == put


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=60).map(" ".join), min_size=1, max_size=5))
def test_running_text_keeps_its_words_in_order(paragraphs: list[str]) -> None:
    sheet, y = Sheet(), 60.0
    for paragraph in paragraphs:
        y = sheet.paragraph(50, y, paragraph, 400) + 10
    text = pdf.parse(written(sheet)).text
    assert text.split() == " ".join(paragraphs).split()


# --- real files ------------------------------------------------------------------------------------------------------


def real(shared: Path, name: str) -> Document:
    document = pdf.parse((shared / "realdocs" / "pdf" / name).read_bytes())
    check(document)
    return document


def test_nothing_of_the_text_layer_is_lost(shared: Path) -> None:
    def letters(text: str) -> Counter[str]:
        return Counter(char for char in unicodedata.normalize("NFKC", text) if char.isalnum())

    for path in sorted((shared / "realdocs" / "pdf").iterdir()):
        if path.name.startswith("habibi"):
            continue  # its fonts leave glyphs without a name, for which PDFium makes up letters
        file = pdfium.PdfDocument(path.read_bytes())
        layer = "".join(page.get_textpage().get_text_range() for page in file)
        assert letters(real(shared, path.name).text) == letters(layer), path.name


def test_duplicate_pages_keep_both(shared: Path) -> None:
    document = real(shared, "fake-memo-with-duplicate-page.pdf")
    assert indexed(document).count("20,000 bottles of water") == 2
    assert document.metadata["pages"] == "2"
    assert {node.page for node in document.nodes} == {1, 2}


def test_arabic_is_in_logical_order_on_pages_turned_every_way(shared: Path) -> None:
    assert real(shared, "habibi.pdf").text == "حَبيبي habibi حَبيبي"
    document = real(shared, "habibi-rotated.pdf")
    assert nodes(document, "paragraph") == ["حَبيبي habibi حَبيبي"] * 4
    assert [node.page for node in document.nodes] == [1, 2, 3, 4]


def test_header_and_footer_of_one_page_are_apart(shared: Path) -> None:
    document = real(shared, "header-test-doc.pdf")
    assert "Here is a lovely sentences." in nodes(document, "paragraph")
    assert {"I Am A Header", "I Am A Footer"} <= set(nodes(document, "paragraph"))
    assert document.title == ""  # the file's own says its name, and "Title" says nothing


def test_latex_in_two_columns(shared: Path) -> None:
    document = real(shared, "multicolumn.pdf")
    text = document.text
    assert "two columns filled" in text
    assert "\ufb01" not in text
    assert "consectetuer adipiscing elit" in text
    assert text.index("Lorem ipsum dolor") < text.index("Nulla malesuada") < text.index("Quisque ullamcorper")
    assert [node.page for node in document.nodes if node.kind == "footer"] == [1, 2, 3]
    assert document.title == "Two-Column Document with Lorem Ipsum"
    assert headings(document)[:2] == [(1, "Two-Column Document with Lorem Ipsum"), (2, "Abstract")]
    assert "Austria | 8.9 | 83,879 | Vienna | German" in nodes(document, "row")
    assert nodes(document, "caption") == ["Table 1: EU Countries Information"]
    assert not re.search(r"\w- \w", text)


def test_paragraphs_over_four_pages_carry_their_pages(shared: Path) -> None:
    document = real(shared, "pdflatex-4-pages.pdf")
    assert document.text.startswith("Hello, here is some text without a meaning.")
    assert {node.page for node in document.nodes if node.kind == "paragraph"} == {1, 2, 3, 4}
    assert all(text.rstrip().endswith((".", "!", "?")) for text in nodes(document, "paragraph"))


def test_rotated_page(shared: Path) -> None:
    assert "Second line of text here" in real(shared, "rotated-page-90.pdf").text


@pytest.mark.parametrize("path", ["realdocs/pdf/scanned-ocr_test.pdf", "cases/files/o08_image_only.pdf"])
def test_scanned_files_are_empty_and_say_why(shared: Path, path: str) -> None:
    document = pdf.parse((shared / path).read_bytes())
    assert (document.status, document.reason, document.nodes) == ("empty", "no text (needs OCR)", ())


def test_half_scanned_file(shared: Path) -> None:
    document = pdf.parse((shared / "cases/files/o08_half_scanned.pdf").read_bytes())
    assert "The rotor is inspected on the first Monday." in indexed(document)
    assert (document.status, document.reason) == ("partial", "page 2 has no text (an image: needs OCR)")
    assert document.title == ""


def test_soft_hyphen(shared: Path) -> None:
    assert real(shared, "testOptionalHyphen.pdf").text == "optionalhyphen"


def test_text_boxes_side_by_side(shared: Path) -> None:
    lines = [f"{side} column line {number}" for side in ("Left", "Right") for number in (1, 2)]
    document = real(shared, "testPDFTwoTextBoxes.pdf")
    assert document.text.split() == " ".join(lines).split()
    assert len(nodes(document, "paragraph")) == 2


def test_attachments_are_noted(shared: Path) -> None:
    document = real(shared, "with-attachment.pdf")
    assert document.metadata["attachments"] == "image.png"
    assert document.text.startswith("Lorem ipsum dolor sit amet")
    assert "sea takimata sanctus" in document.text


def mutations(data: bytes, seed: str, count: int) -> Iterable[bytes]:
    """Truncated and bit-flipped copies, the same ones every time."""
    chance = random.Random(seed)
    for index in range(count):
        copy = bytearray(data)
        if index % 3 == 0:
            del copy[chance.randrange(len(copy)) :]
        else:
            for _ in range(chance.choice([1, 3, 20, 200])):
                copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        yield bytes(copy)


def test_damaged_files_raise_nothing_but_document_errors(shared: Path) -> None:
    seen: Counter[str] = Counter()
    for path in sorted((shared / "realdocs" / "pdf").iterdir()):
        for data in mutations(path.read_bytes(), path.name, 4):
            try:
                document = pdf.parse(data)
            except DocumentError as error:
                assert error.message
                seen["refused"] += 1
            else:
                check(document)
                document.encode()
                seen[document.status] += 1
    assert seen["refused"] and seen["ok"]


# --- the version -----------------------------------------------------------------------------------------------------


def fixtures() -> list[bytes]:
    columns, _, _ = two_columns(by_line=True)
    table = Sheet()
    table.text(50, 40, "Prices", 16)
    for row, cells in enumerate(TABLE):
        for x, cell in zip((60, 200, 320), cells, strict=True):
            table.text(x, 100 + 14 * row, cell)
    table.lines(60, 200, ["\u2022 one", "\u2022 two", "1. three", "2. four"], step=14)
    return [written(*book(3)), written(columns, table, outline=[("Prices", 1)])]


def test_the_output_has_not_changed_without_the_version() -> None:
    digests = [pdf.parse(data).digest()[:16] for data in fixtures()]
    assert (pdf.PDF_VERSION, digests) == (3, ["d833a71039e8a761", "05e455125236d722"]), (
        "output changed: raise the version"
    )


def test_the_output_is_the_same_in_threads() -> None:
    data = fixtures() * 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda d: pdf.parse(d).digest(), data)) == [pdf.parse(d).digest() for d in data]


def test_the_registry_knows_the_version() -> None:
    entry = registry.adapter("pdf")
    assert (entry.version, entry.libraries) == (pdf.PDF_VERSION, pdf.PDF_LIBRARIES)
    assert registry.adapter_for(pdf.PDF_MEDIA_TYPE) is entry
