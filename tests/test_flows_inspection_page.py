"""The page of a parsed and cut file: closed to the outside, the text on it whole and in order, every chunk marked."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from typing import Any

import pytest
from lxml import etree, html

from flows.pages.inspection import LISTED, Stretch, inspection_page, runs
from flows.pages.page import UNFIT

HOSTILE = (
    "<script>alert(1)</script> \"double\" 'single' </style><img src=x onerror=alert(2)> &lt; &#13; \ud800 \x00 </div>"
    " 😀 \u202eoverride\u202c שלום עולם \ufeff\u2028 \t tab \r\n return \r end"
)
FRONT = "\n---\ntitle: x\n---\n"
PARTS = [
    FRONT,
    "\n",
    f"# {HOSTILE}\n\nThe first part.\n\n\nIt goes on.",
    "\n\n",
    "A long sentence, ",
    "cut here.",
    "\n\n  \n",
    "a running foot",
    "\n",
    "***",
    "\n\n## Below\n\n",
    "No chunk holds the heading above.",
    "\n",
]
CHUNKED = (2, 4, 5, 11)  # the parts that are chunks


def spans() -> list[tuple[int, int]]:
    found = []
    position = 0
    for part in PARTS:
        found.append((position, position + len(part)))
        position += len(part)
    return found


def chunk(start: int, end: int, text: str = "", **values: Any) -> dict[str, Any]:
    made = {"chunk_id": f"{start:032x}", "start": start, "end": end, "text": text, "tokens": 7, "cut": ""}
    return made | {"heading_path": [HOSTILE, "Below"], "locator": f"{HOSTILE} › line 3"} | values


def node(kind: str, start: int, end: int, parent: int = -1, **values: Any) -> dict[str, Any]:
    return {"kind": kind, "start": start, "end": end, "level": 0, "parent": parent, **values}


def document(text: str, nodes: list[dict[str, Any]], **values: Any) -> dict[str, Any]:
    made = {"text": text, "title": HOSTILE, "metadata": {HOSTILE: HOSTILE}, "labels": [HOSTILE], "status": "ok"}
    return made | {"media_type": "text/markdown", "reason": "", "nodes": nodes} | values


def made() -> dict[str, Any]:
    at = spans()
    text = "".join(PARTS)
    below = at[10][0] + 2
    nodes = [
        node("front_matter", 5, 13, outer=[0, at[0][1]], left_out="front matter", line=1),
        node("section", at[2][0], len(text), level=1, title=HOSTILE, line=5),
        node("heading", at[2][0] + 2, at[2][0] + 2 + len(HOSTILE), 1, level=1, title=HOSTILE, outer=list(at[2])),
        node("paragraph", at[4][0], at[5][1], 1),
        node("footer", *at[7], 1, left_out=HOSTILE, page=2),
        node("rule", *at[9], 1),
        node("section", below, len(text), 1, level=2, title="Below"),
    ]
    cuts = {5: "sentence"}
    chunks = [chunk(*at[one], PARTS[one], tokens=one * 10, cut=cuts.get(one, "")) for one in CHUNKED]
    return {"document": document(text, nodes), "chunks": chunks}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return made()


@pytest.fixture(scope="module")
def whole(found: dict[str, Any]) -> str:
    return inspection_page(found, HOSTILE)


def elements(text: str) -> Any:
    return html.document_fromstring(text)


def shown(text: str) -> Any:
    """The element that holds the text."""
    [one] = elements(text).xpath("//div[@class='text']")
    return one


def words(text: str) -> str:
    return " ".join(elements(text).text_content().split())


def test_every_character_stands_in_the_text_once_and_in_order(found: dict[str, Any], whole: str) -> None:
    assert shown(whole).text_content() == UNFIT.sub("\ufffd", found["document"]["text"])


def test_no_hostile_text_becomes_markup(whole: str) -> None:
    assert not re.search(r"<\s*(?:script|img|iframe|object|embed|link|base|form)\b", whole, re.IGNORECASE)
    assert whole.count("</style>") == whole.count("<style>") == 1
    names = {name for one in elements(whole).iter() if isinstance(one.tag, str) for name in one.attrib}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "srcset", "action", "data", "style"}
    assert whole.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10
    assert whole.encode("utf-8").decode() == whole


def test_the_policy_allows_this_style_and_nothing_else(whole: str) -> None:
    policy = elements(whole).xpath("//head/meta[@http-equiv='Content-Security-Policy']/@content")
    [style] = re.findall(r"<style>(.*?)</style>", whole, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == [
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'none'; base-uri 'none'; form-action 'none'"
    ]
    assert not re.search(r"@import|url\(|https?://", style)


def test_the_page_is_well_formed_and_each_link_leads_somewhere_on_it(whole: str) -> None:
    root = etree.fromstring(re.sub(r"<meta\b[^>]*", r"\g<0>/", whole.removeprefix("<!DOCTYPE html>\n")))
    ids = root.xpath("//@id")
    assert len(ids) == len(set(ids))
    links = root.xpath("//@href")
    assert all(link[0] == "#" and link[1:] in ids for link in links)
    assert {"#c1", "#r1", "#s1", "#s6"} <= set(links)
    assert not root.xpath("//table[not(caption)]")
    assert not root.xpath("//th[not(@scope)]")


def test_each_chunk_is_marked_where_it_begins_and_says_what_it_is(found: dict[str, Any], whole: str) -> None:
    marks = shown(whole).xpath(".//a[@class='mark']")
    assert [mark.get("data-label") for mark in marks] == ["1", "2", "3", "4"]
    stretches = [mark.getparent() for mark in marks]
    texts = [UNFIT.sub("\ufffd", one["text"]) for one in found["chunks"]]
    assert [one.text_content() for one in stretches] == texts
    assert [one.get("class").split()[1] for one in stretches] == ["odd", "even", "odd", "even"]
    at = found["chunks"][2]
    title = marks[2].get("title")
    assert title == stretches[2].get("title")
    assert title.startswith(f"chunk 3, [{at['start']}, {at['end']}), 50 tokens\n")
    assert "› line 3" in title and "› Below" in title and title.endswith("cut: sentence")


def test_the_table_says_the_same(found: dict[str, Any], whole: str) -> None:
    rows = elements(whole).xpath("//section[@aria-labelledby='chunks']/div//tbody/tr")
    assert [row.get("id") for row in rows] == ["r1", "r2", "r3", "r4"]
    start, end = (found["chunks"][2][name] for name in ("start", "end"))
    cells = [cell.text_content() for cell in rows[2].xpath("th|td")]
    assert cells[:4] == ["3", f"[{start}, {end})", "50", "sentence"]
    assert cells[4].endswith("› line 3") and cells[5].endswith("› Below")


def test_what_is_in_no_chunk_is_set_apart_with_its_reason(whole: str) -> None:
    text = shown(whole)
    outs = [(one.get("data-label"), one.text_content()) for one in text.xpath(".//span[contains(@class, 'out')]")]
    hostile = UNFIT.sub("\ufffd", HOSTILE).replace("\r\n", "\n").replace("\r", "\n")
    assert [reason for reason, _ in outs] == ["front matter", hostile, "in no chunk"]
    assert [part for _, part in outs] == [FRONT, "a running foot", "***\n\n## Below"]
    blanks = text.xpath(".//span[starts-with(@class, 'blank')]")
    assert [one.text_content() for one in blanks] == ["\n", "\n\n", "\n\n  \n", "\n", "\n\n", "\n"]
    assert {one.get("title").split(",")[0] for one in blanks} == {"white space"}


def test_sections_are_marked_and_nest_in_the_outline(found: dict[str, Any], whole: str) -> None:
    marks = shown(whole).xpath(".//span[@class='section']")
    assert [(mark.get("id"), mark.get("data-label")) for mark in marks] == [("s1", "§1"), ("s6", "§2")]
    assert [mark.tail[:5] for mark in marks] == ["# <sc", "## Be"]
    outline = elements(whole).xpath("//ul[@class='outline']")[0]
    assert outline.xpath("./li/a/@href") == ["#s1"]
    assert outline.xpath("./li/ul/li/a/@href") == ["#s6"]


def test_the_head_counts(found: dict[str, Any], whole: str) -> None:
    text = words(whole)
    size = len(found["document"]["text"])
    assert f"{size} characters, 7 nodes, 4 chunks" in text
    assert "at least 20, median 45, at most 110" in text
    assert "1 chunk (sentence)" in text
    inside = sum(one["end"] - one["start"] for one in found["chunks"])
    assert f"in chunks {inside}, " in text
    assert f"front matter {len(FRONT)}" in text


def test_long_lists_of_nodes_end_with_a_count() -> None:
    text = "x " * (LISTED + 5)
    nodes = [node("paragraph", at, at + 1, cells="A1:B2") for at in range(0, len(text), 2)]
    rows = elements(inspection_page({"document": document(text, nodes), "chunks": []}, "a.md"))
    section = rows.xpath("//section[@aria-labelledby='nodes']")[0]
    assert len(section.xpath(".//tbody/tr")) == LISTED
    assert "and 5 more" in section.text_content()
    assert "cells A1:B2" in section.text_content()


@pytest.mark.parametrize("status", ["failed", "skipped", "empty"])
def test_a_document_without_text_says_why(status: str) -> None:
    text = inspection_page(
        {"document": document("", [], status=status, reason=HOSTILE, metadata={}), "chunks": []}, "a.pdf"
    )
    assert f"{status}: <script>" in words(text)
    assert "There is no text: <script>" in words(text)
    assert "There are no chunks: <script>" in words(text)
    assert not elements(text).xpath("//div[@class='text']")


def test_equal_values_give_an_equal_page(whole: str) -> None:
    assert inspection_page(made(), HOSTILE) == whole


def test_overlapping_chunks_are_shown_with_both_numbers() -> None:
    text = "0123456789"
    chunks = [chunk(0, 6), chunk(4, 9), chunk(5, 5), chunk(10, 10)]
    assert runs(text, chunks, []) == [
        Stretch(0, 4, (1,), (1,), ""),
        Stretch(4, 5, (1, 2), (2,), ""),
        Stretch(5, 6, (1, 2), (3,), ""),
        Stretch(6, 9, (2,), (), ""),
        Stretch(9, 10, (), (), "in no chunk"),
        Stretch(10, 10, (), (4,), ""),
    ]
    part = shown(inspection_page({"document": document(text, []), "chunks": chunks}, "a.md"))
    assert part.text_content() == text
    assert part.xpath(".//*[contains(@class, 'mark')]/@data-label") == ["1", "2", "1 + 2", "3", "1 + 2", "2 …", "4"]
    [first, *_] = part.xpath(".//span[contains(@class, 'both')]/@title")
    assert "chunk 1, [0, 6)" in first and "chunk 2, [4, 9)" in first


def test_the_innermost_reason_counts() -> None:
    nodes = [
        node("quote", 0, 9, left_out="aside"),
        node("markup", 3, 6, 0, left_out="script"),
        node("rule", 9, 10),
    ]
    found = [(run.start, run.end, run.reason) for run in runs("0123456789", [], nodes)]
    assert found == [(0, 3, "aside"), (3, 6, "script"), (6, 9, "aside"), (9, 10, "in no chunk")]


def test_the_work_grows_with_the_text() -> None:
    """Five megabytes and 10,000 chunks: far below a minute, where searching the text for each chunk would take many."""
    size, count = 500, 10_000
    text = ("x" * (size - 2) + "\n\n") * count
    chunks = [chunk(at * size, at * size + size - 2, heading_path=["a"], locator="b") for at in range(count)]
    nodes = [node("section", at * size, len(text), level=1, title="a") for at in range(0, count, 10)]
    start = time.perf_counter()
    made = inspection_page({"document": document(text, nodes), "chunks": chunks}, "a.md")
    assert time.perf_counter() - start < 30
    assert made.count('class="mark"') == count


def test_what_is_left_out_within_a_chunk_is_told_from_it() -> None:
    text = "One <!-- note --> two."
    chunks = [{"start": 0, "end": len(text)}]
    nodes = [
        {"start": 0, "end": 3},
        {"start": 4, "end": 17, "left_out": "comment"},
        {"start": 18, "end": 22},
    ]
    found = [(text[run.start : run.end], run.chunks, run.reason) for run in runs(text, chunks, nodes)]
    assert found == [("One ", (1,), ""), ("<!-- note -->", (), "comment"), (" two.", (1,), "")]
