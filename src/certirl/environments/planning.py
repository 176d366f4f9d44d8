"""Planning: the optimal policy for a reward in a simulator, an environment or the next-state model of a log.

It makes experts from an environment's own reward. How it is found: `certirl.fit.plan`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from certirl.data.formats import names_file
from certirl.data.simulator import as_generator, bare, periodic_of
from certirl.data.source import Logged, as_source
from certirl.data.transitions import Transitions
from certirl.environments.simulators import simulator as simulator_of
from certirl.fit.bellman import check_problem
from certirl.fit.drifts import FEWEST
from certirl.fit.effects import live_states, value_basis
from certirl.fit.next_states import NextStateModel, regress_next_states
from certirl.fit.plan import (
    POINTS,
    POOL,
    STARTS,
    GridModel,
    Plan,
    Process,
    Returns,
    Setting,
    StepReward,
    fitted_plan,
    number_of_draws,
    spread,
    steps_of,
    walked,
)
from certirl.functions.cells import Cells
from certirl.functions.reward import RewardLike, unpack
from certirl.ground.domain import as_domain, as_rows, as_states, number_of
from certirl.ground.doors import as_count, as_number, by_door, shown
from certirl.proof.cells import ValueReward

__all__ = ["Plan", "Returns", "ValueReward", "plan"]
__dir__ = __all__.copy

BLURRED_POINTS = POINTS | {2: 201}  # the same where there are several next states: noise hides what a grid misses
MOST_POINTS = 1_000_000  # of the whole grid: two minutes and six gigabytes
PLANNED_ENTRIES = 80_000_000  # of the matrices of a plan, unless points are given: half a minute and two gigabytes
COARSEST = {1: 201, 2: 51, 3: 25, 4: 15}  # points along each coordinate from which a grid is used
MOST_DRAWS = 1_000_000
SETTINGS = (Setting(220, 10, 5), Setting(220, 25, 6))  # of a fitted V
MOST_MEMORY = 16  # GB, for the matrices of all actions


def plan(
    source: Any,
    reward: RewardLike | None = None,
    *,
    discount: float | None = None,
    step_reward: StepReward | None = None,
    starts: ArrayLike | None = None,
    points: int | tuple[int, ...] | None = None,
    draws: int | None = None,
    tolerance: float = 1e-5,
    rng: Any = 0,
) -> Plan:
    """Find the optimal policy: V* = max_a R + γP_aV*, by policy iteration.

    Up to four coordinates V* is computed at the points of a grid and multilinear between them. Beyond, and where the
    matrices of a grid would be too large, V is a polynomial, or random sigmoids, fitted in each round to the returns of
    rollouts under the policy of the round before; the policies of all rounds are compared by rollouts from other start
    states, and the best one is returned. Terminal states are absorbing: under a reward of states they pay R(s) at every
    step, so V(s) = R(s)/(1 − γ), under a reward of steps nothing more. These values are not interpolated or fitted.

    Args:
        source: the dynamics. A simulator; its attribute ``periodic`` names the periodic coordinates, and its method
            ``terminal(states)`` the terminal states. One with ``outcomes(states, action)`` gives next states
            ``[m, n, d]`` and weights ``[m]`` for expectations; of any other one, or if it answers None, ``draws`` next
            states are drawn with common random numbers. Or a Gymnasium environment, or the name of one. Or a log
            (`Transitions`), through a model of the next state that is fitted to it: an action that is extrapolated at
            a state has the lowest value there, so that the plan avoids it.
        reward: R(s), a function of states ``[n, d]``; or a `Solution`.
        discount: γ; known from a solution.
        step_reward: instead, a function of states, an action and next states; if neither is given, the simulator's own
            ``reward``.
        starts: states ``[n, d]`` from which the plan should do well and its return is estimated. Left out, a fitted
            plan takes states all over the box, or those of the log.
        points: along each coordinate, one number for all or one each; for a grid.
        draws: how many next states stand for the distribution. Left out, the simulator is asked twice about the same
            states: one if it answers alike, else 32, or 8 in three and more coordinates.
        tolerance: of V* on a grid, as a share of its span.
        rng: a seed or Generator.

    Example:
        >>> room = certirl.problems.comfort()
        >>> plan = certirl.planning.plan(room.dynamics, room.reward, discount=0.9, points=101)
        >>> plan([-0.8, 0.1, 0.8]).tolist()
        [0, 1, 2]
    """
    generator = as_generator(rng, "plan")
    if (isinstance(source, str) and not names_file(source)) or hasattr(source, "action_space"):
        source = simulator_of(source)
    origin = as_source(source)
    simulator: Any = next_state_model(origin.data, generator) if isinstance(origin, Logged) else origin.data
    reward, step_reward, discount = _chosen_reward(simulator, reward, step_reward, discount)
    discount = check_problem(discount, 0, simulator.n_actions)
    tolerance = as_number(tolerance, "tolerance", least=0, strict=True)
    domain = as_domain(simulator.domain)
    first, axes = None, periodic_of(simulator)
    if starts is not None:  # angles are turned into the box; other coordinates must be in it
        rows, turned = as_rows(starts, len(domain), name="starts"), np.isin(np.arange(len(domain)), axes)
        first = as_states(np.where(turned, domain.moved_into(rows, axes), rows), domain, name="starts")
    if first is not None and not len(first):
        raise ValueError("starts must be one or more states, got none")
    if draws is not None:
        as_count(draws, "draws", most=MOST_DRAWS)
    number, branches = number_of_draws(simulator, domain, draws, generator)
    pool = live_states(simulator, POOL, generator) if origin.states is None else spread(origin.states, POOL)
    process = Process(simulator, reward, step_reward, discount, number, generator).limited(pool)
    usual = _affordable(len(domain), simulator.n_actions, branches) if points is None else points
    if usual is None:
        return fitted_plan(process, pool, first, SETTINGS, generator)
    counts = _counts(usual, len(domain))
    _check_memory(prod(counts), len(domain), simulator.n_actions, branches)
    best = GridModel.of(process, Cells(counts, axes, domain)).plan(tolerance)
    if first is None:
        return best
    steps = steps_of(discount)
    return replace(best, returns=walked(process, best, spread(first, STARTS), steps).summary(steps))


def next_state_model(log: Transitions, rng: np.random.Generator) -> NextStateModel:
    """The model of the next state of a log, in which a plan is made."""
    if (log.counts < FEWEST).any():
        counts = ", ".join(map(str, log.counts))
        raise ValueError(f"a plan from a log needs at least {FEWEST} transitions of every action, got {counts}")
    is_terminal, _ = Logged(log).terminal()
    basis = value_basis(log.domain, log.periodic)
    return regress_next_states(log, basis, is_terminal=is_terminal, periodic=log.periodic, rng=rng)


def _chosen_reward(
    simulator: Any, reward: Any, step_reward: Any, discount: float | None
) -> tuple[RewardLike | None, StepReward | None, float]:
    if reward is not None and step_reward is not None:
        raise ValueError("give reward, a function of states, or step_reward, a function of steps, not both")
    if reward is not None:
        reward, discount = unpack(reward, discount)
    else:
        step_reward = getattr(simulator, "reward", None) if step_reward is None else step_reward
        if not callable(step_reward):
            what = "a log" if isinstance(simulator, NextStateModel) else type(bare(simulator)).__name__
            instead = by_door("pass one, a function of states", "give it a method reward(states, action, next_states)")
            raise ValueError(f"{what} has no reward of its own: {instead}")
    if discount is None:
        raise ValueError("a reward alone has no discount: pass discount, say discount=0.9")
    return reward, step_reward, discount


def _counts(points: Any, dimension: int) -> tuple[int, ...]:
    if dimension not in POINTS:
        raise ValueError(f"a grid serves one to four coordinates, these states have {dimension}: leave points out")
    chosen = np.asarray(points)
    if chosen.shape not in {(), (dimension,)} or chosen.dtype.kind != "i" or (chosen < 3).any():
        raise ValueError(f"points must be whole numbers of at least 3, one or {dimension} of them, got {shown(points)}")
    counts = tuple(np.broadcast_to(chosen, dimension).tolist())
    if prod(counts) > MOST_POINTS:
        raise ValueError(f"points must make a grid of at most {MOST_POINTS:,}, got {prod(counts):,}: use fewer of them")
    return counts


def _affordable(dimension: int, n_actions: int, branches: int) -> int | None:
    """Points along each coordinate, as many as usual or as are affordable; None if these are too few for a grid."""
    if dimension not in POINTS:
        return None
    most = int((PLANNED_ENTRIES / (n_actions * branches * 2**dimension)) ** (1 / dimension) + 1e-9)
    usual = POINTS if branches == 1 else BLURRED_POINTS
    return None if most < COARSEST[dimension] else min(usual[dimension], most)


def _check_memory(size: int, dimension: int, n_actions: int, branches: int) -> None:
    """Refuse, with a sentence, grids whose matrices would not fit."""
    entries = n_actions * size * branches * 2**dimension
    memory = 2 * entries * 12 / 1e9  # eight bytes for a number and four for its column, and all matrices once more
    if memory > MOST_MEMORY:
        raise ValueError(
            f"{size:,} points with {number_of(branches, 'next state')} of {n_actions} actions take about "
            f"{memory:,.0f} GB of memory, more than {MOST_MEMORY}: ask for fewer points or draws"
        )
