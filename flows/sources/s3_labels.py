"""The labels in an S3 object's tags, metadata and sidecar.

Invariants:
- Labels that are there are read exactly, or the label ``UNREADABLE`` is among those of the object: fields of this name
  in another letter case, twice or in the wrong place, values of a wrong type, a sidecar that is no JSON or too large.
- In a tag, blanks separate labels (S3 allows no comma there, and ``+`` may be part of a label). In metadata, commas do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Any, Final

from parsers.labels import NOTHING, Stated, denied, from_text, from_values

MOST_SIDECAR_BYTES: Final = 100_000

_FIELD: Final = "labels"
_ATTRIBUTES: Final = "metadataAttributes"


class _Twice(ValueError):
    """A field stands twice in an object of JSON."""


def united(stated: Iterable[Stated]) -> tuple[str, ...]:
    """Return the labels of several places together, in order."""
    return tuple(sorted({label for one in stated for label in one.labels}))


def labels_of_tags(tags: Sequence[Mapping[str, str]]) -> Stated:
    """Return the labels in the tags of an object.

    Args:
        tags: each a mapping of ``Key`` and ``Value``, as S3 answers.
    """
    own = [tag for tag in tags if _names_labels(tag.get("Key"))]
    if not own:
        return NOTHING
    if len(own) > 1 or own[0]["Key"] != _FIELD:
        return denied(f"one tag is to be named {_FIELD}, in lower case")
    return from_text(",".join(own[0].get("Value", "").split()))


def labels_of_metadata(metadata: Mapping[str, str], hidden: int = 0) -> Stated:
    """Return the labels in the metadata of an object, whose names have no letter case.

    Args:
        metadata: without ``x-amz-meta-`` before the names.
        hidden: how many fields the store did not answer with, as a header cannot hold them.
    """
    if hidden:
        return denied("the store does not tell all fields of the metadata, and labels may be among them")
    values = [value for name, value in metadata.items() if _names_labels(name)]
    if not values:
        return NOTHING
    try:
        return from_text(",".join(map(_decoded, values)))
    except (ValueError, LookupError, HeaderParseError):
        return denied("the metadata is in no known encoding")


def labels_of_sidecar(data: bytes) -> Stated:
    """Return the labels in the file that Amazon Bedrock reads beside a document."""
    try:
        fields = json.loads(data, object_pairs_hook=_once)
    except _Twice as error:
        return denied(f"the sidecar is ambiguous: {error}")
    except (ValueError, RecursionError):
        return denied("the sidecar is no valid JSON")
    if not isinstance(fields, dict):
        return denied("the sidecar is no object of JSON")
    if any(map(_names_labels, fields)):
        return denied(f"labels stand beside {_ATTRIBUTES} in the sidecar, not within")
    attributes = fields.get(_ATTRIBUTES, {})
    if not isinstance(attributes, dict):
        return denied(f"{_ATTRIBUTES} is no object of JSON")
    own = [name for name in attributes if _names_labels(name)]
    if not own:
        return NOTHING
    if own != [_FIELD]:
        return denied(f"one attribute is to be named {_FIELD}, in lower case")
    return _labels_of_value(attributes[_FIELD])


def _labels_of_value(value: Any) -> Stated:
    """Return the labels in an attribute's value: plain, or in the typed form."""
    if isinstance(value, dict):
        typed = value.get("value")
        kind = typed.get("type") if isinstance(typed, dict) else None
        name, wanted = {"STRING_LIST": ("stringListValue", list), "STRING": ("stringValue", str)}.get(
            kind if isinstance(kind, str) else "", ("", str)
        )
        value = typed.get(name) if isinstance(typed, dict) else None
        if not isinstance(value, wanted):
            return denied("the attribute has no value of the type that it names, STRING_LIST or STRING")
    if isinstance(value, str):
        return from_text(value)
    return from_values(value) if isinstance(value, list) else denied("it is neither a list of strings nor a string")


def _decoded(value: str) -> str:
    """Return the text of a header.

    S3 encodes what is not ASCII, other stores send UTF-8 as it stands.

    Raises:
        ValueError: when it is neither.
        LookupError: when it names an encoding that is not known.
    """
    if not value.isascii():
        return value.encode("latin-1").decode("utf-8")
    return str(make_header(decode_header(value))) if "=?" in value else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON in which no field stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice("a field stands twice")
    return found


def _names_labels(name: object) -> bool:
    return isinstance(name, str) and name.strip().casefold() == _FIELD
