"""What a finished build must pass before it is published; each gate gives its figure for the record.

Invariants:
- Every gate has a name.
- A gate that is forced says so in its figure, which the report, the artifact and the revision keep.
- What would break an index for its readers cannot be forced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import numpy as np

from flows.models.vector_cache import PROBES
from flows.report import BuildReport
from flows.state import BuildState
from indexes.rows import EMBEDDED, embedded
from indexes.vectors import ChunkTable
from parsers.errors import GateRefused, StoreError

LEAST_COSINE: Final = 0.999  # of a vector and itself computed again, by any admitted runtime (DESIGN, parity)


class Gates:
    """The gates of one build, passed one after another.

    Args:
        report: takes the figures.
        force: go on where a gate that may be forced refuses.
    """

    def __init__(self, report: BuildReport, *, force: bool) -> None:
        self._report = report
        self._force = force

    def through(self, name: str, check: Callable[[], str], *, forcible: bool = False, hint: bool = True) -> None:
        """Pass a gate.

        Args:
            name: of the gate.
            check: gives the figure, or raises.
            forcible: whether ``--force`` goes on where the gate refuses.
            hint: whether the refusal says so.

        Raises:
            GateRefused: naming the gate.
        """
        try:
            self._report.checks[name] = check()
        except GateRefused as refusal:
            if forcible and self._force:
                self._report.checks[name] = f"forced: {refusal.message}"
                return
            self._report.checks[name] = f"refused: {refusal.message}"
            remedy = f"{refusal.remedy} --force publishes all the same." if forcible and hint else refusal.remedy
            raise GateRefused(f"gate {name}: {refusal.message}", remedy, dict(self._report.checks)) from refusal


def check_removals(state: BuildState, gone: int, before: int) -> str:
    """Refuse when more documents are gone from the source than the guard allows.

    Skipped documents do not count: they are in no index. A refusal shows where the source was read from before.

    Args:
        gone: documents of this source that are gone.
        before: documents of it that the index knows.

    Raises:
        GateRefused: when all documents are gone, whatever their number; when more than ``removed_most`` of them are;
            or when more than ``removed_count`` and more than ``removed_share`` of them are.
    """
    guards = state.settings.guards
    share = gone / before if before else 0.0
    if gone and gone == before:
        rule = "the guard never allows that all are gone"
    elif share > guards.removed_most:
        rule = f"the guard allows {guards.removed_most:.0%}, however few that are"
    elif gone > guards.removed_count and share > guards.removed_share:
        rule = f"the guard allows {guards.removed_count} or {guards.removed_share:.0%}"
    else:
        return f"{gone} of {before} gone"
    source = state.resources.source.name
    earlier = state.published.sources.get(source, "") if state.published is not None else ""
    place = state.resources.source.place
    where = f"{place}, as before" if earlier == place else f"{place}, and was read from {earlier or '(unknown)'} before"
    raise GateRefused(
        f"{gone} of {before} documents are gone from the source ({share:.0%}); {rule}. The source {source} is "
        f"read from {where}",
        "Check that this is the right folder. If these documents are meant to go, build with --allow-deletes.",
    )


def check_failures(state: BuildState, listed: int) -> str:
    """Refuse when more documents failed than the guard allows; skipped ones do not count.

    Raises:
        GateRefused: when more than ``failed_count`` and more than ``failed_share`` of them did.
    """
    report, guards = state.report, state.settings.guards
    failed, read = report.documents["failed"], listed - report.documents["skipped"]
    share = failed / read if read else 0.0
    if failed > guards.failed_count and share > guards.failed_share:
        first = next(one for one in report.failures if one.status == "failed")
        raise GateRefused(
            f"{failed} of {read} documents failed ({share:.0%}); the guard allows {guards.failed_count} or "
            f"{guards.failed_share:.0%}; the first: {first.key}: {first.reason}",
            "Look at the reasons (`failures` of --json); exclude what is not meant to be read.",
        )
    return f"{failed} of {read} failed"


def check_some_text(state: BuildState) -> str:
    """Require at least one chunk in the next revision.

    Raises:
        GateRefused: when it holds none.
    """
    count = state.draft.table.count()
    if not count:
        raise GateRefused(
            f"source {state.resources.source.address}: no document has any text, so the index would be empty",
            "Look at the reasons (`failures` of --json).",
        )
    return f"{count} chunks"


def check_parity(state: BuildState) -> str:
    """Require a runtime that proved itself before its first vector, and probes for readers.

    Probes are made now where vectors were all cached and probes are missing.

    Raises:
        GateRefused: when the runtime does not make the vectors of the index.
        StoreError: when the probes are gone and this runtime is none that may make them.
    """
    if state.draft.vectors and state.storage.probes(state.embedder.fingerprint) is None:
        state.embedder.load()
    return state.parity


def check_vectors(state: BuildState) -> str:
    """Require valid vectors that the embedder still makes.

    Where vectors were made since this gate last passed, a sample of all rows and one of the rows that this build wrote
    are embedded again.

    Raises:
        GateRefused: when a vector is not finite or, of a model that normalizes, not of length 1; or one of a few
            stored ones differs from the same text embedded again.
    """
    if state.invalid_vector:
        raise GateRefused(
            state.invalid_vector, "Nothing was published. If it stays so, look at the embedder with `gristmill parity`."
        )
    table = state.draft.table
    figure = f"{state.draft.vectors} vectors"
    if not state.storage.vectors_doubted:
        return figure
    probes = sorted({name for _, name in state.sampled} | set(_standing(table, state.draft.revision)))
    if not probes:
        return figure
    try:
        cosine, worst = _least_cosine(state, table, probes)
    except StoreError:  # the place failed, not the embedder
        raise
    except Exception as error:  # whatever the runtime raises
        raise GateRefused(
            f"the embedder could not be asked again for {len(probes)} stored texts: {error}",
            "Nothing was published; what was finished is remembered. Mend the embedder and build again.",
        ) from error
    if not cosine >= LEAST_COSINE:
        state.forget_vectors()
        raise GateRefused(
            f"chunk {worst} embedded again has a cosine of {cosine:.4f} with its stored vector; {LEAST_COSINE} is "
            "asked: the embedder does not make what the index holds",
            "Nothing was published, and what this runtime made is forgotten. Look at what changed in it.",
        )
    state.storage.trust_vectors()
    return f"{figure}, least cosine {cosine:.4f} of {len(probes)} embedded again"


def _standing(table: ChunkTable, revision: int) -> list[str]:
    """Return a few rows with vectors out of all, others in each revision."""
    count = table.count()
    places = sorted(random.Random(revision).sample(range(count), min(count, 4 * PROBES)))
    rows = table.take(places, ["chunk_id", "provenance"]) if places else []
    return [row["chunk_id"] for row in rows if row["provenance"]][:PROBES]


def _least_cosine(state: BuildState, table: ChunkTable, names: list[str]) -> tuple[float, str]:
    rows = table.fetch(names, ["chunk_id", *EMBEDDED, "vector"])
    again = state.embedder.encode([embedded(row) for row in rows]).vectors
    stored = np.asarray([row["vector"] for row in rows], dtype=np.float32)
    lengths = np.linalg.norm(again, axis=1) * np.linalg.norm(stored, axis=1)
    cosines = (again * stored).sum(axis=1) / lengths
    least = int(np.argmin(cosines))
    return float(cosines[least]), names[least]
