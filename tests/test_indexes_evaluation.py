"""Metrics, comparisons, kinds and records of evaluations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexes.evaluation import metrics
from indexes.evaluation.asking import Corpus
from indexes.evaluation.compare import compare
from indexes.evaluation.golden import Place, Question, Span, Stale, load_golden, requirements
from indexes.evaluation.kinds import kind
from indexes.evaluation.metrics import Ranked, interval, score, separation
from indexes.evaluation.reading import channels, reading
from indexes.evaluation.record import (
    AskedQuestion,
    Record,
    Run,
    compare_records,
    evaluation_key,
    read_record,
    summarize,
    write_record,
)
from indexes.storage.objects import FolderObjects
from parsers.errors import UsageError

# Ten chunks of ten characters in one document.
CHUNKS = {f"c{i}": Place("a.md", 10 * i, 10 * i + 10) for i in range(10)}
TEXTS = {"a.md": list(CHUNKS.items())}


def ranked(*numbers: int, scores: list[float] | None = None) -> Ranked:
    names = [f"c{number}" for number in numbers]
    falling = [1.0 / (i + 1) for i in range(len(names))]
    return Ranked(names, names, [[CHUNKS[name]] for name in names], scores or falling)


def test_recall_by_midpoint_and_full_cover_counts_requirements() -> None:
    inside, across = [Place("a.md", 12, 18)], [Place("a.md", 38, 46)]  # the second has its middle in chunk 4
    one = score([[inside, across]], [ranked(7, 1, 4)], TEXTS)[0]
    assert one.midpoint == [2, 3] and one.full == [2, None]
    assert [one.recall(k) for k in (1, 2, 3)] == [0, 0.5, 1]
    assert one.recall(200, full=True) == 0.5


def test_alternatives_are_one_requirement() -> None:
    either = [Place("a.md", 10, 20), Place("a.md", 50, 60)]
    assert score([[either]], [ranked(5)], TEXTS)[0].recall(1) == 1


def test_mrr_and_ndcg_by_hand() -> None:
    needed = [[Place("a.md", 10, 20)], [Place("a.md", 50, 60)]]
    one = score([needed], [ranked(0, 1, 2, 5)], TEXTS)[0]
    assert one.reciprocal_rank == 0.5
    gain = 1 / math.log2(3) + 1 / math.log2(5)
    assert one.ndcg == pytest.approx(gain / (1 + 1 / math.log2(3)))


def test_a_question_without_hits_scores_nothing_and_stops_nobody() -> None:
    needed = [[Place("a.md", 10, 20)]]
    nothing, found = score([needed, needed], [Ranked([], [], [], []), ranked(1)], TEXTS)
    assert (nothing.recall(200), nothing.reciprocal_rank, nothing.ndcg, nothing.iou, nothing.top) == (0, 0, 0, 0, None)
    assert found.recall(1) == 1 and found.reciprocal_rank == 1


def test_precision_and_iou_in_characters() -> None:
    one = score([[[Place("a.md", 15, 25)]]], [ranked(1, 7)], TEXTS)[0]
    assert one.precision == pytest.approx(5 / 20)
    assert one.iou == pytest.approx(5 / (20 + 10 - 5))


def test_overlapping_hits_count_their_characters_once() -> None:
    hits = Ranked(["x", "y"], ["x", "y"], [[Place("a.md", 0, 20)], [Place("a.md", 10, 30)]], [1.0, 0.5])
    assert score([[[Place("a.md", 0, 30)]]], [hits], TEXTS)[0].iou == 1


@given(st.lists(st.integers(0, 9), unique=True, max_size=10), st.integers(0, 99), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_recall_never_falls_with_depth_and_full_cover_is_never_above_midpoint(order, start, length) -> None:
    one = score([[[Place("a.md", start, start + length)]]], [ranked(*order)], TEXTS)[0]
    curve = [one.recall(k) for k in range(1, 12)]
    assert curve == sorted(curve)
    assert all(one.recall(k, full=True) <= one.recall(k) for k in range(1, 12))
    assert 0 <= one.iou <= one.precision + 1e-12 <= 1 + 1e-9


def test_intervals_hold_the_mean_and_are_the_same_each_time() -> None:
    values = [1.0] * 30 + [0.0] * 10
    low, high = interval(values)
    assert 0.55 < low < 0.75 < high < 0.92
    assert interval(values) == (low, high)
    assert interval([1.0]) == (1, 1) and interval([0.5, 0.5]) == (0.5, 0.5)


def test_separation_of_top_scores() -> None:
    assert separation([0.9, 0.8], [0.1, 0.2]) == 1
    assert separation([0.1, 0.2], [0.1, 0.2]) == 0.5
    assert separation([0.9], []) is None


def test_a_comparison_names_what_was_won_and_lost() -> None:
    before = {"a": 1.0, "b": 0.0, "c": 0.5, "gone": 1.0}
    after = {"a": 0.0, "b": 1.0, "c": 0.5, "new": 1.0}
    found = compare(before, after)
    assert (found.n, found.won, found.lost, found.missing) == (3, ["b"], ["a"], ["gone", "new"])
    assert found.difference == 0 and found.p == 1


@pytest.mark.parametrize(("lost", "won", "p"), [(5, 0, 1 / 32), (4, 1, 6 / 32), (1, 0, 0.5), (0, 0, 1), (0, 3, 1)])
def test_the_paired_test_is_exact_where_few_questions_differ(lost: int, won: int, p: float) -> None:
    names = [f"q{i}" for i in range(20)]
    before = {name: float(i < lost) for i, name in enumerate(names)}
    after = {name: float(lost <= i < lost + won) for i, name in enumerate(names)}
    assert compare(before, after, "less").p == pytest.approx(p, abs=1e-4)


def test_nothing_in_common_is_no_difference() -> None:
    assert compare({"a": 1.0}, {"b": 0.0}, "less").n == 0


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What does getUserName return?", "identifier"),
        ("ERR_TIMEOUT_42", "identifier"),
        ("Which pumps need no seal?", "negation"),
        ("Welche Pumpe hat keinen Filter?", "negation"),
        ("哪些泵没有密封？", "negation"),
        ("How is the seal changed?", "question"),
        ("Wie wird die Dichtung gewechselt?", "question"),
        ("change of the seal", "phrase"),
        ("notable knots", "phrase"),
    ],
)
def test_kinds(question: str, expected: str) -> None:
    assert kind(question) == expected


def test_a_quote_that_is_gone_or_stands_twice_is_stale() -> None:
    for text in ("nothing here", "twice twice"):
        with pytest.raises(Stale):
            requirements(Question(id="q", question="?", spans=[Span(doc="a", quote="twice")]), {"a": text})


@pytest.mark.parametrize(
    ("quote", "text"),
    [("ﬁnd", "to find"), ("FIND", "to ﬁnd"), ("office", "the oﬀice"), ("office", "the oﬃce"), ("oﬃce", "the oﬀice")],
)
def test_a_quote_is_found_however_ligatures_write_it(quote: str, text: str) -> None:
    found = requirements(Question(id="q", question="?", spans=[Span(doc="a", quote=quote)]), {"a": text})
    assert found[0][0].end == len(text)


def test_a_ligature_stands_for_its_own_letters_alone() -> None:
    with pytest.raises(Stale):
        requirements(Question(id="q", question="?", spans=[Span(doc="a", quote="after")]), {"a": "aﬅer"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"id": "a", "question": " ", "spans": []}', "must say something"),
        (b'{"id": "", "question": "Why?", "spans": []}', "must say something"),
        (b'{"id": "a", "question": "Why?", "span": [{"doc": "a"}]}', "no golden question"),
        (b'{"id": "a", "question": "Wh\xe9?", "spans": []}', "not UTF-8"),
        (b"[]", "no golden question"),
    ],
)
def test_a_line_that_is_no_question_is_refused(tmp_path: Path, line: bytes, says: str) -> None:
    (tmp_path / "g.jsonl").write_bytes(line)
    with pytest.raises(UsageError, match=says):
        load_golden(tmp_path / "g.jsonl")


def test_a_golden_set_may_have_a_byte_order_mark_and_fields_of_its_own(tmp_path: Path) -> None:
    line = '{"id": "a", "question": "Why?", "answer": "x", "spans": [{"doc": "a", "quote": "x"}]}'
    (tmp_path / "g.jsonl").write_text(f"\ufeff{line}\n")
    assert [one.id for one in load_golden(tmp_path / "g.jsonl")] == ["a"]


class Rows:
    """The part of a table that a corpus reads."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def rows(self, columns: list[str]) -> Any:
        import pyarrow as pa

        yield pa.RecordBatch.from_pylist(
            [
                {"chunk_id": f"c{i}", "key": f"{i}.md", "start": 0, "end": len(text), "text": text, "tokens": 1}
                for i, text in enumerate(self._texts)
            ]
        )


def test_chunks_of_equal_text_stand_in_a_ranking_once_with_all_their_places() -> None:
    corpus = Corpus(Rows("one", "two", "one"))  # type: ignore[arg-type]
    found = corpus.ranked([("c2", 3.0), ("c1", 2.0), ("c0", 1.0)])
    assert found.names == ["c2", "c1"] and found.scores == [3.0, 2.0]
    assert [[place.doc for place in places] for places in found.places] == [["0.md", "2.md"], ["1.md"]]
    needed = [[Place("0.md", 0, 3)]]
    one = score([needed], [found], corpus.texts({"0.md"}))[0]
    assert one.midpoint == [1] and one.ndcg == 1


def run(mode: str, *rankings: Ranked, variant: str = "published") -> Run:
    return summarize(variant, mode, asked(len(rankings)), rankings, _scores(rankings), [10] * 10)


def asked(count: int) -> list[AskedQuestion]:
    return [
        AskedQuestion.of(Question(id=f"q{i}", question=f"Where is part {i}?"), [[Place("a.md", 10 * i, 10 * i + 10)]])
        for i in range(count)
    ]


def _scores(rankings: tuple[Ranked, ...]) -> list[metrics.Score]:
    return score([one.requirements for one in asked(len(rankings))], rankings, TEXTS)


def record(*runs: Run, **changes: Any) -> Record:
    return msgspec.structs.replace(
        Record(
            created="2026-01-02T03:04:05+00:00",
            corpus="c" * 64,
            golden={},
            index={},
            fingerprints={},
            settings={},
            questions=asked(runs[0].n),
            runs=list(runs),
            channels={},
            lengths={},
            examples=[],
            reading=[],
        ),
        **changes,
    )


def test_a_record_is_kept_and_read_again(tmp_path: Path) -> None:
    kept = write_record(FolderObjects(tmp_path / "new"), record(run("bm25", ranked(0), ranked(5))))
    assert kept.id.startswith("2026-01-02T030405Z-")
    assert read_record(tmp_path / "new" / evaluation_key(kept.id)) == kept
    assert [path.suffix for path in (tmp_path / "new" / "evaluations").iterdir()] == [".json"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": 1}', b'{"format": 99}', b"\xff"])
def test_what_is_no_record_is_refused_with_its_path(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(UsageError, match=r"x\.json"):
        read_record(tmp_path / "x.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_record(tmp_path / "missing.json")


def test_records_are_compared_by_name_over_the_questions_that_ask_the_same() -> None:
    before = record(run("bm25", ranked(0), ranked(5), ranked(2)))
    after = record(run("bm25", ranked(4), ranked(1), ranked(2)))
    found = compare_records(before, after, 10)["published bm25"]
    assert (found["won"], found["lost"], found["n"]) == (["q1"], ["q0"], 3)
    changed = [*before.questions[:2], msgspec.structs.replace(before.questions[2], digest="other")]
    assert compare_records(msgspec.structs.replace(before, questions=changed), after, 10)["published bm25"]["n"] == 2


def test_records_of_other_metrics_are_refused() -> None:
    one = record(run("bm25", ranked(0)))
    with pytest.raises(UsageError, match="metrics"):
        compare_records(record(run("bm25", ranked(0)), metrics=0), one, 10)


def test_channels_and_reading_say_what_the_figures_say() -> None:
    rest = [ranked(number) for number in range(3, 9)] + [ranked(0)]  # of ten questions the last is not answered either
    dense = run("dense", ranked(0), ranked(9), ranked(9), *rest)
    bm25 = run("bm25", ranked(9), ranked(1), ranked(9), *rest)
    found = channels(dense, bm25)
    assert (found["dense_only"], found["bm25_only"], found["neither"]) == (["q0"], ["q1"], ["q2", "q9"])
    assert found["best_of_both"] == pytest.approx(8 / 10, abs=1e-4)
    hybrid = run("hybrid", ranked(0), ranked(1), ranked(9), *rest)
    lines = reading([hybrid, dense, bm25], found, stale=2)
    assert "Recall is the bottleneck" in lines[0] and "80.0 % at 10" in lines[0]
    assert any("within chance of" in line for line in lines)
    assert "2 questions did not resolve" in lines[-1]
    assert channels(None, bm25) == {}


def test_a_reading_tells_order_from_recall() -> None:
    def far(number: int) -> Ranked:
        names = [f"x{i}" for i in range(20)] + [f"c{number}"]
        places: list[Sequence[Place]] = [[Place("b.md", 0, 5)]] * 20
        return Ranked(names, names, [*places, [CHUNKS[names[-1]]]], [1.0] * 21)

    answered = [ranked(number) for number in range(10)]
    assert "Order is the bottleneck" in reading([run("bm25", far(0), far(1), *answered[2:])], {}, 0)[0]
    assert "Neither" in reading([run("bm25", *answered)], {}, 0)[0]
    assert reading([run("bm25", far(0), *answered[1:9])], {}, 0) == [
        "9 questions: too few to conclude anything; write 10 or more."
    ]


def test_a_change_of_the_metrics_raises_their_version() -> None:
    """Kept records were measured by VERSION: raise it when these figures move."""
    one = run("bm25", ranked(3, 0), ranked(1), ranked(7, 8, 9))
    figures = (one.recall["1"], one.recall["2"], one.mrr, one.ndcg, one.precision, one.iou, one.intervals["1"])
    assert (metrics.METRICS_VERSION, figures) == (1, (0.3333, 0.6667, 0.5, 0.5436, 0.5, 0.5, (0.0, 1.0)))


def test_a_span_with_one_end_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    for span, says in [
        ('{"doc": "a", "start": 3}', "span of a: it has start and no end"),
        ('{"doc": "a", "end": 3, "quote": "x"}', "span of a: it has end and no start"),
        ('{"doc": "a"}', "span of a: it has neither a quote nor start and end"),
        ('{"doc": "a", "quote": "  "}', "span of a: it has neither a quote nor start and end"),
    ]:
        path.write_text(f'{{"id": "q", "question": "?", "spans": [{span}]}}\n')
        with pytest.raises(UsageError, match=r"golden\.jsonl:1: ") as refused:
            load_golden(path)
        assert says in refused.value.message


def test_a_quote_that_differs_in_spacing_alone_is_the_one_just_as_quoted() -> None:
    texts = {"a": "The  lamp. The lamp. the\nlamp. THE LAMP."}
    for quote in ("The  lamp", "The lamp", "the\nlamp", "THE LAMP"):
        (((place,),),) = [requirements(Question(id="q", question="?", spans=[Span(doc="a", quote=quote)]), texts)]
        assert texts["a"][place.start : place.end] == quote
    with pytest.raises(Stale, match=r"stands 4 times in a \(lines 1, 1, 1, 2\)"):
        requirements(Question(id="q", question="?", spans=[Span(doc="a", quote="the lamp")]), texts)


def test_questions_are_compared_by_the_words_they_require_where_offsets_moved() -> None:
    question = Question(id="q0", question="Where?", spans=[Span(doc="a.md", quote="x")])
    moved = [
        AskedQuestion.of(question, [[Place("a.md", n, n + 3)]], {"a.md": " " * n + text})
        for n, text in ((2, "red"), (5, "red"))
    ]
    other = AskedQuestion.of(question, [[Place("a.md", 0, 3)]], {"a.md": "two"})
    before = msgspec.structs.replace(record(run("bm25", ranked(5))), questions=[moved[0]], corpus="d" * 64)
    after = record(run("bm25", ranked(0)))
    assert compare_records(before, msgspec.structs.replace(after, questions=[moved[1]]), 10)["published bm25"]["n"] == 1
    with pytest.raises(UsageError, match="none of these questions"):
        compare_records(before, msgspec.structs.replace(after, questions=[other]), 10)
    old = msgspec.structs.replace(moved[0], words="")
    kept = msgspec.structs.replace(before, questions=[old])
    assert compare_records(kept, msgspec.structs.replace(after, questions=[moved[1]]), 10)["published bm25"]["n"] == 1
