"""What the settings say of cutting: the ruler, a model's tokenizer and its limit, and the chunker's own settings."""

from __future__ import annotations

from typing import Final

from chunker.split import ChunkerSettings
from chunker.tokens import Ruler
from enrich.embedding.tokenizer import TokenCutter
from enrich.models.registry import ModelFolder, load_registry
from flows.settings import Settings
from parsers.errors import UsageError

SMALLEST: Final = 16  # tokens of text that a chunk must have room for


def chunker_settings(settings: Settings) -> ChunkerSettings:
    """Return the chunker's settings."""
    return ChunkerSettings(note_reserve=settings.note_reserve, overlap=settings.overlap, path_share=settings.path_share)


def open_ruler(settings: Settings, limit: int | None = None) -> Ruler:
    """Return the tokenizer and budget that the chunker counts with.

    Args:
        limit: tokens of a whole embedded text, for smaller chunks than the model could take.

    Raises:
        ModelError: when the model is unknown or its tokenizer is missing.
        UsageError: when the limit is over the model's, or leaves no room for text.
    """
    model = load_registry(*settings.model_files).embedder(settings.ruler)
    folder = ModelFolder(settings.models_dir, settings.model_folders).find(model)
    path = folder / model.tokenizer.path
    special = TokenCutter(path, model.limit).special
    ruler = Ruler(path, limit=limit or model.limit, special=special)
    prefix = ruler.count(model.passage_prefix) if model.passage_prefix else 0
    least = special + prefix + settings.note_reserve + SMALLEST
    if limit is not None and not least <= limit <= model.limit:
        raise UsageError(
            f"chunks for {limit} tokens cannot be cut with {model.name}; from {least} to {model.limit} are possible",
            "Name another size.",
        )
    return Ruler(path, limit=ruler.limit, special=special, prefix=prefix) if prefix else ruler
