"""Where an action leads, regressed: ``s' = s + f_a(s) + noise``, whose noise is what the regression left over.

Functions of the next state are steep: they swing, and at an end they jump to 0, which no regression of them on s can
follow. Where s' itself depends smoothly on s and noise is small, that is better regressed, and the functions are looked
at where it leads. Noise is taken to be the same everywhere, so held-out data must say whether it is the better way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certirl.data.simulator import Terminal
from certirl.data.transitions import Transitions
from certirl.fit.effects import Effects, Regression, features, richer, rows_of, solve_least_squares
from certirl.functions.bases import Basis
from certirl.ground.domain import Array, Domain, as_rows, freeze, into_domain

DEGREES = (0.2, 0.4, 0.6, 1.0)  # of the columns, in units of that of V
DRAWS = 8  # leftovers that stand for the noise at a state
POOL = 4096  # leftovers kept
STILL = 1e-6  # of the box: noise smaller than this is none
SCORED = 4000  # held-out rows that two ways are compared on
CLEARLY = 0.8  # of the other's error


@dataclass(frozen=True, eq=False)
class Moves:
    """A simulator made of a log: the regressed move, and leftovers drawn for the noise.

    Attributes:
        columns: functions χ of the state.
        weights: of the moves ``[A, m, d]``.
        leftovers: what the moves missed ``[J, d]``.
        domain: the box.
        periodic: coordinates that go around.
        ended: which states are terminal; None if none is.
    """

    columns: Basis
    weights: Array
    leftovers: Array
    domain: Domain
    periodic: tuple[int, ...]
    ended: Terminal | None

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights)

    @property
    def still(self) -> bool:
        """There is no noise to speak of."""
        width = np.diff(np.array(self.domain), axis=1)[:, 0]
        return bool(np.sqrt(np.mean((self.leftovers / width) ** 2)) < STILL)

    def mean(self, states: Array) -> Array:
        """s + f_a(s) for every action ``[A, n, d]``, not yet put into the box."""
        return states + np.einsum("nm,amd->and", self.columns.values(states), self.weights, optimize=True)

    def placed(self, states: Array) -> Array:
        """States ``[…, d]`` moved into the box."""
        return into_domain(states, self.domain, self.periodic)

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, d]``."""
        rows = as_rows(states, len(self.domain))
        moved = rows + self.columns.values(rows) @ self.weights[action]
        return self.placed(moved + self.leftovers[rng.integers(len(self.leftovers), size=len(rows))])

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]``: the mean plus some leftovers, the same everywhere."""
        rows = as_rows(states, len(self.domain))
        moved = rows + self.columns.values(rows) @ self.weights[action]
        noise = np.zeros((1, len(self.domain))) if self.still else self.leftovers[:DRAWS]
        return self.placed(moved + noise[:, None]), np.full(len(noise), 1 / len(noise))

    def terminal(self, states: Array) -> Any:
        """Which states end it ``[n]``."""
        return np.zeros(len(states), dtype=bool) if self.ended is None else self.ended(states)

    def after(self, basis: Basis, states: Array, rng: np.random.Generator) -> Array:
        """(P̂_aφ)(s) ``[A, n, k]``: the mean over leftovers, the same ones for every action."""
        ahead, draws = self.mean(states), 1 if self.still else DRAWS
        total = np.zeros((self.n_actions, len(states), basis.size))
        for _ in range(draws):
            noise = 0.0 if self.still else self.leftovers[rng.integers(len(self.leftovers), size=len(states))]
            for action, moved in enumerate(ahead):
                total[action] += features(basis, self.placed(moved + noise), self.ended)
        return total / draws

    def effects(self, basis: Basis, states: Array, rng: np.random.Generator) -> Effects:
        """What the actions do to a basis at some states."""
        now = features(basis, states, self.ended)
        return Effects(basis, states, now, self.after(basis, states, rng), self.periodic, seen=False)


def regress_moves(
    log: Transitions, basis: Basis, *, ended: Terminal | None, periodic: tuple[int, ...], rng: np.random.Generator
) -> Moves:
    """Fit the moves by least squares, with the columns that predict every fifth row best from the others."""
    low, high = np.array(log.domain).T
    moved = log.next_states - log.states
    for axis in periodic:
        width = high[axis] - low[axis]
        moved[:, axis] = (moved[:, axis] + width / 2) % width - width / 2
    fold, units = np.arange(len(log)) % 5 == 0, moved.std(axis=0) + 1e-300
    fewest, errors = int(log.counts.min()), {}
    candidates = {one.size: one for one in (richer(basis, factor) for factor in DEGREES)}
    affordable = [one for one in candidates.values() if one.size * 3 <= fewest] or [min(candidates.values(), key=_size)]
    for columns in affordable:
        values = columns.values(log.states)
        missed = [
            moved[rows & fold] - values[rows & fold] @ solve_least_squares(values[rows & ~fold], moved[rows & ~fold])
            for rows in rows_of(log)
        ]
        errors[columns.size] = float(np.mean((np.concatenate(missed) / units) ** 2))
    best = min(affordable, key=lambda one: errors[one.size])
    values, left = best.values(log.states), np.empty_like(moved)
    weights = []
    for rows in rows_of(log):
        weights.append(solve_least_squares(values[rows], moved[rows]))
        # Fitted rows miss less than fresh ones: by the functions that were spent on them.
        left[rows] = (moved[rows] - values[rows] @ weights[-1]) / np.sqrt(max(1 - best.size / rows.sum(), 0.1))
    kept = left[rng.permutation(len(left))[:POOL]]
    return Moves(best, np.stack(weights), kept, log.domain, periodic, ended)


def _size(basis: Basis) -> int:
    return basis.size


def relative_error(moves: Moves, regression: Regression, log: Transitions, rng: np.random.Generator) -> float:
    """The squared error of moves over that of the regression, in predicting the functions at the next states.

    Below `CLEARLY` moves are the better way; above 1/`CLEARLY` they are no model of the next state. Both have seen the
    rows; the regression, with more columns, gains more by it.
    """
    basis = regression.basis
    chosen = rng.permutation(len(log))[:SCORED]
    states, actions, own = log.states[chosen], log.actions[chosen], np.arange(len(chosen))
    over = None if log.terminal is None else log.terminal[chosen]
    truth = features(basis, log.next_states[chosen], moves.ended, over)
    errors = [
        float(np.mean((predicted[actions, own] - truth) ** 2))
        for predicted in (moves.after(basis, states, rng), regression.at(states))
    ]
    return errors[0] / max(errors[1], 1e-300) if errors[0] > 0 else 0.0
