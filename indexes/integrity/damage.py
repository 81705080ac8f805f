"""The damaged files of an index: of what is published, of the kept revisions, of the cache and of the records.

Invariants:
- Every file that a list names is read, and every damaged one is named.
- Nothing is written, and no library is asked to open a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from indexes.cache import health
from indexes.storage import digests
from indexes.storage.digests import Damage, FileDigest
from indexes.storage.pointer import Damaged, decoded
from indexes.storage.storage import Pointer, Storage, files_key, revision_key

EVALUATIONS = "evaluations/"


def of_revision(storage: Storage, pointer: Pointer, *, thorough: bool = True) -> list[Damage]:
    """Return the damaged files of a revision, its record and its list among them; by key."""
    found = of_record(storage, pointer)
    try:
        files = storage.files(pointer) or {}
    except Damaged as error:
        return [*found, Damage(files_key(pointer.revision), _problem(error))]
    return [*found, *digests.damages(storage.objects, files, thorough=thorough)]


def recorded(pointer: Pointer) -> bool:
    """Return whether the digests of a revision's files were recorded, as they are since a version of this program."""
    return bool(pointer.files)


def of_others(storage: Storage, published: Pointer) -> dict[int, list[Damage]]:
    """Return the damaged files of the other kept revisions, by number.

    Files shared with the published revision are not read again.
    """
    own = _files(storage, published)
    found = {
        number: [Damage(revision_key(number), message.split(": ", 1)[-1])]
        for number, message in storage.unreadable().items()
        if number != published.revision
    }
    looked_at: dict[str, Damage | None] = {}
    for one in storage.revisions():
        if one.revision == published.revision:
            continue
        damages = of_record(storage, one)
        try:
            files = storage.files(one) or {}
        except Damaged as error:
            files, damages = {}, [*damages, Damage(files_key(one.revision), _problem(error))]
        fresh = {key: digest for key, digest in files.items() if key not in own and key not in looked_at}
        bad = {damage.key: damage for damage in digests.damages(storage.objects, fresh, thorough=True)}
        looked_at |= {key: bad.get(key) for key in fresh}
        damages += [damage for key in files if (damage := looked_at.get(key)) is not None]
        if damages:
            found[one.revision] = damages
    return found


def of_the_rest(storage: Storage) -> list[Damage]:
    """Return the damaged files of the cache and of kept evaluations; by key."""
    return [*health.cache_damages(storage.objects, thorough=True), *_evaluations(storage)]


def of_record(storage: Storage, pointer: Pointer) -> list[Damage]:
    """Return the problem with the record of a revision."""
    key = revision_key(pointer.revision)
    found = storage.objects.get(key)
    if found is None:
        return [Damage(key, "is missing")]
    try:
        record = decoded(storage.address, found[0], key)
    except Damaged as error:
        return [Damage(key, _problem(error))]
    same = all(
        getattr(record, name) == getattr(pointer, name)
        for name in ("generation", "revision", "chunks_version", "documents_version", "files")
    )
    return [] if same else [Damage(key, "says something else than the pointer")]


def _files(storage: Storage, pointer: Pointer) -> Mapping[str, FileDigest]:
    try:
        return storage.files(pointer) or {}
    except Damaged:
        return {}


def _evaluations(storage: Storage) -> list[Damage]:
    """Kept evaluations that are not what their names say: each ends in the beginning of its digest."""
    found = []
    for stat in storage.objects.stats(EVALUATIONS):
        data = storage.objects.get(stat.key) if stat.key.endswith(".json") else None
        if data is not None and not _is_evaluation(data[0], stat.key):
            found.append(Damage(stat.key, "has another content than when it was written"))
    return found


def _is_evaluation(data: bytes, key: str) -> bool:
    from indexes.evaluation.record import Record

    try:
        record = msgspec.json.decode(data, type=Record)
    except msgspec.MsgspecError:
        return False
    digest = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(record, id=""))).hexdigest()[:8]
    return record.id == key.removeprefix(EVALUATIONS).removesuffix(".json") and record.id.endswith(f"-{digest}")


def _problem(error: Damaged) -> str:
    """Return the problem with a file, from the message that names it."""
    return error.message.split(": ", 1)[-1].split(" ", 1)[-1]
