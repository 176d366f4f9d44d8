"""Playing episodes in environments: many at once, so that a policy is asked about many states in one call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certirl.data.episodes import Episode
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import as_generator
from certirl.environments.classic import physics_of
from certirl.environments.spaces import Reader, controls_of, read_state, state_of, unwrapped
from certirl.ground.domain import Array
from certirl.ground.domain import into_domain as placed
from certirl.ground.doors import as_count

SIDE_BY_SIDE = 64  # episodes played at once
ON = ("state", "observation")


def wrapped_reader(env: Any, get_state: Reader | None) -> Callable[[Any], Array]:
    """How to read a state ``[d]`` of this environment, angles brought back into their turn where they are known."""
    known = physics_of(unwrapped(env)) if get_state is None else None
    if known is None or not known.periodic:
        return lambda one: state_of(one, get_state or read_state)
    free = tuple(
        (low if np.isfinite(low) else -1e300, high if np.isfinite(high) else 1e300) for low, high in known.bounds
    )
    return lambda one: placed(state_of(one, read_state)[None], free, known.periodic)[0]


@dataclass(eq=False)
class _Run:
    """One episode in the making."""

    env: Any
    rng: np.random.Generator
    seen: Any
    states: list[Array]
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    done: bool = False

    def take(self, action: int, control: Any, read: Callable[[Any], Array]) -> None:
        self.seen, reward, terminated, truncated, _ = self.env.step(control)
        self.states.append(read(self.env))
        self.actions.append(action)
        self.rewards.append(float(reward))
        self.terminated, self.done = bool(terminated), bool(terminated or truncated)


def play(
    env: Any,
    policy: Any,
    *,
    episodes: int,
    rng: Any,
    steps: int | None,
    actions: int | Sequence[Any] | None,
    get_state: Reader | None,
    on: str,
) -> tuple[Episode, ...]:
    """Episodes of a policy in an environment; the same whatever else is played beside them."""
    episodes = as_count(episodes, "episodes")
    steps = None if steps is None else as_count(steps, "steps")
    if on not in ON:
        raise ValueError(f"on must be 'state' or 'observation': what the policy looks at; got {on!r}")
    controls = controls_of(env.action_space, actions)
    chosen = _uniform(len(controls)) if policy is None else as_policy(policy, len(controls))
    if steps is None and not _has_limit(env):
        raise ValueError("nothing says when an episode of this environment is cut off: pass steps, say steps=200")
    read = wrapped_reader(env, get_state)
    streams = as_generator(rng, "gym.play").spawn(episodes)
    copies = _copies(env, min(len(streams), SIDE_BY_SIDE))
    found = []
    for start in range(0, len(streams), len(copies)):
        batch = zip(copies, streams[start : start + len(copies)], strict=False)
        found += _together([_started(one, stream, read) for one, stream in batch], chosen, controls, read, steps, on)
    return tuple(found)


def _has_limit(env: Any) -> bool:
    """Whether episodes are cut off some time."""
    while hasattr(env, "env"):
        if type(env).__name__ == "TimeLimit":
            return True
        env = env.env
    return False


def _uniform(n_actions: int) -> Policy:
    return Policy(n_actions, lambda states: np.full((len(states), n_actions), 1 / n_actions))


def _copies(env: Any, count: int) -> list[Any]:
    try:
        return [copy.deepcopy(env) for _ in range(count)]
    except (TypeError, AttributeError, RuntimeError):  # windows, sockets, compiled engines: one after the other
        return [env]


def _started(env: Any, rng: np.random.Generator, read: Callable[[Any], Array]) -> _Run:
    seen, _ = env.reset(seed=int(rng.integers(2**31)))
    return _Run(env, rng, seen, [read(env)])


def _together(
    runs: list[_Run],
    policy: Policy,
    controls: Sequence[Any],
    read: Callable[[Any], Array],
    steps: int | None,
    on: str,
) -> list[Episode]:
    active = list(runs)
    while active:
        shown = np.stack([run.states[-1] if on == "state" else np.ravel(run.seen) for run in active])
        for run, choice in zip(active, _choices(policy, shown, active), strict=True):
            run.take(choice, controls[choice], read)
        active = [run for run in active if not run.done and (steps is None or len(run.actions) < steps)]
    return [Episode(np.array(run.states), np.array(run.actions), run.terminated, np.array(run.rewards)) for run in runs]


def _choices(policy: Policy, shown: Array, runs: list[_Run]) -> list[int]:
    """An action for each run, drawn with its own generator where the policy mixes."""
    chances = policy.probabilities(shown)
    if ((chances == 0) | (chances == 1)).all():
        return [int(action) for action in chances.argmax(axis=1)]
    draws = np.array([run.rng.random() for run in runs])
    found = (np.cumsum(chances, axis=1) <= draws[:, None]).sum(axis=1)
    return [int(action) for action in np.minimum(found, policy.n_actions - 1)]
