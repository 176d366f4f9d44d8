"""Sums of products of basis functions over many rows: where the time of a pass over data goes.

Three kernels give the same sums. "numpy" is always there. "fused" and "gridding" are compiled and need numba
(``pip install "certirl[fast]"``): the first makes and multiplies the functions in one pass, the second spreads every
row over a small grid at a cost that does not depend on the number of functions, with an error that has a bound
(`error`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions import harmonics as _harmonics
from certirl.functions.bases import FAMILIES, Basis, Family
from certirl.ground.domain import Array
from certirl.kernels.blocked import LONGEST

KERNELS = ("numpy", "fused", "gridding")
_MODULES = {
    "numpy": "certirl.kernels.blocked",
    "fused": "certirl.kernels.fused",
    "gridding": "certirl.kernels.gridding",
}
# Where gridding overtakes the fused kernel (benchmarks/kernels.py): tiles of 5 × 5 functions for pairs; harmonics for
# single points, fewer around the circle, where a point is placed without an arccos.
_MOST_TILES = 4
_MOST_HARMONICS = {True: 13, False: 21}
_STACKED = 1 << 18  # values of a block that stay in the second-level cache


class PairSums:
    """Σ φ(y) ψ(x)ᵀ in the making; see `pair_sums`.

    Attributes:
        rows: the basis φ of y.
        columns: the basis ψ of x.
        kernel: how the sums are made, one of KERNELS.
        n: how many pairs were added.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|ψ_j|`` for every entry, up to 2^30 pairs.
    """

    def __init__(self, rows: Basis, columns: Basis, kernel: str, module: Any) -> None:
        self.rows, self.columns, self.kernel, self.n = rows, columns, kernel, 0
        counts = (_harmonics.count(rows), _harmonics.count(columns))
        self._within = module.within
        self._sums = module.Pairs(counts, (_harmonics.is_circular(rows), _harmonics.is_circular(columns)))
        self.error = _error(kernel, module, max(counts))

    def add(self, y: ArrayLike, x: ArrayLike) -> None:
        """Add pairs (y_r, x_r), each a coordinate t ∈ [-1, 1]: ``[n]`` and ``[n]``."""
        y, x = _checked(y, "y", self._within), _checked(x, "x", self._within)
        if y.size != x.size:
            raise ValueError(f"y and x must be equally long, got {y.size} and {x.size}")
        self.take(y, x)

    def take(self, y: Array, x: Array) -> None:
        """Add pairs that were checked before."""
        self._sums.add(y, x)
        self.n += y.size

    def sums(self) -> Array:
        """Σ φ(y) ψ(x)ᵀ over all pairs so far: ``[k, k_s]``."""
        sums = self._sums.sums()
        sums[0, 0] = self.n  # known without error
        return _harmonics.combine(self.columns, _harmonics.combine(self.rows, sums).T).T


class SelfSums:
    """Σ φ(x) φ(x)ᵀ in the making; see `self_sums`.

    Attributes:
        basis: the basis φ.
        kernel: how the sums are made, one of KERNELS.
        n: how many points were added.
        error: ``|error| ≤ error · n · sup|φ_i| · sup|φ_j|`` for every entry, up to 2^30 points.
    """

    def __init__(self, basis: Family, kernel: str, module: Any) -> None:
        self.basis, self.kernel, self.n = basis, kernel, 0
        count = _harmonics.doubled(basis)
        self._within = module.within
        self._sums = module.Singles(count, _harmonics.is_circular(basis))
        self.error = _error(kernel, module, count)

    def add(self, x: ArrayLike) -> None:
        """Add points x_r, each a coordinate t ∈ [-1, 1]: ``[n]``."""
        self.take(_checked(x, "x", self._within))

    def take(self, x: Array) -> None:
        """Add points that were checked before."""
        self._sums.add(x)
        self.n += x.size

    def sums(self) -> Array:
        """Σ φ(x) φ(x)ᵀ over all points so far: ``[k, k]``, symmetric to the last bit."""
        sums = self._sums.sums()
        sums[0] = self.n
        gram = self.basis.harmonic_products(sums)
        gram = _harmonics.combine(self.basis, _harmonics.combine(self.basis, gram).T)
        return (gram + gram.T) / 2


class JointSums:
    """Σ φ_i(s_i) φ_j(s_j)ᵀ in the making, for every pair of several variables; see `joint_sums`.

    Attributes:
        bases: the basis of each variable.
        kernels: how the sums are made.
        n: how many rows were added.
    """

    def __init__(self, bases: Sequence[Family], kernel: str | None) -> None:
        self.bases, self.n = tuple(bases), 0
        self._pairs = {
            (i, j): pair_sums(self.bases[i], self.bases[j], kernel=kernel)
            for i, j in combinations(range(len(self.bases)), 2)
        }
        self._singles = [self_sums(basis, kernel=kernel) for basis in self.bases]
        self.kernels = {part.kernel for part in self._pairs.values()} | {part.kernel for part in self._singles}

    def add(self, *states: Array) -> None:
        """Add rows, for each variable the states ``[n, 1]`` of its domain."""
        within = self._singles[0]._within
        places = (basis.to_reference(s) for basis, s in zip(self.bases, states, strict=True))
        checked = [_checked(t, "states", within) for t in places]
        for (i, j), pair in self._pairs.items():
            pair.take(checked[i], checked[j])
        for single, t in zip(self._singles, checked, strict=True):
            single.take(t)
        self.n += len(checked[0])

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``."""
        found = {pair: part.sums() for pair, part in self._pairs.items()}
        return found | {(i, i): part.sums() for i, part in enumerate(self._singles)}


class StackedSums:
    """The same with NumPy alone, where one large product is better than many small ones, for anything with ``values``.

    Attributes:
        bases: anything with ``size`` and ``values(states)``.
        kernels: {"numpy"}.
        n: how many rows were added.
    """

    kernels: ClassVar[set[str]] = {"numpy"}

    def __init__(self, bases: Sequence[Any]) -> None:
        self.bases, self.n = tuple(bases), 0
        self._ends = np.cumsum([0, *(basis.size for basis in self.bases)])
        self._length = int(np.clip(_STACKED // self._ends[-1], 512, LONGEST))
        self._total = np.zeros((self._ends[-1], self._ends[-1]))

    def add(self, *states: Array) -> None:
        """Add rows, for each variable the states ``[n, d]`` of its domain."""
        part = np.zeros_like(self._total)  # rounding counts the rows of one call, then the calls
        for start in range(0, len(states[0]), self._length):
            block = slice(start, start + self._length)
            stack = np.concatenate([basis.values(s[block]).T for basis, s in zip(self.bases, states, strict=True)])
            part += stack @ stack.T  # of which BLAS works out one half
        self._total += part
        self.n += len(states[0])

    def blocks(self) -> dict[tuple[int, int], Array]:
        """Σ φ_i φ_jᵀ of variables i ≤ j: ``[k_i, k_j]``."""
        rows = [slice(start, end) for start, end in pairwise(self._ends)]
        return {(i, j): self._total[rows[i], rows[j]] for i, j in combinations_with_replacement(range(len(rows)), 2)}


def joint_sums(bases: Sequence[Any], *, kernel: str | None = None) -> JointSums | StackedSums:
    """Σ φ_i(s_i) φ_j(s_j)ᵀ for every pair of several variables, over rows that are added bit by bit.

    Args:
        bases: the basis of each variable, or anything with ``size`` and ``values(states)``, which NumPy then sums up.
        kernel: "numpy", "fused" or "gridding"; left out, the fastest that is installed.
    """
    if kernel == "numpy" or not all(getattr(basis, "kind", None) in FAMILIES for basis in bases):
        return StackedSums(bases)
    sums = JointSums(bases, kernel)
    return StackedSums(bases) if sums.kernels == {"numpy"} else sums


def pair_sums(rows: Basis, columns: Basis, *, kernel: str | None = None) -> PairSums:
    """Σ φ(y) ψ(x)ᵀ over pairs that are added bit by bit, in memory that does not grow with their number.

    Args:
        rows: the basis φ of y; its functions are taken at t ∈ [-1, 1], wherever it lives.
        columns: the basis ψ of x.
        kernel: "numpy", "fused" or "gridding"; left out, the fastest that is installed.
    """
    tiles = _tiles(_harmonics.count(rows)) * _tiles(_harmonics.count(columns))
    chosen, module = _choose(kernel, "fused" if tiles <= _MOST_TILES else "gridding")
    return PairSums(rows, columns, chosen, module)


def self_sums(basis: Family, *, kernel: str | None = None) -> SelfSums:
    """Σ φ(x) φ(x)ᵀ over points that are added bit by bit: products of two functions are sums of harmonics, k not k².

    Args:
        basis: the basis φ; its functions are taken at t ∈ [-1, 1], wherever it lives.
        kernel: "numpy", "fused" or "gridding"; left out, the fastest that is installed.
    """
    few = _harmonics.doubled(basis) <= _MOST_HARMONICS[_harmonics.is_circular(basis)]
    chosen, module = _choose(kernel, "fused" if few else "gridding")
    return SelfSums(basis, chosen, module)


def _tiles(count: int) -> int:
    return -(-(count - 1) // 5)


def _choose(asked: str | None, best: str) -> tuple[str, Any]:
    if asked is not None and asked not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {asked!r}")
    wanted = asked or best
    try:
        return wanted, import_module(_MODULES[wanted])
    except (ImportError, RuntimeError) as missing:  # RuntimeError: nowhere to keep what was compiled
        if asked is None:
            return "numpy", import_module(_MODULES["numpy"])
        raise ImportError(f'the kernel {asked!r} needs numba: pip install "certirl[fast]"') from missing


def _error(kernel: str, module: Any, count: int) -> float:
    """Gridding states its own; rounding in the recurrences grows as count², in the sums with the length of a block."""
    return float(module.ERROR) if kernel == "gridding" else 2.0**-52 * (2 * count**2 + 2**14)


def _checked(t: ArrayLike, name: str, within: Callable[[Array], bool]) -> Array:
    """A contiguous float array ``[n]`` of numbers in [-1, 1]: compiled kernels use them as addresses."""
    try:
        values = np.ascontiguousarray(t, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, got {type(t).__name__}") from None
    if np.ndim(t) != 1:
        raise ValueError(f"{name} must have shape [n], got {list(np.shape(t))}")
    if not within(values):
        first = int(np.argmin(np.abs(values) <= 1.0))
        raise ValueError(f"{name} must be coordinates in [-1, 1]: row {first} is {values[first]}")
    return values
