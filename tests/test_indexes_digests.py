"""Sizes and digests of a revision's files: which files, what is read when, and what a flipped bit is called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lancedb
import msgspec
import pyarrow as pa
import pytest
from lancedb.index import BTree

from indexes.storage import digests, seal
from indexes.storage.digests import SMALL, FileDigest
from indexes.storage.manifest import paths, read_manifest
from indexes.storage.objects import FolderObjects
from indexes.storage.pointer import Damaged, Pointer, decoded, encoded
from indexes.storage.storage import Storage
from parsers.errors import StoreError

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def table(folder: Path) -> Any:
    """A table whose last version has two pieces, deleted rows and an index."""
    made = lancedb.connect(str(folder)).create_table("chunks", schema=SCHEMA)
    made.add(pa.table({"id": [f"{n:032x}" for n in range(300)], "n": range(300)}, schema=SCHEMA))
    made.delete("n < 5")
    made.create_index("id", config=BTree())
    made.add(pa.table({"id": ["f" * 32], "n": [300]}, schema=SCHEMA))
    return made


class Counting(FolderObjects):
    """Objects that note what was read of them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def blocks(self, key: str, start: int = 0) -> Iterator[bytes]:
        self.read.append(key)
        return super().blocks(key, start)


# --- which files


def test_a_version_of_a_table_is_just_the_files_that_it_cannot_be_read_without(tmp_path: Path) -> None:
    made = table(tmp_path)
    objects = FolderObjects(tmp_path)
    version = made.version
    found = digests.table_files(objects, "chunks.lance/", version)
    folders = sorted({key.split("/")[1] for key in found})
    assert folders == ["_deletions", "_indices", "_transactions", "_versions", "data"]
    assert sum(key.split("/")[1] == "data" for key in found) == 2
    assert all((tmp_path / key).stat().st_size == size for key, size in found.items())
    for path in (tmp_path / "chunks.lance").rglob("*"):  # without all others it still answers
        if path.is_file() and str(path.relative_to(tmp_path)) not in found:
            path.unlink()
    again = lancedb.connect(str(tmp_path)).open_table("chunks")
    assert again.version == version and again.count_rows() == 296
    assert again.search().where(f"id = '{7:032x}'").to_arrow()["n"].to_pylist() == [7]


@pytest.mark.parametrize("part", ["data", "_deletions", "_indices", "_versions"])
def test_a_version_that_lacks_a_file_is_not_recorded(tmp_path: Path, part: str) -> None:
    made = table(tmp_path)
    key = next(
        key for key in digests.table_files(FolderObjects(tmp_path), "chunks.lance/", made.version) if part in key
    )
    for path in (tmp_path / key).parent.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="is missing") as error:
        digests.table_files(FolderObjects(tmp_path), "chunks.lance/", made.version)
    assert part in error.value.message and "gristmill verify" in error.value.remedy


def test_no_manifest_is_read_wrongly(tmp_path: Path) -> None:
    made = table(tmp_path)
    data = (tmp_path / "chunks.lance" / paths(made.version)[0]).read_bytes()
    whole = read_manifest(data)
    assert whole.version == made.version and [one.number for one in whole.fragments] == [0, 1]
    for end in range(0, len(data), 7):
        with pytest.raises(ValueError, match="manifest"):
            read_manifest(data[:end])
    for place in range(len(data)):  # never another error than the one that is caught
        try:
            read_manifest(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        except ValueError:
            continue


# --- what is read


def test_a_file_that_stands_in_the_last_list_is_not_read_again(tmp_path: Path) -> None:
    made = table(tmp_path)
    objects = Counting(tmp_path)
    first = digests.record_digests(objects, digests.table_files(objects, "chunks.lance/", made.version), {})
    made.add(pa.table({"id": ["e" * 32], "n": [301]}, schema=SCHEMA))
    objects.read.clear()
    second = digests.record_digests(objects, digests.table_files(objects, "chunks.lance/", made.version), first)
    assert sorted(objects.read) == sorted(second.keys() - first.keys()) and len(objects.read) == 3
    assert not digests.damages(objects, second, thorough=True)


def test_what_tantivy_writes_anew_and_the_probes_are_read_each_time(tmp_path: Path) -> None:
    objects = Counting(tmp_path)
    names = ["lexical/00000001/meta.json", "lexical/00000001/.managed.json", "lexical/00000001/a.term", "lexical/x.idx"]
    keys = [*(f"generations/g1/{name}" for name in names), "probes/f"]
    for key in keys:
        objects.put(key, b"1234")
    first = digests.record_digests(objects, dict.fromkeys(keys, 4), {})
    objects.read.clear()
    moved = [key.replace("00000001", "00000002") for key in keys]
    for key in moved:
        objects.put(key, b"4321")
    second = digests.record_digests(objects, dict.fromkeys(moved, 4), first)
    assert sorted(objects.read) == sorted([moved[0], moved[1], "probes/f"])
    assert second[moved[2]] == first[keys[2]], "a segment's file of the revision before, in its own folder"


def test_opening_reads_small_files_and_the_ends_of_long_ones(tmp_path: Path) -> None:
    objects = Counting(tmp_path)
    small, long = b"x" * SMALL, bytes(range(256)) * (SMALL // 64)
    objects.put("data/small", small)
    objects.put("data/long", long)
    listed = {key: digests.digest_of(objects, key) for key in ("data/small", "data/long")}
    assert [bool(one.tail) for one in listed.values()] == [False, True]

    def problems(*, thorough: bool) -> list[str]:
        return [one.key for one in digests.damages(objects, listed, thorough=thorough)]

    assert problems(thorough=True) == []
    objects.put("data/long", b"y" + long[1:])
    assert (problems(thorough=False), problems(thorough=True)) == ([], ["data/long"]), "seen by verify alone"
    objects.put("data/long", long[:-9] + b"y" + long[-8:])
    assert problems(thorough=False) == ["data/long"]
    objects.put("data/long", long[:-1])
    objects.put("data/small", b"y" + small[1:])
    assert problems(thorough=False) == ["data/long", "data/small"]
    objects.delete(["data/long"])
    assert digests.damages(objects, listed, thorough=False)[0].problem == "is missing"


# --- the pointer and the records


def test_a_flipped_byte_anywhere_in_a_pointer_is_seen() -> None:
    pointer = Pointer(generation="g1-x", revision=7, files="a" * 64, held='"digest": ""', checks={"stores": "5 chunks"})
    data = encoded(pointer)
    assert msgspec.structs.replace(decoded("i", data, "pointer.json"), digest="") == pointer
    for place in range(len(data)):
        for bit in (0x01, 0x20, 0x80):
            bad = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            with pytest.raises(Damaged, match=r"pointer\.json") as error:
                decoded("i", bad, "pointer.json")
            assert "gristmill repair" in error.value.remedy
    for end in range(len(data)):
        with pytest.raises(Damaged):
            decoded("i", data[:end], "pointer.json")


def test_a_pointer_of_before_there_were_digests_is_read() -> None:
    old = msgspec.json.format(msgspec.json.encode({"generation": "g1-x", "revision": 3, "format": 3}), indent=2) + b"\n"
    assert decoded("i", old, "pointer.json").revision == 3
    with pytest.raises(StoreError, match="has format 4"):
        decoded("i", old.replace(b'"format": 3', b'"format": 4'), "pointer.json")
    with pytest.raises(ValueError, match="empty digest"):
        seal.seal(old)


def test_a_damaged_record_of_an_old_revision_stops_nothing_and_protects_what_it_may_be_of(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "index"))
    storage.create()
    for number in (1, 2, 3):
        storage.lexical_draft("g1-x" if number > 1 else "g0-x", number).mkdir(parents=True)
        storage.pointer()
        storage.publish(Pointer(generation="g1-x" if number > 1 else "g0-x", revision=number))
    assert [one.revision for one in storage.revisions()] == [1, 2, 3] and storage.unreadable() == {}
    for number in (1, 3):
        path = tmp_path / "index" / "revisions" / f"0000000{number}.json"
        path.write_bytes(path.read_bytes()[:40])
    assert [one.revision for one in storage.revisions()] == [2, 3], "the published one is known by the pointer"
    assert storage.unreadable().keys() == {1, 3}
    assert storage.generations() == set() and storage.drafts("g0-x", []) == [], "nothing takes them for leftovers"


def test_a_lost_pointer_is_not_taken_for_an_index_that_has_published_nothing(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "index"))
    storage.create()
    storage.publish(Pointer(generation="g1-x", revision=1))
    pointer = tmp_path / "index" / "pointer.json"
    pointer.unlink()
    assert storage.pointer() is None, "as a first build leaves it that was killed before its pointer"
    storage.publish(Pointer(generation="g1-x", revision=1))
    storage.publish(Pointer(generation="g1-x", revision=2))
    pointer.unlink()
    with pytest.raises(Damaged, match=r"pointer\.json is missing, and revision 2 has a record"):
        storage.pointer()


def test_a_list_that_is_not_the_one_that_was_recorded_is_named(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "index"))
    storage.create()
    made = storage.publish(Pointer(generation="g1-x", revision=1))
    assert storage.files(made) == {} and made.files
    storage.check(made)
    (tmp_path / "index" / "files" / "00000001.json").write_bytes(b'{"generation":"g1-x","revision":1,"files":{}} ')
    with pytest.raises(Damaged, match=r"files/00000001\.json has another content"):
        storage.files(made)
    assert FileDigest(1, "x") == msgspec.json.decode(b'[1,"x"]', type=FileDigest)
