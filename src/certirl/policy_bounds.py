"""The inequalities behind a certificate for an expert who switches: bands around J_b − J_a, J_c = P_cV, for all states.

With e = R + γP_πV̂ − V̂ = γ Σ_c π_c(P_cV̂ − P̂_cV̂) and V the expert's true value, exactly,

    (P_b − P_a)V = (P̂_b − P̂_a)V̂ + Σ_c ⟨weights_c, P_cV̂ − P̂_cV̂⟩ + Σ_i u_i Σ_c ⟨weights_c, P_cf_i − P̂_cf_i⟩,

the same functional of the errors of V̂ and, in second order, of the functions f_i; proof in docs/notes/switching.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from certirl.bounds import sum_error, summation_error
from certirl.concentration import EVENTS, degree, empirical_bernstein, inflation, log_term, spread_points
from certirl.domain import Array
from certirl.extrema import minimum
from certirl.policy_evidence import PolicyEvidence, PolicySurrogate
from certirl.products import lifted

# The first-order band decides; the rest can do with little of δ.
SHARES = {"first order": 0.8, "second order": 0.15, "regret": 0.05}


@dataclass(frozen=True, eq=False)
class Band:
    """|(P_b − P_a)V − curve| ≤ radius at every state, V the expert's value under the true dynamics.

    Attributes:
        pair: (b, a), b < a.
        curve: the corrected estimate in the columns ``[k]``.
        estimation: the first-order band at the worst grid point.
        grid: what the states between the points cost.
        second_order: the remainder.
        tail: what lies outside the columns.
        floating: rounding.
    """

    pair: tuple[int, int]
    curve: Array
    estimation: float
    grid: float
    second_order: float
    tail: float
    floating: float

    @property
    def radius(self) -> float:
        """All of it."""
        return self.estimation + self.grid + self.second_order + self.tail + self.floating


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

    def directions(self) -> Array:
        """The functionals that give û_j from the errors of V: ``[m, A, k]``, times G⁻¹."""
        rows = self.gamma * np.linalg.inv(self.s.mix).T @ self.resolvent.T
        return np.einsum("nai,aij->naj", rows.reshape(-1, self.A, self.k), self.precision)

    def of_value(self, weights: Array, L: float) -> tuple[Array, Array]:
        """Σ_c⟨weights_c, Σ xY_c⟩ and the radius of its deviation from the mean, for every row: ``[n]``."""
        fits = self.dense @ self.s.fits.T
        reach = np.maximum(self.s.high - fits, fits - self.s.low)
        observed = np.einsum("nai,abij,nbj->n", weights, self.spread, weights)
        found = np.einsum("nai,ai->n", weights, self.e.surprise)
        return found, np.asarray(empirical_bernstein(observed, self._largest(self._swings(weights), reach), L))

    def of_functions(self, weights: Array, L: float) -> Array:
        """Bounds on the same functionals of the errors of every f_i: ``[n, m]``."""
        n, m = len(weights), len(self.s.mix)
        flat, swings = weights.reshape(n, -1), self._swings(weights)
        forms = self.wobble.transpose(2, 0, 3, 1, 4).reshape(m, self.A * self.k, self.A * self.k)
        found, radius = np.empty((n, m)), np.empty((n, m))
        for i in range(m):
            fit = self.dense @ self.mixed[:, i].T
            reach = np.maximum(self.f_high[i] - fit, fit - self.f_low[i])
            observed = ((flat @ forms[i]) * flat).sum(axis=1)
            radius[:, i] = empirical_bernstein(observed, self._largest(swings, reach), L)
            found[:, i] = flat @ self.e.drift[:, i].ravel()
        return np.abs(found) + radius

    def _swings(self, weights: Array) -> Array:
        """|weights_c·φ(x)| at the dense states x ``[n, A, q]``."""
        return np.abs(weights @ self.dense.T)

    def _largest(self, swings: Array, reach: Array) -> Array:
        """sup over states of one fresh state's term; the actions of a pair add up, separate draws do not."""
        terms = swings * reach.T
        both = terms.sum(axis=1) if self.e.paired else terms.max(axis=1)
        return np.asarray(self.dense_factor * both.max(axis=1))


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
    points, factor, L = _points(work, len(pairs), delta * SHARES["first order"])
    phi = surrogate.columns.values(points)
    sizes, second = _second_order(work, pairs, delta * SHARES["second order"])
    scale = surrogate.high - surrogate.low + max(abs(surrogate.low), abs(surrogate.high))
    rounding = summation_error(evidence.counts, evidence.gram) * scale * np.abs(work.resolvent).sum(axis=1).max()
    lifting = sum_error(evidence.counts, work.k) * (2 * work.k - 1) * float(((work.lebesgue - 1) ** 2).max())
    found = []
    for pair in pairs:
        _, radius = work.of_value(work.weights(*pair, phi), L)
        radii = factor * float(radius.max()) + (second[pair] if np.isfinite(second[pair]) else 0.0)
        found.append(
            Band(
                pair=pair,
                curve=_curve(work, *pair),
                estimation=float(radius.max()),
                grid=float((factor - 1) * radius.max()),
                second_order=second[pair],
                tail=_first_order_tail(work, *pair) if beyond else float("inf"),
                floating=float(rounding + lifting * radii),
            )
        )
    rest = delta * SHARES["regret"]
    return Bands(tuple(found), _visits(work, rest / 2), _span(work, sizes, rest / 2))


def _points(work: _Workings, pairs: int, delta: float) -> tuple[Array, float, float]:
    """As many points as make inflation times √L least: few cost at the states between them, many in the union bound."""
    columns = work.s.columns
    counts = range(max(degree(columns) + 1, 1), 20 * work.k + 2)
    factors = [inflation(columns.kind, degree(columns), n) for n in counts]
    logs = [log_term(EVENTS * pairs * n, delta) for n in counts]
    best = int(np.argmin(np.array(factors) * np.sqrt(logs)))
    return spread_points(columns, counts[best]), factors[best], logs[best]


def _curve(work: _Workings, b: int, a: int) -> Array:
    """(P̂_b − P̂_a)V̂ and the observed first-order correction, as an expansion in the columns."""
    found = np.einsum("aij,aj->ai", work.precision, work.e.surprise)
    lift = work.gamma * (work.s.Z[b] - work.s.Z[a]).T @ work.resolvent.T @ found.ravel()
    return np.asarray(work.s.fits[b] - work.s.fits[a] + found[b] - found[a] + lift)


def _second_order(
    work: _Workings, pairs: list[tuple[int, int]], delta: float
) -> tuple[Array, dict[tuple[int, int], float]]:
    """U ≥ |u_i| and the remainder of every pair: u = û + Nu, each entry of N bounded, summed to all orders."""
    count, m = 4 * work.k, len(work.s.mix)
    points, factor = spread_points(work.s.columns, count), inflation(work.s.columns.kind, degree(work.s.columns), count)
    phi, L = work.s.columns.values(points), log_term(EVENTS * (m + m * m + len(pairs) * m * count), delta)
    functionals = work.directions()
    found, radius = work.of_value(functionals, L)
    N = work.of_functions(functionals, L)
    if np.abs(np.linalg.eigvals(N)).max() >= 0.95:
        return np.full(m, np.inf), dict.fromkeys(pairs, float("inf"))
    sizes = np.linalg.solve(np.eye(m) - N, np.abs(found) + radius)
    far = work.tail * float((work.f_high - work.f_low) / 2 @ sizes)
    remainder = {}
    for b, a in pairs:
        errors = factor * work.of_functions(work.weights(b, a, phi), L).max(axis=0)
        slipped = work.lebesgue[b] + work.lebesgue[a] + 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
        remainder[b, a] = float(errors @ sizes + far * slipped)
    return sizes, remainder


def _first_order_tail(work: _Workings, b: int, a: int) -> float:
    """What the columns miss of P_bV̂ and P_aV̂ and, through the residual e, of all later steps."""
    missed = work.tail * (work.s.high - work.s.low) / 2
    later = 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
    return float(missed * (work.lebesgue[b] + work.lebesgue[a] + later))


def _span(work: _Workings, sizes: Array, delta: float) -> float:
    """V at one state less V at another: V̂ there, corrected, less the same three losses as a band."""
    if not np.isfinite(sizes).all():
        return 0.0
    lift = (work.gamma * work.s.drop @ work.resolvent.T).reshape(1, work.A, work.k)
    weights = np.einsum("nai,aij->naj", lift, work.precision)
    L = log_term(EVENTS * (1 + len(sizes)), delta)
    found, radius = work.of_value(weights, L)
    half = (work.f_high - work.f_low) / 2 @ sizes
    later = 2 * work.tail * work.lebesgue.max() * work.gamma / (1 - work.gamma)
    lost = radius[0] + work.of_functions(weights, L)[0] @ sizes + later * ((work.s.high - work.s.low) / 2 + half)
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
