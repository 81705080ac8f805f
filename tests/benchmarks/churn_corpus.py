"""The corpus of the churn benchmark and the script of its changes: the same bytes and times on every machine.

Documents are short Markdown files of three sections; no sentence stands in two of them. Each step happens a day after
the one before: what it writes or copies gets that day as its time, and what it moves keeps its own, as on a real disk.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

FOLDERS = ("boilers", "cranes", "gates", "lifts", "pumps", "signals", "tracks", "wells")
SECTIONS = ("Inspection", "Repairs", "Operation")
SENTENCES = 6
FEW = 5
FIRST_DAY = 1_767_600_000
DAY = 86_400

PARTS = ("bearing", "valve", "gasket", "motor", "cable", "hinge", "gauge", "coupling", "filter", "housing", "spindle")
ACTS = ("was replaced", "was cleaned", "was measured", "was found loose", "was sealed", "failed", "was painted over")
CAUSES = (
    "after a night of frost",
    "because of salt in the water",
    "by order of the district engineer",
    "without notice",
)
ENDS = ("and nobody complained", "and it has held since", "so the spare was ordered", "which cost a morning's work")


class Corpus:
    """A folder of documents, and the changes made to it.

    No document is touched by two of the later steps, as long as there are some twenty.
    """

    def __init__(self, folder: Path, count: int, seed: int = 7) -> None:
        self._folder = folder
        self._count = count
        self._random = random.Random(seed)
        self._written = 0
        self._day = 0
        self._fresh: list[str] = []

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        """What is done before each build, in order."""
        percent = max(1, round(self._count / 100))
        return [
            ("first build", self._write),
            ("nothing changed", lambda: None),
            ("all files touched", self._touch),
            (f"a sentence edited in {percent}", lambda: self._rewrite(percent, self._edited)),
            (f"a sentence put in at the top of {percent}", lambda: self._rewrite(percent, self._opened)),
            (f"{FEW} moved to another folder", self._move),
            (f"{FEW} copied", self._copy),
            (f"{FEW} deleted", self._delete),
            ("one cut to a third", lambda: self._rewrite(1, _third)),
        ]

    def next_day(self) -> None:
        self._day += 1

    def texts(self) -> dict[str, str]:
        """The documents as they are now, by key."""
        return {
            path.relative_to(self._folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(self._folder.rglob("*.md"))
        }

    def _write(self) -> None:
        for number in range(self._count):
            key = f"{FOLDERS[number % len(FOLDERS)]}/report-{number:04}.md"
            self._put(self._folder / key, self._document(number))
            self._fresh.append(key)
        self._random.shuffle(self._fresh)

    def _touch(self) -> None:
        for path in self._folder.rglob("*.md"):
            self._date(path)

    def _move(self) -> None:
        for key in self._take(FEW):
            path = self._folder / "archive" / Path(key).name
            path.parent.mkdir(exist_ok=True)
            (self._folder / key).rename(path)

    def _copy(self) -> None:
        for key in self._take(FEW):
            self._put(self._folder / "copies" / Path(key).name, (self._folder / key).read_text(encoding="utf-8"))

    def _delete(self) -> None:
        for key in self._take(FEW):
            (self._folder / key).unlink()

    def _rewrite(self, count: int, change: Callable[[str], str]) -> None:
        for key in self._take(count):
            path = self._folder / key
            self._put(path, change(path.read_text(encoding="utf-8")))

    def _edited(self, text: str) -> str:
        sentences = text.split(". ")
        sentences[len(sentences) // 2] = self._sentence().removesuffix(".")
        return ". ".join(sentences)

    def _opened(self, text: str) -> str:
        title, rest = text.split("\n\n", 1)
        return f"{title}\n\n{self._sentence()}\n\n{rest}"

    def _document(self, number: int) -> str:
        parts = [f"# Report {number:04} on the {self._random.choice(FOLDERS)} of district {number + 11}"]
        for section in SECTIONS:
            sentences = [self._sentence() for _ in range(SENTENCES)]
            half = SENTENCES // 2
            parts += [f"## {section}", " ".join(sentences[:half]), " ".join(sentences[half:])]
        return "\n\n".join(parts) + "\n"

    def _sentence(self) -> str:
        self._written += 1
        part, act, cause, end = (self._random.choice(words) for words in (PARTS, ACTS, CAUSES, ENDS))
        return f"The {part} under entry {self._written} {act} {cause}, {end}."

    def _take(self, count: int) -> list[str]:
        taken, self._fresh = self._fresh[:count], self._fresh[count:]
        return taken

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        self._date(path)

    def _date(self, path: Path) -> None:
        at = FIRST_DAY + self._day * DAY
        os.utime(path, (at, at))


def _third(text: str) -> str:
    """Its title and first section, which is a third of it."""
    title, first, *_ = text.split("\n\n## ")
    return f"{title}\n\n## {first}\n"
