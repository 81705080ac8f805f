"""Stores that fail in the middle of a build: the error is the store's, and no document's."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, catalog
from conftest import Workspace
from typer.testing import CliRunner

from flows.cli.app import app
from indexes.cache.store import VectorCache
from indexes.storage.errors import as_store_error
from parsers.errors import GateRefused, IndexBusy, StoreError, UsageError

AWAY = "lance error: LanceError(IO): Generic S3 error: Error performing PUT http://x in 4ms, after 3 retries - HTTP error: error sending request, /root/.cargo/x.rs:1:2"  # noqa: E501


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)"), "No space left on device"),
    ],
)
def test_a_full_disk_while_vectors_are_remembered_ends_the_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    workspace.write("a.md", "# A\n\nThe pump has a seal.\n")
    workspace.build()
    before = catalog(workspace)
    for name in "bcd":
        workspace.write(f"{name}.md", f"# {name}\n\nThe pump of {name}.\n")
    calls = []

    def full(self: VectorCache, entries: dict[str, Any]) -> None:
        calls.append(len(entries))
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(VectorCache, "add", full)
        with pytest.raises(StoreError, match=says) as ended:
            workspace.build()
    assert str(workspace.index) in ended.value.message and "Free some space" in ended.value.remedy
    assert ended.value.transient and ended.value.exit_status == 2
    assert len(calls) == 1, "no text is embedded again"
    assert catalog(workspace) == before
    report = workspace.build()
    assert report["documents"]["failed"] == 0 and report["published"]
    assert_equals_a_clean_build(workspace)


def test_what_a_store_says_is_told_from_our_own_defects() -> None:
    found = as_store_error("s3://b/x", RuntimeError(AWAY))
    assert isinstance(found, StoreError) and found.transient and ".rs" not in found.message
    assert "s3://b/x" in found.message and "AWS_ENDPOINT_URL" in found.remedy
    for text, transient in (
        ("<Error><Code>SlowDown</Code></Error>", True),
        ("<Error><Code>AccessDenied</Code></Error>", False),
        ("lance error: Server returned non-2xx status code: 503 Service Unavailable", True),
    ):
        found = as_store_error("s3://b/x", RuntimeError(text))
        assert isinstance(found, StoreError) and found.transient == transient, text
    assert as_store_error("s3://b/x", KeyError("x")) is None
    assert as_store_error("/index", RuntimeError("a defect of ours")) is None
    said = StoreError("index /index: this build lost its lease", transient=True)
    assert as_store_error("/index", said) is None
    assert IndexBusy("busy").transient and not UsageError("x").transient and not GateRefused("x").transient


@pytest.mark.parametrize("named_by", ["--index", "GRISTMILL_INDEX", "gristmill.toml", "--config"])
def test_a_raw_outage_is_one_wherever_the_index_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    """Also where nobody on the error's way knew the index."""
    monkeypatch.chdir(tmp_path)
    arguments = ["status", "--json"]
    if named_by == "--index":
        arguments += ["--index", "s3://b/x"]
    elif named_by == "GRISTMILL_INDEX":
        monkeypatch.setenv("GRISTMILL_INDEX", "s3://b/x")
    else:
        name = "gristmill.toml" if named_by == "gristmill.toml" else "other.toml"
        Path(name).write_text('index = "s3://b/x"\n')
        arguments += ["--config", name] if named_by == "--config" else []

    def is_away(*_: Any, **__: Any) -> None:
        raise RuntimeError(AWAY)

    monkeypatch.setattr("flows.maintenance.status.index_status", is_away)
    done = CliRunner().invoke(app, arguments)
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == said["exit_status"] == 2 and said["transient"]
    assert "s3://b/x" in said["error"] and "http://x" in said["error"] and "AWS_ENDPOINT_URL" in said["remedy"]


def test_the_endpoint_is_named_however_long_the_words_before_it() -> None:
    found = as_store_error(
        "s3://b/x", RuntimeError(AWAY.replace("(IO): ", f"(IO): single PUT of {'a' * 400} failed: "))
    )
    assert found is not None and "PUT http://x in 4ms" in found.message
