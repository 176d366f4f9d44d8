"""Environments other people wrote, as simulators: against their own step, row by row."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import certirl.environments.gym
from certirl.data.simulator import as_generator, check_simulator
from certirl.environments.simulators import Stepped
from certirl.ground.domain import as_domain
from refusals import refused

KNOWN = {"MountainCar-v0": None, "Pendulum-v1": [-2.0, 0.0, 2.0], "CartPole-v1": None}


def own_step(name, state, control):
    env = gymnasium.make(name).unwrapped
    env.reset(seed=0)
    env.state = np.array(state)
    _, reward, terminated, _, _ = env.step(control)
    return np.array(env.state, dtype=float), reward, terminated


def even(simulator, n, seed=0):
    low, high = np.array(simulator.domain).T
    return low + (high - low) * np.random.default_rng(seed).random((n, len(low)))


@pytest.mark.parametrize("name", KNOWN)
def test_every_row_is_what_the_environments_own_step_does(name):
    simulator = certirl.gym.simulator(name, actions=KNOWN[name])
    check_simulator(simulator)
    assert simulator.thread_safe
    states = even(simulator, 150)
    states = states[~simulator.terminal(states)]
    for action, control in enumerate(simulator.controls):
        after, rewards = simulator.step(states, action)
        for row, state in enumerate(states):
            theirs, reward, terminated = own_step(name, state, control)
            inside = simulator.domain.moved_into(theirs[None], simulator.periodic)[0]
            assert np.allclose(after[row], inside, rtol=0, atol=1e-9)
            assert reward == pytest.approx(rewards[row], abs=1e-9)
            assert simulator.terminal(after[row : row + 1])[0] == terminated


@pytest.mark.parametrize("name", KNOWN)
def test_stepping_row_by_row_gives_the_same(name):
    fast = certirl.gym.simulator(name, actions=KNOWN[name])
    env = gymnasium.make(name)
    slow = certirl.gym.simulator(
        env, actions=KNOWN[name], domain=fast.domain, periodic=fast.periodic, terminal=fast.physics.terminal
    )
    assert isinstance(slow.physics, Stepped)
    states, rng = even(fast, 60), np.random.default_rng(0)
    for action in range(fast.n_actions):
        assert np.allclose(fast.sample(states, action, rng), slow.sample(states, action, rng), rtol=0, atol=1e-9)
        assert np.allclose(fast.reward(states, action), slow.reward(states, action), rtol=0, atol=1e-9)


def test_changed_constants_are_read_and_a_changed_step_is_noticed():
    from gymnasium.envs.classic_control import PendulumEnv

    class Windy(PendulumEnv):
        def step(self, action):
            answer = super().step(action)
            self.state = self.state + np.array([0.0, 0.01])
            return answer

    moon = certirl.gym.simulator(PendulumEnv(g=1.6), actions=3)
    assert moon.thread_safe
    windy = certirl.gym.simulator(Windy(), actions=3)
    assert not windy.thread_safe
    assert "row by row" in str(windy)
    still = certirl.gym.simulator(PendulumEnv(), actions=3)
    states, rng = np.array([[0.3, 0.1]]), np.random.default_rng(0)
    moved = windy.sample(states, 0, rng) - still.sample(states, 0, rng)
    assert np.allclose(moved, [[0.0, 0.01]])
    assert not np.allclose(moon.sample(states, 0, rng), still.sample(states, 0, rng))


def test_vectorised_simulators_travel_to_other_processes():
    simulator = certirl.gym.simulator("Pendulum-v1", actions=3, noise=0.01)
    again = pickle.loads(pickle.dumps(simulator))
    states = even(simulator, 10)
    one, two = (each.sample(states, 1, np.random.default_rng(0)) for each in (simulator, again))
    assert np.array_equal(one, two)


def test_a_random_environment_is_planned_by_drawing():
    simulator = certirl.gym.simulator(Spring(), **hooks())
    assert simulator.outcomes(np.array([[0.0]]), 0) is None
    plan = certirl.planning.plan(simulator, lambda s: -np.abs(s[:, 0] - 0.1), discount=0.5, points=41)
    assert plan(np.array([[-1.0], [0.8]])).tolist() == [1, 0]


def test_the_environment_given_is_left_as_it_is():
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=3)
    before, twin = np.array(env.unwrapped.state), copy.deepcopy(env)
    certirl.gym.simulator(env)
    certirl.gym.rollouts(env, episodes=3, rng=0)
    assert np.array_equal(env.unwrapped.state, before)
    assert np.array_equal(env.step(1)[0], twin.step(1)[0])


def test_periodic_coordinates_are_wrapped_and_others_stop():
    domain = as_domain(((-np.pi, np.pi), (-1.0, 1.0)))
    states = np.array([[np.pi + 0.1, 1.2], [-7.0, -0.5]])
    assert np.allclose(domain.moved_into(states, (0,)), [[-np.pi + 0.1, 1.0], [-7.0 + 2 * np.pi, -0.5]])
    assert np.allclose(domain.moved_into(states, (0,), reflect=True)[:, 1], [0.8, -0.5])
    simulator = certirl.gym.simulator("Pendulum-v1", actions=3)
    assert simulator.periodic == (0,)
    after = simulator.sample(np.array([[3.1, 8.0]]), 2, np.random.default_rng(0))
    assert -np.pi <= after[0, 0] < 0


def test_terminal_states_stay_with_and_without_noise():
    for noise in (0.0, 0.05):
        simulator = certirl.gym.simulator("MountainCar-v0", noise=noise)
        states = np.array([[0.55, 0.02], [0.55, -0.02], [0.0, 0.0]])
        assert simulator.terminal(states).tolist() == [True, False, False]
        after = simulator.sample(states, 2, np.random.default_rng(0))
        assert np.array_equal(after[0], states[0])
        assert not np.array_equal(after[1], states[1])
        assert simulator.reward(states, 0).tolist() == [0.0, -1.0, -1.0]


def test_noise_has_the_spread_that_was_asked_for_and_stays_in_the_box():
    quiet, noisy = (certirl.gym.simulator("MountainCar-v0", noise=share) for share in (0.0, (0.02, 0.05)))
    states = np.tile([-0.5, 0.01], (20_000, 1))
    moved = noisy.sample(states, 1, np.random.default_rng(0)) - quiet.sample(states, 1, np.random.default_rng(0))
    assert moved.std(axis=0) == pytest.approx([0.02 * 1.8, 0.05 * 0.14], rel=0.03)
    everywhere = even(noisy, 5000)
    after = noisy.sample(everywhere, 0, np.random.default_rng(1))
    low, high = np.array(noisy.domain).T
    assert ((after >= low) & (after <= high)).all()
    outcomes, weights = noisy.outcomes(states[:1], 1)
    mean = np.tensordot(weights, outcomes, axes=1)[0]
    spread = np.sqrt(np.tensordot(weights, (outcomes - mean) ** 2, axes=1)[0])
    assert spread == pytest.approx([0.02 * 1.8, 0.05 * 0.14], rel=1e-9)


def test_unbounded_coordinates_get_bounds_from_random_play_and_say_so():
    simulator = certirl.gym.simulator("CartPole-v1")
    assert any("random play" in note for note in simulator.notes)
    assert any("stopped at its edge" in note for note in simulator.notes)
    played = certirl.gym.rollouts("CartPole-v1", episodes=20, rng=5)
    low, high = np.array(simulator.domain).T
    states = np.concatenate([episode.states for episode in played])
    assert ((states >= low) & (states <= high))[:, [1, 3]].all()
    given = certirl.gym.simulator("CartPole-v1", domain=((-2.5, 2.5), (-3, 3), (-0.25, 0.25), (-3, 3)))
    assert given.domain[1] == (-3.0, 3.0)
    assert not any("random play" in note for note in given.notes)


class Spring:
    """A state that is kept elsewhere, and a step that is random."""

    def __init__(self, space=None):
        self.action_space = gymnasium.spaces.Discrete(2, start=5)
        self.observation_space = space or gymnasium.spaces.Box(-2.0, 2.0, (1,))
        self.np_random = np.random.default_rng()

    def reset(self, seed=None, options=None):
        self.hidden = np.array([0.5])
        return self.hidden.astype(np.float32), {}

    def step(self, action):
        assert action in (5, 6)
        self.hidden = 0.5 * self.hidden + (0.1 if action == 6 else -0.1) + 0.01 * self.np_random.standard_normal(1)
        return self.hidden.astype(np.float32), 1.0, bool(self.hidden[0] > 0.9), False, {}


def hooks():
    return {
        "get_state": lambda env: env.hidden,
        "set_state": lambda env, state: setattr(env, "hidden", state),
        "terminal": lambda states: states[:, 0] > 0.9,
    }


def test_hooks_reach_a_state_that_is_kept_elsewhere_and_its_noise_is_the_callers():
    simulator = certirl.gym.simulator(Spring(), **hooks())
    states = np.array([[0.4], [-1.0], [1.5]])
    one, two = (simulator.sample(states, 1, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(one, two)
    assert one[:2, 0] == pytest.approx([0.3, -0.4], abs=0.05)
    assert one[2, 0] == 1.5
    assert simulator.random
    assert not simulator.deterministic
    assert certirl.gym.simulator("CartPole-v1").deterministic
    refused("has no attribute state to read: pass get_state", certirl.gym.simulator, Spring())
    with pytest.raises(ValueError, match=r"ended its episode in state .* pass terminal"):
        certirl.gym.simulator(Spring(), **{**hooks(), "terminal": None})
    with pytest.raises(ValueError, match="terminal\\(states\\) must be True or False"):
        certirl.gym.simulator(Spring(), **{**hooks(), "terminal": lambda states: True})


@pytest.mark.parametrize(
    ("make", "asked", "sentence"),
    [
        (lambda: gymnasium.make("Pendulum-v1"), {}, "continuum of actions: choose some"),
        (lambda: gymnasium.make("Pendulum-v1"), {"actions": [-3, 3]}, "is no action of Box"),
        (lambda: gymnasium.make("Pendulum-v1"), {"actions": 1}, "list the actions themselves"),
        (lambda: gymnasium.make("CartPole-v1"), {"actions": [0, 2]}, "actions must be some of 0 … 1"),
        (lambda: gymnasium.make("CartPole-v1"), {"domain": (-1, 1)}, "the state has 4 coordinates"),
        (
            lambda: gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1)),
            {"actions": 3},
            "RescaleAction may change what a step does",
        ),
        (lambda: gymnasium.make("CartPole-v1"), {"noise": -0.1}, "noise must be a share"),
        (
            lambda: gymnasium.make("CartPole-v1"),
            {"domain": ((-2.4, 2.4), (-3, 3), (-0.2, 0.2), (-3, 3))},
            "has no room for terminal states",
        ),
        (lambda: gymnasium.make("CartPole-v1"), {"noise": "x"}, "noise must be real numbers"),
        (lambda: gymnasium.make("CartPole-v1"), {"periodic": "yes"}, "periodic must be a tuple of coordinates"),
        (lambda: gymnasium.make("CartPole-v1"), {"periodic": [4]}, "periodic must be a tuple of coordinates"),
        (lambda: gymnasium.make("Acrobot-v1"), {}, "the state has 4 coordinates but the observation 6"),
        (lambda: Spring(gymnasium.spaces.Discrete(4)), hooks(), "states must come from a Box"),
    ],
)
def test_wrong_calls_are_told_what_to_write_instead(make, asked, sentence):
    refused(sentence, certirl.gym.simulator, make(), **asked)


def test_unknown_action_spaces_and_things_that_are_no_environment():
    env = gymnasium.make("CartPole-v1").unwrapped
    env.action_space = gymnasium.spaces.MultiBinary(3)
    refused("actions must come from a Discrete space", certirl.gym.simulator, env)
    with pytest.raises(TypeError, match="is no environment: it has no action_space"):
        certirl.gym.simulator(3)


def test_rollouts_know_how_they_ended_and_do_not_depend_on_each_other():
    played = certirl.gym.rollouts("CartPole-v1", episodes=4, rng=1)
    assert all(episode.terminated and len(episode.states) == len(episode) + 1 for episode in played)
    again = certirl.gym.rollouts("CartPole-v1", episodes=2, rng=1)
    assert np.array_equal(played[1].states, again[1].states)
    cut = certirl.gym.rollouts("MountainCar-v0", 0, episodes=1, rng=1)[0]
    assert len(cut) == 200
    assert not cut.terminated
    assert len(certirl.gym.rollouts("MountainCar-v0", 0, episodes=1, rng=1, steps=7)[0]) == 7


def test_a_rollout_is_a_walk_through_the_simulator():
    simulator = certirl.gym.simulator("Pendulum-v1", actions=[-2, 0, 2])
    episode = certirl.gym.rollouts("Pendulum-v1", episodes=1, rng=2, actions=[-2, 0, 2])[0]
    for action in range(3):
        chosen = episode.actions == action
        after = simulator.sample(episode.states[:-1][chosen], action, np.random.default_rng(0))
        gap = np.abs(after - episode.states[1:][chosen])
        assert np.minimum(gap, [2 * np.pi, np.inf] - gap).max() < 1e-9


def test_policies_are_asked_about_states_or_observations_and_wrong_ones_are_refused():
    shapes = []

    def policy(shown):
        shapes.append(shown.shape[1])
        return np.zeros(len(shown), dtype=int)

    for on in ("state", "observation"):
        certirl.gym.rollouts("Pendulum-v1", policy, episodes=1, rng=0, actions=3, steps=1, on=on)
    assert shapes == [2, 3]
    refused("asked about all states at once", certirl.gym.rollouts, "CartPole-v1", lambda states: 0, episodes=2, rng=0)
    with pytest.raises(ValueError, match="no choice of actions"):
        certirl.gym.rollouts("CartPole-v1", lambda states: np.full(len(states), 2), episodes=2, rng=0)
    with pytest.raises(ValueError, match="nothing says when an episode"):
        certirl.gym.rollouts(gymnasium.make("CartPole-v1").unwrapped, episodes=1, rng=0)
    limited = gymnasium.wrappers.TimeLimit(gymnasium.make("MountainCar-v0").unwrapped, 9)
    assert len(certirl.gym.rollouts(limited, episodes=1, rng=0)[0]) == 9
    refused("on must be", certirl.gym.rollouts, "CartPole-v1", episodes=1, rng=0, on="pixels")


def test_returns_are_those_of_a_plain_loop():
    env, seeds = gymnasium.make("CartPole-v1"), as_generator(np.random.default_rng(9), "gym.play").spawn(3)
    returns = certirl.gym.episode_returns(
        env, lambda s: (s[:, 2] > 0).astype(int), episodes=3, rng=np.random.default_rng(9)
    )
    for seed, found in zip(seeds, returns, strict=True):
        (seen, _), total, done = env.reset(seed=int(seed.integers(2**31))), 0.0, False
        while not done:
            seen, reward, terminated, truncated, _ = env.step(int(seen[2] > 0))
            total, done = total + reward, terminated or truncated
        assert found == total


def test_without_gymnasium_it_says_what_to_install():
    code = "import sys; sys.modules['gymnasium'] = None; import certirl; certirl.gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'ImportError: certirl.gym needs gymnasium, 1.0 or later: pip install "certirl[gym]"' in done.stderr
