"""The requests to an S3 bucket: list, look, read, ask for tags.

Invariants:
- Bytes are those of one state of an object, of the length that the store tells, and where its etag is an MD5, of that.
- A key is below the prefix; nobody else puts the prefix before it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flows.sources.s3_client import S3Failure, broken_off, damaged, is_missing, s3_code, s3_status
from flows.sources.s3_labels import labels_of_tags
from flows.sources.s3_listing import checked_pages, s3_stamp
from parsers.labels import NOTHING, Stated

_PAGE: Final = 1000  # S3's own limit
_RESUMED: Final = 3  # times that a read goes on where it broke off
_BLOCK: Final = 256 * 1024
_PLAIN_MD5: Final = re.compile(r'"?[0-9a-f]{32}"?')
_DAMAGED: Final = "its bytes are not those of its checksum"


class ReadAgain(Exception):
    """A read is to begin anew, for an error number and a reason."""


class S3Bucket:
    """The objects below a prefix of a bucket. Any number of threads may share it.

    Its requests raise the errors of boto3, of which ``s3_errors`` gives the classes.

    Args:
        client: of boto3.
        name: of the bucket.
        above: the prefix, empty or with a final slash.
    """

    def __init__(self, client: Any, name: str, above: str) -> None:
        self.name: Final = name
        self.above: Final = above
        self._client: Final = client

    def download(self, key: str, most: int) -> tuple[bytes | None, Mapping[str, Any]] | None:
        """Read an object, on from where the connection broke; None when it is gone.

        The bytes of one that is too large are None.
        """
        kept = io.BytesIO()
        first: Mapping[str, Any] | None = None
        for left in reversed(range(_RESUMED + 1)):
            answer = self._get(key, first, kept.tell())
            if answer is None:
                return None
            first = first or answer
            with answer["Body"]:
                if first["ContentLength"] > most:
                    return None, first
                try:
                    for block in answer["Body"].iter_chunks(_BLOCK):
                        kept.write(block)
                    break
                except damaged() as error:
                    raise ReadAgain(errno.EIO, _DAMAGED) from error
                except broken_off():
                    if not left:
                        raise
        assert first is not None
        _check_whole(kept.getvalue(), first, self.name)
        return kept.getvalue(), first

    def _get(self, key: str, first: Mapping[str, Any] | None, start: int) -> Mapping[str, Any] | None:
        """Ask for an object, or for the rest of one whose first answer broke off."""
        from botocore.exceptions import ClientError

        rest = {"Range": f"bytes={start}-"} if start else {}
        same = {"IfMatch": first["ETag"]} if first is not None else {}
        try:
            answer: Mapping[str, Any] = self._client.get_object(Bucket=self.name, Key=self.above + key, **rest, **same)
        except ClientError as error:
            if is_missing(error):
                return None
            if s3_status(error) in (412, 416):
                raise ReadAgain(errno.EBUSY, "it changed while it was read") from error
            raise
        begins = str(answer.get("ContentRange", "bytes 0-")).startswith(f"bytes {start}-")
        if first is not None and (s3_stamp(answer) != s3_stamp(first) or not begins):
            answer["Body"].close()
            raise ReadAgain(errno.EBUSY, "it changed while it was read")
        return answer

    def head(self, key: str, *, named: bool = True) -> Mapping[str, Any] | None:
        """Ask for an object's state; None when it is gone.

        Args:
            named: an answer to HEAD names no error, so ask what is wrong with bucket or credentials, if they are.
        """
        from botocore.exceptions import ClientError

        try:
            answer: Mapping[str, Any] = self._client.head_object(Bucket=self.name, Key=self.above + key)
            return answer
        except ClientError as error:
            if named and 400 <= s3_status(error) < 500:
                self._client.list_objects_v2(Bucket=self.name, Prefix=self.above + key, MaxKeys=1)
            if s3_status(error) == 404:
                return None
            raise

    def tags(self, key: str) -> Stated | None:
        """Return the labels in an object's tags; None when it is gone."""
        from botocore.exceptions import ClientError

        try:
            answer = self._client.get_object_tagging(Bucket=self.name, Key=self.above + key)
        except ClientError as error:
            code, status = s3_code(error), s3_status(error)
            if code.startswith("NoSuchTagSet") or code == "NotImplemented" or status == 501:
                return NOTHING
            if is_missing(error):
                return None
            if code in ("AccessDenied", "403"):
                denial = S3Failure("access is denied to its tags", "Allow these credentials s3:GetObjectTagging.")
                raise denial.for_object() from error
            raise
        return labels_of_tags(answer.get("TagSet", []))

    def pages(self, prefix: str) -> Iterator[list[Mapping[str, Any]]]:
        """Yield the entries of the objects whose keys begin with this text, page by page.

        Raises:
            BrokenListing: when the listing is not complete.
        """
        paginator = self._client.get_paginator("list_objects_v2")
        return checked_pages(
            paginator.paginate(Bucket=self.name, Prefix=self.above + prefix, PaginationConfig={"PageSize": _PAGE})
        )

    def entry(self, key: str) -> Mapping[str, Any] | None:
        """Return the listing's entry of this key; None where there is none."""
        entries = (entry for page in self.pages(key) for entry in page)
        return next((entry for entry in entries if entry["Key"] == self.above + key), None)


def _check_whole(data: bytes, answer: Mapping[str, Any], bucket: str) -> None:
    """Check bytes against length and MD5, where the etag is one.

    Other checksums boto3 checks itself.
    """
    if len(data) != answer["ContentLength"]:
        raise ReadAgain(errno.EIO, f"{len(data):,} bytes came of {answer['ContentLength']:,}")
    encrypted = answer.get("ServerSideEncryption", "").startswith("aws:kms") or "SSECustomerAlgorithm" in answer
    if encrypted or bucket.endswith("--x-s3") or not _PLAIN_MD5.fullmatch(answer.get("ETag", "")):
        return  # the etags of directory buckets, of this ending, are random
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != answer["ETag"].strip('"'):
        raise ReadAgain(errno.EIO, _DAMAGED)
