"""An S3 bucket as a document store: listing, versions, labels, errors and outages. The server is a real one."""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
import s3server
from flaky_proxy import FlakyProxy, proxied
from s3server import BUCKET, Server

from flows.sources import Object, S3Source, SourceOptions, open_source
from flows.sources.s3_labels import labels_of_metadata, labels_of_sidecar, labels_of_tags
from flows.sources.s3_listing import S3Listed, sorted_listing
from parsers.errors import SourceError
from parsers.labels import UNREADABLE


class Place:
    """A prefix of the bucket with objects of a test, and the source that reads it."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.prefix = f"sources/{name}"
        self.client = s3server.client(server)

    def put(self, key: str, body: bytes | str = b"text", **more: Any) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}", Body=data, **more)

    def sidecar(self, key: str, labels: object) -> None:
        self.put(f"{key}.metadata.json", json.dumps({"metadataAttributes": {"labels": labels}}))

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{key}")

    def source(self, **options: Any) -> S3Source:
        limits = {name: options.pop(name) for name in ("most_bytes", "attempts", "timeout") if name in options}
        return S3Source(self.server.address(self.prefix), SourceOptions(**options), **limits)

    def keys(self, **options: Any) -> list[str]:
        return [one.key for one in self.source(**options).objects()]


@pytest.fixture
def place(s3: Server, tmp_path: Path) -> Place:
    return Place(s3, tmp_path.name)


@pytest.fixture
def proxy(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyProxy]:
    """A proxy in front of the S3 server, which the environment names in its place."""
    with proxied(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def only(source: S3Source) -> Object:
    (one,) = source.objects()
    return one


@pytest.mark.parametrize(("many", "page"), [(22, 7), pytest.param(2_480, 1000, marks=pytest.mark.slow)])
def test_keys_come_in_code_point_order(
    place: Place, proxy: FlakyProxy, many: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.sources.s3_bucket._PAGE", page)
    names = [f"many/{number % 50}/{number}.md" for number in range(many)]
    names += ["a/b", "a-b", "a.b", "A", "a b", "a+b", "a%b", "a%2Fb", "é", "e\u0301", "\uff41", "\U0001f600", "a&<b>"]
    names += ["ä/ö ü.md", "q?#.md", "=x", "~", "many/1-x"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(place.put, names))
    listed = place.keys()
    assert listed == sorted(names), "UTF-8's order is that of code points, and not each store lists in it"
    assert sum("list-type=2" in one for one in proxy.seen) >= len(names) // page
    source = place.source()
    for key in names[-18:]:
        found, looked = source.fetch(key), source.look(key)
        assert found is not None and looked is not None and looked.key == key
        assert found.data == b"text" and found.version == looked.version


def test_listing_look_and_fetch_give_the_same_version(place: Place) -> None:
    place.put("plain.md")
    place.put("empty.md", b"")
    place.put("beside.md")
    place.sidecar("beside.md", ["hr"])
    source = place.source()
    listed = list(source.objects())
    assert [one.key for one in listed] == ["beside.md", "empty.md", "plain.md"]
    assert [("+" in one.version, one.size) for one in listed] == [(True, 4), (False, 0), (False, 4)]
    for one in listed:
        assert source.look(one.key) == one
        for version in (one.version, ""):
            found = source.fetch(one.key, version)
            assert found is not None and found.version == one.version and len(found.data) == one.size


def test_what_changes_after_the_listing_has_another_version(place: Place) -> None:
    place.put("a.md", "one")
    source = place.source()
    listed = only(source)
    place.put("a.md", "two")
    found = source.fetch("a.md", listed.version)
    assert found is not None and found.data == b"two" and found.version != listed.version
    assert found.version == only(source).version
    place.delete("a.md")
    assert source.fetch("a.md", listed.version) is None and source.look("a.md") is None
    assert source.labels("a.md", listed.version) is None and list(source.objects()) == []


def test_a_sidecar_states_labels_and_is_no_document(place: Place) -> None:
    place.put("a.md")
    place.put("gone.md.metadata.json", "{}")
    source = place.source()
    bare = only(source)
    assert source.labels("a.md", bare.version) == ()
    place.sidecar("a.md", ["hr", "finance"])
    first = only(source)
    found = source.fetch("a.md", first.version)
    assert first.version.startswith(f"{bare.version}+") and found is not None
    assert found.labels == source.labels("a.md", first.version) == ("finance", "hr")
    place.sidecar("a.md", ["legal"])
    second = only(source)
    assert second.version != first.version and source.labels("a.md", second.version) == ("legal",)
    assert source.look("a.md.metadata.json") is None
    place.delete("a.md.metadata.json")
    assert only(source).version == bare.version
    late = source.fetch("a.md", second.version)
    assert late is not None and (late.labels, late.version) == ((), bare.version), "it is gone since it was listed"


def test_labels_are_the_union_of_tag_metadata_and_sidecar(place: Place) -> None:
    place.put("a.md", Tagging="labels=from+tag&other=x", Metadata={"labels": "meta, two words", "title": "x"})
    place.sidecar("a.md", {"value": {"type": "STRING_LIST", "stringListValue": ["beside"]}})
    source = place.source()
    found = source.fetch("a.md")
    assert found is not None
    assert found.labels == source.labels("a.md") == ("beside", "from", "meta", "tag", "two words")
    assert only(source).version == found.version


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b'{"labels": ["hr"]}',
        b'{"metadataAttributes": ["hr"]}',
        b'{"metadataAttributes": {"labels": 5}}',
        b'{"metadataAttributes": {"labels": ["hr", 5]}}',
        b'{"metadataAttributes": {"labels": null}}',
        b'{"metadataAttributes": {"Labels": ["hr"]}}',
        b'{"metadataAttributes": {"labels": ["hr"], "labels": []}}',
        b'{"metadataAttributes": {"labels": {"value": {"type": "NUMBER", "numberValue": 1}}}}',
        b'{"metadataAttributes": {"labels": {"value": {"type": "STRING", "stringListValue": ["hr"]}}}}',
        b'{"metadataAttributes": {"labels": {"value": {"type": ["STRING"]}}}}',
        b'{"metadataAttributes": {"labels": {"value": "hr"}}}',
        b'{"metadataAttributes": ' * 90_000,
    ],
)
def test_a_sidecar_that_cannot_be_read_denies(body: bytes) -> None:
    assert labels_of_sidecar(body).labels == (UNREADABLE,)


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["hr", "finance"], ("hr", "finance")),
        ("hr, finance", ("hr", "finance")),
        ({"value": {"type": "STRING", "stringValue": "hr"}, "includeForEmbedding": True}, ("hr",)),
        ([], ()),
    ],
)
def test_forms_of_a_sidecar(value: object, labels: tuple[str, ...]) -> None:
    assert labels_of_sidecar(json.dumps({"metadataAttributes": {"labels": value}}).encode("utf-8-sig")).labels == labels
    assert labels_of_sidecar(b'{"metadataAttributes": {"year": 2020}}').labels == ()


def test_tags_and_metadata_are_read_exactly_or_deny() -> None:
    def tags(name: str, value: str) -> tuple[str, ...]:
        return labels_of_tags([{"Key": "x", "Value": "y"}, {"Key": name, "Value": value}]).labels

    assert tags("labels", "hr c++ a:b") == ("hr", "c++", "a:b") and tags("labels", "") == ()
    assert tags("Labels", "hr") == tags("labels", "- hr") == tags("labels", ",") == (UNREADABLE,)
    assert labels_of_metadata({"Labels": "a, b"}).labels == ("a", "b")
    assert labels_of_metadata({"labels": "=?UTF-8?B?w6Q=?="}).labels == ("ä",)
    assert labels_of_metadata({"labels": "ä".encode().decode("latin-1")}).labels == ("ä",)
    for value in ("[hr]", "\xe4", "=?nothing?B?w6Q=?=", "=?UTF-8?B?/w==?="):
        assert labels_of_metadata({"labels": value}).labels == (UNREADABLE,)
    assert labels_of_metadata({}, 1).labels == (UNREADABLE,) and labels_of_metadata({}).labels == ()


def test_what_cannot_be_read_denies_beside_what_can(place: Place) -> None:
    place.put("a.md", Metadata={"labels": "hr"})
    place.put("a.md.metadata.json", b"{")
    place.put("b.md")
    place.put("b.md.metadata.json", b'{"metadataAttributes": {"labels": ["hr"]}}' + b" " * 100_000)
    source = place.source()
    for listed, labels in zip(source.objects(), [(UNREADABLE, "hr"), (UNREADABLE,)], strict=True):
        found = source.fetch(listed.key, listed.version)
        assert found is not None and found.labels == labels == source.labels(listed.key, listed.version)
        assert found.version == listed.version


def test_what_is_no_document_is_not_listed(place: Place) -> None:
    for key in ("a.md", "folder/", "folder/b.md", "index/pointer.json", "index/deep/x", "index-2/c.md", "Drafts/d.md"):
        place.put(key)
    place.put("drafts/e.md")
    own = place.server.address(f"{place.prefix}/index")
    assert place.keys(own=[own], exclude=["drafts/*"]) == ["Drafts/d.md", "a.md", "folder/b.md", "index-2/c.md"]
    source = place.source(own=[own], exclude=["drafts/*"])
    assert [source.look(key) for key in ("index/pointer.json", "drafts/e.md", "folder/", "A.md")] == [None] * 4
    with pytest.raises(SourceError, match="within the index"):
        place.source(own=[place.server.address("sources")])


def test_one_pattern_narrows_the_listing(place: Place, proxy: FlakyProxy) -> None:
    for key in ("hr/a.md", "hr/b.txt", "it/c.md", "cafe\u0301/d.md", "café/e.md"):
        place.put(key)
    place.sidecar("hr/a.md", ["x"])
    source = place.source(include=["hr/*.md"])
    assert "+" in only(source).version and only(source).key == "hr/a.md"
    assert f"prefix={place.prefix}/hr/&" in f"{proxy.seen[-1]}&"
    assert place.keys(include=["café/*"]) == ["cafe\u0301/d.md", "café/e.md"]
    assert place.keys(include=["cafe\u0301/*"]) == ["cafe\u0301/d.md", "café/e.md"]
    assert place.keys(include=["hr/a*", "hr/b*"]) == ["hr/a.md", "hr/b.txt"]


def test_a_prefix_is_a_folder(place: Place) -> None:
    place.put("a.md")
    beside = Place(place.server, "")
    beside.prefix = f"{place.prefix}-2"
    beside.put("b.md")
    source = open_source(f"{place.server.address(place.prefix)}/", SourceOptions("wiki"))
    assert [one.key for one in source.objects()] == ["a.md"]
    assert (source.name, source.place) == ("wiki", place.server.address(place.prefix))
    assert source.trusted and source.parallel == 16
    whole = S3Source(f"s3://{BUCKET}", SourceOptions(include=[f"{place.prefix}*"]))
    assert [one.key for one in whole.objects()] == [f"{place.prefix}-2/b.md", f"{place.prefix}/a.md"]


def test_an_object_that_is_too_large_is_named_and_not_read(place: Place, proxy: FlakyProxy) -> None:
    place.put("a.md", b"x" * 11)
    source = place.source(most_bytes=10)
    one = only(source)
    assert "11 bytes, more than 10" in one.problem and one.status == "failed" and source.look("a.md") == one
    with pytest.raises(OSError, match="more than 10"):
        source.fetch("a.md")
    assert only(place.source(most_bytes=11)).problem == ""


@pytest.mark.parametrize("address", ["s3://", "s3:///docs", "s3://bucket/a//b", "s3://b/../c", "s3://k:hidden@host/b"])
def test_a_malformed_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(SourceError, match="no place in a bucket") as refused:
        open_source(address)
    assert "hidden" not in str(refused.value)


def refused(source: S3Source) -> SourceError:
    """The error of a listing, which gives no object before."""
    with pytest.raises(SourceError) as found:
        next(source.objects())
    assert source.address in found.value.message and found.value.remedy
    return found.value


def test_mistakes_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("a.md")
    nowhere = S3Source("s3://no-such-bucket/docs")
    assert "no such bucket" in (error := refused(nowhere)).message and not error.transient
    with pytest.raises(SourceError, match="no such bucket"):
        nowhere.look("a.md")
    for read in (nowhere.fetch, nowhere.labels):
        with pytest.raises(OSError, match="no such bucket"):
            read("a.md")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    wrong = place.source()
    assert "credentials are wrong" in (error := refused(wrong)).message and not error.transient
    assert "wrong-and-secret" not in f"{error}{error!r}{wrong!r}{vars(wrong)}"
    with pytest.raises(SourceError, match="credentials are wrong"):
        wrong.look("a.md")
    with pytest.raises(OSError, match="credentials are wrong") as failed:
        wrong.fetch("a.md")
    assert failed.value.strerror
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SourceError, match="credentials"):
        list(place.source().objects())


@pytest.mark.parametrize("mode", ["busy", "reset"])
def test_a_passing_fault_is_waited_for(place: Place, proxy: FlakyProxy, mode: Any) -> None:
    place.put("a.md", "text")
    source = place.source(attempts=3)
    proxy.fail(mode, times=2)
    (one,) = source.objects()
    assert proxy.heal() == 2
    proxy.fail(mode, times=2)
    found = source.fetch("a.md", one.version)
    assert found is not None and found.data == b"text" and proxy.heal() == 2


@pytest.mark.parametrize("mode", ["busy", "reset", "stall"])
def test_an_outage_is_transient(place: Place, proxy: FlakyProxy, mode: Any) -> None:
    place.put("a.md")
    source = place.source(attempts=2, timeout=0.5)
    proxy.fail(mode)
    began = time.monotonic()
    assert refused(source).transient
    with pytest.raises(SourceError) as unseen:
        source.look("a.md")
    assert unseen.value.transient
    for read in (source.fetch, source.labels):
        with pytest.raises(OSError) as failed:
            read("a.md")
        assert failed.value.strerror
    assert time.monotonic() - began < 30
    proxy.heal()
    assert only(source).key == "a.md"


def test_a_listing_that_breaks_off_is_never_a_short_one(
    place: Place, proxy: FlakyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        place.put(f"{number}.md")
    monkeypatch.setattr("flows.sources.s3_bucket._PAGE", 2)
    source = place.source(attempts=2)
    assert len(list(source.objects())) == 5
    proxy.fail("busy", "continuation-token", only=True)
    assert refused(source).transient and proxy.heal() >= 1


def test_a_server_that_is_gone_is_an_outage(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:hidden@127.0.0.1:{port}")
    error = refused(S3Source(f"s3://{BUCKET}/docs", attempts=2, timeout=0.5))
    assert "cannot be reached" in error.message and error.transient and "AWS_ENDPOINT_URL" in error.remedy
    assert "hidden" not in str(error)


class Answer(NamedTuple):
    """An answer on its way from the server to the client.

    Attributes:
        sent: how many bytes of the body reach the client before the connection ends; all of them by default.
    """

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    sent: int | None = None

    def without(self, name: str) -> Answer:
        return self._replace(headers=[one for one in self.headers if one[0].lower() != name])


Change = Callable[[str, Answer], Answer]


class Altering:
    """A proxy in front of the S3 server that alters answers.

    Attributes:
        change: gets ``METHOD /path?query`` and the answer, and returns the one that the client gets.
        seen: each request, with its Range.
    """

    def __init__(self, upstream: str) -> None:
        self.change: Change = lambda line, answer: answer
        self.seen: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                line = f"{self.command} {unquote(self.path)}"
                outer.seen.append((line, self.headers.get("Range", "")))
                link = HTTPConnection(urlsplit(upstream).netloc, timeout=30)
                link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    link.putheader(name, value)
                link.endheaders()
                got = link.getresponse()
                answer = outer.change(line, Answer(got.status, got.getheaders(), got.read()))
                link.close()
                self.answer(answer.without("transfer-encoding").without("connection"))

            do_HEAD = do_GET

            def answer(self, answer: Answer) -> None:
                self.send_response_only(answer.status)
                for name, value in (answer if self.command == "HEAD" else answer.without("content-length")).headers:
                    self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(answer.body)))
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: answer.sent])

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def altering(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Altering]:
    proxy = Altering(s3.endpoint)
    thread = threading.Thread(target=proxy.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        thread.join()
        proxy.server.server_close()


def gets(line: str, key: str = "a.md") -> bool:
    """Whether this is a request for the bytes of an object."""
    return line.startswith("GET") and line.split("?")[0].endswith(key) and "?tagging" not in line


BIG = bytes(range(256)) * 4_000  # a megabyte, in several blocks


def test_a_body_that_breaks_off_is_read_on(place: Place, altering: Altering) -> None:
    place.put("a.md", BIG)
    cuts = [600_000, 0, 300_000]
    altering.change = lambda line, answer: answer._replace(sent=cuts.pop(0)) if gets(line) and cuts else answer
    source = place.source()
    found = source.fetch("a.md")
    assert found is not None and found.data == BIG and found.version == only(source).version
    ranges = [asked for line, asked in altering.seen if gets(line)]
    assert len(ranges) == 4 and ranges[0] == "" and ranges[1] == ranges[2] != ranges[3], "none begins anew"


def test_a_body_that_always_breaks_off_is_an_error(place: Place, altering: Altering) -> None:
    place.put("a.md", BIG)
    altering.change = lambda line, answer: answer._replace(sent=10) if gets(line) else answer
    with pytest.raises(OSError, match="cannot be reached"):
        place.source().fetch("a.md")
    assert sum(gets(line) for line, _ in altering.seen) == 4


def test_an_object_that_changes_while_it_is_read_is_read_anew(place: Place, altering: Altering) -> None:
    place.put("a.md", BIG)

    def replaced(line: str, answer: Answer) -> Answer:
        if gets(line) and len([one for one, _ in altering.seen if gets(one)]) == 1:
            place.put("a.md", BIG[::-1])
            return answer._replace(sent=600_000)
        return answer

    altering.change = replaced
    source = place.source()
    found = source.fetch("a.md")
    assert found is not None and found.data == BIG[::-1] and found.version == only(source).version


def test_an_object_that_always_changes_is_busy(place: Place, altering: Altering) -> None:
    place.put("a.md", "0")

    def replaced(line: str, answer: Answer) -> Answer:
        if gets(line):
            place.put("a.md", str(len(altering.seen)))
        return answer

    altering.change = replaced
    with pytest.raises(OSError, match="it changed while it was read, 3 times") as failed:
        place.source().fetch("a.md")
    assert failed.value.errno == errno.EBUSY


def test_tags_are_those_of_the_bytes(place: Place, altering: Altering) -> None:
    """A secret is replaced by what all may read, between the bytes and the tags."""
    place.put("a.md", "secret", Tagging="labels=board")

    def replaced(line: str, answer: Answer) -> Answer:
        if gets(line) and answer.body == b"secret":
            place.put("a.md", "public", Tagging="labels=all")
        return answer

    altering.change = replaced
    found = place.source().fetch("a.md")
    assert found is not None and (found.data, found.labels) == (b"public", ("all",))


@pytest.mark.parametrize("checksum", [True, False])
def test_damaged_bytes_are_not_taken(place: Place, altering: Altering, checksum: bool) -> None:
    place.put("a.md", "text")

    def damaged(line: str, answer: Answer) -> Answer:
        if not gets(line):
            return answer
        answer = answer._replace(body=b"tost")
        return answer if checksum else answer.without("x-amz-checksum-crc32")

    altering.change = damaged
    with pytest.raises(OSError, match="not those of its checksum, 3 times"):
        place.source().fetch("a.md")
    encrypted = [("x-amz-server-side-encryption", "aws:kms")]
    altering.change = lambda line, answer: damaged(line, answer)._replace(headers=[*answer.headers, *encrypted])
    if not checksum:
        altering.change = lambda line, answer: (one := damaged(line, answer))._replace(
            headers=[*one.headers, *encrypted]
        )
        found = place.source().fetch("a.md")
        assert found is not None and found.data == b"tost", "an encrypted object's etag is no MD5"


@pytest.mark.parametrize("header", ["x-amz-server-side-encryption: aws:kms", "etag: 0-1"])
def test_an_etag_that_is_no_md5_is_not_taken_for_one(place: Place, altering: Altering, header: str) -> None:
    place.put("a.md", "text")
    name, value = header.split(": ")

    def other(line: str, answer: Answer) -> Answer:
        answer = answer.without(name).without("x-amz-checksum-crc32")
        body = b"tost" if gets(line) else answer.body
        return answer._replace(headers=[*answer.headers, (name, value)], body=body)

    altering.change = other
    found = place.source().fetch("a.md")
    assert found is not None and found.data == b"tost"


def failing(code: str, status: int) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>words</Message></Error>".encode()
    return Answer(status, [("Content-Type", "application/xml")], body)


def test_tags_that_may_not_be_read_are_an_error_and_those_of_no_store_are_none(
    place: Place, altering: Altering
) -> None:
    place.put("a.md", Metadata={"labels": "hr"})
    source = place.source(attempts=1)

    def tagging(answer: Answer) -> None:
        altering.change = lambda line, other: answer if "?tagging" in line else other

    tagging(failing("AccessDenied", 403))
    for read in (source.fetch, source.labels):
        with pytest.raises(PermissionError, match="s3:GetObjectTagging") as failed:
            read("a.md")
        assert "s3:GetObjectTagging" in failed.value.strerror
    tagging(failing("InternalError", 500))
    with pytest.raises(OSError, match="fault of its own"):
        source.labels("a.md")
    for answer in (failing("NotImplemented", 501), failing("", 501), failing("NoSuchTagSet", 404)):
        tagging(answer)
        found = source.fetch("a.md")
        assert found is not None and found.labels == source.labels("a.md") == ("hr",)


@pytest.mark.parametrize(
    ("code", "words"), [("InvalidObjectState", "archived; restore it first"), ("AccessDenied", "s3:GetObject")]
)
def test_an_object_that_may_not_be_read_says_why(place: Place, altering: Altering, code: str, words: str) -> None:
    place.put("a.md")
    altering.change = lambda line, answer: failing(code, 403) if gets(line) else answer
    with pytest.raises(OSError) as failed:
        place.source().fetch("a.md")
    assert words in failed.value.strerror
    altering.change = lambda line, answer: failing(code, 403) if gets(line, ".metadata.json") else answer
    with pytest.raises(OSError, match="archived" if "archived" in words else "denied"):
        place.source().fetch("a.md")  # a sidecar that cannot be read is not a missing one


def test_an_expired_token_is_transient(place: Place, altering: Altering) -> None:
    altering.change = lambda line, answer: failing("ExpiredToken", 400)
    assert "have expired" in (error := refused(place.source())).message and error.transient
    altering.change = lambda line, answer: failing("AccessDenied", 403)
    assert "s3:ListBucket" in (error := refused(place.source())).remedy and not error.transient


def page(*keys: str, token: str = "", truncated: bool = False) -> Answer:
    """A page of a listing, its keys as a URL has them."""
    rows = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2024-05-06T07:08:09.123Z</LastModified>"
        "<ETag>&quot;e+1&quot;</ETag><Size>1</Size></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    told = f"<IsTruncated>{'true' if truncated or token else 'false'}</IsTruncated>"
    body = f"<ListBucketResult><EncodingType>url</EncodingType>{told}{more}{rows}</ListBucketResult>"
    return Answer(200, [("Content-Type", "application/xml")], body.encode())


def listing(altering: Altering, *pages: Answer) -> None:
    """Give these pages, then the last one again and again."""
    left = list(pages)

    def canned(line: str, answer: Answer) -> Answer:
        return (left.pop(0) if len(left) > 1 else left[0]) if "list-type=2" in line else answer

    altering.change = canned


@pytest.mark.parametrize(
    "pages",
    [
        [page("docs/a", token="t"), page("docs/b", truncated=True)],
        [page("docs/a", token="t"), page("docs/b", token="t")],
        [page("docs/a", token="t"), page("docs/a", token="u")],
        [page("docs/a", token="t"), page(token="u"), page(token="t")],
        [page("docs/a", token="t"), Answer(200, [], b"<html><body>Sign in</body></html>")],
        [page("docs/a", token="t"), Answer(200, [], b"Sign in")],
        [page("docs/a", token="t"), page("docs/b")._replace(sent=50)],
        [page("docs/a", token="t"), failing("ExpiredToken", 400)],
    ],
)
def test_a_listing_that_cannot_be_whole_gives_nothing(s3: Server, altering: Altering, pages: list[Answer]) -> None:
    source = S3Source(f"s3://{BUCKET}/docs", attempts=2)
    listing(altering, page("docs/a", token="t"), page(token="u"), page("docs/b"))
    assert [one.key for one in source.objects()] == ["a", "b"]
    listing(altering, *pages)
    refused(source)


def test_keys_that_cannot_be_asked_for_are_named(s3: Server, altering: Altering) -> None:
    source = S3Source(f"s3://{BUCKET}/docs")
    doubtful = ["a/../b", "a/./b", "a//b", "/b", "..", "a%00b", "caf%FF"]
    listing(altering, page(*(f"docs/{key}" for key in [*doubtful, "fine...md", "a+b%2Bc", "a/../b.metadata.json"])))
    found = {one.key: one for one in source.objects()}
    assert {key for key, one in found.items() if one.problem} == {unquote(key) for key in doubtful}
    assert found.keys() - {unquote(key) for key in doubtful} == {"fine...md", "a b+c"}
    assert found["fine...md"].version == "e%2B1:1714979289"
    before = len(altering.seen)
    for key in found.keys() - {"fine...md", "a b+c"}:
        for read in (source.fetch, source.labels):
            with pytest.raises(OSError, match="rename it"):
                read(key)
    assert len(altering.seen) == before, "they are never asked for"
    assert source.look("a/../b") == found["a/../b"]
    assert all("list-type=2" in line for line, _ in altering.seen)
    listing(altering, page())
    assert source.look("a/../b") is None


def test_a_listing_is_not_held_in_memory() -> None:
    pages = 100

    def fill() -> Iterator[Iterator[tuple[S3Listed, bool]]]:
        for one in range(pages):
            yield ((S3Listed(f"{number:09}", "stamp" * 8, 1), False) for number in range(one, 100_000, pages))

    tracemalloc.start()
    try:
        count = sum(1 for _ in sorted_listing(fill))
        assert count == 100_000 and tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
