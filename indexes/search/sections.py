"""The section that a hit stands in, from the parsed document that its index was made of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from indexes.cache.store import Cache
from indexes.catalog import Catalog
from indexes.search.search import Hit
from parsers.document import Document


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The innermost section around a chunk; the whole document where no section holds it.

    Attributes:
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the document's text between them.
    """

    start: int
    end: int
    text: str


def sections_of(hits: Sequence[Hit], catalog: Catalog, documents: Cache[Document]) -> list[Section | None]:
    """Return the section of each hit; None where the parsed document is no longer cached.

    Args:
        catalog: of the revision that the hits are from.
        documents: the cache of parsed documents.
    """
    rows = catalog.named(hit.document_id for hit in hits)
    known = documents.get(row.document for row in rows.values() if row.document)
    texts = {document_id: known[row.document].text for document_id, row in rows.items() if row.document in known}
    return [_section(hit, texts[hit.document_id]) if hit.document_id in texts else None for hit in hits]


def _section(hit: Hit, text: str) -> Section:
    return Section(start=hit.section_start, end=hit.section_end, text=text[hit.section_start : hit.section_end])
