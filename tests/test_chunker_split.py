"""The chunker's invariants over generated trees, then its rules case by case."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_chunker_tokens import byte_level

from chunker.blocks import regions
from chunker.chunk import Chunk, chunk_ids, document_id, embedded_text
from chunker.kept import Kept
from chunker.sentences import sentences
from chunker.split import CHUNKER_VERSION, ChunkerSettings, cut, split
from chunker.tokens import Ruler
from parsers.document import ROOT, Document, TreeBuilder, leaves, left_out

NO_RESERVE = ChunkerSettings(note_reserve=0)


def ruler(tokenizer: Path, limit: int) -> Ruler:
    return Ruler(tokenizer, limit=limit, special=0)


words = st.sampled_from(["pump", "seal", "valve 7", "Dr. Ames", "a.b.c", "3.14", "水泵", "Überdruck", "😀", "—", "x_y"])
sentence = st.lists(words, min_size=1, max_size=9).map(lambda found: " ".join(found) + ". ")
paragraph = st.lists(sentence, min_size=1, max_size=6).map("".join)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Trees of sections, paragraphs, lists, tables, code and left-out parts."""
    builder = TreeBuilder()
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["heading", "paragraph", "paragraph", "list", "table", "code", "footer"]))
        if kind == "heading":
            builder.write_heading(
                draw(words) + draw(st.sampled_from(["", " part", " two words"])), draw(st.integers(1, 4))
            )
        elif kind == "paragraph":
            builder.write_leaf("paragraph", draw(paragraph).strip())
        elif kind == "code":
            lines = draw(st.lists(st.sampled_from(["x = 1", "", "    return y", "def f(a, b):"]), max_size=30))
            builder.write_leaf("code", "\n".join(lines))
        elif kind == "footer":
            builder.write_leaf("footer", f"Page {draw(st.integers(1, 9))}", left_out="running foot")
        elif kind == "list":
            with builder.inside("list", level=1):
                for item in draw(st.lists(sentence, min_size=1, max_size=5)):
                    with builder.inside("item"):
                        builder.write_leaf("paragraph", f"{item.strip()}", separator="\n")
        else:
            with builder.inside("table"):
                for number, row in enumerate(draw(st.lists(words, min_size=1, max_size=12))):
                    builder.write_leaf("row", f"| {row} | {number} |", separator="\n", header=number == 0)
    return builder.finish(media_type="text/plain")


@settings(max_examples=150, deadline=None)
@given(document=documents(), limit=st.integers(1, 60), reserve=st.integers(0, 12))
def test_invariants_1_to_5(tokenizer: Path, document: Document, limit: int, reserve: int) -> None:
    measure = ruler(tokenizer, limit)
    chosen = ChunkerSettings(note_reserve=reserve)
    chunks = split(document, "A title", measure, chosen)
    assert chunks == split(document, "A title", measure, chosen)
    check_text_and_cover(document, chunks)
    check_sections(document, chunks)
    room = max(1, limit - reserve)
    for chunk in chunks:
        assert chunk.tokens == measure.count(chunk.indexed)
        assert chunk.tokens <= room
        if limit > 8:
            assert measure.count(embedded_text("", chunk)) <= room, chunk
        if not chunk.cut:
            check_whole_sentences(document, chunk)


def check_text_and_cover(document: Document, chunks: list[Chunk]) -> None:
    """Invariants 1 and 2."""
    covered = [False] * len(document.text)
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start : chunk.end]
        inside = set(range(chunk.start, chunk.end))
        for low, high in chunk.gaps:
            assert 0 < low < high < len(chunk.text)
            inside -= set(range(chunk.start + low, chunk.start + high))
        assert not any(covered[place] for place in inside)
        for place in inside:
            covered[place] = True
    reasons = left_out(document)
    for index in leaves(document):
        start, end = document.nodes[index].extent
        for position in range(start, end):
            if not document.text[position].isspace():
                assert covered[position] == (reasons[index] is None)


def check_sections(document: Document, chunks: list[Chunk]) -> None:
    """Invariant 3: a chunk's parts stand in one section, but for headings without a body."""
    owner = [ROOT] * len(document.nodes)
    for index, node in enumerate(document.nodes):
        owner[index] = index if node.kind == "section" else (owner[node.parent] if node.parent != ROOT else ROOT)
    for chunk in chunks:
        inside = [
            index
            for index in leaves(document)
            if chunk.start < document.nodes[index].extent[1] and document.nodes[index].extent[0] < chunk.end
        ]
        bodies = {owner[index] for index in inside if document.nodes[index].kind != "heading"}
        assert len(bodies) <= 1


def check_whole_sentences(document: Document, chunk: Chunk) -> None:
    """Invariant 3: an uncut chunk ends where a sentence, row, line or part ends."""
    for index in leaves(document):
        start, end = document.nodes[index].extent
        if document.nodes[index].kind != "paragraph" or not start < chunk.end < end:
            continue
        ends = {start + stop for _, stop in sentences(document.text[start:end])}
        assert any(not document.text[chunk.end : stop].strip() for stop in ends if stop >= chunk.end), chunk


def plain(text: str) -> Document:
    builder = TreeBuilder(text)
    start = 0
    for block in text.split("\n\n"):
        if block.strip():
            builder.leaf("paragraph", start, start + len(block))
        start += len(block) + 2
    return builder.finish(media_type="text/plain")


@settings(max_examples=80, deadline=None)
@given(document=documents(), limit=st.integers(12, 60))
def test_a_tokenizer_of_bytes_changes_nothing_of_the_invariants(
    tmp_path_factory: pytest.TempPathFactory, document: Document, limit: int
) -> None:
    """Its counts do not add up: chunks are counted again, and give up what does not fit."""
    measure = Ruler(byte_level(tmp_path_factory.mktemp("bytes") / "tokenizer.json"), limit=limit, special=0)
    chunks = split(document, "T", measure, NO_RESERVE)
    check_text_and_cover(document, chunks)
    check_sections(document, chunks)
    assert all(chunk.tokens == measure.count(chunk.indexed) <= limit for chunk in chunks)


@settings(max_examples=150, deadline=None)
@given(document=documents(), limit=st.integers(12, 60), overlap=st.integers(1, 30))
def test_an_overlap_is_whole_sentences_of_the_same_section(
    tokenizer: Path, document: Document, limit: int, overlap: int
) -> None:
    measure = ruler(tokenizer, limit)
    chunks = split(document, "A title", measure, ChunkerSettings(note_reserve=0, overlap=overlap))
    plain_chunks = split(document, "A title", measure, NO_RESERVE)
    covered = {place for chunk in chunks for place in range(chunk.start, chunk.end)}
    needed = {place for chunk in plain_chunks for place in range(chunk.start, chunk.end)}
    assert covered >= {place for place in needed if not document.text[place].isspace()}
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
        assert after.tokens == measure.count(after.indexed) <= limit
        if after.start < before.end:
            shared = document.text[after.start : before.end]
            assert measure.count(shared) <= overlap
            assert before.section_start == after.section_start
            check_whole_sentences(document, Chunk(start=before.start, end=after.start, text=""))


def test_overlap_repeats_the_last_sentences(tokenizer: Path) -> None:
    text = " ".join(f"We saw it on day {number} again." for number in range(11, 20))
    chunks = split(plain(text), "", ruler(tokenizer, 40), ChunkerSettings(note_reserve=0, overlap=14))
    sentences = text.replace(". ", ".|").split("|")
    assert [chunk.text for chunk in chunks][:2] == [" ".join(sentences[:3]), " ".join(sentences[2:5])]


def test_memory_does_not_grow_with_the_document(tokenizer: Path) -> None:
    """Chunks that are taken one at a time cost the same in a document four times as long, all in one section."""
    peaks = []
    for size in (500, 2_000):
        document = plain("\n\n".join(f"Paragraph {n} of many words, and so on. " * 8 for n in range(size)))
        parts = list(regions(document, Kept(document), "T"))
        tracemalloc.start()
        for _ in cut(document, "T", ruler(tokenizer, 64), NO_RESERVE):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(parts) == 1
    units = 300 * 1_500  # bytes for the further paragraphs' extents
    assert peaks[1] - peaks[0] < units + 300_000


def test_an_edit_reaches_no_other_section_and_not_far(tokenizer: Path) -> None:
    """An insertion moves no boundary in another section; in its own they are back in step after a few chunks."""
    random = Random(11)

    def paragraphs(section: int) -> list[str]:
        return [
            " ".join(f"S{section} p{number} w{word}." for word in range(random.randint(2, 14))) for number in range(60)
        ]

    sections = [paragraphs(section) for section in range(4)]
    before = cut_sections(sections, tokenizer)
    reached = []
    for place in range(0, 60, 3):
        edited = [list(section) for section in sections]
        edited[1].insert(place, "Something quite new stands here. And goes on.")
        after = cut_sections(edited, tokenizer)
        assert after[0] == before[0]
        assert after[2:] == before[2:]
        reached.append(sum((Counter(after[1]) - Counter(before[1])).values()))
    assert sorted(reached)[len(reached) // 2] <= 3
    assert max(reached) <= 12


def cut_sections(sections: list[list[str]], tokenizer: Path) -> list[list[str]]:
    builder = TreeBuilder()
    for number, section in enumerate(sections):
        builder.write_heading(f"Section {number}", 1)
        for paragraph in section:
            builder.write_leaf("paragraph", paragraph)
    document = builder.finish(media_type="text/plain")
    chunks = split(document, "T", ruler(tokenizer, 64), NO_RESERVE)
    starts = [node.start for node in document.nodes if node.kind == "section"]
    return [[chunk.text for chunk in chunks if chunk.section_start == start] for start in starts]


def test_a_paragraph_that_fits_is_not_cut(tokenizer: Path) -> None:
    text = "One two three four five. Six seven.\n\n" + "a b c d e f g h. " * 3
    chunks = split(plain(text.strip()), "", ruler(tokenizer, 30), NO_RESERVE)
    assert [chunk.text for chunk in chunks] == [
        "One two three four five. Six seven.",
        ("a b c d e f g h. " * 3).strip(),
    ]


def test_runs_of_spaces_end(tokenizer: Path, shared: Path) -> None:
    text = (shared / "cases/files/o12_spaces.md").read_text(encoding="utf-8")
    for limit in (3, 500):
        chunks = split(plain(text), "", ruler(tokenizer, limit), NO_RESERVE)
        assert " ".join(chunk.text for chunk in chunks).split() == text.split()


def test_an_overlong_sentence_is_cut_at_pauses_and_says_so(tokenizer: Path) -> None:
    text = ", ".join(f"word{number}" for number in range(40)) + "."
    chunks = split(plain(text), "", ruler(tokenizer, 16), NO_RESERVE)
    assert {chunk.cut for chunk in chunks} == {"sentence"}
    assert all(chunk.text.endswith((",", ".")) for chunk in chunks)


def test_a_word_over_the_budget_is_cut_between_characters_that_belong_together(tokenizer: Path) -> None:
    text = "e\u0301" * 60
    chunks = split(plain(text), "", ruler(tokenizer, 7), NO_RESERVE)
    assert "".join(chunk.text for chunk in chunks) == text
    assert not any(chunk.text.startswith("\u0301") for chunk in chunks)


def test_a_split_table_repeats_its_header_in_the_embedded_text_alone(tokenizer: Path) -> None:
    builder = TreeBuilder()
    with builder.inside("table"):
        for number in range(20):
            builder.write_leaf(
                "row", f"| part {number} | {number * 3} |" if number else "| name | price |", "\n", header=not number
            )
    document = builder.finish(media_type="text/plain")
    chunks = split(document, "", ruler(tokenizer, 40), NO_RESERVE)
    assert len(chunks) > 2
    assert [bool(chunk.header) for chunk in chunks] == [False] + [True] * (len(chunks) - 1)
    assert embedded_text("", chunks[1]).startswith("| name | price |\n")
    assert {chunk.cut for chunk in chunks} == {"table"}


def test_a_heading_without_a_body_joins_what_is_below_it_and_the_last_what_is_above(tokenizer: Path) -> None:
    builder = TreeBuilder()
    builder.write_heading("Alpha", 1)
    builder.write_heading("Beta", 2)
    builder.write_leaf("paragraph", "Some text stands here.")
    builder.write_heading("Omega", 1)
    chunks = split(builder.finish(media_type="text/plain"), "Doc", ruler(tokenizer, 60), NO_RESERVE)
    assert [chunk.text for chunk in chunks] == ["Alpha\n\nBeta\n\nSome text stands here.\n\nOmega"]
    assert chunks[0].heading_path == ("Alpha", "Beta")  # an untitled document has no title to stand there
    assert chunks[0].printed_path == ("Doc",)


def test_the_printed_path_takes_a_quarter_and_drops_middle_titles_first(tokenizer: Path) -> None:
    builder = TreeBuilder()
    for level in range(1, 7):
        builder.write_heading(f"Level {level} title", level)
        builder.write_leaf("paragraph", "Body one. Body two. Body three.")
    limit = 48
    measure = ruler(tokenizer, limit)
    chunks = split(builder.finish(media_type="text/plain"), "Doc", measure, NO_RESERVE)
    for chunk in chunks:
        assert measure.count(" › ".join(chunk.printed_path)) <= limit // 4
    assert chunks[-1].printed_path[0] == "Doc"


def test_code_is_cut_at_blank_lines(tokenizer: Path) -> None:
    blocks = [f"def f{number}(a, b):\n    return a + {number}" for number in range(12)]
    builder = TreeBuilder("\n\n".join(blocks))
    builder.leaf("code", 0, len("\n\n".join(blocks)), line=1)
    chunks = split(builder.finish(media_type="text/x-python"), "x.py", ruler(tokenizer, 40), NO_RESERVE)
    assert len(chunks) > 3
    assert all(chunk.text.startswith("def ") for chunk in chunks)
    assert chunks[1].place == f"line {1 + chunks[0].text.count(chr(10)) + 2}"


def test_ids_depend_on_document_text_and_occurrence_alone() -> None:
    first = Chunk(start=0, end=1, text="a")
    moved = Chunk(start=7, end=8, text="a", heading_path=("x",))
    one = document_id("default", "a/b.md")
    assert chunk_ids(one, [first, moved]) == chunk_ids(one, [moved, first])
    assert len(set(chunk_ids(one, [first, first, moved]))) == 3
    assert chunk_ids(one, [first]) != chunk_ids(document_id("default", "a/c.md"), [first])
    assert document_id("a", "b/c") != document_id("a/b", "c")


def pieces(text: str) -> Iterator[str]:
    return (text[start:end] for start, end in sentences(text))


@given(st.text(max_size=300))
def test_sentences_join_to_the_text(text: str) -> None:
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(before[1] == after[0] for before, after in pairwise(spans))


def test_sentences_are_not_cut_within_tokens(shared: Path) -> None:
    text = (shared / "cases/files/o14_sentences.txt").read_text(encoding="utf-8")
    found = list(pieces(text))
    for whole in (
        "3.14",
        "9.30 a.m.",
        "https://example.org/a.b?c=1.5&d=x",
        "ops@example.org",
        "v1.2.3",
        "conf.d/main.toml",
        "approx. 2.5",
        "i.e.",
    ):
        assert sum(whole in piece for piece in found) == 1, whole
    assert "Dr. Ames read" in found[0]
    assert len(found) >= 6


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Am 3. Mai kam er. Dann ging er.", 2),
        ("See Fig. 3 there. It shows the seal.", 2),
        ("これは文です。「はい。」と言った。", 2),
        ("水泵坏了。请更换！好吗？", 3),
        ("यह एक वाक्य है। यह दूसरा है।", 2),
        ("J. Smith came. He left.", 2),
        ("He paid 3.50. Then he left.", 2),
        ("저는 학교에 갑니다. 오늘은 날씨가 좋아요! 어디 가세요?", 3),
        ("今日は晴れです。本当？はい！", 3),
        ("他说:“好。”版本3.5发布了。", 2),
        ("هذه جملة أولى. هل هذه الثانية؟ نعم!", 3),
        ("این جمله اول است. آیا این دوم است؟", 2),
        ("یہ پہلا جملہ ہے۔ یہ دوسرا ہے۔", 2),
        ("यह पहला है। डॉ. शर्मा आए।", 2),
        ("এটা প্রথম বাক্য। এটা দ্বিতীয়।", 2),
        ("Αυτή είναι η πρώτη. Τι κάνεις; Καλά!", 3),
        ("Он пришёл в г. Москва. Ул. Ленина, д. 5.", 2),
        ("M. Dupont est venu. « Bonjour ! » dit-il. Voir p. 12.", 3),
        ("Il dott. Rossi è qui. E poi?", 2),
        ("Przyszedł dr. Nowak. To jest np. test. Ul. Długa 5.", 3),
        ("Dit is bijv. goed. Dhr. Jansen kwam. Toen ging hij.", 3),
        ("Přišel p. Novák. Viz str. 5.", 2),
        ("Det är t.ex. bra. Han kom kl. 3.30. Sedan gick han.", 3),
        ("Bu ilk cümle. Dr. Yılmaz geldi. Saat 3.30 idi.", 3),
        ("Đây là câu đầu tiên. TS. Nguyễn đã đến.", 2),
        ("Սա նախադասություն է։ Սա երկրորդն է։", 2),
        ("ဒါက ပထမ ဝါကျ ဖြစ်သည်။ ဒုတိယ ဖြစ်သည်။", 2),
        ("ይህ የመጀመሪያ ነው። ሁለተኛው ነው።", 2),
        ("នេះជាប្រយោគទីមួយ។ នេះជាទីពីរ។", 2),
        ("འདི་ཚིག་གྲུབ་དང་པོ། འདི་གཉིས་པ།", 2),
        ("זה משפט ראשון. האם זה השני? כן!", 3),
        ("นี่คือประโยคแรก ราคา 3.50 บาท", 1),
    ],
)
def test_sentence_ends(text: str, count: int) -> None:
    assert len(sentences(text)) == count


def test_other_cuts_need_another_version(tokenizer: Path) -> None:
    """When this fails because the cuts were meant to change: raise VERSION, then put the new digest here."""
    builder = TreeBuilder()
    builder.write_heading("Pump", 1)
    builder.write_leaf("paragraph", " ".join(f"Sentence {number} of the pump, with a valve." for number in range(30)))
    builder.write_heading("Empty", 2)
    builder.write_heading("Table", 2)
    with builder.inside("table"):
        for number in range(15):
            builder.write_leaf("row", f"| part {number} | {number * 7} |", separator="\n", header=not number)
    builder.write_leaf("code", "\n\n".join(f"def f{number}():\n    return {number}" for number in range(12)), page=3)
    builder.write_heading("Book", 1, work="Nemo, Wars")
    for number in range(12):
        builder.write_leaf("paragraph", f"Chapter {number} tells of {number} legions. " * 3, ref=f"4.{number}")
    document = builder.finish(media_type="text/plain")
    how = ChunkerSettings(note_reserve=8, overlap=6)
    chunks = split(document, "Guide", ruler(tokenizer, 64), how)
    digest = hashlib.sha256(msgspec.json.encode(chunks)).hexdigest()[:16]
    assert (CHUNKER_VERSION, digest) == (4, "a3eddd47e0d83c96")
