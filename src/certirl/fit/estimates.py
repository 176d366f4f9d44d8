"""The effects of the actions as they are estimated from a simulator or a log, with their errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from certirl.data.coverage import MOSTLY, Coverage, coverage
from certirl.data.dependence import can_pair
from certirl.data.simulator import counted_as
from certirl.data.source import Logged
from certirl.data.transitions import Transitions, action_in_words
from certirl.fit.declared import Declared, DeclaredMoves
from certirl.fit.drifts import Against, shared_instead
from certirl.fit.effects import (
    Effects,
    drawn_effects,
    drawn_log,
    ended,
    live_states,
    noise_ratio,
    observed_effects,
    placed_states,
    value_at,
)
from certirl.fit.next_states import (
    CLEARLY,
    SCORED,
    HeldOutErrors,
    Nearby,
    NextStateModel,
    against_own,
    held_out_errors,
    misfit_of,
    regress_next_states,
    steady,
)
from certirl.fit.problem import ValueProblem
from certirl.fit.regression import (
    LeastSquaresSums,
    Regression,
    held_out_rows,
    neighbour_products,
    regress,
    rows_of_actions,
)
from certirl.functions.bases import Basis
from certirl.functions.cells import MOST_COORDINATES
from certirl.functions.ends import EndBasis
from certirl.ground.domain import Array, number_of
from certirl.ground.doors import by_door
from certirl.ground.records import Record
from certirl.ground.status import Finding, Reason

MOST_STATES = 30_000  # at which the expert is compared: more cost time and change nothing
FAINT = 0.1  # noise over effects, both squared, up to which drawn next states are used without a regression
MOST_DRAWS = 32  # next states of an action at one state that are used without a regression
COMPARED = 5_000  # rows of each action whose errors are compared with their neighbours
SURE = 0.999  # a probability of continuing that counts as certain


@dataclass(frozen=True, eq=False)
class EffectModel(Record):
    """Effects from next states that a simulator was asked for at every state compared."""

    effects: Effects  # of every action on the functions of V
    counts: tuple[int, ...]  # states, or transitions of each action
    dynamics: Nearby | NextStateModel | DeclaredMoves  # a simulator made of the same transitions
    # Actions whose effect is declared: what is learned below, and the log, are of the other actions alone.
    declared: Declared = field(default=Declared(), kw_only=True)

    @property
    def words(self) -> str:
        """By which functions of the state effects are described."""
        return ""

    @property
    def assumption(self) -> str:
        """What was declared of the dynamics, in words."""
        return ""

    @property
    def compared(self) -> str:
        """How what was declared of the dynamics fared beside what was not, in words."""
        return ""

    def findings(self, problem: ValueProblem) -> tuple[Finding, ...]:
        """What the data say against the model."""
        return ()

    def uncovered(self, problem: ValueProblem) -> float:
        """The share of the box where the effect of some action is extrapolated; a simulator is asked everywhere."""
        return 0.0

    def at(self, states: Array) -> Effects:
        """The effects at further states, from the transitions at hand: nothing is drawn."""
        return self.declared.joined(self.estimated, states, self.dynamics.is_terminal)

    def estimated(self, states: Array) -> Effects:
        """The same of the actions whose effects are estimated."""
        return self.dynamics.effects(self.effects.basis, states)

    def error(self, problem: ValueProblem, w: Array, fitted: float, effect: float) -> float:
        """The error of action values over the effect of an action.

        w are the coefficients of V; ``fitted`` is what functions of the state miss of the action values, ``effect`` the
        root mean square difference of two actions' values.
        """
        return fitted / effect

    def with_ends(self, problem: ValueProblem, boxes: Array, rng: np.random.Generator) -> EffectModel:
        """From the same transitions, with one more function of V: of the ends in some boxes ``[b, 2, d]``."""
        return replace(self, effects=replace(self.effects, basis=EndBasis.of(self.effects.basis, boxes)))


@dataclass(frozen=True, eq=False)
class LogModel(EffectModel):
    """Effects from a log, or from transitions that were drawn once: through a model of the next state."""

    log: Transitions  # the transitions
    next_states: NextStateModel  # the model of the next state
    errors: HeldOutErrors  # of that model

    @property
    def columns(self) -> Basis:
        """The functions of the state."""
        return self.next_states.columns

    @property
    def words(self) -> str:
        """By which functions of the state effects are described."""
        jumps = f", but for {self.next_states.jumps:.2%} of the transitions, where they jump"
        better = f", next states {self.columns.size}, which predict the data better"
        return better + jumps * bool(self.next_states.jumps)

    def uncovered(self, problem: ValueProblem) -> float:
        """The share of the box where the effect of some action is extrapolated."""
        return float(self._coverage.extrapolated_share.max()) if problem.source.is_log else 0.0

    @cached_property
    def _coverage(self) -> Coverage:
        return coverage(self.log, basis=self.columns)

    def findings(self, problem: ValueProblem) -> tuple[Finding, ...]:
        """That hardly any state of a log tells what all actions do."""
        share = 0.0
        if problem.source.is_log and self.uncovered(problem):
            share = float(self._coverage.extrapolated(self.effects.states).mean())
        finding = Reason.UNTRIED_NEARBY.finding(share=share, instead=shared_instead())
        return (finding,) if share > MOSTLY else ()

    def estimated(self, states: Array) -> Effects:
        """The effects of the actions that are not declared, at further states."""
        return self.next_states.effects(self.effects.basis, states)

    def error(self, problem: ValueProblem, w: Array, fitted: float, effect: float) -> float:
        """The error of V at the next states, without the noise; at least what sampling leaves in the mean next state.

        Only transitions that continue, and from states that surely do, count: beside terminal states the whole value of
        continuing would count as an error.
        """
        log, basis, squares = self.log, self.effects.basis, _MeanProduct(problem)
        observed = value_at(basis, w, log.next_states, problem.is_terminal, log.terminal)
        over = ended(log.next_states, problem.is_terminal, log.terminal)
        for action in range(log.n_actions):
            of_action = log.actions == action
            rows = np.flatnonzero(of_action if over is None else of_action & ~over)[:COMPARED]
            predicted = self.next_states.effects(basis, log.states[rows])
            sure = predicted.continuing[action] > SURE if len(rows) else np.zeros(0, dtype=bool)
            squares.add(log.states[rows[sure]], (observed[rows] - predicted.ahead(w)[action])[sure])
        return max(float(np.sqrt(max(squares.mean, 0.0))) / effect, self.next_states.error)

    def with_ends(self, problem: ValueProblem, boxes: Array, rng: np.random.Generator) -> EffectModel:
        """From the same transitions, with one more function of V: of the ends in some boxes ``[b, 2, d]``."""
        basis = EndBasis.of(self.effects.basis, boxes)
        model = _estimated(problem, self.log, self.effects.states, basis, rng)
        if isinstance(self.dynamics, Nearby):
            return replace(model, dynamics=self.dynamics)
        return _joined(replace(model, counts=self.counts), self.declared)


@dataclass(frozen=True, eq=False)
class SharedModel(LogModel):
    """The same with one drift for all actions, as is declared."""

    against: Against  # compared with one for each

    @property
    def words(self) -> str:
        """By which functions of the state effects are described."""
        return f", next states {self.columns.size} shared by the actions"

    @property
    def compared(self) -> str:
        """The shared drift beside one for each action."""
        return str(self.against)

    @property
    def assumption(self) -> str:
        """What was declared."""
        return "each action moves the state by one vector wherever it is, beside a drift that all actions share"

    def findings(self, problem: ValueProblem) -> tuple[Finding, ...]:
        """That the data contradict it, where they do."""
        return (Reason.NOT_SHARED.finding(compared=self.against),) if self.against.contradicted else ()

    def uncovered(self, problem: ValueProblem) -> float:
        """The share of the box where the effect of some action is extrapolated: rows of all actions tell of each."""
        states = problem.domain.uniform(COMPARED, np.random.default_rng(0))
        far = [self.next_states.extrapolated(states, action) for action in range(self.next_states.n_actions)]
        return float(np.any(far, axis=0).mean())


@dataclass(frozen=True, eq=False)
class RegressionModel(LogModel):
    """The same through a regression of V's functions on the state, which predicts better."""

    regression: Regression  # of V's functions

    @property
    def columns(self) -> Basis:
        """The functions of the state."""
        return self.regression.columns

    @property
    def words(self) -> str:
        """By which functions of the state effects are described."""
        return f", effects {self.columns.size} by held-out data"

    def estimated(self, states: Array) -> Effects:
        """The effects of the actions that are not declared, at further states."""
        return self.regression.effects(states, self.effects.periodic)

    def error(self, problem: ValueProblem, w: Array, fitted: float, effect: float) -> float:
        """The error of regressed effects; at least what sampling leaves in a comparison."""
        log, columns, squares = self.log, self.columns, _MeanProduct(problem)
        values = value_at(self.regression.basis, w, log.next_states, problem.is_terminal, log.terminal)
        for rows in rows_of_actions(log):
            fits = LeastSquaresSums.of(log, columns, lambda of_action: values[of_action, None], rows[:, 1::2]).solve()
            for held_out, coefficients in zip(rows[:, ::2], fits[:, :, 0], strict=True):
                states = log.states[held_out]
                squares.add(states, values[held_out] - columns.combined(states, coefficients))
        # A difference of two actions has the errors of both; a fit on half of the data has twice that of the whole.
        return float(np.sqrt(max(squares.mean, float(w @ self.regression.noise @ w)))) / effect


class _MeanProduct:
    """The mean product of errors at neighbouring states, of one action after the other."""

    def __init__(self, problem: ValueProblem) -> None:
        self._problem, self._total, self._count = problem, 0.0, 0

    def add(self, states: Array, errors: Array) -> None:
        """Count the errors ``[n]`` of one action at some states ``[n, d]``."""
        places = self._problem.domain.chart(states, self._problem.periodic)
        self._total += len(errors) * neighbour_products(errors[:, None], places)
        self._count += len(errors)

    @property
    def mean(self) -> float:
        """The mean of all."""
        return self._total / max(self._count, 1)


def estimate_effects(
    problem: ValueProblem, basis: Basis, samples: int, rng: np.random.Generator, paired: bool | None
) -> EffectModel:
    """The effects of the actions on a basis: observed or drawn where noise is small beside them, else regressed.

    A noisy simulator is asked for ``samples`` transitions of every action, one without noise about that many states; a
    log is used as it is. A trial decides whether actions share their random numbers if ``paired`` is None.
    """
    source = problem.source
    if isinstance(source, Logged):
        log = _without_absorbed(source.data)
        states = _live_rows(problem, log)
        same = len(states) // log.n_actions  # every action of pairs was tried at the same states
        places = np.arange(same) if log.paired else rng.permutation(len(states))
        return _from_log(problem, log, states[places], basis, rng)
    simulator = source.data
    ratio = noise_ratio(counted_as(simulator, "checks"), basis, rng, count=_share(samples, 32, 500))
    paired = can_pair(simulator, basis, rng.spawn(1)[0], asked=paired, count=_share(samples, 32, 128))
    left = samples - simulator.counts.most("checks")
    count = min(left, MOST_STATES)
    if ratio == 0:
        states = placed_states(simulator, basis, count, rng)
        effects = observed_effects(simulator, basis, states, rng)
    elif ratio < FAINT * min(left // count, MOST_DRAWS):
        states = live_states(simulator, count, rng)
        effects = drawn_effects(simulator, basis, states, min(left // count, MOST_DRAWS), rng)
    else:
        drawn = drawn_log(simulator, left, rng.spawn(1)[0], paired=paired, basis=basis)
        states = _live_rows(problem, drawn)
        model = _from_log(problem, drawn, states[: len(states) // drawn.n_actions], basis, rng)
        after = np.stack([drawn.of_action(action)[1] for action in range(drawn.n_actions)])
        return replace(model, dynamics=Nearby.of(drawn.of_action(0)[0], after[None], problem, noiseless=False))
    dynamics = Nearby.of(states, effects.next_states, problem, noiseless=effects.noiseless)
    return EffectModel(effects, (len(dynamics.states),), dynamics)


def _share(samples: int, part: int, most: int) -> int:
    """Rows for a check: a part of the samples, within limits."""
    return int(np.clip(samples // part, 4, most))


def _live_rows(problem: ValueProblem, log: Transitions) -> Array:
    """The states of a log that are not terminal ``[m, d]``."""
    return log.states if problem.is_terminal is None else log.states[~problem.is_terminal(log.states)]


def _from_log(
    problem: ValueProblem, log: Transitions, states: Array, basis: Basis, rng: np.random.Generator
) -> LogModel:
    """Effects at some states: declared ones, and those that are estimated from the rows of the other actions."""
    declared, names = Declared(problem.declared), log.action_names
    counts = {action: int(log.counts[action]) for action in declared.estimated(log.n_actions)}
    fewest = min(counts.values())
    if fewest == 0:
        missing = ", ".join(action_in_words(a, names) for a, count in counts.items() if not count)
        counted = "" if names else "; actions are counted from 0"
        raise ValueError(f"{missing} was never taken in the log, so that its effect is unknown{counted}")
    if fewest < problem.drifts.fewest:
        rarest = min(counts, key=counts.__getitem__)
        known = by_door(f"; where its effect is known, pass effects={{{rarest}: …}}", "")
        shared = "" if problem.drifts.are_shared else f"; {shared_instead()}"
        raise ValueError(
            f"{action_in_words(rarest, names)} has {number_of(fewest, 'transition')}: too few to estimate its effect, "
            f"at least {problem.drifts.fewest} are needed{known}{shared}"
        )
    model = _estimated(problem, declared.without(log), states, basis, rng)
    return _joined(replace(model, counts=tuple(log.counts.tolist())), declared)


def _joined(model: LogModel, declared: Declared) -> LogModel:
    """The model with the actions whose effect is declared."""
    if not declared:
        return model
    whole = replace(model, declared=declared, dynamics=declared.among(model.dynamics))
    return replace(whole, effects=whole.at(model.effects.states))


def _estimated(
    problem: ValueProblem, log: Transitions, states: Array, basis: Basis, rng: np.random.Generator
) -> LogModel:
    """Effects at some states, by least squares: of V's functions, or of the state where that predicts better."""
    counts, is_terminal = tuple(log.counts.tolist()), problem.is_terminal
    marked = log.terminal if is_terminal is None else None  # boxes that hold the marked states replace the marks
    states = states[:MOST_STATES]
    settings: dict[str, Any] = {"is_terminal": is_terminal, "periodic": problem.periodic, "drifts": problem.drifts}
    model = regress_next_states(log, basis, **settings, rng=rng)
    if problem.drifts.are_shared:
        held_out = held_out_rows(log)
        against = against_own(model, log, held_out, basis, rng)
        chosen = rng.permutation(np.flatnonzero(held_out))[:SCORED]
        tried = replace(model, weights=model.trial).effects(basis, log.states[chosen], rng)
        errors = HeldOutErrors(np.nan, misfit_of(model, tried, log, chosen))
        return SharedModel(model.effects(basis, states, rng), counts, model, log, model, errors, against)
    regression = regress(log, basis, is_terminal=is_terminal, marked=marked)
    held_out = held_out_rows(log)
    errors = held_out_errors(model, regression, log, held_out & steady(log, model) if model.jumps else held_out, rng)
    # With many coordinates a few thousand transitions determine the next state, but hardly hundreds of functions of it.
    # Ends are jumps, which no regression of them on the state can follow: a model that describes the data is enough.
    several = len(log.domain) > MOST_COORDINATES
    most = np.inf if basis.has_ends else 1 / CLEARLY if several else CLEARLY
    if (errors.is_model or several) and errors.relative < most:
        return LogModel(model.effects(basis, states, rng), counts, model, log, model, errors)
    effects = regression.effects(states, problem.periodic)
    return RegressionModel(effects, counts, model, log, model, errors, regression)


def _without_absorbed(log: Transitions) -> Transitions:
    """Without the rows that lead from terminal states to themselves: V is 0 there, whatever the action."""
    if log.terminal is None:
        return log
    return log.where(~(log.terminal & (log.states == log.next_states).all(axis=1)))
