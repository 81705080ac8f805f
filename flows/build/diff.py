"""What a build has to do: the source's listing against the catalog of the published revision.

Invariants:
- A document whose version and recipe did not change is not looked at, unless all are to be read again or its turn has
  come; one whose version changed is not either, where the cache knows that the bytes of both versions are equal.
- A file of a known type that no adapter reads is skipped by its name: it is not fetched, its changes change nothing.
- A document of another source is not looked at.
- A build of named keys looks at these alone, each as a listing would show it, and reads them again whatever their
  versions say: a change of labels moves no version.
- An empty listing is an error, never a removal of everything; a listing that breaks off leaves no plan.
- The plan lies in a file, so that no build holds a list of all documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec

from chunker.chunk import document_id
from flows.build.batch import Batch, Entry
from flows.build.rereading import Turns
from flows.seen_versions import SeenVersion
from flows.sources import Object
from flows.state import BuildState
from indexes.cache.store import version_key
from indexes.catalog import CatalogRow, status_of_today
from indexes.revisions.generation import published_catalog
from parsers.errors import GateRefused, SourceError, UsageError
from parsers.registry import unread_by_name

_PIECE: Final = 10_000  # rows of the catalog that are Python objects at a time
REMOVED_AT_ONCE: Final = 2_000
SKIPPED: Final = "skipped"  # the version of what is skipped by its name
_STEPS: Final = ("add", "look", "renew", "retry", "reread", "remove")
READ_AGAIN: Final = ("reread", "retry")  # steps that a kept plan does not hold: they depend on the day


class Known(msgspec.Struct, frozen=True):
    """What the plan asks of a document in the catalog: the same fields of :class:`indexes.catalog.CatalogRow`."""

    document_id: str
    key: str
    version: str
    size: int
    media_type: str
    recipe: str
    status: str
    reason: str
    attempts: int
    tokens: int
    unknown: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "status", status_of_today(self.status))


_COLUMNS: Final = Known.__struct_fields__


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a plan.

    Attributes:
        do: ``add`` a document that is new, ``look`` at one whose version moved, ``renew`` one whose recipe moved alone,
            ``retry`` one that failed, ``reread`` one of which nothing moved, or ``remove`` one that is gone.
        key, version, size, problem, status: as the source lists it.
        document_id: of the document.
    """

    do: str
    key: str
    document_id: str
    version: str = ""
    size: int = 0
    problem: str = ""
    status: Literal["failed", "skipped"] = "failed"


class DiffOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is asked for besides the settings.

    Attributes:
        new_source: whether a source that the index does not know may be added to it.
        reread: whether all documents are to be read again.
        retry_failed: whether those that failed are to be tried again.
        keys: the documents to look at, without a listing; None for all.
    """

    keys: tuple[str, ...] | None = None
    new_source: bool = False
    reread: bool = False
    retry_failed: bool = False


@dataclass(slots=True)
class Plan:
    """What a build has to look at.

    Attributes:
        path: the file of its steps, one JSON object a line, by ascending key.
        source: the source's name.
        listed: how many documents the source holds.
        listed_size: bytes of those that are to be read.
        skipped: how many of them are skipped by their names.
        unchanged: how many of them need nothing.
        steps: how many are to be added, looked at, renewed, tried again, read again and removed.
        skipped_steps: how many of these steps are of documents skipped by their names.
        size: bytes of the documents to look at.
        known: how many documents of this source the index knows now.
        before, gone: how many of these were not skipped, and how many of those are to be removed; in a build of named
            keys, since the last listing.
        unknown_keys: named keys that neither the source nor the index knows.
        keys: the named keys; None for a listing.
        turns: which documents are read again though nothing moved.
    """

    path: Path
    source: str
    turns: Turns
    listed: int = 0
    listed_size: int = 0
    skipped: int = 0
    unchanged: int = 0
    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STEPS, 0))
    skipped_steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_STEPS, 0))
    size: int = 0
    known: int = 0
    before: int = 0
    gone: int = 0
    keys: tuple[str, ...] | None = None
    unknown_keys: list[str] = field(default_factory=list)

    @property
    def looked_at(self) -> int:
        """How many documents are to be looked at."""
        return sum(self.steps.values()) - self.steps["remove"]

    def read(self) -> Iterator[Step]:
        """Return the steps, in their order."""
        return read_steps(self.path)

    def batches(self, state: BuildState) -> Iterator[Batch]:
        """Yield the documents to look at, in batches bounded in bytes and in documents.

        A document larger than a batch makes one of its own.
        """
        batch: list[Step] = []
        held = 0
        limit, count = state.settings.batch_bytes, state.settings.batch_documents
        for step in self.read():
            if step.do == "remove":
                continue
            if batch and (held + _to_read(step) > limit or len(batch) >= count):
                yield Batch(self.entries(state, batch))
                batch, held = [], 0
            batch.append(step)
            held += _to_read(step)
        if batch:
            yield Batch(self.entries(state, batch))

    def removed(self, state: BuildState) -> Iterator[list[CatalogRow]]:
        """Yield the catalog rows of documents that are gone, some at a time."""
        gone = (step.document_id for step in self.read() if step.do == "remove")
        while ids := list(islice(gone, REMOVED_AT_ONCE)):
            rows = state.published_rows(ids)
            yield [rows[name] for name in ids]

    def entries(self, state: BuildState, steps: list[Step]) -> list[Entry]:
        """Return the documents of some steps."""
        rows = state.published_rows(step.document_id for step in steps if step.do != "add")
        return [self._entry(state, step, rows.get(step.document_id)) for step in steps]

    def _entry(self, state: BuildState, step: Step, row: CatalogRow | None) -> Entry:
        listed = Object(step.key, step.version, step.size, step.problem, step.status)
        entry = Entry(listed, self.source, row, labels=state.labels(step.key))
        if row is not None:  # they hold until others are read
            entry.state(tuple(row.stated))
        if step.problem:
            entry.fail(step.status, step.problem)
        elif step.do in READ_AGAIN:
            entry.reread, entry.again = True, step.do == "retry"
        elif row is not None and row.version == step.version:
            entry.media_type, entry.bytes_digest = row.media_type, row.bytes_digest
        return entry


def read_steps(path: Path) -> Iterator[Step]:
    """Yield the steps of a plan's file."""
    decode = msgspec.json.Decoder(Step).decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)


def make_plan(state: BuildState, path: Path, asked: DiffOptions) -> Plan:
    """List the source and compare it with the published catalog.

    Args:
        path: where the steps are written.

    Raises:
        SourceError: when the source cannot be listed, or is empty at a first build.
        GateRefused: when it is empty and was not before.
        UsageError: when the index does not know the source.
    """
    _check_sources(state, new_source=asked.new_source)
    source = state.resources.source.name
    keys = None if asked.keys is None else tuple(sorted(set(asked.keys)))
    plan = Plan(path, source, Turns(state.storage, source, state.settings.reread_days), keys=keys)
    state.seen_versions.begin(path.with_name("seen.jsonl"))
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        for step in _steps(state, plan, asked):
            file.write(encode(step) + b"\n")
            plan.steps[step.do] += 1
            plan.skipped_steps[step.do] += step.version == SKIPPED
            plan.size += _to_read(step)
    if plan.keys is not None:
        _count_since_listing(state, plan)
    elif not plan.listed:
        _refuse_empty(state, plan)
    return plan


def _steps(state: BuildState, plan: Plan, asked: DiffOptions) -> Iterator[Step]:
    """Yield the steps by ascending key."""
    pairs = _pairs(state, plan)
    while piece := list(islice(pairs, _PIECE)):
        same = _same_bytes(state, piece)
        seen = []
        for listed, row in piece:
            if listed is None:
                assert row is not None
                plan.gone += _counts(row)
                yield Step("remove", row.key, row.document_id)
                continue
            name = row.document_id if row is not None else document_id(plan.source, listed.key)
            do = _to_do(state, plan, asked, listed, row, moved=name not in same)
            if do:
                yield Step(do, listed.key, name, listed.version, listed.size, listed.problem, listed.status)
            elif row is not None:
                plan.unchanged += 1
                state.report_status(row)
                if name in same:
                    seen.append(same[name])
        state.seen_versions.add(seen)


def _to_do(state: BuildState, plan: Plan, asked: DiffOptions, listed: Object, row: Known | None, *, moved: bool) -> str:
    """Return the step for a document that the source lists; empty where it needs none.

    Args:
        moved: whether another version means other bytes.
    """
    if row is None:
        return "add"
    failed = row.status == "failed" and not listed.problem
    if failed and asked.retry_failed:
        return "retry"
    if (row.version != listed.version and moved) or not row.reason.startswith(listed.problem):
        return "look"
    if not state.continues or row.recipe != state.recipe(row.key, row.media_type):
        return "renew" if moved else "look"
    named = plan.keys is not None
    if not listed.problem and (asked.reread or named or plan.turns.is_due(row.document_id)):
        return "retry" if failed else "reread"
    return ""


def _pairs(state: BuildState, plan: Plan) -> Iterator[tuple[Object | None, Known | None]]:
    """Yield both sides by ascending key, one beside the other."""
    known = _known(state, plan)
    row = next(known, None)
    for listed in _listed(state, plan):
        while row is not None and row.key < listed.key:
            yield None, row
            row = next(known, None)
        if row is not None and row.key == listed.key:
            yield listed, row
            row = next(known, None)
        else:
            yield listed, None
    while row is not None:
        yield None, row
        row = next(known, None)


def _listed(state: BuildState, plan: Plan) -> Iterator[Object]:
    """Yield the listing of the source; one skipped by its name gets a version that never changes."""
    last = ""
    for listed in _objects(state, plan):
        if plan.listed and listed.key <= last:
            raise SourceError(
                f"source {state.resources.source.address} lists {listed.key!r} after {last!r}",
                "A source lists each key once, in ascending order; this one changed while it was listed. Build again.",
            )
        last = listed.key
        plan.listed += 1
        unread = "" if listed.problem else unread_by_name(listed.key)
        if unread:
            plan.skipped += 1
            listed = Object(listed.key, SKIPPED, listed.size, unread, "skipped")
        elif listed.size > state.settings.document_bytes and not listed.problem:
            listed = Object(listed.key, listed.version, listed.size, _too_large(listed, state.settings.document_bytes))
        plan.listed_size += _to_read(listed)
        yield listed


def _objects(state: BuildState, plan: Plan) -> Iterator[Object]:
    """Yield what the source holds; of named keys alone where there are some."""
    source = state.resources.source
    if plan.keys is None:
        yield from source.objects()
        return
    for key in plan.keys:
        listed = source.look(key)
        if listed is not None:
            yield listed
        elif not state.published_rows([document_id(plan.source, key)]):
            plan.unknown_keys.append(key)


def _count_since_listing(state: BuildState, plan: Plan) -> None:
    """Have the guard of removals count what builds of named keys removed since the last listing."""
    if plan.gone and state.published is not None:
        catalog = published_catalog(state.storage, state.published)
        rows = catalog.columns(("status", "tokens"), plan.source).to_pylist()
        now = sum(row["status"] != "skipped" or row["tokens"] > 0 for row in rows)
        plan.before, plan.gone = now + plan.turns.removed, plan.gone + plan.turns.removed


def _too_large(listed: Object, most: int) -> str:
    return f"has {listed.size:,} bytes, more than the {most:,} of the setting document_bytes"


def _same_bytes(state: BuildState, piece: list[tuple[Object | None, Known | None]]) -> dict[str, SeenVersion]:
    """Return those documents, by id, whose version changed while their bytes did not, as far as the cache knows."""
    asked = {}
    for listed, row in piece:
        changed = listed is not None and row is not None and row.version not in ("", SKIPPED, listed.version)
        if changed and listed is not None and row is not None and not listed.problem:
            asked[version_key(row.document_id, listed.version)] = (listed, row.document_id)
    if not asked or not state.continues:
        return {}
    rows = state.published_rows(name for _, name in asked.values())
    same = {}
    for key, version in state.caches.versions.get(asked).items():
        listed, name = asked[key]
        known = rows[name]
        bytes_known = (known.bytes_digest, known.media_type, tuple(known.stated))
        if (version.bytes_digest, version.media_type, version.labels) == bytes_known:
            same[name] = SeenVersion(name, listed.version, listed.size)
    return same


def _to_read(listed: Object | Step) -> int:
    """Return bytes of a document that are to be read."""
    return listed.size if not listed.problem else 0


def _counts(row: Known) -> bool:
    """Return whether the guard of removals counts a document: one that was skipped is in no index."""
    return row.status != "skipped" or row.tokens > 0


def _known(state: BuildState, plan: Plan) -> Iterator[Known]:
    """Yield the catalog rows of the source, by ascending key."""
    if state.published is None:
        return
    if plan.keys is not None:
        yield from _known_by_key(state, plan)
        return
    catalog = published_catalog(state.storage, state.published)
    table = catalog.columns(_COLUMNS, state.resources.source.name).sort_by("key")
    for start in range(0, len(table), _PIECE):
        columns: Iterable[list[object]] = table.slice(start, _PIECE).to_pydict().values()
        for values in zip(*columns, strict=True):
            row = Known(*values)
            plan.known += 1
            plan.before += _counts(row)
            yield row


def _known_by_key(state: BuildState, plan: Plan) -> Iterator[Known]:
    """Yield what the catalog knows of the named keys, by ascending key."""
    rows = state.published_rows(document_id(plan.source, key) for key in plan.keys or ())
    for row in sorted(rows.values(), key=lambda row: row.key):
        plan.known += 1
        yield Known(*(getattr(row, name) for name in _COLUMNS))


def _check_sources(state: BuildState, *, new_source: bool) -> None:
    if state.published is None:
        return
    sources, name = state.published.sources, state.resources.source.name
    if name not in sources and not new_source:
        raise UsageError(
            f"the index {state.storage.address} knows the sources {', '.join(sorted(sources))}, not {name}",
            "Set `source_name` to one of them, or allow a further one with --new-source.",
        )
    others = sorted(sources.keys() - {name})
    if others and not state.continues:
        raise UsageError(
            f"the index {state.storage.address} was made with {state.published.embedder}, and a new generation with "
            f"{state.settings.embedder} needs its other sources too: {', '.join(others)}",
            f"Make it from what is stored: gristmill reindex --embedder {state.settings.embedder}",
        )


def _refuse_empty(state: BuildState, plan: Plan) -> None:
    if plan.known:
        raise GateRefused(
            f"source {state.resources.source.address} lists no documents, and the index holds {plan.known} of it",
            "An empty listing is never read as a removal. Check the source; to empty an index, remove its folder.",
        )
    raise SourceError(
        f"source {state.resources.source.address} holds no documents", "Check the path, and `include` and `exclude`."
    )
