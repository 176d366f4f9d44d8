"""Sums of products of basis functions: every kernel gives the same, within the error it states."""

import sys

import numpy as np
import pytest

import certirl
from certirl.functions.harmonics import harmonic_table, legendre_in_harmonics
from certirl.kernels.sums import KERNELS, ProductSums, StackedSums, joint_sums
from refusals import refused

FAMILIES = (certirl.Fourier, certirl.Legendre, certirl.Chebyshev)
SIZES = ((1, 1), (2, 1), (5, 3), (11, 11), (12, 7), (40, 9), (101, 101))
ENDS = np.array([-1.0, 1.0, 1.0, -1.0, 0.0, 0.5, -0.5])


def need(kernel):
    if kernel != "numpy":
        pytest.importorskip("numba")


def points(n, seed=0):
    """Uniform points, the ends among them, and a cluster at an end."""
    rng = np.random.default_rng(seed)
    return np.concatenate([ENDS, rng.uniform(-1, 1, n), np.minimum(1.0, 1.0 - rng.exponential(1e-6, 50))])


def direct(rows, columns, y, x):
    return rows._reference_values(y) @ columns._reference_values(x).T


def relative(wrong, right, n, rows, columns):
    return (np.abs(wrong - right) / (n * np.outer(rows.sup(), columns.sup()))).max()


COMPILED = KERNELS[1:]


def joint(rows, columns, y, x, kernel=None):
    """The sums over rows (y, x), in [-1, 1]."""
    sums = joint_sums([rows, columns], kernel=kernel)
    sums.add(y[:, None], x[:, None])
    return sums


def errors(sums):
    """The stated error of every block."""
    if isinstance(sums, StackedSums):
        return dict.fromkeys(sums.blocks(), 2.0**-52 * (2 * max(basis.size for basis in sums.bases) ** 2 + 2**14))
    return {pair: part.error for pair, part in sums._sums.items()}


def agree(sums, points, n):
    for (i, j), block in sums.blocks().items():
        rows, columns = sums.bases[i], sums.bases[j]
        right = direct(rows, columns, points[i], points[j])
        assert relative(block, right, n, rows, columns) <= errors(sums)[i, j]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_with_the_dense_computation_within_its_stated_error(family, kernel):
    need(kernel)
    y, x = points(3000), points(3000, seed=1)
    for k, ks in SIZES:
        sums = joint(family(k), family(ks), y, x, kernel)
        assert sums.kernels == {kernel} and sums.n == y.size
        agree(sums, (y, x), y.size)
        for i in range(2):
            np.testing.assert_array_equal(sums.blocks()[i, i], sums.blocks()[i, i].T)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_and_columns_may_be_of_different_families_and_intervals(kernel):
    need(kernel)
    rows, columns, y, x = certirl.Fourier(8), certirl.Legendre(6), points(500), points(500, seed=1)
    agree(joint(rows, columns, y, x, kernel), (y, x), y.size)
    placed = joint(rows.on(((2.0, 6.0),)), columns.on(((-1.0, 0.0),)), 4 + 2 * y, (x - 1) / 2, kernel)
    agree(placed, (y, x), y.size)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_single_pair_and_equal_pairs_stay_within_the_stated_error(family, kernel):
    need(kernel)
    basis = family(25)
    rng = np.random.default_rng(2)
    for t, u in [(-1.0, 1.0), (1.0, 1.0), (0.0, -0.0), *rng.uniform(-1, 1, (20, 2))]:
        for n in (1, 1000):
            y, x = np.full(n, t), np.full(n, u)
            agree(joint(basis, basis, y, x, kernel), (y, x), n)


@pytest.mark.parametrize("kernel", KERNELS)
def test_adding_in_parts_equals_adding_at_once(kernel):
    need(kernel)
    basis, y, x = certirl.Legendre(11), points(70_000), points(70_000, seed=1)
    whole, parts = joint(basis, basis, y, x, kernel), joint_sums([basis, basis], kernel=kernel)
    for start, stop in ((0, 0), (0, 1), (1, 300), (300, 20_000), (20_000, None)):
        parts.add(y[start:stop, None], x[start:stop, None])
    assert whole.n == parts.n == y.size
    for pair, block in whole.blocks().items():
        np.testing.assert_allclose(parts.blocks()[pair], block, atol=1e-13 * y.size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_calls_give_the_same_bits_and_reading_changes_nothing(kernel):
    need(kernel)
    basis, y, x = certirl.Fourier(11), points(5000), points(5000, seed=1)
    first, second = (joint(basis, basis, y, x, kernel) for _ in range(2))
    assert first.blocks().keys() == {(0, 0), (0, 1), (1, 1)}
    for sums in (first, second):
        sums.add(x[:, None], y[:, None])
    for pair, block in first.blocks().items():
        np.testing.assert_array_equal(second.blocks()[pair], block)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("y", "x", "sentence"),
    [
        ([0.0, np.nan], [0.0, 0.0], r"states must be finite: row 1 is \[nan\]"),
        ([0.0, 0.0], [np.inf, 0.0], r"states must be finite: row 0 is \[inf\]"),
        ([[0.0, 1.0]], [0.0], r"states must have shape \[n\] or \[n, 1\], got \[1, 2\]"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(kernel, y, x, sentence):
    need(kernel)
    basis = certirl.Legendre(5)
    sums = joint(basis, basis, np.array([0.5]), np.array([0.25]), kernel)
    before = sums.blocks()
    refused(f"^{sentence}", sums.add, np.array(y), np.array(x))
    assert sums.n == 1
    for pair, block in before.items():
        np.testing.assert_array_equal(sums.blocks()[pair], block)


@pytest.mark.parametrize("kernel", COMPILED)
def test_a_state_outside_the_domain_counts_as_its_end(kernel):
    """Compiled kernels use coordinates as addresses: none may lie outside [-1, 1]."""
    need(kernel)
    basis, y = certirl.Chebyshev(25), np.array([1.0 + 1e-15, -7.0, 1e300, -1e300, 0.5])
    agree(joint(basis, basis, y, y[::-1], kernel), (np.clip(y, -1, 1), np.clip(y, -1, 1)[::-1]), 5)


def test_points_need_not_be_contiguous():
    basis, y = certirl.Fourier(11), points(999)
    plain, strided = joint(basis, basis, y, y), joint_sums([basis, basis])
    column = np.stack([y, np.full_like(y, 7.0)], axis=1)[:, :1]
    strided.add(column, column)
    for pair, block in plain.blocks().items():
        np.testing.assert_array_equal(strided.blocks()[pair], block)


def test_the_fastest_kernel_is_chosen_by_size():
    pytest.importorskip("numba")
    assert ProductSums(certirl.Fourier(5), certirl.Fourier(5)).kernel == "fused"
    assert ProductSums(certirl.Legendre(11), certirl.Legendre(11)).kernel == "fused"
    assert ProductSums(certirl.Fourier(25), certirl.Fourier(25)).kernel == "gridding"
    assert ProductSums(certirl.Fourier(5)).kernel == "fused"
    assert ProductSums(certirl.Fourier(101)).kernel == "gridding"
    assert joint_sums([certirl.Fourier(25), certirl.Fourier(5)], kernel="numpy").kernels == {"numpy"}
    assert joint_sums([certirl.product(certirl.Fourier(5), certirl.Legendre(5))]).kernels == {"numpy"}


def test_an_unknown_kernel_is_a_sentence():
    with pytest.raises(ValueError, match="kernel must be one of numpy, fused, gridding, got 'cuda'"):
        joint_sums([certirl.Fourier(5), certirl.Fourier(5)], kernel="cuda")


def test_without_numba_the_sums_are_made_with_numpy(monkeypatch):
    for name in ("fused", "gridding"):
        monkeypatch.delitem(sys.modules, f"certirl.kernels.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    for k in (5, 101):
        assert joint_sums([certirl.Fourier(k), certirl.Fourier(k)]).kernels == {"numpy"}
    for kernel in COMPILED:
        with pytest.raises(ImportError, match=r'pip install "certirl\[fast\]"'):
            joint_sums([certirl.Fourier(5), certirl.Fourier(5)], kernel=kernel)


def test_legendre_polynomials_are_averages_of_chebyshev_polynomials():
    weights, t = legendre_in_harmonics(60), np.linspace(-1, 1, 301)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-14)
    chebyshev = harmonic_table(t, 60, periodic=False)
    legendre = certirl.Legendre(60)
    np.testing.assert_allclose(weights @ chebyshev, legendre._reference_values(t) / legendre.sup()[:, None], atol=1e-12)


def test_the_factor_of_gridding_is_within_its_bound_everywhere():
    """|Σ_l κ(l − a) e^{2πiν(l − a)} / κ̂(ν) − 1| on a grid of ν ∈ [0, 1/6] and a ∈ [0, 1], and between by its slope.

    Between neighbours on the grid, a function rises above the larger by at most half a step times its slope; a whole
    difference in either direction allows for twice the slope that is seen. The table stands for the window.
    """
    pytest.importorskip("numba")
    from certirl.kernels import gridding

    table = gridding.TABLE.reshape(gridding.PARTS, -1, gridding.WIDTH)
    place = np.linspace(0.0, 1.0, 32 * gridding.PARTS + 1)
    part = np.minimum((place * gridding.PARTS).astype(int), gridding.PARTS - 1)
    powers = (place * gridding.PARTS - part)[:, None] ** np.arange(table.shape[1])
    weights = np.einsum("ap,apl->al", powers, table[part])
    distance = np.arange(gridding.WIDTH) - (gridding.WIDTH // 2 - 1) - place[:, None]
    np.testing.assert_allclose(weights, gridding.window(distance), atol=1e-11)
    nu = np.linspace(0.0, 1.0 / gridding.NODES_PER_PERIOD, 1001)
    spread = sum(w * np.exp(2j * np.pi * np.outer(nu, d)) for w, d in zip(weights.T, distance.T, strict=True))
    error = np.abs(spread / gridding.window_transform(nu)[:, None] - 1.0)
    between = np.abs(np.diff(error, axis=0)).max() + np.abs(np.diff(error, axis=1)).max()
    assert error.max() + between <= gridding.FACTOR_ERROR
    gain = gridding.window_transform(np.zeros(1)) / gridding.window_transform(nu[-1:])
    rounding = 2.0**-53 * gridding.FLUSH * gain[0] ** 2
    assert gain[0] < 1.51 and rounding < 2.2e-9
    assert 2 * (gridding.FACTOR_ERROR + 800 * gridding.ARCCOS_ERROR) + rounding <= gridding.ERROR


def test_a_last_coefficient_of_the_arc_cosine_that_is_zero_is_kept(monkeypatch):
    """On some processors it is, by rounding, and polynomials drop what is zero at their end."""
    gridding = pytest.importorskip("certirl.kernels.gridding")
    found = gridding.chebyshev.chebinterpolate
    monkeypatch.setattr(gridding.chebyshev, "chebinterpolate", lambda *args: found(*args) * (np.arange(20) < 19))
    assert len(gridding._arccos_coefficients()) == len(gridding._ARCCOS) == 20


def test_the_arc_cosine_is_within_its_stated_error():
    pytest.importorskip("numba")
    from certirl.kernels import gridding

    near = np.logspace(-17, 0, 20_001)
    t = np.concatenate([np.linspace(-1, 1, 100_001), 1 - near, near - 1, near, -near])
    out = np.empty_like(t)
    gridding.arccos_into(t, out, 1.0)
    assert np.abs(out - np.arccos(t)).max() <= gridding.ARCCOS_ERROR
    assert out.min() >= 0.0


def test_reading_and_clearing_the_grid_on_the_way_changes_nothing(monkeypatch):
    pytest.importorskip("numba")
    from certirl.kernels import gridding

    basis, y, x = certirl.Chebyshev(25), points(5000), points(5000, seed=1)
    plain = joint(basis, basis, y, x, "gridding")
    monkeypatch.setattr(gridding, "FLUSH", 700)
    flushed = joint(basis, basis, y, x, "gridding")
    for pair, block in plain.blocks().items():
        np.testing.assert_allclose(flushed.blocks()[pair], block, atol=1e-9)
