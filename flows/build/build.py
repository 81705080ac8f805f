"""The build: one incremental pass over a document store that ends in a published revision.

The flow's body is the table of contents. Tasks take a batch of documents and leave their results in the memory under
names that the entries carry; what happens to one document stands in the catalog, not in Prefect.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel, ConfigDict

from flows import interrupts
from flows.build import steps
from flows.build.batch import Batch
from flows.build.diff import Asked, Plan, make_plan
from flows.build.dry_run import check_kept
from flows.context import Workshop, check_surroundings
from flows.gates import gates
from flows.gates.recall import RecallGate
from flows.opening import open_storage
from flows.report import BuildReport, Progress
from flows.settings import Settings
from indexes.cache import health
from indexes.revisions import erasure, retention
from indexes.storage.storage import Pointer
from parsers.errors import GateRefused


class BuildOptions(BaseModel):
    """What one build is asked to do besides its settings.

    Attributes:
        allow_deletes: publish however many documents are gone from the source.
        force: publish although a gate refuses that may be forced; its figure says so.
        new_source: take a source that the index does not know yet into it.
        reread: read all documents again, whatever their versions say.
        retry_failed: try documents again that failed, those among them that are left alone.
        quiet: say nothing while building.
        replay: a kept plan; what is to be done must be just what it says.
        started: when the command began, on the clock of ``time.time``.
    """

    model_config = ConfigDict(extra="forbid")

    allow_deletes: bool = False
    force: bool = False
    new_source: bool = False
    reread: bool = False
    retry_failed: bool = False
    quiet: bool = False
    replay: Path | None = None
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
        with shop.progress.documents(plan.looked_at, plan.size):
            for batch in plan.batches(shop):
                fetch(shop, batch)
                parse(shop, batch)
                chunk(shop, batch)
                note(shop, batch)
                embed(shop, batch)
                write(shop, batch)
        if plan.steps["remove"]:
            remove(shop, plan)
        if changed(shop):
            record_versions(shop)
            recall = gate(shop, options, listed=plan.listed)
            publish(shop, recall, made_by="build", sources={plan.source: shop.source.place})
        plan.turns.finish()
        return finished(shop)


@task(cache_policy=NO_CACHE, persist_result=False)
def list_documents(shop: Workshop, options: BuildOptions) -> Plan:
    """The source's listing against the catalog."""
    with shop.report.timed("list"):
        asked = Asked(new_source=options.new_source, reread=options.reread, retry_failed=options.retry_failed)
        plan = make_plan(shop, shop.scratch / "plan.jsonl", asked)
        if options.replay is not None:
            check_kept(options.replay, shop, plan)
    removals = gates.Gates(shop.report, force=options.force or options.allow_deletes)
    try:  # before the work: what is to be refused is refused at once
        removals.through("removals", lambda: gates.check_removals(shop, plan), forcible=True, hint=False)
    except GateRefused:
        show_gates(shop)
        raise
    shop.report.documents["unchanged"] += plan.unchanged
    shop.progress.say(
        f"{plan.listed:,} documents in {shop.source.address}: {plan.looked_at:,} to look at"
        f" ({plan.size / 1e6:.1f} MB), {plan.unchanged:,} unchanged, {plan.steps['remove']:,} removed"
    )
    return plan


@task(cache_policy=NO_CACHE, persist_result=False)
def fetch(shop: Workshop, batch: Batch) -> None:
    """Bytes of a batch, as far as they are not known."""
    with shop.report.timed("fetch"):
        steps.fetch(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def parse(shop: Workshop, batch: Batch) -> None:
    """Documents of a batch into the memory."""
    with shop.report.timed("parse"):
        steps.parse(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def chunk(shop: Workshop, batch: Batch) -> None:
    """Chunks of a batch into the memory."""
    with shop.report.timed("chunk"):
        steps.chunk(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def note(shop: Workshop, batch: Batch) -> None:
    """Notes of a batch into the memory."""
    with shop.report.timed("note"):
        steps.note(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def embed(shop: Workshop, batch: Batch) -> None:
    """Vectors of a batch into the memory."""
    with shop.report.timed("embed"):
        steps.embed(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def write(shop: Workshop, batch: Batch) -> None:
    """The batch's rows into both stores and the catalog."""
    with shop.report.timed("write"):
        steps.write(shop, batch)


@task(cache_policy=NO_CACHE, persist_result=False)
def remove(shop: Workshop, plan: Plan) -> None:
    """What the source no longer holds, out of the index."""
    with shop.report.timed("write"):
        if shop.continues:
            for rows in plan.removed(shop):
                shop.report.chunks["removed"] += shop.draft.remove(rows).removed
        else:
            shop.draft.catalog  # noqa: B018 - nothing is written, and yet there is something to publish
        shop.report.documents["removed"] += plan.steps["remove"]


def record_versions(shop: Workshop) -> None:
    """Have the catalog know the versions of documents whose bytes did not change, now that it is written anyhow."""
    with shop.report.timed("write"):
        for seen in shop.seen.batches():
            rows = shop.published_rows(seen).values()
            shop.draft.catalog.put(
                msgspec.structs.replace(row, version=seen[row.document_id].version, size=seen[row.document_id].size)
                for row in rows
            )


def changed(shop: Workshop) -> bool:
    """Whether there is anything to publish; fills in the published figures where there is not."""
    if shop.has_draft or shop.outdated:
        return True
    shop.stays_published()
    return False


@task(cache_policy=NO_CACHE, persist_result=False)
def gate(shop: Workshop, options: BuildOptions, *, listed: int) -> RecallGate | None:
    """Finish the stores and check that they may be published."""
    with shop.report.timed("finish"):
        shop.draft.finish()
    recall = RecallGate(shop, shop.settings.golden) if shop.settings.golden else None
    passed = gates.Gates(shop.report, force=options.force)
    try:
        with shop.report.timed("gate"):
            passed.through("stores", shop.draft.check_stores)
            passed.through("fingerprint", lambda: shop.draft.check_fingerprint(shop.runtimes()))
            passed.through("parity", lambda: gates.check_parity(shop))
            passed.through("vectors", lambda: gates.check_vectors(shop))
            passed.through("text", lambda: gates.check_some_text(shop))
            passed.through("failures", lambda: gates.check_failures(shop, listed), forcible=True)
            if recall:
                passed.through("recall", recall.check, forcible=True)
    finally:
        show_gates(shop)
    return recall


@task(cache_policy=NO_CACHE, persist_result=False)
def publish(shop: Workshop, recall: RecallGate | None, *, made_by: str, sources: dict[str, str]) -> None:
    """Point readers to the new revision, keep what was measured of it, and clear away what nobody needs any more."""
    interrupts.check()
    with shop.report.timed("publish"):
        known = dict(shop.published.sources) if shop.published is not None else {}
        pointer = shop.draft.publish(
            sources=known | sources,
            runtimes=shop.runtimes(),
            checks=shop.report.checks,
            made_by=made_by,
            rates=shop.rates(),
        )
        shop.report.generation, shop.report.revision = pointer.generation, pointer.revision
        shop.report.chunks["total"] = pointer.counts["chunks"]
        shop.report.published = True
    if recall:
        with _never_failing(shop, "what was measured could not be kept"):
            recall.keep(pointer)
    with shop.report.timed("tidy"), _never_failing(shop, "old revisions could not be cleared away"):
        shop.tidy()
        grace = shop.settings.grace
        health.record(shop.storage.objects)
        if retention.retire(shop.storage, keep=shop.settings.keep_revisions, grace=grace):
            retention.prune(shop.storage)


def finished(shop: Workshop) -> dict[str, Any]:
    """The report of a build that is done."""
    shop.note_unmatched_rules()
    shop.report.seconds["total"] = time.time() - shop.began
    return shop.report.as_json()


def show_gates(shop: Workshop) -> None:
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
    """Everything that a build from a source works with."""
    check_surroundings(settings)
    with workshop(settings, options) as shop:
        yield shop


@contextmanager
def workshop(settings: Settings, options: BuildOptions) -> Iterator[Workshop]:
    """Hold the index for this build, and time it from the start of the command.

    Raises:
        GateRefused: when publishing is held.
    """
    began = time.time() if options.started is None else options.started
    report = BuildReport()
    report.seconds["start"] = time.time() - began
    storage = open_storage(settings)
    with storage.lock(), interrupts.noted():
        erasure.resume(storage)
        shop = Workshop(settings, storage, report, Progress(quiet=options.quiet), began)
        _refuse_held(storage.address, shop.published)
        try:
            for line in health.heal(storage, thorough=False):
                shop.progress.say(f"warning: {line}")
            yield shop
        except BaseException as error:  # a full disk or damage shows as whatever the library at hand raises, or panics
            shop.raise_clearly(error)
            raise
        finally:
            shop.close()


def _refuse_held(address: str, published: Pointer | None) -> None:
    if published is not None and published.held:
        raise GateRefused(
            f"index {address}: publishing is held: {published.held}",
            "Release it when the cause is mended: gristmill rollback --release",
        )
