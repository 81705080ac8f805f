"""Digests of the cache's files, and what becomes of a damaged cache: its whole parts stay, the rest is computed again.

Invariants:
- Nothing is taken out of the cache that is whole, except what was written after the last state that can be read.
- A damaged cache never stops a build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from indexes.storage import digests, seal
from indexes.storage.digests import Damage, FileDigest
from indexes.storage.errors import is_panic
from indexes.storage.manifest import Manifest
from indexes.storage.objects import Objects
from indexes.storage.storage import TURNS, Storage
from parsers.errors import StoreError

LIST: Final = "files/cache.json"
_PLACE: Final = "memory/"
_MANIFEST: Final = re.compile(r"_versions/(\d+)\.manifest")


class _List(msgspec.Struct, frozen=True):
    files: dict[str, FileDigest]
    digest: str = ""


class _Head(NamedTuple):
    """The state that LanceDB would open: the manifest's key, and the manifest; None where it cannot be read."""

    key: str
    manifest: Manifest | None


def record_cache_digests(objects: Objects) -> None:
    """Record size and digest of every file of the cache; those recorded before are not read again."""
    known = _known(objects)
    sizes = {stat.key: stat.size for stat in objects.stats(_PLACE) if ".lance/" in stat.key and not _changes(stat.key)}
    if not isinstance(known, dict) or known.keys() != sizes.keys():
        files = digests.record_digests(objects, sizes, known if isinstance(known, dict) else {})
        objects.put(LIST, seal.seal(msgspec.json.format(msgspec.json.encode(_List(files)), indent=2) + b"\n"))


def cache_damages(objects: Objects, *, thorough: bool) -> list[Damage]:
    """Return the files of the cache that are missing, or not what they were when they were written, by key.

    Args:
        thorough: read all of every file, see :func:`indexes.storage.digests.damages`.
    """
    there = {stat.key: stat.size for stat in objects.stats(_PLACE)}
    known = _known(objects)
    found = [known] if isinstance(known, Damage) else []
    needed: set[str] = set()
    for name in _tables(there):
        folder, head = f"{_PLACE}{name}.lance/", _head(objects, name, there)
        needed.add(head.key)
        if head.manifest is None:
            found.append(Damage(head.key or f"{folder}_versions", "cannot be read" if head.key else "is missing"))
            continue
        named = [folder + one for one in _named(head.manifest)]
        indexes = [folder + one for own in head.manifest.indexes.values() for one in own]
        found += [Damage(key, "is missing") for key in named if key not in there]
        found += [Damage(one, "is missing") for one in indexes if not any(key.startswith(one) for key in there)]
        needed |= {*named, *(key for key in there if any(key.startswith(one) for one in indexes))}
    recorded = {} if isinstance(known, Damage) else {key: one for key, one in known.items() if key in there}
    wanted = {key: one for key, one in recorded.items() if thorough or key in needed}
    seen = {one.key for one in found}
    found += [one for one in digests.damages(objects, wanted, thorough=thorough, there=there) if one.key not in seen]
    if TURNS in there and ((turns := objects.get(TURNS)) is None or seal.broken(turns[0])):
        found.append(Damage(TURNS, "is not what was written"))
    return sorted(found)


def heal(storage: Storage, *, thorough: bool) -> list[str]:
    """Take what is damaged out of the cache, for whoever holds the index; what it held is computed again when asked.

    Returns:
        What was done, a sentence for each table.
    """
    found = cache_damages(storage.objects, thorough=thorough)
    if not found:
        return []
    said = []
    for name in sorted({one.key.removeprefix(_PLACE).split(".lance/")[0] for one in found if ".lance/" in one.key}):
        own = [one for one in found if one.key.startswith(f"{_PLACE}{name}.lance/")]
        before = f"the cache table {name} is damaged ({digests.first_damages(own, 1)})"
        if _mend(storage, name, {one.key for one in own}):
            said.append(f"{before}: its whole parts stay, the rest is computed again when it is needed")
        else:
            storage.objects.delete([stat.key for stat in storage.objects.stats(f"{_PLACE}{name}.lance/")])
            said.append(f"{before}: it is dropped, and what it held is computed again when it is needed")
    if any(one.key == TURNS for one in found):
        said.append("the turns in which documents are read again are damaged: they begin anew")
        storage.objects.delete([TURNS])
    storage.objects.delete([LIST])
    record_cache_digests(storage.objects)
    return said


def _mend(storage: Storage, name: str, bad: set[str]) -> bool:
    """Take the damaged parts out of a table; whether that went well."""
    objects, folder = storage.objects, f"{_PLACE}{name}.lance/"
    while True:
        there = {stat.key: stat.size for stat in objects.stats(folder)}
        head = _head(objects, name, there)
        if not head.key:
            return False
        deletions = (
            [folder + one.deletions for one in head.manifest.fragments if one.deletions] if head.manifest else []
        )
        if head.manifest is not None and head.key not in bad and not any(_bad(one, bad, there) for one in deletions):
            break
        objects.delete([head.key])  # LanceDB goes on from the state before
    try:
        table = storage.cache().open_table(name)
        for index, folders in head.manifest.indexes.items():
            if any(key.startswith(folder + one) for one in folders for key in bad):
                table.drop_index(index)
        for fragment in head.manifest.fragments:
            if any(_bad(folder + one, bad, there) for one in fragment.files):
                first, last = fragment.number << 32, (fragment.number + 1) << 32
                table.delete(f"_rowid >= {first} AND _rowid < {last}")
        table.count_rows()
    except BaseException as error:  # whatever LanceDB says of what is left, a panic too
        if not is_panic(error) and not isinstance(error, Exception):
            raise
        return False
    objects.delete(sorted(bad & there.keys()))
    return True


def _bad(key: str, bad: set[str], there: dict[str, int]) -> bool:
    return key in bad or key not in there


def _known(objects: Objects) -> dict[str, FileDigest] | Damage:
    """Return the recorded digests by key; empty if there are none, or the damage of the list itself."""
    found = objects.get(LIST)
    if found is None:
        return {}
    if seal.broken(found[0]):
        return Damage(LIST, "has another content than when it was written")
    return msgspec.json.decode(found[0], type=_List).files


def _head(objects: Objects, name: str, there: dict[str, int]) -> _Head:
    folder = f"{_PLACE}{name}.lance/"
    versions = {
        _version(int(match[1])): key
        for key in there
        if key.startswith(folder) and (match := _MANIFEST.fullmatch(key.removeprefix(folder)))
    }
    if not versions:
        return _Head("", None)
    last = max(versions)
    try:
        return _Head(versions[last], digests.open_manifest(objects, folder, last)[1])
    except StoreError:
        return _Head(versions[last], None)


def _version(number: int) -> int:
    """Return the version that a manifest's name says, in either way of naming."""
    return 2**64 - 1 - number if number > 2**63 else number


def _tables(there: dict[str, int]) -> list[str]:
    return sorted({key.removeprefix(_PLACE).split(".lance/")[0] for key in there if ".lance/" in key})


def _named(manifest: Manifest) -> Iterator[str]:
    for fragment in manifest.fragments:
        yield from fragment.files
        if fragment.deletions:
            yield fragment.deletions


def _changes(key: str) -> bool:
    return key.endswith("latest_version_hint.json")
