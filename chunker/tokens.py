"""The ruler: the tokenizer and the budget that the chunker counts with.

Invariants:
- Counting never truncates or pads, whatever the tokenizer file says.
- No call hands the tokenizer more than a slab at a time, since one call over a text of 4 MB was measured to take 634 MB
  of memory; time and memory are linear in the text.
- A count made of words is the one that the tokenizer would give, but for an unknown token of more than
  ``LONGEST_UNKNOWN`` characters: WordPiece makes one of a word of more than 100 characters, and of a phrase in a script
  without spaces that it does not know. It counts one for every ``PIECE`` characters, about what tokenizers that know
  such a script need, so that a long text is not taken for a short one.

Where a tokenizer takes each word between white space by itself, as BERT's do, the counts of words are remembered: most
of a text is words that were counted before.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

from tokenizers import Encoding, Tokenizer

SLAB: Final = 100_000  # code points handed to the tokenizer at a time
_REMEMBERED: Final = 300_000  # words, some 40 MB; then the memory of words begins anew
_LONGEST: Final = 40  # code points of a word that is worth remembering
LONGEST_UNKNOWN: Final = 20  # code points of an unknown token that counts as one
_PIECE: Final = 4  # code points for each of which a longer one counts once
_BLANK: Final = re.compile(r"\s")
# What Python takes for white space and BERT's normalizer for nothing at all.
_ODD: Final = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class Measure(Protocol):
    """The tokens of one text, without special tokens: how many there are, and in which part."""

    @property
    def total(self) -> int:
        """How many there are."""

    exact: bool
    """Whether a part that is cut out at white space has as many by itself."""

    def parts(self, cuts: Sequence[int]) -> list[int]:
        """Return how many there are from each of some places to the next, in code points; the last is the end."""


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
        description = json.loads(data)
        self._unknown = self._unknown_id(description["model"])
        self.additive = _is_additive(description)
        """Whether a text's count is the sum over its parts, where it is cut at white space."""
        self._words: dict[str, int] = {}
        self.limit = limit
        self.room = max(1, limit - special - prefix)
        self.fingerprint = f"{hashlib.sha256(data).hexdigest()[:16]}:{limit}:{special}:{prefix}"

    def count(self, text: str) -> int:
        """Return tokens of a text, without special tokens."""
        if not self.additive or _ODD.search(text):
            return sum(self._count_slab(text[start:end]) for start, end in _slabs(text))
        return sum(self._count_words(text[start:end].split()) for start, end in _slabs(text))

    def measure(self, text: str) -> Measure:
        """Return the tokens of a text that may have to be cut."""
        return _Encoded(self, text) if not self.additive or _ODD.search(text) else _Counted(self, text)

    def starts(self, text: str) -> list[int]:
        """Return where each token of a text of at most a slab begins; an unknown stretch has one for each piece."""
        encoding = self.encode(text)
        starts: list[int] = []
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == self._unknown and end - start > LONGEST_UNKNOWN:
                starts += range(start, end, _PIECE)
            else:
                starts.append(start)
        return starts

    def reach(self, text: str, tokens: int) -> int:
        """Return where in a text of at most a slab the token begins that follows so many; its end where none does."""
        starts = self.starts(text)
        return starts[tokens] if tokens < len(starts) else len(text)

    def encode(self, text: str) -> Encoding:
        """Return the tokens of a text of at most a slab, as the tokenizer gives them."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _count_slab(self, text: str) -> int:
        encoding = self.encode(text)
        known = self._unknown is None or len(text) <= LONGEST_UNKNOWN or self._unknown not in encoding.ids
        return len(encoding) if known else len(self.starts(text))

    def _unknown_id(self, model: Mapping[str, Any]) -> int | None:
        """Return the id of the unknown token; None where the tokenizer knows everything."""
        token = model.get("unk_token")
        found = self._tokenizer.token_to_id(token) if token is not None else model.get("unk_id")
        return int(found) if found is not None else None

    def _count_words(self, words: list[str]) -> int:
        known = self._words
        try:
            return sum(map(known.__getitem__, words))
        except KeyError:
            return self._count_new(words)

    def _count_new(self, words: list[str]) -> int:
        """Return tokens of words of which some are new, all of these counted in one call."""
        if len(self._words) > _REMEMBERED:
            self._words = {}
        known = self._words
        long = [word for word in words if len(word) > _LONGEST]
        new = [word for word in dict.fromkeys(words) if word not in known and len(word) <= _LONGEST]
        known.update(self._each(new))
        if not long:
            return sum(map(known.__getitem__, words))
        short = (word for word in words if len(word) <= _LONGEST)
        return sum(map(known.__getitem__, short)) + sum(map(self._count_slab, long))

    def _each(self, words: list[str]) -> Iterator[tuple[str, int]]:
        """Return each word with its tokens."""
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


class _Encoded:
    """A text measured by the tokens that the tokenizer gives for it."""

    exact = False

    def __init__(self, ruler: Ruler, text: str) -> None:
        self._starts = array("Q")
        for start, end in _slabs(text):
            self._starts.extend(start + begin for begin in ruler.starts(text[start:end]))
        self.total = len(self._starts)

    def parts(self, cuts: Sequence[int]) -> list[int]:
        before = [bisect_left(self._starts, cut) for cut in cuts[:-1]]
        return [b - a for a, b in pairwise([*before, self.total])]


def _is_additive(tokenizer: Any) -> bool:
    """Return whether words between white space are tokenized each by itself, so that a sum over parts is exact."""
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
