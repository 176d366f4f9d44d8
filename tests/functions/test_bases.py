"""One contract for every basis, on several intervals and sizes."""

import numpy as np
import pytest

from certirl import Chebyshev, Fourier, Legendre, product
from certirl.functions.bases import FAMILIES, Basis
from certirl.functions.harmonics import harmonic_table, products_from_sums
from certirl.functions.spread import inflation, spread_counts, spread_points
from certirl.ground.domain import mesh
from refusals import refused

INTERVALS = [(-1.0, 1.0), (0.0, 3.0), (-200.0, -150.0)]
SIZES = [1, 2, 5, 6, 11, 40]
BOXES = [
    product(Legendre(5), Legendre(5)),
    product(Fourier(9, (-3.0, 3.0)), Legendre(7, (0.0, 50.0))),
    product(Legendre(4), Fourier(5), index="full"),
    product(Legendre(11), Chebyshev(9), index="hyperbolic"),
    product(Chebyshev(5, (0.0, 1e-3)), Legendre(3, (-200.0, -150.0)), Fourier(3, (0.0, 1.0))),
    product(Legendre(7), Fourier(7)).resized(8),
    product(Legendre(3), Legendre(3)).resized(1),
]
CASES = [family(size, interval) for family in FAMILIES.values() for interval in INTERVALS for size in SIZES]


# Every fifth is fast, so that each interval and each size occur.
MARKED = [pytest.param(basis, marks=[pytest.mark.slow] * (number % 5 > 0)) for number, basis in enumerate(CASES)]


@pytest.fixture(params=[*MARKED, *BOXES], ids=str)
def basis(request) -> Basis:
    return request.param


def inside(basis: Basis, count: int = 1001) -> np.ndarray:
    """About so many states, [n] for one coordinate."""
    along = {1: count, 2: 51, 3: 19}[basis.dimension]
    states = mesh([np.linspace(low, high, along) for low, high in basis.domain])
    return states[:, 0] if basis.dimension == 1 else states


def test_functions_are_orthonormal_for_the_weight(basis):
    # Substituting s = centre + half·sin(u) tames the weight's poles; the trapezoid-free Gauss rule in u is independent.
    u, w = np.polynomial.legendre.leggauss({1: 300, 2: 60, 3: 24}[basis.dimension])
    u, w = u * np.pi / 2, w * np.pi / 2
    s = mesh([(low + high) / 2 + (high - low) / 2 * np.sin(u) for low, high in basis.domain])
    rules = mesh([w * (high - low) / 2 * np.cos(u) for low, high in basis.domain]).prod(axis=1)
    values, weight = basis.values(s), basis.weight(s)
    gram = (values * (weight * rules)[:, None]).T @ values
    np.testing.assert_allclose(gram, np.eye(basis.size), atol=2e-11)


def test_own_quadrature_integrates_the_weight(basis):
    nodes, weights = basis.quadrature({1: 100, 2: 40, 3: 20}[basis.dimension])
    assert weights.sum() == pytest.approx(basis.mass, rel=1e-12)
    values = basis.values(nodes)
    np.testing.assert_allclose((values * weights[:, None]).T @ values, np.eye(basis.size), atol=1e-9)


BENT = [Legendre(6, (0, 3)), Chebyshev(5), Fourier(6), Fourier(7, (0, 1)), product(Fourier(5), Legendre(4))]


@pytest.mark.parametrize("bent", BENT, ids=str)
def test_roughness_matches_differences_of_slopes(bent):
    weights, half = np.random.default_rng(0).standard_normal(bent.size), bent.domain.width / 2
    middles = [low + (high - low) * (np.arange(400) + 0.5) / 400 for low, high in bent.domain]
    states, total = np.stack(np.meshgrid(*middles), axis=-1).reshape(-1, bent.dimension), 0.0
    for axis, move in enumerate(np.diag(1e-4 * half)):
        difference = bent.derivative(states + move, axis) - bent.derivative(states - move, axis)
        total += 2**bent.dimension * np.mean((difference @ weights / 2e-4 * half[axis]) ** 2)
    assert weights @ bent._roughness() @ weights == pytest.approx(total, rel=0.01)


def test_derivative_matches_differences(basis):
    width = np.array(basis.domain) @ [-1, 1]
    low, high = np.array(basis.domain).T
    s = np.clip(inside(basis, 101).reshape(-1, basis.dimension), low + 3e-6 * width, high - 3e-6 * width)
    for axis, step in enumerate(3e-6 * width):
        move = step * np.eye(basis.dimension)[axis]
        differences = (basis.values(s + move) - basis.values(s - move)) / (2 * step)
        slopes = basis.derivative(s, axis)
        np.testing.assert_allclose(slopes, differences, atol=1e-5 * np.abs(slopes).max())


def test_suprema_bound_and_are_reached(basis):
    s = inside(basis, 4001)
    close = 0.99 if basis.dimension == 1 else 0.9  # the mesh on a box is coarser
    largest = np.abs(basis.values(s)).max(axis=0)
    assert (largest <= basis.sup() * (1 + 1e-9)).all()
    assert (largest >= basis.sup() * close).all()


def test_first_function_is_constant(basis):
    first = basis.values(inside(basis))[:, 0]
    np.testing.assert_allclose(first, basis.mass**-0.5, rtol=1e-14)


def test_samples_follow_the_weight(basis):
    states = basis.sample(20_000, np.random.default_rng(0))
    assert states.shape == (20_000, basis.dimension)
    mean = basis.values(states).mean(axis=0) * basis.mass
    expected = np.eye(basis.size)[0] * basis.mass**0.5
    assert np.abs(mean - expected).max() < 6 * basis.mass * basis.sup().max() / np.sqrt(20_000)


def test_design_stays_inside_and_evens_out_the_error_of_least_squares(basis):
    low, high = np.array(basis.domain).T
    states = basis.design(20_000, np.random.default_rng(1))
    assert (states >= low).all() and (states <= high).all()
    x = basis.values(states)
    worst = np.einsum(
        "ni,ij,nj->n", *(basis.values(inside(basis)),), np.linalg.inv(x.T @ x / len(x)), basis.values(inside(basis))
    )
    # Uniform states would give size² for polynomials of one coordinate.
    assert worst.max() <= 2.3**basis.dimension * basis.size + 1


def test_states_may_be_rows_or_columns(basis):
    s = inside(basis, 7)[:7]
    np.testing.assert_array_equal(basis.values(s), basis.values(s.reshape(7, -1)))
    assert basis.values(s).shape == basis.derivative(s).shape == (7, basis.size)
    assert basis.values(s[0]).shape == (1, basis.size)


def test_leading_functions_do_not_depend_on_the_size(basis):
    s = inside(basis, 50)
    np.testing.assert_allclose(basis.resized(basis.size + 3).values(s)[:, : basis.size], basis.values(s), atol=1e-12)


def test_grid_holds_the_ends(basis):
    grid = basis.grid(9)
    assert len(grid) == 9 if basis.dimension == 1 else len(grid) >= 9
    for axis, (low, high) in zip(grid.T, basis.domain, strict=True):
        along = np.unique(axis)
        assert along[0] == low and along[-1] == high
    corners = mesh([np.array(pair) for pair in basis.domain])
    assert all((grid == corner).all(axis=1).any() for corner in corners)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@pytest.mark.parametrize("size", [0, -1, 2.5, True, "3"])
def test_a_bad_size_is_one_sentence(family, size):
    refused("size must be a whole number, at least 1", family, size)


@pytest.mark.parametrize("interval", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), ((0, 1), (0, 1)), "ab"])
def test_a_bad_interval_is_one_sentence(interval):
    refused(r"interval|domain", FAMILIES["Legendre"], 3, interval)


def test_a_basis_on_another_interval_is_refused():
    refused("without an interval", FAMILIES["Fourier"](3, (0, 1)).on, ((0.0, 2.0),))


def test_a_smaller_set_of_indices_leads_the_larger_one():
    wide, narrow = product(Legendre(9), Legendre(9)), product(Legendre(4), Legendre(4))
    np.testing.assert_array_equal(wide.indices[: narrow.size], narrow.indices)
    assert wide.resized(10) == narrow != wide and hash(wide.resized(10)) == hash(narrow)
    assert str(wide.resized(10)) == str(narrow) == "Legendre(4) × Legendre(4) (total, 10 functions)"
    assert narrow != product(Legendre(4), Chebyshev(4)) != product(Legendre(4), Legendre(7)).resized(10)
    assert wide.complete_sizes() == [1, 3, 6, 10, 15, 21, 28, 36, 45]
    assert (wide.indices.sum(axis=1) <= 8).all()


@pytest.mark.parametrize(("index", "size"), [("total", 286), ("full", 1331), ("hyperbolic", 56)])
def test_index_sets_have_the_size_their_name_says(index, size):
    basis = product(Legendre(11), Legendre(11), Legendre(11), index=index)
    assert basis.size == size
    n = basis.degrees
    within = {"total": n.sum(axis=1) <= 10, "full": (n <= 10).all(axis=1), "hyperbolic": (n + 1).prod(axis=1) <= 11}
    assert within[index].all() and len(np.unique(basis.indices, axis=0)) == size


def test_a_coordinate_with_a_larger_factor_gets_more_functions():
    basis = product(Fourier(9), Legendre(7))
    assert basis.degrees.max(axis=0).tolist() == [4, 6]
    assert (basis.degrees @ [1 / 4, 1 / 6] <= 1 + 1e-12).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: product(), "a family for each coordinate"),
        (lambda: product(Legendre(3), 5), "takes families"),
        (lambda: product(Legendre(3), product(Legendre(3), Legendre(3))), "takes families"),
        (lambda: product(Legendre(3), Legendre(1)), "at least two functions"),
        (lambda: product(Legendre(3), Fourier(4)), "odd number"),
        (lambda: product(Legendre(3), Legendre(3), index="simplex"), "index must be one of"),
        (lambda: product(Legendre(3, (0, 1)), Legendre(3)), "every factor an interval or none"),
        (lambda: product(*[Legendre(21)] * 9), "too many"),
        (lambda: product(Legendre(3), Legendre(3)).on(((0.0, 1.0),)), "2 coordinates, but the domain .* has 1"),
        (lambda: product(Legendre(3, (0, 1)), Legendre(3, (0, 1))).on(((0.0, 1.0), (0.0, 2.0))), "is defined on"),
        (lambda: Legendre(3).on(((0.0, 1.0), (0.0, 2.0))), r"certirl\.product"),
        (lambda: product(Legendre(3), Legendre(3)).values(np.zeros((4, 3))), r"shape \[n, 2\]"),
        (lambda: product(Legendre(3), Legendre(3)).derivative(np.zeros((4, 2)), 2), "axes 0 … 1"),
    ],
)
def test_a_wrong_product_is_one_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()


def test_an_interval_is_a_box_with_one_coordinate(basis):
    assert (basis.dimension, len(basis.parts), basis.indices.shape) == (
        len(basis.domain),
        len(basis.domain),
        (basis.size, basis.dimension),
    )
    for axis, part in enumerate(basis.parts):
        assert part.domain == (basis.domain[axis],) and part.size == basis.indices[:, axis].max() + 1
        assert part.degree == basis.degrees[:, axis].max()
        assert (axis in basis.periodic_axes) == part.periodic == (part.kind == "Fourier")
    s = inside(basis, 50).reshape(-1, basis.dimension)
    tables = [part.values(column)[:, i] for part, column, i in zip(basis.parts, s.T, basis.indices.T, strict=True)]
    np.testing.assert_allclose(np.prod(tables, axis=0), basis.values(s), atol=1e-12)


def test_the_product_of_one_family_is_the_family():
    assert product(Legendre(5)) == Legendre(5) and product(Fourier(4, (0, 1))) == Fourier(4, (0, 1))


def test_no_expansion_exceeds_its_values_at_the_spread_points_by_more_than_the_inflation(basis):
    counts = tuple(max(count, 2) for count in spread_counts(basis, 3.0))
    points = spread_points(basis, *counts)
    assert len(points) == np.prod(counts)
    factor = inflation(basis, *counts)
    assert 1 <= factor < 8
    for coefficients in np.random.default_rng(0).normal(size=(20, basis.size)):
        largest = np.abs(basis.values(inside(basis)) @ coefficients).max()
        assert largest <= factor * np.abs(basis.values(points) @ coefficients).max() * (1 + 1e-12)
    assert inflation(basis, *(2 * n for n in counts), times=2) == pytest.approx(factor)


def test_harmonics_span_the_functions_and_twice_as_many_their_products(basis):
    t = np.linspace(-1, 1, 41)
    for part in basis.parts:
        h = harmonic_table(t, part._harmonics, part.periodic)
        np.testing.assert_allclose(part._from_harmonics(h), part._reference_values(t), atol=1e-11)
        assert h.shape == (part._harmonics, 41) and np.abs(h).max() <= 1 + 1e-12
        sums = harmonic_table(t, part._doubled()._harmonics, part.periodic).sum(axis=1)
        np.testing.assert_allclose(products_from_sums(sums, part._harmonics, part.periodic), h @ h.T, atol=1e-9)


def test_the_level_basis_has_the_same_span(basis):
    if basis._is_closed:
        s = basis.design(5 * basis.size + 5, np.random.default_rng(0))
        other = basis._level.values(s)
        fit = np.linalg.lstsq(other, basis.values(s), rcond=None)[0]
        np.testing.assert_allclose(other @ fit, basis.values(s), atol=1e-8 * basis.sup().max())
    assert basis._closed()._is_closed and basis._closed().size >= basis.size


def test_expansions_are_sums_of_the_functions(basis):
    states, several = inside(basis, 101), np.random.default_rng(0).normal(size=(basis.size, 3))
    expected = basis.values(states) @ several
    np.testing.assert_allclose(basis.combined(states, several), expected, atol=1e-11 * np.abs(expected).max())
    np.testing.assert_allclose(
        basis.combined(states, several[:, 0]), expected[:, 0], atol=1e-11 * np.abs(expected).max()
    )
    assert basis.combined(states[:0], several).shape == (0, 3)
