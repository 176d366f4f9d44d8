"""Policies of six and more coordinates: random sigmoids, their width by held-out data, honest statuses."""

import numpy as np
import pytest

import certirl
from certirl.data.policy import as_policy
from certirl.fit import effects, value_program
from certirl.functions.sigmoids import Sigmoids
from certirl.ground.domain import as_domain
from certirl.solver import value_form

BOX = as_domain(((-1.0, 1.0),) * 6)


class Carts:
    """Two carts whose engines lag: position, speed and thrust of each; every action pushes both, either way."""

    n_actions, domain = 4, BOX

    def sample(self, states, action, rng):
        moved = np.array(states)
        for first, push in ((0, 1 - 2 * (action // 2)), (3, 1 - 2 * (action % 2))):
            x, v, w = states[:, first : first + 3].T
            moved[:, first : first + 3] = np.stack([x + 0.2 * v, v + 0.2 * w, 0.9 * w + 0.3 * push], axis=1)
        return np.clip(moved + 0.01 * rng.standard_normal(moved.shape), -1, 1)


def expert(states):
    """Push each cart towards the middle."""
    left, right = (states[:, j] + 1.2 * states[:, j + 1] + 0.6 * states[:, j + 2] > 0 for j in (0, 3))
    return 2 * left + right


def log_of(n, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    states, actions = scale * rng.uniform(-1, 1, (n, 6)), rng.integers(4, size=n)
    after = np.empty_like(states)
    for action in range(4):
        after[actions == action] = Carts().sample(states[actions == action], action, rng)
    return certirl.Transitions(states, actions, after, BOX, 4)


def quickly(log):
    """The solution with fewer functions than usual, and without planning on R: that takes some seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_form, "_tried_in_a_model", lambda solution, *_: solution)
        patch.setattr(value_form, "MOST_POINTS", 2_000)
        patch.setattr(effects, "SIGMOIDS", 150)
        return certirl.solve(log, expert=expert, discount=0.9, rng=0)


@pytest.fixture(scope="module")
def solution():
    return quickly(log_of(1_200))


def test_six_coordinates_are_solved_with_sigmoids_of_a_width_that_is_printed(solution):
    states = np.random.default_rng(1).uniform(-1, 1, (2_000, 6))
    assert isinstance(solution.basis, Sigmoids) and solution.basis.width in value_program.WIDTHS
    assert solution.stats.choice.startswith(f"V has 150 random sigmoids of width {solution.basis.width:g}, next states")
    assert solution.reward.basis.width == solution.basis.width
    assert (solution.greedy(states) == expert(states)).mean() > 0.9
    assert solution.status == "solved" and "the reward was not tried" in solution.reason


def test_states_beyond_the_box_are_moved_to_its_edge_by_the_greedy_policy(solution):
    far = np.array([[3.0, 0.2, 0.1, -2.0, 0.0, 0.0]])
    assert np.array_equal(solution.greedy(far), solution.greedy(np.clip(far, -1, 1)))
    with pytest.raises(ValueError, match="pass states inside it"):
        solution.action_values(far)


def test_a_solution_of_many_coordinates_is_saved_and_read(solution, tmp_path):
    states = np.random.default_rng(2).uniform(-1, 1, (50, 6))
    again = certirl.load(solution.save(tmp_path / "carts.npz"))
    assert again.basis == solution.basis and str(again) == str(solution)
    assert np.array_equal(again.greedy(states), solution.greedy(states))
    assert np.array_equal(again.reward(states), solution.reward(states))


def test_a_model_that_is_too_inexact_leaves_the_answer_undetermined():
    log, rng = log_of(1_000), np.random.default_rng(3)
    noisy = np.clip(log.next_states + 3 * rng.standard_t(2, log.states.shape), -1, 1)
    answer = quickly(certirl.Transitions(log.states, log.actions, noisy, BOX, 4))
    assert answer.status == "undetermined" and "of an action's effect" in answer.reason


def test_effects_that_are_kept_for_their_functions_keep_the_width():
    moved = np.random.default_rng(0).uniform(-1, 1, (2, 4, 300, 6))
    states = np.random.default_rng(1).uniform(-1, 1, (300, 6))
    sigmoids = Sigmoids.of_data(50, states, BOX)
    of_two_draws = effects.MeanEffects.of(sigmoids, states, moved, None, ())
    rows = value_program.comparisons(of_two_draws, as_policy(expert, 4))
    assert isinstance(rows.effects, effects.KnownEffects)
    kept, reward_basis = value_program.choose_width(rows, reward_basis=sigmoids, discount=0.9)
    assert kept is rows and reward_basis is sigmoids


@pytest.mark.slow
def test_planning_on_the_reward_alone_follows_the_expert_in_six_coordinates():
    answer = certirl.solve(log_of(3_000), expert=expert, discount=0.9, rng=0)
    assert answer.status in ("solved", "validated")
    assert answer.stats.planned_loss < 0.1 and answer.stats.planned_regret < 0.1
