"""Who asks the LLM for notes, and what is done with its answers.

Kept here: a note that comes out has passed cleaning and grounding; an answer that does not pass is asked for once
more with another prompt and then counts as rejected; a runtime that fails leaves a failed note and stops nobody; and
the notes do not depend on the order in which the chunks come.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from enrich.cleaning import Rejection, clean
from enrich.context import Prompt, Template, Window, key, load_template, narrowed
from enrich.grounding import grounded, quiet
from enrich.note import Note
from parsers.errors import GristmillError

NOTES_VERSION: Final = 2  # of the rules in context, cleaning, grounding and here; a raise renews all notes
FAILURES: Final = 3  # in a row, after which a runtime is not asked again within a call


class LLMFailure(GristmillError):
    """The LLM's runtime failed at one prompt; another prompt or another day may go well."""


class Completion(msgspec.Struct, frozen=True):
    """What an LLM wrote.

    Attributes:
        text: its output, without control tokens.
        finished: whether it ended by itself or at a line's end; False when it ran out of tokens.
    """

    text: str
    finished: bool = True


class LLMRuntime(Protocol):
    """Something that runs an LLM at temperature 0; the same prompt gives the same text, whatever came before it."""

    @property
    def fingerprint(self) -> str:
        """What decides its output besides the prompt: weights, sampling, context length."""
        ...

    @property
    def provenance(self) -> Mapping[str, str]:
        """What it runs on: library and version; no part of the fingerprint."""
        ...

    def room(self, prompt: Prompt) -> int:
        """Tokens left for an answer behind this prompt; negative when the prompt alone is too long."""
        ...

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """The answer to a prompt, at most one line of ``max_tokens`` tokens.

        Raises:
            LLMFailure: when it fails at this prompt.
        """
        ...


class NoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How notes are asked for.

    Attributes:
        max_tokens: tokens an answer may have.
        retry: whether a rejected answer is asked for once more.
    """

    max_tokens: int = 48
    retry: bool = True


class NoteWriter:
    """Writes notes with an LLM.

    Args:
        runtime: runs the LLM; None is enough to make prompts and keys, given its fingerprint.
        settings: how notes are asked for.
        template: the prompt file.
    """

    def __init__(
        self, runtime: LLMRuntime, settings: NoteSettings | None = None, template: Template | None = None
    ) -> None:
        self._runtime = runtime
        self._settings = settings or NoteSettings()
        self._template = template or load_template()
        self.counts: Counter[str] = Counter()
        """How often: written, rejected, failed, retried, narrowed, silenced, and each reason of a rejection."""

    @property
    def fingerprint(self) -> str:
        """What decides a note besides its prompt: the LLM, the prompt file, the settings, the version of the rules."""
        parts = (
            f"notes:{NOTES_VERSION}",
            self._runtime.fingerprint,
            self._template.fingerprint,
            msgspec.json.encode(self._settings, order="sorted").decode(),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def prompt(self, window: Window) -> Prompt:
        """The exact prompt for a window; what the document says to an LLM is left out of it."""
        return self._template.compose(quiet(window))

    def key(self, prompt: Prompt) -> str:
        """Under what the prompt's note is remembered."""
        return key(prompt, self.fingerprint)

    def write(self, prompts: Sequence[Prompt], windows: Sequence[Window]) -> list[Note]:
        """The notes for prompts and the windows they were made of, in the same order.

        Chunks that share the first part of their prompt are asked for one after another, whatever their order.
        """
        notes: dict[int, Note] = {}
        failures = 0
        for index in _by_shared_part(prompts):
            if failures >= FAILURES:
                notes[index] = Note(outcome="failed", reason=f"not asked: the LLM failed {FAILURES} times in a row")
            else:
                notes[index] = self._note(prompts[index], windows[index])
                failures = failures + 1 if notes[index].outcome == "failed" else 0
            self.counts[notes[index].outcome] += 1
        return [notes[index] for index in range(len(prompts))]

    def _note(self, prompt: Prompt, window: Window) -> Note:
        if not quiet(window).text.strip():
            self.counts["silenced"] += 1
            return Note(outcome="rejected", reason="the passage only gives orders to its reader's LLM")
        reason = ""
        try:
            for attempt in self._attempts(prompt, window):
                answer = self._runtime.generate(attempt, self._settings.max_tokens)
                result = _checked(answer, window)
                if isinstance(result, str):
                    return Note(text=result, outcome="written")
                reason = result.reason
        except LLMFailure as failure:
            return Note(outcome="failed", reason=failure.message)
        self.counts[f"rejected: {reason.split(';')[0]}"] += 1
        return Note(outcome="rejected", reason=reason)

    def _attempts(self, prompt: Prompt, window: Window) -> Iterator[Prompt]:
        """The prompt, narrowed until it fits, and the one for a second try."""
        fitting = self._fitting(prompt, window)
        if fitting is None:
            raise LLMFailure("the prompt does not fit the LLM's context, however narrow its window")
        yield fitting
        if self._settings.retry and fitting.again:
            self.counts["retried"] += 1
            yield msgspec.structs.replace(fitting, ask=fitting.again)

    def _fitting(self, prompt: Prompt, window: Window) -> Prompt | None:
        if self._fits(prompt):
            return prompt
        self.counts["narrowed"] += 1
        candidates = (self._template.compose(narrow) for narrow in narrowed(quiet(window)))
        return next(filter(self._fits, candidates), None)

    def _fits(self, prompt: Prompt) -> bool:
        again = msgspec.structs.replace(prompt, ask=prompt.again or prompt.ask)
        return min(self._runtime.room(prompt), self._runtime.room(again)) >= self._settings.max_tokens


def _checked(answer: Completion, window: Window) -> str | Rejection:
    """The note in an answer, cleaned and grounded."""
    note = clean(answer.text, answer.finished)
    if isinstance(note, Rejection):
        return note
    ungrounded = grounded(note, window)
    return Rejection(ungrounded) if ungrounded else note


def _by_shared_part(prompts: Sequence[Prompt]) -> list[int]:
    """Indexes of the prompts, those with one shared part together, in the order of their first."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault((prompt.instructions, prompt.shared), []).append(index)
    return [index for group in groups.values() for index in group]
