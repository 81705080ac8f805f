"""Counting: the ruler's counts are the tokenizer's, however it comes by them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from chunker import tokens
from chunker.tokens import Ruler
from enrich.models.registry import ModelFolder, load_registry
from flows.settings import load_settings
from parsers.errors import GristmillError


def byte_level(path: Path) -> Path:
    """A tokenizer of bytes, as those of many language models are: white space is part of its tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("Ġt", "h"), ("e", "r"), ("Ġth", "e"), ("Ċ", "Ċ")]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def bytes_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_level(tmp_path_factory.mktemp("bytes") / "tokenizer.json")


@pytest.fixture(scope="session")
def real() -> tuple[Ruler, Tokenizer]:
    chosen = load_settings()
    model = load_registry(*chosen.model_files).embedder(chosen.ruler)
    try:
        folder = ModelFolder(chosen.models_dir, chosen.model_folders).find(model)
    except GristmillError as error:
        pytest.skip(f"needs the default embedder's tokenizer: {error}")
    path = folder / model.tokenizer.path
    return Ruler(path, limit=model.limit), reference(path)


def reference(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def expected(exact: Tokenizer, text: str) -> int:
    """The tokenizer's own count, but for unknown tokens of more than 20 characters: one for every 4 of those."""
    found = exact.encode(text, add_special_tokens=False)
    return sum(
        -(-(end - start) // 4) if token == exact.token_to_id("[UNK]") and end - start > 20 else 1
        for token, (start, end) in zip(found.ids, found.offsets, strict=True)
    )


blanks = st.sampled_from(
    [" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x1c", "\x85"]
)
words = st.one_of(
    st.sampled_from(
        ["pump", "Überdruck", "3.14", "[SEP]", "水泵", "don't", "x_y", "ΟΔΟΣ", "e\u0301", "\u200b", "a\x00b", "ﬁ"]
    ),
    st.text(min_size=1, max_size=6),
    st.text("abc", min_size=38, max_size=120),
)
texts = st.lists(st.tuples(words, blanks), max_size=30).map(lambda pairs: "".join(a + b for a, b in pairs))


@settings(max_examples=300, deadline=None)
@given(texts, texts)
def test_counts_are_the_tokenizers(real: tuple[Ruler, Tokenizer], before: str, text: str) -> None:
    ruler, exact = real
    assert ruler.additive
    for one in (before, text, text):
        assert ruler.count(one) == expected(exact, one)


@settings(max_examples=200, deadline=None)
@given(texts, st.lists(st.integers(0, 400), max_size=5))
def test_parts_add_up_where_they_are_cut_at_white_space(
    tokenizer: Path, bytes_tokenizer: Path, text: str, places: list[int]
) -> None:
    for path in (tokenizer, bytes_tokenizer):
        ruler = Ruler(path, limit=64)
        measure = ruler.measure(text)
        cuts = [
            0,
            *sorted({place for place in places if 0 < place < len(text) and text[place - 1].isspace()}),
            len(text),
        ]
        assert measure.total == ruler.count(text)
        assert sum(measure.parts(cuts)) == measure.total
        if measure.exact:
            assert measure.parts(cuts) == [ruler.count(text[a:b]) for a, b in pairwise(cuts)]


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(1, 20))
def test_as_much_is_reached_as_fits(tokenizer: Path, text: str, limit: int) -> None:
    ruler = Ruler(tokenizer, limit=64)
    end = ruler.reach(text, limit)
    assert ruler.count(text[:end]) <= limit
    assert end == len(text) or ruler.count(text) > limit


def test_the_memory_of_words_is_bounded(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_REMEMBERED", 50)
    ruler, exact = Ruler(tokenizer, limit=64), reference(tokenizer)
    for number in range(200):
        text = f"word{number} again{number // 2} {'long' * 30}{number}"
        assert ruler.count(text) == expected(exact, text)
        assert len(ruler._words) <= 60


@pytest.mark.parametrize("change", ["added", "pre_tokenizer", "normalizer", "model"])
def test_a_tokenizer_that_looks_beyond_white_space_is_not_taken_for_one_that_does_not(
    tokenizer: Path, tmp_path: Path, change: str
) -> None:
    data = json.loads(tokenizer.read_text())
    if change == "added":
        data["added_tokens"].append(data["added_tokens"][0] | {"content": "New York", "id": 9999})
    elif change == "pre_tokenizer":
        data["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        }
    elif change == "normalizer":
        data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "_"}
    else:
        data["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    assert not Ruler(path, limit=64).additive
