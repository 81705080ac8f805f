"""Media types, the table of adapters, and reading whatever comes."""

from __future__ import annotations

import hashlib
import importlib
import io
import logging
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import registry
from parsers.document import Document, check
from parsers.errors import DocumentError, UnsupportedDocument
from parsers.languages import LANGUAGES, NAMES
from parsers.markdown import adapter as markdown
from parsers.registry import ADAPTERS, adapter, adapter_for, media_type, parser_fingerprint, read
from parsers.sniffing import binary_kind, text_kind

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64)


def zipped(**members: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return held.getvalue()


# --- the table --------------------------------------------------------------------------------------------------------


def test_no_media_type_and_no_extension_has_two_adapters() -> None:
    extensions = Counter(extension for one in ADAPTERS for extension in one.media_types)
    types = Counter(kind for one in ADAPTERS for kind in set(one.media_types.values()))
    assert max(extensions.values()) == max(types.values()) == 1
    assert all(extension == extension.lower() and extension.startswith(".") for extension in extensions)


def test_no_adapter_reads_what_is_listed_as_unread() -> None:
    assert not set(registry._UNREAD) & {extension for one in ADAPTERS for extension in one.media_types}


def test_every_adapter_has_a_module_with_a_parse_function() -> None:
    for one in ADAPTERS:
        assert callable(importlib.import_module(one.module).parse)


def test_every_language_has_a_media_type_of_its_own() -> None:
    assert set(NAMES.values()) <= set(LANGUAGES.values())
    for language in LANGUAGES.values():
        assert adapter_for(f"text/x-{language}").name == "text"


def test_a_fingerprint_names_adapter_version_and_libraries() -> None:
    assert adapter("web").fingerprint().startswith(f"web:{adapter('web').version}:selectolax=")
    assert (
        parser_fingerprint("text/html") == parser_fingerprint("application/xhtml+xml") == adapter("web").fingerprint()
    )
    assert parser_fingerprint("application/x-unheard-of") == ""


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"'mardown'.*markdown, web, "):
        adapter("mardown")


def test_an_unread_type_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedDocument, match=r"no adapter reads image/png\. Exclude"):
        adapter_for("image/png")


def test_adapters_are_imported_when_they_are_needed() -> None:
    code = (
        "import sys; from parsers.registry import read;"
        "assert not {'parsers.web.adapter', 'parsers.text'} & set(sys.modules);"
        "read('a.txt', b'x'); assert 'parsers.text' in sys.modules; assert 'selectolax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(registry.__file__).parent.parent)


# --- media types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "data", "kind"),
    [
        ("a/b.md", b"x", "text/markdown"),
        ("A.MD", b"<html>", "text/markdown"),
        ("a.pdf.md", b"x", "text/markdown"),
        (".md", b"x", "text/markdown"),
        ("a.html", b"x", "text/html"),
        ("a.xhtml", b"x", "application/xhtml+xml"),
        ("a.txt", b"", "text/plain"),
        ("a.txt", b"{not json", "text/plain"),
        ("a.py", b"x", "text/x-python"),
        ("x/Makefile", b"x", "text/x-make"),
        ("README", b"x", "text/plain"),
        ("a.unheard", b"x", "text/plain"),
        ("page", b"\xef\xbb\xbf <!-- c --><!DOCTYPE html><p>", "text/html"),
        ("page", b"<?xml version='1.0'?><html>", "text/html"),
        ("data", b"<?xml version='1.0'?><a/>", "application/xml"),
        ("tool", b"#!/usr/bin/env python3\nx", "text/x-python"),
        ("report", b"%PDF-1.7\n", "application/pdf"),
        ("a.pdf", b"no pdf", "application/pdf"),
        ("a.docx", OLE, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.eml", b"From: x", "message/rfc822"),
        ("thing", zipped(mimetype="application/epub+zip"), "application/epub+zip"),
        ("thing", zipped(**{"[Content_Types].xml": "", "xl__workbook.xml": ""}),
         "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("thing", zipped(**{"a.txt": ""}), "application/zip"),
        ("thing.bin", bytes(100), "application/octet-stream"),
        ("a.md", PNG, "application/octet-stream"),
        ("a.txt", "mit BOM".encode("utf-16"), "text/plain"),
        ("a.txt", "sans BOM".encode("utf-16-le"), "text/plain"),
        ("", b"x", "text/plain"),
        ("a/..", b"x", "text/plain"),
    ],
)  # fmt: skip
def test_the_name_counts_first_and_then_the_content(key: str, data: bytes, kind: str) -> None:
    assert media_type(key, data) == kind


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=20),
    st.binary(max_size=300),
    st.sampled_from([b"", b"PK\x03\x04", b"%PDF-", b"<?xml ", b"{", b"[", b"#!/"]),
)
def test_telling_the_type_never_raises(key: str, data: bytes, head: bytes) -> None:
    assert "/" in media_type(key, head + data)
    text_kind(head + data)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_archives_never_raise(data: st.DataObject) -> None:
    whole = bytearray(zipped(mimetype="application/epub+zip", word__document="x" * 50))
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert binary_kind(bytes(whole[: data.draw(st.integers(4, len(whole)))])) is not None


# --- read: what cannot be read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "data", "status", "reason"),
    [
        ("a.md", PNG, "failed", "named .md but holds a PNG image. Rename it"),
        ("a.py", OLE, "failed", "named .py but holds an OLE file"),
        ("a.txt", b"%PDF-1.4\n%text", "failed", "named .txt but holds a PDF document"),
        ("a.html", bytes(range(256)) * 9, "failed", "named .html but holds binary data"),
        ("a.csv", zipped(**{"[Content_Types].xml": "", "xl__a.xml": ""}), "failed", "holds an Excel workbook"),
        ("Makefile", b"\x7fELF" + bytes(99), "failed", "named Makefile but holds a Linux program"),
        ("thing", PNG, "skipped", "a file without an extension (image/png: a PNG image). What is read: markdown (.md,"),
        ("thing.bin", bytes(99), "skipped", "no adapter reads .bin files (application/octet-stream: binary data)"),
        ("a.PNG", PNG, "skipped", "no adapter reads .png files (image/png). What is read: markdown (.md,"),
        ("a.txt", b"\x81\x8d\x8f\x90" * 20, "failed", "text in an unknown encoding"),
        ("a.txt", b"", "empty", "the file has 0 bytes"),
        ("a.pdf", b"", "empty", "the file has 0 bytes"),
        ("a.md", b"\n \n", "empty", "no text in it"),
        ("a.html", b"<p> </p>", "empty", "no text in it"),
        ("a.md", b"---\na: b\n---\n", "empty", "no text in it"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(key: str, data: bytes, status: str, reason: str) -> None:
    document = read(key, data)
    assert document.status == status
    assert reason in document.reason
    if status in ("failed", "skipped"):
        assert (document.text, document.nodes, document.title) == ("", (), "")


def test_a_stray_nul_is_replaced_and_said() -> None:
    document = read("a.txt", b"words before\0 and after, " * 2 + b"and many more words, so that it is text " * 50)
    assert (document.status, document.reason) == ("partial", "2 NUL characters, replaced")


class Planted(Exception):
    """A defect of an adapter."""


def planted(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def parse(data: bytes) -> Document:
        raise error

    monkeypatch.setattr(markdown, "parse", parse)


def test_a_defect_of_an_adapter_fails_its_document_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planted(monkeypatch, Planted("boom"))
    with caplog.at_level(logging.DEBUG, logger="parsers.registry"):
        document = read("a.md", b"# x")
    assert document.status == "failed"
    assert document.reason == "the markdown adapter failed with Planted: boom"
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert caplog.records[0].levelno == logging.DEBUG


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), SystemExit()])
def test_what_is_no_fault_of_the_document_passes_through(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    planted(monkeypatch, error)
    with pytest.raises(type(error)):
        read("a.md", b"# x")


def test_a_document_error_keeps_its_message_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, DocumentError("page 3 is missing", "Scan it"))
    assert read("a.md", b"# x").reason == "page 3 is missing. Scan it"


def test_the_name_has_no_part_in_the_document() -> None:
    data = b"# Title\n\ntext\n"
    assert read("a/first.md", data) == read("b/second.markdown", data)
    assert read("a.txt", data) == read("without", data)


# --- read: anything ---------------------------------------------------------------------------------------------------

KEYS = ["a.md", "a.html", "a.xhtml", "a.txt", "a.csv", "a.py", "a.unheard", "a", "a.xml"]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(KEYS),
    st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
def test_reading_never_raises_and_every_tree_keeps_the_rules(key: str, data: bytes) -> None:
    document = read(key, data)
    check(document)
    assert Document.decode(document.encode()) == document
    assert (document.status == "ok") == (document.reason == "")
    assert read(key, data) == document


def test_every_real_file_goes_through(shared: Path) -> None:
    seen = 0
    for file in sorted([*(shared / "realdocs").rglob("*"), *(shared / "cases/files").rglob("*")]):
        if file.suffix in (".md", ".html", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".rst", ".org"):
            document = read(str(file), file.read_bytes())
            check(document)
            assert document.status in ("ok", "empty"), (file, document.reason)
            seen += 1
    assert seen > 50


def test_every_real_file_of_these_kinds_has_its_claims_tested(shared: Path) -> None:
    tests = "".join(
        (Path(__file__).parent / f"test_parsers_{name}.py").read_text() for name in ("markdown", "web", "text")
    )
    for line in (shared / "realdocs/INDEX.tsv").read_text().split("\n")[1:]:
        name = line.split("\t")[0]
        if name.split("/")[0] in ("md", "html", "txt", "csv", "tsv", "json", "jsonl", "xml", "rst", "org"):
            assert name.split("/")[-1] in tests, f"no test names {name}"


# --- pinned output ----------------------------------------------------------------------------------------------------

MARKDOWN = """---
title: T
labels: [x]
---
# One `two` ##

Text <!-- c -->
more[^1].

- a
  1. b

> q
> > r

| h | i |
|---|---|
| 1 | 2 |

```py
code
```

    indented

[^1]: Note

[r]: /x

***
<div>m</div>

S
===
"""
HTML = """<html lang=en><title>T</title><meta name=author content=A><nav><a href=x>m</a></nav>
<h1>One</h1><p>a <b>b</b><br>c<ol start=2><li>x<ul><li>y</ul><li>z</ol><dl><dt>t<dd>d</dl>
<table><caption>C</caption><tr><th>h<th>i<tr><td>1<td><p>2<p>3</table>
<table><tr><td>name<td>mm<tr><td>a<td>2</table><pre class='language-py'>p\n q</pre>
<figure><img alt=f><figcaption>g</figcaption></figure><blockquote>q</blockquote><footer>&copy; 2031</footer>
<article><header><h2><a href=/p>Two</a></h2></header><i class=material-icons>home</i>x
<div class=pager><a href=x>n</a></div>
<table><tr><td rowspan=2>a<td colspan=2>b<tr><td>c<td><pre>d\n e</pre></table>
<table><tr><td class=gutter><pre>1\n2</pre><td class=code><pre>r\n s</pre></table></article>
"""
XHTML = '<?xml version="1.0" encoding="koi8-r"?><html xmlns="http://www.w3.org/1999/xhtml"><p>мир</p></html>'
LINE = "a sentence that goes on and on, over the line, as they do in old books, and so\n"
TEXT = f"HEADING\n\n{LINE * 5}on.\n\n- a\n- b\n\nA verse is short\nAnd ends.\n"
CHAPTERS = "".join(
    f"BOOK {book}\n\nCHAPTER I\n\n" + "".join(f"{number}. {LINE * 3}on.\n\n" for number in range(1, 5)) for book in "IV"
)
BOOK = f"""Title: Wars of A, Vol. 1\nAuthor: B C\n\n*** START OF THIS PROJECT GUTENBERG EBOOK ***\n\nCONTENTS\n

BOOK I  3\n
{CHAPTERS}FOOTNOTES\n\n[1] A note.\n\nINDEX\n\nAlps, 3\n\n*** END OF THIS PROJECT GUTENBERG EBOOK ***\n"""
FIXTURES = {
    "markdown": [
        ("c.md", f"{'A long line. ' * 40}\n---\n\n# Late\n".encode()),
        ("a.md", MARKDOWN.encode()),
        ("b.md", "## Größe\n\nöffnen – schließen\n".encode("cp1252")),
        ("d.md", b"---\n\nR&amp;D: `&amp;`\n---\n"),
    ],
    "web": [("a.html", HTML.encode()), ("b.xhtml", XHTML.encode("koi8-r"))],
    "text": [
        ("a.txt", TEXT.encode()),
        ("b.csv", b"a,b\r\n1,2\r\n"),
        ("c.py", b"# coding: latin-1\nx = '\xe9'\n"),
        ("d.rst", b"T\n=\n"),
        ("e.txt", BOOK.encode()),
        ("f.xml", b"<a>b &amp; c</a>"),
    ],
}
PINNED = {"markdown": (3, "01362347064a3ab6"), "web": (2, "f04ac48959e3fa12"), "text": (3, "0403194272ca14e5")}


@pytest.mark.parametrize("name", FIXTURES)
def test_output_changes_only_with_the_version(name: str) -> None:
    documents = [read(key, data) for key, data in FIXTURES[name]]
    assert all(document.status == "ok" for document in documents)
    digest = hashlib.sha256("".join(document.digest() for document in documents).encode()).hexdigest()[:16]
    version, pinned = PINNED[name]
    if adapter(name).version == version:
        assert digest == pinned, "output changed: raise the version in parsers/registry.py, then pin both here"
    else:
        pytest.fail(f"pin the new version and digest: ({adapter(name).version}, {digest!r})")


@pytest.fixture(scope="module")
def digests() -> Iterator[list[str]]:
    yield [read(key, data).digest() for cases in FIXTURES.values() for key, data in cases]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_output_does_not_depend_on_the_hash_seed(digests: list[str], seed: str) -> None:
    code = (
        "import test_parsers_registry as t; print(*[t.read(k, d).digest() for c in t.FIXTURES.values() for k, d in c])"
    )
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == digests
