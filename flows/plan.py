"""What a build has to do: the source's listing against the catalog of the published revision.

Kept here: a document whose version and recipe did not change is not looked at; a document of another source is not
either; an empty listing is an error, never a removal of everything; a listing that breaks off leaves no plan; and the
plan lies in a file, so that no build holds a list of all documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from chunker.chunk import document_id
from flows.entry import Batch, Entry
from flows.sources import Object
from flows.workshop import Workshop
from indexes.catalog import Row
from indexes.generation import published_catalog
from parsers.errors import GateRefused, SourceError, UsageError

PIECE: Final = 10_000  # rows of the catalog that are Python objects at a time
REMOVED_AT_ONCE: Final = 2_000


class Known(msgspec.Struct, frozen=True):
    """What the plan asks of a document in the catalog: the same fields of :class:`indexes.catalog.Row`."""

    document_id: str
    key: str
    version: str
    size: int
    media_type: str
    recipe: str
    status: str
    reason: str
    attempts: int
    tokens: int
    unknown: int


COLUMNS: Final = Known.__struct_fields__


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a plan.

    Attributes:
        do: ``add`` a document that is new, ``look`` at one whose version moved, ``renew`` one whose recipe moved alone,
            or ``remove`` one that is gone.
        key, version, size, problem: as the source lists it.
        document_id: of the document.
    """

    do: str
    key: str
    document_id: str
    version: str = ""
    size: int = 0
    problem: str = ""


@dataclass(slots=True)
class Plan:
    """What a build has to look at.

    Attributes:
        path: the file of its steps, one JSON object a line, by ascending key.
        source: the source's name.
        listed: how many documents the source holds.
        listed_size: bytes of all of them.
        unchanged: how many of them need nothing.
        steps: how many are to be added, looked at, renewed and removed.
        size: bytes of the documents to look at.
    """

    path: Path
    source: str
    listed: int
    listed_size: int
    unchanged: int
    steps: dict[str, int]
    size: int

    @property
    def looked_at(self) -> int:
        """How many documents are to be looked at."""
        return self.steps["add"] + self.steps["look"] + self.steps["renew"]

    @property
    def known(self) -> int:
        """How many documents of this source the index holds now."""
        return self.unchanged + self.steps["look"] + self.steps["renew"] + self.steps["remove"]

    def read(self) -> Iterator[Step]:
        """The steps, in their order."""
        return read_steps(self.path)

    def batches(self, shop: Workshop) -> Iterator[Batch]:
        """The documents to look at, in batches of at most so many bytes (unless one alone is larger) and documents."""
        batch: list[Step] = []
        held = 0
        limit, count = shop.settings.batch_bytes, shop.settings.batch_documents
        for step in self.read():
            if step.do == "remove":
                continue
            if batch and (held + step.size > limit or len(batch) >= count):
                yield Batch(self.entries(shop, batch))
                batch, held = [], 0
            batch.append(step)
            held += step.size
        if batch:
            yield Batch(self.entries(shop, batch))

    def removed(self, shop: Workshop) -> Iterator[list[Row]]:
        """The catalog rows of documents that are gone, some at a time."""
        gone = (step.document_id for step in self.read() if step.do == "remove")
        while ids := list(islice(gone, REMOVED_AT_ONCE)):
            rows = shop.published_rows(ids)
            yield [rows[name] for name in ids]

    def entries(self, shop: Workshop, steps: list[Step]) -> list[Entry]:
        """The documents of some steps."""
        rows = shop.published_rows(step.document_id for step in steps if step.do != "add")
        return [self._entry(shop, step, rows.get(step.document_id)) for step in steps]

    def _entry(self, shop: Workshop, step: Step, row: Row | None) -> Entry:
        listed = Object(step.key, step.version, step.size, step.problem)
        entry = Entry(listed, self.source, row, labels=shop.labels(step.key))
        if step.problem:
            entry.fail("failed", step.problem)
        elif row is not None and row.version == step.version:
            entry.media_type, entry.bytes_digest = row.media_type, row.bytes_digest
        return entry


def read_steps(path: Path) -> Iterator[Step]:
    """The steps of a plan's file."""
    decode = msgspec.json.Decoder(Step).decode
    with path.open("rb") as file:
        for line in file:
            yield decode(line)


def make_plan(shop: Workshop, path: Path, *, new_source: bool) -> Plan:
    """List the source and compare it with the published catalog.

    Args:
        path: where the steps are written.
        new_source: whether a source that the index does not know may be added to it.

    Raises:
        SourceError: when the source cannot be listed, or is empty at a first build.
        GateRefused: when it is empty and was not before.
        UsageError: when the index does not know the source.
    """
    _check_sources(shop, new_source=new_source)
    plan = Plan(path, shop.source.name, 0, 0, 0, dict.fromkeys(("add", "look", "renew", "remove"), 0), 0)
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        for step in _steps(shop, plan):
            file.write(encode(step) + b"\n")
            plan.steps[step.do] += 1
            plan.size += step.size
    if not plan.listed:
        _refuse_empty(shop, plan)
    return plan


def _steps(shop: Workshop, plan: Plan) -> Iterator[Step]:
    """Both sides by ascending key, one beside the other."""
    known = _known(shop)
    row = next(known, None)
    last = ""
    for listed in shop.source.objects():
        if plan.listed and listed.key <= last:
            raise SourceError(
                f"source {shop.source.address} lists {listed.key!r} after {last!r}",
                "A source lists each key once, in ascending order; this one changed while it was listed. Build again.",
            )
        last = listed.key
        plan.listed += 1
        plan.listed_size += listed.size
        while row is not None and row.key < listed.key:
            yield Step("remove", row.key, row.document_id)
            row = next(known, None)
        if row is None or row.key != listed.key:
            yield _step("add", shop, listed)
            continue
        if row.version != listed.version or (listed.problem and row.reason != listed.problem):
            yield _step("look", shop, listed)
        elif not shop.continues or row.recipe != shop.recipe(row.key, row.media_type):
            yield _step("renew", shop, listed)
        else:
            plan.unchanged += 1
            shop.note_status(row)
        row = next(known, None)
    while row is not None:
        yield Step("remove", row.key, row.document_id)
        row = next(known, None)


def _step(do: str, shop: Workshop, listed: Object) -> Step:
    name = document_id(shop.source.name, listed.key)
    return Step(do, listed.key, name, listed.version, listed.size, listed.problem)


def _known(shop: Workshop) -> Iterator[Known]:
    """What the catalog holds of the source, by ascending key."""
    if shop.published is None:
        return
    table = published_catalog(shop.storage, shop.published).columns(COLUMNS, shop.source.name).sort_by("key")
    for start in range(0, len(table), PIECE):
        columns: Iterable[list[object]] = table.slice(start, PIECE).to_pydict().values()
        for values in zip(*columns, strict=True):
            yield Known(*values)


def _check_sources(shop: Workshop, *, new_source: bool) -> None:
    if shop.published is None:
        return
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
            f"Make it from what is stored: gristmill reindex --embedder {shop.settings.embedder}",
        )


def _refuse_empty(shop: Workshop, plan: Plan) -> None:
    if plan.known:
        raise GateRefused(
            f"source {shop.source.address} lists no documents, and the index holds {plan.known} of it",
            "An empty listing is never read as a removal. Check the source; to empty an index, remove its folder.",
        )
    raise SourceError(
        f"source {shop.source.address} holds no documents", "Check the path, and `include` and `exclude`."
    )
