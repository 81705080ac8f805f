"""What an HTML page says of itself: title, metadata, labels."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.titles import sensible_title
from parsers.web.dom import fold_space

_META: Final = {
    "author": "author",
    "date": "date",
    "dc.date": "date",
    "dcterms.date": "date",
    "article:published_time": "date",
    "description": "description",
    "keywords": "keywords",
}
_SITE_BEHIND: Final = re.compile(r"\s*(?:[-–—|·•»«/]+|::)\s.+")  # Duck - Wikipedia
_SITE_BEFORE: Final = re.compile(r".+(?:\s[-–—|·•»«/]+|:{1,2})\s")


def read_head(root: LexborNode) -> tuple[str, dict[str, str], list[str | None]]:
    """Title and metadata that a page states, and the content of each element that states labels."""
    title = root.css_first("head > title")
    metadata: dict[str, str] = {}
    labels: list[str | None] = []
    language = fold_space(root.attributes.get("lang") or root.attributes.get("xml:lang") or "")
    if language:
        metadata["language"] = language
    for node in root.css("meta"):
        name = (node.attributes.get("name") or node.attributes.get("property") or "").strip().lower()
        value = fold_space(node.attributes.get("content") or "")
        if name == "labels":
            labels.append(value if node.attributes.get("content") is not None else None)
        elif name in _META and value:
            metadata.setdefault(_META[name], value)
    return fold_space(title.text()) if title is not None else "", metadata, labels


def title_of(stated: str, tops: list[tuple[int, str]]) -> str:
    """Return the page's title: without the site's name where the page's heading tells the two apart.

    Else its heading.
    """
    ones = [text for level, text in tops if level == 1] or [text for _, text in tops if len(tops) == 1]
    title = sensible_title(stated)
    for heading in ones if title else ():
        before, found, behind = title.partition(heading)
        if found and (_SITE_BEHIND.fullmatch(behind) if not before else not behind and _SITE_BEFORE.fullmatch(before)):
            return heading
    return title or (ones[0] if ones else stated)
