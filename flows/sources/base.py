"""What a document store must offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec


class Object(msgspec.Struct, frozen=True):
    """One object of a document store.

    Attributes:
        key: its name within the store, with ``/`` between its parts.
        version: changes whenever its bytes may have changed (a size with a time, an etag); never part of an id.
        size: in bytes.
        problem: why it cannot be fetched at all; empty for an ordinary object.
    """

    key: str
    version: str
    size: int
    problem: str = ""


class Source(Protocol):
    """A document store: lists its objects and fetches one."""

    name: str
    address: str

    def objects(self) -> Iterator[Object]:
        """All objects in ascending order of their keys.

        Raises:
            SourceError: when the store cannot be listed in full; never a short list instead.
        """

    def fetch(self, key: str) -> bytes | None:
        """An object's bytes; None when it is not there any more.

        Raises:
            OSError: when it cannot be read now.
        """
