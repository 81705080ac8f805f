"""A published index that is followed: opened by one call, opened anew when the pointer names another revision.

Invariants:
- An answer comes from one revision, whole.
- A reader stays on the one it has until the next can be opened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from indexes.search.search import Searcher
from indexes.storage.storage import Pointer, Storage
from parsers.errors import GristmillError, StoreError

LOOK_EVERY: Final = 5.0  # seconds between two looks at the pointer


class Reader:
    """Answers from whatever is published, for as long as it is held. Any number of threads may share it.

    Args:
        storage: the index's place, on disk or on S3; nothing is written to it.
        open_revision: makes a searcher of a revision.
        look_every: seconds between two looks at the pointer.

    Attributes:
        problem: why it is not on the published revision; empty while it is.

    Raises:
        StoreError: when nothing is published.
    """

    def __init__(
        self, storage: Storage, open_revision: Callable[[Pointer], Searcher], *, look_every: float = LOOK_EVERY
    ) -> None:
        self._storage = storage
        self._open = open_revision
        self._look_every = look_every
        self.problem = ""
        self._lock = threading.Lock()
        pointer = storage.pointer()
        if pointer is None:
            raise StoreError(f"index {storage.address}: nothing is published there", "Build it first.")
        self._current = (pointer, open_revision(pointer))
        self._looked = time.monotonic()

    def current(self) -> tuple[Pointer, Searcher]:
        """Return the published revision and its searcher; those it had where the next cannot be opened now."""
        with self._lock:
            if time.monotonic() - self._looked >= self._look_every:
                self._looked = time.monotonic()
                try:
                    pointer = self._storage.pointer()
                    if pointer is not None and _other(pointer, self._current[0]):
                        self._current = (pointer, self._open(pointer))
                    self.problem = ""
                except GristmillError as error:  # a store that is away, a model that is not here; asked again later
                    self.problem = error.message
            return self._current


def _other(pointer: Pointer, held: Pointer) -> bool:
    return (pointer.generation, pointer.revision) != (held.generation, held.revision)
