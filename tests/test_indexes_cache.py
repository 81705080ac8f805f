"""The cache: written once, found again, in one table of LanceDB."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lancedb
import numpy as np
import pytest

from indexes.cache import store
from indexes.cache.store import BytesCache, Embedding, VectorCache, cache_key
from indexes.storage import tables


def test_keys_tell_their_parts_apart() -> None:
    assert cache_key("a", "bc") != cache_key("ab", "c") != cache_key("abc")
    assert cache_key("é") == cache_key("é") and len(cache_key()) == 32


def test_what_is_put_is_found_and_never_changed(tmp_path: Path) -> None:
    notes = BytesCache(lancedb.connect(str(tmp_path)), "notes")
    one, two, three = cache_key("1"), cache_key("2"), cache_key("3")
    assert notes.get([one]) == {} and notes.known([one]) == set()
    notes.put({one: b"x" * 10_000, two: b""})
    notes.put({one: b"other", three: "é".encode()})
    again = BytesCache(lancedb.connect(str(tmp_path)), "notes")
    assert again.get([one, two, three, cache_key("4")]) == {one: b"x" * 10_000, two: b"", three: "é".encode()}
    assert len(again) == 3
    notes.put({})
    assert len(BytesCache(lancedb.connect(str(tmp_path)), "notes")) == 3


def test_more_keys_than_one_question_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "AT_ONCE", 7)
    notes = BytesCache(lancedb.connect(str(tmp_path)), "notes")
    entries = {cache_key(str(number)): str(number).encode() for number in range(50)}
    notes.put(entries)
    assert notes.get(entries) == entries
    assert notes.known([*entries, cache_key("none")]) == entries.keys()


def test_vectors_keep_their_numbers_and_counts(tmp_path: Path) -> None:
    vectors = VectorCache(lancedb.connect(str(tmp_path)), 3)
    entries = {
        cache_key(str(number)): Embedding(np.array([number, -0.5, 1e-30], dtype=np.float32), number, 1, "ab")
        for number in range(9)
    }
    vectors.put(entries)
    found = vectors.get(entries)
    assert found.keys() == entries.keys()
    for key, entry in entries.items():
        assert np.array_equal(found[key].vector, entry.vector)
        assert found[key][1:] == entry[1:]


def test_tidying_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "COMPACT_AT", 3)
    monkeypatch.setattr(store, "INDEX_AT", 5)
    notes = BytesCache(lancedb.connect(str(tmp_path)), "notes")
    entries = {cache_key(str(number)): str(number).encode() for number in range(12)}
    for key, value in entries.items():
        notes.put({key: value})
    notes.tidy(timedelta(seconds=1))
    notes.put({cache_key("late"): b"late"})
    notes.tidy(timedelta(seconds=1))
    assert notes.get([*entries, cache_key("late")]) == entries | {cache_key("late"): b"late"}


def test_who_only_reads_makes_no_table(tmp_path: Path) -> None:
    db = lancedb.connect(str(tmp_path))
    notes, vectors = BytesCache(db, "notes"), VectorCache(db, 3)
    one = cache_key("1")
    assert (notes.get([one]), notes.known([one]), len(notes), vectors.get([one])) == ({}, set(), 0, {})
    notes.forget([one])
    notes.tidy()
    assert notes.sweep(store.marks([one]), 0.0) == 0 and list(db.list_tables(limit=10).tables) == []
    notes.put({one: b"1"})
    assert notes.get([one]) == BytesCache(db, "notes").get([one]) == {one: b"1"}


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    notes = BytesCache(lancedb.connect(str(tmp_path)), "notes")
    notes.put({cache_key("1"): b"1"})
    with pytest.raises(ValueError, match="hexadecimal"):
        notes.get(["' OR '1'='1"])
