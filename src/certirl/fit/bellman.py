"""The Bellman criterion in coordinates: how much better the expert's action is, as a linear function of the reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.policy import no_action
from certirl.fit.estimate import Operators
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, freeze
from certirl.ground.doors import as_probability


@dataclass(frozen=True, eq=False)
class Bellman:
    """``D_a(s) = αᵀ F^a φ(s)``: the expert's advantage over action a for R = αᵀφ (Lemma 2).

    Attributes:
        basis: the functions φ of rewards and values, k of them.
        discount: γ.
        expert: the action π that the expert always takes.
        alternatives: the other actions, in the order of the matrices below.
        F: (I − γT)⁻¹(T − Z^a) ``[A − 1, k, k_s]``; the first row is zero, since constant rewards change nothing.
        advantage: T − Z^a ``[A − 1, k, k_s]``: the same criterion in value coordinates, D_a(s) = wᵀ(T − Z^a)φ(s).
        T: the expert's operator ``[k, k_s]``.
        noise: residual covariances of the next state's functions ``[A, A, k, k]``, the expert first.
        precision: inverse Gram sums in the same order ``[A, k_s, k_s]``.
        condition: condition number of I − γT on non-constant functions.
        spectral_radius: of γT on non-constant functions; the paper's series converges only below 1.
    """

    basis: Basis
    discount: float
    expert: int
    alternatives: tuple[int, ...]
    F: Array
    advantage: Array
    T: Array
    noise: Array
    precision: Array
    condition: float
    spectral_radius: float

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def columns(self) -> Basis:
        """The functions of the state in which each D_a is expanded, k_s of them."""
        return self.basis.resized(self.T.shape[1])

    @property
    def spread(self) -> Array:
        """The covariance of the noise in T̂ − Ẑ^a, per transition and averaged over the alternatives ``[k, k]``."""
        others = np.arange(1, len(self.noise))
        covariances = self.noise[0, 0] + self.noise[others, others] - self.noise[0, others] - self.noise[others, 0]
        return np.asarray(covariances.mean(axis=0))

    def reward_of(self, value: Array) -> Array:
        """α = w − γTᵀw: the reward whose value under the expert is V = wᵀφ."""
        alpha = np.array(value)
        alpha[: self.T.shape[1]] -= self.discount * (self.T.T @ value)
        return alpha

    def value_of(self, alpha: Array) -> Array:
        """w = (I − γTᵀ)⁻¹α: the expert's value under the reward R = αᵀφ."""
        return np.linalg.solve(np.eye(len(alpha)) - self.discount * _square(self.T).T, alpha)

    def margins(self, alpha: Array) -> Array:
        """The coefficients of D_a in the columns, one row for each alternative: ``[A − 1, k_s]``."""
        return np.einsum("i,aij->aj", alpha, self.F)

    def error_forms(self, alpha: Array) -> Array:
        """Q_a with Var D̂_a(s) ≈ φ(s)ᵀQ_aφ(s), to first order in the error of the operators: ``[A − 1, k_s, k_s]``.

        From F̂ − F ≈ (I − γT)⁻¹[(T̂ − T)(I + γF) − (Ẑ − Z)]: the expert's error enters through (I + γF)φ(s), that of the
        alternative through φ(s), each with the spread of V = wᵀφ times the inverse Gram matrix of its states; with
        common random numbers the covariance of the two is subtracted.
        """
        w, ks = self.value_of(alpha), self.T.shape[1]
        lift = np.eye(ks) + self.discount * self.F[:, :ks, :]
        spread = np.einsum("i,abij,j->ab", w, self.noise, w)
        own = spread[0, 0] * np.einsum("aji,jk,akl->ail", lift, self.precision[0], lift)
        other = np.diagonal(spread)[1:, None, None] * self.precision[1:]
        shared = spread[0, 1:, None, None] * np.einsum("aji,jk->aik", lift, self.precision[0])
        return np.asarray(own + other - shared - shared.transpose(0, 2, 1))


def bellman(operators: Operators, *, discount: float, expert: int = 0) -> Bellman:
    """Form ``F^a = (I − γT)⁻¹(T − Z^a)``: the paper's geometric series, solved instead of summed.

    The constant function is deflated: with the first row of every Z^a equal to (1, 0, 0, …) the first row of F is zero
    and the others need only the block of T without its first row and column, whose norm is far below 1.

    Args:
        operators: estimated or exact.
        discount: γ, strictly between 0 and 1.
        expert: the action the expert always takes.
    """
    discount = check_problem(discount, expert, operators.n_actions, of_states=False)
    alternatives = alternatives_of(expert, operators.n_actions)
    order = [expert, *alternatives]
    T = operators.Z[expert]
    advantage = T - operators.Z[list(alternatives)]
    inner = np.eye(len(T)) - discount * _square(T)
    eigenvalues = np.linalg.eigvals(_square(T)[1:, 1:]) if len(T) > 1 else np.zeros(1)
    return Bellman(
        basis=operators.basis,
        discount=discount,
        expert=int(expert),
        alternatives=alternatives,
        F=np.linalg.solve(inner, advantage),
        advantage=advantage,
        T=T,
        noise=operators.noise[np.ix_(order, order)],
        precision=operators.precision[order],
        condition=float(np.linalg.cond(inner[1:, 1:])) if len(T) > 1 else 1.0,
        spectral_radius=float(discount * np.abs(eigenvalues).max()),
    )


def alternatives_of(expert: int, n_actions: int) -> tuple[int, ...]:
    """The actions that the expert does not take, in order."""
    return tuple(a for a in range(n_actions) if a != expert)


def check_problem(discount: Any, expert: Any, n_actions: int, *, of_states: bool = True) -> float:
    """γ as a float; refuse, with a sentence, a discount, an expert or a number of actions that make no problem.

    Args:
        discount: γ.
        expert: one action.
        n_actions: A.
        of_states: whether a function of states would have been an expert too, for the sentence.
    """
    check_expert(expert, n_actions, of_states=of_states)
    return as_probability(discount, "discount")


def check_expert(expert: Any, n_actions: int, *, of_states: bool = True) -> None:
    """Refuse, with a sentence, what is none of at least two actions; arguments as for `check_problem`."""
    if n_actions < 2:
        raise ValueError("there is only one action, so nothing distinguishes the expert: at least two are needed")
    if isinstance(expert, bool) or not isinstance(expert, int | np.integer) or not 0 <= expert < n_actions:
        raise ValueError(no_action(expert, n_actions, of_states=of_states))


def _square(T: Array) -> Array:
    """T with zero columns up to k: functions beyond k_s are mapped to, never from."""
    return np.pad(T, ((0, 0), (0, T.shape[0] - T.shape[1])))
