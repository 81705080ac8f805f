"""The record of an evaluation: what was measured on what, kept so that it can be compared months later.

Invariants:
- A record names everything its figures depend on.
- Records are compared only where the metrics are the same, and then over the questions that ask and require the same
  in both.
- A record is written whole or not at all and never changed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import msgspec

from indexes.evaluation import metrics
from indexes.evaluation.compare import Alternative, Comparison, compare
from indexes.evaluation.golden import Question, Requirement
from indexes.evaluation.kinds import kind
from indexes.evaluation.metrics import Ranked, Score
from indexes.storage.objects import Objects
from parsers.errors import UsageError

_FORMAT: Final = 1
_PLACE: Final = "evaluations/"
DEPTHS: Final = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)
WITH_INTERVAL: Final = (1, 2, 5, 10, 20, 50, 100)
KEPT_HITS: Final = 20  # chunk ids of each question's ranking that a record keeps


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A golden question as it resolved.

    Attributes:
        digest: of the question and of what it requires; equal digests ask and require the same.
        words: of the question and of the words that it requires, wherever they stand; empty in older records.
    """

    id: str
    question: str
    category: str
    kind: str
    digest: str
    requirements: list[Requirement]
    words: str = ""

    @classmethod
    def of(
        cls, question: Question, requirements: list[Requirement], texts: Mapping[str, str] | None = None
    ) -> AskedQuestion:
        """Return a question with its resolved requirements.

        Args:
            texts: of the documents, by key.
        """
        content = msgspec.json.encode([question.question, sorted(sorted(places) for places in requirements)])
        return cls(
            id=question.id,
            question=question.question,
            category=question.category,
            kind=kind(question.question),
            digest=hashlib.sha256(content).hexdigest()[:16],
            requirements=requirements,
            words=_words_digest(question.question, requirements, texts) if texts is not None else "",
        )


def _words_digest(question: str, requirements: list[Requirement], texts: Mapping[str, str]) -> str:
    needed = sorted(
        sorted([place.doc, " ".join(texts[place.doc][place.start : place.end].split())] for place in places)
        for places in requirements
    )
    return hashlib.sha256(msgspec.json.encode([question, needed])).hexdigest()[:16]


class Group(msgspec.Struct, frozen=True):
    """Recall of some of the questions, by depth."""

    n: int
    recall: dict[str, float]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One way of searching over one way of writing the embedded text.

    Attributes:
        variant: what the embedded text was made of; ``published`` for the index as it is.
        mode: ``hybrid``, ``dense`` or ``bm25``.
        n: answerable questions.
        recall, full_recall: mean by depth, by midpoint and by full cover.
        intervals: of ``recall``, by depth.
        mrr, ndcg, precision, iou: as :mod:`indexes.evaluation.metrics` says.
        by_category, by_kind: recall of parts of the questions.
        chunks, mean_tokens: of the variant.
        scores: by question id.
        hits: the first chunk ids given to each question, by its id.
        separation: how well top scores tell answerable questions from others; None where all are answerable.
    """

    variant: str
    mode: str
    n: int
    recall: dict[str, float]
    full_recall: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    mrr: float
    ndcg: float
    precision: float
    iou: float
    by_category: dict[str, Group]
    by_kind: dict[str, Group]
    chunks: int
    mean_tokens: float
    scores: dict[str, Score]
    hits: dict[str, list[str]]
    separation: float | None = None

    @property
    def name(self) -> str:
        """Variant and mode."""
        return f"{self.variant} {self.mode}"

    def recalls(self, k: int, *, full: bool = False) -> dict[str, float]:
        """Recall at a depth by question id."""
        return {name: score.recall(k, full=full) for name, score in self.scores.items()}


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A question that went wrong, with what it wanted beside what it got.

    Attributes:
        rank: where the last of its requirements was met; None where not all were.
        wanted: its spans: number of the requirement (alternatives share one), key, locator, text.
        got: first hits: key, locator, text and whether it meets a requirement.
    """

    id: str
    question: str
    category: str
    rank: int | None
    wanted: list[dict[str, str]]
    got: list[dict[str, Any]]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation.

    Attributes:
        id: of this record: its time and the beginning of its digest.
        corpus: digest of the documents' keys and bytes.
        golden: path and digest of the golden set, how many questions have an answer and how many none, and why the
            stale ones do not resolve.
        index: address, generation, revision, counts.
        fingerprints, settings: what decided the figures besides the corpus.
        questions: those that were asked and can be answered.
        runs: in the order they were made.
        channels: as :func:`indexes.evaluation.reading.channels` gives it.
        lengths: how many chunks have up to so many tokens.
        examples: the worst questions.
        reading: the figures in plain sentences.
    """

    format: int = _FORMAT
    metrics: int = metrics.METRICS_VERSION
    id: str = ""
    created: str = ""
    corpus: str
    golden: dict[str, Any]
    index: dict[str, Any]
    fingerprints: dict[str, str]
    settings: dict[str, Any]
    questions: list[AskedQuestion]
    runs: list[Run]
    channels: dict[str, Any]
    lengths: dict[str, int]
    examples: list[Example]
    reading: list[str]

    def run(self, mode: str, variant: str = "") -> Run | None:
        """Return the run of a mode, of the first variant unless another is named."""
        return next((one for one in self.runs if one.mode == mode and one.variant == (variant or one.variant)), None)


def summarize(
    variant: str,
    mode: str,
    questions: Sequence[AskedQuestion],
    rankings: Sequence[Ranked],
    scores: Sequence[Score],
    lengths: Sequence[int],
    unanswerable: Sequence[Ranked] = (),
) -> Run:
    """Return the figures of a run.

    Args:
        rankings, scores: of the questions, in their order.
        lengths: tokens of each chunk.
        unanswerable: rankings of the questions that have no answer.
    """
    by_id = {question.id: score for question, score in zip(questions, scores, strict=True)}
    tops = [score.top or 0.0 for score in scores]
    return Run(
        variant=variant,
        mode=mode,
        n=len(questions),
        recall=_curve(scores),
        full_recall=_curve(scores, full=True),
        intervals={str(k): metrics.interval([score.recall(k) for score in scores]) for k in WITH_INTERVAL},
        mrr=metrics.mean([score.reciprocal_rank for score in scores]),
        ndcg=metrics.mean([score.ndcg for score in scores]),
        precision=metrics.mean([score.precision for score in scores]),
        iou=metrics.mean([score.iou for score in scores]),
        by_category=_groups(questions, scores, lambda question: question.category or "none"),
        by_kind=_groups(questions, scores, lambda question: question.kind),
        chunks=len(lengths),
        mean_tokens=round(fmean(lengths), 1) if lengths else 0.0,
        scores=by_id,
        hits={question.id: one.names[:KEPT_HITS] for question, one in zip(questions, rankings, strict=True)},
        separation=metrics.separation(tops, [one.scores[0] if one.scores else 0.0 for one in unanswerable]),
    )


def compare_records(before: Record, after: Record, k: int, alternative: Alternative = "two-sided") -> dict[str, Any]:
    """Return each run of ``after`` against the run of the same name in ``before``, over the questions they share.

    Where documents have changed in between, those questions are shared that require the same words in both.

    Returns:
        A :class:`indexes.evaluation.compare.Comparison` by the run's name; a run without a counterpart is left out.

    Raises:
        UsageError: when the records were measured by other metrics, or ask no question alike.
    """
    check_comparable(before)
    earlier = {one.id: one for one in before.questions}
    moved = before.corpus != after.corpus
    same = {one.id for one in after.questions if one.id in earlier and _asks_alike(earlier[one.id], one, moved=moved)}
    if not same:
        raise UsageError(
            f"record {before.id} asks none of these questions as they are asked now", "Name a record of the same set."
        )
    other_ids = (earlier.keys() | {one.id for one in after.questions}) - same
    found: dict[str, Comparison] = {}
    for run in after.runs:
        other = before.run(run.mode, run.variant)
        if other is not None:
            change = compare(_only(other.recalls(k), same), _only(run.recalls(k), same), alternative)
            found[run.name] = msgspec.structs.replace(change, missing=sorted(other_ids))
    return {name: msgspec.to_builtins(one) for name, one in found.items()}


def _asks_alike(one: AskedQuestion, other: AskedQuestion, *, moved: bool) -> bool:
    """Return whether two questions ask and require the same.

    Of an older record, which does not know the words, it is enough after a change of documents that the same is asked
    of the same documents.
    """
    if one.digest == other.digest or (one.words and one.words == other.words):
        return True
    if not moved or (one.words and other.words):
        return False
    documents = [{place.doc for places in each.requirements for place in places} for each in (one, other)]
    return one.question == other.question and documents[0] == documents[1]


def check_comparable(before: Record) -> None:
    """Check that a record can be compared with what is measured now.

    Raises:
        UsageError: when it was measured by other metrics.
    """
    if before.metrics != metrics.METRICS_VERSION:
        raise UsageError(
            f"record {before.id} was measured by version {before.metrics} of the metrics, now it is "
            f"{metrics.METRICS_VERSION}",
            "Evaluate that index again.",
        )


def write_record(objects: Objects, record: Record) -> Record:
    """Keep a record beside an index, under its id; returns it with the id."""
    digest = hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:8]
    named = msgspec.structs.replace(record, id=f"{record.created.replace(':', '').replace('+0000', 'Z')}-{digest}")
    objects.put(evaluation_key(named.id), msgspec.json.encode(named))
    return named


def evaluation_key(name: str) -> str:
    """Return the key of the record of that id, among the objects of its index."""
    return f"{_PLACE}{name}.json"


def kept_records(objects: Objects) -> Iterator[Record]:
    """Yield the records kept beside an index, the newest first."""
    for stat in sorted(objects.stats(_PLACE), reverse=True):
        found = objects.get(stat.key) if stat.key.endswith(".json") else None
        if found is not None:
            yield decode_record(found[0], stat.key)


def read_record(path: Path) -> Record:
    """Return a record from a file.

    Raises:
        UsageError: when there is none, or of another format.
    """
    try:
        return decode_record(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"record {path} cannot be read: {error.strerror}", "Check the path.") from error


def decode_record(data: bytes, name: str) -> Record:
    """Return a record from its bytes.

    Args:
        name: where they are from.

    Raises:
        UsageError: when they are none, or of another format.
    """
    try:
        if msgspec.json.decode(data, type=_Head).format != _FORMAT:
            raise UsageError(f"record {name} has another format than {_FORMAT}", "Evaluate that index again.")
        return msgspec.json.decode(data, type=Record)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{name} is no record of an evaluation: {error}", "Name a file that `evaluate` kept."
        ) from error


class _Head(msgspec.Struct):
    format: int


def _only(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names if name in values}


def _curve(scores: Sequence[Score], *, full: bool = False) -> dict[str, float]:
    return {str(k): metrics.mean([score.recall(k, full=full) for score in scores]) for k in DEPTHS}


def _groups(
    questions: Sequence[AskedQuestion], scores: Sequence[Score], name: Callable[[AskedQuestion], str]
) -> dict[str, Group]:
    groups: dict[str, list[Score]] = defaultdict(list)
    for question, score in zip(questions, scores, strict=True):
        groups[name(question)].append(score)
    return {group: Group(len(own), _curve(own)) for group, own in sorted(groups.items())}
