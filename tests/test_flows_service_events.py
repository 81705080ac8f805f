"""Events of every form that is understood: where to look, with keys decoded once."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.service.events import Event, EventError, read_events, sns_message

KEYS = ["a b.md", "a+b.md", "50%25.md", "%2e%2e.md", "ü/\U0001f600.md", "a&b=c;d.md", "x" * 900]


def s3(key: str, bucket: str = "docs", **more: Any) -> dict[str, Any]:
    one = {"key": quote_plus(key, safe="/"), "sequencer": "0A", "eTag": "e"} | more
    return {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": one}}


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


FORMS = {
    "S3": lambda key: {"Records": [s3(key)]},
    "MinIO": lambda key: {"EventName": "s3:ObjectCreated:Put", "Key": f"docs/{key}", "Records": [s3(key)]},
    "EventBridge": lambda key: {
        "id": "1",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": "docs"}, "object": {"key": key, "sequencer": "0A"}},
    },
    "SeaweedFS": lambda key: {
        "event_type": "create",
        "key": f"/buckets/docs/{key}",
        "message": {
            "new_entry": {"name": key.rsplit("/", 1)[-1]},
            "new_parent_path": f"/buckets/docs/{key}".rsplit("/", 1)[0],
        },
    },
    "plain": lambda key: {"events": [{"key": key, "bucket": "docs"}]},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_decoded_once(form: str, key: str) -> None:
    found = read_events(body(FORMS[form](key)))
    assert [(one.key, one.bucket) for one in found] == [(key, "docs")]


@given(st.text(min_size=1, max_size=40))
def test_any_key_comes_through_or_is_refused(key: str) -> None:
    try:
        found = read_events(body(FORMS["S3"](key)))
    except (EventError, UnicodeEncodeError):
        assert "\0" in key or not {".", ".."}.isdisjoint(key.split("/"))
    else:
        assert [one.key for one in found] == [key]


def test_the_message_of_sns_is_a_body() -> None:
    inner = body(FORMS["S3"]("a b.md")).decode()
    assert read_events(sns_message({"Message": inner}))[0].key == "a b.md"
    with pytest.raises(EventError):
        sns_message({"Message": 7})


def test_two_deliveries_of_an_event_have_one_id_and_two_events_have_two() -> None:
    first, second = (read_events(body({"Records": [s3("a.md", sequencer=order)]}))[0] for order in ("0A", "0B"))
    assert first == read_events(body({"Records": [s3("a.md", sequencer="0A")]}))[0]
    assert first.id != second.id and first.id
    plain = read_events(body({"events": [{"key": "a.md"}]}))[0]
    assert plain.id == "", "nothing tells it from the next one, so neither is dropped"
    assert read_events(body({"events": [{"key": "a.md", "id": 7}]}))[0].id


def test_a_rename_of_the_filer_is_an_event_of_both_places() -> None:
    message = {"old_entry": {"name": "a.md"}, "new_entry": {"name": "b.md"}, "new_parent_path": "/buckets/docs/new"}
    found = read_events(body({"event_type": "rename", "key": "/buckets/docs/a.md", "message": message}))
    assert [one.key for one in found] == ["a.md", "new/b.md"] and all(one.surplus for one in found)


@pytest.mark.parametrize(
    "value",
    [
        {"Event": "s3:TestEvent", "Bucket": "docs"},
        {"Records": []},
        {
            "event_type": "create",
            "key": "/buckets/docs/a",
            "message": {"new_entry": {"name": "a", "is_directory": True}},
        },
        {"event_type": "create", "key": "/buckets/.system/x", "message": {"new_entry": {"name": "x"}}},
        {"event_type": "create", "key": "/topics/x", "message": {"new_entry": {"name": "x"}}},
    ],
)
def test_what_names_no_object_is_no_event(value: Any) -> None:
    assert read_events(body(value)) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b"[" * 100_000,
        body({"Records": [{"s3": {}}]}),
        body({"Records": "text"}),
        body({"Records": [7]}),
        body({"Records": [s3("a.md", sequencer="xyz")]}),
        body({"Records": [s3("a.md") | {"s3": {"bucket": {"name": "b"}, "object": {"key": 7}}}]}),
        body({"Records": [s3("a.md") | {"s3": {"bucket": {"name": "b"}, "object": {"key": "%ff%fe"}}}]}),
        body({"events": [{"key": ""}]}),
        body({"events": [{"key": "../secret"}]}),
        body({"events": [{"key": "a\0b"}]}),
        body({"events": [{"key": "x" * 5_000}]}),
        body({"events": [{"key": "\udc80"}]}),
        body({"events": [{"key": "a"}] * 10_001}),
        body({"detail": {"bucket": {}}}),
        body({"event_type": "create", "key": "/buckets/docs/a", "message": []}),
    ],
)
def test_what_is_malformed_is_refused_without_its_text(data: bytes) -> None:
    with pytest.raises(EventError) as raised:
        read_events(data)
    assert "secret" not in str(raised.value) and len(str(raised.value)) < 120


def test_an_event_is_a_plain_value() -> None:
    assert read_events(body({"events": [{"key": "a.md"}]})) == [Event("a.md")]
