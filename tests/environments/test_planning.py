"""Plans against what is known exactly: closed forms, dense linear algebra, brute force."""

import itertools

import numpy as np
import pytest

import certirl
from certirl.environments import planning
from certirl.environments.planning import plan
from certirl.fit import plan as plans
from refusals import refused
from systems import Moving


class Line:
    """Steps of ±h on [0, 1], walls at both ends: with as many points as steps, the grid is the MDP."""

    n_actions, domain, thread_safe = 2, ((0.0, 1.0),), True

    def __init__(self, cells=10, goal=False):
        self.h = 1 / cells
        if goal:
            self.terminal = lambda states: states[:, 0] > 1 - self.h / 2

    def sample(self, states, action, rng):
        return np.clip(np.round((states + (self.h if action else -self.h)) / self.h) * self.h, 0, 1)


def brute_force(cells, reward, discount, terminal=()):
    """The best of all policies, by solving a dense system for each."""
    best = np.full(cells + 1, -np.inf)
    for policy in itertools.product((-1, 1), repeat=cells + 1):
        P = np.zeros((cells + 1, cells + 1))
        for s, step in enumerate(policy):
            P[s, s if s in terminal else min(max(s + step, 0), cells)] = 1
        best = np.maximum(best, np.linalg.solve(np.eye(cells + 1) - discount * P, reward))
    return best


@pytest.mark.parametrize("goal", [False, True])
@pytest.mark.parametrize("discount", [0.7, 0.99])
def test_on_a_small_chain_it_is_the_best_of_all_policies(goal, discount):
    reward = np.random.default_rng(3).normal(size=10)
    found = plan(
        Line(9, goal),
        lambda s: reward[np.round(s[:, 0] * 9).astype(int)],
        discount=discount,
        points=10,
        tolerance=1e-12,
    )
    exact = brute_force(9, reward, discount, terminal=(9,) if goal else ())
    assert np.abs(found.values - exact).max() < 1e-8 * np.abs(exact).max()
    assert found.residual < 1e-10


def test_steps_to_the_goal_have_their_closed_form():
    found = plan(Line(10, goal=True), step_reward=lambda s, a, t: -np.ones(len(s)), discount=0.9, points=11)
    steps = np.arange(10, -1, -1)
    assert found.value(np.linspace(0, 1, 11)) == pytest.approx(-(1 - 0.9**steps) / 0.1, abs=1e-9)
    assert (found(np.linspace(0, 0.9, 10)) == 1).all()


class Circle:
    """A rotation that one may go along with or against; periodic."""

    n_actions, domain, periodic, thread_safe = 2, ((0.0, 1.0),), (0,), True

    def sample(self, states, action, rng):
        return (states + (0.1 if action else -0.1)) % 1.0


def test_a_circle_is_planned_around():
    near = lambda s: -np.minimum(s[:, 0], 1 - s[:, 0])  # noqa: E731
    found = plan(Circle(), near, discount=0.9, points=100)
    assert found([0.15, 0.35, 0.65, 0.85]).tolist() == [0, 0, 1, 1]
    assert found.value([0.0]) == pytest.approx(found.value([1.0]))


def test_noise_is_averaged_over():
    NOISY = Moving(((-1.0, 1.0),), (-0.2, 0.2), keep=0.5, std=0.1)
    found = plan(NOISY, lambda s: s[:, 0], discount=0.8, points=201, draws=400)
    # Linear throughout: action 1 for ever, V(s) = s/(1 − 0.4) + 0.8·0.2/(1 − 0.4)/(1 − 0.8)
    states = np.array([-0.3, 0.0, 0.3])
    assert found.value(states) == pytest.approx(states / 0.6 + 0.16 / 0.6 / 0.2, abs=0.03)
    assert (found(states) == 1).all()
    mixed = np.random.default_rng(1).permutation(np.repeat(np.linspace(-1, 1, 21), 5))
    assert np.array_equal(found.action_values(mixed), np.stack([found.action_values([s])[0] for s in mixed]))
    assert plan(NOISY, lambda s: s[:, 0], discount=0.8, points=101).value(states) == pytest.approx(
        found.value(states), abs=0.1
    )


def test_four_coordinates_agree_with_four_separate_ones():
    box, line = (Moving(((-1.0, 1.0),) * d, (-0.1, 0.1), keep=0.8) for d in (4, 1))
    whole = plan(box, lambda s: s.sum(axis=1), discount=0.9, points=7)
    side = plan(line, lambda s: s[:, 0], discount=0.9, points=7)
    states = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    assert whole.value(states) == pytest.approx(sum(side.value(column) for column in states.T), abs=1e-3)


def test_a_plan_looks_one_step_ahead_as_bellman_says():
    simulator = Line(9)
    found = plan(simulator, lambda s: np.sin(5 * s[:, 0]), discount=0.9, points=50)
    states = np.linspace(0.01, 0.99, 37)
    ahead = found.action_values(states)
    for action in range(2):
        after = simulator.sample(states[:, None], action, None)
        assert ahead[:, action] == pytest.approx(np.sin(5 * states) + 0.9 * found.value(after))
    assert (found.policy(states) == ahead.argmax(axis=1)).all()
    assert "50 points" in str(found)


class Drifting:
    """Both actions lead a third of a cell along the diagonal."""

    n_actions, domain, periodic = 2, ((0.0, 1.0), (0.0, 1.0)), (0, 1)

    def __init__(self, noise=0.0):
        self.noise = noise

    def sample(self, states, action, rng):
        return (states + 0.0017 + self.noise * rng.standard_normal(states.shape)) % 1


def test_in_two_coordinates_without_noise_the_usual_grid_is_fine():
    reward, states = lambda s: np.sin(20 * np.pi * s[:, 0]), np.random.default_rng(0).random((200, 2))
    usual, coarse = (plan(Drifting(), reward, discount=0.95, points=points) for points in (None, 201))
    exact = sum(0.95**k * reward(states + 0.0017 * k) for k in range(400))
    errors = [float(np.abs(made.value(states) - exact).max()) for made in (usual, coarse)]
    assert errors[0] < 0.4 * errors[1]
    assert plan(Drifting(0.01), reward, discount=0.5, draws=2).basis.counts == (201, 201)


def test_a_solution_brings_its_reward_and_discount():
    problem = certirl.problems.random_polynomial(seed=7)
    solution = certirl.solve(problem, discount=0.7, expert=0, samples=20_000, rng=0)
    found = plan(problem, solution, points=201, draws=200)
    assert found.discount == 0.7
    # Under its own reward the expert's action is the best: against the exact margins, which know no grid.
    assert problem.true_margin(solution.reward, discount=0.7) > 0
    assert (found(np.linspace(-1, 1, 50)) == 0).mean() > 0.9


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"discount": 1.0}, "discount must be"),
        ({"discount": None}, "pass discount, say"),
        ({"points": 2}, "points must be whole numbers of at least 3"),
        ({"points": 10**9}, "points must make a grid of at most 1,000,000, got 1,000,000,000"),
        ({"draws": 0}, "draws must be a whole number, at least 1"),
        ({"reward": None}, "has no reward of its own"),
        ({"step_reward": lambda s, a, t: s[:, 0]}, "not both"),
        ({"reward": lambda s: np.zeros(3)}, "numbers, got shape"),
        ({"points": (10, 10)}, "points must be whole numbers"),
        ({"starts": [[0.0, 1.0]]}, r"starts must have shape \[n\] or \[n, 1\]"),
    ],
)
def test_wrong_calls_are_told_what_to_write_instead(asked, sentence):
    refused(sentence, plan, Line(), **{"reward": lambda s: s[:, 0], "discount": 0.9, **asked})


def test_mountain_car_is_driven_up_by_its_own_reward_and_by_a_reward_of_states():
    simulator = certirl.gym.simulator("MountainCar-v0")
    expert = plan(simulator, discount=0.99, points=101)
    assert certirl.gym.episode_returns("MountainCar-v0", expert, episodes=20, rng=0).mean() > -110
    at_goal = plan(simulator, lambda s: (s[:, 0] >= 0.5).astype(float), discount=0.99, points=101)
    assert certirl.gym.episode_returns("MountainCar-v0", at_goal, episodes=20, rng=0).mean() > -115


# Five coordinates, all of which an action moves up or down, and one of them alone.
FIVE, ONE = (Moving(((-1.0, 1.0),) * d, (-0.1, 0.0, 0.1), keep=0.9) for d in (5, 1))


def middle(states):
    return -(states.mean(axis=1) ** 2)


def discounted(simulator, policy, states, reward, discount, steps=60):
    total = np.zeros(len(states))
    for step in range(steps):
        total += discount**step * reward(states)
        actions = policy(states)
        states = np.choose(actions[:, None], [simulator.sample(states, a, None) for a in range(simulator.n_actions)])
    return total


@pytest.mark.slow
def test_beyond_four_coordinates_a_fitted_plan_is_nearly_the_best():
    starts = np.random.default_rng(0).uniform(-1, 1, (100, 5))
    found = plan(FIVE, middle, discount=0.8, starts=starts, rng=1)
    # The mean of the coordinates moves as one coordinate does, which a fine grid plans for.

    exact = plan(ONE, middle, discount=0.8)
    fresh = np.random.default_rng(5).uniform(-0.9, 0.9, (200, 5))
    best = discounted(ONE, exact, fresh.mean(axis=1, keepdims=True), middle, 0.8)
    random = discounted(FIVE, lambda s: np.random.default_rng(0).integers(3, size=len(s)), fresh, middle, 0.8)
    reached = discounted(FIVE, found, fresh, middle, 0.8)
    assert reached.mean() > best.mean() - 0.01 * (best.mean() - random.mean())
    assert found.returns.mean == pytest.approx(reached.mean(), abs=4 * found.returns.error)
    assert "functions of" in str(found) and "return" in str(found)
    again = plan(FIVE, middle, discount=0.8, starts=starts, rng=1)
    assert np.array_equal(found.values, again.values) and found.returns == again.returns


def test_the_return_of_a_fitted_plan_is_from_states_that_did_not_choose_it(monkeypatch):
    asked, walked = [], plans.walked

    def recorded(process, policy, starts, steps, *more, **named):
        asked.extend([starts] * (steps == plans.steps_of(0.8)))
        return walked(process, policy, starts, steps, *more, **named)

    monkeypatch.setattr(plans, "walked", recorded)
    monkeypatch.setattr(planning, "SETTINGS", (plans.Setting(30, 2, 2),))
    found = plan(FIVE, middle, discount=0.8, rng=1)
    *chosen, fresh = asked
    assert len(chosen) == 2 and len(fresh) == found.returns.starts >= 200
    assert not {*map(tuple, fresh)} & {*map(tuple, np.concatenate(chosen))}


def test_a_grid_that_is_asked_for_in_five_coordinates_is_refused():
    refused("these states have 5: leave points out", plan, FIVE, middle, discount=0.8, points=5)


def test_a_function_that_has_a_reward_is_the_reward():
    class Wish:
        reward = np.zeros(3)  # as of a solution

        def __call__(self, states):
            return states[:, 0]

    found = plan(Line(), Wish(), discount=0.9, points=11)
    assert found([0.2, 0.8]).tolist() == [1, 1]
    assert " 1 round, " in str(plan(Line(), lambda s: 0 * s[:, 0], discount=0.9, points=11))


def test_an_environment_is_planned_in_by_its_name():
    found = plan("MountainCar-v0", discount=0.99, points=41, starts=[[-0.5, 0.0]])
    assert found.converged and -100 < found.returns.mean < -50
    assert "±" not in str(found) and "from 1 state in 300 steps" in str(found)


def logged(low, high, n=3_000):
    """Steps of ±0.1 on [-1, 1] with a little noise, from states between two numbers."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(low, high, (n, 1)), rng.integers(2, size=n)
    after = states + 0.1 * (2 * actions[:, None] - 1) + 0.002 * rng.standard_normal(states.shape)
    return certirl.Transitions(states, actions, np.clip(after, -1, 1), domain=(-1, 1))


def test_a_log_is_planned_in_as_its_dynamics_are():
    found = plan(logged(-1, 1), lambda s: -np.abs(s[:, 0] - 0.3), discount=0.9)
    states = np.concatenate([np.linspace(-0.9, 0.2, 50), np.linspace(0.4, 0.9, 50)])
    assert (found(states) == (states < 0.3)).mean() > 0.98


def test_a_plan_from_a_log_says_how_far_its_model_is_to_be_trusted():
    log, rng = logged(-1, 1), np.random.default_rng(0)
    shuffled = certirl.Transitions(log.states, log.actions, rng.permutation(log.next_states), log.domain, log.n_actions)
    good, bad = (plan(data, lambda s: s[:, 0], discount=0.9) for data in (log, shuffled))
    assert "effect (good)" in str(good) and "effect (not usable)" in str(bad)
    assert repr(good) == f"<Plan: {str(good).splitlines()[0]}>"
    assert "model" not in str(plan(Line(), lambda s: s[:, 0], discount=0.9))


def test_a_plan_from_a_log_does_not_go_where_the_dynamics_are_extrapolated():
    log, wish = logged(-1, 0.2), lambda s: s[:, 0]
    found = plan(log, wish, discount=0.9, starts=[[-0.5], [0.9]])
    assert found.returns.extrapolated == 0.5 and "50% of them leave the data" in str(found)
    lowest = wish(log.states).min() / (1 - 0.9)
    assert found.action_values([0.95])[0] == pytest.approx([lowest, lowest], rel=1e-3)
    states = np.array([[-0.5], [0.0]])
    for _ in range(50):
        states = states + 0.1 * (2 * found(states)[:, None] - 1)
    assert (states > 0).all() and (states < 0.8).all()  # as far as the data support, not to the edge
    refused("at least 100 transitions of every action", plan, logged(-1, 1, n=50), wish, discount=0.9)


def test_a_plan_takes_the_name_of_a_file_and_refuses_no_start_states(tmp_path):
    log = logged(-1.0, 1.0)
    np.savez(tmp_path / "log.npz", states=log.states, actions=log.actions, next_states=log.next_states)
    reward = lambda states: -(states[:, 0] ** 2)  # noqa: E731
    named = plan(str(tmp_path / "log.npz"), reward, discount=0.9, points=51)
    assert named.n_actions == log.n_actions
    with pytest.raises(ValueError, match="starts must be one or more states, got none"):
        plan(log, reward, discount=0.9, starts=np.zeros((0, log.states.shape[1])))
    refused("a log has no reward of its own", plan, log, discount=0.9)


def test_a_fitted_value_has_the_levels_and_the_differences_of_its_goals():
    """Of goals that the functions can reach both are exact, in any unit; of others what decides counts most."""
    rng, basis = np.random.default_rng(0), certirl.Legendre(4)
    after = rng.uniform(-1, 1, (3, 200, 1))
    exact, over = np.array([1.0, -2.0, 0.5, 0.3]), np.zeros((3, 200), dtype=bool)
    goals = np.stack([basis.values(rows) @ exact for rows in after])
    for unit in (1.0, 1e-4, 1e4):
        found, error = plans._fit(basis, after, unit * goals, over)
        assert found == pytest.approx(unit * exact) and error < 1e-6
    odd = goals + 0.5 * np.sin(9 * after[:, :, 0])
    ones = [plans._fit(basis, after, unit * odd, over)[0] / unit for unit in (1.0, 1e-4, 1e4)]
    assert ones[1] == pytest.approx(ones[0]) and ones[2] == pytest.approx(ones[0])
    # A term that all actions share says nothing of which is best.
    shared = goals + 3 * np.sin(9 * after[:1, :, 0])
    found, error = plans._fit(basis, after, shared, over)
    apart = np.stack([basis.values(rows) @ (found - exact) for rows in after])
    assert np.ptp(apart, axis=0).mean() < 0.3 * np.ptp(goals, axis=0).mean() and error > 0.5


def test_what_a_terminal_state_pays_goes_on_for_ever():
    walk = Line(10, goal=True)
    found = plan(walk, lambda s: np.where(s[:, 0] > 0.95, 2.0, -1.0), discount=0.8, points=11)
    steps = np.arange(10, -1, -1)
    assert found.value(np.linspace(0, 1, 11)) == pytest.approx(-(1 - 0.8**steps) / 0.2 + 0.8**steps * 10, abs=1e-9)
