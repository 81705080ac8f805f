"""Plain text, and everything that is read as plain text: source code, data, configuration, logs.

Invariants:
- The text is the decoded file, character for character, but for the line ends that hard wrapping put into prose: each
  of those is a space.
- So offsets in the text are offsets in the decoded file.

A paragraph is what stands between blank lines. Its lines are joined only where it is plainly wrapped prose: nearly
every line goes on until the next word would not have fitted. Tables, lists, verse, addresses and code keep theirs.
Code, data and logs are one ``code`` part, so that they are cut between lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from statistics import median
from typing import Final

import msgspec

from parsers.books import outline
from parsers.books.citations import cited, volume
from parsers.books.marks import BookBlock, marked
from parsers.decoding import Decoded, decode, source_charset, xml_charset
from parsers.document import Document, TreeBuilder
from parsers.languages import LANGUAGES
from parsers.references import in_xml

_Span = tuple[int, int]

_CODE: Final = {f"text/x-{language}": language for language in LANGUAGES.values()} | {
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/json": "json",
    "application/x-ndjson": "json",
    "application/xml": "xml",
    "application/yaml": "yaml",
    "application/toml": "toml",
    "text/x-log": "log",
}

_BLANK: Final = re.compile(r"\n\s*\n")
_TWO_BLANK: Final = re.compile(r"\n(?:[^\S\n]*\n){2,}")
_LEADING: Final = re.compile(r"(?:\s*\n)?")

_NARROWEST, _WIDEST = 40, 120  # columns between which text is taken to be hard-wrapped
_USUAL: Final = 72  # columns, where a file has too few wrapped paragraphs to tell
_RAGGED: Final = 10  # columns that a line may stay short of the width: people wrap by eye
_ENOUGH: Final = 4  # lines from which a paragraph proves its own width
_FULL: Final = 0.8  # share of the lines that must be full
_MOSTLY_FULL: Final = 0.5  # the same where the lines go on in small letters, as wrapped sentences do
_PROSE, _VERSE = 0.4, 0.75  # shares of lines that begin with a capital: at most in the one, at least in the other
_SAMPLED: Final = 2000  # paragraphs that decide a file's width

_OPENING: Final = " \t\"'“‘([_*"  # what may stand before a line's first letter
_COLUMN_MARKS: Final = ("\t", "   ", "|", "│", "┃", "║")
_COLUMNS: Final = re.compile(r"\S(?:\t| {3,})(?=\S)|[|│┃║]")
# Bullets, numbers, letters, marks of quotes and comments, and the dates and times that lines of a log begin with.
_ITEM: Final = re.compile(
    r"^[ \t]*(?:[-*+•–—>#|]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|[\[(]?\d{1,4}[-/.:]\d{1,2}[-/.:]\S*)\s", re.MULTILINE
)
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uff01-\uff60。、]\s*\n")  # scripts without spaces

_FIELD: Final = re.compile(r"^(Title|Author|Translator|Editor|Illustrator|Release [Dd]ate|Language): *(\S.*)$", re.M)
_HEADER_ROOM: Final = 10_000  # characters in which a header must stand
_CONTINUED: Final = re.compile(r"\n[ \t]+(\S.*)")


def parse(data: bytes, media_type: str = "text/plain") -> Document:
    """Read a file of text.

    Args:
        media_type: what it is; decides whether it is prose, code or lines.

    Raises:
        BrokenDocument: when its encoding is unknown.
    """
    language = _CODE.get(media_type)
    charset = xml_charset(data) if language == "xml" else source_charset(data) if language else None
    decoded = decode(data, charset)
    if language is not None:
        return _read_code(decoded, language, media_type)
    return _read_plain(decoded, media_type)


def _read_code(decoded: Decoded, language: str, media_type: str) -> Document:
    text = decoded.text
    builder = TreeBuilder(text)
    if text.strip():
        start = _LEADING.match(text).end()  # type: ignore[union-attr]  # it matches the empty string too
        builder.leaf("code", start, len(text.rstrip()), language=language, line=text.count("\n", 0, start) + 1)
    document = builder.finish(metadata=decoded.metadata, media_type=media_type, problems=decoded.problems)
    return msgspec.structs.replace(document, references=tuple(in_xml(text))) if language == "xml" else document


def _read_plain(decoded: Decoded, media_type: str) -> Document:
    source = decoded.text
    doubled = _doubled(source)
    separator = _TWO_BLANK if doubled else _BLANK
    doubling = 2 if doubled else 1
    prose = media_type == "text/plain"
    width = _width(source, separator) if prose else 0
    pieces: list[str] = []
    blocks: list[BookBlock] = []
    position, line = 0, 1
    for start, end in _blocks(source, separator):
        between = source.count("\n", position, start)
        line += between
        block = source[start:end]
        pieces.append(source[position:start])
        pieces.append(block.replace("\n", " ") if prose and "\n" in block and _wrapped(block, width) else block)
        if prose:
            blocks += marked(source, start, end, line, (between - 1) // doubling)
        else:
            blocks.append(BookBlock(start, end, line, 1))
        position = end
        line += block.count("\n")
    pieces.append(source[position:])
    builder = TreeBuilder("".join(pieces))
    header = _header(source) if prose else {}
    author, full_title = header.get("author", ""), header.pop("title", "")
    title = " ".join(full_title.split())
    is_book = prose and outline.outline(source, blocks, volume(title))
    if is_book:
        outline.write_book(builder, blocks, author)
    else:
        for part in blocks:
            builder.leaf("paragraph", part.start, part.end, line=part.line)
    return builder.finish(
        title=title,
        work=cited(author, full_title) if is_book and title and author else "",
        metadata=header | decoded.metadata,
        media_type=media_type,
        problems=decoded.problems,
    )


def _blocks(text: str, separator: re.Pattern[str]) -> Iterator[_Span]:
    """``[start, end)`` of what stands between blank lines, the first line's indentation included."""
    start = _LEADING.match(text).end()  # type: ignore[union-attr]  # it matches the empty string too
    for gap in separator.finditer(text, start):
        if gap.start() > start:
            yield start, gap.start()
        start = gap.end()
    end = len(text.rstrip())
    if end > start:
        yield start, end


def _wrapped(block: str, width: int) -> bool:
    """Return whether a paragraph of several lines is hard-wrapped prose, so that its line ends mean nothing.

    Args:
        width: columns that the file is wrapped to.
    """
    lines = [line.rstrip() for line in block.split("\n") if line.strip()]
    if len(lines) < 2:
        return len(lines) == 1
    lengths = list(map(len, lines))
    if max(lengths) < _NARROWEST or _share_over(lengths, _WIDEST) > 0.1 or _structured(block, lines):
        return False
    firsts = [line.lstrip(_OPENING)[:1] for line in lines[1:]]
    capitals = sum(map(str.isupper, firsts)) / len(firsts)
    if len(lines) >= _ENOUGH and capitals >= _VERSE:
        return False
    reach = _reach(lines, lengths)
    enough = _FULL if capitals > _PROSE else _MOSTLY_FULL
    if _share_over(reach, max(width, _NARROWEST) - _RAGGED) >= enough:
        return True
    return len(lines) >= _ENOUGH and _share_over(reach, max(lengths)) >= _FULL


def _structured(block: str, lines: list[str]) -> bool:
    """Return whether the lines are columns or items, or in a script that takes no space at a line end."""
    if any(mark in block for mark in _COLUMN_MARKS) and len(_COLUMNS.findall(block)) * 4 > len(lines):
        return True
    if not block.isascii() and _UNSPACED.search(block):
        return True
    return len(_ITEM.findall(block)) > max(1, len(lines) // 10)


def _reach(lines: list[str], lengths: list[int]) -> list[int]:
    """Return how long each line but the last would be with the next line's first word on it."""
    words = (line.split(None, 1)[0] for line in islice(lines, 1, None))
    return [length + 1 + len(word) for length, word in zip(lengths, words, strict=False)]


def _share_over(reach: list[int], width: int) -> float:
    return sum(columns > width for columns in reach) / len(reach)


def _width(text: str, separator: re.Pattern[str]) -> int:
    """Columns that a file is wrapped to: the middle one of its paragraphs that prove a width."""
    widths: list[int] = []
    for start, end in islice(_blocks(text, separator), _SAMPLED):
        lines = [line.rstrip() for line in text[start:end].split("\n") if line.strip()]
        if len(lines) < _ENOUGH:
            continue
        lengths = list(map(len, lines))
        width = max(lengths)
        if _NARROWEST <= width <= _WIDEST and _share_over(_reach(lines, lengths), width) >= _FULL:
            widths.append(width)
    return int(median(widths)) if len(widths) >= _ENOUGH else _USUAL


def _doubled(text: str) -> bool:
    """Whether a blank line follows each line, as bad transfers leave it, so that two blank lines end a paragraph."""
    head = text[:200_000]
    spans = list(_blocks(head, _BLANK))
    if len(spans) < 2 * _ENOUGH or any("\n" in head[start:end] for start, end in spans):
        return False
    gaps = Counter(head.count("\n", end, start) for (_, end), (start, _) in pairwise(spans))
    lines = [head[start:end].rstrip() for start, end in spans]
    lengths = list(map(len, lines))
    wide = sorted(lengths)[len(lengths) * 95 // 100]
    follows = [columns > wide - _RAGGED for columns in _reach(lines, lengths)]
    return gaps[2] >= 0.6 * len(follows) and _NARROWEST <= wide <= _WIDEST and sum(follows) >= 0.6 * len(follows)


def _header(text: str) -> dict[str, str]:
    """Return the fields of a header such as Project Gutenberg's (``Title:``, ``Author:`` …), by lower-case name.

    Each on one line, but for the title, which keeps its lines: the first is often all that a citation names.
    """
    head = text[:_HEADER_ROOM]
    found: dict[str, str] = {}
    for field in _FIELD.finditer(head):
        value = [field[2]]
        position = field.end()
        while continued := _CONTINUED.match(head, position):
            value.append(continued[1])
            position = continued.end()
        name, separator = field[1].lower().replace(" ", "_"), "\n" if field[1] == "Title" else " "
        found.setdefault(name, separator.join(" ".join(line.split()) for line in value))
    return found if len(found) > 1 or "Project Gutenberg" in head else {}
