"""Going back to a kept revision.

Invariants:
- What answers afterwards is the old revision without the documents that have gone since and with the labels that hold
  today.
- So nobody sees again what was taken away from them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from indexes.catalog import CatalogRow
from indexes.revisions.generation import Draft, IndexModel, published_catalog
from indexes.revisions.relabelling import relabel
from indexes.storage.storage import Pointer, Storage

_AT_ONCE = 500  # documents whose rows are read at a time


def roll_back(storage: Storage, published: Pointer, target: Pointer) -> Draft:
    """Return the next revision, with what a kept one held; to be finished, checked and published.

    Args:
        storage: held by the caller.
        target: the revision to go back to.
    """
    draft = Draft(storage, published, IndexModel.of(target), base=target)
    today = published_catalog(storage, _today(storage, published)).columns(["document_id", "labels", "stated"])
    stated = dict(zip(today["document_id"].to_pylist(), today["stated"].to_pylist(), strict=True))
    stating = {name for name, own in stated.items() if own}
    labels = dict(zip(today["document_id"].to_pylist(), today["labels"].to_pylist(), strict=True))
    old = published_catalog(storage, target)
    then = old.columns(["document_id", "labels", "stated"])
    gone, relabelled = [], []
    columns = (then[name].to_pylist() for name in ("document_id", "labels", "stated"))
    for name, before, stated_then in zip(*columns, strict=True):
        if name not in labels:
            gone.append(name)
        elif labels[name] != before or (stated[name] or []) != (stated_then or []):
            relabelled.append(name)
    draft.lexical  # noqa: B018 - taken from the target, where nothing else is to be written
    for start in range(0, len(gone), _AT_ONCE):
        draft.remove(old.named(gone[start : start + _AT_ONCE]).values())
    for start in range(0, len(relabelled), _AT_ONCE):
        _relabel(draft, old.named(relabelled[start : start + _AT_ONCE]).values(), labels, stating)
    return draft


def _today(storage: Storage, published: Pointer) -> Pointer:
    """Return the revision that says what is there today: after a rollback, the one that was gone back from."""
    return next((one for one in reversed(storage.revisions()) if one.made_by != "rollback"), published)


def _relabel(draft: Draft, documents: Iterable[CatalogRow], labels: dict[str, list[str]], stating: set[str]) -> None:
    """Give documents other labels, in their rows and in the catalog.

    Args:
        stating: documents of which the source states labels today, which the next build then asks again.
    """
    found, _ = relabel(draft, documents, labels)
    # Without a recipe, so that the next build asks the labels of the settings again.
    for row in found:
        asked = row.stated or row.document_id in stating
        draft.catalog.put([msgspec.structs.replace(row, recipe="", version="" if asked else row.version)])
