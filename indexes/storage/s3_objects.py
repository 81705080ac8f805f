"""Objects of an S3 bucket, and the clear error behind each of its answers.

Invariants:
- Of several that create a key, or replace the same state of it, exactly one is told that it did, however often an
  answer was lost.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from enrich.files import atomic_file
from indexes.storage.objects import BLOCK_BYTES, Conflict, Stat, checked_key, missing_object, unusable
from parsers.errors import StoreError

PAGE: Final = 1000  # S3's own limit for a page of a listing, and for one request to delete
PART: Final = 64 * 2**20
COLLISIONS: Final = 5


class S3Objects:
    """Objects below a prefix of an S3 bucket.

    Endpoint, region and credentials are those that boto3 finds: ``AWS_ENDPOINT_URL``, ``AWS_DEFAULT_REGION``,
    ``AWS_ACCESS_KEY_ID`` …, or the same from the user's AWS files. Any number of threads may share this object.

    A conditional write whose answer got lost may have landed: then the object is read back, and where it holds the
    bytes that were to be written, the write succeeded. So bytes written on a condition should tell their writers apart.

    Args:
        address: ``s3://bucket/prefix``.
        attempts: how often a request is tried in all.
        timeout: seconds without a byte after which a try has failed.

    Raises:
        StoreError: when the address, or what boto3 finds in the environment, cannot be used.
    """

    def __init__(self, address: str, *, attempts: int = 4, timeout: float = 30.0) -> None:
        place = address.removeprefix("s3://").rstrip("/")
        bucket, _, prefix = place.partition("/")
        # LanceDB takes an address for a URL, where these would name another place than they name here.
        doubtful = re.search(r"[%?#]|//|(^|/)\.\.?(/|$)", place)
        if not address.startswith("s3://") or not bucket or doubtful:
            raise StoreError(
                f"index {address}: this is no place in an S3 bucket",
                "Give s3://BUCKET/PREFIX, without %, ?, #, and without empty names, . or .. between the slashes.",
            )
        self.address = f"s3://{place}"
        self.seeks = False
        self._bucket = bucket
        self._above = f"{prefix}/" if prefix else ""
        self._timeout = timeout
        with self._told("connecting"):
            self._session, self._client = self._connect(attempts, timeout)

    def storage_options(self) -> dict[str, str]:
        """Return LanceDB's options for the same store; it finds credentials where boto3 does."""
        from botocore.config import Config

        endpoint: str = self._client.meta.endpoint_url
        usual: str = self._session.client("s3", config=Config(ignore_configured_endpoint_urls=True)).meta.endpoint_url
        region: str | None = self._session.region_name
        limits = {"timeout": f"{self._timeout:g}s", "connect_timeout": f"{min(self._timeout, 10.0):g}s"}
        options = limits | ({"region": region} if region else {})
        if endpoint == usual:
            return options
        options = limits | {"endpoint": endpoint, "region": self._client.meta.region_name}
        return options | ({"allow_http": "true"} if endpoint.startswith("http://") else {})

    def get(self, key: str) -> tuple[bytes, str] | None:
        from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

        with self._told(f"reading {key}"):
            for last in (False, False, True):
                try:
                    answer = self._client.get_object(Bucket=self._bucket, Key=self._key(key))
                except ClientError as error:
                    if _code(error) == "NoSuchKey":
                        return None
                    raise
                try:
                    data: bytes = answer["Body"].read()
                    return data, answer["ETag"]
                except (HTTPClientError, IncompleteReadError):  # here boto3 itself does not retry
                    if last:
                        raise
        raise AssertionError("the last try returns or raises")

    def blocks(self, key: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of an object from a place on, some at a time.

        Where the connection breaks, from there on again.
        """
        from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

        with self._told(f"reading {key}"):
            for last in (False, False, True):
                try:
                    answer = self._client.get_object(Bucket=self._bucket, Key=self._key(key), Range=f"bytes={start}-")
                    for block in answer["Body"].iter_chunks(BLOCK_BYTES):
                        start += len(block)
                        yield block
                    return
                except ClientError as error:
                    if _code(error) in ("NoSuchKey", "InvalidRange"):  # an empty object has no range at all
                        return
                    raise
                except (HTTPClientError, IncompleteReadError):
                    if last:
                        raise

    def put(self, key: str, data: bytes) -> str:
        with self._told(f"writing {key}"):
            etag: str = self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=data)["ETag"]
            return etag

    def create(self, key: str, data: bytes) -> str:
        return self._write(key, data, None)

    def replace(self, key: str, data: bytes, etag: str) -> str:
        return self._write(key, data, etag)

    def stats(self, prefix: str) -> Iterator[Stat]:
        """Yield the objects whose keys start with this text, by ascending key.

        They are all held in memory for a moment: not every S3 store lists in the order of the keys.
        """
        pages = self._client.get_paginator("list_objects_v2")
        found = []
        with self._told(f"listing {prefix}"):
            for page in pages.paginate(
                Bucket=self._bucket, Prefix=self._above + prefix, PaginationConfig={"PageSize": PAGE}
            ):
                for entry in page.get("Contents", []):
                    key: str = entry["Key"][len(self._above) :]
                    if key and not key.endswith("/"):  # some programs write an object for a folder
                        found.append(Stat(key, entry["Size"], entry["LastModified"].astimezone(UTC)))
        yield from sorted(found)

    def delete(self, keys: Iterable[str]) -> None:
        waiting = iter(keys)
        while batch := list(islice(waiting, PAGE)):
            with self._told(f"deleting {batch[0]}"):
                answer = self._client.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": self._key(key)} for key in batch], "Quiet": True},
                )
            for failure in answer.get("Errors", []):
                if failure.get("Code") != "NoSuchKey":
                    raise refused(self.address, f"deleting {failure.get('Key')}", failure.get("Code", ""))

    def upload(self, path: Path, key: str) -> None:
        with self._told(f"writing {key}"), path.open("rb") as file:
            self._client.upload_fileobj(file, self._bucket, self._key(key), Config=_transfer())

    def download(self, key: str, path: Path) -> None:
        from botocore.exceptions import ClientError

        with self._told(f"reading {key}"), atomic_file(path) as temporary, temporary.open("wb") as file:
            try:
                self._client.download_fileobj(self._bucket, self._key(key), file, Config=_transfer())
            except ClientError as error:
                # The size is asked for first, and an error in answer to that has no body to name it.
                if _code(error).isdigit() and self.get(key) is None:
                    raise missing_object(self.address, key) from error
                raise

    def _write(self, key: str, data: bytes, etag: str | None) -> str:
        """Write on a condition: that there is no object, or that it has this etag."""
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with self._told(f"writing {key} with {'If-None-Match' if etag is None else 'If-Match'}"):
            for attempt in range(COLLISIONS):
                try:
                    answer = self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=data, **condition)
                    written: str = answer["ETag"]
                    return written
                except ClientError as error:
                    retried = bool(error.response["ResponseMetadata"].get("RetryAttempts"))
                    if _status(error) == 412 or (etag is not None and _code(error) == "NoSuchKey"):
                        if retried and (landed := self._landed(key, data, etag)):
                            return landed
                        raise Conflict(f"{self.address}: {key} was changed meanwhile") from error
                    if _status(error) >= 500 and _code(error) != "NotImplemented":
                        if landed := self._landed(key, data, etag):
                            return landed
                        raise
                    if _status(error) != 409 or attempt == COLLISIONS - 1:
                        raise
                    time.sleep(random.uniform(0, 0.1 * 2**attempt))  # another write was under way: S3 asks to try again
                except (ConnectionError, HTTPClientError):
                    if landed := self._landed(key, data, etag):
                        return landed
                    raise
        raise AssertionError("the last try returns or raises")

    def _landed(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Return the etag, where a write of unknown outcome took place; None where nothing was written.

        Raises:
            Conflict: when something else was written.
        """
        try:
            found = self.get(key)
        except StoreError:
            return None  # the write's own error says more
        if found is not None and found[0] == data:
            return found[1]
        if (found and found[1]) == etag:
            return None
        raise Conflict(f"{self.address}: {key} was changed meanwhile")

    def _connect(self, attempts: int, timeout: float) -> tuple[Any, Any]:
        # A third of a second, which an index on disk need not pay.
        import boto3.session
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
        session = boto3.session.Session(botocore_session=found)
        try:
            return session, session.client("s3", config=config)
        except ValueError as error:
            raise StoreError(f"index {self.address}: {error}", "Correct AWS_ENDPOINT_URL.") from error

    def _key(self, key: str) -> str:
        return self._above + checked_key(key)

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError
        from s3transfer.exceptions import RetriesExceededError

        try:
            yield
        except RetriesExceededError as error:
            raise _s3_error(self.address, doing, error.last_exception) from error
        except (BotoCoreError, ClientError) as error:
            raise _s3_error(self.address, doing, error) from error
        except OSError as error:
            raise unusable(self.address, error) from error


_LASTING: Final = ("NotImplemented", "501", "505", "507")  # answers above 500 that no time mends
_PASSING: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "InternalServerError", "RequestTimeout", "TooManyRequests"}
    | {"RequestTimeoutException", "Throttling", "ThrottlingException", "RequestLimitExceeded", "OperationAborted"}
    | {"BandwidthLimitExceeded", "408", "429", "500", "502", "503", "504"}
)


def refused(address: str, doing: str, code: str, status: int = 0, words: str = "") -> StoreError:
    """Return the error for an answer of an S3 store.

    Args:
        doing: what was tried: ``writing pointer.json``.
        code: S3's name of the error; for an answer without a body, its status in digits.
        status: of the answer, where it is known.
        words: the store's own.
    """
    what, remedy = next(
        (known for codes, known in _ANSWERS.items() if code in codes.split()),
        (words or code or "an unnamed error", "Try again; if it stays, ask whoever runs the store."),
    )
    if (status >= 500 and code not in _LASTING) or code in _PASSING:
        remedy = "The store has a fault of its own: try again, what was finished is remembered."
    named = "" if code.isdigit() or code in what else f" ({code})"
    return StoreError(
        f"index {address} cannot be used: {what}{named}, when {doing}",
        remedy,
        transient=(status >= 500 and code not in _LASTING) or code in _PASSING,
    )


def unreachable(address: str, doing: str, why: object) -> StoreError:
    """Return the error for an S3 store that gives no answer.

    Args:
        doing: what was tried: ``writing pointer.json``.
        why: the library's own words.
    """
    return StoreError(
        f"index {address} cannot be used: its store cannot be reached, when {doing}: {why}", _ENDPOINT, transient=True
    )


_KEYS: Final = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) to a valid set of this store."
_ENDPOINT: Final = "Check AWS_ENDPOINT_URL, the network and that the store runs."
_ALLOWED: Final = (
    "access is denied",
    "Let these credentials list the bucket, and get, put and delete objects under the prefix.",
)
_REGION: Final = ("the bucket is in another region", "Set AWS_DEFAULT_REGION to the bucket's region.")
_ANSWERS: Final = {
    "NoSuchBucket 404": ("there is no such bucket", "Create it, or correct --index or AWS_ENDPOINT_URL."),
    "InvalidBucketName": ("the bucket's name is not allowed", "Correct --index."),
    "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidSecurity": ("the credentials are wrong", _KEYS),
    "ExpiredToken TokenRefreshRequired": ("the credentials have expired", _KEYS),
    "AccessDenied AllAccessDisabled AccountProblem Forbidden 403": _ALLOWED,
    "RequestTimeTooSkewed RequestExpired": (
        "this machine's clock and the store's are too far apart",
        "Set the clock, best by NTP.",
    ),
    "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException 301": _REGION,
    "NotImplemented 501": ("the store does not offer this", "Keep the index in another store, or on disk."),
}


def _s3_error(address: str, doing: str, error: Exception) -> StoreError:
    """Return the clear error behind one of botocore's."""
    from botocore import exceptions as known

    if isinstance(error, known.ClientError):
        answer = error.response.get("Error", {})
        return refused(address, doing, answer.get("Code", ""), _status(error), answer.get("Message", ""))
    missing = (known.NoCredentialsError, known.PartialCredentialsError, known.CredentialRetrievalError)
    if isinstance(error, (*missing, known.SSOError, known.TokenRetrievalError, known.ProfileNotFound)):
        what, remedy = "no credentials were found", _KEYS
    elif isinstance(error, (known.HTTPClientError, known.ConnectionError, known.IncompleteReadError)):
        return unreachable(address, doing, error)
    else:
        what, remedy = "its store cannot be asked", "Check the address and AWS_ENDPOINT_URL."
    return StoreError(f"index {address} cannot be used: {what}, when {doing}: {error}", remedy)


def _code(error: Any) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code


def _status(error: Any) -> int:
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


@cache
def _loader() -> Any:
    """Return a loader that caches the descriptions of S3's requests, a tenth of a second per client."""
    from botocore.loaders import create_loader

    return create_loader()


def _transfer() -> Any:
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=4)
