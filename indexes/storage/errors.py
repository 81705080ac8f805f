"""The clear error behind one that a store's library raised: a full disk, missing rights, damage, S3's refusal.

Invariants:
- An outage, which may pass by itself, is ``transient``; wrong rights, a wrong address and damage are not.
- Nothing that ends a command on purpose (an interrupt, an exit) is taken for an error of a store.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import msgspec

from indexes.storage.objects import unusable
from indexes.storage.s3_objects import refused, unreachable
from parsers.errors import GristmillError, StoreError

_LIBRARIES: Final = ("lancedb", "tantivy")
VERIFY: Final = "Run `gristmill verify`: it names every damaged file. `gristmill repair` mends what can be mended."
CACHE: Final = "Run `gristmill repair`: it takes what is damaged out of the cache; the next build computes it."
_WORDS: Final = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EACCES: "Permission denied",
    errno.EROFS: "Read-only file system",
}
_LANCE: Final = re.compile(r"lance error|LanceError|not a Lance (file|dataset)|/(rustc|root/\.cargo)/")
_LOCATION: Final = re.compile(r",? ?/(rustc|root/\.cargo)/\S*", re.DOTALL)

_STATUS: Final = re.compile(r"(?:HTTP status|status code|status):? ?\(?(?:[a-z ]+\()?(5\d\d|429)\b", re.IGNORECASE)
_AWAY: Final = re.compile(
    r"error sending request|connection (?:refused|reset|closed|error)|tcp connect error|dns error|timed? ?out|"
    r"Error performing (?:GET|PUT|POST|DELETE|HEAD|list)|error decoding response body|after \d+ retries",
    re.IGNORECASE,
)

_REQUEST: Final = re.compile(r"Error performing [A-Z]+ http.*", re.DOTALL)  # names the endpoint and the cause


def is_panic(error: BaseException) -> bool:
    """Return whether a library written in Rust gave up: not an ``Exception``, so that nothing else catches it."""
    return type(error).__name__ == "PanicException"


def as_store_error(address: str, error: BaseException) -> GristmillError | None:
    """Return the clear error behind one of a store's own, where it is about the place and no internal error."""
    if isinstance(error, GristmillError):
        # A store's error without its place: of an outage it is told again, with the place and the remedy.
        inner = error.__cause__ if isinstance(error, StoreError) and address not in error.message else None
        clear = as_store_error(address, inner) if inner is not None else None
        return clear if clear is not None and clear.transient else None
    text = str(error)
    for number, words in _WORDS.items():
        if words in text or (isinstance(error, OSError) and error.errno == number):
            return unusable(address, OSError(number, words))
    code = re.search(r"<Code>(\w+)</Code>", text)  # LanceDB hands on what S3 answered
    if address.startswith("s3://") and code:
        return refused(address, "reading or writing its tables", code[1])
    if address.startswith("s3://") and _of_a_library(error):
        status = _STATUS.search(text)
        if status:
            return refused(address, "reading or writing its tables", status[1], int(status[1]))
        if _AWAY.search(text):
            why = RuntimeError(request[0]) if (request := _REQUEST.search(text)) else error
            return unreachable(address, "reading or writing its tables", short(why))
    if isinstance(error, msgspec.DecodeError) or "decompress" in text:
        return StoreError(f"index {address}: a value of the cache is damaged: {short(error)}", CACHE)
    if is_panic(error) or _of_a_library(error):
        return StoreError(f"index {address}: a file of it cannot be read: {short(error)}", VERIFY)
    return None


def short(error: BaseException) -> str:
    """Return a library's message in one line, without places in its own source."""
    lines = _LOCATION.sub("", str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(" ,:")


@contextmanager
def clear_errors(address: str) -> Iterator[None]:
    """Raise the clear error behind one of a store's own; anything else passes as it is."""
    try:
        yield
    except BaseException as error:  # a panic of tantivy's or LanceDB's is no Exception
        clear = as_store_error(address, error)
        if clear is None:
            raise
        raise clear from error


def _of_a_library(error: BaseException) -> bool:
    """Return whether LanceDB or tantivy raised it."""
    if not isinstance(error, OSError | RuntimeError | ValueError):
        return False
    return bool(_LANCE.search(str(error))) or _raised_in(error.__traceback__, _LIBRARIES)


def _raised_in(traceback: TracebackType | None, packages: tuple[str, ...]) -> bool:
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    name = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return name.split(".")[0] in packages
