"""The ruler: the tokenizer and the budget that the chunker counts with.

Kept here: counting never truncates or pads, whatever the tokenizer file says; no call hands the tokenizer more than a
slab at a time, since one call over a text of 4 MB was measured to take 634 MB of memory; and a count made of words is
the one that the tokenizer would give. Where a tokenizer takes each word between white space by itself, as BERT's do,
the counts of words are remembered: most of a text is words that were counted before.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

from tokenizers import Encoding, Tokenizer

SLAB: Final = 100_000  # code points handed to the tokenizer at a time
_REMEMBERED: Final = 300_000  # words, some 40 MB; then the memory of words begins anew
_LONGEST: Final = 40  # code points of a word that is worth remembering
_BLANK: Final = re.compile(r"\s")
_WORD: Final = re.compile(r"\S+")
# What Python takes for white space and BERT's normalizer for nothing at all.
_ODD: Final = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class Measure(Protocol):
    """The tokens of one text, without special tokens: how many there are, and where."""

    @property
    def total(self) -> int:
        """How many there are."""

    exact: bool
    """Whether a part that is cut out at white space has as many by itself."""

    def parts(self, cuts: Sequence[int]) -> list[int]:
        """How many there are from each of some places to the next, in code points; the last is the end."""

    def reach(self, start: int, tokens: int) -> int:
        """Where the token begins that follows so many from a place on; the end of the text where none does."""


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
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.additive = _is_additive(json.loads(data))
        """Whether a text's count is the sum over its parts, where it is cut at white space."""
        self._words: dict[str, int] = {}
        self.limit = limit
        self.room = max(1, limit - special - prefix)
        self.fingerprint = f"{hashlib.sha256(data).hexdigest()[:16]}:{limit}:{special}:{prefix}"

    def count(self, text: str) -> int:
        """Tokens of a text, without special tokens."""
        if not self.additive or _ODD.search(text):
            return _Encoded(self, text).total
        words = text.split()
        known = self._words
        try:
            return sum(map(known.__getitem__, words))
        except KeyError:
            return self._count_new(words)

    def measure(self, text: str) -> Measure:
        """The tokens of a text that may have to be cut."""
        return _Encoded(self, text) if not self.additive or _ODD.search(text) else _Counted(self, text)

    def encode(self, text: str) -> Encoding:
        """The tokens of a text of at most a slab, as the tokenizer gives them."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _count_new(self, words: list[str]) -> int:
        """Tokens of words of which some are new, all of these counted in one call."""
        if len(self._words) > _REMEMBERED:
            self._words = {}
        known = self._words
        long = [word for word in words if len(word) > _LONGEST]
        new = [word for word in dict.fromkeys(words) if word not in known and len(word) <= _LONGEST]
        known.update(self._each(new))
        if not long:
            return sum(map(known.__getitem__, words))
        short = (word for word in words if len(word) <= _LONGEST)
        return sum(map(known.__getitem__, short)) + sum(_Encoded(self, word).total for word in long)

    def _each(self, words: list[str]) -> Iterator[tuple[str, int]]:
        """Each word with its tokens."""
        joined = " ".join(words)
        ends: list[int] = []
        for word in words:
            ends.append((ends[-1] + 1 if ends else 0) + len(word))
        counts = _Encoded(self, joined).parts([0, *(end + 1 for end in ends[:-1]), len(joined)]) if words else []
        return zip(words, counts, strict=True)


class _Counted:
    """A text measured by the counts of its words."""

    exact = True

    def __init__(self, ruler: Ruler, text: str) -> None:
        self._ruler = ruler
        self._text = text
        self.total = ruler.count(text)

    def parts(self, cuts: Sequence[int]) -> list[int]:
        return [self._ruler.count(self._text[a:b]) for a, b in pairwise(cuts)]

    def reach(self, start: int, tokens: int) -> int:
        for word in _WORD.finditer(self._text, start):
            count = self._ruler.count(word[0])
            if count > tokens:
                return word.start() + _Encoded(self._ruler, word[0]).reach(0, tokens)
            tokens -= count
        return len(self._text)


class _Encoded:
    """A text measured by the tokens that the tokenizer gives for it."""

    exact = False

    def __init__(self, ruler: Ruler, text: str) -> None:
        self._length = len(text)
        self._slabs = [(start, ruler.encode(text[start:end])) for start, end in _slabs(text)]
        self.total = sum(len(encoding) for _, encoding in self._slabs)

    @cached_property
    def _starts(self) -> list[int]:
        return [begin + start for begin, encoding in self._slabs for start, _ in encoding.offsets]

    def parts(self, cuts: Sequence[int]) -> list[int]:
        before = [bisect_left(self._starts, cut) for cut in cuts[:-1]]
        return [b - a for a, b in pairwise([*before, self.total])]

    def reach(self, start: int, tokens: int) -> int:
        index = bisect_left(self._starts, start) + tokens
        return self._starts[index] if index < self.total else self._length


def _is_additive(tokenizer: Any) -> bool:
    """Whether words between white space are tokenized each by itself, so that a sum over parts is exact."""
    words = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
    normalizers = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFKC", "NFD", "NFKD")
    pre_tokenizer, normalizer = tokenizer.get("pre_tokenizer") or {}, tokenizer.get("normalizer") or {}
    return (
        tokenizer["model"]["type"] == "WordPiece"
        and pre_tokenizer.get("type") in words
        and normalizer.get("type", "NFC") in normalizers
        and not any(_BLANK.search(token["content"]) for token in tokenizer.get("added_tokens") or ())
    )


def _slabs(text: str) -> Iterator[tuple[int, int]]:
    """Parts of a text small enough for one call, cut at white space where there is any."""
    start = 0
    while len(text) - start > SLAB:
        blank = _BLANK.search(text, start + SLAB // 2, start + SLAB)
        end = blank.start() if blank else start + SLAB
        yield start, end
        start = end
    yield start, len(text)
