"""The page of an evaluation: closed to the outside, whatever stands in the documents, and whole for every record."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from lxml import etree, html

from flows.pages import charts as charts
from flows.pages.evaluation import LADDER, NAMED, evaluation_page
from indexes.evaluation import reading
from indexes.evaluation.golden import Place
from indexes.evaluation.metrics import Ranked, Score
from indexes.evaluation.record import AskedQuestion, Example, Record, Run, compare_records, summarize

HOSTILE = (
    "<script>alert(1)</script> \"double\" 'single' </style><img src=x onerror=alert(2)> &lt; \ud800 \x00 </details>"
)
MODES = {"bm25": 0.030, "dense": 0.045, "hybrid": 0.070}  # chance of a requirement being met, rank after rank
VARIANTS = {"text": 0.8, "path": 1.0, "path and extractive note": 1.1, f"note {HOSTILE}": 1.3}


def question(number: int) -> AskedQuestion:
    texts = {0: HOSTILE, 1: "为什么门没有打开?", 2: "why did ERR_TIMEOUT_42 " + "come back " * 40 + "?"}
    places = [[Place(f"handbook/{number}.md", 10, 90)], [Place("other.md", 5, 30)]][: 1 + number % 2]
    return AskedQuestion(
        id=HOSTILE if number == 0 else f"q{number:03}",
        question=texts.get(number, f"how long is part {number} of the warranty kept?"),
        category=("recall", "repair", HOSTILE)[number % 3],
        kind=("question", "identifier", "negation", "phrase")[number % 4],
        digest=f"{number:016x}",
        requirements=places,
    )


def made_run(variant: str, mode: str, questions: list[AskedQuestion], seed: int) -> Run:
    chance = MODES[mode] * VARIANTS[variant]
    source = random.Random(f"{seed} {list(VARIANTS).index(variant)} {mode}")

    def rank() -> int | None:
        return next((k for k in range(1, 201) if source.random() < chance * (6 if k < 4 else 1)), None)

    scores = []
    for one in questions:
        ranks = [rank() for _ in one.requirements]
        full = [found and (found if source.random() < 0.8 else None) for found in ranks]
        first = min((found for found in ranks if found), default=None)
        share = source.random() / 2
        reciprocal = 1 / first if first else 0.0
        scores.append(
            Score(
                midpoint=ranks,
                full=full,
                reciprocal_rank=reciprocal,
                ndcg=share,
                precision=share,
                iou=share,
                top=reciprocal,
            )
        )
    lengths = [source.randrange(8, 500) for _ in range(300)]
    made = summarize(variant, mode, questions, [Ranked([], [], [], [])] * len(questions), scores, lengths)
    return msgspec.structs.replace(made, separation=0.71 if mode == "dense" else 0.64)


def example(one: AskedQuestion, rank: int | None) -> Example:
    text = f"The warranty of part {one.id} is kept for {rank} months. " * 24
    got = [
        {"key": f"handbook/{hit}.md", "locator": f"Care > Doors > {hit}", "text": text[: 120 * hit**2], "met": hit == 2}
        for hit in range(1, 4)
    ]
    got[0] |= {"key": HOSTILE, "locator": HOSTILE, "text": HOSTILE}
    wanted = [
        {"key": places[0].doc, "text": HOSTILE if one.id == HOSTILE else text[:300]} for places in one.requirements
    ]
    return Example(id=one.id, question=one.question, category=one.category, rank=rank, wanted=wanted, got=got)


def record(
    count: int = 30, variants: tuple[str, ...] = tuple(VARIANTS), modes: tuple[str, ...] = tuple(MODES), seed: int = 1
) -> Record:
    questions = [question(number) for number in range(count)]
    runs = [made_run(variant, mode, questions, seed) for variant in variants for mode in modes]
    first = {run.mode: run for run in runs[: len(modes)]}
    found = reading.channels(first.get("dense"), first["bm25"])
    return Record(
        id="2026-11-30T012109Z-0badc0de",
        created="2026-11-30T01:21:09+00:00",
        corpus=hashlib.sha256(b"corpus").hexdigest(),
        golden={"path": f"golden/{HOSTILE}.jsonl", "digest": "ab" * 32, "answerable": count, "unanswerable": 4}
        | {"stale": [HOSTILE, "q900"]},
        index={"address": f"/srv/{HOSTILE}/index", "generation": "20261130T012109Z-77aa", "revision": 3}
        | {"documents": 1234, "chunks": 56789, "vectors": 56789, "tokens": 9_876_543},
        fingerprints={"embedder": "minilm-" + "0f" * 32, "analysis": HOSTILE},
        settings={"embedder": "minilm", "llm": None, "rrf_k": 60},
        questions=questions,
        runs=runs,
        channels=found,
        lengths={"16": 3, "32": 40, "64": 310, "96": 1250, "128": 800, "160": 20, "192": 0, "224": 1},
        examples=[example(one, 17 if one.id == HOSTILE else None) for one in questions[:4]],
        reading=[*reading.reading(runs, found, 2), HOSTILE],
    )


def compared(after: Record) -> dict[str, Any]:
    before = record(len(after.questions), tuple({run.variant: 0 for run in after.runs}), seed=2)
    return compare_records(before, after, 10)


@pytest.fixture(scope="module")
def full() -> Record:
    return record()


@pytest.fixture(scope="module")
def whole(full: Record) -> str:
    return evaluation_page(full, compared(full), "r1")


def elements(text: str) -> Any:
    return html.document_fromstring(text)


def words(text: str) -> str:
    return " ".join(elements(text).text_content().split())


def test_the_parts_stand_in_order(whole: str) -> None:
    titles = [one.text_content() for one in elements(whole).iter("h1", "h2")]
    assert titles == [
        "Evaluation of an index",
        "What the figures say",
        "Recall by depth",
        "All runs",
        "By category and by kind",
        "Against record r1",
        "What the channels find",
        "Chunk lengths",
        "The worst questions",
    ]


def test_no_hostile_text_becomes_markup(whole: str) -> None:
    found = elements(whole)
    assert not re.search(r"<\s*(?:script|img|iframe|object|embed|link|base|form|a)\b", whole, re.IGNORECASE)
    assert whole.count("</style>") == whole.count("<style>") == 1
    names = {name for one in found.iter() if isinstance(one.tag, str) for name in one.attrib}
    assert not {name for name in names if name.startswith("on")}
    assert whole.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert "<script>alert(1)</script> \"double\" 'single' </style>" in words(whole)


def test_what_cannot_be_written_is_replaced(whole: str) -> None:
    assert whole.encode("utf-8").decode() == whole
    assert "\x00" not in whole
    assert "&amp;lt; \ufffd \ufffd &lt;/details&gt;" in whole


def test_the_page_fetches_nothing(whole: str) -> None:
    names = {name for one in elements(whole).iter() if isinstance(one.tag, str) for name in one.attrib}
    assert not names & {"src", "srcset", "href", "xlink:href", "action", "data", "poster", "background", "style"}
    assert "http://" not in whole
    assert "https://" not in whole
    assert not re.search(r"@import|url\(", whole)


def test_the_policy_allows_this_style_and_nothing_else(whole: str) -> None:
    found = elements(whole)
    policy = found.xpath("//head/meta[@http-equiv='Content-Security-Policy']/@content")
    [style] = re.findall(r"<style>(.*?)</style>", whole, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == [
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'none'; base-uri 'none'; form-action 'none'"
    ]
    assert whole.index("Content-Security-Policy") < whole.index("<style>")


def test_the_page_is_well_formed(whole: str) -> None:
    """As XML too, once the elements that need no end have one: an HTML parser mends whatever it is given."""
    closed = re.sub(r"<meta\b[^>]*", r"\g<0>/", whole.removeprefix("<!DOCTYPE html>\n"))
    root = etree.fromstring(closed)
    ids = root.xpath("//@id")
    assert len(ids) == len(set(ids)) == 8
    assert sorted(root.xpath("//@aria-labelledby")) == sorted(ids)


def test_each_table_and_chart_says_what_it_is(whole: str) -> None:
    found = elements(whole)
    tables = list(found.iter("table"))
    assert len(tables) == 6
    assert all(table.find("caption") is not None for table in tables)
    assert not found.xpath("//th[not(@scope)]")
    assert len(found.xpath("//*[@role='img']")) == 4
    assert all(found.xpath("//*[@role='img']/@aria-label"))


def test_the_same_record_gives_the_same_page(full: Record, whole: str) -> None:
    assert evaluation_page(full, compared(full), "r1") == whole
    assert evaluation_page(record(), compared(record()), "r1") == whole


def test_every_run_stands_in_the_ladder_with_the_best_of_each_column_marked(full: Record, whole: str) -> None:
    [table] = elements(whole).xpath("//section[@aria-labelledby='ladder']//table")
    rows = table.xpath("./tbody/tr")
    assert [row.xpath("th[not(@rowspan)]")[0].text for row in rows] == ["hybrid", "dense", "bm25"] * 4
    column = LADDER.index(10)
    assert table.xpath("./thead/tr[2]/th/text()")[column] == "@10"
    shown = {row.xpath("td")[column].xpath("b/text()")[0] for row in rows if row.xpath("td")[column].xpath("b")}
    assert shown == {f"{max(run.recall['10'] for run in full.runs):.3f}"}
    best = next(run for run in full.runs if f"{run.recall['10']:.3f}" in shown)
    low, high = best.intervals["10"]
    assert f"{best.recall['10']:.3f} best{low:.3f}–{high:.3f}" in table.text_content()


def test_a_group_says_how_far_it_is_from_all(full: Record, whole: str) -> None:
    [table, _] = elements(whole).xpath("//section[@aria-labelledby='parts']//table")
    [row] = [one for one in table.xpath("./tbody/tr") if one.xpath("th/text()") == ["repair"]]
    hybrid = full.run("hybrid", full.runs[0].variant)
    assert hybrid is not None
    group = hybrid.by_category["repair"]
    delta = group.recall["10"] - hybrid.recall["10"]
    assert row.xpath("td[1]/text()") == ["10"]
    assert row.xpath("td[3]/text()") == [f"{group.recall['10']:.3f}"]
    assert row.xpath("td[3]/small/text()") == [f"{delta:+.3f}".replace("-", "−")]
    assert row.xpath("td[3]/svg/rect[2]/@width") == [f"{group.recall['10'] * 100:.1f}%"]


def test_a_comparison_names_what_was_won_and_lost_and_counts_the_rest(full: Record) -> None:
    won = [one.id for one in full.questions[: NAMED + 3]]
    found = {"n": 30, "before": 0.5, "after": 0.6, "difference": 0.1, "interval": [0.02, 0.18], "p": 0.0312}
    text = evaluation_page(full, {"published hybrid": found | {"won": won, "lost": ["q029"], "missing": []}})
    [section] = elements(text).xpath("//section[@aria-labelledby='comparison']")
    cells = section.xpath(".//tbody/tr/td/text()")
    assert cells == ["30", "0.500", "0.600", "+0.100", "+0.020 to +0.180", "0.031", "better", "23", "1"]
    shown = section.xpath(".//div[h3='won']//li/code/text()")
    assert shown[1:] == won[1:NAMED]
    assert "and 3 more" in section.text_content()
    assert section.xpath(".//div[h3='lost']//li/bdi/text()") == ["how long is part 29 of the warranty kept?"]


def test_without_a_comparison_there_is_no_such_part(full: Record) -> None:
    assert not elements(evaluation_page(full)).xpath("//section[@aria-labelledby='comparison']")
    assert "has a counterpart" in words(evaluation_page(full, {}))


def test_an_example_sets_what_was_wanted_beside_what_was_given(full: Record, whole: str) -> None:
    [first, second, *_] = elements(whole).xpath("//article")
    assert "all of it found by rank 17" in first.text_content()
    assert "not all of it found" in second.text_content()
    assert len(second.xpath(".//div[h4='wanted']//ul/li")) == len(full.examples[1].wanted) == 2
    verdicts = second.xpath(".//div[h4='retrieved']//span[@class='verdict']/text()")
    assert verdicts == ["✗ not met", "✓ met", "✗ not met"]
    long = full.examples[1].got[2]["text"]
    assert second.xpath(".//ol/li[3]/details/p/text()") == [long]


def test_an_index_without_vectors() -> None:
    made = record(variants=("text",), modes=("bm25",))
    assert made.channels == {}
    text = evaluation_page(msgspec.structs.replace(made, lengths={}))
    assert "the index has no vectors" in words(text)
    assert "No lengths were recorded" in words(text)
    assert len(elements(text).xpath("//*[@role='img']")) == 2  # the curves, wide and narrow
    assert not elements(text).xpath("//section[@aria-labelledby='ladder']//tbody/tr[2]")
    assert "best" not in elements(text).xpath("//section[@aria-labelledby='ladder']//table")[0].xpath("string(tbody)")


def test_one_question_and_no_examples() -> None:
    made = msgspec.structs.replace(record(1), examples=[])
    text = evaluation_page(made, compared(made))
    assert "No question went wrong enough" in words(text)
    assert "1 questions" not in words(text)


def test_a_record_as_it_comes_from_a_file_gives_the_same_page() -> None:
    made = record(3, ("text", "path"))
    assert evaluation_page(msgspec.convert(msgspec.to_builtins(made), Record)) == evaluation_page(made)


@pytest.mark.parametrize(
    "heights", [[50.0, 50.0, 50.0], [100.0, 99.0, 98.0], [0.0, 1.0, 2.0], [10.0, 60.0], [100.0], [30.0, 100.0, 31.0]]
)
def test_labels_at_the_ends_do_not_touch(heights: list[float]) -> None:
    placed = charts._spread(heights, 0.0, 100.0)
    assert all(0 <= height <= 100 for height in placed)
    ordered = sorted(placed)
    assert all(after - before >= 15.9 for before, after in pairwise(ordered))
    assert sorted(range(len(heights)), key=heights.__getitem__) == sorted(range(len(heights)), key=placed.__getitem__)


def test_a_known_mode_always_looks_the_same() -> None:
    assert charts.style("bm25", ["bm25"]) == charts.style("bm25", ["reranked", "bm25", "dense", "hybrid"]) == 2
    styles = [
        charts.style(mode, ["reranked", "expanded"]) for mode in ("hybrid", "dense", "bm25", "reranked", "expanded")
    ]
    assert styles == [0, 1, 2, 3, 4]
