"""Action values of the value form with their errors, the growth of the value series, and missing data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from certirl.data.coverage import coverage
from certirl.fit.effects import EffectModel, Effects, ValueProblem, features, richer, solve_least_squares, unit_chart
from certirl.fit.termination import LiftedFit, constant, continuing
from certirl.fit.value_program import Comparisons, ValueFit, as_grid, least_squares
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.ground.domain import Array

COMPARED = 5_000  # rows of each action whose errors are compared with their neighbours
SURE = 0.999  # a probability of continuing that counts as certain
NEAR = 0.05  # a grid point with less weight of states around it rests on its neighbours


def action_values(
    problem: ValueProblem, model: EffectModel, fit: ValueFit, lifted: LiftedFit | None
) -> tuple[Basis | Cells, Array, float]:
    """(P̂_aV)(s) as functions of the state, with their estimated error over the effect of an action."""
    if model.regression is not None:
        fitted = model.regression.weights @ fit.value
        return model.regression.columns, fitted, _regression_error(problem, model, fit, fitted)
    effects, goals = model.effects, model.effects.after @ fit.value
    states = effects.states
    if lifted is not None:  # no choice is made where every action terminates, and a jump there spoils the fit elsewhere
        kept = ~lifted.terminating
        if not effects.noiseless:  # estimates of termination differ at a threshold, by the whole value of continuing
            kept &= (continuing(effects) > SURE).all(axis=0)
        states, goals = states[kept], goals[:, kept]
    if not effects.noiseless:  # what all actions share, termination and noise above all, is the hardest to fit
        goals = goals - goals.mean(axis=0)
    held_out = np.arange(len(states)) % 5 == 0
    candidates: list[Basis | Cells] = [richer(effects.basis, factor) for factor in (1.0, 1.6)]
    grid = as_grid(fit.reward_basis)
    candidates += [] if grid is None else [grid]
    candidates = [columns for columns in candidates if columns.size <= 0.4 * len(states)]
    candidates = candidates or [richer(effects.basis, 0.5)]
    errors = [_held_out_error(columns, states, goals, held_out) for columns in candidates]
    best = candidates[int(np.argmin(errors))]
    error = _next_state_error(problem, model, fit) if model.by_next_states else min(errors)
    return best, least_squares(best, states)(goals.T)[1].T, error / max(_effect(goals), 1e-300)


def _effect(values: Array) -> float:
    """The root mean square difference of two actions' values ``[A, n]``."""
    return float(np.sqrt(np.mean((values - values.mean(axis=0)) ** 2) * 2))


def _held_out_error(columns: Basis | Cells, states: Array, goals: Array, held_out: NDArray[np.bool_]) -> float:
    """The root mean square error on states that the fit did not use."""
    _, fitted = least_squares(columns, states[~held_out])(goals[:, ~held_out].T)
    predicted = np.stack([columns.combined(states[held_out], coefficients) for coefficients in fitted.T])
    return float(np.sqrt(np.mean((predicted - goals[:, held_out]) ** 2)))


def _neighbour_products(errors: Array, places: Array) -> float:
    """Σ of products of the errors at neighbouring places ``[n]``, ``[n, d]``.

    Errors of a fit at two neighbouring states share the fit's error and not the noise of the two next states, so that
    the mean product estimates the squared error without the noise.
    """
    from scipy.spatial import KDTree

    _, neighbours = KDTree(places).query(places, k=2)
    return float(errors @ errors[neighbours[:, 1]])


def _next_state_error(problem: ValueProblem, model: EffectModel, fit: ValueFit) -> float:
    """Root mean square error of the next-state model in V at the next states, without the noise.

    Only transitions that continue, and from states that surely do, count: beside terminal states the whole value of
    continuing would count as an error.
    """
    assert model.next_states is not None and model.log is not None
    log, basis, total, count = model.log, model.effects.basis, 0.0, 0
    observed, first = features(basis, log.next_states, problem.is_terminal, log.terminal), constant(model.effects)
    continued = observed[:, 0] != 0
    for action in range(log.n_actions):
        rows = np.flatnonzero((log.actions == action) & continued)[:COMPARED]
        predicted = model.next_states.after(basis, log.states[rows], np.random.default_rng(0))[action]
        sure = predicted[:, 0] / first > SURE
        errors, rows = (observed[rows[sure]] - predicted[sure]) @ fit.value, rows[sure]
        if len(rows) > 1:
            places = unit_chart(log.states[rows], problem.domain, problem.periodic)
            total, count = total + _neighbour_products(errors, places), count + len(errors)
    return float(np.sqrt(max(total / max(count, 1), 0.0)))


def _regression_error(problem: ValueProblem, model: EffectModel, fit: ValueFit, fitted: Array) -> float:
    """Error of regressed effects over the effect of an action; at least what sampling leaves in a comparison."""
    assert model.regression is not None and model.log is not None
    log, columns, (low, high), total, count = model.log, model.regression.columns, np.array(problem.domain).T, 0.0, 0
    values = features(model.regression.basis, log.next_states, problem.is_terminal, log.terminal) @ fit.value
    for action in range(log.n_actions):
        states, goals = log.states[log.actions == action], values[log.actions == action]
        held_out = np.arange(len(states)) % 2 == 0
        phi = columns.values(states)
        errors = (goals - phi @ solve_least_squares(phi[~held_out], goals[~held_out]))[held_out]
        total += _neighbour_products(errors, ((states - low) / (high - low))[held_out])
        count += len(errors)
    predicted = np.stack([columns.combined(model.effects.states, coefficients) for coefficients in fitted])
    # A difference of two actions has the errors of both; a fit on half of the data has twice that of the whole.
    squared = max(total / count, float(fit.value @ model.regression.noise @ fit.value))
    return float(np.sqrt(squared)) / max(_effect(predicted), 1e-300)


def spectral_radius(effects: Effects, rows: Comparisons) -> float:
    """ρ(T̂) of the policy's square matrix on V's functions, by least squares."""
    return float(np.abs(np.linalg.eigvals(solve_least_squares(effects.now, rows.expert))).max())


def uncovered(problem: ValueProblem, model: EffectModel, fit: ValueFit) -> float:
    """The share of R's grid points without states around them; of a log, of the box where an action is extrapolated."""
    if problem.source.log is not None and model.log is not None:
        fitted = model.next_states if model.regression is None else model.regression
        assert fitted is not None
        return float(coverage(model.log, basis=fitted.columns).extrapolated_share.max())
    return float(unvisited(fit.reward_basis, model.effects.states).mean())


def unvisited(basis: Basis | Cells, states: Array) -> NDArray[np.bool_]:
    """The points of a grid without states around them ``[k]``; none for a basis that is not a grid."""
    grid = as_grid(basis)
    return np.zeros(basis.size, dtype=bool) if grid is None else np.asarray(grid.summed(states) < NEAR)
