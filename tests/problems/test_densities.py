"""Fast draws follow the exact law: sup|F_drawn − F| is measured chord by chord, not sampled, and sampled as well."""

import copy
import pickle

import numpy as np
import pytest
from numpy.polynomial import polynomial
from scipy.stats import kstest

import certirl
from certirl import problems
from certirl.data.dependence import can_pair
from certirl.problems.dynamics import TOLERANCE, chords, distribution
from sizes import sizes


def vanishing(at, power):
    """A density with a zero of this order: F⁻¹ has infinite slope there."""
    density = polynomial.polypow([-at, 1.0], power)
    return density / distribution(density, np.array([1.0]))[0]


def nearly_vanishing(at, power):
    density = polynomial.polyadd(vanishing(at, power), [1e-9])
    return density / distribution(density, np.array([1.0]))[0]


def kolmogorov(density):
    """sup|F(F_drawn⁻¹(u)) − u| over ends, quarters, middles and tails of all chords and many places besides."""
    table = chords(density)
    begin, end = distribution(density, table.low), distribution(density, table.low + table.width)
    inside = [begin + share * (end - begin) for share in (0.0, 1e-9, 0.25, 0.5, 0.75, 1 - 1e-9)]
    tails = [np.logspace(-17, -2, 1000), 1 - np.logspace(-16, -2, 1000), [0.0, np.nextafter(1.0, 0.0)]]
    u = np.sort(np.clip(np.concatenate([*inside, *tails, np.linspace(0, 1, 20_001)]), 0.0, np.nextafter(1.0, 0.0)))
    x = table.draw(u, np.zeros(len(u), dtype=bool))
    assert x.min() >= -1 and x.max() <= 1 and (np.diff(x) > -1e-9).all()
    return np.abs(distribution(density, x) - u).max()


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("degree", "seeds"), [(2, 3), (4, 3), (20, 3), *sizes((10, 10), (10, 40), (2, 10), (4, 10), (20, 10))]
)
def test_chords_stay_within_the_tolerance_of_the_distribution(degree, seeds):
    for seed in range(seeds):
        problem = problems.random_polynomial(seed=seed, degree=degree)
        for density in (*problem.centre, *problem.edge):
            assert kolmogorov(density) < TOLERANCE < 1e-6


@pytest.mark.thinned(4)
@pytest.mark.parametrize("at", [-1.0, -0.9999, -0.3, 0.0, 0.5, 1 / 3, 1.0])
@pytest.mark.parametrize("power", [2, 4, 10])
def test_zeros_of_the_density_do_no_harm(at, power):
    assert kolmogorov(vanishing(at, power)) < TOLERANCE
    assert kolmogorov(nearly_vanishing(at, power)) < TOLERANCE


def test_a_flat_density_is_exact():
    u = np.random.default_rng(0).random(1000)
    np.testing.assert_allclose(chords([0.5]).draw(u, np.zeros(1000, dtype=bool)), 2 * u - 1, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sizes(7, 0, 11))
def test_draws_pass_kolmogorov_and_smirnov(seed):
    """A million draws at one state against the exact distribution function of the mixture; fixed seeds."""
    problem, rng = problems.random_polynomial(seed=seed), np.random.default_rng(seed)
    for action, s in ((0, 0.0), (1, 0.6), (2, -0.9), (1, 1.0)):
        drawn = problem.sample(np.full(1_000_000, s), action, rng)
        a, b = problem.centre[action], problem.edge[action]
        result = kstest(drawn, lambda x, a=a, b=b, s=s: (1 - s**2) * distribution(a, x) + s**2 * distribution(b, x))
        assert result.pvalue > 1e-3, (action, s, result)


def test_draws_at_different_states_are_uncorrelated_with_the_choice():
    """The number that decides between the densities is used again: given the choice it must be uniform still."""
    problem, n = problems.random_polynomial(seed=7), 400_000
    states = np.random.default_rng(0).uniform(-1, 1, n)
    drawn = problem.sample(states, 0, np.random.default_rng(1))
    mixed = (1 - states**2) * distribution(problem.centre[0], drawn) + states**2 * distribution(problem.edge[0], drawn)
    for part in np.array_split(np.argsort(states**2), 20):  # F(s'|s) is uniform given s
        assert kstest(mixed[part], "uniform").pvalue > 1e-4


def test_every_action_uses_one_number_for_each_row_and_noise_is_shared():
    problem, basis = problems.random_polynomial(seed=7), certirl.Legendre(3)
    assert can_pair(problem, basis, 0) and can_pair(problems.random_polynomial(seed=7, bits=8), basis, 0)
    states, ends = np.random.default_rng(0).uniform(-1, 1, 50_000), []
    for action in range(3):
        rng = np.random.default_rng(5)
        ends.append(problem.sample(states, action, rng))
        used = np.random.default_rng(5)
        used.random(len(states))
        assert rng.random() == used.random()
    assert np.corrcoef(ends)[np.triu_indices(3, 1)].min() > 0.3


def test_problems_are_copied_and_pickled_without_their_tables():
    problem, states = problems.random_polynomial(seed=3), np.linspace(-1, 1, 1001)[:, None]
    first = problem.sample(states, 1, np.random.default_rng(0))
    assert len(pickle.dumps(problem)) < 5_000
    for again in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem), copy.copy(problem)):
        np.testing.assert_array_equal(again.sample(states, 1, np.random.default_rng(0)), first)


def test_the_ends_of_the_domain_and_of_the_unit_interval():
    class Fixed:
        def __init__(self, value):
            self.value = value

        def random(self, n):
            return np.full(n, self.value)

    problem = problems.random_polynomial(seed=7)
    states = np.array([[-1.0], [0.0], [1e-200], [0.5], [0.999], [1.0]])
    for action in range(3):
        low, high = (problem.sample(states, action, Fixed(u)) for u in (0.0, np.nextafter(1.0, 0.0)))
        assert np.abs(low).max() <= 1 and np.abs(high).max() <= 1
        np.testing.assert_allclose(low, -1.0, atol=1e-9)
        assert (high > 0.9).all()
