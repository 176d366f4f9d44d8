"""Environments that pay a learned reward: what is paid, what shaping leaves alone, what a saved reward keeps."""

import gymnasium
import numpy as np
import pytest

import certirl.environments.gym
from certirl.environments.planning import plan

PUSHES = [-2.0, 0.0, 2.0]


@pytest.fixture(scope="module")
def car():
    simulator = certirl.gym.simulator("MountainCar-v0")
    expert = plan(simulator, discount=0.99, points=61)
    return expert, certirl.solve(simulator, expert=expert, discount=0.99, samples=2000, rng=0)


def test_a_learned_reward_is_paid_and_the_end_pays_for_ever():
    env = certirl.gym.RewardWrapper(gymnasium.make("CartPole-v1"), lambda s: -np.abs(s[:, 2]), discount=0.9)
    env.reset(seed=0)
    done = False
    while not done:
        seen, paid, done, _, info = env.step(0)
        assert info["own_reward"] == 1.0
        assert paid == pytest.approx(-abs(float(seen[2])) * (10 if done else 1), rel=1e-5)
    bare = certirl.gym.RewardWrapper(gymnasium.make("CartPole-v1"), lambda s: -np.abs(s[:, 2]))
    bare.reset(seed=0)
    with pytest.raises(ValueError, match="paid at every later step: pass discount"):
        [bare.step(0) for _ in range(100)]


def test_a_reward_of_actions_is_paid_for_the_state_and_the_action():
    basis = certirl.product(certirl.Legendre(3), certirl.Legendre(3)).on(((-1.2, 0.6), (-0.07, 0.07)))
    reward = certirl.Reward(basis, np.arange(1.0, 7.0)).with_costs([0.5, 0.0, 0.5])
    env = certirl.gym.RewardWrapper(gymnasium.make("MountainCar-v0"), reward)
    seen, _ = env.reset(seed=0)
    for action in (0, 1, 2):
        before, (seen, paid, *_) = seen, env.step(action)
        assert paid == pytest.approx(reward(before, action), rel=1e-4)
    ends = certirl.gym.RewardWrapper(gymnasium.make("CartPole-v1"), Costs(), discount=0.9)
    assert played(ends, lambda state: 1)[0][-2:] == pytest.approx([-1.0, -1.0 - 0.9 * 20.0])
    with pytest.raises(ValueError, match="a reward of actions needs actions that are numbered: pass actions"):
        certirl.gym.RewardWrapper(gymnasium.make("Pendulum-v1"), reward)


class Costs:
    """−a, and −2 at terminal states."""

    of_actions, zero_at_terminal = True, False

    def __call__(self, states, action=None):
        return np.full(len(states), -2.0 if action is None else -float(action))


def test_a_reward_on_angles_sees_the_state_not_the_observation():
    basis = certirl.product(certirl.Fourier(5), certirl.Legendre(4)).on(((-np.pi, np.pi), (-8, 8)))
    reward = certirl.Reward(basis, np.arange(1.0, basis.size + 1))
    env = certirl.gym.RewardWrapper(gymnasium.make("Pendulum-v1"), reward)
    env.reset(seed=1)
    for _ in range(50):
        seen, paid, *_ = env.step(np.array([2.0], dtype=np.float32))
        state = np.array([[np.arctan2(seen[1], seen[0]), seen[2]]])
        assert paid == pytest.approx(float(reward(np.clip(state, [-np.pi, -8], [np.pi, 8]))[0]), rel=1e-3, abs=1e-3)


def test_the_wrapper_passes_gymnasiums_own_checks():
    env = certirl.gym.RewardWrapper(gymnasium.make("CartPole-v1"), lambda s: -(s[:, 0] ** 2), discount=0.9)
    checked = gymnasium.wrappers.PassiveEnvChecker(env)
    checked.reset(seed=0)
    for _ in range(5):
        checked.step(checked.action_space.sample())


def played(env, choose, *, steps=10_000, seed=0):
    """What an episode is paid, step by step, and whether it ended in a terminal state."""
    env.reset(seed=seed)
    paid = []
    for _ in range(steps):
        _, reward, terminated, truncated, _ = env.step(choose(np.array(env.unwrapped.state)[None]))
        paid.append(reward)
        if terminated or truncated:
            break
    return np.array(paid), terminated


@pytest.mark.parametrize(("policy", "ends"), [("expert", True), ("idle", False)])
def test_shaping_adds_the_same_to_all_policies_from_a_state(car, policy, ends):
    expert, solution = car
    choose = {"expert": lambda s: int(expert(s)[0]), "idle": lambda s: 1}[policy]
    sums, last = [], None
    for shaped in (False, True):
        env = certirl.gym.RewardWrapper(gymnasium.make("MountainCar-v0"), solution, shaped=shaped)
        paid, terminated = played(env, choose)
        assert terminated == ends
        sums.append((0.99 ** np.arange(len(paid))) @ paid)
        last = np.array(env.unwrapped.state)[None], len(paid)

    def potential(states):
        return float((solution.value(states) - solution.reward(states))[0]) / 0.99

    env.reset(seed=0)
    first = potential(np.array(env.unwrapped.state)[None])
    rest = 0.0 if ends else 0.99 ** last[1] * potential(last[0])
    assert sums[1] - sums[0] == pytest.approx(rest - first, rel=1e-9)


def test_a_shaped_reward_pays_least_for_what_the_expert_does_not_do(car):
    expert, solution = car
    simulator = certirl.gym.simulator("MountainCar-v0")
    states = np.random.default_rng(3).uniform(*np.array(simulator.domain).T, (100, 2))
    states = states[~simulator.terminal(states)]
    env = certirl.gym.RewardWrapper(gymnasium.make("MountainCar-v0"), solution, shaped=True)
    best = []
    env.reset(seed=0)
    for state in states:
        paid = []
        for action in range(3):
            env.unwrapped.state = state.copy()
            env._before = env._potential(state[None])
            paid.append(env.step(action)[1])
        best.append(int(np.argmax(paid)))
    assert np.mean(np.array(best) == expert(states)) > 0.95


def test_shaping_needs_the_value_and_its_own_discount(car):
    _, solution = car
    env = gymnasium.make("MountainCar-v0")
    with pytest.raises(ValueError, match="a shaped reward needs a value: pass the solution"):
        certirl.gym.RewardWrapper(env, solution.reward, discount=0.99, shaped=True)
    with pytest.raises(ValueError, match=r"belongs to the discount 0\.99, got 0\.9: leave discount out"):
        certirl.gym.RewardWrapper(env, solution, discount=0.9, shaped=True)


def test_a_box_of_torques_becomes_a_choice_of_some():
    env = certirl.gym.RewardWrapper(gymnasium.make("Pendulum-v1"), lambda s: s[:, 1], actions=PUSHES)
    plain = gymnasium.make("Pendulum-v1")
    assert env.action_space == gymnasium.spaces.Discrete(3)
    env.reset(seed=4)
    plain.reset(seed=4)
    for action in (0, np.int64(2), np.array(1), 2):
        seen, paid, *_ = env.step(action)
        same, *_ = plain.step(np.array([PUSHES[int(action)]], dtype=np.float32))
        assert np.array_equal(seen, same)
        assert paid == pytest.approx(plain.unwrapped.state[1])


def test_a_number_of_its_own_at_the_end_is_paid_from_then_on():
    """By the wrapper, in plans and in rollouts: (1 − γ)u at every later step is u."""
    simulator = certirl.gym.simulator("MountainCar-v0")
    ends = certirl.functions.ends.Ends(np.array([[[0.5, -np.inf], [np.inf, np.inf]]]), -0.5)
    basis = certirl.Cells((2, 2), (), simulator.domain)
    reward = certirl.Reward(basis, np.zeros(4), simulator.terminal, ends=ends)
    env = certirl.gym.RewardWrapper(gymnasium.make("MountainCar-v0"), reward, discount=0.9)
    env.reset(seed=0)
    env.unwrapped.state = np.array([0.49, 0.07])
    assert env.step(2)[1] == pytest.approx(-5.0)
    assert plan(simulator, reward, discount=0.9, points=21).value([0.55, 0.05]) == pytest.approx(-5.0)
    checked = certirl.trials.rollout_check(
        reward, simulator, discount=0.9, expert=2, states=[[0.45, 0.0505]], steps=30, samples=2, rng=0
    )
    # Pushing right the car is at 0.5 at once, pushing left one step later.
    assert checked.advantage.min() == pytest.approx(-0.5)


def test_a_saved_reward_still_knows_that_ends_are_worth_nothing(car, tmp_path):
    simulator, (expert, solution) = certirl.gym.simulator("MountainCar-v0"), car
    again = certirl.load(solution.save(tmp_path / "car"))
    assert again.reward.zero_at_terminal and again.value.zero_at_terminal
    states = np.random.default_rng(0).uniform(*np.array(simulator.domain).T, (500, 2))
    before, after = (plan(simulator, one, points=31) for one in (solution, again))
    assert np.array_equal(before(states), after(states))
    ended = states[simulator.terminal(states)]
    assert np.mean(again.reward(ended) == 0) > 0.99  # boxes describe the ends nearly; planners know them exactly
    for one in (solution, again):
        paid, terminated = played(
            certirl.gym.RewardWrapper(gymnasium.make("MountainCar-v0"), one), lambda s: int(expert(s)[0])
        )
        assert terminated and paid[-1] == 0


def test_a_discount_that_is_none_is_refused():
    with pytest.raises(ValueError, match="discount must be at least 0 and less than 1, got 2"):
        certirl.gym.RewardWrapper(gymnasium.make("CartPole-v1"), lambda s: s[:, 0], discount=2)
