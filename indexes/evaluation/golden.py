"""Golden questions: what is asked, and where in the documents the answers stand.

Invariants:
- A quote is resolved against the text that is indexed, each time.
- One that is not found exactly once is a loud error and never a miss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from parsers.errors import UsageError

LINES: Final = 5  # lines named of a quote that stands in several
_QUOTES: Final = "\"'“”„‟‘’‚‛«»‹›`´"
_DASHES: Final = "-‐‑‒–—―−"
_SPELLINGS: Final = {  # letters with the ways in which ligatures write them
    "ffi": "ffi|ﬃ|ﬀi|fﬁ",
    "ffl": "ffl|ﬄ|ﬀl|fﬂ",
    "ff": "ff|ﬀ",
    "fi": "fi|ﬁ",
    "fl": "fl|ﬂ",
    "st": "st|ﬆ|ﬅ",
}
_LIGATURES: Final = str.maketrans({"ﬃ": "ffi", "ﬄ": "ffl", "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬆ": "st", "ﬅ": "st"})
_PARTS: Final = re.compile(
    rf"(?P<space>\s+)|(?P<quote>[{_QUOTES}])|(?P<dash>[{_DASHES}])|ffi|ffl|ff|fi|fl|st|[\s\S]", re.IGNORECASE
)


class Stale(UsageError):
    """A question that does not resolve: its document is gone, or its quote is not found exactly once."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that answers a question, or a part of the answer.

    Attributes:
        doc: key of the document below the source's root.
        start, end: ``[start, end)`` in the decoded file with LF, in code points; or
        quote: the passage's words.
        groups: spans that share a label are alternatives; a span without one is a requirement of its own.
    """

    doc: str
    start: int | None = None
    end: int | None = None
    quote: str = ""
    groups: list[str] = []


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with the spans that answer it; without spans it cannot be answered from the corpus."""

    id: str
    question: str
    category: str = ""
    spans: list[Span] = []


class _Unanswerable(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question without spans is meant to be one: a field that is none may be its spans, misspelt."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A resolved span: ``[start, end)`` in a document's text."""

    doc: str
    start: int
    end: int


Requirement = list[Place]  # alternatives, one of which is enough
GoldenHit = Sequence[Place]  # where the text of a hit stands: several times where equal texts were folded into one


def load_golden(path: Path) -> list[Question]:
    """Return the questions of a file, one JSON object a line.

    Raises:
        UsageError: naming the line that is none: no JSON of a question, an id that stands twice, nothing asked, or no
            spans and a field that is none, which may be misspelt spans.
    """
    questions: dict[str, Question] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"golden set {path} is not UTF-8: {error.reason}", "Save it as UTF-8.") from error
    except OSError as error:
        raise UsageError(f"golden set {path} cannot be read: {error.strerror}", "Check the path.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = msgspec.json.decode(line, type=Question)
            if not question.spans:
                msgspec.json.decode(line, type=_Unanswerable)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path}:{number}: no golden question: {error}", "Correct that line.") from error
        if not question.id.strip() or not question.question.strip():
            raise UsageError(f"{path}:{number}: id and question must say something", "Correct that line.")
        for span in question.spans:
            if wrong := _incomplete(span):
                raise UsageError(f"{path}:{number}: span of {span.doc}: {wrong}", "Correct that line.")
        if question.id in questions:
            raise UsageError(f"{path}:{number}: the id {question.id} stands twice", "Give it another id.")
        questions[question.id] = question
    return list(questions.values())


def _incomplete(span: Span) -> str:
    """Return what a span lacks to name a passage; empty where nothing is missing."""
    if (span.start is None) != (span.end is None):
        return "it has start and no end" if span.end is None else "it has end and no start"
    if span.start is None and not span.quote.strip():
        return "it has neither a quote nor start and end"
    return ""


def requirements(question: Question, texts: Mapping[str, str]) -> list[Requirement]:
    """Return the requirements of a question.

    Args:
        texts: the indexed text of each document that a span names, by its key.

    Raises:
        Stale: when a span's document is not in the index, or its quote is not found exactly once.
    """
    alone: list[Requirement] = []
    grouped: dict[str, Requirement] = {}
    for span in question.spans:
        try:
            place = resolve_span(span, texts)
        except Stale as error:
            raise Stale(f"question {question.id}: {error.message}", error.remedy) from error
        for label in span.groups:
            grouped.setdefault(label, []).append(place)
        if not span.groups:
            alone.append([place])
    return alone + list(grouped.values())


def resolve_span(span: Span, texts: Mapping[str, str]) -> Place:
    """Return where a span stands.

    Raises:
        Stale: when its document is not in the index, or its quote is not found exactly once: where several passages
            differ in white space, case or signs alone, the one that is just as quoted counts.
    """
    if span.doc not in texts:
        raise Stale(f"document {span.doc} is not in the index", "Build the index of its source.")
    text = texts[span.doc]
    if span.start is not None and span.end is not None:
        if not 0 <= span.start < span.end <= len(text):
            raise Stale(
                f"[{span.start}, {span.end}) is not in {span.doc} of {len(text)} characters", "Correct the span."
            )
        return Place(span.doc, span.start, span.end)
    found = occurrences(span.quote, text)
    if len(found) != 1:
        lines = ", ".join(str(text.count("\n", 0, start) + 1) for start, _ in found[:LINES])
        raise Stale(
            f"its quote stands {len(found)} times in {span.doc}{f' (lines {lines})' if found else ''}: "
            f"{span.quote[:80]!r}",
            "Quote words that stand there exactly once.",
        )
    return Place(span.doc, *found[0])


def occurrences(quote: str, text: str) -> list[tuple[int, int]]:
    """Return where a quote stands; where it stands just as quoted exactly once, there alone."""
    found = [match.span() for match in quote_pattern(quote).finditer(text)] if quote.strip() else []
    exact = [place for place in found if text[place[0] : place[1]] == quote.strip()]
    return exact if len(exact) == 1 else found


def quote_pattern(quote: str) -> re.Pattern[str]:
    """Find a quote whatever its white space, quotes, dashes, ligatures and case."""
    pieces: list[str] = []
    for match in _PARTS.finditer(quote.translate(_LIGATURES).strip()):
        part = match.group()
        if match["space"]:
            pieces.append(r"\s+")
        elif match["quote"]:
            pieces.append(f"[{_QUOTES}]")
        elif match["dash"]:
            pieces.append(f"[{_DASHES}]")
        elif part.lower() in _SPELLINGS:
            pieces.append(f"(?:{_SPELLINGS[part.lower()]})")
        else:
            pieces.append(re.escape(part))
    return re.compile("".join(pieces), re.IGNORECASE)


def covers(start: int, end: int, place: Place, *, midpoint: bool) -> bool:
    """Return whether a chunk at ``[start, end)`` of the same document holds a span: all of it, or its middle."""
    if midpoint:
        return start <= (place.start + place.end) // 2 < end
    return start <= place.start and place.end <= end


def first_ranks(needed: Sequence[Requirement], hits: Sequence[GoldenHit], *, midpoint: bool) -> list[int | None]:
    """Return the 1-based rank of the first hit that covers each requirement; None where no hit does.

    Args:
        hits: by rank; each with the places of its text, of which it may have several.
    """
    ranks: list[int | None] = [None] * len(needed)
    for rank, hit in enumerate(hits, 1):
        for index, places in enumerate(needed):
            if ranks[index] is None and any(_meets(one, place, midpoint) for one in hit for place in places):
                ranks[index] = rank
        if None not in ranks:
            break
    return ranks


def _meets(chunk: Place, place: Place, midpoint: bool) -> bool:
    return chunk.doc == place.doc and covers(chunk.start, chunk.end, place, midpoint=midpoint)
