"""Simulators made of data: models of the next state, and drawn transitions that are moved to states nearby."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.coverage import EXTRAPOLATED
from certirl.data.simulator import Terminal
from certirl.data.transitions import Transitions
from certirl.fit.drifts import DEGREES, EACH_ITS_OWN, FEWEST, Against, Drifts
from certirl.fit.effects import MeanEffects, blocks, features, richer
from certirl.fit.regression import Regression, best_columns, held_out_rows, neighbour_products
from certirl.functions.bases import Basis
from certirl.functions.cells import MOST_COORDINATES
from certirl.ground.domain import Array, Box, as_rows
from certirl.ground.records import Record

DRAWS = 8  # residuals that stand for the noise at a state
MOST_RESIDUALS = 4096  # that a model of the next state keeps
NOISELESS = 1e-6  # of the box: smaller noise is none
TIE = 1e-6  # of the box: by about as much inputs are moved, so that those of no two rows are the same
JUMP, MOST_JUMPS = 20.0, 0.02  # errors of the next state, in units of their median, and the largest share of such rows
SCORED = 4000  # rows on which two regressions are compared
NEGLIGIBLE = 0.01  # of the mean square of a step: an error of a model that is no matter
CLEARLY = 0.8  # of the other's error
NEIGHBOURS = {1: 64, 2: 16}  # drawn states whose next states stand for those of a state, by coordinates; else 8
SIMPLER = 1.1  # of the least error: with many coordinates, what fewer columns may miss of the next state
STOPPED = 3  # next states at an end of the box: with as many, steps are taken to be stopped there
AWAY, ROUNDS = 3.0, 4  # standard deviations from that end: a step that is expected nearer to it tells nothing; rounds
PARTS = 50  # of consecutive held-out rows, where there are no episodes


@dataclass(frozen=True, eq=False)
class MadeOfData(Record):
    """What simulators made of data have in common."""

    domain: Box  # the box
    periodic: tuple[int, ...]  # coordinates that are periodic
    is_terminal: Terminal | None  # which states are terminal; None if none is

    def terminal(self, states: Array) -> Any:
        """Which states are terminal ``[n]``."""
        return np.zeros(len(states), dtype=bool) if self.is_terminal is None else self.is_terminal(states)

    def _into_box(self, states: Array) -> Array:
        return self.domain.moved_into(states, self.periodic)


@dataclass(frozen=True, eq=False)
class NextStateModel(MadeOfData):
    """A simulator learned from a log: ``s' = s + f_a(s) + noise``, where residuals of the regression are the noise.

    Functions of the next state are steep, and at terminal states they jump to 0, which no regression of them on s can
    follow. Where s' itself depends smoothly on s and noise is small, s' is better regressed, and the functions are
    evaluated there. Noise is taken to be the same everywhere, so the two are compared on held-out data. Inputs that no
    action moves may jump, as set points do: with them, noise is that of the rows whose inputs are nearest.
    """

    columns: Basis  # functions χ of the state
    weights: Array  # of f_a ``[A, m, d]``
    residuals: Array  # of the regression ``[J, d]``
    origins: Array  # the states of their rows ``[J, d]``
    exogenous: tuple[int, ...]  # coordinates that no action moves
    # the least and the largest step s' − s of the log along each coordinate ``[2, d]``; where the fit is extrapolated
    # it is clipped to these
    steps: Array
    inverses: Array  # of the matrices Σχχᵀ over the states from which each action was taken ``[A, m, m]``
    trial: Array  # the weights from the rows that are not held out; see `held_out_rows`
    jumps: float = 0.0  # the share of the log's rows that were left out of the fit; see `regress_next_states`
    # the standard error of the mean next state over the effect of an action, both as root mean squares over states of
    # the log; from 0.7 on the data hardly distinguish the actions
    error: float = float("nan")

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights)

    @property
    def noiseless(self) -> bool:
        """Whether the residuals are as small as rounding."""
        return bool(np.sqrt(np.mean((self.residuals / self.domain.width) ** 2)) < NOISELESS)

    def _mean(self, states: Array, action: int) -> Array:
        """s + f_a(s) ``[n, d]``, which may lie outside the box."""
        rows = as_rows(states, len(self.domain))
        return rows + np.clip(self.columns.combined(rows, self.weights[action]), *self.steps)

    def _inputs(self, states: Array) -> Array:
        """Places ``[n, e]`` that differ where inputs do, and by a little where these are the same."""
        given = np.where(np.isin(np.arange(len(self.domain)), self.exogenous), states, self.domain.low)
        places = self.domain.chart(given, self.periodic)
        return np.asarray(places + TIE * np.random.default_rng(0).standard_normal(places.shape))

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(self._inputs(self.origins))

    def _noise(self, states: Array, rng: np.random.Generator | None = None) -> Array:
        """Residuals ``[m, n, d]``, or ``[m, 1, d]``: some of all, or of the rows with the nearest inputs."""
        if self.noiseless:
            return np.zeros((1, 1, len(self.domain)))
        if self.exogenous:
            near = self._tree.query(self._inputs(states), k=range(1, min(DRAWS, len(self.residuals)) + 1))[1]
            return self.residuals[near.T]
        if rng is None:
            return self.residuals[:DRAWS, None]
        return self.residuals[rng.integers(len(self.residuals), size=(DRAWS, len(states)))]

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, d]``."""
        mean = self._mean(states, action)
        if not self.exogenous:
            return self._into_box(mean + self.residuals[rng.integers(len(self.residuals), size=len(mean))])
        noise = self._noise(states)
        return self._into_box(mean + noise[rng.integers(len(noise), size=len(mean)), np.arange(noise.shape[1])])

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]``: the mean plus some residuals."""
        noise = self._noise(states)
        return self._into_box(self._mean(states, action) + noise), np.full(len(noise), 1 / len(noise))

    def extrapolated(self, states: Array, action: int) -> NDArray[np.bool_]:
        """Where the next state of an action is extrapolated ``[n]``: its leverage exceeds 1."""
        return self._leverage(states, action) > EXTRAPOLATED

    def _leverage(self, states: Array, action: int) -> Array:
        """χᵀ(Σχχᵀ)⁻¹χ ``[n]``: the variance of the mean next state, in units of the noise."""
        leverage = np.empty(len(states))
        for block in blocks(len(states)):
            values = self.columns.values(states[block])
            leverage[block] = np.einsum("nm,nm->n", values @ self.inverses[action], values)
        return leverage

    def with_error(self, states: Array, units: Array) -> NextStateModel:
        """With its error at some states; ``units`` make coordinates comparable."""
        actions = range(self.n_actions)
        means = np.stack([self._mean(states, action) / units for action in actions])
        effect = np.mean((means - means.mean(axis=0)) ** 2)
        noise = np.mean((self.residuals / units) ** 2)
        variance = noise * np.mean([self._leverage(states, action) for action in actions])
        return replace(self, error=float(np.sqrt(variance / max(effect, 1e-300))))

    def effects(self, basis: Basis, states: Array, rng: np.random.Generator | None = None) -> MeanEffects:
        """The effects of the actions on a basis: means over residuals, the same ones for every action.

        Beyond four coordinates the mean next state stands for all of them: noise that is the same for every action
        hardly changes which is best, and residuals of contacts, which occur at few states, would be added everywhere.
        """
        alone = self.noiseless or len(self.domain) > MOST_COORDINATES
        means = np.stack([self._mean(states, action) for action in range(self.n_actions)])
        noise = np.zeros((1, 1, len(self.domain)))
        if not alone:
            noise = self._noise(states, rng or np.random.default_rng(0))
        moved = np.stack([[self._into_box(mean + of_draw) for mean in means] for of_draw in noise])
        return MeanEffects.of(basis, states, moved, self.is_terminal, self.periodic)


@dataclass(frozen=True, eq=False)
class Nearby(MadeOfData):
    """A simulator made of drawn transitions: a state moves as drawn states near it did.

    Where the number of draws is limited, walks and plans are made here: they cost none. With noise, the next states of
    a state are those of its nearest drawn states, moved along with them; without noise the step is interpolated
    linearly between them.
    """

    states: Array  # from which all actions were drawn ``[n, d]``
    next_states: Array  # of each action ``[A, n, d]``
    noiseless: bool  # whether next states are a function of state and action
    thread_safe: ClassVar[bool] = True

    @classmethod
    def of(cls, states: Array, next_states: Array, problem: Any, *, noiseless: bool) -> Nearby:
        """From J next states of every action and state ``[J, A, n, d]``; domain and so on are those of the problem."""
        J, A, n, d = next_states.shape
        after = next_states.swapaxes(0, 1).reshape(A, J * n, d)
        places = (problem.domain, problem.periodic, problem.is_terminal)
        return cls(*places, np.tile(states, (J, 1)), after, noiseless)

    def __add__(self, other: Nearby) -> Nearby:
        states = np.concatenate([self.states, other.states])
        return replace(self, states=states, next_states=np.concatenate([self.next_states, other.next_states], axis=1))

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.next_states)

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import KDTree

        return KDTree(self.domain.chart(self.states, self.periodic))

    @cached_property
    def _steps(self) -> Array:
        moved = [self.domain.displacement(self.states, after, self.periodic) for after in self.next_states]
        return np.stack(moved)

    def _near(self, states: Array) -> tuple[NDArray[np.intp], Array]:
        """The nearest drawn states of each state and their weights ``[n, k]``."""
        dimension = len(self.domain)
        k = 2 * dimension + 2 if self.noiseless else NEIGHBOURS.get(dimension, 8)
        k = min(k, len(self.states))
        distances, index = self._tree.query(self.domain.chart(states, self.periodic), k=k)
        distances, index = distances.reshape(len(states), k), index.reshape(len(states), k)
        if not self.noiseless:
            return index, np.full(index.shape, 1 / k)
        flat = np.repeat(states, k, axis=0)
        away = self.domain.displacement(flat, self.states[index].reshape(flat.shape), self.periodic)
        away /= self.domain.width
        unit = distances[:, -1:] + 1e-300
        design = np.concatenate([np.ones((len(states), k, 1)), away.reshape(len(states), k, -1) / unit[:, :, None]], 2)
        weighted = design / ((distances / unit) ** 2 + 1e-6)[:, :, None]
        gram = weighted.swapaxes(1, 2) @ design
        gram[:, range(1, dimension + 1), range(1, dimension + 1)] += 1e-3
        shares = np.linalg.solve(gram, np.eye(dimension + 1)[:1].T[None])[:, :, 0]
        return index, np.einsum("nkc,nc->nk", weighted, shares)

    def outcomes(self, states: Array, action: int) -> tuple[Array, Array]:
        """Next states ``[m, n, d]`` with weights ``[m]``."""
        index, weights = self._near(states)
        steps = self._steps[action][index]  # [n, k, d]
        if self.noiseless:
            moved = states + np.einsum("nk,nkd->nd", weights, steps)
            return self._into_box(moved)[None], np.ones(1)
        after = self._into_box(states[None] + steps.swapaxes(0, 1))
        return after, np.full(len(after), 1 / len(after))

    def sample(self, states: Array, action: int, rng: np.random.Generator) -> Array:
        """Next states ``[n, d]``."""
        branches, _ = self.outcomes(states, action)
        chosen = rng.integers(len(branches), size=len(states))
        return np.asarray(branches[chosen, np.arange(len(states))])

    def error(self, states: Array, after: Array) -> float:
        """The median error of next states without noise ``[A, n, d]``, over the effect of an action."""
        width = self.domain.width
        missed = [
            self.domain.displacement(self.outcomes(states, action)[0][0], observed, self.periodic) / width
            for action, observed in enumerate(after)
        ]
        moved = np.stack([self.domain.displacement(states, observed, self.periodic) / width for observed in after])
        effect = np.sqrt(2 * np.mean((moved - moved.mean(axis=0)) ** 2))
        return float(np.median(np.abs(missed)) / max(effect, 1e-300))

    def effects(self, basis: Basis, states: Array) -> MeanEffects:
        """The effects of the actions on a basis."""
        moved = np.stack([self.outcomes(states, action)[0] for action in range(self.n_actions)], axis=1)
        return MeanEffects.of(basis, states, moved, self.is_terminal, self.periodic, observed=self.noiseless)


def regress_next_states(
    log: Transitions,
    basis: Basis,
    *,
    is_terminal: Terminal | None,
    periodic: tuple[int, ...],
    rng: np.random.Generator,
    drifts: Drifts = EACH_ITS_OWN,
) -> NextStateModel:
    """Fit s' − s by least squares, with the columns that predict held-out rows best; arguments as for `regress`.

    Where the actions share a drift, rows whose steps may have been stopped at an end of the box are left out, by where
    they are expected to lead, which does not bias the others.

    Next states jump at walls and contacts, and least squares would spread a jump over all states. So, if the dynamics
    are without noise but for few rows, these are left out.
    """
    settings: dict[str, Any] = {"is_terminal": is_terminal, "periodic": periodic, "drifts": drifts}
    held_out = held_out_rows(log)
    model = _fitted_next_states(log, held_out, basis, **settings, rng=rng)
    if model.noiseless:
        return model
    log = replace(log, paired=False)  # rows are left out one by one
    if drifts.are_shared:
        for _ in range(ROUNDS):
            free = _unstopped(log, model)
            if free.all() or log.where(free).counts.min() < drifts.fewest:
                break
            model = _fitted_next_states(log.where(free), held_out[free], basis, **settings, rng=rng)
        return model
    trimmed, generator = model, np.random.default_rng(0)
    for _ in range(3):  # the first fit is spoiled by jumps
        sizes = _missed(log, trimmed)
        limit = JUMP * max(float(np.median(sizes)), NOISELESS)
        chosen = sizes <= max(limit, float(np.quantile(sizes, 1 - MOST_JUMPS)))
        kept = log.where(chosen)
        if sizes.max() <= limit or kept.counts.min() < FEWEST:
            break
        trimmed = _fitted_next_states(kept, held_out[chosen], basis, **settings, rng=generator)
    jumps = 1 - float(steady(log, trimmed).mean())
    return replace(trimmed, jumps=jumps) if trimmed.noiseless and jumps <= MOST_JUMPS else model


def _unstopped(log: Transitions, model: NextStateModel) -> NDArray[np.bool_]:
    """The rows that are expected to lead to places away from ends of the box at which steps are stopped ``[n]``."""
    free, spread = np.ones(len(log), dtype=bool), model.residuals.std(axis=0)
    expected = _expected(log, model)
    for axis in set(range(len(log.domain))).difference(log.exogenous, model.periodic):
        for sign, end in zip((1, -1), log.domain[axis], strict=True):
            if (log.next_states[:, axis] == end).sum() >= STOPPED:
                free &= sign * (expected[:, axis] - end) > AWAY * spread[axis]
    return free


def _expected(log: Transitions, model: NextStateModel) -> Array:
    """The mean next states of the rows by a model ``[n, d]``, which may lie outside the box."""
    expected = np.empty_like(log.states)
    for action in range(log.n_actions):
        rows = log.actions == action
        expected[rows] = model._mean(log.states[rows], action)
    return expected


def against_own(
    model: NextStateModel, log: Transitions, held_out: NDArray[np.bool_], basis: Basis, rng: np.random.Generator
) -> Against:
    """A model with a shared drift compared with one for each action that has rows enough, on held-out rows ``[n]``."""
    frequent = np.flatnonzero(log.counts >= FEWEST)
    where = "rows" if log.episodes is None else "episodes"
    kept = np.isin(log.actions, frequent)
    if not (kept & held_out).any() or not len(frequent):
        return Against(np.nan, np.nan, where)
    log, held_out = log.where(kept), held_out[kept]
    renumbered = replace(log, actions=np.searchsorted(frequent, log.actions), n_actions=len(frequent), action_names=())
    settings: dict[str, Any] = {"is_terminal": model.is_terminal, "periodic": model.periodic, "rng": rng}
    own = _fitted_next_states(replace(renumbered, paired=False), held_out, basis, drifts=EACH_ITS_OWN, **settings)
    units = np.maximum(own.residuals.std(axis=0), NOISELESS * log.domain.width)
    tested, squares = renumbered.where(held_out), []
    for each in (replace(model, weights=model.trial[frequent]), replace(own, weights=own.trial)):
        expected = each._into_box(_expected(tested, each))
        missed = log.domain.displacement(expected, tested.next_states, model.periodic)
        squares.append(((missed / units) ** 2).sum(axis=1))
    if tested.episodes is None:
        groups = np.arange(len(tested)) * PARTS // len(tested)
    else:
        groups = np.unique(tested.episodes, return_inverse=True)[1].reshape(-1)
    differences = np.bincount(groups, weights=squares[0] - squares[1])
    error = float(np.sqrt(np.sum((differences - differences.mean()) ** 2)))
    total, reference = float(differences.sum()), float(squares[1].sum())
    return Against(total / max(reference, 1e-300), total / max(error, 1e-300), where)


def _missed(log: Transitions, model: NextStateModel) -> Array:
    """By how much a model misses the next states, as a share of the box ``[n]``."""
    expected = model._into_box(_expected(log, model))
    missed = log.domain.displacement(expected, log.next_states, model.periodic)
    return np.asarray(np.abs(missed / log.domain.width).max(axis=1))


def steady(log: Transitions, model: NextStateModel) -> NDArray[np.bool_]:
    """The rows of a log that a model of the next state without noise predicts ``[n]``."""
    sizes = _missed(log, model)
    return np.asarray(sizes <= JUMP * max(float(np.median(sizes)), NOISELESS))


def _fitted_next_states(
    log: Transitions,
    held_out: NDArray[np.bool_],
    basis: Basis,
    *,
    is_terminal: Terminal | None,
    periodic: tuple[int, ...],
    rng: np.random.Generator,
    drifts: Drifts,
) -> NextStateModel:
    """The model of the next state, fitted to all rows."""
    step, width = log.domain.displacement(log.states, log.next_states, periodic), log.domain.width
    # A coordinate that moves alike in every row (a clock, a constant) has no unit of its own.
    units = np.where(step.std(axis=0) > NOISELESS * width, step.std(axis=0), width)
    tolerance = SIMPLER if len(log.domain) > MOST_COORDINATES else 1.0
    terms, choices = drifts.terms(len(log.domain), log.exogenous), drifts.choices(basis)
    columns, sums, weights, trial = best_columns(
        log, held_out, choices, lambda rows: step[rows] / units, tolerance, terms
    )
    inverses, none = terms[0].inverses(sums, columns), np.zeros((1, len(units)))
    steps = np.stack([step.min(axis=0), step.max(axis=0)])
    places = (log.domain, periodic, is_terminal)
    model = NextStateModel(*places, columns, weights * units, none, none, log.exogenous, steps, inverses, trial * units)
    if drifts.are_shared:  # what an action does where it was not tried may lead farther than any step of the log
        reached = [columns.combined(log.states, each) for each in model.weights]
        ends = np.min(reached, axis=(0, 1)), np.max(reached, axis=(0, 1))
        model = replace(model, steps=np.stack([np.minimum(steps[0], ends[0]), np.maximum(steps[1], ends[1])]))
    own, common = (int(mask.sum()) for mask in terms[0].masks(columns, columns.size))
    kept = rng.permutation(len(log))[:MOST_RESIDUALS]
    residuals = np.empty((len(kept), len(units)))
    for action, count in enumerate(log.counts):
        of_action = log.actions[kept] == action
        rows = kept[of_action]
        # Residuals of the fitted rows are too small, by the functions that were fitted to them.
        inflation = np.sqrt(max(1 - own / count - common / len(log), 0.1))
        residuals[of_action] = (step[rows] + log.states[rows] - model._mean(log.states[rows], action)) / inflation
    return replace(model, residuals=residuals, origins=log.states[kept]).with_error(log.states[kept], units)


class HeldOutErrors(NamedTuple):
    """Errors of a next-state model at held-out rows, as it is fitted to the other rows."""

    # the mean square error in φ at the next states, over that of a regression; below `CLEARLY` the model is better
    relative: float
    # the mean square error in a few polynomials of the next state, over what the noise and an error of a tenth of a
    # step would leave: about 1 for the true dynamics. Above 1/`CLEARLY` these are not a drift plus noise that is the
    # same everywhere
    misfit: float

    @property
    def is_model(self) -> bool:
        """Whether the model describes the dynamics."""
        return self.misfit * CLEARLY < 1


def held_out_errors(
    model: NextStateModel,
    regression: Regression,
    log: Transitions,
    held_out: NDArray[np.bool_],
    rng: np.random.Generator,
) -> HeldOutErrors:
    """Judge a model of the next state, and compare it with a regression, on some of the held-out rows ``[n]``."""
    basis, chosen = regression.basis, rng.permutation(np.flatnonzero(held_out))[:SCORED]
    states, actions, rows = log.states[chosen], log.actions[chosen], np.arange(len(chosen))
    marked = None if log.terminal is None else log.terminal[chosen]
    truth = features(basis, log.next_states[chosen], model.is_terminal, marked)
    effects = replace(model, weights=model.trial).effects(basis, states, rng)
    other = replace(regression, weights=regression.trial).effects(states)
    by_model, by_regression = (float(np.mean((e.after(actions, rows) - truth) ** 2)) for e in (effects, other))
    return HeldOutErrors(by_model / max(by_regression, 1e-300), misfit_of(model, effects, log, chosen))


def misfit_of(model: NextStateModel, effects: MeanEffects, log: Transitions, chosen: NDArray[np.intp]) -> float:
    """The `HeldOutErrors.misfit` of a model's effects at these rows of a log.

    Errors at neighbouring states share what the model misses and not the noise: this is what remains of the mean square
    without their mean product.
    """
    states, actions, marked = log.states[chosen], log.actions[chosen], log.terminal
    few = richer(effects.basis, DEGREES[0])  # steep functions are all noise
    moments = features(few, log.next_states[chosen], model.is_terminal, None if marked is None else marked[chosen])
    missed = replace(effects, basis=few).after(actions, np.arange(len(chosen))) - moments
    square, places = float(np.mean(missed**2)), log.domain.chart(states, model.periodic)
    shared = neighbour_products(missed, places, actions)
    step = float(
        np.mean((moments - features(few, states, model.is_terminal, None)) ** 2)
    )  # where there is hardly noise, no fit is as exact as that
    return square / max(square - max(shared, 0.0) + NEGLIGIBLE * step, 1e-300) if square > 0 else 1.0
