"""Word documents made from XML for tests, and short ways to look at what was read of one."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import docx
import docx.document
from docx.oxml.parser import parse_xml

from parsers.document import Document, Node, left_out

NAMES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "v": "urn:schemas-microsoft-com:vml",
    "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
}
DECLARED = " ".join(f'xmlns:{prefix}="{name}"' for prefix, name in NAMES.items())


def saved(document: docx.document.Document) -> bytes:
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def with_body(xml: str, *, styles: str = "", prepare: Callable[[docx.document.Document], None] | None = None) -> bytes:
    """A document whose body is some XML, with styles added to the usual ones."""
    document = docx.Document()
    document.core_properties.author = ""
    if prepare:
        prepare(document)
    body = document.element.body
    for element in reversed(parse_xml(f"<w:body {DECLARED}>{xml}</w:body>")):
        body.insert(0, element)
    for element in parse_xml(f"<w:styles {DECLARED}>{styles}</w:styles>"):
        document.styles.element.append(element)
    return saved(document)


def p(text: str = "", properties: str = "", runs: str = "") -> str:
    run = f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' if text else ""
    return f"<w:p><w:pPr>{properties}</w:pPr>{run}{runs}</w:p>"


def styled(text: str, style: str) -> str:
    return p(text, f'<w:pStyle w:val="{style}"/>')


def style(identifier: str, *, based: str = "", outline: int | None = None, name: str = "") -> str:
    level = f'<w:pPr><w:outlineLvl w:val="{outline}"/></w:pPr>' if outline is not None else ""
    base = f'<w:basedOn w:val="{based}"/>' if based else ""
    head = f'<w:style w:type="paragraph" w:styleId="{identifier}"><w:name w:val="{name or identifier}"/>'
    return f"{head}{base}{level}</w:style>"


def repacked(data: bytes, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> bytes:
    """The zip with each part changed; None leaves it out."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            part = change(name, old.read(name))
            if part is not None:
                new.writestr(*part)
    return target.getvalue()


def with_part(data: bytes, name: str, kind: str, xml: str) -> bytes:
    """The document with another part related to its main one."""
    relation = f'<Relationship Id="rIdX{kind}" Type="{NAMES["r"]}/{kind}" Target="{name}"/></Relationships>'
    override = (
        f'<Override PartName="/word/{name}" ContentType="application/vnd.openxmlformats-officedocument'
        f'.wordprocessingml.{kind}+xml"/></Types>'
    )

    def change(path: str, part: bytes) -> tuple[str, bytes]:
        if path == "word/_rels/document.xml.rels":
            part = part.replace(b"</Relationships>", relation.encode())
        if path == "[Content_Types].xml":
            part = part.replace(b"</Types>", override.encode())
        return path, part

    data = repacked(data, change)
    target = io.BytesIO(data)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr(f"word/{name}", xml)
    return target.getvalue()


def nodes(document: Document, *kinds: str) -> list[str]:
    return [text_of(document, node) for node in document.nodes if node.kind in kinds]


def text_of(document: Document, node: Node) -> str:
    return document.text[node.start : node.end]


def headings(document: Document) -> list[tuple[int, str]]:
    return [(node.level, text_of(document, node)) for node in document.nodes if node.kind == "heading"]


def indexed(document: Document) -> str:
    reasons = left_out(document)
    parents = {node.parent for node in document.nodes}
    return "\n".join(
        text_of(document, node)
        for index, node in enumerate(document.nodes)
        if index not in parents and reasons[index] is None
    )


def table(*rows: str, properties: str = "") -> str:
    return f"<w:tbl><w:tblPr>{properties}</w:tblPr>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(content: str, properties: str = "") -> str:
    inner = content if content.startswith("<") else p(content)
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inner}</w:tc>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'
