"""What a build has to do: the source's listing against the catalog of the published revision.

Kept here: a document whose version and recipe did not change is not fetched; a document of another source is not
looked at; an empty listing is an error, never a removal of everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chunker.chunk import document_id
from flows.sources import Object
from flows.workshop import Workshop
from indexes.catalog import Row
from indexes.generation import published_catalog
from parsers.document import Document
from parsers.errors import GateRefused, SourceError, UsageError


@dataclass(slots=True)
class Entry:
    """One document on its way through a build; holds names of stored results, never the results.

    Attributes:
        object: as the source lists it.
        row: as the published catalog knows it; None for a new one.
        media_type: what its bytes are taken for.
        bytes_digest: SHA-256 of its bytes, once known.
        document: memory key of the parsed document; of the last good one where this attempt failed.
        chunks: memory key of its chunks.
        notes: memory keys of their notes, in the chunks' order; none where no notes are made.
        unfinished: whether some of those are still to be made, by a later build.
        title: its own or its base name.
        labels: its own and those of the settings.
        status, reason: of this attempt.
        failed: whether this attempt failed, so that the last good version stays.
        transient: whether the failure may pass by itself, so that the next build tries again.
        touched: whether its bytes turned out to be those of the catalog.
    """

    object: Object
    row: Row | None
    media_type: str = ""
    bytes_digest: str = ""
    document: str = ""
    chunks: str = ""
    notes: list[str] = field(default_factory=list)
    unfinished: bool = False
    title: str = ""
    labels: list[str] = field(default_factory=list)
    status: str = "ok"
    reason: str = ""
    failed: bool = False
    transient: bool = False
    touched: bool = False

    @property
    def key(self) -> str:
        """The object's key."""
        return self.object.key

    @property
    def base_name(self) -> str:
        """The last part of the key."""
        return self.key.rsplit("/", 1)[-1]

    @property
    def live(self) -> bool:
        """Whether there is a document to go on with."""
        return bool(self.document) and not self.touched

    def fail(self, status: str, reason: str, *, transient: bool = False) -> None:
        """Note that this attempt failed, and go on with the last good document where there is one."""
        self.status, self.reason, self.failed, self.transient = status, reason, True, transient
        self.document = self.row.document if self.row is not None else ""

    def read(self, document: Document) -> None:
        """Note what the document says of itself."""
        self.title = document.title or self.base_name
        self.labels = sorted({*self.labels, *document.labels})
        if not self.failed:
            self.status, self.reason = document.status, document.reason


@dataclass(slots=True)
class Plan:
    """What a build has to look at.

    Attributes:
        entries: documents that are new, or whose version or recipe moved.
        unchanged: catalog rows of those that did not.
        removed: catalog rows of those that the source no longer holds.
        listed: how many documents the source holds.
    """

    entries: list[Entry]
    unchanged: list[Row]
    removed: list[Row]
    listed: int

    @property
    def size(self) -> int:
        """Bytes of the documents to look at."""
        return sum(entry.object.size for entry in self.entries)

    def batches(self, size: int, count: int) -> Iterator[list[Entry]]:
        """The entries in batches of at most so many bytes (unless one alone is larger) and documents."""
        batch: list[Entry] = []
        held = 0
        for entry in self.entries:
            if batch and (held + entry.object.size > size or len(batch) >= count):
                yield batch
                batch, held = [], 0
            batch.append(entry)
            held += entry.object.size
        if batch:
            yield batch


def make_plan(shop: Workshop, *, new_source: bool) -> Plan:
    """List the source and compare it with the published catalog.

    Args:
        new_source: whether a source that the index does not know may be added to it.

    Raises:
        SourceError: when the source cannot be listed, or is empty at a first build.
        GateRefused: when it is empty and was not before.
        UsageError: when the index does not know the source.
    """
    known = _known_rows(shop, new_source=new_source)
    plan = Plan([], [], [], 0)
    for entry_object in shop.source.objects():
        plan.listed += 1
        row = known.pop(document_id(shop.source.name, entry_object.key), None)
        if row is not None and shop.continues and _unchanged(shop, entry_object, row):
            plan.unchanged.append(row)
        else:
            plan.entries.append(_entry(shop, entry_object, row))
    plan.removed = sorted(known.values(), key=lambda row: row.key)
    if not plan.listed:
        _refuse_empty(shop, plan)
    return plan


def _known_rows(shop: Workshop, *, new_source: bool) -> dict[str, Row]:
    if shop.published is None:
        return {}
    sources = shop.published.sources
    if shop.source.name not in sources and not new_source:
        raise UsageError(
            f"the index {shop.storage.address} knows the sources {', '.join(sorted(sources))}, not {shop.source.name}",
            "Set `source_name` to one of them, or allow a further one with --new-source.",
        )
    others = sorted(sources.keys() - {shop.source.name})
    if others and not shop.continues:
        raise UsageError(
            f"the index {shop.storage.address} was made with {shop.published.embedder}, and a new generation with "
            f"{shop.settings.embedder} needs its other sources too: {', '.join(others)}",
            "Build into a new index, or go on with the model of this one.",
        )
    catalog = published_catalog(shop.storage, shop.published)
    return {row.document_id: row for row in catalog.rows() if row.source == shop.source.name}


def _unchanged(shop: Workshop, entry_object: Object, row: Row) -> bool:
    return (
        row.version == entry_object.version
        and not (entry_object.problem and row.reason != entry_object.problem)
        and row.recipe == shop.recipe(row.key, row.media_type)
    )


def _entry(shop: Workshop, entry_object: Object, row: Row | None) -> Entry:
    entry = Entry(entry_object, row, labels=shop.labels(entry_object.key))
    if entry_object.problem:
        entry.fail("failed", entry_object.problem)
    elif row is not None and row.version == entry_object.version:
        entry.media_type, entry.bytes_digest = row.media_type, row.bytes_digest
    return entry


def _refuse_empty(shop: Workshop, plan: Plan) -> None:
    if plan.removed:
        raise GateRefused(
            f"source {shop.source.address} lists no documents, and the index holds {len(plan.removed)} of it",
            "An empty listing is never read as a removal. Check the source; to empty an index, remove its folder.",
        )
    raise SourceError(
        f"source {shop.source.address} holds no documents", "Check the path, and `include` and `exclude`."
    )
