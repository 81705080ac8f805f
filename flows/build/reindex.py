"""The model swap: a new generation for another embedder, from what is stored, beside the live one.

The texts are embedded first, while builds go on publishing the live generation; the index is held only to catch up, to
write the new one and to pass the gates. With ``rechunk`` the texts are others, so the index is held throughout.

Invariants:
- Nothing is fetched or parsed.
- A new model goes live only where a golden set proves that it is no worse, or someone accepts it unproven.
- A text that the new model could not read to its end is found before any work.
- Readers stay on their generation until the new one has passed the gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flows.build.build import BuildOptions, Runner, finished, opened, plainly, refuse_held
from flows.build.publishing import pass_gates, publish
from flows.build.steps import chunk, embed, note
from flows.build.stored_documents import stored_documents
from flows.build.swap_ahead import Ahead, embed_ahead
from flows.build.writing import write
from flows.gates.gates import Gates
from flows.opening import open_storage
from flows.report import Progress
from flows.settings import Settings
from flows.state import BuildState
from indexes.catalog import Catalog
from indexes.revisions.generation import published_catalog
from indexes.rows import EMBEDDED, embedded
from indexes.vectors import WIDE_SCAN_ROWS, ChunkTable
from parsers.errors import GateRefused, StoreError, UsageError

if TYPE_CHECKING:  # it imports scipy, which takes a second
    from flows.gates.recall import RecallGate

READ: Final = 1_024  # rows whose tokens are counted at a time


class ReindexOptions(BuildOptions):
    """Options of one model swap.

    Attributes:
        embedder: name of the new model.
        rechunk: cut the stored documents again, counted with that model's tokenizer.
        accept: publish without the proof that the new model is no worse.
    """

    embedder: str
    rechunk: bool = False
    accept: bool = False


def swap_embedder(settings: Settings, options: ReindexOptions, run: Runner = plainly) -> dict[str, Any]:
    """Make the index anew for another embedder, from its stored documents, and publish it.

    Args:
        run: calls each step.

    Returns:
        The report as :class:`flows.report.BuildReport` describes it.

    Raises:
        UsageError: when a stored text is over the model's limit and is not to be cut again, or there is nothing to do.
        StoreError: when nothing is published, or a parsed document is no longer cached.
        GristmillError: another clear reason why nothing was published.
    """
    wanted = {"embedder": options.embedder} | ({"ruler": options.embedder} if options.rechunk else {})
    swapped = settings.model_copy(update=wanted)
    ahead = Ahead()
    if not options.rechunk:
        check_swap(swapped)
        ahead = run(embed_ahead, swapped, Progress(quiet=options.quiet))
    with opened(swapped, options) as state:
        state.report.work["embedded"] += ahead.embedded
        state.report.seconds["embed"] = ahead.seconds
        count = run(check_stored, state, rechunk=options.rechunk)
        with state.progress.documents(count, 0):
            for batch in stored_documents(state):
                run(chunk, state, batch)
                run(note, state, batch)
                run(embed, state, batch)
                run(write, state, batch)
        recall = run(pass_gates, state, force=options.force, listed=count)
        Gates(state.report, force=options.accept).through(
            "swap", lambda: check_proven(recall, state.settings.guards.swap_margin), forcible=True, hint=False
        )
        run(publish, state, recall, made_by="reindex", sources={})
        return finished(state)


def check_swap(settings: Settings) -> None:
    """Check what can be checked of a swap before the index is held.

    Raises:
        UsageError: when a stored text is over the model's limit, or there is nothing to do.
        StoreError: when nothing is published.
        GateRefused: when publishing is held.
    """
    state = BuildState(settings, open_storage(settings))
    try:
        refuse_held(state.storage.address, state.published)
        check_stored(state, rechunk=False)
    finally:
        state.close()


def check_proven(recall: RecallGate | None, margin: float) -> str:
    """Require a golden set's proof that the new generation is no worse than the published one.

    Args:
        recall: what was measured; None without a golden set.
        margin: drop of recall that counts as no worse.

    Raises:
        GateRefused: when it is not proven.
    """
    again = "Everything is embedded and cached; `gristmill reindex --accept` with the same model publishes it unproven."
    change = recall.change if recall is not None else None
    if change is None or not change.n:
        why = "without a golden set" if recall is None else "no golden question could be compared"
        raise GateRefused(f"staged: {why}, nothing proves that the new model is no worse", again)
    low, high = change.interval
    figure = f"{change.difference:+.1%} recall over {change.n} questions, 95 % interval {low:+.1%} to {high:+.1%}"
    if low < -margin:
        lost = f"; lost: {', '.join(change.lost)}" if change.lost else ""
        raise GateRefused(f"staged: {figure}; its lower end is below the margin of {-margin:+.1%}{lost}", again)
    return figure


def check_stored(state: BuildState, *, rechunk: bool) -> int:
    """Check that the new generation can be made from what is stored; return the number of its documents."""
    if state.published is None:
        raise StoreError(f"index {state.storage.address}: nothing is published there", "Build it first.")
    if state.continues and (not rechunk or state.published.ruler == state.settings.ruler):
        raise UsageError(
            f"index {state.storage.address} is made with {state.settings.embedder} already", "There is nothing to do."
        )
    state.resources.expected_texts = state.published.counts["chunks"]
    with state.report.timed("list"):
        catalog = published_catalog(state.storage, state.published)
        _check_remembered(state, catalog)
        if not rechunk:
            _check_lengths(state)
    state.progress.say(f"{len(catalog):,} stored documents for {state.settings.embedder}")
    return len(catalog)


def _check_remembered(state: BuildState, catalog: Catalog) -> None:
    lost: list[str] = []
    for batch in catalog.columns(["key", "document"]).to_batches(WIDE_SCAN_ROWS):
        documents = batch["document"].to_pylist()
        known = state.caches.documents.known(name for name in documents if name)
        lost += [
            key for key, name in zip(batch["key"].to_pylist(), documents, strict=True) if name and name not in known
        ]
    if lost:
        raise StoreError(
            f"{len(lost)} documents are no longer cached, the first is {min(lost)}",
            f"Build from the source instead: gristmill build, with `embedder` set to {state.settings.embedder}.",
        )


def _check_lengths(state: BuildState) -> None:
    assert state.published is not None
    table = ChunkTable.open(state.storage.tables(state.published.generation), state.published.chunks_version)
    over, longest = 0, (0, "")
    for batch in table.rows(["chunk_id", "provenance", *EMBEDDED], READ):
        rows = [row for row in batch.to_pylist() if row["provenance"]]
        tokens = state.embedder.counts([embedded(row) for row in rows]).tolist() if rows else []
        over += sum(count > state.embedder.limit for count in tokens)
        longest = max([longest, *zip(tokens, (row["chunk_id"] for row in rows), strict=True)])
    if over:
        raise UsageError(
            f"{over} stored texts are over the {state.embedder.limit} tokens that {state.settings.embedder} reads; the "
            f"longest, of chunk {longest[1]}, has {longest[0]}",
            "Cut the documents again for this model with --rechunk, or choose another one.",
        )
