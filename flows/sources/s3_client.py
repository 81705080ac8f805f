"""Connecting to an S3 store, and what its errors mean in plain words.

Invariants:
- No message holds a secret: neither credentials nor what stands before the host in an endpoint's address.
- An outage is told from a mistake: only what may pass by itself is transient.
"""

from __future__ import annotations

import errno
import re
from functools import cache
from typing import Any, Final, NamedTuple

from parsers.errors import SourceError

_ADDRESS: Final = re.compile(r"s3://([A-Za-z0-9][A-Za-z0-9._-]*)(?:/(.*))?", re.DOTALL)
_LONGEST: Final = 300  # characters of the words of a library or a store in a message

_KEYS: Final = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) to a valid set of this store."
_ENDPOINT: Final = "Check AWS_ENDPOINT_URL, the network and that the store runs."
_FAULT: Final = "The store has a fault of its own: try again."
_ALLOW: Final = "Allow these credentials s3:ListBucket, s3:GetObject and s3:GetObjectTagging."
_ANSWERS: Final = {
    "NoSuchBucket": ("there is no such bucket", "Correct the bucket's name or AWS_ENDPOINT_URL."),
    "InvalidBucketName": ("the bucket's name is not allowed", "Correct it."),
    "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidSecurity": ("the credentials are wrong", _KEYS),
    "ExpiredToken ExpiredTokenException TokenRefreshRequired": ("the credentials have expired", _KEYS),
    "AccessDenied AllAccessDisabled AccountProblem Forbidden 403": ("access is denied", _ALLOW),
    "RequestTimeTooSkewed RequestExpired": ("the clocks here and of the store differ", "Set the clock, best by NTP."),
    "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException 301": (
        "the bucket is in another region",
        "Set AWS_DEFAULT_REGION to the bucket's region.",
    ),
    "InvalidObjectState": ("archived; restore it first", ""),
    "NotImplemented 501": ("the store does not offer this", "Use a store that does."),
}
_LASTING: Final = ("NotImplemented", "501", "505", "507")  # answers above 500 that no time mends
_PASSING: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "InternalServerError", "RequestTimeout", "TooManyRequests"}
    | {"RequestTimeoutException", "Throttling", "ThrottlingException", "RequestLimitExceeded", "OperationAborted"}
    | {"BandwidthLimitExceeded", "408", "429", "500", "502", "503", "504"}
)
_EXPIRED: Final = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")


class S3Failure(NamedTuple):
    """What an error of boto3 means.

    Attributes:
        what: went wrong, in plain words.
        remedy: the next step for the reader; empty where there is none.
        transient: whether it may pass by itself.
    """

    what: str
    remedy: str
    transient: bool = False

    def for_object(self) -> OSError:
        """Return the error of one object that cannot be read."""
        number = errno.EACCES if self.what.startswith("access is denied") else errno.EIO
        remedy = self.remedy.rstrip(".")
        return OSError(number, f"{self.what}; {remedy[:1].lower()}{remedy[1:]}" if remedy else self.what)


def split_s3_address(address: str) -> tuple[str, str]:
    """Return bucket and prefix of an address, the prefix empty or with a final slash.

    Raises:
        SourceError: when it names no place in a bucket.
    """
    found = _ADDRESS.fullmatch(address)
    prefix = ((found[2] or "") if found else "").rstrip("/")
    if found is None or (prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/"))) or "\0" in prefix:
        # A malformed address is not repeated: something secret may stand in it.
        raise SourceError(
            "source: this address that begins with s3:// is no place in a bucket",
            "Give s3://BUCKET/PREFIX, without empty names, . or .. between the slashes. "
            "Credentials and endpoint are those that boto3 finds (AWS_ACCESS_KEY_ID …, AWS_ENDPOINT_URL).",
        )
    return found[1], f"{prefix}/" if prefix else ""


def connect_s3(address: str, attempts: int, timeout: float) -> Any:
    """Return boto3's client for the endpoint, region and credentials that it finds itself.

    Args:
        address: of the source, for messages.
        attempts: how often a request is tried in all.
        timeout: seconds without a byte after which a try has failed.

    Raises:
        SourceError: when what boto3 finds cannot be used.
    """
    import boto3.session  # a third of a second, which a folder as a source need not pay
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=min(timeout, 10.0),
        read_timeout=timeout,
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=32,
    )
    found = botocore.session.Session()
    found.register_component("data_loader", _loader())
    try:
        return boto3.session.Session(botocore_session=found).client("s3", config=config)
    except ValueError as error:
        raise SourceError(f"source {address}: {shown_without_secrets(error)}", "Correct AWS_ENDPOINT_URL.") from error
    except s3_errors() as error:
        failure = explain_s3(error)
        raise SourceError(f"source {address} cannot be read: {failure.what}", failure.remedy) from error


@cache
def _loader() -> Any:
    """Return a loader that caches descriptions of requests, a tenth of a second per client."""
    from botocore.loaders import create_loader

    return create_loader()


def s3_errors() -> tuple[type[Exception], ...]:
    """Return the classes of all errors that a request to S3 may raise."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return (BotoCoreError, ClientError, ResponseParserError, UnicodeError)


def broken_off() -> tuple[type[Exception], ...]:
    """Return the classes of errors by which the body of an answer breaks off."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    return (HTTPClientError, IncompleteReadError, ConnectionError)


def damaged() -> tuple[type[Exception], ...]:
    """Return the classes of errors that tell of a wrong checksum."""
    from botocore.exceptions import FlexibleChecksumError

    return (FlexibleChecksumError,)


def explain_s3(error: Exception) -> S3Failure:
    """Return what an error of a request to S3 means."""
    from botocore import exceptions as known

    if isinstance(error, known.ClientError):
        return _explain_answer(s3_code(error), s3_status(error), error.response.get("Error", {}).get("Message"))
    missing = (known.NoCredentialsError, known.PartialCredentialsError, known.CredentialRetrievalError)
    if isinstance(error, (*missing, known.SSOError, known.TokenRetrievalError, known.ProfileNotFound)):
        return S3Failure(f"no credentials were found: {shown_without_secrets(error)}", _KEYS)
    if isinstance(error, (known.HTTPClientError, known.ConnectionError, known.IncompleteReadError)):
        return S3Failure(f"its store cannot be reached: {shown_without_secrets(error)}", _ENDPOINT, transient=True)
    if isinstance(error, known.BotoCoreError):
        return S3Failure(f"its store cannot be asked: {shown_without_secrets(error)}", _ENDPOINT)
    if isinstance(error, OSError):
        return S3Failure(f"its store cannot be asked: {error.strerror or error}", _ENDPOINT)
    return S3Failure("what answers is not S3's language", "Check that AWS_ENDPOINT_URL names an S3 store.")


def _explain_answer(code: str, status: int, words: str | None) -> S3Failure:
    """Return what an answer of the store means that names an error."""
    what, remedy = next(
        (known for codes, known in _ANSWERS.items() if code in codes.split()),
        (shown_without_secrets(words or code or "an unnamed error"), "Try again; if it stays, ask who runs the store."),
    )
    passing = (status >= 500 and code not in _LASTING) or code in _PASSING
    named = "" if not code or code.isdigit() or code in what else f" ({code})"
    return S3Failure(f"{what}{named}", _FAULT if passing else remedy, passing or code in _EXPIRED)


def s3_code(error: Any) -> str:
    """Return S3's name of an error, in digits for an answer without a body."""
    return error.response.get("Error", {}).get("Code") or ""


def s3_status(error: Any) -> int:
    """Return the HTTP status of an answer that names an error."""
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def is_missing(error: Any) -> bool:
    """Return whether an answer says that there is no such object."""
    return s3_status(error) == 404 and s3_code(error) != "NoSuchBucket"


def shown_without_secrets(words: object) -> str:
    """Return the words of a library without credentials in addresses, and not too many."""
    text = re.sub(r"://[^/\s\"']*@", "://", str(words))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
