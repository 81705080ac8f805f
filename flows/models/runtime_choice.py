"""Choosing the runtime that runs the embedder on this machine, measured once.

Invariants:
- A runtime is chosen only after it agreed with the model's own weights in single precision.
- A choice holds for this machine and these versions of the libraries. It is not part of a fingerprint, so a machine
  that chooses another runtime embeds nothing again.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from enrich.embedding import parity
from enrich.embedding.embedder import TEXTS_IN_WINDOW, Embedder, embedder_fingerprint, open_embedder
from enrich.embedding.runtime import versions
from enrich.embedding.runtimes.registry import RUNTIMES, choice, choices
from enrich.files import atomic_write
from enrich.models.conversion import convert_model, records
from enrich.models.registry import EmbedderModel, ModelFolder, Registry
from parsers.errors import ModelError

# Loads a runtime in a process of its own, embeds one text and prints the processor seconds.
_START: Final = """
import json, sys, time
from pathlib import Path
from enrich.embedding.embedder import open_embedder
from enrich.models.registry import ModelFolder, load_registry
given = json.loads(sys.argv[1])
folder = ModelFolder(Path(given["root"]), [Path(one) for one in given["folders"]])
registry = load_registry(*map(Path, given["files"]))
embedder = open_embedder(given["embedder"], registry, folder, runtime=given["runtime"], device=given["device"])
embedder.encode(["A short text."])
print(time.process_time())
"""
_FOLDER: Final = ".chosen"  # below the root of the model folder
ROUNDS: Final = 3
QUICK: Final = 12  # texts of a first, short round
FAR_BEHIND: Final = 2.0  # times slower than the fastest there: not compared at all
TEXTS: Final = 48  # texts of a round; a GPU gets each as many times as it needs to be kept busy
TOKENS: Final = 180  # of each of them, special ones included: what chunks have
QUANTIZED: Final = ("int8", "q8_0", "q4_k_m")  # not tried: on no model seen do they agree


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement of one runtime.

    Attributes:
        name: such as ``onnx:fp32``.
        rate: texts per second, the median of some rounds; 0 where it cannot run or does not agree.
        start: processor seconds of a process that loads it and embeds one text; 0 where that was not measured.
        least: its least cosine with the model's own runtime.
        problem: why it is out; empty where it agrees.
    """

    name: str
    rate: float = 0.0
    start: float = 0.0
    least: float = -1.0
    problem: str = ""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a machine.

    Attributes:
        runtime: the runtime with the highest rate of those that agree.
        machine: see :func:`machine`.
        tried: every runtime.
    """

    runtime: str
    machine: str
    tried: list[Tried]

    def runtime_for(self, texts: int) -> str:
        """Return the runtime that takes the least time, its start included, for so many texts."""
        usable = [one for one in self.tried if one.rate and not one.problem]
        if not all(one.start for one in usable):
            return self.runtime
        return min(usable, key=lambda one: one.start + texts / one.rate).name


def machine() -> str:
    """Return the processor, its number of cores, and the versions of the computing libraries."""
    # llama.cpp is left out: it may be installed later, for notes, and its version is in the provenance of its vectors.
    names = sorted({library for name, kind in RUNTIMES.items() if name != "llama.cpp" for library in kind.libraries})
    listed = ", ".join(f"{name} {version}" for name, version in versions(names).items())
    return f"{_processor()}, {os.cpu_count()} cores; {listed}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags")
    found = {
        name: next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "") for name in wanted
    }
    features = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in found["flags"].split()]
    return " ".join([found["model name"] or platform.machine(), *features])


def runtime_for(model: EmbedderModel, folder: ModelFolder, texts: int = 1) -> str | None:
    """Return the runtime for so many texts of a model on this machine; None where none was measured."""
    chosen = remembered(model, folder)
    return chosen.runtime_for(texts) if chosen is not None else None


def remembered(model: EmbedderModel, folder: ModelFolder) -> Chosen | None:
    """Return the measurements of a model on this machine with today's libraries; None where a file is gone since."""
    try:
        chosen = msgspec.json.decode(_record(model, folder).read_bytes(), type=Chosen)
    except (OSError, msgspec.MsgspecError):
        return None
    there = records(model, folder)
    usable = {str(one) for one in choices(model) if not RUNTIMES[one.runtime].converted or one in there}
    return chosen if chosen.machine == machine() and chosen.runtime in usable else None


def choose(
    embedder: str,
    registry: Registry,
    folder: ModelFolder,
    device: str | None,
    say: Callable[[str], None],
    only: Sequence[str] = (),
) -> Chosen:
    """Convert the model for every runtime that is installed, measure those that agree, and keep the measurements.

    Args:
        only: runtimes to try besides the model's own; all by default.

    Raises:
        ModelError: when the model is missing, or its own runtime cannot run.
    """
    model = registry.embedder(embedder)
    names = [str(one) for one in choices(model) if one.precision not in QUANTIZED]
    names = [name for number, name in enumerate(names) if not number or not only or name in only]
    tried: dict[str, Tried] = {}
    racing: dict[str, Embedder] = {}
    for name in names:
        say(f"{model.name}: trying {name}")
        try:
            one = choice(model, name)
            if RUNTIMES[one.runtime].converted:
                convert_model(model, one, folder)
            racing[name] = open_embedder(embedder, registry, folder, runtime=name, device=device)
            racing[name].load()
        except ModelError as error:
            if name == names[0]:
                raise
            racing.pop(name, None)
            tried[name] = Tried(name=name, problem=error.message)
    quick = rates(racing, rounds=1, count=QUICK)
    for name in list(racing):
        if quick[name] * FAR_BEHIND < max(quick.values()) and name != names[0]:
            tried[name] = Tried(name=name, rate=round(quick[name], 2), problem=f"far behind: {quick[name]:.1f} texts/s")
            del racing[name]
    tried |= _compared(racing, names[0], say)
    racing = {name: embedder for name, embedder in racing.items() if not tried[name].problem}
    for name, rate in rates(racing, ROUNDS, TEXTS).items():
        start = start_of(embedder, registry, folder, name, device)
        tried[name] = msgspec.structs.replace(tried[name], rate=round(rate, 2), start=round(start, 2))
    best = max(racing, key=lambda name: tried[name].rate)
    result = Chosen(runtime=best, machine=machine(), tried=[tried[name] for name in names])
    _keep(_record(model, folder), result)
    return result


def start_of(embedder: str, registry: Registry, folder: ModelFolder, runtime: str, device: str | None) -> float:
    """Return the processor seconds of a process that loads a runtime and embeds one text; 0 where it fails."""
    given = {
        "embedder": embedder,
        "files": [str(path) for path in registry.files],
        "root": str(folder.root),
        "folders": [str(path) for path in folder.others],
        "runtime": runtime,
        "device": device,
    }
    command = [sys.executable, "-c", _START, msgspec.json.encode(given).decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout else 0.0


def _compared(racing: dict[str, Embedder], own: str, say: Callable[[str], None]) -> dict[str, Tried]:
    """Return each runtime against the model's own."""
    say(f"comparing {', '.join(racing)}")
    chosen, under = parity.texts(racing[own]), parity.conditions(racing[own])
    expected = parity.vectors_of(racing[own], chosen, under)
    compared = {}
    for name, embedder in racing.items():
        vectors = expected if name == own else parity.vectors_of(embedder, chosen, under)
        found = parity.compare_vectors(name, own, chosen, vectors, expected)
        compared[name] = Tried(name=name, least=found.min, problem=found.reason)
    return compared


def rates(racing: dict[str, Embedder], rounds: int, count: int) -> dict[str, float]:
    """Return texts a second of each embedder: the median of rounds in which they take turns on the same texts.

    Args:
        rounds: those that count; one more goes before them.
        count: texts in a round; on a GPU as many times more as it takes at a time more than a processor.
    """
    times = {name: max(1, embedder.window // TEXTS_IN_WINDOW["cpu"]) for name, embedder in racing.items()}
    seconds: dict[str, list[float]] = {name: [] for name in racing}
    first = next(iter(racing.values()))  # all have one tokenizer
    for turn in range(rounds + 1):
        texts = _sample(first, count, turn)
        for name, embedder in racing.items():
            begun = time.perf_counter()
            embedder.probe(list(texts) * times[name], "passage")
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return {name: count * times[name] / statistics.median(taken) for name, taken in seconds.items()}


def _sample(embedder: Embedder, count: int, turn: int) -> Sequence[str]:
    """Ordinary texts of a chunk's length, others in each turn."""
    return [parity.ordinary(embedder, TOKENS, turn * count + number) for number in range(count)]


def _record(model: EmbedderModel, folder: ModelFolder) -> Path:
    return folder.root / _FOLDER / f"{model.name}-{embedder_fingerprint(model)[:8]}.json"


def _keep(path: Path, chosen: Chosen) -> None:
    atomic_write(path, msgspec.json.format(msgspec.json.encode(chosen)))
