"""Sums of residuals and of their products in one compiled pass: functions, residuals and squares meet in cache.

Functions are scaled to peaks of one, and the constant is left out of every set of them, as in `_fused`. Kernels index
memory by sizes alone, never by the data. Needs numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from certirl._fused import _LENGTH, _STRETCH, _TILE, OPTIONS, _add_rows, _add_tile, _fill, _whole_tiles
from certirl.domain import Array

COSINES, CIRCLE, LEGENDRE = 0, 1, 2


@njit(**OPTIONS)
def _legendre(t, rows, count):
    """Write P_1, P_2, … for one block by n P_n = (2n − 1) t P_{n−1} − (n − 1) P_{n−2}."""
    first = rows[0]
    for i in range(t.size):
        first[i] = t[i]
    if count > 2:
        second = rows[1]
        for i in range(t.size):
            second[i] = 1.5 * t[i] * t[i] - 0.5
    for row in range(2, count - 1):
        older, old, new = rows[row - 2], rows[row - 1], rows[row]
        ahead, back = (2.0 * row + 1.0) / (row + 1.0), row / (row + 1.0)
        for i in range(t.size):
            new[i] = ahead * first[i] * old[i] - back * older[i]


@njit(**OPTIONS)
def _subtract_tile(weights, x, length, out, row, column):
    """Take Σ_b w_ab x_b off five rows; every weight is a variable, to be kept in a register."""
    o0, o1, o2, o3, o4 = out[row], out[row + 1], out[row + 2], out[row + 3], out[row + 4]
    x0, x1, x2, x3, x4 = x[column], x[column + 1], x[column + 2], x[column + 3], x[column + 4]
    u, v, w = weights[row, column:], weights[row + 1, column:], weights[row + 2, column:]
    y, z = weights[row + 3, column:], weights[row + 4, column:]
    u0, u1, u2, u3, u4 = u[0], u[1], u[2], u[3], u[4]
    v0, v1, v2, v3, v4 = v[0], v[1], v[2], v[3], v[4]
    w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
    y0, y1, y2, y3, y4 = y[0], y[1], y[2], y[3], y[4]
    z0, z1, z2, z3, z4 = z[0], z[1], z[2], z[3], z[4]
    for i in range(length):
        a, b, c, d, e = x0[i], x1[i], x2[i], x3[i], x4[i]
        o0[i] -= u0 * a + u1 * b + u2 * c + u3 * d + u4 * e
        o1[i] -= v0 * a + v1 * b + v2 * c + v3 * d + v4 * e
        o2[i] -= w0 * a + w1 * b + w2 * c + w3 * d + w4 * e
        o3[i] -= y0 * a + y1 * b + y2 * c + y3 * d + y4 * e
        o4[i] -= z0 * a + z1 * b + z2 * c + z3 * d + z4 * e


@njit(**OPTIONS)
def _expand(weights, functions, length, out):
    """Write w_0 + Σ_j w_j f_j, five functions at a time."""
    for i in range(length):
        out[i] = weights[0]
    for j in range(0, weights.size - 1, _TILE):
        a, b, c, d, e = weights[j + 1], weights[j + 2], weights[j + 3], weights[j + 4], weights[j + 5]
        f, g, h, k, m = functions[j], functions[j + 1], functions[j + 2], functions[j + 3], functions[j + 4]
        for i in range(length):
            out[i] += a * f[i] + b * g[i] + c * h[i] + d * k[i] + e * m[i]


@njit(**OPTIONS)
def _differences(ends, expert, columns, constants, value, length, work):
    """Write what the residuals are before the guesses are taken off: functions or contrasts of s', then V(s').

    The constants of the guesses go first. Without contrasts the expert is −1.
    """
    for action in range(ends.shape[0]):
        own, first = ends[action], action * columns
        against = ends[max(expert, 0)]
        for j in range(columns - 1):
            out, mine, other, constant = work[first + j], own[j], against[j], constants[first + j]
            if expert < 0 or action == expert:
                for i in range(length):
                    out[i] = mine[i] - constant
            else:
                for i in range(length):
                    out[i] = (other[i] - mine[i]) - constant
        out, constant = work[first + columns - 1], constants[first + columns - 1]
        _expand(value, own, length, out)
        for i in range(length):
            out[i] -= constant


@njit(**OPTIONS)
def _products(one, other, length, work, start):
    """Write products of two residuals each."""
    for number in range(one.size):
        left, right, out = work[one[number]], work[other[number]], work[start + number]
        for i in range(length):
            out[i] = left[i] * right[i]


@njit(**OPTIONS)
def _add_stretch(points, counts, family, plan, pairs, room, sums):
    """Add one stretch, block by block."""
    expert, columns, constants, guesses, value = plan
    functions, work = room
    edges, inner = sums
    first = guesses.shape[0]  # residuals above, their products below
    for start in range(0, points.shape[1], _LENGTH):
        length = min(_LENGTH, points.shape[1] - start)
        for variable in range(points.shape[0]):
            t, rows, count = points[variable, start : start + length], functions[variable], counts[min(variable, 1)]
            if family == LEGENDRE and count > 1:
                _legendre(t, rows, count)
            else:
                _fill(t, rows, count, family == CIRCLE)
        x = functions[0]
        _differences(functions[1:], expert, columns, constants, value, length, work)
        for row in range(0, first, _TILE):
            for column in range(0, guesses.shape[1], _TILE):
                _subtract_tile(guesses, x, length, work, row, column)
        _products(pairs[0], pairs[1], length, work, first)
        _add_rows(x, counts[0], length, edges[0])
        _add_rows(work, work.shape[0] + 1, length, edges[1])
        for row in range(0, work.shape[0], _TILE):
            for column in range(0, guesses.shape[1] if row < first else inner.shape[1], _TILE):
                _add_tile(work, x, length, inner, row, column)


class Residuals:
    """Σ χ, Σ r x and Σ χ r r' for residuals r = f(s') − Σ_j guess_j x_j, of functions x = (1, h_1(s), …) and χ ⊃ x.

    Args:
        counts: how many χ of s and functions of s', the constant included.
        family: COSINES, CIRCLE or LEGENDRE.
        guesses: what is taken off h_1(s'), …, h_{k−1}(s'), V(s') of each action ``[m, k, k]``.
        value: V in the functions of s', the constant first.
        expert: the action whose functions those of the others are taken off first; None for no contrasts.
        pairs: the residuals whose products are wanted, as numbers 0, …, mk − 1.
    """

    def __init__(
        self,
        counts: tuple[int, int],
        family: int,
        guesses: Array,
        value: Array,
        expert: int | None,
        pairs: tuple[Array, Array],
    ) -> None:
        m, k, _ = guesses.shape
        self._counts, self._family, self._shape = counts, family, (m * k, len(pairs[0]), k)
        rows, columns, wide = _whole_tiles(m * k + 1), _whole_tiles(k), _whole_tiles(counts[0])
        constants, inner = np.zeros(rows), np.zeros((rows, columns))
        constants[: m * k], inner[: m * k, : k - 1] = guesses.reshape(m * k, k)[:, 0], guesses.reshape(m * k, k)[:, 1:]
        whole = np.zeros(_whole_tiles(value.size) + 1)
        whole[: value.size] = value
        self._plan = (-1 if expert is None else expert, k, constants, inner, whole)
        self._pairs = tuple(np.asarray(numbers, dtype=np.int64) for numbers in pairs)
        work = rows + _whole_tiles(len(pairs[0]) + 1)
        self._room = (np.zeros((m + 1, max(wide, whole.size - 1), _LENGTH)), np.zeros((work, _LENGTH)))
        self._part = ((np.zeros(counts[0]), np.zeros(work + 1)), np.zeros((work, wide)))
        self._chi, self._total = np.zeros(counts[0]), np.zeros((work, wide + 1))

    def add(self, points: Array) -> None:
        """Add rows that were checked before: coordinates t of s and of every s' ``[m + 1, n]``."""
        (chi, edge), inner = self._part
        for start in range(0, points.shape[1], _STRETCH):
            stretch = points[:, start : start + _STRETCH]
            _add_stretch(stretch, self._counts, self._family, self._plan, self._pairs, self._room, self._part)
            self._chi += chi
            self._total[:, 0] += edge[1:]
            self._total[:, 1:] += inner
            for part in (chi, edge, inner):
                part[:] = 0.0

    def sums(self) -> tuple[Array, Array, Array]:
        """Σ χ, Σ r x ``[mk, k]`` and Σ χ r r' ``[pairs, counts[0]]`` so far."""
        residuals, pairs, k = self._shape
        below = _whole_tiles(residuals + 1)
        return (
            self._chi.copy(),
            self._total[:residuals, :k].copy(),
            self._total[below : below + pairs, : self._counts[0]].copy(),
        )
