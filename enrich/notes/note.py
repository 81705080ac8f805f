"""The note: what became of asking for one, and how it is brought into its budget.

Invariants:
- A note has a text exactly when its outcome is ``written``.
- One that is cut is cut at a sentence's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from chunker.sentences import sentences

Outcome = Literal["written", "rejected", "failed", "none"]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sentence or two that place a chunk in its document, or why there are none.

    Attributes:
        text: one line; empty unless the outcome is ``written``.
        outcome: ``written``; ``rejected`` by the checks; ``failed`` where the runtime failed; ``none`` where there is
            nothing to say.
        reason: why there is no text; empty otherwise.
        source: who wrote it.
        narrowed: whether the LLM saw less around the chunk than was asked for, because its context holds no more.
    """

    outcome: Outcome
    text: str = ""
    reason: str = ""
    source: Literal["llm", "extractive"] = "llm"
    narrowed: bool = False

    @property
    def final(self) -> bool:
        """Whether it is to be remembered; what a failing runtime left undone is tried again at the next build."""
        return self.outcome != "failed"


def fit(note: str, budget: int, count: Callable[[str], int]) -> str:
    """Return a note within a budget: as many of its first sentences as it holds; empty when not even one fits.

    Args:
        note: the note's text.
        budget: tokens it may have, the line end after it included.
        count: counts the tokens of a text.
    """
    ends = [end for _, end in sentences(note)]
    for end in reversed(ends):
        kept = note[:end].rstrip()
        if kept and count(f"{kept}\n") <= budget:
            return kept
    return ""
