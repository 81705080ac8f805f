"""Load llama.cpp's library and collect its errors; it prints no log."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, Final

_LOG_LEVEL_ERROR: Final = 4  # ggml.h; the comment in llama_cpp/_logger.py is out of date
_said: deque[str] = deque(maxlen=20)  # the last errors that llama.cpp logged
_log_callback: Any = None  # llama.cpp calls it until the process ends, so it must never be collected


def quiet_library() -> Any:
    """Return the module ``llama_cpp``.

    Raises:
        ImportError: when it is not installed.
    """
    import llama_cpp

    global _log_callback
    if _log_callback is None:

        def remember(level: int, text: bytes, _: ctypes.c_void_p) -> None:
            if level == _LOG_LEVEL_ERROR:
                _said.append(text.decode("utf-8", "replace").strip())

        _log_callback = llama_cpp.llama_log_callback(remember)
        llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))
    return llama_cpp


def last_words() -> str:
    """Return the last error that llama.cpp logged, in parentheses; empty if there is none."""
    return f" ({_said[-1]})" if _said else ""
