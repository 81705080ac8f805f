"""Small named blobs: the protocol of them, and how they lie in a folder. Those on S3 are in ``s3_objects``.

A key is a path of names with ``/`` between them, below the address; none of the names is empty, ``.`` or ``..``, and no
key is another's folder. Names may hold any other character.

Invariants:
- A reader sees an object's old bytes or its new ones, whole.
- Of several that create a key, or replace the same state of it, exactly one is told that it did.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from enrich.files import TEMPORARY, atomic_file, atomic_write
from parsers.errors import StoreError

BLOCK_BYTES: Final = 2**20  # bytes of an object that are in memory at a time
_OUTAGES: Final = frozenset(  # of a disk or a share, which pass by themselves or once somebody made room
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNRESET}
    | {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENODEV}
)


class Stat(NamedTuple):
    """An object in a listing: its key, its size in bytes, and when it was last written (UTC)."""

    key: str
    size: int
    modified: datetime


class Conflict(Exception):
    """The object is not in the state that a write expected; nothing was written."""


class Objects(Protocol):
    """Named blobs below one address.

    Every method raises StoreError where the place does not allow what was tried.

    Attributes:
        address: the place, as a person would write it.
        seeks: whether reading the end of an object costs next to nothing.
    """

    address: str
    seeks: bool

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Return an object's bytes and the etag of that state; None where there is none."""
        ...

    def blocks(self, key: str, start: int = 0) -> Iterator[bytes]:
        """Return the bytes of an object of any size from a place on, some at a time; none where there is no object."""
        ...

    def put(self, key: str, data: bytes) -> str:
        """Write an object whatever was there, and return its etag."""
        ...

    def create(self, key: str, data: bytes) -> str:
        """Write an object that is not there yet, and return its etag.

        Raises:
            Conflict: when there is one.
        """
        ...

    def replace(self, key: str, data: bytes, etag: str) -> str:
        """Write an object that still is in the state of this etag, and return its new etag.

        Raises:
            Conflict: when it is in another state, or gone.
        """
        ...

    def stats(self, prefix: str) -> Iterator[Stat]:
        """Return the objects whose keys start with this text, by ascending key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects of these keys that are there."""
        ...

    def upload(self, path: Path, key: str) -> None:
        """Write a file of any size as an object, whatever was there."""
        ...

    def download(self, key: str, path: Path) -> None:
        """Write an object of any size to a file, which appears whole or not at all."""
        ...


class FolderObjects:
    """Objects as files below a folder; an etag is the hash of the bytes.

    ``create`` and ``replace`` have one winner among the threads that share this object. Between processes only
    ``create`` has: who replaces holds the index's lock, which on disk is exclusive. A process that is killed while it
    writes can leave a temporary file, which no listing shows; folders that deletions emptied stay.

    Args:
        root: the folder; made by the first write.
    """

    def __init__(self, root: Path) -> None:
        self.address = str(root)
        self.seeks = True
        self._root = root
        self._one_writer = threading.Lock()

    def get(self, key: str) -> tuple[bytes, str] | None:
        with self._told():
            try:
                data = self._path(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
        return data, _etag(data)

    def blocks(self, key: str, start: int = 0) -> Iterator[bytes]:
        with self._told():
            try:
                with self._path(key).open("rb") as file:
                    file.seek(start)
                    while block := file.read(BLOCK_BYTES):
                        yield block
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return

    def put(self, key: str, data: bytes) -> str:
        with self._told():
            atomic_write(self._path(key), data)
        return _etag(data)

    def create(self, key: str, data: bytes) -> str:
        path = self._path(key)
        with self._told(), self._one_writer:
            if path.exists():
                raise Conflict(f"{self.address}: there is a {key} already")
            with atomic_file(path, _appear) as temporary:
                temporary.write_bytes(data)
        return _etag(data)

    def replace(self, key: str, data: bytes, etag: str) -> str:
        with self._one_writer:
            found = self.get(key)
            if found is None or found[1] != etag:
                raise Conflict(f"{self.address}: {key} was changed meanwhile")
            return self.put(key, data)

    def stats(self, prefix: str) -> Iterator[Stat]:
        folder = prefix.rpartition("/")[0]
        with self._told():
            yield from self._walk(self._path(folder) if folder else self._root, f"{folder}/" if folder else "", prefix)

    def delete(self, keys: Iterable[str]) -> None:
        with self._told():
            for key in keys:
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._path(key).unlink()

    def upload(self, path: Path, key: str) -> None:
        with self._told(), atomic_file(self._path(key)) as temporary:
            shutil.copyfile(path, temporary)

    def download(self, key: str, path: Path) -> None:
        source = self._path(key)
        with self._told():
            if not source.is_file():
                raise missing_object(self.address, key)
            with atomic_file(path) as temporary:
                shutil.copyfile(source, temporary)

    def _walk(self, folder: Path, above: str, prefix: str) -> Iterator[Stat]:
        try:
            # A folder sorts by its name with the slash that its keys have there: ``a-b`` comes before ``a/b``.
            found = sorted((f"{entry.name}/" if entry.is_dir() else entry.name) for entry in os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in found:
            key = above + name
            if name.endswith("/"):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(folder / name, key, prefix)
            elif key.startswith(prefix) and not TEMPORARY.fullmatch(name):
                with suppress(FileNotFoundError):  # removed while this was listed
                    status = (folder / name).stat()
                    yield Stat(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unusable(self.address, error) from error


def probe(objects: Objects) -> None:
    """Make sure that a place honours the conditions of a write, on a scratch object that is removed again.

    Raises:
        StoreError: when it ignores one, naming the header; or when it cannot be written at all.
    """
    key = f"scratch/probe-{uuid.uuid4().hex}"
    first = objects.create(key, b"1")
    try:
        with _conflict_expected(objects.address, "If-None-Match"):
            objects.create(key, b"2")
        try:
            objects.replace(key, b"3", first)
        except Conflict as error:
            raise _unfit(objects.address, "refuses a write whose If-Match header is right") from error
        with _conflict_expected(objects.address, "If-Match"):
            objects.replace(key, b"4", first)
    finally:
        objects.delete([key])


def unusable(address: str, error: OSError) -> StoreError:
    """Return the error for an index whose folder does not allow what was tried."""
    remedies = {
        errno.ENOSPC: "Free some space and build again: what was finished is remembered.",
        errno.EDQUOT: "Raise the quota or free some space and build again.",
        errno.EACCES: "Make the folder writable, or name another with --index.",
        errno.EPERM: "Make the folder writable, or name another with --index.",
        errno.EROFS: "The file system is read-only: name another folder with --index.",
        errno.ENOTDIR: "A file stands where the folder should be: name another folder with --index.",
        errno.EEXIST: "A file stands where the folder should be: name another folder with --index.",
    }
    what = error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(
        f"index {address} cannot be used: {what}{where}",
        remedies.get(error.errno or 0, "Check the path."),
        transient=error.errno in _OUTAGES,
    )


def missing_object(address: str, key: str) -> StoreError:
    return StoreError(f"index {address}: there is no {key}", "Something removed it: build the index again.")


def _unfit(address: str, what: str) -> StoreError:
    return StoreError(
        f"index {address}: the store {what}, so two builds could overwrite each other",
        "Use a store that honours If-None-Match and If-Match on writes, or keep the index on disk.",
    )


@contextmanager
def _conflict_expected(address: str, header: str) -> Iterator[None]:
    try:
        yield
    except Conflict:
        return
    raise _unfit(address, f"ignores the header {header}")


def checked_key(key: str) -> str:
    if not key or any(name in ("", ".", "..") for name in key.split("/")):
        raise ValueError(f"{key!r} is not a key")
    return key


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _appear(temporary: Path, path: Path) -> None:
    """Put a file where there is none.

    Raises:
        Conflict: when there is one.
    """
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise Conflict(f"there is a {path} already") from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        temporary.replace(path)  # no hard links here; only the lock keeps other processes out
