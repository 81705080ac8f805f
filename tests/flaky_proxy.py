"""An HTTP proxy in front of the S3 server of the tests that can refuse, break or hold what passes through it.

It hands the Host header on as it came, so signatures stay valid. Bound to 127.0.0.1, one thread a connection.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import BinaryIO, Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

Mode = Literal["busy", "reset", "stall"]
BUSY: Final = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Request(NamedTuple):
    """One HTTP request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class FlakyProxy:
    """The proxy: it hands requests on until :meth:`fail` says otherwise.

    Attributes:
        endpoint: its web address.
        seen: ``METHOD /path?query`` of every request, in order of arrival; those it did not hand on too.
        failed: how many of them it did not hand on.
    """

    def __init__(self, upstream: str) -> None:
        self.seen: list[str] = []
        self.failed = 0
        self._upstream: Final = urlsplit(upstream).netloc
        self._listener: Final = socket.create_server(("127.0.0.1", 0))
        self.endpoint: Final = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._one: Final = threading.Lock()
        self._mode: Mode | None = None
        self._at: re.Pattern[str] | None = None
        self._begun = False
        self._only = False
        self._left: int | None = None
        self._then: tuple[re.Pattern[str], Callable[[], object]] | None = None
        self._healed = threading.Event()
        self._open: set[socket.socket] = set()
        self._thread: Final = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def then(self, at: str, call: Callable[[], object]) -> None:
        """Call this once, after the server has done the first request found by a pattern and before that is told."""
        with self._one:
            self._then = re.compile(at), call

    def fail(self, mode: Mode, at: str = "", *, times: int | None = None, only: bool = False) -> None:
        """Fail from the first request on that a pattern is found in, until healed.

        Args:
            mode: ``busy`` answers 503 SlowDown, ``reset`` resets the connection, ``stall`` never answers.
            at: a regular expression of ``METHOD /path?query``.
            times: how many requests fail, before it heals by itself; by default all.
            only: fail no others than those that the pattern is found in.
        """
        with self._one:
            self._healed.clear()
            self._mode, self._at, self._begun, self._left, self._only = mode, re.compile(at), False, times, only

    def heal(self) -> int:
        """Hand everything on again; return how many requests have failed since :meth:`fail`."""
        with self._one:
            failed, self.failed, self._mode = self.failed, 0, None
            self._healed.set()
        return failed

    def close(self) -> None:
        """End every connection and its thread."""
        self.heal()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._one:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            with self._one:
                self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        upstream = HTTPConnection(self._upstream, timeout=60)
        try:
            with client.makefile("rb") as read:
                while (request := _read(read, client)) is not None:
                    if not self._pass_on(client, upstream, request):
                        return
        except (OSError, HTTPException):  # a client that gave up, or a server that died: its client sees a reset
            _reset(client)
        finally:
            upstream.close()
            with self._one:
                self._open.discard(client)
            client.close()

    def _pass_on(self, client: socket.socket, upstream: HTTPConnection, request: Request) -> bool:
        """Answer a request; False where the connection is over."""
        line = f"{request.method} {unquote(request.target)}"
        mode = self._verdict(line)
        if mode == "busy":
            _answer(client, "503 Slow Down", [("Content-Type", "application/xml")], request, BUSY)
        elif mode == "reset":
            _reset(client)
            return False
        elif mode == "stall":
            self._healed.wait()
            _reset(client)
            return False
        else:
            upstream.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                upstream.putheader(name, value)
            upstream.endheaders(request.body)
            answer = upstream.getresponse()
            body = answer.read()
            self._call(line)
            _answer(client, f"{answer.status} {answer.reason}", answer.getheaders(), request, body)
        return True

    def _call(self, line: str) -> None:
        with self._one:
            call = self._then[1] if self._then is not None and self._then[0].search(line) else None
            self._then = None if call is not None else self._then
        if call is not None:
            call()

    def _verdict(self, line: str) -> Mode | None:
        """How this request fails, if it does."""
        with self._one:
            self.seen.append(line)
            if self._mode is None or self._at is None:
                return None
            found = bool(self._at.search(line))
            self._begun = self._begun or found
            if not self._begun or self._left == 0 or (self._only and not found):
                return None
            if self._left is not None:
                self._left -= 1
            self.failed += 1
            return self._mode


@contextmanager
def proxied(upstream: str) -> Iterator[FlakyProxy]:
    """A proxy in front of a server; when it ends, nothing of it runs on."""
    proxy = FlakyProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()


def _read(read: BinaryIO, client: socket.socket) -> Request | None:
    """The next request of a connection; None where there is none any more."""
    first = read.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers: list[tuple[str, str]] = []
    length, chunked = 0, False
    while (line := read.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if name.lower() == "expect":  # answered here, and no part of any signature
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            continue
        length = int(value) if name.lower() == "content-length" else length
        chunked = chunked or (name.lower() == "transfer-encoding" and "chunked" in value.lower())
        if name.lower() != "transfer-encoding":
            headers.append((name, value))
    body = b"".join(_chunks(read)) if chunked else read.read(length)
    if chunked:
        headers.append(("Content-Length", str(len(body))))
    return Request(first[0], first[1], headers, body)


def _chunks(read: BinaryIO) -> Iterator[bytes]:
    while size := int(read.readline().split(b";")[0], 16):
        yield read.read(size)
        read.readline()
    while read.readline().strip():
        pass


def _answer(client: socket.socket, status: str, headers: list[tuple[str, str]], request: Request, body: bytes) -> None:
    kept = [(name, value) for name, value in headers if name.lower() not in ("transfer-encoding", "connection")]
    if request.method != "HEAD" and not status.startswith("204"):
        kept = [(name, value) for name, value in kept if name.lower() != "content-length"]
        kept.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in kept)
    client.sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + (b"" if request.method == "HEAD" else body))


def _reset(client: socket.socket) -> None:
    """End a connection by RST, not in peace."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RD)
    client.close()
