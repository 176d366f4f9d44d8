import numpy as np
import pytest
from saved_records import Coins

import certirl
from sizes import sizes

PROBLEM = certirl.problems.random_polynomial(seed=7)
CASES = [
    (PROBLEM, certirl.Legendre(11), 0.7),
    (certirl.problems.thermostat(), certirl.Legendre(31), 0.9),
    (certirl.problems.thermostat(), certirl.Chebyshev(31), 0.9),
    (certirl.problems.circle(), certirl.Fourier(31), 0.9),
    (certirl.problems.unsolvable(seed=2), certirl.Chebyshev(11), 0.7),
    (certirl.problems.random_polynomial(seed=1, actions=2, degree=4), certirl.Legendre(7), 0.95),
]


@pytest.mark.parametrize(("problem", "basis", "discount"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_margins_agree_with_the_truth_of_every_problem(problem, basis, discount):
    """αᵀFφ(s) against quadrature of the densities, for random smooth rewards."""
    criterion = certirl.steps.bellman(problem.operators(basis), discount=discount)
    rng = np.random.default_rng(0)
    states = np.linspace(*problem.domain[0], 101)
    for _ in range(5):
        alpha = rng.normal(size=basis.size) * 0.5 ** np.arange(basis.size)
        reward = certirl.Reward(criterion.basis, alpha)
        ours = criterion.margins(alpha) @ criterion.columns.values(states).T
        np.testing.assert_allclose(ours, problem.margins(reward, states, discount=discount), atol=1e-8)


@pytest.mark.parametrize(("problem", "basis", "discount"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_f_equals_the_summed_series(problem, basis, discount):
    """The paper's definition: F = Σ_r γ^r T^r (T − Z^a)."""
    operators = problem.operators(basis)
    T = operators.Z[0]
    for index, a in enumerate(range(1, problem.n_actions)):
        term, series = T - operators.Z[a], np.zeros_like(T)
        for _ in range(1200):
            series, term = series + term, discount * T @ term
        np.testing.assert_allclose(certirl.steps.bellman(operators, discount=discount).F[index], series, atol=1e-10)


def test_the_first_row_of_f_is_zero_and_only_the_inner_block_matters():
    operators = PROBLEM.operators(certirl.Legendre(11))
    criterion = certirl.steps.bellman(operators, discount=0.7)
    assert np.abs(criterion.F[:, 0]).max() < 1e-14
    T = operators.Z[0]
    inner = np.linalg.solve(np.eye(10) - 0.7 * T[1:, 1:], (T - operators.Z[1])[1:])
    np.testing.assert_allclose(criterion.F[0, 1:], inner, atol=1e-14)


def test_fewer_columns_give_the_same_criterion_where_they_suffice():
    wide = certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(11)), discount=0.7)
    narrow = certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(11), 3), discount=0.7)
    np.testing.assert_allclose(wide.F[:, :, :3], narrow.F, atol=1e-13)


def test_value_and_reward_coordinates_are_inverse():
    criterion = certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(11), 4), discount=0.7)
    alpha = np.random.default_rng(1).normal(size=11)
    w = criterion.value_of(alpha)
    np.testing.assert_allclose(criterion.reward_of(w), alpha, atol=1e-12)
    np.testing.assert_allclose(np.einsum("i,aij->aj", w, criterion.advantage), criterion.margins(alpha), atol=1e-12)


def test_value_function_agrees_with_the_truth():
    criterion = certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(11)), discount=0.7)
    reward = certirl.Reward(criterion.basis, np.random.default_rng(2).normal(size=11))
    nodes, _ = PROBLEM._quadrature()
    ours = criterion.basis.values(nodes) @ criterion.value_of(reward.coefficients)
    np.testing.assert_allclose(ours, PROBLEM.values(reward, discount=0.7), atol=1e-10)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("count", sizes(100, 300))
@pytest.mark.parametrize("paired", [False, True])
def test_standard_errors_match_the_spread_over_repeated_data(paired, count):
    basis, alpha = certirl.Legendre(7), np.random.default_rng(0).normal(size=7)
    states = np.array([-1.0, -0.3, 0.5])
    curves, variances = [], []
    for seed in range(count):
        data = certirl.steps.sample(PROBLEM, basis=basis, samples=2_000, rng=seed, paired=paired)
        criterion = certirl.steps.bellman(certirl.steps.estimate(data, basis=basis, columns=3), discount=0.7)
        x = criterion.columns.values(states)
        curves.append(criterion.margins(alpha) @ x.T)
        variances.append(np.einsum("ni,aij,nj->an", x, criterion.error_forms(alpha), x))
    ratio = np.sqrt(np.mean(variances, axis=0)) / np.std(curves, axis=0)
    assert ratio.min() > 0.75 and ratio.max() < 1.35  # noise is taken as even over the states


@pytest.mark.parametrize("paired", [False, True])
def test_standard_errors_hold_where_the_error_of_the_expert_is_magnified(paired):
    """(I + γF)φ(s) is up to 2.7 times as long as φ(s): the error of T counts at all later steps."""
    coins, basis = Coins((0.5, 0.5), (0.3, -0.3)), certirl.Legendre(2)
    states, curves, variances = np.array([-1.0, 0.5, 1.0]), [], []
    for seed in range(150):
        data = certirl.steps.sample(coins, basis=basis, samples=400, rng=seed, paired=paired)
        criterion = certirl.steps.bellman(certirl.steps.estimate(data, basis=basis), discount=0.95)
        x = criterion.columns.values(states)
        curves.append(criterion.margins(np.array([0.0, 1.0])) @ x.T)
        variances.append(np.einsum("ni,aij,nj->an", x, criterion.error_forms(np.array([0.0, 1.0])), x))
    assert np.abs(criterion.discount * criterion.F).max() > 1.2
    ratio = np.sqrt(np.mean(variances, axis=0)) / np.std(curves, axis=0)
    assert ratio.min() > 0.8 and ratio.max() < 1.25


@pytest.mark.parametrize("discount", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_bad_discount_is_one_sentence(discount):
    with pytest.raises(ValueError, match=r"discount must be a number, finite|strictly between 0 and 1"):
        certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(3)), discount=discount)


def test_an_unknown_expert_is_one_sentence():
    with pytest.raises(ValueError, match="one of the actions"):
        certirl.steps.bellman(PROBLEM.operators(certirl.Legendre(3)), discount=0.5, expert=3)


@pytest.mark.parametrize("objective", ["l1", "max-margin"])
def test_given_operators_lead_to_the_reward_of_exact_ones(objective):
    exact = PROBLEM.operators(certirl.Legendre(7), columns=3)
    given = certirl.steps.operators(exact.Z.tolist(), exact.basis)
    pair = [
        certirl.steps.recover(certirl.steps.bellman(each, discount=0.7), objective=objective).reward.coefficients
        for each in (exact, given)
    ]
    np.testing.assert_array_equal(*pair)


def test_given_operators_do_not_pretend_to_know_their_errors():
    given = certirl.steps.operators(PROBLEM.operators(certirl.Legendre(7)).Z, certirl.Legendre(7))
    criterion = certirl.steps.bellman(given, discount=0.7)
    assert np.isnan(criterion.error_forms(np.eye(7)[1])).all()
    for objective in ("least-variance", "smoothest"):
        with pytest.raises(ValueError, match="not known of given ones: write objective='l1'"):
            certirl.steps.recover(criterion, objective=objective)


@pytest.mark.parametrize(
    "Z", [np.eye(3), np.ones((2, 4, 3)), np.ones((2, 3, 4)), np.ones((1, 3, 3)), np.full((2, 3, 3), np.nan)]
)
def test_given_operators_of_a_wrong_shape_are_refused(Z):
    with pytest.raises(ValueError, match="Z must be"):
        certirl.steps.operators(Z, certirl.Legendre(3))
