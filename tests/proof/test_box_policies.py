"""Certificates for experts who switch in two coordinates: bands, tubes, visits and regret against a fine grid."""

import numpy as np
import pytest
from matplotlib.text import Text

import box_switching as experiment
import certirl
import files
from certirl.data.policy import as_policy, expert_grid
from certirl.data.simulator import Even
from certirl.functions.bases import of_degree
from certirl.functions.frame import CellAxes, frame
from certirl.ground.domain import as_domain, mesh
from certirl.problems import Truth, Whirl, random_independent
from certirl.proof.bands import Bands
from certirl.proof.case import Case
from certirl.proof.certificate import read
from certirl.solver.solution import load
from exact import a_band
from sizes import sizes

experiment.FINE = 120  # far finer than any band is narrow

SQUARE = as_domain(((-1.0, 1.0), (-1.0, 1.0)))
COLUMNS = certirl.product(certirl.Legendre(3), certirl.Legendre(3), index="full").on(SQUARE)
GRID = mesh([np.linspace(-1, 1, 41)] * 2)


@pytest.fixture(scope="module")
def case():
    return experiment.a_case(5)


@pytest.fixture(scope="module")
def certificate(case):
    settings = {"expert": case.expert, "discount": case.discount, "columns": COLUMNS, "tail": 0, "tube": 0.45}
    return certirl.certify(case.reward, case.truth.problem, samples=70_000, rng=0, progress=False, **settings)


def ahead(case, reward, expert, states):
    """The true (P_cV)(s) ``[n, A]``."""
    found, _ = case.truth.evaluate(reward, expert(case.truth.states), discount=case.discount)
    return case.truth.next_values(found, states).T


@pytest.mark.parametrize("seed", sizes(1, 4, 7))
def test_nothing_a_certificate_says_is_false(seed, monkeypatch):
    monkeypatch.setattr(experiment, "POLYNOMIAL", 30_000)
    told = experiment.run(seed)
    assert not any(told[name] for name in experiment.WRONG)


def test_it_holds_says_where_and_is_told_in_words(certificate, case):
    tube = certificate.tube
    assert certificate.holds and 0 < tube.half_width <= 0.45 and 0 < tube.share < 0.6
    text = str(certificate)
    assert "strictly best farther than 0.45 from where it switches" in text and "connected piece" in text
    assert "within each of 400 × 400 cells of [-1, 1] × [-1, 1] the expert takes what it takes at the corners" in text
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()))
    true = ahead(case, case.reward, case.expert, GRID)
    own, rows = case.expert(GRID), np.arange(len(GRID))
    best = true[rows, own] >= true.max(axis=1)
    proved = certificate.proves(GRID)
    assert best[proved].all() and 0.3 < proved.mean() < 1
    assert tube.undecided.shape[1:] == (2, 2) and (np.abs(tube.undecided) <= 1).all()
    (ground,) = certificate.grounds
    for band in ground.bands.pairs:
        b, a = band.pair
        error = (true[:, b] - true[:, a]) / ground.surrogate.unit - band.estimate(GRID)
        assert (-error <= band.radius(GRID, 0)).all() and (error <= band.radius(GRID, 1)).all()


def test_saved_and_loaded_it_derives_the_same_verdict(certificate, tmp_path):
    again = load(certificate.save(tmp_path / "proof"))
    assert files.lines_of(again) == files.lines_of(certificate)
    assert (again.tube.decided == certificate.tube.decided).all()


def test_forecasts_shrink_with_more_data(certificate):
    (ground,) = certificate.grounds
    now, later = (ground.forecast(n, 0.05) for n in (certificate.samples, 4 * certificate.samples))
    for one, other in zip(now.pairs, later.pairs, strict=True):
        assert other.estimation.max() < 0.6 * one.estimation.max()
        assert other.second_order.max() < 0.4 * one.second_order.max()
        assert np.array_equal(one.curve, other.curve)
    assert (later.visits <= now.visits).all() and later.span > now.span


@pytest.mark.parametrize("columns", [COLUMNS, of_degree(SQUARE, 4), of_degree(SQUARE, 3, (0,))])
def test_what_is_bounded_at_points_is_bounded_everywhere_and_within_cells(columns):
    own, rng = frame(columns), np.random.default_rng(0)
    places = own.band(8.0)
    narrow = (0.1 + 0.9 * (places.states**2).mean(axis=1)).reshape(places.counts)  # known best in the middle
    band = a_band(columns, np.zeros(columns.size), narrow)
    errors = rng.standard_normal((1500, columns.size))
    at_points = np.abs(errors @ columns.values(places.states).T)
    errors /= (at_points / narrow.ravel()).max(axis=1, keepdims=True)  # as large as the points allow
    radius, values = band.radius(GRID, 0), np.abs(errors @ columns.values(GRID).T)
    assert (values <= radius + 1e-9).all() and (values / radius).max() > 0.8
    assert radius[len(GRID) // 2] < 0.4 < 0.9 < radius[0]  # far from the largest
    half, axis = np.array([0.05, 0.02]), np.linspace(-0.95, 0.95, 21)
    middles = mesh([axis, axis])
    near = middles[:, None] + half * rng.uniform(-1, 1, (len(middles), 20, 2))
    near = columns.values(np.clip(near, -1, 1).reshape(-1, 2)).reshape(len(middles), 20, -1)
    moved = np.abs(np.einsum("ek,npk->enp", errors[:100], near))
    within = sum(band.losses_in_cells(CellAxes([axis, axis], [np.full(21, h) for h in half]), 0).values())
    assert (moved.max(axis=(0, 2)) <= within.ravel() + 1e-9).all()


@pytest.mark.fine
def test_the_tube_is_what_brute_force_finds():
    columns = certirl.product(certirl.Legendre(2), certirl.Legendre(2)).on(SQUARE)
    plane = np.linalg.lstsq(columns.values(GRID), -GRID[:, 0], rcond=None)[0]  # J_0 − J_1 = −s_1
    lookup = expert_grid(as_policy(lambda s: (s[:, 0] > 0.1).astype(int), 2), SQUARE)
    assert np.allclose(lookup.switches[:, 0], 0.1, atol=6e-3)
    assert np.allclose(lookup.away, np.abs(lookup.states[:, 0] - 0.1), atol=6e-3)
    band = a_band(columns, plane, np.full(frame(columns).band(8.0).counts, 0.2))
    told = Bands((band,), np.array([0.3]), 1.0)
    reading = read(told, lookup, expert=0, allowed=0.5, widths=np.array([0.6]), discount=0.5)
    (margin,), tube = reading.margins, reading.tube
    cells = band.losses_in_cells(
        CellAxes([np.zeros(1)] * 2, [lookup.cells.sides[:1] / 2, lookup.cells.sides[1:] / 2]), 0
    )
    reached = float(sum(cells.values()).item())  # a little more than 0.2, by the mesh
    assert 0.2 <= reached < 0.3
    assert tube.undecided == pytest.approx(np.array([[[-reached, reached], [-1, 1]]]), abs=0.02)
    assert tube.share == pytest.approx(reached, abs=0.02) and tube.half_width == pytest.approx(reached + 0.1, abs=0.03)
    assert margin.value == pytest.approx(0.4 - reached, abs=0.03) and margin.state[0] == pytest.approx(-0.4, abs=0.03)
    assert tube.shortfall == pytest.approx(reached + 0.1, abs=0.02)
    # At the switch all of it is missing, within the tent's peak: its visits are met later.
    assert reading.regret == pytest.approx(0.5 * (tube.shortfall + 0.3 * tube.shortfall), rel=0.1)


def test_where_three_regions_meet_all_their_actions_count():
    lookup = expert_grid(
        as_policy(lambda s: np.where(s[:, 1] > 0.0012, 0, np.where(s[:, 0] > 0.0013, 1, 2)), 3), SQUARE
    )
    at = lookup.taken_at(np.array([[0.0012, 0.0011], [0.5, 0.0], [0.5, 0.5]]))
    assert at[:, 0].all() and (at[:, 1] == [True, True, False]).all() and (at[:, 2] == [True, False, False]).all()


def test_tents_are_no_lower_on_their_cells_than_is_said(certificate):
    lookup, s = certificate.tube.grid, certificate.grounds[0].surrogate
    states = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    said = lookup.tents(s.widths)[:, lookup.cells.cell(states)]
    assert (s.tents(states) >= said - 1e-12).all() and said.max() == 1.0
    assert (np.abs(lookup.states[lookup.cells.cell(states)] - states) <= lookup.cells.sides / 2 + 1e-12).all()


def test_states_are_drawn_beside_the_switches(case):
    design = Case.of(case.expert, COLUMNS, n_actions=3, discount=0.7, tail=0, tube=0.05).design
    states, lookup = design(4000, np.random.default_rng(0)), expert_grid(as_policy(case.expert, 3), SQUARE)
    near = lookup.away[lookup.cells.cell(states)] < 0.15
    plain = lookup.away[lookup.cells.cell(Even((COLUMNS,))(4000, np.random.default_rng(0)))] < 0.15
    assert near.mean() > plain.mean() + 0.15


@pytest.mark.slow
def test_the_truth_is_what_rollouts_see():
    problem = random_independent(seed=3)
    truth = Truth(problem, nodes=3, fine=80)
    expert = experiment.Greedy(truth, np.random.default_rng(0).normal(size=(3, 9)))
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
    assert found.margin > 0 and found.tube is None and found.regret == 0
    assert any("takes what it takes at the corners" in words for words in found.assumptions)
    by_number = certirl.certify(
        lambda s: s.sum(axis=1), whirl, samples=30_000, rng=0, progress=False, **settings | {"expert": 0}
    )
    assert by_number.margin == pytest.approx(found.margin, abs=1e-9)


@pytest.mark.slow
@pytest.mark.fine
def test_three_coordinates_work_alike():
    problem = random_independent(seed=2, dimension=3, actions=2)
    columns = certirl.product(*[certirl.Legendre(2)] * 3).on(problem.domain)
    settings = {"expert": lambda s: (s.sum(axis=1) > 0).astype(int), "discount": 0.5, "columns": columns, "tail": 0}
    found = certirl.certify(lambda s: s[:, 0], problem, samples=3_000, rng=0, tube=0.4, progress=False, **settings)
    assert not found.holds and "60 × 60 × 60 cells" in str(found.tube.grid)


@pytest.mark.slow
def test_solve_chooses_columns_by_the_tail_and_ends_with_what_it_has():
    whirl = Whirl(drift=((0.5, 0.5), (-0.5, -0.5)), angle=0.4, shrink=0.4, noise=0.8)
    settings = {"expert": experiment.middle_line, "discount": 0.5, "delta": 0.1, "rng": 0, "tube": 0.4}
    solution = certirl.solve(whirl, tail=lambda own: 0.5**own.size, samples=3_000, progress=False, **settings)
    assert solution.status != "certified" and solution.certificate.grounds[0].surrogate.columns.size == 15
    assert "where it switches" in str(solution.certificate) and "the margin is not proved" in str(solution)
    with pytest.raises(ValueError, match="pass columns as well"):
        certirl.solve(whirl, tail=0.1, **settings)


def test_the_map_shows_what_is_proved(certificate, tmp_path):
    ax = certificate.plot(path=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5_000 and "regret at most" in ax.get_title()
    assert any("not decided" in text.get_text() for text in ax.findobj(Text))
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


@pytest.mark.slow
def test_more_than_three_hundred_functions_have_a_bound():
    """A policy of two actions on a box with 190 columns each."""
    whirl = Whirl(drift=((0.5, 0.5), (-0.5, -0.5)), angle=0.4, shrink=0.4, noise=0.9)
    columns = of_degree(SQUARE, 18)
    settings = {"expert": experiment.middle_line, "discount": 0.5, "columns": columns, "tail": 0, "tube": 0.5}
    found = certirl.certify(lambda s: -(s**2).sum(axis=1), whirl, samples=400_000, rng=0, progress=False, **settings)
    assert len(found.grounds[0].surrogate.mix) == 380 and np.isfinite(found.margin)
