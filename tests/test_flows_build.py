"""The build over folders of small documents, with a model that can be computed by eye."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, rows
from conftest import Workspace
from fakes import LettersRuntime

from enrich.embedding.embedder import TEXTS_IN_WINDOW
from flows.sources.folder import FolderSource
from indexes.storage.storage import Storage
from parsers.document import Document
from parsers.errors import GateRefused, IndexBusy, SourceError, StoreError, UsageError

NOTHING = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)

GUIDE = """# Guide

Open the valve slowly. Wait for the gauge.

## Pump

The pump stops by itself. Its seal wears out.

## Storage

Keep it dry and cold.
"""


def fill(workspace: Workspace) -> None:
    workspace.write("guide.md", GUIDE)
    workspace.write("north/readme.md", "# North\n\nThe key hangs in bay 4.\n")
    workspace.write("south/readme.md", "# South\n\nThe key hangs in bay 9.\n")
    workspace.write("plain.txt", "No title here. ERR_TIMEOUT_42 means that the line is dead.\n")


def ids_by_text(workspace: Workspace) -> dict[str, str]:
    return {row["text"]: row["chunk_id"] for row in rows(workspace)}


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "build.lock")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def without_memory(found: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {path: state for path, state in found.items() if "/memory/" not in path}


def test_a_first_build_publishes_and_answers(workspace: Workspace) -> None:
    fill(workspace)
    report = workspace.build()
    assert report["published"] and report["revision"] == 1
    assert report["documents"]["added"] == 4
    assert report["work"]["embedded"] == report["chunks"]["total"] == len(rows(workspace))
    assert set(report["checks"]) == {"stores", "fingerprint", "parity", "vectors", "removals", "failures", "text"}
    assert workspace.search("ERR_TIMEOUT_42")[0].key == "plain.txt"
    for text, key in (("bay 4", "north/readme.md"), ("bay 9", "south/readme.md")):
        assert workspace.search(text, "bm25")[0].key == key
    assert workspace.search("pump seal", "dense")[0].heading_path == ["Guide", "Pump"]


def test_a_second_build_does_nothing_and_writes_nothing(workspace: Workspace) -> None:
    fill(workspace)
    first = workspace.build()
    before = files(workspace.index)
    second = workspace.build()
    assert second["work"] == NOTHING
    assert not second["published"] and second["revision"] == first["revision"]
    assert second["documents"]["unchanged"] == 4
    assert files(workspace.index) == before


@pytest.mark.parametrize("change", ["first", "nothing", "one document"])
def test_a_build_lists_once_and_locks_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    fill(workspace)
    if change != "first":
        workspace.build()
    if change == "one document":
        workspace.write("new.md", "# New\n\nThe handle.\n")
    calls: list[str] = []
    listing, lock = FolderSource.objects, Storage.lock
    monkeypatch.setattr(FolderSource, "objects", lambda self: calls.append("listed") or listing(self))
    monkeypatch.setattr(Storage, "lock", lambda self: calls.append("locked") or lock(self))
    assert workspace.build()["published"] == (change != "nothing")
    assert sorted(calls) == ["listed", "locked"]


@pytest.mark.parametrize("notes", ["none", "extractive"])
def test_a_document_is_decoded_at_most_once_in_a_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, notes: str
) -> None:
    fill(workspace)
    decoded: list[bytes] = []
    decode = Document.decode
    monkeypatch.setattr(Document, "decode", lambda data: decoded.append(data) or decode(data))
    workspace.build(notes=notes)
    assert decoded == [], "a document that was just parsed is carried on"
    workspace.build(notes=notes, note_reserve=9)
    assert len(decoded) == len(set(decoded)) > 0


def test_a_touched_file_is_looked_at_and_nothing_else(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    before = files(workspace.index)
    os.utime(workspace.docs / "guide.md", (1, 1))
    report = workspace.build()
    assert report["work"] == NOTHING | {"fetched": 1}
    assert not report["published"]
    assert without_memory(files(workspace.index)) == without_memory(before)
    assert workspace.build()["work"] == NOTHING, "what the bytes of that state were is remembered"


def test_a_sentence_on_top_keeps_all_other_ids(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    before = ids_by_text(workspace)
    workspace.write("guide.md", GUIDE.replace("Open the valve", "Read this first. Open the valve"))
    report = workspace.build()
    after = ids_by_text(workspace)
    assert report["documents"]["changed"] == 1
    assert report["work"] | {"rows_written": 0} == NOTHING | {"fetched": 1, "parsed": 1, "chunked": 1, "embedded": 1}
    assert report["chunks"]["added"] == report["chunks"]["removed"] == 1
    kept = before.keys() & after.keys()
    assert len(kept) == len(before) - 1
    assert all(before[text] == after[text] for text in kept)
    assert_equals_a_clean_build(workspace)


def test_a_removed_document_answers_no_more(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    (workspace.docs / "plain.txt").unlink()
    report = workspace.build()
    assert report["documents"]["removed"] == 1 and report["work"] == NOTHING
    assert all(hit.key != "plain.txt" for hit in workspace.search("ERR_TIMEOUT_42 line is dead"))
    assert_equals_a_clean_build(workspace)


def test_moves_and_copies_of_titled_documents_call_no_model(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    (workspace.docs / "deep").mkdir()
    (workspace.docs / "guide.md").rename(workspace.docs / "deep/manual.md")
    shutil.copy(workspace.docs / "north/readme.md", workspace.docs / "north/copy.md")
    report = workspace.build()
    assert report["documents"]["added"] == 2 and report["documents"]["removed"] == 1
    assert report["work"] | {"rows_written": 0} == NOTHING | {"fetched": 2}
    assert workspace.search("bay 4", "bm25", filters=("key=north/copy.md",))[0].locator.startswith("copy.md")
    assert_equals_a_clean_build(workspace)


def test_a_document_that_fails_keeps_its_last_good_version_until_it_heals(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    before = ids_by_text(workspace)
    workspace.write("guide.md", b"\x89PNG\r\n\x1a\n" + bytes(200))
    report = workspace.build()
    assert report["documents"]["failed"] == 1
    assert [failure["key"] for failure in report["failures"]] == ["guide.md"]
    assert ids_by_text(workspace) == before
    again = workspace.build()
    assert again["work"] == NOTHING and again["documents"]["failed"] == 1
    workspace.write("guide.md", GUIDE + "\nIt is healed.\n")
    healed = workspace.build()
    assert healed["documents"]["failed"] == 0 and healed["documents"]["changed"] == 1
    assert_equals_a_clean_build(workspace)


def test_a_failing_document_is_carried_into_a_new_generation(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    workspace.write("guide.md", b"\x89PNG\r\n\x1a\n" + bytes(200))
    workspace.build(embedder="vowels")
    assert any(row["key"] == "guide.md" for row in rows(workspace))


def test_a_touched_file_keeps_its_status(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("broken.md", b"\x89PNG\r\n\x1a\n" + bytes(200))
    workspace.write("nothing.md", "")
    before = workspace.build()
    for key in ("broken.md", "nothing.md"):
        os.utime(workspace.docs / key, (7, 7))
    workspace.write("plain.txt", "Now it says something else.\n")
    after = workspace.build()
    assert after["failures"] == before["failures"]
    assert (after["documents"]["failed"], after["documents"]["empty"]) == (1, 1)
    assert_equals_a_clean_build(workspace)


def test_empty_files_have_a_status_and_no_chunks(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("nothing.md", "")
    workspace.write("blank.txt", " \n\t\n")
    report = workspace.build()
    assert report["documents"]["empty"] == 2 and report["documents"]["failed"] == 0
    assert {failure["status"] for failure in report["failures"]} == {"empty"}
    workspace.write("plain.txt", "")
    assert workspace.build()["documents"]["empty"] == 3
    assert workspace.build()["work"] == NOTHING
    assert all(row["key"] != "plain.txt" for row in rows(workspace))


def test_a_mass_removal_is_refused_unless_allowed(workspace: Workspace) -> None:
    for number in range(60):
        workspace.write(f"{number}.txt", f"Document {number} says something.")
    workspace.build()
    for number in range(21):
        (workspace.docs / f"{number}.txt").unlink()
    before = files(workspace.index)
    with pytest.raises(GateRefused, match="21 of 60"):
        workspace.build()
    assert files(workspace.index) == before
    assert workspace.build(allow_deletes=True)["documents"]["removed"] == 21


def test_an_empty_or_missing_source_removes_nothing(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    before = files(workspace.index)
    shutil.rmtree(workspace.docs)
    with pytest.raises(SourceError, match="no such folder"):
        workspace.build()
    workspace.docs.mkdir()
    with pytest.raises(GateRefused, match="lists no documents"):
        workspace.build(allow_deletes=True)
    assert files(workspace.index) == before


def test_a_source_that_the_index_does_not_know_is_refused(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    with pytest.raises(UsageError, match="knows the sources default, not other"):
        workspace.build(source_name="other")
    both = workspace.build(source_name="other", new_source=True)
    assert both["documents"]["removed"] == 0
    assert len({row["document_id"] for row in rows(workspace)}) == 8


def test_another_embedder_makes_a_new_generation_from_what_is_stored(workspace: Workspace) -> None:
    fill(workspace)
    first = workspace.build()
    swapped = workspace.build(embedder="vowels")
    assert swapped["generation"] != first["generation"]
    assert swapped["work"]["fetched"] == swapped["work"]["parsed"] == swapped["work"]["chunked"] == 0
    assert swapped["work"]["embedded"] == len({row["text_digest"] for row in rows(workspace)})
    assert workspace.build(embedder="vowels")["work"] == NOTHING


def test_changed_chunker_settings_renew_what_comes_after_parsing(workspace: Workspace) -> None:
    workspace.write("long.txt", " ".join(f"This is sentence number {number}." for number in range(80)))
    workspace.build()
    report = workspace.build(note_reserve=20)
    assert report["work"]["fetched"] == report["work"]["parsed"] == 0
    assert report["work"]["chunked"] == 1 and report["work"]["embedded"] > 0
    workspace.flags = {"note_reserve": 20}
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


def test_labels_of_the_settings_and_of_the_document_filter_both_channels(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("secret.md", "---\nlabels: [restricted]\n---\n# Secret\n\nThe pump has a secret seal.\n")
    workspace.build(labels=[{"match": "north/*", "labels": ["internal"]}])
    for mode in ("hybrid", "dense", "bm25"):
        assert {hit.key for hit in workspace.search("pump key", mode, filters=("label=restricted",))} == {"secret.md"}
        assert "secret.md" not in {hit.key for hit in workspace.search("secret", mode, filters=("label!=restricted",))}
    relabelled = workspace.build(labels=[{"match": "*", "labels": ["everyone"]}])
    assert relabelled["work"] | {"rows_written": 0} == NOTHING
    with pytest.raises(UsageError, match="internal"):  # no document carries it any more
        workspace.search("bay 4", filters=("label=internal",))


def test_documents_outside_vectors_for_are_found_by_bm25_alone(workspace: Workspace) -> None:
    fill(workspace)
    report = workspace.build(vectors_for=["guide.md"])
    assert report["work"]["embedded"] == sum(row["key"] == "guide.md" for row in rows(workspace))
    assert workspace.search("bay 4", "bm25")[0].key == "north/readme.md"
    assert {hit.key for hit in workspace.search("bay 4", "dense")} == {"guide.md"}
    assert workspace.build()["work"]["embedded"] > 0
    assert_equals_a_clean_build(workspace)


def test_unknown_tokens_are_counted_and_named(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("zh.md", "# 通知\n\n压缩机的密封圈必须每年更换一次。\n")
    report = workspace.build()
    assert [one["key"] for one in report["unknown"]] == ["zh.md"]
    assert report["unknown"][0]["share"] > 0.5
    assert workspace.search("压缩机", "bm25")[0].key == "zh.md"


def test_identical_documents_keep_rows_of_their_own_and_share_a_vector(workspace: Workspace) -> None:
    workspace.write("a.md", "# Same\n\nThe same words.\n")
    workspace.write("b.md", "# Same\n\nThe same words.\n")
    report = workspace.build()
    assert report["work"]["parsed"] == report["work"]["chunked"] == report["work"]["embedded"] == 1
    assert len(rows(workspace)) == 2


def test_a_broken_off_build_goes_on_from_the_last_finished_batch(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace)
    workspace.build()
    before = rows(workspace)
    for number in range(6):
        workspace.write(f"new/{number}.txt", f"New document {number}. It says {'abcdef'[number] * 4}.")
    real, calls = LettersRuntime.encode, []

    def encode(self: LettersRuntime, batch: list[list[int]]) -> Any:
        calls.append(len(batch))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, batch)

    monkeypatch.setattr(LettersRuntime, "encode", encode)
    monkeypatch.setitem(TEXTS_IN_WINDOW, "cpu", 1)
    with pytest.raises(KeyboardInterrupt):
        workspace.build(batch_documents=2)
    assert rows(workspace) == before
    monkeypatch.setattr(LettersRuntime, "encode", real)
    report = workspace.build()
    assert report["work"]["embedded"] == 6 - 3
    assert_equals_a_clean_build(workspace)


def test_a_file_removed_during_the_build_is_named_and_its_old_version_stays(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace)
    workspace.build()
    workspace.write("guide.md", GUIDE + "More.\n")
    monkeypatch.setattr("flows.sources.folder.FolderSource.fetch", lambda self, key, version: None)
    report = workspace.build()
    assert "removed during the build" in report["failures"][0]["reason"]
    assert any(row["key"] == "guide.md" for row in rows(workspace))
    monkeypatch.undo()


def test_stores_that_disagree_are_not_published(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    workspace.build()
    before = workspace.index.joinpath("pointer.json").read_bytes()
    workspace.write("more.txt", "One more document.")
    monkeypatch.setattr("indexes.lexical.index.LexicalIndex.apply", lambda self, gone, written: None)
    with pytest.raises(GateRefused, match="the stores disagree"):
        workspace.build()
    assert workspace.index.joinpath("pointer.json").read_bytes() == before
    monkeypatch.undo()


def test_two_builds_at_once(workspace: Workspace) -> None:
    fill(workspace)
    storage = Storage(str(workspace.index))
    storage.create()
    with storage.lock(), pytest.raises(IndexBusy, match="another build"):
        workspace.build()


def test_a_folder_that_holds_other_things_is_no_index(workspace: Workspace) -> None:
    fill(workspace)
    with pytest.raises(StoreError, match="holds other things"):
        workspace.build(index=str(workspace.docs))
    workspace.write("file", "x")
    with pytest.raises(StoreError, match="cannot be used"):
        workspace.build(index=str(workspace.docs / "file"))


def test_search_refuses_a_model_that_did_not_build_the_index(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    toml = workspace.models["model_files"][0]
    toml.write_text(toml.read_text().replace("limit = 64", "limit = 60"))
    with pytest.raises(UsageError, match="fingerprint"):
        workspace.search("pump")


@pytest.mark.parametrize("seed", range(3))
def test_incremental_builds_equal_a_clean_one(workspace: Workspace, seed: int) -> None:
    """Invariant 6, for random sequences of changes."""
    chance = random.Random(seed)
    fill(workspace)
    workspace.build()
    for _ in range(5):
        for _ in range(chance.randint(1, 3)):
            change(workspace, chance)
        workspace.build(allow_deletes=True)
    assert_equals_a_clean_build(workspace)


def change(workspace: Workspace, chance: random.Random) -> None:
    paths = sorted(path for path in workspace.docs.rglob("*") if path.is_file())
    path = chance.choice(paths)
    target = workspace.docs / f"n{chance.randint(0, 9)}.md"
    action = chance.choice(["add", "edit", "insert", "delete", "rename", "copy", "touch"])
    if action == "add":
        target.write_text(f"# New {chance.random()}\n\nText {chance.random()}. More.\n")
    elif action in ("edit", "insert"):
        text = path.read_text()
        path.write_text(f"First. {text}" if action == "insert" else text.replace("e", "a", 1) + " Edited.")
    elif action == "delete" and len(paths) > 2:
        path.unlink()
    elif action == "rename":
        path.rename(target)
    elif action == "copy" and path != target:
        shutil.copy(path, target)
    else:
        os.utime(path, (5, 5))
