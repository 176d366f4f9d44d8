"""Sums of harmonics with NumPy alone: blocks that stay in cache, frequencies doubled at a stroke, products by BLAS."""

from __future__ import annotations

import numpy as np

from certirl.ground.domain import Array

# Values of both sides that stay in the second-level cache; rows per block follow from the number of functions.
_VALUES = 1 << 18
_SHORTEST, LONGEST = 512, 8192  # certificates count on sums over no more rows than that (`bounds`)
# Blocks are summed up in stretches and stretches in a total, so that rounding grows with neither.
_STRETCH = 256


def within(t: Array) -> bool:
    """Whether every number lies in [-1, 1]; what is not a number does not."""
    parts = (t[start : start + LONGEST] for start in range(0, t.size, LONGEST))  # in cache for both ends
    return all(part.min() >= -1.0 and part.max() <= 1.0 for part in parts)


class Side:
    """The harmonics of one variable, a block at a time.

    Args:
        count: how many harmonics.
        circular: sines and cosines of πt, or cosines of arccos t.
        length: the longest block.
    """

    def __init__(self, count: int, circular: bool, length: int) -> None:
        self.circular, self.length = circular, length
        self._values = np.empty(count * length)
        self._spare = np.empty(length)
        self.count = count

    def values(self, t: Array) -> Array:
        """h_i(t) for one block: ``[count, len(t)]``, overwritten by the next call."""
        rows = self._values[: self.count * t.size].reshape(self.count, t.size)
        rows[0] = 1.0
        if self.count > 1:
            (self._circle if self.circular else self._cosines)(rows, t)
        return rows

    def _circle(self, rows: Array, t: Array) -> None:
        sin, cos = rows[1::2], rows[0::2]  # sin[m − 1] and cos[m] hold frequency m
        self._first(sin[0], cos[1], t)
        have, top = 1, len(sin)
        while have < top:  # h_{have + j} = 2 cos_have h_j ± h_{have − j}
            new = min(have, top - have)
            twice = np.multiply(cos[have], 2.0, out=self._spare[: t.size])
            cosines, sines = cos[have + 1 : have + new + 1], sin[have : have + new]
            np.multiply(cos[1 : new + 1], twice, out=cosines)
            cosines -= cos[have - new : have][::-1]
            np.multiply(sin[:new], twice, out=sines)
            sines[: have - 1] += sin[max(0, have - new - 1) : have - 1][::-1]
            have += new

    def _first(self, sin: Array, cos: Array, t: Array) -> None:
        # One tangent costs less than a sine and a cosine: with T = tan πt/2, sin = 2T/(1 + T²) and cos = 1 − T sin.
        tan = np.multiply(t, np.pi / 2, out=self._spare[: t.size])
        np.tan(tan, out=tan)
        np.multiply(tan, tan, out=cos)
        cos += 1.0
        np.divide(tan, cos, out=sin)
        sin *= 2.0
        np.multiply(tan, sin, out=cos)
        np.subtract(1.0, cos, out=cos)

    def _cosines(self, rows: Array, t: Array) -> None:
        rows[1] = t
        have, top = 1, len(rows) - 1
        while have < top:  # T_{have + j} = 2 T_have T_j − T_{have − j}
            new = min(have, top - have)
            twice = np.multiply(rows[have], 2.0, out=self._spare[: t.size])
            after = rows[have + 1 : have + new + 1]
            np.multiply(rows[1 : new + 1], twice, out=after)
            after -= rows[have - new : have][::-1]
            have += new


class Pairs:
    """Σ h(y) h(x)ᵀ for two sets of harmonics."""

    def __init__(self, counts: tuple[int, int], circular: tuple[bool, bool]) -> None:
        self._length = int(np.clip(_VALUES // sum(counts), _SHORTEST, LONGEST))
        self._rows = Side(counts[0], circular[0], self._length)
        self._columns = Side(counts[1], circular[1], self._length)
        self._total, self._part, self._block = np.zeros((3, *counts))
        self._blocks = 0

    def add(self, y: Array, x: Array) -> None:
        """Add pairs that were checked before."""
        for start in range(0, y.size, self._length):
            part = slice(start, start + self._length)
            np.matmul(self._rows.values(y[part]), self._columns.values(x[part]).T, out=self._block)
            self._part += self._block
            self._blocks += 1
            if self._blocks == _STRETCH:
                self._total += self._part
                self._part[:], self._blocks = 0.0, 0

    def sums(self) -> Array:
        """Σ h(y) h(x)ᵀ so far."""
        return self._total + self._part


class Singles:
    """Σ h(x) for one set of harmonics."""

    def __init__(self, count: int, circular: bool) -> None:
        self._pairs = Pairs((count, 1), (circular, False))

    def add(self, x: Array) -> None:
        """Add points that were checked before."""
        self._pairs.add(x, x)

    def sums(self) -> Array:
        """Σ h(x) so far."""
        return self._pairs.sums()[:, 0]
