"""Erasing documents: nothing is left of them anywhere, whatever held them, wherever the erasure is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, rows
from conftest import Workspace
from s3server import Server
from traces import download, traces
from typer.testing import CliRunner

from chunker.chunk import document_id
from flows.cli.app import app
from flows.maintenance import kept_revisions
from flows.opening import open_storage, published
from indexes.lexical.index import LexicalIndex
from indexes.revisions import generation, retention
from indexes.revisions.erasure import INTENT, matches
from indexes.storage.objects import FolderObjects
from indexes.storage.storage import Storage
from indexes.storage.tables import Table
from parsers.errors import StoreError, UsageError

MARKER = "zanzibarquux"
SECRET = f"{MARKER}.md"
GUIDE = "# Guide\n\nOpen the valve slowly.\n\n## Pump\n\nThe pump stops by itself.\n"


class Killed(BaseException):
    """The process ends here."""


def fill(workspace: Workspace) -> None:
    workspace.write("guide.md", GUIDE)
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 4.\n")


def mark(workspace: Workspace, key: str = SECRET) -> None:
    workspace.write(key, f"# Secret {MARKER}\n\nThe word is {MARKER}.\n\n## More {MARKER}\n\nAgain {MARKER} there.\n")


def left(workspace: Workspace) -> list[str]:
    return traces([workspace.index], [MARKER])


def keys(workspace: Workspace) -> set[str]:
    return {row["key"] for row in rows(workspace)}


def quote(workspace: Workspace, key: str = SECRET) -> None:
    """A record of an evaluation that quotes the document, and one that does not."""
    folder = workspace.index / "evaluations"
    folder.mkdir(exist_ok=True)
    (folder / "1.json").write_text(json.dumps({"examples": [{"got": [{"key": key, "text": f"is {MARKER}."}]}]}))
    (folder / "2.json").write_text(json.dumps({"examples": [{"got": [{"key": "key.md", "text": "bay 4"}]}]}))


def test_deleting_first_and_erasing_later(workspace: Workspace) -> None:
    """The normal order: by then no kept revision names it, and its rows still lie in files."""
    workspace.flags = {"keep_revisions": 1, "grace_hours": 0}
    fill(workspace)
    mark(workspace)
    workspace.build(notes="extractive")
    quote(workspace)
    (workspace.docs / SECRET).unlink()
    for number in range(4):
        workspace.write("key.md", f"# Key\n\nThe key hangs in bay {number}.\n")
        workspace.build()
    kept_revisions.sweep(workspace.settings())
    assert left(workspace)
    said = kept_revisions.purge(workspace.settings(), [SECRET])
    assert left(workspace) == []
    assert said["found"] == [] and said["nowhere"] == [SECRET] and said["records_removed"] == 1
    assert keys(workspace) == {"guide.md", "key.md"}
    assert kept_revisions.verify_index(workspace.settings())["whole"]
    assert_equals_a_clean_build(workspace)


def kill_build(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that ends before it publishes, with everything written."""

    def die(*given: Any, **named: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(generation.Draft, "publish", die)
        with pytest.raises(Killed):
            workspace.build()


def test_what_only_a_killed_build_wrote_goes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    workspace.build()
    mark(workspace)
    kill_build(workspace, monkeypatch)
    (workspace.docs / SECRET).unlink()
    (workspace.index / "generations" / "stray.txt").write_text("no generation")
    (workspace.index / f".{'0' * 32}.tmp").write_text(f"half a record about {MARKER}")
    assert any("generations" in place for place in left(workspace))
    said = kept_revisions.purge(workspace.settings(), [SECRET])
    assert said["nowhere"] == [SECRET] and left(workspace) == []
    assert_equals_a_clean_build(workspace)


def test_what_a_killed_first_build_wrote_goes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="nothing is kept there"):
        kept_revisions.purge(workspace.settings(), [SECRET])
    fill(workspace)
    mark(workspace)
    kill_build(workspace, monkeypatch)
    assert left(workspace)
    assert kept_revisions.purge(workspace.settings(), [SECRET])["revision"] == 0
    assert left(workspace) == []
    (workspace.docs / SECRET).unlink()
    workspace.build()
    assert_equals_a_clean_build(workspace)


def test_an_index_that_is_damaged_is_erased_from_and_can_be_repaired(workspace: Workspace) -> None:
    from test_flows_keeping import DAMAGES, damage, quiet

    fill(workspace)
    mark(workspace)
    workspace.build()
    meant = [row for row in rows(workspace) if row["key"] != SECRET]
    damage(workspace, *DAMAGES["rows are not what their digests say"])
    damage(workspace, *DAMAGES["documents have other rows than the catalog says"])
    kept_revisions.purge(workspace.settings(), [SECRET])
    assert left(workspace) == []
    assert not kept_revisions.verify_index(workspace.settings())["whole"]
    assert kept_revisions.repair_index(workspace.settings(), quiet)["repaired"]
    assert rows(workspace) == meant


def test_patterns_and_several_keys(workspace: Workspace) -> None:
    fill(workspace)
    for key in ("internal/a.md", "internal/deep/b.md", "internal", "[internal]/c.md"):
        workspace.write(f"{key}.md" if key == "internal" else key, f"# Secret\n\nThe word is {MARKER} {len(key)}.\n")
    workspace.build()
    said = kept_revisions.purge(workspace.settings(), ["internal/*", "nobody.md"])
    assert [one["key"] for one in said["found"]] == ["internal/a.md", "internal/deep/b.md"]
    assert said["found"][0]["revisions"] == [1] and said["nowhere"] == ["nobody.md"]
    assert keys(workspace) == {"guide.md", "key.md", "internal.md", "[internal]/c.md"}
    kept_revisions.purge(workspace.settings(), ["internal.md", "[internal]/c.md"])
    assert left(workspace) == [] and keys(workspace) == {"guide.md", "key.md"}


@pytest.mark.parametrize(
    ("key", "asked", "held"),
    [
        ("mail.eml!/2/notes.txt", "mail.eml", True),
        ("mail.eml!/2/notes.txt", "*.eml", True),
        ("mail.eml!/2/notes.txt", "mail.eml!/2/notes.txt", True),
        ("mail.eml", "mail.eml!/2/notes.txt", False),
        ("mail.eml.txt", "mail.eml", False),
        ("a/b.md", "A/*", False),
        ("[x]/b.md", "[x]/b.md", True),
        ("x/b.md", "[x]/b.md", True),
    ],
)
def test_a_document_goes_with_its_parts(key: str, asked: str, held: bool) -> None:
    assert matches(key, [asked]) == held


def test_a_key_that_two_sources_hold_is_asked_about(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace)
    mark(workspace)
    workspace.build()
    other = tmp_path / "other"
    other.mkdir()
    (other / SECRET).write_text("# Another\n\nNo secret is here.\n")
    workspace.build(source=str(other), source_name="wiki", new_source=True)
    before = rows(workspace)
    with pytest.raises(UsageError, match="documents of the sources default, wiki") as refusal:
        kept_revisions.purge(workspace.settings(), [SECRET])
    assert "--source-name default" in refusal.value.remedy and rows(workspace) == before
    assert not (workspace.index / INTENT).exists()
    with pytest.raises(UsageError, match="knows no source nobody"):
        kept_revisions.purge(workspace.settings(), [SECRET], "nobody")
    said = kept_revisions.purge(workspace.settings(), [SECRET], "default")
    assert [one["source"] for one in said["found"]] == ["default"]
    assert rows(workspace) == [row for row in before if row["document_id"] != document_id("default", SECRET)]
    assert not traces([workspace.index / "generations"], [f"word is {MARKER}"])


def test_the_command_takes_several_keys(workspace: Workspace) -> None:
    fill(workspace)
    mark(workspace)
    workspace.build()
    done = CliRunner().invoke(app, ["sweep", "--index", str(workspace.index), "--purge", SECRET, "--purge", "no*"])
    assert done.exit_code == 0, done.output
    assert f"{SECRET} of source default stood in the revisions 1; it is erased." in done.output
    assert "no*: no kept revision named it." in done.output
    assert left(workspace) == []
    done = CliRunner().invoke(app, ["sweep", "--index", str(workspace.index), "--source-name", "default"])
    assert done.exit_code == 2


# --- killed anywhere


class Steps:
    """Counts the changes that an erasure makes, and ends the process at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self.done = 0
        self.at = at
        for kind, names in (
            (FolderObjects, ("put", "create", "replace", "delete")),
            (Table, ("add", "delete", "restore")),
            (LexicalIndex, ("commit",)),
        ):
            for name in names:
                patch.setattr(kind, name, self._counted(getattr(kind, name)))
        real = shutil.rmtree

        def half(path: Any, *given: Any, **named: Any) -> None:
            if self.done + 1 == self.at:
                for one in sorted(Path(path).rglob("*"))[::2]:
                    if one.is_file():
                        one.unlink()
            self._count()
            real(path, *given, **named)

        patch.setattr(shutil, "rmtree", half)
        import lancedb.db

        for name in ("create_table", "drop_table"):
            kind = lancedb.db.LanceDBConnection
            patch.setattr(kind, name, self._counted(getattr(kind, name)))

    def _count(self) -> None:
        self.done += 1
        if self.done == self.at:
            raise Killed

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._count()
            return real(*given, **named)

        return call


@pytest.fixture
def prepared(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An index that holds the document in everything: two revisions, a killed build, the cache, a record."""
    fill(workspace)
    mark(workspace)
    workspace.build(notes="extractive")
    workspace.write("key.md", "# Key\n\nThe key hangs in bay 5.\n")
    workspace.build(notes="extractive")
    quote(workspace)
    mark(workspace, f"other-{SECRET}")
    kill_build(workspace, monkeypatch)
    for path in workspace.docs.glob("*.md"):
        if MARKER in path.name:
            path.unlink()
    return workspace


def steps_of(workspace: Workspace) -> int:
    """How many changes a whole erasure makes."""
    copy = replace(workspace, index=workspace.index.with_name("counted"))
    shutil.copytree(workspace.index, copy.index)
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, 0)
        kept_revisions.purge(copy.settings(), [SECRET])
    assert left(copy) == []
    return steps.done


def killed_and_resumed(workspace: Workspace, at: int, resume: Callable[[Workspace], object]) -> None:
    copy = replace(workspace, index=workspace.index.with_name(f"killed-{at}"))
    shutil.copytree(workspace.index, copy.index)
    with pytest.MonkeyPatch.context() as patch:
        Steps(patch, at)
        with pytest.raises(Killed):
            kept_revisions.purge(copy.settings(), [SECRET])
    assert (copy.index / INTENT).exists() or left(copy), "nothing is crossed out before it is done"
    resume(copy)
    assert left(copy) == [], f"killed at {at}"
    assert not (copy.index / INTENT).exists()
    assert keys(copy) == {"guide.md", "key.md"}
    assert kept_revisions.verify_index(copy.settings(), everything=True)["whole"]
    shutil.rmtree(copy.index)


def again(workspace: Workspace) -> None:
    kept_revisions.purge(workspace.settings(), [SECRET])


def swept(workspace: Workspace) -> None:
    kept_revisions.sweep(workspace.settings())


def built(workspace: Workspace) -> None:
    workspace.build()


def test_an_erasure_that_is_killed_is_finished_by_the_next(prepared: Workspace) -> None:
    total = steps_of(prepared)
    assert total > 20
    # A kill before the first change leaves everything; the next purge is then a first one.
    killed_and_resumed(prepared, 1, again)
    for number, at in enumerate(range(2, total + 1, 5)):
        killed_and_resumed(prepared, at, swept if number % 2 else again)
    killed_and_resumed(prepared, total // 2, built)


@pytest.mark.slow
def test_an_erasure_that_is_killed_at_any_step_is_finished_by_any_command(prepared: Workspace) -> None:
    total = steps_of(prepared)
    for at in range(2, total + 1):
        killed_and_resumed(prepared, at, (again, swept, built)[at % 3])


# --- on S3


def test_an_erasure_on_s3_leaves_nothing_there_or_on_this_machine(
    workspace: Workspace, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = replace(workspace, flags={"index": s3.address(f"purge/{tmp_path.name}"), "cache_dir": tmp_path / "cache"})
    fill(remote)
    mark(remote)
    remote.build(notes="extractive")
    assert remote.search(MARKER, "bm25")
    (remote.docs / SECRET).unlink()
    remote.build()
    mark(remote, f"other-{SECRET}")
    kill_build(remote, monkeypatch)
    (remote.docs / f"other-{SECRET}").unlink()
    place = Storage(remote.settings().index, remote.settings().cache_dir)
    assert traces([download(place, tmp_path / "before")], [MARKER]) and traces([tmp_path / "cache"], [MARKER])
    with monkeypatch.context() as patch:  # the pointer is written and nothing is removed yet
        patch.setattr(retention, "give_up", lambda *given: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            kept_revisions.purge(remote.settings(), [SECRET, f"other-{SECRET}"])
    kept_revisions.sweep(remote.settings())
    assert traces([download(place, tmp_path / "after"), tmp_path / "cache"], [MARKER]) == []
    assert keys(remote) == {"guide.md", "key.md"}
    assert kept_revisions.verify_index(remote.settings())["whole"]
    assert published(remote.settings())[1].made_by == "purge" and open_storage(remote.settings()).remote
    assert_equals_a_clean_build(remote)
