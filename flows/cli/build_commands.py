"""The commands that publish a new revision: ``build`` and ``reindex``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.command import SOME_FAILED, STARTED, Config, Index, Json, Quiet, clearly, say, show_result
from flows.settings import Settings, load_settings, prepare_llm
from parsers.errors import UsageError

Orchestrator = Annotated[
    str | None,
    typer.Option(
        "--orchestrator",
        help="prefect: run as a Prefect flow; none: run directly; auto (default): prefect if PREFECT_API_URL is set.",
    ),
]


def register_build_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("build")(build_command)
    app.command("reindex")(reindex_command)


@clearly
def build_command(
    source: Annotated[str | None, typer.Argument(help="Folder that holds the documents.")] = None,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
    allow_deletes: Annotated[
        bool, typer.Option("--allow-deletes", help="Publish even if many documents are gone from the source.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish even if the gate of removals, failures or recall refuses.")
    ] = False,
    new_source: Annotated[
        bool, typer.Option("--new-source", help="Accept a source that the index does not know yet.")
    ] = False,
    reread: Annotated[
        bool, typer.Option("--reread", help="Read the bytes of all documents again, changed or not.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Retry all failed documents, also those that wait for a change.")
    ] = False,
    keys: Annotated[
        list[str] | None,
        typer.Option("--keys", help="Look at this document alone, without listing the source; repeatable."),
    ] = None,
    keys_from: Annotated[
        Path | None,
        typer.Option("--keys-from", help="Look at the documents of this file, a key a line; - for standard input."),
    ] = None,
    vectors_for: Annotated[
        list[str] | None,
        typer.Option("--vectors-for", help="Embed only documents whose key matches this pattern; repeatable."),
    ] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="Writer of the notes: none, extractive or llm.")] = None,
    no_notes: Annotated[bool, typer.Option("--no-notes", help="Same as --notes none.")] = False,
    notes_limit: Annotated[
        int | None, typer.Option("--notes-limit", help="Notes to request from the LLM at most; later builds continue.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Dry run: show what a build would do and how long it would take.")
    ] = False,
    keep: Annotated[Path | None, typer.Option("--keep", help="With --plan: write the plan to this file.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Build exactly what this kept plan says, or refuse.")
    ] = None,
    orchestrator: Orchestrator = None,
    quiet: Quiet = False,
) -> None:
    """Build the index incrementally: process what changed, pass the gates, publish."""
    if keep is not None and not plan:
        raise typer.BadParameter("--keep needs --plan")
    if plan and replay is not None:
        raise typer.BadParameter("--plan and --replay exclude each other: the one writes a plan, the other builds it")
    named = _named_keys(keys, keys_from)
    if named is not None and (keep is not None or replay is not None):
        raise typer.BadParameter("--keys looks at some documents; a kept plan is of all of them")
    settings = load_settings(
        config,
        source=source,
        index=index,
        vectors_for=vectors_for or None,
        notes="none" if no_notes else notes,
        notes_limit=notes_limit,
        orchestrator=orchestrator,
    )
    if settings.notes == "llm":
        prepare_llm()
    asked = {"new_source": new_source, "reread": reread, "retry_failed": retry_failed}
    if plan:
        from flows.build.diff import DiffOptions
        from flows.build.dry_run import plan_build
        from flows.cli import printing

        planned = plan_build(settings, DiffOptions(keys=named, **asked), keep)
        show_result(planned, as_json, lambda: printing.print_plan(planned, settings.exclude))
        return
    from flows.build.build import BuildOptions
    from flows.orchestration.choice import run_build

    options = BuildOptions(
        quiet=quiet, started=STARTED, allow_deletes=allow_deletes, force=force, replay=replay, named_keys=named, **asked
    )
    _show_report(run_build(settings, options), as_json, settings)


@clearly
def reindex_command(
    embedder: Annotated[str, typer.Option("--embedder", help="Model that makes the new vectors.")],
    index: Index = None,
    rechunk: Annotated[
        bool, typer.Option("--rechunk", help="Cut the stored documents again, to fit this model's limit.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish even if the gate of failures or recall refuses.")
    ] = False,
    orchestrator: Orchestrator = None,
    quiet: Quiet = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Rebuild the index for another embedding model, from the stored chunks.

    The source is not read. Readers stay on the old index until the new one is published.
    """
    settings = load_settings(config, index=index, orchestrator=orchestrator)
    if settings.notes == "llm":
        prepare_llm()
    from flows.opening import published

    published(settings)
    from flows.build.reindex import ReindexOptions
    from flows.orchestration.choice import run_reindex

    options = ReindexOptions(embedder=embedder, rechunk=rechunk, force=force, quiet=quiet, started=STARTED)
    report = run_reindex(settings, options)
    for name in ("embedder", *(["ruler"] if rechunk else [])):
        current = getattr(settings, name)
        if name in settings.model_fields_set and current != embedder:
            say(f"note: the settings have {name} = {current!r}; set it to {embedder!r}, or the next build swaps back.")
    _show_report(report, as_json, settings)


def _named_keys(keys: list[str] | None, file: Path | None) -> tuple[str, ...] | None:
    """Return the keys of the command line and of a file; None where neither is given."""
    if file is None:
        return tuple(keys) if keys else None
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        lines = data.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", "Give a file in UTF-8 with one key a line.") from error
    return (*(keys or []), *filter(None, lines))


def _show_report(report: dict[str, Any], as_json: bool, settings: Settings) -> None:
    from flows.cli import printing

    show_result(report, as_json, lambda: printing.print_build(report, settings.exclude))
    if report["documents"]["failed"]:
        raise typer.Exit(SOME_FAILED)
