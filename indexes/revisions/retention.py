"""Retention: drop old revisions, old table versions, and cache entries that no kept revision uses.

Invariants:
- What a kept revision names is never removed, whatever any clock says: the versions that stay are named by number.
- A clock only ever makes something stay longer: what nothing names goes once it is older than a grace time, for readers
  that still hold it and for builds that will go on from it; a time later than now is no age at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from indexes.cache.store import BytesCache, VectorCache, marks, vector_key, version_key
from indexes.catalog import Catalog
from indexes.revisions.generation import published_catalog
from indexes.storage import layout, tables
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import WIDE_SCAN_ROWS, ChunkTable
from parsers.errors import StoreError

CLOCKS_DIFFER: Final = timedelta(minutes=5)  # between this machine and a store, without either being wrong


def retire(storage: Storage, *, keep: int, grace: timedelta) -> list[Pointer]:
    """Keep the last revisions and those that readers may still hold; give up the others, and return them.

    Args:
        keep: how many of the last revisions stay, the published one among them.
        grace: a revision stays for so long after the next one was made.
    """
    revisions = storage.revisions()
    now = datetime.now(UTC)
    times = [datetime.fromisoformat(one.created) for one in revisions]
    gone = []
    for position, one in enumerate(revisions[:-keep]):
        superseded = _superseded(times, position, now)
        if superseded is not None and superseded < now - grace:
            gone.append(one)
    give_up(storage, gone)
    return gone


def _superseded(times: Sequence[datetime], position: int, now: datetime) -> datetime | None:
    """When readers left a revision at the latest; None where no clock tells.

    The next one's time may lie before that of an earlier one, by a clock that was set back, so the latest of both
    counts. It may be still to come, by a clock that was ahead: then the first later revision that has a time in the
    past says by when.
    """
    next_ones = [time for time in times[position + 1 :] if time <= now]
    earlier = [time for time in times[: position + 1] if time <= now]
    return max([*earlier, next_ones[0]]) if next_ones else None


def give_up(storage: Storage, gone: Sequence[Pointer]) -> None:
    """Keep these revisions no longer, nor generations of which none is left."""
    for pointer in gone:
        storage.forget_revision(pointer)
    left = {pointer.generation for pointer in storage.revisions()}
    for generation in {pointer.generation for pointer in gone} - left:
        storage.discard_generation(generation)


def prune(storage: Storage) -> None:
    """Drop the versions of both tables that no kept revision names, and what killed builds left in their folders.

    Raises:
        StoreError: when a version that a kept revision names is not there, or the record of a revision is damaged;
            nothing was removed from that table.
    """
    unreadable = storage.unreadable()
    if unreadable:
        raise StoreError(
            f"index {storage.address}: what the revisions {', '.join(map(str, sorted(unreadable)))} need is not known: "
            "their records are damaged",
            "Nothing was removed. `gristmill repair` mends or gives them up.",
        )
    kept: dict[str, list[Pointer]] = {}
    for pointer in storage.revisions():
        kept.setdefault(pointer.generation, []).append(pointer)
    for generation, pointers in kept.items():
        db, folder = storage.tables(generation), f"generations/{generation}"
        ChunkTable.open(db).prune({one.chunks_version for one in pointers}, storage.objects, folder)
        Catalog(db).prune({one.documents_version for one in pointers}, storage.objects, folder)


def leftovers(storage: Storage) -> dict[str, list[int]]:
    """Return the drafts that killed builds left, by generation; of a generation that no kept revision uses, all."""
    kept: dict[str, list[int]] = {}
    for pointer in storage.revisions():
        kept.setdefault(pointer.generation, []).append(pointer.revision)
    found = {name: storage.drafts(name, kept.get(name, [])) for name in sorted(storage.generations())}
    return {name: drafts for name, drafts in found.items() if drafts or name not in kept}


def clear_leftovers(storage: Storage) -> None:
    """Remove the leftovers of killed builds."""
    kept = {pointer.generation for pointer in storage.revisions()}
    for generation, drafts in leftovers(storage).items():
        if generation not in kept:
            storage.discard_generation(generation)
        for revision in drafts:
            storage.drop_lexical(generation, revision)
    storage.scratch()


def _marks_of(storage: Storage, revisions: Iterable[Pointer]) -> npt.NDArray[np.uint64]:
    """Return the marks of every cache entry that these revisions were made of."""
    found = [np.empty(0, np.uint64)]
    for pointer in revisions:
        found.append(np.unique(np.concatenate([np.empty(0, np.uint64), *_marked(storage, pointer)])))
    return np.unique(np.concatenate(found))


def _marked(storage: Storage, pointer: Pointer) -> Iterator[npt.NDArray[np.uint64]]:
    documents = published_catalog(storage, pointer).columns(["document_id", "version", "document", "chunks", "notes"])
    for batch in documents.to_batches(WIDE_SCAN_ROWS):
        for name in ("document", "chunks"):
            yield marks([key for key in batch[name].to_pylist() if key])
        yield marks(pc.list_flatten(batch["notes"]).to_pylist())
        pairs = zip(batch["document_id"].to_pylist(), batch["version"].to_pylist(), strict=True)
        yield marks([version_key(document, version) for document, version in pairs])
    table = ChunkTable.open(storage.tables(pointer.generation), pointer.chunks_version)
    for rows in table.rows(["text_digest", "provenance"], WIDE_SCAN_ROWS):
        digests = rows.filter(pc.not_equal(rows["provenance"], ""))["text_digest"].to_pylist()
        yield marks([vector_key(digest, pointer.embedder_fingerprint) for digest in digests])


def sweep_memory(storage: Storage, *, grace: timedelta, rewrite: bool = False) -> dict[str, int]:
    """Forget what no kept revision was made of, and the probes of models that none has; how many, by table.

    Args:
        grace: what is younger stays, for a build that was broken off and will go on from it.
        rewrite: have what was forgotten gone from the disk at once; nobody may read the cache meanwhile.
    """
    revisions = storage.revisions()
    keep = _marks_of(storage, revisions)
    now = datetime.now(UTC)
    before = (now - grace).timestamp() + 1  # entries are dated by whole seconds
    db = storage.cache()
    tables.finish_copies(db)
    found: dict[str, int] = {}
    for name in sorted(tables.table_names(db) - {layout.RUNTIMES_TABLE}):
        dimension = layout.dimension_of(name)
        memo = VectorCache(db, dimension) if dimension is not None else BytesCache(db, name)
        found[name] = memo.sweep(keep, before)
        if rewrite:
            memo.rewrite()
        else:
            memo.prune(max(grace, timedelta(seconds=1)))
    found["probes"] = _sweep_probes(storage, revisions, now, grace)
    return found


def _sweep_probes(storage: Storage, revisions: Iterable[Pointer], now: datetime, grace: timedelta) -> int:
    """Drop what runtimes prove themselves by for models of which no kept revision is."""
    kept = {f"probes/{pointer.embedder_fingerprint}" for pointer in revisions}
    others = [stat for stat in storage.objects.stats("probes/") if stat.key not in kept]
    for stat in others:
        if stat.modified > now + CLOCKS_DIFFER and (found := storage.objects.get(stat.key)) is not None:
            storage.objects.put(stat.key, found[0])  # written by a clock that was ahead: it ages from today on
    left = [stat.key for stat in others if stat.modified < now - grace]
    storage.objects.delete(left)
    return len(left)
