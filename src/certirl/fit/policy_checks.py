"""How far to trust what was learned of an expert: errors of the estimated effects, growth, missing data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.coverage import coverage
from certirl.data.policy import Policy
from certirl.data.simulator import Terminal
from certirl.data.terminal import TerminalBoxes
from certirl.data.transitions import Transitions
from certirl.fit.effects import Effects, Regression, features, richer, unit_chart
from certirl.fit.next_states import Moves
from certirl.fit.termination import LiftedFit, constant, continuing
from certirl.fit.value_program import SMOOTH, Comparisons, ValueFit, least_squares
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.ground.domain import Array, Domain

LOOKED_AT = 5_000  # rows of each action whose misses are compared with their neighbours
SURE = 0.999  # a chance of going on that is none of ending
NEAR = 0.05  # a grid point with less weight of states around it rests on its neighbours


class World(NamedTuple):
    """The problem."""

    source: Any
    policy: Policy
    domain: Domain
    periodic: tuple[int, ...]
    ended: Terminal | None
    discount: float
    ends: TerminalBoxes | None = None


class Seen(NamedTuple):
    """What the data gave.

    Attributes:
        effects: of every action.
        regression: of V's functions on the state, if that is where effects are from.
        log: the transitions behind them; None if the simulator was asked at every state.
        samples: how many there were; of a log, the fewest of an action.
        most: of a log, transitions of the action with most; None if all have as many.
        moves: of the state itself, regressed; None if they were not tried.
        moved: effects are from these.
        model_error: of these, as `moves.relative_error` has it.
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
        assert seen.log is not None
        fitted = seen.regression.weights @ fit.value
        return seen.regression.columns, fitted, _regression_error(world, seen, fit, fitted)
    effects, goals = seen.effects, seen.effects.after @ fit.value
    states = effects.states
    if lifted is not None:  # no choice is made where every action terminates, and a jump there would spoil the rest
        chance = continuing(effects)
        kept = ~lifted.terminating
        if not effects.seen:  # estimates of termination differ at a threshold, by the whole value of continuing
            kept &= (chance > SURE).all(axis=0)
        states, goals = states[kept], goals[:, kept]
    if not effects.seen:  # what all actions share, ends and noise above all, chooses none and is the hardest to fit
        goals = goals - goals.mean(axis=0)
    fold = np.arange(len(states)) % 5 == 0
    candidates: list[Basis | Cells] = [richer(effects.basis, factor) for factor in (1.0, 1.6)]
    candidates += [fit.reward_basis] if isinstance(fit.reward_basis, Cells) else []
    candidates = [one for one in candidates if one.size <= 0.4 * len(states)] or [richer(effects.basis, 0.5)]
    errors = [_missed(one, states, goals, fold) for one in candidates]
    best = candidates[int(np.argmin(errors))]
    effect = float(np.sqrt(np.mean((goals - goals.mean(axis=0)) ** 2) * 2))
    error = (_moved_error(world, seen, fit) if seen.moved else min(errors)) / max(effect, 1e-300)
    return best, least_squares(best, states, SMOOTH)(goals.T)[1].T, error


def _missed(columns: Basis | Cells, states: Array, goals: Array, fold: NDArray[np.bool_]) -> float:
    """The root mean square error on a fold that the fit has not seen."""
    _, fitted = least_squares(columns, states[~fold], SMOOTH)(goals[:, ~fold].T)
    found = np.stack([columns.combined(states[fold], own) for own in fitted.T])
    return float(np.sqrt(np.mean((found - goals[:, fold]) ** 2)))


def _moved_error(world: World, seen: Seen, fit: ValueFit) -> float:
    """What regressed moves miss of V at the next states, without the noise: see `_regression_error`.

    Only rows that go on count, and surely so: beside an end all that going on is worth would pass for an error.
    """
    from scipy.spatial import KDTree

    assert seen.moves is not None and seen.log is not None
    log, total, count = seen.log, 0.0, 0
    truth, basis = features(seen.effects.basis, log.next_states, world.ended, log.terminal), seen.effects.basis
    goes_on, one = truth[:, 0] != 0, constant(seen.effects)
    for action in range(log.n_actions):
        rows = np.flatnonzero((log.actions == action) & goes_on)[:LOOKED_AT]
        ahead = seen.moves.after(basis, log.states[rows], np.random.default_rng(0))[action]
        sure = ahead[:, 0] / one > SURE
        missed, rows = (truth[rows[sure]] - ahead[sure]) @ fit.value, rows[sure]
        if len(rows) < 2:
            continue
        places = unit_chart(log.states[rows], world.domain, world.periodic)
        _, neighbours = KDTree(places).query(places, k=2)
        total, count = total + float(missed @ missed[neighbours[:, 1]]), count + len(missed)
    return float(np.sqrt(max(total / max(count, 1), 0.0)))


def _regression_error(world: World, seen: Seen, fit: ValueFit, fitted: Array) -> float:
    """Model error over action effect where next states are random.

    What a fit misses at two neighbouring states agrees in its own error and not in their noise, so that the mean
    product of held-out misses of neighbours estimates the squared error without the noise; it is at least what
    sampling leaves in a row.
    """
    from scipy.spatial import KDTree

    assert seen.regression is not None and seen.log is not None
    log, low, total, count = seen.log, np.array(world.domain)[:, 0], 0.0, 0
    width = np.diff(np.array(world.domain), axis=1)[:, 0]
    ends = features(seen.regression.basis, log.next_states, world.ended, log.terminal) @ fit.value
    for action in range(log.n_actions):
        states, goals = log.states[log.actions == action], ends[log.actions == action]
        fold = np.arange(len(states)) % 2 == 0
        values = seen.regression.columns.values(states)
        gram = values[~fold].T @ values[~fold]
        gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
        missed = (goals - values @ np.linalg.solve(gram, values[~fold].T @ goals[~fold]))[fold]
        places = ((states - low) / width)[fold]
        _, neighbours = KDTree(places).query(places, k=2)
        total, count = total + float(missed @ missed[neighbours[:, 1]]), count + len(missed)
    found = np.stack([seen.regression.columns.combined(seen.effects.states, own) for own in fitted])
    effect = float(np.sqrt(np.mean((found - found.mean(axis=0)) ** 2) * 2))
    # A difference of two actions has the errors of both; a fit on half of the data has twice that of the whole.
    squared = max(total / count, float(fit.value @ seen.regression.noise @ fit.value))
    return float(np.sqrt(squared)) / max(effect, 1e-300)


def spectral_radius(effects: Effects, rows: Comparisons) -> float:
    """ρ(T̂) of the policy's square matrix on V's functions, by least squares."""
    gram = effects.now.T @ effects.now
    gram[np.diag_indices(len(gram))] += 1e-9 * np.trace(gram) / len(gram)
    return float(np.abs(np.linalg.eigvals(np.linalg.solve(gram, effects.now.T @ rows.expert))).max())


def uncovered(world: World, seen: Seen, fit: ValueFit) -> float:
    """The share of R's grid points without states around them; of a log, of the box where an action is extrapolated."""
    if isinstance(world.source, Transitions) and seen.log is not None:
        behind = seen.moves if seen.regression is None else seen.regression
        assert behind is not None
        return float(coverage(seen.log, basis=behind.columns).extrapolated_share.max())
    return float(unvisited(fit.reward_basis, seen.effects.states).mean())


def unvisited(basis: Basis | Cells, states: Array) -> NDArray[np.bool_]:
    """The points of a grid without states around them ``[k]``; none if it is no grid."""
    if not isinstance(basis, Cells):
        return np.zeros(basis.size, dtype=bool)
    index, value = basis.corners(states)
    return np.asarray(np.bincount(index.ravel(), value.ravel(), basis.size) < NEAR)
