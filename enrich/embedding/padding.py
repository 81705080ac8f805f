"""Pad a batch of token ids to a rectangular array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def padded(batch: Sequence[Sequence[int]], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids padded on the right, and their attention mask: both (n, longest), int64."""
    longest = max(len(ids) for ids in batch)
    ids = np.full((len(batch), longest), padding, dtype=np.int64)
    mask = np.zeros((len(batch), longest), dtype=np.int64)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return ids, mask
