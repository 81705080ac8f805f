"""The chunker's invariants over every real file at hand, with the default ruler."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chunker.blocks import regions
from chunker.chunk import Chunk, chunk_ids, document_id, embedded_text
from chunker.kept import Kept
from chunker.sentences import sentences
from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from flows.models.ruler import chunker_settings, open_ruler
from flows.settings import load_settings
from parsers.document import Document, leaves, left_out
from parsers.errors import GristmillError
from parsers.registry import read

_NON_BLANK = re.compile(r"\S+")


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
        assert chunk.tokens == ruler.count(chunk.indexed)
        assert ruler.count(embedded_text("", chunk)) <= ruler.room - how.note_reserve or chunk.tokens <= 1, chunk
    ids = chunk_ids(document_id("default", name), chunks)
    assert len(set(ids)) == len(ids)
    return chunks


def check_cover(document: Document, chunks: list[Chunk]) -> None:
    """Every non-blank character outside the left-out parts is indexed with a chunk, and none inside them."""
    indexed = indexed_places(document, chunks)
    reasons = left_out(document)
    for index in leaves(document):
        for run in _NON_BLANK.finditer(document.text, *document.nodes[index].extent):
            expected = 0 if reasons[index] is not None else run.end() - run.start()
            assert indexed.count(1, *run.span()) == expected, document.text[run.start() : run.start() + 80]


def indexed_places(document: Document, chunks: list[Chunk]) -> bytearray:
    """One for each character of the text that is indexed."""
    indexed = bytearray(len(document.text))
    for chunk in chunks:
        indexed[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
        for low, high in chunk.gaps:
            indexed[chunk.start + low : chunk.start + high] = bytes(high - low)
    return indexed


def check_sections(document: Document, chunks: list[Chunk]) -> None:
    """A chunk's parts, headings without a body apart, stand in one section; what is left out is no body."""
    reasons = left_out(document)
    owners: list[int] = []
    for index, node in enumerate(document.nodes):
        owners.append(index if node.kind == "section" else owners[node.parent] if node.parent >= 0 else -1)
    bodies = [
        (*document.nodes[index].extent, owners[index])
        for index in leaves(document)
        if document.nodes[index].kind != "heading"
        and reasons[index] is None
        and document.text[slice(*document.nodes[index].extent)].strip()
    ]
    first = 0
    for chunk in chunks:
        while first < len(bodies) and bodies[first][1] <= chunk.start:
            first += 1
        here = {owner for start, end, owner in takewhile_before(bodies, first, chunk.end) if end > chunk.start}
        assert len(here) <= 1, chunk


def check_sentences(document: Document, chunks: list[Chunk]) -> None:
    """A chunk that says of no cut ends where a part of the document ends, or a sentence of it."""
    kept = Kept(document)
    indexed = indexed_places(document, chunks)
    units = [unit for region in regions(document, kept, "") for unit in region.units]
    spans = [kept.span(unit.start, unit.end) for unit in units]
    starts = [start for start, _ in spans]
    for chunk in chunks:
        at = max(0, bisect_right(starts, chunk.end) - 1)
        unit = units[at]
        if chunk.cut or not spans[at][0] < chunk.end < spans[at][1]:
            continue
        assert unit.kind not in ("code", "table", "heading"), chunk
        found = sentences(kept.text[unit.start : unit.end])
        ends = [kept.span(unit.start + start, unit.start + stop)[1] for start, stop in found]
        behind = (run for run in _NON_BLANK.finditer(document.text, chunk.end) if indexed[run.start()])
        following = next(behind, None)
        assert any(chunk.end <= stop and (following is None or stop <= following.start()) for stop in ends), chunk


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
