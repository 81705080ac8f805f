"""Messages between the parser pool and a worker process, over pipes.

A request is the number of bytes of the key, the number of bytes of the file, then both. An answer is one byte that says
what follows, the number of bytes that follow, then these.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final

REQUEST: Final = struct.Struct(">IQ")
ANSWER: Final = struct.Struct(">cQ")
DOCUMENT: Final = b"d"  # an encoded document follows
MEMORY: Final = b"m"  # memory ran out
TOO_LONG: Final = b"l"  # the document is over the limit of output
DEFECT: Final = b"x"  # an internal error; its text follows


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """Read so many bytes.

    Raises:
        EOFError: when the other side is gone.
    """
    data = file.read(size)
    if data is None or len(data) < size:
        raise EOFError("the pipe was closed")
    return data
