"""Reading all documents again by turns, whatever the clock does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from flows.build import rereading
from flows.build.rereading import DAY, Turns
from indexes.storage.storage import Storage

NAMES = [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(300)]


class Days:
    """A clock that is set by hand, in days."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, storage: Storage) -> None:
        self.now = 20_000.0
        self._storage = storage
        monkeypatch.setattr(rereading, "time", type("Clock", (), {"time": staticmethod(lambda: self.now * DAY)}))

    def built(self, days: int = 30, source: str = "default", *, broken_off: bool = False) -> list[str]:
        """The documents that a build reads again."""
        own = Turns(self._storage, source, days)
        due = [name for name in NAMES if own.is_due(name)]
        if not broken_off:
            own.finish()
        return due


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Days:
    storage = Storage(str(tmp_path / "index"))
    storage.create()
    return Days(monkeypatch, storage)


@pytest.mark.parametrize("every", [0.125, 1.0, 2.5, 7.0])
def test_every_document_is_read_once_in_the_days_that_are_set(days: Days, every: float) -> None:
    assert days.built() == []
    read: list[str] = []
    while days.now < 20_000 + 30 - 1e-6:
        days.now += every
        read += days.built()
    assert sorted(set(read)) == sorted(NAMES)
    assert len(read) <= len(NAMES) * (1 + every / 30) + 1
    assert days.built() == [], "a second build in the same day reads nothing again"


def test_a_build_that_is_broken_off_has_not_had_its_turn(days: Days) -> None:
    days.built()
    days.now += 1.5
    due = days.built(broken_off=True)
    assert due and days.built() == due and days.built() == []


def test_after_a_long_pause_everything_is_due_once(days: Days) -> None:
    days.built()
    days.now += 400
    assert days.built() == NAMES and days.built() == []


def test_a_clock_that_jumps_holds_no_turn_up(days: Days) -> None:
    days.built()
    days.now += 1_000
    days.built()
    days.now -= 1_000
    assert days.built() == [], "the turns begin anew"
    days.now += 31
    assert days.built() == NAMES


def test_sources_have_turns_of_their_own_and_none_may_be_asked_for(days: Days) -> None:
    days.built()
    days.now += 40
    assert days.built(source="other") == [] and days.built(days=0) == []
    assert days.built() == NAMES


def test_a_damaged_record_begins_anew(days: Days) -> None:
    days.built()
    days._storage.keep_turns(b"{broken")
    days.now += 40
    assert days.built() == []
    days.now += 40
    assert days.built() == NAMES


def test_nothing_is_written_where_nothing_was_due(days: Days) -> None:
    days.built()
    kept = days._storage.turns()
    days.now += 0.5
    days.built()
    assert days._storage.turns() == kept
