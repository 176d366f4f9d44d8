"""Sums of products of basis functions over many rows, the bulk of a pass over data.

Three kernels give the same sums. "numpy" is always available. "fused" and "gridding" are compiled and need numba
(``pip install "certirl[fast]"``): the first computes and multiplies the functions in one pass, the second spreads every
row over a small grid at a cost that does not depend on the number of functions, with a bounded error.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any, ClassVar

import numpy as np

from certirl.functions.bases import Family
from certirl.ground.domain import Array

KERNELS = ("numpy", "fused", "gridding")
LONGEST = 8192  # rows in one chain of additions: certificates allow for the rounding of no more
# Where gridding is faster than the fused kernel (benchmarks/kernels.py): tiles of 5 × 5 functions for pairs; harmonics
# for single points, fewer in a periodic coordinate, where the position of a point needs no arccos.
_MOST_TILES = 4
_MOST_HARMONICS = {True: 13, False: 21}
_STACKED = 1 << 18  # values of a block, so that they stay in the second-level cache


class PairSums:
    """Σ φ(y) ψ(x)ᵀ over pairs, by a compiled kernel.

    Attributes:
        rows: the family φ of y.
        columns: the family ψ of x.
        kernel: "fused" or "gridding".
        n: the number of pairs.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|ψ_j|`` for every entry, up to 2^30 pairs.
    """

    def __init__(self, rows: Family, columns: Family, kernel: str | None = None) -> None:
        tiles = -(-(rows.harmonics - 1) // 5) * -(-(columns.harmonics - 1) // 5)
        self.rows, self.columns, self.n = rows, columns, 0
        self.kernel = kernel or ("fused" if tiles <= _MOST_TILES else "gridding")
        module, counts = compiled_module(self.kernel), (rows.harmonics, columns.harmonics)
        self._sums = module.Sums(counts, (rows.periodic, columns.periodic))
        self.error = float(module.error(max(counts)))

    def add(self, y: Array, x: Array) -> None:
        """Add pairs of coordinates t ∈ [-1, 1], contiguous, in double precision: ``[n]`` each."""
        self._sums.add(y, x)
        self.n += y.size

    def sums(self) -> Array:
        """Σ φ(y) ψ(x)ᵀ over all pairs so far: ``[k, k_s]``."""
        sums = self._sums.sums()
        sums[0, 0] = self.n  # exact
        return self.columns.from_harmonics(self.rows.from_harmonics(sums).T).T


class SelfSums:
    """Σ φ(x) φ(x)ᵀ over points, by a compiled kernel.

    Products of two functions are sums of harmonics, so that 2k sums suffice instead of k².

    Attributes:
        basis: the family φ.
        kernel: "fused" or "gridding".
        n: the number of points.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|φ_j|`` for every entry, up to 2^30 points.
    """

    def __init__(self, basis: Family, kernel: str | None = None) -> None:
        count = basis.doubled().size
        self.basis, self.n = basis, 0
        self.kernel = kernel or ("fused" if count <= _MOST_HARMONICS[basis.periodic] else "gridding")
        module = compiled_module(self.kernel)
        self._sums = module.Sums((count,), (basis.periodic,))
        self.error = float(module.error(count))

    def add(self, x: Array) -> None:
        """Add coordinates t ∈ [-1, 1], contiguous and in double precision: ``[n]``."""
        self._sums.add(x)
        self.n += x.size

    def sums(self) -> Array:
        """Σ φ(x) φ(x)ᵀ over all points so far: ``[k, k]``, symmetric to the last bit."""
        sums = self._sums.sums()
        sums[0] = self.n  # exact
        gram = self.basis.harmonic_products(sums)
        gram = self.basis.from_harmonics(self.basis.from_harmonics(gram).T)
        return (gram + gram.T) / 2


class JointSums:
    """Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables, by compiled kernels.

    Attributes:
        bases: the family of each variable.
        kernels: the kernels in use.
        n: the number of rows.
    """

    def __init__(self, bases: Sequence[Family], kernel: str | None = None) -> None:
        self.bases, self.n = tuple(bases), 0
        self._pairs = {
            (i, j): PairSums(self.bases[i], self.bases[j], kernel) for i, j in combinations(range(len(self.bases)), 2)
        }
        self._singles = [SelfSums(basis, kernel) for basis in self.bases]
        self.kernels = {pair.kernel for pair in self._pairs.values()} | {single.kernel for single in self._singles}

    def add(self, *states: Array) -> None:
        """Add rows, for each variable the states ``[n, 1]`` of its domain."""
        # Compiled kernels use coordinates as addresses: `to_reference` has checked and clipped every one of them.
        points = [np.ascontiguousarray(b.to_reference(s)) for b, s in zip(self.bases, states, strict=True)]
        for (i, j), pair in self._pairs.items():
            pair.add(points[i], points[j])
        for single, t in zip(self._singles, points, strict=True):
            single.add(t)
        self.n += len(points[0])

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``."""
        pairs = {pair: sums.sums() for pair, sums in self._pairs.items()}
        return pairs | {(i, i): single.sums() for i, single in enumerate(self._singles)}


class StackedSums:
    """The sums of `JointSums` with NumPy alone, as one large matrix product.

    Attributes:
        bases: the functions of each variable, anything with ``size`` and ``values(states)``.
        kernels: {"numpy"}.
        n: the number of rows.
    """

    kernels: ClassVar[set[str]] = {"numpy"}

    def __init__(self, bases: Sequence[Any]) -> None:
        self.bases, self.n = tuple(bases), 0
        self._ends = np.cumsum([0, *(basis.size for basis in self.bases)])
        self._length = int(np.clip(_STACKED // self._ends[-1], 512, LONGEST))
        self._total = np.zeros((self._ends[-1], self._ends[-1]))

    def add(self, *states: Array) -> None:
        """Add rows, for each variable the states ``[n, d]`` of its domain."""
        sums = np.zeros_like(self._total)  # rounding grows with the rows of one call and the number of calls
        for start in range(0, len(states[0]), self._length):
            block = slice(start, start + self._length)
            stack = np.concatenate([basis.values(s[block]).T for basis, s in zip(self.bases, states, strict=True)])
            sums += stack @ stack.T  # symmetric: BLAS computes one triangle
        self._total += sums
        self.n += len(states[0])

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``."""
        rows = [slice(start, end) for start, end in pairwise(self._ends)]
        return {(i, j): self._total[rows[i], rows[j]] for i, j in combinations_with_replacement(range(len(rows)), 2)}


def joint_sums(bases: Sequence[Any], *, kernel: str | None = None) -> JointSums | StackedSums:
    """An empty sum Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables.

    Args:
        bases: the functions of each variable, anything with ``size`` and ``values(states)``; compiled kernels take
            families of one coordinate.
        kernel: "numpy", "fused" or "gridding"; if omitted, the fastest that is installed.
    """
    if kernel is not None and kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    if kernel == "numpy" or not all(isinstance(basis, Family) for basis in bases):
        return StackedSums(bases)
    try:
        return JointSums(bases, kernel)
    except ImportError:
        if kernel is None:
            return StackedSums(bases)
        raise


def compiled_module(kernel: str) -> Any:
    """A module of compiled functions; an ImportError without numba, or where nothing compiled can be stored."""
    try:
        return import_module(f"certirl.kernels.{kernel}")
    except (ImportError, RuntimeError) as missing:  # RuntimeError: no place to store compiled code
        raise ImportError(f'the kernel {kernel!r} needs numba: pip install "certirl[fast]"') from missing
