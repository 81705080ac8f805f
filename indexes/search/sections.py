"""The section that a hit stands in, from the parsed document that its index was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from indexes.cache.memo import Memo
from indexes.catalog import Catalog
from indexes.search.search import Hit
from parsers.document import Document

DOCUMENTS: Final = "documents"  # table of the memory


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The innermost section around a chunk; the whole document where no section holds it.

    Attributes:
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the document's text between them.
    """

    start: int
    end: int
    text: str


def sections_of(hits: Sequence[Hit], catalog: Catalog, memo: Memo) -> list[Section | None]:
    """The section of each hit; None where the parsed document is not remembered any more.

    Args:
        catalog: the documents of the revision that the hits are from.
        memo: the parsed documents.
    """
    rows = catalog.named(hit.document_id for hit in hits)
    known = memo.get(row.document for row in rows.values() if row.document)
    texts = {
        document_id: Document.decode(known[row.document]).text
        for document_id, row in rows.items()
        if row.document in known
    }
    return [_section(hit, texts[hit.document_id]) if hit.document_id in texts else None for hit in hits]


def _section(hit: Hit, text: str) -> Section:
    return Section(start=hit.section_start, end=hit.section_end, text=text[hit.section_start : hit.section_end])
