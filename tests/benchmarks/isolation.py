"""What parsing in worker processes costs a document, and what a second worker gains.

    python tests/benchmarks/isolation.py [FOLDER] [--rounds 5]

Parses the files of a folder (by default the documents of the demo, 20 times) in this process, in one worker and in two;
prints the median seconds of the rounds, each round in another order, and the seconds from making a pool to its first
document.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from parsers.isolation import ParserPool
from parsers.registry import media_type, read

Files = list[tuple[str, bytes]]
DEMO = Path(__file__).parents[2] / "infra" / "demo" / "docs"


def here(files: Files) -> float:
    begun = time.perf_counter()
    for key, data in files:
        read(key, data)
    return time.perf_counter() - begun


def in_workers(count: int) -> Callable[[Files], float]:
    def timed(files: Files) -> float:
        pool = ParserPool(count)
        for key, data in files[:20]:  # so that its workers have started and imported what they need
            pool.submit(key, data, "").result()
        begun = time.perf_counter()
        for asked in [pool.submit(key, data, media_type(key, data)) for key, data in files]:
            asked.result()
        seconds = time.perf_counter() - begun
        pool.close()
        return seconds

    return timed


def start() -> float:
    begun = time.perf_counter()
    pool = ParserPool(1)
    pool.read("a.md", b"# A\n", "text/markdown")
    seconds = time.perf_counter() - begun
    pool.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder, times = given.folder or DEMO, 1 if given.folder else 20
    files = [(path.name, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()] * times
    here(files[: len(files) // times])
    ways = {"in this process": here, "one worker": in_workers(1), "two workers": in_workers(2)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name in random.sample(sorted(ways), len(ways)):
            seconds[name].append(ways[name](files))
    size = sum(len(data) for _, data in files)
    print(f"{len(files)} files, {size / 1e6:.1f} MB, {given.rounds} rounds")
    base = statistics.median(seconds["in this process"])
    for name, values in seconds.items():
        median = statistics.median(values)
        each = 1000 * (median - base) / len(files)
        print(f"{name:<16} {median:6.2f} s   {base / median:4.2f} times the pace   {each:+.2f} ms a document")
    print(f"first document of a new pool: {statistics.median(start() for _ in range(given.rounds)):.2f} s")


if __name__ == "__main__":
    main()
