"""The truth is checked against closed forms, Monte Carlo and a fine-grid MDP solver that shares no code with it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

import certirl
from certirl import problems
from refusals import refused
from sizes import sizes

ALL = [
    problems.random_polynomial(seed=7),
    problems.random_polynomial(seed=1, actions=2, degree=4),
    problems.thermostat(),
    problems.circle(),
    problems.unsolvable(seed=1),
]
DISCOUNT = 0.8


@pytest.fixture(params=ALL, ids=lambda problem: problem.name)
def problem(request):
    return request.param


def wavy(problem):
    ((low, high),) = problem.domain
    return lambda s: (
        np.cos(2 * np.pi * (np.asarray(s).reshape(-1) - low) / (high - low))
        + 0.3 * np.sin(4 * np.pi * (np.asarray(s).reshape(-1) - low) / (high - low))
    )


def test_densities_are_densities(problem):
    ((low, high),) = problem.domain
    for action in range(problem.n_actions):
        for s in np.linspace(low, high, 5):
            mass, _ = quad(
                lambda y, s=s, a=action: problem.density(np.array([y]), np.array([s]), a)[0, 0], low, high, limit=200
            )
            assert mass == pytest.approx(1, abs=1e-8)
        grid = np.linspace(low, high, 301)
        assert problem.density(grid, grid, action).min() >= 0


def test_samples_follow_the_density(problem):
    ((low, high),) = problem.domain
    rng = np.random.default_rng(0)
    grid = np.linspace(low, high, 20_001)
    for action in range(problem.n_actions):
        s = low + 0.8 * (high - low)
        drawn = problem.sample(np.full(20_000, s), action, rng)
        density = problem.density(grid, np.array([s]), action)[0]
        cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
        assert kstest(drawn, lambda x, cdf=cdf: np.interp(x, grid, cdf)).pvalue > 1e-4


@pytest.mark.thinned(2)
@pytest.mark.parametrize("basis", sizes(certirl.Legendre(9), certirl.Fourier(9), certirl.Chebyshev(9)), ids=str)
def test_exact_operators_agree_with_adaptive_quadrature(problem, basis):
    basis = basis.on(problem.domain)
    ((low, high),) = problem.domain
    Z = problem.operators(basis).Z
    rng = np.random.default_rng(2)
    for _ in range(3):
        action, i, j = rng.integers(problem.n_actions), rng.integers(9), rng.integers(9)

        def next_value(s, a=action, i=i):
            density = lambda y: problem.density(np.array([y]), np.array([s]), a)[0, 0]  # noqa: E731
            return quad(lambda y: density(y) * basis.values(y)[0, i], low, high, epsabs=1e-10, limit=200)[0]

        # s = centre + half·sin(u) keeps the Chebyshev weight integrable for an adaptive rule
        centre, half = (low + high) / 2, (high - low) / 2
        u, w = np.polynomial.legendre.leggauss(40)
        states = centre + half * np.sin(u * np.pi / 2)
        measure = w * np.pi / 2 * half * np.cos(u * np.pi / 2) * basis.weight(states)
        value = sum(next_value(s) * basis.values(s)[0, j] * m for s, m in zip(states, measure, strict=True))
        assert Z[action, i, j] == pytest.approx(value, abs=2e-9)


def test_polynomial_operators_have_a_closed_form():
    """Legendre moments of polynomial densities, by exact polynomial algebra instead of quadrature."""
    from numpy.polynomial import legendre
    from numpy.polynomial import polynomial as power

    problem = problems.random_polynomial(seed=3)
    Z = problem.operators(certirl.Legendre(11)).Z
    functions = [legendre.leg2poly(np.eye(11)[n]) * np.sqrt(n + 0.5) for n in range(11)]

    def integral(p):
        antiderivative = power.polyint(p)
        return power.polyval(1.0, antiderivative) - power.polyval(-1.0, antiderivative)

    for a in range(3):
        exact = np.outer(
            [integral(power.polymul(problem.centre[a], f)) for f in functions],
            [integral(power.polymul([1, 0, -1], f)) for f in functions],
        ) + np.outer(
            [integral(power.polymul(problem.edge[a], f)) for f in functions],
            [integral(power.polymul([0, 0, 1], f)) for f in functions],
        )
        np.testing.assert_allclose(Z[a], exact, atol=1e-12)


def test_circle_operators_have_a_closed_form_in_the_next_state():
    """E[cos m s' | s] = exp(−m²σ²/2) cos(m·mean): only the integral over s is left to a periodic trapezoid rule."""
    problem = problems.circle()
    Z = problem.operators(certirl.Fourier(9)).Z
    s = np.linspace(-np.pi, np.pi, 512, endpoint=False)
    basis = certirl.Fourier(9).on(problem.domain)
    for a in range(3):
        mean = problem.homes[a] + problem.pull * np.sin(s - problem.homes[a])
        rows = [np.full(512, np.sqrt(0.5))]
        for m in range(1, 5):
            shrink = np.exp(-(m**2) * problem.noise**2 / 2)
            rows += [shrink * np.sin(m * mean), shrink * np.cos(m * mean)]
        np.testing.assert_allclose(Z[a], np.array(rows) @ basis.values(s) * 2 / 512, atol=1e-12)


def fine_grid_margins(problem, reward, states, cells):
    """A tabular MDP on midpoints, solved by value iteration: the check that knows nothing of Gauss rules or bases."""
    ((low, high),) = problem.domain
    mid = low + (high - low) * (np.arange(cells) + 0.5) / cells
    P = problem.density(mid, mid, 0) * (high - low) / cells
    R, V = reward(mid), np.zeros(cells)
    for _ in range(400):
        V, last = R + DISCOUNT * P @ V, V
        if np.abs(V - last).max() < 1e-14:
            break
    own, *others = (problem.density(mid, states, a) @ V * (high - low) / cells for a in range(problem.n_actions))
    return np.array([own - other for other in others])


@pytest.mark.thinned(2)
def test_true_margins_agree_with_a_fine_grid_mdp(problem):
    reward, states = wavy(problem), np.linspace(*problem.domain[0], 101)
    h1, h2, h3 = (fine_grid_margins(problem, reward, states, cells) for cells in (200, 400, 800))
    once = (4 * h2 - h1) / 3, (4 * h3 - h2) / 3  # Richardson: the midpoint rule's error is a series in h²
    limit = (16 * once[1] - once[0]) / 15
    truth = problem.margins(reward, states, discount=DISCOUNT)
    np.testing.assert_allclose(limit, truth, atol=1e-8)
    assert problem.true_margin(reward, discount=DISCOUNT) <= truth.min() + 1e-12


def test_rewards_of_actions_are_paid_to_the_expert_and_compared_at_the_state(problem):
    free = certirl.Reward(certirl.Legendre(4).on(problem.domain), np.random.default_rng(0).normal(size=4))
    costs, states = 0.1 * np.arange(problem.n_actions), np.linspace(*problem.domain[0], 101)
    costly, asked = free.with_costs(costs), {"discount": DISCOUNT, "expert": 1}
    others = [action for action in range(problem.n_actions) if action != 1]
    more = (costs[others] - costs[1]) / DISCOUNT  # costs that are the same at every state add a constant to V
    np.testing.assert_allclose(problem.true_margins(costly, **asked), problem.true_margins(free, **asked) + more)
    rows = np.random.default_rng(1).normal(size=(problem.n_actions, 4))
    rows[1] = free.coefficients
    reward = certirl.Reward(free.basis, rows)  # V is that of the expert's own row
    paid = np.array([free(states) - reward(states, action) for action in others]) / DISCOUNT
    found = problem.margins(reward, states, **asked)
    np.testing.assert_allclose(found, problem.margins(free, states, **asked) + paid, atol=1e-12)
    assert (problem.true_margins(reward, **asked) <= found.min(axis=1) + 1e-12).all()


@pytest.mark.parametrize("n", sizes(40_000, 200_000))
def test_true_margin_agrees_with_monte_carlo_rollouts(n):
    problem, rng = problems.random_polynomial(seed=7), np.random.default_rng(5)
    reward, horizon = wavy(problem), 40
    for s, rival in ((0.4, 1), (-0.9, 2)):
        returns = []
        for first in (0, rival):
            state = problem.sample(np.full((n, 1), s), first, rng)
            total = reward(state)
            for step in range(1, horizon):
                state = problem.sample(state, 0, rng)
                total = total + DISCOUNT**step * reward(state)
            returns.append(total)
        estimate = returns[0].mean() - returns[1].mean()
        error = np.sqrt((returns[0].var() + returns[1].var()) / n)
        truth = problem.margins(reward, np.array([s]), discount=DISCOUNT)[rival - 1, 0]
        assert abs(estimate - truth) < 5 * error + DISCOUNT**horizon * 20


def test_exact_inverse_transform_inverts():
    from numpy.polynomial import polynomial as power

    from certirl.problems.dynamics import invert

    problem = problems.random_polynomial(seed=11)
    uniform = np.concatenate([np.random.default_rng(0).random(10_000), [0.0, 1.0, 1e-12]])
    for density in (*problem.centre, *problem.edge):
        integral = power.polyint(density)
        x = invert(density, uniform)
        np.testing.assert_allclose(power.polyval(x, integral) - power.polyval(-1.0, integral), uniform, atol=1e-12)


def test_eight_bits_are_eight_bits():
    exact, coarse = problems.random_polynomial(seed=4), problems.random_polynomial(seed=4, bits=8)
    states = np.linspace(-1, 1, 5000)[:, None]
    a, b = (p.sample(states, 0, np.random.default_rng(3)) for p in (exact, coarse))
    assert np.abs(a - b).max() <= 1 / 256 + 1e-12
    assert len(np.unique(b)) <= 256


def test_the_unsolvable_problem_has_a_witness_and_the_others_a_reward(problem):
    basis = certirl.Fourier(11) if problem.name == "circle" else certirl.Legendre(11)
    criterion = certirl.steps.bellman(problem.operators(basis), discount=DISCOUNT)
    found = certirl.steps.recover(criterion)
    if problem.name.startswith("unsolvable"):
        assert found.status == "infeasible"
    else:
        assert found.status == "solved"
        assert problem.true_margin(found.reward, discount=DISCOUNT) > 0.9


def test_densities_too_sharp_for_the_truth_are_refused():
    refused("too narrow", problems.circle(noise=0.01).operators, certirl.Fourier(5))
    refused("within five noises", problems.thermostat, power=(200.0, 0.0))


@pytest.mark.parametrize("problem", ALL[:4], ids=lambda problem: problem.name)
def test_the_tail_bounds_what_the_columns_miss(problem):
    """The best approximation of P_a f in the columns, found by least squares, for many bounded f, stays within τ."""
    rng = np.random.default_rng(0)
    family = certirl.Fourier if problem.name == "circle" else certirl.Legendre
    states = np.linspace(*problem.domain[0], 301)
    for size in (3, 7, 11):
        columns = family(size).on(problem.domain)
        tail, features = problem.tail(columns), columns.values(states)
        for action in range(problem.n_actions):
            kernel = problem._kernel(states[:, None], action)
            for _ in range(5):
                f = np.sign(rng.normal(size=kernel.shape[1]))
                target = kernel @ f
                best = features @ np.linalg.lstsq(features, target, rcond=None)[0]
                assert np.abs(target - best).max() <= 1.6 * tail + 1e-9  # least squares is not quite the best


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"actions": 1}, "actions must be a whole number, at least 2"),
        ({"degree": 3}, "even"),
        ({"degree": 0}, "even"),
        ({"bits": 0}, "bits"),
    ],
)
def test_bad_settings_are_one_sentence(settings, sentence):
    refused(sentence, problems.random_polynomial, seed=0, **settings)


def test_seeds_repeat_and_differ():
    one, two, three = (problems.random_polynomial(seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(one.centre, two.centre)
    assert not np.allclose(one.centre, three.centre)
