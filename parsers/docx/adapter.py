"""Parse Word documents (.docx).

Uses python-docx, the library below unstructured. unstructured itself loses headings in custom styles, tracked
insertions, notes, text boxes and comments, and cannot open strict files.

Invariants:
- A document that opens is read whole, and its problems name the content left out.
- A document that does not open raises ``BrokenDocument``.
"""

from __future__ import annotations

import io
from typing import Final

import docx
import docx.document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import OpcError
from docx.oxml.exceptions import InvalidXmlError
from docx.oxml.parser import parse_xml
from lxml.etree import LxmlError

from parsers.document import Document
from parsers.docx.body import Body, Parts
from parsers.docx.cleanup import clean_up
from parsers.docx.package import open_package
from parsers.errors import BrokenDocument
from parsers.titles import said_of_itself, sensible_title

DOCX_VERSION: Final = 2
DOCX_LIBRARIES: Final = ("python-docx", "lxml")
DOCX_MEDIA_TYPE: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_NOTES: Final = ("footnotes", "endnotes", "comments")


def parse(data: bytes) -> Document:
    """Parse a Word document: .docx, or .docm, .dotx and .dotm renamed to .docx.

    Raises:
        BrokenDocument: when it is not a Word document, is encrypted or damaged, or unpacks to more than the limit.
    """
    package = open_package(data, b"wordprocessingml")
    try:
        opened = docx.Document(io.BytesIO(package.data))
        main, parts = opened.element.body, _parts(opened)
    except _DAMAGED as error:
        raise BrokenDocument(f"damaged Word document: {type(error).__name__}: {error}") from error
    for root in (main, *parts.notes.values(), *parts.margins.values()):
        clean_up(root)
    body = Body(parts)
    body.write(main)
    return body.builder.finish(
        title=sensible_title(_core(opened).get("title")) or sensible_title(body.title),
        metadata=said_of_itself(**{**_core(opened), "title": ""}, attachments=", ".join(package.embedded)),
        media_type=DOCX_MEDIA_TYPE,
        problems=[*package.problems, *body.problems],
    )


_DAMAGED: Final = (OpcError, InvalidXmlError, LxmlError, KeyError, ValueError, AttributeError, TypeError, IndexError)
"""Exceptions that python-docx raises on an inconsistent package."""


def _parts(opened: docx.document.Document) -> Parts:
    parts = Parts()
    for identifier, relation in opened.part.rels.items():
        kind = relation.reltype.rsplit("/", 1)[-1]
        if relation.is_external or kind not in ("styles", "numbering", "settings", "header", "footer", *_NOTES):
            continue
        part = relation.target_part
        root = part.element if hasattr(part, "element") else parse_xml(part.blob)
        if kind in ("header", "footer"):
            parts.margins[identifier] = root
        elif kind in _NOTES:
            parts.notes[kind] = root
        else:
            setattr(parts, kind, root)
    return parts


def _core(opened: docx.document.Document) -> dict[str, str]:
    """Read the core properties; ignore a part that is missing or damaged."""
    relations = opened.part.package.rels.values() if opened.part.package is not None else ()
    if not any(relation.reltype == RELATIONSHIP_TYPE.CORE_PROPERTIES for relation in relations):
        return {}  # python-docx would create default properties, with the current time
    try:
        core = opened.core_properties
        return {
            "title": core.title,
            "author": core.author,
            "subject": core.subject,
            "keywords": core.keywords,
            "created": core.created.isoformat() if core.created else "",
            "modified": core.modified.isoformat() if core.modified else "",
        }
    except _DAMAGED:
        return {}
