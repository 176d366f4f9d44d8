"""The joint additive program is the product-grid program, exact on the continuum; Theorem 8 is not."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import certirl
from certirl.fit import program
from certirl.fit.bellman import Operators
from certirl.functions.components import as_components
from certirl.functions.extrema import minimum
from sizes import sizes

BASIS = certirl.Legendre(11)


def exact(problem, basis=BASIS, columns=3):
    criteria = [certirl.steps.bellman(part.operators(basis, columns), discount=0.7) for part in problem.parts]
    return as_components(problem.components, basis, problem.domain), criteria


def minimisers(criterion, reward):
    """Where each D_a of a component is least ``[d]``, one array for each alternative action."""
    return [minimum(criterion.columns, curve)[0][None] for curve in criterion.margins(reward.coefficients)]


def product_rows(criteria, grids, in_values):
    """One row for every whole state of the product grid and every rival, over all coefficients at once."""
    matrices = [c.advantage[:, 1:] if in_values else c.F for c in criteria]
    features = [c.columns.values(grid) for c, grid in zip(criteria, grids, strict=True)]
    return np.array(
        [
            np.concatenate([m[rival] @ x[i] for m, x, i in zip(matrices, features, places, strict=True)])
            for rival in range(len(criteria[0].alternatives))
            for places in itertools.product(*(range(len(grid)) for grid in grids))
        ]
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("objective", ["least-variance", "l1"])
@pytest.mark.parametrize(("components", "seeds"), [(2, range(4)), (3, range(2))])
def test_the_joint_program_equals_the_product_grid_program(components, seeds, objective):
    for seed in seeds:
        parts, criteria = exact(certirl.problems.factorised(seed=seed, components=components))
        found = certirl.steps.recover(criteria, components=parts, objective=objective)
        assert found.status == "solved"
        # A grid that holds the minimisers: there the relaxation to a grid loses nothing.
        points = 5 if components == 2 else 3
        grids = [
            np.unique(np.concatenate([c.columns.grid(points), *minimisers(c, part)]), axis=0)
            for c, part in zip(criteria, found.reward.parts, strict=True)
        ]
        rows = product_rows(criteria, grids, in_values=objective == "least-variance")
        coefficients = [part.coefficients for part in found.reward.parts]
        if objective == "l1":
            brute = program.LinearProgram([rows.shape[1]])
            ours = found.reward.norm
        else:
            spread = np.zeros((10 * components, 10 * components))
            for j, criterion in enumerate(criteria):
                spread[10 * j : 10 * j + 10, 10 * j : 10 * j + 10] = criterion.spread[1:, 1:]
            brute = program.LeastVariance([spread])
            w = np.concatenate([c.value_of(own)[1:] for c, own in zip(criteria, coefficients, strict=True)])
            ours = w @ spread @ w
        brute.add(0, 0, rows)
        (x,) = brute.solve().x
        theirs = np.abs(x).sum() if objective == "l1" else x @ spread @ x
        assert ours == pytest.approx(theirs, rel=1e-6)


def solvable_on_a_grid(criteria, points=41):
    """Another program, another solver, other variables: the largest margin of rewards with coefficients within 1."""
    J, rivals, k = len(criteria), len(criteria[0].alternatives), criteria[0].F.shape[1]
    size = J * k + J * rivals + 1
    upper = []
    for j, criterion in enumerate(criteria):
        x = criterion.columns.values(criterion.columns.grid(points))
        for rival in range(rivals):
            rows = np.zeros((points, size))
            rows[:, j * k : (j + 1) * k] = -x @ criterion.F[rival].T
            rows[:, J * k + j * rivals + rival] = 1.0
            upper.append(rows)
    for rival in range(rivals):
        row = np.zeros((1, size))
        row[0, J * k + rival : -1 : rivals], row[0, -1] = -1.0, 1.0
        upper.append(row)
    stacked, cost = np.concatenate(upper), np.zeros(size)
    cost[-1] = -1.0
    bounds = [(-1, 1)] * (J * k) + [(None, None)] * (J * rivals + 1)
    return -linprog(cost, stacked, np.zeros(len(stacked)), bounds=bounds).fun > 1e-7


@pytest.mark.parametrize(("components", "alone", "count"), sizes((4, 1, 4), (4, 2, 10), (10, 0, 10)))
def test_every_solvable_problem_is_solved_and_theorem_8_solves_hardly_any(components, alone, count):
    solved = solvable = separately = 0
    for seed in range(count):
        problem = certirl.problems.factorised(seed=seed, components=components)
        parts, criteria = exact(problem)
        found = certirl.steps.recover(criteria, components=parts)
        solved += found.status == "solved"
        solvable += solvable_on_a_grid(criteria)
        separately += all(certirl.steps.recover(criterion).status == "solved" for criterion in criteria)
        if found.reward is not None:
            assert problem.true_margin(found.reward, discount=0.7) == pytest.approx(1, abs=1e-8)
    assert solved == solvable >= 0.9 * count and separately <= alone


@pytest.mark.parametrize("objective", ["least-variance", "l1", "max-margin"])
def test_a_conflict_has_a_witness_that_cancels_in_every_component(objective):
    for seed in range(3):
        parts, criteria = exact(certirl.problems.factorised(seed=seed, components=3, solvable=False))
        found = certirl.steps.recover(criteria, components=parts, objective=objective)
        assert found.status == "infeasible" and found.reward is None and np.isnan(found.margin)
        assert found.witness.residual < 1e-7
        assert sum(found.witness.shares.values()) == pytest.approx(1) and found.witness.weights.min() > 0
        for part, criterion in zip(parts, criteria, strict=True):
            witness = found.witness
            total = sum(
                weight
                * criterion.advantage[criterion.alternatives.index(action)]
                @ criterion.columns.values(part.of(state))[0]
                for state, action, weight in zip(witness.states, witness.actions, witness.weights, strict=True)
            )
            assert np.abs(total).max() < 1e-6 * np.abs(criterion.advantage).max()
        assert "cancel" in str(found.witness)


def test_one_component_is_what_recover_finds():
    for seed in (3, 7):
        problem = certirl.problems.random_polynomial(seed=seed)
        criterion = certirl.steps.bellman(problem.operators(BASIS, 3), discount=0.7)
        (part,) = as_components([[0]], BASIS, problem.domain)
        alone, joint = certirl.steps.recover(criterion), certirl.steps.recover([criterion], components=[part])
        np.testing.assert_allclose(joint.reward.parts[0].coefficients, alone.reward.coefficients, rtol=1e-4, atol=1e-4)


def test_both_programs_agree_on_estimated_operators_of_all_families():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        basis = [certirl.Legendre, certirl.Chebyshev, certirl.Fourier][seed % 3](int(rng.integers(4, 12)))
        settings = {"solvable": False} if seed % 4 == 0 else {"unaffected": 0.8, "actions": 4}
        problem = certirl.problems.factorised(seed=seed, components=int(rng.integers(1, 5)), **settings)
        criteria = [certirl.steps.bellman(part.operators(basis, 3), discount=0.9) for part in problem.parts]
        parts = as_components(problem.components, basis, problem.domain)
        found = {
            objective: certirl.steps.recover(criteria, components=parts, objective=objective)
            for objective in ("least-variance", "l1")
        }
        assert found["l1"].status == found["least-variance"].status != "undetermined"


def test_max_margin_has_norm_one():
    parts, criteria = exact(certirl.problems.factorised(seed=1, components=4))
    best, least = (certirl.steps.recover(criteria, components=parts, objective=name) for name in ("max-margin", "l1"))
    assert best.reward.norm == pytest.approx(1) and best.margin == pytest.approx(1 / least.reward.norm)


def test_diverging_values_are_named():
    parts, criteria = exact(certirl.problems.factorised(seed=1, components=2))
    wild = certirl.steps.bellman(
        _amplified(certirl.problems.factorised(seed=1, components=2).parts[1].operators(BASIS, 3)), discount=0.9
    )
    found = certirl.steps.recover([criteria[0], wild], components=parts)
    assert found.status == "undetermined" and found.reason.startswith("component s1: γT")


def _amplified(operators):
    Z = operators.Z.copy()
    Z[:, 1, 1] = 5.0
    fields = {name: getattr(operators, name) for name in ("basis", "noise", "precision", "counts", "form", "condition")}
    return Operators(Z=Z, **fields)


def test_least_norm_of_two_intervals_by_hand():
    # x_1·1 ≥ m_1, x_2·2 ≥ m_2, m_1 + m_2 ≥ 1: x = (1, 2)/5
    rows = program.Rows(np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([0, 0]))
    _, x, _ = program.least_norm_of_sums(rows)
    np.testing.assert_allclose(x[:, 0], [0.2, 0.4], rtol=1e-6)
    # x_1·1 ≥ m and x_1·(−1) ≥ m: impossible with m ≥ 1
    rows = program.Rows(np.array([[1.0], [-1.0]]), np.array([0, 0]), np.array([0, 0]))
    status, _, weights = program.least_norm_of_sums(rows)
    assert status == "infeasible"
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-6)
