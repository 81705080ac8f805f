"""What an index has published, and which documents are not wholly in it."""

from __future__ import annotations

from typing import Any

import msgspec

from flows.opening import published
from flows.report import Failure, skipped_types
from flows.settings import Settings
from indexes.revisions.generation import published_catalog


def index_status(settings: Settings) -> dict[str, Any]:
    """Return the published revision in figures, as ``gristmill status --json`` prints it.

    Raises:
        StoreError: when nothing is published.
    """
    storage, pointer = published(settings)
    catalog = published_catalog(storage, pointer)
    failures = list(catalog.troubled(["key", "status", "reason", "attempts", "looked_at"]))
    skipped = [Failure(one["key"], one["status"], one["reason"]) for one in failures if one["status"] == "skipped"]
    values: dict[str, Any] = msgspec.to_builtins(pointer)
    return values | {
        "index": settings.index,
        "documents": catalog.statuses(),
        "skipped": msgspec.to_builtins(skipped_types(skipped)),
        "failures": sorted(failures, key=lambda one: str(one["key"])),
        "bytes": storage.size(),
    }
