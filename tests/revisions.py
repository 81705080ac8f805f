"""Revisions written without a build: documents of one chunk each, with vectors that a test can make itself.

As a program it does one step on an index, for tests that run it under another clock: ``build FOLDER NUMBER``, ``sweep
FOLDER KEEP GRACE_HOURS``, ``check FOLDER``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from chunker.chunk import Chunk, document_id
from indexes.catalog import CatalogRow, stamp
from indexes.revisions import retention
from indexes.revisions.generation import Draft, IndexModel, open_stores, published_catalog
from indexes.rows import Vector, document_rows, to_table
from indexes.storage.storage import Pointer, Storage

DIMENSION = 8
MODEL = IndexModel("some", "f" * 64, DIMENSION, "some")


def vector_of(text: str) -> np.ndarray:
    return np.random.default_rng(sum(text.encode())).normal(size=DIMENSION).astype(np.float32)


def change(draft: Draft, texts: Mapping[str, str]) -> None:
    """Write these texts by key, in place of what stands there."""
    rows, vectors, catalog = [], [], []
    for key, text in texts.items():
        name = document_id("default", key)
        own = document_rows(
            name,
            key,
            [Chunk(start=0, end=len(text), text=text)],
            notes=[""],
            locators=[""],
            unknown_tokens=[0],
            labels=[],
        )
        rows += own
        vectors += [Vector(vector_of(one.text), "some") for one in own]
        table = to_table(own, vectors[-len(own) :], DIMENSION)
        catalog.append(
            CatalogRow(
                document_id=name,
                source="default",
                key=key,
                version="1",
                tokens=len(text),
                chunk_ids=[one.chunk_id for one in own],
                stamp=stamp(table["chunk_id"].to_pylist(), table["row_digest"].to_pylist()),
            )
        )
    draft.replace([row.document_id for row in catalog], to_table(rows, vectors, DIMENSION))
    draft.catalog.put(catalog)


def publish(draft: Draft, **more: Any) -> Pointer:
    draft.finish()
    checks = {"stores": draft.check_stores(), "fingerprint": draft.check_fingerprint(["some"])}
    given = {"sources": {"default": "here"}, "runtimes": {"some": {}}, "checks": checks, "made_by": "build"}
    return draft.publish(**(given | more))


def write(storage: Storage, texts: Mapping[str, str], gone: tuple[str, ...] = ()) -> Pointer:
    """The next revision: some texts changed, some documents gone; as a build does it, the locking included."""
    with storage.lock():
        pointer = storage.pointer()
        draft = Draft(storage, pointer, MODEL)
        try:
            if texts:
                change(draft, texts)
            if gone:
                draft.remove(draft.catalog.named(document_id("default", key) for key in gone).values())
            return publish(draft)
        finally:
            draft.close()


def sweep(storage: Storage, keep: int, grace: timedelta) -> list[int]:
    with storage.lock():
        gone = retention.retire(storage, keep=keep, grace=grace)
        retention.clear_leftovers(storage)
        retention.prune(storage)
        retention.sweep_memory(storage, grace=grace)
        return [one.revision for one in gone]


def held(storage: Storage, pointer: Pointer) -> dict[str, str]:
    """Text by key of a revision; all its stores agree on it, and it can be searched."""
    table, lexical = open_stores(storage, pointer)
    found = {row["key"]: row["text"] for batch in table.rows(["key", "text"]) for row in batch.to_pylist()}
    assert lexical.count == table.count() == len(found) == len(published_catalog(storage, pointer))
    assert found.keys() == {row.key for row in published_catalog(storage, pointer).rows()}
    if found:
        assert table.dense(np.ones(DIMENSION, np.float32), 3)
    return found


def main(do: str, folder: str, *given: str) -> None:
    storage = Storage(folder)
    if do == "build":
        storage.create()
        write(storage, {"same.md": "stays", "moves.md": f"text {given[0]}"})
    elif do == "sweep":
        print(json.dumps(sweep(storage, int(given[0]), timedelta(hours=float(given[1])))))
    else:
        print(json.dumps({one.revision: held(storage, one) for one in storage.revisions()}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main(*sys.argv[1:])
