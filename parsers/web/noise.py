"""Elements of a page that show a sign and no text: icons, copy buttons, line numbers, permalinks, edit links.

Invariants:
- An element is one of these by its class, role or name together with what stands in it; text in words stays, whatever
  its ``aria-hidden`` says.
- Looking at an element costs a constant: nothing below its fourth level is read, and of line numbers nothing behind the
  first other character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from selectolax.lexbor import LexborNode


def _phrases(listed: str) -> frozenset[str]:
    """Phrases given as one text with bars between them."""
    return frozenset(phrase.strip() for phrase in listed.split("|"))


_DEEPEST: Final = 4  # levels below an element that are looked at
_MOST_NODES: Final = 40
_MOST_TEXT: Final = 60  # characters

_ICON_TAGS: Final = frozenset(["mat-icon", "md-icon", "ion-icon", "iron-icon", "sl-icon", "fa-icon", "clr-icon"])
# Fonts that draw any name of theirs as a picture, so that the name is never seen.
_ICON_FONT: Final = re.compile(r"(?:[a-z]+-)?material-(?:icons|symbols)(?:-[a-z]+)*|mat-icon|md-icon")
# Classes of pictures that words may have too: the text must be hidden from screen readers, or be the picture's name.
_ICON_CLASS: Final = re.compile(
    r"(?:[\w-]+-)?icons?(?:-[\w-]+)?|(?:octicon|glyphicon|codicon|dashicons|bi|mdi|ti|ion|lucide|feather|fa)(?:-[\w-]+)?"
    r"|fa[bdlrs]|la[brs]?"
)
_LIGATURE: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_PRIVATE: Final = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff\\s]+")

_GUTTER: Final = re.compile(
    r"(?:[\w-]+-)?(?:line-?nos?|line-?num(?:ber)?s?(?:-rows)?|gutter|linenodiv)(?:[-_]\w+)?|lnt?|blob-num|hljs-ln-numbers"
    r"|code-?line-?number\w*"
)
_NUMBER_TEXT: Final = re.compile(r"[\d\s.:|]*")

_COPY_CLASS: Final = re.compile(
    r"(?:[\w-]*-)?(?:copy|clipboard)[-_]?(?:btn|button|to|code|icon|link|me)?(?:-[\w-]*)?|clippy"
)
_COPY_SURE: Final = re.compile(
    r"[\w-]*(?:copy-?_?(?:btn|button)|copybtn|(?:btn|button)-?_?copy|btn-clipboard|clippy)[\w-]*"
)
_COPY_WORDS: Final = _phrases(
    """
    copy|copied|copy code|copy to clipboard|copy link|copy text|copy snippet|copy page|copy file contents|
    kopieren|code kopieren|in zwischenablage kopieren|in die zwischenablage kopieren|copier|copier le code|
    copier dans le presse-papiers|copiar|copiar código|copiar al portapapeles|copia|kopiera|kopiëren|kopiuj|
    копировать|скопировать|复制|复制代码|複製|拷贝|コピー|복사|content_copy|file_copy|content_paste|copy_all|📋|⧉|⎘
    """
)

_ANCHOR_CLASS: Final = re.compile(
    r"(?:[\w-]+-)?(?:headerlink|anchor|anchorjs|permalink|header-?link|heading-?link|hash-?link|anchor-?link)(?:-[\w-]+)?"
)
_ANCHOR_SIGNS: Final = frozenset("¶#§🔗⚓∞")
_ANCHOR_WORDS: Final = _phrases(
    """
    link|anchor|permalink|permanent link|direct link|section link|link to this heading|link to this section|
    link to this headline|permalink to this heading|permalink to this headline|permalink to this section
    """
)
_CLASSES: Final = {
    "icon font": _ICON_FONT,
    "icon": _ICON_CLASS,
    "gutter": _GUTTER,
    "copy": _COPY_CLASS,
    "copy button": _COPY_SURE,
    "anchor": _ANCHOR_CLASS,
    "edit": re.compile("mw-editsection(?:-like)?"),
}

# Signs that stand for yes and no where a cell holds nothing else.
_TICKS: Final = _phrases(
    """
    check|check-circle|check-square|check_box|check_circle|check_circle_outline|checkmark|done|done_all|ok|ok-circle|
    task_alt|tick|verified|yes
    """
)
_CROSSES: Final = _phrases("cancel|clear|close|cross|dangerous|no|remove|times|times-circle|x|x-circle|xmark")


def is_noise(node: LexborNode, tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Return whether an element shows an icon, a copy button, line numbers, a permalink or an edit link."""
    marks = _marks(attributes.get("class") or "")
    if "edit" in marks:
        return True
    if tag in ("button", "clipboard-copy") or (attributes.get("role") or "") == "button":
        return _is_copy_button(node, attributes, marks)
    if tag == "a" and _is_permalink(node, attributes, marks):
        return True
    if tag in _ICON_TAGS or "icon" in marks or "icon font" in marks:
        return _is_icon(node, attributes, marks, sure=tag in _ICON_TAGS)
    if "gutter" in marks and tag not in ("td", "th"):
        return numbers_only(node)
    return "copy button" in marks and _says_copy(node, attributes)


def is_gutter(node: LexborNode) -> bool:
    """Return whether an element holds the numbers of lines and nothing else."""
    return "gutter" in _marks(node.attributes.get("class") or "") and numbers_only(node)


def numbers_only(node: LexborNode) -> bool:
    """Return whether there is nothing but numbers below an element, at most four levels deep.

    Also where there is nothing.
    """
    return all(text is not None and _NUMBER_TEXT.fullmatch(text) for text in _texts(node))


def brief_text(node: LexborNode) -> str | None:
    """Return the text below an element, white space folded; None where it is long or deeply nested."""
    pieces: list[str] = []
    length = 0
    for number, text in enumerate(_texts(node)):
        length += len(text or "")
        if text is None or number > _MOST_NODES or length > 4 * _MOST_TEXT:
            return None
        pieces.append(text)
    whole = " ".join("".join(pieces).replace("\u200b", "").split())
    return whole if len(whole) <= _MOST_TEXT else None


def classes_of(attributes: Mapping[str, str | None]) -> list[str]:
    """Return the classes of an element in lower case."""
    return (attributes.get("class") or "").lower().split()


def tick(cell: LexborNode) -> str:
    """Return the sign, such as ``✓``, of a table cell that shows nothing but an icon or a box for it.

    Empty for others.
    """
    for number, node in enumerate(_below(cell)):
        if number > _MOST_NODES:
            break
        attributes = node.attributes
        if node.tag == "input" and (attributes.get("type") or "").lower() in ("checkbox", "radio"):
            return "☑" if "checked" in attributes else "☐"
        if node.tag not in _ICON_TAGS and _marks(attributes.get("class") or "").isdisjoint(("icon", "icon font")):
            continue
        classes = classes_of(attributes)
        names = {brief_text(node) or "", *classes, *(name.partition("-")[2] for name in classes)}
        if names & _TICKS:
            return "✓"
        if names & _CROSSES:
            return "✗"
    return ""


@lru_cache(maxsize=4096)
def _marks(classes: str) -> frozenset[str]:
    """Return the hints of an element's classes, given as in its attribute."""
    return frozenset(
        mark for name in classes.lower().split() for mark, pattern in _CLASSES.items() if pattern.fullmatch(name)
    )


def _is_icon(node: LexborNode, attributes: Mapping[str, str | None], marks: frozenset[str], *, sure: bool) -> bool:
    text = brief_text(node)
    if not text:
        return False  # nothing to hide; an image in it may have a text of its own
    if _PRIVATE.fullmatch(text):
        return True
    if not _LIGATURE.fullmatch(text):
        return False
    hidden = (attributes.get("aria-hidden") or "") == "true"
    named = any(name.endswith(f"-{text}") for name in classes_of(attributes))
    return sure or "icon font" in marks or hidden or "_" in text or named


def _is_copy_button(node: LexborNode, attributes: Mapping[str, str | None], marks: frozenset[str]) -> bool:
    if "copy" in marks or "copy button" in marks:
        return _says_copy(node, attributes)
    return _plain(brief_text(node) or "") in _COPY_WORDS


def _says_copy(node: LexborNode, attributes: Mapping[str, str | None]) -> bool:
    """Return whether an element's text or label is that of a copy button."""
    text = brief_text(node)
    if text is None:
        return False
    labels = [text, *(attributes.get(name) or "" for name in ("aria-label", "title", "data-tooltip", "data-title"))]
    return any(_plain(label) in _COPY_WORDS for label in labels)


def _plain(label: str) -> str:
    return label.casefold().strip(" !.")


def _is_permalink(node: LexborNode, attributes: Mapping[str, str | None], marks: frozenset[str]) -> bool:
    text = brief_text(node) or ""
    if text in _ANCHOR_SIGNS:
        return True
    hidden = (attributes.get("aria-hidden") or "") == "true"
    return text.casefold() in _ANCHOR_WORDS and (hidden or "anchor" in marks)


def _texts(root: LexborNode) -> Iterator[str | None]:
    """Yield the texts below an element; None in place of what is nested too deep to look at."""
    node, depth = root.child, 0
    while node is not None:
        if node.is_text_node:
            yield node.text_content or ""
        elif node.child is not None and node.tag not in ("script", "style", "svg", "template"):
            if depth + 1 >= _DEEPEST:
                yield None
            else:
                node, depth = node.child, depth + 1
                continue
        while node is not None and node.next is None and depth:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None else None


def _below(root: LexborNode) -> Iterator[LexborNode]:
    """Yield the elements below one, at most four levels deep."""
    node, depth = root.child, 0
    while node is not None:
        if not node.is_text_node:
            yield node
            if node.child is not None and depth + 1 < _DEEPEST:
                node, depth = node.child, depth + 1
                continue
        while node is not None and node.next is None and depth:
            node, depth = node.parent, depth - 1
        node = node.next if node is not None else None
