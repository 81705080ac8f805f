"""The BM25 index in tantivy, over the analysed embedded texts.

Invariants:
- A row is found by the terms of :mod:`indexes.lexical.analysis` and by nothing else; the text itself is not stored.
- Nothing is visible before :meth:`LexicalIndex.commit`; leaving without it discards all changes.
- A snapshot and the folder it was taken from never change each other.

tantivy never writes to a segment file again, and replaces ``meta.json`` and ``.managed.json`` whole. So a snapshot
links segment files instead of copying them, and copies the two others. Lock files stay behind: a lock holds for the
file, whatever folders it stands in.

BM25 is tantivy's, with k1 = 1.2 and b = 0.75, which it does not let one choose. Rows that were deleted count in its
statistics until their segments are merged: see :attr:`LexicalIndex.deleted_share`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from enrich.files import sync
from indexes import rows
from indexes.lexical.analysis import QueryTerms, analyse, analyse_query, phrases
from indexes.search.filters import Filter, to_clauses, to_query
from indexes.storage.errors import is_panic, short
from parsers.errors import GristmillError, IndexBusy, StoreError

HEAP: Final = 64_000_000  # bytes of one indexing thread before it writes a segment
_ID: Final = 32  # digits of a chunk id, with which a stamp begins
_HEX: Final = "0123456789abcdef"
COLUMNS: Final = ("chunk_id", "document_id", "key", "labels", "row_digest", "heading_path", "note", *rows.EMBEDDED)


class Boosts(msgspec.Struct, frozen=True, kw_only=True):
    """What a match counts beside one of a word in the body, which counts 1. Settings, to be measured per corpus.

    Attributes:
        identifiers: an identifier that stands there as it was typed. Code in 602 pieces of up to 900 characters, 248
            questions, recall at 5/10/20: 73.1/79.8/86.1 without, 75.4/81.3/86.9 with 3, no more with 5.
        headings: a word in the titles above the chunk or in the document's base name, which count in the body too where
            they are printed. Of the code benchmark's hybrid recall at 10: 84.9 without, 86.7 at 0.3, 86.9 at 0.6.
        notes: a word in the note, which counts in the body too.
        phrases: a quoted phrase that stands there as it was quoted, beside its words.
        pairs: a word and the number or letter beside it, such as ``appendix a``, that stand there side by side.
    """

    identifiers: float = 3.0
    headings: float = 0.5
    notes: float = 0.0
    phrases: float = 2.0
    pairs: float = 1.0


PLAIN: Final = Boosts()


class LexicalIndex:
    """The BM25 index of one revision, in a folder.

    Made by :meth:`create` and :meth:`open`. As a context manager it closes at the end of the block, and what was not
    committed is taken back.
    """

    def __init__(self, folder: Path, index: tantivy.Index, writer: tantivy.IndexWriter | None) -> None:
        self._folder = folder
        self._index = index
        self._schema = index.schema
        self._writer = writer
        self._changed = False
        self._searcher = index.searcher()

    @classmethod
    def create(cls, folder: Path) -> LexicalIndex:
        """Return an empty index in a new or empty folder, open for writing.

        Raises:
            StoreError: when the folder holds anything, or cannot be written.
        """
        with _store("create", folder):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise StoreError(f"folder {folder} is to hold a new BM25 index and is not empty", "Name another one.")
            return cls._of(folder, tantivy.Index(_schema(), path=str(folder)), write=True)

    @classmethod
    def open(cls, folder: Path, *, write: bool = False) -> LexicalIndex:
        """Return the index in a folder, as of its last commit. Reading writes nothing there, and needs no right to.

        Raises:
            StoreError: when there is none, or it has other fields than this program writes.
            IndexBusy: when it is to be written and another writer has it.
        """
        with _store("open", folder), nullcontext(folder) if write else _links(folder) as place:
            index = tantivy.Index.open(str(place))
            if index.schema != _schema():
                raise StoreError(
                    f"the BM25 index in {folder} has other fields than this version writes", "Build a new index."
                )
            return cls._of(folder, index, write)

    @classmethod
    def _of(cls, folder: Path, index: tantivy.Index, write: bool) -> LexicalIndex:
        index.config_reader(reload_policy="manual")
        index.reload()
        return cls(folder, index, _writer(folder, index) if write else None)

    def __enter__(self) -> LexicalIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def count(self) -> int:
        """How many rows are found."""
        return int(self._searcher.num_docs)

    @property
    def deleted_share(self) -> float:
        """Share of the rows in the files that are deleted and still count in the statistics, 0 to 1.

        Scores and order differ from a clean index while it is above 0; an index is rewritten by :meth:`create` and
        one :meth:`apply` of all rows.
        """
        segments = _meta(self._folder)["segments"]
        total = sum(segment["max_doc"] for segment in segments)
        deleted = sum(segment["deletes"]["num_deleted_docs"] for segment in segments if segment["deletes"])
        return deleted / total if total else 0.0

    def apply(self, delete_ids: Iterable[str], written: pa.Table | Iterable[pa.RecordBatch]) -> None:
        """Remove rows, then write rows.

        Each id to remove takes a kilobyte until the commit, so a row that is new is not to be named.

        Args:
            delete_ids: chunk ids to remove, among them those of written rows that stand there already; ids that are
                not there are passed over.
            written: a table or batches with at least the columns chunk_id, document_id, key, labels, row_digest,
                heading_path, note, prefix, text and cut.
        """
        writer = self._writing()
        self._changed = True
        with _store("write", self._folder):
            for name in delete_ids:
                writer.delete_documents_by_term("chunk_id", name)
            for batch in written.to_batches() if isinstance(written, pa.Table) else written:
                self._write(writer, batch)

    def commit(self) -> None:
        """Make what was applied durable and visible."""
        writer = self._writing()
        with _store("commit", self._folder):
            writer.commit()
            self._changed = False
            self._index.reload()
            self._searcher = self._index.searcher()

    def rollback(self) -> None:
        """Take back what was applied since the last commit."""
        writer = self._writing()
        with _store("roll back", self._folder):
            writer.rollback()
            self._changed = False

    def close(self) -> None:
        """Take back what is not committed, wait for merging threads, free the lock; may be called again."""
        if self._writer is not None:
            if self._changed:
                self.rollback()
            writer, self._writer = self._writer, None
            with _store("close", self._folder):
                writer.wait_merging_threads()

    def stamps(self) -> Iterator[pa.RecordBatch]:
        """Batches of (chunk_id, row_digest) of all rows, by rising chunk id; a row that stands twice comes twice."""
        everything = tantivy.Query.all_query()
        for first in _HEX:
            for second in _HEX:
                with _store("read", self._folder):
                    terms = self._searcher.terms_with_prefix("stamp", first + second, filter_query=everything)
                pairs = pa.array(sorted(term for term, times in terms for _ in range(times)), pa.string())
                if len(pairs):
                    columns = [pc.utf8_slice_codeunits(pairs, 0, _ID), pc.utf8_slice_codeunits(pairs, _ID + 1)]
                    yield pa.record_batch(columns, names=["chunk_id", "row_digest"])

    def count_of(self, field: str, value: str) -> int:
        """How many rows have this value in a field that is taken as it is: ``chunk_id``, ``document_id``, ``stamp``."""
        term = tantivy.Query.term_query(self._schema, field, value, "basic")
        return int(self._searcher.search(term, limit=1, count=True).count)  # type: ignore[attr-defined]

    def search(
        self, query: str, k: int, filters: Sequence[Filter] = (), weights: Boosts = PLAIN
    ) -> list[tuple[str, float]]:
        """Return the ``k`` rows that match best, as (chunk id, score), equal scores by rising chunk id.

        A row matches when it holds any of the query's terms; a query without terms matches nothing. A phrase in
        quotation marks adds to the score of the rows that hold it and keeps no other row out. Rows with the same terms
        score the same to the last bit, whatever segment they lie in.

        Args:
            query: any text.
            filters: conditions on rows, applied before ranking.
            weights: what a match counts by where it is.
        """
        with _store("search", self._folder):
            return self._best(self._parse(analyse_query(query), phrases(query), weights), k, filters)

    def named(self, query: str, k: int, filters: Sequence[Filter] = ()) -> list[tuple[str, float]]:
        """Return the ``k`` rows that hold most of the names in a query, as :meth:`search` gives them.

        None without a name.
        """
        with _store("search", self._folder):
            terms = analyse_query(query)
            names = self._terms("identifiers", terms.names)
            return self._best([*names, *map(self._phrase, terms.pairs)], k, filters)

    def _best(self, terms: list[tantivy.Query], k: int, filters: Sequence[Filter]) -> list[tuple[str, float]]:
        """Return the best rows that match any of these queries."""
        if not terms:
            return []
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        if filters:
            query = tantivy.Query.boolean_query([(tantivy.Occur.Must, query), *to_clauses(filters, self._schema)])

        def ask(depth: int) -> list[tuple[float, tantivy.DocAddress]]:
            return self._searcher.search(query, limit=depth, count=False).hits

        return rows.best(ask, self._names, k)

    def has(self, condition: Filter) -> bool:
        """Return whether any row has what a filter names, negated or not."""
        with _store("search", self._folder):
            return bool(self._searcher.search(to_query(condition, self._schema), limit=1, count=False).hits)

    def labels(self) -> set[str]:
        """Return the labels of all rows."""
        with _store("read", self._folder):
            terms = self._searcher.terms_with_prefix("labels", "", filter_query=tantivy.Query.all_query())
        return {term for term, _ in terms}

    def _names(self, places: list[tantivy.DocAddress]) -> list[str]:
        return [str(self._searcher.doc(place).get_first("chunk_id")) for place in places]

    def _parse(self, terms: QueryTerms, quoted: Sequence[Sequence[str]], weights: Boosts) -> list[tantivy.Query]:
        words = self._terms("body", terms.body)
        weighed = [(one, weights.identifiers) for one in self._terms("identifiers", terms.identifiers)]
        weighed += [(one, weights.headings) for one in self._terms("headings", terms.body)]
        weighed += [(one, weights.notes) for one in self._terms("notes", terms.body)]
        weighed += [(self._phrase(phrase), weights.phrases) for phrase in quoted]
        weighed += [(self._phrase(pair), weights.pairs) for pair in terms.pairs]
        return words + [tantivy.Query.boost_query(one, weight) for one, weight in weighed if weight]

    def _phrase(self, words: Sequence[str]) -> tantivy.Query:
        return tantivy.Query.phrase_query(self._schema, "body", list(words))

    def _terms(self, field: str, terms: Iterable[str]) -> list[tantivy.Query]:
        return [tantivy.Query.term_query(self._schema, field, term, "freq") for term in terms]

    def _write(self, writer: tantivy.IndexWriter, batch: pa.RecordBatch) -> None:
        for row in batch.select(COLUMNS).to_pylist():
            terms = analyse(rows.embedded(row))
            # Every field is text: a value of another type would fail only at commit, and end the writer.
            document = {
                "chunk_id": row["chunk_id"],
                "document_id": row["document_id"],
                "key": row["key"],
                "labels": row["labels"],
                "stamp": f"{row['chunk_id']} {row['row_digest']}",
                "body": terms.body,
                "headings": analyse(" ".join([row["key"].rsplit("/", 1)[-1], *row["heading_path"]])).body,
                "identifiers": " ".join(filter(None, terms[1:])),
                "notes": analyse(row["note"]).body,
            }
            writer.add_document(tantivy.Document.from_dict(document, self._schema))

    def _writing(self) -> tantivy.IndexWriter:
        if self._writer is None:
            raise ValueError(f"the BM25 index in {self._folder} is not open for writing")
        return self._writer


def snapshot(source: Path, target: Path) -> None:
    """Make ``target`` a copy of the index in ``source`` as of its last commit, by hard links where the disk has them.

    The folder appears whole or not at all. Nobody may write to the source meanwhile.

    Raises:
        StoreError: when there is no index in the source, the target exists already, or it cannot be written.
    """
    with _store("copy", source):
        if target.exists():
            raise StoreError(f"folder {target} is to hold a copy of a BM25 index and exists already", "Remove it.")
        meta = (source / "meta.json").read_bytes()
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        names = _segment_files(source)
        for name in names:
            _link(source / name, partial / name)
        (partial / ".managed.json").write_text(json.dumps(["meta.json", *names]))
        (partial / "meta.json").write_bytes(meta)
        partial.rename(target)
        sync(target.parent)


def _schema() -> tantivy.Schema:
    """Fields of the index.

    ``chunk_id`` alone is stored. ``stamp`` is the chunk id and the row digest, read back from the dictionary of terms.
    ``headings`` holds the base name too. ``body``, ``headings``, ``identifiers`` and ``notes`` take terms between
    blanks as they are. Of those tantivy keeps counts, and of ``body``, for phrases, positions: a book of 1 MB in 1,130
    paragraphs took 654 kB with and 431 kB without them, and no more time.
    """
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk_id", stored=True, tokenizer_name="raw", index_option="basic")
    for name in ("document_id", "key", "labels", "stamp"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("body", tokenizer_name="whitespace", index_option="position")
    for name in ("headings", "identifiers", "notes"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def _writer(folder: Path, index: tantivy.Index) -> tantivy.IndexWriter:
    try:
        return index.writer(heap_size=HEAP, num_threads=1)
    except ValueError as error:
        if "lock" in str(error).lower():
            raise IndexBusy(f"another process writes the BM25 index in {folder}", "Wait for it to end.") from error
        raise


def _meta(folder: Path) -> Any:
    return json.loads((folder / "meta.json").read_bytes())


def _segment_files(folder: Path) -> list[str]:
    """Return names of the files that belong to the committed segments."""
    segments = {segment["segment_id"].replace("-", "") for segment in _meta(folder)["segments"]}
    return sorted(file.name for file in folder.iterdir() if file.name.split(".")[0] in segments)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


@contextmanager
def _links(folder: Path) -> Iterator[Path]:
    """Make a temporary folder of links to the files of an index, since tantivy locks where it opens one.

    A searcher holds the files themselves, so that links and folder are needed no longer once it is made.
    """
    if not (folder / "meta.json").is_file():
        raise FileNotFoundError(2, "there is no BM25 index", str(folder / "meta.json"))
    with TemporaryDirectory(prefix="gristmill-bm25-", ignore_cleanup_errors=True) as place:
        for file in folder.iterdir():
            if not file.name.endswith(".lock"):
                Path(place, file.name).symlink_to(file.absolute())
        yield Path(place)


@contextmanager
def _store(what: str, folder: Path) -> Iterator[None]:
    """Say what could not be done where tantivy only says why, or gives up."""
    try:
        yield
    except GristmillError:
        raise
    except BaseException as error:  # tantivy's panics are no Exception
        if not is_panic(error) and not isinstance(error, OSError | ValueError):
            raise
        raise StoreError(
            f"cannot {what} the BM25 index in {folder}: {short(error)}",
            "Run `gristmill verify`: it names every damaged file. `gristmill repair` writes the index anew.",
        ) from error
