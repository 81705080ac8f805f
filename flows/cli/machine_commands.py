"""The commands about this machine: its models (``models``) and what it can run (``doctor``)."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.command import Config, Index, Json, clearly, say, show_result
from flows.settings import load_settings


def register_machine_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("models")(models_command)
    app.command("doctor")(doctor_command)


@clearly
def models_command(
    action: Annotated[str, typer.Argument(help="list, fetch, verify or convert.")] = "list",
    names: Annotated[
        list[str] | None, typer.Argument(help="Model names; by default the models that the settings use.")
    ] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="Writer of the notes: none, extractive or llm.")] = None,
    runtimes: Annotated[
        list[str] | None,
        typer.Option("--runtime", help="With convert: target runtime such as onnx or llama.cpp:fp16; repeatable."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List models, fetch them, verify their hashes, or convert them for a runtime."""
    from flows.cli import printing_models
    from flows.maintenance.models import manage_models

    if runtimes and action != "convert":
        raise typer.BadParameter("--runtime needs the action convert")
    found = manage_models(load_settings(config, notes=notes), action, names or [], say, runtimes)
    show = printing_models.print_conversions if action == "convert" else printing_models.print_models
    show_result(found, as_json, lambda: show(found))


@clearly
def doctor_command(
    config: Config = None,
    index: Index = None,
    choose: Annotated[
        bool,
        typer.Option("--choose", help="Measure all runtimes; from now on use the fastest one that passes parity."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check this machine: packages, models, runtimes, folders, index; with a remedy for each gap."""
    from flows.cli import printing_models
    from flows.maintenance.doctor import choose_runtime, examine

    settings = load_settings(config, index=index)
    if choose:
        choose_runtime(settings, say)
    found = examine(settings)
    show_result(found, as_json, lambda: printing_models.print_checks(found))
    if not found["ok"]:
        raise typer.Exit(2)
