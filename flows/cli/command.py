"""What all commands have in common: their options, how they end, and what goes to which stream."""

from __future__ import annotations

import functools
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, ParamSpec

import typer

from flows import interrupts
from parsers.errors import GateRefused, GristmillError, sentence

_Arguments = ParamSpec("_Arguments")
STARTED: Final = time.time()
INTERRUPTED: Final = 130


def clearly(command: Callable[_Arguments, None]) -> Callable[_Arguments, None]:
    """Have a command end in a clear message and the right exit status, whatever goes wrong in it."""

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
        except BaseException as error:  # a panic of a library in Rust is no Exception
            if isinstance(error, SystemExit | GeneratorExit):
                raise
            clear = _of_a_store(error, named)
            if clear is not None:
                _fail(clear.message, clear.remedy, clear.exit_status, as_json, transient=clear.transient)
            # Whatever is left is an internal error: its traceback, and status 1.
            if interrupts.told():  # such as Prefect's, when what told us to stop stopped its server too
                _interrupted(as_json)
            traceback.print_exc()
            what = f"internal error: {type(error).__name__}: {error}"
            _fail(what, "Please report it with the lines above.", 1, as_json)

    return run


def _of_a_store(error: BaseException, named: Mapping[str, Any]) -> GristmillError | None:
    """Return the clear error behind one of a store's library, where nobody on its way knew the index."""
    from indexes.storage.errors import as_store_error

    return as_store_error(_index_of(named), error)


def _index_of(named: Mapping[str, Any]) -> str:
    """Return the index of a command: its flag's, or the one of the settings, which may name a store on S3."""
    if named.get("index"):
        return str(named["index"])
    from flows.settings import load_settings

    try:
        return load_settings(named.get("config")).index
    except GristmillError:  # the error at hand is reported all the same
        return "of the settings"


Config = Annotated[Path | None, typer.Option("--config", help="Settings file; gristmill.toml by default.")]
Index = Annotated[str | None, typer.Option("--index", help="Where the index is kept.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing while building.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line of standard output.")]


def show_result(values: dict[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Give what a command found, to a program or to a person."""
    if as_json:
        _print_json(values)
    else:
        show()


def _print_json(values: dict[str, Any]) -> None:
    """One line, with escapes where the stream cannot show a sign."""
    line = json.dumps(values, ensure_ascii=False)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(values)
    typer.echo(line)


def _interrupted(as_json: bool) -> NoReturn:
    remedy = (
        "Readers see the last published revision, if there is one; finished work is cached. Run the command again to "
        "go on."
    )
    _fail("interrupted", remedy, INTERRUPTED, as_json)


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
    """One line on standard error."""
    typer.echo(line, err=True)
