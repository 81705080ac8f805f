"""A worker process that parses one file after another under limits.

Run as ``python -P -m parsers.isolation.worker PARENT MEMORY SECONDS OUTPUT``; requests come on standard input, answers
go to standard output.

Invariants:
- It ends with its parent, and after it ran out of memory.
- A parser opens no file for writing, no connection and no process.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from typing import Any, BinaryIO, Final

from parsers.isolation.frames import ANSWER, DEFECT, DOCUMENT, MEMORY, REQUEST, TOO_LONG, read_exactly

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_DENIED: Final = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "shutil.")
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def parse_requests(memory: int, seconds: float, output: int) -> None:
    """Parse what comes on standard input until it ends.

    Args:
        memory: bytes of address space beyond those of the worker itself.
        seconds: of processor time a file.
        output: bytes of an encoded document.
    """
    requests, answers = _private_pipes()
    from parsers.registry import read

    _limit_memory(memory)
    sys.addaudithook(_deny)
    while head := requests.read(REQUEST.size):
        if len(head) < REQUEST.size:
            return
        key_size, size = REQUEST.unpack(head)
        _limit_seconds(seconds)
        kind, data = DOCUMENT, b""
        try:
            key = read_exactly(requests, key_size).decode("utf-8", "surrogateescape")
            data = read(key, read_exactly(requests, size)).encode()
        except EOFError:
            return
        except MemoryError:
            kind, data = MEMORY, b""
        except Exception as error:
            kind, data = DEFECT, f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        if len(data) > output:
            kind, data = TOO_LONG, str(len(data)).encode()
        answers.write(ANSWER.pack(kind, len(data)) + data)
        answers.flush()
        if kind == MEMORY:
            return


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take the pipes away from standard input and output, to which a library may write."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return os.fdopen(requests, "rb"), os.fdopen(answers, "wb")


def _limit_memory(memory: int) -> None:
    """Limit the address space, and leave no core file of a crash."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError, FileNotFoundError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            own = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (own + memory, own + memory))


def _limit_seconds(seconds: float) -> None:
    """Have the kernel end this process after so many further seconds of processor time."""
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), hard))


def _deny(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what no parser needs: connections, processes, and files opened for writing."""
    if event == "open":
        path, mode, flags = arguments
        allowed = path == os.devnull or "__pycache__" in str(path)
        if isinstance(flags, int) and flags & _WRITES and not allowed:
            raise PermissionError(f"a parser must not write {path!r} (mode {mode})")
    elif event.startswith(_DENIED):
        raise PermissionError(f"a parser must not call {event}")


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, which a parser in an endless loop would not notice."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


if __name__ == "__main__":
    _end_with_parent(int(sys.argv[1]))
    parse_requests(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
