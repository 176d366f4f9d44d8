"""Finitely many states and known dynamics: the reward with the largest margin, or the proof that there is none.

For any V the reward R = V − γP_πV has V as the expert's value, and the expert is strictly optimal exactly where
(P_π − P_a)V > 0. So one linear program in V decides, with the policy's own operator and no inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certirl.fit.bellman import check_expert
from certirl.ground.domain import Array, freeze
from certirl.ground.doors import as_probability, as_reals

# Margins and residuals below this, for rewards within [−1, 1], are the solver's tolerance and decide nothing.
RESOLUTION = 1e-7


@dataclass(frozen=True, eq=False)
class TabularSolution:
    """The answer for a finite problem, checked after the program has ended.

    Attributes:
        status: "solved": the expert is strictly optimal under the reward; "infeasible": under none, and the witness
            shows why; "undetermined": the margin is too small for double precision to tell.
        reward: R within [−1, 1] ``[S]``; zero unless solved.
        value: the expert's value of it ``[S]``, from the dynamics and not from the program.
        margin: the least (P_π − P_a)V over states and actions that the expert does not take.
        states, actions, weights: the witness: rows (P_π − P_a)(s, ·) whose average with these weights vanishes ``[w]``.
        residual: how far from zero that average is, at most.
    """

    status: str
    reward: Array
    value: Array
    margin: float
    states: NDArray[np.intp]
    actions: NDArray[np.intp]
    weights: Array
    residual: float

    def __post_init__(self) -> None:
        freeze(self)

    def __str__(self) -> str:
        if self.status == "solved":
            return f"Solved: the expert is strictly optimal at all {len(self.reward)} states, margin {self.margin:.4g}"
        if self.status == "infeasible":
            rows = zip(self.states[:5], self.actions[:5], self.weights[:5], strict=True)
            told = ", ".join(f"{weight:.3g} of action {a} at state {s}" for s, a, weight in rows)
            more = f" and {len(self.states) - 5} more" * (len(self.states) > 5)
            return f"Infeasible: no reward makes the expert strictly optimal; these rows cancel: {told}{more}"
        return f"Undetermined: the largest margin is {self.margin:.2g}, which double precision cannot tell from zero"


def solve(transitions: ArrayLike, expert: ArrayLike, *, discount: float) -> TabularSolution:
    """The reward in [−1, 1] under which the expert is strictly optimal by the largest margin.

    Args:
        transitions: P ``[A, S, S]``, from the second index to the third.
        expert: an action for every state ``[S]``, or probabilities ``[S, A]``: actions that it mixes must tie.
        discount: γ.
    """
    discount = as_probability(discount, "discount")
    P, shares = _checked(transitions, expert)
    own = np.einsum("sa,ast->st", shares, P)
    states, actions = np.nonzero(shares == 0)
    strict = own[states] - P[actions, states]
    ties = _ties(P, shares)
    value, found = _largest_margin(strict, ties, np.eye(len(own)) - discount * own)
    reward = value - discount * own @ value
    value = np.linalg.solve(np.eye(len(own)) - discount * own, reward)
    margin = float((strict @ value).min(initial=np.inf))
    if margin > RESOLUTION and np.abs(ties @ value).max(initial=0.0) < RESOLUTION:
        nothing = np.zeros(0, dtype=np.intp)
        return TabularSolution("solved", reward, value, margin, nothing, nothing, np.zeros(0), float("nan"))
    weights, residual = _witness(strict, ties)
    used = weights > 1e-12
    status = "infeasible" if residual < RESOLUTION else "undetermined"
    zero = np.zeros(len(own))
    return TabularSolution(status, zero, zero, found, states[used], actions[used], weights[used], residual)


def _largest_margin(strict: Array, ties: Array, to_reward: Array) -> tuple[Array, float]:
    """max t  s.t.  strict·V ≥ t, ties·V = 0, |R| ≤ 1, R = to_reward·V; V and t."""
    from scipy.optimize import linprog

    S = len(to_reward)
    bounded = np.vstack([to_reward, -to_reward])
    above = np.vstack([np.column_stack([-strict, np.ones(len(strict))]), np.pad(bounded, ((0, 0), (0, 1)))])
    limits = np.concatenate([np.zeros(len(strict)), np.ones(2 * S)])
    equal = {"A_eq": np.pad(ties, ((0, 0), (0, 1))), "b_eq": np.zeros(len(ties))} if len(ties) else {}
    # Without rivals any t would do: 1 is as good as any.
    bounds = [(None, None)] * S + [(0, 1 if not len(strict) else None)]
    answer = linprog(np.append(np.zeros(S), -1.0), A_ub=above, b_ub=limits, bounds=bounds, method="highs", **equal)
    if answer.x is None:
        raise RuntimeError(f"HiGHS gave up on a program that has a solution, V = 0: {answer.message}")
    return answer.x[:S], float(answer.x[S])


def _witness(strict: Array, ties: Array) -> tuple[Array, float]:
    """Weights λ ≥ 0 adding up to 1, and free weights μ, that make λ·strict + μ·ties smallest: Gordan's alternative."""
    from scipy.optimize import linprog

    rows, S = len(strict), strict.shape[1]
    combine = np.vstack([strict, ties]).T
    above = np.vstack([np.column_stack([combine, -np.ones(S)]), np.column_stack([-combine, -np.ones(S)])])
    total = np.concatenate([np.ones(rows), np.zeros(len(ties) + 1)])[None]
    bounds = [(0, None)] * rows + [(None, None)] * len(ties) + [(0, None)]
    cost = np.append(np.zeros(rows + len(ties)), 1.0)
    answer = linprog(cost, A_ub=above, b_ub=np.zeros(2 * S), A_eq=total, b_eq=[1.0], bounds=bounds, method="highs")
    if answer.x is None:
        return np.zeros(rows), float("inf")
    weights = np.maximum(answer.x[:rows], 0.0)
    return weights / weights.sum(), float(np.abs(combine @ np.append(weights, answer.x[rows:-1])).max())


def _ties(P: Array, shares: Array) -> Array:
    """P_b − P_c at every state for actions b that the expert mixes with the first one, c, it takes there."""
    first = (shares > 0).argmax(axis=1)
    mixed = shares > 0
    mixed[np.arange(len(shares)), first] = False
    states, actions = np.nonzero(mixed)
    return np.asarray(P[actions, states] - P[first[states], states])


def _checked(transitions: ArrayLike, expert: ArrayLike) -> tuple[Array, Array]:
    """P ``[A, S, S]`` and the expert's probabilities ``[S, A]``."""
    P = as_reals(transitions, "transitions").astype(float)
    if P.ndim != 3 or P.shape[1] != P.shape[2]:
        raise ValueError(f"transitions must have shape [actions, states, states], got {list(P.shape)}")
    check_expert(0, len(P))
    if not np.isfinite(P).all() or (P < 0).any() or (np.abs(P.sum(axis=2) - 1) > 1e-9).any():
        a, s = np.unravel_index(np.abs(P.sum(axis=2) - 1).argmax(), P.shape[:2])
        raise ValueError(
            f"every row of transitions must be probabilities that add up to 1: action {a} at state {s} "
            f"adds up to {P[a, s].sum():.6g}"
        )
    chosen = as_reals(expert, "expert", truth=True)
    if chosen.shape == (P.shape[1], len(P)):
        shares = chosen.astype(float)
        if (shares < 0).any() or (np.abs(shares.sum(axis=1) - 1) > 1e-9).any():
            raise ValueError("the expert's probabilities must not be negative and add up to 1 at every state")
        return P, shares
    if chosen.shape != (P.shape[1],):
        raise ValueError(
            f"expert must be one of the actions 0 … {len(P) - 1} for each of the {P.shape[1]} states, or probabilities "
            f"of shape [{P.shape[1]}, {len(P)}], got shape {list(chosen.shape)}"
        )
    known = np.isin(chosen, np.arange(len(P)))
    if not known.all():
        state = int(known.argmin())
        raise ValueError(
            f"expert must be one of the actions 0 … {len(P) - 1} for each state, got {chosen[state]} at state {state}"
        )
    return P, np.eye(len(P))[chosen.astype(int)]
