"""The model swap: a new generation for another embedder, from what is stored, beside the live one.

Kept here: nothing is fetched or parsed; a text that the new model could not read to its end is found before any work;
and readers stay on the generation they have until the new one has passed the gates.
"""

from __future__ import annotations

from typing import Any, Final

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.build.build import BuildOptions, chunk, embed, finished, gate, note, publish, workshop, write
from flows.build.stored_documents import stored_documents
from flows.context import Workshop
from flows.settings import Settings
from indexes.catalog import Catalog
from indexes.revisions.generation import published_catalog
from indexes.rows import EMBEDDED, embedded
from indexes.vectors import SCAN_ROWS, ChunkTable
from parsers.errors import StoreError, UsageError

READ: Final = 1_024  # rows whose tokens are counted at a time


class ReindexOptions(BuildOptions):
    """What one model swap is asked to do.

    Attributes:
        embedder: name of the model that is to make the vectors.
        rechunk: cut the stored documents again, counted with that model's tokenizer.
    """

    embedder: str
    rechunk: bool = False


@flow(name="gristmill-reindex", persist_result=False, validate_parameters=True)
def reindex(settings: Settings, options: ReindexOptions) -> dict[str, Any]:
    """Make the index anew for another embedder, from its stored documents, and publish it.

    Returns:
        The report as :class:`flows.report.BuildReport` describes it.

    Raises:
        UsageError: when a stored text is over the model's limit and is not to be cut again, or there is nothing to do.
        StoreError: when nothing is published, or a parsed document is not remembered any more.
        GristmillError: another clear reason why nothing was published.
    """
    wanted = {"embedder": options.embedder} | ({"ruler": options.embedder} if options.rechunk else {})
    with workshop(settings.model_copy(update=wanted), options) as shop:
        count = look(shop, rechunk=options.rechunk)
        with shop.progress.documents(count, 0):
            for batch in stored_documents(shop):
                chunk(shop, batch)
                note(shop, batch)
                embed(shop, batch)
                write(shop, batch)
        recall = gate(shop, options, listed=count)
        publish(shop, recall, made_by="reindex", sources={})
        return finished(shop)


@task(cache_policy=NO_CACHE, persist_result=False)
def look(shop: Workshop, *, rechunk: bool) -> int:
    """Whether the new generation can be made at all; how many documents it is of."""
    if shop.published is None:
        raise StoreError(f"index {shop.storage.address}: nothing is published there", "Build it first.")
    if shop.continues and (not rechunk or shop.published.ruler == shop.settings.ruler):
        raise UsageError(
            f"index {shop.storage.address} is made with {shop.settings.embedder} already", "There is nothing to do."
        )
    with shop.report.timed("list"):
        catalog = published_catalog(shop.storage, shop.published)
        _check_remembered(shop, catalog)
        if not rechunk:
            _check_lengths(shop)
    shop.progress.say(f"{len(catalog):,} stored documents for {shop.settings.embedder}")
    return len(catalog)


def _check_remembered(shop: Workshop, catalog: Catalog) -> None:
    lost: list[str] = []
    for batch in catalog.columns(["key", "document"]).to_batches(SCAN_ROWS):
        documents = batch["document"].to_pylist()
        known = shop.documents.known(name for name in documents if name)
        lost += [
            key for key, name in zip(batch["key"].to_pylist(), documents, strict=True) if name and name not in known
        ]
    if lost:
        raise StoreError(
            f"{len(lost)} documents are not remembered any more, the first is {min(lost)}",
            f"Build from the source instead: gristmill build, with `embedder` set to {shop.settings.embedder}.",
        )


def _check_lengths(shop: Workshop) -> None:
    assert shop.published is not None
    table = ChunkTable.open(shop.storage.tables(shop.published.generation), shop.published.chunks_version)
    over, longest = 0, (0, "")
    for batch in table.rows(["chunk_id", "provenance", *EMBEDDED], READ):
        rows = [row for row in batch.to_pylist() if row["provenance"]]
        tokens = shop.embedder.counts([embedded(row) for row in rows]).tolist() if rows else []
        over += sum(count > shop.embedder.limit for count in tokens)
        longest = max([longest, *zip(tokens, (row["chunk_id"] for row in rows), strict=True)])
    if over:
        raise UsageError(
            f"{over} stored texts are over the {shop.embedder.limit} tokens that {shop.settings.embedder} reads; the "
            f"longest, of chunk {longest[1]}, has {longest[0]}",
            "Cut the documents again for this model with --rechunk, or choose another one.",
        )
