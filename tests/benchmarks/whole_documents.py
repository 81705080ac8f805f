"""Notes with the document in the prompt, in process: seconds a chunk beside outline-only prompts, and memory.

    python tests/benchmarks/whole_documents.py [--text FILE] [--tokens 6000] [--chunks 6] [--once] [--llm MODEL]
        [--windows preceding whole] [--forward]

One document of so many tokens, of a text file or generated. Of its chunks a few, spread over it, are asked for with
nothing but their headings ("outline only"), with the document up to the passage ("preceding"), and with the whole
document; the latter two once more in reverse order. The evaluation of the document is timed by itself: of the whole
before the first question, of what precedes piece by piece before each. Processor seconds are printed beside those of
the clock, since they tell the same on a busy machine. Aimed at: a chunk costs at most 1.2 times the outline-only
seconds, after one evaluation of the document. `--once` asks no second time after a rejected answer, so that all kinds
are asked equally often.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.settings import load_settings, prepare_environment, prepare_llm

prepare_environment()
prepare_llm()

import msgspec  # noqa: E402

from chunker.split import split  # noqa: E402
from enrich.models.registry import ModelFolder, find_llm, load_registry  # noqa: E402
from enrich.notes.note import Note  # noqa: E402
from enrich.notes.prompts import Window, Windows, WindowSettings  # noqa: E402
from enrich.notes.runtimes.llama_cpp import LlamaRuntime  # noqa: E402
from enrich.notes.writer import NoteSettings, NoteWriter  # noqa: E402
from flows.models.ruler import chunker_settings, open_ruler  # noqa: E402
from parsers.document import Document  # noqa: E402
from parsers.registry import read  # noqa: E402

KINDS = ("preceding", "whole")
NOUNS = ("valve", "gauge", "boiler", "hinge", "lever", "crank", "piston", "flange", "rivet", "spring")
CHARACTERS = 4.4  # of English, a token
PARAGRAPH = 1200  # characters of a generated section


def main() -> None:
    arguments = _arguments()
    settings = load_settings(llm=arguments.llm)
    document = _document(arguments.text, round(arguments.tokens * CHARACTERS))
    title = document.title or "A book"
    chunks = split(document, title, open_ruler(settings), chunker_settings(settings))
    some = chunks[:: max(1, len(chunks) // arguments.chunks)][: arguments.chunks]
    size = len(document.text)
    model, path = find_llm(
        settings.llm, load_registry(*settings.model_files), ModelFolder(settings.models_dir, settings.model_folders)
    )
    threads = settings.llm_threads or os.cpu_count() or 1
    runtime = LlamaRuntime(path, document=size, threads=threads, weights=model.files_of("weights")[0].sha256)
    writer = NoteWriter(runtime, NoteSettings(retry=not arguments.once))

    bare = Windows(document, title, WindowSettings(neighbours=0, siblings=0))
    outline = [bare.of(chunk) for chunk in some]
    writer.write([writer.prompt(outline[0])], outline[:1])  # loads the model
    alone, *_ = _asked(writer, runtime, outline)
    before, found = _peak(), {}
    for name in arguments.windows:
        around = Windows(document, title, WindowSettings(document=size, preceding=name == "preceding"), chunks)
        windows = [around.of(chunk) for chunk in some]
        own, evaluation, notes = _asked(writer, runtime, windows)
        again = _asked(writer, runtime, windows[::-1])[2] if not arguments.forward else []
        found[name] = {
            "evaluation_of_the_document": evaluation,
            **own,
            "ratio": {clock: round(own["a_chunk"][clock] / alone["a_chunk"][clock], 2) for clock in own["a_chunk"]},
            "equal_in_reverse_order": sum(a == b for a, b in zip(notes, again[::-1], strict=False)),
        }
    print(
        json.dumps(
            {
                "llm": model.name,
                "document_characters": size,
                "chunks": len(some),
                "outline_only": alone,
                **found,
                "peak_mb": {"outline_only": before, "with_the_document": _peak()},
                "threads": threads,
            },
            indent=2,
        )
    )


class _Clock:
    """Seconds of the clock and of the processor since it was made."""

    def __init__(self) -> None:
        self._begun = (time.perf_counter(), time.process_time())

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._begun[0], "processor": time.process_time() - self._begun[1]}


def _asked(
    writer: NoteWriter, runtime: LlamaRuntime, windows: Sequence[Window]
) -> tuple[dict[str, Any], dict[str, float], list[Note]]:
    """What a chunk costs and what comes of it; what the evaluation of the document costs; the notes."""
    shared, own, notes = Counter[str](), Counter[str](), []
    writer.counts.clear()
    for window in windows:
        prompt = writer.prompt(window)
        if prompt.with_document:
            clock = _Clock()
            runtime.generate(msgspec.structs.replace(prompt, rest="", ask=""), 1)
            shared.update(clock.read())
        clock = _Clock()
        notes += writer.write([prompt], [window])
        own.update(clock.read())
    told = {
        "a_chunk": _shares(own, len(windows)),
        "second_tries": writer.counts["retried"],
        "outcomes": dict(Counter(note.outcome for note in notes)),
    }
    return told, _shares(shared, 1), notes


def _shares(read: Mapping[str, float], count: int) -> dict[str, float]:
    return {name: round(value / count, 2) for name, value in read.items()}


def _peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _document(path: Path | None, length: int) -> Document:
    if path is None:
        text = "# The works of the mill\n\n" + "\n\n".join(_sections(length))
    else:
        body = path.read_text(encoding="utf-8")
        start = body.index("\n\n", len(body) // 10)  # behind the front matter
        text = f"# {path.stem}\n\n" + body[start : start + length].rpartition("\n\n")[0].strip()
    return read("whole.md", text.encode())


def _sections(length: int) -> Iterator[str]:
    """Sections that differ in what they tell, until there is text enough."""
    number = 0
    while length > 0:
        number += 1
        noun, other = NOUNS[number % len(NOUNS)], NOUNS[number * 3 % len(NOUNS)]
        lines = [
            f"The {noun} of house {number} is oiled on day {number + turn} and stands {turn + 2} feet from the {other}."
            for turn in range(PARAGRAPH // 80)
        ]
        section = f"## The {noun} of house {number}\n\n" + " ".join(lines)
        length -= len(section)
        yield section


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a text file; a document is generated without one")
    parser.add_argument("--tokens", type=int, default=6000, help="of the document, roughly")
    parser.add_argument("--chunks", type=int, default=6, help="how many of its chunks are asked for")
    parser.add_argument("--once", action="store_true", help="no second try after a rejected answer")
    parser.add_argument("--windows", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--forward", action="store_true", help="not once more in reverse order")
    parser.add_argument("--llm", help="a model of the registry or the path of a GGUF")
    return parser.parse_args()


if __name__ == "__main__":
    main()
