"""What a build works with, opened once and only when it is first needed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from chunker.split import ChunkerSettings
from chunker.split import fingerprint as chunker_fingerprint
from chunker.tokens import Ruler
from enrich.embedding.embedder import Embedder, open_embedder
from enrich.models.registry import ModelFolder, Registry, load_registry
from flows.build.seen_versions import SeenVersions
from flows.models.embedding import embedder_of, prove
from flows.models.note_writers import NoteMaker, open_notes, window_recipe
from flows.models.ruler import chunker_settings, open_ruler
from flows.models.vector_cache import Sample
from flows.opening import following, open_storage
from flows.report import BuildReport, Failure, Progress, UnknownTokens
from flows.settings import Settings
from flows.sources import Source, open_source
from indexes.cache.memo import RUNTIMES, Memo, VectorMemo, memory_key
from indexes.catalog import Catalog, Row
from indexes.evaluation.golden import load_golden
from indexes.lexical.analysis import fingerprint as analysis_fingerprint
from indexes.revisions.generation import Draft, Model, published_catalog
from indexes.storage.errors import as_store_error
from indexes.storage.storage import Storage
from parsers.errors import GateRefused, UsageError
from parsers.registry import claims, fingerprint

# What a stage's rate is counted in, of the report's figures of work.
RATES: Final = {
    "fetch": "fetched",
    "parse": "parsed",
    "chunk": "chunked",
    "note": "notes",
    "embed": "embedded",
    "write": "rows_written",
}
ENOUGH: Final = 20  # pieces of work that a rate is taken from


def check_surroundings(settings: Settings) -> None:
    """What can be told before anything is started: that there is a source, and that the index can be written.

    Raises:
        UsageError: when one of them is not so.
    """
    if settings.golden is not None:
        load_golden(settings.golden)
    _open_source(settings)
    open_storage(settings).create()


def _open_source(settings: Settings) -> Source:
    if settings.source is None:
        raise UsageError("no source is given", "Name it: gristmill build FOLDER, or `source` in the settings.")
    own: list[str | Path] = [settings.index, *([settings.golden] if settings.golden else [])]
    return open_source(settings.source, settings.source_name, settings.include, settings.exclude, own)


class Standing(Protocol):
    """What is said of a document in a report: of its catalog row, or of the part of it that a plan reads."""

    @property
    def key(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def unknown(self) -> int: ...


class Workshop:
    """The source, the memory, the models and the index of one build.

    Args:
        settings: of the build.
        storage: the index's place, which the build holds.
        report: what the build has done so far.
        progress: says so while it does it.
        began: when the build began, on the clock of ``time.time``.
        anew: begin a new generation, whatever made the vectors of the published one.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        report: BuildReport,
        progress: Progress,
        began: float,
        *,
        anew: bool = False,
    ) -> None:
        self.anew: Final = anew
        self.storage: Final = storage
        self.report: Final = report
        self.progress: Final = progress
        self.began: Final = began
        self.published: Final = storage.pointer()
        self.settings: Final = following(settings, self.published)
        self.fetched: Final[dict[str, bytes]] = {}
        """Bytes of the batch at hand by their digest, from fetching to parsing."""
        self.seen_runtimes: Final[set[str]] = set()
        self.sampled: Sample = []
        """Some of the rows with vectors that this build wrote."""
        self.no_vector = ""
        """What is wrong with the first vector that this build wrote and that is none; empty where all are."""
        self.parity = "no vector was asked of the embedder"
        """How its runtime proved itself."""
        self._applied: Final[set[int]] = set()
        """Numbers of the label rules that applied to a document."""
        self.seen: Final = SeenVersions()
        """Versions whose bytes turned out to be those of the catalog."""
        self._recipes: dict[tuple[str, bool, tuple[str, ...]], str] = {}

    @cached_property
    def source(self) -> Source:
        """The document store."""
        return _open_source(self.settings)

    @cached_property
    def scratch(self) -> Path:
        """A folder for passing files, empty at first."""
        return self.storage.scratch()

    @cached_property
    def registry(self) -> Registry:
        """The known models."""
        return load_registry(*self.settings.model_files)

    @cached_property
    def models(self) -> ModelFolder:
        """Where the models lie."""
        return ModelFolder(self.settings.models_dir, self.settings.model_folders)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder; its runtime is loaded with the first vector."""
        embedder = embedder_of(self.settings, self.settings.embedder, self.registry, self.models)
        embedder.prove_by(self._prove)
        return embedder

    def _prove(self, embedder: Embedder) -> None:
        """Have the runtime prove itself against the index; where that has nothing yet, against the model's own."""
        published = self.published
        built = published is not None and embedder.provenance.id in published.runtimes
        bare = published is not None and not published.counts["vectors"]  # so nothing can differ from its vectors
        try:
            own = self._own_runtime if built or bare or not self.continues else None
            self.parity = prove(embedder, self.storage, self.settings.cache_dir, own)
        except GateRefused as refusal:
            self.report.checks["parity"] = f"refused: {refusal.message}"
            raise

    def _own_runtime(self) -> Embedder:
        return open_embedder(self.settings.embedder, self.registry, self.models, device=self.settings.device)

    @cached_property
    def ruler(self) -> Ruler:
        """What the chunker counts with."""
        return open_ruler(self.settings)

    @cached_property
    def chunker(self) -> ChunkerSettings:
        """The chunker's settings."""
        return chunker_settings(self.settings)

    @cached_property
    def chunker_fingerprint(self) -> str:
        """What decides the cuts besides document and title."""
        return chunker_fingerprint(self.ruler, self.chunker)

    def chunks_key(self, document: str, title: str) -> str:
        """Memory key of the chunks of a remembered document."""
        return memory_key(document, title, self.chunker_fingerprint)

    @cached_property
    def versions(self) -> Memo:
        """What the bytes of a document were in a state of the source."""
        return Memo(self.storage.memory(), "versions")

    @cached_property
    def documents(self) -> Memo:
        """Parsed documents."""
        return Memo(self.storage.memory(), "documents")

    @cached_property
    def chunks(self) -> Memo:
        """Chunks of a document, as one value."""
        return Memo(self.storage.memory(), "chunks")

    @cached_property
    def notes(self) -> NoteMaker | None:
        """Who writes the notes; None for nobody."""
        return open_notes(self.settings, self.ruler.count, self.ruler.fingerprint)

    @cached_property
    def note_memo(self) -> Memo:
        """Notes by their exact prompt."""
        return Memo(self.storage.memory(), "notes")

    @cached_property
    def vectors(self) -> VectorMemo:
        """Vectors by embedded text and embedder."""
        return VectorMemo(self.storage.memory(), self.embedder.dimension)

    @cached_property
    def runtime_records(self) -> Memo:
        """What each runtime was that ever made a vector, by the id of its provenance."""
        return Memo(self.storage.memory(), RUNTIMES)

    @cached_property
    def draft(self) -> Draft:
        """The next revision, as this build writes it."""
        return Draft(self.storage, self.published, self.model, anew=self.anew)

    @property
    def model(self) -> Model:
        """What makes the vectors, and what the chunks are counted with."""
        embedder = self.embedder
        return Model(self.settings.embedder, embedder.fingerprint, embedder.dimension, self.settings.ruler)

    def published_rows(self, document_ids: Iterable[str]) -> dict[str, Row]:
        """Those of these documents that are published, by id."""
        ids = list(document_ids)
        return self._catalog.named(ids) if self._catalog is not None and ids else {}

    @cached_property
    def _catalog(self) -> Catalog | None:
        return published_catalog(self.storage, self.published) if self.published is not None else None

    @cached_property
    def continues(self) -> bool:
        """Whether the build goes on with the published generation."""
        return not self.anew and self.same_model

    @property
    def same_model(self) -> bool:
        """Whether the published vectors were made by the model of the settings."""
        return self.published is not None and self.published.embedder_fingerprint == self.embedder.fingerprint

    @property
    def has_draft(self) -> bool:
        """Whether anything was written."""
        return "draft" in self.__dict__

    @property
    def outdated(self) -> bool:
        """Whether the published BM25 index was made by other rules than today's, and must be written anew."""
        return self.published is not None and self.continues and self.published.analysis != analysis_fingerprint()

    def runtimes(self) -> dict[str, dict[str, Any]]:
        """What made the vectors of the next revision, by the id of the provenance."""
        known = dict(self.published.runtimes) if self.published is not None and self.same_model else {}
        records = self.runtime_records.get(self.seen_runtimes - known.keys())
        return known | {key: msgspec.json.decode(record) for key, record in sorted(records.items())}

    def stays_published(self) -> None:
        """Have the report say what is published, where this build publishes nothing."""
        if self.published is not None:
            self.report.generation, self.report.revision = self.published.generation, self.published.revision
            self.report.chunks["total"] = self.published.counts["chunks"]

    def rates(self) -> dict[str, float]:
        """Seconds a piece of work takes, by stage: in this build where it did enough, otherwise as known before."""
        known = dict(self.published.rates) if self.published is not None else {}
        work, seconds = self.report.work, self.report.seconds
        measured = {
            stage: round(seconds[stage] / work[piece], 6)
            for stage, piece in RATES.items()
            if stage in seconds and work[piece] >= ENOUGH
        }
        return known | measured

    def tidy(self) -> None:
        """Compact the memory."""
        for memo in (self.versions, self.documents, self.chunks, self.note_memo, self.vectors):
            memo.tidy()

    def raise_clearly(self, error: BaseException) -> None:
        """Raise the clear error behind one that a store raised for want of space or rights, if it is one."""
        clear = as_store_error(self.storage.address, error)
        if clear is not None:
            raise clear from error

    def close(self) -> None:
        """Let go of what a broken-off build left open, and of its passing files."""
        if self.has_draft:
            self.draft.close()
        if "scratch" in self.__dict__:
            self.storage.scratch()

    def forget_vectors(self) -> None:
        """Forget what the runtimes of this build made; with it the probes, where no published index hangs on them."""
        for runtime in sorted(
            {*self.seen_runtimes, self.embedder.provenance.id} if not self.continues else {self.embedder.provenance.id}
        ):
            self.vectors.forget_runtime(runtime)
        if not self.continues:
            self.storage.drop_probes(self.embedder.fingerprint)

    def embeds(self, key: str) -> bool:
        """Whether a document gets vectors."""
        return self.settings.embeds(key)

    def labels(self, key: str) -> list[str]:
        """The labels that the settings give a document."""
        rules = [number for number, rule in enumerate(self.settings.labels) if rule.applies(key)]
        self._applied.update(rules)
        return sorted({label for number in rules for label in self.settings.labels[number].labels})

    def note_unmatched_rules(self) -> None:
        """Have the report name the label rules that no document was met for."""
        rules = enumerate(self.settings.labels)
        self.report.unmatched_rules = [str(rule) for number, rule in rules if number not in self._applied]

    def note_status(self, row: Standing) -> None:
        """Count a document's status into the report, and name what is not wholly in the index."""
        if row.status != "ok":
            self.report.documents[row.status] += 1
            self.report.failures.append(Failure(row.key, row.status, row.reason))
        share = row.unknown / row.tokens if row.tokens else 0.0
        if share > self.settings.guards.unknown_share:
            self.report.unknown.append(UnknownTokens(row.key, round(share, 3)))

    def recipe(self, key: str, media_type: str) -> str:
        """Digest of everything that decides a document's rows besides its bytes and its key."""
        choice = (media_type, self.embeds(key), tuple(self.labels(key)))
        if choice not in self._recipes:
            self._recipes[choice] = memory_key(
                fingerprint(media_type) or claims(),  # what no adapter reads is read once one claims it
                self.chunker_fingerprint,
                f"{self.notes.fingerprint}:{window_recipe(self.settings)}" if self.notes is not None else "",
                self.embedder.fingerprint if choice[1] else "",
                *choice[2],
            )
        return self._recipes[choice]
