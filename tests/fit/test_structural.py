"""Weights of features of soft experts by maximum likelihood, against finite problems that are solved state by state."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import beta, chi2

import certirl
from certirl.fit.effects import KnownEffects, MeanEffects
from certirl.fit.structural import Choices, choices_of, fit_weights
from certirl.functions.features import features_of

BASIS = certirl.Legendre(7)
NODES = BASIS.quadrature(7)[0]
TRUE = np.array([1.5, -0.8])
FEATURES = features_of(
    {"s": lambda states: states[:, 0], "price": lambda states, action: np.full(len(states), float(action == 1))},
    BASIS.domain,
)


class Finite:
    """A problem with seven states: functions of a Legendre basis take any values there, so that nothing is lost."""

    def __init__(self, discount, seed=0):
        rng = np.random.default_rng(seed)
        self.discount, self.moves = discount, rng.dirichlet(np.full(7, 0.5), size=(3, 7))
        self.paid = np.stack([FEATURES.values(NODES, a) for a in range(3)])

    def log_chances(self, weights):
        """log π ``[A, 7]`` by value iteration, from the value relative to the first state."""
        value = np.zeros(7)
        while True:
            q = self.paid @ weights + self.discount * (self.moves @ value)
            new = logsumexp(q, axis=0)
            if np.abs((new - new[0]) - value).max() < 1e-13:
                return q - new
            value = new - new[0]

    def choices(self, n, rng, weights=TRUE):
        chances = np.exp(self.log_chances(weights))
        places = rng.integers(7, size=n)
        actions = (rng.random(n) > np.cumsum(chances, axis=0)[:, places]).sum(axis=0)
        rows = self.moves @ BASIS.values(NODES)
        decided = KnownEffects(BASIS, NODES[places], (), rows[:, places])
        return Choices(FEATURES, self.discount, KnownEffects(BASIS, NODES, (), rows), decided, actions), places

    def likelihood(self, weights, places, actions):
        return self.log_chances(weights)[actions, places].sum()


@pytest.mark.parametrize("discount", [0.5, 0.9999, 1 - 1e-7])
def test_the_soft_value_and_its_slope_are_those_of_value_iteration(discount):
    problem = Finite(discount)
    choices, _ = problem.choices(10, np.random.default_rng(1))
    found = choices.value(TRUE)
    assert np.exp(problem.log_chances(TRUE)) == pytest.approx(choices.policy(TRUE, found.w), abs=1e-8)
    relative = BASIS.values(NODES) - BASIS.values(NODES[:1])
    for index in range(2):
        step = 1e-4 * np.eye(2)[index]
        after, before = (choices.value(TRUE + sign * step).w for sign in (1, -1))
        assert relative @ (after - before) / 2e-4 == pytest.approx(relative @ found.slope[:, index], abs=1e-4)


@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_the_full_solution_maximises_the_likelihood_and_intervals_end_where_it_has_fallen(discount):
    problem = Finite(discount)
    choices, places = problem.choices(2000, np.random.default_rng(2))

    def loss(weights):
        return -problem.likelihood(weights, places, choices.actions)

    fit = fit_weights(choices)
    best = minimize(loss, TRUE, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    assert fit.weights == pytest.approx(best.x, abs=1e-4)
    assert fit.log_likelihood == pytest.approx(-best.fun, abs=1e-6)
    curvature = np.array([[loss(fit.weights + x + y) - loss(fit.weights + x - y) for y in 1e-3 * np.eye(2)]
                          for x in 1e-3 * np.eye(2)])  # fmt: skip
    curvature -= np.array([[loss(fit.weights - x + y) - loss(fit.weights - x - y) for y in 1e-3 * np.eye(2)]
                           for x in 1e-3 * np.eye(2)])  # fmt: skip
    assert np.diag(np.linalg.inv(curvature / 4e-6)) == pytest.approx(fit.standard_errors**2, rel=0.15)
    for index in range(2):
        for end in fit.intervals[index]:
            other = minimize(lambda x, end=end, index=index: loss(np.insert(x, index, end)), fit.weights[1 - index])
            assert 2 * (other.fun - best.fun) == pytest.approx(chi2.ppf(0.95, 1), rel=1e-2)


def test_two_steps_from_the_true_policy_are_near_and_repeated_ones_end_in_the_full_solution():
    problem = Finite(0.95)
    choices, _ = problem.choices(2000, np.random.default_rng(3))
    full, first = fit_weights(choices), np.exp(problem.log_chances(TRUE))
    once, often = (fit_weights(choices, first=first, steps=steps) for steps in (1, 40))
    assert (np.abs(once.weights - full.weights) < full.standard_errors).all()
    assert once.standard_errors == pytest.approx(full.standard_errors, rel=0.1)
    assert often.weights == pytest.approx(full.weights, abs=1e-6)
    assert "by full solution" in str(full) and "by two steps" in str(once)


def test_features_that_decisions_do_not_determine_are_named():
    box = BASIS.domain
    problem = Finite(0.9)
    choices, _ = problem.choices(500, np.random.default_rng(4))
    same = features_of({"s": lambda states: states[:, 0], "one": lambda states: np.ones(len(states))}, box)
    with pytest.raises(ValueError, match="do not determine the weights of 'one'"):
        fit_weights(Choices(same, 0.9, choices.nodes, choices.decided, choices.actions))


def bus_choices(log, basis, discount):
    """Choices of a log of buses: usage by its own quantiles, replacing resets the mileage."""
    box, (low, high) = log.domain, log.domain[0]
    used = np.quantile((log.next_states - log.states)[log.actions == 0], (np.arange(60) + 0.5) / 60)

    def effects(states):
        kept = np.clip(states + used[:, None, None], low, high)
        renewed = np.broadcast_to(used[:, None, None], kept.shape)
        return MeanEffects.of(basis, states, np.stack([kept, renewed], axis=1), None, ()).stored()

    named = {"cost": lambda s, a: -0.001 * s[:, 0] * (a == 0), "replacement": lambda s, a: np.full(len(s), -(a == 1.0))}
    nodes = effects(basis.quadrature(basis.size)[0])
    return Choices(features_of(named, box), discount, nodes, effects(log.states), log.actions)


@pytest.mark.parametrize("count", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_the_costs_of_simulated_buses_are_recovered_within_their_errors(count):
    buses = certirl.problems.buses()
    true, basis = np.array([buses.cost, buses.replacement]), certirl.Legendre(20).on(buses.domain)
    fits = [fit_weights(bus_choices(buses.log(rng=seed), basis, buses.discount)) for seed in range(count)]
    errors = np.array([(fit.weights - true) / fit.standard_errors for fit in fits])
    inside = np.array([(fit.intervals[:, 0] <= true) & (true <= fit.intervals[:, 1]) for fit in fits])
    assert (np.abs(errors.mean(axis=0)) < 4 / np.sqrt(count)).all()
    assert (np.mean(errors**2, axis=0) < 1 + 4 * np.sqrt(2 / count)).all()
    assert (inside.mean(axis=0) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / count)).all()
    assert max(fit.residual for fit in fits) < 1e-5


@pytest.mark.parametrize("discount", [0.9, 0.9999])
def test_the_soft_policy_of_polynomials_is_that_of_the_simulated_buses(discount):
    buses = certirl.problems.buses(discount=discount, cost=25 if discount < 0.99 else 2.5)
    log = certirl.Transitions(np.zeros(4000), np.zeros(4000, int), buses.sample(np.zeros((4000, 1)), 0, 0),
                              buses.domain, 2)  # fmt: skip
    choices = bus_choices(log, certirl.Legendre(30).on(buses.domain), discount)
    true = np.array([buses.cost, buses.replacement])
    kept, _ = choices.policy(true, choices.value(true).w)
    expected = buses.chances(choices.nodes.states)[:, 0]
    assert kept == pytest.approx(expected, abs=0.003)  # usage is drawn: 0.3 %


class Usage:
    """Months of the simulated twin, by quantiles of their mileage."""

    used = 2.0 * beta.ppf((np.arange(400) + 0.5) / 400, 3.3, 6.7)[:, None, None]

    def outcomes(self, states, action):
        return np.minimum((0 if action else states) + self.used, 110.0), np.full(400, 1 / 400)


@pytest.mark.slow
def test_buses_with_known_outcomes_have_the_policy_of_a_fine_grid_and_their_weights_come_back():
    buses = certirl.problems.buses()
    costs = {
        "cost": lambda states, action: -0.001 * states[:, 0] * (action == 0),
        "replacement": lambda states, action: np.full(len(states), -float(action == 1)),
    }
    log = buses.log(buses=400, months=78, rng=0)
    choices = choices_of(log, Usage(), costs, buses.discount)
    true = np.array([buses.cost, buses.replacement])
    kept = choices.nodes.states[:, 0] < 105  # beyond, mileages are cut off, and V has a kink
    chances = choices.value(true).chances.T
    assert chances[kept] == pytest.approx(buses.chances(choices.nodes.states[kept, 0]), abs=1e-4)
    fit = fit_weights(choices)
    assert (np.abs(fit.weights - true) < 2 * fit.standard_errors).all() and fit.residual < 1e-3
    assert fit.decisions == len(log) == 400 * 78
