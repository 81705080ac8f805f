"""Asking an index all questions of a golden set: every channel deep and exactly, fused as a search for ten does it.

Invariants:
- Every vector is compared, whatever index there is over them: a miss is the embedder's and not the vector index's.
- One scan of the vectors answers all questions. Where so many chunks share their text that rankings are too short, one
  more, four times as deep, answers all questions of which that is so.
- Filters hold before ranking.
- Chunks of equal text stand in a ranking once, as in a search; and each channel is asked once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from indexes.evaluation.golden import Place
from indexes.evaluation.metrics import MEASURED_DEPTH, Ranked
from indexes.lexical.index import LexicalIndex
from indexes.search.filters import READABLE, parse_filters, to_sql, with_unreadable_hidden
from indexes.search.search import DEPTH as SEARCH_DEPTH
from indexes.search.search import Fusion, Ranking, fuse
from indexes.vectors import ChunkTable

SPARE: Final = 50  # hits asked beyond the depth, for those of equal text to fold


class Corpus:
    """Where the chunks of an index stand: some 400 bytes a chunk, held in memory.

    Args:
        table: the rows.
    """

    def __init__(self, table: ChunkTable) -> None:
        self._texts: dict[str, str] = {}
        self._places: dict[str, Place] = {}
        self.lengths: Final[list[int]] = []
        """Tokens of each chunk's text by the ruler."""
        copies: dict[str, list[str]] = defaultdict(list)
        for batch in table.rows(["chunk_id", "key", "start", "end", "text", "tokens"]):
            for row in batch.to_pylist():
                name = row["chunk_id"]
                digest = hashlib.blake2b(row["text"].encode(), digest_size=12).hexdigest()
                self._texts[name] = digest
                self._places[name] = Place(row["key"], row["start"], row["end"])
                copies[digest].append(name)
                self.lengths.append(row["tokens"])
        self._copies = {digest: sorted(names) for digest, names in copies.items() if len(names) > 1}

    def texts(self, documents: set[str]) -> Mapping[str, list[tuple[str, Place]]]:
        """Return text and place of each chunk of these documents, by key."""
        found: dict[str, list[tuple[str, Place]]] = defaultdict(list)
        for name, place in self._places.items():
            if place.doc in documents:
                found[place.doc].append((self._texts[name], place))
        return found

    def ranked(self, ranking: Ranking) -> Ranked:
        """Return a ranking with the chunks of equal text folded, at most ``DEPTH`` long."""
        seen: set[str] = set()
        result = Ranked([], [], [], [])
        for name, score in ranking:
            text = self._texts[name]
            if text in seen:
                continue
            seen.add(text)
            result.names.append(name)
            result.texts.append(text)
            result.places.append([self._places[one] for one in self._copies.get(text, (name,))])
            result.scores.append(score)
            if len(seen) == MEASURED_DEPTH:
                break
        return result


def ask(
    table: ChunkTable,
    lexical: LexicalIndex,
    corpus: Corpus,
    questions: Sequence[str],
    vectors: npt.NDArray[np.float32] | None,
    fusion: Fusion,
) -> dict[str, list[Ranked]]:
    """Return the rankings of all questions by mode: ``bm25``, and with vectors ``dense`` and ``hybrid``.

    Hybrid fuses as many hits of each channel as a search for ten does; the channels alone go to ``DEPTH``.

    Args:
        corpus: of the table.
        vectors: of the questions, shape (n, dimension); None where the index has none.
        fusion: also names the filters that always hold.
    """
    where = parse_filters(fusion.always)
    where = with_unreadable_hidden(where) if lexical.has(READABLE) else where

    def by_words(numbers: list[int], depth: int) -> list[Ranking]:
        asked = (questions[number] for number in numbers)
        return [lexical.search(question, depth, filters=where, weights=fusion.weights) for question in asked]

    bm25 = _deep(by_words, len(questions), corpus)
    found = {"bm25": [corpus.ranked(ranking) for ranking in bm25]}
    if vectors is not None:
        dense = _deep(
            lambda numbers, depth: table.nearest(vectors[numbers], depth, to_sql(where)), len(vectors), corpus
        )
        depth = fusion.depth or SEARCH_DEPTH
        found["dense"] = [corpus.ranked(ranking) for ranking in dense]
        named = [lexical.named(question, depth) for question in questions]
        found["hybrid"] = [
            corpus.ranked(fuse([one[:depth], other[:depth], third], fusion.k))
            for one, other, third in zip(dense, bm25, named, strict=True)
        ]
    return found


def _deep(channel: Callable[[list[int], int], list[Ranking]], count: int, corpus: Corpus) -> list[Ranking]:
    """For each question as many hits as hold ``DEPTH`` different texts; fewer where there are no more.

    Args:
        channel: gives so many hits for each question of these numbers.
        count: of questions.
    """
    found: list[Ranking] = [[] for _ in range(count)]
    depth, asked = MEASURED_DEPTH + SPARE, list(range(count))
    while asked:
        for number, ranking in zip(asked, channel(asked, depth), strict=True):
            found[number] = ranking
        asked = [
            one for one in asked if len(found[one]) == depth and len(corpus.ranked(found[one]).names) < MEASURED_DEPTH
        ]
        depth *= 4
    return found
