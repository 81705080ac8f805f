"""Run a converted GGUF file with llama.cpp: the runtime ``llama.cpp``.

Invariants:
- The token ids come from the model's own tokenizer; llama.cpp tokenizes nothing.
- No batch exceeds the context, since llama.cpp would abort the process.
- Normalization is left to the embedder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from enrich.embedding.runtime import Provenance, Vectors, Weights, versions
from enrich.models.gguf_file import POOLINGS
from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError

SEQUENCES: Final = 16  # texts in one call at most


class GgufRuntime:
    """A converted model.

    Args:
        model: its entry in the registry.
        weights: the converted file.
        precision: of that file.
        device: ``cpu``, or ``cuda`` with a llama.cpp built for it; None for the CPU.

    Raises:
        ModelError: when llama.cpp is missing or cannot load the file.
    """

    def __init__(self, model: EmbedderModel, weights: Weights, precision: str, device: str | None = None) -> None:
        try:
            from enrich.llama_library import last_words, quiet_library

            llama_cpp = quiet_library()
        except ImportError as error:
            raise ModelError(
                "the runtime llama.cpp needs the library llama-cpp-python", "Install the extra `notes`."
            ) from error
        gpu = (device or "cpu").startswith("cuda")
        if gpu and not llama_cpp.llama_supports_gpu_offload():
            raise ModelError(f"device {device!r} is asked for, and this llama.cpp has no GPU", "Use `cpu`, or none.")
        self._room: Final = max(model.limit, 512) * 4
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        try:
            self._llama: Final[Any] = llama_cpp.Llama(
                str(weights.place),
                embedding=True,
                pooling_type=POOLINGS[model.pooling],
                n_ctx=self._room,
                n_batch=self._room,
                n_ubatch=self._room,
                n_seq_max=SEQUENCES,
                kv_unified=True,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=-1 if gpu else 0,
                flash_attn=True,
                verbose=False,
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"llama.cpp cannot load {weights.place}: {error}{last_words()}",
                f"Convert it again: gristmill models convert {model.name}",
            ) from error
        self._library: Final[Any] = llama_cpp
        self._lock: Final = threading.Lock()
        self._dimension: Final = int(self._llama.n_embd())
        self._provenance: Final = Provenance(
            runtime="llama.cpp",
            precision=precision,
            device="cuda" if gpu else "cpu",
            libraries=versions(("llama-cpp-python",)),
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
        vectors = np.empty((len(batch), self._dimension), dtype=np.float32)
        with self._lock:
            for rows in self._calls(batch):
                self._call([batch[row] for row in rows])
                for place, row in enumerate(rows):
                    given = self._library.llama_get_embeddings_seq(self._llama._ctx.ctx, place)
                    vectors[row] = np.ctypeslib.as_array(given, (self._dimension,)) if given else np.nan
        return vectors

    def _calls(self, batch: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        rows: list[int] = []
        room = self._room
        for row, ids in enumerate(batch):
            if rows and (len(rows) == SEQUENCES or len(ids) > room):
                yield rows
                rows, room = [], self._room
            rows.append(row)
            room -= len(ids)
        if rows:
            yield rows

    def _call(self, sequences: Sequence[Sequence[int]]) -> None:
        given = self._llama._batch
        given.reset()
        for place, ids in enumerate(sequences):
            given.add_sequence(ids, place, True)
        self._llama._ctx.kv_cache_clear()
        self._llama._ctx.decode(given)
