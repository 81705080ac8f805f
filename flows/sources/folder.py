"""A folder as a document store.

Invariants:
- A key is a path below the folder with ``/``, as the file system spells it; keys come in ascending order, each once.
- The version of a file is its size, modification time, change time and inode. Nobody can set the change time, so a
  file that took another's place (``mv``, ``cp -p``, ``rsync -t``) has another version, and one made readable too.
- A read gives the version of exactly the bytes that were read: the file's status is the same before and after, and so
  old that a later edit would change it.
- Hidden files and folders (names that begin with a dot), an index and a golden set are no documents, and no link makes
  them documents.
- Whatever is listed and not read (a link out of the folder, a linked folder, a name that is not UTF-8, a path that is
  too long) is one object with a problem and ends no listing. A folder that cannot be listed is an error, never an empty
  one.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from flows.patterns import KeyFilter
from flows.sources.base import Fetched, Object, SourceOptions
from parsers.errors import SourceError

_TRIES: Final = 3  # reads of a file that changes meanwhile
TICK_NS: Final = 20_000_000  # two ticks of a clock with 100 ticks a second, the slowest that stamps files
_COARSE_TICK_NS: Final = 2_000_000_000  # of file systems that keep whole seconds, FAT the coarsest
_LONGEST_PATH: Final = 4_095  # bytes, Linux's PATH_MAX without the final NUL

_NOT_UTF8: Final = "its name is not valid UTF-8: rename it"
_TOO_LONG: Final = f"its path is longer than {_LONGEST_PATH:,} bytes: move it up, or shorten the names of its folders"


class _Named(NamedTuple):
    """An entry of a folder under the name that stands in keys; it sorts by that, a folder with a final slash."""

    name: str
    entry: os.DirEntry[str]
    problem: str

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


class FolderSource:
    """The files below a folder.

    Args:
        address: the folder's path.
        options: of the source.

    Raises:
        SourceError: when there is no such folder.
    """

    trusted = False
    parallel = 1

    def __init__(self, address: str, options: SourceOptions | None = None) -> None:
        options = options or SourceOptions()
        self.name = options.name
        self.address = address
        self._root = Path(address).expanduser()
        self.place = str(self._root.absolute())
        self._keys = KeyFilter(options.include, options.exclude)
        self._own = {_real(Path(path).expanduser()) for path in options.own}
        self._own_names = {path.name for path in self._own}  # to resolve is slow
        if not self._root.exists():
            raise SourceError(f"source {address}: there is no such folder", "Check the path.")
        if not self._root.is_dir():
            raise SourceError(f"source {address} is not a folder", "Give the folder that holds the documents.")
        self._real = _real(self._root)

    def objects(self) -> Iterator[Object]:
        """List all files in ascending order of their keys, a folder at a time."""
        above = [("", iter(self._entries(str(self._root))))]
        while above:
            prefix, entries = above[-1]
            named = next(entries, None)
            if named is None:
                above.pop()
            elif named.is_folder:
                if not self._keys.excludes_folder(prefix + named.name):
                    above.append((prefix + named.name, iter(self._entries(named.entry.path))))
            else:
                listed = self._object(prefix + named.name, named)
                if listed is not None:
                    yield listed

    def look(self, key: str) -> Object | None:
        """Look at one file as a listing would; None when it is gone or is no document of this source."""
        folder = ""
        *above, name = key.split("/")
        for part in above:  # each folder is entered as a listing enters it, so hidden, linked and excluded ones are not
            folder += f"{part}/"
            if self._keys.excludes_folder(folder) or not self._named(folder[: -len(part) - 1], f"{part}/"):
                return None
        named = self._named(folder, name)
        return self._object(key, named) if named is not None else None

    def _named(self, folder: str, name: str) -> _Named | None:
        """Return the entry of a folder that stands under this name in keys; None where there is none."""
        if not name or name.startswith(".") or "\0" in name:
            return None
        return next((one for one in self._entries(str(self._root / folder)) if one.name == name), None)

    def labels(self, key: str, version: str = "") -> tuple[str, ...] | None:
        """Return no labels: a file system states none."""
        return ()

    def fetch(self, key: str, version: str = "") -> Fetched | None:
        """Read a file, and again where it changes meanwhile; None when it is gone.

        Raises:
            OSError: when it cannot be read, or changes all the time.
        """
        try:
            for _ in range(_TRIES):
                found = self._read(self._root / key)
                if found is not None:
                    return found
        except (FileNotFoundError, NotADirectoryError):
            return None
        raise OSError(errno.EBUSY, f"it changed while it was read, {_TRIES} times")

    def _read(self, path: Path) -> Fetched | None:
        """Read a file once; None where it changed meanwhile."""
        problem = self._misplaced(_real(path))
        if problem:
            raise OSError(errno.EXDEV, f"now {problem}")
        # Not blocking: a pipe that took the file's place would wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            before, settled = _settled(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise OSError(errno.EINVAL, "not an ordinary file")
            data = file.read()
            if _version(os.fstat(file.fileno())) != _version(before):
                return None
        return Fetched(data, _version(before) + "?" * (not settled))

    def _entries(self, folder: str) -> list[_Named]:
        """Return the entries of a folder that may be documents or hold some, in the order of their keys."""
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not entry.name.startswith(".") and not self._is_own(entry)]
        except OSError as error:
            if isinstance(error, (FileNotFoundError, NotADirectoryError)) and self._root.is_dir():
                return []  # removed since the folder above it was listed
            raise SourceError(
                f"source {self.address}: cannot list {error.filename}: {error.strerror}",
                "A folder that cannot be listed is never read as an empty one. Make it readable or exclude it.",
            ) from error
        named = []
        taken = {entry.name for entry in entries}
        for entry in sorted(entries, key=lambda one: os.fsencode(one.name)):
            if not _is_text(entry.name):
                name = _free(os.fsencode(entry.name).decode("utf-8", "backslashreplace"), taken)
                named.append(_Named(name, entry, _NOT_UTF8))
            elif len(os.fsencode(entry.path)) > _LONGEST_PATH:
                named.append(_Named(entry.name, entry, _TOO_LONG))
            else:
                named.append(_Named(entry.name + "/" * entry.is_dir(follow_symlinks=False), entry, ""))
        return sorted(named, key=lambda one: one.name)

    def _object(self, key: str, named: _Named) -> Object | None:
        """Return the listing of an entry that is no folder to enter; None to leave it unnamed."""
        entry = named.entry
        if named.problem:
            below = _is_folder(entry) and self._keys.may_hold(key) and not self._keys.excludes(key)
            return Object(key, "unnameable", 0, named.problem) if below or self._keys.wants(key) else None
        try:
            link = entry.is_symlink()
            if link and entry.is_dir():
                return self._linked_folder(key, _real(entry.path))
            if not self._keys.wants(key):
                return None
            problem = self._misplaced(_real(entry.path)) if link else ""
            if problem:
                return Object(key, "link", 0, problem)
            status = entry.stat()
        except FileNotFoundError:
            return Object(key, "link", 0, "a link that leads nowhere") if _is_link(entry.path) else None
        except OSError as error:
            if not self._keys.wants(key):
                return None
            if error.errno == errno.ELOOP:
                return Object(key, "link", 0, "a link that leads in a circle")
            return Object(key, "unreadable", 0, f"cannot be looked at: {error.strerror}")
        if not stat.S_ISREG(status.st_mode):
            return Object(key, "special", 0, "not an ordinary file")
        return Object(key, _version(status), status.st_size)

    def _linked_folder(self, key: str, target: Path) -> Object | None:
        """Return a link to a folder, which is named and not followed, or documents would stand under several keys."""
        if self._keys.excludes_folder(f"{key}/") or self._keys.excludes(key):
            return None
        if not self._keys.may_hold(key) or self._belongs_to_us(target):
            return None
        problem = self._misplaced(target)
        if problem:
            return Object(key, "link", 0, f"{problem}; nothing below it is read")
        below = "" if target == self._real else f"{target.relative_to(self._real).as_posix()}/"
        if below and self._keys.excludes_folder(below):
            return Object(key, "link", 0, f"a link to the folder {below}, which is excluded; nothing below it is read")
        where = f"in {below}" if below else "in the source folder itself"
        return Object(key, "link", 0, f"a link to a folder is not followed; its files are read {where}", "skipped")

    def _misplaced(self, target: Path) -> str:
        """Why what lies at a real path is no document of this source; empty where it may be one."""
        if not target.is_relative_to(self._real):
            return "a link that leads out of the source folder: copy the file instead"
        if any(part.startswith(".") for part in target.relative_to(self._real).parts):
            return "a link to a hidden file or folder: hidden files are not read"
        return "a link into the index or to the golden set" if self._belongs_to_us(target) else ""

    def _belongs_to_us(self, target: Path) -> bool:
        return any(target.is_relative_to(path) for path in self._own)

    def _is_own(self, entry: os.DirEntry[str]) -> bool:
        return entry.name in self._own_names and _real(entry.path) in self._own


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_ino}"


def _settled(descriptor: int) -> tuple[os.stat_result, bool]:
    """Return a file's status once an edit from now on would change it, and whether that could be awaited.

    An edit in the same tick of the file system's clock leaves the times as they are, so that tick is waited for. The
    end of a change time in the future is not: that clock runs ahead of ours.
    """
    status = os.fstat(descriptor)
    for _ in range(_TRIES):
        tick = TICK_NS if status.st_ctime_ns % 1_000_000_000 else _COARSE_TICK_NS
        age = time.time_ns() - status.st_ctime_ns
        if not 0 <= age < tick:
            return status, age >= tick
        time.sleep((tick - age) / 1e9)
        status = os.fstat(descriptor)
    return status, False


def _real(path: str | Path) -> Path:
    """Return a path without links; unlike ``Path.resolve`` it knows what to do with those that lead in a circle."""
    return Path(os.path.realpath(path))


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - `Path.is_symlink` raises for some


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # of a path that is too long, where the listing itself does not tell
        return True


def _is_text(name: str) -> bool:
    return name.isascii() or os.fsencode(name).decode("utf-8", "replace") == name


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no other entry of the folder has, which is taken from now on."""
    found, number = name, 1
    stem, dot, ending = name.rpartition(".")
    while found in taken:
        number += 1
        found = f"{stem} ({number}).{ending}" if dot else f"{name} ({number})"
    taken.add(found)
    return found
