"""Documents that go through the stages of a build together.

Invariants:
- Decoded results live no longer than their batch, whose bytes and documents are bounded by the settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from chunker.chunk import Chunk, document_id
from flows.sources import Object
from indexes.catalog import CatalogRow
from parsers.document import Document
from parsers.isolation import Parsed


@dataclass(slots=True)
class Content:
    """Decoded results of one document, carried from stage to stage.

    Attributes:
        data: its bytes, from fetching to parsing.
        parsing: what a worker process makes of them, while it is at work.
        document: as parsed, until its chunks and notes are made.
        chunks: in reading order.
        notes: of each chunk, cut to its reserve; empty strings where there is none.
        texts: embedded text of each chunk; empty for a document that BM25 alone finds.
        vector_keys: cache keys of the vectors of ``texts``.
    """

    data: bytes = b""
    parsing: Future[Parsed] | None = None
    document: Document | None = None
    chunks: list[Chunk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    vector_keys: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    """One document of a batch: the cache keys of its results, and the results while the batch is in work.

    Attributes:
        object: as the source lists it.
        source: the source's name.
        row: as the published catalog knows it; None for a new one.
        media_type: what its bytes are taken for.
        bytes_digest: SHA-256 of its bytes, once known.
        document: cache key of the parsed document; of the last good one where this attempt failed.
        chunks: cache key of its chunks.
        notes: cache keys of their notes, in the chunks' order; none where no notes are made.
        outcomes: what became of each of them: ``written``, ``rejected``, ``none`` or ``missing``.
        unfinished: whether a later build has something left to do for it.
        title: its own or its base name.
        labels: its own, those of the settings, and those that the source states.
        stated: those that the source states.
        status, reason: of this attempt.
        failed: whether this attempt failed, so that the last good version stays.
        transient: whether the failure may pass by itself, so that the next build tries again.
        touched: whether its bytes turned out to be those of the catalog.
        reread: whether its bytes are read whatever is remembered of its version.
        again: whether it goes through all stages although its bytes are those of the catalog.
        stored: whether it comes from the catalog, not from the source: what is known of it there stays.
        content: decoded results of the stages so far.
    """

    object: Object
    source: str
    row: CatalogRow | None
    media_type: str = ""
    bytes_digest: str = ""
    document: str = ""
    chunks: str = ""
    notes: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    unfinished: bool = False
    title: str = ""
    labels: list[str] = field(default_factory=list)
    stated: tuple[str, ...] = ()
    status: str = "ok"
    reason: str = ""
    failed: bool = False
    transient: bool = False
    touched: bool = False
    reread: bool = False
    again: bool = False
    stored: bool = False
    content: Content = field(default_factory=Content)
    _given: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._given = tuple(self.labels)  # a label that the source also states must outlive its statement

    @classmethod
    def of(cls, row: CatalogRow, labels: list[str]) -> Entry:
        """Make an entry of a stored document."""
        return cls(
            Object(row.key, row.version, row.size),
            row.source,
            row,
            media_type=row.media_type,
            bytes_digest=row.bytes_digest,
            document=row.document,
            chunks=row.chunks,
            title=row.title,
            labels=sorted({*labels, *row.stated}),
            stated=tuple(row.stated),
            status=row.status,
            reason=row.reason,
            stored=True,
        )

    @property
    def key(self) -> str:
        """Key of the object in the source."""
        return self.object.key

    @property
    def document_id(self) -> str:
        """Id of the document."""
        return document_id(self.source, self.key)

    @property
    def base_name(self) -> str:
        """Last part of the key."""
        return self.key.rsplit("/", 1)[-1]

    @property
    def live(self) -> bool:
        """Whether there is a document to continue with."""
        return bool(self.document) and not self.touched

    def state(self, labels: tuple[str, ...]) -> None:
        """Take the labels that the source states of the document, in place of those known before."""
        self.labels, self.stated = sorted({*self._given, *labels}), labels

    def fail(self, status: str, reason: str, *, transient: bool = False) -> None:
        """Record that this attempt failed; continue with the last good document where there is one."""
        self.content = Content()
        self.status, self.reason, self.failed, self.transient = status, reason, True, transient
        self.document = self.row.document if self.row is not None else ""

    def drop_document(self) -> None:
        """Leave the rows of the document untouched: its last good version is no longer cached."""
        self.document, self.content = "", Content()

    def take(self, document: Document) -> None:
        """Carry the parsed document, with the title, labels and status that it states."""
        self.content.document = document
        self.title = document.title or self.base_name
        self.labels = sorted({*self.labels, *document.labels})
        if not self.failed and not self.stored:
            self.status, self.reason = document.status, document.reason


class Batch(Collection[Entry]):
    """Documents that go through a stage together.

    Not a list: Prefect searches the lists and dataclasses that a task is given, which took as long as the work on
    2,000 documents.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries
