"""The commands that look after an index between builds."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.command import Config, Index, Json, clearly, say, show_result
from flows.settings import load_settings
from parsers.errors import GateRefused


def register(app: typer.Typer) -> None:
    """Make them commands of the console script."""
    app.command("revisions")(revisions_command)
    app.command("rollback")(rollback_command)
    app.command("sweep")(sweep_command)
    app.command("verify")(verify_command)
    app.command("repair")(repair_command)


@clearly
def revisions_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """The revisions that are kept, and can be gone back to."""
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.revisions(load_settings(config, index=index))
    show_result(found, as_json, lambda: printing.print_revisions(found))


@clearly
def rollback_command(
    revision: Annotated[
        int | None, typer.Argument(help="The revision; the one before the published by default.")
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Let builds publish again.")] = False,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Go back to a kept revision, without the documents that have gone since; holds publishing until it is released."""
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    if release and revision is not None:
        raise typer.BadParameter("--release goes back to nothing")
    settings = load_settings(config, index=index)
    found = kept_revisions.release(settings) if release else kept_revisions.rollback(settings, revision)
    show_result(found, as_json, lambda: printing.print_rolled_back(found))


@clearly
def sweep_command(
    purge: Annotated[
        list[str] | None,
        typer.Option(
            "--purge",
            metavar="KEY",
            help="Erase this document, or those of a pattern such as 'internal/*', everywhere; may be given again.",
        ),
    ] = None,
    source_name: Annotated[
        str | None, typer.Option("--source-name", help="With --purge: the source, where several hold such a key.")
    ] = None,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Clear away what no kept revision needs and nobody may still want, or erase documents everywhere.

    \b
    To erase a document for good:
      1. Find its key:          gristmill search "its words" --json
      2. Remove it at its source, or `exclude` it in the settings.
      3. Erase it:              gristmill sweep --purge KEY
      4. On each machine that reads the index, delete the folder `cache_dir`
         and restart what serves it.
      5. Check:                 gristmill search "its words" finds nothing,
                                gristmill verify says that nothing is wrong.
    """
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    settings = load_settings(config, index=index)
    if source_name is not None and not purge:
        raise typer.BadParameter("--source-name goes with --purge")
    found = kept_revisions.purge(settings, purge, source_name) if purge else kept_revisions.sweep(settings)
    show_result(found, as_json, lambda: printing.print_swept(found))


@clearly
def verify_command(
    everything: Annotated[
        bool, typer.Option("--all", help="The rows of all kept revisions, not of the published one alone.")
    ] = False,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check every file and every row of the index by its digest, and both stores and the catalog against each other."""
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.verify_index(load_settings(config, index=index), everything=everything)
    show_result(found, as_json, lambda: printing.print_verified(found))
    if not found["whole"]:
        raise typer.Exit(GateRefused.exit_status)


@clearly
def repair_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """Set the index right from what is whole and from the cache, and publish it; name what has to be built anew."""
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.repair_index(load_settings(config, index=index), say)
    show_result(found, as_json, lambda: printing.print_repaired(found))
