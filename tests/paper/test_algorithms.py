"""The two algorithms as printed: the plain mean of products, and the linear program on ⌈2/c⌉ points."""

import numpy as np
import pytest
from scipy.optimize import linprog

from certirl.data.moments import measure
from certirl.data.simulator import sample
from certirl.functions.bases import Fourier, Legendre
from certirl.paper import algorithm1, algorithm2
from certirl.problems import random_polynomial
from refusals import refused

PROBLEM, GAMMA, COVER, SIZE = random_polynomial(seed=0), 0.7, 0.05, 7
LOG = sample(PROBLEM, basis=Fourier(SIZE), samples=20_000, rng=0)


def test_algorithm_1_is_the_mean_of_products_with_every_row_estimated():
    phi, found = Fourier(SIZE).values, algorithm1(LOG, size=SIZE).Z
    for action, Z in enumerate(found):
        own = LOG.actions == action
        np.testing.assert_allclose(Z, 2 / own.sum() * phi(LOG.next_states[own]).T @ phi(LOG.states[own]), atol=1e-12)
    assert np.abs(found[:, 0, 1:]).max() > 0  # of the first row, which is known to be (1, 0, 0, …)


def test_moments_serve_every_smaller_size():
    moments = measure(LOG, basis=Fourier(SIZE))
    np.testing.assert_allclose(algorithm1(moments, size=5).Z, algorithm1(LOG, size=5).Z, atol=1e-12)
    refused("measure again", algorithm1, measure(LOG, basis=Legendre(SIZE)), size=5)


def test_algorithm_2_is_the_printed_linear_program():
    operators = algorithm1(LOG, size=SIZE)
    found = algorithm2(operators, discount=GAMMA, cover=COVER)
    T, others = operators.Z[0], operators.Z[1:]
    F = sum(np.linalg.matrix_power(GAMMA * T, r) @ (T - others) for r in range(100))  # the series, equation by equation
    points = -1 + 2 * (np.arange(40) + 0.5) / 40
    rows = (F @ Fourier(SIZE).values(points).T).transpose(0, 2, 1).reshape(-1, SIZE)
    best = linprog(np.ones(2 * SIZE), A_ub=np.hstack([-rows, rows]), b_ub=-np.ones(len(rows)))
    assert np.abs(found.reward.coefficients).sum() == pytest.approx(best.fun, rel=1e-6)
    assert (rows @ found.reward.coefficients).min() >= 1 - 1e-6
