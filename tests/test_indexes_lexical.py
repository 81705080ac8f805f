"""The BM25 index: what it finds, what a commit and a snapshot promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexes.lexical.index
from indexes.lexical.index import Boosts, LexicalIndex, snapshot
from indexes.rows import ChunkRow, to_table
from indexes.search.filters import parse_filters
from parsers.errors import IndexBusy, StoreError

ROOT = Path(__file__).resolve().parent.parent


def make_id(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


def make_table(texts: dict[int, str], prefix: str = "", labels: tuple[str, ...] = ()) -> pa.Table:
    rows = [
        ChunkRow(
            chunk_id=make_id(number),
            document_id=make_id(number // 10),
            key=f"a/{number // 10}.md",
            start=0,
            end=len(text),
            text=text,
            prefix=prefix,
            labels=labels,
        )
        for number, text in texts.items()
    ]
    return to_table(rows, [None] * len(rows), 4)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    with LexicalIndex.create(tmp_path / "index") as index:
        yield index


def write(index: LexicalIndex, texts: dict[int, str], delete: tuple[int, ...] = (), **options: object) -> None:
    """One diff; a row that is written stands in place of the one of its id, if there is one."""
    index.apply([make_id(one) for one in {*delete, *texts}], make_table(texts, **options))  # type: ignore[arg-type]
    index.commit()


def found(index: LexicalIndex, query: str, k: int = 100, *filters: str) -> list[str]:
    return [name for name, _ in index.search(query, k, parse_filters(filters))]


def contents(index: LexicalIndex) -> list[tuple[str, str]]:
    return [pair for batch in index.stamps() for pair in zip(*batch.to_pydict().values(), strict=True)]


def stamps_of(table: pa.Table) -> list[tuple[str, str]]:
    return sorted(zip(table["chunk_id"].to_pylist(), table["row_digest"].to_pylist(), strict=True))


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# What is found


def test_an_empty_index_finds_nothing(index: LexicalIndex) -> None:
    assert (index.count, index.deleted_share, contents(index), found(index, "words")) == (0, 0.0, [], [])


def test_rows_are_found_by_prefix_and_text(index: LexicalIndex) -> None:
    write(index, {1: "a sentence about mills", 2: "another about rivers"}, prefix="Title › Chapter\n")
    assert found(index, "mills") == [make_id(1)]
    assert sorted(found(index, "chapter")) == sorted([make_id(1), make_id(2)])
    assert found(index, "") == found(index, "😀") == found(index, "unknown") == []


def test_what_folds_to_the_same_is_found(index: LexicalIndex) -> None:
    write(index, {1: "MÜLLER in der Straße", 2: "東京都の天気", 3: "other"})
    assert found(index, "muller") == found(index, "STRASSE") == [make_id(1)]
    assert found(index, "東京") == [make_id(2)]


def test_an_exact_identifier_stands_first(index: LexicalIndex) -> None:
    texts = {number: f"timeout error err 42 err timeout timeout {number}" for number in range(20)}
    write(index, {**texts, 50: "the code for this is ERR_TIMEOUT_42 and a long sentence that says so in many words"})
    assert found(index, "what means ERR_TIMEOUT_42?", 1) == [make_id(50)]


@pytest.mark.parametrize(
    ("field", "query", "value"),
    [("headings", "valve", {"heading_path": ("Valve",)}), ("notes", "valve", {"note": "A valve."})],
)
def test_a_field_counts_by_its_weight(index: LexicalIndex, field: str, query: str, value: dict[str, object]) -> None:
    rows = [
        ChunkRow(
            chunk_id=make_id(1), document_id=make_id(9), key="a.md", start=0, end=9, text="a valve and more", **value
        ),
        ChunkRow(chunk_id=make_id(2), document_id=make_id(9), key="a.md", start=9, end=20, text="valve valve and more"),
    ]
    index.apply([], to_table(rows, [None, None], 4))
    index.commit()
    first = [index.search(query, 2, weights=Boosts(**{field: weight}))[0][0] for weight in (0.0, 9.0)]
    assert first == [make_id(2), make_id(1)]


@pytest.mark.parametrize(
    "query",
    ["foo:bar", "https://example.org/?a=(b", "it's", "(a", "-foo", "NOT mills", '"mills', "mills^9", "*", "\x00"],
)
def test_signs_in_a_query_are_no_syntax(index: LexicalIndex, query: str) -> None:
    write(index, {1: "mills and boats", 2: "nothing here"})
    assert set(found(index, query)) <= {make_id(1)}
    assert bool(found(index, query)) == ("mills" in query)


def test_a_quoted_phrase_goes_first_and_keeps_nothing_out(index: LexicalIndex) -> None:
    apart = "the stone of a mill and the wheel of a mill"
    write(index, {1: apart, 2: "a mill that has a wheel of stone, and much else that is said of it", 3: "stone"})
    bare, quoted = dict(index.search("wheel of stone", 10)), dict(index.search('"wheel of stone"', 10))
    assert next(iter(bare)) == make_id(1) and next(iter(quoted)) == make_id(2)
    assert quoted.keys() == bare.keys() == {make_id(1), make_id(2), make_id(3)}
    assert all(quoted[make_id(n)] == bare[make_id(n)] for n in (1, 3))
    assert dict(index.search("“wheel of stone”", 10)) == quoted == dict(index.search("«Wheel of  STONES»", 10))
    assert dict(index.search('"wheel stone"', 10)) == dict(index.search("wheel stone", 10))


def test_phrases_of_function_words_and_of_other_scripts_are_found(index: LexicalIndex) -> None:
    write(index, {1: "not to be or to be", 2: "to be or not to be, said he", 3: "東京の京都", 4: "ここは東京都です"})
    assert found(index, '"to be or not to be"')[0] == make_id(2)
    assert found(index, '「東京都」 "東京都"')[0] == make_id(4)
    assert set(found(index, '"said he" "東京都"', 2, "key=a/*", "key!=a/9.md")) == {make_id(2), make_id(4)}


def test_a_phrase_crosses_the_prefix(index: LexicalIndex) -> None:
    write(index, {1: "wheels turn", 2: "turn the wheels of the mill"}, prefix="The mill\n")
    assert found(index, '"mill wheels"')[0] == make_id(1)


def test_a_long_query_is_searched(index: LexicalIndex) -> None:
    write(index, {1: "mills", 2: "rivers"})
    assert found(index, "mills " + "word " * 200_000) == [make_id(1)]


@settings(max_examples=24, deadline=None)
@given(
    st.lists(st.sampled_from(["a b", "a c", "a a b", "b", "b a a"]), min_size=1, max_size=40),
    st.sampled_from(["a b", '"a b"', '"b a" c "a a b"']),
    st.integers(1, 12),
    st.data(),
)
def test_equal_rows_stand_by_id_whatever_the_segments(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], query: str, k: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    cut = data.draw(st.integers(0, len(texts)))
    hits = []
    for parts in ([range(len(texts))], [order[:cut], order[cut:]]):
        with LexicalIndex.create(tmp_path_factory.mktemp("ties") / "index") as index:
            for part in parts:
                write(index, {number: texts[number] for number in part})
            hits.append(index.search(query, k))
    assert hits[0] == hits[1] == sorted(hits[0], key=lambda hit: (-hit[1], hit[0]))


def test_filters_hold_before_ranking(index: LexicalIndex) -> None:
    write(index, {number: "mills " * (number + 1) for number in range(30)}, labels=("public",))
    write(index, dict.fromkeys(range(30, 40), "mills and rivers and much else"), labels=("internal", "old"))
    assert set(found(index, "mills", 5, "label=internal")) <= {make_id(n) for n in range(30, 40)}
    assert len(found(index, "mills", 50, "label!=internal")) == 30
    assert set(found(index, "mills", 50, "key=a/1.md")) == {make_id(n) for n in range(10, 20)}
    assert len(found(index, "mills", 50, "key=a/*", "label=old", "label!=public")) == 10
    everything = dict(index.search("mills", 40))
    assert all(everything[name] == score for name, score in index.search("mills", 40, parse_filters(["key=a/*"])))


# Diffs and commits

steps = st.lists(
    st.tuples(st.sets(st.integers(0, 9)), st.dictionaries(st.integers(0, 9), st.sampled_from(["x", "y z", "y"]))),
    max_size=4,
)


@settings(max_examples=12, deadline=None)
@given(steps)
def test_diffs_leave_what_a_dict_would_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[set[int], dict[int, str]]]
) -> None:
    expected: dict[int, str] = {}
    with LexicalIndex.create(tmp_path_factory.mktemp("diffs") / "index") as index:
        for deleted, texts in steps:
            gone = deleted - set(texts)
            write(index, texts, tuple(gone))
            expected = {number: text for number, text in (expected | texts).items() if number not in gone}
            assert contents(index) == stamps_of(make_table(expected))
            assert index.count == len(expected)
            assert set(found(index, "y")) == {make_id(n) for n, text in expected.items() if "y" in text}


def test_batches_are_taken_as_well_as_tables(index: LexicalIndex) -> None:
    table = make_table({1: "mills", 2: "rivers"})
    index.apply([], iter(table.to_batches(max_chunksize=1)))
    index.commit()
    assert contents(index) == stamps_of(table)


def test_a_row_that_stands_twice_is_stamped_twice(index: LexicalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table({1: "mills"})

    class Blind:  # a writer that loses deletions
        def __init__(self) -> None:
            self.writer = index._writing()

        def delete_documents_by_term(self, field: str, value: str) -> None:
            pass

        def add_document(self, document: object) -> None:
            self.writer.add_document(document)  # type: ignore[arg-type]

    for _ in range(2):
        index._write(Blind(), table.to_batches()[0])  # type: ignore[arg-type]
    index.commit()
    assert contents(index) == stamps_of(table) * 2


def test_deleted_rows_are_counted(index: LexicalIndex) -> None:
    write(index, dict.fromkeys(range(10), "mills"))
    assert index.deleted_share == 0
    write(index, {}, delete=(0, 1, 2))
    assert index.deleted_share == pytest.approx(0.3)
    write(index, {5: "rivers"})
    assert index.deleted_share == pytest.approx(4 / 11)
    assert index.count == 7


def test_nothing_is_seen_before_a_commit(tmp_path: Path) -> None:
    with LexicalIndex.create(tmp_path / "index") as index:
        index.apply([], make_table({1: "mills"}))
        assert found(index, "mills") == []
        assert LexicalIndex.open(tmp_path / "index").count == 0
        index.rollback()
        index.commit()
        assert index.count == 0
        write(index, {2: "mills"})
    assert found(LexicalIndex.open(tmp_path / "index"), "mills") == [make_id(2)]


def test_a_reader_keeps_its_commit(tmp_path: Path) -> None:
    with LexicalIndex.create(tmp_path / "index") as index:
        write(index, {1: "mills"})
        reader = LexicalIndex.open(tmp_path / "index")
        write(index, {2: "mills"}, delete=(1,))
        assert found(reader, "mills") == [make_id(1)]
        assert contents(reader) == stamps_of(make_table({1: "mills"}))


def test_a_failed_block_takes_everything_back(tmp_path: Path) -> None:
    with LexicalIndex.create(tmp_path / "index") as index:
        write(index, {1: "mills"})
    with pytest.raises(KeyError), LexicalIndex.open(tmp_path / "index", write=True) as index:
        index.apply([make_id(1)], make_table({2: "rivers"}))
        raise KeyError
    with LexicalIndex.open(tmp_path / "index", write=True) as index:
        assert contents(index) == stamps_of(make_table({1: "mills"}))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    index = LexicalIndex.create(tmp_path / "index")
    with pytest.raises(IndexBusy, match="index"):
        LexicalIndex.open(tmp_path / "index", write=True)
    index.close()
    index.close()
    LexicalIndex.open(tmp_path / "index", write=True).close()
    with pytest.raises(ValueError, match="not open for writing"):
        LexicalIndex.open(tmp_path / "index").apply([], make_table({}))


def test_what_is_no_index_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="cannot open"):
        LexicalIndex.open(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StoreError, match="not empty"):
        LexicalIndex.create(tmp_path / "full")
    builder = indexes.lexical.index.tantivy.SchemaBuilder()
    builder.add_text_field("other")
    with monkeypatch.context() as patch:
        patch.setattr(indexes.lexical.index, "_schema", builder.build)
        LexicalIndex.create(tmp_path / "other").close()
    with pytest.raises(StoreError, match="other fields"):
        LexicalIndex.open(tmp_path / "other")


def test_the_text_is_not_stored(tmp_path: Path) -> None:
    with LexicalIndex.create(tmp_path / "index") as index:
        write(index, {1: "Xylophones and quicksand"})
        place = index._searcher.search(indexes.lexical.index.tantivy.Query.all_query()).hits[0][1]
        assert index._searcher.doc(place).to_dict() == {"chunk_id": [make_id(1)]}


# Snapshots


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A closed index of several segments, some rows of it deleted."""
    with LexicalIndex.create(tmp_path / "published") as index:
        for first in range(0, 60, 20):
            write(index, {number: f"mills {number}" for number in range(first, first + 20)})
        write(index, {}, delete=(3, 23))
    return tmp_path / "published"


def state(folder: Path) -> tuple[object, ...]:
    index = LexicalIndex.open(folder)
    return contents(index), index.search("mills 7", 100), index.count, index.deleted_share


def test_a_snapshot_holds_the_same_and_copies_nothing(published: Path) -> None:
    target = published.parent / "next"
    snapshot(published, target)
    assert not any(file.name.endswith(".lock") for file in target.iterdir())
    for file in target.iterdir():
        linked = file.stat().st_ino == (published / file.name).stat().st_ino
        assert linked != file.name.endswith(".json"), file.name
    assert state(target) == state(published)


def test_writing_to_a_snapshot_leaves_its_source_alone(published: Path) -> None:
    before, files, reader = state(published), files_of(published), LexicalIndex.open(published)
    target = published.parent / "next"
    snapshot(published, target)
    with LexicalIndex.open(target, write=True) as index:
        for number in range(100, 112):  # more segments than tantivy leaves unmerged
            write(index, {number: f"mills {number}"}, delete=(number - 100,))
        index._writing().delete_all_documents()
        index.commit()
        write(index, {500: "mills"})
    with LexicalIndex.open(target, write=True) as index:
        index._writing().garbage_collect_files()
        assert found(index, "mills") == [make_id(500)]
    assert not set(files_of(target)) & {name for name in files if name.endswith(".store")}, "nothing was collected"
    assert files_of(published) == files
    assert state(published) == before
    assert found(reader, "mills 7") == [name for name, _ in before[1]]  # type: ignore[attr-defined]


def test_writing_to_the_source_leaves_a_snapshot_alone(published: Path) -> None:
    target = published.parent / "next"
    snapshot(published, target)
    before, files = state(target), files_of(target)
    with LexicalIndex.open(published, write=True) as index:
        write(index, {500: "mills"}, delete=tuple(range(60)))
        index._writing().garbage_collect_files()
    assert (state(target), files_of(target)) == (before, files)


def test_a_snapshot_copies_where_links_do_not_work(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    target = published.parent / "next"
    snapshot(published, target)
    assert state(target) == state(published)
    assert all(file.stat().st_nlink == 1 for file in target.iterdir())


def test_a_snapshot_replaces_nothing_and_needs_an_index(published: Path) -> None:
    with pytest.raises(StoreError, match="exists already"):
        snapshot(published, published)
    with pytest.raises(StoreError, match="cannot copy"):
        snapshot(published.parent / "nowhere", published.parent / "next")
    assert not (published.parent / "next").exists()


def test_a_half_made_snapshot_is_made_anew(published: Path) -> None:
    partial = published.parent / "next.partial"
    partial.mkdir()
    (partial / "meta.json").write_text("{")
    snapshot(published, published.parent / "next")
    assert state(published.parent / "next") == state(published)
    assert not partial.exists()


@pytest.mark.parametrize("commits", [0, 3])
def test_a_killed_writer_leaves_source_and_last_commit(published: Path, commits: int) -> None:
    before, files, target = state(published), files_of(published), published.parent / "next"
    snapshot(published, target)
    script = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT)!r} + "/tests")
        from test_indexes_lexical import LexicalIndex, make_table, make_id
        index = LexicalIndex.open(Path({str(target)!r}), write=True)
        for number in range({commits}):
            index.apply([make_id(number)], make_table({{100 + number: "mills"}}))
            index.commit()
        print("ready", flush=True)
        while True:
            index.apply(map(make_id, range(60)), make_table({{n: "mills " * 50 for n in range(200, 400)}}))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert (state(published), files_of(published)) == (before, files)
    with LexicalIndex.open(target, write=True) as index:
        assert index.count == 58
        names = {name for name, _ in contents(index)}
        assert {make_id(100 + number) for number in range(commits)} <= names
        write(index, {500: "rivers"})
        assert found(index, "rivers") == [make_id(500)]
