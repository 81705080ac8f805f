"""Names that words alone do not tell: the named text stands first, by BM25 and in hybrid, whatever the vectors say."""

from __future__ import annotations

import time
from pathlib import Path

import lancedb
import numpy as np
import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexes.lexical.analysis import analyse, analyse_query
from indexes.lexical.index import LexicalIndex
from indexes.lexical.names import LIMIT, names_of
from indexes.rows import ChunkRow, Vector, to_table
from indexes.search.search import Searcher
from indexes.vectors import ChunkTable

MINILM = platformdirs.user_cache_path("gristmill") / "models" / "all-MiniLM-L6-v2"
VITAMINS = [f"The daily dose of vitamin {one} for grown people is 9 mg. It is taken with a meal." for one in "BACDEK"]
APPENDICES = [f"Appendix {one}\nThis appendix holds a list of the spares, a plan and a form." for one in "BCADSIT"]
WARS = [f"World War {one} began in Europe. I read a book of it." for one in ("II", "I", "III")]
MODELS = [f"The Model {one} is a car that it's said to have sold well; the driver's seat isn't wide." for one in "AXTS"]
KEYS = [f"The piece stands in {one} minor and ends in a chord." for one in ("D", "C", "G")]
LIMITS = [
    "The guidelines of the state name a limit of fifty decibels, whoever makes it. Who may complain is said there.",
    "The guidelines of the WHO name a limit of ten micrograms of lead.",
    "The guidelines of the city name a limit of forty micrograms. Who pays is open.",
]
POLICIES = [
    "The policy is strict, and it is old. It holds it all, whatever it is.",
    "The IT policy names who may hold an account.",
    "The travel policy: it pays for the train.",
]
GATES = [
    "A gate and a fence, and a wall: the gate stands open and is old.",
    "An AND gate gives one where both are one.",
    "An OR gate gives one where one of both is one.",
    "A gate or a fence: the gate or the wall.",
]
TARIFFS = ["Contact us about tariffs; us means the office.", "The US raised tariffs.", "Tariffs: tell us of yours."]
RELEASES = [
    "Release 1.2 brings the steel door; 2 keys, 1 lock. Release 1.2.",
    "Release 2.1 brings the quiet fan and more.",
    "Release 2.10 brings the red lamp and more.",
    "Release 2.1.1 brings the blue lamp and more.",
]
SUMS = [
    "A sum of 1,000 and of 50 is due; 50 more at 1,000 is paid.",
    "A sum of 1,000.50 is due.",
    "A sum of 1.000,75 is due.",
    "A sum of 10,005.00 is due.",
]
SECTIONS = [
    "Nach § 3 Abs. 12 gilt die Frist; § 3 Abs. 12 bleibt.",
    "Nach § 12 Abs. 3 gilt die Frist.",
    "Nach §§ 12a, 3 gilt die Frist nach Abs. 1.",
]
ARTICLES = ["Art. 1(5) names the duty of 5 and 1.", "Art. 5(1) names the duty.", "Art. 51 names the duty."]
BRANDS = [
    "At the T junction turn left at the sign; at the end is a plan of r and d.",
    "The plans of AT&T cost more.",
    "The R&D plans cost more.",
    "The plans of T-Mobile cost more.",
    "The mobile plans cost more.",
]
LANGUAGES = [
    "The language C is old. C is small. C, C, C.",
    "The language C++ is large.",
    "The language C# is newer.",
    "The language F# is rarer.",
    "The language of the .NET runtime.",
    "The language of the net: a net, a fishing net.",
]
SHOUTS = ["The yahoos shouted; a yahoo is a fool, yahoo.", "The mail of Yahoo! was read.", "Mail for the fools."]
SEARCHES = ["A search for a star, a search.", "The A* search is guided.", "An I/O error: i and o.", "The error of o."]
JAPANESE = [
    "屋根に雀がいます。春になると歌います。",
    "庭に黒猫がいます。毎朝、門の前で待っています。",
    "犬はどこにもいません。",
]
CHINESE = ["今天有雨,路面很滑。", "今天有雪,路面很滑。", "版本2.1发布了,使用IT系统。", "版本1.2发布了,它的系统。"]
KOREAN = ["비가 온다. 아침에 비가 왔다.", "눈이 온다. 아침에 첫눈이 왔다.", "책을 읽는다. 아침에 읽었다."]

CASES = [
    (VITAMINS, "vitamin A", "vitamin A"),
    (VITAMINS, "vitamin a", "vitamin A"),
    (VITAMINS, "what is the daily dose of vitamin C?", "vitamin C"),
    (APPENDICES, "Appendix A", "Appendix A"),
    (APPENDICES, "what is in appendix b?", "Appendix B"),
    (APPENDICES, "Appendix S", "Appendix S"),
    (APPENDICES, "Appendix I", "Appendix I\n"),
    (WARS, "World War I", "War I b"),
    (WARS, "when did World War II begin", "War II b"),
    (MODELS, "Model T", "Model T"),
    (MODELS, "Model S", "Model S"),
    (KEYS, "C minor", "C minor"),
    (LIMITS, "WHO guidelines", "the WHO"),
    (LIMITS, "guidelines of the WHO", "the WHO"),
    (POLICIES, "IT policy", "The IT"),
    (POLICIES, "IT-policy", "The IT"),
    (GATES, "AND gate", "AND"),
    (GATES, "OR gate", "OR gate"),
    (TARIFFS, "US tariffs", "The US"),
    (RELEASES, "release 2.1", "2.1 brings"),
    (RELEASES, "release 2.10", "2.10"),
    (RELEASES, "v2.1", "2.1 brings"),
    (RELEASES, "2.1.1", "2.1.1"),
    (SUMS, "1,000.50", "1,000.50"),
    (SUMS, "1.000,50", "1,000.50"),
    (SUMS, "1000.75 due", "1.000,75"),
    (SUMS, "a sum of 10005.00", "10,005.00"),
    (SECTIONS, "§ 12 Abs. 3", "§ 12 Abs. 3"),
    (SECTIONS, "§12 Abs. 3", "§ 12 Abs. 3"),
    (SECTIONS, "§ 3 Abs. 12", "§ 3 Abs. 12"),
    (SECTIONS, "§ 12a", "12a"),
    (ARTICLES, "Art. 5(1)", "Art. 5(1)"),
    (ARTICLES, "Art. 5 (1)", "Art. 5(1)"),
    (ARTICLES, "Article 1(5)", "Art. 1(5)"),
    (BRANDS, "AT&T", "AT&T"),
    (BRANDS, "plans of AT&T", "AT&T"),
    (BRANDS, "R&D plans", "R&D"),
    (BRANDS, "R & D", "R&D"),
    (BRANDS, "T-Mobile plans", "T-Mobile"),
    (LANGUAGES, "language C++", "C++"),
    (LANGUAGES, "C# language", "C#"),
    (LANGUAGES, "F#", "F#"),
    (LANGUAGES, ".NET", ".NET"),
    (LANGUAGES, "the language of .NET?", ".NET"),
    (SHOUTS, "Yahoo!", "Yahoo!"),
    (SHOUTS, "Yahoo! mail", "Yahoo!"),
    (SEARCHES, "A* search", "A*"),
    (SEARCHES, "I/O error", "I/O"),
    (JAPANESE, "猫", "猫"),
    (JAPANESE, "猫はどこにいますか", "猫"),
    (CHINESE, "雪", "雪"),
    (CHINESE, "今天有没有雪?", "雪"),
    (CHINESE, "版本2.1", "2.1"),
    (CHINESE, "IT系统", "IT"),
    (KOREAN, "눈", "눈"),
    (KOREAN, "눈이 왔어요?", "눈"),
]


def searcher(folder: Path, texts: list[str], named: int) -> Searcher:
    """A searcher over these texts whose vectors put the named one behind all the others."""
    rows = [
        ChunkRow(chunk_id=f"{n:032x}", document_id=f"{n:032x}", key=f"{n}.md", start=0, end=len(text), text=text)
        for n, text in enumerate(texts)
    ]
    vectors = [Vector(np.array([1.0, n + 100.0 * (n == named)], np.float32), "by eye") for n in range(len(rows))]
    table = ChunkTable.create(lancedb.connect(folder / "table"), 2)
    written = to_table(rows, vectors, 2)
    table.apply([], written)
    with LexicalIndex.create(folder / "bm25") as index:
        index.apply([], written)
        index.commit()
    return Searcher(table, LexicalIndex.open(folder / "bm25"), lambda query: np.array([1.0, 0.0], np.float32))


@pytest.mark.parametrize(("texts", "query", "named"), CASES, ids=[query for _, query, _ in CASES])
def test_the_named_text_stands_first(tmp_path: Path, texts: list[str], query: str, named: str) -> None:
    (place,) = [n for n, text in enumerate(texts) if named in text]
    search = searcher(tmp_path, texts, place)
    assert search.search(query, "dense", k=len(texts))[-1].text == texts[place]
    assert search.search(query, "bm25", k=1)[0].text == texts[place]
    assert search.search(query, "hybrid", k=1)[0].text == texts[place]


@pytest.mark.parametrize(
    ("query", "absent"),
    [
        ("How can I install it?", "i"),
        ("what is it and who made it", "who"),
        ("WHO IS TO PAY FOR IT", "who"),
        ("a pump", "a"),
        ("contact us", "it"),
    ],
)
def test_a_word_of_grammar_is_no_name(query: str, absent: str) -> None:
    terms = analyse_query(query)
    assert not terms.names and absent not in terms.identifiers and absent not in terms.body and not terms.pairs


@given(st.text(st.sampled_from("aAbIT12.,§()&+#!*/- 猫雪가は"), max_size=40))
def test_a_name_of_a_query_is_one_of_the_index(query: str) -> None:
    terms, asked = analyse(query), analyse_query(query)
    assert set(asked.names) <= {*terms.names.split(), *terms.characters.split(), *terms.identifiers.split()}
    assert {word for pair in asked.pairs for word in pair} <= set(terms.body.split())


@pytest.mark.parametrize("unit", ["A", "1,", "1.", "A&", "a+", "A/", "§1", "1(", "(1)", "!", "*", ".A", "-a", "猫"])
def test_work_grows_linearly(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * length
        started = time.process_time()
        list(names_of(text[:LIMIT]))
        analyse(text)
        return time.process_time() - started

    seconds(100)
    small = max(seconds(2_000) for _ in range(3))
    assert seconds(40_000) < 20 * small * 4 + 0.05


# The o36 files with the real model


ASKED = {
    "vitamin A": "vit/note-1.md",
    "vitamin D daily dose": "vit/note-4.md",
    "Appendix A": "app/part-65.md",
    "what is in appendix B?": "app/part-66.md",
    "WHO guidelines": "guide/one.md",
    "猫": "cjk/a.md",
    "雀": "cjk/b.md",
    "雪": "cjk/d.md",
    "雾凇拼音": "cjk/c.md",
    "云计算优惠券": "cjk/e.md",
    "学生优惠券": "cjk/e.md",
    "2.1": "ver/a.md",
    "release 2.1": "ver/a.md",
    "release 2.10": "ver/b.md",
}


@pytest.mark.slow
def test_the_files_of_o36_with_the_real_model(
    shared: Path, tmp_path: Path, prefect: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.build.build import BuildOptions, build_index
    from flows.searching import open_searcher
    from flows.settings import load_settings

    if not MINILM.is_dir():
        pytest.skip("needs all-MiniLM-L6-v2: gristmill models fetch all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    source = shared / "cases/files/o36"
    settings = load_settings(source=str(source), index=str(tmp_path / "index"), exclude=["*.tsv"])
    build_index(settings, BuildOptions(quiet=True))
    search = open_searcher(settings, "hybrid")
    asked = (source / "queries.tsv").read_text(encoding="utf-8").splitlines()
    assert set(ASKED) <= set(asked)
    for mode in ("bm25", "hybrid"):
        assert {query: search.search(query, mode, k=1)[0].key for query in ASKED} == ASKED
