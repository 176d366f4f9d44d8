"""Rollouts agree with the exact margins, catch a wrong reward, and repeat themselves."""

import numpy as np
import pytest

import certirl
from certirl.proof import rollout
from certirl.proof.rollout import rollout_check
from solved import POLYNOMIAL as PROBLEM
from solved import solution
from systems import Moving

SETTINGS = {"states": 20, "samples": 3000, "rng": 0}


@pytest.fixture(scope="module")
def right():
    """What is said of a right reward."""
    return rollout_check(solution(), PROBLEM, **SETTINGS)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("problem", "reward", "expert"),
    [
        (PROBLEM, lambda s: solution().reward(s), 0),
        (PROBLEM, lambda s: np.sin(3 * s[:, 0]), 1),
        (certirl.problems.thermostat(), lambda s: s, 0),
        (certirl.problems.circle(), np.cos, 2),
    ],
)
def test_rollouts_agree_with_the_exact_margins(problem, reward, expert):
    check = rollout_check(reward, problem, discount=0.5, expert=expert, steps=12, **SETTINGS)
    truth = problem.margins(reward, check.states, discount=0.5, expert=expert)
    assert check.advantage.shape == check.standard_error.shape == truth.shape == (problem.n_actions - 1, 20)
    assert (np.abs(check.advantage - truth) <= 5 * check.standard_error + check.truncation).all()
    assert check.truncation < 0.05 * np.ptp(truth) + 0.05


def test_the_truncation_is_a_bound():
    room = certirl.problems.thermostat()
    warmth = certirl.Reward(certirl.Legendre(2, (15, 25)), [0.0, 1.0])
    one = rollout_check(warmth, room, discount=0.8, steps=1, **SETTINGS)
    missing = np.abs(one.advantage - room.margins(warmth, one.states, discount=0.8))
    assert missing.max() > 10 * one.standard_error.max()  # something is missing after one step …
    assert (missing <= 5 * one.standard_error + one.truncation).all()  # … and never more than is said
    assert one.truncation == pytest.approx(0.8 * (warmth(25.0) - warmth(15.0)) / 0.2)


def test_a_correct_reward_passes(right):
    assert right.agrees and right.contradicted == 0
    assert right.states[0, 0] == -1 and right.states[-1, 0] == 1
    text = str(right)
    assert "all favour the expert" in text and "3,000 rollouts of 6 steps from each of 20 states" in text
    assert f"{right.truncation:.2g}" in text and len(text.splitlines()) == 4


def test_a_wrong_reward_is_contradicted():
    check = rollout_check(lambda s: -solution().reward(s), PROBLEM, discount=0.7, **SETTINGS)
    assert not check.agrees and check.contradicted > 30
    assert f"{check.contradicted} contradict the reward" in str(check)


def test_what_contradicts_a_right_reward_over_six_steps_is_not_called_more_than_that():
    """The expert pays 1 once and earns 0.1 ever after, its rival leads to 0 for good: V is 8.9 against 0."""

    class Later:
        n_actions, domain, thread_safe = 2, ((-1.0, 1.0),), True

        def sample(self, states, action, rng):
            middle = 0.0 if action == 0 else -1.0
            s = states[:, 0]
            return np.where(np.abs(s) == 1, s, np.where(s == 0, 1.0, middle))

    def reward(states):
        return np.where(states[:, 0] == 0, -1.0, 0.1 * (states[:, 0] == 1))

    starts = np.array([-0.5, 0.5])
    check = certirl.trials.rollout_check(reward, Later(), discount=0.99, states=starts, samples=2, rng=0)
    assert check.contradicted == 2
    assert "2 contradict the reward over 6 steps, 0 of them whatever follows" in str(check)
    later = certirl.trials.rollout_check(reward, Later(), discount=0.99, states=starts, samples=2, steps=20, rng=0)
    assert later.agrees and later.contradicted == 0


def test_a_constant_reward_is_in_doubt_everywhere_and_contradicted_nowhere():
    check = rollout_check(lambda s: 0 * s + 3, PROBLEM, discount=0.7, **SETTINGS)
    assert not check.agrees and check.contradicted == 0 and check.doubtful == check.advantage.size
    assert "none beyond chance" in str(check)


def test_equal_actions_are_rarely_contradicted():
    class Coin:
        n_actions, domain = 3, ((0.0, 1.0),)

        def sample(self, states, action, rng):
            if action:  # other actions use other random numbers, so that nothing cancels
                rng.random(action)
            return rng.random(len(states))

    runs = [rollout_check(lambda s: s, Coin(), discount=0.9, states=10, samples=200, rng=seed) for seed in range(40)]
    assert sum(run.contradicted > 0 for run in runs) <= 6  # promised: one in twenty
    shares = [run.doubtful / run.advantage.size for run in runs]
    assert np.mean(shares) == pytest.approx(0.954, abs=0.03)


def test_same_rng_same_result_whatever_the_chunks(right, monkeypatch):
    again = rollout_check(solution(), PROBLEM, **SETTINGS)
    np.testing.assert_array_equal(again.advantage, right.advantage)
    other = rollout_check(solution(), PROBLEM, **(SETTINGS | {"rng": 1}))
    assert not np.array_equal(other.advantage, right.advantage)
    monkeypatch.setattr(rollout, "ROWS", 777)
    apart = rollout_check(solution(), PROBLEM, **(SETTINGS | {"samples": 300}))
    errors = np.hypot(apart.standard_error, right.standard_error)
    assert (np.abs(apart.advantage - right.advantage) <= 5 * errors).all()


def test_common_random_numbers_take_noise_off(right):
    class Apart:
        n_actions, domain = PROBLEM.n_actions, PROBLEM.domain

        def sample(self, states, action, rng):
            rng.random(action + 1)  # shifts the random numbers of each action
            return PROBLEM.sample(states, action, rng)

    apart = rollout_check(solution(), Apart(), **SETTINGS)
    assert right.standard_error.mean() < 0.8 * apart.standard_error.mean()


def test_start_states_may_be_given_and_may_be_a_single_one():
    given = rollout_check(solution(), PROBLEM, states=[-0.5, 0.5], samples=50, rng=0)
    np.testing.assert_array_equal(given.states, [[-0.5], [0.5]])
    assert rollout_check(solution(), PROBLEM, states=1, samples=50, rng=0).states.tolist() == [[0.0]]


def test_several_coordinates():
    PLANE = Moving(((0.0, 1.0), (0.0, 2.0)), (0.3, -0.3), std=0.1)
    check = rollout_check(lambda s: s.sum(axis=1), PLANE, discount=0.5, states=7, samples=100, rng=0)
    assert check.states.shape == (7, 2) and check.agrees and "[0, 1] × [0, 2]" in str(check)


@pytest.mark.parametrize(
    ("reward", "settings", "sentence"),
    [
        (None, {"states": 0}, "how many to start from, at least 1, got 0"),
        (None, {"states": 2.5}, "how many to start from, at least 1, got 2.5"),
        (None, {"states": []}, "at least one start state"),
        (None, {"states": [0.0, 3.0]}, "1 of 2 states lie outside the domain"),
        (None, {"steps": 0}, "steps must be a whole number, at least 1, got 0"),
        (None, {"samples": 1}, "samples must be a whole number, at least 2, got 1"),
        (None, {"discount": 1.0}, "discount must be a number strictly between 0 and 1, got 1.0"),
        (None, {"expert": 3}, "expert must be one of the actions 0 … 2, got 3"),
        (None, {"rng": None}, "rng is needed"),
        (np.cos, {}, "pass discount=0.9, say"),
        (5, {"discount": 0.5}, "must be a function of states, a Reward or a Solution, got int"),
        (lambda s: np.log(-1 - 0 * s), {"discount": 0.5}, "must be finite at every state of the domain, but it is nan"),
        (lambda s: np.zeros(3), {"discount": 0.5}, "numbers, got shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_bad_input_gets_a_sentence(reward, settings, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        rollout_check(
            solution() if reward is None else reward, PROBLEM, **({"states": 5, "samples": 20, "rng": 0} | settings)
        )


def test_what_is_no_simulator_and_what_has_no_reward_are_refused():
    with pytest.raises(TypeError, match="neither Transitions nor a simulator"):
        rollout_check(solution(), object(), rng=0)
    data = certirl.steps.sample(PROBLEM, basis=certirl.Legendre(5), samples=50, rng=0)
    with pytest.raises(TypeError, match="pass a simulator"):
        rollout_check(solution(), data, rng=0)
    unsolvable = certirl.problems.unsolvable(seed=1)
    nothing = certirl.steps.recover(certirl.steps.bellman(unsolvable.operators(certirl.Legendre(11)), discount=0.7))
    with pytest.raises(ValueError, match="there is no reward to check: no reward in this class"):
        rollout_check(nothing, unsolvable, discount=0.7, rng=0)
