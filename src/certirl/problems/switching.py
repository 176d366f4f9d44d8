"""Experts who depend on the state, with known truth: planned, valued and compared without any basis of the library.

As a function of the state every (P_a f)(s) is smooth, so it is interpolated between Chebyshev points. As a function of
the next state f may jump wherever the expert switches: on an interval integrals are sums over Gauss points between the
switches, on a box over a fine even grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from certirl.functions.bases import gauss_legendre
from certirl.functions.functions import of_actions
from certirl.functions.reward import RewardLike, values_of
from certirl.ground.domain import Array, as_actions, as_domain, as_rows, mesh
from certirl.ground.doors import as_number, as_probability, call, typed
from certirl.ground.records import Record, internal
from certirl.problems.dynamics import Problem, Thermostat

# By the number of coordinates: points of the state along each, and even next states along each.
NODES = {1: 96, 2: 16}
FINE = {2: 300}
_GAUSS, _PANELS = 32, 6  # on an interval: Gauss points of a panel, equal panels that are cut at the switches
_ROUNDS = 200  # of policy iteration
_TIE = 1e-9  # of the value's span: differences that interpolation may cause
_GRID = 2001  # states of an interval between which switches are looked for
_SWITCHES = 100  # of a policy, at most
_EDGES = {1: 2001, 2: 101}  # states along each coordinate, the ends included, of the span of a value
_ROWS = 8192  # states interpolated at once

Expert = Callable[[Any], Any]


@dataclass(frozen=True)
class Steps(Record):
    """An expert of one coordinate: ``actions[i]`` between the i-th and the next switching state.

    Attributes:
        switches: where the action changes, in order.
        actions: one more than there are switches.

    Example:
        >>> expert = certirl.problems.Steps((0.0, 0.5), (0, 1, 2))
        >>> expert(np.array([-0.5, 0.2, 0.9])).tolist()
        [0, 1, 2]
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
        """The distance of each state to the nearest switch ``[n]``; infinite if there is none.

        Example:
            >>> certirl.problems.Steps((0.0, 0.5), (0, 1, 2)).away(np.array([-0.5, 0.3])).round(6)
            array([0.5, 0.2])
        """
        rows = as_rows(states, 1)
        return np.abs(rows - np.array(self.switches, dtype=float)).min(axis=1, initial=np.inf)


@internal
class Truth(Record):
    """The operators of a problem, to be applied to values that jump between states.

    Attributes:
        problem: the dynamics.
        states, weights: the next states of the integrals ``[q, d]`` and their weights ``[q]``.
        kernels: the probability of each of these from each node ``[A, I, q]``.
    """

    def __init__(
        self, problem: Problem, *, nodes: int | None = None, fine: int | None = None, cuts: Sequence[float] = ()
    ) -> None:
        """Evaluate the densities.

        Args:
            problem: the dynamics.
            nodes: points along each coordinate between which (P_a f)(s) is interpolated; exact for polynomials of lower
                degree. 96 on an interval, 16 in two coordinates if left out.
            fine: next states along each coordinate of a box; 300 in two coordinates if left out.
            cuts: on an interval, where values may jump.
        """
        d = len(problem.domain)
        self.problem = problem
        count = NODES[d] if nodes is None else nodes
        if d == 1:
            self.states, self.weights = _between_cuts(problem, cuts)
        else:
            along = FINE[d] if fine is None else fine
            places = (np.arange(along) + 0.5) / along
            self.states = mesh([low + (high - low) * places for low, high in problem.domain])
            self.weights = np.full(len(self.states), np.prod(problem.domain.width) / len(self.states))
        angles = np.pi * (np.arange(count) + 0.5) / count
        self._places, self._weights = np.cos(angles), (-1.0) ** np.arange(count) * np.sin(angles)
        at = mesh([(low + high) / 2 + (high - low) / 2 * self._places for low, high in problem.domain])
        kernels = [problem.density(self.states, at, action) * self.weights for action in range(problem.n_actions)]
        # The sum of a smooth density over an even grid is not quite one; transition probabilities must be.
        self.kernels = np.array([kernel / kernel.sum(axis=1, keepdims=True) for kernel in kernels])
        self._at_states = self.interpolation(self.states)

    def interpolation(self, states: Array) -> Array:
        """Lagrange's weights of the nodes at states ``[n, I]``, products over the coordinates."""
        rows, total = as_rows(states, len(self.problem.domain)), np.ones((len(states), 1))
        for (low, high), coordinate in zip(self.problem.domain, rows.T, strict=True):
            gap = (2 * coordinate - low - high)[:, None] / (high - low) - self._places
            at_node = np.abs(gap) < 1e-14
            weights = self._weights / np.where(at_node, 1.0, gap)
            weights = np.where(at_node.any(axis=1, keepdims=True), at_node, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
            total = (total[:, :, None] * weights[:, None, :]).reshape(len(rows), -1)
        return total

    def next_values(self, expected: Array, states: Array | None = None) -> Array:
        """(P_aV)(s) ``[A, n]`` from its values at the nodes ``[A, I]``; at the states of the integrals if left out."""
        if states is None:
            return expected @ self._at_states.T
        blocks = [states[start : start + _ROWS] for start in range(0, len(states), _ROWS)]
        return np.concatenate([expected @ self.interpolation(block).T for block in blocks], axis=1)

    def worth(self, reward: RewardLike, expected: Array, discount: float, states: Array | None = None) -> Array:
        """(P_aV)(s) + R(s, a)/γ ``[A, n]``, whose differences are the D_a; without a reward that all actions share."""
        ahead = self.next_values(expected, states)
        if not of_actions(reward):
            return ahead
        rows = self.states if states is None else states
        return ahead + np.stack([values_of(reward, rows, action) for action in range(len(ahead))]) / discount

    def evaluate(self, reward: RewardLike, actions: NDArray[np.intp], *, discount: float) -> tuple[Array, Array]:
        """P_aV at the nodes ``[A, I]`` and V ``[q]`` of a policy with these actions ``[q]``."""
        as_probability(discount, "discount")
        gained, n_actions, size = values_of(reward, self.states, actions), len(self.kernels), self._at_states.shape[1]
        system = np.eye(n_actions * size).reshape(n_actions, size, n_actions, size)
        for action in range(n_actions):
            taken = actions == action
            system[:, :, action] -= discount * self.kernels[:, :, taken] @ self._at_states[taken]
        right = (self.kernels @ gained).ravel()
        expected = np.linalg.solve(system.reshape(len(right), -1), right).reshape(n_actions, size)
        return expected, gained + discount * self.next_values(expected)[actions, np.arange(len(actions))]

    def plan(self, reward: RewardLike, *, discount: float) -> tuple[Array, Array]:
        """P_aV at the nodes ``[A, I]`` and V ``[q]`` of the best policy, by policy iteration."""
        actions = np.zeros(len(self.states), dtype=np.intp)
        for _ in range(_ROUNDS):
            expected, value = self.evaluate(reward, actions, discount=discount)
            ahead = self.worth(reward, expected, discount)
            # Ties keep their action, so that rounding cannot make the iteration cycle.
            better = ahead.max(axis=0) > ahead[actions, np.arange(len(actions))] + _TIE * np.ptp(value)
            if not better.any():
                break
            actions = np.where(better, ahead.argmax(axis=0), actions)
        return expected, value


def _between_cuts(problem: Problem, cuts: Sequence[float]) -> tuple[Array, Array]:
    """Gauss points ``[q, 1]`` and weights ``[q]`` of panels whose ends include the cuts."""
    ((low, high),) = problem.domain
    ends = np.unique([*np.linspace(low, high, _PANELS + 1), *(cut for cut in cuts if low < cut < high)])
    t, w = gauss_legendre(_GAUSS)
    middle, radius = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
    return (middle[:, None] + radius[:, None] * t).reshape(-1, 1), (radius[:, None] * w).ravel()


@dataclass(frozen=True, eq=False)
class Judgement(Record):
    """The truth about an expert and a reward, V the expert's value.

    Attributes:
        truth: the problem.
        expected: P_aV at the nodes ``[A, I]``.
        actions: of the expert at the states of the integrals ``[q]``.
        best: actions of the best policy there ``[q]``.
        regret: the largest value lost by following the expert, in units of the reward.
        span: of V, the ends of the domain included.
        reward: R.
        discount: γ.

    Example:
        >>> room = certirl.problems.comfort()
        >>> judgement = certirl.problems.judge(room.dynamics, room.reward, room.expert, discount=0.9)
        >>> judgement.regret < 1e-6 * judgement.span
        True
    """

    truth: Truth
    expected: Array
    actions: NDArray[np.intp]
    best: NDArray[np.intp]
    regret: float
    span: float
    reward: RewardLike
    discount: float

    @internal
    def next_values(self, states: Array | None = None) -> Array:
        """(P_aV)(s) for every action ``[A, n]``, whose differences are the D_a; as `Truth.worth`."""
        return self.truth.worth(self.reward, self.expected, self.discount, states)

    @property
    def margins(self) -> Array:
        """The advantage of the expert's action over the best other one at the states of the integrals ``[q]``."""
        ahead, places = self.next_values(), np.arange(len(self.actions))
        taken = ahead[self.actions, places]
        ahead[self.actions, places] = -np.inf
        return np.asarray(taken - ahead.max(axis=0))


@typed
def judge(problem: Problem | Truth, reward: RewardLike, expert: Expert, *, discount: float) -> Judgement:
    """Evaluate the expert, plan for the reward, and compare.

    Args:
        problem: the dynamics, or their `Truth`, which takes long on a box and serves many experts there.
        reward: R.
        expert: on an interval `Steps`, so that its switches are known.
        discount: γ.

    Example:
        >>> room = certirl.problems.comfort()
        >>> heater = certirl.problems.Steps((0.5,), (0, 2))
        >>> judgement = certirl.problems.judge(room.dynamics, room.reward, heater, discount=0.9)
        >>> judgement.regret > 0
        True
    """
    truth = problem if isinstance(problem, Truth) else Truth(problem, cuts=getattr(expert, "switches", ()))
    problem = truth.problem
    actions = _actions(problem, expert, truth.states)
    expected, value = truth.evaluate(reward, actions, discount=discount)
    if len(problem.domain) == 1:  # the best policy switches elsewhere
        policy = optimal_policy(problem, reward, discount=discount)
        planner = Truth(problem, cuts=policy.switches)
    else:
        planner = truth
    ahead = planner.worth(reward, planner.plan(reward, discount=discount)[0], discount, truth.states)
    best_value = discount * ahead.max(axis=0)
    best_value = best_value if of_actions(reward) else values_of(reward, truth.states) + best_value
    edges = problem.domain.mesh(_EDGES[len(problem.domain)])
    taken = _actions(problem, expert, edges)
    at_edges = truth.next_values(expected, edges)[taken, np.arange(len(edges))]
    span = float(np.ptp(np.concatenate([value, values_of(reward, edges, taken) + discount * at_edges])))
    lost = float((best_value - value).max())
    return Judgement(truth, expected, actions, ahead.argmax(axis=0), lost, span, reward, discount)


def _actions(problem: Problem, expert: Expert, states: Array) -> NDArray[np.intp]:
    """What the expert does at states ``[n]``."""
    read = partial(as_actions, n_actions=problem.n_actions)
    actions = np.asarray(call(expert, states, what="the expert", read=read))
    if actions.shape != (len(states),):
        raise ValueError(f"the expert must return one action for each of {len(states)} states, got {actions.shape}")
    return actions


@typed
def optimal_policy(problem: Problem, reward: RewardLike, *, discount: float) -> Steps:
    """The optimal policy under a reward on an interval; planned twice, the second time cut where the first switched.

    Example:
        >>> room = certirl.problems.comfort()
        >>> expert = certirl.problems.optimal_policy(room.dynamics, lambda states: states[:, 0], discount=0.9)
        >>> expert.actions, expert.switches
        ((0,), ())
    """
    if len(problem.domain) != 1:
        raise ValueError(f"policies are planned on an interval, and this problem is on {problem.domain.words}")
    ((low, high),) = problem.domain
    grid, policy = np.linspace(low, high, _GRID)[:, None], Steps((), (0,))
    for _ in range(2):
        truth = Truth(problem, cuts=policy.switches)
        expected, _ = truth.plan(reward, discount=discount)
        chosen = truth.worth(reward, expected, discount, grid).argmax(axis=0)
        changes = np.flatnonzero(chosen[1:] != chosen[:-1])
        if len(changes) > _SWITCHES:
            raise ValueError(
                f"the best policy switches {len(changes)} times: the reward tells the actions apart only by rounding, "
                "or changes too quickly for this planner"
            )
        ahead = partial(truth.worth, reward, expected, discount)
        switches = [_switch(ahead, grid[i : i + 2, 0], chosen[i : i + 2]) for i in changes]
        policy = Steps(tuple(switches), (int(chosen[0]), *(int(chosen[i + 1]) for i in changes)))
    return policy


def _switch(ahead: Callable[[Array], Array], ends: Array, actions: Array) -> float:
    """Where the second action becomes better than the first between two states, by bisection, to twelve decimals."""
    low, high = (float(end) for end in ends)
    for _ in range(40):
        middle = (low + high) / 2
        first, second = ahead(np.array([[middle]]))[actions, 0]
        low, high = (middle, high) if first >= second else (low, middle)
    return round((low + high) / 2, 12)  # the same on every processor, also where it is a round number


@typed
def next_values(problem: Problem, reward: RewardLike, expert: Steps, states: Array, *, discount: float) -> Array:
    """(P_aV)(s), and R(s, a)/γ if R depends on a, for every action on an interval, V the expert's value: ``[A, n]``."""
    truth = Truth(problem, cuts=expert.switches)
    expected, _ = truth.evaluate(reward, expert(truth.states), discount=discount)
    return truth.worth(reward, expected, discount, as_rows(states, 1))


@typed
def regret(problem: Problem | Truth, reward: RewardLike, expert: Expert, *, discount: float) -> float:
    """The largest value lost by following the expert and not the best policy, over the span of the expert's value.

    Example:
        >>> room = certirl.problems.comfort()
        >>> heater = certirl.problems.Steps((0.5,), (0, 2))
        >>> round(certirl.problems.regret(room.dynamics, room.reward, heater, discount=0.9), 2)
        0.35
    """
    judgement = judge(problem, reward, expert, discount=discount)
    return judgement.regret / judgement.span


@dataclass(frozen=True, eq=False)
class SwitchingProblem(Record):
    """Dynamics, a reward, a discount, and the expert who is optimal for them.

    Attributes:
        dynamics: the problem without its reward.
        reward: R, known here, for the library to explain.
        discount: γ.
        expert: optimal under R.

    Example:
        >>> room = certirl.problems.comfort(target=0.2)
        >>> room.discount, room.expert.actions, len(room.expert.switches)
        (0.9, (0, 1, 2), 2)
    """

    dynamics: Problem
    reward: RewardLike
    discount: float
    expert: Steps

    def __str__(self) -> str:
        places = ", ".join(f"{s:.4g}" for s in self.expert.switches)
        return f"{self.dynamics.name} on {self.dynamics.domain.words}: the expert switches at {places}"


@typed
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
        power: by how much one step of heating or cooling changes the temperature.
        ambient: the temperature outside.
        leak: the share of the difference to it that is lost in a step.
        noise: standard deviation of a step.
        discount: γ.

    Example:
        >>> room = certirl.problems.comfort()
        >>> room.expert(np.array([-0.8, 0.1, 0.8])).tolist()
        [0, 1, 2]
    """
    as_number(leak, "leak", least=0, most=1)
    as_number(target, "target", least=-10, most=10)
    room = Thermostat((power, 0.0, -power), ambient, leak, noise, as_domain((-1, 1)), "comfort")

    def reward(states: Array) -> Array:
        return np.asarray(-((as_rows(states, 1)[:, 0] - target) ** 2))

    return SwitchingProblem(room, reward, discount, optimal_policy(room, reward, discount=discount))
