"""Gymnasium environments: simulators, logged episodes, training on a learned reward.

    env = gymnasium.make("Pendulum-v1")
    simulator = certirl.gym.simulator(env, actions=[-2, 0, 2])       # states (θ, θ̇), θ periodic
    plan = certirl.planning.plan(simulator, discount=0.99)           # an expert, from the environment's own reward
    log = certirl.gym.rollouts(env, plan, episodes=20, rng=0, actions=[-2, 0, 2])

Everything here works in state coordinates: what ``env.unwrapped.state`` holds, or what a ``get_state`` hook returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.episodes import Episode
from certirl.data.policy import Policy, Step, as_policy, choose, uniform_policy, walk
from certirl.data.simulator import as_generator
from certirl.environments.simulators import (
    Reader,
    as_environment,
    begin,
    controls_of,
    copied,
    simulator,
    state_reader,
    step,
)
from certirl.functions.functions import of_actions
from certirl.functions.reward import reward_at_terminal, unpack, values_of
from certirl.ground.domain import Array, as_domain
from certirl.ground.doors import as_count, as_flag, as_number

try:
    import gymnasium
except ImportError:
    raise ImportError('certirl.gym needs gymnasium, 1.0 or later: pip install "certirl[gym]"') from None

__all__ = ["RewardWrapper", "episode_returns", "rollouts", "simulator"]
__dir__ = __all__.copy

MOST_EPISODES, MOST_STEPS = 10**7, 10**9  # in one call, and in one episode
SIDE_BY_SIDE = 64  # episodes at once, so that a policy is evaluated at many states in one call


def rollouts(
    env: Any,
    policy: Any = None,
    *,
    episodes: int,
    rng: Any,
    steps: int | None = None,
    actions: int | Sequence[Any] | None = None,
    get_state: Reader | None = None,
    on: str = "state",
) -> tuple[Episode, ...]:
    """Episodes of a policy in an environment.

    Each holds the states with the last one, the actions, the rewards, and whether the last state is terminal;
    `certirl.logs.from_episodes` makes logged transitions of them.

    Args:
        env: a gymnasium environment, with its time limit, or the name of one; it is copied.
        policy: an action, a function of states ``[n, d]``, an object with ``predict``; random actions if left out.
        episodes: how many.
        rng: a seed or Generator; an episode does not depend on how many there are.
        steps: the largest length of an episode, if the environment does not end it earlier.
        actions: as for `simulator`.
        get_state: as for `simulator`.
        on: "state" or "observation": what the policy is a function of.

    Example:
        >>> episodes = certirl.gym.rollouts("MountainCar-v0", 2, episodes=2, steps=10, rng=0)
        >>> episodes[0].states.shape, episodes[0].actions.tolist()[:3], episodes[0].terminated
        ((11, 2), [2, 2, 2], False)
    """
    env, episodes = as_environment(env), as_count(episodes, "episodes", most=MOST_EPISODES)
    steps = None if steps is None else as_count(steps, "steps", most=MOST_STEPS)
    if on not in ("state", "observation"):
        raise ValueError(f"on must be 'state' or 'observation': what the policy is a function of; got {on!r}")
    controls = controls_of(env.action_space, actions)
    chosen = uniform_policy(len(controls)) if policy is None else as_policy(policy, len(controls))
    if steps is None and not _has_time_limit(env):
        raise ValueError("nothing says when an episode of this environment is cut off: pass steps, say steps=200")
    read, streams = state_reader(env, get_state), as_generator(rng, "gym.play").spawn(episodes)
    copies, played = copied(env, min(episodes, SIDE_BY_SIDE)), []
    for start in range(0, episodes, len(copies)):
        batch = zip(copies, streams[start : start + len(copies)], strict=False)
        runs = _Runs([_Run(each, stream, read) for each, stream in batch], controls, on)
        policies = repeat(chosen) if steps is None else repeat(chosen, steps)
        for _ in walk(runs, runs.shown(range(len(runs.runs))), policies):
            pass
        played += [run.episode() for run in runs.runs]
    return tuple(played)


def episode_returns(
    env: Any,
    policy: Any = None,
    *,
    episodes: int = 100,
    rng: Any,
    steps: int | None = None,
    actions: int | Sequence[Any] | None = None,
    get_state: Reader | None = None,
    on: str = "state",
) -> Array:
    """The undiscounted sum of an environment's own rewards in each episode ``[episodes]``.

    With the same seed all policies start from the same states. Arguments as for `rollouts`.

    Example:
        >>> certirl.gym.episode_returns("MountainCar-v0", 2, episodes=2, steps=10, rng=0)
        array([-10., -10.])
    """
    played = rollouts(env, policy, episodes=episodes, rng=rng, steps=steps, actions=actions, get_state=get_state, on=on)
    return np.array([episode.total for episode in played])


def _has_time_limit(env: Any) -> bool:
    """Whether episodes are cut off some time."""
    while hasattr(env, "env"):
        if type(env).__name__ == "TimeLimit":
            return True
        env = env.env
    return False


class _Run:
    """One episode up to now, with random numbers of its own."""

    def __init__(self, env: Any, rng: np.random.Generator, read: Callable[[Any], Array]) -> None:
        self.env, self.rng, self.read, self.terminated, self.over = env, rng, read, False, False
        self.observation, self.states = begin(env, seed=int(rng.integers(2**31))), [read(env)]
        self.actions, self.rewards = list[int](), list[float]()

    def take(self, action: int, control: Any) -> None:
        self.observation, reward, self.terminated, truncated = step(self.env, control)
        self.states.append(self.read(self.env))
        self.actions.append(action)
        self.rewards.append(reward)
        self.over = self.terminated or truncated

    def episode(self) -> Episode:
        return Episode(np.array(self.states), np.array(self.actions), self.terminated, np.array(self.rewards))


class _Runs(NamedTuple):
    """Copies of an environment as a world for walks."""

    runs: list[_Run]
    controls: Sequence[Any]
    on: str

    def shown(self, rows: Sequence[int]) -> Array:
        """What the policy is a function of ``[m, …]``."""
        runs = [self.runs[row] for row in rows]
        return np.stack([run.states[-1] if self.on == "state" else np.ravel(run.observation) for run in runs])

    def step(self, rows: NDArray[np.intp], states: Array, policy: Policy) -> Step:
        """One step of some of the copies."""
        runs = [self.runs[row] for row in rows]
        actions = choose(policy, states, np.array([run.rng.random() for run in runs]))
        for run, action in zip(runs, actions.tolist(), strict=True):
            run.take(action, self.controls[action])
        return Step(rows, states, actions, self.shown(rows.tolist()), np.array([run.over for run in runs]))


class RewardWrapper(gymnasium.Wrapper):  # type: ignore[misc]
    """An environment with a learned reward in place of its own, for training.

    Any library that trains on gymnasium can use it. The reward of a step is R(s'), that of the state it leads to; this
    orders policies as R does. A reward of actions pays R(s, a). A terminal state is absorbing for the learned reward,
    which continues to pay R there, while training stops: the reward of the last step is ``R(s')/(1 − γ)``, all that
    follows. Otherwise training on a negative reward would seek termination.

    With ``shaped=True`` it is ``V(s') − (V(s) − R(s))/γ`` instead, by the value V of a solution: the same plus
    ``γΦ(s') − Φ(s)`` with Φ = (V − R)/γ, which changes no comparison of policies (Ng, Harada and Russell, 1999). The
    expert's actions are then paid about 0 and all others less, at once and not only in the sum of what follows.

    Example:
        >>> import gymnasium
        >>> env = gymnasium.make("MountainCar-v0")
        >>> env = certirl.gym.RewardWrapper(env, lambda states: states[:, 0], discount=0.99)
        >>> _ = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step(2)
        >>> bool(np.isclose(reward, observation[0])), info["own_reward"]
        (True, -1.0)
    """

    def __init__(
        self,
        env: Any,
        reward: Any,
        *,
        discount: float | None = None,
        domain: Any = None,
        actions: int | Sequence[Any] | None = None,
        shaped: bool = False,
        get_state: Reader | None = None,
    ) -> None:
        """Wrap an environment.

        Args:
            env: the environment.
            reward: a `Solution`, a `Reward`, or any function of states ``[n, d]``.
            discount: γ, of the training; known from a solution. 0 pays R(s') once at the end.
            domain: the box on which the reward is known; states beyond are moved to its edge. The reward's own if left
                out, and for a plain function none.
            actions: as for `simulator`: the wrapped environment then takes the numbers 0, 1, … of these; the
                environment's own actions if left out.
            shaped: add the potential that the solution's value makes; for solutions that have one.
            get_state: as for `simulator`.
        """
        env = as_environment(env)
        super().__init__(env)
        self._controls = None if actions is None else controls_of(env.action_space, actions)
        if self._controls is not None:
            self.action_space = gymnasium.spaces.Discrete(len(self._controls))
        if discount is not None and as_number(discount, "discount", least=0) >= 1:
            raise ValueError(f"discount must be at least 0 and less than 1, got {discount}")
        self._learned, self._discount = unpack(reward, discount)
        if of_actions(self._learned) and not isinstance(self.action_space, gymnasium.spaces.Discrete):
            raise ValueError("a reward of actions needs actions that are numbered: pass actions, as for the simulator")
        as_flag(shaped, "shaped")
        self._potential = _potential_of(reward, self._discount) if shaped else None
        self._before = 0.0  # Φ of the previous state, if the reward is shaped
        basis = getattr(self._learned, "basis", None)
        box = domain if domain is not None else getattr(basis, "domain", None)
        self._domain = None if box is None else as_domain(box)
        self._read = state_reader(env, get_state)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step with the learned reward; the environment's is in ``info["own_reward"]``.

        Example:
            >>> env.step(2)[4]["own_reward"]
            -1.0
        """
        control = action if self._controls is None else self._controls[int(action)]
        before = values_of(self._learned, self._state(), int(action)) if of_actions(self._learned) else np.zeros(1)
        observation, own_reward, terminated, truncated, info = self.env.step(control)
        state = self._state()
        rest = float(reward_at_terminal(self._learned, state)[0]) if terminated else 0.0
        if rest:
            if self._discount is None:
                raise ValueError(
                    "the episode ended in a terminal state, where the learned reward is paid at every later step: pass "
                    "discount=γ to RewardWrapper, or discount=0 to pay it once"
                )
            rest /= 1 - self._discount
        if of_actions(self._learned):
            paid = float(before[0]) + (self._discount or 0.0) * rest
        else:
            paid = rest if terminated else float(values_of(self._learned, state)[0])
        if self._potential is not None and self._discount is not None:
            ahead = 0.0 if terminated else self._potential(state)
            paid, self._before = paid + self._discount * ahead - self._before, ahead
        return observation, paid, terminated, truncated, {**info, "own_reward": own_reward}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment.

        Example:
            >>> observation, info = env.reset(seed=0)
            >>> observation.shape
            (2,)
        """
        answer = self.env.reset(seed=seed, options=options)
        if self._potential is not None:
            self._before = self._potential(self._state())
        return answer

    def _state(self) -> Array:
        state = self._read(self.env)[None]
        return state if self._domain is None else self._domain.moved_into(state)


def _potential_of(solution: Any, discount: float | None) -> Callable[[Array], float]:
    """Φ(s) = (V(s) − R(s))/γ: the value of what follows a state, by the solution's own value."""
    value = getattr(solution, "value", None)
    if not callable(value):
        raise ValueError("a shaped reward needs a value: pass the solution of an expert that depends on the state")
    if discount != solution.discount or not discount:
        raise ValueError(f"the value belongs to the discount {solution.discount}, got {discount}: leave discount out")
    return lambda state: float((value(state) - solution.reward(state))[0]) / discount
