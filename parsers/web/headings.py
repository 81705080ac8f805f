"""Headings of a page that marks none: short paragraphs that are set bold or large, as in company filings.

Invariants:
- A paragraph is one of them only where all its text is set apart, it is short, it names something, and the page is
  mostly other text.
- One walk over the page, so time is linear.

What a style sheet says is not known; ``style`` attributes, ``b``, ``strong``, ``font``, ``big`` and ``center`` are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.web.dom import Walk, fold_space, tags
from parsers.web.tables import DEEPEST_LAYOUT, lays_out

_BLOCKS: Final = tags("p div center section article main header body td li blockquote dd dt pre table address footer")
_HEADS: Final = tags("p div center")  # what a heading may be; and a table of a single row
_LONGEST: Final = 150  # characters
_LONGEST_SENTENCE: Final = 80  # characters of a heading that ends with a full stop
_MOST_TEXT: Final = 0.3  # share of the page's text that may stand in its headings
_LONGEST_RUN: Final = 5  # headings without text between them; more of them are a list or an address
_LARGE: Final = 1.3  # times the size of the body, from which text need not be bold
_DEEPEST: Final = 6

_BOLD: Final = re.compile(
    r"font-weight\s*:\s*(bold|bolder|[6-9]00|normal|lighter|[1-5]00)|font\s*:[^;]*\b(bold)\b", re.I
)
_SIZE: Final = re.compile(r"font-size\s*:\s*(\d{1,4}(?:\.\d{1,4})?|\.\d{1,4})\s*(pt|px|r?em|%)", re.IGNORECASE)
_CENTRED: Final = re.compile(r"text-align\s*:\s*(?:-\w+-)?center", re.IGNORECASE)
_POINTS: Final = {"pt": 1.0, "px": 0.75, "em": 12.0, "rem": 12.0, "%": 0.12}
_FONT_SIZES: Final = (7.5, 10.0, 12.0, 13.5, 18.0, 24.0, 36.0)  # of <font size=1> to 7
_USUAL: Final = 12.0

_PART: Final = re.compile(r"(?:part|chapter|title|book|teil|kapitel|partie|parte)\s+[\divxlc]+\b", re.IGNORECASE)
_ITEM: Final = re.compile(r"(?:item|article|section|note|§|artikel|abschnitt)\s*[\divxlc]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Look:
    """How text is set: bold or not, its size in points, centred or not."""

    bold: bool = False
    size: float = _USUAL
    centred: bool = False


@dataclass(eq=False, slots=True)
class _Block:
    """A block of text.

    Attributes:
        node: its element.
        text: what stands in it, blocks within it left out.
        bold: whether all of that is bold; ``size`` is its smallest size, ``centred`` whether all is centred.
        mixed: whether other blocks stand in it too.
        rows: of a table, its rows.
    """

    node: LexborNode
    text: str = ""
    bold: bool = True
    size: float = 1000.0
    centred: bool = True
    mixed: bool = False
    rows: int = 0


def inferred_headings(root: LexborNode) -> dict[int, int]:
    """Levels, from 1, of the blocks that stand as headings, by the ``mem_id`` of their elements."""
    blocks = _blocks(root)
    total = sum(len(block.text) for block in blocks)
    sizes: Counter[float] = Counter()
    for block in blocks:
        sizes[block.size] += len(block.text)
    usual = sizes.most_common(1)[0][0] if sizes else _USUAL
    heads: list[_Block] = []
    for found, group in groupby(blocks, lambda block: _is_head(block, usual)):
        run = list(group)
        if found:
            heads += run if len(run) <= _LONGEST_RUN else [one for one in run if one.size >= _LARGE * usual]
    if sum(len(block.text) for block in heads) > _MOST_TEXT * total:
        return {}
    ranks = sorted({_rank(block) for block in heads})
    return {block.node.mem_id: min(_DEEPEST, ranks.index(_rank(block)) + 1) for block in heads}


def _is_head(block: _Block, usual: float) -> bool:
    text = block.text
    if block.mixed or len(text) > _LONGEST or not (block.bold or block.size >= _LARGE * usual):
        return False
    if block.node.tag not in _HEADS and not (block.node.tag == "table" and block.rows == 1):
        return False
    letters, digits = sum(map(str.isalpha, text)), sum(map(str.isdigit, text))
    if letters < 2 or digits > letters or text[0] in "([{•*-–—☐☑☒✓" or text[-1] in ",;":
        return False
    return text[-1] not in ".!?" or len(text) <= _LONGEST_SENTENCE


def _rank(block: _Block) -> tuple[float, bool, bool, bool, bool]:
    """Return the sort key of a heading: higher ones first."""
    text = block.text
    return -block.size, not _PART.match(text), not block.centred, not _ITEM.match(text), not text.isupper()


def _blocks(root: LexborNode) -> list[_Block]:
    """Return the blocks of a page that hold text, in the order in which they end."""
    found: list[_Block] = []
    open_blocks = [_Block(root)]
    looks = [_Look()]
    pieces: list[list[str]] = [[]]
    tables = depth = 0
    layouts: set[int] = set()  # tables that only lay out the page
    for node, begins in Walk(root):
        tag = node.tag or ""
        if node.is_text_node:
            text = node.text_content or ""
            if text.strip():
                block, look = open_blocks[-1], looks[-1]
                pieces[-1].append(text)
                block.bold &= look.bold
                block.size = min(block.size, look.size)
                block.centred &= look.centred
            elif text:
                pieces[-1].append(" ")
            continue
        if tag == "br" and begins:
            pieces[-1].append(" ")
        if begins:
            looks.append(_look(node, tag, looks[-1]))
        else:
            looks.pop()
        if tag == "table":
            if begins and not tables and (depth >= DEEPEST_LAYOUT or lays_out(node)):
                layouts.add(node.mem_id)
            if node.mem_id in layouts:
                depth += 1 if begins else -1
            else:
                tables += 1 if begins else -1
        if tables and tag != "table":  # a table is one block
            open_blocks[-1].rows += begins and tag == "tr"
            pieces[-1].append(" ")
        elif tag in _BLOCKS and not (tag == "table" and tables > begins):
            _turn(node, begins, open_blocks, pieces, found)
    _turn(root, False, open_blocks, pieces, found)
    return found


def _turn(
    node: LexborNode, begins: bool, open_blocks: list[_Block], pieces: list[list[str]], found: list[_Block]
) -> None:
    """Begin or end a block."""
    if begins:
        open_blocks[-1].mixed = True
        open_blocks.append(_Block(node))
        pieces.append([])
        return
    block = open_blocks.pop()
    block.text = fold_space("".join(pieces.pop()))
    if block.text:
        found.append(block)


def _look(node: LexborNode, tag: str, around: _Look) -> _Look:
    """Return how the text in an element is set."""
    attributes = node.attributes
    style = attributes.get("style") or ""
    if not style and tag not in ("b", "strong", "font", "big", "center") and "align" not in attributes:
        return around
    bold, size, centred = around.bold, around.size, around.centred
    if tag in ("b", "strong"):
        bold = True
    if tag == "center" or (attributes.get("align") or "").lower() in ("center", "middle") or _CENTRED.search(style):
        centred = True
    if tag == "big":
        size *= 1.2
    if tag == "font":
        size = _font_size(attributes.get("size") or "", size)
    if weight := _BOLD.search(style):
        bold = (weight[1] or weight[2]).lower() not in ("normal", "lighter", "100", "200", "300", "400", "500")
    if stated := _SIZE.search(style):
        size = round(float(stated[1]) * _POINTS[stated[2].lower()], 1)
    return _Look(bold, size, centred)


def _font_size(value: str, around: float) -> float:
    found = re.fullmatch(r"\s*([+-]?)(\d)\s*", value)
    if not found:
        return around
    number = int(found[2]) if not found[1] else 3 + int(f"{found[1]}{found[2]}")
    return _FONT_SIZES[max(1, min(7, number)) - 1]
