"""Other libraries' ways to keep an index of a folder up to date; each runs in an environment of its own.

    PYTHON churn_peers.py build SYSTEM DOCUMENTS STORE MODEL    one run: texts embedded, and seconds without the imports
    PYTHON churn_peers.py rows SYSTEM DOCUMENTS STORE MODEL     the rows in the store: `[document's key, text]`

Each is used as its documentation shows it for a folder, with chunks that the model takes whole. Nothing of Gristmill is
imported here. All of them embed by `SentenceTransformer.encode`, and what is passed to it is counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

CHARACTERS, OVERLAP, TOKENS = 800, 100, 200
NAME = "churn"
MODEL = ("sentence-transformers==6.2.0", "torch==2.13.0", "transformers==5.24.0")

Row = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """Where the documents, the store and the model lie."""

    documents: Path
    store: Path
    model: str

    def key(self, path: str) -> str:
        return Path(path).relative_to(self.documents).as_posix()


@dataclass(frozen=True)
class Peer:
    """``prepare`` imports and gives back what one build does; ``rows`` reads the store."""

    prepare: Callable[[Place], Callable[[], object]]
    rows: Callable[[Place], list[Row]]
    needs: tuple[str, ...]
    python: tuple[int, int] = (3, 11)


def cocoindex(place: Place) -> Callable[[], object]:
    import typing

    import cocoindex as coco
    from cocoindex.connectors import lancedb, localfs
    from cocoindex.ops.sentence_transformers import SentenceTransformerEmbedder
    from cocoindex.ops.text import RecursiveSplitter
    from cocoindex.resources.file import FileLike, PatternFilePathMatcher
    from cocoindex.resources.id import IdGenerator
    from numpy.typing import NDArray

    database = coco.ContextKey[lancedb.LanceAsyncConnection]("lance_db")
    embedder = coco.ContextKey[SentenceTransformerEmbedder]("embedder")
    splitter = RecursiveSplitter()

    # Annotations that are evaluated: this module's are strings, and what they would name is local here.
    vector = typing.Annotated[NDArray, embedder]
    fields = [("id", int), ("filename", str), ("text", str), ("embedding", vector)]
    passage = make_dataclass("Passage", fields)

    @coco.lifespan
    async def lifespan(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
        builder.settings.db_path = place.store / "state"
        builder.provide(database, await lancedb.connect_async(str(place.store / "lancedb")))
        builder.provide(embedder, SentenceTransformerEmbedder(place.model))
        yield

    @coco.fn
    async def process_chunk(chunk: Any, filename: str, ids: IdGenerator, table: Any) -> None:
        vector = await coco.use_context(embedder).embed(chunk.text)
        number = await ids.next_id(chunk.text)
        table.declare_row(row=passage(id=number, filename=filename, text=chunk.text, embedding=vector))

    @coco.fn(memo=True)
    async def process_file(file: FileLike, table: Any) -> None:
        chunks = splitter.split(
            await file.read_text(), chunk_size=CHARACTERS, chunk_overlap=OVERLAP, language="markdown"
        )
        await coco.map(process_chunk, chunks, str(file.file_path.path), IdGenerator(), table)

    @coco.fn
    async def main(folder: Path) -> None:
        schema = await lancedb.TableSchema.from_class(passage, primary_key=["id"])
        table = await lancedb.mount_table_target(database, NAME, schema)
        matcher = PatternFilePathMatcher(included_patterns=["**/*.md"])
        files = localfs.walk_dir(folder, recursive=True, path_matcher=matcher)
        await coco.mount_each(process_file, files.items(), table)

    app = coco.App(coco.AppConfig(name=NAME), main, folder=place.documents)
    return app.update_blocking


def cocoindex_rows(place: Place) -> list[Row]:
    import lancedb

    table = lancedb.connect(place.store / "lancedb").open_table(NAME)
    rows = table.to_arrow().select(["filename", "text"]).to_pylist()
    return [(place.key(str(place.documents / row["filename"])), row["text"]) for row in rows]


def llamaindex(place: Place) -> Callable[[], object]:
    import chromadb
    from llama_index.core import SimpleDirectoryReader
    from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
    from llama_index.core.node_parser import SentenceSplitter
    from llama_index.core.storage.docstore import SimpleDocumentStore
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    from llama_index.vector_stores.chroma import ChromaVectorStore

    def build() -> None:
        collection = chromadb.PersistentClient(str(place.store / "chroma")).get_or_create_collection(NAME)
        pipeline = IngestionPipeline(
            transformations=[
                SentenceSplitter(chunk_size=TOKENS, chunk_overlap=20),
                HuggingFaceEmbedding(place.model),
            ],
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
            vector_store=ChromaVectorStore(chroma_collection=collection),
        )
        kept = place.store / "pipeline"
        if kept.exists():
            pipeline.load(str(kept))
        reader = SimpleDirectoryReader(str(place.documents), recursive=True, filename_as_id=True, required_exts=[".md"])
        pipeline.run(documents=reader.load_data())
        pipeline.persist(str(kept))

    return build


def llamaindex_rows(place: Place) -> list[Row]:
    import chromadb

    found = chromadb.PersistentClient(str(place.store / "chroma")).get_collection(NAME).get()
    nodes = [json.loads(metadata["_node_content"]) for metadata in found["metadatas"]]
    return [
        (place.key(node["metadata"]["file_path"]), text) for node, text in zip(nodes, found["documents"], strict=True)
    ]


def langchain(place: Place, *, remember: bool = False) -> Callable[[], object]:
    from langchain_chroma import Chroma
    from langchain_classic.embeddings import CacheBackedEmbeddings
    from langchain_classic.indexes import SQLRecordManager
    from langchain_classic.storage import LocalFileStore
    from langchain_community.document_loaders import DirectoryLoader, TextLoader
    from langchain_core.indexing import index
    from langchain_huggingface import HuggingFaceEmbeddings
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    def build() -> None:
        embeddings = HuggingFaceEmbeddings(model_name=place.model)
        if remember:
            vectors = LocalFileStore(place.store / "vectors")
            embeddings = CacheBackedEmbeddings.from_bytes_store(
                embeddings, vectors, namespace=NAME, key_encoder="sha256"
            )
        store = Chroma(NAME, embeddings, persist_directory=str(place.store / "chroma"))
        records = SQLRecordManager(NAME, db_url=f"sqlite:///{place.store}/records.db")
        records.create_schema()
        documents = DirectoryLoader(str(place.documents), glob="**/*.md", loader_cls=TextLoader).load()
        splitter = RecursiveCharacterTextSplitter(chunk_size=CHARACTERS, chunk_overlap=OVERLAP)
        index(
            splitter.split_documents(documents),
            records,
            store,
            cleanup="full",
            source_id_key="source",
            key_encoder="sha256",
        )

    return build


def langchain_rows(place: Place) -> list[Row]:
    import chromadb

    found = chromadb.PersistentClient(str(place.store / "chroma")).get_collection(NAME).get()
    return [
        (place.key(metadata["source"]), text)
        for metadata, text in zip(found["metadatas"], found["documents"], strict=True)
    ]


def haiku(place: Place) -> Callable[[], object]:
    from haiku.rag.config import AppConfig
    from haiku.rag.ingester.app import IngesterApp

    config = AppConfig.model_validate(
        {
            "storage": {"data_dir": place.store},
            "embeddings": {"model": {"provider": "sentence-transformers", "name": place.model, "vector_dim": 384}},
            "processing": {"chunk_size": TOKENS, "chunking_tokenizer": place.model},
            "ingester": {
                "queue": {"path": place.store / "ingester.db"},
                "databases": {
                    "haiku.rag": {
                        "sources": [{"type": "fs", "id": NAME, "root": place.documents, "delete_orphans": True}]
                    }
                },
            },
        }
    )

    def build() -> None:
        report = asyncio.run(IngesterApp(config=config).run_batch())
        if report.dead or report.rejected or report.failed_sweeps:
            raise RuntimeError(f"haiku.rag did not take everything: {report}")

    return build


def haiku_rows(place: Place) -> list[Row]:
    import lancedb

    database = lancedb.connect(place.store / "haiku.rag.lancedb")
    documents = database.open_table("document_meta").to_arrow().select(["id", "uri"]).to_pylist()
    keys = {row["id"]: place.key(unquote(urlparse(row["uri"]).path)) for row in documents}
    chunks = database.open_table("chunks").to_arrow().select(["document_id", "content"]).to_pylist()
    return [(keys.get(row["document_id"], ""), row["content"]) for row in chunks]


PEERS = {
    "cocoindex": Peer(cocoindex, cocoindex_rows, ("cocoindex[lancedb,sentence-transformers]==1.0.26",)),
    "LlamaIndex": Peer(
        llamaindex,
        llamaindex_rows,
        (
            "llama-index-core==0.14.25",
            "llama-index-embeddings-huggingface==0.8.0",
            "llama-index-readers-file==0.7.0",
            "llama-index-vector-stores-chroma==0.6.0",
        ),
    ),
    "LangChain": Peer(
        langchain,
        langchain_rows,
        (
            "langchain-chroma==1.1.0",
            "langchain-classic==1.0.8",
            "langchain-community==0.4.2",
            "langchain-core==1.8.1",
            "langchain-huggingface==1.2.3",
            "langchain-text-splitters==1.1.3",
            "greenlet==3.5.6",
        ),
    ),
    "haiku.rag": Peer(haiku, haiku_rows, ("haiku-rag-slim[docling,ingester]==0.101.1",), (3, 12)),
}
PEERS["LangChain, vectors cached"] = Peer(
    lambda place: langchain(place, remember=True), langchain_rows, PEERS["LangChain"].needs
)


def main() -> None:
    action, system, documents, store, model = sys.argv[1:]
    peer, place = PEERS[system], Place(Path(documents), Path(store), model)
    if action == "rows":
        print(json.dumps(peer.rows(place)))
        return
    embedded = _count()
    build = peer.prepare(place)
    begin = time.perf_counter()
    build()
    seconds = time.perf_counter() - begin
    print(json.dumps({"embedded": embedded[0], "seconds": seconds}))


def _count() -> list[int]:
    """A counter of the texts that the model is asked for from now on."""
    from sentence_transformers import SentenceTransformer

    plain, seen = SentenceTransformer.encode, [0]

    def encode(self: Any, *arguments: Any, **named: Any) -> Any:
        texts = arguments[0] if arguments else named.get("inputs", named.get("sentences"))
        seen[0] += 1 if isinstance(texts, str) else len(texts)
        return plain(self, *arguments, **named)

    SentenceTransformer.encode = encode
    return seen


if __name__ == "__main__":
    main()
