"""The constants of a problem in the hypotheses of the theorems: norms, the Lipschitz constant ρ, the separability β."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from certirl.fit.bellman import Bellman, Operators, bellman
from certirl.fit.recover import recover
from certirl.functions.extrema import minimum
from certirl.ground.domain import Array
from certirl.ground.doors import shown
from certirl.ground.records import Record

__all__ = ["Constants", "constants", "separability"]


@dataclass(frozen=True)
class Constants(Record):
    """The constants of a problem in the hypotheses of the theorems, from its k × k_s matrices.

    Attributes:
        norm: Δ = max_a ‖Z^a‖_∞; at least 1, the first row.
        inner_norm: Δ₂ = ‖T_{2:,2:}‖_∞ of the expert.
        row_norm: max_a ‖Z^a_{2:,:}‖_∞.
        difference: max_a ‖(T − Z^a)_{2:,:}‖_∞.
        F_norm: max_a ‖F^a‖_∞.
        rho: max_a sup_s ‖F^aφ'(s)‖_∞, by the roots of each second derivative: exact to rounding.
        beta: the separability of Definition 2; 0 if no reward exists, NaN if the program did not decide that.
        beta_sup: 1/‖α̂‖_∞ of the reward with the least ‖α‖₁, which the appendix calls β; 0 and NaN likewise.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> constants = certirl.paper.constants(operators, discount=0.7)
        >>> constants.norm >= 1 > constants.inner_norm, constants.beta > 0
        (True, True)
    """

    norm: float
    inner_norm: float
    row_norm: float
    difference: float
    F_norm: float
    rho: float
    beta: float
    beta_sup: float


def constants(problem: Operators | Bellman, *, discount: float | None = None, expert: int = 0) -> Constants:
    """Δ, Δ₂, ρ, ‖F‖ and β from a problem's matrices (the hypotheses of Theorem 6).

    Args:
        problem: operators, or the criterion formed from them (which contains its discount and expert).
        discount: γ; needed with operators.
        expert: the action the expert always takes; read with operators only.

    Example:
        >>> operators = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> round(certirl.paper.constants(operators, discount=0.7).beta, 4)
        0.0422
    """
    criterion = _criterion(problem, discount, expert)
    T, gaps = criterion.T, criterion.advantage
    return Constants(
        norm=_norm(np.concatenate([T[None], T - gaps])),
        inner_norm=_norm(T[1:, 1:]),
        row_norm=_norm(np.concatenate([T[None], T - gaps])[:, 1:]),
        difference=_norm(gaps[:, 1:]),
        F_norm=_norm(criterion.F),
        rho=_steepest(criterion),
        beta=separability(criterion),
        beta_sup=_separability_sup(criterion),
    )


def separability(problem: Operators | Bellman, *, discount: float | None = None, expert: int = 0) -> float:
    """The separability β of a problem (Definition 2); 0 if no reward exists, NaN if undetermined.

    ``β = max_α min_{s,a} αᵀF^aφ(s)`` over ‖α‖₁ = 1.

    Example:
        >>> exact = certirl.problems.random_polynomial(seed=1).operators(certirl.Legendre(7))
        >>> round(certirl.paper.separability(exact, discount=0.7), 4)
        0.0422
        >>> none = certirl.problems.unsolvable(seed=1).operators(certirl.Legendre(7))
        >>> certirl.paper.separability(none, discount=0.7)
        0.0
    """
    recovery = recover(_criterion(problem, discount, expert), objective="max-margin")
    return recovery.margin if recovery.status == "solved" else 0.0 if recovery.status == "infeasible" else math.nan


def _separability_sup(criterion: Bellman) -> float:
    recovery = recover(criterion, objective="l1")
    if recovery.reward is None:
        return 0.0 if recovery.status == "infeasible" else math.nan
    return float(1 / np.abs(recovery.reward.coefficients).max())


def _criterion(problem: Operators | Bellman, discount: float | None, expert: int) -> Bellman:
    if isinstance(problem, Bellman):
        return problem
    if not isinstance(problem, Operators):
        raise TypeError(f"constants need operators, or the criterion made of them, got {shown(problem)}")
    if discount is None:
        raise ValueError("operators do not contain γ: pass discount as well")
    return bellman(problem, discount=discount, expert=expert)


def _norm(matrices: Array) -> float:
    """‖·‖_∞, the largest row sum, over a stack of matrices."""
    return float(np.abs(matrices).sum(axis=-1).max(initial=0.0))


def _steepest(criterion: Bellman) -> float:
    """ρ = max_{a,i} sup_s |(F^aφ')_i(s)|; slopes are expansions too, so the oracle for exact minima finds it."""
    columns = criterion.columns.resized(criterion.columns.size | 1)  # a last sine needs its cosine
    nodes, weights = columns.quadrature(4 * columns.size + 40)
    narrow = criterion.columns.derivative(nodes)
    derivative = narrow.T @ (weights[:, None] * columns.values(nodes))
    slopes = (criterion.F @ derivative).reshape(-1, columns.size)
    return max(
        (-minimum(columns, sign * slope)[1] for slope in slopes if slope.any() for sign in (1.0, -1.0)), default=0.0
    )
