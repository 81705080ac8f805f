"""Files parsed and cut, one after the other, on one core: rates, memory, and what was cut by force.

    python tests/benchmarks/cutting.py ../shared/corpora/ancient-history/books

Every chunk that does not end where a sentence, a row or a part of the document ends says so (`cut`); they are counted
by what was cut. That no other chunk ends within a sentence is a test (`tests/test_chunker_real.py`).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter
from pathlib import Path

from chunker.split import cut
from flows.models.ruler import chunker_settings, open_ruler
from flows.settings import load_settings
from parsers.registry import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    settings = load_settings()
    ruler, how = open_ruler(settings), chunker_settings(settings)
    files = sorted(path for path in parser.parse_args().folder.rglob("*") if path.is_file())
    parsing = cutting = 0.0
    size = chunks = tokens = 0
    forced: Counter[str] = Counter()
    peaks: list[float] = []
    for number, path in enumerate(files):
        data = path.read_bytes()
        size += len(data)
        begin = time.process_time()
        document = read(path.name, data)
        middle = time.process_time()
        for chunk in cut(document, document.title or path.name, ruler, how):
            chunks += 1
            tokens += chunk.tokens
            forced[chunk.cut] += bool(chunk.cut)
        parsing, cutting = parsing + middle - begin, cutting + time.process_time() - middle
        if number * 10 // len(files) >= len(peaks):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    total, megabytes = parsing + cutting, size / 1e6
    print(f"{len(files)} files, {megabytes:.1f} MB, {chunks:,} chunks, {tokens:,} tokens, {total:.1f} s of one core")
    print(f"parse {parsing:.1f} s, {megabytes / parsing:.1f} MB/s, {parsing / total * 100:.0f} %")
    print(f"chunk {cutting:.1f} s, {megabytes / cutting:.1f} MB/s, {cutting / total * 100:.0f} %")
    print("peak MB by tenth of the way: " + " ".join(f"{peak:.0f}" for peak in peaks))
    print("cut by force: " + (", ".join(f"{name} {count}" for name, count in forced.most_common() if name) or "none"))


if __name__ == "__main__":
    main()
