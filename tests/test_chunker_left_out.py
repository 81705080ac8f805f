"""What is left out of the index changes nothing about the cuts around it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunker.chunk import Chunk, embedded_text, gaps_in, indexed_text
from chunker.kept import MOST_LEFT_OUT
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from indexes.rows import document_rows
from parsers.document import Document, TreeBuilder
from parsers.registry import read

NO_RESERVE = ChunkerSettings(note_reserve=0)
COMMENTS = ["<!-- TODO: ask the desk -->", "<!-- markdownlint-disable MD013 -->", "<!--\nTwo lines. Of it.\n-->"]


def cut(text: str, tokenizer: Path, limit: int = 60, key: str = "a.md") -> list[Chunk]:
    document = read(key, text.encode())
    return split(document, document.title or key, Ruler(tokenizer, limit=limit, special=0), NO_RESERVE)


words = st.sampled_from(["pump", "seal", "valve 7", "Dr. Ames", "3.14", "水泵", "`a<b`", "*hot*", "[link](x)"])
sentence = st.lists(words, min_size=1, max_size=8).map(lambda found: " ".join(["The", *found, "ends."]))
paragraph = st.lists(sentence, min_size=1, max_size=5).map(" ".join)
block = st.one_of(
    paragraph,
    paragraph,
    st.tuples(st.integers(1, 3), words).map(lambda pair: f"{'#' * pair[0]} {pair[1]}"),
    st.lists(sentence, min_size=1, max_size=4).map(lambda items: "\n".join(f"- {item}" for item in items)),
    st.lists(words, min_size=1, max_size=6).map(
        lambda rows: "\n".join(["| a | b |", "|---|---|", *("| x | 1 |" for _ in rows)])
    ),
    st.just("```\nx = 1\n\ny = 2\n```"),
)


@st.composite
def commented(draw: st.DrawFn) -> tuple[str, str]:
    """A Markdown text, and the same with comments between its blocks and within its paragraphs."""
    blocks = draw(st.lists(block, min_size=1, max_size=8))
    shown = []
    for one in blocks:
        if draw(st.booleans()):
            shown.append(draw(st.sampled_from(COMMENTS)))
        if one.startswith("The "):
            pieces = one.split(" ")
            for place in sorted(draw(st.sets(st.integers(1, len(pieces) - 1), max_size=2)), reverse=True):
                pieces.insert(place, draw(st.sampled_from(COMMENTS[:2])))
            one = " ".join(pieces)
        shown.append(one)
    return "\n\n".join(blocks), "\n\n".join(shown)


@settings(max_examples=150, deadline=None)
@given(texts=commented(), limit=st.integers(12, 80))
def test_comments_in_markdown_change_no_cut(tokenizer: Path, texts: tuple[str, str], limit: int) -> None:
    plain, shown = (cut(text, tokenizer, limit) for text in texts)
    assert [chunk.indexed for chunk in shown] == [chunk.text for chunk in plain]
    assert [chunk.tokens for chunk in shown] == [chunk.tokens for chunk in plain]
    assert [embedded_text("", chunk) for chunk in shown] == [embedded_text("", chunk) for chunk in plain]
    assert all(chunk.text == texts[1][chunk.start : chunk.end] for chunk in shown)


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("## Set up <!-- omit in toc -->\n\nText.", "## Set up\n\nText."),
        ("## Set up <!-- a --> <!-- b -->\n\nText.", "## Set up\n\nText."),
        ("| a | b |\n|---|---|\n| x <!-- note --> | y |\n| z | w |", "| a | b |\n|---|---|\n| x | y |\n| z | w |"),
        ("One line\n<!-- a -->\nand another.", "One line\nand another."),
        ("- One\n<!-- a -->\n- Two\n\nText.", "- One\n- Two\n\nText."),
        ("> Said <!-- a --> so.\n\n<!-- b -->\n\nText.", "> Said so.\n\nText."),
        ("One.\n\n<script>\nx()\n</script>\n\nTwo.", "One.\n\nTwo."),
        ("<!-- a -->\n\n# T\n\nOne.\n\n<!-- b -->\n", "# T\n\nOne.\n"),
        ("# T\n\n<!-- a -->\n\n## U\n\nOne.", "# T\n\n## U\n\nOne."),
        ("wo<!-- a -->rd and <!-- b -->more", "word and more"),
    ],
)
def test_comments_of_all_places(shown: str, plain: str, tokenizer: Path) -> None:
    found, wanted = (cut(text, tokenizer, 200) for text in (shown, plain))
    assert [chunk.indexed for chunk in found] == [chunk.indexed for chunk in wanted]
    assert [chunk.heading_path for chunk in found] == [chunk.heading_path for chunk in wanted]


@st.composite
def framed(draw: st.DrawFn) -> tuple[Document, Document]:
    """A tree of paragraphs, rows and headings over a given text, and the same without its left-out leaves."""
    full, bare = [], []
    for number in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["paragraph", "paragraph", "heading", "left out", "left out"]))
        text = f"Part {number}. " + draw(paragraph).replace("`", "")
        full.append((kind, text))
        if kind != "left out":
            bare.append((kind, text))
    return _tree(full), _tree(bare)


def _tree(parts: list[tuple[str, str]]) -> Document:
    builder = TreeBuilder("\n\n".join(text for _, text in parts))
    start = 0
    for kind, text in parts:
        end = start + len(text)
        if kind == "heading":
            builder.heading(text, 2, start, end)
        elif kind == "left out":
            builder.leaf("footer", start, end, left_out="running foot")
        else:
            builder.leaf("paragraph", start, end)
        start = end + 2
    return builder.finish(media_type="text/plain")


@settings(max_examples=150, deadline=None)
@given(trees=framed(), limit=st.integers(12, 80), overlap=st.sampled_from([0, 10]))
def test_left_out_parts_of_any_tree_change_no_cut(
    tokenizer: Path, trees: tuple[Document, Document], limit: int, overlap: int
) -> None:
    ruler, how = Ruler(tokenizer, limit=limit, special=0), ChunkerSettings(note_reserve=0, overlap=overlap)
    full, bare = (split(tree, "T", ruler, how) for tree in trees)
    assert [chunk.indexed for chunk in full] == [chunk.text for chunk in bare]


def test_o34_comments_change_no_cut(shared: Path, tokenizer: Path) -> None:
    files = shared / "cases/files"
    plain = cut((files / "o34_plain.md").read_text(), tokenizer, 200)
    shown = cut((files / "o34_comments.md").read_text(), tokenizer, 200)
    assert len(plain) == len(shown) == 1
    assert shown[0].indexed == plain[0].text
    inline = cut((files / "o34_inline_comment.md").read_text(), tokenizer, 200)
    assert [chunk.indexed for chunk in inline] == [
        "# Limits\n\nThe coil of the X-42B may get at most 85 degrees hot.\n\nNext para."
    ]


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("<p>The pump <select><option>now</select> starts here.<p>End.", "<p>The pump starts here.<p>End."),
        ("<p>a</p><nav><a href=1>Next</a></nav><p>b", "<p>a</p><p>b"),
        ("<ul><li><select><option>x</select>One<li>Two</ul>", "<ul><li>One<li>Two</ul>"),
        ("<ul><li><nav><a href=1>x</a></nav>One<li>Two</ul>", "<ul><li>One<li>Two</ul>"),
        ("<p>a <noscript>no</noscript> b <video>film</video> c", "<p>a b c"),
        ("<p>a<!-- note -->b<script>x()</script>c", "<p>abc"),
        ("<h1>T</h1><aside><a href=1>See</a></aside><p>b<footer>© 2031</footer>", "<h1>T</h1><p>b"),
    ],
)
def test_html_gives_the_same_chunks_with_and_without(shown: str, plain: str, tokenizer: Path) -> None:
    found, wanted = (cut(text, tokenizer, 200, "a.html") for text in (shown, plain))
    assert [chunk.text for chunk in found] == [chunk.text for chunk in wanted]


def test_o34_pages_with_running_feet_give_the_chunks_of_those_without(shared: Path, tokenizer: Path) -> None:
    ruler = Ruler(tokenizer, limit=200, special=0)
    names = ("o34_short_foot.pdf", "o34_short_bare.pdf")
    foot, bare = (read(name, (shared / "cases/files" / name).read_bytes()) for name in names)
    assert any(node.left_out == "running foot" for node in foot.nodes)
    foot_chunks, bare_chunks = (split(document, "T", ruler, NO_RESERVE) for document in (foot, bare))
    assert [chunk.text for chunk in foot_chunks] == [chunk.text for chunk in bare_chunks]
    assert [chunk.place for chunk in foot_chunks] == [chunk.place for chunk in bare_chunks]


def test_a_long_comment_or_a_blob_divides_a_chunk_and_moves_no_other_cut(tokenizer: Path) -> None:
    sentences = [f"Sentence {number} of the pump ends." for number in range(40)]
    plain = cut(" ".join(sentences), tokenizer)
    blob = f"![x](data:image/png;base64,{'aB3' * 300})"
    for between in (f"<!-- {'x' * MOST_LEFT_OUT} -->", blob):
        shown = cut(" ".join([*sentences[:9], between, *sentences[9:]]), tokenizer)
        assert len(shown) == len(plain) + 1
        assert all(len(chunk.text) < 1_000 for chunk in shown)
        kept = " ".join(chunk.indexed for chunk in shown).replace("![x] ", "")
        assert kept == " ".join(sentences)
        assert [chunk.text for chunk in shown[-3:]] == [chunk.text for chunk in plain[-3:]]
        assert {chunk.cut for chunk in shown} <= {"", "left-out part"}


def test_a_comment_is_not_in_the_row_s_embedded_text(tokenizer: Path) -> None:
    chunk = cut("One <!-- secret --> two.\n\nThree <!-- hidden --> four.", tokenizer)[0]
    rows = document_rows("a" * 32, "a.md", [chunk], notes=["A note."], locators=["a.md"], unknown_tokens=[0], labels=[])
    assert rows[0].embedded_text == embedded_text("A note.", chunk) == "A note.\na.md\nOne two.\n\nThree four."
    assert "secret" in rows[0].text
    assert indexed_text(rows[0].text, rows[0].cut) == chunk.indexed
    assert re.fullmatch(r"left out \d+-\d+ \d+-\d+", rows[0].cut)


@given(
    st.sampled_from(["", "sentence", "left-out part"]),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=4),
)
def test_remarks_are_read_back(cause: str, gaps: list[tuple[int, int]]) -> None:
    chunk = Chunk(start=0, end=1, text="a", cut=cause, gaps=tuple(gaps))
    assert gaps_in(chunk.remarks) == tuple(gaps)
    assert chunk.remarks.startswith(cause)
