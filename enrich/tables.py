"""What all LanceDB tables have in common: their pieces, their versions, and what is left of deleted rows.

Kept here: no version is pruned unless the caller names the time before which versions may go.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from parsers.errors import StoreError

COMPACT_AT: Final = 40  # pieces above which they are merged: each write adds one, and every scan opens all of them
# LanceDB takes the age of what may be pruned, not a time, and counts it from when it gets there.
PRUNE_MARGIN: Final = timedelta(hours=1)
_FOREVER: Final = timedelta(days=36_500)  # optimize() prunes what is older than 7 days unless told otherwise


def pieces(table: Any) -> int:
    """In how many pieces the rows of a table lie."""
    return int(table.stats()["fragment_stats"]["num_fragments"])


def compact(table: Any, at: int = COMPACT_AT) -> None:
    """Merge the pieces of a table where there are more than so many; older versions keep theirs."""
    if pieces(table) > at:
        table.optimize(cleanup_older_than=_FOREVER)


def version_time(table: Any, version: int) -> datetime:
    """When a version of a table was written.

    Raises:
        StoreError: when there is no such version.
    """
    for entry in table.list_versions():
        if entry["version"] == version:
            written: datetime = entry["timestamp"]
            return written.astimezone(UTC)  # LanceDB gives local time without a zone
    raise StoreError(f"version {version} of the table {table.name} is not there", "Read a kept revision.")


def prune(table: Any, before: datetime) -> None:
    """Drop the versions of a table written before a time, except its head, and what killed writers left in its folder.

    Nobody may write meanwhile.

    Raises:
        ValueError: when that time is still to come.
    """
    if before >= datetime.now(UTC):
        raise ValueError(f"versions may be pruned up to a past time, got {before}")
    table.optimize(cleanup_older_than=_FOREVER)  # what takes long first, so that the age is counted from now
    table.optimize(cleanup_older_than=datetime.now(UTC) - before + PRUNE_MARGIN, delete_unverified=True)


def rewrite(db: Any, name: str, table: Any) -> Any:
    """Write every row of a table anew, as a version that shares no file with the others, and return the table.

    A deleted row stays in its file: it is gone from the disk after this and :func:`drop_others`.
    """
    if not table.count_rows():
        return table
    rows = table.search().limit(None).to_batches(1_024)
    return db.create_table(name, data=rows, schema=table.schema, mode="overwrite")


def drop_others(table: Any) -> None:
    """Drop all versions of a table but its head, with their files. Nobody may read or write meanwhile."""
    table.optimize(cleanup_older_than=timedelta(milliseconds=1), delete_unverified=True)
