"""The runtimes of this machine against each other, or against what an index keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.embedding.parity import RuntimeComparison, Text
from enrich.embedding.runtime import Vectors
from enrich.embedding.runtimes.registry import choice, choices
from enrich.files import atomic_write
from enrich.models.registry import ModelFolder, Registry, load_registry
from flows.models.runtime_choice import machine
from flows.opening import published
from flows.settings import Settings
from indexes.rows import EMBEDDED, embedded
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import ChunkTable
from parsers.errors import ModelError, StoreError

SAMPLE: Final = 200  # chunks among which the nearest are looked for
QUESTIONS: Final = 40  # of them, that ask

Say = Callable[[str], None]


def run(
    settings: Settings,
    *,
    names: list[str],
    embedder: str | None,
    with_index: bool,
    record: Path | None,
    say: Say,
) -> dict[str, Any]:
    """Compare runtimes over the fixed texts of :mod:`enrich.embedding.parity`.

    Args:
        names: of runtimes; by default all that are installed and converted.
        embedder: the model; by default that of the index, or of the settings.
        with_index: compare each with the probes of the published index, not with each other.
        record: where to keep the result as JSON.
        say: is told what is being done, and what is left out.

    Returns:
        ``pairs``, ``model``, ``fingerprint``, ``texts`` (their digest), ``runtimes`` (provenance),
        ``machine`` and ``ok``.

    Raises:
        ModelError: when the model is missing, or no runtime can be compared.
        StoreError: when the index has no probes.
    """
    registry = load_registry(*settings.model_files)
    models = ModelFolder(settings.models_dir, settings.model_folders)
    place = published(settings) if with_index else None
    name = embedder or (place[1].embedder if place else settings.embedder)
    model = registry.embedder(name)
    opened = list(_opened(settings, name, registry, models, names, say))
    if not opened:
        raise ModelError(f"no runtime of {model.name} can be compared", "See `gristmill doctor`.")
    if place is not None:
        pairs = [_against(place[0], one, say) for one in opened]
        chosen: list[Text] = []
    else:
        chosen = parity.texts(opened[0])
        pairs = list(_each_other(opened, chosen, say))
    found: dict[str, Any] = {
        "model": name,
        "fingerprint": opened[0].fingerprint,
        "texts": parity.digest(chosen) if chosen else "",
        "runtimes": {parity.runtime_label(one.provenance): msgspec.to_builtins(one.provenance) for one in opened},
        "machine": machine(),
        "pairs": [_shown(pair) for pair in pairs],
        "ok": all(pair.passed for pair in pairs),
    }
    if record is not None:
        atomic_write(record, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return found


def _opened(
    settings: Settings, name: str, registry: Registry, models: ModelFolder, names: list[str], say: Say
) -> Iterator[Embedder]:
    """Yield the runtimes to compare; where they are not named, one that cannot run here is left out, and said."""
    model = registry.embedder(name)
    wanted = [choice(model, one) for one in names] or choices(model)
    for one in wanted:
        try:
            embedder = open_embedder(name, registry, models, runtime=str(one), device=settings.device)
            embedder.load()
        except ModelError as error:
            if names:
                raise
            say(f"left out {one}: {error.message}. {error.remedy}")
        else:
            yield embedder


def _each_other(opened: list[Embedder], chosen: list[Text], say: Say) -> Iterator[RuntimeComparison]:
    under = parity.conditions(opened[0])
    vectors: list[Vectors] = []
    for one in opened:
        say(f"{parity.runtime_label(one.provenance)}: {len(chosen)} texts, {len(under)} times")
        vectors.append(parity.vectors_of(one, chosen, under))
    names = [parity.runtime_label(one.provenance) for one in opened]
    # Of the plan `alone`, as a passage: enough to find neighbours by. Every fourth text asks.
    asking = [row for row in range(len(chosen)) if row % 4 == 0]
    order = asking + [row for row in range(len(chosen)) if row % 4]
    for first, second in parity.pairs(names):
        a, b = vectors[first], vectors[second]
        if first == second:  # a runtime with itself: each text alone against the same text among others
            a, b = a[0::2], b[1::2]
        pair = parity.compare_vectors(names[first], names[second], chosen, a, b)
        overlap = parity.top_overlap(a[0][order], b[0][order], len(asking))
        yield msgspec.structs.replace(pair, top10_overlap=overlap)


def _against(storage: Storage, embedder: Embedder, say: Say) -> RuntimeComparison:
    pointer = storage.pointer()
    data = storage.probes(embedder.fingerprint)
    if data is None or pointer is None:
        raise StoreError(
            f"index {storage.address}: it keeps no probes of {embedder.model.name}", "Build it with this program."
        )
    say(f"{parity.runtime_label(embedder.provenance)}: against the probes of {storage.address}")
    pair = parity.against(embedder, parity.read_probes(data))
    if pointer.embedder_fingerprint != embedder.fingerprint:
        return pair
    return msgspec.structs.replace(pair, top10_overlap=_overlap(storage, pointer, embedder))


def _overlap(storage: Storage, pointer: Pointer, embedder: Embedder) -> float | None:
    """How many of each chunk's nearest a runtime finds that the stored vectors find too, over a sample of the index."""
    table = ChunkTable.open(storage.tables(pointer.generation), pointer.chunks_version)
    count = table.count()
    places = sorted({round(step * (count - 1) / (SAMPLE - 1)) for step in range(SAMPLE)}) if count > 1 else []
    rows = table.take(places, ["chunk_id", "provenance"]) if places else []
    names = [row["chunk_id"] for row in rows if row["provenance"]]
    if len(names) <= parity.TOP:
        return None
    found = table.fetch(names, [*EMBEDDED, "vector"])
    stored = parity.as_vectors([row["vector"] for row in found])
    again = embedder.probe([embedded(row) for row in found], "passage")
    return parity.top_overlap(again, stored, min(QUESTIONS, len(names) // 4))


def _shown(pair: RuntimeComparison) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(pair)
    values["pass"] = values.pop("passed")
    values["reason"] = pair.reason
    return values
