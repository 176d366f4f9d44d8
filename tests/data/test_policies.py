"""An expert is an action, a function of states, or probabilities of actions; anything else gets a sentence."""

import numpy as np
import pytest

from certirl.data.policy import Policy, as_policy
from refusals import refused

STATES = np.linspace(-1, 1, 7)[:, None]


class Model:
    """What other libraries call a model."""

    def predict(self, states):
        return (states[:, 0] > 0).astype(int), None


RIGHT = np.eye(3)[(STATES[:, 0] > 0).astype(int)]


@pytest.mark.parametrize(
    ("expert", "chances"),
    [
        (1, np.tile([0.0, 1.0, 0.0], (7, 1))),
        (lambda states: (states[:, 0] > 0).astype(int), RIGHT),
        (lambda states: states[:, 0] > 0, RIGHT),  # yes and no are actions, too
        (Model(), RIGHT),
        (lambda states: np.tile([0.5, 0.5, 0.0], (len(states), 1)), np.tile([0.5, 0.5, 0.0], (7, 1))),
    ],
)
def test_actions_functions_models_and_probabilities_are_experts(expert, chances):
    policy = as_policy(expert, 3)
    assert policy.constant == (expert if isinstance(expert, int) else None)
    np.testing.assert_array_equal(policy.probabilities(STATES), chances)
    np.testing.assert_array_equal(policy.support(STATES), chances > 0)
    assert policy(STATES).tolist() == chances.argmax(axis=1).tolist()  # the likeliest, the first on a tie


@pytest.mark.parametrize(
    ("expert", "problem", "sentence"),
    [
        (-1, ValueError, "one of the actions 0 … 1"),
        (2, ValueError, "one of the actions 0 … 1"),
        *((expert, TypeError, "a function of states") for expert in ("left", None, True)),
    ],
)
def test_what_is_no_expert_is_refused(expert, problem, sentence):
    with pytest.raises(problem, match=sentence):
        as_policy(expert, 2)


def test_a_learner_is_asked_not_to_explore():
    class Learner:
        def predict(self, observation, state=None, deterministic=False):
            return (observation[:, 0] > 0).astype(int) if deterministic else np.ones(len(observation), int), state

    assert as_policy(Learner(), 2)(np.array([[-1.0], [1.0]])).tolist() == [0, 1]
    assert as_policy(type("Compiled", (), {"predict": staticmethod(np.ravel)})(), 2)(np.array([[1.0]])).tolist() == [1]


def test_a_policy_stays_what_it_is_and_keeps_its_assumption():
    class Guess:
        assumption = "estimated"

        def __call__(self, states):
            return np.zeros(len(states), dtype=int)

    policy = as_policy(Guess(), 2)
    assert policy.assumption == "estimated"
    assert as_policy(policy, 2) is policy
    refused("among 2 actions, the data have 3", as_policy, policy, 3)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (0, "asked about all states at once: for 7 states it must return 7 actions"),
        (np.zeros((7, 5)), r"got shape \[7, 5\]"),
        (np.full(7, 2), "action 2 in row 0 is not among the 2 actions"),
        (np.full(7, 0.5), "whole numbers"),
        (np.full((7, 2), 0.4), "add up to 1, got 0.4, 0.4 in row 0"),
        (np.full((7, 2), np.nan), "add up to 1"),
    ],
)
def test_wrong_answers_of_an_expert_get_a_sentence(answer, sentence):
    refused(sentence, Policy(2, lambda states: answer).probabilities, STATES)


@pytest.mark.parametrize(
    "answer", [lambda x: np.where(x < 0, "up", "down"), lambda x: ["up", "down"], lambda x: [1, 0]]
)
def test_an_expert_may_return_the_names_of_actions(answer):
    policy = as_policy(lambda states: answer(states[:, 0]), 2, ("down", "up"))
    assert policy(np.array([[-0.5], [0.5]])).tolist() == [1, 0]


def test_an_unknown_name_of_an_action_is_refused():
    policy = as_policy(lambda states: np.full(len(states), "upp"), 2, ("down", "up"))
    refused(r"actions down, up, or their numbers, got 'upp' \(perhaps 'up'\)", policy, np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"numbers of actions, 0 … 1, got 'upp': the actions have no names"):
        as_policy(policy.rule, 2)(np.zeros((2, 1)))
