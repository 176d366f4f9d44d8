"""The inequalities behind a certificate for an expert who switches: bands around J_b − J_a, J_c = P_cV, for all states.

With e = R + γP_πV̂ − V̂ = γ Σ_c π_c(P_cV̂ − P̂_cV̂) and V the expert's true value, exactly,

    (P_b − P_a)V = (P̂_b − P̂_a)V̂ + Σ_c ⟨weights_c, P_cV̂ − P̂_cV̂⟩ + Σ_i u_i Σ_c ⟨weights_c, P_cf_i − P̂_cf_i⟩,

the same functional of the errors of V̂ and, in second order, of the functions f_i; proof in docs/notes/switching.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.frames import blended, frame, wander
from certirl.functions.inequalities import (
    EVENTS,
    NORM_EVENTS,
    empirical_bernstein,
    empirical_norm_bernstein,
    empirical_vector_bernstein,
    log_term,
)
from certirl.ground.domain import Array
from certirl.proof.bounds import sum_error, summation_error
from certirl.proof.policy_evidence import PolicyEvidence, PolicySurrogate
from certirl.proof.policy_sums import OfError, OfFunctions, OfValue, Visits, Workings, workings

# Failures that `_error` pays for: of û, and of what noise does to Ku.
ERROR_EVENTS = NORM_EVENTS + EVENTS
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
        estimation: the first-order band at the spread points ``[N]``, on a box ``[N_1, …, N_d]``.
        second_order: the remainder there.
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

    def losses(self, states: Array, reach: Any = 0.0) -> dict[str, Array]:
        """What the radius is made of at states, or within ``reach`` of them along each coordinate, by name ``[n]``."""
        own, total, none = frame(self.columns), self.estimation + self.second_order, np.zeros(len(states))
        if not np.isfinite(total).all():
            here, beyond = np.full((2, len(states)), np.inf), none
        else:
            sums, weight = blended(own.parts, np.stack([self.estimation, self.second_order, total]), states)
            here = sums[:2] / weight
            # What is bounded at points is bounded everywhere by the largest, or from state to state by its neighbours.
            most = own.points(total.shape).factor * float(total.max())
            steps = np.broadcast_to(np.asarray(reach, dtype=float), len(own.parts))
            beyond = np.minimum(sums[2], most) + wander(own.parts, states, steps) * most
            beyond = np.maximum(beyond - here.sum(axis=0), 0.0)
        return {
            "estimation": here[0],
            "grid": beyond,
            "second order": here[1],
            "truncation tail": none + self.tail,
            "floating point": none + self.floating,
        }

    def radius(self, states: Array, reach: Any = 0.0) -> Array:
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


class _Error(NamedTuple):
    """u, the error of V̂ in the functions f_i, lies within ``radius`` of ``centre`` in Euclidean length."""

    centre: Array
    radius: float

    def weighed(self, sizes: Array) -> Array:
        """Σ_i |u_i| sizes_i at most, for every row of sizes that are not negative ``[…, m]``."""
        return np.asarray(sizes @ np.abs(self.centre) + self.radius * np.linalg.norm(sizes, axis=-1))

    def moved(self, seen: OfFunctions, L: float) -> Array:
        """|Σ_i u_i ⟨functional, P f_i − P̂ f_i⟩| at most, for every functional ``[n]``; three events each."""
        known = np.abs(seen.found @ self.centre) + self.radius * np.linalg.norm(seen.found, axis=1)
        noise = empirical_bernstein(self.weighed(seen.spread) ** 2, self.weighed(seen.largest), L)
        return np.asarray(known + noise)


def _error(work: Workings, found: OfError, L: float, tail: float) -> _Error | None:
    """What is known of u, the error of V̂; None where operators are known too badly. `ERROR_EVENTS` of e^−L.

    u = û + Ku. One vector inequality serves û. K is needed for u alone, which is fixed though unknown: what noise does
    to Ku is one vector too, not one for every f_i. Its bound is a norm of what u is made of, so that it adds up over
    u = centre + the rest.
    """
    if work.gamma * (1 + tail * work.lebesgue.max()) >= 1:
        return None  # what regression aims at need not contract, so that there may be no u
    centre, seen = found.found, found.functions
    radius = empirical_norm_bernstein(found.trace, found.top, found.longest, L)
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


def bands(
    surrogate: PolicySurrogate, evidence: PolicyEvidence, *, delta: float, tail: float, growth: float | None = None
) -> Bands:
    """With probability 1 − δ over the fresh data, (P_b − P_a)V lies within its band for every pair and every state.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        delta: the probability of failure.
        tail: τ.
        growth: a forecast instead: so many times as much data, which say nothing new. For planning only.
    """
    work, visits = workings(surrogate, evidence)
    beyond = np.isfinite(tail)  # an infinite tail leaves nothing to bound
    tail = tail if beyond else 0.0
    first, later, rest = (delta * share for share in SHARES.values())
    events = EVENTS * len(work.pairs) * len(work.frame.band.states)
    error = _error(work, _grown(work.error, growth), log_term(ERROR_EVENTS, later / 2), tail)
    found = []
    for pair, (of_value, of_functions) in work.pairs.items():
        value, functions = _grown(of_value, growth), _grown(of_functions, growth)
        estimation = empirical_bernstein(value.observed, value.largest, log_term(events, first))
        second = _second_order(work, error, functions, pair, log_term(events, later / 2), tail)
        found.append(
            Band(
                pair=pair,
                columns=surrogate.columns,
                curve=_curve(work, *pair, 1.0 if growth is None else 0.0),
                estimation=estimation.reshape(work.frame.band.counts),
                second_order=second.reshape(work.frame.band.counts),
                tail=_first_order_tail(work, *pair, tail) if beyond else float("inf"),
                floating=_rounding(work, float((estimation + second).max()), 1.0 if growth is None else growth),
            )
        )
    drop = _grown(work.drop[0], growth), _grown(work.drop[1], growth)
    met = _visits(work, visits, rest / 2, tail, growth)
    span = _span(work, error, *drop, rest / 2, tail, 1.0 if growth is None else growth)
    return Bands(tuple(found), met, span) if beyond else Bands(tuple(found), np.ones_like(met), 0.0)


def _grown(found: Any, growth: float | None) -> Any:
    return found if growth is None else found.grown(growth)


def _rounding(work: Workings, radius: float, growth: float, scale: float | None = None) -> float:
    """What floating point can have done to a curve and to a radius: of V, or of a function of a scale by itself."""
    e, s, counts = work.e, work.s, work.e.counts * growth
    if scale is None:
        scale = (s.high - s.low + max(abs(s.low), abs(s.high))) * np.abs(work.resolvent).sum(axis=1).max()
    sums = summation_error(counts, e.gram) * scale
    lifting = sum_error(counts, work.k) * work.frame.harmonics * float(((work.lebesgue - 1) ** 2).max())
    return float(sums + lifting * radius) if np.isfinite(radius) else float(sums)


def _curve(work: Workings, b: int, a: int, loud: float) -> Array:
    """(P̂_b − P̂_a)V̂ and the observed first-order correction, as an expansion in the columns."""
    found = loud * np.einsum("aij,aj->ai", work.precision, work.e.surprise)
    lift = work.gamma * (work.s.Z[b] - work.s.Z[a]).T @ work.resolvent.T @ found.ravel()
    return np.asarray(work.s.fits[b] - work.s.fits[a] + found[b] - found[a] + lift)


def _second_order(
    work: Workings, error: _Error | None, seen: OfFunctions, pair: tuple[int, int], L: float, tail: float
) -> Array:
    """The remainder of a pair at every point: what the operators' errors do to u ``[n]``."""
    if error is None:
        return np.full(len(seen.found), np.inf)
    far = tail * float(error.weighed((work.f_high - work.f_low) / 2))
    slipped = work.lebesgue[list(pair)].sum() + 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
    return error.moved(seen, L) + far * slipped


def _first_order_tail(work: Workings, b: int, a: int, tail: float) -> float:
    """What the columns miss of P_bV̂ and P_aV̂ and, through the residual e, of all later steps."""
    missed = tail * (work.s.high - work.s.low) / 2
    later = 2 * work.gamma / (1 - work.gamma) * work.lebesgue.max()
    return float(missed * (work.lebesgue[b] + work.lebesgue[a] + later))


def _span(
    work: Workings, error: _Error | None, value: OfValue, functions: OfFunctions, delta: float, tail: float, more: float
) -> float:
    """V at one state less V at another: V̂ there, corrected, less the same losses as a band, rounding among them."""
    if error is None:
        return 0.0
    L = log_term(2 * EVENTS, delta)
    half = float(error.weighed((work.f_high - work.f_low) / 2))
    later = 2 * tail * work.lebesgue.max() * work.gamma / (1 - work.gamma)
    lost = empirical_bernstein(value.observed, value.largest, L)[0] + error.moved(functions, L)[0]
    lost += later * ((work.s.high - work.s.low) / 2 + half)
    lost += _rounding(work, float(lost), more)
    return max(0.0, float(work.s.dropped + value.found[0] - lost))


def _visits(work: Workings, found: list[Visits], delta: float, tail: float, growth: float | None) -> Array:
    """sup over states and actions of P_c of every tent ``[w]``."""
    points, most, more = work.frame.visited, np.zeros(len(work.s.widths)), 1.0 if growth is None else growth
    L = log_term(EVENTS * work.A * len(points.states) * max(len(most), 1), delta)
    for own in found:
        seen = 0.0 * own.curve if growth is not None else own.curve
        radius = empirical_bernstein(own.observed / more, own.largest / more, L)
        peak = work.frame.peak(work.s.tent_fits[own.action, own.tent] + seen)
        above = points.factor * float(radius.max())
        reached = peak + above + tail * work.lebesgue[own.action] / 2 + _rounding(work, above, more, scale=2.0)
        most[own.tent] = max(most[own.tent], reached)
    return np.clip(most, 0.0, 1.0)
