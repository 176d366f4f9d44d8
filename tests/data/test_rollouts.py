"""Rollouts against plain loops, one walk at a time."""

import numpy as np
import pytest

from certirl.data.policy import Policy, as_policy, choose, returns, simulate, uniform_policy


class Drift:
    """A step to the right or to the left with noise on [-1, 1]; beyond 0.8 all is over."""

    n_actions, domain, thread_safe = 2, ((-1.0, 1.0),), True

    def __init__(self, noise=0.0):
        self.noise = noise

    def sample(self, states, action, rng):
        return np.clip(states + (0.3 if action else -0.2) + self.noise * rng.standard_normal(states.shape), -1, 1)

    def terminal(self, states):
        return states[:, 0] > 0.8


def paid(states, terminal):
    return np.full(len(states), 7.0) if terminal else states[:, 0]


def rule(states):
    return (states[:, 0] > -0.5).astype(int)


def test_a_return_is_that_of_a_plain_loop_and_terminal_states_go_on_paying():
    starts = np.array([[-1.0], [-0.4], [0.3], [0.7], [0.9]])
    policies = [as_policy(0, 2), *[as_policy(rule, 2)] * 5]
    found = returns(Drift(), starts, policies, paid, discount=0.9, rng=np.random.default_rng(0))
    for start, total in zip(starts[:, 0], found, strict=True):
        s, expected = start, 0.0
        for t in range(6):
            if s <= 0.8:
                s = np.clip(s + (0.3 if t and s > -0.5 else -0.2), -1, 1)
            expected += 0.9**t * (7.0 if s > 0.8 else s)
        assert total == pytest.approx(expected)


def test_steps_hold_the_walks_that_have_not_ended():
    starts = np.array([[0.9], [0.0], [0.6], [-1.0]])
    steps = list(simulate(Drift(), starts, [as_policy(1, 2)] * 9, np.random.default_rng(0)))
    assert [step.rows.tolist() for step in steps] == [[1, 2, 3], [1, 3], [1, 3], [3], [3], [3], [3]]
    assert [step.over.tolist() for step in steps][:2] == [[False, True, False], [False, False]]
    assert steps[-1].over.all() and steps[-1].next_states[0, 0] == pytest.approx(1.0)


def test_the_noise_of_a_walk_does_not_depend_on_the_other_walks():
    mixed, rng = Policy(2, lambda s: np.tile([0.5, 0.5], (len(s), 1))), np.random.default_rng
    together = np.array([[0.0], [-0.9], [0.5]])
    apart = np.array([[0.0], [0.79], [-0.5]])  # the second walk ends at once, the third takes other actions
    walks = [
        [(step.actions[0], step.next_states[0, 0]) for step in simulate(Drift(0.05), starts, [mixed] * 4, rng(3))]
        for starts in (together, apart)
    ]
    assert walks[0] == walks[1]


def test_actions_are_drawn_with_their_probabilities():
    chances = np.array([0.2, 0.0, 0.5, 0.3])
    policy, states = Policy(4, lambda s: np.tile(chances, (len(s), 1))), np.zeros((4000, 1))
    uniform = (np.arange(4000) + 0.5) / 4000
    assert np.bincount(choose(policy, states, uniform), minlength=4) / 4000 == pytest.approx(chances)
    assert choose(policy, states[:2], np.array([0.0, np.nextafter(1, 0)])).tolist() == [0, 3]
    sure = as_policy(lambda s: np.full(len(s), 2), 4)
    assert choose(sure, states[:2], np.array([0.0, np.nextafter(1, 0)])).tolist() == [2, 2]
    assert np.bincount(choose(uniform_policy(4), states, uniform)).tolist() == [1000] * 4
