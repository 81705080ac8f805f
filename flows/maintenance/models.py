"""The models that are known, fetched and verified."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final

import msgspec

from enrich.embedding.embedder import open_embedder
from enrich.embedding.runtimes.registry import RUNTIMES, choice, choices
from enrich.models.conversion import convert_model
from enrich.models.fetching import fetch_model, sources_of
from enrich.models.registry import AnyModel, EmbedderModel, ModelFolder, Registry, load_registry
from flows.models.probes import reference_probes
from flows.models.runtime_choice import choose, machine, remembered
from flows.settings import Settings
from parsers.errors import ModelError, UsageError

STARTS_FAST: Final = "onnx:fp32"


def manage_models(
    settings: Settings, action: str, names: list[str], say: Callable[[str], None], runtimes: list[str] | None = None
) -> dict[str, Any]:
    """List, fetch, verify or convert models.

    Args:
        action: ``list``, ``fetch``, ``verify`` or ``convert``.
        runtimes: with ``convert``, what for; by default every runtime that needs a file of its own, in its first
            precision.
        names: of models; for ``fetch`` and ``verify`` those that the settings use by default, for ``list`` all.
        say: told what is being done, a line at a time.

    Raises:
        UsageError: for another action.
        ModelError: when a model cannot be fetched, or is not what its hashes say.
    """
    registry = load_registry(*settings.model_files)
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    if action == "list":
        chosen = [registry.get(name) for name in names] or list(registry)
        return {"models": [_described(model, folder) for model in chosen]}
    chosen = [registry.get(name) for name in names or used(settings)]
    if action == "fetch":
        for model in chosen:
            fetch_model(model, folder, sources_of(model, settings.model_folders), say)
            if isinstance(model, EmbedderModel):
                prepare(model, registry, folder, say)
    elif action == "verify":
        for model in chosen:
            say(f"{model.name}: {folder.find(model)} holds what its hashes say")
    elif action == "convert":
        chosen = [registry.get(name) for name in names or [settings.embedder]]
        return {"conversions": [record for model in chosen for record in _conversions(model, folder, runtimes, say)]}
    else:
        raise UsageError(f"models: there is no action {action!r}", "Use list, fetch, verify or convert.")
    return {"models": [_described(model, folder) for model in chosen]}


def prepare(model: EmbedderModel, registry: Registry, folder: ModelFolder, say: Callable[[str], None]) -> None:
    """Convert a model for the runtime that starts fast, make its probes, and measure the runtimes, once a machine.

    A model that has no such runtime, or whose libraries are not installed, is left as it is.
    """
    if STARTS_FAST not in map(str, choices(model)) or remembered(model, folder) is not None:
        return
    if importlib.util.find_spec("onnxruntime") is None:
        return
    say(f"{model.name}: preparing a fast start, once on this machine (about a minute)")
    try:
        chosen = choose(model.name, registry, folder, None, say, only=[STARTS_FAST, *_fast_here()])
        embedder = open_embedder(model.name, registry, folder)
        reference_probes(embedder, model.name, registry, folder)
    except ModelError as error:
        say(f"{model.name}: not prepared, its own runtime is used: {error.message}")
        return
    for one in chosen.tried:
        say(f"  {one.name}: {one.problem or f'starts in {one.start:.1f} s, {one.rate:.1f} texts/s'}")


def _fast_here() -> list[str]:
    """Return the runtimes that may outrun the fast starter on a processor with bf16 arithmetic."""
    return ["sentence-transformers:bf16"] if "bf16" in machine() else []


def _conversions(
    model: AnyModel, folder: ModelFolder, runtimes: list[str] | None, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return a model converted, as the records say it."""
    if not isinstance(model, EmbedderModel):
        raise ModelError(f"{model.name} is no embedder", "Only embedders are converted.")
    wanted = [choice(model, name) for name in runtimes or []] or [
        choice(model, name) for name in model.runtimes if name in RUNTIMES and RUNTIMES[name].converted
    ]
    return [msgspec.to_builtins(convert_model(model, one, folder, say)) for one in wanted]


def used(settings: Settings) -> list[str]:
    """Return the names of the models that the settings use."""
    local = settings.notes == "llm" and not settings.llm_url and not settings.llm.endswith(".gguf")
    llm = [settings.llm] if local else []
    return list(dict.fromkeys([settings.embedder, settings.ruler, *llm]))


def _described(model: AnyModel, folder: ModelFolder) -> dict[str, Any]:
    try:
        place, problem = str(folder.find(model)), ""
    except ModelError as error:
        place, problem = "", error.message
    return {
        "name": model.name,
        "kind": type(model).__struct_config__.tag,
        "licence": model.licence,
        "bytes": model.size,
        "folder": place,
        "present": bool(place),
        "problem": problem,
    }
