"""Embedders that can be computed by eye, installed as real models are: registry entry, model folder, runtime.

``letters``: dimension 26, limit 64; a vector counts the letters a to z. ``vowels``: dimension 5, limit 32, with the
prefixes ``query: `` and ``passage: ``; a vector counts a, e, i, o, u. Both are normalized, and a text without any such
letter has equal numbers throughout. Their tokenizer lowers case, drops accents, splits at blanks and around
punctuation, and makes ``ceil(n / 2)`` tokens of a word of n letters and digits, one of a punctuation mark, and one
unknown token of a word with a letter outside ASCII; two special tokens stand around each text.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from enrich.embedding.embedder import Embedder
from enrich.embedding.runtime import Provenance, RuntimeKind, Vectors, Weights
from enrich.embedding.runtimes.registry import RUNTIMES
from enrich.models.registry import EmbedderModel

ALPHABETS = {"letters": string.ascii_lowercase, "vowels": "aeiou"}


class LettersRuntime:
    """Counts letters in token ids.

    ``LettersRuntime.batches`` lists every batch of token ids that any of them was given since the last
    :func:`install_letters`, but for those by which it proves itself: what it holds is the work that was done.
    """

    batches: ClassVar[list[list[list[int]]]] = []

    def __init__(
        self, model: EmbedderModel, weights: Weights, precision: str = "fp32", device: str | None = None
    ) -> None:
        folder = weights.place
        self._alphabet = (folder / "alphabet.txt").read_text(encoding="utf-8")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    @property
    def provenance(self) -> Provenance:
        return Provenance(runtime="letters", precision="fp32", device="cpu", libraries={})

    def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
        self.batches.append([list(ids) for ids in batch])
        return np.array([self._counts(ids) for ids in batch], dtype=np.float32)

    def _counts(self, ids: Sequence[int]) -> list[int]:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        counts = [text.count(letter) for letter in self._alphabet]
        return counts if any(counts) else [1] * len(counts)


def install_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Make ``open_embedder("letters", …)`` and ``"vowels"`` work for one test.

    Returns:
        Path of their registry file, for `load_registry`, and root of the folder of their files, for `ModelFolder`.
    """
    root = tmp_path / "letters-models"
    for name, alphabet in ALPHABETS.items():
        (root / name).mkdir(parents=True)
        (root / name / "alphabet.txt").write_text(alphabet, encoding="utf-8")
        pairs_tokenizer().save(str(root / name / "tokenizer.json"))
    toml = tmp_path / "letters-models.toml"
    toml.write_text(
        _entry(root, "letters", limit=64, query="", passage="")
        + _entry(root, "vowels", limit=32, query="query: ", passage="passage: "),
        encoding="utf-8",
    )
    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(LettersRuntime))
    monkeypatch.setattr(LettersRuntime, "batches", [])
    real = Embedder.probe

    def unseen(self: Embedder, *given: Any) -> Vectors:
        kept, LettersRuntime.batches = LettersRuntime.batches, []
        try:
            return real(self, *given)
        finally:
            LettersRuntime.batches = kept

    monkeypatch.setattr(Embedder, "probe", unseen)
    return toml, root


def pairs_tokenizer() -> Tokenizer:
    """A tokenizer of two letters a token; see the top of this module."""
    characters = string.ascii_lowercase + string.digits
    pieces = [*characters, *(first + second for first in characters for second in characters)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.punctuation, *pieces, *(f"##{piece}" for piece in pieces)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=1000))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    # As MiniLM's file has them: who loads it as it is loses the end of the text.
    tokenizer.enable_truncation(max_length=8)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token="[PAD]")
    return tokenizer


def _entry(root: Path, name: str, *, limit: int, query: str, passage: str) -> str:
    files = ", ".join(
        f'{{ path = "{path}", size = {len(data)}, sha256 = "{sha256(data).hexdigest()}", role = "{role}" }}'
        for path, role in [("alphabet.txt", "weights"), ("tokenizer.json", "tokenizer")]
        for data in [(root / name / path).read_bytes()]
    )
    return f"""
[[model]]
name = "{name}"
kind = "embedder"
licence = "CC0-1.0"
dimension = {len(ALPHABETS[name])}
limit = {limit}
pooling = "mean"
normalize = true
query_prefix = "{query}"
passage_prefix = "{passage}"
runtimes = ["letters"]
files = [{files}]
"""
