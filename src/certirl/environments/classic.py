"""The classic-control environments' physics for many states at once; `gym` checks each against its `step` before use.

The constants are read from the environment, so that one with another gravity is another physics. What is written here
is never trusted: an environment whose own step disagrees, say a subclass with wind, is stepped row by row instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array

Bounds = tuple[tuple[float, float], ...]


class Physics(Protocol):
    """What an environment does in state coordinates, for states ``[n, d]`` that are not terminal."""

    @property
    def periodic(self) -> tuple[int, ...]:
        """Coordinates that go around."""
        ...

    @property
    def thread_safe(self) -> bool:
        """Vectorised, and a function of its arguments alone."""
        ...

    @property
    def bounds(self) -> Bounds:
        """One ``(low, high)`` per coordinate; infinite where the environment sets no bound."""
        ...

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """The next states ``[n, d]`` and the environment's own rewards ``[n]`` of one control for all states."""
        ...

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states end an episode ``[n]``."""
        ...


@dataclass(frozen=True)
class MountainCar:
    """Position and velocity of a car in a valley; the goal is on the right hill."""

    force: float
    gravity: float
    speed: float
    left: float
    right: float
    goal: float
    goal_velocity: float
    periodic: ClassVar[tuple[int, ...]] = ()
    thread_safe: ClassVar[bool] = True

    @classmethod
    def of(cls, env: Any) -> MountainCar:
        """With the constants of an environment."""
        return cls(
            env.force,
            env.gravity,
            env.max_speed,
            env.min_position,
            env.max_position,
            env.goal_position,
            env.goal_velocity,
        )

    @property
    def bounds(self) -> Bounds:
        """Those of the observations."""
        return ((self.left, self.right), (-self.speed, self.speed))

    def step(self, states: Array, control: int, rng: Any = None) -> tuple[Array, Array]:
        """Gravity and the motor; the left wall stops the car."""
        position, velocity = states.T
        velocity = velocity + ((control - 1) * self.force + np.cos(3 * position) * (-self.gravity))
        velocity = np.clip(velocity, -self.speed, self.speed)
        position = np.clip(position + velocity, self.left, self.right)
        velocity = np.where((position == self.left) & (velocity < 0), 0.0, velocity)
        return np.column_stack([position, velocity]), np.full(len(states), -1.0)

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """At the goal, and not rolling back."""
        return (states[:, 0] >= self.goal) & (states[:, 1] >= self.goal_velocity)


@dataclass(frozen=True)
class Pendulum:
    """Angle θ (0 is upright) and angular velocity; the observation holds cos θ and sin θ instead of θ."""

    gravity: float
    mass: float
    length: float
    dt: float
    speed: float
    torque: float
    periodic: ClassVar[tuple[int, ...]] = (0,)
    thread_safe: ClassVar[bool] = True

    @classmethod
    def of(cls, env: Any) -> Pendulum:
        """With the constants of an environment."""
        return cls(env.g, env.m, env.l, env.dt, env.max_speed, env.max_torque)

    @property
    def bounds(self) -> Bounds:
        """A full turn, and the largest speed."""
        return ((-np.pi, np.pi), (-self.speed, self.speed))

    def step(self, states: Array, control: Any, rng: Any = None) -> tuple[Array, Array]:
        """Gravity and a torque; the angle is not wrapped here."""
        angle, speed = states.T
        torque = np.clip(np.ravel(control)[0], -self.torque, self.torque)
        cost = (((angle + np.pi) % (2 * np.pi)) - np.pi) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
        pull = 3 * self.gravity / (2 * self.length) * np.sin(angle) + 3.0 / (self.mass * self.length**2) * torque
        speed = np.clip(speed + pull * self.dt, -self.speed, self.speed)
        return np.column_stack([angle + speed * self.dt, speed]), -cost

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Never."""
        return np.zeros(len(states), dtype=bool)


@dataclass(frozen=True)
class CartPole:
    """Position and velocity of a cart, angle and angular velocity of the pole on it."""

    gravity: float
    masspole: float
    total_mass: float
    length: float
    polemass_length: float
    force: float
    tau: float
    euler: bool
    widest: float
    steepest: float
    sutton_barto: bool
    periodic: ClassVar[tuple[int, ...]] = ()
    thread_safe: ClassVar[bool] = True

    # The box reaches a little beyond the thresholds: states that lie there are terminal, and must lie somewhere.
    BEYOND: ClassVar[float] = 1.1

    @classmethod
    def of(cls, env: Any) -> CartPole:
        """With the constants of an environment."""
        return cls(
            env.gravity,
            env.masspole,
            env.total_mass,
            env.length,
            env.polemass_length,
            env.force_mag,
            env.tau,
            env.kinematics_integrator == "euler",
            env.x_threshold,
            env.theta_threshold_radians,
            bool(getattr(env, "_sutton_barto_reward", False)),
        )

    @property
    def bounds(self) -> Bounds:
        """A tenth beyond the thresholds; nothing bounds the velocities."""
        x, angle, free = self.BEYOND * self.widest, self.BEYOND * self.steepest, (-np.inf, np.inf)
        return ((-x, x), free, (-angle, angle), free)

    def step(self, states: Array, control: int, rng: Any = None) -> tuple[Array, Array]:
        """One push from the left or from the right."""
        x, v, angle, spin = states.T
        push = self.force if control == 1 else -self.force
        cos, sin = np.cos(angle), np.sin(angle)
        temp = (push + self.polemass_length * spin**2 * sin) / self.total_mass
        lever = self.length * (4.0 / 3.0 - self.masspole * cos**2 / self.total_mass)
        torque = (self.gravity * sin - cos * temp) / lever
        pull = temp - self.polemass_length * torque * cos / self.total_mass
        if self.euler:
            after = [x + self.tau * v, v + self.tau * pull, angle + self.tau * spin, spin + self.tau * torque]
        else:
            v, spin = v + self.tau * pull, spin + self.tau * torque
            after = [x + self.tau * v, v, angle + self.tau * spin, spin]
        next_states = np.column_stack(after)
        fallen = self.terminal(next_states)
        return next_states, -fallen.astype(float) if self.sutton_barto else np.ones(len(states))

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """The cart is out of the track, or the pole has fallen."""
        return (np.abs(states[:, 0]) > self.widest) | (np.abs(states[:, 2]) > self.steepest)


def physics_of(env: Any) -> Physics | None:
    """The physics written here for an environment (unwrapped), by the name of its class or of one it is made from."""
    known = {"MountainCarEnv": MountainCar, "PendulumEnv": Pendulum, "CartPoleEnv": CartPole}
    for kind in type(env).__mro__:
        if kind.__name__ in known:
            try:
                return known[kind.__name__].of(env)  # type: ignore[attr-defined]
            except AttributeError:  # another class of that name
                return None
    return None
