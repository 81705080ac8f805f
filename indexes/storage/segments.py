"""BM25 indexes on S3: their files by content, fetched once into a local cache.

    generations/G/lexical/files/SHA256       a file of tantivy's; revisions that share a segment share its file
    generations/G/lexical/00000012.json      names of revision 12's files with their digests

Invariants:
- The list of a revision is written after all its files.
- A file is fetched whole or not at all and checked against its digest.
- A folder appears in the cache with all its files or not at all, and its name holds the digest of its list, so that
  what one builder left is never taken for what another published under the same number.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from enrich.files import atomic_file
from indexes.storage.digests import SMALL
from indexes.storage.objects import Objects
from parsers.errors import StoreError


class DamagedList(StoreError):
    """The list of a revision's BM25 files cannot be read."""


class Segments:
    """The BM25 indexes of one address.

    Args:
        objects: the index's objects.
        cache: its local folder.
    """

    def __init__(self, objects: Objects, cache: Path) -> None:
        self._objects = objects
        self._cache = cache

    def store(self, generation: str, revision: int, folder: Path) -> None:
        """Put the files of a folder that are not there yet, then the list of them; the folder moves into the cache."""
        place = _place(generation)
        names = {path.name: _digest(path) for path in sorted(folder.iterdir()) if _belongs(path)}
        there = {stat.key.rsplit("/", 1)[1] for stat in self._objects.stats(f"{place}/files/")}
        for name, digest in names.items():
            if digest not in there:
                self._objects.upload(folder / name, f"{place}/files/{digest}")
        listed = msgspec.json.encode(names, order="sorted")
        self._objects.put(f"{place}/{revision:08d}.json", listed)
        final = self._folder(generation, revision, listed)
        if not final.exists():
            folder.rename(final)

    def fetch(self, generation: str, revision: int) -> Path:
        """Return a revision's folder in the cache, with all its files.

        Raises:
            StoreError: when the list or a file is missing, or a file is not what the list says.
        """
        names, listed = self._list(generation, revision)
        folder = self._folder(generation, revision, listed)
        if folder.is_dir():
            if all(_unchanged(folder / name, digest) for name, digest in names.items()):
                return folder
            self._forget(folder, names.values())
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, digest in names.items():
            self._fetch_file(f"{_place(generation)}/files/{digest}", partial / name, digest)
        try:
            partial.rename(folder)
        except OSError:  # another reader was faster
            shutil.rmtree(partial, ignore_errors=True)
            if not folder.is_dir():
                raise
        return folder

    def _forget(self, folder: Path, digests: Iterable[str]) -> None:
        """Drop what the cache holds of a revision, as it is not what was fetched any more."""
        shutil.rmtree(folder, ignore_errors=True)
        for digest in digests:
            (self._cache / "files" / digest).unlink(missing_ok=True)

    def _fetch_file(self, key: str, path: Path, digest: str) -> None:
        kept = self._cache / "files" / digest
        if not kept.is_file():
            with atomic_file(kept) as fresh:
                self._objects.download(key, fresh)
                if _digest(fresh) != digest:
                    raise StoreError(
                        f"index {self._objects.address}: {key} has another content than its name says",
                        "Run `gristmill verify`, then `gristmill repair`.",
                    )
        if path.suffix == ".json":
            shutil.copyfile(kept, path)  # tantivy writes these anew
        else:
            os.link(kept, path)

    def drop(self, generation: str, revision: int) -> None:
        """Remove a revision's list, the files that no other list of the generation names, and its folder.

        Where another list is damaged, all files stay: it may have named them.
        """
        place = _place(generation)
        self._objects.delete([f"{place}/{revision:08d}.json"])
        named = self._named(generation)
        if named is not None:
            files = [stat.key for stat in self._objects.stats(f"{place}/files/")]
            self._objects.delete([key for key in files if key.rsplit("/", 1)[1] not in named])
        for folder in (self._cache / place).glob(f"{revision:08d}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (self._cache / "files").glob("*"):
            if path.stat().st_nlink == 1:  # in no folder any more; fetched again if need be
                path.unlink(missing_ok=True)

    def _named(self, generation: str) -> set[str] | None:
        """Return the digests of the files that a list names; None where a list is damaged."""
        found: set[str] = set()
        for kept in self.revisions(generation):
            try:
                found.update(self._list(generation, kept)[0].values())
            except DamagedList:
                return None
        return found

    def revisions(self, generation: str) -> set[int]:
        """Return the revisions of a generation that have a list."""
        place = _place(generation)
        tails = [stat.key[len(place) + 1 :] for stat in self._objects.stats(f"{place}/")]
        return {int(tail[:-5]) for tail in tails if tail.endswith(".json") and tail[:-5].isdigit()}

    def _list(self, generation: str, revision: int) -> tuple[dict[str, str], bytes]:
        found = self._objects.get(f"{_place(generation)}/{revision:08d}.json")
        if found is None:
            raise StoreError(
                f"index {self._objects.address}: revision {revision} of {generation} has no BM25 index",
                "Run `gristmill verify`, then `gristmill repair`.",
            )
        try:
            return msgspec.json.decode(found[0], type=dict[str, str]), found[0]
        except msgspec.MsgspecError as error:
            raise DamagedList(
                f"index {self._objects.address}: the list of the BM25 files of revision {revision} is damaged: {error}",
                "Run `gristmill verify`, then `gristmill repair`.",
            ) from error

    def _folder(self, generation: str, revision: int, listed: bytes) -> Path:
        return self._cache / _place(generation) / f"{revision:08d}-{hashlib.sha256(listed).hexdigest()[:16]}"


def _place(generation: str) -> str:
    return f"generations/{generation}/lexical"


def _belongs(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(".lock")


def _unchanged(path: Path, digest: str) -> bool:
    """Return whether a file of the cache is what was fetched.

    A long one is taken for it, as reading all of it costs time.
    """
    try:
        return path.stat().st_size > SMALL or _digest(path) == digest
    except OSError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
