"""The pointer and the records of revisions: what a revision consists of and what made it.

Invariants:
- Both are sealed: a flipped bit in one is an error, never another revision.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from indexes.storage import seal
from parsers.errors import StoreError

_FORMAT: Final = 3
REPAIR: Final = "Run `gristmill verify` to see all that is damaged, and `gristmill repair` to mend what can be mended."


class Damaged(StoreError):
    """A file of the index is missing, or not what it was when it was written."""


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """One revision, published or to be: what it consists of and what made it.

    Attributes:
        generation: its name.
        revision: 1-based; rises by one with each revision of the index. 0 where nothing is published yet.
        chunks_version, documents_version: exact LanceDB versions.
        embedder: name of the model.
        embedder_fingerprint: of the model that made every vector of this generation.
        dimension: of the vectors.
        ruler: name of the model whose tokenizer the chunks were counted with.
        analysis: fingerprint of the rules that made BM25's terms.
        sources: names of the document stores, with the address each was last read from.
        counts: ``documents``, ``chunks``, ``vectors``, ``tokens``.
        stamp: of all rows, see :func:`indexes.catalog.stamp`; empty where none was recorded.
        runtimes: provenance of the vectors, by its id.
        made_by: ``build``, ``reindex``, ``rollback``, ``repair`` or ``purge``.
        held: why nothing may be published until it is released; empty where nothing is held.
        rates: seconds a piece of work took, as last measured: to ``fetch``, ``parse`` and ``chunk`` a document, to
            ``note`` and ``embed`` a text, to ``write`` a row.
        token: of the lease under which the pointer was last written; 0 on disk.
        created: UTC time in ISO 8601.
        checks: the gates it passed, with their figures.
        files: SHA-256 of the list of its files; empty where none was recorded.
        digest: see :mod:`indexes.storage.seal`; empty where ``files`` is.
    """

    generation: str = ""
    revision: int = 0
    chunks_version: int = 0
    documents_version: int = 0
    embedder: str = ""
    embedder_fingerprint: str = ""
    dimension: int = 0
    ruler: str = ""
    analysis: str = ""
    sources: dict[str, str] = {}
    counts: dict[str, int] = {}
    stamp: str = ""
    runtimes: dict[str, dict[str, Any]] = {}
    made_by: str = "build"
    held: str = ""
    rates: dict[str, float] = {}
    token: int = 0
    created: str = ""
    checks: dict[str, str] = {}
    format: int = _FORMAT
    files: str = ""
    digest: str = ""  # stands last


def encoded(pointer: Pointer) -> bytes:
    """Return the bytes of a pointer, sealed."""
    blank = msgspec.structs.replace(pointer, digest="")
    return seal.seal(msgspec.json.format(msgspec.json.encode(blank), indent=2) + b"\n")


def decoded(address: str, data: bytes, name: str) -> Pointer:
    """Read a pointer.

    Args:
        address: of its index, for messages.
        name: the key that it lies under.

    Raises:
        Damaged: when it is none, or not what was written.
        StoreError: when it is of another format.
    """
    try:
        if seal.has_seal(data) and seal.broken(data):
            raise Damaged(f"index {address}: {name} has another content than when it was written", REPAIR)
        kind = msgspec.json.decode(data, type=_Format)
        if kind.format != _FORMAT:
            raise StoreError(
                f"index {address} has format {kind.format}, this program reads {_FORMAT}",
                "Build the index anew with this program, or use the program that built it.",
            )
        pointer = msgspec.json.decode(data, type=Pointer)
    except msgspec.MsgspecError as error:
        raise Damaged(f"index {address}: {name} is damaged: {error}", REPAIR) from error
    if pointer.files and not seal.has_seal(data):
        raise Damaged(f"index {address}: {name} has another content than when it was written", REPAIR)
    return pointer


class _Format(msgspec.Struct):
    """What every pointer has had in common."""

    format: int = 0
