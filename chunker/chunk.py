"""The chunk, its id, and the text that is indexed for it.

Invariants:
- ``chunk.text == document.text[chunk.start:chunk.end]``.
- A chunk's id follows from the document's id, the chunk's text and how many equal texts stand before it in that
  document, and from nothing else.
- The embedded text is put together in one place, so the embedder, BM25 and a reranker see the same one; what is left
  out within a chunk is not in it, and a character reference (``&amp;``) stands in it as what it means.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from parsers.references import meant


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of one document, as the chunker cuts it; it knows nothing of the document's id or place.

    Attributes:
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the document's text between them.
        heading_path: titles from the document's own down to the section; an untitled document has none of its own.
        printed_path: the part of the heading path that goes into the embedded text, an untitled document's base name
            before it.
        header: the header rows of a split table, for a piece that does not hold them; empty otherwise.
        place: where in the document, as a citation names it: headings and page, row, slide or line; may be empty.
        citation: how a scholar cites it (``Caesar, Gallic War 4.25``); empty where it is cited by file and place.
        tokens: tokens of ``indexed`` by the ruler, without special tokens.
        section_start, section_end: ``[start, end)`` of the innermost section around the chunk.
        cut: what had to be cut because it alone is over the budget (``sentence``, ``code``, ``row``, ``heading``), or
            ``left-out part`` where a long one stands within what is cut; empty otherwise.
        gaps: ``[start, end)`` in ``text`` of each stretch that is left out of the index, such as a comment.
        references: where in ``text`` each character reference begins that is searched as what it means.
    """

    start: int
    end: int
    text: str
    heading_path: tuple[str, ...] = ()
    printed_path: tuple[str, ...] = ()
    header: str = ""
    place: str = ""
    citation: str = ""
    tokens: int = 0
    section_start: int = 0
    section_end: int = 0
    cut: str = ""
    gaps: tuple[tuple[int, int], ...] = ()
    references: tuple[int, ...] = ()

    @property
    def indexed(self) -> str:
        """The text without what is left out of the index, its character references as what they mean."""
        return _indexed(self.text, self.gaps, self.references)

    @property
    def remarks(self) -> str:
        """``cut``, ``references`` and ``gaps`` as a row stores them: ``row; references 3; left out 12-40 51-60``."""
        gaps = " ".join(f"{start}-{end}" for start, end in self.gaps)
        references = " ".join(map(str, self.references))
        parts = (self.cut, references and f"{_REFERENCES}{references}", gaps and f"{_LEFT_OUT}{gaps}")
        return "; ".join(part for part in parts if part)


_LEFT_OUT: Final = "left out "
_REFERENCES: Final = "references "


def gaps_in(remarks: str) -> tuple[tuple[int, int], ...]:
    """Return the gaps of a chunk, from its remarks."""
    pairs = (gap.split("-") for gap in _part(remarks, _LEFT_OUT))
    return tuple((int(start), int(end)) for start, end in pairs)


def indexed_text(text: str, remarks: str) -> str:
    """Return the text of a row as it is indexed, see :attr:`Chunk.indexed`.

    Args:
        remarks: of its chunk, see :attr:`Chunk.remarks`.
    """
    return _indexed(text, gaps_in(remarks), [int(start) for start in _part(remarks, _REFERENCES)])


def _part(remarks: str, name: str) -> list[str]:
    """Return the text that each remark lists."""
    return next((part.removeprefix(name).split() for part in remarks.split("; ") if part.startswith(name)), [])


def _indexed(text: str, gaps: Sequence[tuple[int, int]], references: Sequence[int]) -> str:
    edits = [(start, end, "") for start, end in gaps]
    edits += [(start, *known) for start in references if (known := meant(text, start))]
    pieces: list[str] = []
    position = 0
    for start, end, instead in sorted(edits):
        pieces += text[position:start], instead
        position = end
    return "".join([*pieces, text[position:]])


def document_id(source: str, key: str) -> str:
    """Return the id of a document: 32 hexadecimal digits from the source's configured name and the object's key."""
    return _digest("document", source, key)


def chunk_ids(document: str, chunks: Sequence[Chunk]) -> list[str]:
    """Return ids of one document's chunks, in order: 32 hexadecimal digits each.

    Args:
        document: the document's id.
        chunks: all its chunks, in reading order.
    """
    seen: Counter[str] = Counter()
    ids = []
    for chunk in chunks:
        ids.append(_digest("chunk", document, chunk.text, str(seen[chunk.text])))
        seen[chunk.text] += 1
    return ids


PATH_SEPARATOR = " › "


def prefix(note: str, chunk: Chunk) -> str:
    """Return the head of the embedded text: note, printed heading path, repeated table header."""
    parts = [note.strip(), PATH_SEPARATOR.join(chunk.printed_path), chunk.header]
    return "".join(f"{part}\n" for part in parts if part)


def locator(key: str, chunk: Chunk) -> str:
    """Return the citation of a chunk: the work's own, else the base name of the key and the place in it."""
    return chunk.citation or PATH_SEPARATOR.join(part for part in (key.rsplit("/", 1)[-1], chunk.place) if part)


def embedded_text(note: str, chunk: Chunk) -> str:
    """Return the text that goes to the embedder, to BM25 and to a reranker."""
    return prefix(note, chunk) + chunk.indexed


def _digest(*parts: str) -> str:
    joined = b"".join(len(data).to_bytes(8, "big") + data for data in (part.encode() for part in parts))
    return hashlib.sha256(joined).hexdigest()[:32]
