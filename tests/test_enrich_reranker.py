"""The cross-encoder: what it scores, and which folders are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest

from enrich.reranking.reranker import CrossEncoderReranker
from parsers.errors import ModelError

MINILM = platformdirs.user_cache_path("gristmill") / "models" / "all-MiniLM-L6-v2"
TEXTS = ["the mill stands by the river", "bread", "a wheel of stone"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of one layer with random weights, over the vocabulary of MiniLM."""
    if not (MINILM / "tokenizer.json").is_file():
        pytest.skip("needs the tokenizer of all-MiniLM-L6-v2: gristmill models fetch all-MiniLM-L6-v2")
    return make(tmp_path_factory.mktemp("reranker"), labels=1)


def make(folder: Path, labels: int) -> Path:
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(str(MINILM), local_files_only=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=labels,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def by_hand(folder: Path, query: str, texts: list[str]) -> list[float]:
    """The network's numbers, a pair at a time."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    network = BertForSequenceClassification.from_pretrained(str(folder), local_files_only=True).eval()
    with torch.inference_mode():
        given = [tokenizer(query, text, truncation=True, max_length=64, return_tensors="pt") for text in texts]
        return [float(network(**one).logits[0, 0]) for one in given]


@pytest.mark.real
def test_scores_are_the_networks_own(tiny: Path) -> None:
    reranker = CrossEncoderReranker(tiny, "cpu")
    texts = [*TEXTS, "stone " * 500, "x", "東京都"] * 7  # over a batch, and over the limit
    scores = reranker.scores("where is the mill?", texts)
    assert scores.shape == (len(texts),) and scores.dtype == np.float32
    assert len({round(score, 4) for score in scores.tolist()}) == 6
    assert scores.tolist() == pytest.approx(by_hand(tiny, "where is the mill?", texts), abs=1e-5)
    assert reranker.scores("where is the mill?", []).shape == (0,)


@pytest.mark.real
def test_a_fingerprint_follows_the_files(tiny: Path, tmp_path: Path) -> None:
    same = shutil.copytree(tiny, tmp_path / "same")
    (same / ".hidden").write_text("x")
    fingerprint = CrossEncoderReranker(tiny, "cpu").fingerprint
    assert CrossEncoderReranker(same, "cpu").fingerprint == fingerprint
    other = shutil.copytree(tiny, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-6}))
    assert CrossEncoderReranker(other, "cpu").fingerprint != fingerprint


def refused(folder: Path, device: str | None = "cpu") -> str:
    with pytest.raises(ModelError) as error:
        CrossEncoderReranker(folder, device)
    assert error.value.remedy
    return error.value.message


def test_a_folder_that_holds_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "nowhere")
    assert "config.json cannot be read" in refused(tmp_path)
    written: list[tuple[Any, str]] = [
        ({"architectures": None}, "cannot be read"),
        ({}, "of no known kind"),
        ({"architectures": ["BertModel"]}, "is no cross-encoder but BertModel"),
        ({"architectures": ["BertForSequenceClassification"], "model_type": "bert"}, "cannot be loaded"),
    ]
    for config, says in written:
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert says in refused(tmp_path)


@pytest.mark.real
def test_made_up_scores_are_refused(tiny: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    assert "gives 3 numbers" in refused(make(tmp_path / "three", labels=3))
    headless = shutil.copytree(tiny, tmp_path / "headless")
    weights = load_file(headless / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    save_file(kept, headless / "model.safetensors", {"format": "pt"})
    assert "lack classifier.weight, classifier.bias" in refused(headless)
    assert "BertModel" in refused(MINILM)


@pytest.mark.real
def test_a_device_that_is_not_there_is_said(tiny: Path) -> None:
    assert "unknown device" in refused(tiny, "abacus")
