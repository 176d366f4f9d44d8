"""The choice of functions by held-out data, against errors and margins that are known."""

import numpy as np
import pytest

import certirl
from certirl.data.moments import accumulate
from certirl.fit import choose
from certirl.fit.choose import (
    FOLDS,
    TARGETS,
    best_columns,
    best_family,
    best_size,
    diagnose_columns,
    held_out_errors,
    tail_factor,
)

BOX = ((-1.0, 1.0),)
ROOM = certirl.problems.thermostat(noise=3.0)
FAMILIES = {"Legendre": certirl.Legendre(TARGETS), "Fourier": certirl.Fourier(TARGETS)}


def log(drift, n=4000):
    """Transitions of two actions with a little noise."""
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1, 1, n), np.arange(n) % 2
    after = np.clip(drift(states) * (1 - 0.5 * actions) + 0.05 * rng.standard_normal(n), -1, 1)
    return certirl.Transitions(states, actions, after, BOX, 2)


def folds(log, names, columns=TARGETS, targets=TARGETS):
    targets = certirl.Legendre(targets).on(BOX)
    pairs = [(targets, FAMILIES[name].resized(columns).on(BOX)) for name in names]
    return accumulate(log, pairs, n_actions=2, folds=FOLDS)


@pytest.mark.parametrize(
    ("drift", "names", "chosen"),
    [
        (lambda s: 0.8 * np.sin(4 * np.pi * s), ("Legendre", "Fourier"), 1),
        (lambda s: 0.8 * np.sin(4 * np.pi * s), ("Fourier", "Legendre"), 0),
        (lambda s: 0.8 * s, ("Legendre", "Fourier"), 0),
        (lambda s: 0.8 * s, ("Fourier", "Legendre"), 1),
    ],
)
def test_the_family_is_the_one_that_predicts_held_out_data_best(drift, names, chosen):
    found, why = best_family(folds(log(drift), names))
    least = [held_out_errors(each)[:, best_columns(each) - 1].mean() for each in folds(log(drift), names)]
    assert found == chosen == int(np.argmin(least))
    if chosen:
        assert why == f"held-out error {1 - least[1] / least[0]:.2%} below {names[0]}"
    else:
        assert why == f"{names[1]} predicts held-out data no better"


def test_families_are_not_compared_with_too_little_data():
    few = log(lambda s: 0.8 * np.sin(4 * np.pi * s), n=4)
    assert best_family(folds(few, ("Legendre", "Fourier"))) == (0, "too little data to compare families")


def test_held_out_errors_are_those_of_least_squares_on_the_other_folds():
    data, targets, columns = log(np.sin, n=400), certirl.Legendre(4).on(BOX), certirl.Legendre(3).on(BOX)
    (made,) = accumulate(data, [(targets, columns)], n_actions=2, folds=FOLDS)
    x, y, errors = columns.values(data.states), targets.values(data.next_states), np.zeros((FOLDS, 3))
    for action in range(2):
        own = np.flatnonzero(data.actions == action)
        number = np.arange(len(own)) % FOLDS
        for fold in range(FOLDS):
            train, test = own[number != fold], own[number == fold]
            for size in (1, 2, 3):
                fit = np.linalg.lstsq(x[train, :size], y[train], rcond=None)[0]
                errors[fold, size - 1] += ((y[test] - x[test, :size] @ fit) ** 2).sum()
    assert held_out_errors(made) == pytest.approx(errors / 80, rel=1e-9)


@pytest.mark.parametrize(
    ("signals", "chosen"),
    [
        ([[1.0, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]], 7),
        ([[1.0, 1, 1, 1, 1], [2, 3, 2, 3, 2], [2, 2, 3, 2, 2]], 11),  # as good as the best of them
        ([[1.0, 1, 1, 1, 1], [2, 3, 2, 3, 2], [4, 4, 5, 4, 4]], 15),
        ([[9.0, 9, 9, 9, -np.inf], [2, 3, 2, 3, 2], [4, 4, 5, 4, 4]], 15),  # too little data in a fold
        ([[1.0, 1, 3, 1, 1], [0, 0, 0, 0, 0], [2, 3, 2, 3, 2]], 15),
        ([[1.0, 3, 2, 3, 2.5], [0, 0, 0, 0, 0], [2, 3, 2, 3, 2]], 7),  # within a standard error: 0.1 ± 0.24
        ([[-np.inf] * 5] * 3, 7),
    ],
)
def test_the_number_of_rows_is_the_least_that_is_as_good_as_the_best_in_held_out_folds(monkeypatch, signals, chosen):
    table = dict(zip((7, 11, 15), np.array(signals), strict=True))
    monkeypatch.setattr(choose, "held_out_signal", lambda folds, size, columns, **asked: table[size])
    (made,) = folds(log(np.sin, n=100), ("Legendre",), columns=3, targets=21)
    assert best_size(made, 3, discount=0.5, expert=0, sizes=(7, 11, 15)) == chosen


def test_a_diagnosis_says_how_far_errors_are_above_the_least_one():
    data = log(lambda s: 0.9 * np.sin(3 * s))
    found = diagnose_columns(data, columns=2, most=TARGETS)
    ((*made,),) = accumulate(data, [(certirl.Legendre(TARGETS).on(BOX),) * 2], n_actions=2, folds=FOLDS)
    errors = held_out_errors(made)
    best = errors[:, found.best - 1]
    assert errors.mean(axis=0).argmin() == found.best - 1
    shares = errors / best.mean() - (best / best.mean())[:, None]
    assert found.excess == pytest.approx(shares.mean(axis=0))
    assert found.standard_error == pytest.approx(np.std(shares, axis=0, ddof=1) / np.sqrt(FOLDS))
    assert found.too_small == (found.excess[1] > 2 * found.standard_error[1])


@pytest.mark.parametrize(("discount", "columns"), [(0.5, 5), (0.7, 9), (0.9, 5)])
def test_a_tail_costs_about_what_is_expected(discount, columns):
    asked = {"basis": certirl.Legendre(columns), "columns": columns, "samples": 20_000, "rng": 1}
    solution = certirl.solve(ROOM, discount=discount, expert=0, delta=0.05, tail=1e-3, **asked)
    span = np.ptp(solution.value(np.linspace(15, 25, 201)))
    lost = solution.certificate.losses["truncation tail"]
    assert 0.75 < lost / (1e-3 * span * tail_factor(certirl.Legendre(columns), discount)) < 1
