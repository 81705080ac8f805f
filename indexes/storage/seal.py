"""The digest that a pointer or record holds of itself, so that a flipped bit in it is seen.

Invariants:
- The digest is of the very bytes: it stands last, and is taken over the bytes with its own place left empty.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

_EMPTY: Final = b'"digest": ""\n}\n'
_SEALED: Final = re.compile(rb'"digest": "([0-9a-f]{64})"\n}\n\Z')


def seal(data: bytes) -> bytes:
    """Put the digest into JSON that ends in an empty ``digest``."""
    if not data.endswith(_EMPTY):
        raise ValueError("what is to be sealed ends in an empty digest")
    digest = hashlib.sha256(data).hexdigest()
    return data[: -len(_EMPTY)] + _EMPTY.replace(b'""', f'"{digest}"'.encode())


def has_seal(data: bytes) -> bool:
    """Return whether bytes hold a digest of themselves, be it the right one or not."""
    return b'"digest": "' in data[-len(_EMPTY) - 64 :]


def broken(data: bytes) -> bool:
    """Return whether bytes that should be sealed are not, or not what they were."""
    found = _SEALED.search(data)
    if found is None:
        return True
    whole = data[: found.start()] + _EMPTY
    return hashlib.sha256(whole).hexdigest().encode() != found[1]
