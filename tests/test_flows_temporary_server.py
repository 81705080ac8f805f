"""Prefect's temporary server ends with the command that started it, however that ends; one left behind is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from flows.orchestration import temporary_server

# Stands for uvicorn: it says that it runs and waits to be told to stop.
SERVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("runs", sys.argv[1:], flush=True)
time.sleep(300)
"""
STARTER = """
import sys, time
from flows.orchestration.temporary_server import _Apart
child = _Apart().Popen([sys.executable, "-m", "standin", "--port", "1", "prefect.server.api.server:create_app"])
print(child.pid, flush=True)
time.sleep(300)
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def gone(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and alive(pid):
        time.sleep(0.1)
    return not alive(pid)


def start(folder: Path, code: str, **environment: str) -> tuple[subprocess.Popen[str], list[str]]:
    (folder / "standin.py").write_text(SERVER)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"} | environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, sorted([process.stdout.readline(), process.stdout.readline()])


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT])
def test_a_server_ends_with_the_command_that_started_it(tmp_path: Path, number: int) -> None:
    process, (pid, runs) = start(tmp_path, STARTER)
    try:
        assert runs == "runs ['--port', '1', 'prefect.server.api.server:create_app']\n"
        time.sleep(1.5)
        assert alive(int(pid)) and os.getpgid(int(pid)) == int(pid) != os.getpgid(process.pid)
        os.kill(process.pid, number)
        process.wait()
        assert gone(int(pid), 20)
    finally:
        process.kill()
        process.communicate()


ORPHAN = """
import os, subprocess, sys, time
code = "import time; print('runs', flush=True); time.sleep(300)"
child = subprocess.Popen(
    [sys.executable, "-c", code, "prefect.server.api.server:create_app"],
    env=os.environ | {"PREFECT__SERVER_EPHEMERAL": sys.argv[1]} if len(sys.argv) > 1 else None,
    start_new_session=True,
)
print(child.pid, flush=True)
"""


@linux
@pytest.mark.parametrize(
    ("ephemeral", "home", "found"), [("1", "own", True), ("", "own", False), ("1", "other", False)]
)
def test_a_server_left_without_a_parent_is_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ephemeral: str, home: str, found: bool
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "own"))
    code = ORPHAN.replace("sys.argv[1]", repr(ephemeral)).replace("if len(sys.argv) > 1 else None", "")
    process, lines = start(tmp_path, code, PREFECT_HOME=str(tmp_path / home))
    pid = int(next(line for line in lines if line.strip().isdigit()))
    try:
        process.wait()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        if parent != 1:
            pytest.skip("orphans have another parent than process 1 here")
        assert list(temporary_server.orphans()) == ([pid] if found else [])
    finally:
        os.kill(pid, signal.SIGKILL)
        process.communicate()
