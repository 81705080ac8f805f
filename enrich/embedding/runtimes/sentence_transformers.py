"""Run a model's own folder with PyTorch: the runtime ``sentence-transformers``.

Invariants:
- Nothing is downloaded.
- The folder's own pooling must be the one that the registry names.
- The model gets exactly the given token ids.
- Normalization is left to the embedder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers.utils import logging as transformers_logging

from enrich.embedding.padding import padded
from enrich.embedding.runtime import OutOfMemory, Provenance, Vectors, versions
from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError

Network = TypeVar("Network", bound=torch.nn.Module)
_LIBRARIES: Final = ("sentence-transformers", "torch", "transformers")
PRECISIONS: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class SentenceTransformersRuntime:
    """A model loaded from a folder in the layout of sentence-transformers.

    Args:
        model: its entry in the registry.
        folder: the folder with its verified files.
        device: as PyTorch names it; None for a GPU if there is one.
        precision: of weights and arithmetic; a name in :data:`PRECISIONS`.

    Raises:
        ModelError: when the folder cannot be loaded or is not what the registry says.
    """

    def __init__(self, model: EmbedderModel, folder: Path, device: str | None = None, precision: str = "fp32") -> None:
        self._device: Final = torch_device(device)
        network = _checked_network(model, folder, self._device, PRECISIONS[precision])
        self._modules: Final = [module for module in network if not isinstance(module, Normalize)]
        # Models that number positions from the padding id (RoBERTa's kin) would be wrong with any other.
        self._padding: Final = int(getattr(_config(network), "pad_token_id", None) or 0)
        self._provenance: Final = Provenance(
            runtime="sentence-transformers",
            precision=precision,
            device=_device_name(self._device),
            libraries=versions(_LIBRARIES),
        )

    @property
    def provenance(self) -> Provenance:
        """Provenance of the vectors."""
        return self._provenance

    def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """Return the pooled vectors of n lists of token ids: (n, full dimension) in float32.

        The lists hold the special tokens.
        """
        ids, mask = (torch.from_numpy(array) for array in padded(batch, self._padding))
        if self._device.type == "cuda":
            ids, mask = ids.pin_memory(), mask.pin_memory()
        try:
            with torch.inference_mode():
                features: dict[str, Any] = {
                    "input_ids": ids.to(self._device, non_blocking=True),
                    "attention_mask": mask.to(self._device, non_blocking=True),
                }
                for module in self._modules:
                    features = module(features)
                vectors: Vectors = features["sentence_embedding"].float().cpu().numpy()
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemory(str(error).split("\n")[0]) from error
        return vectors


def load_offline(
    kind: Callable[..., Network],
    folder: Path,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    attention: str | None = None,
) -> Network:
    """Load a network of sentence-transformers offline, without running code of its folder."""
    options = {"dtype": dtype} | ({"attn_implementation": attention} if attention else {})
    with no_progress_bar():
        network = kind(
            str(folder), device=str(device), local_files_only=True, trust_remote_code=False, model_kwargs=options
        )
    network.eval()
    return network


def network_of(model: EmbedderModel, folder: Path, attention: str | None = None) -> list[torch.nn.Module]:
    """Return the modules of a model up to its pooling, on the CPU in single precision.

    Args:
        model: the model.
        folder: the folder with its files.
        attention: an implementation by its name in transformers; None for the library's choice.

    Raises:
        ModelError: when the folder cannot be loaded or does not match the registry.
    """
    network = _checked_network(model, folder, torch.device("cpu"), torch.float32, attention)
    return [module for module in network if not isinstance(module, Normalize)]


def _checked_network(
    model: EmbedderModel, folder: Path, device: torch.device, dtype: torch.dtype, attention: str | None = None
) -> SentenceTransformer:
    """Return the network; raise if pooling, dimension or maximum input differ from the registry."""
    try:
        network = load_offline(SentenceTransformer, folder, device, dtype, attention)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            f"{model.name} in {folder} cannot be loaded by sentence-transformers: {error}",
            "Check the registry's list of its files, and that its version of the library can read it.",
        ) from error
    poolings = [module.pooling_mode for module in network if isinstance(module, Pooling)]
    if poolings != [model.pooling]:
        raise ModelError(f"{model.name} in {folder}: expected pooling {model.pooling!r}, got {poolings}")
    dimension = network.get_embedding_dimension()
    if dimension != model.full:
        raise ModelError(f"{model.name} in {folder}: expected dimension {model.full}, got {dimension}")
    longest = getattr(_config(network), "max_position_embeddings", None)
    if longest is not None and longest < model.limit:
        raise ModelError(f"{model.name} in {folder}: its limit is {model.limit}, and it has only {longest} positions")
    return network


def _config(network: SentenceTransformer) -> object:
    """Return the transformer's configuration; of a model without one, nothing."""
    return next((module.auto_model.config for module in network if isinstance(module, Transformer)), None)


def torch_device(wanted: str | None) -> torch.device:
    """Return a device by its name; None for a GPU where there is one.

    Raises:
        ModelError: when there is no such device here.
    """
    try:
        device = torch.device(wanted or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise ModelError(f"unknown device {wanted!r}", "Use `cpu` or `cuda`.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {wanted!r} is asked for, and PyTorch finds no GPU", "Use `cpu`, or none.")
    return device


def _device_name(device: torch.device) -> str:
    return f"cuda {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Disable the library's progress bar on standard error."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
