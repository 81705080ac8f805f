"""Document stores that other packages bring, by entry points.

A package serves the addresses of a scheme by an entry point of the group ``gristmill.sources``, whose name is the
scheme and which names a function of address and :class:`flows.sources.base.SourceOptions` that returns a
:class:`flows.sources.base.Source`::

    [project.entry-points."gristmill.sources"]
    wiki = "gristmill_wiki:open_wiki"
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final, cast

from flows.sources.base import Source, SourceOptions
from parsers.errors import GristmillError, SourceError

GROUP: Final = "gristmill.sources"
_MEMBERS: Final = ("name", "address", "place", "trusted", "parallel", "objects", "look", "fetch", "labels")


def open_further(address: str, options: SourceOptions) -> Source:
    """Return the document store at an address whose scheme another package serves.

    Raises:
        SourceError: when none does, several do, or it gives something that is no source.
    """
    scheme = address.partition("://")[0]
    served = {one.name for one in entry_points(group=GROUP)}
    found = list(entry_points(group=GROUP, name=scheme))
    if not found:
        known = ", ".join(f"{name}://" for name in sorted({"s3", *served}))
        raise SourceError(
            f"source {address}: no installed package serves {scheme}:// addresses",
            f"Give the path of a folder, or one of {known}; flows/sources/README.md says how to add one.",
        )
    if len(found) > 1:
        packages = ", ".join(sorted(one.value for one in found))
        raise SourceError(f"source {address}: {packages} all serve {scheme}://", "Uninstall all but one of them.")
    try:
        source = found[0].load()(address, options)
    except GristmillError:
        raise
    except Exception as error:  # another package's defect, in whatever form
        raise SourceError(f"source {address}: {found[0].value} failed with {type(error).__name__}: {error}") from error
    missing = [name for name in _MEMBERS if not hasattr(source, name)]
    if missing:
        raise SourceError(f"source {address}: what {found[0].value} returns lacks {', '.join(missing)}")
    return cast(Source, source)
