"""What the index finds: the ladder on sets of questions, each as one build and one `evaluate --ablate`.

    python tests/benchmarks/quality.py DATA OUT [--only demo codebase limit history excerpts] [--notes llm]
        [--documents N]

DATA is the folder with `bench/` and `corpora/`; OUT takes indexes, report pages and records, and a second run makes no
vector twice. Prints a table in Markdown a set: recall by midpoint at 1/2/5/10/20/50 in %, the 95 % interval at 10, full
cover at 10, MRR, nDCG@10. With `--documents` only the first so many of a set, by name, and the questions that they
answer: notes by an LLM cost seconds each. `GRISTMILL_LLM` names another one.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = 700  # characters of a book before and after an answer
DEPTHS = ("1", "2", "5", "10", "20", "50")
# 7.6 MB of the 64 MB that hold gold: all of the questions whose answers lie in these nine books.
HISTORY = ("10907", "16161", "16165", "2456", "2850", "44125", "68680", "7524", "900002")

Prepared = tuple[Path, Path]  # documents, golden set


def main() -> None:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        documents, golden = SETS[name](arguments.data, arguments.out)
        if arguments.documents:
            name = f"{name}-{arguments.documents}"
            documents, golden = _first(arguments.documents, documents, golden, arguments.out / name)
        index = arguments.out / f"{name}-index"
        notes = ["--notes", arguments.notes] if arguments.notes == "llm" else []
        _gristmill("build", str(documents), "--index", str(index), *notes, status=(0, 3))
        page = arguments.out / f"{name}.html"
        ladder = ["--ablate", *notes] if not name.startswith("limit") else []
        found = _gristmill("evaluate", str(golden), "--index", str(index), "--html", str(page), *ladder)
        _print(name, found)


def _demo(data: Path, out: Path) -> Prepared:
    return ROOT / "infra/demo/docs", ROOT / "infra/demo/golden.jsonl"


def _codebase(data: Path, out: Path) -> Prepared:
    return _unpacked(data / "bench/codebase", out / "codebase"), data / "bench/codebase/questions.jsonl"


def _limit(data: Path, out: Path) -> Prepared:
    return _unpacked(data / "bench/limit-small", out / "limit"), data / "bench/limit-small/questions.jsonl"


def _history(data: Path, out: Path) -> Prepared:
    """The books of the subset, and the questions that they answer or that nothing answers."""
    folder, golden = out / "history", out / "history.jsonl"
    folder.mkdir(exist_ok=True)
    names = {f"{number}.txt" for number in HISTORY}
    for name in sorted(names):
        if not (folder / name).exists():
            shutil.copyfile(data / "corpora/ancient-history/books" / name, folder / name)
    lines = (data / "corpora/ancient-history/golden.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if {span["doc"] for span in json.loads(line)["spans"]} <= names]
    golden.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return folder, golden


def _excerpts(data: Path, out: Path) -> Prepared:
    """Pages of the books around the answers to questions that one or two places answer: a size for an LLM's notes."""
    books, folder, golden = data / "corpora/ancient-history", out / "excerpts", out / "excerpts.jsonl"
    folder.mkdir(exist_ok=True)
    kept = []
    for line in (books / "golden.jsonl").read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        if len(question["spans"]) not in (1, 2):
            continue
        for span in question["spans"]:
            text = (books / "books" / span["doc"]).read_text(encoding="utf-8")
            found = re.search(r"\s+".join(map(re.escape, span["quote"].split())), text)
            if found is None:
                break
            start = text.rfind("\n", 0, max(0, found.start() - PAGE)) + 1
            end = text.find("\n", found.end() + PAGE)
            span["doc"] = f"{Path(span['doc']).stem}-{start}.txt"
            (folder / span["doc"]).write_text(text[start:end].strip("\n") + "\n", encoding="utf-8")
        else:
            kept.append(json.dumps(question))
    golden.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return folder, golden


def _first(count: int, documents: Path, golden: Path, folder: Path) -> Prepared:
    """So many of the documents, and the questions that they answer."""
    fewer = folder.with_name(f"{folder.name}.jsonl")
    folder.mkdir(exist_ok=True)
    kept = sorted(path for path in documents.rglob("*") if path.is_file())[:count]
    for path in kept:
        target = folder / path.relative_to(documents)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copyfile(path, target)
    names = {path.relative_to(documents).as_posix() for path in kept}
    lines = golden.read_text(encoding="utf-8").splitlines()
    answered = [line for line in lines if {span["doc"] for span in json.loads(line)["spans"]} <= names]
    fewer.write_text("".join(f"{line}\n" for line in answered), encoding="utf-8")
    return folder, fewer


SETS: dict[str, Callable[[Path, Path], Prepared]] = {
    "demo": _demo,
    "codebase": _codebase,
    "limit": _limit,
    "history": _history,
    "excerpts": _excerpts,
}


def _unpacked(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for line in (source / "documents.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        path = folder / document["key"]
        if not path.exists():
            path.write_text(document["text"], encoding="utf-8", newline="")
    return folder


def _gristmill(*arguments: str, status: tuple[int, ...] = (0,)) -> dict[str, Any]:
    program = "from flows.cli import main; main()"
    command = [sys.executable, "-c", program, *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode not in status:
        sys.exit(f"gristmill {' '.join(arguments)} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _print(name: str, found: dict[str, Any]) -> None:
    runs = found["runs"]
    print(f"\n### {name}: {runs[0]['n']} questions, {runs[0]['chunks']:,} chunks of {runs[0]['mean_tokens']} tokens\n")
    print(f"| embedded text | mode | @{'/'.join(DEPTHS)} | @10 lies in | full @10 | MRR | nDCG@10 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for run in runs:
        curve = " / ".join(f"{run['recall'][depth] * 100:.1f}" for depth in DEPTHS)
        low, high = run["intervals"]["10"]
        print(
            f"| {run['variant']} | {run['mode']} | {curve} | {low * 100:.1f} to {high * 100:.1f} "
            f"| {run['full_recall']['10'] * 100:.1f} | {run['mrr']:.3f} | {run['ndcg']:.3f} |"
        )
    print()
    for line in found["reading"]:
        print(f"- {line}")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=[name for name in SETS if name != "excerpts"])
    parser.add_argument("--notes", choices=("none", "llm"), default="none", help="llm: a rung with the LLM's notes")
    parser.add_argument("--documents", type=int, help="of each set only the first so many")
    return parser.parse_args()


if __name__ == "__main__":
    main()
