"""From the body of a webhook request to events: which objects may have changed.

Understood are S3 notifications, plain or in an SNS or EventBridge envelope, those of MinIO, filer events of SeaweedFS,
and a plain form for other stores: ``{"events": [{"key": "a/b.md"}]}``.

Invariants:
- A key is decoded once: S3 notifications are form-encoded, all other forms hold keys as they are.
- An event is a hint. It says where to look, never what is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_plus

import msgspec

MOST_EVENTS: Final = 10_000  # in one request
MOST_KEY_BYTES: Final = 4_096  # S3 allows 1,024, a file system 4,096
_BUCKETS: Final = "/buckets/"  # where SeaweedFS keeps its S3 buckets


class EventError(ValueError):
    """A request that holds no events that are understood."""


class Event(msgspec.Struct, frozen=True):
    """An object that may have changed.

    Attributes:
        key: of the object within its bucket.
        bucket: that holds it; empty where the form does not tell.
        sequencer: orders the events of one key: hexadecimal digits; empty where the store gives none.
        id: equal for two deliveries of one event; empty where the store gives nothing to tell by.
        surplus: whether the store sends events of everything, so that one of another place is no mistake.
    """

    key: str
    bucket: str = ""
    sequencer: str = ""
    id: str = ""
    surplus: bool = False


def read_events(body: bytes) -> list[Event]:
    """Return the events of a request.

    Raises:
        EventError: when it is not understood, or holds too many events, or an event without a usable key.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise EventError("the body is not valid JSON") from error
    if not isinstance(value, dict):
        raise EventError("the body is not a JSON object")
    try:
        found = list(_events(value))
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise EventError(f"a field is missing or of another type: {type(error).__name__}") from error
    if len(found) > MOST_EVENTS:
        raise EventError(f"{len(found):,} events, more than the {MOST_EVENTS:,} of one request")
    for event in found:
        _check_key(event.key)
    return found


def sns_message(value: Mapping[str, Any]) -> bytes:
    """Return the body within an SNS notification.

    Raises:
        EventError: when there is none.
    """
    message = value.get("Message")
    if not isinstance(message, str):
        raise EventError("an SNS notification without a message")
    return message.encode()


def _events(value: dict[str, Any]) -> Iterator[Event]:
    forms: Sequence[tuple[str, Callable[[dict[str, Any]], Iterator[Event]]]] = (
        ("Records", _s3_records),
        ("detail", _event_bridge),
        ("event_type", _seaweedfs),
        ("events", _plain),
    )
    for field, read in forms:
        if field in value:
            yield from read(value)
            return
    if value.get("Event") == "s3:TestEvent":
        return
    raise EventError(f"none of the fields {', '.join(name for name, _ in forms)} is there")


def _s3_records(value: dict[str, Any]) -> Iterator[Event]:
    for record in value["Records"] or []:
        s3 = record["s3"]
        one = s3["object"]
        yield _event(
            unquote_plus(_text(one["key"]), errors="strict"),
            _text(s3["bucket"]["name"]),
            one.get("sequencer"),
            (record.get("eventName"), record.get("eventTime"), one.get("versionId"), one.get("eTag")),
        )


def _event_bridge(value: dict[str, Any]) -> Iterator[Event]:
    detail = value["detail"]
    one = detail["object"]
    yield _event(
        _text(one["key"]), _text(detail["bucket"]["name"]), one.get("sequencer"), (value.get("id"), value.get("time"))
    )


def _seaweedfs(value: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of a filer: of the old and of the new place of what was renamed."""
    message = value["message"]
    old, new = message.get("old_entry"), message.get("new_entry")
    if (new or old or {}).get("is_directory"):
        return
    paths = [_text(value["key"])]
    if new is not None and message.get("new_parent_path"):
        paths.append(f"{_text(message['new_parent_path'])}/{_text(new['name'])}")
    for path in dict.fromkeys(paths):
        bucket, _, key = path.removeprefix(_BUCKETS).partition("/")
        if path.startswith(_BUCKETS) and key and not bucket.startswith("."):
            yield Event(key, bucket, surplus=True)


def _plain(value: dict[str, Any]) -> Iterator[Event]:
    for one in value["events"]:
        name = one.get("id")
        own = (name,) if name is not None else ()
        yield _event(_text(one["key"]), _text(one.get("bucket", "")), one.get("sequencer"), own)


def _event(key: str, bucket: str, sequencer: object, own: tuple[object, ...]) -> Event:
    """Return an event; its id is a digest of what tells it from others, where anything does."""
    order = _text(sequencer) if sequencer is not None else ""
    if order.strip("0123456789abcdefABCDEF"):
        raise EventError("a sequencer that is not hexadecimal")
    known = [part for part in (order, *own) if part not in (None, "")]
    digest = hashlib.sha256(json.dumps([bucket, key, order, *map(str, own)]).encode("utf-8", "backslashreplace"))
    return Event(key, bucket, order, digest.hexdigest()[:32] if known else "")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EventError(f"a field holds {type(value).__name__}, expected text")
    return value


def _check_key(key: str) -> None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise EventError("a key that is not valid Unicode") from None
    if not key or "\0" in key or size > MOST_KEY_BYTES:
        raise EventError("a key that is empty, too long or holds NUL")
    if not {".", ".."}.isdisjoint(key.split("/")):
        raise EventError("a key with . or .. between its slashes")
