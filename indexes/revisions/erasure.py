"""Erasing documents: from what is published, all kept revisions, the cache, the records, and this machine's copies.

Invariants:
- What is to be erased is written down first and crossed out last: an erasure that is killed anywhere is finished by
  whoever holds the index next, before anything else.
- No clock and no catalog decides what goes. What stays is copied into new tables, and the folders of the old ones are
  removed with all that deleted rows, earlier versions and killed builds left in them.
- An index whose stores disagree is erased from all the same, and stays as damaged as it was.

Afterwards one revision is kept. Readers elsewhere clear their own copies; a bucket that keeps versions of objects keeps
those of the removed ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from chunker.chunk import document_id
from indexes.cache import health
from indexes.catalog import WAITING
from indexes.revisions import retention
from indexes.revisions.generation import FLUSH, Draft, IndexModel, published_catalog
from indexes.rows import schema
from indexes.storage.storage import Pointer, Storage, files_key, revision_key
from indexes.vectors import ChunkTable
from parsers.errors import GateRefused, StoreError, UsageError

INTENT: Final = "purge.json"
_PART: Final = "!/"  # stands between the key of a document and that of a part of it


class Named(msgspec.Struct, frozen=True):
    """A document that kept revisions name.

    Attributes:
        source, key, document_id: of the document.
        revisions: numbers of the kept revisions that name it.
    """

    source: str
    key: str
    document_id: str
    revisions: list[int]


class Erasure(msgspec.Struct, frozen=True):
    """What is to be erased.

    Attributes:
        asked: keys and patterns of keys as they were given.
        named: the documents of these keys that kept revisions name.
        document_ids: of these, and of the keys that nothing names.
    """

    asked: list[str]
    named: list[Named]
    document_ids: list[str]

    @property
    def nowhere(self) -> list[str]:
        """Keys and patterns for which no kept revision names a document."""
        return [one for one in self.asked if not any(matches(document.key, [one]) for document in self.named)]


class Erased(msgspec.Struct, frozen=True):
    """What an erasure did.

    Attributes:
        revision: the one that was published without the documents; 0 where nothing is published.
        given_up: numbers of the revisions that are kept no longer.
        forgotten: how many entries the cache forgot, by table.
        records: how many records of evaluations were removed.
    """

    revision: int
    given_up: list[int]
    forgotten: dict[str, int]
    records: int


def matches(key: str, asked: Iterable[str]) -> bool:
    """Whether a key, or that of the document it is a part of, is one of these or fits one of them as a pattern."""
    whole = key.split(_PART, 1)[0]
    return any(name == one or fnmatchcase(name, one) for one in asked for name in (key, whole))


def find(storage: Storage, pointer: Pointer | None, asked: Collection[str], source: str | None) -> Erasure:
    """Find what kept revisions hold under some keys or patterns.

    Args:
        pointer: what is published.
        source: name of the source that the documents are from; None where a key is in one source alone.

    Raises:
        UsageError: when several sources hold a key and none is named, or the index does not know that source.
    """
    sources = sorted(pointer.sources) if pointer is not None else []
    if source is not None and source not in sources:
        raise UsageError(
            f"index {storage.address} knows no source {source}", f"It knows: {', '.join(sources) or 'none'}."
        )
    named = [one for one in _named(storage, asked) if source in (None, one.source)]
    holders = sorted({one.source for one in named})
    if len(holders) > 1:
        first = next(one.key for one in named)
        raise UsageError(
            f"index {storage.address}: {', '.join(asked)} stands for documents of the sources {', '.join(holders)}, "
            f"such as {first}",
            f"Name the one that is meant: --source-name {holders[0]}. Nothing was erased.",
        )
    ids = {one.document_id for one in named}
    ids |= {document_id(name, key) for name in ([source] if source is not None else sources) for key in asked}
    return Erasure(list(asked), named, sorted(ids))


def _named(storage: Storage, asked: Collection[str]) -> list[Named]:
    found: dict[str, Named] = {}
    for pointer in storage.revisions():
        columns = published_catalog(storage, pointer).columns(["document_id", "source", "key"])
        for batch in columns.to_batches(FLUSH):
            for name, source, key in zip(*batch.to_pydict().values(), strict=True):
                if matches(key, asked):
                    found.setdefault(name, Named(source, key, name, [])).revisions.append(pointer.revision)
    return sorted(found.values(), key=lambda one: (one.key, one.source))


def erase(storage: Storage, erasure: Erasure) -> Erased:
    """Erase documents. The caller holds the index, and nobody may read it meanwhile.

    Raises:
        StoreError: when the published revision cannot be read.
    """
    storage.objects.put(INTENT, msgspec.json.encode(erasure))
    pointer = storage.pointer()
    if pointer is None and storage.revisions():
        raise StoreError(
            f"index {storage.address}: there are revisions, and no pointer.json says which is published",
            "Restore it from the newest file in revisions/; the next build or sweep goes on erasing.",
        )
    records = _drop_records(storage, erasure)
    made = _publish_without(storage, pointer, erasure.document_ids) if pointer is not None else None
    given_up = [one for one in storage.revisions() if made is None or one.revision != made.revision]
    retention.give_up(storage, given_up)
    _drop_unpublished(storage, made)
    forgotten = retention.sweep_memory(storage, grace=timedelta(0), rewrite=True)
    health.record_cache_digests(storage.objects)
    storage.drop_copies()
    storage.objects.delete([INTENT])
    return Erased(made.revision if made is not None else 0, [one.revision for one in given_up], forgotten, records)


def resume(storage: Storage) -> Erasure | None:
    """Finish an erasure that was killed, and return what it erased; None where there is none."""
    found = storage.objects.get(INTENT)
    if found is None:
        return None
    try:
        erasure = msgspec.json.decode(found[0], type=Erasure)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"index {storage.address}: {INTENT} does not say what was to be erased: {error}",
            "Remove that file and erase again: gristmill sweep --purge KEY",
        ) from error
    erase(storage, erasure)
    return erasure


def _publish_without(storage: Storage, pointer: Pointer, document_ids: Collection[str]) -> Pointer:
    """Copy what stays of the published revision into a new generation, and publish that."""
    gone = pa.array(sorted(document_ids), pa.string())
    draft = Draft(storage, pointer, IndexModel.of(pointer), anew=True)
    try:
        stays = (row for row in published_catalog(storage, pointer).rows() if row.document_id not in set(document_ids))
        while rows := list(islice(stays, WAITING)):
            draft.catalog.put(rows)
        table = ChunkTable.open(storage.tables(pointer.generation), pointer.chunks_version)
        draft.append(
            batch.filter(pc.invert(pc.is_in(batch["document_id"], gone)))
            for batch in table.rows(schema(pointer.dimension).names, FLUSH)
        )
        draft.finish()
        return draft.publish(
            sources=pointer.sources,
            runtimes=pointer.runtimes,
            checks={"stores": _checked(draft)},
            made_by="purge",
            held=pointer.held,
            rates=pointer.rates,
        )
    finally:
        draft.close()


def _checked(draft: Draft) -> str:
    try:
        return draft.check_stores()
    except GateRefused as refusal:  # it was so before, and is no reason to keep what is to be erased
        return f"damaged: {refusal.message}"


def _drop_unpublished(storage: Storage, made: Pointer | None) -> None:
    """Remove what no kept revision is made of.

    These are records, generations, folders and temporary files of killed builds, and lists of files of other revisions.
    """
    kept = {one.revision for one in storage.revisions()} if made is not None else set()
    stays = {key(number) for key in (revision_key, files_key) for number in kept}
    there = [stat.key for place in ("revisions/", "files/") for stat in storage.objects.stats(place)]
    storage.objects.delete([key for key in there if key not in stays])
    retention.clear_leftovers(storage)


def _drop_records(storage: Storage, erasure: Erasure) -> int:
    """Remove the records of evaluations that name one of the documents, and so may quote it."""
    exact = {*(one.key for one in erasure.named), *erasure.document_ids}
    found = []
    for stat in storage.objects.stats("evaluations/"):
        data = storage.objects.get(stat.key)
        if data is not None and any(text in exact or matches(text, erasure.asked) for text in _texts(data[0])):
            found.append(stat.key)
    storage.objects.delete(found)
    return len(found)


def _texts(data: bytes) -> Iterator[str]:
    """Yield all texts in a record; the whole of one that is not JSON."""
    try:
        waiting: list[Any] = [msgspec.json.decode(data)]
    except msgspec.MsgspecError:
        waiting = data.decode(errors="replace").split()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
