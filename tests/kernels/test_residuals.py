"""The compiled certificate pass says what NumPy says, is used where it can be, and rounds as `bounds` allows for."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import certirl
from certirl.data.simulator import draw
from certirl.data.transitions import Piece, Rows
from certirl.kernels.residuals import KERNELS, Guesses, residual_sums
from certirl.proof.bounds import sum_error
from certirl.proof.evidence import SUMS, Surrogate, _Sums, fit_surrogate, gather
from sizes import sizes

FAMILIES = [certirl.Legendre, certirl.Chebyshev, certirl.Fourier]
PROBLEM = certirl.problems.random_polynomial(seed=7)


def any_surrogate(columns, size, *, expert=1, seed=0):
    """Guesses at random: evidence is defined for any."""
    rng, ks = np.random.default_rng(seed), columns.size
    Z = rng.normal(size=(3, ks, ks)) / ks
    Z[:, 0] = np.eye(ks)[0]
    fits = rng.normal(size=(3, ks))
    reward = certirl.Reward(columns.resized(size), rng.normal(size=size))
    return Surrogate(columns, reward, 0.7, expert, fits[expert], fits, Z, -9.0, 9.0)


def any_pieces(sizes, *, paired, seed=0, domain=(-1.0, 1.0)):
    rng = np.random.default_rng(seed)
    for n in sizes:
        states, ends = rng.uniform(*domain, (n, 1)), rng.uniform(*domain, (3, n, 1))
        if paired:
            yield Piece((0, 1, 2), states, ends)
        else:
            yield from (Piece((a,), states if a else states[:-1], ends[a : a + 1, : n - (a == 0)]) for a in range(3))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("size", [1, *sizes(14, 4, 11)])
@pytest.mark.parametrize("columns", [1, 5, *sizes(11, 2, 3, 6)])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_kernels_say_the_same(family, columns, size, paired):
    pytest.importorskip("numba")
    narrow = family(columns).on(((2.0, 5.0),))
    for lengths in ([2], [7], [256], [300, 1, 513], [9001]):
        surrogate = any_surrogate(narrow, size, expert=len(lengths) % 3)
        stream = list(any_pieces(lengths if paired else [n + 1 for n in lengths], paired=paired, domain=(2.0, 5.0)))
        one, other = (gather(surrogate, stream, kernel=kernel) for kernel in KERNELS)
        assert one.paired == other.paired == paired
        for name in SUMS:
            a, b = getattr(one, name), getattr(other, name)
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-11 * np.abs(a).max())
        np.testing.assert_array_equal(other.wobble[:, 0], 0)


def test_small_residuals_keep_their_digits():
    """Where s' is nearly a function of s the squares are tiny; they are right to their own last digits."""
    pytest.importorskip("numba")
    columns = certirl.Legendre(5).on(((-1.0, 1.0),))
    s = np.random.default_rng(0).uniform(-1, 0.9, (5000, 1))
    Z = np.tile(np.eye(5), (3, 1, 1))
    reward = certirl.Reward(columns, np.arange(5.0))
    surrogate = Surrogate(columns, reward, 0.7, 0, np.zeros(5), np.tile(np.arange(5.0), (3, 1)), Z, -9.0, 9.0)
    stream = [Piece((a,), s, s[None] + 1e-9 * (1 + a)) for a in range(3)]
    numpy, fused = (gather(surrogate, stream, kernel=kernel) for kernel in KERNELS)
    expected = [((columns.derivative(s) @ np.arange(5.0)) ** 2).sum() * (1e-9 * (1 + a)) ** 2 / 2 for a in range(3)]
    for found in (numpy, fused):
        np.testing.assert_allclose([found.spread[a, a, 0, 0] for a in range(3)], expected, rtol=1e-5)


def wide_values(basis, t):
    """The functions in long double, from the coordinates t as they are."""
    t = np.asarray(t, dtype=np.longdouble)
    rows = [np.ones_like(t), t]
    if basis.kind == "Fourier":
        angle = 4 * np.arctan(np.longdouble(1.0)) * t
        rows = [np.ones_like(t)]
        for m in range(1, basis.size // 2 + 1):
            rows += [np.sin(m * angle), np.cos(m * angle)]
    for n in range(2, basis.size if basis.kind != "Fourier" else 0):
        if basis.kind == "Legendre":
            rows.append(((2 * n - 1) * t * rows[-1] - (n - 1) * rows[-2]) / np.longdouble(n))
        else:
            rows.append(2 * t * rows[-1] - rows[-2])
    return np.stack(rows[: basis.size]) * basis.sup().astype(np.longdouble)[:, None]


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="long double is no longer than double here")
@pytest.mark.parametrize("n", sizes(75_001, 150_001))
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("family", FAMILIES)
def test_rounding_stays_within_what_certificates_allow_for(family, kernel, n):
    """All states at one end, where recurrences are worst, all terms of one sign, V with a large constant."""
    if kernel == "fused":
        pytest.importorskip("numba")
    columns = family(11).on(((-1.0, 1.0),))
    rng = np.random.default_rng(0)
    s, ends = 1 - 1e-4 * rng.random((n, 1)), 1 - 1e-3 * rng.random((1, n, 1))
    fits = np.abs(rng.normal(size=(1, 12, 11)))
    fits[0, 0] = np.eye(11)[0]
    value = np.abs(rng.normal(size=11)) + 1e4 * np.eye(11)[0]
    guesses = Guesses(columns, columns, value, None, fits, None)
    sums = residual_sums(guesses, kernel=kernel)
    for start in range(0, n, 70_000):  # longer than a stretch
        sums.add(s[start : start + 70_000], ends[:, start : start + 70_000])
    gram, first, wobble, spread, reached = sums.sums()
    chi, y = wide_values(guesses.products, s[:, 0]), wide_values(columns, ends[0, :, 0])
    x, wide = chi[:11], fits[0].astype(np.longdouble)
    seen = np.vstack([y, value @ y])
    r, sizes = seen - wide @ x, np.abs(seen) + np.abs(wide) @ np.abs(x)
    total, squares = sizes.sum(axis=1)[:, None], (sizes**2).sum(axis=1)[:, None]
    u, peaks, tops = sum_error(np.array([n]), 11), columns.sup(), guesses.products.sup()
    assert (np.abs(gram - x @ x.T) <= u * n * np.outer(peaks, peaks)).all()
    assert (np.abs(reached[0] - y.sum(axis=1)) <= u * n * peaks).all()
    assert (np.abs(first[0] - r @ x.T) <= u * total * peaks).all()
    assert (np.abs(wobble[0] - r[:-1] ** 2 @ chi.T) <= u * squares[:-1] * tops).all()
    assert (np.abs(spread[0] - r[-1] ** 2 @ chi.T) <= u * squares[-1] * tops).all()


def kernels_of(surrogate, stream):
    sums = _Sums(surrogate)
    for piece in stream:
        sums.take(piece)
    return sums.kernels


def test_the_compiled_kernel_is_used_where_it_can_be(monkeypatch):
    pytest.importorskip("numba")
    columns = certirl.Legendre(4).on(((-1.0, 1.0),))
    surrogate, stream = any_surrogate(columns, 6), list(any_pieces([50], paired=True))
    assert kernels_of(surrogate, stream) == {"fused"}
    assert kernels_of(replace(surrogate, reward=lambda s: s), stream) == {"numpy"}
    moved = surrogate.Z.copy()
    moved[0, 0, 1] = 0.1  # constants are not mapped to themselves: E_1 is wanted
    assert kernels_of(replace(surrogate, Z=moved), stream) == {"numpy"}
    with pytest.raises(ValueError, match="expansions in the columns' family"):
        gather(replace(surrogate, reward=lambda s: s), stream, kernel="fused")
    with pytest.raises(ValueError, match="kernel must be one of numpy, fused, got 'cuda'"):
        gather(surrogate, stream, kernel="cuda")
    used = []
    monkeypatch.setattr(
        "certirl.proof.evidence.residual_sums", lambda g, kernel: used.append(kernel) or residual_sums(g, kernel=kernel)
    )
    monkeypatch.setattr("certirl.data.moments.LITTLE", 12_000)  # function values: 1,000 rows of 3 · 4 functions
    states, ends = np.zeros((1000, 1)), np.zeros((1, 1000, 1))
    for n in (999, 1000):
        chunk = Rows(states[:n], np.zeros(n, dtype=int), ends[0, :n], 8192)
        gather(surrogate, SimpleNamespace(chunks=lambda chunk=chunk: [chunk]))
    assert used == ["numpy", None]


def test_without_numba_numpy_does_it(monkeypatch):
    for name in ("fused", "fused_residuals"):
        monkeypatch.delitem(sys.modules, f"certirl.kernels.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    surrogate, stream = any_surrogate(certirl.Legendre(4).on(((-1.0, 1.0),)), 6), list(any_pieces([50], paired=True))
    assert kernels_of(surrogate, stream) == {"numpy"}
    with pytest.raises(ImportError, match=r'pip install "certirl\[fast\]"'):
        gather(surrogate, stream, kernel="fused")


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_data_get_a_sentence(kernel):
    if kernel == "fused":
        pytest.importorskip("numba")
    surrogate, (piece,) = any_surrogate(certirl.Legendre(4).on(((-1.0, 1.0),)), 6), any_pieces([50], paired=True)
    for bad in (np.nan, np.inf):
        ends = piece.next_states.copy()
        ends[1, 7] = bad
        with pytest.raises(ValueError, match="states must be finite: row 7"):
            gather(surrogate, [Piece((0,), piece.states, ends[1:2])], kernel=kernel)
        with pytest.raises(ValueError, match="states must be finite: row 7"):
            gather(surrogate, [Piece((0,), ends[1], piece.next_states[:1])], kernel=kernel)
    with pytest.raises(ValueError):
        gather(surrogate, [Piece((0,), piece.states, piece.next_states[:1, :30])], kernel=kernel)


def test_threads_do_not_disturb_each_other():
    columns = certirl.Fourier(5).on(PROBLEM.domain)
    reward = certirl.Reward(columns, np.arange(5.0))
    stream = draw(PROBLEM, columns, 200_000, 0, design=True, paired=True)
    surrogate = fit_surrogate(
        reward, draw(PROBLEM, columns, 5000, 1, paired=True), columns=columns, n_actions=3, discount=0.7, expert=0
    )
    from certirl.ground.work import on

    found = []
    for workers in (1, 3):
        with on(workers):
            found.append(gather(surrogate, stream))
    for name in SUMS:
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))
