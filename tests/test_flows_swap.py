"""A model swap beside the live index: builds go on meanwhile, and it goes live where it is proven or accepted."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, rows
from conftest import Workspace

from enrich.embedding.embedder import Embedder
from flows.build import swap_ahead
from flows.build.reindex import ReindexOptions, swap_embedder
from flows.searching import published
from parsers.errors import GateRefused, IndexBusy

COUNT = 6


@pytest.fixture
def built(workspace: Workspace) -> Workspace:
    for number in range(COUNT):
        workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve {'abcdefg'[number] * 3} opens.\n")
    workspace.build()
    return workspace


def swap(workspace: Workspace, *, accept: bool = False, **flags: Any) -> dict[str, Any]:
    options = ReindexOptions(embedder="vowels", quiet=True, accept=accept)
    return swap_embedder(workspace.settings(**flags), options)


def golden(workspace: Workspace, path: Path, question: str) -> Path:
    """Questions whose answers stand in the documents."""
    lines = [
        {"id": f"q{number}", "question": question.format(letters="abcdefg"[number] * 3), "spans": [span]}
        for number in range(COUNT)
        for span in [{"doc": f"doc{number}.md", "quote": f"The valve {'abcdefg'[number] * 3} opens."}]
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_without_a_proof_a_swap_is_staged_and_accepted_later(built: Workspace) -> None:
    before = published(built.settings())[1]
    with pytest.raises(GateRefused, match="staged: without a golden set") as refused:
        swap(built)
    assert "--accept" in refused.value.remedy and refused.value.checks["swap"].startswith("refused: staged")
    assert published(built.settings())[1] == before, "readers stay where they were"
    built.write("doc1.md", "# Doc 1\n\nThe seal leaks.\n")
    assert built.build()["published"], "and builds go on"
    report = swap(built, accept=True)
    assert report["published"] and report["checks"]["swap"].startswith("forced: staged")
    assert report["work"]["embedded"] == 1, "what was embedded for the staged one is not embedded again"
    built.flags = {"embedder": "vowels"}
    assert_equals_a_clean_build(built)


def test_a_golden_set_proves_a_swap(built: Workspace, tmp_path: Path) -> None:
    path = golden(built, tmp_path / "golden.jsonl", "valve {letters}")
    report = swap(built, golden=str(path))
    assert report["published"] and "recall over 6 questions" in report["checks"]["swap"]


def test_a_swap_that_may_be_worse_is_staged(built: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = golden(built, tmp_path / "golden.jsonl", "valve {letters}")
    built.flags |= {"guards": {"recall_k": 1, "recall_drop": 1.0, "recall_p": 0.0001}}
    real = Embedder.encode

    def worse(self: Embedder, texts: Any, kind: Any = "passage") -> Any:
        if self.model.name == "vowels" and kind == "query":
            texts = ["eeee"] * len(texts)
        return real(self, texts, kind)

    monkeypatch.setattr(Embedder, "encode", worse)
    before = published(built.settings())[1]
    with pytest.raises(GateRefused, match="below the margin") as refused:
        swap(built, golden=str(path))
    assert "95 % interval" in refused.value.message and published(built.settings())[1] == before


def test_changes_during_a_swap_are_live_at_once_and_in_the_new_generation(
    built: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the new vectors are made, a document is edited, one deleted, one hidden: other builds publish that."""
    real, done = Embedder.encode, []

    def changed(self: Embedder, texts: Any, kind: Any = "passage") -> Any:
        if self.model.name == "vowels" and not done:
            done.append(True)
            built.write("doc1.md", "# Doc 1\n\nThe seal leaks.\n")
            (built.docs / "doc2.md").unlink()
            built.flags["labels"] = [{"match": "doc3.md", "labels": ["hidden"]}]
            assert built.build()["published"]
            assert {row["key"] for row in rows(built)} == {f"doc{n}.md" for n in range(COUNT) if n != 2}
            assert built.search("leaks", "bm25")[0].key == "doc1.md"
        return real(self, texts, kind)

    monkeypatch.setattr(Embedder, "encode", changed)
    options = ReindexOptions(embedder="vowels", quiet=True, accept=True)
    settings = built.settings(labels=[{"match": "doc3.md", "labels": ["hidden"]}])
    report = swap_embedder(settings, options)
    assert done and report["published"]
    found = {row["key"]: row["labels"] for row in rows(built)}
    assert "doc2.md" not in found and found["doc3.md"] == ["hidden"]
    built.flags |= {"embedder": "vowels"}
    assert_equals_a_clean_build(built)


def test_the_index_is_held_for_moments_only_while_texts_are_embedded(
    built: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[bool] = []
    real = Embedder.encode

    def looked(self: Embedder, texts: Any, kind: Any = "passage") -> Any:
        if self.model.name == "vowels" and threading.current_thread() is threading.main_thread() and not free:
            storage = published(built.settings())[0]
            try:
                with storage.lock():
                    free.append(True)
            except IndexBusy:
                free.append(False)
        return real(self, texts, kind)

    monkeypatch.setattr(Embedder, "encode", looked)
    swap(built, accept=True)
    assert free == [True]


def test_a_swap_that_is_broken_off_goes_on_where_it_was(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Embedder, "window", 2)
    real = swap_ahead.keep_vectors

    def breaks(*given: Any) -> None:
        real(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(swap_ahead, "keep_vectors", breaks)
        with pytest.raises(KeyboardInterrupt):
            swap(built, accept=True)
    report = swap(built, accept=True)
    assert report["published"] and report["work"]["embedded"] == COUNT - 2
