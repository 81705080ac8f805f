"""Opening the embedder for an index: the runtime of this machine, which proves itself before its first vector.

Invariants:
- A runtime that has not proved itself against the probes of an index makes no vector that is stored there or asked of
  it.
- The proof is remembered on this machine, for this runtime and these probes.
- The probes are made by the model's own runtime, so that no other begins an index by its own measure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.files import atomic_write
from enrich.models.registry import ModelFolder, Registry, load_registry
from flows.models.probes import Reference
from flows.models.runtime_choice import machine, runtime_for
from flows.settings import Settings
from indexes.storage.storage import Pointer, Storage
from parsers.errors import GateRefused, ModelError, StoreError

PROVED: Final = "proved"  # folder below the local cache


def embedder_of(
    settings: Settings,
    name: str,
    registry: Registry,
    models: ModelFolder,
    texts: Callable[[], int] = lambda: 1,
) -> Embedder:
    """Open a model with the runtime of the settings, or the best one for so many texts on this machine.

    Args:
        texts: how many texts are expected; called when the runtime is loaded.

    Raises:
        ModelError: as :func:`enrich.embedding.embedder.open_embedder` says.
    """
    model = registry.embedder(name)
    return open_embedder(
        name,
        registry,
        models,
        runtime=settings.runtime or (lambda: runtime_for(model, models, texts())),
        device=settings.device,
        batch_tokens=settings.batch_tokens,
    )


def open_query_embedder(settings: Settings, storage: Storage, pointer: Pointer) -> Embedder:
    """Return the model that made the vectors of a published revision, by a runtime that proves itself against them.

    Raises:
        ModelError: when it is missing, or the model of its name here is another one.
    """
    models = ModelFolder(settings.models_dir, settings.model_folders)
    embedder = embedder_of(settings, pointer.embedder, load_registry(*settings.model_files), models)
    if embedder.fingerprint != pointer.embedder_fingerprint:
        raise ModelError(
            f"the index was made with {pointer.embedder} of fingerprint {pointer.embedder_fingerprint[:8]}; the model "
            f"of that name here has {embedder.fingerprint[:8]}",
            "Use the models.toml that the index was built with, or build the index again.",
        )
    embedder.prove_by(lambda one: prove(one, storage, settings.cache_dir))
    return embedder


def prove(
    embedder: Embedder, storage: Storage, cache: Path, make: Callable[[Embedder], Reference] | None = None
) -> str:
    """Compare a runtime with the probes of the index.

    Args:
        cache: folder in which this machine keeps what was proved.
        make: gives the probes where the index has none yet; only the holder of the index may pass it.

    Returns:
        The figure for the record.

    Raises:
        GateRefused: when they differ; names the strata of texts.
        ModelError: when there are no probes yet and the model's own runtime, which makes them, cannot run.
        StoreError: when the index has no probes, and ``make`` is not given.
    """
    data = storage.probes(embedder.fingerprint)
    made = False
    if data is None and make is not None:
        data, made = make(embedder)
        storage.keep_probes(embedder.fingerprint, data)
    if data is None:
        raise StoreError(
            f"index {storage.address}: it keeps no probes of {embedder.model.name}, so no runtime can prove itself",
            "Build or repair it once with the runtime that made its vectors; nothing is embedded twice.",
        )
    mark = cache / PROVED / _mark(data, embedder)
    name = parity.runtime_label(embedder.provenance)
    if made:
        figure = f"{name} made the probes"
    elif mark.is_file():
        return f"{name} proved itself earlier"
    else:
        found = parity.against(embedder, parity.read_probes(data))
        if not found.passed:
            raise GateRefused(
                f"gate parity: {name} does not make the vectors of index {storage.address}, which {found.b} made: "
                f"{found.reason}",
                "Choose another runtime with the setting `runtime`; `gristmill parity` compares those of this machine.",
            )
        figure = f"{name} agrees with {found.b}, least cosine {found.min:.6f} of {found.n}"
    _remember(mark, figure)
    return figure


def _mark(data: bytes, embedder: Embedder) -> str:
    parts = (hashlib.sha256(data).hexdigest(), embedder.provenance.id, machine())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _remember(mark: Path, figure: str) -> None:
    """Keep a mark; a cache that cannot be written only costs the proof at every start."""
    with suppress(OSError):
        atomic_write(mark, figure.encode())
