"""Environments that others wrote: their actions, their state, and one step from any state.

Nothing here imports gymnasium: spaces are known by the names of their classes, so that older and newer libraries with
the same shapes serve as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.environments.classic import Bounds, physics_of
from certirl.ground.domain import Array, into_domain
from certirl.ground.doors import as_count, as_flags, lend

Reader = Callable[[Any], Any]
Writer = Callable[[Any, Array], None]
MOST_LEVELS = 1000  # of a continuum of actions


def controls_of(space: Any, actions: int | Sequence[Any] | None) -> tuple[Any, ...]:
    """The control for each action: all of a Discrete space, chosen values of a Box."""
    kind = type(space).__name__
    if kind == "Discrete":
        first, every = int(getattr(space, "start", 0)), int(space.n)
        if actions is None:
            return tuple(range(first, first + every))
        chosen = list(range(actions)) if isinstance(actions, int) else list(actions)
        if not chosen or any(not isinstance(a, int | np.integer) or not first <= a < first + every for a in chosen):
            raise ValueError(f"actions must be some of {first} … {first + every - 1}, got {actions!r}")
        return tuple(int(action) for action in chosen)
    if kind != "Box":
        raise ValueError(
            f"actions must come from a Discrete space, or from a Box to be cut into levels; this is {space!r}: "
            "wrap the environment so that its actions are Discrete"
        )
    if actions is None:
        raise ValueError(f"{space!r} has a continuum of actions: choose some, say actions=[-2, 0, 2] or actions=3")
    levels: Any = actions
    if isinstance(actions, int):
        levels = _levels(space, as_count(actions, "actions", most=MOST_LEVELS))
    controls = []
    for action in levels:
        control = np.asarray(action, dtype=space.dtype)
        if control.size != int(np.prod(space.shape)) or not space.contains(control.reshape(space.shape)):
            raise ValueError(f"{action!r} is no action of {space!r}")
        controls.append(control.reshape(space.shape))
    return tuple(controls)


def _levels(space: Any, count: int) -> Array:
    """Evenly spaced controls, the ends included."""
    if space.shape != (1,) or count < 2 or not np.isfinite([space.low, space.high]).all():
        raise ValueError(f"{count} levels of {space!r}: list the actions themselves instead, each of {space.shape}")
    return np.linspace(space.low[0], space.high[0], count)


def unwrapped(env: Any) -> Any:
    """The environment inside its wrappers."""
    return getattr(env, "unwrapped", env)


def read_state(env: Any) -> Any:
    """The state where classic control keeps it."""
    inner = unwrapped(env)
    if getattr(inner, "state", None) is None:
        raise ValueError(
            f"{type(inner).__name__} has no attribute state to read: pass get_state=lambda env: …, which returns the "
            "state as numbers [d], and set_state=lambda env, state: … to make a simulator of it"
        )
    return inner.state


def write_state(env: Any, state: Array) -> None:
    """Put the state where classic control keeps it."""
    inner = unwrapped(env)
    inner.state = state
    if hasattr(inner, "steps_beyond_terminated"):  # CartPole counts its steps since it fell
        inner.steps_beyond_terminated = None


def state_of(env: Any, read: Reader) -> Array:
    """The state as finite floats ``[d]``."""
    try:
        state = np.array(read(env), dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"the state of {type(unwrapped(env)).__name__} cannot be read: {problem}") from None
    if state.ndim != 1 or not np.isfinite(state).all():
        raise ValueError(f"a state must be finite numbers [d], {type(unwrapped(env)).__name__} has {state!r}")
    return state


def state_reader(env: Any, get_state: Reader | None) -> Callable[[Any], Array]:
    """A function that reads an environment's state ``[d]``, known angles wrapped."""
    physics = physics_of(unwrapped(env)) if get_state is None else None
    if physics is None or not physics.periodic:
        return lambda which: state_of(which, get_state or read_state)
    low, high = np.array(physics.bounds).T
    box = tuple(zip(np.maximum(low, -1e300).tolist(), np.minimum(high, 1e300).tolist(), strict=True))
    return lambda which: into_domain(state_of(which, read_state)[None], box, physics.periodic)[0]


@dataclass(frozen=True, eq=False)
class Stepped:
    """An environment asked row by row.

    Attributes:
        env: without wrappers, so that no clock runs.
        move: a state ``[d]`` and a control to the next state, the environment's own reward, and whether it says that
            the next state is terminal.
        rule: states ``[n, d]`` to which of them are terminal ``[n]``; None if no state is.
        bounds: of its states.
        periodic: periodic coordinates.
    """

    env: Any
    move: Callable[[Array, Any], tuple[Array, float, bool]]
    rule: Callable[[Array], Any] | None
    bounds: Bounds
    periodic: tuple[int, ...] = ()
    thread_safe: ClassVar[bool] = False

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """Next states and rewards, row by row; random numbers come from ``rng``, if any."""
        if rng is not None and hasattr(self.env, "np_random"):
            self.env.np_random = rng
        after, rewards = np.empty_like(states), np.empty(len(states))
        for row, state in enumerate(states):
            after[row], rewards[row], terminated = self.move(np.array(state), control)
            if terminated and self.rule is None:
                raise ValueError(
                    f"{type(self.env).__name__} ended its episode in state {after[row].tolist()}: pass terminal=…, a "
                    "function of states [n, d] that says which of them are terminal [n]"
                )
        return after, rewards

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states are terminal ``[n]``."""
        if self.rule is None:
            return np.zeros(len(states), dtype=bool)
        return as_flags(self.rule(lend(states)), len(states), "terminal(states)")


def by_step(env: Any, read: Reader, write: Writer) -> Callable[[Array, Any], tuple[Array, float, bool]]:
    """The move of an environment whose state is set, and whose own ``step`` is taken."""

    def move(state: Array, control: Any) -> tuple[Array, float, bool]:
        write(env, state)
        _, reward, terminated, _, _ = env.step(control)
        return state_of(env, read), float(reward), bool(terminated)

    return move


def by_transition(env: Any) -> Callable[[Array, Any], tuple[Array, float, bool]]:
    """The move of an object with ``transition(state, action)``, as in seals."""

    def move(state: Array, control: Any) -> tuple[Array, float, bool]:
        after = np.array(np.ravel(env.transition(state.copy(), control)), dtype=float)
        reward = env.reward(state, control, after.copy()) if hasattr(env, "reward") else 0.0
        return after, float(reward), False

    return move


def terminal_by_row(env: Any) -> Callable[[Array], Any] | None:
    """The rule of an object with ``terminal(state, time)``, at time 0; None without it."""
    if not hasattr(env, "terminal"):
        return None
    return lambda states: np.array([bool(env.terminal(state.copy(), 0)) for state in states], dtype=bool)


def space_bounds(space: Any, dimension: int) -> Bounds:
    """The bounds that a Box gives to states ``[d]``, infinite ones included."""
    if type(space).__name__ != "Box":
        raise ValueError(
            f"states must come from a Box, this is {space!r}: pass domain=((low, high), …) with get_state and "
            "set_state hooks that describe the state by numbers"
        )
    low, high = (np.ravel(np.asarray(end, dtype=np.float64)) for end in (space.low, space.high))
    if len(low) != dimension:
        raise ValueError(
            f"the state has {dimension} coordinates but the observation {len(low)}: the bounds of the state are not "
            "those of the observation; pass domain=((low, high), …)"
        )
    # float32's largest number stands for infinity in many environments
    wild = np.abs([low, high]) >= np.finfo(np.float32).max / 2
    low, high = np.where(wild[0], -np.inf, low), np.where(wild[1], np.inf, high)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))
