"""The objects below a prefix of an S3 bucket as a document store.

Invariants:
- A key is an object's key below the prefix, in the store's own letter case; keys come in code point order, each once.
- The version of an object is its etag and the second of its last change, then the same of its sidecar. The version that
  a read gives comes from the answers that gave the bytes and the labels.
- A listing that breaks off is an error, never a short one; it is not held in memory.
- Bytes are those of one state of the object, of the length that the store tells, and where its etag is an MD5, of that.
- Labels are the union of those in the tag ``labels``, in the metadata ``labels`` and in the sidecar
  ``KEY.metadata.json``, in the form that Amazon Bedrock reads. What is there and cannot be read denies.
- Folder markers (keys that end with a slash), sidecars and the index are no documents. A key with an empty part, with
  ``.`` or ``..`` as a part, with NUL, or that is not UTF-8 is listed with a problem and never asked for.
"""

from __future__ import annotations

import errno
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from flows.patterns import KeyFilter, literal_prefix
from flows.sources.base import Fetched, Object, SourceOptions
from flows.sources.s3_bucket import ReadAgain, S3Bucket
from flows.sources.s3_client import connect_s3, explain_s3, s3_errors, split_s3_address
from flows.sources.s3_labels import MOST_SIDECAR_BYTES, labels_of_metadata, labels_of_sidecar, united
from flows.sources.s3_listing import SIDECAR, BrokenListing, S3Listed, s3_stamp, sorted_listing
from parsers.errors import SourceError
from parsers.labels import NOTHING, Stated, denied

MOST_BYTES: Final = 2 * 2**30

_TRIES: Final = 3  # reads of an object that changes meanwhile
# Signs that are no part of any other sign's normal form, so that a key which a pattern matches has them as they stand.
_AS_IT_STANDS: Final = re.compile(r"[\x20-:<-JL-_a-~]*")


class S3Source:
    """The objects below a prefix of a bucket.

    Endpoint, region and credentials are those that boto3 finds: ``AWS_ENDPOINT_URL``, ``AWS_DEFAULT_REGION``,
    ``AWS_ACCESS_KEY_ID`` …, or the same from the user's AWS files. Any number of threads may share this object.

    Args:
        address: ``s3://bucket/prefix``.
        options: of the source.
        most_bytes: of an object; a larger one has a problem and is not read.
        attempts: how often a request is tried in all.
        timeout: seconds without a byte after which a try has failed.

    Raises:
        SourceError: when the address, or what boto3 finds in the environment, cannot be used.
    """

    trusted = True
    parallel = 16

    def __init__(
        self,
        address: str,
        options: SourceOptions | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        attempts: int = 4,
        timeout: float = 30.0,
    ) -> None:
        options = options or SourceOptions()
        self.name = options.name
        self.address = address
        bucket, self._above = split_s3_address(address)
        self.place = f"s3://{bucket}/{self._above}".rstrip("/")
        self._keys = KeyFilter(options.include, options.exclude)
        self._listed_prefix = _common_prefix(options.include)
        self._own = _own_places(options.own, bucket)
        self._most_bytes = most_bytes
        if any(_is_within(self._above, place) for place in self._own):
            raise SourceError(f"source {address} lies within the index", "Give the index a place of its own.")
        self._bucket = S3Bucket(connect_s3(address, attempts, timeout), bucket, self._above)

    def objects(self) -> Iterator[Object]:
        """List all objects in ascending order of their keys."""
        try:
            for listed in sorted_listing(self._pages):
                yield self._object(listed)
        except BrokenListing as error:
            raise self._broken(error) from error

    def look(self, key: str) -> Object | None:
        """Look at one object as a listing would; None when it is no document now."""
        if not self._is_document(key):
            return None
        with self._telling(f"looking at {key}"):
            answer = self._bucket.entry(key) if _key_problem(key) else self._bucket.head(key)
            if answer is None:
                return None
            sidecar = None if _key_problem(key) else self._bucket.head(key + SIDECAR, named=False)
        size = answer.get("ContentLength", answer.get("Size", 0))
        return self._object(S3Listed(key, s3_stamp(answer), size, s3_stamp(sidecar) if sidecar else ""))

    def fetch(self, key: str, version: str = "") -> Fetched | None:
        """Read an object and its labels in one state; None when it is gone.

        Raises:
            OSError: when it cannot be read, or changes all the time.
        """
        _refuse(key)
        again = ReadAgain(errno.EBUSY, "")
        with self._reading():
            for _ in range(_TRIES):
                try:
                    return self._fetch_once(key, version)
                except ReadAgain as reason:
                    again = reason
        number, why = again.args
        raise OSError(number, f"{why}, {_TRIES} times")

    def labels(self, key: str, version: str = "") -> tuple[str, ...] | None:
        """Return the labels that are stated now, without the bytes; None when it is gone.

        Raises:
            OSError: when they cannot be read now.
        """
        _refuse(key)
        try:
            with self._reading():
                answer = self._bucket.head(key)
                tags = self._bucket.tags(key) if answer is not None else None
                if answer is None or tags is None:
                    return None
                return united([_metadata(answer), tags, self._sidecar(key, version)[1]])
        except ReadAgain as reason:
            raise OSError(*reason.args) from reason

    def _fetch_once(self, key: str, version: str) -> Fetched | None:
        """Read an object and its labels once."""
        found = self._bucket.download(key, self._most_bytes)
        if found is None:
            return None
        data, answer = found
        if data is None:
            raise OSError(errno.EFBIG, _too_large(answer["ContentLength"], self._most_bytes))
        tags = self._bucket.tags(key)
        sidecar, beside = self._sidecar(key, version)
        # Tags have no version: those of a later state must not stand with the bytes of an earlier one.
        now = self._bucket.head(key)
        if tags is None or now is None or s3_stamp(now) != s3_stamp(answer):
            raise ReadAgain(errno.EBUSY, "it changed while it was read")
        read = S3Listed(key, s3_stamp(answer), len(data), sidecar)
        return Fetched(data, read.version, united([_metadata(answer), tags, beside]))

    def _sidecar(self, key: str, version: str) -> tuple[str, Stated]:
        """Return stamp and labels of an object's sidecar, unless the listed version has none."""
        found = self._bucket.download(key + SIDECAR, MOST_SIDECAR_BYTES) if not version or "+" in version else None
        if found is None:
            return "", NOTHING
        data, answer = found
        if data is None:
            return s3_stamp(answer), denied(f"the sidecar has more than {MOST_SIDECAR_BYTES:,} bytes")
        return s3_stamp(answer), labels_of_sidecar(data)

    def _pages(self) -> Iterator[Iterator[tuple[S3Listed, bool]]]:
        """Yield the pages of the listing."""
        with self._telling("listing it"):
            for entries in self._bucket.pages(self._listed_prefix):
                yield self._entries(entries)

    def _entries(self, page: Sequence[Mapping[str, Any]]) -> Iterator[tuple[S3Listed, bool]]:
        """Yield the documents and sidecars of a page, these under the key of their document."""
        for entry in page:
            key = entry["Key"].removeprefix(self._above)
            document = key.removesuffix(SIDECAR)
            if entry["Key"].startswith(self._above) and self._is_document(document):
                yield S3Listed(document, s3_stamp(entry), entry["Size"]), document != key

    def _is_document(self, key: str) -> bool:
        """Return whether an object of this key is a document of this source."""
        if not key or key.endswith(("/", SIDECAR)) or any(_is_within(self._above + key, own) for own in self._own):
            return False
        return self._keys.wants(key)

    def _object(self, listed: S3Listed) -> Object:
        problem = _key_problem(listed.key)
        if problem:
            return Object(listed.key, listed.stamp, listed.size, problem)
        if listed.size > self._most_bytes:
            problem = _too_large(listed.size, self._most_bytes)
        return Object(listed.key, listed.version, listed.size, problem)

    def _broken(self, error: BrokenListing) -> SourceError:
        return SourceError(
            f"source {self.address} cannot be listed: {error}", "A listing is never taken for a short one: try again."
        )

    @contextmanager
    def _telling(self, doing: str) -> Iterator[None]:
        """Turn the errors of requests into one of the source as a whole."""
        errors: tuple[type[Exception], ...] = (*s3_errors(), OSError)
        try:
            yield
        except BrokenListing as error:
            raise self._broken(error) from error
        except errors as error:
            failure = explain_s3(error)
            raise SourceError(
                f"source {self.address} cannot be read: {failure.what}, when {doing}",
                failure.remedy,
                transient=failure.transient,
            ) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of requests into one of the object."""
        try:
            yield
        except s3_errors() as error:
            raise explain_s3(error).for_object() from error


def _metadata(answer: Mapping[str, Any]) -> Stated:
    return labels_of_metadata(answer.get("Metadata", {}), answer.get("MissingMeta", 0))


def _key_problem(key: str) -> str:
    """Why an object of this key is never asked for; empty where it may be."""
    if "\0" in key:
        return "its key holds NUL: rename it"
    if "\ufffd" in key:  # by which boto3 replaces other bytes
        return "its key is not valid UTF-8: rename it"
    if not {"", ".", ".."}.isdisjoint(key.split("/")):
        return "a part of its key is empty, . or ..: rename it"
    return ""


def _refuse(key: str) -> None:
    if problem := _key_problem(key):
        raise OSError(errno.EINVAL, problem)


def _too_large(size: int, most: int) -> str:
    return f"it has {size:,} bytes, more than {most:,}"


def _common_prefix(include: Sequence[str]) -> str:
    """Return the text with which every key begins that one of these patterns matches."""
    common = os.path.commonprefix([literal_prefix(pattern) for pattern in include])  # noqa: RUF071 - by signs
    plain = _AS_IT_STANDS.match(common)
    end = plain.end() if plain else 0
    # An accent behind a letter may make one sign of both.
    return common if end == len(common) else common[: max(end - 1, 0)]


def _own_places(own: Sequence[str | Path], bucket: str) -> tuple[str, ...]:
    """Return the prefixes of this bucket, without final slashes, that hold no documents."""
    found = (re.fullmatch(r"s3:/+([^/]+)/*(.*)", str(place).rstrip("/"), re.DOTALL) for place in own)
    return tuple(one[2] for one in found if one is not None and one[1] == bucket)


def _is_within(key: str, place: str) -> bool:
    return not place or key == place or key.startswith(f"{place}/")
