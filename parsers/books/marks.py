"""What a block of a plain-text book is: a numbered heading, a title, a numeral, a note, the start of an index.

Each block is judged by itself; :mod:`parsers.books.numbers` reads its number in the context of its neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from parsers.books.numerals import number

_Span = tuple[int, int]
Level = Literal["volume", "part", "work", "book", "chapter", "section", "title", "numeral"]
Frame = Literal["contents", "index", "notes", "apart", "transcriber"]

_MACHINE: Final = re.compile(r"\[\[(BOOK|CHAPTER|SECTION|PART) ?([^\]\n]*)\]\]\s*")
_WORD: Final = re.compile(
    r"[\s_(\[*=]*(VOLUME|Volume|VOL\.|Vol\.|PART|Part|BOOK|Book|CHAPTE[RE]|Chapter|CHAP\.|Chap\.|SECTION|Section|SECT\.)"
    r"[ \t]+([IVXLCDM]+|\d{1,3}|[A-Za-z]{3,11}(?:-[A-Za-z]{3,7})?)(?![\w'’])([^\n]*)"
)
_LEVELS: Final[dict[str, Level]] = {
    "vol": "volume",
    "par": "part",
    "boo": "book",
    "cha": "chapter",
    "sec": "section",
}
_HASH: Final = re.compile(r"# (\S[^\n]*)")
_NUMERAL: Final = re.compile(r"[ _*]*([IVXLC]+|\d{1,3})\.?[ _*]*")
_RUN: Final = re.compile(
    r"(?:\(\d{1,4}\)\s+)?(?:(?P<roman>[IVXLC]+)\.(?:--?|—|(?=\s))|\+(?P<plus>\d{1,3})\.\+"
    r"|(?:§ ?|Sec\. )?(?P<arabic>\d{1,3})(?:\.(?:--?|—|(?=[\s\[]|\d{1,2}\s))|,(?=\s)))\s*(?=\S)"
)
_INNER: Final = re.compile(r"(?:\[Sidenote:[^\]\n]{0,60}\]\s*)?\[(?:Sidenote:\s*-)?-(\d{1,3})-+\]")
_NOTE: Final = re.compile(r"\s*(?:\[(?:\d{1,4}|[A-Z])\]\s|\[Footnote\b|\d{1,4} \(return\) ?\[)")
_STARS: Final = re.compile(r"[\s*.·-]*\*[\s*.·-]*\*[\s*.·-]*")
_NAMED: Final[tuple[tuple[Frame, re.Pattern[str]], ...]] = (
    (
        "contents",
        re.compile(
            r"(?:TABLE OF |VOLUME |GENERAL )?CONTENTS(?: OF .{1,40})?"
            r"|(?:LIST OF )?(?:ILLUSTRATIONS|MAPS|PLATES)(?: AND PLANS)?"
        ),
    ),
    ("index", re.compile(r"(?:GENERAL |ANALYTICAL |ALPHABETICAL )?INDEX(?: OF .{1,40}| TO .{1,40})?")),
    ("notes", re.compile(r"(?:.{0,30} )?(?:FOOTNOTES|ENDNOTES)|NOTES(?: (?:FOR|TO|ON) .{1,40})?")),
    (
        "apart",
        re.compile(
            r"(?:(?:THE|GENERAL|HISTORICAL|AUTHOR.S|EDITOR.S|TRANSLATOR.S) )*"
            r"(?:PREFACE|INTRODUCTION|ADVERTISEMENT|DEDICATION|FOREWORD|PREFATORY NOTE)(?: (?:TO|BY|OF THE) .{1,60})?"
            r"|(?:APPENDIX|APPENDICES|GLOSSARY|BIBLIOGRAPHY|CHRONOLOGY|ADDENDA|ERRATA|CORRIGENDA)\b.{0,60}"
            r"|NOTE ON .{1,60}"
        ),
    ),
    ("transcriber", re.compile(r"TRANSCRIBER.?S.? NOTES?")),
)
_TITLE_GAP: Final = 2  # blank lines above a title in capitals; with fewer it may be an inscription
_SHORT: Final = 120  # code points that a title has at most
_HEADING: Final = 700  # code points that a numbered heading has at most, with the summary that some carry
_SPACE: Final = 200  # code points of white space in front of a number within a block, at most
_MARKS: Final = " \t\n_*=.,:;-—–#"


@dataclass(slots=True)
class BookBlock:
    """A block of text between blank lines, or a part of one.

    Attributes:
        start, end: ``[start, end)`` in the text.
        line: 1-based line that it begins in.
        gap: blank lines before it.
        level: of a heading, what it heads; None for other blocks.
        number: of a heading or of a chapter that begins here, its number.
        title: of a heading, or of what may be one (a line in capitals, a number and a few words), its words.
        style: of a chapter number in running text, how it is printed.
        frame: of a heading, what begins here besides a chapter.
        machine: whether an editor's program set the heading (``[[BOOK 1]]``), whatever the edition prints.
        note: whether it is a footnote.
        notes_to: of the heading of notes between the parts of a book, what they are notes to.
        rule: whether it is a line of asterisks or dots.
        left_out: why it stays out of the index.
        ref: the numbers in force, as a citation prints them.
    """

    start: int
    end: int
    line: int
    gap: int
    level: Level | None = None
    number: int | None = None
    title: str = ""
    style: str = ""
    frame: Frame | None = None
    machine: bool = False
    note: bool = False
    notes_to: Literal["", "book", "chapter"] = ""
    rule: bool = False
    left_out: str | None = None
    ref: str = ""

    def forget(self) -> None:
        """Be text again: neither heading nor number."""
        self.level, self.number, self.style = None, None, ""


def marked(text: str, start: int, end: int, line: int, gap: int) -> list[BookBlock]:
    """Return a block with what it says of itself; several where chapter numbers or a heading stand in it."""
    block = BookBlock(start, end, line, gap)
    lead = start
    while lead < end and text[lead] in " \t":
        lead += 1
    first = text[lead]
    numbered = first in "[(_*= VvPpBbCcSs" and (_MACHINE.match(text, lead, end) or _WORD.match(text, lead, end))
    if numbered and (parts := _numbered(text, block, numbered)):
        return parts
    if first == "#" and (found := _HASH.fullmatch(text, lead, end)):
        block.level, block.title = "title", found[1].strip()
    elif end - start < 24 and (found := _NUMERAL.fullmatch(text, start, end)):
        block.level, block.number, block.title = "numeral", number(found[1]), found[1]
    elif end - start <= _SHORT and _is_title(text, block):
        block.title = _words(text[start:end])
        block.frame = _frame(block.title)
        block.level = "title" if block.frame or block.gap >= _TITLE_GAP else None
        last_line = text[start:end].rstrip().rpartition("\n")[2].strip()
        if last_line.isdigit() and block.level and block.frame is None:
            block.level, block.number = "numeral", number(last_line)
    elif first in "IVXLCS§+(0123456789" and (found := _RUN.match(text, lead, end)):
        block.style = found.lastgroup or ""
        block.number = number(found[block.style])
        words = text[found.end() : end]
        if gap and len(words) <= _SHORT and "\n" not in words.strip() and words.strip()[-1:] not in '.,;:!?"”’)':
            block.title = _words(text[start:end])
    if first in "[0123456789" and _NOTE.match(text, start, end):
        block.forget()
        block.note = True
    if end - start <= _SHORT and _STARS.fullmatch(text, start, end):
        block.rule = True
    if text.find("[-", start, end) >= 0 or text.find(":--", start, end) >= 0:
        return _split_inside(text, block)
    return [block]


def _numbered(text: str, block: BookBlock, found: re.Match[str]) -> list[BookBlock]:
    """Return a heading such as ``BOOK IV``, and the text below it where no blank line parts them.

    Empty if it is none.
    """
    machine = found.re is _MACHINE
    value = number(found[2].strip())
    rest = "" if machine else found[3]
    if machine and value is None:
        return []
    if not machine and (value is None or not _heads(text, block, found, rest)):
        return []
    block.level, block.number, block.machine = _LEVELS[found[1].lower()[:3]], value, machine
    end_of_line = found.end()
    below = text[end_of_line : block.end]
    if below.strip() and (machine or block.end - block.start > _HEADING):
        upper = BookBlock(block.start, end_of_line, block.line, block.gap, block.level, value, "", machine=machine)
        upper.title = _words(f"{found[1]} {found[2]}" if machine else text[block.start : end_of_line])
        start = block.end - len(below.lstrip())
        lines = text.count("\n", block.start, start)
        return [upper, *marked(text, start, block.end, block.line + lines, 0)]
    block.title = _words(f"{found[1]} {found[2]}" if machine else text[block.start : block.end])
    return [block]


def _heads(text: str, block: BookBlock, found: re.Match[str], rest: str) -> bool:
    """Return whether words such as "Book IV" are a heading and not the beginning of a sentence."""
    bare = rest.strip(" \t_*)]=.:")
    if not bare:
        return True
    upper = found[1].isupper()
    if rest[0] in ".:—–-_,)]" or rest.startswith("  "):
        return upper or block.end - block.start <= 2 * _SHORT
    if not upper or block.end - block.start > _HEADING:
        return False
    return bare[0].isupper() or bare[0] == "["


def _is_title(text: str, block: BookBlock) -> bool:
    words = text[block.start : block.end]
    letters = [letter for letter in words if letter.isalpha()]
    named = _frame(_words(words)) is not None
    if len(letters) < 4 or words.count("\n") > 2 or words.lstrip()[0] in "\"“'‘*":
        return False
    capitals = all(letter.isupper() for letter in letters)
    return capitals or (named and "\n" not in words and block.gap >= _TITLE_GAP)


def _frame(title: str) -> Frame | None:
    upper = title.upper().strip(_MARKS + "[]()|0123456789")
    return next((frame for frame, pattern in _NAMED if pattern.fullmatch(upper)), None)


def _split_inside(text: str, block: BookBlock) -> list[BookBlock]:
    """Return a block as parts that each begin with a number in brackets, where a sentence ends before it."""
    cuts = [
        (found.start(), int(found[1]))
        for found in _INNER.finditer(text, block.start, block.end)
        if text[max(block.start, found.start() - _SPACE) : found.start()].rstrip()[-1:] in ".!?:;\"”'’)]_"
    ]
    if not cuts:
        return [block]
    parts = []
    if cuts[0][0] > block.start:
        block.end, end = cuts[0][0], block.end
        parts.append(block)
    else:
        end = block.end
    line, counted = block.line, block.start
    for (start, value), stop in zip(cuts, [*(cut[0] for cut in cuts[1:]), end], strict=True):
        line, counted = line + text.count("\n", counted, start), start
        gap = block.gap if start == block.start else 0
        parts.append(BookBlock(start, stop, line, gap, number=value, style="bracket"))
    return parts


def _words(text: str) -> str:
    return " ".join(text.strip(_MARKS + "()").split())
