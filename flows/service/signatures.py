"""Proofs that a webhook request comes from who it says: a bearer token, an HMAC signature, or SNS's own signature.

Invariants:
- Secrets are compared in constant time, and are in no message.
- A signature holds within a few minutes of its time, so that a recorded request is refused.
- A certificate of SNS is fetched from Amazon's own hosts alone, over HTTPS, and must be in force.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

WINDOW: Final = 300.0  # seconds
# https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
_HOST: Final = re.compile(r"sns\.[a-z]{2,}(-[a-z0-9]+)+\.amazonaws\.com(\.cn)?")
_FIELDS: Final = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
_HASHES: Final[dict[object, Callable[[], hashes.HashAlgorithm]]] = {"1": hashes.SHA1, "2": hashes.SHA256}


class Forbidden(Exception):
    """A request that does not prove where it comes from; its message holds no secret."""


def check_bearer(header: str, token: str) -> None:
    """Check the header ``Authorization: Bearer TOKEN``.

    Raises:
        Forbidden: when it is absent or another one.
    """
    scheme, _, given = header.partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise Forbidden("no valid bearer token")


def sign(body: bytes, secret: str, now: float) -> str:
    """Return the value of the header ``X-Gristmill-Signature`` for a body sent now."""
    at = str(int(now))
    return f"t={at},v1={hmac.new(secret.encode(), at.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def check_hmac(header: str, body: bytes, secret: str, now: float) -> None:
    """Check the header ``X-Gristmill-Signature: t=SECONDS,v1=HEX``, HMAC-SHA256 of ``SECONDS.BODY``.

    Raises:
        Forbidden: when it is absent, forged, or not of these minutes.
    """
    parts = dict(part.strip().partition("=")[::2] for part in header.split(","))
    at = parts.get("t", "")
    if not (at.isascii() and at.isdigit() and len(at) < 16):
        raise Forbidden("no valid signature")
    expected = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(parts.get("v1", "").encode(), expected.encode()):
        raise Forbidden("no valid signature")
    if abs(now - int(at)) > WINDOW:
        raise Forbidden(f"a signature of another time than the last {WINDOW / 60:.0f} minutes")


def check_sns_host(url: object, ending: str = "") -> str:
    """Return an address of SNS.

    Raises:
        Forbidden: when it is not at one of Amazon's own hosts, over HTTPS.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Forbidden("an address that is no URL") from None
    plain = parts.scheme == "https" and parts.netloc == host and port is None
    if not plain or not _HOST.fullmatch(host) or not parts.path.endswith(ending) or not isinstance(url, str):
        raise Forbidden("an address that is not one of Amazon SNS")
    return url


class SNSVerifier:
    """Checks the signatures of SNS messages.

    Args:
        fetch: returns the bytes of a certificate's address.
        topics: topics whose messages are accepted.
        authorities: certificates one of which must have signed that of SNS; none to trust the address alone.
    """

    def __init__(
        self,
        fetch: Callable[[str], bytes],
        topics: tuple[str, ...],
        authorities: tuple[x509.Certificate, ...] = (),
    ) -> None:
        self._fetch = fetch
        self._topics = topics
        self._authorities = authorities
        self._known: dict[str, x509.Certificate] = {}

    def check(self, message: Mapping[str, Any], now: float) -> None:
        """Check the signature of a message.

        Raises:
            Forbidden: saying what is wrong.
            OSError: when the certificate cannot be fetched now; SNS sends its message again.
        """
        if message.get("TopicArn") not in self._topics:
            raise Forbidden("a message of another SNS topic")
        fields = _FIELDS.get(str(message.get("Type")))
        algorithm = _HASHES.get(message.get("SignatureVersion"))
        if fields is None or algorithm is None:
            raise Forbidden("an SNS message of an unknown type or signature version")
        self._check_time(message, now)
        certificate = self._certificate(check_sns_host(message.get("SigningCertURL"), ".pem"), now)
        signed = "".join(f"{name}\n{message[name]}\n" for name in fields if name in message).encode()
        key = certificate.public_key()
        try:
            signature = base64.b64decode(str(message.get("Signature")), validate=True)
            assert isinstance(key, RSAPublicKey)
            key.verify(signature, signed, PKCS1v15(), algorithm())
        except (ValueError, AssertionError, InvalidSignature):
            raise Forbidden("an SNS message without a valid signature") from None
        if message["Type"] != "Notification":
            check_sns_host(message.get("SubscribeURL"))

    def _check_time(self, message: Mapping[str, Any], now: float) -> None:
        """Refuse an old message; SNS itself retries for up to an hour."""
        try:
            sent = datetime.fromisoformat(str(message.get("Timestamp"))).timestamp()
        except ValueError:
            raise Forbidden("an SNS message without a time") from None
        if not now - 3_600 - WINDOW <= sent <= now + WINDOW:
            raise Forbidden("an SNS message of another time")

    def _certificate(self, url: str, now: float) -> x509.Certificate:
        if url not in self._known:
            try:
                found = x509.load_pem_x509_certificate(self._fetch(url))
            except ValueError:
                raise Forbidden("an SNS certificate that cannot be read") from None
            if self._authorities and not any(map(_signed_by(found), self._authorities)):
                raise Forbidden("an SNS certificate of an unknown authority")
            self._known = {url: found}
        certificate = self._known[url]
        today = datetime.fromtimestamp(now, UTC)
        if not certificate.not_valid_before_utc <= today <= certificate.not_valid_after_utc:
            raise Forbidden("an SNS certificate that is not in force")
        return certificate


def _signed_by(certificate: x509.Certificate) -> Callable[[x509.Certificate], bool]:
    def signed(authority: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    return signed
