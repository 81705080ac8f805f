"""The ruler: the tokenizer and the budget that the chunker counts with.

Kept here: counting never truncates or pads, whatever the tokenizer file says; and no call hands the tokenizer more
than a block at a time, since one call over a text of 4 MB was measured to take 634 MB of memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

SLAB: Final = 500_000  # code points handed to the tokenizer at a time


class Ruler:
    """Counts tokens with one tokenizer, and says how many a chunk may have.

    Args:
        tokenizer_file: a ``tokenizer.json``.
        limit: tokens the embedder takes, special tokens and prefix included.
        special: special tokens it adds to every text.
        prefix: tokens of the prefix it puts before every passage.
    """

    def __init__(self, tokenizer_file: Path, *, limit: int, special: int = 2, prefix: int = 0) -> None:
        data = tokenizer_file.read_bytes()
        self._tokenizer = Tokenizer.from_str(data.decode("utf-8"))
        self.additive = _is_additive(json.loads(data))
        """Whether a text's count is the sum over its parts, where it is cut at white space."""
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.limit = limit
        self.room = max(1, limit - special - prefix)
        self.fingerprint = f"{hashlib.sha256(data).hexdigest()[:16]}:{limit}:{special}:{prefix}"

    def count(self, text: str) -> int:
        """Tokens of a text, without special tokens."""
        return sum(self.count_all([text[i : i + SLAB] for i in range(0, len(text), SLAB)]))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without special tokens; none of them longer than a block."""
        counts: list[int] = []
        for slab in _slabs(texts):
            counts += map(len, self._tokenizer.encode_batch_fast(slab, add_special_tokens=False))
        return counts

    def spans(self, text: str) -> list[tuple[int, int]]:
        """``[start, end)`` of each token in the text, in code points."""
        offsets: list[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return offsets


def _is_additive(tokenizer: Any) -> bool:
    """Whether words between white space are tokenized each by itself, so that a sum over parts is exact."""
    words = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
    normalizers = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFKC", "NFD", "NFKD")
    pre_tokenizer, normalizer = tokenizer.get("pre_tokenizer") or {}, tokenizer.get("normalizer") or {}
    return (
        tokenizer["model"]["type"] == "WordPiece"
        and pre_tokenizer.get("type") in words
        and normalizer.get("type", "NFC") in normalizers
    )


def _slabs(texts: Sequence[str]) -> Iterator[list[str]]:
    slab: list[str] = []
    size = 0
    for text in texts:
        if slab and size + len(text) > SLAB:
            yield slab
            slab, size = [], 0
        slab.append(text)
        size += len(text)
    if slab:
        yield slab
