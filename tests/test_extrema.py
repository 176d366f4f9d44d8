import numpy as np
import pytest

from certirl.bases import FAMILIES
from certirl.extrema import local_minima, minimum


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
