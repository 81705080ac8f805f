"""Where an index is kept, on disk or on S3, and the only module that knows its layout.

    INDEX/
      pointer.json                           what is published; the last thing a build writes
      build.lock, build.lease                held by the one build that may write: a lock on disk, a lease on S3
      revisions/00000012.json                what revision 12 consists of
      generations/G/                         chunks and documents (LanceDB)
      generations/G/lexical/00000012/        the BM25 index of revision 12; on S3 its files by content, and a list
      memory/                                what builds remember, by content (LanceDB)
      memory/vectors.doubted                 is there while vectors are remembered that no gate has seen
      probes/F                               texts and vectors by which a runtime proves itself for fingerprint F
      evaluations/                           records of what was measured
      scratch/                               passing files of a running build; on S3 in a local cache folder

Kept here: the pointer is replaced in one step, after everything it names is in place; a reader sees the old revision or
the new one, whole; and a builder that lost its lease cannot write the pointer, which must stand as that builder saw it.
"""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lancedb
import msgspec

from indexes.lease import FolderLock, Lease
from indexes.objects import Conflict, FolderObjects, Objects, probe, unusable
from indexes.s3_objects import S3Objects, refused
from indexes.segments import Segments
from parsers.errors import GateRefused, GristmillError, StoreError

FORMAT: Final = 3
POINTER: Final = "pointer.json"
DOUBTED: Final = "memory/vectors.doubted"
OWN: Final = ("pointer.json", "revisions", "generations", "memory", "probes", "evaluations", "scratch", "build.lock")
# A builder that is killed on S3 holds the index for so long, and whoever comes next watches its lease as long again.
LEASE_SECONDS: Final = 60.0
# Bytes that LanceDB may hold of its indexes and of its tables' descriptions; its own limits are some gigabytes.
INDEX_CACHE: Final = 256 * 2**20
METADATA_CACHE: Final = 64 * 2**20
BARRING: Final = 3  # tries to bar a builder that may write the pointer at the same moment


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """One revision, published or to be: what it consists of and what made it.

    Attributes:
        generation: its name.
        revision: 1-based; rises by one with each revision of the index. 0 where nothing is published yet.
        chunks_version, documents_version: exact LanceDB versions.
        embedder: name of the model.
        embedder_fingerprint: of the model that made every vector of this generation.
        dimension: of the vectors.
        ruler: name of the model whose tokenizer the chunks were counted with.
        analysis: fingerprint of the rules that made BM25's terms.
        sources: names of the document stores, with the address each was last read from.
        counts: ``documents``, ``chunks``, ``vectors``, ``tokens``.
        runtimes: provenance of the vectors, by its id.
        made_by: ``build``, ``reindex``, ``rollback``, ``repair`` or ``purge``.
        held: why nothing may be published until it is released; empty where nothing is held.
        rates: seconds a piece of work took, as last measured: to ``fetch``, ``parse`` and ``chunk`` a document, to
            ``note`` and ``embed`` a text, to ``write`` a row.
        token: of the lease under which the pointer was last written; 0 on disk.
        created: UTC time in ISO 8601.
        checks: the gates it passed, with their figures.
    """

    generation: str = ""
    revision: int = 0
    chunks_version: int = 0
    documents_version: int = 0
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    ruler: str = ""
    analysis: str = ""
    sources: dict[str, str] = {}
    counts: dict[str, int] = {}
    runtimes: dict[str, dict[str, Any]] = {}
    made_by: str = "build"
    held: str = ""
    rates: dict[str, float] = {}
    token: int = 0
    created: str = ""
    checks: dict[str, str] = {}
    format: int = FORMAT


class Storage:
    """An index's place.

    Args:
        address: a folder's path, or ``s3://bucket/prefix``.
        cache: the folder that holds local copies of what is on S3; a temporary one by default.

    Raises:
        StoreError: when the address is of a kind that is not supported.
    """

    def __init__(self, address: str, cache: Path | None = None) -> None:
        self.address: Final = address
        self.remote: Final = "://" in address
        self.objects: Objects
        self._lance_options: dict[str, str] | None = None
        if self.remote:
            if not address.startswith("s3://"):
                raise StoreError(
                    f"index {address}: stores of this kind are not supported", "Name a folder or an s3:// address."
                )
            own = hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]
            self._local = (cache or Path(tempfile.gettempdir()) / "gristmill-indexes") / own
            objects = S3Objects(address)
            self.objects, self._lance_options = objects, objects.storage_options()
        else:
            self._local = Path(address).expanduser()
            self.objects = FolderObjects(self._local)
        self._session = lancedb.Session(INDEX_CACHE, METADATA_CACHE)
        self._segments = Segments(self.objects, self._local) if self.remote else None
        self._etag = ""
        self._lease: Lease | None = None

    def create(self) -> None:
        """Make the place writable for a build.

        Raises:
            StoreError: when it is a file, or cannot be written, or holds something else, or is a store on S3 that
                ignores conditional writes.
        """
        if self.remote:
            self._local.mkdir(parents=True, exist_ok=True)
            if self.pointer() is None:
                probe(self.objects)
            return
        if self._local.is_dir() and not (self._local / "memory").is_dir() and any(self._foreign()):
            raise StoreError(
                f"index {self.address}: the folder holds other things and no index",
                "Name a new or empty folder with --index.",
            )
        try:
            for name in ("memory", "generations", "revisions", "scratch"):
                (self._local / name).mkdir(parents=True, exist_ok=True)
            free = self._local / "scratch" / "probe"
            free.write_bytes(b"x")
            free.unlink()
        except OSError as error:
            raise unusable(self.address, error) from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the index for one writer. On disk the lock goes with the process, however it ends; on S3 it is a lease.

        Raises:
            IndexBusy: when another one holds it.
            StoreError: when the place cannot be written.
        """
        if not self.remote:
            with FolderLock(self._local / "build.lock", self.address):
                yield
            return
        objects = S3Objects(self.address, attempts=2, timeout=LEASE_SECONDS / 6)  # fails well within the lease
        with Lease(objects, "build.lease", seconds=LEASE_SECONDS) as lease:
            self._lease = lease
            try:
                if lease.taken_over:
                    self._bar_the_last_builder(lease.token)
                yield
            finally:
                self._lease = None

    def _bar_the_last_builder(self, token: int) -> None:
        """Write the pointer anew, so that a builder that only slept finds it changed and cannot publish."""
        for left in reversed(range(BARRING)):
            try:
                self._write_pointer(msgspec.structs.replace(self._read() or Pointer(), token=token))
                return
            except GateRefused:
                if not left:
                    raise

    def pointer(self) -> Pointer | None:
        """What is published; None for an index that has published nothing.

        Raises:
            StoreError: when the pointer cannot be read or is of another format.
        """
        pointer = self._read()
        return pointer if pointer is not None and pointer.revision else None

    def _read(self) -> Pointer | None:
        found = self.objects.get(POINTER)
        if found is None:
            self._etag = ""
            return None
        data, self._etag = found
        return self._decoded(data, POINTER)

    def _decoded(self, data: bytes, name: str) -> Pointer:
        try:
            kind = msgspec.json.decode(data, type=_Format)
            if kind.format != FORMAT:
                raise StoreError(
                    f"index {self.address} has format {kind.format}, this program reads {FORMAT}",
                    "Build the index anew with this program, or use the program that built it.",
                )
            return msgspec.json.decode(data, type=Pointer)
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"index {self.address}: {name} is not a pointer: {error}",
                "Restore it from the newest file in revisions/.",
            ) from error

    def publish(self, pointer: Pointer) -> None:
        """Record a revision, then point readers to it.

        Raises:
            GateRefused: when another builder has published or taken the lease since this one read the pointer.
        """
        if self._lease is not None:
            self._lease.check()
            pointer = msgspec.structs.replace(pointer, token=self._lease.token)
        self.objects.put(_revision(pointer.revision), _encoded(pointer))
        self._write_pointer(pointer)

    def _write_pointer(self, pointer: Pointer) -> None:
        data = _encoded(pointer)
        try:
            if self._etag:
                self._etag = self.objects.replace(POINTER, data, self._etag)
            else:
                self._etag = self.objects.create(POINTER, data)
        except Conflict as error:
            raise GateRefused(
                f"index {self.address}: another builder has written the pointer since this one read it",
                "Nothing was published by this build; what it finished is remembered. Build again.",
            ) from error

    def revisions(self) -> list[Pointer]:
        """The kept revisions, oldest first, the published one among them.

        One above the published is left out: its build was killed after the record and before the pointer was written.
        Without a pointer every record counts, so that a lost pointer makes no build discard what it named.
        """
        found = []
        for stat in self.objects.stats("revisions/"):
            data = self.objects.get(stat.key)
            if data is not None:
                found.append(self._decoded(data[0], stat.key))
        pointer = self.objects.get(POINTER)  # not by `pointer`: what this builder saw of it stays what it saw
        last = self._decoded(pointer[0], POINTER).revision if pointer is not None else 0
        return sorted((one for one in found if not last or one.revision <= last), key=lambda one: one.revision)

    def forget_revision(self, pointer: Pointer) -> None:
        """Keep a revision no longer: its record and its BM25 index go."""
        self.objects.delete([_revision(pointer.revision)])
        self.drop_lexical(pointer.generation, pointer.revision)

    def memory(self) -> Any:
        """The LanceDB connection of the content memory."""
        return self._connect("memory")

    def doubt_vectors(self) -> None:
        """Note that vectors were remembered which no gate has seen yet."""
        if not self.vectors_doubted:
            self.objects.put(DOUBTED, b"")

    def trust_vectors(self) -> None:
        """Note that a gate has seen a sample of what was remembered."""
        self.objects.delete([DOUBTED])

    @property
    def vectors_doubted(self) -> bool:
        """Whether vectors were remembered that no gate has seen yet."""
        return self.objects.get(DOUBTED) is not None

    def probes(self, fingerprint: str) -> bytes | None:
        """What a runtime proves itself by for a model's fingerprint; None where no build has kept any."""
        found = self.objects.get(f"probes/{fingerprint}")
        return found[0] if found is not None else None

    def keep_probes(self, fingerprint: str, data: bytes) -> None:
        """Keep what a runtime proves itself by."""
        self.objects.put(f"probes/{fingerprint}", data)

    def drop_probes(self, fingerprint: str) -> None:
        """Keep them no longer."""
        self.objects.delete([f"probes/{fingerprint}"])

    def tables(self, generation: str) -> Any:
        """The LanceDB connection of a generation."""
        return self._connect(f"generations/{generation}")

    def _connect(self, place: str) -> Any:
        if self.remote:
            options, uri = self._lance_options, f"{self.address.rstrip('/')}/{place}"
            return lancedb.connect(uri, storage_options=options, session=self._session)
        folder = self._local / place
        folder.mkdir(parents=True, exist_ok=True)
        return lancedb.connect(str(folder), session=self._session)

    def lexical(self, generation: str, revision: int) -> Path:
        """The folder of a stored BM25 index; from S3 it is fetched into the cache first, where it is not there.

        Raises:
            StoreError: when it cannot be fetched.
        """
        if self._segments is not None:
            return self._segments.fetch(generation, revision)
        return self.lexical_draft(generation, revision)

    def lexical_draft(self, generation: str, revision: int) -> Path:
        """The folder to write a revision's BM25 index in."""
        return self._local / "generations" / generation / "lexical" / f"{revision:08d}"

    def store_lexical(self, generation: str, revision: int) -> None:
        """Have a written BM25 index where readers find it; to be called before the revision is published."""
        if self._segments is not None:
            self._segments.store(generation, revision, self.lexical_draft(generation, revision))

    def drop_lexical(self, generation: str, revision: int) -> None:
        """Remove a revision's BM25 index."""
        shutil.rmtree(self.lexical_draft(generation, revision), ignore_errors=True)
        if self._segments is not None:
            self._segments.drop(generation, revision)

    def generations(self) -> set[str]:
        """Names of the generations that hold anything, published or not."""
        local = self._local / "generations"
        names = {path.name for path in local.iterdir() if path.is_dir()} if local.is_dir() else set()
        if self.remote:
            names |= {stat.key.split("/")[1] for stat in self.objects.stats("generations/")}
        return names

    def discard_generation(self, generation: str) -> None:
        """Remove a generation that no kept revision is of."""
        shutil.rmtree(self._local / "generations" / generation, ignore_errors=True)
        if self.remote:
            self.objects.delete([stat.key for stat in self.objects.stats(f"generations/{generation}/")])

    def drafts(self, generation: str, kept: Iterable[int]) -> list[int]:
        """Revisions whose BM25 index lies in a generation and that are not kept: leftovers of kills."""
        folder = self.lexical_draft(generation, 0).parent
        found = {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.is_dir() else set()
        if self._segments is not None:
            found |= self._segments.revisions(generation)
        return sorted(found - set(kept))

    def scratch(self) -> Path:
        """An empty folder for a build's passing files; what an earlier build left in it is gone."""
        folder = self._local / "scratch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def left_in_scratch(self) -> int:
        """Bytes that builds left in the scratch folder."""
        return sum(path.stat().st_size for path in (self._local / "scratch").rglob("*") if path.is_file())

    def size(self) -> int:
        """Bytes the index takes; a file linked from several revisions counts once."""
        if self.remote:
            return sum(stat.size for stat in self.objects.stats(""))
        seen: dict[tuple[int, int], int] = {}
        for path in self._local.rglob("*"):
            if path.is_file():
                status = path.stat()
                seen[(status.st_dev, status.st_ino)] = status.st_size
        return sum(seen.values())

    def _foreign(self) -> Iterator[Path]:
        """What lies in the folder and belongs to no index."""
        return (path for path in self._local.iterdir() if not path.name.startswith(".") and path.name not in OWN)


class _Format(msgspec.Struct):
    """What every pointer has had in common."""

    format: int = 0


def _revision(number: int) -> str:
    return f"revisions/{number:08d}.json"


def _encoded(pointer: Pointer) -> bytes:
    return msgspec.json.format(msgspec.json.encode(pointer), indent=2) + b"\n"


def as_store_error(address: str, error: BaseException) -> GristmillError | None:
    """The clear error behind one of a store's own, where it is about the place and not a defect of ours."""
    text = str(error)
    for number, words in ((errno.ENOSPC, "No space left on device"), (errno.EDQUOT, "Disk quota exceeded")):
        if words in text or (isinstance(error, OSError) and error.errno == number):
            return unusable(address, OSError(number, words))
    for number, words in ((errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only file system")):
        if words in text or (isinstance(error, OSError) and error.errno == number):
            return unusable(address, OSError(number, words))
    code = re.search(r"<Code>(\w+)</Code>", text)  # LanceDB hands on what S3 answered
    if address.startswith("s3://") and code:
        return refused(address, "reading or writing its tables", code[1])
    return None
