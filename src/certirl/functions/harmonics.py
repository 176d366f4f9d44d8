"""Harmonics of one coordinate on [-1, 1]: sines and cosines of πt on a circle, cosines of arccos t for polynomials.

Fourier functions are harmonics: ``1, sin πt, cos πt, sin 2πt, …``. Polynomials of t = cos θ are sums of
``1, cos θ, cos 2θ, …`` (Chebyshev polynomials); a Legendre polynomial is an average of these with non-negative weights
that sum to one, so that no accuracy is lost.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from certirl.ground.domain import Array


def harmonic_table(t: Array, count: int, periodic: bool) -> Array:
    """The first harmonics at t ∈ [-1, 1] ``[n]``: ``[count, n]``; an odd number if periodic."""
    rows = np.empty((count, t.size))
    rows[0] = 1.0
    if count > 1:
        (_fill_circle if periodic else _fill_cosines)(rows, t)
    return rows


def _fill_cosines(rows: Array, t: Array) -> None:
    rows[1] = t
    have, top = 1, len(rows) - 1
    while have < top:  # T_{have + j} = 2 T_have T_j − T_{have − j}
        new = min(have, top - have)
        after = rows[have + 1 : have + new + 1]
        np.multiply(rows[1 : new + 1], 2.0 * rows[have], out=after)
        after -= rows[have - new : have][::-1]
        have += new


def _fill_circle(rows: Array, t: Array) -> None:
    sin, cos = rows[1::2], rows[0::2]  # sin[m − 1] and cos[m] hold frequency m
    # One tangent costs less than a sine and a cosine: with T = tan πt/2, sin = 2T/(1 + T²) and cos = 1 − T sin.
    tan = np.tan(t * (np.pi / 2))
    np.divide(2.0 * tan, 1.0 + tan * tan, out=sin[0])
    np.subtract(1.0, tan * sin[0], out=cos[1])
    have, top = 1, len(sin)
    while have < top:  # h_{have + j} = 2 cos_have h_j ± h_{have − j}
        new = min(have, top - have)
        twice = 2.0 * cos[have]
        cosines, sines = cos[have + 1 : have + new + 1], sin[have : have + new]
        np.multiply(cos[1 : new + 1], twice, out=cosines)
        cosines -= cos[have - new : have][::-1]
        np.multiply(sin[:new], twice, out=sines)
        sines[: have - 1] += sin[max(0, have - new - 1) : have - 1][::-1]
        have += new


def products_of_harmonics(count: int, periodic: bool) -> tuple[Array, Array]:
    """h_i h_j = Σ_t share_tij h of number index_tij, t = 0, 1, for the first harmonics: ``[2, count, count]`` each."""
    i, j = np.ogrid[:count, :count]
    if not periodic:
        return np.array([i + j, abs(i - j)]), np.full((2, count, count), 0.5)
    m, n = (i + 1) // 2, (j + 1) // 2
    sine, other = i % 2 == 1, j % 2 == 1
    total, gap = m + n, abs(m - n)
    mixed = sine != other  # a sine times a cosine is a sum of sines, anything else one of cosines
    index = np.array([2 * total - mixed, 2 * gap - (mixed & (gap > 0))])
    sign = np.where(sine & ~other, np.sign(m - n), np.sign(n - m))
    share = 0.5 * np.array([np.where(sine & other, -1.0, 1.0), np.where(mixed, sign, 1.0)])
    return index, share


def products_from_sums(sums: Array, count: int, periodic: bool) -> Array:
    """Σ h hᵀ of the first harmonics ``[count, count]`` from the sums of twice as many."""
    index, share = products_of_harmonics(count, periodic)
    return np.asarray((share * sums[index]).sum(axis=0))


def slopes_of_harmonics(count: int, periodic: bool) -> Array:
    """D with dh/dt = D h on [-1, 1] for the first harmonics, an odd number if periodic ``[count, count]``."""
    matrix = np.zeros((count, count))
    if periodic:
        for m in range(1, count // 2 + 1):
            matrix[2 * m - 1, 2 * m], matrix[2 * m, 2 * m - 1] = np.pi * m, -np.pi * m
        return matrix
    for n in range(1, count):
        matrix[n, n - 1 :: -2] = 2.0 * n
        matrix[n, 0] /= 2
    return matrix


@lru_cache(maxsize=16)
def legendre_in_harmonics(size: int) -> Array:
    """P_n = Σ_j c_nj T_j with c_nj ≥ 0 and Σ_j c_nj = 1: ``[size, size]``, read-only.

    P_n(cos θ) = Σ_i a_i a_{n−i} cos (n − 2i)θ with a_i = (2i choose i) / 4^i.
    """
    i = np.arange(1, size)
    a = np.concatenate([[1.0], np.cumprod((2 * i - 1) / (2 * i))])
    matrix = np.zeros((size, size))
    for n in range(size):
        np.add.at(matrix[n], abs(n - 2 * np.arange(n + 1)), a[: n + 1] * a[n::-1])
    matrix.flags.writeable = False
    return matrix
