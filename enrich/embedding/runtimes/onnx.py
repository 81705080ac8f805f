"""Run a converted graph with ONNX Runtime: the runtime ``onnx``.

Invariants:
- The model gets exactly the given token ids.
- Normalization is left to the embedder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from enrich.embedding.padding import padded
from enrich.embedding.runtime import OutOfMemory, Provenance, Vectors, Weights, versions
from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError


class OnnxRuntime:
    """A converted model.

    Args:
        model: its entry in the registry.
        weights: the converted file.
        precision: of that file.
        device: ``cpu``, ``cuda`` or ``cuda:1``; None for a GPU where this ONNX Runtime can use one.

    Raises:
        ModelError: when ONNX Runtime is missing, cannot load the file or has no such device.
    """

    def __init__(self, model: EmbedderModel, weights: Weights, precision: str, device: str | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ModelError(
                "the runtime onnx needs the library onnxruntime", "Install the extra `runtimes`."
            ) from error
        onnxruntime.set_default_logger_severity(3)  # errors alone
        there = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        place, _, number = (device or ("cuda" if there else "cpu")).partition(":")
        if place not in ("cpu", "cuda") or (place == "cuda" and not there):
            raise ModelError(
                f"device {device!r} is asked for, and this ONNX Runtime cannot use it", "Use `cpu`, or another runtime."
            )
        provider = (
            ("CUDAExecutionProvider", {"device_id": number or "0"}) if place == "cuda" else "CPUExecutionProvider"
        )
        options = onnxruntime.SessionOptions()
        options.enable_mem_pattern = False  # of no use where every batch has another shape
        try:
            self._session: Final = onnxruntime.InferenceSession(str(weights.place), options, providers=[provider])
        except Exception as error:  # the library's own errors have no common class
            raise ModelError(
                f"{weights.place} cannot be loaded by ONNX Runtime: {error}",
                f"Convert it again: gristmill models convert {model.name}",
            ) from error
        self._provenance: Final = Provenance(
            runtime="onnx",
            precision=precision,
            device=place,
            libraries=versions(("onnxruntime", "onnxruntime-gpu")),
            file=weights.sha256,
        )

    @property
    def provenance(self) -> Provenance:
        """Provenance of the vectors."""
        return self._provenance

    def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """Return the pooled vectors of n lists of token ids: (n, full dimension) in float32.

        The lists hold the special tokens.
        """
        ids, mask = padded(batch, 0)  # any id: what is padded is masked, and stands behind the text
        try:
            [vectors] = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        except Exception as error:  # the library's own errors have no common class
            if "allocate" in str(error).lower():
                raise OutOfMemory(str(error)) from error
            raise
        return np.asarray(vectors, dtype=np.float32)
