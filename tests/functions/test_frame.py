"""Harmonics of a box: spans, products, derivatives, and what bounds at points say about all states."""

import numpy as np
import pytest

from certirl import Chebyshev, Fourier, Legendre, product
from certirl.functions.frame import CellAxes, frame
from certirl.ground.domain import mesh

BOX = ((0.0, 2.0), (1.0, 4.0), (-1.0, 1.0))
BASES = [
    Legendre(1),
    Legendre(7),
    Chebyshev(4),
    Fourier(6),
    Fourier(7),
    product(Legendre(6), Legendre(4)),
    product(Fourier(5), Legendre(4)),
    product(Fourier(3), Chebyshev(3), Legendre(3), index="full"),
    product(Legendre(9), Chebyshev(7), index="hyperbolic"),
]


@pytest.fixture(params=BASES, ids=str)
def own(request):
    return frame(request.param.on(BOX[: request.param.dimension]))


def somewhere(own, count, seed=0):
    low, high = np.array(own.columns.domain).T
    return low + (high - low) * np.random.default_rng(seed).random((count, len(low)))


def test_harmonics_span_the_columns_and_never_exceed_one(own):
    states = somewhere(own, 400)
    values = own.values(states)
    assert values @ own.change.T == pytest.approx(own.columns.values(states), abs=1e-11)
    assert np.abs(values).max() <= 1 + 1e-12
    assert (values[:, 0] == 1).all()
    assert pytest.approx(values, abs=1e-12) == own.of_tables(own.tables(states)).T
    curve = np.random.default_rng(1).normal(size=own.size)
    assert own.values(states) @ own.coefficients(curve) == pytest.approx(own.columns.values(states) @ curve)


@pytest.mark.parametrize("weights", [1, 40])
def test_products_of_two_harmonics_follow_from_sums_of_products(own, weights):
    states, shares = somewhere(own, 300), np.random.default_rng(2).normal(size=(weights, 300))
    sums, x = own.sums(own.tables(states), shares), own.values(states)
    assert sums.shape == (weights, *own.wide)
    lifted = own.lifted(sums)
    for image, share in zip(lifted, shares, strict=True):
        assert image == pytest.approx((x * share[:, None]).T @ x, abs=1e-10)
        assert (image == image.T).all()


def test_lifting_keeps_rounding_small(own):
    """Every Σ h_i h_j f is an average of sums Σ χ f, up to signs, so that it has no larger error."""
    error = np.random.default_rng(3).uniform(-1, 1, (20, *own.wide))
    assert np.abs(own.lifted(error)).max() <= 1 + 1e-12


def test_a_mesh_bounds_expansions_and_their_products_everywhere(own):
    rng, fine = np.random.default_rng(4), own.values(somewhere(own, 20_000))
    for places in (own.dense, own.fine, own.visited, own.band(8.0)):
        at_points = own.values(places.states)
        assert 1 <= places.factor <= places.double
        for _ in range(10):
            one, other = rng.normal(size=(2, own.size))
            assert np.abs(fine @ one).max() <= places.factor * np.abs(at_points @ one).max() + 1e-12
            if np.isfinite(places.double):
                most = np.abs((at_points @ one) * (at_points @ other)).max()
                assert np.abs((fine @ one) * (fine @ other)).max() <= places.double * most + 1e-12
    assert own.dense.double < 1.5 and own.fine.double <= own.dense.double


def test_the_inflation_is_nearly_reached():
    """A product of Chebyshev polynomials that a coarse mesh catches between its extrema."""
    own = frame(product(Chebyshev(5), Chebyshev(5)))
    places = own.mesh((8, 8))
    peaks = 1 / np.abs(own.values(places.states)).max(axis=0)
    assert 0.99 * places.factor < peaks.max() <= places.factor + 1e-12


def test_tensors_and_slopes_are_those_of_the_expansion(own):
    curve = np.random.default_rng(5).normal(size=own.size)
    low, high = np.array(own.columns.domain).T
    axes = [np.linspace(a + 0.1 * (b - a), b - 0.1 * (b - a), 5) for a, b in zip(low, high, strict=True)]
    states, tensor = mesh(axes), own.tensor(curve)
    assert own.on_axes(tensor, axes).ravel() == pytest.approx(own.values(states) @ curve)
    for axis in range(own.dimension):
        step = np.where(np.arange(own.dimension) == axis, 1e-6, 0.0)
        slope = (own.values(states + step) - own.values(states - step)) @ curve / 2e-6
        assert own.on_axes(own.slope(tensor, axis), axes).ravel() == pytest.approx(slope, abs=1e-4)


def test_a_curve_falls_no_farther_within_a_cell_than_is_said(own):
    rng, curve = np.random.default_rng(6), np.random.default_rng(6).normal(size=own.size)
    low, high = np.array(own.columns.domain).T
    half = (high - low) * np.array([0.003, 0.001, 0.002])[: own.dimension]
    axes = [np.linspace(a + h, b - h, 9) for a, b, h in zip(low, high, half, strict=True)]
    cells = CellAxes(axes, [np.full(9, h) for h in half])
    middles, said = mesh(axes), own.fall(curve, cells).ravel()
    around = middles[:, None] + half * rng.uniform(-1, 1, (len(middles), 200, own.dimension))
    falls = (own.values(middles) @ curve)[:, None] - (own.values(around.reshape(-1, own.dimension)) @ curve).reshape(
        len(middles), -1
    )
    assert (falls.max(axis=1) <= said + 1e-12).all()
    assert own.size == 1 or (falls.max(axis=1) / np.maximum(said, 1e-300)).max() > 0.6


def test_peaks_and_minima_enclose_the_expansion(own):
    curve = np.random.default_rng(7).normal(size=own.size)
    values = own.values(somewhere(own, 40_000)) @ curve
    state, least = own.minimum(curve)
    assert least <= values.min() + 1e-9
    assert own.values(state[None])[0] @ curve == pytest.approx(least, abs=1e-5 * np.abs(curve).sum())
    assert values.max() - 1e-9 <= own.peak(curve) <= values.max() + 0.05 * np.ptp(values) + 0.05 * (own.size > 1)


def test_numbers_at_points_are_blended_to_all_states(own):
    """An expansion is Σ w_i(s) times its values at the points; its size is at most Σ|w_i(s)| times their sizes."""
    places, curve = own.band(8.0), np.random.default_rng(8).normal(size=own.size)
    at_points = (own.values(places.states) @ curve).reshape(places.counts)
    states = somewhere(own, 60)
    numbers = np.stack([at_points, np.abs(at_points), np.ones(places.counts)])
    absolute, signed = own.blended(numbers, states)
    values = own.values(states) @ curve
    assert signed[0] == pytest.approx(values, abs=1e-9)
    assert signed[2] == pytest.approx(np.ones(60))
    assert (absolute[1] >= np.abs(values) - 1e-12).all()
    assert (absolute[2] >= 1 - 1e-12).all() and absolute[2].max() < 1.6
    axes = [np.linspace(low, high, 4) for low, high in own.columns.domain]
    on_axes = own.blended_on_axes(numbers, axes)
    assert on_axes.reshape(2, 3, -1) == pytest.approx(own.blended(numbers, mesh(axes)), abs=1e-12)


def test_an_expansion_moves_no_farther_within_cells_than_is_said(own):
    rng, curve = np.random.default_rng(9), np.random.default_rng(9).normal(size=own.size)
    low, high = np.array(own.columns.domain).T
    half = 0.01 * (high - low)
    axes = [np.linspace(a + h, b - h, 7) for a, b, h in zip(low, high, half, strict=True)]
    middles = mesh(axes)
    most = own.dense.factor * np.abs(own.dense_values @ curve).max()
    around = middles[:, None] + half * rng.uniform(-1, 1, (len(middles), 100, own.dimension))
    moved = (own.values(around.reshape(-1, own.dimension)) @ curve).reshape(len(middles), -1)
    moved = np.abs(moved - (own.values(middles) @ curve)[:, None]).max(axis=1)
    assert (moved <= own.drift(CellAxes(axes, [np.full(7, h) for h in half])).ravel() * most + 1e-12).all()


def test_cells_cover_the_box_and_expansions_hardly_move_within_them(own):
    edges = [np.linspace(low, high, 6) for low, high in own.columns.domain]
    for cells in (own.cells(), own.cells(edges)):
        for (low, high), axis, half in zip(own.columns.domain, cells.axes, cells.half, strict=True):
            assert (axis - half)[0] == pytest.approx(low) and (axis + half)[-1] == pytest.approx(high)
            assert (axis - half)[1:] == pytest.approx((axis + half)[:-1])
        assert own.drift(cells).max() < 0.05 * own.dimension
    for along, cut in zip(cells.axes, edges, strict=True):
        assert (np.bincount(np.searchsorted(cut, along, side="right") - 1, minlength=5) > 0).all()
