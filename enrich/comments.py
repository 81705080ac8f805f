"""What people say in code: the language of a piece of code is that of its comments, its keywords being English."""

from __future__ import annotations

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, String
from pygments.util import ClassNotFound


def comments(code: str, language: str) -> str:
    """The comments and documentation strings of a piece of code; empty where its language is not known.

    Args:
        language: of the code, such as ``python``.
    """
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return ""
    told = (Comment, String.Doc)
    return "\n".join(
        text
        for kind, text in lexer.get_tokens(code)
        if any(kind in one for one in told) and kind not in Comment.Preproc and kind not in Comment.PreprocFile
    )
