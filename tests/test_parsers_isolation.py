"""Files that crash, hang or swell end as failed documents; the other documents and the build go on.

``sitecustomize`` gives the worker processes a parser that misbehaves as a file's content asks; the hostile files below
it are parsed by the real ones.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import Workspace
from docx import Document as Docx
from pdf_writer import Sheet, written

from parsers.document import Document
from parsers.isolation import Limits, Parsed, ParserPool
from parsers.registry import media_type, read

LIMITS = Limits(memory=400_000_000, seconds=2, output=2_000_000)
BEHAVIOUR = """
import ctypes, os, signal, socket, subprocess, time
import parsers.registry as registry
from parsers.document import Document

real = registry.read

def read(key, data):
    match data.decode("latin-1").split():
        case ["LOOP"]:
            while True: pass
        case ["SLEEP"]: time.sleep(1000)
        case ["SEGFAULT"]: ctypes.string_at(0)
        case ["ABORT"]: os.abort()
        case ["EXIT"]: os._exit(7)
        case ["KILL"]: os.kill(os.getpid(), signal.SIGKILL)
        case ["ALLOCATE"]: bytearray(10 << 30)
        case ["SWELL"]: return Document(text="x" * 5_000_000, media_type="text/plain")
        case ["RAISE"]: raise RuntimeError("broken \\udc80")
        case ["PRINT"]: os.write(1, b"noise" * 1000); os.write(2, b"noise"); print("noise")
        case ["WRITE", path]: open(path, "w")
        case ["CONNECT"]: socket.create_connection(("127.0.0.1", 9))
        case ["SPAWN"]: subprocess.run(["true"])
        case ["ONCE", path] if not os.path.exists(path): os.mkdir(path); os.abort()
        case ["PID"]: return Document(text=str(os.getpid()), media_type="text/plain")
    return real(key, data)

registry.read = read
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ParserPool]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BEHAVIOUR)
    root = Path(__file__).parent.parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(root)]))
    made = ParserPool(2, LIMITS)
    yield made
    made.close()


def parsed(pool: ParserPool, text: str | bytes, key: str = "a.txt") -> Parsed:
    data = text.encode() if isinstance(text, str) else text
    return pool.read(key, data, media_type(key, data))


@pytest.mark.parametrize(
    ("text", "reason", "transient"),
    [
        ("LOOP", "takes more than 2 s of processor time", False),
        ("SEGFAULT", "crashed by SIGSEGV", False),
        ("ABORT", "crashed by SIGABRT", False),
        ("EXIT", "crashed with status 7", False),
        ("KILL", "was killed: the machine may lack memory", True),
        ("ALLOCATE", "needs more than 400 MB of memory", False),
        ("SWELL", "its document has 5 MB, more than the 2 MB allowed", False),
        ("RAISE", "the parser failed with RuntimeError: broken", False),
        ("CONNECT", "must not call socket", False),
        ("SPAWN", "must not call subprocess", False),
    ],
)
def test_a_file_that_breaks_its_parser_fails_alone(pool: ParserPool, text: str, reason: str, transient: bool) -> None:
    before = pool.submit("b.txt", b"A neighbour.", "text/plain")
    found = parsed(pool, text)
    assert found.document.status == "failed" and reason in found.document.reason
    assert (found.document.media_type, found.transient) == ("text/plain", transient)
    assert before.result().document == parsed(pool, "A neighbour.").document == read("b.txt", b"A neighbour.")


def test_a_parser_that_waits_for_nothing_is_ended(tmp_path: Path, pool: ParserPool) -> None:
    short = ParserPool(1, LIMITS._replace(seconds=0.5))
    begun = time.monotonic()
    found = parsed(short, "SLEEP")
    short.close()
    assert found.transient and "did not finish within 10 times 0.5 s" in found.document.reason
    assert time.monotonic() - begun < 30


def test_a_parser_writes_no_file(pool: ParserPool, tmp_path: Path) -> None:
    target = tmp_path / "written"
    assert "must not write" in parsed(pool, f"WRITE {target}").document.reason
    assert not target.exists()


def test_what_a_library_prints_spoils_no_answer(pool: ParserPool) -> None:
    assert parsed(pool, "PRINT").document.text == "PRINT"


def test_a_crash_that_does_not_come_again_fails_nothing(pool: ParserPool, tmp_path: Path) -> None:
    assert parsed(pool, f"ONCE {tmp_path / 'crashed'}").document.status == "ok"


def test_a_worker_is_used_again_and_a_crashed_one_replaced() -> None:
    one = ParserPool(1, LIMITS)
    try:
        for _ in range(3):
            assert parsed(one, "plain").document.status == "ok"
    finally:
        one.close()


def test_documents_are_those_of_this_process(pool: ParserPool) -> None:
    files: list[tuple[str, bytes]] = [
        ("a.md", b"# Title\n\nText with a [link](b.md).\n\n- one\n- two\n"),
        ("a.html", b"<h1>Title</h1><p>Text</p><table><tr><td>1<td>2</table>"),
        ("a.txt", "Grüße \U0001f600\r\nzwei".encode()),
        ("a.docx", docx("A paragraph")),
        ("a.pdf", pages("A page.")),
        ("a.png", b"\x89PNG\r\n\x1a\n"),
        ("empty.md", b""),
        ("nul\0name.md", b"text"),
        ("../../up.md", b"text"),
        ("\udcff.md", b"text"),
    ]
    asked = [pool.submit(key, data, media_type(key, data)) for key, data in files]
    assert [one.result().document for one in asked] == [read(key, data) for key, data in files]


def test_closing_ends_a_worker_at_work(pool: ParserPool) -> None:
    asked = pool.submit("a.txt", b"SLEEP", "text/plain")
    waiting = [pool.submit("a.txt", b"text", "text/plain") for _ in range(100)]
    time.sleep(0.5)
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < 4
    assert asked.cancelled() or asked.result().document.status == "failed"
    assert all(one.done() or one.cancelled() for one in waiting)


def test_workers_end_with_a_killed_build(pool: ParserPool) -> None:
    code = (
        "import threading, time; from parsers.isolation import ParserPool\n"
        "pool = ParserPool(1); print(pool.read('a.txt', b'PID', 'text/plain').document.text, flush=True)\n"
        "pool.submit('a.txt', b'LOOP', 'text/plain'); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        worker = int(build.stdout.readline())
        time.sleep(0.3)
        build.kill()
        build.wait()
    give_up = time.monotonic() + 10
    while Path(f"/proc/{worker}/status").exists() and time.monotonic() < give_up:
        if "State:\tZ" in Path(f"/proc/{worker}/status").read_text():
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


# Hostile files, parsed by the real adapters under the default limits of memory.


def docx(text: str) -> bytes:
    document = Docx()
    document.add_paragraph(text)
    held = io.BytesIO()
    document.save(held)
    return held.getvalue()


def pages(*texts: str) -> bytes:
    """A PDF file with a line on each page."""
    sheets = [Sheet() for _ in texts]
    for number, (sheet, text) in enumerate(zip(sheets, texts, strict=True)):
        sheet.text(50, 100 + 60 * (number % 10), text)
    return written(*sheets)


def with_part(data: bytes, name: str, content: bytes) -> bytes:
    """A Word file with another content of one part."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry == name else old.read(entry))
    return held.getvalue()


LETTERS = str.maketrans("0123456789", "ghijklmnop")
W = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def bomb(levels: int = 12) -> bytes:
    """A billion laughs as the body of a Word file."""
    entities = b'<!ENTITY a0 "ha">' + b"".join(
        b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, levels)
    )
    body = b"<w:document %s><w:body><w:p><w:r><w:t>&a%d;</w:t></w:r></w:p></w:body></w:document>" % (W, levels - 1)
    return with_part(docx("x"), "word/document.xml", b"<?xml version='1.0'?><!DOCTYPE x [" + entities + b"]>" + body)


def external(path: Path) -> bytes:
    body = b"<w:document %s><w:body><w:p><w:r><w:t>seen &x;</w:t></w:r></w:p></w:body></w:document>" % W
    head = b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY x SYSTEM 'file://%s'>]>" % str(path).encode()
    return with_part(docx("x"), "word/document.xml", head + body)


HOSTILE = {
    "zip bomb.docx": lambda: with_part(docx("x"), "word/document.xml", b"<w:p>" + b" " * 1_500_000_000),
    "xml bomb.docx": bomb,
    "deep.html": lambda: b"<div>" * 300_000 + b"deep",
    "deep.md": lambda: b"> " * 100_000 + b"deep",
    "lists.md": lambda: b"".join(b" " * (2 * n) + b"- x\n" for n in range(2_000)),
    "cells.html": lambda: b"<table>" + (b"<tr>" + b"<td>1" * 1_000) * 1_000 + b"</table>",
    "spans.html": lambda: b"<table><tr>" + b"<td rowspan=65534 colspan=1000>x" * 2_000 + b"</table>",
    "brackets.json": lambda: b"[" * 5_000_000,
    "nul.txt": lambda: b"\0" * 10_000_000,
    "cut.pdf": lambda: pages("A page.")[:-200],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_its_status(name: str) -> None:
    limits = Limits(memory=1_500_000_000, seconds=60, output=200_000_000)
    pool = ParserPool(2, limits)
    try:
        asked = parsed(pool, HOSTILE[name](), name)
        assert asked.document.status in ("ok", "partial", "empty", "skipped", "failed")
        assert asked.document.status in ("ok", "empty") or asked.document.reason
        assert not asked.transient
        assert parsed(pool, "A neighbour.").document.text == "A neighbour."
    finally:
        pool.close()


@pytest.mark.slow
def test_ten_thousand_pages_are_read() -> None:
    pool = ParserPool(1)
    try:
        words = [sha256(str(number).encode()).hexdigest().translate(LETTERS) for number in range(10_000)]
        found = parsed(pool, pages(*(f"The {word} opens." for word in words)), "long.pdf").document
        assert found.status == "ok" and all(word in found.text for word in (words[0], words[-1]))
    finally:
        pool.close()


def test_an_external_entity_is_not_read(pool: ParserPool, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    found = parsed(pool, external(secret), "a.docx").document
    assert "the secret" not in found.text + found.reason


def test_a_build_goes_on_around_hostile_files(workspace: Workspace, pool: ParserPool) -> None:
    for name, text in [
        ("loop", "LOOP"),
        ("crash", "SEGFAULT"),
        ("crash copy", "SEGFAULT"),
        ("big", "ALLOCATE"),
        ("good", "The valve opens."),
    ]:
        workspace.write(f"{name}.txt", text)
    workspace.write("good.md", "# Pump\n\nIts seal wears out.\n")
    with (workspace.docs / "sparse.txt").open("wb") as file:
        file.truncate(2_000_000_000)
    flags = {"parse_workers": 2, "parse_seconds": 1.0, "parse_bytes": 400_000_000}
    report = workspace.build(**flags)
    failed = {one["key"]: one["reason"] for one in report["failures"]}
    assert set(failed) == {"loop.txt", "crash.txt", "crash copy.txt", "big.txt", "sparse.txt"}
    assert "document_bytes" in failed["sparse.txt"]
    assert report["published"] and report["documents"]["added"] == 2
    assert workspace.search("valve", "bm25")[0].key == "good.txt"
    assert workspace.build(**flags)["work"]["parsed"] == 0, "what can only fail again is left alone"


def test_interrupts_end_the_workers(pool: ParserPool) -> None:
    asked = pool.submit("a.txt", b"PID", "text/plain")
    pid = int(asked.result().document.text)
    assert os.getpgid(pid) == pid, "Ctrl-C in a terminal does not reach it"
    timer = threading.Timer(0.2, lambda: os.kill(pid, signal.SIGKILL))
    timer.start()
    timer.join()
    assert isinstance(parsed(pool, "text").document, Document)
