"""How well chunks hold the answers: Gristmill's and other splitters', on Chroma's chunking evaluation.

    python tests/benchmarks/chunking.py ../shared/bench/chunking --work .bench

Five corpora, 326 questions with the `[start, end)` of what answers them. Every splitter counts with the default
embedder's tokenizer, and is given the size at which its mean chunk has MEAN tokens, as nearly as it can. Chunks of
all corpora are ranked together by the cosine to the question. Recall is the share of the answer's characters that was
returned, precision the share of what was returned that answers, IoU what both have in common by what either has; each
for the first five chunks, and for the first BUDGET characters of the ranking. Means in %, with the 95 % bootstrap
interval of recall, and the paired difference to LangChain's. Vectors are kept in WORK.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from environments import Peers
from peers import REQUIREMENTS
from throughput import tokenizer_file

from chunker.chunk import Chunk, embedded_text
from chunker.split import split
from chunker.tokens import Ruler
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.models.registry import ModelFolder, load_registry
from flows.models.ruler import chunker_settings, open_ruler
from flows.settings import Settings, load_settings
from indexes.evaluation.metrics import interval
from parsers.registry import read

BUDGET = 3_500  # characters; five chunks of LangChain's default benchmark size return as many
Place = tuple[str, int, int]  # corpus, start, end


class Vectors:
    """Vectors of texts, kept in a file between runs."""

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self._embedder = embedder
        self._path = path
        self._known: dict[str, Any] = {}
        if path.exists():
            with np.load(path) as file:
                self._known = dict(zip(file["names"].tolist(), file["vectors"], strict=True))

    def of(self, texts: Sequence[str], kind: str = "passage") -> Any:
        """(n, dimension), float32."""
        names = [hashlib.sha256(f"{kind}:{text}".encode()).hexdigest() for text in texts]
        new = [index for index, name in enumerate(names) if name not in self._known]
        for start in range(0, len(new), 500):
            part = new[start : start + 500]
            made = self._embedder.encode([texts[index] for index in part], kind).vectors  # type: ignore[arg-type]
            self._known.update({names[index]: row for index, row in zip(part, made, strict=True)})
            np.savez(self._path, names=np.array(list(self._known)), vectors=np.stack(list(self._known.values())))
        return np.stack([self._known[name] for name in names])


def main() -> None:
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    settings = load_settings()
    ruler = open_ruler(settings)
    corpora = {path.name: path.read_bytes() for path in sorted((arguments.data / "corpora").iterdir())}
    lines = (arguments.data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    embedder = open_embedder(
        settings.embedder,
        load_registry(*settings.model_files),
        ModelFolder(settings.models_dir, settings.model_folders),
    )
    kept = hashlib.sha256(embedder.fingerprint.encode()).hexdigest()[:12]
    vectors = Vectors(embedder, arguments.work / f"chunking-{kept}.npz")
    asked = vectors.of([one["question"] for one in questions], "query")
    wanted = arguments.mean
    cuts = own(settings, corpora, wanted)
    peers = Peers(arguments.work / "peers", tokenizer_file())
    for name in REQUIREMENTS:
        cuts[name] = sized(peers, name, ruler, corpora, wanted)
    print(f"\n{len(questions)} questions, {len(corpora)} corpora, mean chunk {wanted:.1f} tokens\n")
    print(f"| splitter | chunks | mean tokens | recall@5 | precision | IoU | characters | recall in {BUDGET:,} | IoU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    recalls: dict[str, list[float]] = {}
    for name, chunks in cuts.items():
        scores = scored(questions, asked, vectors, chunks)
        recalls[name] = [one["recall_budget"] for one in scores]
        print(row(name, chunks, scores, mean_tokens(ruler, chunks, corpora)), flush=True)
    base = recalls["LangChain recursive"]
    for name, found in recalls.items():
        differences = [a - b for a, b in zip(found, base, strict=True)]
        low, high = interval(differences)
        print(
            f"- {name} less LangChain, recall in {BUDGET:,} characters: {statistics.fmean(differences) * 100:+.1f} "
            f"points ({low * 100:+.1f} to {high * 100:+.1f})"
        )


def own(settings: Settings, corpora: dict[str, bytes], wanted: float) -> dict[str, list[tuple[Place, str]]]:
    """Gristmill's chunks, each with the text that is embedded for it, and without what stands before its own."""
    documents = {name: read(name, data) for name, data in corpora.items()}
    low, high = settings.note_reserve + 64, open_ruler(settings).limit
    best: tuple[float, list[tuple[str, Chunk]]] = (float("inf"), [])
    while low <= high:
        limit = (low + high) // 2
        ruler = open_ruler(settings, limit)
        chunks = [
            (name, chunk)
            for name, document in documents.items()
            for chunk in split(document, document.title or name, ruler, chunker_settings(settings))
        ]
        mean = statistics.fmean(chunk.tokens for _, chunk in chunks)
        best = min(best, (abs(mean - wanted), chunks), key=lambda pair: pair[0])
        low, high = (limit + 1, high) if mean < wanted else (low, limit - 1)
    places = [((name, chunk.start, chunk.end), chunk) for name, chunk in best[1]]
    return {
        "Gristmill": [(place, embedded_text("", chunk)) for place, chunk in places],
        "Gristmill, bare": [(place, chunk.text) for place, chunk in places],
    }


def sized(peers: Peers, name: str, ruler: Ruler, corpora: dict[str, bytes], wanted: float) -> list[tuple[Place, str]]:
    """A splitter's chunks at the size that makes them as long as wanted, by bisection."""
    texts = {key: data.decode("utf-8") for key, data in corpora.items()}
    low, high = 16, ruler.room
    best: tuple[float, list[tuple[Place, str]]] = (float("inf"), [])
    while low <= high:
        size = (low + high) // 2
        spans = peers.split(name, size, list(texts.values()))["spans"]
        chunks = [
            ((key, start, end), text[start:end])
            for (key, text), own_spans in zip(texts.items(), spans, strict=True)
            for start, end in own_spans
            if text[start:end].strip()
        ]
        mean = mean_tokens(ruler, chunks, corpora)
        best = min(best, (abs(mean - wanted), chunks), key=lambda pair: pair[0])
        low, high = (size + 1, high) if mean < wanted else (low, size - 1)
    return best[1]


def mean_tokens(ruler: Ruler, chunks: list[tuple[Place, str]], corpora: dict[str, bytes]) -> float:
    texts = {key: data.decode("utf-8") for key, data in corpora.items()}
    return statistics.fmean(ruler.count(texts[doc][start:end]) for (doc, start, end), _ in chunks)


def scored(
    questions: list[dict[str, Any]], asked: Any, vectors: Vectors, chunks: list[tuple[Place, str]]
) -> list[dict[str, float]]:
    ranked = np.argsort(-(asked @ vectors.of([text for _, text in chunks]).T), axis=1, kind="stable")
    scores = []
    for question, order in zip(questions, ranked, strict=True):
        gold = [(span["doc"], span["start"], span["end"]) for span in question["spans"]]
        five = [chunks[index][0] for index in order[:5]]
        budget: list[Place] = []
        left = BUDGET
        for index in order:
            doc, start, end = chunks[index][0]
            budget.append((doc, start, min(end, start + left)))
            left -= min(end - start, left)
            if not left:
                break
        recall, precision, iou = overlap(gold, five)
        recall_budget, _, iou_budget = overlap(gold, budget)
        characters = float(sum(end - start for _, start, end in five))
        scores.append(
            {
                "recall": recall,
                "precision": precision,
                "iou": iou,
                "characters": characters,
                "recall_budget": recall_budget,
                "iou_budget": iou_budget,
            }
        )
    return scores


def overlap(gold: list[Place], given: list[Place]) -> tuple[float, float, float]:
    """Recall, precision and IoU, in characters."""
    wanted = {(doc, at) for doc, start, end in gold for at in range(start, end)}
    got = {(doc, at) for doc, start, end in given for at in range(start, end)}
    shared = len(wanted & got)
    return shared / len(wanted), shared / len(got) if got else 0.0, shared / len(wanted | got)


def row(name: str, chunks: list[tuple[Place, str]], scores: list[dict[str, float]], tokens: float) -> str:
    mean = {key: statistics.fmean(one[key] for one in scores) for key in scores[0]}
    low, high = interval([one["recall"] for one in scores])
    return (
        f"| {name} | {len(chunks):,} | {tokens:.0f} | {mean['recall'] * 100:.1f} ({low * 100:.0f} to {high * 100:.0f}) "
        f"| {mean['precision'] * 100:.1f} | {mean['iou'] * 100:.1f} | {mean['characters']:,.0f} "
        f"| {mean['recall_budget'] * 100:.1f} | {mean['iou_budget'] * 100:.1f} |"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--work", type=Path, default=Path(".bench"), help="a folder for vectors and the other libraries"
    )
    parser.add_argument("--mean", type=float, default=154, help="tokens of the mean chunk")
    return parser.parse_args()


if __name__ == "__main__":
    main()
