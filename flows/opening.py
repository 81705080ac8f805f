"""The index that the settings name, and what it has published."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from flows.settings import Settings
from indexes.storage.errors import as_store_error
from indexes.storage.storage import Pointer, Storage
from parsers.errors import StoreError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def naming_the_place(
    function: Callable[Concatenate[Settings, _Arguments], _Result],
) -> Callable[Concatenate[Settings, _Arguments], _Result]:
    """Have a function of the settings say which index failed, where LanceDB only says how."""

    @functools.wraps(function)
    def run(settings: Settings, /, *positional: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return function(settings, *positional, **named)
        except Exception as error:  # whatever the library at hand raises of a store that is gone
            clear = as_store_error(settings.index, error)
            if clear is None:
                raise
            raise clear from error

    return run


def open_storage(settings: Settings) -> Storage:
    """Return the index's place."""
    return Storage(settings.index, settings.cache_dir)


def published(settings: Settings) -> tuple[Storage, Pointer]:
    """Return the index and what it has published.

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
    """Return the settings, with the embedder and the ruler of the published index where they name none."""
    if pointer is None:
        return settings
    own = {"embedder": pointer.embedder, "ruler": pointer.ruler}
    return settings.model_copy(
        update={name: value for name, value in own.items() if name not in settings.model_fields_set}
    )
