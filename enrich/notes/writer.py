"""Ask the LLM for notes and check its answers.

Invariants:
- Every written note has passed cleaning and grounding.
- A rejected answer is retried once with another prompt; after that its note is rejected.
- If the runtime fails, the note is failed and the others go on.
- The notes depend neither on the order of the chunks nor on the number of concurrent requests.
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

NOTES_VERSION: Final = 3  # of the rules for prompts, cleaning, grounding and retries; raising it renews all notes
FAILURES: Final = 3  # consecutive failures after which a call asks the runtime no more
CONTEXT: Final = 2048  # tokens for a prompt and its answer, not counting a whole document


class LLMFailure(GristmillError):
    """The LLM's runtime failed on one prompt; other prompts or a later build may succeed."""


class PromptTooLong(LLMFailure):
    """The prompt exceeds the runtime's limit; a narrower one may fit."""


class Completion(msgspec.Struct, frozen=True):
    """Output of an LLM.

    Attributes:
        text: its output, without control tokens.
        finished: whether it ended by itself or at a line end; False if it reached ``max_tokens``.
    """

    text: str
    finished: bool = True


class LLMRuntime(Protocol):
    """Runs an LLM at temperature 0; the text depends only on the prompt, not on earlier ones."""

    @property
    def fingerprint(self) -> str:
        """All that decides the output besides the prompt: weights, sampling, context length."""
        ...

    @property
    def provenance(self) -> Mapping[str, str]:
        """Library and version; not part of the fingerprint."""
        ...

    @property
    def parallel(self) -> int:
        """Maximum of concurrent prompts; from 2 on, each comes from its own thread."""
        ...

    def cancel(self) -> None:
        """Cancel the calls of other threads; these raise an error."""
        ...

    def room(self, prompt: Prompt) -> int:
        """Return the tokens left for an answer; negative if the prompt alone is too long."""
        ...

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        """Return the answer to a prompt, at most one line of ``max_tokens`` tokens.

        Raises:
            LLMFailure: when it fails on this prompt; :class:`PromptTooLong` if a narrower one may fit.
        """
        ...


class NoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for asking the LLM.

    Attributes:
        max_tokens: maximum of tokens in an answer.
        retry: whether a rejected answer is retried once.
    """

    max_tokens: int = 48
    retry: bool = True


class NoteWriter:
    """Writes notes with an LLM.

    Args:
        runtime: runs the LLM; for prompts and keys, only its fingerprint is used.
        settings: settings for asking the LLM.
        template: the prompt file for windows without the document.
        whole: the prompt file for windows with the whole document.
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
        """Number of notes written, rejected, failed, retried, narrowed and silenced, and of each rejection reason."""

    @property
    def fingerprint(self) -> str:
        """Digest of all that decides a note besides its prompt.

        That is the LLM, the prompt file, the settings and the version of the rules. The prompt files for windows with
        the document are left out, since their prompts contain all that they add.
        """
        parts = (
            f"notes:{NOTES_VERSION}",
            self._runtime.fingerprint,
            self._template.fingerprint,
            msgspec.json.encode(self._settings, order="sorted").decode(),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def prompt(self, window: Window) -> Prompt:
        """Return the exact prompt for a window, without the document's instructions to an LLM."""
        calm = quiet(window)
        prompt = self._composed(calm)
        if calm == window and self._template.shows_all(window):
            return prompt
        return msgspec.structs.replace(prompt, checked=_digest(window))

    def key(self, prompt: Prompt) -> str:
        """Return the cache key of the note for a prompt made by :meth:`prompt`."""
        return key(prompt, self.fingerprint)

    def write(self, prompts: Sequence[Prompt], windows: Sequence[Window]) -> list[Note]:
        """Return the notes for prompts and their windows, in the same order.

        Prompts with the same first part are sent one after another, those with less of the document first. At most
        ``runtime.parallel`` run at a time.
        """
        order = _by_shared_part(prompts)
        own = ([prompts[index] for index in order], [windows[index] for index in order])
        self._failures = 0
        made = list(map(self._asked, *own)) if self._runtime.parallel < 2 else self._together(*own)
        notes = dict(zip(order, made, strict=True))
        self.counts.update(note.outcome for note in made)
        return [notes[index] for index in range(len(prompts))]

    def _together(self, prompts: Sequence[Prompt], windows: Sequence[Window]) -> list[Note]:
        """Return the notes in the order of the prompts, several at a time."""
        with ThreadPoolExecutor(self._runtime.parallel) as pool:
            try:
                return list(pool.map(self._asked, prompts, windows))
            except BaseException:  # also Ctrl-C: do not wait for unused answers
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
    """Return the digest of the text that answers are checked against: the window without its opening."""
    seen = msgspec.json.encode(msgspec.structs.replace(window, opening=""), order="sorted")
    return hashlib.sha256(seen).hexdigest()


def _checked(answer: Completion, window: Window) -> str | Rejection:
    """Return the note in an answer, or a rejection by cleaning or grounding."""
    note = clean(answer.text, answer.finished)
    if isinstance(note, Rejection):
        return note
    ungrounded = grounded(note, window)
    return Rejection(ungrounded) if ungrounded else note


def document_tokens(length: int) -> int:
    """Return the tokens of context for a document of so many code points.

    One token for two code points is enough except for dense scripts.
    """
    return length // 2


def limit(prompt: Prompt, context: int) -> int:
    """Return the maximum of tokens in a prompt and its answer.

    It is a function of the prompt, so that a changed setting renews no notes.
    """
    return context + document_tokens(sum(map(len, prompt.shared))) if prompt.with_document else context


def _by_shared_part(prompts: Sequence[Prompt]) -> list[int]:
    """Return the indexes of the prompts, grouped by their first part, the shorter ones of a group first."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, prompt in enumerate(prompts):
        groups.setdefault((prompt.instructions, prompt.shared[0]), []).append(index)
    return [index for group in groups.values() for index in sorted(group, key=lambda index: len(prompts[index].shared))]
