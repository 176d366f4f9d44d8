"""Sixty random finite problems whose expert switches: our program, and the formula that many public programs use.

The formula inverts (I − γP_a) of a single action where the policy's own operator belongs, so its rows describe a value
that the expert does not have. Run: python experiments/tabular.py [--fast]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog

from certirl.problems import tabular

RESULT = Path(__file__).parent / "results" / "tabular.json"


@dataclass(frozen=True)
class Settings:
    """What is run: problems, states and actions of each, discount."""

    problems: int = 60
    states: int = 8
    actions: int = 3
    discount: float = 0.9


def random_problem(seed: int, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet transitions ``[A, S, S]``, and the best policy ``[S]`` of a random reward; it takes several actions."""
    rng = np.random.default_rng([2021, seed])
    while True:
        P = rng.dirichlet(np.full(settings.states, 0.5), size=(settings.actions, settings.states))
        expert = best_policy(P, rng.normal(size=settings.states), settings.discount)
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

    max Σ_s t_s  s.t.  row·R ≥ t_s ≥ 0 for every rival: the objective of Ng and Russell without its penalty.
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
    """The least (P_π − P_a)V over states and rivals, V the expert's value: it is optimal exactly if this is ≥ 0."""
    states = np.arange(len(reward))
    own = P[expert, states]
    ahead = P @ np.linalg.solve(np.eye(len(reward)) - discount * own, reward)
    gap = ahead[expert, states] - ahead
    gap[expert, states] = np.inf
    return float(gap.min())


def run(settings: Settings) -> dict[str, Any]:
    """Count the problems on which the expert is not strictly optimal under what was returned."""
    ours, theirs, least = [], [], np.inf
    for seed in range(settings.problems):
        P, expert = random_problem(seed, settings)
        answer = tabular.solve(P, expert, discount=settings.discount)
        margin = true_margin(P, expert, answer.reward, settings.discount)
        least = min(least, margin)
        ours.append(answer.status != "solved" or margin <= 0)
        peer = one_action_inverted(P, expert, settings.discount)
        theirs.append(true_margin(P, expert, peer, settings.discount) < -1e-9)
    return {
        **asdict(settings),
        "failures_ours": int(sum(ours)),
        "least_margin_ours": least,
        "failures_one_action_inverted": int(sum(theirs)),
    }


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="ten problems, nothing written")
    fast = parser.parse_args().fast
    result = run(Settings(problems=10) if fast else Settings())
    print(json.dumps(result, indent=1))
    if not fast:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
