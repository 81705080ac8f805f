"""The vectors nearest to each of several queries, found in one pass over all vectors.

Invariants:
- Each vector is read once, whatever the number of queries; held are one block of vectors and at most ``2 * k`` hits a
  query.
- A cosine depends on its two vectors alone, not on the block or the place in it, and is rounded to ``DECIMALS``; equal
  ones stand by rising chunk id. So the same rows in any order and in blocks of any size give the same hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

DECIMALS: Final = 7  # what single precision, in which vectors are stored, can tell apart near 1
SLACK: Final = 1e-6  # above half a unit of the last decimal and all rounding errors of a matrix product

_Matrix = npt.NDArray[np.float64]


class Nearest:
    """The best hits so far for each query.

    Args:
        queries: shape (n, dimension), each finite and not all zero.
        k: hits kept for each.
    """

    def __init__(self, queries: npt.NDArray[np.floating[Any]], k: int) -> None:
        self._queries = queries.astype(np.float64)
        self._queries /= _lengths(self._queries)[:, None]
        self._k = k
        self._bounds = np.full(len(queries), -np.inf)
        """The score of each query's last hit, once it has ``k`` of them."""
        self._scores = [np.empty(0) for _ in queries]
        self._names: list[npt.NDArray[np.bytes_]] = [np.empty(0, "S1") for _ in queries]

    def add(self, names: Sequence[str], vectors: npt.NDArray[np.floating[Any]]) -> None:
        """Look at a block of vectors.

        Args:
            names: their chunk ids.
            vectors: shape (rows, dimension); those without a direction are passed over.
        """
        block = vectors.astype(np.float64)
        lengths = _lengths(block)
        usable = np.isfinite(lengths) & (lengths > 0)
        block = block[usable] / lengths[usable, None]
        if not len(block):
            return
        ids = np.array(names, np.bytes_)[usable]
        # The product's last bits depend on the block's shape: it only chooses the rows whose cosines are computed.
        rough = self._queries @ block.T
        for number in np.flatnonzero(rough.max(axis=1) >= self._bounds - SLACK).tolist():
            bound = self._bounds[number]
            if len(block) > self._k:
                bound = max(bound, np.partition(rough[number], -self._k)[-self._k])
            near = np.flatnonzero(rough[number] >= bound - SLACK)
            cosines: _Matrix = np.add.reduce(block[near] * self._queries[number], axis=1)
            self._merge(number, ids[near], np.round(cosines, DECIMALS))

    def hits(self) -> list[list[tuple[str, float]]]:
        """For each query its hits as (chunk id, cosine), by falling cosine, equal ones by rising chunk id."""
        return [
            list(zip((name.decode() for name in names.tolist()), scores.tolist(), strict=True))
            for names, scores in map(self._sorted, self._names, self._scores)
        ]

    def _merge(self, number: int, names: npt.NDArray[np.bytes_], scores: _Matrix) -> None:
        names = np.concatenate([self._names[number], names])
        scores = np.concatenate([self._scores[number], scores])
        if len(scores) >= self._k:
            self._bounds[number] = np.partition(scores, -self._k)[-self._k]
            kept = scores >= self._bounds[number]
            names, scores = names[kept], scores[kept]
        if len(scores) > 2 * self._k:  # many equal ones; sorting names is slow, so it waits for that, and for the end
            names, scores = self._sorted(names, scores)
        self._names[number], self._scores[number] = names, scores

    def _sorted(self, names: npt.NDArray[np.bytes_], scores: _Matrix) -> tuple[npt.NDArray[np.bytes_], _Matrix]:
        best = np.lexsort((names, -scores))[: self._k]
        return names[best], scores[best]


def _lengths(rows: _Matrix) -> _Matrix:
    """Return the length of each row; summed row by row, so that none depends on its neighbours."""
    found: _Matrix = np.sqrt(np.add.reduce(rows * rows, axis=1))
    return found
