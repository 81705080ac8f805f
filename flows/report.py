"""What a build has done, and saying so while it does it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

KEPT: Final = "the index keeps its last good version"  # said of a skipped document that was indexed before


_FIRST: Final = 0.5  # seconds to the second line of progress; from then on twice as long each time
READING: Final = 0.2  # share of a document's way that reading is, in a bar


class Failure(msgspec.Struct, frozen=True):
    """A document that is not wholly in the index, and why."""

    key: str
    status: str
    reason: str


class SkippedType(msgspec.Struct, frozen=True):
    """The skipped documents of one type.

    Attributes:
        type: the extension, as spelled; the key of a document without one.
        documents: how many there are.
        example: the key of the first.
        exclude: the pattern for the setting ``exclude`` that leaves them out.
    """

    type: str
    documents: int
    example: str
    exclude: str


def skipped_types(failures: Iterable[Failure]) -> list[SkippedType]:
    """Return the skipped documents among these by type, the commonest first."""
    keys: dict[str, list[str]] = {}
    for one in failures:
        if one.status == "skipped":
            extension = "" if one.reason.startswith("a link") else PurePosixPath(one.key).suffix
            keys.setdefault(extension or one.key, []).append(one.key)
    found = [
        SkippedType(kind, len(own), min(own), _literally(kind) if kind in own else f"*{_literally(kind)}")
        for kind, own in keys.items()
    ]
    return sorted(found, key=lambda one: (-one.documents, one.type))


def exclude_line(patterns: Iterable[str]) -> str:
    """Return the line of the settings file that leaves these patterns out."""
    return f"exclude = {json.dumps(list(dict.fromkeys(patterns)), ensure_ascii=False)}"


def _literally(name: str) -> str:
    """Return a pattern that matches a name alone."""
    return re.sub(r"[*?[]", r"[\g<0>]", name)


class UnknownTokens(msgspec.Struct, frozen=True):
    """A document that the embedder can hardly read.

    Attributes:
        share: of its tokens that the embedder does not know, from 0 to 1.
    """

    key: str
    share: float


class BuildReport(msgspec.Struct, kw_only=True):
    """A build in figures; its JSON is what ``gristmill build --json`` prints.

    Attributes:
        published: whether this build published a new revision; false where nothing had changed.
        documents: ``added``, ``changed``, ``unchanged``, ``removed`` in this build; ``partial``, ``empty``,
            ``skipped``, ``failed`` of all that the source holds now.
        chunks: ``total`` now; ``added``, ``removed`` in this build (a rewritten chunk counts as neither).
        work: what was really done: ``fetched``, ``parsed``, ``chunked`` in documents; ``notes``, ``embedded`` in
            texts; ``rows_written`` in rows.
        notes: chunks of the documents that were looked at, by what became of their note: ``written``; ``too_long`` for
            ``note_reserve``, and left out; ``rejected`` by the checks; ``none``, where there is nothing to say;
            ``missing``, still to be made. All 0 without notes.
        notes_by_section: documents too long to stand in their notes' prompts, where that is asked for.
        notes_narrowed: chunks of which the LLM saw less than the settings say, because its context holds no more.
        truncated: embedded texts over the embedder's limit, whose ends are in no vector.
        unknown: documents with more unknown tokens than the settings allow without a word.
        unknown_keys: keys that a build was asked for and neither the source nor the index knows.
        oldest_read_days: days since the bytes, or the labels that the source states, were read of the document of which
            they were read longest ago; at most. Those of a folder's files have no labels.
        unmatched_rules: label rules of the settings that match no document of the source.
        skipped: the skipped documents by type, with the pattern that leaves them out.
        seconds: by stage; ``total`` from the start of the command.
        checks: each gate with its figure.
        began: when the command began, on the clock of ``time.time``; not part of the JSON.
    """

    generation: str = ""
    revision: int = 0
    published: bool = False
    documents: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(
            ("added", "changed", "unchanged", "removed", "partial", "empty", "skipped", "failed"), 0
        )
    )
    chunks: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(("total", "added", "removed"), 0))
    work: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)
    )
    failures: list[Failure] = msgspec.field(default_factory=list)
    skipped: list[SkippedType] = msgspec.field(default_factory=list)
    notes: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(("written", "too_long", "rejected", "none", "missing"), 0)
    )
    notes_by_section: int = 0
    notes_narrowed: int = 0
    truncated: int = 0
    unknown: list[UnknownTokens] = msgspec.field(default_factory=list)
    unknown_keys: list[str] = msgspec.field(default_factory=list)
    oldest_read_days: float = 0.0
    unmatched_rules: list[str] = msgspec.field(default_factory=list)
    checks: dict[str, str] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    began: float = msgspec.field(default_factory=time.time)

    def restart(self) -> None:
        """Forget the statuses that an earlier try of listing counted."""
        self.documents.update(dict.fromkeys(self.documents, 0))
        self.failures.clear()
        self.unknown.clear()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun

    def as_json(self) -> dict[str, Any]:
        """Return the report in builtin types: documents in the order of their keys, seconds to the millisecond."""
        self.failures.sort(key=lambda one: one.key)
        self.skipped = skipped_types(self.failures)
        self.unknown.sort(key=lambda one: one.key)
        values: dict[str, Any] = msgspec.to_builtins(self)
        del values["began"]
        values["seconds"] = {stage: round(seconds, 3) for stage, seconds in self.seconds.items()}
        return values


class Progress:
    """Says on standard error what is being done: bars in a terminal, a line now and then otherwise.

    A document is read when it is parsed, and done when its rows are written, which its batch is at once. The first
    lines come soon after one another, the later ones less often.

    Args:
        quiet: say nothing.
        every: seconds between two lines at most.
    """

    def __init__(self, *, quiet: bool = False, every: float = 10.0) -> None:
        self._console: Final = Console(stderr=True, quiet=quiet, highlight=False)
        self._every = every
        self._bars: Bars | None = None
        self._task: Any = None
        self._said = 0.0
        self._pause = _FIRST
        self._read = (0, 0)
        self._begun = time.perf_counter()
        self._totals = (0, 0)
        self._done = (0, 0)
        self._noted = 0
        self._noting = 0.0
        self._embedded = 0
        self._embedding = 0.0

    def say(self, text: str) -> None:
        """One line, at once."""
        if self._bars is not None:
            self._bars.console.print(text, markup=False)
        else:
            self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def documents(self, count: int, size: int) -> Iterator[None]:
        """Show the way through so many documents of so many bytes."""
        self._totals, self._begun = (count, size), time.perf_counter()
        if self._console.is_terminal and not self._console.quiet:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[what]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._task = self._bars.add_task("building", total=max(1, size), what="")
        try:
            if self._bars is not None:
                self._bars.start()
            yield
        finally:
            if self._bars is not None:
                self._bars.stop()
            self._bars = None

    def advance(self, documents: int, size: int) -> None:
        """So many more documents and bytes are done."""
        self._done = (self._done[0] + documents, self._done[1] + size)
        self._read = (max(self._read[0], self._done[0]), max(self._read[1], self._done[1]))
        self._show(last=self._done[0] >= self._totals[0])

    def read(self, documents: int, size: int) -> None:
        """So many more documents and bytes are read."""
        self._read = (self._read[0] + documents, self._read[1] + size)
        self._show()

    def embedded(self, texts: int, seconds: float) -> None:
        """So many more texts were embedded in so many seconds."""
        self._embedded += texts
        self._embedding += seconds
        self._show()

    def noted(self, notes: int, seconds: float) -> None:
        """So many more notes were asked for in so many seconds."""
        self._noted += notes
        self._noting += seconds
        self._show()

    def _show(self, *, last: bool = False) -> None:
        now = time.perf_counter()
        text = self._text(now - self._begun)
        if self._bars is not None:
            done = self._done[1] + READING * (self._read[1] - self._done[1])
            self._bars.update(self._task, completed=done, what=text)
        elif last or now - self._said > self._pause:
            self._pause = self._every if self._pause * 2 > self._every else self._pause * 2
            self._said = now
            self.say(f"  {text}")

    def _text(self, seconds: float) -> str:
        rate = ""
        if self._noted:
            rate += f", {self._noted:,} notes at {self._noting / self._noted:.1f} s each"
        if self._embedded:
            rate += f", {self._embedded:,} chunks embedded at {self._embedded / max(self._embedding, 1e-9):.0f}/s"
        megabytes = self._read[1] / 1e6
        written = "" if self._read[0] == self._done[0] else f", {self._done[0]:,} written"
        return (
            f"{self._read[0]:,} of {self._totals[0]:,} documents read{written}, {_megabytes(megabytes)} of "
            f"{_megabytes(self._totals[1] / 1e6)} MB at {_megabytes(megabytes / max(seconds, 1e-9))} MB/s{rate}"
        )


def _megabytes(value: float) -> str:
    """Return a number with two digits that say something, so that little is not shown as nothing."""
    return f"{value:,.1f}" if value >= 0.95 else f"{value:.2g}" if value >= 0.001 else f"{value:.4f}"
