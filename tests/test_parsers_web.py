"""HTML: rules on any text, small cases, and what must be in the output of real files."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.document import Document, Node, check, leaves, left_out
from parsers.registry import read
from parsers.web.adapter import parse


def of(html: str) -> Document:
    document = parse(html.encode())
    check(document)
    return document


def nodes(document: Document, kind: str) -> list[Node]:
    return [node for node in document.nodes if node.kind == kind]


def content(document: Document, kind: str) -> list[str]:
    return [document.text[node.start : node.end] for node in nodes(document, kind)]


def headings(document: Document) -> list[tuple[int, str | None]]:
    return [(node.level, node.title) for node in nodes(document, "heading")]


def indexed(document: Document) -> str:
    """The text of the parts that are not left out."""
    reasons = left_out(document)
    return "\n".join(
        document.text[slice(*document.nodes[index].extent)] for index in leaves(document) if reasons[index] is None
    )


# --- any text ---------------------------------------------------------------------------------------------------------

TAGS = (
    "p div span b a ul ol li dl dt dd table tr td th thead caption blockquote pre code h1 h2 h6 nav aside header "
    "footer article figure figcaption select option script style template noscript svg title math br img hr head body "
    "html font iframe textarea"
)
ATTRIBUTES = (
    "", " hidden", " href=x", " class='language-py'", " start=7", " value=3", " reversed", " alt='an image'",
    " colspan=2", " role=navigation", " role=presentation", " style='display:none'", " x='a>b'", "/",
)  # fmt: skip
tags = st.builds(
    lambda end, tag, attribute: f"<{end}{tag}{attribute}>",
    st.sampled_from(["", "", "/"]),
    st.sampled_from(TAGS.split()),
    st.sampled_from(ATTRIBUTES),
)
TEXTS = (
    "word", " ", "\n", "&amp;", "&#xD800;", "&#0;", "&nbsp;", "\u00ad", "<!-- c -->", "<![CDATA[d]]>", "<", ">", "漢",
    "\0", "\x01",
)  # fmt: skip
soup = st.lists(tags | st.sampled_from(TEXTS), max_size=40).map("".join)


@settings(max_examples=400, deadline=None)
@given(soup | st.text(st.characters(exclude_categories=["Cs"])))
def test_any_soup_makes_a_tree_that_keeps_the_rules(html: str) -> None:
    document = parse(html.encode())
    check(document)
    assert Document.decode(document.encode()) == document
    assert parse(html.encode()) == document
    assert "\0" not in document.text


WRAPPERS = "div p ul ol li blockquote table td dl dd section b h2 figure center"
trees = st.recursive(
    st.integers(0, 10**6).map(lambda number: f" w{number}w "),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag}>",
        st.sampled_from(WRAPPERS.split()),
        st.lists(inner, max_size=4),
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_every_word_that_is_shown_stands_in_the_index_once_and_in_order(html: str) -> None:
    words = [
        word
        for word in html.replace("<", " <").replace(">", "> ").split()
        if word.startswith("w") and word.endswith("w")
    ]
    document = of(f"<body>{html}</body>")
    found = re.findall(r"w\d+w", indexed(document))
    if "<table>" in html:  # what stands in a table outside its cells is put before it, as browsers do
        assert sorted(found) == sorted(words)
    else:
        assert found == words


# --- text -------------------------------------------------------------------------------------------------------------


def test_blocks_are_separated_and_white_space_is_folded() -> None:
    document = of("<p>One\n   <b>two</b>&nbsp; &amp; x&shy;y</p>three<div>four<br>five<br><br>six</div>")
    assert document.text == "One two & xy\n\nthree\n\nfour\nfive\n\nsix"
    assert [node.kind for node in document.nodes] == ["paragraph"] * 4


def test_code_keeps_its_layout_and_names_its_language() -> None:
    code = "def f():\n\n    return 1  # &lt;x>"
    document = of(f"<pre><code class='hljs language-python'>{code}\n\n</code></pre>")
    assert document.text == "def f():\n\n    return 1  # <x>"
    assert nodes(document, "code")[0].language == "python"


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<div class='highlight-rust notranslate'><div class=highlight><pre>x</pre></div></div>", "rust"),
        ("<pre class='brush:js'>x</pre>", "js"),
        ("<pre><code class='lang-c++'>x</code></pre>", "c++"),
        ("<div class='highlight-default'><pre>x</pre></div>", None),
        ("<pre>x</pre>", None),
    ],
)
def test_the_language_of_code_is_taken_from_its_classes(html: str, language: str | None) -> None:
    assert nodes(of(html), "code")[0].language == language


def test_line_breaks_in_code_may_be_elements() -> None:
    assert of("<pre>a<br>  b<span hidden>c</span></pre>").text == "a\n  b"


def test_images_stand_for_their_alternative_text() -> None:
    document = of(
        "<p>a<img alt='red  lamp'>b</p><figure><img src=x alt='A pump'><figcaption>Fig. 1: <i>the</i> pump</figcaption>"
        "</figure><p><img alt='Alone'></p><img src=decoration.png alt=''><svg><title>Drawn</title><text>no</text></svg>"
    )
    assert [(node.kind, document.text[node.start : node.end]) for node in document.nodes] == [
        ("paragraph", "a red lamp b"),
        ("figure", "A pump"),
        ("caption", "Fig. 1: the pump"),
        ("figure", "Alone"),
        ("figure", "Drawn"),
    ]


def test_a_formula_stands_once() -> None:
    html = (
        "<p>is <span class=katex><span class=katex-mathml><math><semantics><mi>x</mi><annotation encoding="
        "'application/x-tex'>x^2</annotation></semantics></math></span><span class='katex-html'>x2</span></span>.</p>"
    )
    assert of(html).text == "is x^2."


# --- headings and title -----------------------------------------------------------------------------------------------


def test_headings_open_sections_and_lose_their_permalinks() -> None:
    document = of("<h1>A <em>b</em><a class=headerlink href=#a>¶</a></h1><h3>C</h3>text<h2>D</h2>")
    assert headings(document) == [(1, "A b"), (3, "C"), (2, "D")]
    assert [node.parent for node in nodes(document, "section")] == [-1, 0, 0]


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A\n b </title><h1>C</h1>", "A b"),
        ("<title></title><h1>C</h1>", "C"),
        ("<title>Untitled</title><h1>C</h1><h1>D</h1>", "C"),
        ("<svg><title>No</title></svg><p>x", ""),
    ],
)
def test_the_title_is_the_pages_or_its_first_heading(html: str, title: str) -> None:
    assert of(html).title == title


def test_what_a_page_says_of_itself() -> None:
    document = of(
        "<html lang=de><head><meta name=Author content='A. B.'><meta name=labels content='staff, board'>"
        "<meta property='article:published_time' content=2031-02-03><meta name=generator content=x></head><p>x"
    )
    assert document.metadata == {"author": "A. B.", "date": "2031-02-03", "language": "de"}
    assert document.labels == ("board", "staff")


# --- lists ------------------------------------------------------------------------------------------------------------


def test_lists_nest_and_keep_bullets_and_numbers() -> None:
    document = of("<ol start=3><li>a<ul><li>b<p>c</p></li></ul></li><li value=9>d</li><li>e</li></ol><p>f")
    assert document.text == "3. a\n  - b\n    c\n9. d\n10. e\n\nf"
    assert [node.number for node in nodes(document, "item")] == [3, None, 9, 10]
    assert [(node.level, node.parent) for node in nodes(document, "list")] == [(1, -1), (2, 1)]
    assert content(document, "item")[1] == "b\n    c"
    assert document.text[slice(*nodes(document, "item")[3].extent)] == "10. e"


def test_a_reversed_list_counts_down_and_empty_items_count() -> None:
    document = of("<ol reversed><li>a</li><li></li><li>c</li></ol>")
    assert [node.number for node in nodes(document, "item")] == [3, 1]


def test_terms_go_with_their_descriptions() -> None:
    document = of("<dl><dt>A</dt><dt>B</dt><dd>b</dd><div><dt>C</dt><dd>c<dl><dd>d</dd></dl></dd></div></dl>")
    assert content(document, "item") == ["A", "B\n  b", "C\n  c\n  d", "d"]


def test_items_outside_lists_and_endless_lists_lose_nothing() -> None:
    assert indexed(of("<li>a<li>b")).split() == ["a", "b"]
    deep = of("<ul><li>x" * 3000)
    assert deep.text.count("x") == 3000


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_is_rows_of_cells() -> None:
    document = of(
        "<table><caption>Cap</caption><thead><tr><th colspan=2>H</th></tr></thead><tr><td rowspan=2>a<br>b</td>"
        "<td></td></tr><tr><td><p>c.</p><p>d</p><ul><li>e<li>f</ul></td></tr><tr><td></td></tr></table>"
    )
    assert document.text == "Cap\n\nH\na b |\na b | c. d; e; f"
    assert [(node.kind, node.header) for node in document.nodes] == [
        ("caption", False),
        ("table", False),
        ("row", True),
        ("row", False),
        ("row", False),
    ]


def test_a_table_within_a_cell_is_flattened() -> None:
    document = of("<table><tr><td>a<td>b</tr><tr><td><table><tr><td>c<td>d<tr><td>e</table><td>f</tr></table>g")
    assert content(document, "row") == ["a | b", "c, d; e | f"]
    assert document.text.endswith("\n\ng")


@pytest.mark.parametrize(
    "table",
    [
        "<table><tr><td><h2>Title</h2><p>x</p><pre>a\n b</pre></td><td>menu</td></tr></table>",
        "<table role=presentation><tr><td>Title</td><td>x</td></tr></table>",
        "<table><tr><td>only cell <p>x</p></td></tr></table>",
        "<table><tr><td>" + "long " * 300 + "</td><td>x</td></tr></table>",
    ],
    ids=["headings", "role", "single", "long"],
)
def test_a_table_that_lays_out_a_page_is_none(table: str) -> None:
    document = of(table)
    assert nodes(document, "row") == []
    assert "x" in content(document, "paragraph")


# --- what is left out -------------------------------------------------------------------------------------------------


def test_what_is_hidden_is_not_there() -> None:
    html = (
        "<script>s1</script><style>s2</style><template>s3</template><p hidden>s4</p>"
        "<p style='color:red;display: none'>s5</p><!-- s6 --><pre hidden>s7</pre>"
        "<datalist><option>s8</datalist><p>shown <span hidden>s9</span></p>"
        "<table><tr><td>a<span hidden>s0</span><td>b</table><p hidden=until-found>found</p>"
    )
    assert of(html).text == "shown\n\na | b\n\nfound"


def test_menus_are_kept_and_left_out_and_head_no_section() -> None:
    links = "<ul><li><a href=1>One</a><li><a href=2>Two</a></ul>"
    document = of(
        f"<header>{links}</header><nav><h2>Menu</h2>{links}</nav><main><h1>Page</h1><p>Text</p>"
        f"<aside>A note of use</aside><footer>© of the article</footer></main><aside>{links}</aside>"
        "<footer>© 2031 by nobody</footer>"
        "<footer>Call 12 34, at any hour</footer><p>Choose <select><option>red</select> now</p>"
        "<noscript>No script</noscript>"
    )
    assert headings(document) == [(1, "Page")]
    kept = indexed(document)
    assert all(part in kept for part in ["Text", "A note of use", "© of the article", "Call 12 34", "Choose", "now"])
    assert not any(part in kept for part in ["One", "Menu", "2031", "red", "No script"])
    assert document.text.count("One") == 3, "what is left out of the index is in the text"


def test_a_page_of_nothing_but_menus_is_read_whole() -> None:
    document = of("<nav><h1>Contents</h1><a href=1>One</a></nav>")
    assert document.status == "ok"
    assert headings(document) == [(1, "Contents")]


# --- XHTML, encodings -------------------------------------------------------------------------------------------------


def test_xhtml_closes_elements_in_their_own_tag() -> None:
    html = (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><script src="a.js"/><title/></head>'
        '<body><p>a<br/>b<a id="x"/></p><div/><p>c <![CDATA[<d>]]></p></body></html>'
    )
    assert of(html).text == "a\nb\n\nc <d>"


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("iso-8859-1", "cp1252"),
        ("windows-1251", "cp1251"),
        ("shift_jis", "cp932"),
        ("x-unknown", None),
        ("utf-7", None),
    ],
)
def test_a_declared_encoding_counts_where_the_bytes_do_not_say(declared: str, encoding: str | None) -> None:
    word = {"cp1251": "Привет", "cp932": "日本"}.get(encoding or "", "Größe")
    document = read("a.html", f"<meta charset={declared}><p>{word}".encode(encoding or "cp1252"))
    assert document.text == word
    assert document.metadata == {"encoding": encoding or "cp1252"}


def test_utf8_proves_itself_against_what_is_declared() -> None:
    assert of("<meta charset=iso-8859-1><p>Größe").text == "Größe"


# --- shared cases -----------------------------------------------------------------------------------------------------


def test_the_shared_cases(shared: Path) -> None:
    seen = 0
    for case in json.loads((shared / "cases/files/cases.json").read_text()):
        if not case["file"].endswith(".html"):
            continue
        document = read(case["file"], (shared / "cases/files" / case["file"]).read_bytes())
        check(document)
        kept = indexed(document)
        assert [list(heading) for heading in headings(document)] == case["headings"]
        assert all(part in kept for part in case["must"])
        places = [kept.index(part) for part in case.get("in_order", [])]
        assert places == sorted(places)
        seen += 1
    assert seen == 2


def test_o04_items_and_table(shared: Path) -> None:
    document = parse((shared / "cases/files/o04_list_div.html").read_bytes())
    assert [node.number for node in nodes(document, "item") if node.number] == [1, 2, 3, 4]
    assert content(document, "row") == ["Bolt | Nm", "M6 | 9", "M8 | 22"]


def test_o13_both_formats_give_the_same_code(shared: Path) -> None:
    html = read("a.html", (shared / "cases/files/o13_code_layout.html").read_bytes())
    markdown = read("a.md", (shared / "cases/files/o13_code_layout.md").read_bytes())
    assert content(markdown, "code")[0].startswith(content(html, "code")[0])


def real(shared: Path, name: str) -> Document:
    document = read(name, (shared / "realdocs/html" / name).read_bytes())
    check(document)
    assert document.status == "ok"
    return document


def test_boilerplate(shared: Path) -> None:
    kept = indexed(real(shared, "boilerplate.html"))
    assert "This is the real meat of the page, and" in kept
    assert "This is the end of the text." in kept


def test_example_07(shared: Path) -> None:
    names = ["China", "Japan", "Thailand", "UK", "Germany", "Bern", "Aargau", "Piedmont", "Liguria", "Africa"]
    document = real(shared, "example_07.html")
    places = [indexed(document).index(name) for name in names]
    assert places == sorted(places)
    assert max(node.level for node in nodes(document, "list")) == 4


def test_cp1252(shared: Path) -> None:
    document = real(shared, "fake-html-cp1252.html")
    (code,) = content(document, "code")
    assert "15,50 €" in code
    assert "köstlich" in code
    assert len(code.split("\n")) == 6


def test_duplicates(shared: Path) -> None:
    document = real(shared, "fake-html-with-duplicate-elements.html")
    found = nodes(document, "heading")
    assert len({node.start for node in found}) == 2
    assert {document.text[node.start : node.end] for node in found} == {"Example heading."}


def test_code_snippets(shared: Path) -> None:
    document = real(shared, "html_code_snippets.html")
    first, second = content(document, "code")
    assert "result = converter.convert(source)" in first.split("\n")
    assert second.startswith("            $ docling-tools")
    assert "use convert(), for example" in indexed(document)
    assert "$ docling-tools\n" not in document.text


def test_description_list(shared: Path) -> None:
    document = real(shared, "html_description_list.html")
    assert len(headings(document)) == 4
    assert {"Soda", "Water"} <= set(content(document, "item"))
    assert document.text.index("Detail for sub-term D.") > document.text.index("Sub-term D")


def test_nested_blocks_in_items(shared: Path) -> None:
    document = real(shared, "html_nested_block_in_list_item.html")
    assert len(headings(document)) == 3
    for part, times in {
        "Nested detail 1": 1,
        "Nested detail 2": 1,
        "Second paragraph block": 1,
        "Note text": 2,
    }.items():
        assert indexed(document).count(part) == times
    assert [node.number for node in nodes(document, "item") if node.number] == [1, 2, 3, 4, 1, 2, 3]


def test_rich_table_cells(shared: Path) -> None:
    document = real(shared, "html_rich_table_cells.html")
    assert content(document, "caption")[0] == "Basic duck facts"
    assert "Teal | Pond; Marsh; Riverbank | Fly south in winter; Build nest on ground" in content(document, "row")


def test_tables_in_tables(shared: Path) -> None:
    document = real(shared, "table_06.html")
    assert document.text.count("E4") == 1
    assert content(document, "paragraph") == ["This is the first paragraph.", "After table"]


# --- time and memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 100_000 + "x",
        "<ul><li>x" * 10_000,
        "".join(f"<font color={n}>x<p>" for n in range(3000)),
        "".join(f"<font color={n}>" for n in range(520)) + "<p>x" * 20_000,
        "<aside>" * 400 + "<p>x</p>" * 10_000,
        "<table><tr><td>x" * 5000,
        "<" * 200_000,
        '<?xml version="1.0"?>' + "<![CDATA[" * 50_000,
        "x<br>" * 50_000,
    ],
    ids=["div", "ul", "font", "fonts", "aside", "tables", "lt", "cdata", "br"],
)
def test_no_page_takes_long(html: str) -> None:
    begin = time.process_time()
    document = parse(html.encode())
    check(document)
    assert time.process_time() - begin < 8, "under a second where nothing else runs"
