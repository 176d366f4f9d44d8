"""Certificates for experts who switch in two coordinates: bands, tubes, visits and regret against a fine grid."""

import sys
from pathlib import Path

import numpy as np
import pytest

import certirl
from certirl.data.expert_grid import expert_grid
from certirl.data.policy import as_policy
from certirl.data.simulator import draw
from certirl.functions.bounded import bounded
from certirl.functions.boxes import of_degree
from certirl.functions.frames import blended, frame, wander
from certirl.ground.domain import mesh
from certirl.problems import Greedy, Truth, Whirl, judge, random_independent
from certirl.proof.certify_policies import SwitchingCase
from certirl.proof.policy_bounds import Band, Bands, bands
from certirl.proof.policy_evidence import PolicyEvidence, fit_policy_surrogate, gather
from certirl.proof.tubes import read_tube
from certirl.solver.solution import load
from sizes import sizes

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
import box_switching as experiment

experiment.FINE = 120  # far finer than any band is narrow

SQUARE = ((-1.0, 1.0), (-1.0, 1.0))
COLUMNS = certirl.product(certirl.Legendre(3), certirl.Legendre(3), index="full").on(SQUARE)
GRID = mesh([np.linspace(-1, 1, 41)] * 2)


@pytest.fixture(scope="module")
def case():
    return experiment.a_case(5)


@pytest.fixture(scope="module")
def certificate(case):
    settings = {"expert": case.expert, "discount": case.discount, "columns": COLUMNS, "tail": 0, "tube": 0.45}
    return certirl.certify(case.reward, case.truth.problem, samples=150_000, rng=0, progress=False, **settings)


def ahead(case, reward, expert, states):
    """The true (P_cV)(s) ``[n, A]``."""
    found, _ = case.truth.evaluate(reward, expert(case.truth.states), discount=case.discount)
    return case.truth.next_values(found, states).T


def without_noise(surrogate, case, states):
    """Evidence whose sums are their means, as if of 10¹⁴ transitions: what is left is the remainder alone."""
    truth, A, m, k = case.truth, surrogate.n_actions, len(surrogate.mix), surrogate.columns.size
    x, between, many = surrogate.columns.values(states), case.truth.interpolation(states), 1e14 / len(states)
    f = np.column_stack([surrogate.pieces(truth.states) @ surrogate.mix.T, surrogate.value(truth.states)])
    near, wide, w = surrogate.tents(truth.states).T, frame(surrogate.columns).wide, len(surrogate.widths)
    drift, surprise, visits = np.zeros((A, m, k)), np.zeros((A, k)), np.zeros((A, w, k))
    for c in range(A):
        expected = between @ (truth.kernels[c] @ f)
        drift[c] = many * (expected[:, :-1] - x @ (surrogate.mix @ surrogate.Z[c]).T).T @ x
        surprise[c] = many * (expected[:, -1] - x @ surrogate.fits[c]) @ x
        visits[c] = many * (between @ (truth.kernels[c] @ near) - x @ surrogate.tent_fits[c].T).T @ x
    gram = np.tile(many * x.T @ x, (A, 1, 1))
    sums = (gram, surprise, np.zeros((A, A, *wide)), drift, np.zeros((A, A, m, *wide)), visits, np.zeros((A, w, *wide)))
    return PolicyEvidence(np.full(A, int(1e14)), *sums, reached=np.zeros((A, 0)), paired=True)


@pytest.mark.parametrize("seed", [2])
def test_without_noise_the_true_curve_is_within_the_remainder(seed):
    case = experiment.a_case(seed)
    policy = as_policy(case.expert, 3)
    training = draw(case.truth.problem, COLUMNS, 4000, seed, design=True, paired=True)
    settings = {"switches": expert_grid(policy, SQUARE).marks, "widths": np.array([0.3])}
    reward = bounded(case.reward, SQUARE, (-40.0, 40.0))
    surrogate = fit_policy_surrogate(reward, policy, training, columns=COLUMNS, discount=case.discount, **settings)
    found = bands(surrogate, without_noise(surrogate, case, mesh([np.linspace(-1, 1, 9)] * 2)), delta=0.05, tail=0.0)
    true = ahead(case, case.reward, case.expert, GRID)
    for band in found.pairs:
        b, a = band.pair
        error = np.abs(true[:, b] - true[:, a] - band.estimate(GRID))
        uncorrected = np.abs(true[:, b] - true[:, a] - COLUMNS.values(GRID) @ (surrogate.fits[b] - surrogate.fits[a]))
        assert (error <= band.radius(GRID) + 1e-9).all() and band.estimation.max() < 1e-2 * uncorrected.max()
        assert error.max() < 0.2 * uncorrected.max()  # the correction takes out the first order
    most = max((case.truth.kernels[c] @ surrogate.tents(case.truth.states)[0]).max() for c in range(3))
    assert most <= found.visits[0] <= most + 0.15
    assert found.span <= judge(case.truth, case.reward, case.expert, discount=case.discount).span


@pytest.mark.parametrize("seed", sizes(1, 4, 7))
def test_nothing_a_certificate_says_is_false(seed, monkeypatch):
    monkeypatch.setattr(experiment, "POLYNOMIAL", 30_000)
    told = experiment.run(seed)
    assert not any(told[name] for name in experiment.WRONG)


def test_it_holds_says_where_and_is_told_in_words(certificate, case):
    assert certificate.holds and 0 < certificate.half_width <= 0.45 and 0 < certificate.share < 0.6
    text = str(certificate)
    assert "strictly best farther than 0.45 from where it switches" in text and "connected piece" in text
    assert "within each of 400 × 400 cells of [-1, 1] × [-1, 1] the expert takes what it takes at the corners" in text
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))
    true = ahead(case, case.reward, case.expert, GRID)
    own, rows = case.expert(GRID), np.arange(len(GRID))
    best = true[rows, own] >= true.max(axis=1)
    proved = certificate.proves(GRID)
    assert best[proved].all() and 0.3 < proved.mean() < 1
    assert certificate.tube.shape[1:] == (2, 2) and (np.abs(certificate.tube) <= 1).all()
    for band in bands(certificate.surrogate, certificate.evidence, delta=0.05, tail=0.0).pairs:
        b, a = band.pair
        ahead_of = (true[:, b] - true[:, a]) / certificate.surrogate.unit
        assert (np.abs(ahead_of - band.estimate(GRID)) <= band.radius(GRID)).all()


def test_saved_and_loaded_it_derives_the_same_verdict(certificate, tmp_path):
    again = load(certificate.save(tmp_path / "proof"))
    assert str(again).splitlines()[1:] == str(certificate).splitlines()[1:]
    assert (again.decided == certificate.decided).all()


def test_forecasts_are_what_more_data_say(certificate):
    few = certificate.evidence.forecast(0.25)
    then = bands(certificate.surrogate, few, delta=0.05, tail=0.0, growth=4.0)
    now = bands(certificate.surrogate, certificate.evidence.forecast(1.0), delta=0.05, tail=0.0)
    for one, other in zip(then.pairs, now.pairs, strict=True):
        assert np.allclose(one.estimation, other.estimation) and np.allclose(one.second_order, other.second_order)
        assert np.allclose(one.curve, other.curve)
    assert np.allclose(then.visits, now.visits, atol=1e-6) and then.span == pytest.approx(now.span)


def test_evidence_on_a_box_is_the_plain_sums(certificate, case):
    s = certificate.surrogate
    stream = list(draw(case.truth.problem, COLUMNS, 300, 1, paired=True))
    found = gather(s, stream)
    (piece,) = stream
    x, lifted = COLUMNS.values(piece.states), frame(COLUMNS).lifted
    f = s.pieces(piece.next_states[1]) @ s.mix.T - x @ (s.mix @ s.Z[1]).T
    g = s.pieces(piece.next_states[2]) @ s.mix.T - x @ (s.mix @ s.Z[2]).T
    direct = np.einsum("ni,nj,nf->fij", x, x, f * g)
    assert np.allclose(lifted(found.wobble)[1, 2], direct, rtol=1e-9, atol=1e-9 * np.abs(direct).max())
    Y = s.value(piece.next_states[0]) - x @ s.fits[0]
    assert np.allclose(lifted(found.spread)[0, 0], np.einsum("ni,nj,n->ij", x, x, Y**2))
    assert np.allclose(found.gram[0], x.T @ x) and np.allclose(found.drift[1], f.T @ x)


@pytest.mark.parametrize("columns", [COLUMNS, of_degree(SQUARE, 4), of_degree(SQUARE, 3, (0,))])
def test_what_is_bounded_at_points_is_bounded_everywhere_and_within_reach(columns):
    own, rng = frame(columns), np.random.default_rng(0)
    shape = own.band.counts
    narrow = (0.1 + 0.9 * (own.band.states**2).mean(axis=1)).reshape(shape)  # known best in the middle
    band = Band((0, 1), columns, np.zeros(columns.size), narrow, 0 * narrow, 0.0, 0.0)
    errors = rng.standard_normal((1500, columns.size))
    at_points = np.abs(errors @ columns.values(own.band.states).T)
    errors /= (at_points / narrow.ravel()).max(axis=1, keepdims=True)  # as large as the points allow
    radius, values = band.radius(GRID), np.abs(errors @ columns.values(GRID).T)
    assert (values <= radius + 1e-9).all() and (values / radius).max() > 0.8
    assert radius[len(GRID) // 2] < 0.4 < 0.9 < radius[0]  # far from the largest
    reach = np.array([0.05, 0.02])
    near = np.clip(GRID[:, None] + reach * rng.uniform(-1, 1, (len(GRID), 20, 2)), -1, 1)
    moved = np.abs(
        np.einsum("ek,npk->enp", errors[:100], columns.values(near.reshape(-1, 2)).reshape(*near.shape[:2], -1))
    )
    assert (moved.max(axis=(0, 2)) <= band.radius(GRID, reach) + 1e-9).all()
    sums, weight = blended(own.parts, narrow[None], GRID)
    assert (weight >= 1 - 1e-9).all() and (weight < 1.6).all() and (sums[0] > 0).all()
    assert (wander(own.parts, GRID, reach) > 0).all()


def test_a_curve_falls_no_farther_within_a_cell_than_is_said():
    columns, rng = of_degree(SQUARE, 5), np.random.default_rng(1)
    curve, half = rng.normal(size=columns.size), np.array([0.03, 0.01])
    states = rng.uniform(-0.97, 0.97, (400, 2))
    around = states[:, None] + half * rng.uniform(-1, 1, (400, 60, 2))
    values = (columns.values(around.reshape(-1, 2)) @ curve).reshape(400, 60)
    falls, said = (columns.values(states) @ curve)[:, None] - values, frame(columns).variation(curve, states, half)
    assert (falls.max(axis=1) <= said).all() and (falls.max(axis=1) / said).max() > 0.7
    fine = columns.values(mesh([np.linspace(-1, 1, 301)] * 2)) @ curve
    assert fine.max() <= frame(columns).peak(curve) <= fine.max() + 0.02 * np.ptp(fine)


def test_the_tube_is_what_brute_force_finds():
    columns = certirl.product(certirl.Legendre(2), certirl.Legendre(2)).on(SQUARE)
    plane = np.linalg.lstsq(columns.values(GRID), -GRID[:, 0], rcond=None)[0]  # J_0 − J_1 = −s_1
    lookup = expert_grid(as_policy(lambda s: (s[:, 0] > 0.1).astype(int), 2), SQUARE)
    assert np.allclose(lookup.switches[:, 0], 0.1, atol=6e-3)
    assert np.allclose(lookup.away, np.abs(lookup.states[:, 0] - 0.1), atol=6e-3)
    shape = frame(columns).band.counts
    told = Bands((Band((0, 1), columns, plane, np.full(shape, 0.2), np.zeros(shape), 0.0, 0.0),), np.array([0.3]), 1.0)
    tube = read_tube(told, lookup, allowed=0.5, widths=np.array([0.6]), discount=0.5)
    reached = told.pairs[0].radius(np.zeros((1, 2)), lookup.half)[0]  # a little more than 0.2, by the mesh
    assert 0.2 <= reached < 0.3
    assert tube.undecided == pytest.approx(np.array([[[-reached, reached], [-1, 1]]]), abs=0.02)
    assert tube.share == pytest.approx(reached, abs=0.02) and tube.half_width == pytest.approx(reached + 0.1, abs=0.03)
    assert tube.margin == pytest.approx(0.4 - reached, abs=0.03) and tube.state[0] == pytest.approx(-0.4, abs=0.03)
    assert tube.shortfall == pytest.approx(reached + 0.1, abs=0.02)
    # At the switch all of it is missing, within the tent's peak: its visits are met later.
    assert tube.regret == pytest.approx(0.5 * (tube.shortfall + 0.3 * tube.shortfall), rel=0.1)


def test_where_three_regions_meet_all_their_actions_count():
    lookup = expert_grid(
        as_policy(lambda s: np.where(s[:, 1] > 0.0012, 0, np.where(s[:, 0] > 0.0013, 1, 2)), 3), SQUARE
    )
    at = lookup.taken_at(np.array([[0.0012, 0.0011], [0.5, 0.0], [0.5, 0.5]]))
    assert at[:, 0].all() and (at[:, 1] == [True, True, False]).all() and (at[:, 2] == [True, False, False]).all()


def test_tents_are_no_lower_on_their_cells_than_is_said(certificate):
    lookup, s = certificate.lookup, certificate.surrogate
    states = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    said = lookup.tents(s.widths)[:, lookup.cell(states)]
    assert (s.tents(states) >= said - 1e-12).all() and said.max() == 1.0
    assert (np.abs(lookup.states[lookup.cell(states)] - states) <= lookup.half + 1e-12).all()


def test_states_are_drawn_beside_the_switches(case):
    design = SwitchingCase.of(as_policy(case.expert, 3), COLUMNS, 0.05, 0.7, 0).design
    states, lookup = design(4000, np.random.default_rng(0)), expert_grid(as_policy(case.expert, 3), SQUARE)
    near = lookup.away[lookup.cell(states)] < 0.15
    plain = lookup.away[lookup.cell(COLUMNS.design(4000, np.random.default_rng(0)))] < 0.15
    assert near.mean() > plain.mean() + 0.15


def test_the_truth_is_what_rollouts_see():
    problem = random_independent(seed=3)
    truth = Truth(problem, nodes=3, fine=80)
    expert = Greedy(truth, np.random.default_rng(0).normal(size=(3, 9)))
    reward = certirl.Reward(certirl.product(*[certirl.Legendre(3)] * 2), np.random.default_rng(1).normal(size=6))
    found, _ = truth.evaluate(reward, expert(truth.states), discount=0.5)
    rng, start = np.random.default_rng(2), np.array([0.3, -0.6])
    for action in range(3):
        states = problem.sample(np.tile(start, (40_000, 1)), action, rng)
        total = np.zeros(len(states))
        for step in range(12):
            total += 0.5**step * np.asarray(reward(states))
            moved, chosen = states.copy(), expert(states)
            for c in range(3):
                moved[chosen == c] = problem.sample(states[chosen == c], c, rng) if (chosen == c).any() else 0
            states = moved
        told = float(truth.next_values(found, start[None])[action, 0])
        assert total.mean() == pytest.approx(told, abs=5 * total.std() / 200 + 0.01)


def test_a_function_that_never_switches_is_certified_everywhere():
    whirl, columns = Whirl(noise=0.9), of_degree(SQUARE, 2)
    settings = {"expert": lambda s: np.zeros(len(s), dtype=int), "discount": 0.5, "columns": columns}
    found = certirl.certify(lambda s: s.sum(axis=1), whirl, samples=30_000, rng=0, progress=False, **settings)
    assert found.margin > 0 and found.share == 0 and len(found.tube) == 0 and np.isfinite(found.regret)
    assert "everywhere" in str(found) and "tube     empty" in str(found)


def test_three_coordinates_work_alike():
    problem = random_independent(seed=2, dimension=3, actions=2)
    columns = certirl.product(*[certirl.Legendre(2)] * 3).on(problem.domain)
    settings = {"expert": lambda s: (s.sum(axis=1) > 0).astype(int), "discount": 0.5, "columns": columns, "tail": 0}
    found = certirl.certify(lambda s: s[:, 0], problem, samples=3_000, rng=0, tube=0.4, progress=False, **settings)
    assert not found.holds and "60 × 60 × 60 cells" in str(found.lookup)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tube": 3.0}, "tube must be a half-width strictly between 0 and 2"),
        ({"columns": COLUMNS.resized(5)}, "hold every simpler product"),
        (
            {"columns": certirl.product(*[certirl.Legendre(14)] * 2)},
            "make 315 functions, and on a box 300 are the most",
        ),
    ],
)
def test_what_cannot_be_certified_gets_a_sentence(case, change, sentence):
    settings = {"expert": case.expert, "discount": 0.7, "columns": COLUMNS, "tail": 0} | change
    with pytest.raises(ValueError, match=sentence):
        certirl.certify(case.reward, case.truth.problem, samples=2_000, rng=0, **settings)


def test_more_than_three_coordinates_are_sent_to_scenarios():
    class Four:
        n_actions, domain = 2, ((-1, 1),) * 4

        def sample(self, states, action, rng):
            return rng.uniform(-1, 1, states.shape)

    settings = {"expert": lambda s: (s[:, 0] > 0).astype(int), "discount": 0.7, "rng": 0}
    with pytest.raises(ValueError, match=r"for 3 coordinates at most.*certirl.scenario"):
        certirl.solve(Four(), delta=0.1, tail=0, **settings)
    columns = certirl.product(*[certirl.Legendre(2)] * 4)
    with pytest.raises(ValueError, match=r"for 3 coordinates at most.*certirl.scenario"):
        certirl.certify(lambda s: s[:, 0], Four(), tail=0, columns=columns, **settings)


@pytest.mark.slow
def test_solve_chooses_columns_by_the_tail_and_ends_with_what_it_has():
    whirl = Whirl(drift=((0.5, 0.5), (-0.5, -0.5)), angle=0.4, shrink=0.4, noise=0.8)
    settings = {"expert": experiment.middle_line, "discount": 0.5, "delta": 0.1, "tube": 0.4, "rng": 0}
    solution = certirl.solve(whirl, tail=lambda own: 0.5**own.size, max_samples=3_000, progress=False, **settings)
    assert solution.status != "certified" and solution.certificate.surrogate.columns.size == 15
    assert "where it switches" in str(solution)
    with pytest.raises(ValueError, match=r"pass columns, say product\(Legendre\(6\), Legendre\(6\)\)"):
        certirl.solve(whirl, tail=0.1, **settings)


def test_the_map_shows_what_is_proved(certificate, tmp_path):
    ax = certificate.plot(path=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5_000 and "not decided" in ax.get_title()
    _, least = certificate.advantage(GRID)
    best = np.nanmin(np.where(np.isnan(least), np.inf, least), axis=0)
    assert (best[certificate.proves(GRID)] > 0).all()


def test_terminal_states_are_refused_where_there_are_any(case):
    class Ending:
        n_actions, domain = 2, SQUARE

        def __init__(self, edge):
            self.edge = edge

        def sample(self, states, action, rng):
            return rng.uniform(-1, 1, states.shape)

        def terminal(self, states):
            return states[:, 0] > self.edge

    settings = {"expert": lambda s: (s[:, 0] > 0).astype(int), "discount": 0.7, "rng": 0}
    with pytest.raises(ValueError, match="for problems without terminal states"):
        certirl.solve(Ending(0.5), delta=0.1, **settings)
    endless = certirl.certify(
        lambda s: s[:, 0], Ending(2.0), columns=COLUMNS, samples=1_000, progress=False, **settings
    )
    assert endless.word == "conditional" or not endless.holds
