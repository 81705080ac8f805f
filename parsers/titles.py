"""Which of the titles that a file says of itself can be shown to a reader.

Invariants:
- A title that a program filled in, or a file's name in its place, is none.
"""

from __future__ import annotations

import re
from typing import Final

_FILLED_IN: Final = re.compile(
    r"\W*(?:untitled|unbenannt|sans titre|sin título|no title|title|titel|document\d*|dokument\d*|unspecified|anonymous"
    r"|word document|powerpoint presentation|presentation\d*|book\d*|mappe\d*|python-docx|print|default)\W*\d*",
    re.IGNORECASE,
)
_PROGRAM: Final = re.compile(r"microsoft (?:word|powerpoint|excel|office)\b.* - |.*\.(?:dvi|ps|eps) *$", re.IGNORECASE)
_FILE_NAME: Final = re.compile(
    r".*\.(?:docx?|docm|dotx?|odt|rtf|pdf|tex|indd|qxd|qxp|pptx?|xlsx?|html?|txt|md|pages|p65|fm|cdr|pub|wpd|tmp)\W*",
    re.IGNORECASE,
)
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+|(?=\S*[_\d])\w+(?:[-_]\w+)+|(?:[A-Za-z]:|\.{0,2})[\\/].*|file:.*")


def sensible_title(title: str | None) -> str:
    """Return the title on one line.

    Empty for what names nothing: ``untitled``, ``Microsoft Word - x.doc``, ``report_v2``.
    """
    text = _one_line(title)
    if sum(char.isalpha() for char in text) < 2 or len(text) > 300 or "\ufffd" in text:
        return ""
    if any(pattern.fullmatch(text) for pattern in (_FILLED_IN, _FILE_NAME, _SLUG)) or _PROGRAM.match(text):
        return ""
    return text


def said_of_itself(**values: str | None) -> dict[str, str]:
    """Metadata without what is empty or filled in by a program."""
    kept = {name: _one_line(value) for name, value in values.items()}
    return {name: value for name, value in kept.items() if value and not _FILLED_IN.fullmatch(value)}


def _one_line(text: str | None) -> str:
    return " ".join(_UNSTORABLE.sub("", text or "").split())
