"""Parsing and cutting one file, to look at; nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from chunker.chunk import Chunk, chunk_ids, document_id, locator
from chunker.split import split
from flows.models.ruler import chunker_settings, open_ruler
from flows.parser_pool import open_parsers, parse_one
from flows.settings import Settings
from parsers.document import Document, Node
from parsers.errors import SourceError


def inspect_file(file: Path, settings: Settings) -> dict[str, Any]:
    """Return a file's document tree and its chunks, as ``gristmill inspect --json`` prints them.

    Raises:
        SourceError: when the file cannot be read at all.
        ModelError: when the model whose tokenizer the chunker counts with is missing.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}", "Check the path.") from error
    document = _read(file.name, data, settings)
    title = document.title or file.name
    chunks = split(document, title, open_ruler(settings), chunker_settings(settings)) if document.nodes else []
    ids = chunk_ids(document_id(settings.source_name, file.name), chunks)
    return {
        "document": _document(document),
        "chunks": [_chunk(file.name, one, chunk_id) for one, chunk_id in zip(chunks, ids, strict=True)],
    }


def _read(name: str, data: bytes, settings: Settings) -> Document:
    pool = open_parsers(settings)
    try:
        return parse_one(pool, name, data)
    finally:
        if pool is not None:
            pool.close()


def _document(document: Document) -> dict[str, Any]:
    return {
        "text": document.text,
        "title": document.title,
        "metadata": document.metadata,
        "labels": list(document.labels),
        "media_type": document.media_type,
        "status": document.status,
        "reason": document.reason,
        "nodes": [_node(node) for node in document.nodes],
    }


def _node(node: Node) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(node)
    return {"kind": node.kind, "start": node.start, "end": node.end, "level": node.level, "parent": -1} | values


def _chunk(name: str, chunk: Chunk, chunk_id: str) -> dict[str, Any]:
    return {
        "chunk_id": chunk_id,
        "start": chunk.start,
        "end": chunk.end,
        "text": chunk.text,
        "heading_path": list(chunk.heading_path),
        "printed_path": list(chunk.printed_path),
        "header": chunk.header,
        "locator": locator(name, chunk),
        "tokens": chunk.tokens,
        "cut": chunk.cut,
        "gaps": [list(gap) for gap in chunk.gaps],
    }
