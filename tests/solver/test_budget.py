"""Every row that a simulator is asked about is counted, and the numbers printed are those counted."""

import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import certirl
from certirl.data.simulator import Counted, bare, draw
from certirl.data.source import as_source
from certirl.data.transitions import CHUNK


class Walk:
    """A walk on an interval that counts what it is asked, by action."""

    n_actions, domain = 2, ((0.0, 10.0),)

    def __init__(self, noise=1.0):
        self.noise, self.asked = noise, np.zeros(2, dtype=int)

    def sample(self, states, action, rng):
        self.asked[action] += len(states)
        noise = self.noise * rng.normal(size=states.shape) if self.noise else 0.0
        return np.clip(states + (0.5, -0.5)[action] + noise, 0, 10)


class Unpaired(Walk):
    """Its actions use different numbers of random numbers."""

    def sample(self, states, action, rng):
        rng.random(action * len(states))
        return super().sample(states, action, rng)


class Ending(Walk):
    """Both ends are terminal."""

    def terminal(self, states):
        return (states[:, 0] < 1) | (states[:, 0] > 9)


class Plane(Walk):
    """Two walks side by side."""

    domain = ((0.0, 10.0), (0.0, 10.0))


def towards(states):
    return states[:, 0] > 5


def asked_in_all(solution):
    counts = solution.stats.asked
    return counts.answer + counts.trials + counts.checks


BASIS = certirl.Legendre(5)
ONE = {"expert": 0, "basis": BASIS, "columns": 3, "samples": 2_000}
POLICY = {"expert": towards, "samples": 2_000}
PROOF = {"delta": 0.05, "tail": certirl.dynamics.GaussianNoise(1.0, 1.0)}
FEATURES = certirl.FeatureForm({"distance": lambda states: np.abs(states[:, 0] - 5)})
CALLS = {
    "one action": (Walk, ONE),
    "one action, basis chosen": (Walk, {"expert": 0, "samples": 2_000}),
    "one action, not paired": (Unpaired, ONE),
    "sum of components": (Plane, ONE | {"components": [[0], [1]]}),
    "one action with a proof": (Walk, ONE | PROOF | {"samples": 20_000, "columns": 15, "basis": certirl.Legendre(15)}),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_numbers_printed_are_those_counted(kind):
    make, asked = CALLS[kind]
    walk = make()
    solution = certirl.solve(walk, discount=0.7, rng=0, **asked)
    counts = solution.stats.asked
    assert asked_in_all(solution) == walk.asked.max()
    assert counts.answer == max(solution.stats.counts) <= asked["samples"]
    assert counts.trials == 0 and f"{counts.checks:,} to check" in str(solution.stats)
    assert f"{counts.answer:,} transitions for each of 2 actions" in str(solution)


POLICIES = {
    "policy": (Walk, POLICY),
    "not paired": (Unpaired, POLICY),
    "without noise": (lambda: Walk(noise=0.0), POLICY),
    "faint noise": (lambda: Walk(noise=0.02), POLICY),
    "two coordinates": (Plane, POLICY | {"samples": 500}),
    "features": (Walk, POLICY | {"method": FEATURES}),
    "features without noise": (lambda: Walk(noise=0.0), POLICY | {"method": FEATURES}),
    "terminal states": (Ending, POLICY),
    "terminal states, one action": (Ending, POLICY | {"expert": 0}),
    "few trials": (Walk, POLICY | {"trials": 300}),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_samples_bound_the_answer_and_trials_its_trial(kind):
    make, asked = POLICIES[kind]
    walk = make()
    solution = certirl.solve(walk, discount=0.7, rng=0, **asked)
    counts, samples = solution.stats.asked, asked["samples"]
    assert walk.asked.max() == asked_in_all(solution)
    assert counts.answer + counts.checks <= samples and counts.answer >= 0.75 * samples
    assert 0 < counts.trials <= asked.get("trials", counts.answer)  # episodes to an end may take fewer
    assert make is Ending or counts.trials == asked.get("trials", counts.answer)
    assert solution.samples == counts.answer and f"trials {counts.trials:,} more" in str(solution)
    assert f"{counts.answer:,} {'states' if solution.stats.noiseless else 'transitions'}" in str(solution)


def test_a_proof_for_a_policy_that_fails_is_tried_within_its_own_samples():
    walk = Walk()
    asked = {"expert": towards, "samples": 3_000, "delta": 0.05, "tail": certirl.dynamics.GaussianNoise(1.0, 1.0)}
    solution = certirl.solve(walk, discount=0.5, rng=0, columns=13, **asked)
    counts = solution.stats.asked
    assert solution.status != "certified" and walk.asked.max() == asked_in_all(solution)
    assert solution.samples == counts.answer == 3_000 == counts.trials


def test_an_environment_is_stepped_as_often_as_is_printed():
    pytest.importorskip("gymnasium")
    pendulum = certirl.gym.simulator("Pendulum-v1", actions=[-2.0, 2.0])
    stepped, step = np.zeros(2, dtype=int), pendulum.sample

    def sample(states, action, rng):
        stepped[action] += len(states)
        return step(states, action, rng)

    object.__setattr__(pendulum, "sample", sample)
    expert = lambda states: states[:, 1] > 0  # noqa: E731
    solution = certirl.solve(pendulum, expert=expert, discount=0.8, samples=500, rng=0)
    assert stepped.max() == asked_in_all(solution) <= 1_000


CHECKED = 6_400 + 512 + 358  # rows of an action: whether its rows are independent, noisy and can be paired


@pytest.mark.parametrize("statement", ["certify", "refute"])
def test_a_proof_asks_for_its_samples_and_for_what_checks_of_the_simulator_take(statement):
    walk, asked = Walk(), {"expert": 0, "samples": 3_000, "rng": 0, "tail": 0.05}
    if statement == "certify":
        certirl.certify(lambda states: states[:, 0], walk, discount=0.5, columns=certirl.Legendre(13), **asked)
    else:
        certirl.refute(walk, basis=certirl.Legendre(3), columns=13, **asked)
    assert 3_000 < walk.asked.max() <= 3_000 + CHECKED


def test_trials_are_counted_printed_and_left_out(tmp_path):
    walk = Walk()
    tried = certirl.solve(walk, discount=0.7, rng=0, **POLICY)
    assert asked_in_all(tried) == walk.asked.max() and tried.stats.asked.trials > 0
    assert int(re.search(r"trials ([\d,]+) more", str(tried))[1].replace(",", "")) == tried.stats.asked.trials
    untried = certirl.solve(Walk(), discount=0.7, rng=0, trials=0, **POLICY)
    assert untried.stats.asked.trials == 0 and untried.status == "solved" and "trials " not in str(untried)
    assert untried.stats.planned_share is None and untried.stats.greedy_share is None
    np.testing.assert_array_equal(untried.reward.coefficients, tried.reward.coefficients)
    saved = certirl.load(tried.save(tmp_path / "answer"))
    assert saved.stats.asked == tried.stats.asked and saved.to_dict()["stats"]["asked"]["trials"] > 0


def test_trials_without_effect_are_refused():
    log = certirl.steps.sample(Walk(), basis=BASIS, samples=200, rng=0)
    with pytest.raises(ValueError, match="trials is for simulators"):
        certirl.solve(log, discount=0.7, expert=towards, trials=500)
    with pytest.raises(ValueError, match="trials is for experts that depend on the state"):
        certirl.solve(Walk(), expert=0, discount=0.7, trials=500, rng=0)
    with pytest.raises(ValueError, match="trials must be a whole number of transitions per action"):
        certirl.solve(Walk(), discount=0.7, expert=towards, trials=-1, rng=0)
    with pytest.raises(ValueError, match="trials must be 0, for no trial, or at least 100, got 5"):
        certirl.solve(Walk(), discount=0.7, expert=towards, trials=5, rng=0)


def test_a_log_draws_nothing():
    log = certirl.steps.sample(Walk(), basis=BASIS, samples=300, rng=0)
    solution = certirl.solve(log, discount=0.7, expert=towards)
    assert solution.stats.asked is None and "trials" not in str(solution)


def test_what_was_drawn_is_kept_and_asked_once():
    walk = Walk()
    source = as_source(walk)
    draws = draw(source.data, BASIS, 1_000, 0, keeps=True)
    first, second = draws.record(), draws.record()
    np.testing.assert_array_equal(first.next_states, second.next_states)
    beginning = draws.leading(300).record()
    np.testing.assert_array_equal(beginning.of_action(1)[1], first.of_action(1)[1][:300])
    assert walk.asked.tolist() == [1_000, 1_000] == source.counts_of_rows.rows["answer"].tolist()


def test_what_is_too_large_to_be_kept_is_asked_again_and_counted_once():
    walk = Walk()
    source = as_source(walk)
    source.counts_of_rows.room = 2 * 2 * CHUNK  # states and next states of both actions
    draws = draw(source.data, BASIS, CHUNK + 10, 0, keeps=True)
    first, second = draws.record(), draws.record()
    np.testing.assert_array_equal(first.next_states, second.next_states)
    assert source.counts_of_rows.rows["answer"].tolist() == [CHUNK + 10] * 2
    assert CHUNK + 10 < walk.asked[0] == walk.asked[1] < 2 * CHUNK + 10


def test_rows_that_are_drawn_elsewhere_are_counted_here():
    walk, here = Walk(), Walk()
    with ThreadPoolExecutor(2) as pool:
        there = certirl.solve(walk, discount=0.7, rng=0, map=pool, **ONE)
    assert there.stats.asked == certirl.solve(here, discount=0.7, rng=0, map=1, **ONE).stats.asked
    assert asked_in_all(there) == walk.asked.max() == here.asked.max()
    counted = Counted(Walk())
    sent = draw(counted, BASIS, 100, 0).sent()
    assert counted.counts.most("answer") == 100 and not isinstance(sent.simulator, Counted)
    assert isinstance(pickle.loads(pickle.dumps(counted)), Walk) and bare(counted) is counted.simulator
