"""Measuring a published index against a golden set, and keeping the record of it under ``evaluations/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from flows.evaluation.golden_set import resolve, texts_of
from flows.evaluation.runs import PUBLISHED, make_record, measure, published_index, worst_questions
from flows.models.embedding import open_query_embedder
from flows.opening import naming_the_place, published
from flows.pages.page import check_page, write_page
from flows.searching import check_always, fusion
from flows.settings import Settings
from indexes.evaluation.golden import load_golden
from indexes.evaluation.reading import FEW
from indexes.evaluation.record import (
    Record,
    check_comparable,
    compare_records,
    decode_record,
    evaluation_key,
    kept_records,
    read_record,
    write_record,
)
from indexes.revisions.generation import open_stores, published_catalog
from indexes.storage.storage import Storage
from parsers.errors import StoreError, UsageError

COMPARED_K: Final = 10  # depth at which runs are compared


@naming_the_place
def evaluate(
    settings: Settings, golden: Path, *, against: str | None = None, strict: bool = True, html: Path | None = None
) -> dict[str, Any]:
    """Recall curves of the published revision by mode, kept as a record.

    Args:
        against: a record to compare with, by id or path; ``last`` is the newest of this index.
        strict: whether a question that does not resolve is an error; otherwise it is left out and named, and so it is
            in a comparison, which is over the questions that resolve in both.
        html: where to write the report page.

    Returns:
        The record without what belongs to single questions, and ``record``, its path; with ``comparison`` where one
        was asked for.

    Raises:
        UsageError: when a question does not resolve, the record to compare with was measured by other metrics, or a
            filter names a label that no document carries.
    """
    questions = load_golden(golden)
    storage, pointer = published(settings)
    rows = list(published_catalog(storage, pointer).rows())
    other = find_record(storage, against) if against else None
    if other:
        check_comparable(other)
    check_page(html)
    texts = texts_of(storage, rows)
    resolved = resolve(golden, questions, texts, strict=strict and other is None)
    table, lexical = open_stores(storage, pointer)
    check_always(settings, storage, pointer, lexical)
    vectors = None
    if pointer.counts["vectors"]:
        vectors = open_query_embedder(settings, storage, pointer).encode(resolved.texts, "query").vectors
    measured = measure(PUBLISHED, table, lexical, resolved, vectors, fusion(settings))
    record = make_record(settings, *published_index(storage, pointer), rows, measured)
    examples = worst_questions(measured.runs[0], resolved, table, texts)
    return finish(storage, msgspec.structs.replace(record, examples=examples), other, html)


def finish(storage: Storage, record: Record, other: Record | None, html: Path | None) -> dict[str, Any]:
    """Keep a record, compare it, write its page, and give what the command prints."""
    kept = True
    try:
        record = write_record(storage.objects, record)
    except StoreError as error:  # an index that may be read and not written is measured all the same
        kept, problem = False, error.message
    comparison = compare_records(other, record, COMPARED_K) if other else None
    if html:
        from flows.pages.evaluation import evaluation_page

        write_page(html, evaluation_page(record, comparison, other.id if other else ""))
    found: dict[str, Any] = msgspec.to_builtins(record)
    for name in ("questions", "examples"):
        del found[name]
    for run in found["runs"]:
        scores = run.pop("scores")
        del run["hits"]
        run["missed_at_5"] = [name for name, one in scores.items() if any(not r or r > 5 for r in one["midpoint"])]
    found["record"] = f"{storage.address.rstrip('/')}/{evaluation_key(record.id)}" if kept else ""
    if not kept:
        found["not_kept"] = problem
    found["least_questions"] = FEW
    if not other:
        return found
    return found | {"comparison": comparison, "against": other.id, "documents_changed": other.corpus != record.corpus}


def find_record(storage: Storage, name: str) -> Record:
    """Return a record by its id, its path, or ``last``: the newest of a published revision.

    Raises:
        UsageError: when there is none.
    """
    if name == "last":
        for record in kept_records(storage.objects):
            if record.runs[0].variant == PUBLISHED and not record.index.get("refused"):
                return record
        raise UsageError(f"index {storage.address} has no kept evaluation", "Evaluate it once without --against.")
    own = storage.objects.get(evaluation_key(name)) if "/" not in name else None
    return decode_record(own[0], name) if own is not None else read_record(Path(name))
