"""Deviation bounds fail as rarely as promised, few points bound whole expansions, and smoothness bounds the tail."""

import math

import numpy as np
import pytest

from certirl import Chebyshev, Fourier, Legendre
from certirl.functions.inequalities import EVENTS, bernstein, blending, empirical_bernstein, log_term, second_moment
from certirl.functions.spread import inflation, spread_points
from certirl.proof.tails import Smooth, tail_number
from refusals import refused

TRIALS, N = 20_000, 60
WEIGHTS = np.cos(np.pi * (np.arange(N) + 0.5) / N)  # as uneven as the terms of a certificate, and of both signs


def uniform(rng, shape):
    return rng.uniform(-1, 1, shape)


def rare(rng, shape):
    """Skewed: almost always 0, seldom 1; its variance often goes unseen."""
    return (rng.random(shape) < 0.02).astype(float)


def missing(rng, shape):
    """Skewed the other way: almost always 1."""
    return 1 - rare(rng, shape)


def coin(rng, shape):
    return rng.choice([-1.0, 1.0], shape)


def uneven(rng, shape):
    """Independent, not identical: every term has its own size and sign, some have a large mean."""
    return WEIGHTS * (0.5 + 0.5 * rng.uniform(-1, 1, shape))


def mixed(rng, shape):
    """Half the terms rare and large, half frequent and small."""
    large = rng.random(shape) < 0.05
    odd = np.arange(shape[1]) % 2 == 1
    return np.where(odd, large.astype(float), 0.1 * rng.uniform(-1, 1, shape))


# Name, draw, Σ E Z, Σ E Z²: all with |Z| ≤ 1.
DISTRIBUTIONS = [
    (uniform, 0.0, N / 3),
    (rare, 0.02 * N, 0.02 * N),
    (missing, 0.98 * N, 0.98 * N),
    (coin, 0.0, float(N)),
    (uneven, 0.5 * WEIGHTS.sum(), (WEIGHTS**2).sum() * (0.25 + 0.25 / 3)),
    (mixed, 0.05 * N / 2, 0.05 * N / 2 + 0.01 / 3 * N / 2),
]
NAMES = [entry[0].__name__ for entry in DISTRIBUTIONS]


def allowed(probability):
    """The promised number of failures, with four standard deviations of counting noise."""
    return TRIALS * probability + 4 * math.sqrt(TRIALS * probability)


@pytest.mark.parametrize("failure", [0.2, 0.05, 0.005])
@pytest.mark.parametrize(("draw", "mean", "square"), DISTRIBUTIONS, ids=NAMES)
def test_the_bounds_fail_no_more_often_than_promised(draw, mean, square, failure):
    L = log_term(1, failure)
    Z = draw(np.random.default_rng(1), (TRIALS, N))
    assert np.abs(Z).max() <= 1
    deviation, observed = Z.sum(axis=1) - mean, (Z**2).sum(axis=1)
    assert (square >= second_moment(observed, 1.0, L)).sum() <= allowed(failure)
    radius = bernstein(square, 1.0, L)
    assert (deviation >= radius).sum() <= allowed(failure)
    assert (-deviation >= radius).sum() <= allowed(failure)
    assert (np.abs(deviation) >= empirical_bernstein(observed, 1.0, L)).sum() <= allowed(EVENTS * failure)


def test_bernstein_asks_for_a_bound_from_above_only():
    rng = np.random.default_rng(0)
    Z = 1 - rng.exponential(size=(TRIALS, N))  # Z ≤ 1 with a heavy tail below; E Z = 0, E Z² = 1
    L = log_term(1, 0.05)
    above = (Z.sum(axis=1) >= bernstein(float(N), 1.0, L)).sum()
    assert above <= allowed(0.05)


def test_the_second_moment_is_seen_from_a_rare_event_even_where_the_variance_is_not():
    # Nothing but zeros was seen: Z may still be 1 with probability about 2L/N, and the bound says so.
    L = log_term(1, 0.05)
    hidden = second_moment(0.0, 1.0, L)
    assert hidden == pytest.approx(2 * L)
    assert (1 - hidden / N) ** N < 0.05  # a moment so large would have shown itself


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_bounds_do_not_depend_on_units(scale):
    L = 3.0
    assert empirical_bernstein(5.0 * scale**2, 2.0 * scale, L) == pytest.approx(
        scale * empirical_bernstein(5.0, 2.0, L)
    )


def test_the_bounds_are_not_much_above_what_is_true_of_many_terms():
    # For many terms the radius must approach the normal one, √(2vL).
    for n in (10**4, 10**6, 10**8):
        ratio = empirical_bernstein(n / 3, 1.0, 5.0) / math.sqrt(2 * n / 3 * 5.0)
        assert 1 < ratio < 1 + 5 / math.sqrt(n)


BASES = [family(size, (2.0, 5.0)) for family in (Legendre, Chebyshev, Fourier) for size in (1, 2, 3, 6, 7, 11)]


@pytest.mark.parametrize(("basis", "count"), [(Legendre(6), 15), (Chebyshev(4), 9), (Legendre(11), 220)])
def test_the_inflation_is_reached_by_chebyshev_polynomials(basis, count):
    top = basis.degree
    values = np.cos(top * np.arccos(np.clip(spread_points(basis, count)[:, 0], -1, 1)))
    assert count % top == 0
    assert np.abs(values).max() * inflation(basis, count) == pytest.approx(1)


@pytest.mark.parametrize(("basis", "count"), [(Fourier(5), 12), (Fourier(7), 60), (Fourier(4), 8)])
def test_the_inflation_is_reached_on_the_circle(basis, count):
    top = basis.degree
    values = np.cos(top * np.pi * (spread_points(basis, count)[:, 0] + 1))
    assert count % (2 * top) == 0
    assert np.abs(values).max() * inflation(basis, count) == pytest.approx(1)


def test_too_few_points_bound_nothing():
    assert inflation(Legendre(6), 5) == math.inf and inflation(Fourier(7), 6) == math.inf
    assert inflation(Legendre(6), 6) < math.inf and inflation(Fourier(7), 7) < math.inf
    assert inflation(Legendre(1), 1) == 1


def distance(basis, function):
    """How far a function is from the span, at worst over a grid: a linear program, exact up to the grid."""
    from scipy.optimize import linprog

    states = basis.grid(1200)
    phi, ones = basis.values(states), np.ones((1200, 1))
    target = function(states[:, 0])
    rows = np.block([[phi, -ones], [-phi, -ones]])
    cost = np.append(np.zeros(basis.size), 1.0)
    found = linprog(cost, A_ub=rows, b_ub=np.append(target, -target), bounds=[(None, None)] * basis.size + [(0, None)])
    assert found.status == 0
    return found.fun


def perfect_spline(p, knots, low):
    """A function on [low, ∞) whose p-th derivative is ±1, switching at the knots."""

    def value(s):
        total = (s - low) ** p / math.factorial(p)
        for i, knot in enumerate(sorted(knots)):
            total = total - 2 * (-1) ** i * np.maximum(s - knot, 0) ** p / math.factorial(p)
        return total

    return value


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("top", [1, 2, 4, 7])
def test_smoothness_bounds_the_distance_from_polynomials(p, top):
    basis = Legendre(top + 1, (1.0, 5.0))
    number = Smooth(p, 1.0).number(basis)
    for count in (top, top + 1, top + 2):
        knots = 3 + 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)
        assert min(distance(basis, perfect_spline(p, knots, 1.0)), 1.0) <= number <= 1  # 0 is within 1 of |f| ≤ 1
    assert number == Smooth(p, 1.0).number(Chebyshev(top + 1, (1.0, 5.0)))


def test_jackson_is_near_the_truth_for_first_derivatives():
    for top in (1, 4, 9):
        basis = Legendre(top + 1)
        counts = range(max(top - 1, 1), top + 3)
        knots = [np.cos(np.pi * (np.arange(count) + 0.5) / count) for count in counts]
        worst = max(distance(basis, perfect_spline(1, places, -1.0)) for places in knots)
        assert worst <= Smooth(1, 1.0).number(basis) < 1.7 * worst


def favard_function(p, frequency, terms=2000):
    """The function whose p-th derivative is the sign of sin(frequency·s): a sum of odd waves."""
    m = np.arange(1, 2 * terms, 2)

    def value(s):
        waves = np.sin(np.outer(s * frequency, m) - p * np.pi / 2)
        return 4 / np.pi * waves @ m ** -(p + 1.0) / frequency**p

    return value


@pytest.mark.thinned(4)
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_smoothness_bounds_the_distance_from_waves_nearly_tightly(p, size):
    basis = Fourier(size, (-np.pi, np.pi))
    best = distance(basis, favard_function(p, size // 2 + 1))
    assert min(best, 1.0) <= Smooth(p, 1.0).number(basis) <= (1.01 if p == 1 else 1.3) * best


def test_an_even_number_of_waves_lacks_the_last_cosine():
    # cos 2s is as smooth as sin 2s, but Fourier(4) = 1, sin s, cos s, sin 2s holds only one of them.
    basis = Fourier(4, (-np.pi, np.pi))
    away = distance(basis, lambda s: np.cos(2 * s))
    assert away == pytest.approx(1, abs=1e-4)
    for p in (1, 2, 3, 4):
        assert Smooth(p, 2.0**p).number(basis) >= away


def test_units_of_the_state_cancel():
    for family in (Legendre, Fourier):
        narrow, wide = Smooth(2, 9.0).number(family(5, (0, 1))), Smooth(2, 0.09).number(family(5, (0, 10)))
        assert narrow == pytest.approx(wide)


def test_too_few_polynomials_for_the_order_bound_nothing():
    assert Smooth(4, 1.0).number(Legendre(3)) == 1  # as 0 does, for |f| ≤ 1


def test_tails_that_are_no_tails():
    assert tail_number(None, Legendre(3)) is None and tail_number(0, Legendre(3)) == 0
    assert tail_number(lambda columns: 1 / columns.size, Legendre(4)) == 0.25


@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("per_degree", [3, 8])
def test_blending_reproduces_every_expansion_with_weights_that_add_up_to_little_more_than_one(basis, per_degree):
    count, states = per_degree * max(basis.degree, 1), np.linspace(2.0, 5.0, 333)[:, None]
    weights = blending(basis, count, states)
    C = np.random.default_rng(0).standard_normal((basis.size, 20))
    assert np.allclose(weights @ basis.values(spread_points(basis, count)) @ C, basis.values(states) @ C, atol=1e-10)
    assert np.abs(weights).sum(axis=1).max() < {3: 2.05 if basis.kind == "Fourier" else 1.2, 8: 1.2}[per_degree]


def test_too_few_points_for_a_degree_are_refused():
    refused("expansions of degree 5 are not determined by 5 points", blending, Legendre(6), 5, np.zeros((1, 1)))
