"""The console script ``gristmill``: registers the commands and prepares the process.

Exit status: 0 done; 1 internal error; 2 wrong use, settings or surroundings; 3 published, and some documents failed;
4 a gate refused, nothing published; 5 another build holds the index; 130 interrupted.

Invariants:
- Progress and messages go to standard error. With ``--json`` the last line of standard output is one JSON object, for
  an error too.
- A command imports the libraries it needs when it runs, so ``--help`` imports neither Prefect nor LanceDB nor PyTorch.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from flows import interrupts
from flows.cli import streams
from flows.cli.build_commands import register_build_commands
from flows.cli.deploy_commands import register_deploy_commands
from flows.cli.evaluation_commands import register_evaluation_commands
from flows.cli.machine_commands import register_machine_commands
from flows.cli.maintenance_commands import register_maintenance_commands
from flows.cli.search_commands import register_search_commands
from flows.cli.service_commands import register_service_commands
from flows.settings import prepare_environment

app: Final = typer.Typer(
    help="Turn a document store into a published search index, incrementally.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gristmill {version('gristmill')}")
        raise typer.Exit


@app.callback()
def _gristmill(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Turn a document store into a published search index, incrementally.

    Every command has --help and --json. Without --index and SOURCE, the settings name them: gristmill.toml in the
    working folder, or --config FILE.
    """


register_build_commands(app)
register_search_commands(app)
register_evaluation_commands(app)
register_maintenance_commands(app)
register_service_commands(app)
register_machine_commands(app)
register_deploy_commands(app)


def main() -> None:
    """Run the command line."""
    streams.install_streams()
    interrupts.install()
    prepare_environment()
    app()
