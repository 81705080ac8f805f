"""Search: the channels asked, their ranks fused, the rows fetched.

Kept here: filters hold before ranking in every channel; a hit says its rank and score in each channel that was asked;
the same index, query and vector give the same hits in the same order.

Fusion is reciprocal rank fusion (Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009): a hit scores the sum over channels of 1 / (60 + rank).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from indexes import rows
from indexes.filters import Filter, parse_filters, to_sql
from indexes.lexical import LexicalIndex
from indexes.vectors import ChunkTable
from parsers.errors import UsageError

RRF_K: Final = 60  # Cormack et al. 2009, section 2
DEPTH: Final = 100  # hits asked of each channel at least, and at least DEPTH_FACTOR times as many as are wanted
DEPTH_FACTOR: Final = 4
MODES: Final = ("hybrid", "dense", "bm25")

Channel = Literal["dense", "bm25"]
EmbedQuery = Callable[[str], npt.NDArray[np.float32]]
Ranking = list[tuple[str, float]]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found.

    Attributes:
        rank: from 1.
        score: of ``hybrid``, the fused score; otherwise the channel's own (cosine, BM25).
        document_id, key, chunk_id: which chunk of which document.
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the chunk's text.
        heading_path, locator, note, labels: as in :class:`indexes.rows.Row`.
        ranks: rank in each channel that was asked, from 1; None where it was not among those it gave.
        scores: score in each channel that was asked; None likewise.
    """

    rank: int
    score: float
    document_id: str
    key: str
    chunk_id: str
    start: int
    end: int
    text: str
    heading_path: list[str]
    locator: str
    note: str
    labels: list[str]
    ranks: dict[Channel, int | None]
    scores: dict[Channel, float | None]


class Searcher:
    """Searches one revision.

    Args:
        table: a view of the revision's rows.
        lexical: the revision's BM25 index.
        embed_query: gives the vector of a query, by the embedder that built the index; None for BM25 alone.
    """

    def __init__(self, table: ChunkTable, lexical: LexicalIndex, embed_query: EmbedQuery | None) -> None:
        self._table = table
        self._lexical = lexical
        self._embed_query = embed_query

    @cached_property
    def has_vectors(self) -> bool:
        """Whether any row has a vector."""
        return self._table.count_vectors() > 0

    def channels(self, mode: str) -> tuple[Channel, ...]:
        """The channels that a mode asks.

        Over an index without any vectors ``hybrid`` asks BM25 alone; its hits then say nothing of ``dense``.

        Raises:
            UsageError: when the mode is unknown, or needs vectors where there are none or an embedder and there is
                none.
        """
        if mode not in MODES:
            raise UsageError(f"unknown search mode {mode!r}", f"The known ones are {', '.join(MODES)}.")
        if mode == "bm25" or (mode == "hybrid" and not self.has_vectors):
            return ("bm25",)
        if not self.has_vectors:
            raise UsageError("mode dense needs vectors, and no row of this index has one", "Search with mode bm25.")
        if self._embed_query is None:
            raise UsageError(f"mode {mode} needs an embedder for the query, and none is given", "Use mode bm25.")
        return ("dense",) if mode == "dense" else ("dense", "bm25")

    def search(
        self, query: str, mode: str = "hybrid", k: int = 10, filters: Sequence[str] = (), depth: int | None = None
    ) -> list[Hit]:
        """The ``k`` best chunks, best first; fewer where fewer are found, none for a blank query.

        Args:
            query: any text.
            mode: ``hybrid``, ``dense`` or ``bm25``.
            filters: conditions as :mod:`indexes.filters` reads them; all of them hold.
            depth: hits asked of each channel; by default 100 or four times ``k``, whichever is more.

        Raises:
            UsageError: as :meth:`channels` says, or when a filter or a number makes no sense.
        """
        asked = self.channels(mode)
        where = parse_filters(filters)
        if k < 1 or (depth is not None and depth < 1):
            raise UsageError(f"asked for {k} hits, {depth} deep; both must be 1 or more", "Ask for more.")
        text = query.encode("utf-8", "replace").decode()
        if not text.strip():
            return []
        deep = max(k, depth or max(DEPTH, DEPTH_FACTOR * k))
        rankings = {channel: self._ask(channel, text, deep, where) for channel in asked}
        fused = fuse(list(rankings.values())) if len(rankings) > 1 else rankings[asked[0]]
        return self._hits(fused[:k], rankings)

    def _ask(self, channel: Channel, query: str, depth: int, where: Sequence[Filter]) -> Ranking:
        if channel == "bm25":
            return self._lexical.search(query, depth, where)
        assert self._embed_query is not None
        return self._table.dense(self._embed_query(query), depth, to_sql(where))

    def _hits(self, best: Ranking, rankings: dict[Channel, Ranking]) -> list[Hit]:
        columns = [field for field in Hit.__struct_fields__ if field not in ("rank", "score", "ranks", "scores")]
        found = self._table.fetch([name for name, _ in best], columns)
        ranks = {channel: {name: rank for rank, (name, _) in enumerate(r, start=1)} for channel, r in rankings.items()}
        scores = {channel: dict(ranking) for channel, ranking in rankings.items()}
        return [
            Hit(
                rank=rank,
                score=score,
                ranks={channel: by_name.get(name) for channel, by_name in ranks.items()},
                scores={channel: by_name.get(name) for channel, by_name in scores.items()},
                **row,
            )
            for rank, ((name, score), row) in enumerate(zip(best, found, strict=True), start=1)
        ]


def fuse(rankings: Sequence[Ranking]) -> Ranking:
    """All hits of the rankings by falling fused score, those of equal score by rising chunk id.

    Args:
        rankings: each best first.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, (name, _) in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (RRF_K + rank)
    return sorted(scores.items(), key=rows.hit_order)
