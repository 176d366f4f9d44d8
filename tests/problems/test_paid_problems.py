"""Queues and a harvest: their experts against brute force, and what is learned from them."""

import numpy as np
import pytest

import certirl
from certirl.problems import harvest, queue
from certirl.problems.paid import Harvest, Queue


@pytest.mark.parametrize("problem", [Queue(), Harvest()], ids=["queue", "harvest"])
def test_outcomes_have_the_moments_of_the_draws(problem):
    low, high = np.array(problem.domain).T
    states = low + (high - low) * np.random.default_rng(0).random((6, len(low)))
    for action in range(problem.n_actions):
        after, weights = problem.outcomes(states, action)
        drawn = problem.sample(np.repeat(states, 40_000, axis=0), action, np.random.default_rng(1))
        drawn = drawn.reshape(6, 40_000, -1)
        assert weights.sum() == pytest.approx(1.0)
        error = 5 * drawn.std(axis=1) / 200 + 2e-3  # 24 outcomes leave some
        assert (abs(np.einsum("m,mnd->nd", weights, after) - drawn.mean(axis=1)) <= error).all()
        np.testing.assert_allclose(np.sqrt(np.einsum("m,mnd->nd", weights, (after - drawn.mean(axis=1)) ** 2)),
                                   drawn.std(axis=1), rtol=0.1, atol=2e-3)  # fmt: skip


def test_work_that_finds_no_room_costs_the_price_of_a_mean_job():
    states = np.array([[3.9, 0.0], [3.4, 1.0], [1.0, 1.0], [0.0, 4.0]])
    for problem in (queue(), queue(load=3.0)):
        sizes = problem.load * (0.5 + np.random.default_rng(0).random((200_000, 1)))
        for action in range(2):
            lost = np.maximum(states[:, action] + sizes - problem.speeds[action] - problem.room, 0).mean(axis=0)
            paid = -problem.reward(states, action) - states.sum(axis=1)
            np.testing.assert_allclose(paid, problem.price * lost / problem.load, atol=0.02)


def test_the_queue_joins_the_better_queue_and_rejects_where_both_are_long():
    problem = queue()
    for s in ([0.2, 1.0], [0.2, 3.0]):
        assert problem.expert([s, s[::-1]]).tolist() == [0, 1]
    assert problem.expert([[2.0, 2.0], [3.0, 2.5]]).tolist() == [2, 2]
    assert queue(price=50.0).expert([[1.0, 1.0]])[0] < 2


def test_the_harvest_releases_into_a_small_stock_and_catches_from_a_large_one():
    stocks = np.linspace(0.05, 2, 40)
    actions = harvest(price=0.2).expert(stocks[:, None])
    assert actions[0] == 0 and actions[-1] == 2 and set(actions) == {0, 1, 2}
    assert (np.diff(actions) >= 0).all()
    assert 0 not in harvest(price=5.0).expert(stocks[:, None])


def test_no_other_first_action_earns_more_by_rollouts_of_the_expert_after_it():
    problem = harvest()
    stocks = np.linspace(*problem.domain[0], 2_001)
    taken = problem.expert(stocks[:, None])  # looked up once: the expert switches twice
    for stock in (0.2, 1.2, 1.8):
        returns = []
        for first in range(3):
            states, total = np.full((4_000, 1), stock), np.zeros(4_000)
            for step in range(60):
                actions = np.full(4_000, first) if step == 0 else taken[np.searchsorted(stocks, states[:, 0])]
                total += problem.discount**step * problem.reward(states, actions)
                each = np.stack([problem.sample(states, a, np.random.default_rng(step)) for a in range(3)])
                states = each[actions, np.arange(4_000)]
            returns.append(total.mean())
        assert int(np.argmax(returns)) == problem.expert([[stock]])[0]


@pytest.mark.slow
def test_costs_of_actions_are_learned_from_a_log_of_the_harvest():
    problem, rng = harvest(), np.random.default_rng(1)
    states, actions = rng.uniform(0.05, 2.0, (6_000, 1)), rng.integers(3, size=6_000)
    after = np.empty_like(states)
    for action in range(3):
        after[actions == action] = problem.sample(states[actions == action], action, rng)
    log = certirl.Transitions(states, actions, after, domain=problem.domain, action_names=problem.action_names)
    asked = {"expert": problem.expert, "discount": problem.discount}
    plans = [
        certirl.planning.plan(problem, certirl.solve(log, **asked, method=certirl.ValueForm(costs=costs)).reward,
                              discount=problem.discount, points=201)
        for costs in (False, True)
    ]  # fmt: skip
    even = np.linspace(0.05, 2, 400)[:, None]
    agreed = [(plan(even) == problem.expert(even)).mean() for plan in plans]
    assert agreed[0] < 0.95 < 0.97 < agreed[1]
    named = str(certirl.solve(log, **asked)).splitlines()[0]
    assert "a cost of each action: release costs" in named


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_prices_of_rejections_are_learned_from_a_log_of_queues(seed):
    """The values of work and of rejections jump where the expert switches, and their sum does not."""
    problem, rng = queue(), np.random.default_rng(seed)
    states, actions = rng.uniform(0, problem.room, (9_000, 2)), rng.integers(3, size=9_000)
    after = np.stack([problem.sample(states, a, np.random.default_rng(seed + 9)) for a in range(3)])
    after = after[actions, np.arange(9_000)]
    log = certirl.Transitions(states, actions, after, domain=problem.domain)
    named = {
        "work": lambda states: states.sum(axis=1),
        "rejection": lambda states, action: np.full(len(states), float(action == 2)),
    }
    asked = {"expert": problem.expert, "discount": problem.discount, "rng": seed}
    solution = certirl.solve(log, method=certirl.FeatureForm(named), **asked)
    work, rejection = solution.reward.coefficients
    assert work < 0 and 2 < rejection / work < 6  # the price is 4


def test_numbers_of_a_problem_are_checked():
    for make, wrong in (
        (queue, {"price": -1}),
        (queue, {"load": 0}),
        (harvest, {"share": 2}),
        (harvest, {"noise": -1}),
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make(**wrong)
