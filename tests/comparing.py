"""What a published index holds, and whether that is what a clean build gives: invariant 6 of the design.

Equal means: rows without their vectors exactly, vectors within 1e-5, the catalog with the stored texts, and the hits of
BM25. A document held back by a failure is compared with its last good bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import Workspace

from flows.searching import published
from indexes.cache.store import BytesCache
from indexes.revisions.generation import open_stores, published_catalog
from indexes.rows import schema
from indexes.storage.storage import Pointer, Storage
from parsers.document import Document

EVERYTHING = 10_000  # hits: more than any of these indexes holds


def rows(workspace: Workspace) -> list[dict[str, Any]]:
    """Every row of the published revision, vectors too, by chunk id."""
    return rows_of(*published(workspace.settings()))


def rows_of(storage: Storage, pointer: Pointer) -> list[dict[str, Any]]:
    """Every row of a revision, vectors too, by chunk id; its catalog and both its stores hold the same ids."""
    table, lexical = open_stores(storage, pointer)
    found = [row for batch in table.rows(schema(pointer.dimension).names) for row in batch.to_pylist()]
    ids = sorted(name for batch in lexical.stamps() for name in batch["chunk_id"].to_pylist())
    meant = sorted(name for row in published_catalog(storage, pointer).rows() for name in row.chunk_ids)
    assert ids == meant == sorted(row["chunk_id"] for row in found)
    return sorted(found, key=lambda row: str(row["chunk_id"]))


def catalog(workspace: Workspace) -> dict[str, tuple[Any, ...]]:
    """What the published catalog says of each document, with its stored text, by key."""
    storage, pointer = published(workspace.settings())
    documents = BytesCache(storage.cache(), "documents")
    found = {}
    for row in published_catalog(storage, pointer).rows():
        text = Document.decode(documents.get([row.document])[row.document]).text if row.document else ""
        found[row.key] = (row.document_id, row.status, row.title, row.labels, row.chunk_ids, row.stamp, text)
    return found


def bm25(workspace: Workspace, query: str) -> list[tuple[str, float]]:
    """All that the published BM25 index finds, with their scores, best first."""
    _, lexical = open_stores(*published(workspace.settings()))
    return lexical.search(query, EVERYTHING)


def without_vector(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "vector"}


def clean_build(workspace: Workspace, docs: Path | None = None) -> Workspace:
    """The index that a build from nothing gives for a folder, by default the workspace's own."""
    clean = Workspace(docs or workspace.docs, workspace.index.with_name("clean"), workspace.models, workspace.flags)
    shutil.rmtree(clean.index, ignore_errors=True)
    clean.build(index=str(clean.index))
    clean.flags = workspace.flags | {"index": str(clean.index)}
    return clean


def assert_equals_a_clean_build(
    workspace: Workspace, docs: Path | None = None, held: Collection[str] = (), queries: Iterable[str] = ()
) -> Workspace:
    """The published revision against one built from nothing beside it: rows, catalog, texts, what BM25 finds.

    Args:
        docs: holds what the index is to hold, the last good bytes of documents that are held back; by default the
            workspace's own folder.
        held: keys of those documents.
        queries: find the same rows in both; their scores may differ while deleted rows count in the statistics.

    Returns:
        The clean index.
    """
    clean = clean_build(workspace, docs)
    ours, theirs = rows(workspace), rows(clean)
    assert [without_vector(row) for row in ours] == [without_vector(row) for row in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert (one["vector"] is None) == (other["vector"] is None)
        assert one["vector"] is None or one["vector"] == pytest.approx(other["vector"], abs=1e-5)
    standing, meant = catalog(workspace), catalog(clean)
    for key in set(held) & standing.keys():
        _, status, _, _, chunk_ids, _, _ = standing[key]
        assert status in ("failed", "skipped")
        if key in meant:
            standing[key] = (standing[key][0], meant[key][1], *standing[key][2:])
        else:
            assert not chunk_ids
            del standing[key]
    assert standing == meant
    for query in queries:
        ours, theirs = bm25(workspace, query), bm25(clean, query)
        assert {name for name, _ in ours} == {name for name, _ in theirs}, query
    return clean
