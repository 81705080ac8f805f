"""Looking after an index: going back, clearing away, erasing, checking, setting right, planning, swapping models."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lancedb
import msgspec
import pyarrow as pa
import pytest
import tantivy
from comparing import assert_equals_a_clean_build, catalog, rows, without_vector
from conftest import Workspace
from fakes import LettersRuntime
from test_flows_build import NOTHING, files
from typer.testing import CliRunner

from flows.build.build import BuildOptions, build_index
from flows.build.dry_run import plan_build
from flows.build.reindex import ReindexOptions, swap_embedder
from flows.cli import printing
from flows.cli.app import app
from flows.maintenance import kept_revisions
from flows.opening import published
from flows.searching import open_searcher
from indexes.cache.store import BytesCache
from indexes.revisions.generation import published_catalog
from indexes.storage.storage import Storage
from indexes.vectors import ChunkTable
from parsers.errors import GateRefused, IndexBusy, StoreError, UsageError

MARKER = "zanzibarquux"
GUIDE = (
    "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nThe pump stops by itself.\n\n## Storage\n\nKeep it dry and cold.\n"
)


def fill(workspace: Workspace) -> None:
    workspace.write("guide.md", GUIDE)
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 4.\n")
    workspace.write("plain.txt", "No title here. The line is dead.\n")


def quiet(message: str) -> None:
    assert message


def swap(workspace: Workspace, embedder: str, *, rechunk: bool = False) -> dict[str, Any]:
    return swap_embedder(
        workspace.settings(), ReindexOptions(embedder=embedder, rechunk=rechunk, quiet=True, accept=True)
    )


def numbers(workspace: Workspace) -> list[int]:
    return [one["revision"] for one in kept_revisions.revisions(workspace.settings())["revisions"]]


def texts(workspace: Workspace) -> set[str]:
    return {row["text"] for row in rows(workspace)}


def bare(workspace: Workspace) -> list[dict[str, Any]]:
    return [without_vector(row) for row in rows(workspace)]


# --- going back


def test_a_rollback_holds_until_it_is_released_and_the_next_build_goes_forward(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("later.md", "# Later\n\nThis one goes.\n")
    workspace.build()
    first = rows(workspace)
    workspace.write("guide.md", GUIDE.replace("slowly", "fast"))
    workspace.write("new.md", "# New\n\nThis one came.\n")
    (workspace.docs / "later.md").unlink()
    workspace.flags = {"labels": [{"match": "key*", "labels": ["secret"]}]}
    workspace.build()
    second = rows(workspace)
    reader = open_searcher(workspace.settings(), "bm25")

    went = kept_revisions.rollback(workspace.settings(), None)
    assert (went["revision"], went["content_of"]) == (3, 1) and "from revision 2 to revision 1" in went["held"]
    found = kept_revisions.revisions(workspace.settings())
    assert (found["published"], found["held"], numbers(workspace)) == (3, went["held"], [1, 2, 3])
    standing = {row["chunk_id"]: row for row in rows(workspace)}
    assert {row["key"] for row in standing.values()} == {"guide.md", "key.md", "plain.txt"}
    for row in first:
        if row["key"] in ("guide.md", "plain.txt"):
            assert standing[row["chunk_id"]] == row
    assert [row["labels"] for row in standing.values() if row["key"] == "key.md"] == [["secret"]]
    assert {hit.key for hit in workspace.search("key bay", filters=("label=secret",))} == {"key.md"}
    assert "later.md" not in {hit.key for hit in workspace.search("this one goes", "bm25")}
    assert [hit.key for hit in reader.search("this one came", "bm25", 1)] == ["new.md"], "who reads goes on reading"
    assert kept_revisions.verify_index(workspace.settings(), everything=True)["whole"]

    before = files(workspace.index)
    with pytest.raises(GateRefused, match="publishing is held: gone back") as refusal:
        workspace.build(force=True)
    assert "--release" in refusal.value.remedy
    with pytest.raises(GateRefused, match="publishing is held: gone back"):
        swap(workspace, "vowels")
    assert files(workspace.index) == before
    assert kept_revisions.rollback(workspace.settings(), 2)["held"] == "gone back from revision 3 to revision 2"
    assert rows(workspace) == second, "what came since comes back too"
    assert kept_revisions.rollback(workspace.settings(), 1)["revision"] == 5
    assert {row["chunk_id"]: row for row in rows(workspace)} == standing
    assert kept_revisions.release(workspace.settings())["held"] == ""
    with pytest.raises(UsageError, match="not held"):
        kept_revisions.release(workspace.settings())
    assert workspace.build()["revision"] == 6
    assert_equals_a_clean_build(workspace)
    assert workspace.build()["work"] == NOTHING


def test_a_rollback_says_which_deleted_documents_it_does_not_hold(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        workspace.write(f"{name}.md", f"# {name}\n\nThe pump of {name} stops.\n")
    workspace.build()
    for name in ("a", "b"):
        (workspace.docs / f"{name}.md").unlink()
    workspace.write("d.md", "# d\n\nNew.\n")
    workspace.build(allow_deletes=True)
    went = kept_revisions.rollback(workspace.settings(), 1)
    assert went["deleted_since"] == ["a.md", "b.md"]
    printing.print_rolled_back(went)
    shown = capsys.readouterr().out
    assert "Readers see what revision 1 held, without 2 documents deleted since, as revision 3." in shown
    assert "deleted    a.md, b.md" in shown
    assert {hit.key for hit in workspace.search("pump", "bm25")} == {"c.md"}


def test_a_rollback_to_what_is_not_there_names_what_is(workspace: Workspace) -> None:
    with pytest.raises(StoreError, match="nothing is published"):
        kept_revisions.rollback(workspace.settings(), None)
    fill(workspace)
    workspace.build()
    before = files(workspace.index)
    for number, says in ((None, "no revision before this one"), (1, "no revision 1"), (7, "no revision 7")):
        with pytest.raises(UsageError, match=says) as refusal:
            kept_revisions.rollback(workspace.settings(), number)
        assert "none" in refusal.value.remedy
    with Storage(str(workspace.index)).lock(), pytest.raises(IndexBusy):
        kept_revisions.rollback(workspace.settings(), None)
    assert files(workspace.index) == before


def test_a_model_swap_cuts_again_where_it_must_and_can_be_gone_back_from(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write(
        "long.txt", "It is about pumps, seals, valves, hoses, pipes and the people who look after them. " * 3
    )
    workspace.build()
    before, standing = bare(workspace), files(workspace.index)
    with pytest.raises(UsageError, match="over the 32 tokens that vowels reads") as refusal:
        swap(workspace, "vowels")
    assert "--rechunk" in refusal.value.remedy
    with pytest.raises(UsageError, match="made with letters already"):
        swap(workspace, "letters")
    assert files(workspace.index) == standing
    report = swap(workspace, "vowels", rechunk=True)
    assert report["published"] and report["truncated"] == 0
    assert report["work"]["fetched"] == report["work"]["parsed"] == 0 < report["work"]["chunked"]
    went = kept_revisions.rollback(workspace.settings(), 1)
    assert went["generation"] == published(workspace.settings())[1].generation != report["generation"]
    assert bare(workspace) == before and workspace.search("pump", "dense")
    kept_revisions.rollback(workspace.settings(), 2)
    assert published(workspace.settings())[1].generation == report["generation"]
    kept_revisions.release(workspace.settings())
    workspace.flags = {"embedder": "vowels", "ruler": "vowels"}
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


# --- clearing away


def test_a_sweep_gives_up_old_revisions_and_forgets_what_only_they_were_made_of(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace)
    workspace.write("gone.md", "# Gone\n\nThis one goes early.\n")
    workspace.write("late.md", "# Late\n\nThis one goes late.\n")
    workspace.build()
    storage, first = published(workspace.settings())
    memory = BytesCache(storage.cache(), "documents")
    named = {row.key: row.document for row in catalog_rows(workspace)}
    for key in ("gone.md", "late.md"):
        (workspace.docs / key).unlink()
        workspace.build()
    assert memory.known(named.values()) == set(named.values())

    generation = workspace.index / "generations" / first.generation
    for left in (generation.with_name("g9-00000000") / "chunks.lance", generation / "lexical" / "00000099"):
        left.mkdir(parents=True)
        (left / "half").write_bytes(b"half a store")
    (workspace.index / "scratch").mkdir(exist_ok=True)
    (workspace.index / "scratch" / "bytes").write_bytes(b"half a file")
    verdict = kept_revisions.verify_index(workspace.settings())
    hints = {one["what"]: one for one in verdict["revisions"][0]["findings"]}
    assert verdict["whole"] and not any(one["fault"] for one in hints.values())
    assert hints["stores were left by builds that did not end"]["count"] == 2
    assert hints["bytes of passing files were left by a build that did not end"]["count"] == 11

    storage.keep_probes("0" * 32, b"of a model that was tried once")
    assert kept_revisions.sweep(workspace.settings())["forgotten"]["probes"] == 0, "young"
    time.sleep(0.1)
    workspace.flags = {"keep_revisions": 2, "grace_hours": 0}
    swept = kept_revisions.sweep(workspace.settings())
    assert swept["revisions_given_up"] == [1] and numbers(workspace) == [2, 3]
    assert swept["forgotten"]["probes"] == 1 and storage.probes("0" * 32) is None
    assert storage.probes(first.embedder_fingerprint) is not None
    assert swept["forgotten"]["documents"] == swept["forgotten"]["chunks"] == 1
    with pytest.raises(StoreError, match="cannot open the table"):
        ChunkTable.open(storage.tables(first.generation), first.chunks_version)
    memory = BytesCache(storage.cache(), "documents")
    assert memory.known(named.values()) == {name for key, name in named.items() if key != "gone.md"}
    assert kept_revisions.verify_index(workspace.settings(), everything=True) | {"revisions": []} == {
        "index": str(workspace.index),
        "whole": True,
        "revisions": [],
    }
    assert not kept_revisions.verify_index(workspace.settings())["revisions"][0]["findings"]
    assert not (generation / "lexical" / "00000001").exists()
    assert workspace.build()["work"] == NOTHING
    kept_revisions.rollback(workspace.settings(), 2)
    assert kept_revisions.verify_index(workspace.settings(), everything=True)["whole"]
    assert kept_revisions.sweep(workspace.settings())["revisions_given_up"] == [2]


def test_a_sweep_spares_what_is_young(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    (workspace.docs / "key.md").unlink()
    workspace.build()
    swept = kept_revisions.sweep(workspace.settings(keep_revisions=1))
    assert swept["revisions_given_up"] == [] and not any(swept["forgotten"].values())
    assert numbers(workspace) == [1, 2]


def catalog_rows(workspace: Workspace) -> list[Any]:
    return list(published_catalog(*published(workspace.settings())).rows())


def holding(workspace: Workspace, marker: str) -> list[str]:
    """Everything below the index's folder that holds a word: raw bytes, values in the cache, terms of BM25."""
    paths = [path for path in workspace.index.rglob("*") if path.is_file()]
    found = [str(path) for path in paths if marker.encode() in path.read_bytes()]
    db = lancedb.connect(str(workspace.index / "memory"))
    for name in db.list_tables(limit=100).tables:
        if not name.startswith("vectors-"):
            values = db.open_table(name).to_arrow()["value"].to_pylist()
            found += [name for value in values if marker.encode() in expanded(value)]
    for path in paths:
        if path.name == "meta.json":
            searcher = tantivy.Index.open(str(path.parent)).searcher()
            for field in ("body", "headings", "notes", "key"):
                found += [f"lexical {path}" for _ in searcher.terms_with_prefix(field, marker)]
    return found


def expanded(value: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(value), "zstd") as stream:
        return bytes(stream.read())


def test_a_purge_leaves_a_word_in_no_file(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    untouched = rows(workspace)
    workspace.write(f"{MARKER}.md", f"# Secret {MARKER}\n\nThe word is {MARKER}.\n\n## More\n\nAgain {MARKER} there.\n")
    workspace.build(notes="extractive")
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 5 now.\n")
    workspace.build()
    (workspace.docs / f"{MARKER}.md").unlink()
    workspace.build()
    records = workspace.index / "evaluations"
    records.mkdir(exist_ok=True)
    (records / "20260101-1.json").write_text(json.dumps({"key": f"{MARKER}.md"}))
    assert any(name in ("documents", "chunks") for name in holding(workspace, MARKER))
    assert any("lexical" in name for name in holding(workspace, MARKER))
    assert any(".lance" in name for name in holding(workspace, MARKER))
    said = kept_revisions.purge(workspace.settings(), [f"{MARKER}.md"])
    assert holding(workspace, MARKER) == []
    assert (said["revision"], said["revisions_given_up"], said["records_removed"]) == (5, [1, 2, 3, 4], 1)
    assert said["forgotten"]["documents"] == 2, "the marked document, and the old text of another one"
    assert numbers(workspace) == [5]
    assert {row["key"] for row in rows(workspace)} == {row["key"] for row in untouched}
    assert {hit.key for hit in workspace.search("bay 5")} >= {"key.md"}
    assert kept_revisions.verify_index(workspace.settings())["whole"]
    assert_equals_a_clean_build(workspace)
    assert workspace.build()["work"] == NOTHING


def test_a_purge_reaches_a_generation_whose_last_revision_no_longer_names_the_document(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("marked.md", f"# Secret\n\nThe word is {MARKER}.\n")
    workspace.build()
    (workspace.docs / "marked.md").unlink()
    workspace.build()
    workspace.build(embedder="vowels")
    assert any("generations/g1" in name for name in holding(workspace, MARKER)), "a deleted row stays in its file"
    kept_revisions.purge(workspace.settings(embedder="vowels"), ["marked.md"])
    assert holding(workspace, MARKER) == [] and numbers(workspace) == [4]
    assert kept_revisions.verify_index(workspace.settings(embedder="vowels"))["whole"]


def test_a_purge_of_all_there_is_leaves_an_empty_index(workspace: Workspace) -> None:
    workspace.write("only.md", f"# Only\n\nThe word is {MARKER}.\n")
    workspace.build()
    kept_revisions.purge(workspace.settings(), ["only.md"])
    assert holding(workspace, MARKER) == [] and rows(workspace) == []
    assert workspace.search("word") == [] and kept_revisions.verify_index(workspace.settings())["whole"]
    assert workspace.build()["documents"]["added"] == 1, "it still is in the source"
    assert_equals_a_clean_build(workspace)


# --- checking and setting right

Damage = Callable[[Any], None]


@pytest.fixture
def built(workspace: Workspace) -> Iterator[tuple[Workspace, list[dict[str, Any]]]]:
    """A built index, and the rows that it must have again."""
    fill(workspace)
    workspace.build()
    verdict = kept_revisions.verify_index(workspace.settings())
    assert verdict["whole"] and verdict["revisions"][0]["findings"] == []
    assert verdict["revisions"][0]["checked"] == len(rows(workspace)) == 5
    assert kept_revisions.repair_index(workspace.settings(), quiet)["repaired"] is False
    yield workspace, rows(workspace)


def damage(workspace: Workspace, name: str, change: Damage) -> None:
    """Change a table of the published revision, as a stray hand would, and have the pointer name what it left."""
    storage, pointer = published(workspace.settings())
    table = storage.tables(pointer.generation).open_table(name)
    change(table)
    version = {"chunks": "chunks_version", "documents": "documents_version"}[name]
    storage.publish(msgspec.structs.replace(pointer, **{version: table.version}))


def findings(workspace: Workspace) -> dict[str, dict[str, Any]]:
    verdict = kept_revisions.verify_index(workspace.settings())
    found = {one["what"]: one for one in verdict["revisions"][0]["findings"]}
    assert verdict["whole"] == (not any(one["fault"] for one in found.values()))
    return found


def assert_set_right(workspace: Workspace, meant: list[dict[str, Any]]) -> dict[str, Any]:
    """Repair calls no model where everything is remembered, and gives the rows of a clean build."""
    made = len(LettersRuntime.batches)
    done = kept_revisions.repair_index(workspace.settings(), quiet)
    assert done["repaired"] and done["removed"] == 0
    assert len(LettersRuntime.batches) == made
    assert findings(workspace) == {} and rows(workspace) == meant
    return done


def one_row(table: Any, key: str = "key.md") -> pa.Table:
    return table.to_arrow().filter(pa.compute.equal(table.to_arrow()["key"], key)).slice(0, 1)


def foreign(table: Any) -> pa.Table:
    row = one_row(table).to_pylist()[0] | {"chunk_id": "f" * 32, "document_id": "e" * 32}
    return pa.Table.from_pylist([row], schema=table.schema)


def long_vector(table: Any) -> None:
    table.update(where="key = 'key.md'", values={"vector": [2.0] * 26})


def other_vector(table: Any) -> None:
    table.update(where="key = 'key.md'", values={"vector": [1.0] + [0.0] * 25})


DAMAGES: dict[str, tuple[str, Damage]] = {
    "documents have other rows than the catalog says": ("chunks", lambda table: table.delete("key = 'key.md'")),
    "chunk ids stand twice in the table": ("chunks", lambda table: table.add(one_row(table))),
    "rows are not what their digests say": (
        "chunks",
        lambda table: table.update(where="key = 'key.md'", values={"text": "Forged."}),
    ),
    "rows have no proper vector": ("chunks", long_vector),
    "rows have another vector than was made of their text": ("chunks", other_vector),
    "rows have vectors of runtimes that this generation does not know": (
        "chunks",
        lambda table: table.update(where="key = 'key.md'", values={"provenance": "0" * 64}),
    ),
    "documents have rows and are not in the catalog": ("chunks", lambda table: table.add(foreign(table))),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_table_is_named_and_set_right(built: tuple[Workspace, list[dict[str, Any]]], what: str) -> None:
    workspace, meant = built
    damage(workspace, *DAMAGES[what])
    found = findings(workspace)
    named = next(one for name, one in found.items() if name.startswith(what))
    assert named["fault"] and named["count"] == 1
    if named["examples"]:
        own = {row["chunk_id"] for row in meant if row["key"] == "key.md"} | {"key.md", "e" * 32}
        assert named["examples"][0] in own
    assert_set_right(workspace, meant)


def test_a_damaged_bm25_index_is_named_and_set_right(built: tuple[Workspace, list[dict[str, Any]]]) -> None:
    workspace, meant = built
    storage, pointer = published(workspace.settings())
    index = tantivy.Index.open(str(storage.lexical(pointer.generation, pointer.revision)))
    writer = index.writer(num_threads=1)
    writer.delete_documents_by_term("chunk_id", meant[0]["chunk_id"])
    writer.commit()
    writer.wait_merging_threads()
    found = findings(workspace)["rows of the BM25 index are not those of the vector table"]
    assert found["fault"] and (found["count"], found["examples"]) == (1, [meant[0]["chunk_id"]])
    assert assert_set_right(workspace, meant)["renewed"] == 0

    storage, pointer = published(workspace.settings())
    shutil.rmtree(storage.lexical(pointer.generation, pointer.revision))
    assert any(name.startswith("the BM25 index cannot be read") for name in findings(workspace))
    assert_set_right(workspace, meant)
    assert {hit.key for hit in workspace.search("bay 4", "bm25")} == {"key.md"}
    assert workspace.build()["work"] == NOTHING


def test_what_the_memory_has_lost_is_taken_out_and_comes_back_with_the_next_build(
    built: tuple[Workspace, list[dict[str, Any]]],
) -> None:
    workspace, _ = built
    lost = next(row.document for row in catalog_rows(workspace) if row.key == "key.md")
    BytesCache(Storage(str(workspace.index)).cache(), "documents").forget([lost])
    hint = next(one for name, one in findings(workspace).items() if "no longer cached" in name)
    assert not hint["fault"] and hint["examples"] == ["key.md"]
    with pytest.raises(StoreError, match=r"1 documents are no longer cached, the first is key\.md"):
        swap(workspace, "vowels")
    damage(workspace, *DAMAGES["rows are not what their digests say"])
    done = kept_revisions.repair_index(workspace.settings(), quiet)
    assert (done["removed"], done["renewed"]) == (1, 0)
    assert {row["key"] for row in rows(workspace)} == {"guide.md", "plain.txt"} and findings(workspace) == {}
    assert catalog(workspace)["key.md"][1] == "failed"
    report = workspace.build()
    assert report["work"]["parsed"] == 1 and report["failures"] == []
    assert_equals_a_clean_build(workspace)


def test_a_repair_needs_the_settings_of_the_build(built: tuple[Workspace, list[dict[str, Any]]]) -> None:
    workspace, _ = built
    damage(workspace, *DAMAGES["rows are not what their digests say"])
    with pytest.raises(UsageError, match="made with letters, the settings name vowels"):
        kept_revisions.repair_index(workspace.settings(embedder="vowels"), quiet)


# --- plans


def test_a_plan_writes_nothing_and_says_what_the_build_then_does_at_most(workspace: Workspace) -> None:
    fill(workspace)
    none = dict.fromkeys(("listed", "unchanged", "add", "look", "renew", "retry", "reread", "remove", "skipped"), 0)
    planned = plan_build(workspace.settings())
    assert not workspace.index.exists()
    assert planned["documents"] == none | {"listed": 3, "add": 3}
    assert planned["fits_a_prompt"] and 0 < planned["tokens"] < 200
    assert [step["do"] for step in planned["steps"]] == ["add"] * 3
    workspace.build()
    assert plan_build(workspace.settings())["work"] == NOTHING
    workspace.write("guide.md", GUIDE.replace("slowly", "fast"))
    workspace.write("new.md", "# New\n\nThis one came.\n")
    (workspace.docs / "plain.txt").unlink()
    (workspace.docs / "key.md").touch()
    before = files(workspace.index)
    planned = plan_build(workspace.settings())
    assert files(workspace.index) == before
    assert planned["documents"] == none | {"listed": 3, "add": 1, "look": 2, "remove": 1}
    assert planned["seconds"]["total"] >= max(value for name, value in planned["seconds"].items() if name != "total")
    work = workspace.build()["work"]
    assert work["embedded"] > 0 and all(count <= planned["work"][name] for name, count in work.items())

    workspace.write("copy.md", (workspace.docs / "guide.md").read_bytes())
    planned = plan_build(workspace.settings())
    work = workspace.build()["work"]
    assert work["rows_written"] == 3 and all(count <= planned["work"][name] for name, count in work.items())

    renewed: dict[str, Any] = {"labels": [{"match": "*", "labels": ["all"]}]}
    planned = plan_build(workspace.settings(**renewed))
    assert (planned["documents"]["renew"], planned["documents"]["look"], planned["work"]["fetched"]) == (4, 0, 0)
    assert planned["work"]["rows_written"] == workspace.build(**renewed)["work"]["rows_written"]


def test_a_plan_reckons_with_a_document_that_has_grown(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    workspace.write("key.md", "# Key\n\n" + "".join(f"The key number {n} hangs in the bay {n}.\n\n" for n in range(60)))
    planned = plan_build(workspace.settings())
    assert workspace.build()["work"]["embedded"] <= planned["work"]["embedded"]


def test_a_kept_plan_is_built_or_refused(workspace: Workspace) -> None:
    fill(workspace)
    kept = workspace.docs.parent / "plan.jsonl"

    def replay(**flags: Any) -> dict[str, Any]:
        return build_index(workspace.settings(**flags), BuildOptions(quiet=True, replay=kept))

    with pytest.raises(UsageError, match="cannot be read"):
        replay()
    assert plan_build(workspace.settings(), keep=kept)["kept"] == str(kept)
    with pytest.raises(UsageError, match="other settings"):
        replay(note_reserve=9)
    assert replay()["documents"]["added"] == 3
    with pytest.raises(GateRefused, match="another revision"):
        replay()
    for key in ("guide.md", "key.md", "plain.txt"):
        workspace.write(key, f"# {key}\n\nIt says something else.\n")
    plan_build(workspace.settings(), keep=kept)
    time.sleep(0.01)
    workspace.write("key.md", "# Key\n\nIt moved once more.\n")
    workspace.write("more.md", "# More\n\nIt came.\n")
    with pytest.raises(GateRefused, match=r"2 documents have moved since, the first is key\.md"):
        replay()
    whole = kept.read_bytes()
    for forged, says in ((whole.replace(b"plain", b"blain"), "was changed since"), (b"{}\n" + whole, "is no plan")):
        kept.write_bytes(forged)
        with pytest.raises(UsageError, match=says):
            replay()
    assert texts(workspace) >= {"No title here. The line is dead."}, "nothing of it was built"


# --- no pickles


def test_neither_the_index_nor_prefect_holds_a_pickle(workspace: Workspace, prefect: None, tmp_path: Path) -> None:
    from prefect import flow
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, PREFECT_RESULTS_PERSIST_BY_DEFAULT, temporary_settings

    @flow
    def persisting() -> int:
        return 1

    results = tmp_path / "results"
    workspace.orchestrator = "prefect"
    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: results, PREFECT_RESULTS_PERSIST_BY_DEFAULT: True}):
        fill(workspace)
        workspace.build(notes="extractive")
        (workspace.docs / "key.md").unlink()
        workspace.build()
        swap(workspace, "vowels", rechunk=True)
        assert not results.exists() or not any(results.rglob("*"))
        persisting()
        assert any(path.is_file() for path in results.rglob("*")), "others' flows would leave their results there"
    for path in workspace.index.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not (data[:1] == b"\x80" and data[1:2] in b"\x02\x03\x04\x05" and data.endswith(b".")), path
            assert path.suffix not in (".pkl", ".pickle"), path


# --- the commands


def test_every_command_says_it_in_json(workspace: Workspace) -> None:
    fill(workspace)
    models, folder = workspace.models["model_files"][0], workspace.models["models_dir"]
    Path("gristmill.toml").write_text(
        f'embedder = "letters"\nruler = "letters"\nnote_reserve = 8\nsource = "{workspace.docs}"\n'
        f'index = "{workspace.index}"\nmodel_files = ["{models}"]\nmodels_dir = "{folder}"\n'
    )

    def run(*arguments: str, status: int = 0) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code == status, done.output
        return json.loads(done.stdout.splitlines()[-1])

    assert run("build", "--plan", "--keep", "plan.jsonl")["documents"]["add"] == 3
    assert run("build", "--replay", "plan.jsonl", "--quiet")["published"]
    assert run("build", "--replay", "plan.jsonl", "--quiet", status=4)["exit_status"] == 4
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 5.\n")
    run("build", "--quiet")
    assert run("rollback")["content_of"] == 1
    assert run("build", "--quiet", status=4)["exit_status"] == 4
    assert run("rollback", "--release")["held"] == ""
    assert [one["revision"] for one in run("revisions")["revisions"]] == [1, 2, 3]
    assert run("verify", "--all")["whole"]
    damage(workspace, *DAMAGES["rows are not what their digests say"])
    assert not run("verify", status=4)["whole"]
    assert run("repair")["repaired"]
    assert run("rollback", "77", status=2)["exit_status"] == 2
    assert run("sweep")["revisions_given_up"] == []
    assert run("sweep", "--purge", "key.md")["key"] == "key.md"
    assert run("reindex", "--embedder", "vowels", "--rechunk", "--accept", "--quiet")["published"]
