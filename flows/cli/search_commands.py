"""The commands that show contents: ``search`` asks the published index, ``inspect`` parses and cuts one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import (
    SOME_FAILED,
    STARTED,
    AllowUnmatched,
    Config,
    Index,
    Json,
    clearly,
    search_mode,
    show_result,
)
from flows.cli.question_argument import QuestionCommand
from flows.settings import load_settings


def register_search_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("search", cls=QuestionCommand)(search_command)
    app.command("inspect")(inspect_command)


@clearly
def search_command(
    query: Annotated[str, typer.Argument(help="Any text.")],
    index: Index = None,
    mode: Annotated[str, typer.Option("--mode", help="hybrid, dense or bm25.")] = "hybrid",
    k: Annotated[int, typer.Option("-k", min=1, max=1_000, help="Number of hits.")] = 10,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", help="label=NAME, label!=NAME, key=PATH or key=FOLDER/*; repeatable, all must hold."),
    ] = None,
    allow_unmatched: AllowUnmatched = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each hit's rank in each channel.")] = False,
    expand: Annotated[
        str | None, typer.Option("--expand", help="section: also show the section around each hit.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Search the published index. Without a filter all documents are searched, whatever their labels.

    To apply a filter to every search, put it into the settings: always_filter = ["label!=restricted"]. A document
    whose labels cannot be read is shown only with --filter label=gristmill:unreadable-labels.
    """
    from flows.cli import printing
    from flows.searching import answer_query

    if expand not in (None, "section"):
        raise typer.BadParameter(f"--expand {expand!r} is unknown; the only value is section")
    settings = load_settings(config, index=index, allow_unmatched_filters=allow_unmatched)
    answer = answer_query(settings, query, search_mode(mode), k, filters or [], STARTED, expand=expand is not None)
    show_result(answer, as_json, lambda: printing.print_hits(answer, explain=explain))


@clearly
def inspect_command(
    file: Annotated[Path, typer.Argument(help="File to parse.")],
    html: Annotated[Path | None, typer.Option("--html", help="Also write the result as a page to this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show how one file is parsed and cut; change nothing."""
    from flows.cli import printing
    from flows.inspection import inspect_file
    from flows.pages.page import check_page, write_page

    check_page(html)
    found = inspect_file(file, load_settings(config))
    if html:
        from flows.pages.inspection import inspection_page

        write_page(html, inspection_page(found, file.name))
    show_result(found, as_json, lambda: printing.print_inspection(found))
    if found["document"]["status"] in ("failed", "skipped"):
        raise typer.Exit(SOME_FAILED)
