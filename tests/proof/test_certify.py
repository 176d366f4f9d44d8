"""Certificates are true: false ones are counted, every loss is needed, and words are used with care."""

import sys
from pathlib import Path

import numpy as np
import pytest

import certirl
from certirl.data.simulator import draw
from certirl.data.transitions import pieces
from certirl.proof import bounds
from certirl.proof.bounds import lower_bounds
from certirl.proof.certify import certify
from certirl.proof.evidence import Evidence, fit_surrogate, gather
from certirl.solver.prove import left_for_refutation
from sizes import sizes

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
import certificates as study

PROBLEM = certirl.problems.random_polynomial(seed=7)
COLUMNS = certirl.Legendre(3).on(PROBLEM.domain)
REWARD = certirl.solve(
    PROBLEM, basis=certirl.Legendre(11), columns=3, discount=0.7, samples=20_000, rng=0, progress=False
).reward
GIVEN = {"discount": 0.7, "columns": COLUMNS, "rng": 1}


@pytest.fixture(scope="module")
def certificate():
    return certify(REWARD, PROBLEM, tail=0, samples=50_000, **GIVEN)


def test_a_right_reward_is_certified_below_its_true_margin(certificate):
    truth = PROBLEM.true_margin(REWARD, discount=0.7)
    assert certificate.holds and certificate.word == "certified"
    assert 0 < certificate.margin < truth
    assert abs(certificate.estimated - truth) < certificate.losses["estimation"]


def test_the_losses_add_up(certificate):
    assert certificate.margin == pytest.approx(certificate.estimated - sum(certificate.losses.values()), abs=1e-12)
    assert set(certificate.losses) == {
        "estimation",
        "grid",
        "second order",
        "truncation tail",
        "solver",
        "floating point",
    }
    assert 0 < certificate.losses["floating point"] < 1e-6


def test_delta_is_spent_in_the_open(certificate):
    assert certificate.delta == pytest.approx(0.05) == pytest.approx(sum(certificate.spending.values()))


def test_assumptions_are_named(certificate):
    text = str(certificate)
    assert "independent" in text and "without looking" in text and "exactly a combination" in text


def test_without_a_tail_it_is_conditional_never_certified():
    found = certify(REWARD, PROBLEM, samples=50_000, **GIVEN)
    assert found.margin > 0 and not found.holds
    assert found.word == "conditional" and "NOT DECLARED" in str(found) and "ertified with" not in str(found)


def test_more_samples_are_asked_for_and_suffice():
    few = certify(REWARD, PROBLEM, tail=0, samples=6_000, **GIVEN)
    assert not few.holds and few.samples_needed > few.samples
    assert certify(REWARD, PROBLEM, tail=0, samples=int(2.5 * few.samples_needed), **GIVEN).holds


def test_a_wrong_reward_is_not_certified():
    found = certify(lambda s: np.sin(3 * s), PROBLEM, tail=0, samples=20_000, **GIVEN)
    assert not found.holds and found.samples_needed is None
    assert any("reward stays within" in words for words in found.assumptions)


def test_any_function_can_be_certified():
    """The same reward as an expansion, as a plain function and as a polynomial: the same proof."""
    power = np.polynomial.Polynomial(
        np.polynomial.legendre.leg2poly(REWARD.coefficients * np.sqrt(np.arange(11) + 0.5))
    )
    exact = certify(REWARD, PROBLEM, tail=0, samples=60_000, **GIVEN)
    for other in (lambda s: REWARD(s), lambda s: power(s[:, 0])):
        found = certify(other, PROBLEM, tail=0, samples=60_000, **GIVEN)
        assert found.holds
        assert found.estimated == pytest.approx(exact.estimated, rel=1e-6)
        assert found.margin <= exact.margin + 1e-9  # its range is known less well


def test_a_solution_brings_its_own_problem():
    solution = certirl.solve(PROBLEM, basis=certirl.Legendre(11), columns=3, discount=0.7, samples=20_000, rng=0)
    assert certify(solution, PROBLEM, tail=0, samples=50_000, rng=1).holds


@pytest.mark.parametrize("runs", sizes(40, 150))
@pytest.mark.parametrize("paired", [True, False])
def test_bounds_hold_over_many_data_sets(paired, runs):
    """The certified margin exceeds the true one in at most δ of the runs; here never."""
    basis, wrong = certirl.Legendre(9).on(PROBLEM.domain), 0
    truth = PROBLEM.true_margin(REWARD, discount=0.7)
    for seed in range(runs):
        streams = np.random.default_rng(seed).spawn(2)
        training = draw(PROBLEM, basis, 300, streams[0], design=True, paired=paired)
        fresh = draw(PROBLEM, basis, 1_500, streams[1], design=True, paired=paired)
        surrogate = fit_surrogate(REWARD, training, columns=COLUMNS, n_actions=3, discount=0.7, expert=0)
        found = lower_bounds(surrogate, gather(surrogate, fresh), delta=0.2, tail=0.0)
        wrong += min(bound.margin for bound in found) > truth
    assert wrong == 0


@pytest.mark.parametrize("count", sizes(10, 30))
def test_soundness_of_the_study_at_small_size(count):
    runs = [run for run in map(study.judge, range(count)) if run is not None]
    assert sum(run["holds"] for run in runs) >= count // 6
    assert sum(run["false"] for run in runs) == 0
    assert sum(run["above"] for run in runs) == 0


# --- every loss is needed: without it, a bound that must lie below the truth lies above ----------------------------


def perfect_evidence(problem, surrogate, n=1e12):
    """What infinitely many independent transitions would say, by quadrature: no sampling error to hide behind."""
    y, _ = problem._quadrature()
    s, w = surrogate.columns.quadrature(400)
    x, w = surrogate.columns.values(s), w / w.sum()
    phi, value = surrogate.columns.values(y), surrogate.value(y)
    A, ks = problem.n_actions, surrogate.columns.size
    sums = {"surprise": [], "drift": [], "wobble": []}
    spread = np.zeros((A, A, ks, ks))
    for c in range(A):
        kernel = problem._kernel(s, c)
        fit, rows = x @ surrogate.fits[c], x @ surrogate.Z[c].T
        mean, square = kernel @ value, kernel @ value**2
        sums["surprise"].append(x.T @ (w * (mean - fit)))
        spread[c, c] = (x * (w * (square - 2 * fit * mean + fit**2))[:, None]).T @ x
        sums["drift"].append((w[:, None] * (kernel @ phi - rows)).T @ x)
        second = kernel @ phi**2 - 2 * rows * (kernel @ phi) + rows**2
        sums["wobble"].append(np.einsum("ni,nj,nl,n->lij", x, x, second, w))
    gram = np.tile((x * w[:, None]).T @ x, (A, 1, 1))
    surprise, drift, wobble = (n * np.array(sums[name]) for name in ("surprise", "drift", "wobble"))
    reached = np.zeros((A, 0))
    return Evidence(np.full(A, int(n)), n * gram, surprise, n * spread, drift, wobble, reached, paired=False)


def rough_surrogate(problem, columns, reward, discount, seed, samples=60):
    training = draw(problem, columns, samples, np.random.default_rng(seed), design=True)
    return fit_surrogate(reward, training, columns=columns, n_actions=problem.n_actions, discount=discount, expert=0)


def share_above(problem, columns, reward, discount, tail, runs=20):
    """How often the bound from perfect evidence and a rough surrogate lies above the true margin."""
    truth, above = problem.true_margin(reward, discount=discount), 0
    for seed in range(runs):
        surrogate = rough_surrogate(problem, columns, reward, discount, seed)
        found = lower_bounds(surrogate, perfect_evidence(problem, surrogate), delta=0.05, tail=tail)
        above += min(bound.margin for bound in found) > truth + 1e-9
    return above / runs


def test_second_order_is_needed(monkeypatch):
    assert share_above(PROBLEM, COLUMNS, REWARD, 0.7, 0.0) == 0
    monkeypatch.setattr(bounds, "_second_order", lambda work, delta, crude: dict.fromkeys(work.s.rivals, 0.0))
    assert share_above(PROBLEM, COLUMNS, REWARD, 0.7, 0.0) > 0.05  # more than δ


def test_the_tail_is_needed():
    problem = certirl.problems.thermostat()
    columns = certirl.Legendre(3).on(problem.domain)
    reward = certirl.recover(certirl.bellman(problem.operators(certirl.Legendre(15)), discount=0.9)).reward
    above = {}
    for tail in (problem.tail(columns), 0.0):
        truth = problem.true_margin(reward, discount=0.9)
        surrogate = rough_surrogate(problem, columns, reward, 0.9, 0, samples=200_000)
        found = lower_bounds(surrogate, perfect_evidence(problem, surrogate), delta=0.05, tail=tail)
        above[tail > 0] = min(bound.margin for bound in found) > truth
    assert above == {True: False, False: True}


def test_the_band_is_needed(monkeypatch):
    whole = bounds.empirical_bernstein
    monkeypatch.setattr(bounds, "empirical_bernstein", lambda *args: 0.0 * whole(*args))
    truth, above = PROBLEM.true_margin(REWARD, discount=0.7), 0
    for seed in range(100):
        streams = np.random.default_rng(seed).spawn(2)
        training = draw(PROBLEM, COLUMNS, 20_000, streams[0], design=True, paired=True)
        surrogate = fit_surrogate(REWARD, training, columns=COLUMNS, n_actions=3, discount=0.7, expert=0)
        fresh = draw(PROBLEM, COLUMNS, 8_000, streams[1], design=True, paired=True)
        above += min(b.margin for b in lower_bounds(surrogate, gather(surrogate, fresh), delta=0.05, tail=0.0)) > truth
    assert above > 5  # more than δ of a hundred: the count of false bounds would show it


# --- plumbing --------------------------------------------------------------------------------------------------------


def test_evidence_adds_up():
    data = certirl.sample(PROBLEM, basis=COLUMNS, samples=900, rng=0, paired=True)
    surrogate = fit_surrogate(REWARD, pieces(data, 900), columns=COLUMNS, n_actions=3, discount=0.7, expert=0)
    whole = gather(surrogate, pieces(data, 900))
    parts = [gather(surrogate, [piece]) for piece in pieces(data, 300)]
    added = parts[0] + parts[1] + parts[2]
    for name in ("counts", "gram", "surprise", "spread", "drift", "wobble"):
        np.testing.assert_allclose(getattr(added, name), getattr(whole, name), atol=1e-8)


def test_evidence_equals_the_plain_sums():
    data = certirl.sample(PROBLEM, basis=COLUMNS, samples=200, rng=0, paired=True)
    surrogate = fit_surrogate(REWARD, pieces(data, 900), columns=COLUMNS, n_actions=3, discount=0.7, expert=0)
    found = gather(surrogate, pieces(data, 77))
    x = COLUMNS.values(data.of_action(0)[0])
    Y = [surrogate.value(data.of_action(c)[1]) - x @ surrogate.fits[c] for c in range(3)]
    E = [COLUMNS.values(data.of_action(c)[1]) - x @ surrogate.Z[c].T for c in range(3)]
    np.testing.assert_allclose(found.spread[0, 2], (x * (Y[0] * Y[2])[:, None]).T @ x, atol=1e-8)
    np.testing.assert_allclose(found.drift[1], E[1].T @ x, atol=1e-8)
    np.testing.assert_allclose(found.wobble[2, 1], (x * ((E[0] - E[2])[:, 1] ** 2)[:, None]).T @ x, atol=1e-8)
    np.testing.assert_allclose(found.wobble[0, 1], (x * (E[0][:, 1] ** 2)[:, None]).T @ x, atol=1e-8)


def test_solve_until_proved():
    reports = []
    solution = certirl.solve(
        PROBLEM, basis=certirl.Legendre(11), columns=3, discount=0.7, delta=0.05, tail=0, rng=0, progress=False
    )
    assert solution.status == "certified" and solution.certificate.holds
    assert solution.samples < 60_000 and solution.certificate.delta == pytest.approx(0.05)
    assert PROBLEM.true_margin(solution.reward, discount=0.7) > solution.certificate.margin
    assert len(str(solution).splitlines()) == 6 and "assumed" in str(solution)
    again = certirl.solve(
        PROBLEM,
        basis=certirl.Legendre(11),
        columns=3,
        discount=0.7,
        delta=0.05,
        tail=0,
        rng=0,
        progress=lambda *report: reports.append(report),
    )
    np.testing.assert_array_equal(again.reward.coefficients, solution.reward.coefficients)
    assert reports[-1] == (solution.samples, 1_000_000)


@pytest.mark.parametrize(
    ("problem", "family"),
    [(certirl.problems.thermostat(noise=2.0), "Legendre"), (certirl.problems.circle(), "Fourier")],
    ids=lambda x: getattr(x, "name", x),
)
def test_basis_and_columns_are_chosen_for_the_tail(problem, family):
    solution = certirl.solve(problem, discount=0.8, delta=0.05, tail=problem.tail, rng=0, max_samples=300_000)
    assert solution.status == "certified" and solution.basis.kind == family
    assert problem.true_margin(solution.reward, discount=0.8) > solution.certificate.margin


def test_a_log_is_divided_and_proved():
    log = certirl.sample(PROBLEM, basis=COLUMNS, samples=100_000, rng=3)
    asked = {"basis": certirl.Legendre(11), "columns": 3, "discount": 0.7, "delta": 0.05}
    proved = certirl.solve(log, tail=0, **asked)
    assert proved.status == "certified" and proved.samples == 100_000
    undeclared = certirl.solve(log, **asked)
    assert undeclared.status == "solved" and undeclared.certificate.word == "conditional"


def test_the_budget_is_respected_and_the_answer_says_what_is_missing():
    solution = certirl.solve(
        PROBLEM, basis=certirl.Legendre(11), columns=3, discount=0.7, delta=0.05, tail=0, rng=0, max_samples=9_000
    )
    assert solution.status == "solved" and solution.samples == 9_000
    assert "should do" in str(solution) and not solution.certificate.holds


def test_nothing_unsolvable_is_certified():
    for seed in range(10):
        problem = certirl.problems.unsolvable(seed=seed)
        solution = certirl.solve(
            problem, basis=certirl.Legendre(11), columns=3, discount=0.7, delta=0.2, tail=0, rng=0, max_samples=20_000
        )
        assert solution.status != "certified"


def test_an_expert_that_no_reward_explains_is_certified_infeasible(tmp_path):
    room = certirl.problems.thermostat()
    asked = {"basis": certirl.Legendre(4), "discount": 0.9, "expert": 1, "rng": 0, "delta": 0.05}
    solution = certirl.solve(room, columns=4, tail=0.0, max_samples=100_000, **asked)
    assert solution.status == "infeasible" and str(solution).startswith("Certified infeasible")
    assert certirl.load(solution.save(tmp_path / "none.npz")).refutation == solution.refutation
    doubtful = certirl.solve(room, columns=4, max_samples=20_000, **asked)  # no tail declared: nothing is proved
    assert doubtful.status == "undetermined" and "beyond the sampling error, but no tail was declared" in str(doubtful)
    little = certirl.solve(room, columns=4, tail=0.0, max_samples=200, **asked)
    assert little.status == "undetermined" and "not beyond the sampling error" in str(little)


@pytest.mark.parametrize(("seed", "rng", "size"), [(34, 1, 4), (34, 2, 4), (42, 3, 4), (4, 2, 5), (5, 2, 4), (7, 1, 5)])
def test_training_that_turns_infeasible_in_the_last_round_is_an_answer(seed, rng, size):
    problem = certirl.problems.random_polynomial(seed=seed, actions=4, degree=10)
    asked = {"basis": certirl.Legendre(size), "columns": 3, "discount": 0.7, "delta": 0.05, "tail": 0}
    solution = certirl.solve(problem, max_samples=1_500, rng=rng, **asked)
    assert solution.status in {"undetermined", "infeasible"} and solution.samples <= 1_500
    assert "contradict each other" in solution.reason and solution.refutation.startswith("Undetermined")


def test_a_refutation_gets_half_of_the_budget_or_what_the_search_left():
    assert left_for_refutation(100_001, 30_000, columns=3) == 50_001
    assert left_for_refutation(100_000, 95_000, columns=3) == 5_000
    assert left_for_refutation(100_000, 99_990, columns=3) == left_for_refutation(1_000, 1_000, columns=3) == 0


def test_a_conflict_that_no_data_were_left_to_prove_is_undetermined(monkeypatch):
    monkeypatch.setattr("certirl.solver.solve_action.left_for_refutation", lambda *_: 0)
    room = certirl.problems.thermostat()
    asked = {"basis": certirl.Legendre(4), "discount": 0.9, "expert": 1, "rng": 0, "delta": 0.05}
    solution = certirl.solve(room, columns=4, tail=0.0, max_samples=2_000, **asked)
    assert solution.status == "undetermined" and "too few transitions were left to prove it" in str(solution)


def test_a_certificate_survives_the_file(tmp_path):
    solution = certirl.solve(PROBLEM, basis=certirl.Legendre(11), columns=3, discount=0.7, delta=0.05, tail=0, rng=0)
    again = certirl.load(solution.save(tmp_path / "proof.npz"))
    for one, other in ((again, solution), (again.certificate, solution.certificate)):
        assert str(one).splitlines()[1:] == str(other).splitlines()[1:]
        assert str(one).startswith("Claims to be certified with probability 0.95 (not verified: certirl check ")
    np.testing.assert_array_equal(again.certificate.evidence.wobble, solution.certificate.evidence.wobble)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"delta": 0.0}, ValueError, "delta must be a number strictly"),
        ({"delta": 1.0}, ValueError, "delta must be a number strictly"),
        ({"tail": -1.0}, ValueError, "not below 0"),
        ({"discount": None}, ValueError, "pass discount and columns"),
        ({"columns": None}, ValueError, "pass discount and columns"),
        ({"discount": 1.0}, ValueError, "strictly between 0 and 1"),
        ({"expert": 5}, ValueError, "one of the actions"),
        ({"samples": 3}, ValueError, "samples must be at least 4 for 3 columns, got 3"),
        ({"rng": None}, TypeError, "rng is needed"),
    ],
)
def test_bad_settings_of_certify(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        certify(REWARD, PROBLEM, **{"tail": 0, "samples": 1_000, **GIVEN, **settings})


def test_bad_rewards_are_refused():
    for reward, error, sentence in (
        (3.0, TypeError, "must be a function"),
        (lambda s: s * np.nan, ValueError, "finite"),
    ):
        with pytest.raises(error, match=sentence):
            certify(reward, PROBLEM, tail=0, samples=1_000, **GIVEN)


def test_an_infinite_tail_proves_nothing():
    found = certify(REWARD, PROBLEM, tail=certirl.Smooth(5, 1.0), samples=20_000, **GIVEN)
    assert found.margin == -np.inf and found.word == "not certified" and found.samples_needed is None


def test_a_huge_constant_costs_digits_and_makes_no_false_certificate():
    flat = certirl.Reward(certirl.Legendre(1, (-1, 1)), [1e6])
    for seed in range(20):
        found = certify(flat, PROBLEM, tail=0, discount=0.7, columns=COLUMNS.resized(1), samples=500, rng=seed)
        assert not found.holds


def test_a_domain_read_off_the_data_is_no_ground_for_a_proof():
    data = certirl.sample(PROBLEM, basis=COLUMNS, samples=500, rng=0)
    undeclared = certirl.Transitions(data.states, data.actions, data.next_states)
    with pytest.raises(ValueError, match="declared domain"):
        certify(REWARD, undeclared, tail=0, **GIVEN | {"columns": certirl.Legendre(3)})
    with pytest.raises(ValueError, match="declared domain"):
        certirl.solve(undeclared, basis=certirl.Legendre(5), columns=3, discount=0.7, delta=0.05, tail=0)


def test_a_number_as_tail_needs_columns():
    with pytest.raises(ValueError, match="pass columns as well"):
        certirl.solve(PROBLEM, basis=certirl.Legendre(11), discount=0.7, delta=0.05, tail=0, rng=0)
    with pytest.raises(ValueError, match="max_samples must be at least"):
        certirl.solve(
            PROBLEM, basis=certirl.Legendre(5), columns=3, discount=0.7, delta=0.05, tail=0, max_samples=9, rng=0
        )
    with pytest.raises(ValueError, match="leave form, cover and slack out"):
        certirl.solve(PROBLEM, basis=certirl.Legendre(11), discount=0.7, delta=0.05, cover=0.1, rng=0)
