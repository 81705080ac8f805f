"""Looking after an index between builds: its revisions, going back, clearing away, checking, setting right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from flows.maintenance.repair import repair_index as repair_index
from flows.maintenance.repair import verify_index as verify_index
from flows.opening import open_storage, published
from flows.settings import Settings, default_cache
from indexes.revisions import erasure, retention
from indexes.revisions.generation import Draft, published_catalog
from indexes.revisions.rollback import roll_back
from indexes.storage.errors import as_store_error
from indexes.storage.storage import Pointer, Storage
from parsers.errors import StoreError, UsageError


def revisions(settings: Settings) -> dict[str, Any]:
    """Return the kept revisions, as ``gristmill revisions --json`` prints them.

    Raises:
        StoreError: when nothing is published.
    """
    storage, pointer = published(settings)
    return {
        "index": settings.index,
        "published": pointer.revision,
        "held": pointer.held,
        "revisions": [msgspec.to_builtins(one) for one in storage.revisions()],
        "damaged": [{"revision": number, "problem": what} for number, what in sorted(storage.unreadable().items())],
    }


def rollback(settings: Settings, to: int | None) -> dict[str, Any]:
    """Go back to a kept revision, and hold publishing until it is released.

    Args:
        to: its number; None for the one before the published.

    Returns:
        ``revision``, ``generation``, ``content_of``, ``held``, and ``deleted_since``: the keys of the documents that
        the old revision held and that are deleted today, which readers do not see.

    Raises:
        UsageError: when that revision is not kept, or is the published one.
        StoreError: when nothing is published, or the revision cannot be opened.
    """
    with _holding(settings) as (storage, pointer):
        target = _target(storage, pointer, to)
        draft = roll_back(storage, pointer, target)
        held = f"gone back from revision {pointer.revision} to revision {target.revision}"
        like = msgspec.structs.replace(target, sources=pointer.sources, rates=pointer.rates)
        made = _publish(storage, draft, like, made_by="rollback", held=held)
        deleted = _keys(storage, target).items() - _keys(storage, made).items()
    return {
        "revision": made.revision,
        "generation": made.generation,
        "content_of": target.revision,
        "held": made.held,
        "deleted_since": sorted(key for _, key in deleted),
    }


def _keys(storage: Storage, pointer: Pointer) -> dict[str, str]:
    """Return the keys of a revision's documents by document id."""
    columns = published_catalog(storage, pointer).columns(["document_id", "key"])
    return dict(zip(columns["document_id"].to_pylist(), columns["key"].to_pylist(), strict=True))


def release(settings: Settings) -> dict[str, Any]:
    """Let builds publish again.

    Raises:
        UsageError: when nothing is held.
    """
    with _holding(settings) as (storage, pointer):
        if not pointer.held:
            raise UsageError(f"index {storage.address}: publishing is not held", "There is nothing to release.")
        storage.publish(msgspec.structs.replace(pointer, held=""))
    return {"revision": pointer.revision, "generation": pointer.generation, "held": ""}


def sweep(settings: Settings) -> dict[str, Any]:
    """Clear away what no kept revision needs and nobody may still want: see :mod:`indexes.revisions.retention`."""
    with _holding(settings) as (storage, _pointer):
        before = storage.size()
        grace = settings.grace
        gone = retention.retire(storage, keep=settings.keep_revisions, grace=grace)
        retention.clear_leftovers(storage)
        retention.prune(storage)
        forgotten = retention.sweep_memory(storage, grace=grace)
        return {
            "revisions_given_up": [one.revision for one in gone],
            "forgotten": forgotten,
            "bytes": {"before": before, "after": storage.size()},
        }


def purge(settings: Settings, asked: Sequence[str], source: str | None = None) -> dict[str, Any]:
    """Erase documents everywhere: from the published index, the kept revisions, the cache, the records and the disk.

    Everything is rewritten, dropped and cleared whether or not a kept revision names the documents: what only earlier
    revisions or killed builds held goes too. All earlier revisions are given up. Nobody may read the index meanwhile;
    what readers elsewhere have cached of an index on S3 is theirs to clear.

    Args:
        asked: keys, or patterns such as ``internal/*``.
        source: name of the source that they are from, where several hold such a key.

    Raises:
        UsageError: when several sources hold a key and none is named, or the index does not know that source.
    """
    storage = open_storage(settings)
    if not any(next(iter(storage.objects.stats(place)), None) for place in ("generations/", "memory/")):
        raise StoreError(f"index {settings.index}: nothing is kept there", "Name the index with --index.")
    with storage.lock(), _clearly(storage):
        resumed = erasure.resume(storage)
        meant = erasure.find(storage, storage.pointer(), asked, source)
        done = erasure.erase(storage, meant)
    open_storage(settings.model_copy(update={"cache_dir": default_cache()})).drop_copies()
    return {
        "key": ", ".join(asked),
        "keys": list(asked),
        "found": [msgspec.to_builtins(one) for one in meant.named],
        "nowhere": meant.nowhere,
        "resumed": resumed.asked if resumed is not None else [],
        "revision": done.revision,
        "revisions_given_up": done.given_up,
        "forgotten": done.forgotten,
        "records_removed": done.records,
    }


def _target(storage: Storage, pointer: Pointer, to: int | None) -> Pointer:
    kept = {one.revision: one for one in storage.revisions() if one.revision != pointer.revision}
    number = max(kept, default=0) if to is None else to
    if number not in kept:
        names = ", ".join(str(one) for one in sorted(kept)) or "none"
        raise UsageError(
            f"index {storage.address}: there is no revision {number or 'before this one'} to go back to",
            f"Those that are kept besides the published one: {names}.",
        )
    return kept[number]


def _publish(storage: Storage, draft: Draft, like: Pointer, *, made_by: str, held: str) -> Pointer:
    """Finish a draft, compare all of it, and publish it with what is said of another revision."""
    try:
        draft.compare_everything()
        draft.finish()
        checks = {"stores": draft.check_stores(), "fingerprint": draft.check_fingerprint(like.runtimes)}
        return draft.publish(
            sources=like.sources, runtimes=like.runtimes, checks=checks, made_by=made_by, held=held, rates=like.rates
        )
    finally:
        draft.close()


@contextmanager
def _holding(settings: Settings) -> Iterator[tuple[Storage, Pointer]]:
    """Hold the index for one writer; finish an erasure that was killed first."""
    storage, _ = published(settings)
    with storage.lock(), _clearly(storage):
        erasure.resume(storage)
        pointer = storage.pointer()
        if pointer is None:
            raise StoreError(f"index {settings.index}: nothing is published there", "Build it first.")
        yield storage, pointer


@contextmanager
def _clearly(storage: Storage) -> Iterator[None]:
    """Raise the clear error behind one that a store raised for want of space or rights, if it is one."""
    try:
        yield
    except Exception as error:  # a full disk, or what S3 answered, shows as whatever the library at hand raises
        clear = as_store_error(storage.address, error)
        if clear is None:
            raise
        raise clear from error
