"""What a finished build must pass before it is published; each gate gives its figure for the record."""

from __future__ import annotations

from flows.plan import Plan
from flows.report import BuildReport
from flows.settings import Guards
from flows.workshop import Workshop
from parsers.errors import GateRefused


def check_removals(plan: Plan, guards: Guards, *, allowed: bool) -> str:
    """Not more documents gone than the guard allows.

    Args:
        allowed: whether the user said that they may go.

    Raises:
        GateRefused: when more than ``removed_count`` and more than ``removed_share`` of the documents are gone.
    """
    gone = len(plan.removed)
    before = gone + sum(1 for entry in plan.entries if entry.row is not None) + len(plan.unchanged)
    share = gone / before if before else 0.0
    if not allowed and gone > guards.removed_count and share > guards.removed_share:
        raise GateRefused(
            f"{gone} of {before} documents are gone from the source ({share:.0%}); the guard allows "
            f"{guards.removed_count} or {guards.removed_share:.0%}",
            "Look at the source. If they are meant to go, build with --allow-deletes.",
        )
    return f"{gone} of {before} gone"


def check_failures(report: BuildReport, listed: int, guards: Guards) -> str:
    """Not more documents failed than the guard allows.

    Raises:
        GateRefused: when more than ``failed_count`` and more than ``failed_share`` of them did.
    """
    failed = report.documents["failed"]
    share = failed / listed if listed else 0.0
    if failed > guards.failed_count and share > guards.failed_share:
        first = next(one for one in report.failures if one.status in ("failed", "unsupported"))
        raise GateRefused(
            f"{failed} of {listed} documents failed ({share:.0%}); the guard allows {guards.failed_count} or "
            f"{guards.failed_share:.0%}; the first: {first.key}: {first.reason}",
            "Look at the reasons (`failures` of --json); exclude what is not meant to be read.",
        )
    return f"{failed} of {listed} failed"


def check_some_text(shop: Workshop) -> str:
    """The next revision holds chunks at all.

    Raises:
        GateRefused: when it holds none.
    """
    count = shop.draft.table.count()
    if not count:
        raise GateRefused(
            f"source {shop.source.address}: no document has any text, so the index would be empty",
            "Look at the reasons (`failures` of --json).",
        )
    return f"{count} chunks"
