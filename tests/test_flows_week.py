"""A week in fast motion: edits, deletes, lost and late events, outages, a model swap, a clock set back, seven nights.

Run with ``-s`` to see what ran, and how long it took.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build
from conftest import Workspace

from flows.build.build import BuildOptions, build_index
from flows.build.reindex import ReindexOptions, swap_embedder
from flows.maintenance.kept_revisions import sweep, verify_index
from flows.service import worker as module
from flows.service.events import Event
from flows.service.inbox import Inbox
from flows.service.worker import Worker
from flows.settings import Settings
from parsers.errors import SourceError

WORDS = ("valve", "pump", "seal", "gauge", "motor", "bay", "key", "line", "cold", "dry", "slow", "open")
START = datetime(2026, 12, 1, 8, 0).astimezone()


class Week:
    """A store, an index and a worker under a clock of their own."""

    def __init__(self, workspace: Workspace, path: Path) -> None:
        self.workspace = workspace
        self.chosen = random.Random(17)
        self.inbox = Inbox(path)
        self.now = START
        self.outages = 0
        self.told: Counter[str] = Counter()
        self.table: list[tuple[str, str, float]] = []
        self.worker = Worker(workspace.settings(nightly_at="02:00"), self.inbox, self._run, self._tell)

    def _run(self, settings: Settings, options: BuildOptions) -> dict[str, Any]:
        if self.outages:
            self.outages -= 1
            raise SourceError("the store is away", transient=True)
        begun = time.perf_counter()
        report = build_index(self.workspace.settings(), options)
        what = "nightly build" if options.only_keys is None else "build of events"
        self.table.append((f"{self.now:%a %H:%M}", what, time.perf_counter() - begun))
        return report

    def _tell(self, kind: str, title: str, details: dict[str, Any]) -> None:
        self.told[kind] += 1

    def text(self) -> str:
        return f"# Note\n\nThe {' '.join(self.chosen.choices(WORDS, k=3))} number {self.chosen.randint(0, 999)}.\n"

    def change(self) -> str:
        """Add, edit or delete a document; return its key."""
        keys = sorted(path.name for path in self.workspace.docs.iterdir())
        what = self.chosen.choice(("add", "edit", "edit", "delete"))
        if what == "delete" and len(keys) > 30:
            key = self.chosen.choice(keys)
            (self.workspace.docs / key).unlink()
            return key
        key = self.chosen.choice(keys) if what == "edit" else f"doc{self.chosen.randint(100, 999)}.md"
        self.workspace.write(key, self.text())
        return key

    def hour(self) -> None:
        """Change some documents; one event in five is lost, one comes twice, and they come in any order."""
        changed = [self.change() for _ in range(self.chosen.randint(0, 2))]
        sent = [key for key in changed if self.chosen.random() > 0.2]
        sent += sent[:1]
        self.chosen.shuffle(sent)
        self.inbox.add([Event(key) for key in sent])
        for _ in range(4):
            self.worker.step()
            self.now += timedelta(minutes=15)


@pytest.fixture
def week(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    made = Week(workspace, tmp_path / "inbox.sqlite")

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return made.now

    class Clock:
        @staticmethod
        def time() -> float:
            return made.now.timestamp()

    monkeypatch.setattr(module, "datetime", Now)
    monkeypatch.setattr(module, "time", Clock)
    yield made
    made.inbox.close()


def test_a_week_ends_in_the_index_of_a_clean_build(week: Week) -> None:
    workspace = week.workspace
    for number in range(40):
        workspace.write(f"doc{number}.md", week.text())
    workspace.build()
    for day in range(7):
        for hour in range(0, 24, 4):
            if (day, hour) == (1, 8):
                week.outages = 3
            if (day, hour) == (3, 12):
                begun = time.perf_counter()
                swap_embedder(workspace.settings(), ReindexOptions(embedder="vowels", quiet=True, accept=True))
                workspace.flags["embedder"] = "vowels"
                week.table.append((f"{week.now:%a %H:%M}", "model swap", time.perf_counter() - begun))
            if (day, hour) == (4, 16):
                week.now -= timedelta(hours=1)
            week.hour()
            week.now += timedelta(hours=3)
        sweep(workspace.settings())
    week.now = START + timedelta(days=7, hours=23)
    while week.worker.step():
        week.now += timedelta(minutes=1)
    ran = Counter(what for _, what, _ in week.table)
    for row in week.table:
        print(f"{row[0]}  {row[1]:<16} {row[2]:5.2f} s")
    assert ran["nightly build"] == 8 and ran["model swap"] == 1 and ran["build of events"] > 10
    assert week.inbox.counts().waiting == week.inbox.counts().set_aside == 0
    assert week.told["refused"] == 0 and week.told["recovered"] == week.told["failed"] <= 1
    assert verify_index(workspace.settings(), everything=True)["whole"]
    assert_equals_a_clean_build(workspace)
