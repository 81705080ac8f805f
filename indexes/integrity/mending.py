"""Mending what names revisions: the pointer, the records, and the lists of files; giving up what cannot be mended.

Invariants:
- A pointer is made again only from a record that is whole.
- A revision is given up only where a file of it is damaged and it is not the published one.
"""

from __future__ import annotations

from contextlib import suppress

from indexes.integrity import damage
from indexes.revisions import retention
from indexes.storage.pointer import Damaged, encoded
from indexes.storage.storage import POINTER, Pointer, Storage, files_key, revision_key
from parsers.errors import StoreError


def mend_pointer(storage: Storage) -> Pointer | None:
    """Point readers to the newest whole revision, where the pointer is lost or damaged; None where it is not.

    Raises:
        StoreError: when there is no record to make it from.
    """
    try:
        storage.pointer()
        return None
    except Damaged as error:
        found = newest(storage)
        if found is None:
            raise StoreError(
                f"{error.message}, and no record of a revision can be read",
                "Build anew: remove `generations`, `revisions`, `files` and `pointer.json` below the index and keep "
                "`memory`, then run `gristmill build`: nothing that is cached is computed again.",
            ) from error
        storage.objects.put(POINTER, encoded(found))
        return found


def newest(storage: Storage) -> Pointer | None:
    """Return the newest revision whose record and files are whole; where none is, the newest with a record."""
    kept = sorted((one for _, one in storage.records() if isinstance(one, Pointer)), key=lambda one: -one.revision)
    for one in kept:
        with suppress(StoreError):
            storage.check(one)
            return one
    return kept[0] if kept else None


def mend_records(storage: Storage, published: Pointer) -> list[int]:
    """Write the published revision's record again where it is damaged; give up older revisions with damaged files.

    Returns:
        The numbers of the revisions that were given up.
    """
    if damage.of_record(storage, published):
        storage.objects.put(revision_key(published.revision), encoded(published))
    others = damage.of_others(storage, published)
    retention.give_up(storage, [one for one in storage.revisions() if one.revision in others])
    storage.objects.delete([key(number) for number in others for key in (revision_key, files_key)])
    return sorted(others)
