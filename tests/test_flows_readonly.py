"""Reading an index needs the right to read it, and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workspace

from flows.maintenance import kept_revisions
from flows.maintenance.status import index_status
from flows.opening import open_storage, published
from flows.searching import answer_query
from indexes.revisions.generation import published_catalog
from indexes.storage.objects import FolderObjects
from indexes.storage.storage import Storage
from parsers.errors import StoreError


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def allow(folder: Path, *, write: bool) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o755 if path.is_dir() else 0o644) if write else (0o555 if path.is_dir() else 0o444))


@pytest.fixture
def built(workspace: Workspace) -> Workspace:
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 4.\n")
    workspace.write("guide.md", "# Guide\n\nOpen the valve slowly.\n")
    workspace.build()
    workspace.write("guide.md", "# Guide\n\nOpen the valve fast.\n")
    workspace.build()
    return workspace


def test_who_may_only_read_gets_every_answer_and_clear_refusals_of_the_rest(built: Workspace, tmp_path: Path) -> None:
    golden = tmp_path / "golden.jsonl"
    golden.write_text(
        json.dumps({"id": "q1", "question": "the key", "spans": [{"doc": "key.md", "quote": "in bay 4"}]}) + "\n"
    )
    given = {
        "source": str(built.docs),
        "index": str(built.index),
        "embedder": "letters",
        "ruler": "letters",
        "model_files": [str(one) for one in built.models["model_files"]],
        "models_dir": str(built.models["models_dir"]),
        "cache_dir": str(tmp_path / "elsewhere"),
        "golden": str(golden),
        "note_reserve": 8,
    }
    before = files(built.index)
    allow(built.index, write=False)
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "reading_child.py"), json.dumps(given)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        )
    finally:
        allow(built.index, write=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert [found[mode] for mode in ("hybrid", "dense", "bm25")] == ["key.md"] * 3, found
    assert (found["status"], found["revisions"]) == (2, 2)
    assert found["verify"]["whole"] and not any(one["findings"] for one in found["verify"]["revisions"])
    assert found["evaluate"]["record"] == "" and "Permission denied" in found["evaluate"]["not_kept"]
    for name in ("sweep", "repair", "rollback", "probes"):
        assert "Permission denied" in found[name]["error"] and "writable" in found[name]["remedy"], name
    assert files(built.index) == before


def test_reading_calls_nothing_that_writes(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise AssertionError("a reader writes")

    for name in ("put", "create", "replace", "delete", "upload"):
        monkeypatch.setattr(FolderObjects, name, refuses)
    before = files(built.index)
    for mode in ("hybrid", "dense", "bm25"):
        assert answer_query(built.settings(), "the key", mode, 1, [], 0.0, expand=True)["hits"]
    index_status(built.settings())
    kept_revisions.revisions(built.settings())
    assert kept_revisions.verify_index(built.settings(), everything=True)["whole"]
    assert files(built.index) == before


@pytest.mark.parametrize("missing", ["documents.lance", "chunks.lance", "lexical", ""])
def test_a_reader_makes_no_part_that_is_missing(built: Workspace, missing: str) -> None:
    storage, pointer = published(built.settings())
    place = built.index / "generations" / pointer.generation / missing
    place.rename(built.index.parent / "away")
    before = files(built.index)
    for again in (storage, Storage(str(built.index))):
        with pytest.raises(StoreError, match="is missing") as error:
            published_catalog(again, pointer)
        assert "gristmill repair" in error.value.remedy
    assert not kept_revisions.verify_index(built.settings())["whole"]
    assert files(built.index) == before


def test_a_reader_does_not_make_the_place_of_the_cache(built: Workspace) -> None:
    (built.index / "memory").rename(built.index.parent / "away")
    assert answer_query(built.settings(), "the key", "bm25", 1, [], 0.0, expand=True)["hits"][0]["section"] is None
    assert not (built.index / "memory").exists()
    assert open_storage(built.settings()).cache().list_tables(limit=9).tables == []
