"""The Prefect flows that deployments run: builds, model swaps and maintenance without a person at hand.

Each reads its settings in the process that runs it. Its outcome is that of the command: what ends with status 0 or 3
completes, a refusal (4) fails at once, a busy index (5) is waited for, and any other error (2) is tried again only
where it may pass by itself.

Invariants:
- Flows that write to an index hold its concurrency limit; the lock in the index remains the real guard.
- Each end of a run is recorded, and told where the settings name a receiver.
- No secret is a parameter, a setting or a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from prefect import flow
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.asyncio import AcquireConcurrencySlotTimeoutError, ConcurrencySlotAcquisitionError
from prefect.concurrency.sync import concurrency
from prefect.exceptions import TerminationSignal
from prefect.flows import Flow
from prefect.tasks import Task

from flows.build.build import BuildOptions
from flows.build.reindex import ReindexOptions
from flows.evaluation.evaluate import evaluate
from flows.maintenance import kept_revisions
from flows.notifications import NIGHTLY, RunOutcome, check_missed, index_digest, record_outcome
from flows.opening import published
from flows.orchestration import prefect_flows
from flows.settings import Settings, load_settings, prepare_llm
from parsers.errors import GateRefused, GristmillError, IndexBusy, UsageError

OUTAGE_PAUSES: Final = [60.0, 300.0, 900.0]  # seconds before each further try after an outage
BUSY_PAUSE: Final = 30.0  # seconds between two looks at an index that another build holds
_STOPPED: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, TerminationSignal)


@flow(name="gristmill-nightly", persist_result=False)
def nightly(config: str | None = None, allow_deletes: bool = False) -> dict[str, Any]:
    """Build the whole index and publish it, as `gristmill build` does."""
    settings = _settings(config)
    options = BuildOptions(allow_deletes=allow_deletes, quiet=True)
    return _carried_out(settings, NIGHTLY, lambda: _as_subflow(prefect_flows.build, settings, options))


@flow(name="gristmill-reindex-on-demand", persist_result=False)
def reindex_on_demand(
    embedder: str, rechunk: bool = False, accept: bool = False, config: str | None = None
) -> dict[str, Any]:
    """Rebuild the index for another embedding model, as `gristmill reindex` does."""
    settings = _settings(config)
    options = ReindexOptions(embedder=embedder, rechunk=rechunk, accept=accept, quiet=True)
    return _carried_out(settings, "reindex", lambda: _as_subflow(prefect_flows.reindex, settings, options))


@flow(name="gristmill-evaluation", persist_result=False)
def evaluation(config: str | None = None, allow_stale: bool = False) -> dict[str, Any]:
    """Measure the published index on the golden set of the settings, as `gristmill evaluate` does."""
    settings = _settings(config)
    return _carried_out(
        settings, "evaluation", lambda: _as_timed_task(_evaluate, settings, not allow_stale), writes=False
    )


@flow(name="gristmill-sweep", persist_result=False)
def scheduled_sweep(config: str | None = None) -> dict[str, Any]:
    """Delete what no kept revision needs, as `gristmill sweep` does."""
    settings = _settings(config)
    return _carried_out(settings, "sweep", lambda: _as_timed_task(kept_revisions.sweep, settings))


@flow(name="gristmill-verify", persist_result=False)
def scheduled_verify(config: str | None = None) -> dict[str, Any]:
    """Check every file and row of the index, as `gristmill verify` does."""
    settings = _settings(config)
    return _carried_out(settings, "verify", lambda: _as_timed_task(_verify, settings), writes=False)


@flow(name="gristmill-watch", persist_result=False)
def watch(config: str | None = None) -> bool:
    """Send a notice if the nightly build has not run; return whether one was due."""
    return check_missed(_settings(config), datetime.now(UTC))


def limit_name(settings: Settings) -> str:
    """Return the name of the concurrency limit that all flows that write to this index hold."""
    return f"gristmill-index-{index_digest(settings)}"


def _settings(config: str | None) -> Settings:
    settings = load_settings(Path(config) if config is not None else None)
    if settings.notes == "llm":
        prepare_llm()
    return settings


def _carried_out(
    settings: Settings, job: str, work: Callable[[], dict[str, Any]], *, writes: bool = True
) -> dict[str, Any]:
    """Run a job to its end, record how it ended, and send the notice that this calls for.

    Args:
        writes: whether it must be the only one of its index.
    """
    try:
        if writes:
            with _alone(settings):
                result = _persistently(settings, work)
        else:
            result = _persistently(settings, work)
    except _STOPPED:  # by an operator, or with its worker: neither is news of the index
        raise
    except BaseException as error:  # a panic of a Rust library is not an Exception
        outcome = _outcome_of(settings, error)
        record_outcome(settings, job, outcome, f"{job} {outcome}: {_told(error)}", _details(job, error))
        raise
    record_outcome(settings, job, "completed", f"{job} completed", {"job": job})
    return result


def _persistently(settings: Settings, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a job until it succeeds or fails for good: wait for a busy index, try again after an outage."""
    pauses = list(OUTAGE_PAUSES)
    until = time.monotonic() + settings.busy_seconds
    while True:
        try:
            return work()
        except IndexBusy:
            left = until - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(BUSY_PAUSE, left))
        except GristmillError as error:
            if not error.transient or not pauses:
                raise
            time.sleep(pauses.pop(0))


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold the concurrency limit of the index.

    Raises:
        IndexBusy: when another run holds it for too long.
        UsageError: when there is no such limit, or Prefect does not answer.
    """
    name = limit_name(settings)
    slot = concurrency(name, timeout_seconds=settings.busy_seconds, strict=True, raise_on_lease_renewal_failure=False)
    with ExitStack() as stack:
        try:
            stack.enter_context(slot)
        except AcquireConcurrencySlotTimeoutError as error:
            raise IndexBusy(f"index {settings.index}: another flow run holds {name}", "Wait for it to end.") from error
        except ConcurrencySlotAcquisitionError as error:
            raise _no_limit(name, error) from error
        yield


def _no_limit(name: str, error: ConcurrencySlotAcquisitionError) -> UsageError:
    if error.__cause__ is not None:
        return UsageError(f"Prefect gives no slot of {name}: {error.__cause__}", "Try again.", transient=True)
    remedy = f"Create it: gristmill deploy, or prefect gcl create {name} --limit 1"
    return UsageError(f"Prefect has no concurrency limit {name}", remedy)


def _as_subflow(inner: Flow[..., dict[str, Any]], settings: Settings, options: BuildOptions) -> dict[str, Any]:
    """Run a flow within the one at hand; it ends after the ``timeout_seconds`` of the settings."""
    timed = inner.with_options(timeout_seconds=settings.timeout_seconds)
    return timed(settings, options)


def _as_timed_task(step: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """Run a function of the settings as a task that ends after their ``timeout_seconds``."""
    settings: Settings = given[0]
    task: Task[..., dict[str, Any]] = Task(
        fn=step,
        name=step.__name__.strip("_"),
        tags=["gristmill-maintenance"],
        cache_policy=NO_CACHE,
        persist_result=False,
        timeout_seconds=settings.timeout_seconds,
    )
    return task(*given)


def _evaluate(settings: Settings, strict: bool) -> dict[str, Any]:
    if settings.golden is None:
        raise UsageError("the settings name no golden set", "Set golden, such as golden = 'golden.jsonl'.")
    return evaluate(settings, settings.golden, strict=strict)


def _verify(settings: Settings) -> dict[str, Any]:
    """Check the index.

    Raises:
        GateRefused: when it has faults, as the exit status of the command says.
    """
    found = kept_revisions.verify_index(settings)
    if not found["whole"]:
        faults = [finding for one in found["revisions"] for finding in one["findings"] if finding["fault"]]
        checks = {str(number): str(fault["what"]) for number, fault in enumerate(faults[:20], start=1)}
        remedy = "See all: gristmill verify. Mend it: gristmill repair."
        raise GateRefused(f"index {settings.index}: verify found {len(faults)} faults", remedy, checks)
    return found


def _outcome_of(settings: Settings, error: BaseException) -> RunOutcome:
    if not isinstance(error, GateRefused):
        return "failed"
    if "staged" in error.checks.get("swap", ""):
        return "staged"
    try:
        held = bool(published(settings)[1].held)
    except Exception:  # the first error is the one to tell
        held = False
    return "held" if held and not error.checks else "refused"


def _told(error: BaseException) -> str:
    return error.message if isinstance(error, GristmillError) else f"{type(error).__name__}: {error}"


def _details(job: str, error: BaseException) -> dict[str, Any]:
    if not isinstance(error, GristmillError):
        return {"job": job, "exit_status": 1}
    details = {"job": job, "exit_status": error.exit_status, "transient": error.transient, "remedy": error.remedy}
    return details | ({"checks": error.checks} if isinstance(error, GateRefused) else {})
