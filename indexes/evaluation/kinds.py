"""What kind of question a question is, told from its words alone.

A rough sorting, to see on which kind a channel fails: the first kind of the list below that fits is taken.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from indexes.lexical.analysis import analyse

_Kind = Literal["identifier", "negation", "question", "phrase"]

# English, German, French, Spanish; Chinese and Japanese.
_NEGATES: Final = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|except|unless|cannot|isn't|doesn't|don't|didn't|wasn't"
    r"|aren't|won't|can't|couldn't|shouldn't|nicht|kein\w*|nie|niemals|ohne|außer|ne\s+\w+\s+pas|jamais|sans|sauf|nunca"
    r"|sin|excepto)\b|[不没無]|ない",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"[?？]\s*$|^\W*(?:who|whom|whose|what|when|where|which|why|how|is|are|was|were|do|does|did|can|could|should|would|will"
    r"|has|have|had|wer|was|wann|wo|welche\w*|warum|wie|ist|sind|kann|qui|que|quoi|quand|où|quel\w*|pourquoi|comment|quién"
    r"|qué|cuándo|dónde|cuál\w*|cómo)\b|[吗呢么]\s*$|[谁何哪]|什么|怎|か\s*$",
    re.IGNORECASE,
)


def kind(question: str) -> _Kind:
    """Return the kind of a question: ``identifier``, ``negation``, ``question``, or else ``phrase``."""
    if analyse(question).identifiers:
        return "identifier"
    plain = question.replace("’", "'")
    if _NEGATES.search(plain):
        return "negation"
    return "question" if _ASKS.search(plain) else "phrase"
