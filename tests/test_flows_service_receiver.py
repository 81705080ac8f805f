"""The receiver: what is accepted, what is refused, and that a refusal changes nothing and tells no secret."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.x509.oid import NameOID
from fastapi.testclient import TestClient

from flows.service.inbox import Inbox
from flows.service.receiver import ReceiverOptions, make_app
from flows.service.signatures import Forbidden, SNSVerifier, check_sns_host, sign

TOKEN, SECRET = "token-7f3a", "secret-91bc"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OPTIONS = ReceiverOptions(token=TOKEN, secret=SECRET, bucket="docs", prefix="published/", most_bytes=10_000)
CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    made = Inbox(tmp_path / "inbox.sqlite")
    yield made
    made.close()


@pytest.fixture
def client(inbox: Inbox) -> Iterator[TestClient]:
    with TestClient(make_app(inbox, OPTIONS, lambda: {"revision": 7})) as made:
        yield made


def notification(key: str = "published/a b.md", bucket: str = "docs", sequencer: str = "0A") -> bytes:
    one = {"key": key.replace(" ", "+"), "sequencer": sequencer}
    return json.dumps({"Records": [{"s3": {"bucket": {"name": bucket}, "object": one}}]}).encode()


def keys(inbox: Inbox) -> list[str]:
    return [one.key for one in inbox.take(1_000)]


def test_an_event_is_acknowledged_once_it_is_in_the_inbox(client: TestClient, inbox: Inbox) -> None:
    answer = client.post("/events", content=notification(), headers=BEARER)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "duplicates": 0})
    assert keys(inbox) == ["a b.md"]
    assert client.post("/events", content=notification(), headers=BEARER).json() == {"accepted": 0, "duplicates": 1}


def test_an_event_of_a_sidecar_is_one_of_its_document(client: TestClient, inbox: Inbox) -> None:
    client.post("/events", content=notification("published/a.md.metadata.json"), headers=BEARER)
    assert keys(inbox) == ["a.md"]


def test_a_signed_event_needs_no_token(client: TestClient, inbox: Inbox) -> None:
    body = notification()
    headers = {"X-Gristmill-Signature": sign(body, SECRET, time.time())}
    assert client.post("/events", content=body, headers=headers).status_code == 202 and keys(inbox) == ["a b.md"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (notification(), {}, 401),
        (notification(), {"Authorization": "Bearer wrong"}, 401),
        (notification(), {"Authorization": TOKEN}, 401),
        (notification(), {"Authorization": "Bearer "}, 401),
        (notification(), {"X-Gristmill-Signature": sign(notification(), "wrong", time.time())}, 401),
        (notification(), {"X-Gristmill-Signature": sign(b"other", SECRET, time.time())}, 401),
        (notification(), {"X-Gristmill-Signature": sign(notification(), SECRET, time.time() - 3_600)}, 401),
        (notification(), {"X-Gristmill-Signature": sign(notification(), SECRET, time.time() + 3_600)}, 401),
        (notification(), {"X-Gristmill-Signature": "t=,v1="}, 401),
        (notification(), {"X-Gristmill-Signature": "nonsense"}, 401),
        (notification(), {"x-amz-sns-message-type": "Notification"}, 401),
        (notification(bucket="other"), BEARER, 403),
        (notification(key="private/a.md"), BEARER, 403),
        (b"{", BEARER, 422),
        (b"", BEARER, 422),
        (b'{"events": [{"key": "published/../../etc/passwd"}]}', BEARER, 422),
        (b" " * 10_001, BEARER, 413),
    ],
)
def test_what_is_refused_changes_nothing(
    client: TestClient, inbox: Inbox, body: bytes, headers: dict[str, str], status: int, caplog: Any
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = client.post("/events", content=body, headers=headers)
    assert answer.status_code == status and answer.json()["error"]
    assert inbox.counts().received == 0
    said = caplog.text + answer.text + repr(OPTIONS)
    assert TOKEN not in said and SECRET not in said and "passwd" not in said
    assert any("refused" in record.message for record in caplog.records)


def test_a_body_without_a_length_is_read_to_the_limit(client: TestClient) -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while read < 100_000_000:
            read += 1_000
            yield b" " * 1_000

    assert client.post("/events", content=endless(), headers=BEARER).status_code == 413


def test_events_of_everything_are_sifted(client: TestClient, inbox: Inbox) -> None:
    for path in ("/buckets/other/x.md", "/buckets/docs/private/x.md", "/buckets/docs/published/x.md", "/topics/x"):
        value = {"event_type": "update", "key": path, "message": {"new_entry": {"name": "x.md"}}}
        assert client.post("/events", json=value, headers=BEARER).status_code == 202
    assert keys(inbox) == ["x.md"]


def test_a_full_disk_is_not_acknowledged(client: TestClient, inbox: Inbox) -> None:
    inbox._base.execute("PRAGMA max_page_count = 1")
    many = {"events": [{"key": f"published/{number}-{'x' * 90}.md"} for number in range(80)]}
    answers = [client.post("/events", json=many, headers=BEARER) for _ in range(8)]
    assert answers[-1].status_code == 503 and answers[-1].headers["Retry-After"]


def test_status_needs_the_token_and_health_does_not(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/status").status_code == 401
    found = client.get("/status", headers=BEARER).json()
    assert found["revision"] == 7 and found["inbox"]["waiting"] == 0
    for path in ("/docs", "/openapi.json", "/redoc"):
        assert client.get(path).status_code == 404


# SNS: signed by an authority of the tests.


def issue(name: str, key: RSAPrivateKey, by: RSAPrivateKey, issuer: str, days: int = 30) -> x509.Certificate:
    today = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=60))
        .not_valid_after(today + timedelta(days=days))
        .sign(by, hashes.SHA256())
    )


class Topic:
    """A topic of SNS as Amazon runs it, with an authority of its own."""

    arn = "arn:aws:sns:eu-west-1:1:docs"

    def __init__(self, days: int = 30) -> None:
        authority = generate_private_key(65537, 2048)
        self.key = generate_private_key(65537, 2048)
        self.authority = issue("authority", authority, authority, "authority")
        self.certificate = issue("sns.amazonaws.com", self.key, authority, "authority", days)
        self.fetched: list[str] = []
        self.confirmed: list[str] = []

    def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def message(self, version: str = "2", **changes: Any) -> dict[str, Any]:
        value = {
            "Type": "Notification",
            "MessageId": "1",
            "TopicArn": self.arn,
            "Message": notification().decode(),
            "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "SignatureVersion": version,
            "SigningCertURL": CERTIFICATE,
        } | changes
        fields = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
        signed = "".join(f"{name}\n{value[name]}\n" for name in fields if name in value)
        algorithm = hashes.SHA256() if version == "2" else hashes.SHA1()
        return value | {"Signature": base64.b64encode(self.key.sign(signed.encode(), PKCS1v15(), algorithm)).decode()}

    def client(self, inbox: Inbox, *authorities: x509.Certificate) -> TestClient:
        options = ReceiverOptions(
            token=TOKEN,
            bucket="docs",
            prefix="published/",
            sns=SNSVerifier(self.fetch, (self.arn,), authorities or (self.authority,)),
            confirm=self.confirmed.append,
        )
        return TestClient(make_app(inbox, options))


SNS_HEADERS = {"x-amz-sns-message-type": "Notification"}


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_message_of_sns_is_known_by_its_signature(inbox: Inbox, version: str) -> None:
    topic = Topic()
    client = topic.client(inbox)
    for _ in range(2):
        assert client.post("/events", json=topic.message(version), headers=SNS_HEADERS).status_code == 202
    assert keys(inbox) == ["a b.md"] and topic.fetched == [CERTIFICATE]


def test_a_subscription_is_confirmed_at_amazon_alone(inbox: Inbox) -> None:
    topic = Topic()
    client = topic.client(inbox)
    own = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=1"
    for url, status in ((own, 202), ("https://evil.example/?Token=1", 401), ("http://169.254.169.254/", 401)):
        message = topic.message(Type="SubscriptionConfirmation", SubscribeURL=url, Token="1")
        assert client.post("/events", json=message, headers=SNS_HEADERS).status_code == status
    assert topic.confirmed == [own]


Change = Callable[[Topic], dict[str, Any]]


@pytest.mark.parametrize(
    "change",
    [
        lambda topic: topic.message() | {"Message": notification("published/forged.md").decode()},
        lambda topic: topic.message() | {"Signature": "AAAA"},
        lambda topic: topic.message() | {"Signature": "not base64!"},
        lambda topic: topic.message(SignatureVersion="3"),
        lambda topic: topic.message(TopicArn="arn:aws:sns:eu-west-1:1:other"),
        lambda topic: topic.message(SigningCertURL="https://evil.example/SimpleNotificationService.pem"),
        lambda topic: topic.message(SigningCertURL="http://sns.eu-west-1.amazonaws.com/x.pem"),
        lambda topic: topic.message(SigningCertURL=7),
        lambda topic: topic.message(Timestamp="2020-01-01T00:00:00.000Z"),
        lambda topic: topic.message(Timestamp="yesterday"),
        lambda topic: topic.message(Type="Other"),
    ],
)
def test_a_forged_message_of_sns_is_refused(inbox: Inbox, change: Change) -> None:
    topic = Topic()
    assert topic.client(inbox).post("/events", json=change(topic), headers=SNS_HEADERS).status_code == 401
    assert inbox.counts().received == 0


def test_a_message_whose_certificate_cannot_be_fetched_comes_again(inbox: Inbox) -> None:
    topic = Topic()
    client = topic.client(inbox)

    def away(url: str) -> bytes:
        raise OSError("no route")

    topic.fetch, real = away, topic.fetch  # type: ignore[method-assign]
    verifier = SNSVerifier(lambda url: topic.fetch(url), (topic.arn,), (topic.authority,))
    options = ReceiverOptions(bucket="docs", prefix="published/", sns=verifier)
    client = TestClient(make_app(inbox, options))
    assert client.post("/events", json=topic.message(), headers=SNS_HEADERS).status_code == 503
    topic.fetch = real  # type: ignore[method-assign]
    assert client.post("/events", json=topic.message(), headers=SNS_HEADERS).status_code == 202
    assert keys(inbox) == ["a b.md"]


def test_a_sidecar_is_not_ordered_with_its_document(client: TestClient, inbox: Inbox) -> None:
    client.post("/events", content=notification("published/a.md", sequencer="FF"), headers=BEARER)
    inbox.done(inbox.take(10))
    client.post("/events", content=notification("published/a.md.metadata.json", sequencer="0A"), headers=BEARER)
    assert keys(inbox) == ["a.md"]


def test_a_certificate_of_another_authority_or_time_is_refused(inbox: Inbox) -> None:
    topic, other, expired = Topic(), Topic(), Topic(days=-1)
    assert (
        topic.client(inbox, other.authority).post("/events", json=topic.message(), headers=SNS_HEADERS).status_code
        == 401
    )
    assert expired.client(inbox).post("/events", json=expired.message(), headers=SNS_HEADERS).status_code == 401
    assert inbox.counts().received == 0


@pytest.mark.parametrize(
    "url",
    [
        "https://sns.eu-west-1.amazonaws.com.evil.example/x.pem",
        "https://evil.example/sns.eu-west-1.amazonaws.com/x.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.example/x.pem",
        "https://user@sns.eu-west-1.amazonaws.com/x.pem",
        "https://sns.eu-west-1.amazonaws.com:8443/x.pem",
        "https://sns.eu-west-1.amazonaws.com/x.exe?y.pem",
        "https://s3.eu-west-1.amazonaws.com/bucket/x.pem",
        "ftp://sns.eu-west-1.amazonaws.com/x.pem",
        "https://[x.pem",
        "",
    ],
)
def test_only_addresses_of_sns_are_followed(url: str) -> None:
    with pytest.raises(Forbidden):
        check_sns_host(url, ".pem")
    assert check_sns_host(CERTIFICATE, ".pem") == CERTIFICATE
