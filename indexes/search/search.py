"""Search: the channels asked, their ranks fused, equal texts folded, the rows fetched and reranked.

Invariants:
- Filters hold before ranking in every channel.
- Documents whose labels cannot be read answer only who names the label that says so.
- A hit says its rank and score in each channel that was asked.
- No two hits have the same text.
- The same index, query and vector give the same hits in the same order.

Fusion is reciprocal rank fusion (Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009): a hit scores the sum over channels of 1 / (k + rank), with k = 10 by
default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from enrich.reranking.reranker import Reranker
from indexes import rows
from indexes.lexical.index import PLAIN, Boosts, LexicalIndex
from indexes.search.filters import READABLE, Filter, check_matched, parse_filters, to_sql, with_unreadable_hidden
from indexes.vectors import ChunkTable
from parsers.errors import ModelError, UsageError

# Cormack et al. took 60 over many runs of 1,000 hits. Over two channels of 100, 10 found more among the first five on
# two sets (code: 76.5 to 78.8 % of 248 questions, 9 won, 2 lost; demo: 86.8 to 89.5 of 38) and as much on a third.
RRF_K: Final = 10
DEPTH: Final = 100  # hits asked of each channel at least, and at least DEPTH_FACTOR times as many as are wanted
DEPTH_FACTOR: Final = 4
RERANK_DEPTH: Final = 50  # hits that a reranker reads
_MODES: Final = ("hybrid", "dense", "bm25")

Channel = Literal["dense", "bm25"]
EmbedQuery = Callable[[str], npt.NDArray[np.float32]]
Ranking = list[tuple[str, float]]


class Fusion(msgspec.Struct, frozen=True):
    """How rankings are asked for and fused.

    Attributes:
        k: what is added to each rank; the larger, the less the first ranks stand out.
        depth: hits asked of each channel; None for 100 or four times as many as are wanted, whichever is more.
        weights: what a match counts for BM25 by where it is.
        always: filters, as :mod:`indexes.search.filters` reads them, that hold beside those of every question.
    """

    k: int = RRF_K
    depth: int | None = None
    weights: Boosts = PLAIN
    always: tuple[str, ...] = ()


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """Another chunk with exactly the text of a hit.

    Attributes:
        key, chunk_id, document_id: which chunk of which document.
        start, end: ``[start, end)`` in that document's text, in code points.
        locator: as in :class:`indexes.rows.ChunkRow`.
    """

    key: str
    chunk_id: str
    document_id: str
    start: int
    end: int
    locator: str


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found.

    Attributes:
        rank: from 1.
        score: of ``hybrid``, the fused score; otherwise the channel's own (cosine, BM25).
        document_id, key, chunk_id: which chunk of which document.
        start, end: ``[start, end)`` in the document's text, in code points.
        text: the chunk's text.
        heading_path, locator, note, labels, section_start, section_end: as in :class:`indexes.rows.ChunkRow`.
        ranks: rank in each channel that was asked, from 1; None where it was not among those it gave.
        scores: score in each channel that was asked; None likewise.
        also: the chunks with the same text that were found behind it, in order.
        rerank_score: the reranker's; None where it was not asked.
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
    section_start: int
    section_end: int
    ranks: dict[Channel, int | None]
    scores: dict[Channel, float | None]
    also: list[Copy] = []
    rerank_score: float | None = None


class _Found(msgspec.Struct):
    """A text that was found: its best row, which holds ``_COLUMNS``, and what is known of it."""

    row: dict[str, Any]
    score: float
    also: list[Copy]
    rerank_score: float | None = None


_OWN: Final = ("rank", "score", "ranks", "scores", "also", "rerank_score")  # of a hit and in no column
_SHOWN: Final = tuple(field for field in Hit.__struct_fields__ if field not in _OWN)
_COLUMNS: Final = tuple(dict.fromkeys([*_SHOWN, *rows.EMBEDDED]))


class Searcher:
    """Searches one revision.

    Args:
        table: a view of the revision's rows.
        lexical: the revision's BM25 index.
        embed_query: gives the vector of a query, by the embedder that built the index; None for BM25 alone.
        fusion: how the channels' rankings become one.
        reranker: puts the best hits in another order; None for that of the ranking.
        rerank_depth: how many hits, folded, it reads.
        labels: gives all labels of the revision's documents, those without rows too; by default those of its rows.
        allow_unmatched: take a filter that names a label no document carries, or leaves out a key that none has.
    """

    def __init__(
        self,
        table: ChunkTable,
        lexical: LexicalIndex,
        embed_query: EmbedQuery | None,
        *,
        fusion: Fusion | None = None,
        reranker: Reranker | None = None,
        rerank_depth: int = RERANK_DEPTH,
        labels: Callable[[], Collection[str]] | None = None,
        allow_unmatched: bool = False,
    ) -> None:
        self._table = table
        self._lexical = lexical
        self._embed_query = embed_query
        self._fusion = fusion or Fusion()
        self._reranker = reranker
        self._rerank_depth = rerank_depth if reranker is not None else 0
        self._labels = labels or lexical.labels
        self._allow_unmatched = allow_unmatched

    @cached_property
    def has_vectors(self) -> bool:
        """Whether any row has a vector."""
        return self._table.count_vectors() > 0

    def channels(self, mode: str) -> tuple[Channel, ...]:
        """Return the channels that a mode asks.

        Over an index without any vectors ``hybrid`` asks BM25 alone; its hits then say nothing of ``dense``.

        Raises:
            UsageError: when the mode is unknown, or needs vectors where there are none or an embedder and there is
                none.
        """
        if mode not in _MODES:
            raise UsageError(f"unknown search mode {mode!r}", f"The known ones are {', '.join(_MODES)}.")
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
        """Return the ``k`` best chunks, best first; fewer where fewer are found, none for a blank query.

        Chunks of exactly the same text are one hit, that of the best of them; the others stand in its ``also`` as far
        as they rank before the first text that is no hit.

        Args:
            query: any text.
            mode: ``hybrid``, ``dense`` or ``bm25``.
            filters: conditions as :mod:`indexes.search.filters` reads them; all must hold, as must those of the fusion.
            depth: hits asked of each channel at first, and more where copies fill them; by default what the fusion
                says.

        Raises:
            UsageError: as :meth:`channels` says, or when a filter or a number makes no sense, or a filter names a label
                that no document carries.
            ModelError: when the reranker gives other than one finite score a text.
        """
        asked = self.channels(mode)
        where = self._where(filters)
        if k < 1 or (depth is not None and depth < 1):
            raise UsageError(f"asked for {k} hits, {depth} deep; both must be 1 or more", "Ask for more.")
        text = query.encode("utf-8", "replace").decode()
        if not text.strip():
            return []
        wanted = max(k, self._rerank_depth)
        deep = max(wanted, depth or self._fusion.depth or max(DEPTH, DEPTH_FACTOR * k))
        vector = self._embed_query(text) if "dense" in asked and self._embed_query is not None else None
        while True:
            rankings = {channel: self._ask(channel, text, vector, deep, where) for channel in asked}
            fused = rankings[asked[0]]
            if len(rankings) > 1:
                fused = fuse([*rankings.values(), self._lexical.named(text, deep, where)], self._fusion.k)
            found = self._folded(fused, wanted)
            # So many copies of a text can stand first that they are all there is: then ask deeper.
            if len(found) >= k or all(len(ranking) < deep for ranking in rankings.values()):
                break
            deep *= 4
        if self._reranker is not None and found:
            found = self._reranked(self._reranker, text, found)
        return _hits(found[:k], rankings)

    def _where(self, filters: Sequence[str]) -> tuple[Filter, ...]:
        """Return the conditions of a question, those that always hold among them."""
        where = parse_filters([*self._fusion.always, *filters])
        if not self._allow_unmatched:
            check_matched(where, self._lexical.has, self._labels)
        return with_unreadable_hidden(where) if self._some_unreadable else where

    @cached_property
    def _some_unreadable(self) -> bool:
        """Whether any row is of a document whose labels cannot be read; a condition on all rows costs time."""
        return self._lexical.has(READABLE)

    def _ask(
        self,
        channel: Channel,
        query: str,
        vector: npt.NDArray[np.float32] | None,
        depth: int,
        where: Sequence[Filter],
    ) -> Ranking:
        if channel == "bm25":
            return self._lexical.search(query, depth, where, self._fusion.weights)
        assert vector is not None
        return self._table.dense(vector, depth, to_sql(where))

    def _folded(self, ranking: Ranking, wanted: int) -> list[_Found]:
        """Return the first ``wanted`` distinct texts of a ranking, with the copies that rank before the next one."""
        found: dict[str, _Found] = {}
        start, size = 0, wanted + 1
        while start < len(ranking):
            part = ranking[start : start + size]
            rows_of_part = self._table.fetch([name for name, _ in part], _COLUMNS)
            for (_, score), row in zip(part, rows_of_part, strict=True):
                first = found.get(row["text"])
                if first is not None:
                    first.also.append(Copy(**{field: row[field] for field in Copy.__struct_fields__}))
                elif len(found) == wanted:
                    return list(found.values())
                else:
                    found[row["text"]] = _Found(row, score, [])
            start, size = start + size, 2 * size  # few requests, however many copies there are
        return list(found.values())

    def _reranked(self, reranker: Reranker, query: str, found: list[_Found]) -> list[_Found]:
        """Order the first hits by the reranker's score, equal scores by chunk id; append the rest."""
        read, rest = found[: self._rerank_depth], found[self._rerank_depth :]
        scores = np.asarray(reranker.scores(query, [rows.embedded(one.row) for one in read]))
        if scores.shape != (len(read),) or not np.isfinite(scores).all():
            raise ModelError(
                f"reranker {reranker.fingerprint[:8]} gave scores of shape {scores.shape} for {len(read)} texts, "
                f"{np.count_nonzero(~np.isfinite(scores))} of them not finite",
                "Use another reranker, or none.",
            )
        for one, score in zip(read, scores.tolist(), strict=True):
            one.rerank_score = score
        order = sorted(zip(scores.tolist(), read, strict=True), key=lambda pair: (-pair[0], pair[1].row["chunk_id"]))
        return [one for _, one in order] + rest


def _hits(found: Sequence[_Found], rankings: dict[Channel, Ranking]) -> list[Hit]:
    ranks = {channel: {name: rank for rank, (name, _) in enumerate(r, start=1)} for channel, r in rankings.items()}
    scores = {channel: dict(ranking) for channel, ranking in rankings.items()}
    return [
        Hit(
            rank=rank,
            score=one.score,
            ranks={channel: by_name.get(one.row["chunk_id"]) for channel, by_name in ranks.items()},
            scores={channel: by_name.get(one.row["chunk_id"]) for channel, by_name in scores.items()},
            also=one.also,
            rerank_score=one.rerank_score,
            **{column: one.row[column] for column in _SHOWN},
        )
        for rank, one in enumerate(found, start=1)
    ]


def fuse(rankings: Sequence[Ranking], k: int = RRF_K) -> Ranking:
    """Return all hits of the rankings by falling fused score, those of equal score by rising chunk id.

    Args:
        rankings: each best first.
        k: what is added to each rank.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, (name, _) in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=rows.hit_order)
