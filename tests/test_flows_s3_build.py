"""Builds from an S3 bucket: what changed there, labels that its tags state, outages. The server is a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import s3server
from comparing import assert_equals_a_clean_build, rows
from conftest import Workspace
from flaky_proxy import proxied
from s3server import BUCKET, Server

from flows.build import rereading
from flows.build.build import BuildOptions, build_index
from flows.maintenance import kept_revisions
from flows.maintenance.kept_revisions import verify_index
from flows.sources.s3 import S3Source
from parsers.errors import SourceError

NOTHING = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)


class Store:
    """A prefix of the bucket, and the index of what is in it."""

    def __init__(self, workspace: Workspace, server: Server, name: str) -> None:
        self.workspace, self.server, self.prefix = workspace, server, f"store/{name}"
        self.client = s3server.client(server)
        workspace.flags["source"] = server.address(self.prefix)

    def put(self, key: str, text: str, **more: Any) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=text.encode(), **more)

    def tag(self, key: str, labels: str) -> None:
        tags = {"TagSet": [{"Key": "labels", "Value": labels}]}
        self.client.put_object_tagging(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Tagging=tags)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")

    def build(self, *keys: str, **options: Any) -> dict[str, Any]:
        settings = self.workspace.settings()
        return build_index(settings, BuildOptions(quiet=True, only_keys=keys or None, **options))

    def labels(self) -> dict[str, list[str]]:
        return {row["key"]: row["labels"] for row in rows(self.workspace)}


@pytest.fixture
def store(workspace: Workspace, s3: Server, tmp_path: Path) -> Store:
    made = Store(workspace, s3, tmp_path.name)
    made.put("guide.md", "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nIts seal wears out.\n")
    made.put("plain.txt", "ERR_TIMEOUT_42 means that the line is dead.\n", Metadata={"labels": "ops, line"})
    made.put("a/deep.md", "# Deep\n\nThe gauge is cold.\n")
    made.put("a/deep.md.metadata.json", json.dumps({"metadataAttributes": {"labels": ["hr"]}}))
    return made


def test_a_bucket_is_built_from_and_only_what_changed_is_read(store: Store) -> None:
    first = store.build()
    assert first["published"] and first["documents"]["added"] == 3 and first["documents"]["failed"] == 0
    assert store.labels() == {"guide.md": [], "plain.txt": ["line", "ops"], "a/deep.md": ["hr"]}
    assert store.build()["work"] == NOTHING
    store.put("guide.md", "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nIts seal leaks.\n")
    store.put("new.md", "# New\n\nThe quixotic handle.\n")
    store.delete("plain.txt")
    report = store.build()
    counts = [report["documents"][name] for name in ("added", "changed", "removed")]
    assert counts == [1, 1, 1] and report["work"]["fetched"] == 2
    assert_equals_a_clean_build(store.workspace)
    assert verify_index(store.workspace.settings())["whole"]


def test_a_changed_sidecar_relabels_and_makes_no_vector(store: Store) -> None:
    store.build()
    store.put("a/deep.md.metadata.json", json.dumps({"metadataAttributes": {"labels": ["finance"]}}))
    report = store.build()
    assert report["published"] and report["work"]["embedded"] == 0 and report["work"]["parsed"] == 0
    assert store.labels()["a/deep.md"] == ["finance"]
    store.delete("a/deep.md.metadata.json")
    store.build()
    assert store.labels()["a/deep.md"] == []
    assert_equals_a_clean_build(store.workspace)


def test_a_changed_tag_is_in_force_after_a_build_of_its_key(store: Store) -> None:
    store.build()
    store.tag("guide.md", "hr secret")
    assert store.build()["work"] == NOTHING, "no listing shows a tag"
    report = store.build("guide.md")
    assert report["published"] and report["work"]["fetched"] == 0 and report["work"]["embedded"] == 0
    assert store.labels()["guide.md"] == ["hr", "secret"]
    assert store.workspace.search("valve", "bm25", filters=("label!=hr",)) == []
    store.tag("guide.md", "public")
    store.build("guide.md")
    assert store.labels()["guide.md"] == ["public"]


def test_tags_are_read_again_by_turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.build()
    store.tag("guide.md", "hr")
    clock = rereading.time.time() + 40 * rereading.DAY
    monkeypatch.setattr(rereading.time, "time", lambda: clock)
    report = store.build()
    assert report["published"] and report["work"]["fetched"] == 0
    assert store.labels()["guide.md"] == ["hr"]
    assert report["oldest_read_days"] < 1, "all of them were read again just now"


def test_a_label_of_the_settings_outlives_the_same_tag(store: Store) -> None:
    store.workspace.flags["labels"] = [{"match": "*.md", "labels": ["hr"]}]
    store.tag("guide.md", "hr")
    store.build()
    store.tag("guide.md", "public")
    store.build("guide.md")
    assert store.labels()["guide.md"] == ["hr", "public"]
    store.put("guide.md", "# Guide\n\nAnother text.\n")
    store.build()
    assert store.labels()["guide.md"] == ["hr"]


def test_a_tag_set_since_holds_after_a_rollback(store: Store) -> None:
    store.workspace.flags["labels"] = [{"match": "*.md", "labels": ["hr"]}]
    store.build()
    store.tag("guide.md", "hr")
    store.build("guide.md")
    store.put("new.md", "# New\n\nThe quixotic handle.\n")
    store.build()
    settings = store.workspace.settings()
    kept_revisions.rollback(settings, 1)
    kept_revisions.release(settings)
    store.workspace.flags["labels"] = []
    store.build()
    assert store.labels()["guide.md"] == ["hr"], "the tag still says so"


def test_labels_hold_through_changed_settings_and_a_swap(store: Store) -> None:
    from flows.build.reindex import ReindexOptions, swap_embedder

    store.tag("guide.md", "hr")
    store.build()
    store.workspace.flags["labels"] = [{"match": "*.md", "labels": ["docs"]}]
    store.build()
    wanted = {"guide.md": ["docs", "hr"], "plain.txt": ["line", "ops"], "a/deep.md": ["docs", "hr"]}
    assert store.labels() == wanted
    store.workspace.flags |= {"embedder": "vowels"}
    options = ReindexOptions(embedder="vowels", rechunk=True, quiet=True, accept=True)
    swap_embedder(store.workspace.settings(), options)
    assert store.labels() == wanted


def test_a_document_whose_tags_cannot_be_read_stays_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.tag("guide.md", "hr")
    store.build()
    with monkeypatch.context() as patch:
        patch.setattr(S3Source, "labels", lambda self, key, version: _raise(PermissionError(13, "no tags for you")))
        report = store.build("guide.md")
    assert store.labels()["guide.md"] == ["hr"]
    with monkeypatch.context() as patch:
        patch.setattr(S3Source, "fetch", lambda self, key, version: _raise(OSError(5, "no answer")))
        store.put("guide.md", "# Guide\n\nAnother text.\n")
        store.build()
    assert store.labels()["guide.md"] == ["hr"]
    assert [one["reason"] for one in report["failures"]] == ["its labels cannot be read: no tags for you"]


def _raise(error: Exception) -> Any:
    raise error


def test_an_object_overwritten_while_it_is_listed_is_read_as_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = S3Source.fetch

    def overwritten(self: S3Source, key: str, version: str = "") -> Any:
        if key == "guide.md":
            store.put("guide.md", "# Guide\n\nOverwritten meanwhile.\n")
        return real(self, key, version)

    with monkeypatch.context() as patch:
        patch.setattr(S3Source, "fetch", overwritten)
        store.build()
    assert store.workspace.search("overwritten", "bm25")[0].key == "guide.md"
    assert store.build()["work"]["embedded"] == 0


def test_throttling_is_waited_out_and_an_outage_publishes_nothing(
    store: Store, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.build()
    store.put("new.md", "# New\n\nThe quixotic handle.\n")
    with proxied(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        proxy.fail("busy", times=2)
        assert store.build()["documents"]["added"] == 1
        store.put("newer.md", "# Newer\n\nThe second handle.\n")
        proxy.fail("busy")
        with pytest.raises(SourceError) as raised:
            store.build()
        assert raised.value.transient
        proxy.heal()
        assert store.build()["documents"]["added"] == 1
        assert_equals_a_clean_build(store.workspace)


def test_an_index_below_its_own_source_is_no_document(store: Store, tmp_path: Path) -> None:
    store.workspace.flags |= {"index": store.server.address(f"{store.prefix}/index"), "cache_dir": tmp_path / "local"}
    assert store.build()["documents"]["added"] == 3
    assert store.build()["work"] == NOTHING
