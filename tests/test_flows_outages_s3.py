"""Builds on S3 while the store refuses, breaks, stalls or dies, and while a builder loses its lease."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import s3server
from comparing import assert_equals_a_clean_build, catalog
from conftest import Workspace
from flaky_proxy import FlakyProxy, Mode, proxied
from s3server import BUCKET, Server
from typer.testing import CliRunner

from flows.build import steps
from flows.cli.app import app
from indexes.storage import storage as storage_module
from indexes.storage.storage import Storage
from parsers.errors import IndexBusy, StoreError

LONGEST = 90.0  # seconds until an outage has ended a build, where a request waits for a second

# Points of a build, by the request at which the store goes away, and what is known by then and not done again.
POINTS = {
    "the cache of documents": (r"PUT .*/memory/documents\.lance/data/", ()),
    "the commit of chunks": (r"PUT .*/memory/chunks\.lance/_versions/", ("fetched", "parsed")),
    "the mark of vectors in doubt": (r"PUT .*/memory/vectors\.doubted", ("fetched", "parsed", "chunked")),
    "the cache of vectors": (r"PUT .*/memory/vectors-26\.lance/data/", ("fetched", "parsed", "chunked")),
    "rows": (r"PUT .*/generations/.*/chunks\.lance/data/", ("fetched", "parsed", "chunked", "embedded")),
    "the catalog": (r"PUT .*/generations/.*/documents\.lance/_versions/", ("fetched", "parsed", "chunked", "embedded")),
    "the BM25 index": (r"PUT .*/lexical/files/", ("fetched", "parsed", "chunked", "embedded")),
    "the record": (r"PUT .*/revisions/", ("fetched", "parsed", "chunked", "embedded")),
    "the pointer": (r"PUT .*/pointer\.json", ("fetched", "parsed", "chunked", "embedded")),
}
# Each point in one way at least; `busy` is answered by the store, `reset` and `stall` by nobody.
STEPS: list[tuple[Mode, str]] = [
    ("stall", "the mark of vectors in doubt"),
    ("reset", "the cache of documents"),
    ("busy", "the commit of chunks"),
    ("stall", "the cache of vectors"),
    ("busy", "rows"),
    ("reset", "rows"),
    ("stall", "the catalog"),
    ("reset", "the BM25 index"),
    ("busy", "the record"),
    ("busy", "the pointer"),
    ("stall", "the pointer"),
]


@pytest.fixture
def proxy(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyProxy]:
    """A proxy in front of the S3 server, which the environment names in its place."""
    with proxied(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def on_s3(workspace: Workspace, server: Server, name: str) -> Workspace:
    """The workspace with three documents and its index on S3."""
    for number in range(3):
        workspace.write(f"{number}.md", f"# Doc {number}\n\nOpen the valve {number} slowly.\n\n## Pump\n\nIts seal.\n")
    flags = {"index": server.address(f"outages/{name}"), "cache_dir": workspace.docs.parent / "cache"}
    return replace(workspace, flags=flags)


@pytest.fixture
def remote(workspace: Workspace, s3: Server, tmp_path: Path) -> Workspace:
    """An index on S3 that is published."""
    remote = on_s3(workspace, s3, tmp_path.name)
    remote.build()
    return remote


@pytest.fixture
def quick(remote: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and leases that fail in seconds, from the second build on: a new server may need longer at first."""
    monkeypatch.setattr(storage_module, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(storage_module, "LEASE_SECONDS", 4.0)


def edit(remote: Workspace) -> None:
    """One document changed, one new, one gone."""
    remote.write("0.md", "# Doc 0\n\nOpen the valve 0 slowly.\n\n## Pump\n\nIts seal wears out.\n")
    remote.write("new.md", "# New\n\nThe quixotic handle.\n")
    (remote.docs / "1.md").unlink()


def patiently(remote: Workspace) -> dict[str, Any]:
    """The next build, once the lease of a builder that could not give it back has run out."""
    give_up = time.monotonic() + 60
    while True:
        try:
            return remote.build()
        except IndexBusy:
            assert time.monotonic() < give_up
            time.sleep(0.2)


def storage(remote: Workspace) -> Storage:
    settings = remote.settings()
    return Storage(settings.index, settings.cache_dir)


def revision(remote: Workspace) -> int:
    pointer = storage(remote).pointer()
    return pointer.revision if pointer is not None else 0


def is_an_outage(error: StoreError, remote: Workspace) -> None:
    assert error.transient and error.exit_status == 2
    assert remote.flags["index"] in error.message and error.remedy and "repair" not in error.remedy


def finishes(remote: Workspace, before: dict[str, Any], done: tuple[str, ...] = ()) -> None:
    """Nothing was published meanwhile; the next build does what is missing, and the index is as a clean one."""
    assert revision(remote) == 1 and catalog(remote) == before
    report = patiently(remote)
    assert report["published"] and report["documents"]["failed"] == 0
    assert {name: report["work"][name] for name in done} == dict.fromkeys(done, 0)
    assert revision(remote) == 2
    assert_equals_a_clean_build(remote, queries=("valve", "quixotic", "seal"))


def test_a_store_that_is_busy_for_a_while_delays_a_build(remote: Workspace, quick: None, proxy: FlakyProxy) -> None:
    edit(remote)
    proxy.fail("busy", POINTS["the cache of documents"][0], times=2)
    report = remote.build()
    assert proxy.heal() == 2 and report["published"] and report["documents"]["failed"] == 0
    proxy.fail("busy", r"GET .*/pointer\.json", times=2)
    assert remote.build()["work"]["fetched"] == 0
    assert proxy.heal() == 2
    assert_equals_a_clean_build(remote, queries=("valve", "quixotic"))


@pytest.mark.parametrize(
    ("mode", "point"), [STEPS[0], *(pytest.param(*step, marks=pytest.mark.slow) for step in STEPS[1:])]
)
def test_a_store_that_goes_away_ends_a_build_clearly_and_nothing_is_lost(
    remote: Workspace, quick: None, proxy: FlakyProxy, mode: Mode, point: str
) -> None:
    before = catalog(remote)
    edit(remote)
    at, done = POINTS[point]
    proxy.fail(mode, at)
    begun = time.monotonic()
    with pytest.raises(StoreError) as ended:
        remote.build()
    assert time.monotonic() - begun < LONGEST
    is_an_outage(ended.value, remote)
    assert mode == "busy" or proxy.endpoint in ended.value.message
    assert proxy.heal() > 1, "it was tried again"
    finishes(remote, before, done)


def test_a_command_ends_with_status_2_wherever_the_index_is_named(
    remote: Workspace, quick: None, proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = remote.flags["index"]
    proxy.fail("reset", r"\.lance/")

    def ends(*arguments: str) -> None:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        said = json.loads(done.stdout.splitlines()[-1])
        assert done.exit_code == said["exit_status"] == 2 and said["transient"]
        assert index in said["error"] and proxy.endpoint in said["error"] and "AWS_ENDPOINT_URL" in said["remedy"]
        assert "Traceback" not in done.output

    ends("search", "valve", "--mode", "bm25", "--index", index)
    with monkeypatch.context() as patch:
        patch.setenv("GRISTMILL_INDEX", index)
        ends("search", "valve", "--mode", "bm25")
    assert proxy.heal()
    edit(remote)
    given: dict[str, Any] = {
        name: str(value) for name, value in remote.settings().model_dump(exclude_unset=True).items()
    }
    given |= {"model_files": [str(path) for path in remote.models["model_files"]], "note_reserve": 8}
    (tmp_path / "gristmill.toml").write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())
    )
    proxy.fail("reset", POINTS["the cache of documents"][0])
    ends("build", "--quiet")
    assert proxy.heal() and revision(remote) == 1


@pytest.fixture
def mortal(workspace: Workspace, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of this test's own, to be killed; the environment names it in place of the shared one."""
    program = s3server.weed()
    assert program is not None
    with s3server.running(tmp_path / "s3", program) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "done"),
    [
        ("parse", ()),
        ("embed", ("fetched", "parsed", "chunked")),
        ("write", ("fetched", "parsed", "chunked", "embedded")),
    ],
)
def test_a_server_that_is_killed_in_a_build_loses_nothing(
    workspace: Workspace, mortal: Server, monkeypatch: pytest.MonkeyPatch, stage: str, done: tuple[str]
) -> None:
    remote = on_s3(workspace, mortal, "mortal")
    remote.build()
    before = catalog(remote)
    edit(remote)
    monkeypatch.setattr(storage_module, "LEASE_SECONDS", 9.0)
    real = getattr(steps, stage)

    def dies(*given: Any) -> None:
        mortal.kill()
        real(*given)

    begun = time.monotonic()
    with monkeypatch.context() as patch, pytest.raises(StoreError) as ended:
        patch.setattr(steps, stage, dies)
        remote.build()
    assert time.monotonic() - begun < LONGEST
    is_an_outage(ended.value, remote)
    assert mortal.endpoint in ended.value.message
    assert mortal.start()
    give_up = time.monotonic() + 60
    while not readable(remote) and time.monotonic() < give_up:
        time.sleep(0.2)
    finishes(remote, before, done)


def readable(remote: Workspace) -> bool:
    """Whether a store that was started again has found all it had."""
    try:
        return bool(revision(remote))
    except StoreError as error:
        assert error.transient
        return False


def listing(server: Server) -> list[tuple[Any, ...]]:
    """Every object of the bucket, with what shows that it was written again."""
    pages = s3server.client(server).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    found = [each for page in pages for each in page.get("Contents", [])]
    return sorted((each["Key"], each["ETag"], each["Size"], each["LastModified"]) for each in found)


# After each of these a builder goes on to its next write; a commit of LanceDB, once begun, may still be finished.
LOST_AFTER = {
    "versions": r"PUT .*/memory/versions\.lance/_versions/",
    "documents": r"PUT .*/memory/documents\.lance/_versions/",
    "chunks": r"PUT .*/memory/chunks\.lance/_versions/",
    "doubt": r"PUT .*/memory/vectors\.doubted",
    "vectors": r"PUT .*/memory/vectors-26\.lance/_versions/",
    "rows": r"PUT .*/generations/.*/chunks\.lance/_versions/",
    "catalog": r"PUT .*/generations/.*/documents\.lance/_versions/",
    "BM25 list": r"PUT .*/lexical/\d+\.json",
    "files": r"PUT .*/files/\d+\.json",
    "record": r"PUT .*/revisions/\d+\.json",
}


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=() if point == "documents" else pytest.mark.slow) for point in LOST_AFTER]
)
def test_a_builder_that_lost_its_lease_writes_nothing_more(
    remote: Workspace, s3: Server, proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = catalog(remote)
    edit(remote)
    other = storage(remote)
    monkeypatch.setattr(storage_module, "LEASE_SECONDS", 2.0)
    seen: list[list[tuple[Any, ...]]] = []

    def taken_over() -> None:
        """Renewals of the builder get lost while another, who sees the store well, takes its lease and gives it back.

        The builder waits for the answer to its last write meanwhile.
        """
        proxy.fail("reset", r"PUT .*/build\.lease", only=True)
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
            give_up = time.monotonic() + 20
            while not seen and time.monotonic() < give_up:
                try:
                    with other.lock():
                        assert other._lease is not None and other._lease.taken_over
                    seen.append(listing(s3))
                except IndexBusy:
                    time.sleep(0.1)

    proxy.then(LOST_AFTER[point], taken_over)
    with pytest.raises(StoreError, match="this build lost its lease") as ended:
        remote.build()
    proxy.heal()
    assert seen and listing(s3) == seen[0]
    is_an_outage(ended.value, remote)
    finishes(remote, before)
