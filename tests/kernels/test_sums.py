"""Sums of products of basis functions: every kernel gives the same, within the error it states."""

import sys

import numpy as np
import pytest

import certirl
from certirl.functions import harmonics as _harmonics
from certirl.kernels import blocked as _blocked
from certirl.kernels.sums import KERNELS, pair_sums, self_sums

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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_agrees_with_the_dense_computation_within_its_stated_error(family, kernel):
    need(kernel)
    y, x = points(3000), points(3000, seed=1)
    for k, ks in SIZES:
        rows, columns = family(k), family(ks)
        sums = pair_sums(rows, columns, kernel=kernel)
        sums.add(y, x)
        assert sums.kernel == kernel and sums.n == y.size
        assert relative(sums.sums(), direct(rows, columns, y, x), y.size, rows, columns) <= sums.error
        gram = self_sums(rows, kernel=kernel)
        gram.add(y)
        assert (gram.sums() == gram.sums().T).all()
        assert relative(gram.sums(), direct(rows, rows, y, y), y.size, rows, rows) <= gram.error


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_and_columns_may_be_of_different_families(kernel):
    need(kernel)
    rows, columns, y, x = certirl.Fourier(8), certirl.Legendre(6), points(500), points(500, seed=1)
    sums = pair_sums(rows, columns, kernel=kernel)
    sums.add(y, x)
    assert relative(sums.sums(), direct(rows, columns, y, x), y.size, rows, columns) <= sums.error


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_single_pair_and_equal_pairs_stay_within_the_stated_error(family, kernel):
    need(kernel)
    basis = family(25)
    rng = np.random.default_rng(2)
    for t, u in [(-1.0, 1.0), (1.0, 1.0), (0.0, -0.0), *rng.uniform(-1, 1, (20, 2))]:
        right = direct(basis, basis, np.array([t]), np.array([u]))
        for n in (1, 1000):
            sums = pair_sums(basis, basis, kernel=kernel)
            sums.add(np.full(n, t), np.full(n, u))
            assert relative(sums.sums(), n * right, n, basis, basis) <= sums.error


@pytest.mark.parametrize("kernel", KERNELS)
def test_adding_in_parts_equals_adding_at_once(kernel):
    need(kernel)
    basis, y, x = certirl.Legendre(11), points(70_000), points(70_000, seed=1)
    whole, parts = pair_sums(basis, basis, kernel=kernel), pair_sums(basis, basis, kernel=kernel)
    one, more = self_sums(basis, kernel=kernel), self_sums(basis, kernel=kernel)
    whole.add(y, x)
    one.add(x)
    for start, stop in ((0, 0), (0, 1), (1, 300), (300, 20_000), (20_000, None)):
        parts.add(y[start:stop], x[start:stop])
        more.add(x[start:stop])
    assert whole.n == parts.n == y.size
    np.testing.assert_allclose(parts.sums(), whole.sums(), atol=1e-13 * y.size)
    np.testing.assert_allclose(more.sums(), one.sums(), atol=1e-13 * y.size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_same_calls_give_the_same_bits_and_reading_changes_nothing(kernel):
    need(kernel)
    basis, y, x = certirl.Fourier(11), points(5000), points(5000, seed=1)
    first, second = pair_sums(basis, basis, kernel=kernel), pair_sums(basis, basis, kernel=kernel)
    for sums in (first, second):
        sums.add(y, x)
    first.sums()[:] = 0.0
    for sums in (first, second):
        sums.add(x, y)
    assert (first.sums() == second.sums()).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("y", "x", "sentence"),
    [
        ([0.0, np.nan], [0.0, 0.0], r"y must be coordinates in \[-1, 1\]: row 1 is nan"),
        ([0.0, 0.0], [np.inf, 0.0], r"x must be coordinates in \[-1, 1\]: row 0 is inf"),
        ([0.0, 1.0 + 1e-15], [0.0, 0.0], r"y must be coordinates in \[-1, 1\]: row 1 is 1\.0"),
        ([0.0, -2.0], [0.0, 0.0], r"y must be coordinates in \[-1, 1\]: row 1 is -2\.0"),
        ([0.0], [0.0, 0.0], "y and x must be equally long, got 1 and 2"),
        ([[0.0]], [0.0], r"y must have shape \[n\], got \[1, 1\]"),
        (0.0, [0.0], r"y must have shape \[n\], got \[\]"),
        (["a"], [0.0], "y must be numbers, got list"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(kernel, y, x, sentence):
    need(kernel)
    basis = certirl.Legendre(5)
    sums = pair_sums(basis, basis, kernel=kernel)
    sums.add([0.5], [0.25])
    before = sums.sums()
    with pytest.raises(ValueError, match=f"^{sentence}"):
        sums.add(y, x)
    assert sums.n == 1 and (sums.sums() == before).all()


def test_points_need_not_be_contiguous():
    basis, y = certirl.Fourier(11), points(999)
    plain, strided = self_sums(basis), self_sums(basis)
    plain.add(y)
    strided.add(np.stack([y, np.full_like(y, 7.0)], axis=1)[:, 0])
    assert (plain.sums() == strided.sums()).all()


def test_the_fastest_kernel_is_chosen_by_size():
    pytest.importorskip("numba")
    assert pair_sums(certirl.Fourier(5), certirl.Fourier(5)).kernel == "fused"
    assert pair_sums(certirl.Legendre(11), certirl.Legendre(11)).kernel == "fused"
    assert pair_sums(certirl.Fourier(25), certirl.Fourier(25)).kernel == "gridding"
    assert self_sums(certirl.Fourier(5)).kernel == "fused"
    assert self_sums(certirl.Fourier(101)).kernel == "gridding"
    assert pair_sums(certirl.Fourier(25), certirl.Fourier(25), kernel="numpy").kernel == "numpy"


def test_an_unknown_kernel_is_a_sentence():
    with pytest.raises(ValueError, match="kernel must be one of numpy, fused, gridding, got 'cuda'"):
        pair_sums(certirl.Fourier(5), certirl.Fourier(5), kernel="cuda")


def test_without_numba_the_sums_are_made_with_numpy(monkeypatch):
    for name in ("fused", "spreading", "gridding"):
        monkeypatch.delitem(sys.modules, f"certirl.kernels.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    for k in (5, 101):
        assert pair_sums(certirl.Fourier(k), certirl.Fourier(k)).kernel == "numpy"
        assert self_sums(certirl.Fourier(k)).kernel == "numpy"
    for kernel in ("fused", "gridding"):
        with pytest.raises(ImportError, match=r'pip install "certirl\[fast\]"'):
            pair_sums(certirl.Fourier(5), certirl.Fourier(5), kernel=kernel)


def test_legendre_polynomials_are_averages_of_chebyshev_polynomials():
    weights, t = _harmonics.connection(60), np.linspace(-1, 1, 301)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-14)
    chebyshev = _blocked.Side(60, False, t.size).values(t)
    legendre = certirl.Legendre(60)
    np.testing.assert_allclose(weights @ chebyshev, legendre._reference_values(t) / legendre.sup()[:, None], atol=1e-12)


def test_the_factor_of_gridding_is_within_its_bound_everywhere():
    """|Σ_l κ(l − a) e^{2πiν(l − a)} / κ̂(ν) − 1| on a grid of ν ∈ [0, 1/6] and a ∈ [0, 1], and between by its slope.

    Between neighbours on the grid, a function rises above the larger by at most half a step times its slope; a whole
    difference in either direction allows for twice the slope that is seen. The table stands for the window.
    """
    pytest.importorskip("numba")
    from certirl.kernels import gridding as _gridding
    from certirl.kernels import spreading as _spread

    table = _spread.TABLE.reshape(_spread.PARTS, -1, _spread.WIDTH)
    place = np.linspace(0.0, 1.0, 32 * _spread.PARTS + 1)
    part = np.minimum((place * _spread.PARTS).astype(int), _spread.PARTS - 1)
    powers = (place * _spread.PARTS - part)[:, None] ** np.arange(table.shape[1])
    weights = np.einsum("ap,apl->al", powers, table[part])
    distance = np.arange(_spread.WIDTH) - (_spread.WIDTH // 2 - 1) - place[:, None]
    np.testing.assert_allclose(weights, _spread.window(distance), atol=1e-11)
    nu = np.linspace(0.0, 1.0 / _gridding.NODES_PER_PERIOD, 1001)
    spread = sum(w * np.exp(2j * np.pi * np.outer(nu, d)) for w, d in zip(weights.T, distance.T, strict=True))
    error = np.abs(spread / _spread.window_transform(nu)[:, None] - 1.0)
    between = np.abs(np.diff(error, axis=0)).max() + np.abs(np.diff(error, axis=1)).max()
    assert error.max() + between <= _gridding.FACTOR_ERROR
    gain = _spread.window_transform(np.zeros(1)) / _spread.window_transform(nu[-1:])
    rounding = 2.0**-53 * _gridding.FLUSH * gain[0] ** 2
    assert gain[0] < 1.51 and rounding < 2.2e-9
    assert 2 * (_gridding.FACTOR_ERROR + 800 * _spread.ARCCOS_ERROR) + rounding <= _gridding.ERROR


def test_a_last_coefficient_of_the_arc_cosine_that_is_zero_is_kept(monkeypatch):
    """On some processors it is, by rounding, and polynomials drop what is zero at their end."""
    _spread = pytest.importorskip("certirl.kernels.spreading")
    found = _spread.chebyshev.chebinterpolate
    monkeypatch.setattr(_spread.chebyshev, "chebinterpolate", lambda *args: found(*args) * (np.arange(20) < 19))
    assert len(_spread._arccos_coefficients()) == len(_spread._ARCCOS) == 20


def test_the_arc_cosine_is_within_its_stated_error():
    pytest.importorskip("numba")
    from certirl.kernels import spreading as _spread

    near = np.logspace(-17, 0, 20_001)
    t = np.concatenate([np.linspace(-1, 1, 100_001), 1 - near, near - 1, near, -near])
    out = np.empty_like(t)
    _spread.arccos_into(t, out, 1.0)
    assert np.abs(out - np.arccos(t)).max() <= _spread.ARCCOS_ERROR
    assert out.min() >= 0.0


def test_reading_and_clearing_the_grid_on_the_way_changes_nothing(monkeypatch):
    pytest.importorskip("numba")
    from certirl.kernels import gridding as _gridding

    basis, y, x = certirl.Chebyshev(25), points(5000), points(5000, seed=1)
    plain, one = pair_sums(basis, basis, kernel="gridding"), self_sums(basis, kernel="gridding")
    plain.add(y, x)
    one.add(x)
    monkeypatch.setattr(_gridding, "FLUSH", 700)
    flushed, more = pair_sums(basis, basis, kernel="gridding"), self_sums(basis, kernel="gridding")
    flushed.add(y, x)
    more.add(x)
    np.testing.assert_allclose(flushed.sums(), plain.sums(), atol=1e-9)
    np.testing.assert_allclose(more.sums(), one.sums(), atol=1e-9)


def test_an_accumulator_of_401_functions_is_small():
    pytest.importorskip("numba")
    sums = pair_sums(certirl.Fourier(401), certirl.Fourier(401))._sums
    held = sum(value.nbytes for value in vars(sums).values() if isinstance(value, np.ndarray))
    assert sums.__module__.endswith("gridding") and held < 14e6
