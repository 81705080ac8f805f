"""Going back to a kept revision.

Kept here: what answers afterwards is the old revision without the documents that have gone since and with the labels
that hold today; so nobody sees again what was taken away from them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from indexes import rows as index_rows
from indexes.catalog import Row, stamp
from indexes.generation import Draft, Model, published_catalog
from indexes.storage import Pointer, Storage

AT_ONCE = 500  # documents whose rows are read at a time


def roll_back(storage: Storage, published: Pointer, target: Pointer) -> Draft:
    """The next revision, with what a kept one held; to be finished, checked and published.

    Args:
        storage: held by the caller.
        target: the revision to go back to.
    """
    draft = Draft(storage, published, Model.of(target), base=target)
    today = published_catalog(storage, _today(storage, published)).columns(["document_id", "labels"])
    labels = dict(zip(today["document_id"].to_pylist(), today["labels"].to_pylist(), strict=True))
    old = published_catalog(storage, target)
    then = old.columns(["document_id", "labels"])
    gone, relabelled = [], []
    for name, before in zip(then["document_id"].to_pylist(), then["labels"].to_pylist(), strict=True):
        if name not in labels:
            gone.append(name)
        elif labels[name] != before:
            relabelled.append(name)
    draft.lexical  # noqa: B018 - taken from the target, where nothing else is to be written
    for start in range(0, len(gone), AT_ONCE):
        draft.remove(old.named(gone[start : start + AT_ONCE]).values())
    for start in range(0, len(relabelled), AT_ONCE):
        _relabel(draft, old.named(relabelled[start : start + AT_ONCE]).values(), labels)
    return draft


def _today(storage: Storage, published: Pointer) -> Pointer:
    """The revision that says what is there today: after a rollback, the one that was gone back from."""
    return next((one for one in reversed(storage.revisions()) if one.made_by != "rollback"), published)


def _relabel(draft: Draft, documents: Iterable[Row], labels: dict[str, list[str]]) -> None:
    """Give documents other labels, in their rows and in the catalog."""
    by_id = {row.document_id: row for row in documents}
    table = draft.table.of_documents(by_id)
    stamps: dict[str, list[tuple[str, str]]] = {name: [] for name in by_id}
    new_labels, digests = [], []
    fields = index_rows.Row.__struct_fields__
    for values in table.select([*fields, "provenance"]).to_pylist():
        own = sorted(set(labels[values["document_id"]]))
        row = msgspec.convert({name: values[name] for name in fields} | {"labels": own}, index_rows.Row)
        digest = index_rows.row_digest(row, has_vector=bool(values["provenance"]))
        stamps[row.document_id].append((row.chunk_id, digest))
        new_labels.append(own)
        digests.append(digest)
    changed = {"labels": new_labels, "row_digest": digests}
    for name, column in changed.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(column, table.schema.field(name).type))
    draft.replace(by_id, table)
    draft.catalog.put(
        msgspec.structs.replace(
            row,
            labels=labels[name],
            recipe="",  # the labels of the settings are asked again by the next build
            stamp=stamp([one for one, _ in stamps[name]], [digest for _, digest in stamps[name]]),
        )
        for name, row in by_id.items()
    )
