"""The index that the settings name, and what it has published."""

from __future__ import annotations

from flows.settings import Settings
from indexes.storage import Pointer, Storage
from parsers.errors import StoreError


def open_storage(settings: Settings) -> Storage:
    """The index's place."""
    return Storage(settings.index, settings.cache_dir)


def published(settings: Settings) -> tuple[Storage, Pointer]:
    """The index and what it has published.

    Raises:
        StoreError: when it has published nothing.
    """
    storage = open_storage(settings)
    pointer = storage.pointer()
    if pointer is None:
        raise StoreError(
            f"index {settings.index}: nothing is published there",
            f"Build it: gristmill build SOURCE --index {settings.index}",
        )
    return storage, pointer


def following(settings: Settings, pointer: Pointer | None) -> Settings:
    """The settings, with the embedder and the ruler of the published index where they name none."""
    if pointer is None:
        return settings
    own = {"embedder": pointer.embedder, "ruler": pointer.ruler}
    return settings.model_copy(
        update={name: value for name, value in own.items() if name not in settings.model_fields_set}
    )
