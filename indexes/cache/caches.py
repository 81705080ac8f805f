"""The caches of an index, each with the type of its values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec

from chunker.chunk import Chunk
from enrich.notes.note import Note
from indexes.cache.store import Cache, Codec, VectorCache
from indexes.storage import layout
from indexes.storage.storage import Storage
from parsers.document import Document

_Value = TypeVar("_Value")


class Version(msgspec.Struct, frozen=True):
    """Digest and media type of a document's bytes in one version of the source, and the labels it states of them."""

    bytes_digest: str
    media_type: str
    labels: tuple[str, ...] = ()


def _json(kind: type[_Value]) -> Codec[_Value]:
    return Codec(msgspec.json.Encoder(order=None).encode, msgspec.json.Decoder(kind).decode)


class Caches:
    """Results of earlier builds, by content; each cache is opened when first needed.

    Args:
        storage: of the index that keeps them.
        dimension: gives the length of a vector; called when the cache of vectors is opened.
    """

    def __init__(self, storage: Storage, dimension: Callable[[], int] = lambda: 0) -> None:
        self._storage: Final = storage
        self._dimension: Final = dimension

    @cached_property
    def versions(self) -> Cache[Version]:
        """Digest and media type of a document's bytes, by its version in the source."""
        return Cache(self._storage.cache(), layout.VERSIONS, _json(Version))

    @cached_property
    def documents(self) -> Cache[Document]:
        """Parsed documents."""
        return Cache(self._storage.cache(), layout.DOCUMENTS, Codec(Document.encode, Document.decode))

    @cached_property
    def chunks(self) -> Cache[list[Chunk]]:
        """Chunks of a document, as one value."""
        return Cache(self._storage.cache(), layout.CHUNKS, _json(list[Chunk]))

    @cached_property
    def notes(self) -> Cache[Note]:
        """Notes, by their exact prompt."""
        return Cache(self._storage.cache(), layout.NOTES, _json(Note))

    @cached_property
    def vectors(self) -> VectorCache:
        """Vectors, by embedded text and embedder."""
        return VectorCache(self._storage.cache(), self._dimension())

    @cached_property
    def runtimes(self) -> Cache[dict[str, Any]]:
        """Description of each runtime that ever made a vector, by the id of its provenance."""
        codec = Codec(msgspec.json.Encoder(order="sorted").encode, msgspec.json.Decoder(dict[str, Any]).decode)
        return Cache(self._storage.cache(), layout.RUNTIMES_TABLE, codec)

    def tidy(self) -> None:
        """Compact the tables."""
        for cache in (self.versions, self.documents, self.chunks, self.notes, self.vectors):
            cache.tidy()
