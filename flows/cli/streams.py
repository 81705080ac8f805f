"""Standard output and standard error that never end a command.

Invariants: a sign that the encoding lacks is replaced; after a reader is gone, what is written is dropped, and the
command goes on to its own exit status.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Pipe(io.FileIO):
    """A descriptor that takes everything, also when nobody reads it any more."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def install_streams() -> None:
    """Make both streams so; to be called once, before anything is written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # None where the descriptor is closed
            setattr(sys, name, _patient(stream))


def _patient(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    raw = _Pipe(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "backslashreplace" else "replace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
