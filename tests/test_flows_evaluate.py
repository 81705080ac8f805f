"""Evaluations, ladders and golden sets over an index of small documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Workspace
from fakes import LettersRuntime

from flows.ablate import ablate
from flows.evaluate import evaluate
from flows.golden_keeping import add, check
from indexes.evaluation.record import read_record
from parsers.errors import UsageError

TEXT = """# Valves

The valve opens to the left.

## Seals

A seal lasts two winters.

## Price

Twelve crowns apiece.
"""


@pytest.fixture
def built(workspace: Workspace) -> Workspace:
    workspace.write("valves.md", TEXT)
    for name in ("pumps", "copies"):
        workspace.write(f"{name}.md", f"# {name}\n\nOf {name}.\n\n## Dawn\n\nA pump hums at dawn.\n")
    workspace.build()
    return workspace


def golden(workspace: Workspace, *questions: dict[str, Any]) -> Path:
    path = workspace.docs.parent / "golden.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in questions))
    return path


def asks(name: str, question: str, doc: str = "", quote: str = "", **more: Any) -> dict[str, Any]:
    return {"id": name, "question": question, "spans": [{"doc": doc, "quote": quote}] if doc else [], **more}


SEALS = asks("seals", "How long does a seal last?", "valves.md", "two winters", category="parts")
PUMPS = asks("pumps", "pump hums", "pumps.md", "hums at dawn")
NOBODY = asks("nobody", "Who painted the gate?")


def test_an_evaluation_gives_curves_by_mode_and_keeps_its_record(built: Workspace) -> None:
    found = evaluate(built.settings(), golden(built, SEALS, PUMPS, NOBODY))
    assert [run["mode"] for run in found["runs"]] == ["hybrid", "dense", "bm25"]
    bm25 = found["runs"][2]
    assert (bm25["n"], bm25["recall"]["1"], bm25["full_recall"]["1"]) == (2, 1, 1)
    assert set(bm25["by_category"]) == {"none", "parts"} and set(bm25["by_kind"]) == {"phrase", "question"}
    assert found["golden"]["unanswerable"] == 1 and bm25["separation"] == 1
    assert found["index"]["chunks"] == bm25["chunks"] > 0
    kept = read_record(Path(found["record"]))
    assert kept.run("bm25").hits["seals"]  # type: ignore[union-attr]


def test_a_hit_that_stands_for_its_copies_answers_for_them(built: Workspace) -> None:
    """The section of pumps.md stands in copies.md too; whichever of them is shown, the answer was found."""
    found = evaluate(built.settings(), golden(built, PUMPS | {"question": "copies dawn"}))
    assert found["runs"][2]["recall"]["1"] == 1


def test_an_index_without_vectors_is_measured_by_bm25_alone(workspace: Workspace) -> None:
    workspace.write("valves.md", TEXT)
    workspace.build(vectors_for=["nothing"])
    LettersRuntime.batches.clear()
    found = evaluate(workspace.settings(), golden(workspace, SEALS))
    assert [run["mode"] for run in found["runs"]] == ["bm25"] and found["channels"] == {}
    assert not LettersRuntime.batches


def test_a_stale_question_is_an_error_or_left_out_and_named(built: Workspace) -> None:
    path = golden(built, SEALS, asks("gone", "?", "valves.md", "three winters"), asks("missing", "?", "no.md", "x"))
    with pytest.raises(UsageError, match=r"question gone: its quote stands 0 times in valves\.md"):
        evaluate(built.settings(), path)
    found = evaluate(built.settings(), path, strict=False)
    assert set(found["golden"]["stale"]) == {"gone", "missing"} and found["runs"][0]["n"] == 1
    assert any("did not resolve" in line for line in found["reading"])


def test_without_any_answerable_question_nothing_is_measured(built: Workspace) -> None:
    with pytest.raises(UsageError, match="no question in it has an answer"):
        evaluate(built.settings(), golden(built, NOBODY))


def test_an_evaluation_is_compared_with_a_kept_one(built: Workspace) -> None:
    path = golden(built, SEALS, PUMPS)
    with pytest.raises(UsageError, match="no kept evaluation"):
        evaluate(built.settings(), path, against="last")
    first = evaluate(built.settings(), path)
    second = evaluate(built.settings(), path, against="last")
    assert second["against"] == first["id"]
    assert second["comparison"]["published bm25"]["difference"] == 0
    assert evaluate(built.settings(), path, against=first["record"])["against"] == first["id"]
    built.write("pumps.md", "# Pumps\n\nA pump hums at dawn. It is green.\n")
    built.build()
    with pytest.raises(UsageError, match="another corpus"):
        evaluate(built.settings(), path, against=first["id"])


def test_the_page_is_written_and_holds_what_was_asked(built: Workspace) -> None:
    page = built.docs.parent / "page.html"
    evaluate(built.settings(), golden(built, SEALS, asks("x", "<b>& purple", "valves.md", "crowns")), html=page)
    text = page.read_text()
    assert "&lt;b&gt;&amp; purple" in text and "<b>&" not in text
    with pytest.raises(UsageError, match="cannot be written"):
        evaluate(built.settings(), golden(built, SEALS), html=built.docs.parent / "no" / "page.html")


def test_the_ladder_changes_one_thing_a_rung_and_makes_no_vector_twice(built: Workspace) -> None:
    path = golden(built, SEALS, asks("price", "What do valves cost?", "valves.md", "Twelve crowns"))
    pointer = (built.index / "pointer.json").read_bytes()
    found = ablate(built.settings(), path, sizes=[40])
    names = [f"{run['variant']} {run['mode']}" for run in found["runs"]]
    rungs = ["heading path", "bare", "extractive note", "heading path, 40 tokens"]
    assert names[:6] == [f"{rung} {mode}" for rung in rungs[:2] for mode in ("hybrid", "dense", "bm25")]
    assert len(names) == 12 and names[-1] == "heading path, 40 tokens bm25"
    by_name = dict(zip(names, found["runs"], strict=True))
    assert by_name["bare bm25"]["chunks"] == by_name["heading path bm25"]["chunks"]
    assert by_name["heading path, 40 tokens bm25"]["mean_tokens"] <= by_name["bare bm25"]["mean_tokens"]
    # "valves" stands in the headings alone: a rung without them cannot find the price by that word.
    assert by_name["bare bm25"]["recall"]["200"] == 0.5 and by_name["heading path bm25"]["recall"]["200"] == 1
    assert (built.index / "pointer.json").read_bytes() == pointer
    assert not list((built.index / "scratch").iterdir())
    LettersRuntime.batches.clear()
    again = ablate(built.settings(), path, sizes=[40])
    assert sum(map(len, LettersRuntime.batches)) == 2  # the questions
    assert [run["recall"] for run in again["runs"]] == [run["recall"] for run in found["runs"]]
    assert any("hybrid at 10, is within chance of heading path" in line for line in again["reading"])


def test_the_rung_of_the_heading_path_is_what_a_build_publishes(built: Workspace) -> None:
    path = golden(built, SEALS, PUMPS)
    published = evaluate(built.settings(), path)["runs"]
    rungs = [run for run in ablate(built.settings(), path)["runs"] if run["variant"] == "heading path"]
    for one, other in zip(published, rungs, strict=True):
        assert (one["mode"], one["recall"], one["ndcg"]) == (other["mode"], other["recall"], other["ndcg"])


@pytest.mark.parametrize("size", [5, 1000])
def test_a_size_that_cannot_be_cut_is_refused(built: Workspace, size: int) -> None:
    with pytest.raises(UsageError, match=f"chunks for {size} tokens"):
        ablate(built.settings(), golden(built, SEALS), sizes=[size])


def test_a_golden_set_is_checked(built: Workspace) -> None:
    path = golden(
        built,
        SEALS,
        SEALS | {"id": "again", "question": "how long does a SEAL  last?"},
        asks("gone", "Where?", "valves.md", "nowhere"),
        asks("leak", "Is it so that the valve opens to the left?", "valves.md", "The valve opens to the left."),
        asks("large", "All of it?", "valves.md", TEXT.partition("\n\n")[2].strip()),
        NOBODY,
    )
    found = check(built.settings(), path)
    assert {(one["id"], one["what"]) for one in found["errors"]} == {("again", "duplicate"), ("gone", "stale")}
    assert {(one["id"], one["what"]) for one in found["warnings"]} == {("leak", "leak"), ("large", "large")}
    assert (found["answerable"], found["unanswerable"]) == (5, 1)


def test_a_question_is_written_from_a_hit(built: Workspace) -> None:
    path = built.docs.parent / "new.jsonl"
    settings = built.settings()
    first = add(settings, path, "two winters", "bm25", 1, "A seal lasts two winters", "parts")
    assert first["added"]["spans"] == [{"doc": "valves.md", "quote": "A seal lasts two winters", **NO_OFFSETS}]
    path.write_bytes(path.read_bytes().rstrip(b"\n"))  # as an editor may leave it
    second = add(settings, path, "Who painted the gate?", "bm25", 0, None, "")
    assert (first["added"]["id"], second["added"]["id"]) == ("q001", "q002")
    assert check(settings, path)["errors"] == []
    with pytest.raises(UsageError, match="asks that already"):
        add(settings, path, "Two  winters", "bm25", 1, None, "")
    with pytest.raises(UsageError, match="does not stand in hit 1"):
        add(settings, path, "winters two", "bm25", 1, "three winters", "")
    with pytest.raises(UsageError, match="hits, not 9"):
        add(settings, path, "crowns", "bm25", 9, None, "")
    assert len(path.read_text().splitlines()) == 2


NO_OFFSETS = {"start": None, "end": None, "groups": []}
