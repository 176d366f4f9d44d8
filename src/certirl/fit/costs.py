"""Costs of actions, R(s, a) = r(s) − c_a, as further unknowns of the program that finds V.

The expert is optimal for R if and only if ``(P_π − P_a)V + (c_a − c_π)/γ ≥ 0`` for every action a, and ``r = V − γP_πV
+ c_π``. So c_a/γ are the coefficients of functions that are 0 at every state and −1 after the action a: rows,
objective and the steps of the program stay as they are. Adding one number to all costs changes r alone, so that the
cheapest action is free.

Where an expert always takes one action, a price of all others explains it and says nothing, so that costs are for
experts who depend on the state. They are used where a reward of the state leaves a gap that costs close.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from certirl.fit.effects import Effects, Rows
from certirl.fit.value_program import Comparisons, Prices, ValueFit, fit_value
from certirl.ground.domain import Array

SOME = 0.05  # of the states that are not explained: fewer are no gap
CLOSED = 0.25  # of these states, and of the squared shortfall: with costs less must be left


@dataclass(frozen=True, eq=False)
class ChargedEffects(Effects):
    """Effects on the functions of V, and on one for each action but the first: 0 at a state, −1 after that action.

    Attributes:
        plain: the effects on the functions of V.
    """

    plain: Effects

    @classmethod
    def of(cls, plain: Effects) -> ChargedEffects:
        """These effects with the functions of the actions."""
        return cls(plain.basis, plain.states, plain.periodic, plain)

    @property
    def n_actions(self) -> int:
        """A."""
        return self.plain.n_actions

    @property
    def size(self) -> int:
        """The number of functions."""
        return self.plain.size + self.n_actions - 1

    @property
    def degrees(self) -> NDArray[np.intp]:
        """The degrees of the functions ``[k, d]``; those of the actions have none."""
        return np.pad(self.plain.degrees, ((0, self.n_actions - 1), (0, 0)))

    @property
    def noiseless(self) -> bool:
        """Whether next states were observed without noise."""
        return self.plain.noiseless

    @property
    def noise(self) -> Array | float:
        """The mean squared error ``[k, k]`` of a difference of two actions' rows; what an action costs has none."""
        more = self.n_actions - 1
        return np.pad(self.plain.noise, (0, more)) if np.ndim(self.plain.noise) else self.plain.noise

    @property
    def words(self) -> str:
        """What V is made of."""
        return f"{self.plain.words} and whatever each action costs"

    def before(self, rows: Rows) -> Array:
        """φ(s) at some of the states ``[r, k]``."""
        return np.pad(self.plain.before(rows), ((0, 0), (0, self.n_actions - 1)))

    def after(self, actions: int | NDArray[np.intp], rows: Rows) -> Array:
        """(P_aφ)(s) ``[r, k]`` at some of the states, for one action or for one action of each row."""
        after = self.plain.after(actions, rows)
        taken = np.broadcast_to(actions, len(after))[:, None] == np.arange(1, self.n_actions)
        return np.concatenate([after, -taken.astype(float)], axis=1)

    def ahead(self, w: Array) -> Array:
        """(P_aV)(s) − c_a/γ for each action ``[A, n]``."""
        return self.plain.ahead(w[: self.plain.size]) - self.shares(w)[:, None]

    def value(self, w: Array) -> Array:
        """V(s) ``[n]``."""
        return self.plain.value(w[: self.plain.size])

    def shares(self, w: Array) -> Array:
        """c_a/γ of each action ``[A]``."""
        return np.append(0.0, w[self.plain.size :])

    def at(self, kept: NDArray[np.bool_]) -> Self:
        """The effects at some of the states."""
        return replace(self, states=self.states[kept], plain=self.plain.at(kept))


def with_costs(rows: Comparisons) -> Comparisons:
    """The comparisons with costs of the actions as further unknowns."""
    return replace(rows, effects=ChargedEffects.of(rows.effects))


def fit_with_costs(rows: Comparisons, plain: ValueFit, **program: Any) -> ValueFit:
    """``plain``, a fit of R(s), or that of R(s, a) = r(s) − c_a to the same data, if costs close a gap there.

    A gap: states at which some other action looks better than the expert's. Costs close it if they leave less than a
    quarter of these states, and of the squared shortfall.
    """
    if not len(rows):
        return plain
    before = _missed(rows, plain)
    if before.share < SOME:
        return plain
    paid = paid_fit(rows, **program)
    after = _missed(rows, paid)
    if after.share > CLOSED * before.share or after.shortfall > CLOSED * before.shortfall:
        return plain
    assert paid.prices is not None
    return replace(paid, prices=paid.prices._replace(left=after.share, without=before.share))


def paid_fit(rows: Comparisons, *, discount: float, further: Effects | None = None, **program: Any) -> ValueFit:
    """The fit of V and R(s, a) = r(s) − c_a, the cheapest action free."""
    charged = with_costs(rows)
    effects = charged.effects
    assert isinstance(effects, ChargedEffects)
    beyond = None if further is None else ChargedEffects.of(further)
    fit = fit_value(charged, discount=discount, further=beyond, **program)
    w, prices = fit.value[: effects.plain.size], discount * effects.shares(fit.value)
    # Adding a number to r and to all costs changes nothing: the cheapest action is free.
    reward = fit.reward - prices.min() * fit.reward_basis._constant()
    costs = charged.advantages(fit.value) - rows.advantages(w)
    return replace(fit, value=w, reward=reward, costs=costs, prices=Prices(prices - prices.min()))


class _Missed(NamedTuple):
    """What a fit leaves unexplained."""

    shortfall: float  # its mean square
    share: float  # of the states: some other action looks better there


def _missed(rows: Comparisons, fit: ValueFit) -> _Missed:
    """What a fit leaves unexplained in its data."""
    ahead = rows.advantages(fit.value) + fit.costs
    worse = np.unique(rows.which[(ahead < 0) & (rows.margins > 0)])
    return _Missed(float(np.mean(fit.shortfall**2)), len(worse) / len(rows.effects))
