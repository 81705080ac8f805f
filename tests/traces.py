"""Where words stand below some folders: in raw bytes, in every version of a LanceDB table, in the terms of BM25."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import tantivy

from indexes.storage.storage import Storage

FIELDS = ("chunk_id", "document_id", "key", "labels", "stamp", "body", "headings", "identifiers", "notes")


def traces(folders: Iterable[Path], words: Iterable[str]) -> list[str]:
    """Each place below these folders that holds one of these words, of lower-case letters."""
    wanted = [word.encode() for word in words]
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and _holds(path.read_bytes(), wanted):
                found.append(str(path))
            elif path.suffix == ".lance" and path.is_dir():
                found += [f"{path} version {number}" for number in _versions(path, wanted)]
            elif path.name == "meta.json":
                found += [f"{path} {field}" for field in _terms(path.parent, wanted)]
    return found


def download(storage: Storage, folder: Path) -> Path:
    """Every object of an index on S3 as a file."""
    for stat in storage.objects.stats(""):
        path = folder / stat.key
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.objects.download(stat.key, path)
    return folder


def _holds(data: bytes, words: list[bytes]) -> bool:
    return any(word in data or word in data.lower() for word in words)


def _versions(folder: Path, words: list[bytes]) -> Iterator[int]:
    table = lancedb.connect(str(folder.parent)).open_table(folder.stem)
    for version in [one["version"] for one in table.list_versions()]:
        table.checkout(version)
        columns = [name for name in table.schema.names if name != "vector"]
        for batch in table.search().select(columns).to_batches(1_000):
            if any(_holds(data, words) for column in batch.columns for data in _values(column.to_pylist())):
                yield version
                break


def _values(values: list[Any]) -> Iterator[bytes]:
    for value in values:
        if isinstance(value, bytes):
            with pa.CompressedInputStream(pa.BufferReader(value), "zstd") as stream:
                yield bytes(stream.read())
        elif isinstance(value, list):
            yield from _values(value)
        else:
            yield str(value).encode()


def _terms(folder: Path, words: list[bytes]) -> Iterator[str]:
    searcher = tantivy.Index.open(str(folder)).searcher()  # of deleted rows too
    for field in FIELDS:
        if any(searcher.terms_with_prefix(field, word.decode()) for word in words):
            yield field
