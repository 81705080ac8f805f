"""A folder as a document store.

Kept here: keys are paths below the folder with ``/``, as the file system spells them; hidden files and folders
(names that begin with a dot) are not documents, nor is an index or a golden set that lies in the folder; links that
lead out of the folder are listed with a problem and not followed; and a folder that cannot be listed is an error, never
an empty one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from flows.patterns import matches
from flows.sources.base import Object
from parsers.errors import SourceError


class FolderSource:
    """The files below a folder.

    Args:
        address: the folder's path.
        name: the source's configured name.
        include: key patterns (``*`` also matches ``/``) of which a file must match one.
        exclude: key patterns of which it must match none.
        own: paths of the index and the golden set; what lies there is no document.

    Raises:
        SourceError: when there is no such folder.
    """

    def __init__(
        self, address: str, name: str, include: list[str], exclude: list[str], own: Sequence[str | Path] = ()
    ) -> None:
        self.name = name
        self.address = address
        self._root = Path(address).expanduser()
        self._include = include
        self._everything = "*" in include  # matching every key of many is slow
        self._exclude = exclude
        self._own = {Path(path).expanduser().resolve() for path in own}
        self._own_names = {path.name for path in self._own}  # to resolve is slow
        if not self._root.exists():
            raise SourceError(f"source {address}: there is no such folder", "Check the path.")
        if not self._root.is_dir():
            raise SourceError(f"source {address} is not a folder", "Give the folder that holds the documents.")
        self._real = self._root.resolve()

    def objects(self) -> Iterator[Object]:
        """All files in ascending order of their keys, a folder at a time."""
        yield from self._below(str(self._root), "")

    def fetch(self, key: str) -> bytes | None:
        """A file's bytes; None when it is gone."""
        try:
            return (self._root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _below(self, folder: str, prefix: str) -> Iterator[Object]:
        """The files below a folder whose keys begin with a prefix."""
        try:
            with os.scandir(folder) as found:
                # A folder stands where its files' keys do: ``a-b`` comes before ``a/b``.
                named = [(_printable(one.name) + "/" * one.is_dir(follow_symlinks=False), one) for one in found]
                entries = sorted(named, key=lambda pair: pair[0])
        except OSError as error:
            raise SourceError(
                f"source {self.address}: cannot list {error.filename}: {error.strerror}",
                "A folder that cannot be listed is never read as an empty one. Make it readable or exclude it.",
            ) from error
        for name, entry in entries:
            if entry.name.startswith(".") or self._is_own(entry):
                continue
            if name.endswith("/"):
                if not self._excludes(prefix + name):
                    yield from self._below(entry.path, prefix + name)
            elif self._wanted(prefix + name):
                listed = self._object(prefix + name, entry)
                if listed is not None:
                    yield listed

    def _object(self, key: str, entry: os.DirEntry[str]) -> Object | None:
        if _printable(entry.path) != entry.path:
            return Object(key, "unnameable", 0, "its name is not valid UTF-8: rename it")
        try:
            if entry.is_symlink():
                if not Path(entry.path).resolve().is_relative_to(self._real):
                    return Object(key, "link", 0, "a link that leads out of the source folder: copy the file instead")
                if entry.is_dir():
                    return None
            status = entry.stat()
        except FileNotFoundError:
            return Object(key, "link", 0, "a link that leads nowhere") if entry.is_symlink() else None
        except OSError as error:
            return Object(key, "unreadable", 0, f"cannot be looked at: {error.strerror}")
        if not stat.S_ISREG(status.st_mode):
            return Object(key, "special", 0, "not an ordinary file")
        return Object(key, f"{status.st_size}:{status.st_mtime_ns}", status.st_size)

    def _is_own(self, entry: os.DirEntry[str]) -> bool:
        return entry.name in self._own_names and Path(entry.path).resolve() in self._own

    def _wanted(self, key: str) -> bool:
        wanted = self._everything or any(matches(key, pattern) for pattern in self._include)
        return wanted and not any(matches(key, pattern) for pattern in self._exclude)

    def _excludes(self, folder: str) -> bool:
        """Whether a pattern like ``drafts/*`` leaves a whole folder out."""
        return any(pattern.endswith("/*") and matches(folder, pattern) for pattern in self._exclude)


def _printable(name: str) -> str:
    """A file's name as it can be written; the same one where it is valid UTF-8."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")
