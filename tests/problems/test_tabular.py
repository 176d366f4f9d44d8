"""Finite problems: our reward makes the expert strictly optimal every time; inverting one action's matrix does not."""

import importlib.util
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from certirl.problems import tabular

PATH = Path(__file__).parents[2] / "experiments" / "tabular.py"
spec = importlib.util.spec_from_file_location("tabular_experiment", PATH)
experiment = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = experiment
spec.loader.exec_module(experiment)


def test_sixty_experts_who_switch_are_explained_and_the_common_formula_fails_half_of_them():
    result = experiment.run(experiment.Settings())
    assert result["failures_ours"] == 0
    assert result["least_margin_ours"] > 0.01
    assert 25 <= result["failures_one_action_inverted"] <= 45


def test_of_all_policies_only_the_expert_is_best_under_the_reward():
    P, expert = experiment.random_problem(3, experiment.Settings(states=4))
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
    P, expert = experiment.random_problem(5, experiment.Settings(states=5))
    best = tabular.solve(P, expert, discount=0.8).margin
    rng = np.random.default_rng(0)
    tried = [experiment.true_margin(P, expert, rng.uniform(-1, 1, 5), 0.8) for _ in range(2000)]
    assert 0 < max(tried) <= best + 1e-9


def test_two_actions_that_do_the_same_are_a_witness():
    P, expert = experiment.random_problem(1, experiment.Settings())
    same = P.copy()
    rival = (expert[2] + 1) % 3
    same[rival, 2] = same[expert[2], 2]
    solution = tabular.solve(same, expert, discount=0.9)
    assert solution.status == "infeasible" and solution.residual < 1e-9
    assert (2, rival) in zip(solution.states, solution.actions, strict=True)
    assert "these rows cancel" in str(solution)
    rows = same[expert[solution.states], solution.states] - same[solution.actions, solution.states]
    assert np.abs(solution.weights @ rows).max() < 1e-9 and solution.weights.sum() == pytest.approx(1)


def test_an_expert_between_two_rivals_cannot_beat_both():
    P, _ = experiment.random_problem(2, experiment.Settings())
    middle = np.stack([(P[1] + P[2]) / 2, P[1], P[2]])
    solution = tabular.solve(middle, np.zeros(8, dtype=int), discount=0.9)
    assert solution.status == "infeasible"
    assert set(solution.actions) == {1, 2}


def test_actions_that_the_expert_mixes_tie_and_the_others_lose():
    P, expert = experiment.random_problem(4, experiment.Settings())
    shares = np.eye(3)[expert]
    shares[0] = [0.5, 0.5, 0.0]
    solution = tabular.solve(P, shares, discount=0.9)
    ahead = P @ solution.value
    assert solution.status == "solved"
    assert ahead[0, 0] == pytest.approx(ahead[1, 0], abs=1e-7) and ahead[0, 0] > ahead[2, 0] + 1e-4


@pytest.mark.parametrize(
    ("transitions", "expert", "sentence"),
    [
        (np.eye(3), [0, 0, 0], r"shape \[actions, states, states\], got \[3, 3\]"),
        (np.full((2, 2, 2), 0.4), [0, 0], "action 0 at state 0 adds up to 0.8"),
        (np.full((2, 2, 2), 0.5), [0, 2], "one of the actions 0 … 1 for each state, got 2 at state 1"),
        (np.full((2, 2, 2), 0.5), [[0.5, 0.2], [1, 0]], "probabilities must not be negative and add up to 1"),
        (np.full((1, 2, 2), 0.5), [0, 0], "only one action"),
    ],
)
def test_what_is_no_problem_gets_a_sentence(transitions, expert, sentence):
    with pytest.raises(ValueError, match=sentence):
        tabular.solve(transitions, expert, discount=0.9)
