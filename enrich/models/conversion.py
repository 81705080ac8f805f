"""Convert a model's weights into a file for another runtime, and find such files.

Invariants:
- Nothing is downloaded.
- A converted file is made from verified weights. Its record has their hashes, the libraries and its own hash.
- A file that does not match its record is an error.
- A converted file is written atomically.
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

_VERSION: Final = 1  # of the converters; a file of another version is converted again
_FOLDER: Final = ".converted"  # below the root of the model folder
_WORK: Final = ".making-"  # prefix of the folder of a running conversion
_LIBRARIES: Final = ("gguf", "llama-cpp-python", "onnx", "onnxruntime", "safetensors", "torch", "transformers")

_Report = Callable[[str], None]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a converted file.

    Attributes:
        model: name of the model.
        runtime, precision: the runtime and precision that the file is for.
        sources: SHA-256 of every source file of the model, by path.
        file: name of the file.
        size: in bytes.
        sha256: of the file.
        libraries: versions by name of the libraries that may take part in the conversion.
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
    """Convert a model for a runtime, unless that is already done.

    Raises:
        ModelError: when the model is missing, its runtime needs no conversion, or the conversion fails.
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
        model: the model.
        chosen: the runtime and precision.
        place: the model's own folder.
        folder: the folder of all models.

    Raises:
        ModelError: when the file is missing or does not match its record.
    """
    if not RUNTIMES[chosen.runtime].converted:
        return Weights(place)
    record, path = _found(model, chosen, folder)
    return Weights(path, record.sha256)


def records(model: EmbedderModel, folder: ModelFolder) -> dict[Choice, _Record]:
    """Return a model's existing conversions by the current version of the converters."""
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

    for left in home.glob(f"{_WORK}*"):  # of a killed conversion; the lock excludes a running one
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
