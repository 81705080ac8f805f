"""State of one build: the published revision it starts from, the draft it writes, and what the gates ask about.

Invariants:
- Nothing is written to the index before the draft is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, Protocol

from enrich.embedding.embedder import Embedder
from flows.context import Resources
from flows.models.embedding import prove
from flows.models.note_writers import window_recipe
from flows.models.vector_cache import Sample
from flows.opening import following
from flows.report import BuildReport, Failure, Progress, UnknownTokens
from flows.seen_versions import SeenVersions
from flows.settings import Settings
from indexes.cache.caches import Caches
from indexes.cache.store import cache_key
from indexes.catalog import Catalog, CatalogRow
from indexes.lexical.analysis import analysis_fingerprint as analysis_fingerprint
from indexes.revisions.generation import Draft, IndexModel, published_catalog
from indexes.storage.errors import as_store_error
from indexes.storage.storage import Storage
from parsers.errors import GateRefused
from parsers.registry import claims, parser_fingerprint

# The figure of work that the rate of a stage is counted in.
STAGE_WORK: Final = {
    "fetch": "fetched",
    "parse": "parsed",
    "chunk": "chunked",
    "note": "notes",
    "embed": "embedded",
    "write": "rows_written",
}
ENOUGH: Final = 20  # pieces of work that a rate is taken from


class DocumentStatus(Protocol):
    """Status of a document as a report shows it: of a catalog row, or of the columns that a plan reads."""

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


class BuildState:
    """State of one build.

    Args:
        settings: of the build; embedder and ruler follow the published index where they name none.
        storage: of the index, which the build holds.
        report: what the build has done so far; a new one by default.
        progress: shows it meanwhile; silent by default.
        anew: begin a new generation, whatever made the vectors of the published one.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        report: BuildReport | None = None,
        progress: Progress | None = None,
        *,
        anew: bool = False,
    ) -> None:
        self.anew: Final = anew
        self.storage: Final = storage
        self.report: Final = report or BuildReport()
        self.progress: Final = progress or Progress(quiet=True)
        self.published: Final = storage.pointer()
        self.settings: Final = following(settings, self.published)
        self.resources: Final = Resources(self.settings, storage)
        self.seen_runtimes: Final[set[str]] = set()
        self.sampled: Sample = []
        """Sample of the rows with vectors that this build wrote."""
        self.invalid_vector = ""
        """Problem with the first invalid vector that this build wrote; empty if all are valid."""
        self.parity = "no vector was asked of the embedder"
        """Figure of the runtime's parity with the index."""
        self.seen_versions: Final = SeenVersions()
        """Versions whose bytes turned out to be those of the catalog."""
        self._applied_rules: Final[set[int]] = set()
        self._recipes: dict[tuple[str, bool, tuple[str, ...]], str] = {}

    @property
    def caches(self) -> Caches:
        """Results of earlier builds."""
        return self.resources.caches

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder, whose runtime proves itself against the index before its first vector."""
        embedder = self.resources.embedder
        embedder.prove_by(self._prove)
        return embedder

    def _prove(self, embedder: Embedder) -> None:
        """Compare the runtime with the index; where that has no vectors yet, with the model's own runtime."""
        published = self.published
        built = published is not None and embedder.provenance.id in published.runtimes
        bare = published is not None and not published.counts["vectors"]  # so nothing can differ from its vectors
        try:
            make = self.resources.reference_probes if built or bare or not self.continues else None
            self.parity = prove(embedder, self.storage, self.settings.cache_dir, make)
        except GateRefused as refusal:
            self.report.checks["parity"] = f"refused: {refusal.message}"
            raise

    @cached_property
    def draft(self) -> Draft:
        """The next revision, as this build writes it."""
        return Draft(self.storage, self.published, self.model, anew=self.anew)

    @property
    def model(self) -> IndexModel:
        """The embedder and the ruler of the next revision."""
        embedder = self.embedder
        return IndexModel(self.settings.embedder, embedder.fingerprint, embedder.dimension, self.settings.ruler)

    def published_rows(self, document_ids: Iterable[str]) -> dict[str, CatalogRow]:
        """Return the published catalog rows of these documents, by id."""
        ids = list(document_ids)
        return self._catalog.named(ids) if self._catalog is not None and ids else {}

    @cached_property
    def _catalog(self) -> Catalog | None:
        return published_catalog(self.storage, self.published) if self.published is not None else None

    @cached_property
    def continues(self) -> bool:
        """Whether the build continues the published generation."""
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
        """Whether the published BM25 index was analysed by other rules than today's."""
        return self.published is not None and self.continues and self.published.analysis != analysis_fingerprint()

    @property
    def changed(self) -> bool:
        """Whether there is anything to publish."""
        return self.has_draft or self.outdated

    def runtimes(self) -> dict[str, dict[str, Any]]:
        """Return the runtimes that made the next revision's vectors, by the id of their provenance."""
        known = dict(self.published.runtimes) if self.published is not None and self.same_model else {}
        records = self.caches.runtimes.get(self.seen_runtimes - known.keys())
        return known | dict(sorted(records.items()))

    def report_published(self) -> None:
        """Report the published revision, where this build publishes none."""
        if self.published is not None:
            self.report.generation, self.report.revision = self.published.generation, self.published.revision
            self.report.chunks["total"] = self.published.counts["chunks"]

    def rates(self) -> dict[str, float]:
        """Return seconds per piece of work by stage: of this build where it did enough, otherwise of earlier ones."""
        known = dict(self.published.rates) if self.published is not None else {}
        work, seconds = self.report.work, self.report.seconds
        measured = {
            stage: round(seconds[stage] / work[piece], 6)
            for stage, piece in STAGE_WORK.items()
            if stage in seconds and work[piece] >= ENOUGH
        }
        return known | measured

    def raise_clearly(self, error: BaseException) -> None:
        """Raise the clear error behind one that a store raised for lack of space or rights, if it is one."""
        clear = as_store_error(self.storage.address, error)
        if clear is not None:
            raise clear from error

    def close(self) -> None:
        """Release what an aborted build left open, and remove its temporary files."""
        if self.has_draft:
            self.draft.close()
        self.resources.close()

    def forget_vectors(self) -> None:
        """Drop the cached vectors of this build's runtimes; also the probes, if no published index depends on them."""
        own = {self.embedder.provenance.id}
        for runtime in sorted(own if self.continues else {*self.seen_runtimes, *own}):
            self.caches.vectors.forget_runtime(runtime)
        if not self.continues:
            self.storage.drop_probes(self.embedder.fingerprint)

    def embeds(self, key: str) -> bool:
        """Return whether a document gets vectors."""
        return self.settings.embeds(key)

    def labels(self, key: str) -> list[str]:
        """Return the labels that the settings give a document."""
        rules = [number for number, rule in enumerate(self.settings.labels) if rule.applies(key)]
        self._applied_rules.update(rules)
        return sorted({label for number in rules for label in self.settings.labels[number].labels})

    def report_unmatched_rules(self) -> None:
        """Report the label rules that matched no document."""
        rules = enumerate(self.settings.labels)
        self.report.unmatched_rules = [str(rule) for number, rule in rules if number not in self._applied_rules]

    def report_status(self, row: DocumentStatus) -> None:
        """Count a document's status, and name it where it is not wholly in the index."""
        if row.status != "ok":
            self.report.documents[row.status] += 1
            self.report.failures.append(Failure(row.key, row.status, row.reason))
        share = row.unknown / row.tokens if row.tokens else 0.0
        if share > self.settings.guards.unknown_share:
            self.report.unknown.append(UnknownTokens(row.key, round(share, 3)))

    def recipe(self, key: str, media_type: str) -> str:
        """Return the digest of everything that decides a document's rows besides its bytes and its key."""
        choice = (media_type, self.embeds(key), tuple(self.labels(key)))
        if choice not in self._recipes:
            writer = self.resources.note_writer
            self._recipes[choice] = cache_key(
                parser_fingerprint(media_type) or claims(),  # so that a type is read once an adapter claims it
                self.resources.chunker_fingerprint,
                f"{writer.fingerprint}:{window_recipe(self.settings)}" if writer is not None else "",
                self.embedder.fingerprint if choice[1] else "",
                *choice[2],
            )
        return self._recipes[choice]
