"""``build --plan``: what a build would do and how long that would take; and a kept plan, to be replayed.

Invariants:
- A plan writes nothing to the index.
- What it cannot know without reading documents is estimated and says so.
- A kept plan is replayed only where source, index and settings are still what it was made for.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from enrich.files import atomic_write
from flows.build.batch import Entry
from flows.build.diff import READ_AGAIN, SKIPPED, DiffOptions, Plan, Step, make_plan
from flows.build.estimates import Estimate, Unread, estimate
from flows.build.steps import document_key
from flows.opening import open_storage
from flows.report import Failure, skipped_types
from flows.settings import Settings
from flows.state import BuildState
from indexes.cache.store import version_key
from parsers.errors import GateRefused, UsageError

_FORMAT: Final = 1
# Seconds a piece of work takes where the index has measured none: a document of some pages on two cores without a GPU,
# see tests/benchmarks/README.md.
RATES: Final = {"fetch": 0.001, "parse": 0.02, "chunk": 0.02, "note": 6.5, "embed": 0.06, "write": 0.002}
FITS_A_PROMPT: Final = 200_000  # tokens: below, a whole corpus may simply be put into a prompt
_AT_ONCE: Final = 2_000


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a kept plan was made for.

    Attributes:
        index, revision: the index and what it had published; 0 where nothing.
        settings: digest of all settings.
        digest: SHA-256 of the steps that follow, one a line.
    """

    index: str
    revision: int
    settings: str
    digest: str
    format: int = _FORMAT


def plan_build(settings: Settings, asked: DiffOptions | None = None, keep: Path | None = None) -> dict[str, Any]:
    """Plan a build, as ``gristmill build --plan --json`` prints it.

    Args:
        asked: what the build would be asked for.
        keep: where to write the plan; without the documents that are only read again or tried again.

    Returns:
        ``documents`` {``listed``, ``add``, ``look``, ``renew``, ``retry``, ``reread``, ``remove``, ``unchanged``,
        ``skipped``}, ``work`` as a build reports it, of which ``chunked``, ``notes``, ``embedded`` and ``rows_written``
        are estimates, ``seconds`` by stage and ``total``, ``rates``, ``tokens`` of the corpus, ``fits_a_prompt``,
        ``skipped`` by type, the first ``steps`` of other documents, ``kept``.
    """
    storage = open_storage(settings)
    with tempfile.TemporaryDirectory() as folder:
        state = BuildState(settings, storage)
        try:
            plan = make_plan(state, Path(folder) / "plan.jsonl", asked or DiffOptions())
            planned = _Planned(state, plan)
            if keep is not None:
                _keep(keep, state, plan)
            first = [
                msgspec.to_builtins(one) for one in islice((one for one in plan.read() if one.version != SKIPPED), 20)
            ]
            new = (Failure(one.key, one.status, one.problem) for one in plan.read() if one.problem)
            skipped = skipped_types([*state.report.failures, *new])
        finally:
            state.close()
    pointer, work = state.published, planned.work
    sampled = {stage: value / work["parsed"] for stage, value in planned.seconds.items() if value}
    rates = RATES | sampled | (pointer.rates if pointer is not None else {})
    pieces = {"fetch": "fetched", "parse": "parsed", "chunk": "chunked", "note": "notes", "embed": "embedded"}
    seconds = {stage: work[piece] * rates[stage] for stage, piece in (pieces | {"write": "rows_written"}).items()}
    tokens = max(0, round(planned.tokens + (pointer.counts["tokens"] if pointer is not None else 0)))
    return {
        "index": settings.index,
        "revision": pointer.revision if pointer is not None else 0,
        "documents": _documents(plan),
        "work": work,
        "seconds": {name: round(value, 1) for name, value in seconds.items()}
        | {"total": round(sum(seconds.values()), 1)},
        "rates": rates,
        "measured": sorted(pointer.rates) if pointer is not None else [],
        "tokens": tokens,
        "fits_a_prompt": tokens < FITS_A_PROMPT,
        "skipped": msgspec.to_builtins(skipped),
        "steps": first,
        "kept": str(keep) if keep is not None else None,
    }


def check_kept(path: Path, state: BuildState, plan: Plan) -> None:
    """Make sure that a build would do just what a kept plan says.

    Raises:
        UsageError: when the file is no plan, or one of another index or other settings.
        GateRefused: when the source or the index has moved since.
    """
    try:
        with path.open("rb") as file:
            head = msgspec.json.decode(file.readline(), type=Head)
            kept = file.read()
    except OSError as error:
        raise UsageError(f"plan {path} cannot be read: {error.strerror}", "Check the path.") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no plan: {error}", "Make one: gristmill build --plan --keep FILE") from error
    if hashlib.sha256(kept).hexdigest() != head.digest:
        raise UsageError(f"plan {path} was changed since it was written", "Make another: gristmill build --plan")
    now = _head(state, plan)
    for name, what in (("index", "another index"), ("settings", "other settings")):
        if getattr(now, name) != getattr(head, name):
            raise UsageError(f"plan {path} was made for {what}", "Make another: gristmill build --plan")
    if now != head:
        moved = "the index has published another revision" if now.revision != head.revision else _moved(kept, plan)
        raise GateRefused(f"plan {path} does not hold any more: {moved}", "Make another: gristmill build --plan")


def _moved(kept: bytes, plan: Plan) -> str:
    before = {step.key: step for step in map(msgspec.json.Decoder(Step).decode, kept.splitlines())}
    now = {step.key: step for step in _kept_steps(plan)}
    moved = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return f"{len(moved)} documents have moved since, the first is {moved[0]}"


def _keep(path: Path, state: BuildState, plan: Plan) -> None:
    try:
        steps = b"".join(msgspec.json.encode(step) + b"\n" for step in _kept_steps(plan))
        atomic_write(path, msgspec.json.encode(_head(state, plan)) + b"\n" + steps)
    except OSError as error:
        raise UsageError(f"plan {path} cannot be written: {error.strerror}", "Name another file.") from error


def _kept_steps(plan: Plan) -> Iterator[Step]:
    """Return the steps that a kept plan holds: which documents are read again depends on the day."""
    return (step for step in plan.read() if step.do not in READ_AGAIN)


def _documents(plan: Plan) -> dict[str, int]:
    """Return documents by what is to be done for them; those skipped by their names only as ``skipped``."""
    own = {do: count - plan.skipped_steps[do] for do, count in plan.steps.items()}
    unchanged = plan.unchanged - (plan.skipped - sum(plan.skipped_steps.values()))
    return {"listed": plan.listed, "unchanged": unchanged, **own, "skipped": plan.skipped}


def _head(state: BuildState, plan: Plan) -> Head:
    settings = state.settings.model_dump_json(exclude={"index", "cache_dir"})
    digest = hashlib.sha256()
    for step in _kept_steps(plan):
        digest.update(msgspec.json.encode(step) + b"\n")
    return Head(
        index=str(Path(state.storage.address).absolute()) if not state.storage.remote else state.storage.address,
        revision=state.published.revision if state.published is not None else 0,
        settings=hashlib.sha256(settings.encode()).hexdigest(),
        digest=digest.hexdigest(),
    )


class _Planned:
    """What the stages would have to do; of what only the documents could tell, about so much.

    Attributes:
        work: as a build reports it.
        tokens: of the documents to be parsed, those of their earlier versions taken off.
        seconds: to parse and to cut these documents, as far as they were sampled.
    """

    def __init__(self, state: BuildState, plan: Plan) -> None:
        self.work = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)
        self.tokens = 0.0
        self.seconds = {"parse": 0.0, "chunk": 0.0}
        self._state = state
        self._sums = dict.fromkeys(("notes", "embedded", "rows_written"), 0.0)
        made = estimate(state, (Unread(one.key, one.object.size) for one in self._entries(plan) if self._unread(one)))
        for entry in self._entries(plan):
            self._add(entry, made)
        self.work |= {name: math.ceil(round(value, 6)) for name, value in self._sums.items()}

    def _entries(self, plan: Plan) -> Iterator[Entry]:
        """Yield the documents to look at, with what the cache knows of their bytes."""
        steps = (step for step in plan.read() if step.do != "remove")
        while batch := list(islice(steps, _AT_ONCE)):
            entries = [entry for entry in plan.entries(self._state, batch) if not entry.failed]
            known = _known(self._state, entries)
            for entry in entries:
                entry.touched = entry.document in known
                yield entry

    @staticmethod
    def _unread(entry: Entry) -> bool:
        return not entry.touched and (entry.again or not entry.reread)

    def _add(self, entry: Entry, made: Estimate) -> None:
        row = entry.row
        self.work["fetched"] += not entry.touched
        if entry.reread and not entry.again:
            return
        chunks = float(len(row.chunk_ids)) if row is not None else 0.0
        if self._unread(entry):
            found = made.of(Unread(entry.key, entry.object.size))
            chunks = max(chunks, found.chunks)
            self.tokens += found.tokens - (row.tokens if row is not None else 0)
            self.seconds["parse"] += found.parse
            self.seconds["chunk"] += found.chunk
            self.work["parsed"] += 1
        self.work["chunked"] += 1
        self._sums["notes"] += chunks if self._state.resources.note_writer is not None else 0
        self._sums["embedded"] += chunks if self._state.embeds(entry.key) else 0
        self._sums["rows_written"] += chunks


def _known(state: BuildState, entries: list[Entry]) -> set[str]:
    """Return cache keys of the documents that need not be fetched, where the cache holds any."""
    if state.published is None:
        return set()
    keys = {
        version_key(entry.document_id, entry.object.version): entry
        for entry in entries
        if not entry.bytes_digest and not entry.reread
    }
    for key, version in state.caches.versions.get(keys).items():
        keys[key].bytes_digest, keys[key].media_type = version.bytes_digest, version.media_type
    for entry in entries:
        if entry.bytes_digest:
            entry.document = document_key(entry)
    return state.caches.documents.known(entry.document for entry in entries if entry.document)
