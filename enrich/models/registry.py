"""List the known models and verify their files in the model folder.

Invariants:
- Only the hashes of its files identify a model.
- A file is used only after its hash was verified, and again after a change of its size or modification time.
- An unknown or missing model is an error that names the known ones or the next command, never a guess.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec
import platformdirs

from enrich.files import atomic_write
from enrich.models.sources import AnySource, Positive, Sha256
from parsers.errors import ModelError

BUILT_IN: Final = Path(__file__).with_name("models.toml")
DEFAULT_EMBEDDER: Final = "all-MiniLM-L6-v2"

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Role = Literal["weights", "tokenizer", "configuration"]
Pooling = Literal["mean", "cls", "lasttoken", "max"]


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a model.

    Attributes:
        path: where it lies in the model's folder, with ``/`` between names.
        size: in bytes.
        sha256: in hexadecimal.
        role: what it decides; ``configuration`` for what only a runtime reads.
    """

    path: str
    size: Positive
    sha256: Sha256
    role: Role = "configuration"

    def __post_init__(self) -> None:
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts or "\\" in self.path or not path.parts:
            raise ValueError(f"path {self.path!r} does not stay in the model's folder")


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Attributes of every model.

    Attributes:
        name: its name in settings and commands, and the name of its folder.
        licence: of the model itself, as an SPDX identifier.
        files: every file that is used.
        languages: what it was trained for, as BCP 47 tags.
        sources: where to try for it, in order.
        runtimes: what can run it; the first is the default.
    """

    name: Name
    licence: str
    files: Annotated[tuple[ModelFile, ...], msgspec.Meta(min_length=1)]
    languages: tuple[str, ...] = ()
    sources: tuple[AnySource, ...] = ()
    runtimes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Total size of its files, in bytes."""
        return sum(file.size for file in self.files)

    def files_of(self, role: Role) -> tuple[ModelFile, ...]:
        """Return its files of one role, by path."""
        return tuple(sorted((file for file in self.files if file.role == role), key=lambda file: file.path))


class EmbedderModel(Model, frozen=True, kw_only=True, tag="embedder"):
    """A model that turns a text into a vector.

    Attributes:
        dimension: numbers in a vector.
        limit: the longest input in tokens, special tokens and prefix included.
        pooling: how the vectors of the tokens become one.
        normalize: whether vectors are scaled to length 1.
        query_prefix, passage_prefix: what stands before the text of a query, of a passage.
        matryoshka: shorter dimensions that it was trained for: so many numbers of a vector, from its start, are a
            vector too. :meth:`Registry.embedder` gives such a model by a name like ``NAME@256``.
        cut_from: numbers in a vector before it is cut to ``dimension``; 0 where it is not cut.
    """

    dimension: Positive
    limit: Positive
    pooling: Pooling
    normalize: bool
    query_prefix: str
    passage_prefix: str
    matryoshka: tuple[Positive, ...] = ()
    cut_from: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if not self.files_of("weights"):
            raise ValueError(f"embedder {self.name} names no file with the role 'weights'")
        if len(self.files_of("tokenizer")) != 1:
            raise ValueError(f"embedder {self.name} must name exactly one file with the role 'tokenizer'")
        if any(dimension >= self.full for dimension in self.matryoshka):
            raise ValueError(
                f"embedder {self.name} has {self.full} dimensions, and none of `matryoshka` may have as many"
            )
        if self.cut_from and self.dimension not in self.matryoshka:
            raise ValueError(f"embedder {self.name} is cut to {self.dimension} dimensions, which `matryoshka` lacks")

    @property
    def full(self) -> int:
        """Length of the network's vectors before they are cut."""
        return self.cut_from or self.dimension

    def cut(self, dimension: str) -> EmbedderModel:
        """Return the same model with shorter vectors.

        Args:
            dimension: as it stands behind the ``@`` of a name.

        Raises:
            ModelError: naming the dimensions that it was trained for.
        """
        known = {str(each): each for each in (*sorted(self.matryoshka), self.full)}
        if dimension not in known:
            raise ModelError(
                f"model {self.name!r} was not trained for vectors of {dimension or 'no'} numbers",
                f"Known: {', '.join(known)}.",
            )
        if known[dimension] == self.dimension:
            return self
        cut_from = self.full if known[dimension] < self.full else 0
        return msgspec.structs.replace(self, dimension=known[dimension], cut_from=cut_from)

    @property
    def tokenizer(self) -> ModelFile:
        """The file of its tokenizer, in the format of the library ``tokenizers``."""
        return self.files_of("tokenizer")[0]


class LanguageModel(Model, frozen=True, kw_only=True, tag="llm"):
    """A model that writes text.

    Attributes:
        limit: its context in tokens; 0 where only its file says.
    """

    limit: Annotated[int, msgspec.Meta(ge=0)] = 0


AnyModel = EmbedderModel | LanguageModel


class _ModelsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[AnyModel, ...]


class Registry:
    """The known models, by name.

    Args:
        models: every name once.
        files: those that it was read from besides the built-in one.
    """

    def __init__(self, models: Sequence[AnyModel], files: Sequence[Path] = ()) -> None:
        self.files: Final = tuple(files)
        self._models: Final = {model.name: model for model in models}

    def __iter__(self) -> Iterator[AnyModel]:
        return iter(self._models.values())

    def get(self, name: str) -> AnyModel:
        """Return the model of a name; with ``@`` and a dimension behind it, the one with shorter vectors.

        Raises:
            ModelError: naming the known ones, or the known dimensions.
        """
        plain, at, dimension = name.partition("@")
        if plain not in self._models:
            raise ModelError(f"unknown model {name!r}", _known(list(self._models)))
        model = self._models[plain]
        if not at:
            return model
        if not isinstance(model, EmbedderModel):
            raise ModelError(f"model {plain!r} is no embedder and has no dimensions", f"Name it {plain}.")
        return model.cut(dimension)

    def embedder(self, name: str) -> EmbedderModel:
        """Return the embedder of this name; as ``NAME@256``, with vectors of 256 numbers.

        Raises:
            ModelError: when it is unknown or no embedder, or was not trained for that dimension.
        """
        self._check_known(name.partition("@")[0], EmbedderModel, "embedder")
        model = self.get(name)
        if not isinstance(model, EmbedderModel):
            known = [each.name for each in self if isinstance(each, EmbedderModel)]
            raise ModelError(f"model {name!r} is no embedder", _known(known))
        return model

    def llm(self, name: str) -> LanguageModel:
        """Return the language model of this name.

        Raises:
            ModelError: when it is unknown or no language model.
        """
        self._check_known(name, LanguageModel, "language model")
        model = self.get(name)
        if not isinstance(model, LanguageModel):
            known = [each.name for each in self if isinstance(each, LanguageModel)]
            raise ModelError(f"model {name!r} is no language model", _known(known))
        return model

    def _check_known(self, name: str, kind: type[AnyModel], what: str) -> None:
        if name not in self._models:
            known = [each.name for each in self if isinstance(each, kind)]
            close = get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise ModelError(f"unknown {what} {name!r}{meant}", _known(known))


def load_registry(*files: Path) -> Registry:
    """Return the models of this project and those of further files in the format of ``models.toml``.

    Raises:
        ModelError: when a file cannot be read, is not in the format, or names a model that is known already.
    """
    found: dict[str, tuple[AnyModel, Path]] = {}
    for path in (BUILT_IN, *files):
        for model in _read(path):
            if model.name in found:
                raise ModelError(
                    f"model {model.name!r} of {path} is defined already in {found[model.name][1]}",
                    "Give it another name.",
                )
            found[model.name] = (model, path)
    return Registry([model for model, _ in found.values()], files)


def default_root() -> Path:
    """Return where models are kept unless the settings say otherwise: a folder of the user's cache."""
    return platformdirs.user_cache_path("gristmill") / "models"


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when its hash was taken."""

    size: int
    modified: int  # nanoseconds since the epoch
    sha256: str


Stamp = dict[str, Seen]


class ModelFolder:
    """Folder of the models, with a subfolder for each.

    Hashes are cached in small files below the root, so that a start only compares sizes and times. If these cannot be
    written, every start computes the hashes.

    Args:
        root: the folder that models are fetched into.
        others: folders that are only read: shared ones, or ones filled by hand. A model's files may lie in them
            directly, or in a folder of its name.
    """

    def __init__(self, root: Path, others: Sequence[Path] = ()) -> None:
        self.root: Final = root
        self.others: Final = tuple(others)

    def places(self, model: Model) -> list[Path]:
        """Return the folders in which the model may lie, in the order they are looked at."""
        return [self.root / model.name, *(place for other in self.others for place in (other / model.name, other))]

    def find(self, model: Model) -> Path:
        """Return the folder that holds the model's files, all of them there and of the right hash.

        Raises:
            ModelError: when it is missing or does not match its hashes.
        """
        problems = []
        for place in self.places(model):
            if not any((place / file.path).is_file() for file in model.files):
                continue
            try:
                self.verify(model, place)
            except ModelError as error:
                problems.append(error.message)
            else:
                return place
        message = f"model {model.name!r} is not in the model folder {self.root}"
        remedy = (
            f"Run `gristmill models fetch {model.name}`; without network, put its files "
            f"({', '.join(file.path for file in model.files)}) into a folder and name that in the settings "
            "(`model_folders`)."
        )
        raise ModelError("; ".join([message, *problems]), remedy)

    def verify(self, model: Model, place: Path) -> None:
        """Check the size and hash of every file of the model in one folder.

        Raises:
            ModelError: naming the first file that is missing or different, with what was expected.
        """
        before = self._remembered(place)
        now = check_files(model, place, before)
        if now != before:
            self.remember(place, now)

    def gguf(self, path: Path) -> LanguageModel:
        """Return a language model from any GGUF file, known by its hash; its folder is the file's.

        Raises:
            ModelError: when there is no such file.
        """
        if not path.is_file():
            raise ModelError(f"there is no file {path}", "Name a GGUF file that exists, or a model by its name.")
        file = ModelFile(path=path.name, size=path.stat().st_size, sha256=self.digest(path), role="weights")
        return LanguageModel(name=path.stem, licence="", files=(file,), runtimes=("llama.cpp",))

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file, in hexadecimal; computed again if size or time changed."""
        # Cached under the file itself, not its folder: that may hold a model with a record of its own.
        before = self._remembered(path)
        seen = _look(path, before.get(path.name))
        if before != {path.name: seen}:
            self.remember(path, {path.name: seen})
        return seen.sha256

    def _record(self, place: Path) -> Path:
        key = hashlib.sha256(os.fsencode(place.absolute())).hexdigest()[:32]
        return self.root / ".verified" / f"{key}.json"

    def _remembered(self, place: Path) -> Stamp:
        try:
            return msgspec.json.decode(self._record(place).read_bytes(), type=Stamp)
        except (OSError, msgspec.MsgspecError):
            return {}

    def remember(self, place: Path, stamp: Stamp) -> None:
        """Cache the result of :func:`check_files` for a folder."""
        record = self._record(place)
        # If the root is read-only, every start computes the hashes again.
        with contextlib.suppress(OSError):
            atomic_write(record, msgspec.json.encode(stamp, order="sorted"))


def find_llm(name: str, registry: Registry, folder: ModelFolder) -> tuple[LanguageModel, Path]:
    """Return a language model and its GGUF file.

    Args:
        name: name of a known model, or the path of a ``.gguf`` file.
        registry: the known models.
        folder: the folder of all models.

    Raises:
        ModelError: when it is unknown or missing, or does not match its hash.
    """
    if name.endswith(".gguf"):
        path = Path(name)
        return folder.gguf(path), path
    model = registry.llm(name)
    return model, folder.find(model) / model.files_of("weights")[0].path


def check_files(model: Model, place: Path, before: Mapping[str, Seen] = MappingProxyType({})) -> Stamp:
    """Check a model's files in a folder; return their sizes, times and hashes.

    Args:
        model: the model.
        place: the folder with its files.
        before: an earlier result; its hash is reused for a file of unchanged size and time.

    Raises:
        ModelError: for the first missing or different file, with the expected size or hash.
    """
    for file in model.files:
        _check_size(place / file.path, file.size)
    now: Stamp = {}
    for file in model.files:
        now[file.path] = _look(place / file.path, before.get(file.path))
        if now[file.path].sha256 != file.sha256:
            raise ModelError(f"{place / file.path}: expected sha256 {file.sha256}, got {now[file.path].sha256}")
    return now


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> tuple[AnyModel, ...]:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_ModelsFile).model
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise ModelError(f"models file {path}: {error}", "See the comments at the top of models.toml.") from error


def _known(names: Sequence[str]) -> str:
    return f"Known: {', '.join(sorted(names))}."


def _check_size(path: Path, expected: int) -> None:
    if not path.is_file():
        raise ModelError(f"{path}: expected a file of {expected} bytes, there is none")
    if path.stat().st_size != expected:
        raise ModelError(f"{path}: expected {expected} bytes, got {path.stat().st_size}")


def _look(path: Path, before: Seen | None) -> Seen:
    """Return the state of a file; hash it again if size or time differ from ``before``."""
    stat = path.stat()
    if before is not None and (before.size, before.modified) == (stat.st_size, stat.st_mtime_ns):
        return before
    return Seen(stat.st_size, stat.st_mtime_ns, sha256_of(path))
