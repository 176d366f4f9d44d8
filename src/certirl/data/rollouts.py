"""Rollouts: many walks at once, in a simulator or in copies of an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.data.simulator import Simulator, ask, terminal_of
from certirl.ground.domain import Array, as_domain


class Step(NamedTuple):
    """One step of the walks that have not ended.

    Attributes:
        rows: the numbers of these walks ``[m]``.
        states: where they are ``[m, d]``.
        actions: what they take ``[m]``.
        next_states: where that leads ``[m, d]``.
        over: which of them end there ``[m]``.
    """

    rows: NDArray[np.intp]
    states: Array
    actions: NDArray[np.intp]
    next_states: Array
    over: NDArray[np.bool_]


class World(Protocol):
    """Where walks take place."""

    def step(self, rows: NDArray[np.intp], states: Array, policy: Policy) -> Step:
        """One step of some walks under a policy."""
        ...


def walk(
    world: World, states: Array, policies: Iterable[Policy], rows: NDArray[np.intp] | None = None
) -> Iterator[Step]:
    """The steps of one walk from each state, until all walks or all policies have ended.

    Args:
        world: what a step does.
        states: where the walks start ``[n, d]``.
        policies: one for each step.
        rows: the numbers of the walks that start ``[m]``; all if left out.
    """
    rows = np.arange(len(states)) if rows is None else rows
    states = states[rows]
    for policy in policies:
        if not len(rows):
            return
        step = world.step(rows, states, policy)
        yield step
        rows, states = rows[~step.over], step.next_states[~step.over]


class Dynamics:
    """A simulator as a world: terminal states end a walk.

    The simulator is asked about all walks at every step, those that have ended included, and in a step of several
    actions about all walks for each action, with equal random numbers: the noise that a walk meets depends neither on
    what the others do nor on how long they last. Walks of two policies with equal generators therefore share noise.

    Attributes:
        simulator: the dynamics.
        places: where each walk is ``[n, d]``.
        rng: draws the actions of policies that mix, and the next states.
    """

    def __init__(self, simulator: Simulator, states: Array, rng: np.random.Generator) -> None:
        self.simulator, self.places, self.rng = simulator, np.array(states, dtype=float), rng
        self._domain = as_domain(simulator.domain)

    def step(self, rows: NDArray[np.intp], states: Array, policy: Policy) -> Step:
        """One step of some walks."""
        if policy.constant is not None:
            actions = policy.actions(states)
            next_states = self._asked(policy.constant, self.rng)[rows]
        else:
            actions = choose(policy, states, self.rng.random(len(self.places))[rows])
            next_states, seed = np.empty_like(states), int(self.rng.integers(2**31))
            for action in np.unique(actions).tolist():
                chosen = actions == action
                next_states[chosen] = self._asked(action, np.random.default_rng(seed))[rows[chosen]]
        self.places[rows] = next_states
        return Step(rows, states, actions, next_states, terminal_states(self.simulator, next_states))

    def _asked(self, action: int, rng: np.random.Generator) -> Array:
        return np.asarray(ask(self.simulator, self.places, action, rng, self._domain))


def simulate(
    simulator: Simulator, states: Array, policies: Iterable[Policy], rng: np.random.Generator
) -> Iterator[Step]:
    """Walk in a simulator from all states ``[n, d]`` but terminal ones."""
    world = Dynamics(simulator, states, rng)
    return walk(world, states, policies, np.flatnonzero(~terminal_states(simulator, states)))


def returns(
    simulator: Simulator,
    states: Array,
    policies: Sequence[Policy],
    reward: Callable[[Array, bool], Array],
    *,
    discount: float,
    rng: np.random.Generator,
) -> Array:
    """Σ_{t=1}^T γ^{t−1} R(s_t) of one walk from each state ``[n]``.

    Terminal states are absorbing, and pay R until step T.

    Args:
        simulator: the dynamics.
        states: s_0 of each walk ``[n, d]``.
        policies: one for each of the T steps.
        reward: R, a function of states ``[m, d]`` and of whether these are terminal, to numbers ``[m]``.
        discount: γ.
        rng: see `Dynamics`.
    """
    total, over = np.zeros(len(states)), terminal_states(simulator, states)
    rest = (1 - discount ** np.arange(len(policies), -1, -1)) / (1 - discount)  # 1 + γ + … from step t to step T
    if over.any():
        total[over] = rest[0] * reward(states[over], True)
    for number, step in enumerate(simulate(simulator, states, policies, rng)):
        for terminal, share in ((False, 1.0), (True, rest[number])):
            chosen = step.over == terminal
            if chosen.any():
                total[step.rows[chosen]] += discount**number * share * reward(step.next_states[chosen], terminal)
    return total


def terminal_states(simulator: Simulator, states: Array) -> NDArray[np.bool_]:
    """Which states are terminal ``[n]``: none if the simulator has no such rule."""
    terminal = terminal_of(simulator)
    return np.zeros(len(states), dtype=bool) if terminal is None else terminal(states)


def choose(policy: Policy, states: Array, uniform: Array) -> NDArray[np.intp]:
    """Draw an action for each state ``[n]`` by a uniform number for each."""
    if policy.constant is not None:
        return policy.actions(states)
    return np.asarray((policy.probabilities(states).cumsum(axis=1)[:, :-1] <= uniform[:, None]).sum(axis=1))


def uniform_policy(n_actions: int) -> Policy:
    """The policy that takes every action with the same probability, everywhere."""
    return Policy(n_actions, lambda states: np.full((len(states), n_actions), 1 / n_actions))
