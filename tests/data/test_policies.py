"""An expert is an action, a function of states, or probabilities of actions; anything else gets a sentence."""

import numpy as np
import pytest

from certirl.data.policy import Policy, as_policy

STATES = np.linspace(-1, 1, 7)[:, None]


def test_an_action_is_taken_everywhere():
    policy = as_policy(1, 3)
    assert policy.constant == 1
    assert (policy(STATES) == 1).all()
    assert np.array_equal(policy.probabilities(STATES), np.tile([0.0, 1.0, 0.0], (7, 1)))


def test_a_function_of_states_chooses_for_each():
    policy = as_policy(lambda states: (states[:, 0] > 0).astype(int), 2)
    assert policy.constant is None
    assert policy(STATES).tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert policy.support(STATES).sum(axis=1).tolist() == [1] * 7


def test_yes_and_no_are_actions_too():
    assert as_policy(lambda states: states[:, 0] > 0, 2)(STATES).tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_probabilities_keep_their_support_and_name_the_likeliest():
    policy = as_policy(lambda states: np.tile([0.5, 0.5, 0.0], (len(states), 1)), 3)
    assert policy.support(STATES).tolist() == [[True, True, False]] * 7
    assert (policy(STATES) == 0).all()


def test_a_learner_is_asked_not_to_explore():
    class Learner:
        def predict(self, observation, state=None, deterministic=False):
            return (observation[:, 0] > 0).astype(int) if deterministic else np.ones(len(observation), int), state

    assert as_policy(Learner(), 2)(np.array([[-1.0], [1.0]])).tolist() == [0, 1]
    assert as_policy(type("Compiled", (), {"predict": staticmethod(np.ravel)})(), 2)(np.array([[1.0]])).tolist() == [1]


def test_what_other_libraries_call_a_model_is_asked_to_predict():
    class Model:
        def predict(self, states):
            return np.zeros(len(states), dtype=int), None

    assert (as_policy(Model(), 2)(STATES) == 0).all()


def test_a_policy_stays_what_it_is_and_keeps_its_assumption():
    class Guess:
        assumption = "estimated"

        def __call__(self, states):
            return np.zeros(len(states), dtype=int)

    policy = as_policy(Guess(), 2)
    assert policy.assumption == "estimated"
    assert as_policy(policy, 2) is policy
    with pytest.raises(ValueError, match="among 2 actions, the data have 3"):
        as_policy(policy, 3)


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
    with pytest.raises(ValueError, match=sentence):
        Policy(2, lambda states: answer).probabilities(STATES)


@pytest.mark.parametrize("expert", [-1, 2])
def test_an_action_that_does_not_exist_is_refused(expert):
    with pytest.raises(ValueError, match="one of the actions 0 … 1"):
        as_policy(expert, 2)


@pytest.mark.parametrize("expert", ["left", None, True])
def test_what_is_no_expert_is_refused(expert):
    with pytest.raises(TypeError, match="a function of states"):
        as_policy(expert, 2)


@pytest.mark.parametrize(
    "answer", [lambda x: np.where(x < 0, "up", "down"), lambda x: ["up", "down"], lambda x: [1, 0]]
)
def test_an_expert_may_return_the_names_of_actions(answer):
    policy = as_policy(lambda states: answer(states[:, 0]), 2, ("down", "up"))
    assert policy(np.array([[-0.5], [0.5]])).tolist() == [1, 0]


def test_an_unknown_name_of_an_action_is_refused():
    policy = as_policy(lambda states: np.full(len(states), "upp"), 2, ("down", "up"))
    with pytest.raises(ValueError, match=r"actions down, up, or their numbers, got 'upp' \(perhaps 'up'\)"):
        policy(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"numbers of actions, 0 … 1, got 'upp': the actions have no names"):
        as_policy(policy.rule, 2)(np.zeros((2, 1)))
