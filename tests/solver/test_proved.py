"""Solve until it is proved: from draws and from logs, within a budget, with a refutation where there is no reward."""

from itertools import product

import numpy as np
import pytest

import certirl
from certirl import dynamics, steps
from certirl.fit.choose import as_asked, widened
from certirl.ground.status import two_digits
from certirl.solver.value_form import proof_columns
from rounds import in_small_rounds
from shapes import extrema
from sizes import sizes

PROBLEM = certirl.problems.random_polynomial(seed=7)
COLUMNS = certirl.Legendre(3).on(PROBLEM.domain)
ASKED = {"expert": 0, "basis": certirl.Legendre(11), "columns": 3, "discount": 0.7, "delta": 0.05, "tail": 0, "rng": 0}


def test_solve_until_proved():
    reports = []
    solution = certirl.solve(PROBLEM, progress=False, **ASKED)
    assert solution.status == "certified" and solution.certificate.holds
    assert solution.samples < 60_000 and solution.certificate.delta == pytest.approx(0.05)
    assert PROBLEM.true_margin(solution.reward, discount=0.7) > solution.certificate.margin
    assert len(str(solution).splitlines()) == 6 and "assumed" in str(solution)
    again = certirl.solve(PROBLEM, progress=lambda *report: reports.append(report), **ASKED)
    np.testing.assert_array_equal(again.reward.coefficients, solution.reward.coefficients)
    assert reports[-1] == (solution.samples, 1_000_000)


@pytest.mark.parametrize(
    ("problem", "family"),
    sizes((certirl.problems.thermostat(noise=2.0), "Legendre"), (certirl.problems.circle(), "Fourier")),
    ids=lambda x: getattr(x, "name", x),
)
def test_basis_and_columns_are_chosen_for_the_tail(problem, family):
    solution = certirl.solve(problem, expert=0, discount=0.8, delta=0.05, tail=problem.tail, rng=0, samples=300_000)
    assert solution.status == "certified" and solution.basis.kind == family
    assert problem.true_margin(solution.reward, discount=0.8) > solution.certificate.margin


class Rooms:
    """Two rooms: affine drift, Gaussian noise, clipped."""

    n_actions, domain = 2, ((15.0, 25.0), (0.0, 10.0))

    def sample(self, states, action, rng):
        drift = 0.9 * states + (1.8, 0.4) + np.array([[1.5, 1.0], [-1.5, -1.0]])[action]
        return np.clip(drift + rng.normal(scale=(2.0, 4.0), size=states.shape), (15.0, 0.0), (25.0, 10.0))


@pytest.mark.slow
def test_columns_of_components_are_chosen_for_their_tails_or_given_as_functions():
    noise = dynamics.GaussianNoise(std=(2.0, 4.0), slope=((0.9, 0.0), (0.0, 0.9)))
    asked = {"expert": 0, "discount": 0.7, "delta": 0.05, "tail": noise, "rng": 0, "samples": 30_000}
    asked |= {"components": [[0], [1]]}
    chosen = certirl.solve(Rooms(), **asked)
    first, second = (component.columns.size for component in chosen.components)
    assert chosen.status == "certified" and first > second and f"{first} columns make the tail" in chosen.stats.choice
    functions = [certirl.Legendre(11), certirl.Legendre(7)]
    by_hand = certirl.solve(Rooms(), columns=functions, **asked)
    assert by_hand.status == "certified"
    assert [component.columns.size for component in by_hand.components] == [11, 7]
    counted = certirl.solve(Rooms(), basis=functions, columns=[11, 7], **asked)
    assert counted.certificate.margin == by_hand.certificate.margin
    with pytest.raises(ValueError, match=r"first functions of the basis, Legendre\(11\), got Chebyshev\(5\)"):
        certirl.solve(Rooms(), basis=functions, columns=[certirl.Chebyshev(5), 7], **asked)


def test_a_log_is_divided_and_proved():
    log = steps.sample(PROBLEM, basis=COLUMNS, samples=100_000, rng=3)
    proved = certirl.solve(log, **ASKED)
    assert proved.status == "certified" and proved.samples == 100_000
    undeclared = certirl.solve(log, **ASKED | {"tail": None})
    assert undeclared.status == "solved" and undeclared.certificate.word == "conditional"


def test_the_budget_is_respected_and_the_answer_says_what_is_missing():
    solution = certirl.solve(PROBLEM, samples=4_000, **ASKED)
    assert solution.status == "solved" and solution.samples == 4_000
    assert "should suffice" in str(solution) and not solution.certificate.holds


class Untouched:
    """A simulator that must not be asked."""

    n_actions, domain = 2, ((15.0, 25.0), (0.0, 1.0))

    def sample(self, states, action, rng):
        raise AssertionError("nothing should be drawn")


def test_a_tail_that_is_hopeless_is_refused_before_anything_is_drawn():
    noise = dynamics.GaussianNoise(std=1.0, slope=0.9)
    rooms, asked = Untouched(), {"discount": 0.9, "delta": 0.05, "tail": noise, "rng": 0}
    cure = r"with discount=0.9 a proof needs τ < 0.\d+: use at least \d+ columns \(τ = 0.\d+\)"
    few, warm = certirl.product(certirl.Legendre(2), certirl.Legendre(2)), {"expert": lambda s: s[:, 0] > 20}
    for settings in ({"basis": few, "columns": 3}, {"columns": few}, {"columns": few} | warm):
        with pytest.raises(ValueError, match=f"^3 columns give τ = 1; {cure}$"):
            certirl.solve(rooms, **asked | {"expert": 0} | settings)
    with pytest.raises(ValueError, match=f"^3 columns give τ = 1; {cure}$"):
        certirl.certify(lambda s: s[:, 0], rooms, expert=0, columns=few, **asked)
    parts = {"components": {"heat": [0], "damp": [1]}, "basis": [certirl.Legendre(3), certirl.Legendre(5)]}
    with pytest.raises(ValueError, match=f"^3 columns of heat give τ = 1; {cure}$"):
        certirl.solve(rooms, expert=0, **asked, **parts, columns=[certirl.Legendre(3), 5])
    sharp = asked | {"tail": dynamics.GaussianNoise(std=0.01, slope=0.9)}  # columns would be chosen by it
    for settings in ({}, {"columns": 3}, {"components": [[0], [1]]}, warm):
        with pytest.raises(
            ValueError,
            match=r"give τ = 1; .* no number of columns up to 500 is enough; what is declared must be smoother",
        ):
            certirl.solve(rooms, **sharp | {"expert": 0} | settings)


def test_a_tail_that_is_too_large_ends_the_search():
    solution = certirl.solve(PROBLEM, **ASKED | {"tail": 0.02})
    assert solution.status == "solved" and solution.samples < 100_000 and not solution.certificate.holds
    sentence = "3 columns give τ = 0.02; this margin needs τ < "
    assert sentence in str(solution) and sentence in str(solution.certificate)


@pytest.mark.parametrize("count", sizes(2, 10))
def test_nothing_unsolvable_is_certified(count):
    for seed in range(count):
        problem = certirl.problems.unsolvable(seed=seed)
        solution = certirl.solve(problem, samples=20_000, **ASKED | {"delta": 0.2})
        assert solution.status != "certified"


def test_an_expert_that_no_reward_explains_is_certified_infeasible(tmp_path):
    room = certirl.problems.thermostat()
    asked = {"basis": certirl.Legendre(4), "discount": 0.9, "expert": 1, "rng": 0, "delta": 0.05}
    solution = certirl.solve(room, columns=4, tail=0.0, samples=100_000, **asked)
    assert solution.status == "infeasible" and str(solution).startswith("Certified infeasible")
    again = certirl.load(solution.save(tmp_path / "none.npz")).refutation
    assert (again.estimated, again.margin, again.losses) == (
        pytest.approx(solution.refutation.estimated),
        pytest.approx(solution.refutation.margin),
        pytest.approx(solution.refutation.losses),
    )
    doubtful = certirl.solve(room, columns=4, samples=20_000, **asked)  # no tail declared: nothing is proved
    assert doubtful.status == "undetermined" and "beyond the sampling error, but no tail was declared" in str(doubtful)
    little = certirl.solve(room, columns=4, tail=0.0, samples=200, **asked)
    assert little.status == "undetermined" and "not beyond the sampling error" in str(little)


# Seed of the problem, seed of the data, size of the basis.
RUNS = [(20, 3, 4)], list(product((20, 34), range(4), (4, 5)))


@pytest.mark.parametrize("runs", sizes(RUNS[0], (RUNS[1],)), ids=len)
def test_training_that_turns_infeasible_in_the_last_round_is_an_answer(monkeypatch, runs):
    asked = {"expert": 0, "columns": 3, "discount": 0.7, "delta": 0.05, "tail": 0}
    rounds = in_small_rounds(monkeypatch)
    turned = 0
    for seed, rng, size in runs:
        rounds.clear()
        problem = certirl.problems.random_polynomial(seed=seed, actions=4, degree=10)
        solution = certirl.solve(problem, basis=certirl.Legendre(size), samples=1_500, rng=rng, **asked)
        assert solution.samples <= 1_500
        if rounds[-1] == 0 < max(rounds):
            turned += 1
            assert solution.status in {"undetermined", "infeasible"} and solution.reward is None
            assert "contradict each other" in solution.reason
            assert solution.refutation is None or str(solution.refutation).startswith("Undetermined")
    assert turned > 0


def test_a_number_as_tail_needs_columns():
    with pytest.raises(ValueError, match="pass columns as well"):
        certirl.solve(PROBLEM, **ASKED | {"columns": None})
    with pytest.raises(ValueError, match="samples must be at least 160 for 3 columns, got 9"):
        certirl.solve(PROBLEM, samples=9, **ASKED)
    with pytest.raises(ValueError, match="leave form, cover and slack out"):
        certirl.solve(PROBLEM, method=certirl.Program(cover=0.1), **ASKED)


def test_a_conflict_within_the_tail_asks_for_columns_and_not_for_samples():
    room = certirl.problems.thermostat(power=(0.0, 1.5, -1.5), noise=3.0)
    asked = {"basis": certirl.Legendre(2), "columns": 2, "delta": 0.05, "tail": 0.17, "samples": 20_000, "rng": 0}
    reason = certirl.solve(room, discount=0.7, expert=0, **asked).reason
    assert "not beyond what the columns may miss" in reason and "more columns" in reason and "samples" not in reason


class Windy:
    """A drift of slope 0.5 and noise of few derivatives, clipped."""

    n_actions, domain = 2, ((0.0, 10.0),)

    def sample(self, states, action, rng):
        return np.clip(0.5 * states + (4.0, 1.0)[action] + rng.laplace(scale=2.0, size=states.shape), 0.0, 10.0)


def test_columns_are_those_that_the_tail_needs_or_the_cheapest():
    rows = certirl.Legendre(7, (0, 10))
    moments = steps.measure(steps.sample(Windy(), basis=rows, samples=2_000, rng=0), basis=rows, columns=3)
    choice = as_asked(rows.components, 3)
    for tail, size in (
        (lambda k: 0.0, 3),
        (lambda k: 2.0**-k, 9),
        (lambda k: 1.0 / k**2, 22),
        (lambda k: 1.0 / k, 99),
        (lambda k: 2.0**-k + 0.01 + 0.01 * k, 6),  # more columns are worse
    ):
        wide = widened([moments], choice, lambda _, columns, tail=tail: tail(columns.size), discount=0.7, expert=0)
        assert wide.columns == (size,) and wide.bases[0].size == max(size, 7)
    switching = {"domain": ((0.0, 10.0),), "discount": 0.7, "periodic": ()}
    assert proof_columns(None, lambda columns: 300.0 / columns.size**2, **switching).size > 250  # 40 give no proof
    assert proof_columns(None, lambda columns: 60.0 / columns.size**2, **switching).size == 40


def test_as_many_columns_are_taken_as_an_error_asks_for():
    asked = {"discount": 0.7, "expert": 0, "delta": 0.05, "samples": 1_000, "rng": 0, "progress": False}
    noise = dynamics.LaplaceNoise(2.0, slope=0.5)
    with pytest.raises(ValueError, match=r"^6 columns give τ = 0\.26; .*: use at least 7 columns"):
        certirl.solve(Windy(), tail=noise, columns=6, **asked)
    estimate = certirl.solve(
        Windy(), expert=0, discount=0.7, columns=23, samples=400, rng=0
    )  # more than usual rewards have
    assert estimate.basis.size == 23 and "23 columns (as asked), 23 rows" in estimate.stats.choice


@pytest.mark.slow
def test_what_is_missing_from_a_log_is_told_in_its_rows_and_by_other_ways():
    room = certirl.problems.thermostat(noise=3.0)
    log = steps.sample(room, basis=certirl.Legendre(5), samples=80_000, rng=0)
    asked = {"discount": 0.7, "delta": 0.05, "tail": dynamics.GaussianNoise(std=3.0, slope=1.0)}
    found = certirl.solve(log, expert=0, **asked)
    rows = 3 * 80_000 * found.certificate.samples_needed / found.certificate.samples
    assert f"a log of about {two_digits(int(rows))} rows should suffice (30% of them" in found.reason
    assert (
        "far fewer for dynamics=certirl.dynamics.AffineGaussian(…) in certirl.certify if the standard" in found.reason
    )


def test_a_wider_tube_that_would_do_is_named():
    room = certirl.problems.comfort(noise=0.6)
    log = steps.sample(room.dynamics, basis=certirl.Legendre(7), samples=40_000, rng=0)
    asked = {"discount": 0.5, "expert": room.expert, "columns": 7, "delta": 0.05, "tail": room.dynamics.tail}
    narrow = certirl.solve(log, tube=0.03, **asked)
    wider = narrow.certificate.wider_tube
    said = f"the same data prove it farther than {wider:g} from the switches, at the same δ: certificate.with_tube("
    assert not narrow.certificate.holds and said in narrow.reason and said in str(narrow.certificate)
    assert "  tube     " in str(narrow) and "; regret at most" in str(narrow)
    assert narrow.certificate.with_tube(wider).holds


@pytest.mark.slow
def test_rewards_that_explain_a_thermostat_do_not_wiggle_proved_or_not():
    room = certirl.problems.comfort(noise=0.6)
    asked = {"discount": 0.5, "expert": room.expert, "rng": 0}
    proved = certirl.solve(room.dynamics, delta=0.05, tail=room.dynamics.tail, columns=7, **asked)
    found = certirl.solve(room.dynamics, samples=10_000, trials=0, **asked)
    rough = certirl.solve(room.dynamics, samples=10_000, trials=0, method=certirl.ValueForm(smoothness=0), **asked)
    assert proved.status == "certified" and extrema(proved.reward) <= 3
    assert extrema(found.reward) <= 3 < extrema(rough.reward)


class Contradictory:
    """A tank whose expert no reward explains: full power below 1.2, half of it up to 1.8, none above.

    s' = 0.8 s + u + noise, so that half at s = (y − 0.3)/0.8 against full, and half at y/0.8 against none, compare the
    same two next states in both directions.
    """

    n_actions, domain = 3, ((0.0, 3.0),)
    tail = dynamics.GaussianNoise(0.25, slope=0.8)

    def sample(self, states, action, rng):
        return np.clip(0.8 * states + (0, 0.3, 0.6)[action] + rng.normal(scale=0.25, size=states.shape), 0, 3)

    @staticmethod
    def expert(states):
        return np.where(states[:, 0] < 1.2, 2, np.where(states[:, 0] < 1.8, 1, 0))


TANK = {"discount": 0.9, "expert": Contradictory.expert, "delta": 0.05, "tail": Contradictory.tail, "rng": 0}


def test_no_number_of_samples_is_forecast_from_a_margin_within_its_noise():
    found = certirl.solve(Contradictory(), samples=3_000, trials=500, tube=0.075, **TANK)
    assert found.status == "solved" and found.certificate.samples_needed is None
    assert "whether the margin is positive cannot be told yet (" in found.reason
    assert "should suffice" not in str(found) + str(found.certificate)


def test_where_margins_stay_negative_a_witness_is_looked_for(tmp_path):
    asked = {"basis": certirl.Legendre(3), "columns": 20, "samples": 60_000}
    found = certirl.solve(Contradictory(), tube=0.075, **asked, **TANK)
    assert found.status == "infeasible" and found.refutation.holds and found.witness is not None
    assert certirl.check(found.save(tmp_path / "refuted")).verdict == "confirmed"
