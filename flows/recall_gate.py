"""The gate of the golden set: recall is not worse than that of the published revision.

Kept here: both revisions are asked the questions that resolve in both, with the same vectors of the questions; a drop
counts when a paired test says that it is no luck; and questions that no longer resolve are never a silent pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flows.golden_sets import GoldenSet, resolve, texts_of
from flows.measuring import make_record, measure
from flows.searching import fusion
from flows.workshop import Workshop
from indexes.catalog import Row
from indexes.evaluation.compare import compare
from indexes.evaluation.golden import load_golden
from indexes.evaluation.metrics import mean
from indexes.evaluation.record import Record, Run
from indexes.generation import open_stores, published_catalog
from indexes.lexical import LexicalIndex
from indexes.storage import Pointer
from indexes.vectors import ChunkTable
from parsers.errors import GateRefused, StoreError


class RecallGate:
    """Measures the next revision against the published one.

    Args:
        shop: of the build, whose draft is finished.
        golden: the golden set.
    """

    def __init__(self, shop: Workshop, golden: Path) -> None:
        self._shop = shop
        self._golden = golden
        self._measured: tuple[GoldenSet, list[Run], list[int]] | None = None

    def check(self) -> str:
        """The figure for the record.

        Raises:
            GateRefused: when too many questions are stale, or recall is worse.
        """
        shop, guards = self._shop, self._shop.settings.guards
        now = self._resolved(shop.draft.catalog.rows())
        if not now.asked and not now.stale:
            return "no question has an answer"
        stale = len(now.stale) / (len(now.asked) + len(now.stale))
        if stale > guards.stale_share:
            name, reason = next(iter(now.stale.items()))
            raise GateRefused(
                f"{len(now.stale)} of {len(now.asked) + len(now.stale)} golden questions do not resolve any more "
                f"({stale:.0%}; the guard allows {guards.stale_share:.0%}); the first, {name}: {reason}",
                "A parser that lost text looks like this. If the documents changed, correct the golden set.",
            )
        vectors = None
        if shop.draft.table.count_vectors():
            vectors = shop.embedder.encode(now.texts, "query").vectors
        lexical = LexicalIndex.open(shop.storage.lexical(shop.draft.generation, shop.draft.revision))
        runs, corpus = measure("published", shop.draft.table, lexical, now, vectors, fusion(shop.settings))
        self._measured = (now, runs, corpus.lengths)
        recall = mean(list(runs[0].recalls(guards.recall_k).values()))
        figure = f"{recall:.1%} at {guards.recall_k} over {runs[0].n} questions"
        if now.stale:
            figure += f", {len(now.stale)} stale"
        before = self._before(runs[0].mode)
        if before is None:
            return figure
        changed = compare(before.recalls(guards.recall_k), runs[0].recalls(guards.recall_k), "less")
        if changed.n and changed.difference < 0 and changed.p < guards.recall_p:
            raise GateRefused(
                f"recall at {guards.recall_k} fell from {changed.before:.1%} to {changed.after:.1%} over {changed.n} "
                f"questions (p = {changed.p:.3f}, the guard asks {guards.recall_p}); lost: {', '.join(changed.lost)}",
                "Look at these questions with `gristmill search --explain`.",
            )
        return f"{figure}; {changed.difference * 100:+.1f} points over {changed.n} in both (p = {changed.p:.3f})"

    def record(self, pointer: Pointer) -> Record | None:
        """What was measured, as the record of the revision that was published; None where nothing was."""
        if self._measured is None:
            return None
        golden, runs, lengths = self._measured
        rows = list(published_catalog(self._shop.storage, pointer).rows())
        return make_record(self._shop.settings, self._shop.storage.address, pointer, rows, golden, runs, lengths)

    def _before(self, mode: str) -> Run | None:
        """The published revision's run of a mode; None where it cannot be asked by today's rules."""
        shop = self._shop
        if shop.published is None:
            return None
        try:
            table, lexical = open_stores(shop.storage, shop.published)
            golden = self._resolved(published_catalog(shop.storage, shop.published).rows())
        except StoreError:  # made by other rules of analysis, which this program cannot ask
            return None
        return self._run(mode, golden, table, lexical)

    def _run(self, mode: str, golden: GoldenSet, table: ChunkTable, lexical: LexicalIndex) -> Run | None:
        shop = self._shop
        if not golden.asked:
            return None
        vectors = None
        if table.count_vectors() and shop.continues:
            vectors = shop.embedder.encode(golden.texts, "query").vectors
        runs, _ = measure("published", table, lexical, golden, vectors, fusion(shop.settings))
        return next((run for run in runs if run.mode == mode), None)

    def _resolved(self, rows: Iterable[Row]) -> GoldenSet:
        return resolve(self._golden, load_golden(self._golden), texts_of(self._shop.storage, rows), strict=False)
