"""The interface of a document store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec


class Object(msgspec.Struct, frozen=True):
    """One object of a document store.

    Attributes:
        key: its name within the store, with ``/`` between its parts.
        version: changes whenever its bytes may have changed; never part of an id.
        size: in bytes.
        problem: why it is not read at all; empty for an ordinary object.
        status: what a problem makes of the document: ``failed``, or ``skipped`` where nothing is lost by it.
    """

    key: str
    version: str
    size: int
    problem: str = ""
    status: Literal["failed", "skipped"] = "failed"


class Fetched(NamedTuple):
    """The bytes of an object, with the version that was read: the object may have changed since it was listed."""

    data: bytes
    version: str


class Source(Protocol):
    """A document store: lists its objects and fetches one.

    Attributes:
        name: configured name; document ids come from it and the key.
        address: as the settings give it.
        place: the address in full, for the record of a revision: an absolute path for a folder.
    """

    name: str
    address: str
    place: str

    def objects(self) -> Iterator[Object]:
        """List all objects in ascending order of their keys.

        Raises:
            SourceError: when the store cannot be listed in full; never a short list instead.
        """

    def fetch(self, key: str) -> Fetched | None:
        """Read an object; None when it is not there any more.

        Raises:
            OSError: when it cannot be read now.
        """
