"""A folder as a document store: what is listed, under which keys, in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.sources import Source, open_source
from parsers.errors import SourceError


def write(root: Path, *keys: str) -> None:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_text(key)


def source(root: Path, include: tuple[str, ...] = ("*",), exclude: tuple[str, ...] = (), index: str = "") -> Source:
    return open_source(str(root), "default", list(include), list(exclude), [index] if index else [])


def keys(*arguments: object, **named: object) -> list[str]:
    return [entry.key for entry in source(*arguments, **named).objects()]  # type: ignore[arg-type]


def test_keys_are_paths_in_ascending_order(tmp_path: Path) -> None:
    write(tmp_path, "b.md", "a/z.md", "a b/%20 'x'.md", "a.md", "é.md", "e\u0301.md", "A.MD")
    listed = keys(tmp_path)
    assert listed == sorted(listed)
    assert set(listed) == {"b.md", "a/z.md", "a b/%20 'x'.md", "a.md", "é.md", "e\u0301.md", "A.MD"}
    for key in listed:
        assert source(tmp_path).fetch(key) == key.encode()


def test_hidden_names_and_the_index_are_no_documents(tmp_path: Path) -> None:
    write(tmp_path, "a.md", ".git/config", ".hidden.md", "x/.cache/y.md", "index/pointer.json", "deep/index/a.md")
    assert keys(tmp_path, index=str(tmp_path / "index")) == ["a.md", "deep/index/a.md"]


def test_patterns(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "drafts/b.md", "drafts/deep/c.md", "d.txt")
    assert keys(tmp_path, exclude=("drafts/*",)) == ["a.md", "d.txt"]
    assert keys(tmp_path, include=("*.md",), exclude=("drafts/deep/*",)) == ["a.md", "drafts/b.md"]


def test_versions_move_with_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    (before,) = source(tmp_path).objects()
    os.utime(tmp_path / "a.md", (1, 1))
    (after,) = source(tmp_path).objects()
    assert before.version != after.version and before.size == after.size == 4


def test_links_out_of_the_folder_are_named_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "docs/a.md", "outside.md")
    (tmp_path / "docs/out.md").symlink_to(tmp_path / "outside.md")
    (tmp_path / "docs/in.md").symlink_to(tmp_path / "docs/a.md")
    (tmp_path / "docs/nowhere.md").symlink_to(tmp_path / "docs/gone.md")
    (tmp_path / "docs/loop").symlink_to(tmp_path / "docs")
    found = {entry.key: entry.problem for entry in source(tmp_path / "docs").objects()}
    assert found["a.md"] == found["in.md"] == ""
    assert "leads out" in found["out.md"] and "leads nowhere" in found["nowhere.md"]


def test_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_bytes(b"x")
    (entry,) = source(tmp_path).objects()
    assert entry.problem and entry.key == "caf\\xe9.md"


def test_what_is_gone_is_none(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    assert source(tmp_path).fetch("b.md") is None


@pytest.mark.parametrize("address", ["nowhere", "s3://bucket/docs"])
def test_a_store_that_is_not_there(tmp_path: Path, address: str) -> None:
    with pytest.raises(SourceError):
        open_source(address if "://" in address else str(tmp_path / address), "default", ["*"], [])
