"""Commands that take a question, which may begin with a dash."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

import typer
from typer.core import TyperCommand


class QuestionCommand(TyperCommand):
    """A command that takes words with blanks for the question, and names ``--`` where one word looks like an option."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the arguments."""
        takes = {
            name: not getattr(parameter, "is_flag", False)
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        }
        return super().parse_args(ctx, questions_last(args, takes, ctx.command_path))


def questions_last(arguments: Sequence[str], takes: Mapping[str, bool], command: str) -> list[str]:
    """Arguments with a question that begins with a dash behind ``--``.

    Args:
        takes: by option, whether a value follows it.
        command: as it is called, for the message.

    Raises:
        typer.BadParameter: for one word that looks like an option and is none.
    """
    kept: list[str] = []
    questions: list[str] = []
    rest = iter(arguments)
    for one in rest:
        name = one.split("=", 1)[0]
        if one == "--":
            return [*kept, one, *rest, *questions]
        if one in ("", "-") or not one.startswith("-"):
            kept.append(one)
        elif name in takes:
            kept += [one, *_value(rest, follows=takes[name] and "=" not in one)]
        elif any(character.isspace() for character in one):
            questions.append(one)
        elif not one.startswith("--") and takes.get(one[:2]):
            kept.append(one)  # -k5
        else:
            close = get_close_matches(name, takes, n=1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise typer.BadParameter(
                f"there is no option {name}.{meant} To ask for words that begin with a dash, put -- before them: "
                f"{command} -- {shlex.quote(one)}"
            )
    return [*kept, "--", *questions] if questions else kept


def _value(rest: Iterator[str], *, follows: bool) -> list[str]:
    value = next(rest, None) if follows else None
    return [] if value is None else [value]
