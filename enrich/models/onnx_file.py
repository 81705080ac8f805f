"""Export an embedder as an ONNX graph, from token ids and mask to pooled vectors.

Invariants:
- The graph equals sentence-transformers' network and pooling in single precision, for any number and length of texts.
- ``int8`` is the same graph with matrices quantized dynamically by ONNX Runtime.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

import torch

from enrich.embedding.runtimes.sentence_transformers import network_of
from enrich.models.registry import EmbedderModel

OPSET: Final = 17
INPUTS: Final = ("input_ids", "attention_mask")
OUTPUT: Final = "sentence_embedding"


class _Pooled(torch.nn.Module):
    """The network's modules as one, with plain tensors in and out."""

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        super().__init__()
        self._chain = torch.nn.ModuleList(modules)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        for module in self._chain:
            features = module(features)
        vectors: torch.Tensor = features[OUTPUT]
        return vectors


def write_onnx(model: EmbedderModel, place: Path, target: Path, precision: str) -> None:
    """Write an ONNX graph.

    Args:
        model: the model.
        place: the model's folder.
        target: the file to write.
        precision: ``fp32`` or ``int8``.

    Raises:
        ModelError: when the folder cannot be loaded or does not match the registry.
        ImportError: when the library ``onnx`` is missing.
    """
    whole = target if precision == "fp32" else target.with_suffix(".whole")
    network = _Pooled(network_of(model, place, attention="eager"))
    example = torch.ones((2, 8), dtype=torch.int64)
    axes = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecation
        torch.onnx.export(
            network,
            (example, example),
            str(whole),
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes=dict.fromkeys(INPUTS, axes) | {OUTPUT: {0: "texts"}},
            opset_version=OPSET,
            dynamo=False,
        )
    if precision == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(whole, target, weight_type=QuantType.QInt8)
        whole.unlink()
