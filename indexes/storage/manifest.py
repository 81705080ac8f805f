"""Which files a version of a LanceDB table consists of, read from its manifest.

LanceDB itself does not say. The layout is Lance's, from ``protos/table.proto`` of its repository: the file ends in the
position of the manifest, two version numbers and ``LANC``; at that position stand the length and the message.

Invariants:
- A manifest with a part that this module does not know (another base path, row ids in a file) is an error, never a
  shorter list.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

_MAGIC: Final = b"LANC"
_FOOTER: Final = struct.Struct("<qHH4s")
_LENGTH: Final = struct.Struct("<I")
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_SUFFIXES: Final = {0: "arrow", 1: "bin"}

Fields = dict[int, list[int | bytes]]


class Fragment(NamedTuple):
    """Rows that lie together: its number, its data files, and its deletion file; empty where no row is deleted."""

    number: int
    files: list[str]
    deletions: str


class Manifest(NamedTuple):
    """What a version consists of, by paths below the table's folder.

    Attributes:
        version: its number.
        fragments: of the rows.
        indexes: folders of indexes, by name of the index.
        transaction: the file that says how the version came about; empty where there is none.
    """

    version: int
    fragments: list[Fragment]
    indexes: dict[str, list[str]]
    transaction: str


def paths(version: int) -> tuple[str, str]:
    """Return where the manifest of a version lies below the table's folder, by today's naming and by the older one."""
    return f"_versions/{2**64 - 1 - version:020d}.manifest", f"_versions/{version}.manifest"


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: when the bytes are none, or hold a part that this module does not know.
    """
    try:
        position, _, _, magic = _FOOTER.unpack(data[-_FOOTER.size :])
        if magic != _MAGIC:
            raise ValueError("no manifest: it does not end in LANC")
        found = _message(_section(data, position))
        if found.get(18):
            raise ValueError("the manifest names other base paths")
        return Manifest(
            _number(found, 3),
            [_fragment(_message(one)) for one in _parts(found, 2)],
            _indexes(_section(data, _number(found, 6))) if found.get(6) else {},
            f"_transactions/{_text(found, 12)}" if found.get(12) and _text(found, 12) else "",
        )
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no manifest: {error}") from error


def _fragment(found: Fields) -> Fragment:
    number = _number(found, 1)
    if any(found.get(external) for external in (6, 8, 10)):
        raise ValueError(f"fragment {number} keeps row ids in a file")
    files = [f"data/{_text(_message(one), 1)}" for one in _parts(found, 2)]
    deletions = ""
    for part in _parts(found, 3):
        one = _message(part)
        suffix = _SUFFIXES.get(_number(one, 1), "unknown")
        deletions = f"_deletions/{number}-{_number(one, 2)}-{_number(one, 3)}.{suffix}"
    return Fragment(number, files, deletions)


def _indexes(data: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for part in _parts(_message(data), 1):
        one = _message(part)
        (identity,) = _parts(_message(_parts(one, 1)[0]), 1)
        found[_text(one, 3)].append(f"_indices/{uuid.UUID(bytes=identity)}/")
    return dict(found)


def _section(data: bytes, position: int) -> bytes:
    """Return a message with its length in front of it."""
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    if position < 0 or start + length > len(data):
        raise ValueError(f"no manifest: a part of {length} bytes at {position} in {len(data)} bytes")
    return data[start : start + length]


def _message(data: bytes) -> Fields:
    """Return the fields of a protobuf message by number."""
    found: Fields = defaultdict(list)
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, place = _varint(data, place)
        elif kind == _BYTES:
            length, place = _varint(data, place)
            value, place = data[place : place + length], place + length
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
            value, place = data[place : place + length], place + length
        else:
            raise ValueError(f"no manifest: a field of kind {kind}")
        if place > len(data):
            raise ValueError("no manifest: a field goes past its end")
        found[key >> 3].append(value)
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _parts(found: Fields, number: int) -> Sequence[bytes]:
    values = found.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError(f"no manifest: field {number} is a number")
    return [value for value in values if isinstance(value, bytes)]


def _number(found: Fields, number: int) -> int:
    values = found.get(number, [0])
    if not isinstance(values[-1], int):
        raise ValueError(f"no manifest: field {number} is no number")
    return values[-1]


def _text(found: Fields, number: int) -> str:
    return _parts(found, number)[-1].decode() if found.get(number) else ""
