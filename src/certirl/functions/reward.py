"""A reward one can call: a basis and its coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.functions.bases import Basis
from certirl.functions.cells import Cells, expanded
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Domain, as_states, describe, freeze, like_input
from certirl.ground.doors import alone, as_reals, lend, shown

RewardLike = Callable[[Array], Any]


def values_of(reward: RewardLike, states: Array, *, name: str = "the reward") -> Array:
    """R at states ``[n, d]``, as finite numbers ``[n]``: the one place where a reward function is called.

    The function receives a copy of the states, which it may change, and its answer is copied.

    Args:
        reward: any function of states.
        states: where.
        name: of the function, for complaints.
    """
    with alone(reward):
        answer = as_reals(reward(lend(states)), f"what {name} returns", truth=True)
    if answer.shape not in {(len(states),), (len(states), 1)} and not answer.size == len(states) == 1:
        raise ValueError(
            f"{name} is asked about all states at once: for {len(states)} states it must return {len(states)} numbers, "
            f"got shape {list(answer.shape)}"
        )
    values = answer.reshape(len(states)).astype(np.float64)
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        place = ", ".join(f"{x:.6g}" for x in np.asarray(states[row], dtype=float).ravel())
        raise ValueError(f"{name} must be finite at every state of the domain, but it is {values[row]} at s = {place}")
    return values


@archive.record
@dataclass(frozen=True, eq=False)
class Reward:
    """``R(s) = Σ α_i φ_i(s)``, callable on a state or an array of states.

    Attributes:
        basis: the functions φ.
        coefficients: α ``[k]``, read-only.
    """

    thread_safe: ClassVar[bool] = True
    basis: Basis
    coefficients: Array

    def __post_init__(self) -> None:
        if not isinstance(self.basis, Basis):
            raise TypeError(f"the basis of a reward must be one such as certirl.Legendre(11), got {shown(self.basis)}")
        coefficients = as_reals(self.coefficients, "the coefficients of a reward").astype(np.float64)
        if coefficients.shape != (self.basis.size,):
            raise ValueError(f"{self.basis} needs {self.basis.size} coefficients, got shape {list(coefficients.shape)}")
        if not np.isfinite(coefficients).all():
            raise ValueError("the coefficients of a reward must be finite")
        coefficients.flags.writeable = False
        object.__setattr__(self, "coefficients", coefficients)

    def __call__(self, states: ArrayLike) -> Any:
        """R(s): a float for one state, ``[n]`` for many. States must lie in the domain."""
        rows = as_states(states, self.basis.domain)
        return like_input(self.basis.values(rows) @ self.coefficients, states, self.basis.dimension)

    def derivative(self, states: ArrayLike, axis: int = 0) -> Any:
        """∂R/∂s along one coordinate, in the same shapes."""
        rows = as_states(states, self.basis.domain)
        return like_input(self.basis.derivative(rows, axis) @ self.coefficients, states, self.basis.dimension)

    @property
    def domain(self) -> Domain:
        """The box of the states."""
        return self.basis.domain

    @property
    def norm(self) -> float:
        """‖α‖₁, the paper's objective."""
        return float(np.abs(self.coefficients).sum())

    def __str__(self) -> str:
        return f"{self.basis} on {describe(self.basis.domain)}, ‖α‖₁ = {self.norm:.4g}"


@archive.record
@dataclass(frozen=True, eq=False)
class StateFunction:
    """``f(s) = Σ c_i φ_i(s)``, and 0 in terminal states: a learned reward, or its value.

    Attributes:
        basis: the functions.
        coefficients: ``[k]``.
        ended: states ``[n, d]`` to whether they are terminal ``[n]``; None if none is, or if that is not known.
        zero_at_terminal: terminal states are worth 0, also where ``ended`` is not known; True where it is.
    """

    thread_safe: ClassVar[bool] = True
    basis: Basis | Cells
    coefficients: Annotated[Array, Shape("basis.size")]
    ended: Callable[[Array], Any] | None = None
    zero_at_terminal: bool = False

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "zero_at_terminal", self.zero_at_terminal or self.ended is not None)

    @property
    def domain(self) -> Domain:
        """The box of the states."""
        return self.basis.domain

    @property
    def forgotten(self) -> bool:
        """There are terminal states, but the file that this was read from could not keep which."""
        return self.zero_at_terminal and self.ended is None

    def __call__(self, states: ArrayLike) -> Any:
        """A float for one state, ``[n]`` for many. States must lie in the domain."""
        if self.forgotten:
            raise ValueError(
                "a file keeps terminal states only where a few boxes describe them, and these it could not: pass them "
                "again, solution = solution.with_terminal(simulator.terminal)"
            )
        rows = as_states(states, self.basis.domain)
        values = expanded(self.basis, rows, self.coefficients)
        if self.ended is not None:
            values = np.where(self.ended(rows), 0.0, values)
        return like_input(values, states, self.basis.dimension)

    def __str__(self) -> str:
        return f"{self.basis} on {describe(self.domain)}"


def reward_at_terminal(reward: RewardLike, states: Array) -> Array:
    """R at terminal states ``[n]``: 0 for a reward with ``zero_at_terminal``, which one read from a file has, too.

    A file keeps that terminal states are worth nothing, but not which states are terminal: the caller knows that.
    """
    return np.zeros(len(states)) if getattr(reward, "zero_at_terminal", False) else values_of(reward, states)


def known_expert(reward: Any, expert: Any) -> Any:
    """The expert as given, or that of a solution; None if there is only a reward."""
    if expert is None and getattr(reward, "expert", 0) is None:
        raise ValueError("a solution of an expert that depends on the state does not keep the expert: pass expert=…")
    return getattr(reward, "expert", None) if expert is None else expert


def unpack(reward: Any, discount: float | None, expert: int | None) -> tuple[RewardLike, float | None, int]:
    """The reward as a function, γ and π: from a solution, or anything that carries its reward, where not given."""
    if hasattr(reward, "reward"):
        if reward.reward is None:
            raise ValueError(f"there is no reward to check: {reward.reason}")
        discount = getattr(reward, "discount", None) if discount is None else discount
        expert = getattr(reward, "expert", None) if expert is None else expert
        reward = reward.reward
    if not callable(reward):
        raise TypeError(f"the reward must be a function of states, a Reward or a Solution, got {type(reward).__name__}")
    return reward, discount, 0 if expert is None else expert
