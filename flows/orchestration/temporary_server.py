"""Prefect's temporary server: out of reach of Ctrl-C, and gone with the command that started it.

Invariants:

- What a terminal sends to its whole process group does not end the temporary server before the flow that reports to
  it: a flow that had lost its server tried it for more than a minute and ended with the server's error. So the server
  gets a group of its own, and Prefect ends it when the command ends.
- A server ends by itself some seconds after its command was killed, however that was killed: it looks for its parent.
- A server that an earlier version left without a parent is ended at the next start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from flows.settings import has_prefect_server

_APPLICATION: Final = "prefect.server.api.server:create_app"
_TEMPORARY: Final = b"PREFECT__SERVER_EPHEMERAL=1"  # in the environment of a server that Prefect starts for one flow
# Runs uvicorn in this process, which ends when its parent is another one than at first.
_WATCHED: Final = """
import os, runpy, signal, sys, threading, time
parent = int(sys.argv.pop(1))
def watch():
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class _Apart:
    """Proxy for `subprocess` that starts servers in a process group of their own, watching their parent."""

    @staticmethod
    def Popen(args: list[str], **options: Any) -> subprocess.Popen[Any]:
        if args[1:2] == ["-m"]:
            args = [args[0], "-c", _WATCHED, str(os.getpid()), *args[2:]]
        return subprocess.Popen(args, process_group=0, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


def keep_apart() -> None:
    """Have Prefect start its server so, where a flow will need one; to be called before the flow.

    Prefect has no setting for it, and loads what is loaded here for any flow without a server of the user's.
    """
    if has_prefect_server():
        return
    from prefect.server.api import server

    server.subprocess = _Apart()  # type: ignore[attr-defined, assignment]
    for pid in orphans():
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:  # gone meanwhile
            continue


def orphans() -> Iterator[int]:
    """Temporary servers of this user's builds that have lost their parent; none where the system has no ``/proc``."""
    home = b"PREFECT_HOME=" + os.fsencode(os.environ.get("PREFECT_HOME", ""))
    if not sys.platform.startswith("linux") or os.getpid() == 1:  # the parent of its own server is process 1 then
        return
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            if _APPLICATION.encode() not in command.split(b"\0"):
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):  # gone meanwhile, or another user's
            continue
        if parent == 1 and _TEMPORARY in environment and home in environment:
            yield int(folder.name)
