"""The interface of a document store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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
    """The bytes of an object, with the version that was read: the object may have changed since it was listed.

    Attributes:
        data: its bytes.
        version: of exactly these bytes and labels; ends with ``?`` where a later change might leave it as it is.
        labels: that the store states of the object, apart from what its bytes say.
    """

    data: bytes
    version: str
    labels: tuple[str, ...] = ()


class SourceOptions(NamedTuple):
    """Settings of a source besides its address.

    Attributes:
        name: the source's configured name; document ids come from it and the key.
        include: key patterns (``*`` also matches ``/``) of which an object must match one.
        exclude: key patterns of which it must match none.
        own: addresses of the index and the golden set; what lies there is no document.
    """

    name: str = "default"
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    own: Sequence[str | Path] = ()


class Source(Protocol):
    """A document store: lists its objects and fetches one.

    Attributes:
        name: configured name; document ids come from it and the key.
        address: as the settings give it.
        place: the address in full, for the record of a revision: an absolute path for a folder.
        trusted: whether a version never stays while the bytes change, so that only labels are ever read again.
        parallel: how many objects may be fetched at a time.
    """

    name: str
    address: str
    place: str
    trusted: bool
    parallel: int

    def objects(self) -> Iterator[Object]:
        """List all objects in ascending order of their keys.

        Raises:
            SourceError: when the store cannot be listed in full; never a short list instead.
        """

    def look(self, key: str) -> Object | None:
        """Look at one object without listing; None when it is gone or is no document of this source.

        Raises:
            SourceError: when the store does not answer; never None instead.
        """

    def fetch(self, key: str, version: str = "") -> Fetched | None:
        """Read an object as it is now; None when it is not there any more.

        Args:
            version: as it was listed, from which a source may know what to ask for.

        Raises:
            OSError: when it cannot be read now.
        """

    def labels(self, key: str, version: str = "") -> tuple[str, ...] | None:
        """Return the labels that the store states of an object now; None when it is not there any more.

        Raises:
            OSError: when they cannot be read now.
        """
