"""The worker processes that parse, as the settings ask for them."""

from __future__ import annotations

import os
from typing import Final

from flows.settings import Settings
from parsers.document import Document
from parsers.isolation import Limits, ParserPool
from parsers.registry import media_type, read

MOST_PARSERS: Final = 8


def open_parsers(settings: Settings) -> ParserPool | None:
    """Return the processes that parse; None where the settings ask for none."""
    workers = settings.parse_workers
    if workers is None:
        workers = min(MOST_PARSERS, os.cpu_count() or 1)
    limits = Limits(settings.parse_bytes, settings.parse_seconds)
    return ParserPool(workers, limits) if workers else None


def parse_one(pool: ParserPool | None, key: str, data: bytes) -> Document:
    """Parse one file and wait for it; in this process without a pool."""
    return pool.read(key, data, media_type(key, data)).document if pool is not None else read(key, data)
