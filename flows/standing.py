"""What an index has published, and which documents are not wholly in it."""

from __future__ import annotations

from typing import Any

import msgspec

from flows.place import published
from flows.report import Failure, skipped_types
from flows.settings import Settings
from indexes.generation import published_catalog


def standing(settings: Settings) -> dict[str, Any]:
    """The published revision in figures, as ``gristmill status --json`` prints it.

    Raises:
        StoreError: when nothing is published.
    """
    storage, pointer = published(settings)
    documents: dict[str, int] = {}
    failures = []
    skipped = []
    for row in published_catalog(storage, pointer).rows():
        documents[row.status] = documents.get(row.status, 0) + 1
        if row.status == "skipped":
            skipped.append(Failure(row.key, row.status, row.reason))
        if row.status != "ok":
            failures.append(
                {
                    "key": row.key,
                    "status": row.status,
                    "reason": row.reason,
                    "attempts": row.attempts,
                    "looked_at": row.looked_at,
                }
            )
    values: dict[str, Any] = msgspec.to_builtins(pointer)
    return values | {
        "index": settings.index,
        "documents": dict(sorted(documents.items())),
        "skipped": msgspec.to_builtins(skipped_types(skipped)),
        "failures": sorted(failures, key=lambda one: str(one["key"])),
        "bytes": storage.size(),
    }
