"""Work grows with a file's size and not faster, whatever is in it: counted, not timed.

What is counted: characters handed to the tokenizer, to the sentence finder and to the parsers, and calls of functions,
those written in C among them. Twice the size may take 2.2 times as much of each.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sentencex
from shapes import KINDS, generated

import chunker.sentences
import parsers.markdown.adapter
import parsers.web.dom
from chunker.chunk import embedded_text
from chunker.split import ChunkerSettings, cut
from chunker.tokens import Ruler
from parsers.registry import read

SIZE = 12_000  # characters; three windows of the sentence finder, a dozen chunks at the bound in characters
SMALLER = 4_000  # of Markdown with many short lines, which takes most calls
MOST = 2.2
LIMIT = 64  # tokens
LITTLE = 3_000  # counted work that says nothing: what a file costs however small it is


SHORT_LINES = ("one-letter lines of Markdown", "nested quotes", "brackets in lines", "lazy quote", "footnotes")
SHORT_LINES += ("deep list", "flat list", "line ends", "definitions never ended", "reference definitions", "fences")
ALWAYS = (
    "one-line JSON",
    "geojson",
    "one-line CSS",
    "one-line JavaScript",
    "base64",
    "hex",
    "glued addresses",
    "full stops",
)
ALWAYS += (
    "letters x",
    "Thai",
    "Khmer",
    "one-line Chinese",
    "Chinese without a stop",
    "one-line Japanese",
    "nested lists",
)
ALWAYS += (
    "deep quote",
    "headings with bodies",
    "headings without bodies",
    "table",
    "opening brackets",
    "emoji",
    "links",
)
ALWAYS += ("comments never closed", "bracketed numbers", "deep HTML", "backticks", "asterisks", "reference definitions")
BOTH = [kind if kind in ALWAYS else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", BOTH)
def test_twice_the_size_is_twice_the_work(kind: str, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ruler = Ruler(tokenizer, limit=LIMIT, special=0)
    base = SMALLER if kind in SHORT_LINES else SIZE
    worked(kind, base // 4, ruler, monkeypatch)  # what is imported or compiled at first use
    once, twice = (worked(kind, size, ruler, monkeypatch) for size in (base, 2 * base))
    for what, count in twice.items():
        assert count <= MOST * max(once[what], LITTLE), f"{what}: {once[what]} for {base}, {count} for twice"


def worked(kind: str, size: int, ruler: Ruler, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What parsing, cutting and putting the embedded texts together take."""
    name, data = generated(kind, size)
    counts: Counter[str] = Counter()
    ruler._words.clear()
    with monkeypatch.context() as patch:
        counting(patch, Ruler, "encode", counts, "tokenizer", 1)
        counting(patch, sentencex, "get_sentence_boundaries", counts, "sentences", 1)
        counting(patch, parsers.markdown.adapter._State, "__init__", counts, "parser", 1)
        counting(patch, parsers.web.dom, "LexborHTMLParser", counts, "parser", 0)
        with counted_calls(counts):
            document = read(name, data)
            chunks = list(cut(document, document.title or name, ruler, ChunkerSettings(note_reserve=8, overlap=12)))
            counts["embedded"] = sum(len(embedded_text("", chunk)) for chunk in chunks)
    assert document.status in ("ok", "partial", "empty"), document.reason
    assert all(len(chunk.indexed) <= 16 * LIMIT for chunk in chunks)
    return counts


def counting(patch: pytest.MonkeyPatch, owner: Any, name: str, counts: Counter[str], what: str, place: int) -> None:
    """Count the characters of one argument of a function."""
    real: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any, **others: Any) -> Any:
        counts[what] += len(arguments[place])
        return real(*arguments, **others)

    patch.setattr(owner, name, counted)


@contextmanager
def counted_calls(counts: Counter[str]) -> Iterator[None]:
    """Count the calls of functions within the block."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        counts["calls"] += calls


def test_the_counter_sees_a_quadratic_chunker(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a sentence finder that is handed the whole block again for each sentence is seen."""
    real = chunker.sentences.iterate_sentences

    def quadratic(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        for span in real(text, start, end):
            sentencex.get_sentence_boundaries("en", text[span[0] : end])
            yield span

    monkeypatch.setattr("chunker.blocks.iterate_sentences", quadratic)
    ruler = Ruler(tokenizer, limit=LIMIT, special=0)
    once, twice = (worked("prose", size, ruler, monkeypatch) for size in (SIZE, 2 * SIZE))
    assert twice["sentences"] > MOST * once["sentences"]
