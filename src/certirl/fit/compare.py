"""A policy compared with the optimal one for a reward: the independent check of a learned reward.

The policy that is optimal under the learned reward alone is compared with the expert, on the same grid or by rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy, as_policy, returns, simulate, uniform_policy
from certirl.data.simulator import Simulator, as_generator, periodic_of
from certirl.fit.plan import (
    POINTS,
    POOL,
    SMALL,
    STARTS,
    GridModel,
    Plan,
    Process,
    Setting,
    fitted_plan,
    number_of_draws,
    spread,
    walked,
)
from certirl.functions.cells import Cells
from certirl.functions.functions import of_actions
from certirl.functions.reward import RewardLike, reward_at_terminal, values_of
from certirl.ground.domain import Array, as_domain
from certirl.ground.records import Record

# Of a comparison, which must not take longer than the solution that it is about.
COMPARED_POINTS = {1: 2001, 2: 201, 3: 45, 4: 17}
# The same where next states are drawn: planning on few draws would take their noise for the dynamics.
DRAWN_POINTS, DRAWN = {1: 501, 2: 101, 3: 45, 4: 17}, {1: 256, 2: 64, 3: 8, 4: 8}
MOST_ENTRIES = 20_000_000  # of the matrices of a comparison: some seconds and a gigabyte
ACCURATE = 1e-3  # error of a value in a comparison, as a share of the span of V*
FINE = 2  # coordinates up to which values on the grid are those of the dynamics; beyond them rollouts are used
SETTINGS = (Setting(220, 10, 5),)  # of a fitted V
LONGEST = 150  # steps of a rollout, at most


@dataclass(frozen=True)
class Comparison(Record):
    """A policy compared with the optimal policy for a reward R, from the same states."""

    agreed: int  # states at which the optimal policy takes an action that the policy takes, too
    judged: int  # states at which this was counted
    # by how much less the policy earns under R than the optimal one, on average over the states. If R explains the
    # policy it is about 0
    regret: float
    # by how much less the optimal policy earns than the policy under the reward ``V − γP_πV``, of which V is the
    # policy's value, on average over the states
    loss: float
    chance: float  # by how much less actions at random earn under R than the optimal policy: the unit of both shares
    _derived: ClassVar[tuple[str, ...]] = ("shares",)

    @property
    def shares(self) -> tuple[float, float]:
        """Regret and loss, not below 0, as shares of what random actions lose; or infinite."""
        both = (max(self.regret, 0.0), max(self.loss, 0.0))
        regret, loss = (lost / self.chance if self.chance > 0 else float("inf") if lost else 0.0 for lost in both)
        return regret, loss


class _Size(NamedTuple):
    """Points along each coordinate (None without a grid), draws, and matrix entries of a comparison."""

    points: int | None
    draws: int
    entries: int


def size_of(simulator: Simulator, *, rollouts: bool = False) -> _Size:
    """The size of a `Comparison` in this simulator.

    On a grid, plan and policy are evaluated with the same errors. Rollouts have none, so that the plan must not either.
    """
    domain = as_domain(simulator.domain)
    dimension, rng = len(domain), np.random.default_rng(0)
    draws, branches = number_of_draws(simulator, domain, None, rng)
    if dimension not in COMPARED_POINTS:
        return _Size(None, draws, 0)
    usual = COMPARED_POINTS if draws == 1 else DRAWN_POINTS
    if rollouts and branches == 1 and dimension <= FINE:
        usual = POINTS
    draws, branches = (draws, branches) if draws == 1 else (DRAWN[dimension],) * 2
    points = usual[dimension]
    entries = points**dimension * branches * simulator.n_actions * 2**dimension
    return _Size(points, draws, entries) if entries <= MOST_ENTRIES else _Size(None, draws, 0)


def compare(
    simulator: Simulator,
    reward: RewardLike,
    value: RewardLike,
    policy: Policy,
    states: Array,
    *,
    discount: float,
    judged: NDArray[np.bool_] | None = None,
    rollouts: bool = False,
) -> tuple[Comparison, Plan]:
    """Compare a policy with the plan on R alone, on the same grid or by rollouts; the comparison and the plan.

    V, ``value``, is the policy's value under a reward near R, 0 in terminal states. Regret and loss are averaged over
    the states ``[n, d]``; agreement is counted at those that are ``judged`` ``[n]``, all of them if left out. With
    ``rollouts`` policies are simulated in few coordinates, too: on a grid a policy strays from its path.
    """
    size, domain, rng = size_of(simulator, rollouts=rollouts), as_domain(simulator.domain), as_generator(0, "plan")
    process = Process(simulator, reward, None, discount, size.draws, rng).limited(spread(states, POOL))
    if size.points is None:
        best = fitted_plan(process, spread(states, POOL), None, SETTINGS, rng)
        losses = _losses_of_rollouts(process, best, value, policy, states)
    else:
        model = GridModel.of(process, Cells((size.points,) * len(domain), periodic_of(simulator), domain))
        best = model.plan(ACCURATE / 100)
        if len(domain) <= FINE and not rollouts:
            losses = _losses_on_the_grid(model, best, value, policy, states)
        else:
            losses = _losses_of_rollouts(process, best, value, policy, states)
    counted = states if judged is None else states[judged]
    agrees = policy.support(counted)[np.arange(len(counted)), best(counted)] if len(counted) else np.zeros(0)
    return Comparison(int(agrees.sum()), len(counted), *losses), best


def _losses_on_the_grid(
    model: GridModel, best: Plan, value: RewardLike, policy: Policy, states: Array
) -> tuple[float, float, float]:
    """Regret, loss and what random actions lose, all from the model on the grid."""
    nodes, values = model.grid.points(), best.values
    tolerance = ACCURATE * (1 - best.discount) * float(np.ptp(values))
    expert = policy.probabilities(nodes)
    planned = np.eye(expert.shape[1])[model.action_values(values).argmax(axis=0)]
    at_nodes = np.concatenate([values_of(value, block) for block in np.array_split(nodes, len(nodes) // SMALL + 1)])
    ahead = model.ahead(at_nodes)
    reward = model.process.reward
    assert reward is not None
    if of_actions(reward):
        ahead = ahead + np.stack([values_of(reward, nodes, action) for action in range(len(ahead))])
    costs = (expert.T * ahead).sum(axis=0) - ahead

    def mean(probabilities: Array, paid: Array, start: Array) -> float:
        return float(model.grid.combined(states, model.policy_values(probabilities, paid, start, tolerance)).mean())

    most, random = float(model.grid.combined(states, values).mean()), np.full_like(expert, 1 / expert.shape[1])
    loss = mean(planned, costs, np.zeros(model.grid.size))
    return most - mean(expert, model.rewards, values), loss, most - mean(random, model.rewards, values)


def _losses_of_rollouts(
    process: Process, best: Plan, value: RewardLike, policy: Policy, states: Array
) -> tuple[float, float, float]:
    """Regret, loss and what random actions lose, by rollouts with the same random numbers."""
    starts = states[:: max(len(states) // STARTS, 1)][:STARTS]
    simulator, discount, planned = process.simulator, process.discount, as_policy(best, best.n_actions)
    steps, reward = min(ceil(1.5 / (1 - discount)), LONGEST), process.reward
    assert reward is not None
    acts = of_actions(reward)

    def paid(rows: Array, terminal: bool) -> Array:
        return (reward_at_terminal if terminal else values_of)(reward, rows)

    def earned(followed: Policy) -> Array:  # without R(s_0), which all policies have in common
        if acts:
            return walked(process, followed, starts, steps).earned
        rng = np.random.default_rng(0)
        return discount * returns(simulator, starts, [followed] * (steps - 1), paid, discount=discount, rng=rng)

    lost = np.zeros(len(starts))
    for number, step in enumerate(simulate(simulator, starts, [planned] * steps, np.random.default_rng(0))):
        every = range(best.n_actions)
        ahead = np.stack([process.expected(value, step.states, action) for action in every], axis=1)
        if acts:
            ahead += np.stack([values_of(reward, step.states, action) for action in every], axis=1) / discount
        better = (policy.probabilities(step.states) * ahead).sum(axis=1) - ahead[np.arange(len(ahead)), step.actions]
        lost[step.rows] += discount ** (number + 1) * better
    most, others = earned(planned), [earned(other) for other in (policy, uniform_policy(best.n_actions))]
    regret, chance = (float((most - other).mean()) for other in others)
    return regret, float(lost.mean()), chance
