"""Whether what is published is whole: catalog, vectors and BM25 against each other, and each row against its digest.

Kept here: the exact versions that the pointer names are read, by scans that trust no index; nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enrich.memo import Memo, VectorMemo, text_digest, vector_key
from enrich.parity import read_probes
from indexes import rows as index_rows
from indexes.catalog import Catalog, stamp
from indexes.generation import open_stores, published_catalog, store_stamp
from indexes.lexical import LexicalIndex
from indexes.retention import leftovers
from indexes.storage import Pointer, Storage
from indexes.vectors import SCAN_ROWS, ChunkTable
from parsers.errors import StoreError

EXAMPLES: Final = 5  # names of what is wrong that a finding gives


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, or worth knowing.

    Attributes:
        what: in words.
        count: how often.
        examples: some names of where.
        fault: whether it makes the index wrong; otherwise it is a hint.
        remedy: what to do.
    """

    what: str
    count: int
    examples: list[str] = []
    fault: bool = True
    remedy: str = "gristmill repair"


class Verdict(msgspec.Struct, frozen=True):
    """What was found in one revision.

    Attributes:
        generation, revision: which.
        checked: rows that were read.
        findings: what is wrong or worth knowing.
        documents: ids of the documents whose rows are not those that the catalog means.
        strangers: ids of documents that have rows and are not in the catalog.
        forgotten: ids of documents that the memory does not hold any more.
    """

    generation: str
    revision: int
    checked: int
    findings: list[Finding]
    documents: list[str]
    strangers: list[str]
    forgotten: list[str]

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.fault for finding in self.findings)


def verify(storage: Storage, pointer: Pointer, *, normalized: bool) -> Verdict:
    """Look at every row of a revision. Vectors are compared with those that the memory holds of the same texts.

    Args:
        normalized: whether its embedder makes vectors of length 1.

    Raises:
        StoreError: when a store of it cannot be opened at all.
    """
    catalog = published_catalog(storage, pointer)
    table = ChunkTable.open(storage.tables(pointer.generation), pointer.chunks_version)
    look = _Look(table, pointer, VectorMemo(storage.memory(), pointer.dimension), normalized=normalized)
    names = _names(catalog)
    strangers = sorted(look.stamps.keys() - names.keys())
    doubted = {name for name, expected in names.items() if look.stamp(name) != expected} | look.doubted & names.keys()
    findings = list(look.findings())
    if strangers:
        findings.append(Finding("documents have rows and are not in the catalog", len(strangers), strangers[:EXAMPLES]))
    if doubted - look.doubted:
        findings.append(_keyed(catalog, "documents have other rows than the catalog says", doubted - look.doubted))
    lexical = _lexical(storage, pointer, table)
    if lexical:
        findings.append(lexical)
    broken = unprovable(storage, pointer)
    if broken:
        findings.append(Finding(broken, 1))
    forgotten = _forgotten(storage, catalog)
    if forgotten:
        what = "documents are not remembered any more: they cannot be shown, cut or embedded again without the source"
        findings.append(
            msgspec.structs.replace(
                _keyed(catalog, what, forgotten), fault=False, remedy="they are fetched again when they change"
            )
        )
    findings += _hints(storage, table)
    return Verdict(
        pointer.generation,
        pointer.revision,
        look.checked,
        findings,
        sorted(doubted),
        strangers,
        sorted(forgotten),
    )


class _Look:
    """One scan over all rows of a table."""

    def __init__(self, table: ChunkTable, pointer: Pointer, memo: VectorMemo, *, normalized: bool) -> None:
        self.stamps: dict[str, dict[str, str]] = {}
        """Row digests by chunk id, by document."""
        self.broken: list[str] = []
        self.no_vector: list[str] = []
        self.foreign: Counter[str] = Counter()
        self.twice: list[str] = []
        self.doubted: set[str] = set()
        self.checked = 0
        self.other_vector: list[str] = []
        self._normalized = normalized
        self._memo = memo
        self._fingerprint = pointer.embedder_fingerprint
        self._runtimes = pointer.runtimes.keys()
        for batch in table.rows(index_rows.schema(table.dimension).names):
            self._take(batch)

    def stamp(self, document: str) -> str:
        """The stamp of a document's rows."""
        rows = self.stamps.get(document, {})
        return stamp(list(rows), list(rows.values()))

    def findings(self) -> Iterator[Finding]:
        """What is wrong with single rows."""
        for what, names in (
            ("rows are not what their digests say", self.broken),
            ("chunk ids stand twice in the table", self.twice),
            ("rows have no proper vector", self.no_vector),
            ("rows have another vector than was made of their text", self.other_vector),
        ):
            if names:
                yield Finding(what, len(names), names[:EXAMPLES])
        if self.foreign:
            what = f"rows have vectors of runtimes that this generation does not know: {', '.join(self.foreign)}"
            yield Finding(what, self.foreign.total())

    def _take(self, batch: pa.RecordBatch) -> None:
        fields = index_rows.Row.__struct_fields__
        improper = {name for name, _ in index_rows.no_vector(batch, normalized=self._normalized)}
        others = self._others(batch)
        for values in batch.drop_columns(["vector"]).to_pylist():
            self.checked += 1
            name, document, provenance = values["chunk_id"], values["document_id"], values["provenance"]
            own = self.stamps.setdefault(document, {})
            row = msgspec.convert({field: values[field] for field in fields}, index_rows.Row)
            digest = index_rows.row_digest(row, has_vector=bool(provenance))
            if digest != values["row_digest"] or text_digest(row.embedded_text) != values["text_digest"]:
                self._wrong(self.broken, name, document)
            if name in own:
                self._wrong(self.twice, name, document)
            own[name] = values["row_digest"]
            if name in improper:
                self._wrong(self.no_vector, name, document)
            if name in others:
                self._wrong(self.other_vector, name, document)
            if provenance and provenance not in self._runtimes:
                self.foreign[provenance] += 1
                self.doubted.add(document)

    def _others(self, batch: pa.RecordBatch) -> set[str]:
        """Ids of the rows whose vector is not the one that the memory holds of their text and that runtime."""
        made = batch.filter(pc.not_equal(batch["provenance"], ""))
        if not len(made):
            return set()
        keys = [vector_key(digest, self._fingerprint) for digest in made["text_digest"].to_pylist()]
        known = self._memo.get(keys)
        stored = np.asarray(made["vector"].flatten()).reshape(len(made), -1)
        found = set()
        for name, key, provenance, vector in zip(
            made["chunk_id"].to_pylist(), keys, made["provenance"].to_pylist(), stored, strict=True
        ):
            own = known.get(key)
            if own is not None and own.runtime == provenance and not np.array_equal(own.vector, vector):
                found.add(name)
        return found

    def _wrong(self, where: list[str], name: str, document: str) -> None:
        where.append(name)
        self.doubted.add(document)


def unprovable(storage: Storage, pointer: Pointer) -> str:
    """What is wrong with the probes by which a runtime proves itself for a revision; empty where nothing is."""
    data = storage.probes(pointer.embedder_fingerprint)
    if data is None:
        return "no probes are kept, so no runtime can prove itself" if pointer.counts.get("vectors") else ""
    try:
        fits = read_probes(data).fingerprint == pointer.embedder_fingerprint
    except StoreError as error:
        return error.message
    return "" if fits else "the probes are of another model"


def _names(catalog: Catalog) -> dict[str, str]:
    """Stamps of all documents, by id."""
    table = catalog.columns(["document_id", "stamp"])
    return dict(zip(table["document_id"].to_pylist(), table["stamp"].to_pylist(), strict=True))


def _keyed(catalog: Catalog, what: str, documents: Iterable[str]) -> Finding:
    """A finding about documents, which are named by their keys."""
    ids = sorted(documents)
    return Finding(what, len(ids), [row.key for row in catalog.named(ids[:EXAMPLES]).values()])


def _lexical(storage: Storage, pointer: Pointer, table: ChunkTable) -> Finding | None:
    """Whether the BM25 index holds just the rows of the table, or cannot be opened."""
    try:
        _, lexical = open_stores(storage, pointer)
        if store_stamp(lexical) == store_stamp(table):
            return None
        differ = _pairs(lexical) ^ _pairs(table)
    except StoreError as error:
        return Finding(f"the BM25 index cannot be read: {error.message}", 1)
    names = sorted({name for name, _ in differ})
    return Finding("rows of the BM25 index are not those of the vector table", len(names), names[:EXAMPLES])


def _pairs(store: LexicalIndex | ChunkTable) -> set[tuple[str, str]]:
    return {
        pair
        for batch in store.stamps()
        for pair in zip(batch["chunk_id"].to_pylist(), batch["row_digest"].to_pylist(), strict=True)
    }


def _forgotten(storage: Storage, catalog: Catalog) -> set[str]:
    memo = Memo(storage.memory(), "documents")
    found: set[str] = set()
    for batch in catalog.columns(["document_id", "document"]).to_batches(SCAN_ROWS):
        named = dict(zip(batch["document_id"].to_pylist(), batch["document"].to_pylist(), strict=True))
        known = memo.known(key for key in named.values() if key)
        found.update(name for name, key in named.items() if key and key not in known)
    return found


def _hints(storage: Storage, table: ChunkTable) -> Iterator[Finding]:
    uncovered = table.uncovered()
    if uncovered:
        what = "rows are not in the vector index yet, and are searched one by one"
        yield Finding(what, uncovered, fault=False, remedy="a build brings the index up to date when it pays")
    left = leftovers(storage)
    if left:
        names = [f"{name}/{one}" for name, revisions in left.items() for one in [*map(str, revisions)] or ["all"]]
        what = "stores were left by builds that did not end"
        yield Finding(what, len(names), names[:EXAMPLES], fault=False, remedy="gristmill sweep")
    scratch = storage.left_in_scratch()
    if scratch:
        what = "bytes of passing files were left by a build that did not end"
        yield Finding(what, scratch, fault=False, remedy="gristmill sweep")
