"""The commands that measure: ``evaluate`` a golden set, look after one (``golden``), compare runtimes (``parity``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.command import REFUSED, AllowUnmatched, Config, Index, Json, clearly, say, search_mode, show_result
from flows.cli.question_argument import QuestionCommand
from flows.settings import load_settings


def register_evaluation_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("evaluate")(evaluate_command)
    app.command("golden", cls=QuestionCommand)(golden_command)
    app.command("parity")(parity_command)


@clearly
def evaluate_command(
    golden: Annotated[Path, typer.Argument(help="Golden set: one JSON object a line.")],
    index: Index = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Compare with an earlier evaluation: its id, its path, or last. Only questions that resolve in both "
            "count.",
        ),
    ] = None,
    ablate: Annotated[
        bool,
        typer.Option("--ablate", help="Measure the ladder: bare text, then heading path, then notes; in every mode."),
    ] = False,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", help="With --ablate: also measure chunks of this many tokens; repeatable."),
    ] = None,
    notes: Annotated[
        str | None, typer.Option("--notes", help="With --ablate: llm adds the LLM's cached notes to the ladder.")
    ] = None,
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="Leave out questions whose quotes do not resolve, and name them.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the report as a page to this file.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Search with this filter, added to those of the settings; repeatable."),
    ] = None,
    allow_unmatched: AllowUnmatched = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Measure the recall of the published index on a golden set, by mode.

    The result is kept as a record under the index.
    """
    from flows.cli import printing

    settings = load_settings(config, index=index, notes=notes, allow_unmatched_filters=allow_unmatched)
    settings = settings.model_copy(update={"always_filter": [*settings.always_filter, *(filters or [])]})
    if not ablate and (sizes or notes):
        raise typer.BadParameter("--size and --notes need --ablate")
    if ablate:
        if against:
            raise typer.BadParameter("--against compares records of a published index; --ablate makes none")
        from flows.evaluation.ablation import ablate as climb

        found = climb(settings, golden, sizes=sizes or [], strict=not allow_stale, html=html, say=say)
    else:
        from flows.evaluation.evaluate import evaluate as run

        found = run(settings, golden, against=against, strict=not allow_stale, html=html)
    show_result(found, as_json, lambda: printing.print_evaluation(found))


@clearly
def golden_command(
    action: Annotated[str, typer.Argument(help="check or add.")],
    file: Annotated[Path, typer.Argument(help="Golden set: one JSON object a line.")],
    question: Annotated[str | None, typer.Argument(help="With add: the question.")] = None,
    doc: Annotated[
        str,
        typer.Option("--doc", help="With add: key of the document with the answer, or the key's end; no search runs."),
    ] = "",
    line: Annotated[
        int | None, typer.Option("--line", min=1, help="With --doc: line in which the answer begins.")
    ] = None,
    quote: Annotated[
        str | None, typer.Option("--quote", help="With add: words of the answer; by default the whole line or hit.")
    ] = None,
    hit: Annotated[
        int, typer.Option("--hit", min=0, help="Without --doc: rank of the hit with the answer; 0 for no answer.")
    ] = 1,
    mode: Annotated[str, typer.Option("--mode", help="With --hit: hybrid, dense or bm25.")] = "hybrid",
    category: Annotated[str, typer.Option("--category", help="With add: the question's category.")] = "",
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check a golden set against the published index, or add a question to it.

    A question is added by document and quote or line (--doc), or by a search and the rank of the right hit (--hit).
    """
    from flows.cli import printing
    from flows.evaluation import golden_commands

    settings = load_settings(config, index=index)
    if action == "check":
        checked = golden_commands.check_golden(settings, file)
        show_result(checked, as_json, lambda: printing.print_golden_check(checked))
        if checked["errors"]:
            raise typer.Exit(2)
    elif action == "add":
        if question is None:
            raise typer.BadParameter("the question is missing: gristmill golden add FILE QUESTION")
        if line is not None and not doc:
            raise typer.BadParameter("--line needs --doc")
        answer = golden_commands.Answer(document=doc, quote=quote, line=line, hit=hit, mode=search_mode(mode))
        added = golden_commands.add(settings, file, question, answer, category)
        show_result(added, as_json, lambda: printing.print_golden_added(added))
    else:
        raise typer.BadParameter(f"unknown action {action!r}; use check or add")


@clearly
def parity_command(
    embedder: Annotated[
        str | None, typer.Option("--embedder", help="Model to test; by default that of the settings.")
    ] = None,
    runtimes: Annotated[
        list[str] | None,
        typer.Option("--runtime", help="Runtime to compare, repeatable; by default all that are installed."),
    ] = None,
    index: Annotated[
        str | None, typer.Option("--index", help="Compare with the probes of this published index instead.")
    ] = None,
    record: Annotated[Path | None, typer.Option("--record", help="Write the result to this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Compare the vectors of an embedder's runtimes, with each other or with an index.

    Exit status 4 where a runtime does not agree.
    """
    from flows.cli import printing_models
    from flows.evaluation.parity import run

    settings = load_settings(config, index=index)
    found = run(settings, names=runtimes or [], embedder=embedder, with_index=index is not None, record=record, say=say)
    show_result(found, as_json, lambda: printing_models.print_parity(found))
    if not found["ok"]:
        raise typer.Exit(REFUSED)
