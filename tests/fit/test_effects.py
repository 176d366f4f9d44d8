"""Simulators made of data, and the effects of actions: against dynamics that are known."""

import numpy as np
import pytest

import certirl
from certirl.fit.effects import MOST_COLUMNS, richer
from certirl.fit.next_states import NOISELESS, Nearby, regress_next_states
from certirl.functions.bases import of_degree
from certirl.ground.domain import as_domain

BOX, SPREAD = as_domain(((-1.0, 1.0), (-20.0, 20.0))), np.array([0.03, 0.6])


def moved(states, action):
    return 0.8 * states + np.array([0.1, -2.0]) * (2 * action - 1)


class Noisy:
    """A linear step in two coordinates of different units, with noise of known spread."""

    domain, periodic, is_terminal = BOX, (), None

    def __init__(self, spread, draws=4000, seed=0):
        self.rng = np.random.default_rng(seed)
        self.states = self.rng.uniform(-0.7, 0.7, (draws, 2)) * [1, 20]
        self.after = np.stack([moved(self.states, a) + spread * self.rng.standard_normal((draws, 2)) for a in range(2)])

    def regressed(self):
        n = len(self.states)
        rows = np.tile(self.states, (2, 1)), np.repeat([0, 1], n), np.concatenate(self.after)
        log = certirl.Transitions(*rows, domain=BOX, n_actions=2)
        basis = certirl.product(certirl.Legendre(3), certirl.Legendre(3)).on(BOX)
        return regress_next_states(log, basis, is_terminal=None, periodic=(), rng=self.rng)

    def nearby(self):
        return Nearby.of(self.states, self.after[None], self, noiseless=False)


class Kinked:
    """Steps without noise whose size has a kink."""

    n_actions, domain = 2, ((-1.0, 1.0),)

    def sample(self, states, action, rng):
        return np.clip(0.5 * states + (0.4 * np.abs(states) if action else -0.2), -1, 1)


@pytest.mark.parametrize("made", ["regressed", "nearby"])
def test_simulators_learned_from_data_draw_the_mean_and_the_noise_of_the_true_one(made):
    learned = getattr(Noisy(SPREAD), made)()
    states = np.repeat([[0.2, 3.0]], 4000, axis=0)
    near = 0.2 if made == "nearby" else 0.1  # of the noise: few neighbours, moved along with the state
    for action in range(2):
        drawn = learned.sample(states, action, np.random.default_rng(1))
        branches, weights = learned.outcomes(states[:1], action)
        assert weights.sum() == pytest.approx(1) and (weights > 0).all()
        for after, shares in ((drawn, np.full(4000, 1 / 4000)), (branches[:, 0], weights)):
            mean = shares @ after
            spread = np.sqrt(shares @ (after - mean) ** 2)
            few = 3 / np.sqrt(2 * len(branches))
            assert np.abs((mean - moved(states[0], action)) / SPREAD).max() < near + few
            assert np.abs(spread / SPREAD - 1).max() < near + few


def test_without_noise_a_linear_step_is_interpolated_exactly():
    still = Noisy(0.0, draws=300)
    learned = Nearby.of(still.states, still.after[None], still, noiseless=True)
    fresh = np.random.default_rng(2).uniform(-0.5, 0.5, (50, 2)) * [1, 20]
    for action in range(2):
        (found,), weights = learned.outcomes(fresh, action)
        assert weights.tolist() == [1.0] and np.abs((found - moved(fresh, action)) / [1, 20]).max() < 1e-4
    assert still.regressed().noiseless and np.abs(still.regressed().residuals / [2, 40]).max() < NOISELESS


def test_distances_are_shares_of_the_box_and_short_ways_round_a_circle():
    states = np.array([[3.0, 0.0], [3.0, 0.999], [4.0, 0.5]])
    placed = as_domain(((2.0, 6.0), (0.0, 1.0))).chart(states, (1,))
    assert placed[:, 0] == pytest.approx([0.25, 0.25, 0.5])
    apart = np.linalg.norm(placed[:, None] - placed, axis=2)
    assert apart[0, 1] == pytest.approx(0.001, rel=1e-3)
    assert apart[0, 2] == pytest.approx(np.hypot(0.25, 1 / np.pi))  # across the circle, whose length is 1


def test_richer_bases_have_the_degree_asked_for_and_no_more_functions_than_is_allowed():
    line, circle = certirl.Legendre(10).on(((0.0, 1.0),)), certirl.Fourier(9).on(((0.0, 1.0),))
    assert [richer(line, factor).size for factor in (1.0, 1.6, 0.01)] == [10, 16, 1]
    assert richer(circle, 2.0) == certirl.Fourier(17).on(((0.0, 1.0),))  # four waves, then eight
    for degree, factor, allowed in ((4, 1.5, 6), (20, 1.0, 20), (20, 3.0, 33)):  # (33 + 1)(33 + 2)/2 = 595
        found = richer(of_degree(BOX, degree), factor)
        assert found == of_degree(BOX, allowed) and found.size == (allowed + 1) * (allowed + 2) // 2 <= MOST_COLUMNS
    wound = richer(of_degree(BOX, 20, (0,)), 2.0)  # of total degree d with a periodic coordinate there are (d + 1)²
    assert wound.size == 24**2 and wound.size < MOST_COLUMNS < 25**2


def test_the_error_of_a_model_is_that_of_its_mean_next_states_over_the_effect_of_an_action():
    found, expected = [], []
    for seed in range(30):
        noisy = Noisy(SPREAD, draws=200, seed=seed)
        learned, states = noisy.regressed(), noisy.states
        units = np.std(np.concatenate(noisy.after - states), axis=0)
        means = np.stack([learned._mean(states, action) / units for action in range(2)])
        true = np.stack([moved(states, action) / units for action in range(2)])
        found.append(learned.error**2)
        expected.append(np.mean((means - true) ** 2) / np.mean((true - true.mean(axis=0)) ** 2))
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.25)


@pytest.mark.parametrize(("size", "none"), [(0.5, True), (2.0, False)])
def test_noise_is_none_below_a_share_of_the_box(size, none):
    assert Noisy(size * NOISELESS * BOX.width, draws=300).regressed().noiseless == none


def test_the_error_of_observed_effects_is_what_action_values_miss_over_the_effect_of_an_action():
    settings = {"discount": 0.5, "basis": certirl.Legendre(7), "samples": 2000, "rng": 0}
    still = certirl.solve(Kinked(), expert=lambda states: (states[:, 0] > -0.9).astype(int), **settings)
    places = still.compared.states[:, 0]
    true = np.stack([still.value(Kinked().sample(places[:, None], action, None)) for action in range(2)])
    missed = np.sqrt(np.mean((still.action_values(places) - true) ** 2))
    effect = np.sqrt(2 * np.mean((true - true.mean(axis=0)) ** 2))
    assert still.stats.model_error == pytest.approx(missed / effect, rel=0.3)
