"""Recognize programming languages, list their names and extract comments.

Invariants:
- Data, markup and text without a known language are not code: their words are the content.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, String
from pygments.util import ClassNotFound

# By the first of Pygments' short names.
DATA: Final = frozenset(
    {"console", "diff", "doscon", "email", "haml", "html", "http", "ini", "irc", "json", "markdown", "mediawiki"}
    | {"org", "output", "pot", "properties", "restructuredtext", "tex", "text", "todotxt", "toml", "xml", "yaml"}
)


def language_names(language: str) -> tuple[str, ...]:
    """Return the names of a programming language, the given one first; empty for any other.

    Args:
        language: as documents name it, such as ``python``, ``js`` or ``Rust``.
    """
    lexer = _lexer(language)
    return (language, lexer.name, lexer.aliases[0]) if lexer else ()


@lru_cache(maxsize=64)  # each check of a note calls it
def comments(code: str, language: str) -> str:
    """Return the comments and docstrings of code; its keywords do not show its natural language."""
    lexer = _lexer(language)
    if lexer is None:
        return ""
    return "\n".join(
        text
        for kind, text in lexer.get_tokens(code)
        if (kind in Comment or kind in String.Doc) and kind not in Comment.Preproc and kind not in Comment.PreprocFile
    )


@lru_cache(maxsize=256)
def _lexer(language: str) -> Lexer | None:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return None
    return None if lexer.aliases[0] in DATA else lexer
