"""A process without the right to write: it asks an index everything, and prints what each command ended with as JSON.

Argument: a JSON object of settings, and ``golden``, the path of a golden set. It is started by
:mod:`test_flows_readonly`, and gives up root's right to pass over permission bits before it imports anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

DROP: int = 24  # prctl: never again, after the next program is started
OVERRIDE: tuple[int, int] = (1, 2)  # capabilities: pass over permission bits when writing, when reading


def without_override() -> None:
    """Start this program again as one that permission bits hold for."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in OVERRIDE:
        if libc.prctl(DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "the right cannot be given up")
    os.execv(sys.executable, [sys.executable, __file__, "again", *sys.argv[1:]])


def main(given: dict[str, Any]) -> None:
    from fakes import LettersRuntime

    from enrich.embedding.runtime import RuntimeKind
    from enrich.embedding.runtimes.registry import RUNTIMES
    from flows.evaluation.evaluate import evaluate
    from flows.maintenance import kept_revisions
    from flows.maintenance.status import index_status
    from flows.opening import published
    from flows.searching import answer_query
    from flows.settings import load_settings
    from parsers.errors import GristmillError

    RUNTIMES["letters"] = RuntimeKind(LettersRuntime)
    golden = Path(given.pop("golden"))
    settings = load_settings(**given)
    commands: dict[str, Any] = {
        mode: lambda mode=mode: answer_query(settings, "the key", mode, 2, [], 0.0, expand=True)["hits"][0]["key"]
        for mode in ("hybrid", "dense", "bm25")
    }
    commands |= {
        "status": lambda: index_status(settings)["counts"]["documents"],
        "verify": lambda: kept_revisions.verify_index(settings, everything=True),
        "revisions": lambda: len(kept_revisions.revisions(settings)["revisions"]),
        "evaluate": lambda: {key: evaluate(settings, golden).get(key, "") for key in ("record", "not_kept")},
        "sweep": lambda: kept_revisions.sweep(settings),
        "repair": lambda: kept_revisions.repair_index(settings, str),
        "rollback": lambda: kept_revisions.rollback(settings, None),
        "probes": lambda: published(settings)[0].keep_probes("0" * 32, b""),
    }
    found: dict[str, Any] = {}
    for name, command in commands.items():
        try:
            found[name] = command()
        except GristmillError as error:
            found[name] = {"error": error.message, "remedy": error.remedy}
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] != "again":
        without_override()
    main(json.loads(sys.argv[2]))
