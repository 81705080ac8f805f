"""Filters in both channels, fusion, folding, reranking, and hits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import lancedb
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import indexes.vectors
from indexes.lexical.index import LexicalIndex
from indexes.rows import ChunkRow, Vector, to_table
from indexes.search.filters import Filter, parse_filters, to_sql
from indexes.search.search import RRF_K, Fusion, Hit, Searcher, fuse
from indexes.vectors import ChunkTable
from parsers.errors import ModelError, StoreError, UsageError
from parsers.labels import UNREADABLE

WORDS = ("mill", "river", "stone", "wheel", "flour", "grain", "miller", "bread")


def embed(text: str) -> npt.NDArray[np.float32]:
    """How often each of the eight words occurs: a vector that can be computed by eye."""
    words = text.lower().split()
    return np.array([words.count(word) + 0.01 for word in WORDS], np.float32)


def make_row(number: int, text: str, key: str = "a.md", labels: Sequence[str] = ()) -> ChunkRow:
    return ChunkRow(
        chunk_id=f"{number:032x}",
        document_id=hashlib.sha256(key.encode()).hexdigest()[:32],
        key=key,
        start=number,
        end=number + len(text),
        text=text,
        heading_path=("Title", "Chapter"),
        locator=f"Title {number}",
        note="a note",
        labels=tuple(labels),
    )


def make_stores(folder: Path, rows: list[ChunkRow], *, vectors: bool = True) -> tuple[ChunkTable, LexicalIndex]:
    table = ChunkTable.create(lancedb.connect(folder / "table"), len(WORDS))
    written = to_table(rows, [Vector(embed(row.text), "by eye") if vectors else None for row in rows], len(WORDS))
    table.apply([], written)
    with LexicalIndex.create(folder / "bm25") as index:
        index.apply([], written)
        index.commit()
    return table, LexicalIndex.open(folder / "bm25")


TEXTS = ["mill mill river", "river stone", "the wheel of a mill", "flour and grain", "bread", "miller stone wheel"]


@pytest.fixture
def searcher(tmp_path: Path) -> Searcher:
    rows = [make_row(n, text, f"doc{n // 3}.md", ["odd"] if n % 2 else ["even"]) for n, text in enumerate(TEXTS)]
    return Searcher(*make_stores(tmp_path, rows), embed)


# Filters


@pytest.mark.parametrize(
    ("expression", "parsed"),
    [
        ("label=internal", Filter("label", "internal")),
        (" label != restricted", Filter("label", "restricted", negated=True)),
        ("label!=restricted \t", Filter("label", "restricted", negated=True)),
        ("label=\u00a0top   secret\u3000", Filter("label", "top secret")),
        ("label！＝restricted", Filter("label", "restricted", negated=True)),
        ("ｌａｂｅｌ ＝ a", Filter("label", "a")),
        ("label≠a", Filter("label", "a", negated=True)),
        ("label!='restricted'", Filter("label", "restricted", negated=True)),
        ('label != "it\'s"', Filter("label", "it's", negated=True)),
        ("label='=x'", Filter("label", "=x")),
        ('key=" a "', Filter("key", " a ")),
        ('key!="a b "*', Filter("key", "a b ", negated=True, prefix=True)),
        ("key=handbook/leave.md", Filter("key", "handbook/leave.md")),
        ("key=handbook/*", Filter("key", "handbook/", prefix=True)),
        ("key!=a=b!=c", Filter("key", "a=b!=c", negated=True)),
        ("key=*", Filter("key", "", prefix=True)),
        ("label=a*", Filter("label", "a*")),
    ],
)
def test_filters_are_read(expression: str, parsed: Filter) -> None:
    assert parse_filters([expression]) == (parsed,)


@pytest.mark.parametrize(
    "expression",
    [
        *("", "label", "label=", "label= ", "label=''", "author=me", "Label=a", "label<a", "=a", "label==", "label==a"),
        *("label=!a", "label! =a", "label:a", "label<>a", "not label=a", "-label=a", "label in a", "key=\ud800"),
        *("key!=", "label!='a", "label!=a'", 'label="a', "label!=\u201ca\u201d", "label!=`a`", "key='a", 'label!="'),
    ],
)
def test_what_is_no_filter_is_refused(expression: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_filters([expression])
    assert repr(expression) in refused.value.message
    assert "label=NAME" in refused.value.remedy


def test_no_filter_is_no_condition() -> None:
    assert to_sql([]) is None
    assert to_sql(parse_filters(["label=it's", "key!=a*"])) == (
        "(array_has(labels, 'it''s')) AND NOT (starts_with(key, 'a'))"
    )


tricky = st.text(st.sampled_from("a'\"%_\\*/ éÉe\u0301日\n\x00;-$?{}[]().^|+~#@&<>\U0010ffff"), min_size=1, max_size=6)
some_filter = st.builds(
    lambda field, operator, value, star: f"{field}{operator}'{value}'{star * (field == 'key')}",
    st.sampled_from(["label", "key"]),
    st.sampled_from(["=", "!="]),
    tricky.filter(str.strip),
    st.sampled_from(["", "*"]),
)
stored_label = tricky.map(lambda text: " ".join(text.split())).filter(bool)


def lets_through(filter: Filter, key: str, labels: Sequence[str]) -> bool:
    if filter.field == "label":
        matches = not set(filter.spellings).isdisjoint(labels)
    else:
        matches = key.startswith(filter.spellings) if filter.prefix else key in filter.spellings
    return matches != filter.negated


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(tricky.filter(str.strip), st.lists(stored_label, max_size=3)), min_size=1, max_size=8),
    st.lists(some_filter, max_size=2),
    st.data(),
)
def test_both_channels_let_the_same_rows_through(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, list[str]]],
    expressions: list[str],
    data: st.DataObject,
) -> None:
    known_keys = st.sampled_from([key for key, _ in documents])
    known_labels = st.sampled_from([label for _, labels in documents for label in labels] or ["none"])
    expressions = [
        *expressions,
        f"key='{data.draw(known_keys)}'",
        f"label!='{data.draw(known_labels)}'",
        f"label='{data.draw(known_labels)}'",
        f"key!='{data.draw(known_keys)[:1]}'*",
    ]
    rows = [make_row(number, "mill", key, sorted(set(labels))) for number, (key, labels) in enumerate(documents)]
    half = len(rows) // 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes.vectors, "EXACT_ROWS", 1)
        table, _ = make_stores(tmp_path_factory.mktemp("half"), rows[:half])
        table.refresh_indexes()
        rest = to_table(rows[half:], [Vector(embed("mill"), "by eye")] * (len(rows) - half), len(WORDS))
        partly_indexed = table.apply([], rest).version
        indexed = table.refresh_indexes()
    bare, lexical = make_stores(tmp_path_factory.mktemp("filters"), rows)
    assert indexed > partly_indexed
    views = [bare, table.checkout(partly_indexed), table.checkout(indexed)]
    for chosen in [*([expression] for expression in expressions), expressions[:2]]:
        parsed = parse_filters(chosen)
        expected = [row.chunk_id for row in rows if all(lets_through(f, row.key, row.labels) for f in parsed)]
        assert sorted(name for name, _ in lexical.search("mill", 100, parsed)) == expected, chosen
        for view in views:
            assert sorted(name for name, _ in view.dense(embed("mill"), 100, to_sql(parsed))) == expected, chosen


def test_accents_are_compared_composed_and_decomposed(tmp_path: Path) -> None:
    rows = [
        make_row(0, "mill", "cafe\u0301/a.md", ["secre\u0301t"]),
        make_row(1, "mill", "caf\u00e9/b.md", ["d\u00e9"]),
    ]
    searcher = Searcher(*make_stores(tmp_path, rows), embed)
    for spelt in ("caf\u00e9", "cafe\u0301"):
        assert len(searcher.search("mill", filters=[f"key={spelt}/*"])) == 1  # equal texts are one hit, with copies
        assert searcher.search("mill", filters=[f"key!={spelt}/*"]) == []
    for mode in ("dense", "bm25"):
        assert [hit.key for hit in searcher.search("mill", mode, filters=["label!=secr\u00e9t"])] == ["caf\u00e9/b.md"]
        assert [hit.key for hit in searcher.search("mill", mode, filters=["label=de\u0301"])] == ["caf\u00e9/b.md"]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
def test_a_filter_that_names_what_nothing_carries_is_refused(tmp_path: Path, searcher: Searcher, mode: str) -> None:
    for expression, meant in [
        ("label!=od", "odd"),
        ("label!=Odd", "odd"),
        ("label=EVEN", "even"),
        ("label=ｏdd", "odd"),
    ]:
        with pytest.raises(UsageError, match="no document of this revision carries the label") as refused:
            searcher.search("stone", mode, filters=[expression])
        assert f"Did you mean {meant}?" in refused.value.remedy and "even, odd" in refused.value.remedy
        assert ("Letter case" in refused.value.remedy) == (expression != "label!=od")
        assert "--allow-unmatched" in refused.value.remedy
    with pytest.raises(UsageError, match=r"begins with 'dco'"):
        searcher.search("stone", mode, filters=["key!=dco*"])
    with pytest.raises(UsageError, match="no key of this revision is 'doc'"):
        searcher.search("stone", mode, filters=["key!=doc"])
    assert searcher.search("stone", mode, filters=["key=nowhere.md"]) == []  # shows nothing: no leak
    assert searcher.search("stone", mode, filters=["key!=doc*"]) == []
    known = Searcher(searcher._table, searcher._lexical, embed, labels=lambda: {"odd", "even", "empty"})
    assert known.search("stone", mode, filters=["label!=empty"]), "a document without rows carries it"
    allowed = Searcher(searcher._table, searcher._lexical, embed, allow_unmatched=True)
    assert allowed.search("stone", mode, filters=["label!=od"]) and not allowed.search("x", mode, filters=["label=od"])
    always = Searcher(searcher._table, searcher._lexical, embed, fusion=Fusion(always=("label!=od",)))
    with pytest.raises(UsageError, match="carries the label 'od'"):
        always.search("stone", mode)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
def test_unreadable_labels_are_shown_to_who_names_them(tmp_path: Path, mode: str) -> None:
    rows = [
        make_row(0, TEXTS[0], "a.md", ["odd"]),
        make_row(1, TEXTS[1], "b.md", [UNREADABLE]),
        make_row(2, TEXTS[2], "c.md", [UNREADABLE, "odd"]),
    ]
    table, lexical = make_stores(tmp_path, rows)
    searcher = Searcher(table, lexical, embed)
    always = Searcher(table, lexical, embed, fusion=Fusion(always=("label!=even",)), allow_unmatched=True)
    query = " ".join(TEXTS)
    for one in (searcher, always):
        for filters in (
            [],
            ["label=odd"],
            [f"label!={UNREADABLE}"],
            ["key!=b.md"],
            ["key=*"],
            ["label=odd", "key!=b.md"],
        ):
            assert {hit.key for hit in one.search(query, mode, filters=filters)} == {"a.md"}, filters
        assert {hit.key for hit in one.search(query, mode, filters=[f"label={UNREADABLE}"])} == {"b.md", "c.md"}
        assert {hit.key for hit in one.search(query, mode, filters=["label=odd", f"label={UNREADABLE}"])} == {"c.md"}
    assert (
        Searcher(*make_stores(tmp_path / "other", rows[:1]), embed).search(query, mode, filters=[f"label={UNREADABLE}"])
        == []
    )


def test_a_filter_that_always_holds(searcher: Searcher) -> None:
    always = Searcher(searcher._table, searcher._lexical, embed, fusion=Fusion(always=("label != odd",)))
    for filters in ([], ["label=even"], ["label=odd"], ["key=doc1*"]):
        found = always.search("stone wheel mill", filters=filters)
        assert all(hit.labels == ["even"] for hit in found) and bool(found) == (filters != ["label=odd"])


# Fusion

rankings = st.lists(
    st.lists(st.integers(0, 20), unique=True).map(lambda ids: [(f"{n:02}", 1.0) for n in ids]), min_size=1, max_size=3
)


@given(rankings, st.integers(1, 1_000))
@example([[("a", 1.0), ("b", 1.0)], [("b", 1.0), ("a", 1.0)]], RRF_K)
def test_fusion_follows_its_formula(rankings: list[list[tuple[str, float]]], k: int) -> None:
    fused = fuse(rankings, k)
    assert RRF_K == 10 and fuse(rankings) == fuse(rankings, 10)
    assert {name for name, _ in fused} == {name for ranking in rankings for name, _ in ranking}
    for name, score in fused:
        ranks = [[other for other, _ in ranking].index(name) + 1 for ranking in rankings if name in dict(ranking)]
        assert score == pytest.approx(sum(1 / (k + rank) for rank in ranks))
    assert fused == sorted(fused, key=lambda hit: (-hit[1], hit[0]))


# Hits


def test_a_hit_holds_its_row(searcher: Searcher) -> None:
    hit = searcher.search("bread", "bm25")[0]
    assert msgspec.to_builtins(hit) == {
        "rank": 1,
        "score": hit.scores["bm25"],
        "document_id": hashlib.sha256(b"doc1.md").hexdigest()[:32],
        "key": "doc1.md",
        "chunk_id": f"{4:032x}",
        "start": 4,
        "end": 9,
        "text": "bread",
        "heading_path": ["Title", "Chapter"],
        "locator": "Title 4",
        "note": "a note",
        "labels": ["even"],
        "section_start": 0,
        "section_end": 0,
        "ranks": {"bm25": 1},
        "scores": {"bm25": hit.score},
        "also": [],
        "rerank_score": None,
    }


def texts(hits: list[Hit]) -> list[str]:
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    return [hit.text for hit in hits]


def test_each_mode_asks_its_channels(searcher: Searcher) -> None:
    assert texts(searcher.search("mill", "bm25")) == [TEXTS[0], TEXTS[2]]
    dense = searcher.search("mill", "dense", k=3)
    assert texts(dense)[:2] == [TEXTS[2], TEXTS[0]] or texts(dense)[:2] == [TEXTS[0], TEXTS[2]]
    assert all(list(hit.ranks) == ["dense"] and hit.score == hit.scores["dense"] for hit in dense)
    hybrid = searcher.search("mill", k=6)
    assert set(texts(hybrid)[:2]) == {TEXTS[0], TEXTS[2]}
    for hit in hybrid:
        assert list(hit.ranks) == ["dense", "bm25"]
        assert hit.score == pytest.approx(sum(1 / (RRF_K + rank) for rank in hit.ranks.values() if rank))
    assert hybrid[-1].ranks["bm25"] is None
    assert hybrid[-1].scores["bm25"] is None


def test_filters_hold_in_every_mode(searcher: Searcher) -> None:
    for mode in ("hybrid", "dense", "bm25"):
        assert texts(searcher.search("stone wheel", mode, filters=["label=odd", "key=doc1*"])) == [TEXTS[5]] + (
            [TEXTS[3]] if mode != "bm25" else []
        )


def test_the_number_asked_for_is_given(searcher: Searcher) -> None:
    assert len(searcher.search("mill", k=2)) == 2
    assert len(searcher.search("mill", k=50)) == len(TEXTS)
    assert len(searcher.search("mill", k=5, depth=1)) == 5
    for numbers in ({"k": 0}, {"k": -1}, {"depth": 0}):
        with pytest.raises(UsageError):
            searcher.search("mill", **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["", "  \n", "\u3000"])
def test_a_blank_query_finds_nothing(searcher: Searcher, query: str) -> None:
    assert searcher.search(query) == []


@pytest.mark.parametrize("query", ["mill \ud800", "mill " * 50_000, "(mill AND", "😀 mill\x00"])
def test_any_query_is_searched(searcher: Searcher, query: str) -> None:
    assert TEXTS[0] in texts(searcher.search(query))


def test_unknown_modes_are_refused(searcher: Searcher) -> None:
    with pytest.raises(UsageError, match="fuzzy") as refused:
        searcher.search("mill", "fuzzy")
    assert "hybrid, dense, bm25" in refused.value.remedy


def test_without_an_embedder_only_bm25_is_searched(searcher: Searcher) -> None:
    bare = Searcher(searcher._table, searcher._lexical, None)
    assert texts(bare.search("mill", "bm25")) == [TEXTS[0], TEXTS[2]]
    for mode in ("hybrid", "dense"):
        with pytest.raises(UsageError, match="embedder"):
            bare.search("mill", mode)


def test_an_index_without_vectors_is_searched_by_bm25(tmp_path: Path) -> None:
    rows = [make_row(number, text) for number, text in enumerate(TEXTS)]
    searcher = Searcher(*make_stores(tmp_path, rows, vectors=False), embed)
    assert searcher.channels("hybrid") == ("bm25",)
    hits = searcher.search("mill")
    assert hits == searcher.search("mill", "bm25")
    assert [list(hit.ranks) for hit in hits] == [["bm25"], ["bm25"]]
    with pytest.raises(UsageError, match="no row of this index"):
        searcher.search("mill", "dense")


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    searcher = Searcher(*make_stores(tmp_path, []), embed)
    assert searcher.search("mill") == []


def test_stores_that_disagree_are_said(tmp_path: Path) -> None:
    table, lexical = make_stores(tmp_path, [make_row(1, "mill")])
    table.apply([f"{1:032x}"], to_table([], [], len(WORDS)))
    with pytest.raises(StoreError, match="verify"):
        Searcher(table, lexical, embed).search("mill", "bm25")


def test_a_searcher_over_views_does_not_see_later_writes(tmp_path: Path) -> None:
    table, lexical = make_stores(tmp_path, [make_row(1, "mill")])
    searcher = Searcher(table.checkout(table.version), lexical, embed)
    before = searcher.search("mill")
    table.apply([f"{1:032x}"], to_table([make_row(2, "mill")], [Vector(embed("mill"), "by eye")], len(WORDS)))
    with LexicalIndex.open(tmp_path / "bm25", write=True) as index:
        index.apply([f"{1:032x}"], [])
        index.commit()
    assert searcher.search("mill") == before != []


def test_rows_of_equal_score_stand_by_id(tmp_path: Path) -> None:
    rows = [make_row(number, f"mill{' ' * number}river") for number in (number * 7 % 31 for number in range(1, 31))]
    searcher = Searcher(*make_stores(tmp_path, rows), embed)
    for mode in ("hybrid", "dense", "bm25"):
        assert [hit.chunk_id for hit in searcher.search("mill", mode, k=4)] == [f"{n:032x}" for n in range(1, 5)]


def test_fusion_is_set(searcher: Searcher) -> None:
    flat = Searcher(searcher._table, searcher._lexical, embed, fusion=Fusion(k=1, depth=2))
    hits = flat.search("mill", k=2)
    for hit in hits:
        assert hit.score == pytest.approx(sum(1 / (1 + rank) for rank in hit.ranks.values() if rank))
    assert all(rank is None or rank <= 2 for hit in hits for rank in hit.ranks.values())
    assert [hit.chunk_id for hit in hits] == [hit.chunk_id for hit in searcher.search("mill", k=2)]
    assert len(flat.search("mill", k=2, depth=50)) == 2


# Equal texts


def test_equal_texts_are_one_hit(tmp_path: Path) -> None:
    rows = [make_row(number, "mill river", f"copy{number}.md") for number in range(1, 31)]
    searcher = Searcher(*make_stores(tmp_path, rows), embed)
    for mode in ("hybrid", "dense", "bm25"):
        hits = searcher.search("mill", mode, k=4)
        assert [hit.key for hit in hits] == ["copy1.md"]
        assert [copy.key for copy in hits[0].also] == [f"copy{n}.md" for n in range(2, 31)]
        assert hits == searcher.search("mill", mode, k=1)
    assert msgspec.to_builtins(hits[0].also[1]) == {
        "key": "copy3.md",
        "chunk_id": f"{3:032x}",
        "document_id": rows[2].document_id,
        "start": 3,
        "end": 13,
        "locator": "Title 3",
    }


some_text = st.sampled_from(["mill", "mill mill river", "river mill stone", "mill flour", "bread"])


@settings(max_examples=10, deadline=None)
@given(st.lists(some_text, min_size=1, max_size=30), st.integers(1, 6))
def test_folding_keeps_order_and_scores(tmp_path_factory: pytest.TempPathFactory, texts: list[str], k: int) -> None:
    rows = [make_row(number, text) for number, text in enumerate(texts)]
    table, lexical = make_stores(tmp_path_factory.mktemp("folding"), rows)
    searcher = Searcher(table, lexical, embed)
    for mode, ranking in (("bm25", lexical.search("mill", 100)), ("dense", table.dense(embed("mill"), 100))):
        best: dict[str, list[tuple[str, float]]] = {}
        for name, score in ranking:
            text = texts[int(name, 16)]
            if text not in best and len(best) == k:
                break
            best.setdefault(text, []).append((name, score))
        hits = searcher.search("mill", mode, k=k)
        assert [(hit.text, hit.chunk_id, hit.score) for hit in hits] == [
            (text, *copies[0]) for text, copies in best.items()
        ]
        assert [[copy.chunk_id for copy in hit.also] for hit in hits] == [
            [name for name, _ in copies[1:]] for copies in best.values()
        ]


def test_texts_that_differ_in_a_blank_are_two_hits(tmp_path: Path) -> None:
    searcher = Searcher(*make_stores(tmp_path, [make_row(1, "mill river"), make_row(2, "mill  river")]), embed)
    assert [hit.also for hit in searcher.search("mill")] == [[], []]


@pytest.mark.parametrize("mode", ["hybrid", "dense", "bm25"])
def test_copies_do_not_starve_a_search(tmp_path: Path, mode: str) -> None:
    """A header that stands in 150 files fills what each channel is asked for at first."""
    rows = [make_row(n, "mill mill mill", f"copy{n}.md") for n in range(150)]
    rows += [make_row(200 + n, f"the mill of {word} and more", f"own{n}.md") for n, word in enumerate(WORDS[1:5])]
    embedded: list[str] = []
    searcher = Searcher(*make_stores(tmp_path, rows), lambda text: (embedded.append(text), embed(text))[1])
    hits = searcher.search("mill", mode, k=5)
    assert len(hits) == 5 and len(hits[0].also) == 149
    assert embedded == ([] if mode == "bm25" else ["mill"])  # once, however deep the channels are asked


def test_a_ranking_is_read_in_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [make_row(n, "mill", f"{n}.md") for n in range(95)] + [make_row(n, f"mill {n}") for n in range(95, 99)]
    table, lexical = make_stores(tmp_path, rows)
    asked = []
    fetch = ChunkTable.fetch

    def counted(self: ChunkTable, names: Sequence[str], columns: Sequence[str]) -> list[dict[str, object]]:
        asked.append(len(names))
        return fetch(self, names, columns)

    monkeypatch.setattr(ChunkTable, "fetch", counted)
    hits = Searcher(table, lexical, embed).search("mill", "bm25", k=3)
    assert [len(hit.also) for hit in hits] == [94, 0, 0]
    assert asked == [4, 8, 16, 32, 39]


# Reranking


class ByLength:
    """Scores the longest text highest, and keeps what it read."""

    fingerprint = "f" * 64

    def __init__(self, scores: object = None) -> None:
        self.read: list[tuple[str, list[str]]] = []
        self._scores = scores

    def scores(self, query: str, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.read.append((query, list(texts)))
        return np.array([len(text) for text in texts] if self._scores is None else self._scores, np.float32)


def reranked(searcher: Searcher, reranker: ByLength, depth: int = 50) -> Searcher:
    return Searcher(searcher._table, searcher._lexical, embed, reranker=reranker, rerank_depth=depth)


def test_a_reranker_orders_the_first_hits(searcher: Searcher) -> None:
    before = searcher.search("mill", k=6)
    reranker = ByLength()
    hits = reranked(searcher, reranker, 3).search("mill", k=6)
    assert reranker.read == [("mill", [hit.text for hit in before[:3]])]
    assert texts(hits) == [
        *sorted((hit.text for hit in before[:3]), key=lambda text: -len(text)),
        *(hit.text for hit in before[3:]),
    ]
    assert [hit.rerank_score for hit in hits] == [*(float(len(hit.text)) for hit in hits[:3]), None, None, None]
    by_id = {hit.chunk_id: (hit.score, hit.ranks, hit.scores) for hit in before}
    assert all((hit.score, hit.ranks, hit.scores) == by_id[hit.chunk_id] for hit in hits)
    everything = reranked(searcher, ByLength()).search("mill", k=6)
    assert [hit.chunk_id for hit in reranked(searcher, ByLength()).search("mill", k=1)] == [everything[0].chunk_id]


def test_a_reranker_reads_embedded_texts_once_each(tmp_path: Path) -> None:
    rows = [make_row(n, "mill " * (1 + n % 2)) for n in range(4)]
    rows = [msgspec.structs.replace(row, prefix=f"Prefix {n}\n") for n, row in enumerate(rows)]
    reranker = ByLength()
    searcher = reranked(Searcher(*make_stores(tmp_path, rows), embed), reranker)
    hits = searcher.search("mill", "bm25", k=1)
    assert sorted(reranker.read[0][1]) == ["Prefix 0\nmill ", "Prefix 1\nmill mill "]
    assert [(hit.chunk_id, len(hit.also)) for hit in hits] == [(f"{1:032x}", 1)]


def test_equal_scores_of_a_reranker_stand_by_id(searcher: Searcher) -> None:
    hits = reranked(searcher, ByLength(np.zeros(len(TEXTS)))).search("stone wheel", "dense", k=6)
    assert [hit.chunk_id for hit in hits] == [f"{n:032x}" for n in range(6)]


def test_a_reranker_is_not_asked_about_nothing(searcher: Searcher) -> None:
    reranker = ByLength()
    assert reranked(searcher, reranker).search("unheard", "bm25") == [] and reranker.read == []


@pytest.mark.parametrize("scores", [[1.0], [1.0, float("nan")], [1.0, float("inf")], [[1.0], [2.0]], 1.0])
def test_scores_that_order_nothing_are_an_error(searcher: Searcher, scores: object) -> None:
    with pytest.raises(ModelError, match="ffffffff gave scores"):
        reranked(searcher, ByLength(scores)).search("mill", "bm25")
