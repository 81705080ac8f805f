"""The build: one incremental pass over a document store that ends in a published revision.

The flow's body is the table of contents. Tasks take a batch of documents and leave their results in the memory under
names that the entries carry; what happens to one document stands in the catalog, not in Prefect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel, ConfigDict

from flows import gates, stages
from flows.plan import Entry, Plan, make_plan
from flows.recall_gate import RecallGate
from flows.report import BuildReport, Progress
from flows.settings import Settings
from flows.workshop import Workshop, check_surroundings
from indexes.storage import Storage
from parsers.errors import GateRefused


class BuildOptions(BaseModel):
    """What one build is asked to do besides its settings.

    Attributes:
        allow_deletes: publish however many documents are gone from the source.
        force: publish although a gate refuses that may be forced; its figure says so.
        new_source: take a source that the index does not know yet into it.
        quiet: say nothing while building.
        started: when the command began, on the clock of ``time.time``.
    """

    model_config = ConfigDict(extra="forbid")

    allow_deletes: bool = False
    force: bool = False
    new_source: bool = False
    quiet: bool = False
    started: float | None = None


@flow(name="gristmill-build", persist_result=False, validate_parameters=True)
def build(settings: Settings, options: BuildOptions | None = None) -> dict[str, Any]:
    """Build the index of a document store and publish it.

    Returns:
        The report as :class:`flows.report.BuildReport` describes it.

    Raises:
        GristmillError: a clear reason why nothing was published.
    """
    options = options or BuildOptions()
    with _workshop(settings, options) as shop:
        plan = list_documents(shop, options)
        with shop.progress.documents(len(plan.entries), plan.size):
            for batch in plan.batches(settings.batch_bytes, settings.batch_documents):
                fetch(shop, batch)
                parse(shop, batch)
                chunk(shop, batch)
                note(shop, batch)
                embed(shop, batch)
                write(shop, batch)
        remove(shop, plan)
        if changed(shop):
            recall = gate(shop, plan, options)
            publish(shop, recall)
        shop.report.seconds["total"] = time.time() - shop.began
        return shop.report.as_json()


@task(cache_policy=NO_CACHE, persist_result=False)
def list_documents(shop: Workshop, options: BuildOptions) -> Plan:
    """The source's listing against the catalog."""
    with shop.report.timed("list"):
        plan = make_plan(shop, new_source=options.new_source)
    removals = gates.Gates(shop.report, force=options.force or options.allow_deletes)
    try:  # before the work: what is to be refused is refused at once
        removals.through("removals", lambda: gates.check_removals(plan, shop.settings.guards), forcible=True)
    except GateRefused:
        _show_gates(shop)
        raise
    for row in plan.unchanged:
        shop.note_status(row)
    shop.report.documents["unchanged"] += len(plan.unchanged)
    shop.progress.say(
        f"{plan.listed:,} documents in {shop.source.address}: {len(plan.entries):,} to look at"
        f" ({plan.size / 1e6:.1f} MB), {len(plan.unchanged):,} unchanged, {len(plan.removed):,} removed"
    )
    return plan


@task(cache_policy=NO_CACHE, persist_result=False)
def fetch(shop: Workshop, batch: list[Entry]) -> None:
    """Bytes of a batch into the scratch folder."""
    with shop.report.timed("fetch"):
        stages.fetch(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def parse(shop: Workshop, batch: list[Entry]) -> None:
    """Documents of a batch into the memory."""
    with shop.report.timed("parse"):
        stages.parse(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def chunk(shop: Workshop, batch: list[Entry]) -> None:
    """Chunks of a batch into the memory."""
    with shop.report.timed("chunk"):
        stages.chunk(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def note(shop: Workshop, batch: list[Entry]) -> None:
    """Notes of a batch into the memory."""
    with shop.report.timed("note"):
        stages.note(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def embed(shop: Workshop, batch: list[Entry]) -> None:
    """Vectors of a batch into the memory."""
    with shop.report.timed("embed"):
        stages.embed(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def write(shop: Workshop, batch: list[Entry]) -> None:
    """The batch's rows into both stores and the catalog."""
    with shop.report.timed("write"):
        stages.write(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def remove(shop: Workshop, plan: Plan) -> None:
    """What the source no longer holds, out of the index."""
    with shop.report.timed("write"):
        if plan.removed and shop.continues:
            written = shop.draft.remove(plan.removed)
            shop.report.chunks["removed"] += written.removed
        shop.report.documents["removed"] += len(plan.removed)


def changed(shop: Workshop) -> bool:
    """Whether there is anything to publish; fills in the published figures where there is not."""
    if shop.has_draft or shop.outdated:
        return True
    if shop.published is not None:
        shop.report.generation, shop.report.revision = shop.published.generation, shop.published.revision
        shop.report.chunks["total"] = shop.published.counts["chunks"]
    return False


@task(cache_policy=NO_CACHE, persist_result=False)
def gate(shop: Workshop, plan: Plan, options: BuildOptions) -> RecallGate | None:
    """Finish the stores and check that they may be published."""
    with shop.report.timed("finish"):
        shop.draft.catalog.put(shop.touched)
        shop.draft.finish()
    recall = RecallGate(shop, shop.settings.golden) if shop.settings.golden else None
    passed = gates.Gates(shop.report, force=options.force)
    try:
        with shop.report.timed("gate"):
            passed.through("stores", shop.draft.check_stores)
            passed.through("fingerprint", lambda: shop.draft.check_fingerprint(shop.runtimes()))
            passed.through("vectors", lambda: gates.check_vectors(shop))
            passed.through("text", lambda: gates.check_some_text(shop))
            passed.through("failures", lambda: gates.check_failures(shop, plan.listed), forcible=True)
            if recall:
                passed.through("recall", recall.check, forcible=True)
    finally:
        _show_gates(shop)
    return recall


@task(cache_policy=NO_CACHE, persist_result=False)
def publish(shop: Workshop, recall: RecallGate | None) -> None:
    """Point readers to the new revision, and keep what was measured of it."""
    with shop.report.timed("publish"):
        sources = dict(shop.published.sources) if shop.published is not None else {}
        sources[shop.source.name] = shop.source.address
        pointer = shop.draft.publish(sources=sources, runtimes=shop.runtimes(), checks=shop.report.checks)
        shop.report.generation, shop.report.revision = pointer.generation, pointer.revision
        shop.report.chunks["total"] = pointer.counts["chunks"]
        shop.report.published = True
    if recall:
        with _never_failing(shop, "what was measured could not be kept"):
            recall.keep(pointer)
    with shop.report.timed("tidy"):
        shop.tidy()


def _show_gates(shop: Workshop) -> None:
    """The gates with their figures as an artifact of the flow's run."""
    table = [{"gate": name, "figure": figure} for name, figure in shop.report.checks.items()]
    with _never_failing(shop, "the gates are not shown in Prefect"):
        create_table_artifact(table, key="gates", description=f"Gates of {shop.storage.address}")


@contextmanager
def _never_failing(shop: Workshop, what: str) -> Iterator[None]:
    """Say what went wrong beside the work: it neither fails a build nor hides why a gate refused it."""
    try:
        yield
    except Exception as error:  # a full disk or a server that is gone, in whatever form its library raises it
        shop.progress.say(f"warning: {what}: {error}")


@contextmanager
def _workshop(settings: Settings, options: BuildOptions) -> Iterator[Workshop]:
    """Hold the index for this build, and time it from the start of the command."""
    began = time.time() if options.started is None else options.started
    report = BuildReport()
    report.seconds["start"] = time.time() - began
    check_surroundings(settings)
    storage = Storage(settings.index)
    with storage.lock():
        shop = Workshop(settings, storage, report, Progress(quiet=options.quiet), began)
        try:
            yield shop
        except Exception as error:  # a full disk shows as whatever the library at hand raises
            shop.raise_clearly(error)
            raise
        finally:
            shop.close()
