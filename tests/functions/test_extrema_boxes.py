"""The minimum over a box: a bound that is never above the truth and hardly below it."""

import numpy as np
import pytest

from certirl import Chebyshev, Fourier, Legendre, product
from certirl.functions import extrema
from certirl.functions.extrema import local_minima, minimum, value_range
from certirl.ground.domain import mesh

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


@pytest.mark.parametrize("coefficient", [0.0, 3.0, -2.0])
def test_constants_are_their_own_minimum(coefficient):
    basis = product(Legendre(4), Fourier(5))
    coefficients = coefficient * np.eye(basis.size)[0]
    _, proved = minimum(basis, coefficients)
    assert proved == pytest.approx(coefficient / 2, abs=1e-12)
    assert proved <= coefficient / 2


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
