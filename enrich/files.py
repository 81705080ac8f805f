"""Write files atomically.

Invariants:
- A reader of the path gets all of the old bytes or all of the new ones, also after a power cut.
- A failed write leaves the old file unchanged and no temporary file.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")  # left by a killed writer


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file in one step: temporary file, fsync, replace, fsync of the folder.

    Follows a link. Writes a device or a pipe directly, since it cannot be replaced.

    Raises:
        OSError: when the file cannot be written; it is then unchanged.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path, appear: Callable[[Path, Path], None] = os.replace) -> Iterator[Path]:
    """Yield a temporary path; its file replaces ``path`` if the block ends without an error.

    Args:
        path: the file to write.
        appear: moves the first path to the second.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    make_folder(target.parent)
    temporary = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        sync(temporary)
        appear(temporary, target)
        sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; they survive a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
