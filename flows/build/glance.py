"""A look before the flow: whether a build has anything to do at all.

Kept here: where there is nothing, nothing is written, and no temporary Prefect server is started for it, which takes
five times as long as the look; who runs a server of their own gets a flow run for every build.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

from flows.build.diff import Asked, Plan, make_plan
from flows.context import Workshop
from flows.gates.gates import check_removals
from flows.opening import open_storage
from flows.report import BuildReport, Progress
from flows.settings import Settings, has_prefect_server

AT_ONCE: Final = 2_000


def nothing_to_do(
    settings: Settings,
    *,
    new_source: bool,
    quiet: bool,
    started: float,
    reread: bool = False,
    retry_failed: bool = False,
) -> dict[str, Any] | None:
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
            asked = Asked(new_source=new_source, reread=reread, retry_failed=retry_failed)
            plan = make_plan(shop, Path(folder) / "plan.jsonl", asked)
        if sum(plan.steps.values()) > plan.steps["reread"] or not _read_again(shop, plan):
            return None
        plan.turns.finish()
        report.checks["removals"] = check_removals(shop, plan)
        report.documents["unchanged"] = plan.unchanged + plan.steps["reread"]
        shop.stays_published()
        shop.note_unmatched_rules()
        shop.note_unmatched_rules()
        report.seconds["total"] = time.time() - started
        shop.progress.say(f"{plan.listed:,} documents in {shop.source.address}: all unchanged")
        return report.as_json()


def _read_again(shop: Workshop, plan: Plan) -> bool:
    """Read the documents whose turn it is, of which nothing else moved; whether all are as the catalog knows them."""
    steps = plan.read()
    with shop.report.timed("fetch"):
        while piece := list(islice(steps, AT_ONCE)):
            rows = shop.published_rows(step.document_id for step in piece)
            for step in piece:
                try:
                    found = shop.source.fetch(step.key)
                except OSError:  # the build says why
                    return False
                row = rows[step.document_id]
                if found is None or hashlib.sha256(found.data).hexdigest() != row.bytes_digest:
                    return False
                shop.report.work["fetched"] += 1
                shop.note_status(row)
    return True
