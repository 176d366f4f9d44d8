"""The a-priori statements: they invert each other, agree with independent computations, and promise nothing false."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.special import zeta

from certirl.data.simulator import sample
from certirl.fit.bellman import bellman, estimate
from certirl.fit.recover import recover
from certirl.functions.bases import Chebyshev, Fourier, Legendre
from certirl.functions.extrema import minimum
from certirl.paper import (
    constants,
    corollary12,
    corollary12_corrected,
    cover_limit,
    cover_size,
    lemma4_error,
    lemma4_error_sharp,
    lemma5_tolerance,
    lemma7_corrected,
    lemma10_size,
    lemma10_size_corrected,
    lemma10_tail,
    lemma10_tail_corrected,
    lemma11_coefficients,
    lemma11_coefficients_corrected,
    program_rows,
    requirements,
    separability,
    theorem3_error,
    theorem3_error_corrected,
    theorem3_samples,
    theorem3_samples_corrected,
    theorem6,
    theorem6_deflated,
)
from certirl.problems import random_polynomial

GAMMA = 0.7
PAPER = {"beta": 1 / 26.5, "discount": GAMMA, "delta": 0.05, "k": 11, "n_actions": 3}
BASES = [Fourier(11), Legendre(11), Chebyshev(11)]


def norm(matrix):
    return np.abs(matrix).sum(axis=-1).max()


# Theorem 3.


@pytest.mark.parametrize("samples", [1, 7, 1000, 10**6 + 1, 10**11 + 3])
def test_samples_and_error_of_theorem_3_invert_each_other(samples):
    assert theorem3_samples(theorem3_error(samples, 0.05, 11), 0.05, 11) == samples
    for basis in BASES:
        setting = {"basis": basis, "columns": 3}
        error = theorem3_error_corrected(samples, 0.05, 11, **setting)
        assert theorem3_samples_corrected(error, 0.05, 11, **setting) == samples


def test_the_corrected_theorem_3_is_the_printed_one_where_its_assumption_is_met():
    assert theorem3_samples_corrected(0.1, 0.05, 11, deflate=False) == theorem3_samples(0.1, 0.05, 11)
    assert theorem3_error_corrected(500, 0.05, 5, deflate=False) == pytest.approx(theorem3_error(500, 0.05, 5))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("basis", BASES, ids=str)
def test_the_error_bound_of_theorem_3_holds_more_often_than_promised(basis):
    problem, delta, samples = random_polynomial(seed=3), 0.2, 400
    truth = problem.operators(basis, 3).Z
    bound = theorem3_error_corrected(samples, delta, 11, basis=basis, columns=3)
    errors = []
    for seed in range(40):
        data = sample(problem, basis=basis, samples=samples, rng=seed)
        errors += [norm(error) for error in estimate(data, basis=basis, columns=3, form="mean").Z - truth]
    assert np.mean(np.array(errors) >= bound) <= delta
    assert max(errors) > bound / 20  # the bound is loose, not absurd


# Lemma 5 and covers.


def test_lemma_5_leaves_half_of_what_the_cover_leaves():
    assert lemma5_tolerance(0.04, 0.05, 0.4) == pytest.approx(0.01)
    assert lemma5_tolerance(0.04, 0.0, 99.0, sup=2.0) == pytest.approx(0.01)
    assert lemma5_tolerance(0.04, 0.2, 0.4) < 0


def test_the_cover_limit_is_where_lemma_5_leaves_nothing():
    assert lemma5_tolerance(0.04, cover_limit(0.04, 0.4), 0.4) == pytest.approx(0.0)
    assert cover_limit(0.04, 0.0) == math.inf


def test_covers_scale_with_the_interval():
    assert cover_size((-1, 1), 0.05) == 20
    assert cover_size((-1, 1), 0.05, literal=True) == 40
    assert cover_size(((15.0, 25.0),), 0.25) == 20
    assert cover_size((0, 1), 7.0) == 1
    assert program_rows((-1, 1), 0.05, n_actions=4) == 60


# Constants of a problem.


@pytest.mark.thinned(3)
@pytest.mark.parametrize("basis", [*BASES, Fourier(10)], ids=str)
def test_constants_agree_with_a_dense_grid(basis):
    operators = random_polynomial(seed=8).operators(basis)
    criterion, found = bellman(operators, discount=GAMMA), constants(operators, discount=GAMMA)
    grid = criterion.columns.derivative(np.linspace(-1, 1, 20_001))
    steepest = max(np.abs(grid @ F.T).max() for F in criterion.F)
    assert steepest * (1 - 1e-9) <= found.rho <= steepest * (1 + 1e-4)
    assert found.norm == pytest.approx(norm(operators.Z))
    assert found.inner_norm == pytest.approx(norm(operators.Z[0, 1:, 1:]))
    assert found.difference == pytest.approx(norm((operators.Z[0] - operators.Z[1:])[:, 1:]))
    assert found.F_norm == pytest.approx(norm(criterion.F))
    assert found.F_norm <= found.difference / (1 - GAMMA * found.inner_norm)
    assert constants(criterion) == found


def test_separability_agrees_with_another_solver_on_a_dense_grid():
    criterion = bellman(random_polynomial(seed=4).operators(Legendre(11), 3), discount=GAMMA)
    features = criterion.columns.values(np.linspace(-1, 1, 401))
    rows = np.concatenate([features @ F.T for F in criterion.F])
    # max m subject to rows·(x⁺ − x⁻) ≥ m and Σ(x⁺ + x⁻) ≤ 1
    upper = np.hstack([-rows, rows, np.ones((len(rows), 1))])
    upper = np.vstack([upper, np.concatenate([np.ones(22), [0.0]])])
    bounds = [(0, None)] * 22 + [(None, None)]
    other = linprog(np.append(np.zeros(22), -1.0), A_ub=upper, b_ub=np.append(np.zeros(len(rows)), 1.0), bounds=bounds)
    assert separability(criterion) == pytest.approx(-other.fun, rel=1e-4)


# Theorem 6.


def test_the_printed_theorem_6_does_not_apply_to_the_papers_own_experiment():
    found = theorem6(**PAPER, cover=0.05, rho=0.4, norm=1.45)
    assert found.samples is None and not found.applies
    assert [c.name for c in found.conditions if not c.holds] == ["contraction", "truncation"]
    assert "does not apply" in str(found) and "Δ < 1/(2γ): 1.45 against 0.7143, FAILS" in str(found)


def test_the_printed_constants_with_the_deflated_norm_ask_for_fifty_thousand_million_samples():
    half = {"cover": 0.05, "rho": 10 / 26.5}  # cρ = β/2, as in Corollary 12
    assert theorem6(**PAPER, **half, norm=0.1).samples == pytest.approx(4.88e10, rel=1e-3)
    assert theorem6(**PAPER, cover=0.0, rho=0.0, norm=0.1).samples == pytest.approx(1.22e10, rel=1e-3)
    deflated = theorem6_deflated(**PAPER, inner_norm=0.1, difference=0.3, basis=Fourier(11), **half)
    assert deflated.samples == pytest.approx(5.63e8, rel=1e-3)
    exact = theorem6_deflated(**PAPER, inner_norm=0.1, difference=0.3, basis=Fourier(11))
    assert exact.samples == pytest.approx(1.42e8, rel=1e-2)


def test_theorem_6_as_printed_follows_from_its_own_lemmas():
    found = theorem6(**PAPER, cover=0.0, rho=0.0, norm=0.3)
    # 2ε from Theorem 3 at δ/|A|, then Lemma 4 with Δ + 1/(2γ), must meet Lemma 5.
    assert found.samples == theorem3_samples(found.epsilon / 2, 0.05 / 3, 11)
    error = lemma4_error(found.epsilon, GAMMA, 0.3 + 1 / (2 * GAMMA))
    assert error == pytest.approx(lemma5_tolerance(PAPER["beta"], 0.0, 0.0))


def test_theorem_6_never_asks_for_less_than_its_floor():
    easy = theorem6(beta=1e3, discount=0.1, delta=0.05, k=3, n_actions=2, cover=0.0, rho=0.0, norm=1.0)
    assert easy.samples == math.ceil(32 * 9 * math.log(36 / 0.05))


@pytest.mark.parametrize("sup", [Fourier(11), Legendre(11), Chebyshev(11)], ids=str)
def test_the_deflated_epsilon_is_the_root_of_its_equation(sup):
    size, inner, difference = sup.sup()[:3].max(), 0.2, 0.4
    found = theorem6_deflated(**PAPER, inner_norm=inner, difference=difference, basis=sup, columns=3)
    norm_F = difference / (1 - GAMMA * inner)

    def excess(epsilon):
        return size * lemma4_error_sharp(epsilon, GAMMA, inner + epsilon, norm_F) - PAPER["beta"] / 2

    assert found.epsilon == pytest.approx(brentq(excess, 1e-9, 1.0), rel=1e-9)
    assert found.samples == theorem3_samples_corrected(found.epsilon, 0.05 / 3, 11, basis=sup, columns=3)
    assert found.rows is None and found.cover == 0.0


def perturbed(operators, epsilon, rng):
    """Operators whose rows 2, 3, … are off by exactly ε in ‖·‖_∞, in random directions and signs."""
    error = rng.standard_normal(operators.Z.shape) ** 3  # cubes: often one entry carries nearly all of a row
    error *= epsilon / np.abs(error).sum(axis=2, keepdims=True)
    error[:, 0] = 0.0
    return replace(operators, Z=operators.Z + error)


def share_correct(share_of_epsilon, cover):
    """How often Algorithm 2 is right when the matrices are off by this multiple of what Theorem 6 allows."""
    right = []
    for seed in range(8):
        truth = random_polynomial(seed=seed).operators(Legendre(11), 3)
        criterion, rng = bellman(truth, discount=GAMMA), np.random.default_rng(seed)
        known = constants(criterion)
        radius = cover * known.beta / known.rho
        found = theorem6_deflated(
            **PAPER | {"beta": known.beta},
            inner_norm=known.inner_norm,
            difference=known.difference,
            cover=radius,
            rho=known.rho,
            basis=Legendre(11),
            columns=3,
        )
        assert found.applies
        for _ in range(3):
            estimated = bellman(perturbed(truth, share_of_epsilon * found.epsilon, rng), discount=GAMMA)
            reward = recover(estimated, objective="l1", cover=radius or None).reward
            if reward is None:
                right.append(False)
                continue
            curves = criterion.margins(reward.coefficients)
            right.append(min(minimum(criterion.columns, curve)[1] for curve in curves) > 0)
    return np.mean(right)


@pytest.mark.parametrize("cover", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_matrices_within_the_deflated_tolerance_always_give_a_correct_reward(cover):
    assert share_correct(0.999, cover) == 1.0


def test_matrices_far_outside_the_tolerance_do_not():
    assert share_correct(50.0, 0.0) < 0.7


def test_a_tail_uses_up_the_tolerance():
    free = theorem6_deflated(**PAPER, inner_norm=0.1, difference=0.3)
    half = theorem6_deflated(**PAPER, inner_norm=0.1, difference=0.3, tail=free.epsilon / 2)
    assert half.samples == pytest.approx(4 * free.samples, rel=1e-6)
    gone = theorem6_deflated(**PAPER, inner_norm=0.1, difference=0.3, tail=free.epsilon)
    assert gone.samples is None and [c.name for c in gone.conditions if not c.holds] == ["truncation"]


def test_eleven_trigonometric_functions_cut_off_more_than_theorem_6_allows_on_a_problem_of_the_paper():
    # (P_aφ_i)(s) = A_i + (B_i − A_i)s², and s² has cosine coefficients 4(−1)^m/(πm)²: what lies beyond m = 5 adds up.
    problem = random_polynomial(seed=7)
    Z = problem.operators(Fourier(11)).Z
    slopes = np.abs(Z[:, 1:, 2]) * np.pi**2 / 4
    tail = float(slopes.max() * 4 / np.pi**2 * zeta(2, 6))
    known = constants(problem.operators(Fourier(11)), discount=GAMMA)
    setting = PAPER | {"beta": known.beta, "inner_norm": known.inner_norm, "difference": known.difference}
    assert tail == pytest.approx(0.0117, abs=1e-4)
    assert not theorem6_deflated(**setting, tail=tail, basis=Fourier(11)).applies
    assert theorem6_deflated(**setting, basis=Fourier(11)).epsilon == pytest.approx(0.0082, abs=1e-4)


def test_chebyshev_with_three_columns_asks_for_the_fewest_samples():
    problem, need = random_polynomial(seed=7), {}
    for basis in (Legendre(11), Chebyshev(11)):
        known = constants(problem.operators(basis, 3), discount=GAMMA)
        setting = PAPER | {"beta": known.beta, "inner_norm": known.inner_norm, "difference": known.difference}
        need[basis.kind] = theorem6_deflated(**setting, basis=basis, columns=3).samples
    assert need["Legendre"] == pytest.approx(1.73e8, rel=0.01)
    assert need["Chebyshev"] == pytest.approx(5.72e6, rel=0.01)


# Lemmas 7, 10, 11 and Corollary 12.


def test_the_printed_tail_bounds_the_sum_of_the_printed_coefficients():
    for k in (1, 2, 5, 20):
        row = 0.3 / zeta(3) * zeta(3, k + 1)
        assert max(row, 0.3 / (k + 1) ** 3) <= lemma10_tail(k, norm=0.3)
    assert lemma11_coefficients(200, norm=0.3).sum(axis=1).max() <= 0.3


def test_the_corrected_norms_bound_the_sum_of_the_corrected_coefficients():
    b33, b30 = 200.0, 9.0
    bounds = lemma11_coefficients_corrected(401, b33=b33, b30=b30)
    smooth = lemma7_corrected(b33=b33, b30=b30, discount=GAMMA)
    # Entry by entry a sine and a cosine add up to 2, together to √2: the norms are the sharper ones.
    assert bounds[1, 1:].sum() == pytest.approx(math.sqrt(2) * smooth.inner_norm, rel=1e-4)
    assert bounds[1:, 0].max() + smooth.inner_norm == pytest.approx(smooth.row_norm)
    assert smooth.difference == 2 * smooth.row_norm


@pytest.mark.parametrize("epsilon", [0.3, 0.01, 1e-4, 1e-7])
def test_the_size_of_lemma_10_is_the_smallest(epsilon):
    k = lemma10_size(epsilon, norm=0.4)
    assert lemma10_tail(k, norm=0.4) <= epsilon
    assert k == 1 or lemma10_tail(k - 1, norm=0.4) > epsilon
    k = lemma10_size_corrected(epsilon, b33=200.0, b30=9.0)
    assert lemma10_tail_corrected(k, b33=200.0, b30=9.0) <= epsilon
    assert k == 1 or lemma10_tail_corrected(k - 1, b33=200.0, b30=9.0) > epsilon


def test_corollary_12_splits_beta_as_printed():
    found = corollary12(beta=0.04, delta=0.05, discount=GAMMA, n_actions=3)
    assert found.epsilon == pytest.approx(0.04 / 2 / 64)  # 2ε with ε = (β − cρ)/128
    assert found.cover * np.pi * zeta(2) / (GAMMA * zeta(3)) == pytest.approx(0.02)
    assert found.applies


@pytest.mark.parametrize("corollary", [corollary12, lambda **s: corollary12_corrected(b33=200.0, b30=9.0, **s)])
def test_samples_of_corollary_12_grow_as_the_cube_of_one_over_beta(corollary):
    def need(beta):
        found = corollary(beta=beta, delta=0.05, discount=GAMMA, n_actions=3)
        return found.samples / math.log(2 * found.size**2 * 3 / 0.05)

    assert need(1e-5) / need(1e-4) == pytest.approx(1000, rel=0.02)


def test_a_third_for_the_tail_is_a_good_share():
    setting = {"beta": 0.001, "delta": 0.05, "discount": GAMMA, "n_actions": 3}
    found = corollary12_corrected(b33=200.0, b30=9.0, **setting)
    smooth = lemma7_corrected(b33=200.0, b30=9.0, discount=GAMMA)
    inner = {"inner_norm": smooth.inner_norm, "difference": smooth.difference}
    others = [
        theorem6_deflated(
            **setting, **inner, k=k, basis=Fourier(k), tail=lemma10_tail_corrected(k, b33=200.0, b30=9.0)
        ).samples
        for k in range(5, 301, 2)
    ]
    assert found.samples <= 1.02 * min(n for n in others if n is not None)


def test_rough_dynamics_are_refused_by_the_corrected_corollary_with_the_condition_named():
    found = corollary12_corrected(beta=0.04, delta=0.05, discount=GAMMA, n_actions=3, b33=5e4, b30=9.0, cover=0.01)
    assert found.samples is None
    assert "Δ₂ < 1/γ: 143.3 against 1.429, FAILS" in str(found)


# The plan.


def test_a_plan_says_what_it_assumed_and_which_theorem_applies():
    found = requirements(discount=GAMMA, beta=1 / 26.5)
    assert found.literal.samples is None and found.deflated.samples is not None
    assert found.exact.samples < found.deflated.samples
    text = str(found)
    for phrase in ("as printed", "deflated", "norm = 1.45", "inner_norm = 0.1", "difference = 0.3", "γ < ½"):
        assert phrase in text


def test_a_plan_with_everything_given_assumes_nothing():
    found = requirements(
        discount=0.4,
        beta=0.05,
        delta=0.1,
        size=11,
        actions=2,
        cover=0.02,
        rho=0.5,
        norm=1.1,
        inner_norm=0.1,
        difference=0.3,
        tail=0.0,
        basis=Chebyshev(11),
        columns=3,
    )
    assert found.assumed == () and "Assumed: nothing." in str(found)
    assert found.literal.applies and found.deflated.applies


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"cover": 0.5, "rho": 1.0}, "cover < β/ρ"),
        ({"inner_norm": 1.5}, "Δ₂ must stay below 1/γ"),
        ({"tail": 0.5}, "take more functions"),
        ({"cover": 0.05}, "Without a cover"),
    ],
)
def test_a_plan_says_what_to_change(setting, words):
    assert words in str(requirements(discount=GAMMA, beta=0.04, **setting))


# Arguments.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theorem3_samples(0.0, 0.05, 11), "epsilon must be a number above 0, got 0.0"),
        (lambda: theorem3_samples(0.1, 1.0, 11), "delta must be a number strictly between 0 and 1, got 1.0"),
        (lambda: theorem3_samples(0.1, 0.05, 0), "k must be a whole number, at least 1, got 0"),
        (lambda: theorem3_error(0, 0.05, 11), "samples must be a whole number, at least 1, got 0"),
        (lambda: theorem3_samples_corrected(0.1, 0.05, 1), "k must be at least 2"),
        (lambda: theorem3_samples_corrected(0.1, 0.05, 3, columns=4), "columns must be at most k = 3, got 4"),
        (lambda: lemma4_error(0.1, 0.7, 1.45), "below 1/γ = 1.429, got 1.45"),
        (lambda: lemma4_error(0.1, 1.0, 0.5), "discount must be a number strictly between 0 and 1, got 1.0"),
        (lambda: lemma5_tolerance(0.0, 0.1, 0.1), "beta must be a number above 0, got 0.0"),
        (lambda: lemma5_tolerance(math.nan, 0.1, 0.1), "beta must be a number above 0, got nan"),
        (lambda: cover_size((-1, 1), 0.0), "radius must be a number above 0, got 0.0"),
        (lambda: theorem6(**PAPER, cover=-0.1, rho=0.1, norm=0.1), "cover must be a number not below 0, got -0.1"),
        (lambda: theorem6(**PAPER | {"n_actions": 1}, cover=0, rho=0, norm=0.1), "n_actions must be a whole number"),
        (lambda: lemma10_size(-1.0, norm=0.1), "epsilon must be a number above 0, got -1.0"),
        (lambda: requirements(discount=0.7, beta=0.04, size=2.5), "size must be a whole number, at least 2, got 2.5"),
        (lambda: requirements(discount=1.7, beta=0.04), "discount must be a number strictly between 0 and 1, got 1.7"),
        (lambda: constants(random_polynomial(seed=1).operators(Legendre(3))), "pass discount as well"),
    ],
)
def test_a_wrong_argument_is_a_sentence_with_its_value(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
