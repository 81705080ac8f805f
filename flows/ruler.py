"""The ruler that the settings name: a model's tokenizer and its limit."""

from __future__ import annotations

from chunker.tokens import Ruler
from enrich.embedder import TokenCutter
from enrich.models import ModelFolder, load_registry
from flows.settings import Settings


def open_ruler(settings: Settings) -> Ruler:
    """The tokenizer and budget that the chunker counts with.

    Raises:
        ModelError: when the model is unknown or its tokenizer is missing.
    """
    model = load_registry(*settings.model_files).embedder(settings.ruler)
    folder = ModelFolder(settings.models_dir, settings.model_folders).find(model)
    path = folder / model.tokenizer.path
    special = TokenCutter(path, model.limit).special
    ruler = Ruler(path, limit=model.limit, special=special)
    prefix = ruler.count(model.passage_prefix) if model.passage_prefix else 0
    return Ruler(path, limit=model.limit, special=special, prefix=prefix) if prefix else ruler
