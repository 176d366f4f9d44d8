import functools

import numpy as np
import pytest

import certirl
from certirl import steps
from certirl.data.dependence import can_pair
from certirl.data.moments import accumulate
from certirl.data.simulator import as_generator, draw
from certirl.data.transitions import CHUNK
from certirl.fit.choose import best_columns
from sizes import sizes
from solved import POLYNOMIAL as PROBLEM
from systems import Moving

SETTINGS = {"basis": certirl.Legendre(11), "discount": 0.7, "expert": 0, "rng": 0, "samples": 10_000}


@functools.cache
def solved():
    return certirl.solve(PROBLEM, **SETTINGS)


class Walk:
    """A simulator as a user would write it: five lines."""

    n_actions, domain = 2, ((0.0, 10.0),)

    def sample(self, states, action, rng):
        step = (0.5, -0.5)[action] + rng.normal(size=states.shape)
        return np.clip(states + step, 0.0, 10.0)


def test_the_steps_give_what_solve_gives():
    rng = as_generator(0)
    assert can_pair(PROBLEM, certirl.Legendre(11), rng)
    data = steps.sample(PROBLEM, basis=certirl.Legendre(11), samples=10_000, rng=rng, design=True, paired=True)
    operators = steps.estimate(steps.measure(data, basis=certirl.Legendre(11)), columns=solved().columns.size)
    found = steps.recover(steps.bellman(operators, discount=0.7), objective="smoothest")
    np.testing.assert_allclose(found.reward.coefficients, solved().reward.coefficients, rtol=1e-5, atol=1e-5)


def test_transitions_on_file_are_as_good_as_the_simulator():
    rng = as_generator(0)
    rng.spawn(1)  # the stream on which `solve` tries whether actions can be paired
    data = steps.sample(PROBLEM, basis=certirl.Legendre(11), samples=10_000, rng=rng, design=True, paired=True)
    solution = certirl.solve(data, expert=0, basis=certirl.Legendre(11), discount=0.7)
    np.testing.assert_allclose(solution.reward.coefficients, solved().reward.coefficients, rtol=1e-4, atol=1e-4)
    assert solution.samples == 10_000


class Rejecting(Walk):
    """Uses as many random numbers as it takes, which depends on the action."""

    def sample(self, states, action, rng):
        shape = 2.0 + 3 * action
        return np.clip(states + (1 - 2 * action) * rng.gamma(shape, 0.2, size=states.shape), 0.0, 10.0)


def test_actions_are_not_paired_where_rows_would_share_random_numbers():
    assert can_pair(Walk(), certirl.Legendre(3), 0)
    assert not can_pair(Rejecting(), certirl.Legendre(3), 0)
    with pytest.raises(ValueError, match="paired=False"):
        steps.sample(Rejecting(), basis=certirl.Legendre(3), samples=500, rng=0, paired=True)
    assert certirl.solve(Rejecting(), expert=0, discount=0.8, rng=0, samples=5_000).status == "solved"
    proved = certirl.solve(
        Rejecting(), expert=0, discount=0.8, rng=0, basis=certirl.Legendre(7), columns=7, delta=0.1, samples=50_000
    )
    assert not proved.certificate.grounds[0].evidence.paired


def test_an_ordinary_log_needs_no_pairs():
    data = steps.sample(PROBLEM, basis=certirl.Legendre(11), samples=20_000, rng=0)
    shuffled = np.random.default_rng(0).permutation(len(data))
    log = certirl.Transitions(
        data.states[shuffled], data.actions[shuffled], data.next_states[shuffled], domain=PROBLEM.domain
    )
    solution = certirl.solve(log, expert=0, discount=0.7)
    assert PROBLEM.true_margin(solution.reward, discount=0.7) > 0


def test_common_random_numbers_take_noise_off_the_margin():
    errors = {}
    for paired in (False, True):
        data = steps.sample(PROBLEM, basis=certirl.Legendre(11), samples=10_000, rng=0, design=True, paired=paired)
        errors[paired] = certirl.solve(
            data, expert=0, basis=certirl.Legendre(11), columns=3, discount=0.7
        ).standard_error
    assert errors[True] < 0.8 * errors[False]


def test_seeds_repeat_and_differ():
    again = certirl.solve(PROBLEM, **SETTINGS)
    np.testing.assert_array_equal(again.reward.coefficients, solved().reward.coefficients)
    other = certirl.solve(PROBLEM, **SETTINGS | {"rng": 1})
    assert not np.allclose(other.reward.coefficients, solved().reward.coefficients)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("problem", "family", "discount"),
    [
        (PROBLEM, "Legendre", 0.7),
        (certirl.problems.thermostat(), "Legendre", 0.9),
        (certirl.problems.circle(), "Fourier", 0.9),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_left_to_itself_it_finds_the_right_family_and_a_true_reward(problem, family, discount):
    solution = certirl.solve(problem, expert=0, discount=discount, rng=0, samples=40_000)
    assert solution.basis.kind == family
    assert family in solution.stats.choice and "held-out" in solution.stats.choice
    assert problem.true_margin(solution.reward, discount=discount) > 0


def test_enough_data_finds_the_true_number_of_columns():
    basis = certirl.Legendre(11).on(PROBLEM.domain)
    (folds,) = accumulate(draw(PROBLEM, basis, 60_000, 3), [(basis, basis)], n_actions=3, folds=5)
    assert best_columns(folds) == 3


def test_a_five_line_simulator_works():
    solution = certirl.solve(Walk(), expert=0, discount=0.9, rng=0, samples=20_000)
    assert solution.status == "solved"
    assert solution.reward(9.0) > solution.reward(1.0)  # the expert always goes right


@pytest.mark.parametrize("objective", ["l1", "max-margin"])
@pytest.mark.parametrize("form", ["mean", "least-squares"])
def test_every_combination_of_form_and_objective_runs(objective, form):
    solution = certirl.solve(
        PROBLEM, **SETTINGS | {"basis": certirl.Fourier(11)}, method=certirl.Program(objective=objective, form=form)
    )
    assert solution.status == "solved" and solution.stats.objective == objective and solution.stats.form == form


def test_units_do_not_matter():
    """The same walk in centimetres: the same Ẑ, so the same coefficients."""

    class Centimetres(Walk):
        domain = ((0.0, 1000.0),)

        def sample(self, states, action, rng):
            return 100 * super().sample(states / 100, action, rng)

    one = certirl.solve(Walk(), expert=0, basis=certirl.Legendre(7), discount=0.9, rng=0, samples=5_000)
    other = certirl.solve(Centimetres(), expert=0, basis=certirl.Legendre(7), discount=0.9, rng=0, samples=5_000)
    np.testing.assert_allclose(one.reward.coefficients, other.reward.coefficients, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", sizes(8, 60))
def test_share_solved_correctly_on_the_papers_problems(count):
    """The bar of the defaults on fixed seeds; benchmarks/accuracy.py prints the whole table beside its peers."""
    for samples, bar in ((1_000, 0.55), (10_000, 0.85)):
        right = 0
        for seed in range(count):
            problem = certirl.problems.random_polynomial(seed=seed)
            solution = certirl.solve(
                problem, expert=0, basis=certirl.Legendre(11), discount=0.7, rng=seed, samples=samples
            )
            right += solution.reward is not None and problem.true_margin(solution.reward, discount=0.7) > 0
        assert right / count >= bar


@pytest.mark.parametrize("count", sizes(2, 20))
def test_share_solved_correctly_with_nothing_given_and_much_data(count):
    right = 0
    for seed in range(count):
        problem = certirl.problems.random_polynomial(seed=seed)
        solution = certirl.solve(problem, expert=0, discount=0.7, rng=seed, samples=100_000)
        right += solution.reward is not None and problem.true_margin(solution.reward, discount=0.7) > 0
    assert right / count >= 0.93


@pytest.mark.thinned(2)
@pytest.mark.parametrize("basis", [None, certirl.Legendre(7), certirl.Legendre(11)], ids=str)
def test_deterministic_dynamics_are_fine(basis):
    DRIFT = Moving(((-1.0, 1.0),), (0.3, 0.0, -0.3), keep=0.5)
    solution = certirl.solve(DRIFT, expert=0, discount=0.9, rng=0, samples=2_000, basis=basis)
    assert solution.status == "solved"
    assert "standard error" not in str(solution)  # what is left of it is rounding
    states = np.linspace(-1, 1, 201)
    returns = []
    for shift in (0.3, 0.0, -0.3):  # one step of each action, the expert's ever after
        s = 0.5 * states + shift
        returns.append(np.zeros_like(s))
        for step in range(300):
            returns[-1] += 0.9**step * solution.reward(s)
            s = 0.5 * s + 0.3
    assert (returns[0] > returns[1]).all() and (returns[0] > returns[2]).all()


def test_progress_is_reported():
    seen = []
    settings = SETTINGS | {"samples": CHUNK + 1}
    certirl.solve(PROBLEM, **settings, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == 2 and seen[0][0] in (3, 3 * CHUNK) and seen[1] == (3 * CHUNK + 3, 3 * CHUNK + 3)


def test_a_pipe_stays_silent(capfd):
    certirl.solve(PROBLEM, **SETTINGS)
    assert capfd.readouterr() == ("", "")


def test_a_solution_within_the_noise_says_so():
    problem = certirl.problems.unsolvable(seed=1)
    solution = certirl.solve(problem, expert=0, basis=certirl.Legendre(11), discount=0.7, rng=0, samples=5_000)
    assert solution.within_noise and str(solution).startswith("Solved, not certified, within the noise")


def test_an_infeasible_solution_prints_its_witness():
    problem = certirl.problems.unsolvable(seed=1)
    from certirl.solver.solution import build

    operators = problem.operators(certirl.Legendre(11))
    criterion = steps.bellman(operators, discount=0.7)
    solution = build([operators], [criterion], steps.recover(criterion), choice="given")
    assert solution.status == "infeasible" and solution.reward is None
    assert len(str(solution).splitlines()) <= 6 + bool(solution.next)
    assert "witness" in str(solution) and "s = " in str(solution)
