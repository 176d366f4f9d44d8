"""Experts who pay, or are paid, for what they do: two queues with a price of rejection, and a stock of fish.

What an action costs is no reward of the state: the rewards R(s, a) here depend on both. Experts plan on them on a fine
grid, with means over equally likely outcomes for expectations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from certirl.environments.planning import Plan, plan
from certirl.ground.domain import Array, Box, as_domain, as_rows
from certirl.ground.doors import as_number, as_probability
from certirl.ground.records import Record

_OUTCOMES = 24  # equally likely next states of every state, for the expert's plan
_POINTS = {1: 401, 2: 101}  # of its grid along each coordinate


@dataclass(frozen=True)
class Queue(Record):
    """Work that waits before two servers: each step brings a job, which joins one of them or is rejected at a price.

    The size of a job is uniform from half of the mean to one and a half times it. Work that finds no room is lost, at
    the same price for as much as a mean job.

    Attributes:
        price: of a rejection; a unit of work costs 1 for every step that it waits.
        load: the mean size of a job.
        speeds: work that each server does in a step.
        room: the most work that waits in a queue.
        discount: γ.

    Example:
        >>> queue = certirl.problems.queue()
        >>> queue.expert([[0.5, 1.0], [1.0, 0.5], [3.0, 3.0]]).tolist()
        [0, 1, 2]
    """

    price: float = 4.0
    load: float = 0.8
    speeds: tuple[float, float] = (0.5, 0.4)
    room: float = 4.0
    discount: float = 0.9
    thread_safe: ClassVar[bool] = True
    n_actions: ClassVar[int] = 3
    action_names: ClassVar[tuple[str, ...]] = ("join 1", "join 2", "reject")

    def __post_init__(self) -> None:
        as_number(self.price, "price", least=0)
        as_number(self.load, "load", least=0, strict=True)
        as_probability(self.discount, "discount")

    @property
    def domain(self) -> Box:
        """The square of states."""
        return as_domain([(0.0, self.room)] * 2)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, 2]``.

        Example:
            >>> queue.sample(np.array([[1.0, 2.0]]), 2, np.random.default_rng(0))
            array([[0.5, 1.6]])
        """
        return self._after(states, action, 0.5 + rng.random(len(states)))

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, 2]`` for jobs of m equally likely sizes, with their weights ``[m]``.

        Example:
            >>> after, weights = queue.outcomes(np.array([[1.0, 2.0]]), 0)
            >>> after.shape, (weights @ after[:, 0]).round(3)
            ((24, 1, 2), array([1.3, 1.6]))
        """
        sizes = 0.5 + (np.arange(_OUTCOMES) + 0.5) / _OUTCOMES
        return np.stack([self._after(states, action, size) for size in sizes]), np.full(_OUTCOMES, 1 / _OUTCOMES)

    def _after(self, states: Array, action: int, sizes: Array | float) -> Array:
        work = np.array(states, dtype=float)
        if action < 2:
            work[:, action] += self.load * sizes
        return np.clip(work - np.array(self.speeds), 0.0, self.room)

    def reward(self, states: ArrayLike, action: Any, next_states: Any = None) -> Array:
        """R(s, a) at states ``[n, 2]``, for one action or one of each state ``[n]``.

        Example:
            >>> queue.reward([[1.0, 2.0], [1.0, 2.0]], [0, 2])
            array([-3., -7.])
        """
        rows = as_rows(states, 2)
        each = np.broadcast_to(action, len(rows))
        queue = np.minimum(each, 1)
        left = (self.room + np.array(self.speeds)[queue] - rows[np.arange(len(rows)), queue]) / self.load
        beyond = np.where(left > 0.5, np.maximum(1.5 - left, 0.0) ** 2 / 2, 1 - left)  # E(size − left)⁺
        lost = np.where(each == 2, 1.0, beyond)
        return np.asarray(-rows.sum(axis=1) - self.price * lost)

    @cached_property
    def expert(self) -> Plan:
        """The plan on R."""
        return plan(self, discount=self.discount, points=_POINTS[2])


@dataclass(frozen=True)
class Harvest(Record):
    """A stock of fish: fry is released at a price, the stock is left alone, or a share of it is caught and sold.

    What is left grows by a factor exp(growth·(1 − stock)), with log-normal noise.

    Attributes:
        share: of the stock, that is caught; the reward is what is caught.
        fry: that is released.
        price: of the fry.
        growth: of a small stock in a step, as a rate.
        noise: standard deviation of its logarithm.
        discount: γ.

    Example:
        >>> harvest = certirl.problems.harvest()
        >>> harvest.expert([0.2, 1.5]).tolist(), harvest.reward([0.5, 0.5, 0.5], [0, 1, 2])
        ([0, 2], array([-0.1,  0. ,  0.2]))
    """

    share: float = 0.4
    fry: float = 0.15
    price: float = 0.1
    growth: float = 0.5
    noise: float = 0.15
    discount: float = 0.9
    thread_safe: ClassVar[bool] = True
    n_actions: ClassVar[int] = 3
    action_names: ClassVar[tuple[str, ...]] = ("release", "leave", "catch")

    def __post_init__(self) -> None:
        as_number(self.share, "share", least=0, most=1)
        as_number(self.price, "price")
        as_number(self.noise, "noise", least=0)
        as_probability(self.discount, "discount")

    @property
    def domain(self) -> Box:
        """The interval of stocks."""
        return as_domain((0.05, 2.0))

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, 1]``.

        Example:
            >>> harvest.sample(np.array([[1.0]]), 1, np.random.default_rng(0)).shape
            (1, 1)
        """
        return self._after(states, action, rng.standard_normal(np.shape(states)))

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, 1]`` for m equally likely weathers, with their weights ``[m]``.

        Example:
            >>> after, weights = harvest.outcomes(np.array([[1.0]]), 1)
            >>> after.shape, round(float(weights @ after[:, 0, 0]), 2)
            ((24, 1, 1), 1.01)
        """
        from scipy.special import ndtri

        weathers = ndtri((np.arange(_OUTCOMES) + 0.5) / _OUTCOMES)
        return np.stack([self._after(states, action, each) for each in weathers]), np.full(_OUTCOMES, 1 / _OUTCOMES)

    def _after(self, states: Array, action: int, weather: Array | float) -> Array:
        stock = np.array(states, dtype=float)
        left = stock + self.fry if action == 0 else stock * (1 - self.share * (action == 2))
        low, high = self.domain.ends
        return np.clip(left * np.exp(self.growth * (1 - left) + self.noise * weather), low, high)

    def reward(self, states: ArrayLike, action: Any, next_states: Any = None) -> Array:
        """R(s, a) at states ``[n, 1]``, for one action or one of each state ``[n]``.

        Example:
            >>> harvest.reward([0.5], 2)
            array([0.2])
        """
        stock = as_rows(states, 1)[:, 0]
        return np.asarray(
            np.where(np.equal(action, 2), self.share * stock, np.where(np.equal(action, 0), -self.price, 0.0))
        )

    @cached_property
    def expert(self) -> Plan:
        """The plan on R."""
        return plan(self, discount=self.discount, points=_POINTS[1])


def queue(**settings: Any) -> Queue:
    """Join one of two queues, or reject a job at a price (settings: see `Queue`).

    Example:
        >>> certirl.problems.queue(price=2.0).reward([[0.0, 0.0]], 2)
        array([-2.])
    """
    return Queue(**settings)


def harvest(**settings: Any) -> Harvest:
    """A stock of fish to be caught, left alone, or added to at a price (settings: see `Harvest`).

    Example:
        >>> certirl.problems.harvest(share=0.5).reward([1.0], 2)
        array([0.5])
    """
    return Harvest(**settings)
