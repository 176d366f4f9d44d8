"""Policies from demonstrations: errors counted on data the policy has not seen, against brute force and the truth."""

import numpy as np
import pytest

import certirl
from certirl.data.demonstrations import _Data, _nearest, chernoff_interval
from certirl.data.policy import as_policy
from certirl.fit.regression import held_out_rows
from certirl.ground.domain import as_domain
from refusals import refused


def boundary(states):
    return (states[:, 0] + 0.5 * states[:, 1] > 0.1).astype(int)


@pytest.mark.parametrize("periodic", [(), (1,)])
@pytest.mark.parametrize("k", [1, 5])
def test_neighbours_are_those_of_brute_force(k, periodic):
    rng = np.random.default_rng(0)
    states, fresh = rng.uniform([-1, 0], [1, 4], (200, 2)), rng.uniform([-1, 0], [1, 4], (300, 2))
    actions = rng.integers(2, size=200)
    box, rows = as_domain(((-1.0, 1.0), (0.0, 4.0))), np.arange(200)
    vote, _ = _nearest(_Data(states, actions, rows, "", box, periodic, 2, rows), rows, k)
    gap = np.abs(fresh[:, None] - states[None]) / [2.0, 4.0]
    if periodic:
        gap[:, :, 1] = np.minimum(gap[:, :, 1], 1 - gap[:, :, 1])
    near = np.linalg.norm(gap, axis=2).argsort(axis=1)[:, :k]
    assert np.array_equal(vote(fresh), (actions[near].mean(axis=1) > 0.5).astype(int))


def test_distances_go_around_where_coordinates_do():
    turns = np.linspace(-np.pi, np.pi, 400, endpoint=False)
    actions = (np.abs(turns) > 2).astype(int)
    asked = {"domain": (-np.pi, np.pi), "neighbours": 9}
    around = certirl.policy_from(turns, actions, periodic=[0], **asked)
    assert around.actions([[-np.pi], [np.pi], [3.1], [-3.1], [0.0]]).tolist() == [1, 1, 1, 1, 0]
    sparse = np.array([-3.1, -3.0, -2.9, 0.0, 0.1, 0.2, 2.0, 2.1, 2.2])
    near = certirl.policy_from(
        np.repeat(sparse, 4), np.repeat([1, 1, 1, 0, 0, 0, 2, 2, 2], 4), periodic=[0], **asked | {"neighbours": 1}
    )
    assert near.actions([[3.1]]).tolist() == [1]


def test_the_interval_holds_the_true_error_over_many_seeds():
    misses = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        states = rng.uniform(-1, 1, (300, 2))
        actions = np.where(rng.random(300) < 0.1, 1 - boundary(states), boundary(states))
        found = certirl.policy_from(states, actions, rng=seed, neighbours=3)
        fresh = rng.uniform(-1, 1, (4000, 2))
        taken = np.where(rng.random(4000) < 0.1, 1 - boundary(fresh), boundary(fresh))
        true = (found.actions(fresh) != taken).mean()
        low, high = found.interval
        misses += not low - 0.01 <= true <= high + 0.01
    assert misses <= 10


def test_episodes_are_held_out_whole_and_give_wider_intervals():
    rng = np.random.default_rng(1)
    starts = rng.uniform(-1, 1, (40, 2))
    states = np.clip(np.repeat(starts, 50, axis=0) + 0.01 * rng.standard_normal((2000, 2)), -1, 1)
    actions, episodes = boundary(states), np.repeat(np.arange(40), 50)
    singly = certirl.policy_from(states, actions, rng=0)
    whole = certirl.policy_from(states, actions, episodes=episodes, rng=0)
    assert whole.groups == 8
    assert whole.held_out == 400
    # A state held out alone has neighbours from its own episode: that estimate flatters.
    assert singly.interval[1] < whole.interval[1]
    fresh = rng.uniform(-1, 1, (5000, 2))
    true = (whole.actions(fresh) != boundary(fresh)).mean()
    assert whole.interval[0] <= true <= whole.interval[1]


def test_the_bound_for_episodes_holds_for_numbers_between_zero_and_one():
    rng, misses = np.random.default_rng(2), 0
    for _ in range(2000):
        numbers = rng.beta(0.5, 2.0, 12)
        low, high = chernoff_interval(float(numbers.mean()), 12)
        misses += not low <= 0.2 <= high
    assert misses <= 100
    assert chernoff_interval(0.0, 10)[0] == 0.0
    assert chernoff_interval(0.0, 10)[1] == pytest.approx(1 - (0.05 / 2) ** (1 / 10), rel=1e-9)
    assert chernoff_interval(1.0, 10)[1] == 1.0


def test_the_assumption_travels_with_the_policy():
    rng = np.random.default_rng(3)
    states = rng.uniform(-1, 1, (1000, 2))
    found = certirl.policy_from(states, boundary(states), n_actions=3)
    assert as_policy(found, 3) is found
    assert "estimated from 800 demonstrations" in found.assumption
    assert f"{found.errors:.2%} of 200 held out" in found.assumption
    assert found.interval[0] <= found.errors <= found.interval[1]
    assert "Of other states" not in str(found) and "of other states nothing is known" in str(found)
    assert found(states[:5]).shape == (5,)


def test_parts_of_one_recording_are_held_out():
    walk = np.cumsum(np.random.default_rng(4).normal(0, 0.1, 2_000)) % 2 - 1
    one = certirl.policy_from(walk, (walk > 0).astype(int), episodes=np.zeros(2_000))
    assert (one.groups, one.held_out) == (10, 400) and "in 10 parts of few episodes" in str(one)
    assert one.interval[0] <= one.errors < 0.02 and one.interval[1] < 0.5 and not one.is_guess


def test_a_log_with_episodes_is_a_demonstration():
    walks = [(np.linspace(a, 0.9, 12), np.repeat([0, 1], [6, 5]), True) for a in np.linspace(-1, 0, 10)]
    log = certirl.logs.from_episodes(walks, domain=(-1, 1), n_actions=2)
    found = certirl.policy_from(log)
    assert found.groups == 2
    assert found.demonstrations + found.held_out == 110  # without the rows that absorb
    with pytest.raises(TypeError, match="leave actions out"):
        certirl.policy_from(log, log.actions)


def test_any_classifier_with_fit_and_predict_serves():
    class Stump:
        def fit(self, features, labels):
            self.seen = features
            self.side = [labels[features[:, 0] <= 0].mean() > 0.5, labels[features[:, 0] > 0].mean() > 0.5]
            return self

        def predict(self, features):
            return np.where(features[:, 0] > 0, *self.side[::-1]).astype(int)

    states = np.random.default_rng(4).uniform(0, 10, 500)
    stump = Stump()
    found = certirl.policy_from(states, (states > 5).astype(int), method=stump, domain=(0, 10))
    assert not hasattr(stump, "seen")
    assert found.errors == 0
    assert found.interval[1] == pytest.approx(1 - 0.025 ** (1 / 100))
    assert "Stump" in found.assumption
    assert found.actions(np.array([[2.0], [9.0]])).tolist() == [0, 1]


def test_scikit_learn_sees_angles_as_points_of_a_circle():
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(random_state=0)
    turns = np.random.default_rng(5).uniform(-np.pi, np.pi, 2000)
    found = certirl.policy_from(
        turns, (np.cos(turns) < -0.5).astype(int), method=tree, domain=(-np.pi, np.pi), periodic=[0]
    )
    assert found.interval[1] < 0.03
    assert found.actions(np.array([[np.pi], [-np.pi], [0.0]])).tolist() == [1, 1, 0]


class Classifier:
    def __init__(self, answer):
        self.answer = answer

    def fit(self, rows, actions):
        return self

    def predict(self, rows):
        return self.answer(rows)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"states": None}, "states must be real numbers, got None"),
        ({"states": [[0.0], [0.0, 1.0]]}, "equally many in every row"),
        ({"states": np.ma.masked_less(np.linspace(0, 1, 20), 0.5)}, "got masked values, the first in row 0"),
        ({"actions": np.arange(20) % 2 * 10**6}, "action 1000000 in row 1 is above 999"),
        ({"actions": np.arange(20) % 2 * 999}, "the largest action is 999 but only 2 different actions occur"),
        ({"actions": np.zeros(3, int)}, "equally long"),
        ({"actions": None}, "needs states and the actions"),
        ({"n_actions": 1}, "is not the only action, 0"),
        ({"n_actions": "2"}, "n_actions must be a whole number of actions"),
        ({"domain": (0, 0.1)}, "lie outside the domain"),
        ({"periodic": [0]}, "periodic needs a domain"),
        ({"periodic": (3,), "domain": (0, 1)}, "periodic must be a tuple of coordinates"),
        ({"periodic": "yes", "domain": (0, 1)}, "periodic must be a tuple of coordinates"),
        ({"held_out": 0}, "held_out must be a number strictly between 0 and 1, got 0"),
        ({"neighbours": 0}, "neighbours must be a whole number, at least 1, got 0"),
        ({"neighbours": 2.5}, "neighbours must be a whole number"),
        ({"episodes": np.arange(20) % 5, "held_out": 0.05}, "held_out must leave some of 5 episodes"),
        ({"episodes": [1, 2]}, "episodes must have one number for each"),
        ({"episodes": [None] * 20}, "episodes must be numbers or names, one for each row and none missing"),
        ({"method": "magic"}, 'method must be "neighbours" or a classifier'),
        ({"method": Classifier(lambda rows: "left")}, "Classifier.predict must be real numbers, got 'left'"),
        ({"method": Classifier(lambda rows: rows[:3, 0])}, "one action 0, 1, … for each of 4 states"),
        ({"method": Classifier(lambda rows: np.full(len(rows), 0.5))}, "one action 0, 1, … for each of 4 states"),
        *(
            ({"errors": errors}, r"errors must be a share between 0 and 0\.3, got")
            for errors in (-0.1, 0.31, "5%", True, np.nan)
        ),
    ],
)
def test_wrong_calls_are_told_what_to_write_instead(asked, sentence):
    given = {"states": np.linspace(0, 1, 20), "actions": np.arange(20) % 2} | asked
    with pytest.raises((ValueError, TypeError), match=sentence):
        certirl.policy_from(**given)


# A declared share of mistakes.


def with_mistakes(n, seed, share=0.05):
    """Demonstrations of which a share is random, the true action at each, and which are mistakes."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1, 1, (n, 2))
    true = boundary(states)
    actions = np.where(rng.random(n) < share, rng.integers(2, size=n), true)
    return states, actions, actions != true


def test_a_declared_share_of_mistakes_helps_where_a_method_repeats_them():
    """One neighbour repeats every mistake; without those that are contradicted it is three times as often right."""
    fresh = np.random.default_rng(99).uniform(-1, 1, (5000, 2))
    wrong = {None: [], 0.05: []}
    for seed in range(5):
        states, actions, mistaken = with_mistakes(2000, seed)
        for errors, shares in wrong.items():
            policy = certirl.policy_from(states, actions, errors=errors, neighbours=1, rng=seed)
            shares.append((policy(fresh) != boundary(fresh)).mean())
            low, high = policy.interval
            assert errors is None or low <= shares[-1] <= high
        assert mistaken[policy.set_aside].mean() > 0.9  # few of those set aside were right
        assert len(policy.set_aside) > 0.8 * mistaken.sum() * 0.8  # most of those in the fitted part were found
        first = ", ".join(map(str, policy.set_aside[:5]))
        assert f"without {len(policy.set_aside)} that their neighbours contradict (rows {first} …)" in str(policy)
        assert "with confidence 95% if up to 0.05 of the actions are mistakes" in str(policy)
    assert np.mean(wrong[0.05]) < np.mean(wrong[None]) / 2


def test_trees_fit_mistakes_unless_these_are_set_aside():
    tree = pytest.importorskip("sklearn.tree", reason="scikit-learn is not installed").DecisionTreeClassifier
    fresh = np.random.default_rng(99).uniform(-1, 1, (5000, 2))
    wrong = {None: [], 0.05: []}
    for seed in range(5):
        states, actions, _ = with_mistakes(2000, seed)
        for errors, shares in wrong.items():
            policy = certirl.policy_from(states, actions, errors=errors, method=tree(random_state=0))
            shares.append((policy(fresh) != boundary(fresh)).mean())
    assert np.mean(wrong[0.05]) < np.mean(wrong[None]) / 1.5


def test_no_more_is_set_aside_than_declared_and_nothing_without_a_reason():
    states, actions, _ = with_mistakes(1000, 0, share=0.2)
    policy = certirl.policy_from(states, actions, errors=0.03)
    assert len(policy.set_aside) == np.ceil(0.03 * 800) and policy.demonstrations == 800 - len(policy.set_aside)
    clean = certirl.policy_from(states, boundary(states), errors=0.3)
    assert len(clean.set_aside) < 0.01 * 800
    same = certirl.policy_from(states, actions), certirl.policy_from(states, actions, errors=0.0)
    assert str(same[0]) == str(same[1]) and not len(same[1].set_aside)


def test_the_rows_that_were_set_aside_are_those_of_the_log():
    walks = [(np.linspace(a, 0.9, 41), np.repeat([0, 1], 20), True) for a in np.linspace(-1, 0, 10)]
    walks[3][1][[4, 30]] = [1, 0]
    log = certirl.logs.from_episodes(walks, domain=(-1, 1), n_actions=2)
    policy = certirl.policy_from(log, errors=0.02, rng=1)
    assert {124, 150} <= set(policy.set_aside.tolist()) and log.actions[124] == 1


# Whether states predict actions.


def acted(rule, seed, episodes=10, steps=20):
    """States, actions and episodes of walks whose actions follow a rule ``(states, rng)``."""
    rng = np.random.default_rng(seed)
    states, actions = np.empty((steps, episodes)), np.empty((steps, episodes), dtype=int)
    now = rng.uniform(-1, 1, episodes)
    for t in range(steps):
        states[t], actions[t] = now, rule(now, rng)
        now = np.clip(0.9 * now + np.where(actions[t], -0.25, 0.2) + 0.1 * rng.standard_normal(episodes), -1, 1)
    return states.T.reshape(-1), actions.T.reshape(-1), np.repeat(np.arange(episodes), steps)


@pytest.mark.parametrize(
    ("rule", "alarms"),
    [
        (lambda s, rng: s > 0.3, 0),
        (lambda s, rng: (s > 0.3) ^ (rng.random(len(s)) < 0.1), 0),
        (lambda s, rng: rng.random(len(s)) < 0.3, 100),
    ],
)
def test_random_actions_are_told_from_those_of_a_rule_by_ten_short_episodes(rule, alarms):
    """Two held-out episodes said nothing: guessing lay within the interval for the errors of most such logs."""
    found = 0
    for seed in range(100):
        states, actions, episodes = acted(rule, seed)
        found += certirl.policy_from(states, actions, episodes=episodes, domain=(-1, 1), n_actions=2).is_guess
    assert abs(found - alarms) <= 5


def test_a_constant_expert_is_no_guess():
    states, _, episodes = acted(lambda s, rng: s > 0.3, 0)
    assert not certirl.policy_from(states, np.zeros(200, int), episodes=episodes, n_actions=2).is_guess


def test_a_copied_episode_is_no_test_of_the_other():
    """With copies on both sides, the nearest demonstration is the copy: 34 % of errors were reported for 47 %."""
    states, actions, _ = acted(lambda s, rng: rng.random(len(s)) < 0.5, 0, episodes=40, steps=10)
    drawn = np.random.default_rng(1).integers(40, size=40)
    rows = (10 * drawn[:, None] + np.arange(10)).reshape(-1)
    different, copied = np.unique(drawn), np.repeat(np.arange(40), 10)
    found = certirl.policy_from(states[rows], actions[rows], episodes=copied, domain=(-1, 1))
    assert found.demonstrations + found.held_out == 10 * len(different) and found.is_guess
    assert f"without {40 - len(different)} copies of episodes" in str(found)
    log = certirl.Transitions(states[rows], actions[rows], states[rows], domain=(-1, 1), episodes=copied)
    held_out = held_out_rows(log)
    which = np.repeat(drawn, 10)
    assert not {*which[held_out]} & {*which[~held_out]} and held_out.any()


@pytest.mark.parametrize("steps", [1, 5])
def test_episodes_that_start_alike_are_no_copies(steps):
    rng, episodes = np.random.default_rng(0), np.repeat(np.arange(80), steps)
    states = np.cumsum(rng.normal(0, 0.1, (80, steps)), axis=1)
    states[:, 0] = 0.0
    found = certirl.policy_from(states.ravel(), rng.integers(2, size=80 * steps), episodes=episodes)
    assert found.demonstrations + found.held_out == 80 * steps and "copies" not in str(found)


def test_a_file_that_is_read_twice_is_noticed_among_demonstrations(tmp_path):
    states, actions, episodes = acted(lambda s, rng: s > 0.3, 0)
    for name in ("monday", "tuesday"):
        np.savez(tmp_path / f"{name}.npz", state=states, action=actions, episode=episodes)
    refused("the same data would count twice", certirl.policy_from, str(tmp_path))
