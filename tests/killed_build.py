"""A process whose children are there to be killed. It imports what a build needs, which takes seconds, and then forks.

Each line of JSON on its standard input makes a child: ``do`` (``build`` or ``read``), ``settings``, ``environment``; of
a build also ``embedded`` (the file to note in what is embedded), ``flush`` (texts embedded before they are remembered)
and ``lease`` (seconds); of a reader ``seen`` (the file to note in what was found). It forks before it has done
anything, so a child is as good as a new process.

Its standard output says what becomes of each child: ``forked PID``, ``begun PID`` once a build holds the index, ``done
PID`` when it is finished, ``gone PID STATUS`` when the process has ended, and ``failed PID`` with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    from flows.settings import prepare_environment

    prepare_environment()

import prefect.client.orchestration
import prefect.events.clients  # noqa: F401 - what a flow loads at its first run
import pytest
from comparing import rows_of
from fakes import LettersRuntime

from enrich.embedding.embedder import TEXTS_IN_WINDOW
from enrich.embedding.runtime import RuntimeKind
from enrich.embedding.runtimes.registry import RUNTIMES
from flows.build import build
from flows.models import vector_cache
from flows.orchestration import prefect_flows
from flows.searching import published
from flows.settings import load_settings
from flows.state import BuildState
from indexes.storage import storage
from indexes.storage.storage import Pointer, Storage
from parsers.errors import IndexBusy
from parsers.registry import read


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def digest(place: Storage, pointer: Pointer) -> str:
    """Of every row of a revision, vectors too; its catalog and both its stores hold the same ids."""
    return hashlib.sha256(json.dumps(rows_of(place, pointer)).encode()).hexdigest()


def run_build(settings: dict[str, Any], embedded: str, flush: int, lease: float, orchestrator: str) -> None:
    """One build, as soon as the index is free."""
    real, begin = vector_cache.embed_window, BuildState.__init__
    noted = os.open(embedded, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def remember(caches: Any, model: Any, texts: dict[str, str]) -> None:
        os.write(noted, "".join(f"{key}\n" for key in texts).encode())
        real(caches, model, texts)

    def begun(*given: Any, **named: Any) -> None:
        begin(*given, **named)
        say("begun", os.getpid())

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TEXTS_IN_WINDOW, "cpu", flush)
        patch.setattr(vector_cache, "embed_window", remember)
        patch.setattr(BuildState, "__init__", begun)
        patch.setattr(storage, "LEASE_SECONDS", lease)
        while True:
            try:
                run = prefect_flows.build if orchestrator == "prefect" else build.build_index
                run(load_settings(**settings), build.BuildOptions(quiet=True, allow_deletes=True))
                return
            except IndexBusy:
                time.sleep(0.2)


def run_read(settings: dict[str, Any], seen: str) -> None:
    """Open the index again and again, and note which revision was found and what it held."""
    chosen = load_settings(**settings)
    with Path(seen).open("a", buffering=1) as file:
        while True:
            place, pointer = published(chosen)
            file.write(f"{pointer.revision} {digest(place, pointer)}\n")
            time.sleep(0.2)


def child(job: dict[str, Any]) -> None:
    try:
        os.environ.update(job.pop("environment"))
        {"build": run_build, "read": run_read}[job.pop("do")](**job)
        say("done", os.getpid())
    except BaseException:
        say("failed", os.getpid(), json.dumps(traceback.format_exc()[-2000:]))
    finally:
        os._exit(0)


def main() -> None:
    RUNTIMES["letters"] = RuntimeKind(LettersRuntime)
    read("x.md", b"# X\n\nX.\n")
    read("x.txt", b"X.\n")
    living: set[int] = set()

    def ended(*_: object) -> None:
        while living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            living.discard(pid)
            say("gone", pid, status)

    signal.signal(signal.SIGCHLD, ended)
    say("ready")
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        with warnings.catch_warnings(action="ignore"):  # LanceDB's, that it starts its threads anew
            pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            child(json.loads(line))
        living.add(pid)
        say("forked", pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for pid in living:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
