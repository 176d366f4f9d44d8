"""Sums of residuals and of their products on an interval in one compiled pass; needs numba.

The harmonics of a block of rows, the residuals and their products are computed and summed up while they are in the
cache. The constant is left out of every set of harmonics. Memory is indexed by sizes alone, never by the data.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from certirl.ground.domain import Array
from certirl.kernels.fused import _LENGTH, _STRETCH, _TILE, OPTIONS, _add_rows, _add_tile, _fill, _whole_tiles

# Numbers are reached by two or three indices below: a row taken out of an array is counted as a reference to it, which
# takes as long as a hundred products. Five functions at a time, because loops over more arrays are not vectorised.


@njit(**OPTIONS)
def _combine(weights, row, functions, variable, count, length, work, out):
    """Add Σ_{j ≥ 1} w_j h_j of one variable to one row, over so many harmonics."""
    for j in range(0, count, _TILE):
        a, b, c = weights[row, j + 1], weights[row, j + 2], weights[row, j + 3]
        d, e = weights[row, j + 4], weights[row, j + 5]
        for i in range(length):
            work[out, i] += (
                a * functions[variable, j, i]
                + b * functions[variable, j + 1, i]
                + c * functions[variable, j + 2, i]
                + d * functions[variable, j + 3, i]
                + e * functions[variable, j + 4, i]
            )


@njit(**OPTIONS)
def _form(functions, plan, length, work, products):
    """Write the residuals of every action, V's last, then the products of the pairs and the residuals of V."""
    rows, fits, pairs, crossed = plan
    m, g, place = rows.shape[0], functions.shape[0] - 1, 0
    for action in range(g):
        for row in range(m):
            out = action * m + row
            constant = rows[row, 0] - fits[out, 0]
            for i in range(length):
                work[out, i] = constant
            # All functions but V are expansions in the columns.
            count = (fits if row < m - 1 else rows).shape[1] - 1
            _combine(rows, row, functions, action + 1, count, length, work, out)
            _subtract(fits, out, functions, length, work)
    for pair in range(pairs.shape[0]):
        one, other = pairs[pair, 0] * m, pairs[pair, 1] * m
        for i in range(length):
            products[place, i] = work[one + m - 1, i] * work[other + m - 1, i]
            products[place + 1, i] = 0.0
        for row in range(m - 1):
            for i in range(length):
                products[place + 1, i] += work[one + row, i] * work[other + row, i]
        place += 2
        if crossed:
            for row in range(m - 1):
                if one == other:
                    for i in range(length):
                        products[place, i] = work[one + row, i] * work[one + m - 1, i]
                else:
                    for i in range(length):
                        products[place, i] = (
                            work[one + row, i] * work[other + m - 1, i] + work[one + m - 1, i] * work[other + row, i]
                        )
                place += 1
    for action in range(g):
        for i in range(length):
            products[place, i] = work[action * m + m - 1, i]
        place += 1


@njit(**OPTIONS)
def _subtract(weights, row, functions, length, work):
    """Take Σ_{j ≥ 1} w_j x_j of the state off one row."""
    for j in range(0, weights.shape[1] - 1, _TILE):
        a, b, c = weights[row, j + 1], weights[row, j + 2], weights[row, j + 3]
        d, e = weights[row, j + 4], weights[row, j + 5]
        for i in range(length):
            work[row, i] -= (
                a * functions[0, j, i]
                + b * functions[0, j + 1, i]
                + c * functions[0, j + 2, i]
                + d * functions[0, j + 3, i]
                + e * functions[0, j + 4, i]
            )


@njit(**OPTIONS)
def _add_stretch(points, counts, circular, plan, room, sums):
    """Add one stretch, block by block."""
    functions, work, products = room
    edges, inner, ends, cross = sums
    wide, narrow = inner.shape[1], cross.shape[1]
    for start in range(0, points.shape[1], _LENGTH):
        length = min(_LENGTH, points.shape[1] - start)
        for variable in range(points.shape[0]):
            count = counts[0] if variable == 0 else counts[1]
            _fill(points[variable, start : start + length], functions[variable], count, circular)
        _form(functions, plan, length, work, products)
        for variable in range(points.shape[0]):  # a loop, not two calls: either would be compiled into place
            _add_rows(functions[variable], counts[min(variable, 1)], length, ends[variable])
            if variable > 0:
                for row in range(0, narrow, _TILE):
                    for column in range(0, narrow, _TILE):
                        _add_tile(functions[variable], functions[0], length, cross[variable - 1], row, column)
        _add_rows(products, products.shape[0] + 1, length, edges)
        for row in range(0, products.shape[0], _TILE):
            for column in range(0, wide, _TILE):
                _add_tile(products, functions[0], length, inner, row, column)


class Residuals:
    """Σ χ, Σ h(s'), Σ h(s') xᵀ and Σ χ times the products of residuals, for g actions tried at the same states.

    The residuals of action c are Σ_j rows_ij h_j(s'_c) − Σ_j fits_cij x_j, i = 1, …, m, the last one that of V.

    Args:
        counts: how many harmonics χ of s, and how many of s', the constant included.
        circular: sines and cosines of πt; otherwise cosines of arccos t.
        rows: the functions in h ``[m, K]``.
        fits: their guesses in x ``[g, m, k]``.
        pairs: the pairs of actions whose residuals are multiplied ``[P, 2]``, as numbers below g.
        crossed: whether residuals of V and of every other function are multiplied too.
    """

    def __init__(
        self, counts: tuple[int, int], circular: bool, rows: Array, fits: Array, pairs: Array, crossed: bool
    ) -> None:
        g, m, k = fits.shape
        self._counts, self._circular, self._k = counts, circular, k
        wide, high, narrow = (max(_whole_tiles(count), _TILE) for count in (counts[0], counts[1], k))
        high = max(high, narrow)
        padded, taken = np.zeros((m, high + 1)), np.zeros((g * m, narrow + 1))
        padded[:, : rows.shape[1]], taken[:, :k] = rows, fits.reshape(g * m, k)
        self._plan = (padded, taken, np.ascontiguousarray(pairs, dtype=np.int64), crossed)
        self._rows = len(pairs) * (m + 1 if crossed else 2) + g
        self._shape = (len(pairs), m + 1 if crossed else 2, g)
        products = _whole_tiles(self._rows + 1)
        self._room = (
            np.zeros((g + 1, max(wide, high), _LENGTH)),
            np.zeros((g * m, _LENGTH)),
            np.zeros((products, _LENGTH)),
        )
        self._part = (
            np.zeros(products + 1),
            np.zeros((products, wide)),
            np.zeros((g + 1, max(counts))),
            np.zeros((g, narrow, narrow)),
        )
        self._total = tuple(np.zeros_like(part) for part in self._part)

    def add(self, points: Array) -> None:
        """Add rows that were checked before: coordinates t of s and of every s' ``[g + 1, n]``."""
        for start in range(0, points.shape[1], _STRETCH):
            stretch = np.ascontiguousarray(points[:, start : start + _STRETCH])
            _add_stretch(stretch, self._counts, self._circular, self._plan, self._room, self._part)
            for total, part in zip(self._total, self._part, strict=True):
                total += part
                part[:] = 0.0

    def sums(self) -> tuple[Array, Array, Array, Array, Array]:
        """Σ χ ``[M]``, Σ χ products ``[P, rows, M]``, Σ χY ``[g, M]``, Σ h(s') ``[g, K]``, Σ h(s') xᵀ ``[g, k, k]``."""
        edges, inner, ends, cross = self._total
        M, K, k = *self._counts, self._k
        pairs, rows, g = self._shape
        whole = np.concatenate([edges[1 : self._rows + 1, None], inner[: self._rows, : M - 1]], axis=1)
        products = np.empty((g, k, k))
        products[:, 0] = ends[0, :k]
        products[:, 1:, 0] = ends[1:, 1:k]
        products[:, 1:, 1:] = cross[:, : k - 1, : k - 1]
        return (
            ends[0, :M].copy(),
            whole[: pairs * rows].reshape(pairs, rows, M),
            whole[pairs * rows :],
            ends[1:, :K].copy(),
            products,
        )
