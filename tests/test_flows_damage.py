"""Damage: each file of an index flipped, truncated and removed in turn, on disk and on S3.

``verify`` names every damaged file, a question ends in an answer or a clear error, and after ``repair`` all is whole.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from comparing import rows, without_vector
from conftest import Workspace
from s3server import Server
from test_flows_build import NOTHING, files

from flows.maintenance import kept_revisions
from flows.maintenance.status import index_status
from flows.opening import open_storage
from flows.searching import answer_query
from flows.settings import Mode
from indexes.storage.digests import decode_list
from indexes.storage.objects import Objects
from parsers.errors import GristmillError, StoreError, UsageError

MODES: Final[tuple[Mode, ...]] = ("hybrid", "dense", "bm25")
MENDED: Final = (  # kinds that the fast test has mended too
    "pointer.json",
    "files/#.json",
    "probes/#",
    "generations/g#-#/chunks.lance/data/#.lance",
    "generations/g#-#/documents.lance/_versions/#.manifest",
    "generations/g#-#/lexical/#/#.store",
    "memory/documents.lance/data/#.lance",
)
DOCUMENTS: Final = {
    "guide.md": "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nThe pump stops by itself.\n",
    "key.md": "# Key\n\nThe key hangs in bay 4.\n",
    "plain.txt": "No title here. The line is dead.\n",
}


def damaged(data: bytes, *, thorough: bool) -> Iterator[tuple[str, bytes | None]]:
    """A name and what is to stand in a file's place; None for nothing at all."""
    if data:
        places = sorted({0, 7, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 1} & {*range(len(data))})
        for place in places if thorough else [len(data) // 2]:
            yield f"flipped at {place}", data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
        if thorough:
            yield "truncated", data[: len(data) // 2]
            yield "emptied", b""
    if thorough:
        yield "removed", None


def built(workspace: Workspace) -> None:
    """Two revisions, with deleted rows, notes and an evaluation."""
    for key, text in DOCUMENTS.items():
        workspace.write(key, text)
    workspace.build(notes="extractive")
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 5 now.\n")
    workspace.build(notes="extractive")


def put(objects: Objects, key: str, data: bytes | None) -> None:
    if data is None:
        objects.delete([key])
    else:
        objects.put(key, data)


def answers(workspace: Workspace) -> dict[str, Any]:
    """What every reading command says; an error has to be a clear one."""
    settings = workspace.settings()
    asked: dict[str, Callable[[], Any]] = {
        mode: lambda mode=mode: answer_query(settings, "the key in bay 5", mode, 3, [], 0.0) for mode in MODES
    }
    asked |= {"status": lambda: index_status(settings), "revisions": lambda: kept_revisions.revisions(settings)}
    found = {}
    for name, command in asked.items():
        try:
            found[name] = command()
        except GristmillError as error:
            assert error.message and error.remedy, name
            found[name] = error
    return found


def named(workspace: Workspace) -> tuple[bool, str]:
    """Whether the index is whole, and all that ``verify`` says of it."""
    found = kept_revisions.verify_index(workspace.settings())
    said = [finding for one in found["revisions"] for finding in one["findings"] if finding["fault"]]
    return found["whole"], "\n".join(f"{one['what']} {one['examples']}" for one in said)


def needed(objects: Objects) -> set[str]:
    """Keys of the files that a kept revision consists of, or that name one."""
    found = {stat.key for place in ("revisions/", "files/", "pointer") for stat in objects.stats(place)}
    for stat in objects.stats("files/0"):
        data = objects.get(stat.key)
        assert data is not None
        found |= decode_list(data[0]).files.keys()
    return found


def restore(objects: Objects, whole: dict[str, bytes]) -> None:
    """Have an index hold these objects and no others."""
    objects.delete([stat.key for stat in list(objects.stats("")) if stat.key not in whole])
    for key, data in whole.items():
        if (found := objects.get(key)) is None or found[0] != data:
            objects.put(key, data)


def kind(key: str) -> str:
    """What files of an index are alike: the key without ids and numbers."""
    return re.sub(r"[0-9a-f]{8,}(-[0-9a-f]+)*|[0-9]+", "#", key)


def check(workspace: Workspace, *, thorough: bool) -> None:
    """Damage every file in turn, mend it, and put everything back; not thoroughly, one file of each kind is flipped."""
    settings = workspace.settings()
    objects = open_storage(settings).objects
    whole = {stat.key: found[0] for stat in objects.stats("") if (found := objects.get(stat.key)) is not None}
    must = needed(objects)
    meant = [without_vector(row) for row in rows(workspace)]
    assert len(must) > 20 and all("/lexical/" in one or one in whole for one in must)
    chosen = {(kind(key), key in must): key for key in whole if not key.startswith("build.")}
    for key in whole if thorough else chosen.values():
        if key.startswith("build."):
            continue
        data = whole[key]
        for what, bad in damaged(data, thorough=thorough):
            if key == "files/cache.json" and bad is None:
                continue  # an index of an earlier version has none, nor one whose build was killed at its end
            put(objects, key, bad)
            found, said = named(workspace)
            cached = key.startswith("memory/") and what == "removed"
            if key in must or (key.startswith("memory/") and "_versions/latest" not in key and not cached):
                assert not found and key in said, f"{key} {what}: {said}"
            answers(workspace)
            if thorough or kind(key) in MENDED:
                kept_revisions.repair_index(settings, str)
                assert named(workspace) == (True, ""), f"{key} {what}"
                assert [without_vector(row) for row in rows(workspace)] == meant, f"{key} {what}"
                assert answer_query(settings, "the key in bay 5", "hybrid", 1, [], 0.0)["hits"][0]["key"] == "key.md"
                restore(objects, whole)
                shutil.rmtree(workspace.settings().cache_dir, ignore_errors=True)
            else:
                put(objects, key, data)
    assert named(workspace) == (True, "")


def test_a_file_of_each_kind_on_disk_is_named_and_mended(workspace: Workspace) -> None:
    built(workspace)
    check(workspace, thorough=False)


def test_a_damaged_record_of_an_old_revision_blocks_nothing(workspace: Workspace) -> None:
    built(workspace)
    path = workspace.index / "revisions" / "00000001.json"
    path.write_bytes(path.read_bytes()[:99])
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 6 now.\n")
    assert workspace.build(notes="extractive")["published"]
    found = kept_revisions.revisions(workspace.settings())
    assert [one["revision"] for one in found["revisions"]] == [2, 3]
    assert [one["revision"] for one in found["damaged"]] == [1]
    with pytest.raises(UsageError, match="no revision 1"):
        kept_revisions.rollback(workspace.settings(), 1)
    whole, said = named(workspace)
    assert not whole and "older revision 1" in said and "revisions/00000001.json" in said
    assert kept_revisions.repair_index(workspace.settings(), str)["revisions_given_up"] == [1]
    assert named(workspace) == (True, "") and not kept_revisions.revisions(workspace.settings())["damaged"]


def test_where_nothing_can_be_made_from_what_is_left_repair_says_what_to_build_anew(workspace: Workspace) -> None:
    built(workspace)
    meant = [without_vector(row) for row in rows(workspace)]
    (generation,) = (workspace.index / "generations").iterdir()
    for name in ("chunks", "documents"):
        for data in (generation / f"{name}.lance" / "data").iterdir():
            data.write_bytes(b"")
    before = files(workspace.index / "generations")
    with pytest.raises(StoreError, match="neither the rows nor the catalog") as error:
        kept_revisions.repair_index(workspace.settings(), str)
    assert files(workspace.index / "generations") == before
    for name in ("generations", "revisions", "files", "pointer.json"):  # as the remedy has it
        assert f"`{name}`" in error.value.remedy
        path = workspace.index / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    work = workspace.build(notes="extractive")["work"]
    assert (work["parsed"], work["notes"], work["embedded"]) == (0, 0, 0)
    assert [without_vector(row) for row in rows(workspace)] == meant


def test_a_lost_catalog_costs_a_look_at_every_document_and_nothing_else(workspace: Workspace) -> None:
    built(workspace)
    (generation,) = (workspace.index / "generations").iterdir()
    shutil.rmtree(generation / "documents.lance")
    assert kept_revisions.repair_index(workspace.settings(), str)["repaired"]
    work = workspace.build(notes="extractive")["work"]
    assert work == NOTHING, "what the bytes of each listed version were is cached too"
    assert workspace.build(notes="extractive")["work"] == NOTHING
    assert named(workspace) == (True, "")


def test_a_build_over_a_damaged_cache_goes_on_without_it(workspace: Workspace) -> None:
    built(workspace)
    for name in ("documents", "chunks", "vectors-26"):
        for path in (workspace.index / "memory" / f"{name}.lance" / "data").iterdir():
            path.write_bytes(path.read_bytes()[:50])
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 6 now.\n")
    assert workspace.build(notes="extractive")["published"]
    assert named(workspace) == (True, "") and workspace.build(notes="extractive")["work"] == NOTHING
    assert answer_query(workspace.settings(), "the key in bay 6", "hybrid", 1, [], 0.0)["hits"][0]["key"] == "key.md"


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_each_file_on_disk_is_named_however_damaged_and_mended(workspace: Workspace) -> None:
    built(workspace)
    check(workspace, thorough=True)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_each_object_on_s3_is_named_however_damaged_and_mended(
    workspace: Workspace, s3: Server, tmp_path: Path
) -> None:
    remote = replace(workspace, flags={"index": s3.address(f"damage/{tmp_path.name}"), "cache_dir": tmp_path / "cache"})
    built(remote)
    check(remote, thorough=True)
