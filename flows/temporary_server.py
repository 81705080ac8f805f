"""Prefect's temporary server, out of reach of Ctrl-C.

Kept here: what a terminal sends to its whole process group does not end the temporary server before the flow that
reports to it. A flow that had lost its server tried it for more than a minute and ended with the server's error. So the
server gets a group of its own. Prefect ends it when the command ends, but for one that is killed outright (SIGKILL,
SIGQUIT): then it stays, as it did where the command alone was killed.
"""

from __future__ import annotations

import subprocess
from functools import partial
from typing import Any, Final

from flows.settings import has_prefect_server


class _Apart:
    """The module ``subprocess``, but that what is started is in a process group of its own."""

    Popen: Final = partial(subprocess.Popen, process_group=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)


def keep_apart() -> None:
    """Have Prefect start it so, where a flow will need one; to be called before the flow.

    Prefect has no setting for it, and loads what is loaded here for any flow without a server of the user's.
    """
    if has_prefect_server():
        return
    from prefect.server.api import server

    server.subprocess = _Apart()  # type: ignore[attr-defined, assignment]
