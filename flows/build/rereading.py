"""Which documents a build reads again although their versions did not change: all of them by turns.

A version tells of a change, unless a file system keeps no change time, or a store answers with an old one. So each day
the builds read another part of the documents again, all of them within ``reread_days``.

Invariants:
- A turn is over when a build that read its documents has published, or found nothing changed.
- Builds that come rarely catch up; builds that come often read a document once in ``reread_days``.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from indexes.storage import seal
from indexes.storage.storage import Storage

DAY: Final = 86_400.0  # seconds


class _State(msgspec.Struct, frozen=True):
    """The last turn that is over.

    Attributes:
        at: when it began, in seconds since 1970.
        began: when the first turn did; 0 where an earlier version of the program did not note it.
    """

    turn: int
    at: float
    began: float = 0.0


class _Turns(msgspec.Struct, frozen=True):
    """The turns of each source, and how many of its documents builds of named keys removed since it was listed."""

    sources: dict[str, _State]
    removed: dict[str, int] = {}
    digest: str = ""


class Turns:
    """The turns of one source.

    Args:
        storage: of the index, whose cache keeps the last turn.
        source: the source's name.
        days: within which every document is read again; 0 for never.
    """

    def __init__(self, storage: Storage, source: str, days: int) -> None:
        self._storage = storage
        self._source = source
        self._days = days
        self._now = now = time.time()
        self._kept = _read(storage)
        state = self._kept.sources.get(source)
        # A time ahead of this clock was written under another one, and would hold up all turns.
        known = state is not None and state.at <= now + DAY
        self._state: Final = state if known and state is not None else None
        self._over = int(max(0.0, now - self._state.at) // DAY) if self._state is not None and days else 0

    @property
    def begun(self) -> bool:
        """Whether it is known when documents were last read."""
        return self._state is not None

    def is_due(self, document_id: str) -> bool:
        """Return whether a document is to be read again by this build."""
        if self._state is None or not self._over:
            return False
        turn = (int(document_id[:8], 16) - self._state.turn - 1) % self._days
        return turn < self._over

    @property
    def removed(self) -> int:
        """Documents that builds of named keys removed since the last listing."""
        return self._kept.removed.get(self._source, 0)

    @property
    def oldest_days(self) -> float:
        """Days since that document was read which was read longest ago, once this build is over; at most these."""
        if self._state is None:
            return 0.0
        longest = self._now - self._state.began
        behind = 0 if self._over >= self._days else self._days - 1
        by_turns = self._now - (self._state.at + self._over * DAY) + behind * DAY
        return round(max(0.0, min(longest, by_turns) if self._days else longest) / DAY, 1)

    def finish(self) -> None:
        """Note that this build has listed the source and read what was due; write nothing where nothing is new."""
        sources = dict(self._kept.sources)
        if self._days and (self._state is None or self._over):
            before = self._state or _State(0, self._now, self._now)
            turn = (before.turn + self._over) % self._days
            sources[self._source] = _State(turn, before.at + self._over * DAY, before.began)
        removed = {name: count for name, count in self._kept.removed.items() if name != self._source}
        self._keep(_Turns(sources, removed))

    def finish_named(self, removed: int) -> None:
        """Note that a build of named keys removed so many documents."""
        if removed:
            self._keep(_Turns(self._kept.sources, self._kept.removed | {self._source: self.removed + removed}))

    def _keep(self, turns: _Turns) -> None:
        if turns != msgspec.structs.replace(self._kept, digest=""):
            encoded = msgspec.json.encode(turns)
            self._storage.keep_turns(seal.seal(msgspec.json.format(encoded, indent=2) + b"\n"))


def _read(storage: Storage) -> _Turns:
    data = storage.turns()
    if data is None or seal.broken(data):  # where it is damaged the turns begin anew
        return _Turns({})
    return msgspec.json.decode(data, type=_Turns)
