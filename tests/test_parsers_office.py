"""Word documents: rules on files made here, and what must be in the output of real ones."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import docx
import docx.document
import pytest
from docx.oxml.parser import parse_xml
from docx_files import (
    DECLARED,
    cell,
    headings,
    indexed,
    nodes,
    p,
    repacked,
    run,
    style,
    styled,
    table,
    text_of,
    with_body,
    with_part,
)

from parsers import registry
from parsers.document import Document, check
from parsers.docx import adapter as office
from parsers.docx import package
from parsers.errors import BrokenDocument, DocumentError

# --- headings and titles ---------------------------------------------------------------------------------------------


def test_headings_by_outline_level_along_the_chain_of_styles() -> None:
    styles = style("Kapitel", outline=0) + style("Kapitel2", based="Kapitel") + style("Abschnitt", outline=1)
    styles += style("Notiz", based="Kapitel", outline=9) + style("Unter", based="Heading3", name="Eigene 3")
    body = (
        styled("One", "Kapitel2") + styled("Two", "Abschnitt") + styled("A note.", "Notiz") + styled("Three", "Unter")
    )
    body += p("Four", '<w:outlineLvl w:val="3"/>') + p("Text.")
    body += p("Body after all.", '<w:pStyle w:val="Kapitel"/><w:outlineLvl w:val="9"/>')
    document = office.parse(with_body(body, styles=styles))
    assert headings(document) == [(1, "One"), (2, "Two"), (3, "Three"), (4, "Four")]
    assert nodes(document, "paragraph") == ["A note.", "Text.", "Body after all."]


def test_a_loop_of_styles_ends() -> None:
    styles = style("A1", based="B1") + style("B1", based="A1")
    assert office.parse(with_body(styled("Text.", "A1"), styles=styles)).text == "Text."


def test_a_whole_paragraph_in_a_heading_style_is_a_paragraph() -> None:
    clause = "The tenant keeps the pump in good order. " * 10
    document = office.parse(with_body(styled(clause, "Heading2") + styled("Rent", "Heading2")))
    assert headings(document) == [(2, "Rent")]
    assert clause.strip() in nodes(document, "paragraph")


@pytest.mark.parametrize(
    ("core", "expected"),
    [("Care of pumps", "Care of pumps"), ("", "The title style"), ("Word Document", "The title style")],
)
def test_the_title(core: str, expected: str) -> None:
    def prepare(document: docx.document.Document) -> None:
        document.core_properties.title = core

    body = styled("The title style", "Title") + styled("Part", "Heading1")
    document = office.parse(with_body(body, prepare=prepare))
    assert document.title == expected
    assert headings(document) == [(1, "Part")]
    assert "title" not in document.metadata


def test_no_title() -> None:
    assert office.parse(with_body(styled("Part", "Heading1") + p("Text."))).title == ""


# --- lists -----------------------------------------------------------------------------------------------------------

LEVELS = "".join(
    f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'
    for level, (form, text) in enumerate([("decimal", "%1."), ("lowerLetter", "%2)"), ("decimal", "%1.%2.%3")])
)
BULLETS = '<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="\uf0b7"/></w:lvl>'


def listed(*items: tuple[str, int, int]) -> bytes:
    """A document of items, each with its text, list and level.

    The lists 901 and 902 count together, 903 from 5, 904 has bullets, and 0 is none.
    """

    def prepare(document: docx.document.Document) -> None:
        root = document.part.numbering_part.element
        for element in list(root):
            root.remove(element)
        override = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
        xml = f'<w:abstractNum w:abstractNumId="91">{LEVELS}</w:abstractNum>'
        xml += f'<w:abstractNum w:abstractNumId="92">{BULLETS}</w:abstractNum>'
        for number, abstract, more in [(901, 91, ""), (902, 91, ""), (903, 91, override), (904, 92, "")]:
            xml += f'<w:num w:numId="{number}"><w:abstractNumId w:val="{abstract}"/>{more}</w:num>'
        for element in parse_xml(f"<w:numbering {DECLARED}>{xml}</w:numbering>"):
            root.append(element)

    body = ""
    for text, number, level in items:
        numbering = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>' if number else ""
        body += p(text, numbering)
    return with_body(body, prepare=prepare)


def test_numbers_go_on_through_other_paragraphs_and_lists() -> None:
    items = [("a", 901, 0), ("b", 901, 0), ("text", 0, 0), ("dot", 904, 0), ("c", 902, 0), ("d", 903, 0), ("e", 903, 0)]
    document = office.parse(listed(*items))
    found = [node for node in document.nodes if node.kind == "item"]
    assert [node.number for node in found] == [1, 2, None, 3, 5, 6]
    assert [document.text[slice(*node.extent)] for node in found] == [
        "1. a",
        "2. b",
        "\u2022 dot",
        "3. c",
        "5. d",
        "6. e",
    ]
    assert nodes(document, "item") == ["a", "b", "dot", "c", "d", "e"]


def test_nested_lists() -> None:
    items = [("a", 901, 0), ("aa", 901, 1), ("ab", 901, 1), ("aba", 901, 2), ("b", 901, 0), ("ba", 901, 1)]
    document = office.parse(listed(*items))
    assert document.text.splitlines() == ["1. a", "a) aa", "b) ab", "1.b.1 aba", "2. b", "a) ba"]
    assert [node.level for node in document.nodes if node.kind == "list"] == [1, 2, 3, 2]
    by_text = {
        text_of(document, node).split("\n")[0]: index
        for index, node in enumerate(document.nodes)
        if node.kind == "item"
    }
    parents = {text: document.nodes[document.nodes[index].parent].parent for text, index in by_text.items()}
    assert (parents["aa"], parents["aba"], parents["ba"]) == (by_text["a"], by_text["ab"], by_text["b"])


def test_a_list_that_is_not_defined_still_counts() -> None:
    assert office.parse(listed(("a", 77, 0), ("b", 77, 0))).text == "1. a\n2. b"


# --- tables ----------------------------------------------------------------------------------------------------------


def test_rows_with_merged_cells_keep_their_columns() -> None:
    span, down, covered = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    rows = [cell("a", down) + cell("b", span), cell("gone", covered) + cell("c") + cell("d")]
    rows += ['<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + cell("e") + cell("f")]
    assert nodes(office.parse(with_body(table(*rows))), "row") == ["a | b |", "a | c | d", "| e | f"]


def test_a_nested_table_is_told_in_its_cell_and_blocks_in_one_line() -> None:
    inner = table(cell("e") + cell("f"), cell("g") + cell("h"))
    rows = [cell("a") + cell(p("b") + inner + p("after")), cell(p("c one") + p("c two")) + cell("d")]
    document = office.parse(with_body(table(*rows)))
    assert nodes(document, "row") == ["a | b e, f g, h after", "c one c two | d"]
    assert len(nodes(document, "table")) == 1


def test_header_rows() -> None:
    said = "<w:trPr><w:tblHeader/></w:trPr>"
    bold = "<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>Name</w:t></w:r></w:p>"
    for rows, expected in [
        ([said + cell("Name") + cell("Use"), cell("pump") + cell("x")], [True, False]),
        ([cell(bold) + cell(bold), cell("pump") + cell("x")], [True, False]),
        ([cell("Name") + cell("Price"), cell("pump") + cell("4.20"), cell("lid") + cell("3.10")], [True, False, False]),
        ([cell("lid") + cell("x"), cell("pump") + cell("y")], [False, False]),
    ]:
        document = office.parse(with_body(table(*rows)))
        assert [node.header for node in document.nodes if node.kind == "row"] == expected


def test_a_frame_of_one_cell_is_no_table() -> None:
    framed = table(cell(styled("Warning", "Heading2") + p("Mind the lid.") + table(cell("a") + cell("b"))))
    document = office.parse(with_body(p("Before.") + framed))
    assert headings(document) == [(2, "Warning")]
    assert nodes(document, "row") == ["a | b"]
    assert nodes(document, "paragraph") == ["Before.", "Mind the lid."]


# --- inside paragraphs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (run("optional") + "<w:r><w:softHyphen/></w:r>" + run("hyphen"), "optionalhyphen"),
        (run("soft\u00adly"), "softly"),
        (run("x") + "<w:r><w:noBreakHyphen/></w:r>" + run("ray"), "x-ray"),
        (run("a") + "<w:r><w:tab/></w:r>" + run("b"), "a b"),
        (run("a") + "<w:r><w:br/></w:r>" + run("b"), "a\nb"),
        (run("a") + '<w:r><w:br w:type="page"/></w:r>' + run("b"), "a b"),
        (f"<w:del>{run('old ')}<w:r><w:delText>older</w:delText></w:r></w:del><w:ins>{run('new')}</w:ins>", "new"),
        (f"<w:moveFrom>{run('gone')}</w:moveFrom><w:moveTo>{run('here')}</w:moveTo>", "here"),
        (f'<w:hyperlink r:id="rId99">{run("the link")}</w:hyperlink>', "the link"),
        (f'<w:fldSimple w:instr="DATE">{run("3 May")}</w:fldSimple>', "3 May"),
        ("<w:r><w:instrText>PAGE</w:instrText></w:r>" + run("7"), "7"),
        (run("seen ") + run("unseen", "<w:vanish/>"), "seen"),
        (run("seen ", '<w:vanish w:val="0"/>') + run("too"), "seen too"),
        (f"<w:sdt><w:sdtContent>{run('in a control')}</w:sdtContent></w:sdt>", "in a control"),
        ('<w:r><w:sym w:font="Symbol" w:char="F0B7"/><w:sym w:font="Arial" w:char="00E9"/></w:r>', "•é"),
        ("<w:ruby><w:rt>" + run("kan") + "</w:rt><w:rubyBase>" + run("漢") + "</w:rubyBase></w:ruby>", "漢"),
        ("<m:oMath><m:r><m:t>E=mc</m:t></m:r></m:oMath>", "E=mc"),
    ],
)
def test_what_a_reader_sees(runs: str, text: str) -> None:
    assert office.parse(with_body(p(runs=runs))).text == text


def test_a_text_box_is_told_once_behind_its_paragraph() -> None:
    content = f"<w:txbxContent>{p('In the box.')}</w:txbxContent>"
    box = (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>{content}</wps:txbx></w:drawing>'
        f"</mc:Choice><mc:Fallback><w:pict><v:textbox>{content}</v:textbox></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )
    document = office.parse(with_body(p("Around it.", runs=box) + p("After it.")))
    assert nodes(document, "paragraph") == ["Around it.", "In the box.", "After it."]


def test_pictures_by_their_alternative_text_and_formulas() -> None:
    properties = '<wp:docPr id="1" name="p" descr="A pump in a cellar"/>'
    picture = f"<w:r><w:drawing><wp:inline>{properties}</wp:inline></w:drawing></w:r>"
    formula = "<m:oMathPara><m:oMath><m:r><m:t>a+b</m:t></m:r></m:oMath></m:oMathPara>"
    document = office.parse(with_body(p("Look:", runs=picture) + p(runs=formula)))
    assert nodes(document, "figure") == ["A pump in a cellar"]
    assert nodes(document, "formula") == ["a+b"]


def test_quotes_captions_and_code_by_their_styles() -> None:
    styles = style("HTMLPreformatted", name="HTML Preformatted")
    body = styled("So it is said.", "Quote") + styled("Figure 1", "Caption") + styled("x = 1", "HTMLPreformatted")
    document = office.parse(with_body(body, styles=styles))
    assert [node.kind for node in document.nodes] == ["quote", "paragraph", "caption", "code"]


def test_footnotes_follow_their_paragraph() -> None:
    mark = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    data = with_body(p("A claim.", runs=mark) + p("Next."))
    note = f'<w:footnote w:id="2">{p(" Said in 1990.")}</w:footnote><w:footnote w:id="0">{p("separator")}</w:footnote>'
    data = with_part(data, "footnotes.xml", "footnotes", f"<w:footnotes {DECLARED}>{note}</w:footnotes>")
    document = office.parse(data)
    assert [node.kind for node in document.nodes] == ["paragraph", "footnote", "paragraph"]
    assert nodes(document, "footnote") == ["Said in 1990."]


def test_headers_and_footers_once_and_only_those_printed() -> None:
    def prepare(document: docx.document.Document) -> None:
        section = document.sections[0]
        section.header.paragraphs[0].text = "Annual report"
        section.first_page_header.paragraphs[0].text = "Never printed"
        section.footer.paragraphs[0].text = "Confidential"
        section.different_first_page_header_footer = False
        second = document.add_section()
        second.header.is_linked_to_previous = False
        second.header.paragraphs[0].text = "Annual report"

    document = office.parse(with_body(p("Text."), prepare=prepare))
    found = [(node.kind, node.left_out, text_of(document, node)) for node in document.nodes if node.left_out]
    assert found == [("header", "running head", "Annual report"), ("footer", "running foot", "Confidential")]
    assert indexed(document) == "Text."


def test_a_list_of_contents_is_left_out() -> None:
    gallery = '<w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
    contents = f"<w:sdt>{gallery}<w:sdtContent>{p('Pumps 3')}</w:sdtContent></w:sdt>"
    body = contents + styled("Valves 4", "TOC1") + styled("Pumps", "Heading1") + p("Text.")
    document = office.parse(with_body(body, styles=style("TOC1", name="toc 1")))
    assert [node.left_out for node in document.nodes if node.left_out] == ["contents list"] * 2
    assert indexed(document) == "Pumps\nText."


def test_pages_as_word_last_set_them() -> None:
    turn = "<w:r><w:lastRenderedPageBreak/></w:r>"
    body = (
        p("One.")
        + p(runs=f"{turn}{run('Two.')}")
        + p(runs=f"{run('Two still,')}{turn}{run(' then three.')}")
        + p("Three.")
    )
    document = office.parse(with_body(body + table(cell("x") + cell("y"))))
    pages = [node.page for node in document.nodes]
    assert pages == [1, 2, 2, 3, 3, 3]
    assert office.parse(with_body(p("No breaks."))).nodes[0].page is None


# --- packages --------------------------------------------------------------------------------------------------------


def simple() -> bytes:
    return with_body(styled("Part", "Heading1") + p("Some text.") + table(cell("a") + cell("b")))


def test_the_strict_variant_reads_the_same() -> None:
    def strict(name: str, part: bytes) -> tuple[str, bytes]:
        for family in (b"wordprocessingml", b"officeDocument", b"drawingml"):
            old = b"http://schemas.openxmlformats.org/" + family + b"/2006/"
            part = part.replace(old, b"http://purl.oclc.org/ooxml/" + family + b"/")
        return name, part

    data = repacked(simple(), strict)
    assert b"purl.oclc.org" in zipfile.ZipFile(io.BytesIO(data)).read("word/document.xml")
    assert office.parse(data).digest() == office.parse(simple()).digest()


@pytest.mark.parametrize(
    "kind",
    [
        "application/vnd.ms-word.document.macroEnabled.main+xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
        "application/vnd.ms-word.template.macroEnabledTemplate.main+xml",
    ],
)
def test_templates_and_files_with_macros_read_the_same(kind: str) -> None:
    plain = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    data = repacked(simple(), lambda name, part: (name, part.replace(plain, kind.encode())))
    assert office.parse(data).digest() == office.parse(simple()).digest()


def test_no_more_is_unpacked_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_UNPACKED", 10_000_000)
    bomb = repacked(
        simple(), lambda name, part: (name, part + b" " * 20_000_000) if name == "word/settings.xml" else (name, part)
    )
    assert len(bomb) < 200_000
    with pytest.raises(BrokenDocument, match=r"unpacks to 2\d,\d{3},\d{3} bytes, more than the limit of 10,000,000"):
        office.parse(bomb)
    media = io.BytesIO(simple())
    with zipfile.ZipFile(media, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/huge.png", b"\0" * 20_000_000)  # is not unpacked at all
        archive.writestr("word/embeddings/prices.xlsx", b"PK")
    document = office.parse(media.getvalue())
    assert document.status == "ok"
    assert document.metadata["attachments"] == "prices.xlsx"


def test_a_damaged_part_is_left_out_and_said() -> None:
    data = bytearray(
        with_body(p("Text."), prepare=lambda d: setattr(d.sections[0].header.paragraphs[0], "text", "Head"))
    )
    info = zipfile.ZipFile(io.BytesIO(bytes(data))).getinfo("word/header1.xml")
    start = info.header_offset + 30 + len(info.filename)
    for index in range(start, start + info.compress_size):
        data[index] ^= 0x55
    document = office.parse(bytes(data))
    assert (document.status, document.reason) == ("partial", "word/header1.xml is damaged and was left out")
    assert document.text == "Text."
    main = zipfile.ZipFile(io.BytesIO(bytes(data))).getinfo("word/document.xml")
    data[main.header_offset + 30 + len(main.filename) + 20] ^= 0x55
    with pytest.raises(BrokenDocument, match=r"damaged: word/document\.xml cannot be unpacked"):
        office.parse(bytes(data))


def zipped(**parts: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name.replace("__", "/"), text)
    return target.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"just text", "not a Word document: no zip, it begins with b'just tex'"),
        (b"PK\x03\x04 cut", "damaged or truncated zip"),
        (simple()[:5000], "damaged or truncated zip"),
        (zipped(mimetype="application/vnd.oasis.opendocument.text"), "a zip, but not a Word document"),
        (zipped(**{"[Content_Types].xml": "<Types>spreadsheetml</Types>"}), "its content is an Excel workbook"),
        (zipped(**{"[Content_Types].xml": "<Types>wordprocessingml</Types>"}), "damaged Word document"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), "encrypted Office file: it opens only with a password"),
        (OLE + "WordDocument".encode("utf-16-le"), "a Word document of the old format"),
        (OLE, "an OLE container"),
    ],
    ids=["text", "short", "truncated", "odt", "xlsx", "no parts", "encrypted", "doc", "ole"],
)
def test_what_is_no_word_document_is_refused_with_what_it_is(data: bytes, message: str) -> None:
    with pytest.raises(BrokenDocument, match=message):
        office.parse(data)


def test_a_document_without_core_properties_has_none() -> None:
    def without(name: str, part: bytes) -> tuple[str, bytes] | None:
        if name == "_rels/.rels":
            part = re.sub(rb"<Relationship [^>]*core-properties[^>]*/>", b"", part)
        return None if name == "docProps/core.xml" else (name, part)

    document = office.parse(repacked(simple(), without))
    assert document.metadata == {}
    assert document.title == ""


def test_a_document_without_text_is_empty() -> None:
    document = office.parse(with_body(""))
    assert (document.status, document.reason) == ("empty", "no text in it")


# --- real files ------------------------------------------------------------------------------------------------------


def real(shared: Path, name: str) -> Document:
    document = office.parse((shared / "realdocs" / "docx" / name).read_bytes())
    check(document)
    return document


def test_strict_file(shared: Path) -> None:
    assert real(shared, "Strict.docx").text == "Some text"


def test_order_of_blocks(shared: Path) -> None:
    document = real(shared, "blk-inner-content.docx")
    assert [node.kind for node in document.nodes] == ["paragraph", "table", "row", "paragraph"]
    assert nodes(document, "paragraph") == ["P1", "P3"]


def test_page_header_with_a_table(shared: Path) -> None:
    document = real(shared, "docx-hdrftr.docx")
    assert indexed(document) == "Main document"
    assert document.text.count("First header para") == 1
    assert [node.kind for node in document.nodes] == ["paragraph", "header", "footer"]  # what is left out is behind


def test_nested_and_merged_cells(shared: Path) -> None:
    document = real(shared, "docx-tables.docx")
    assert len(nodes(document, "table")) == 3
    rows = nodes(document, "row")
    assert rows[2:5] == ["a | >b< | c", "d | e, f g&t, h | i", "j | k | l"]
    merged = Counter(" ".join(rows[5:]).replace("|", " ").split())
    assert merged == {"a": 2, "b": 1, "c": 1, "d": 2, "e": 1}  # two cells span two rows each


def test_comments_stay_out_of_the_paragraphs(shared: Path) -> None:
    document = real(shared, "docx_comments.docx")
    assert "This third paragraph has no comments attached to it." in nodes(document, "paragraph")
    assert "reviewer comment" not in indexed(document)
    assert [node.left_out for node in document.nodes].count("comment") == 3


def test_resumed_numbering(shared: Path) -> None:
    document = real(shared, "docx_list_resumed_numbering.docx")
    items = ["First ordered item", "Second ordered item", "bullet one", "bullet two", "Third ordered item"]
    assert nodes(document, "item") == items
    assert [node.number for node in document.nodes if node.kind == "item"] == [1, 2, None, None, 3]


def test_rows_with_missing_cells(shared: Path) -> None:
    document = real(shared, "tables-with-incomplete-rows.docx")
    tables = [index for index, node in enumerate(document.nodes) if node.kind == "table"]
    assert len(tables) == 6
    for table_index in tables:
        rows = [text_of(document, node) for node in document.nodes if node.parent == table_index]
        assert len({row.count("|") for row in rows}) == 1


def test_optional_hyphen(shared: Path) -> None:
    assert real(shared, "testOptionalHyphen.docx").text == "optionalhyphen"


def test_encrypted_and_truncated_files(shared: Path) -> None:
    with pytest.raises(BrokenDocument, match="encrypted Office file"):
        real(shared, "testWORD_protected_passtika.docx")
    with pytest.raises(BrokenDocument, match="damaged or truncated zip"):
        real(shared, "testWORD_truncated.docx")


def test_numbered_headings(shared: Path) -> None:
    document = real(shared, "unit_test_headers_numbered.docx")
    sections = [(1, "1. Section 1"), (2, "1.1. Section 1.1"), (2, "1.2. Section 1.2"), (3, "1.2.1. Section 1.2.3")]
    sections += [(1, "2. Section 2"), (3, "2.1.1. Section 2.1.1"), (2, "2.1. Section 2.1")]
    assert headings(document) == [*sections, (2, "REFERENCES")]  # the last by the outline level of its own style
    assert document.title == "Test Document"
    assert {node.page for node in document.nodes} == {1, 2}


def test_localised_heading_styles(shared: Path) -> None:
    document = office.parse((shared / "cases/files/o05_outline_styles.docx").read_bytes())
    assert headings(document) == [(1, "Wartung"), (2, "Pumpe"), (1, "Lagerung")]
    pump = next(index for index, node in enumerate(document.nodes) if node.kind == "section" and node.title == "Pumpe")
    below = [text_of(document, node) for node in document.nodes if node.parent == pump and node.kind == "paragraph"]
    assert below == ["Das Öl wird gewechselt.", "Nur für Personal."]


def mutations(data: bytes, seed: str, count: int) -> Iterable[bytes]:
    """Truncated and bit-flipped copies, the same ones every time."""
    chance = random.Random(seed)
    for index in range(count):
        copy = bytearray(data)
        if index % 4 == 0:
            del copy[chance.randrange(len(copy)) :]
        else:
            for _ in range(chance.choice([1, 3, 20])):
                copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        yield bytes(copy)


def test_damaged_files_raise_nothing_but_document_errors(shared: Path) -> None:
    seen: Counter[str] = Counter()
    for path in sorted((shared / "realdocs" / "docx").iterdir()):
        for data in mutations(path.read_bytes(), path.name, 4):
            try:
                document = office.parse(data)
            except DocumentError as error:
                assert error.message
                seen["refused"] += 1
            else:
                check(document)
                document.encode()
                seen[document.status] += 1
    assert seen["refused"] and seen["partial"]


# --- the version -----------------------------------------------------------------------------------------------------


def test_the_output_has_not_changed_without_the_version() -> None:
    items = [("a", 901, 0), ("aa", 901, 1), ("dot", 904, 0), ("b", 901, 0)]
    body = (
        styled("Title", "Title")
        + styled("Part", "Heading1")
        + p("Some text.", runs=run(" More."))
        + styled("Sub", "Heading2")
    )
    body += table(cell("Name") + cell("Price"), cell("pump") + cell("4.20")) + styled("Said.", "Quote")
    digests = [office.parse(data).digest()[:16] for data in (listed(*items), with_body(body))]
    assert (office.DOCX_VERSION, digests) == (2, ["67906513113c9fd4", "3946580f158b97aa"]), (
        "output changed: raise the version"
    )


def test_the_registry_knows_the_version() -> None:
    entry = registry.adapter("office")
    assert (entry.version, entry.libraries) == (office.DOCX_VERSION, office.DOCX_LIBRARIES)
    assert registry.adapter_for(office.DOCX_MEDIA_TYPE) is entry
