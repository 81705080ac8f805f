"""Keeping a golden set: writing a question, and checking a set against an index."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

import msgspec

from enrich.files import atomic_write
from flows.evaluation.answer_spans import find_document, pin, unique_span
from flows.evaluation.golden_set import texts_of
from flows.opening import published
from flows.settings import Mode, Settings
from indexes.evaluation.golden import (
    Place,
    Question,
    Span,
    Stale,
    covers,
    load_golden,
    quote_pattern,
    requirements,
)
from indexes.evaluation.kinds import kind
from indexes.lexical.analysis import fold
from indexes.revisions.generation import open_stores, published_catalog
from parsers.errors import UsageError

LEAK: Final = 6  # words in a row that question and answer share; BM25 then finds it by the copy


def check_golden(settings: Settings, golden: Path) -> dict[str, Any]:
    """Check a golden set.

    Returns:
        ``questions``, ``answerable``, ``unanswerable``, ``by_category``, ``by_kind``; ``errors`` (``stale`` and
        ``duplicate``) and ``warnings`` (``leak``: the question repeats its answer; ``large``: no chunk holds the whole
        span; ``unreachable``: none holds its middle), each with ``id``, ``what`` and ``why``.

    Raises:
        UsageError: when the file is no golden set, or nothing is published.
    """
    from indexes.evaluation.asking import Corpus  # it loads the libraries of the metrics

    questions = load_golden(golden)
    storage, pointer = published(settings)
    texts = texts_of(storage, published_catalog(storage, pointer).rows())
    table, _ = open_stores(storage, pointer)
    chunks = Corpus(table).texts({span.doc for one in questions for span in one.spans})
    errors, warnings = [], []
    asked: dict[str, str] = {}
    for one in questions:
        words = " ".join(fold(one.question).split())
        if words in asked:
            errors.append({"id": one.id, "what": "duplicate", "why": f"asks the same as {asked[words]}"})
        asked.setdefault(words, one.id)
        try:
            needed = requirements(one, texts)
        except Stale as error:
            errors.append({"id": one.id, "what": "stale", "why": error.message})
            continue
        for place in (place for places in needed for place in places):
            if why := _uncovered(place, [chunk for _, chunk in chunks.get(place.doc, ())]):
                warnings.append({"id": one.id, **why})
            if shared := _shared(one.question, texts[place.doc][place.start : place.end]):
                warnings.append({"id": one.id, "what": "leak", "why": f"question and answer share {shared!r}"})
    answerable = sum(bool(one.spans) for one in questions)
    return {
        "golden": str(golden),
        "questions": len(questions),
        "answerable": answerable,
        "unanswerable": len(questions) - answerable,
        "by_category": dict(sorted(Counter(one.category or "none" for one in questions).items())),
        "by_kind": dict(sorted(Counter(kind(one.question) for one in questions).items())),
        "errors": errors,
        "warnings": warnings,
    }


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Where the answer to a new question stands.

    Attributes:
        document: key of the document, or its end behind a slash; empty for a hit of the question's own search.
        quote: the words that answer; all of the line, or of the hit, by default.
        line: line of the document in which they begin, from 1.
        hit: rank of the hit that answers; 0 for a question that the documents do not answer.
        mode: how to search for it.
    """

    document: str = ""
    quote: str | None = None
    line: int | None = None
    hit: int = 1
    mode: Mode = "hybrid"


def add(settings: Settings, golden: Path, question: str, answer: Answer, category: str = "") -> dict[str, Any]:
    """Write a question into a golden set, answered by a passage of a document or by a hit of its own search.

    A model is loaded for a hit alone.

    Args:
        golden: the file; it is made where it is missing.

    Returns:
        ``golden``, and ``added``: the question as it was written.

    Raises:
        UsageError: when there is no such document, line or hit, or the quote does not stand there, or stands there
            several times; or the question is in the set already.
    """
    questions = load_golden(golden) if golden.exists() else []
    if not question.strip():
        raise UsageError("the question is blank", "Ask something.")
    if any(fold(one.question).split() == fold(question).split() for one in questions):
        raise UsageError(f"golden set {golden} asks that already: {question}", "Ask something else.")
    spans = [_span(settings, question, answer)] if answer.hit or answer.document else []
    numbers = [int(one.id[1:]) for one in questions if one.id[:1] == "q" and one.id[1:].isdigit()]
    made = Question(id=f"q{max(numbers, default=0) + 1:03d}", question=question, category=category, spans=spans)
    line = msgspec.json.encode(made)
    try:
        before = golden.read_bytes() if golden.exists() else b""
        atomic_write(golden, before + (b"\n" if before and not before.endswith(b"\n") else b"") + line + b"\n")
    except OSError as error:
        raise UsageError(f"golden set {golden} cannot be written: {error.strerror}", "Check the path.") from error
    return {"golden": str(golden), "added": msgspec.to_builtins(made)}


def _span(settings: Settings, question: str, answer: Answer) -> Span:
    storage, pointer = published(settings)
    texts = texts_of(storage, published_catalog(storage, pointer).rows())
    if answer.document:
        key = find_document(answer.document, texts)
        return pin(key, texts[key], answer.quote, answer.line)
    from flows.searching import open_searcher  # it loads what only a search needs

    hits = open_searcher(settings, answer.mode).search(question, answer.mode, k=answer.hit)
    if len(hits) < answer.hit:
        raise UsageError(f"the search gave {len(hits)} hits, not {answer.hit}", "Name a lower rank, or another --mode.")
    found = hits[answer.hit - 1]
    quote = answer.quote or found.text.strip()
    match = quote_pattern(quote).search(found.text)
    if match is None:
        raise UsageError(
            f"the quote does not stand in hit {answer.hit}, {found.key} ({found.locator})",
            "Quote words of that hit, name another with --hit, or its document with --doc.",
        )
    return unique_span(found.key, texts[found.key], found.start + match.start(), found.start + match.end(), quote)


def _uncovered(place: Place, chunks: Sequence[Place]) -> dict[str, str] | None:
    """Why no search can find all of a span."""
    where = f"[{place.start}, {place.end}) of {place.doc}"
    if not any(covers(chunk.start, chunk.end, place, midpoint=True) for chunk in chunks):
        return {"what": "unreachable", "why": f"the middle of {where} is in no chunk: a part that is left out"}
    if not any(covers(chunk.start, chunk.end, place, midpoint=False) for chunk in chunks):
        return {"what": "large", "why": f"no chunk holds all of {where}, so full cover never finds it"}
    return None


def _shared(question: str, answer: str) -> str:
    """Return the words in a row that a question has from its answer; empty when they are too few to tell it."""
    one, other = re.findall(r"\w+", fold(question)), re.findall(r"\w+", fold(answer))
    found = SequenceMatcher(None, one, other, autojunk=False).find_longest_match()
    return " ".join(one[found.a : found.a + found.size]) if found.size >= LEAK else ""
