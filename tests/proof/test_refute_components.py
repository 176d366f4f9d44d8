"""Certified infeasibility of sums: never false, linear in the number of components, honest in between."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from test_components import log_of
from test_refute import nearly_unsolvable

import certirl
import files
from certirl.functions.components import as_components
from certirl.problems import Independent, independent, random_polynomial, thermostat, unsolvable
from certirl.proof.certify import refute
from rounds import in_small_rounds
from sizes import sizes

BASIS = certirl.Legendre(3)
ROOM = thermostat()
SETTINGS = {"expert": 1, "basis": BASIS, "columns": 12, "tail": ROOM.tail, "rng": 0}


def rows_of(problem, expert, k, columns=12, points=201):
    """ρ_ja(s) of every component and rival by quadrature: ``[J][A − 1][points, k − 1]``."""
    found = []
    for part in problem.parts:
        operators = part.operators(certirl.Legendre(max(k, columns)), columns)
        x = operators.basis.resized(columns).values(np.linspace(*part.domain[0], points))
        rivals = [a for a in range(part.n_actions) if a != expert]
        found.append([x @ (operators.Z[expert] - operators.Z[a])[1:k].T for a in rivals])
    return found


def best_margin(rows):
    """The largest min_a Σ_j min_s w_j·ρ_ja(s) over Σ‖w_j‖₁ ≤ 1, by another program and another solver."""
    J, R, p = len(rows), len(rows[0]), rows[0][0].shape[1]
    size = 2 * J * p + J * R + 1  # w⁺, w⁻, m_ja, margin
    upper = []
    for j, own in enumerate(rows):
        for a, values in enumerate(own):
            block = np.zeros((len(values), size))
            block[:, j * p : (j + 1) * p], block[:, (J + j) * p : (J + j + 1) * p] = -values, values
            block[:, 2 * J * p + j * R + a] = 1.0
            upper.append(block)
    for a in range(R):
        row = np.zeros((1, size))
        row[0, 2 * J * p + a : -1 : R], row[0, -1] = -1.0, 1.0
        upper.append(row)
    norm = np.zeros((1, size))
    norm[0, : 2 * J * p] = 1.0
    matrix, limits = np.vstack([*upper, norm]), [(0, None)] * (2 * J * p) + [(None, None)] * (J * R + 1)
    right, cost = np.append(np.zeros(len(matrix) - 1), 1.0), np.zeros(size)
    cost[-1] = -1.0
    return -linprog(cost, A_ub=matrix, b_ub=right, bounds=limits).fun


@pytest.mark.parametrize("components", [1, *sizes(2, 3)])
def test_rooms_side_by_side_are_refuted_with_hardly_more_data_than_one(components):
    problem = Independent((ROOM,) * components, "rooms")
    assert best_margin(rows_of(problem, 1, 3)) < 1e-9  # the truth: there is no such sum
    found = refute(problem, components=problem.components, samples=6_000, **SETTINGS)
    assert found.holds and found.ceiling == 0
    rewards, lie = ("sum of rewards", "values lie") if components > 1 else ("reward", "value lies")
    claim = f"no {rewards} of the state whose {lie} in Legendre(3)"
    assert str(found).startswith(f"Certified infeasible with probability 0.95: {claim}")
    assert ("depends on its own state alone" in str(found)) == (components > 1)


def test_every_value_is_refuted_by_the_named_rows_of_the_true_dynamics():
    problem = Independent((ROOM,) * 2, "rooms")
    found = refute(problem, components=problem.components, samples=10_000, **SETTINGS)
    rng = np.random.default_rng(0)
    covers = [ground.cover for ground in found.grounds]
    shares = [covers[0].mixtures[0][covers[0].actions == a].sum() for a in (0, 2)]
    assert sum(shares) == pytest.approx(1)
    for cover, rows in zip(covers, rows_of(problem, 1, 3), strict=True):
        for mixture in cover.mixtures:  # every mixture has the same weight of each alternative
            np.testing.assert_allclose([mixture[cover.actions == a].sum() for a in (0, 2)], shares, atol=1e-12)
        w = rng.normal(size=(2_000, 2))
        lowest = sum(share * (w @ own.T).min(axis=1) for share, own in zip(shares, rows, strict=True))
        assert (lowest < 0).all()


def test_parts_that_are_hopeless_alone_but_not_together_are_never_refuted():
    # One room is heated strongly and cooled weakly, the other the other way round: liking the first cool and the second
    # warm explains doing nothing, though neither room alone can.
    first, second = thermostat(power=(1.5, 0.0, -0.3)), thermostat(power=(0.3, 0.0, -1.5))
    both = Independent((first, second), "rooms")
    assert best_margin(rows_of(both, 1, 3)) > 0.01
    for room in (first, second):
        alone = Independent((room,), "room")
        assert refute(alone, components=[[0]], samples=20_000, **SETTINGS).holds
    for seed in range(4):
        found = refute(both, components=[[0], [1]], samples=3_000, **SETTINGS | {"delta": 0.5, "rng": seed})
        assert not found.holds and found.ceiling >= best_margin(rows_of(both, 1, 3))


@pytest.mark.parametrize("count", sizes(2, 12))
def test_sums_that_are_barely_solvable_are_never_refuted(count):
    worst = 0.0
    for seed in range(count):
        parts = [nearly_unsolvable(seed, 0.1), unsolvable(seed=100 + seed), nearly_unsolvable(200 + seed, 0.02)]
        problem = Independent(tuple(parts[: 2 + seed % 2]), "barely")
        truth = best_margin(rows_of(problem, 0, 3, columns=3, points=101))
        n = (300, 1_000, 3_000)[seed % 3]
        asked = {"expert": 0, "basis": BASIS, "columns": 3, "tail": 0, "delta": 0.5, "samples": n, "rng": seed}
        found = refute(problem, components=problem.components, paired=bool(seed % 4), **asked)
        assert not found.holds and found.ceiling >= truth > -1e-9
        worst = max(worst, found.estimated / (found.estimated - found.margin))
    assert worst < 1


def test_without_a_tail_nothing_is_certified():
    problem = Independent((ROOM,) * 2, "rooms")
    found = refute(problem, components=problem.components, samples=6_000, **SETTINGS | {"tail": None})
    assert not found.holds and str(found).startswith("Not certified, but infeasible")
    little = refute(problem, components=problem.components, samples=700, **SETTINGS)
    assert not little.holds and "Undetermined" in str(little) and little.samples_needed > 560


@pytest.fixture(scope="module")
def hopeless():
    problem = certirl.problems.factorised(seed=3, components=3, actions=8, unaffected=0.0)
    criteria = [certirl.steps.bellman(part.operators(BASIS, 3), discount=0.7) for part in problem.parts]
    parts = as_components(problem.components, BASIS, problem.domain)
    assert certirl.steps.recover(criteria, components=parts).status == "infeasible"
    return problem


@pytest.mark.slow
def test_solve_says_certified_infeasible_and_keeps_it(hopeless, tmp_path):
    asked = {
        "expert": 0,
        "components": hopeless.components,
        "basis": BASIS,
        "columns": 3,
        "discount": 0.7,
        "delta": 0.1,
        "tail": 0,
    }
    found = certirl.solve(hopeless, samples=200_000, rng=0, **asked)
    assert found.status == "infeasible" and found.reward is None and found.samples < 130_000
    assert str(found).startswith("Certified infeasible with probability 0.9:")
    assert "depends on its own state alone" in str(found) and "cancel" in str(found)
    assert files.lines_of(certirl.load(found.save(tmp_path / "none"))) == files.lines_of(found)
    little = certirl.solve(hopeless, samples=4_000, rng=0, **asked)
    assert little.status == "undetermined" and "Certified" not in str(little)


def test_a_log_of_rooms_is_refuted_too():
    log = log_of(Independent((ROOM,) * 2, "rooms"), 10_000, paired=True)
    found, open_ = (refute(log, components=[[0], [1]], **SETTINGS | {"tail": tail}) for tail in (ROOM.tail, None))
    assert found.holds and not open_.holds


@pytest.mark.slow
def test_a_log_is_refuted_too(hopeless):
    asked = {"expert": 0, "components": hopeless.components, "basis": BASIS, "columns": 3, "discount": 0.7}
    log = log_of(hopeless, 150_000, paired=True)
    assert certirl.solve(log, delta=0.1, tail=0, **asked).status == "infeasible"
    assert certirl.solve(log, delta=0.1, **asked).status == "undetermined"


@pytest.mark.parametrize("seeds", sizes(range(1, 2), range(12)), ids=len)
def test_sums_that_turn_infeasible_in_the_last_round_are_an_answer(monkeypatch, seeds):
    problem = certirl.problems.factorised(seed=3, components=2, actions=8, unaffected=0.0)
    asked = {
        "expert": 0,
        "components": problem.components,
        "basis": BASIS,
        "columns": 3,
        "discount": 0.7,
        "delta": 0.05,
        "tail": 0,
    }
    rounds = in_small_rounds(monkeypatch)
    turned = 0
    for rng in seeds:
        rounds.clear()
        found = certirl.solve(problem, samples=800, rng=rng, **asked)
        if rounds[-1] == 0 < max(rounds):
            turned += 1
            assert found.status in {"undetermined", "infeasible"} and "contradict each other" in found.reason
    assert turned > 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"basis": certirl.Legendre(1)}, "holds constants only"),
        ({"expert": 7}, "expert must be one of"),
        ({"columns": [3, 3, 3]}, "2 components but 3 numbers of columns"),
        ({"expert": lambda states: states[:, 0] > 0}, "couples the components"),
    ],
)
def test_wrong_calls_are_sentences(settings, sentence):
    problem = Independent((random_polynomial(seed=1), random_polynomial(seed=2)), "two")
    given = {"components": [[0], [1]], "expert": 0, "basis": BASIS, "samples": 500, "rng": 0} | settings
    with pytest.raises(ValueError, match=sentence):
        refute(problem, **given)


@pytest.fixture(scope="module")
def summed():
    problem = independent(thermostat(power=(1.5, 0.0, -0.5)), thermostat(power=(1.0, 0.0, -0.4)))
    return refute(problem, components=problem.components, samples=2_000, **SETTINGS)


def test_a_saved_sum_is_derived_from_its_sums_again(summed, tmp_path):
    back = certirl.load(summed.save(tmp_path / "sum"))
    assert back.margin == pytest.approx(summed.margin, rel=1e-9) and back.holds == summed.holds
    np.testing.assert_array_equal(back.witness.states, summed.witness.states)
    assert summed.witness.states.shape[1] == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda cover: {"coordinates": (0,)}, "not groups of different coordinates"),
        (lambda cover: {"probabilities": np.roll(cover.probabilities, 1, axis=1)}, "takes several actions"),
        (lambda cover: {"actions": 2 - cover.actions}, "do not weigh the alternative actions alike"),
    ],
)
def test_files_of_sums_that_were_changed_are_refused(summed, tmp_path, change, sentence):
    ground = summed.grounds[1]
    other = replace(ground, cover=replace(ground.cover, **change(ground.cover)))
    with pytest.raises(ValueError, match=sentence):
        certirl.load(replace(summed, grounds=(summed.grounds[0], other)).save(tmp_path / "changed"))
