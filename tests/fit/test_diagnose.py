import numpy as np
import pytest

import certirl
from certirl.fit.choose import TARGETS
from systems import Moving

THERMOSTAT = certirl.problems.thermostat()


def test_too_few_columns_are_called_too_few():
    found = certirl.diagnose.columns(THERMOSTAT, columns=2, rng=0)
    assert found.too_small and "too few" in str(found) and found.best >= 5


def test_enough_columns_are_left_alone():
    problem = certirl.problems.random_polynomial(seed=7)
    found = certirl.diagnose.columns(problem, columns=3, rng=0)
    assert not found.too_small and "nothing in these data" in found.verdict


def test_a_circle_wants_fourier():
    circle = certirl.problems.circle()
    found = certirl.diagnose.columns(circle, family=certirl.Fourier, rng=0)
    assert found.best in (5, 7, 9) and "declared tail" in str(found)


def test_logs_can_be_diagnosed_too():
    log = certirl.steps.sample(THERMOSTAT, basis=certirl.Legendre(3), samples=5_000, rng=0)
    assert certirl.diagnose.columns(log, columns=2).too_small


def test_tiny_data_decides_nothing():
    log = certirl.Transitions(np.linspace(0, 1, 12), np.arange(12) % 2, np.linspace(1, 0, 12))
    assert np.isinf(certirl.diagnose.columns(log).excess[-1]) or np.isnan(certirl.diagnose.columns(log).excess[-1])


def test_a_missing_rng_is_one_sentence():
    with pytest.raises(TypeError, match="rng is needed"):
        certirl.diagnose.columns(THERMOSTAT)


def test_predictions_that_are_exact_but_for_rounding_are_equally_good():
    HALVED = Moving(((-1.0, 1.0),), (0.1, -0.1), keep=0.5)
    found = certirl.diagnose.columns(HALVED, rng=0)
    assert found.best == TARGETS and (found.excess[TARGETS:] == 0).all()  # the fewest of them is the best
    assert (found.excess >= 0).all() and found.excess[0] > 1e9
    assert "e+" in str(found).splitlines()[2] and len(str(found).splitlines()[2]) < 40  # three digits, not twenty
