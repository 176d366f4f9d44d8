"""Problems in several coordinates know their truth, and a fine-grid MDP agrees with it."""

import numpy as np
import pytest

import certirl
from certirl import Legendre, Reward, problems, product
from certirl.data.dependence import can_pair
from certirl.ground.domain import mesh
from mixed import Mixed
from refusals import refused
from sizes import sizes

PROBLEMS = [
    problems.whirl(),
    problems.random_independent(seed=3),
    problems.independent(certirl.problems.thermostat(), certirl.problems.random_polynomial(seed=1)),
    Mixed(problems.whirl()),
    problems.whirl(dimension=3),
]


def corner(states):
    return np.asarray(states).sum(axis=1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_samples_follow_the_density(problem):
    """Means of basis functions of the next state, drawn and integrated."""
    rng = np.random.default_rng(0)
    basis = product(*[Legendre(4)] * len(problem.domain)).on(problem.domain)
    low, high = np.array(problem.domain).T
    state = low + (high - low) * rng.random(len(low))
    nodes, weights = problem._quadrature()
    for action in range(problem.n_actions):
        drawn = basis.values(problem.sample(np.tile(state, (40_000, 1)), action, rng))
        expected = (problem.density(nodes, state[None], action) * weights) @ basis.values(nodes)
        error = np.abs(drawn.mean(axis=0) - expected[0]) / (drawn.std(axis=0) / 200 + 1e-12)
        assert error.max() < 4.5


@pytest.mark.thinned(2)
@pytest.mark.parametrize("problem", [PROBLEMS[0], PROBLEMS[1], PROBLEMS[4]], ids=str)
def test_exact_operators_are_what_estimates_tend_to(problem):
    basis = product(*[Legendre(5)] * len(problem.domain))
    exact = problem.operators(basis, columns=10)
    data = certirl.steps.sample(problem, basis=basis, samples=40_000, rng=1, design=True)
    estimated = certirl.steps.estimate(data, basis=basis, columns=10)
    rows = basis.on(problem.domain).sup().max()
    assert np.abs(estimated.Z - exact.Z).max() < 8 * rows * np.sqrt(10 / 40_000)
    np.testing.assert_allclose(estimated.noise[1, 1], exact.noise[1, 1], atol=0.1 * np.abs(exact.noise[1, 1]).max())


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_actions_share_their_random_numbers_unless_a_coin_is_tossed(problem):
    basis = product(*[Legendre(3)] * len(problem.domain))
    assert can_pair(problem, basis, 0) == (not isinstance(problem, Mixed))


def fine_grid(problem, along=41):
    """Midpoint cells and the chance of every move between them, each row scaled to one: ``[A, n, n]``."""
    axes = [low + (high - low) * (np.arange(along) + 0.5) / along for low, high in problem.domain]
    states = mesh(axes)
    chances = np.array([problem.density(states, states, action) for action in range(problem.n_actions)])
    return states, chances / chances.sum(axis=2, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("problem", sizes(*PROBLEMS[:2]), ids=str)
def test_a_fine_grid_agrees_on_margins_and_on_the_best_policy(problem):
    basis = product(Legendre(7), Legendre(7))
    criterion = certirl.steps.bellman(problem.operators(basis), discount=0.8)
    reward = certirl.steps.recover(criterion).reward
    states, chances = fine_grid(problem)
    gained = reward(states)
    value = np.linalg.solve(np.eye(len(states)) - 0.8 * chances[0], gained)
    on_grid = chances[0] @ value - chances[1:] @ value
    true = problem.margins(reward, states, discount=0.8)
    np.testing.assert_allclose(on_grid, true, atol=0.02 * np.abs(true).max())
    assert problem.true_margin(reward, discount=0.8) <= true.min() + 1e-12
    best = np.zeros(len(states))
    for _ in range(120):
        best = gained + 0.8 * (chances @ best).max(axis=0)
    assert ((chances @ best).argmax(axis=0) == 0).all()


def test_the_truth_of_a_sum_is_the_truth_of_all_coordinates_together():
    problem = problems.independent(problems.random_polynomial(seed=2), problems.thermostat())
    pairs = zip(problem.parts, np.random.default_rng(0).normal(size=(2, 4)), strict=True)
    parts = [Reward(Legendre(4).on(part.domain), coefficients) for part, coefficients in pairs]
    reward = Reward.sum(parts, [[0], [1]], ["a", "b"])
    together = problem.true_margins(lambda s: reward(s), discount=0.8)
    np.testing.assert_allclose(together, problem.true_margins(reward, discount=0.8), rtol=1e-6)


def test_what_cannot_be_solved_is_not():
    problem = Mixed(problems.whirl())
    criterion = certirl.steps.bellman(problem.operators(product(Legendre(7), Legendre(7))), discount=0.8)
    found = certirl.steps.recover(criterion)
    assert found.status == "infeasible" and found.witness.states.shape[1] == 2
    assert "s = (" in str(found.witness) and found.witness.residual < 1e-9
    assert problem.true_margin(corner, discount=0.8) < 0


def test_wrong_problems_are_one_sentence():
    with pytest.raises(ValueError, match="same number of actions"):
        problems.independent(
            certirl.problems.random_polynomial(seed=0, actions=2), certirl.problems.random_polynomial(seed=1)
        )
    refused("two or three numbers", problems.Whirl, drift=((0.1,), (0.2,)))
    refused("too narrow", problems.whirl(noise=0.01).true_margin, corner, discount=0.8)
