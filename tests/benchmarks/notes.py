"""Notes by the local LLM over chunks of books: seconds a note, what the checks keep, equality in another order.

    python tests/benchmarks/notes.py BOOK... [--chunks 300] [--again 300] [--table FILE]

Each book gives the same number of chunks, ten neighbours at a time, spread over it. Every tenth is asked for once more
with nothing but its headings around it ("outline only"), before and after the others, in the same process: the ratio is
what the neighbouring text costs. `--again` are asked for once more in reverse order, from a fresh runtime and
without a memory. `--table` writes the notes, and the extractive ones beside them, to be read by eye. "Invented" is how
many of a hundred first answers, and of a hundred notes that the checks kept, name something that their prompt does not:
a capitalised word within a sentence, a number or an identifier, looked for as it is written, not by the checks' rules.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from flows.settings import load_settings, prepare_environment, prepare_llm

prepare_environment()
prepare_llm()

from chunker.split import split  # noqa: E402
from enrich.models.registry import ModelFolder, find_llm, load_registry  # noqa: E402
from enrich.notes.extractive import extractive  # noqa: E402
from enrich.notes.note import Note  # noqa: E402
from enrich.notes.prompts import (  # noqa: E402
    Prompt,
    Window,
    Windows,
    WindowSettings,
)
from enrich.notes.runtimes.llama_cpp import LlamaRuntime  # noqa: E402
from enrich.notes.writer import Completion, NoteWriter  # noqa: E402
from flows.models.ruler import chunker_settings, open_ruler  # noqa: E402
from parsers.registry import read  # noqa: E402

RUN = 10  # neighbouring chunks taken together
# Within a sentence a capitalised word; anywhere what holds a digit, an underscore or a capital behind a small letter.
NAME = re.compile(r"(?<=[^.!?:\s] )[A-Z][\w-]+|\b\w*(?:\d|_|[a-z][A-Z])\w*")


def main() -> None:
    arguments = _arguments()
    settings = load_settings(llm=arguments.llm)
    ruler = open_ruler(settings)
    wide, bare = [], []
    for book in arguments.books:
        own = _windows(book, arguments.chunks // len(arguments.books), ruler, settings)
        wide += own[0]
        bare += own[1][::RUN]
    model, path = find_llm(
        settings.llm, load_registry(*settings.model_files), ModelFolder(settings.models_dir, settings.model_folders)
    )
    threads = settings.llm_threads or os.cpu_count() or 1

    def writer() -> NoteWriter:
        return NoteWriter(Recording(path, threads=threads, weights=model.files_of("weights")[0].sha256))

    asked = writer()
    _timed(asked, bare[:1])  # loads the model
    half = len(bare) // 2
    outline = [_timed(asked, bare[:half])[1]]
    asked.counts.clear()
    notes, seconds = _timed(asked, wide, say=True)
    counts = dict(asked.counts)
    outline.append(_timed(asked, bare[half:])[1])
    result = {
        "llm": model.name,
        "chunks": len(wide),
        "seconds_a_note": round(seconds / len(wide), 2),
        "outline_only": [round(outline[0] / half, 2), round(outline[1] / (len(bare) - half), 2)],
        "ratio": round(seconds / len(wide) * len(bare) / sum(outline), 2),
        "outcomes": dict(Counter(note.outcome for note in notes)),
        "counts": counts,
        "invented_per_100": _invented(asked, wide, notes),
        "threads": threads,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(result, ensure_ascii=False), flush=True)
    if arguments.table:
        _write_table(arguments.table, wide, notes, settings.note_reserve, ruler)
    if arguments.again:
        step = max(1, len(wide) // arguments.again)
        some = list(range(0, len(wide), step))[: arguments.again][::-1]
        again, _ = _timed(writer(), [wide[index] for index in some], say=True)
        equal = sum(notes[index] == note for index, note in zip(some, again, strict=True))
        print(json.dumps({"asked_again": len(some), "equal": equal}), flush=True)


class Recording(LlamaRuntime):
    """Keeps the first answer to each prompt."""

    first: ClassVar[dict[str, str]] = {}

    def generate(self, prompt: Prompt, max_tokens: int) -> Completion:
        answer = super().generate(prompt, max_tokens)
        self.first.setdefault("".join(prompt.shared) + prompt.rest, answer.text)
        return answer


def _invented(writer: NoteWriter, windows: Sequence[Window], notes: Sequence[Note]) -> dict[str, float]:
    """How many of a hundred answers and notes name what their prompt does not."""
    raw, kept = [], []
    for window, note in zip(windows, notes, strict=True):
        prompt = writer.prompt(window)
        given = "".join(prompt.shared) + prompt.rest
        raw.append(_names_more(Recording.first[given], given))
        if note.text:
            kept.append(_names_more(note.text, given))
    return {"first_answers": round(100 * sum(raw) / len(raw), 1), "kept_notes": round(100 * sum(kept) / len(kept), 1)}


def _names_more(text: str, given: str) -> bool:
    return any(name.casefold() not in given.casefold() for name in NAME.findall(text))


def _windows(book: Path, count: int, ruler, settings) -> tuple[list[Window], list[Window]]:  # type: ignore[no-untyped-def]
    """Windows of a book's chunks, as a build makes them and with nothing but the headings around."""
    document = read(book.name, book.read_bytes())
    title = document.title or book.name
    chunks = split(document, title, ruler, chunker_settings(settings))
    runs = max(1, count // RUN)
    starts = [len(chunks) * (2 * run + 1) // (2 * runs) for run in range(runs)]
    chosen = [one for start in starts for one in chunks[start : start + RUN]]
    around = Windows(document, title, WindowSettings(neighbours=settings.note_neighbours))
    nothing = Windows(document, title, WindowSettings(neighbours=0, siblings=0))
    return [around.of(one) for one in chosen], [nothing.of(one) for one in chosen]


def _timed(writer: NoteWriter, windows: Sequence[Window], say: bool = False) -> tuple[list[Note], float]:
    notes: list[Note] = []
    begun = time.perf_counter()
    for start in range(0, len(windows), RUN):
        some = windows[start : start + RUN]
        notes += writer.write([writer.prompt(window) for window in some], some)
        if say:
            print(f"{len(notes)} of {len(windows)} notes, {time.perf_counter() - begun:.0f} s", flush=True)
    return notes, time.perf_counter() - begun


def _write_table(path: Path, windows: Sequence[Window], notes: Sequence[Note], reserve: int, ruler) -> None:  # type: ignore[no-untyped-def]
    with path.open("w", encoding="utf-8") as file:
        for window, note in zip(windows, notes, strict=True):
            row = {
                "title": window.title,
                "path": window.heading_path,
                "text": window.text,
                "llm": note.text,
                "reason": note.reason,
                "extractive": extractive(window, reserve, ruler.count).text,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", nargs="+", type=Path)
    parser.add_argument("--chunks", type=int, default=300)
    parser.add_argument("--llm", help="a model of the registry or the path of a GGUF")
    parser.add_argument("--again", type=int, default=300, help="how many of them are asked for in another order")
    parser.add_argument("--table", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
