"""Harmonics of a box: the coordinates in which certificates are computed, whatever family the columns are of.

In the angles θ, with t = cos θ for polynomials and t = θ/π on a circle, the columns span the same functions as the
products h of ``1, cos θ, cos 2θ, …`` (on a circle ``1, sin θ, cos θ, sin 2θ, …``) over the same indices. No h exceeds
1, products of two of them are sums of a few harmonics of up to twice the frequency, and their derivatives are
expansions of the same kind. An interval is a box with one coordinate. docs/notes/certificate.md has the proofs.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import product as combinations
from math import prod
from typing import NamedTuple

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.extrema import minimum
from certirl.functions.harmonics import harmonic_table, products_of_harmonics, slopes_of_harmonics
from certirl.functions.inequalities import blending
from certirl.functions.spread import inflation, spread_counts, spread_points
from certirl.ground.domain import Array

_DENSE = (20.0, 3.0)  # points per degree of one coordinate in a dense mesh, at most and at least
_MOST_DENSE, _MOST_FINE = 4_000, 40_000  # points of the dense mesh and of the fine one
_MOST_BAND = 30_000  # points at which bands are computed
_VISITED = 4.0  # points per degree for visits, whose bound need not be sharp
_COARSE, _MOST_COARSE = (4.0, 2.5), 8_000  # points per degree for the error of a value, at most and at least
_BLOCK = 1024  # states blended at once
# How far an expansion of size 1 may move within a cell: on an interval, where cells cost nothing, and on a box.
_MOVES, _MOST_CELLS = (0.006, 0.06), 1_000_000  # and the most cells


class Mesh(NamedTuple):
    """Spread points along every coordinate, and the factors from their maxima to suprema over the box."""

    counts: tuple[int, ...]  # points along each coordinate
    states: Array  # the points ``[N, d]``, the last coordinate varying fastest
    factor: float  # sup|f| ≤ factor · max over the mesh, for expansions f in the columns
    double: float  # the same for products of two expansions


class CellAxes(NamedTuple):
    """Cells of a box, by their middles and half their sides along each coordinate."""

    axes: list[Array]
    half: list[Array]


class Frame:
    """The harmonics h of columns φ, and what certificates need to know of them.

    Attributes:
        columns: φ.
        basis: h up to constant factors: Chebyshev functions for polynomials, Fourier functions on a circle.
        size: the number of functions, k.
        indices: which harmonic of each coordinate is a factor of h_i ``[k, d]``.
        degrees: its degree (on a circle, frequency) in each coordinate ``[k, d]``.
        narrow: how many harmonics of each coordinate the functions need.
        wide: how many the products of two functions need: the shape of sums of products.
        wider: how many the products of four functions need.
        change: B with φ = B h ``[k, k]``.
    """

    def __init__(self, columns: Basis) -> None:
        self.columns, self.basis, self.size = columns, columns._level, columns.size
        self.parts, self.indices, self.degrees = self.basis.parts, self.basis.indices, self.basis.degrees
        self.wide = tuple(part._doubled().size for part in self.parts)
        self.wider = tuple(part._size_of_degree(4 * part.degree) for part in self.parts)
        self.narrow = tuple(part._harmonics for part in self.parts)
        self.change = _change(columns, self.basis)
        self._steps = [products_of_harmonics(part.size, part.periodic) for part in self.parts]

    @property
    def dimension(self) -> int:
        """The number of coordinates, d."""
        return len(self.parts)

    def tables(self, states: Array, counts: tuple[int, ...] | None = None) -> list[Array]:
        """Harmonics of each coordinate at states ``[n, d]``, as many as in `wide` or ``counts``: ``[M_j, n]``."""
        coordinates = zip(self.parts, self.wide if counts is None else counts, states.T, strict=True)
        # States were checked where they came in; rounding may go past an end.
        return [
            harmonic_table(np.clip(part._to_reference(s), -1.0, 1.0), count, part.periodic)
            for part, count, s in coordinates
        ]

    def of_tables(self, tables: list[Array]) -> Array:
        """h ``[k, n]`` from the tables of the coordinates."""
        if len(tables) == 1:
            return tables[0][: self.size]
        total = tables[0][self.indices[:, 0]]
        for table, index in zip(tables[1:], self.indices.T[1:], strict=True):
            total *= table[index]
        return total

    def values(self, states: Array) -> Array:
        """h at states ``[n, d]``: ``[n, k]``."""
        return self.of_tables(self.tables(states, self.narrow)).T

    def coefficients(self, expansion: Array) -> Array:
        """The coefficients in h ``[…, k]`` of Σ c_i φ_i ``[…, k]``."""
        return expansion @ self.change

    def sums(self, tables: list[Array], weights: Array) -> Array:
        """Σ_r χ(s_r) w_r for several weights ``[G, n]``, from the tables of the states: ``[G, *wide]``."""
        *others, last = tables
        if not others:
            return np.asarray(weights @ last.T)
        left = others[0]
        for table in others[1:]:
            left = (left[:, None] * table[None]).reshape(-1, table.shape[1])
        if len(left) < len(weights):  # multiply the last coordinate with the smaller of the two
            whole = (left[:, None] * last[None]).reshape(-1, last.shape[1])
            return np.asarray(weights @ whole.T).reshape(len(weights), *map(len, tables))
        right = (weights[:, None] * last[None]).reshape(-1, last.shape[1])  # [G·M_d, n]
        sums = (right @ left.T).reshape(len(weights), len(last), *map(len, others))
        return np.moveaxis(sums, 1, -1)

    def lifted(self, sums: Array) -> Array:
        """Σ h hᵀ f ``[…, k, k]`` from the sums Σ χ f ``[…, *wide]``, χ the products of harmonics."""
        leading = sums.shape[: sums.ndim - self.dimension]
        total = np.zeros((*leading, self.size, self.size))
        for terms in combinations(range(2), repeat=self.dimension):
            places, weight = [], np.ones((self.size, self.size))
            for (index, share), term, numbers in zip(self._steps, terms, self.indices.T, strict=True):
                pairs = np.ix_(numbers, numbers)
                places.append(index[term][pairs])
                weight = weight * share[term][pairs]
            total += weight * sums[(..., *places)]
        return total

    @cached_property
    def nodes(self) -> Array:
        """h ``[q, k]`` at as many spread points as there are products of four functions; see `at_nodes`."""
        return self.values(spread_points(self.basis, *self.wider))

    def at_nodes(self, sums: Array) -> Array:
        """Weights ``[…, q]`` of the nodes from sums Σ χ f ``[…, *wider]``: Σ_r g(s_r) f_r is Σ_q weight_q g(node q).

        For every product g of at most four functions: the harmonics are orthogonal on the points of each coordinate.
        """
        for part, count in zip(self.parts, self.wider, strict=True):
            table = harmonic_table(part._clipped(spread_points(part, count)[:, 0]), count, part.periodic)
            shares = np.where(np.arange(count) == 0, 1.0, 2.0)[:, None] / count
            sums = np.tensordot(sums, shares * table, axes=(-self.dimension, 0))  # each turn puts its points last
        return sums.reshape(*sums.shape[: sums.ndim - self.dimension], -1)

    def minimum(self, curve: Array) -> tuple[Array, float]:
        """The state ``[d]`` where Σ c_i h_i is least, and a lower bound of all its values."""
        return minimum(self.basis, curve / self.basis.sup())

    def mesh(self, counts: tuple[int, ...]) -> Mesh:
        """Spread points, ``counts`` along the coordinates."""
        factor, double = (inflation(self.basis, *counts, times=times) for times in (1, 2))
        return Mesh(counts, spread_points(self.basis, *counts), factor, double)

    def band(self, log_events: float) -> Mesh:
        """The mesh for which inflation times √L is least, L = log_events + log N: few points cost between them.

        ``log_events`` is the logarithm of events per point over δ.
        """
        return _band(self, round(log_events, 3))

    @cached_property
    def dense(self) -> Mesh:
        """A mesh fine enough for products of two expansions."""
        return self._dense(_MOST_DENSE)

    @cached_property
    def fine(self) -> Mesh:
        """A finer one, for suprema that are taken once."""
        return self._dense(_MOST_FINE)

    @cached_property
    def visited(self) -> Mesh:
        """A coarse one, for bounds that need not be sharp."""
        return self.mesh(tuple(max(n, 2) for n in spread_counts(self.basis, _VISITED)))

    @cached_property
    def coarse(self) -> Mesh:
        """Another coarse one, of fewer points where there are many functions."""
        return self._dense(_MOST_COARSE, _COARSE)

    def _dense(self, most: int, shares: tuple[float, float] = _DENSE) -> Mesh:
        share, least = shares
        while prod(spread_counts(self.basis, share)) > most and share > least:
            share -= 0.25
        return self.mesh(tuple(max(n, 2) for n in spread_counts(self.basis, share)))

    def tensor(self, curve: Array) -> Array:
        """An expansion as coefficients of all products of harmonics, every sine beside its cosine."""
        dense = np.zeros(self.narrow)
        dense[tuple(self.indices.T)] = curve
        return dense

    def on_axes(self, tensor: Array, axes: list[Array]) -> Array:
        """The values of a tensor at all combinations of one number from each axis: ``[n_1, …, n_d]``."""
        for part, count, axis in zip(self.parts, tensor.shape, axes, strict=True):
            table = harmonic_table(part._clipped(axis), count, part.periodic)
            tensor = np.tensordot(tensor, table, axes=(0, 0))  # each turn puts its points last
        return tensor

    def slope(self, tensor: Array, axis: int) -> Array:
        """The derivative of a tensor along one coordinate."""
        part, count = self.parts[axis], tensor.shape[axis]
        ((low, high),) = part.domain
        matrix = 2 / (high - low) * slopes_of_harmonics(count, part.periodic)
        return np.moveaxis(np.tensordot(tensor, matrix, axes=(axis, 0)), -1, axis)

    def fall(self, curve: Array, cells: CellAxes) -> Array:
        """How far an expansion can fall below its values at the middles of cells, within them ``[n_1, …, n_d]``.

        By Taylor's formula: slopes at the middles, and the largest second derivatives anywhere.
        """
        tensor, dense = self.tensor(curve), self.dense_axes
        total = np.zeros([len(axis) for axis in cells.axes])
        sides = [_along(half, axis, self.dimension) for axis, half in enumerate(cells.half)]
        for j, side in enumerate(sides):
            slope = self.slope(tensor, j)
            total += side * np.abs(self.on_axes(slope, cells.axes))
            for i, other in enumerate(sides):
                bend = np.abs(self.on_axes(self.slope(slope, i), dense)).max()
                total += side * other * (self.dense.factor * float(bend) / 2)
        return total

    @cached_property
    def dense_axes(self) -> list[Array]:
        """The coordinates of the dense mesh."""
        return [spread_points(part, n)[:, 0] for part, n in zip(self.parts, self.dense.counts, strict=True)]

    @cached_property
    def dense_values(self) -> Array:
        """h at the dense mesh ``[q, k]``."""
        return self.values(self.dense.states)

    def peak(self, curve: Array) -> float:
        """The largest value of an expansion, an upper bound: how far it gets from a middle value."""
        values = self.dense_values @ curve
        low, high = float(values.min()), float(values.max())
        return (low + high) / 2 + self.dense.factor * (high - low) / 2

    def blended(self, numbers: Array, states: Array) -> Array:
        """Σ_i |w_i(s)| v_i and Σ_i w_i(s) v_i for numbers v at spread points ``[g, N_1, …, N_d]``: ``[2, g, n]``.

        Every expansion is Σ w_i(s) times its value at point i (`inequalities.blending`), so that bounds at the points
        become bounds at the states ``[n, d]``.
        """
        total = np.empty((2, len(numbers), len(states)))
        for start in range(0, len(states), _BLOCK):
            block = slice(start, start + _BLOCK)
            for kind in range(2):
                sums = numbers[..., None]
                for axis in reversed(range(self.dimension)):  # each turn sums over the last coordinate that is left
                    weights = self._weights(axis, numbers.shape[axis + 1], states[block, axis])[kind]
                    sums = np.einsum("...in,ni->...n", sums, weights)
                total[kind, :, block] = sums
        return total

    def blended_on_axes(self, numbers: Array, axes: list[Array]) -> Array:
        """The same at all combinations of one number from each axis: ``[2, g, n_1, …, n_d]``."""
        total = []
        for kind in range(2):
            sums = numbers
            for axis, along in enumerate(axes):
                sums = np.tensordot(sums, self._weights(axis, sums.shape[1], along)[kind], axes=(1, 1))
            total.append(sums)
        return np.stack(total)

    def _weights(self, axis: int, count: int, along: Array) -> tuple[Array, Array]:
        """|w_i| and w_i along one coordinate ``[n, count]`` each."""
        weights = blending(self.parts[axis], count, along[:, None])
        return np.abs(weights), weights

    def drift(self, cells: CellAxes) -> Array:
        """How far an expansion that nowhere exceeds 1 can move from the middles of cells ``[n_1, …, n_d]``.

        In the angle of each coordinate its slope is at most its degree (Bernstein).
        """
        total = np.zeros(())
        for part, axis, half in zip(self.parts, cells.axes, cells.half, strict=True):
            low, middle, high = (part._to_angle(np.clip(x, *part.domain[0])) for x in (axis - half, axis, axis + half))
            reach = np.maximum(np.abs(low - middle), np.abs(high - middle))
            total = np.add.outer(total, part.degree * reach)
        return total

    def cells(self, edges: list[Array] | None = None) -> CellAxes:
        """Cells so small that expansions hardly move within them, even in angle, cut further at some edges.

        The edges are along each coordinate, the ends included; the ends alone if left out.
        """
        most = _MOST_CELLS ** (1 / self.dimension)
        axes, halves, move = [], [], _MOVES[self.dimension > 1]
        for axis, part in enumerate(self.parts):
            count = int(min(np.ceil(part.degree * np.pi * (1 + part.periodic) / move), most)) + 1
            ((low, high),) = part.domain
            even = np.linspace(-1.0, 1.0, count) if part.periodic else -np.cos(np.linspace(0.0, np.pi, count))
            cuts = [low, high] if edges is None else edges[axis]
            ends = np.unique(np.concatenate([(low + high) / 2 + (high - low) / 2 * even[1:-1], cuts]))
            ends = ends[np.append(True, np.diff(ends) > 1e-12 * (high - low))]
            axes.append((ends[1:] + ends[:-1]) / 2)
            halves.append((ends[1:] - ends[:-1]) / 2)
        return CellAxes(axes, halves)


@lru_cache(maxsize=32)
def frame(columns: Basis) -> Frame:
    """The harmonics of columns; made once."""
    return Frame(columns)


@lru_cache(maxsize=64)
def _band(harmonics: Frame, log_events: float) -> Mesh:
    best, counts = np.inf, spread_counts(harmonics.basis, 2.0)
    for share in np.arange(1.0, 12.0, 0.125):
        points = spread_counts(harmonics.basis, float(share))
        if prod(points) > _MOST_BAND and np.isfinite(best):
            break
        cost = inflation(harmonics.basis, *points) * (log_events + np.log(prod(points))) ** 0.5
        if cost < best:
            best, counts = cost, points
    return harmonics.mesh(counts)


def _change(columns: Basis, level: Basis) -> Array:
    """B with φ = B h."""
    matrix = np.ones((columns.size, columns.size))
    families = zip(columns.parts, level.parts, columns.indices.T, level.indices.T, strict=True)
    for family, part, rows, places in families:
        matrix *= family._from_harmonics(np.eye(part._harmonics))[np.ix_(rows, places)]
    return matrix


def _along(numbers: Array, axis: int, dimension: int) -> Array:
    """Numbers along one coordinate, shaped for a product with arrays over all coordinates."""
    return numbers.reshape([-1 if j == axis else 1 for j in range(dimension)])
