"""Seconds and peak memory of parsing, cutting and embedded texts for files of many shapes.

Each file is read in a process of its own, with a time limit. ``python tests/benchmarks/linear.py --mb 1 20`` prints a
table; ``--kinds Thai table`` takes some of the shapes alone. The ruler is the default embedder's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from shapes import KINDS, generated


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=float, nargs="+", default=[1.0, 20.0])
    options.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    options.add_argument("--limit", type=float, default=600.0, help="seconds after which a file is given up")
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.kinds[0], int(chosen.mb[0] * 1e6))))
        return
    print("| shape | MB | parse s | cut s | peak MB | chunks | status |\n|---|---|---|---|---|---|---|", flush=True)
    for kind in chosen.kinds:
        for size in chosen.mb:
            print(row(kind, size, chosen.limit), flush=True)


def row(kind: str, size: float, limit: float) -> str:
    """A line of the table, from a fresh process."""
    command = [sys.executable, __file__, "--one", "--mb", str(size), "--kinds", kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"| {kind} | {size:g} | over {limit:g} s | | | | |"
    if done.returncode:
        return f"| {kind} | {size:g} | failed: {done.stderr.strip().splitlines()[-1][:80]} | | | | |"
    found = json.loads(done.stdout)
    return "| {kind} | {size:g} | {parse:.1f} | {cut:.1f} | {peak:.0f} | {chunks} | {status} |".format(
        kind=kind, size=size, **found
    )


def measured(kind: str, size: int) -> dict[str, float | int | str]:
    """Seconds of processor time, the peak of memory above that of the libraries and the file, and what came of it."""
    from chunker.chunk import embedded_text
    from chunker.split import ChunkerSettings, cut
    from chunker.tokens import Ruler
    from enrich.models.registry import ModelFolder, load_registry
    from flows.settings import load_settings
    from parsers.registry import read

    settings = load_settings()
    model = load_registry(*settings.model_files).embedder(settings.ruler)
    folder = ModelFolder(settings.models_dir, settings.model_folders).find(model)
    ruler = Ruler(folder / model.tokenizer.path, limit=model.limit)
    name, data = generated(kind, size)
    read(name, data[:1_000])
    before = peak()
    begin = time.process_time()
    document = read(name, data)
    parsed = time.process_time()
    chunks = characters = 0
    for chunk in cut(document, document.title or name, ruler, ChunkerSettings()):
        chunks += 1
        characters += len(embedded_text("", chunk))
    done = time.process_time()
    return {
        "parse": parsed - begin,
        "cut": done - parsed,
        "peak": peak() - before,
        "chunks": chunks,
        "status": document.status,
    }


def peak() -> float:
    """The peak of this process's memory, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
