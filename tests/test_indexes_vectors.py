"""Rows, and the table that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import indexes.vectors
from chunker.chunk import Chunk, chunk_ids
from indexes.cache.store import text_digest
from indexes.rows import ChunkRow, Vector, best, check_rows, document_rows, row_digest, schema, to_table
from indexes.storage import tables
from indexes.storage.objects import FolderObjects
from indexes.vectors import ChunkTable
from parsers.errors import StoreError

DIMENSION = 8


def make_id(number: int) -> str:
    return f"{number:032x}"


def make_row(number: int, text: str = "some words", **changes: object) -> ChunkRow:
    fields = {"chunk_id": make_id(number), "document_id": make_id(number // 10), "key": f"a/{number // 10}.md"}
    return ChunkRow(**{**fields, "start": 0, "end": len(text), "text": text, **changes})  # type: ignore[arg-type]


def make_vector(number: int) -> Vector:
    values = np.random.default_rng(number).normal(size=DIMENSION).astype(np.float32)
    return Vector(values, "exact runtime")


def make_table(numbers: list[int], *, null: int = 0, text: str = "some words") -> pa.Table:
    """Rows of these numbers; those that ``null`` divides have no vector (0: all have one)."""
    vectors = [None if null and number % null == 0 else make_vector(number) for number in numbers]
    return to_table([make_row(number, text) for number in numbers], vectors, DIMENSION)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ChunkTable]:
    yield ChunkTable.create(lancedb.connect(tmp_path), DIMENSION)


def contents(table: ChunkTable) -> dict[str, str]:
    stamps = [pair for batch in table.stamps() for pair in zip(*batch.to_pydict().values(), strict=True)]
    assert len(dict(stamps)) == len(stamps) == table.count()
    return dict(stamps)


def nearest(numbers: list[int], query: np.ndarray, k: int) -> list[str]:
    def cosine(number: int) -> float:
        values = make_vector(number).values
        return float(values @ query / np.linalg.norm(values) / np.linalg.norm(query))

    return [make_id(number) for number in sorted(numbers, key=cosine, reverse=True)[:k]]


# Rows


def test_every_field_that_a_reader_sees_moves_the_digest() -> None:
    row = make_row(1)
    digests = {row_digest(row, has_vector=True), row_digest(row, has_vector=False)}
    for field in msgspec.structs.fields(ChunkRow):
        value = getattr(row, field.name)
        other = value + 1 if isinstance(value, int) else ("x",) if isinstance(value, tuple) else value + "x"
        digests.add(row_digest(msgspec.structs.replace(row, **{field.name: other}), has_vector=True))
    assert len(digests) == 2 + len(ChunkRow.__struct_fields__)


@given(st.lists(st.text(max_size=3), max_size=3), st.lists(st.text(max_size=3), max_size=3))
def test_no_two_rows_share_a_digest(one: list[str], other: list[str]) -> None:
    first, second = (row_digest(make_row(1, labels=tuple(labels)), has_vector=True) for labels in (one, other))
    assert (first == second) == (one == other)


def test_the_digest_is_fixed() -> None:
    assert (
        row_digest(make_row(1), has_vector=True) == "11b46a3ad3491392aec380c9079ba861aee1808277e94cc3bf75fa76878cc26a"
    )


def test_rows_of_a_document_know_their_neighbours() -> None:
    document = make_id(7)
    chunks = [
        Chunk(start=0, end=3, text="one", printed_path=("Title",), heading_path=("Title",)),
        Chunk(start=4, end=7, text="two", header="a | b"),
        Chunk(start=8, end=11, text="one"),
    ]
    rows = document_rows(
        document,
        "k",
        chunks,
        notes=["A note.", "", ""],
        locators=["Title", "", ""],
        unknown_tokens=[0, 1, 0],
        labels=["b", "a", "b"],
    )
    ids = chunk_ids(document, chunks)
    assert [row.chunk_id for row in rows] == ids
    assert [row.previous_id for row in rows] == ["", ids[0], ids[1]]
    assert [row.next_id for row in rows] == [ids[1], ids[2], ""]
    assert [row.embedded_text for row in rows] == ["A note.\nTitle\none", "a | b\ntwo", "one"]
    assert rows[0].labels == ("a", "b")
    written = to_table(rows, [None, make_vector(1), None], DIMENSION)
    assert written["text_digest"].to_pylist() == [text_digest(row.embedded_text) for row in rows]
    assert written["vector"].null_count == 2


@pytest.mark.parametrize(
    ("rows", "vectors"),
    [
        ([make_row(1), make_row(1)], [make_vector(1), make_vector(2)]),
        ([make_row(1, chunk_id="x' OR 1=1")], [make_vector(1)]),
        ([make_row(1)], [Vector(np.full(DIMENSION, np.nan, np.float32), "r")]),
        ([make_row(1)], [Vector(np.full(DIMENSION, np.inf, np.float32), "r")]),
        ([make_row(1)], [Vector(np.zeros(DIMENSION, np.float32), "r")]),
        ([make_row(1)], [Vector(make_vector(1).values, "")]),
    ],
)
def test_bad_rows_are_refused(rows: list[ChunkRow], vectors: list[Vector | None]) -> None:
    with pytest.raises(ValueError):
        check_rows(to_table(rows, vectors, DIMENSION), DIMENSION)


def test_a_table_of_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="columns"):
        check_rows(make_table([1]), DIMENSION + 1)
    with pytest.raises(ValueError, match="shape"):
        to_table([make_row(1)], [make_vector(1)], DIMENSION + 1)


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 20))
@example([1] * 60, 5)
@example([2, *[1] * 500, 0], 40)
def test_ties_are_settled_by_id(scores: list[int], k: int) -> None:
    ids = [f"{number * 7919 % 601:03d}" for number in range(len(scores))]
    by_score = sorted(zip(map(float, scores), ids, strict=True), key=lambda hit: -hit[0])
    found = best(lambda depth: by_score[:depth], lambda places: places, k)
    assert found == sorted(((name, score) for score, name in by_score), key=lambda hit: (-hit[1], hit[0]))[:k]


# The table


def test_a_new_table_is_empty(table: ChunkTable) -> None:
    assert (table.count(), table.count_vectors(), table.dimension) == (0, 0, DIMENSION)
    assert contents(table) == {}
    assert table.dense(make_vector(1).values, 5) == []
    assert table.fetch([], ["text"]) == []


def test_what_is_written_is_read_back(table: ChunkTable) -> None:
    written = make_table(list(range(30)), null=3)
    assert table.apply([], written)[:3] == (0, 0, 30)
    read = pa.Table.from_batches(table.rows(written.column_names, batch_size=7))
    assert read.sort_by("chunk_id").equals(written)
    assert all(batch.num_rows <= 7 for batch in table.rows(["chunk_id"], batch_size=7))
    assert (table.count(), table.count_vectors()) == (30, 20)


steps = st.lists(
    st.tuples(st.sets(st.integers(0, 12), max_size=6), st.sets(st.integers(0, 12), max_size=6), st.text(max_size=3)),
    max_size=5,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_diffs_leave_what_a_dict_would_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[set[int], set[int], str]]
) -> None:
    table = ChunkTable.create(lancedb.connect(tmp_path_factory.mktemp("diffs")), DIMENSION)
    expected: dict[str, str] = {}
    for deleted, kept, text in steps:
        gone = deleted - kept
        written = make_table(sorted(kept), null=2, text=text)
        applied = table.apply(map(make_id, gone), written)
        there = set(expected)
        assert applied.deleted == len(there & {make_id(number) for number in gone})
        assert applied.updated == len(there & {make_id(number) for number in kept})
        assert applied.inserted == len(kept) - applied.updated
        assert applied.version == table.version
        for number in gone:
            expected.pop(make_id(number), None)
        expected.update(zip(written["chunk_id"].to_pylist(), written["row_digest"].to_pylist(), strict=True))
        assert contents(table) == expected


def test_an_empty_diff_writes_nothing(table: ChunkTable) -> None:
    table.apply([], make_table([1, 2]))
    version = table.version
    assert table.apply([], make_table([])) == (0, 0, 0, version)
    assert table.apply([make_id(9)], make_table([])) == (0, 0, 0, version)
    assert table.restore(version) == version
    assert table.refresh_indexes() == version


def test_an_id_is_not_both_removed_and_written(table: ChunkTable) -> None:
    with pytest.raises(ValueError, match="both"):
        table.apply([make_id(1)], make_table([1]))


def test_a_diff_survives_an_index_and_its_merging(table: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges have matched nothing, without a word, on an indexed column after optimizing (lancedb issue 3177)."""
    monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 1)
    table.apply([], make_table(list(range(600)), null=4))
    table.refresh_indexes()
    table.apply([], make_table(list(range(300, 900)), null=4, text="other"))
    table._table.compact(at=0)
    assert table.apply([make_id(0)], make_table(list(range(1, 900)), null=4, text="third"))[:3] == (1, 899, 0)
    assert set(contents(table)) == {make_id(number) for number in range(1, 900)}
    table.refresh_indexes()
    assert {row["text"] for row in table.fetch([make_id(n) for n in range(1, 900)], ["text"])} == {"third"}


def test_ids_are_handled_in_pieces(table: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "AT_ONCE", 3)
    table.apply([], make_table(list(range(20))))
    assert len(table.fetch([make_id(n) for n in range(20)], ["text"])) == 20
    assert len(table.stamps_of([make_id(0), make_id(1)])) == 20
    assert table.apply(map(make_id, range(10)), make_table([])).deleted == 10
    assert table.delete_documents([make_id(n) for n in range(7)]) == 10


def test_rows_of_documents(table: ChunkTable) -> None:
    table.apply([], make_table(list(range(25))))
    everything = contents(table)
    assert table.stamps_of([make_id(1)]) == {make_id(n): everything[make_id(n)] for n in range(10, 20)}
    assert table.delete_documents([make_id(1), make_id(99)]) == 10
    assert table.stamps_of([make_id(1)]) == {}
    assert table.count() == 15


def test_rows_come_in_the_order_asked(table: ChunkTable) -> None:
    table.apply([], make_table(list(range(10))))
    asked = [make_id(n) for n in (7, 2, 9, 2)]
    assert table.fetch(asked, ["chunk_id"]) == [{"chunk_id": name} for name in asked]
    assert table.fetch(asked, ["key", "labels"])[0] == {"key": "a/0.md", "labels": []}
    with pytest.raises(StoreError, match=make_id(42)):
        table.fetch([make_id(42)], ["text"])


@pytest.mark.parametrize("indexed", [False, True])
def test_search_by_vector(table: ChunkTable, monkeypatch: pytest.MonkeyPatch, indexed: bool) -> None:
    numbers = list(range(1, 1_001))
    table.apply([], make_table(numbers, null=2))
    if indexed:
        monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 100)
        before = table.version
        assert table.refresh_indexes() > before
        assert table.refresh_indexes() == table.version
    with_vectors = [number for number in numbers if number % 2]
    for seed in (0, -1):
        query = make_vector(10**6 + seed).values
        for k in (1, 10, 2_000):
            expected = nearest(with_vectors, query, k)
            assert [name for name, _ in table.dense(query, k)] == expected
            assert [name for name, _ in table.dense(query, k, exact=True)] == expected
        where = "key = 'a/7.md'"
        in_document = [number for number in with_vectors if number // 10 == 7]
        assert [name for name, _ in table.dense(query, 50, where)] == nearest(in_document, query, 50)
    name, score = table.dense(make_vector(5).values * 3, 1)[0]
    assert (name, score) == (make_id(5), pytest.approx(1, abs=1e-5))


def test_rows_written_after_the_index_are_found(table: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 100)
    table.apply([], make_table(list(range(600))))
    indexed = table.refresh_indexes()
    table.apply([], make_table([1_000, 1_001]))
    assert table.dense(make_vector(1_000).values, 1)[0][0] == make_id(1_000)
    assert table.refresh_indexes() == indexed + 1, "two of 600 rows do not make an index stale"
    table.apply([], make_table(list(range(2_000, 2_100))))
    assert table.refresh_indexes() > indexed + 2
    assert table.dense(make_vector(2_050).values, 1)[0][0] == make_id(2_050)


@pytest.mark.parametrize("exact", [False, True])
def test_a_table_without_vectors_answers_nothing(
    table: ChunkTable, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 100)
    table.apply([], make_table(list(range(300)), null=1))
    table.refresh_indexes()
    assert table.dense(make_vector(1).values, 5, exact=exact) == []


def test_equal_vectors_stand_by_id(table: ChunkTable) -> None:
    rows = [make_row(number * 7 % 101) for number in range(1, 101)]
    table.apply([], to_table(rows, [make_vector(1)] * 100, DIMENSION))
    assert [name for name, _ in table.dense(make_vector(1).values, 5)] == [make_id(n) for n in range(1, 6)]


@pytest.mark.parametrize("values", [[0.0] * DIMENSION, [1.0] * (DIMENSION + 1), [float("nan")] * DIMENSION])
def test_a_query_without_direction_is_refused(table: ChunkTable, values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        table.dense(np.array(values, np.float32), 1)


# Versions


def test_a_view_stays_and_the_head_goes_back(table: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 100)
    table.apply([], make_table(list(range(500)), null=3))
    published = table.refresh_indexes()
    view, before = table.checkout(published), contents(table)
    query = make_vector(1).values
    hits = view.dense(query, 20)

    table.apply(map(make_id, range(100)), make_table(list(range(400, 600)), text="new"))
    table._table.compact(at=0)
    assert contents(view) == before
    assert view.dense(query, 20) == hits
    assert view.version == published

    restored = table.restore(published)
    assert restored > published
    assert contents(table) == before
    assert table.dense(query, 20) == hits
    assert table.refresh_indexes() == restored, "an index goes back with its table"


def test_a_view_is_for_reading_alone(table: ChunkTable) -> None:
    version = table.apply([], make_table([1])).version
    view = table.checkout(version)
    with pytest.raises(StoreError):
        view.apply([], make_table([2]))
    with pytest.raises(ValueError, match="view"):
        view.restore(1)
    assert table.version == version


def test_a_handle_goes_back_over_the_writes_of_another(tmp_path: Path) -> None:
    table = ChunkTable.create(lancedb.connect(tmp_path), DIMENSION)
    version = table.apply([], make_table([1])).version
    ChunkTable.open(lancedb.connect(tmp_path)).apply([], make_table([2]))
    assert table.restore(version) == version + 2
    assert set(contents(table)) == {make_id(1)}


def test_a_pruning_keeps_just_the_versions_that_are_named(tmp_path: Path) -> None:
    files = FolderObjects(tmp_path)
    table = ChunkTable.create(lancedb.connect(tmp_path / "g"), DIMENSION)
    versions = [table.apply([], make_table([number])).version for number in range(6)]
    table.apply([make_id(0), make_id(1)], make_table([7]))
    named = {versions[1], versions[3]}
    before = {version: contents(table.checkout(version)) for version in named}
    stray = tmp_path / "g" / "chunks.lance" / "data" / "left-by-a-kill.lance"
    stray.write_bytes(b"half a file")
    with pytest.raises(StoreError, match=r"no version 999, which a kept revision names. Nothing was removed"):
        table.prune({versions[1], 999}, files, "g")
    assert table.checkout(versions[0]).count() == 1
    table.prune(named, files, "g")
    assert {version: contents(table.checkout(version)) for version in named} == before
    assert contents(table) == before[versions[3]], "the head is the last of them"
    for gone in set(versions) - named:
        with pytest.raises(StoreError, match=f"(?i)version {gone} "):
            table.checkout(gone)
    assert not stray.exists()
    assert len(list((tmp_path / "g" / "chunks.lance" / "data").iterdir())) == 4, "one piece a row that is left"
    table.apply([], make_table([9]))
    assert ChunkTable.open(lancedb.connect(tmp_path / "g")).count() == 5


def test_a_pruning_that_is_killed_leaves_what_it_was_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(FolderObjects):
        def delete(self, keys: Iterable[str]) -> None:
            super().delete(list(keys)[:1])
            raise KeyboardInterrupt

    table = ChunkTable.create(lancedb.connect(tmp_path / "g"), DIMENSION)
    versions = [table.apply([], make_table([number])).version for number in range(4)]
    with pytest.raises(KeyboardInterrupt):
        table.prune({versions[2]}, Killed(tmp_path), "g")
    again = ChunkTable.open(lancedb.connect(tmp_path / "g"))
    assert again.checkout(versions[2]).count() == 3
    again.restore(versions[2])
    assert again.count() == 3
    again.prune({versions[2]}, FolderObjects(tmp_path), "g")
    assert again.count() == 3


def test_pieces_are_merged(table: ChunkTable) -> None:
    for number in range(5):
        table.apply([], make_table([number]))
    assert table._table.pieces() == 5
    table._table.compact(at=4)
    assert table._table.pieces() == 1
    assert table.count() == 5


def test_a_missing_table_version_or_column_is_said(tmp_path: Path) -> None:
    db = lancedb.connect(tmp_path)
    with pytest.raises(StoreError, match="open the table"):
        ChunkTable.open(db)
    ChunkTable.create(db, DIMENSION)
    with pytest.raises(StoreError, match="create the table"):
        ChunkTable.create(db, DIMENSION)
    with pytest.raises(StoreError, match="open the table"):
        ChunkTable.open(db, 77)
    other = lancedb.connect(tmp_path / "other")
    other.create_table(indexes.vectors.TABLE, schema=schema(DIMENSION).append(pa.field("extra", pa.string())))
    with pytest.raises(StoreError, match="other columns"):
        ChunkTable.open(other)
