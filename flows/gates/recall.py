"""The gate of the golden set: recall is not worse than that of the published revision.

Invariants:
- What readers get from either revision is compared, by hybrid where it has vectors and by BM25 where it has none,
  over the questions whose answers are the same words in both.
- A drop refuses when a paired test says that it is no luck, or when it is large.
- Questions that no longer resolve and a comparison that cannot be made are never passed over without a word.
- What was measured is kept as a record, of a refused build too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flows.evaluation.golden_set import GoldenSet, resolve, texts_of
from flows.evaluation.runs import PUBLISHED, Measured, make_record, measure, published_index
from flows.models.embedding import open_query_embedder
from flows.searching import fusion
from flows.state import BuildState
from indexes.evaluation.compare import Comparison, compare
from indexes.evaluation.golden import load_golden
from indexes.evaluation.metrics import mean
from indexes.evaluation.record import AskedQuestion, Run, kept_records, write_record
from indexes.lexical.index import LexicalIndex
from indexes.revisions.generation import open_stores, published_catalog
from indexes.storage.storage import Pointer
from parsers.errors import GateRefused, ModelError, StoreError


class RecallGate:
    """Measures the next revision against the published one.

    Args:
        state: of the build, whose draft is finished.
        golden: the golden set.
    """

    def __init__(self, state: BuildState, golden: Path) -> None:
        self._state = state
        self._path = golden
        self._questions = load_golden(golden)
        self._measured: Measured | None = None
        self.change: Comparison | None = None
        """Comparison with the published revision; None where there was none."""

    def check(self) -> str:
        """Return the figure for the record.

        Raises:
            GateRefused: when too many questions are stale, or recall is worse.
        """
        texts = texts_of(self._state.storage, self._state.draft.catalog.rows())
        golden = resolve(self._path, self._questions, texts, strict=False)
        if not golden.asked and not golden.stale:
            return "no question has an answer"
        if golden.asked:
            self._measured = self._measure_draft(golden)
        self._check_stale(golden)
        assert self._measured is not None
        k = self._state.settings.guards.recall_k
        now = self._measured.runs[0]
        figure = f"{mean(list(now.recalls(k).values())):.1%} at {k} over {now.n} questions"
        if golden.stale:
            figure += f", {len(golden.stale)} stale"
        return figure + self._compared(now, _answers(golden, texts))

    def keep(self, pointer: Pointer) -> None:
        """Keep what was measured, as the record of the revision that was published."""
        if self._measured is not None:
            index, fingerprints = published_index(self._state.storage, pointer)
            rows = list(published_catalog(self._state.storage, pointer).rows())
            record = make_record(self._state.settings, index, fingerprints, rows, self._measured)
            write_record(self._state.storage.objects, record)

    def _measure_draft(self, golden: GoldenSet) -> Measured:
        state = self._state
        vectors = self._vectors(golden) if state.draft.vectors else None
        lexical = LexicalIndex.open(state.draft.lexical_folder)
        return measure(PUBLISHED, state.draft.table, lexical, golden, vectors, fusion(state.settings))

    @cached_property
    def _embedded(self) -> dict[str, npt.NDArray[np.float32]]:
        """The vector of each question by today's embedder."""
        texts = [one.question for one in self._questions]
        return dict(zip(texts, self._state.embedder.encode(texts, "query").vectors, strict=True))

    def _vectors(self, golden: GoldenSet) -> npt.NDArray[np.float32]:
        return np.stack([self._embedded[text] for text in golden.texts])

    def _check_stale(self, golden: GoldenSet) -> None:
        total = len(golden.asked) + len(golden.stale)
        share, allowed = len(golden.stale) / total, self._state.settings.guards.stale_share
        if share > allowed:
            name, reason = next(iter(golden.stale.items()))
            raise GateRefused(
                f"{len(golden.stale)} of {total} golden questions do not resolve any more ({share:.0%}; the guard "
                f"allows {allowed:.0%}); the first, {name}: {reason}{self._keep_refused()}",
                "A parser that lost text looks like this. If the documents changed, correct the golden set.",
            )

    def _compared(self, now: Run, answers: Mapping[str, list[str]]) -> str:
        """Return the comparison with the published revision, for the figure."""
        guards = self._state.settings.guards
        if self._state.published is None:
            return ""
        before, reason = self._before(self._state.published)
        if before is None:
            return f"; not compared: {reason}"
        run, earlier = before
        same = {name for name, texts in answers.items() if earlier.get(name) == texts}
        k = guards.recall_k
        change = compare(
            {name: recall for name, recall in run.recalls(k).items() if name in same},
            {name: recall for name, recall in now.recalls(k).items() if name in same},
            "less",
        )
        self.change = change
        worse = change.difference < 0 and change.p < guards.recall_p
        if change.n and (worse or change.difference < -guards.recall_drop):
            raise GateRefused(
                f"recall at {k} fell from {change.before:.1%} ({run.mode}) to {change.after:.1%} ({now.mode}) over "
                f"{change.n} questions (p = {change.p:.3f}; the guard refuses below {guards.recall_p}, and a drop of "
                f"more than {guards.recall_drop:.0%}); lost: {', '.join(change.lost)}{self._keep_refused()}",
                "Look at what these questions get now in that record.",
            )
        modes = "" if run.mode == now.mode else f" ({run.mode} before, {now.mode} now)"
        return f"; {change.difference * 100:+.1f} points over {change.n} in both (p = {change.p:.3f}){modes}"

    def _before(self, pointer: Pointer) -> tuple[tuple[Run, Mapping[str, list[str]]] | None, str]:
        """Return the run of the published revision and the answers there, or the reason why it is unknown."""
        state = self._state
        texts = texts_of(state.storage, published_catalog(state.storage, pointer).rows())
        golden = resolve(self._path, self._questions, texts, strict=False)
        if not golden.asked:
            return None, "no question resolves in the published revision"
        answers = _answers(golden, texts)
        try:
            table, lexical = open_stores(state.storage, pointer)
            vectors = None
            if pointer.counts["vectors"]:
                if state.continues:
                    vectors = self._vectors(golden)
                else:
                    embedder = open_query_embedder(state.settings, state.storage, pointer)
                    vectors = embedder.encode(golden.texts, "query").vectors
        except (StoreError, ModelError) as error:
            kept = self._kept(pointer, golden.asked)
            return ((kept, answers), "") if kept else (None, error.message)
        return (measure(PUBLISHED, table, lexical, golden, vectors, fusion(state.settings)).runs[0], answers), ""

    def _kept(self, pointer: Pointer, asked: list[AskedQuestion]) -> Run | None:
        """Return the record of a published revision that asked the same, for one that cannot be asked any more."""
        digests = {one.id: one.digest for one in asked}
        for record in kept_records(self._state.storage.objects):
            named = [record.index.get(name) for name in ("generation", "revision", "refused")]
            same = {one.id: one.digest for one in record.questions} == digests
            if named == [pointer.generation, pointer.revision, None] and same and record.runs[0].variant == PUBLISHED:
                return record.runs[0]
        return None

    def _keep_refused(self) -> str:
        """Keep what was measured of a build that is refused, and say where."""
        if self._measured is None:
            return ""
        draft, storage = self._state.draft, self._state.storage
        rows = list(draft.catalog.rows())
        index: dict[str, Any] = {"address": storage.address, "generation": draft.generation, "revision": draft.revision}
        index |= {"refused": True, "documents": len(rows), "chunks": draft.table.count()}
        fingerprints = {"embedder": f"{self._state.settings.embedder} {self._state.embedder.fingerprint}"}
        record = write_record(
            storage.objects, make_record(self._state.settings, index, fingerprints, rows, self._measured)
        )
        return f"; kept as record {record.id}"


def _answers(golden: GoldenSet, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the words that answer each question."""
    return {
        one.id: [texts[place.doc][place.start : place.end] for places in one.requirements for place in places]
        for one in golden.asked
    }
