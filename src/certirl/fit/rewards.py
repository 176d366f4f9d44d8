"""The reward of a value, R = V − γ max_a P_aV, at every state that a plan can reach, and the states to judge it at.

`fit_value` fits R to states drawn evenly, or to those of a log. A plan on R goes to others: to walls and other states
that next states hit with positive probability, and to places without data, if R is large there. So R is read off V at
the points of its grid:

- From a simulator with noise, by the estimated effects of the actions. Draws at the points, hundreds of times as many
  as the estimates took, changed neither the plan on R nor its distance from the expert on five problems, each with
  one seed.
- From a simulator without noise, in two to four coordinates, on a fine grid, with V piecewise linear on that grid: what
  R misses adds up along a path, and the finer a planner's grid, the better its plan collects it. Next states are
  interpolated between those observed (`Nearby`).
- From a log, at points without states nearby, ``R = V − γU`` with U the largest value within one step of the log. If U
  bounds max_a P_aV there, V is at least the optimal value under R, with equality where the expert stays within the data
  (docs/notes/reward.md): R has no cliff there, and no plan gains by leaving the data.

Effects that are regressed have errors, and R read off them wiggles by as much. So among the rewards that these errors
cannot tell from V − γ max_a P_aV the smoothest is taken: that of least second differences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.fit.effects import blocks
from certirl.fit.estimates import EffectModel, LogModel
from certirl.fit.next_states import Nearby
from certirl.fit.problem import ValueProblem
from certirl.fit.value_program import ValueFit, as_grid
from certirl.functions.cells import Cells
from certirl.functions.reward import Reward, value_function
from certirl.ground.domain import Array

NEAR = 0.05  # a grid point with less weight of states around it has no data
FINE = {2: 201, 3: 41, 4: 21}  # points along each coordinate of a reward read off a simulator without noise
LOOKED_AT = 2_000  # states from which next states, switches and repeats are looked for
JUDGED = 500  # next states at which R is judged, and as many at the edge of the box
MOST_ATOMS, MOST_SWITCHES = 50, 200
REPEATED = 1e-3  # of the next states: a place that as many of them share is hit with positive probability
HALVINGS = 12  # towards a switch
TOLD = 0.5  # of the standard error of a difference of two actions: what R may differ by, root mean square, to be smooth
PRICES, HALVED = (-6.0, 10.0), 12  # powers of ten between which the price of roughness is sought, and the halvings
HELD = 1e6  # weight of the places that next states share, in units of a grid point's


class Reading(NamedTuple):
    """A reward and how far it is from V − γ max_a P_aV.

    Attributes:
        reward: R.
        residuals: at the states compared and at those of `judged_states`, where R is not extrapolated ``[n]``.
    """

    reward: Reward
    residuals: Array


class JudgedStates(NamedTuple):
    """States besides the compared ones at which R must be right.

    Attributes:
        states: all of them ``[n, d]``; none is terminal.
        atoms: places that next states hit with positive probability ``[m, d]``.
    """

    states: Array
    atoms: Array


def judged_states(problem: ValueProblem, model: EffectModel) -> JudgedStates:
    """The states at which R is judged.

    Next states of the expert, or of a log, those at the edge of the box more often; atoms; switches; corners of the box
    of a simulator. None is terminal.
    """
    states, ahead = _looked_at(problem, model)
    low, high = problem.domain.ends
    at_edge = ((ahead == low) | (ahead == high)).any(axis=1)
    repeated = atoms(ahead)
    judged = [ahead[:JUDGED], ahead[at_edge][:JUDGED], repeated, switches(states, problem)]
    every = np.concatenate([*judged, problem.source.corners()])
    live = slice(None) if problem.is_terminal is None else ~problem.is_terminal(every)
    return JudgedStates(every[live], repeated)


def _looked_at(problem: ValueProblem, model: EffectModel) -> tuple[Array, Array]:
    """Some states ``[n, d]``, and next states: of the expert, or of a log."""
    if problem.source.is_log:
        ahead = problem.source.data.next_states
        chosen = np.random.default_rng(0).permutation(len(ahead))[: 10 * LOOKED_AT]
        return model.effects.states[:LOOKED_AT], ahead[chosen]
    assert isinstance(model.dynamics, Nearby)
    states, ahead = model.dynamics.states[:LOOKED_AT], model.dynamics.next_states[:, :LOOKED_AT]
    return states, ahead[problem.policy.probabilities(states).argmax(axis=1), np.arange(len(states))]


def atoms(states: Array) -> Array:
    """The places that many of the states share, which are hit with positive probability ``[m, d]``."""
    places, counts = np.unique(states, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_ATOMS]
    return places[order[counts[order] >= max(REPEATED * len(states), 3)]]


def switches(states: Array, problem: ValueProblem) -> Array:
    """States beside a change of the expert's action ``[m, d]``, between neighbours among these states."""
    from scipy.spatial import KDTree

    policy: Policy = problem.policy
    places = problem.domain.chart(states, problem.periodic)
    nearest = KDTree(places).query(places, k=2)[1][:, 1]
    kinds = policy.support(states)
    differ = np.flatnonzero((kinds != kinds[nearest]).any(axis=1))[:MOST_SWITCHES]
    here, there, wanted = states[differ], states[nearest[differ]], kinds[differ]
    for _ in range(HALVINGS if len(differ) else 0):
        middle = (here + there) / 2
        same = (policy.support(middle) == wanted).all(axis=1)[:, None]
        here, there = np.where(same, middle, here), np.where(same, there, middle)
    return here


def unvisited(grid: Cells, states: Array) -> NDArray[np.bool_]:
    """The points of a grid without states around them ``[k]``."""
    return np.asarray(grid._summed(states) < NEAR)


def read_reward(
    problem: ValueProblem, model: EffectModel, fit: ValueFit, judged: JudgedStates, *, lifted: bool, smooth: bool
) -> Reading:
    """R of a fitted value, at every point of its grid; where actions have costs, r.

    Where the value of continuing was chosen (``lifted``), R stays as it was fitted, without the states that terminate.
    With ``smooth`` it is the smoothest of the rewards that the errors of the effects cannot tell apart.
    """
    grid = as_grid(fit.reward_basis)
    exact = value = value_function(model.effects.basis, fit.value, problem.is_terminal)
    ends = None if exact.ends is None else replace(exact.ends, worth=(1 - problem.discount) * exact.ends.worth)
    fitted = Reward(fit.reward_basis, fit.reward, problem.is_terminal, ends=ends)
    if grid is None:
        return Reading(fitted, fit.residuals)
    room = (
        problem.discount * TOLD * _standard_error(model, fit.value) if smooth and problem.is_terminal is None else 0.0
    )
    if problem.source.is_log:
        assert isinstance(model, LogModel)
        known = ~unvisited(grid, model.log.states)
        smoother = _smoothed(grid, fit.reward, room, known.astype(float))
        states = np.concatenate([model.effects.states, judged.states])
        residuals = fit.residuals + grid.combined(states, smoother - fit.reward)
        return Reading(replace(_bounded(problem, model, replace(fit, reward=smoother), grid), ends=ends), residuals)
    if lifted or 1 in grid.counts or (model.effects.noiseless and grid.dimension not in FINE):
        return Reading(fitted, fit.residuals)
    if model.effects.noiseless:
        grid = Cells((FINE[grid.dimension],) * grid.dimension, grid.periodic).on(grid.domain)
    points = grid.points()
    if model.effects.noiseless:  # as a planner has it: what interpolation adds to V would add up along a path
        value = Reward(grid, np.asarray(value(points)), problem.is_terminal, ends=exact.ends)
    live = np.ones(len(points), dtype=bool) if problem.is_terminal is None else ~problem.is_terminal(points)
    coefficients = np.asarray(fit.reward_basis.combined(points, fit.reward))
    coefficients[live] = _target(problem, model, fit, value, points[live])
    states = np.concatenate([model.effects.states[:LOOKED_AT], judged.states])
    wanted = _target(problem, model, fit, exact, states)
    if len(judged.atoms):
        wanted_there = _target(problem, model, fit, value, judged.atoms)
        coefficients = _through(grid, coefficients, judged.atoms, wanted_there)
    weights = 1 + HELD * np.asarray(grid.matrix(judged.atoms).sum(axis=0)).ravel()
    coefficients = _smoothed(grid, coefficients, room, weights)
    reward = Reward(grid, coefficients, problem.is_terminal, ends=ends)
    return Reading(reward, grid.combined(states, coefficients) - wanted)


def _target(problem: ValueProblem, model: EffectModel, fit: ValueFit, value: Reward, states: Array) -> Array:
    """V − max_a (γP_aV − c_a) at states ``[n]``; without noise, V may be another function than the fitted one."""
    effects: list[Any] = [model.at(states[block]) for block in blocks(len(states))]
    if model.effects.noiseless:
        ahead = np.concatenate(
            [[value(after) for after in each.next_states[0]] for each in effects],
            axis=1,
        )
    else:
        ahead = np.concatenate([each.ahead(fit.value) for each in effects], axis=1)
    prices = np.zeros((1, 1)) if fit.prices is None else fit.prices.costs[:, None]
    return np.asarray(value(states) - (problem.discount * ahead - prices).max(axis=0))


def _through(grid: Cells, coefficients: Array, states: Array, wanted: Array) -> Array:
    """The coefficients changed least so that R takes the wanted values at a few states."""
    hats = grid.matrix(states).toarray()
    return coefficients + np.linalg.lstsq(hats, wanted - hats @ coefficients, rcond=None)[0]


def _standard_error(model: EffectModel, w: Array) -> float:
    """Of a difference of two actions' values, root mean square over the states; 0 where it is not known."""
    noise = model.effects.noise
    return max(float(w @ noise @ w), 0.0) ** 0.5 if isinstance(noise, np.ndarray) else 0.0  # may be rounding


def _smoothed(grid: Cells, coefficients: Array, room: float, weights: Array) -> Array:
    """The coefficients of least second differences that differ by ``room``, root mean square with weights up to 1."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    if not room or grid.dimension > 2:
        return coefficients
    held, rough, counted = diags_array(weights).tocsc(), grid._roughness(), np.minimum(weights, 1.0)
    low, high = PRICES
    smoothest = coefficients
    for _ in range(HALVED):
        middle = (low + high) / 2
        tried = splu((held + 10**middle * rough).tocsc()).solve(weights * coefficients)
        if counted @ (tried - coefficients) ** 2 <= room**2 * counted.sum():
            low, smoothest = middle, tried
        else:
            high = middle
    return smoothest


def _bounded(problem: ValueProblem, model: EffectModel, fit: ValueFit, grid: Cells) -> Reward:
    """R of a log: V − γU at points without data, where U is the largest V within the log's longest step.

    With costs r: none is negative, so that U bounds P_aV − c_a/γ, too.
    """
    from scipy.ndimage import maximum_filter
    from scipy.sparse.linalg import spsolve

    assert isinstance(model, LogModel)
    empty = unvisited(grid, model.log.states)
    if empty.all() or not empty.any():
        return Reward(grid, fit.reward, problem.is_terminal)
    points = grid.points()
    values = np.asarray(value_function(model.effects.basis, fit.value, problem.is_terminal)(points))
    # Polynomials may be anything where there are no data: there V is as flat as the points with data allow.
    unknown = empty if problem.is_terminal is None else empty & ~problem.is_terminal(points)
    flat = grid._roughness(order=1)
    values[unknown] = spsolve(flat[unknown][:, unknown], -flat[unknown][:, ~unknown] @ values[~unknown])
    whole = 2 * np.array(grid.counts) - 1  # a declared action may lead anywhere
    reach = np.ceil(np.abs(model.next_states.steps).max(axis=0) / grid.sides).astype(int)
    sizes = whole if model.declared else np.minimum(2 * reach + 1, whole)
    modes = ["wrap" if axis in grid.periodic else "nearest" for axis in range(grid.dimension)]
    bound = maximum_filter(values.reshape(grid.counts), size=tuple(sizes), mode=modes).ravel()
    coefficients = np.where(empty, values - problem.discount * bound, fit.reward)
    return Reward(grid, coefficients, problem.is_terminal, extrapolation=empty)
