"""An embedder that is right in all but one thing: what a client of an index may get wrong without a sign of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder
from enrich.embedding.runtimes import llama_cpp
from enrich.embedding.tokenizer import Piece, TokenCutter
from enrich.models.registry import DEFAULT_EMBEDDER, ModelFolder, default_root

SCRIPTS = {"chinese", "japanese", "korean", "hindi", "arabic", "thai", "greek", "turkish"}
WIDELY = {"sentences", "short", "long", *SCRIPTS}
STRATA = {text.stratum for text in parity._file()[0]} | {"long"}


class Fault(NamedTuple):
    """What is wrong, and where it shows.

    Attributes:
        spoil: makes an embedder that has not run yet wrong.
        below: what the least cosine falls below.
        must: strata that it shows in.
        never: strata that it does not show in.
        model: one that can have it.
    """

    spoil: Callable[[Embedder], None]
    below: float
    must: set[str]
    never: set[str]
    model: str = DEFAULT_EMBEDDER


def llama_tokens(embedder: Embedder) -> None:
    """llama.cpp's tokenizer in place of the model's own."""
    own, limit = embedder._tokens, embedder.limit

    class LlamaTokens:
        special = own.special

        def cut(self, texts: Sequence[str]) -> Iterator[Piece]:
            llama: Any = embedder._runtimes()[0]._llama  # type: ignore[attr-defined]
            for text in texts:
                ids = llama.tokenize(text.encode(), add_bos=True, special=True)
                yield Piece(ids[: limit - 1] + ids[-1:] if len(ids) > limit else ids, len(ids), 0)

    embedder._tokens = LlamaTokens()  # type: ignore[assignment, misc]


def first_token(embedder: Embedder) -> None:
    """The first token's vector in place of the mean of all."""
    right = llama_cpp.POOLINGS
    llama_cpp.POOLINGS = {**right, "mean": right["cls"]}  # type: ignore[misc]
    try:
        embedder.load()
    finally:
        llama_cpp.POOLINGS = right  # type: ignore[misc]


def half_limit(embedder: Embedder) -> None:
    """Half of the tokens that the model takes."""
    place = ModelFolder(default_root()).find(embedder.model) / embedder.model.tokenizer.path
    embedder._tokens = TokenCutter(place, embedder.limit // 2)  # type: ignore[misc]


def no_prefix(embedder: Embedder) -> None:
    """No prefix before passages; shows where the model asks for one."""
    embedder.model = msgspec.structs.replace(embedder.model, passage_prefix="")  # type: ignore[misc]


FAULTS = {
    "llama.cpp's tokenizer": Fault(llama_tokens, 0.7, {"korean", "overlong"}, {"sentences"}),
    "another pooling": Fault(first_token, 0.9, WIDELY, set()),
    "another limit": Fault(half_limit, 0.95, {"long"}, STRATA - {"long", "overlong"}),
    "a dropped prefix": Fault(no_prefix, 0.999, WIDELY, set(), "multilingual-e5-small-4bit"),
}
