"""Register the deployments of one settings file with Prefect, or serve them in this process.

Invariants:
- Registering twice changes nothing; a deployment that was paused stays paused.
- A deployment of another settings file is never replaced.
- ``infra/prefect.yaml`` says the same as :data:`JOBS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from prefect import serve
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import DeploymentApplyError, RunnerDeployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.flows import Flow
from prefect.settings import PREFECT_API_URL
from prefect.types.entrypoint import EntrypointType
from prefect.workers.process import ProcessWorker
from pydantic import BaseModel, ValidationError

from flows.orchestration import scheduled
from flows.orchestration.choice import check_api
from flows.settings import Settings, has_prefect_api
from parsers.errors import UsageError

TAG: Final = "gristmill"  # of every deployment
_POOL_TYPE: Final = "process"
_START: Final = "Start one with `prefect server start`, then set PREFECT_API_URL=http://127.0.0.1:4200/api."


class Job(NamedTuple):
    """A flow that is deployed.

    Attributes:
        name: of the deployment.
        cron: when it runs; empty for on demand.
    """

    name: str
    flow: Flow[..., Any]
    cron: str = ""


JOBS: Final = (
    Job("nightly", scheduled.nightly, "0 2 * * *"),
    Job("watch", scheduled.watch, "0 * * * *"),
    Job("sweep", scheduled.scheduled_sweep, "0 4 * * 0"),
    Job("verify", scheduled.scheduled_verify, "0 5 * * 6"),
    Job("evaluation", scheduled.evaluation),
    Job("reindex", scheduled.reindex_on_demand),
)


class DeployOptions(BaseModel):
    """How to deploy.

    Attributes:
        config: the settings file that the flows read; None for ``gristmill.toml`` where they run, or none.
        folder: where the flows run, so that relative paths in the settings mean the same there.
        cron: when the nightly build runs.
        timezone: of all schedules.
        pool: the work pool.
        prefix: begins the name of each deployment.
    """

    config: Path | None
    folder: Path
    cron: str
    timezone: str
    pool: str
    prefix: str = ""


def deploy(settings: Settings, options: DeployOptions) -> dict[str, Any]:
    """Register all deployments for a work pool; return what is registered.

    Raises:
        UsageError: when Prefect is away, a schedule is wrong, or a name belongs to another settings file.
    """
    made = _made(options, pool=options.pool)
    with _connected(settings, made) as client:
        _ensure_pool(client, options.pool)
        for one in made:
            one.apply()
    return _described(settings, made, options.pool)


def prepare_serving(settings: Settings, options: DeployOptions) -> tuple[dict[str, Any], list[RunnerDeployment]]:
    """Return what is to be served by :func:`serve_deployments`, described and as it is.

    Raises:
        UsageError: as :func:`deploy` does.
    """
    made = _made(options, pool=None)
    with _connected(settings, made):
        return _described(settings, made, None), made


def serve_deployments(made: list[RunnerDeployment]) -> None:
    """Run deployments in this process until it is told to stop; their schedules go on existing then."""
    with _clearly():
        serve(*made, pause_on_shutdown=False, print_starting_message=False)


def _made(options: DeployOptions, pool: str | None) -> list[RunnerDeployment]:
    return [_deployment(job, options, pool) for job in JOBS]


def _deployment(job: Job, options: DeployOptions, pool: str | None) -> RunnerDeployment:
    name = f"{options.prefix}-{job.name}" if options.prefix else job.name
    cron = options.cron if job.flow is scheduled.nightly else job.cron
    return RunnerDeployment.from_flow(
        job.flow,
        name=name,
        schedules=[_schedule(job.name, cron, options.timezone)] if cron else None,
        concurrency_limit=1,
        parameters={"config": str(options.config) if options.config is not None else None},
        tags=[TAG],
        work_pool_name=pool,
        job_variables={"working_dir": str(options.folder)} if pool is not None else None,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _schedule(slug: str, cron: str, timezone: str) -> DeploymentScheduleCreate:
    try:
        return DeploymentScheduleCreate(schedule=CronSchedule(cron=cron, timezone=timezone), slug=slug)
    except ValidationError as error:
        wrong = "; ".join(one["msg"] for one in error.errors())
        raise UsageError(f"schedule {cron!r} in {timezone!r}: {wrong}", "Correct --cron or --timezone.") from error


@contextmanager
def _connected(settings: Settings, made: list[RunnerDeployment]) -> Iterator[SyncPrefectClient]:
    """Connect to Prefect, check that the names are free or ours, and have the index's limit there."""
    if not has_prefect_api():
        raise UsageError("no Prefect API is configured", _START)
    check_api("Start it, or correct PREFECT_API_URL.")
    with _clearly(), get_client(sync_client=True) as client:
        for one in made:
            _check_ours(client, one)
        _ensure_limit(client, scheduled.limit_name(settings))
        yield client


def _check_ours(client: SyncPrefectClient, made: RunnerDeployment) -> None:
    """Raise an error if a deployment of this name reads another settings file."""
    try:
        found = client.read_deployment_by_name(made.full_name)
    except ObjectNotFound:
        return
    if found.parameters.get("config") != made.parameters["config"]:
        raise UsageError(
            f"deployment {made.full_name} exists, with the settings file {found.parameters.get('config')}",
            f"Give these another name with --name, or remove it: prefect deployment delete {made.full_name}",
        )


def _ensure_limit(client: SyncPrefectClient, name: str) -> None:
    try:
        client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))


def _ensure_pool(client: SyncPrefectClient, name: str) -> None:
    try:
        found = client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=name, type=_POOL_TYPE, base_job_template=template))
        return
    if found.type != _POOL_TYPE:
        raise UsageError(f"work pool {name} is of type {found.type}", "Name a process pool, or a new one, with --pool.")


def _described(settings: Settings, made: list[RunnerDeployment], pool: str | None) -> dict[str, Any]:
    return {
        "api": str(PREFECT_API_URL.value()),
        "index": settings.index,
        "pool": pool,
        "concurrency_limit": scheduled.limit_name(settings),
        "deployments": [
            {
                "name": one.full_name,
                "entrypoint": one.entrypoint,
                "schedule": _schedule_of(one),
                "parameters": one.parameters,
            }
            for one in made
        ],
    }


def _schedule_of(made: RunnerDeployment) -> dict[str, str] | None:
    for one in made.schedules or []:
        if isinstance(one.schedule, CronSchedule):
            return {"cron": one.schedule.cron, "timezone": str(one.schedule.timezone)}
    return None


@contextmanager
def _clearly() -> Iterator[None]:
    """Raise a clear error for what Prefect's client raises."""
    try:
        yield
    except (PrefectHTTPStatusError, DeploymentApplyError, httpx.HTTPError) as error:
        away = isinstance(error, httpx.TransportError)
        raise UsageError(f"Prefect: {error}", "Look at the server's log.", transient=away) from error
