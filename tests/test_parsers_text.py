"""Plain text and decoding: rules on any bytes, small cases, and what must be in the output of real files."""

from __future__ import annotations

import json
import random
import re
import textwrap
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parsers.decoding import decode, html_charset, source_charset, utf16_without_mark, xml_charset
from parsers.document import Document, check
from parsers.errors import BrokenDocument
from parsers.registry import read
from parsers.text import parse


def of(text: str, media_type: str = "text/plain") -> Document:
    document = parse(text.encode(), media_type)
    check(document)
    return document


def parts(document: Document) -> list[str]:
    return [document.text[node.start : node.end] for node in document.nodes]


# --- any text ---------------------------------------------------------------------------------------------------------

PIECES = (
    "word ", "a longer run of words that fills most of a line, and a little more of it\n", "\n", "\n\n", "  indented\n",
    "- item\n", "1. item\n", "a\tb\tc\n", "| x | y |\n", "Verse begins\n", "Title: T\n", "漢字が続く行\n", "\u00a0\n",
    "\x0c", "\x85", "\u2028", " \n \n", "\u3000", "\ufeff", "\0",
)  # fmt: skip
soup = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    soup | st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["text/plain", "text/csv", "text/x-rst"])
)
def test_the_text_is_the_file_but_for_line_ends_that_became_spaces(text: str, media_type: str) -> None:
    assume(utf16_without_mark(text.encode()) is None)
    document = parse(text.encode(), media_type)
    check(document)
    source = cleaned(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    assert len(document.text) == len(source)
    changed = {(a, b) for a, b in zip(source, document.text, strict=True) if a != b}
    assert changed <= ({("\n", " ")} if media_type == "text/plain" else set())
    assert parse(text.encode(), media_type) == document
    for node in document.nodes:
        assert node.line == source.count("\n", 0, node.start) + 1


def cleaned(text: str) -> str:
    """A text without the control characters that no text has."""
    return re.sub(r"[\x00-\x07\x0e-\x19\x7f]", "\ufffd", text)


def some_words(seed: int) -> str:
    chance = random.Random(seed)
    return " ".join("abcdefghij"[: chance.randint(3, 10)] for _ in range(chance.randint(90, 140)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**6), min_size=4, max_size=6),
    st.integers(50, 90),
    st.sampled_from(["", "    "]),
    st.booleans(),
)
def test_wrapped_prose_is_joined_whatever_its_width(seeds: list[int], width: int, margin: str, doubled: bool) -> None:
    paragraphs = [some_words(seed) for seed in seeds]
    wrapped = [textwrap.fill(one, width, initial_indent=margin, subsequent_indent=margin) for one in paragraphs]
    source = "\n\n".join(wrapped) + "\n"
    document = of(source.replace("\n", "\n\n") if doubled else source)
    assert [" ".join(part.split()) for part in parts(document)] == paragraphs
    assert "\n" not in "".join(parts(document))


# --- paragraphs -------------------------------------------------------------------------------------------------------

PROSE = textwrap.fill("The keeper of the lamp writes down each night how long it burned and who came by. " * 6, 70)


@pytest.mark.parametrize(
    "lines",
    [
        "- first of them, with some words that make it long enough for a line\n- second of them, with some words again",
        "1. Open the valve slowly, and wait until the pressure does not rise\n2. Close the valve and note it",
        "Name          Bore     Length of the whole piece     Weight of a piece\n"
        "M8            8 mm     22 mm                         14 g",
        "The ploughman homeward plods his weary way,\nAnd leaves the world to darkness and to me.\n"
        "Now fades the glimmering landscape on the sight,\nAnd all the air a solemn stillness holds,",
        "Harbour Office\n12 Quay Street\nNorthport",
        "CHAPTER ONE\n\nthe lamp",
        "def light(lamp):\n    if lamp.cold:\n        lamp.warm()\n    return lamp",
        "2031-05-04 09:12 pump 4 started after 12 seconds, pressure 2.5 bar\n2031-05-04 09:13 pump 4 stopped",
        "| a | b |\n| 1 | 2 |",
        textwrap.indent(PROSE, "> "),
        "東京は日本の首都であり世界でも有数の大都市である多くの人々がここで働き学び暮らしている。歴史のある\n寺や神社も残る。",
    ],
    ids=["items", "numbers", "columns", "verse", "address", "title", "code", "log", "table", "mail", "no-spaces"],
)
def test_lines_that_mean_something_are_kept(lines: str) -> None:
    assert lines in of(f"{PROSE}\n\n{lines}\n\n{PROSE}\n").text


def test_a_line_end_is_one_space_and_offsets_stay() -> None:
    source = f"Heading\n\n{PROSE}\n\nLast.\n"
    document = of(source)
    assert parts(document) == ["Heading", PROSE.replace("\n", " "), "Last."]
    assert [node.line for node in document.nodes] == [1, 3, PROSE.count("\n") + 5]
    assert source.index("Last.") == document.nodes[2].start


def test_a_file_with_a_blank_line_after_each_line_is_read_as_if_it_had_none() -> None:
    source = f"{PROSE}\n\n{PROSE}\n\n{PROSE}\n".replace("\n", "\n\n")
    assert [" ".join(part.split()) for part in parts(of(source))] == [" ".join(PROSE.split())] * 3


def test_single_lines_between_blank_lines_are_not_taken_for_such_a_file() -> None:
    lines = [f"{'A sentence of its own. ' * (1 + n % 4)}" for n in range(30)]
    assert len(parts(of("\n\n".join(lines)))) == 30


def test_long_lines_are_paragraphs_of_their_own_making() -> None:
    source = "\n".join("One paragraph on one line, as word processors export it. " * 5 for _ in range(4))
    assert of(source).text == source


# --- code and data ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.py", "python"), ("b.RS", "rust"), ("src/c.h", "c"), ("Makefile", "make"), ("x/Dockerfile", "dockerfile"),
        ("d.json", "json"), ("e.csv", "csv"), ("f.log", "log"), ("g.yml", "yaml"), ("h.xml", "xml"), ("i.ini", "ini"),
    ],
)  # fmt: skip
def test_code_and_data_are_one_part_with_their_language(name: str, language: str) -> None:
    source = f"\n\n  first = 1\n\n{PROSE}\n\n"
    document = read(name, source.encode())
    check(document)
    assert document.text == source
    assert [(node.kind, node.language, node.line) for node in document.nodes] == [("code", language, 3)]
    assert parts(document) == [source.strip("\n")]


def test_other_markup_keeps_its_lines() -> None:
    assert read("a.rst", f"Title\n=====\n\n{PROSE}\n".encode()).text == f"Title\n=====\n\n{PROSE}\n"


def test_the_encoding_that_source_code_names_counts() -> None:
    source = "# -*- coding: koi8-r -*-\nname = 'Привет'\n"
    document = read("a.py", source.encode("koi8-r"))
    assert document.text == source
    assert document.metadata == {"encoding": "koi8-r"}


# --- headers ----------------------------------------------------------------------------------------------------------


def test_a_header_gives_title_and_author() -> None:
    source = (
        "The Project Gutenberg EBook of X\n\nTitle: The Lamp\n       and its Keeper\n\nAuthor: A. B.\n\nTitle: other\n"
    )
    document = of(source)
    assert document.title == "The Lamp and its Keeper"
    assert document.metadata == {"author": "A. B."}
    assert document.text == source


def test_one_line_that_looks_like_a_header_is_none() -> None:
    assert of("Notes of a meeting\n\nTitle: to be found\n").title == ""


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [" \n\t\n\u00a0\n", "\ufeff", "\n" * 1000])
def test_blank_files_are_empty(text: str) -> None:
    document = of(text)
    assert (document.status, document.nodes) == ("empty", ())


# --- decoding: any bytes ----------------------------------------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(
    st.binary(max_size=200) | soup.map(str.encode),
    st.sampled_from([None, "latin-1", "utf-16", "rot13", "base64", "x\0y", "idna"]),
)
def test_bytes_become_storable_text_or_a_clear_error(data: bytes, declared: str | None) -> None:
    try:
        found = decode(data, declared)
    except BrokenDocument as error:
        assert "unknown encoding" in str(error)
        return
    found.text.encode()
    assert "\r" not in found.text
    assert "\0" not in found.text
    assert decode(data, declared) == found


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\ufeff")),
    st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]),
)
def test_a_byte_order_mark_decides(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == cleaned(text)


# --- decoding: cases --------------------------------------------------------------------------------------------------

SAMPLES = {
    "ru": "Российская империя занимала обширные земли от Балтийского моря до Тихого океана, и города росли.",
    "el": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας και η μεγαλύτερη πόλη της χώρας, με μακρά ιστορία.",
    "he": "ירושלים היא בירת ישראל והעיר הגדולה ביותר במדינה. ההיסטוריה של העיר ארוכה מאוד.",
    "ja": "東京は日本の首都であり、世界でも有数の大都市である。多くの人々がここで働き、学び、暮らしている。",
    "zh": "北京是中国的首都，有着悠久的历史。每年有很多游客来到这里参观故宫和长城。",
    "ko": "서울은 대한민국의 수도이며 가장 큰 도시이다. 한강이 도시를 가로질러 흐르고, 많은 사람들이 이곳에서 일한다.",
    "de": "Über die Brücken fließt täglich großer Verkehr – für „5 €“ gehen die Bürger spazieren.",
    "fr": "La ville a été fondée par les Gaulois, puis agrandie à l’époque romaine. Dès l’été, où êtes-vous ?",
    "pl": "Kraków jest jednym z najstarszych miast w Polsce. Położony nad Wisłą, był stolicą państwa, żeby zwiedzić.",
    "cs": "Praha je hlavní město České republiky a leží na řece Vltavě. Město má bohatou historii až do středověku.",
    "tr": "İstanbul Türkiye'nin en büyük şehridir. Şehir Boğaz'ın iki yakasına kurulmuştur ve tarihi çok eskidir.",
    "en": "It cost 5 £ at the café: “naïve” pricing, said the owner’s daughter.",
}


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        ("ru", "cp1251"), ("ru", "koi8-r"), ("ru", "cp866"), ("el", "cp1253"), ("he", "cp1255"), ("ja", "cp932"),
        ("ja", "euc_jp"), ("ja", "iso2022_jp"), ("zh", "gb18030"), ("ko", "cp949"), ("de", "cp1252"),
        ("fr", "cp1252"), ("pl", "cp1250"), ("pl", "iso8859-2"), ("cs", "cp1250"), ("tr", "cp1254"),
        ("en", "cp1252"), ("ru", "utf-16-le"), ("de", "utf-16-be"), ("en", "utf-16-le"),
    ],
)  # fmt: skip
def test_undeclared_code_pages_are_told_apart(language: str, encoding: str) -> None:
    found = decode(f"{SAMPLES[language]}\r\n".encode(encoding))
    assert found.text == SAMPLES[language] + "\n"
    assert found.encoding != "utf-8"
    assert found.problems == ()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xe9", "café"),
        (b"\x80 15", "€ 15"),
        ("Maße: 12 × 30 mm".encode("cp1252"), "Maße: 12 × 30 mm"),
        (b"Hi \xed\xa0\xbd\xed\xb8\x80", "Hi \U0001f600"),
        (b"a\rb\r\nc\n", "a\nb\nc\n"),
    ],
)
def test_short_and_odd_files_decode(data: bytes, text: str) -> None:
    assert decode(data).text == text


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("schön grün süß".encode() + b" \xff", "1 places are no valid UTF-8"),
        (b"a\0b", "1 NUL characters"),
        (b"\xff\xfea\0b", "no valid UTF-16"),
    ],
)
def test_what_had_to_be_replaced_is_said(data: bytes, problem: str) -> None:
    found = decode(data)
    assert "\ufffd" in found.text
    assert problem in found.problems[0]


@pytest.mark.parametrize(
    "data", [b"\x81\x8d\x8f\x90\x81\x8d" * 9, "Россия".encode("cp866"), "中文文本\n".encode("utf-16-le") * 3]
)
def test_what_no_encoding_explains_is_refused_rather_than_guessed(data: bytes) -> None:
    with pytest.raises(BrokenDocument, match="unknown encoding"):
        decode(data)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        (html_charset(b"<html><meta http-equiv=x content='text/html; charset=koi8-r'>"), "koi8-r"),
        (html_charset(b'<meta charset = "GB2312">'), "GB2312"),
        (html_charset(b"<?xml version='1.0' encoding='cp1251'?><html>"), "cp1251"),
        (html_charset(b"<p>charset=x"), None),
        (xml_charset(b"<a encoding='x'/>"), None),
        (source_charset(b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\n"), "latin-1"),
        (source_charset(b"\n\n# coding: latin-1"), None),
    ],
)
def test_declarations_are_found(declared: str | None, found: str | None) -> None:
    assert declared == found


# --- shared cases -----------------------------------------------------------------------------------------------------


def test_the_shared_cases(shared: Path) -> None:
    seen = 0
    for case in json.loads((shared / "cases/files/cases.json").read_text()):
        if not case["file"].endswith(".txt"):
            continue
        document = read(case["file"], (shared / "cases/files" / case["file"]).read_bytes())
        check(document)
        assert all(part in document.text for part in case.get("must", []))
        assert not any(part in document.text for part in case.get("must_not", []))
        seen += 1
    assert seen >= 4


def test_o08_blank_is_empty(shared: Path) -> None:
    assert read("a.txt", (shared / "cases/files/o08_blank.txt").read_bytes()).status == "empty"


def real(shared: Path, name: str) -> Document:
    document = read(name, (shared / "realdocs" / name).read_bytes())
    check(document)
    return document


def test_empty_and_blank_files(shared: Path) -> None:
    assert [real(shared, f"txt/{name}").status for name in ("empty.txt", "fake-text-all-whitespace.txt")] == [
        "empty"
    ] * 2


def test_smart_quotes(shared: Path) -> None:
    assert "“windows”" in real(shared, "txt/testTXT_win-1252.txt").text


def test_ebcdic(shared: Path) -> None:
    document = real(shared, "txt/english.cp500.txt")
    assert "IntelliStation POWER" in document.text
    assert document.metadata == {"encoding": "cp500"}


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("csv/csv-inconsistent-header.csv", ["a,b,c,d\na,b,c,d\na,b,c,d\na,b,c,d"]),
        ("csv/csv-too-many-columns.csv", ["a,b,c,d,e\n"]),
        ("json/arbitrary-records.json", ["GRD-3317", "Pruning Shears", "true", "false"]),
        (
            "jsonl/arbitrary-records.jsonl",
            ['{"sku": "GRD-3317", "name": "Pruning Shears", "price": 24.99, "in_stock": true}\n'],
        ),
        ("jsonl/simple.jsonl", ["These are a few of my favorite things:"]),
        ("tsv/stanley-cups-with-emoji.tsv", ["TOR\t15"]),
        ("xml/factbook.xml", ["Track &amp; Field"]),
        ("org/README.org", ["* Example Docs\n", "#+BEGIN_SRC bash\n\n   curl -O \\\n"]),
        ("rst/README-w-include.rst", ["Example Docs\n------------\n", ".. include:: file_we_dont_want_imported\n"]),
    ],
)
def test_data_and_markup_read_as_plain_text_keep_their_lines(shared: Path, name: str, claims: list[str]) -> None:
    document = real(shared, name)
    assert document.status == "ok"
    assert all(claim in document.text for claim in claims)


BOOKS = {"10162.txt": 0.95, "3623.txt": 0.95, "25717.txt": 0.9, "900001.txt": 0.85}


@pytest.mark.parametrize(("name", "share"), BOOKS.items())
def test_books_are_joined(shared: Path, name: str, share: float) -> None:
    data = (shared / "corpora/ancient-history/books" / name).read_bytes()
    source, document = data.decode(), parse(data)
    assert len(document.text) == len(source)
    parts = [node for node in document.nodes if node.kind != "section"]
    inside = sum(source[node.start : node.end].count("\n") for node in parts)
    kept = sum(document.text[node.start : node.end].count("\n") for node in parts)
    assert inside - kept >= share * inside


def test_a_large_book_is_quick_and_light(shared: Path) -> None:
    data = (shared / "corpora/ancient-history/books/10706.txt").read_bytes()
    begin = time.process_time()
    parse(data)
    assert time.process_time() - begin < 3, "5.3 MB; about 0.4 s where nothing else runs"
    tracemalloc.start()
    parse(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(data)


@pytest.mark.parametrize(
    "text",
    [" " * 500_000, "\n" * 500_000, "a\n" * 200_000, " \n" * 200_000, ("x" * 70 + "\n") * 20_000, "\t" * 500_000 + "x"],
    ids=["blanks", "line-ends", "short-lines", "blank-lines", "one-paragraph", "tabs"],
)
def test_no_text_takes_long(text: str) -> None:
    begin = time.process_time()
    of(text)
    assert time.process_time() - begin < 5, "a fraction of a second where nothing else runs"
