"""Who may build: one of several, whatever the clocks show, and a builder that lost it knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from s3server import Server

from indexes.storage.lease import FolderLock, Lease
from indexes.storage.objects import FolderObjects, Objects
from indexes.storage.s3_objects import S3Objects
from parsers.errors import IndexBusy, StoreError

KEY = "build.lease"
SECONDS = 1.2  # of a lease on the real store; long beside a request, short beside a test

HOLDER = """
import sys, time
from pathlib import Path
from indexes.storage.lease import Lease, FolderLock
from indexes.storage.s3_objects import S3Objects
from parsers.errors import StoreError

place, seconds, ended = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
hold = Lease(S3Objects(place), "build.lease", seconds=seconds) if "://" in place else FolderLock(Path(place))
with hold:
    print("held", hold.token, flush=True)
    while not ended.exists() and not hold.lost:
        time.sleep(0.05)
    try:
        hold.check()
        print("kept", flush=True)
    except StoreError as error:
        print(error, flush=True)
"""


@pytest.fixture
def address(s3: Server) -> str:
    return s3.address(uuid.uuid4().hex)


@contextmanager
def holding(place: str, ended: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the index, until ``ended`` is there or it loses it."""
    command = [sys.executable, "-c", HOLDER, place, str(SECONDS), str(ended)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("held")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def state(objects: Objects) -> dict[str, Any]:
    found = objects.get(KEY)
    assert found is not None
    return json.loads(found[0])


def patiently(hold: Lease) -> Lease:
    """Take a lease as soon as it may be taken."""
    give_up = time.monotonic() + 30
    while True:
        try:
            return hold.__enter__()
        except IndexBusy:
            assert time.monotonic() < give_up
            time.sleep(0.1)


class Time:
    """A clock that goes on only when someone sleeps, and tells the lease's thread nothing."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.then: list[Callable[[], object]] = []

    def __call__(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        if self.then:
            self.then.pop(0)()


def lease(objects: Objects, clock: Time, **more: Any) -> Lease:
    """A lease of ten seconds that nobody renews."""
    return Lease(
        objects, KEY, **({"seconds": 10.0, "renew": 1e6, "now": clock, "clock": clock, "sleep": clock.sleep} | more)
    )


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    return FolderObjects(tmp_path / "index")


# Either kind, and the lock on disk


@pytest.mark.parametrize("kind", ["lock", "lease"])
def test_one_of_many_holds(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = S3Objects(request.getfixturevalue("address")) if kind == "lease" else None
    barrier = threading.Barrier(6)
    ended = threading.Barrier(6)

    def build(number: int) -> bool:
        hold = Lease(place, KEY) if place is not None else FolderLock(tmp_path / "build.lock")
        with ExitStack() as stack:
            barrier.wait()
            try:
                stack.enter_context(hold)
            except IndexBusy:
                return False
            finally:
                ended.wait()
            assert not hold.lost
            hold.check()
            return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(build, range(6))) == 1


def test_a_lock_says_which_process_holds_it_and_goes_with_that_process(tmp_path: Path) -> None:
    path = tmp_path / "build.lock"
    with holding(str(path), tmp_path / "ended") as process:
        with pytest.raises(
            IndexBusy, match=rf"index here: another build holds it \(process {process.pid}\). Wait for it"
        ):
            FolderLock(path, "here").__enter__()
        process.kill()
        process.wait()
        with FolderLock(path) as hold:
            assert (hold.token, hold.taken_over, hold.lost) == (0, False, False)
            assert path.read_text() == str(os.getpid())
            hold.check()


def test_a_lock_in_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"index {tmp_path}/none cannot be used: No such file or directory"):
        FolderLock(tmp_path / "none" / "build.lock").__enter__()


# A lease in a real store


def test_the_token_rises_with_every_holder(address: str) -> None:
    for token in (1, 2, 3):
        with Lease(S3Objects(address), KEY) as hold:
            assert (hold.token, hold.taken_over, hold.lost) == (token, False, False)
            assert state(S3Objects(address))["token"] == token
        assert state(S3Objects(address))["expires"] == 0


def test_who_asks_meanwhile_learns_who_holds_it_and_until_when(address: str) -> None:
    with Lease(S3Objects(address), KEY, now=lambda: 4e9):  # of which the clock of who asks tells the same
        said = (
            rf"index {address}: another build holds it \(process {os.getpid()} on \S+, until 2096-10-02 07:07:40 UTC\)"
        )
        with pytest.raises(IndexBusy, match=said + ". Wait for it to end; if that process is dead, its lease runs out"):
            Lease(S3Objects(address), KEY, now=lambda: 4e9).__enter__()


def test_it_is_held_longer_than_its_length(address: str) -> None:
    with Lease(S3Objects(address), KEY, seconds=SECONDS) as hold:
        time.sleep(SECONDS * 1.5)
        hold.check()
        with pytest.raises(IndexBusy):
            Lease(S3Objects(address), KEY).__enter__()


def test_the_lease_of_a_killed_process_is_taken_once_it_has_run_out(address: str, tmp_path: Path) -> None:
    with holding(address, tmp_path / "ended") as process:
        process.kill()
        process.wait()
        died = time.monotonic()
        hold = patiently(Lease(S3Objects(address), KEY))
        hold.__exit__(None, None, None)
        assert time.monotonic() - died > SECONDS
    assert (hold.token, hold.taken_over) == (2, True)


def test_a_stalled_process_learns_that_it_lost(address: str, tmp_path: Path) -> None:
    with holding(address, tmp_path / "ended") as process:
        os.kill(process.pid, signal.SIGSTOP)
        hold = patiently(Lease(S3Objects(address), KEY))
        try:
            (tmp_path / "ended").touch()
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"index {address}: this build lost its lease: ")
            assert process.wait(30) == 0
            hold.check()
            assert state(S3Objects(address))["token"] == 2
        finally:
            hold.__exit__(None, None, None)


def test_a_process_that_ends_gives_it_back(address: str, tmp_path: Path) -> None:
    with holding(address, tmp_path / "ended") as process:
        (tmp_path / "ended").touch()
        assert process.stdout is not None
        assert process.stdout.readline() == "kept\n"
        assert process.wait(30) == 0
    with Lease(S3Objects(address), KEY) as hold:
        assert (hold.token, hold.taken_over) == (2, False)


def test_a_holder_whose_clock_is_an_hour_slow_keeps_it(address: str) -> None:
    with Lease(S3Objects(address), KEY, seconds=SECONDS, now=lambda: time.time() - 3600) as hold:
        with pytest.raises(IndexBusy):
            Lease(S3Objects(address), KEY, now=time.time).__enter__()
        hold.check()


def test_a_holder_whose_clock_is_a_day_ahead_keeps_it_while_it_lives(address: str) -> None:
    with Lease(S3Objects(address), KEY, seconds=SECONDS, now=lambda: time.time() + 86_400) as hold:
        with pytest.raises(IndexBusy):
            Lease(S3Objects(address), KEY).__enter__()
        hold.check()


def test_a_killed_holder_whose_clock_was_a_day_ahead_blocks_nobody_for_a_day(address: str) -> None:
    killed = Lease(S3Objects(address), KEY, seconds=SECONDS, renew=1e6, now=lambda: time.time() + 86_400)
    killed.__enter__()
    begun = time.monotonic()
    hold = patiently(Lease(S3Objects(address), KEY))
    hold.__exit__(None, None, None)
    assert (hold.token, hold.taken_over) == (2, True)
    assert SECONDS <= time.monotonic() - begun < 10 * SECONDS


# What a lease does step by step, with a clock of the test's


def test_what_looks_run_out_is_watched_for_the_holders_length(objects: FolderObjects) -> None:
    clock = Time()
    lease(objects, clock, seconds=40.0).__enter__()
    clock.at += 41
    begun = clock.at
    with lease(objects, clock) as hold:
        assert clock.at == pytest.approx(begun + 40)
        assert (hold.token, hold.taken_over) == (2, True)


@pytest.mark.parametrize("skew", [-1e6, -86_400.0, -11.0, -1.0, 0.0, 1.0, 11.0, 86_400.0, 1e6])
def test_a_dead_holder_blocks_no_longer_than_thrice_its_length(objects: FolderObjects, skew: float) -> None:
    clock = Time()
    lease(objects, clock, now=lambda: clock.at + skew).__enter__()
    died = clock.at
    while True:
        try:
            hold = lease(objects, clock).__enter__()
            break
        except IndexBusy:
            clock.at += 1
    assert 10 <= clock.at - died <= 30
    assert (hold.token, hold.taken_over) == (2, True)


@pytest.mark.parametrize("skew", [-86_400.0, -5.0, 0.0, 5.0, 86_400.0])
def test_a_living_holder_keeps_it_whatever_its_clock_shows(objects: FolderObjects, skew: float) -> None:
    clock = Time()
    holder = lease(objects, clock, now=lambda: clock.at + skew).__enter__()

    def renew() -> None:
        holder._etag = holder._write(holder._etag)

    clock.then = [renew] * 100
    with pytest.raises(IndexBusy):
        lease(objects, clock).__enter__()
    assert state(objects)["token"] == 1


def test_what_changes_while_it_is_watched_is_held(objects: FolderObjects) -> None:
    clock = Time()
    first = lease(objects, clock).__enter__()
    clock.at += 11
    clock.then = [lambda: None, lambda: first._write(first._etag)]
    with pytest.raises(IndexBusy):
        lease(objects, clock).__enter__()
    assert state(objects)["token"] == 1


def test_what_is_given_back_while_it_is_watched_is_taken_at_once(objects: FolderObjects) -> None:
    clock = Time()
    first = lease(objects, clock).__enter__()
    clock.at += 11
    begun = clock.at
    clock.then = [lambda: first.__exit__(None, None, None)]
    with lease(objects, clock) as hold:
        assert clock.at < begun + 2
        assert (hold.token, hold.taken_over) == (2, False)


def test_of_two_that_watched_one_takes_it(objects: FolderObjects) -> None:
    clock = Time()
    lease(objects, clock).__enter__()
    clock.at += 11
    other = Time()
    other.at = clock.at
    clock.then = [*[lambda: None] * 7, lambda: lease(objects, other).__enter__()]
    with pytest.raises(IndexBusy):
        lease(objects, clock).__enter__()
    assert state(objects)["token"] == 2


def test_who_could_not_renew_it_in_time_has_lost_it_for_good(objects: FolderObjects) -> None:
    clock = Time()
    hold = lease(objects, clock).__enter__()
    clock.at += 9.9
    hold.check()
    clock.at += 0.2
    said = (
        "index .*: this build lost its lease: it could not be renewed in time. Build again: what was finished is remem"
    )
    with pytest.raises(StoreError, match=said):
        hold.check()
    clock.at -= 5
    assert hold.lost


def test_who_lost_it_leaves_the_next_ones_alone(objects: FolderObjects) -> None:
    clock = Time()
    first = lease(objects, clock).__enter__()
    clock.at += 11
    with lease(objects, clock) as second:
        before = objects.get(KEY)
        first.__exit__(None, None, None)
        assert objects.get(KEY) == before
        second.check()


class Flaky(FolderObjects):
    """Objects whose next writes have their answer lost, or never arrive."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.trouble: list[str] = []
        self.replaced = 0

    def replace(self, key: str, data: bytes, etag: str) -> str:
        trouble = self.trouble.pop(0) if self.trouble else ""
        self.replaced += 1
        if trouble == "theirs":
            self.put(key, json.dumps(state(self) | {"by": "other", "token": 9}).encode())
        if trouble == "unsent":
            raise StoreError("the store cannot be reached")
        written = super().replace(key, data, etag)
        if trouble == "unheard":
            raise StoreError("the store did not answer")
        return written


def renewed(objects: Flaky, times: int) -> None:
    give_up = time.monotonic() + 30
    while objects.replaced < times and time.monotonic() < give_up:
        time.sleep(0.01)


@pytest.mark.parametrize("trouble", ["unsent", "unheard"])
def test_a_renewal_that_failed_is_tried_again(tmp_path: Path, trouble: str) -> None:
    objects = Flaky(tmp_path)
    objects.trouble = [trouble] * 2
    with Lease(objects, KEY, seconds=60, renew=0.02) as hold:
        renewed(objects, 10)
        hold.check()
        assert state(objects)["token"] == hold.token
    assert state(objects)["expires"] == 0


def test_a_renewal_that_met_another_holder_ends_it(tmp_path: Path) -> None:
    objects = Flaky(tmp_path)
    objects.trouble = ["", "theirs"]
    with Lease(objects, KEY, seconds=60, renew=0.02) as hold:
        renewed(objects, 2)
        time.sleep(0.1)
        with pytest.raises(StoreError, match="this build lost its lease: another build took it"):
            hold.check()
        assert objects.replaced == 2
    assert state(objects)["token"] == 9


def test_a_store_that_fails_when_it_is_given_back_hides_no_other_error(tmp_path: Path) -> None:
    objects = Flaky(tmp_path)
    with pytest.raises(ZeroDivisionError), Lease(objects, KEY):
        objects.trouble = ["unsent"]
        raise ZeroDivisionError


def test_what_is_no_lease_is_not_taken(objects: FolderObjects) -> None:
    objects.put(KEY, b"{}")
    with pytest.raises(StoreError, match=r"build.lease is not a lease: .* Make sure that no build runs, then delete"):
        Lease(objects, KEY).__enter__()
