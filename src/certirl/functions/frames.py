"""Functions of the state on an interval and on a box: what certificates of experts who switch need to know of both.

A frame says how sums of products are kept, at which points bounds are worked out, and what that means for all states
between these points. docs/notes/switching.md has the proofs for an interval, switching_boxes.md those for a box.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.box_products import Mesh, counts_of, dense_mesh, level, tensor_sums
from certirl.functions.boxes import ProductBasis
from certirl.functions.cells import Cells
from certirl.functions.extrema import minimum
from certirl.functions.inequalities import blending, degree, inflation, spread_points, steepest
from certirl.functions.products import lifted, product_basis
from certirl.ground.domain import Array

POINTS = 8  # per degree of one coordinate: few cost at the states between them, many in the union bound
_SHARES = {2: 6.0, 3: 4.0}  # the same for two and three coordinates, each
_VISITED = 3.0  # per degree, for visits, which need not be sharp
_MOST_DENSE = 4_000  # points on a box for suprema that enter ranges only
_BLOCK = 1024  # states blended at once


class Spread:
    """Spread points of an interval, and what the states between them cost; a `Mesh` of one coordinate.

    Attributes:
        counts: how many.
        states: ``[N, 1]``.
        factor: `inflation` for expansions in the columns.
        double: for products of two of them.
    """

    def __init__(self, columns: Basis, counts: tuple[int, ...]) -> None:
        (count,) = self.counts = counts
        self.states = spread_points(columns, count)
        self.factor, self.double = (inflation(columns.kind, times * degree(columns), count) for times in (1, 2))


class Interval:
    """Columns of one coordinate.

    Attributes:
        columns: φ.
        parts: the family of each coordinate.
        wide: the shape of sums Σ χ f, χ the products of two columns.
        harmonics: how many of them meet in a product.
        close: whether suprema can be taken state by state for every point of a band.
    """

    close = True

    def __init__(self, columns: Basis) -> None:
        self.columns, self.parts = columns, (columns,)
        self._wide = product_basis(columns)
        self.wide, self.harmonics = (self._wide.size,), 2 * columns.size - 1
        self.band, self.dense = self.points((POINTS * max(degree(columns), 1),)), self.points((20 * columns.size,))
        self.visited = self.points((4 * columns.size,))

    def points(self, counts: tuple[int, ...]) -> Spread:
        """Spread points."""
        return Spread(self.columns, counts)

    def tables(self, states: Array) -> Any:
        """χ at states, as `sums` wants it."""
        return self._wide.values(states)

    def sums(self, tables: Any, weights: Array) -> Array:
        """Σ χ(s_r) w_r for several weights ``[G, n]``: ``[G, *wide]``."""
        return np.asarray(weights @ tables)

    def lifted(self, sums: Array) -> Array:
        """Σ φ φᵀ f ``[…, k, k]`` from Σ χ f ``[…, *wide]``."""
        return lifted(sums, self.columns)

    def peak(self, curve: Array) -> float:
        """The largest value of an expansion, an upper bound."""
        return -minimum(self.columns, -curve)[1]

    def variation(self, curve: Array, states: Array, half: Array) -> Array:
        """How far an expansion falls below its value at states within half sides of them, an upper bound ``[n]``."""
        slopes = np.abs(self.columns.derivative(self.dense.states) @ curve)
        return np.full(len(states), float(half[0]) * float(self.dense.factor * slopes.max()))

    def away(self, states: Array, marks: Array) -> Array:
        """The distance to the nearest of the marks ``[z]``, from states ``[n, 1]``."""
        return np.abs(states - marks).min(axis=1, initial=np.inf)


class Box:
    """Columns of two or three coordinates, with the members of `Interval`."""

    close = False

    def __init__(self, columns: ProductBasis) -> None:
        self.columns, self.parts, self._level = columns, columns.parts, level(columns)
        self.wide = self._level.doubled
        self.harmonics = prod(self.wide)
        self.band = self.points(counts_of(columns, _SHARES[columns.dimension]))
        self.dense, self.visited = dense_mesh(columns, _MOST_DENSE), self.points(counts_of(columns, _VISITED))
        self._dense_values = columns.values(self.dense.states)
        self._slopes = [self._slope(axis) for axis in range(columns.dimension)]

    def points(self, counts: tuple[int, ...]) -> Mesh:
        """A mesh of spread points."""
        return Mesh(self.columns, counts)

    def tables(self, states: Array) -> Any:
        """χ of each coordinate."""
        return self._level.tables(states)

    def sums(self, tables: Any, weights: Array) -> Array:
        """Σ χ(s_r) w_r for several weights ``[G, n]``: ``[G, *wide]``."""
        return tensor_sums(tables, weights)

    def lifted(self, sums: Array) -> Array:
        """Σ φ φᵀ f ``[…, k, k]`` from Σ χ f ``[…, *wide]``, by way of the level functions."""
        flat, k, B = sums.reshape(-1, *self.wide), self.columns.size, self._level.change
        found = np.zeros((len(flat), k, k))
        for own, image in zip(flat, found, strict=True):
            if own.any():
                image[:] = B @ self._level.lifted(own) @ B.T
        return found.reshape(*sums.shape[: sums.ndim - len(self.wide)], k, k)

    def peak(self, curve: Array) -> float:
        """The largest value of an expansion, an upper bound: how far it gets from a middle value."""
        values = self._dense_values @ curve
        low, high = float(values.min()), float(values.max())
        return (low + high) / 2 + self.dense.factor * (high - low) / 2

    def variation(self, curve: Array, states: Array, half: Array) -> Array:
        """By Taylor's formula: the slopes at the states, and the largest second derivatives anywhere."""
        phi, total = self.columns.values(states), np.zeros(len(states))
        for own, first in zip(half, self._slopes, strict=True):
            total += own * np.abs(phi @ (first @ curve))
            for other, second in zip(half, self._slopes, strict=True):
                bent = np.abs(self._dense_values @ (second @ (first @ curve))).max()
                total += own * other * self.dense.factor * float(bent) / 2
        return total

    def away(self, states: Array, marks: Array) -> Array:
        """The distance to a switch, known at the points of a grid and multilinear between them."""
        return Cells(marks.shape).on(self.columns.domain).combined(states, marks.ravel())

    def _slope(self, axis: int) -> Array:
        """The matrix that takes an expansion to its slope: columns hold all simpler products, and waves in pairs."""
        slopes = self.columns.derivative(self.dense.states, axis)
        found = np.linalg.lstsq(self._dense_values, slopes, rcond=None)[0]
        if np.abs(self._dense_values @ found - slopes).max() > 1e-8 * max(np.abs(slopes).max(), 1.0):
            raise ValueError(
                f"the sine and cosine of a frequency go together, got the first {self.columns.size} of {self.columns}; "
                f"take one of {self.columns.complete_sizes()}"
            )
        return np.asarray(found)


Frame = Interval | Box


@lru_cache(maxsize=16)
def frame(columns: Basis) -> Frame:
    """The frame of columns; made once."""
    return Box(columns) if isinstance(columns, ProductBasis) else Interval(columns)


def blended(parts: tuple[Basis, ...], values: Array, states: Array) -> tuple[Array, Array]:
    """Σ |w_i(s)| v_i for numbers at spread points ``[g, N_1, …, N_d]``, and Σ |w_i(s)|: ``[g, n]`` and ``[n]``.

    Every expansion in products of the parts is Σ w_i(s) times its value at point i, so that bounds at the points become
    bounds at the states.
    """
    found, total = np.empty((len(values), len(states))), np.empty(len(states))
    for start in range(0, len(states), _BLOCK):
        block = slice(start, start + _BLOCK)
        sums, weight = values, np.ones(())
        places: list[Any] = []
        # Neighbouring cells share coordinates: one contraction for all combinations of those that occur.
        for part, count, own in zip(parts, values.shape[1:], states[block].T, strict=True):
            along, which = np.unique(own, return_inverse=True)
            weights = np.abs(blending(part, count, along[:, None]))
            sums = np.tensordot(sums, weights, axes=(1, 1))
            weight = np.multiply.outer(weight, weights.sum(axis=1))
            places.append(which.reshape(-1))
        found[:, block], total[block] = sums[(slice(None), *places)], weight[tuple(places)]
    return found, total


def wander(parts: tuple[Basis, ...], states: Array, reach: Array) -> Array:
    """How far an expansion that nowhere exceeds 1 can move within reach of states, along each coordinate in turn."""
    steps = zip(parts, states.T, reach, strict=True)
    return np.asarray(sum(own * steepest(part, s[:, None], float(own)) for part, s, own in steps))
