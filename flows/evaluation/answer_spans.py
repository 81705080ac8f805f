"""Where the answer to a golden question stands, told by a person: a document and a quote or a line of it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from indexes.evaluation.golden import LINES, Span, occurrences
from parsers.errors import UsageError

WIDER: Final = 5  # lines before and after by which a quote is widened until it stands only once


def find_document(name: str, texts: Mapping[str, str]) -> str:
    """Return the key of a document by its key or the end of it.

    Raises:
        UsageError: when there is none, or several.
    """
    if name in texts:
        return name
    found = [key for key in texts if key.endswith(f"/{name.lstrip('/')}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"{len(found)} documents end with {name}: {', '.join(sorted(found)[:LINES])}", "Name more of the key."
        )
    close = get_close_matches(name, list(texts), n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(f"document {name} is not in the index{meant}", "Give its key, as `search` shows it.")


def pin(key: str, text: str, quote: str | None, line: int | None) -> Span:
    """Return the span of a quote, or of a line, in a document.

    Args:
        line: in which the quote begins, from 1; it tells a quote from others like it.

    Raises:
        UsageError: when neither is given, or there is no such line or quote, or several quotes are left.
    """
    if line is not None:
        start, end = _line(key, text, line)
        if quote is None:
            return unique_span(key, text, start, end, text[start:end].strip())
    if quote is None:
        raise UsageError("the answer is not named", "Give its words with --quote, or its line with --line.")
    found = occurrences(quote, text)
    if line is not None:
        found = [place for place in found if start <= place[0] <= end]
    if not found:
        where = f"line {line} of {key}" if line is not None else key
        raise UsageError(f"the quote does not stand in {where}: {quote[:80]!r}", "Copy it from the document.")
    if len(found) > 1:
        lines = [text.count("\n", 0, place[0]) + 1 for place in found]
        shown = ", ".join(map(str, lines[:LINES])) + (" …" if len(lines) > LINES else "")
        raise UsageError(
            f"the quote stands {len(found)} times in {key} (lines {shown}): {quote[:80]!r}",
            "Name one with --line, or quote more words.",
        )
    return unique_span(key, text, *found[0], quote)


def unique_span(key: str, text: str, start: int, end: int, quote: str) -> Span:
    """Return a span for the passage ``[start, end)``: its words where they stand once, wider ones, or its offsets."""
    for wanted in (quote.strip(), text[start:end], *_wider(text, start, end)):
        if occurrences(wanted, text) == [(start, end)] or (
            len(found := occurrences(wanted, text)) == 1 and found[0][0] <= start and end <= found[0][1]
        ):
            return Span(doc=key, quote=wanted)
    return Span(doc=key, start=start, end=end)


def _wider(text: str, start: int, end: int) -> list[str]:
    """Return the lines around a passage, more and more of them."""
    found = []
    for _ in range(WIDER):
        start = text.rfind("\n", 0, max(0, start - 1)) + 1
        after = text.find("\n", min(len(text), end + 1))
        end = len(text) if after < 0 else after
        found.append(text[start:end].strip())
    return found


def _line(key: str, text: str, number: int) -> tuple[int, int]:
    lines = text.split("\n")
    if not 1 <= number <= len(lines) or not lines[number - 1].strip():
        what = "is blank" if 1 <= number <= len(lines) else f"is not in its {len(lines)} lines"
        raise UsageError(f"line {number} of {key} {what}", "Name a line of the text, as `gristmill inspect` shows it.")
    start = sum(len(line) + 1 for line in lines[: number - 1])
    return start, start + len(lines[number - 1])
