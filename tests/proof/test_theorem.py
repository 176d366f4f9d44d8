"""The steps of the proof in docs/notes/certificate.md, each compared with exact dynamics and single transitions."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import certirl
from certirl import Legendre
from certirl.data.simulator import draw
from certirl.functions.inequalities import (
    MIXED_EVENTS,
    best_rate,
    best_scale,
    best_slope,
    conditional_moment,
    hoeffding_norm,
    log_term,
    mixed_norm,
    plain_slope,
    quartic,
    sloped,
)
from certirl.problems.switching import Steps, Truth
from certirl.proof.bands import Expected, Findings, _expected_length, _radius, _size, bands
from certirl.proof.case import Case
from certirl.proof.functionals import workings
from certirl.proof.sums import gather
from certirl.proof.training import fit_surrogates

DISCOUNT = 0.7
EXPERTS = {"constant": Steps((), (1,)), "policy": Steps((-0.3, 0.4), (0, 2, 1))}


class Run:
    """A surrogate, its evidence, every fresh transition, and the true value V: the columns hold P_c f exactly."""

    def __init__(self, expert, *, paired, pointwise, samples, seed, sampling="independent"):
        self.problem = certirl.problems.random_polynomial(seed=4)
        columns, self.expert = Legendre(3).on(self.problem.domain), EXPERTS[expert]
        rule = self.expert if self.expert.switches else self.expert.actions[0]
        self.truth = Truth(self.problem, cuts=self.expert.switches)
        self.at_nodes, _ = self.truth.evaluate(self.reward, self.expert(self.truth.states), discount=DISCOUNT)
        case = replace(Case.of(rule, columns, n_actions=3, discount=DISCOUNT, tail=0.0), sampling=sampling)
        training, fresh = np.random.default_rng(seed).spawn(2)
        training = draw(self.problem, columns, samples // 3, training, paired=paired)
        (self.surrogate,), _ = fit_surrogates(case, self.reward, training, samples=samples, pointwise=pointwise)
        self.pieces = list(draw(self.problem, columns, samples, fresh, paired=paired))
        (self.evidence,) = gather([self.surrogate], self.pieces)
        self.work = workings(self.surrogate, self.evidence)

    def reward(self, states):
        return np.cos(3 * states[:, 0]) + states[:, 0]

    def expected(self, states):
        """(P_cV)(s) ``[A, n]``."""
        return self.truth.next_values(self.at_nodes, states)

    def value(self, states):
        """V in the surrogate's unit ``[n]``."""
        ahead = self.expected(states)[self.expert(states), np.arange(len(states))]
        return (self.reward(states) + DISCOUNT * ahead) / self.surrogate.unit

    def transitions(self):
        """(action, x, V(s') − (P_cV)(s), V(s') − P̂_cV̂(s) − P̂_cu(s)) for every action; at points without P̂_cu."""
        u, middle = self.error(), 0.0
        if self.surrogate.pointwise:
            values = self.span()
            u, middle = np.zeros(len(u)), (values.max() + values.min()) / 2
        for piece in self.pieces:
            for c, ends in zip(piece.actions, piece.next_states, strict=True):
                x = self.surrogate.frame.values(piece.states)
                reached = self.value(ends)
                guess = x @ (self.surrogate.fits[c] + u @ self.surrogate.Z[c]) + middle
                yield c, x, reached - self.expected(piece.states)[c] / self.surrogate.unit, reached - guess

    def error(self):
        """The coefficients of u = V − V̂ in π_d h_j ``[m]``, as section 5 reads them off."""
        s, points = self.surrogate, self.surrogate.frame.dense.states
        ahead = np.linalg.lstsq(s.frame.values(points), self.expected(points).T / s.unit, rcond=None)[0].T
        return DISCOUNT * (ahead[list(s.used)] - s.fits[list(s.used)]).ravel()

    def span(self):
        """u at many states."""
        return self.surrogate.pieces(np.linspace(-1, 1, 2001)[:, None]) @ self.error()

    def coefficients(self):
        """u_1 … u_{m−1} in the functions f_i."""
        return np.linalg.solve(self.surrogate.mix.T, self.error())[1:]

    def noise(self):
        """ν ``[A, k]``: the deviations of the regressions of V from their means."""
        total = np.zeros(self.surrogate.fits.shape)
        for c, x, deviation, _ in self.transitions():
            total[c] += deviation @ x
        return np.einsum("ckl,cl->ck", self.work.precision, total)

    def terms(self, weights):
        """Z_r(V) of functionals ``[A, n, k]``: one column for each fresh state if paired, else for each transition."""
        parts = [((weights[c] @ x.T) * residual) for c, x, _, residual in self.transitions()]
        return sum(parts) if self.evidence.paired else np.concatenate(parts, axis=1)


DATA = {"paired": (True, "independent"), "separate": (False, "independent"), "in order": (False, "order")}
BOUNDS = [*product(DATA, (False,)), ("paired", True), ("separate", True)]  # on the error of the value: at points or not


@pytest.fixture(scope="module", params=[(expert, *bound) for expert in EXPERTS for bound in BOUNDS], ids=str)
def run(request):
    expert, data, pointwise = request.param
    paired, sampling = DATA[data]
    return Run(expert, paired=paired, pointwise=pointwise, samples=3_000, seed=5, sampling=sampling)


def test_rows_that_depend_on_each_other_are_never_bounded_at_points():
    """Hoeffding's inequality there needs weights that were fixed before the fresh states."""
    run = Run("constant", paired=False, pointwise=True, samples=1_500, seed=5, sampling="order")
    assert run.work.is_fixed and not run.surrogate.pointwise


def test_the_error_of_the_guess_is_a_combination_of_the_functions(run):
    states = np.linspace(-1, 1, 301)[:, None]
    assert run.value(states) - run.surrogate.value(states) == pytest.approx(
        run.surrogate.pieces(states) @ run.error(), abs=1e-9
    )


def test_no_remainder_is_left(run):
    """The identity (3): the curve, the noise of V in two places, and nothing else."""
    work, noise = run.work, run.noise()
    size = _size(Findings(work), 0.1, 0.0)
    states = np.linspace(-1, 1, 41)[:, None]
    values, ahead = run.surrogate.frame.values(states), run.expected(states) / run.surrogate.unit
    zeta = np.einsum("cnk,ckl,cl->n", work.of_error(np.linalg.inv(run.surrogate.mix).T[1:]), work.gram, noise)
    assert run.coefficients() == pytest.approx(size.centre - size.inverse @ zeta, abs=1e-9)
    for band in bands(run.surrogate, run.evidence, delta=0.1, tail=0.0).pairs:
        weights = work.weights(*band.pair, values)
        direct = np.einsum("cnk,ckl,cl->n", weights, work.gram, noise)
        exact = band.estimate(states) - direct - work.observed(weights) @ size.inverse @ zeta
        b, a = band.pair
        assert ahead[b] - ahead[a] == pytest.approx(exact, abs=1e-8)


def test_the_size_of_the_error_bounds_it(run):
    size = _size(Findings(run.work), 0.1, 0.0)
    zeta = np.linalg.solve(size.inverse, size.centre - run.coefficients())
    assert np.linalg.norm(zeta) <= size.noise
    length = np.ptp(run.span()) / 2 if run.surrogate.pointwise else np.linalg.norm(run.coefficients())
    assert 0 < length <= size.length


def test_second_moments_and_ranges_of_the_true_value_are_bounded(run):
    work, size = run.work, _size(Findings(run.work), 0.1, 0.0)
    values = run.surrogate.frame.values(np.linspace(-1, 1, 9)[:, None])
    for pair in run.surrogate.compared:
        weights = work.weights(*pair, values)
        fixed = work.fixed(weights)
        noise, terms = work.points(weights, pair).noise, run.terms(fixed)
        assert ((terms**2).sum(axis=1) <= size.moment(noise) * (1 + 1e-9)).all()
        assert (np.abs(terms).max(axis=1) <= noise.largest @ [1, size.length] * (1 + 1e-9)).all()


def test_third_and_fourth_powers_are_those_of_the_rows(run):
    work, rows = run.work, []
    values = run.surrogate.frame.values(np.linspace(-1, 1, 9)[:, None])
    for piece in run.pieces:
        x = run.surrogate.frame.values(piece.states)
        for c, ends in zip(piece.actions, piece.next_states, strict=True):
            rows.append((c, x, run.surrogate.value(ends) - x @ run.surrogate.fits[c]))
    assert run.surrogate.powers
    for pair in run.surrogate.compared:
        weights = work.weights(*pair, values)
        fixed = work.fixed(weights)
        terms = [(fixed[c] @ x.T) * residual for c, x, residual in rows]
        terms = sum(terms) if run.evidence.paired else np.concatenate(terms, axis=1)
        direct = np.stack([(terms**order).sum(axis=1) for order in (3, 4)], axis=1)
        assert work.points(weights, pair).noise.powers == pytest.approx(
            direct, rel=1e-9, abs=1e-9 * np.abs(direct).max()
        )


def test_the_error_of_the_value_adds_no_more_to_powers_than_is_allowed(run):
    """Whatever the slope, the radius is no less than that of the logarithms of the true terms, on either side."""
    work, size = run.work, _size(Findings(run.work), 0.1, 0.0)
    values = run.surrogate.frame.values(np.linspace(-1, 1, 9)[:, None])
    for pair, share in product(run.surrogate.compared, (0.1, 0.5, 0.9)):
        weights = work.weights(*pair, values)
        fixed = work.fixed(weights)
        noise, terms = work.points(weights, pair).noise, run.terms(fixed)
        slope = share / (noise.largest @ [1, size.length])
        radius = _radius(noise, 2.0, slope, size.length, size.moment(noise))
        logarithms = [2.0 + (y - np.log1p(y)).sum(axis=1) for y in (slope[:, None] * terms, -slope[:, None] * terms)]
        assert (radius * slope >= np.array(logarithms) * (1 - 1e-12)).all()
        square = sloped(size.moment(noise), noise.largest @ [1, size.length], 2.0, slope)
        assert (radius <= square).all() and (run.surrogate.pointwise or share < 0.5 or (radius < square).any())


def test_what_is_chosen_beforehand_does_not_depend_on_where_fresh_states_lead(run):
    """Slopes must be fixed before: from training data and fresh states, not from any sum over fresh residuals."""
    e = run.evidence
    of_residuals = {name: getattr(e, name) for name in ("residuals", "residual_moments", "cross_moments", "powers")}
    of_residuals |= {name: getattr(e, name) for name in ("operator_residuals", "operator_moments")}
    other = workings(run.surrogate, replace(e, **{name: 0.5 * sums for name, sums in of_residuals.items()}))
    assert _expected_length(Expected(other, 1.0), 0.1) == _expected_length(Expected(run.work, 1.0), 0.1)
    for pair, points in run.work.compared.items():
        assert other.compared[pair].noise.expected.tolist() == points.noise.expected.tolist()
        assert other.compared[pair].noise.largest.tolist() == points.noise.largest.tolist()


def test_weights_fixed_beforehand_differ_by_what_is_observed(run):
    """(9): the noise of a functional, with fixed weights, and a vector of known length times whitened noise."""
    work, size = run.work, _size(Findings(run.work), 0.1, 0.0)
    if not work.is_fixed:
        assert not work.white and size.white.shape == (0, 2)
        return
    sums = np.einsum("ckl,cl->ck", work.gram, run.noise())  # Σ x ε
    white = np.linalg.norm(
        [np.linalg.solve(root, noise) for root, noise in zip(work._roots, sums, strict=True)], axis=1
    )
    assert (white <= size.white @ [1, size.length]).all() and (white > 0.5).all()
    values = run.surrogate.frame.values(np.linspace(-1, 1, 9)[:, None])
    for pair in run.surrogate.compared:
        weights = work.weights(*pair, values)
        fixed = work.fixed(weights)
        assert fixed == pytest.approx(weights @ work.gram @ np.linalg.inv(work.design), rel=1e-6, abs=1e-12)
        missed = np.abs(np.einsum("cnk,ck->n", weights - fixed, sums))
        bound = work.points(weights, pair).mismatch @ white
        assert (missed <= bound * (1 + 1e-9)).all() and (missed.max() > 0.05 * bound.max())


N, TRIALS = 60, 20_000
WEIGHTS = np.cos(np.pi * (np.arange(N) + 0.5) / N)  # as uneven as the terms of a certificate, and of both signs


@pytest.mark.parametrize("failure", [0.2, 0.02])
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("slope", [0.1, 0.5, 0.9])
def test_a_fixed_slope_fails_as_rarely_as_promised(slope, rate, failure):
    Z = WEIGHTS * (np.random.default_rng(7).random((TRIALS, N)) < rate)
    deviation = Z.sum(axis=1) - rate * WEIGHTS.sum()
    bound = sloped((Z**2).sum(axis=1), 1.0, log_term(1, failure), slope)
    most = TRIALS * failure + 4 * np.sqrt(TRIALS * failure)
    assert (deviation >= bound).sum() <= most
    assert (-deviation >= bound).sum() <= most


@pytest.mark.parametrize("rate", [0.02, 0.5])
@pytest.mark.parametrize("slope", [0.001, 0.1, 0.5, 0.9])
def test_more_terms_of_the_logarithm_bound_it_more_closely(slope, rate):
    """(3b) and (3c) bound the same logarithms; with all powers those of terms that are small are nearly exact."""
    Z = WEIGHTS * ((np.random.default_rng(7).random((100, N)) < rate) - rate)
    square, cube, fourth = ((Z**order).sum(axis=1) for order in (2, 3, 4))
    exact = (2.0 + (slope * Z - np.log1p(slope * Z)).sum(axis=1)) / slope
    (few, more) = sloped(square, 1.0, 2.0, slope), quartic(square, cube, fourth, 1.0, 2.0, slope)
    assert (exact <= few * (1 + 1e-12)).all() and (exact <= more * (1 + 1e-12)).all()
    assert (more - exact).mean() < 0.5 * (few - exact).mean() + 1e-12
    assert (
        quartic(1.0, 0.0, 1.0, 2.0, 3.0, 0.5) == np.inf > quartic(1.0, 0.0, 1.0, 2.0, 3.0, plain_slope(1.0, 2.0, 3.0))
    )


def test_a_slope_beyond_the_range_bounds_nothing():
    assert sloped(1.0, 2.0, 3.0, 0.5) == np.inf
    assert sloped(1.0, 2.0, 3.0, best_slope(1.0, 2.0, 3.0)) < np.inf


@pytest.mark.parametrize("failure", [0.3, 0.03])
@pytest.mark.parametrize("rate", [0.03, 0.5])
@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0])
def test_the_mixed_norm_fails_as_rarely_as_promised(scale, rate, failure):
    rng, trials, m = np.random.default_rng(8), 4_000, 6
    vectors = rng.normal(size=(N, m))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    drawn = (rng.random((trials, N)) < rate).astype(float)
    length = np.linalg.norm((drawn - rate) @ vectors, axis=1)
    forms = np.einsum("tn,ni,nj->tij", drawn, vectors, vectors, optimize=True)
    trace, top = np.trace(forms, axis1=1, axis2=2), np.linalg.eigvalsh(forms)[:, -1]
    bound = mixed_norm(trace, top, 1.0, log_term(MIXED_EVENTS, failure), m, scale)
    assert (length >= bound).mean() <= failure


@pytest.mark.parametrize("failure", [0.3, 0.03])
@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_bounds_on_rows_that_depend_on_each_other_fail_as_rarely_as_promised(rate, failure):
    """Terms whose sizes and directions follow from the past: they turn where the sum lies, and grow if it is long."""
    rng, trials, m = np.random.default_rng(8), 2_000, 3
    total, drawn, expected = np.zeros((trials, m)), np.zeros((trials, m, m)), np.zeros((trials, m, m))
    axes = np.eye(m)
    for step in range(N):
        toward = np.where(np.linalg.norm(total, axis=1)[:, None] > 2, total, axes[step % m])
        vectors = toward / np.linalg.norm(toward, axis=1)[:, None]
        vectors *= np.where(np.linalg.norm(total, axis=1) > 1, 1.0, 0.4)[:, None]
        hit = rng.random(trials) < rate
        total += (hit - rate)[:, None] * vectors
        squares = vectors[:, :, None] * vectors[:, None]
        drawn += hit[:, None, None] * squares
        expected += rate * squares
    (trace, top), (mean_trace, mean_top) = (
        (np.trace(forms, axis1=1, axis2=2), np.linalg.eigvalsh(forms)[:, -1]) for forms in (drawn, expected)
    )
    L = log_term(1, failure)
    rates = tuple(best_rate(typical, 1.0, L) for typical in (np.median(trace), np.median(top)))
    assert (mean_trace >= conditional_moment(trace, 1.0, L, rates[0])).mean() <= failure
    assert (mean_top >= conditional_moment(top, 1.0, L + np.log(m), rates[1])).mean() <= failure
    L = log_term(MIXED_EVENTS, failure)
    scale = best_scale(np.median(trace), np.median(top), 1.0, L, m, rates)
    length = np.linalg.norm(total, axis=1)
    assert (length >= mixed_norm(trace, top, 1.0, L, m, scale, rates)).mean() <= failure
    assert mixed_norm(1e4, 1e3, 1.0, L, m, 1e-3, (0.05, 0.05)) < 1.1 * mixed_norm(1e4, 1e3, 1.0, L, m, 1e-3)


@pytest.mark.parametrize("failure", [0.3, 0.03])
@pytest.mark.parametrize("count", [3, 60])
def test_the_norm_of_bounded_vectors_fails_as_rarely_as_promised(count, failure):
    rng, trials = np.random.default_rng(9), 20_000
    rows = rng.normal(size=(count, 6)) * np.arange(1, 7)
    form = np.linalg.eigvalsh(rows.T @ rows)
    sums = np.sign(rng.random((trials, count)) - 0.5) @ rows  # the widest of all variables between −1 and 1
    bound = hoeffding_norm(form.sum(), form[-1], log_term(1, failure))
    assert (np.linalg.norm(sums, axis=1) >= bound).sum() <= trials * failure + 4 * np.sqrt(trials * failure)
    assert bound <= np.sqrt(form.sum()) + np.sqrt(2 * log_term(1, failure) * form[-1])


def test_the_mixed_norm_of_many_even_vectors_is_near_that_of_a_normal_law():
    n, m, L = 10**8, 12, 6.0
    bound = mixed_norm(float(n), n / m, 1.0, L, m, best_scale(float(n), n / m, 1.0, L, m))
    assert bound < 1.05 * (np.sqrt(n) + np.sqrt(2 * L * n / m))


def test_shares_add_up_to_one(run):
    shares = run.surrogate.shares
    assert (shares > 0).all()
    assert shares.sum() == pytest.approx(1.0)


def test_a_band_of_two_sides_holds_between_its_points(run):
    """(7) and the inflation, for random errors that are within the band at its points."""
    rng, own = np.random.default_rng(9), run.surrogate.frame
    band = bands(run.surrogate, run.evidence, delta=0.1, tail=0.0).pairs[0]
    total = (band.estimation + band.second_order).reshape(2, -1)
    states, at_points = np.linspace(-1, 1, 501)[:, None], own.values(run.surrogate.mesh.states)
    errors = rng.normal(size=(200, own.size)) / np.sqrt(1 + np.arange(own.size))
    reached = np.maximum(errors @ at_points.T / total[1], -errors @ at_points.T / total[0]).max(axis=1)
    values = (errors / reached[:, None]) @ own.values(states).T  # as large as the band allows
    assert (values >= -band.radius(states, 0) - 1e-12).all()
    assert (values <= band.radius(states, 1) + 1e-12).all()


def test_a_band_that_is_infinite_at_a_point_bounds_nothing(run):
    band = bands(run.surrogate, run.evidence, delta=0.1, tail=0.0).pairs[0]
    second = band.second_order.copy()
    second[0, 3] = second[1, 3] = np.inf
    states = np.linspace(-1, 1, 5)[:, None]
    assert (replace(band, second_order=second).radius(states, 0) == np.inf).all()


def test_the_table_of_the_note_names_functions_and_tests_that_exist():
    root = Path(__file__).parents[2]
    table = (root / "docs/notes/certificate.md").read_text().split("## 16. ")[1].split("## 17. ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    rooms = ("data", "proof", "functions", "solver")
    code = "\n".join(path.read_text() for room in rooms for path in room_of(root, room))
    assert len(rows) > 20
    for _, functions, tests in rows[2:]:
        for name in re.findall(r"`([\w.]+)`", functions):
            last = name.split(".")[-1]
            assert re.search(rf"\b(def|class) {last}\b|\b{last} =|\b{last}: ", code) or list(
                (root / "src/certirl").rglob(f"{last}.py")
            ), name
        file = None
        for path, test in re.findall(r"`((?:[\w/]+\.py)?)(?:::(\w+))?`", tests):
            file = next((root / "tests").rglob(Path(path).name)) if path else file
            assert file is not None and (not test or f"def {test}(" in file.read_text()), (path, test)


def room_of(root, room):
    """The modules of a room."""
    return (root / "src/certirl" / room).glob("*.py")
