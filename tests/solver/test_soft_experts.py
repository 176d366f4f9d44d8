"""Soft experts through solve: rewards near the truth, errors that say how near, and answers on every surface."""

import functools
import re

import numpy as np
import pytest
from scipy.stats import norm

import certirl
from certirl.solver.soft_solution import SoftSolution

WALK = certirl.problems.soft_walk()
PLACES = np.linspace(-0.9, 0.9, 61)
KNOWN = certirl.SoftExpert(reference=0, reference_reward=lambda states: WALK.reward(states, 0))
FEATURES = certirl.FeatureForm({
    "far": lambda states: (states[:, 0] - 0.3) ** 2,
    "down": lambda states, action: np.full(len(states), float(action == 1)),
    "up": lambda states, action: np.full(len(states), float(action == 2)),
})  # fmt: skip
# A reward of the state alone.
FREE = certirl.problems.soft_walk(costs=(0.0, 0.0, 0.0))


@functools.cache
def log(walk=WALK, episodes=400, seed=0):
    return walk.log(episodes=episodes, steps=50, rng=seed)


@functools.cache
def solved():
    return certirl.solve(log(), discount=0.9, expert=KNOWN)


def errors(solution, walk=WALK, actions=(1, 2)):
    return np.concatenate([solution.reward(PLACES, a) - walk.reward(PLACES, a) for a in actions])


def test_rewards_from_the_experts_own_episodes_are_near_the_truth():
    assert np.sqrt(np.mean(errors(solved()) ** 2)) < 0.2
    assert solved().status == "estimated"
    assert solved().likelihood.share == 1


def test_weights_of_features_are_found():
    solution = certirl.solve(log(), discount=0.9, expert=certirl.SoftExpert(), method=FEATURES)
    weights, deviations = solution.reward.coefficients, np.sqrt(np.diag(solution.covariances[0]))
    assert (np.abs(weights - [-2.0, -0.15, -0.25]) < 3 * deviations).all()
    assert (deviations < 0.1).all()
    assert 0.9 < solution.likelihood.share < 1


def test_a_reward_of_the_state_is_found_up_to_a_constant():
    solution = certirl.solve(log(FREE), discount=0.9, expert=certirl.SoftExpert(reward="state"))
    off = solution.reward(PLACES) - FREE.reward(PLACES, 0)
    assert np.std(off) < 0.1
    assert not solution.reward.of_actions
    assert min(test.chance for test in solution.tests) > 0.01


@pytest.mark.slow
def test_a_reward_that_depends_on_the_action_is_no_reward_of_the_state():
    costly = certirl.problems.soft_walk(costs=(0.0, 0.5, 1.0))
    solution = certirl.solve(log(costly), discount=0.9, expert=certirl.SoftExpert(reward="state"))
    assert solution.status == "estimated"
    assert "no reward of this kind" in str(solution).splitlines()[0]
    assert solution.likelihood.share < 0.9


def test_the_dynamics_may_come_from_a_simulator():
    expert = certirl.SoftExpert(log(), reference=0, reference_reward=lambda states: WALK.reward(states, 0))
    solution = certirl.solve(WALK, discount=0.9, expert=expert, samples=20_000, rng=0)
    assert solution.counts == (20_000,) * 3
    assert np.sqrt(np.mean(errors(solution) ** 2)) < 0.2


def test_another_reference_gives_the_same_rewards():
    expert = certirl.SoftExpert(reference=2, reference_reward=lambda states: WALK.reward(states, 2))
    solution = certirl.solve(log(), discount=0.9, expert=expert)
    assert np.abs(errors(solution, actions=(0, 1))).max() < 1
    assert np.sqrt(np.mean(errors(solution, actions=(0, 1)) ** 2)) < 0.3
    assert np.allclose(solution.reward(PLACES, 2), WALK.reward(PLACES, 2), atol=1e-8)


def test_the_policy_of_the_rewards_is_that_of_the_log_odds():
    assert np.allclose(solved().probabilities(PLACES), solved().odds.at(PLACES[:, None]).chances, atol=1e-6)
    assert (solved().greedy(PLACES) == solved().probabilities(PLACES).argmax(axis=1)).all()
    assert np.abs(solved().value(PLACES) - WALK.value(PLACES)).max() < 1.5


def test_a_solution_is_what_was_saved(tmp_path):
    again = certirl.load(solved().save(tmp_path / "soft"))
    assert isinstance(again, SoftSolution)
    assert str(again) == str(solved())
    assert (again.reward(PLACES, 1) == solved().reward(PLACES, 1)).all()
    assert (again.standard_error(PLACES, 2) == solved().standard_error(PLACES, 2)).all()
    assert certirl.check(tmp_path / "soft.npz").verdict == "nothing claimed"


def test_prints_say_what_the_rewards_rest_on():
    first, *lines = str(solved()).splitlines()
    assert first.startswith("Estimated: the rewards of 3 actions")
    (assumed,) = [line for line in lines if line.startswith("  assumed")]
    for words in ("logit noise", "the reward of action 0 is known", "discount is 0.9"):
        assert words in assumed


def test_pictures_and_pages_are_made(tmp_path):
    pytest.importorskip("matplotlib")
    assert len(solved().plot(tmp_path / "soft.png")) == 2
    page = solved().report(tmp_path / "soft.html").read_text()
    assert "log-odds of a higher degree" in page
    assert "estimated" in page
    assert "Probabilities of held-out decisions" in page


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tube": 0.1}, "tube is for experts who are exact"),
        ({"components": [[0]]}, "components is for experts who are exact"),
        ({"paired": True}, "paired is for experts who are exact"),
        ({"suboptimality": 0.1}, "suboptimality is for experts who are exact"),
        ({"effects": {3: certirl.dynamics.Resets()}}, "effects names the action 3"),
        ({"method": certirl.Program()}, "the method for a soft expert is certirl.FeatureForm"),
        ({"tail": 0}, "tail is for a band: pass delta too"),
        ({"samples": 100}, "samples is for simulators"),
        ({"delta": 0.05}, "a band needs a reference whose reward is a number"),
    ],
)
def test_what_does_not_combine_is_refused(settings, sentence):
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        certirl.solve(log(), discount=0.9, expert=KNOWN, **settings)


@pytest.mark.parametrize(
    ("expert", "settings", "sentence"),
    [
        ({"reference": 3}, {}, "reference must be"),
        ({"reference": "wait"}, {}, "reference must be an action, a number, as the data have no names"),
        ({"reward": "state"}, {"method": FEATURES}, "leave one of them out"),
        ({"reward": "state"}, {"delta": 0.05}, "a band needs the reward of one action"),
        ({}, {"delta": 0.05}, "a band needs the functions of the log-odds"),
        ({"tail": 0.1}, {}, "the tail of log-odds is for a band"),
        ({"decisions": WALK}, {}, "decisions must be transitions"),
    ],
)
def test_experts_that_do_not_combine_are_refused(expert, settings, sentence):
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        certirl.solve(log(), discount=0.9, expert=certirl.SoftExpert(**expert), **settings)


def test_a_simulator_alone_is_refused():
    with pytest.raises(TypeError, match="a simulator takes no decisions"):
        certirl.solve(WALK, discount=0.9, expert=certirl.SoftExpert(), rng=0)


def machines(count=300, months=20):
    """Wear that grows by about 1 a month; replaced machines begin at 0 before they wear. Few are replaced."""
    rng = np.random.default_rng(0)
    wear, rows = np.linspace(0, 10, count), []
    for _ in range(months):
        actions = (rng.random(count) < 1 / (1 + np.exp(7 - 0.6 * wear))).astype(int)
        after = np.clip(np.where(actions == 1, 0, wear) + 1 + 0.5 * rng.normal(size=count), 0, 10)
        rows.append((wear, actions, after, np.arange(count)))
        wear = after
    states, actions, after, which = (np.stack(column, axis=1).ravel() for column in zip(*rows, strict=True))
    return certirl.Transitions(states, actions, after, (0, 10), episodes=which, action_names=("run", "replace"))


def test_declared_effects_need_no_rows_and_leave_less_unknown():
    rows, asked = machines(), {"discount": 0.9, "expert": certirl.SoftExpert(reference="replace")}
    plain, known = (certirl.solve(rows, effects=each, **asked) for each in (None, {1: certirl.dynamics.Resets(0.0)}))
    places = np.linspace(0, 9, 10)
    errors = [solution.standard_error(places, 0) for solution in (plain, known)]
    assert np.median(errors[1] / errors[0]) < 0.8
    assert (np.abs(known.reward(places, 0) - plain.reward(places, 0)) < 4 * errors[0]).all()
    assert known.counts == (rows.counts[0], 0) and "the effect of replace is as declared" in str(known)
    simulated = certirl.SoftExpert(rows, reference="replace")
    drawn = certirl.solve(Wearing(), effects={1: certirl.dynamics.Resets(0.0)}, **asked | {"expert": simulated}, rng=0)
    assert (np.abs(known.reward(places, 0) - drawn.reward(places, 0)) < 4 * errors[1] + 0.1).all()


class Wearing:
    """What the machines do that are not replaced."""

    n_actions, domain, action_names = 2, ((0.0, 10.0),), ("run", "replace")

    def sample(self, states, action, rng):
        assert action == 0
        return np.clip(states + 1 + 0.5 * rng.normal(size=states.shape), 0, 10)


def test_an_action_that_leads_to_one_state_needs_no_rows_in_a_band():
    """States at random; action 1 sets them to 0.3, and its rows, all but one, are not in the log of the dynamics."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (60_000, 1))
    actions = (rng.random(60_000) < 1 / (1 + np.exp(-0.5 - states[:, 0]))).astype(int)
    after = np.where(actions[:, None] == 1, 0.3, np.clip(0.5 * states + rng.normal(size=states.shape), -1, 1))
    rows = certirl.Transitions(states, actions, after, (-1, 1), independent=True)
    asked = {"discount": 0.5, "delta": 0.05, "basis": certirl.Legendre(2), "effects": {1: lambda s: 0 * s + 0.3}}
    noise = certirl.dynamics.GaussianNoise(1.0, slope=0.5)
    solution = certirl.solve(rows, expert=certirl.SoftExpert(), columns=9, tail=noise, **asked, rng=0)
    assert solution.status == "bounded" and "leads to s = 0.3 from every state" in str(solution)
    low, high = solution.band(PLACES, 1)
    assert (low < true_rewards(PLACES)).all() and (true_rewards(PLACES) < high).all()
    with pytest.raises(ValueError, match="known noise is that of every action"):
        certirl.solve(rows, expert=certirl.SoftExpert(), **asked, dynamics=certirl.dynamics.AffineGaussian(std=1.0))


def true_rewards(places):
    """R_1 − R_0 = L + γ((P_0V)(s) − V(0.3)) of these machines, V = log(1 + e^L) + γP_0V, by iteration on a grid."""
    grid, noise = np.linspace(-1, 1, 801), norm.ppf((np.arange(400) + 0.5) / 400)
    after = np.clip(0.5 * grid[:, None] + noise, -1, 1)
    ahead = np.zeros(801)
    for _ in range(60):
        value = np.logaddexp(0, 0.5 + grid) + 0.5 * ahead
        ahead = np.interp(after, grid, value).mean(axis=1)
    return np.interp(places, grid, 0.5 + grid + 0.5 * (ahead - np.interp(0.3, grid, value)))


def test_actions_that_are_never_taken_are_refused():
    some = log().where(log().actions != 2)
    with pytest.raises(ValueError, match="the expert never takes action 2"):
        certirl.solve(some, discount=0.9, expert=certirl.SoftExpert())
