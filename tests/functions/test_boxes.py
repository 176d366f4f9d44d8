"""From data in several coordinates to a reward: the same walk as in one."""

import tracemalloc

import numpy as np
import pytest

import certirl
from certirl import Fourier, Legendre, diagnose, problems, product, steps
from certirl.fit.recover import OBJECTIVES, cover_points
from certirl.ground.domain import as_domain, mesh
from certirl.ground.status import Reason
from certirl.kernels.sums import StackedSums
from mixed import Mixed
from refusals import refused
from sizes import sizes

WHIRL = problems.whirl()
SMALL = product(Legendre(5), Legendre(5))
FINE = mesh([np.linspace(-1, 1, 81)] * 2)


def noisy(samples=2_000, basis=SMALL, problem=WHIRL, seed=0):
    data = steps.sample(problem, basis=basis, samples=samples, rng=seed, design=True)
    return steps.bellman(steps.estimate(data, basis=basis), discount=0.7)


def test_sums_are_those_of_all_values_at_once():
    basis, rng = product(Legendre(6), Fourier(7)), np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (2, 20_011, 2))
    sums = StackedSums([basis, basis.resized(6)])
    for start in range(0, len(x), 7_000):
        sums.add(y[start : start + 7_000], x[start : start + 7_000])
    phi, psi = basis.values(y), basis.resized(6).values(x)
    blocks = sums.blocks()
    np.testing.assert_allclose(blocks[0, 1], phi.T @ psi, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(blocks[0, 0], phi.T @ phi, rtol=1e-10, atol=1e-9)


@pytest.mark.slow
def test_estimation_never_holds_all_values_at_once():
    """Ten times the data, the same memory, far below the 300 MB of all function values of the next states."""
    basis, rng, peaks = product(*[Legendre(9)] * 3), np.random.default_rng(0), []
    for n in (22_000, 220_000):
        x, y = rng.uniform(-1, 1, (2, n, 3))
        data = certirl.Transitions(x, np.arange(n) % 2, y, domain=[(-1, 1)] * 3)
        tracemalloc.start()
        steps.measure(data, basis=basis, columns=20, map=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert basis.size * 220_000 * 8 > 290e6
    assert peaks[1] < 60e6 and peaks[1] < 2 * peaks[0] + 10e6


@pytest.mark.thinned(4)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("basis", [SMALL, product(Fourier(5), Legendre(6)), product(Legendre(9), Legendre(9))], ids=str)
def test_the_margin_is_a_lower_bound_on_a_dense_grid(objective, basis):
    criterion = noisy(basis=basis, samples=4_000)
    found = steps.recover(criterion, objective=objective)
    assert found.status == "solved" and found.states.shape[1] == 2
    lowest = (criterion.margins(found.reward.coefficients) @ criterion.columns.values(FINE).T).min()
    assert found.margin <= lowest <= found.margin * 1.03
    there = criterion.margins(found.reward.coefficients) @ criterion.columns.values(found.worst_state)[0]
    assert there.min() == pytest.approx(found.margin, rel=1e-4)


@pytest.mark.parametrize(("domain", "radius"), [(((-1.0, 1.0),) * 2, 0.3), (((0.0, 1.0), (0.0, 3.0), (5.0, 6.0)), 0.5)])
def test_the_cover_covers(domain, radius):
    points = cover_points(as_domain(domain), radius)
    low, high = np.array(domain).T
    states = low + (high - low) * np.random.default_rng(0).random((3_000, len(domain)))
    distances = np.linalg.norm(states[:, None] - points[None], axis=2).min(axis=1)
    assert distances.max() <= radius
    assert (points > low).all() and (points < high).all()


def test_a_cover_holds_at_its_points_and_says_what_happens_between():
    criterion = noisy(samples=400)
    found = steps.recover(criterion, objective="l1", cover=0.9)
    values = criterion.margins(found.reward.coefficients) @ criterion.columns.values(cover_points(SMALL.domain, 0.9)).T
    assert values.min() >= 1 - 1e-7 and found.margin < 1
    assert found.finding in (Reason.COVER.finding(), Reason.SOLVED.finding())
    refused("diagonal", steps.recover, criterion, cover=5.0)
    refused("points, more than 1,000,000: leave cover out", steps.recover, criterion, cover=1e-4)


def test_the_soft_form_has_a_cover_of_its_own():
    problem = Mixed(WHIRL)
    found = steps.recover(steps.bellman(problem.operators(SMALL), discount=0.7), objective="l1", slack=1.0)
    assert found.finding == Reason.SOFT.finding() and found.slack.max() >= 1 - 1e-6
    assert 300 <= len(found.states) / 2 <= 500


RIGHT = {"whirl": (WHIRL, 3_000), "independent": (problems.random_independent(seed=3), 30_000)}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", sizes(*range(4)))
def test_solve_finds_truly_right_rewards(name, seed):
    problem, samples = RIGHT[name]
    solution = certirl.solve(
        problem, expert=0, discount=0.8, basis=product(Legendre(7), Legendre(7)), samples=samples, rng=seed
    )
    assert solution.status == "solved" and not solution.within_noise
    assert problem.true_margin(solution.reward, discount=0.8) > 0


@pytest.mark.slow
def test_three_coordinates_and_a_log():
    problem = problems.whirl(dimension=3)
    basis = product(*[Legendre(5)] * 3)
    log = steps.sample(problem, basis=basis, samples=4_000, rng=0, design=True)
    solution = certirl.solve(log, expert=0, discount=0.8, basis=basis, columns=20)
    assert solution.status == "solved" and solution.columns.size == 20
    assert problem.true_margin(solution.reward, discount=0.8) > 0
    assert "s = " in str(solution) and "20 columns as asked" in str(solution)


def test_without_a_basis_total_degree_is_chosen_by_held_out_data():
    solution = certirl.solve(WHIRL, expert=0, discount=0.8, samples=4_000, rng=0)
    assert solution.status == "solved" and "total degree" in solution.stats.choice
    assert solution.columns.size in solution.basis.complete_sizes()
    assert WHIRL.true_margin(solution.reward, discount=0.8) > 0


def test_moments_of_fewer_functions_are_leading_blocks():
    data = steps.sample(WHIRL, basis=SMALL, samples=500, rng=0)
    whole = steps.measure(data, basis=SMALL.resized(15), columns=10)
    part = steps.measure(data, basis=SMALL.resized(6), columns=3)
    np.testing.assert_allclose(whole.leading(6, 3).cross, part.cross, rtol=1e-12, atol=1e-10)
    assert certirl.solve(whole, expert=0, discount=0.8, basis=product(Legendre(4), Legendre(4))).basis.size == 10
    refused("measure again", certirl.solve, whole, expert=0, discount=0.8, basis=product(Legendre(4), Legendre(3)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"basis": SMALL, "columns": 99}, "functions of the basis, at most 15, got 99"),
        ({"basis": SMALL, "delta": 0.05, "tail": 0.01}, "the tail 0.01 belongs to the columns"),
    ],
)
def test_bad_input_is_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        certirl.solve(
            WHIRL, expert=0, discount=0.8, rng=0, **({} if "delta" in settings else {"samples": 300}) | settings
        )


def test_what_is_for_one_coordinate_says_so():
    solution = certirl.solve(WHIRL, expert=0, discount=0.8, basis=SMALL, samples=1_000, rng=0)
    refused("a diagnosis is for states of one coordinate", diagnose.columns, WHIRL, samples=1_000, rng=1)
    refused("row 0 is", solution.reward, [3.0, 0.0])
    refused(r"shape \[n, 2\]", solution.reward, np.zeros((4, 3)))
    assert isinstance(solution.reward([0.5, 0.0]), float)
    assert solution.reward(FINE).shape == (len(FINE),)


class Turning:
    """An angle that goes around and a speed; both drift, and actions push the speed."""

    n_actions, domain, periodic = 2, ((-np.pi, np.pi), (-1, 1)), (0,)

    def sample(self, states, action, rng):
        noise = rng.normal(size=states.shape)
        angle = states[:, 0] + 0.3 * states[:, 1] + 0.5 * noise[:, 0]
        speed = 0.5 * states[:, 1] + (0.2, -0.2)[action] + 0.2 * noise[:, 1]
        return np.stack([(angle + np.pi) % (2 * np.pi) - np.pi, speed.clip(-1, 1)], axis=1)


def test_coordinates_that_go_around_get_waves_by_themselves():
    solution = certirl.solve(Turning(), expert=0, discount=0.7, samples=3_000, rng=0)
    assert [factor.kind for factor in solution.basis.factors] == ["Fourier", "Legendre"]
    assert "Fourier for periodic coordinates" in str(solution) and solution.status == "solved"
