"""Asking a simulator: seeds of different roles do not meet, pairs are formed only where rows keep their numbers."""

import numpy as np
import pytest

import certirl
from certirl.data.dependence import can_pair
from certirl.data.simulator import device_of, draw
from certirl.data.transitions import CHUNK
from certirl.problems import random_polynomial
from refusals import refused

PROBLEM, BASIS = random_polynomial(seed=7), certirl.Legendre(3)


class Steps:
    """A step of its own for each action, clipped to the box."""

    n_actions, domain = 2, ((0.0, 1.0),)

    def noise(self, n, action, rng):
        return rng.normal(size=n)

    def sample(self, states, action, rng):
        step = self.noise(len(states), action, rng)
        return np.clip(states[:, 0] + 0.1 * (-1) ** action + 0.1 * step, 0, 1)


class OtherLayout(Steps):
    """Equally many random numbers, but the second action gives them to other rows."""

    def noise(self, n, action, rng):
        return rng.random((n, 2)).sum(axis=1) if action == 0 else rng.random(n) + rng.random(n)


class HalfANumber(Steps):
    """One single-precision number more for the second action: half of a word that the generator keeps for later."""

    def noise(self, n, action, rng):
        if action == 1:
            rng.random(dtype=np.float32)
        return rng.random(n)


class Redraws(Steps):
    """Draws again, now and then: as many numbers as it takes."""

    def sample(self, states, action, rng):
        drawn = np.full(len(states), np.nan)
        while (missing := ~((drawn >= 0) & (drawn <= 1))).any():
            drawn[missing] = (
                states[missing, 0] * 0.2 + 0.4 + 0.09 * (-1) ** action + 0.12 * rng.normal(size=missing.sum())
            )
        return drawn


class Nested(Steps):
    """Asks another simulator."""

    def sample(self, states, action, rng):
        inner = certirl.steps.sample(Steps(), basis=BASIS, samples=4, rng=rng)
        return np.clip(states[:, 0] + 0.0 * inner.states[0, 0], 0, 1)


@pytest.mark.parametrize(("simulator", "expected"), [(Steps, True), (OtherLayout, False), (HalfANumber, False)])
def test_pairs_are_formed_only_where_rows_keep_their_numbers(simulator, expected):
    assert all(can_pair(simulator(), BASIS, seed) is expected for seed in range(5))


def test_a_simulator_that_redraws_is_solved_without_pairs():
    solution = certirl.solve(Redraws(), expert=0, discount=0.9, samples=5_000, paired=False, rng=0)
    assert solution.status == "solved"
    refused("pass paired=False", certirl.solve, Redraws(), expert=0, discount=0.9, samples=200_000, paired=True, rng=0)
    certificate = certirl.certify(solution, Redraws(), samples=20_000, paired=False, rng=0)
    assert not certificate.grounds[0].evidence.paired


def test_a_simulator_may_ask_another():
    data = certirl.steps.sample(Nested(), basis=BASIS, samples=10, rng=0)
    assert len(data) == 20


def test_a_generator_that_cannot_be_spawned_from_is_a_sentence():
    with pytest.raises(TypeError, match=r"make it with np.random.default_rng\(seed\)"):
        certirl.steps.sample(
            PROBLEM, basis=BASIS, samples=10, rng=np.random.Generator(np.random.RandomState(0)._bit_generator)
        )


def test_a_device_that_is_none_of_torch_s_is_none():
    robot = Steps()
    robot.device = "/dev/ttyUSB0"
    assert device_of(robot) is None
    assert len(certirl.steps.sample(robot, basis=BASIS, samples=5, rng=0)) == 10
    robot.device = "cuda:1"
    assert device_of(robot) == "cuda:1"


def test_draws_do_not_depend_on_how_they_are_cut():
    stream = draw(PROBLEM, BASIS, 5 * CHUNK - 7, 3, paired=True)
    whole = np.concatenate([piece.states for piece in stream])
    parts = np.concatenate([piece.states for chunk in stream.chunks() for piece in chunk.pieces()])
    assert np.array_equal(whole, parts) and len(stream.chunks()) == 5
