"""Probes of a model: texts with the vectors that its own runtime makes of them, kept in the model folder.

Invariants:
- Probes are made by the model's own weights in single precision, whatever runtime is at hand.
- Kept probes are used only for the fingerprint and the version of the texts that they were made for.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.embedding.runtimes.registry import choice
from enrich.files import atomic_write
from enrich.models.registry import ModelFolder, Registry
from parsers.errors import StoreError

PROBES_FOLDER: Final = ".probes"  # below the root of the model folder


class Reference(NamedTuple):
    """Probes of a model.

    Attributes:
        data: the probes.
        own: whether the embedder at hand made them just now.
    """

    data: bytes
    own: bool


def reference_probes(embedder: Embedder, name: str, registry: Registry, models: ModelFolder) -> Reference:
    """Return the probes of a model; make and keep them where there are none.

    Args:
        embedder: the model with the runtime at hand, which makes them if it is the model's own.
        name: the model's name.

    Raises:
        ModelError: when the model's own runtime cannot run.
    """
    path = (
        models.root / PROBES_FOLDER / f"{embedder.model.name}-{embedder.fingerprint[:16]}-{parity.PROBES_VERSION}.arrow"
    )
    kept = _kept(path, embedder)
    if kept is not None:
        return Reference(kept, False)
    own = choice(embedder.model)
    loaded = (embedder.provenance.runtime, embedder.provenance.precision)
    is_own = loaded == (own.runtime, own.precision)
    maker = embedder if is_own else open_embedder(name, registry, models, runtime=str(own), device="cpu")
    data = parity.make_probes(maker)
    with suppress(OSError):  # a model folder that cannot be written costs the making at every new index, nothing else
        atomic_write(path, data)
    return Reference(data, is_own)


def _kept(path: Path, embedder: Embedder) -> bytes | None:
    try:
        data = path.read_bytes()
        probes = parity.read_probes(data)
    except (OSError, StoreError):
        return None
    return data if probes.fingerprint == embedder.fingerprint else None
