"""Sixty random finite problems whose expert switches: our program, and the formula that many public programs use.

    python experiments/tabular.py [--fast] [--out DIR]

For any V the reward R = V − γP_πV has V as the expert's value, and the expert is strictly optimal exactly where
(P_π − P_a)V > 0. So one linear program in V decides whether there is such a reward, with the operator of the policy and
no inverse. The formula inverts (I − γP_a) of a single action instead, so its rows describe a value that the expert does
not have.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

import study

# Margins and residuals below this, for rewards within [−1, 1], are within the tolerance of the solver.
RESOLUTION = 1e-7


@dataclass(frozen=True)
class Arguments:
    """Problems, the states and actions of each, the discount."""

    problems: int = 60
    states: int = 8
    actions: int = 3
    discount: float = 0.9


FAST = Arguments(problems=10)
REPEATED = ("problems",)


@dataclass(frozen=True, eq=False)
class TabularSolution:
    """The answer for a finite problem, checked after the program has ended.

    Attributes:
        status: "solved": the expert is strictly optimal under the reward; "infeasible": under none, and the witness
            shows why; "undetermined": the margin is too small for double precision to decide.
        reward: R within [−1, 1] ``[S]``; zero unless solved.
        value: the expert's value of it ``[S]``, from the dynamics and not from the program.
        margin: the least (P_π − P_a)V over states and actions that the expert does not take.
        states, actions, weights: the witness: rows (P_π − P_a)(s, ·) whose average with these weights vanishes ``[w]``.
        residual: the largest entry of that average.
    """

    status: str
    reward: np.ndarray
    value: np.ndarray
    margin: float
    states: np.ndarray
    actions: np.ndarray
    weights: np.ndarray
    residual: float


def solve(P: np.ndarray, expert: np.ndarray, *, discount: float) -> TabularSolution:
    """The reward in [−1, 1] under which the expert is strictly optimal by the largest margin.

    Args:
        P: transition probabilities ``[A, S, S]``, from the second index to the third.
        expert: an action for every state ``[S]``, or probabilities ``[S, A]``: actions that it mixes must tie.
        discount: γ.
    """
    shares = np.eye(len(P))[expert] if expert.ndim == 1 else expert
    own = np.einsum("sa,ast->st", shares, P)
    states, actions = np.nonzero(shares == 0)
    strict, ties = own[states] - P[actions, states], _ties(P, shares)
    to_reward = np.eye(len(own)) - discount * own
    value, bound = _largest_margin(strict, ties, to_reward)
    reward = to_reward @ value
    value = np.linalg.solve(to_reward, reward)
    margin = float((strict @ value).min(initial=np.inf))
    if margin > RESOLUTION and np.abs(ties @ value).max(initial=0.0) < RESOLUTION:
        none = np.zeros(0, dtype=int)
        return TabularSolution("solved", reward, value, margin, none, none, np.zeros(0), np.nan)
    weights, residual = _witness(strict, ties)
    used, zero = weights > 1e-12, np.zeros(len(own))
    status = "infeasible" if residual < RESOLUTION else "undetermined"
    return TabularSolution(status, zero, zero, bound, states[used], actions[used], weights[used], residual)


def _largest_margin(strict: np.ndarray, ties: np.ndarray, to_reward: np.ndarray) -> tuple[np.ndarray, float]:
    """max t  s.t.  strict·V ≥ t, ties·V = 0, |R| ≤ 1, R = to_reward·V; V and t."""
    S = len(to_reward)
    bounded = np.vstack([to_reward, -to_reward])
    above = np.vstack([np.column_stack([-strict, np.ones(len(strict))]), np.pad(bounded, ((0, 0), (0, 1)))])
    limits = np.concatenate([np.zeros(len(strict)), np.ones(2 * S)])
    equal = {"A_eq": np.pad(ties, ((0, 0), (0, 1))), "b_eq": np.zeros(len(ties))} if len(ties) else {}
    # Without alternative actions the program has no bound on t.
    bounds = [(None, None)] * S + [(0, 1 if not len(strict) else None)]
    answer = linprog(np.append(np.zeros(S), -1.0), A_ub=above, b_ub=limits, bounds=bounds, method="highs", **equal)
    if answer.x is None:
        raise RuntimeError(f"HiGHS did not solve a program that has a solution, V = 0: {answer.message}")
    return answer.x[:S], float(answer.x[S])


def _witness(strict: np.ndarray, ties: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights λ ≥ 0 adding up to 1, and free weights μ, that make λ·strict + μ·ties smallest: Gordan's alternative."""
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


def _ties(P: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """P_b − P_c at every state for actions b that the expert mixes with the first one, c, it takes there."""
    first = (shares > 0).argmax(axis=1)
    mixed = shares > 0
    mixed[np.arange(len(shares)), first] = False
    states, actions = np.nonzero(mixed)
    return np.asarray(P[actions, states] - P[first[states], states])


def random_problem(seed: int, arguments: Arguments) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet transitions ``[A, S, S]``, and the best policy ``[S]`` of a random reward; it takes several actions."""
    rng = np.random.default_rng([2021, seed])
    while True:
        P = rng.dirichlet(np.full(arguments.states, 0.5), size=(arguments.actions, arguments.states))
        expert = best_policy(P, rng.normal(size=arguments.states), arguments.discount)
        if len(np.unique(expert)) > 1:
            return P, expert


def best_policy(P: np.ndarray, reward: np.ndarray, discount: float) -> np.ndarray:
    """Policy iteration."""
    states = np.arange(len(reward))
    policy = np.zeros(len(reward), dtype=int)
    while True:
        value = np.linalg.solve(np.eye(len(reward)) - discount * P[policy, states], reward)
        ahead = P @ value
        better = ahead.max(axis=0) > ahead[policy, states] + 1e-12
        if not better.any():
            return policy
        policy = np.where(better, ahead.argmax(axis=0), policy)


def one_action_inverted(P: np.ndarray, expert: np.ndarray, discount: float) -> np.ndarray:
    """The common formula: at s the rows (P_b − P_a)(s, ·)(I − γP_b)⁻¹ with b = π(s) alone; reward in [−1, 1] ``[S]``.

    max Σ_s t_s  s.t.  row·R ≥ t_s ≥ 0 for every other action: the objective of Ng and Russell without its penalty.
    """
    A, S, _ = P.shape
    rows, owner = [], []
    for s in range(S):
        inverse = np.linalg.inv(np.eye(S) - discount * P[expert[s]])
        for a in set(range(A)) - {expert[s]}:
            rows.append((P[expert[s], s] - P[a, s]) @ inverse)
            owner.append(s)
    above = np.column_stack([-np.array(rows), np.eye(S)[owner]])
    cost, bounds = np.append(np.zeros(S), -np.ones(S)), [(-1, 1)] * S + [(0, None)] * S
    answer = linprog(cost, A_ub=above, b_ub=np.zeros(len(rows)), bounds=bounds, method="highs")
    return answer.x[:S] if answer.x is not None else np.zeros(S)


def true_margin(P: np.ndarray, expert: np.ndarray, reward: np.ndarray, discount: float) -> float:
    """The least (P_π − P_a)V over states and other actions, V the value of the expert; positive if it is best."""
    states = np.arange(len(reward))
    own = P[expert, states]
    ahead = P @ np.linalg.solve(np.eye(len(reward)) - discount * own, reward)
    gap = ahead[expert, states] - ahead
    gap[expert, states] = np.inf
    return float(gap.min())


def run(arguments: Arguments, runner: study.Runner) -> study.Findings:
    """Count the problems on which the expert is not strictly optimal under what was returned."""
    ours, theirs, least = [], [], np.inf
    for seed in range(arguments.problems):
        P, expert = random_problem(seed, arguments)
        answer = solve(P, expert, discount=arguments.discount)
        margin = true_margin(P, expert, answer.reward, arguments.discount)
        least = min(least, margin)
        ours.append(answer.status != "solved" or margin <= 0)
        peer = one_action_inverted(P, expert, arguments.discount)
        theirs.append(true_margin(P, expert, peer, arguments.discount) < -1e-9)
    numbers = {
        "failures_ours": int(sum(ours)),
        "least_margin_ours": least,
        "failures_one_action_inverted": int(sum(theirs)),
    }
    sentence = (
        f"of {len(ours)} problems our program fails on {sum(ours)}, the one that inverts the matrix of one action on "
        f"{sum(theirs)}"
    )
    return study.Findings(numbers, [], None, sentence)


if __name__ == "__main__":
    raise SystemExit(study.main(sys.modules[__name__]))
