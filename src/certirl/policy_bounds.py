"""The inequalities behind a certificate for an expert who switches: bands around J_b − J_a, J_c = P_cV, for all states.

With e = R + γP_πV̂ − V̂ = γ Σ_c π_c(P_cV̂ − P̂_cV̂) and V the expert's true value, exactly,

    (P_b − P_a)V = (P̂_b − P̂_a)V̂ + Σ_c ⟨weights_c, P_cV̂ − P̂_cV̂⟩ + Σ_i u_i Σ_c ⟨weights_c, P_cf_i − P̂_cf_i⟩,

the same functional of the errors of V̂ and, in second order, of the functions f_i; proof in docs/notes/switching.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from certirl.bases import Basis
from certirl.bounds import sum_error, summation_error
from certirl.concentration import (
    EVENTS,
    NORM_EVENTS,
    blending,
    degree,
    empirical_bernstein,
    empirical_norm_bernstein,
    empirical_vector_bernstein,
    inflation,
    log_term,
    spread_points,
    steepest,
)
from certirl.domain import Array
from certirl.extrema import minimum
from certirl.policy_evidence import PolicyEvidence, PolicySurrogate
from certirl.products import lifted

# Failures that `_Workings.error` pays for: of û, and of what noise does to Ku.
ERROR_EVENTS = NORM_EVENTS + EVENTS
POINTS = 8  # per degree: few cost at the states between them, many in the union bound
MOST_GROWTH = 0.9  # of an error from one round of the recursion to the next; beyond it nothing is bounded
# The first-order band decides; the rest can do with little of δ.
SHARES = {"first order": 0.8, "second order": 0.15, "regret": 0.05}


@dataclass(frozen=True, eq=False)
class Band:
    """|(P_b − P_a)V − curve| ≤ its radius at every state, V the expert's value under the true dynamics.

    Attributes:
        pair: (b, a), b < a.
        columns: φ.
        curve: the corrected estimate in the columns ``[k]``.
        estimation: the first-order band at the spread points ``[N]``.
        second_order: the remainder there ``[N]``.
        tail: what lies outside the columns.
        floating: rounding.
    """

    pair: tuple[int, int]
    columns: Basis
    curve: Array
    estimation: Array
    second_order: Array
    tail: float
    floating: float

    def estimate(self, states: Array) -> Array:
        """The curve at states ``[n]``."""
        return self.columns.values(states) @ self.curve

    def losses(self, states: Array, reach: float = 0.0) -> dict[str, Array]:
        """What the radius is made of at states, or within ``reach`` of them, by name ``[n]``."""
        count, total = len(self.estimation), self.estimation + self.second_order
        none = np.zeros(len(states))
        if not np.isfinite(total).all():
            here, beyond = np.full((2, len(states)), np.inf), none
        else:
            weights = np.abs(blending(self.columns, count, states))
            here = np.stack([self.estimation, self.second_order]) @ weights.T / weights.sum(axis=1)
            # What is bounded at points is bounded everywhere by the largest, or from state to state by its neighbours.
            most = inflation(self.columns.kind, degree(self.columns), count) * float(total.max())
            beyond = np.minimum(weights @ total, most) + reach * steepest(self.columns, states, reach) * most
            beyond = np.maximum(beyond - here.sum(axis=0), 0.0)
        return {
            "estimation": here[0],
            "grid": beyond,
            "second order": here[1],
            "truncation tail": none + self.tail,
            "floating point": none + self.floating,
        }

    def radius(self, states: Array, reach: float = 0.0) -> Array:
        """All of it, at states or within ``reach`` of them ``[n]``."""
        return np.asarray(sum(self.losses(states, reach).values()))


@dataclass(frozen=True, eq=False)
class Bands:
    """What holds with probability 1 − δ, all at once.

    Attributes:
        pairs: one band for each pair of actions.
        visits: sup over states and actions of P_c of each tent ``[w]``: how often the switches are met at most.
        span: how far apart the expert's value is at least at two states.
    """

    pairs: tuple[Band, ...]
    visits: Array
    span: float


class _Seen(NamedTuple):
    """Sums for every functional and every f_i: seen ``[n, m]``, their root second moments, their largest terms.

    longest: the largest terms of all functionals as one vector ``[m]``.
    """

    found: Array
    spread: Array
    largest: Array
    longest: Array


class _Error(NamedTuple):
    """u, the error of V̂ in the functions f_i, lies within ``radius`` of ``centre`` in Euclidean length."""

    centre: Array
    radius: float

    def weighed(self, sizes: Array) -> Array:
        """Σ_i |u_i| sizes_i at most, for every row of sizes that are not negative ``[…, m]``."""
        return np.asarray(sizes @ np.abs(self.centre) + self.radius * np.linalg.norm(sizes, axis=-1))

    def moved(self, seen: _Seen, L: float) -> Array:
        """|Σ_i u_i ⟨functional, P f_i − P̂ f_i⟩| at most, for every functional ``[n]``; three events each."""
        known = np.abs(seen.found @ self.centre) + self.radius * np.linalg.norm(seen.found, axis=1)
        noise = empirical_bernstein(self.weighed(seen.spread) ** 2, self.weighed(seen.largest), L)
        return np.asarray(known + noise)


class _Workings:
    """Quantities shared by all pairs."""

    def __init__(self, surrogate: PolicySurrogate, evidence: PolicyEvidence, tail: float) -> None:
        self.s, self.e, self.tail, self.gamma = surrogate, evidence, tail, surrogate.discount
        self.A, self.k = surrogate.fits.shape
        self.precision = np.linalg.inv(evidence.gram)
        self.resolvent = np.linalg.inv(np.eye(self.A * self.k) - self.gamma * np.concatenate(list(surrogate.Z), axis=1))
        count = 20 * self.k
        self.dense = surrogate.columns.values(spread_points(surrogate.columns, count))
        self.dense_factor = inflation(surrogate.columns.kind, 2 * degree(surrogate.columns), count)
        leverage = np.einsum("ni,aij,nj->an", self.dense, self.precision, self.dense).max(axis=1)
        self.lebesgue = 1 + np.sqrt(evidence.counts * leverage * self.dense_factor)
        self.spread = lifted(evidence.spread, surrogate.columns)
        self.wobble = lifted(evidence.wobble, surrogate.columns)
        self.mixed = np.einsum("mf,afk->amk", surrogate.mix, surrogate.Z)
        self.f_low, self.f_high = self._ranges()

    def _ranges(self) -> tuple[Array, Array]:
        """Between what every f_i lies ``[m]``: at each state it is an average of its A polynomials."""
        values = self.s.mix.reshape(-1, self.A, self.k) @ self.dense.T
        low, high = values.min(axis=(1, 2)), values.max(axis=(1, 2))
        # A polynomial less the middle is bounded between the dense states as at them, up to the factor.
        middle, half = (low + high) / 2, self.dense_factor * (high - low) / 2
        return middle - half, middle + half

    def weights(self, b: int, a: int, phi: Array) -> Array:
        """What (P_b − P_a)V depends on at states with features phi: ``[n, A, k]``, times G⁻¹."""
        lift = self.gamma * phi @ (self.resolvent @ (self.s.Z[b] - self.s.Z[a])).T
        weights = lift.reshape(len(phi), self.A, self.k)
        weights[:, b] += phi
        weights[:, a] -= phi
        return np.einsum("nai,aij->naj", weights, self.precision)

    def of_value(self, weights: Array, L: float) -> tuple[Array, Array]:
        """Σ_c⟨weights_c, Σ xY_c⟩ and the radius of its deviation from the mean, for every row: ``[n]``."""
        observed = np.einsum("nai,abij,nbj->n", weights, self.spread, weights)
        found = np.einsum("nai,ai->n", weights, self.e.surprise)
        largest = self._largest(self._terms(self._swings(weights), self._reach_of_value()))
        return found, np.asarray(empirical_bernstein(observed, largest, L))

    def of_functions(self, weights: Array) -> _Seen:
        """The same sums for every f_i instead of V."""
        n, m = len(weights), len(self.s.mix)
        flat, swings = weights.reshape(n, -1), self._swings(weights)
        forms = self.wobble.transpose(2, 0, 3, 1, 4).reshape(m, self.A * self.k, self.A * self.k)
        found, spread, largest, longest = np.empty((n, m)), np.empty((n, m)), np.empty((n, m)), np.empty(m)
        for i in range(m):
            fit = self.dense @ self.mixed[:, i].T
            terms = self._terms(swings, np.maximum(self.f_high[i] - fit, fit - self.f_low[i]))
            found[:, i] = flat @ self.e.drift[:, i].ravel()
            spread[:, i] = np.sqrt(np.maximum(((flat @ forms[i]) * flat).sum(axis=1), 0.0))
            largest[:, i], longest[i] = self._largest(terms), self._longest(terms)
        return _Seen(found, spread, largest, longest)

    def error(self, L: float) -> _Error | None:
        """What is known of u, the error of V̂; None where operators are known too badly. `ERROR_EVENTS` of e^−L.

        u = û + Ku. One vector inequality serves û. K is needed for u alone, which is fixed though unknown: what noise
        does to Ku is one vector too, not one for every f_i. Its bound is a norm of what u is made of, so that it adds
        up over u = centre + the rest.
        """
        if self.gamma * (1 + self.tail * self.lebesgue.max()) >= 1:
            return None  # what regression aims at need not contract, so that there may be no u
        functionals = self._directions()
        centre = np.einsum("nai,ai->n", functionals, self.e.surprise)
        covariance = np.einsum("nai,abij,mbj->nm", functionals, self.spread, functionals)
        longest = self._longest(self._terms(self._swings(functionals), self._reach_of_value()))
        radius = empirical_norm_bernstein(np.trace(covariance), np.linalg.eigvalsh(covariance)[-1], longest, L)
        seen = self.of_functions(functionals)
        spread = np.linalg.norm(seen.spread, axis=0)

        def shaken(sizes: Array) -> float:
            # Minkowski: the length of a sum of functions is at most the sum of their lengths.
            return float(empirical_vector_bernstein((sizes @ spread) ** 2, sizes @ seen.longest, L))

        # For all u of length 1 at once Cauchy and Schwarz take the place of Minkowski.
        each = empirical_vector_bernstein((spread**2).sum(), np.linalg.norm(seen.longest), L)
        growth = float(np.linalg.norm(seen.found, 2) + each)
        if growth >= MOST_GROWTH:
            return None
        first = radius + float(np.linalg.norm(seen.found @ centre)) + shaken(np.abs(centre))
        return _Error(centre, first / (1 - growth))

    def _directions(self) -> Array:
        """The functionals that give û_j from the errors of V̂: ``[m, A, k]``, times G⁻¹."""
        rows = self.gamma * np.linalg.inv(self.s.mix).T @ self.resolvent.T
        return np.einsum("nai,aij->naj", rows.reshape(-1, self.A, self.k), self.precision)

    def _reach_of_value(self) -> Array:
        """How far V̂(s') can be from its fit, for every action ``[q, A]``."""
        fits = self.dense @ self.s.fits.T
        return np.maximum(self.s.high - fits, fits - self.s.low)

    def _swings(self, weights: Array) -> Array:
        """|weights_c·φ(x)| at the dense states x ``[n, A, q]``."""
        return np.abs(weights @ self.dense.T)

    def _terms(self, swings: Array, reach: Array) -> Array:
        """What one fresh state can add at most ``[n, q]``; the actions of a pair add up, separate draws do not."""
        terms = swings * reach.T
        return np.asarray(terms.sum(axis=1) if self.e.paired else terms.max(axis=1))

    def _largest(self, terms: Array) -> Array:
        """sup over states of one fresh state's term, for every row ``[n]``."""
        return np.asarray(self.dense_factor * terms.max(axis=1))

    def _longest(self, terms: Array) -> float:
        """The same for all rows as one vector: along every direction it is a polynomial."""
        return float(self.dense_factor * np.linalg.norm(terms, axis=0).max())


def bands(surrogate: PolicySurrogate, evidence: PolicyEvidence, *, delta: float, tail: float) -> Bands:
    """With probability 1 − δ over the fresh data, (P_b − P_a)V lies within its band for every pair and every state.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        delta: the probability of failure.
        tail: τ.
    """
    beyond = np.isfinite(tail)  # an infinite tail leaves nothing to bound
    work = _Workings(surrogate, evidence, tail if beyond else 0.0)
    pairs = list(combinations(range(work.A), 2))
    points = spread_points(surrogate.columns, POINTS * max(degree(surrogate.columns), 1))
    first, later, rest = (delta * share for share in SHARES.values())
    events = EVENTS * len(pairs) * len(points)
    error = work.error(log_term(ERROR_EVENTS, later / 2))
    found = []
    for pair in pairs:
        weights = work.weights(*pair, surrogate.columns.values(points))
        _, estimation = work.of_value(weights, log_term(events, first))
        second = _second_order(work, error, weights, pair, log_term(events, later / 2))
        found.append(
            Band(
                pair=pair,
                columns=surrogate.columns,
                curve=_curve(work, *pair),
                estimation=estimation,
                second_order=second,
                tail=_first_order_tail(work, *pair) if beyond else float("inf"),
                floating=_rounding(work, float((estimation + second).max())),
            )
        )
    return Bands(tuple(found), _visits(work, rest / 2), _span(work, error, rest / 2))


def _rounding(work: _Workings, radius: float) -> float:
    """What floating point can have done to the curve and to a radius."""
    e, s = work.e, work.s
    scale = s.high - s.low + max(abs(s.low), abs(s.high))
    sums = summation_error(e.counts, e.gram) * scale * np.abs(work.resolvent).sum(axis=1).max()
    lifting = sum_error(e.counts, work.k) * (2 * work.k - 1) * float(((work.lebesgue - 1) ** 2).max())
    return float(sums + lifting * radius) if np.isfinite(radius) else float(sums)


def _curve(work: _Workings, b: int, a: int) -> Array:
    """(P̂_b − P̂_a)V̂ and the observed first-order correction, as an expansion in the columns."""
    found = np.einsum("aij,aj->ai", work.precision, work.e.surprise)
    lift = work.gamma * (work.s.Z[b] - work.s.Z[a]).T @ work.resolvent.T @ found.ravel()
    return np.asarray(work.s.fits[b] - work.s.fits[a] + found[b] - found[a] + lift)


def _second_order(work: _Workings, error: _Error | None, weights: Array, pair: tuple[int, int], L: float) -> Array:
    """The remainder of a pair at every point: what the operators' errors do to u ``[n]``."""
    if error is None:
        return np.full(len(weights), np.inf)
    far = work.tail * float(error.weighed((work.f_high - work.f_low) / 2))
    slipped = work.lebesgue[list(pair)].sum() + 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
    return error.moved(work.of_functions(weights), L) + far * slipped


def _first_order_tail(work: _Workings, b: int, a: int) -> float:
    """What the columns miss of P_bV̂ and P_aV̂ and, through the residual e, of all later steps."""
    missed = work.tail * (work.s.high - work.s.low) / 2
    later = 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
    return float(missed * (work.lebesgue[b] + work.lebesgue[a] + later))


def _span(work: _Workings, error: _Error | None, delta: float) -> float:
    """V at one state less V at another: V̂ there, corrected, less the same three losses as a band."""
    if error is None:
        return 0.0
    lift = (work.gamma * work.s.drop @ work.resolvent.T).reshape(1, work.A, work.k)
    weights = np.einsum("nai,aij->naj", lift, work.precision)
    L = log_term(2 * EVENTS, delta)
    found, radius = work.of_value(weights, L)
    half = float(error.weighed((work.f_high - work.f_low) / 2))
    later = 2 * work.tail * work.lebesgue.max() * work.gamma / (1 - work.gamma)
    lost = radius[0] + error.moved(work.of_functions(weights), L)[0]
    lost += later * ((work.s.high - work.s.low) / 2 + half)
    return max(0.0, float(work.s.dropped + found[0] - lost))


def _visits(work: _Workings, delta: float) -> Array:
    """sup over states and actions of P_c of every tent ``[w]``."""
    columns, count, tents = work.s.columns, 4 * work.k, len(work.s.widths)
    factor = inflation(columns.kind, degree(columns), count)
    phi, L = columns.values(spread_points(columns, count)), log_term(EVENTS * work.A * count * max(tents, 1), delta)
    spread, most = lifted(work.e.visit_spread, columns), np.zeros(tents)
    for c in range(work.A):
        weights = phi @ work.precision[c]
        for w in range(tents):
            fit = work.dense @ work.s.tent_fits[c, w]
            bound = work.dense_factor * (np.abs(weights @ work.dense.T) * np.maximum(1 - fit, fit)).max(axis=1)
            radius = empirical_bernstein(np.einsum("ni,ij,nj->n", weights, spread[c, w], weights), bound, L)
            peak = -minimum(columns, -work.s.tent_fits[c, w] - work.precision[c] @ work.e.visits[c, w])[1]
            reached = peak + factor * float(radius.max()) + work.tail * work.lebesgue[c] / 2
            most[w] = max(most[w], reached)
    return np.clip(most, 0.0, 1.0)
