"""What is kept stays, whatever any clock says: builds, retiring, sweeping, under clocks that jump both ways."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from revisions import held, sweep, write

from indexes.revisions import generation, retention
from indexes.storage import tables
from indexes.storage.storage import Pointer, Storage
from parsers.errors import StoreError

DAY = 86_400.0


class Clock:
    """The clock of this process, some seconds off the real one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.off = 0.0
        clock, real = self, time.time

        class Moved(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.fromtimestamp(real() + clock.off, tz)

        patch.setattr(generation, "datetime", Moved)
        patch.setattr(retention, "datetime", Moved)
        patch.setattr(time, "time", lambda: real() + self.off)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    place = Storage(str(tmp_path / "index"))
    place.create()
    return place


steps = st.lists(
    st.tuples(
        st.sampled_from(["build", "sweep"]),
        st.sampled_from([0.0, -3650 * DAY, -2 * DAY, -60.0, 60.0, 2 * DAY, 3650 * DAY]),
        st.integers(1, 3),
        st.sampled_from([0.0, 24.0]),
    ),
    min_size=2,
    max_size=6,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_kept_revisions_hold_what_they_held(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, float, int, float]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        storage = Storage(str(tmp_path_factory.mktemp("index") / "index"))
        storage.create()
        meant: dict[int, dict[str, str]] = {}
        texts: dict[str, str] = {}
        for number, (do, off, keep, grace) in enumerate([("build", 0.0, 1, 0.0), *steps]):
            clock.off = off
            if do == "build":
                texts |= {"same.md": "stays", f"{number % 3}.md": f"text {number}"}
                meant[write(storage, texts).revision] = dict(texts)
            else:
                gone = sweep(storage, keep, timedelta(hours=grace))
                assert not set(gone) & set(sorted(meant)[-keep:])
                for one in gone:
                    del meant[one]
            kept = {one.revision: held(storage, one) for one in storage.revisions()}
            assert kept == meant


def test_a_revision_ages_from_the_latest_time_that_is_known(storage: Storage, clock: Clock) -> None:
    """What readers left a minute ago is not given up because the clock of the next builder was set back."""
    write(storage, {"a.md": "1"})
    clock.off = -2 * DAY
    write(storage, {"a.md": "2"})
    clock.off = 0.0
    assert sweep(storage, 1, timedelta(hours=24)) == []
    clock.off = 30 * 3600.0
    assert sweep(storage, 1, timedelta(hours=24)) == [1]


def test_a_clock_that_was_ten_years_ahead_keeps_nothing_for_ten_years(storage: Storage, clock: Clock) -> None:
    for off in (0.0, 3650 * DAY, 0.0, 60.0):
        clock.off = off
        write(storage, {"a.md": f"{off}"})
    assert sweep(storage, 1, timedelta(hours=24)) == []
    clock.off = 2 * DAY
    assert sweep(storage, 1, timedelta(hours=24)) == [1, 2, 3]
    assert len(storage.revisions()) == 1 and held(storage, storage.revisions()[0])


def test_probes_dated_ahead_age_from_the_first_sweep_on(storage: Storage, clock: Clock, tmp_path: Path) -> None:
    write(storage, {"a.md": "1"})
    storage.keep_probes("0" * 32, b"of a model that was tried once")
    path = tmp_path / "index" / "probes" / ("0" * 32)
    os.utime(path, (time.time() + 3650 * DAY,) * 2)
    sweep(storage, 1, timedelta(hours=24))
    assert path.stat().st_mtime < time.time() + 60
    clock.off = 2 * DAY
    sweep(storage, 1, timedelta(hours=24))
    assert not path.exists()


def test_a_head_that_a_kill_left_anywhere_is_put_back(storage: Storage) -> None:
    """A sweep that is killed leaves an empty head; what is published stays, and the next build goes on from it."""
    write(storage, {"a.md": "1", "b.md": "2"})
    pointer = storage.pointer()
    assert pointer is not None
    for name in ("chunks", "documents"):
        storage.tables(pointer.generation).open_table(name).delete("true")
    assert held(storage, pointer) == {"a.md": "1", "b.md": "2"}
    made = write(storage, {"b.md": "3"})
    assert held(storage, made) == {"a.md": "1", "b.md": "3"}
    sweep(storage, 1, timedelta(0))
    assert held(storage, made) == {"a.md": "1", "b.md": "3"}


def test_a_cleanup_that_misses_a_kept_version_removes_nothing(storage: Storage, tmp_path: Path) -> None:
    write(storage, {"a.md": "1"})
    second = write(storage, {"a.md": "2"})
    manifests = sorted(
        (tmp_path / "index" / "generations" / second.generation / "chunks.lance" / "_versions").iterdir()
    )
    first = storage.revisions()[0]
    named = [path for path in manifests if path.name.startswith(str(2**64 - 1 - first.chunks_version))]
    named[0].unlink()
    files = sorted((tmp_path / "index").rglob("*.lance"))
    with pytest.raises(StoreError, match=f"has no version {first.chunks_version}, which a kept revision names"):
        retention.prune(storage)
    assert sorted((tmp_path / "index").rglob("*.lance")) == files
    assert held(storage, second) == {"a.md": "2"}


def new_bytes(folder: Path, before: set[tuple[int, int]]) -> tuple[int, set[tuple[int, int]]]:
    """Bytes of the files of LanceDB that were not there before.

    Of tantivy's that holds too, but it merges all segments of fewer than 10,000 rows alike.
    """
    now = {}
    for path in folder.rglob("*.lance/**/*"):
        if path.is_file():
            status = path.stat()
            now[status.st_ino, status.st_mtime_ns] = status.st_size
    return sum(size for key, size in now.items() if key not in before), set(now)


def bytes_of_builds(folder: Path, documents: int, builds: int) -> list[int]:
    """Bytes that each build with one changed document leaves new in an index, which is swept after each."""
    storage = Storage(str(folder))
    storage.create()
    write(storage, {f"{number}.md": f"text {number} " * 40 for number in range(documents)})
    found = []
    for number in range(builds):
        _, before = new_bytes(folder, set())
        write(storage, {f"{number}.md": f"changed {number} " * 40})
        retention.retire(storage, keep=2, grace=timedelta(0))
        retention.prune(storage)
        found.append(new_bytes(folder, before)[0])
    return found


def test_bytes_written_follow_the_change_and_not_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "COMPACT_AT", 6)  # so that twenty builds meet several mergings
    small = bytes_of_builds(tmp_path / "small", 100, 20)
    large = bytes_of_builds(tmp_path / "large", 1_000, 20)
    assert sum(large) < 1.3 * sum(small), "twenty builds cost what they change, whatever the table holds"
    assert max(large) < 1.3 * max(small), "and none of them copies it"


def run(off: str, *arguments: str) -> Any:
    """One step by a process of its own whose clock is off."""
    done = subprocess.run(
        ["faketime", "-f", off, sys.executable, str(ROOT / "tests" / "revisions.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs the Debian package faketime")
def test_a_real_clock_that_was_a_day_ahead_loses_no_index(tmp_path: Path) -> None:
    """O54: LanceDB's own times are those of the moved clock too."""
    index = str(tmp_path / "index")
    run("+24h", "build", index, "1")
    run("+0", "build", index, "2")
    run("+0", "build", index, "3")
    run("+30h", "sweep", index, "5", "24")
    assert run("+0", "check", index) == {
        str(number): {"same.md": "stays", "moves.md": f"text {number}"} for number in (1, 2, 3)
    }
    run("-10d", "build", index, "4")
    run("-20d", "sweep", index, "2", "0")
    run("+400d", "sweep", index, "2", "0")
    run("+0", "build", index, "5")
    run("+1d", "sweep", index, "2", "0")
    assert run("+0", "check", index) == {
        str(number): {"same.md": "stays", "moves.md": f"text {number}"} for number in (4, 5)
    }
    pieces = list((tmp_path / "index").glob("generations/*/chunks.lance/data/*"))
    assert len(pieces) <= 4, "what the revisions that were given up alone had is gone"


def test_the_pointer_of_an_index_from_before_opens(storage: Storage) -> None:
    """A record without a stamp, as earlier programs wrote it, is gone on from, and everything is compared once."""
    write(storage, {"a.md": "1", "b.md": "1"})
    pointer = storage.pointer()
    assert pointer is not None and pointer.stamp
    with storage.lock():
        storage.pointer()
        storage.publish(msgspec.structs.replace(pointer, stamp=""))
    made: Pointer = write(storage, {f"{number}.md": "1" for number in range(20)})
    assert made.checks["stores"] == "22 chunks in all three" and made.stamp
    assert write(storage, {"a.md": "2"}).checks["stores"].startswith("22 chunks in all three, those of 1 touched")
