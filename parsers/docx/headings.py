"""Detect headings in a Word document by look: short lines, bold or large.

Invariants:
- A heading has text below it.
- Headings never make up more than a third of all text; above that, none are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from lxml.etree import _Element

from parsers.docx.styles import Styles, W
from parsers.docx.text import Paragraph

_LONGEST: Final = 100  # characters: a longer bold line is a sentence
_LARGER: Final = 1.15  # times the size of the text
_MOST_IN_A_ROW: Final = 2  # consecutive lines of one look; more are an address, a notice or a list
_DEEPEST: Final = 4
_NO_HEADING: Final = ("caption", "quote", "intense quote", "toc *", "title", "header", "footer", "footnote text")
_BLOCKS: Final = frozenset(f"{W}{name}" for name in ("p", "tbl", "sdt"))
_SENTENCE_ENDS: Final = (".", ",", ";", "…")

_Rank = tuple[int, bool]


def looks_like_headings(
    blocks: Sequence[_Element], read: Mapping[_Element, Paragraph], styles: Styles
) -> dict[_Element, int]:
    """Return the level, from 1, of each paragraph that looks like a heading.

    Args:
        blocks: the paragraphs and other blocks of the body, in order.
        read: the content of each paragraph.
        styles: the document's styles.
    """
    shown = [block for block in blocks if block.tag in _BLOCKS and (block.tag != f"{W}p" or read[block].text)]
    body = _body_size([read[block] for block in shown if block.tag == f"{W}p"])
    ranks = [_rank(block, read, styles, body) if block.tag == f"{W}p" else None for block in shown]
    found: dict[_Element, _Rank] = {}
    at = 0
    for rank, group in groupby(ranks):
        size = len(list(group))
        if rank is not None and size <= _MOST_IN_A_ROW and any(one is None for one in ranks[at + size :]):
            found |= dict.fromkeys(shown[at : at + size], rank)
        at += size
    if 3 * sum(len(read[block].text) for block in found) > sum(len(paragraph.text) for paragraph in read.values()):
        return {}
    order = sorted(set(found.values()), reverse=True)
    return {block: min(order.index(rank) + 1, _DEEPEST) for block, rank in found.items()}


def _body_size(paragraphs: Sequence[Paragraph]) -> int:
    """Return the font size of most of the text, in half-points."""
    sizes: Counter[int] = Counter()
    for paragraph in paragraphs:
        sizes[paragraph.size] += len(paragraph.text)
    return max(sizes, key=lambda size: (sizes[size], -size), default=0)


def _rank(block: _Element, read: Mapping[_Element, Paragraph], styles: Styles, body: int) -> _Rank | None:
    """Return the size and boldness of a possible heading; None for any other line."""
    found, properties = read[block], block.find(f"{W}pPr")
    is_large = body > 0 and found.size >= _LARGER * body
    if (
        found.size < body
        or not (found.bold or is_large)
        or len(found.text) > _LONGEST
        or "\n" in found.text
        or found.monospace
    ):
        return None
    if found.text.endswith(_SENTENCE_ENDS) or not any(letter.isalpha() for letter in found.text):
        return None
    return None if styles.named(properties, *_NO_HEADING) else (found.size, found.bold)
