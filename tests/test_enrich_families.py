"""Entries shaped as those of model families: prefixes on one side or both, one with a line end, shorter vectors."""

from __future__ import annotations

import string
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fakes import LettersRuntime, install_letters, pairs_tokenizer
from tokenizers import Tokenizer, processors

from enrich.embedding.embedder import Embedder, embedder_fingerprint, open_embedder
from enrich.models.registry import DEFAULT_EMBEDDER, EmbedderModel, ModelFolder, Registry, load_registry
from parsers.errors import ModelError

BGE = "Represent this sentence for searching relevant passages: "
QWEN3 = "Instruct: Given a web search query, retrieve relevant passages that answer the query\\nQuery:"

MODELS = f"""
[[model]]
name = "e5"
query_prefix = "query: "
passage_prefix = "passage: "
pooling = "mean"
matryoshka = []

[[model]]
name = "bge"
query_prefix = "{BGE}"
passage_prefix = ""
pooling = "cls"
matryoshka = []

[[model]]
name = "qwen3"
query_prefix = "{QWEN3}"
passage_prefix = ""
pooling = "lasttoken"
matryoshka = [13, 5]
"""
REST = """
kind = "embedder"
licence = "CC0-1.0"
dimension = 26
limit = 64
normalize = true
runtimes = ["letters"]
files = [{files}]
"""
LINE_END_TOO = QWEN3.replace("\\n", "\n")


def tokenizer(name: str) -> Tokenizer:
    """Two letters a token; Qwen3's puts nothing in front of a text."""
    made = pairs_tokenizer()
    if name == "qwen3":
        end = ("[SEP]", made.token_to_id("[SEP]"))
        made.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[end])
    return made


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    install_letters(tmp_path, monkeypatch)
    entries = ""
    for one in MODELS.split("[[model]]")[1:]:
        name = one.split('"')[1]
        folder = tmp_path / "families" / name
        folder.mkdir(parents=True)
        (folder / "alphabet.txt").write_text(string.ascii_lowercase, encoding="utf-8")
        tokenizer(name).save(str(folder / "tokenizer.json"))
        files = ", ".join(
            f'{{ path = "{path}", size = {len(data)}, sha256 = "{sha256(data).hexdigest()}", role = "{role}" }}'
            for path, role in [("alphabet.txt", "weights"), ("tokenizer.json", "tokenizer")]
            for data in [(folder / path).read_bytes()]
        )
        entries += f"[[model]]{one.rstrip()}{REST.format(files=files)}\n"
    (tmp_path / "families.toml").write_text(entries, encoding="utf-8")
    return load_registry(tmp_path / "families.toml")


@pytest.fixture
def opened(tmp_path: Path, registry: Registry) -> Callable[[str], Embedder]:
    return lambda name: open_embedder(name, registry, ModelFolder(tmp_path / "families"))


# --- prefixes


@pytest.mark.parametrize(
    ("name", "query", "passage", "special"),
    [
        ("e5", 3 + 1, 4 + 1, 2),
        ("bge", 5 + 2 + 4 + 2 + 5 + 4 + 4 + 1, 0, 2),
        ("qwen3", (4 + 1) + (3 + 1 + 2 + 3 + 3 + 1) + (4 + 4 + 4) + (2 + 3 + 2 + 3) + (3 + 1), 0, 1),
    ],
)
def test_each_side_has_its_prefix_and_counts_it(
    opened: Callable[[str], Embedder], name: str, query: int, passage: int, special: int
) -> None:
    embedder = opened(name)
    assert embedder.special_tokens == special
    assert embedder.count("abcd") == 2 + passage + special
    assert embedder.count("abcd", "query") == 2 + query + special
    for kind, prefix in (("query", query), ("passage", passage)):
        room = embedder.limit - prefix - special
        texts = ["ab" * room, "ab" * (room + 1), "ab" * 500]
        given = embedder.encode(texts, kind)  # type: ignore[arg-type]
        np.testing.assert_array_equal(given.tokens, [64, 65, 500 + prefix + special])
        np.testing.assert_array_equal(given.truncated, [False, True, True])


@pytest.mark.parametrize(
    ("name", "kind", "prefix"),
    [
        ("e5", "query", "query: "),
        ("e5", "passage", "passage: "),
        ("bge", "query", BGE),
        ("bge", "passage", ""),
        ("qwen3", "query", LINE_END_TOO),
        ("qwen3", "passage", ""),
    ],
)
def test_the_model_gets_prefix_text_and_end_whatever_is_cut(
    opened: Callable[[str], Embedder], name: str, kind: str, prefix: str
) -> None:
    opened(name).encode(["zebra", "zebra " * 40], kind)  # type: ignore[arg-type]
    given = sorted((ids for batch in LettersRuntime.batches for ids in batch), key=len)
    own = tokenizer(name)
    own.no_truncation()
    own.no_padding()
    for ids, text in zip(given, ["zebra", "zebra " * 40], strict=True):
        whole = own.encode(prefix + text).ids
        assert ids == (whole if len(whole) <= 64 else [*whole[:63], own.token_to_id("[SEP]")])


def test_only_the_side_with_a_prefix_is_moved_by_it(opened: Callable[[str], Embedder]) -> None:
    for name, prefix in (("bge", BGE), ("qwen3", LINE_END_TOO)):
        embedder = opened(name)
        text = "quiz"
        bare = np.array([text.count(letter) for letter in string.ascii_lowercase], dtype=np.float32)
        both = np.array([(prefix + text).lower().count(letter) for letter in string.ascii_lowercase], dtype=np.float32)
        np.testing.assert_allclose(embedder.encode([text]).vectors[0], bare / np.linalg.norm(bare), atol=1e-6)
        np.testing.assert_allclose(embedder.query(text), both / np.linalg.norm(both), atol=1e-6)


# --- shorter vectors


def test_a_shorter_vector_is_the_start_of_the_whole_one_normalized(opened: Callable[[str], Embedder]) -> None:
    texts = ["abacus", "queue of bees", "zebra", "a", "nobody knows"]
    whole, short = opened("qwen3").encode(texts), opened("qwen3@13").encode(texts)
    assert (whole.vectors.shape, short.vectors.shape) == ((5, 26), (5, 13))
    starts = whole.vectors[:, :13]
    expected = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    np.testing.assert_allclose(short.vectors, expected, atol=1e-6)
    np.testing.assert_array_equal(short.tokens, whole.tokens)
    assert opened("qwen3@5").dimension == 5 and opened("qwen3@5").query("abc").shape == (5,)


def test_where_the_start_says_nothing_there_is_no_vector(opened: Callable[[str], Embedder]) -> None:
    with pytest.raises(ModelError, match="no finite vector of 13 numbers"):
        opened("qwen3@13").encode(["zz"])


def test_without_normalization_the_start_is_left_as_it_is(tmp_path: Path, registry: Registry) -> None:
    plain = Registry([msgspec.structs.replace(registry.embedder("qwen3"), normalize=False)])
    embedder = open_embedder("qwen3@5", plain, ModelFolder(tmp_path / "families"))
    np.testing.assert_array_equal(embedder.encode(["abbc"]).vectors[0], [1, 2, 1, 0, 0])


def test_a_name_with_a_dimension(registry: Registry) -> None:
    whole = registry.embedder("qwen3")
    short = registry.embedder("qwen3@13")
    assert (short.name, short.dimension, short.full) == ("qwen3", 13, 26)
    assert registry.get("qwen3@13") == short and registry.embedder("qwen3@26") == whole
    assert short.cut("5") == registry.embedder("qwen3@5") and short.cut("26") == whole
    with pytest.raises(ModelError, match=r"'qwen3' was not trained for vectors of 12 numbers\. Known: 5, 13, 26\."):
        registry.embedder("qwen3@12")
    with pytest.raises(ModelError, match=r"was not trained for vectors of 013 numbers\. Known: 5, 13, 26\."):
        registry.embedder("qwen3@013")
    with pytest.raises(ModelError, match=r"was not trained for vectors of no numbers"):
        registry.embedder("qwen3@")
    with pytest.raises(ModelError, match=r"was not trained for vectors of 256 numbers\. Known: 384\."):
        registry.embedder(f"{DEFAULT_EMBEDDER}@256")
    with pytest.raises(ModelError, match=r"unknown embedder 'qwen'; did you mean qwen3\? Known: .*qwen3"):
        registry.embedder("qwen@13")
    with pytest.raises(ModelError, match="is no embedder and has no dimensions"):
        registry.get("SmolLM2-135M-Instruct@13")


def test_the_fingerprint_tells_dimensions_apart(registry: Registry) -> None:
    whole = registry.embedder("qwen3")
    replace = msgspec.structs.replace
    different = [
        whole,
        registry.embedder("qwen3@13"),
        registry.embedder("qwen3@5"),
        replace(whole, dimension=13, matryoshka=()),  # a model that has no more
        replace(whole, dimension=13, cut_from=52),
    ]
    assert len({embedder_fingerprint(model) for model in different}) == len(different)
    assert embedder_fingerprint(replace(whole, matryoshka=())) == embedder_fingerprint(whole)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"matryoshka": (5, 26)}, "has 26 dimensions, and none of `matryoshka` may have as many"),
        ({"dimension": 12, "cut_from": 26}, "is cut to 12 dimensions, which `matryoshka` lacks"),
    ],
)
def test_dimensions_that_cannot_be_are_refused(registry: Registry, changes: dict[str, object], says: str) -> None:
    model: EmbedderModel = registry.embedder("qwen3")
    with pytest.raises(ValueError, match=says):
        msgspec.structs.replace(model, **changes)
