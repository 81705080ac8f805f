"""The warm worker: what becomes of the keys of the inbox, whatever happens to their builds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build
from conftest import Workspace

from flows.build.build import BuildOptions, build_index
from flows.maintenance import kept_revisions
from flows.service import worker as module
from flows.service.events import Event
from flows.service.inbox import Inbox
from flows.service.worker import LAST_NIGHTLY, TRIES_ALONE, Worker
from flows.settings import Settings
from parsers.errors import GateRefused, GristmillError, IndexBusy, SourceError, UsageError

REPORT = {"revision": 1, "published": True}


class Clock:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


class Bench:
    """A worker whose builds do as a function says, with what it ran and told."""

    def __init__(self, workspace: Workspace, path: Path, **flags: Any) -> None:
        self.workspace = workspace
        self.inbox = Inbox(path)
        self.ran: list[tuple[str, ...] | None] = []
        self.told: list[tuple[str, str]] = []
        self.outcome: Callable[[tuple[str, ...] | None], Any] = lambda keys: REPORT
        self.worker = Worker(workspace.settings(**flags), self.inbox, self._run, self._tell)

    def _run(self, settings: Settings, options: BuildOptions) -> dict[str, Any]:
        self.ran.append(options.only_keys)
        result = self.outcome(options.only_keys)
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def _tell(self, kind: str, title: str, details: dict[str, Any]) -> None:
        self.told.append((kind, title))

    def send(self, *keys: str) -> None:
        self.inbox.add([Event(key) for key in keys])

    @property
    def waiting(self) -> int:
        return self.inbox.counts().waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("time.time", made.time)
    return made


@pytest.fixture
def bench(workspace: Workspace, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(workspace, tmp_path / "inbox.sqlite")
    yield made
    made.inbox.close()


def test_keys_that_wait_make_one_build(bench: Bench) -> None:
    bench.send("b.md", "a.md", "b.md")
    assert bench.worker.step() and not bench.worker.step()
    assert [set(keys or ()) for keys in bench.ran] == [{"a.md", "b.md"}] and bench.waiting == 0
    assert bench.worker.status()["last_build"]["keys"] == 2


def test_a_key_that_fails_is_found_and_set_aside(bench: Bench, clock: Clock) -> None:
    bench.outcome = lambda keys: RuntimeError("it crashes") if "bad.md" in (keys or ()) else REPORT
    bench.send(*(f"{number}.md" for number in range(9)), "bad.md")
    for _ in range(TRIES_ALONE):
        bench.worker.step()
        clock.now += 60
    assert bench.waiting == 0, "its neighbours went on"
    assert [(one.key, one.reason) for one in bench.inbox.aside()] == [("bad.md", "RuntimeError: it crashes")]
    assert bench.told[0][0] == "failed" and "bad.md" in bench.told[0][1]
    built = [key for keys in bench.ran if "bad.md" not in (keys or ()) for key in keys or ()]
    assert sorted(built) == sorted(f"{number}.md" for number in range(9)), "each of them once"


@pytest.mark.parametrize(
    "error", [IndexBusy("busy"), SourceError("away", transient=True), UsageError("wrong settings"), SourceError("gone")]
)
def test_an_outage_loses_no_key(bench: Bench, clock: Clock, error: GristmillError) -> None:
    bench.send("a.md")
    bench.outcome = lambda keys: error
    for _ in range(20):
        bench.worker.step()
        clock.now += 30
    assert bench.waiting == 1 and bench.inbox.counts().set_aside == 0
    assert 2 <= len(bench.ran) <= 20, "it is tried again, and not all the time"
    kinds = [kind for kind, _ in bench.told]
    assert kinds == ([] if isinstance(error, IndexBusy) else ["failed"]), "told once, a busy index not at all"
    bench.outcome = lambda keys: REPORT
    clock.now += 600
    bench.worker.step()
    assert bench.waiting == 0
    assert [kind for kind, _ in bench.told[len(kinds) :]] == ["recovered"] * len(kinds)


def test_keys_that_come_while_one_is_built_make_the_next_build(bench: Bench) -> None:
    bench.send("a.md")

    def more(keys: Any) -> Any:
        if len(bench.ran) == 1:
            bench.send("a.md", "b.md")
        return REPORT

    bench.outcome = more
    bench.worker.step()
    bench.worker.step()
    assert [set(keys or ()) for keys in bench.ran] == [{"a.md"}, {"a.md", "b.md"}]


def test_the_night_comes_once_a_day(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(workspace, tmp_path / "inbox.sqlite", nightly_at="02:00")
    now = datetime(2026, 12, 1, 12, 0).astimezone()

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now

    monkeypatch.setattr(module, "datetime", Now)
    assert not bench.worker.step(), "a new service waits for its first night"
    for hours, builds in ((13, 0), (14.1, 1), (20, 1), (38.1, 2), (100, 3)):
        now = datetime(2026, 12, 1, 12, 0).astimezone() + timedelta(hours=hours)
        bench.worker.step()
        bench.worker.step()
        assert len(bench.ran) == builds, hours
    assert bench.inbox.noted(LAST_NIGHTLY)
    bench.outcome = lambda keys: GateRefused("too many are gone")
    now += timedelta(days=1)
    bench.worker.step()
    assert not bench.worker.step() and bench.told == [("refused", "too many are gone")], (
        "not again before the next night"
    )
    bench.inbox.close()


# With real builds.


def real(bench: Bench) -> None:
    bench.outcome = lambda keys: build_index(bench.workspace.settings(), BuildOptions(quiet=True, only_keys=keys))


def fill(bench: Bench, count: int = 8) -> None:
    for number in range(count):
        bench.workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    bench.workspace.build()
    real(bench)


def test_changes_are_searchable_after_their_event(bench: Bench) -> None:
    fill(bench)
    bench.workspace.write("new.md", "# New\n\nThe quixotic handle.\n")
    (bench.workspace.docs / "doc3.md").unlink()
    bench.send("new.md", "doc3.md", "never-there.md")
    bench.worker.step()
    assert bench.waiting == 0 and bench.workspace.search("quixotic", "bm25")[0].key == "new.md"
    assert_equals_a_clean_build(bench.workspace)


def test_a_mass_removal_is_set_aside_and_the_rest_goes_on(bench: Bench) -> None:
    fill(bench)
    for number in range(7):
        (bench.workspace.docs / f"doc{number}.md").unlink()
    bench.workspace.write("new.md", "# New\n\nThe quixotic handle.\n")
    bench.send(*(f"doc{number}.md" for number in range(7)), "new.md")
    while bench.worker.step():
        pass
    assert {one.key for one in bench.inbox.aside()} == {f"doc{number}.md" for number in range(7)}
    assert bench.workspace.search("quixotic", "bm25")[0].key == "new.md"
    assert [kind for kind, _ in bench.told] == ["refused", "recovered"]


def test_events_wait_while_the_index_is_held(bench: Bench, clock: Clock) -> None:
    fill(bench)
    bench.workspace.write("doc1.md", "# Doc 1\n\nThe seal leaks.\n")
    bench.workspace.build()
    kept_revisions.rollback(bench.workspace.settings(), None)
    bench.workspace.write("new.md", "# New\n\nThe quixotic handle.\n")
    bench.send("new.md")
    for _ in range(5):
        bench.worker.step()
        clock.now += 60
    assert bench.waiting == 1 and bench.worker.status()["held"]
    assert [kind for kind, _ in bench.told] == ["held"]
    kept_revisions.release(bench.workspace.settings())
    bench.worker.step()
    assert bench.waiting == 0 and bench.workspace.search("quixotic", "bm25")[0].key == "new.md"
    assert [kind for kind, _ in bench.told] == ["held", "recovered"]
