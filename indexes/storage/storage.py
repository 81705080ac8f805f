"""Where an index is kept, on disk or on S3, and the only module that knows its layout.

    INDEX/
      pointer.json                           what is published; the last thing a build writes
      build.lock, build.lease                held by the one build that may write: a lock on disk, a lease on S3
      revisions/00000012.json                what revision 12 consists of
      files/00000012.json                    size and digest of every file of revision 12
      generations/G/                         chunks and documents (LanceDB)
      generations/G/lexical/00000012/        the BM25 index of revision 12; on S3 its files by content, and a list
      memory/                                what builds remember, by content (LanceDB)
      memory/turns.json                      which documents builds have read again, by turns
      memory/vectors.doubted                 is there while vectors are remembered that no gate has seen
      probes/F                               texts and vectors by which a runtime proves itself for fingerprint F
      evaluations/                           records of what was measured
      purge.json                             what is to be erased, while that is not finished
      scratch/                               passing files of a running build; on S3 in a local cache folder

Invariants:
- The pointer is replaced in one step, after everything it names is in place.
- A reader sees the old revision or the new one, whole.
- A builder that lost its lease cannot write the pointer, which must stand as that builder saw it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import lancedb
import msgspec

from enrich.files import TEMPORARY
from indexes.storage import digests
from indexes.storage.digests import FileDigest
from indexes.storage.guarded import Guarded, GuardedObjects
from indexes.storage.lease import FolderLock, Lease
from indexes.storage.objects import Conflict, FolderObjects, Objects, probe, unusable
from indexes.storage.pointer import REPAIR, Damaged, decoded, encoded
from indexes.storage.pointer import Pointer as Pointer
from indexes.storage.s3_objects import S3Objects
from indexes.storage.segments import Segments
from parsers.errors import GateRefused, StoreError

POINTER: Final = "pointer.json"
DOUBTED: Final = "memory/vectors.doubted"
TURNS: Final = "memory/turns.json"
OWN: Final = (
    "pointer.json",
    "revisions",
    "files",
    "generations",
    "memory",
    "probes",
    "evaluations",
    "scratch",
    "build.lock",
    "purge.json",
)
# A builder that is killed on S3 holds the index for so long, and whoever comes next watches its lease as long again.
LEASE_SECONDS: Final = 60.0
# Seconds without a byte after which a request to S3 has failed; it is tried a few times.
REQUEST_SECONDS: Final = 30.0
# Bytes that LanceDB may hold of its indexes and of its tables' descriptions; its own limits are some gigabytes.
INDEX_CACHE: Final = 256 * 2**20
METADATA_CACHE: Final = 64 * 2**20
DEFAULT_CACHE: Final = Path(tempfile.gettempdir()) / "gristmill-indexes"
BARRING: Final = 3  # tries to bar a builder that may write the pointer at the same moment


_RECORD: Final = re.compile(r"revisions/(\d{8})\.json")


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
            self._local = (cache or DEFAULT_CACHE) / own
            objects = S3Objects(address, timeout=REQUEST_SECONDS)
            self.objects, self._lance_options = GuardedObjects(objects, self.check_held), objects.storage_options()
        else:
            self._local = Path(address).expanduser()
            self.objects = FolderObjects(self._local)
        self._session = lancedb.Session(INDEX_CACHE, METADATA_CACHE)
        self._segments = Segments(self.objects, self._local) if self.remote else None
        self._etag = ""
        self._lease: Lease | None = None
        self._checked: set[str] = set()
        self.unchecked = False
        """Whether revisions are opened whatever their files are."""

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
                (self._local / "memory").mkdir(exist_ok=True)
                yield
            return
        timeout = min(REQUEST_SECONDS, LEASE_SECONDS / 6)  # a renewal fails well within the lease
        objects = S3Objects(self.address, attempts=2, timeout=timeout)
        with Lease(objects, "build.lease", seconds=LEASE_SECONDS) as lease:
            self._lease = lease
            try:
                if lease.taken_over:
                    self._bar_the_last_builder(lease.token)
                yield
            finally:
                self._lease = None

    def check_held(self) -> None:
        """Make sure that a lease which this builder took is still held; readers and builders on disk have none.

        Raises:
            StoreError: when it was lost.
        """
        if self._lease is not None:
            self._lease.check()

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
        """Return the pointer; None where nothing is published.

        Raises:
            Damaged: when the pointer cannot be read, or is gone. A record of revision 1 alone is what a killed first
                build leaves.
            StoreError: when it is of another format.
        """
        pointer = self._read()
        if pointer is not None and pointer.revision:
            return pointer
        last = max((number for number, _ in self.records()), default=0)
        if last > 1:
            raise Damaged(f"index {self.address}: {POINTER} is missing, and revision {last} has a record", REPAIR)
        return None

    def _read(self) -> Pointer | None:
        found = self.objects.get(POINTER)
        if found is None:
            self._etag = ""
            return None
        data, self._etag = found
        return decoded(self.address, data, POINTER)

    def publish(self, pointer: Pointer) -> Pointer:
        """Record a revision with the digests of its files, then point readers to it; return it as it is recorded.

        Raises:
            GateRefused: when another builder has published or taken the lease since this one read the pointer.
        """
        if self._lease is not None:
            self._lease.check()
            pointer = msgspec.structs.replace(pointer, token=self._lease.token)
        pointer = self._with_files(pointer)
        self.objects.put(revision_key(pointer.revision), encoded(pointer))
        self._write_pointer(pointer)
        return pointer

    def _with_files(self, pointer: Pointer) -> Pointer:
        """Record the digests of a revision's files, and name the list in its pointer."""
        sizes = digests.revision_files(self.objects, pointer)
        listed = digests.record_digests(self.objects, sizes, self._last_files())
        data = digests.FileList(pointer.generation, pointer.revision, listed).encoded()
        self.objects.put(files_key(pointer.revision), data)
        return msgspec.structs.replace(pointer, files=hashlib.sha256(data).hexdigest())

    def _last_files(self) -> dict[str, FileDigest]:
        """Return the digests that the published revision was recorded with."""
        found = self.objects.get(POINTER)  # not by `pointer`: what this builder saw of it stays what it saw
        try:
            return (self.files(decoded(self.address, found[0], POINTER)) if found is not None else None) or {}
        except Damaged:
            return {}  # all files are read again

    def files(self, pointer: Pointer) -> dict[str, FileDigest] | None:
        """Size and digest of every file of a revision, by key; None where none were recorded; Damaged where lost."""
        if not pointer.files:
            return None
        key = files_key(pointer.revision)
        found = self.objects.get(key)
        if found is None or hashlib.sha256(found[0]).hexdigest() != pointer.files:
            what = "is missing" if found is None else "has another content than when it was written"
            raise Damaged(f"index {self.address}: {key} {what}", REPAIR)
        return digests.decode_list(found[0]).files

    def check(self, pointer: Pointer) -> None:
        """Check sizes and small files of a revision, once for each; see :attr:`unchecked` for who repairs one.

        Raises:
            Damaged: naming files that are missing, or not what they were when they were written.
        """
        if self.unchecked or pointer.files in self._checked:
            return
        files = {key: one for key, one in (self.files(pointer) or {}).items() if not key.startswith("probes/")}
        found = digests.damages(
            self.objects, files, thorough=False
        )  # who asks for probes checks them, and a build mends
        if found:
            raise Damaged(
                f"index {self.address}: revision {pointer.revision} is damaged: {digests.first_damages(found)}", REPAIR
            )
        self._checked.add(pointer.files)

    def _write_pointer(self, pointer: Pointer) -> None:
        data = encoded(pointer)
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
        """Return the kept revisions, oldest first, the published one among them.

        One above the published is left out: its build was killed after the record and before the pointer was written.
        Without a pointer every record counts, so that a lost pointer makes no build discard what it named. One whose
        record is damaged is left out too, see :meth:`unreadable`.
        """
        found = self.objects.get(POINTER)  # not by `pointer`: what this builder saw of it stays what it saw
        published = decoded(self.address, found[0], POINTER) if found is not None else Pointer()
        kept = {number: one for number, one in self.records() if isinstance(one, Pointer)}
        if published.revision:
            kept = {number: one for number, one in kept.items() if number < published.revision}
            kept[published.revision] = published
        return [kept[number] for number in sorted(kept)]

    def unreadable(self) -> dict[int, str]:
        """Revisions whose records are damaged, with what is wrong: nobody can go back to them."""
        return {number: one.message for number, one in self.records() if isinstance(one, Damaged)}

    def records(self) -> Iterator[tuple[int, Pointer | Damaged]]:
        """Yield every record by the number of its revision, or what is wrong with it."""
        for record in self.objects.stats("revisions/"):
            name = _RECORD.fullmatch(record.key)
            data = self.objects.get(record.key) if name else None
            if name is None or data is None:
                continue
            number = int(name[1])
            try:
                one = decoded(self.address, data[0], record.key)
                if one.revision != number:
                    raise Damaged(f"index {self.address}: {record.key} is of revision {one.revision}", REPAIR)
                yield number, one
            except Damaged as error:
                yield number, error

    def forget_revision(self, pointer: Pointer) -> None:
        """Keep a revision no longer: its record and its BM25 index go."""
        self.objects.delete([revision_key(pointer.revision), files_key(pointer.revision)])
        self.drop_lexical(pointer.generation, pointer.revision)

    def cache(self) -> Any:
        """Connect to the LanceDB tables of the cache."""
        if not self.remote and not (self._local / "memory").is_dir():
            return lancedb.connect("memory://")  # a reader finds nothing there, and makes no folder
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
        """Return the probes for a model's fingerprint; None where no build has kept any."""
        found = self.objects.get(f"probes/{fingerprint}")
        return found[0] if found is not None else None

    def keep_probes(self, fingerprint: str, data: bytes) -> None:
        """Keep what a runtime proves itself by."""
        self.objects.put(f"probes/{fingerprint}", data)

    def drop_probes(self, fingerprint: str) -> None:
        """Keep them no longer."""
        self.objects.delete([f"probes/{fingerprint}"])

    def tables(self, generation: str, *, create: bool = False) -> Any:
        """Return the LanceDB connection of a generation.

        Args:
            create: make its folder where there is none.

        Raises:
            Damaged: when there is none, and it is not to be made.
        """
        if not self.remote and not create and not (self._local / "generations" / generation).is_dir():
            raise Damaged(f"index {self.address}: generations/{generation} is missing", REPAIR)
        return self._connect(f"generations/{generation}")

    def _connect(self, place: str) -> Any:
        if self.remote:
            options, uri = self._lance_options, f"{self.address.rstrip('/')}/{place}"
            return Guarded(lancedb.connect(uri, storage_options=options, session=self._session), self.check_held)
        folder = self._local / place
        folder.mkdir(parents=True, exist_ok=True)
        return lancedb.connect(str(folder), session=self._session)

    def lexical(self, generation: str, revision: int) -> Path:
        """Return the folder of a stored BM25 index; from S3 it is fetched into the cache first, where it is not there.

        Raises:
            StoreError: when it cannot be fetched.
        """
        if self._segments is not None:
            return self._segments.fetch(generation, revision)
        return self.lexical_draft(generation, revision)

    def lexical_draft(self, generation: str, revision: int) -> Path:
        """Return the folder to write a revision's BM25 index in."""
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
        """Names of the generations that hold anything, published or not, but for what a damaged record may be of."""
        local = self._local / "generations"
        names = {path.name for path in local.iterdir() if path.is_dir()} if local.is_dir() else set()
        if self.remote:
            names |= {stat.key.split("/")[1] for stat in self.objects.stats("generations/")}
        doubtful = self.unreadable().keys()
        return {name for name in names if not doubtful or doubtful.isdisjoint(self._with_lexical(name))}

    def discard_generation(self, generation: str) -> None:
        """Remove a generation that no kept revision is of."""
        shutil.rmtree(self._local / "generations" / generation, ignore_errors=True)
        if self.remote:
            self.objects.delete([stat.key for stat in self.objects.stats(f"generations/{generation}/")])

    def drafts(self, generation: str, kept: Iterable[int]) -> list[int]:
        """Revisions whose BM25 index lies in a generation and that are not kept: leftovers of kills."""
        return sorted(self._with_lexical(generation) - set(kept) - self.unreadable().keys())

    def _with_lexical(self, generation: str) -> set[int]:
        """Return the revisions whose BM25 index lies in a generation."""
        folder = self.lexical_draft(generation, 0).parent
        found = {int(path.name) for path in folder.iterdir() if path.name.isdigit()} if folder.is_dir() else set()
        return found | (self._segments.revisions(generation) if self._segments is not None else set())

    def scratch(self) -> Path:
        """Return an empty folder for a build's passing files; what an earlier build left in it is gone."""
        folder = self._local / "scratch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def drop_copies(self) -> None:
        """Remove this machine's copies of an index on S3, and on disk the temporary files of killed writers."""
        if self.remote:
            for folder in {self._local, DEFAULT_CACHE / self._local.name}:
                shutil.rmtree(folder, ignore_errors=True)
            return
        for path in self._local.rglob(".*.tmp"):
            if TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def left_in_scratch(self) -> int:
        """Return bytes that builds left in the scratch folder."""
        return sum(status.st_size for status in _files(self._local / "scratch"))

    def size(self) -> int:
        """Return bytes the index takes; a file linked from several revisions counts once."""
        if self.remote:
            return sum(stat.size for stat in self.objects.stats(""))
        return sum({(one.st_dev, one.st_ino): one.st_size for one in _files(self._local)}.values())

    def turns(self) -> bytes | None:
        """Return the state of rereading, see :mod:`flows.build.rereading`."""
        found = self.objects.get(TURNS)
        return found[0] if found is not None else None

    def keep_turns(self, data: bytes) -> None:
        """Keep it."""
        self.objects.put(TURNS, data)

    def _foreign(self) -> Iterator[Path]:
        """Yield entries of the folder that belong to no index."""
        return (path for path in self._local.iterdir() if not path.name.startswith(".") and path.name not in OWN)


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file below a folder, ignoring files removed meanwhile."""
    for above, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(above, name).stat()


def revision_key(number: int) -> str:
    """Return where the record of a revision lies."""
    return f"revisions/{number:08d}.json"


def files_key(number: int) -> str:
    """Return where the list of a revision's files lies."""
    return f"files/{number:08d}.json"
