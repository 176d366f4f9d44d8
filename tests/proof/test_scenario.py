"""A scenario speaks of all but a share of the states: it is right as often as it says, and says no more."""

import numpy as np
import pytest
from saved_records import Coins, climb
from scipy.stats import binom

import certirl
from certirl import Legendre, problems, product
from certirl.functions.inequalities import SELF_EVENTS
from certirl.proof import rollout
from certirl.proof.rollout import TEST_LEVEL, _how_many, scenario


class Drift:
    """d coordinates that are pulled to the action's own place: V and D are known in closed form for linear rewards.

    s' = s/4 + a-shift + noise stays inside the box, so E[Σ_j s'_j] = Σ_j s_j/4 + shift and with R = Σ_j s_j
    D_a(s) = (shift_0 − shift_a(s))/(1 − γ/4). Action 1 is worse by ``gap`` everywhere but where s_0 > edge.
    """

    n_actions, thread_safe = 2, True

    def __init__(self, dimension=5, gap=0.1, edge=2.0):
        self.domain, self.gap, self.edge = ((-1.0, 1.0),) * dimension, gap, edge

    def shift(self, states, action):
        return np.where(states[:, 0] > self.edge, self.gap, -self.gap) * action

    def sample(self, states, action, rng):
        moved = states / 4 + 0.2 * rng.uniform(-1, 1, states.shape)
        moved[:, 1] += self.shift(states, action)
        return moved

    def margins(self, states, discount):
        return -self.shift(states, 1) / (1 - discount / 4)


def total(states):
    return states.sum(axis=1)


ASKED = {"discount": 0.5, "reward_range": (-5.0, 5.0), "samples": 600, "share": 0.1}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("paired", [True, False])
def test_the_margin_is_supported_and_below_the_truth(paired):
    found = scenario(total, Drift(gap=0.4), rng=0, paired=paired, **{**ASKED, "samples": 2_000})
    truth = 0.4 / 0.875
    assert found.holds and 0.5 * truth < found.margin < truth
    assert (found.bounds <= truth).mean() >= 1 - TEST_LEVEL
    text = str(found)
    assert text.startswith(
        "With probability 0.95, at all but a share 0.1 of the states drawn from the uniform distribution on"
    )
    assert "no certificate" in text and "ertified" not in text


@pytest.mark.slow
def test_exceptions_beyond_the_share_are_noticed_as_often_as_promised():
    """Action 1 is better at a fifth of the states: "all but a tenth" would be false, and is said rarely."""
    problem, said = Drift(gap=0.5, edge=0.6), 0
    for rng in range(40):
        said += scenario(total, problem, rng=rng, delta=0.3, **{**ASKED, "samples": 60}).holds
    assert said <= binom.ppf(0.999, 40, 0.3)
    assert not scenario(total, problem, rng=0, **ASKED).holds


@pytest.mark.slow
def test_a_smaller_exception_is_allowed():
    """At one state in forty the expert is wrong; all but a tenth is true, and more states can say so."""
    problem = Drift(gap=0.5, edge=0.95)
    found = scenario(total, problem, rng=1, states=300, **ASKED)
    assert found.ignored > 5 and found.holds and found.bounds.min() < 0
    assert found.margin < 0.5 / 0.875


@pytest.mark.parametrize(("share", "delta", "states"), [(0.01, 0.05, None), (0.05, 0.2, 400), (0.3, 0.01, 30)])
def test_the_number_of_states_is_that_of_the_binomial_law(share, delta, states):
    count, ignored = _how_many(share, delta, states, 10, 1)
    chance = share * (1 - TEST_LEVEL)
    assert binom.cdf(ignored, count, chance) <= delta < binom.cdf(ignored + 1, count, chance)
    if states is None:
        assert ignored == 0 and (1 - chance) ** (count - 1) > delta


def test_solutions_without_components_in_four_coordinates():
    """What `solve` finds is put to the test; its own reward's range is proved."""
    problem = Drift(dimension=4, gap=0.3)
    solved = certirl.solve(problem, expert=0, discount=0.5, basis=product(*[Legendre(2)] * 4), samples=5_000, rng=0)
    found = scenario(solved, problem, rng=0, share=0.2, samples=400)
    assert found.holds and len(found.assumptions) == 1
    with pytest.raises(ValueError, match=r"certirl\.trials\.scenario"):
        certirl.certify(solved, problem, rng=0)


def test_wrong_calls_are_refused_in_a_sentence():
    problem = Drift()
    with pytest.raises(ValueError, match="needs reward_range"):
        scenario(total, problem, discount=0.5, rng=0)
    with pytest.raises(ValueError, match="outside its declared range"):
        scenario(total, problem, rng=0, **{**ASKED, "reward_range": (0.0, 1.0)})
    with pytest.raises(ValueError, match="needs at least 32 states, got 10"):
        scenario(total, problem, rng=0, states=10, **ASKED)
    with pytest.raises(ValueError, match="share must be a number strictly between"):
        scenario(total, problem, rng=0, **{**ASKED, "share": 0.0})
    log = certirl.steps.sample(problems.whirl(), basis=product(Legendre(2), Legendre(2)), samples=10, rng=0)
    with pytest.raises(TypeError, match="pass a simulator"):
        scenario(total, log, rng=0, **ASKED)


def test_a_large_constant_costs_no_digits():
    def found(constant):
        low, high = constant - 5.0, constant + 5.0
        given = {"discount": 0.9, "samples": 200, "share": 0.3, "reward_range": (low, high), "rng": 0}
        return scenario(lambda s: np.sign(s[:, 1]) + constant, Drift(gap=0.5), **given).bounds

    assert found(2.0**51) == pytest.approx(found(0.0), rel=1e-9)


def test_bounds_are_against_the_best_of_the_other_actions(monkeypatch):
    """Action 1 is nearly as good as the expert's, action 2 far worse; their events share the level of a test."""
    plain, spent = rollout.self_bounded, []

    def counted(observed, bound, level):
        spent.append(len(observed) * SELF_EVENTS * np.exp(-level))  # of the alternatives at a state
        return plain(observed, bound, level)

    monkeypatch.setattr(rollout, "self_bounded", counted)
    coins = Coins((0.7, 0.65, 0.1), (0.1, 0.1, 0.1))
    found = scenario(climb, coins, expert=0, discount=0.5, reward_range=(-1.0, 1.0), samples=2_000, share=0.3, rng=0)
    truth = 1.6 * 0.05 / (1 - 0.5 * 0.16)  # V is linear, with the slope 1/(1 − γ·0.16)
    assert (found.bounds < truth).all() and found.margin < truth < 10 * found.delta
    assert spent == pytest.approx([TEST_LEVEL])
