"""The inbox: durable, without doubles, ordered by sequencer, and nothing acknowledged is ever lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from flows.service.events import Event
from flows.service.inbox import Inbox


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    made = Inbox(tmp_path / "state" / "inbox.sqlite")
    yield made
    made.close()


def event(key: str, order: int = 0) -> Event:
    return Event(
        key, "docs", f"{order:X}" if order else "", sha256(f"{key}:{order}".encode()).hexdigest() if order else ""
    )


def keys(inbox: Inbox) -> list[str]:
    return [one.key for one in inbox.take(1_000)]


def test_many_events_of_few_keys_are_few_builds(inbox: Inbox) -> None:
    events = [event(f"doc{number % 50}.md", 1 + number // 50) for number in range(2_500)] * 2
    random.Random(7).shuffle(events)
    received = [inbox.add(events[start : start + 100]) for start in range(0, 5_000, 100)]
    assert sum(one.accepted + one.duplicates for one in received) == 5_000
    taken = inbox.take(1_000)
    assert len(taken) == 50 and {int(one.sequencer, 16) for one in taken} == {50}
    inbox.done(taken)
    inbox.add(events)
    assert keys(inbox) == [], "all of them are known"


def test_an_older_event_adds_nothing_and_a_newer_one_comes_back(inbox: Inbox) -> None:
    inbox.add([event("a.md", 0x10)])
    assert inbox.add([event("a.md", 0xF)]).accepted == 0
    taken = inbox.take(10)
    inbox.add([event("a.md", 0x100)])
    inbox.done(taken)
    assert [one.sequencer for one in inbox.take(10)] == ["100"], "it came while the other was built"
    inbox.done(inbox.take(10))
    assert inbox.add([event("a.md", 0xFF)]).accepted == 0 and keys(inbox) == []
    assert inbox.add([event("a.md", 0x101)]).accepted == 1


def test_events_without_an_order_are_never_dropped(inbox: Inbox) -> None:
    inbox.add([Event("a.md")])
    taken = inbox.take(10)
    inbox.add([Event("a.md"), Event("a.md")])
    inbox.done(taken)
    assert keys(inbox) == ["a.md"]


def test_the_one_that_waits_longest_comes_first(inbox: Inbox) -> None:
    for key in ("c.md", "a.md", "b.md"):
        inbox.add([event(key, 1)])
        time.sleep(0.002)
    inbox.add([event("c.md", 2)])
    assert [one.key for one in inbox.take(2)] == ["c.md", "a.md"]


def test_a_failed_key_waits_and_is_set_aside_with_its_reason(inbox: Inbox) -> None:
    inbox.add([event("a.md", 1), event("b.md", 1)])
    inbox.retry_later(inbox.take(1), "no answer", 60)
    assert keys(inbox) == ["b.md"]
    assert [(one.key, one.attempts) for one in inbox.take(10, time.time() + 61)] == [("a.md", 1), ("b.md", 0)]
    inbox.set_aside(inbox.take(10), "it crashes")
    assert [(one.key, one.reason) for one in inbox.aside()] == [("b.md", "it crashes")]
    assert inbox.counts().set_aside == 1
    assert inbox.retry(["other.md"]) == 0 and inbox.retry() == 1
    assert "b.md" in keys(inbox)
    inbox.set_aside(inbox.take(10), "again")
    inbox.add([event("b.md", 2)])
    assert "b.md" in keys(inbox), "a newer event brings it back"


def test_what_is_there_outlives_the_process(tmp_path: Path) -> None:
    first = Inbox(tmp_path / "inbox.sqlite")
    first.add([event("a.md", 1)])
    first.note("last nightly", "2026-12-01")
    first.close()
    second = Inbox(tmp_path / "inbox.sqlite")
    assert keys(second) == ["a.md"] and second.noted("last nightly") == "2026-12-01" and second.noted("x") == ""
    taken = second.take(1)
    second.add([Event("a.md")])
    second.done(taken)
    assert keys(second) == ["a.md"], "numbers go on where they were"
    second.close()


def test_erased_keys_leave_no_trace(inbox: Inbox) -> None:
    inbox.add([event("a/secret-name.md", 1), event("b.md", 1)])
    inbox.done(inbox.take(1))
    inbox.add([event("a/secret-name.md", 2)])
    inbox.erase(["a/secret*", "other.md"])
    files = [path for path in inbox.path.parent.iterdir() if path.is_file()]
    assert not any(b"secret-name" in path.read_bytes() for path in files)
    assert keys(inbox) == ["b.md"]


def test_two_processes_share_it(tmp_path: Path) -> None:
    first, second = Inbox(tmp_path / "inbox.sqlite"), Inbox(tmp_path / "inbox.sqlite")
    first.add([Event("a.md")])
    taken = first.take(1)
    second.add([Event("a.md")])
    first.done(taken)
    assert keys(second) == ["a.md"], "the later event stays"
    first.close()
    second.close()


def test_threads_share_it(inbox: Inbox) -> None:
    def send(start: int) -> None:
        for number in range(50):
            inbox.add([event(f"{start}-{number}.md", 1)])

    threads = [threading.Thread(target=send, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inbox.counts().waiting == 400 == inbox.counts().received


def test_a_full_disk_acknowledges_nothing(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.add([event("a.md", 1)])
    inbox._base.execute("PRAGMA max_page_count = 1")
    with pytest.raises(Exception, match="full"):
        inbox.add([event(f"{number}-{'x' * 500}.md", 1) for number in range(500)])
    inbox._base.execute("PRAGMA max_page_count = 1000000")
    assert inbox.add([event("b.md", 1)]).accepted == 1
    assert keys(inbox) == ["a.md", "b.md"]


@pytest.mark.parametrize("after", [0.05, 0.2, 0.6])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, after: float) -> None:
    code = (
        "import sys; from pathlib import Path; from flows.service.events import Event\n"
        "from flows.service.inbox import Inbox\n"
        "inbox = Inbox(Path(sys.argv[1])); print('ready', flush=True)\n"
        "for n in range(100000):\n"
        "    inbox.add([Event(f'{n}.md', '', '1', str(n))]); print(n, flush=True)\n"
    )
    path = tmp_path / "inbox.sqlite"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(after)
        child.send_signal(signal.SIGKILL)
        acknowledged = {f"{line.strip()}.md" for line in child.stdout if line.endswith("\n")}
    again = Inbox(path)
    found = {one.key for one in again.take(200_000)}
    again.close()
    assert acknowledged and acknowledged <= found
