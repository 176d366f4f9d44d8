"""What going on is worth against ending, where the expert shuns the end and no margin says by how much.

Terminal states are worth 0, and adding a constant c to V at all others changes no comparison between two actions that
both go on. If the expert never ends where it could go on, every c ≥ 0 explains it as well as c = 0, so the data cannot
choose it. Planning can tell: R misses ``V − γ max P_aV`` by up to ε, over all steps to come by ε/(1 − γ), and where
going on is not worth clearly more than that, ending pays. So c is made large enough that it does not:

    Let F be the least that V exceeds what is left to earn when an end is chosen or has become certain. Ending after T
    steps earns at most V − γᵀF + ε(1 − γᵀ)/(1 − γ). Doing what is best for V earns at least V − ε/(1 − γ), if that
    never ends. So ending is worse if F > (2γ⁻ᵀ − 1)ε/(1 − γ); with γᵀ = 1/e that covers every end within the 1/(1 − γ)
    steps that γ looks ahead.
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
from certirl.fit.value_program import Comparisons, ValueFit, fit_value
from certirl.functions.bases import Basis
from certirl.functions.cells import Cells, expanded
from certirl.ground.domain import Array, freeze

ENOUGH = 2 * e - 1  # of ε/(1 − γ), see above
RARELY, SELDOM = 2e-3, 0.1  # of comparisons, and of the opposite choice: what estimated effects may get wrong
LIVES = 200  # that the expert and chance each play
LONGEST = 300  # steps of a life, at most
CLEARLY = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class LiftedFit:
    """A fit of V and R in which going on was made worth more than ending.

    Attributes:
        fit: V, R and what they miss; without the states from which every action ends it.
        least: by how much going on is worth more than ending at least: the lowest V of what was looked at.
        doomed: the states from which every action ends it ``[n]``.
    """

    fit: ValueFit
    least: float
    doomed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        freeze(self)


class Choices(NamedTuple):
    """How the expert chooses between ending and going on: mean chances, over all comparisons, of an end that only one
    of the two actions brings.

    Attributes:
        sought: of the expert's.
        shunned: of the rival's.
    """

    sought: float
    shunned: float

    @property
    def mixed(self) -> bool:
        """Some ends are sought and others shunned."""
        return min(self) > max(RARELY, SELDOM * max(self))


def choices(effects: Effects, rows: Comparisons) -> Choices:
    """Read off the comparisons: the first function is constant where it goes on, and 0 after an end."""
    lost = rows.gains[:, 0] / constant(effects)
    return Choices(*(float(np.maximum(sign * lost, 0.0).mean()) if len(lost) else 0.0 for sign in (-1.0, 1.0)))


def constant(effects: Effects) -> float:
    """The first function where it goes on."""
    return float(effects.now[np.flatnonzero(effects.now[:, 0])[0], 0])


def shuns_the_end(simulator: Simulator, policy: Policy, effects: Effects, rows: Comparisons, discount: float) -> bool:
    """Whether the expert never ends where it could go on, and clearly outlives chance.

    The first is read off the comparisons; alone it would also hold for an expert that seeks an end to which no single
    action leads. If effects were estimated, "never" means hardly ever: less than the estimate can be trusted.

    Args:
        simulator: the dynamics, or what a log says of them.
        policy: the expert.
        effects: what the actions do.
        rows: the comparisons.
        discount: γ.
    """
    if terminal_of(simulator) is None or (chances(effects) > 0.5).all() or not len(rows):
        return False
    found = choices(effects, rows)
    if found.sought > (1e-9 if effects.seen else max(RARELY, SELDOM * found.shunned)):
        return False
    steps = min(ceil(3 / (1 - discount)), LONGEST)
    more = lifetimes(simulator, policy, steps) - lifetimes(simulator, None, steps)
    return float(more.mean()) > CLEARLY * float(more.std()) / np.sqrt(len(more))


def lifetimes(simulator: Simulator, policy: Policy | None, steps: int) -> NDArray[np.intp]:
    """How many of so many steps are made before an end ``[LIVES]``, from even states; by chance without a policy."""
    rng = np.random.default_rng(0)
    states = live_states(simulator, LIVES, rng)  # the same for the expert and for chance
    lived, policy = np.zeros(LIVES, dtype=np.intp), policy or uniform_policy(simulator.n_actions)
    for step in simulate(simulator, states, [policy] * steps, rng):
        lived[step.rows] += 1
    return lived


def chances(effects: Effects) -> Array:
    """The chance of going on after each action ``[A, n]``; an estimate may lie a little beyond 0 and 1."""
    return np.asarray(effects.after[:, :, 0] / constant(effects))


def fit_lifted_value(
    effects: Effects, rows: Comparisons, *, discount: float, reward_basis: Basis | Cells, price: float
) -> LiftedFit:
    """As `fit_value`, with c added to V where it goes on.

    States from which every action ends it, more likely than not, are left out: no choice is made there, V − γ·0 would
    have R pay all that going on is worth at once, and the functions of R would carry that to their neighbours.
    """
    one, chance = constant(effects), chances(effects)
    goes_on = chance > 0.5
    doomed = np.asarray(~goes_on.any(axis=0))
    kept = ~doomed

    def least_value(w: Array) -> float:
        return min(float((effects.now @ w).min()), float(((effects.after @ w)[goes_on] / chance[goes_on]).min()))

    def above_the_end(w: Array) -> Array:
        # From here on what is best goes on wherever it can, and more of c changes nothing but constants.
        return _shifted(w, max(-least_value(w), 0.0) / one)

    fit = fit_value(
        _at(effects, kept), _rows_at(rows, kept), discount=discount, reward_basis=reward_basis, price=price,
        adjust=above_the_end,
    )  # fmt: skip
    enough = ENOUGH * fit.residual / (1 - discount)
    more = max(enough - least_value(fit.value), 0.0)
    if doomed.any():
        last = expanded(reward_basis, effects.states[doomed], fit.reward) - effects.now[doomed] @ fit.value
        more = max(more, (enough + float(last.max())) / discount)  # R rises by (1 − γ)c there, V by c
    lifted = replace(fit, value=_shifted(fit.value, more / one), reward=_raised(fit, (1 - discount) * more))
    return LiftedFit(lifted, least_value(lifted.value), doomed)


def _raised(fit: ValueFit, amount: float) -> Array:
    """The coefficients of R + amount: hats add up to 1."""
    if isinstance(fit.reward_basis, Cells):
        return fit.reward + amount
    middle = np.array([[(low + high) / 2 for low, high in fit.reward_basis.domain]])
    return _shifted(fit.reward, amount / float(fit.reward_basis.values(middle)[0, 0]))


def _shifted(coefficients: Array, amount: float) -> Array:
    found = np.array(coefficients)
    found[0] += amount
    return found


def _at(effects: Effects, kept: NDArray[np.bool_]) -> Effects:
    return replace(effects, states=effects.states[kept], now=effects.now[kept], after=effects.after[:, kept])


def _rows_at(rows: Comparisons, kept: NDArray[np.bool_]) -> Comparisons:
    """The same rows, told of fewer states; actions do the same at the others, so that none of them has a row."""
    place = np.cumsum(kept) - 1
    return replace(rows, which=place[rows.which], profile=rows.profile[kept], expert=rows.expert[kept])
