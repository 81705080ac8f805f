"""A folder as a document store.

Kept here: keys are paths below the folder with ``/``, as the file system spells them; hidden files and folders
(names that begin with a dot) are not documents, nor is an index or a golden set that lies in the folder; links that
lead out of the folder are listed with a problem and not followed; and a folder that cannot be listed is an error, never
an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

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
        self._exclude = exclude
        self._own = {Path(path).expanduser().resolve() for path in own}
        self._own_names = {path.name for path in self._own}  # to resolve is slow
        if not self._root.exists():
            raise SourceError(f"source {address}: there is no such folder", "Check the path.")
        if not self._root.is_dir():
            raise SourceError(f"source {address} is not a folder", "Give the folder that holds the documents.")
        self._real = self._root.resolve()

    def objects(self) -> Iterator[Object]:
        """All files in ascending order of their keys."""
        found = [entry for entry in self._files() if self._wanted(entry.key)]
        yield from sorted(found, key=lambda entry: entry.key)

    def fetch(self, key: str) -> bytes | None:
        """A file's bytes; None when it is gone."""
        try:
            return (self._root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _files(self) -> Iterator[Object]:
        def refuse(error: OSError) -> None:
            raise SourceError(
                f"source {self.address}: cannot list {error.filename}: {error.strerror}",
                "A folder that cannot be listed is never read as an empty one. Make it readable or exclude it.",
            ) from error

        for folder, names, files in os.walk(self._root, onerror=refuse):
            base = Path(folder).relative_to(self._root).as_posix()
            prefix = "" if base == "." else f"{base}/"
            names[:] = [name for name in names if self._descends(Path(folder) / name, f"{prefix}{name}/")]
            for name in files:
                if not name.startswith(".") and not self._is_own(Path(folder) / name):
                    entry = self._object(f"{prefix}{name}", Path(folder) / name)
                    if entry is not None:
                        yield entry

    def _object(self, key: str, path: Path) -> Object | None:
        try:
            key.encode("utf-8")
        except UnicodeEncodeError:
            printable = os.fsencode(key).decode("utf-8", "backslashreplace")
            return Object(printable, "unnameable", 0, "its name is not valid UTF-8: rename it")
        try:
            if path.is_symlink() and not path.resolve().is_relative_to(self._real):
                return Object(key, "link", 0, "a link that leads out of the source folder: copy the file instead")
            status = path.stat()
        except FileNotFoundError:
            return Object(key, "link", 0, "a link that leads nowhere") if path.is_symlink() else None
        except OSError as error:
            return Object(key, "unreadable", 0, f"cannot be looked at: {error.strerror}")
        return Object(key, f"{status.st_size}:{status.st_mtime_ns}", status.st_size)

    def _is_own(self, path: Path) -> bool:
        return path.name in self._own_names and path.resolve() in self._own

    def _wanted(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self._include) and not any(
            fnmatchcase(key, pattern) for pattern in self._exclude
        )

    def _descends(self, path: Path, folder: str) -> bool:
        """Whether a folder is walked: no hidden one, not the index, none that a pattern like ``drafts/*`` excludes."""
        if path.name.startswith(".") or self._is_own(path):
            return False
        return not any(pattern.endswith("/*") and fnmatchcase(folder, pattern) for pattern in self._exclude)
