"""A damaged cache: its whole parts stay, the rest goes, and a build never stops over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from indexes.cache import health
from indexes.cache.store import BytesCache
from indexes.storage.storage import Storage

KEYS = [f"{number:032x}" for number in range(12)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """An index whose cache holds three pieces of notes, and some chunks."""
    storage = Storage(str(tmp_path / "index"))
    storage.create()
    notes = BytesCache(storage.cache(), "notes")
    for start in range(0, 12, 4):
        notes.add({key: key.encode() * 9 for key in KEYS[start : start + 4]})
    BytesCache(storage.cache(), "chunks").add({KEYS[0]: b"chunk"})
    health.record_cache_digests(storage.objects)
    assert health.cache_damages(storage.objects, thorough=True) == []
    return storage


def notes(storage: Storage) -> dict[str, bytes]:
    return BytesCache(storage.cache(), "notes").get(KEYS)


def pieces(storage: Storage, kind: str = "data") -> list[Path]:
    folder = Path(storage.address) / "memory" / "notes.lance" / kind
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)


BAD: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("thorough", [True, False])
def test_the_whole_pieces_of_a_damaged_table_stay(storage: Storage, what: str, thorough: bool) -> None:
    piece = pieces(storage)[1]
    BAD[what](piece)
    assert [one.key.rsplit("/", 1)[1] for one in health.cache_damages(storage.objects, thorough=thorough)] == [
        piece.name
    ]
    (said,) = health.heal(storage, thorough=thorough)
    assert "cache table notes is damaged" in said and piece.name in said and "its whole parts stay" in said
    found = notes(storage)
    assert sorted(found) == [*KEYS[:4], *KEYS[8:]] and all(value == key.encode() * 9 for key, value in found.items())
    assert health.cache_damages(storage.objects, thorough=True) == [] and health.heal(storage, thorough=True) == []
    BytesCache(storage.cache(), "notes").put({key: key.encode() * 9 for key in KEYS})
    assert sorted(notes(storage)) == KEYS and BytesCache(storage.cache(), "chunks").known(KEYS) == {KEYS[0]}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_manifest_costs_what_was_written_after_the_one_before(storage: Storage, what: str) -> None:
    head = min(pieces(storage, "_versions"), key=lambda path: path.name if path.suffix == ".manifest" else "9")
    BAD[what](head)
    if what == "removed":  # then the state before is the one that stands, and nobody can tell
        assert sorted(notes(storage)) == KEYS[:8]
        return
    assert health.heal(storage, thorough=False) and sorted(notes(storage)) == KEYS[:8]


def test_a_table_of_which_nothing_can_be_read_is_dropped_and_the_others_are_not(storage: Storage) -> None:
    for path in pieces(storage, "_versions"):
        path.write_bytes(b"")
    (said,) = health.heal(storage, thorough=False)
    assert "it is dropped" in said and notes(storage) == {}
    assert BytesCache(storage.cache(), "chunks").known(KEYS) == {KEYS[0]}


def test_a_damaged_list_is_written_anew_and_costs_nothing(storage: Storage) -> None:
    path = Path(storage.address) / health.LIST
    path.write_bytes(path.read_bytes().replace(b"notes", b"n0tes", 1))
    assert [one.key for one in health.cache_damages(storage.objects, thorough=False)] == [health.LIST]
    assert health.heal(storage, thorough=False) == [] or len(notes(storage)) == 12
    assert health.cache_damages(storage.objects, thorough=True) == [] and len(notes(storage)) == 12


def test_an_index_without_a_list_is_checked_as_far_as_its_manifests_tell(storage: Storage) -> None:
    storage.objects.delete([health.LIST])
    assert health.cache_damages(storage.objects, thorough=True) == []
    pieces(storage)[0].unlink()
    assert len(health.cache_damages(storage.objects, thorough=False)) == 1
    assert health.heal(storage, thorough=False) and sorted(notes(storage)) == KEYS[4:]
