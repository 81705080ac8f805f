"""A folder as a document store: what is listed, under which keys, in which order."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.sources import Source, SourceOptions, folder, open_source
from parsers.errors import SourceError


def write(root: Path, *keys: str) -> None:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_text(key)


def source(root: Path, include: tuple[str, ...] = ("*",), exclude: tuple[str, ...] = (), index: str = "") -> Source:
    return open_source(str(root), SourceOptions("default", include, exclude, [index] if index else []))


def keys(*arguments: object, **named: object) -> list[str]:
    return [entry.key for entry in source(*arguments, **named).objects()]  # type: ignore[arg-type]


def test_keys_are_paths_in_ascending_order(tmp_path: Path) -> None:
    write(tmp_path, "b.md", "a/z.md", "a b/%20 'x'.md", "a.md", "é.md", "e\u0301.md", "A.MD")
    listed = keys(tmp_path)
    assert listed == sorted(listed)
    assert set(listed) == {"b.md", "a/z.md", "a b/%20 'x'.md", "a.md", "é.md", "e\u0301.md", "A.MD"}
    for key in listed:
        found = source(tmp_path).fetch(key)
        assert found is not None and found.data == key.encode()


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


def problems(root: Path, **named: Any) -> dict[str, tuple[str, str]]:
    return {entry.key: (entry.status, entry.problem) for entry in source(root, **named).objects() if entry.problem}


def versions(root: Path) -> dict[str, str]:
    return {entry.key: entry.version for entry in source(root).objects()}


def test_links_in_a_circle_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "deep/b.md")
    (tmp_path / "self.md").symlink_to(tmp_path / "self.md")
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "deep/up").symlink_to("..")
    found = problems(tmp_path)
    assert keys(tmp_path) == ["a.md", "deep/b.md", "deep/up", "one", "self.md", "two"]
    for key in ("self.md", "one", "two"):
        assert found[key] == ("failed", "a link that leads in a circle")
    assert found["deep/up"][0] == "skipped" and "in the source folder itself" in found["deep/up"][1]
    (tmp_path / "index").symlink_to(tmp_path / "index")
    assert "in a circle" in problems(tmp_path, index=str(tmp_path / "deep/index"))["index"][1]


def test_folders_nested_1500_deep_are_listed_to_the_end(tmp_path: Path) -> None:
    write(tmp_path, "z.md")
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1_500):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        file = os.open("end.md", os.O_WRONLY | os.O_CREAT, dir_fd=here)
        os.write(file, b"The end.")
        os.close(file)
    finally:
        os.close(here)
    end = "d/" * 1_500 + "end.md"
    assert keys(tmp_path) == [end, "z.md"]
    found = source(tmp_path).fetch(end)
    assert found is not None and found.data == b"The end."
    remove_deep(tmp_path)


def remove_deep(root: Path) -> None:
    """``rmtree`` gives up on what is nested so deep."""
    while (root / "d/d").is_dir():
        (root / "d/d").rename(root / "e")
        shutil.rmtree(root / "d")
        (root / "e").rename(root / "d")


def test_a_path_that_is_too_long_is_one_named_folder(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    name = "d" * 200
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    ((key, (status, problem)),) = problems(tmp_path).items()
    assert status == "failed" and "longer than 4,095 bytes" in problem and key.startswith(f"{name}/{name}")
    assert keys(tmp_path)[0] == "a.md" and not problems(tmp_path, exclude=(key,))
    top = next(one for one in tmp_path.iterdir() if one.is_dir())
    for _ in range(25):
        inner = next(iter(top.iterdir()), None)
        if inner is not None:
            inner.rename(tmp_path / "inner")
        top.rmdir()
        if inner is not None:
            (tmp_path / "inner").rename(top)


def test_links_to_hidden_files_stay_hidden_and_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.md", ".secret.md", ".store/b.md", "deep/c.md")
    (tmp_path / "link.md").symlink_to(".secret.md")
    (tmp_path / "deep/link.md").symlink_to("../.store/b.md")
    (tmp_path / "chain.md").symlink_to("link.md")
    (tmp_path / "current").symlink_to(".store")
    (tmp_path / ".through").symlink_to("deep")
    (tmp_path / "shown.md").symlink_to(".through/c.md")  # by way of a hidden link to a file that is not hidden
    found = problems(tmp_path)
    assert set(found) == {"link.md", "deep/link.md", "chain.md", "current"}
    assert all(status == "failed" and "hidden" in problem for status, problem in found.values())
    assert "shown.md" in keys(tmp_path)


def test_a_linked_folder_is_named_wherever_it_leads(tmp_path: Path) -> None:
    write(tmp_path, "docs/v3/a.md", "docs/drafts/b.md", "outside/c.md", "docs/index/d.md")
    docs = tmp_path / "docs"
    (docs / "current").symlink_to("v3")
    (docs / "out").symlink_to("../outside")
    (docs / "work").symlink_to("drafts")
    (docs / "ours").symlink_to("index")
    named: dict[str, Any] = {"exclude": ("drafts/*",), "index": str(docs / "index")}
    found = problems(docs, **named)
    assert found["current"] == ("skipped", "a link to a folder is not followed; its files are read in v3/")
    assert found["out"][0] == "failed" and "leads out" in found["out"][1]
    assert found["work"][0] == "failed" and "excluded" in found["work"][1]
    assert "ours" not in found and keys(docs, **named) == ["current", "out", "v3/a.md", "work"]
    assert "current" in problems(docs, include=("*.md",)), "a folder's name need not match what its files must"
    assert not problems(docs, include=("v3/*",))
    for pattern in ("current", "current/*", "c*"):
        assert "current" not in problems(docs, exclude=(pattern,))


def test_names_that_are_no_text_are_named_each_under_a_key_of_its_own(tmp_path: Path) -> None:
    escaped = "caf\\xe9.md"
    for name in (b"caf\xe9.md", escaped.encode(), b"\\xff\xff", b"\xff\\xff"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"x")
    (tmp_path / os.fsdecode(b"d\xe9")).mkdir()
    (tmp_path / os.fsdecode(b"d\xe9/a.md")).write_bytes(b"x")
    listed = keys(tmp_path)
    assert listed == sorted(set(listed)) and len(listed) == 5
    found = problems(tmp_path)
    assert set(found) == set(listed) - {escaped} and all("UTF-8" in problem for _, problem in found.values())
    assert "d\\xe9" in listed, "a folder is named once, whatever it holds"
    assert set(problems(tmp_path, include=("*.md",))) == {"caf\\xe9 (2).md", "d\\xe9"}


def test_a_name_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_bytes(b"x")
    (entry,) = source(tmp_path).objects()
    assert entry.problem and entry.key == "caf\\xe9.md"


def test_what_is_gone_is_none(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    assert source(tmp_path).fetch("b.md") is None


@pytest.mark.parametrize("address", ["nowhere", "ftp://host/docs", "s3://"])
def test_a_store_that_is_not_there(tmp_path: Path, address: str) -> None:
    with pytest.raises(SourceError):
        open_source(address if "://" in address else str(tmp_path / address))


def test_a_root_that_is_no_text_or_hidden_is_read(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9") / ".docs"
    write(root, "a.md")
    assert keys(root) == ["a.md"] and not problems(root)


def test_a_file_that_took_anothers_place_has_another_version(tmp_path: Path) -> None:
    """Whatever keeps size and time: each changes the inode or the change time."""
    write(tmp_path, "a.md", "b.md")
    for name in ("a.md", "b.md"):
        os.utime(tmp_path / name, (10**9, 10**9))

    def moved() -> None:
        (tmp_path / "b.md").rename(tmp_path / "a.md")

    def copied() -> None:
        (tmp_path / "a.md").write_text("c.md")
        os.utime(tmp_path / "a.md", (10**9, 10**9))

    def exchanged() -> None:
        shutil.copy2(tmp_path / "a.md", tmp_path / "new")
        (tmp_path / "new").rename(tmp_path / "a.md")

    for change in (moved, copied, exchanged):
        before = versions(tmp_path)
        size, changed, *_ = before["a.md"].split(":")
        time.sleep(0.03)
        change()
        after = versions(tmp_path)
        assert after["a.md"].split(":")[:2] == [size, changed] and after["a.md"] != before["a.md"]


def test_a_file_made_readable_has_another_version(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    before = versions(tmp_path)
    time.sleep(0.03)
    (tmp_path / "a.md").chmod(0o600)
    assert versions(tmp_path) != before


def test_a_read_gives_the_version_that_was_read(tmp_path: Path) -> None:
    write(tmp_path, "a.md")
    listed = versions(tmp_path)
    time.sleep(0.03)
    write(tmp_path, "b.md")
    (tmp_path / "b.md").rename(tmp_path / "a.md")
    found = source(tmp_path).fetch("a.md")
    assert found is not None and found.data == b"b.md" and found.version != listed["a.md"]
    assert found.version == versions(tmp_path)["a.md"]


def while_reading(monkeypatch: pytest.MonkeyPatch, change: Callable[[int], None]) -> None:
    """Have something happen between the bytes and the second look at a file, at each read."""
    real, calls = os.fstat, []

    def fstat(descriptor: int) -> os.stat_result:
        calls.append(1)
        if not len(calls) % 2:
            change(len(calls) // 2)
        return real(descriptor)

    monkeypatch.setattr(folder.os, "fstat", fstat)


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.md")
    time.sleep(0.03)
    path = tmp_path / "a.md"
    monkeypatch.setattr(folder, "TICK_NS", 0)  # so that each read looks twice

    def once(number: int) -> None:
        if number == 1:
            path.write_text("A new and longer text.")

    while_reading(monkeypatch, once)
    found = source(tmp_path).fetch("a.md")
    assert found is not None and found.data == b"A new and longer text."

    while_reading(monkeypatch, lambda number: path.write_text("x" * (number + 30)) and None)
    with pytest.raises(OSError, match="changed while it was read, 3 times"):
        source(tmp_path).fetch("a.md")


@pytest.mark.parametrize(("part", "tick"), [(123_456_789, 20_000_000), (0, 2_000_000_000)])
def test_a_read_waits_until_an_edit_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, tick: int
) -> None:
    """An edit right after the read, in the same tick of the file system's clock, has the same times."""
    write(tmp_path, "a.md")
    status = (tmp_path / "a.md").stat()
    stamped = status.st_ctime_ns // 10**9 * 10**9 + part
    slept: list[float] = []
    clock = [stamped + tick // 4]

    class Stamped:
        st_mode, st_size, st_mtime_ns = status.st_mode, status.st_size, status.st_mtime_ns
        st_ctime_ns, st_ino = stamped, status.st_ino

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += round(seconds * 1e9)

    monkeypatch.setattr(folder.os, "fstat", lambda descriptor: Stamped)
    monkeypatch.setattr(folder.time, "time_ns", lambda: clock[0])
    monkeypatch.setattr(folder.time, "sleep", sleep)
    found = source(tmp_path).fetch("a.md")
    assert found is not None and not found.version.endswith("?")
    assert slept == [pytest.approx(tick * 3 / 4 / 1e9)]
    clock[0] = stamped - 3_600 * 10**9
    ahead = source(tmp_path).fetch("a.md")
    assert ahead is not None and ahead.version == found.version + "?" and len(slept) == 1, "a clock ahead of ours"


def test_what_took_a_files_place_is_not_read(tmp_path: Path) -> None:
    """Between the listing and the reading: a link that leads out, a hidden file, a pipe, a folder."""
    write(tmp_path, "docs/a.md", "docs/.hidden.md", "outside.md")
    docs = tmp_path / "docs"
    place = docs / "a.md"
    for target, problem in (("../outside.md", "leads out"), (".hidden.md", "hidden")):
        place.unlink()
        place.symlink_to(target)
        with pytest.raises(OSError, match=problem):
            source(docs).fetch("a.md")
    place.unlink()
    os.mkfifo(place)
    done = threading.Timer(20, os._exit, [1])  # a read that waits for a writer ends the tests, not the night
    done.start()
    with pytest.raises(OSError, match="not an ordinary file"):
        source(docs).fetch("a.md")
    done.cancel()
    place.unlink()
    place.mkdir()
    with pytest.raises(OSError):
        source(docs).fetch("a.md")


def test_a_folder_removed_while_the_source_is_listed_ends_no_listing(tmp_path: Path) -> None:
    write(tmp_path, "a/x.md", "b/y.md", "c.md")
    listing = source(tmp_path).objects()
    assert next(listing).key == "a/x.md"
    shutil.rmtree(tmp_path / "b")
    assert [one.key for one in listing] == ["c.md"]
    write(tmp_path, "d/z.md")
    listing = source(tmp_path).objects()
    next(listing)
    shutil.rmtree(tmp_path)
    with pytest.raises(SourceError, match="cannot list"):
        list(listing)


def test_a_look_at_one_key_says_what_a_listing_says(tmp_path: Path) -> None:
    write(tmp_path / "docs", "a/b.md", "drafts/c.md", "a/.hidden.md", "top.md")
    write(tmp_path, "outside/x.md")
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "docs" / "out.md").symlink_to(tmp_path / "outside" / "x.md")
    found = source(tmp_path / "docs", exclude=("drafts/*",))
    listed = {one.key: one for one in found.objects()}
    for key in ("a/b.md", "top.md", "link", "out.md"):
        assert found.look(key) == listed[key]
    for key in ("a", "a/", "", "/", "a//b.md", "../outside/x.md", "a/../top.md", ".", "drafts/c.md", "a/.hidden.md"):
        assert found.look(key) is None, key
    for key in ("link/x.md", "gone.md", "a/gone.md", "top.md/x", "a\0b", "x" * 5_000):
        assert found.look(key) is None, key
