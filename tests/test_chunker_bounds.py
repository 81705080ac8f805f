"""Chunks are bounded in tokens and in characters, and texts without spaces are cut where words or clusters end."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import regex  # type: ignore[import-untyped]  # it ships no types
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import KINDS, generated
from test_chunker_tokens import byte_level
from tokenizers import Tokenizer, models, pre_tokenizers

from chunker.breaks import cut_before, is_boundary
from chunker.chunk import Chunk
from chunker.kept import Kept
from chunker.packing import CHARACTERS
from chunker.sentences import SENTENCE_WINDOW, sentences
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from parsers.registry import read

NO_RESERVE = ChunkerSettings(note_reserve=0)


def cut(text: str, ruler: Ruler, overlap: int = 0, key: str = "a.txt") -> list[Chunk]:
    return split(read(key, text.encode()), key, ruler, ChunkerSettings(note_reserve=0, overlap=overlap))


@pytest.fixture
def latin(tmp_path: Path) -> Path:
    """A WordPiece tokenizer that knows Latin letters only and gives up on words of more than 100 characters."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    vocabulary = {token: index for index, token in enumerate(["[UNK]", *letters, *(f"##{one}" for one in letters)])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind][0].endswith(".txt")])
@pytest.mark.parametrize("family", ["WordPiece", "bytes"])
def test_no_chunk_is_over_the_bounds(kind: str, family: str, latin: Path, tmp_path: Path) -> None:
    ruler = Ruler(latin if family == "WordPiece" else byte_level(tmp_path / "bytes.json"), limit=100, special=0)
    name, data = generated(kind, 20_000)
    document = read(name, data)
    chunks = split(document, name, ruler, NO_RESERVE)
    assert all(len(chunk.indexed) <= 100 * CHARACTERS for chunk in chunks)
    assert all(chunk.tokens <= 100 for chunk in chunks)
    kept = "" if document.status == "empty" else Kept(document).text
    assert "".join("".join(chunk.indexed.split()) for chunk in chunks) == "".join(kept.split())


def test_o45_a_thai_text_is_cut_at_phrases(shared: Path, latin: Path) -> None:
    text = (shared / "cases/files/o45_thai.txt").read_text()
    chunks = cut(text, Ruler(latin, limit=200, special=0))
    assert max(len(chunk.text) for chunk in chunks) <= 200 * 4
    for before, after in pairwise(chunks):
        assert not text[before.end : after.start].strip()
        assert before.end < after.start, "a cut stands at white space, where a phrase ends"


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("ระบบสูบน้ำจะหยุดทำงานโดยอัตโนมัติเมื่อแรงดันในท่อหลักสูงเกินกว่าค่าที่กำหนดไว้" * 20, r"[เแโใไ]\Z|\A[ะาำๆฯ]"),
        ("ລະບົບສູບນ້ຳຈະຢຸດເຮັດວຽກໂດຍອັດຕະໂນມັດເມື່ອຄວາມດັນສູງເກີນໄປ" * 20, r"[ເແໂໃໄ]\Z|\A[ະາຳຽ]"),
        ("ប្រព័ន្ធបូមទឹកនឹងឈប់ដំណើរការដោយស្វ័យប្រវត្តិនៅពេលសម្ពាធខ្ពស់ពេក" * 20, r"\u17d2\Z"),
        ("ရေစုပ်စနစ်သည်ဖိအားမြင့်လွန်းသောအခါအလိုအလျောက်ရပ်တန့်မည်" * 20, r"\u1039\Z|\A[\u1000-\u1021]\u103a"),
        ("ཆུ་འདྲེན་འཕྲུལ་འཁོར་ནི་གནོན་ཤུགས་ཆེ་དྲགས་ན་རང་འགུལ་གྱིས་མཚམས་འཇོག་གི་རེད་" * 20, r"[^་]\Z"),
        ("👩‍👩‍👧‍👦🇩🇪👍🏽😀" * 60, r"\u200d\Z|\A[\u200d\U0001f3fb-\U0001f3ff]"),
        ("🇩🇪" * 300, r"\A[^\U0001f1e9]"),
        ("각각" * 300, r"\A[\u1160-\u11ff]"),
        ("1️⃣2️⃣" * 200, r"\A[\ufe0f\u20e3]"),
        ("नमस्ते" * 200, r"\u094d\Z|\A\p{M}"),
    ],
)
def test_a_cut_divides_no_cluster_and_no_syllable(text: str, never: str, latin: Path) -> None:
    chunks = cut(text, Ruler(latin, limit=30, special=0))
    assert len(chunks) > 3
    assert "".join(chunk.text for chunk in chunks) == text
    clusters = {match.end() for match in regex.finditer(r"\X", text)}
    for chunk in chunks[:-1]:
        assert chunk.end in clusters
        assert chunk.cut == "sentence"
    for chunk in chunks[1:-1]:
        assert not regex.search(never, chunk.text), chunk.text[:5] + "…" + chunk.text[-5:]


@given(st.text(max_size=120), st.integers(1, 120))
def test_a_cut_lies_within_what_fits_and_divides_no_cluster(text: str, fits: int) -> None:
    if len(text) <= fits:
        return
    place = cut_before(text, 0, fits)
    assert 0 < place <= fits
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    assert place in ends or not any(0 < end <= fits for end in ends)
    assert is_boundary(text, 0, place) == (place in ends)


@pytest.mark.parametrize(
    "unit",
    ["水泵坏了需要更换密封件，请先关闭阀门。", "The pump, no. 3, stops. Why? ", "「弁。」と言った。次に開けます！"],
)
def test_o49_windows_find_the_sentences_of_the_whole(unit: str) -> None:
    text = unit * (3 * SENTENCE_WINDOW // len(unit))
    once = sentences(unit * (SENTENCE_WINDOW // len(unit) - 2))
    lengths = {end - start for start, end in once}
    found = sentences(text)
    assert {end - start for start, end in found} == lengths
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert found[0][0] == 0 and found[-1][1] == len(text)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["Go on. ", "水。", "x", " ", "\n\n", "3.5 ", '"', "e.g. ", "A" * 2_500]), max_size=40))
def test_sentences_of_several_windows_cover_the_text(pieces: list[str]) -> None:
    text = "".join(pieces) * 3
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


@pytest.mark.parametrize("overlap", [30, 60, 120])
def test_o35_the_overlap_is_as_many_whole_sentences_as_fit(shared: Path, tokenizer: Path, overlap: int) -> None:
    ruler = Ruler(tokenizer, limit=300, special=0)
    text = (shared / "cases/files/o35_overlap.md").read_text()
    chunks = cut(text, ruler, overlap, "a.md")
    least = max(ruler.count(line) for line in text.split("\n\n"))
    assert len(chunks) > 3
    for before, after in pairwise(chunks):
        shared_text = text[after.start : before.end]
        assert shared_text.startswith("Sentence") and shared_text.endswith("needle.")
        assert overlap - least < ruler.count(shared_text) <= overlap


@pytest.mark.parametrize(
    "part", ["- Item {n} of the list tells more.\n", "Para {n} tells. It has three. All short.\n\n", "Line {n} ends. "]
)
def test_items_and_paragraphs_of_several_sentences_overlap(part: str, tokenizer: Path) -> None:
    ruler = Ruler(tokenizer, limit=100, special=0)
    chunks = cut("".join(part.format(n=n) for n in range(40)), ruler, 30, "a.md")
    for before, after in pairwise(chunks):
        assert after.start < before.end
        assert 15 < ruler.count(before.text[after.start - before.start :]) <= 30


def test_headings_tables_and_code_are_not_repeated(tokenizer: Path) -> None:
    text = "# A\n\nOne two three.\n\n```\ncode\n```\n\n" + "Four five six seven. " * 30
    for before, after in pairwise(cut(text, Ruler(tokenizer, limit=60, special=0), 20, "a.md")):
        assert "```" not in before.text[after.start - before.start :] or after.start >= before.end
