"""Components of several coordinates: product bases within a component, sums between components."""

import numpy as np
import pytest
from test_decompose import minimisers, product_rows

import certirl
import files
from certirl import problems
from certirl.fit import program
from certirl.functions.components import SumBasis, as_components
from systems import Moving

PROBLEM = problems.independent(problems.random_polynomial(seed=3, degree=4), problems.whirl())
BASES = [certirl.Legendre(5), certirl.product(certirl.Legendre(4), certirl.Legendre(4))]
GROUPS = {"dial": [0], "place": [1, 2]}


def exact(problem=PROBLEM, columns=(3, 6)):
    triples = zip(problem.parts, BASES, columns, strict=True)
    criteria = [certirl.steps.bellman(part.operators(basis, size), discount=0.7) for part, basis, size in triples]
    return as_components(problem.components, BASES, problem.domain), criteria


@pytest.mark.parametrize("objective", ["least-variance", "l1"])
def test_the_joint_program_equals_the_product_grid_program(objective):
    parts, criteria = exact()
    found = certirl.steps.recover(criteria, components=parts, objective=objective)
    assert found.status == "solved"
    grids = [
        np.unique(np.concatenate([c.columns.grid(9), *minimisers(c, part)]), axis=0)
        for c, part in zip(criteria, found.reward.parts, strict=True)
    ]
    rows = product_rows(criteria, grids, in_values=objective == "least-variance")
    if objective == "l1":
        brute, ours = program.LinearProgram([rows.shape[1]]), found.reward.norm
    else:
        first, second = (criterion.spread[1:, 1:] for criterion in criteria)
        spread = np.block([[first, np.zeros((4, 9))], [np.zeros((9, 4)), second]])
        brute = program.LeastVariance([spread])
        pairs = zip(criteria, found.reward.parts, strict=True)
        w = np.concatenate([criterion.value_of(part.coefficients)[1:] for criterion, part in pairs])
        ours = w @ spread @ w
    brute.add(0, 0, rows)
    (x,) = brute.solve().x
    assert ours == pytest.approx(np.abs(x).sum() if objective == "l1" else x @ spread @ x, rel=1e-6)


def test_the_margin_is_a_lower_bound_over_whole_states_and_nearly_reached():
    parts, criteria = exact()
    found = certirl.steps.recover(criteria, components=parts)
    dense = [c.columns.values(c.columns.grid(20_000)) for c in criteria]
    alphas = [part.coefficients for part in found.reward.parts]
    lowest = [(c.margins(alpha) @ x.T).min(axis=1) for c, alpha, x in zip(criteria, alphas, dense, strict=True)]
    assert 0 <= np.sum(lowest, axis=0).min() - found.margin < 1e-3


def test_a_component_of_two_coordinates_carries_what_the_other_cannot():
    # The dial moves the same under every action: only the place can tell them apart.
    dial = problems.random_polynomial(seed=3, degree=4)
    still = problems.PolynomialProblem("still", dial.centre[[0, 0, 0]], dial.edge[[0, 0, 0]])
    problem = problems.independent(still, problems.whirl())
    found = certirl.solve(problem, expert=0, components=GROUPS, discount=0.8, basis=BASES, columns=[3, 10], rng=0)
    assert found.status == "solved" and problem.true_margin(found.reward, discount=0.8) > 0.5
    assert np.abs(found.contributions[0]).max() < 0.02 < 0.9 < found.contributions[1].min()


def test_the_answer_is_the_sum_over_boxes_and_survives_a_file(tmp_path):
    found = certirl.solve(PROBLEM, expert=0, components=GROUPS, discount=0.8, samples=4_000, rng=0)
    states = np.random.default_rng(0).uniform(-1, 1, (20_000, 3))
    parts = found.reward["dial"](states[:, 0]) + found.reward["place"](states[:, 1:])
    np.testing.assert_allclose(found.reward(states), parts)
    assert found.margins(states).min() >= found.margin - 1e-9
    at_worst = found.margins(found.state[None])[:, 0].min()
    assert at_worst == pytest.approx(found.margin, abs=1e-4)  # the margin is proved: a little below any value
    assert str(found.reward["place"].basis) == "Legendre(7) × Legendre(7) (total, 28 functions)"
    again = certirl.load(found.save(tmp_path / "sum"))
    assert str(again) == str(found)
    np.testing.assert_array_equal(again.reward(states), found.reward(states))


def test_coordinates_may_come_in_any_order():
    parts = as_components([[2, 0], [1]], None, ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0)))
    assert [part.basis.domain for part in parts] == [((2.0, 3.0), (0.0, 1.0)), ((1.0, 2.0),)]
    places = SumBasis(parts)
    assert [part.domain[0] for part in places.parts] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    states = places.design(50, np.random.default_rng(0))
    assert ((states > [0, 1, 2]) & (states < [1, 2, 3])).all()


def test_a_family_of_one_coordinate_is_multiplied_with_itself():
    (part,) = as_components([[0, 1]], certirl.Fourier(5), ((-1.0, 1.0),) * 2)
    assert part.basis == certirl.product(certirl.Fourier(5), certirl.Fourier(5)).on(((-1.0, 1.0),) * 2)
    sizes = [as_components([list(range(d))], None, ((-1.0, 1.0),) * d)[0].basis.size for d in (1, 2, 3, 4)]
    assert sizes == [11, 28, 35, 15]


def test_large_components_are_solved_without_a_test_of_independence():
    STILL = Moving(((-1.0, 1.0),) * 5, (0.2, -0.2), keep=0.5, std=0.3)
    found = certirl.solve(
        STILL, expert=0, components=[[0, 1, 2, 3], [4]], discount=0.7, samples=2_000, columns=5, rng=0
    )
    assert found.status == "solved" and "not tested" in found.stats.independence


@pytest.mark.slow
def test_the_truth_of_problems_side_by_side_is_the_minimum_over_whole_states():
    found = certirl.solve(PROBLEM, expert=0, components=GROUPS, discount=0.8, samples=4_000, rng=0)
    truth = PROBLEM.true_margins(found.reward, discount=0.8)
    rng, (dial, place) = np.random.default_rng(0), found.reward.parts
    one = PROBLEM.parts[0].margins(dial, np.linspace(-1, 1, 401), discount=0.8)
    two = PROBLEM.parts[1].margins(place, rng.uniform(-1, 1, (2_000, 2)), discount=0.8)
    whole = (one[:, :, None] + two[:, None, :]).min(axis=(1, 2))
    assert (truth <= whole + 1e-9).all() and (whole - truth < 0.02).all()
    with pytest.raises(ValueError, match="same number of actions"):
        problems.independent(problems.random_polynomial(seed=1, actions=2), problems.whirl())


@pytest.mark.slow
def test_a_certificate_adds_up_the_bounds_of_lines_and_boxes(tmp_path):
    parts = [problems.random_polynomial(seed=5, degree=4), problems.random_independent(seed=4)]
    problem = problems.independent(*parts)
    full = certirl.product(certirl.Legendre(3), certirl.Legendre(3), index="full")  # exact for these dynamics
    asked = {"basis": [certirl.Legendre(5), full], "columns": [3, 9], "discount": 0.7, "delta": 0.05, "tail": 0}
    found = certirl.solve(problem, expert=0, components=GROUPS, samples=150_000, rng=2, **asked)
    assert found.status == "certified" and len(found.certificate.grounds) == 2
    for part, own, bounds in zip(parts, found.reward.parts, found.certificate.bounds, strict=True):
        assert (bounds <= part.true_margins(own, discount=0.7)).all()
    assert found.certificate.delta == pytest.approx(0.05)
    assert found.certificate.margin == pytest.approx(found.certificate.bounds.sum(axis=0).min())
    assert "Legendre × Legendre functions of the state" in str(found)
    path = found.save(tmp_path / "sum")
    again = certirl.load(path)
    assert files.lines_of(again) == files.lines_of(found)
    one, other = (proof.grounds[1].evidence for proof in (again.certificate, found.certificate))
    np.testing.assert_array_equal(one.operator_moments, other.operator_moments)


def test_a_conflict_in_boxes_stays_undetermined_when_a_proof_is_asked_for():
    ALIKE = Moving(((-1.0, 1.0),) * 3, (0.0, 0.0), keep=0.5, std=0.3)
    asked = {"components": [[0], [1, 2]], "discount": 0.7, "columns": [3, 6], "rng": 0}
    assert certirl.solve(ALIKE, expert=0, samples=2_000, **asked).status == "infeasible"
    found = certirl.solve(ALIKE, expert=0, delta=0.1, tail=0, samples=4_000, **asked)
    assert (
        found.status == "undetermined"
        and found.refutation is None
        and "  witness  the advantages of action 0 over " in str(found)
    )
