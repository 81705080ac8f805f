"""A look before the flow: whether a build has anything to do at all.

Kept here: where there is nothing, nothing is written, and no temporary Prefect server is started for it, which takes
five times as long as the look; who runs a server of their own gets a flow run for every build.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from flows.gates import check_removals
from flows.place import open_storage
from flows.plan import make_plan
from flows.report import BuildReport, Progress
from flows.settings import Settings, has_prefect_server
from flows.workshop import Workshop


def nothing_to_do(settings: Settings, *, new_source: bool, quiet: bool, started: float) -> dict[str, Any] | None:
    """The report of a build that finds nothing changed; None where there is something to do, or a server to tell.

    Args:
        started: when the command began, on the clock of ``time.time``.

    Raises:
        GristmillError: as the build itself would.
    """
    if has_prefect_server():
        return None
    storage = open_storage(settings)
    with storage.lock(), tempfile.TemporaryDirectory() as folder:
        report = BuildReport()
        report.seconds["start"] = time.time() - started
        shop = Workshop(settings, storage, report, Progress(quiet=quiet), started)
        published = shop.published
        if published is None or published.held or not shop.continues or shop.outdated:
            return None
        with report.timed("list"):
            plan = make_plan(shop, Path(folder) / "plan.jsonl", new_source=new_source)
        if plan.looked_at or plan.steps["remove"]:
            return None
        report.checks["removals"] = check_removals(plan, shop.settings.guards)
        report.documents["unchanged"] = plan.unchanged
        shop.stays_published()
        shop.note_unmatched_rules()
        report.seconds["total"] = time.time() - started
        shop.progress.say(f"{plan.listed:,} documents in {shop.source.address}: all unchanged")
        return report.as_json()
