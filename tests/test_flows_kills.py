"""Builds that are killed: readers see a published revision, whole, and the next build goes on from what is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import s3server
from comparing import assert_equals_a_clean_build
from conftest import ROOT, Workspace
from killed_build import digest

from flows.maintenance import kept_revisions
from flows.searching import published

FLUSH = 4  # texts embedded before they are remembered
WORDS = ("valve", "pump", "seal", "gauge", "motor", "bay", "key", "line", "cold", "dry", "slow", "open")


class Nursery:
    """The process that forks builds and readers, see :mod:`killed_build`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.living: set[int] = set()
        self.heard()

    def heard(self) -> list[str]:
        """What it says next."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split(maxsplit=2)
        assert words and words[0] != "failed", words
        if words[0] == "gone":
            self.living.discard(int(words[1]))
        return words

    def start(self, **job: Any) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job).decode() + "\n")
        self._process.stdin.flush()
        pid = int(self.until("forked")[1])
        self.living.add(pid)
        return pid

    def until(self, *awaited: str, pid: int | None = None) -> list[str]:
        while True:
            words = self.heard()
            if words[0] in awaited and (pid is None or words[1] == str(pid)):
                return words

    def kill(self, pid: int) -> None:
        """Kill a child, if it has not ended yet, and wait for its end."""
        if pid in self.living:
            with suppress(ProcessLookupError):  # ended, and not said so yet
                os.kill(pid, signal.SIGKILL)
        while pid in self.living:
            self.heard()


@pytest.fixture(scope="module")
def nursery(prefect: None) -> Iterator[Nursery]:
    from prefect.settings import PREFECT_API_URL

    environment = os.environ | {"PREFECT_API_URL": PREFECT_API_URL.value(), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "killed_build.py")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        nursery = Nursery(process)
        yield nursery
        for pid in list(nursery.living):
            nursery.kill(pid)
        process.stdin.close()
        process.wait(60)


@dataclass
class Story:
    """A folder that changes while builds of it are killed, and what was published of it.

    Attributes:
        workspace: as this process, a reader, sees it.
        known: digest of every published revision.
        seconds: that a build takes from when it holds the index.
        kills: builds that were killed before they were done.
        orchestrator: what runs the builds, ``none`` or ``prefect``.
    """

    nursery: Nursery
    workspace: Workspace
    chance: random.Random
    embedded: Path
    cache: Path
    environment: dict[str, str] = field(default_factory=dict)
    lease: float = 60.0
    orchestrator: str = "none"
    known: dict[int, str] = field(default_factory=dict)
    seconds: float = 1.0
    kills: int = 0
    number: int = 0

    def settings(self, cache: str) -> dict[str, Any]:
        chosen = self.workspace.settings(cache_dir=self.cache / cache, batch_documents=3)
        return chosen.model_dump(mode="json", exclude_unset=True)

    def write(self) -> None:
        """A new document, or another text of one."""
        self.number += 1
        sentences = [
            " ".join(self.chance.choice(WORDS) for _ in range(4)).capitalize() + f" {self.number}."
            for _ in range(self.chance.randint(1, 8))
        ]
        title = f"# {self.chance.choice(WORDS)} {self.number}"
        self.workspace.write(f"n{self.chance.randint(0, 40)}.md", f"{title}\n\n{' '.join(sentences)}\n")

    def change(self) -> None:
        for _ in range(self.chance.randint(2, 6)):
            self.write()
        if self.chance.random() < 0.5:
            self.chance.choice(sorted(self.workspace.docs.iterdir())).unlink()

    def start(self) -> int:
        pid = self.nursery.start(
            do="build",
            settings=self.settings("builder"),
            environment=self.environment,
            embedded=str(self.embedded),
            flush=FLUSH,
            lease=self.lease,
            orchestrator=self.orchestrator,
        )
        self.nursery.until("begun", pid=pid)
        return pid

    def build(self) -> None:
        """One that nobody kills."""
        pid, begun = self.start(), time.monotonic()
        self.nursery.until("done", pid=pid)
        self.seconds = time.monotonic() - begun
        self.nursery.until("gone", pid=pid)
        self.look()
        assert_equals_a_clean_build(self.workspace)

    def killed(self) -> None:
        """One that is killed at any time."""
        pid = self.start()
        time.sleep(self.chance.uniform(0, 1.1 * self.seconds))
        self.kills += 1
        self.nursery.kill(pid)
        if self.look():
            assert_equals_a_clean_build(self.workspace)  # killed when it had published

    def look(self) -> bool:
        """What is published is whole, and what it was or the next one; whether it is a new one."""
        place, pointer = published(self.workspace.settings())
        new = pointer.revision not in self.known
        assert not new or pointer.revision == max(self.known, default=0) + 1
        found = digest(place, pointer)
        assert self.known.setdefault(pointer.revision, found) == found
        assert kept_revisions.verify_index(self.workspace.settings())["whole"]
        return new

    def check_work(self) -> None:
        """No more than the texts of one flush were embedded again for each kill."""
        lines = self.embedded.read_text().split()
        assert len(lines) - len(set(lines)) <= self.kills * FLUSH


def tell(story: Story, kills: int, seen: Path) -> None:
    """Builds of a changing folder, most of them killed, with a reader beside them."""
    for _ in range(12):
        story.write()
    story.build()
    reader = story.nursery.start(
        do="read", settings=story.settings("reader"), environment=story.environment, seen=str(seen)
    )
    for number in range(1, kills + 1):
        story.change()
        story.killed()
        if number % 6 == 0 or number == kills:
            story.build()
    story.nursery.kill(reader)
    story.check_work()
    lines = [line.split() for line in seen.read_text().splitlines(keepends=True) if line.endswith("\n")]
    revisions = [int(revision) for revision, _ in lines]
    assert len(set(revisions)) > 1 and revisions == sorted(revisions)
    assert all(story.known[int(revision)] == found for revision, found in lines)


def on_disk(nursery: Nursery, workspace: Workspace, tmp_path: Path, seed: int) -> Story:
    chance = random.Random(seed)
    return Story(nursery, workspace, chance, tmp_path / "embedded", tmp_path, orchestrator=workspace.orchestrator)


def on_s3(nursery: Nursery, workspace: Workspace, tmp_path: Path, seed: int, server: s3server.Server) -> Story:
    address = server.address(f"kills-{seed}-{tmp_path.name}")
    workspace.flags = {"index": address, "cache_dir": tmp_path / "cache"}
    story = on_disk(nursery, workspace, tmp_path, seed)
    story.environment, story.lease = server.environment, 2.0
    return story


@pytest.mark.parametrize(("orchestrator", "kills"), [("none", 8), ("prefect", 4)])
def test_builds_that_are_killed(
    nursery: Nursery, workspace: Workspace, tmp_path: Path, orchestrator: str, kills: int
) -> None:
    story = on_disk(nursery, workspace, tmp_path, 0)
    story.orchestrator = orchestrator
    tell(story, kills, tmp_path / "seen")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_builds_that_are_killed_again_and_again(
    nursery: Nursery, workspace: Workspace, tmp_path: Path, seed: int
) -> None:
    tell(on_disk(nursery, workspace, tmp_path, seed), 30, tmp_path / "seen")


def test_builds_on_s3_that_are_killed(
    nursery: Nursery, workspace: Workspace, tmp_path: Path, s3: s3server.Server
) -> None:
    tell(on_s3(nursery, workspace, tmp_path, 0, s3), 3, tmp_path / "seen")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_builds_on_s3_that_are_killed_again_and_again(
    nursery: Nursery, workspace: Workspace, tmp_path: Path, s3: s3server.Server, seed: int
) -> None:
    tell(on_s3(nursery, workspace, tmp_path, seed, s3), 20, tmp_path / "seen")
