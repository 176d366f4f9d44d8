"""Outside solvers that lie: whatever NNLS, HiGHS or linprog answer, a result is right or says that they failed."""

from types import SimpleNamespace

import clarabel
import highspy
import numpy as np
import pytest
import scipy.optimize

import certirl
from certirl.fit import program
from certirl.fit.program import non_negative
from certirl.ground.status import Reason

ROOM = certirl.problems.comfort()
LIES = {
    "NaN": lambda x: np.full(len(x), np.nan),
    "infinite": lambda x: np.full(len(x), np.inf),
    "empty": lambda x: x[:0],
    "short": lambda x: x[:-1],
    "long": lambda x: np.append(x, 0.0),
    "none": lambda x: None,
    "texts": lambda x: ["a"] * len(x),
    "negative": lambda x: -x,
    "zero": lambda x: 0 * x,
    "double": lambda x: 2 * x,
    "half": lambda x: x / 2,
    "tiny": lambda x: 1e-300 * x,
    "huge": lambda x: 1e300 * x,
    "mirrored": lambda x: x[::-1],
    "alternating": lambda x: x * (-1.0) ** np.arange(len(x)),
}


@pytest.fixture(scope="module")
def criterion():
    """A problem for which there is a reward."""
    operators = certirl.problems.random_polynomial(seed=7).operators(certirl.Legendre(5))
    return certirl.steps.bellman(operators, discount=0.7, expert=0)


def lying_nnls(monkeypatch, lie):
    nnls = scipy.optimize.nnls
    monkeypatch.setattr(scipy.optimize, "nnls", lambda *given, **settings: (lie(nnls(*given, **settings)[0]), 0.0))


def lying_highs(monkeypatch, lie, status=None):
    class Liar(highspy.Highs):
        def getSolution(self):
            true = super().getSolution()
            return SimpleNamespace(col_value=lie(np.array(true.col_value)), row_dual=lie(np.array(true.row_dual)))

        def modelStatusToString(self, true):
            return status or super().modelStatusToString(true)

    monkeypatch.setattr(highspy, "Highs", Liar)


def lying_clarabel(monkeypatch, lie):
    class Liar:
        def __init__(self, *given):
            self.honest = clarabel_solver(*given)

        def solve(self):
            return SimpleNamespace(z=lie(np.array(self.honest.solve().z)))

    clarabel_solver = clarabel.DefaultSolver
    monkeypatch.setattr(clarabel, "DefaultSolver", Liar)


def is_right_or_failed(found, criterion):
    """Whether a reward has the margin it claims, or none is claimed and the reason is the solver."""
    if found.status == "solved":
        states = np.linspace(*criterion.basis.domain[0], 2_001)
        lowest = (criterion.margins(found.reward.coefficients) @ criterion.columns.values(states).T).min()
        return lowest >= found.margin * (1 - 1e-9) > 0
    return found.finding.sentence in (Reason.SOLVER.finding().sentence, Reason.ROUNDS.finding().sentence)


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_least_squares_are_noticed(monkeypatch, criterion, lie):
    lying_nnls(monkeypatch, LIES[lie])
    assert non_negative(np.eye(3), np.array([1.0, 2.0, 3.0])) is None
    found = certirl.steps.recover(criterion)
    assert found.finding.sentence == Reason.SOLVER.finding().sentence and found.reward is None
    assert found.status == "undetermined" and "objective='l1'" in found.finding.next


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_sums_over_components_are_noticed(monkeypatch, lie):
    lying_clarabel(monkeypatch, LIES[lie])
    rows = program.Rows(np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 1]), np.array([0, 0, 0]))
    status, x, _ = program.least_norm_of_sums(rows)
    if status == "optimal":  # a lie that says which rows are active still tells x
        np.testing.assert_allclose(x[:, 0], [0.2, 0.4], rtol=1e-6)
    else:
        assert status == "failed" and x is None


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_linear_programs_are_noticed(monkeypatch, criterion, lie):
    lying_highs(monkeypatch, LIES[lie])
    assert is_right_or_failed(certirl.steps.recover(criterion, objective="l1", max_rounds=5), criterion)


@pytest.mark.parametrize("status", ["Infeasible", "Unbounded", "Time limit reached", "Not Set", ""])
def test_a_wrong_status_of_a_linear_program_is_noticed(monkeypatch, criterion, status):
    lying_highs(monkeypatch, lambda x: x, status or "nonsense")
    found = certirl.steps.recover(criterion, objective="l1")
    assert found.finding.sentence == Reason.SOLVER.finding().sentence and found.reward is None
    assert found.status == "undetermined" and "objective='least-variance'" in found.finding.next


@pytest.mark.parametrize("lie", ["negative", "NaN", "zero"])
def test_a_search_for_a_proof_ends_though_the_solver_lies(monkeypatch, lie):
    lying_nnls(monkeypatch, LIES[lie])
    asked = {"discount": 0.7, "samples": 2_000, "rng": 0, "tail": 0}
    problem = certirl.problems.random_polynomial(seed=7)
    found = certirl.solve(problem, expert=0, basis=certirl.Legendre(5), columns=3, delta=0.05, **asked)
    assert found.status == "undetermined" and found.reward is None
    asked = {"samples": 2_000, "rng": 0, "tail": 0}
    assert not certirl.refute(problem, expert=1, basis=certirl.Legendre(3), columns=certirl.Legendre(3), **asked).holds


@pytest.mark.parametrize(("lie", "status"), [("NaN", 0), ("short", 0), ("negative", 0), ("none", 4)])
def test_lies_about_weights_of_features_are_noticed(monkeypatch, lie, status):
    linprog = scipy.optimize.linprog

    def lying(*given, **settings):
        return SimpleNamespace(status=status, x=LIES[lie](linprog(*given, **settings).x))

    monkeypatch.setattr(scipy.optimize, "linprog", lying)
    log = certirl.steps.sample(ROOM.dynamics, basis=certirl.Legendre(5), samples=300, rng=0)
    method = certirl.FeatureForm({"s²": lambda states: states[:, 0] ** 2})
    found = certirl.solve(log, discount=0.9, expert=ROOM.expert, method=method)
    assert found.status == "undetermined" and found.reward is None
    assert found.reason.startswith("the solver stopped without an answer, or its answer failed the check")
