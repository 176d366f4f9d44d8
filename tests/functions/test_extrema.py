import numpy as np
import pytest

from certirl.functions.bases import FAMILIES
from certirl.functions.boxes import product
from certirl.functions.extrema import first_of_least, local_minima, minimum, ranked


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
def test_a_double_minimum_is_found_twice(family):
    basis = family(5, (-1, 1))
    # cos 2πt − ½ or T_4: several equal minima
    coefficients = np.eye(5)[4]
    states, values = local_minima(basis, coefficients)
    deepest = states[values < values.min() + 1e-9, 0]
    assert len(np.unique(deepest.round(6))) >= 2


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

NOISE = [np.zeros(40), *(1e-10 * np.random.default_rng(seed).normal(size=40) for seed in range(6))]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("noise", NOISE, ids=range(len(NOISE)))
def test_of_equal_minima_the_smallest_state_is_named(family, noise):
    basis = family(5, (-2.0, 5.0))
    flat, wave = np.eye(5)[0] + noise[:5], np.eye(5)[4] + noise[:5]  # a constant; cos 2πt, P_4 or T_4
    assert minimum(basis, flat)[0] == -2.0
    states, values = local_minima(basis, np.eye(5)[4])
    first = states[values < values.min() + 1e-9].min()
    assert minimum(basis, wave)[0] == pytest.approx(first, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("noise", NOISE, ids=range(len(NOISE)))
def test_of_equal_minima_on_a_box_the_smallest_in_the_first_coordinate_is_named(family, noise):
    basis = product(family(5, (-2.0, 5.0)), family(5, (0.0, 1.0)), index="full")
    for degrees in ((0, 0), (4, 0), (0, 4), (4, 4)):
        exact = np.eye(25)[basis.indices.tolist().index(list(degrees))]
        states, values = local_minima(basis, exact)
        low = np.array(basis.domain)[:, 0]
        tied = states[values < values.min() + 1e-9]
        tied = np.where(np.array(degrees) == 0, low, tied)  # a coordinate that makes no difference
        first = tied[tied[:, 0] < tied[:, 0].min() + 1e-6]
        first = first[first[:, 1].argmin()]
        state, _ = minimum(basis, exact + noise[:25])
        np.testing.assert_allclose(state, first, atol=1e-4)


@pytest.mark.parametrize("noise", NOISE, ids=range(len(NOISE)))
def test_equal_weights_are_ranked_by_their_places(noise):
    weights = np.array([0.1, 0.3, 0.3, 0.0, 0.3]) + noise[:5]
    actions, states = np.array([0, 2, 1, 0, 1]), np.array([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 1.0], [3.0, 0.0]])
    assert ranked(weights, actions, states).tolist() == [4, 2, 1, 0, 3]
    assert ranked(weights, states, actions).tolist() == [1, 4, 2, 0, 3]
    assert first_of_least(-weights) == 1
    assert sorted(ranked(np.zeros(3), np.arange(3)[::-1]).tolist()) == [0, 1, 2]
