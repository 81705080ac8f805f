"""Looking after an index between builds: its revisions, going back, clearing away, checking, setting right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec

from chunker.chunk import document_id
from flows.place import published
from flows.repair import repair as repair
from flows.repair import verify as verify
from flows.settings import Settings
from indexes import retention
from indexes.generation import Draft, Model, published_catalog
from indexes.rollback import roll_back
from indexes.storage import Pointer, Storage
from indexes.store_errors import as_store_error
from parsers.errors import StoreError, UsageError


def revisions(settings: Settings) -> dict[str, Any]:
    """The kept revisions, as ``gristmill revisions --json`` prints them.

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
    return {"revision": made.revision, "generation": made.generation, "content_of": target.revision, "held": made.held}


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
    """Clear away what no kept revision needs and nobody may still want: see :mod:`indexes.retention`."""
    with _holding(settings) as (storage, _pointer):
        before = storage.size()
        grace = settings.grace
        gone = retention.retire(storage, keep=settings.keep_revisions, grace=grace)
        retention.clear_leftovers(storage)
        retention.prune(storage, grace=grace)
        forgotten = retention.sweep_memory(storage, grace=grace)
        return {
            "revisions_given_up": [one.revision for one in gone],
            "forgotten": forgotten,
            "bytes": {"before": before, "after": storage.size()},
        }


def purge(settings: Settings, key: str) -> dict[str, Any]:
    """Erase a document everywhere: from the published index, the kept revisions, the memory and the disk.

    All earlier revisions are given up: a file of theirs may hold it, though they do not. Nobody may read the index
    meanwhile; what readers elsewhere have cached of an index on S3 is theirs to clear.

    Raises:
        UsageError: when no kept revision holds a document of that key.
    """
    with _holding(settings) as (storage, pointer):
        names = {document_id(source, key) for source in pointer.sources}
        if not any(published_catalog(storage, one).named(names) for one in storage.revisions()):
            raise UsageError(
                f"index {storage.address}: no kept revision holds a document {key}",
                "Give its key as `gristmill search` shows it. What only the memory holds goes with `gristmill sweep`.",
            )
        draft = Draft(storage, pointer, Model.of(pointer))
        draft.rewrite_lexical()
        draft.remove(published_catalog(storage, pointer).named(names).values())
        draft.finish()
        draft.table.rewrite()
        draft.catalog.rewrite()
        made = _publish(storage, draft, pointer, made_by="purge", held=pointer.held, finished=True)
        others = [one for one in storage.revisions() if one.revision != made.revision]
        retention.give_up(storage, others)
        draft.table.drop_others()
        draft.catalog.drop_others()
        retention.clear_leftovers(storage)
        forgotten = retention.sweep_memory(storage, grace=timedelta(0), rewrite=True)
        records = [stat.key for stat in storage.objects.stats("evaluations/") if _names(storage, stat.key, key)]
        storage.objects.delete(records)
        return {
            "key": key,
            "revision": made.revision,
            "revisions_given_up": [one.revision for one in others],
            "forgotten": forgotten,
            "records_removed": len(records),
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


def _publish(
    storage: Storage,
    draft: Draft,
    like: Pointer,
    *,
    made_by: str,
    held: str,
    runtimes: dict[str, dict[str, Any]] | None = None,
    finished: bool = False,
) -> Pointer:
    """Finish a draft, check it, and publish it with what is said of another revision."""
    try:
        if not finished:
            draft.finish()
        known = like.runtimes if runtimes is None else runtimes
        checks = {"stores": draft.check_stores(), "fingerprint": draft.check_fingerprint(known)}
        return draft.publish(
            sources=like.sources, runtimes=known, checks=checks, made_by=made_by, held=held, rates=like.rates
        )
    finally:
        draft.close()


def _names(storage: Storage, record: str, key: str) -> bool:
    """Whether a kept record of an evaluation speaks of a document."""
    found = storage.objects.get(record)
    return found is not None and msgspec.json.encode(key) in found[0]


@contextmanager
def _holding(settings: Settings) -> Iterator[tuple[Storage, Pointer]]:
    """The index, held for one writer, and what it has published."""
    storage, _ = published(settings)
    with storage.lock():
        pointer = storage.pointer()
        if pointer is None:
            raise StoreError(f"index {settings.index}: nothing is published there", "Build it first.")
        try:
            yield storage, pointer
        except Exception as error:  # a full disk, or what S3 answered, shows as whatever the library at hand raises
            clear = as_store_error(storage.address, error)
            if clear is None:
                raise
            raise clear from error
