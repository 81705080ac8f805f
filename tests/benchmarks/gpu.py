"""What gpu.sh packs and runs: rates of the embedder on a GPU, beside ``encode`` and the matrix rate, and parity with
the CPU. ``--device cpu --texts 64 --large tiny`` tries the same on any machine."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.append(os.environ.get("GRISTMILL_SITE", ""))

import msgspec
import torch

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder
from enrich.embedding.runtimes.sentence_transformers import SentenceTransformersRuntime
from enrich.embedding.tokenizer import TokenCutter
from enrich.models.registry import DEFAULT_EMBEDDER, EmbedderModel, ModelFile, ModelFolder, default_root, load_registry

LIMIT = 512  # tokens of the large model
SHAPES = {  # layers, width, heads, inner width: of BERT large and its kin (BGE large, E5 large)
    "large": (24, 1024, 16, 4096),
    "tiny": (2, 64, 4, 128),
}
FIXED = (32, 256)  # batches of `encode`: the library's default, and one that keeps a GPU busier
SIDE = 8192  # of the matrices whose product is timed


def pack(target: Path) -> None:
    """The default model with its weights halved, and the words of the texts."""
    from safetensors.torch import load_file, save_file

    model = load_registry().embedder(DEFAULT_EMBEDDER)
    place = ModelFolder(default_root()).find(model)
    for file in model.files:
        into = target / "model" / file.path
        into.parent.mkdir(parents=True, exist_ok=True)
        if file.role == "weights":
            tensors = load_file(place / file.path)
            save_file(
                {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()},
                into,
            )
        else:
            shutil.copy(place / file.path, into)


def widened(packed: Path, work: Path) -> Path:
    """The model's folder with single-precision weights again, as any version of the library reads them."""
    from safetensors.torch import load_file, save_file

    place = work / "model"
    shutil.copytree(packed / "model", place)
    weights = place / "model.safetensors"
    tensors = load_file(weights)
    save_file(
        {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()},
        weights,
        metadata={"format": "pt"},
    )
    return place


def large(place: Path, tokenizer: Path, shape: str) -> Path:
    """A model of real shape with random weights, in the layout of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer  # where older versions have them too
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(7)
    layers, width, heads, inner = SHAPES[shape]
    config = BertConfig(
        vocab_size=30522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, max_position_embeddings=LIMIT,
    )  # fmt: skip
    bare = place.with_name("bare")
    BertModel(config).save_pretrained(bare)
    PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=LIMIT,
    ).save_pretrained(bare)  # fmt: skip
    transformer = Transformer(str(bare), max_seq_length=LIMIT)
    SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode="mean")]).save(str(place))
    shutil.copy(tokenizer, place / "tokenizer.json")
    return place


def entry(place: Path, dimension: int, limit: int) -> EmbedderModel:
    """What the registry would say of a folder."""

    def file(name: str, role: str) -> ModelFile:
        data = (place / name).read_bytes()
        return ModelFile(path=name, size=len(data), sha256=sha256(data).hexdigest(), role=role)  # type: ignore[arg-type]

    return EmbedderModel(
        name=place.name, licence="", runtimes=("sentence-transformers",), dimension=dimension, limit=limit,
        pooling="mean", normalize=True, query_prefix="", passage_prefix="",
        files=(file("model.safetensors", "weights"), file("tokenizer.json", "tokenizer")),
    )  # fmt: skip


def opened(model: EmbedderModel, place: Path, device: str, precision: str, batch_tokens: int | None = None) -> Embedder:
    return Embedder(
        model,
        TokenCutter(place / "tokenizer.json", model.limit),
        lambda: [SentenceTransformersRuntime(model, place, device, precision)],
        batch_tokens,
    )


def texts(count: int, longest: int) -> list[str]:
    """Texts of a store's lengths: most of a chunk's, some short, none over the limit."""
    words = " ".join(word for own in parity._file()[1][:2] for word in own).split()
    chance = random.Random(7)
    return [
        f"{number} " + " ".join(chance.choices(words, k=max(3, int(longest * chance.betavariate(4, 2)))))
        for number in range(count)
    ]


def seconds(run: Callable[[], Any], device: str, rounds: int = 3) -> float:
    """The median of some rounds after one that warms up."""
    times = []
    for turn in range(rounds + 1):
        if device != "cpu":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        if turn:
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Floating-point operations a second of one large product."""
    side = SIDE if device != "cpu" else 512
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 * 10 / seconds(lambda: [a @ b for _ in range(10)], device)


def operations(place: Path, lengths: list[int]) -> float:
    """Of one pass over texts of these lengths: two for each weight of a matrix and token, and attention's own."""
    config = json.loads((place / "config.json").read_bytes())
    layers, width, inner = config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"]
    each = 2 * layers * (4 * width * width + 2 * width * inner)
    return float(sum(length * each + 4 * layers * width * length * length for length in lengths))


def race(
    name: str, model: EmbedderModel, place: Path, device: str, precisions: list[str], count: int
) -> list[dict[str, Any]]:
    """Rates of the embedder and of ``encode`` on the same texts."""
    from sentence_transformers import SentenceTransformer

    given = texts(count, int(model.limit * 0.8))
    tokens = opened(model, place, "cpu", "fp32").counts(given)
    lengths = [min(int(length), model.limit) for length in tokens]
    rows = []
    for precision in precisions:
        ours = opened(model, place, device, precision)
        took = seconds(lambda ours=ours: ours.encode(given), device)  # type: ignore[misc]
        row: dict[str, Any] = {
            "model": name, "precision": precision, "texts": count, "tokens": sum(lengths),
            "texts_per_second": count / took, "tokens_per_second": sum(lengths) / took,
        }  # fmt: skip
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        row["share_of_matrix_rate"] = operations(place, lengths) / took / matrix_rate(device, dtype)
        library = SentenceTransformer(str(place), device=device, local_files_only=True, model_kwargs={"dtype": dtype})
        library.max_seq_length = model.limit
        for size in FIXED:
            theirs = seconds(
                lambda library=library, size=size: library.encode(  # type: ignore[misc]
                    given, batch_size=size, normalize_embeddings=True, show_progress_bar=False
                ),
                device,
            )
            row[f"times_encode_{size}"] = theirs / took
        print(
            json.dumps({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}),
            flush=True,
        )
        rows.append(row)
        del ours, library
    return rows


def agreement(model: EmbedderModel, place: Path, device: str, precisions: list[str]) -> list[dict[str, Any]]:
    """CPU in single precision against the device in each."""
    reference = opened(model, place, "cpu", "fp32")
    chosen, under = parity.texts(reference), parity.conditions(reference)
    expected = parity.vectors_of(reference, chosen, under)
    rows = []
    for precision in precisions:
        vectors = parity.vectors_of(opened(model, place, device, precision), chosen, under)
        found = parity.compare_vectors("cpu fp32", f"{device} {precision}", chosen, expected, vectors)
        print(
            f"parity {found.a} / {found.b}: least {found.min:.6f}, {'same' if found.passed else found.reason}",
            flush=True,
        )
        rows.append(msgspec.to_builtins(found))
    return rows


def little_memory(model: EmbedderModel, place: Path) -> dict[str, Any]:
    """A batch that does not fit is halved, and the vectors are the same."""
    given = texts(3000, int(model.limit * 0.8))
    right = opened(model, place, "cuda", "fp32", 16384).encode(given).vectors
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 1.5 * 2**30 / total))
    try:
        tight = opened(model, place, "cuda", "fp32", 4_000_000)
        vectors = tight.encode(given).vectors
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    least = float(parity.cosines_of(right, vectors).min())
    print(
        f"out of memory: batches of 4,000,000 tokens became {tight._batch_tokens}, least cosine {least:.6f}", flush=True
    )
    return {"asked": 4_000_000, "became": tight._batch_tokens, "least": least}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pack", type=Path)
    arguments.add_argument("--run", type=Path)
    arguments.add_argument("--out", type=Path, default=Path())
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--texts", type=int, default=20_000)
    arguments.add_argument("--large", default="large", choices=SHAPES)
    given = arguments.parse_args()
    if given.pack:
        pack(given.pack)
        return
    gpu = given.device != "cpu"
    precisions = ["fp32", "bf16", "fp16"]
    racing = precisions if gpu else precisions[:1]
    with tempfile.TemporaryDirectory() as work:
        place = widened(given.run, Path(work))
        known = load_registry().embedder(DEFAULT_EMBEDDER)
        small = entry(place, known.dimension, known.limit)
        big_place = large(Path(work) / "large", place / "tokenizer.json", given.large)
        big = entry(big_place, SHAPES[given.large][1], LIMIT)
        found: dict[str, Any] = {
            "device": torch.cuda.get_device_name(0) if gpu else "cpu",
            "torch": torch.__version__,
            "matrix_tflops": {
                "bf16": matrix_rate(given.device, torch.bfloat16) / 1e12,
                "fp32": matrix_rate(given.device, torch.float32) / 1e12,
            },
        }
        print(json.dumps(found), flush=True)
        found["parity"] = agreement(small, place, given.device, precisions)
        found["default"] = race(DEFAULT_EMBEDDER, small, place, given.device, racing, given.texts)
        found["large"] = race("large", big, big_place, given.device, racing[-2:], given.texts // 5)
        if gpu:
            found["out_of_memory"] = little_memory(small, place)
    (given.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
