"""Check that two runtimes of an embedder compute the same vectors.

Invariants:
- The texts are one fixed set in strata, because a faulty runtime passes with five or twenty-five ordinary sentences.
- The minimum cosine of every stratum decides, never a mean.
- Each text is embedded as a passage and as a query, alone and in a batch of texts of other lengths.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from enrich.embedding.embedder import MIXED, BatchPlan, Embedder, TextKind
from enrich.embedding.runtime import Provenance, Vectors
from parsers.errors import ModelError, StoreError

PROBES_VERSION: Final = 1  # of the fixed texts and of the rule that makes the long ones
LEAST: Final = 0.999  # cosine that every text of every stratum must reach (DESIGN, parity)
TOP: Final = 10
QUANTILES: Final = (0.0, 0.01, 0.05, 0.25, 0.5)
_TEXTS: Final = Path(__file__).with_name("parity.toml")


class Text(NamedTuple):
    """One text of the set."""

    stratum: str
    text: str


class Condition(NamedTuple):
    """Kind and batch plan with which a set of texts is embedded."""

    kind: TextKind
    plan: BatchPlan


@cache
def _file() -> tuple[tuple[Text, ...], tuple[tuple[str, ...], ...]]:
    """Return the fixed texts, and the words for the long ones."""
    read = tomllib.loads(_TEXTS.read_text(encoding="utf-8"))
    fixed = tuple(Text(stratum, text) for stratum, texts in read["strata"].items() for text in texts)
    return fixed, tuple(tuple(words.split()) for words in read["words"])


def texts(embedder: Embedder) -> list[Text]:
    """Return the texts for a model: the fixed ones, and long ones below, at and above its limit."""
    fixed, words = _file()
    limit = embedder.limit
    sizes = (limit - 1, limit, limit + 1, 2 * limit)
    return [*fixed, *(Text("long", _long(own, size, embedder.count)) for own in words for size in sizes)]


def digest(chosen: Sequence[Text]) -> str:
    """Return the SHA-256 of a set of texts, in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode([PROBES_VERSION, chosen])).hexdigest()


def _long(words: Sequence[str], size: int, count: Callable[[str], int]) -> str:
    """Return a text of ``size`` tokens, special ones included, or slightly fewer."""
    made: list[str] = []
    for word in cycle(words):
        made.append(word)
        if len(made) % len(words) == 0 and count(" ".join(made)) > size:
            break
    low, high = 0, len(made)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(made[:middle])) <= size else (low, middle - 1)
    text = " ".join(made[:low])
    while count(f"{text} a") <= size:
        text += " a"
    return text


def ordinary(embedder: Embedder, size: int, number: int) -> str:
    """Return an ordinary text of at most ``size`` tokens, a different one for each number."""
    own = _file()[1][0]
    start = number % len(own)
    return f"{number}: " + _long([*own[start:], *own[:start]], size - 4, embedder.count)


def conditions(embedder: Embedder) -> list[Condition]:
    """Return all conditions; without queries if query and passage have the same prefix."""
    kinds: list[TextKind] = ["passage"]
    if embedder.model.query_prefix != embedder.model.passage_prefix:
        kinds.append("query")
    plans: list[BatchPlan] = ["alone", "mixed"]
    return [Condition(kind, plan) for kind in kinds for plan in plans]


def vectors_of(embedder: Embedder, chosen: Sequence[Text], under: Sequence[Condition]) -> Vectors:
    """Return the vectors of a set under each condition: (conditions, texts, dimension)."""
    order = _shuffled(chosen)
    back = np.argsort(order)
    strided = [chosen[row].text for row in order]
    return np.stack([embedder.probe(strided, kind, plan)[back] for kind, plan in under])


def _shuffled(chosen: Sequence[Text]) -> list[int]:
    """Return the rows in an order that mixes strata and lengths in each batch of sixteen.

    The long texts share few batches, since a long text pads its whole batch to its length.
    """
    long = [row for row, text in enumerate(chosen) if text.stratum == "long"]
    short = [row for row, text in enumerate(chosen) if text.stratum != "long"]
    strided = [row for start in range(MIXED) for row in short[start::MIXED]]
    order: list[int] = []
    while long or strided:
        taken, long = long[: MIXED // 4], long[MIXED // 4 :]
        room = MIXED - len(taken)
        order += [*taken, *strided[:room]]
        strided = strided[room:]
    return order


class RuntimeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of two runtimes.

    Attributes:
        a, b: names of the runtimes.
        n: number of comparisons: texts times conditions.
        min, mean: of the cosines.
        quantiles: of the cosines, by share.
        worst: the five lowest texts: minimum cosine, stratum, and the first 60 code points.
        by_kind: minimum cosine of each stratum.
        top10_overlap: mean share of the ten nearest texts that both find, over a sample; None without a sample.
        passed: whether every stratum reaches :data:`LEAST`.
    """

    a: str
    b: str
    n: int
    min: float
    mean: float
    quantiles: dict[str, float]
    worst: list[tuple[float, str, str]]
    by_kind: dict[str, float]
    passed: bool
    top10_overlap: float | None = None

    @property
    def failing(self) -> dict[str, float]:
        """The strata below :data:`LEAST`, with their minimum cosine."""
        return {stratum: least for stratum, least in self.by_kind.items() if not least >= LEAST}

    @property
    def reason(self) -> str:
        """Reason for the failure; empty if the comparison passed."""
        if self.passed:
            return ""
        listed = ", ".join(f"{stratum} {least:.4f}" for stratum, least in sorted(self.failing.items(), key=_by_cosine))
        return f"the least cosine is {self.min:.4f}, {LEAST} is asked of every stratum; below it: {listed}"


def _by_cosine(item: tuple[str, float]) -> float:
    return item[1]


def compare_vectors(a: str, b: str, chosen: Sequence[Text], one: Vectors, other: Vectors) -> RuntimeComparison:
    """Compare the vectors that two runtimes computed for a set of texts.

    Args:
        a: name of the first runtime.
        b: name of the second runtime.
        chosen: the texts.
        one: vectors of the first, (conditions, texts, dimension).
        other: vectors of the second under the same conditions.
    """
    cosines = cosines_of(one, other)
    least = cosines.min(axis=0)
    strata = np.array([text.stratum for text in chosen])
    by_kind = {str(name): float(least[strata == name].min()) for name in dict.fromkeys(strata.tolist())}
    order = np.argsort(least, kind="stable")[:5].tolist()
    return RuntimeComparison(
        a=a,
        b=b,
        n=int(cosines.size),
        min=float(cosines.min()),
        mean=float(cosines.mean()),
        quantiles={str(share): float(np.quantile(cosines, share)) for share in QUANTILES},
        worst=[(float(least[row]), chosen[row].stratum, chosen[row].text[:60]) for row in order],
        by_kind=by_kind,
        passed=bool(np.all(cosines >= LEAST)),
    )


def cosines_of(one: Vectors, other: Vectors) -> NDArray[np.float64]:
    """Return the cosines along the last axis; -1 for an invalid vector or different shapes."""
    if one.shape != other.shape:
        return np.full(one.shape[:-1], -1.0)
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        cosines = (a * b).sum(axis=-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    found: NDArray[np.float64] = np.where(np.isfinite(cosines), np.minimum(cosines, 1.0), -1.0)
    return found


def as_vectors(rows: Sequence[Sequence[float]]) -> Vectors:
    """Return stored vectors as (n, dimension)."""
    return np.asarray(rows, dtype=np.float32)


def top_overlap(one: Vectors, other: Vectors, questions: int) -> float:
    """Return the mean share of the ten nearest texts that two runtimes have in common.

    Args:
        one: vectors of the first runtime, (texts, dimension).
        other: vectors of the second for the same texts.
        questions: number of leading texts that serve as queries; the other texts are the corpus.
    """
    shares = []
    for question in range(questions):
        found = [
            set(np.argsort(-(own[questions:] @ own[question]), kind="stable")[:TOP].tolist()) for own in (one, other)
        ]
        shares.append(len(found[0] & found[1]) / max(1, len(found[0])))
    return float(np.mean(shares))


class Probes(NamedTuple):
    """Reference vectors in a generation, against which any runtime can be checked.

    Attributes:
        fingerprint: of the model.
        provenance: of the runtime that made the vectors.
        texts: the set.
        kinds: the kind that each text was embedded as: (conditions,).
        vectors: (conditions, texts, dimension).
        digest: SHA-256 of the stored bytes.
    """

    fingerprint: str
    provenance: Provenance
    texts: list[Text]
    kinds: list[TextKind]
    vectors: Vectors
    digest: str


def make_probes(embedder: Embedder) -> bytes:
    """Return the probes of a model, made by the current runtime and encoded for :func:`read_probes`."""
    chosen = texts(embedder)
    under = _probing(embedder)
    vectors = vectors_of(embedder, chosen, under)
    columns = {
        "stratum": pa.array([text.stratum for text in chosen]),
        "text": pa.array([text.text for text in chosen]),
    } | {
        kind: pa.FixedSizeListArray.from_arrays(pa.array(own.reshape(-1)), embedder.dimension)
        for (kind, _), own in zip(under, vectors, strict=True)
    }
    described = {
        "fingerprint": embedder.fingerprint,
        "provenance": msgspec.json.encode(embedder.provenance, order="sorted").decode(),
        "version": str(PROBES_VERSION),
    }
    table = pa.table(columns).replace_schema_metadata(described)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_probes(data: bytes) -> Probes:
    """Read stored probes.

    Raises:
        StoreError: when the bytes are not valid probes.
    """
    try:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        table.validate(full=True)  # offsets that lead astray would end the process
        described = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        kinds: list[TextKind] = [kind for kind in ("passage", "query") if kind in table.column_names]
        columns = [table[kind].combine_chunks() for kind in kinds]
        vectors = np.stack([np.asarray(column.flatten()).reshape(len(table), -1) for column in columns])
        return Probes(
            described["fingerprint"],
            msgspec.json.decode(described["provenance"], type=Provenance),
            [Text(*row) for row in zip(table["stratum"].to_pylist(), table["text"].to_pylist(), strict=True)],
            kinds,
            vectors,
            hashlib.sha256(data).hexdigest(),
        )
    except (
        pa.ArrowException,
        msgspec.MsgspecError,
        LookupError,
        OSError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise StoreError(f"the index's probes cannot be read: {error}", "Run `gristmill repair`.") from error


def against(embedder: Embedder, probes: Probes) -> RuntimeComparison:
    """Compare the current runtime with stored probes, without checking it first.

    Raises:
        ModelError: when the runtime returns no vectors, or the probes are of another model.
    """
    if probes.fingerprint != embedder.fingerprint:
        raise ModelError(
            f"the probes are of a model of fingerprint {probes.fingerprint[:8]}, {embedder.model.name} has "
            f"{embedder.fingerprint[:8]}"
        )
    vectors = vectors_of(embedder, probes.texts, [Condition(kind, "sorted") for kind in probes.kinds])
    return compare_vectors(
        runtime_label(embedder.provenance), runtime_label(probes.provenance), probes.texts, vectors, probes.vectors
    )


def _probing(embedder: Embedder) -> list[Condition]:
    return [Condition(kind, "sorted") for kind in dict.fromkeys(kind for kind, _ in conditions(embedder))]


def runtime_label(provenance: Provenance) -> str:
    """Return the display name of a runtime: ``onnx:fp32``, with its device unless that is the CPU."""
    device = "" if provenance.device == "cpu" else f" on {provenance.device}"
    return f"{provenance.runtime}:{provenance.precision}{device}"


def pairs(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield every pair of indexes, each with itself too: alone against mixed batches."""
    for first in range(len(names)):
        for second in range(first, len(names)):
            yield first, second
