"""Filters on labels and keys, applied before ranking in both channels.

Kept here: a filter lets the same rows through in LanceDB and in tantivy, whatever signs its value holds. Labels and
keys are compared code point by code point, without folding; what a person types becomes a quoted literal or a term,
never a part of a query's syntax.

``label=internal`` and ``label!=restricted`` look at a document's labels, ``key=handbook/leave.md``, ``key=handbook/*``
and their ``!=`` forms at its key; a ``*`` at the end of a key stands for anything. Several filters hold together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import tantivy

from parsers.errors import UsageError

_EXPRESSION: Final = re.compile(r"\s*(\w+)\s*(!?=)(.+)", re.DOTALL)
_FIELDS: Final = ("key", "label")
_REMEDY: Final = "Write label=NAME, label!=NAME, key=PATH or key!=PATH; a * at the end of a path stands for anything."


class Filter(msgspec.Struct, frozen=True):
    """One condition on a row.

    Attributes:
        field: ``label`` or ``key``.
        value: what is compared; of a prefix, without the ``*``.
        negated: whether rows that match are left out instead.
        prefix: whether the key need only begin with the value.
    """

    field: str
    value: str
    negated: bool = False
    prefix: bool = False


def parse_filters(expressions: Iterable[str]) -> tuple[Filter, ...]:
    """Filters from what a person wrote.

    Raises:
        UsageError: when an expression cannot be read, naming it.
    """
    return tuple(map(_parse_one, expressions))


def to_sql(filters: Sequence[Filter]) -> str | None:
    """A condition for LanceDB; None where there is no filter."""
    return " AND ".join(map(_sql, filters)) or None


def to_clauses(filters: Sequence[Filter], schema: tantivy.Schema) -> list[tuple[tantivy.Occur, tantivy.Query]]:
    """Clauses of a tantivy query that add nothing to a score."""
    return [
        (
            tantivy.Occur.MustNot if filter.negated else tantivy.Occur.Must,
            tantivy.Query.const_score_query(_term(filter, schema), 0.0),
        )
        for filter in filters
    ]


def _parse_one(expression: str) -> Filter:
    match = _EXPRESSION.fullmatch(expression)
    if not match:
        raise UsageError(f"filter {expression!r} is no condition", _REMEDY)
    field, operator, value = match.groups()
    if field not in _FIELDS:
        raise UsageError(f"filter {expression!r} asks for {field!r}; the known ones are {', '.join(_FIELDS)}", _REMEDY)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"filter {expression!r} is not Unicode text", _REMEDY)
    prefix = field == "key" and value.endswith("*")
    return Filter(field, value[:-1] if prefix else value, negated=operator == "!=", prefix=prefix)


def _sql(filter: Filter) -> str:
    # In standard SQL, as DataFusion reads it, the apostrophe alone is special within a literal.
    literal = "'" + filter.value.replace("'", "''") + "'"
    if filter.field == "label":
        condition = f"array_has(labels, {literal})"
    else:
        condition = f"starts_with(key, {literal})" if filter.prefix else f"key = {literal}"
    return f"NOT ({condition})" if filter.negated else f"({condition})"


def _term(filter: Filter, schema: tantivy.Schema) -> tantivy.Query:
    if filter.field == "label":
        return tantivy.Query.term_query(schema, "labels", filter.value)
    if filter.prefix:
        # No edits and any end: exactly the keys that begin so, where a regular expression has a limit of its length.
        return tantivy.Query.fuzzy_term_query(schema, "key", filter.value, distance=0, prefix=True)
    return tantivy.Query.term_query(schema, "key", filter.value)
