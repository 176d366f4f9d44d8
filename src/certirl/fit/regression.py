"""Effects of the actions as functions of the state, by least squares on columns that predict held-out rows best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import add
from typing import Any, NamedTuple, Self

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
COMPARED = 200_000  # rows of each action, at most, whose errors are compared with those of neighbours

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

    columns, sums, weights, trial = best_columns(log, held_out_rows(log), choices_of(basis, degrees, 0.5), goals)
    return Regression(basis, columns, weights, _difference_noise(log, sums, weights), trial)


class LeastSquaresSums(NamedTuple):
    """Sums over n states, at each of which g actions were tried, for least squares of goals y on columns χ."""

    n: int  # the number of states
    gram: Array  # Σ χχᵀ ``[m, m]``
    cross: Array  # Σ χyᵀ ``[g, m, q]``
    squares: Array  # Σ y² ``[g, q]``
    scatter: Array  # Σ zzᵀ ``[q, q]`` with z = y of every action, or its difference from that of the first if paired

    @classmethod
    def of(cls, log: Transitions, columns: Basis, goals: Goals, rows: NDArray[np.intp]) -> LeastSquaresSums:
        """Sums over some rows ``[g, n]`` of a log, those of one column from the same state."""
        (g, n), m, q = rows.shape, columns.size, goals(np.zeros(1, dtype=np.intp)).shape[1]
        gram, cross, squares, scatter = np.zeros((m, m)), np.zeros((g, m, q)), np.zeros((g, q)), np.zeros((q, q))
        for block in blocks(n):
            values, first = columns.values(log.states[rows[0, block]]), None
            gram += values.T @ values
            for action, of_action in enumerate(rows[:, block]):
                y = goals(of_action)
                cross[action] += values.T @ y
                squares[action] += np.einsum("nq,nq->q", y, y)
                if log.paired:
                    first = y if first is None else first
                    y = y - first
                scatter += y.T @ y
        return cls(n, gram, cross, squares, scatter)

    def __add__(self, other: LeastSquaresSums) -> LeastSquaresSums:  # type: ignore[override]
        return LeastSquaresSums(*map(add, self, other))

    def of_columns(self, chosen: slice | NDArray[Any]) -> LeastSquaresSums:
        """The sums of some columns."""
        return self._replace(gram=self.gram[chosen][:, chosen], cross=self.cross[:, chosen])

    def of_goals(self, chosen: slice | NDArray[Any]) -> LeastSquaresSums:
        """The sums of some goals."""
        scatter = self.scatter[chosen][:, chosen]
        return self._replace(cross=self.cross[..., chosen], squares=self.squares[:, chosen], scatter=scatter)

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
    ridged[np.diag_indices(len(gram))] += RIDGE * np.trace(gram) / max(len(gram), 1) + 1e-300
    return np.linalg.solve(ridged, cross)


def solve_least_squares(values: Array, goals: Array) -> Array:
    """Coefficients ``[m, …]`` with which the values ``[n, m]`` come closest to the goals ``[n, …]``."""
    return solve_normal(values.T @ values, values.T @ goals)


@dataclass(frozen=True)
class Terms(Record):
    """Which columns predict some of the goals, and which of their weights actions have in common.

    Attributes:
        goals: their numbers; None for all.
        of: the coordinates that they depend on; None for all.
        shared: "none" of the weights, all but that of the "slopes" (the constant is each action's own), or "all".
    """

    goals: tuple[int, ...] | None = None
    of: tuple[int, ...] | None = None
    shared: str = "none"

    @property
    def _goals(self) -> slice | NDArray[np.intp]:
        return slice(None) if self.goals is None else np.array(self.goals)

    def masks(self, columns: Basis, size: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the first columns have weights for each action, and which have one weight for all: two ``[m]``."""
        used = np.arange(columns.size) < size
        if self.of is not None:
            used &= (np.delete(columns.degrees, self.of, axis=1) == 0).all(axis=1)
        constant = (columns.degrees == 0).all(axis=1)
        own = used & {"none": np.ones_like(used), "slopes": constant, "all": np.zeros_like(used)}[self.shared]
        return own, used & ~own

    def is_affordable(self, columns: Basis, log: Transitions) -> bool:
        """Whether a log has three rows for each weight."""
        own, common = self.masks(columns, columns.size)
        return bool(3 * own.sum() <= log.counts.min() and 3 * (own.sum() + common.sum()) <= len(log))

    def solve(self, sums: Sequence[LeastSquaresSums], columns: Basis, size: int) -> Array:
        """The weights ``[A, m, q]`` with which the first columns come closest to these goals; zero for the others."""
        own, common = self.masks(columns, size)
        of_goals = [group.of_goals(self._goals) for group in sums]
        gram, goals = np.zeros((common.sum(),) * 2), np.zeros((common.sum(), of_goals[0].cross.shape[2]))
        for group in of_goals if common.any() else []:
            across = solve_normal(group.gram[own][:, own], group.gram[own][:, common])
            gram += len(group.cross) * (group.gram[common][:, common] - group.gram[common][:, own] @ across)
            goals += (group.cross[:, common] - across.T @ group.cross[:, own]).sum(axis=0)
        together, weights = solve_normal(gram, goals), []
        for group in of_goals:
            rest = group.cross[:, own] - group.gram[own][:, common] @ together
            of_group = np.zeros((len(group.cross), columns.size, sums[0].cross.shape[2]))
            found = np.zeros((len(group.cross), columns.size, goals.shape[1]))
            found[:, own] = group.of_columns(own)._replace(cross=rest).solve()
            found[:, common] = together
            of_group[..., self._goals] = found
            weights.append(of_group)
        return np.concatenate(weights)

    def error(self, fitted: Sequence[LeastSquaresSums], tested: Sequence[LeastSquaresSums], columns: Basis) -> float:
        """Σ |y − Bᵀχ|² over tested rows, with weights of the first columns from the fitted ones."""
        chosen = slice(columns.size)
        weights, at, total = self.solve([fit.of_columns(chosen) for fit in fitted], columns, columns.size), 0, 0.0
        for test in tested:
            of_group = weights[at : at + len(test.cross), :, self._goals]
            total += test.of_columns(chosen).of_goals(self._goals).error(of_group)
            at += len(test.cross)
        return total

    def inverses(self, sums: Sequence[LeastSquaresSums], columns: Basis) -> Array:
        """M ``[A, m, m]``: χᵀMχ is the variance of what is predicted after each action, in units of the noise."""
        own, common = self.masks(columns, columns.size)
        identity, gram, parts = np.eye(columns.size), np.zeros((common.sum(),) * 2), []
        for group in sums:
            inverse = solve_normal(group.gram[own][:, own], np.eye(int(own.sum())))
            across = group.gram[common][:, own] @ inverse
            gram += len(group.cross) * (group.gram[common][:, common] - across @ group.gram[own][:, common])
            away = identity[common] - across @ identity[own]
            parts += [(identity[own].T @ inverse @ identity[own], away)] * len(group.cross)
        inverse = solve_normal(gram, np.eye(len(gram)))
        return np.stack([alone + away.T @ inverse @ away for alone, away in parts])


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


class Choices(NamedTuple):
    """Columns to choose from, each set the first functions of the next."""

    candidates: list[Basis]
    fallback: Basis  # where there are too few transitions for all of them


def choices_of(basis: Basis, degrees: Sequence[float], fallback: float) -> Choices:
    """Columns of these degrees, in units of that of a basis."""
    candidates = sorted({richer(basis, degree) for degree in degrees}, key=lambda columns: columns.size)
    return Choices(candidates, richer(basis, fallback))


def best_columns(
    log: Transitions,
    held_out: NDArray[np.bool_],
    choices: Choices,
    goals: Goals,
    tolerance: float = 1.0,
    terms: Sequence[Terms] = (Terms(),),
) -> tuple[Basis, list[LeastSquaresSums], Array, Array]:
    """The columns with which held-out rows are predicted best, the sums, and weights ``[A, m, q]`` of all rows.

    The last are weights without the rows that are held out. The sums of the largest columns hold those of all.

    Rows that are ``held_out`` ``[n]`` are predicted from the others; ``goals`` are what to predict, in units in which
    errors are to be compared, and ``terms`` say of which columns, and where actions share weights. Fewer columns are
    preferred whose error is at most ``tolerance`` times the least.
    """
    affordable = [c for c in choices.candidates if all(each.is_affordable(c, log) for each in terms)]
    affordable = affordable or [choices.fallback]
    largest = affordable[-1]
    fitted, tested = list[LeastSquaresSums](), list[LeastSquaresSums]()
    for rows in rows_of_actions(log):
        is_tested = held_out[rows[0]]
        for sums, part in ((tested, rows[:, is_tested]), (fitted, rows[:, ~is_tested])):
            sums.append(LeastSquaresSums.of(log, largest, goals, part))
    sizes = []
    for each in terms:
        errors = [each.error(fitted, tested, c) for c in affordable] if len(affordable) > 1 else [0.0]
        sizes.append(
            next(c.size for c, error in zip(affordable, errors, strict=True) if error <= tolerance * min(errors))
        )
    best = next(c for c in affordable if c.size == max(sizes))
    some = [fit.of_columns(slice(best.size)) for fit in fitted]
    every = [fit + test.of_columns(slice(best.size)) for fit, test in zip(some, tested, strict=True)]
    trial, weights = (
        np.sum([each.solve(sums, best, size) for each, size in zip(terms, sizes, strict=True)], axis=0)
        for sums in (some, every)
    )
    return best, every, weights, trial


def _difference_noise(log: Transitions, sums: Sequence[LeastSquaresSums], weights: Array) -> Array:
    """The covariance of the error of a difference of two actions ``[k, k]``: of each m/n of its residual covariance.

    Common random numbers affect all actions alike, and what they share cancels.
    """
    total, each = np.zeros_like(sums[0].scatter), iter(weights)
    for group in sums:
        B = np.stack(list(islice(each, len(group.cross))))
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
    the mean product estimates the squared error without the noise. Of many rows some are compared.
    """
    from scipy.spatial import KDTree

    total, count, actions = 0.0, 0, np.broadcast_to(actions, len(places))
    for action in np.unique(actions):
        rows = np.flatnonzero(actions == action)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), COMPARED)).astype(int)]
        if len(rows) > 1:
            near = KDTree(places[rows]).query(places[rows], k=2)[1][:, 1]
            total, count = total + float(np.sum(errors[rows] * errors[rows[near]])), count + errors[rows].size
    return total / max(count, 1)
