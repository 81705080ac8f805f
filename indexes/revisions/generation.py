"""Generations and revisions: writing the next one beside what is published, checking it, publishing it.

Invariants:
- A draft starts from exactly the published revision, whatever a kill left at the heads of the stores.
- A generation holds the vectors of one fingerprint.
- The pointer is the last thing written. So a build can be killed anywhere, and readers see the old revision or the new
  one, whole.
- Both stores agree with the catalog: their counts and the rows of every document that the draft touched are compared
  each time, all rows by turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indexes.catalog import Catalog, CatalogRow, Totals
from indexes.lexical import analysis
from indexes.lexical.index import COLUMNS, LexicalIndex, snapshot
from indexes.revisions.agreement import differing, store_stamp
from indexes.rows import schema
from indexes.storage.errors import clear_errors
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import WIDE_SCAN_ROWS, ChunkTable
from parsers.errors import GateRefused, StoreError

# Share of deleted rows above which the BM25 index is written anew: they stay in its statistics until then, so scores
# differ from a clean index.
DELETED_SHARE: Final = 0.2
FLUSH: Final = 8_192  # changed rows that wait for one write: each makes a version and a piece of the table
FULL_EVERY: Final = 20  # revisions after which all rows are compared, whatever changed
TOUCHED_SHARE: Final = 0.25  # of the documents above which comparing all rows is no more work


@dataclass(frozen=True, slots=True)
class Written:
    """What one write changed, in rows."""

    added: int
    removed: int
    rewritten: int


@dataclass(frozen=True, slots=True)
class IndexModel:
    """What makes the vectors of a generation, and what its chunks were counted with.

    Attributes:
        embedder: name of the model.
        fingerprint: of that model; another one than the published begins a new generation.
        dimension: of its vectors.
        ruler: name of the model whose tokenizer counts.
    """

    embedder: str
    fingerprint: str
    dimension: int
    ruler: str

    @classmethod
    def of(cls, pointer: Pointer) -> IndexModel:
        """Return the one of a revision."""
        return cls(pointer.embedder, pointer.embedder_fingerprint, pointer.dimension, pointer.ruler)


class Draft:
    """The next revision while a build writes it.

    Args:
        storage: the index's place, held by this build.
        published: what is published; None at a first build.
        model: of the vectors to be.
        base: the revision that the draft starts from, where that is another than the published one.
        anew: begin a new generation, whatever made the vectors of the base.
    """

    def __init__(
        self,
        storage: Storage,
        published: Pointer | None,
        model: IndexModel,
        base: Pointer | None = None,
        *,
        anew: bool = False,
    ) -> None:
        self._storage = storage
        self._base = base or published
        self._model = model
        self._gone: list[str] = []
        self._rewritten_ids: list[str] = []
        self._changed: list[pa.Table] = []
        self._waiting = 0
        self._rewrite = False
        self._touched: set[str] = set()
        self._made_by: set[str] = set()
        self._more_vectors = 0
        continues = self._base is not None and self._base.embedder_fingerprint == model.fingerprint
        self.continues: Final = continues and not anew
        self.revision: Final = published.revision + 1 if published is not None else 1
        if self._base is not None and self.continues:
            self.generation = self._base.generation
        else:
            self.generation = self._new_generation()
        self._db = storage.tables(self.generation, create=True)
        known = self.continues and self._base is not None and bool(self._base.stamp)
        self._everything = not known or self.revision % FULL_EVERY == 0

    def _new_generation(self) -> str:
        """Return the name of a new generation, in an index without what killed builds left of others."""
        kept = {one.generation for one in self._storage.revisions()}
        for name in self._storage.generations() - kept:
            self._storage.discard_generation(name)
        number = max((int(name.split("-")[0][1:]) for name in kept), default=0) + 1
        return f"g{number}-{self._model.fingerprint[:8]}"

    @cached_property
    def catalog(self) -> Catalog:
        """The documents, as they will be."""
        catalog = Catalog(self._db)
        if self.continues and self._base is not None:
            catalog.restore(self._base.documents_version)
        return catalog

    @cached_property
    def table(self) -> ChunkTable:
        """The chunk rows, as they will be; what waits to be written is not in it yet."""
        if not self.continues or self._base is None:
            return ChunkTable.create(self._db, self._model.dimension)
        table = ChunkTable.open(self._db)
        table.restore(self._base.chunks_version)
        return table

    @cached_property
    def lexical(self) -> LexicalIndex:
        """The BM25 index, as it will be."""
        folder = self.lexical_folder
        kept = [one.revision for one in self._storage.revisions() if one.generation == self.generation]
        for left in self._storage.drafts(self.generation, kept):
            self._storage.drop_lexical(self.generation, left)
        if not self.continues or self._base is None:
            return LexicalIndex.create(folder)
        if self._base.analysis == analysis.analysis_fingerprint():
            snapshot(self._storage.lexical(self.generation, self._base.revision), folder)
            index = LexicalIndex.open(folder, write=True)
            if index.deleted_share <= DELETED_SHARE:
                return index
            index.close()
            self._storage.drop_lexical(self.generation, self.revision)
        self._everything = True
        return self._rewritten(self.table.checkout(self._base.chunks_version))

    @property
    def lexical_folder(self) -> Path:
        """Where the BM25 index is written."""
        return self._storage.lexical_draft(self.generation, self.revision)

    def _rewritten(self, table: ChunkTable) -> LexicalIndex:
        """Return the BM25 index of a table's rows, written anew."""
        index = LexicalIndex.create(self.lexical_folder)
        index.apply([], table.rows(COLUMNS))
        return index

    def rewrite_lexical(self) -> None:
        """Have the BM25 index written anew from the rows of the table, at the end. Call before any other write."""
        self._rewrite = self._everything = True

    def compare_everything(self) -> None:
        """Have all rows of the stores compared, not those of the touched documents alone."""
        self._everything = True

    def replace(self, document_ids: Iterable[str], rows: pa.Table) -> Written:
        """Make ``rows`` the rows of these documents: both stores change by the difference alone.

        A document is to be named once in a draft: what waits to be written is not compared.

        Args:
            document_ids: whose rows these are; a document without rows here loses those it has.
            rows: as :mod:`indexes.rows` says.
        """
        names = list(document_ids)
        before, vectors = self._before(names)
        after = dict(zip(rows["chunk_id"].to_pylist(), rows["row_digest"].to_pylist(), strict=True))
        gone = sorted(before.keys() - after.keys())
        moved = [before.get(chunk_id) != digest for chunk_id, digest in after.items()]
        changed = rows.filter(pa.array(moved, pa.bool_()))
        rewritten = [chunk_id for chunk_id in changed["chunk_id"].to_pylist() if chunk_id in before]
        self._more_vectors += pc.sum(pc.not_equal(rows["provenance"], "")).as_py() or 0
        self._more_vectors -= vectors
        self._rewritten_ids += rewritten
        self._write(gone, changed)
        return Written(len(changed) - len(rewritten), len(gone), len(rewritten))

    def remove(self, rows: Iterable[CatalogRow]) -> Written:
        """Take documents out of the index."""
        out = list(rows)
        before, vectors = self._before([row.document_id for row in out])
        self._more_vectors -= vectors
        self._write(sorted(before), schema(self._model.dimension).empty_table())
        self.catalog.remove(row.document_id for row in out)
        return Written(0, sum(len(row.chunk_ids) for row in out), 0)

    def _before(self, document_ids: list[str]) -> tuple[dict[str, str], int]:
        """Row digests by chunk id of these documents as they stand, and how many of the rows have a vector."""
        self._touched.update(document_ids)
        found: dict[str, str] = {}
        vectors = 0
        if self.continues:
            for part in self.table.columns_of(document_ids, ["chunk_id", "row_digest", "provenance"]):
                found.update(zip(part["chunk_id"].to_pylist(), part["row_digest"].to_pylist(), strict=True))
                vectors += pc.sum(pc.not_equal(part["provenance"], "")).as_py() or 0
        return found, vectors

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows of a new generation as they are, a batch at a time."""
        for batch in batches:
            self.table.append([batch])
            self.lexical.apply([], [batch])

    def _write(self, gone: list[str], changed: pa.Table) -> None:
        self._gone += gone
        if len(changed):
            self._changed.append(changed)
            self._made_by.update(changed["provenance"].unique().to_pylist())
        self._waiting += len(gone) + len(changed)
        if self._waiting >= FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            nothing = schema(self._model.dimension).empty_table()
            changed = pa.concat_tables([nothing, *self._changed])
            self.table.apply(self._gone, changed, [*self._gone, *self._rewritten_ids])
            if not self._rewrite:
                self.lexical.apply([*self._gone, *self._rewritten_ids], changed)
            self._gone, self._rewritten_ids, self._changed, self._waiting = [], [], [], 0

    def finish(self) -> None:
        """Write what waits, commit it, and bring indexes and pieces up to date."""
        self._flush()
        if self._rewrite:
            self._storage.drop_lexical(self.generation, self.revision)
            self.__dict__["lexical"] = self._rewritten(self.table)
        self.lexical.commit()
        self.lexical.close()
        self.table.compact()
        self.table.refresh_indexes()
        self.catalog.finish()

    def close(self) -> None:
        """Let go of the BM25 index; what was not committed is gone."""
        if "lexical" in self.__dict__:
            self.lexical.close()

    @property
    def vectors(self) -> int:
        """How many rows have a vector."""
        if self._base is None or self._everything:
            return self.table.count_vectors()
        return self._base.counts["vectors"] + self._more_vectors

    @cached_property
    def _totals(self) -> Totals:
        """The catalog in figures. Ask for it once everything is written."""
        if self._base is None or self._everything:
            return self.catalog.totals()
        counts = self._base.counts
        before = Totals(counts["documents"], counts["chunks"], counts["tokens"], self._base.stamp)
        return before + self.catalog.change

    def check_stores(self) -> str:
        """Compare both stores with the catalog: the same chunk ids with the same row digests.

        By turns, and where much was touched, all rows are compared; otherwise the counts of all three and the rows of
        the touched documents.

        Returns:
            The figure for the record.

        Raises:
            GateRefused: when they differ.
        """
        if len(self._touched) > TOUCHED_SHARE * len(self.catalog):
            self._everything = True
        expected, compared = self._totals, ""
        counts = [expected.chunks, self.table.count(), self.lexical.count]
        if self._everything:
            stamps = [expected.stamp, store_stamp(self.table), store_stamp(self.lexical)]
            whole = len(set(stamps)) == len(set(counts)) == 1
            said = [f"{count} chunks ({one[:8]})" for count, one in zip(counts, stamps, strict=True)]
        else:
            pieces = differing(self._touched, self.catalog, self.table, self.lexical)
            whole = not pieces and len(set(counts)) == 1
            said = [f"{count} chunks" for count in counts]
            compared = f", those of {len(self._touched)} touched documents one by one"
        if not whole:
            raise GateRefused(
                f"the stores disagree: the catalog holds {said[0]}, the vector table {said[1]}, the BM25 index "
                f"{said[2]}{compared}",
                "Nothing was published. See `gristmill verify`; `gristmill repair` sets the published index right.",
            )
        return f"{expected.chunks} chunks in all three{compared}"

    def check_fingerprint(self, runtimes: Iterable[str]) -> str:
        """Return no vector of a runtime that this generation does not know.

        Raises:
            GateRefused: naming the foreign ones.
        """
        foreign = sorted(self._provenances() - set(runtimes))
        if foreign:
            raise GateRefused(
                f"the index holds vectors of unknown runtimes: {', '.join(foreign)}", "Build the index anew."
            )
        return f"{self._model.embedder} {self._model.fingerprint[:8]}"

    def _provenances(self) -> set[str]:
        """Runtimes that made the vectors of all rows, or, between two turns, of those that this draft wrote."""
        found = set(self._made_by)
        if self._everything:
            for batch in self.table.rows(["provenance"], WIDE_SCAN_ROWS):
                found.update(batch["provenance"].unique().to_pylist())
        return found - {""}

    def publish(
        self,
        *,
        sources: dict[str, str],
        runtimes: dict[str, dict[str, Any]],
        checks: dict[str, str],
        made_by: str,
        held: str = "",
        rates: Mapping[str, float] | None = None,
    ) -> Pointer:
        """Write the pointer; readers that open the index from now on see this revision.

        The arguments are as :class:`indexes.storage.storage.Pointer` says.
        """
        totals = self._totals
        pointer = Pointer(
            generation=self.generation,
            revision=self.revision,
            chunks_version=self.table.version,
            documents_version=self.catalog.version,
            embedder=self._model.embedder,
            embedder_fingerprint=self._model.fingerprint,
            dimension=self._model.dimension,
            ruler=self._model.ruler,
            analysis=analysis.analysis_fingerprint(),
            sources=sources,
            counts={
                "documents": totals.documents,
                "chunks": self.table.count(),
                "vectors": self.vectors,
                "tokens": totals.tokens,
            },
            stamp=totals.stamp,
            runtimes=runtimes,
            made_by=made_by,
            held=held,
            rates=dict(rates or {}),
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            checks=checks,
        )
        self._storage.store_lexical(self.generation, self.revision)
        return self._storage.publish(pointer)


def published_catalog(storage: Storage, pointer: Pointer) -> Catalog:
    """Return the documents of a published revision, to read.

    Raises:
        StoreError: when a file of the revision is missing or damaged.
    """
    storage.check(pointer)
    with clear_errors(storage.address):
        return Catalog(storage.tables(pointer.generation), pointer.documents_version)


def open_stores(storage: Storage, pointer: Pointer) -> tuple[ChunkTable, LexicalIndex]:
    """Return the chunk rows and the BM25 index of a published revision, to read.

    Raises:
        StoreError: when a part of it is missing or damaged.
    """
    storage.check(pointer)
    check_analysis(storage, pointer)
    with clear_errors(storage.address):
        table = ChunkTable.open(storage.tables(pointer.generation), version=pointer.chunks_version)
        return table, LexicalIndex.open(storage.lexical(pointer.generation, pointer.revision))


def check_analysis(storage: Storage, pointer: Pointer) -> None:
    """Check that the terms of a BM25 index were made as this program makes them.

    Raises:
        StoreError: when they were not.
    """
    if pointer.analysis != analysis.analysis_fingerprint():
        raise StoreError(
            f"index {storage.address}: its BM25 terms were made by {pointer.analysis}, this program makes them by "
            f"{analysis.analysis_fingerprint()}",
            "Build again: the BM25 index is written anew and no model is called.",
        )
