"""Whether what is published is whole: catalog, vectors and BM25 against each other, and each row against its digest.

Invariants:
- The exact versions that the pointer names are read, by scans that trust no index.
- Every damaged file is named.
- Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from enrich.embedding.parity import read_probes
from indexes import rows as index_rows
from indexes.cache.store import BytesCache, VectorCache, text_digest, vector_key
from indexes.catalog import Catalog, stamp
from indexes.integrity import damage
from indexes.lexical.index import LexicalIndex
from indexes.revisions.agreement import store_stamp
from indexes.revisions.generation import check_analysis
from indexes.revisions.retention import leftovers
from indexes.storage.digests import TABLES, Damage
from indexes.storage.errors import clear_errors
from indexes.storage.layout import DOCUMENTS
from indexes.storage.storage import Pointer, Storage
from indexes.vectors import WIDE_SCAN_ROWS, ChunkTable
from parsers.errors import StoreError

EXAMPLES: Final = 5  # names of what is wrong that a finding gives; of damaged files, all
NOT_CHECKABLE: Final = "files are not checkable: published before digests were recorded"
_PARTS: Final = {
    "chunks": "the table of chunks",
    "documents": "the catalog",
    "lexical": "the BM25 index",
    "files": "the list of files",
    "revisions": "the record of this revision",
}
REMEDIES: Final = {
    "chunks": "it writes the table anew from what is whole, and from the cache",
    "documents": "it writes the catalog anew; the next build compares every document with its source",
    "lexical": "it writes the index anew from the rows of the table",
    "probes": "it makes them again with the embedder",
}

Opened = TypeVar("Opened")
_Found = TypeVar("_Found")


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
        forgotten: ids of documents that the cache does not hold any more.
        lost: of ``chunks`` and ``documents``, the tables that cannot be read, or hold a damaged file of rows.
        damaged: keys of the damaged files of this revision.
    """

    generation: str
    revision: int
    checked: int
    findings: list[Finding]
    documents: list[str]
    strangers: list[str]
    forgotten: list[str]
    lost: list[str] = []
    damaged: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.fault for finding in self.findings)


def verify(storage: Storage, pointer: Pointer, *, normalized: bool) -> Verdict:
    """Look at every file and every row of a revision.

    Where its files are what they were when they were written, vectors are compared with those that the cache holds of
    the same texts. Of a table with a damaged file no row is read: LanceDB can end the process over one.

    Args:
        normalized: whether its embedder makes vectors of length 1.
    """
    damages = damage.of_revision(storage, pointer)
    findings = list(_damaged(damages))
    if not damage.recorded(pointer):
        findings.append(Finding(NOT_CHECKABLE, 1, fault=False, remedy="the next build that publishes records them"))
    lost = {one.part for one in damages if one.part in _PARTS and not _harmless(one)}
    found = Verdict(pointer.generation, pointer.revision, 0, findings, [], [], [])
    try:
        with clear_errors(storage.address):
            found = _rows(storage, pointer, found, lost, normalized=normalized)
    except StoreError as error:  # an index of which no digests were recorded, or a cache that cannot be read
        findings.append(Finding(error.message, 1))
    broken = "" if any(one.part == "probes" for one in damages) else unprovable(storage, pointer)
    if broken:
        findings.append(Finding(broken, 1))
    return msgspec.structs.replace(found, lost=sorted(lost & TABLES.keys()), damaged=[one.key for one in damages])


def _rows(storage: Storage, pointer: Pointer, found: Verdict, lost: set[str], *, normalized: bool) -> Verdict:
    """Check the rows of both tables and of the BM25 index; add unreadable tables to the lost ones.

    Raises:
        StoreError: when the cache cannot be read.
    """
    findings = found.findings
    catalog = _opened("documents", lost, findings, storage, lambda: Catalog(*_place(storage, pointer, "documents")))
    table = _opened("chunks", lost, findings, storage, lambda: ChunkTable.open(*_place(storage, pointer, "chunks")))
    names = _read("documents", lost, findings, storage, catalog, _names)
    look = None
    if table is not None:
        memo = _cache(storage, lambda db: VectorCache(db, pointer.dimension), findings)
        look = _read("chunks", lost, findings, storage, table, lambda one: _Look(one, pointer, memo, normalized))
    if look is not None:
        findings += look.findings()
    if look is not None and table is not None:
        if "lexical" not in lost and (lexical := _lexical(storage, pointer, table)):
            findings.append(lexical)
        findings += _uncovered(table)
    findings += _leftovers(storage)
    if catalog is None or names is None:
        return found
    strangers = sorted(look.stamps.keys() - names.keys()) if look is not None else []
    doubted: set[str] = set()
    if look is not None:
        differ = {name for name, expected in names.items() if look.stamp(name) != expected}
        doubted = differ | look.doubted & names.keys()
    if strangers:
        findings.append(Finding("documents have rows and are not in the catalog", len(strangers), strangers[:EXAMPLES]))
    if look is not None and doubted - look.doubted:
        findings.append(_keyed(catalog, "documents have other rows than the catalog says", doubted - look.doubted))
    forgotten = _forgotten(storage, catalog, findings)
    return msgspec.structs.replace(
        found,
        checked=look.checked if look is not None else 0,
        documents=sorted(doubted),
        strangers=strangers,
        forgotten=sorted(forgotten),
    )


def _place(storage: Storage, pointer: Pointer, name: str) -> tuple[Any, int]:
    version = pointer.chunks_version if name == "chunks" else pointer.documents_version
    return storage.tables(pointer.generation), version


def _opened(
    name: str, lost: set[str], findings: list[Finding], storage: Storage, opens: Callable[[], Opened]
) -> Opened | None:
    """Return a table of the revision; None where it is lost, or is found to be."""
    if name in lost:
        return None
    try:
        with clear_errors(storage.address):
            return opens()
    except StoreError as error:
        lost.add(name)
        findings.append(Finding(f"the table {name} cannot be opened: {error.message}", 1))
        return None


def _read(
    name: str,
    lost: set[str],
    findings: list[Finding],
    storage: Storage,
    table: Opened | None,
    reads: Callable[[Opened], _Found],
) -> _Found | None:
    """Scan all rows of a table; None where they cannot be read."""
    if table is None:
        return None
    try:
        with clear_errors(storage.address):
            return reads(table)
    except StoreError as error:
        lost.add(name)
        findings.append(Finding(f"the table {name} cannot be read: {error.message}", 1))
        return None


def _cache(storage: Storage, opens: Callable[[Any], Opened], findings: list[Finding]) -> Opened | None:
    """Return a table of the cache; None where it cannot be opened."""
    try:
        with clear_errors(storage.address):
            return opens(storage.cache())
    except StoreError as error:
        findings.append(Finding(f"a table of the cache cannot be read: {error.message}", 1))
        return None


def _damaged(damages: Sequence[Damage]) -> Iterator[Finding]:
    """Yield findings about damaged files, one for each part of the index; every file is named."""
    for part in sorted({one.part for one in damages}):
        own = [one for one in damages if one.part == part]
        yield Finding(
            f"files of {_PARTS.get(part, part)} are missing or damaged",
            len(own),
            [f"{one.key} {one.problem}" for one in own],
            remedy=f"gristmill repair: {REMEDIES.get(part, 'it writes them anew')}",
        )


def _harmless(found: Damage) -> bool:
    """Return whether the rows can be read all the same, or tantivy refuses to open them: then more can be said."""
    if found.part == "lexical":
        return found.key.endswith(".json") or found.problem == "is missing"
    return "/_indices/" in found.key or "/_transactions/" in found.key


def whole_index(storage: Storage, published: Pointer) -> list[Finding]:
    """Check everything beside the published revision: older revisions, cache, evaluations."""
    found = []
    for number, damages in sorted(damage.of_others(storage, published).items()):
        names = [f"{one.key} {one.problem}" for one in damages]
        what = f"files of the older revision {number} are missing or damaged"
        found.append(Finding(what, len(names), names, remedy="gristmill repair: it gives that revision up"))
    rest = damage.of_the_rest(storage)
    cache = [f"{one.key} {one.problem}" for one in rest if not one.key.startswith(damage.EVALUATIONS)]
    if cache:
        what = "files of the cache are missing or damaged"
        remedy = "gristmill repair, or a build: what they held is computed again when it is needed"
        found.append(Finding(what, len(cache), cache, remedy=remedy))
    records = [f"{one.key} {one.problem}" for one in rest if one.key.startswith(damage.EVALUATIONS)]
    if records:
        what = "kept evaluations are damaged"
        found.append(Finding(what, len(records), records, fault=False, remedy="remove them, and evaluate again"))
    return found


class _Look:
    """One scan over all rows of a table."""

    def __init__(self, table: ChunkTable, pointer: Pointer, memo: VectorCache | None, normalized: bool) -> None:
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
        """Return the stamp of a document's rows."""
        rows = self.stamps.get(document, {})
        return stamp(list(rows), list(rows.values()))

    def findings(self) -> Iterator[Finding]:
        """Yield the findings about single rows."""
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
        fields = index_rows.ChunkRow.__struct_fields__
        improper = {name for name, _ in index_rows.no_vector(batch, normalized=self._normalized)}
        others = self._others(batch)
        for values in batch.drop_columns(["vector"]).to_pylist():
            self.checked += 1
            name, document, provenance = values["chunk_id"], values["document_id"], values["provenance"]
            own = self.stamps.setdefault(document, {})
            row = msgspec.convert({field: values[field] for field in fields}, index_rows.ChunkRow)
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
        """Return ids of the rows whose vector is not the one that the cache holds of their text and that runtime."""
        made = batch.filter(pc.not_equal(batch["provenance"], ""))
        if not len(made) or self._memo is None:
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
    """Return the problem with the probes of a revision; empty where there is none."""
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
    """Return a finding about documents, which are named by their keys."""
    ids = sorted(documents)
    return Finding(what, len(ids), [row.key for row in catalog.named(ids[:EXAMPLES]).values()])


def _lexical(storage: Storage, pointer: Pointer, table: ChunkTable) -> Finding | None:
    """Return whether the BM25 index holds just the rows of the table, or cannot be opened."""
    try:
        check_analysis(storage, pointer)
        lexical = LexicalIndex.open(storage.lexical(pointer.generation, pointer.revision))
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


def _forgotten(storage: Storage, catalog: Catalog, findings: list[Finding]) -> set[str]:
    """Return ids of the documents that the cache does not hold, with a hint where there are any."""
    memo = _cache(storage, lambda db: BytesCache(db, DOCUMENTS), findings)
    found: set[str] = set()
    for batch in catalog.columns(["document_id", "document"]).to_batches(WIDE_SCAN_ROWS) if memo is not None else []:
        named = dict(zip(batch["document_id"].to_pylist(), batch["document"].to_pylist(), strict=True))
        with clear_errors(storage.address):
            known = memo.known(key for key in named.values() if key) if memo is not None else set()
        found.update(name for name, key in named.items() if key and key not in known)
    if found:
        what = "documents are no longer cached: they cannot be shown, cut or embedded again without the source"
        hint = _keyed(catalog, what, found)
        findings.append(msgspec.structs.replace(hint, fault=False, remedy="they are fetched again when they change"))
    return found


def _uncovered(table: ChunkTable) -> Iterator[Finding]:
    try:
        uncovered = table.uncovered()
    except StoreError as error:  # a damaged index of the table; its file is named already where digests are recorded
        yield Finding(f"an index of the table chunks cannot be read: {error.message}", 1)
        return
    if uncovered:
        what = "rows are not in the vector index yet, and are searched one by one"
        yield Finding(what, uncovered, fault=False, remedy="a build brings the index up to date when it pays")


def _leftovers(storage: Storage) -> Iterator[Finding]:
    left = leftovers(storage)
    if left:
        names = [f"{name}/{one}" for name, revisions in left.items() for one in [*map(str, revisions)] or ["all"]]
        what = "stores were left by builds that did not end"
        yield Finding(what, len(names), names[:EXAMPLES], fault=False, remedy="gristmill sweep")
    scratch = storage.left_in_scratch()
    if scratch:
        what = "bytes of passing files were left by a build that did not end"
        yield Finding(what, scratch, fault=False, remedy="gristmill sweep")
