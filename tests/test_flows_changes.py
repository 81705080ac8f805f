"""What a build makes of a folder's changes: none is missed, none is looked at twice, no strange file ends it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from comparing import assert_equals_a_clean_build, catalog, rows
from conftest import Workspace
from fakes import LettersRuntime
from test_flows_build import NOTHING, files, without_memory
from typer.testing import CliRunner

from flows.build import parsing, rereading
from flows.build.build import BuildOptions, build_index
from flows.build.dry_run import plan_build
from flows.cli import printing
from flows.cli.app import app
from flows.maintenance.status import index_status
from flows.opening import published
from flows.sources import Object
from flows.sources.folder import FolderSource
from indexes.revisions.generation import published_catalog
from indexes.storage.storage import Storage
from parsers import registry
from parsers.errors import GateRefused
from parsers.registry import Adapter, read

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
TOPICS = ("valve", "gauge", "pump", "seal", "boiler", "hinge", "lever", "crank", "rivet", "flange", "piston", "spout")


def fill(workspace: Workspace, count: int = 3) -> None:
    for topic in TOPICS[:count]:
        workspace.write(f"{topic}.md", f"# The {topic}\n\nTurn the {topic} twice to the left.\n")


def again(workspace: Workspace, **options: Any) -> dict[str, Any]:
    return build_index(workspace.settings(), BuildOptions(quiet=True, **options))


def shown(workspace: Workspace, key: str) -> str:
    """The published text of a document."""
    return "".join(row["text"] for row in rows(workspace) if row["key"] == key)


def settle() -> None:
    """Let the clock of the file system tick."""
    time.sleep(0.03)


def frozen(path: Path) -> None:
    os.utime(path, (10**9, 10**9))


# --- O70: a wrong folder


def other_folder(workspace: Workspace, *keys: str) -> Workspace:
    docs = workspace.docs.with_name("other")
    docs.mkdir()
    other = Workspace(docs, workspace.index, workspace.models)
    for key in keys:
        other.write(key, f"# {key}\n\nAnother text.\n")
    return other


def test_o70_a_wrong_folder_is_refused_and_both_addresses_are_shown(workspace: Workspace) -> None:
    fill(workspace, 12)
    workspace.build()
    before = files(workspace.index)
    other = other_folder(workspace, "wrong.md")
    with pytest.raises(GateRefused, match=r"12 of 12 documents are gone") as caught:
        other.build()
    said = str(caught.value)
    assert str(workspace.docs) in said and str(other.docs) in said
    assert "--allow-deletes" in said and "--force" not in said
    assert files(workspace.index) == before
    report = other.build(allow_deletes=True)
    assert (report["documents"]["removed"], report["documents"]["added"]) == (12, 1)
    assert published(workspace.settings())[1].sources == {"default": str(other.docs)}


@pytest.mark.parametrize(
    ("documents", "left", "refused"), [(1, 0, True), (2, 1, False), (3, 1, True), (12, 1, True), (12, 6, False)]
)
def test_o70_small_indexes_have_a_bound_of_their_own(
    workspace: Workspace, documents: int, left: int, refused: bool
) -> None:
    """Pictures, which no index holds, do not count, nor does what is new."""
    fill(workspace, documents)
    for number in range(5):
        workspace.write(f"{number}.png", PNG)
    workspace.build()
    for topic in TOPICS[left:documents]:
        (workspace.docs / f"{topic}.md").unlink()
    workspace.write("new.md", "# New\n\nIt came.\n")
    if refused:
        with pytest.raises(GateRefused, match=f"{documents - left} of {documents} documents are gone"):
            workspace.build()
    else:
        assert workspace.build()["documents"]["removed"] == documents - left


def test_o70_the_bound_is_a_setting_and_all_gone_is_never_within_it(workspace: Workspace) -> None:
    fill(workspace)
    workspace.flags = {"guards": {"removed_most": 1.0, "removed_share": 1.0}}
    workspace.build()
    for topic in TOPICS[1:3]:
        (workspace.docs / f"{topic}.md").unlink()
    workspace.build()
    (workspace.docs / f"{TOPICS[0]}.md").rename(workspace.docs / "renamed.md")
    with pytest.raises(GateRefused, match="never allows that all are gone"):
        workspace.build()


def test_o70_pictures_that_are_excluded_are_no_removal(workspace: Workspace) -> None:
    fill(workspace, 2)
    for number in range(30):
        workspace.write(f"{number}.png", PNG)
    workspace.build()
    report = workspace.build(exclude=["*.png"])
    assert report["checks"]["removals"] == "0 of 2 gone" and report["documents"]["skipped"] == 0


# --- O39: same size, same time, other bytes


def test_o39_a_file_moved_over_another_is_seen(workspace: Workspace) -> None:
    workspace.write("a.md", "# One\n\nThe first.\n")
    workspace.write("b.md", "# Two\n\nThe other.\n")
    for key in ("a.md", "b.md"):
        frozen(workspace.docs / key)
    workspace.build()
    (workspace.docs / "b.md").rename(workspace.docs / "a.md")
    assert workspace.build()["documents"]["changed"] == 1
    assert "The other." in shown(workspace, "a.md")
    settle()
    (workspace.docs / "a.md").write_text("# Two\n\nThe third.\n")
    frozen(workspace.docs / "a.md")
    assert workspace.build()["documents"]["changed"] == 1
    assert_equals_a_clean_build(workspace)


class Coarse(FolderSource):
    """A file system that tells of no change that keeps size and time."""

    @staticmethod
    def cut(version: str) -> str:
        return ":".join(version.split(":")[:2])

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> None:
        real_objects, real_fetch = FolderSource.objects, FolderSource.fetch

        def objects(self: FolderSource) -> Iterator[Object]:
            for one in real_objects(self):
                yield Object(one.key, cls.cut(one.version), one.size, one.problem, one.status)

        def fetch(self: FolderSource, key: str, version: str = "") -> Any:
            found = real_fetch(self, key)
            return found and found._replace(version=cls.cut(found.version))

        monkeypatch.setattr(FolderSource, "objects", objects)
        monkeypatch.setattr(FolderSource, "fetch", fetch)


def swapped(workspace: Workspace, key: str = "valve.md") -> None:
    """Put other bytes of the same length and time in a file's place."""
    path = workspace.docs / key
    path.write_text(path.read_text().replace("twice", "never"))
    frozen(path)


def test_o39_reread_looks_at_all_bytes_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    Coarse.install(monkeypatch)
    fill(workspace)
    for path in workspace.docs.iterdir():
        frozen(path)
    workspace.build()
    swapped(workspace)
    assert workspace.build()["work"] == NOTHING
    report = again(workspace, reread=True)
    assert report["work"]["fetched"] == 3 and report["documents"]["changed"] == 1
    assert "never" in shown(workspace, "valve.md")
    assert workspace.build()["work"] == NOTHING
    before = files(workspace.index)
    report = again(workspace, reread=True)
    assert report["work"] == NOTHING | {"fetched": 3} and not report["published"]
    assert files(workspace.index) == before
    assert_equals_a_clean_build(workspace)


def test_o39_builds_read_everything_again_by_turns(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    Coarse.install(monkeypatch)
    fill(workspace, 12)
    for path in workspace.docs.iterdir():
        frozen(path)
    clock = [time.time()]

    class Clock:
        time = staticmethod(lambda: clock[0])

    monkeypatch.setattr(rereading, "time", Clock)
    workspace.flags = {"reread_days": 4}
    workspace.build()
    for topic in TOPICS[:12:5]:
        swapped(workspace, f"{topic}.md")
    fetched, changed = [], 0
    for _ in range(4):
        clock[0] += rereading.DAY
        work = workspace.build()
        fetched.append(work["work"]["fetched"])
        changed += work["documents"]["changed"]
        assert workspace.build()["work"] == NOTHING, "once a day"
    assert sum(fetched) == 12 and max(fetched) < 12 and changed == 3
    assert_equals_a_clean_build(workspace)
    clock[0] += 40 * rereading.DAY
    before = without_memory(files(workspace.index))
    assert plan_build(workspace.settings())["documents"]["reread"] == 12
    found = workspace.build()
    assert found["work"]["fetched"] == 12 and found["documents"]["unchanged"] == 12
    assert without_memory(files(workspace.index)) == before
    clock[0] -= 400 * rereading.DAY  # a clock that was ahead holds nothing up
    assert workspace.build()["work"] == NOTHING
    clock[0] += rereading.DAY * 4
    assert workspace.build()["work"]["fetched"] == 12
    assert workspace.build(reread_days=0)["work"] == NOTHING


def test_o39_a_plan_is_kept_without_what_is_read_again(workspace: Workspace) -> None:
    from flows.build.diff import DiffOptions

    fill(workspace)
    workspace.build()
    workspace.write("new.md", "# New\n\nIt came.\n")
    kept = workspace.docs.parent / "plan.jsonl"
    planned = plan_build(workspace.settings(), DiffOptions(reread=True), kept)
    assert planned["documents"]["reread"] == 3 and planned["work"]["fetched"] == 4
    assert again(workspace, replay=kept)["work"]["fetched"] == 1


def test_o68_a_document_whose_time_moved_is_looked_at_once(workspace: Workspace) -> None:
    fill(workspace)
    workspace.build()
    for key in ("valve.md", "gauge.md"):
        (workspace.docs / key).touch()
    assert workspace.build()["work"] == NOTHING | {"fetched": 2}
    before = files(workspace.index)
    planned = plan_build(workspace.settings())["documents"]
    assert (planned["look"], planned["unchanged"]) == (0, 3), "what the bytes of these versions are is remembered"
    assert workspace.build()["work"] == NOTHING and files(workspace.index) == before
    (workspace.docs / "gauge.md").touch()
    workspace.write("new.md", "# New\n\nIt came.\n")
    assert workspace.build()["published"]
    listed = {one.key: one.version for one in FolderSource(str(workspace.docs)).objects()}
    storage, pointer = published(workspace.settings())
    assert {row.key: row.version for row in published_catalog(storage, pointer).rows()} == listed
    shutil.rmtree(next(workspace.index.glob("memory/versions*")))
    assert workspace.build()["work"] == NOTHING, "and recorded once something is published"
    relabelled = workspace.build(labels=[{"match": "*", "labels": ["all"]}])
    assert relabelled["work"] | {"rows_written": 0} == NOTHING
    assert {label for row in rows(workspace) for label in row["labels"]} == {"all"}


def test_o68_versions_and_recipes_that_move_together(workspace: Workspace) -> None:
    """A version that is recorded late does not bring the row of before back."""
    fill(workspace)
    workspace.build()
    (workspace.docs / "valve.md").touch()
    workspace.build()
    workspace.flags = {"labels": [{"match": "*", "labels": ["all"]}]}
    workspace.build()
    assert all(row[3] == ["all"] for row in catalog(workspace).values())
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


# --- O61: between the listing and the reading


def after_listing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Have something happen once when the source is listed."""
    real, done = FolderSource.objects, []

    def objects(self: FolderSource) -> Iterator[Object]:
        yield from list(real(self))
        if not done:
            done.append(1)
            change()

    monkeypatch.setattr(FolderSource, "objects", objects)


@pytest.mark.parametrize("known", [False, True])
def test_o61_what_was_read_is_what_is_remembered(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    fill(workspace)
    path = workspace.docs / "valve.md"
    right = path.read_text()
    if known:
        workspace.build()
        right = right.replace("left", "west")
        path.write_text(right)
    frozen(path)
    settle()

    def intrude() -> None:
        path.write_text(right.replace("twice", "never"))
        frozen(path)

    with monkeypatch.context() as patch:
        after_listing(patch, intrude)
        workspace.build()
    assert "never" in shown(workspace, "valve.md")
    settle()
    path.write_text(right)
    frozen(path)
    assert workspace.build()["documents"]["changed"] == 1
    assert "twice" in shown(workspace, "valve.md")
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


def test_o61_an_edit_while_a_file_is_read_leaves_nothing_mixed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace)
    real = FolderSource._read
    calls = []

    def torn(self: FolderSource, path: Path) -> Any:
        calls.append(path)
        return None if path.name == "valve.md" else real(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "_read", torn)
        report = workspace.build()
    assert "changed while it was read, 3 times" in report["failures"][0]["reason"]
    assert [path.name for path in calls].count("valve.md") == 3
    assert workspace.build()["documents"]["changed"] == 1


def test_o61_a_version_that_was_remembered_wrongly_heals(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As builds before this rule left it: the bytes of another state under the version that is listed."""
    Coarse.install(monkeypatch)
    fill(workspace)
    frozen(workspace.docs / "valve.md")
    workspace.build()
    swapped(workspace)
    again(workspace, reread=True)
    for path in workspace.docs.iterdir():
        path.touch()
    frozen(workspace.docs / "valve.md")
    again(workspace, reread=True)
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


# --- O62: what was parked


def unreadable(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Root reads everything, so the refusal is made up."""
    real = FolderSource.fetch

    def fetch(self: FolderSource, asked: str, version: str = "") -> Any:
        if asked == key and not (self._root / key).stat().st_mode & 0o400:
            raise PermissionError(13, "Permission denied")
        return real(self, asked)

    monkeypatch.setattr(FolderSource, "fetch", fetch)


def test_o62_a_parked_document_heals_when_its_rights_change(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable(monkeypatch, "valve.md")
    fill(workspace)
    (workspace.docs / "valve.md").chmod(0)
    workspace.flags = {"guards": {"attempts": 2}}
    for _ in range(2):
        workspace.build()
    parked = workspace.build()
    assert parked["work"] == NOTHING and not parked["published"]
    assert "left alone after 2 attempts until it changes" in parked["failures"][0]["reason"]
    modified = (workspace.docs / "valve.md").stat().st_mtime_ns
    settle()
    (workspace.docs / "valve.md").chmod(0o644)
    assert (workspace.docs / "valve.md").stat().st_mtime_ns == modified
    report = workspace.build()
    assert report["documents"]["changed"] == 1 and not report["failures"]
    assert_equals_a_clean_build(workspace)


def test_o62_retry_failed_tries_what_was_parked_and_what_broke(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage nothing of the files has moved."""
    fill(workspace)
    workspace.write("notes.md", "# Notes\n\nThey are kept.\n")
    workspace.build()
    workspace.write("notes.md", "# Notes\n\nThey are new.\n")
    workspace.write("broken.md", PNG)
    workspace.flags = {"guards": {"attempts": 2}}
    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "fetch", out_of_order)
        for _ in range(2):
            workspace.build()
        parked = workspace.build()
        assert parked["work"] == NOTHING and parked["documents"]["failed"] == 2
        revision = published(workspace.settings())[1].revision
        report = again(workspace, retry_failed=True)
        assert report["documents"]["failed"] == 2 and not report["published"], "nothing to say that is not said"
        assert published(workspace.settings())[1].revision == revision
    assert workspace.build()["work"] == NOTHING
    planned = plan_build(workspace.settings(), retry())["documents"]
    assert (planned["retry"], planned["unchanged"]) == (2, 3)
    report = again(workspace, retry_failed=True)
    assert report["documents"]["changed"] == 1 and "new" in shown(workspace, "notes.md")
    assert [one["key"] for one in report["failures"]] == ["broken.md"]
    assert "holds a PNG image" in report["failures"][0]["reason"]
    report = again(workspace, retry_failed=True)
    assert report["work"] == NOTHING | {"fetched": 1, "parsed": 1} and not report["published"]


def retry() -> Any:
    from flows.build.diff import DiffOptions

    return DiffOptions(retry_failed=True)


def out_of_order(self: FolderSource, key: str, version: str) -> Any:
    raise OSError(5, "Input/output error")


def test_o62_retry_failed_embeds_what_could_not_be(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    workspace.write("odd.md", "# Odd\n\nIt is zq.\n")
    workspace.flags = {"guards": {"attempts": 1}}
    real = LettersRuntime.encode

    def encode(self: LettersRuntime, batch: Any) -> Any:
        if any("zq" in self._tokenizer.decode(ids).replace(" ##", "") for ids in batch):
            raise RuntimeError("out of order")
        return real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(LettersRuntime, "encode", encode)
        assert workspace.build()["documents"]["failed"] == 1
    assert workspace.build()["work"] == NOTHING
    report = again(workspace, retry_failed=True)
    assert report["documents"]["failed"] == 0 and report["work"]["embedded"] == 1
    assert_equals_a_clean_build(workspace)


def test_o62_a_parked_document_is_tried_again_in_its_turn(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]

    class Clock:
        time = staticmethod(lambda: clock[0])

    monkeypatch.setattr(rereading, "time", Clock)
    fill(workspace)
    workspace.flags = {"guards": {"attempts": 1}}
    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "fetch", lambda self, key, version: None)
        with pytest.raises(GateRefused, match="no document has any text"):
            workspace.build()
    workspace.build()
    workspace.write("new.md", "# New\n\nIt came.\n")
    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "fetch", out_of_order)
        workspace.build()
    assert workspace.build()["work"] == NOTHING
    clock[0] += 31 * rereading.DAY
    report = workspace.build()
    assert report["documents"]["failed"] == 0 and "It came" in shown(workspace, "new.md")


# --- O60, O40: strange names and links


def test_o60_strange_files_are_named_and_end_no_build(workspace: Workspace) -> None:
    fill(workspace)
    docs = workspace.docs
    (docs / "self.md").symlink_to("self.md")
    (docs / ".secret.md").write_text("# Secret\n\nThe word is zebra.\n")
    (docs / "link.md").symlink_to(".secret.md")
    for name in (b"caf\xe9.md", b"caf\\xe9.md"):
        (docs / os.fsdecode(name)).write_bytes(b"# Name\n\nA strange name.\n")
    (docs / ".releases/3").mkdir(parents=True)
    (docs / "current").symlink_to(".releases/3")
    (docs / "twin").symlink_to(".")
    deep = docs
    for _ in range(300):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "end.md").write_text("# End\n\nThe deepest of all.\n")
    os.mkfifo(docs / "pipe.md")
    report = workspace.build()
    said = {one["key"]: (one["status"], one["reason"]) for one in report["failures"]}
    assert {key: status for key, (status, _) in said.items()} == {
        "self.md": "failed",
        "link.md": "failed",
        "caf\\xe9 (2).md": "failed",
        "current": "failed",
        "pipe.md": "failed",
        "twin": "skipped",
    }
    assert "circle" in said["self.md"][1] and "hidden" in said["link.md"][1] and "UTF-8" in said["caf\\xe9 (2).md"][1]
    assert "zebra" not in json.dumps(rows(workspace), default=str)
    assert shown(workspace, "caf\\xe9.md") and shown(workspace, "d/" * 300 + "end.md")
    assert workspace.build()["work"] == NOTHING
    (docs / "link.md").unlink()
    (docs / "self.md").unlink()
    (docs / "self.md").write_text("# Self\n\nNow it is one.\n")
    report = workspace.build()
    assert report["documents"]["removed"] == 1 and report["documents"]["added"] + report["documents"]["changed"] == 1


# --- skipped: types that no adapter reads


def test_o72_what_no_adapter_reads_is_skipped_and_the_build_succeeds(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(workspace)
    for number in range(5):
        workspace.write(f"img/{number}.png", PNG)
    workspace.write("demo.MP4", b"\0\0\0\x18ftypmp42" + bytes(5000))
    workspace.write("core", b"\x7fELF" + bytes(5000))
    report = workspace.build()
    assert report["documents"]["skipped"] == 7 and report["documents"]["failed"] == 0
    assert report["work"]["fetched"] == report["documents"]["added"] + 1, "only what its name does not tell is read"
    said = {one["key"]: one for one in report["failures"]}
    assert said.keys() == {*(f"img/{number}.png" for number in range(5)), "demo.MP4", "core"}
    for key, extension in (("img/0.png", ".png"), ("demo.MP4", ".mp4")):
        assert said[key]["status"] == "skipped" and extension in said[key]["reason"]
        assert "What is read: " in said[key]["reason"] and ".docx" in said[key]["reason"]
    assert report["skipped"] == [
        {"type": ".png", "documents": 5, "example": "img/0.png", "exclude": "*.png"},
        {"type": ".MP4", "documents": 1, "example": "demo.MP4", "exclude": "*.MP4"},
        {"type": "core", "documents": 1, "example": "core", "exclude": "core"},
    ]
    printing.print_build(report, ["drafts/*"])
    out = capsys.readouterr().out
    assert out.count("skipped    ") == 3 and 'exclude = ["*.png"]' in out and "image/png" not in out
    assert 'all of them: exclude = ["drafts/*", "*.png", "*.MP4", "core"]' in out
    assert workspace.build()["work"] == NOTHING
    for path in (workspace.docs / "img").iterdir():
        path.write_bytes(PNG + b"\0")
    (workspace.docs / "core").write_bytes(b"\x7fELF" + bytes(6000))
    (workspace.docs / "demo.MP4").unlink()
    report = workspace.build()
    assert report["documents"]["removed"] == 1
    (workspace.docs / "core").write_bytes(b"\x7fELF" + bytes(7000))
    report = workspace.build()
    assert not report["published"], "what is in no index may change as it likes"
    found = index_status(workspace.settings())
    assert found["documents"] == {"ok": 3, "skipped": 6}
    assert [one["exclude"] for one in found["skipped"]] == ["*.png", "core"]
    workspace.flags = {"exclude": [one["exclude"] for one in found["skipped"]]}
    assert workspace.build()["documents"]["skipped"] == 0
    assert_equals_a_clean_build(workspace)


def test_o72_the_exit_status_is_0_and_3_only_for_what_failed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace)
    workspace.write("a.png", PNG)
    flags = {
        "GRISTMILL_EMBEDDER": "letters",
        "GRISTMILL_RULER": "letters",
        "GRISTMILL_MODELS_DIR": str(workspace.models["models_dir"]),
        "GRISTMILL_MODEL_FILES": json.dumps([str(path) for path in workspace.models["model_files"]]),
        "GRISTMILL_CACHE_DIR": str(workspace.docs.parent / "cache"),
    }
    for name, value in flags.items():
        monkeypatch.setenv(name, value)
    asked = ["build", str(workspace.docs), "--index", str(workspace.index), "--quiet"]
    done = CliRunner().invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["documents"]["skipped"] == 1
    workspace.write("a.docx", b"no document")
    done = CliRunner().invoke(app, [*asked, "--json"])
    report = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == 3 and [one["key"] for one in report["failures"]] == ["a.docx", "a.png"]
    assert (report["documents"]["failed"], report["documents"]["skipped"]) == (1, 1)
    for flag in ("--reread", "--retry-failed"):
        assert CliRunner().invoke(app, [*asked, flag]).exit_code == 3


def test_o68_skipped_documents_leave_the_guard_of_failures(workspace: Workspace) -> None:
    for number in range(33):
        workspace.write(f"mail/{number}.msg", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    fill(workspace, 2)
    assert workspace.build()["checks"]["failures"] == "0 of 2 failed"
    workspace.write("broken.md", PNG)
    workspace.write("torn.md", PNG)
    workspace.write("odd.md", PNG)
    with pytest.raises(GateRefused, match="3 of 5 documents failed"):
        workspace.build(guards={"failed_count": 2})


def claim(monkeypatch: pytest.MonkeyPatch, extension: str, kind: str) -> None:
    """Have the text adapter read a further type."""
    adapters = tuple(
        Adapter(**{
            name: getattr(one, name)
            for name in ("name", "version", "libraries", "module", "by_type", "text")
        } | {"media_types": {**one.media_types, extension: kind}}) if one.name == "text" else one
        for one in registry.ADAPTERS
    )  # fmt: skip
    monkeypatch.setattr(registry, "ADAPTERS", adapters)
    monkeypatch.setattr(registry, "_BY_EXTENSION", registry._BY_EXTENSION | {extension: kind})
    monkeypatch.setattr(registry, "_BY_TYPE", {k: one for one in adapters for k in one.media_types.values()})


@pytest.mark.parametrize(("key", "kind"), [("a.svg", "image/svg+xml"), ("a.frob", "text/x-frob")])
def test_skipped_documents_are_read_once_an_adapter_claims_their_type(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, key: str, kind: str
) -> None:
    """Whether their name tells their type today or not."""
    fill(workspace)
    workspace.write(key, b"<svg>The word is zebra.</svg>" if key == "a.svg" else b"zebra" + bytes(300))
    assert workspace.build()["documents"]["skipped"] == 1
    with monkeypatch.context() as patch:
        claim(patch, Path(key).suffix, kind)
        if key == "a.frob":  # its adapter makes a text of it
            patch.setattr(parsing, "read", lambda key, data: read(key, data.replace(b"\0", b"")))
            patch.setattr(registry, "binary_kind", lambda data: None)
        report = workspace.build()
        assert report["documents"]["skipped"] == 0 and report["documents"]["changed"] == 1
        assert "zebra" in shown(workspace, key)
        assert workspace.build()["work"] == NOTHING
    report = workspace.build()  # the adapter is given up again: what it read stays, and is named
    assert report["documents"]["skipped"] == 1 and report["failures"][0]["key"] == key
    assert "the index keeps its last good version" in report["failures"][0]["reason"]
    assert "zebra" in shown(workspace, key)
    assert workspace.build()["work"] == NOTHING


def test_a_document_that_becomes_a_picture_keeps_its_rows_and_is_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(workspace)
    workspace.write("logo", "The logo shows a zebra.\n")
    workspace.build()
    workspace.write("logo", PNG)
    report = workspace.build()
    assert report["documents"]["skipped"] == 1 and "zebra" in shown(workspace, "logo")
    printing.print_build(report)
    out = capsys.readouterr().out
    assert "skipped    logo: no adapter reads a file without an extension" in out and "keeps its last good" in out
    assert workspace.build()["work"] == NOTHING
    (workspace.docs / "logo").unlink()
    workspace.build()
    assert shown(workspace, "logo") == ""


def test_rows_of_old_catalogs_that_say_unsupported_read_as_skipped(workspace: Workspace) -> None:
    fill(workspace)
    workspace.write("a.png", PNG)
    workspace.write("core", b"\x7fELF" + bytes(500))
    workspace.build()
    table = Storage(str(workspace.index)).tables(published(workspace.settings())[1].generation).open_table("documents")
    table.update(where="status = 'skipped'", values={"status": "unsupported", "version": "208:1", "attempts": 3})
    assert set(table.to_arrow()["status"].to_pylist()) == {"ok", "unsupported"}
    storage, pointer = published(workspace.settings())
    storage.publish(msgspec.structs.replace(pointer, documents_version=table.version))
    assert index_status(workspace.settings())["documents"] == {"ok": 3, "skipped": 2}
    planned = plan_build(workspace.settings())["documents"]
    assert planned["skipped"] == 1 and planned["add"] == planned["remove"] == 0
    report = workspace.build()
    assert report["documents"]["skipped"] == 2 and report["documents"]["unchanged"] == 5
    assert workspace.build()["work"] == NOTHING


def test_o68_status_goes_on_while_files_vanish(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    workspace.build()
    passing = workspace.index / "scratch/passing"
    real = os.walk

    def walk(*given: Any, **named: Any) -> Iterator[Any]:
        passing.mkdir(parents=True, exist_ok=True)
        (passing / "a").write_text("x")
        for found in real(*given, **named):
            yield found
            if Path(found[0]).name == "scratch":
                shutil.rmtree(passing, ignore_errors=True)
            if passing.exists() and found[0] == str(passing):
                shutil.rmtree(passing)

    monkeypatch.setattr(os, "walk", walk)
    assert index_status(workspace.settings())["bytes"] > 0
