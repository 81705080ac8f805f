"""The contract of the runtimes that can run an embedder; the table of them is in ``runtimes/registry.py``.

Invariants:
- A runtime turns token ids into vectors and decides nothing else.
- What it is, down to the hash of the file it reads, is its provenance.
- This module imports no runtime.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from enrich.models.registry import EmbedderModel

Vectors = NDArray[np.float32]


class OutOfMemory(Exception):
    """A batch did not fit into the device's memory; a smaller one may."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a vector; recorded for each batch, and not part of the fingerprint.

    Attributes:
        runtime: its name in :data:`enrich.embedding.runtimes.registry.RUNTIMES`.
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


class Choice(msgspec.Struct, frozen=True, order=True):
    """A runtime and a precision."""

    runtime: str
    precision: str

    def __str__(self) -> str:
        return f"{self.runtime}:{self.precision}"


def versions(names: Sequence[str]) -> dict[str, str]:
    """Return the installed versions of libraries, by name; those that are not installed are left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
