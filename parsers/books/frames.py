"""The frame around a book's text: the licence, lists of contents, the index, the notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from parsers.books.marks import BookBlock

_START: Final = re.compile(r"\s*\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG")
_END: Final = re.compile(r"\s*\*{3} ?END OF (?:THE|THIS) PROJECT GUTENBERG")
_LAST_WORDS: Final = re.compile(r"\s*End of (?:the )?Project Gutenberg")
_CREDITS: Final = re.compile(r"\s*(?:\[?(?:Produced|E-text prepared|Etext prepared|This etext was produced) by)", re.I)
_PAGE: Final = re.compile(r"[\s.]*(?:\d{1,4}|[ivxlc]{1,6})\s*$")

_FIRST_ENTRIES: Final = 6  # entries of a list of contents, one of which must come again where the text begins
_CONTENTS_SHARE: Final = 0.12  # of the text that a list of contents takes at most
_SEARCHED: Final = 4  # times the length of a text that may be spent on finding the ends of its lists
_ENTRY: Final = 80  # code points of a line in a list that has no page number
_LISTED: Final = 8_000  # code points that a list of contents takes at most for each heading that it names
_INDEX_AFTER: Final = 0.4  # share of the text before an index


def leave_licence_out(text: str, blocks: list[BookBlock]) -> bool:
    """Mark Project Gutenberg's own words; whether there are any."""
    start = next((i for i, block in enumerate(blocks) if _START.match(text, block.start)), None)
    end = next((i for i in range(len(blocks) - 1, -1, -1) if _END.match(text, blocks[i].start)), None)
    if start is not None:
        while start + 1 < len(blocks) and _CREDITS.match(text, blocks[start + 1].start):
            start += 1
        for block in blocks[: start + 1]:
            block.left_out = "licence"
    if end is not None:
        for block in blocks[end:]:
            block.left_out = "licence"
    for block in blocks:
        if block.left_out is None and _LAST_WORDS.match(text, block.start, block.start + 80):
            block.left_out = "licence"
    for block in blocks:
        if block.left_out:
            block.forget()
    return start is not None or end is not None


def leave_contents_out(text: str, blocks: list[BookBlock]) -> None:
    index, room = 0, _SEARCHED * len(text)  # so that many lists do not take the square of the text
    while index < len(blocks) and room > 0:
        if blocks[index].frame == "contents" and blocks[index].left_out is None:
            end, seen = _contents_end(text, blocks, index)
            room -= seen - blocks[index].start
            for block in blocks[index:end]:
                block.left_out = "contents"
                block.forget()
            index = end
        index += 1


def _contents_end(text: str, blocks: list[BookBlock], first: int) -> tuple[int, int]:
    """Index of the block where the text begins, the first that one of the first entries names; how far was looked."""
    limit = blocks[first].start + int(_CONTENTS_SHARE * len(text)) + 4000
    entries: set[tuple[object, ...]] = set()
    book: int | None = None
    headings = 0
    for index in range(first + 1, len(blocks)):
        block, met = blocks[index], index - first - 1
        if block.start > limit or block.left_out:
            break
        headings += block.level not in (None, "title", "numeral")
        if block.level == "book":
            book = block.number
        for key in _keys(text, block, book):
            if met and key in entries and _stands_alone(text, block):
                listed = block.start - blocks[first].start
                end = index if listed < _LISTED * (headings + 1) else _list_end(text, blocks, first)
                return end, max(block.start, blocks[end - 1].end)
            if met < _FIRST_ENTRIES:
                entries.add(key)
    end = _list_end(text, blocks, first)
    return end, max(limit, blocks[end - 1].end)


def _stands_alone(text: str, block: BookBlock) -> bool:
    """Return whether a block is a heading rather than a line of a list with its page number."""
    return block.frame != "notes" and not re.search(r"\s{3,}[\divxlc]+$", text[block.start : block.end].rstrip())


def _keys(text: str, block: BookBlock, book: int | None) -> Iterator[tuple[object, ...]]:
    """Return the form that a line of contents shares with the heading it names."""
    if block.level in ("book", "chapter", "part", "volume", "section"):
        yield (block.level, block.number, book if block.level != "book" else None)
        return
    if block.end - block.start > 200 or block.frame == "notes":
        return
    for line in text[block.start : block.end].split("\n")[:2]:
        words = "".join(filter(str.isalpha, _PAGE.sub("", line))).casefold()
        if len(words) > 4 and not words.startswith("page"):
            yield (words,)


def _list_end(text: str, blocks: list[BookBlock], first: int) -> int:
    """Where a list ends that names nothing that comes again: at the first heading or the first full paragraph."""
    for index in range(first + 1, len(blocks)):
        block = blocks[index]
        if block.left_out or (block.gap >= 3 and index > first + 3) or block.frame == "apart":
            return index
        if not _listed(text, block):  # and the heading right above it, if there is one, is its own
            return index - (index > first + 1 and blocks[index - 1].level in ("book", "chapter", "numeral"))
    return len(blocks)


def _listed(text: str, block: BookBlock) -> bool:
    """Return whether a block may be a line of a list: short, or with page numbers at the ends of its lines."""
    body = text[block.start : block.end]
    pages = [bool(_PAGE.search(line)) for line in body.split("\n")]
    return len(body) < _ENTRY or sum(pages) * 3 >= len(pages)


def leave_index_out(blocks: list[BookBlock], length: int) -> None:
    """Mark the index: from its heading in the later part of the book to notes, an appendix or the next chapter."""
    after = _INDEX_AFTER * length
    _leave_out(
        blocks,
        "index",
        lambda block: block.frame == "index" and block.start > after,
        lambda block: block.note or block.frame in ("notes", "apart") or block.level in ("book", "chapter"),
    )


def leave_transcriber_out(blocks: list[BookBlock]) -> None:
    """Mark the notes of those who made the file: up to the next heading."""
    _leave_out(
        blocks, "transcriber's notes", lambda block: block.frame == "transcriber", lambda block: block.level is not None
    )


def _leave_out(
    blocks: list[BookBlock], reason: str, begins: Callable[[BookBlock], bool], ends: Callable[[BookBlock], bool]
) -> None:
    inside = False
    for block in blocks:
        if begins(block):
            inside = True
        elif inside and (block.left_out or ends(block)):
            inside = False
        if inside:
            block.left_out = block.left_out or reason
            block.forget()


def note_footnotes(blocks: list[BookBlock]) -> None:
    """Mark what stands below a heading such as FOOTNOTES: no chapter begins there."""
    inside = False
    seen: set[str] = set()  # titles of the text, which head the notes to it once more
    for block in blocks:
        again = block.level == "title" and block.title in seen
        seen.add(block.title)
        if block.frame == "notes":
            inside = True
        elif (block.level in ("book", "chapter", "part", "volume", "title") and not again) or block.left_out:
            inside = False
        if (inside and block.frame != "notes") or block.note:
            block.note = True
            block.forget()
