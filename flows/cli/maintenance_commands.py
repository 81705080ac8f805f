"""The commands that look after a published index: its status, revisions, cleanup, checks and repair."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.command import REFUSED, Config, Index, Json, clearly, say, show_result
from flows.settings import load_settings


def register_maintenance_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("status")(status_command)
    app.command("revisions")(revisions_command)
    app.command("rollback")(rollback_command)
    app.command("sweep")(sweep_command)
    app.command("verify")(verify_command)
    app.command("repair")(repair_command)


@clearly
def status_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """Show the published revision, and the documents that are not completely in it."""
    from flows.cli import printing
    from flows.maintenance.status import index_status

    settings = load_settings(config, index=index)
    found = index_status(settings)
    show_result(found, as_json, lambda: printing.print_status(found, settings.exclude))


@clearly
def revisions_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """List the kept revisions; `rollback` returns to one of them."""
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.revisions(load_settings(config, index=index))
    show_result(found, as_json, lambda: printing.print_revisions(found))


@clearly
def rollback_command(
    revision: Annotated[
        int | None, typer.Argument(help="Number of the revision; by default the one before the published one.")
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="End the hold: let builds publish again.")] = False,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Return to a kept revision and hold publishing until it is released.

    Documents that were deleted since that revision stay deleted, and today's labels apply.
    """
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    if release and revision is not None:
        raise typer.BadParameter("--release takes no revision: it ends the hold on publishing")
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
            help="Erase this document, or all that match a pattern such as 'internal/*', everywhere; repeatable.",
        ),
    ] = None,
    source_name: Annotated[
        str | None, typer.Option("--source-name", help="With --purge: the source, where several hold such a key.")
    ] = None,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete what no kept revision needs, or erase documents everywhere (--purge).

    \b
    To erase a document for good:
      1. Find its key:          gristmill search "its words" --json
      2. Remove it at its source, or `exclude` it in the settings.
      3. Erase it:              gristmill sweep --purge KEY
      4. On each machine that reads the index, delete the folder `cache_dir`
         and restart what serves it.
      5. Check:                 gristmill search "its words" finds nothing,
                                gristmill verify finds no fault.
    """
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    settings = load_settings(config, index=index)
    if source_name is not None and not purge:
        raise typer.BadParameter("--source-name needs --purge")
    if purge:
        from flows.service.inbox import erase_from_inbox

        erase_from_inbox(settings.inbox_path, purge)
    found = kept_revisions.purge(settings, purge, source_name) if purge else kept_revisions.sweep(settings)
    show_result(found, as_json, lambda: printing.print_swept(found))


@clearly
def verify_command(
    everything: Annotated[
        bool, typer.Option("--all", help="Check the rows of all kept revisions; by default of the published one.")
    ] = False,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check every file and row by its digest, and both stores against the catalog.

    Exit status 4 where faults are found.
    """
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.verify_index(load_settings(config, index=index), everything=everything)
    show_result(found, as_json, lambda: printing.print_verified(found))
    if not found["whole"]:
        raise typer.Exit(REFUSED)


@clearly
def repair_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """Repair the index from its intact parts and the cache, and publish the result.

    Documents that cannot be restored are named; the next build fetches them again.
    """
    from flows.cli import printing
    from flows.maintenance import kept_revisions

    found = kept_revisions.repair_index(load_settings(config, index=index), say)
    show_result(found, as_json, lambda: printing.print_repaired(found))
