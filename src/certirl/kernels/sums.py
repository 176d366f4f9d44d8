"""Sums of products of basis functions over many rows, the bulk of a pass over data.

Three kernels give the same sums. "numpy" is always available. "fused" and "gridding" are compiled and need numba
(``pip install "certirl[fast]"``): the first computes and multiplies the functions in one pass, the second spreads every
row over a small grid at a cost that does not depend on the number of functions, with a bounded error.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import combinations_with_replacement, pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np

from certirl.functions.bases import Family
from certirl.functions.harmonics import products_from_sums
from certirl.ground.domain import Array

KERNELS = ("numpy", "fused", "gridding")
LONGEST = 8192  # rows in one chain of additions: certificates allow for the rounding of no more
# Where gridding is faster than the fused kernel (benchmarks/bench.py): tiles of 5 × 5 functions for pairs; harmonics
# for single points, fewer in a periodic coordinate, where the position of a point needs no arccos.
_MOST_TILES = 4
_MOST_HARMONICS = {True: 13, False: 21}
_STACKED = 1 << 18  # values of a block, so that they stay in the second-level cache


class ProductSums:
    """Σ φ(y) ψ(x)ᵀ over pairs of points, or Σ φ(x) φ(x)ᵀ over points, by a compiled kernel.

    Products of two functions of one point are sums of harmonics, so that 2k sums suffice instead of k².

    Attributes:
        families: φ and ψ, or φ alone.
        kernel: "fused" or "gridding".
        n: the number of rows.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|ψ_j|`` for every entry, up to 2^30 rows.
    """

    def __init__(self, *families: Family, kernel: str | None = None) -> None:
        self.families, self.n = families, 0
        if len(families) == 1:
            counts: tuple[int, ...] = (families[0]._doubled().size,)
            fused = counts[0] <= _MOST_HARMONICS[families[0].periodic]
        else:
            counts = tuple(family._harmonics for family in families)
            fused = prod(-(-(count - 1) // 5) for count in counts) <= _MOST_TILES
        self.kernel = kernel or ("fused" if fused else "gridding")
        module = compiled_module(self.kernel)
        self._sums = module.Sums(counts, tuple(family.periodic for family in families))
        self.error = float(module.error(max(counts)))

    def add(self, *points: Array) -> None:
        """Add coordinates t ∈ [-1, 1] of each family, contiguous and in double precision: ``[n]`` each."""
        self._sums.add(*points)
        self.n += points[0].size

    def sums(self) -> Array:
        """The sums over all rows so far ``[k, k_s]``; of one family ``[k, k]``, symmetric to the last bit."""
        sums = self._sums.sums()
        sums[(0,) * sums.ndim] = self.n  # exact
        if sums.ndim == 1:
            sums = products_from_sums(sums, self.families[0]._harmonics, self.families[0].periodic)
        sums = self.families[-1]._from_harmonics(self.families[0]._from_harmonics(sums).T).T
        return sums if len(self.families) > 1 else (sums + sums.T) / 2


class JointSums:
    """Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables, by compiled kernels."""

    def __init__(self, bases: Sequence[Family], kernel: str | None = None) -> None:
        self.bases, self.n = tuple(bases), 0
        pairs = combinations_with_replacement(range(len(self.bases)), 2)
        self._sums = {pair: ProductSums(*(self.bases[i] for i in dict.fromkeys(pair)), kernel=kernel) for pair in pairs}
        self.kernels = {sums.kernel for sums in self._sums.values()}

    def add(self, *states: Array) -> None:
        """Add rows, for each variable the states ``[n, 1]`` of its domain."""
        # Compiled kernels use coordinates as addresses: `to_reference` has checked and clipped every one of them.
        points = [np.ascontiguousarray(b._clipped(s)) for b, s in zip(self.bases, states, strict=True)]
        for pair, sums in self._sums.items():
            sums.add(*(points[i] for i in dict.fromkeys(pair)))
        self.n += len(points[0])

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``."""
        return {pair: sums.sums() for pair, sums in self._sums.items()}


class StackedSums:
    """The sums of `JointSums` with NumPy alone, as one large matrix product."""

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
    """An empty sum Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables."""
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
