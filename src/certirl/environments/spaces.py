"""What must be known of an environment other people wrote: its actions, its state, what one step does.

Nothing here imports gymnasium: spaces are known by the names of their classes, so that older and newer libraries with
the same shapes serve as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.environments.classic import Bounds, Physics
from certirl.ground.domain import Array, Domain, as_states, describe
from certirl.ground.domain import into_domain as placed
from certirl.ground.doors import as_count, as_flags, as_reals, lend

Reader = Callable[[Any], Any]
Writer = Callable[[Any, Array], None]
MOST_LEVELS = 1000  # of a continuum of actions


def controls_of(space: Any, actions: int | Sequence[Any] | None) -> tuple[Any, ...]:
    """What the environment is given for each action: all of a Discrete space, chosen values of a Box."""
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
    if hasattr(inner, "steps_beyond_terminated"):  # CartPole's own note that it has fallen before
        inner.steps_beyond_terminated = None


def state_of(env: Any, read: Reader) -> Array:
    """The state as ``[d]`` floats, or a sentence."""
    try:
        state = np.array(read(env), dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"the state of {type(unwrapped(env)).__name__} cannot be read: {problem}") from None
    if state.ndim != 1 or not np.isfinite(state).all():
        raise ValueError(f"a state must be finite numbers [d], {type(unwrapped(env)).__name__} has {state!r}")
    return state


@dataclass(frozen=True, eq=False)
class Stepped:
    """An environment stepped row by row: its state is set, its own ``step`` is asked.

    Attributes:
        env: without wrappers, so that no clock runs.
        read, write: how to get and set its state.
        ended: states ``[n, d]`` to whether they are terminal; None if no state is.
        bounds: of its states.
        periodic: coordinates that go around.
    """

    env: Any
    read: Reader
    write: Writer
    ended: Callable[[Array], Any] | None
    bounds: Bounds
    periodic: tuple[int, ...] = ()
    thread_safe: ClassVar[bool] = False

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """The environment's own step from each state."""
        _lend(self.env, rng)
        after, rewards = np.empty_like(states), np.empty(len(states))
        for row, state in enumerate(states):
            self.write(self.env, np.array(state))
            _, rewards[row], terminated, _, _ = self.env.step(control)
            after[row] = state_of(self.env, self.read)
            if terminated and self.ended is None:
                raise ValueError(
                    f"{type(self.env).__name__} ended its episode in state {after[row].tolist()}: pass terminal=…, a "
                    "function of states [n, d] that says which of them are terminal [n]"
                )
        return after, rewards

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states end an episode ``[n]``."""
        return _as_flags(self.ended, states)


@dataclass(frozen=True, eq=False)
class Transitioned:
    """An object with ``transition(state, action)`` and, if it has them, ``reward`` and ``terminal``, as in seals.

    Attributes:
        env: the object.
        ended: states ``[n, d]`` to whether they are terminal; None to ask ``env.terminal(state, 0)``.
        bounds: of its states.
        periodic: coordinates that go around.
    """

    env: Any
    ended: Callable[[Array], Any] | None
    bounds: Bounds
    periodic: tuple[int, ...] = ()
    thread_safe: ClassVar[bool] = False

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """Its transition from each state, and its reward where it has one."""
        _lend(self.env, rng)
        after, rewards = np.empty_like(states), np.zeros(len(states))
        for row, state in enumerate(states):
            after[row] = np.ravel(self.env.transition(np.array(state), control))
            if hasattr(self.env, "reward"):
                rewards[row] = self.env.reward(np.array(state), control, after[row].copy())
        return after, rewards

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states end an episode ``[n]``, whatever the time."""
        if self.ended is not None or not hasattr(self.env, "terminal"):
            return _as_flags(self.ended, states)
        return np.array([bool(self.env.terminal(np.array(state), 0)) for state in states], dtype=bool)


def _lend(env: Any, rng: Any) -> None:
    """What is random in an environment comes from the caller's generator, if there is one."""
    if rng is not None and hasattr(env, "np_random"):
        env.np_random = rng


def _as_flags(ended: Callable[[Array], Any] | None, states: Array) -> NDArray[np.bool_]:
    if ended is None:
        return np.zeros(len(states), dtype=bool)
    return as_flags(ended(lend(states)), len(states), "terminal(states)")


def space_bounds(space: Any, dimension: int) -> Bounds:
    """The bounds a Box gives to states of so many coordinates; infinite ones included."""
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


def deviations(noise: Any, box: Domain) -> tuple[float, ...]:
    """Standard deviations of a noise that is given in units of the widths, one for all coordinates or one for each."""
    spread = as_reals(noise, "noise").astype(np.float64)
    if spread.shape not in {(), (len(box),)} or not np.isfinite(spread).all() or (spread < 0).any():
        raise ValueError(f"noise must be a share ≥ 0 of the widths, one number or {len(box)} of them, got {noise!r}")
    return tuple((spread * np.diff(np.array(box), axis=1)[:, 0]).tolist())


@dataclass(frozen=True)
class EnvSimulator:
    """An environment as a simulator: s' for any state and action, without its clock.

    Terminal states are absorbing. Without noise the dynamics are deterministic: P_a(·|s) is a point, not a density, so
    nothing that rests on a density or on its smoothness (a `Smooth` tail) can be claimed, and a certificate would need
    a tail declared by hand; rewards are validated at best. A little noise makes the theory whole, for the noisy
    environment. Even then states next to the edge of the terminal set are sent to either side of a jump.

    Attributes:
        name: of the environment.
        physics: its dynamics in state coordinates.
        controls: what the environment is given for each action ``[A]``.
        domain: one (low, high) per coordinate; next states beyond are stopped at the edge (see ``notes``).
        periodic: coordinates that go around.
        noise: standard deviation of what is added to each coordinate of a next state; mirrored at the edges.
        notes: what was estimated or changed, in sentences.
        random: the environment's own step is: asked twice about the same state, it answered differently.
    """

    name: str
    physics: Physics
    controls: tuple[Any, ...]
    domain: Domain
    periodic: tuple[int, ...]
    noise: tuple[float, ...]
    notes: tuple[str, ...] = ()
    random: bool = False

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.controls)

    @property
    def thread_safe(self) -> bool:
        """Vectorised physics may be asked by several threads at once, an environment that is stepped may not."""
        return self.physics.thread_safe

    def with_noise(self, noise: Any) -> EnvSimulator:
        """The same with process noise of these standard deviations, as shares of the widths, and no other."""
        return replace(self, noise=deviations(noise, self.domain))

    @property
    def deterministic(self) -> bool:
        """One state and one action lead to one next state."""
        return not any(self.noise) and not self.random

    def __str__(self) -> str:
        how = "vectorised" if self.physics.thread_safe else "stepped row by row"
        lines = [f"{self.name}: {self.n_actions} actions on {describe(self.domain)}, {how}"]
        if self.periodic:
            lines.append(f"  coordinates {', '.join(map(str, self.periodic))} go around")
        if any(self.noise):
            lines.append(f"  noise of standard deviation {', '.join(f'{value:.3g}' for value in self.noise)}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def terminal(self, states: Any) -> NDArray[np.bool_]:
        """Which states end an episode ``[n]``; they are absorbing."""
        return self.physics.terminal(as_states(states, self.domain))

    def step(self, states: Any, action: int, rng: Any = None) -> tuple[Array, Array]:
        """Next states ``[n, d]`` before noise, and the environment's own rewards ``[n]``; 0 from terminal states on."""
        rows = as_states(states, self.domain)
        alive = ~self.physics.terminal(rows)
        after, rewards = rows.copy(), np.zeros(len(rows))
        if alive.any():
            moved, rewards[alive] = self.physics.step(rows[alive], self.controls[action], rng)
            after[alive] = placed(moved, self.domain, self.periodic)
        return after, rewards

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """One next state for each state ``[n, d]``."""
        after, _ = self.step(states, action, rng)
        if not any(self.noise):
            return after
        shaken = after + rng.standard_normal(after.shape) * self.noise
        shaken = placed(shaken, self.domain, self.periodic, reflect=True)
        return np.where(self.terminal(states)[:, None], after, shaken)

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array] | None:
        """Next states ``[m, n, d]`` with weights ``[m]`` for expectations: exact to third order in the noise.

        None if the environment itself is random: its next states can only be drawn.
        """
        if self.random:
            return None
        after, _ = self.step(states, action)
        d, shift = len(self.domain), np.diag(self.noise)[np.array(self.noise) > 0]
        if not len(shift):
            return after[None], np.ones(1)
        ended = self.terminal(states)[:, None]
        shift = np.concatenate([shift, -shift]) * np.sqrt(len(shift))
        moved = [placed(after + one, self.domain, self.periodic, reflect=True) for one in shift]
        return np.where(ended, after, np.stack(moved).reshape(-1, len(after), d)), np.full(len(shift), 1 / len(shift))

    def reward(self, states: Array, action: int, next_states: Any = None) -> Array:
        """The environment's own reward for a step ``[n]``; 0 in terminal states."""
        return self.step(states, action, np.random.default_rng(0))[1]
