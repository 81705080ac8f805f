"""Versions of documents whose bytes turned out to be those of the catalog.

They are recorded in the catalog by the next build that publishes anyhow; until then the cache knows them.

Invariants:
- No list of them is in memory: they lie in a passing file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

_AT_ONCE: Final = 2_000


class SeenVersion(msgspec.Struct, frozen=True):
    """A document in a state whose bytes the catalog knows under another version."""

    document_id: str
    version: str
    size: int


class SeenVersions:
    """Versions to record, in a file that :meth:`begin` names; before that they are dropped."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def begin(self, path: Path) -> None:
        """Keep what is added from now on in a file."""
        path.unlink(missing_ok=True)
        self._path = path

    def add(self, seen: list[SeenVersion]) -> None:
        """Keep some more."""
        if seen and self._path is not None:
            with self._path.open("ab") as file:
                file.writelines(msgspec.json.encode(one) + b"\n" for one in seen)

    def batches(self) -> Iterator[dict[str, SeenVersion]]:
        """Yield all of them by document id, some at a time."""
        if self._path is None or not self._path.exists():
            return
        decode = msgspec.json.Decoder(SeenVersion).decode
        with self._path.open("rb") as file:
            lines = map(decode, file)
            while batch := {one.document_id: one for one in islice(lines, _AT_ONCE)}:
                yield batch
