"""Evaluations, ladders and golden sets over an index of small documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workspace
from fakes import LettersRuntime

from flows.cli import printing
from flows.evaluation.ablation import ablate
from flows.evaluation.evaluate import evaluate
from flows.evaluation.golden_commands import Answer, add, check_golden
from flows.evaluation.golden_set import resolve
from indexes.evaluation.golden import load_golden
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
    third = evaluate(built.settings(), path, against=first["id"])
    assert third["documents_changed"] and third["comparison"]["published bm25"]["n"] == 2


def test_a_comparison_over_changed_documents_is_over_what_resolves_in_both(
    built: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    winters = asks("winters", "seal", "valves.md", "A seal lasts two winters")
    path = golden(built, winters, PUMPS, asks("price", "price", "valves.md", "Twelve crowns"))
    evaluate(built.settings(), path)
    built.write("valves.md", "# Moved\n\nNew words above.\n\n" + TEXT.replace("Twelve", "Thirteen"))
    built.build()
    found = evaluate(built.settings(), path, against="last")
    change = found["comparison"]["published bm25"]
    assert (change["n"], change["missing"], set(found["golden"]["stale"])) == (2, ["price"], {"price"})
    printing.print_evaluation(found)
    shown = capsys.readouterr().out
    assert "Documents have changed since" in shown and "too few to tell from chance" in shown


def test_few_questions_are_said_to_be_too_few(built: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluate(built.settings(), golden(built, SEALS, PUMPS))
    assert found["reading"] == ["2 questions: too few to conclude anything; write 10 or more."]
    printing.print_evaluation(found)
    shown = capsys.readouterr().out
    assert "too few" in shown and "100-100" not in shown and "bottleneck" not in shown


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
    found = check_golden(built.settings(), path)
    assert {(one["id"], one["what"]) for one in found["errors"]} == {("again", "duplicate"), ("gone", "stale")}
    assert {(one["id"], one["what"]) for one in found["warnings"]} == {("leak", "leak"), ("large", "large")}
    assert (found["answerable"], found["unanswerable"]) == (5, 1)


def test_a_question_is_written_from_a_hit(built: Workspace) -> None:
    path = built.docs.parent / "new.jsonl"
    settings = built.settings()
    first = add(settings, path, "two winters", Answer(quote="A seal lasts two winters", mode="bm25"), "parts")
    assert first["added"]["spans"] == [{"doc": "valves.md", "quote": "A seal lasts two winters", **NO_OFFSETS}]
    path.write_bytes(path.read_bytes().rstrip(b"\n"))  # as an editor may leave it
    second = add(settings, path, "Who painted the gate?", Answer(hit=0))
    assert (first["added"]["id"], second["added"]["id"]) == ("q001", "q002")
    assert check_golden(settings, path)["errors"] == []
    with pytest.raises(UsageError, match="asks that already"):
        add(settings, path, "Two  winters", Answer(mode="bm25"))
    with pytest.raises(UsageError, match="does not stand in hit 1"):
        add(settings, path, "winters two", Answer(quote="three winters", mode="bm25"))
    with pytest.raises(UsageError, match="hits, not 9"):
        add(settings, path, "crowns", Answer(hit=9, mode="bm25"))
    assert len(path.read_text().splitlines()) == 2


TWICE = """# Twice

The  lamp is red.

| name | colour |
| --- | --- |
| lamp | red |

The lamp is red.

Something else.

The lamp is green. THE LAMP IS RED.
"""


@pytest.fixture
def twice(built: Workspace) -> Workspace:
    built.write("deep/er/twice.md", TWICE)
    built.build()
    return built


def test_a_question_is_written_by_document_and_no_model_is_loaded(
    twice: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was asked for")

    monkeypatch.setattr("flows.searching.open_query_embedder", refuse)
    path, settings = twice.docs.parent / "new.jsonl", twice.settings()
    found = {
        "exact": Answer(document="deep/er/twice.md", quote="The lamp is red."),
        "end": Answer(document="twice.md", quote="The  lamp is red."),
        "line": Answer(document="twice.md", line=13),
        "both": Answer(document="er/twice.md", quote="the lamp is red", line=13),
        "unfound": Answer(document="valves.md", quote="crowns apiece"),
    }
    for name, answer in found.items():
        add(settings, path, f"{name}?", answer)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["q001", "q002", "q003", "q004", "q005"]
    assert check_golden(settings, path)["errors"] == []
    resolved = resolve(path, load_golden(path), {"deep/er/twice.md": TWICE, "valves.md": TEXT}, strict=True)
    places = [one.requirements[0][0] for one in resolved.asked]
    assert places[0].start == TWICE.index("The lamp is red.") and places[1].start == TWICE.index("The  lamp")
    assert TWICE[places[2].start : places[2].end] == "The lamp is green. THE LAMP IS RED."
    assert "THE LAMP IS RED" in TWICE[places[3].start : places[3].end]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(document="twice.md", quote="lamp is red"), "stands 3 times in deep/er/twice.md (lines 3, 9, 13)"),
        (Answer(document="twice.md", quote="purple"), "does not stand in deep/er/twice.md"),
        (Answer(document="twice.md", quote="green", line=3), "does not stand in line 3"),
        (Answer(document="twice.md", line=2), "line 2 of deep/er/twice.md is blank"),
        (Answer(document="twice.md", line=99), "is not in its"),
        (Answer(document="twice.md"), "the answer is not named"),
        (Answer(document="twise.md", line=1), "document twise.md is not in the index"),
    ],
)
def test_a_refusal_names_no_question_that_was_not_written(twice: Workspace, answer: Answer, says: str) -> None:
    path = twice.docs.parent / "new.jsonl"
    with pytest.raises(UsageError) as refused:
        add(twice.settings(), path, "Which?", answer)
    assert says in refused.value.message and "q001" not in f"{refused.value.message}{refused.value.remedy}"
    assert not path.exists()


def test_a_hit_whose_words_stand_elsewhere_too_is_told_apart(twice: Workspace) -> None:
    path, settings = twice.docs.parent / "new.jsonl", twice.settings()
    twice.write("echo.md", "# Echo\n\nA bell rings.\n\n## Again\n\nA bell rings.\n")
    twice.build()
    for hit in (1, 2):
        add(settings, path, f"bell rings {'x' * hit}", Answer(hit=hit, mode="bm25", quote="A bell rings"))
    assert check_golden(settings, path)["errors"] == []


NO_OFFSETS: dict[str, Any] = {"start": None, "end": None, "groups": []}


def test_writing_by_document_loads_no_library_of_models_or_metrics() -> None:
    code = (
        "import sys; import flows.cli.app, flows.evaluation.golden_commands; "
        "print([name for name in ('torch', 'scipy', 'ir_measures', 'prefect', 'onnxruntime') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"
