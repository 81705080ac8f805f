from __future__ import annotations

import socket
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fakes import LettersRuntime, install_letters, pairs_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from enrich.embedding import embedder as policy
from enrich.embedding import tokenizer
from enrich.embedding.embedder import Embedder, batches, embedder_fingerprint, open_embedder
from enrich.embedding.runtime import OutOfMemory, Provenance, RuntimeKind, Vectors, Weights
from enrich.embedding.runtimes.registry import RUNTIMES
from enrich.embedding.tokenizer import TokenCutter
from enrich.models.registry import DEFAULT_EMBEDDER, EmbedderModel, ModelFolder, default_root, load_registry
from parsers.errors import ModelError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Embedder]:
    toml, root = install_letters(tmp_path, monkeypatch)
    registry, folder = load_registry(toml), ModelFolder(root)

    def open_one(name: str = "letters", **options: object) -> Embedder:
        return open_embedder(name, registry, folder, **options)  # type: ignore[arg-type]

    return open_one


@pytest.fixture
def letters(opened: Callable[..., Embedder]) -> Embedder:
    return opened()


def given_ids() -> list[list[int]]:
    """Every list of token ids that the runtime was given."""
    return [ids for batch in LettersRuntime.batches for ids in batch]


# --- vectors


def test_a_vector_by_eye(letters: Embedder) -> None:
    vector = letters.encode(["Abba, BAAB!"]).vectors[0]
    expected = np.zeros(26, dtype=np.float32)
    expected[:2] = 1 / np.sqrt(2)
    np.testing.assert_allclose(vector, expected, atol=1e-6)
    assert vector.dtype == np.float32 and letters.dimension == 26


def test_results_stand_in_the_order_of_the_texts(opened: Callable[..., Embedder]) -> None:
    texts = [letter * length for letter in "abcde" for length in (3, 50, 1, 20)]
    for budget in (1, 7, 40, 1000):
        vectors = opened(batch_tokens=budget).encode(texts).vectors
        assert [string.ascii_lowercase[row.argmax()] for row in vectors] == [text[0] for text in texts]


def test_equal_texts_are_embedded_once(letters: Embedder) -> None:
    encoded = letters.encode(["x", "yy", "x", "x", "yy"])
    assert sum(len(batch) for batch in LettersRuntime.batches) == 2
    np.testing.assert_array_equal(encoded.vectors[0], encoded.vectors[3])
    np.testing.assert_array_equal(encoded.tokens, [3, 3, 3, 3, 3])


def test_no_text_is_no_work(letters: Embedder) -> None:
    encoded = letters.encode([])
    assert encoded.vectors.shape == (0, 26) and encoded.tokens.shape == (0,) and encoded.truncated.shape == (0,)
    assert LettersRuntime.batches == []


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\u3000"])
def test_blank_text_is_refused(letters: Embedder, blank: str) -> None:
    with pytest.raises(ValueError, match="text 1 of 3 is blank"):
        letters.encode(["a", blank, "b"])
    with pytest.raises(ValueError, match="blank"):
        letters.query(blank)


def test_half_a_surrogate_pair_is_refused(letters: Embedder) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        letters.encode(["good", "bad \ud800"])


def test_query_and_passage_have_their_prefixes(opened: Callable[..., Embedder]) -> None:
    vowels = opened("vowels")
    query = vowels.query("oo")  # "query: oo" has u, e, o, o
    np.testing.assert_allclose(query, np.array([0, 1, 0, 2, 1]) / np.sqrt(6), atol=1e-6)
    passage = vowels.encode(["oo"])  # "passage: oo" has a, a, e, o, o
    np.testing.assert_allclose(passage.vectors[0], np.array([2, 1, 0, 2, 0]) / 3, atol=1e-6)
    assert passage.tokens[0] == vowels.count("oo") == 2 + 4 + 1 + 1
    assert vowels.count("oo", "query") == 2 + 3 + 1 + 1


# --- tokens and the limit


def test_the_limit_is_applied_with_the_end_token_kept_and_said(letters: Embedder) -> None:
    texts = ["ab" * 62, "ab" * 63, "ab" * 200]
    encoded = letters.encode(texts)
    assert letters.limit == 64 and letters.special_tokens == 2
    np.testing.assert_array_equal(encoded.tokens, [64, 65, 202])
    np.testing.assert_array_equal(encoded.truncated, [False, True, True])
    tokenizer = pairs_tokenizer()
    ends = {(len(ids), tokenizer.id_to_token(ids[0]), tokenizer.id_to_token(ids[-1])) for ids in given_ids()}
    assert ends == {(64, "[CLS]", "[SEP]")}


def test_unknown_tokens_are_counted_beyond_the_limit_too(letters: Embedder) -> None:
    encoded = letters.encode(["ab 漢字 ψψ", "all known", "ab" * 100 + " 漢"])
    np.testing.assert_array_equal(encoded.unknown, [3, 0, 1])


def test_counts_load_no_runtime(letters: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(lambda *_: pytest.fail("the runtime was loaded")))
    np.testing.assert_array_equal(letters.counts(["abc", "ab" * 100]), [4, 102])
    assert letters.count("") == 2
    assert len(letters.fingerprint) == 32


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    pairs_tokenizer().save(str(path))
    return path


TEXTS = st.text(st.sampled_from("abcXYZ019 \n.,-é漢"), max_size=120)


@given(texts=st.lists(TEXTS, max_size=5), limit=st.integers(3, 40))
def test_what_the_model_gets_is_its_own_tokens_cut(tokenizer_file: Path, texts: list[str], limit: int) -> None:
    own = pairs_tokenizer()
    own.no_truncation()
    own.no_padding()
    for text, piece in zip(texts, TokenCutter(tokenizer_file, limit).cut(texts), strict=True):
        whole = own.encode(text).ids
        assert piece.tokens == len(whole)
        assert piece.unknown == whole.count(own.token_to_id("[UNK]"))
        assert piece.ids == (whole if len(whole) <= limit else [*whole[: limit - 1], whole[-1]])


@given(text=TEXTS, block=st.integers(20, 60))
def test_a_long_text_counts_the_same_block_by_block(tokenizer_file: Path, text: str, block: int) -> None:
    text = " ".join(word[:15] for word in text.split(" "))  # a word longer than a block is cut: see _long
    cutter = TokenCutter(tokenizer_file, 64)
    (whole,) = cutter.cut([text])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "PIECE_CHARACTERS", block)
        (blocks,) = cutter.cut([text])
    assert blocks == whole


def test_a_tokenizer_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is no tokenizer"):
        TokenCutter(tmp_path / "tokenizer.json", 64)


def test_a_limit_without_room_is_refused(tokenizer_file: Path) -> None:
    with pytest.raises(ModelError, match="leave no room in the limit of 2"):
        TokenCutter(tokenizer_file, 2)


# --- batches


@given(lengths=st.lists(st.integers(1, 300), max_size=60), budget=st.integers(1, 2000))
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = list(batches(lengths, lambda: budget))
    assert sorted(row for batch in plan for row in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget for batch in plan)
    order = [lengths[row] for batch in plan for row in batch]
    assert order == sorted(order, reverse=True)
    assert all((len(batch) + 1) * lengths[batch[0]] > budget for batch in plan[:-1])


# --- a runtime that goes wrong


def faulty(encode: Callable[[Sequence[Sequence[int]]], Vectors]) -> RuntimeKind:
    class Faulty(LettersRuntime):
        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            LettersRuntime.batches.append([list(ids) for ids in batch])
            return encode(batch)

    return RuntimeKind(Faulty)


def test_a_vector_that_is_wrong_in_a_batch_and_right_alone_is_taken(
    opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_a_batch_wrong(batch: Sequence[Sequence[int]]) -> Vectors:
        vectors = np.ones((len(batch), 26), dtype=np.float32)
        if len(batch) > 1:
            vectors[1, 3] = np.inf
        return vectors

    monkeypatch.setitem(RUNTIMES, "letters", faulty(in_a_batch_wrong))
    vectors = opened().encode(["a", "b", "c"]).vectors
    np.testing.assert_allclose(vectors, np.full((3, 26), 26**-0.5), rtol=1e-6)
    assert [len(batch) for batch in LettersRuntime.batches] == [3, 1]


@pytest.mark.parametrize(
    "encode",
    [
        lambda batch: np.full((len(batch), 26), np.nan),
        lambda batch: np.full((len(batch), 26), -np.inf),
        lambda batch: np.zeros((len(batch), 26)),
        lambda batch: np.ones((len(batch), 25)),
        lambda batch: np.ones((len(batch) + 1, 26)),
        lambda batch: np.ones(26),
    ],
    ids=["nan", "infinite", "zero", "short", "too many", "flat"],
)
def test_a_vector_that_stays_wrong_is_never_returned(
    opened: Callable[..., Embedder],
    monkeypatch: pytest.MonkeyPatch,
    encode: Callable[[Sequence[Sequence[int]]], Vectors],
) -> None:
    monkeypatch.setitem(RUNTIMES, "letters", faulty(encode))
    with pytest.raises(ModelError, match=r"letters on letters .* no finite vector of 26 numbers .* 3 tokens"):
        opened().encode(["a", "b"])
    assert [len(batch) for batch in LettersRuntime.batches] == [2, 1]


def test_a_runtime_is_loaded_once_by_many_threads(
    opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    def slow(model: EmbedderModel, weights: Weights, precision: str, device: str | None) -> LettersRuntime:
        loads.append(device)
        time.sleep(0.05)
        return LettersRuntime(model, weights, precision, device)

    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(slow))
    embedder = opened(device="cpu")
    threads = [threading.Thread(target=embedder.encode, args=(["abc", "d" * n],)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["cpu"]
    assert len(LettersRuntime.batches) >= 5


# --- identity


def test_the_fingerprint_follows_what_decides_a_vector_and_nothing_else() -> None:
    minilm = load_registry().embedder(DEFAULT_EMBEDDER)
    replace = msgspec.structs.replace
    decides = [
        replace(minilm, dimension=383),
        replace(minilm, limit=512),
        replace(minilm, pooling="cls"),
        replace(minilm, normalize=False),
        replace(minilm, query_prefix="query: "),
        replace(minilm, passage_prefix="passage: "),
    ]
    for role in ("weights", "tokenizer"):
        files = tuple(replace(each, sha256="0" * 64) if each.role == role else each for each in minilm.files)
        decides.append(replace(minilm, files=files))
    assert len({embedder_fingerprint(model) for model in [minilm, *decides]}) == 1 + len(decides)
    same = replace(minilm, name="other", licence="", sources=(), languages=("de",), runtimes=("onnx",))
    assert embedder_fingerprint(same) == embedder_fingerprint(minilm)


def test_the_fingerprint_of_the_default_embedder_stays() -> None:
    """Another one makes every index of it be built anew: change it on purpose, with ``VERSION`` or the model."""
    assert embedder_fingerprint(load_registry().embedder(DEFAULT_EMBEDDER)) == "b680198e17be624135be751d8c7ebdc9"


def test_provenance_has_an_id_of_its_parts(letters: Embedder) -> None:
    base = letters.provenance
    others = [
        msgspec.structs.replace(base, **change)
        for change in (
            {"runtime": "x"},
            {"precision": "bf16"},
            {"device": "cuda"},
            {"libraries": {"torch": "1"}},
            {"file": "0" * 64},
        )
    ]
    assert len({each.id for each in [base, *others]}) == 6
    one = Provenance(runtime="r", precision="fp32", device="cpu", libraries={"a": "1", "b": "2"})
    two = Provenance(runtime="r", precision="fp32", device="cpu", libraries={"b": "2", "a": "1"})
    assert one.id == two.id and len(one.id) == 16


def test_unknown_names_list_the_known_ones(opened: Callable[..., Embedder]) -> None:
    with pytest.raises(
        ModelError, match=r"unknown embedder 'leters'; did you mean letters\? Known: .*letters, .*vowels"
    ):
        opened("leters")
    with pytest.raises(ModelError, match=r"no runtime 'sentence-transformers' for letters\. Known: letters:fp32\."):
        opened(runtime="sentence-transformers")


def test_the_policy_imports_without_a_runtime() -> None:
    code = "import sys, enrich.embedding.embedder; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "enrich.embedding.embedder" in loaded
    assert not loaded & {"torch", "transformers", "sentence_transformers", "huggingface_hub"}


# --- the real model


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return open_embedder(DEFAULT_EMBEDDER, load_registry(), ModelFolder(default_root()), device="cpu")


ODD = [
    "Hello",
    "a",
    "Literal [SEP] and [CLS] in a text, [MASK] and [PAD] too",
    "漢字だけの文章です。",
    "한국어 문장입니다",
    "हिन्दी वाक्य",
    "x" * 150,
    "x" * 90,
    "def f(x):\n    return x + 1\n",
    "ERR_TIMEOUT_42 in X-42B",
    "naïve café Ångström",
    "\u200bzero width",
    "emoji \N{GRINNING FACE} in a text",
    "\tTabs\tand\r\nline ends\r\n",
    "1,234.56 + 7 = ?",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "a\x00b control",
    "UPPER lower MiXeD",
    "\u2026\u2014\u201cquotes\u201d",
    "\u200b\u200b",
]


def varied_texts() -> list[str]:
    """Twenty odd texts, fourteen of a few lines and six over the limit, from this project's own files."""
    lines = [
        line
        for path in sorted(
            [*ROOT.glob("parsers/**/*.py"), *ROOT.glob("enrich/**/*.py"), *ROOT.glob("enrich/**/*.toml")]
        )
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    short = ["\n".join(lines[start : start + 1 + start % 9]) for start in range(0, 280, 20)]
    long = ["\n".join(lines[start : start + 60]) for start in range(0, 360, 60)]
    return [*ODD, *short, *long]


@pytest.mark.real
def test_vectors_are_those_of_the_reference(minilm: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with the library's own path from text to vector; and no network is touched on ours."""

    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    texts = varied_texts()
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        encoded = minilm.encode(texts)

    from sentence_transformers import SentenceTransformer

    place = ModelFolder(default_root()).find(minilm.model)
    reference = SentenceTransformer(str(place), device="cpu", local_files_only=True)
    expected = reference.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    cosines = (encoded.vectors * expected).sum(axis=1)
    assert len(texts) == 40 and encoded.truncated.sum() >= 6
    assert cosines.min() >= 0.99999, [(texts[row][:60], cosines[row]) for row in cosines.argsort()[:3]]
    np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, atol=1e-6)

    lengths = [len(reference.tokenizer(text, verbose=False)["input_ids"]) for text in texts]
    np.testing.assert_array_equal(encoded.tokens, lengths)


@pytest.mark.real
def test_batches_do_not_change_a_vector(minilm: Embedder) -> None:
    texts = varied_texts()[::4]
    together = minilm.encode(texts).vectors
    alone = np.array([minilm.encode([text]).vectors[0] for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(minilm.query(texts[0]), together[0], atol=1e-5)


@pytest.mark.real
def test_what_the_default_embedder_is(minilm: Embedder) -> None:
    assert (minilm.dimension, minilm.limit, minilm.special_tokens) == (384, 256, 2)
    assert minilm.count("Hello world") == 4
    assert minilm.encode(["漢漢 嗎 \N{GRINNING FACE}"]).unknown[0] >= 1
    made = minilm.provenance
    assert (made.runtime, made.precision, made.device, made.file) == ("sentence-transformers", "fp32", "cpu", "")
    assert set(made.libraries) == {"sentence-transformers", "torch", "transformers"}


@pytest.mark.real
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pooling": "cls"}, r"expected pooling 'cls', got \['mean'\]"),
        ({"dimension": 768}, "expected dimension 768, got 384"),
        ({"limit": 1024}, "its limit is 1024, and it has only 512 positions"),
    ],
)
def test_a_folder_that_is_not_what_the_registry_says_is_refused(
    minilm: Embedder, change: dict[str, object], says: str
) -> None:
    from enrich.embedding.runtimes.sentence_transformers import SentenceTransformersRuntime

    model = msgspec.structs.replace(minilm.model, **change)
    with pytest.raises(ModelError, match=says):
        SentenceTransformersRuntime(model, ModelFolder(default_root()).find(model), "cpu")


@pytest.mark.real
def test_a_folder_that_cannot_be_loaded_and_a_device_that_is_not_there(
    minilm: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from enrich.embedding.runtimes.sentence_transformers import SentenceTransformersRuntime

    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded by sentence-transformers"):
        SentenceTransformersRuntime(minilm.model, tmp_path, "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="device 'cuda' is asked for, and PyTorch finds no GPU"):
        SentenceTransformersRuntime(minilm.model, tmp_path, "cuda")
    with pytest.raises(ModelError, match="unknown device 'abacus'"):
        SentenceTransformersRuntime(minilm.model, tmp_path, "abacus")


# --- devices


def install(
    monkeypatch: pytest.MonkeyPatch, encode: Callable[[LettersRuntime, Sequence[Sequence[int]]], Vectors]
) -> None:
    real = LettersRuntime.encode
    kind = type("Changed", (LettersRuntime,), {"encode": lambda self, batch: encode(self, batch), "real": real})
    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(kind))


def test_out_of_memory_halves_the_batch_and_later_ones(
    opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU does that other work leaves little room on."""
    tried: list[int] = []

    def little_room(self: LettersRuntime, batch: Sequence[Sequence[int]]) -> Vectors:
        size = len(batch) * max(map(len, batch))
        tried.append(size)
        if size > 200:
            raise OutOfMemory(f"{size} tokens")
        return LettersRuntime.encode(self, batch)

    texts = [f"{'abcdefghij'[n % 10] * (n % 37 + 1)} {n}" for n in range(90)]
    expected = opened().encode(texts).vectors
    install(monkeypatch, little_room)
    embedder = opened()
    np.testing.assert_array_equal(embedder.encode(texts).vectors, expected)
    failed = sum(size > 200 for size in tried)
    embedder.encode([f"{text} again" for text in texts])
    assert 0 < failed < 10 and sum(size > 200 for size in tried) <= failed + 1, "what fits is remembered"


def test_a_text_that_does_not_fit_into_memory_alone_is_said(
    opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: LettersRuntime, batch: Sequence[Sequence[int]]) -> Vectors:
        raise OutOfMemory("1 GiB wanted")

    install(monkeypatch, no_room)
    with pytest.raises(ModelError, match=r"letters on cpu: a text of 3 tokens does not fit .*: 1 GiB wanted"):
        opened().encode(["a", "b"])


def test_every_device_gets_work_and_the_order_stays(opened: Callable[..., Embedder]) -> None:
    one = opened()
    texts = [f"{'abcdefghij'[n % 10] * (n % 37 + 1)} {n}" for n in range(200)]
    runtimes = [LettersRuntime(one.model, one_weights(opened), "fp32", None) for _ in range(3)]
    used: set[int] = set()
    barrier = threading.Barrier(3, timeout=20)

    class Device:
        def __init__(self, number: int) -> None:
            self.number, self.provenance = number, runtimes[number].provenance

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            if self.number not in used:
                used.add(self.number)
                barrier.wait()  # all three must be at work at once
            return runtimes[self.number].encode(batch)

    many = Embedder(one.model, one._tokens, lambda: [Device(n) for n in range(3)], batch_tokens=256)
    np.testing.assert_array_equal(many.encode(texts).vectors, one.encode(texts).vectors)
    assert used == {0, 1, 2}


def one_weights(opened: Callable[..., Embedder]) -> Weights:
    """Where the files of ``letters`` are."""
    found: list[Weights] = []

    def look(model: EmbedderModel, weights: Weights, precision: str, device: str | None) -> LettersRuntime:
        found.append(weights)
        return LettersRuntime(model, weights, precision, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RUNTIMES, "letters", RuntimeKind(look))
        opened().load()
    return found[0]


def test_a_failure_on_one_device_ends_the_call(opened: Callable[..., Embedder]) -> None:
    one = opened()

    class Broken:
        provenance = one.provenance

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            raise RuntimeError("device lost")

    class Slow:
        provenance = one.provenance

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            time.sleep(0.005)
            return one._runtimes()[0].encode(batch)

    both = Embedder(one.model, one._tokens, lambda: [Slow(), Broken()], batch_tokens=64)
    LettersRuntime.batches.clear()
    with pytest.raises(RuntimeError, match="device lost"):
        both.encode([f"text {n}" for n in range(200)])
    assert len(LettersRuntime.batches) < 10, "the others do not go on to the end"


def test_texts_are_taken_window_by_window(opened: Callable[..., Embedder], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{'abcdefghij'[n % 10] * (n % 37 + 1)} {n}" for n in range(100)]
    whole = opened().encode(texts)
    monkeypatch.setitem(policy.TEXTS_IN_WINDOW, "cpu", 7)
    LettersRuntime.batches.clear()
    parts = opened().encode(texts)
    assert len(LettersRuntime.batches) >= 15
    np.testing.assert_array_equal(parts.vectors, whole.vectors)
    np.testing.assert_array_equal(parts.tokens, whole.tokens)
    monkeypatch.setattr(policy.Embedder, "_pieces", lambda *_: (_ for _ in ()).throw(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        opened().encode(texts)


# --- proofs


def test_a_runtime_that_must_prove_itself_makes_no_vector_before(opened: Callable[..., Embedder]) -> None:
    embedder, asked = opened(), []

    def proof(one: Embedder) -> None:
        asked.append(one.probe(["a", " "], "passage").shape)
        if len(asked) < 3:
            raise ModelError("not yet")

    embedder.prove_by(proof)
    for call in (lambda: embedder.encode(["a"]), lambda: embedder.query("a")):
        with pytest.raises(ModelError, match="not yet"):
            call()
    assert not LettersRuntime.batches, "nothing but what the proof asked for"
    embedder.encode(["a"])
    embedder.encode(["b"])
    assert asked == [(2, 26)] * 3, "once it has, it is not asked again"


# --- relatives of O23: a bad text among good ones


@pytest.mark.real
def test_a_bad_text_in_a_batch_of_96_is_retried_alone_and_spoils_no_other(minilm: Embedder) -> None:
    texts = [f"Entry {n} of the log says that the pump {'started' if n % 2 else 'stopped'}." for n in range(96)]
    expected = minilm.encode(texts).vectors
    runtime = minilm._runtimes()[0]
    bad = next(minilm._pieces([texts[40]], "passage")).ids
    asked: list[int] = []

    class OneBad:
        provenance = runtime.provenance

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            asked.append(len(batch))
            vectors = runtime.encode(batch).copy()
            if len(batch) > 1:
                vectors[[list(ids) == bad for ids in batch]] = np.nan
            return vectors

    made = Embedder(minilm.model, minilm._tokens, lambda: [OneBad()]).encode(texts).vectors
    np.testing.assert_allclose(made, expected, atol=1e-5)
    assert asked.count(1) == 1


def test_a_first_component_of_exactly_zero_is_a_vector(opened: Callable[..., Embedder]) -> None:
    """Others took a zero in front for a failed request, and embedded again or dropped the text."""
    vectors = opened().encode(["bcd", "aaa"]).vectors
    assert vectors[0, 0] == 0.0 and vectors[1, 0] == 1.0
    assert len(LettersRuntime.batches) == 1


@pytest.mark.parametrize("text", ["\ud800", "good \udfff text", "\udc00\ud800"])
def test_half_a_pair_stops_its_batch_and_says_which(letters: Embedder, text: str) -> None:
    with pytest.raises(ValueError, match="half of a surrogate pair in"):
        letters.encode(["fine", text, "fine too"])
    assert letters.encode(["fine", "fine too"]).vectors.shape == (2, 26)
