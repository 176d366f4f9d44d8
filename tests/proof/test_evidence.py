"""The certificate's sums are what they are defined to be: a dense computation, one product at a time, says the same."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl.data.simulator import draw
from certirl.data.transitions import CHUNK, Piece
from certirl.functions.products import linearisation, product_basis
from certirl.proof.evidence import fit_surrogate, gather, split_value
from sizes import sizes

FAMILIES = [certirl.Legendre, certirl.Chebyshev, certirl.Fourier]
PROBLEM = certirl.problems.random_polynomial(seed=7)
EXPERT = 1


def plain_sums(surrogate, stream):
    """Every field of the evidence straight from its definition."""
    A, ks = len(surrogate.Z), surrogate.columns.size
    sums = {
        "counts": np.zeros(A, dtype=np.int64),
        "gram": np.zeros((A, ks, ks)),
        "surprise": np.zeros((A, ks)),
        "spread": np.zeros((A, A, ks, ks)),
        "drift": np.zeros((A, ks, ks)),
        "wobble": np.zeros((A, ks, ks, ks)),
        "reached": np.zeros((A, split_value(surrogate)[0].size)),
    }
    for actions, states, next_states in stream:
        x = surrogate.columns.values(states)
        xx = x[:, :, None] * x[:, None, :]
        ends = dict(zip(actions, next_states, strict=True))
        Y = {c: surrogate.value(s) - x @ surrogate.fits[c] for c, s in ends.items()}
        E = {c: surrogate.columns.values(s) - x @ surrogate.Z[c].T for c, s in ends.items()}
        for c in actions:
            contrast = E[EXPERT] - E[c] if len(actions) == A and c != EXPERT else E[c]
            sums["counts"][c] += len(x)
            sums["reached"][c] += split_value(surrogate)[0].values(ends[c]).sum(axis=0)
            sums["gram"][c] += xx.sum(axis=0)
            sums["surprise"][c] += x.T @ Y[c]
            sums["drift"][c] += E[c].T @ x
            sums["wobble"][c] += np.einsum("ni,njl->ijl", contrast**2, xx)
            for d in actions:
                sums["spread"][c, d] += np.einsum("n,njl->jl", Y[c] * Y[d], xx)
    return sums


def surrogate_of(columns, stream, reward):
    return fit_surrogate(
        reward, stream, columns=columns, n_actions=3, discount=0.7, expert=EXPERT, reward_range=(-9.0, 9.0)
    )


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("columns", [1, *sizes(3, 2, 8, 11)])
@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_equals_the_dense_sums(family, columns, paired):
    """More rows than columns, fewer, and a reward that is no expansion; uneven pieces; agreement to rounding."""
    narrow = family(columns).on(PROBLEM.domain)
    training, stream = (list(draw(PROBLEM, narrow, CHUNK + 700, i, design=True, paired=paired)) for i in range(2))
    rng = np.random.default_rng(columns)
    rewards = [certirl.Reward(narrow.resized(k), rng.normal(size=k)) for k in (5, 13)]
    for reward in (*rewards, lambda s: np.where(s > 0.3, 1.0, -2.0), lambda s: np.cos(3 * s[:, 0])):
        surrogate = surrogate_of(narrow, training, reward)
        sums = plain_sums(surrogate, stream)
        for kernel in ("numpy", None):
            found = gather(surrogate, iter(stream), kernel=kernel)
            for name, plain in sums.items():
                np.testing.assert_allclose(getattr(found, name), plain, rtol=0, atol=1e-12 * np.abs(plain).max())
            assert found.paired == paired
            assert np.abs(found.spread - found.spread.swapaxes(-1, -2)).max() == 0


@pytest.mark.parametrize("kernel", ["numpy", None])
def test_errors_are_small_against_every_entry_that_matters(kernel):
    """Relative to √(S_ii S_jj) no entry of a second-order sum is off by more than rounding, corners included."""
    narrow = certirl.Legendre(11).on(PROBLEM.domain)
    stream = list(draw(PROBLEM, narrow, 20_000, 3, design=True, paired=True))
    surrogate = surrogate_of(narrow, stream, certirl.Reward(narrow, np.random.default_rng(0).normal(size=11)))
    found, plain = gather(surrogate, stream, kernel=kernel), plain_sums(surrogate, stream)
    for got, sums in (
        (found.spread[0, 0], plain["spread"][0, 0]),
        *zip(found.wobble[2, 1:], plain["wobble"][2, 1:], strict=True),
    ):
        scale = np.sqrt(np.diag(sums))
        assert (np.abs(got - sums) / np.outer(scale, scale)).max() < 1e-13
    np.testing.assert_array_equal(found.wobble[:, 0], 0)  # constants are mapped to themselves


@pytest.mark.parametrize("size", range(1, 14))
@pytest.mark.parametrize("family", FAMILIES)
def test_products_lie_in_the_larger_basis(family, size):
    basis = family(size).on(((2.0, 5.0),))
    wide, s = product_basis(basis), np.random.default_rng(0).uniform(2.0, 5.0, 400)
    phi = basis.values(s)
    again = np.einsum("nm,mij->nij", wide.values(s), linearisation(basis))
    scale = np.outer(basis.sup(), basis.sup())
    assert (np.abs(again - phi[:, :, None] * phi[:, None, :]) / scale).max() < 2e-13


@pytest.mark.parametrize("family", FAMILIES)
def test_lifting_magnifies_rounding_by_2k_less_one_at_most(family):
    """Σ|c_m| sup|χ_m| ≤ (2k − 1) sup|p·x| sup|q·x| for the coefficients c of (p·x)(q·x): certificate.md, section 9."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 6, 11):
        basis = family(size).on(((-1.0, 1.0),))
        phi, tensor, peaks = basis.values(basis.grid(2001)), linearisation(basis), product_basis(basis).sup()
        for p, q in rng.normal(size=(200, 2, size)):
            most = np.abs(phi @ p).max() * np.abs(phi @ q).max()
            assert np.abs(np.einsum("i,mij,j->m", p, tensor, q)) @ peaks <= (2 * size - 1) * most * (1 + 1e-9)


def test_memory_does_not_grow_with_the_data():
    import tracemalloc

    narrow = certirl.Legendre(11).on(PROBLEM.domain)
    (piece,) = draw(PROBLEM, narrow, CHUNK, 0, design=True, paired=True)
    surrogate = surrogate_of(narrow, [piece], certirl.Reward(narrow, np.ones(11)))
    peaks = []
    for repeats in (2, 20):
        tracemalloc.start()
        gather(surrogate, (piece for _ in range(repeats)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] and peaks[1] < 8e6


def test_wrong_data_get_a_sentence():
    narrow = certirl.Legendre(3).on(PROBLEM.domain)
    together = list(draw(PROBLEM, narrow, 500, 0, paired=True))
    apart = list(draw(PROBLEM, narrow, 500, 0))
    surrogate = surrogate_of(narrow, together, lambda s: s)
    with pytest.raises(ValueError, match="weighed separately"):
        gather(surrogate, together + apart)
    with pytest.raises(ValueError, match="all of them in order"):
        gather(surrogate, [Piece((0, 1), together[0].states, together[0].next_states[:2])])
    with pytest.raises(ValueError, match="finite at every state"):
        gather(replace(surrogate, reward=lambda s: np.where(s > 0.9, np.nan, s)), together)
