"""Draws from polynomial densities on [-1, 1] by x = F⁻¹(u): exactly, in a few bits, or fast through a table of chords.

A chord of F that is h wide misses F by h² max|f'|/8 at most, whether f is large there or vanishes, and by no more than
its probability. The table has as many chords as keep the one or, where F⁻¹ is steep, the other below `TOLERANCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from certirl.ground.domain import Array
from certirl.kernels import tensors

# sup|F_drawn − F|: what a hundred million draws could not tell from zero, with a factor of a thousand to spare.
TOLERANCE = 1e-7
# Steps of u that are found by multiplication, each cut further where it needs to be.
_STEPS = 2048
# Places of the interval where the need for chords is looked up.
_PLACES = 4096


@dataclass(frozen=True, eq=False)
class Chords:
    """Distribution functions F_0, F_1, …, each replaced by chords; one after the other, with a last point each.

    Attributes:
        scale, offset: step i of u in density d holds chords from scale·u + offset on, at d·(_STEPS + 1) + i.
        low, width: where a chord begins, and how far it reaches.
    """

    scale: Array
    offset: Array
    low: Array
    width: Array

    def draw(self, uniform: Array, which: NDArray[np.bool_]) -> Array:
        """F_w⁻¹(u) for every u in [0, 1), w = 1 where ``which`` and else 0: four lookups and no search."""
        step = (uniform * _STEPS).astype(np.intp)
        step += which * np.intp(_STEPS + 1)
        along = self.scale.take(step)
        along *= uniform
        along += self.offset.take(step)
        chord = along.astype(np.intp)
        along -= chord
        along *= self.width.take(chord)
        along += self.low.take(chord)
        return along


class DeviceChords:
    """The same table as torch tensors: within a step of u everything is small, so that single precision is enough.

    Args:
        table: of NumPy arrays.
        device: where draws are made.
    """

    def __init__(self, table: Chords, device: Any) -> None:
        library = tensors.torch()
        cuts = table.scale / _STEPS
        steps = np.tile(np.arange(_STEPS + 1), len(table.scale) // (_STEPS + 1))
        first = np.rint(table.offset + cuts * steps).astype(np.int64)
        self._cuts = library.tensor(cuts, dtype=library.float32, device=device)
        self._first = library.tensor(first, dtype=library.int32, device=device)
        self._low = library.tensor(table.low, dtype=library.float32, device=device)
        self._width = library.tensor(table.width, dtype=library.float32, device=device)

    def draw(self, states: Any, rng: Any) -> Any:
        """One draw of (1 − s²)F_0 + s²F_1 for each state ``[n]``; one uniform number picks and is inverted."""
        library = tensors.torch()
        if tensors.can_fuse(states.device):
            from certirl.kernels.triton import draw_chords

            seed = int(library.randint(2**62, (1,), generator=rng, device=rng.device))
            tables = (self._cuts, self._first, self._low, self._width)
            return draw_chords(states.contiguous(), seed, tables, _STEPS)
        square = (states**2).clamp(max=1.0)
        uniform = library.rand(len(square), generator=rng, device=rng.device)
        at_edge = uniform < square
        uniform = (uniform - square * ~at_edge) / library.where(at_edge, square, 1 - square)
        return self._invert(uniform.clamp(0.0, 1.0 - 2.0**-24), at_edge)

    def _invert(self, uniform: Any, which: Any) -> Any:
        scaled = uniform * _STEPS
        step = scaled.int()
        place = step + which * (_STEPS + 1)
        along = (scaled - step) * self._cuts[place]
        chord = along.int()
        where = self._first[place] + chord
        return self._low[where] + (along - chord) * self._width[where]


def chords(*densities: Array) -> Chords:
    """The table of some densities, given by power coefficients; kept for those asked for of late."""
    return _chords(tuple(np.asarray(density, dtype=np.float64).tobytes() for density in densities))


@lru_cache(maxsize=512)  # a problem of many components needs one for each and every action
def _chords(keys: tuple[bytes, ...]) -> Chords:
    scale, offset, nodes = [], [], []
    start = 0
    for key in keys:
        density = np.frombuffer(key)
        cuts = _cuts(density)
        first = start + np.concatenate([[0], np.cumsum(cuts)])
        steps = np.repeat(np.arange(_STEPS), cuts)
        within = np.arange(len(steps)) - np.repeat(first[:-1] - start, cuts)
        x = np.append(invert(density, (steps + within / np.repeat(cuts, cuts)) / _STEPS), 1.0)
        scale.append(np.append(cuts * float(_STEPS), 0.0))
        offset.append(first - np.append(cuts * np.arange(_STEPS), 0.0))
        nodes.append(np.maximum.accumulate(x))
        start += len(x)
    low = np.concatenate(nodes)
    width = np.concatenate([np.append(np.diff(x), 0.0) for x in nodes])
    return Chords(np.concatenate(scale), np.concatenate(offset), low, width)


def _cuts(density: Array) -> NDArray[np.intp]:
    """How many chords each step of u needs: so many that h² max|f'|/8, or else their probability, is small enough."""
    # Evenly spaced places, and the middle of every step, so that each has one and all of it lies next to one.
    middles = invert(density, (np.arange(_STEPS) + 0.5) / _STEPS)
    x = np.sort(np.concatenate([np.linspace(-1.0, 1.0, _PLACES), middles]))
    slope = np.abs(polynomial.polyval(x, polynomial.polyder(density)))
    wide = np.sqrt(8 * TOLERANCE / np.maximum(_over_neighbours(np.maximum, slope), 1e-6))  # how wide a chord may be
    f = _over_neighbours(np.minimum, np.maximum(polynomial.polyval(x, density), 0.0))
    # Half the probability of a chord that wide, as f may fall along it: a narrower chord than needed does no harm.
    probability = np.maximum(f * wide / 2, TOLERANCE)
    step = np.clip((distribution(density, x) * _STEPS).astype(np.intp), 0, _STEPS - 1)
    cuts = np.ones(_STEPS, dtype=np.intp)
    np.maximum.at(cuts, step, np.ceil(1 / (_STEPS * probability)).astype(np.intp))
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
