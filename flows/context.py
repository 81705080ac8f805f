"""Resources of a command: source, models and caches, each opened when first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from chunker.split import ChunkerSettings
from chunker.split import chunker_fingerprint as chunker_fingerprint
from chunker.tokens import Ruler
from enrich.embedding.embedder import Embedder
from enrich.models.registry import ModelFolder, Registry, load_registry
from flows.models.embedding import embedder_of
from flows.models.note_writers import NoteMaker, open_notes
from flows.models.probes import Reference, reference_probes
from flows.models.ruler import chunker_settings, open_ruler
from flows.parser_pool import open_parsers
from flows.settings import Settings
from flows.sources import Source, SourceOptions, open_source
from indexes.cache.caches import Caches
from indexes.cache.store import cache_key
from indexes.storage.storage import Storage
from parsers.errors import UsageError
from parsers.isolation import ParserPool

_Kept = TypeVar("_Kept")
_warm: dict[tuple[str, str], Any] | None = None


def stay_warm() -> None:
    """Keep models and parsers open from one build of this process to the next."""
    global _warm
    _warm = {} if _warm is None else _warm


def _kept(name: str, settings: Settings, make: Callable[[], _Kept]) -> _Kept:
    """Return what an earlier build of this process opened with the same settings, where it stays warm."""
    if _warm is None:
        return make()
    key = (name, settings.model_dump_json())
    if key not in _warm:
        _warm[key] = make()
    found: _Kept = _warm[key]
    return found


def open_source_of(settings: Settings) -> Source:
    """Open the document store that the settings name.

    Raises:
        UsageError: when they name none, or it cannot be read.
    """
    if settings.source is None:
        raise UsageError("no source is given", "Name it: gristmill build FOLDER, or `source` in the settings.")
    own: list[str | Path] = [settings.index, *([settings.golden] if settings.golden else [])]
    return open_source(settings.source, SourceOptions(settings.source_name, settings.include, settings.exclude, own))


class Resources:
    """Source, models and caches of a command.

    Args:
        settings: of the command.
        storage: of the index.
    """

    def __init__(self, settings: Settings, storage: Storage) -> None:
        self.settings: Final = settings
        self.storage: Final = storage
        self.expected_texts = 1
        """Texts that will be embedded, as far as is known when the runtime is loaded."""
        self.caches: Final = Caches(storage, lambda: self.embedder.dimension)

    @cached_property
    def source(self) -> Source:
        """The document store."""
        return open_source_of(self.settings)

    @cached_property
    def scratch(self) -> Path:
        """A folder for temporary files, empty at first."""
        return self.storage.scratch()

    @cached_property
    def registry(self) -> Registry:
        """The known models."""
        return load_registry(*self.settings.model_files)

    @cached_property
    def models(self) -> ModelFolder:
        """The folder of the models."""
        return ModelFolder(self.settings.models_dir, self.settings.model_folders)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder; its runtime is loaded with the first vector."""
        settings = self.settings
        return _kept(
            "embedder",
            settings,
            lambda: embedder_of(settings, settings.embedder, self.registry, self.models, lambda: self.expected_texts),
        )

    def reference_probes(self, embedder: Embedder) -> Reference:
        """Return the probes of the embedder, made by the model's own runtime; they are made once a model folder."""
        return reference_probes(embedder, self.settings.embedder, self.registry, self.models)

    @cached_property
    def parsers(self) -> ParserPool | None:
        """Processes that parse; None to parse in this one."""
        return _kept("parsers", self.settings, lambda: open_parsers(self.settings))

    @cached_property
    def ruler(self) -> Ruler:
        """Tokenizer and budget that the chunker counts with."""
        return _kept("ruler", self.settings, lambda: open_ruler(self.settings))

    @cached_property
    def chunker(self) -> ChunkerSettings:
        """Settings of the chunker."""
        return chunker_settings(self.settings)

    @cached_property
    def chunker_fingerprint(self) -> str:
        """Digest of everything that decides the cuts besides document and title."""
        return chunker_fingerprint(self.ruler, self.chunker)

    def chunks_key(self, document: str, title: str) -> str:
        """Return the cache key of a cached document's chunks."""
        return cache_key(document, title, self.chunker_fingerprint)

    @cached_property
    def note_writer(self) -> NoteMaker | None:
        """Writer of the notes; None without notes."""
        return _kept(
            "notes", self.settings, lambda: open_notes(self.settings, self.ruler.count, self.ruler.fingerprint)
        )

    def close(self) -> None:
        """End the parsers and remove the temporary files."""
        if self.__dict__.get("parsers") is not None and _warm is None:
            self.__dict__["parsers"].close()
        if "scratch" in self.__dict__:
            self.storage.scratch()
