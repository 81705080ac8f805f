"""Writing files that appear whole or not at all.

Invariants:
- Whoever opens the path reads the old bytes or the new ones, whole, also after a power cut.
- A write that fails leaves the old file as it was and no temporary file behind.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")  # what a killed writer leaves


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file in one step: temporary file, fsync, replace, fsync of the folder.

    A link is followed, and a device or a pipe is written directly: nothing can take its place.

    Raises:
        OSError: when it cannot be written; the file is then as it was.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    with atomic_file(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def atomic_file(path: Path, appear: Callable[[Path, Path], None] = os.replace) -> Iterator[Path]:
    """Give a temporary path; its file takes its place at ``path`` once the block ends without an error.

    Args:
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
    """Make a folder and those above it, to stay through a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Have a file or folder on the disk before this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
