"""Blobs in a folder and in a bucket: one contract for both, and what each does when its place fails."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from s3server import READER, Server

from indexes.storage import s3_objects as module
from indexes.storage.objects import Conflict, FolderObjects, Objects, probe
from indexes.storage.s3_objects import S3Objects
from parsers.errors import StoreError

ODD = [
    "a b.txt",
    "50% off",
    "p%20q",
    "c++",
    "#1",
    "q?x=1&y",
    "ü/日本語 ½.md",
    "deep/er/~x",
    'it\'s "so" <here>',
    ".dot",
]
THREADS = 20

Opener = Callable[[], Any]

LIMITS = {"timeout": "30s", "connect_timeout": "10s"}  # of a request of LanceDB


@pytest.fixture(params=["folder", "s3"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same empty place, as often as it is called."""
    if request.param == "folder":
        return lambda: FolderObjects(tmp_path / "index")
    address = request.getfixturevalue("s3").address(uuid.uuid4().hex)
    return lambda: S3Objects(address)


@pytest.fixture
def objects(opener: Opener) -> Objects:
    return opener()


@pytest.fixture
def bucket(s3: Server) -> S3Objects:
    return S3Objects(s3.address(uuid.uuid4().hex), attempts=2, timeout=5)


def keys(objects: Objects, prefix: str = "") -> list[str]:
    return [stat.key for stat in objects.stats(prefix)]


def winners(*acts: Callable[[int], Any]) -> list[list[int]]:
    """Which of twenty threads were not told of a conflict, for each of these acts, all at once."""
    barrier = Barrier(THREADS * len(acts))

    def one(act: Callable[[int], Any], number: int) -> bool:
        barrier.wait()
        try:
            act(number)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(THREADS * len(acts)) as pool:
        tried = [[pool.submit(one, act, number) for number in range(THREADS)] for act in acts]
        return [[number for number, each in enumerate(threads) if each.result()] for threads in tried]


def test_the_last_bytes_written_are_read(objects: Objects) -> None:
    assert objects.get("a/b") is None
    first = objects.put("a/b", b"one")
    assert objects.get("a/b") == (b"one", first)
    second = objects.put("a/b", b"")
    assert objects.get("a/b") == (b"", second)
    assert first != second
    assert objects.get("a") is None
    assert objects.get("a/b/c") is None


def test_only_what_is_not_there_is_created(objects: Objects) -> None:
    etag = objects.create("a/b", b"one")
    with pytest.raises(Conflict):
        objects.create("a/b", b"two")
    assert objects.get("a/b") == (b"one", etag)
    objects.delete(["a/b"])
    objects.create("a/b", b"two")


def test_only_the_state_that_was_read_is_replaced(objects: Objects) -> None:
    first = objects.create("a", b"one")
    second = objects.replace("a", b"two", first)
    with pytest.raises(Conflict):
        objects.replace("a", b"three", first)
    assert objects.get("a") == (b"two", second)
    objects.delete(["a"])
    with pytest.raises(Conflict):
        objects.replace("a", b"three", second)
    assert objects.get("a") is None


def test_of_many_one_creates_and_one_replaces(opener: Opener) -> None:
    opened = [opener() for _ in range(2)]
    etag = opened[0].create("a/old", b"first")
    # SeaweedFS lets those that meet wait for whole seconds, so both races are run at once.
    created, replaced = winners(
        lambda number: opened[number % 2].create("a/new", b"%d" % number),
        lambda number: opened[0].replace("a/old", b"%d" % number, etag),
    )
    assert (len(created), len(replaced)) == (1, 1)
    assert opened[1].get("a/new")[0] == b"%d" % created[0]
    assert opened[1].get("a/old")[0] == b"%d" % replaced[0]


def test_names_may_hold_any_character(objects: Objects, tmp_path: Path) -> None:
    for key in ODD:
        objects.create(f"odd/{key}", key.encode())
    assert keys(objects) == sorted(f"odd/{key}" for key in ODD)
    for key in ODD:
        found = objects.get(f"odd/{key}")
        assert found is not None
        assert found[0] == key.encode()
        assert keys(objects, f"odd/{key}") == [f"odd/{key}"]
        objects.replace(f"odd/{key}", b"new", found[1])
    objects.download(f"odd/{ODD[6]}", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"new"
    objects.delete(f"odd/{key}" for key in ODD)
    assert keys(objects) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "a/./b"])
def test_what_is_no_path_of_names_is_no_key(objects: Objects, key: str) -> None:
    with pytest.raises(ValueError, match="is not a key"):
        objects.put(key, b"")


def test_a_listing_is_by_ascending_key_over_all_pages(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 7)
    written = ["a-b", "a.b", "a/b", "a/c/d", "a0", "A", "b/x", *(f"many/{number:03d}" for number in range(30))]
    for key in reversed(written):
        objects.put(key, key.encode())
    assert keys(objects) == sorted(written)
    assert keys(objects, "a") == ["a-b", "a.b", "a/b", "a/c/d", "a0"]
    assert keys(objects, "a/") == ["a/b", "a/c/d"]
    assert keys(objects, "many/01") == [f"many/01{digit}" for digit in range(10)]
    assert keys(objects, "none/") == keys(objects, "many/000/") == []
    stat = next(iter(objects.stats("many/")))
    assert (stat.key, stat.size) == ("many/000", len("many/000"))
    assert stat.modified.tzinfo is UTC
    assert abs(datetime.now(UTC) - stat.modified) < timedelta(minutes=1)


def test_what_is_there_of_the_keys_is_deleted(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    for key in ("a/1", "a/2", "a/3", "a/4", "b"):
        objects.put(key, b"x")
    objects.delete(["a/4", "gone", "a/1", "a/2", "b/gone", "a/3"])
    assert keys(objects) == ["b"]
    objects.delete([])


def test_a_large_file_goes_up_and_comes_down(objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 5 * 2**20)
    data = os.urandom(2**20) * 11 + b"end"
    (tmp_path / "there").write_bytes(data)
    objects.put("big", b"what was there before")
    objects.upload(tmp_path / "there", "big")
    objects.download("big", tmp_path / "new" / "back")
    assert (tmp_path / "new" / "back").read_bytes() == data
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["back"]


def test_what_is_not_there_is_not_downloaded(objects: Objects, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"old")
    with pytest.raises(StoreError, match="there is no a/b"):
        objects.download("a/b", tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == b"old"


def test_a_place_that_honours_conditions_passes_the_probe(objects: Objects) -> None:
    probe(objects)
    assert keys(objects) == []


# A folder


def test_a_full_disk_leaves_the_old_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = FolderObjects(tmp_path)
    objects.put("a", b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (objects.put, objects.create):
        with pytest.raises(StoreError, match=r"cannot be used: No space left.*Free some space"):
            write("a" if write == objects.put else "b", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_in_the_folders_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(b"")
    objects = FolderObjects(tmp_path / "index")
    with pytest.raises(StoreError, match="A file stands where the folder should be"):
        objects.put("a", b"")
    assert objects.get("a") is None
    assert keys(objects) == []


def test_the_temporary_file_of_a_killed_process_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / f".{uuid.uuid4().hex}.tmp").write_bytes(b"ha")
    assert keys(FolderObjects(tmp_path)) == []


def test_what_another_process_creates_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = FolderObjects(tmp_path)
    objects.put("a", b"theirs")
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(Conflict):
        objects.create("a", b"mine")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"theirs"]


def test_where_there_are_no_hard_links_one_thread_creates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    objects = FolderObjects(tmp_path)
    [created] = winners(lambda number: objects.create("a", b"%d" % number))
    assert len(created) == 1


# A bucket


class Body(io.BytesIO):
    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def answer(status: int, code: str) -> AWSResponse:
    text = f"<Error><Code>{code}</Code><Message>As the test asks.</Message></Error>"
    return AWSResponse("http://s3/", status, {"content-type": "application/xml"}, Body(text.encode()))


def on_put(objects: S3Objects, *acts: Callable[[Any], AWSResponse | None]) -> list[int]:
    """Let the n-th request to write meet the n-th act, which answers it or lets it through; counts the requests."""
    seen: list[int] = []

    def meet(request: Any, **_: Any) -> AWSResponse | None:
        seen.append(len(seen))
        return acts[seen[-1]](request) if seen[-1] < len(acts) else None

    objects._client.meta.events.register("before-send.s3.PutObject", meet)
    return seen


def land(objects: S3Objects, request: Any) -> None:
    """Have a request carried out, and lose its answer."""
    objects._client._endpoint.http_session.send(request)


@pytest.mark.parametrize("conditional", ["create", "replace"])
@pytest.mark.parametrize("lost", ["to a fault", "to a fault, for good", "in the network", "in the network, for good"])
def test_a_write_that_landed_though_its_answer_was_lost_counts(bucket: S3Objects, conditional: str, lost: str) -> None:
    etag = bucket.create("a", b"old") if conditional == "replace" else ""

    def lose(request: Any) -> AWSResponse:
        land(bucket, request)
        return fail(request)

    def fail(request: Any) -> AWSResponse:
        if "fault" in lost:
            return answer(500, "InternalError")
        raise ReadTimeoutError(endpoint_url=request.url)

    seen = on_put(bucket, *((lose, fail) if "for good" in lost else (lose,)))
    written = bucket.replace("a", b"new", etag) if etag else bucket.create("a", b"new")
    assert bucket.get("a") == (b"new", written)
    assert len(seen) == 2


def test_a_write_that_another_one_came_before_is_a_conflict(bucket: S3Objects, s3: Server) -> None:
    other = S3Objects(bucket.address)

    def fail(request: Any) -> AWSResponse:
        other.create("a", b"theirs")
        return answer(503, "SlowDown")

    on_put(bucket, fail)
    with pytest.raises(Conflict):
        bucket.create("a", b"mine")


def test_a_write_that_never_landed_is_an_error_of_the_store(bucket: S3Objects) -> None:
    etag = bucket.create("a", b"old")
    on_put(bucket, *[lambda _: answer(503, "SlowDown")] * 4)
    for write in (lambda: bucket.create("b", b"new"), lambda: bucket.replace("a", b"new", etag)):
        with pytest.raises(
            StoreError, match=r"As the test asks. \(SlowDown\), when writing . with If-.*The store has a"
        ):
            write()


def test_a_write_that_met_another_under_way_is_tried_again(bucket: S3Objects) -> None:
    seen = on_put(bucket, *[lambda _: answer(409, "ConditionalRequestConflict")] * 2)
    bucket.create("a", b"new")
    assert len(seen) == 3


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_a_condition_fails_the_probe(bucket: S3Objects, header: str) -> None:
    def ignore(params: dict[str, Any], **_: Any) -> None:
        params["headers"].pop(header, None)

    bucket._client.meta.events.register("before-call.s3.PutObject", ignore)
    with pytest.raises(StoreError, match=f"ignores the header {header},"):
        probe(bucket)
    assert keys(bucket) == []


def test_a_store_that_does_not_know_a_condition_fails_the_probe(bucket: S3Objects) -> None:
    on_put(bucket, lambda _: answer(501, "NotImplemented"))
    with pytest.raises(StoreError, match=r"does not offer this \(NotImplemented\), when writing .* with If-None-Match"):
        probe(bucket)


def trying(objects: S3Objects, path: Path) -> dict[str, Callable[[], Any]]:
    path.write_bytes(b"x")
    return {
        "get": lambda: objects.get("a"),
        "put": lambda: objects.put("a", b""),
        "create": lambda: objects.create("a", b""),
        "replace": lambda: objects.replace("a", b"", '"x"'),
        "stats": lambda: list(objects.stats("")),
        "delete": lambda: objects.delete(["a"]),
        "upload": lambda: objects.upload(path, "a"),
        "download": lambda: objects.download("a", path),
    }


def messages(objects: S3Objects, path: Path, without: frozenset[str] | set[str] = frozenset()) -> dict[str, str]:
    """What each method says of the place that it cannot use."""
    said = {}
    for name, act in trying(objects, path).items():
        if name in without:
            continue
        with pytest.raises(StoreError) as caught:
            act()
        said[name] = str(caught.value)
        assert caught.value.message.startswith(f"index {objects.address} cannot be used: ")
        assert caught.value.remedy
    return said


def test_a_missing_bucket_is_said(s3: Server, tmp_path: Path) -> None:
    # SeaweedFS answers to If-Match as to a missing object, so that one is not tried.
    for message in messages(S3Objects("s3://no-such-bucket/x", attempts=1), tmp_path / "file", {"replace"}).values():
        assert "there is no such bucket (NoSuchBucket), when " in message


def test_wrong_credentials_are_said(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in (("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"), ("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId")):
        with monkeypatch.context() as patch:
            patch.setenv(name, "wrong")
            for message in messages(S3Objects(s3.address("x"), attempts=1), tmp_path / "file").values():
                assert f"the credentials are wrong ({code}), when " in message
                assert "Set AWS_ACCESS_KEY_ID" in message


def test_missing_credentials_are_said(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match=r"no credentials were found, when reading a.*Set AWS_ACCESS_KEY_ID"):
        S3Objects(s3.address("x"), attempts=1).get("a")


def test_what_is_not_allowed_is_said(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    S3Objects(s3.address("allowed")).put("a", b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER)
    objects = S3Objects(s3.address("allowed"), attempts=1)
    assert keys(objects) == ["a"]
    for act in (lambda: objects.put("a", b""), lambda: objects.create("b", b""), lambda: objects.delete(["a"])):
        with pytest.raises(
            StoreError, match=r"access is denied \(AccessDenied\), when (writ|delet)ing .*put and delete"
        ):
            act()


def test_a_store_that_cannot_be_reached_is_said(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for message in messages(S3Objects(s3.address("x"), attempts=1), tmp_path / "file").values():
        assert "its store cannot be reached, when " in message
        assert "http://127.0.0.1:1" in message
        assert "Check AWS_ENDPOINT_URL" in message
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    with pytest.raises(StoreError, match=r"Invalid endpoint: nowhere. Correct AWS_ENDPOINT_URL"):
        S3Objects(s3.address("x"))


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "RequestTimeTooSkewed", "clock and the store's are too far apart"),
        (400, "ExpiredToken", "the credentials have expired"),
        (400, "AuthorizationHeaderMalformed", "Set AWS_DEFAULT_REGION"),
        (418, "Teapot", "As the test asks. .Teapot., when writing a"),
    ],
)
def test_what_the_store_answers_is_said(bucket: S3Objects, status: int, code: str, said: str) -> None:
    on_put(bucket, lambda _: answer(status, code))
    with pytest.raises(StoreError, match=said):
        bucket.put("a", b"")


@pytest.mark.parametrize(
    "address", ["s3://", "s3:///x", "bucket/x", "s3://b/a#b", "s3://b/a%20b", "s3://b/a?b", "s3://b/../a"]
)
def test_an_address_that_lancedb_would_read_otherwise_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="no place in an S3 bucket"):
        S3Objects(address)


def test_an_address_may_be_a_whole_bucket(s3: Server) -> None:
    objects = S3Objects("s3://gristmill/")
    assert objects.address == "s3://gristmill"
    objects.put("whole/a", b"x")
    assert keys(S3Objects("s3://gristmill/whole/")) == ["a"]


def test_lancedb_finds_the_same_store(bucket: S3Objects, s3: Server) -> None:
    options = bucket.storage_options()
    limits = {"timeout": "5s", "connect_timeout": "5s"}  # those of the fixture's place
    assert options == limits | {"endpoint": s3.endpoint, "region": "us-east-1", "allow_http": "true"}
    address = f"{bucket.address}/ta bles ü"
    table = lancedb.connect(address, storage_options=options).create_table("t", pa.table({"id": ["a", "b"]}))
    first = table.version
    table.add(pa.table({"id": ["c"]}))
    other = lancedb.connect(address, storage_options=options).open_table("t")
    assert other.count_rows() == 3
    other.checkout(first)
    assert other.count_rows() == 2
    other.restore()
    table.checkout_latest()
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["a", "b"]
    assert all(key.startswith("ta bles ü/t.lance/") for key in keys(bucket))


def test_lancedb_is_told_nothing_of_amazons_own_store(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert S3Objects(s3.address("x")).storage_options() == LIMITS | {"region": "eu-central-1"}
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert S3Objects(s3.address("x")).storage_options() == LIMITS
