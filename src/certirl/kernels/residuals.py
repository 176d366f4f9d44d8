"""Sums over data of residuals r = f(s') − f̂(s): Σ x xᵀ, Σ r x and Σ χ r r', in the products χ of the columns.

Beside them Σ f(s'), by which a file ties its reward to its sums.

Two kernels give the same sums. "numpy" is always there and takes any reward. "fused" is compiled, needs numba
(``pip install "certirl[fast]"``), and takes rewards that are expansions in the columns' family. Both work with
harmonics of s, whose sums give those of any family without loss (`_harmonics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.functions import harmonics as _harmonics
from certirl.functions.bases import FAMILIES, Basis
from certirl.functions.products import lifted, product_basis
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array
from certirl.kernels.blocked import LONGEST, Side

KERNELS = ("numpy", "fused")
# Numbers worked on at once: few enough for functions, residuals and squares of the same states to meet in cache; but
# never fewer states than keep NumPy busy, nor more than `bounds` allows for in one chain of additions.
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
        columns, (m, rows, ks) = guesses.columns, guesses.fits.shape
        self._taken = guesses.fits.reshape(m * rows, ks) @ _in_harmonics(columns)
        self._chi = np.zeros(_harmonics.doubled(columns))
        self._first = np.zeros((m * rows, _harmonics.count(columns)))
        self._second = np.zeros((m * ks + len(guesses.pairs[0]), self._chi.size))
        self._reached = np.zeros((m, guesses.rows.size))
        numbers = m * guesses.rows.size + len(self._first) + len(self._second) + self._chi.size
        self._length = int(np.clip(_WORKSPACE // numbers, _BUSY, LONGEST))
        self._side = Side(self._chi.size, _harmonics.is_circular(columns), self._length)
        self._room = [np.empty(len(total) * self._length) for total in (self._first, self._second)]

    def add(self, states: Array, next_states: Array) -> None:
        """Add states ``[n, d]`` and next states ``[m, n, d]``."""
        count, t = self._first.shape[1], self.guesses.columns.to_reference(states)
        # Blocks are added up within the call first: rounding counts the terms of a call, then the calls.
        chi, first, second = (np.zeros_like(total) for total in (self._chi, self._first, self._second))
        for start in range(0, len(t), self._length):
            block = slice(start, start + self._length)
            harmonics = self._side.values(t[block])
            x = harmonics[:count]
            residuals, squares = (room[: room.size // self._length * x.shape[1]] for room in self._room)
            residuals, squares = residuals.reshape(len(first), -1), squares.reshape(len(second), -1)
            self._form(x, next_states[:, block], residuals, squares)
            chi += harmonics.sum(axis=1)
            first += residuals @ x.T
            second += squares @ harmonics.T
        self._chi += chi
        self._first += first
        self._second += second
        self.n += len(t)

    def _form(self, x: Array, ends: Array, residuals: Array, squares: Array) -> None:
        """Write E_1, …, E_k and Y of every action of a block, then E_ci² and Y_cY_d for every pair of actions."""
        m, n, ks, expert = len(ends), len(ends[0]), self.guesses.columns.size, self.guesses.expert
        states = ends.reshape(m * n, -1)
        phi = self.guesses.rows.values(states).T
        value = self.guesses.value @ phi
        if self.guesses.rest is not None:
            value += values_of(self.guesses.rest, states)
        if not np.isfinite(value).all():
            raise ValueError("the reward must be finite at every state of the domain")
        self._reached += phi.reshape(-1, m, n).sum(axis=2).T
        phi = phi[:ks].reshape(ks, m, n).swapaxes(0, 1)
        np.matmul(self._taken, x, out=residuals)
        E, Y = np.split(residuals.reshape(m, ks + 1, n), [ks], axis=1)
        for i, errors in enumerate(E):
            np.subtract(phi[i if expert is None else expert], errors, out=errors)
            if expert is not None and i != expert:
                errors -= phi[i]
        np.subtract(value.reshape(m, 1, n), Y, out=Y)
        np.multiply(E, E, out=squares[: m * ks].reshape(E.shape))
        for row, one, other in zip(squares[m * ks :], *self.guesses.pairs, strict=True):
            np.multiply(Y[one, 0], Y[other, 0], out=row)

    def sums(self) -> tuple[Array, Array, Array, Array, Array]:
        """Σ x xᵀ, Σ r x ``[m, k_s + 1, k_s]``, Σ χ E² ``[m, k_s, M]``, Σ χ YY' ``[pairs, M]``, Σ f(s') ``[m, k]``."""
        m, rows, ks = self.guesses.fits.shape
        columns, wide = self.guesses.columns, self.guesses.products
        first, second = _in_family(columns, self._first), _in_family(wide, self._second)
        wobble, spread = np.split(second, [m * ks])
        return (
            lifted(_in_family(wide, self._chi), columns),
            first.reshape(m, rows, ks),
            wobble.reshape(m, ks, wide.size),
            spread,
            self._reached.copy(),
        )


def _in_harmonics(basis: Basis) -> Array:
    """The matrix that takes coefficients in the basis to those in its harmonics ``[k, count]``."""
    return _harmonics.combine(basis, np.eye(_harmonics.count(basis)))


def _in_family(basis: Basis, sums: Array) -> Array:
    """Sums with the functions of the basis ``[…, k]`` from those with its harmonics ``[…, count]``."""
    return _harmonics.combine(basis, sums.T).T


class FusedResiduals:
    """The sums by a compiled kernel, which works with harmonics of s; see `residual_sums`.

    Constants are mapped to themselves, so that E_1 = 0 is not worked out.

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
        self._sums = module.Residuals(
            (_harmonics.doubled(columns), _harmonics.count(rows)),
            families[columns.kind],
            np.concatenate([E.reshape(m * (ks - 1), ks), Y]) @ _in_harmonics(columns),
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

    def sums(self) -> tuple[Array, Array, Array, Array, Array]:
        """Σ x xᵀ, Σ r x ``[m, k_s + 1, k_s]``, Σ χ E² ``[m, k_s, M]``, Σ χ YY' ``[pairs, M]``, Σ f(s') ``[m, k]``."""
        m, rows, ks = self.guesses.fits.shape
        columns, wide = self.guesses.columns, self.guesses.products
        chi, residuals, products, reached = self._sums.sums()
        chi[0] = self.n  # known without error
        E, Y = np.split(_in_family(columns, residuals), [m * (ks - 1)])
        squares, spread = np.split(_in_family(wide, products), [m * (ks - 1)])
        first, wobble = np.zeros((m, rows, ks)), np.zeros((m, ks, wide.size))
        first[:, 1:-1] = E.reshape(m, ks - 1, ks) * self._peaks[:, None]
        first[:, -1] = Y
        wobble[:, 1:] = squares.reshape(m, ks - 1, wide.size) * self._peaks[:, None] ** 2
        reached[:, 0] = self.n
        reached = reached[:, : self.guesses.rows.size] * self.guesses.rows.sup()
        return lifted(_in_family(wide, chi), columns), first, wobble, spread, reached


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
        return FusedResiduals(guesses, import_module("certirl.kernels.fused_residuals"))
    except (ImportError, RuntimeError) as missing:  # RuntimeError: nowhere to keep what was compiled
        if kernel is None:
            return StackedResiduals(guesses)
        raise ImportError("the kernel 'fused' needs numba: pip install \"certirl[fast]\"") from missing


def _can_be_compiled(guesses: Guesses) -> bool:
    """Whether V is an expansion in a known family and constants are mapped to themselves, so that E_1 = 0."""
    known = guesses.rest is None and guesses.columns.kind in FAMILIES
    constants = np.zeros_like(guesses.fits[:, 0])
    constants[slice(None) if guesses.expert is None else guesses.expert, 0] = 1.0
    return known and np.array_equal(guesses.fits[:, 0], constants)
