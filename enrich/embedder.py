"""Embedding: the only place that knows a model's prefix, pooling, normalization and limit, and how a batch is made.

Kept here: a text is tokenized by the model's own tokenizer, whose truncation and padding are off; the limit is applied
here, with the end token kept, and what is cut and what the model does not know is counted; a vector that is stored is
finite and of the model's dimension; and results stand in the order of the texts, whatever the batches were.

A runtime turns token ids into vectors and decides nothing else. Importing this module loads no runtime.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from enrich.models import EmbedderModel, ModelFolder, Registry
from parsers.errors import ModelError

Kind = Literal["passage", "query"]
Vectors = NDArray[np.float32]
Counts = NDArray[np.int32]

VERSION: Final = 1  # of this module's policy; raise it when the same text and model would give another vector

# Padded tokens in a batch. On two cores, 4,096 was the fastest with two threads, and 1,024 to 2,048 with one (README).
# A GPU wants large batches to be kept busy: its number is a choice by memory (about a gigabyte at 384 dimensions).
BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 65536}

BLOCK: Final = 1 << 16  # characters tokenized in one piece: 4 million in one call take 600 MB
TEXTS_AT_ONCE: Final = 256  # texts whose encodings are held at a time


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What made a vector; recorded for each batch, and no part of the fingerprint.

    Attributes:
        runtime: its name in :data:`RUNTIMES`.
        precision: of the weights and the arithmetic: ``fp32``, ``bf16``, …
        device: ``cpu``, or ``cuda`` and the name of the GPU.
        libraries: version by name, of those that compute.
        file: SHA-256 of the converted file; empty where the model's own weights are read.
    """

    runtime: str
    precision: str
    device: str
    libraries: dict[str, str]
    file: str = ""

    @property
    def id(self) -> str:
        """16 hexadecimal digits that differ when any attribute does."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


class Runtime(Protocol):
    """Runs a model."""

    @property
    def provenance(self) -> Provenance:
        """What it is."""

    def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
        """The pooled vectors, (n, full dimension) in float32, of n lists of token ids with their special tokens."""


# The model, the folder that holds its files, and the device that the caller wants (None: the best there is).
Loader = Callable[[EmbedderModel, Path, str | None], Runtime]


def _sentence_transformers(model: EmbedderModel, folder: Path, device: str | None) -> Runtime:
    from enrich.sentence_transformers_runtime import SentenceTransformersRuntime

    return SentenceTransformersRuntime(model, folder, device)


RUNTIMES: Final[dict[str, Loader]] = {"sentence-transformers": _sentence_transformers}


@dataclass(frozen=True, slots=True)
class Encoded:
    """What became of n texts.

    Attributes:
        vectors: (n, dimension), float32.
        tokens: (n,), int32: tokens of each text with its prefix and the special tokens, before the limit.
        unknown: (n,), int32: those among them that stand for what the model does not know.
        truncated: (n,), bool: whether the text was over the limit, so that its end is not in the vector.
    """

    vectors: Vectors
    tokens: Counts
    unknown: Counts
    truncated: NDArray[np.bool_]


def fingerprint(model: EmbedderModel) -> str:
    """What decides a vector besides its text, as 32 hexadecimal digits; it needs no file of the model."""
    parts = {
        "version": VERSION,
        "weights": [file.sha256 for file in model.files_of("weights")],
        "tokenizer": model.tokenizer.sha256,
        "pooling": model.pooling,
        "query_prefix": model.query_prefix,
        "passage_prefix": model.passage_prefix,
        "limit": model.limit,
        "normalize": model.normalize,
        "dimension": model.dimension,
    } | ({"cut_from": model.cut_from} if model.cut_from else {})
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]


class Embedder:
    """One model with one runtime, which is loaded when the first vector is asked for.

    Safe to use from several threads.

    Args:
        model: what to embed with.
        tokens: its tokenizer.
        load: loads the runtime.
        batch_tokens: padded tokens in a batch at most; None for the measured default of the device. A text longer
            than that makes a batch of its own.
    """

    def __init__(
        self, model: EmbedderModel, tokens: TokenCutter, load: Callable[[], Runtime], batch_tokens: int | None = None
    ) -> None:
        self.model: Final = model
        self.fingerprint: Final = fingerprint(model)
        self._tokens: Final = tokens
        self._load: Final = load
        self._batch_tokens = batch_tokens
        self._loaded: Runtime | None = None
        self._lock: Final = threading.Lock()

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.model.dimension

    @property
    def limit(self) -> int:
        """The longest input in tokens, special tokens and prefix included."""
        return self.model.limit

    @property
    def special_tokens(self) -> int:
        """How many special tokens stand around a text."""
        return self._tokens.special

    @property
    def provenance(self) -> Provenance:
        """What makes the vectors; loads the runtime."""
        return self._runtime().provenance

    def load(self) -> None:
        """Load the runtime now, where it is not loaded yet.

        Raises:
            ModelError: when it cannot be loaded.
        """
        self._runtime()

    def count(self, text: str, kind: Kind = "passage") -> int:
        """Tokens of one text with its prefix and the special tokens, before the limit; loads no runtime."""
        return int(self.counts([text], kind)[0])

    def counts(self, texts: Sequence[str], kind: Kind = "passage") -> Counts:
        """:meth:`count` of n texts: (n,), int32."""
        return np.array([piece.tokens for piece in self._pieces(texts, kind)], dtype=np.int32)

    def query(self, text: str) -> Vectors:
        """The vector of a query: (dimension,), float32.

        Raises:
            ValueError: when the text is blank.
        """
        vector: Vectors = self.encode([text], "query").vectors[0]
        return vector

    def encode(self, texts: Sequence[str], kind: Kind = "passage") -> Encoded:
        """The vectors of n texts, in their order; equal texts are embedded once.

        Raises:
            ValueError: when a text is blank (callers leave those out) or is no Unicode text.
            ModelError: when the runtime gives something other than a finite vector for a text, twice.
        """
        for index, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"text {index} of {len(texts)} is blank and has no vector")
        unique = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        pieces = list(self._pieces(list(unique), kind))
        vectors = self._vectors([piece.ids for piece in pieces])
        rows = np.array([unique[text] for text in texts], dtype=np.intp)
        tokens = np.array([piece.tokens for piece in pieces], dtype=np.int32)
        unknown = np.array([piece.unknown for piece in pieces], dtype=np.int32)
        return Encoded(vectors[rows], tokens[rows], unknown[rows], tokens[rows] > self.limit)

    def _pieces(self, texts: Sequence[str], kind: Kind) -> Iterator[Piece]:
        prefix = self.model.query_prefix if kind == "query" else self.model.passage_prefix
        return self._tokens.cut([prefix + text for text in texts])

    def _vectors(self, sequences: Sequence[Sequence[int]]) -> Vectors:
        vectors = np.empty((len(sequences), self.dimension), dtype=np.float32)
        if not sequences:
            return vectors
        runtime = self._runtime()
        for batch in batches([len(ids) for ids in sequences], self._budget(runtime)):
            vectors[batch] = self._checked(runtime, [sequences[row] for row in batch])
        return vectors

    def _checked(self, runtime: Runtime, batch: Sequence[Sequence[int]]) -> Vectors:
        """The batch's vectors; each that is wrong is asked for once more, alone."""
        vectors = self._finished(runtime.encode(batch), len(batch))
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            vectors[row] = self._finished(runtime.encode([batch[row]]), 1)[0]
            if not np.isfinite(vectors[row]).all():
                raise ModelError(
                    f"{self.model.name} on {runtime.provenance.runtime} ({runtime.provenance.device}, "
                    f"{runtime.provenance.precision}) gave no finite vector of {self.dimension} numbers for a text of "
                    f"{len(batch[row])} tokens, in a batch and alone",
                    "Compare the runtimes with `gristmill parity`, and choose another runtime or device.",
                )
        return vectors

    def _finished(self, given: Vectors, count: int) -> Vectors:
        """Cut and normalized as the model wants it; not a number throughout where the runtime gave the wrong shape or
        zero."""
        vectors = np.array(given, dtype=np.float32)
        if vectors.shape != (count, self.model.full):
            return np.full((count, self.dimension), np.nan, dtype=np.float32)
        vectors = vectors[:, : self.dimension]
        if self.model.normalize:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _budget(self, runtime: Runtime) -> int:
        return self._batch_tokens or BATCH_TOKENS.get(runtime.provenance.device.split()[0], BATCH_TOKENS["cpu"])

    def _runtime(self) -> Runtime:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded


def open_embedder(
    name: str,
    registry: Registry,
    folder: ModelFolder,
    *,
    runtime: str | None = None,
    device: str | None = None,
    batch_tokens: int | None = None,
) -> Embedder:
    """An embedder by its name; its files are verified now, its runtime is loaded with the first vector.

    Args:
        runtime: its name in :data:`RUNTIMES`; None for the model's first.
        device: such as ``cpu`` or ``cuda``; None for a GPU where there is one.
        batch_tokens: padded tokens in a batch at most; None for the default of the device.

    Raises:
        ModelError: when the model is unknown, missing or not what its hashes say, or has no such runtime.
    """
    model = registry.embedder(name)
    chosen = runtime or model.runtimes[0]
    if chosen not in RUNTIMES or chosen not in model.runtimes:
        known = [each for each in model.runtimes if each in RUNTIMES]
        raise ModelError(f"no runtime {chosen!r} for {name}", f"Known: {', '.join(known) or 'none'}.")
    place = folder.find(model)
    tokens = TokenCutter(place / model.tokenizer.path, model.limit)
    return Embedder(model, tokens, lambda: RUNTIMES[chosen](model, place, device), batch_tokens)


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows in batches whose padded size (rows × longest) stays within the budget, the longest rows first.

    Sorted by length there is little padding, and a batch that does not fit into memory fails at once. Equal lengths
    keep their order. A row over the budget makes a batch of its own.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Piece:
    """One text as the model gets it.

    Attributes:
        ids: its token ids within the limit, between the special tokens.
        tokens: how many there are without the limit.
        unknown: how many of those are unknown tokens.
    """

    ids: list[int]
    tokens: int
    unknown: int


class TokenCutter:
    """A model's own tokenizer, and its limit.

    Args:
        path: the tokenizer's file, in the format of the library ``tokenizers``.
        limit: the longest input in tokens, special tokens included.

    Raises:
        ModelError: when the file is no tokenizer, or puts other things around a text than tokens before and behind.
    """

    def __init__(self, path: Path, limit: int) -> None:
        try:
            self._tokenizer: Final = Tokenizer.from_file(str(path))
            unknown = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile).model
        except Exception as error:  # the library raises nothing narrower
            raise ModelError(f"{path} is no tokenizer: {error}", "Fetch the model again.") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._unknown: Final = self._unknown_id(unknown)
        self._head, self._tail = self._frame(path)
        self._room: Final = limit - self.special
        if self._room < 1:
            raise ModelError(f"{path}: its {self.special} special tokens leave no room in the limit of {limit}")

    @property
    def special(self) -> int:
        """How many special tokens stand around a text."""
        return len(self._head) + len(self._tail)

    def cut(self, texts: Sequence[str]) -> Iterator[Piece]:
        """What becomes of each text, in order.

        Raises:
            ValueError: when one is no Unicode text (it holds half of a surrogate pair).
        """
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            group = texts[first : first + TEXTS_AT_ONCE]
            short = [text for text in group if len(text) <= BLOCK]
            encoded = iter(self._ids(short))
            for text in group:
                yield self._piece([next(encoded)] if len(text) <= BLOCK else self._long(text))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError as error:
            broken = next((text for text in texts if not _is_unicode(text)), "")
            raise ValueError(f"half of a surrogate pair in {broken[:60]!r}: it is no Unicode text") from error
        return [encoding.ids for encoding in encodings]

    def _long(self, text: str) -> Iterator[list[int]]:
        """The ids of a long text block by block; where a word is longer than a block, it counts as two."""
        start = 0
        while start < len(text):
            end = _block_end(text, start)
            yield self._ids([text[start:end]])[0]
            start = end

    def _piece(self, blocks: Sequence[list[int]] | Iterator[list[int]]) -> Piece:
        kept: list[int] = []
        tokens = self.special
        unknown = 0
        for ids in blocks:
            tokens += len(ids)
            unknown += 0 if self._unknown is None else ids.count(self._unknown)
            kept += ids[: self._room - len(kept)]
        return Piece([*self._head, *kept, *self._tail], tokens, unknown)

    def _unknown_id(self, model: _TokenizerModel) -> int | None:
        if model.unk_token is not None:
            unknown: int | None = self._tokenizer.token_to_id(model.unk_token)
            return unknown
        return model.unk_id

    def _frame(self, path: Path) -> tuple[list[int], list[int]]:
        """The special tokens before and behind a text."""
        bare = self._tokenizer.encode("a", add_special_tokens=False).ids
        whole = self._tokenizer.encode("a", add_special_tokens=True).ids
        for head in range(len(whole) - len(bare) + 1):
            if bare and whole[head : head + len(bare)] == bare:
                return whole[:head], whole[head + len(bare) :]
        raise ModelError(f"{path}: its special tokens change the text between them: {bare} became {whole}")


class _TokenizerModel(msgspec.Struct, frozen=True):
    """The part of a tokenizer's file that says which token is the unknown one."""

    unk_token: str | None = None
    unk_id: int | None = None


class _TokenizerFile(msgspec.Struct, frozen=True):
    model: _TokenizerModel


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _block_end(text: str, start: int) -> int:
    """Where a block that starts here ends: before the last blank within reach, else at its full length."""
    end = start + BLOCK
    if end >= len(text):
        return len(text)
    for position in range(end, start, -1):
        if text[position].isspace():
            return position
    return end
