"""Dependence between components is found, independence is left in peace, shared noise is told apart."""

import numpy as np
import pytest

import certirl
from sizes import sizes


class Coupled:
    """Three coordinates; the second feels the first with a given strength, the third shares its noise."""

    n_actions, domain = 2, ((-1.0, 1.0), (0.0, 10.0), (-1.0, 1.0))

    def __init__(self, strength, shared=0.0):
        self.strength, self.shared = strength, shared

    def sample(self, states, action, rng):
        x = (states - [0, 5, 0]) / [1, 5, 1]
        noise = 0.2 * rng.normal(size=x.shape)
        y = (0.5 - 0.2 * action) * x + noise
        y[:, 1] += self.strength * x[:, 0] * x[:, 1]  # no effect on the mean over states: an interaction
        y[:, 2] += self.shared * noise[:, 0]
        return np.clip(y, -1, 1) * [1, 5, 1] + [0, 5, 0]


@pytest.mark.parametrize("count", sizes(12, 30))
def test_false_alarms_are_as_rare_as_promised(count):
    tests = [
        certirl.diagnose.independent(problem, problem.components, samples=1_000, rng=seed, level=0.05)
        for seed, problem in ((s, certirl.problems.factorised(seed=s, components=3)) for s in range(count))
    ]
    assert sum(not test.holds for test in tests) <= 4


def test_an_interaction_is_found_and_named():
    found = certirl.diagnose.independent(Coupled(0.2), [[0], [1], [2]], rng=0)
    assert not found.holds and found.p_value < 1e-6
    assert "the next s1 depends on s0" in str(found) and "NOT independent" in str(found)
    assert certirl.diagnose.components(Coupled(0.2), rng=0) == [[0, 1], [2]]
    assert certirl.diagnose.independent(Coupled(0.2), [[0, 1], [2]], rng=1).holds


def test_shared_noise_is_reported_but_harmless_to_sums():
    found = certirl.diagnose.independent(Coupled(0.0, shared=0.5), {"a": [0], "b": [1], "c": [2]}, rng=0)
    assert found.holds and found.noise_p_value < 1e-6 and "share noise" in str(found)
    assert certirl.diagnose.components(Coupled(0.0, shared=0.5), rng=0) == [[0], [1], [2]]
    assert certirl.diagnose.components(Coupled(0.0, shared=0.5), rng=0, join_noise=True) == [[0, 2], [1]]


def test_logs_with_correlated_states_raise_no_alarm():
    rng = np.random.default_rng(0)
    first = rng.uniform(-1, 1, 4_000)
    states = np.stack([first, np.clip(first + 0.3 * rng.normal(size=4_000), -1, 1)], axis=1)
    actions = rng.integers(2, size=4_000)
    moved = np.clip(np.sin(2 * states) * 0.6 + 0.2 * rng.normal(size=states.shape) + 0.1 * actions[:, None], -1, 1)
    log = certirl.Transitions(states, actions, moved, domain=((-1, 1), (-1, 1)))
    assert certirl.diagnose.independent(log, [[0], [1]]).holds
    mixed = moved.copy()
    mixed[:, 0] = np.clip(moved[:, 0] + 0.3 * states[:, 1], -1, 1)
    log = certirl.Transitions(states, actions, mixed, domain=((-1, 1), (-1, 1)))
    assert certirl.diagnose.components(log) == [[0, 1]]


def test_deterministic_components_raise_no_alarm():
    class Still(Coupled):
        def sample(self, states, action, rng):
            return states * (0.9, 0.5)[action]

    assert certirl.diagnose.independent(Still(0.0), [[0], [1], [2]], rng=0).holds
