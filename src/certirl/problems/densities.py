"""Draws from polynomial densities on [-1, 1] by x = F⁻¹(u): exactly, in a few bits, or fast through a table of chords.

A chord of F that is h wide misses F by h² max|f'|/8 at most, whether f is large there or vanishes, and by no more than
its probability. The table has as many chords as keep the one or, where F⁻¹ is steep, the other below `TOLERANCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from certirl.ground.domain import Array

# sup|F_drawn − F|: a thousandth of what a hundred million draws could distinguish from zero.
TOLERANCE = 1e-7
# Steps of u that are found by multiplication, each cut further where it needs to be.
STEPS = 2048
# Places of the interval where the need for chords is looked up.
_PLACES = 4096


@dataclass(frozen=True, eq=False)
class Chords:
    """Distribution functions F_0, F_1, …, each replaced by chords; one after the other, with a last point each.

    Attributes:
        scale, offset: step i of u in density d holds chords from scale·u + offset on, at d·(STEPS + 1) + i.
        low, width: where a chord begins, and how far it reaches.
    """

    scale: Array
    offset: Array
    low: Array
    width: Array

    def draw(self, uniform: Array, which: NDArray[np.bool_]) -> Array:
        """F_w⁻¹(u) for every u in [0, 1), w = 1 where ``which`` and else 0: four lookups and no search."""
        step = (uniform * STEPS).astype(np.intp)
        step += which * np.intp(STEPS + 1)
        along = self.scale.take(step)
        along *= uniform
        along += self.offset.take(step)
        chord = along.astype(np.intp)
        along -= chord
        along *= self.width.take(chord)
        along += self.low.take(chord)
        return along


def chords(*densities: Array) -> Chords:
    """The table of some densities, given by power coefficients; the most recent tables are cached."""
    return _chords(tuple(np.asarray(density, dtype=np.float64).tobytes() for density in densities))


@lru_cache(maxsize=512)  # a problem of many components needs one for each and every action
def _chords(keys: tuple[bytes, ...]) -> Chords:
    scale, offset, nodes = [], [], []
    start = 0
    for key in keys:
        density = np.frombuffer(key)
        cuts = _cuts(density)
        first = start + np.concatenate([[0], np.cumsum(cuts)])
        steps = np.repeat(np.arange(STEPS), cuts)
        within = np.arange(len(steps)) - np.repeat(first[:-1] - start, cuts)
        x = np.append(invert(density, (steps + within / np.repeat(cuts, cuts)) / STEPS), 1.0)
        scale.append(np.append(cuts * float(STEPS), 0.0))
        offset.append(first - np.append(cuts * np.arange(STEPS), 0.0))
        nodes.append(np.maximum.accumulate(x))
        start += len(x)
    low = np.concatenate(nodes)
    width = np.concatenate([np.append(np.diff(x), 0.0) for x in nodes])
    return Chords(np.concatenate(scale), np.concatenate(offset), low, width)


def _cuts(density: Array) -> NDArray[np.intp]:
    """The number of chords that each step of u needs so that h² max|f'|/8, or else their probability, is small."""
    # Evenly spaced places, and the middle of every step, so that each has one and all of it lies next to one.
    middles = invert(density, (np.arange(STEPS) + 0.5) / STEPS)
    x = np.sort(np.concatenate([np.linspace(-1.0, 1.0, _PLACES), middles]))
    slope = np.abs(polynomial.polyval(x, polynomial.polyder(density)))
    wide = np.sqrt(8 * TOLERANCE / np.maximum(_over_neighbours(np.maximum, slope), 1e-6))  # how wide a chord may be
    f = _over_neighbours(np.minimum, np.maximum(polynomial.polyval(x, density), 0.0))
    # Half the probability of a chord that wide, as f may fall along it; narrower chords are correct, too.
    probability = np.maximum(f * wide / 2, TOLERANCE)
    step = np.clip((distribution(density, x) * STEPS).astype(np.intp), 0, STEPS - 1)
    cuts = np.ones(STEPS, dtype=np.intp)
    np.maximum.at(cuts, step, np.ceil(1 / (STEPS * probability)).astype(np.intp))
    return cuts


def _over_neighbours(extreme: np.ufunc, values: Array) -> Array:
    """The largest, or least, of each value and those next to it."""
    result = values.copy()
    extreme(result[1:], values[:-1], out=result[1:])
    extreme(result[:-1], values[1:], out=result[:-1])
    return result


def distribution(density: Array, x: Array) -> Array:
    """F(x) = ∫ from −1 to x of the density."""
    integral = polynomial.polyint(density)
    integral[0] -= polynomial.polyval(-1.0, integral)
    return np.asarray(polynomial.polyval(x, integral))


def invert(density: Array, uniform: Array) -> Array:
    """x with F(x) = u to rounding: a table brackets the root, Newton's method finishes."""
    table, heights, cell = _bracket(density, uniform, 1024)
    low, high = table[cell - 1], table[cell]
    x = low + (high - low) * (uniform - heights[cell - 1]) / np.maximum(heights[cell] - heights[cell - 1], 1e-300)
    for _ in range(3):
        x = x - (distribution(density, x) - uniform) / np.maximum(polynomial.polyval(x, density), 1e-12)
        x = np.clip(x, low, high)
    return np.asarray(x)


def bisect(density: Array, uniform: Array, bits: int) -> Array:
    """The middle of the cell, of 2^bits equal ones, that holds F⁻¹(u): bisection, all at once."""
    table, _, cell = _bracket(density, uniform, 2**bits)
    return np.asarray((table[cell - 1] + table[cell]) / 2)


def _bracket(density: Array, uniform: Array, cells: int) -> tuple[Array, Array, NDArray[np.intp]]:
    table = np.linspace(-1.0, 1.0, cells + 1)
    heights = distribution(density, table)
    return table, heights, np.clip(np.searchsorted(heights, uniform, side="right"), 1, cells)
