"""Represent a note and its outcome, and cut notes to their token budget.

Invariants:
- A note has a text exactly when its outcome is ``written``.
- A note is cut only at the end of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from chunker.sentences import sentences

Outcome = Literal["written", "rejected", "failed", "none"]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One or two sentences of context for a chunk, or the reason for having none.

    Attributes:
        text: one line; empty unless the outcome is ``written``.
        outcome: ``written``; ``rejected`` by the checks; ``failed`` if the runtime failed; ``none`` if there is
            nothing to add.
        reason: why there is no text; empty otherwise.
        source: origin of the text.
        narrowed: whether the window was narrowed to fit the LLM's context.
    """

    outcome: Outcome
    text: str = ""
    reason: str = ""
    source: Literal["llm", "extractive"] = "llm"
    narrowed: bool = False

    @property
    def final(self) -> bool:
        """Whether the note is cached; a failed one is retried at the next build."""
        return self.outcome != "failed"


def fit(note: str, budget: int, count: Callable[[str], int]) -> str:
    """Return as many leading sentences of a note as fit its budget; empty if none fits.

    Args:
        note: the note's text.
        budget: maximum of tokens, the line end after the note included.
        count: counts the tokens of a text.
    """
    ends = [end for _, end in sentences(note)]
    for end in reversed(ends):
        kept = note[:end].rstrip()
        if kept and count(f"{kept}\n") <= budget:
            return kept
    return ""
