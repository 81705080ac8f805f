"""Planted faults, each refused by the gate that should; and what is measured of a build that passes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Workspace
from fakes import LettersRuntime

from enrich.embedding.runtime import Vectors
from flows.build import build, parsing, writing
from indexes.evaluation.record import kept_records
from indexes.lexical import analysis
from indexes.storage.storage import Storage
from parsers.errors import GateRefused, UsageError
from parsers.registry import read

TOPICS = ("valve", "gauge", "pump", "seal", "boiler", "hinge", "lever", "crank", "rivet", "flange", "piston", "spout")


def fill(workspace: Workspace) -> Path:
    """A document a topic, and a golden set that asks for each."""
    questions = []
    for topic in TOPICS:
        answer = f"Turn the {topic} twice to the left."
        workspace.write(f"{topic}.md", f"# About the {topic}\n\nIt hangs in the hall.\n\n## Use\n\n{answer}\n")
        spans = [{"doc": f"{topic}.md", "quote": answer}]
        questions.append({"id": topic, "question": f"How is the {topic} turned?", "spans": spans})
    questions.append({"id": "none", "question": "Who painted the hall?", "spans": []})
    golden = workspace.docs.parent / "golden.jsonl"
    golden.write_text("".join(json.dumps(one) + "\n" for one in questions))
    return golden


def revision(workspace: Workspace) -> int:
    pointer = Storage(str(workspace.index)).pointer()
    assert pointer is not None
    return pointer.revision


def refused(workspace: Workspace, gate: str, **flags: Any) -> str:
    """The message of a build that a gate refuses; what is published stays."""
    before = revision(workspace)
    with pytest.raises(GateRefused, match=f"gate {gate}: ") as caught:
        workspace.build(**flags)
    assert revision(workspace) == before
    return str(caught.value)


def test_a_build_with_a_golden_set_says_and_keeps_its_recall(workspace: Workspace) -> None:
    golden = fill(workspace)
    report = workspace.build(golden=golden)
    assert report["checks"]["recall"].startswith("100.0% at 10 over 12 questions")
    workspace.write("valve.md", (workspace.docs / "valve.md").read_text() + "\nIt is made of brass.\n")
    asked = len(LettersRuntime.batches)
    report = workspace.build(golden=golden)
    assert "+0.0 points over 12 in both" in report["checks"]["recall"]
    assert sum(len(batch) for batch in LettersRuntime.batches[asked:]) == 1 + 18 + 13  # chunk, probes, questions once
    assert "least cosine 1.0000 of" in report["checks"]["vectors"]
    kept = list(kept_records(Storage(str(workspace.index)).objects))
    assert sorted(record.index["revision"] for record in kept) == [1, 2]
    assert {run.mode for record in kept for run in record.runs} == {"hybrid", "dense", "bm25"}


def test_a_parser_that_loses_text_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = fill(workspace)
    workspace.build(golden=golden)
    for topic in TOPICS:
        path = workspace.docs / f"{topic}.md"
        path.write_text(path.read_text() + "\n")
    monkeypatch.setattr(parsing, "read", lambda key, data: read(key, data.partition(b"Turn")[0]))
    assert "12 of 12 golden questions do not resolve any more" in refused(workspace, "recall", golden=golden)


def test_a_drop_of_recall_is_refused_and_can_be_forced(workspace: Workspace) -> None:
    golden = fill(workspace)
    settings = {"golden": golden, "vectors_for": ["nothing"], "guards": {"recall_k": 1}}
    assert "100.0% at 1" in workspace.build(**settings)["checks"]["recall"]
    for topic in TOPICS:
        workspace.write(f"noise/{topic}.md", f"How is the {topic} turned? The {topic} turned. Turned, the {topic}.\n")
    message = refused(workspace, "recall", **settings)
    assert "recall at 1 fell from 100.0% (bm25) to" in message and "--force" in message
    report = workspace.build(force=True, **settings)
    assert report["published"] and report["checks"]["recall"].startswith("forced: recall at 1 fell")
    pointer = Storage(str(workspace.index)).pointer()
    assert pointer is not None and pointer.checks["recall"].startswith("forced: ")


def test_one_question_lost_is_no_proof_and_passes(workspace: Workspace) -> None:
    golden = fill(workspace)
    settings = {"golden": golden, "vectors_for": ["nothing"], "guards": {"recall_k": 1}}
    workspace.build(**settings)
    workspace.write("noise.md", "# How is the valve turned?\n\nThe valve turned. Turned, the valve.\n")
    assert "-8.3 points over 12 in both (p = 0.500)" in workspace.build(**settings)["checks"]["recall"]


def test_vectors_that_are_gone_are_a_drop_of_recall(workspace: Workspace) -> None:
    """What readers get is compared: a build without vectors answers by BM25 alone."""
    golden = fill(workspace)
    lines = [json.loads(line) for line in golden.read_text().splitlines()]
    for line in lines:
        line["question"] = " ".join(line["id"]) if line["spans"] else "x"  # letters, which no word is
    golden.write_text("".join(json.dumps(line) + "\n" for line in lines))
    workspace.build(golden=golden)
    message = refused(workspace, "recall", golden=golden, vectors_for=["nothing"])
    assert "(hybrid) to 0.0% (bm25)" in message and "kept as record" in message
    kept = list(kept_records(Storage(str(workspace.index)).objects))
    assert [record.index.get("refused") for record in kept].count(True) == 1


def test_another_model_is_compared_with_the_one_before(workspace: Workspace) -> None:
    golden = fill(workspace)
    workspace.build(golden=golden)
    report = workspace.build(golden=golden, embedder="vowels", guards={"recall_drop": 1, "recall_p": 1e-9})
    assert report["generation"].startswith("g2") and "over 12 in both" in report["checks"]["recall"]


def test_a_comparison_that_cannot_be_made_is_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = fill(workspace)
    workspace.build()
    monkeypatch.setattr(analysis, "ANALYSIS_VERSION", 99)
    assert "; not compared: index " in workspace.build(golden=golden)["checks"]["recall"]
    monkeypatch.setattr(analysis, "ANALYSIS_VERSION", 100)
    assert "+0.0 points over 12 in both" in workspace.build(golden=golden)["checks"]["recall"]  # by the kept record


def test_questions_whose_document_is_not_remembered_are_stale(workspace: Workspace) -> None:
    golden = fill(workspace)
    workspace.build(golden=golden)
    for path in (workspace.index / "memory").iterdir():
        if path.name.startswith("documents"):
            shutil.rmtree(path)
    workspace.write("new.md", "# New\n\nA word on the handle.\n")
    assert "is no longer cached" in refused(workspace, "recall", golden=golden)


def test_a_golden_set_that_is_none_is_refused_before_anything_is_done(workspace: Workspace) -> None:
    fill(workspace)
    with pytest.raises(UsageError, match="cannot be read"):
        workspace.build(golden=workspace.docs.parent / "missing.jsonl")
    assert not LettersRuntime.batches


def test_another_pooling_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    workspace.build()

    right = LettersRuntime.encode

    def first_token_only(self: LettersRuntime, batch: Sequence[Sequence[int]]) -> Vectors:
        return np.array([self._counts(ids[:2]) for ids in batch], dtype=np.float32)

    monkeypatch.setattr(LettersRuntime, "encode", first_token_only)
    workspace.write("new.md", "# New\n\nA word on the handle.\n")
    assert "does not make what the index holds" in refused(workspace, "vectors")
    # The memory holds nothing that the broken runtime made, so the next build is right.
    monkeypatch.setattr(LettersRuntime, "encode", right)
    report = workspace.build()
    assert report["work"]["embedded"] > 0 and "least cosine 1.0000" in report["checks"]["vectors"]


def test_vectors_that_no_gate_has_seen_are_probed_by_the_next_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between embedding and the gates, a build leaves its vectors in the cache."""
    fill(workspace)
    workspace.build()
    right, write = LettersRuntime.encode, build.write
    monkeypatch.setattr(LettersRuntime, "encode", lambda self, batch: right(self, batch)[:, ::-1])
    monkeypatch.setattr(build, "write", interrupted)
    workspace.write("new.md", "# New\n\nA word on the handle.\n")
    with pytest.raises(KeyboardInterrupt):
        workspace.build()
    monkeypatch.setattr(build, "write", write)
    monkeypatch.setattr(LettersRuntime, "encode", right)
    assert "embedded again has a cosine" in refused(workspace, "vectors")
    assert workspace.build()["published"]


def interrupted(*arguments: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("factor", [0.5, 1.01])
def test_corrupted_vectors_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    fill(workspace)
    workspace.build()
    made = writing.rows_of_document

    def corrupted(*arguments: Any) -> Any:
        found = made(*arguments)
        for index, vector in enumerate(found.vectors):
            found.vectors[index] = vector._replace(values=vector.values * np.float32(factor))
        return found

    monkeypatch.setattr(writing, "rows_of_document", corrupted)
    workspace.write("new.md", "# New\n\nA word on the handle.\n")
    assert "has a length of" in refused(workspace, "vectors")
    with pytest.raises(GateRefused):  # a broken index is not to be forced
        workspace.build(force=True)


def test_vectors_of_other_texts_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    made = writing.rows_of_document

    def swapped(*arguments: Any) -> Any:
        found = made(*arguments)
        found.vectors.reverse()
        return found

    monkeypatch.setattr(writing, "rows_of_document", swapped)
    with pytest.raises(GateRefused, match=r"gate vectors: chunk [0-9a-f]{32} embedded again"):
        workspace.build()
    assert Storage(str(workspace.index)).pointer() is None


def test_a_mass_removal_is_refused_and_can_be_forced(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    for topic in TOPICS[:4]:
        (workspace.docs / f"{topic}.md").unlink()
    guards = {"guards": {"removed_count": 2}}
    assert "4 of 12 documents are gone" in refused(workspace, "removals", **guards)
    report = workspace.build(force=True, **guards)
    assert report["published"] and report["checks"]["removals"].startswith("forced: 4 of 12 documents")


def test_gates_failures_and_figures_are_artifacts_of_the_flow(workspace: Workspace, prefect: None) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import ArtifactSort

    fill(workspace)
    workspace.orchestrator = "prefect"
    report = workspace.build()
    with get_client(sync_client=True) as client:
        latest = client.read_artifacts(sort=ArtifactSort.CREATED_DESC)  # a page of them; all tests share a server
    found = [one for one in latest if str(workspace.index) in (one.description or "")]
    shown = {one.key: json.loads(str(one.data)) for one in found}
    assert shown.keys() == {"gates", "failures", "figures"}
    assert {row["gate"]: row["figure"] for row in shown["gates"]} == report["checks"]
    assert {row["figure"]: row["value"] for row in shown["figures"]}["added"] == report["documents"]["added"]


def test_a_golden_set_in_the_source_is_no_document(workspace: Workspace) -> None:
    golden = fill(workspace).rename(workspace.docs / "golden.jsonl")
    assert workspace.build(golden=golden)["documents"]["added"] == len(TOPICS)
