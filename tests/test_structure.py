"""The shape of the repository and the form of its language, as rules that fail when they are broken."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("parsers", "chunker", "enrich", "indexes", "flows")
MOST_MODULES = 14  # in a folder, its __init__ not counted
CONTRACTS = {"parse"}  # the function that every adapter has
# Homemade words and riddles, and what to say instead.
PHRASES = {
    r"Kept here": "Invariants:, as bullets",
    r"\bworkshop\b(?! after)": "resources, state",
    r"\bmemory key\b": "cache key",
    r"is not remembered any more": "is no longer cached",
    r"a defect of ours": "internal error",
    r"\bstrangers?\b to set right": "rows of unknown documents",
    r"to be said before anything else": "call before any other write",
    r"^What of its": "name the setting and what it does",
}


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_holds_more_modules_than_one_can_see(package: str) -> None:
    folders: dict[Path, int] = defaultdict(int)
    for path in (ROOT / package).rglob("*.py"):
        folders[path.parent.relative_to(ROOT)] += path.name != "__init__.py"
    crowded = {str(folder): count for folder, count in folders.items() if count > MOST_MODULES}
    assert folders and crowded == {}


def test_a_public_name_is_defined_once() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                where[name].append(str(path.relative_to(ROOT)))
    twice = {
        name: found
        for name, found in where.items()
        if len(found) > 1 and not name.startswith("_") and name not in CONTRACTS
    }
    assert twice == {}


def test_docstrings_avoid_homemade_words() -> None:
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found += [
                    f"{path.relative_to(ROOT)}: {pattern}: say {instead}"
                    for pattern, instead in PHRASES.items()
                    if re.search(pattern, text)
                ]
    assert found == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
