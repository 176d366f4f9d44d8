"""Finite problems: our reward makes the expert strictly optimal every time; inverting one action's matrix does not."""

from itertools import product

import numpy as np
import pytest

import study
import tabular


def test_sixty_experts_who_switch_are_explained_and_the_common_formula_fails_half_of_them():
    result = tabular.run(tabular.Arguments(), study.Runner()).summary
    assert result["failures_ours"] == 0
    assert result["least_margin_ours"] > 0.01
    assert 25 <= result["failures_one_action_inverted"] <= 45


def test_of_all_policies_only_the_expert_is_best_under_the_reward():
    P, expert = tabular.random_problem(3, tabular.Arguments(states=4))
    solution = tabular.solve(P, expert, discount=0.9)
    states = np.arange(4)
    worth = {}
    for policy in product(range(3), repeat=4):
        worth[policy] = np.linalg.solve(np.eye(4) - 0.9 * P[list(policy), states], solution.reward)
    own = worth.pop(tuple(expert))
    assert np.allclose(own, solution.value)
    assert all((own >= other - 1e-12).all() and (own > other + 1e-6).any() for other in worth.values())
    assert np.abs(solution.reward).max() <= 1 + 1e-9


def test_the_margin_is_the_largest_there_is():
    P, expert = tabular.random_problem(5, tabular.Arguments(states=5))
    best = tabular.solve(P, expert, discount=0.8).margin
    rng = np.random.default_rng(0)
    tried = [tabular.true_margin(P, expert, rng.uniform(-1, 1, 5), 0.8) for _ in range(2000)]
    assert 0 < max(tried) <= best + 1e-9


def test_two_actions_that_do_the_same_are_a_witness():
    P, expert = tabular.random_problem(1, tabular.Arguments())
    same = P.copy()
    rival = (expert[2] + 1) % 3
    same[rival, 2] = same[expert[2], 2]
    solution = tabular.solve(same, expert, discount=0.9)
    assert solution.status == "infeasible" and solution.residual < 1e-9
    assert (2, rival) in zip(solution.states, solution.actions, strict=True)
    rows = same[expert[solution.states], solution.states] - same[solution.actions, solution.states]
    assert np.abs(solution.weights @ rows).max() < 1e-9 and solution.weights.sum() == pytest.approx(1)


def test_an_expert_between_two_rivals_cannot_beat_both():
    P, _ = tabular.random_problem(2, tabular.Arguments())
    middle = np.stack([(P[1] + P[2]) / 2, P[1], P[2]])
    solution = tabular.solve(middle, np.zeros(8, dtype=int), discount=0.9)
    assert solution.status == "infeasible"
    assert set(solution.actions) == {1, 2}


def test_actions_that_the_expert_mixes_tie_and_the_others_lose():
    P, expert = tabular.random_problem(4, tabular.Arguments())
    shares = np.eye(3)[expert]
    shares[0] = [0.5, 0.5, 0.0]
    solution = tabular.solve(P, shares, discount=0.9)
    ahead = P @ solution.value
    assert solution.status == "solved"
    assert ahead[0, 0] == pytest.approx(ahead[1, 0], abs=1e-7) and ahead[0, 0] > ahead[2, 0] + 1e-4
