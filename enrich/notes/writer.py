"""Who asks the LLM for notes, and what is done with its answers.

Invariants:
- A note that comes out has passed cleaning and grounding.
- An answer that does not pass is asked for once more with another prompt and then counts as rejected.
- A runtime that fails leaves a failed note and stops nobody.
- The notes do not depend on the order in which the chunks come, nor on how many are asked for at a time.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

from enrich.notes.cleaning import Rejection, clean
from enrich.notes.grounding import grounded, quiet
from enrich.notes.note import Note
from enrich.notes.prompts import (
    DOCUMENT_TEMPLATE,
    PRECEDING_TEMPLATE,
    Prompt,
    Template,
    Window,
    key,
    load_template,
    narrowed,
)
from parsers.errors import GristmillError

NOTES_VERSION: Final = 3  # of the rules in context, cleaning, grounding and here; a raise renews all notes
FAILURES: Final = 3  # in a row, after which a runtime is not asked again within a call
CONTEXT: Final = 2048  # tokens that a runtime has for a prompt and its answer, beside a whole document


class LLMFailure(GristmillError):
    """The LLM's runtime failed at one prompt; another prompt or another day may go well."""


class PromptTooLong(LLMFailure):
    """The prompt is longer than the runtime takes; a narrower one may go well."""


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

    @property
    def parallel(self) -> int:
        """How many prompts it answers at a time; from 2 on, each from a thread of its own."""
        ...

    def cancel(self) -> None:
        """Break off what other threads are waiting for; their calls raise an error."""
        ...

    def room(self, prompt: Prompt) -> int:
        """Return tokens left for an answer behind this prompt; negative when the prompt alone is too long."""
        ...

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """Return the answer to a prompt, at most one line of ``max_tokens`` tokens.

        Raises:
            LLMFailure: when it fails at this prompt; :class:`PromptTooLong` where a narrower one may go well.
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
        template: the prompt file for windows without the document.
        whole: the prompt file for windows with the whole of it.
        preceding: the prompt file for windows with the document up to the passage.
    """

    def __init__(
        self,
        runtime: LLMRuntime,
        settings: NoteSettings | None = None,
        template: Template | None = None,
        whole: Template | None = None,
        preceding: Template | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings or NoteSettings()
        self._template = template or load_template()
        self._whole = whole or load_template(DOCUMENT_TEMPLATE)
        self._preceding = preceding or load_template(PRECEDING_TEMPLATE)
        self._lock = threading.Lock()
        self._failures = 0
        self.counts: Counter[str] = Counter()
        """How often: written, rejected, failed, retried, narrowed, silenced, and each reason of a rejection."""

    @property
    def fingerprint(self) -> str:
        """What decides a note besides its prompt: the LLM, the prompt file, the settings, the version of the rules.

        The files for windows with the document are not in it: all that they add stands in the prompts made of them.
        """
        parts = (
            f"notes:{NOTES_VERSION}",
            self._runtime.fingerprint,
            self._template.fingerprint,
            msgspec.json.encode(self._settings, order="sorted").decode(),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def prompt(self, window: Window) -> Prompt:
        """Return the exact prompt for a window; what the document says to an LLM is left out of it."""
        calm = quiet(window)
        prompt = self._composed(calm)
        if calm == window and self._template.shows_all(window):
            return prompt
        return msgspec.structs.replace(prompt, checked=_digest(window))

    def key(self, prompt: Prompt) -> str:
        """Under what the prompt's note is remembered; the prompt as :meth:`prompt` made it."""
        return key(prompt, self.fingerprint)

    def write(self, prompts: Sequence[Prompt], windows: Sequence[Window]) -> list[Note]:
        """Return the notes for prompts and the windows they were made of, in the same order.

        Chunks that share the first part of their prompt are asked for one after another, whatever their order, and
        those with more of the document before them later; as many at a time as the runtime answers.
        """
        order = _by_shared_part(prompts)
        own = ([prompts[index] for index in order], [windows[index] for index in order])
        self._failures = 0
        made = list(map(self._asked, *own)) if self._runtime.parallel < 2 else self._together(*own)
        notes = dict(zip(order, made, strict=True))
        self.counts.update(note.outcome for note in made)
        return [notes[index] for index in range(len(prompts))]

    def _together(self, prompts: Sequence[Prompt], windows: Sequence[Window]) -> list[Note]:
        """Return the notes in the order they are asked for, several at a time."""
        with ThreadPoolExecutor(self._runtime.parallel) as pool:
            try:
                return list(pool.map(self._asked, prompts, windows))
            except BaseException:  # Ctrl-C too: nobody waits for answers that nobody reads
                pool.shutdown(wait=False, cancel_futures=True)
                self._runtime.cancel()
                raise

    def _asked(self, prompt: Prompt, window: Window) -> Note:
        """Return the note for one prompt, unless the runtime has failed too often in a row."""
        if self._failures >= FAILURES:
            return Note(outcome="failed", reason=f"not asked: the LLM failed {FAILURES} times in a row")
        note = self._note(prompt, window)
        with self._lock:
            self._failures = self._failures + 1 if note.outcome == "failed" else 0
        return note

    def _note(self, prompt: Prompt, window: Window) -> Note:
        if not quiet(window).text.strip():
            self._count("silenced")
            return Note(outcome="rejected", reason="the passage only gives orders to its reader's LLM")
        try:
            for fitting in self._fitting(prompt, window):
                try:
                    note = self._tried(fitting, window)
                    return msgspec.structs.replace(note, narrowed=fitting is not prompt)
                except PromptTooLong:  # as its server sees it
                    continue
        except LLMFailure as failure:
            return Note(outcome="failed", reason=failure.message)
        return Note(outcome="failed", reason="the prompt does not fit the LLM's context, however narrow its window")

    def _tried(self, prompt: Prompt, window: Window) -> Note:
        """Ask once or twice for the note of a prompt that fits."""
        reason = ""
        for attempt in self._attempts(prompt):
            answer = self._runtime.generate(attempt, self._settings.max_tokens)
            result = _checked(answer, window)
            if isinstance(result, str):
                return Note(text=result, outcome="written")
            reason = result.reason
        self._count(f"rejected: {reason.split(';')[0]}")
        return Note(outcome="rejected", reason=reason)

    def _attempts(self, prompt: Prompt) -> Iterator[Prompt]:
        """Yield the prompt, and the one for a second try."""
        yield prompt
        if self._settings.retry and prompt.again:
            self._count("retried")
            yield msgspec.structs.replace(prompt, ask=prompt.again)

    def _fitting(self, prompt: Prompt, window: Window) -> Iterator[Prompt]:
        """Yield the prompt and narrower ones, as far as they fit."""
        if self._fits(prompt):
            yield prompt
        self._count("narrowed")
        yield from filter(self._fits, map(self._composed, narrowed(quiet(window))))

    def _fits(self, prompt: Prompt) -> bool:
        again = msgspec.structs.replace(prompt, ask=prompt.again or prompt.ask)
        return min(self._runtime.room(prompt), self._runtime.room(again)) >= self._settings.max_tokens

    def _composed(self, calm: Window) -> Prompt:
        if calm.preceding:
            return self._preceding.compose(calm)
        return (self._whole if calm.document else self._template).compose(calm)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def _digest(window: Window) -> str:
    """Digest of what an answer for a window is checked against: all of it but what no prompt shows."""
    seen = msgspec.json.encode(msgspec.structs.replace(window, opening=""), order="sorted")
    return hashlib.sha256(seen).hexdigest()


def _checked(answer: Completion, window: Window) -> str | Rejection:
    """Return the note in an answer, cleaned and grounded."""
    note = clean(answer.text, answer.finished)
    if isinstance(note, Rejection):
        return note
    ungrounded = grounded(note, window)
    return Rejection(ungrounded) if ungrounded else note


def document_tokens(length: int) -> int:
    """Tokens of context for a whole document of so many code points: one for two, enough but for dense scripts."""
    return length // 2


def limit(prompt: Prompt, context: int) -> int:
    """Tokens that a prompt and its answer may have: a function of the prompt, so that settings renew no notes."""
    return context + document_tokens(sum(map(len, prompt.shared))) if prompt.with_document else context


def _by_shared_part(prompts: Sequence[Prompt]) -> list[int]:
    """Indexes of the prompts, those with one beginning together, in the order of their first, the longer later."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault((prompt.instructions, prompt.shared[0]), []).append(index)
    return [index for group in groups.values() for index in sorted(group, key=lambda index: len(prompts[index].shared))]
