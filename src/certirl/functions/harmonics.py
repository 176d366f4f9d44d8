"""Harmonics: every basis function is a short sum of sines and cosines of one angle, so sums need only those.

Fourier functions are harmonics of the angle πt: ``1, sin πt, cos πt, sin 2πt, …``. Polynomials of t = cos θ are sums of
``1, cos θ, cos 2θ, …`` (Chebyshev polynomials); a Legendre polynomial is an average of them, its weights non-negative
and adding up to one, so that nothing is lost on the way.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array


def is_circular(basis: Basis) -> bool:
    """Whether the harmonics are sines and cosines of πt; if not, cosines of arccos t."""
    if basis.kind not in ("Fourier", "Legendre", "Chebyshev"):
        raise ValueError(f"sums are for Fourier, Legendre and Chebyshev bases, got {basis}")
    return basis.kind == "Fourier"


def count(basis: Basis) -> int:
    """How many harmonics span the basis; a sine never goes without its cosine."""
    return basis.size | 1 if is_circular(basis) else basis.size


def doubled(basis: Basis) -> int:
    """How many harmonics span the products of two basis functions."""
    return 2 * count(basis) - 1


def combine(basis: Basis, sums: Array) -> Array:
    """Σ φ(t) from Σ h(t), along the first axis: ``[k, …]`` from ``[count, …]``."""
    scale = basis.sup().reshape(-1, *[1] * (sums.ndim - 1))
    if basis.kind == "Legendre":
        return np.tensordot(connection(basis.size), sums, axes=1) * scale
    return sums[: basis.size] * scale


def products(basis: Basis, sums: Array) -> Array:
    """Σ h hᵀ ``[count, count]`` from the sums of the harmonics up to twice the frequency ``[doubled]``."""
    n = count(basis)
    if not is_circular(basis):
        i, j = np.ogrid[:n, :n]
        return (sums[i + j] + sums[abs(i - j)]) / 2
    sin, cos = np.concatenate([[0.0], sums[1::2]]), sums[0::2]
    m = np.arange(n // 2 + 1)
    total, gap = np.add.outer(m, m), np.subtract.outer(m, m)
    gram = np.empty((n, n))
    gram[0::2, 0::2] = (cos[abs(gap)] + cos[total]) / 2
    gram[1::2, 1::2] = ((cos[abs(gap)] - cos[total]) / 2)[1:, 1:]
    gram[1::2, 0::2] = ((sin[total] + np.sign(gap) * sin[abs(gap)]) / 2)[1:]
    gram[0::2, 1::2] = gram[1::2, 0::2].T
    return gram


@lru_cache(maxsize=16)
def connection(size: int) -> Array:
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
