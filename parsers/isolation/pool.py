"""A pool of worker processes that parse files under limits.

Invariants:
- A file that crashes its worker, or goes over a limit, is one failed document with the reason; its neighbours and the
  build go on.
- No more files are in work than the pool has workers; a worker starts with its first file and is used again.
- Workers end with the pool, and with the process that made it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple

from parsers.document import Document
from parsers.isolation.frames import ANSWER, DEFECT, DOCUMENT, MEMORY, REQUEST, TOO_LONG, read_exactly

_WALL: Final = 10  # times the limit of processor time after which a worker that uses none is ended
_ENDING: Final = 5.0  # seconds that a worker may take to end by itself


class Limits(NamedTuple):
    """What one file may use.

    Attributes:
        memory: bytes beyond those of an idle worker.
        seconds: of processor time; a worker that waits is ended after ten times that.
        output: bytes of the encoded document.
    """

    memory: int = 2_000_000_000
    seconds: float = 300.0
    output: int = 500_000_000


class Parsed(NamedTuple):
    """A parsed file.

    Attributes:
        document: with status ``failed`` and the reason where the worker did not finish it.
        transient: whether the failure may pass by itself: the machine was short of something.
    """

    document: Document
    transient: bool = False


class _Crashed(Exception):
    """A worker ended before it answered.

    Args:
        status: its exit status; negative for a signal.
        late: whether the pool ended it, because it took too long.
    """

    def __init__(self, status: int, *, late: bool) -> None:
        super().__init__()
        self.status = status
        self.late = late


class ParserPool:
    """Worker processes that parse files.

    Args:
        workers: how many there are at most.
        limits: of one file.
    """

    def __init__(self, workers: int = 1, limits: Limits | None = None) -> None:
        self.limits: Final = limits or Limits()
        self._threads: Final = ThreadPoolExecutor(workers, thread_name_prefix="parser")
        self._own: Final = threading.local()
        self._workers: Final[set[_Worker]] = set()
        self._closed = False

    def submit(self, key: str, data: bytes, media_type: str) -> Future[Parsed]:
        """Have a file parsed.

        Args:
            key: of the object.
            media_type: for the document of a file whose worker did not finish.
        """
        return self._threads.submit(self._read, key, data, media_type)

    def read(self, key: str, data: bytes, media_type: str) -> Parsed:
        """Parse a file and wait for it."""
        return self.submit(key, data, media_type).result()

    def close(self) -> None:
        """End the workers, whatever they do; files that wait are not parsed."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self._workers):
            worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.ended()

    def _read(self, key: str, data: bytes, media_type: str) -> Parsed:
        """Parse a file, a second time in a new worker where the first one crashed."""
        for last in (False, True):
            worker = self._worker()
            try:
                return self._outcome(*worker.ask(key, data), media_type)
            except _Crashed as crash:
                self._workers.discard(worker)
                self._own.worker = None
                over = crash.late or crash.status == -signal.SIGXCPU
                if last or over or self._closed:
                    return self._failed(crash, media_type)
        raise AssertionError("the last try returns")

    def _worker(self) -> _Worker:
        """Return the worker of this thread, started where there is none."""
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None or not worker.alive:
            self._own.worker = worker = _Worker(self.limits)
            self._workers.add(worker)
            if self._closed:
                worker.kill()
        return worker

    def _outcome(self, kind: bytes, data: bytes, media_type: str) -> Parsed:
        if kind == DOCUMENT:
            return Parsed(Document.decode(data))
        if kind == MEMORY:
            return _failure(media_type, f"it needs more than {_shown(self.limits.memory)} of memory to parse")
        if kind == TOO_LONG:
            size, most = _shown(int(data)), _shown(self.limits.output)
            return _failure(media_type, f"its document has {size}, more than the {most} allowed")
        assert kind == DEFECT
        return _failure(media_type, f"the parser failed with {data.decode('utf-8', 'replace')}")

    def _failed(self, crash: _Crashed, media_type: str) -> Parsed:
        seconds = f"{self.limits.seconds:g} s"
        if crash.status == -signal.SIGXCPU:
            return _failure(media_type, f"it takes more than {seconds} of processor time to parse")
        if crash.late:
            return _failure(media_type, f"its parser did not finish within {_WALL} times {seconds}", transient=True)
        if crash.status == -signal.SIGKILL:
            return _failure(media_type, "its parser was killed: the machine may lack memory", transient=True)
        how = f"by {signal.Signals(-crash.status).name}" if crash.status < 0 else f"with status {crash.status}"
        return _failure(media_type, f"its parser crashed {how}")


def _failure(media_type: str, reason: str, *, transient: bool = False) -> Parsed:
    return Parsed(Document(text="", media_type=media_type, status="failed", reason=reason), transient)


def _shown(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1_000_000 else f"{size:,} bytes"


class _Worker:
    """One worker process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._late = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "parsers.isolation.worker", *map(str, (os.getpid(), *limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the build, which ends its workers itself
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, key: str, data: bytes) -> tuple[bytes, bytes]:
        """Have a file parsed; return the kind of the answer, and its bytes.

        Raises:
            _Crashed: when the process ended instead.
        """
        name = key.encode("utf-8", "surrogateescape")
        requests, answers = self._pipes()
        timer = threading.Timer(_WALL * self._limits.seconds, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):  # it may have answered already: the file is too large for its memory
                requests.write(REQUEST.pack(len(name), len(data)) + name)
                requests.write(data)
                requests.flush()
            kind, size = ANSWER.unpack(read_exactly(answers, ANSWER.size))
            return kind, read_exactly(answers, size)
        except (EOFError, OSError) as error:
            raise _Crashed(self.ended(), late=self._late) from error
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End the process, whatever it does."""
        with suppress(OSError):
            self._process.kill()

    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout  # type: ignore[return-value]

    def _end_late(self) -> None:
        self._late = True
        self.kill()

    def ended(self) -> int:
        """Wait for the process to end, close its pipes, and return its exit status."""
        try:
            status = self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        for pipe in self._pipes():
            with suppress(OSError):
                pipe.close()
        return status
