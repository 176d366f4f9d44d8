"""Grids on a box, and functions that are multilinear between their points.

Each point has one hat function. Hats approximate kinks and steep slopes, which polynomials smooth out: a reward has
them where the expert switches. They are not orthonormal and the constant is none of them, so they describe rewards,
never the dynamics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.functions.bases import REFERENCE
from certirl.functions.formulas import HAT, PERIODIC_HAT, Axis, Expansion, Term
from certirl.functions.functions import Functions
from certirl.ground import archive
from certirl.ground.domain import Array, Box, Domain, as_domain, as_rows, mesh
from certirl.ground.doors import as_array, shown

MOST_COORDINATES = 4


@archive.record
@dataclass(frozen=True)
class Cells(Functions):
    """Hats ψ_i on a grid: 1 at the i-th point, 0 at the others, multilinear in between.

    Attributes:
        counts: points along each coordinate: one where nothing depends on it, else two or more, and three or more along
            a periodic one.
        periodic: coordinates whose two ends are the same place; those with one point are among them.
        box: the domain of the grid; if omitted, [-1, 1] along each coordinate until `on` sets it.

    Example:
        >>> grid = certirl.Cells((11, 5), box=((0, 1), (-2, 2)))
        >>> grid.size, grid.dimension, grid.shape
        (55, 2, (10, 4))
    """

    counts: tuple[int, ...]
    periodic: tuple[int, ...] = ()
    box: Any = None

    def __post_init__(self) -> None:
        counts = np.atleast_1d(as_array(self.counts, "counts"))
        if counts.ndim != 1 or not np.issubdtype(counts.dtype, np.integer) or not 1 <= counts.size <= MOST_COORDINATES:
            raise ValueError(
                f"counts must be whole numbers, one for each of 1 to 4 coordinates, got {shown(self.counts)}"
            )
        periodic = tuple(sorted({int(axis) for axis in self.periodic} | set(np.flatnonzero(counts == 1).tolist())))
        if any(axis not in range(counts.size) for axis in periodic):
            raise ValueError(f"periodic must name coordinates among 0 … {counts.size - 1}, got {self.periodic!r}")
        for axis, count in enumerate(counts.tolist()):
            least = 3 if axis in periodic else 2
            if count < least and count != 1:
                raise ValueError(f"coordinate {axis} needs at least {least} points, got {count}")
        if self.box is not None:
            object.__setattr__(self, "box", as_domain(self.box))
            if len(self.box) != counts.size:
                raise ValueError(f"cells of {counts.size} coordinates do not fit on {self.box.words}")
        object.__setattr__(self, "counts", tuple(counts.tolist()))
        object.__setattr__(self, "periodic", periodic)

    def __str__(self) -> str:
        axes = [str(axis) for axis in self.periodic if self.counts[axis] > 1]
        around = f", periodic in coordinate {' and '.join(axes)}," if axes else ""
        return f"{'×'.join(map(str, self.counts))} piecewise linear{around}"

    @property
    def size(self) -> int:
        """The number of hats."""
        return prod(self.counts)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a state, d."""
        return len(self.counts)

    @property
    def domain(self) -> Box:
        """The box of the grid."""
        return as_domain(tuple(REFERENCE) * self.dimension if self.box is None else self.box)

    def on(self, domain: Domain) -> Cells:
        """The same grid on a domain; one that has a box must agree.

        Example:
            >>> certirl.Cells((11,)).on(((0.0, 10.0),)).domain
            ((0.0, 10.0),)
        """
        if self.box is not None and not np.allclose(self.box, domain, rtol=1e-12, atol=0):
            problem = as_domain(domain).words
            raise ValueError(f"the cells are defined on {self.domain.words} but the problem on {problem}")
        return self if self.box is not None else replace(self, box=domain)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate: as many as points where it is periodic, else one fewer."""
        return tuple(count - (axis not in self.periodic) for axis, count in enumerate(self.counts))

    @property
    def sides(self) -> Array:
        """Lengths of the sides of a cell ``[d]``."""
        return self.domain.width / np.array(self.shape)

    def points(self) -> Array:
        """The points of the grid ``[k, d]``, the last coordinate varying fastest.

        Example:
            >>> certirl.Cells((5,)).points()[:, 0]
            array([-1. , -0.5,  0. ,  0.5,  1. ])
        """
        axes = [
            np.linspace(low, high, count, endpoint=axis not in self.periodic)
            for axis, ((low, high), count) in enumerate(zip(self.domain, self.counts, strict=True))
        ]
        return mesh(axes)

    def middles(self) -> list[Array]:
        """The middles of the cells along each coordinate.

        Example:
            >>> certirl.Cells((5,)).middles()
            [array([-0.75, -0.25,  0.25,  0.75])]
        """
        sides = zip(self.domain, self.sides, self.shape, strict=True)
        return [low + side * (np.arange(count) + 0.5) for (low, _), side, count in sides]

    def cell(self, states: ArrayLike) -> NDArray[np.intp]:
        """The number of the cell that each state is in ``[n]``.

        Example:
            >>> certirl.Cells((5,)).cell([-0.9, 0.1, 0.9]).tolist()
            [0, 2, 3]
        """
        rows = as_rows(states, self.dimension)
        along = tuple(self._located(rows, axis)[0] for axis in range(self.dimension))
        return np.asarray(np.ravel_multi_index(along, self.shape), dtype=np.intp)

    def _located(self, rows: Array, axis: int) -> tuple[NDArray[np.intp], Array]:
        """The cell of each state along one coordinate, and where in it: two ``[n]``."""
        (low, high), steps = self.domain[axis], self.shape[axis]
        place = (rows[:, axis] - low) / (high - low) * steps
        place = place % steps if axis in self.periodic else np.clip(place, 0, steps)
        before = np.minimum(place.astype(np.intp), steps - 1)
        return before, place - before

    def _corners(self, states: ArrayLike) -> tuple[NDArray[np.intp], Array]:
        """The hats that are not zero at each state, and their values ``[n, 2ᵈ]``: sums are 1."""
        rows = as_rows(states, self.dimension)
        index, value = np.zeros((len(rows), 1), dtype=np.intp), np.ones((len(rows), 1))
        for axis, count in enumerate(self.counts):
            before, share = self._located(rows, axis)
            ends, values = np.stack([before, (before + 1) % count], axis=1), np.stack([1 - share, share], axis=1)
            index = (index[:, :, None] * count + ends[:, None, :]).reshape(len(rows), 2 ** (axis + 1))
            value = (value[:, :, None] * values[:, None, :]).reshape(len(rows), 2 ** (axis + 1))
        return index, value

    def _on_axes(self, coefficients: Array, axes: Sequence[Array]) -> Array:
        """Σ c_i ψ_i at all combinations of one number from each axis ``[n_1, …, n_d]``."""
        table = coefficients.reshape(self.counts)
        for axis, along in enumerate(axes):  # each turn puts its numbers in the place of the points
            rows = np.zeros((len(along), self.dimension))
            rows[:, axis] = along
            before, share = self._located(rows, axis)
            share = share.reshape([-1 if i == axis else 1 for i in range(self.dimension)])
            after = (before + 1) % self.counts[axis]
            table = table.take(before, axis=axis) * (1 - share) + table.take(after, axis=axis) * share
        return table

    def _steepest(self, rows: Array) -> Array:
        """How fast differences of two of several sums Σ c_i ψ_i ``[A, k]`` change at most, by coordinate ``[d]``."""
        table = rows.reshape(-1, *self.counts)
        steps = []
        for axis in range(1, 1 + self.dimension):
            ends = table.take([0], axis=axis) if axis - 1 in self.periodic else table.take(np.arange(0), axis=axis)
            steps.append(float(np.ptp(np.diff(table, axis=axis, append=ends), axis=0).max()))
        return np.array(steps) / self.sides

    def matrix(self, states: ArrayLike) -> Any:
        """ψ_i(s) for each state, as a sparse matrix ``[n, k]``.

        Example:
            >>> certirl.Cells((5,)).matrix([0.25]).nnz
            2
        """
        from scipy.sparse import csr_array

        index, value = self._corners(states)
        starts = np.arange(0, index.size + 1, index.shape[1])
        return csr_array((value.ravel(), index.ravel(), starts), shape=(len(index), self.size))

    def values(self, states: ArrayLike) -> Array:
        """ψ_i(s) for each state ``[n, k]``.

        Example:
            >>> certirl.Cells((5,)).values([0.25])
            array([[0. , 0. , 0.5, 0.5, 0. ]])
        """
        return np.asarray(self.matrix(states).toarray())

    def combined(self, states: ArrayLike, coefficients: Array) -> Array:
        """Σ c_i ψ_i(s) for each state ``[n]``, looking only at the hats that are not zero.

        Example:
            >>> certirl.Cells((3,)).combined([-0.5, 1.0], np.array([0.0, 2.0, 1.0]))
            array([1., 1.])
        """
        index, value = self._corners(states)
        return np.einsum("nc,nc->n", np.asarray(coefficients)[index], value)

    def _terms(self, coefficients: Array) -> tuple[Term, ...]:
        """Σ c_i ψ_i for writers: an expansion in all products of hats; one point along a coordinate is a constant."""
        axes = tuple(
            Axis(axis, PERIODIC_HAT if axis in self.periodic else HAT, low, side, count)
            for axis, ((low, _), side, count) in enumerate(
                zip(self.domain, self.sides.tolist(), self.counts, strict=True)
            )
            if count > 1
        )
        return (Expansion(axes, coefficients),)

    def _constant(self) -> Array:
        """The hats add up to 1."""
        return np.ones(self.size)

    def _summed(self, states: ArrayLike) -> Array:
        """Σ_n ψ_i(s_n) over states, for every hat ``[k]``."""
        index, value = self._corners(states)
        return np.bincount(index.ravel(), weights=value.ravel(), minlength=self.size)

    def value_range(self, coefficients: Array) -> tuple[float, float]:
        """The range of Σ c_i ψ_i, whose extremes are at grid points.

        Example:
            >>> certirl.Cells((3,)).value_range(np.array([0.0, 2.0, 1.0]))
            (0.0, 2.0)
        """
        return float(coefficients.min()), float(coefficients.max())

    def _roughness(self, order: int = 2) -> Any:
        """The sparse matrix ``[k, k]`` of Σ (first or second differences along each coordinate)²."""
        from scipy.sparse import csr_array, diags_array, eye_array, kron

        total, stencil = csr_array((self.size, self.size)), {1: [-1.0, 1.0], 2: [1.0, -2.0, 1.0]}[order]
        for axis, count in enumerate(self.counts):
            if axis in self.periodic:
                here = np.arange(count)
                shifts = [csr_array((np.full(count, x), (here, (here + k) % count))) for k, x in enumerate(stencil)]
                differences = sum(shifts[1:], start=shifts[0])
            else:
                shape = (max(count - order, 0), count)
                differences = diags_array(stencil, offsets=list(range(order + 1)), shape=shape).tocsr()
            before, behind = eye_array(prod(self.counts[:axis])), eye_array(prod(self.counts[axis + 1 :]))
            total = total + kron(kron(before, differences.T @ differences), behind)
        return total.tocsc()
