"""A batch of token ids as a rectangle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def padded(batch: Sequence[Sequence[int]], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids (n, longest), filled up behind with a padding id, and the mask of what is no padding."""
    longest = max(len(ids) for ids in batch)
    ids = np.full((len(batch), longest), padding, dtype=np.int64)
    mask = np.zeros((len(batch), longest), dtype=np.int64)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return ids, mask
