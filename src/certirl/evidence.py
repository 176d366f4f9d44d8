"""What fresh data say about one fixed reward: the sums that a certificate needs, mergeable like moments.

Before the fresh data are touched a `Surrogate` is fixed: the reward R, a guess V of the expert's value, and guesses of
what every action does to V and to the column functions. The evidence then measures how wrong these guesses are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.domain import Array, freeze
from certirl.extrema import minimum
from certirl.moments import accumulate
from certirl.reward import Reward, RewardLike
from certirl.transitions import Piece


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
    observed: Any = _Observables(columns, reward)
    ((moments,),) = accumulate(training, [(observed, columns)], n_actions=n_actions)
    ks = columns.size
    regression = moments.cross @ np.linalg.pinv(moments.gram, hermitian=True)  # a poor guess is sound, only wasteful
    Z, of_reward = regression[:, :ks], regression[:, ks]
    Z[:, 0] = np.eye(ks)[0]
    g = np.linalg.solve(np.eye(ks) - discount * Z[expert].T, of_reward[expert])
    fits = of_reward + discount * np.einsum("i,aij->aj", g, Z)
    fits[expert] = g  # the same to rounding, and then exactly
    low, high = _value_range(reward, columns, discount * g, reward_range)
    return Surrogate(columns, reward, discount, expert, g, fits, Z, low, high)


def _value_range(
    reward: RewardLike, columns: Basis, added: Array, reward_range: tuple[float, float] | None
) -> tuple[float, float]:
    """Bounds on V = R + Σ added_j φ_j: exact for an expansion in the same family, else from the declared range of R."""
    if isinstance(reward, Reward) and reward.basis.resized(columns.size) == columns:
        total = np.zeros(max(reward.basis.size, len(added)))
        total[: reward.basis.size] += reward.coefficients
        total[: len(added)] += added
        basis = reward.basis.resized(len(total))
        return minimum(basis, total)[1], -minimum(basis, -total)[1]
    if reward_range is None:
        raise ValueError("a reward that is not an expansion in this basis needs reward_range=(low, high)")
    low, high = reward_range
    return low + minimum(columns, added)[1], high - minimum(columns, -added)[1]


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
        if self.gram.shape != other.gram.shape or self.paired != other.paired:
            raise ValueError("evidence adds up only for the same surrogate and the same way of drawing")
        return Evidence(**{name: getattr(self, name) + getattr(other, name) for name in SUMS}, paired=self.paired)

    def forecast(self, factor: float) -> Evidence:
        """What ``factor`` times as much data might say, if nothing surprised: for planning, never for certificates."""
        grown = {name: getattr(self, name) * factor for name in ("gram", "spread", "wobble")}
        quiet = {name: 0.0 * getattr(self, name) for name in ("surprise", "drift")}
        return Evidence((self.counts * factor).astype(np.int64), **grown, **quiet, paired=self.paired)


SUMS = ("counts", "gram", "surprise", "spread", "drift", "wobble")


def gather(surrogate: Surrogate, stream: Iterable[Piece]) -> Evidence:
    """Walk through fresh data once; memory does not grow with its length."""
    ks, n_actions = surrogate.columns.size, len(surrogate.Z)
    upper, inside = np.triu_indices(ks), np.empty((ks, ks), dtype=np.intp)
    inside[upper] = np.arange(len(upper[0]))
    inside.T[upper] = inside[upper]
    pairs = len(upper[0])
    counts, paired, mixed = np.zeros(n_actions, dtype=np.int64), True, False
    gram, surprise = np.zeros((n_actions, pairs)), np.zeros((n_actions, ks))
    spread, drift = np.zeros((n_actions, n_actions, pairs)), np.zeros((n_actions, ks, ks))
    wobble = np.zeros((n_actions, ks, pairs))
    for piece in stream:
        chosen = list(piece.actions)
        if chosen != list(range(n_actions)) and len(chosen) > 1:
            raise ValueError("a piece of data holds one action, or all of them in order")
        paired &= len(chosen) == n_actions
        mixed |= len(chosen) == n_actions
        x = surrogate.columns.values(piece.states).T
        products = x[upper[0]] * x[upper[1]]  # every x_i x_j once: all second-order sums are one product with these
        Y = np.array(
            [surrogate.value(s) - surrogate.fits[c] @ x for c, s in zip(chosen, piece.next_states, strict=True)]
        )
        E = np.array(
            [surrogate.columns.values(s).T - surrogate.Z[c] @ x for c, s in zip(chosen, piece.next_states, strict=True)]
        )
        if not np.isfinite(Y).all():
            raise ValueError("the reward must be finite at every state of the domain")
        counts[chosen] += x.shape[1]
        gram[chosen] += products.sum(axis=1)
        surprise[chosen] += Y @ x.T
        drift[chosen] += E @ x.T
        for i, c in enumerate(chosen):
            spread[c, chosen] += (Y[i] * Y) @ products.T
            contrast = E[surrogate.expert] - E[i] if len(chosen) == n_actions and c != surrogate.expert else E[i]
            wobble[c] += contrast**2 @ products.T
    if mixed and not paired:
        raise ValueError("paired and unpaired data must be weighed separately")
    return Evidence(
        counts, gram[:, inside], surprise, spread[..., inside], drift, wobble[..., inside], paired=bool(paired)
    )
