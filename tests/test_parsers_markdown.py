"""Markdown: rules on any text, small cases, and what must be in the output of real files."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lxml import etree, html

from parsers.decoding import utf16_without_mark
from parsers.document import Document, Node, check, leaves, left_out
from parsers.markdown.adapter import parse
from parsers.markdown.front_matter import front_matter
from parsers.registry import read


def of(text: str) -> Document:
    document = parse(text.encode())
    check(document)
    assert document.text == text
    return document


def content(document: Document, kind: str) -> list[str]:
    return [document.text[node.start : node.end] for node in document.nodes if node.kind == kind]


def nodes(document: Document, kind: str) -> list[Node]:
    return [node for node in document.nodes if node.kind == kind]


def headings(document: Document) -> list[tuple[int, str | None]]:
    return [(node.level, node.title) for node in nodes(document, "heading")]


def indexed(document: Document) -> str:
    """The text of the parts that are not left out."""
    reasons = left_out(document)
    return "\n".join(
        document.text[slice(*document.nodes[index].extent)] for index in leaves(document) if reasons[index] is None
    )


# --- any text ---------------------------------------------------------------------------------------------------------

FRAGMENTS = (
    "# ", "## ", "#", " ##", "===", "---", "...", "+++", "```", "~~~", "````py", "    ", "\t", " ", "\n", "\n\n",
    "- ", "* ", "1. ", "23) ", "> ", ">", ">> ", "|", "| a | b |", "|-|-|", ":-:", "\\", "`", "``", "<!--", "-->",
    "<!-->", "<div>", "</div>", "<script>", "</script>", "<?", "?>", "[a]: /b 'c'", "[^1]", "[^1]: ", "[x](y)",
    "![alt](i.png)", "&amp;", "&#xD800;", "{#id}", "text", "a: b", "title: T", "***", "_", "é", "漢字", "\u00a0", "$",
    "\u2028", "\x0b", "\x0c", "\u0000", "\ufeff", "\x85", "[", "]", "(", ")", "~~", "^[", "\n\n\n",
)  # fmt: skip
soup = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)


def decoded(text: str) -> str:
    """What a file with this text decodes to."""
    text = text.removeprefix("\ufeff")
    return re.sub(r"[\x00-\x07\x0e-\x19\x7f]", "\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


@settings(max_examples=400, deadline=None)
@given(soup | st.text(st.characters(exclude_categories=["Cs"])))
def test_the_text_is_the_file_and_the_tree_keeps_the_rules(text: str) -> None:
    assume(utf16_without_mark(text.encode()) is None)
    document = parse(text.encode())
    check(document)
    assert document.text == decoded(text)
    assert Document.decode(document.encode()) == document
    assert parse(text.encode()) == document
    for node in document.nodes:
        lines = [document.text.count("\n", 0, position) + 1 for position in (node.extent[0], node.start)]
        assert node.line is not None
        assert lines[0] <= node.line <= lines[1], "a line is where the part begins"


@settings(max_examples=200, deadline=None)
@given(soup, st.sampled_from(["> ", "- ", "1. ", "    ", "> - "]))
def test_it_holds_within_quotes_and_lists_too(text: str, mark: str) -> None:
    document = parse("\n".join(mark + line for line in text.split("\n")).encode())
    check(document)


@given(st.lists(st.sampled_from(["x = 1", "", "    y", "# no heading", "- no item", "> no", "~~~", "\t"]), max_size=8))
def test_a_fence_holds_exactly_the_lines_between(lines: list[str]) -> None:
    body = "\n".join(lines)
    document = of(f"````py\n{body}\n````\n" if lines else "````py\n````\n")
    (code,) = nodes(document, "code")
    assert document.text[code.start : code.end] == body
    assert code.language == "py"
    assert headings(document) == []


# --- headings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words", "marked"),
    [
        ("## Setup ##\n", "Setup", "Setup"),
        ("# C# basics #", "C# basics", "C# basics"),
        ("## F#", "F#", "F#"),
        ("  #   spaced   #  ", "spaced", "spaced"),
        ("# *a* `b_c` [d](e) ![f](g) &amp; \\* ~~h~~", "a b_c d f & * h", "*a* `b_c` [d](e) ![f](g) &amp; \\* ~~h~~"),
        ("# Title <!-- omit in toc -->", "Title", "Title"),
        ("# Title {#title .big}", "Title", "Title"),
        ("# f{x}", "f{x}", "f{x}"),
        ("Two\nlines\n===", "Two lines", "Two\nlines"),
        ("Setext  \n---", "Setext", "Setext"),
        ("# see [it][r]\n\n[r]: /x", "see it", "see [it][r]"),
    ],
)
def test_a_heading_is_its_words_without_its_marks(text: str, words: str, marked: str) -> None:
    document = of(text)
    (heading,) = nodes(document, "heading")
    assert heading.title == words
    assert document.text[heading.start : heading.end] == marked


@pytest.mark.parametrize("text", ["#No space", "####### seven", "\\# escaped", "    # code", "#", "# <!-- only -->"])
def test_what_is_no_heading_is_kept_as_text(text: str) -> None:
    document = of(text)
    assert headings(document) == []
    assert len(leaves(document)) == 1


def test_a_heading_in_a_quote_or_an_item_opens_no_section() -> None:
    document = of("> # Quoted\n\n- # Listed\n\n# Real\n")
    assert [node.title for node in nodes(document, "section")] == ["Real"]
    assert document.title == "Real"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One\n\n## Two", "One"),
        ("badge\n\n# One", "One"),
        ("## Two\n\n# One", ""),
        ("# One\n\n# Other", ""),
        ("---\ntitle: Named\n---\n# One", "Named"),
        ("---\ntitle:\n---\n# One", "One"),
        ("no heading", ""),
    ],
)
def test_the_title_is_stated_or_the_only_heading_above_all_others(text: str, title: str) -> None:
    assert of(text).title == title


# --- code -------------------------------------------------------------------------------------------------------------


def test_a_fence_closes_on_its_own_kind_and_length_only() -> None:
    document = of("~~~\n```\n# a\n~~~\n\n````\n```\n# b\n```\n````\n\n# Heading")
    assert content(document, "code") == ["```\n# a", "```\n# b\n```"]
    assert headings(document) == [(1, "Heading")]


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert content(of("text\n\n```\n# a\n\n# b\n\n\n"), "code") == ["# a\n\n# b"]


@pytest.mark.parametrize(
    ("info", "language"),
    [
        ("python", "python"),
        (" c++ x", "c++"),
        ("{.rust .numbered}", "rust"),
        ("js{1,3}", "js"),
        ("", None),
        (" ", None),
    ],
)
def test_the_language_is_the_first_word_behind_the_fence(info: str, language: str | None) -> None:
    assert nodes(of(f"```{info}\nx\n```"), "code")[0].language == language


def test_code_keeps_its_layout_in_lists_and_quotes() -> None:
    document = of("- a\n\n  ```sh\n  x\n    y\n  ```\n\n> ```\n> z\n> ```\n\n    indented\n\n      more\n")
    assert content(document, "code") == ["  x\n    y", "z", "    indented\n\n      more"]


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_lists_nest_and_items_know_their_numbers() -> None:
    document = of("3. three\n4. four\n   - inner\n     more\n\n* other\n")
    assert [(node.level, node.parent) for node in nodes(document, "list")] == [(1, -1), (2, 3), (1, -1)]
    assert [node.number for node in nodes(document, "item")] == [3, 4, None, None]
    assert content(document, "item") == ["three", "four\n   - inner\n     more", "inner\n     more", "other"]
    assert document.text[slice(*nodes(document, "item")[0].extent)] == "3. three"


def test_empty_items_lose_nothing() -> None:
    document = of("-\n- a\n-\n\n1.\n")
    assert len(nodes(document, "item")) == 4


def test_a_table_has_rows_and_its_delimiter_goes_with_the_header() -> None:
    document = of("> | a | b |\n> |---|---|\n> | 1 | 2 |\n>\n> after\n")
    rows = nodes(document, "row")
    assert [(document.text[node.start : node.end], node.header) for node in rows] == [
        ("| a | b |", True),
        ("| 1 | 2 |", False),
    ]
    assert [document.text[slice(*row.extent)] for row in rows] == ["> | a | b |\n> |---|---|", "> | 1 | 2 |\n>"]
    assert document.nodes[rows[0].parent].kind == "table"


def test_quotes_nest() -> None:
    document = of("> a\n>> b\n\nc\n")
    assert content(document, "quote") == ["a\n>> b", "b"]
    assert [node.parent for node in nodes(document, "paragraph")] == [0, 2, -1]


def test_footnotes_definitions_and_rules_are_parts_of_their_own() -> None:
    document = of("Text[^1].\n\n[^1]: The note.\n\n    Its end.\n\n[ref]: https://example.org 'T'\n\n***\n")
    assert content(document, "footnote") == ["The note.\n\n    Its end."]
    assert content(document, "markup") == ["[ref]: https://example.org 'T'"]
    assert content(document, "rule") == ["***"]


def test_comments_are_left_out_wherever_they_stand() -> None:
    text = "<!-- a -->\n\nb <!-- c --> d `<!-- e -->` \\<!-- f -->\n\n<div>\ng <!-- h --> i\n</div>\n<!-- never closed"
    document = of(text)
    kept = indexed(document)
    assert [document.text[slice(*n.extent)] for n in document.nodes if n.left_out == "comment"] == [
        "<!-- a -->",
        "<!-- c -->",
        "<!-- h -->",
    ]
    assert all(part in kept for part in ["b", "d `<!-- e -->`", "<!-- f -->", "g", "i\n</div>", "<!-- never closed"])


def test_scripts_in_markdown_are_left_out() -> None:
    assert nodes(of("<script>\nx = '# y'\n</script>\n"), "markup")[0].left_out == "script"


# --- front matter -----------------------------------------------------------------------------------------------------


def test_front_matter_is_left_out_and_its_fields_are_metadata() -> None:
    document = of(
        "---\ntitle: A manual\ntags: [pumps, valves]\nversion: 1.10\nday: 2031-02-03\nlabels: staff, board\n...\nx"
    )
    assert document.metadata == {
        "title": "A manual",
        "tags": "pumps, valves",
        "version": "1.10",
        "day": "2031-02-03",
    }
    assert document.labels == ("board", "staff")
    assert indexed(document) == "x"
    assert document.nodes[1].line == 8


@pytest.mark.parametrize(
    ("block", "values"),
    [
        ("---\n---", {}),
        ("---\ntitle: Pumps: a manual\n---", {"title": "Pumps: a manual"}),
        ("---\na:\n  b: c\n  d: [e, f]\n---", {"a.b": "c", "a.d": "e, f"}),
        ("+++\ntitle = 'T'\ndraft = true\n+++", {"title": "T", "draft": "True"}),
        ('---\na: "\\uD800x"\n---', {"a": "\\uD800x"}),
    ],
)
def test_front_matter_is_read_as_it_stands(block: str, values: dict[str, str]) -> None:
    found = front_matter(block + "\ntext")
    assert found is not None
    assert found.values == values
    assert found.outer_end == len(block)


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule, never closed.\n\nCooling\n-------\n",
        "\n---\na: b\n---\n",
        "---\nonly a sentence between rules\n---\n",
        "---\n- a\n- b\n---\n",
        " ---\na: b\n---\n",
        "----\na: b\n----\n",
        "---\na: b\n----\n",
    ],
)
def test_what_is_no_front_matter_is_text(text: str) -> None:
    assert front_matter(text) is None
    assert of(text).metadata == {}


def test_front_matter_cannot_stand_for_more_than_it_is() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"] + [
        f"{k}: &{k} [*{p},*{p},*{p},*{p}]" for p, k in zip("abcdefg", "bcdefgh", strict=True)
    ]
    found = front_matter("---\n" + "\n".join([*lines, "r: &r [*r]"]) + "\n---\n")
    assert found is not None
    assert sum(map(len, found.values.values())) < 1000


# --- shared cases -----------------------------------------------------------------------------------------------------


def cases(shared: Path) -> list[dict[str, object]]:
    return [
        case
        for case in json.loads((shared / "cases/files/cases.json").read_text())
        if str(case["file"]).endswith(".md")
    ]


def test_the_shared_cases(shared: Path) -> None:
    seen = 0
    for case in cases(shared):
        document = read(str(case["file"]), (shared / "cases/files" / str(case["file"])).read_bytes())
        check(document)
        kept = indexed(document)
        if "headings" in case:
            assert [list(heading) for heading in headings(document)] == case["headings"], case["file"]
        for part in case.get("must", []):  # type: ignore[attr-defined]
            assert part in kept, case["file"]
        seen += 1
    assert seen >= 10


def test_o01_three_code_blocks(shared: Path) -> None:
    document = parse((shared / "cases/files/o01_fences.md").read_bytes())
    assert len(nodes(document, "code")) == 3


def test_o10_equal_sentences_have_places_of_their_own(shared: Path) -> None:
    document = parse((shared / "cases/files/o10_repeats.md").read_bytes())
    starts = [node.start for node in nodes(document, "paragraph")]
    assert starts == sorted(set(starts))
    assert content(document, "paragraph").count("Check the valve.") == 2


def test_escaped_characters(shared: Path) -> None:
    document = read("a.md", (shared / "realdocs/md/escaped_characters.md").read_bytes())
    assert (2, "& < > \" '") in headings(document)
    assert "&amp;" in content(document, "code")[0]
    rows = nodes(document, "row")
    assert [row.header for row in rows] == [True] + 6 * [False]
    assert "&#124;" in document.text[rows[6].start : rows[6].end], "the text is the file: entities stay as they stand"


def test_nested(shared: Path) -> None:
    document = read("a.md", (shared / "realdocs/md/nested.md").read_bytes())
    assert headings(document) == [(1, "Nesting")]
    assert max(node.level for node in nodes(document, "list")) == 5
    assert "abc12345" in content(document, "paragraph")
    assert "Subitem 2" in indexed(document)
    assert "additional row" not in indexed(document)


def test_umlauts(shared: Path) -> None:
    document = read("a.md", (shared / "realdocs/md/umlauts-non-utf8.md").read_bytes())
    assert document.text == "## können\n\nkönnen\n\näöüß\n"
    assert headings(document) == [(2, "können")]
    assert document.metadata == {"encoding": "cp1252"}


def test_the_commonmark_specification(shared: Path) -> None:
    data = (shared / "realdocs/md/commonmark-spec.md").read_bytes()
    begin = time.process_time()
    document = read("a.md", data)
    assert time.process_time() - begin < 2, "200 KB; about 0.15 s where nothing else runs"
    assert Counter(level for level, _ in headings(document)) == {1: 7, 2: 34, 3: 2, 4: 2}
    assert [title for level, title in headings(document) if level == 1] == [
        "Introduction",
        "Preliminaries",
        "Blocks and inlines",
        "Leaf blocks",
        "Container blocks",
        "Inlines",
        "Appendix: A parsing strategy",
    ]
    fenced = [node for node in nodes(document, "code") if document.text.startswith(("```", "~~~"), node.extent[0])]
    assert len(fenced) == 708
    assert "Markdown is a plain text format for writing structured documents" in indexed(document)
    assert (document.title, document.metadata["version"]) == ("CommonMark Spec", "0.31.2")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- x\n" * 30_000,
        "> " * 300 + "\n" + "> x\n" * 2000,
        "- " * 20_000,
        "[\n" * 20_000,
        "# x" + "<!---->" * 140 + "x",
        "`" * 5000 + "a <!-- b -->" + "``` " * 2000,
        "".join(f"[r{i}]: /u\n" for i in range(3000)),
        "---\na: " + "[" * 20_000 + "\n---\n",
    ],
    ids=["comments", "quotes", "bullets", "brackets", "trailers", "ticks", "definitions", "yaml"],
)
def test_no_text_takes_long(text: str) -> None:
    begin = time.process_time()
    check(parse(text.encode()))
    assert time.process_time() - begin < 8, "under a second where nothing else runs"


def expected(text: str) -> tuple[list[tuple[int, str]], list[list[str]], int, int]:
    """Headings, lines of code blocks, items and quotes of the specification's HTML.

    A heading within a quote or an item belongs to it and opens no section, and an empty one names nothing.
    """
    try:
        tree = html.fragment_fromstring(text, create_parent="div")
    except etree.ParserError:
        return [], [], 0, 0
    found = tree.xpath(".//*[self::h1 or self::h2 or self::h3 or self::h4 or self::h5 or self::h6]")
    own = [one for one in found if one.text_content().strip() and not one.xpath("ancestor::blockquote | ancestor::li")]
    titles = [(int(one.tag[1]), " ".join(one.text_content().split())) for one in own]
    codes = [lines_of(one.text_content()) for one in tree.iter("pre")]
    return titles, codes, len(list(tree.iter("li"))), len(list(tree.iter("blockquote")))


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def test_the_examples_of_commonmark(shared: Path) -> None:
    examples = json.loads((shared / "realdocs/md/commonmark-examples.json").read_text(encoding="utf-8"))
    assert len(examples) == 655
    wrong = []
    for example in examples:
        document = of(example["markdown"])
        titles, codes, items, quotes = expected(example["html"])
        if example["example"] in (148, 171):  # a raw <pre>: markup, whose text is kept as it stands
            codes = []
        ours = (
            [(node.level, " ".join((node.title or "").split())) for node in nodes(document, "section")],
            [lines_of(text) for text in content(document, "code")],
            len(nodes(document, "item")),
            len(nodes(document, "quote")),
        )
        if ours != (titles, codes, items, quotes):
            wrong.append((example["example"], ours, (titles, codes, items, quotes)))
    assert wrong == []
