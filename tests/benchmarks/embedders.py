"""What the embedder decides: the same chunks under two models or more, as a build and an `evaluate` each.

    python tests/benchmarks/embedders.py DATA/bench/chunking OUT [--documents NAME …] [--models NAME …] [--most 60]

OUT takes an index a model; a second run makes no vector twice. The chunks are cut with the default ruler, whatever the
model, so that only the vectors differ. Prints a table in Markdown: recall by midpoint at 1/2/5/10/20 in %, the 95 %
interval at 10, MRR, nDCG@10, by mode; and how long a build took, model load included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEPTHS = ("1", "2", "5", "10", "20")
DOCUMENTS = ("state_of_the_union.md", "wikitexts.md")
MODELS = ("all-MiniLM-L6-v2", "multilingual-e5-small-4bit")
RULER = MODELS[0]


def main() -> None:
    arguments = _arguments()
    documents, golden, asked = _prepared(arguments)
    print(f"\n### {', '.join(sorted(arguments.documents))}: {asked} questions\n")
    print(f"| embedder | mode | @{'/'.join(DEPTHS)} | @10 lies in | MRR | nDCG@10 | chunks | build, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for model in arguments.models:
        index = ["--index", str(arguments.out / model)]
        started = time.monotonic()
        _gristmill(model, "build", str(documents), *index, "--no-notes", status=(0, 3))
        seconds = time.monotonic() - started
        found = _gristmill(model, "evaluate", str(golden), *index)
        for run in found["runs"]:
            curve = " / ".join(f"{run['recall'][depth] * 100:.1f}" for depth in DEPTHS)
            low, high = run["intervals"]["10"]
            print(
                f"| {model} | {run['mode']} | {curve} | {low * 100:.1f} to {high * 100:.1f} | {run['mrr']:.3f} "
                f"| {run['ndcg']:.3f} | {run['chunks']:,} | {seconds:.0f} |",
                flush=True,
            )


def _prepared(arguments: argparse.Namespace) -> tuple[Path, Path, int]:
    """The documents, the questions that they answer, evenly taken from all of those, and how many they are."""
    folder, golden = arguments.out / "documents", arguments.out / "golden.jsonl"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in arguments.documents:
        shutil.copyfile(arguments.data / "corpora" / name, folder / name)
    lines = (arguments.data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    fitting = [
        line for line in lines if {span["doc"] for span in json.loads(line)["spans"]} <= set(arguments.documents)
    ]
    step = max(1, -(-len(fitting) // arguments.most))
    golden.write_text("".join(f"{line}\n" for line in fitting[::step]), encoding="utf-8")
    return folder, golden, len(fitting[::step])


def _gristmill(model: str, *arguments: str, status: tuple[int, ...] = (0,)) -> dict[str, Any]:
    program = "from flows.cli import main; main()"
    command = [sys.executable, "-c", program, *arguments, "--json"]
    settings = {**os.environ, "GRISTMILL_EMBEDDER": model, "GRISTMILL_RULER": RULER}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=settings)
    if done.returncode not in status:
        sys.exit(f"gristmill {' '.join(arguments)} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", nargs="+", default=list(DOCUMENTS))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--most", type=int, default=60, help="questions at most")
    return parser.parse_args()


if __name__ == "__main__":
    main()
