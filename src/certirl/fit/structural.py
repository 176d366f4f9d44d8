"""Rewards of features of a soft expert, by maximum likelihood.

The expert takes action a at state s with probability exp(Q_a(s) − V(s)), where with R = Σ θ_i f_i

    Q_a = Σ_i θ_i f_i(s, a) + γ (P_aV)(s),        V = log Σ_a exp Q_a.

*Full solution*: V is a sum of basis functions, V = φ·w, and the equation is solved by Newton's method, each step of
which is the linear equation of the value of one policy, so that γ close to 1 costs no more steps. With the policy π of
the solution this equation is affine in θ, w = w_0 + Wθ, and W is the derivative of w, by the implicit function theorem.
*Two steps*: π is estimated first (from the decisions alone), so that Q is affine in θ and the likelihood concave; with
the policy of this answer in place of π the step can be repeated. Its limit is the full solution.

The likelihood is maximised by Fisher's scoring. Intervals hold all weights for which the likelihood, maximised over the
other weights, is at most a quantile of χ² below the largest one; they need not be symmetric. Dynamics count as known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Transitions
from certirl.fit.effects import Effects, KnownEffects
from certirl.fit.logit import softmax
from certirl.functions.bases import Legendre
from certirl.functions.features import Feature, Features, features_of
from certirl.ground.domain import Array
from certirl.ground.records import Record

SOLVED = 1e-8  # of 1 + the span of V: a smaller change of V between two states ends Newton's method, which squares it
ROUNDS = 100  # of Newton's method, and of the search for the largest likelihood
GAINED = 1e-16  # of 1 + the log-likelihood: what a step promises at the maximum
ALIKE = 1e-9  # of the information about a weight: less than this, once others have their share, is none
CONSTANT = 1e-20  # of the mean square of a slope: a smaller variance among actions is rounding
FUNCTIONS = 25  # of V, on an interval
FARTHEST = 2.0**10  # standard errors up to which the end of an interval is looked for


class Unsolved(Exception):
    """The equation of V has no solution in these functions, or none was found."""


class Value(NamedTuple):
    """V = φ·w at some weights θ."""

    w: Array  # its coefficients ``[k]``
    slope: Array  # their derivatives by θ ``[k, p]``
    chances: Array  # the policy at the nodes ``[A, m]``


class Likelihood(NamedTuple):
    """The log-likelihood of the decisions at some weights."""

    total: float  # the log-likelihood
    score: Array  # its slope ``[p]``
    information: Array  # Σ Var(dQ) over the decisions, which is minus the mean of its second derivative ``[p, p]``
    size: Array  # Σ (E dQ)² over the decisions ``[p]``
    value: Value  # V there


@dataclass(frozen=True, eq=False)
class Choices(Record):
    """Decisions of a soft expert, and the effects of its actions."""

    features: Features  # f_1 … f_p, of states and actions
    discount: float  # γ
    nodes: Effects  # effects at the states where the equation of V is solved, as many as functions of V at least
    decided: Effects  # effects at the states of the decisions
    actions: NDArray[np.intp]  # what was decided there ``[n]``

    @cached_property
    def _at_nodes(self) -> tuple[Array, Array, Array, Array]:
        """An orthogonal basis ``[m, k]`` of V's functions, these, P_aφ ``[A, m, k]`` and features ``[A, m, p]``."""
        before = self.nodes.before(slice(None))
        return np.linalg.qr(before)[0], before, self.nodes.after_each(slice(None)), _each(self.features, self.nodes)

    @cached_property
    def _paid(self) -> Array:
        """Features at the decisions ``[A, n, p]``."""
        return _each(self.features, self.decided)

    def of_policy(self, chances: Array) -> Value:
        """The value of a policy at the nodes ``[A, m]`` as it depends on θ: at θ = 0, with its slope."""
        q, before, after, paid = self._at_nodes
        left = before - self.discount * np.einsum("am,amk->mk", chances, after)
        surprise = -(chances * np.log(np.maximum(chances, 1e-300))).sum(axis=0)
        right = np.column_stack([surprise, np.einsum("am,amp->mp", chances, paid)])
        solved = np.linalg.solve(q.T @ left, q.T @ right)
        return Value(solved[:, 0], solved[:, 1:], chances)

    def policy(self, weights: Array, w: Array) -> Array:
        """The soft policy at the nodes ``[A, m]``."""
        _, _, after, paid = self._at_nodes
        # Against the first action, as a large constant in V would cost digits.
        q = (paid - paid[0]) @ weights + self.discount * ((after - after[0]) @ w)
        return softmax(q, axis=0)[0]

    def value(self, weights: Array, start: Array | None = None) -> Value:
        """V of the soft expert with these weights, by Newton's method."""
        _, before, after, _ = self._at_nodes
        chances = np.full(after.shape[:2], 1 / len(after)) if start is None else start
        w = np.zeros(before.shape[1])
        for _ in range(ROUNDS):
            found = self.of_policy(chances)
            last, w = w, found.w + found.slope @ weights
            if not np.isfinite(w).all():
                break
            if np.ptp(before @ (w - last)) <= SOLVED * (1 + np.ptp(before @ w)):
                return found._replace(w=w)
            chances = self.policy(weights, w)
        raise Unsolved

    def residual(self, weights: Array, value: Value) -> float:
        """By how much V misses log Σ exp Q_a at the states of the decisions, at most; constants do not count."""
        q = self._paid @ weights + self.discount * self.decided.ahead(value.w)
        return float(np.ptp(softmax(q, axis=0)[1] - self.decided.value(value.w))) / 2

    def likelihood(self, weights: Array, value: Value) -> Likelihood:
        """The log-likelihood of the decisions with a value."""
        q = self._paid @ weights + self.discount * self.decided.ahead(value.w)
        ahead = np.stack([self.decided.ahead(column) for column in value.slope.T], axis=2)
        slopes = self._paid + self.discount * ahead
        (chances, top), rows = softmax(q, axis=0), np.arange(len(self.actions))
        mean = np.einsum("an,anp->np", chances, slopes)
        away = slopes - mean
        information = np.einsum("an,anp,anq->pq", chances, away, away, optimize=True)
        total = float((q[self.actions, rows] - top).sum())
        score, size = away[self.actions, rows].sum(axis=0), (mean**2).sum(axis=0)
        return Likelihood(total, score, information, size, value)


def choices_of(log: Transitions, simulator: Any, features: Mapping[str, Feature], discount: float) -> Choices:
    """The decisions of a log, with effects that are known.

    Args:
        log: of decisions at states of one coordinate.
        simulator: has ``outcomes(states, action)``: all next states ``[m, n, 1]`` and their probabilities ``[m]``.
        features: of the reward, functions of states and actions by name.
        discount: γ.
    """
    basis = Legendre(FUNCTIONS).on(log.domain)

    def effects(states: Array) -> KnownEffects:
        rows = np.zeros((log.n_actions, len(states), FUNCTIONS))
        for action in range(log.n_actions):
            branches, weights = simulator.outcomes(states, action)
            for moved, weight in zip(branches, weights, strict=True):
                rows[action] += weight * basis.values(moved)
        return KnownEffects(basis, states, (), rows)

    nodes = basis.quadrature(FUNCTIONS)[0]
    return Choices(features_of(features, log.domain), discount, effects(nodes), effects(log.states), log.actions)


@dataclass(frozen=True, eq=False)
class StructuralFit(Record):
    """Weights of features by maximum likelihood."""

    names: tuple[str, ...]  # of the features
    weights: Array  # θ ``[p]``
    covariance: Array  # of the weights: the inverse of the information ``[p, p]``
    intervals: Array  # of each weight by the likelihood ratio ``[p, 2]``; infinite where the likelihood hardly falls
    level: float  # the probability of the intervals, in the limit of many decisions
    log_likelihood: float  # of the decisions
    decisions: int  # how many
    solution: str  # "full" or "two-step"
    residual: float  # by how much V misses its equation at the decisions, at most
    value: Array  # V's coefficients ``[k]``

    @property
    def standard_errors(self) -> Array:
        """Of the weights ``[p]``."""
        return np.sqrt(np.diag(self.covariance))

    def __str__(self) -> str:
        how = {"full": "full solution", "two-step": "two steps"}[self.solution]
        head = f"log-likelihood {self.log_likelihood:,.2f} of {self.decisions:,} decisions, by {how}"
        wide = max(map(len, (*self.names, "feature")))
        lines = [head, f"  {'feature':<{wide}}     weight  std. error  {self.level:.0%} interval"]
        for name, weight, error, (low, high) in zip(
            self.names, self.weights, self.standard_errors, self.intervals, strict=True
        ):
            lines.append(f"  {name:<{wide}} {weight:>10.4g}  {error:>10.2g}  {low:.4g} to {high:.4g}")
        return "\n".join(lines)


def fit_weights(choices: Choices, *, first: Array | None = None, steps: int = 1, level: float = 0.95) -> StructuralFit:
    """The weights of greatest likelihood, with standard errors and intervals.

    Args:
        choices: the decisions.
        first: for two steps, probabilities of the actions at the nodes ``[A, m]``, as estimated from the decisions;
            full solution without them.
        steps: how often a policy is used, the first one and then that of the last answer.
        level: of the intervals.
    """
    from scipy.stats import chi2

    weights = np.zeros(choices.features.size)
    value_at = _full(choices) if first is None else _affine(choices.of_policy(first))
    _check_determined(choices.features.names, choices.likelihood(weights, value_at(weights)))
    for _ in range(steps - 1):
        weights, _ = _maximised(choices, value_at, weights)
        value_at = _affine(choices.of_policy(choices.policy(weights, value_at(weights).w)))
    weights, best = _maximised(choices, value_at, weights)
    covariance = np.linalg.inv(best.information)
    least = best.total - float(chi2.ppf(level, 1)) / 2
    ends = [
        [_interval_end(choices, value_at, weights, least, covariance, index, side) for side in (-1, 1)]
        for index in range(len(weights))
    ]
    solution = "full" if first is None else "two-step"
    return StructuralFit(
        choices.features.names,
        weights,
        covariance,
        np.array(ends),
        level,
        best.total,
        len(choices.actions),
        solution,
        choices.residual(weights, best.value),
        best.value.w,
    )


ValueAt = Callable[[Array], Value]


def _full(choices: Choices) -> ValueAt:
    """V by full solution; the policy of the last weights is where Newton's method starts."""
    last: list[Array] = []

    def value_at(weights: Array) -> Value:
        try:
            found = choices.value(weights, last[0] if last else None)
        except Unsolved:
            if not last:
                raise
            found = choices.value(weights)
        last[:] = [found.chances]
        return found

    return value_at


def _affine(value: Value) -> ValueAt:
    """V of a fixed policy."""
    return lambda weights: value._replace(w=value.w + value.slope @ weights)


def _maximised(choices: Choices, value_at: ValueAt, start: Array, fixed: int | None = None) -> tuple[Array, Likelihood]:
    """The weights of greatest likelihood, one of them fixed."""
    free = np.arange(len(start)) != fixed
    weights, here = start, choices.likelihood(start, value_at(start))
    for _ in range(ROUNDS):
        score, information = here.score[free], here.information[np.ix_(free, free)]
        units = np.sqrt(np.maximum(np.diag(information), 1e-300))
        scaled = information / np.outer(units, units) + 1e-12 * np.eye(len(units))
        move = np.zeros(len(start))
        move[free] = np.linalg.solve(scaled, score / units) / units
        better = _uphill(choices, value_at, weights, here, move)
        if better is None:
            break
        weights, here = better
    return weights, here


def _uphill(
    choices: Choices, value_at: ValueAt, weights: Array, here: Likelihood, move: Array
) -> tuple[Array, Likelihood] | None:
    """The likelihood after a step, halved until it is larger; None where the step promises nothing."""
    promised = float(here.score @ move)
    while promised > GAINED * (1 + abs(here.total)):
        try:
            there = choices.likelihood(weights + move, value_at(weights + move))
        except Unsolved:
            there = here
        if there.total > here.total:
            return weights + move, there
        promised, move = promised / 2, move / 2
    return None


def _interval_end(
    choices: Choices, value_at: ValueAt, weights: Array, least: float, covariance: Array, index: int, side: int
) -> float:
    """Where the likelihood, maximised over the other weights, is ``least``; infinite if it does not fall so far."""
    from scipy.optimize import brentq

    toward = covariance[:, index] / covariance[index, index]  # how the others follow, to first order
    error, known = float(np.sqrt(covariance[index, index])), dict[float, Array]()

    def above(distance: float) -> float:
        nearest = min(known, key=lambda other: abs(other - distance), default=0.0)
        start = known.get(nearest, weights) + toward * side * (distance - nearest) * error
        start[index] = weights[index] + side * distance * error
        try:
            known[distance], found = _maximised(choices, value_at, start, index)
        except Unsolved:
            return -np.inf
        return found.total - least

    far, height = 1.0, np.inf
    while height > 0 and far < FARTHEST:
        far *= 2
        height = above(far)
    if height > 0 or not np.isfinite(height):
        return side * np.inf
    return float(weights[index] + side * error * brentq(above, 0.0, far, xtol=1e-4))


def _check_determined(names: tuple[str, ...], here: Likelihood) -> None:
    """Refuse weights of which the decisions say nothing."""
    known = np.diag(here.information)
    is_open = known <= np.maximum(CONSTANT * here.size, 1e-300)
    if not is_open.any():
        units = np.sqrt(known)
        values, vectors = np.linalg.eigh(here.information / np.outer(units, units))
        is_open = (np.abs(vectors[:, 0]) > 0.1) & (values[0] < ALIKE)
    if is_open.any():
        listed = ", ".join(repr(name) for name, undetermined in zip(names, is_open, strict=True) if undetermined)
        raise ValueError(
            f"the decisions do not determine the weights of {listed}: other weights give the same decisions; leave one "
            "of these features out"
        )


def _each(features: Features, effects: Effects) -> Array:
    """f_i(s, a) at the states of some effects ``[A, m, p]``."""
    return np.stack([features.values(effects.states, action) for action in range(effects.n_actions)])
