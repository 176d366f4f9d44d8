"""Rewards of soft experts from log-odds and transitions: R_a = V + log π_a − γP_aV for every action a.

One fact more says which V it is. With the reward of a *reference action* 0 given, V = (I − γP_0)⁻¹(r_0 − log π_0) and
every reward is known: `by_reference`. Where rewards are sums of *few features*, R_a = θ·f_a, rewards of the state alone
among them, V = (I − γP_π)⁻¹Σ π_c(θ·f_c − log π_c) is affine in θ, and θ is what makes the decisions likeliest:
`by_features`. To first order the errors of log π then leave V as it is, since π is the best of all policies for V.

Everything rests on (P̂_a f)(s) as a function of the state, for any functions f of the next state: `Projections`.
Covariances are those of the first order in the errors of the log-odds and of the regressions, which do not depend on
each other: each error has mean 0 given everything before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from certirl.data.source import Logged, Source
from certirl.data.transitions import Transitions
from certirl.fit.declared import Declared
from certirl.fit.effects import blocks, ended
from certirl.fit.logit import (
    FREE,
    Choices,
    FitTest,
    Logit,
    chi_squared,
    effects_of,
    newton,
    placed,
    softmax,
    whitening,
    without_each,
)
from certirl.fit.projections import NOTHING_DECLARED, Projections
from certirl.fit.regression import FOLDS, best_columns, choices_of, held_out_rows
from certirl.functions.bases import Basis, of_degree
from certirl.functions.functions import Functions
from certirl.ground.domain import Array

DEGREES = (0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7)  # of the columns, in units of `_UNIT`
_UNIT = {1: 10, 2: 8, 3: 6}  # by the number of coordinates; 4 for more
_ALIKE = 1e-9  # of the information of features in units of their own: with less they are alike
_SMALL = 1e-3  # of the variance of a direction of the decisions: with less the features fit it exactly


def project(
    source: Source,
    log: Transitions,
    columns: Basis | None,
    logit: Logit,
    discount: float,
    declared: Declared = NOTHING_DECLARED,
) -> Projections:
    """The regressions with the columns asked for, or with those that predict V at held-out next states best.

    V is that of the reference identity with r_0 = 0, whatever the rewards are sums of.
    """
    resets = declared.resets
    log = resets.without(declared.made(log) if declared else log)
    is_terminal, _ = source.terminal()
    over = ended(log.next_states, is_terminal, log.terminal if isinstance(source, Logged) else None)
    if columns is None:
        unit = of_degree(log.domain, _UNIT.get(len(log.domain), 4), source.periodic)
        affordable = int(log.counts.min()) // 4
        pilot = of_degree(log.domain, 2, source.periodic)
        pilot = pilot.resized(max(min(pilot.size, affordable), 1))
        by_pilot = by_reference(Projections.of(log, pilot, over, resets), logit, discount)

        def goals(rows: Array) -> Array:
            values = by_pilot.value(log.next_states[rows])[:, None]
            return values if over is None else np.where(over[rows, None], 0.0, values)

        columns, *_ = best_columns(log, held_out_rows(log), choices_of(unit, DEGREES, DEGREES[0]), goals)
    return Projections.of(log, columns, over, resets)


class Identified(NamedTuple):
    """Rewards Σ_j c_aj x_j in functions of the state, R_a or with a reference R_a − r_0, and what they rest on.

    Attributes:
        basis: the functions of the rewards.
        coefficients: of each action's reward ``[A, p]``, or of all ``[p]``.
        covariances: of these, of each action ``[A, p, p]``, or of all ``[p, p]``.
        columns: the functions of the state that describe P_aV.
        effects: (P_aV)(s) in the columns ``[A, k]``.
        value: V at states ``[n, d]``.
        likelihood: Σ log π over the decisions under the policy of these rewards.
        fit: a test of the rewards; None where they can explain every policy.
    """

    basis: Functions
    coefficients: Array
    covariances: Array
    columns: Basis
    effects: Array
    value: Callable[[Array], Array]
    likelihood: float = float("nan")
    fit: FitTest | None = None


def by_reference(
    dynamics: Projections, logit: Logit, discount: float, given: Callable[[Array], Array] | None = None
) -> Identified:
    """R_a − r_0 = log(π_a/π_0) + γ(P_0 − P_a)V with V = (I − γP_0)⁻¹(r_0 − log π_0), 0 the reference.

    Args:
        dynamics: of the next states.
        logit: the log-odds, against the reference.
        discount: γ.
        given: r_0 at states ``[n]``; 0 if left out.
    """
    columns, own, gamma, m = dynamics.columns, logit.reference, discount, len(logit.information)

    def sources(states: Array) -> Array:
        """x, r_0 − log π_0, and what this changes by with each coefficient of the log-odds ``[n, k + 1 + m]``."""
        here = logit.at(states)
        return np.column_stack([columns.values(states), paid(states, here), effects_of(here, logit.others)])

    def paid(states: Array, here: Choices) -> Array:
        """r_0 − log π_0 ``[n]``."""
        return here.cost if given is None else here.cost + given(states)

    ahead = dynamics.expected(sources)
    k = columns.size
    onward, rest = ahead[:, :, :k], ahead[:, :, k:]
    inverse = np.linalg.inv(np.eye(k) - gamma * onward[own])
    solved = inverse @ rest[own]  # of P_0V and of its derivatives
    every = rest + gamma * onward @ solved  # of P_aV and of its derivatives
    effects = every[:, :, 0]

    def value(states: Array) -> Array:
        return paid(states, logit.at(states)) + gamma * columns.values(states) @ effects[own]

    spread = dynamics.spread(lambda states: value(states)[:, None], effects)
    basis = wider(logit.basis, columns)
    from_odds, from_columns = embedded(logit.basis, basis), embedded(columns, basis)
    coefficients = from_odds @ logit.coefficients.T + gamma * from_columns @ (effects[own] - effects).T
    known = np.linalg.inv(logit.information + 1e-9 * np.trace(logit.information) / m * np.eye(m))
    covariances = np.zeros((len(effects), basis.size, basis.size))
    for place, action in enumerate(logit.others):
        by_odds = gamma * from_columns @ (every[own, :, 1:] - every[action, :, 1:])
        by_odds[:, place * logit.basis.size : (place + 1) * logit.basis.size] += from_odds
        ahead_of = gamma * from_columns @ (np.eye(k) - gamma * onward[action]) @ inverse
        both = np.concatenate([ahead_of, -gamma * from_columns], axis=1)
        of_both = spread[np.ix_([own, action], range(k), [own, action], range(k))].reshape(2 * k, 2 * k)
        covariances[action] = by_odds @ known @ by_odds.T + both @ of_both @ both.T
    return Identified(basis, coefficients.T, covariances, columns, effects, value)


Paid = Callable[[Array, int], Array]  # states and an action to the features ``[n, p]``


def by_features(
    dynamics: Projections, logit: Logit, decisions: Transitions, paid: Paid, basis: Functions, discount: float
) -> Identified:
    """θ of greatest likelihood for R_a = θ·f_a, the policy and the dynamics behind V being the estimated ones.

    Args:
        dynamics: of the next states.
        logit: the policy.
        decisions: of the expert.
        paid: f of an action at states.
        basis: f as functions of a reward.
        discount: γ.
    """
    steps = TwoSteps(dynamics, logit, decisions, paid, basis.size, discount)
    theta = steps.likeliest([*str(basis).split(", ")])
    covariance, fit = steps.judged(theta)
    effects = steps.effects(theta)

    def value(states: Array) -> Array:
        """The value of the best of all policies, log Σ exp Q."""
        utilities = np.stack([paid(states, action) @ theta for action in range(logit.n_actions)], axis=1)
        return softmax(utilities + discount * dynamics.columns.values(states) @ effects.T)[1]

    likelihood = steps.likelihood(theta)
    return Identified(basis, theta, covariance, dynamics.columns, effects, value, likelihood, fit)


class Part(NamedTuple):
    """Some decisions, with the utilities Q_a = z_a·θ + rest_a.

    Attributes:
        states: ``[n, d]``.
        actions: that were taken ``[n]``.
        x: functions of the state ``[n, k]``.
        z: what Q_a changes by with θ ``[n, A, p]``.
        rest: the rest of it ``[n, A]``.
    """

    states: Array
    actions: Array
    x: Array
    z: Array
    rest: Array


class TwoSteps:
    """The likelihood of rewards θ·f_a, where V = Σ π_c(θ·f_c − log π_c + γP_cV) for the estimated π and P.

    Arguments as for `by_features`, with the number of features in place of the basis.
    """

    def __init__(
        self, dynamics: Projections, logit: Logit, decisions: Transitions, paid: Paid, size: int, discount: float
    ) -> None:
        self.dynamics, self.logit, self.decisions, self.paid = dynamics, logit, decisions, paid
        self.size, self.discount, A, k = size, discount, logit.n_actions, dynamics.columns.size
        ahead = dynamics.expected(self._sources).reshape(A * k, -1)
        self.inverse = np.linalg.inv(np.eye(A * k) - discount * ahead[:, : A * k])
        self.solved = (self.inverse @ ahead[:, A * k :]).reshape(A, k, size + 1)  # of P_aV, by θ and without it

    def _sources(self, states: Array) -> Array:
        """π_c x for all c, Σ π_c f_c, and −Σ π_c log π_c ``[n, A·k + p + 1]``."""
        here, x = self.logit.at(states), self.dynamics.columns.values(states)
        onward = (here.chances[:, :, None] * x[:, None, :]).reshape(len(states), -1)
        means = np.einsum("na,nap->np", here.chances, self._features(states))
        return np.column_stack([onward, means, here.cost - (here.chances * here.odds).sum(axis=1)])

    def _features(self, states: Array) -> Array:
        """f of every action ``[n, A, p]``."""
        return np.stack([self.paid(states, action) for action in range(self.logit.n_actions)], axis=1)

    def parts(self, decisions: Transitions | None = None) -> Iterator[Part]:
        """All decisions, or others."""
        decisions = self.decisions if decisions is None else decisions
        for rows in blocks(len(decisions)):
            states = decisions.states[rows]
            x = self.dynamics.columns.values(states)
            further = self.discount * np.einsum("nk,akq->naq", x, self.solved)
            z = further[:, :, :-1] + self._features(states)
            yield Part(states, decisions.actions[rows], x, z, further[:, :, -1])

    def effects(self, theta: Array) -> Array:
        """(P_aV)(s) in the columns ``[A, k]``."""
        return np.asarray(self.solved[:, :, :-1] @ theta + self.solved[:, :, -1])

    def likelihood(self, theta: Array, decisions: Transitions | None = None) -> float:
        """Σ log p over the decisions, or over others."""
        total = 0.0
        for part in self.parts(decisions):
            utilities = part.z @ theta + part.rest
            total += float((utilities[np.arange(len(utilities)), part.actions] - softmax(utilities)[1]).sum())
        return total

    def held_out_likelihood(self, theta: Array, numbers: Array) -> float:
        """Σ log p over the decisions, each by the likeliest θ without its fold."""
        _, known = self.derivatives(theta)
        parts = [self.decisions.where(numbers == fold) for fold in range(FOLDS)]
        slopes = np.array([self.derivatives(theta, part)[0] for part in parts])
        moved = without_each(theta, known, slopes)
        return sum(self.likelihood(trial, part) for trial, part in zip(moved, parts, strict=True))

    def derivatives(self, theta: Array, decisions: Transitions | None = None) -> tuple[Array, Array]:
        """The slope ``[p]`` of the likelihood of all decisions, or of others, and its information ``[p, p]``."""
        slope, curve = np.zeros(self.size), np.zeros((self.size, self.size))
        for part in self.parts(decisions):
            chances, _ = softmax(part.z @ theta + part.rest)
            slope += np.einsum("na,nap->p", _residuals(part.actions, chances), part.z)
            curve += _spread_of(part.z, chances, part.z)
        return slope, curve

    def likeliest(self, names: Sequence[str]) -> Array:
        """θ of greatest likelihood; features that no decision tells apart are refused."""
        _, curve = self.derivatives(np.zeros(self.size))
        sizes, n = np.sqrt(np.diag(curve)), len(self.decisions)
        unit = curve / np.where(sizes > 0, np.outer(sizes, sizes), 1.0)
        values, vectors = np.linalg.eigh(unit)
        if values[0] < _ALIKE:
            worst = int(np.abs(vectors[:, 0]).argmax())
            name = names[worst] if len(names) == self.size else f"number {worst}"
            raise ValueError(
                f"no decision depends on the weight of the feature {name!r} beside those of the others: leave it out"
            )

        def scaled(theta: Array) -> tuple[Array, Array]:
            slope, curve = self.derivatives(theta * np.sqrt(n) / sizes)
            return slope * np.sqrt(n) / sizes, curve * n / np.outer(sizes, sizes)

        return np.asarray(newton(np.zeros(self.size), scaled, n, 0.0) * np.sqrt(n) / sizes)

    def judged(self, theta: Array) -> tuple[Array, FitTest]:
        """The covariance of θ, and a test whether log-odds that are free fit better than its policy."""
        A, k, m, gamma = self.logit.n_actions, self.dynamics.columns.size, len(self.logit.information), self.discount
        mixed, whole, slope = np.zeros((m, self.size)), np.zeros((m, m)), np.zeros(m)
        curve, by_theta, by_odds = np.zeros((self.size, self.size)), np.zeros((self.size, A * k)), np.zeros((m, A * k))
        for part in self.parts():
            chances, free = softmax(part.z @ theta + part.rest)[0], self._free(part.states)
            curve += _spread_of(part.z, chances, part.z)
            mixed += _spread_of(free, chances, part.z)
            whole += _spread_of(free, chances, free)
            slope += np.einsum("na,nam->m", _residuals(part.actions, chances), free)
            for total, of in ((by_theta, part.z), (by_odds, free)):
                weighted = chances[:, :, None] * (of - np.einsum("na,nap->np", chances, of)[:, None])
                total += np.einsum("nap,nk->pak", weighted, part.x, optimize=True).reshape(len(total), A * k)
        spread = self.dynamics.spread(*self._valued(theta)).reshape(A * k, A * k)
        noise = gamma**2 * self.inverse @ spread @ self.inverse.T
        known = np.linalg.inv(curve)
        covariance = known + known @ by_theta @ noise @ by_theta.T @ known
        left = by_odds - mixed @ known @ by_theta
        error = whole - mixed @ known @ mixed.T + left @ noise @ left.T
        # Directions of the log-odds that the features fit exactly have no error, and say nothing.
        white = whitening(whole)
        values, vectors = np.linalg.eigh(white.T @ error @ white)
        kept = white @ vectors[:, values > _SMALL]
        return covariance, chi_squared(kept.T @ slope, kept.T @ error @ kept, FREE)

    def _free(self, states: Array) -> Array:
        """What log-odds change by with their coefficients ``[n, A, m]``."""
        each = placed(self.logit.basis.values(states), len(self.logit.others))
        return np.stack([*each[: self.logit.reference], np.zeros_like(each[0]), *each[self.logit.reference :]], axis=1)

    def _valued(self, theta: Array) -> tuple[Callable[[Array], Array], Array]:
        """V as a function of states ``[n, 1]``, and (P_aV)(s) in the columns."""
        effects = self.effects(theta)

        def value(states: Array) -> Array:
            here = self.logit.at(states)
            each = self._features(states) @ theta + self.discount * self.dynamics.columns.values(states) @ effects.T
            return np.asarray((here.chances * (each - here.odds)).sum(axis=1) + here.cost)[:, None]

        return value, effects


def _residuals(actions: Array, chances: Array) -> Array:
    """1{a} − π_a ``[n, A]``."""
    return np.asarray((actions[:, None] == np.arange(chances.shape[1])) - chances)


def _spread_of(one: Array, chances: Array, other: Array) -> Array:
    """Σ of the covariance of two functions of the action under its probabilities ``[p, q]``."""
    n = len(chances)
    weighted = (chances[:, :, None] * one).reshape(-1, one.shape[2])
    means = [np.einsum("na,nap->np", chances, each) for each in (one, other)]
    return np.asarray(weighted.T @ other.reshape(n * chances.shape[1], -1) - means[0].T @ means[1])


def wider(one: Basis, other: Basis) -> Basis:
    """The larger of two bases, or one with functions of all their degrees where it does not hold the smaller."""
    small, large = sorted((one, other), key=lambda basis: basis.size)
    if large.resized(small.size) == small:
        return large
    degree = max(one.degree, other.degree) + 1
    return of_degree(large.domain, degree, large.periodic_axes)


def embedded(inner: Functions, outer: Basis) -> Array:
    """The functions of one basis in those of another ``[p, k]``, by least squares at the states of its design."""
    states = outer.design(20 * outer.size, np.random.default_rng(0))
    return np.linalg.lstsq(outer.values(states), inner.values(states), rcond=None)[0]
