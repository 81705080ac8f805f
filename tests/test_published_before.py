"""An index that an earlier version of the program published opens, verifies and builds.

``data/published_before.tar.gz`` holds ``docs/`` and ``index/``: two revisions, made with the ``letters`` embedder by
the program as it was before file digests, skipped documents and file versions with change times.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from comparing import rows
from conftest import Workspace

from flows.maintenance.kept_revisions import verify_index

ARCHIVE = Path(__file__).parent / "data" / "published_before.tar.gz"
KEYS = {"guide.md", "labelled.md", "page.html", "plain.txt", "stock.docx"}


@pytest.fixture
def before(workspace: Workspace) -> Workspace:
    """A workspace with the index of the archive and the documents it was made from."""
    shutil.rmtree(workspace.docs)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(workspace.docs.parent, filter="data")
    return workspace


def faults(workspace: Workspace) -> list[str]:
    revisions = verify_index(workspace.settings())["revisions"]
    return [finding["what"] for one in revisions for finding in one["findings"] if finding["fault"]]


def test_it_verifies(before: Workspace) -> None:
    assert not [fault for fault in faults(before) if "BM25 terms were made by" not in fault]


def test_it_builds_and_answers(before: Workspace) -> None:
    before.build()
    assert {row["key"] for row in rows(before)} == KEYS
    assert before.search("ERR_TIMEOUT_42")[0].key == "plain.txt"
    assert before.search("hoses rack", "bm25")[0].key == "stock.docx"
    assert {row["key"] for row in rows(before) if "internal" in row["labels"]} == {"labelled.md"}
    assert faults(before) == []


def test_what_changed_since_is_found(before: Workspace) -> None:
    before.write("plain.txt", "ERR_TIMEOUT_43 means that the line is busy.\n")
    (before.docs / "page.html").unlink()
    before.build(allow_deletes=True)
    assert {row["key"] for row in rows(before)} == KEYS - {"page.html"}
    assert before.search("ERR_TIMEOUT_43")[0].key == "plain.txt"


def test_a_second_build_has_nothing_to_do(before: Workspace) -> None:
    before.build()
    second = before.build()
    assert not second["published"]
    assert not any(second["work"].values())
