"""Open the package of an Office file: a zip of XML parts.

Invariants:
- At most ``MAX_UNPACKED`` bytes of XML are unpacked, whatever sizes the zip declares.
- A damaged part is left out and reported as a problem. A damaged essential part raises.
- A file in the strict variant of the standard is converted to the transitional one, which the libraries read.
- Any other file is refused, with the format that it has instead.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from typing import Final, NamedTuple

from parsers.errors import BrokenDocument

MAX_UNPACKED: Final = 256 << 20  # bytes of XML that are unpacked from one file
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CONTENT_TYPES: Final = "[Content_Types].xml"
_ESSENTIAL: Final = re.compile(
    r"\[Content_Types\]\.xml|_rels/\.rels|word/_rels/document\d*\.xml\.rels|word/document\d*\.xml"
)
_FAMILIES: Final = {
    b"wordprocessingml": "a Word document",
    b"spreadsheetml": "an Excel workbook",
    b"presentationml": "a PowerPoint presentation",
}
_DOCUMENT: Final = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_DOCUMENT_KINDS: Final = (
    b"application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml",
    b"application/vnd.ms-word.document.macroEnabled.main+xml",
    b"application/vnd.ms-word.template.macroEnabledTemplate.main+xml",
)
_STRICT: Final = b"http://purl.oclc.org/ooxml/"
_TRANSITIONAL: Final = b"http://schemas.openxmlformats.org/"
# ISO/IEC 29500-1 and 29500-4, annexes on namespaces: the part after the prefix, strict and transitional.
_NAMESPACES: Final = (
    (b"officeDocument/extendedProperties", b"officeDocument/2006/extended-properties"),
    (b"officeDocument/customProperties", b"officeDocument/2006/custom-properties"),
    *((f"{family}/".encode(), f"{family}/2006/".encode()) for family in ("officeDocument", "drawingml")),
    *((f"{family}/".encode(), f"{family}/2006/".encode()) for family in ("wordprocessingml", "spreadsheetml")),
    (b"presentationml/", b"presentationml/2006/"),
)
_W: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_EMPTY_PARTS: Final = {
    "styles": "styles",
    "numbering": "numbering",
    "settings": "settings",
    "header": "hdr",
    "footer": "ftr",
    "comments": "comments",
    "footnotes": "footnotes",
    "endnotes": "endnotes",
}


class Package(NamedTuple):
    """A checked package.

    Attributes:
        data: the rewritten zip; parts other than XML keep their names but have no content.
        problems: damaged parts that were left out.
        embedded: base names of the documents embedded in it.
    """

    data: bytes
    problems: list[str]
    embedded: list[str]


def open_package(data: bytes, family: bytes) -> Package:
    """Unpack and check an Office file.

    Args:
        data: its bytes.
        family: the name that its content types must contain, such as ``b"wordprocessingml"``.

    Raises:
        BrokenDocument: when it is encrypted, damaged, of another format, or unpacks to more than ``MAX_UNPACKED``.
    """
    if data.startswith(_OLE):
        raise _not_a_package(data)
    if not data.startswith(b"PK"):
        raise BrokenDocument(f"not {_FAMILIES[family]}: no zip, it begins with {data[:8]!r}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _unpack(archive, family)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError, IndexError) as error:
        raise BrokenDocument(f"damaged or truncated zip: {error} ({len(data):,} bytes)") from error


def _not_a_package(data: bytes) -> BrokenDocument:
    if "EncryptedPackage".encode("utf-16-le") in data:
        return BrokenDocument("encrypted Office file: it opens only with a password", "Store a copy without one")
    if "WordDocument".encode("utf-16-le") in data:
        return BrokenDocument("a Word document of the old format (.doc) under a new name", "Save it as .docx")
    return BrokenDocument("an OLE container, not a .docx file", "Save it as .docx")


def _unpack(archive: zipfile.ZipFile, family: bytes) -> Package:
    members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
    total = sum(info.file_size for info in members.values() if _is_xml(info.filename))
    if total > MAX_UNPACKED:
        raise BrokenDocument(f"its XML unpacks to {total:,} bytes, more than the limit of {MAX_UNPACKED:,}")
    _check_family(archive, members, family)
    problems: list[str] = []
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as clean:
        for name, info in sorted(members.items()):
            clean.writestr(zipfile.ZipInfo(name), _part(archive, info, problems) if _is_xml(name) else b"")
    embedded = sorted(name.rsplit("/", 1)[-1] for name in members if "/embeddings/" in name)
    return Package(written.getvalue(), problems, embedded)


def _is_xml(name: str) -> bool:
    return name.endswith((".xml", ".rels"))


def _check_family(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], family: bytes) -> None:
    if _CONTENT_TYPES not in members:
        raise BrokenDocument(f"a zip, but not {_FAMILIES[family]}: no {_CONTENT_TYPES} in its {len(members)} files")
    types = _part(archive, members[_CONTENT_TYPES], [])
    if family not in types:
        found = next((name for mark, name in _FAMILIES.items() if mark in types), "of an unknown type")
        raise BrokenDocument(f"not {_FAMILIES[family]}: its content is {found}")


def _part(archive: zipfile.ZipFile, info: zipfile.ZipInfo, problems: list[str]) -> bytes:
    """Return a part's XML; a damaged part becomes an empty one and a problem."""
    if info.flag_bits & 1:
        raise BrokenDocument(f"encrypted zip: {info.filename} opens only with a password", "Store a copy without one")
    try:
        data = archive.read(info)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        if _ESSENTIAL.fullmatch(info.filename):
            raise BrokenDocument(f"damaged: {info.filename} cannot be unpacked ({error})") from error
        problems.append(f"{info.filename} is damaged and was left out")
        return _empty(info.filename)
    return _plain_document(data) if info.filename == _CONTENT_TYPES else _transitional(data)


def _plain_document(types: bytes) -> bytes:
    """Return content types in which a template or macro-enabled document is declared a plain document."""
    for kind in _DOCUMENT_KINDS:
        types = types.replace(b'"' + kind + b'"', b'"' + _DOCUMENT + b'"')
    return types


def _empty(name: str) -> bytes:
    base = re.sub(r"\d*\.xml$", "", name.rsplit("/", 1)[-1])
    root = _EMPTY_PARTS.get(base)
    if root:
        return f'<w:{root} xmlns:w="{_W}"/>'.encode()
    if name.endswith(".rels"):
        return b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"/>'
    return b"<empty/>"


def _transitional(data: bytes) -> bytes:
    if _STRICT not in data:
        return data
    for strict, transitional in _NAMESPACES:
        data = data.replace(_STRICT + strict, _TRANSITIONAL + transitional)
    return data
