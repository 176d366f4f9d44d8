"""Linear functionals of the regression errors of all actions, and what evidence says about their noise.

A functional is a row of weights ``[A, k]``: applied to a function f it is Σ_c ⟨weights_c, Σ x E_c(f)⟩, a sum over fresh
states of Z(f) = Σ_c (weights_c·x) E_c(f). This module computes, for V̂ and for the functions f_1, …, f_{m−1} that its
error u is made of, the observed sums, the observed second moments and the largest terms; `bands` turns them into
inequalities, for any δ, and for more data that say nothing new. docs/notes/certificate.md has the proofs.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from certirl.ground.domain import Array
from certirl.proof.sums import Evidence
from certirl.proof.surrogate import Surrogate

_MOST_CLOSE = 250_000  # numbers up to which largest terms are looked for state by state at every point


class Noise(NamedTuple):
    """What bounds the noise of n functionals.

    Attributes:
        value: observed second moments ΣZ(V̂)² ``[n]``.
        operator: Σ_i ΣZ(f_i)² ``[n]``.
        cross: ΣZ(V̂)Z(f_i) ``[n, r]``.
        largest: bounds on |Z(V̂)| and on the length of (Z(f_i))_i ``[n, 2]``.
    """

    value: Array
    operator: Array
    cross: Array
    largest: Array

    def grown(self, factor: float) -> Noise:
        """The weights for a multiple of the data; they are inverse to the amount."""
        return Noise(*(part / factor for part in self))


class Points(NamedTuple):
    """Functionals at points.

    Attributes:
        value: observed ΣZ(V̂) ``[n]``.
        functions: observed ΣZ(f_i), i ≥ 1 ``[n, m − 1]``.
        noise: as above.
        expected: ΣZ(V̂)² as training data let us expect it ``[n]``.
    """

    value: Array
    functions: Array
    noise: Noise
    expected: Array


class Error(NamedTuple):
    """The functionals that give the coefficients of û in the f_i, as one vector.

    Attributes:
        value: observed, of V̂ ``[m − 1]``.
        matrix: observed, of the f_i: column i is the vector for f_i ``[m − 1, m − 1]``.
        trace: of the second moments of the vector, for V̂ and for the f_i together ``[2]``.
        top: their largest eigenvalues ``[2]``.
        longest: bounds on the length of a term ``[2]``.
        expected_trace, expected_top: as training data let us expect them ``[2]``.
    """

    value: Array
    matrix: Array
    trace: Array
    top: Array
    longest: Array
    expected_trace: Array
    expected_top: Array


class Visits(NamedTuple):
    """Of one action and one tent: the observed curve in the harmonics, second moments and largest terms at points."""

    action: int
    tent: int
    curve: Array
    observed: Array
    largest: Array


class Workings:
    """Quantities shared by all inequalities, for one surrogate and its evidence.

    Attributes:
        precision: inverses of Σ x xᵀ ``[A, k, k]``.
        resolvent: (I − γẐ_π)⁻¹ ``[m, m]``.
        leverage: sup of xᵀ(Σ x xᵀ)⁻¹x over the states ``[A]``.
        lebesgue: by how much regression can magnify a tail ``[A]``.
        residual_lebesgue: the largest of those of the actions that the expert uses.
        condition: the largest condition number of Σ x xᵀ.
        function_sums: Σ x E_c(f_i), i ≥ 1 ``[A, m − 1, k]``.
        radius: how far V̂ and (f_i)_i are from a middle at most ``[2]``.
        error: the functionals of û.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence) -> None:
        s, e, harmonics = surrogate, evidence, surrogate.frame
        self.s, self.e, self.frame, self.gamma = s, e, harmonics, s.discount
        self.A, self.k = s.fits.shape
        self._used = list(s.used)
        self.gram = harmonics.lifted(e.gram)
        self.precision, self.condition = np.linalg.inv(self.gram), float(np.linalg.cond(self.gram).max())
        self.resolvent = np.linalg.inv(
            np.eye(s.Z.shape[1]) - self.gamma * np.concatenate(list(s.Z[self._used]), axis=1)
        )
        self._pairs, every = s.pairs(e.paired), s.pairs(True)
        expected = s.noise[[every.index(pair) for pair in self._pairs]] * float(e.counts.min())
        observed = np.stack([e.residual_moments, e.operator_moments], axis=1)
        self._moments = harmonics.lifted(np.concatenate([observed, expected, e.cross_moments], axis=1))
        self.function_sums = s.mix[1:] @ e.operator_residuals  # Σ x E_c(f_i) [A, m − 1, k]
        self._suprema()
        self.error = self._of_error()

    def _suprema(self) -> None:
        """Over all states: leverages, and the sizes of V̂, of the f_i and of their fits."""
        harmonics, s = self.frame, self.s
        fine, dense = harmonics.values(harmonics.fine.states), harmonics.dense_values
        leverage = [float(np.einsum("ni,ni->n", fine @ inverse, fine).max()) for inverse in self.precision]
        self.leverage = harmonics.fine.double * np.array(leverage)
        self.lebesgue = 1 + np.sqrt(self.e.counts * self.leverage)
        self.residual_lebesgue = float(self.lebesgue[self._used].max())
        # At each state f_i is an average of its polynomials, one for every used action.
        values = s.mix[1:].reshape(-1, len(self._used), self.k) @ dense.T  # [m − 1, U, q]
        middle = (values.min(axis=(1, 2)) + values.max(axis=(1, 2))) / 2
        away, fits = values - middle[:, None, None], s.mix[1:] @ s.Z @ dense.T - middle[:, None]  # [A, m − 1, q]
        self._fits = (s.fits @ dense.T - (s.low + s.high) / 2)[:, None]  # [A, 1, q]
        # Along every direction a vector of expansions is an expansion, so that its length is bounded as one.
        size = harmonics.dense.factor * np.linalg.norm(away, axis=0).max(initial=0.0)
        self.radius = np.array([(s.high - s.low) / 2, size])
        kinds = (self._fits, fits)
        self._lengths = np.stack([np.linalg.norm(kind, axis=1) for kind in kinds])  # [2, A, q]
        self._gaps = {
            (b, a): np.stack([np.linalg.norm(kind[b] - kind[a], axis=0) for kind in kinds]) for b, a in s.compared
        }  # [2, q]

    @cached_property
    def compared(self) -> dict[tuple[int, int], Points]:
        """The functionals of every pair of actions that is compared, at the points of the bands."""
        values = self.frame.values(self.s.mesh.states)
        return {pair: self.points(self.weights(*pair, values), pair) for pair in self.s.compared}

    @cached_property
    def drop(self) -> Points:
        """The functional behind the span of the value."""
        return self.points(self.of_error(self.s.drop[None]))

    @cached_property
    def visits(self) -> list[Visits]:
        """What the data say about P_c of every tent, at the points `Frame.visited`."""
        values, moments = self.frame.values(self.frame.visited.states), self.frame.lifted(self.e.visit_moments)
        dense, visits = self.frame.dense_values, []
        for c in range(self.A):
            weights = values @ self.precision[c]
            swings = np.abs(weights @ dense.T)
            for w, guess in enumerate(self.s.tent_fits[c]):
                fit = dense @ guess
                largest = self.frame.dense.double * (swings * np.maximum(1 - fit, fit)).max(axis=1)
                observed = np.einsum("ni,ni->n", weights @ moments[c, w], weights)
                visits.append(Visits(c, w, self.precision[c] @ self.e.visits[c, w], observed, largest))
        return visits

    def weights(self, b: int, a: int, values: Array) -> Array:
        """The functionals behind (P_b − P_a)V at states with these harmonics ``[n, k]``: ``[A, n, k]``."""
        weights = self._over_actions(values @ (self.s.Z[b] - self.s.Z[a]).T)
        weights[b] += values
        weights[a] -= values
        return weights @ self.precision

    def of_error(self, rows: Array) -> Array:
        """The functionals behind Σ rows_dj·(coefficient of π_d h_j in u) ``[n, m]``: ``[A, n, k]``."""
        return self._over_actions(rows) @ self.precision

    def _over_actions(self, rows: Array) -> Array:
        lifted = self.gamma * rows @ self.resolvent.T
        weights = np.zeros((self.A, len(rows), self.k))
        weights[self._used] = lifted.reshape(len(rows), len(self._used), self.k).swapaxes(0, 1)
        return weights

    def points(self, weights: Array, pair: tuple[int, int] | None = None) -> Points:
        """What evidence says about functionals ``[A, n, k]``, those of a pair of actions if they belong to one."""
        active = [c for c in range(self.A) if weights[c].any()] or [0]
        forms = self._forms(weights, active)
        largest = self._largest(weights, active, pair)
        squares = np.maximum(forms[:, :3], 0.0)  # negative by rounding alone, where paired noise cancels
        noise = Noise(squares[:, 0], squares[:, 1], forms[:, 4:], largest)
        value = np.einsum("cnk,ck->n", weights, self.e.residuals)
        return Points(value, np.einsum("cnk,cik->ni", weights, self.function_sums, optimize=True), noise, squares[:, 2])

    def _of_error(self) -> Error:
        weights = self.of_error(np.linalg.inv(self.s.mix).T[1:])
        active, size = list(self._used), weights.shape[1]
        value = np.einsum("cnk,ck->n", weights, self.e.residuals)
        matrix = np.einsum("cnk,cik->ni", weights, self.function_sums, optimize=True)
        forms = np.zeros((4, size, size))
        for c, d, moments in self._active_pairs(active):
            product = weights[c] @ moments[:4] @ weights[d].T
            forms += product if c == d else product + product.swapaxes(1, 2)
        trace = np.trace(forms, axis1=1, axis2=2)
        top = np.maximum(np.linalg.eigvalsh(forms)[:, -1] if size else np.zeros(4), 0.0)
        dense = self.frame.dense_values
        lengths = {c: np.linalg.norm(weights[c] @ dense.T, axis=0)[None] for c in active}
        longest = self.frame.dense.double * self._terms(lengths, {}, None, self._lengths, self._gaps).max(axis=(1, 2))
        return Error(value, matrix, trace[:2], top[:2], longest, trace[2:], top[2:])

    def _active_pairs(self, active: list[int]) -> list[tuple[int, int, Array]]:
        every = zip(self._pairs, self._moments, strict=True)
        return [(c, d, moments) for (c, d), moments in every if {c, d} <= set(active)]

    def _forms(self, weights: Array, active: list[int]) -> Array:
        """Σ_cd weights_c·M_cd weights_d for all kinds of second moments: ``[n, r + 4]``."""
        total = np.zeros((weights.shape[1], self._moments.shape[1]))
        for c, d, moments in self._active_pairs(active):
            for kind, moment in enumerate(moments):
                form = np.einsum("ni,ni->n", weights[c] @ moment, weights[d])
                total[:, kind] += form if c == d else 2 * form
        return total

    def _largest(self, weights: Array, active: list[int], pair: tuple[int, int] | None) -> Array:
        """Bounds on the contribution of one fresh state to V̂ and to the f_i ``[n, 2]``."""
        if not active:
            return np.zeros((weights.shape[1], 2))
        dense, largest = self.frame.dense_values, self._from_lengths(weights, active, pair)
        if weights.shape[1] * len(dense) > _MOST_CLOSE:
            return largest
        swings = {c: weights[c] @ dense.T for c in active}
        both = {frozenset(pair): np.abs(swings[pair[0]] + swings[pair[1]])} if pair is not None else {}
        sizes = {c: np.abs(swing) for c, swing in swings.items()}
        terms = self._terms(sizes, both, pair, self._lengths, self._gaps)
        if self.e.paired:  # of V̂ the supremum is exact
            fits = np.abs(sum(swings[c] * self._fits[c] for c in active))
            terms[0] = np.minimum(terms[0], self.radius[0] * sum(sizes.values()) + fits)
        return np.minimum(largest, self.frame.dense.double * terms.max(axis=2).T)

    def _from_lengths(self, weights: Array, active: list[int], pair: tuple[int, int] | None) -> Array:
        """The same by Cauchy and Schwarz: |w·x| is at most the root of (wᵀG w)·(the largest leverage)."""

        def size(rows: Array, c: int) -> Array:
            forms = np.einsum("ni,ni->n", rows @ self.gram[c], rows)
            return np.sqrt(np.maximum(forms, 0.0) * self.leverage[c])[:, None]

        sizes = {c: size(weights[c], c) for c in active}
        both = {frozenset(pair): size(weights[pair[0]] + weights[pair[1]], pair[0])} if pair is not None else {}
        lengths = self.frame.dense.factor * self._lengths.max(axis=2, keepdims=True)
        gaps = {key: self.frame.dense.factor * gap.max(axis=1, keepdims=True) for key, gap in self._gaps.items()}
        return self._terms(sizes, both, pair, lengths, gaps)[:, :, 0].T

    def _terms(
        self,
        sizes: dict[int, Array],
        both: dict[frozenset[int], Array],
        pair: tuple[int, int] | None,
        lengths: Array,
        gaps: dict[tuple[int, int], Array],
    ) -> Array:
        """The largest contribution of a fresh state at each of q states ``[2, n, q]``.

        A residual of action c is within the radius of a middle value, less a fit of known length. Of paired data the
        fits of a pair (b, a) are w_b f_b + w_a f_a = (w_b + w_a) f_b − w_a (f_b − f_a), in either order.

        Args:
            sizes: |w_c·x| for each action ``[n, q]``.
            both: |(w_b + w_a)·x| for the pair ``[n, q]``.
            pair: (b, a), or None.
            lengths: of the fits of V̂ and the f_i ``[2, A, q]``.
            gaps: of the differences of two fits ``[2, q]``.
        """
        radius = self.radius[:, None, None]
        each = {c: size * lengths[:, c, None] for c, size in sizes.items()}
        if not self.e.paired:
            return np.max([radius * sizes[c] + each[c] for c in sizes], axis=0)
        fits = sum(each.values())
        if pair is not None:
            others = sum((term for c, term in each.items() if c not in pair), np.zeros(()))
            for one, other in (pair, pair[::-1]):
                apart = sizes[other] * gaps[pair][:, None] + both[frozenset(pair)] * lengths[:, one, None]
                fits = np.minimum(fits, apart + others)
        return np.asarray(radius * sum(sizes.values()) + fits)


@lru_cache(maxsize=16)  # a forecast asks again and again with another δ or size
def workings(surrogate: Surrogate, evidence: Evidence) -> Workings:
    """Everything that does not depend on δ, made once."""
    return Workings(surrogate, evidence)
