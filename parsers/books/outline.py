"""The outline of a book in plain text: what is licence, contents and index, and which chapter each part belongs to.

Invariants:
- Every block keeps its place.
- The outline only says what it is.
- Headings are believed for what they print.
- Numbers in running text ("25.
- By daybreak …") only where they count on through most of the book's parts, so that a list of points is never taken
  for chapters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from parsers.books.citations import cited
from parsers.books.frames import (
    leave_contents_out,
    leave_index_out,
    leave_licence_out,
    leave_transcriber_out,
    note_footnotes,
)
from parsers.books.marks import BookBlock, Level
from parsers.books.numbers import choose_numerals, choose_runs, forget_doubtful
from parsers.document import TreeBuilder

LEVELS: Final = {"volume": 1, "part": 2, "work": 3, "book": 4, "chapter": 5, "numeral": 5, "section": 6, "title": 7}
_APART: Final = 3  # level of a preface or an appendix: beside the works
_BETWEEN: Final = 3  # blocks of text that may stand between a work's title and its first number
_RARE: Final = 50  # times that chapters in running text outnumber those with headings, where these are exceptions
_TAIL: Final = 0.05  # of a book; a longer end without numbers behind a line of asterisks is not the last chapter
_HEADINGS: Final = 3  # numbered headings, or two titles behind a hash, that make a text a book


def outline(text: str, blocks: list[BookBlock], volume: int | None = None) -> bool:
    """Say of each block what it heads, why it is left out, and which reference it has; False for what is no book.

    Args:
        blocks: as :func:`parsers.books.marks.marked` makes them; changed in place.
        volume: of a work whose chapters are cited by volume.
    """
    gutenberg = leave_licence_out(text, blocks)
    headed = Counter(block.level for block in blocks if block.level in ("book", "chapter"))
    hashes = sum(text.startswith("# ", block.start) for block in blocks if block.level == "title")
    if not gutenberg and max(headed.values(), default=0) < _HEADINGS and hashes < 2:
        return False
    leave_contents_out(text, blocks)
    leave_index_out(blocks, len(text))
    leave_transcriber_out(blocks)
    note_footnotes(blocks)
    forget_doubtful(blocks)
    live = [block for block in blocks if block.left_out is None]
    _promote_titles(live)
    choose_numerals(live)
    choose_runs(live)
    _keep_inside(live)
    _find_works(live)
    _refer(live, volume)
    return True


def write_book(builder: TreeBuilder, blocks: Sequence[BookBlock], author: str) -> None:
    """Put the blocks into the tree.

    Args:
        author: as the book's header names them; may be empty.
    """
    heads: list[BookBlock] = []  # the headings of the section that has no text yet
    for index, block in enumerate(blocks):
        extent = (block.start, block.end)
        if block.left_out:
            builder.leaf("paragraph", *extent, line=block.line, left_out=block.left_out)
            heads = []
        elif block.level is None:
            builder.leaf("footnote" if block.note else "paragraph", *extent, line=block.line, ref=block.ref or None)
            heads = []
        elif heads and _belongs(heads[0], block):
            builder.leaf("heading", *extent, level=_level(heads[0]), title=block.title, line=block.line)
            heads.append(block)
        else:
            heads = [block]
            title = _full_title(blocks, index)
            work = cited(author, block.title) if block.level == "work" and author else None
            builder.heading(title, _level(block), *extent, line=block.line, work=work)


def _belongs(head: BookBlock, block: BookBlock) -> bool:
    """Return whether a heading goes on the one above it: its subtitle, or the same number printed once more."""
    if block.frame or block.level == "work":
        return False
    if block.level == "title":
        return head.level not in ("title", "work") and not head.frame
    return block.level == head.level and block.number == head.number


def _full_title(blocks: Sequence[BookBlock], index: int) -> str:
    head = blocks[index]
    titles = [head.title]
    for block in blocks[index + 1 :]:
        if block.left_out or block.level is None or not _belongs(head, block):
            break
        if block.title.split()[:1] != titles[0].split()[:1]:
            titles.append(block.title)
    return ". ".join(titles)


def _level(block: BookBlock) -> int:
    return _APART if block.frame else LEVELS[block.level or "title"]


def _promote_titles(blocks: Sequence[BookBlock]) -> None:
    """Mark a line in capitals right above the first of some numbered headings as a title."""
    for block, below in pairwise(blocks):
        first = below.level in ("book", "chapter") and below.number is not None and below.number <= 1
        if first and block.level is None and block.title and not block.style:
            block.level = "title"


def _keep_inside(blocks: list[BookBlock]) -> None:
    """Tell the prefaces and notes that belong to a book or chapter from those beside the work.

    A preface right below a book's heading, or an appendix after which the chapters go on, is the book's own; notes
    after which headings go on are those to the chapter or book that ended.
    """
    following: Level | None = None  # what the next numbered heading heads
    ahead: dict[int, Level | None] = {}
    for block in reversed(blocks):
        if block.frame:
            ahead[id(block)] = following
        elif block.level in ("book", "chapter", "numeral"):
            following = block.level
    counting = False
    below = _BETWEEN + 1  # blocks of text since a heading of a book or chapter
    for block in blocks:
        if block.frame == "notes" and counting and (comes := ahead[id(block)]):
            block.frame, block.level, block.notes_to = None, "title", "book" if comes == "book" else "chapter"
        elif block.frame == "apart" and (
            below <= _BETWEEN or (counting and ahead[id(block)] in ("chapter", "numeral"))
        ):
            block.frame = None
        elif block.frame:
            counting = False
        if block.level in ("book", "chapter"):
            below = 0
        elif block.level is None:
            below += 1 + _BETWEEN * bool(block.style)
        counting = counting or block.level in ("book", "chapter", "numeral")


def _find_works(blocks: list[BookBlock]) -> None:
    """Raise titles to works where there are several: a work's title stands before numbers that begin again."""
    kinds = {_kind(block) for block in blocks}
    outer = next((kind for kind in ("book", "chapter", "numeral", "run") if kind in kinds), "")
    title: BookBlock | None = None
    between = 0
    last: int | None = None
    found: list[BookBlock] = []
    for block in blocks:
        kind = _kind(block)
        if block.level == "title" or block.frame:
            title, between = (None if block.frame else block), 0
        elif kind and kind == outer:
            begins = last is None or (block.number is not None and block.number <= last and block.number <= 2)
            if title is not None and between <= _BETWEEN and begins:
                found.append(title)
            title, last = None, block.number
        elif kind:
            title = None
        else:
            between += 1
    for block in found if len(found) > 1 else []:
        block.level = "work"


def _kind(block: BookBlock) -> str:
    """Return what a block's number counts: books, chapters by headings or numerals, or chapters in text."""
    if block.number is None:
        return ""
    return block.level or ("run" if block.style else "")


def _refer(blocks: list[BookBlock], volume: int | None) -> None:
    """Give every block the reference in force: book, chapter and section, as they are printed."""
    kinds = {_kind(block) for block in blocks}
    below = "chapter" if "chapter" not in kinds else "section"  # what a numeral that stands alone counts
    worded = _counted_through(blocks) or not kinds & {"book", "run", "numeral"}
    counted = Counter(map(_kind, blocks))
    rare = counted["chapter"] * _RARE < counted["run"]  # the one chapter with a heading among those without
    book: int | None = None
    chapter: int | None = None
    section: int | None = None
    headed = False  # whether the chapter in force has a heading, so that numbers in the text below it are sections
    ends = _ends(blocks)
    before: int | None = None  # the book that ended last
    for block in blocks:
        kind = _kind(block)
        if block.notes_to == "book":
            chapter, section, headed = None, None, False
        elif block.notes_to == "chapter":
            section = None
        if block.frame or block.level == "work" or id(block) in ends:
            book, chapter, section, headed, before = None, None, None, False, None
        elif kind == "book" and block.number != book:
            if chapter is None and book is not None and before is not None and (block.number or 0) <= before:
                continue  # a misprint below the heading of a book that was numbered right
            before, book, chapter, section, headed = book, block.number, None, None, False
        elif kind == "chapter" or (kind == "numeral" and below == "chapter"):
            chapter, section, headed = block.number, None, not (rare and kind == "chapter")
        elif kind in ("numeral", "section") or (kind == "run" and headed):
            section = block.number
        elif kind == "run":
            chapter = block.number
        block.ref = _reference(book, chapter, section, worded=worded)
        if worded and volume is not None and chapter is not None:
            block.ref = f"vol. {volume}, {block.ref}"


def _ends(blocks: list[BookBlock]) -> set[int]:
    """Lines of asterisks after which a work with numbers in its text has none any more: there somebody else speaks."""
    found: set[int] = set()
    rule: BookBlock | None = None
    for block in blocks:
        if block.level == "work" and rule is not None:
            found.add(id(rule))
        if _kind(block) or block.level == "work":
            rule = None
        elif block.rule and rule is None:
            rule = block
    if rule is not None and blocks[-1].end - rule.start > _TAIL * blocks[-1].end:
        found.add(id(rule))
    return found


def _counted_through(blocks: list[BookBlock]) -> bool:
    """Return whether the headings count chapters through the books, not anew in each."""
    firsts: list[int] = []
    begins = False
    for block in blocks:
        if block.level == "book":
            begins = True
        elif block.level == "chapter" and block.number is not None and begins:
            firsts.append(block.number)
            begins = False
    return len(firsts) > 1 and sum(first > 1 for first in firsts[1:]) * 2 > len(firsts[1:])


def _reference(book: int | None, chapter: int | None, section: int | None, *, worded: bool) -> str:
    """As a citation prints it: ``4.25``; ``ch. 9`` where chapters are headed by the word and not counted in books."""
    if worded and chapter is not None:
        return f"ch. {chapter}" + (f".{section}" if section is not None else "")
    return ".".join(str(part) for part in (book, chapter, section) if part is not None)
