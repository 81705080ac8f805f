"""Front matter: the metadata block at the very top of a Markdown file.

Invariants:
- It begins with the file's first character, is closed, and holds fields; what stands between two rules and is no
  mapping, or a sentence with a colon in it, is text.
- Values come out as the text that stands in the file: no dates, numbers or booleans are made of them, and nothing of
  what is nested deeper than a list.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml  # type: ignore[import-untyped]  # it ships no types

from parsers import labels
from parsers.labels import Stated

_YAML: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_TOML: Final = re.compile(r"\+\+\+[ \t]*\n(.*?)^\+\+\+[ \t]*$", re.DOTALL | re.MULTILINE)
_MOST: Final = 100_000  # characters; a longer block is text between two rules
_KEY_LINE: Final = re.compile(r"([A-Za-z_][\w .-]*):(?:[ \t]+(.*))?$")
_FIELD_NAME: Final = re.compile(r"[\w$@][\w.$@/-]*")  # no words of a sentence
_FIELD_LINE: Final = re.compile(r"[ \t#\]}-]|[\w$@][\w .$@/-]*:(?:\s|$)|\s*$")  # a field, or what goes on below one
# Fields that are real whatever stands around them; others in capitals may be ``Note:`` below a rule.
_USUAL_NAMES: Final = """
title labels tags date author authors layout description categories category keywords draft slug id lang language status
version summary aliases weight permalink subtitle type
"""
_USUAL: Final = frozenset(_USUAL_NAMES.split())
_SURROGATE: Final = re.compile("[\ud800-\udfff\0]")  # YAML can escape what no text may hold

_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the compiled one where it was built


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A metadata block.

    Attributes:
        start, end: ``[start, end)`` of what stands between the fences, in code points.
        outer_end: end of the closing fence; the opening one begins the file.
        values: its fields as text; a list is joined by ``, ``.
        stated: what the field ``labels`` states, see :mod:`parsers.labels`.
    """

    start: int
    end: int
    outer_end: int
    values: dict[str, str]
    stated: Stated

    @property
    def labels(self) -> tuple[str, ...]:
        """The document's labels; the one that denies where they cannot be read."""
        return self.stated.labels

    @property
    def title(self) -> str:
        """The field ``title``; empty where there is none."""
        return self.values.get("title", "")


def front_matter(text: str) -> FrontMatter | None:
    """Return the front matter of a file, if it has any."""
    for pattern, load, read in ((_YAML, _load_yaml, labels.from_yaml), (_TOML, _load_toml, labels.from_toml)):
        found = pattern.match(text, 0, _MOST)
        fields = load(found[1]) if found else None
        if found and fields is not None and _is_real(found[1], fields):
            values = {_plain(key): value for key, value in _flat(fields, len(found[1]))}
            stated, end = read(found[1]), found.start(1) + len(found[1].rstrip())
            return FrontMatter(found.start(1), end, found.end(), values, stated)
    return None


def _is_real(block: str, fields: Mapping[str, object]) -> bool:
    """Return whether a block holds fields, and not a sentence that stands between two rules."""
    if not fields:
        return not block.strip()
    names = [name for name in fields if _FIELD_NAME.fullmatch(name)]
    if not block.split("\n", 1)[0].strip():  # a blank line behind a rule: prose, as a rule
        return any(name.casefold() in _USUAL or name.islower() for name in names)
    return bool(names)


def stated_labels(text: str, header: FrontMatter | None) -> Stated:
    """Return the labels that a file states in its front matter, or in what was meant as such.

    Args:
        header: the file's front matter, as :func:`front_matter` finds it.
    """
    if header is not None and header.stated != labels.NOTHING:
        return header.stated
    return labels.from_head(text, header.outer_end if header is not None else 0)


def _load_yaml(block: str) -> Mapping[str, object] | None:
    try:
        loaded = yaml.load(block, Loader=_LOADER)  # the base loader makes nothing but text and lists
    except (yaml.YAMLError, RecursionError, ValueError):
        return _load_lines(block)
    if loaded is None or loaded == "":
        return {}
    return {str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else None


def _load_lines(block: str) -> dict[str, object] | None:
    """Fields of a block that is no valid YAML but looks like it: ``title: Pumps: a manual`` is common."""
    lines = [line for line in block.split("\n") if line.strip() and not line.startswith("#")]
    if not lines or not _KEY_LINE.match(lines[0]) or not all(map(_FIELD_LINE.match, lines)):
        return None
    found = (_KEY_LINE.match(line) for line in lines)
    return {field[1]: (field[2] or "").strip().strip("\"'") for field in found if field}


def _load_toml(block: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(block)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _flat(fields: Mapping[str, object], room: int) -> Iterator[tuple[str, str]]:
    """Fields as text, of nested mappings one level down; as many as fit ``room`` twice over.

    The limit is for aliases, with which a short YAML block can stand for any length.
    """
    left = 2 * room
    for key, value in fields.items():
        nested = value.items() if isinstance(value, dict) else [("", value)]
        for inner, part in nested:
            text = ", ".join(_listed(part, left)) if isinstance(part, list) else _plain(part)
            left -= len(text)
            if left < 0:
                return
            if text:
                yield (f"{key}.{_plain(inner)}" if inner else key), text


def _listed(value: object, room: int = _MOST) -> tuple[str, ...]:
    parts: list[str] = []
    items = value if isinstance(value, list) else str(value).split(",") if isinstance(value, str) else []
    for item in items:
        part = "" if isinstance(item, list | dict) else _plain(item)
        room -= len(part)
        if room < 0:
            break
        if part:
            parts.append(part)
    return tuple(parts)


def _plain(value: object) -> str:
    if isinstance(value, list | dict):
        return ""
    return _SURROGATE.sub("\ufffd", " ".join(str(value).split()))
