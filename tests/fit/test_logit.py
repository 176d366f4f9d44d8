"""Log-odds of soft experts against likelihoods that are maximised by a search, and tests of them by formulas."""

import numpy as np
import pytest
from scipy.optimize import minimize

import certirl
from certirl.fit import logit
from certirl.fit.logit import choose_logit, fit_logit, higher_degree_test, memory_test, score_test

BOX = ((-1.0, 1.0),)
BASIS, WIDER = certirl.Legendre(2), certirl.Legendre(4)


def decisions(n=300, seed=0, bend=0.0, memory=0.0, episodes=6):
    """Decisions among three actions with log-odds that are bent, or depend on the action before."""
    rng = np.random.default_rng(seed)
    states, noise = rng.uniform(-1, 1, n), rng.gumbel(size=(n, 3))
    number, actions, before = np.arange(n) * episodes // n, [], 0
    for row, s in enumerate(states):
        before = 0 if row == 0 or number[row] != number[row - 1] else before
        utilities = np.array([0.0, 0.8 * s - 0.3 + memory * (before == 1), bend * (3 * s**2 - 1) - 0.5 * s])
        before = int((utilities + noise[row]).argmax())
        actions.append(before)
    return certirl.Transitions(states, actions, np.append(states[1:], 0.0), BOX, 3, episodes=number)


def likelihood(log, basis, coefficients):
    """Σ log π over the decisions, one after the other."""
    odds = basis.values(log.states) @ coefficients.T
    return sum(row[action] - np.log(np.exp(row).sum()) for row, action in zip(odds, log.actions, strict=True))


def derivatives(log, basis, coefficients, reference):
    """The slope of the likelihood and its information, by finite differences."""
    others = [a for a in range(3) if a != reference]

    def of(theta):
        moved = coefficients.copy()
        moved[others] += theta.reshape(2, -1)
        return likelihood(log, basis, moved)

    units = 1e-3 * np.eye(2 * basis.size)
    slope = np.array([of(unit) - of(-unit) for unit in units]) / 2e-3
    curve = [[of(x + y) - of(x - y) - of(y - x) + of(-x - y) for y in units] for x in units]
    return slope, -np.array(curve) / 4e-6


@pytest.mark.parametrize("reference", [0, 1, 2])
def test_the_log_odds_are_the_likeliest_and_their_information_is_the_curvature(reference, monkeypatch):
    monkeypatch.setattr(logit, "_BLOCK", 70)
    log = decisions()
    fit = fit_logit(BASIS, log.states, log.actions, 3, reference=reference)
    others = [a for a in range(3) if a != reference]

    def loss(theta):
        coefficients = np.zeros((3, 2))
        coefficients[others] = theta.reshape(2, 2)
        return logit.RIDGE * (theta**2).sum() / 2 - likelihood(log, BASIS, coefficients)

    best = minimize(loss, np.zeros(4), options={"gtol": 1e-6})
    assert fit.coefficients[others].ravel() == pytest.approx(best.x, abs=1e-5)
    assert (fit.coefficients[reference] == 0).all()
    slope, known = derivatives(log, BASIS, fit.coefficients, reference)
    assert fit.information == pytest.approx(known, rel=1e-4, abs=1e-4)
    at_zero = derivatives(log, BASIS, np.zeros((3, 2)), reference)
    found = logit.score(BASIS, log.states, log.actions, np.zeros((3, 2)), reference)
    assert found == pytest.approx(at_zero[0], rel=1e-4, abs=1e-4)
    assert slope == pytest.approx(logit.RIDGE * fit.coefficients[others].ravel(), abs=1e-4)
    total = logit.log_likelihood(BASIS, log.states, log.actions, fit.coefficients)
    assert total == pytest.approx(likelihood(log, BASIS, fit.coefficients), rel=1e-12)


def test_held_out_decisions_are_as_likely_as_under_fits_without_them():
    log = decisions(2000, episodes=40, bend=0.5)
    fitted = choose_logit(log, BOX, WIDER, reference=1, periodic=())
    total, chances = 0.0, np.zeros((2000, 3))
    for fold in range(5):
        out = fitted.folds == fold
        rest = fit_logit(WIDER, log.states[~out], log.actions[~out], 3, reference=1)
        total += likelihood(log.where(out), WIDER, rest.coefficients)
        chances[out] = rest.at(log.states[out]).chances
    inside = likelihood(log, WIDER, fitted.logit.coefficients)
    assert inside - fitted.likelihood == pytest.approx(inside - total, rel=0.05)
    assert fitted.chances == pytest.approx(chances, abs=2e-3)
    assert np.abs(fitted.chances - fitted.logit.at(log.states).chances).max() > 0.01


@pytest.mark.parametrize("bend", [0.0, 1.0])
def test_the_degree_is_that_under_which_held_out_decisions_are_likeliest(bend):
    log = decisions(600, episodes=30, bend=bend)
    every = [choose_logit(log, BOX, certirl.Legendre(size).on(BOX), reference=0, periodic=()) for size in range(1, 8)]
    best = max(every, key=lambda fitted: fitted.likelihood)
    chosen = choose_logit(log, BOX, None, reference=0, periodic=())
    assert chosen.logit.basis == best.logit.basis
    assert chosen.likelihood == pytest.approx(best.likelihood, rel=1e-6)


@pytest.mark.parametrize(("rarest", "sizes"), [(4, [1]), (9, [1]), (10, [1, 2]), (10**6, [*range(1, 17)])])
def test_degrees_grow_from_constants_as_far_as_the_rarest_action_allows(rarest, sizes):
    assert [basis.size for basis in logit._candidates(BOX, (), rarest)] == sizes


def test_further_functions_are_tested_by_raos_formula(monkeypatch):
    log = decisions(bend=0.5)
    fit = fit_logit(BASIS, log.states, log.actions, 3)
    slope, known = derivatives(log, WIDER, np.pad(fit.coefficients, ((0, 0), (0, 2))), 0)
    further = WIDER.values(log.states)[:, 2:]
    for blocks in (70, 1000):
        monkeypatch.setattr(logit, "_BLOCK", blocks)
        found = score_test(fit, log, lambda block: further[block], "more")
        assert found.statistic == pytest.approx(slope @ np.linalg.solve(known, slope), rel=1e-3)
        assert found.freedom == 4
    assert found.chance < 1e-3


def test_the_test_of_memory_is_that_of_the_action_before_within_an_episode():
    log = decisions(memory=2.0)
    fit = fit_logit(BASIS, log.states, log.actions, 3)
    before = np.zeros((300, 2))
    for row in range(1, 300):
        if log.episodes[row] == log.episodes[row - 1] and log.actions[row - 1]:
            before[row, log.actions[row - 1] - 1] = 1
    found, expected = memory_test(fit, log), score_test(fit, log, lambda block: before[block], "memory")
    assert (found.statistic, found.freedom) == (pytest.approx(expected.statistic), 4)
    assert found.chance < 1e-3
    apart = certirl.Transitions(log.states, log.actions, np.zeros(300), BOX, 3)
    assert memory_test(fit, apart) is None


def test_tests_of_a_true_model_are_as_large_as_their_freedom_says():
    found = []
    for seed in range(200):
        log = decisions(seed=seed)
        fit = fit_logit(BASIS, log.states, log.actions, 3)
        found.append([(test.statistic - test.freedom) / np.sqrt(2 * test.freedom)
                      for test in (memory_test(fit, log), higher_degree_test(fit, log))])  # fmt: skip
    assert (np.abs(np.mean(found, axis=0)) < 4 / np.sqrt(200)).all()
    assert np.std(found, axis=0) == pytest.approx(1, abs=0.3)


def test_what_too_few_decisions_speak_of_is_not_tested():
    """After a new engine another one is all but impossible: a month in which chance has it is no memory."""
    for seed in (0, 1):
        log = certirl.problems.buses().log(buses=104, months=78, rng=seed)
        fit = choose_logit(log, log.domain, None, reference=0, periodic=()).logit
        assert memory_test(fit, log).freedom == 0 < higher_degree_test(fit, log).freedom
    solution = certirl.solve(log, discount=0.9, expert=certirl.SoftExpert(reference=0), rng=0,
                             effects={1: certirl.dynamics.Resets(0.0, 0)})  # fmt: skip
    assert {test.what for test in solution.tests} == {"log-odds of a higher degree"}
