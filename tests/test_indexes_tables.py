"""One table over LanceDB: merging writes what is young, doubles go, a copy is whole or is made again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.cache.store import BytesCache, Embedding, VectorCache, cache_key, marks
from indexes.storage import tables
from indexes.storage.objects import FolderObjects
from indexes.storage.tables import Table

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary())])
WIDTH = 1_000  # bytes of a value, which do not compress


def entries(first: int, count: int) -> pa.Table:
    keys = [f"{number:08x}" for number in range(first, first + count)]
    values = [np.random.default_rng(number).bytes(WIDTH) for number in range(first, first + count)]
    return pa.table({"key": keys, "value": values}, schema=SCHEMA)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def keys(table: Table) -> list[str]:
    return sorted(key for batch in table.scan(["key"]) for key in batch["key"].to_pylist())


def test_many_small_writes_cost_what_they_write_and_not_the_table(tmp_path: Path) -> None:
    table = Table.create(lancedb.connect(tmp_path), "some", SCHEMA)
    table.add(entries(0, 5_000))
    whole = size(tmp_path)
    for number in range(300):
        table.add(entries(10_000 + number, 1))
        table.compact(at=8)
    assert table.pieces() <= 8 + 10, "some of each size, and the table itself"
    grown = size(tmp_path) - whole
    assert grown < 300 * WIDTH * 20, "each row is written again as often as the pieces double"
    assert grown < whole * 2, "the table alone, copied as often as its pieces were many, is 37 of it"
    assert keys(table) == sorted(entries(0, 5_000)["key"].to_pylist() + entries(10_000, 300)["key"].to_pylist())


def test_a_table_of_which_much_is_deleted_is_written_anew(tmp_path: Path) -> None:
    table = Table.create(lancedb.connect(tmp_path), "some", SCHEMA)
    table.add(entries(0, 1_000))
    table.delete("key", [f"{number:08x}" for number in range(250)])
    version = table.version
    table.compact()
    assert table.version == version, "a quarter is not much"
    table.delete("key", [f"{number:08x}" for number in range(250, 400)])
    table.compact()
    assert table.raw.stats()["fragment_stats"]["lengths"]["max"] == table.count() == 600


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), max_size=25), st.integers(0, 4))
def test_merging_changes_no_row(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int]], at: int
) -> None:
    table = Table.create(lancedb.connect(tmp_path_factory.mktemp("table")), "some", SCHEMA)
    there: set[str] = set()
    for number, (count, gone) in enumerate(writes):
        rows = entries(number * 100, count)
        table.add(rows)
        there.update(rows["key"].to_pylist())
        out = sorted(there)[:gone]
        assert table.delete("key", out) == len(out)
        there.difference_update(out)
        table.compact(at=at)
        assert keys(table) == sorted(there)
    assert table.count() == len(there)


def test_an_id_that_is_none_is_refused(tmp_path: Path) -> None:
    table = Table.create(lancedb.connect(tmp_path), "some", SCHEMA)
    with pytest.raises(ValueError, match="hexadecimal"):
        table.delete("key", ["' OR '1'='1"])


@pytest.mark.parametrize("killed_at", range(6))
def test_a_copy_that_is_killed_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int) -> None:
    db = lancedb.connect(tmp_path)
    table = Table.create(db, "some", SCHEMA)
    table.add(entries(0, 500))
    table.delete("key", [f"{number:08x}" for number in range(100)])
    meant, steps = keys(table), iter(range(100))

    def killing(real: Any, *, half: bool) -> Any:
        def call(self: Any, name: str, *given: Any, **named: Any) -> Any:
            if next(steps) == killed_at:
                folder = tmp_path / f"{name}.lance"
                if half and folder.is_dir():  # some of its files are gone
                    for path in sorted(folder.rglob("*.lance")):
                        path.unlink()
                raise KeyboardInterrupt
            return real(self, name, *given, **named)

        return call

    kind = type(db)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "create_table", killing(kind.create_table, half=False))
        patch.setattr(kind, "drop_table", killing(kind.drop_table, half=True))
        try:
            tables.copy_over(db, "some")
        except KeyboardInterrupt:
            assert killed_at < 4
        else:
            assert killed_at >= 4
    again = lancedb.connect(tmp_path)
    tables.finish_copies(again)
    assert tables.table_names(again) == {"some"}
    assert keys(Table(again, "some")) == meant
    tables.copy_over(again, "some")
    assert keys(Table(again, "some")) == meant


def test_versions_stay_by_number_whatever_the_files_times_are(tmp_path: Path) -> None:
    table = Table.create(lancedb.connect(tmp_path / "g"), "some", SCHEMA)
    versions = []
    for number in range(6):
        table.add(entries(number, 1))
        versions.append(table.version)
    for days, path in enumerate(sorted(tmp_path.rglob("*"))):
        if path.is_file():
            moved = time.time() + (days % 7 - 3) * 86_400
            os.utime(path, (moved, moved))
    assert table.prune({versions[1], versions[4]}, FolderObjects(tmp_path), "g") == 5
    db = lancedb.connect(tmp_path / "g")
    assert len(keys(Table(db, "some", versions[1]))) == 2
    assert len(keys(Table(db, "some", versions[4]))) == len(keys(Table(db, "some"))) == 5
    assert len(list((tmp_path / "g" / "some.lance" / "data").iterdir())) == 5, "the sixth is named by none"


# --- doubles in the cache


def doubled(folder: Path, count: int) -> tuple[BytesCache, dict[str, bytes]]:
    """Entries that two writers made, neither of whom saw the other's."""
    made = {cache_key(str(number)): str(number).encode() for number in range(count)}
    for _ in range(2):
        BytesCache(lancedb.connect(folder), "notes").add(made)
    return BytesCache(lancedb.connect(folder), "notes"), made


def test_doubles_cut_no_other_key_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "AT_ONCE", 50)
    memo, made = doubled(tmp_path, 120)
    assert memo.get(made) == made and memo.known(made) == made.keys()


def test_doubles_heal_once_they_were_asked_for(tmp_path: Path) -> None:
    memo, made = doubled(tmp_path, 120)
    memo.tidy()
    assert len(memo) == 240, "nobody has asked for them"
    memo.known(made)
    memo.tidy()
    assert len(memo) == 120 and memo.get(made) == made
    memo.add({key: made[key] for key in list(made)[:1]})
    assert memo.sweep(marks(list(made)), 0.0) == 0 and len(memo) == 120, "a sweep looks at all of them"
    assert memo.get(made) == made


def test_doubled_vectors_serve_and_heal(tmp_path: Path) -> None:
    db = lancedb.connect(tmp_path)
    made = {cache_key(str(n)): Embedding(np.full(3, n, np.float32), n, 0, "ab") for n in range(1, 40)}
    VectorCache(db, 3).add(made)
    vectors = VectorCache(db, 3)
    vectors.add(made)
    assert vectors.get(made).keys() == made.keys()
    vectors.tidy()
    assert len(vectors) == 39
    assert all(np.array_equal(vectors.get([key])[key].vector, one.vector) for key, one in made.items())


def test_entries_of_a_clock_that_was_ahead_age_from_the_first_sweep_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo = BytesCache(lancedb.connect(tmp_path), "notes")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10 * 365 * 86_400)
    memo.add({cache_key("1"): b"1"})
    monkeypatch.setattr(time, "time", real)
    nothing = np.empty(0, np.uint64)
    assert memo.sweep(nothing, real() - 3600) == 0, "it is young as far as anyone knows"
    assert memo.sweep(nothing, real() - 3600) == 0
    assert memo.sweep(nothing, real() + 2) == 1, "an hour later, say"
