"""The chunker's invariants over every real file at hand, with the default ruler."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chunker.blocks import regions
from chunker.chunk import Chunk, chunk_ids, document_id, embedded_text
from chunker.sentences import sentences
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from flows.ruler import chunker_settings, open_ruler
from flows.settings import load_settings
from parsers.document import Document, leaves, left_out
from parsers.errors import GristmillError
from parsers.registry import read


@pytest.fixture(scope="module")
def cutting() -> tuple[Ruler, ChunkerSettings]:
    settings = load_settings()
    try:
        return open_ruler(settings), chunker_settings(settings)
    except GristmillError as error:
        pytest.skip(f"needs the default embedder's tokenizer: {error}")


def check_invariants(document: Document, name: str, ruler: Ruler, how: ChunkerSettings) -> list[Chunk]:
    """Invariants 1 to 5 of DESIGN.md, in time linear in the document."""
    title = document.title or name
    chunks = split(document, title, ruler, how)
    assert chunks == split(document, title, ruler, how)
    for before, after in pairwise(chunks):
        assert before.end <= after.start
    assert all(chunk.text == document.text[chunk.start : chunk.end] for chunk in chunks)
    check_cover(document, chunks)
    check_sections(document, chunks)
    check_sentences(document, chunks)
    for chunk in chunks:
        assert chunk.tokens == ruler.count(chunk.text)
        assert ruler.count(embedded_text("", chunk)) <= ruler.room - how.note_reserve or chunk.tokens <= 1, chunk
    ids = chunk_ids(document_id("default", name), chunks)
    assert len(set(ids)) == len(ids)
    return chunks


def check_cover(document: Document, chunks: list[Chunk]) -> None:
    """Every non-blank character outside the left-out parts stands in a chunk, and none inside them."""
    reasons = left_out(document)
    spans = iter([*((chunk.start, chunk.end) for chunk in chunks), (len(document.text) + 1, len(document.text) + 1)])
    start, end = next(spans)
    for index in leaves(document):
        low, high = document.nodes[index].extent
        text = document.text[low:high]
        position = low + len(text) - len(text.lstrip())
        last = low + len(text.rstrip())
        while position < last:
            while end <= position:
                start, end = next(spans)
            if reasons[index] is not None:
                assert start >= last, document.text[max(start, low) : max(start, low) + 80]
                break
            assert start <= position, document.text[position : position + 80]
            rest = document.text[end:last]
            position = end + len(rest) - len(rest.lstrip()) if end < last else last


def check_sections(document: Document, chunks: list[Chunk]) -> None:
    """A chunk's parts, headings without a body apart, stand in one section."""
    owners: list[int] = []
    for index, node in enumerate(document.nodes):
        owners.append(index if node.kind == "section" else owners[node.parent] if node.parent >= 0 else -1)
    bodies = [
        (*document.nodes[index].extent, owners[index])
        for index in leaves(document)
        if document.nodes[index].kind != "heading" and document.text[slice(*document.nodes[index].extent)].strip()
    ]
    first = 0
    for chunk in chunks:
        while first < len(bodies) and bodies[first][1] <= chunk.start:
            first += 1
        here = {owner for start, end, owner in takewhile_before(bodies, first, chunk.end) if end > chunk.start}
        assert len(here) <= 1, chunk


def check_sentences(document: Document, chunks: list[Chunk]) -> None:
    """A chunk that says of no cut ends where a part of the document ends, or a sentence of it."""
    units = [unit for region in regions(document, "") for unit in region.units]
    starts = [unit.start for unit in units]
    for chunk in chunks:
        unit = units[max(0, bisect_right(starts, chunk.end) - 1)]
        if chunk.cut or not unit.start < chunk.end < unit.end:
            continue
        assert unit.kind not in ("code", "table", "heading"), chunk
        ends = {unit.start + stop for _, stop in sentences(document.text[unit.start : unit.end])}
        following = document.text[chunk.end : unit.end]
        blank = len(following) - len(following.lstrip())
        assert any(chunk.end <= stop <= chunk.end + blank for stop in ends), chunk


def takewhile_before(bodies: list[tuple[int, int, int]], first: int, end: int) -> Iterator[tuple[int, int, int]]:
    while first < len(bodies) and bodies[first][0] < end:
        yield bodies[first]
        first += 1


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".tsv", ".jsonl"))


@pytest.mark.parametrize("place", ["realdocs", "cases/files", "bench/chunking/corpora"])
def test_invariants_over_real_files(shared: Path, cutting: tuple[Ruler, ChunkerSettings], place: str) -> None:
    cut = 0
    for path in files(shared / place):
        document = read(path.name, path.read_bytes())
        cut += len(check_invariants(document, path.name, *cutting))
    assert cut > 50


def test_invariants_over_source_code(shared: Path, cutting: tuple[Ruler, ChunkerSettings]) -> None:
    for line in (shared / "bench/codebase/documents.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        check_invariants(read(one["key"], one["text"].encode()), one["key"], *cutting)


BOOKS = ("10657.txt", "1170.txt", "11607.txt", "2850.txt", "6400.txt", "900001.txt")


@pytest.mark.parametrize("name", BOOKS)
def test_invariants_over_books(shared: Path, cutting: tuple[Ruler, ChunkerSettings], name: str) -> None:
    check_invariants(read(name, (shared / "corpora/ancient-history/books" / name).read_bytes()), name, *cutting)


@pytest.mark.slow
def test_invariants_over_all_books(shared: Path, cutting: tuple[Ruler, ChunkerSettings]) -> None:
    for path in files(shared / "corpora/ancient-history/books"):
        check_invariants(read(path.name, path.read_bytes()), path.name, *cutting)
