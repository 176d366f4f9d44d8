"""Sums of harmonics by gridding: points are spread over nodes and transformed.

The cost of a point does not depend on the number of harmonics. The error is bounded: with κ the window and κ̂ its
transform, a harmonic of ν periods per node is replaced, at a point a, by itself times
``Σ_l κ(l − a) e^{2πiν(l − a)} / κ̂(ν)``, a factor that depends only on ν ≤ 1/6 and on the position of a between two
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from scipy import fft

from certirl.ground.domain import Array
from certirl.kernels.spreading import (
    PARTS,
    TABLE,
    WIDTH,
    add_pairs,
    add_singles,
    aligned,
    window_transform,
)

NODES_PER_PERIOD = 6
# The factor is within 1.46e-8 of one on a fine grid of ν and a, and its slope allows 1.1e-9 more between
# (tests/kernels/test_sums.py). For cosines of arccos t, a position off by ARCCOS_ERROR adds at most 800 times that.
FACTOR_ERROR = 1.6e-8
# A node that receives r values has a rounding error of at most r · 2^-53 of their sum, times κ̂(0)/κ̂(1/6) < 1.51 per
# coordinate after the transform. The grid is read and cleared after this number of rows: below 2.2e-9.
FLUSH = 1 << 23
# |error| of an entry of Σ h(y) h(x)ᵀ or Σ h(x), divided by the number of rows; products of two errors are below 1e-15.
ERROR = 3.5e-8

_SLAB = 64  # rows transformed at a time


def error(count: int) -> float:
    """|error| of an entry, divided by the number of rows."""
    return ERROR


class Axis:
    """The nodes of one variable: on a circle, or on its upper half, since cosines are even.

    Args:
        count: the number of harmonics.
        periodic: sines and cosines of πt, or cosines of arccos t.
    """

    def __init__(self, count: int, periodic: bool) -> None:
        self.count, self.periodic = count, periodic
        fastest = count // 2 if periodic else count - 1
        half = fft.next_fast_len(max(WIDTH, NODES_PER_PERIOD * fastest // 2), real=True)
        self._around = 2 * half
        self._nodes = 2 * half if periodic else half
        self.length = self._nodes + WIDTH  # the points between the last two nodes reach over the end
        self.parts = float(PARTS * self._nodes)
        self._gain = 1.0 / window_transform(np.arange(fastest + 1) / self._around)

    def transform(self, values: Array) -> Array:
        """Σ h along the last axis, ``[…, count]``, from the values at the nodes ``[…, length]``."""
        before, last = WIDTH // 2 - 1, self._nodes
        low, nodes, high = np.split(values, [before, before + last + 1], axis=-1)
        if self.periodic:
            return self._circle(nodes, low, high)
        nodes = nodes.copy()
        nodes[..., 1 : before + 1] += low[..., ::-1]
        nodes[..., last - high.shape[-1] : last] += high[..., ::-1]
        nodes[..., [0, last]] *= 2.0  # the transform counts the inner nodes twice
        return fft.dct(nodes, type=1, axis=-1)[..., : self.count] * (self._gain / 2)

    def _circle(self, nodes: Array, low: Array, high: Array) -> Array:
        around = nodes[..., :-1].copy()
        around[..., 0] += nodes[..., -1]
        around[..., 1 : high.shape[-1] + 1] += high
        around[..., -low.shape[-1] :] += low
        spectrum = fft.rfft(around, axis=-1)[..., : self._gain.size]
        gain = self._gain * (-1.0) ** np.arange(self._gain.size)  # the first node is t = −1
        sums = np.empty((*around.shape[:-1], self.count))
        np.multiply(spectrum.real, gain, out=sums[..., 0::2])
        np.multiply(spectrum.imag[..., 1:], -gain[1:], out=sums[..., 1::2])
        return sums


class Sums:
    """Σ h(y) h(x)ᵀ for two sets of harmonics, or Σ h(x) for one, within ERROR per row.

    Args:
        counts: the number of harmonics of each variable, odd if periodic.
        periodic: sines and cosines of πt, or cosines of arccos t.
    """

    def __init__(self, counts: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
        self._axes = [Axis(*axis) for axis in zip(counts, periodic, strict=True)]
        self._parts, self._periodic = tuple(axis.parts for axis in self._axes), periodic
        self._grid = aligned(prod(axis.length for axis in self._axes))
        self._total, self._waiting = np.zeros(counts), 0

    def add(self, *points: Array) -> None:
        """Add rows: coordinates t ∈ [-1, 1] of each variable ``[n]``."""
        spread = add_pairs if len(points) == 2 else add_singles
        for start in self._stretches(points[0].size):
            stretch = tuple(t[start] for t in points)
            spread(stretch, self._parts, self._periodic, TABLE, self._grid, self._axes[-1].length)

    def _stretches(self, size: int) -> Iterator[slice]:
        """Stretches of rows; the grid is read and cleared after every FLUSH rows."""
        start = 0
        while start < size:
            stop = min(size, start + FLUSH - self._waiting)
            yield slice(start, stop)
            self._waiting, start = self._waiting + stop - start, stop
            if self._waiting == FLUSH:
                self._total += self._read()
                self._grid[:], self._waiting = 0.0, 0

    def sums(self) -> Array:
        """The sums over all rows so far."""
        return self._total + self._read()

    def _read(self) -> Array:
        values = self._grid.reshape(-1, self._axes[-1].length)
        for axis in reversed(self._axes):
            slabs = (values[start : start + _SLAB] for start in range(0, len(values), _SLAB))
            values = np.concatenate([axis.transform(slab) for slab in slabs]).T
        return values.reshape(self._total.shape)
