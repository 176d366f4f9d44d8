"""Experts who switch on boxes, with known truth: planned, valued and judged on a fine grid of next states.

The truth is computed without any basis of the library. As a function of the state every (P_c f)(s) is smooth, so it is
interpolated between a few nodes; as a function of the next state f may jump wherever the expert switches, so integrals
are sums over a fine grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.functions.boxes import mesh
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, as_rows
from certirl.problems.boxes import BoxProblem

FINE = 300  # next states along each coordinate
_ROUNDS = 100  # of policy iteration
_EDGES = 101  # states along each coordinate, the ends included, where the value is looked at besides
_TIE = 1e-9  # of the value's span: what interpolation may blur


class Truth:
    """The operators of a problem on a fine grid of next states.

    Attributes:
        problem: the dynamics.
        states: the grid ``[q, d]``.
        nodes: along each coordinate, between which (P_c f)(s) is interpolated; exact for polynomials of lower degree.
    """

    def __init__(self, problem: BoxProblem, nodes: int, fine: int = FINE) -> None:
        self.problem, self.nodes = problem, nodes
        axes = [low + (high - low) * (np.arange(fine) + 0.5) / fine for low, high in problem.domain]
        self.states = mesh(axes)
        places = np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
        self._places = places
        self._weights = (-1.0) ** np.arange(nodes) * np.sin(np.pi * (np.arange(nodes) + 0.5) / nodes)
        at = mesh([(low + high) / 2 + (high - low) / 2 * places for low, high in problem.domain])
        kernels = [problem.density(self.states, at, action) for action in range(problem.n_actions)]
        # A midpoint rule of a smooth density is off by a little; what it integrates must be a law all the same.
        self.kernels = np.array([kernel / kernel.sum(axis=1, keepdims=True) for kernel in kernels])
        self.at_states = self.between(self.states)

    def between(self, states: Array) -> Array:
        """The weights of the nodes at states ``[n, I]``: Lagrange's, coordinate by coordinate."""
        total = np.ones((len(states), 1))
        for (low, high), own in zip(self.problem.domain, as_rows(states, len(self.problem.domain)).T, strict=True):
            gap = (2 * own - low - high)[:, None] / (high - low) - self._places
            hit = np.abs(gap) < 1e-14
            part = self._weights / np.where(hit, 1.0, gap)
            part = np.where(hit.any(axis=1, keepdims=True), hit, part)
            part = part / part.sum(axis=1, keepdims=True)
            total = (total[:, :, None] * part[:, None, :]).reshape(len(states), -1)
        return total

    def outcomes(self, reward: RewardLike, actions: NDArray[np.intp], *, discount: float) -> tuple[Array, Array]:
        """(P_cV) at the nodes ``[A, I]`` and V on the grid ``[q]``, V the value of these actions on the grid."""
        A, gained = len(self.kernels), values_of(reward, self.states)
        size = self.at_states.shape[1]
        system = np.eye(A * size).reshape(A, size, A, size)
        for d in range(A):
            own = actions == d
            system[:, :, d] -= discount * self.kernels[:, :, own] @ self.at_states[own]
        found = np.linalg.solve(system.reshape(A * size, -1), (self.kernels @ gained).ravel()).reshape(A, size)
        ahead = self.at_states @ found.T
        return found, gained + discount * ahead[np.arange(len(ahead)), actions]

    def plan(self, reward: RewardLike, *, discount: float) -> tuple[Array, Array]:
        """The best policy's outcomes at the nodes ``[A, I]`` and its value on the grid, by policy iteration."""
        actions = np.zeros(len(self.states), dtype=np.intp)
        for _ in range(_ROUNDS):
            found, value = self.outcomes(reward, actions, discount=discount)
            ahead = self.at_states @ found.T
            own = ahead[np.arange(len(ahead)), actions]
            better = ahead.max(axis=1) > own + _TIE * np.ptp(value)
            if not better.any():
                break
            actions = np.where(better, ahead.argmax(axis=1), actions)
        return found, value


@dataclass(frozen=True, eq=False)
class Greedy:
    """The expert who takes what is best one step ahead, by outcomes at nodes ``[A, I]``, moved by ``shift`` ``[d]``."""

    truth: Truth
    outcomes: Array
    shift: Any = 0.0
    thread_safe: ClassVar[bool] = True

    def __call__(self, states: Array) -> NDArray[np.intp]:
        """The action at each state ``[n]``."""
        low, high = np.array(self.truth.problem.domain).T
        rows = np.clip(as_rows(states, len(low)) + self.shift, low, high)
        blocks = [rows[start : start + 8192] for start in range(0, len(rows), 8192)]
        return np.concatenate([(self.truth.between(block) @ self.outcomes.T).argmax(axis=1) for block in blocks])


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is true of an expert and a reward.

    Attributes:
        ahead: (P_cV)(s) on the grid, V the expert's value ``[q, A]``.
        own: what the expert does there ``[q]``.
        best: what the best policy does there ``[q]``.
        regret: the largest value lost by following the expert, in units of the reward.
        span: of the expert's value, the edges of the box included.
    """

    ahead: Array
    own: NDArray[np.intp]
    best: NDArray[np.intp]
    regret: float
    span: float

    @property
    def margins(self) -> Array:
        """By how much the expert's action beats the best of the others ``[q]``."""
        rows = np.arange(len(self.own))
        others = self.ahead.copy()
        others[rows, self.own] = -np.inf
        return self.ahead[rows, self.own] - others.max(axis=1)


def judge(truth: Truth, reward: RewardLike, expert: Any, *, discount: float) -> Judgement:
    """Value the expert, plan for the reward, and compare."""
    own = np.asarray(expert(truth.states), dtype=np.intp)
    found, value = truth.outcomes(reward, own, discount=discount)
    best, best_value = truth.plan(reward, discount=discount)
    chosen = (truth.at_states @ best.T).argmax(axis=1)
    edges = mesh([np.linspace(low, high, _EDGES) for low, high in truth.problem.domain])
    ahead, there = (truth.between(edges) @ found.T)[np.arange(len(edges)), expert(edges)], np.asarray(reward(edges))
    closed = there.reshape(len(edges)) + discount * ahead
    span = max(closed.max(), value.max()) - min(closed.min(), value.min())
    return Judgement(truth.at_states @ found.T, own, chosen, float((best_value - value).max()), float(span))
