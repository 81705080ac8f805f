"""``gristmill serve``: receiver, schedule and warm worker in one process, or each by itself.

Invariants:
- The receiver listens on the loopback interface unless told otherwise, and then not without a token or a secret.
- One worker at a time empties an inbox.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import uvicorn
from filelock import FileLock, Timeout

from flows.context import stay_warm
from flows.opening import open_storage
from flows.orchestration.choice import ServedRunner
from flows.service.inbox import Inbox
from flows.service.receiver import ReceiverOptions, make_app
from flows.service.signatures import SNSVerifier
from flows.service.worker import Tell, Worker, run_until
from flows.settings import Settings, webhook_secret, webhook_token
from parsers.errors import UsageError

ServicePart = Literal["receiver", "worker"]
SERVICE_PARTS: Final[tuple[ServicePart, ...]] = ("receiver", "worker")
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_START_SECONDS: Final = 15.0  # that the receiver may take to listen

_LOG: Final = logging.getLogger(__name__)


class Service:
    """A running service.

    Args:
        settings: of the builds and of the receiver.
        tell: sends a notification.
        parts: of the service that this process runs.

    Raises:
        UsageError: when the receiver would be open to everyone, or another worker empties the inbox.
    """

    def __init__(self, settings: Settings, tell: Tell, parts: Sequence[ServicePart] = SERVICE_PARTS) -> None:
        if "receiver" in parts:
            check_exposure(settings)
        self.settings: Final = settings
        self.inbox: Final = Inbox(settings.inbox_path)
        self.runner: Final = ServedRunner()
        bare = open_storage(settings).pointer() is None
        self.worker: Final = Worker(settings, self.inbox, self.runner.run, tell, first_build=bare)
        self._parts = parts
        self._stopped = threading.Event()

    @property
    def address(self) -> str:
        """Web address of the receiver."""
        return f"http://{self.settings.receiver_host}:{self.settings.receiver_port}"

    def run(self) -> None:
        """Run until :meth:`stop`, or an interrupt."""
        try:
            with self._receiving() if "receiver" in self._parts else _nothing():
                if "worker" in self._parts:
                    self._work()
                else:
                    self._stopped.wait()
        finally:
            self.inbox.close()

    def stop(self) -> None:
        """Have :meth:`run` return; a build that runs is finished first."""
        self._stopped.set()
        self.inbox.arrived.set()

    def status(self) -> dict[str, Any]:
        """Return what the worker did, and whether Prefect takes part."""
        return self.worker.status() | {"prefect": self.runner.state}

    def _work(self) -> None:
        lock = FileLock(f"{self.inbox.path}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UsageError(
                f"another worker empties the inbox {self.inbox.path}", "Stop it first, or run `--only receiver`."
            ) from error
        try:
            stay_warm()
            run_until(self._stopped.is_set, self.worker, self.inbox, self.settings.settle_seconds)
        finally:
            lock.release()

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        """Receive events in a thread meanwhile.

        Raises:
            UsageError: when the port cannot be listened at.
        """
        app = make_app(self.inbox, receiver_options(self.settings), self.status)
        settings = self.settings
        config = uvicorn.Config(
            app,
            host=settings.receiver_host,
            port=settings.receiver_port,
            log_config=None,
            access_log=False,
            timeout_keep_alive=30,
            server_header=False,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=_serve, args=(server,), name="receiver", daemon=True)
        thread.start()
        give_up = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > give_up:
                raise UsageError(f"the receiver cannot listen at {self.address}", "Choose another `receiver_port`.")
            time.sleep(0.02)
        _LOG.info("events are received at %s/events", self.address)
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


def _serve(server: uvicorn.Server) -> None:
    try:
        server.run()
    except SystemExit:  # how uvicorn says that it cannot listen; its log has said why
        _LOG.error("the receiver has ended")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def check_exposure(settings: Settings) -> None:
    """Make sure that only who knows a secret can reach the receiver from elsewhere.

    Raises:
        UsageError: when it would listen beyond this machine without a token or a secret.
    """
    if settings.receiver_host not in LOOPBACK and not (webhook_token() or webhook_secret()):
        raise UsageError(
            f"the receiver would listen at {settings.receiver_host} and accept events of anyone",
            "Set GRISTMILL_TOKEN or GRISTMILL_WEBHOOK_SECRET, or listen at 127.0.0.1.",
        )


def receiver_options(settings: Settings) -> ReceiverOptions:
    """Return what the receiver accepts: events of the source alone."""
    bucket, prefix = "", ""
    if (settings.source or "").startswith("s3://"):
        bucket, _, below = (settings.source or "").removeprefix("s3://").partition("/")
        prefix = f"{below.rstrip('/')}/" if below.strip("/") else ""
    topics = tuple(settings.sns_topics)
    return ReceiverOptions(
        token=webhook_token(),
        secret=webhook_secret(),
        bucket=bucket,
        prefix=prefix,
        sns=SNSVerifier(_get, topics) if topics else None,
        confirm=_get,
    )


def _get(url: str) -> bytes:
    """Fetch an address of SNS; it has been checked, and no redirection is followed."""
    import httpx

    try:
        answer = httpx.get(url, timeout=10, follow_redirects=False)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise OSError(f"{url} cannot be fetched") from error
    return answer.content[:100_000]
