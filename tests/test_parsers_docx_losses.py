"""Word documents: what a reader sees is in the text, in order and with its meaning; what is lost is named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from docx_files import DECLARED, cell, headings, indexed, nodes, p, run, style, styled, table, with_body, with_part

from parsers.document import Document, check
from parsers.docx import adapter as office

BEGIN, BETWEEN, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))


def case(shared: Path, name: str) -> Document:
    document = office.parse((shared / "cases" / "files" / name).read_bytes())
    check(document)
    return document


# --- symbol fonts ----------------------------------------------------------------------------------------------------


def test_ticks_of_a_symbol_font_are_read(shared: Path) -> None:
    document = case(shared, "o50_ticks.docx")
    assert nodes(document, "row") == [
        "Nr | Requirement | Level 2",
        "1.1 | Verify that the tap is shut. | ✓",
        "1.2 | Verify that the pump is cold. |",
    ]
    assert document.status == "ok"


@pytest.mark.parametrize(
    ("font", "stored", "shown"),
    [
        ("Wingdings", "F0FC", "✓"),
        ("wingdings", "00FB", "✗"),
        ("Wingdings 2", "F050", "✓"),
        ("Wingdings 2", "F0A3", "☐"),
        ("Webdings", "F061", "✓"),
        ("Wingdings", "F0E0", "→"),
        ("Symbol", "F062", "β"),
        ("Symbol", "F0A3", "≤"),
        ("Arial", "2713", "✓"),
    ],
)
def test_signs_of_symbol_fonts(font: str, stored: str, shown: str) -> None:
    sign = f'<w:r><w:sym w:font="{font}" w:char="{stored}"/></w:r>'
    assert office.parse(with_body(p("Sign: ", runs=sign))).text == f"Sign: {shown}"


def test_letters_in_a_symbol_font_are_signs() -> None:
    fonts = '<w:rFonts w:ascii="Wingdings" w:hAnsi="Wingdings"/>'
    styles = (
        '<w:style w:type="character" w:styleId="Tick"><w:name w:val="Tick"/><w:rPr>'
        '<w:rFonts w:ascii="Wingdings 2" w:hAnsi="Wingdings 2"/></w:rPr></w:style>'
    )
    body = p(runs=run("ü", fonts) + run(" done")) + p(runs=run("\uf0fb", fonts) + run(" not done"))
    body += p(runs=run("P", '<w:rStyle w:val="Tick"/>') + run(" by style"))
    assert office.parse(with_body(body, styles=styles)).text == "✓ done\n\n✗ not done\n\n✓ by style"


def test_a_sign_without_a_known_meaning_is_named() -> None:
    sign = '<w:r><w:sym w:font="Webdings" w:char="F0EE"/></w:r>' * 3
    document = office.parse(with_body(p("Sign: ", runs=sign)))
    assert document.status == "partial"
    assert document.reason == "signs of the font Webdings were left out: no known meaning"


# --- headings --------------------------------------------------------------------------------------------------------


def test_headings_carry_their_automatic_numbers(shared: Path) -> None:
    document = case(shared, "o50_numbered_headings.docx")
    assert headings(document) == [(1, "1. Limits"), (2, "1.1 Heat")]
    assert [node.title for node in document.nodes if node.kind == "heading"] == ["1. Limits", "1.1 Heat"]


def test_real_headings_with_numbers_and_without(shared: Path) -> None:
    document = office.parse((shared / "realdocs/round2/list_after_num_headers.docx").read_bytes())
    expected = [(2, "Chính sách bảo hành"), (3, "1. ĐỐI TƯỢNG ÁP DỤNG"), (2, "1. Glosario")]  # the first is in no list
    assert headings(document) == expected


def bold(text: str, *, size: int | None = None) -> str:
    sized = f'<w:sz w:val="{size}"/>' if size else ""
    return p(runs=run(text, f"<w:b/>{sized}"))


PROSE = p("The coil may get 85 degrees hot. It must never get hotter than that.")


def test_bold_lines_are_headings_where_no_style_names_any() -> None:
    body = bold("Limits", size=32) + bold("Heat") + PROSE + bold("Pressure") + PROSE + bold("Care", size=32) + PROSE
    assert headings(office.parse(with_body(body))) == [(1, "Limits"), (2, "Heat"), (2, "Pressure"), (1, "Care")]


def test_larger_lines_are_headings_too() -> None:
    large = p(runs=run("Limits", '<w:sz w:val="36"/>'))
    assert headings(office.parse(with_body(large + PROSE + PROSE))) == [(1, "Limits")]


@pytest.mark.parametrize(
    "body",
    [
        styled("Limits", "Heading1") + bold("Never") + PROSE + styled("Care", "Heading1") + PROSE,  # it has real ones
        bold("Never touch the coil.") + PROSE,  # a sentence
        bold("To the tenant") + bold("Harbour Street 9") + bold("Port Ames") + PROSE + PROSE + PROSE,  # an address
        PROSE + bold("Signed, A. Ames"),  # nothing below it
        bold("All of it is bold") + bold("Every line, from first to last") + PROSE,  # more than half
    ],
)
def test_bold_lines_that_are_no_headings(body: str) -> None:
    found = [text for _, text in headings(office.parse(with_body(body)))]
    assert found in ([], ["Limits", "Care"])


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_that_lays_out_a_page_is_written_as_its_blocks(shared: Path) -> None:
    document = case(shared, "o50_layout_table.docx")
    assert headings(document) == [(1, "Limits"), (1, "Care")]
    assert nodes(document, "paragraph") == [
        "The coil may get 85 degrees hot. It must never get hotter.",
        "Oil the bearing every ninth week. Use no grease at all.",
        "Contact: desk two",
        "reviewer: Check this",  # a comment, left out
    ]
    assert not nodes(document, "row")


def test_a_real_layout_table(shared: Path) -> None:
    document = office.parse((shared / "realdocs/round2/govdocs-017097.docx").read_bytes())
    check(document)
    assert max(map(len, nodes(document, "row"))) < 200
    found = [text for _, text in headings(document)]
    assert found[0] == "Program Support Assistant (Office Automation)"
    assert {"Major Duties:", "Benefits:", "How To Apply:", "STEP 2:", "Submitting Documents"} < {*found}


def test_headings_that_head_the_columns_of_a_table_leave_it_one() -> None:
    rows = [cell(styled("Part", "Heading3")) + cell(styled("Use", "Heading3")), cell("pump") + cell("lifts water")]
    assert nodes(office.parse(with_body(table(*rows))), "row") == ["Part | Use", "pump | lifts water"]


def test_a_cell_that_spans_rows_is_repeated_on_each(shared: Path) -> None:
    rows = nodes(case(shared, "o31_vmerge.docx"), "row")
    assert rows[0] == "Depot | Part | Pieces"
    assert all(row.startswith("Harbour | part 0") and row.count("|") == 2 for row in rows[1:41]), rows
    assert sum("Harbour" in row for row in rows) == 40


def test_a_long_text_that_spans_rows_stands_once() -> None:
    down, covered = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    rows = [cell("word " * 100, down) + cell("a"), cell("", covered) + cell("b"), cell("", covered) + cell("c")]
    found = nodes(office.parse(with_body(table(*rows))), "row")
    assert found[1:] == ["| b", "| c"]


# --- formulas --------------------------------------------------------------------------------------------------------


def test_formulas_can_be_read_in_a_line(shared: Path) -> None:
    document = case(shared, "o50_formula.docx")
    assert indexed(document) == "Energy is E=a/b c^2\nx=1\n∑_(k=0)^n k"


def t(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("xml", "text"),
    [
        (f"<m:f><m:num>{t('a+b')}</m:num><m:den>{t('2c')}</m:den></m:f>", "(a+b)/(2c)"),
        (f"<m:rad><m:deg>{t('3')}</m:deg><m:e>{t('x+1')}</m:e></m:rad>", "√[3](x+1)"),
        (f"<m:rad><m:deg/><m:e>{t('x')}</m:e></m:rad>", "√(x)"),
        (f"<m:sSubSup><m:e>{t('x')}</m:e><m:sub>{t('i')}</m:sub><m:sup>{t('n+1')}</m:sup></m:sSubSup>", "x_i^(n+1)"),
        (f"<m:nary><m:sub>{t('0')}</m:sub><m:sup>{t('∞')}</m:sup><m:e>{t('f')}</m:e></m:nary>", "∫_0^∞ f"),
        (f"<m:d><m:e>{t('a')}</m:e><m:e>{t('b')}</m:e></m:d>", "(a|b)"),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val=""/></m:dPr><m:e>{t("a")}</m:e></m:d>', "[a"),
        (f"<m:func><m:fName>{t('cos')}</m:fName><m:e>{t('x')}</m:e></m:func>", "cos x"),
        (f"<m:limLow><m:e>{t('lim')}</m:e><m:lim>{t('n→∞')}</m:lim></m:limLow>", "lim_(n→∞)"),
        (
            f"<m:m><m:mr><m:e>{t('a')}</m:e><m:e>{t('b')}</m:e></m:mr>"
            f"<m:mr><m:e>{t('c')}</m:e><m:e>{t('d+1')}</m:e></m:mr></m:m>",
            "[a b; c (d+1)]",
        ),
        (f"<m:eqArr><m:e>{t('a&amp;=1')}</m:e><m:e>{t('b&amp;=2')}</m:e></m:eqArr>", "a=1; b=2"),
        (f"<m:acc><m:e>{t('x')}</m:e></m:acc>", "x\u0302"),
        (f"<m:box><m:e>{t('boxed')}</m:e></m:box>", "boxed"),
        (f"<m:unheard><m:e>{t('kept')}</m:e></m:unheard>", "kept"),
    ],
)
def test_parts_of_formulas(xml: str, text: str) -> None:
    assert office.parse(with_body(p(runs=f"<m:oMath>{xml}</m:oMath>"))).text == text


def test_a_formula_nested_without_end_keeps_its_characters() -> None:
    deep = "<m:f><m:num>" * 100 + t("a") + f"</m:num><m:den>{t('b')}</m:den></m:f>" * 100
    text = office.parse(with_body(p(runs=f"<m:oMath>{deep}</m:oMath>"))).text
    assert (text.count("a"), text.count("b")) == (1, 100)


def test_real_formulas(shared: Path) -> None:
    text = office.parse((shared / "realdocs/round2/equations.docx").read_bytes()).text
    assert "(x+a)^n=∑_(k=0)^n (n over k)x^k a^(n-k)" in text
    assert "e^x=1+x/1!+x^2/2!+x^3/3!+…, -∞<x<∞" in text
    assert "∏_(k=1)^n A_k" in text


# --- fields, controls, tracked changes -------------------------------------------------------------------------------


def test_what_stands_in_the_code_of_a_field_is_not_shown(shared: Path) -> None:
    assert indexed(case(shared, "o50_nested_field.docx")) == "See Table 1"


def test_a_field_within_the_result_of_another_is_shown() -> None:
    inner = BEGIN + "<w:r><w:instrText>PAGE</w:instrText></w:r>" + BETWEEN + run("7") + END
    outer = BEGIN + "<w:r><w:instrText>HYPERLINK</w:instrText></w:r>" + BETWEEN + run("page ") + inner + END
    assert office.parse(with_body(p(runs=outer))).text == "page 7"


def test_the_code_of_a_field_may_run_over_paragraphs() -> None:
    code = p(runs=BEGIN + run("hidden one")) + p(runs=run("hidden two") + BETWEEN + run("shown") + END)
    assert office.parse(with_body(p("Before.") + code)).text == "Before.\n\nshown"


def test_a_field_that_is_never_closed_hides_nothing() -> None:
    assert office.parse(with_body(p(runs=BEGIN + run("kept")) + p("and this"))).text == "kept\n\nand this"


def test_prompts_that_nobody_filled_in_are_not_shown(shared: Path) -> None:
    assert indexed(case(shared, "o50_placeholder.docx")) == "☒ Agreed"


def test_a_prompt_that_is_a_cell_keeps_its_column() -> None:
    prompt = (
        f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{cell('Choose an item.')}</w:sdtContent></w:sdt>"
    )
    assert nodes(office.parse(with_body(table(cell("a") + prompt + cell("c"), cell("d") * 3))), "row")[0] == "a |  | c"


def test_a_deleted_paragraph_mark_joins_its_paragraphs(shared: Path) -> None:
    assert indexed(case(shared, "o50_deleted_mark.docx")) == "first half second half"


@pytest.mark.parametrize("mark", ["del", "moveFrom"])
def test_paragraphs_whose_marks_are_deleted_in_a_row(mark: str) -> None:
    gone = f"<w:rPr><w:{mark} w:id='1'/></w:rPr>"
    body = p("One ", gone) + p("two ", gone) + styled("three", "Heading1") + p("Text.", gone) + table(cell("a") * 2)
    document = office.parse(with_body(body))
    assert headings(document) == [(1, "One two three")]
    assert nodes(document, "paragraph") == ["Text."]


# --- code ------------------------------------------------------------------------------------------------------------

MONO = '<w:rFonts w:ascii="Consolas" w:hAnsi="Consolas"/>'


def test_code_keeps_its_lines_and_indentation() -> None:
    styles = style("SourceCode", name="Source Code")
    code = [("def f():", "SourceCode"), ("    if x:", "SourceCode"), ("        y()", "SourceCode")]
    body = p("Look:") + "".join(styled(*line) for line in code) + p() + styled("z = 1", "SourceCode") + p("After.")
    document = office.parse(with_body(body, styles=styles))
    assert nodes(document, "code") == ["def f():\n    if x:\n        y()\n\nz = 1"]
    assert nodes(document, "paragraph") == ["Look:", "After."]


def test_paragraphs_in_a_font_of_one_width_are_code() -> None:
    lines = p(runs=run("for x in y:", MONO)) + p(runs=f"<w:r><w:rPr>{MONO}</w:rPr><w:tab/><w:t>print(x)</w:t></w:r>")
    document = office.parse(with_body(PROSE + lines + PROSE))
    assert nodes(document, "code") == ["for x in y:\n\tprint(x)"]


def test_a_word_in_a_font_of_one_width_is_prose() -> None:
    body = PROSE + p(runs=run("Call ") + run("print", MONO) + run(" now."))
    assert nodes(office.parse(with_body(body)), "code") == []


def test_a_document_typed_in_a_font_of_one_width_is_prose() -> None:
    body = p(runs=run("The coil may get 85 degrees hot.", '<w:rFonts w:ascii="Courier New"/>')) * 3
    assert nodes(office.parse(with_body(body)), "code") == []


# --- what is not read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "named"), [("chart", "a chart was not read"), ("diagram", "a diagram (SmartArt) was not read")]
)
def test_drawings_whose_text_is_not_read_are_named(kind: str, named: str) -> None:
    main = "http://schemas.openxmlformats.org/drawingml/2006/main"
    graphic = f'<a:graphicData xmlns:a="{main}" uri="http://schemas.openxmlformats.org/drawingml/2006/{kind}"/>'
    document = office.parse(with_body(p("Look:", runs=f"<w:r><w:drawing>{graphic}</w:drawing></w:r>" * 2)))
    assert (document.status, document.reason) == ("partial", named)


def test_notes_and_headers_are_cleaned_too() -> None:
    mark = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    field = BEGIN + run("hidden") + BETWEEN + run("shown") + END
    note = f'<w:footnotes {DECLARED}><w:footnote w:id="2">{p(runs=field)}</w:footnote></w:footnotes>'
    data = with_part(with_body(p("A claim.", runs=mark)), "footnotes.xml", "footnotes", note)
    assert nodes(office.parse(data), "footnote") == ["shown"]


# --- real files ------------------------------------------------------------------------------------------------------


def test_a_standard_keeps_its_rows_and_headings(shared: Path) -> None:
    folder = shared / "realdocs" / "round2"
    document = office.parse((folder / "asvs-4.0.3-en.docx").read_bytes())
    check(document)
    rows = {row.split(" | ")[0].strip("* "): row for row in nodes(document, "row")}
    with (folder / "asvs-4.0.3-en.csv").open(encoding="utf-8-sig", newline="") as file:
        wanted = {line["req_id"].removeprefix("V"): line for line in csv.DictReader(file)}
    assert len(wanted.keys() - rows.keys()) <= 3, sorted(wanted.keys() - rows.keys())
    assert 120 <= len(headings(document)) <= 180
    assert "Click" not in indexed(document)
