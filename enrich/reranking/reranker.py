"""Score texts for a query with a reranker: a model that reads query and text together.

Invariants:
- A reranker is a local folder; nothing is downloaded.
- A folder with another kind of model is an error, because the library would fill in a random scoring layer.
- Importing this module loads no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from parsers.errors import ModelError

_VERSION: Final = 1  # of this module; raise it when the same model and texts would give other scores
BATCH: Final = 32  # pairs at a time
_REMEDY: Final = (
    "Name the folder of a cross-encoder (one with a model for sequence classification of one label, such as those of "
    "sentence-transformers) in the setting `reranker`, or none."
)


class Reranker(Protocol):
    """Scores texts for a query."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest; differs if the same query and texts could get other scores."""

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one score per text, (n,) in float32; higher is better.

        Args:
            query: the query.
            texts: embedded texts with their prefix, as the embedder and BM25 read them.
        """


class CrossEncoderReranker:
    """A cross-encoder loaded from a folder by sentence-transformers, in single precision.

    Args:
        folder: with its configuration, weights and tokenizer.
        device: as PyTorch names it; None for a GPU if there is one.

    Raises:
        ModelError: when the folder is missing or contains no trained cross-encoder with one score.
    """

    def __init__(self, folder: Path, device: str | None = None) -> None:
        _check(folder)
        self._folder: Final = folder
        self._network: Final = _load(folder, device)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the folder's files, hidden ones left out, and of this module's version."""
        digest = hashlib.sha256(f"cross-encoder {_VERSION}".encode())
        for path in sorted(self._folder.rglob("*")):
            name = path.relative_to(self._folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                digest.update(f"\n{content} {name.as_posix()}".encode())
        return digest.hexdigest()

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the raw scores of n pairs: (n,) in float32.

        In a pair over the model's limit, the longer text loses its end. The library's sigmoid is not applied: in single
        precision it makes all high scores equal.
        """
        from torch.nn import Identity

        if not texts:
            return np.zeros(0, dtype=np.float32)
        pairs = [(query, text) for text in texts]
        given = self._network.predict(pairs, batch_size=BATCH, show_progress_bar=False, activation_fn=Identity())
        return np.asarray(given, dtype=np.float32)


class _Configuration(msgspec.Struct, frozen=True):
    """The part of a model's ``config.json`` that names its kind."""

    architectures: list[str] = []


def _check(folder: Path) -> None:
    """Raise unless a folder's configuration names a network for sequence classification."""
    if not folder.is_dir():
        raise ModelError(f"reranker {folder}: there is no such folder", _REMEDY)
    try:
        found = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Configuration).architectures
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelError(f"reranker {folder}: its config.json cannot be read: {error}", _REMEDY) from error
    if not any(name.endswith("ForSequenceClassification") for name in found):
        raise ModelError(f"reranker {folder} is no cross-encoder but {', '.join(found) or 'of no known kind'}", _REMEDY)


def _load(folder: Path, device: str | None) -> Any:
    from sentence_transformers import CrossEncoder

    from enrich.embedding.runtimes.sentence_transformers import load_offline, torch_device

    place = torch_device(device)
    try:
        network = load_offline(CrossEncoder, folder, place)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"reranker {folder} cannot be loaded by sentence-transformers: {error}", _REMEDY) from error
    if network.num_labels != 1:
        raise ModelError(f"reranker {folder} gives {network.num_labels} numbers a text, expected one score", _REMEDY)
    missing = _untrained(folder, network.model)
    if missing:
        raise ModelError(f"reranker {folder}: its weights lack {', '.join(missing)}", _REMEDY)
    return network


def _untrained(folder: Path, model: Any) -> list[str]:
    """Return the weights above the model's body that the folder lacks: the library sets them at random."""
    from safetensors import safe_open

    held: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            held.update(file.keys())
    names = [name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")]
    return [name for name in names if held and name not in held]
