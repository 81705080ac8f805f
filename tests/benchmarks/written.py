"""Bytes that a build writes when one document changed, by the size of the index.

    python tests/benchmarks/written.py --chunks 1500 100000

For each size a first build, then builds with one changed document each, in one process. Of each build: what the process
handed to the system for writing (``wchar`` of /proc/self/io), and what lies in the index that was not there before. The
embedder is a fake that counts letters. Prefect is left out, whose server writes to a database of its own; what a build
does to the index is the same.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
PER_DOCUMENT = 15  # chunks
WORDS = re.findall(r"\w+", "valve pump gauge seal pipe motor shaft bearing filter tank sensor switch cable fuse relay")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1_500, 100_000])
    parser.add_argument("--builds", type=int, default=12, help="builds with one changed document")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--documents", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.documents, arguments.builds)
        return
    print(f"Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    print("| chunks | index, MB | first build wrote, MB | one changed: median kB | largest kB | of the index |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for chunks in arguments.chunks:
        work = Path(tempfile.mkdtemp(prefix="gristmill-written-"))
        try:
            measure(work, chunks, arguments.builds)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def measure(work: Path, chunks: int, builds: int) -> None:
    documents = max(2, chunks // PER_DOCUMENT)
    for number in range(documents):
        write(work, number, "first")
    first, *changed = run(work, documents, builds)
    size = first["size"]
    median, largest = statistics.median(one["new"] for one in changed), max(one["new"] for one in changed)
    print(
        f"| {first['chunks']:,} | {size / 1e6:.1f} | {first['written'] / 1e6:.1f} | {median / 1e3:,.0f} | "
        f"{largest / 1e3:,.0f} | {largest / size:.2%} |",
        flush=True,
    )


def write(work: Path, number: int, state: str) -> None:
    """One document: fifteen sections of a chunk each, of which the state changes one."""
    path = work / "docs" / f"{number // 200:05d}" / f"{number:07d}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    sections = []
    for part in range(PER_DOCUMENT):
        words = [WORDS[(number * step + part * step) % len(WORDS)] for step in (1, 3, 7, 11)]
        own = state if part == 7 else ""
        sections.append(
            f"## Part {part} of {number}\n\nThe {words[0]} and {words[1]} {own}. A {words[2]}, {words[3]}.\n"
        )
    path.write_text(f"# Book {number}\n\n" + "\n".join(sections))


def run(work: Path, documents: int, builds: int) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--child", str(work), "--documents", str(documents), "--builds", str(builds)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])


def child(work: Path, documents: int, builds: int) -> None:
    sys.path[:0] = [str(TESTS.parent), str(TESTS)]
    import pytest
    from fakes import install_letters

    from flows.build import build
    from flows.settings import load_settings

    found = []
    with pytest.MonkeyPatch.context() as patch:
        (work / "models").mkdir()
        toml, folder = install_letters(work / "models", patch)
        flags = {"source": str(work / "docs"), "index": str(work / "index"), "embedder": "letters", "ruler": "letters"}
        flags |= {"model_files": [toml], "models_dir": folder, "cache_dir": str(work / "cache"), "note_reserve": "8"}
        for turn in range(builds + 1):
            if turn:
                write(work, turn * 7919 % documents, f"turn{turn}")
            before, io = files(work / "index"), written()
            report = build.build_index(load_settings(**flags), build.BuildOptions(quiet=True))
            done, after = written() - io, files(work / "index")
            new = sum(size for key, size in after.items() if key not in before)
            chunks = report["chunks"]["total"]
            found.append({"new": new, "written": done, "size": sum(after.values()), "chunks": chunks})
    print(json.dumps(found))


def written() -> int:
    return int(re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text())[1])  # type: ignore[index]


def files(folder: Path) -> dict[tuple[int, int], int]:
    """Sizes of the files below a folder, by inode and time: what is written anew is another one. A link is not."""
    found: dict[tuple[int, int], int] = {}
    seen: set[int] = set()
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        if path.is_file() and status.st_ino not in seen:
            seen.add(status.st_ino)
            found[status.st_ino, status.st_mtime_ns] = status.st_size
    return found


if __name__ == "__main__":
    main()
