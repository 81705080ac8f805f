"""How fast texts are cut, with token counts: megabytes a second on one core, beside other splitters and the tokenizer.

    python tests/benchmarks/throughput.py ../shared/corpora/ancient-history/books --work .bench

The same books, as text, go to every splitter; all count with the default embedder's tokenizer and make chunks of at
most as many tokens. Each run is a process of its own, all in turn, three rounds; printed are medians of processor
time. The limit is the tokenizer alone, each paragraph once. Gristmill begins with a parsed document, its memory of
words empty.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from environments import ONE_CORE, Peers
from peers import REQUIREMENTS

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
BOOKS = ("10657.txt", "1174.txt", "16161.txt")


def main() -> None:
    arguments = _arguments()
    if arguments.only:
        print(json.dumps(own(arguments.only, arguments.books)))
        return
    from flows.models.ruler import open_ruler
    from flows.settings import load_settings
    from parsers.registry import read

    settings = load_settings()
    ruler = open_ruler(settings)
    texts = [read(name, (arguments.books / name).read_bytes()).text for name in BOOKS]
    size = sum(len(text.encode()) for text in texts) / 1e6
    budget = ruler.room - settings.note_reserve
    peers = Peers(arguments.work / "peers", tokenizer_file())
    seconds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name in ("limit", "Gristmill"):
            seconds.setdefault(name, []).append(itself(name, arguments.books))
        for name in REQUIREMENTS:
            seconds.setdefault(name, []).append(peers.split(name, budget, texts)["seconds"])
    limit = size / statistics.median(seconds["limit"])
    print(f"\n{size:.1f} MB of {len(BOOKS)} books, chunks of up to {budget} tokens, medians of {ROUNDS}\n")
    print("| splitter | MB/s | of the limit |")
    print("| --- | --- | --- |")
    for name, taken in sorted(seconds.items(), key=lambda item: statistics.median(item[1])):
        rate = size / statistics.median(taken)
        label = "tokenizing each paragraph once (the limit)" if name == "limit" else name
        print(f"| {label} | {rate:.2f} | {rate / limit * 100:.0f} % |")


def itself(name: str, books: Path) -> float:
    command = [sys.executable, __file__, str(books), "--only", name]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | ONE_CORE, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def own(what: str, books: Path) -> float:
    """Processor seconds of Gristmill's chunker, or of the tokenizer alone on the same paragraphs."""
    from chunker.blocks import regions
    from chunker.kept import Kept
    from chunker.split import split
    from flows.models.ruler import chunker_settings, open_ruler
    from flows.settings import load_settings
    from parsers.registry import read

    settings = load_settings()
    ruler, how = open_ruler(settings), chunker_settings(settings)
    documents = [read(name, (books / name).read_bytes()) for name in BOOKS]
    if what == "Gristmill":
        begin = time.process_time()
        for name, document in zip(BOOKS, documents, strict=True):
            split(document, document.title or name, ruler, how)
        return time.process_time() - begin
    parts = [
        kept.text[unit.start : unit.end]
        for document, kept in zip(documents, map(Kept, documents), strict=True)
        for region in regions(document, kept, "")
        for unit in region.units
    ]
    begin = time.process_time()
    for part in parts:
        ruler.encode(part)
    return time.process_time() - begin


def tokenizer_file() -> Path:
    from enrich.models.registry import ModelFolder, load_registry
    from flows.settings import load_settings

    settings = load_settings()
    model = load_registry(*settings.model_files).embedder(settings.ruler)
    return ModelFolder(settings.models_dir, settings.model_folders).find(model) / model.tokenizer.path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", type=Path)
    parser.add_argument("--work", type=Path, default=ROOT / ".bench", help="a folder for the other libraries")
    parser.add_argument("--only", choices=("limit", "Gristmill"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
