"""One contract for every basis, on several intervals and sizes."""

import numpy as np
import pytest

from certirl.bases import FAMILIES, Basis, from_spec

INTERVALS = [(-1.0, 1.0), (0.0, 3.0), (-200.0, -150.0)]
SIZES = [1, 2, 5, 6, 11, 40]
CASES = [family(size, interval) for family in FAMILIES.values() for interval in INTERVALS for size in SIZES]


@pytest.fixture(params=CASES, ids=str)
def basis(request) -> Basis:
    return request.param


def inside(basis: Basis, count: int = 1001) -> np.ndarray:
    ((low, high),) = basis.domain
    return np.linspace(low, high, count)


def test_functions_are_orthonormal_for_the_weight(basis):
    # Substituting s = centre + half·sin(u) tames the weight's poles; the trapezoid-free Gauss rule in u is independent.
    ((low, high),) = basis.domain
    u, w = np.polynomial.legendre.leggauss(300)
    u, w = u * np.pi / 2, w * np.pi / 2
    s = (low + high) / 2 + (high - low) / 2 * np.sin(u)
    values, weight = basis.values(s), basis.weight(s)
    gram = (values * (weight * w * (high - low) / 2 * np.cos(u))[:, None]).T @ values
    np.testing.assert_allclose(gram, np.eye(basis.size), atol=2e-11)


def test_own_quadrature_integrates_the_weight(basis):
    nodes, weights = basis.quadrature(100)
    assert weights.sum() == pytest.approx(basis.mass, rel=1e-12)
    values = basis.values(nodes)
    np.testing.assert_allclose((values * weights[:, None]).T @ values, np.eye(basis.size), atol=1e-9)


def test_derivative_matches_differences(basis):
    ((low, high),) = basis.domain
    step = 3e-6 * (high - low)
    s = np.linspace(low + step, high - step, 101)
    differences = (basis.values(s + step) - basis.values(s - step)) / (2 * step)
    scale = basis.lipschitz().max() + 1e-300
    np.testing.assert_allclose(basis.derivative(s) / scale, differences / scale, atol=1e-5)


def test_constants_bound_and_are_reached(basis):
    s = inside(basis, 4001)
    for bound, seen in ((basis.sup(), np.abs(basis.values(s))), (basis.lipschitz(), np.abs(basis.derivative(s)))):
        assert (seen.max(axis=0) <= bound * (1 + 1e-9)).all()
        assert (seen.max(axis=0) >= bound * 0.99).all()


def test_first_function_is_constant(basis):
    first = basis.values(inside(basis))[:, 0]
    np.testing.assert_allclose(first, basis.mass**-0.5, rtol=1e-14)


def test_samples_follow_the_weight(basis):
    states = basis.sample(20_000, np.random.default_rng(0))
    assert states.shape == (20_000, 1)
    mean = basis.values(states).mean(axis=0) * basis.mass
    expected = np.eye(basis.size)[0] * basis.mass**0.5
    assert np.abs(mean - expected).max() < 6 * basis.mass * basis.sup().max() / np.sqrt(20_000)


def test_design_stays_inside_and_evens_out_the_error_of_least_squares(basis):
    ((low, high),) = basis.domain
    states = basis.design(20_000, np.random.default_rng(1))
    assert states.min() >= low and states.max() <= high
    x = basis.values(states)
    worst = np.einsum(
        "ni,ij,nj->n", *(basis.values(inside(basis)),), np.linalg.inv(x.T @ x / len(x)), basis.values(inside(basis))
    )
    assert worst.max() <= 2.3 * basis.size + 1  # uniform states would give size² for polynomials


def test_states_may_be_rows_or_columns(basis):
    s = inside(basis, 7)
    np.testing.assert_array_equal(basis.values(s), basis.values(s[:, None]))
    assert basis.values(s).shape == basis.derivative(s).shape == (7, basis.size)
    assert basis.values(float(s[0])).shape == (1, basis.size)


def test_leading_functions_do_not_depend_on_the_size(basis):
    s = inside(basis, 50)
    np.testing.assert_allclose(basis.resized(basis.size + 3).values(s)[:, : basis.size], basis.values(s), atol=1e-12)


def test_spec_round_trip(basis):
    assert from_spec(basis.spec()) == basis


def test_grid_holds_the_ends(basis):
    ((low, high),) = basis.domain
    grid = basis.grid(9)[:, 0]
    assert grid[0] == low and grid[-1] == high and (np.diff(grid) > 0).all()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("size", [0, -1, 2.5, True, "3"])
def test_a_bad_size_is_one_sentence(family, size):
    with pytest.raises(ValueError, match="positive whole number"):
        family(size)


@pytest.mark.parametrize("interval", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), ((0, 1), (0, 1)), "ab"])
def test_a_bad_interval_is_one_sentence(interval):
    with pytest.raises(ValueError, match=r"interval|domain"):
        FAMILIES["Legendre"](3, interval)


def test_a_basis_on_another_interval_is_refused():
    with pytest.raises(ValueError, match="without an interval"):
        FAMILIES["Fourier"](3, (0, 1)).on(((0.0, 2.0),))


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="known families"):
        from_spec({"kind": "Wavelet", "size": 3, "domain": [[0, 1]]})
