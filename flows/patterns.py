"""Key patterns of the settings: which keys they match.

Invariants:
- Composed and decomposed accents are equal, so a pattern typed on one system matches the keys of another.
- A pattern with brackets matches what it means as a glob and what it is as it stands: ``[internal]/*`` matches the
  folder of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from unicodedata import normalize


def key_matches(key: str, pattern: str) -> bool:
    """Return whether a key matches a glob; ``*`` also matches ``/``, and letter case counts."""
    key, pattern = normalize("NFC", key), normalize("NFC", pattern)
    return fnmatchcase(key, pattern) or ("[" in pattern and fnmatchcase(key, pattern.replace("[", "[[]")))


def key_begins(key: str, prefix: str) -> bool:
    """Return whether a key begins with a text, in which no sign is special."""
    return normalize("NFC", key).startswith(normalize("NFC", prefix))


class KeyFilter:
    """The keys that a source's patterns ask for.

    Args:
        include: patterns of which a key must match one.
        exclude: patterns of which it must match none.
    """

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = include
        self._everything = "*" in include  # matching every key of many is slow
        self._exclude = exclude

    def wants(self, key: str) -> bool:
        """Return whether a document of this key belongs to the source."""
        wanted = self._everything or any(key_matches(key, pattern) for pattern in self._include)
        return wanted and not self.excludes(key)

    def excludes(self, key: str) -> bool:
        """Return whether a pattern leaves this key out."""
        return any(key_matches(key, pattern) for pattern in self._exclude)

    def excludes_folder(self, folder: str) -> bool:
        """Return whether a pattern like ``drafts/*`` leaves a whole folder out; its name ends with a slash."""
        return any(pattern.endswith("/*") and key_matches(folder, pattern) for pattern in self._exclude)

    def may_hold(self, folder: str) -> bool:
        """Return whether a document below a folder could match ``include``."""
        inside = normalize("NFC", f"{folder}/")
        starts = (normalize("NFC", literal_prefix(pattern)) for pattern in self._include)
        return any(inside.startswith(start) or start.startswith(inside) for start in starts)


def literal_prefix(pattern: str) -> str:
    """Return the literal prefix of a pattern."""
    end = min((at for at in map(pattern.find, "*?[") if at >= 0), default=len(pattern))
    return pattern[:end]
