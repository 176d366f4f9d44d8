"""Sums of residuals and of their products in one compiled pass: functions, residuals and squares meet in cache.

Functions are scaled to peaks of one, and the constant is left out of every set of them, as in `_fused`. Kernels index
memory by sizes alone, never by the data. Needs numba.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from certirl.ground.domain import Array
from certirl.kernels.fused import _LENGTH, _STRETCH, _TILE, OPTIONS, _add_rows, _add_tile, _fill, _whole_tiles

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
def _fill_all(points, counts, family, start, length, functions):
    """Write the harmonics of s and the functions of every s', which are Legendre polynomials or harmonics too."""
    for variable in range(points.shape[0]):
        t, rows, count = points[variable, start : start + length], functions[variable], counts[min(variable, 1)]
        if family == LEGENDRE and variable > 0 and count > 1:
            _legendre(t, rows, count)
        else:
            _fill(t, rows, count, family == CIRCLE)


# Numbers are reached by two or three indices below: a row taken out of an array is counted as a reference to it, which
# takes as long as a hundred products. Five functions at a time, because loops over more arrays are not vectorised.


@njit(**OPTIONS)
def _combine(weights, row, functions, variable, first, length, work, out):
    """Add Σ_{j > first} w_j f_j of one variable to one row."""
    for j in range(first, weights.shape[1] - 1, _TILE):
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
def _form(functions, plan, length, work):
    """Write E and Y of every action, then E² and Y_cY_d; a residual is squared while it is in the nearest cache."""
    expert, width, guesses, value = plan
    actions, below = functions.shape[0] - 1, guesses.shape[0]
    for row in range(below):
        constant = guesses[row, 0]
        if row >= actions * width:
            for i in range(length):
                work[row, i] = constant
            _combine(value, 0, functions, row - actions * width + 1, 0, length, work, row)
        else:
            action, j = row // width, row % width
            if expert >= 0 and action != expert:
                for i in range(length):
                    work[row, i] = (functions[expert + 1, j, i] - functions[action + 1, j, i]) + constant
            else:
                for i in range(length):
                    work[row, i] = functions[action + 1, j, i] + constant
        _combine(guesses, row, functions, 0, 0, length, work, row)
        if row < actions * width:
            for i in range(length):
                work[below + row, i] = work[row, i] * work[row, i]
    row = below + actions * width
    for one in range(actions * width, below):
        for other in range(one, below):
            for i in range(length):
                work[row, i] = work[one, i] * work[other, i]
            row += 1


@njit(**OPTIONS)
def _add_stretch(points, counts, family, plan, room, sums):
    """Add one stretch, block by block."""
    functions, work = room
    edges, inner, ends = sums
    narrow, differences = plan[2].shape[1] - 1, (points.shape[0] - 1) * plan[1]
    for start in range(0, points.shape[1], _LENGTH):
        length = min(_LENGTH, points.shape[1] - start)
        _fill_all(points, counts, family, start, length, functions)
        _form(functions, plan, length, work)
        for variable in range(points.shape[0]):  # a loop, not two calls: either would be compiled into place
            _add_rows(functions[variable], counts[min(variable, 1)], length, ends[variable])
        _add_rows(work, work.shape[0] + 1, length, edges)
        for row in range(0, work.shape[0], _TILE):
            # Of E alone only the sums with x are wanted; of what follows, those with all of χ.
            for column in range(0, narrow if row + _TILE <= differences else inner.shape[1], _TILE):
                _add_tile(work, functions[0], length, inner, row, column)


class Residuals:
    """Σ χ, Σ r x, Σ χ E² and Σ χ Y_cY_d, where x and χ are the first harmonics of s, fewer and more.

    The residuals r of m actions are E = f_j(s') − Σ_i guess_i x_i, j = 1, …, width, of one action after the other, and
    then Y = V(s') − Σ_i guess_i x_i of every action.

    Args:
        counts: how many χ and how many functions f of s', the constant included.
        family: that of f, COSINES, CIRCLE or LEGENDRE.
        guesses: those of E and of Y, in x, the constant first ``[m·width + m, x]``.
        value: V in f, the constant first.
        width: how many functions f have residuals.
        expert: the action off whose f_j(s') those of the others are taken instead; None for no contrasts.
    """

    def __init__(
        self, counts: tuple[int, int], family: int, guesses: Array, value: Array, width: int, expert: int | None
    ) -> None:
        residuals, k = guesses.shape
        m = residuals // (width + 1)
        narrow, wide, high = (max(_whole_tiles(count), _TILE) for count in (k, counts[0], value.size))
        self._counts, self._family = counts, family
        self._shape = (residuals, residuals + m * width + m * (m + 1) // 2, k)
        taken, whole = np.zeros((residuals, narrow + 1)), np.zeros((1, high + 1))
        taken[:, :k], whole[0, : value.size] = -guesses, value
        taken[m * width :, 0] += value[0]
        self._plan = (-1 if expert is None else expert, width, taken, whole)
        work = _whole_tiles(self._shape[1] + 1)
        self._room = (np.zeros((m + 1, max(wide, high), _LENGTH)), np.zeros((work, _LENGTH)))
        ends = np.zeros((m + 1, max(counts)))  # Σ χ, and below it Σ f of every action
        self._part = (np.zeros(work + 1), np.zeros((work, wide)), ends)
        self._ends, self._total = np.zeros_like(ends), np.zeros((work, wide + 1))

    def add(self, points: Array) -> None:
        """Add rows that were checked before: coordinates t of s and of every s' ``[m + 1, n]``."""
        edge, inner, ends = self._part
        for start in range(0, points.shape[1], _STRETCH):
            stretch = points[:, start : start + _STRETCH]
            _add_stretch(stretch, self._counts, self._family, self._plan, self._room, self._part)
            self._ends += ends
            self._total[:, 0] += edge[1:]
            self._total[:, 1:] += inner
            for part in self._part:
                part[:] = 0.0

    def sums(self) -> tuple[Array, Array, Array, Array]:
        """Σ χ, Σ r x ``[m·width + m, x]``, sums of products ``[m·width + m(m + 1)/2, χ]`` and Σ f ``[m, f]`` so far."""
        residuals, rows, k = self._shape
        first, second = self._total[:residuals, :k], self._total[residuals:rows, : self._counts[0]]
        return (
            self._ends[0, : self._counts[0]].copy(),
            first.copy(),
            second.copy(),
            self._ends[1:, : self._counts[1]].copy(),
        )
