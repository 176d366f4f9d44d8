"""Effects of the actions as functions of the state, by least squares on columns that predict held-out rows best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from certirl.data.dependence import originals
from certirl.data.simulator import Terminal
from certirl.data.transitions import Transitions
from certirl.fit import effects
from certirl.fit.effects import Effects, Rows, blocks, features, richer
from certirl.functions.bases import Basis
from certirl.ground.domain import Array
from certirl.ground.records import Record

DEGREES = (0.4, 0.6, 1.0, 1.6, 2.3)  # of the columns of a regression of V's functions, in units of the degree of V
RIDGE = 1e-9  # of the mean square of a function, which keeps directions without data at zero
FOLDS = 5  # of the rows or episodes, one of which is held out
COMPARED = 5_000  # rows of each action whose errors are compared with their neighbours

Goals = Callable[[NDArray[np.intp]], Array]  # rows of a log to what is predicted there [n, q]


@dataclass(frozen=True, eq=False)
class Regression(Record):
    """P̂_aφ as functions of the state, by least squares: ``(P̂_aφ_i)(s) = Σ_j B_aji χ_j(s)``."""

    basis: Basis  # φ, of V
    columns: Basis  # χ, of the state
    weights: Array  # B ``[A, m, k]``
    noise: Array  # the covariance ``[k, k]`` of a difference of two actions' rows, on average over the states
    trial: Array  # B from the rows that are not held out; see `held_out_rows`

    def effects(self, states: Array, periodic: tuple[int, ...] = ()) -> RegressedEffects:
        """The effects at some states."""
        return RegressedEffects(self.basis, states, periodic, self)


@dataclass(frozen=True, eq=False)
class RegressedEffects(Effects):
    """Effects as functions of the state."""

    regression: Regression  # of (P_aφ)(s) on the state
    values: Array | None = None  # its columns at the states ``[n, m]``; computed where they are needed if None

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.regression.weights)

    @property
    def noise(self) -> Array:
        """The mean squared error ``[k, k]`` of a difference of two actions' rows."""
        return self.regression.noise

    def _columns(self, rows: Rows) -> Array:
        return self.regression.columns.values(self.states[rows]) if self.values is None else self.values[rows]

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        values, weights = self._columns(np.arange(len(self))[rows]), self.regression.weights
        if isinstance(actions, int):
            return values @ weights[actions]
        total = np.empty((len(values), self.basis.size))
        for action in np.unique(actions):
            total[actions == action] = values[actions == action] @ weights[action]
        return total

    def after_each(self, rows: Rows) -> Array:
        """(P_aφ)(s) of every action ``[A, r, k]`` at some of the states."""
        return self._columns(rows) @ self.regression.weights

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) for each action ``[A, n]``."""
        of_actions = self.regression.weights @ w
        if self.values is not None:
            return of_actions @ self.values.T
        return self.regression.columns.combined(self.states, of_actions.T).T

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        values = None if self.values is None else self.values[kept]
        return replace(self, states=self.states[kept], values=values)

    def stored(self) -> Effects:
        """The same with the columns at the states."""
        if 4 * len(self) * self.regression.columns.size > effects.MOST_STORED:
            return self
        return replace(self, values=np.concatenate([self._columns(block) for block in self.blocks()]))


def regress(
    log: Transitions,
    basis: Basis,
    *,
    is_terminal: Terminal | None = None,
    marked: NDArray[np.bool_] | None = None,
    degrees: Sequence[float] = DEGREES,
) -> Regression:
    """Fit (P_aφ)(s) by least squares, with the columns that predict held-out rows best.

    The log may mark which of its transitions lead to terminal states; degrees of the columns are in units of that of V.
    """

    def goals(rows: NDArray[np.intp]) -> Array:
        return features(basis, log.next_states[rows], is_terminal, None if marked is None else marked[rows])

    columns, sums, trial = best_columns(log, held_out_rows(log), basis, degrees, 0.5, goals)
    weights = [group.solve() for group in sums]
    return Regression(basis, columns, np.concatenate(weights), _difference_noise(log, sums, weights), trial)


class LeastSquaresSums(NamedTuple):
    """Sums over n states, at each of which g actions were tried, for least squares of goals y on columns χ."""

    n: int  # the number of states
    gram: Array  # Σ χχᵀ ``[m, m]``
    cross: Array  # Σ χyᵀ ``[g, m, q]``
    squares: Array  # Σ |y|² ``[g]``
    scatter: Array  # Σ zzᵀ ``[q, q]`` with z = y of every action, or its difference from that of the first if paired

    @classmethod
    def of(cls, log: Transitions, columns: Basis, goals: Goals, rows: NDArray[np.intp]) -> LeastSquaresSums:
        """Sums over some rows ``[g, n]`` of a log, those of one column from the same state."""
        (g, n), m, q = rows.shape, columns.size, goals(np.zeros(1, dtype=np.intp)).shape[1]
        gram, cross, squares, scatter = np.zeros((m, m)), np.zeros((g, m, q)), np.zeros(g), np.zeros((q, q))
        for block in blocks(n):
            values, first = columns.values(log.states[rows[0, block]]), None
            gram += values.T @ values
            for action, of_action in enumerate(rows[:, block]):
                y = goals(of_action)
                cross[action] += values.T @ y
                squares[action] += np.einsum("nq,nq->", y, y)
                if log.paired:
                    first = y if first is None else first
                    y = y - first
                scatter += y.T @ y
        return cls(n, gram, cross, squares, scatter)

    def __add__(self, other: LeastSquaresSums) -> LeastSquaresSums:  # type: ignore[override]
        return LeastSquaresSums(*map(add, self, other))

    def leading(self, size: int) -> LeastSquaresSums:
        """The sums of the first columns."""
        return self._replace(gram=self.gram[:size, :size], cross=self.cross[:, :size])

    def solve(self) -> Array:
        """The weights ``[g, m, q]`` with which the columns come closest to the goals."""
        g, m, q = self.cross.shape
        weights = solve_normal(self.gram, self.cross.swapaxes(0, 1).reshape(m, g * q))
        return weights.reshape(m, g, q).swapaxes(0, 1)

    def error(self, weights: Array) -> float:
        """Σ |y − Bᵀχ|² over all actions for weights B ``[g, m, q]``."""
        explained = np.sum(weights * (2 * self.cross - self.gram @ weights))
        return max(float(self.squares.sum() - explained), 0.0)


def solve_normal(gram: Array, cross: Array) -> Array:
    """Coefficients ``[m, …]`` of least squares from Σ χχᵀ ``[m, m]`` and Σ χy ``[m, …]``."""
    ridged = np.array(gram)
    ridged[np.diag_indices(len(gram))] += RIDGE * np.trace(gram) / len(gram) + 1e-300
    return np.linalg.solve(ridged, cross)


def solve_least_squares(values: Array, goals: Array) -> Array:
    """Coefficients ``[m, …]`` with which the values ``[n, m]`` come closest to the goals ``[n, …]``."""
    return solve_normal(values.T @ values, values.T @ goals)


def held_out_rows(log: Transitions) -> NDArray[np.bool_]:
    """The rows to test a fit on ``[n]``: the first of the `folds`."""
    return folds(log) == 0


def folds(log: Transitions) -> NDArray[np.intp]:
    """The number of the fold of each row ``[n]``: every fifth of each action, or whole episodes, a fifth of them.

    Few episodes are divided into parts of consecutive rows.
    """
    if log.episodes is None:
        numbers = np.empty(len(log), dtype=np.intp)
        for action, count in enumerate(log.counts):
            numbers[log.actions == action] = np.arange(count) % FOLDS
        return numbers
    first = originals(log.groups()[0], *log.states.T, log.actions)  # a copy is no test
    groups = np.unique(first, return_inverse=True)[1].reshape(-1)
    if groups.max() + 1 < 2 * FOLDS:
        groups = np.arange(len(log)) * FOLDS**2 // len(log)
    return np.asarray((np.random.default_rng(0).permutation(int(groups.max()) + 1) % FOLDS)[groups])


def best_columns(
    log: Transitions,
    held_out: NDArray[np.bool_],
    basis: Basis,
    degrees: Sequence[float],
    fallback: float,
    goals: Goals,
    tolerance: float = 1.0,
) -> tuple[Basis, list[LeastSquaresSums], Array]:
    """The columns with which held-out rows are predicted best, the sums of all rows, and weights without held-out rows.

    Smaller sets are the first functions of larger ones, so that the sums of the largest hold those of all.

    Rows that are ``held_out`` ``[n]`` are predicted from the others; ``goals`` are what to predict, in units in which
    errors are to be compared. ``degrees`` are those of the columns, in units of that of the basis, ``fallback`` the one
    where there are too few transitions for all of these. Fewer columns are preferred whose error is at most
    ``tolerance`` times the least.
    """
    candidates = sorted({richer(basis, degree) for degree in degrees}, key=lambda columns: columns.size)
    affordable = [columns for columns in candidates if columns.size * 3 <= log.counts.min()]
    affordable = affordable or [richer(basis, fallback)]
    largest = affordable[-1]
    fitted, tested = list[LeastSquaresSums](), list[LeastSquaresSums]()
    for rows in rows_of_actions(log):
        is_tested = held_out[rows[0]]
        for sums, part in ((tested, rows[:, is_tested]), (fitted, rows[:, ~is_tested])):
            sums.append(LeastSquaresSums.of(log, largest, goals, part))
    best, errors = affordable[0], []
    if len(affordable) > 1:
        for size in (columns.size for columns in affordable):
            pairs = zip(fitted, tested, strict=True)
            errors.append(sum(test.leading(size).error(fit.leading(size).solve()) for fit, test in pairs))
        best = next(c for c, error in zip(affordable, errors, strict=True) if error <= tolerance * min(errors))
    trial = np.concatenate([fit.leading(best.size).solve() for fit in fitted])
    return best, [(fit + test).leading(best.size) for fit, test in zip(fitted, tested, strict=True)], trial


def _difference_noise(log: Transitions, sums: Sequence[LeastSquaresSums], weights: Sequence[Array]) -> Array:
    """The covariance of the error of a difference of two actions ``[k, k]``: of each m/n of its residual covariance.

    Common random numbers affect all actions alike, and what they share cancels.
    """
    total = np.zeros_like(sums[0].scatter)
    for group, B in zip(sums, weights, strict=True):
        scatter, m, shared = np.array(group.scatter), len(group.gram), int(log.paired)
        for fit, cross in zip(B[shared:] - shared * B[0], group.cross[shared:] - shared * group.cross[0], strict=True):
            explained = cross.T @ fit
            scatter += fit.T @ group.gram @ fit - explained - explained.T
        total += scatter * (m / group.n**2)
    return total / max(log.n_actions - 1, 1) if log.paired else 2 * total / log.n_actions


def rows_of_actions(log: Transitions) -> list[NDArray[np.intp]]:
    """The rows of all actions ``[A, n]`` if they were tried in the same states, else of each alone ``[1, n]``."""
    rows = [np.flatnonzero(log.actions == action) for action in range(log.n_actions)]
    same = all(
        len(own) == len(rows[0]) and (log.paired or np.array_equal(log.states[own], log.states[rows[0]]))
        for own in rows
    )
    return [np.stack(rows)] if same else [own[None] for own in rows]


def neighbour_products(errors: Array, places: Array, actions: NDArray[np.intp] | int = 0) -> float:
    """The mean product of errors ``[n, q]`` at neighbouring places ``[n, d]`` of one action ``[n]``.

    Errors of a fit at two neighbouring states share the fit's error and not the noise of the two next states, so that
    the mean product estimates the squared error without the noise.
    """
    from scipy.spatial import KDTree

    total, count, actions = 0.0, 0, np.broadcast_to(actions, len(places))
    for action in np.unique(actions):
        rows = np.flatnonzero(actions == action)
        if len(rows) > 1:
            near = KDTree(places[rows]).query(places[rows], k=2)[1][:, 1]
            total, count = total + float(np.sum(errors[rows] * errors[rows[near]])), count + errors[rows].size
    return total / max(count, 1)
