"""Sums over data of residuals r = f(s') − f̂(s): Σ x xᵀ, Σ r x and Σ χ r r', in the products χ of the columns.

Two kernels give the same sums. "numpy" is always there and takes any reward. "fused" is compiled, needs numba
(``pip install "certirl[fast]"``), and takes rewards that are expansions in the columns' family.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl import _harmonics
from certirl.bases import FAMILIES, Basis
from certirl.domain import Array
from certirl.products import lifted, product_basis
from certirl.reward import RewardLike

KERNELS = ("numpy", "fused")
# Numbers worked on at once: few enough for functions, residuals and squares of the same states to meet in cache; but
# never fewer states than keep NumPy busy.
_WORKSPACE, _BUSY = 2**18, 2048


@dataclass(frozen=True, eq=False)
class Guesses:
    """What is expected of s' given s, for m actions at once; the residuals are what is left.

    Attributes:
        columns: φ, the k_s functions of the state.
        rows: the functions of s' that V is made of; the columns are the first of them.
        value: V less its rest, in the rows.
        rest: a bounded function, the remaining part of V, or None.
        fits: what is taken off φ_1(s'), …, φ_k(s') and V(s') of every action ``[m, k_s + 1, k_s]``.
        expert: the one of the m actions whose φ(s') those of the others are taken off first; None for no contrasts.
    """

    columns: Basis
    rows: Basis
    value: Array
    rest: RewardLike | None
    fits: Array
    expert: int | None

    @property
    def products(self) -> Basis:
        """χ."""
        return product_basis(self.columns)

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pairs c ≤ d of actions."""
        one, other = np.triu_indices(len(self.fits))
        return one, other


class StackedResiduals:
    """The sums with NumPy alone, where one large product is better than many small ones; see `residual_sums`.

    Attributes:
        guesses: what is summed up.
        kernel: "numpy".
        n: how many states were added.
    """

    kernel = "numpy"

    def __init__(self, guesses: Guesses) -> None:
        self.guesses, self.n = guesses, 0
        m, rows, ks = guesses.fits.shape
        M = guesses.products.size
        self._gram, self._first = np.zeros((ks, ks)), np.zeros((m * rows, ks))
        self._second = np.zeros((m * ks + len(guesses.pairs[0]), M))
        numbers = m * guesses.rows.size + len(self._first) + len(self._second) + M
        self._length = max(_WORKSPACE // numbers, _BUSY)

    def add(self, states: Array, next_states: Array) -> None:
        """Add states ``[n, d]`` and next states ``[m, n, d]``."""
        ks = self.guesses.columns.size
        # Blocks are added up within the call first: rounding counts the terms of a call, then the calls.
        gram, first, second = (np.zeros_like(total) for total in (self._gram, self._first, self._second))
        for start in range(0, len(states), self._length):
            block = slice(start, start + self._length)
            chi = self.guesses.products.values(states[block]).T
            x = chi[:ks]
            residuals = self._residuals(x, next_states[:, block])
            gram += x @ x.T
            first += residuals.reshape(len(first), -1) @ x.T
            second += _squares(residuals, self.guesses.pairs) @ chi.T
        self._gram += gram
        self._first += first
        self._second += second
        self.n += len(states)

    def _residuals(self, x: Array, ends: Array) -> Array:
        """E_1, …, E_k and Y of every action of a block ``[m, k_s + 1, n]``."""
        m, n, ks, expert = len(ends), len(ends[0]), len(x), self.guesses.expert
        states = ends.reshape(m * n, -1)
        phi = self.guesses.rows.values(states).T
        value = self.guesses.value @ phi
        if self.guesses.rest is not None:
            value += np.asarray(self.guesses.rest(states), dtype=np.float64).reshape(m * n)
        if not np.isfinite(value).all():
            raise ValueError("the reward must be finite at every state of the domain")
        phi = phi[:ks].reshape(ks, m, n).swapaxes(0, 1)
        residuals = (self.guesses.fits.reshape(-1, ks) @ x).reshape(m, ks + 1, n)
        for i, errors in enumerate(residuals[:, :ks]):
            np.subtract(phi[i if expert is None else expert], errors, out=errors)
            if expert is not None and i != expert:
                errors -= phi[i]
        np.subtract(value.reshape(m, n), residuals[:, ks], out=residuals[:, ks])
        return np.asarray(residuals)

    def sums(self) -> tuple[Array, Array, Array, Array]:
        """Σ x xᵀ, Σ r x ``[m, k_s + 1, k_s]``, Σ χ E² ``[m, k_s, M]`` and Σ χ Y_cY_d ``[pairs, M]`` so far."""
        m, rows, ks = self.guesses.fits.shape
        wobble, spread = np.split(self._second, [m * ks])
        return self._gram.copy(), self._first.reshape(m, rows, ks).copy(), wobble.reshape(m, ks, -1).copy(), spread


def _squares(residuals: Array, pairs: tuple[Array, Array]) -> Array:
    """E_ci² for every action and function, then Y_cY_d for every pair of actions ``[m·k_s + pairs, n]``."""
    m, rows, n = residuals.shape
    E, Y = residuals[:, :-1], residuals[:, -1]
    squares = np.empty((m * (rows - 1) + len(pairs[0]), n))
    np.multiply(E, E, out=squares[: m * (rows - 1)].reshape(E.shape))
    np.multiply(Y[pairs[0]], Y[pairs[1]], out=squares[m * (rows - 1) :])
    return squares


class FusedResiduals:
    """The sums by a compiled kernel, which works with harmonics of s; see `residual_sums`.

    The functions of s enter through sums over expansions alone, and change of family loses nothing (`_harmonics`);
    those of s' stand for themselves. Constants are mapped to themselves, so that E_1 = 0 is not worked out.

    Attributes:
        guesses: what is summed up.
        kernel: "fused".
        n: how many states were added.
    """

    kernel = "fused"

    def __init__(self, guesses: Guesses, module: Any) -> None:
        self.guesses, self.n = guesses, 0
        columns, rows, (m, _, ks) = guesses.columns, guesses.rows, guesses.fits.shape
        if not np.isfinite(guesses.value).all():
            raise ValueError("the reward must be finite at every state of the domain")
        families = {"Chebyshev": module.COSINES, "Fourier": module.CIRCLE, "Legendre": module.LEGENDRE}
        self._peaks = columns.sup()[1:]  # of φ_2, …, φ_k; E is scaled like them
        E, Y = guesses.fits[:, 1:-1] / self._peaks[:, None], guesses.fits[:, -1]
        in_harmonics = _harmonics.combine(columns, np.eye(_harmonics.count(columns)))
        self._sums = module.Residuals(
            (_harmonics.doubled(columns), _harmonics.count(rows)),
            families[columns.kind],
            np.concatenate([E.reshape(m * (ks - 1), ks), Y]) @ in_harmonics,
            guesses.value * rows.sup(),
            ks - 1,
            guesses.expert,
        )

    def add(self, states: Array, next_states: Array) -> None:
        """Add states ``[n, 1]`` and next states ``[m, n, 1]``."""
        columns, m = self.guesses.columns, len(self.guesses.fits)
        if next_states.shape[:2] != (m, len(states)):
            raise ValueError(
                f"{len(states)} states under {m} actions need next states [{m}, {len(states)}, 1], "
                f"got {list(next_states.shape)}"
            )
        points = np.empty((m + 1, len(states)))
        points[0] = columns.to_reference(states)  # finite and in [-1, 1] from here on
        for row, ends in zip(points[1:], next_states, strict=True):
            row[:] = columns.to_reference(ends)
        self._sums.add(points)
        self.n += len(states)

    def sums(self) -> tuple[Array, Array, Array, Array]:
        """Σ x xᵀ, Σ r x ``[m, k_s + 1, k_s]``, Σ χ E² ``[m, k_s, M]`` and Σ χ Y_cY_d ``[pairs, M]`` so far."""
        m, rows, ks = self.guesses.fits.shape
        columns, wide = self.guesses.columns, self.guesses.products
        chi, residuals, products = self._sums.sums()
        chi[0] = self.n  # known without error
        E, Y = np.split(_harmonics.combine(columns, residuals.T).T, [m * (ks - 1)])
        squares, spread = np.split(_harmonics.combine(wide, products.T).T, [m * (ks - 1)])
        first, wobble = np.zeros((m, rows, ks)), np.zeros((m, ks, wide.size))
        first[:, 1:-1] = E.reshape(m, ks - 1, ks) * self._peaks[:, None]
        first[:, -1] = Y
        wobble[:, 1:] = squares.reshape(m, ks - 1, wide.size) * self._peaks[:, None] ** 2
        return lifted(_harmonics.combine(wide, chi), columns), first, wobble, spread


def residual_sums(guesses: Guesses, *, kernel: str | None = None) -> StackedResiduals | FusedResiduals:
    """Σ x xᵀ, Σ r x and Σ χ r r' over rows that are added bit by bit, in memory that does not grow with their number.

    Args:
        guesses: what the residuals are.
        kernel: "numpy" or "fused"; left out, the fastest that is installed and can do it.
    """
    if kernel is not None and kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    able = _can_be_compiled(guesses)
    if kernel == "fused" and not able:
        raise ValueError("the kernel 'fused' is for rewards that are expansions in the columns' family")
    if kernel == "numpy" or not able:
        return StackedResiduals(guesses)
    try:
        return FusedResiduals(guesses, import_module("certirl._fused_residuals"))
    except ImportError as missing:
        if kernel is None:
            return StackedResiduals(guesses)
        raise ImportError("the kernel 'fused' needs numba: pip install \"certirl[fast]\"") from missing


def _can_be_compiled(guesses: Guesses) -> bool:
    """Whether V is an expansion in a known family and constants are mapped to themselves, so that E_1 = 0."""
    known = guesses.rest is None and guesses.columns.kind in FAMILIES
    constants = np.zeros_like(guesses.fits[:, 0])
    constants[slice(None) if guesses.expert is None else guesses.expert, 0] = 1.0
    return known and np.array_equal(guesses.fits[:, 0], constants)
