"""The table of runtimes, and how one is named: ``onnx``, or ``onnx:int8`` with a precision.

Invariants:
- Importing this module loads no runtime: each is imported when a model is loaded with it.
"""

from __future__ import annotations

from typing import Final

from enrich.embedding.runtime import Choice, Runtime, RuntimeKind, Weights
from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError


def _every_gpu(wanted: str | None) -> list[str | None]:
    """Return every GPU where GPUs are meant and there are several."""
    if wanted is not None and wanted != "cuda":
        return [wanted]
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{number}" for number in range(count)] if count > 1 else [wanted]


def _sentence_transformers(model: EmbedderModel, weights: Weights, precision: str, device: str | None) -> Runtime:
    from enrich.embedding.runtimes.sentence_transformers import SentenceTransformersRuntime

    return SentenceTransformersRuntime(model, weights.place, device, precision)


def _onnx(model: EmbedderModel, weights: Weights, precision: str, device: str | None) -> Runtime:
    from enrich.embedding.runtimes.onnx import OnnxRuntime

    return OnnxRuntime(model, weights, precision, device)


def _llama(model: EmbedderModel, weights: Weights, precision: str, device: str | None) -> Runtime:
    from enrich.embedding.runtimes.llama_cpp import GgufRuntime

    return GgufRuntime(model, weights, precision, device)


RUNTIMES: Final[dict[str, RuntimeKind]] = {
    "sentence-transformers": RuntimeKind(
        _sentence_transformers,
        ("fp32", "bf16", "fp16"),
        libraries=("sentence-transformers", "torch"),
        devices=_every_gpu,
    ),
    "onnx": RuntimeKind(_onnx, ("fp32", "int8"), ".onnx", ("onnxruntime",)),
    "llama.cpp": RuntimeKind(_llama, ("fp32", "fp16", "q8_0", "q4_k_m"), ".gguf", ("llama-cpp-python",)),
}


def choices(model: EmbedderModel) -> list[Choice]:
    """Return every runtime and precision that can run a model, its default first."""
    known = [name for name in model.runtimes if name in RUNTIMES]
    return [Choice(name, precision) for name in known for precision in RUNTIMES[name].precisions]


def choice(model: EmbedderModel, name: str | None = None) -> Choice:
    """Return the runtime and precision of a name such as ``onnx`` or ``llama.cpp:fp16``; None for the model's first.

    Raises:
        ModelError: when this model has no such runtime or precision.
    """
    known = choices(model)
    if name is None and known:
        return known[0]
    wanted = [one for one in known if name in (str(one), one.runtime)]
    if not wanted:
        raise ModelError(f"no runtime {name!r} for {model.name}", f"Known: {', '.join(map(str, known)) or 'none'}.")
    return wanted[0]
