"""Tokenize texts for an embedder and apply its limit.

Invariants:
- The model's own tokenizer is used, with truncation and padding off.
- The limit is applied here; the end token is kept.
- Truncated and unknown tokens are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from tokenizers import Tokenizer

from parsers.errors import ModelError

PIECE_CHARACTERS: Final = 1 << 16  # characters tokenized in one piece: 4 million in one call take 600 MB
TEXTS_AT_ONCE: Final = 256  # texts whose encodings are held at a time


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of one text.

    Attributes:
        ids: its token ids within the limit, between the special tokens.
        tokens: how many there are without the limit.
        unknown: how many of those are unknown tokens.
    """

    ids: list[int]
    tokens: int
    unknown: int


class TokenCutter:
    """A model's own tokenizer with its limit.

    Args:
        path: the tokenizer's file, in the format of the library ``tokenizers``.
        limit: maximum length of the input in tokens, special tokens included.

    Raises:
        ModelError: when the file is no tokenizer, or puts other things around a text than tokens before and behind.
    """

    def __init__(self, path: Path, limit: int) -> None:
        try:
            self._tokenizer: Final = Tokenizer.from_file(str(path))
            unknown = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile).model
        except Exception as error:  # the library has no narrower error
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
        """Number of special tokens added to a text."""
        return len(self._head) + len(self._tail)

    def cut(self, texts: Sequence[str]) -> Iterator[Piece]:
        """Yield the tokens of each text, in order.

        Raises:
            ValueError: when a text is not valid Unicode (it has half of a surrogate pair).
        """
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            group = texts[first : first + TEXTS_AT_ONCE]
            short = [text for text in group if len(text) <= PIECE_CHARACTERS]
            encoded = iter(self._ids(short))
            for text in group:
                yield self._piece([next(encoded)] if len(text) <= PIECE_CHARACTERS else self._long(text))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        try:
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError as error:
            broken = next((text for text in texts if not _is_unicode(text)), "")
            raise ValueError(f"half of a surrogate pair in {broken[:60]!r}: it is no Unicode text") from error
        return [encoding.ids for encoding in encodings]

    def _long(self, text: str) -> Iterator[list[int]]:
        """Yield the ids of a long text block by block; where a word is longer than a block, it counts as two."""
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
        """Return the special tokens before and behind a text."""
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
    """Return where a block that starts here ends: before the last blank within reach, else at its full length."""
    end = start + PIECE_CHARACTERS
    if end >= len(text):
        return len(text)
    for position in range(end, start, -1):
        if text[position].isspace():
            return position
    return end
