"""Generations and revisions: writing the next one beside what is published, checking it, publishing it.

Kept here: a draft starts from exactly the published revision, whatever a kill left at the heads of the stores; a
generation holds the vectors of one fingerprint; the pointer is the last thing written. So a build can be killed
anywhere, and readers see the old revision or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from indexes import analysis
from indexes.catalog import Catalog, Row, stamp, stamp_sum
from indexes.lexical import COLUMNS, LexicalIndex, snapshot
from indexes.rows import schema
from indexes.storage import Pointer, Storage
from indexes.store_errors import told
from indexes.vectors import SCAN_ROWS, ChunkTable
from parsers.errors import GateRefused, StoreError

# Share of deleted rows above which the BM25 index is written anew: they stay in its statistics until then, so scores
# differ from a clean index.
DELETED_SHARE: Final = 0.2
FLUSH: Final = 8_192  # changed rows that wait for one write: each makes a version and a piece of the table


@dataclass(frozen=True, slots=True)
class Written:
    """What one write changed, in rows."""

    added: int
    removed: int
    rewritten: int


@dataclass(frozen=True, slots=True)
class Model:
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
    def of(cls, pointer: Pointer) -> Model:
        """The one of a revision."""
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
        model: Model,
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
        continues = self._base is not None and self._base.embedder_fingerprint == model.fingerprint
        self.continues: Final = continues and not anew
        self.revision: Final = published.revision + 1 if published is not None else 1
        if self._base is not None and self.continues:
            self.generation = self._base.generation
        else:
            self.generation = self._new_generation()
        self._db = storage.tables(self.generation, create=True)

    def _new_generation(self) -> str:
        """The name of a new generation, in an index without what killed builds left of others."""
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
        if self._base.analysis == analysis.fingerprint():
            snapshot(self._storage.lexical(self.generation, self._base.revision), folder)
            index = LexicalIndex.open(folder, write=True)
            if index.deleted_share <= DELETED_SHARE:
                return index
            index.close()
            self._storage.drop_lexical(self.generation, self.revision)
        return self._rewritten(self.table.checkout(self._base.chunks_version))

    @property
    def lexical_folder(self) -> Path:
        """Where the BM25 index is written."""
        return self._storage.lexical_draft(self.generation, self.revision)

    def _rewritten(self, table: ChunkTable) -> LexicalIndex:
        """The BM25 index of a table's rows, written anew."""
        index = LexicalIndex.create(self.lexical_folder)
        index.apply([], table.rows(COLUMNS))
        return index

    def rewrite_lexical(self) -> None:
        """Have the BM25 index written anew from the rows of the table, at the end; to be said before anything else."""
        self._rewrite = True

    def replace(self, document_ids: Iterable[str], rows: pa.Table) -> Written:
        """Make ``rows`` the rows of these documents: both stores change by the difference alone.

        A document is to be named once in a draft: what waits to be written is not compared.

        Args:
            document_ids: whose rows these are; a document without rows here loses those it has.
            rows: as :mod:`indexes.rows` says.
        """
        before = dict(self.table.stamps_of(document_ids)) if self.continues else {}
        after = dict(zip(rows["chunk_id"].to_pylist(), rows["row_digest"].to_pylist(), strict=True))
        gone = sorted(before.keys() - after.keys())
        moved = [before.get(chunk_id) != digest for chunk_id, digest in after.items()]
        changed = rows.filter(pa.array(moved, pa.bool_()))
        rewritten = [chunk_id for chunk_id in changed["chunk_id"].to_pylist() if chunk_id in before]
        self._rewritten_ids += rewritten
        self._write(gone, changed)
        return Written(len(changed) - len(rewritten), len(gone), len(rewritten))

    def remove(self, rows: Iterable[Row]) -> Written:
        """Take documents out of the index."""
        gone = list(rows)
        chunk_ids = [chunk_id for row in gone for chunk_id in row.chunk_ids]
        self._write(chunk_ids, schema(self._model.dimension).empty_table())
        self.catalog.remove(row.document_id for row in gone)
        return Written(0, len(chunk_ids), 0)

    def append(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows of a new generation as they are, a batch at a time."""
        for batch in batches:
            self._write([], pa.Table.from_batches([batch]).cast(schema(self._model.dimension)))

    def _write(self, gone: list[str], changed: pa.Table) -> None:
        self._gone += gone
        if len(changed):
            self._changed.append(changed)
        self._waiting += len(gone) + len(changed)
        if self._waiting >= FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            nothing = schema(self._model.dimension).empty_table()
            changed = pa.concat_tables([nothing, *self._changed])
            self.table.apply(self._gone, changed)
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

    def check_stores(self) -> str:
        """Both stores against the catalog: the same chunk ids with the same row digests.

        Returns:
            The figure for the record.

        Raises:
            GateRefused: when they differ.
        """
        expected = self.catalog.totals()
        vectors, lexical = store_stamp(self.table), store_stamp(self.lexical)
        if not expected.stamp == vectors == lexical:
            raise GateRefused(
                f"the stores disagree: the catalog holds {expected.chunks} chunks ({expected.stamp[:8]}), the vector "
                f"table {self.table.count()} ({vectors[:8]}), the BM25 index {self.lexical.count} ({lexical[:8]})",
                "Nothing was published. See `gristmill verify`; `gristmill repair` sets the published index right.",
            )
        return f"{expected.chunks} chunks in all three"

    def check_fingerprint(self, runtimes: Iterable[str]) -> str:
        """No vector of a runtime that this generation does not know.

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
        found: set[str] = set()
        for batch in self.table.rows(["provenance"], SCAN_ROWS):
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

        The arguments are as :class:`indexes.storage.Pointer` says.
        """
        totals = self.catalog.totals()
        pointer = Pointer(
            generation=self.generation,
            revision=self.revision,
            chunks_version=self.table.version,
            documents_version=self.catalog.version,
            embedder=self._model.embedder,
            embedder_fingerprint=self._model.fingerprint,
            dimension=self._model.dimension,
            ruler=self._model.ruler,
            analysis=analysis.fingerprint(),
            sources=sources,
            counts={
                "documents": totals.documents,
                "chunks": self.table.count(),
                "vectors": self.table.count_vectors(),
                "tokens": totals.tokens,
            },
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
    """The documents of a published revision, to read.

    Raises:
        StoreError: when a file of the revision is missing or damaged.
    """
    storage.check(pointer)
    with told(storage.address):
        return Catalog(storage.tables(pointer.generation), pointer.documents_version)


def open_stores(storage: Storage, pointer: Pointer) -> tuple[ChunkTable, LexicalIndex]:
    """The chunk rows and the BM25 index of a published revision, to read.

    Raises:
        StoreError: when a part of it is missing or damaged.
    """
    storage.check(pointer)
    check_analysis(storage, pointer)
    with told(storage.address):
        table = ChunkTable.open(storage.tables(pointer.generation), version=pointer.chunks_version)
        return table, LexicalIndex.open(storage.lexical(pointer.generation, pointer.revision))


def check_analysis(storage: Storage, pointer: Pointer) -> None:
    """Check that the terms of a BM25 index were made as this program makes them.

    Raises:
        StoreError: when they were not.
    """
    if pointer.analysis != analysis.fingerprint():
        raise StoreError(
            f"index {storage.address}: its BM25 terms were made by {pointer.analysis}, this program makes them by "
            f"{analysis.fingerprint()}",
            "Build again: the BM25 index is written anew and no model is called.",
        )


def store_stamp(store: ChunkTable | LexicalIndex) -> str:
    """The stamp of all rows of a store, see :func:`indexes.catalog.stamp`."""
    return stamp_sum(
        [stamp(batch["chunk_id"].to_pylist(), batch["row_digest"].to_pylist()) for batch in store.stamps()]
    )
