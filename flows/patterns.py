"""Key patterns of the settings: which keys they match.

Invariants:
- Composed and decomposed accents are equal, so a pattern typed on one system matches the keys of another.
- A pattern with brackets matches what it means as a glob and what it is as it stands: ``[internal]/*`` matches the
  folder of that name.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from unicodedata import normalize


def key_matches(key: str, pattern: str) -> bool:
    """Return whether a key matches a glob; ``*`` also matches ``/``, and letter case counts."""
    key, pattern = normalize("NFC", key), normalize("NFC", pattern)
    return fnmatchcase(key, pattern) or ("[" in pattern and fnmatchcase(key, pattern.replace("[", "[[]")))


def key_begins(key: str, prefix: str) -> bool:
    """Return whether a key begins with a text, in which no sign is special."""
    return normalize("NFC", key).startswith(normalize("NFC", prefix))
