"""The minimum of an expansion: exact up to rounding on an interval, an enclosure on a box."""

import numpy as np
import pytest

from certirl import Chebyshev, Fourier, Legendre, product
from certirl.functions import extrema
from certirl.functions.bases import FAMILIES
from certirl.functions.extrema import first_of_least, local_minima, minimum, ranked, value_range
from certirl.ground.domain import mesh
from sizes import sizes


@pytest.mark.thinned(4)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12, 30])
def test_minimum_equals_a_dense_grid(family, size):
    rng = np.random.default_rng(size)
    basis = family(size, (-2.0, 5.0))
    grid = np.linspace(-2, 5, 200_001)
    features = basis.values(grid)
    for _ in range(10):
        coefficients = rng.normal(size=size)
        state, value = minimum(basis, coefficients)
        lowest = (features @ coefficients).min()
        assert value <= lowest + 1e-12 * size
        assert value >= lowest - 1e-6 * size  # the grid cannot be far above it
        assert basis.values(state)[0] @ coefficients == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_the_quick_look_agrees_on_smooth_curves(family):
    basis = family(9, (0, 1))
    coefficients = np.random.default_rng(3).normal(size=9)
    _, exact = local_minima(basis, coefficients)
    _, quick = local_minima(basis, coefficients, exact=False)
    assert quick.min() == pytest.approx(exact.min(), abs=1e-10)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_flat_and_tiny_leading_coefficients_are_harmless(family):
    basis = family(6)
    for coefficients in (np.zeros(6), np.eye(6)[0], np.array([1, 0.5, 0.2, 0, 1e-18, 1e-30])):
        state, value = minimum(basis, coefficients)
        assert np.isfinite(value) and basis.values(state)[0] @ coefficients == pytest.approx(value)


# Which of several equal places is named must not depend on the last digits, which differ from processor to processor.

SEEDS = [None, *sizes(0, *range(1, 6))]  # of rounding errors; None for none


def rounding(seed):
    return np.zeros(40) if seed is None else 1e-10 * np.random.default_rng(seed).normal(size=40)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_of_equal_minima_the_smallest_state_is_named(family, seed):
    basis = family(5, (-2.0, 5.0))
    flat, wave = np.eye(5)[0] + rounding(seed)[:5], np.eye(5)[4] + rounding(seed)[:5]  # a constant; cos 2πt, P_4 or T_4
    assert minimum(basis, flat)[0] == -2.0
    states, values = local_minima(basis, np.eye(5)[4])
    first = states[values < values.min() + 1e-9].min()
    assert minimum(basis, wave)[0] == pytest.approx(first, abs=1e-5)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_of_equal_minima_on_a_box_the_smallest_in_the_first_coordinate_is_named(family, seed):
    basis = product(family(5, (-2.0, 5.0)), family(5, (0.0, 1.0)), index="full")
    for degrees in ((0, 0), (4, 0), (0, 4), (4, 4)):
        exact = np.eye(25)[basis.indices.tolist().index(list(degrees))]
        states, values = local_minima(basis, exact)
        low = np.array(basis.domain)[:, 0]
        tied = states[values < values.min() + 1e-9]
        tied = np.where(np.array(degrees) == 0, low, tied)  # a coordinate that makes no difference
        first = tied[tied[:, 0] < tied[:, 0].min() + 1e-6]
        first = first[first[:, 1].argmin()]
        state, _ = minimum(basis, exact + rounding(seed)[:25])
        np.testing.assert_allclose(state, first, atol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_weights_are_ranked_by_their_places(seed):
    weights = np.array([0.1, 0.3, 0.3, 0.0, 0.3]) + rounding(seed)[:5]
    actions, states = np.array([0, 2, 1, 0, 1]), np.array([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 1.0], [3.0, 0.0]])
    assert ranked(weights, actions, states).tolist() == [4, 2, 1, 0, 3]
    assert ranked(weights, states, actions).tolist() == [1, 4, 2, 0, 3]
    assert first_of_least(-weights) == 1
    assert sorted(ranked(np.zeros(3), np.arange(3)[::-1]).tolist()) == [0, 1, 2]


# Boxes: a bound that is never above the truth and hardly below it.

BASES = [
    product(Legendre(6, (-2.0, 5.0)), Legendre(6, (0.0, 1.0))),
    product(Fourier(9, (-3.0, 3.0)), Legendre(7, (0.0, 50.0))),
    product(Chebyshev(5), Fourier(5), index="full"),
    product(Legendre(15), Chebyshev(15), index="hyperbolic"),
    product(Legendre(6), Fourier(5), Chebyshev(4)),
]


def dense(basis, coefficients):
    along = {2: 601, 3: 81}[basis.dimension]
    states = mesh([np.linspace(low, high, along) for low, high in basis.domain])
    return min(float((basis.values(part) @ coefficients).min()) for part in np.array_split(states, 60))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("decay", [0, 1, 3])
def test_the_bound_is_never_above_a_dense_grid_and_close_to_a_value(basis, decay):
    rng = np.random.default_rng(decay)
    for _ in range(2):
        coefficients = rng.normal(size=basis.size) / (1.0 + basis.degrees.sum(axis=1)) ** decay
        state, proved = minimum(basis, coefficients)
        value = float((basis.values(state) @ coefficients)[0])
        swing = float(np.abs(coefficients) @ basis.sup())
        lowest = dense(basis, coefficients)
        assert proved <= lowest
        assert proved <= value <= proved + 1e-6 * swing
        assert value <= lowest + 1e-9 * swing


@pytest.mark.parametrize("basis", BASES, ids=str)
def test_the_global_minimum_is_among_the_local_ones(basis):
    coefficients = np.random.default_rng(7).normal(size=basis.size)
    states, values = local_minima(basis, coefficients)
    low, high = np.array(basis.domain).T
    assert (states >= low).all() and (states <= high).all()
    np.testing.assert_allclose(values, basis.values(states) @ coefficients, atol=1e-12)
    assert values.min() <= dense(basis, coefficients) + 1e-9
    quick, at = local_minima(basis, coefficients, exact=False)
    assert len(quick) >= 2 and at.min() >= values.min() - 1e-9


def test_local_minima_are_polished():
    """At a minimum inside the box the gradient vanishes."""
    basis = product(Fourier(9), Legendre(8))
    coefficients = np.random.default_rng(1).normal(size=basis.size)
    states, _ = local_minima(basis, coefficients)
    inner = states[np.abs(states[:, 1]) < 0.99]
    assert len(inner) >= 3
    for axis in range(2):
        slope = basis.derivative(inner, axis) @ coefficients
        assert np.median(np.abs(slope)) < 1e-6 * np.abs(coefficients).sum()


def test_a_narrow_dip_is_found():
    """A square of a wave, lowered a little in one place only: the quick look may miss it, the proof may not."""
    basis = product(Legendre(13), Legendre(13), index="full")
    nodes, weights = basis.quadrature(40)
    dip = np.cos(np.arccos(nodes[:, 0]) * 6) ** 2 * np.cos(np.arccos(nodes[:, 1]) * 6) ** 2 + 1e-3 * nodes.sum(axis=1)
    coefficients = (basis.values(nodes) * weights[:, None]).T @ dip
    _, proved = minimum(basis, coefficients)
    lowest = dense(basis, coefficients)
    assert lowest - 1e-4 <= proved <= lowest


def test_a_ridge_is_bounded_from_below_whatever_it_costs(monkeypatch):
    """A function of one coordinate has a whole line of minima; with hardly any values allowed the bound still holds."""
    basis = product(Legendre(9), Legendre(9))
    coefficients = np.where(basis.degrees[:, 1] == 0, np.random.default_rng(0).normal(size=basis.size), 0.0)
    lowest, (_, proved) = dense(basis, coefficients), minimum(basis, coefficients)
    assert lowest - 1e-4 <= proved <= lowest
    noisy = coefficients + 1e-4 * np.random.default_rng(1).normal(size=basis.size)
    monkeypatch.setattr(extrema, "MOST_VALUES", 500)
    _, loose = minimum(basis, noisy)
    assert loose <= dense(basis, noisy)


def test_terms_too_small_to_matter_do_not_make_it_slow_or_wrong():
    basis = product(Legendre(15), Legendre(15))
    coefficients = np.where(basis.degrees.sum(axis=1) <= 2, 1.0, 1e-16)
    wave = extrema.Wave(basis, coefficients)
    assert wave.reach_of.sum(axis=1).max() == 2
    _, proved = minimum(basis, coefficients)
    assert proved <= dense(basis, coefficients)


@pytest.mark.parametrize("basis", [*BASES, Legendre(9, (0.0, 2.0)), Fourier(7)], ids=str)
def test_the_range_of_values_encloses_them_and_is_close(basis):
    coefficients = np.random.default_rng(5).normal(size=basis.size)
    low, high = value_range(basis, coefficients)
    values = basis.values(basis.grid(20_000)) @ coefficients
    assert low <= values.min() + 1e-12 and values.max() - 1e-12 <= high
    assert high - low <= np.ptp(values) * 1.05
