"""Two runtimes make the same vectors, or it is said where they do not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import LettersRuntime, install_letters
from faults import FAULTS, SCRIPTS, no_prefix

from enrich.embedding import parity
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.embedding.parity import RuntimeComparison
from enrich.embedding.runtime import RuntimeKind, Vectors
from enrich.embedding.runtimes.registry import RUNTIMES, choice
from enrich.models.conversion import convert_model, weights_for
from enrich.models.registry import DEFAULT_EMBEDDER, ModelFolder, default_root, load_registry
from parsers.errors import ModelError, StoreError

TELLING = "[INST] Say hello [/INST]"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Embedder]:
    toml, root = install_letters(tmp_path, monkeypatch)

    def open_one(name: str = "letters", **options: Any) -> Embedder:
        return open_embedder(name, load_registry(toml), ModelFolder(root), **options)

    return open_one


# --- the set


def test_the_set_holds_what_runtimes_fail_on(opened: Callable[..., Embedder]) -> None:
    embedder = opened()
    chosen = parity.texts(embedder)
    counted = Counter(stratum for stratum, _ in chosen)
    assert len(chosen) >= 120 and len(set(chosen)) == len(chosen)
    wanted = {"sentences", "long", "short", "empty", *SCRIPTS, "accents", "code", "numbers", "tables", "markup"}
    assert counted.keys() >= wanted | {"emoji", "control", "special", "overlong"}
    assert min(counted.values()) >= 6
    assert all((not text.strip("\u200b\ufeff").strip()) == (stratum == "empty") for stratum, text in chosen)


def test_long_texts_stand_just_below_at_and_above_the_limit(opened: Callable[..., Embedder]) -> None:
    for name in ("letters", "vowels"):
        embedder = opened(name)
        sizes = [embedder.count(text) for stratum, text in parity.texts(embedder) if stratum == "long"]
        limit = embedder.limit
        assert sorted(set(sizes)) == [limit - 1, limit, limit + 1, 2 * limit]


def test_the_set_does_not_change_unnoticed() -> None:
    """Another set makes kept records incomparable: raise VERSION with it."""
    fixed, words = parity._file()
    assert parity.digest([*fixed, *(parity.Text("", " ".join(own)) for own in words)])[:16] == "01f23f7ab1e884ce"


def test_a_text_is_embedded_alone_and_among_others_as_passage_and_as_query(opened: Callable[..., Embedder]) -> None:
    assert parity.conditions(opened()) == [("passage", "alone"), ("passage", "mixed")]
    vowels = opened("vowels")
    under = parity.conditions(vowels)
    assert under == [("passage", "alone"), ("passage", "mixed"), ("query", "alone"), ("query", "mixed")]
    chosen = parity.texts(vowels)
    vectors = parity.vectors_of(vowels, chosen, under)
    assert vectors.shape == (4, len(chosen), 5)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[2], atol=1e-3)


def test_a_mixed_batch_holds_short_and_long_texts(opened: Callable[..., Embedder]) -> None:
    embedder = opened()
    chosen = parity.texts(embedder)
    order = parity._shuffled(chosen)
    assert sorted(order) == list(range(len(chosen)))
    first = [chosen[row] for row in order[:16]]
    assert 1 <= sum(stratum == "long" for stratum, _ in first) <= 4
    assert len({stratum for stratum, _ in first}) >= 6


# --- comparing


def found(one: Embedder, other: Embedder) -> RuntimeComparison:
    return parity.against(one, parity.read_probes(parity.make_probes(other)))


def broken(change: Callable[[Vectors, Sequence[Sequence[int]]], Vectors]) -> RuntimeKind:
    class Broken(LettersRuntime):
        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            return change(super().encode(batch), batch)

    return RuntimeKind(Broken)


def test_a_runtime_agrees_with_itself(opened: Callable[..., Embedder]) -> None:
    for name in ("letters", "vowels"):
        same = found(opened(name), opened(name))
        assert same.passed and same.min > 0.999999 and same.failing == {} and same.reason == ""
        assert (same.a, same.b) == ("letters:fp32", "letters:fp32")


def test_one_wrong_text_is_enough(opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch) -> None:
    right = opened()
    probes = parity.read_probes(parity.make_probes(right))
    wrong_ids = next(right._pieces([TELLING], "passage")).ids

    def one_wrong(vectors: Vectors, batch: Sequence[Sequence[int]]) -> Vectors:
        for row, ids in enumerate(batch):
            if list(ids) == wrong_ids:
                vectors[row, 0] += 3
        return vectors

    monkeypatch.setitem(RUNTIMES, "letters", broken(one_wrong))
    wrong = parity.against(opened(), probes)
    assert not wrong.passed and wrong.mean > 0.99
    assert wrong.worst[0][1:] == ("special", TELLING) and wrong.failing.keys() == {"special"}
    assert "0.999 is asked of every stratum; below it: special 0." in wrong.reason


def test_a_vector_that_is_none_is_no_agreement() -> None:
    one = np.ones((1, 3, 4), dtype=np.float32)
    other = one.copy()
    other[0, 0], other[0, 1] = np.nan, 0
    assert parity.cosines_of(one, other).tolist() == [[-1.0, -1.0, 1.0]]
    assert parity.cosines_of(one, one[:, :, :2]).tolist() == [[-1.0, -1.0, -1.0]]


def test_another_limit_shows_in_the_long_texts(opened: Callable[..., Embedder]) -> None:
    probes = parity.read_probes(parity.make_probes(opened()))
    cut = opened()
    cut._tokens._room = 30  # type: ignore[misc]
    wrong = parity.against(cut, probes)
    assert not wrong.passed and "long" in wrong.failing
    assert wrong.failing.keys() <= {"long", "overlong", "code", "markup", "special", "sentences", "accents"}, (
        wrong.reason
    )


def test_a_dropped_prefix_shows_everywhere(opened: Callable[..., Embedder]) -> None:
    probes = parity.read_probes(parity.make_probes(opened("vowels")))
    bare = opened("vowels")
    no_prefix(bare)
    wrong = parity.against(bare, probes)
    assert not wrong.passed and len(wrong.failing) > len(wrong.by_kind) / 2


def test_probes_of_another_model_and_bytes_that_are_none_are_refused(opened: Callable[..., Embedder]) -> None:
    data = parity.make_probes(opened())
    with pytest.raises(ModelError, match="the probes are of a model of fingerprint"):
        parity.against(opened("vowels"), parity.read_probes(data))
    for bad in (b"", b"nonsense", data[: len(data) // 2]):
        with pytest.raises(StoreError, match="probes cannot be read"):
            parity.read_probes(bad)


def test_probes_damaged_anywhere_are_a_clear_error(opened: Callable[..., Embedder]) -> None:
    data = parity.make_probes(opened())
    told = 0
    for at in range(0, len(data), 97):
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            try:
                parity.read_probes(bad)  # a flip among the vectors shows only in their digest
            except StoreError as error:
                assert error.remedy
                told += 1
    assert told > len(data) // 97


def test_the_nearest_in_common() -> None:
    rng = np.random.default_rng(7)
    texts = rng.normal(size=(60, 8)).astype(np.float32)
    assert parity.top_overlap(texts, texts, 10) == 1.0
    assert parity.top_overlap(texts, rng.normal(size=(60, 8)).astype(np.float32), 10) < 0.6


# --- the real runtimes


@pytest.fixture(scope="module")
def minilm() -> Iterator[Callable[..., Embedder]]:
    registry, folder = load_registry(), ModelFolder(default_root())
    model = registry.embedder(DEFAULT_EMBEDDER)

    def open_one(runtime: str = "sentence-transformers") -> Embedder:
        chosen = choice(model, runtime)
        if RUNTIMES[chosen.runtime].converted:
            convert_model(model, chosen, folder)
        return open_embedder(model.name, registry, folder, runtime=runtime, device="cpu")

    yield open_one


@pytest.fixture(scope="module")
def expected(minilm: Callable[..., Embedder]) -> parity.Probes:
    return parity.read_probes(parity.make_probes(minilm()))


@pytest.mark.real
@pytest.mark.parametrize("runtime", ["onnx", "llama.cpp:fp16"])
def test_runtimes_that_agree(minilm: Callable[..., Embedder], expected: parity.Probes, runtime: str) -> None:
    same = parity.against(minilm(runtime), expected)
    assert same.passed and same.min > 0.9999, same.reason


@pytest.mark.real
@pytest.mark.parametrize(
    ("runtime", "least"), [("onnx:int8", 0.8), ("llama.cpp:q8_0", 0.99), ("llama.cpp:q4_k_m", 0.93)]
)
def test_quantized_weights_do_not_agree(
    minilm: Callable[..., Embedder], expected: parity.Probes, runtime: str, least: float
) -> None:
    wrong = parity.against(minilm(runtime), expected)
    assert not wrong.passed and least < wrong.min < parity.LEAST and "short" in wrong.failing
    sentences = wrong.by_kind["sentences"]
    assert runtime != "llama.cpp:q8_0" or sentences > parity.LEAST, "ordinary sentences alone would have passed it"


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name].model == DEFAULT_EMBEDDER])
def test_what_is_wrong_shows_where_it_must(minilm: Callable[..., Embedder], expected: parity.Probes, name: str) -> None:
    fault, embedder = FAULTS[name], minilm("llama.cpp:fp16")
    fault.spoil(embedder)
    wrong = parity.against(embedder, expected)
    assert not wrong.passed and wrong.min < fault.below
    assert fault.must <= wrong.failing.keys() and not fault.never & wrong.failing.keys(), wrong.reason


# --- conversion


@pytest.mark.real
def test_a_converted_file_says_where_it_comes_from(minilm: Callable[..., Embedder], tmp_path: Path) -> None:
    registry, folder = load_registry(), ModelFolder(tmp_path, [default_root()])
    model = registry.embedder(DEFAULT_EMBEDDER)
    chosen = choice(model, "llama.cpp:fp16")
    with pytest.raises(
        ModelError, match=r"is not converted for llama\.cpp:fp16\. Convert it: gristmill models convert"
    ):
        open_embedder(model.name, registry, folder, runtime="llama.cpp:fp16")
    minilm("llama.cpp:fp16")
    said: list[str] = []
    record = convert_model(model, chosen, folder, said.append)
    assert record.sources == {file.path: file.sha256 for file in model.files} and record.size > 40_000_000
    assert record == convert_model(model, chosen, folder, said.append), "it is made once"
    again = convert_model(model, chosen, ModelFolder(default_root()))
    assert again.sha256 == record.sha256, "the same weights give the same bytes"
    weights = weights_for(model, chosen, folder.find(model), folder)
    embedder = open_embedder(model.name, registry, folder, runtime="llama.cpp:fp16")
    assert embedder.provenance.file == weights.sha256 == record.sha256
    with weights.place.open("r+b") as file:
        file.seek(1000)
        file.write(b"changed")
    with pytest.raises(ModelError, match="is not what its record says"):
        open_embedder(model.name, registry, folder, runtime="llama.cpp:fp16")
    left = weights.place.with_name(".making-killed")
    left.mkdir()
    assert convert_model(model, chosen, folder).sha256 == record.sha256, "and is made anew"
    assert not left.exists(), "what a killed conversion left goes with the next one"


def test_what_cannot_be_converted_says_why(opened: Callable[..., Embedder], tmp_path: Path) -> None:
    from enrich.models.gguf_file import write_gguf as to_gguf

    registry, folder = load_registry(), ModelFolder(default_root())
    model = registry.embedder(DEFAULT_EMBEDDER)
    with pytest.raises(ModelError, match=r"reads .* as it is"):
        convert_model(model, choice(model, "sentence-transformers"), folder)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    with pytest.raises(ModelError, match="its kind is 'qwen3'"):
        to_gguf(model, tmp_path, tmp_path / "x.gguf", "fp32")
