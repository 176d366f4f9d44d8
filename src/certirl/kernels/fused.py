"""Sums of harmonics, of residuals and of their products in one compiled pass; needs numba.

The harmonics of a block of rows are computed, combined and multiplied while they are in the cache. The constant is left
out of every set of harmonics. Memory is indexed by sizes alone, never by the data.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial

import numpy as np
from numba import njit

from certirl.ground.domain import Array

_LENGTH = 256  # rows per block: twelve harmonics of both sides fill half of a small first-level cache
_TILE = 5  # 25 running sums and 6 factors fill the 32 vector registers
_STRETCH = 1 << 16  # rows of a partial sum, so that rounding does not grow with the number of rows
_PI = Fraction("3.14159265358979323846264338327950288419717")
# Sums may be reordered and products fused: inputs are finite, and both only shorten the chain of roundings.
OPTIONS = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"nnan", "ninf", "nsz", "contract", "reassoc"},
}


def error(count: int) -> float:
    """|error| of an entry over the number of rows: count² from recurrences, and a block's sum."""
    return 2.0**-52 * (2 * count**2 + 2**14)


def _economised(first: int, terms: int) -> tuple[float, ...]:
    """Coefficients c of Σ c_i q^i ≈ sin(πr)/r (first 1) or cos πr (first 0), q = r² ≤ 1/4.

    The Taylor series in exact arithmetic, economised: each of its last powers is replaced by the lower powers of the
    Chebyshev polynomial on [0, 1/4]. The error is at most 4e-16.
    """
    series = [(-1) ** i * _PI ** (2 * i + first) / factorial(2 * i + first) for i in range(16)]
    chebyshev = [[Fraction(1)], [Fraction(-1), Fraction(8)]]
    while len(chebyshev) < len(series):
        older, old = chebyshev[-2:]
        twice = [2 * (8 * a - b) for a, b in zip([Fraction(0), *old], [*old, Fraction(0)], strict=True)]
        chebyshev.append([a - b for a, b in zip(twice, [*older, Fraction(0), Fraction(0)], strict=True)])
    while len(series) > terms:
        last = series.pop() / chebyshev[len(series)][-1]
        series = [a - last * b for a, b in zip(series, chebyshev[len(series)][:-1], strict=True)]
    return tuple(map(float, series))


_SIN, _COS = _economised(1, 8), _economised(0, 9)


@njit(**OPTIONS)
def _circle(t, rows, count):
    """Write sin πt, cos πt, sin 2πt, … for one block, without the constant."""
    sin, cos = rows[0], rows[1]
    for i in range(t.size):
        r = abs(t[i]) - 0.5  # sin π|t| = cos πr and cos πt = −sin πr, with |πr| ≤ π/2
        q = r * r
        a, b = _COS[8] * q + _COS[7], _SIN[7]
        a, b = a * q + _COS[6], b * q + _SIN[6]
        a, b = a * q + _COS[5], b * q + _SIN[5]
        a, b = a * q + _COS[4], b * q + _SIN[4]
        a, b = a * q + _COS[3], b * q + _SIN[3]
        a, b = a * q + _COS[2], b * q + _SIN[2]
        a, b = a * q + _COS[1], b * q + _SIN[1]
        a, b = a * q + _COS[0], b * q + _SIN[0]
        sin[i] = a if t[i] > 0.0 else -a
        cos[i] = -b * r
    for row in range(2, count - 1, 2):
        s, c, next_s, next_c = rows[row - 2], rows[row - 1], rows[row], rows[row + 1]
        for i in range(t.size):
            next_s[i] = s[i] * cos[i] + c[i] * sin[i]
            next_c[i] = c[i] * cos[i] - s[i] * sin[i]


@njit(**OPTIONS)
def _cosines(t, rows, count):
    """Write T_1, T_2, … for one block, without the constant."""
    first = rows[0]
    for i in range(t.size):
        first[i] = t[i]
    if count > 2:
        second = rows[1]
        for i in range(t.size):
            second[i] = 2.0 * t[i] * t[i] - 1.0
    for row in range(2, count - 1):
        older, old, new = rows[row - 2], rows[row - 1], rows[row]
        for i in range(t.size):
            new[i] = 2.0 * first[i] * old[i] - older[i]


@njit(**OPTIONS)
def _fill(t, rows, count, circular):
    if count > 1 and circular:
        _circle(t, rows, count)
    elif count > 1:
        _cosines(t, rows, count)


@njit(**OPTIONS)
def _add_rows(rows, count, length, out):
    """Add the sum of each row of a block, the constant's first."""
    out[0] += length
    for row in range(count - 1):
        values, total = rows[row], 0.0
        for i in range(length):
            total += values[i]
        out[row + 1] += total


@njit(**OPTIONS)
def _add_five(out, column, a, b, c, d, e):
    out[column] += a
    out[column + 1] += b
    out[column + 2] += c
    out[column + 3] += d
    out[column + 4] += e


@njit(**OPTIONS)
def _add_tile(y, x, length, out, row, column):
    """Add Σ y_a x_b for five rows of each side; every sum is a variable, kept in a register."""
    y0, y1, y2, y3, y4 = y[row], y[row + 1], y[row + 2], y[row + 3], y[row + 4]
    x0, x1, x2, x3, x4 = x[column], x[column + 1], x[column + 2], x[column + 3], x[column + 4]
    s00 = s01 = s02 = s03 = s04 = 0.0
    s10 = s11 = s12 = s13 = s14 = 0.0
    s20 = s21 = s22 = s23 = s24 = 0.0
    s30 = s31 = s32 = s33 = s34 = 0.0
    s40 = s41 = s42 = s43 = s44 = 0.0
    for i in range(length):
        a, b, c, d, e = x0[i], x1[i], x2[i], x3[i], x4[i]
        f = y0[i]
        s00, s01, s02, s03, s04 = s00 + f * a, s01 + f * b, s02 + f * c, s03 + f * d, s04 + f * e
        f = y1[i]
        s10, s11, s12, s13, s14 = s10 + f * a, s11 + f * b, s12 + f * c, s13 + f * d, s14 + f * e
        f = y2[i]
        s20, s21, s22, s23, s24 = s20 + f * a, s21 + f * b, s22 + f * c, s23 + f * d, s24 + f * e
        f = y3[i]
        s30, s31, s32, s33, s34 = s30 + f * a, s31 + f * b, s32 + f * c, s33 + f * d, s34 + f * e
        f = y4[i]
        s40, s41, s42, s43, s44 = s40 + f * a, s41 + f * b, s42 + f * c, s43 + f * d, s44 + f * e
    _add_five(out[row], column, s00, s01, s02, s03, s04)
    _add_five(out[row + 1], column, s10, s11, s12, s13, s14)
    _add_five(out[row + 2], column, s20, s21, s22, s23, s24)
    _add_five(out[row + 3], column, s30, s31, s32, s33, s34)
    _add_five(out[row + 4], column, s40, s41, s42, s43, s44)


@njit(**OPTIONS)
def _add_pairs(points, rows, counts, circular, edges, out):
    """Add Σ h(y) h(x)ᵀ; products with the constant are sums of rows, written to the edges."""
    for start in range(0, points[0].size, _LENGTH):
        length = min(_LENGTH, points[0].size - start)
        for side in range(2):  # a loop: two calls would both be inlined
            _fill(points[side][start : start + length], rows[side], counts[side], circular[side])
            _add_rows(rows[side], counts[side], length, edges[side])
        for row in range(0, counts[0] - 1, _TILE):
            for column in range(0, counts[1] - 1, _TILE):
                _add_tile(rows[0], rows[1], length, out, row, column)


def _whole_tiles(count: int) -> int:
    return -(-(count - 1) // _TILE) * _TILE


class Sums:
    """Σ h(y) h(x)ᵀ for two variables, or Σ h(x) for one; arguments as for `gridding.Sums`."""

    def __init__(self, counts: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
        # A single variable is paired with the constant.
        self._shape, self._counts, self._periodic = counts, (*counts, 1)[:2], (*periodic, False)[:2]
        rows, columns = map(_whole_tiles, self._counts)
        self._rows = (np.zeros((rows, _LENGTH)), np.zeros((columns, _LENGTH)))
        self._edges = (np.zeros(self._counts[0]), np.zeros(self._counts[1]))
        self._inner, self._total = np.zeros((rows, columns)), np.zeros(self._counts)

    def add(self, *points: Array) -> None:
        """Add rows: coordinates t ∈ [-1, 1] of each variable ``[n]``."""
        rows, columns = self._counts
        for start in range(0, points[0].size, _STRETCH):
            stretch = (points[0][start : start + _STRETCH], points[-1][start : start + _STRETCH])
            _add_pairs(stretch, self._rows, self._counts, self._periodic, self._edges, self._inner)
            self._total[0] += self._edges[1]
            self._total[1:, 0] += self._edges[0][1:]
            self._total[1:, 1:] += self._inner[: rows - 1, : columns - 1]
            for part in (*self._edges, self._inner):
                part[:] = 0.0

    def sums(self) -> Array:
        """The sums over all rows so far."""
        return self._total.reshape(self._shape).copy()


# Residuals.
#
# Numbers are reached by two or three indices below: a row taken out of an array is counted as a reference to it, which
# takes as long as a hundred products. Five functions at a time, because loops over more arrays are not vectorised.


@njit(**OPTIONS)
def _combine(weights, row, functions, variable, count, length, work, out):
    """Add Σ_{j ≥ 1} w_j h_j of one variable to one row, over ``count`` harmonics."""
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
def _residuals(functions, plan, length, work):
    """Write the residuals of every action, V's last."""
    rows, fits = plan[0], plan[1]
    m = rows.shape[0]
    for out in range(fits.shape[0]):
        action, row = out // m, out % m
        constant = rows[row, 0] + fits[out, 0]
        for i in range(length):
            work[out, i] = constant
        # All functions but V are expansions in the columns.
        count = (fits if row < m - 1 else rows).shape[1] - 1
        _combine(rows, row, functions, action + 1, count, length, work, out)
        _combine(fits, out, functions, 0, fits.shape[1] - 1, length, work, out)


@njit(**OPTIONS)
def _multiply(work, first, second, length, products, out):
    """Write the products of two rows."""
    for i in range(length):
        products[out, i] = work[first, i] * work[second, i]


@njit(**OPTIONS)
def _form(functions, plan, length, work, products):
    """Write all residuals, the products of the pairs, V's residuals, and products of tuples."""
    rows, pairs, crossed, tuples, first_tuple = plan[0], plan[2], plan[3], plan[4], plan[5]
    m, g, place = rows.shape[0], functions.shape[0] - 1, 0
    _residuals(functions, plan, length, work)
    for pair in range(pairs.shape[0]):
        first, second = pairs[pair, 0] * m, pairs[pair, 1] * m
        _multiply(work, first + m - 1, second + m - 1, length, products, place)
        products[place + 1, :length] = 0.0
        for row in range(m - 1):
            for i in range(length):
                products[place + 1, i] += work[first + row, i] * work[second + row, i]
        place += 2
        if crossed:
            for row in range(m - 1):
                _multiply(work, first + row, second + m - 1, length, products, place)
                if first != second:
                    for i in range(length):
                        products[place, i] += work[first + m - 1, i] * work[second + row, i]
                place += 1
    for action in range(g):
        products[place, :length] = work[action * m + m - 1, :length]
        place += 1
    for number in range(tuples.shape[0]):
        a, b, c = tuples[number, 0] * m + m - 1, tuples[number, 1] * m + m - 1, tuples[number, 2] * m + m - 1
        out = first_tuple + number
        for i in range(length):
            products[out, i] = work[a, i] * work[b, i] * work[c, i]
        if tuples[number, 3] >= 0:
            d = tuples[number, 3] * m + m - 1
            for i in range(length):
                products[out, i] *= work[d, i]


@njit(**OPTIONS)
def _add_stretch(points, counts, circular, plan, room, sums):
    """Add one stretch, block by block."""
    functions, work, products = room
    edges, inner, ends, cross = sums
    narrow, first_tuple = cross.shape[1], plan[5]
    for start in range(0, points.shape[1], _LENGTH):
        length = min(_LENGTH, points.shape[1] - start)
        for variable in range(points.shape[0]):
            count = counts[2] if variable == 0 else counts[1]
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
            for column in range(0, counts[0] - 1 if row < first_tuple else counts[2] - 1, _TILE):
                _add_tile(products, functions[0], length, inner, row, column)


class Residuals:
    """Σ χ, Σ h(s'), Σ h(s') xᵀ and Σ χ times the products of residuals, for g actions tried at the same states.

    The residuals of action c are Σ_j rows_ij h_j(s'_c) − Σ_j fits_cij x_j, i = 1, …, m, the last one that of V.

    Args:
        counts: how many harmonics χ of s, how many of s', and how many of s for the tuples, the constant included.
        circular: sines and cosines of πt; otherwise cosines of arccos t.
        rows: the functions in h ``[m, K]``.
        fits: their guesses in x ``[g, m, k]``.
        pairs: the pairs of actions whose residuals are multiplied ``[P, 2]``, as numbers below g.
        crossed: whether residuals of V and of every other function are multiplied too.
        tuples: threes, ended by -1, and fours of actions of which the residuals of V are multiplied ``[H, 4]``.
    """

    def __init__(
        self,
        counts: tuple[int, int, int],
        circular: bool,
        rows: Array,
        fits: Array,
        pairs: Array,
        crossed: bool,
        tuples: Array,
    ) -> None:
        g, m, k = fits.shape
        counts = (*counts[:2], counts[2] if len(tuples) else counts[0])
        self._counts, self._circular, self._k = counts, circular, k
        wide, high, narrow = (max(_whole_tiles(count), _TILE) for count in (max(counts[0], counts[2]), counts[1], k))
        high = max(high, narrow)
        padded, subtracted = np.zeros((m, high + 1)), np.zeros((g * m, narrow + 1))
        padded[:, : rows.shape[1]], subtracted[:, :k] = rows, -fits.reshape(g * m, k)
        self._rows = len(pairs) * (m + 1 if crossed else 2) + g
        self._shape, self._first_tuple = (len(pairs), m + 1 if crossed else 2, g), _whole_tiles(self._rows + 1)
        numbers = (np.ascontiguousarray(part, dtype=np.int64) for part in (pairs, tuples))
        pairs, self._tuples = numbers
        self._plan = (padded, subtracted, pairs, crossed, self._tuples, self._first_tuple)
        products = self._first_tuple + _whole_tiles(len(tuples) + 1)
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

    def sums(self) -> tuple[Array, Array, Array, Array, Array, Array]:
        """Sums over all rows so far, of the harmonics χ of s.

        Σ χ ``[M]``, Σ χ products ``[P, rows, M]``, Σ χY ``[g, M]``, Σ h(s') ``[g, K]``, Σ h(s') xᵀ ``[g, k, k]``, and
        Σ χ times the products of the tuples ``[H, M']``.
        """
        edges, inner, ends, cross = self._total
        (M, K, wider), k = self._counts, self._k
        pairs, rows, g = self._shape
        every = np.concatenate([edges[1:, None], inner[:, : wider - 1]], axis=1)
        whole, first = every[: self._rows, :M], self._first_tuple
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
            every[first : first + len(self._tuples)],
        )
