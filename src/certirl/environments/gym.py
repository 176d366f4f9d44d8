"""Gymnasium environments as simulators, as sources of logged episodes, and as places to try a learned reward.

    env = gymnasium.make("Pendulum-v1")
    simulator = certirl.gym.simulator(env, actions=[-2, 0, 2])       # states (θ, θ̇), θ around a circle
    plan = certirl.planning.plan(simulator, discount=0.99)           # an expert, from the environment's own reward
    log = certirl.gym.rollouts(env, plan, episodes=20, rng=0, actions=[-2, 0, 2])

Everything here works in state coordinates: what ``env.unwrapped.state`` holds, or what a ``get_state`` hook says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from certirl.data.episodes import Episode
from certirl.data.simulator import as_generator
from certirl.environments.classic import Physics, physics_of
from certirl.environments.playing import play
from certirl.environments.spaces import (
    EnvSimulator,
    Reader,
    Stepped,
    Transitioned,
    controls_of,
    deviations,
    read_state,
    space_bounds,
    state_of,
    unwrapped,
    write_state,
)
from certirl.ground.domain import Array, Domain, as_axes, as_domain, describe
from certirl.ground.domain import into_domain as placed

try:
    import gymnasium
except ImportError:
    raise ImportError('certirl.gym needs gymnasium, 1.0 or later: pip install "certirl[gym]"') from None

from certirl.environments.rewarding import RewardWrapper

__all__ = ["RewardWrapper", "episode_returns", "rollouts", "simulator"]

# Wrappers that leave the dynamics alone.
HARMLESS = (
    "Autoreset",
    "HumanRendering",
    "NormalizeReward",
    "OrderEnforcing",
    "PassiveEnvChecker",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenderCollection",
    "RewardWrapper",
    "TimeLimit",
    "TransformReward",
)
PROBES = 64  # states at which vectorised physics must agree with the environment's own step
AGREEMENT = 1e-9  # of the width of a coordinate
_TRIAL_EPISODES, _TRIAL_STEPS, _WIDER = 100, 500, 1.2  # where bounds come from random play


def simulator(
    env: Any,
    *,
    actions: int | Sequence[Any] | None = None,
    domain: Any = None,
    periodic: Sequence[int] | None = None,
    noise: float | Sequence[float] = 0.0,
    set_state: Callable[[Any, Array], None] | None = None,
    get_state: Callable[[Any], Any] | None = None,
    terminal: Callable[[Array], Any] | None = None,
    rng: Any = 0,
) -> EnvSimulator:
    """Make a simulator of an environment whose state can be set.

    MountainCar, Pendulum and CartPole are vectorised; the physics is compared with the environment's own ``step``
    first, and an environment that disagrees is stepped row by row, as is every other one (about 10 µs a row). The
    environment is copied, if it can be, and stays as it is; its wrappers are left out.

    Args:
        env: a gymnasium environment or the name of one; or an object with ``transition(state, action)``, as in seals.
        actions: of a Box action space, the controls to choose from (``[-2, 0, 2]``) or how many evenly spaced levels;
            of a Discrete one, some of its actions. All of them if left out.
        domain: one (low, high) per coordinate; what the environment says if left out, and where it says nothing a
            fifth more than the range of random play.
        periodic: coordinates that go around, such as angles; known for Pendulum.
        noise: standard deviation of the process noise as a share of the width of each coordinate: one for all, or one
            for each.
        set_state: ``set_state(env, state)``, for environments that keep it elsewhere than in ``env.unwrapped.state``.
        get_state: ``get_state(env)``, likewise.
        terminal: states ``[n, d]`` to whether they end an episode ``[n]``; known for the environments named above.
        rng: for the random play behind estimated bounds, and the states at which physics is compared.
    """
    made = _opened(env)
    controls = controls_of(made.action_space, actions)
    around = None if periodic is None else as_axes(periodic, 1000)  # how many coordinates there are is not known yet
    # With hooks of its own an environment has coordinates of its own.
    written = None if terminal or get_state or set_state else physics_of(unwrapped(made))
    hooks = get_state or read_state, set_state or write_state, terminal
    stepped = _stepped(made, written, *hooks, around, domain)
    generator = as_generator(rng, "gym.simulator")
    box, notes = _box(domain, stepped if written is None else written, stepped, controls, generator)
    around = around if around is not None else () if written is None else written.periodic
    around = as_axes(around, len(box))
    physics: Physics = stepped
    if written is not None:
        physics = _trusted(written, stepped, controls, box, generator)
        if physics is not written:
            notes.append("its step is not that of the environment it is made from, so that it is stepped row by row")
    name = type(stepped.env).__name__.removesuffix("Env")
    found = EnvSimulator(name, physics, controls, box, around, deviations(noise, box), tuple(notes))
    return replace(found, notes=(*notes, *_stopped(found, generator)), random=_is_random(found, generator))


def _opened(env: Any) -> Any:
    """The environment by its name, or a copy of the one given; itself if it cannot be copied."""
    if isinstance(env, str):
        return gymnasium.make(env)
    if not hasattr(env, "action_space"):
        raise TypeError(f"{type(env).__name__} is no environment: it has no action_space")
    layer = env
    while layer is not unwrapped(env) and hasattr(layer, "env"):
        if type(layer).__name__ not in HARMLESS:
            raise ValueError(
                f"{type(layer).__name__} may change what a step does, and a simulator asks the environment inside: "
                "pass env.unwrapped, with actions as it takes them"
            )
        layer = layer.env
    try:
        return copy.deepcopy(env)
    except (TypeError, AttributeError, RuntimeError):  # windows, sockets, compiled engines
        return env


def _stepped(
    env: Any,
    known: Physics | None,
    read: Reader,
    write: Any,
    terminal: Any,
    periodic: tuple[int, ...] | None,
    domain: Any,
) -> Stepped | Transitioned:
    """The environment behind the interface of physics."""
    inner, around = unwrapped(env), periodic or ()
    if hasattr(inner, "transition"):
        space = getattr(inner, "state_space", inner.observation_space)
        dimension = len(as_domain(domain)) if domain is not None else int(np.prod(space.shape or (1,)))
        bounds = as_domain(domain) if domain is not None else space_bounds(space, dimension)
        return Transitioned(inner, terminal, bounds, around)
    observation, _ = env.reset(seed=0)
    state = state_of(env, read)
    if known is not None:
        return Stepped(inner, read, write, known.terminal, known.bounds, known.periodic)
    if domain is not None:
        return Stepped(inner, read, write, terminal, as_domain(domain), around)
    bounds = space_bounds(env.observation_space, len(state))
    if not np.allclose(np.ravel(observation), state, rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"the state {state.tolist()} of {type(inner).__name__} is not what is observed, "
            f"{np.ravel(observation).tolist()}: pass domain=((low, high), …) of the state"
        )
    return Stepped(inner, read, write, terminal, bounds, around)


def _box(
    domain: Any, physics: Physics, stepped: Physics, controls: Sequence[Any], rng: np.random.Generator
) -> tuple[Domain, list[str]]:
    """The domain given or known, and what random play says where nothing is known."""
    if domain is not None:
        box = as_domain(domain)
        if len(box) != len(physics.bounds):
            raise ValueError(f"the state has {len(physics.bounds)} coordinates but the domain {describe(box)} does not")
        return box, []
    bounds = np.array(physics.bounds)
    free = np.flatnonzero(~np.isfinite(bounds).all(axis=1))
    if not free.size:
        return as_domain(bounds), []
    if isinstance(stepped, Transitioned):
        raise ValueError(f"coordinate {free[0]} of the state is unbounded: pass domain=((low, high), …)")
    low, high = _seen(stepped, controls, rng)
    reach = _WIDER * np.maximum(np.abs(low), np.abs(high))  # even around zero, as boxes without bounds mostly are
    for axis in free:
        bounds[axis] = np.where(np.isfinite(bounds[axis]), bounds[axis], [-reach[axis], reach[axis]])
    found = as_domain(bounds)
    told = ", ".join(f"coordinate {axis} in [{found[axis][0]:.4g}, {found[axis][1]:.4g}]" for axis in free)
    return found, [f"bounds estimated from {_TRIAL_EPISODES} episodes of random play: {told}; domain=… sets them"]


def _seen(stepped: Any, controls: Sequence[Any], rng: np.random.Generator) -> tuple[Array, Array]:
    """The least and largest coordinates of states met by random play."""
    states = []
    for _ in range(_TRIAL_EPISODES):
        stepped.env.reset(seed=int(rng.integers(2**31)))
        for _ in range(_TRIAL_STEPS):
            _, _, terminated, truncated, _ = stepped.env.step(controls[int(rng.integers(len(controls)))])
            states.append(state_of(stepped.env, stepped.read))
            if terminated or truncated:
                break
    return np.min(states, axis=0), np.max(states, axis=0)


def _uniform(box: Domain, count: int, rng: np.random.Generator) -> Array:
    low, high = np.array(box).T
    return low + (high - low) * rng.random((count, len(box)))


def _trusted(written: Physics, stepped: Any, controls: Sequence[Any], box: Domain, rng: np.random.Generator) -> Physics:
    """The vectorised physics if it does what the environment's own step does at random states, else the latter."""
    states = _uniform(box, PROBES, rng)
    states = states[~written.terminal(states)]
    width = np.diff(np.array(box), axis=1)[:, 0]
    for control in controls:
        ours, our_rewards = written.step(states, control)
        for row, state in enumerate(states):
            stepped.write(stepped.env, state.copy())
            _, reward, terminated, _, _ = stepped.env.step(control)
            theirs = state_of(stepped.env, stepped.read)
            alike = np.abs(theirs - ours[row]) <= AGREEMENT * width
            ends = bool(written.terminal(theirs[None])[0])
            if not alike.all() or abs(reward - our_rewards[row]) > AGREEMENT or bool(terminated) != ends:
                return stepped
    return written


def _is_random(found: EnvSimulator, rng: np.random.Generator) -> bool:
    """Whether the environment's own step answers differently when it is asked again."""
    if found.thread_safe:
        return False
    states = _uniform(found.domain, 16, rng)
    for action in range(found.n_actions):
        one, other = (found.step(states, action, stream)[0] for stream in rng.spawn(2))
        if not np.array_equal(one, other):
            return True
    return False


def _stopped(found: EnvSimulator, rng: np.random.Generator) -> list[str]:
    """What share of next states leaves the box by which coordinate, from states drawn evenly."""
    states = _uniform(found.domain, 4096 if found.thread_safe else 128, rng)
    states = states[~found.terminal(states)]
    low, high = np.array(found.domain).T
    beyond = np.zeros(len(low))
    for control in found.controls if len(states) else ():
        moved, _ = found.physics.step(states, control, rng)
        outside = (moved < low - 1e-9 * (high - low)) | (moved > high + 1e-9 * (high - low))
        ended = found.physics.terminal(placed(moved, found.domain, found.periodic))
        lost = found.physics.terminal(moved) & ~ended
        if lost.any():
            raise ValueError(
                f"the domain {describe(found.domain)} has no room for terminal states such as "
                f"{moved[lost.argmax()].tolist()}: put on its edge it would be no longer terminal; widen the domain"
            )
        beyond += (outside & ~ended[:, None]).mean(axis=0) / found.n_actions
    return [
        f"{share:.1%} of next states leave the box in coordinate {axis} and are stopped at its edge"
        for axis, share in enumerate(beyond)
        if share > 0 and axis not in found.periodic
    ]


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
    """Play episodes and keep them: states with the last one included, actions, rewards, and whether the last is final.

    `certirl.from_episodes` makes logged transitions of them.

    Args:
        env: a gymnasium environment, with its time limit; it is copied.
        policy: an action, a function of states ``[n, d]``, an object with ``predict``; None plays at random.
        episodes: how many.
        rng: a seed or Generator; an episode does not depend on how many there are.
        steps: cut episodes off after so many, if the environment does not do so earlier.
        actions: as for `simulator`.
        get_state: as for `simulator`.
        on: "state" or "observation": what the policy is asked about.
    """
    made = gymnasium.make(env) if isinstance(env, str) else env
    asked = {"steps": steps, "actions": actions, "get_state": get_state, "on": on}
    return play(made, policy, episodes=episodes, rng=rng, **asked)  # type: ignore[arg-type]


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
    """The undiscounted sum of the environment's own rewards, for each of many episodes: ``[episodes]``.

    With the same seed all policies start from the same states. Arguments as for `rollouts`.
    """
    asked = {"steps": steps, "actions": actions, "get_state": get_state, "on": on}
    played = rollouts(env, policy, episodes=episodes, rng=rng, **asked)  # type: ignore[arg-type]
    return np.array([episode.total for episode in played])
