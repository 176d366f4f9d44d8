"""Multinomial logits: the log-odds of a soft expert's actions, by greatest likelihood, and how well they fit.

Against a reference action the log-odds are L_a(s) = θ_a·x(s). The size of the basis is chosen by the likelihood of
held-out decisions, whole episodes of them: every decision is held out once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl.data.transitions import Transitions
from certirl.fit.effects import blocks, richer
from certirl.fit.regression import FOLDS, folds
from certirl.functions.bases import Basis, first_functions, of_degree
from certirl.ground import archive
from certirl.ground.archive import Shape
from certirl.ground.domain import Array, Box
from certirl.ground.records import Record, internal

RIDGE = 0.01  # of a free logit: rare actions leave some directions open
DEGREES = {1: 16, 2: 8, 3: 5}  # of the log-odds at most, by the number of coordinates; 3 for more of these
PER_FUNCTION = 5  # decisions for an action, of the rarest one, for each function
PATIENCE = 2  # degrees without a better likelihood after which no higher ones are tried
FEWEST_EVENTS = 5.0  # information on a function, in decisions, from which a limit law is trusted
GROUPS = 10  # of decisions with similar probabilities, whose shares are compared with these
HIGHER, BEFORE, FREE = "log-odds of a higher degree", "the action before", "free log-odds"  # that are tested
_STEPS = 60  # of Newton's method at most
_OVERSHOT = 0.5  # of the slope at the start of a step: a step that ends steeper downhill is halved
_BLOCK = 1 << 15  # decisions worked on at once


@internal
class Choices(NamedTuple):
    """What log-odds say at n states.

    Attributes:
        x: the functions ``[n, K]``.
        odds: the log-odds ``[n, A]``.
        chances: the probabilities ``[n, A]``.
        cost: log(1 + Σ e^L) = −log of the reference's probability ``[n]``.
    """

    x: Array
    odds: Array
    chances: Array
    cost: Array


@archive.record
@dataclass(frozen=True, eq=False)
class Logit(Record):
    """The log-odds of the actions against a reference action, in a basis; m = (A − 1)K coefficients.

    Attributes:
        basis: x.
        reference: the action whose log-odds are 0.
        coefficients: θ of every action, zero for the reference ``[A, K]``.
        information: of the decisions about θ ``[m, m]``.
        decisions: how many these were.

    Example:
        >>> from certirl.fit.logit import fit_logit
        >>> walk = certirl.problems.soft_walk()
        >>> log = walk.log(episodes=50, steps=20, rng=0)
        >>> logit = fit_logit(certirl.Legendre(3), log.states, log.actions, 3)
        >>> logit.at(log.states[:5]).chances.shape
        (5, 3)
    """

    basis: Basis
    reference: int
    coefficients: Annotated[Array, Shape("A basis.size")]
    information: Annotated[Array, Shape("m m")]
    decisions: int

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.coefficients)

    @property
    def others(self) -> list[int]:
        """The actions but the reference, in the order of their coefficients."""
        return all_but(self.reference, self.n_actions)

    def at(self, states: Array) -> Choices:
        """x, log-odds and probabilities at states ``[n, d]``.

        Example:
            >>> bool(logit.at(np.zeros((1, 1))).odds[0, 0] == 0)
            True
        """
        return choices(self.basis, self.coefficients, states)

    @internal
    def effects(self, states: Array) -> Array:
        """π_c x_j, what −log π of the reference changes by with each coefficient, at states ``[n, d]``: ``[n, m]``."""
        return effects_of(self.at(states), self.others)


def all_but(reference: int, n_actions: int) -> list[int]:
    """The other actions."""
    return [action for action in range(n_actions) if action != reference]


def blocks_of(rows: Array) -> list[Array]:
    """Consecutive parts of rows."""
    return [rows[block] for block in blocks(len(rows), _BLOCK)]


def placed(x: Array, count: int) -> list[Array]:
    """x in each of several places, zeros in the others ``[n, count·K]``."""
    each = np.zeros((count, len(x), count, x.shape[1]))
    for place in range(count):
        each[place, :, place] = x
    return list(each.reshape(count, len(x), -1))


def choices(basis: Basis, coefficients: Array, states: Array) -> Choices:
    """What log-odds in a basis say at states ``[n, d]``."""
    x = basis.values(states)
    odds = x @ coefficients.T
    chances, total = softmax(odds)
    return Choices(x, odds, chances, total)


def softmax(utilities: Array, axis: int = 1) -> tuple[Array, Array]:
    """Probabilities for utilities ``[n, A]``, or along another axis, and log Σ exp of these ``[n]``."""
    top = utilities.max(axis=axis, keepdims=True)
    weights = np.exp(utilities - top)
    total = weights.sum(axis=axis, keepdims=True)
    return weights / total, (top + np.log(total)).squeeze(axis)


def effects_of(here: Choices, others: list[int]) -> Array:
    """π_c x_j for all actions but the reference ``[n, m]``."""
    return np.asarray((here.chances[:, others, None] * here.x[:, None, :]).reshape(len(here.x), -1))


def information(basis: Basis, states: Array, coefficients: Array, reference: int) -> Array:
    """Σ (diag π − ππᵀ) ⊗ x xᵀ over decisions, without the reference ``[m, m]``."""
    others = all_but(reference, len(coefficients))
    total = np.zeros((len(others), basis.size, len(others), basis.size))
    for block in blocks_of(states):
        x, _, chances, _ = choices(basis, coefficients, block)
        for i, c in enumerate(others):
            for j, d in enumerate(others[: i + 1]):
                part = (x * (chances[:, c] * ((c == d) - chances[:, d]))[:, None]).T @ x
                total[i, :, j] += part
                if i != j:
                    total[j, :, i] += part
    return total.reshape(len(others) * basis.size, -1)


def score(basis: Basis, states: Array, actions: NDArray[np.intp], coefficients: Array, reference: int) -> Array:
    """Σ (1{a = c} − π_c) x over decisions, for all c but the reference ``[m]``."""
    others = all_but(reference, len(coefficients))
    total = np.zeros((len(others), basis.size))
    for block in blocks(len(states), _BLOCK):
        x, _, chances, _ = choices(basis, coefficients, states[block])
        total += np.stack([((actions[block] == c) - chances[:, c]) @ x for c in others])
    return total.ravel()


def log_likelihood(basis: Basis, states: Array, actions: NDArray[np.intp], coefficients: Array) -> float:
    """Σ log π over decisions."""
    total = 0.0
    for block in blocks(len(states), _BLOCK):
        _, odds, _, cost = choices(basis, coefficients, states[block])
        total += float((odds[np.arange(len(odds)), actions[block]] - cost).sum())
    return total


def maximise(basis: Basis, states: Array, actions: NDArray[np.intp], start: Array, reference: int) -> Array:
    """The coefficients ``[A, K]`` of greatest likelihood less a small ridge, by Newton's method."""
    others, coefficients = all_but(reference, len(start)), start.copy()

    def derivatives(theta: Array) -> tuple[Array, Array]:
        coefficients[others] = theta.reshape(len(others), -1)
        known = information(basis, states, coefficients, reference)
        return score(basis, states, actions, coefficients, reference), known

    coefficients[others] = newton(start[others].ravel(), derivatives, len(states), RIDGE).reshape(len(others), -1)
    return coefficients


def newton(start: Array, derivatives: Callable[[Array], tuple[Array, Array]], decisions: int, ridge: float) -> Array:
    """Where a concave likelihood less ridge·|θ|²/2 is largest; ``derivatives`` are its slope and its information."""
    theta, (slope, known) = start.copy(), derivatives(start)
    for _ in range(_STEPS):
        uphill = slope - ridge * theta
        step = np.linalg.solve(known + ridge * np.eye(len(known)), uphill)
        size = sqrt(max(float(step @ known @ step), 0.0) / max(decisions, 1))
        is_last = float(uphill @ step) < 1e-16 * max(decisions, 1)
        step *= min(1.0, 1.0 / max(size, 1e-300))
        if is_last:
            return theta + step
        slope, known = derivatives(theta + step)
        while (slope - ridge * (theta + step)) @ step < -_OVERSHOT * (uphill @ step):
            step /= 2
            slope, known = derivatives(theta + step)
        theta = theta + step
    return theta


def fit_logit(basis: Basis, states: Array, actions: NDArray[np.intp], n_actions: int, *, reference: int = 0) -> Logit:
    """The log-odds of greatest likelihood.

    Args:
        basis: x.
        states: ``[n, d]``.
        actions: ``[n]``.
        n_actions: A.
        reference: the action whose log-odds are 0.
    """
    coefficients = maximise(basis, states, actions, np.zeros((n_actions, basis.size)), reference)
    known = information(basis, states, coefficients, reference)
    return Logit(basis, reference, coefficients, known, len(states))


class Fitted(NamedTuple):
    """A logit whose basis held-out decisions chose.

    Attributes:
        logit: fitted to all decisions.
        folds: the number of the fold of each decision ``[n]``.
        likelihood: Σ log π over the decisions, each by a fit without its fold.
        chances: the probabilities that these fits give ``[n, A]``.
    """

    logit: Logit
    folds: NDArray[np.intp]
    likelihood: float
    chances: Array


def choose_logit(
    decisions: Transitions, domain: Box, basis: Basis | None, *, reference: int, periodic: tuple[int, ...]
) -> Fitted:
    """The log-odds in the basis asked for, or in the one under which held-out decisions are likeliest."""
    numbers, start = folds(decisions), np.zeros((decisions.n_actions, 0))
    candidates = [basis] if basis is not None else _candidates(domain, periodic, int(decisions.counts.min()))
    best, since = None, 0
    for candidate in candidates:
        start = np.pad(start, ((0, 0), (0, candidate.size - start.shape[1])))
        start = maximise(candidate, decisions.states, decisions.actions, start, reference)
        fitted = _held_out(candidate, decisions, start, reference, numbers)
        best, since = (fitted, 0) if best is None or fitted.likelihood > best.likelihood else (best, since + 1)
        if since >= PATIENCE:
            break
    assert best is not None
    return best


def _held_out(
    basis: Basis, decisions: Transitions, coefficients: Array, reference: int, numbers: NDArray[np.intp]
) -> Fitted:
    """A fit with the likelihood of decisions that are held out."""
    states, actions, others = decisions.states, decisions.actions, all_but(reference, decisions.n_actions)
    known = information(basis, states, coefficients, reference)
    slopes = [score(basis, states[rows], actions[rows], coefficients, reference) for rows in each_fold(numbers)]
    theta = coefficients[others].ravel()
    chances, total = np.empty((len(states), decisions.n_actions)), 0.0
    for rows, moved in zip(each_fold(numbers), without_each(theta, known, np.array(slopes)), strict=True):
        trial = np.zeros_like(coefficients)
        trial[others] = moved.reshape(len(others), -1)
        here = choices(basis, trial, states[rows])
        chances[rows] = here.chances
        total += float((here.odds[np.arange(len(here.odds)), actions[rows]] - here.cost).sum())
    return Fitted(Logit(basis, reference, coefficients, known, len(states)), numbers, total, chances)


def each_fold(numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """The rows of each fold."""
    return [np.flatnonzero(numbers == fold) for fold in range(FOLDS)]


def without_each(theta: Array, known: Array, slopes: Array) -> Array:
    """θ ``[m]`` without each fold in turn, by a step of Newton's method from θ of all: ``[FOLDS, m]``.

    Args:
        theta: of greatest likelihood.
        known: the information of all folds.
        slopes: of the likelihood of each fold at θ ``[FOLDS, m]``.
    """
    ridged = known + 1e-9 * np.trace(known) / len(known) * np.eye(len(known))
    return np.asarray(theta - np.linalg.solve(ridged, slopes.T).T * (FOLDS / (FOLDS - 1)))


def _candidates(domain: Box, periodic: tuple[int, ...], rarest: int) -> list[Basis]:
    """Bases of growing degree, constants first, as far as the decisions for the rarest action allow."""
    highest = DEGREES.get(len(domain), 3)
    every = [
        first_functions(1, domain, periodic),
        *(of_degree(domain, degree, periodic) for degree in range(1, highest)),
    ]
    return [basis for basis in every if basis.size == 1 or basis.size * PER_FUNCTION <= rarest]


@archive.record
@dataclass(frozen=True)
class FitTest(Record):
    """A test of a model: a statistic that is about χ² with this freedom if the model is true.

    Attributes:
        what: is tested, in words.
        statistic: its value.
        freedom: its degrees of freedom.

    Example:
        >>> from certirl.fit.logit import FitTest
        >>> round(FitTest("the logit", 3.84, 1).chance, 3)
        0.05
    """

    what: str
    statistic: float
    freedom: int

    @property
    def chance(self) -> float:
        """The probability of a statistic as large, if the model is true."""
        from scipy.special import gammaincc

        return float(gammaincc(self.freedom / 2, self.statistic / 2)) if self.freedom else 1.0

    def __str__(self) -> str:
        return f"{self.what}: χ² = {self.statistic:.3g} with {self.freedom} degrees of freedom, p = {self.chance:.2g}"


def score_test(logit: Logit, decisions: Transitions, functions: Callable[[slice], Array], what: str) -> FitTest:
    """Whether further functions of a decision's past ``[n, q]`` would say more of it than x does.

    Rao's score test: of greatest likelihood in x, the slope in the further functions is noise. Functions of which the
    decisions hold too little information for a limit law are left out, such as the action before if it is rare.
    """
    others, states, actions = logit.others, decisions.states, decisions.actions
    slope, curve = np.zeros(()), np.zeros(())
    for block in blocks(len(states), _BLOCK):
        here = logit.at(states[block])
        both = np.concatenate([here.x, functions(block)], axis=1)
        slope = slope + np.stack([((actions[block] == c) - here.chances[:, c]) @ both for c in others])
        chances = here.chances[:, others]
        weights = chances[:, :, None] * (np.eye(len(others)) - chances[:, None, :])
        curve = curve + np.einsum("ncd,ni,nj->cidj", weights, both, both, optimize=True)
    known = np.einsum("cici->ci", curve)
    kept = (np.arange(known.shape[1]) < logit.basis.size) | (known.min(axis=0) >= FEWEST_EVENTS)
    slope, curve = slope[:, kept], curve[:, kept][:, :, :, kept]
    return chi_squared(slope.ravel(), curve.reshape(slope.size, -1), what, len(others) * logit.basis.size)


def whitening(known: Array) -> Array:
    """W with W Wᵀ = M⁻¹ ``[m, m]``, where M is not singular."""
    values, vectors = np.linalg.eigh(known)
    return np.asarray(vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1])))


def chi_squared(slope: Array, covariance: Array, what: str, fitted: int = 0) -> FitTest:
    """The square of a vector in units of its covariance, ``fitted`` of whose directions are 0 as they were fitted."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * max(float(values[-1]), 1e-300)
    statistic = float(np.sum((vectors[:, kept].T @ slope) ** 2 / values[kept]))
    return FitTest(what, statistic, max(int(kept.sum()) - fitted, 0))


def higher_degree_test(logit: Logit, decisions: Transitions) -> FitTest:
    """Whether log-odds of a higher degree would fit better."""
    wider = richer(logit.basis, (logit.basis.degree + 3) / max(logit.basis.degree, 1))
    return score_test(logit, decisions, lambda block: wider.values(decisions.states[block]), HIGHER)


def memory_test(logit: Logit, decisions: Transitions) -> FitTest | None:
    """Whether the action before says more of a decision than the state does; None without steps that follow others."""
    follows = np.zeros(len(decisions), dtype=bool)
    same = (decisions.next_states[:-1] == decisions.states[1:]).all(axis=1)
    if decisions.episodes is not None:
        same &= decisions.episodes[1:] == decisions.episodes[:-1]
    follows[1:] = same
    if follows.mean() < 0.5:
        return None
    before = np.zeros((len(decisions), logit.n_actions))
    before[1:][same] = np.eye(logit.n_actions)[decisions.actions[:-1][same]]
    return score_test(logit, decisions, lambda block: before[block, 1:], BEFORE)
