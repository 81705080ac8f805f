"""Character references, front matter that is none, and stray control characters."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunker.chunk import Chunk, embedded_text
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from indexes.lexical.analysis import analyse, analyse_query
from indexes.rows import embedded
from parsers.document import Document, leaves, left_out
from parsers.registry import read


def cut(document: Document, tokenizer: Path, limit: int = 400) -> list[Chunk]:
    return split(document, document.title, Ruler(tokenizer, limit=limit), ChunkerSettings(note_reserve=0))


def indexed(key: str, text: str, tokenizer: Path) -> str:
    document = read(key, text.encode())
    assert document.text == text
    return "\n".join(chunk.indexed for chunk in cut(document, tokenizer))


# --- references -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("The R&amp;D desk of AT&amp;T", "The R&D desk of AT&T"),
        ("00:16 --&gt; 00:18, 1 &lt; 2, &quot;so&quot; &#39;it&#39; is", "00:16 --> 00:18, 1 < 2, \"so\" 'it' is"),
        ("caf&eacute; &#233; &#xE9; &#XE9; &mdash; &copy; 2031", "café é é é — © 2031"),
        ("10&nbsp;kg and &nbsp; x", "10\u00a0kg and &nbsp; x"),
        ("`&amp;` and ``a`&lt;b`` and \\&amp; stay", "`&amp;` and ``a`&lt;b`` and \\&amp; stay"),
        ("an open ` tick &amp; more", "an open ` tick & more"),
        ("&unknown; &amp &#0; &#xD800; &#99999999; a&b; AT&T", "&unknown; &amp \ufffd \ufffd &#99999999; a&b; AT&T"),
        ("&amp;lt; is read once", "&lt; is read once"),
        ("# Track &amp; Field\n\nx", "# Track & Field\n\nx"),
        ("| a&amp;b | c |\n| --- | --- |\n| &#124; | &vert; |", "| a&b | c |\n| --- | --- |\n| | | | |"),
        ("<b>a &amp; b</b>", "<b>a & b</b>"),
        ("- item &gt; other\n\n> quote &amp; more", "- item > other\n\n> quote & more"),
        ("```\n&amp;\n```\n\n    &amp; code", "```\n&amp;\n```\n\n    &amp; code"),
        ("a &lt;<!-- no &amp; -->b", "a <b"),
        ("&amp;", "&"),
    ],
)
def test_references_in_markdown_are_searched_as_what_they_mean(source: str, meant: str, tokenizer: Path) -> None:
    assert indexed("a.md", source, tokenizer) == meant


def test_references_in_xml_are_searched_as_what_they_mean(tokenizer: Path) -> None:
    source = (
        "<?xml version='1.0'?>\n<a b='R&amp;D'>Track &amp; Field, caf&#233;</a>\n"
        "<!-- &amp; -->\n<![CDATA[ a &amp;&amp; b ]]>\n<c>&amp;amp;</c>"
    )
    meant = source.replace("R&amp;D", "R&D").replace("Track &amp;", "Track &").replace("&#233;", "é")
    assert indexed("a.xml", source, tokenizer) == meant.replace("&amp;amp;", "&amp;")


@pytest.mark.parametrize("key", ["a.txt", "a.py", "a.json", "a.html.j2", "a.rst"])
def test_other_texts_mean_what_stands_there(key: str, tokenizer: Path) -> None:
    document = read(key, b'x = "&amp;"\n')
    assert document.references == ()
    assert all("&amp;" in chunk.indexed for chunk in cut(document, tokenizer))


def test_what_is_left_out_has_no_references() -> None:
    document = read("a.md", b"---\ntitle: A &amp; B\n---\n\n<!-- &amp; -->\n\n&lt;")
    assert [document.text[start : start + 4] for start in document.references] == ["&lt;"]


def test_o52_the_real_files(shared: Path, tokenizer: Path) -> None:
    data = (shared / "realdocs/xml/factbook.xml").read_bytes()
    found = "".join(chunk.indexed for chunk in cut(read("factbook.xml", data), tokenizer))
    assert "Track & Field" in found
    assert "Trinidad & Tobado" in found
    data = (shared / "realdocs/md/escaped_characters.md").read_bytes()
    found = "".join(chunk.indexed for chunk in cut(read("a.md", data), tokenizer, 4_000))
    assert "00:16.000 ----> 00:18.000" in found
    assert "`&amp; &lt; &gt; &quot; &#39; `" in found
    assert "```\n&amp; &lt; &gt; &quot; &#39; \n```" in found
    assert "| Pipe                | | | | |" in found


def test_a_word_with_a_reference_is_found_as_people_write_it(tokenizer: Path) -> None:
    (chunk,) = cut(read("a.md", b"The caf&eacute; of the R&amp;D desk."), tokenizer)
    terms = analyse(embedded_text("", chunk)).body.split()
    assert set(analyse_query("café").body) <= set(terms)
    assert "eacut" not in terms
    assert "amp" not in terms


def test_a_repeated_header_is_what_it_means(tokenizer: Path) -> None:
    rows = "".join(f"| part {number} | {number} |\n" for number in range(60))
    chunks = cut(read("a.md", f"| R&amp;D | n |\n| --- | --- |\n{rows}".encode()), tokenizer, 60)
    assert len(chunks) > 2
    assert {chunk.header.split("\n")[0] for chunk in chunks[1:]} == {"| R&D | n |"}


PARTS = st.sampled_from(
    [
        "word ",
        "A sentence ends. ",
        "&amp;",
        "&lt;",
        "a&eacute;b ",
        "&nbsp;",
        "\n\n",
        "\n",
        "`",
        "<!-- c -->",
        "&x;",
        "- ",
    ]
)


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(PARTS, max_size=40), limit=st.integers(8, 40))
def test_offsets_stay_true_and_nothing_is_lost(parts: list[str], limit: int, tokenizer: Path) -> None:
    document = read("a.md", "".join(parts).encode())
    covered = 0
    kept = [document.nodes[i].extent for i in leaves(document) if left_out(document)[i] is None]
    chunks = cut(document, tokenizer, limit)
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end]
        assert embedded({"prefix": "", "text": chunk.text, "cut": chunk.remarks}) == chunk.indexed
        assert all(document.text[chunk.start + at] == "&" for at in chunk.references)
        covered += len(chunk.references)
    assert covered >= sum(any(low <= at < high for low, high in kept) for at in document.references) * bool(chunks)
    spans = [(chunk.start, chunk.end) for chunk in chunks]
    for at in document.references:
        assert any(start <= at < document.text.index(";", at) < end for start, end in spans)


@pytest.mark.parametrize(
    "text",
    ["&amp;" * 100_000, "&amp;`" * 100_000, "".join("`" * (n % 400) + "&lt; " for n in range(4_000)), "&" * 500_000],
    ids=["references", "ticks", "runs", "signs"],
)
def test_references_take_linear_time(text: str) -> None:
    begin = time.process_time()
    read("a.md", text.encode())
    read("a.xml", text.encode())
    assert time.process_time() - begin < 10, "under two seconds where nothing else runs"


# --- front matter -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "---\n\nNote: the pump is to be oiled.\n\n---\n",
        "---\nThe rule of this house: never run it dry.\n---\n",
        "---\nNote: this goes on\nover a second line.\n\nAnd here: too.\n---\n",
        "---\n# A heading\n---\n",
        "---\n\nOil it.\n\n---\n",
    ],
)
def test_a_sentence_between_rules_is_text(head: str) -> None:
    document = read("a.md", f"{head}\nThe body.\n".encode())
    assert not any(node.kind == "front_matter" or node.left_out for node in document.nodes)


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("---\ntitle: A\n---\n", "A"),
        ("---\n\ntitle: A\nlabels: [x]\n\n---\n", "A"),
        ("---\nTitle: A\nReading time: 5\n---\n", ""),
        ("---\n# made by a tool\ntitle: A: b\ntags:\n- x\n---\n", "A: b"),
        ("+++\n\ntitle = 'A'\n+++\n", "A"),
        ("---\n---\n", ""),
    ],
)
def test_real_front_matter_is_left_out(head: str, title: str) -> None:
    document = read("a.md", f"{head}\nThe body.\n".encode())
    assert document.title == title
    assert [document.text[slice(*node.extent)] for node in document.nodes if not node.left_out] == ["The body."]


# --- stray control characters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text", "reason"),
    [
        (b"Open the\0 valve by half a turn.", "Open the\ufffd valve by half a turn.", "1 NUL characters, replaced"),
        (b"Open \x01\x02the valve by half a turn.", "Open \ufffd\ufffdthe valve by half a turn.", "2 other control"),
        (b"\xd6ffne das Ventil\0 und schlie\xdfe die T\xfcr f\xfcr die Nacht.", "Öffne das Ventil\ufffd", "1 NUL"),
        ("öffne\0 das Ventil heute Abend".encode(), "öffne\ufffd das Ventil", "1 NUL"),
    ],
)
@pytest.mark.parametrize("key", ["a.txt", "a.md"])
def test_a_few_control_characters_are_replaced_and_counted(key: str, data: bytes, text: str, reason: str) -> None:
    document = read(key, data)
    assert document.status == "partial"
    assert document.text.startswith(text)
    assert document.reason.startswith(reason)


@pytest.mark.parametrize("data", [b"\0\x01\x02ab\x03", b"MZ\0\0text text text", bytes(range(256)), b"a\0\0\0\1\2d\3\4"])
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    assert read("a.txt", data).status == "failed"
