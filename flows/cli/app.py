"""The command line: one face, each command a thin call into this package.

Exit status: 0 done; 1 internal error; 2 wrong use or settings; 3 published, and some documents failed; 4 a gate
refused, nothing published; 5 another build holds the index; 130 interrupted. Progress and messages go to standard
error; with ``--json`` the last line of standard output is one JSON object, for an error too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, cast, get_args

import typer

from flows import interrupts
from flows.cli import streams
from flows.cli.command import STARTED, Config, Index, Json, Quiet, clearly, say, show_result
from flows.cli.maintenance import register
from flows.cli.question_argument import QuestionCommand
from flows.orchestration.temporary_server import keep_apart
from flows.settings import Mode, Settings, load_settings, prepare_environment, prepare_llm

SOME_FAILED: Final = 3
AllowUnmatched = Annotated[
    bool | None,
    typer.Option(
        "--allow-unmatched", help="Take a filter that names a label no document carries, or leaves out a key none has."
    ),
]
REFUSED: Final = 4

app: Final = typer.Typer(
    help="Turns a document store into a published search index, again and again, touching only what changed.",
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
    """Turns a document store into a published search index, again and again, touching only what changed."""


@app.command("build")
@clearly
def build_command(
    source: Annotated[str | None, typer.Argument(help="The folder that holds the documents.")] = None,
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
    allow_deletes: Annotated[
        bool, typer.Option("--allow-deletes", help="Publish however many documents are gone from the source.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish although the gate of removals, failures or recall refuses.")
    ] = False,
    new_source: Annotated[
        bool, typer.Option("--new-source", help="Take a source into the index that it does not know yet.")
    ] = False,
    reread: Annotated[
        bool, typer.Option("--reread", help="Read the bytes of all documents again, changed or not.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try documents again that failed, also those left alone.")
    ] = False,
    vectors_for: Annotated[
        list[str] | None, typer.Option("--vectors-for", help="Only documents of this key pattern get vectors.")
    ] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="Who writes notes: none, extractive or llm.")] = None,
    no_notes: Annotated[bool, typer.Option("--no-notes", help="The same as --notes none.")] = False,
    notes_limit: Annotated[
        int | None, typer.Option("--notes-limit", help="Notes asked of the LLM in this build; the rest waits.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what a build would do, and how long that would take.")
    ] = False,
    keep: Annotated[Path | None, typer.Option("--keep", help="With --plan: write the plan to this file.")] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Build just what this kept plan says, or refuse.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """One incremental build: look at what changed, check the result, publish it."""
    if keep is not None and not plan:
        raise typer.BadParameter("--keep belongs to --plan")
    if plan and replay is not None:
        raise typer.BadParameter("--plan makes a plan, --replay builds by one")
    settings = load_settings(
        config,
        source=source,
        index=index,
        vectors_for=vectors_for or None,
        notes="none" if no_notes else notes,
        notes_limit=notes_limit,
    )
    if settings.notes == "llm":
        prepare_llm()
    asked = {"new_source": new_source, "reread": reread, "retry_failed": retry_failed}
    if plan:
        from flows.build.diff import Asked
        from flows.build.dry_run import plan_build
        from flows.cli import printing

        planned = plan_build(settings, Asked(**asked), keep)
        show_result(planned, as_json, lambda: printing.print_plan(planned, settings.exclude))
        return
    report = _build(settings, quiet=quiet, allow_deletes=allow_deletes, force=force, replay=replay, **asked)
    _built(report, as_json, settings)


def _build(settings: Settings, *, quiet: bool, **asked: Any) -> dict[str, Any]:
    """The report of a build; of a look alone, where that finds nothing to do."""
    from flows.build.glance import nothing_to_do
    from flows.context import check_surroundings

    check_surroundings(settings)
    if asked["replay"] is None:
        looked = {name: asked[name] for name in ("new_source", "reread", "retry_failed")}
        unchanged = nothing_to_do(settings, quiet=quiet, started=STARTED, **looked)
        if unchanged is not None:
            return unchanged
    from flows.build.build import BuildOptions
    from flows.build.build import build as run

    keep_apart()
    return run(settings, BuildOptions(quiet=quiet, started=STARTED, **asked))


@app.command("reindex")
@clearly
def reindex_command(
    embedder: Annotated[str, typer.Option("--embedder", help="The model that is to make the vectors.")],
    index: Index = None,
    rechunk: Annotated[
        bool, typer.Option("--rechunk", help="Cut the stored documents again, for this model's limit.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Publish although the gate of failures or recall refuses.")
    ] = False,
    quiet: Quiet = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make the index anew for another embedding model, from what is stored; readers stay on the old one till then."""
    settings = load_settings(config, index=index)
    if settings.notes == "llm":
        prepare_llm()
    from flows.opening import published

    published(settings)
    from flows.build.reindex import ReindexOptions
    from flows.build.reindex import reindex as run

    keep_apart()
    options = ReindexOptions(embedder=embedder, rechunk=rechunk, force=force, quiet=quiet, started=STARTED)
    report = run(settings, options)
    for name in ("embedder", *(["ruler"] if rechunk else [])):
        if name in settings.model_fields_set and getattr(settings, name) != embedder:
            say(f"note: your settings name another {name}: set it to {embedder}, or the next build swaps it back.")
    _built(report, as_json, settings)


def _built(report: dict[str, Any], as_json: bool, settings: Settings) -> None:
    from flows.cli import printing

    show_result(report, as_json, lambda: printing.print_build(report, settings.exclude))
    if report["documents"]["failed"]:
        raise typer.Exit(SOME_FAILED)


@app.command("search", cls=QuestionCommand)
@clearly
def search_command(
    query: Annotated[str, typer.Argument(help="Any text.")],
    index: Index = None,
    mode: Annotated[str, typer.Option("--mode", help="hybrid, dense or bm25.")] = "hybrid",
    k: Annotated[int, typer.Option("-k", min=1, max=1_000, help="How many hits.")] = 10,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="label=NAME, label!=NAME, key=PATH or key=FOLDER/*; all hold.")
    ] = None,
    allow_unmatched: AllowUnmatched = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each hit's rank in each channel.")] = False,
    expand: Annotated[
        str | None, typer.Option("--expand", help="section: the text of the section around each hit as well.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Ask the published index. Without a filter every document can be a hit, whatever its labels.

    To have a filter applied in every search, name it in the settings: always_filter = ["label!=restricted"]. A
    document whose labels cannot be read is shown only with --filter label=gristmill:unreadable-labels.
    """
    from flows.cli import printing
    from flows.searching import answer_query

    if expand not in (None, "section"):
        raise typer.BadParameter(f"{expand!r} is not section, the only thing that a hit is expanded to")
    settings = load_settings(config, index=index, allow_unmatched_filters=allow_unmatched)
    answer = answer_query(settings, query, _mode(mode), k, filters or [], STARTED, expand=expand is not None)
    show_result(answer, as_json, lambda: printing.print_hits(answer, explain=explain))


@app.command("inspect")
@clearly
def inspect_command(
    file: Annotated[Path, typer.Argument(help="The file to look at.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write what is shown as a page to this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Parse and cut one file, and write nothing."""
    from flows.cli import printing
    from flows.inspection import inspect_file
    from flows.pages.page import check_page, write_page

    check_page(html)
    found = inspect_file(file, load_settings(config))
    if html:
        from flows.pages.inspection import page

        write_page(html, page(found, file.name))
    show_result(found, as_json, lambda: printing.print_inspection(found))
    if found["document"]["status"] in ("failed", "skipped"):
        raise typer.Exit(SOME_FAILED)


@app.command("status")
@clearly
def status_command(index: Index = None, config: Config = None, as_json: Json = False) -> None:
    """What is published, and which documents are not wholly in it."""
    from flows.cli import printing
    from flows.maintenance.status import index_status

    settings = load_settings(config, index=index)
    found = index_status(settings)
    show_result(found, as_json, lambda: printing.print_status(found, settings.exclude))


@app.command("evaluate")
@clearly
def evaluate_command(
    golden: Annotated[Path, typer.Argument(help="A golden set, one JSON object a line.")],
    index: Index = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Compare with a kept evaluation: its id, its path, or last; over the questions that resolve in both.",
        ),
    ] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="The ladder: bare text, heading path and notes, in every mode.")
    ] = False,
    sizes: Annotated[
        list[int] | None, typer.Option("--size", help="With --ablate: also with chunks cut for so many tokens.")
    ] = None,
    notes: Annotated[
        str | None, typer.Option("--notes", help="With --ablate: llm puts the LLM's remembered notes on the ladder.")
    ] = None,
    allow_stale: Annotated[
        bool, typer.Option("--allow-stale", help="Leave out questions that do not resolve, and name them.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as a page to this file.")] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="Ask with this filter, beside those of the settings.")
    ] = None,
    allow_unmatched: AllowUnmatched = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """How much of a golden set's answers the published index finds, by mode; the record is kept beside the index."""
    from flows.cli import printing

    settings = load_settings(config, index=index, notes=notes, allow_unmatched_filters=allow_unmatched)
    settings = settings.model_copy(update={"always_filter": [*settings.always_filter, *(filters or [])]})
    if not ablate and (sizes or notes):
        raise typer.BadParameter("--size and --notes belong to --ablate")
    if ablate:
        if against:
            raise typer.BadParameter("--against compares records of a published index, not ladders")
        from flows.evaluation.ablation import ablate as climb

        found = climb(settings, golden, sizes=sizes or [], strict=not allow_stale, html=html, say=say)
    else:
        from flows.evaluation.evaluate import evaluate as run

        found = run(settings, golden, against=against, strict=not allow_stale, html=html)
    show_result(found, as_json, lambda: printing.print_evaluation(found))


@app.command("golden", cls=QuestionCommand)
@clearly
def golden_command(
    action: Annotated[str, typer.Argument(help="check or add.")],
    file: Annotated[Path, typer.Argument(help="The golden set, one JSON object a line.")],
    question: Annotated[str | None, typer.Argument(help="With add: the question.")] = None,
    doc: Annotated[
        str, typer.Option("--doc", help="With add: key of the document that answers, or its end; needs no search.")
    ] = "",
    line: Annotated[
        int | None, typer.Option("--line", min=1, help="With --doc: line in which the answer begins.")
    ] = None,
    quote: Annotated[
        str | None, typer.Option("--quote", help="With add: the words that answer; all of the line or hit by default.")
    ] = None,
    hit: Annotated[int, typer.Option("--hit", min=0, help="Without --doc: rank of the hit that answers; 0: none.")] = 1,
    mode: Annotated[str, typer.Option("--mode", help="With --hit: hybrid, dense or bm25.")] = "hybrid",
    category: Annotated[str, typer.Option("--category", help="With add: the question's category.")] = "",
    index: Index = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check a golden set against the published index, or add a question: by document and quote or line, or by a hit."""
    from flows.cli import printing
    from flows.evaluation import golden_commands

    settings = load_settings(config, index=index)
    if action == "check":
        checked = golden_commands.check(settings, file)
        show_result(checked, as_json, lambda: printing.print_golden_check(checked))
        if checked["errors"]:
            raise typer.Exit(2)
    elif action == "add":
        if question is None:
            raise typer.BadParameter("name the question: gristmill golden add FILE QUESTION")
        if line is not None and not doc:
            raise typer.BadParameter("--line belongs to --doc")
        answer = golden_commands.Answer(document=doc, quote=quote, line=line, hit=hit, mode=_mode(mode))
        added = golden_commands.add(settings, file, question, answer, category)
        show_result(added, as_json, lambda: printing.print_golden_added(added))
    else:
        raise typer.BadParameter(f"{action!r} is none of check, add")


@app.command("models")
@clearly
def models_command(
    action: Annotated[str, typer.Argument(help="list, fetch, verify or convert.")] = "list",
    names: Annotated[list[str] | None, typer.Argument(help="Models; those of the settings by default.")] = None,
    notes: Annotated[str | None, typer.Option("--notes", help="Who writes notes: none, extractive or llm.")] = None,
    runtimes: Annotated[
        list[str] | None, typer.Option("--runtime", help="With convert: what for, such as onnx or llama.cpp:fp16.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List the known models, fetch some into the model folder, verify those there, or convert them for a runtime."""
    from flows.cli import printing_models
    from flows.maintenance.models import manage_models

    if runtimes and action != "convert":
        raise typer.BadParameter("--runtime belongs to convert")
    found = manage_models(load_settings(config, notes=notes), action, names or [], say, runtimes)
    show_result(
        found,
        as_json,
        lambda: (
            printing_models.print_conversions(found) if action == "convert" else printing_models.print_models(found)
        ),
    )


@app.command("parity")
@clearly
def parity_command(
    embedder: Annotated[str | None, typer.Option("--embedder", help="The model; that of the settings.")] = None,
    runtimes: Annotated[
        list[str] | None, typer.Option("--runtime", help="What to compare; all that are there by default.")
    ] = None,
    index: Annotated[
        str | None, typer.Option("--index", help="Compare with what this published index keeps, not with each other.")
    ] = None,
    record: Annotated[Path | None, typer.Option("--record", help="Keep the result in this file.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Whether the runtimes of an embedder make the same vectors: with each other, or with an index."""
    from flows.cli import printing_models
    from flows.evaluation.parity import run

    settings = load_settings(config, index=index)
    found = run(settings, names=runtimes or [], embedder=embedder, with_index=index is not None, record=record, say=say)
    show_result(found, as_json, lambda: printing_models.print_parity(found))
    if not found["ok"]:
        raise typer.Exit(REFUSED)


@app.command("doctor")
@clearly
def doctor_command(
    config: Config = None,
    index: Index = None,
    choose: Annotated[
        bool,
        typer.Option("--choose", help="Find the runtime that embeds fastest here and agrees, and use it from now on."),
    ] = False,
    as_json: Json = False,
) -> None:
    """What this machine can do, with the remedy for each gap."""
    from flows.cli import printing_models
    from flows.maintenance.doctor import choose_runtime, examine

    settings = load_settings(config, index=index)
    if choose:
        choose_runtime(settings, say)
    found = examine(settings)
    show_result(found, as_json, lambda: printing_models.print_checks(found))
    if not found["ok"]:
        raise typer.Exit(2)


register(app)


def main() -> None:
    """The console script."""
    streams.install_streams()
    interrupts.install()
    prepare_environment()
    app()


def _mode(text: str) -> Mode:
    for mode in get_args(Mode):
        if text == mode:
            return cast(Mode, mode)
    raise typer.BadParameter(f"{text!r} is none of hybrid, dense, bm25")
