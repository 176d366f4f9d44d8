"""Experts who switch actions, with known truth: a thermostat that heats, rests and cools, planned on a fine grid.

The truth is computed without any basis: integrals over next states by Gauss points between the states where the expert
switches, so that kinks and jumps of the value at these states cost no accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.functions.bases import gauss_legendre
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, as_rows, describe
from certirl.problems.intervals import Problem, Thermostat

_NODES = 32  # Gauss points between two neighbouring panel ends
_PANELS = 6  # equal panels of the domain, cut further where the expert switches


@dataclass(frozen=True)
class Steps:
    """An expert of one coordinate: ``actions[i]`` between the i-th and the next switching state.

    Attributes:
        switches: where the action changes, in order.
        actions: one more than there are switches.
    """

    switches: tuple[float, ...]
    actions: tuple[int, ...]
    thread_safe: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.actions) != len(self.switches) + 1 or list(self.switches) != sorted(self.switches):
            raise ValueError(
                f"an expert with {len(self.switches)} switches, in order, has {len(self.switches) + 1} actions, "
                f"got switches {self.switches} and actions {self.actions}"
            )

    def __call__(self, states: Array) -> NDArray[np.intp]:
        """The action at each state ``[n]``."""
        places = np.searchsorted(np.array(self.switches, dtype=float), as_rows(states, 1)[:, 0], side="right")
        return np.asarray(self.actions, dtype=np.intp)[places]

    def away(self, states: Array) -> Array:
        """How far each state is from the nearest switch ``[n]``; infinite if there is none."""
        rows = as_rows(states, 1)[:, :1]
        return np.abs(rows - np.array(self.switches, dtype=float)).min(axis=1, initial=np.inf)


@dataclass(frozen=True, eq=False)
class SwitchingProblem:
    """Dynamics, a reward, a discount, and the expert who is optimal for them.

    Attributes:
        dynamics: the problem without its reward.
        reward: R, known here, for the library to explain.
        discount: γ.
        expert: optimal under R: the fine-grid solution.
    """

    dynamics: Problem
    reward: RewardLike
    discount: float
    expert: Steps

    def __str__(self) -> str:
        places = ", ".join(f"{s:.4g}" for s in self.expert.switches)
        return f"{self.dynamics.name} on {describe(self.dynamics.domain)}: the expert switches at {places}"


def comfort(
    *,
    target: float = 0.1,
    power: float = 0.4,
    ambient: float = -0.3,
    leak: float = 0.1,
    noise: float = 0.4,
    discount: float = 0.9,
) -> SwitchingProblem:
    """A room on [−1, 1] to be kept near a target: heat when cold (action 0), rest (1), cool when warm (2).

    Args:
        target: R(s) = −(s − target)².
        power: how far one step of heating or cooling moves the temperature.
        ambient: where it drifts by itself.
        leak: how fast.
        noise: standard deviation of a step.
        discount: γ.
    """
    room = Thermostat((power, 0.0, -power), ambient, leak, noise, ((-1.0, 1.0),), "comfort")

    def reward(states: Array) -> Array:
        return np.asarray(-((as_rows(states, 1)[:, 0] - target) ** 2))

    return SwitchingProblem(room, reward, discount, plan(room, reward, discount=discount))


def plan(problem: Problem, reward: RewardLike, *, discount: float) -> Steps:
    """The optimal policy under a reward, on Gauss points, cut in the second round where the first switched."""
    ((low, high),) = problem.domain
    grid, found = np.linspace(low, high, 2001), Steps((), (0,))
    for _ in range(2):
        y, weighted = best_values(problem, reward, discount=discount, cuts=found.switches)
        chosen = _expected(problem, grid, y, weighted).argmax(axis=0)
        at = np.flatnonzero(chosen[1:] != chosen[:-1])
        switches = [_switch(problem, grid[i : i + 2], chosen[i : i + 2], y, weighted) for i in at]
        found = Steps(tuple(switches), (int(chosen[0]), *(int(chosen[i + 1]) for i in at)))
    return found


def best_values(
    problem: Problem, reward: RewardLike, *, discount: float, cuts: tuple[float, ...] = ()
) -> tuple[Array, Array]:
    """The best policy's value by policy iteration: Gauss points between the cuts, and weight times V there."""
    y, w = _quadrature(problem, cuts)
    kernels = np.array([problem.density(y, y, a) * w for a in range(problem.n_actions)])
    gained = values_of(reward, y[:, None])
    policy = np.zeros(len(y), dtype=np.intp)
    for _ in range(200):
        own = kernels[policy, np.arange(len(y))]
        value = np.linalg.solve(np.eye(len(y)) - discount * own, gained)
        ahead = kernels @ value
        # Ties keep their action, so that rounding cannot make the iteration go round in circles.
        gain = ahead.max(axis=0) - ahead[policy, np.arange(len(y))]
        better = gain > 1e-13 * np.abs(value).max()
        if not better.any():
            break
        policy = np.where(better, ahead.argmax(axis=0), policy)
    return y, w * value


def outcomes(problem: Problem, reward: RewardLike, expert: Steps, states: Array, *, discount: float) -> Array:
    """(P_aV)(s) for every action, V the expert's value: ``[A, n]``. Their differences are the D_a of certificates."""
    y, w, value = expert_values(problem, reward, expert, discount=discount)
    return _expected(problem, as_rows(states, 1)[:, 0], y, w * value)


def expert_values(
    problem: Problem, reward: RewardLike, expert: Steps, *, discount: float
) -> tuple[Array, Array, Array]:
    """The expert's value V = (I − γP_π)⁻¹R: Gauss points cut at the switches, their weights, V there."""
    y, w = _quadrature(problem, expert.switches)
    own, chosen = np.empty((len(y), len(y))), expert(y[:, None])
    for action in np.unique(chosen):
        own[chosen == action] = problem.density(y, y[chosen == action], int(action)) * w
    gained = values_of(reward, y[:, None])
    return y, w, np.linalg.solve(np.eye(len(y)) - discount * own, gained)


def regret(problem: Problem, reward: RewardLike, expert: Steps, *, discount: float) -> float:
    """The largest value lost by following the expert and not the best policy, over the span of the expert's value."""
    best = best_values(problem, reward, discount=discount, cuts=plan(problem, reward, discount=discount).switches)
    y, w, value = expert_values(problem, reward, expert, discount=discount)
    lost = discount * (_expected(problem, y, *best).max(axis=0) - _expected(problem, y, y, w * value))
    own = expert(y[:, None])
    return float(lost[own, np.arange(len(y))].max() / np.ptp(value))


def _expected(problem: Problem, states: Array, y: Array, weighted: Array) -> Array:
    return np.array([problem.density(y, states, a) @ weighted for a in range(problem.n_actions)])


def _quadrature(problem: Problem, cuts: tuple[float, ...]) -> tuple[Array, Array]:
    """Gauss points and weights of panels whose ends include the cuts."""
    ((low, high),) = problem.domain
    inside = [cut for cut in cuts if low < cut < high]
    ends = np.unique(np.concatenate([np.linspace(low, high, _PANELS + 1), inside]))
    t, w = gauss_legendre(_NODES)
    middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
    return (middle[:, None] + half[:, None] * t).ravel(), (half[:, None] * w).ravel()


def _switch(problem: Problem, between: Array, actions: Array, y: Array, weighted: Array) -> float:
    """Where the second action becomes better than the first, by bisection."""
    low, high = (float(s) for s in between)
    for _ in range(40):
        middle = (low + high) / 2
        first, second = _expected(problem, np.array([middle]), y, weighted)[actions, 0]
        low, high = (middle, high) if first >= second else (low, middle)
    return (low + high) / 2
