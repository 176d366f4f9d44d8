"""Declared tails that data contradict: docs/notes/certificate.md, section 19."""

from math import log

import numpy as np
import pytest

import certirl
from certirl import Fourier, Legendre, product
from certirl.proof.misfit import distance_from


class Tank:
    """s' = clip(0.85 s + u_a + ξ) on [0, 4]."""

    n_actions, domain = 2, ((0.0, 4.0),)
    tail = certirl.GaussianNoise(std=0.5, slope=0.85)

    def sample(self, states, action, rng):
        return np.clip(0.85 * states + (0.1, 0.7)[action] + rng.normal(scale=0.5, size=states.shape), 0, 4)


class Still(Tank):
    """The same without noise."""

    def sample(self, states, action, rng):
        return 0.8 * states + 0.4 * action


def reward(states):
    return np.minimum(states[:, 0], 3.6) - 3 * np.maximum(states[:, 0] - 3.6, 0)


ASKED = {"expert": 1, "discount": 0.8, "rng": 1, "progress": False}


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_number_that_the_data_contradict_is_refused(columns):
    with pytest.raises(ValueError, match="the data contradict the declared tail: under action"):
        certirl.certify(reward, Tank(), columns=Legendre(columns), tail=0, samples=20_000, **ASKED)


def test_a_log_without_noise_contradicts_every_small_tail():
    log_of = certirl.sample(Still(), basis=Legendre(2), samples=20_000, rng=0)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, log_of, columns=Legendre(5), tail=0, **ASKED)


def test_so_are_logs_solutions_and_densities_of_other_dynamics():
    log_of = certirl.sample(Tank(), basis=Legendre(3), samples=20_000, rng=0)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, log_of, columns=Legendre(3), tail=0, **ASKED)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.solve(Tank(), basis=Legendre(5), columns=2, tail=0, delta=0.05, samples=20_000, **ASKED)

    def other(next_states, states, action):  # the next state does not depend on the state
        return np.full((len(states), len(next_states)), 0.25)

    declared = certirl.tail_from_density(other, ((0.0, 4.0),), n_actions=2)
    with pytest.raises(ValueError, match="the data contradict the declared tail"):
        certirl.certify(reward, Tank(), columns=Legendre(3), tail=declared, samples=20_000, **ASKED)


def test_what_is_true_is_not_refused():
    found = certirl.certify(reward, Tank(), columns=Legendre(15), tail=Tank.tail, samples=20_000, **ASKED)
    assert found.tail < 1e-3
    undeclared = certirl.certify(reward, Tank(), columns=Legendre(2), samples=20_000, **ASKED)
    assert undeclared.word != "certified"  # conditional on a tail of zero, whatever the data say


@pytest.mark.parametrize("columns", [Legendre(2), Fourier(3), product(Legendre(3), Legendre(3))], ids=str)
def test_the_distance_is_a_lower_bound_and_comes_near(columns):
    """Next states ±1, and the chance of 1 is the next function of the family: P f, f = sign, differs by that."""
    columns = columns.on(((-1.0, 1.0),) * columns.dimension)
    rng, beyond = np.random.default_rng(0), columns.resized(columns.size + 1)
    states = rng.uniform(-1, 1, (40_000, columns.dimension))
    waves = beyond.values(states)[:, -1]
    size = 0.4 / np.abs(waves).max()
    ends = np.where(rng.random(len(states)) < 0.5 + size * waves, 1.0, -1.0)[:, None].repeat(columns.dimension, axis=1)
    # P f = f(−1) + (f(1) − f(−1))(½ + size·waves): at most 2·size·max|waves| from a constant.
    seen = distance_from(columns, states, ends, log(2e6))
    assert 0.2 * 2 * 0.4 < seen <= 2 * 0.4
    even = np.where(rng.random(ends.shape) < 0.5, 1.0, -1.0)
    assert distance_from(columns, states, even, log(2e6)) == 0


def test_true_declarations_are_refused_as_rarely_as_promised():
    columns, rng, refused = Legendre(3).on(((-1.0, 1.0),)), np.random.default_rng(1), 0
    for _ in range(150):
        states = rng.uniform(-1, 1, (400, 1))
        ends = np.where(rng.random(400) < 0.5 + 0.4 * states[:, 0] ** 2, 1.0, -1.0)[:, None]
        refused += distance_from(columns, states, ends, log(2 * 42 / 0.2)) > 0  # all 42 comparisons together: 0.2
    assert refused <= 30
