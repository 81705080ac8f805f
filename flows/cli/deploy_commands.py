"""The command that has Prefect run Gristmill by itself: ``deploy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.command import Config, Json, clearly, say, show_result
from flows.settings import SETTINGS_FILE, load_settings


def register_deploy_commands(app: typer.Typer) -> None:
    """Add the command of this module to the console script."""
    app.command("deploy")(deploy_command)


@clearly
def deploy_command(
    config: Config = None,
    cron: Annotated[str, typer.Option("--cron", help="When the nightly build runs.")] = "0 2 * * *",
    timezone: Annotated[str, typer.Option("--timezone", help="Time zone of all schedules.")] = "UTC",
    pool: Annotated[str, typer.Option("--pool", help="Process work pool; created when missing.")] = "gristmill",
    name: Annotated[
        str, typer.Option("--name", help="Beginning of the deployments' names, for a second index on one server.")
    ] = "",
    serve: Annotated[
        bool, typer.Option("--serve", help="Run the deployments in this process, without a pool.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Register the nightly build and the maintenance as Prefect deployments.

    They read the settings file and run in this folder. Start a worker for them with: prefect worker start --pool POOL.
    """
    settings = load_settings(config)
    from flows.orchestration import deployments

    found_here = Path(SETTINGS_FILE) if Path(SETTINGS_FILE).is_file() else None
    path = config or found_here
    options = deployments.DeployOptions(
        config=path.absolute() if path is not None else None,
        folder=Path.cwd(),
        cron=cron,
        timezone=timezone,
        pool=pool,
        prefix=name,
    )
    if serve:
        found, made = deployments.prepare_serving(settings, options)
        show_result(found, as_json, lambda: _print_deployments(found))
        say("Serving; stop with Ctrl-C.")
        deployments.serve_deployments(made)
        return
    found = deployments.deploy(settings, options)
    show_result(found, as_json, lambda: _print_deployments(found))


def _print_deployments(found: dict[str, Any]) -> None:
    from flows.cli.printing import print_line

    for one in found["deployments"]:
        schedule = one["schedule"]
        when = f"{schedule['cron']} {schedule['timezone']}" if schedule else "on demand"
        print_line(f"{one['name']:<40} {when}")
    print_line(f"concurrency limit  {found['concurrency_limit']}: one run at a time writes to {found['index']}")
    if found["pool"] is not None:
        print_line(f"Start a worker: prefect worker start --pool {found['pool']}")
