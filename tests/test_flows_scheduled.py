"""Scheduled runs: their outcomes, the notices that tell them, and the deployments that start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Workspace
from notice_server import Receiver, receiving
from typer.testing import CliRunner

from flows import notifications
from flows.cli.app import app
from flows.maintenance import kept_revisions
from flows.opening import open_storage
from flows.searching import published
from flows.settings import Settings, load_settings
from flows.sources.folder import FolderSource
from parsers.errors import GateRefused, IndexBusy, SourceError, UsageError

TOKEN = "a-secret-token"
NAMES = ("valve", "gauge", "pump", "seal")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


class Site:
    """A folder with documents and a settings file, and the concurrency limit of its index in Prefect."""

    def __init__(self, workspace: Workspace, notify_url: str) -> None:
        self.workspace = workspace
        self.folder = workspace.docs.parent
        self.config = self.folder / "gristmill.toml"
        self.configure(notify_url=notify_url, state_dir=str(self.folder / "state"), busy_seconds=20.0)
        for name in NAMES:
            workspace.write(f"{name}.md", f"# The {name}\n\nThe {name} is cold. It is dry and slow.\n")

    def configure(self, **more: Any) -> None:
        """Write settings besides those there are."""
        self.workspace.flags |= more
        settings = self.workspace.settings()
        given = settings.model_dump(mode="json", exclude_unset=True) | {"notify_url": settings.notify_url}
        self.config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))

    @property
    def settings(self) -> Settings:
        return load_settings(self.config)

    def nightly(self, **named: Any) -> dict[str, Any]:
        from flows.orchestration import scheduled

        return scheduled.nightly(str(self.config), **named)


@pytest.fixture
def bare_site(workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site of which Prefect knows nothing."""
    monkeypatch.setenv("GRISTMILL_NOTIFY_TOKEN", TOKEN)
    monkeypatch.setattr(notifications, "_PAUSE", 0.01)
    return Site(workspace, receiver.url)


@pytest.fixture
def site(bare_site: Site, prefect: None, monkeypatch: pytest.MonkeyPatch) -> Site:
    from prefect.client.orchestration import get_client

    from flows.orchestration import deployments, prefect_flows, scheduled

    monkeypatch.setattr(prefect_flows, "_tasks", {})
    monkeypatch.setattr(prefect_flows, "RETRIES", 0)  # of the tasks; here are those of the whole run
    monkeypatch.setattr(scheduled, "OUTAGE_PAUSES", [0.0, 0.0])
    monkeypatch.setattr(scheduled, "BUSY_PAUSE", 0.1)
    with get_client(sync_client=True) as client:
        deployments._ensure_limit(client, scheduled.limit_name(bare_site.settings))
    return bare_site


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[SourceError]]:
    """The listings of the source so far, and the errors that the next ones raise."""
    tries: list[int] = []
    errors: list[SourceError] = []
    listing = FolderSource.objects

    def counted(self: FolderSource) -> Any:
        tries.append(1)
        if errors:
            raise errors.pop(0)
        return listing(self)

    monkeypatch.setattr(FolderSource, "objects", counted)
    return tries, errors


def remove_most(site: Site) -> None:
    for name in NAMES[:3]:
        (site.workspace.docs / f"{name}.md").unlink()


# What a run comes to


def test_a_nightly_run_publishes_and_is_silent(site: Site, receiver: Receiver) -> None:
    report = site.nightly()
    assert report["published"] and published(site.settings)[1].counts["documents"] == 4
    assert receiver.notices == []
    assert not site.nightly()["published"]  # nothing changed: it completes as well
    assert receiver.notices == []


def test_documents_that_fail_do_not_fail_the_run(site: Site, receiver: Receiver) -> None:
    site.workspace.write("broken.docx", b"PK\x03\x04 no zip")
    report = site.nightly()
    assert report["published"] and report["documents"]["failed"] == 1
    assert receiver.notices == []


def test_a_refusal_fails_without_a_retry_and_is_told_once_and_so_is_the_recovery(
    site: Site, receiver: Receiver, listings: tuple[list[int], list[SourceError]]
) -> None:
    site.nightly()
    listings[0].clear()
    remove_most(site)
    with pytest.raises(GateRefused):
        site.nightly()
    assert len(listings[0]) == 1
    (notice,) = receiver.notices
    assert (notice["kind"], notice["index"]) == ("refused", site.settings.index)
    assert notice["details"]["exit_status"] == 4 and "allow-deletes" in notice["details"]["remedy"]
    assert datetime.fromisoformat(notice["at"]).tzinfo is not None
    site.nightly(allow_deletes=True)
    site.nightly()
    assert receiver.kinds == ["refused", "recovered"]
    assert receiver.notices[1]["details"]["was"] == "refused"
    assert set(receiver.tokens) == {f"Bearer {TOKEN}"}


def test_a_hold_is_told_as_such(site: Site, receiver: Receiver) -> None:
    site.nightly()
    site.workspace.write("valve.md", "# The valve\n\nThe valve is warm now.\n")
    site.nightly()
    kept_revisions.rollback(site.settings, None)
    with pytest.raises(GateRefused, match="publishing is held"):
        site.nightly()
    assert receiver.kinds == ["held"]


def test_an_outage_is_tried_again(
    site: Site, receiver: Receiver, listings: tuple[list[int], list[SourceError]]
) -> None:
    away = SourceError("the store did not answer", "Try again.", transient=True)
    listings[1].extend([away, away])
    assert site.nightly()["published"]
    assert len(listings[0]) == 3 and receiver.notices == []


def test_an_outage_that_lasts_fails_in_the_end(
    site: Site, receiver: Receiver, listings: tuple[list[int], list[SourceError]]
) -> None:
    listings[1].extend([SourceError("the store did not answer", "Try again.", transient=True)] * 9)
    with pytest.raises(SourceError, match="did not answer"):
        site.nightly()
    assert len(listings[0]) == 3 and receiver.kinds == ["failed"]


def test_a_lasting_error_is_not_tried_again(
    site: Site, receiver: Receiver, listings: tuple[list[int], list[SourceError]]
) -> None:
    listings[1].append(SourceError("there is no such folder", "Check the path."))
    with pytest.raises(SourceError, match="no such folder"):
        site.nightly()
    assert len(listings[0]) == 1 and receiver.kinds == ["failed"]
    assert "no such folder" in receiver.notices[0]["title"]


def test_a_busy_index_is_waited_for(site: Site, receiver: Receiver) -> None:
    storage, held, free = open_storage(site.settings), threading.Event(), threading.Event()
    storage.create()

    def hold() -> None:
        with storage.lock():
            held.set()
            free.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(10)
    release = threading.Timer(2.0, free.set)
    release.start()
    began = time.monotonic()
    assert site.nightly()["published"]
    assert time.monotonic() - began > 1.5 and receiver.notices == []
    other.join()


def test_an_index_that_stays_busy_fails_the_run(site: Site, receiver: Receiver) -> None:
    site.configure(busy_seconds=0.5)
    storage = open_storage(site.settings)
    storage.create()
    with storage.lock(), pytest.raises(IndexBusy):
        site.nightly()
    assert receiver.kinds == ["failed"] and receiver.notices[0]["details"]["exit_status"] == 5


def test_runs_of_one_index_do_not_overlap(site: Site, receiver: Receiver) -> None:
    from prefect.concurrency.sync import concurrency

    from flows.orchestration import scheduled

    site.configure(busy_seconds=1.0)
    with concurrency(scheduled.limit_name(site.settings), strict=True), pytest.raises(IndexBusy, match="another flow"):
        site.nightly()
    assert receiver.kinds == ["failed"]
    assert site.nightly()["published"]


def test_without_the_limit_a_run_says_how_to_create_it(bare_site: Site, prefect: None, receiver: Receiver) -> None:
    with pytest.raises(UsageError, match="no concurrency limit gristmill-index-") as refused:
        bare_site.nightly()
    assert "gristmill deploy" in refused.value.remedy and receiver.kinds == ["failed"]


def test_maintenance_runs_as_flows(site: Site, receiver: Receiver) -> None:
    from flows.orchestration import scheduled

    config = str(site.config)
    site.nightly()
    assert scheduled.scheduled_verify(config)["whole"]
    assert "revisions_given_up" in scheduled.scheduled_sweep(config)
    with pytest.raises(UsageError, match="no golden set"):
        scheduled.evaluation(config)
    question = {"id": "q1", "question": "What is the valve?", "spans": [{"doc": "valve.md", "quote": "valve is cold"}]}
    (site.folder / "golden.jsonl").write_text(json.dumps(question) + "\n")
    site.configure(golden=str(site.folder / "golden.jsonl"))
    assert scheduled.evaluation(config)["record"]
    with pytest.raises(UsageError, match="is made with letters already"):
        scheduled.reindex_on_demand("letters", config=config)
    file = next(path for path in site.workspace.index.rglob("*.lance") if path.is_file())
    data = bytearray(file.read_bytes())
    data[50] ^= 1
    file.write_bytes(data)
    with pytest.raises(GateRefused, match="verify found"):
        scheduled.scheduled_verify(config)
    assert receiver.kinds == ["failed", "recovered", "failed", "refused"]


def test_a_run_that_takes_too_long_is_ended_and_told(
    site: Site, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.configure(timeout_seconds=1.0)
    monkeypatch.setattr(FolderSource, "objects", lambda _: [time.sleep(0.1) for _ in range(300)])
    with pytest.raises(TimeoutError):
        site.nightly()
    assert receiver.kinds == ["failed"]


# A nightly build that does not run


def test_a_missed_nightly_is_told_once(site: Site, receiver: Receiver) -> None:
    from flows.orchestration import scheduled

    now = datetime.now(UTC)
    assert not notifications.check_missed(site.settings, now)  # from here on it is watched
    assert not notifications.check_missed(site.settings, now + timedelta(hours=25))
    assert notifications.check_missed(site.settings, now + timedelta(hours=27))
    assert not notifications.check_missed(site.settings, now + timedelta(hours=28))
    assert not notifications.check_missed(site.settings, now + timedelta(hours=99))
    assert receiver.kinds == ["missed"]
    site.nightly()
    assert scheduled.watch(str(site.config)) is False
    assert notifications.check_missed(site.settings, datetime.now(UTC) + timedelta(hours=27))
    assert receiver.kinds == ["missed", "missed"]
    assert receiver.notices[1]["details"]["hours"] == pytest.approx(27, abs=0.2)


def test_a_nightly_that_failed_is_not_missed(bare_site: Site, receiver: Receiver) -> None:
    notifications.record_outcome(bare_site.settings, "nightly", "failed", "it failed", {})
    assert not notifications.check_missed(bare_site.settings, datetime.now(UTC) + timedelta(hours=25))
    assert receiver.kinds == ["failed"]


# Notices


def test_a_notice_is_tried_three_times(bare_site: Site, receiver: Receiver) -> None:
    receiver.answers += [503, 500]
    assert notifications.notify(bare_site.settings, "failed", "a title", {"path": Path("a")})
    assert receiver.notices[0]["details"] == {"path": "a"} and len(receiver.tokens) == 3


@pytest.mark.parametrize(("answers", "tries"), [([500] * 5, 3), ([404] * 5, 1), ([302] * 5, 1)])
def test_a_receiver_that_refuses_fails_nothing_and_its_address_stays_hidden(
    bare_site: Site, receiver: Receiver, capsys: pytest.CaptureFixture[str], answers: list[int], tries: int
) -> None:
    receiver.answers += answers
    assert not notifications.notify(bare_site.settings, "failed", "a title", {})
    told = capsys.readouterr().err
    assert f"status {answers[0]}" in told and "127.0.0.1" in told and len(receiver.tokens) == tries
    assert "secret" not in told + repr(bare_site.settings)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/secret", "not an address/secret", "http://[secret"])
def test_a_receiver_that_is_away_fails_nothing(bare_site: Site, capsys: pytest.CaptureFixture[str], url: str) -> None:
    bare_site.configure(notify_url=url)
    assert not notifications.notify(bare_site.settings, "failed", "a title", {})
    told = capsys.readouterr().err
    assert "could not be sent" in told and "secret" not in told


def test_the_environment_names_the_receiver(
    bare_site: Site, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_site.configure(notify_url="http://127.0.0.1:1/")
    monkeypatch.setenv("GRISTMILL_NOTIFY_URL", receiver.url)
    assert notifications.notify(bare_site.settings, "staged", "a title", {})
    assert receiver.kinds == ["staged"]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"failed", b"foiled"))


def block(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [damage, block])
def test_outcomes_that_cannot_be_read_fail_nothing(
    bare_site: Site, receiver: Receiver, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None]
) -> None:
    notifications.record_outcome(bare_site.settings, "nightly", "failed", "it failed", {})
    harm(notifications.outcomes_file(bare_site.settings))
    notifications.record_outcome(bare_site.settings, "nightly", "completed", "it completed", {})
    assert receiver.kinds == ["failed"]
    assert "warning: " in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_made_fails_nothing(bare_site: Site, receiver: Receiver) -> None:
    bare_site.configure(state_dir=str(bare_site.config / "state"))
    notifications.record_outcome(bare_site.settings, "nightly", "failed", "it failed", {})
    assert receiver.kinds == ["failed"]


# Deployments


@pytest.fixture
def api(prefect: None, monkeypatch: pytest.MonkeyPatch) -> str:
    from prefect.settings import PREFECT_API_URL

    url = str(PREFECT_API_URL.value())
    monkeypatch.setenv("PREFECT_API_URL", url)
    return url


def deployed(*flags: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["deploy", "--json", *flags])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def registered(found: dict[str, Any]) -> dict[str, Any]:
    """What Prefect holds of these deployments, without times of change."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        known = {
            one["name"]: client.read_deployment_by_name(one["name"]).model_dump(mode="json")
            for one in found["deployments"]
        }
        limit = client.read_global_concurrency_limit_by_name(found["concurrency_limit"]).model_dump(mode="json")
        pool = client.read_work_pool(found["pool"]).model_dump(mode="json")
    for one in known.values():
        one["pull_steps"] = one["pull_steps"] or None  # none at all, either way
        one["schedules"] = [{k: v for k, v in each.items() if k != "updated"} for each in one["schedules"]]
    changing = {"updated", "last_polled", "status", "version_id", "version_info", "version", "description"}
    parts = known | {"limit": limit, "pool": pool}
    return {name: {k: v for k, v in one.items() if k not in changing} for name, one in parts.items()}


@pytest.fixture
def clear(api: str) -> Iterator[None]:
    """No deployment of another test."""
    from prefect.client.orchestration import get_client

    yield
    with get_client(sync_client=True) as client:
        for one in client.read_deployments():
            client.delete_deployment(one.id)


def test_deploy_twice_changes_nothing_and_prefect_yaml_says_the_same(bare_site: Site, clear: None) -> None:
    found = deployed()
    first = registered(found)
    assert deployed() == found
    again = registered(found)
    for name in first:
        assert {field: value for field, value in again[name].items() if first[name][field] != value} == {}, name
    assert first["limit"]["limit"] == 1 and first["pool"]["type"] == "process"
    nightly = first["gristmill-nightly/nightly"]
    assert nightly["parameters"] == {"config": str(bare_site.config)}
    assert nightly["global_concurrency_limit"]["limit"] == 1
    assert nightly["job_variables"] == {"working_dir": str(bare_site.folder)}
    said = yaml.safe_load((ROOT / "infra/prefect.yaml").read_text().replace("{{ $PWD }}", str(bare_site.folder)))
    assert [
        (
            one["name"].split("/")[1],
            one["entrypoint"],
            [one["schedule"]] if one["schedule"] else [],
            one["parameters"],
            found["pool"],
        )
        for one in found["deployments"]
    ] == [
        (
            one["name"],
            one["entrypoint"],
            [{k: each[k] for k in ("cron", "timezone")} for each in one.get("schedules", [])],
            one["parameters"],
            one["work_pool"]["name"],
        )
        for one in said["deployments"]
    ]


@pytest.mark.slow
def test_prefect_deploy_registers_what_gristmill_deploy_does(bare_site: Site, clear: None, api: str) -> None:
    found = deployed()
    first = registered(found)
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file"]
    subprocess.run(
        [*command, str(ROOT / "infra/prefect.yaml")],
        check=True,
        cwd=bare_site.folder,
        env=os.environ | {"PWD": str(bare_site.folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    again = registered(found)
    for name in first:
        assert {field: value for field, value in again[name].items() if first[name][field] != value} == {}, name


def test_the_schedule_of_the_nightly_build_can_be_chosen(bare_site: Site, clear: None) -> None:
    found = deployed("--cron", "30 1 * * *", "--timezone", "Europe/Berlin", "--pool", "other", "--name", "books")
    assert found["pool"] == "other"
    schedules = {one["name"]: one["schedule"] for one in found["deployments"]}
    assert schedules["gristmill-nightly/books-nightly"] == {"cron": "30 1 * * *", "timezone": "Europe/Berlin"}
    assert schedules["gristmill-watch/books-watch"] == {"cron": "0 * * * *", "timezone": "Europe/Berlin"}


@pytest.mark.parametrize("flags", [["--cron", "every night"], ["--timezone", "Mars/Olympus"]])
def test_a_wrong_schedule_is_named(bare_site: Site, api: str, flags: list[str]) -> None:
    done = CliRunner().invoke(app, ["deploy", "--json", *flags])
    assert done.exit_code == 2 and flags[1] in json.loads(done.stdout.splitlines()[-1])["error"]


def test_deployments_of_another_settings_file_are_not_replaced(bare_site: Site, clear: None) -> None:
    deployed()
    other = bare_site.folder / "other.toml"
    other.write_bytes(bare_site.config.read_bytes())
    done = CliRunner().invoke(app, ["deploy", "--json", "--config", str(other)])
    assert done.exit_code == 2 and str(bare_site.config) in json.loads(done.stdout.splitlines()[-1])["error"]
    deployed("--config", str(other), "--name", "other")


def test_deploy_without_an_api_is_refused(bare_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    done = CliRunner().invoke(app, ["deploy", "--json"])
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == 2 and "no Prefect API" in said["error"] and "prefect server start" in said["remedy"]


def test_deploy_to_an_api_that_is_away_is_refused(bare_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    address = "http://127.0.0.1:1/api"
    monkeypatch.setenv("PREFECT_API_URL", address)
    with temporary_settings({PREFECT_API_URL: address}):
        done = CliRunner().invoke(app, ["deploy", "--json"])
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.exit_code == 2 and said["transient"] and address in said["error"]


# Runs that Prefect starts itself, on a real server

INTERVAL = """
import sys
from prefect import serve
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType
from flows.orchestration.scheduled import watch

every = DeploymentScheduleCreate(schedule=IntervalSchedule(interval=10.0))
kind = EntrypointType.MODULE_PATH
made = RunnerDeployment.from_flow(
    watch, name="often", schedules=[every], parameters={"config": sys.argv[1]}, entrypoint_type=kind
)
serve(made, pause_on_shutdown=False, limit=1)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Prefect server with its services; the environment of its clients."""
    import httpx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("prefect")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_SERVER_DATABASE")}
    environment |= {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/api/health").raise_for_status()
                    break
                except httpx.HTTPError:
                    assert time.monotonic() < deadline and process.poll() is None, (home / "log").read_text()
                    time.sleep(0.5)
            yield environment
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> int:
    """Stop a process; return its status."""
    process.terminate()
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def gristmill(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from flows.cli import main; main()", *arguments]


def until_told(receiver: Receiver, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while not receiver.notices:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.5)
    assert receiver.kinds == ["missed"]


@pytest.mark.slow
def test_the_schedule_of_a_deployment_fires(bare_site: Site, receiver: Receiver, server: dict[str, str]) -> None:
    notifications.check_missed(bare_site.settings, datetime.now(UTC) - timedelta(hours=27))
    command = [sys.executable, "-c", INTERVAL, str(bare_site.config)]
    environment = server | {"GRISTMILL_NOTIFY_TOKEN": TOKEN}
    with subprocess.Popen(command, env=environment, cwd=bare_site.folder) as process:
        try:
            until_told(receiver, process)
        finally:
            end(process)
    assert receiver.tokens[0] == f"Bearer {TOKEN}"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["serve", "worker"])
def test_deployed_flows_run_where_they_are_told_to(
    bare_site: Site, receiver: Receiver, server: dict[str, str], by: str
) -> None:
    notifications.check_missed(bare_site.settings, datetime.now(UTC) - timedelta(hours=27))
    if by == "worker":
        command = gristmill("deploy", "--name", by, "--json")
        done = subprocess.run(command, env=server, cwd=bare_site.folder, check=True, capture_output=True)
        assert json.loads(done.stdout)["pool"] == "gristmill"
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gristmill"]
    else:
        command = gristmill("deploy", "--name", by, "--serve", "--json")
    elsewhere = bare_site.folder if by == "serve" else bare_site.workspace.docs
    with subprocess.Popen(command, env=server, cwd=elsewhere, stdout=subprocess.PIPE) as process:
        try:
            if by == "serve":
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["pool"] is None
                time.sleep(8)
            run = [sys.executable, "-m", "prefect", "deployment", "run", f"gristmill-watch/{by}-watch"]
            subprocess.run(run, env=server, check=True, capture_output=True)
            until_told(receiver, process)
        finally:
            status = end(process)
    assert status == 0
