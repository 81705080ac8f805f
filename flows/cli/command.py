"""The parts that all commands share: options, error messages, exit statuses and output streams."""

from __future__ import annotations

import functools
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, ParamSpec, cast, get_args

import typer

from flows import interrupts
from flows.settings import Mode, load_settings
from parsers.errors import GateRefused, GristmillError, sentence

STARTED: Final = time.time()
SOME_FAILED: Final = 3  # exit status: published, and some documents failed
REFUSED: Final = GateRefused.exit_status
_INTERRUPTED: Final = 130
_Arguments = ParamSpec("_Arguments")

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; by default gristmill.toml.")]
Index = Annotated[str | None, typer.Option("--index", help="Address of the index: a folder or s3://bucket/prefix.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
AllowUnmatched = Annotated[
    bool | None,
    typer.Option(
        "--allow-unmatched", help="Accept a filter with a label that no document carries, or a key that none has."
    ),
]


def clearly(command: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Wrap a command so that every error ends in a message and the right exit status."""

    @functools.wraps(command)
    def run(*positional: _Arguments.args, **named: _Arguments.kwargs) -> None:
        as_json = bool(named.get("as_json"))
        try:
            command(*positional, **named)
        except (typer.Exit, typer.BadParameter):
            raise
        except GristmillError as error:
            checks = error.checks if isinstance(error, GateRefused) else {}
            _fail(error.message, error.remedy, error.exit_status, as_json, checks, transient=error.transient)
        except KeyboardInterrupt:
            _interrupted(as_json)
        except BaseException as error:  # a panic of a Rust library is not an Exception
            if isinstance(error, SystemExit | GeneratorExit):
                raise
            clear = _of_a_store(error, named)
            if clear is not None:
                _fail(clear.message, clear.remedy, clear.exit_status, as_json, transient=clear.transient)
            # Any other error is an internal one: print its traceback, exit with 1.
            if (
                interrupts.was_interrupted()
            ):  # an error that follows an interrupt, such as Prefect's after its server was stopped
                _interrupted(as_json)
            traceback.print_exc()
            what = f"internal error: {type(error).__name__}: {error}"
            _fail(what, "Please report it with the lines above.", 1, as_json)

    return run


def _of_a_store(error: BaseException, named: Mapping[str, Any]) -> GristmillError | None:
    """Return the clear error behind one of a store's library, where no caller knew the index."""
    from indexes.storage.errors import as_store_error

    return as_store_error(_index_of(named), error)


def _index_of(named: Mapping[str, Any]) -> str:
    """Return the index of a command: from its flag, or from the settings, which may name a store on S3."""
    if named.get("index"):
        return str(named["index"])
    try:
        return load_settings(named.get("config")).index
    except GristmillError:  # report the first error, not this one
        return "of the settings"


def search_mode(text: str) -> Mode:
    """Return the search mode of this name.

    Raises:
        typer.BadParameter: for an unknown name.
    """
    for mode in get_args(Mode):
        if text == mode:
            return cast(Mode, mode)
    raise typer.BadParameter(f"unknown mode {text!r}; use hybrid, dense or bm25")


def show_result(values: dict[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print a command's result, as JSON or for people.

    Args:
        show: prints it for people.
    """
    if as_json:
        _print_json(values)
    else:
        show()


def _print_json(values: dict[str, Any]) -> None:
    """Print one line, with escapes where the encoding of the stream lacks a character."""
    line = json.dumps(values, ensure_ascii=False)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(values)
    typer.echo(line)


def _interrupted(as_json: bool) -> NoReturn:
    remedy = "Readers see the last published revision, if any. Finished work is cached: run the command again to go on."
    _fail("interrupted", remedy, _INTERRUPTED, as_json)


def _fail(
    message: str,
    remedy: str,
    status: int,
    as_json: bool,
    checks: dict[str, str] | None = None,
    *,
    transient: bool = False,
) -> NoReturn:
    typer.echo(f"gristmill: {sentence(message)}" + (f"\n  {remedy}" if remedy else ""), err=True)
    if as_json:
        values: dict[str, Any] = {
            "error": message,
            "remedy": remedy,
            "exit_status": status,
            "transient": transient,
        }
        _print_json(values | ({"checks": checks} if checks else {}))
    raise SystemExit(status)


def say(line: str) -> None:
    """Print a line to standard error."""
    typer.echo(line, err=True)
