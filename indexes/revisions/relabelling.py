"""Giving documents of a draft other labels without making their rows again.

Invariants:
- Nothing but labels and what follows from them changes: text, vectors, notes and offsets stay as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa

from indexes import rows as index_rows
from indexes.catalog import CatalogRow, stamp
from indexes.revisions.generation import Draft, Written


def relabel(
    draft: Draft, documents: Iterable[CatalogRow], labels: Mapping[str, Sequence[str]]
) -> tuple[list[CatalogRow], Written]:
    """Write the rows of documents again with other labels.

    Args:
        documents: as the catalog knows them; none of them may have been written in this draft.
        labels: of each document, by its id.

    Returns:
        The documents' catalog rows with their labels and stamps, still to be put; and what was written.
    """
    by_id = {row.document_id: row for row in documents}
    own = {name: sorted(set(labels[name])) for name in by_id}
    table = draft.table.of_documents(by_id)
    stamps: dict[str, list[tuple[str, str]]] = {name: [] for name in by_id}
    new_labels, digests = [], []
    fields = index_rows.ChunkRow.__struct_fields__
    for values in table.select([*fields, "provenance"]).to_pylist():
        changed = {name: values[name] for name in fields} | {"labels": own[values["document_id"]]}
        row = msgspec.convert(changed, index_rows.ChunkRow)
        digest = index_rows.row_digest(row, has_vector=bool(values["provenance"]))
        stamps[row.document_id].append((row.chunk_id, digest))
        new_labels.append(list(row.labels))
        digests.append(digest)
    for name, column in {"labels": new_labels, "row_digest": digests}.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(column, table.schema.field(name).type))
    written = draft.replace(by_id, table)
    return [
        msgspec.structs.replace(
            row,
            labels=own[name],
            stamp=stamp([one for one, _ in stamps[name]], [digest for _, digest in stamps[name]]),
        )
        for name, row in by_id.items()
    ], written
