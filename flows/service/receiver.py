"""The webhook receiver: checks a request, and acknowledges its events once they are in the inbox.

Invariants:
- Nothing is acknowledged before it is on disk; nothing is built here.
- A refused request changes nothing, and is logged with its reason and sender, never with its body or a secret.
- No more of a body is read than the limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from flows.service.events import Event, EventError, read_events, sns_message
from flows.service.inbox import Inbox, Received
from flows.service.signatures import Forbidden, SNSVerifier, check_bearer, check_hmac
from flows.sources.s3_listing import SIDECAR

_NO_EVENTS: Final = b'{"events": []}'

_LOG: Final = logging.getLogger(__name__)


class ReceiverOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the receiver.

    Attributes:
        token: that a request must bear; empty for none.
        secret: by which a request may be signed instead; empty for none.
        bucket: whose events are accepted; empty where the form tells none.
        prefix: with which their keys begin, and which is not part of the source's keys.
        most_bytes: of a body.
        sns: checks messages of SNS; None where none are expected.
        confirm: called with the address by which a subscription to SNS is confirmed.
    """

    token: str = ""
    secret: str = ""
    bucket: str = ""
    prefix: str = ""
    most_bytes: int = 2**20
    sns: SNSVerifier | None = None
    confirm: Callable[[str], object] | None = None

    def __repr__(self) -> str:
        return f"ReceiverOptions(bucket={self.bucket!r}, prefix={self.prefix!r})"


class RefusedRequest(Exception):
    """A request that is refused: its HTTP status, and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def make_app(inbox: Inbox, options: ReceiverOptions, status: Callable[[], dict[str, Any]] | None = None) -> FastAPI:
    """Return the web application.

    Args:
        status: gives what ``GET /status`` shows to who bears the token.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status")
    async def show_status(request: Request) -> JSONResponse:
        try:
            _check_sender(options, request, None)
        except Forbidden as error:
            return _refusal(request, RefusedRequest(401, str(error)))
        shown = await asyncio.to_thread(status) if status is not None else {}
        return JSONResponse(shown | {"inbox": msgspec.to_builtins(await asyncio.to_thread(inbox.counts))})

    @app.post("/events")
    async def receive(request: Request) -> JSONResponse:
        try:
            events = await _events(options, request)
            received = await asyncio.wrap_future(inbox.add_soon(events)) if events else Received(0, 0)
        except RefusedRequest as error:
            return _refusal(request, error)
        except Exception:  # a full disk, or Amazon away: the sender is to send it again
            _LOG.exception("an event could not be taken")
            return JSONResponse({"error": "the event could not be taken"}, 503, {"Retry-After": "30"})
        return JSONResponse(received._asdict(), 202)

    return app


async def _events(options: ReceiverOptions, request: Request) -> list[Event]:
    """Return the events of a request that proves where it comes from.

    Raises:
        RefusedRequest: when it does not, or holds none of this source.
    """
    body = await _body(request, options.most_bytes)
    try:
        if options.sns is not None and "x-amz-sns-message-type" in request.headers:
            body = await asyncio.to_thread(_from_sns, options, body)
        else:
            _check_sender(options, request, body)
        return _of_this_source(options, read_events(body))
    except Forbidden as error:
        raise RefusedRequest(401, str(error)) from error
    except EventError as error:
        raise RefusedRequest(422, str(error)) from error


async def _body(request: Request, most: int) -> bytes:
    """Read a body up to the limit, whatever length it says it has."""
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) > most:
            raise RefusedRequest(413, f"a body of more than {most:,} bytes")
    return bytes(held)


def _check_sender(options: ReceiverOptions, request: Request, body: bytes | None) -> None:
    """Check the bearer token or the signature of a request.

    Raises:
        Forbidden: when it has neither.
    """
    signature = request.headers.get("x-gristmill-signature")
    if options.secret and signature is not None and body is not None:
        check_hmac(signature, body, options.secret, time.time())
    elif options.token:
        check_bearer(request.headers.get("authorization", ""), options.token)
    elif options.secret:
        raise Forbidden("no signature")


def _from_sns(options: ReceiverOptions, body: bytes) -> bytes:
    """Return the message within an SNS notification; no events for a confirmation, which is answered."""
    assert options.sns is not None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise EventError("the body is not valid JSON") from None
    if not isinstance(message, dict):
        raise EventError("the body is not a JSON object")
    options.sns.check(message, time.time())
    if message["Type"] == "Notification":
        return sns_message(message)
    if message["Type"] == "SubscriptionConfirmation" and options.confirm is not None:
        options.confirm(message["SubscribeURL"])
    return _NO_EVENTS


def _of_this_source(options: ReceiverOptions, events: list[Event]) -> list[Event]:
    """Return the events of this source under its keys.

    Raises:
        RefusedRequest: when one is of another bucket or prefix, unless the store sends events of everything.
    """
    own = []
    for event in events:
        here = not event.bucket or event.bucket == options.bucket
        if here and event.key.startswith(options.prefix):
            key = event.key[len(options.prefix) :].removesuffix(SIDECAR)
            # The order of a sidecar's events says nothing about those of its document.
            sequencer = "" if event.key.endswith(SIDECAR) else event.sequencer
            if key and not key.endswith("/"):
                own.append(msgspec.structs.replace(event, key=key, sequencer=sequencer))
        elif not event.surplus:
            raise RefusedRequest(403, "an event of another bucket or prefix")
    return own


def _refusal(request: Request, error: RefusedRequest) -> JSONResponse:
    sender = request.client.host if request.client is not None else "unknown"
    _LOG.warning("refused a request of %s with %d: %s", sender, error.status, error.reason)
    return JSONResponse({"error": error.reason}, error.status)
