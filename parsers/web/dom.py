"""What the HTML adapter asks of selectolax's tree, and what it does to HTML before parsing.

Invariants:
- Every walk is a loop over the tree, so no nesting is too deep for it.
- What a browser never shows (hidden elements, scripts, comments) is in no walk.
- A file of some megabytes cannot make a tree of gigabytes.

selectolax (lexbor) follows the HTML standard's error recovery and is several times faster than lxml, which knows
HTML 4 only. It has no source positions, and what it makes of badly nested tags can be much more than the file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from parsers.web.noise import classes_of, is_noise


def tags(names: str) -> frozenset[str]:
    """Return a set of element names, given as one text with blanks between them."""
    return frozenset(names.split())


DEEPEST: Final = 512  # nested elements; Chromium stops at the same depth
_MOST_UNCLOSED: Final = 64  # formatting tags left open: each is repeated in every paragraph that follows

_VOID: Final = tags(
    "area base br col embed frame hr img input link meta param source track wbr keygen basefont bgsound"
)
# Their end tags may be left out, so that open ones do not nest.
_IMPLIED: Final = tags("html head body p li dt dd option optgroup tr td th thead tbody tfoot colgroup rb rt rp rtc")
_FORMATTING: Final = tags("a b big code em font i nobr s small strike strong tt u")
_DROPPED: Final = tags("head script style template datalist svg")
_DUPLICATES: Final = tags("katex-html")  # KaTeX shows each formula twice; the other one is MathML
_TOLD_BY_TEXT: Final = tags("a button clipboard-copy mat-icon md-icon ion-icon")  # noise without a class, too

_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)[^>]*>?")
_XHTML: Final = re.compile(r"<\?xml\b|<!DOCTYPE[^>]*XHTML|<html\b[^>]*\bxmlns\s*=", re.IGNORECASE)
_SELF_CLOSED: Final = re.compile(r"<([a-zA-Z][\w:.-]*)((?:\s[^<>]*?)?)/>")
_TEMPLATE: Final = re.compile(r"<(/?)template\b[^>]*>", re.IGNORECASE)
_SHADOW: Final = re.compile(r"\sshadowroot(?:mode)?\s*=", re.IGNORECASE)
_SHADOW_TAG: Final = "x-shadow"  # of no meaning to a parser, so that any content may stand in it
_INVISIBLE: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)

Attributes = dict[str, str | None]


def parse_html(source: str) -> LexborNode | None:
    """Return the root element of an HTML or XHTML file; None where there is none."""
    if _XHTML.search(source, 0, 2000):
        source = _from_xhtml(source)
    if "shadowroot" in source:
        source = _with_shadows(source)
    return LexborHTMLParser(_tamed(source)).root


class Walk:
    """Goes through everything that is shown below an element, the element itself left out.

    Yields ``(node, True)`` where a node begins and ``(node, False)`` where an element ends, in reading order. After
    the beginning of an element, :meth:`skip` leaves out what is in it; its end is yielded all the same.
    """

    def __init__(self, root: LexborNode) -> None:
        self._root = root
        self._skip = False

    def skip(self) -> None:
        """Leave out the children of the element that has just begun."""
        self._skip = True

    def __iter__(self) -> Iterator[tuple[LexborNode, bool]]:
        node = self._root.child
        depth = 0
        while node is not None:
            if shown(node):
                self._skip = False
                yield node, True
                child = None if self._skip else node.child
                if child is not None:
                    node, depth = child, depth + 1
                    continue
                if not node.is_text_node:
                    yield node, False
            while node.next is None and depth:
                above = node.parent
                assert above is not None
                node, depth = above, depth - 1
                yield node, False
            node = node.next


def shown(node: LexborNode) -> bool:
    """Return whether a browser shows a node: an element that is not hidden, or text."""
    if node.is_text_node:
        return True
    tag = node.tag or "-"
    if tag.startswith(("-", "!")) or tag in _DROPPED:
        return tag == "svg" and bool(svg_title(node))
    attributes = node.attributes
    if not attributes:
        return tag not in _TOLD_BY_TEXT or not is_noise(node, tag, attributes)
    if "hidden" in attributes and attributes["hidden"] != "until-found":
        return False
    if _INVISIBLE.search(attributes.get("style") or ""):
        return False
    return _DUPLICATES.isdisjoint(classes_of(attributes)) and not is_noise(node, tag, attributes)


def svg_title(node: LexborNode) -> str:
    """Return the title of an SVG image; empty where it has none."""
    title = node.css_first("title")
    return " ".join(title.text().split()) if title is not None else ""


def replaced(node: LexborNode) -> str | None:
    """Return the text that stands for an image or a formula, whose children are then not read.

    None for other elements.
    """
    tag = node.tag
    if tag == "img":
        return " ".join((node.attributes.get("alt") or "").split())
    if tag == "svg":
        return svg_title(node)
    if tag != "math":
        return None
    source = node.css_first('annotation[encoding="application/x-tex"]')
    return (source.text() if source is not None else "") or node.attributes.get("alttext") or node.text() or ""


def fold_space(text: str) -> str:
    """Text with its white space folded as a browser does, no-break spaces too, and without soft hyphens."""
    return " ".join(text.replace("\u00ad", "").split())


def _from_xhtml(source: str) -> str:
    """XHTML as HTML: a script or title closed in its own tag would swallow all that follows."""
    first, *rest = source.split("<![CDATA[")
    for part in rest:
        data, end, behind = part.partition("]]>")
        first += html.escape(data, quote=False) + behind if end else "<![CDATA[" + part
    return _SELF_CLOSED.sub(
        lambda found: found[0] if found[1].lower() in _VOID else f"<{found[1]}{found[2]}></{found[1]}>", first
    )


def _with_shadows(source: str) -> str:
    """Return the source with the templates that browsers show, as shadow trees, as plain elements."""
    open_templates: list[bool] = []

    def shown_or_not(found: re.Match[str]) -> str:
        if not found[1]:
            open_templates.append(bool(_SHADOW.search(found[0])))
            return f"<{_SHADOW_TAG}>" if open_templates[-1] else found[0]
        return f"</{_SHADOW_TAG}>" if open_templates and open_templates.pop() else found[0]

    return _TEMPLATE.sub(shown_or_not, source)


def _tamed(source: str) -> str:
    """Return the source without the tags that would make its tree too deep or too large; their contents stay."""
    deepest, unclosed = _measure(source)
    if deepest <= DEEPEST and unclosed <= _MOST_UNCLOSED:
        return source
    depth = 0

    def keep(found: re.Match[str]) -> str:
        nonlocal depth
        tag = found[2].lower()
        if tag in _FORMATTING and unclosed > _MOST_UNCLOSED:
            return ""
        if tag in _VOID or tag in _IMPLIED:
            return found[0] if depth < DEEPEST else " "
        if found[1]:
            depth = max(0, depth - 1)
            return found[0] if depth < DEEPEST else " "
        depth += 1
        return found[0] if depth <= DEEPEST else " "

    return _TAG.sub(keep, source)


def _measure(source: str) -> tuple[int, int]:
    """Return how deep tags nest, and how many formatting tags are open at most."""
    depth = deepest = unclosed = most = 0
    for found in _TAG.finditer(source):
        tag = found[2].lower()
        if tag in _VOID or tag in _IMPLIED:
            continue
        step = -1 if found[1] else 1
        depth = max(0, depth + step)
        deepest = max(deepest, depth)
        if tag in _FORMATTING:
            unclosed = max(0, unclosed + step)
            most = max(most, unclosed)
    return deepest, most
