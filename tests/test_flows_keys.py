"""A build of named keys: it looks at these documents alone, without a listing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, rows
from conftest import Workspace
from typer.testing import CliRunner

from flows.build.build import BuildOptions, build_index
from flows.cli.app import app
from flows.sources.folder import FolderSource
from parsers.errors import GateRefused

NOTHING = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)


@pytest.fixture
def built(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An index of eight documents whose source can no longer be listed."""
    for number in range(8):
        workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    workspace.build()

    def unlisted(self: FolderSource) -> Any:
        raise AssertionError("it was listed")

    monkeypatch.setattr(FolderSource, "objects", unlisted)
    return workspace


def build(workspace: Workspace, *keys: str, **options: Any) -> dict[str, Any]:
    return build_index(workspace.settings(), BuildOptions(quiet=True, only_keys=keys, **options))


def test_named_documents_are_added_changed_and_removed(built: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    built.write("new.md", "# New\n\nThe quixotic handle.\n")
    built.write("doc1.md", "# Doc 1\n\nThe seal of pump 1 leaks.\n")
    built.write("doc2.md", "# Doc 2\n\nNot named, so not looked at.\n")
    (built.docs / "doc3.md").unlink()
    report = build(built, "new.md", "doc1.md", "doc3.md", "doc1.md")
    counts = {name: report["documents"][name] for name in ("added", "changed", "removed")}
    assert report["published"] and counts == {"added": 1, "changed": 1, "removed": 1}
    assert {row["key"] for row in rows(built)} == {f"doc{n}.md" for n in range(8) if n != 3} | {"new.md"}
    assert not any("Not named" in row["text"] for row in rows(built))
    monkeypatch.undo()


def test_what_did_not_change_is_read_and_nothing_is_written(built: Workspace) -> None:
    report = build(built, "doc1.md", "doc5.md")
    assert report["work"] == NOTHING | {"fetched": 2} and not report["published"]


def test_a_key_that_nobody_knows_is_named(built: Workspace) -> None:
    report = build(built, "gone.md", "../outside.md", "a\0b.md")
    assert report["unknown_keys"] == ["../outside.md", "a\0b.md", "gone.md"] and not report["published"]


def test_a_document_that_failed_is_tried_again(built: Workspace) -> None:
    built.write("broken.docx", b"not a Word file")
    assert build(built, "broken.docx")["documents"]["failed"] == 1
    assert build(built, "broken.docx")["work"]["parsed"] == 1


def test_removals_count_against_the_guard_until_the_next_listing(
    workspace: Workspace, built: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        (built.docs / f"doc{number}.md").unlink()
    for number in range(4):
        assert build(built, f"doc{number}.md")["documents"]["removed"] == 1
    with pytest.raises(GateRefused, match="5 of 8 documents are gone"):
        build(built, "doc4.md")
    assert build(built, "doc4.md", allow_deletes=True)["documents"]["removed"] == 1
    monkeypatch.undo()


def test_a_listing_ends_the_count(workspace: Workspace) -> None:
    for number in range(8):
        workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    workspace.build()
    for number in range(4):
        (workspace.docs / f"doc{number}.md").unlink()
        build(workspace, f"doc{number}.md")
    workspace.build()
    (workspace.docs / "doc4.md").unlink()
    assert build(workspace, "doc4.md")["documents"]["removed"] == 1
    assert_equals_a_clean_build(workspace)


def test_changes_by_keys_equal_a_clean_build(workspace: Workspace) -> None:
    workspace.write("a/one.md", "# One\n\nThe valve opens.\n")
    assert build(workspace, "a/one.md")["published"], "a first build may name its documents"
    workspace.write("two.txt", "ERR_TIMEOUT_42 means that the line is dead.\n")
    workspace.write("a/one.md", "# One\n\nThe valve closes.\n")
    build(workspace, "two.txt", "a/one.md")
    assert_equals_a_clean_build(workspace)
    assert workspace.build()["work"] == NOTHING


def test_the_command_takes_keys_and_a_file_of_keys(workspace: Workspace, tmp_path: Path) -> None:
    toml = tmp_path / "gristmill.toml"
    workspace.write("ä b.md", "# One\n\nThe valve opens.\n")
    workspace.write("two.md", "# Two\n\nThe valve opens.\n")
    toml.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in _flags(workspace).items()))
    (tmp_path / "keys").write_text("ä b.md\n\n")
    arguments = ["build", "--config", str(toml), "--json", "--quiet", "--keys", "two.md", "--keys-from"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "keys")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["documents"]["added"] == 2
    missing = CliRunner().invoke(app, [*arguments, str(tmp_path / "none")])
    assert missing.exit_code == 2 and "none cannot be read" in missing.output


def _flags(workspace: Workspace) -> dict[str, Any]:
    settings = workspace.settings()
    names = ("source", "index", "embedder", "ruler", "models_dir", "cache_dir")
    return {name: str(getattr(settings, name)) for name in names} | {
        "model_files": list(map(str, settings.model_files))
    }
