"""Which numbers in a book are its chapters: those that count on, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from parsers.books.marks import BookBlock, Level

_ENOUGH: Final = 5  # chapter numbers from which a way of printing them can be told
_LONG: Final = 8  # blocks from which a part of a book should have chapter numbers
_SPREAD: Final = 0.5  # share of the long parts that must have numbers
_DENSE: Final = 0.08  # share of a part's blocks that must begin a chapter
_SKIPPED: Final = 12  # numbers that may be missing where the next two count on


def forget_doubtful(blocks: list[BookBlock]) -> None:
    """Drop what looks like a heading but not like the others: "Book 36. Mediceus A" beside forty "BOOK IX"."""
    machine = {block.level for block in blocks if block.machine}
    for level in ("book", "chapter"):
        these = [block for block in blocks if block.level == level and not block.machine]
        upper = [block for block in these if block.title[:4].isupper()]
        for block in these:
            alone = len(block.title) < 24 and " " in block.title and block.title.count(" ") == 1
            if len(upper) >= 3 and not block.title[:4].isupper() and not alone:
                block.forget()
            if level in machine and block.number is not None and level == "chapter" and not block.machine:
                block.level = "title"  # the edition's own heading, beside the program's


def choose_numerals(blocks: list[BookBlock]) -> None:
    """Numerals that stand alone are chapters where they count on; otherwise they are text."""
    numerals = [block for block in blocks if block.level == "numeral"]
    accepted = _accepted([block for block in blocks if block.level], "numeral")
    keep = len(accepted) >= _ENOUGH and len(accepted) * 2 >= len(numerals)
    for block in numerals:
        if not keep or id(block) not in accepted:
            block.forget()
    heads = [block for block in blocks if block.level in ("book", "numeral")]
    repeated = sum(a.level == "numeral" and b.level == "book" and a.number == b.number for a, b in pairwise(heads))
    if keep and repeated * 2 > len(accepted):
        for block in heads:
            block.level = "book"  # the number of the book, above its heading


def choose_runs(blocks: list[BookBlock]) -> None:
    """Of the ways to print chapter numbers in running text, keep the one that counts on through the book's parts.

    One that stands in front of short titles ("IV. Magic and Religion") makes headings; then another may stand below it.
    """
    while True:
        best: set[int] = set()
        for style in sorted({block.style for block in blocks if block.style and block.level is None}):
            accepted = _accepted(blocks, style)
            candidates = sum(_counts(block, style) for block in blocks)
            enough = len(accepted) >= _ENOUGH and len(accepted) * 2 >= candidates
            sure = _titled(blocks, accepted) and len(accepted) * 10 >= candidates * 9
            if enough and len(accepted) > len(best) and (sure or _spread(blocks, accepted) >= _SPREAD):
                best = accepted
        chosen = [block for block in blocks if id(block) in best]
        if not chosen or not _titled(blocks, best):
            break
        level: Level = "section" if any(block.level == "chapter" for block in blocks) else "chapter"
        for block in chosen:
            block.level, block.style = level, ""
    for block in blocks:
        if block.style and id(block) not in best:
            block.forget()


def _counts(block: BookBlock, style: str) -> bool:
    """Return whether a block has a number printed in this way; ``numeral`` is one that stands alone."""
    return block.level == "numeral" if style == "numeral" else block.style == style and block.level is None


def _accepted(blocks: Sequence[BookBlock], style: str) -> set[int]:
    """Return the blocks whose numbers count on from one, within each part of the book."""
    accepted: set[int] = set()
    last: int | None = None
    restart = True
    numbers = [block for block in blocks if _counts(block, style)]
    following = {id(a): b.number for a, b in pairwise(numbers)}
    for block in blocks:
        if _counts(block, style) and block.number is not None:
            value = block.number
            goes_on = following.get(id(block)) == value + 1
            counts = (value <= 3 or (goes_on and block.level is not None)) if last is None else last < value <= last + 2
            resumes = last is not None and last < value <= last + _SKIPPED and goes_on
            first = restart and value == 1
            if last is None and block.style in ("plus", "bracket"):
                counts = True
            if counts or first or resumes:
                accepted.add(id(block))
                last, restart = value, False
        elif block.level in ("book", "chapter", "part", "volume") or (block.level == "numeral" and block.number):
            last, restart = None, True
        elif block.level == "title":
            restart = True
    return accepted


def _titled(blocks: Sequence[BookBlock], chosen: set[int]) -> bool:
    """Return whether the numbers stand in front of short titles."""
    return sum(bool(block.title) for block in blocks if id(block) in chosen) * 10 >= len(chosen) * 9


def _spread(blocks: Sequence[BookBlock], accepted: set[int]) -> float:
    """Share of the book's parts, those of some length, that have accepted numbers in them."""
    parts: list[list[int]] = [[0, 0]]
    aside = False  # in a preface or in notes
    for block in blocks:
        if block.level in ("book", "chapter", "numeral") or block.frame:
            parts.append([0, 0])
        if block.frame:
            aside = True
        elif block.level in ("book", "chapter", "numeral", "title"):
            aside = False
        parts[-1][0] += not (aside or block.note)
        parts[-1][1] += id(block) in accepted
    shares = [(size, found / size) for size, found in parts[1:] or parts if size]
    long = [share for size, share in shares if size >= _LONG] or [share for _, share in shares]
    return sum(share >= _DENSE for share in long) / len(long) if long else 0.0
