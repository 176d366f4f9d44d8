"""A soft expert with known truth: exact soft value iteration on a fine grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.transitions import Transitions
from certirl.ground.domain import Array, Box, as_domain, as_rows
from certirl.ground.doors import as_count
from certirl.ground.records import Record

_NODES = 801  # of the grid, between which values are linear
_ROUNDS = 20_000  # of value iteration


@dataclass(frozen=True)
class SoftWalk(Record):
    """A walk on [−1, 1] that a soft expert holds near a target: R(s, a) = −2(s − target)² − cost_a.

    The next state is pull·s + drift_a with Gaussian noise, which beyond the ends is drawn again or, clipped, left at
    the end. Actions have probabilities proportional to exp Q_a(s).

    Attributes:
        discount: γ.
        target: where the reward is highest.
        pull: what is left of the state in a step.
        drifts: what each action adds.
        costs: of each action.
        std: of the noise.
        clipped: the noise leaves the state at the end that it would cross.

    Example:
        >>> walk = certirl.problems.soft_walk()
        >>> walk.reward([0.8, 0.8], [0, 2]).round(3), walk.chances([0.9]).round(2)
        (array([-0.5 , -0.75]), array([[0.38, 0.38, 0.24]]))
    """

    discount: float = 0.9
    target: float = 0.3
    pull: float = 0.9
    drifts: tuple[float, ...] = (0.0, -0.3, 0.3)
    costs: tuple[float, ...] = (0.0, 0.15, 0.25)
    std: float = 0.25
    clipped: bool = False
    thread_safe: ClassVar[bool] = True

    @property
    def domain(self) -> Box:
        """The interval of states."""
        return as_domain((-1.0, 1.0))

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.drifts)

    def reward(self, states: ArrayLike, action: Any) -> Array:
        """R(s, a) at states ``[n]`` or ``[n, 1]``, for one action or one of each state ``[n]``.

        Example:
            >>> walk.reward([0.3], 1)
            array([-0.15])
        """
        s = as_rows(states, 1)[:, 0]
        return np.asarray(-2 * (s - self.target) ** 2 - np.asarray(self.costs)[action])

    def value(self, states: ArrayLike) -> Array:
        """The expert's value V = log Σ exp Q_a, rewards of its noise included ``[n]``.

        Example:
            >>> bool(walk.value([0.3]) > walk.value([-1.0]))
            True
        """
        return np.asarray(np.log(np.exp(self._utilities(states)).sum(axis=1)))

    def chances(self, states: ArrayLike) -> Array:
        """The probability of each action ``[n, A]``.

        Example:
            >>> walk.chances([-1.0, 1.0]).argmax(axis=1).tolist()
            [2, 1]
        """
        utilities = self._utilities(states)
        weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, 1]``.

        Example:
            >>> walk.sample(np.zeros((2, 1)), 1, np.random.default_rng(0)).shape
            (2, 1)
        """
        mean = self.pull * np.asarray(states, dtype=float) + self.drifts[action]
        after = mean + self.std * rng.standard_normal(mean.shape)
        if self.clipped:
            return np.clip(after, -1.0, 1.0)
        while (beyond := np.abs(after) > 1).any():
            after[beyond] = mean[beyond] + self.std * rng.standard_normal(int(beyond.sum()))
        return after

    def log(self, *, episodes: int, steps: int, rng: Any) -> Transitions:
        """Episodes of the expert, from states that are drawn evenly.

        Args:
            episodes: how many.
            steps: of each.
            rng: a seed or Generator.

        Example:
            >>> walk.log(episodes=2, steps=3, rng=0)
            <Transitions: 6 of 3 actions on [-1, 1]>
        """
        episodes, steps, rng = as_count(episodes, "episodes"), as_count(steps, "steps"), np.random.default_rng(rng)
        states, rows = rng.uniform(-1, 1, (episodes, 1)), []
        for _ in range(steps):
            actions = (rng.random(episodes)[:, None] > np.cumsum(self.chances(states), axis=1)[:, :-1]).sum(axis=1)
            after = np.empty_like(states)
            for action in range(self.n_actions):
                after[actions == action] = self.sample(states[actions == action], action, rng)
            rows.append((states, actions, after))
            states = after
        start, taken, end = (np.stack(part, axis=1).reshape(-1, *part[0].shape[1:]) for part in zip(*rows, strict=True))
        numbers = np.repeat(np.arange(episodes), steps)
        return Transitions(start, taken, end, self.domain, self.n_actions, episodes=numbers)

    def _utilities(self, states: ArrayLike) -> Array:
        """Q_a ``[n, A]``; (P_aV)(s) is smooth, and linear between nodes."""
        rows, nodes = as_rows(states, 1), np.linspace(-1, 1, _NODES)
        each = enumerate(self._ahead)
        utilities = [
            self.reward(rows, action) + self.discount * np.interp(rows[:, 0], nodes, ahead) for action, ahead in each
        ]
        return np.stack(utilities, axis=1)

    @cached_property
    def _ahead(self) -> Array:
        """P_aV at the nodes ``[A, nodes]``."""
        nodes = np.linspace(-1, 1, _NODES)
        operators = [self._weights(nodes, action) for action in range(self.n_actions)]
        paid, value = [self.reward(nodes, action) for action in range(self.n_actions)], np.zeros(_NODES)
        for _ in range(_ROUNDS):
            utilities = np.stack([r + self.discount * P @ value for r, P in zip(paid, operators, strict=True)])
            top = utilities.max(axis=0)
            better = top + np.log(np.exp(utilities - top).sum(axis=0))
            if np.abs(better - value).max() < 1e-11:
                break
            value = better
        return np.stack([P @ value for P in operators])

    def _weights(self, states: Array, action: int) -> Array:
        """What the values at the nodes count for in (P_aV)(s), V being linear between nodes ``[n, nodes]``."""
        from scipy.special import ndtr

        nodes = np.linspace(-1, 1, _NODES)
        z = (nodes - (self.pull * states + self.drifts[action])[:, None]) / self.std
        below, step = ndtr(z), 2 / (_NODES - 1)
        # ∫Φ up to each node: between two nodes its increase is the mean of a function that rises from 0 to 1.
        integral = self.std * (z * below + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
        rise = np.diff(integral, axis=1) / step  # 1 − the mean weight, up to what is below
        weights = np.zeros((len(states), _NODES))
        weights[:, :-1] += rise - below[:, :-1]
        weights[:, 1:] += below[:, 1:] - rise
        if self.clipped:
            weights[:, 0] += below[:, 0]
            weights[:, -1] += 1 - below[:, -1]
            return weights
        return weights / weights.sum(axis=1, keepdims=True)


def soft_walk(**settings: Any) -> SoftWalk:
    """The walk of a soft expert, with the settings of `SoftWalk`.

    Example:
        >>> certirl.problems.soft_walk(clipped=True).discount
        0.9
    """
    return SoftWalk(**settings)
