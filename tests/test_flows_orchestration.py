"""Both ways to run a build: by itself, and as a Prefect flow."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from comparing import rows_of
from conftest import Workspace
from typer.testing import CliRunner

from flows.build import build as plain
from flows.build.build import BuildOptions
from flows.cli.app import app
from flows.orchestration import choice
from flows.searching import published
from flows.sources.folder import FolderSource
from parsers.errors import GateRefused, SourceError, UsageError

WAYS = ["none", "prefect"]


def scenario(workspace: Workspace) -> list[dict[str, Any]]:
    """Add, fail, edit, move, refuse and remove; the report of each build, or what refused it."""
    reports: list[dict[str, Any]] = []

    def build(**asked: Any) -> None:
        try:
            reports.append(workspace.build(**asked))
        except GateRefused as refusal:
            reports.append({"refused": refusal.message, "checks": refusal.checks})

    for name in ("valve", "gauge", "pump", "seal"):
        workspace.write(f"{name}.md", f"# The {name}\n\nThe {name} is cold. It is dry and slow.\n")
    workspace.write("broken.docx", b"PK\x03\x04 no zip")
    build(notes="extractive")
    build(notes="extractive")
    workspace.write("valve.md", "# The valve\n\nThe valve is warm now.\n")
    (workspace.docs / "gauge.md").rename(workspace.docs / "dial.md")
    build(notes="extractive")
    for name in ("valve", "dial", "pump"):
        (workspace.docs / f"{name}.md").unlink()
    build(notes="extractive")
    build(notes="extractive", allow_deletes=True)
    return reports


def test_both_ways_give_the_same_index_and_the_same_report(workspace: Workspace, prefect: None) -> None:
    found: dict[str, Any] = {}
    for way in WAYS:
        workspace.orchestrator, workspace.index = way, workspace.docs.parent / f"index-{way}"
        workspace.flags = {"cache_dir": workspace.docs.parent / f"cache-{way}"}
        shutil.rmtree(workspace.models["models_dir"] / ".probes", ignore_errors=True)
        for path in workspace.docs.iterdir():
            path.unlink()
        reports = scenario(workspace)
        for report in reports:
            report.pop("seconds", None)
            report.pop("generation", None)
        found[way] = (reports, rows_of(*published(workspace.settings())))
    assert found["none"] == found["prefect"]
    reports = found["none"][0]
    assert [report.get("published") for report in reports] == [True, False, True, None, True]


@pytest.mark.parametrize("way", WAYS)
def test_a_listing_that_fails_once_is_tried_again_by_prefect_alone(
    workspace: Workspace, prefect: None, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    from flows.orchestration import prefect_flows

    tries: list[int] = []
    listing = FolderSource.objects

    def fails_once(self: FolderSource) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise SourceError("the store did not answer", "Try again.", transient=True)
        return listing(self)

    monkeypatch.setattr(FolderSource, "objects", fails_once)
    monkeypatch.setattr(prefect_flows, "RETRY_SECONDS", [0.0])
    workspace.orchestrator = way
    workspace.write("valve.md", "# The valve\n\nIt is cold.\n")
    if way == "none":
        with pytest.raises(SourceError, match="did not answer"):
            workspace.build()
    else:
        report = workspace.build()
        assert report["published"] and report["documents"]["added"] == 1
        assert len(tries) == 2


def test_an_error_that_will_not_pass_is_not_tried_again(
    workspace: Workspace, prefect: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def fails(self: FolderSource) -> Any:
        tries.append(1)
        raise SourceError("there is no such folder", "Check the path.")

    monkeypatch.setattr(FolderSource, "objects", fails)
    workspace.orchestrator = "prefect"
    with pytest.raises(SourceError, match="no such folder"):
        workspace.build()
    assert len(tries) == 1


def test_prefect_without_an_api_is_refused_with_the_remedy(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(UsageError, match="no Prefect API is configured") as refused:
        choice.run_build(workspace.settings(orchestrator="prefect"), BuildOptions(quiet=True))
    assert "prefect server start" in refused.value.remedy


def test_a_prefect_api_that_is_away_is_named_before_any_work(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = "http://127.0.0.1:1/api"
    monkeypatch.setenv("PREFECT_API_URL", address)
    workspace.write("valve.md", "# The valve\n\nIt is cold.\n")
    with (
        temporary_settings({PREFECT_API_URL: address}),
        pytest.raises(UsageError, match=f"the Prefect API at {address} does not answer") as refused,
    ):
        choice.run_build(workspace.settings(), BuildOptions(quiet=True))
    assert refused.value.transient and "--orchestrator none" in refused.value.remedy
    assert not (workspace.index / "pointer.json").exists()


@pytest.mark.parametrize(
    ("setting", "api", "uses"),
    [
        ("auto", "", False),
        ("auto", "http://127.0.0.1:1/api", True),
        ("none", "http://127.0.0.1:1/api", False),
        ("prefect", "http://127.0.0.1:1/api", True),
    ],
)
def test_prefect_runs_builds_where_an_api_is_configured(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, setting: str, api: str, uses: bool
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", api)
    assert choice.uses_prefect(workspace.settings(orchestrator=setting)) is uses


def test_the_command_runs_a_flow_with_its_tasks(
    workspace: Workspace, prefect: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.settings import PREFECT_API_URL

    monkeypatch.setenv("PREFECT_API_URL", PREFECT_API_URL.value())
    workspace.write("valve.md", "# The valve\n\nIt is cold.\n")
    given = workspace.settings().model_dump(mode="json", exclude_unset=True)
    Path("gristmill.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    done = CliRunner().invoke(app, ["build", "--quiet", "--json", "--orchestrator", "prefect"])
    assert done.exit_code == 0, done.output
    with get_client(sync_client=True) as client:
        last = client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0]
        assert last.state is not None and last.state.is_completed()
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[last.id])))
    names = {one.name.rsplit("-", 1)[0] for one in tasks}
    assert names == {"list_documents", "fetch", "parse", "chunk", "note", "embed", "write", "pass_gates", "publish"}
    assert {tag for one in tasks for tag in one.tags} == {f"gristmill-{name}" for name in names}


def test_a_build_without_prefect_does_not_import_it(workspace: Workspace) -> None:
    import subprocess
    import sys

    code = "import sys; import flows.build.build, flows.build.reindex; assert 'prefect' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(plain.__file__).parents[2])
