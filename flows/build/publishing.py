"""Publishing a build: its gates, the pointer, and clearing away what is no longer kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from flows import interrupts
from flows.gates import gates
from flows.state import BuildState
from indexes.cache import health
from indexes.revisions import retention

if TYPE_CHECKING:  # it imports scipy, which takes a second, and is needed with a golden set alone
    from flows.gates.recall import RecallGate


def record_versions(state: BuildState) -> None:
    """Record the versions of documents whose bytes did not change, now that the catalog is written anyway."""
    with state.report.timed("write"):
        for seen in state.seen_versions.batches():
            rows = state.published_rows(seen).values()
            state.draft.catalog.put(
                msgspec.structs.replace(row, version=seen[row.document_id].version, size=seen[row.document_id].size)
                for row in rows
            )


def pass_gates(state: BuildState, *, force: bool, listed: int) -> RecallGate | None:
    """Finish the stores and pass the gates.

    Args:
        force: go on where a gate that may be forced refuses.
        listed: documents of the source.

    Returns:
        The recall gate with what it measured; None without a golden set.

    Raises:
        GateRefused: when a gate refuses.
    """
    with state.report.timed("finish"):
        state.draft.finish()
    recall = _recall_gate(state)
    passed = gates.Gates(state.report, force=force)
    with state.report.timed("gate"):
        passed.through("stores", state.draft.check_stores)
        passed.through("fingerprint", lambda: state.draft.check_fingerprint(state.runtimes()))
        passed.through("parity", lambda: gates.check_parity(state))
        passed.through("vectors", lambda: gates.check_vectors(state))
        passed.through("text", lambda: gates.check_some_text(state))
        passed.through("failures", lambda: gates.check_failures(state, listed), forcible=True)
        if recall:
            passed.through("recall", recall.check, forcible=True)
    return recall


def _recall_gate(state: BuildState) -> RecallGate | None:
    if state.settings.golden is None:
        return None
    from flows.gates.recall import RecallGate

    return RecallGate(state, state.settings.golden)


def publish(state: BuildState, recall: RecallGate | None, *, made_by: str, sources: dict[str, str]) -> None:
    """Point readers to the new revision, keep what was measured of it, and clear away what is no longer kept.

    Args:
        made_by: the command, for the record of the revision.
        sources: address of each source of this build, by its name.
    """
    interrupts.raise_if_interrupted()
    report = state.report
    with report.timed("publish"):
        known = dict(state.published.sources) if state.published is not None else {}
        pointer = state.draft.publish(
            sources=known | sources,
            runtimes=state.runtimes(),
            checks=report.checks,
            made_by=made_by,
            rates=state.rates(),
        )
        report.generation, report.revision = pointer.generation, pointer.revision
        report.chunks["total"] = pointer.counts["chunks"]
        report.published = True
    if recall:
        with _warned(state, "what was measured could not be kept"):
            recall.keep(pointer)
    with report.timed("tidy"), _warned(state, "old revisions could not be cleared away"):
        state.caches.tidy()
        health.record_cache_digests(state.storage.objects)
        if retention.retire(state.storage, keep=state.settings.keep_revisions, grace=state.settings.grace):
            retention.prune(state.storage)


@contextmanager
def _warned(state: BuildState, what: str) -> Iterator[None]:
    """Warn of an error after publishing, which must not fail the build."""
    try:
        yield
    except Exception as error:  # a full disk or a server that is gone, in whatever form its library raises it
        state.progress.say(f"warning: {what}: {error}")
