"""The document stores a build reads from; nothing outside this package knows which one it is."""

from flows.sources.base import Fetched, Object, Source, SourceOptions
from flows.sources.folder import FolderSource
from flows.sources.further import open_further
from flows.sources.s3 import S3Source

__all__ = ["Fetched", "FolderSource", "Object", "S3Source", "Source", "SourceOptions", "open_source"]


def open_source(address: str, options: SourceOptions | None = None) -> Source:
    """Return the document store at an address.

    Args:
        address: a folder's path, ``s3://bucket/prefix``, or an address whose scheme a further package serves.
        options: its name, its key patterns and what lies in it and is no document.

    Raises:
        SourceError: when there is no such store.
    """
    if address.startswith("s3://"):
        return S3Source(address, options)
    if "://" in address:
        return open_further(address, options or SourceOptions())
    return FolderSource(address, options)
