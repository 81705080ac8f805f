"""Converting a model's weights into the file that another runtime reads, and finding such a file again.

Invariants:
- Nothing is fetched.
- A converted file is made of weights whose hashes were checked, and its record says which, by what, and its own hash.
- A file that is not what its record says is refused.
- It appears whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from filelock import FileLock

from enrich.embedding.runtime import Choice, Weights, versions
from enrich.embedding.runtimes.registry import RUNTIMES
from enrich.files import atomic_write
from enrich.models.registry import EmbedderModel, ModelFolder, sha256_of
from parsers.errors import ModelError

_VERSION: Final = 1  # of the converters; a file of another version is made anew
_FOLDER: Final = ".converted"  # below the root of the model folder
_WORK: Final = ".making-"  # how the folder of a conversion at work begins
_LIBRARIES: Final = ("gguf", "llama-cpp-python", "onnx", "onnxruntime", "safetensors", "torch", "transformers")

_Report = Callable[[str], None]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """Where a converted file comes from.

    Attributes:
        model: its name.
        runtime, precision: what it is for.
        sources: SHA-256 of every file of the model it is made of, by path.
        file: its name.
        size: in bytes.
        sha256: of the file.
        libraries: version by name, of those that may have made it.
        version: of the converters.
    """

    model: str
    runtime: str
    precision: str
    sources: dict[str, str]
    file: str
    size: int
    sha256: str
    libraries: dict[str, str]
    version: int = _VERSION


def convert_model(
    model: EmbedderModel, chosen: Choice, folder: ModelFolder, report: _Report = lambda line: None
) -> _Record:
    """Make the file that a runtime needs, where it is not there yet.

    Raises:
        ModelError: when the model is missing, its runtime reads it as it is, or it cannot be converted.
    """
    kind = RUNTIMES[chosen.runtime]
    if not kind.converted:
        raise ModelError(f"{chosen.runtime} reads {model.name} as it is", "Nothing is to be converted.")
    place = folder.find(model)
    home = _home(model, folder)
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / ".lock"):
        try:
            record, _ = _found(model, chosen, folder)
        except ModelError:
            return _converted(model, chosen, place, home, report)
    report(f"{model.name}: already converted for {chosen}")
    return record


def weights_for(model: EmbedderModel, chosen: Choice, place: Path, folder: ModelFolder) -> Weights:
    """Return the checked files for a runtime: the model's folder, or the file converted from it.

    Args:
        place: the model's folder.

    Raises:
        ModelError: when the file is missing, or is not what its record says.
    """
    if not RUNTIMES[chosen.runtime].converted:
        return Weights(place)
    record, path = _found(model, chosen, folder)
    return Weights(path, record.sha256)


def records(model: EmbedderModel, folder: ModelFolder) -> dict[Choice, _Record]:
    """Return the conversions of a model that are there and of today's converters."""
    found = {}
    for path in sorted(_home(model, folder).glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError):
            continue
        if record.version == _VERSION and record.sources == _sources(model):
            found[Choice(record.runtime, record.precision)] = record
    return found


def _found(model: EmbedderModel, chosen: Choice, folder: ModelFolder) -> tuple[_Record, Path]:
    record = records(model, folder).get(chosen)
    remedy = f"Convert it: gristmill models convert {model.name} --runtime {chosen}"
    if record is None:
        raise ModelError(f"{model.name} is not converted for {chosen}", remedy)
    path = _home(model, folder) / record.file
    if not path.is_file() or path.stat().st_size != record.size or folder.digest(path) != record.sha256:
        raise ModelError(f"{path} is not what its record says: {record.size} bytes, sha256 {record.sha256}", remedy)
    return record, path


def _converted(model: EmbedderModel, chosen: Choice, place: Path, home: Path, report: _Report) -> _Record:
    from enrich.models import gguf_file, onnx_file

    for left in home.glob(f"{_WORK}*"):  # of a conversion that was killed; the lock says that none goes on
        shutil.rmtree(left, ignore_errors=True)
    report(f"{model.name}: converting for {chosen}")
    make = gguf_file.write_gguf if chosen.runtime == "llama.cpp" else onnx_file.write_onnx
    name = f"{chosen.runtime}-{chosen.precision}{RUNTIMES[chosen.runtime].converted}"
    with TemporaryDirectory(prefix=_WORK, dir=home) as work:
        made = Path(work) / name
        try:
            make(model, place, made, chosen.precision)
        except ImportError as error:
            raise ModelError(
                f"{model.name} cannot be converted for {chosen}: {error}", "Install the extra `runtimes`."
            ) from error
        record = _Record(
            model=model.name,
            runtime=chosen.runtime,
            precision=chosen.precision,
            sources=_sources(model),
            file=name,
            size=made.stat().st_size,
            sha256=sha256_of(made),
            libraries=versions(_LIBRARIES),
        )
        shutil.move(made, home / name)
        atomic_write(home / f"{name}.json", msgspec.json.format(msgspec.json.encode(record, order="sorted")))
    report(f"{model.name}: {record.size / 1e6:.1f} MB for {chosen}, sha256 {record.sha256[:16]}…")
    return record


def _home(model: EmbedderModel, folder: ModelFolder) -> Path:
    return folder.root / _FOLDER / model.name


def _sources(model: EmbedderModel) -> dict[str, str]:
    return {file.path: file.sha256 for file in model.files}
