"""Faults that people met in other ingestion projects, on their inputs, through whole builds."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparing import assert_equals_a_clean_build, catalog, rows, without_vector
from conftest import Workspace
from fakes import LettersRuntime
from test_flows_build import NOTHING, files, without_memory
from test_flows_notes import FirstWords

from chunker.chunk import document_id, embedded_text
from chunker.split import split
from enrich.embedding.embedder import TEXTS_IN_WINDOW
from enrich.embedding.runtime import Weights
from flows.build.dry_run import plan_build
from flows.maintenance import kept_revisions
from flows.models.ruler import chunker_settings, open_ruler
from flows.opening import published
from flows.searching import open_searcher
from flows.settings import load_settings
from indexes.revisions.generation import published_catalog
from parsers import registry
from parsers.errors import GateRefused, ModelError, SourceError

Encode = Callable[[LettersRuntime, list[list[int]]], Any]


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "cases/files"


def put(workspace: Workspace, key: str, path: Path) -> None:
    workspace.write(key, path.read_bytes())


def found(workspace: Workspace, query: str) -> list[str]:
    """Texts that BM25 finds, in a reader of its own."""
    return [hit.text for hit in workspace.search(query, "bm25")]


def texts(workspace: Workspace, key: str) -> list[str]:
    """A document's chunks in the published index, in reading order."""
    own = [row for row in rows(workspace) if row["key"] == key]
    return [row["text"] for row in sorted(own, key=lambda row: int(row["start"]))]


def settled(workspace: Workspace, **flags: Any) -> bool:
    """Whether another build with these settings would have nothing to do."""
    documents = plan_build(workspace.settings(**flags))["documents"]
    return bool(documents["listed"] == documents["unchanged"])


def decoded(self: LettersRuntime, ids: list[int]) -> str:
    """The words behind token ids."""
    return str(self._tokenizer.decode(ids)).replace(" ##", "")


def failing(monkeypatch: pytest.MonkeyPatch, word: str, error: type[Exception] = RuntimeError) -> None:
    """Have the embedder fail at every batch that holds a text with a word; at all of them for an empty word."""
    real: Encode = LettersRuntime.encode

    def encode(self: LettersRuntime, batch: list[list[int]]) -> Any:
        if any(word in decoded(self, ids) for ids in batch):
            raise error(f"no vector for {word}")
        return real(self, batch)

    monkeypatch.setattr(LettersRuntime, "encode", encode)


def own_vector(row: dict[str, Any]) -> Any:
    """The vector that ``letters`` gives a row's embedded text."""
    text = (row["prefix"] + row["text"]).lower()
    counts = np.array([text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"], np.float32)
    return pytest.approx(counts / np.linalg.norm(counts), abs=1e-6)


# --- O16: the file's time


def test_o16_time_owner_and_copies_cost_no_work_and_no_write(workspace: Workspace, inputs: Path) -> None:
    put(workspace, "o16_note.txt", inputs / "o16_note.txt")
    workspace.build()
    path, before, made = workspace.docs / "o16_note.txt", files(workspace.index), len(LettersRuntime.batches)
    os.utime(path, (1, 1))
    assert workspace.build()["work"] == NOTHING | {"fetched": 1}, "its bytes are looked at, for their hash"
    assert without_memory(files(workspace.index)) == without_memory(before)
    before = files(workspace.index)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    os.utime(path, ns=(5, path.stat().st_mtime_ns))
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)
    third = workspace.build()
    # Another inode or change time may mean other bytes under the same size and time: they are looked at, too.
    assert third["work"] == NOTHING | {"fetched": 1} and not third["published"]
    assert without_memory(files(workspace.index)) == without_memory(before)
    assert len(LettersRuntime.batches) == made


# --- O17: a document that shrinks


def test_o17_a_document_that_shrinks_leaves_no_tail_and_may_come_back(workspace: Workspace, inputs: Path) -> None:
    workspace.write("other.txt", "Something else stands here.")
    put(workspace, "rules.md", inputs / "o17_v1.md")
    workspace.build()
    first = rows(workspace)
    assert any("keyword-07" in text for text in found(workspace, "keyword-07"))
    put(workspace, "rules.md", inputs / "o17_v2.md")
    report = workspace.build()
    assert report["work"]["embedded"] == 0 and report["chunks"]["removed"] == 7
    assert not any("keyword-07" in text for text in found(workspace, "keyword-07"))
    assert "\n\n".join(texts(workspace, "rules.md")) == (inputs / "o17_v2.md").read_text(encoding="utf-8").strip()
    workspace.write("rules.md", "")
    assert workspace.build()["chunks"]["removed"] == 3
    assert texts(workspace, "rules.md") == [] and found(workspace, "rule") == []
    put(workspace, "rules.md", inputs / "o17_v1.md")
    back = workspace.build()
    assert back["documents"]["changed"] == 1 and back["work"]["embedded"] == back["work"]["chunked"] == 0
    assert rows(workspace) == first


# --- O18: names


def test_o18_the_same_name_in_two_folders(workspace: Workspace, inputs: Path) -> None:
    shutil.copytree(inputs / "o18", workspace.docs, dirs_exist_ok=True)
    report = workspace.build(batch_documents=1)
    assert report["documents"]["added"] == 3
    assert len({row["document_id"] for row in rows(workspace)}) == 3
    for query, key in (("bay 4", "north/readme.md"), ("bay 9", "south/readme.md"), ("bay 9b", "south/readme.txt")):
        for mode in ("bm25", "hybrid"):
            hit = workspace.search(query, mode)[0]
            assert (hit.key, hit.document_id) == (key, document_id("default", key))
            assert query in hit.text


ODD_NAMES = [
    "it's 'quoted' \"twice\".md",
    "100% %41 %2F.md",
    "a..b.md",
    "c../d..md",
    "space  d/# 1 #.md",
    unicodedata.normalize("NFC", "café.md"),
    unicodedata.normalize("NFD", "café.md"),
    "case.md",
    "Case.md",
    "CASE.MD",
    "back\\slash.md",
    "line\nend.md",
    "[1]{2}?*.md",
    "x'; DROP TABLE chunks; --.md",
    "-- \u202e\N{GRINNING FACE}.md",
]


def test_o18_relatives_names_with_signs_of_all_kinds(workspace: Workspace) -> None:
    for number, key in enumerate(ODD_NAMES):
        workspace.write(key, f"# Number {number}\n\nIts word is mark{number}mark.\n")
    report = workspace.build(batch_documents=4)
    assert report["documents"]["added"] == len(ODD_NAMES) and not report["failures"]
    assert {row["key"]: row["document_id"] for row in rows(workspace)} == {
        key: document_id("default", key) for key in ODD_NAMES
    }
    for number, key in enumerate(ODD_NAMES):
        assert [hit.key for hit in workspace.search(f"mark{number}mark", "bm25", k=1)] == [key]
        for mode in ("bm25", "dense"):
            assert {hit.key for hit in workspace.search("word", mode, filters=(f"key={key}",))} == {key}
    assert settled(workspace)
    for number, key in enumerate(ODD_NAMES):
        if number % 3 == 0:
            workspace.write(key, f"# Number {number}\n\nIts word is edited now.\n")
        elif number % 3 == 1:
            (workspace.docs / key).unlink()
    report = workspace.build(batch_documents=4)
    assert (report["documents"]["changed"], report["documents"]["removed"]) == (5, 5)
    assert_equals_a_clean_build(workspace)


# --- O19: old version deleted before the new one is safe


def test_o19_the_old_version_answers_until_the_new_one_is_whole(
    workspace: Workspace, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(workspace, "bridge.txt", inputs / "o19_v1.txt")
    workspace.build()
    before = rows(workspace)
    put(workspace, "bridge.txt", inputs / "o19_v2.txt")
    with monkeypatch.context() as patch:
        failing(patch, "mondays")
        report = workspace.build()
    assert report["documents"]["failed"] == 1
    assert [(one["key"], one["status"]) for one in report["failures"]] == [("bridge.txt", "failed")]
    assert "no vector for mondays" in report["failures"][0]["reason"]
    assert rows(workspace) == before and found(workspace, "bridge closed") == ["The bridge is closed on Sundays."]

    reader, seen = open_searcher(workspace.settings(), "bm25"), []
    real: Encode = LettersRuntime.encode

    def encode(self: LettersRuntime, batch: list[list[int]]) -> Any:
        seen.append(found(workspace, "bridge closed"))
        return real(self, batch)

    monkeypatch.setattr(LettersRuntime, "encode", encode)
    healed = workspace.build()
    assert healed["documents"]["failed"] == 0 and healed["documents"]["changed"] == 1
    assert seen and seen[0] == ["The bridge is closed on Sundays."]
    assert [hit.text for hit in reader.search("bridge closed", "bm25", 5)] == ["The bridge is closed on Sundays."]
    assert found(workspace, "bridge closed") == ["The bridge is closed on Mondays."]
    assert_equals_a_clean_build(workspace)


def test_o19_relatives_one_document_fails_is_parked_and_goes_on_when_it_changes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.flags = {"guards": {"attempts": 2}}
    for name in ("one", "two", "poison", "three"):
        workspace.write(f"{name}.md", f"# {name.title()}\n\nThis is about {name} things.\n")
    with monkeypatch.context() as patch:
        failing(patch, "poison")
        first = workspace.build()
        assert first["published"] and first["documents"]["added"] == 3
        assert [one["key"] for one in first["failures"]] == ["poison.md"]
        assert {row["key"] for row in rows(workspace)} == {"one.md", "two.md", "three.md"}
        assert first["work"]["embedded"] == 3
        second = workspace.build()
        assert second["work"]["embedded"] == second["work"]["rows_written"] == 0
        assert "left alone after 2 attempts until it changes" in second["failures"][0]["reason"]
        assert catalog(workspace)["poison.md"][1] == "failed"
    third = workspace.build()
    assert third["work"] == NOTHING and not third["published"] and third["documents"]["failed"] == 1
    workspace.write("poison.md", "# Poison\n\nThis is about poison things, and more.\n")
    healed = workspace.build()
    assert healed["failures"] == [] and healed["work"]["embedded"] == 1
    storage, pointer = published(workspace.settings())
    assert {row.attempts for row in published_catalog(storage, pointer).rows()} == {0}
    assert_equals_a_clean_build(workspace)


@pytest.mark.parametrize("error", [ModelError, RuntimeError])
def test_o19_relatives_an_embedder_that_fails_for_everything_publishes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    for number in range(8):
        workspace.write(f"{number}.txt", f"The note number {number} says something.")
    workspace.build()
    before, pointer = rows(workspace), (workspace.index / "pointer.json").read_bytes()
    for number in range(8):
        workspace.write(f"{number}.txt", f"The note number {number} says another thing.")
    with monkeypatch.context() as patch:
        failing(patch, "", error)
        with pytest.raises(ModelError, match="embeds nothing any more: no vector for"):
            workspace.build()
    assert (workspace.index / "pointer.json").read_bytes() == pointer
    assert rows(workspace) == before
    assert workspace.build()["documents"]["changed"] == 8


def test_o19_relatives_however_many_fail_in_a_row_they_stop_no_other(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        workspace.write(
            f"{number:02}.txt", f"The note number {number} says {'poison' if number < 11 else 'something'}."
        )
    with monkeypatch.context() as patch:
        failing(patch, "poison", RuntimeError)
        report = workspace.build()
    assert (report["documents"]["failed"], report["documents"]["added"]) == (11, 1)
    assert {row["key"] for row in rows(workspace)} == {"11.txt"}
    assert workspace.build()["documents"]["failed"] == 0
    assert_equals_a_clean_build(workspace)


# --- O20: the fingerprint forgets the settings


def test_o20_each_setting_renews_the_stages_behind_it_and_no_others(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enrich.notes.runtimes.llama_cpp.LlamaRuntime", FirstWords)
    llm = workspace.docs.parent / "any.gguf"
    llm.write_bytes(b"weights")
    workspace.flags = {"notes": "llm", "llm": str(llm), "note_reserve": 12}
    workspace.write(
        "long.md", "# Long\n\n" + " ".join(f"Then valve number {n} opens slowly." for n in range(30)) + "\n"
    )
    workspace.write("short.md", "# Short\n\nThe pump stops by itself at night.\n")
    workspace.build()

    def changed(ran: set[str], **flags: Any) -> list[dict[str, Any]]:
        workspace.flags |= flags
        assert not settled(workspace)
        work = workspace.build()["work"]
        assert {stage for stage, count in work.items() if count} == ran
        assert settled(workspace)
        return rows(workspace)

    changed({"chunked", "notes", "embedded", "rows_written"}, note_reserve=24)
    with monkeypatch.context() as patch:
        changed({"notes"}, note_neighbours=20)  # wider windows, the same answers
        patch.setattr(FirstWords, "generate", lambda *_: pytest.fail("what was asked is remembered"))
        assert changed({"embedded", "rows_written"}, notes="none")[0]["note"] == ""
    first = published(workspace.settings())[1]
    swapped = changed({"embedded", "rows_written"}, embedder="vowels", ruler="letters")
    _, pointer = published(workspace.settings())
    assert pointer.generation != first.generation and pointer.dimension == 5
    assert {len(row["vector"]) for row in swapped} == {5}
    assert {row["provenance"] for row in swapped} <= pointer.runtimes.keys()
    assert workspace.search("pump", "dense")[0].ranks["dense"] == 1
    monkeypatch.setattr(registry.Adapter, "fingerprint", lambda self: f"{self.name}:99")
    changed({"parsed", "fetched", "chunked"})
    assert_equals_a_clean_build(workspace)


# --- O21: objects removed at the source


def test_o21_a_removed_object_is_gone_and_a_failed_listing_removes_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("kept.txt", "The harbour opens at six.")
    workspace.write("gone.txt", "The lighthouse closes at nine.")
    workspace.build()
    (workspace.docs / "gone.txt").unlink()
    assert workspace.build()["documents"]["removed"] == 1
    assert [row["key"] for row in rows(workspace)] == ["kept.txt"] == list(catalog(workspace))
    for mode in ("bm25", "dense", "hybrid"):
        assert {hit.key for hit in workspace.search("the harbour, the lighthouse at nine", mode)} == {"kept.txt"}
    before = without_memory(files(workspace.index))

    def breaks_off(self: object) -> Any:
        yield from ()
        raise SourceError("the listing broke off")

    with monkeypatch.context() as patch:
        patch.setattr("flows.sources.folder.FolderSource.objects", breaks_off)
        with pytest.raises(SourceError, match="broke off"):
            workspace.build(allow_deletes=True, force=True)
        patch.setattr("flows.sources.folder.FolderSource.objects", lambda self: iter(()))
        with pytest.raises(GateRefused, match="lists no documents, and the index holds 1 of it"):
            workspace.build(allow_deletes=True, force=True)
    assert without_memory(files(workspace.index)) == before


# --- O22: input cut silently


def test_o22_the_tail_of_an_overlong_sentence_reaches_the_embedder(workspace: Workspace, inputs: Path) -> None:
    put(workspace, "survey.txt", inputs / "o22_long_tail.txt")
    report = workspace.build()
    assert report["truncated"] == 0
    assert "hidden amber beacon" in found(workspace, "hidden amber beacon")[0]
    given = [ids for batch in LettersRuntime.batches for ids in batch]
    assert max(map(len, given)) <= 64
    assert report["work"]["embedded"] == report["chunks"]["total"] == len({tuple(ids) for ids in given})
    runtime = LettersRuntime(None, Weights(workspace.models["models_dir"] / "letters"))  # type: ignore[arg-type]
    assert any("amber beacon" in decoded(runtime, ids) for ids in given)
    assert all(row["cut"] for row in rows(workspace)), "each piece of the sentence says that it was cut"


def test_o22_what_the_embedder_does_not_read_is_counted(workspace: Workspace, inputs: Path) -> None:
    """Where the ruler is of a model that reads more than the embedder does."""
    put(workspace, "survey.txt", inputs / "o22_long_tail.txt")
    report = workspace.build(embedder="vowels")
    assert max(len(ids) for batch in LettersRuntime.batches for ids in batch) == 32
    assert 0 < report["truncated"] <= report["chunks"]["total"]


@pytest.mark.real
def test_o22_with_the_default_embedders_tokenizer(inputs: Path) -> None:
    settings = load_settings()
    try:
        ruler = open_ruler(settings)
    except ModelError as error:
        pytest.skip(f"needs the default embedder's tokenizer: {error}")
    document = registry.read("survey.txt", (inputs / "o22_long_tail.txt").read_bytes())
    chunks = split(document, "survey.txt", ruler, chunker_settings(settings))
    assert len(chunks) > 10 and all(ruler.count(embedded_text("", one)) <= ruler.room for one in chunks)
    assert "hidden amber beacon" in chunks[-1].text and all(one.cut for one in chunks)


# --- O23: vectors shift after blank texts are filtered


def test_o23_each_text_has_its_own_vector_and_blanks_have_none(
    workspace: Workspace, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.loads(line) for line in (inputs / "o23_texts.jsonl").read_text(encoding="utf-8").splitlines()]
    spoken = {f"{line['i']}.txt": line["text"] for line in lines if line["text"].replace("\u200b", "").strip()}
    blank = {f"{line['i']}.txt" for line in lines if not line["text"].strip()}
    assert len(lines) == 7 and len(spoken) == len(blank) == 3
    for line in lines:
        workspace.write(f"{line['i']}.txt", line["text"])
    real: Encode = LettersRuntime.encode
    with monkeypatch.context() as patch:
        patch.setattr(LettersRuntime, "encode", lambda self, batch: real(self, batch)[:-1])
        with pytest.raises(ModelError, match="no finite vector of 26 numbers"):
            workspace.build()
    report = workspace.build()
    assert report["documents"]["empty"] == 4, "a zero-width space is blank too"
    standing = {row["key"]: row for row in rows(workspace)}
    assert spoken.keys() == standing.keys() and not blank & standing.keys()
    for key, text in spoken.items():
        assert standing[key]["text"] == text.strip()
        assert standing[key]["vector"] == own_vector(standing[key])


# --- O26: ordinary questions break the query parser


def test_o26_any_question_is_answered(workspace: Workspace, inputs: Path) -> None:
    questions = (inputs / "o26_queries.txt").read_text(encoding="utf-8").splitlines()
    assert len(questions) == 11
    for number, question in enumerate(questions):
        workspace.write(f"{number}.txt", f"It was asked here: {question}")
    workspace.write("fish.txt", "There are fish on most days.")
    workspace.build()
    searcher = open_searcher(workspace.settings(), "hybrid")
    for number, question in enumerate(questions):
        assert f"{number}.txt" in [hit.key for hit in searcher.search(question, "bm25", 3)], question
        for mode in ("dense", "hybrid"):
            assert searcher.search(question, mode, 3), question
    assert "fish.txt" in [hit.key for hit in searcher.search("fish days:", "bm25", 2)]
    for question in ('"', "''", "(", "[", "{}", "*", "~", "^", "\\", "a:b:c", "a AND", "NOT", '"a', "a\x00b", "?", ":"):
        for mode in ("bm25", "dense", "hybrid"):
            searcher.search(question, mode, 3)


# --- O27: the full-text index does not cover later rows


def test_o27_every_step_is_found_in_old_and_new_readers(workspace: Workspace) -> None:
    def answers() -> dict[str, set[str]]:
        fresh = open_searcher(workspace.settings(), "bm25")
        return {
            word: {hit.key for hit in fresh.search(word, "bm25", 9)} for word in ("walnut", "cedar", "maple", "elm")
        }

    for key, name in (("1.txt", "walnut"), ("2.txt", "cedar"), ("3.txt", "maple")):
        workspace.write(key, f"The {name} grows here.")
    workspace.build()
    first = {"walnut": {"1.txt"}, "cedar": {"2.txt"}, "maple": {"3.txt"}, "elm": set()}
    assert answers() == first
    old = open_searcher(workspace.settings(), "bm25")
    workspace.write("2.txt", "The elm grows here.")
    workspace.build()
    updated = first | {"cedar": set(), "elm": {"2.txt"}}
    assert answers() == updated
    (workspace.docs / "3.txt").unlink()
    workspace.build()
    assert answers() == updated | {"maple": set()}
    assert not workspace.build()["published"]
    assert answers() == updated | {"maple": set()}
    assert {word: {hit.key for hit in old.search(word, "bm25", 9)} for word in first} == first
    assert kept_revisions.verify_index(workspace.settings())["whole"]
    assert_equals_a_clean_build(workspace)


# --- sizes


def test_a_document_of_ten_thousand_chunks_across_many_batches(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TEXTS_IN_WINDOW, "cpu", 3_000)
    text = "".join(f"## Part {n}\n\nHere word{n} stands.\n\n" for n in range(10_000))
    workspace.write("large.md", f"# Large\n\n{text}")
    workspace.write("small.md", "# Small\n\nA small one.\n")
    report = workspace.build(batch_tokens=100_000)
    assert report["chunks"]["total"] == report["work"]["embedded"] == report["work"]["rows_written"] == 10_001
    assert report["truncated"] == 0
    standing = rows(workspace)
    assert len(standing) == 10_001
    for row in standing[::97]:
        assert row["vector"] == own_vector(row)
    assert workspace.search("word7777", "bm25", 1)[0].heading_path == ["Large", "Part 7777"]
    workspace.write("large.md", f"# Large\n\n{text.replace('word5000 ', 'wird5000 ')}")
    report = workspace.build()
    assert report["work"]["embedded"] == report["chunks"]["added"] == report["chunks"]["removed"] == 1
    assert report["work"]["rows_written"] == 3, "its neighbours name it"
    verdict = kept_revisions.verify_index(workspace.settings())
    assert verdict["whole"] and verdict["revisions"][0]["checked"] == 10_001
    hint = next(one for one in verdict["revisions"][0]["findings"] if "not in the vector index yet" in one["what"])
    assert hint["count"] == 3 and not hint["fault"]
    for word, path in (("wird5000", "Part 5000"), ("word4999", "Part 4999")):
        assert workspace.search(word, "bm25", 1)[0].heading_path[-1] == path


def test_identical_documents_live_and_die_apart(workspace: Workspace) -> None:
    for key in ("a.md", "b.md", "c.md"):
        workspace.write(key, "# Same\n\nThe same words. And more of them.\n")
    workspace.build()
    before = {row["key"]: without_vector(row) for row in rows(workspace)}
    assert len({row["chunk_id"] for row in before.values()}) == 3
    (workspace.docs / "b.md").unlink()
    workspace.write("c.md", "# Same\n\nThe same words. But then others.\n")
    report = workspace.build()
    assert report["work"]["embedded"] == 1
    after = {row["key"]: without_vector(row) for row in rows(workspace)}
    assert after.keys() == {"a.md", "c.md"} and after["a.md"] == before["a.md"]
    assert_equals_a_clean_build(workspace)
