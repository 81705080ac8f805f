"""The inbox: events that were received and not yet built, in one SQLite file.

Invariants:
- What was acknowledged is on disk: a kill, at any time, loses nothing.
- A key waits once, however many events name it. An event that came before, or is older than what was built, adds
  nothing.
- A key leaves the inbox when a build has looked at it, unless a newer event came meanwhile; what cannot be built is set
  aside with the reason.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from flows.patterns import key_matches
from flows.service.events import Event

REMEMBERED: Final = 7 * 86_400.0  # seconds for which a delivered event, or what was built, is known
_GROUP: Final = 500  # requests that are written together
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS delivered (id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting (
  key TEXT PRIMARY KEY, sequencer TEXT NOT NULL, number INTEGER NOT NULL, first_at REAL NOT NULL,
  not_before REAL NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, aside INTEGER NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting_order ON waiting (aside, first_at);
CREATE TABLE IF NOT EXISTS built (key TEXT PRIMARY KEY, sequencer TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS noted (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class Waiting(NamedTuple):
    """A key that waits for a build.

    Attributes:
        number: of the last event that named it.
        attempts: builds that failed with it.
        first_at: when the first event came, in seconds since 1970.
        reason: of the last failure.
    """

    key: str
    sequencer: str
    number: int
    attempts: int
    first_at: float
    reason: str = ""


class Received(NamedTuple):
    """How many events of a request were new, and how many were known."""

    accepted: int
    duplicates: int


class InboxCounts(msgspec.Struct, frozen=True):
    """An inbox in figures.

    Attributes:
        waiting, set_aside: keys.
        oldest_seconds: since the first event of the key that waits longest; 0 where none does.
        received, duplicates: events since the inbox was made.
    """

    waiting: int
    set_aside: int
    oldest_seconds: float
    received: int
    duplicates: int


class Inbox:
    """Events that wait for a build. Any number of threads may share it.

    Args:
        path: of the SQLite file; made where there is none.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path: Final = path
        self.arrived: Final = threading.Event()
        """Set when an event came."""
        self._one: Final = threading.Lock()
        self._base = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._base.execute(f"PRAGMA {pragma}")
        self._base.executescript(_SCHEMA)
        self._number = 0
        self._requests: queue.SimpleQueue[tuple[Sequence[Event], Future[Received]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_groups, name="inbox", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Write what was handed over, and close the file."""
        self._requests.put(None)
        self._writer.join()
        with self._one:
            self._base.close()

    def add_soon(self, events: Sequence[Event]) -> Future[Received]:
        """Hand events over; the result comes once they are on disk. Requests are written in groups."""
        done: Future[Received] = Future()
        self._requests.put((events, done))
        return done

    def add(self, events: Sequence[Event]) -> Received:
        """Add events; return once they are on disk."""
        return self.add_soon(events).result()

    def take(self, limit: int, now: float | None = None) -> list[Waiting]:
        """Return the keys that have waited longest; they stay until :meth:`done`."""
        with self._one:
            rows = self._base.execute(
                "SELECT key, sequencer, number, attempts, first_at, reason FROM waiting"
                " WHERE aside = 0 AND not_before <= ? ORDER BY first_at, key LIMIT ?",
                (time.time() if now is None else now, limit),
            ).fetchall()
        return [Waiting(*row) for row in rows]

    def done(self, built: Iterable[Waiting]) -> None:
        """Let keys go that a build has looked at, unless a newer event came since they were taken."""
        now = time.time()
        with self._changing() as base:
            for one in built:
                base.execute("DELETE FROM waiting WHERE key = ? AND number = ?", (one.key, one.number))
                if one.sequencer:
                    base.execute("INSERT OR REPLACE INTO built VALUES (?, ?, ?)", (one.key, one.sequencer, now))

    def retry_later(self, taken: Iterable[Waiting], reason: str, seconds: float, *, counted: bool = True) -> None:
        """Have keys wait for a while.

        Args:
            counted: whether this was a failure of these keys.
        """
        until = time.time() + seconds
        with self._changing() as base:
            base.executemany(
                "UPDATE waiting SET not_before = ?, attempts = attempts + ?, reason = ? WHERE key = ?",
                [(until, int(counted), reason, one.key) for one in taken],
            )

    def set_aside(self, taken: Iterable[Waiting], reason: str) -> None:
        """Keep keys that cannot be built, with the reason; a newer event brings them back."""
        with self._changing() as base:
            base.executemany(
                "UPDATE waiting SET aside = 1, reason = ? WHERE key = ? AND number = ?",
                [(reason, one.key, one.number) for one in taken],
            )

    def aside(self) -> list[Waiting]:
        """Return the keys that were set aside, with their reasons."""
        with self._one:
            rows = self._base.execute(
                "SELECT key, sequencer, number, attempts, first_at, reason FROM waiting WHERE aside = 1 ORDER BY key"
            ).fetchall()
        return [Waiting(*row) for row in rows]

    def retry(self, keys: Sequence[str] | None = None) -> int:
        """Put keys back that were set aside, all of them by default; return how many."""
        which = "" if keys is None else " AND key = ?"
        change = f"UPDATE waiting SET aside = 0, attempts = 0, not_before = 0 WHERE aside = 1{which}"
        given: list[tuple[str, ...]] = [()] if keys is None else [(key,) for key in keys]
        with self._changing() as base:
            count = sum(base.execute(change, one).rowcount for one in given)
        self.arrived.set()
        return count

    def erase(self, patterns: Sequence[str]) -> None:
        """Remove every trace of the keys that equal or match one of these patterns from the file."""
        with self._changing() as base:
            for table in ("waiting", "built"):
                found = [row[0] for row in base.execute(f"SELECT key FROM {table}")]
                meant = [key for key in found if any(key == one or key_matches(key, one) for one in patterns)]
                base.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in meant])
        with self._one:
            self._base.execute("VACUUM")
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def counts(self) -> InboxCounts:
        """Return the inbox in figures."""
        with self._one:
            waiting, oldest = self._base.execute(
                "SELECT count(*), min(first_at) FROM waiting WHERE aside = 0"
            ).fetchone()
            aside = self._base.execute("SELECT count(*) FROM waiting WHERE aside = 1").fetchone()[0]
            noted = dict(self._base.execute("SELECT name, value FROM noted").fetchall())
        return InboxCounts(
            waiting,
            aside,
            max(0.0, time.time() - oldest) if oldest is not None else 0.0,
            int(noted.get("received", 0)),
            int(noted.get("duplicates", 0)),
        )

    def noted(self, name: str) -> str:
        """Return what :meth:`note` kept under a name; empty where there is nothing."""
        with self._one:
            found = self._base.execute("SELECT value FROM noted WHERE name = ?", (name,)).fetchone()
        return str(found[0]) if found else ""

    def note(self, name: str, value: str) -> None:
        """Keep a value that outlives the process, such as when the last nightly build ended."""
        with self._changing() as base:
            base.execute("INSERT OR REPLACE INTO noted VALUES (?, ?)", (name, value))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for one transaction, which is on disk when this returns."""
        with self._one:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                if self._base.in_transaction:  # a full disk has ended it
                    self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    def _write_groups(self) -> None:
        """Write what is handed over, as much at a time as has come."""
        ending = False
        while not ending:
            group = [self._requests.get()]
            while len(group) < _GROUP and not self._requests.empty():
                group.append(self._requests.get())
            ending = None in group
            self._write_group([one for one in group if one is not None])

    def _write_group(self, group: Sequence[tuple[Sequence[Event], Future[Received]]]) -> None:
        if not group:
            return
        try:
            with self._changing() as base:
                last = base.execute("SELECT value FROM noted WHERE name = 'number'").fetchone()
                self._number = int(last[0]) if last else 0  # another process may have added some
                results = [self._add(base, events) for events, _ in group]
                self._count(base, results)
        except BaseException as error:  # a full disk: whoever sent them keeps them, for they are not acknowledged
            for _, done in group:
                done.set_exception(error)
            return
        for (_, done), result in zip(group, results, strict=True):
            done.set_result(result)
        self.arrived.set()

    def _add(self, base: sqlite3.Connection, events: Sequence[Event]) -> Received:
        accepted, now = 0, time.time()
        for event in events:
            if event.id:
                before = base.execute("SELECT 1 FROM delivered WHERE id = ?", (event.id,)).fetchone()
                if before:
                    continue
                base.execute("INSERT INTO delivered VALUES (?, ?)", (event.id, now))
            accepted += self._add_one(base, event, now)
        return Received(accepted, len(events) - accepted)

    def _add_one(self, base: sqlite3.Connection, event: Event, now: float) -> bool:
        """Add an event; return whether it says more than what waits, or was built, already."""
        known = [
            row[0]
            for table in ("waiting", "built")
            for row in base.execute(f"SELECT sequencer FROM {table} WHERE key = ?", (event.key,))
        ]
        if event.sequencer and any(one and not _later(event.sequencer, one) for one in known):
            return False
        self._number += 1
        base.execute(
            "INSERT INTO waiting (key, sequencer, number, first_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET sequencer = excluded.sequencer, number = excluded.number, attempts = 0, aside = 0, reason = '',"
            " not_before = 0, first_at = CASE WHEN aside THEN excluded.first_at ELSE first_at END",
            (event.key, event.sequencer, self._number, now),
        )
        return True

    def _count(self, base: sqlite3.Connection, results: Sequence[Received]) -> None:
        figures = {
            "received": sum(one.accepted + one.duplicates for one in results),
            "duplicates": sum(one.duplicates for one in results),
        }
        for name, more in figures.items():
            base.execute(
                "INSERT INTO noted VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + ?",
                (name, str(more), more),
            )
        base.execute("INSERT OR REPLACE INTO noted VALUES ('number', ?)", (str(self._number),))
        if self._number % 1_000 < len(results):
            cut = time.time() - REMEMBERED
            base.execute("DELETE FROM delivered WHERE at < ?", (cut,))
            base.execute("DELETE FROM built WHERE at < ?", (cut,))


def _later(one: str, other: str) -> bool:
    """Return whether a sequencer comes after another: as numbers, of which S3 leaves out leading zeros or not."""
    return int(one, 16) > int(other, 16)


def erase_from_inbox(path: Path, patterns: Sequence[str]) -> None:
    """Remove every trace of keys from an inbox, where there is one."""
    if path.exists():
        inbox = Inbox(path)
        try:
            inbox.erase(patterns)
        finally:
            inbox.close()
