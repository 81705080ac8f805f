"""The build: one incremental pass over a document store that ends in a published revision.

:func:`build_index` is the table of contents. It needs no orchestrator;
:mod:`flows.orchestration.prefect_flows` runs the same steps as Prefect tasks.

Invariants:
- A build lists its source once and takes the lock once.
- Where nothing changed, nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from flows import interrupts
from flows.build.diff import DiffOptions, Plan, make_plan
from flows.build.dry_run import check_kept
from flows.build.estimates import BYTES_A_CHUNK
from flows.build.parsing import parse, parsed_ahead
from flows.build.publishing import pass_gates, publish, record_versions
from flows.build.steps import chunk, embed, fetch, note
from flows.build.writing import remove, write
from flows.context import open_source_of
from flows.gates.gates import Gates, check_removals
from flows.opening import open_storage
from flows.report import BuildReport, Progress
from flows.settings import Settings
from flows.state import BuildState
from indexes.cache import health
from indexes.evaluation.golden import load_golden
from indexes.revisions import erasure
from indexes.storage.storage import Pointer
from parsers.errors import GateRefused

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class BuildOptions(BaseModel):
    """Options of one build besides its settings.

    Attributes:
        allow_deletes: publish however many documents are gone from the source.
        force: publish although a gate refuses that may be forced; its figure says so.
        new_source: add a source that the index does not know yet.
        named_keys: look at these documents alone, without listing the source; None for all. Given as ``keys``; no
            attribute of that name, since Prefect, like ``dict``, takes what has one for a mapping.
        reread: read all documents again, whatever their versions say.
        retry_failed: retry documents that failed, also those left alone.
        quiet: print nothing while building.
        replay: a kept plan; the build must do exactly what it says.
        started: when the command began, on the clock of ``time.time``.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    allow_deletes: bool = False
    force: bool = False
    new_source: bool = False
    named_keys: tuple[str, ...] | None = Field(None, alias="keys")
    reread: bool = False
    retry_failed: bool = False
    quiet: bool = False
    replay: Path | None = None
    started: float | None = None


class Runner(Protocol):
    """Calls a step of a build: plainly, or as a task of an orchestrator."""

    def __call__(
        self, step: Callable[_Arguments, _Result], /, *given: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Result: ...


def plainly(step: Callable[_Arguments, _Result], /, *given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
    """Call a step as a function."""
    return step(*given, **named)


def build_index(settings: Settings, options: BuildOptions | None = None, run: Runner = plainly) -> dict[str, Any]:
    """Build the index of a document store and publish it.

    Args:
        run: calls each step.

    Returns:
        The report as :class:`flows.report.BuildReport` describes it.

    Raises:
        GristmillError: a clear reason why nothing was published.
    """
    options = options or BuildOptions()
    _check_surroundings(settings)
    with opened(settings, options) as state:
        plan = run(list_documents, state, options)
        with state.progress.documents(plan.looked_at, plan.size):
            for batch in parsed_ahead(
                state,
                plan.batches(state),
                fetch=lambda batch: run(fetch, state, batch),
                parse=lambda batch: run(parse, state, batch),
            ):
                run(chunk, state, batch)
                run(note, state, batch)
                run(embed, state, batch)
                run(write, state, batch)
        if plan.steps["remove"]:
            run(remove, state, plan)
        if state.changed:
            record_versions(state)
            recall = run(pass_gates, state, force=options.force, listed=_documents_of(state, plan))
            run(publish, state, recall, made_by="build", sources={plan.source: state.resources.source.place})
        else:
            state.report_published()
        if plan.keys is None:
            plan.turns.finish()
        elif state.report.published:
            plan.turns.finish_named(plan.steps["remove"])
        return finished(state, whole=plan.keys is None)


def _documents_of(state: BuildState, plan: Plan) -> int:
    """Return how many documents the source holds, as far as this build knows."""
    known = state.published.counts["documents"] if plan.keys is not None and state.published is not None else 0
    return max(plan.listed, known)


def list_documents(state: BuildState, options: BuildOptions) -> Plan:
    """List the source and compare it with the catalog.

    Raises:
        GateRefused: when more documents are gone than the guard allows.
    """
    report = state.report
    report.restart()
    with report.timed("list"):
        asked = DiffOptions(
            new_source=options.new_source,
            reread=options.reread,
            retry_failed=options.retry_failed,
            keys=options.named_keys,
        )
        plan = make_plan(state, state.resources.scratch / "plan.jsonl", asked)
        if options.replay is not None:
            check_kept(options.replay, state, plan)
    state.resources.expected_texts = round(plan.size / BYTES_A_CHUNK)
    removals = Gates(report, force=options.force or options.allow_deletes)
    # Before the work: a build that will be refused is refused at once.
    removals.through("removals", lambda: check_removals(state, plan.gone, plan.before), forcible=True, hint=False)
    report.documents["unchanged"] += plan.unchanged
    report.unknown_keys = plan.unknown_keys
    listed = f"{plan.listed:,} {'documents' if plan.keys is None else 'named documents'}"
    state.progress.say(
        f"{listed} in {state.resources.source.address}: {plan.looked_at:,} to look at"
        f" ({plan.size / 1e6:.1f} MB), {plan.unchanged:,} unchanged, {plan.steps['remove']:,} removed"
    )
    return plan


def finished(state: BuildState, *, whole: bool = True) -> dict[str, Any]:
    """Return the report of a finished build.

    Args:
        whole: whether it saw all documents, so that a label rule that matched none is named.
    """
    if whole:
        state.report_unmatched_rules()
    state.report.seconds["total"] = time.time() - state.report.began
    return state.report.as_json()


def _check_surroundings(settings: Settings) -> None:
    """Check what can be checked before the index is locked.

    Raises:
        UsageError: when the golden set or the source cannot be read, or the index cannot be written.
    """
    if settings.golden is not None:
        load_golden(settings.golden)
    open_source_of(settings)
    open_storage(settings).create()


@contextmanager
def opened(settings: Settings, options: BuildOptions) -> Iterator[BuildState]:
    """Hold the index for this build, and time it from the start of the command.

    Raises:
        GateRefused: when publishing is held.
        IndexBusy: when another build holds the index.
    """
    report = BuildReport() if options.started is None else BuildReport(began=options.started)
    report.seconds["start"] = time.time() - report.began
    storage = open_storage(settings)
    with storage.lock(), interrupts.noted():
        erasure.resume(storage)
        state = BuildState(settings, storage, report, Progress(quiet=options.quiet))
        _refuse_held(storage.address, state.published)
        try:
            for line in health.heal(storage, thorough=False):
                state.progress.say(f"warning: {line}")
            yield state
        except BaseException as error:  # a full disk or damage shows as whatever the library at hand raises, or panics
            state.raise_clearly(error)
            raise
        finally:
            state.close()


def _refuse_held(address: str, published: Pointer | None) -> None:
    if published is not None and published.held:
        raise GateRefused(
            f"index {address}: publishing is held: {published.held}",
            "Release it when the cause is mended: gristmill rollback --release",
        )
