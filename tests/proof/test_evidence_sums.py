"""The sums of a certificate agree with a dense computation of their definitions, one product at a time."""

import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest

import certirl
from certirl import Chebyshev, Fourier, Legendre, product
from certirl.data.simulator import draw
from certirl.data.transitions import CHUNK, Piece
from certirl.proof.case import Case
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates
from sizes import sizes

PROBLEM = certirl.problems.random_polynomial(seed=7)
SQUARE = certirl.problems.whirl()


def middle(states):
    """An expert that switches."""
    return np.where(np.abs(states[:, 0]) < 0.4, 1, 2 * (states[:, 0] > 0))


def mixing(states):
    """An expert that mixes two actions on one side."""
    return np.where(states[:, :1] > 0.1, [0.25, 0.75, 0.0], [0.0, 1.0, 0.0])


def surrogate_of(problem, columns, expert, reward, *, paired, samples=400, **changes):
    case = Case.of(expert, columns, n_actions=3, discount=0.7, tail=0.0)
    ((found,), _) = fit_surrogates(case, reward, draw(problem, columns, samples, 0, paired=paired), pointwise=False)
    return replace(found, **changes)


def plain_sums(s, stream):
    """Every field of the evidence straight from its definition, as averages of products: ``x xᵀ`` in place of χ."""
    A, k = s.fits.shape
    sums = dict.fromkeys(("gram", "residual", "cross", "operator", "visit"), 0.0)
    sums |= {"counts": np.zeros(A), "residuals": np.zeros((A, k)), "operators": np.zeros((A, s.Z.shape[1], k))}
    sums |= {"visits": np.zeros((A, len(s.widths), k))}
    pairs = s.pairs(len(stream[0].actions) > 1)
    grams, moments = np.zeros((A, k, k)), np.zeros((len(pairs), 2 + s.directions, k, k))
    spread = np.zeros((A, len(s.widths), k, k))
    for piece in stream:
        x = s.frame.values(piece.states)
        xx = x[:, :, None] * x[:, None, :]
        Y, E = {}, {}
        for c, ends in zip(piece.actions, piece.next_states, strict=True):
            Y[c] = s.value(ends) - x @ s.fits[c]
            raw = s.pieces(ends) - x @ s.Z[c].T
            E[c] = raw @ s.mix[1:].T
            O = s.tents(ends).T - x @ s.tent_fits[c].T  # noqa: E741
            sums["counts"][c] += len(x)
            grams[c] += xx.sum(axis=0)
            sums["residuals"][c] += x.T @ Y[c]
            sums["operators"][c] += raw.T @ x
            sums["visits"][c] += O.T @ x
            spread[c] += np.einsum("nw,nij->wij", O**2, xx)
        for place, (c, d) in enumerate(pairs):
            if c in Y and d in Y:
                forms = [Y[c] * Y[d], (E[c] * E[d]).sum(axis=1)]
                forms += [(Y[c] * E[d][:, i] + E[c][:, i] * Y[d]) / 2 for i in range(s.directions)]
                moments[place] += np.einsum("fn,nij->fij", np.stack(forms), xx)
    return sums, grams, moments, spread


def compare(s, stream):
    (found,) = gather([s], stream)
    sums, grams, moments, spread = plain_sums(s, stream)
    lifted = s.frame.lifted
    assert (found.counts == sums["counts"]).all()
    for got, plain in (
        (lifted(found.gram), grams),
        (found.residuals, sums["residuals"]),
        (found.operator_residuals, sums["operators"]),
        (found.visits, sums["visits"]),
        (lifted(found.visit_moments), spread),
        (lifted(found.residual_moments), moments[:, 0]),
        (lifted(found.operator_moments), moments[:, 1]),
        (lifted(found.cross_moments), moments[:, 2:]),
    ):
        assert got.shape == plain.shape
        scale = np.abs(grams).max() * (1 + np.abs(s.mix).sum(axis=1).max()) ** 2
        np.testing.assert_allclose(got, plain, rtol=0, atol=1e-11 * scale)
    return found


@pytest.mark.thinned(5)
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("expert", [1, middle, mixing], ids=["constant", "switching", "mixing"])
@pytest.mark.parametrize("columns", [Legendre(1), Legendre(4), *sizes(Fourier(5), Chebyshev(8), Fourier(4))], ids=str)
def test_evidence_equals_the_dense_sums(columns, expert, paired):
    """More functions of the reward than columns, fewer, and a reward that is no expansion; agreement to rounding."""
    narrow = columns.on(PROBLEM.domain)
    rng = np.random.default_rng(columns.size)
    rewards = [certirl.Reward(narrow.resized(k), rng.normal(size=k)) for k in (3, 11)]
    stream = list(draw(PROBLEM, narrow, 900, 1, design=True, paired=paired))
    for reward in (*rewards, lambda s: np.where(s > 0.3, 1.0, -2.0), lambda s: np.cos(3 * s[:, 0])):
        found = compare(surrogate_of(PROBLEM, narrow, expert, reward, paired=paired), stream)
        assert found.paired == paired


@pytest.mark.thinned(3)
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("expert", [0, middle], ids=["constant", "switching"])
def test_evidence_on_a_box_equals_the_dense_sums(expert, paired):
    columns = product(Legendre(4), Legendre(3)).on(SQUARE.domain)
    reward = certirl.Reward(columns.resized(10), np.random.default_rng(0).normal(size=10))
    stream = list(draw(SQUARE, columns, 700, 1, design=True, paired=paired))
    for crossed in (True, False):
        s = surrogate_of(SQUARE, columns, expert, reward, paired=paired)
        whole = compare(replace(s, directions=s.Z.shape[1] - 1 if crossed else 0), stream)
    (lean,) = gather([replace(s, directions=0, noise=s.noise[:, :1])], stream)
    assert lean.operator_moments.shape == (0, *s.frame.wide)
    for name in ("gram", "residuals", "residual_moments", "operator_residuals", "visits", "visit_moments", "reached"):
        np.testing.assert_allclose(getattr(lean, name), getattr(whole, name), rtol=1e-12, atol=1e-9)


def test_reached_sums_are_those_of_the_rewards_functions():
    columns = Legendre(3).on(PROBLEM.domain)
    reward = certirl.Reward(columns.resized(7), np.arange(7.0))
    for paired in (True, False):
        stream = list(draw(PROBLEM, columns, 300, 1, paired=paired))
        (found,) = gather([surrogate_of(PROBLEM, columns, 0, reward, paired=paired)], stream)
        for c in range(3):
            ends = [e for piece in stream for a, e in zip(piece.actions, piece.next_states, strict=True) if a == c]
            assert found.reached[c] == pytest.approx(reward.basis.values(np.concatenate(ends)).sum(axis=0))


def test_several_surrogates_look_at_their_own_coordinates_in_one_walk():
    problem = certirl.problems.factorised(seed=0, components=3)
    columns = Legendre(3).on(((-1.0, 1.0),))
    stream = list(draw(problem, product(*[Legendre(3)] * 3).on(problem.domain), 400, 0, paired=True))
    reward = certirl.Reward(columns.resized(5), np.arange(5.0))
    alone = [[Piece(p.actions, p.states[:, [j]], p.next_states[..., [j]]) for p in stream] for j in range(3)]
    case = Case.of(0, columns, n_actions=3, discount=0.7, tail=0.0)
    surrogates = [fit_surrogates(case, reward, own)[0][0] for own in alone]
    together = gather([replace(s, coordinates=(j,)) for j, s in enumerate(surrogates)], stream)
    for s, own, found in zip(surrogates, alone, together, strict=True):
        (by_itself,) = gather([s], own)
        for field in fields(found):
            assert np.array_equal(getattr(found, field.name), getattr(by_itself, field.name)), field.name


@pytest.mark.parametrize("expert", [0, middle], ids=["constant", "switching"])
def test_constants_have_no_residual(expert):
    """P̂_c 1 = 1, so that the first of the functions f_i drops out."""
    columns = Legendre(6).on(PROBLEM.domain)
    s = surrogate_of(PROBLEM, columns, expert, lambda s: s[:, 0] ** 2, paired=True)
    (found,) = gather([s], draw(PROBLEM, columns, 20_000, 1, paired=True))
    assert np.abs(s.mix[0] @ found.operator_residuals).max() < 1e-7


def test_memory_does_not_grow_with_the_data():
    columns = Legendre(11).on(PROBLEM.domain)
    (piece,) = draw(PROBLEM, columns, CHUNK, 0, design=True, paired=True)
    s = surrogate_of(PROBLEM, columns, 0, certirl.Reward(columns, np.ones(11)), paired=True)
    peaks = []
    for repeats in (2, 20):
        tracemalloc.start()
        gather([s], (piece for _ in range(repeats)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] and peaks[1] < 2e7


def test_evidence_adds_up_and_keeps_pairs_apart():
    columns = Legendre(3).on(PROBLEM.domain)
    for expert in (0, middle):
        s = surrogate_of(PROBLEM, columns, expert, lambda s: s[:, 0], paired=True)
        parts = [list(draw(PROBLEM, columns, 500, seed, paired=True)) for seed in (1, 2)]
        (whole,), *each = (gather([s], own) for own in (parts[0] + parts[1], *parts))
        added = each[0][0] + each[1][0]
        for field in fields(whole):
            assert np.allclose(getattr(added, field.name), getattr(whole, field.name), atol=1e-9), field.name
        (alone,) = gather([s], draw(PROBLEM, columns, 500, 1))
        assert not alone.paired and len(alone.residual_moments) == 3
        with pytest.raises(ValueError, match="certified separately"):
            whole + alone


def test_wrong_data_get_a_sentence():
    columns = Legendre(3).on(PROBLEM.domain)
    together, apart = (list(draw(PROBLEM, columns, 500, 0, paired=paired)) for paired in (True, False))
    s = surrogate_of(PROBLEM, columns, 0, lambda s: s[:, 0], paired=True)
    with pytest.raises(ValueError, match="certified separately"):
        gather([s], together + apart)
    with pytest.raises(ValueError, match="one action or with all 3 in order"):
        gather([s], [Piece((0, 1), together[0].states, together[0].next_states[:2])])
    with pytest.raises(ValueError, match="action 2 was never tried"):
        gather([s], [piece for piece in apart if 2 not in piece.actions])


def test_training_data_in_the_order_of_the_actions_are_used_of_every_action(monkeypatch):
    monkeypatch.setattr("certirl.proof.training.FORECAST", 200)
    columns = Legendre(3).on(PROBLEM.domain)
    pieces = [piece for seed in range(5) for piece in draw(PROBLEM, columns, 100, seed)]
    case = Case.of(0, columns, n_actions=3, discount=0.7, tail=0.0)
    fit = fit_surrogates(case, lambda s: s[:, 0], sorted(pieces, key=lambda piece: piece.actions))
    np.testing.assert_array_equal(fit.evidence[0].counts, 200)


def test_sums_determine_the_columns_only_if_those_of_every_action_do():
    columns, rng = Legendre(3).on(PROBLEM.domain), np.random.default_rng(0)
    case = Case.of(0, columns, n_actions=3, discount=0.7, tail=0.0)
    surrogates, _ = fit_surrogates(case, lambda s: s[:, 0], draw(PROBLEM, columns, 400, 0, paired=True))
    states, actions = rng.uniform(-1, 1, (300, 1)), np.arange(300) % 3
    for spread, determined in ((1.0, True), (0.0, False)):  # action 2 is tried at one state alone
        states[actions == 2] *= spread
        log = certirl.Transitions(states, actions, states, domain=PROBLEM.domain)
        (sums,) = gather(surrogates, log)
        assert sums.determine(columns) == determined
