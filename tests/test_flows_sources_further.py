"""A document store that another package brings: installed as a package is, found by its entry point, built from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from comparing import rows
from conftest import Workspace

from flows.sources import open_source
from parsers.errors import SourceError

PACKAGE = """
from hashlib import sha256
from flows.sources import Fetched, Object

PAGES = {"a.md": b"# One\\n\\nThe valve opens.\\n", "b.md": b"# Two\\n\\nThe seal wears out.\\n"}

class Wiki:
    trusted, parallel = True, 2

    def __init__(self, address, options):
        self.address = self.place = address
        self.name = options.name

    def objects(self):
        return (self.look(key) for key in sorted(PAGES))

    def look(self, key):
        return Object(key, self._version(key), len(PAGES[key])) if key in PAGES else None

    def fetch(self, key, version=""):
        return Fetched(PAGES[key], self._version(key), self.labels(key)) if key in PAGES else None

    def labels(self, key, version=""):
        return ("wiki",) if key == "a.md" else ()

    def _version(self, key):
        return sha256(PAGES[key]).hexdigest()

def broken(address, options):
    raise RuntimeError("no such host")
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package with these entry points, as pip does."""

    def installed(entry_points: str) -> None:
        site = tmp_path / "site"
        info = site / f"gristmill_wiki_{len(list(tmp_path.glob('site/*')))}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "gristmill_wiki.py").write_text(PACKAGE)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {info.name.partition('-')[0]}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gristmill.sources]\n{entry_points}\n")
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))

    return installed


def test_a_package_serves_its_scheme(workspace: Workspace, install: Install) -> None:
    install("wiki = gristmill_wiki:Wiki")
    report = workspace.build(source="wiki://host/space")
    assert report["published"] and report["documents"]["added"] == 2
    assert {row["key"]: row["labels"] for row in rows(workspace)} == {"a.md": ["wiki"], "b.md": []}
    assert workspace.build(source="wiki://host/space")["work"]["fetched"] == 0


def test_what_is_wrong_with_a_package_is_said(install: Install) -> None:
    install("wiki = gristmill_wiki:broken\nbare = builtins:dict")
    with pytest.raises(SourceError, match=r"gristmill_wiki:broken failed with RuntimeError: no such host"):
        open_source("wiki://host/space")
    with pytest.raises(SourceError, match=r"failed with|lacks"):
        open_source("bare://x")
    with pytest.raises(SourceError, match=r"no installed package serves ftp:// .*") as raised:
        open_source("ftp://host/docs")
    assert "wiki://" in raised.value.remedy
    install("wiki = gristmill_wiki:Wiki")
    with pytest.raises(SourceError, match="all serve wiki://"):
        open_source("wiki://host/space")
