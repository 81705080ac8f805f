"""Prefect flows of a build and of a model swap: the same steps, each as a task.

Scheduled, on-demand and served builds run these; so does every build where a Prefect API is configured. What happens to
one document stands in the catalog, not in Prefect: tasks take a batch and persist no result.

Invariants:
- Only steps that may be repeated are retried, and only after an error that may pass by itself.
- An artifact that cannot be stored fails no build and hides no refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from flows.build import build as plain
from flows.build import reindex as plain_reindex
from flows.build import steps
from flows.build.build import BuildOptions, list_documents
from flows.build.reindex import ReindexOptions
from flows.report import Progress
from flows.settings import Settings
from parsers.errors import GateRefused, GristmillError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

RETRIED: Final = (list_documents, steps.fetch, steps.note, steps.embed)
RETRIES: Final = 2
RETRY_SECONDS: Final = [10.0, 60.0]
_tasks: dict[Callable[..., Any], Callable[..., Any]] = {}


def _is_transient(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """Return whether a task failed by an outage."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, GristmillError) and error.transient


def as_task(step: Callable[_Arguments, _Result], /, *given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
    """Run a step as a task of the flow at hand.

    Its tag ``gristmill-STEP`` can be given a concurrency limit, so that builds share a GPU or a model server:
    ``prefect concurrency-limit create gristmill-embed 1``.
    """
    if step not in _tasks:
        name = step.__name__
        _tasks[step] = Task(
            fn=step,
            name=name,
            tags=[f"gristmill-{name}"],
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=RETRIES if step in RETRIED else 0,
            retry_delay_seconds=RETRY_SECONDS,
            retry_condition_fn=_is_transient,
        )
    result: _Result = _tasks[step](*given, **named)
    return result


@flow(name="gristmill-build", persist_result=False, validate_parameters=True)
def build(settings: Settings, options: BuildOptions | None = None) -> dict[str, Any]:
    """Run :func:`flows.build.build.build_index` as a flow, its steps as tasks; show gates, failures and figures."""
    return _shown(settings, lambda: plain.build_index(settings, options, as_task))


@flow(name="gristmill-reindex", persist_result=False, validate_parameters=True)
def reindex(settings: Settings, options: ReindexOptions) -> dict[str, Any]:
    """Run :func:`flows.build.reindex.swap_embedder` as a flow, its steps as tasks; show gates, failures and figures."""
    return _shown(settings, lambda: plain_reindex.swap_embedder(settings, options, as_task))


def _shown(settings: Settings, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a build and keep artifacts of its report, or of the gates that it was refused at."""
    try:
        report = run()
    except GateRefused as refusal:
        _show(settings, "gates", [{"gate": name, "figure": figure} for name, figure in refusal.checks.items()])
        raise
    work = report["documents"] | report["work"] | {f"{name}, s": value for name, value in report["seconds"].items()}
    _show(settings, "gates", [{"gate": name, "figure": figure} for name, figure in report["checks"].items()])
    _show(settings, "failures", report["failures"])
    _show(settings, "figures", [{"figure": name, "value": value} for name, value in work.items()])
    return report


def _show(settings: Settings, key: str, rows: list[dict[str, Any]]) -> None:
    try:
        create_table_artifact(rows, key=key, description=f"{key.capitalize()} of {settings.index}")
    except Exception as error:  # a server that is gone, in whatever form its client raises it
        Progress().say(f"warning: the {key} are not shown in Prefect: {error}")
