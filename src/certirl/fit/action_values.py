"""Action values of the value form with their errors, and the value of continuing against termination.

Terminal states are worth 0, and adding a constant c to V at all others changes no comparison between two actions that
both continue. If the expert never terminates where it could continue, every c ≥ 0 explains it as well as c = 0, so the
data cannot choose c. Planning is sensitive to it: R misses ``V − γ max P_aV`` by up to ε, over all later steps by
ε/(1 − γ), and where continuing is not worth clearly more than that, termination pays. So c is made large enough:

    Let F be the least by which V exceeds what remains to be earned once termination is chosen or certain. Termination
    after T steps earns at most V − γᵀF + ε(1 − γᵀ)/(1 − γ). The best policy for V earns at least V − ε/(1 − γ), if it
    never terminates. So termination is worse if F > (2γ⁻ᵀ − 1)ε/(1 − γ); with γᵀ = 1/e that covers all terminations
    within the horizon of 1/(1 − γ) steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import e
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.fit.effects import Effects, richer
from certirl.fit.ends import Episodes
from certirl.fit.estimates import SURE, EffectModel, RegressionModel
from certirl.fit.problem import ValueProblem
from certirl.fit.regression import solve_normal
from certirl.fit.value_program import Comparisons, LeastSquares, ValueFit, as_grid, fit_value
from certirl.functions.features import Features
from certirl.functions.functions import Functions
from certirl.ground.domain import Array
from certirl.ground.records import Record

ENOUGH = 2 * e - 1  # of ε/(1 − γ), see above
RARELY, SELDOM = 2e-3, 0.1  # of comparisons, and of the opposite choice: what estimated effects may get wrong
CLEARLY = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class LiftedFit(Record):
    """A fit of V and R in which continuing is worth more than termination."""

    fit: ValueFit  # V, R and their residuals; without the states from which every action terminates
    least: float  # the least by which continuing is worth more than termination: the lowest V of the data
    terminating: NDArray[np.bool_]  # the states from which every action terminates, more likely than not ``[n]``


class Choices(NamedTuple):
    """How the expert chooses between termination and continuing.

    Mean probabilities, over all comparisons, of a termination that only one of the two actions brings.
    """

    sought: float  # by the expert's action
    avoided: float  # by the alternative action

    @property
    def mixed(self) -> bool:
        """Whether some terminal states are sought and others avoided."""
        return min(self) > max(RARELY, SELDOM * max(self))


def choices(rows: Comparisons) -> Choices:
    """The choices in the comparisons: the first function is 0 at terminal states alone."""
    lost = rows.advantages(np.eye(1, rows.effects.basis.size)[0]) / rows.effects.constant
    return Choices(*(float(np.maximum(sign * lost, 0.0).mean()) if len(lost) else 0.0 for sign in (-1.0, 1.0)))


def avoids_termination(rows: Comparisons, walked: Callable[[], tuple[Episodes, Episodes]]) -> bool:
    """Whether the expert never chooses termination and clearly outlasts random actions.

    The first is read off the comparisons; alone it would also hold for an expert that seeks a terminal state to which
    no single action leads. If effects were estimated, "never" means more seldom than the estimate can resolve.
    """
    effects = rows.effects
    if (effects.continuing > 0.5).all() or not len(rows):
        return False
    chosen = choices(rows)
    if chosen.sought > (1e-9 if effects.noiseless else max(RARELY, SELDOM * chosen.avoided)):
        return False
    expert, random = walked()
    more = expert.steps - random.steps
    return float(more.mean()) > CLEARLY * float(more.std()) / np.sqrt(len(more))


def fit_lifted_value(
    rows: Comparisons,
    *,
    discount: float,
    reward_basis: Functions,
    further: Effects | None = None,
    **prices: float,
) -> LiftedFit:
    """As `fit_value`, with c added to V at states that are not terminal.

    States from which every action terminates, more likely than not, are left out: no choice is made there, V − γ·0
    would have R pay the whole value of continuing at once, and the functions of R would spread that to neighbours.
    """
    effects = rows.effects
    level, probability = effects.constant, effects.continuing
    continues = probability > 0.5
    terminating = np.asarray(~continues.any(axis=0))
    kept = ~terminating

    def least_value(w: Array) -> float:
        ahead = effects.ahead(w)[continues] / probability[continues]
        return min(float(effects.value(w).min()), float(ahead.min()))

    def positive(w: Array) -> Array:
        # From here on the best policy continues wherever it can, and a larger c changes constants alone.
        return _shifted(w, max(-least_value(w), 0.0) / level)

    if further is not None:
        further = further.at(np.asarray((further.continuing > 0.5).any(axis=0)))
    program: dict[str, Any] = {"discount": discount, "reward_basis": reward_basis, **prices}
    fit = fit_value(rows.at(kept), **program, adjust=positive, further=further)
    enough = ENOUGH * fit.residual / (1 - discount)
    more = max(enough - least_value(fit.value), 0.0)
    if terminating.any():
        last = reward_basis.combined(effects.states[terminating], fit.reward) - effects.value(fit.value)[terminating]
        more = max(more, (enough + float(last.max())) / discount)  # R rises by (1 − γ)c there, V by c
    value, reward = _shifted(fit.value, more / level), _raised(fit, (1 - discount) * more)
    shortfall = np.maximum(rows.margins - rows.advantages(value), 0.0)  # of all rows, those left out included
    lifted = replace(fit, value=value, reward=reward, shortfall=shortfall)
    return LiftedFit(lifted, least_value(lifted.value), terminating)


def _raised(fit: ValueFit, amount: float) -> Array:
    """The coefficients of R + amount: those of a grid are values."""
    if as_grid(fit.reward_basis) is not None:
        return fit.reward + amount
    middle = np.array([[(low + high) / 2 for low, high in fit.reward_basis.domain]])
    return _shifted(fit.reward, amount / float(fit.reward_basis.values(middle)[0, 0]))


def _shifted(coefficients: Array, amount: float) -> Array:
    shifted = np.array(coefficients)
    shifted[0] += amount
    return shifted


def action_values(
    problem: ValueProblem, model: EffectModel, fit: ValueFit, lifted: LiftedFit | None
) -> tuple[Functions, Array, float]:
    """(P̂_aV)(s) as functions of the state, with their estimated error over the effect of an action."""
    if isinstance(model, RegressionModel) and not model.declared:
        fitted, columns = model.regression.weights @ fit.value, model.columns
        predicted = np.stack([columns.combined(model.effects.states, coefficients) for coefficients in fitted])
        return columns, fitted, model.error(problem, fit.value, 0.0, _effect(predicted))
    effects, goals = model.effects, model.effects.ahead(fit.value)
    states = effects.states
    if lifted is not None:  # no choice is made where every action terminates, and a jump there spoils the fit elsewhere
        kept = ~lifted.terminating
        if not effects.noiseless:  # estimates of termination differ at a threshold, by the whole value of continuing
            kept &= (effects.continuing > SURE).all(axis=0)
        states, goals = states[kept], goals[:, kept]
    if not effects.noiseless:  # what all actions share, termination and noise above all, is the hardest to fit
        goals = goals - goals.mean(axis=0)
    held_out = np.arange(len(states)) % 5 == 0
    candidates: list[Functions] = [richer(effects.basis, factor) for factor in (1.0, 1.6)]
    candidates += [] if isinstance(fit.reward_basis, Features) else [fit.reward_basis]
    candidates = [columns for columns in candidates if columns.size <= 0.4 * len(states)]
    candidates = candidates or [richer(effects.basis, 0.5)]
    errors = [_held_out_error(columns, states, goals, held_out) for columns in candidates]
    best = candidates[int(np.argmin(errors))]
    error = model.error(problem, fit.value, min(errors), _effect(goals))
    return best, LeastSquares(best, states)(goals.T).T, error


def _effect(values: Array) -> float:
    """The root mean square difference of two actions' values ``[A, n]``."""
    return max(float(np.sqrt(np.mean((values - values.mean(axis=0)) ** 2) * 2)), 1e-300)


def _held_out_error(columns: Functions, states: Array, goals: Array, held_out: NDArray[np.bool_]) -> float:
    """The root mean square error on states that the fit did not use."""
    fitted = LeastSquares(columns, states[~held_out])(goals[:, ~held_out].T)
    predicted = np.stack([columns.combined(states[held_out], coefficients) for coefficients in fitted.T])
    return float(np.sqrt(np.mean((predicted - goals[:, held_out]) ** 2)))


def spectral_radius(rows: Comparisons) -> float:
    """ρ(T̂) of the policy's square matrix on V's functions, by least squares."""
    effects, size = rows.effects, rows.effects.basis.size
    gram, cross = np.zeros((size, size)), np.zeros((size, size))
    for block in effects.blocks():
        now = effects.before(block)
        gram += now.T @ now
        cross += now.T @ effects.of_policy(rows.chances, block)
    return float(np.abs(np.linalg.eigvals(solve_normal(gram, cross))).max())
