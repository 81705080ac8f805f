"""How many places in the sixty books are cited with the numbers that the edition prints.

    python tests/benchmarks/citations.py ../shared/corpora/ancient-history/books

`citations.jsonl` holds places drawn by lot, thirteen a book less those whose number is in doubt: the book, chapter
and section in force there, or why the place should be left out, read by eye in the printed text without knowledge of
the program. The second draw was read after the program was written. A place is right when the chunk that holds it is
cited with exactly these numbers, or with a range that they begin, end or lie in. Prints the faults, and the sums.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from chunker.chunk import Chunk
from chunker.split import split
from flows.models.ruler import chunker_settings, open_ruler
from flows.settings import load_settings
from parsers.document import Document, leaves
from parsers.registry import read

PLACES = Path(__file__).with_suffix(".jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", type=Path)
    folder = parser.parse_args().books
    settings = load_settings()
    ruler, how = open_ruler(settings), chunker_settings(settings)
    books: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in PLACES.read_text(encoding="utf-8").splitlines():
        place = json.loads(line)
        books[place["doc"]].append(place)
    counts: Counter[tuple[str, bool]] = Counter()
    whole = named = 0
    for name, places in sorted(books.items()):
        document = read(name, (folder / name).read_bytes())
        chunks = split(document, document.title or name, ruler, how)
        faults = 0
        for place in places:
            fault = wrong(document, chunks, place)
            counts[place["drawn"], not fault] += 1
            faults += bool(fault)
            if fault:
                print(f"{name} at {place['offset']}: {fault}")
        whole += not faults
        named += any(chunk.citation for chunk in chunks)
    for drawn in ("first", "second"):
        right, faulty = counts[drawn, True], counts[drawn, False]
        print(f"{drawn} draw: {right} of {right + faulty} right")
    print(f"{whole} of {len(books)} books without a fault; {named} cited by author and work, the others by their file")


def wrong(document: Document, chunks: list[Chunk], place: dict[str, Any]) -> str:
    """What is wrong about a place; empty where nothing is."""
    offset = place["offset"]
    node = next(document.nodes[i] for i in leaves(document) if holds(document.nodes[i].extent, offset))
    if reason := place.get("left_out"):
        return "" if node.left_out == reason else f"not left out as {reason}: {node.left_out}"
    chunk = next((one for one in chunks if one.start <= offset < one.end), None)
    if chunk is None:
        return f"in no chunk ({node.left_out})"
    wanted = place["numbers"]
    if not chunk.citation:  # cited by file and headings: the numbers are those of the part
        found = numbers(node.ref or "")
        return "" if found == wanted else f"{found} for {wanted}"
    first, _, last = re.sub(r".*?((?:ch\. )?[\d.]+(?:-[\d.]+)?)$", r"\1", chunk.citation).partition("-")
    low = numbers(first)
    high = [*low[:-1], *numbers(last)] if last and "." not in last else numbers(last) or low
    return "" if low <= wanted <= high or wanted in (low, high) else f"cited {chunk.citation} for {wanted}"


def holds(extent: tuple[int, int], offset: int) -> bool:
    return extent[0] <= offset < extent[1]


def numbers(ref: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", re.sub(r"vol\. \d+, ", "", ref))]


if __name__ == "__main__":
    main()
