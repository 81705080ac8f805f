"""Send JSON over HTTP from many threads, with retries, a limit on concurrency, and cancellation.

Invariants:
- All threads together never exceed the allowed number of concurrent requests.
- A request that may succeed later is retried after a fixed backoff, or after the pause that the server asks for.
- A waiting thread can always be interrupted.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, Final, TypeVar

import httpx

TRIES: Final = 5  # of one request
SLOW: Final = 2  # timeouts of one request, after which it is not retried
LONGEST: Final = 60.0  # maximum seconds of a pause; if the server asks for more, the request fails
PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_T = TypeVar("_T")


class Unanswered(Exception):
    """A request got no usable answer in any of its tries."""


class Refused(Exception):
    """A server's permanent refusal of a request.

    Args:
        status: the HTTP status.
        said: the status and the server's message, in one line.
    """

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


class PatientClient:
    """HTTP client that retries; opened by the first request, safe to use from several threads.

    Args:
        key: sent as a bearer token, unless it is empty.
        parallel: maximum of concurrent requests.
        timeout: maximum seconds for an answer.
        pause: seconds before the second try; twice as long before each further one.
        final: whether a retry is useless, by status and server's message; asked only for a status that allows retries.
    """

    def __init__(
        self, *, key: str, parallel: int, timeout: float, pause: float, final: Callable[[int, str], bool]
    ) -> None:
        self._key = key
        self._parallel = parallel
        self._timeout = timeout
        self._pause = pause
        self._final = final
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None
        self._end: Callable[[], Any] | None = None
        self._running: set[Any] = set()
        self._broken_off = False

    def request(self, method: str, url: str, body: Mapping[str, Any] | None = None, tries: int = TRIES) -> Any:
        """Send a request and return its decoded JSON.

        Raises:
            Unanswered: when every try fails.
            Refused: when the server refuses it permanently.
        """
        return self._run(self._tried(method, url, body, tries))

    def cancel(self) -> None:
        """Cancel all requests for good; waiting threads get an error."""
        self._broken_off = True
        for future in list(self._running):
            future.cancel()

    async def _tried(self, method: str, url: str, body: Mapping[str, Any] | None, tries: int) -> Any:
        assert self._client is not None
        said, slow = "", 0
        for number in range(tries):
            pause = min(LONGEST, self._pause * 2**number)
            try:
                response = await self._client.request(method, url, json=body)
                if response.status_code < 400:
                    return response.json()
                said = f"{response.status_code} {_message(response)}"
                if response.status_code not in PASSING or self._final(response.status_code, said):
                    raise Refused(response.status_code, said)
                pause = _asked_pause(response, pause)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise Refused(0, f"no address: {error}") from error
            except httpx.HTTPError as error:
                said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                slow += isinstance(error, httpx.ReadTimeout)
            except ValueError:
                said = "an answer that is no JSON"
            if pause > LONGEST:
                raise Unanswered(f"it wants {pause:.0f} s of pause: {said}")
            if number + 1 == tries or slow == SLOW:
                raise Unanswered(f"failed {number + 1} times: {said}")
            await asyncio.sleep(pause)
        raise AssertionError("a request is tried at least once")

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in its own loop; cancel it if the waiting thread is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        self._running.add(future)
        if self._broken_off:
            future.cancel()
        try:
            return future.result()
        except BaseException:  # also Ctrl-C: cancel the request with its caller
            future.cancel()
            raise
        finally:
            self._running.discard(future)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                limits = httpx.Limits(max_connections=self._parallel, max_keepalive_connections=self._parallel)
                timeout = httpx.Timeout(self._timeout, connect=min(10.0, self._timeout), pool=None)
                self._client = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout)
                self._loop = asyncio.new_event_loop()
                # A daemon thread, so that an interrupted build does not wait for the server.
                thread = threading.Thread(target=self._loop.run_forever, name="llm-server", daemon=True)
                thread.start()
                self._end = weakref.finalize(self, _end, self._loop, thread, self._client)
            return self._loop

    def close(self) -> None:
        """Close the connections and end the loop; the next use reopens them."""
        with self._lock:
            if self._end is not None:
                self._end()
            self._loop = self._client = self._end = None


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: httpx.AsyncClient) -> None:
    """Close the connections and end the loop."""
    with suppress(TimeoutError):
        asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _message(response: httpx.Response) -> str:
    """Return the reason of a refusal, in one line."""
    try:
        said = response.json()
        error = said.get("error", said.get("detail", said)) if isinstance(said, dict) else said
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except ValueError:
        text = response.text
    return " ".join(text.split())[:300]


def _asked_pause(response: httpx.Response, otherwise: float) -> float:
    """Return the seconds that Retry-After asks for, as a number or a date; else the default."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return otherwise
