"""Environments of other libraries as simulators: their actions, their state, and a step from any state.

Nothing here needs gymnasium: spaces are recognised by the names of their classes, so that other versions and other
libraries with the same interface can be used as well.

The physics of the classic-control environments are vectorised over states. These are compared with the environment's
own ``step`` before use, and their constants are read from the environment, so that one with another gravity has other
physics. An environment whose own step disagrees, say a subclass with wind, is stepped row by row instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.data.simulator import as_generator
from certirl.ground import archive
from certirl.ground.domain import Array, Box, as_axes, as_domain, as_states
from certirl.ground.doors import (
    as_array,
    as_count,
    as_flags,
    as_listed,
    as_reals,
    by_door,
    call,
    printable,
    shown,
    users,
)
from certirl.ground.records import Record, internal
from certirl.proof.cells import Image, hull_with_zero

Bounds = tuple[tuple[float, float], ...]


Reader = Callable[[Any], Any]
Writer = Callable[[Any, Array], None]
MOST_LEVELS = 1000  # into which an interval of actions is divided

# Wrappers that leave the dynamics alone.
HARMLESS = (
    *("Autoreset", "HumanRendering", "NormalizeReward", "OrderEnforcing", "PassiveEnvChecker", "RecordVideo"),
    *("RecordEpisodeStatistics", "RenderCollection", "RewardWrapper", "TimeLimit", "TransformReward"),
)
PROBES = 64  # states at which vectorised physics must agree with the environment's own step
AGREEMENT = 1e-9  # of the width of a coordinate
_TRIAL_EPISODES, _TRIAL_STEPS, _WIDER = 100, 500, 1.2  # where bounds come from random play


def clipped(values: Array, slopes: Array, spreads: Array, halves: Array, most: float) -> Array:
    """Values of a coordinate in [−most, most] ``[n]``; their slopes and spreads ``[n, d]`` are changed.

    clip(x) − clip(y) = θ(x − y) with 0 ≤ θ ≤ 1; θ = 1 within the ends and 0 beyond them.
    """
    reach = (np.abs(slopes) + spreads) @ halves
    inner, outer = np.abs(values) + reach < most, np.abs(values) - reach > most
    between = ~inner & ~outer
    slopes[between], spreads[between] = hull_with_zero(slopes[between], spreads[between])
    slopes[outer], spreads[outer] = 0.0, 0.0
    return np.clip(values, -most, most)


@archive.record
@dataclass(frozen=True)
@internal
class MountainCar(Record):
    """Position and velocity of a car in a valley; the goal is on the right hill."""

    force: float
    gravity: float
    max_speed: float
    min_position: float
    max_position: float
    goal_position: float
    goal_velocity: float
    periodic: ClassVar[tuple[int, ...]] = ()
    coordinate_names: ClassVar[tuple[str, ...]] = ("position", "velocity")
    thread_safe: ClassVar[bool] = True

    @property
    def bounds(self) -> Bounds:
        """Those of the observations."""
        return ((self.min_position, self.max_position), (-self.max_speed, self.max_speed))

    def step(self, states: Array, control: int, rng: Any = None) -> tuple[Array, Array]:
        """Gravity and the motor; the left wall stops the car."""
        position, velocity = states.T
        velocity = velocity + ((control - 1) * self.force + np.cos(3 * position) * (-self.gravity))
        velocity = np.clip(velocity, -self.max_speed, self.max_speed)
        position = np.clip(position + velocity, self.min_position, self.max_position)
        velocity = np.where((position == self.min_position) & (velocity < 0), 0.0, velocity)
        return np.column_stack([position, velocity]), np.full(len(states), -1.0)

    @property
    def terminal_boxes(self) -> tuple[Bounds, ...]:
        """The terminal states."""
        return (((self.goal_position, self.max_position), (self.goal_velocity, self.max_speed)),)

    def images(self, centres: Array, halves: Array, control: int) -> tuple[Image, ...]:
        """The next states of cells: by the map without the wall, and at rest at the wall where that is possible."""
        position, velocity = centres.T
        velocity = velocity + ((control - 1) * self.force + np.cos(3 * position) * (-self.gravity))
        slopes, spreads = np.zeros((2, len(centres), 2, 2))
        slopes[:, 1] = np.column_stack([3 * self.gravity * np.sin(3 * position), np.ones(len(centres))])
        spreads[:, 1, 0] = 4.5 * abs(self.gravity) * halves[0]  # half of the second derivative, 9g, times the distance
        velocity = clipped(velocity, slopes[:, 1], spreads[:, 1], halves, self.max_speed)
        slopes[:, 0], spreads[:, 0] = slopes[:, 1] + [1.0, 0.0], spreads[:, 1]
        moved = np.column_stack([position + velocity, velocity])
        reach = (np.abs(slopes) + spreads) @ halves
        low, high = moved - reach, moved + reach
        stopped = (low[:, 0] <= self.min_position) & (low[:, 1] < 0)  # some next state may be at the wall, at rest
        always = (high[:, 0] <= self.min_position) & (high[:, 1] < 0)  # all of them are
        rest, still = [self.min_position, 0.0], np.where(stopped[:, None, None], 0.0, slopes)
        moved[always], slopes[always], spreads[always] = rest, 0.0, 0.0
        stiff = np.where(stopped[:, None, None], 0.0, spreads)
        return Image(moved, slopes, spreads), Image(np.where(stopped[:, None], rest, moved), still, stiff)

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """At the goal, and not rolling back."""
        return (states[:, 0] >= self.goal_position) & (states[:, 1] >= self.goal_velocity)


@archive.record
@dataclass(frozen=True)
@internal
class Pendulum(Record):
    """Angle θ (0 is upright) and angular velocity; cos θ and sin θ are observed."""

    g: float
    m: float
    l: float  # noqa: E741  # the environment's name of the length
    dt: float
    max_speed: float
    max_torque: float
    periodic: ClassVar[tuple[int, ...]] = (0,)
    coordinate_names: ClassVar[tuple[str, ...]] = ("angle", "angular velocity")
    thread_safe: ClassVar[bool] = True

    @property
    def bounds(self) -> Bounds:
        """A full turn, and the largest speed."""
        return ((-np.pi, np.pi), (-self.max_speed, self.max_speed))

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """Gravity and a torque; the angle is not wrapped here."""
        angle, speed = states.T
        torque = np.clip(np.ravel(control)[0], -self.max_torque, self.max_torque)
        cost = (((angle + np.pi) % (2 * np.pi)) - np.pi) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
        pull = 3 * self.g / (2 * self.l) * np.sin(angle) + 3.0 / (self.m * self.l**2) * torque
        speed = np.clip(speed + pull * self.dt, -self.max_speed, self.max_speed)
        return np.column_stack([angle + speed * self.dt, speed]), -cost

    terminal_boxes: ClassVar[tuple[Bounds, ...]] = ()

    def images(self, centres: Array, halves: Array, control: Any) -> tuple[Image, ...]:
        """The next states of cells, by the derivatives of the map."""
        angle, speed = centres.T
        torque = float(np.clip(np.ravel(control)[0], -self.max_torque, self.max_torque))
        pull = self.dt * 3 * self.g / (2 * self.l)
        speed = speed + pull * np.sin(angle) + self.dt * 3.0 / (self.m * self.l**2) * torque
        slopes, spreads = np.zeros((2, len(centres), 2, 2))
        slopes[:, 1] = np.column_stack([pull * np.cos(angle), np.ones(len(centres))])
        spreads[:, 1, 0] = abs(pull) / 2 * halves[0]  # half of the second derivative times the distance
        speed = clipped(speed, slopes[:, 1], spreads[:, 1], halves, self.max_speed)
        slopes[:, 0], spreads[:, 0] = self.dt * slopes[:, 1] + [1.0, 0.0], self.dt * spreads[:, 1]
        return (Image(np.column_stack([angle + self.dt * speed, speed]), slopes, spreads),)

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """None."""
        return np.zeros(len(states), dtype=bool)


@dataclass(frozen=True)
@internal
class CartPole(Record):
    """Position and velocity of a cart, angle and angular velocity of the pole on it."""

    gravity: float
    masspole: float
    total_mass: float
    length: float
    polemass_length: float
    force_mag: float
    tau: float
    kinematics_integrator: str
    x_threshold: float
    theta_threshold_radians: float
    _sutton_barto_reward: bool = False
    periodic: ClassVar[tuple[int, ...]] = ()
    coordinate_names: ClassVar[tuple[str, ...]] = ("position", "velocity", "angle", "angular velocity")
    thread_safe: ClassVar[bool] = True

    # The box reaches a little beyond the thresholds: states that lie there are terminal, and must lie somewhere.
    BEYOND: ClassVar[float] = 1.1

    @property
    def bounds(self) -> Bounds:
        """A tenth beyond the thresholds; nothing bounds the velocities."""
        x, angle, free = self.BEYOND * self.x_threshold, self.BEYOND * self.theta_threshold_radians, (-np.inf, np.inf)
        return ((-x, x), free, (-angle, angle), free)

    def step(self, states: Array, control: int, rng: Any = None) -> tuple[Array, Array]:
        """One push from the left or from the right."""
        x, v, angle, spin = states.T
        push = self.force_mag if control == 1 else -self.force_mag
        cos, sin = np.cos(angle), np.sin(angle)
        temp = (push + self.polemass_length * spin**2 * sin) / self.total_mass
        lever = self.length * (4.0 / 3.0 - self.masspole * cos**2 / self.total_mass)
        torque = (self.gravity * sin - cos * temp) / lever
        pull = temp - self.polemass_length * torque * cos / self.total_mass
        if self.kinematics_integrator == "euler":
            after = [x + self.tau * v, v + self.tau * pull, angle + self.tau * spin, spin + self.tau * torque]
        else:
            v, spin = v + self.tau * pull, spin + self.tau * torque
            after = [x + self.tau * v, v, angle + self.tau * spin, spin]
        next_states = np.column_stack(after)
        fallen = self.terminal(next_states)
        return next_states, -fallen.astype(float) if self._sutton_barto_reward else np.ones(len(states))

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """The cart is out of the track, or the pole has fallen."""
        return (np.abs(states[:, 0]) > self.x_threshold) | (np.abs(states[:, 2]) > self.theta_threshold_radians)


@dataclass(frozen=True, eq=False)
@internal
class Stepped(Record):
    """An environment asked row by row: its state is set, and its own ``step`` is taken."""

    env: Any  # without wrappers, so that no clock runs
    read: Reader  # how its state is read and set
    write: Writer
    rule: Callable[[Array], Any] | None  # states ``[n, d]`` to which of them are terminal ``[n]``; None if no state is
    bounds: Bounds  # of its states
    periodic: tuple[int, ...] = ()  # periodic coordinates
    thread_safe: ClassVar[bool] = False

    def move(self, state: Array, control: Any) -> tuple[Array, float, bool]:
        """The next state ``[d]``, the environment's own reward, and whether it says that the state is terminal."""
        with users("set_state", self.write):
            self.write(self.env, state)
        _, reward, terminated, _ = step(self.env, control)
        return state_of(self.env, self.read), reward, terminated

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
        read = partial(as_flags, count=len(states), what="terminal(states)")
        return np.asarray(call(self.rule, states, what="terminal", read=read))


# Dynamics of an environment in state coordinates: next states [n, d] and own rewards [n] of live states [n, d].
Physics = MountainCar | Pendulum | CartPole | Stepped
_PHYSICS: dict[str, Any] = {"MountainCarEnv": MountainCar, "PendulumEnv": Pendulum, "CartPoleEnv": CartPole}


def physics_of(env: Any) -> Physics | None:
    """Physics of an unwrapped environment, by the name of its class or of a base class.

    Fields have the names that the environment's attributes have; one of another class of that name lacks some of them.
    """
    kind = next((_PHYSICS[each.__name__] for each in type(env).__mro__ if each.__name__ in _PHYSICS), None)
    if kind is None:
        return None
    try:
        return kind(**{field.name: getattr(env, field.name) for field in fields(kind) if hasattr(env, field.name)})
    except TypeError:  # a constant is missing
        return None


@archive.record
@dataclass(frozen=True)
class EnvSimulator(Record):
    """An environment as a simulator: s' for any state and action, without its clock.

    Terminal states are absorbing. Without noise the dynamics are deterministic: P_a(·|s) is a point, not a density, so
    nothing that rests on a density or on its smoothness (a `Smooth` tail) can be claimed, and a certificate would need
    a tail declared by hand; rewards are validated at best. A little noise makes the theory apply, to the noisy
    environment. Even then states next to the edge of the terminal set are sent to either side of a jump.

    Attributes:
        name: of the environment.
        physics: its dynamics in state coordinates.
        controls: the control of the environment for each action ``[A]``.
        domain: one (low, high) per coordinate; next states beyond are stopped at the edge (see ``notes``).
        periodic: periodic coordinates.
        noise: standard deviation of what is added to each coordinate of a next state; reflected at the edges.
        notes: what was estimated or changed, in sentences.
        random: the environment's own step is random: for the same state it gave two different next states.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> car.n_actions, car.periodic, car.deterministic
        (3, (), True)
    """

    name: str
    physics: Physics
    controls: tuple[Any, ...]
    domain: Box
    periodic: tuple[int, ...]
    noise: tuple[float, ...]
    notes: tuple[str, ...] = ()
    random: bool = False

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return len(self.controls)

    @internal
    def in_words(self) -> str:
        """The derivatives that are built in, with every constant of the physics."""
        numbers = [f"{name} {value:g}" for name, value in vars(self.physics).items()]
        controls = ", ".join(f"{float(np.ravel(control)[0]):g}" for control in self.controls)
        constants = f"{', '.join(numbers)}; controls {controls}"
        return f"the built-in derivatives of {type(self.physics).__name__} with {constants}"

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the coordinates; empty if they have none."""
        return getattr(self.physics, "coordinate_names", ())

    @property
    def thread_safe(self) -> bool:
        """Whether several threads may ask at once: only where the physics is vectorised."""
        return self.physics.thread_safe

    @property
    def deterministic(self) -> bool:
        """One state and one action lead to one next state."""
        return not any(self.noise) and not self.random

    def __str__(self) -> str:
        how = "vectorised" if self.physics.thread_safe else "stepped row by row"
        lines = [f"{self.name}: {self.n_actions} actions on {self.domain.words}, {how}"]
        if self.periodic:
            plural = "s" * (len(self.periodic) != 1)
            lines.append(f"  periodic in coordinate{plural} {', '.join(map(str, self.periodic))}")
        if any(self.noise):
            lines.append(f"  noise of standard deviation {', '.join(f'{value:.3g}' for value in self.noise)}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    @property
    def terminal_boxes(self) -> Any:
        """The boxes of terminal states, where the physics is built in; None if these are not known."""
        return getattr(self.physics, "terminal_boxes", None)

    def images(self, centres: Array, halves: Array, action: int) -> tuple[Image, ...] | None:
        """What contains the next states of cells with these centres ``[n, d]`` and half sides ``[d]``.

        None if nothing is built in. See `certirl.dynamics.Deterministic`.

        Example:
            >>> image, wall = car.images(np.array([[-0.5, 0.0]]), np.array([0.01, 0.001]), 2)
            >>> image.slopes.round(4), image.differs(wall)
            (array([[[ 0.9925,  1.    ],
                    [-0.0075,  1.    ]]]), array([False]))
        """
        if not self.deterministic or not isinstance(self.physics, MountainCar | Pendulum):
            return None
        for axis, (ends, bounds) in enumerate(zip(self.domain, self.physics.bounds, strict=True)):
            if not (bounds[0] <= ends[0] and ends[1] <= bounds[1]) or (axis in self.periodic and ends != bounds):
                return None
        return self.physics.images(centres, halves, self.controls[action])

    def terminal(self, states: Any) -> NDArray[np.bool_]:
        """Which states are terminal ``[n]``; they are absorbing.

        Example:
            >>> car.terminal([[0.6, 0.0], [-0.5, 0.0]])
            array([ True, False])
        """
        return self.physics.terminal(as_states(states, self.domain))

    def step(self, states: Any, action: int, rng: Any = None) -> tuple[Array, Array]:
        """Next states ``[n, d]`` before noise, and own rewards ``[n]``, 0 in terminal states.

        Example:
            >>> next_states, rewards = car.step([[-0.5, 0.0]], 2)
            >>> next_states.round(4), rewards
            (array([[-0.4992,  0.0008]]), array([-1.]))
        """
        rows = as_states(states, self.domain)
        alive = ~self.physics.terminal(rows)
        after, rewards = rows.copy(), np.zeros(len(rows))
        if alive.any():
            moved, rewards[alive] = self.physics.step(rows[alive], self.controls[action], rng)
            after[alive] = self.domain.moved_into(moved, self.periodic)
        return after, rewards

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """One next state for each state ``[n, d]``.

        Example:
            >>> car.sample(np.array([[-0.5, 0.0]]), 2, np.random.default_rng(0)).round(4)
            array([[-0.4992,  0.0008]])
        """
        after, _ = self.step(states, action, rng)
        return self._shifted(states, after, rng.standard_normal(after.shape) * self.noise) if any(self.noise) else after

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array] | None:
        """Next states ``[m, n, d]`` with weights ``[m]``, for expectations.

        These are exact to third order in the noise. None if the environment itself is random: its next states can only
        be drawn.

        Example:
            >>> next_states, weights = car.outcomes(np.array([[-0.5, 0.0]]), 2)
            >>> next_states.shape, weights
            ((1, 1, 2), array([1.]))
        """
        if self.random:
            return None
        after, _ = self.step(states, action)
        shift = np.diag(self.noise)[np.array(self.noise) > 0]
        if not len(shift):
            return after[None], np.ones(1)
        shift = np.concatenate([shift, -shift]) * np.sqrt(len(shift))
        return self._shifted(states, after, shift[:, None]), np.full(len(shift), 1 / len(shift))

    def _shifted(self, states: Array, after: Array, shift: Array) -> Array:
        """Next states ``[…, n, d]`` with noise; terminal states have none."""
        noisy = self.domain.moved_into(after + shift, self.periodic, reflect=True)
        return np.where(self.terminal(states)[:, None], after, noisy)

    def reward(self, states: Array, action: int, next_states: Any = None) -> Array:
        """The environment's own reward for a step ``[n]``; 0 in terminal states.

        Example:
            >>> car.reward(np.array([[-0.5, 0.0]]), 2)
            array([-1.])
        """
        return self.step(states, action, np.random.default_rng(0))[1]


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
        env: a gymnasium environment or the name of one.
        actions: of a Box action space, the controls to choose from (``[-2, 0, 2]``) or how many evenly spaced levels;
            of a Discrete one, some of its actions. All of them if left out.
        domain: one (low, high) per coordinate; left out, the environment's bounds, and where it has none a fifth more
            than the range of random play.
        periodic: periodic coordinates, such as angles; known for Pendulum.
        noise: standard deviation of the process noise as a share of the width of each coordinate: one for all, or one
            for each.
        set_state: ``set_state(env, state)``, for environments that keep it elsewhere than in ``env.unwrapped.state``.
        get_state: ``get_state(env)``, likewise.
        terminal: states ``[n, d]`` to whether they are terminal ``[n]``; known for the environments named above.
        rng: for the random play behind estimated bounds, and the states at which physics is compared.

    Example:
        >>> car = certirl.gym.simulator("MountainCar-v0")
        >>> print(car)
        MountainCar: 3 actions on [-1.2, 0.6] × [-0.07, 0.07], vectorised
    """
    made = _opened(env)
    inner, read = unwrapped(made), get_state or read_state
    controls = controls_of(made.action_space, actions)
    # With hooks of its own an environment has coordinates of its own.
    known = None if terminal or get_state or set_state else physics_of(inner)
    stepped = Stepped(inner, read, set_state or write_state, terminal, ())
    if known is not None:
        stepped = replace(stepped, rule=known.terminal, bounds=known.bounds, periodic=known.periodic)
    else:
        stepped = replace(stepped, bounds=_bounds(made, read) if domain is None else as_domain(domain))
    generator = as_generator(rng, "gym.simulator")
    begin(inner, seed=0)
    box, notes = _box(domain, stepped, controls, generator)
    axes = as_axes(stepped.periodic if periodic is None else periodic, len(box))
    trusted: Physics = stepped
    if known is not None and _agrees(known, stepped, controls, box, generator):
        trusted = known
    elif known is not None:
        notes.append("its step is not that of the environment it is made from, so that it is stepped row by row")
    name = type(inner).__name__.removesuffix("Env")
    made_of = EnvSimulator(name, trusted, controls, box, axes, _deviations(noise, box))
    notes += _stopped(made_of, generator)
    return replace(made_of, notes=tuple(notes), random=_is_random(made_of, generator))


def made(name: str) -> Any:
    """The environment of this name; one that there is not is refused with a sentence."""
    import gymnasium

    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise ValueError(f"no environment can be made of {shown(name)}: {printable(str(error))[:200]}") from None


def _opened(env: Any) -> Any:
    """The environment by its name, or a copy of one; itself if it cannot be copied."""
    if isinstance(env, str):
        return made(env)
    layer = as_environment(env)
    while layer is not unwrapped(env) and hasattr(layer, "env"):
        if type(layer).__name__ not in HARMLESS:
            raise ValueError(
                f"{type(layer).__name__} may change what a step does, and a simulator asks the environment inside: "
                "pass env.unwrapped, with actions as it takes them"
            )
        layer = layer.env
    return copied(env, 1)[0]


def copied(env: Any, count: int) -> list[Any]:
    """Copies of an environment; only itself if it holds windows, sockets or compiled engines and cannot be copied."""
    try:
        return [copy.deepcopy(env) for _ in range(count)]
    except (TypeError, AttributeError, RuntimeError):
        return [env]


def _bounds(env: Any, read: Reader) -> Bounds:
    """The bounds of the observations, where these are the state."""
    observation, state = begin(env, seed=0), state_of(env, read)
    bounds = space_bounds(env.observation_space, len(state))
    if not np.allclose(np.ravel(observation), state, rtol=1e-5, atol=1e-6):
        raise ValueError(
            f"the state {state.tolist()} of {type(unwrapped(env)).__name__} is not what is observed, "
            f"{np.ravel(observation).tolist()}: pass domain=((low, high), …) of the state"
        )
    return bounds


def _box(domain: Any, stepped: Stepped, controls: Sequence[Any], rng: np.random.Generator) -> tuple[Box, list[str]]:
    """The declared domain or the environment's bounds; the range of random play where it has none."""
    if domain is not None:
        box, size = as_domain(domain), len(state_of(stepped.env, stepped.read))
        if len(box) != size:
            raise ValueError(f"the state has {size} coordinates but the domain {box.words} does not")
        return box, []
    bounds = np.array(stepped.bounds)
    free = np.flatnonzero(~np.isfinite(bounds).all(axis=1))
    if not free.size:
        return as_domain(bounds), []
    largest = _WIDER * _largest_coordinates(stepped, controls, rng)[:, None]  # even around zero, as most such boxes
    box = as_domain(np.where(np.isfinite(bounds), bounds, largest * [-1, 1]))
    ranges = ", ".join(f"coordinate {axis} in [{box[axis][0]:.4g}, {box[axis][1]:.4g}]" for axis in free)
    return box, [f"bounds estimated from {_TRIAL_EPISODES} episodes of random play: {ranges}; domain=… sets them"]


def _largest_coordinates(stepped: Stepped, controls: Sequence[Any], rng: np.random.Generator) -> Array:
    """The largest absolute coordinates ``[d]`` of the states of random play."""
    env, largest = stepped.env, np.zeros(())
    for _ in range(_TRIAL_EPISODES):
        begin(env, seed=int(rng.integers(2**31)))
        for _ in range(_TRIAL_STEPS):
            _, _, terminated, truncated = step(env, controls[int(rng.integers(len(controls)))])
            largest = np.maximum(largest, np.abs(state_of(env, stepped.read)))
            if terminated or truncated:
                break
    return largest


def _deviations(noise: Any, box: Box) -> tuple[float, ...]:
    """Standard deviations ``[d]`` of a noise in units of the widths."""
    shares = as_reals(noise, "noise").astype(np.float64)
    if shares.shape not in {(), (len(box),)} or not np.isfinite(shares).all() or (shares < 0).any():
        raise ValueError(f"noise must be a share ≥ 0 of the widths, one number or {len(box)} of them, got {noise!r}")
    return tuple((shares * np.diff(np.array(box), axis=1)[:, 0]).tolist())


def _agrees(physics: Physics, stepped: Stepped, controls: Sequence[Any], box: Box, rng: np.random.Generator) -> bool:
    """Whether vectorised physics does at random states what the environment's own step does."""
    states = box.uniform(PROBES, rng)
    states = states[~physics.terminal(states)]
    width = np.diff(np.array(box), axis=1)[:, 0]
    for control in controls:
        for state, after, reward in zip(states, *physics.step(states, control), strict=True):
            moved, paid, terminated = stepped.move(state.copy(), control)
            near = (np.abs(moved - after) <= AGREEMENT * width).all() and abs(paid - reward) <= AGREEMENT
            if not near or terminated != bool(physics.terminal(moved[None])[0]):
                return False
    return True


def _is_random(made: EnvSimulator, rng: np.random.Generator) -> bool:
    """Whether the environment's own step can lead from one state to different next states."""
    if made.thread_safe:
        return False
    states = made.domain.uniform(16, rng)
    for action in range(made.n_actions):
        first, second = (made.step(states, action, stream)[0] for stream in rng.spawn(2))
        if not np.array_equal(first, second):
            return True
    return False


def _stopped(made: EnvSimulator, rng: np.random.Generator) -> list[str]:
    """Sentences on the share of next states that leave the box, from uniform states."""
    states = made.domain.uniform(4096 if made.thread_safe else 128, rng)
    states = states[~made.terminal(states)]
    low, high = made.domain.ends
    beyond = np.zeros(len(low))
    for control in made.controls if len(states) else ():
        moved, _ = made.physics.step(states, control, rng)
        outside = (moved < low - 1e-9 * (high - low)) | (moved > high + 1e-9 * (high - low))
        terminal = made.physics.terminal(made.domain.moved_into(moved, made.periodic))
        lost = made.physics.terminal(moved) & ~terminal
        if lost.any():
            raise ValueError(
                f"the domain {made.domain.words} has no room for terminal states such as "
                f"{moved[lost.argmax()].tolist()}: put on its edge it would be no longer terminal; widen the domain"
            )
        beyond += (outside & ~terminal[:, None]).mean(axis=0) / made.n_actions
    return [
        f"{share:.1%} of next states leave the box in coordinate {axis} and are stopped at its edge"
        for axis, share in enumerate(beyond)
        if share > 0 and axis not in made.periodic
    ]


# Actions, states and steps of an environment -------------------------------------------------------------------------


def controls_of(space: Any, actions: int | Sequence[Any] | None) -> tuple[Any, ...]:
    """The control for each action: all of a Discrete space, chosen values of a Box."""
    kind = type(space).__name__
    if kind == "Discrete":
        first, every = int(getattr(space, "start", 0)), int(space.n)
        if actions is None:
            return tuple(range(first, first + every))
        if isinstance(actions, int):
            actions = range(as_count(actions, "actions", most=every))
        chosen = as_listed(actions, "actions")
        if not chosen or any(not isinstance(a, int | np.integer) or not first <= a < first + every for a in chosen):
            raise ValueError(f"actions must be some of {first} … {first + every - 1}, got {actions!r}")
        return tuple(int(action) for action in chosen)
    if kind != "Box":
        raise ValueError(
            f"actions must come from a Discrete space, or from a Box to be cut into levels; this is {space!r}: "
            "wrap the environment so that its actions are Discrete"
        )
    if actions is None:
        some = by_door("choose some, say actions=[-2, 0, 2] or actions=3", "write --actions 3, say")
        raise ValueError(f"{space!r} has a continuum of actions: {some}")
    levels: Any = actions
    if isinstance(actions, int):
        count = as_count(actions, "actions", most=MOST_LEVELS)
        if space.shape != (1,) or count < 2 or not np.isfinite([space.low, space.high]).all():
            raise ValueError(f"{count} levels of {space!r}: list the actions themselves instead, each of {space.shape}")
        levels = np.linspace(space.low[0], space.high[0], count)  # the ends included
    controls = []
    for action in as_listed(levels, "actions"):
        control = as_array(action, "actions").astype(space.dtype)
        if control.size != int(np.prod(space.shape)) or not space.contains(control.reshape(space.shape)):
            raise ValueError(f"{action!r} is no action of {space!r}")
        controls.append(control.reshape(space.shape))
    return tuple(controls)


def as_environment(env: Any) -> Any:
    """An environment, or the one of a name."""
    if isinstance(env, str):
        return made(env)
    if not hasattr(env, "action_space"):
        raise TypeError(f"{shown(env)} is no environment: it has no action_space")
    return env


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
    with users("get_state", read):
        answer = read(env)
    what = f"the state of {type(unwrapped(env)).__name__}"
    state = as_reals(answer, what).astype(np.float64)
    if state.ndim != 1 or not np.isfinite(state).all():
        raise ValueError(f"{what} must be finite numbers [d], got {shown(answer)}")
    return state


def begin(env: Any, *, seed: int) -> Any:
    """Begin an episode: the first observation."""
    with users(f"{type(unwrapped(env)).__name__}.reset"):
        answer = env.reset(seed=seed)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ValueError(f"reset must return an observation and a dictionary, as in gymnasium, got {shown(answer)}")
    return answer[0]


def step(env: Any, control: Any) -> tuple[Any, float, bool, bool]:
    """Take a step: the observation, the reward, and whether the episode is terminated, or truncated."""
    with users(f"{type(unwrapped(env)).__name__}.step"):
        answer = env.step(control)
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise ValueError(
            "step must return observation, reward, terminated, truncated and a dictionary, as in gymnasium, got "
            f"{shown(answer)}"
        )
    observation, reward, terminated, truncated, _ = answer
    paid = as_reals(reward, "the reward of a step")
    if paid.size != 1:
        raise ValueError(f"the reward of a step must be one number, got {shown(reward)}")
    return observation, float(paid.reshape(-1)[0]), bool(terminated), bool(truncated)


def state_reader(env: Any, get_state: Reader | None) -> Callable[[Any], Array]:
    """A function that reads an environment's state ``[d]``, known angles wrapped."""
    physics = physics_of(unwrapped(env)) if get_state is None else None
    if physics is None or not physics.periodic:
        return lambda which: state_of(which, get_state or read_state)
    low, high = np.array(physics.bounds).T
    box = Box(zip(np.maximum(low, -1e300).tolist(), np.minimum(high, 1e300).tolist(), strict=True))
    return lambda which: box.moved_into(state_of(which, read_state)[None], physics.periodic)[0]


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
    unbounded = np.abs([low, high]) >= np.finfo(np.float32).max / 2
    low, high = np.where(unbounded[0], -np.inf, low), np.where(unbounded[1], np.inf, high)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))
