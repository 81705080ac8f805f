"""The runtimes that can run an embedder, and how one is named: ``onnx``, or ``onnx:int8`` with a precision.

Invariants:
- A runtime turns token ids into vectors and decides nothing else.
- What it is, down to the hash of the file it reads, is its provenance.
- Importing this module loads no runtime.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError

Vectors = NDArray[np.float32]


class OutOfMemory(Exception):
    """A batch did not fit into the device's memory; a smaller one may."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a vector; recorded for each batch, and not part of the fingerprint.

    Attributes:
        runtime: its name in :data:`RUNTIMES`.
        precision: of the weights and the arithmetic: ``fp32``, ``bf16``, …
        device: ``cpu``, or ``cuda`` and the name of the GPU.
        libraries: versions by name of the libraries that compute.
        file: SHA-256 of the converted file; empty if the model's own weights are read.
    """

    runtime: str
    precision: str
    device: str
    libraries: dict[str, str]
    file: str = ""

    @property
    def id(self) -> str:
        """16 hexadecimal digits that differ when any attribute does."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


class Runtime(Protocol):
    """Runs a model."""

    @property
    def provenance(self) -> Provenance:
        """Provenance of its vectors."""

    def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """Return the pooled vectors, (n, full dimension) in float32, of n lists of token ids with their special tokens.

        Raises:
            OutOfMemory: when a smaller batch may fit.
        """


class Weights(NamedTuple):
    """Files that a runtime loads.

    Attributes:
        place: the model's folder, or the file converted from it.
        sha256: of that file; empty for the folder, whose files the registry knows.
    """

    place: Path
    sha256: str = ""


# The model, what to load of it, a precision, and the device that the caller wants (None: the best there is).
Loader = Callable[[EmbedderModel, Weights, str, str | None], Runtime]


def _as_wanted(wanted: str | None) -> list[str | None]:
    return [wanted]


def _every_gpu(wanted: str | None) -> list[str | None]:
    """Return every GPU if GPUs are wanted and there are several."""
    if wanted is not None and wanted != "cuda":
        return [wanted]
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{number}" for number in range(count)] if count > 1 else [wanted]


@dataclass(frozen=True, slots=True)
class RuntimeKind:
    """A runtime that is known.

    Attributes:
        load: loads a model.
        precisions: of weights and arithmetic that it can run; the first is the default.
        converted: ending of the file that it needs, such as ``.gguf``; empty where it reads the model's own folder.
        libraries: distributions that it cannot do without.
        devices: the devices that each get a runtime of their own, for what the caller wants.
    """

    load: Loader
    precisions: tuple[str, ...] = ("fp32",)
    converted: str = ""
    libraries: tuple[str, ...] = ()
    devices: Callable[[str | None], list[str | None]] = _as_wanted


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


class Choice(msgspec.Struct, frozen=True, order=True):
    """A runtime and a precision."""

    runtime: str
    precision: str

    def __str__(self) -> str:
        return f"{self.runtime}:{self.precision}"


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


def versions(names: Sequence[str]) -> dict[str, str]:
    """Return the installed versions of libraries, by name; those that are not installed are left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
