"""Progress that moves within the first seconds, with figures that are true."""

from __future__ import annotations

import re

import pytest

from flows import report
from flows.report import Progress


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(report, "time", made)
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.strip() for line in capsys.readouterr().err.splitlines() if line.strip()]


def test_documents_and_their_rate_show_while_the_first_batch_is_read(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress()
    with progress.documents(95, 9_500_000):
        for _ in range(50):
            clock.now += 0.1
            progress.read(1, 100_000)
        shown = lines(capsys)
        assert len(shown) >= 3
        assert shown[0].startswith("1 of 95 documents read, 0 written, 0.1 of 9.5 MB at 1.0 MB/s")
        counts = [int(line.split()[0]) for line in shown]
        assert counts == sorted(counts) and counts[-1] >= 30
        assert all(re.search(r" at 1\.0 MB/s", line) for line in shown)
        clock.now += 20
        progress.embedded(400, 20.0)
        assert "50 of 95 documents read, 0 written" in (line := lines(capsys)[-1])
        assert "5.0 of 9.5 MB at 0.2 MB/s, 400 chunks embedded at 20/s" in line
        progress.advance(95, 9_500_000)
        assert lines(capsys)[-1].startswith("95 of 95 documents read, 9.5 of 9.5 MB at 0.38 MB/s")


def test_little_is_not_shown_as_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.documents(2, 6_000):
        clock.now += 2
        progress.advance(2, 6_000)
    assert lines(capsys)[-1] == "2 of 2 documents read, 0.006 of 0.006 MB at 0.003 MB/s"


def test_later_lines_come_less_often(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(every=10.0)
    with progress.documents(10_000, 10_000_000):
        for _ in range(1_000):
            clock.now += 0.1
            progress.read(1, 1_000)
    assert 5 <= len(lines(capsys)) <= 16
