"""What is wrong with settings, in words: an unknown name with the one that may be meant, a value with its place."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

from parsers.errors import UsageError

PREFIX: Final = "GRISTMILL_"
# Variables that are no settings: secrets, and two that tests and scripts read.
OTHERS: Final = frozenset(
    {
        "GRISTMILL_LLM_KEY",
        "GRISTMILL_NOTIFY_TOKEN",
        "GRISTMILL_SHARED",
        "GRISTMILL_SITE",
        "GRISTMILL_TOKEN",
        "GRISTMILL_WEBHOOK_SECRET",
    }
)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a settings file; none where it is missing.

    Raises:
        UsageError: when it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"settings file {path} cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"settings file {path} is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}",
            "Save it as UTF-8.",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"settings file {path} is not TOML: {error}", "Correct that line.") from error


def unknown_variables(model: type[BaseModel], environment: Iterable[str]) -> Iterator[str]:
    """Yield a problem for each variable that has our prefix and names no setting."""
    known = list(_variables(model, PREFIX))
    for variable in sorted(environment):
        upper = variable.upper()
        if upper.startswith(PREFIX) and upper not in OTHERS and upper not in known:
            yield f"unknown variable {variable}{_meant(upper, known)}"


def describe(model: type[BaseModel], error: Mapping[str, Any]) -> str:
    """Return one error of pydantic's in words."""
    place: Sequence[int | str] = error["loc"]
    if error["type"] != "extra_forbidden":
        return f"{'.'.join(map(str, place))}: {error['msg']}"
    *above, name = place
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return f"unknown setting {shown}{_meant(str(name), list(_model_at(model, above).model_fields))}"


def not_json(environment: Mapping[str, str], field: str) -> str:
    """Return the problem of a variable whose list or table is not JSON."""
    variable = next(
        (name for name in environment if name.upper() == f"{PREFIX}{field.upper()}"), PREFIX + field.upper()
    )
    value = environment.get(variable, "")
    return f"variable {variable} must be JSON, such as {json.dumps([value or 'name'])}, got {value!r}"


def _meant(name: str, known: Sequence[str]) -> str:
    """Return the end of a message on an unknown name."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"


def _variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _tables(field.annotation)
        if inner is not None and not get_args(field.annotation):  # a table, not a list of tables
            yield from _variables(inner, f"{prefix}{name.upper()}__")
        yield f"{prefix}{name.upper()}"


def _model_at(model: type[BaseModel], above: Sequence[int | str]) -> type[BaseModel]:
    for part in above:
        if isinstance(part, str) and part in model.model_fields:
            model = _tables(model.model_fields[part].annotation) or model
    return model


def _tables(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a setting's table, or of each table of a list of them."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None
