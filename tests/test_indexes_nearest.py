"""The nearest vectors of many queries from one scan, and evaluation that asks them so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexes.vectors
from indexes.evaluation.asking import SPARE, Corpus, ask
from indexes.evaluation.metrics import MEASURED_DEPTH
from indexes.lexical.index import LexicalIndex
from indexes.nearest import Nearest
from indexes.rows import ChunkRow, Vector, to_table
from indexes.search.search import Fusion
from indexes.storage.tables import Table
from indexes.vectors import ChunkTable

DIMENSION = 8
Vectors = npt.NDArray[np.float32]


def make_id(number: int) -> str:
    return f"{number:032x}"


def make_vectors(count: int, seed: int, *, dimension: int = DIMENSION) -> Vectors:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def make_rows(vectors: list[Vectors | None], texts: list[str] | None = None) -> pa.Table:
    rows = [
        ChunkRow(
            chunk_id=make_id(number),
            document_id=make_id(number // 10),
            key=f"a/{number // 10}.md",
            start=0,
            end=len(text),
            text=text,
            labels=("odd",) if number % 2 else (),
        )
        for number, text in enumerate(texts or [f"text {number}" for number in range(len(vectors))])
    ]
    made = [None if vector is None else Vector(vector, "exact runtime") for vector in vectors]
    return to_table(rows, made, DIMENSION)


@pytest.fixture
def table(tmp_path: Path) -> ChunkTable:
    return ChunkTable.create(lancedb.connect(tmp_path), DIMENSION)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The columns of each scan of a table."""
    found: list[list[str]] = []
    scan = Table.scan

    def counted(self: Table, columns: Any, *rest: Any, **named: Any) -> Any:
        found.append(list(columns))
        return scan(self, columns, *rest, **named)

    def refused(self: ChunkTable, *_: Any, **named: Any) -> Any:
        raise AssertionError("the vectors are searched for one question")

    monkeypatch.setattr(Table, "scan", counted)
    monkeypatch.setattr(ChunkTable, "dense", refused)
    yield found


def by_hand(vectors: dict[str, Vectors], query: Vectors, k: int) -> list[tuple[str, float]]:
    def cosine(one: Vectors) -> float:
        a, b = one.astype(np.float64), query.astype(np.float64)
        return float(np.round(a @ b / np.linalg.norm(a) / np.linalg.norm(b), 7))

    return sorted(((name, cosine(one)) for name, one in vectors.items()), key=lambda hit: (-hit[1], hit[0]))[:k]


@given(
    numbers=st.lists(st.integers(0, 12), min_size=1, max_size=120),
    seed=st.integers(0, 1_000),
    k=st.integers(1, 40),
    size=st.integers(1, 50),
)
@settings(max_examples=60, deadline=None)
def test_hits_depend_on_no_order_and_no_block(numbers: list[int], seed: int, k: int, size: int) -> None:
    pool, queries = make_vectors(13, seed), make_vectors(4, seed + 1)
    vectors = {make_id(place): pool[number] for place, number in enumerate(numbers)}  # many are equal
    expected = [by_hand(vectors, query, k) for query in queries]
    for order in (sorted(vectors), sorted(vectors, reverse=True)):
        found = Nearest(queries, k)
        for start in range(0, len(order), size):
            names = order[start : start + size]
            found.add(names, np.stack([vectors[name] for name in names]))
        assert found.hits() == expected


def test_equal_vectors_of_any_place_score_the_same_to_the_last_bit() -> None:
    one, queries = make_vectors(1, 3, dimension=387)[0], make_vectors(37, 4, dimension=387)
    scores = []
    for size in (1, 3, 17, 256, 1_024):
        found = Nearest(queries, 2_000)
        for start in range(0, 1_024, size):
            names = [make_id(number) for number in range(start, min(start + size, 1_024))]
            found.add(names, np.stack([one] * len(names)))
        hits = found.hits()
        assert [name for name, _ in hits[5]] == [make_id(number) for number in range(1_024)]
        scores.append([[score for _, score in own] for own in hits])
    assert all(one == scores[0] for one in scores) and all(len(set(own)) == 1 for own in scores[0])


@given(seed=st.integers(0, 50), k=st.integers(1, 70), odd=st.sampled_from([None, "array_has(labels, 'odd')"]))
@settings(max_examples=15, deadline=None)
def test_it_finds_what_the_search_for_one_vector_finds(
    tmp_path_factory: pytest.TempPathFactory, seed: int, k: int, odd: str | None
) -> None:
    table = ChunkTable.create(lancedb.connect(tmp_path_factory.mktemp("table")), DIMENSION)
    pool = make_vectors(25, seed)
    table.apply([], make_rows([None if number % 5 == 0 else pool[number % 25] for number in range(60)]))
    queries = make_vectors(5, seed + 100)
    for query, found in zip(queries, table.nearest(queries, k, odd), strict=True):
        expected = table.dense(query, k, odd, exact=True)
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-6)


def test_a_scan_reads_every_vector_whatever_index_there_is(table: ChunkTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes.vectors, "EXACT_ROWS", 100)
    vectors = make_vectors(600, 1)
    table.apply([], make_rows(list(vectors)))
    queries = make_vectors(3, 2)
    before = table.nearest(queries, 20)
    table.refresh_indexes()
    assert table.nearest(queries, 20) == before
    table._table.compact(at=0)
    assert (
        table.nearest(queries, 20)
        == before
        == [by_hand({make_id(number): vector for number, vector in enumerate(vectors)}, query, 20) for query in queries]
    )


def test_rows_without_a_direction_are_no_hits() -> None:
    found = Nearest(make_vectors(2, 1, dimension=2), 5)
    found.add(["a", "b", "c"], np.array([[0, 0], [np.nan, 1], [1, 1]], np.float32))
    found.add(["d"], np.array([[0, 0]], np.float32))
    assert [[name for name, _ in own] for own in found.hits()] == [["c"], ["c"]]


def test_a_table_without_vectors_answers_nothing_at_once(table: ChunkTable) -> None:
    queries = make_vectors(2, 1)
    assert table.nearest(queries, 5) == [[], []] and table.nearest(queries[:0], 5) == []
    table.apply([], make_rows([None] * 5))
    assert table.nearest(queries, 5) == [[], []]


@pytest.mark.parametrize("values", [[0.0] * DIMENSION, [1.0] * (DIMENSION + 1), [float("nan")] * DIMENSION])
def test_a_query_without_direction_is_refused_among_others(table: ChunkTable, values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        table.nearest(np.array([values], np.float32), 1)


# Evaluation


def make_index(folder: Path, written: pa.Table) -> LexicalIndex:
    with LexicalIndex.create(folder) as index:
        index.apply([], written)
        index.commit()
    return LexicalIndex.open(folder)


def vector_scans(scans: list[list[str]]) -> int:
    return sum("vector" in columns for columns in scans)


def test_a_set_of_questions_reads_the_vectors_once(table: ChunkTable, tmp_path: Path, scans: list[list[str]]) -> None:
    written = make_rows(list(make_vectors(300, 1)))
    table.apply([], written)
    index, corpus = make_index(tmp_path / "bm25", written), Corpus(table)
    for count in (1, 40):
        scans.clear()
        found = ask(table, index, corpus, [f"text {n}" for n in range(count)], make_vectors(count, 2), Fusion())
        assert vector_scans(scans) == 1
        assert len(found["dense"]) == len(found["hybrid"]) == count
        assert all(len(one.names) == MEASURED_DEPTH for one in found["dense"])


def test_many_chunks_of_one_text_cost_one_scan_more_for_all_questions(
    table: ChunkTable, tmp_path: Path, scans: list[list[str]]
) -> None:
    copies = MEASURED_DEPTH + SPARE + 10
    vectors = make_vectors(300, 1)
    written = make_rows([vectors[0]] * copies + list(vectors), ["copy"] * copies + [f"text {n}" for n in range(300)])
    table.apply([], written)
    index, corpus = make_index(tmp_path / "bm25", written), Corpus(table)
    scans.clear()
    queries = np.stack([vectors[0], -vectors[0], vectors[0] * 2])
    found = ask(table, index, corpus, ["one", "two", "three"], queries, Fusion())["dense"]
    assert vector_scans(scans) == 2
    assert all(len(one.names) == MEASURED_DEPTH for one in found)
    assert found[0].texts[0] == found[2].texts[0] and len(found[0].places[0]) == copies


def test_filters_that_always_hold_stand_before_the_ranking(table: ChunkTable, tmp_path: Path) -> None:
    written = make_rows(list(make_vectors(600, 1)))
    table.apply([], written)
    index, corpus = make_index(tmp_path / "bm25", written), Corpus(table)
    found = ask(table, index, corpus, ["text"], make_vectors(1, 2), Fusion(always=("label=odd",)))
    for mode in ("dense", "bm25", "hybrid"):
        assert found[mode][0].names and all(int(name, 16) % 2 for name in found[mode][0].names)
    assert len(found["dense"][0].names) == MEASURED_DEPTH
