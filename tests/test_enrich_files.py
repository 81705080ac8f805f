"""Files that appear whole or not at all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from enrich import files
from enrich.files import atomic_file, atomic_write

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("parsers", "chunker", "enrich", "indexes", "flows")


def test_a_write_replaces_the_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    atomic_write(path, b"old")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new" and [one.name for one in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["sync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "sync":
        monkeypatch.setattr(files, "sync", fails)
    with pytest.raises(OSError, match="No space"), atomic_file(path, fails) as temporary:
        temporary.write_bytes(b"half")
    assert path.read_bytes() == b"old" and [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(files, "sync", lambda path: steps.append("folder" if path.is_dir() else "file"))

    def appear(temporary: Path, path: Path) -> None:
        steps.append("replace")
        temporary.replace(path)

    with atomic_file(tmp_path / "file", appear) as place:
        place.write_bytes(b"x")
    assert steps == ["file", "replace", "folder"]


def test_a_link_is_followed_and_a_device_is_written_directly(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    atomic_write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"
    atomic_write(Path("/dev/null"), b"gone")
    assert Path("/dev/null").is_char_device()


def test_there_is_one_recipe_for_it() -> None:
    """No other module moves a temporary file into place, or makes one of its own."""
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute | ast.Name):
                    name = node.attr if isinstance(node, ast.Attribute) else node.id
                    if name in ("mkstemp", "NamedTemporaryFile", "fsync"):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
                # `str.replace` takes two arguments, `Path.replace` one.
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
                    owner = ast.unparse(node.func.value)
                    if (len(node.args) == 1 and not node.keywords) or owner == "os":
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    allowed = [one for one in found if one.startswith(("enrich/files.py", "indexes/storage/objects.py"))]
    assert sorted(set(found) - set(allowed)) == []
    assert len(allowed) >= 2, "the search finds what it looks for"
