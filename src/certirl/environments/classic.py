"""Physics of the classic-control environments, vectorised over states.

It is compared with the environment's own ``step`` before use. The constants are read from the environment, so that one
with another gravity has other physics. An environment whose own step disagrees, say a subclass with wind, is stepped
row by row instead.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from certirl.ground.domain import Array

Bounds = tuple[tuple[float, float], ...]


class Physics(Protocol):
    """Dynamics of an environment in state coordinates; states are rows ``[n, d]``."""

    @property
    def periodic(self) -> tuple[int, ...]:
        """Periodic coordinates."""
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
        """Next states ``[n, d]`` and own rewards ``[n]`` of one control from live states."""
        ...

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """Which states are terminal ``[n]``."""
        ...


@dataclass(frozen=True)
class MountainCar:
    """Position and velocity of a car in a valley; the goal is on the right hill."""

    force: float
    gravity: float
    max_speed: float
    min_position: float
    max_position: float
    goal_position: float
    goal_velocity: float
    periodic: ClassVar[tuple[int, ...]] = ()
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

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """At the goal, and not rolling back."""
        return (states[:, 0] >= self.goal_position) & (states[:, 1] >= self.goal_velocity)


@dataclass(frozen=True)
class Pendulum:
    """Angle θ (0 is upright) and angular velocity; cos θ and sin θ are observed."""

    g: float
    m: float
    l: float  # noqa: E741  # the environment's name of the length
    dt: float
    max_speed: float
    max_torque: float
    periodic: ClassVar[tuple[int, ...]] = (0,)
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

    def terminal(self, states: Array) -> NDArray[np.bool_]:
        """None."""
        return np.zeros(len(states), dtype=bool)


@dataclass(frozen=True)
class CartPole:
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


_PHYSICS: dict[str, Any] = {"MountainCarEnv": MountainCar, "PendulumEnv": Pendulum, "CartPoleEnv": CartPole}


def physics_of(env: Any) -> Physics | None:
    """Physics of an unwrapped environment, by the name of its class or of a base class.

    Fields have the names that the environment's attributes have; one of another class of that name lacks some of them.
    """
    names = [kind.__name__ for kind in type(env).__mro__ if kind.__name__ in _PHYSICS]
    if not names:
        return None
    kind = _PHYSICS[names[0]]
    constants = {field.name: getattr(env, field.name) for field in fields(kind) if hasattr(env, field.name)}
    try:
        physics: Physics = kind(**constants)
    except TypeError:  # a constant is missing
        return None
    return physics
