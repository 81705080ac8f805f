"""Many small documents: what a build costs by how many there are and how many changed, in seconds and in memory.

    python tests/benchmarks/scale.py --sizes 1000 10000 100000

For each size, every build in a process of its own: the first; nothing changed; 1 % of the documents edited; nothing
changed again. The embedder is a fake that counts letters, so the figures are those of all else. Seconds are those
of the build itself, with the start of Python, the libraries and Prefect's temporary server apart; memory is the peak of
the process, beside what it holds once everything is imported.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
FOLDER = 200  # documents in a folder
WORDS = re.findall(
    r"\w+",
    "valve pump gauge seal pipe motor shaft bearing filter tank sensor switch cable fuse relay panel screw washer hose "
    "clamp bracket lever spring cover housing inlet outlet drain level pressure heat flow signal alarm manual",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    print("| documents | build | seconds | of the first | start | looked at | embedded | peak memory | when imported |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for size in arguments.sizes:
        work = Path(tempfile.mkdtemp(prefix="gristmill-scale-"))
        try:
            measure(work, size)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def measure(work: Path, size: int) -> None:
    for number in range(size):
        write(work, number, "first")
    first = row(work, size, "first", None)
    row(work, size, "nothing changed", first)
    for number in range(0, size, 100):
        write(work, number, "second")
    row(work, size, "1 % changed", first)
    row(work, size, "nothing changed", first)


def write(work: Path, number: int, state: str) -> None:
    """One document: a title and three sentences of its own."""
    path = work / "docs" / f"{number // FOLDER:05d}" / f"{number:07d}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 7, 11, 13, 17, 19, 23)]
    path.write_text(
        f"# Part {number}\n\nThe {words[0]} of the {words[1]} has number {number}. Check the {words[2]} before the "
        f"{words[3]}, {state}. Its {words[4]} and {words[5]} stand beside the {words[6]} with the {words[7]}.\n"
    )


def row(work: Path, size: int, name: str, first: float | None) -> float:
    command = [sys.executable, __file__, "--child", str(work)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    seconds = found["report"]["seconds"]
    own = seconds["total"] - seconds["start"]
    share = f"{own / first:.1%}" if first else ""
    work_done = found["report"]["work"]
    print(
        f"| {size:,} | {name} | {own:.1f} | {share} | {seconds['start']:.0f} | {work_done['parsed']:,} | "
        f"{work_done['embedded']:,} | {found['peak']:.0f} MB | {found['imported']:.0f} MB |"
    )
    stages = ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items() if value >= 0.05)
    print(f"  {stages}", file=sys.stderr, flush=True)
    return float(own)


def child(work: Path) -> None:
    """One build, with the fake embedder."""
    started = time.time()
    sys.path.insert(0, str(TESTS))
    from flows.settings import load_settings, prepare_environment

    prepare_environment()
    import pytest
    from fakes import LettersRuntime, install_letters

    from flows.build.build import BuildOptions, build_index

    models = work / "models"
    shutil.rmtree(models, ignore_errors=True)
    models.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        toml, folder = install_letters(models, patch)
        patch.setattr(LettersRuntime, "batches", deque(maxlen=1))  # it would keep all that it was given
        settings = load_settings(
            source=str(work / "docs"),
            index=str(work / "index"),
            model_files=[toml],
            models_dir=folder,
            embedder="letters",
            ruler="letters",
            note_reserve=8,
        )
        imported = peak()
        report: dict[str, Any] = build_index(settings, BuildOptions(quiet=True, started=started))
    print(json.dumps({"report": report, "imported": imported, "peak": peak()}))


def peak() -> float:
    """Megabytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
