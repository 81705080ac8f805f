"""Embed texts: apply a model's prefix, limit, pooling and normalization, and build the batches.

No other module knows these properties of a model.

Invariants:
- A runtime receives token ids, never text.
- Every returned vector of :meth:`Embedder.encode` is finite and has the model's dimension.
- A runtime that needs a parity check embeds no text for a caller before it has passed.
- Results are in the order of the texts, however they were batched.
- Importing this module loads no runtime.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from enrich.embedding.runtime import Choice, OutOfMemory, Provenance, Runtime, Vectors, Weights
from enrich.embedding.runtimes.registry import RUNTIMES, choice
from enrich.embedding.tokenizer import Piece, TokenCutter
from enrich.models.conversion import weights_for
from enrich.models.registry import EmbedderModel, ModelFolder, Registry
from parsers.errors import ModelError

TextKind = Literal["passage", "query"]
BatchPlan = Literal["sorted", "alone", "mixed"]
Counts = NDArray[np.int32]

_VERSION: Final = 1  # of this module's policy; raise it when the same text and model would give another vector

# Padded tokens in a batch. On two cores, 4,096 was the fastest with two threads, and 1,024 to 2,048 with one (README).
# A GPU needs large batches to stay busy: its number was chosen by memory (about a gigabyte at 384 dimensions).
BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 65536}
# Threads per device: with two, one pads and copies a batch while the device computes the other's.
FEEDERS: Final = {"cpu": 1, "cuda": 2}
# Texts that are sorted by length together. The next window is tokenized while this one is computed.
TEXTS_IN_WINDOW: Final = {"cpu": 512, "cuda": 16384}
MIXED: Final = 16  # texts of any length in a batch of the plan ``mixed``


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors and token counts of n texts.

    Attributes:
        vectors: (n, dimension), float32.
        tokens: (n,), int32: tokens of each text with its prefix and the special tokens, before the limit.
        unknown: (n,), int32: how many of these are the unknown token.
        truncated: (n,), bool: whether the text was longer than the limit, so that its vector leaves out its end.
    """

    vectors: Vectors
    tokens: Counts
    unknown: Counts
    truncated: NDArray[np.bool_]


def embedder_fingerprint(model: EmbedderModel) -> str:
    """Return the digest of everything besides the text that decides a vector.

    It has 32 hexadecimal digits and needs no file of the model.
    """
    parts = {
        "version": _VERSION,
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
    """One model with one runtime on one or more devices, loaded with the first vector.

    Safe to use from several threads.

    Args:
        model: the embedding model.
        tokens: its tokenizer.
        load: loads the runtimes, one per device.
        batch_tokens: maximum of padded tokens in a batch; None for the measured default of the device. A longer text
            gets a batch of its own.
    """

    def __init__(
        self,
        model: EmbedderModel,
        tokens: TokenCutter,
        load: Callable[[], Sequence[Runtime]],
        batch_tokens: int | None = None,
    ) -> None:
        self.model: Final = model
        self.fingerprint: Final = embedder_fingerprint(model)
        self._tokens: Final = tokens
        self._load: Final = load
        self._batch_tokens = batch_tokens
        self._loaded: Sequence[Runtime] = ()
        self._proof: Callable[[Embedder], object] | None = None
        self._lock: Final = threading.RLock()

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.model.dimension

    @property
    def limit(self) -> int:
        """Maximum length of the input in tokens, special tokens and prefix included."""
        return self.model.limit

    @property
    def special_tokens(self) -> int:
        """Number of special tokens added to a text."""
        return self._tokens.special

    @property
    def provenance(self) -> Provenance:
        """Provenance of the vectors; loads the runtime."""
        return self._runtimes()[0].provenance

    @property
    def window(self) -> int:
        """Number of texts per call that keeps the devices busy; loads the runtime."""
        return self._by_device(TEXTS_IN_WINDOW)

    def prove_by(self, proof: Callable[[Embedder], object]) -> None:
        """Set a check that the runtime must pass before its first vector.

        Args:
            proof: raises if the runtime must not be used. It may call :meth:`probe`, which runs without the check.
        """
        self._proof = proof

    def load(self) -> None:
        """Load the runtime and run its check now, unless that is already done.

        Raises:
            ModelError: when the runtime cannot be loaded.
            Exception: any error of the check.
        """
        with self._lock:
            self._runtimes()
            if self._proof is not None:
                self._proof(self)
                self._proof = None

    def count(self, text: str, kind: TextKind = "passage") -> int:
        """Return the token count of one text before the limit.

        The prefix and the special tokens are included. Loads no runtime.
        """
        return int(self.counts([text], kind)[0])

    def counts(self, texts: Sequence[str], kind: TextKind = "passage") -> Counts:
        """Return :meth:`count` of n texts: (n,), int32."""
        return np.array([piece.tokens for piece in self._pieces(texts, kind)], dtype=np.int32)

    def query(self, text: str) -> Vectors:
        """Return the vector of a query: (dimension,), float32.

        Raises:
            ValueError: when the text is blank.
        """
        vector: Vectors = self.encode([text], "query").vectors[0]
        return vector

    def encode(self, texts: Sequence[str], kind: TextKind = "passage") -> Encoded:
        """Return the vectors of n texts, in their order; equal texts are embedded once.

        Raises:
            ValueError: when a text is blank (callers leave those out) or is not valid Unicode.
            ModelError: when the runtime returns an invalid vector for a text twice.
            Exception: any error of the check set by :meth:`prove_by`.
        """
        for index, text in enumerate(texts):
            if not text.strip():
                raise ValueError(f"text {index} of {len(texts)} is blank and has no vector")
        unique = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors, pieces = self._encode(list(unique), kind)
        rows = np.array([unique[text] for text in texts], dtype=np.intp)
        tokens = np.array([piece.tokens for piece in pieces], dtype=np.int32)
        unknown = np.array([piece.unknown for piece in pieces], dtype=np.int32)
        return Encoded(vectors[rows], tokens[rows], unknown[rows], tokens[rows] > self.limit)

    def probe(self, texts: Sequence[str], kind: TextKind, plan: BatchPlan = "sorted") -> Vectors:
        """Return the vectors of n texts, blank ones too, without checking the runtime first.

        Args:
            texts: the texts.
            kind: whether they are passages or queries.
            plan: how to batch: sorted by length, as :meth:`encode` does; each text alone; or in the order given, so
                that a batch mixes long and short texts.
        """
        sequences = [piece.ids for piece in self._pieces(texts, kind)]
        lengths = [len(ids) for ids in sequences]
        if plan == "sorted":
            return self._vectors(sequences, batches(lengths, self._budget))
        size = 1 if plan == "alone" else MIXED
        rows = list(range(len(texts)))
        return self._vectors(sequences, (rows[start : start + size] for start in range(0, len(texts), size)))

    def _pieces(self, texts: Sequence[str], kind: TextKind) -> Iterator[Piece]:
        prefix = self.model.query_prefix if kind == "query" else self.model.passage_prefix
        return self._tokens.cut([prefix + text for text in texts])

    def _encode(self, texts: Sequence[str], kind: TextKind) -> tuple[Vectors, list[Piece]]:
        """Embed window by window; tokenize the next one while this one is computed."""
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32), []
        self.load()
        size = self.window
        vectors: list[Vectors] = []
        counted: list[Piece] = []
        with ThreadPoolExecutor(1, "tokenizer") as ahead:
            windows = [texts[start : start + size] for start in range(0, len(texts), size)]
            upcoming = ahead.submit(lambda: list(self._pieces(windows[0], kind)))
            for following in [*windows[1:], []]:
                pieces = upcoming.result()
                upcoming = ahead.submit(lambda texts=following: list(self._pieces(texts, kind)))  # type: ignore[misc]
                lengths = [len(piece.ids) for piece in pieces]
                vectors.append(self._vectors([piece.ids for piece in pieces], batches(lengths, self._budget)))
                counted += [replace(piece, ids=[]) for piece in pieces]
        return np.concatenate(vectors), counted

    def _vectors(self, sequences: Sequence[Sequence[int]], plan: Iterator[list[int]]) -> Vectors:
        """Return the vectors of token ids, computed by enough threads to keep the devices busy."""
        vectors = np.empty((len(sequences), self.dimension), dtype=np.float32)
        turn, stopped = threading.Lock(), threading.Event()

        def work(runtime: Runtime) -> None:
            while not stopped.is_set():
                with turn:
                    batch = next(plan, None)
                if batch is None:
                    return
                vectors[batch] = self._checked(runtime, [sequences[row] for row in batch])

        feeders = list(self._runtimes()) * self._by_device(FEEDERS)
        if len(feeders) == 1:
            work(feeders[0])
            return vectors
        with ThreadPoolExecutor(len(feeders), "embedder") as pool:
            try:
                for done in as_completed([pool.submit(work, runtime) for runtime in feeders]):
                    done.result()
            finally:
                stopped.set()  # also after an error or Ctrl-C; the other threads finish their batch
        return vectors

    def _checked(self, runtime: Runtime, batch: Sequence[Sequence[int]]) -> Vectors:
        """Return the vectors of a batch; retry each invalid one once, alone."""
        vectors = self._finished(self._fitting(runtime, batch), len(batch))
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            vectors[row] = self._finished(self._fitting(runtime, [batch[row]]), 1)[0]
            if not np.isfinite(vectors[row]).all():
                raise ModelError(
                    f"{self.model.name} on {runtime.provenance.runtime} ({runtime.provenance.device}, "
                    f"{runtime.provenance.precision}) gave no finite vector of {self.dimension} numbers for a text of "
                    f"{len(batch[row])} tokens, in a batch and alone",
                    "Compare the runtimes with `gristmill parity`, and choose another runtime or device.",
                )
        return vectors

    def _fitting(self, runtime: Runtime, batch: Sequence[Sequence[int]]) -> Vectors:
        """Run a batch; if it does not fit into memory, halve it and make later ones smaller."""
        try:
            return runtime.encode(batch)
        except OutOfMemory as error:
            if len(batch) == 1:
                raise ModelError(
                    f"{self.model.name} on {runtime.provenance.device}: a text of {len(batch[0])} tokens does not fit "
                    f"into memory by itself: {error}",
                    "Free memory on the device, or choose another with the setting `device`.",
                ) from error
        half = len(batch) // 2
        padded = len(batch) * max(len(ids) for ids in batch)
        self._batch_tokens = min(self._budget(), max(padded // 2, 1))
        parts = [self._fitting(runtime, part) for part in (batch[:half], batch[half:])]
        return np.concatenate([np.asarray(part, dtype=np.float32) for part in parts])

    def _finished(self, given: Vectors, count: int) -> Vectors:
        """Cut and normalize vectors as the model requires.

        After a wrong shape or a zero vector, every number is NaN.
        """
        vectors = np.array(given, dtype=np.float32)
        if vectors.shape != (count, self.model.full):
            return np.full((count, self.dimension), np.nan, dtype=np.float32)
        vectors = vectors[:, : self.dimension]
        if self.model.normalize:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _budget(self) -> int:
        return self._batch_tokens or self._by_device(BATCH_TOKENS)

    def _by_device(self, numbers: Mapping[str, int]) -> int:
        return numbers.get(self.provenance.device.split()[0], numbers["cpu"])

    def _runtimes(self) -> Sequence[Runtime]:
        with self._lock:
            if not self._loaded:
                self._loaded = tuple(self._load())
            return self._loaded


def open_embedder(
    name: str,
    registry: Registry,
    folder: ModelFolder,
    *,
    runtime: str | Callable[[], str | None] | None = None,
    device: str | None = None,
    batch_tokens: int | None = None,
) -> Embedder:
    """Open an embedder by its name.

    Verifies the model's files now; loads the runtime with the first vector.

    Args:
        name: name of a known model.
        registry: the known models.
        folder: the folder of all models.
        runtime: such as ``onnx`` or ``llama.cpp:fp16``, or a function that chooses one at loading time; None for the
            model's first.
        device: such as ``cpu``, ``cuda`` (all GPUs, in PyTorch) or ``cuda:1``; None for GPUs where there are any.
        batch_tokens: maximum of padded tokens in a batch; None for the default of the device.

    Raises:
        ModelError: when the model is unknown or missing, a file does not match its hash, or the model has no such
            runtime or was not converted for it.
    """
    model = registry.embedder(name)
    place = folder.find(model)

    def verified(named: str | None) -> tuple[Choice, Weights]:
        chosen = choice(model, named)
        return chosen, weights_for(model, chosen, place, folder)

    first = None if callable(runtime) else verified(runtime)

    def load() -> Sequence[Runtime]:
        chosen, weights = first or verified(runtime() if callable(runtime) else runtime)
        kind = RUNTIMES[chosen.runtime]
        return [kind.load(model, weights, chosen.precision, one) for one in kind.devices(device)]

    return Embedder(model, TokenCutter(place / model.tokenizer.path, model.limit), load, batch_tokens)


def batches(lengths: Sequence[int], budget: Callable[[], int]) -> Iterator[list[int]]:
    """Yield rows in batches whose padded size (rows × longest) stays within the budget, the longest rows first.

    Sorted by length there is little padding, and a batch that does not fit into memory fails at once. Equal lengths
    keep their order. A row over the budget makes a batch of its own.

    Args:
        lengths: of the rows, in tokens.
        budget: padded tokens in a batch at most; asked again for each batch, for it may shrink.
    """
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(rows):
        fitting = max(1, budget() // max(1, lengths[rows[start]]))
        yield rows[start : start + fitting]
        start += fitting
