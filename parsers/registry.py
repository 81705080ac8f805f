"""From a file to its document: which adapter reads which media type.

Invariants:
- A media type has at most one adapter, and an adapter is imported when its first file comes.
- :func:`read` always returns a document, and a file that cannot be read says why in its status and reason.
- A document that could be read is a function of the bytes, the media type and the adapter's fingerprint alone, so it
  may be remembered by them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Final, Literal

import msgspec

from parsers import blobs, labels
from parsers.document import Document
from parsers.errors import BrokenDocument, DocumentError, UnsupportedDocument
from parsers.languages import LANGUAGES, NAMES
from parsers.sniffing import binary_kind, text_kind

_LOG: Final = logging.getLogger(__name__)
_HEAD: Final = 100_000  # bytes of a file that could not be read in which labels are looked for
_MARKS: Final = "\xef\xbb\xbf\xff\xfe"  # byte-order marks, read as Latin 1
_OCTETS: Final = "application/octet-stream"
_REMEDY: Final = "Exclude such files from the source, or convert them to a format that is read"
_NAMED: Final = 3  # extensions of an adapter that a reason names


@dataclass(frozen=True, slots=True)
class Adapter:
    """What reads one family of formats.

    Attributes:
        name: as it stands in fingerprints and messages.
        media_types: what it reads, by file extension (lower case, with the dot).
        version: raised by hand whenever its output for any file changes.
        libraries: distributions whose version decides its output.
        module: dotted name of the module with ``parse(data: bytes) -> Document``, raising DocumentError for a file
            that it cannot read.
        by_type: whether ``parse`` also takes the media type, as its second argument.
        text: whether its files are text, so that binary content under one of its names is a broken file.
    """

    name: str
    media_types: Mapping[str, str] = field(hash=False)
    version: int
    libraries: tuple[str, ...]
    module: str
    by_type: bool = False
    text: bool = False

    def fingerprint(self) -> str:
        """Name, version, each library's version, what is a blob: ``markdown:1:markdown-it-py=4.3.0:blobs=1``."""
        libraries = [f"{name}={_version(name)}" for name in self.libraries]
        return ":".join([self.name, str(self.version), *libraries, f"blobs={blobs.BLOBS_VERSION}"])


_TEXT_TYPES: Final = {
    ".txt": "text/plain",
    ".text": "text/plain",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".ndjson": "application/x-ndjson",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".rst": "text/x-rst",
    ".org": "text/x-org",
    ".adoc": "text/asciidoc",
    ".tex": "text/x-tex",
    ".log": "text/x-log",
    ".srt": "application/x-subrip",
    ".vtt": "text/vtt",
} | {extension: f"text/x-{language}" for extension, language in LANGUAGES.items()}

_OFFICE_TYPES: Final = {
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".docm": "application/vnd.ms-word.document.macroEnabled.12",
    ".dotx": "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
    ".dotm": "application/vnd.ms-word.template.macroEnabled.12",
}

# One entry an adapter. What it reads is then no longer looked up in _UNREAD below.
ADAPTERS: Final = (
    Adapter(
        "markdown",
        dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx"), "text/markdown"),
        3,
        ("markdown-it-py", "mdit-py-plugins", "PyYAML", "charset-normalizer"),
        "parsers.markdown.adapter",
        text=True,
    ),
    Adapter(
        "web",
        {".html": "text/html", ".htm": "text/html", ".xhtml": "application/xhtml+xml", ".xht": "application/xhtml+xml"},
        2,
        ("selectolax", "charset-normalizer"),
        "parsers.web.adapter",
        text=True,
    ),
    Adapter("pdf", {".pdf": "application/pdf"}, 3, ("pypdfium2",), "parsers.pdf.adapter"),
    Adapter("office", _OFFICE_TYPES, 2, ("python-docx", "lxml"), "parsers.docx.adapter"),
    Adapter("text", _TEXT_TYPES, 3, ("charset-normalizer",), "parsers.text", by_type=True, text=True),
)

# Known formats that no adapter reads yet: never taken for plain text, whatever their bytes look like.
_UNREAD: Final = {
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".doc": "application/msword",
    ".xls": "application/vnd.ms-excel",
    ".ppt": "application/vnd.ms-powerpoint",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    ".eml": "message/rfc822",
    ".mbox": "application/mbox",
    ".msg": "application/vnd.ms-outlook",
    ".ipynb": "application/x-ipynb+json",
    ".ps": "application/postscript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".ico": "image/vnd.microsoft.icon",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".heic": "image/heic",
    ".avif": "image/avif",
    ".psd": "image/vnd.adobe.photoshop",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".m4a": "audio/mp4",
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".avi": "video/x-msvideo",
    ".mkv": "video/x-matroska",
    ".webm": "video/webm",
    ".wmv": "video/x-ms-wmv",
    ".zip": "application/zip",
    ".gz": "application/gzip",
    ".bz2": "application/x-bzip2",
    ".xz": "application/x-xz",
    ".zst": "application/zstd",
    ".7z": "application/x-7z-compressed",
    ".rar": "application/vnd.rar",
    ".tar": "application/x-tar",
    ".tgz": "application/gzip",
    ".exe": "application/vnd.microsoft.portable-executable",
    ".dll": "application/vnd.microsoft.portable-executable",
    ".jar": "application/java-archive",
    ".class": "application/java-vm",
    ".pyc": "application/x-python-code",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
    ".otf": "font/otf",
    ".sqlite": "application/vnd.sqlite3",
    ".parquet": "application/vnd.apache.parquet",
}

_BY_EXTENSION: Final = _UNREAD | {ext: kind for adapter in ADAPTERS for ext, kind in adapter.media_types.items()}
_BY_TYPE: Final = {kind: adapter for adapter in ADAPTERS for kind in adapter.media_types.values()}


def adapter(name: str) -> Adapter:
    """Return the adapter of this name.

    Raises:
        KeyError: for an unknown name; the message lists the known ones.
    """
    for known in ADAPTERS:
        if known.name == name:
            return known
    raise KeyError(f"no adapter is called {name!r}; there are {', '.join(known.name for known in ADAPTERS)}")


def media_type(key: str, data: bytes) -> str:
    """Return the media type of a file, by its name, else by its content. Never raise.

    A file whose name says text and whose bytes are none is ``application/octet-stream``, which nothing reads:
    :func:`read` tells what it holds.

    Args:
        key: the object's key; only the last part of it counts, and its letter case does not.
    """
    return _detect(key, data)[0]


def adapter_for(media_type: str) -> Adapter:
    """Return the adapter that reads a media type.

    Raises:
        UnsupportedDocument: when none does.
    """
    found = _BY_TYPE.get(media_type)
    if found is None:
        raise UnsupportedDocument(f"no adapter reads {media_type}", _REMEDY)
    return found


def parser_fingerprint(media_type: str) -> str:
    """Return the fingerprint of what reads a media type; empty where nothing does."""
    found = _BY_TYPE.get(media_type)
    return found.fingerprint() if found is not None else ""


def claims() -> str:
    """Digest of the extensions and media types that adapters read: it moves when a type is claimed or given up."""
    claimed = [(one.name, sorted(one.media_types.items())) for one in ADAPTERS]
    return hashlib.sha256(json.dumps([claimed, sorted(NAMES.items())]).encode()).hexdigest()[:16]


def unread_by_name(key: str) -> str:
    """Why a file is skipped, where its name alone tells: a known type that no adapter reads. Empty otherwise."""
    kind = _named(key)
    return str(_unread(key, kind)) if kind is not None and kind not in _BY_TYPE else ""


def _unread(key: str, kind: str, content: str = "") -> UnsupportedDocument:
    """Return the reason for skipping a type that no adapter reads: its extension, and what is read."""
    extension = PurePosixPath(key).suffix.lower()
    holds = f"{kind}: {content}" if content else kind
    what = f"{extension} files ({holds})" if extension else f"a file without an extension ({holds})"
    return UnsupportedDocument(f"no adapter reads {what}", f"What is read: {', '.join(_read_types())}. {_REMEDY}")


def _read_types() -> Iterator[str]:
    """Yield each adapter with its first extensions: ``markdown (.md, .markdown, .mdown …)``."""
    for one in ADAPTERS:
        more = " …" if len(one.media_types) > _NAMED else ""
        yield f"{one.name} ({', '.join(list(one.media_types)[:_NAMED])}{more})"


def read(key: str, data: bytes) -> Document:
    """Read a file, whatever it holds.

    A file that cannot be read gives a document without text or nodes, with status ``failed``, or ``skipped`` where no
    adapter reads its type, and the reason. Such a reason may speak of the file's name, so only a document that was read
    may be remembered by its bytes. A defect of an adapter is logged with its traceback at debug level and gives
    ``failed`` too.
    """
    kind, refusal = _detect(key, data)
    if not data and not unread_by_name(key):
        return Document(text="", media_type=kind, status="empty", reason="the file has 0 bytes")
    try:
        if refusal is not None:
            raise refusal
        document = _parse(adapter_for(kind), data, kind)
    except DocumentError as error:
        return Document(text="", media_type=kind, status=_status(error), reason=str(error))
    return document if document.media_type == kind else msgspec.structs.replace(document, media_type=kind)


def unread_labels(key: str, data: bytes) -> tuple[str, ...]:
    """Return the labels of a file that could not be read: the one that denies where its head mentions labels.

    For the version of it that stays in the index: what was written there may have been to hide it.
    """
    name = _named(key) or ""
    head = data[:_HEAD].replace(b"\0", b"").decode("latin-1").lstrip(_MARKS)
    if name == "text/markdown":
        return labels.from_head(head).labels
    return labels.from_meta(head, []).labels if name in ("text/html", "application/xhtml+xml") else ()


def _status(error: DocumentError) -> Literal["skipped", "failed"]:
    return "skipped" if isinstance(error, UnsupportedDocument) else "failed"


def _parse(reader: Adapter, data: bytes, kind: str) -> Document:
    parse = importlib.import_module(reader.module).parse
    try:
        document = parse(data, kind) if reader.by_type else parse(data)
    except (DocumentError, MemoryError):
        raise
    except Exception as error:  # one document's defect must not stop the others
        _LOG.debug("the %s adapter failed on %d bytes of %s", reader.name, len(data), kind, exc_info=True)
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise BrokenDocument(f"the {reader.name} adapter failed with {said}") from error
    assert isinstance(document, Document)
    return document


def _detect(key: str, data: bytes) -> tuple[str, DocumentError | None]:
    """Return the media type, and why such a file is not read even where an adapter reads its content."""
    named = _named(key)
    reader = _BY_TYPE.get(named or "")
    if named is not None and reader is None:
        return named, _unread(key, named)
    if named is not None and reader is not None and not reader.text:
        return named, None
    found = binary_kind(data)
    if found is None:
        return named or text_kind(data), None
    kind, name = found
    if named is not None:
        message = f"named {_suffix(key)} but holds {name}"
        return _OCTETS, BrokenDocument(message, "Rename it, or take it out of the source")
    return kind, None if kind in _BY_TYPE else _unread(key, kind, name)


def _named(key: str) -> str | None:
    """Return the media type that the last part of a key names, if any."""
    name = PurePosixPath(key).name.lower()
    if name in NAMES:
        return f"text/x-{NAMES[name]}"
    return _BY_EXTENSION.get(_suffix(key))


def _suffix(key: str) -> str:
    return PurePosixPath(key).suffix.lower() or PurePosixPath(key).name


@cache
def _version(distribution: str) -> str:
    return version(distribution)
