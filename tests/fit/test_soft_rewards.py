"""Rewards of soft experts against a problem of five states, where a basis of five functions takes any values."""

import numpy as np
import pytest
from scipy.optimize import minimize

import certirl
from certirl.fit.declared import Declared
from certirl.fit.logit import Logit
from certirl.fit.projections import Projections
from certirl.fit.soft import TwoSteps, by_features, by_reference
from certirl.functions.features import features_of

GAMMA, ACTIONS, REFERENCE = 0.8, 3, 1
COLUMNS, ODDS = certirl.Legendre(5), certirl.Legendre(4)
NODES = COLUMNS.quadrature(5)[0]
STEP = 1e-30  # of derivatives along the imaginary axis, which lose no digits


def total(q):
    """log Σ exp over the actions, of complex numbers too."""
    return np.log(np.exp(q).sum(axis=0))


class Finite:
    """Counts of transitions between five states, some of which end the walk, and of decisions.

    If an action ``resets``, it sets the state to the fourth, and then the reference does what it does there.
    """

    def __init__(self, seed=0, *, resets=False):
        self.resets = resets
        rng = np.random.default_rng(seed)
        self.counts = rng.integers(0, 8, (ACTIONS, 5, 6)) + 1  # the last next state is terminal
        self.decided = rng.integers(3, 40, (ACTIONS, 5))
        self.chances = self.tied(self.counts[:, :, :5] / self.counts.sum(axis=2, keepdims=True))
        coefficients = rng.normal(0, 0.4, (ACTIONS, 4))
        coefficients[REFERENCE] = 0
        half = rng.normal(size=(8, 8))
        self.logit = Logit(ODDS, REFERENCE, coefficients, 40 * (half @ half.T + np.eye(8)), int(self.decided.sum()))
        self.given = rng.normal(size=5)
        self.paid = rng.normal(size=(ACTIONS, 5, 2))
        self.odds = coefficients @ ODDS.values(NODES).T
        places = np.append(NODES[:, 0], 0.99)
        states, actions, following = [], [], []
        for (action, here, there), often in np.ndenumerate(self.counts):
            states += often * [places[here]]
            actions += often * [action]
            following += often * [places[there]]
        self.log = certirl.Transitions(states, actions, following, COLUMNS.domain, ACTIONS)
        moves = {0: certirl.dynamics.Resets(to=float(NODES[3, 0]), then=REFERENCE)} if resets else {}
        seen = Declared(moves).without(self.log)
        self.dynamics = Projections.of(seen, COLUMNS, seen.next_states[:, 0] == 0.99, Declared(moves))
        pairs = [(a, s) for (a, s), often in np.ndenumerate(self.decided) for _ in range(often)]
        actions, here = np.array(pairs).T
        self.decisions = certirl.Transitions(NODES[here], actions, NODES[here], COLUMNS.domain, ACTIONS)

    def tied(self, chances):
        """The same, if action 0 resets the state."""
        first = np.tile(chances[REFERENCE, 3], (5, 1)) if self.resets else chances[0]
        return np.stack([first, *chances[1:]])

    def at(self, states, table):
        """A table of values ``[5, …]`` at the states nearest to these."""
        return table[np.abs(states - NODES[:, 0]).argmin(axis=1)]

    def rewards(self, odds, chances):
        """V and R − r_0 of every action ``[A, 5]`` from log-odds and transitions."""
        policy = odds - total(odds)
        value = np.linalg.solve(np.eye(5) - GAMMA * chances[REFERENCE], self.given - policy[REFERENCE])
        return value, odds + GAMMA * (chances[REFERENCE] - chances) @ value

    def utilities(self, theta, chances):
        """Q of every action ``[A, 5]`` for weights of features, under the policy of the log-odds."""
        policy = np.exp(self.odds - total(self.odds))
        paid = self.paid @ theta
        sources = (policy * (paid - np.log(policy))).sum(axis=0)
        value = np.linalg.solve(np.eye(5) - GAMMA * np.einsum("as,ast->st", policy, chances), sources)
        return paid + GAMMA * chances @ value

    def effects(self, chances):
        """What the utilities change by with each weight ``[A, 5, 2]``."""
        none = self.utilities(np.zeros(2), chances)
        return np.stack([self.utilities(weight, chances) - none for weight in np.eye(2)], axis=2)

    def slopes(self, theta, chances):
        """Of the likelihood by the weights and by coefficients of free log-odds ``[2 + 8]``.

        What a weight changes is that of the estimated dynamics: what decisions leave to it is 0 on average.
        """
        q = self.utilities(theta, chances)
        left = self.decided - self.decided.sum(axis=0) * np.exp(q - total(q))
        free = np.einsum("as,sk->ak", left[[0, 2]], ODDS.values(NODES))
        return np.concatenate([np.einsum("as,asp->p", left, self.effects(self.chances)), free.ravel()])

    def steps(self):
        return TwoSteps(self.dynamics, self.logit, self.decisions, lambda s, a: self.at(s, self.paid[a]), 2, GAMMA)

    def spread(self, function):
        """The covariance of a function of the transitions' probabilities: each transition's squared influence."""
        known = 0.0
        for (action, here, there), often in np.ndenumerate(self.counts):
            number = self.counts[action].sum()
            moved = self.chances.astype(complex)
            moved[action, here] += (
                1j * STEP * (np.eye(6)[there, :5] - moved[action, here]) / self.counts[action, here].sum()
            )
            influence = np.ravel(function(self.tied(moved))).imag / STEP
            known = known + often * number / (number - 5) * np.outer(influence, influence)
        return known


@pytest.fixture(params=[False, True], ids=["regressed", "reset"])
def finite(request):
    return Finite(resets=request.param)


def test_rewards_and_values_are_those_of_the_linear_equations_of_five_states(finite):
    found = by_reference(finite.dynamics, finite.logit, GAMMA, lambda states: finite.at(states, finite.given))
    value, rewards = finite.rewards(finite.odds, finite.chances)
    assert pytest.approx(rewards, abs=1e-6) == (found.basis.values(NODES) @ found.coefficients.T).T
    assert found.value(NODES) == pytest.approx(value, abs=1e-6)
    assert COLUMNS.values(NODES) @ found.effects.T == pytest.approx((finite.chances @ value).T, abs=1e-6)


def test_errors_of_rewards_are_those_of_the_log_odds_and_of_each_transition(finite):
    found = by_reference(finite.dynamics, finite.logit, GAMMA, lambda states: finite.at(states, finite.given))
    known = finite.spread(lambda chances: finite.rewards(finite.odds, chances)[1])
    x, slopes = ODDS.values(NODES), []
    for action in (0, 2):
        for column in x.T:
            odds = finite.odds.astype(complex)
            odds[action] += 1j * STEP * column
            slopes.append(finite.rewards(odds, finite.chances)[1].ravel().imag / STEP)
    known = (known + np.array(slopes).T @ np.linalg.inv(finite.logit.information) @ np.array(slopes)).reshape(
        3, 5, 3, 5
    )
    values = found.basis.values(NODES)
    for action in range(ACTIONS):
        assert values @ found.covariances[action] @ values.T == pytest.approx(
            known[action, :, action], rel=1e-5, abs=1e-9
        )


def test_weights_of_features_maximise_the_likelihood_of_five_states(finite):
    steps = finite.steps()
    theta = np.array([0.3, -0.7])
    q = finite.utilities(theta, finite.chances)
    assert steps.likelihood(theta) == pytest.approx((finite.decided * (q - total(q))).sum(), rel=1e-8)
    slope, known = steps.derivatives(theta)
    assert slope == pytest.approx(finite.slopes(theta, finite.chances)[:2], rel=1e-6)
    curve = [-finite.slopes(theta + 1j * STEP * weight, finite.chances)[:2].imag / STEP for weight in np.eye(2)]
    assert known == pytest.approx(np.array(curve), rel=1e-6)
    best = minimize(lambda theta: -steps.likelihood(theta), theta, method="Nelder-Mead", options={"xatol": 1e-7})
    assert steps.likeliest(["one", "two"]) == pytest.approx(best.x, abs=1e-5)


def test_errors_of_weights_and_the_test_of_them_are_those_of_decisions_and_of_each_transition(finite):
    steps = finite.steps()
    theta = steps.likeliest(["one", "two"])
    covariance, fit = steps.judged(theta)
    q = finite.utilities(theta, finite.chances)
    policy, often = np.exp(q - total(q)), finite.decided.sum(axis=0)
    # What the weights and the free log-odds change of the utilities [A, 5, 2 + 8]; the covariance of both slopes.
    every = np.concatenate([finite.effects(finite.chances), np.zeros((ACTIONS, 5, 8))], axis=2)
    every[0, :, 2:6] = every[2, :, 6:] = ODDS.values(NODES)
    away = every - np.einsum("as,asp->sp", policy, every)
    known = np.einsum("s,as,asp,asq->pq", often, policy, away, away)
    moved = finite.spread(lambda chances: finite.slopes(theta.astype(complex), chances))
    inverse = np.linalg.inv(known[:2, :2])
    assert covariance == pytest.approx(inverse + inverse @ moved[:2, :2] @ inverse, rel=1e-6)
    left = np.concatenate([-known[2:, :2] @ inverse, np.eye(8)], axis=1)
    error, slope = left @ (known + moved) @ left.T, finite.slopes(theta, finite.chances)[2:]
    assert (fit.statistic, fit.freedom) == (pytest.approx(slope @ np.linalg.inv(error) @ slope, rel=1e-6), 8)


def test_the_value_of_weights_of_features_is_the_best_of_all_policies(finite):
    paid = features_of({"a": lambda s, action: s[:, 0] * (action == 0), "b": lambda s: s[:, 0] ** 2}, COLUMNS.domain)
    finite.paid = np.stack([paid.values(NODES, action) for action in range(ACTIONS)])
    found = by_features(finite.dynamics, finite.logit, finite.decisions, paid.values, paid, GAMMA)
    q = finite.utilities(found.coefficients, finite.chances)
    assert found.value(NODES) == pytest.approx(total(q), abs=1e-6)
    assert found.likelihood == pytest.approx((finite.decided * (q - total(q))).sum(), rel=1e-6)
    assert np.abs(finite.slopes(found.coefficients, finite.chances)[:2]).max() < 1e-6


def test_features_that_no_decision_tells_apart_are_named(finite):
    twice = TwoSteps(finite.dynamics, finite.logit, finite.decisions,
                     lambda s, a: finite.at(s, finite.paid[a])[:, [0, 0]], 2, GAMMA)  # fmt: skip
    with pytest.raises(ValueError, match=r"the weight of the feature '(first|second)' beside"):
        twice.likeliest(["first", "second"])
    with pytest.raises(ValueError, match=r"the weight of the feature 'number [01]' beside"):
        twice.likeliest(["both"])
