"""Size and digest of every file that a revision consists of, recorded when it is published and checked afterwards.

Invariants:
- The list of a revision names every file of its state: data, deletions, indexes, manifest and transaction of both
  tables at their versions, the BM25 index, and the probes.
- A file that the last list holds under the same name and size is not read again: neither LanceDB nor tantivy changes a
  file once it is written. tantivy's two lists and the probes can change, and are read each time.
- Checking writes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

import msgspec

from indexes.storage.manifest import Manifest, paths, read_manifest
from indexes.storage.objects import Objects
from parsers.errors import StoreError

SMALL: Final = 2**16  # bytes up to which a file is read when an index is opened; of a longer one, so many at its end
READERS: Final = 8  # files read at a time
TABLES: Final = {"chunks": "chunks_version", "documents": "documents_version"}
_CHANGING: Final = re.compile(r"probes/.*|.*/(meta|\.managed)\.json|.*/lexical/\d{8}\.json")


class FileDigest(msgspec.Struct, frozen=True, array_like=True):
    """What a file must be.

    Attributes:
        size: in bytes.
        sha256: of all of it.
        tail: SHA-256 of its last ``SMALL`` bytes, where it is longer. LanceDB keeps the layout of a data file there,
            and ends the process on some layouts that make no sense.
    """

    size: int
    sha256: str
    tail: str = ""


class FileList(msgspec.Struct, frozen=True):
    """The files of a revision, by key below the index."""

    generation: str
    revision: int
    files: dict[str, FileDigest]

    def encoded(self) -> bytes:
        """Return the list as bytes."""
        return msgspec.json.encode(self, order="deterministic")


class Damage(NamedTuple):
    """A file that is not what its list says, and in which way."""

    key: str
    problem: str

    @property
    def part(self) -> str:
        """What the file belongs to: ``chunks``, ``documents``, ``lexical``, ``probes``, or the first folder's name."""
        return part_of(self.key)


class Versions(Protocol):
    """What of a pointer says which files are meant."""

    @property
    def generation(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def chunks_version(self) -> int: ...
    @property
    def documents_version(self) -> int: ...
    @property
    def embedder_fingerprint(self) -> str: ...


def part_of(key: str) -> str:
    """Return the part of an index that a file belongs to, see :attr:`Damage.part`."""
    names = key.split("/")
    return names[2].removesuffix(".lance") if names[0] == "generations" and len(names) > 3 else names[0]


def revision_files(objects: Objects, pointer: Versions) -> dict[str, int]:
    """Sizes of the files of a revision, by key.

    Raises:
        StoreError: when one of them is missing, or a manifest cannot be read.
    """
    found: dict[str, int] = {}
    above = f"generations/{pointer.generation}/"
    for name, field in TABLES.items():
        if version := getattr(pointer, field):
            found |= table_files(objects, f"{above}{name}.lance/", version)
    found |= lexical_files(objects, above, pointer.revision)
    probes = f"probes/{pointer.embedder_fingerprint}"
    found |= {stat.key: stat.size for stat in objects.stats(probes) if stat.key == probes}
    return found


def table_files(objects: Objects, folder: str, version: int) -> dict[str, int]:
    """Sizes of the files of one version of a LanceDB table, by key.

    Args:
        folder: the key of the table's folder, with a slash at its end.

    Raises:
        StoreError: as :func:`revision_files` says.
    """
    there = {stat.key: stat.size for stat in objects.stats(folder)}
    key, manifest = open_manifest(objects, folder, version)
    named = [folder + one for fragment in manifest.fragments for one in (*fragment.files, fragment.deletions) if one]
    indexes = [folder + one for own in manifest.indexes.values() for one in own]
    found = [key, *named, *(one for one in there if any(one.startswith(index) for index in indexes))]
    if manifest.transaction and folder + manifest.transaction in there:  # nothing reads it again
        found.append(folder + manifest.transaction)
    missing = sorted(set(found) - there.keys())
    missing += [index for index in indexes if not any(one.startswith(index) for one in there)]
    if missing:
        raise _damaged(objects, [Damage(one, "is missing") for one in missing])
    return {one: there[one] for one in found}


def open_manifest(objects: Objects, folder: str, version: int) -> tuple[str, Manifest]:
    """Return the manifest of a version of a table, with its key.

    Raises:
        StoreError: when it is missing or cannot be read.
    """
    for path in paths(version):
        data = objects.get(folder + path)
        if data is not None:
            try:
                manifest = read_manifest(data[0])
            except ValueError as error:
                raise _damaged(objects, [Damage(folder + path, f"cannot be read: {error}")]) from error
            if manifest.version != version:
                raise _damaged(objects, [Damage(folder + path, f"is of version {manifest.version}, not {version}")])
            return folder + path, manifest
    raise _damaged(objects, [Damage(folder + paths(version)[0], "is missing")])


def lexical_files(objects: Objects, above: str, revision: int) -> dict[str, int]:
    """Sizes of the files of a BM25 index: those of its folder, or on S3 its list and what that names."""
    place = f"{above}lexical/{revision:08d}"
    on_disk = {stat.key: stat.size for stat in objects.stats(f"{place}/") if not stat.key.endswith(".lock")}
    listed = objects.get(f"{place}.json")
    if listed is None:
        return on_disk
    try:
        names = msgspec.json.decode(listed[0], type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise _damaged(objects, [Damage(f"{place}.json", f"cannot be read: {error}")]) from error
    wanted = {f"{above}lexical/files/{digest}" for digest in names.values()}
    found = {stat.key: stat.size for stat in objects.stats(f"{above}lexical/files/") if stat.key in wanted}
    if wanted - found.keys():
        raise _damaged(objects, [Damage(one, "is missing") for one in sorted(wanted - found.keys())])
    return found | {f"{place}.json": len(listed[0])}


def record_digests(
    objects: Objects, sizes: Mapping[str, int], known: Mapping[str, FileDigest]
) -> dict[str, FileDigest]:
    """Digests of files, by key; those that are known are not read again.

    Args:
        sizes: of the files to record.
        known: digests of an earlier list, by key.
    """
    shared = {_name(key): digest for key, digest in known.items()}

    def one(key: str) -> FileDigest:
        before = shared.get(_name(key))
        if before is not None and before.size == sizes[key] and not _CHANGING.fullmatch(key):
            return before
        return digest_of(objects, key)

    with ThreadPoolExecutor(READERS) as pool:
        return dict(zip(sorted(sizes), pool.map(one, sorted(sizes)), strict=True))


def digest_of(objects: Objects, key: str) -> FileDigest:
    """Read a file, and say what it is."""
    whole, size, last = hashlib.sha256(), 0, b""
    for block in objects.blocks(key):
        whole.update(block)
        size += len(block)
        last = (last + block)[-SMALL:]
    return FileDigest(size, whole.hexdigest(), hashlib.sha256(last).hexdigest() if size > SMALL else "")


def damages(
    objects: Objects, files: Mapping[str, FileDigest], *, thorough: bool, there: Mapping[str, int] | None = None
) -> list[Damage]:
    """Return the files that are not what a list says, by key.

    Args:
        thorough: read all of every file. Otherwise sizes are compared, small files read, and the ends of long ones on
            disk.
        there: sizes of what is there, where they are known.
    """
    there = sizes_below(objects, files) if there is None else there

    def one(key: str) -> Damage | None:
        expected = files[key]
        if key not in there:
            return Damage(key, "is missing")
        if there[key] != expected.size:
            return Damage(key, f"has {there[key]:,} bytes, not {expected.size:,}")
        if thorough or expected.size <= SMALL:
            same = digest_of(objects, key).sha256 == expected.sha256
        elif objects.seeks and expected.tail:
            end = b"".join(objects.blocks(key, expected.size - SMALL))
            same = hashlib.sha256(end).hexdigest() == expected.tail
        else:
            same = True
        return None if same else Damage(key, "has another content than when it was written")

    with ThreadPoolExecutor(READERS) as pool:
        return [damage for damage in pool.map(one, sorted(files)) if damage is not None]


def sizes_below(objects: Objects, keys: Iterable[str]) -> dict[str, int]:
    """Sizes of what lies in the folders of these keys, by key."""
    above = {"/".join(key.split("/")[:2]) + "/" if key.startswith("generations/") else key for key in keys}
    return {stat.key: stat.size for prefix in sorted(above) for stat in objects.stats(prefix)}


def first_damages(found: Iterable[Damage], most: int = 3) -> str:
    """Return the first few of some damages, in words."""
    every = list(found)
    more = f" and {len(every) - most} more files" if len(every) > most else ""
    return "; ".join(f"{one.key} {one.problem}" for one in every[:most]) + more


def _damaged(objects: Objects, found: list[Damage]) -> StoreError:
    return StoreError(
        f"index {objects.address}: {first_damages(found)}",
        "`gristmill verify` names every damaged file, `gristmill repair` mends what can be mended.",
    )


def _name(key: str) -> str:
    """Return a file's name among those of all revisions, which share files of BM25 in folders of their own."""
    return f"lexical/{key.rsplit('/', 1)[1]}" if "/lexical/" in key else key


def decode_list(data: bytes) -> FileList:
    """Read a list.

    Raises:
        ValueError: when it is none.
    """
    return msgspec.json.decode(data, type=FileList)


def unnamed(there: Iterable[str], lists: Iterable[FileList]) -> Iterator[str]:
    """Return those of these keys that no list names."""
    every = {key for one in lists for key in one.files}
    return (key for key in there if key not in every)
