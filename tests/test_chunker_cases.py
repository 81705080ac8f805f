"""Faults that people met in cutting, on their inputs, through parser and chunker together."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from chunker.chunk import Chunk, embedded_text
from chunker.sentences import sentences
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from parsers.document import Document
from parsers.registry import read

NO_RESERVE = ChunkerSettings(note_reserve=0)


@pytest.fixture
def files(shared: Path) -> Path:
    return shared / "cases/files"


def cut(path: Path, tokenizer: Path, limit: int = 200) -> tuple[Document, list[Chunk], Ruler]:
    document = read(path.name, path.read_bytes())
    ruler = Ruler(tokenizer, limit=limit, special=0)
    return document, split(document, document.title or path.name, ruler, NO_RESERVE), ruler


def headings(document: Document) -> list[tuple[str, int]]:
    return [(node.title or "", node.level or 0) for node in document.nodes if node.kind == "section"]


@pytest.mark.parametrize("name", ["o02_frontmatter.md", "o02_frontmatter_dots.md"])
def test_o02_front_matter_is_no_heading_and_no_chunk(files: Path, tokenizer: Path, name: str) -> None:
    document, chunks, _ = cut(files / name, tokenizer)
    assert headings(document) == [("Start up", 1)]
    raw = (files / name).read_text(encoding="utf-8")
    assert document.text == raw and document.metadata
    assert all(raw[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert not any("---" in chunk.text for chunk in chunks)


def test_o02_a_rule_at_the_top_is_no_front_matter(files: Path, tokenizer: Path) -> None:
    document, chunks, _ = cut(files / "o02_not_frontmatter.md", tokenizer)
    assert headings(document) == [("Cooling", 2)]
    words = set(re.findall(r"\w+", document.text))
    assert words == {word for chunk in chunks for word in re.findall(r"\w+", chunk.text)}


@pytest.mark.parametrize("limit", [6, 12, 40, 200])
def test_o10_repeated_sentences_have_places_of_their_own(files: Path, tokenizer: Path, limit: int) -> None:
    document, chunks, _ = cut(files / "o10_repeats.md", tokenizer, limit)
    assert all(document.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    starts = [chunk.start for chunk in chunks]
    assert starts == sorted(set(starts))
    found = [chunk.start + match.start() for chunk in chunks for match in re.finditer(r"Check the valve\.", chunk.text)]
    if limit >= 12:  # below, the sentence itself has to be cut
        assert found == [match.start() for match in re.finditer(r"Check the valve\.", document.text)]
        assert len(found) == 4


@pytest.mark.parametrize("limit", [60, 100, 200])
def test_o11_prefix_and_header_are_in_the_budget(files: Path, tokenizer: Path, limit: int) -> None:
    document, chunks, ruler = cut(files / "o11_table_prefix.md", tokenizer, limit)
    assert all(ruler.count(embedded_text("", chunk)) <= limit for chunk in chunks)
    rows = [line for line in document.text.split("\n") if re.match(r"\|", line)]
    pieces = [line for chunk in chunks for line in chunk.text.split("\n") if line.startswith("|")]
    assert pieces == rows and len(rows) >= 60
    split_pieces = [chunk for chunk in chunks if chunk.header]
    assert split_pieces and all(chunk.header.strip() in embedded_text("", chunk) for chunk in split_pieces)


@pytest.mark.parametrize("limit", [3, 500])
def test_o12_runs_of_blanks_end_in_linear_time(files: Path, tokenizer: Path, limit: int) -> None:
    document, chunks, _ = cut(files / "o12_spaces.md", tokenizer, limit)
    words = re.findall(r"\w+", document.text)
    assert [word for chunk in chunks for word in re.findall(r"\w+", chunk.text)] == words


def test_o12_relatives_blanks_of_all_kinds(tokenizer: Path, tmp_path: Path) -> None:
    for blank in (" ", "\t", "\u00a0", "\u3000", " \u200b", "\n", " \n", "\u2028"):
        path = tmp_path / "blanks.txt"
        path.write_text(f"one{blank * 20_000}two", encoding="utf-8")
        began = time.perf_counter()
        _, chunks, _ = cut(path, tokenizer, 8)
        assert time.perf_counter() - began < 20, repr(blank)
        joined = "".join(chunk.text for chunk in chunks)
        assert "one" in joined and joined.rstrip().endswith("two")


@pytest.mark.parametrize("name", ["o13_code_layout.md", "o13_code_layout.html"])
def test_o13_code_keeps_its_layout_and_its_fences(files: Path, tokenizer: Path, name: str) -> None:
    document, chunks, _ = cut(files / name, tokenizer)
    codes = [document.text[node.start : node.end] for node in document.nodes if node.kind == "code"]
    assert codes and any("\n    " in code and "\n\n" in code for code in codes)
    for code in codes:
        assert sum(code in chunk.text for chunk in chunks) == 1
    for chunk in chunks:
        assert len(re.findall(r"^(?:```|~~~)", chunk.text, re.MULTILINE)) % 2 == 0


def test_o14_no_cut_inside_a_token_and_nothing_lost(files: Path) -> None:
    text = (files / "o14_sentences.txt").read_text(encoding="utf-8")
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    inner = {start for start, _ in spans[1:]}
    whole = ("Dr. Ames", "3.14", "9.30 a.m.", "https://example.org/a.b?c=1.5&d=x", "ops@example.org", "v1.2.3")
    for piece in (*whole, "conf.d/main.toml", "approx. 2.5", "i.e. too"):
        start = text.index(piece)
        assert not any(start < cut < start + len(piece) for cut in inner), piece
    assert 4 <= len(spans) <= 9


@pytest.mark.parametrize(
    "text",
    [
        "Prof. Kim et al. measured 1.5e-3 m vs. 2 m. They wrote it down.",
        "Siehe Abb. 3.2 auf S. 14 ff. und Dr. Roth. Dann weiter.",
        "Open https://a.example/x.y/z.html?q=1.2#s.3 now. Then wait.",
        "Use node.js 18.2.1 or Python 3.11.7. Either will do.",
        "The U.S. Navy left at 5 p.m. on Jan. 3. It came back.",
    ],
)
def test_o14_relatives_two_sentences_each(text: str) -> None:
    spans = sentences(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert len(spans) <= 2
    assert len(spans) == 1 or text[: spans[0][1]].rstrip().endswith(".")


def test_o15_a_document_without_headings_has_chunks_with_an_empty_path(files: Path, tokenizer: Path) -> None:
    document, chunks, _ = cut(files / "o15_headerless.md", tokenizer)
    assert headings(document) == [] and chunks
    assert all(chunk.heading_path == () for chunk in chunks)
    words = re.findall(r"\w+", document.text)
    assert [word for chunk in chunks for word in re.findall(r"\w+", chunk.text)] == words


def test_o15_closing_hashes_go_and_near_headings_stay_text(files: Path, tokenizer: Path) -> None:
    document, chunks, _ = cut(files / "o15_closing_hashes.md", tokenizer)
    assert headings(document) == [("Setup", 2), ("C# basics", 1), ("F#", 2)]
    last = [chunk for chunk in chunks if "Seven hashes" in chunk.text]
    assert last and "#No space, so not a heading" in "".join(chunk.text for chunk in chunks)
    assert last[0].heading_path[-1] == "F#"


def test_counts_are_summed_only_where_that_is_exact(tokenizer: Path, tmp_path: Path) -> None:
    assert Ruler(tokenizer, limit=9).additive
    Tokenizer(models.BPE()).save(str(tmp_path / "bpe.json"))
    assert not Ruler(tmp_path / "bpe.json", limit=9).additive
    unsplit = Tokenizer.from_file(str(tokenizer))
    unsplit.pre_tokenizer = pre_tokenizers.Metaspace()
    unsplit.save(str(tmp_path / "unsplit.json"))
    assert not Ruler(tmp_path / "unsplit.json", limit=9).additive
