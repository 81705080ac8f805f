"""Notes in the build: what is asked for, remembered, tried again; with an LLM that can be computed by eye."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from conftest import Workspace
from llm_server import Answer, said, serving
from test_flows_build import NOTHING, assert_equals_a_clean_build, rows

from enrich.notes.prompts import Prompt
from enrich.notes.writer import Completion, LLMFailure
from flows.maintenance.doctor import examine
from flows.models.note_writers import LLMNotes, open_server
from indexes.cache.store import BytesCache
from indexes.storage.storage import Storage
from parsers.errors import ModelError

GUIDE = """# Guide

## Pump

The pump stops by itself at night.

## Storage

Keep the seal dry and cold here.
"""


class FirstWords:
    """An LLM that answers with the passage's last words; it fails at passages that hold ``crash``."""

    prompts: ClassVar[list[Prompt]] = []
    fails: ClassVar[bool] = False

    def __init__(self, path: Path, **settings: object) -> None:
        self.fingerprint = "first words"
        self.provenance: Mapping[str, str] = {}
        self.parallel = 1

    def cancel(self) -> None:
        raise AssertionError("nobody asks several at a time")

    def room(self, prompt: Prompt) -> int:
        return 1_000

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        self.prompts.append(prompt)
        if self.fails and "crash" in prompt.rest:
            raise LLMFailure("it fell over")
        marked = prompt.rest.partition("<passage>\n")[2].partition("\n</passage>")[0]
        passage = marked or prompt.shared[-1]
        words = [word for word in passage.replace("#", " ").replace(".", " ").split() if word.isalpha()]
        return Completion(f"It tells how {' '.join(words[-6:])}.")


@pytest.fixture
def noted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr("enrich.notes.runtimes.llama_cpp.LlamaRuntime", FirstWords)
    monkeypatch.setattr(FirstWords, "prompts", [])
    monkeypatch.setattr(FirstWords, "fails", False)
    llm = workspace.docs.parent / "any.gguf"
    llm.write_bytes(b"weights")
    workspace.flags = {"notes": "llm", "llm": str(llm), "note_reserve": 24}
    workspace.write("guide.md", GUIDE)
    return workspace


def test_notes_stand_in_the_embedded_text_and_are_asked_for_once(noted: Workspace) -> None:
    report = noted.build()
    assert report["work"]["notes"] == len(rows(noted)) == 2
    for row in rows(noted):
        assert row["note"].startswith("It tells how")
        assert row["prefix"].startswith(row["note"])
    asked = len(FirstWords.prompts)
    assert noted.build()["work"] == NOTHING
    assert len(FirstWords.prompts) == asked
    assert_equals_a_clean_build(noted)


def test_notes_move_no_boundary(noted: Workspace) -> None:
    noted.build()
    before = [(row["chunk_id"], row["start"], row["end"]) for row in rows(noted)]
    report = noted.build(notes="none")
    assert report["work"]["fetched"] == report["work"]["parsed"] == report["work"]["chunked"] == 0
    assert [(row["chunk_id"], row["start"], row["end"]) for row in rows(noted)] == before
    assert all(row["note"] == "" for row in rows(noted))


def test_a_wider_window_asks_again(noted: Workspace) -> None:
    noted.write("long.md", "# Long\n\n" + " ".join(f"The valve number {n} opens each day." for n in range(20)) + "\n")
    noted.build()
    report = noted.build(note_neighbours=20)
    assert report["work"]["notes"] > 0 and report["work"]["parsed"] == report["work"]["chunked"] == 0


def test_whole_documents_stand_in_the_prompts_on_request_and_longer_ones_keep_their_notes(noted: Workspace) -> None:
    noted.write("long.md", "# Long\n\nThe valve number 7 opens each day.\n\n" + "# Code\n\n" + "x = 1\n\n" * 99)
    noted.build()
    del FirstWords.prompts[:]
    flags = {"note_window": "document", "note_document": 200}
    report = noted.build(**flags)
    assert report["work"]["notes"] == 2 and report["work"]["parsed"] == report["work"]["chunked"] == 0
    assert report["notes_by_section"] == 1
    assert {prompt.shared for prompt in FirstWords.prompts} == {FirstWords.prompts[0].shared}
    assert GUIDE.strip() in FirstWords.prompts[0].message and FirstWords.prompts[0].with_document
    assert noted.build(**flags)["work"] == NOTHING
    assert noted.build()["work"]["notes"] == 0  # those of before are remembered


def test_what_precedes_stands_in_the_prompts_on_request_and_an_edit_renews_the_notes_behind_it(
    noted: Workspace,
) -> None:
    flags = {"note_window": "preceding", "note_document": 200}
    noted.write("long.md", "# Long\n\nThe valve number 7 opens each day.\n\n" + "# Code\n\n" + "x = 1\n\n" * 99)
    report = noted.build(**flags)
    assert report["notes_by_section"] == 1
    first, second = (prompt for prompt in FirstWords.prompts if prompt.with_document)
    assert second.shared[: len(first.shared)] == first.shared
    assert "Keep the seal" in second.message and "Keep the seal" not in first.message
    assert noted.build(**flags)["work"] == NOTHING
    noted.write("guide.md", GUIDE.replace("dry and cold", "dry and warm"))
    assert noted.build(**flags)["work"]["notes"] == 1
    noted.write("guide.md", GUIDE.replace("dry and cold", "dry and warm").replace("at night", "at noon"))
    assert noted.build(**flags)["work"]["notes"] == 2


def test_what_is_left_out_is_counted(noted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note too long for its reserve, and a document that the LLM's context does not hold."""
    monkeypatch.setattr(FirstWords, "room", lambda self, prompt: 0 if prompt.with_document else 1_000)
    report = noted.build(note_window="document", note_reserve=3)
    assert report["notes"] == {"written": 0, "too_long": 2, "rejected": 0, "none": 0, "missing": 0}
    assert report["notes_narrowed"] == 2 and report["notes_by_section"] == 0
    assert all(row["note"] == "" for row in rows(noted))
    report = noted.build()
    assert report["notes"]["written"] == 2 and report["notes_narrowed"] == 0


def test_an_edited_sentence_renews_the_notes_whose_window_holds_it(noted: Workspace) -> None:
    noted.build()
    noted.write("guide.md", GUIDE.replace("dry and cold", "dry and warm"))
    report = noted.build()
    assert report["work"]["notes"] == report["work"]["embedded"] == 1
    assert_equals_a_clean_build(noted)


def test_a_limit_leaves_the_rest_to_the_next_build(noted: Workspace) -> None:
    first = noted.build(notes_limit=1)
    assert first["work"]["notes"] == 1 and first["published"]
    assert sorted(bool(row["note"]) for row in rows(noted)) == [False, True]
    assert first["notes"] == {"written": 1, "too_long": 0, "rejected": 0, "none": 0, "missing": 1}
    second = noted.build(notes_limit=1)
    assert second["work"]["notes"] == 1 and second["work"]["parsed"] == second["work"]["chunked"] == 0
    assert all(row["note"] for row in rows(noted))
    assert noted.build(notes_limit=1)["work"] == NOTHING


def test_a_failing_llm_is_asked_again_at_the_next_build(noted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    noted.write("crash.md", "# Crash\n\nHere the crash of one pump in spring is told.\n")
    monkeypatch.setattr(FirstWords, "fails", True)
    report = noted.build()
    assert report["published"]
    assert {row["key"] for row in rows(noted) if not row["note"]} == {"crash.md"}
    monkeypatch.setattr(FirstWords, "fails", False)
    again = noted.build()
    assert again["work"]["notes"] == 1
    assert all(row["note"] for row in rows(noted))
    assert noted.build()["work"] == NOTHING


def test_a_rejected_note_is_remembered_and_the_chunk_is_indexed(
    noted: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FirstWords, "generate", lambda self, prompt, max_tokens: Completion("I cannot help with that."))
    report = noted.build()
    assert report["published"] and report["chunks"]["total"] == 2
    assert report["notes"] == {"written": 0, "too_long": 0, "rejected": 2, "none": 0, "missing": 0}
    assert all(row["note"] == "" for row in rows(noted))
    assert noted.build()["work"] == NOTHING


def test_a_kill_among_the_notes_loses_at_most_one_batch(noted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        noted.write(f"{number}.md", f"# Part {number}\n\nThe valve number {number} opens each day.\n")
    monkeypatch.setattr(LLMNotes, "flush", 2)
    real, asked = FirstWords.generate, []

    def generate(self: FirstWords, prompt: Prompt, max_tokens: int) -> Completion:
        asked.append(prompt)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return real(self, prompt, max_tokens)

    monkeypatch.setattr(FirstWords, "generate", generate)
    with pytest.raises(KeyboardInterrupt):
        noted.build()
    monkeypatch.setattr(FirstWords, "generate", real)
    assert noted.build()["work"]["notes"] == 8 - 4


def last_words(body: dict[str, Any]) -> Answer:
    """What ``FirstWords`` answers, through a server."""
    message = body["messages"][1]["content"]
    passage = message.split("<passage>\n")[1].split("\n</passage>")[0]
    words = [word for word in passage.replace("#", " ").replace(".", " ").split() if word.isalpha()]
    return said(f"It tells how {' '.join(words[-6:])}.")


def test_notes_through_a_server_are_remembered_wherever_it_stands(workspace: Workspace) -> None:
    workspace.write("guide.md", GUIDE)
    workspace.flags = {"notes": "llm", "note_reserve": 24}
    with serving() as server:
        server.answer = last_words
        report = workspace.build(llm_url=server.url)
        assert report["work"]["notes"] == len(server.asked) == 2
        assert all(row["note"].startswith("It tells how") for row in rows(workspace))
    with serving() as moved:
        assert workspace.build(llm_url=moved.url, llm_concurrency=9)["work"] == NOTHING
        assert not moved.asked
        [check] = [
            check for check in examine(workspace.settings(llm_url=moved.url))["checks"] if "llm" in check["name"]
        ]
        assert check["state"] == "ok" and "tiny, 4,096 tokens" in check["found"]
    with pytest.raises(ModelError, match="no LLM's server"):
        open_server(workspace.settings(llm_url=moved.url)).fingerprint  # noqa: B018


def test_extractive_notes_need_no_model(workspace: Workspace) -> None:
    workspace.write(
        "pump.py", "\n\n".join(f"def open_valve_{n}(tank):\n    return tank.level - {n}" for n in range(12))
    )
    workspace.flags = {"notes": "extractive", "note_reserve": 24}
    report = workspace.build()
    assert report["work"]["notes"] == len(rows(workspace)) > 1
    assert all("open_valve" in row["note"] for row in rows(workspace))
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


@pytest.mark.real
@pytest.mark.slow
def test_a_real_kill_among_real_notes_loses_at_most_one_batch(tmp_path: Path) -> None:
    things = ("valve", "gauge", "boiler", "hinge", "lever", "crank", "piston", "flange", "rivet", "spring")
    sections = [
        f"## The {one} of house {house}\n\nThe {one} of house {house} is made of brass and is oiled by the keeper."
        for house in (1, 2)
        for one in things
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "house.md").write_text("# Houses\n\n" + "\n\n".join(sections) + "\n")
    command = [sys.executable, "-c", "from flows.cli import main; main()", "build", str(tmp_path / "docs")]
    command += ["--index", str(tmp_path / "index"), "--notes", "llm", "--json"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    assert any("8 notes at" in line for line in process.stderr)
    time.sleep(2)  # into the second batch
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert not (tmp_path / "index" / "pointer.json").exists()
    kept = len(BytesCache(Storage(str(tmp_path / "index")).cache(), "notes"))
    assert kept == LLMNotes.flush
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["published"] and report["chunks"]["total"] == len(sections)
    assert report["work"]["notes"] == len(sections) - kept
