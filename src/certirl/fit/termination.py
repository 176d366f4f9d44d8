"""The value of continuing against termination, for an expert that avoids termination.

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

from dataclasses import dataclass, replace
from math import ceil, e
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.data.rollouts import simulate, uniform_policy
from certirl.data.simulator import Simulator, terminal_of
from certirl.fit.effects import Effects, live_states
from certirl.fit.value_program import Comparisons, ValueFit, as_grid, fit_value
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells
from certirl.ground.domain import Array, freeze

ENOUGH = 2 * e - 1  # of ε/(1 − γ), see above
RARELY, SELDOM = 2e-3, 0.1  # of comparisons, and of the opposite choice: what estimated effects may get wrong
WALKS = 200  # of the expert, and as many of random actions
LONGEST = 300  # steps of a walk, at most
CLEARLY = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class LiftedFit:
    """A fit of V and R in which continuing is worth more than termination.

    Attributes:
        fit: V, R and their residuals; without the states from which every action terminates.
        least: the least by which continuing is worth more than termination: the lowest V of the data.
        terminating: the states from which every action terminates, more likely than not ``[n]``.
    """

    fit: ValueFit
    least: float
    terminating: NDArray[np.bool_]

    def __post_init__(self) -> None:
        freeze(self)


class Choices(NamedTuple):
    """How the expert chooses between termination and continuing.

    Mean probabilities, over all comparisons, of a termination that only one of the two actions brings.

    Attributes:
        sought: by the expert's action.
        avoided: by the alternative action.
    """

    sought: float
    avoided: float

    @property
    def mixed(self) -> bool:
        """Whether some terminal states are sought and others avoided."""
        return min(self) > max(RARELY, SELDOM * max(self))


def choices(effects: Effects, rows: Comparisons) -> Choices:
    """The choices in the comparisons: the first function is 0 at terminal states alone."""
    lost = rows.gains[:, 0] / constant(effects)
    return Choices(*(float(np.maximum(sign * lost, 0.0).mean()) if len(lost) else 0.0 for sign in (-1.0, 1.0)))


def constant(effects: Effects) -> float:
    """The value of the first function at states that are not terminal."""
    return float(effects.now[np.flatnonzero(effects.now[:, 0])[0], 0])


def avoids_termination(
    simulator: Simulator, policy: Policy, effects: Effects, rows: Comparisons, discount: float
) -> bool:
    """Whether the expert never chooses termination and clearly outlasts random actions.

    The first is read off the comparisons; alone it would also hold for an expert that seeks a terminal state to which
    no single action leads. If effects were estimated, "never" means more seldom than the estimate can resolve.

    Args:
        simulator: the dynamics, or the model of a log.
        policy: the expert.
        effects: of the actions.
        rows: the comparisons.
        discount: γ.
    """
    if terminal_of(simulator) is None or (continuing(effects) > 0.5).all() or not len(rows):
        return False
    chosen = choices(effects, rows)
    if chosen.sought > (1e-9 if effects.noiseless else max(RARELY, SELDOM * chosen.avoided)):
        return False
    steps = min(ceil(3 / (1 - discount)), LONGEST)
    more = durations(simulator, policy, steps) - durations(simulator, None, steps)
    return float(more.mean()) > CLEARLY * float(more.std()) / np.sqrt(len(more))


def durations(simulator: Simulator, policy: Policy | None, steps: int) -> NDArray[np.intp]:
    """Steps before termination, at most ``steps``, of walks from uniform states ``[WALKS]``.

    Without a policy actions are random; all policies start from the same states.
    """
    rng = np.random.default_rng(0)
    states = live_states(simulator, WALKS, rng)
    counts, policy = np.zeros(WALKS, dtype=np.intp), policy or uniform_policy(simulator.n_actions)
    for step in simulate(simulator, states, [policy] * steps, rng):
        counts[step.rows] += 1
    return counts


def continuing(effects: Effects) -> Array:
    """The probability that a walk continues after each action ``[A, n]``.

    An estimate may lie a little beyond 0 and 1.
    """
    return np.asarray(effects.after[:, :, 0] / constant(effects))


def fit_lifted_value(
    effects: Effects, rows: Comparisons, *, discount: float, reward_basis: Basis | Cells, price: float
) -> LiftedFit:
    """As `fit_value`, with c added to V at states that are not terminal.

    States from which every action terminates, more likely than not, are left out: no choice is made there, V − γ·0
    would have R pay the whole value of continuing at once, and the functions of R would spread that to neighbours.
    """
    level, probability = constant(effects), continuing(effects)
    continues = probability > 0.5
    terminating = np.asarray(~continues.any(axis=0))
    kept = ~terminating

    def least_value(w: Array) -> float:
        ahead = (effects.after @ w)[continues] / probability[continues]
        return min(float((effects.now @ w).min()), float(ahead.min()))

    def positive(w: Array) -> Array:
        # From here on the best policy continues wherever it can, and a larger c changes constants alone.
        return _shifted(w, max(-least_value(w), 0.0) / level)

    fit = fit_value(
        _at(effects, kept), _rows_at(rows, kept), discount=discount, reward_basis=reward_basis, price=price,
        adjust=positive,
    )  # fmt: skip
    enough = ENOUGH * fit.residual / (1 - discount)
    more = max(enough - least_value(fit.value), 0.0)
    if terminating.any():
        last = reward_basis.combined(effects.states[terminating], fit.reward) - effects.now[terminating] @ fit.value
        more = max(more, (enough + float(last.max())) / discount)  # R rises by (1 − γ)c there, V by c
    lifted = replace(fit, value=_shifted(fit.value, more / level), reward=_raised(fit, (1 - discount) * more))
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


def _at(effects: Effects, kept: NDArray[np.bool_]) -> Effects:
    return replace(effects, states=effects.states[kept], now=effects.now[kept], after=effects.after[:, kept])


def _rows_at(rows: Comparisons, kept: NDArray[np.bool_]) -> Comparisons:
    """The rows over fewer states: at the others all actions are alike and have no row."""
    place = np.cumsum(kept) - 1
    return replace(rows, which=place[rows.which], profile=rows.profile[kept], expert=rows.expert[kept])
