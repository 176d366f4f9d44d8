"""Rewards at every state that a plan can reach: walls and other atoms, switches, and places without data."""

import numpy as np
import pytest

import certirl
from certirl.environments.planning import plan
from certirl.fit.rewards import HELD, _smoothed, _through, atoms
from certirl.functions.cells import Cells
from certirl.functions.reward import Reward
from certirl.show import charts
from systems import Moving


class Inventory:
    """Stock that is 0 with positive probability: exponential demand beyond it is lost."""

    n_actions, domain = 3, ((0.0, 20.0),)

    def sample(self, states, action, rng):
        stock = np.minimum(states + 4 * action, 20)
        return np.clip(stock - rng.exponential(4, states.shape), 0, 20)


def orders(states):
    return np.where(states[:, 0] < 4, 2, np.where(states[:, 0] < 5, 1, 0))


@pytest.fixture(scope="module")
def stock():
    return certirl.solve(Inventory(), expert=orders, discount=0.95, rng=1)


def residual(found, state):
    rng, states = np.random.default_rng(5), np.full((40_000, 1), state)
    ahead = max(float(found.value(Inventory().sample(states, action, rng)).mean()) for action in range(3))
    return float(found.reward(state) - (found.value(state) - 0.95 * ahead))


def test_the_reward_is_right_at_a_wall_that_next_states_hit(stock):
    assert abs(residual(stock, 0.0)) < 0.25  # 2.8 by the regression alone
    # Beside the wall V is steep, and the largest residual does not hide it.
    assert stock.stats.largest_residual > max(abs(residual(stock, x)) for x in (0.02, 0.05, 0.15)) - 0.3


def test_planning_on_it_orders_where_the_expert_does(stock):
    chosen = plan(Inventory(), stock.reward, discount=0.95, points=201, draws=64)
    low, high = np.linspace(0, 3, 31)[:, None], np.linspace(9, 20, 31)[:, None]
    assert (chosen(low) > 0).all() and (chosen(high) == 0).all()
    assert stock.findings[0].sentence.startswith("planning on R alone") and stock.status in ("solved", "validated")


def test_places_that_states_share_are_found():
    rng = np.random.default_rng(0)
    states = rng.uniform(0, 1, (2000, 2))
    states[:200], states[200:230] = [0.0, 0.5], [0.37, 0.2]
    np.testing.assert_array_equal(atoms(states), [[0.0, 0.5], [0.37, 0.2]])
    assert not len(atoms(states[230:]))


def test_the_smoothest_reward_is_as_far_as_it_may_be_and_holds_what_is_held():
    grid, rng = Cells((60,)).on(((0.0, 3.0),)), np.random.default_rng(0)
    rough = np.sin(2 * grid.points()[:, 0]) + 0.1 * rng.standard_normal(60)
    weights = 1 + HELD * np.eye(60)[7]
    smooth = _smoothed(grid, rough, 0.05, weights)
    assert np.sqrt(np.mean((smooth - rough) ** 2)) == pytest.approx(0.05, rel=0.02)
    assert smooth[7] == pytest.approx(rough[7], abs=1e-4)
    # The condition of a least roughness at this distance: both slopes point the same way.
    pull, bend = weights * (rough - smooth), grid._roughness() @ smooth
    assert pull @ bend == pytest.approx(np.linalg.norm(pull) * np.linalg.norm(bend), rel=1e-6)
    assert _smoothed(grid, rough, 0.0, weights) is rough


class Table:
    """Two coordinates, no noise: a step along either of them that becomes shorter towards its end, or none."""

    n_actions, domain = 3, ((-1.0, 1.0), (-1.0, 1.0))

    def sample(self, states, action, rng):
        return 0.93 * states + 0.07 * np.array([(0, 0), (1, 0), (0, -1)])[action]


class Walled(Table):
    """Steps of one length up to the walls at s₀ = 1 and s₁ = −1: they bend 0.07 before them. Keeps what it is asked."""

    def __init__(self):
        self.asked = []

    def sample(self, states, action, rng):
        self.asked.append(states)
        return np.clip(states + 0.07 * np.array([(0, 0), (1, 0), (0, -1)])[action], -1, 1)


def diagonal(states):
    return 1 + (states[:, 0] > states[:, 1])


def test_without_noise_a_planner_on_the_grid_of_the_reward_finds_the_value_again():
    """Where next states are linear between those observed: R is read from them alone."""
    found = certirl.solve(Table(), expert=diagonal, discount=0.95, samples=3_000, trials=0, rng=0)
    grid = found.reward.basis
    best = plan(Table(), found, points=grid.counts)
    wanted = found.value(grid.points())
    assert grid.counts == (201, 201) and np.abs(best.values - wanted).max() < 1e-4 * np.ptp(wanted)


@pytest.fixture(scope="module")
def walled():
    """The solution, the states that were asked, and the error of R at states, as a share of the span of V."""
    simulator = Walled()
    found = certirl.solve(simulator, expert=diagonal, discount=0.95, samples=3_000, trials=0, rng=0)
    grid = found.reward.basis
    value = Reward(grid, found.value(grid.points()))  # as a planner on the grid has it

    def error(states):
        ahead = np.max([value(Walled().sample(states, action, None)) for action in range(3)], axis=0)
        return np.abs(found.reward(states) - (value(states) - 0.95 * ahead)) / np.ptp(value.coefficients)

    return found, np.concatenate(simulator.asked), error


def from_the_bend(states):
    return np.minimum(np.abs(states[:, 0] - 0.93), np.abs(states[:, 1] + 0.93))


def test_without_noise_the_reward_is_exact_where_the_states_asked_tell_the_steps(walled):
    found, asked, error = walled
    points = found.reward.basis.points()
    assert error(points[from_the_bend(points) > 0.2]).max() < 1e-9
    # At the states asked themselves, too, but in cells of the grid in which the best action changes.
    errors = error(asked[from_the_bend(asked) > 0.2])
    assert np.quantile(errors, 0.95) < 1e-9 and errors.max() < 1e-3


def test_beside_a_wall_the_reward_is_as_exact_as_the_states_asked_are_dense(walled):
    found, _, error = walled
    errors = error(found.reward.basis.points())
    assert errors.max() < 0.02 and errors.mean() < 1e-4 and (errors > 1e-4).mean() < 0.04


CORRIDOR = Moving(((0.0, 1.0),), (-0.05, 0.05), std=0.005)


def middle(states):
    return (states[:, 0] < 0.3).astype(int)


@pytest.fixture(scope="module")
def narrow():
    rng, states = np.random.default_rng(0), np.random.default_rng(1).uniform(0.1, 0.6, (6000, 1))
    actions = rng.integers(2, size=len(states))
    moved = np.concatenate([CORRIDOR.sample(states[[i]], actions[i], rng) for i in range(len(states))])
    log = certirl.Transitions(states, actions, moved, domain=CORRIDOR.domain)
    return certirl.solve(log, expert=middle, discount=0.9)


def test_without_data_the_reward_is_a_bound_and_says_so(narrow, tmp_path):
    reward, states = narrow.reward, np.linspace(0, 1, 401)[:, None]
    far = states[:, 0] > 0.68
    assert (
        reward.extrapolated(states)[far].all()
        and not reward.extrapolated(states)[abs(states[:, 0] - 0.35) < 0.23].any()
    )
    assert reward.extrapolated(0.9) is True and reward.extrapolated(0.3) is False
    assert 0.38 < narrow.stats.extrapolated < 0.52 and "R is a lower bound at" in str(narrow)
    again = certirl.load(narrow.save(tmp_path / "narrow"))
    np.testing.assert_array_equal(again.reward.extrapolated(states), reward.extrapolated(states))
    assert str(again) == str(narrow)
    assert not Reward(Cells((5,)), np.zeros(5)).extrapolated(states).any()
    np.testing.assert_array_equal(np.isnan(reward(states, extrapolated="nan")), reward.extrapolated(states))
    assert np.isnan(reward(0.9, extrapolated="nan")) and reward(0.3, extrapolated="nan") == reward(0.3)
    with pytest.raises(ValueError, match='extrapolated must be "bound" or "nan", got 0'):
        reward(states, extrapolated=0)


def test_no_plan_leaves_the_data_and_none_expects_more_than_the_value(narrow):
    states = np.linspace(0, 1, 201)[:, None]
    best = plan(CORRIDOR, narrow.reward, discount=0.9, points=401, draws=32)
    inside = states[abs(states[:, 0] - 0.35) < 0.25]
    assert (best(inside) == middle(inside)).mean() > 0.95
    span = float(np.ptp(narrow.value(inside)))
    assert (best.value(inside) <= narrow.value(inside) + 0.05 * span).all()
    # No cliff: what R loses at the edge of the data is what a step of the log can change V by.
    rewards = narrow.reward(states)
    assert rewards.min() > narrow.reward(inside).min() - 0.2 * span


def test_plan_and_expert_are_compared_where_the_expert_stays_within_the_data(narrow):
    assert narrow.stats.staying is not None and narrow.stats.staying.low > 0.9
    assert "the expert stays within the data from" in str(narrow)
    assert narrow.reason.startswith("the expert is explained at") and "no fresh states" in narrow.reason
    assert any(finding.cause.startswith("planning on R alone, in the model") for finding in narrow.findings)
    assert max(narrow.stats.planned_regret, narrow.stats.planned_loss) < 0.05


def test_where_a_reward_is_only_bounded_lines_are_shaded_and_not_drawn(narrow):
    pytest.importorskip("matplotlib")
    labels = [text.get_text() for text in narrow.plot()[0].get_legend().get_texts()]
    assert "no data" in labels
    (curve, *_) = charts.reward_charts(narrow)[0].curves
    np.testing.assert_array_equal(np.isnan(curve.y), narrow.reward.extrapolated(curve.x))


def test_a_reward_through_given_values_is_the_nearest_one():
    grid, rng = Cells((5,), (), ((0.0, 1.0),)), np.random.default_rng(0)
    before, states, wanted = rng.normal(size=grid.size), np.array([[0.1], [0.55], [0.9]]), np.array([1.0, -2.0, 3.0])
    after, hats = _through(grid, before, states, wanted), grid.matrix(states).toarray()
    assert Reward(grid, after)(states) == pytest.approx(wanted)
    across = after - before - np.linalg.pinv(hats) @ hats @ (after - before)
    assert across == pytest.approx(0 * before)  # nothing is changed that need not be
