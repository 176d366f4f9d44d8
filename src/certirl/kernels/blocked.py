"""Harmonics of one variable, a block at a time; used by `residuals` alone."""

from __future__ import annotations

import numpy as np

from certirl.functions import harmonics
from certirl.ground.domain import Array
from certirl.kernels.sums import LONGEST as LONGEST


class Side:
    """The harmonics of one variable, a block at a time.

    Args:
        count: the number of harmonics.
        circular: sines and cosines of πt, or cosines of arccos t.
        length: the longest block.
    """

    def __init__(self, count: int, circular: bool, length: int) -> None:
        self.count, self.circular, self._values = count, circular, np.empty(count * length)

    def values(self, t: Array) -> Array:
        """h_i(t) for one block: ``[count, len(t)]``, overwritten by the next call."""
        rows = self._values[: self.count * t.size].reshape(self.count, t.size)
        return harmonics.table(t, self.count, self.circular, rows)
