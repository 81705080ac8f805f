"""Generations and revisions: writing the next one beside what is published, checking it, publishing it.

Kept here: a draft starts from exactly the published revision, whatever a kill left at the heads of the stores; a
generation holds the vectors of one fingerprint; the pointer is the last thing written. So a build can be killed
anywhere, and readers see the old revision or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from indexes.vectors import ChunkTable
from parsers.errors import GateRefused, StoreError

KEPT: Final = 3  # revisions of the published generation whose BM25 index stays for readers that still hold them

# Share of deleted rows above which the BM25 index is written anew: they stay in its statistics until then, so scores
# differ from a clean index.
DELETED_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Written:
    """What one write changed, in rows."""

    added: int
    removed: int
    rewritten: int


class Draft:
    """The next revision while a build writes it.

    Args:
        storage: the index's place, held by this build.
        published: what is published; None at a first build.
        embedder: name of the model.
        fingerprint: of that model; another one than the published begins a new generation.
        dimension: of its vectors.
    """

    def __init__(
        self, storage: Storage, published: Pointer | None, *, embedder: str, fingerprint: str, dimension: int
    ) -> None:
        self._storage = storage
        self._published = published
        self._embedder = embedder
        self._fingerprint = fingerprint
        self._dimension = dimension
        self.continues: Final = published is not None and published.embedder_fingerprint == fingerprint
        if published is not None and published.embedder_fingerprint == fingerprint:
            self.generation, self.revision = published.generation, published.revision + 1
        else:
            self.generation, self.revision = _next_name(published, fingerprint), 1
            storage.discard_generation(self.generation)
        self._db = storage.tables(self.generation)

    @cached_property
    def catalog(self) -> Catalog:
        """The documents, as they will be."""
        catalog = Catalog(self._db)
        if self.continues and self._published is not None:
            catalog.restore(self._published.documents_version)
        return catalog

    @cached_property
    def table(self) -> ChunkTable:
        """The chunk rows, as they will be."""
        if not self.continues or self._published is None:
            return ChunkTable.create(self._db, self._dimension)
        table = ChunkTable.open(self._db)
        table.restore(self._published.chunks_version)
        return table

    @cached_property
    def lexical(self) -> LexicalIndex:
        """The BM25 index, as it will be."""
        folder = self._storage.lexical(self.generation, self.revision)
        if not self.continues or self._published is None:
            return LexicalIndex.create(folder)
        self._storage.drop_lexical(self.generation, set(range(1, self.revision)))
        before = self._storage.lexical(self.generation, self._published.revision)
        if self._published.analysis == analysis.fingerprint():
            snapshot(before, folder)
            index = LexicalIndex.open(folder, write=True)
            if index.deleted_share <= DELETED_SHARE:
                return index
            index.close()
            self._storage.drop_lexical(self.generation, set(range(1, self.revision)))
        return self._rewritten(folder)

    def _rewritten(self, folder: Path) -> LexicalIndex:
        """The BM25 index of the published rows, written anew."""
        assert self._published is not None
        index = LexicalIndex.create(folder)
        published = self.table.checkout(self._published.chunks_version)
        index.apply([], published.rows(COLUMNS))
        return index

    def replace(self, document_ids: Iterable[str], rows: pa.Table) -> Written:
        """Make ``rows`` the rows of these documents: both stores change by the difference alone.

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
        if gone or len(changed):
            self.table.apply(gone, changed)
            self.lexical.apply([*gone, *rewritten], changed)
        return Written(len(changed) - len(rewritten), len(gone), len(rewritten))

    def remove(self, rows: Iterable[Row]) -> Written:
        """Take documents out of the index."""
        gone = list(rows)
        chunk_ids = [chunk_id for row in gone for chunk_id in row.chunk_ids]
        if chunk_ids:
            nothing = schema(self._dimension).empty_table()
            self.table.apply(chunk_ids, nothing)
            self.lexical.apply(chunk_ids, nothing)
        self.catalog.remove(row.document_id for row in gone)
        return Written(0, len(chunk_ids), 0)

    def finish(self) -> None:
        """Commit what was written and bring the indexes over it up to date."""
        self.lexical.commit()
        self.lexical.close()
        self.table.refresh_indexes()

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
        catalog = stamp_sum(row.stamp for row in self.catalog.rows())
        expected = sum(len(row.chunk_ids) for row in self.catalog.rows())
        vectors = stamp_sum(stamp(_pairs(batch)) for batch in self.table.stamps())
        lexical = stamp_sum(stamp(_pairs(batch)) for batch in self.lexical.stamps())
        if not catalog == vectors == lexical:
            raise GateRefused(
                f"the stores disagree: the catalog holds {expected} chunks ({catalog[:8]}), the vector table "
                f"{self.table.count()} ({vectors[:8]}), the BM25 index {self.lexical.count} ({lexical[:8]})",
                "Nothing was published. Build again; if it stays so, remove the index and build it anew.",
            )
        return f"{expected} chunks in all three"

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
        return f"{self._embedder} {self._fingerprint[:8]}"

    def _provenances(self) -> set[str]:
        found: set[str] = set()
        for batch in self.table.rows(["provenance"]):
            found.update(batch["provenance"].unique().to_pylist())
        return found - {""}

    def publish(
        self, *, sources: dict[str, str], runtimes: dict[str, dict[str, Any]], checks: dict[str, str]
    ) -> Pointer:
        """Write the pointer; readers that open the index from now on see this revision."""
        rows = list(self.catalog.rows())
        pointer = Pointer(
            generation=self.generation,
            revision=self.revision,
            chunks_version=self.table.version,
            documents_version=self.catalog.version,
            embedder=self._embedder,
            embedder_fingerprint=self._fingerprint,
            dimension=self._dimension,
            analysis=analysis.fingerprint(),
            sources=sources,
            counts={
                "documents": len(rows),
                "chunks": self.table.count(),
                "vectors": self.table.count_vectors(),
                "tokens": sum(row.tokens for row in rows),
            },
            runtimes=runtimes,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            checks=checks,
        )
        self._storage.publish(pointer)
        self._storage.drop_lexical(self.generation, set(range(self.revision - KEPT + 1, self.revision + 1)))
        return pointer


def published_catalog(storage: Storage, pointer: Pointer) -> Catalog:
    """The documents of a published revision, to read."""
    return Catalog(storage.tables(pointer.generation), pointer.documents_version)


def open_stores(storage: Storage, pointer: Pointer) -> tuple[ChunkTable, LexicalIndex]:
    """The chunk rows and the BM25 index of a published revision, to read.

    Raises:
        StoreError: when a part of it is missing.
    """
    if pointer.analysis != analysis.fingerprint():
        raise StoreError(
            f"index {storage.address}: its BM25 terms were made by {pointer.analysis}, this program makes them by "
            f"{analysis.fingerprint()}",
            "Build again: the BM25 index is written anew and no model is called.",
        )
    try:
        table = ChunkTable.open(storage.tables(pointer.generation), version=pointer.chunks_version)
        lexical = LexicalIndex.open(storage.lexical(pointer.generation, pointer.revision))
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(
            f"index {storage.address}: revision {pointer.revision} of {pointer.generation} cannot be opened: {error}",
            "Build the index again.",
        ) from error
    return table, lexical


def _pairs(batch: pa.RecordBatch) -> Iterable[tuple[str, str]]:
    return zip(batch["chunk_id"].to_pylist(), batch["row_digest"].to_pylist(), strict=True)


def _next_name(published: Pointer | None, fingerprint: str) -> str:
    number = int(published.generation.split("-")[0][1:]) + 1 if published is not None else 1
    return f"g{number}-{fingerprint[:8]}"
