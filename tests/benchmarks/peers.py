"""Other libraries' splitters, each run in an environment of its own; nothing of Gristmill is imported here.

    PYTHON peers.py SPLITTER TOKENIZER SIZE < texts.json > cuts.json

Standard input is a JSON list of texts; the answer has `spans`, for each text the `[start, end)` of its chunks in code
points, and `seconds` of processor time, from the text to chunks with token counts by the given tokenizer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

# What each needs, at the versions that were measured.
REQUIREMENTS = {
    "LangChain recursive": ("langchain-text-splitters==1.1.3", "tokenizers==0.23.3"),
    "chonkie recursive": ("chonkie==1.7.0", "tokenizers==0.23.3"),
    "chonkie token": ("chonkie==1.7.0", "tokenizers==0.23.3"),
    "LlamaIndex sentence": ("llama-index-core==0.14.25", "tokenizers==0.23.3"),
    "semantic-text-splitter": ("semantic-text-splitter==0.33.1", "tokenizers==0.23.3"),
}


def main() -> None:
    name, tokenizer, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    split = splitter(name, tokenizer, size)
    texts = json.load(sys.stdin)
    split("One sentence to load what is loaded late. And another.")
    begin = time.process_time()
    spans = [split(text) for text in texts]
    seconds = time.process_time() - begin
    json.dump({"spans": spans, "seconds": seconds}, sys.stdout)


def splitter(name: str, tokenizer_file: str, size: int) -> Splitter:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokens(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    if name == "LangChain recursive":
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        langchain = RecursiveCharacterTextSplitter(
            chunk_size=size, chunk_overlap=0, length_function=lambda text: len(tokens(text)), add_start_index=True
        )

        def by_langchain(text: str) -> list[Span]:
            made = langchain.create_documents([text])
            starts = [one.metadata["start_index"] for one in made]
            return [(start, start + len(one.page_content)) for start, one in zip(starts, made, strict=True)]

        return by_langchain
    if name.startswith("chonkie"):
        import chonkie

        make = chonkie.RecursiveChunker if name.endswith("recursive") else chonkie.TokenChunker
        chunker = make(tokenizer=tokenizer, chunk_size=size)
        return lambda text: [(one.start_index, one.end_index) for one in chunker.chunk(text)]
    if name == "LlamaIndex sentence":
        from llama_index.core import Document
        from llama_index.core.node_parser import SentenceSplitter

        llama = SentenceSplitter(chunk_size=size, chunk_overlap=0, tokenizer=tokens, include_metadata=False)
        return lambda text: [
            (node.start_char_idx, node.end_char_idx) for node in llama.get_nodes_from_documents([Document(text=text)])
        ]
    from semantic_text_splitter import TextSplitter

    semantic = TextSplitter.from_huggingface_tokenizer(tokenizer, size)
    return lambda text: [(start, start + len(chunk)) for start, chunk in semantic.chunk_indices(text)]


if __name__ == "__main__":
    main()
