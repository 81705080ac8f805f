"""Chunks a second of every runtime that is installed, beside ``SentenceTransformer.encode``, on the same texts.

    python tests/benchmarks/runtimes.py BOOK [--chunks 128] [--embedder NAME]

All take turns in one run; medians of three rounds. The runtimes are converted first, where that is not done.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chunker.chunk import embedded_text
from chunker.split import split
from enrich.embedding.embedder import open_embedder
from enrich.embedding.runtimes.registry import RUNTIMES, choices
from enrich.models.conversion import convert_model
from enrich.models.registry import DEFAULT_EMBEDDER, ModelFolder, default_root, load_registry
from flows.models.ruler import chunker_settings, open_ruler
from flows.models.runtime_choice import QUANTIZED
from flows.settings import load_settings
from parsers import registry as parsers
from parsers.errors import ModelError

ROUNDS = 3


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("book", type=Path)
    arguments.add_argument("--chunks", type=int, default=128)
    arguments.add_argument("--embedder", default=DEFAULT_EMBEDDER)
    given = arguments.parse_args()

    registry, folder = load_registry(), ModelFolder(default_root())
    model = registry.embedder(given.embedder)
    settings = load_settings(ruler=given.embedder)
    document = parsers.read(given.book.name, given.book.read_bytes())
    cut = split(document, given.book.stem, open_ruler(settings), chunker_settings(settings))
    step = max(1, len(cut) // given.chunks)
    texts = [embedded_text("", one) for one in cut[::step]][: given.chunks]

    racing: dict[str, Callable[[], Any]] = {}
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(folder.find(model)), device="cpu", local_files_only=True)
    library.max_seq_length = model.limit
    prefixed = [model.passage_prefix + text for text in texts]
    racing["encode"] = lambda: library.encode(prefixed, normalize_embeddings=True, show_progress_bar=False)
    for one in choices(model):
        if one.precision in QUANTIZED or (one.precision != "fp32" and one.runtime == "sentence-transformers"):
            continue  # the latter by `gristmill doctor --choose`: a fifth of fp32 where the processor has no bf16
        try:
            if RUNTIMES[one.runtime].converted:
                convert_model(model, one, folder)
            embedder = open_embedder(model.name, registry, folder, runtime=str(one), device="cpu")
            embedder.load()
        except ModelError as error:
            print(f"left out {one}: {error}")
            continue
        racing[str(one)] = lambda embedder=embedder: embedder.encode(texts)  # type: ignore[misc]
    took: dict[str, list[float]] = {name: [] for name in racing}
    for turn in range(ROUNDS + 1):
        for name, run in racing.items():
            begun = time.perf_counter()
            run()
            if turn:
                took[name].append(time.perf_counter() - begun)
    base = statistics.median(took["encode"])
    tokens = open_embedder(model.name, registry, folder, device="cpu").counts(texts)
    print(f"{model.name}: {len(texts)} chunks of {tokens.mean():.0f} tokens from {given.book.name}")
    print("| runtime | chunks/s | times encode |\n| --- | --- | --- |")
    for name, times in took.items():
        middle = statistics.median(times)
        print(f"| {name} | {len(texts) / middle:.1f} | {base / middle:.2f} |")


if __name__ == "__main__":
    main()
