"""Filters on labels and keys, applied before ranking in both channels.

Invariants:
- A filter lets the same rows through in LanceDB and in tantivy, whatever signs its value holds: what a person types
  becomes a quoted literal or a term, never a part of a query's syntax.
- Labels and keys are compared sign by sign, without folding of letter case; composed and decomposed accents are equal.
- Rows whose document states labels that cannot be read are shown by a filter that names ``UNREADABLE`` alone.
- An expression that would filter nothing by mistake is refused: an unknown form, or a name that nothing carries.

``label=internal`` and ``label!=restricted`` look at a document's labels, ``key=handbook/leave.md``, ``key=handbook/*``
and their ``!=`` forms at its key; a ``*`` at the end of a key stands for anything. Several filters hold together.
Blanks around the signs and the value do not count; a value in straight quotes is taken as it stands between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Final
from unicodedata import normalize

import msgspec
import tantivy

from parsers.errors import UsageError
from parsers.labels import UNREADABLE

_EXPRESSION: Final = re.compile(r"\s*(\w+)\s*([!！]?[=＝]|≠)(.*)", re.DOTALL)
_FIELDS: Final = ("key", "label")
_REMEDY: Final = (
    "Write label=NAME, label!=NAME, key=PATH or key!=PATH; a * at the end of a path stands for anything, and a value "
    "that begins or ends with a sign such as =, ! or a quote stands in straight quotes."
)
_QUOTES: Final = "\"'"
_CURLY: Final = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f＂＇`´"
_OPERATORS: Final = "=＝!！<>~≠"
_LISTED: Final = 20  # labels named in a refusal before the rest is only counted


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

    def __str__(self) -> str:
        return f"{self.field}{'!=' if self.negated else '='}{self.value}{'*' if self.prefix else ''}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """The value as typed, and with its accents composed and decomposed.

        The key of a positive filter is taken as typed only, since another key may differ in just that.
        """
        if self.field == "key" and not self.negated:
            return (self.value,)
        return tuple(dict.fromkeys([self.value, normalize("NFC", self.value), normalize("NFD", self.value)]))


READABLE: Final = Filter("label", UNREADABLE, negated=True)


def parse_filters(expressions: Iterable[str]) -> tuple[Filter, ...]:
    """Parse filters.

    Raises:
        UsageError: when an expression cannot be read, naming it.
    """
    return tuple(map(_parse_one, expressions))


def with_unreadable_hidden(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Add a filter that hides documents with unreadable labels, unless one asks for these."""
    asked = any(one.field == "label" and one.value == UNREADABLE and not one.negated for one in filters)
    return tuple(filters) if asked else (*filters, READABLE)


def check_matched(
    filters: Iterable[Filter], matches: Callable[[Filter], bool], labels: Callable[[], Collection[str]]
) -> None:
    """Refuse a filter that leaves out nothing, or everything, because of how it is spelt.

    Args:
        matches: whether any row has what a filter names, negated or not.
        labels: all labels of the revision; asked only where a label is not found among its rows.

    Raises:
        UsageError: for a label that no document carries, and for an excluded key that none has.
    """
    for one in filters:
        if one.value == UNREADABLE or matches(one):
            continue
        if one.field == "label":
            known = labels()
            if not set(one.spellings).isdisjoint(known):
                continue
            raise UsageError(
                f"filter {one}: no document of this revision carries the label {one.value!r}", _labels_there(one, known)
            )
        if one.negated:
            what = "begins with" if one.prefix else "is"
            raise UsageError(
                f"filter {one}: no key of this revision {what} {one.value!r}, so it would leave nothing out",
                f"Look at the keys of the hits: letter case counts. {_ALLOW}",
            )


def to_sql(filters: Sequence[Filter]) -> str | None:
    """Return a condition for LanceDB; None where there is no filter."""
    return " AND ".join(map(_sql, filters)) or None


def to_query(filter: Filter, schema: tantivy.Schema) -> tantivy.Query:
    """Return a tantivy query for the rows that have what a filter names, negated or not."""
    terms = [_term(filter, value, schema) for value in filter.spellings]
    return terms[0] if len(terms) == 1 else tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in terms])


def to_clauses(filters: Sequence[Filter], schema: tantivy.Schema) -> list[tuple[tantivy.Occur, tantivy.Query]]:
    """Clauses of a tantivy query that add nothing to a score."""
    return [
        (
            tantivy.Occur.MustNot if filter.negated else tantivy.Occur.Must,
            tantivy.Query.const_score_query(to_query(filter, schema), 0.0),
        )
        for filter in filters
    ]


_ALLOW: Final = "--allow-unmatched (setting `allow_unmatched_filters`) searches all the same."


def _labels_there(filter: Filter, known: Collection[str]) -> str:
    """Return the remedy for an unknown label: what was meant, perhaps, and what there is."""
    folded = {normalize("NFKC", label).casefold(): label for label in sorted(known, reverse=True)}
    own = normalize("NFKC", filter.value).casefold()
    close = [folded[own]] if own in folded else [folded[name] for name in get_close_matches(own, folded, 1)]
    meant = f"Did you mean {close[0]}? " if close else ""
    meant += "Letter case and the width of signs count. " if own in folded else ""
    names = sorted(known)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    there = f"The labels there are: {', '.join(names[:_LISTED])}{more}." if names else "No document has a label."
    return f"{meant}{there} {_ALLOW}"


def _parse_one(expression: str) -> Filter:
    match = _EXPRESSION.fullmatch(expression)
    if not match:
        raise UsageError(f"filter {expression!r} is no condition", _REMEDY)
    field, operator, value = normalize("NFKC", match[1]), match[2], match[3].strip()
    if field not in _FIELDS:
        raise UsageError(f"filter {expression!r} asks for {field!r}; the known ones are {', '.join(_FIELDS)}", _REMEDY)
    value, prefix = _unquoted(expression, field, value)
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UsageError(f"filter {expression!r} is not Unicode text", _REMEDY)
    if not value.strip() and not prefix:
        raise UsageError(f"filter {expression!r} names nothing to compare with", _REMEDY)
    if field == "label":
        value = " ".join(value.split())  # as labels are stored
    return Filter(field, value, negated=operator not in "=＝", prefix=prefix)


def _unquoted(expression: str, field: str, value: str) -> tuple[str, bool]:
    """Return a value without the quotes around it and the star behind it, and whether there was a star.

    Raises:
        UsageError: where a quote stands at one end alone, or another sign that leaves doubt.
    """
    star = field == "key" and value.endswith("*")
    bare = value[:-1] if star else value
    if len(bare) > 1 and bare[0] in _QUOTES and bare[-1] == bare[0]:
        return bare[1:-1], star
    if bare and (bare[0] in _QUOTES + _CURLY + _OPERATORS or bare[-1] in _QUOTES + _CURLY):
        raise UsageError(f"filter {expression!r} has a sign that can be read in two ways", _REMEDY)
    return bare, star


def _sql(filter: Filter) -> str:
    # In standard SQL, as DataFusion reads it, the apostrophe alone is special within a literal.
    conditions = []
    for value in filter.spellings:
        literal = "'" + value.replace("'", "''") + "'"
        if filter.field == "label":
            conditions.append(f"array_has(labels, {literal})")
        else:
            conditions.append(f"starts_with(key, {literal})" if filter.prefix else f"key = {literal}")
    condition = " OR ".join(conditions)
    return f"NOT ({condition})" if filter.negated else f"({condition})"


def _term(filter: Filter, value: str, schema: tantivy.Schema) -> tantivy.Query:
    if filter.field == "label":
        return tantivy.Query.term_query(schema, "labels", value)
    if filter.prefix:
        # No edits and any end: exactly the keys that begin so, where a regular expression has a limit of its length.
        return tantivy.Query.fuzzy_term_query(schema, "key", value, distance=0, prefix=True)
    return tantivy.Query.term_query(schema, "key", value)
