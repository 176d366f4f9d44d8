"""Certificates on boxes: the algebra is exact, the bounds hold, and nothing false is certified."""

from dataclasses import replace

import numpy as np
import pytest

import certirl
from certirl import Chebyshev, Fourier, Legendre, Reward, problems, product
from certirl.checker.files import check
from certirl.data.simulator import draw
from certirl.functions.box_products import Mesh, dense_mesh, level, tensor_sums
from certirl.functions.inequalities import (
    EVENTS,
    SELF_EVENTS,
    empirical_matrix_bernstein,
    empirical_vector_bernstein,
    log_term,
    self_bounded,
    spread_points,
)
from certirl.ground.domain import mesh
from certirl.proof.box_bounds import lower_bounds_on_box
from certirl.proof.box_evidence import BoxEvidence, gather_on_box
from certirl.proof.evidence import Surrogate, fit_surrogate
from sizes import sizes

BOX = ((0.0, 2.0), (1.0, 4.0), (-1.0, 1.0))
BASES = {
    "total": product(Legendre(6), Legendre(4)),
    "a circle": product(Fourier(5), Legendre(4)),
    "full, three": product(Fourier(3), Chebyshev(3), Legendre(3), index="full"),
    "hyperbolic": product(Legendre(9), Chebyshev(7), index="hyperbolic"),
}


@pytest.fixture(params=BASES, ids=str)
def columns(request):
    basis = BASES[request.param]
    return basis.on(BOX[: basis.dimension])


def test_level_functions_span_the_columns_and_are_orthonormal_where_states_are_drawn(columns):
    rng, frame = np.random.default_rng(0), level(columns)
    states = columns.design(60_000, rng)
    values = frame.values(states)
    np.testing.assert_allclose(values @ frame.change.T, columns.values(states), atol=1e-12)
    np.testing.assert_allclose(frame.of_tables(frame.tables(states[:50])).T, values[:50], atol=1e-12)
    assert np.abs(values.T @ values / len(states) - np.eye(columns.size)).max() < 0.1
    np.testing.assert_allclose(values[:, 0], 1.0)


def test_products_of_level_functions_follow_from_the_tensor(columns):
    rng, frame = np.random.default_rng(1), level(columns)
    states, weights = columns.sample(300, rng), rng.normal(size=(2, 300))
    sums, x = tensor_sums(frame.tables(states), weights), frame.values(states)
    for own, weight in zip(sums, weights, strict=True):
        np.testing.assert_allclose(frame.lifted(own), (x * weight[:, None]).T @ x, atol=1e-10)


def test_a_mesh_bounds_expansions_and_their_products_everywhere(columns):
    rng, places = np.random.default_rng(2), dense_mesh(columns, 3_000)
    phi = columns.values(places.states)
    fine = columns.values(
        mesh([part.grid(61)[:, 0] for part in columns.parts]) if columns.dimension == 2 else columns.sample(40_000, rng)
    )
    assert 1 < places.factor < places.double < 3
    for _ in range(40):
        one, other = rng.normal(size=(2, columns.size))
        assert np.abs(fine @ one).max() <= places.factor * np.abs(phi @ one).max()
        assert np.abs((fine @ one) * (fine @ other)).max() <= places.double * np.abs((phi @ one) * (phi @ other)).max()


def test_the_inflation_is_nearly_reached():
    """A product of Chebyshev polynomials that a coarse mesh catches between its extrema."""
    columns = product(Chebyshev(5), Chebyshev(5))
    places = Mesh(columns, (8, 8))
    worst = 0.0
    for i, degrees in enumerate(columns.degrees):
        unit = np.eye(columns.size)[i] / columns.sup()[i]
        worst = max(worst, 1 / np.abs(columns.values(places.states) @ unit).max())
        assert worst <= places.factor + 1e-12 and degrees.sum() <= 4
    assert worst > 0.99 * places.factor


def test_vector_and_matrix_bounds_fail_as_rarely_as_promised():
    """Skewed vectors of dimension 6 with uneven weights, failures counted over many trials at a loose level."""
    rng, trials, n, k = np.random.default_rng(3), 4000, 50, 6
    weight = np.linspace(0.2, 1.0, n)
    seldom = (rng.random((trials, n, k)) < 0.03).astype(float)
    Z = weight[:, None] * seldom / k**0.5
    mean = (0.03 * weight.sum() / k**0.5) * np.ones(k)
    deviation = np.linalg.norm(Z.sum(axis=1) - mean, axis=1)
    for delta in (0.3, 0.05):
        radius = empirical_vector_bernstein((Z**2).sum(axis=(1, 2)), 1.0, log_term(EVENTS, delta))
        assert (deviation >= radius).mean() <= delta
    a = rng.normal(size=(n, 4))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    h = seldom / k**0.5
    sums = np.einsum("ni,tnj->tij", a, h)
    gap = np.linalg.norm(sums - np.outer(a.sum(axis=0), 0.03 / k**0.5 * np.ones(k)), 2, axis=(1, 2))
    left = np.linalg.eigvalsh(np.einsum("ni,nj,tn->tij", a, a, (h**2).sum(axis=2)))[:, -1]
    right = np.linalg.eigvalsh(np.einsum("tni,tnj->tij", h, h))[:, -1]
    assert (gap >= empirical_matrix_bernstein(left, right, 1.0, log_term(2 + 4 + k, 0.3))).mean() <= 0.3


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.97])
def test_self_bounded_sums_fail_as_rarely_as_promised(rate):
    rng, n = np.random.default_rng(4), 80
    weight = np.cos(np.linspace(0, 3, n))
    Z = weight * (rng.random((20_000, n)) < rate)
    deviation = np.abs(Z.sum(axis=1) - rate * weight.sum())
    for delta in (0.5, 0.05):
        radius = self_bounded((Z**2).sum(axis=1), 1.0, log_term(SELF_EVENTS, delta))
        assert (deviation >= radius).mean() <= delta
    # many small terms: the observed second moment decides
    assert self_bounded(np.array(100.0), 0.01, 6.0) < 1.1 * np.sqrt(2 * 6.0 * 100.0)


def a_surrogate(problem, basis, columns, seed=0, samples=4_000, discount=0.7):
    rng = np.random.default_rng(seed)
    reward = Reward(basis.on(problem.domain), rng.normal(size=basis.size) / (1 + np.arange(basis.size)))
    training = draw(problem, basis, samples, rng, design=True)
    given = {"columns": columns.on(problem.domain), "n_actions": problem.n_actions, "discount": discount, "expert": 0}
    return fit_surrogate(reward, training, **given)


@pytest.mark.parametrize("paired", [True, False])
def test_evidence_is_the_sums_it_says(paired):
    problem, basis = problems.whirl(), product(Legendre(5), Legendre(5))
    s = a_surrogate(problem, basis, basis.resized(10))
    fresh = certirl.sample(problem, basis=basis, samples=3_000, rng=1, design=True, paired=paired)
    found = gather_on_box(s, certirl.data.transitions.pieces(fresh, 1024))
    frame = level(s.columns)
    x, y = (frame.values(states) for states in (fresh.states, fresh.next_states))
    assert found.paired == paired and (found.counts == 3_000).all()
    Y, h = {}, {}
    for c in range(3):
        own = fresh.actions == c
        guessed = s.columns.values(fresh.states[own]) @ s.Z[c].T
        h[c] = y[own] - np.linalg.solve(frame.change, guessed.T).T
        Y[c] = s.value(fresh.next_states[own]) - s.columns.values(fresh.states[own]) @ s.fits[c]
        np.testing.assert_allclose(frame.lifted(found.gram[c]), x[own].T @ x[own], rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(found.surprise[c], Y[c] @ x[own], atol=1e-8)
        np.testing.assert_allclose(found.drift[c], h[c].T @ x[own], atol=1e-7)
    np.testing.assert_allclose(found.noise, h[0].T @ h[0], atol=1e-7)
    for c, d in ((0, 0), (0, 1), (2, 2)):
        at = x[fresh.actions == c]
        spread, wobble = ((at * w[:, None]).T @ at for w in (Y[c] * Y[d], (h[c] * h[d]).sum(axis=1)))
        if c != d and not paired:
            spread, wobble = 0 * spread, 0 * wobble
        np.testing.assert_allclose(frame.lifted(found.spread[c, d]), spread, rtol=1e-8, atol=1e-6)
        np.testing.assert_allclose(frame.lifted(found.wobble[c, d]), wobble, rtol=1e-8, atol=1e-6)


def without_noise(problem, s, n=1e13):
    """What infinitely many transitions from the design would say: means by quadrature, no spread."""
    frame, A = level(s.columns), problem.n_actions
    nodes = mesh([spread_points(part, 24)[:, 0] for part in frame.basis.parts])  # of equal weight
    x, phi, (y, _) = frame.values(nodes), s.columns.values(nodes), problem._quadrature()
    at_y = np.column_stack([s.value(y), frame.values(y)])
    surprise, drift = [], []
    for action in range(A):
        expected = problem._kernel(nodes, action) @ at_y
        guessed = np.linalg.solve(frame.change, (phi @ s.Z[action].T).T).T
        surprise.append(n * (expected[:, 0] - phi @ s.fits[action]) @ x / len(nodes))
        drift.append(n * (expected[:, 1:] - guessed).T @ x / len(nodes))
    gram = np.zeros((A, *frame.doubled))
    gram[(slice(None), *[0] * len(frame.doubled))] = n
    nothing, k = np.zeros((A, A, *frame.doubled)), s.columns.size
    sums = (gram, np.array(surprise), nothing, np.array(drift), nothing, np.zeros((k, k)))
    return BoxEvidence(np.full(A, int(n)), *sums, paired=True)


def spoiled(s, size, rng):
    """Guesses that are wrong by so much."""
    Z, fits = s.Z.copy(), s.fits + size * rng.normal(size=s.fits.shape)
    Z[:, 1:] += size * rng.normal(size=Z[:, 1:].shape) / s.columns.size**0.5
    fits[s.expert] = s.g
    return Surrogate(s.columns, s.reward, s.discount, s.expert, s.g, fits, Z, s.low, s.high)


CASES = [
    (problems.random_independent(seed=3, degree=4), product(Legendre(3), Legendre(3), index="full")),
    (problems.whirl(), product(Legendre(5), Legendre(5))),
    (
        problems.independent(certirl.problems.circle(), certirl.problems.thermostat()),
        product(Fourier(7), Legendre(7)),
    ),
]


@pytest.mark.parametrize("trials", sizes(1, 3))
@pytest.mark.parametrize(("problem", "columns"), CASES, ids=["polynomial", "whirl", "circle"])
def test_without_noise_the_inequality_holds_at_every_state(problem, columns, trials):
    """A deterministic statement: the true D_a lies above the bound, and not far above it."""
    rng = np.random.default_rng(5)
    rows = columns.resized(columns.complete_sizes()[-1])
    columns, tail = columns.on(problem.domain), problem.tail(columns)
    assert (tail == 0) == (columns.index == "full")
    states = mesh([np.linspace(low, high, 15) for low, high in problem.domain])
    shares = []
    for trial in range(trials):
        s = a_surrogate(problem, rows, columns, seed=trial, samples=300, discount=float(rng.uniform(0.2, 0.9)))
        s = spoiled(s, float(rng.choice([0.01, 0.1])), rng)
        bounds = lower_bounds_on_box(s, without_noise(problem, s), delta=0.05, tail=tail)
        truth = problem.margins(s.reward, states, discount=s.discount)
        for bound, own in zip(bounds, truth, strict=True):
            missed = np.abs(own - columns.values(states) @ bound.curve).max()
            allowed = bound.estimated - bound.margin
            assert missed <= allowed
            assert own.min() >= bound.margin
            shares.append(missed / allowed)
    assert max(shares) > (0.02 if tail == 0 else 0.002)


PROBLEM = problems.random_independent(seed=1)
BASIS = product(Legendre(5), Legendre(5))


@pytest.fixture(scope="module")
def solved():
    return certirl.solve(PROBLEM, discount=0.7, basis=BASIS, columns=15, delta=0.05, tail=0, rng=0)


def test_solve_draws_until_a_box_is_certified(solved):
    """The exact condition: the certified margin lies below the true one, which is positive."""
    assert solved.status == "certified" and "at every state" in str(solved)
    certificate = solved.certificate
    assert 0 < certificate.margin <= PROBLEM.true_margin(solved.reward, discount=0.7)
    assert sum(certificate.spending.values()) == pytest.approx(0.05)
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))


def test_a_saved_certificate_of_a_box_comes_back(solved, tmp_path):
    path = solved.save(tmp_path / "box")
    again = certirl.load(path).certificate
    assert (again.margin, again.holds, again.spending) == (
        solved.certificate.margin,
        True,
        solved.certificate.spending,
    )
    bounds = lower_bounds_on_box(
        again.surrogate, again.evidence, delta=0.05 - again.spending["later attempts"], tail=0.0
    )
    assert min(bound.margin for bound in bounds) == pytest.approx(again.margin)
    with pytest.raises(ValueError, match="one coordinate only"):
        check(path)
    raised = replace(solved, certificate=replace(solved.certificate, margin=123.0)).save(tmp_path / "raised")
    with pytest.raises(ValueError, match="claims the margin 123, its sums lead to"):
        certirl.load(raised)


def test_certificates_of_logs_and_functions_never_lie(solved):
    """The same reward as a plain function, paired and not; turned upside down; and with a wrong tail left out."""
    asked = {"discount": 0.7, "columns": BASIS.resized(15)}
    for paired in (True, False):
        log = certirl.sample(PROBLEM, basis=BASIS, samples=30_000, rng=3, design=True, paired=paired)
        found = certirl.certify(lambda s: solved.reward(s), log, tail=0, **asked)
        assert found.evidence.paired == paired
        assert found.margin <= PROBLEM.true_margin(solved.reward, discount=0.7)
        assert any("stays within" in note for note in found.assumptions)
        turned = certirl.certify(lambda s: -solved.reward(s), log, tail=0, **asked)
        assert not turned.holds and turned.samples_needed is None
    assert certirl.certify(solved, PROBLEM, samples=200_000, rng=5).word == "conditional"


@pytest.mark.parametrize("count", sizes(2, 6))
def test_no_false_certificate_on_a_box(count):
    """Rewards that are right or barely wrong, at δ = 0.5: a bound above the truth is rarer than that."""
    held = above = 0
    for seed in range(count):
        problem, rng = problems.whirl(noise=1.0 + 0.1 * seed), np.random.default_rng(seed)
        reward = certirl.recover(certirl.bellman(problem.operators(BASIS, 15), discount=0.5)).reward
        if seed % 2:
            noise = Reward(reward.basis, rng.normal(size=reward.basis.size) - reward.coefficients)
            reward = barely_wrong(problem, reward, noise, 0.5)
        truth = problem.true_margin(reward, discount=0.5)
        assert (truth > 0) == (seed % 2 == 0)
        found = certirl.certify(
            reward, problem, discount=0.5, columns=BASIS, tail=problem.tail, delta=0.5, samples=30_000, rng=seed
        )
        assert not (found.holds and truth <= 0)
        held, above = held + found.holds, above + (found.margin > truth)
    assert held >= count // 3 and above == 0


def barely_wrong(problem, reward, noise, discount):
    """The mixture whose true margin is just below zero: margins are linear in the reward."""
    states = mesh([np.linspace(low, high, 17) for low, high in problem.domain])
    ours, theirs = (problem.margins(r, states, discount=discount) for r in (reward, noise))
    shares = np.linspace(0, 1, 2001)
    margins = np.array([((1 - share) * ours + share * theirs).min() for share in shares])
    share = shares[np.argmax(margins < -1e-2)]
    return Reward(reward.basis, (1 - share) * reward.coefficients + share * noise.coefficients)


def test_wrong_calls_are_refused_in_a_sentence():
    full = product(Legendre(3), Legendre(3), index="full")
    with pytest.raises(ValueError, match="every simpler product"):
        certirl.solve(PROBLEM, discount=0.7, basis=full, columns=8, delta=0.05, rng=0)
    with pytest.raises(ValueError, match=r"3 coordinates at most.*certirl\.scenario"):
        certirl.solve(Four(), discount=0.7, delta=0.05, rng=0)
    with pytest.raises(ValueError, match="a tail from derivatives is for states of one coordinate"):
        certirl.certify(
            lambda s: s[:, 0],
            PROBLEM,
            discount=0.7,
            columns=full,
            tail=certirl.Smooth(1, 1.0),
            reward_range=(-1, 1),
            samples=900,
            rng=0,
        )


class Four:
    """Four coordinates."""

    n_actions, domain = 2, ((-1.0, 1.0),) * 4

    def sample(self, states, action, rng):
        return np.clip(0.5 * states + 0.1 * (1 - 2 * action) + 0.2 * rng.normal(size=states.shape), -1, 1)


def test_an_estimated_conflict_on_a_box_settles_nothing():
    problem = problems.Mixed(PROBLEM)
    found = certirl.solve(problem, discount=0.7, basis=BASIS, columns=15, delta=0.05, tail=0, max_samples=8_000, rng=0)
    assert found.status in ("undetermined", "solved")


@pytest.mark.slow
def test_three_coordinates_are_certified():
    """The corner reward of a whirl with much noise; the tail is that of the problem."""
    problem, columns = problems.whirl(dimension=3, noise=1.5), product(*[Legendre(4)] * 3)

    def corner(states):
        return 3 * states.sum(axis=1)

    found = certirl.certify(
        corner, problem, discount=0.5, columns=columns, tail=problem.tail, samples=150_000, rng=0, reward_range=(-9, 9)
    )
    assert found.holds and 0 < found.tail < 1e-3
    assert found.margin <= problem.true_margin(corner, discount=0.5)
