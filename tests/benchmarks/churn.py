"""What it costs to keep an index of a changing folder, and what is wrong in it afterwards, beside other libraries.

    python tests/benchmarks/churn.py --work .bench

One generated corpus and one script of changes; after each change every system brings its index up to date, in a process
of its own, with the same embedder. Three tables:

- texts given to the embedder ÷ the least possible. The least is counted from the system's own chunks: distinct texts
  that stand in its store after the step and stood there after no step before. 0 ÷ 0 is 1.00.
- faults: rows whose text does not stand in the document they name, or whose document is gone, or that are there twice;
  and documents without a row.
- seconds: the run without imports, and the whole process.

Each library is installed once below the work folder, from the package registry, some GB each; `--only` leaves some out.
haiku.rag needs Python 3.12; where the Python that runs this is older, name one with `--python`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from churn_corpus import Corpus
from churn_peers import MODEL, PEERS, Peer, Row

ROOT = Path(__file__).resolve().parents[2]
OURS = "Gristmill"
LIMIT = 3600
# Nothing is fetched and nothing is sent while it runs.
OFFLINE = {
    "ANONYMIZED_TELEMETRY": "False",
    "COCOINDEX_DISABLE_USAGE_TRACKING": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "LOGFIRE_IGNORE_NO_CONFIG": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass
class Run:
    """One build: texts embedded, seconds without imports, and texts embedded again only to check a sample."""

    embedded: int
    body: float
    whole: float = 0.0
    checked: int = 0


@dataclass
class Step:
    """What one build cost and left behind."""

    name: str
    embedded: int
    least: int
    checked: int
    rows: int
    stale: int
    missing: int
    body: float
    whole: float


class System(Protocol):
    def build(self, documents: Path, store: Path) -> Run: ...

    def rows(self, documents: Path, store: Path) -> list[Row]: ...


class Gristmill:
    """The command, as a user calls it; its JSON says what was embedded."""

    def build(self, documents: Path, store: Path) -> Run:
        command = [
            Path(sys.executable).with_name("gristmill"),
            "build",
            documents,
            "--index",
            store,
            "--json",
            "--quiet",
        ]
        made = _json_of(command, store)
        seconds = made["seconds"]
        again = re.search(r"(\d+) embedded again", str(made.get("checks", {}).get("vectors", "")))
        return Run(made["work"]["embedded"], seconds["total"] - seconds["start"], checked=int(again[1]) if again else 0)

    def rows(self, documents: Path, store: Path) -> list[Row]:
        from flows.searching import published
        from flows.settings import load_settings
        from indexes.revisions.generation import open_stores

        storage, pointer = published(load_settings(index=str(store)))
        table, _ = open_stores(storage, pointer)
        return [(row["key"], row["text"]) for batch in table.rows(["key", "text"]) for row in batch.to_pylist()]


class Library:
    """Another library, in a virtual environment of its own."""

    def __init__(self, name: str, model: Path, folder: Path, newer: str | None) -> None:
        self._name = name
        self._model = model
        self._python = _environment(PEERS[name], folder, newer)

    def build(self, documents: Path, store: Path) -> Run:
        made = _json_of(self._command("build", documents, store), store)
        return Run(made["embedded"], made["seconds"])

    def rows(self, documents: Path, store: Path) -> list[Row]:
        return [(key, text) for key, text in _json_of(self._command("rows", documents, store), store)]

    def _command(self, action: str, documents: Path, store: Path) -> list[str | Path]:
        script = Path(__file__).with_name("churn_peers.py")
        return [self._python, script, action, self._name, documents, store, self._model]


def main() -> None:
    arguments = _arguments()
    work = arguments.work.resolve()
    found: dict[str, list[Step]] = {}
    faults: dict[str, str] = {}
    for name in arguments.only or [OURS, *PEERS]:
        place = work / "churn" / re.sub(r"\W+", "-", name.lower())
        shutil.rmtree(place, ignore_errors=True)
        try:
            system = Gristmill() if name == OURS else Library(name, model_folder(), work / "peers", arguments.python)
            found[name] = measure(name, system, place, arguments.documents)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            faults[name] = str(error).strip()
        if arguments.json:
            write(arguments.json, arguments.documents, found, faults)
    print("\n" + report(found, faults))


def measure(name: str, system: System, place: Path, count: int) -> list[Step]:
    documents, store = place / "documents", place / "store"
    store.mkdir(parents=True)
    corpus = Corpus(documents, count)
    seen: set[str] = set()
    steps: list[Step] = []
    for label, change in corpus.steps():
        corpus.next_day()
        change()
        begin = time.perf_counter()
        run = system.build(documents, store)
        run.whole = time.perf_counter() - begin
        rows = system.rows(documents, store)
        new = {text for _, text in rows} - seen
        seen |= new
        stale, missing = check(rows, corpus.texts())
        steps.append(Step(label, run.embedded, len(new), run.checked, len(rows), stale, missing, run.body, run.whole))
        print(f"{name}: {label}: {json.dumps(asdict(steps[-1]))}", file=sys.stderr)
    return steps


def write(file: Path, count: int, found: dict[str, list[Step]], faults: dict[str, str]) -> None:
    systems = {name: [asdict(step) for step in steps] for name, steps in found.items()}
    kept = {"documents": count, "systems": systems, "not measured": faults}
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def check(rows: list[Row], texts: dict[str, str]) -> tuple[int, int]:
    """Rows that should not be there, and documents without one.

    Compared are words, line by line: a library may leave out Markdown's signs or the headings between.
    """
    words = {key: _words(text) for key, text in texts.items()}
    stale = sum(not _stands(text, words.get(key, "")) for key, text in rows)
    return stale + len(rows) - len(set(rows)), len(texts.keys() - {key for key, _ in rows})


def report(found: dict[str, list[Step]], faults: dict[str, str]) -> str:
    parts = [
        "Texts embedded ÷ the least possible (texts embedded):",
        _table(found, faults, lambda step: f"{_ratio(step.embedded, step.least)} ({step.embedded})"),
        "Stale rows + documents without a row:",
        _table(found, faults, lambda step: f"{step.stale} + {step.missing}"),
        "Seconds, without imports / the whole process:",
        _table(found, faults, lambda step: f"{step.body:.1f} / {step.whole:.1f}"),
    ]
    checked = sum(step.checked for step in found.get(OURS, []))
    if checked:
        parts.append(
            f"Not counted: {OURS}'s gate embedded {checked} texts again in all, to check a sample of its vectors."
        )
    parts += [f"{name} was not measured: {reason}" for name, reason in faults.items()]
    return "\n\n".join(parts)


def _table(found: dict[str, list[Step]], faults: dict[str, str], cell: Callable[[Step], str]) -> str:
    names = [step.name for step in next(iter(found.values()), [])]
    columns = [*(map(cell, steps) for steps in found.values()), *(["not measured"] * len(names) for _ in faults)]
    lines = [["step", *found, *faults], ["---"] * (len(columns) + 1), *zip(names, *columns, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio(embedded: int, least: int) -> str:
    if least:
        return f"{embedded / least:.2f}"
    return f"{embedded} too many" if embedded else "1.00"


def _words(text: str) -> str:
    words = " ".join(re.findall(r"[^\W_]+", text))
    return f" {words} "


def _stands(text: str, words: str) -> bool:
    return all(_words(line) in words for line in text.splitlines() if line.strip())


def _json_of(command: list[str | Path], store: Path) -> Any:
    """The last line of what a process prints, as JSON; its messages go to a file beside the store."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GRISTMILL_")}
    log = store.with_name("log.txt")
    with log.open("a") as messages:
        done = subprocess.run(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            timeout=LIMIT,
            cwd=store.parent,
            env=own | OFFLINE,
        )
    if done.returncode:
        tail = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"exit status {done.returncode}: {' '.join(tail)}")
    return json.loads(done.stdout.splitlines()[-1])


def _environment(peer: Peer, folder: Path, newer: str | None) -> Path:
    needs = (*MODEL, *peer.needs)
    home = folder / hashlib.sha256(repr((needs, peer.python)).encode()).hexdigest()[:12]
    python = home / "bin/python"
    if not (home / ".ready").exists():
        if sys.version_info >= peer.python:
            newer = sys.executable
        if newer is None:
            raise RuntimeError(f"it needs Python {'.'.join(map(str, peer.python))}: name one with --python")
        print(f"installing {', '.join(needs)}", file=sys.stderr)
        subprocess.run([newer, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qqq", *needs], check=True)
        (home / ".ready").touch()
    return python


def model_folder() -> Path:
    from enrich.models.registry import ModelFolder, load_registry
    from flows.settings import load_settings

    settings = load_settings()
    model = load_registry(*settings.model_files).embedder("all-MiniLM-L6-v2")
    return ModelFolder(settings.models_dir, settings.model_folders).find(model)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=ROOT / ".bench", help="a folder for libraries, documents and stores"
    )
    parser.add_argument("--documents", type=int, default=200, help="how many; 20 at least")
    parser.add_argument("--only", nargs="+", choices=(OURS, *PEERS), help="these systems, in this order")
    parser.add_argument("--python", help="a Python for libraries that need a newer one than this")
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
