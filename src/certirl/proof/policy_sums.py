"""What evidence about an expert who switches says before δ is chosen: sums, second moments and largest terms.

Everything here is for functionals of the errors P_c − P̂_c, given by weights ``[n, A, k]`` that multiply Σ x Y_c: at the
points of a band, for û, for the span of the value. `policy_bounds` turns it into inequalities, for any δ, and for any
amount of data that say nothing new.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from certirl.functions.frames import frame
from certirl.ground.domain import Array
from certirl.proof.policy_evidence import PolicyEvidence, PolicySurrogate


class OfValue(NamedTuple):
    """Sums of the surprises of V̂ for every functional: seen, their second moments, their largest terms ``[n]``."""

    found: Array
    observed: Array
    largest: Array

    def grown(self, factor: float) -> OfValue:
        """What so many times as much data would give, if nothing surprised."""
        return OfValue(0.0 * self.found, self.observed / factor, self.largest / factor)


class OfFunctions(NamedTuple):
    """Sums for every functional and every f_i: seen ``[n, m]``, their root second moments, their largest terms.

    longest: the largest terms of all functionals as one vector ``[m]``.
    """

    found: Array
    spread: Array
    largest: Array
    longest: Array

    def grown(self, factor: float) -> OfFunctions:
        """What so many times as much data would give, if nothing surprised."""
        return OfFunctions(0.0 * self.found, self.spread / factor**0.5, self.largest / factor, self.longest / factor)


class OfError(NamedTuple):
    """The functionals that give û: seen ``[m]``, trace and largest eigenvalue of second moments, the longest term."""

    found: Array
    trace: float
    top: float
    longest: float
    functions: OfFunctions

    def grown(self, factor: float) -> OfError:
        """What so many times as much data would give, if nothing surprised."""
        sizes = (self.trace / factor, self.top / factor, self.longest / factor)
        return OfError(0.0 * self.found, *sizes, self.functions.grown(factor))


class Workings:
    """Quantities shared by all inequalities.

    Attributes:
        s, e: the surrogate and the evidence.
        frame: of the columns.
        pairs: for every pair of actions the sums at the points of its band.
        error: those behind û.
        drop: those behind the span of the value.
        lebesgue: how projection can magnify a tail ``[A]``.
    """

    def __init__(self, surrogate: PolicySurrogate, evidence: PolicyEvidence) -> None:
        self.s, self.e, self.gamma, self.frame = surrogate, evidence, surrogate.discount, frame(surrogate.columns)
        self.A, self.k = surrogate.fits.shape
        self.precision = np.linalg.inv(evidence.gram)
        self.resolvent = np.linalg.inv(np.eye(self.A * self.k) - self.gamma * np.concatenate(list(surrogate.Z), axis=1))
        self.dense = surrogate.columns.values(self.frame.dense.states)
        self.dense_factor = self.frame.dense.double
        leverage = np.einsum("ni,aij,nj->an", self.dense, self.precision, self.dense, optimize=True).max(axis=1)
        self.leverage = leverage * self.dense_factor
        self.lebesgue = 1 + np.sqrt(evidence.counts * leverage * self.dense_factor)
        self.spread = self.frame.lifted(evidence.spread)
        m, wobble = len(surrogate.mix), self.frame.lifted(evidence.wobble)
        self._forms = wobble.transpose(2, 0, 3, 1, 4).reshape(m, self.A * self.k, self.A * self.k)
        self.mixed = np.einsum("mf,afk->amk", surrogate.mix, surrogate.Z)
        self.f_low, self.f_high = self._ranges()
        phi = surrogate.columns.values(self.frame.band.states)
        self.pairs: dict[tuple[int, int], tuple[OfValue, OfFunctions]] = {}
        for pair in combinations(range(self.A), 2):
            weights = self.weights(*pair, phi)
            self.pairs[pair] = self.of_value(weights), self.of_functions(weights, close=self.frame.close)
        self.error = self._of_error()
        lift = (self.gamma * surrogate.drop @ self.resolvent.T).reshape(1, self.A, self.k)
        weights = np.einsum("nai,aij->naj", lift, self.precision)
        self.drop = self.of_value(weights), self.of_functions(weights, close=True)

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

    def of_value(self, weights: Array) -> OfValue:
        """Σ_c⟨weights_c, Σ xY_c⟩ and what bounds its deviation from the mean, for every row."""
        observed = np.einsum("nai,abij,nbj->n", weights, self.spread, weights, optimize=True)
        found = np.einsum("nai,ai->n", weights, self.e.surprise)
        return OfValue(found, observed, self.largest(weights, self._reach_of_value(), close=self.frame.close))

    def of_functions(self, weights: Array, *, close: bool) -> OfFunctions:
        """The same sums for every f_i instead of V; ``close`` takes suprema state by state, and lengths too."""
        n, m = len(weights), len(self.s.mix)
        flat, swings = weights.reshape(n, -1), self._swings(weights) if close else self._lengths(weights)
        found, spread, largest, longest = np.empty((n, m)), np.empty((n, m)), np.empty((n, m)), np.zeros(m)
        for i in range(m):
            fit = self.dense @ self.mixed[:, i].T
            reach = np.maximum(self.f_high[i] - fit, fit - self.f_low[i])
            found[:, i] = flat @ self.e.drift[:, i].ravel()
            spread[:, i] = np.sqrt(np.maximum(((flat @ self._forms[i]) * flat).sum(axis=1), 0.0))
            if close:
                terms = self._terms(swings, reach)
                largest[:, i], longest[i] = self.dense_factor * terms.max(axis=1), self._longest(terms)
            else:
                largest[:, i] = self._joint(swings * self._top(reach))
        return OfFunctions(found, spread, largest, longest)

    def _of_error(self) -> OfError:
        """For û_j, the errors of V̂ in the functions f_j."""
        rows = self.gamma * np.linalg.inv(self.s.mix).T @ self.resolvent.T
        functionals = np.einsum("nai,aij->naj", rows.reshape(-1, self.A, self.k), self.precision)
        centre = np.einsum("nai,ai->n", functionals, self.e.surprise)
        covariance = np.einsum("nai,abij,mbj->nm", functionals, self.spread, functionals, optimize=True)
        longest = self._longest(self._terms(self._swings(functionals), self._reach_of_value()))
        top = np.linalg.eigvalsh(covariance)[-1]
        return OfError(centre, np.trace(covariance), top, longest, self.of_functions(functionals, close=True))

    def largest(self, weights: Array, reach: Array, *, close: bool) -> Array:
        """sup over states of what one fresh state can add, for every row ``[n]``, its surprise within reach ``[q, A]``.

        Not close: by Cauchy and Schwarz, |weights_c·x| is at most the root of (weightsᵀG weights)·(sup of leverages).
        """
        if close:
            return np.asarray(self.dense_factor * self._terms(self._swings(weights), reach).max(axis=1))
        return self._joint(self._lengths(weights) * self._top(reach))

    def _reach_of_value(self) -> Array:
        """How far V̂(s') can be from its fit, for every action ``[q, A]``."""
        fits = self.dense @ self.s.fits.T
        return np.maximum(self.s.high - fits, fits - self.s.low)

    def _top(self, reach: Array) -> Array:
        """The farthest anywhere ``[A]``."""
        return np.asarray(self.dense_factor * reach.max(axis=0))

    def _lengths(self, weights: Array) -> Array:
        """sup|weights_c·φ(x)| over states, an upper bound ``[n, A]``."""
        forms = np.einsum("nai,aij,naj->na", weights, self.e.gram, weights, optimize=True)
        return np.sqrt(np.maximum(forms, 0.0) * self.leverage)

    def _swings(self, weights: Array) -> Array:
        """|weights_c·φ(x)| at the dense states x ``[n, A, q]``."""
        return np.abs(weights @ self.dense.T)

    def _joint(self, terms: Array) -> Array:
        """What one fresh state can add from what its actions can: those of a pair add up, separate draws do not."""
        return np.asarray(terms.sum(axis=1) if self.e.paired else terms.max(axis=1))

    def _terms(self, swings: Array, reach: Array) -> Array:
        """What a fresh state at each dense state can add at most ``[n, q]``."""
        return self._joint(swings * reach.T)

    def _longest(self, terms: Array) -> float:
        """The same for all rows as one vector: along every direction it is a polynomial."""
        return float(self.dense_factor * np.linalg.norm(terms, axis=0).max())


class Visits(NamedTuple):
    """Of one action and one tent: the observed curve in the columns, second moments, largest terms at points."""

    action: int
    tent: int
    curve: Array
    observed: Array
    largest: Array


def visits_of(work: Workings) -> list[Visits]:
    """What the data say about P_c of every tent, at the points `Frame.visited`."""
    phi, spread = work.s.columns.values(work.frame.visited.states), work.frame.lifted(work.e.visit_spread)
    found = []
    for c in range(work.A):
        weights = np.zeros((len(phi), work.A, work.k))
        weights[:, c] = phi @ work.precision[c]
        for w, guess in enumerate(work.s.tent_fits[c]):
            fit = work.dense @ guess
            reach = np.tile(np.maximum(1 - fit, fit)[:, None], work.A)
            observed = np.einsum("ni,ij,nj->n", weights[:, c], spread[c, w], weights[:, c], optimize=True)
            largest = work.largest(weights, reach, close=work.frame.close)
            found.append(Visits(c, w, work.precision[c] @ work.e.visits[c, w], observed, largest))
    return found


@lru_cache(maxsize=2)  # a forecast asks again and again with another δ or size
def workings(surrogate: PolicySurrogate, evidence: PolicyEvidence) -> tuple[Workings, list[Visits]]:
    """Everything that does not depend on δ, made once."""
    work = Workings(surrogate, evidence)
    return work, visits_of(work)
