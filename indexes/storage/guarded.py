"""Writes that ask first whether the index is still held: objects and LanceDB tables of a builder with a lease.

Invariants:
- A builder that knows that it lost its lease writes nothing more: no object, no row, no cached result. A write that had
  begun before may still land; what builds remember is named by its content, so that harms nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from indexes.storage.objects import Objects, Stat

Check = Callable[[], None]

_WRITES: Final = frozenset(
    {"add", "add_columns", "alter_columns", "cleanup_old_versions", "compact_files", "create_fts_index", "create_index"}
    | {"create_scalar_index", "create_table", "delete", "drop_all_tables", "drop_columns", "drop_index", "drop_table"}
    | {"merge_insert", "optimize", "rename_table", "restore", "update"}
)
_TABLES: Final = frozenset(("create_table", "open_table"))


class GuardedObjects:
    """Objects whose every write checks the hold first; see :class:`indexes.storage.objects.Objects`."""

    def __init__(self, objects: Objects, check: Check) -> None:
        self.address = objects.address
        self.seeks = objects.seeks
        self._objects: Final = objects
        self._check: Final = check

    def get(self, key: str) -> tuple[bytes, str] | None:
        return self._objects.get(key)

    def blocks(self, key: str, start: int = 0) -> Iterator[bytes]:
        return self._objects.blocks(key, start)

    def put(self, key: str, data: bytes) -> str:
        self._check()
        return self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> str:
        self._check()
        return self._objects.create(key, data)

    def replace(self, key: str, data: bytes, etag: str) -> str:
        self._check()
        return self._objects.replace(key, data, etag)

    def stats(self, prefix: str) -> Iterator[Stat]:
        return self._objects.stats(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._check()
        self._objects.delete(keys)

    def upload(self, path: Path, key: str) -> None:
        self._check()
        self._objects.upload(path, key)

    def download(self, key: str, path: Path) -> None:
        self._objects.download(key, path)


class Guarded:
    """A LanceDB connection or table whose every write checks the hold first; all else passes through."""

    def __init__(self, inner: Any, check: Check) -> None:
        self._inner: Final = inner
        self._check: Final = check

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _WRITES and name not in _TABLES:
            return found

        def call(*given: Any, **named: Any) -> Any:
            if name in _WRITES:
                self._check()
            made = found(*given, **named)
            return Guarded(made, self._check) if name in _TABLES else made

        return call
