"""Where an index is kept, and the only module that knows its layout.

    INDEX/
      pointer.json                           what is published; the last thing a build writes
      build.lock                             held by the one build that may write
      memory/                                what builds remember, by content (LanceDB)
      memory/vectors.doubted                 is there while vectors are remembered that no gate has seen
      evaluations/                           records of what was measured
      generations/G/                         chunks and documents (LanceDB)
      generations/G/lexical/00000012/        the BM25 index of revision 12
      generations/G/revisions/00000012.json  what revision 12 consists of
      scratch/                               fetched bytes of a running build

Kept here: the pointer is replaced in one step, after everything it names is on disk; a reader sees the old revision or
the new one, whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lancedb
import msgspec

from parsers.errors import GristmillError, IndexBusy, StoreError

FORMAT: Final = 1
POINTER: Final = "pointer.json"
DOUBTED: Final = "vectors.doubted"


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """One revision, published or to be: what it consists of and what made it.

    Attributes:
        generation: its name.
        revision: 1-based; rises by one with each published build of a generation.
        chunks_version, documents_version: exact LanceDB versions.
        embedder: name of the model.
        embedder_fingerprint: of the model that made every vector of this generation.
        dimension: of the vectors.
        analysis: fingerprint of the rules that made BM25's terms.
        sources: names of the document stores, with the address each was last read from.
        counts: ``documents``, ``chunks``, ``vectors``, ``tokens``.
        runtimes: provenance of the vectors, by its id.
        created: UTC time in ISO 8601.
        checks: the gates it passed, with their figures.
    """

    generation: str
    revision: int
    chunks_version: int
    documents_version: int
    embedder: str
    embedder_fingerprint: str
    dimension: int
    analysis: str
    sources: dict[str, str]
    counts: dict[str, int]
    runtimes: dict[str, dict[str, Any]] = {}
    created: str = ""
    checks: dict[str, str] = {}
    format: int = FORMAT


class Storage:
    """An index's place on disk.

    Args:
        address: a folder's path.

    Raises:
        StoreError: when the address is of a kind that is not supported.
    """

    def __init__(self, address: str) -> None:
        if "://" in address:
            raise StoreError(
                f"index {address}: stores of this kind are not supported yet", "Give the path of a local folder."
            )
        self.address = address
        self._root = Path(address).expanduser()

    def create(self) -> None:
        """Make the place writable for a build.

        Raises:
            StoreError: when it is a file, or cannot be written, or holds something else.
        """
        if self._root.is_dir() and not (self._root / "memory").is_dir() and any(self._visible()):
            raise StoreError(
                f"index {self.address}: the folder holds other things and no index",
                "Name a new or empty folder with --index.",
            )
        try:
            for name in ("memory", "generations", "scratch"):
                (self._root / name).mkdir(parents=True, exist_ok=True)
            probe = self._root / "scratch" / "probe"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise unusable(self.address, error) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the index for one build; the lock goes with the process, however it ends.

        Raises:
            IndexBusy: when another build holds it.
        """
        try:
            handle = os.open(self._root / "build.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise unusable(self.address, error) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise unusable(self.address, error) from error
                raise IndexBusy(
                    f"index {self.address}: another build holds it (process {self._holder()})", "Wait for it to end."
                ) from error
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
            yield
        finally:
            os.close(handle)

    def pointer(self) -> Pointer | None:
        """What is published; None for an index that has published nothing.

        Raises:
            StoreError: when the pointer cannot be read or is of another format.
        """
        path = self._root / POINTER
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self.address, error) from error
        try:
            pointer = msgspec.json.decode(data, type=Pointer)
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"{path} is not a pointer: {error}", "Restore it from generations/*/revisions/."
            ) from error
        if pointer.format != FORMAT:
            raise StoreError(
                f"index {self.address} has format {pointer.format}, this program reads {FORMAT}",
                "Build the index anew with this program, or use the program that built it.",
            )
        return pointer

    def publish(self, pointer: Pointer) -> None:
        """Record a revision, then point readers to it."""
        data = msgspec.json.format(msgspec.json.encode(pointer), indent=2) + b"\n"
        revisions = self._generation(pointer.generation) / "revisions"
        revisions.mkdir(exist_ok=True)
        _replace(revisions / f"{pointer.revision:08d}.json", data)
        _replace(self._root / POINTER, data)

    def memory(self) -> Any:
        """The LanceDB connection of the content memory."""
        return lancedb.connect(str(self._root / "memory"))

    def doubt_vectors(self) -> None:
        """Note that vectors were remembered which no gate has seen yet."""
        (self._root / "memory" / DOUBTED).touch()

    def trust_vectors(self) -> None:
        """Note that a gate has seen a sample of what was remembered."""
        (self._root / "memory" / DOUBTED).unlink(missing_ok=True)

    @property
    def vectors_doubted(self) -> bool:
        """Whether vectors were remembered that no gate has seen yet."""
        return (self._root / "memory" / DOUBTED).exists()

    def tables(self, generation: str) -> Any:
        """The LanceDB connection of a generation."""
        folder = self._generation(generation)
        folder.mkdir(parents=True, exist_ok=True)
        return lancedb.connect(str(folder))

    def lexical(self, generation: str, revision: int) -> Path:
        """The folder of a revision's BM25 index."""
        return self._generation(generation) / "lexical" / f"{revision:08d}"

    def discard_generation(self, generation: str) -> None:
        """Remove a generation that was never published."""
        shutil.rmtree(self._generation(generation), ignore_errors=True)

    def drop_lexical(self, generation: str, keep: set[int]) -> None:
        """Remove the BM25 folders of all revisions but these."""
        folder = self._generation(generation) / "lexical"
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.name.isdigit() and int(path.name) not in keep:
                shutil.rmtree(path, ignore_errors=True)

    def scratch(self) -> Path:
        """An empty folder for a build's passing files; what an earlier build left in it is gone."""
        folder = self._root / "scratch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def evaluations(self) -> Path:
        """The folder of the kept evaluations; it may not be there yet."""
        return self._root / "evaluations"

    def size(self) -> int:
        """Bytes on disk; a file linked from several revisions counts once."""
        seen: dict[tuple[int, int], int] = {}
        for path in self._root.rglob("*"):
            if path.is_file():
                status = path.stat()
                seen[(status.st_dev, status.st_ino)] = status.st_size
        return sum(seen.values())

    def _generation(self, name: str) -> Path:
        return self._root / "generations" / name

    def _visible(self) -> Iterator[Path]:
        return (path for path in self._root.iterdir() if not path.name.startswith(".") and path.name != "build.lock")

    def _holder(self) -> str:
        try:
            return (self._root / "build.lock").read_text() or "unknown"
        except OSError:
            return "unknown"


def unusable(address: str, error: OSError) -> StoreError:
    """The error for an index whose place does not allow what was tried."""
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
        f"index {address} cannot be used: {what}{where}", remedies.get(error.errno or 0, "Check the path.")
    )


def as_store_error(address: str, error: BaseException) -> GristmillError | None:
    """The clear error behind one of a store's own, where it is about the place and not a defect of ours."""
    text = str(error)
    for number, words in ((errno.ENOSPC, "No space left on device"), (errno.EDQUOT, "Disk quota exceeded")):
        if words in text or (isinstance(error, OSError) and error.errno == number):
            return unusable(address, OSError(number, words))
    for number, words in ((errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only file system")):
        if words in text or (isinstance(error, OSError) and error.errno == number):
            return unusable(address, OSError(number, words))
    return None


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old bytes or the new ones, after a power cut too."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
