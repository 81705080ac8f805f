"""Who writes the notes of a build: nobody, the extractive rules, or an LLM, in this process or behind a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from enrich.models.registry import ModelFolder, find_llm, load_registry
from enrich.notes.extractive import extractive
from enrich.notes.note import Note
from enrich.notes.prompts import Window, WindowSettings
from enrich.notes.writer import CONTEXT, NOTES_VERSION, LLMRuntime, NoteWriter, document_tokens
from flows.settings import Settings, llm_key
from indexes.cache.store import cache_key

if TYPE_CHECKING:
    from enrich.notes.runtimes.server import ServerRuntime


def window_settings(settings: Settings) -> WindowSettings:
    """Return how much of a document stands around a chunk."""
    document = settings.note_document if asks_for_documents(settings) else 0
    return WindowSettings(
        neighbours=settings.note_neighbours, document=document, preceding=settings.note_window == "preceding"
    )


def window_recipe(settings: Settings) -> str:
    """Return the settings that decide the windows of a document."""
    if not asks_for_documents(settings):
        return f"{settings.note_neighbours}"
    preceding = ":preceding" * (settings.note_window == "preceding")
    return f"{settings.note_neighbours}:{settings.note_document}{preceding}"


def asks_for_documents(settings: Settings) -> bool:
    """Return whether documents are to stand in the prompts; extractive notes have none."""
    return settings.notes == "llm" and settings.note_window != "section"


class NoteMaker(Protocol):
    """Makes notes of windows.

    Attributes:
        flush: how many notes are made before they are written to the cache; a kill loses no more.
        limited: whether a build may be told to make only so many.
    """

    flush: int
    limited: bool

    @property
    def fingerprint(self) -> str:
        """What decides a note besides its window."""

    def keys(self, windows: Sequence[Window]) -> list[str]:
        """Under what each window's note is remembered, in hexadecimal."""

    def write(self, windows: Sequence[Window]) -> list[Note]:
        """Return the notes, in the order of the windows."""


def open_notes(settings: Settings, count: Callable[[str], int], counter: str = "") -> NoteMaker | None:
    """Open the note writer of the settings; None for no notes.

    Args:
        count: counts tokens as the chunker does.
        counter: fingerprint of what counts them.

    Raises:
        ModelError: when the LLM is unknown or missing.
    """
    if settings.notes == "extractive":
        return ExtractiveNotes(settings.note_reserve, count, counter)
    return LLMNotes(settings) if settings.notes == "llm" else None


class ExtractiveNotes:
    """Notes by rule.

    Args:
        budget: tokens a note may have.
        count: counts them.
        counter: fingerprint of what counts them.
    """

    flush: int = 2_000
    limited: bool = False

    def __init__(self, budget: int, count: Callable[[str], int], counter: str = "") -> None:
        self._budget: Final = budget
        self._counter: Final = counter
        self._count: Final = count

    @property
    def fingerprint(self) -> str:
        """Rules, budget, and what counts its tokens."""
        return f"extractive:{NOTES_VERSION}:{self._budget}:{self._counter}"

    def keys(self, windows: Sequence[Window]) -> list[str]:
        """From what the rules look at, and the fingerprint."""
        return [cache_key(self.fingerprint, msgspec.json.encode(window).decode()) for window in windows]

    def write(self, windows: Sequence[Window]) -> list[Note]:
        """Return the notes, in the order of the windows."""
        return [extractive(window, self._budget, self._count) for window in windows]


def open_server(settings: Settings) -> ServerRuntime:
    """Return the LLM's server of the settings; nothing is sent yet."""
    from enrich.notes.runtimes.server import ServerRuntime

    return ServerRuntime(
        settings.llm_url or "",
        settings.llm_model,
        key=llm_key(),
        parallel=settings.llm_concurrency,
        context=settings.llm_context or 0,
        needed=CONTEXT + document_tokens(window_settings(settings).document),
        timeout=settings.llm_timeout,
    )


def _open_local(settings: Settings) -> LLMRuntime:
    """Return the LLM of the model folder; it is loaded with the first note."""
    from enrich.notes.runtimes.llama_cpp import LlamaRuntime

    folder = ModelFolder(settings.models_dir, settings.model_folders)
    model, path = find_llm(settings.llm, load_registry(*settings.model_files), folder)
    return LlamaRuntime(
        path,
        document=window_settings(settings).document,
        threads=settings.llm_threads or os.cpu_count() or 1,
        gpu_layers=settings.llm_gpu_layers,
        weights=model.files_of("weights")[0].sha256,
    )


class LLMNotes:
    """Notes by an LLM: the local one, or the one behind the server that the settings name."""

    flush: int = 8
    limited: bool = True

    def __init__(self, settings: Settings) -> None:
        runtime: LLMRuntime = open_server(settings) if settings.llm_url else _open_local(settings)
        self._writer = NoteWriter(runtime)
        if runtime.parallel > 1:
            self.flush = max(LLMNotes.flush, 4 * runtime.parallel)  # so that few wait at its end for the slowest

    @property
    def fingerprint(self) -> str:
        """LLM, prompt file, sampling and rules."""
        return self._writer.fingerprint

    def keys(self, windows: Sequence[Window]) -> list[str]:
        """From the exact prompt and the fingerprint."""
        return [self._writer.key(self._writer.prompt(window)) for window in windows]

    def write(self, windows: Sequence[Window]) -> list[Note]:
        """Return the notes, in the order of the windows."""
        return self._writer.write([self._writer.prompt(window) for window in windows], windows)
