"""What a draft reads and compares: what it touched each time, everything by turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from revisions import MODEL, change, held, publish, write

from chunker.chunk import document_id
from indexes.catalog import Totals, stamp, stamp_difference, stamp_sum
from indexes.revisions import generation
from indexes.revisions.generation import Draft, published_catalog
from indexes.storage.storage import Storage
from indexes.storage.tables import Table
from parsers.errors import GateRefused

MANY = {f"{number}.md": f"text {number}" for number in range(300)}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    place = Storage(str(tmp_path / "index"))
    place.create()
    write(place, MANY)
    return place


@pytest.fixture
def scanned(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that were read by scans of whole tables, once the index is there."""
    found: list[int] = []
    real = Table.scan

    def counted(self: Table, *given: Any, **named: Any) -> Iterator[Any]:
        for batch in real(self, *given, **named):
            found.append(len(batch))
            yield batch

    monkeypatch.setattr(Table, "scan", counted)
    return found


def test_a_build_with_one_change_scans_no_table(storage: Storage, scanned: list[int]) -> None:
    made = write(storage, {"7.md": "another"}, gone=("8.md",))
    assert sum(scanned) == 0
    assert made.checks["stores"] == "299 chunks in all three, those of 2 touched documents one by one"
    assert made.counts == {"documents": 299, "chunks": 299, "vectors": 299, "tokens": made.counts["tokens"]}
    totals = published_catalog(storage, made).totals()
    assert (totals.documents, totals.chunks, totals.tokens, totals.stamp) == (
        299,
        299,
        made.counts["tokens"],
        made.stamp,
    )
    assert held(storage, made) == {key: text for key, text in MANY.items() if key != "8.md"} | {"7.md": "another"}


def test_everything_is_compared_by_turns(storage: Storage, scanned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "FULL_EVERY", 3)
    figures = [write(storage, {"7.md": f"another {number}"}).checks["stores"] for number in range(4)]
    assert ["touched" in figure for figure in figures] == [True, False, True, True]


def test_a_flush_scans_no_ids(storage: Storage, scanned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A first build was quadratic by this."""
    monkeypatch.setattr(generation, "FLUSH", 10)
    with storage.lock():
        draft = Draft(storage, storage.pointer(), MODEL)
        for number in range(60):
            change(draft, {f"new-{number}.md": f"text {number}"})
        assert sum(scanned) == 0
        made = publish(draft)
        draft.close()
    assert len(held(storage, made)) == 360


def tampered(storage: Storage, how: str) -> None:
    """A draft with one change, in which one store lost or changed what belongs to a document."""
    with storage.lock():
        draft = Draft(storage, storage.pointer(), MODEL)
        change(draft, {"7.md": "another"})
        row = next(iter(draft.catalog.named([document_id("default", "7.md")]).values()))
        if how == "lexical":
            draft._flush()
            draft.lexical.apply(row.chunk_ids, [])
        elif how == "table":
            draft._flush()
            draft.table.delete_documents([row.document_id])
        elif how == "twice":
            draft._flush()
            draft.table.append(draft.table.of_documents([row.document_id]).to_batches())
        elif how == "untouched":
            draft._flush()
            draft.table.delete_documents([document_id("default", "9.md")])
        try:
            publish(draft)
        finally:
            draft.close()


@pytest.mark.parametrize("how", ["lexical", "table", "twice", "untouched"])
def test_stores_that_disagree_are_not_published(storage: Storage, how: str) -> None:
    before = storage.pointer()
    with pytest.raises(GateRefused, match="the stores disagree: the catalog holds 300 chunks"):
        tampered(storage, how)
    assert storage.pointer() == before
    assert len(held(storage, write(storage, {"7.md": "third"}))) == 300


ids = st.lists(st.integers(0, 2**64 - 1), max_size=6, unique=True)


@settings(max_examples=50)
@given(ids, ids)
def test_stamps_add_up_and_can_be_taken_off(one: list[int], other: list[int]) -> None:
    def of(numbers: list[int]) -> str:
        return stamp([f"{number:032x}" for number in numbers], [f"{number * 7:064x}" for number in numbers])

    whole = stamp_sum([of(one), of(other)])
    assert whole == of(one + other)
    assert stamp_difference(whole, of(other)) == of(one)
    totals = Totals(2, 3, 4, of(one)) + Totals(1, 1, 1, of(other))
    assert totals - Totals(1, 1, 1, of(other)) == Totals(2, 3, 4, of(one))
