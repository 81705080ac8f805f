"""Ctrl-C, SIGTERM and SIGHUP: they end the command, and a build that was told to stop publishes nothing.

Invariants:
- An interrupt is noted before it is raised.
- For what a handler raises can be lost: Python drops it where a finalizer or a callback from C runs, and a library
  that meets it may answer with an error of its own, which then looks like one of the document at hand.
- Whoever works on asks :func:`raise_if_interrupted` before keeping anything.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked: list[Callable[[], object]] = []
_told = threading.Event()


def install() -> None:
    """Have the signals end the command by a ``KeyboardInterrupt``; to be called once, in the main thread."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # `nohup` has it ignored
        signal.signal(signal.SIGHUP, _interrupt)
    for number in SIGNALS:
        _note_first(number)
    shown = sys.unraisablehook

    def note(dropped: UnraisableHookArgs, /) -> None:
        error = dropped.exc_value
        if error is None or isinstance(error, Exception | SystemExit | GeneratorExit):
            shown(dropped)
        else:  # of a handler that was not ours: Prefect's, before and after a flow's own body
            _asked.append(_interrupt)
            _told.set()

    sys.unraisablehook = note


@contextmanager
def noted() -> Iterator[None]:
    """Note the signals within a flow too, for which Prefect puts its own handler in place of ours."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread alone, and so is whoever runs this flow
        return
    before = [(number, signal.getsignal(number)) for number in SIGNALS]
    for number in SIGNALS:
        _note_first(number)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        _asked.clear()  # it has ended this flow, and is nothing to the next one in this process


def was_interrupted() -> bool:
    """Return whether this process was ever told to stop: an error that follows comes of that."""
    return _told.is_set()


def raise_if_interrupted() -> None:
    """Stop here where the command was told to stop, whatever became of that.

    Raises:
        BaseException: what the signal's handler raises.
    """
    if _asked:
        _asked[0]()


def _note_first(number: int) -> None:
    """Have a signal noted before its handler is called; one that is ignored stays so."""
    handler: Any = signal.getsignal(number)
    if not callable(handler):
        return

    def note(given: int, frame: FrameType | None) -> None:
        _asked.append(lambda: handler(given, None))
        _told.set()
        handler(given, frame)

    signal.signal(number, note)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
