"""What fresh data say about one fixed reward: the sums that a certificate needs, mergeable like moments.

Before the fresh data are touched a `Surrogate` is fixed: the reward R, a guess V of the expert's value, and guesses of
what every action does to V and to the column functions. The evidence then measures how wrong these guesses are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from certirl._map import fold
from certirl.bases import Basis
from certirl.domain import Array, freeze
from certirl.extrema import minimum
from certirl.moments import Moments, accumulate
from certirl.products import lifted, product_basis
from certirl.reward import Reward, RewardLike
from certirl.tensors import to_host
from certirl.transitions import Chunk, Piece, chunks_of

# Numbers worked on at once: few enough for functions, residuals and squares of the same states to meet in cache; but
# never fewer states than keep NumPy busy.
_WORKSPACE, _BUSY = 2**18, 2048


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Everything that is fixed before the fresh data are seen.

    Attributes:
        columns: the k_s functions of the state.
        reward: R, any bounded function of states ``[n, d]``.
        discount, expert: γ and π.
        g: P̂_πV, so that V = R + γ Σ g_j φ_j ``[k_s]``; any choice is sound, a good one leaves little to be found out.
        fits: P̂_cV for every action ``[A, k_s]``; that of the expert is g.
        Z: P̂_cφ_i for every action ``[A, k_s, k_s]``, first row (1, 0, …).
        low, high: V lies between them.
    """

    columns: Basis
    reward: RewardLike
    discount: float
    expert: int
    g: Array
    fits: Array
    Z: Array
    low: float
    high: float

    @property
    def rivals(self) -> tuple[int, ...]:
        """The other actions."""
        return tuple(a for a in range(len(self.Z)) if a != self.expert)

    def value(self, states: Array) -> Array:
        """V at states ``[n]``."""
        reward = np.asarray(self.reward(states), dtype=np.float64).reshape(len(states))
        return reward + self.discount * (self.columns.values(states) @ self.g)


@dataclass(frozen=True, eq=False)
class _Observables:
    """The column functions and the reward, side by side, to be measured at next states like a row basis."""

    columns: Basis
    reward: RewardLike

    @property
    def size(self) -> int:
        return self.columns.size + 1

    def values(self, states: Array) -> Array:
        return np.column_stack([self.columns.values(states), np.asarray(self.reward(states)).reshape(len(states))])


def fit_surrogate(
    reward: RewardLike,
    training: Iterable[Piece],
    *,
    columns: Basis,
    n_actions: int,
    discount: float,
    expert: int,
    reward_range: tuple[float, float] | None = None,
) -> Surrogate:
    """Guess V = R + γP_πV and the operators by least squares on training data.

    Args:
        reward: R.
        training: data that the evidence will not use.
        columns: the functions of the state.
        n_actions: how many actions there are.
        discount: γ.
        expert: π.
        reward_range: bounds on R; needed unless R is an expansion in the same family.
    """
    rows: Any = _Observables(columns, reward)
    if _same_family(reward, columns):
        rows = columns.resized(max(reward.basis.size, columns.size))
    ((moments,),) = accumulate(training, [(rows, columns)], n_actions=n_actions)
    return surrogate_of(reward, moments, discount=discount, expert=expert, reward_range=reward_range)


def surrogate_of(
    reward: RewardLike,
    moments: Moments,
    *,
    discount: float,
    expert: int,
    reward_range: tuple[float, float] | None = None,
) -> Surrogate:
    """The same from moments of the training data, whose rows hold the columns and the reward."""
    columns, ks = moments.columns, moments.columns.size
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)  # a poor guess is sound, only wasteful
    Z = regression[:, :ks].copy()
    Z[:, 0] = np.eye(ks)[0]
    of_reward = regression[:, -1]  # as in `_Observables`
    if _same_family(reward, columns):
        of_reward = np.einsum("i,aij->aj", reward.coefficients, regression[:, : reward.basis.size])
    g = np.linalg.solve(np.eye(ks) - discount * Z[expert].T, of_reward[expert])
    fits = of_reward + discount * np.einsum("i,aij->aj", g, Z)
    fits[expert] = g  # the same to rounding, and then exactly
    low, high = _value_range(reward, columns, discount * g, reward_range)
    return Surrogate(columns, reward, discount, expert, g, fits, Z, low, high)


def _value_range(
    reward: RewardLike, columns: Basis, added: Array, reward_range: tuple[float, float] | None
) -> tuple[float, float]:
    """Bounds on V = R + Σ added_j φ_j: exact for an expansion in the same family, else from the declared range of R."""
    if _same_family(reward, columns):
        basis, total = _plus_expansion(reward, columns, added)
        return minimum(basis, total)[1], -minimum(basis, -total)[1]
    if reward_range is None:
        raise ValueError("a reward that is not an expansion in this basis needs reward_range=(low, high)")
    low, high = reward_range
    return low + minimum(columns, added)[1], high - minimum(columns, -added)[1]


def _same_family(reward: RewardLike, columns: Basis) -> TypeGuard[Reward]:
    """Whether R is an expansion in the columns' family, on their interval."""
    return isinstance(reward, Reward) and reward.basis.resized(columns.size) == columns


def _plus_expansion(reward: Reward, columns: Basis, added: Array) -> tuple[Basis, Array]:
    """R + Σ added_j φ_j as one expansion."""
    total = np.zeros(max(reward.basis.size, columns.size))
    total[: reward.basis.size] += reward.coefficients
    total[: columns.size] += added
    return reward.basis.resized(len(total)), total


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums over fresh transitions, with x = φ(s).

    The surprise of action c is Y_c = V(s') − P̂_cV(s), that of function i is E_ci = φ_i(s') − P̂_cφ_i(s). A contrast is
    the expert's surprise less the rival's if data are paired, and the action's own surprise otherwise.

    Attributes:
        counts: transitions per action ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        surprise: Σ x Y_c ``[A, k_s]``.
        spread: Σ x xᵀ Y_c Y_d ``[A, A, k_s, k_s]``; zero for c ≠ d unless paired.
        drift: Σ E_ci x ``[A, k_s, k_s]``.
        wobble: Σ x xᵀ (contrast of E_ci)² ``[A, k_s, k_s, k_s]``, i first.
        paired: every state was tried with every action.
    """

    counts: NDArray[np.int64]
    gram: Array
    surprise: Array
    spread: Array
    drift: Array
    wobble: Array
    paired: bool

    def __post_init__(self) -> None:
        freeze(self)

    def __add__(self, other: Evidence) -> Evidence:
        if self.gram.shape != other.gram.shape:
            raise ValueError("evidence adds up only for the same surrogate")
        if self.paired != other.paired:
            raise ValueError("paired and unpaired data must be weighed separately")
        return Evidence(**{name: getattr(self, name) + getattr(other, name) for name in SUMS}, paired=self.paired)

    def forecast(self, factor: float) -> Evidence:
        """What ``factor`` times as much data might say, if nothing surprised: for planning, never for certificates."""
        grown = {name: getattr(self, name) * factor for name in ("gram", "spread", "wobble")}
        quiet = {name: 0.0 * getattr(self, name) for name in ("surprise", "drift")}
        return Evidence((self.counts * factor).astype(np.int64), **grown, **quiet, paired=self.paired)


SUMS = ("counts", "gram", "surprise", "spread", "drift", "wobble")


def gather(surrogate: Surrogate, stream: Iterable[Piece]) -> Evidence:
    """Walk through fresh data once, chunks side by side; memory does not grow with its length."""
    return fold(partial(_of_chunk, surrogate), chunks_of(stream))


def _of_chunk(surrogate: Surrogate, chunk: Chunk) -> Evidence:
    sums = _Sums(surrogate)
    for piece in map(to_host, chunk.pieces()):  # products of four functions are no work for single precision
        sums.take(piece)
    return sums.evidence()


class _Sums:
    """Evidence in the making: Σ x xᵀ, Σ r x for every residual r, and Σ χ r r' in the products χ of the columns.

    The residuals of an action are its E_1, …, E_k and its Y; with pairs, E of a rival stands for the contrast.
    """

    def __init__(self, surrogate: Surrogate) -> None:
        self.surrogate, A, ks = surrogate, len(surrogate.Z), surrogate.columns.size
        self.products = product_basis(surrogate.columns)
        self.rows, self.weights, self.rest = _split_value(surrogate)
        self.counts, self.paired, self.mixed = np.zeros(A, dtype=np.int64), True, False
        self.gram, self.first = np.zeros((A, ks, ks)), np.zeros((A, ks + 1, ks))
        self.wobble, self.spread = np.zeros((A, ks, self.products.size)), np.zeros((A, A, self.products.size))

    def take(self, piece: Piece) -> None:
        chosen, n_actions = list(piece.actions), len(self.counts)
        if chosen != list(range(n_actions)) and len(chosen) > 1:
            raise ValueError("a piece of data holds one action, or all of them in order")
        together = len(chosen) == n_actions
        self.paired &= together
        self.mixed |= together
        guesses, ks = self._guesses(chosen), self.surrogate.columns.size
        m, pairs = len(chosen), np.triu_indices(len(chosen))
        # Blocks are added up within the piece first: rounding counts the terms of a piece, then the pieces.
        gram, first = np.zeros((ks, ks)), np.zeros((m * (ks + 1), ks))
        second = np.zeros((m * ks + len(pairs[0]), self.products.size))
        size = max(_WORKSPACE // (m * self.rows.size + len(first) + len(second) + self.products.size), _BUSY)
        for start in range(0, len(piece.states), size):
            block = slice(start, start + size)
            chi = self.products.values(piece.states[block]).T
            x = chi[:ks]
            residuals = self._residuals(guesses, x, piece.next_states[:, block])
            gram += x @ x.T
            first += residuals.reshape(len(first), -1) @ x.T
            second += _squares(residuals, pairs) @ chi.T
        self.counts[chosen] += len(piece.states)
        self.gram[chosen] += gram
        self.first[chosen] += first.reshape(m, ks + 1, ks)
        self.wobble[chosen] += second[: m * ks].reshape(m, ks, -1)
        one, other = np.array(chosen)[np.array(pairs)]
        self.spread[one, other] += second[m * ks :]
        self.spread[other, one] = self.spread[one, other]

    def _guesses(self, chosen: list[int]) -> Array:
        """Coefficients of what is taken off φ_i(s') or their contrasts, and off V(s') ``[m, k_s + 1, k_s]``."""
        s = self.surrogate
        Z = s.Z[chosen]
        if len(chosen) > 1:
            Z = s.Z[s.expert] - Z
            Z[s.expert] = s.Z[s.expert]
        return np.concatenate([Z, s.fits[chosen, None]], axis=1)

    def _residuals(self, guesses: Array, x: Array, ends: Array) -> Array:
        """E_1, …, E_k and Y of every action of a block ``[m, k_s + 1, n]``."""
        m, n, ks, expert = len(ends), len(ends[0]), len(x), self.surrogate.expert
        states = ends.reshape(m * n, -1)
        phi = self.rows.values(states).T
        value = self.weights @ phi
        if self.rest is not None:
            value += np.asarray(self.rest(states), dtype=np.float64).reshape(m * n)
        if not np.isfinite(value).all():
            raise ValueError("the reward must be finite at every state of the domain")
        phi = phi[:ks].reshape(ks, m, n).swapaxes(0, 1)
        residuals = (guesses.reshape(-1, ks) @ x).reshape(m, ks + 1, n)
        for i, errors in enumerate(residuals[:, :ks]):
            np.subtract(phi[expert if m > 1 else i], errors, out=errors)
            if m > 1 and i != expert:
                errors -= phi[i]
        np.subtract(value.reshape(m, n), residuals[:, ks], out=residuals[:, ks])
        return np.asarray(residuals)

    def evidence(self) -> Evidence:
        if self.mixed and not self.paired:
            raise ValueError("paired and unpaired data must be weighed separately")
        columns, expert = self.surrogate.columns, self.surrogate.expert
        drift = self.first[:, :-1].copy()
        if self.paired:
            for rival in self.surrogate.rivals:
                drift[rival] = drift[expert] - drift[rival]
        return Evidence(
            self.counts,
            self.gram,
            self.first[:, -1],
            lifted(self.spread, columns),
            drift,
            lifted(self.wobble, columns),
            paired=bool(self.paired),
        )


def _split_value(surrogate: Surrogate) -> tuple[Basis, Array, RewardLike | None]:
    """V = Σ weights_j φ_j + rest, where a reward of the columns' family leaves no rest: one evaluation serves both."""
    reward, columns = surrogate.reward, surrogate.columns
    added = surrogate.discount * surrogate.g
    if not _same_family(reward, columns):
        return columns, added, reward
    return *_plus_expansion(reward, columns, added), None


def _squares(residuals: Array, pairs: tuple[Array, Array]) -> Array:
    """E_ci² for every action and function, then Y_cY_d for every pair of actions ``[m·k_s + pairs, n]``."""
    m, rows, n = residuals.shape
    E, Y = residuals[:, :-1], residuals[:, -1]
    squares = np.empty((m * (rows - 1) + len(pairs[0]), n))
    np.multiply(E, E, out=squares[: m * (rows - 1)].reshape(E.shape))
    np.multiply(Y[pairs[0]], Y[pairs[1]], out=squares[m * (rows - 1) :])
    return squares
