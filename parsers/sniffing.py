"""What kind of file bytes are, by what they hold.

Invariants:
- Nothing raises, whatever the bytes.
- Only the first 64 KB are looked at (of archives, also their list of members).
- Libraries for magic numbers name several kinds for one file and call every zip a Word file, so the few signatures
  that documents meet stand here, and archives are told apart by their members.
"""

from __future__ import annotations

import io
import lzma
import re
import struct
import zipfile
import zlib
from typing import Final

from parsers.decoding import bom, utf16_without_mark

_HEAD: Final = 65536

# (offset, signature, media type, name with its article). From the formats' own specifications.
_SIGNATURES: Final = (
    (0, b"%PDF-", "application/pdf", "a PDF document"),
    (0, b"{\\rtf", "application/rtf", "an RTF document"),
    (0, b"%!PS", "application/postscript", "a PostScript document"),
    (0, b"\x89PNG\r\n\x1a\n", "image/png", "a PNG image"),
    (0, b"\xff\xd8\xff", "image/jpeg", "a JPEG image"),
    (0, b"GIF87a", "image/gif", "a GIF image"),
    (0, b"GIF89a", "image/gif", "a GIF image"),
    (0, b"II*\x00", "image/tiff", "a TIFF image"),
    (0, b"MM\x00*", "image/tiff", "a TIFF image"),
    (8, b"WEBP", "image/webp", "a WebP image"),
    (8, b"WAVE", "audio/wav", "a WAV sound"),
    (4, b"ftyp", "video/mp4", "an MP4 film or picture"),
    (0, b"\x1aE\xdf\xa3", "video/webm", "a Matroska or WebM film"),
    (0, b"ID3", "audio/mpeg", "an MP3 sound"),
    (0, b"OggS", "application/ogg", "an Ogg sound or film"),
    (0, b"fLaC", "audio/flac", "a FLAC sound"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage", "an OLE file (old or encrypted Office)"),
    (0, b"\x1f\x8b", "application/gzip", "gzip-compressed data"),
    (0, b"BZh", "application/x-bzip2", "bzip2-compressed data"),
    (0, b"\xfd7zXZ\x00", "application/x-xz", "xz-compressed data"),
    (0, b"(\xb5/\xfd", "application/zstd", "zstd-compressed data"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar", "a RAR archive"),
    (257, b"ustar", "application/x-tar", "a tar archive"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3", "an SQLite database"),
    (0, b"PAR1", "application/vnd.apache.parquet", "a Parquet table"),
    (0, b"\x7fELF", "application/x-elf", "a Linux program"),
    (0, b"MZ", "application/vnd.microsoft.portable-executable", "a Windows program"),
    (0, b"\xca\xfe\xba\xbe", "application/java-vm", "a Java class or macOS program"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary", "a macOS program"),
    (0, b"\x00asm", "application/wasm", "a WebAssembly module"),
    (0, b"wOFF", "font/woff", "a font"),
    (0, b"wOF2", "font/woff2", "a font"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf", "a font"),
    (0, b"BM", "image/bmp", "a BMP image"),
)
_OFFICE: Final = {
    "word/": ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "a Word document"),
    "xl/": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "an Excel workbook"),
    "ppt/": ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "a PowerPoint file"),
}
_BINARY: Final = ("application/octet-stream", "binary data")
_WHITE: Final = b"\t\n\x0b\x0c\r\x08\x1a\x1b"  # what texts hold: also overstriking, DOS end marks and terminal colours
_CONTROL: Final = bytes(code for code in (*range(32), 127) if code not in _WHITE)
_MOST_CONTROL: Final = 0.005  # share of control characters above which a file is no text
_FEW_CONTROL: Final = 8  # control characters in a short file that is text otherwise
_ALWAYS: Final = (b"%PDF-", b"{\\rtf", b"%!PS")  # documents in ASCII characters that are no text to read

# The comments in an atomic group: otherwise a row of them is tried in every grouping before it fails.
_HTML: Final = re.compile(rb"\s*(?:<\?xml\b[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)<(?:!doctype\s+html|html)\b", re.I | re.S)
_SCRIPT: Final = re.compile(rb"#!\s*/\S*?\b(?:env\s+(?:-\S+\s+)*)?(python|bash|sh|zsh|perl|ruby|node)[\d.]*\s")
_INTERPRETERS: Final = {
    "python": "python",
    "bash": "bash",
    "sh": "bash",
    "zsh": "bash",
    "perl": "perl",
    "ruby": "ruby",
    "node": "javascript",
}
_UNREADABLE: Final = (  # what zipfile raises on damaged archives
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    OSError,
    ValueError,
    RuntimeError,
    EOFError,
    KeyError,
    IndexError,
    OverflowError,
)


def binary_kind(data: bytes) -> tuple[str, str] | None:
    """Media type and name (``a PNG image``) of a file that is no text; None for text."""
    head = data[:_HEAD]
    if head.startswith(_ALWAYS):
        return _signature(head)
    if bom(head) or utf16_without_mark(head):
        return None
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(data)
    controls = len(head) - len(head.translate(None, _CONTROL))
    if controls > _MOST_CONTROL * len(head) and not _is_text(head, controls):
        return _signature(head) or _BINARY
    return None


def _is_text(head: bytes, controls: int) -> bool:
    """Whether a short file is text with a few stray control characters: most of it is letters and white space."""
    if controls > _FEW_CONTROL or 8 * controls > len(head) or _signature(head) is not None:
        return False
    text = head.translate(None, _CONTROL).decode("utf-8", "replace")
    plain = sum(one.isalpha() or one.isspace() for one in text)
    return plain > (0.5 if "\ufffd" not in text else 0.7) * len(text)


def text_kind(data: bytes) -> str:
    """Media type of a text whose name says nothing: HTML, XML, a script or plain text."""
    head = data[:4096].removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(head):
        return "text/html"
    script = _SCRIPT.match(head)
    if script:
        return f"text/x-{_INTERPRETERS[script[1].decode()]}"
    return "application/xml" if head.lstrip().startswith(b"<?xml") else "text/plain"


def _signature(head: bytes) -> tuple[str, str] | None:
    for offset, mark, media_type, name in _SIGNATURES:
        if head.startswith(mark, offset):
            return media_type, name
    return None


def _archive(data: bytes) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            declared = ""
            if "mimetype" in names:
                with archive.open("mimetype") as member:
                    declared = member.read(100).decode("ascii")
    except _UNREADABLE:
        return "application/zip", "a damaged zip archive"
    if re.fullmatch(r"application/[\w.+-]+", declared.strip()):
        return declared.strip(), "an EPUB book" if "epub" in declared else "an OpenDocument file"
    for folder, kind in _OFFICE.items():
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return kind
    return "application/zip", "a zip archive"
