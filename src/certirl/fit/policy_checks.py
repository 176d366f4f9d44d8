"""Errors of the value form: of estimated effects and action values, growth of the value series, missing data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.coverage import coverage
from certirl.data.policy import Policy
from certirl.data.simulator import Terminal
from certirl.data.source import Source, TerminalBoxes
from certirl.data.transitions import Transitions
from certirl.fit.effects import Effects, Regression, features, richer, unit_chart
from certirl.fit.next_states import Moves
from certirl.fit.termination import LiftedFit, constant, continuing
from certirl.fit.value_program import SMOOTH, Comparisons, ValueFit, least_squares
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.ground.domain import Array, Domain

COMPARED = 5_000  # rows of each action whose errors are compared with their neighbours
SURE = 0.999  # a probability of continuing that counts as certain
NEAR = 0.05  # a grid point with less weight of states around it rests on its neighbours


class World(NamedTuple):
    """The problem: dynamics, expert, domain, terminal states and discount.

    Attributes:
        source: a simulator or a log.
        policy: the expert.
        domain: the box of states.
        periodic: coordinates that are periodic.
        ended: states to whether they are terminal; None if none is.
        discount: γ.
        ends: the terminal states in boxes; None without any.
    """

    source: Source
    policy: Policy
    domain: Domain
    periodic: tuple[int, ...]
    ended: Terminal | None
    discount: float
    ends: TerminalBoxes | None = None


class Seen(NamedTuple):
    """What the data say about the effects of the actions.

    Attributes:
        effects: of every action on the functions of V.
        regression: of V's functions on the state, if the effects are from it.
        log: the transitions behind the effects; None if the simulator was asked at every state.
        samples: states, or the fewest transitions of an action.
        moves: the regressed next-state model; None if it was not tried.
        moved: the effects are from the next-state model.
        most: transitions of the action with most; None if all have as many.
        model_error: of the next-state model, as `next_states.relative_error` defines it.
    """

    effects: Effects
    regression: Regression | None
    log: Transitions | None
    samples: int
    moves: Moves | None = None
    moved: bool = False
    most: int | None = None
    model_error: float = float("inf")


def action_values(
    world: World, seen: Seen, fit: ValueFit, lifted: LiftedFit | None
) -> tuple[Basis | Cells, Array, float]:
    """(P̂_aV)(s) as functions of the state, with their held-out error over the effect of an action."""
    if seen.regression is not None:
        fitted = seen.regression.weights @ fit.value
        return seen.regression.columns, fitted, _regression_error(world, seen, fit, fitted)
    effects, goals = seen.effects, seen.effects.after @ fit.value
    states = effects.states
    if lifted is not None:  # no choice is made where every action terminates, and a jump there would spoil the rest
        kept = ~lifted.terminating
        if not effects.seen:  # estimates of termination differ at a threshold, by the whole value of continuing
            kept &= (continuing(effects) > SURE).all(axis=0)
        states, goals = states[kept], goals[:, kept]
    if not effects.seen:  # a function that all actions share, termination and noise above all, is the hardest to fit
        goals = goals - goals.mean(axis=0)
    held_out = np.arange(len(states)) % 5 == 0
    candidates: list[Basis | Cells] = [richer(effects.basis, factor) for factor in (1.0, 1.6)]
    candidates += [fit.reward_basis] if isinstance(fit.reward_basis, Cells) else []
    candidates = [columns for columns in candidates if columns.size <= 0.4 * len(states)]
    candidates = candidates or [richer(effects.basis, 0.5)]
    errors = [_held_out_error(columns, states, goals, held_out) for columns in candidates]
    best = candidates[int(np.argmin(errors))]
    error = _next_state_error(world, seen, fit) if seen.moved else min(errors)
    return best, least_squares(best, states, SMOOTH)(goals.T)[1].T, error / max(_effect(goals), 1e-300)


def _effect(values: Array) -> float:
    """The root mean square difference of two actions' values ``[A, n]``."""
    return float(np.sqrt(np.mean((values - values.mean(axis=0)) ** 2) * 2))


def _held_out_error(columns: Basis | Cells, states: Array, goals: Array, held_out: NDArray[np.bool_]) -> float:
    """The root mean square error on states that the fit did not use."""
    _, fitted = least_squares(columns, states[~held_out], SMOOTH)(goals[:, ~held_out].T)
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


def _next_state_error(world: World, seen: Seen, fit: ValueFit) -> float:
    """Root mean square error of the next-state model in V at the next states, without the noise.

    Only transitions that continue, and from states that surely do, count: beside terminal states the whole value of
    continuing would count as an error.
    """
    assert seen.moves is not None and seen.log is not None
    log, basis, total, count = seen.log, seen.effects.basis, 0.0, 0
    observed, first = features(basis, log.next_states, world.ended, log.terminal), constant(seen.effects)
    continued = observed[:, 0] != 0
    for action in range(log.n_actions):
        rows = np.flatnonzero((log.actions == action) & continued)[:COMPARED]
        predicted = seen.moves.after(basis, log.states[rows], np.random.default_rng(0))[action]
        sure = predicted[:, 0] / first > SURE
        errors, rows = (observed[rows[sure]] - predicted[sure]) @ fit.value, rows[sure]
        if len(rows) > 1:
            places = unit_chart(log.states[rows], world.domain, world.periodic)
            total, count = total + _neighbour_products(errors, places), count + len(errors)
    return float(np.sqrt(max(total / max(count, 1), 0.0)))


def _regression_error(world: World, seen: Seen, fit: ValueFit, fitted: Array) -> float:
    """Error of regressed effects over the effect of an action; at least what sampling leaves in a comparison."""
    assert seen.regression is not None and seen.log is not None
    log, columns, (low, high), total, count = seen.log, seen.regression.columns, np.array(world.domain).T, 0.0, 0
    values = features(seen.regression.basis, log.next_states, world.ended, log.terminal) @ fit.value
    for action in range(log.n_actions):
        states, goals = log.states[log.actions == action], values[log.actions == action]
        held_out = np.arange(len(states)) % 2 == 0
        phi = columns.values(states)
        gram = phi[~held_out].T @ phi[~held_out]
        gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
        errors = (goals - phi @ np.linalg.solve(gram, phi[~held_out].T @ goals[~held_out]))[held_out]
        total += _neighbour_products(errors, ((states - low) / (high - low))[held_out])
        count += len(errors)
    predicted = np.stack([columns.combined(seen.effects.states, coefficients) for coefficients in fitted])
    # A difference of two actions has the errors of both; a fit on half of the data has twice that of the whole.
    squared = max(total / count, float(fit.value @ seen.regression.noise @ fit.value))
    return float(np.sqrt(squared)) / max(_effect(predicted), 1e-300)


def spectral_radius(effects: Effects, rows: Comparisons) -> float:
    """ρ(T̂) of the policy's square matrix on V's functions, by least squares."""
    gram = effects.now.T @ effects.now
    gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
    return float(np.abs(np.linalg.eigvals(np.linalg.solve(gram, effects.now.T @ rows.expert))).max())


def uncovered(world: World, seen: Seen, fit: ValueFit) -> float:
    """The share of R's grid points without states around them; of a log, of the box where an action is extrapolated."""
    if world.source.log is not None and seen.log is not None:
        model = seen.moves if seen.regression is None else seen.regression
        assert model is not None
        return float(coverage(seen.log, basis=model.columns).extrapolated_share.max())
    return float(unvisited(fit.reward_basis, seen.effects.states).mean())


def unvisited(basis: Basis | Cells, states: Array) -> NDArray[np.bool_]:
    """The points of a grid without states around them ``[k]``; none for a basis that is not a grid."""
    if not isinstance(basis, Cells):
        return np.zeros(basis.size, dtype=bool)
    index, value = basis.corners(states)
    return np.asarray(np.bincount(index.ravel(), value.ravel(), basis.size) < NEAR)
