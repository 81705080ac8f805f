"""HTML: code beside line numbers, code in cells, and cells that span rows and columns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_parsers_web import content, headings, nodes, of

from parsers.registry import read
from parsers.web.adapter import parse

# --- code beside line numbers -------------------------------------------------------------------------------------

SPHINX = (
    "<div class='highlight-python'><table class=highlighttable><tr><td class=linenos><div class=linenodiv><pre>"
    "<span class=normal>1</span>\n<span class=normal>2</span></pre></div></td><td class=code><div><pre><span></span>"
    "<span class=k>def</span> f():\n    return 1\n</pre></div></td></tr></table></div>"
)
HEXO = (
    "<figure class='highlight python'><table><tr><td class=gutter><pre><span class=line>1</span><br>"
    "<span class=line>2</span><br></pre></td><td class=code><pre><span class=line>def f():</span><br>"
    "<span class=line>    return 1</span><br></pre></td></tr></table></figure>"
)
ROUGE = (
    "<div class='language-python'><table class=rouge-table><tr><td class='rouge-gutter gl'><pre class=lineno>1\n2\n"
    "</pre></td><td class=rouge-code><pre>def f():\n    return 1\n</pre></td></tr></table></div>"
)
CHROMA = (
    "<div class=highlight><table class=lntable><tr><td class=lntd><pre><code><span class=lnt>1\n</span>"
    "<span class=lnt>2\n"
    "</span></code></pre></td><td class=lntd><pre><code class=language-python><span class=line>"
    "<span class=cl>def f():\n"
    "</span></span><span class=line><span class=cl>    return 1\n</span></span></code></pre></td></tr></table></div>"
)
CONFLUENCE = (
    "<table class='syntaxhighlighter python'><tr><td class=gutter><div class='line number1'>1</div>"
    "<div class=line>2</div>"
    "</td><td class=code><div class=container><div class=line><code>def</code> <code>f():</code></div><div class=line>"
    "<code>&nbsp;&nbsp;&nbsp;&nbsp;</code>return 1</div></div></td></tr></table>"
)
GITHUB = (
    "<table class='highlight' data-tab-size=4><tr><td class='blob-num' data-line-number=1></td><td class='blob-code'>"
    "def f():</td></tr><tr><td class='blob-num' data-line-number=2></td>"
    "<td class='blob-code'>    return 1</td></tr></table>"
)
HLJS = (
    "<pre><code class=language-python><table class=hljs-ln><tr><td class='hljs-ln-line hljs-ln-numbers' "
    "data-line-number=1>1</td><td class=hljs-ln-code>def f():</td></tr><tr><td class=hljs-ln-numbers>2</td>"
    "<td class=hljs-ln-code>    return <span class='token number'>1</span></td></tr></table></code></pre>"
)
PRETTIFY = "<pre class='prettyprint lang-python'><ol class=linenums><li>def f():</li><li>    return 1</li></ol></pre>"
PRISM = (
    "<pre class='line-numbers language-python'><code>def f():\n    return 1"
    "<span aria-hidden=true class=line-numbers-rows>"
    "<span>1</span><span>2</span></span></code></pre>"
)
INLINE = (
    "<pre class='highlight-python'><span class=linenos>1</span>def f():\n<span class=linenos>2</span>    return 1</pre>"
)
SHIKI = (
    "<pre data-language=python><code><span class=line>def f():</span><span class=line>    return 1</span></code>"
    "<button>Copy</button></pre>"
)
BARE = (  # no classes at all: the numbers count the lines
    "<table><tr><td><pre>1\n2</pre></td><td><pre class=lang-python>def f():\n    return 1</pre></td></tr></table>"
)
ROWS = (
    "<table class=lang-python><tr><td>7</td><td><code>def f():</code></td></tr><tr><td>8</td><td>"
    "<code>    return 1</code>"
    "</td></tr></table>"
)
LISTINGS = {
    "sphinx": SPHINX,
    "hexo": HEXO,
    "rouge": ROUGE,
    "chroma": CHROMA,
    "confluence": CONFLUENCE,
    "github": GITHUB,
    "hljs": HLJS,
    "prettify": PRETTIFY,
    "prism": PRISM,
    "inline": INLINE,
    "shiki": SHIKI,
    "bare": BARE,
    "rows": ROWS,
}


@pytest.mark.parametrize("name", LISTINGS)
def test_code_beside_line_numbers_is_one_block_of_code(name: str) -> None:
    document = of(f"<p>Before</p>{LISTINGS[name]}<p>After</p>")
    assert content(document, "code") == ["def f():\n    return 1"]
    assert nodes(document, "row") == []
    assert document.text == "Before\n\ndef f():\n    return 1\n\nAfter"
    assert nodes(document, "code")[0].language == ("python" if name not in ("github",) else None)


@pytest.mark.parametrize(
    ("html", "rows"),
    [
        (
            "<tr><td>1</td><td><pre>x = 1</pre></td></tr><tr><td>5</td><td><pre>y</pre></td></tr>",
            ["1 | x = 1", "5 | y"],
        ),
        ("<tr><td>1</td><td>pumps</td></tr><tr><td>2</td><td>hoses</td></tr>", ["1 | pumps", "2 | hoses"]),
        ("<tr><td>1</td><td><code>x</code> is set</td></tr><tr><td>2</td><td><code>y</code></td></tr>", None),
        ("<tr><td class=line-number>4711</td><td class=price>3</td></tr><tr><td>1</td><td>2</td></tr>", None),
        ("<tr><th>No.</th><th>Code</th></tr><tr><td>1</td><td><code>a</code></td></tr>", ["No. | Code", "1 | a"]),
    ],
    ids=["steps", "data", "prose", "class", "header"],
)
def test_a_table_with_a_numbered_column_stays_a_table(html: str, rows: list[str] | None) -> None:
    document = of(f"<table>{html}</table>")
    assert nodes(document, "code") == []
    assert content(document, "row") == (rows or content(document, "row"))
    assert len(nodes(document, "row")) == 2


def test_numbers_in_code_and_in_prose_stay() -> None:
    document = of(
        "<pre>x = <span class='token number'>3</span> + <span class=mi>4</span></pre><p>At "
        "<span class=number>85</span> C"
    )
    assert document.text == "x = 3 + 4\n\nAt 85 C"


def test_an_empty_line_of_code_stays_where_its_line_is_an_element() -> None:
    assert of("<pre><ol><li>a</li><li></li><li>b</li></ol></pre>").text == "a\n\nb"
    assert of("<pre><div>a</div>\n<div>b\n</div><div><br></div><div>c</div></pre>").text == "a\nb\n\nc"


def test_code_in_a_cell_keeps_its_lines() -> None:
    document = of(
        "<table><tr><th>a<th>b<th>c</tr><tr><td>Do this:<pre>  x\n    y\n</pre>then<p>z</p><td><pre>one"
        "</pre><td>c</tr></table>"
    )
    assert content(document, "row") == ["a | b | c", "Do this:\nx\n  y\nthen; z | one | c"]


def test_o30(shared: Path) -> None:
    files = shared / "cases/files"
    document = parse((files / "o30_code_table.html").read_bytes())
    (code,) = content(document, "code")
    assert code == "def open_tap(level):\n    if level > 3:\n        raise Overflow(level)"
    assert nodes(document, "code")[0].language == "python"
    assert not any(line.strip().isdigit() for line in document.text.split("\n"))
    document = parse((files / "o30_pre_in_cell.html").read_bytes())
    assert content(document, "row") == ["Option | Example", "retry | retry:\n  times: 3\n  pause: 5s"]


# --- spans ------------------------------------------------------------------------------------------------------------


def rows(html: str) -> list[str]:
    return content(of(f"<table>{html}</table>"), "row")


def test_o31(shared: Path) -> None:
    document = parse((shared / "cases/files/o31_rowspan.html").read_bytes())
    assert content(document, "row") == [
        "Depot | Part | Pieces",
        "Harbour | hose | 14",
        "Harbour | valve | 9",
        "Harbour | gasket | 120",
        "Hilltop | none kept | none kept",
        "Mill | hose | 3",
    ]


def test_header_rows_span_too() -> None:
    found = rows(
        "<thead><tr><th rowspan=2>Depot<th colspan=2>Count</tr><tr><th>net<th>gross</tr></thead><tr><td>A"
        "<td>1<td>2</tr>"
    )
    assert found == ["Depot | Count | Count", "Depot | net | gross", "A | 1 | 2"]


def test_a_cell_spans_rows_and_columns_at_once() -> None:
    assert rows("<tr><td>a<td colspan=2 rowspan=2>X<td>b<tr><td>c<td>d<tr><td>e<td>f<td>g<td>h") == [
        "a | X | X | b",
        "c | X | X | d",
        "e | f | g | h",
    ]


def test_a_title_across_the_table_stands_once() -> None:
    assert rows("<tr><td>a<td>b<td>c<tr><td colspan=3>Second part<tr><td>d<td>e<td>f") == [
        "a | b | c",
        "Second part",
        "d | e | f",
    ]


@pytest.mark.parametrize("span", ["0", "65534", "9999999999", "3"])
def test_a_span_ends_with_its_group_of_rows(span: str) -> None:
    assert rows(
        f"<tbody><tr><td rowspan={span}>A<td>1<tr><td>2</tbody><tbody><tr><td>B<td>3<tr><td>C<td>4</tbody>"
    ) == [
        "A | 1",
        "A | 2",
        "B | 3",
        "C | 4",
    ]


@pytest.mark.parametrize("span", ["-3", "x", "", "1.9", "0"])
def test_spans_that_say_nothing_are_one(span: str) -> None:
    assert rows(f"<tr><td colspan='{span}'>a<td>b<tr><td>c<td>d") == ["a | b", "c | d"]


def test_cells_that_overlap_keep_their_texts_and_gaps_keep_columns() -> None:
    assert rows("<tr><td>a<td rowspan=2>b<td>c<tr><td colspan=2>d<td>e<tr><td>f<td>g<td>h") == [
        "a | b | c",
        "d | d | e",
        "f | g | h",
    ]
    assert rows("<tr><td>a<td>b<td rowspan=2>c<tr><td>d</tr>") == ["a | b | c", "d |  | c"]


def test_a_row_without_cells_of_its_own_moves_the_spans_on() -> None:
    assert rows("<tr><td rowspan=2>a<td>b<tr></tr><tr><td>c<td>d") == ["a | b", "c | d"]


def test_spans_in_a_table_within_a_cell_are_its_own() -> None:
    assert rows("<tr><td rowspan=2>a<td><table><tr><td rowspan=5 colspan=5>x<td>y</table><tr><td>b") == [
        "a | x, y",
        "a | b",
    ]


def test_a_long_cell_is_not_repeated_and_keeps_its_columns() -> None:
    text = "word " * 100
    assert rows(f"<tr><th>h<th>i<tr><td rowspan=2>{text}<td>b<tr><td>c") == ["h | i", f"{text.strip()} | b", "| c"]


def test_a_tick_alone_in_a_cell_is_a_sign() -> None:
    assert rows(
        "<tr><th>Part<th>tested<th>sold<tr><td>hose<td><i class='material-icons'>check</i><td>"
        "<i class='fa fa-times' aria-hidden=true></i><tr><td>valve<td><input type=checkbox checked><td>"
        "<input type=checkbox>"
    ) == ["Part | tested | sold", "hose | ✓ | ✗", "valve | ☑ | ☐"]


CELLS = st.builds(
    lambda text, colspan, rowspan: (text, colspan, rowspan),
    st.sampled_from("abcdefgh"),
    st.integers(1, 3),
    st.integers(1, 4),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_each_cell_stands_where_a_grid_made_by_hand_puts_it(table: list[list[tuple[str, int, int]]]) -> None:
    grid: dict[tuple[int, int], str] = {}  # texts of the cells that cover a place; more than one where they overlap
    html = ""
    for y, row in enumerate(table):
        html += "<tr>"
        x = 0
        for text, colspan, rowspan in row:
            html += f"<td colspan={colspan} rowspan={rowspan}>{text}"
            while (y, x) in grid:
                x += 1
            for dy in range(rowspan):
                for dx in range(colspan):
                    grid[y + dy, x + dx] = grid.get((y + dy, x + dx), "") + text
            x += colspan
    for y, line in enumerate(rows(html)):
        cells = line.split(" | ")
        width = max(x for (row, x) in grid if row == y) + 1
        assert len(cells) in (width, 1)  # 1: a title across the table
        covered = [grid.get((y, x), "") for x in range(len(cells))]
        assert all(cell in texts and bool(cell) == bool(texts) for cell, texts in zip(cells, covered, strict=True))


@pytest.mark.parametrize(
    "html",
    [
        "<tr>" + "<td colspan=1000 rowspan=65534>x" * 50 + "<tr><td>y" * 50_000,
        f"<tr><td rowspan=65534>{'z' * 290}" + "<tr><td>y" * 50_000,
        "<tr>" + "<td>a" * 999 + "<td rowspan=65534>b" + "<tr><td>y" * 50_000,
        "<tr><td colspan=1000>x" * 50_000,
        "<tr>" + "<td rowspan=2>x<td>y" * 20_000 + "<tr>" + "<td>z" * 20_000,
        "<tr><td rowspan=65534>x" * 3_000,
    ],
    ids=["both", "long", "gaps", "columns", "wide", "stairs"],
)
def test_spans_are_bounded_by_what_the_table_holds(html: str) -> None:
    begin = time.process_time()
    document = of(f"<table>{html}</table>")
    assert len(document.text) < 12 * len(html) + 200_000
    assert time.process_time() - begin < 8, "under two seconds where nothing else runs"


def test_a_section_below_a_listing_is_one(shared: Path) -> None:
    document = read("a.html", f"<h1>A</h1>{HEXO}<h2>B</h2><p>x".encode())
    assert headings(document) == [(1, "A"), (2, "B")]
