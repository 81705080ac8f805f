"""The same engine on S3: what is built, followed, taken over and refused there. The server is a real one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from comparing import assert_equals_a_clean_build
from conftest import Workspace
from s3server import Server

from flows.maintenance import kept_revisions
from flows.searching import open_reader
from indexes.storage import storage as storage_module
from indexes.storage.lease import Lease
from indexes.storage.s3_objects import S3Objects
from indexes.storage.storage import Pointer, Storage
from parsers.errors import GateRefused, IndexBusy, StoreError

NOTHING = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)


@pytest.fixture
def remote(workspace: Workspace, s3: Server, tmp_path: Path) -> Workspace:
    """A place to build in whose index is on S3."""
    address = s3.address(f"tests/{tmp_path.name}")
    flags = {"index": address, "cache_dir": tmp_path / "cache"}
    workspace.write("guide.md", "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nIts seal wears out.\n")
    workspace.write("plain.txt", "ERR_TIMEOUT_42 means that the line is dead.\n")
    return replace(workspace, flags=flags)


def storage(workspace: Workspace) -> Storage:
    settings = workspace.settings()
    return Storage(settings.index, settings.cache_dir)


def test_an_index_on_s3_is_the_one_that_is_built_on_disk(remote: Workspace) -> None:
    first = remote.build()
    assert first["published"] and remote.build()["work"] == NOTHING
    remote.write("guide.md", "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nIts seal wears out. Change it.\n")
    (remote.docs / "plain.txt").rename(remote.docs / "moved.txt")
    report = remote.build()
    assert (report["work"]["fetched"], report["work"]["embedded"]) == (2, 2)  # an untitled one is renewed by its name
    assert_equals_a_clean_build(remote)
    assert kept_revisions.verify_index(remote.settings(), everything=True)["whole"]


def test_a_reader_elsewhere_follows_the_pointer(remote: Workspace, tmp_path: Path) -> None:
    remote.build()
    elsewhere = remote.settings(cache_dir=tmp_path / "elsewhere")
    reader = open_reader(elsewhere, look_every=0)
    pointer, searcher = reader.current()
    assert [hit.key for hit in searcher.search("ERR_TIMEOUT_42", "bm25")] == ["plain.txt"]
    remote.write("new.md", "# New\n\nThe quixotic handle.\n")
    assert reader.current()[1] is searcher, "nothing new, nothing opened"
    remote.build()
    moved, fresh = reader.current()
    assert moved.revision == pointer.revision + 1
    assert [hit.key for hit in fresh.search("quixotic", "bm25")] == ["new.md"]
    assert searcher.search("quixotic", "bm25") == [], "who holds a revision keeps it"
    remote.build(embedder="vowels")
    Path(remote.models["model_files"][0]).write_text("")  # the model of the next revision is not known here
    assert reader.current()[1] is fresh and reader.problem.startswith("models file")


def test_revisions_on_s3_share_the_segments_that_they_have_in_common(remote: Workspace) -> None:
    for number in range(30):
        remote.write(f"many/{number}.md", f"# Many {number}\n\nThe valve of line {number}.\n")
    remote.build()
    place = storage(remote)

    def files() -> set[str]:
        return {stat.key for stat in place.objects.stats("generations/") if "/lexical/files/" in stat.key}

    before = files()
    remote.write("one.md", "# One\n\nOne more.\n")
    remote.build()
    added = files() - before
    assert before <= files() and added
    sizes = {stat.key: stat.size for stat in place.objects.stats("generations/")}
    assert max(sizes[key] for key in before) not in {sizes[key] for key in added}, (
        "the large segment is not stored again"
    )
    remote.build(keep_revisions=1, grace_hours=0)
    remote.write("one.md", "# One\n\nOne more, edited.\n")
    remote.build(keep_revisions=1, grace_hours=0)
    assert len(place.revisions()) == 1 and added - files(), "files of revisions that were given up are removed"
    assert kept_revisions.verify_index(remote.settings())["whole"]


def test_a_cache_that_another_builder_filled_is_not_taken_for_what_is_published(remote: Workspace) -> None:
    """A builder that was killed leaves a BM25 folder under the number that another builder then publishes."""
    remote.build()
    place = storage(remote)
    pointer = place.pointer()
    assert pointer is not None
    left = place.lexical_draft(pointer.generation, pointer.revision + 1)
    left.mkdir(parents=True)
    (left / "meta.json").write_text("{}")
    remote.write("new.md", "# New\n\nThe quixotic handle.\n")
    other = replace(remote, flags=remote.flags | {"cache_dir": remote.docs.parent / "other"})
    other.build()
    assert [hit.key for hit in remote.search("quixotic", "bm25")] == ["new.md"]
    remote.write("newer.md", "# Newer\n\nThe sesquipedalian handle.\n")
    remote.build()
    assert_equals_a_clean_build(remote)


def test_one_builder_at_a_time_and_a_lost_one_publishes_nothing(
    remote: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_module, "LEASE_SECONDS", 1.5)
    remote.build()
    one, other = storage(remote), storage(remote)
    with one.lock():
        published = one.pointer()
        with pytest.raises(IndexBusy, match="another build holds it"), other.lock():
            pass
        lease: Any = one._lease
        lease._leaving.set()  # it stalls: nothing is renewed any more
        lease._thread.join()
        monkeypatch.setattr(type(lease), "check", lambda self: None)  # and does not know it
        lease.expired = True
        _wait_until_taken(other, monkeypatch)
        assert published is not None
        with pytest.raises(GateRefused, match="another builder has written the pointer"):
            one.publish(msgspec.structs.replace(published, revision=published.revision + 1))
    assert (pointer := storage(remote).pointer()) is not None and pointer.revision == published.revision
    assert remote.build()["work"] == NOTHING


def _wait_until_taken(place: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take over a lease that is not renewed, and give it back."""
    import time

    for _ in range(50):
        try:
            with place.lock():
                assert place._lease is not None and place._lease.taken_over
                return
        except IndexBusy:
            time.sleep(0.1)
    raise AssertionError("the lease was never free")


def test_a_first_build_that_stalls_is_barred_too(remote: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is published yet, there is a pointer all the same that an earlier builder does not know."""
    place = storage(remote)
    assert place.pointer() is None
    storage(remote)._bar_the_last_builder(2)
    with pytest.raises(GateRefused):
        place.publish(Pointer(generation="g1-x", revision=1))
    assert storage(remote).pointer() is None
    assert remote.build()["published"]


def test_a_store_that_ignores_conditions_is_refused(remote: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S3Objects, "create", S3Objects.put)
    with pytest.raises(StoreError, match="If-None-Match"):
        remote.build()


def test_wrong_credentials_are_named(remote: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="s3://") as refused:
        remote.build()
    assert "credentials" in refused.value.remedy.lower() or "AWS_" in refused.value.remedy


def test_a_lease_is_of_the_class_that_storage_uses(remote: Workspace) -> None:
    place = storage(remote)
    with place.lock():
        assert isinstance(place._lease, Lease) and place._lease.token >= 1
    assert place._lease is None


@pytest.mark.parametrize("number", [1, 2])
def test_a_damaged_list_of_bm25_files_blocks_no_repair(remote: Workspace, number: int) -> None:
    remote.build()
    remote.write("plain.txt", "ERR_TIMEOUT_43 means that the line is busy.\n")
    generation = remote.build()["generation"]
    key = f"generations/{generation}/lexical/{number:08d}.json"
    storage(remote).objects.put(key, b"\0nonsense")
    assert not kept_revisions.verify_index(remote.settings(), everything=True)["whole"]
    kept_revisions.repair_index(remote.settings(), str)
    assert kept_revisions.verify_index(remote.settings())["whole"]
    assert remote.search("ERR_TIMEOUT_43", "bm25")[0].key == "plain.txt"
    remote.write("more.md", "# More\n\nThe quixotic handle.\n")
    assert remote.build()["published"]
