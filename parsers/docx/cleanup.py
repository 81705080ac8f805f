"""Remove from a Word part the content that the finished document does not show.

Invariants:
- A field's code is removed with everything nested in it; its result stays. A field that is never closed keeps all.
- The prompt of an unfilled content control is removed.
- A paragraph with a deleted paragraph mark is merged into the next one; the next one's properties apply to both.
"""

from __future__ import annotations

from typing import Final

from lxml.etree import _Element

from parsers.docx.styles import W, switched

_SHOWN: Final = tuple(
    f"{W}{name}" for name in ("t", "sym", "tab", "br", "cr", "noBreakHyphen", "drawing", "pict", "object")
)
_NO_CONTENT: Final = frozenset(f"{W}{name}" for name in ("pPr", "del", "moveFrom", "bookmarkStart", "bookmarkEnd"))


def clean_up(root: _Element) -> None:
    """Remove invisible content from a part, in place."""
    _drop_field_codes(root)
    _drop_prompts(root)
    _join_paragraphs(root)


class _Field:
    """An open field: whether it is still in its code, and the elements found there."""

    def __init__(self) -> None:
        self.in_code = True
        self.met: list[_Element] = []


def _drop_field_codes(root: _Element) -> None:
    fields: list[_Field] = []
    for element in list(root.iter(f"{W}fldChar", *_SHOWN)):
        if element.tag != f"{W}fldChar":
            outermost = next((field for field in fields if field.in_code), None)
            if outermost is not None:
                outermost.met.append(element)
            continue
        kind = element.get(f"{W}fldCharType")
        if kind == "begin":
            fields.append(_Field())
        elif kind in ("separate", "end") and fields:
            field = fields[-1] if kind == "separate" else fields.pop()
            if field.in_code:
                _remove(field.met)
            field.in_code, field.met = False, []


def _drop_prompts(root: _Element) -> None:
    for control in root.iter(f"{W}sdt"):
        if switched(control.find(f"{W}sdtPr"), "showingPlcHdr"):
            for content in control.iterfind(f"{W}sdtContent"):
                _remove(list(content.iter(*_SHOWN)))


def _join_paragraphs(root: _Element) -> None:
    for paragraph in reversed(list(root.iter(f"{W}p"))):  # so that each part moves once
        if not _mark_is_gone(paragraph):
            continue
        behind = paragraph.getnext()
        parent = paragraph.getparent()
        if parent is None:
            continue
        if behind is not None and behind.tag == f"{W}p":
            moved = [child for child in paragraph if child.tag != f"{W}pPr"]
            at = 1 if len(behind) and behind[0].tag == f"{W}pPr" else 0
            for offset, child in enumerate(moved):
                behind.insert(at + offset, child)
            parent.remove(paragraph)
        elif all(child.tag in _NO_CONTENT for child in paragraph) and parent.tag != f"{W}tc":
            parent.remove(paragraph)


def _mark_is_gone(paragraph: _Element) -> bool:
    mark = paragraph.find(f"{W}pPr/{W}rPr")
    return mark is not None and (mark.find(f"{W}del") is not None or mark.find(f"{W}moveFrom") is not None)


def _remove(elements: list[_Element]) -> None:
    for element in elements:
        parent = element.getparent()
        if parent is not None:
            parent.remove(element)
