"""Processor seconds and peak memory of whole commands, cold: help, search, and builds of the demo documents.

Each command is a process of its own; figures are medians of some rounds. `--prefect` adds a build as a Prefect flow, on
the server that PREFECT_API_URL names.

    python tests/benchmarks/start.py --rounds 5
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "how long may food stay in a compartment that has lost its cooling?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefect", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(ROOT / "infra/demo/docs", work / "docs")
        build = ["gristmill", "build", str(work / "docs"), "--index", str(work / "index"), "--quiet"]
        subprocess.run(build, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        search = ["gristmill", "search", QUESTION, "--index", str(work / "index")]
        commands = {
            "--help": ["gristmill", "--help"],
            "search, BM25": [*search, "--mode", "bm25"],
            "search, hybrid": search,
            "build, nothing changed": build,
            "build, one document changed": build,
        } | ({"build as a Prefect flow, one changed": [*build, "--orchestrator", "prefect"]} if given.prefect else {})
        changed = next(iter(sorted((work / "docs").rglob("*.md"))))
        print("| command | processor seconds | MB |\n| --- | ---: | ---: |")
        for name, command in commands.items():
            found = []
            for turn in range(given.rounds + 1):  # the first round warms the files
                if "changed" in name and "nothing" not in name:
                    with changed.open("a") as file:
                        file.write(f"\nRound {turn} of {name}.\n")
                found.append(measured(command))
            seconds, peaks = zip(*found[1:], strict=True)
            print(f"| {name} | {statistics.median(seconds):.1f} | {statistics.median(peaks):.0f} |", flush=True)


def measured(command: list[str]) -> tuple[float, float]:
    """Processor seconds and peak megabytes of a command with all that it starts."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
