"""The document stores a build reads from; nothing outside this package knows which one it is."""

from collections.abc import Sequence
from pathlib import Path

from flows.sources.base import Fetched, Object, Source
from flows.sources.folder import FolderSource
from parsers.errors import SourceError

__all__ = ["Fetched", "FolderSource", "Object", "Source", "open_source"]


def open_source(
    address: str, name: str, include: list[str], exclude: list[str], own: Sequence[str | Path] = ()
) -> Source:
    """Return the document store at an address.

    Args:
        address: a folder's path.
        name: the source's configured name; document ids come from it and the key.
        include: key patterns of which an object must match one.
        exclude: key patterns of which it must match none.
        own: paths of the index and the golden set; what lies there is no document.

    Raises:
        SourceError: when there is no such store.
    """
    if "://" in address:
        raise SourceError(
            f"source {address}: stores of this kind are not supported yet", "Give the path of a local folder."
        )
    return FolderSource(address, name, include, exclude, own)
