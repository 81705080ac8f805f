"""A corpus of books as a source: the pipeline's seconds by stage, its memory, and its share over the model alone.

    python tests/benchmarks/books.py ../shared/corpora/ancient-history/books --vectors-for 10657.txt

Two builds in one run, each a process of its own:

- every book parsed, cut and put into BM25, with vectors for the named ones: seconds by stage, rates, peak memory by
  tenth of the way (flat memory shows as equal figures);
- the named books alone, all with vectors; then the model alone on exactly the same embedded texts.
  Pipeline ÷ model is the figure to watch; Prefect's start is given apart.

Then search on the first index: median and worst milliseconds of each mode over a list of queries.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

QUERIES = (
    "Why did Caesar cross the Rhine?",
    "siege of Alesia",
    "the death of Vercingetorix",
    "Hannibal crossing the Alps with elephants",
    "X-42B",
    "laws of the twelve tables",
    "who murdered the king, and what did his wife say",
    "grain supply of Rome",
)


def main() -> None:
    arguments = parse_arguments()
    work = Path(tempfile.mkdtemp(prefix="gristmill-books-"))
    try:
        print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
        if not arguments.skip_all:
            everything(arguments, work)
        only_vectors(arguments, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--vectors-for", action="append", required=True, help="a file name; may be given several times")
    parser.add_argument("--skip-all", action="store_true", help="only the second part")
    return parser.parse_args()


def everything(arguments: argparse.Namespace, work: Path) -> None:
    size = sum(path.stat().st_size for path in arguments.source.iterdir())
    report, memory = built(arguments.source, work / "all", arguments.vectors_for)
    print(f"\n== all {size / 1e6:.1f} MB, vectors for {len(arguments.vectors_for)} books")
    print(f"chunks {report['chunks']['total']:,}, embedded {report['work']['embedded']:,}")
    show_seconds(report, size)
    print("peak MB by tenth of the run: " + " ".join(f"{value:.0f}" for value in memory))
    second, _ = built(arguments.source, work / "all", arguments.vectors_for)
    past = second["seconds"]["total"] - second["seconds"]["start"]
    print(f"nothing changed: work {second['work']}, {past:.2f} s past start")
    search_times(work / "all")


def only_vectors(arguments: argparse.Namespace, work: Path) -> None:
    source = work / "subset"
    source.mkdir()
    for name in arguments.vectors_for:
        shutil.copy(arguments.source / name, source / name)
    size = sum(path.stat().st_size for path in source.iterdir())
    report, _ = built(source, work / "part", ["*"])
    print(f"\n== {len(arguments.vectors_for)} books alone, {size / 1e6:.1f} MB, all with vectors")
    show_seconds(report, size)
    texts = embedded_texts(work / "part")
    load, alone = model_alone(texts)
    seconds = report["seconds"]
    pipeline = seconds["total"] - seconds["start"]
    print(f"model alone on the same {len(texts):,} texts: {alone:.1f} s, {len(texts) / alone:.1f} chunks/s")
    print(f"pipeline past start ÷ model, loading in both: {pipeline / (load + alone):.3f}")


def built(source: Path, index: Path, vectors_for: list[str]) -> tuple[dict[str, Any], list[float]]:
    """Build in a process of its own; its report and peak resident MB by tenth of the run."""
    command = [str(Path(sys.executable).with_name("gristmill")), "build", str(source), "--index", str(index), "--json"]
    command += [part for pattern in vectors_for for part in ("--vectors-for", pattern)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples: list[float] = []
    watcher = threading.Thread(target=watch, args=(process, samples))
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode not in (0, 3):
        raise SystemExit(f"the build ended with {process.returncode}")
    step = max(1, len(samples) // 10)
    return json.loads(output.splitlines()[-1]), [max(samples[i : i + step]) for i in range(0, len(samples), step)]


def watch(process: subprocess.Popen[str], samples: list[float]) -> None:
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            samples.append(
                next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
            )
        except (OSError, StopIteration):
            return
        time.sleep(0.5)


def show_seconds(report: dict[str, Any], size: int) -> None:
    seconds = report["seconds"]
    print("seconds: " + ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items()))
    for stage in ("parse", "chunk", "write"):
        print(f"  {stage}: {size / 1e6 / max(seconds[stage], 1e-9):.1f} MB/s")
    print(f"  embed: {report['work']['embedded'] / max(seconds['embed'], 1e-9):.1f} chunks/s")


def embedded_texts(index: Path) -> list[str]:
    from flows.searching import published
    from flows.settings import load_settings
    from indexes.revisions.generation import open_stores

    storage, pointer = published(load_settings(index=str(index)))
    table, _ = open_stores(storage, pointer)
    rows = (row for batch in table.rows(["prefix", "text"]) for row in batch.to_pylist())
    return [row["prefix"] + row["text"] for row in rows]


def model_alone(texts: list[str]) -> tuple[float, float]:
    """Seconds to load the model, and to embed the texts with the same runtime and batches."""
    from enrich.embedding.embedder import open_embedder
    from enrich.models.registry import ModelFolder, load_registry
    from flows.settings import load_settings

    settings = load_settings()
    embedder = open_embedder(
        settings.embedder, load_registry(), ModelFolder(settings.models_dir, settings.model_folders)
    )
    begun = time.perf_counter()
    embedder.encode(texts[:1])
    load = time.perf_counter() - begun
    begun = time.perf_counter()
    for start in range(0, len(texts), 512):
        embedder.encode(texts[start : start + 512])
    return load, time.perf_counter() - begun


def search_times(index: Path) -> None:
    from flows.searching import open_searcher
    from flows.settings import load_settings

    searcher = open_searcher(load_settings(index=str(index)), "hybrid")
    for mode in ("hybrid", "dense", "bm25"):
        searcher.search("warm up", mode)
        times = []
        for query in QUERIES * 4:
            begun = time.perf_counter()
            searcher.search(query, mode)
            times.append((time.perf_counter() - begun) * 1000)
        print(f"search {mode}: median {statistics.median(times):.1f} ms, worst {max(times):.1f} ms of {len(times)}")


if __name__ == "__main__":
    main()
