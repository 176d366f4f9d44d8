"""Bands: with probability 1 − δ, (P_b − P_a)V lies within them for every pair of actions and every state.

With d̂_c(f) = G_c⁻¹ Σ x E_c(f) the observed regression errors, ν(f) their noise, V = V̂ + u the expert's true value and
ω(s) the functional of a pair, exactly (the tail apart)

    u = (I − K̂)⁻¹ (c − N ν(V)),    (P_b − P_a)V = (P̂_b − P̂_a)V̂ + ω·d̂(V̂ + c̃) − ω·ν(V) − η (I − K̂)⁻¹ N ν(V),

where c̃ = (I − K̂)⁻¹c, c = N d̂(V̂), K̂ = N d̂(f) and η = ω·d̂(f) are observed. V is one fixed function, so that its noise
needs one inequality at each point and one for the vector Nν(V). docs/notes/certificate.md has statement and proof.

A functional of the regression errors is a row of weights ``[A, k]``: applied to a function f it is Σ_c ⟨weights_c, Σ x
E_c(f)⟩, a sum over fresh states of Z(f) = Σ_c (weights_c·x) E_c(f). `workings` computes, for V̂ and for the functions
f_1, …, f_{m−1} that its error u is made of, the observed sums, the observed second moments and the largest terms;
`bands` turns them into inequalities, for any δ, and for more data that say nothing new.

The error u is bounded in one of two ways, which training data choose: by its length in the f_i, whose observed second
moments are then needed, or at points (`Surrogate.pointwise`), as a function within h_u of a constant.

Where rows may depend on each other, bounds need weights that were fixed before (`Surrogate.design`, section 18 of the
notes). The noise of a functional is then bounded with these weights, and what the weights of the regression differ by
is multiplied by a bound on the noise of all columns of an action, whitened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import factorial, prod
from typing import Any, NamedTuple

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.frame import CellAxes, frame
from certirl.functions.inequalities import (
    EVENTS,
    MIXED_EVENTS,
    best_rate,
    best_scale,
    best_slope,
    empirical_bernstein,
    hoeffding_norm,
    log_term,
    mixed_norm,
    plain_slope,
    quartic,
    sloped,
)
from certirl.functions.spread import inflation
from certirl.ground.domain import Array
from certirl.ground.records import Record
from certirl.proof.sums import Evidence, sum_error
from certirl.proof.surrogate import Surrogate

_MOST_CLOSE = 250_000  # numbers up to which largest terms are looked for state by state at every point
BLOCK = 1024  # points worked on at once


class Noise(NamedTuple):
    """What bounds the noise of n functionals.

    Attributes:
        value: observed second moments ΣZ(V̂)² ``[n]``.
        operator: bounds on ΣZ(u)² for u of size 1 ``[n]``: Σ_i ΣZ(f_i)²; pointwise S₁, from Σ x xᵀ alone.
        cross: ΣZ(V̂)Z(f_i) ``[n, r]``.
        largest: bounds on |Z(V̂)| and on |Z(u)| for u of size 1 ``[n, 2]``.
        powers: observed ΣZ(V̂)³ and ΣZ(V̂)⁴ ``[n, 2]``; ``[n, 0]`` where they were not summed.
    """

    value: Array
    operator: Array
    cross: Array
    largest: Array
    powers: Array

    def grown(self, factor: float) -> Noise:
        """The weights for a multiple of the data; they are inverse to the amount."""
        powers = self.powers / factor ** np.arange(2, 2 + self.powers.shape[1])
        value, operator, cross, largest = (part / factor for part in self[:4])
        return Noise(value, operator, cross, largest, powers)

    def slope(self, expected: Array, bound: Array, L: Any) -> Array:
        """Slopes of `radius` for moments and ranges that training data let us expect."""
        choose = plain_slope if self.powers.shape[1] else best_slope
        return np.asarray(choose(_CAUTION * expected, bound, L))

    def radius(self, L: Any, slope: Array, length: float = 0.0, square: Array | None = None) -> Array:
        """By how much ⟨ω, ν⟩ can exceed 0, and fall below it ``[2, n]``, but for probability e^−L each.

        Args:
            L: of the events ``[2, n]``, or one for all.
            slope: fixed beforehand, of the same shape.
            length: κ, the size of u at most.
            square: ΣZ(V̂ + u)² at most; that of V̂ if left out.
        """
        square = self.value if square is None else square
        bound = self.largest @ np.array([1.0, length])
        radius = np.broadcast_to(sloped(square, bound, L, slope), (2, len(bound)))
        if not self.powers.shape[1]:
            return radius
        signs, (cube, fourth) = np.array([[1.0], [-1.0]]), self.powers.T
        fourth, apart, largest = np.maximum(fourth, 0.0), length**2 * self.operator, length * self.largest[:, 1]
        less = 3 * np.sqrt(fourth * apart) + (3 * self.largest[:, 0] + largest) * apart  # of Σ(Z + W)³, ΣW² ≤ apart
        whole = (fourth**0.25 + (largest**2 * apart) ** 0.25) ** 4
        return np.minimum(radius, quartic(square, signs * cube - less, whole, bound, L, slope))


class Points(NamedTuple):
    """Functionals at points.

    Attributes:
        value: observed ΣZ(V̂) ``[n]``.
        shift: observed Σ_i c̃_i ΣZ(f_i) ``[n]``.
        turned: the length of (I − K̂)⁻ᵀ(ΣZ(f_i))_i ``[n]``.
        noise: as above.
        expected: ΣZ(V̂)² as training data let us expect it ``[n]``.
        mismatch: the length of weights of the regression less fixed ones, times the noise ``[n, A]``; ``[n, 0]`` where
            no weights were fixed before.
        magnified: by how much the functionals can magnify a tail ``[n]``.
    """

    value: Array
    shift: Array
    turned: Array
    noise: Noise
    expected: Array
    mismatch: Array
    magnified: Array


class Lengths(NamedTuple):
    """What bounds the length of the noise of a vector.

    Attributes:
        size: its entries.
        trace: of the second moments of the vector, for V̂ and for the f_i together ``[2]``; pointwise, instead of the
            latter, of the matrix H that bounds those of every function between −1 and 1.
        top: their largest eigenvalues ``[2]``.
        longest: bounds on the length of a term ``[2]``.
        expected_trace, expected_top: as training data let us expect them ``[2]``.
    """

    size: int
    trace: Array
    top: Array
    longest: Array
    expected_trace: Array
    expected_top: Array

    def grown(self, moments: float, ranges: float) -> Lengths:
        """With second moments and largest terms divided by these factors."""
        trace, top, longest, likely_trace, likely_top = self[1:]
        return Lengths(
            self.size, trace / moments, top / moments, longest / ranges, likely_trace / moments, likely_top / moments
        )


class Error(NamedTuple):
    """The functionals that give the coefficients of û in the f_i, as one vector.

    Attributes:
        value: observed, of V̂ ``[m − 1]``.
        matrix: observed, of the f_i: column i is the vector for f_i ``[m − 1, m − 1]``.
        noise: of the vector.
        mismatch: as for `Points`, the largest over all directions ``[A]``, or ``[0]``.
        magnified: by how much the vector can magnify a tail.
    """

    value: Array
    matrix: Array
    noise: Lengths
    mismatch: Array
    magnified: float


class Visits(NamedTuple):
    """Of one action and one tent, at points ``[n]`` each, in the order of the harmonics the curve ``[k]``.

    Attributes:
        action, tent: their numbers.
        curve: observed.
        observed: second moments.
        largest: the largest terms.
        expected: second moments, from training data alone.
        mismatch: as for `Points`; empty where no weights were fixed before.
        noise: of the whitened vector; None where no weights were fixed before.
    """

    action: int
    tent: int
    curve: Array
    observed: Array
    largest: Array
    expected: Array
    mismatch: Array
    noise: Lengths | None


class Workings:
    """Quantities shared by all inequalities, for one surrogate and its evidence.

    Attributes:
        precision: inverses of Σ x xᵀ ``[A, k, k]``.
        resolvent: (I − γẐ_π)⁻¹ ``[m, m]``.
        leverage: sup of xᵀ(Σ x xᵀ)⁻¹x over the states ``[A]``.
        lebesgue: by how much regression can magnify a tail ``[A]``.
        spread: the largest leverage times the number of transitions.
        condition: the largest condition number of Σ x xᵀ.
        function_sums: Σ x E_c(f_i), i ≥ 1 ``[A, m − 1, k]``.
        radius: how far V̂ and (f_i)_i are from a middle at most ``[2]``.
        error: the functionals of û.
        is_fixed: whether weights were fixed before, as rows may depend on each other.
        design: Σ x xᵀ from which the weights of bounds come: expected, or observed ``[A, k, k]``.
        white: the noise of every action's columns, whitened; empty where no weights were fixed before.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        scaled: for a forecast: the expected data are as many as the observed ones.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence, *, scaled: bool = False) -> None:
        s, e, harmonics = surrogate, evidence, surrogate.frame
        self.s, self.e, self.frame, self.gamma = s, e, harmonics, s.discount
        self.A, self.k = s.fits.shape
        self._used = list(s.used)
        self.gram = harmonics.lifted(e.gram)
        self.precision, self.condition = np.linalg.inv(self.gram), float(np.linalg.cond(self.gram).max())
        self.resolvent = np.linalg.inv(
            np.eye(s.Z.shape[1]) - self.gamma * np.concatenate(list(s.Z[self._used]), axis=1)
        )
        self.is_fixed, self.design, count = s.design is not None, self.gram, float(e.counts.min())
        if s.design is not None:
            self.design = harmonics.lifted(s.design)
            planned = float(self.design[:, 0, 0].min())
            self.design, count = (self.design * (count / planned), count) if scaled else (self.design, planned)
            self.condition = max(self.condition, float(np.linalg.cond(self.design).max()))
            self._turn = self.gram @ np.linalg.inv(self.design)  # weights of the regression to fixed ones
        self._pairs, every = s.pairs(e.paired), s.pairs(True)
        expected = s.noise[[every.index(pair) for pair in self._pairs]] * count
        kinds = [e.residual_moments] if s.pointwise else [e.residual_moments, e.operator_moments]
        self._kinds = len(kinds)
        self._moments = harmonics.lifted(np.concatenate([np.stack(kinds, axis=1), expected, e.cross_moments], axis=1))
        self._at_nodes = np.zeros((0, 1)) if e.powers is None else harmonics.at_nodes(e.powers)
        self.function_sums = s.mix[1:] @ e.operator_residuals  # Σ x E_c(f_i) [A, m − 1, k]
        self._suprema()
        self._roots = self._noise_roots()
        self.white = [self._lengths_of({c: np.linalg.inv(root)}) for c, root in enumerate(self._roots)]
        self.error = self._of_error()

    def _suprema(self) -> None:
        """Over all states: leverages, and the sizes of V̂, of the f_i and of their fits."""
        harmonics, s = self.frame, self.s
        dense = harmonics.dense_values

        def leverages(inverses: Array) -> Array:
            most = np.zeros(self.A)
            for states in _blocks(harmonics.fine.states):
                fine = harmonics.values(states)
                each = [float(np.einsum("ni,ni->n", fine @ inverse, fine).max()) for inverse in inverses]
                most = np.maximum(most, each)
            return harmonics.fine.double * most

        self.leverage = leverages(self.precision)
        self.lebesgue = 1 + np.sqrt(self.e.counts * self.leverage)
        self._expected_leverage = leverages(np.linalg.inv(self.design)) if self.is_fixed else self.leverage
        self.spread = float(((self.lebesgue - 1) ** 2).max())
        if self.is_fixed:
            self.spread = max(self.spread, float((self.design[:, 0, 0] * self._expected_leverage).max()))
        self._fits = (s.fits @ dense.T - (s.low + s.high) / 2)[:, None]  # [A, 1, q]
        if s.pointwise:  # u is compared with a constant, the middle of its range
            self.radius = np.array([(s.high - s.low) / 2, 1.0])
            self._lengths = np.stack([np.abs(self._fits[:, 0]), np.zeros((self.A, len(dense)))])
            gaps = {(b, a): np.abs(self._fits[b, 0] - self._fits[a, 0]) for b, a in s.compared}
            self._gaps = {pair: np.stack([gap, np.zeros(len(dense))]) for pair, gap in gaps.items()}
            return
        # At each state f_i is an average of its polynomials, one for every used action.
        values = s.mix[1:].reshape(-1, len(self._used), self.k) @ dense.T  # [m − 1, U, q]
        middle = (values.min(axis=(1, 2)) + values.max(axis=(1, 2))) / 2
        away, fits = values - middle[:, None, None], s.mix[1:] @ s.Z @ dense.T - middle[:, None]  # [A, m − 1, q]
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
        states = self.s.mesh.states
        return {pair: self._in_blocks(states, partial(self.weights, *pair), pair) for pair in self.s.compared}

    @cached_property
    def at_points(self) -> Points:
        """û at the points `Frame.coarse`: of every used action its polynomial, one action after the other."""
        states, places = self.frame.coarse.states, range(len(self._used))
        return _joined([self._in_blocks(states, partial(self._polynomial, place)) for place in places])

    def _polynomial(self, place: int, values: Array) -> Array:
        """The functionals behind the polynomial of one used action in u, at states with these harmonics ``[n, k]``."""
        rows = np.zeros((len(values), len(self._used), self.k))
        rows[:, place] = values
        return self.of_error(rows.reshape(len(values), -1))

    def _in_blocks(
        self, states: Array, weights: Callable[[Array], Array], pair: tuple[int, int] | None = None
    ) -> Points:
        """Functionals at states, whose harmonics give the weights: a block of them after the other."""
        close = len(states) * len(self.frame.dense.states) <= _MOST_CLOSE
        return _joined([self.points(weights(self.frame.values(block)), pair, close) for block in _blocks(states)])

    @cached_property
    def drop(self) -> Points:
        """The functional behind the span of the value."""
        close = len(self.frame.dense.states) <= _MOST_CLOSE
        return self.points(self.of_error(self.s.drop[None]), close=close)

    @cached_property
    def visits(self) -> list[Visits]:
        """What the data say about P_c of every tent, at the points `Frame.visited`."""
        values, moments = self.frame.values(self.frame.visited.states), self.frame.lifted(self.e.visit_moments)
        dense, double, visits = self.frame.dense_values, self.frame.dense.double, []
        for c in range(self.A):
            weights = self._fixed(values @ self.precision[c], c)
            fits = dense @ self.s.tent_fits[c].T  # [q, w]
            reach = np.maximum(1 - fits, fits).T
            swings = (np.abs(rows @ dense.T) for rows in _blocks(weights, BLOCK // 4))
            largest = [np.array([double * (swing * sizes).max(axis=1) for sizes in reach]) for swing in swings]
            length, mismatch = np.zeros(0), np.zeros(0)
            if self.is_fixed:
                root = _root(self.design[c])
                length = np.einsum("ni,ni->n", weights @ self.design[c], weights)
                mismatch = np.linalg.norm((values @ self.precision[c] - weights) @ root, axis=1)
                whitened = np.linalg.norm(np.linalg.solve(root, dense.T), axis=0)
            for w, (fit, sizes) in enumerate(zip(fits.T, reach, strict=True)):
                likely = max(float(fit.max()), 1e-6)
                observed = np.einsum("ni,ni->n", weights @ moments[c, w], weights)
                noise = None
                if self.is_fixed:
                    forms = np.linalg.solve(root, np.linalg.solve(root, moments[c, w]).T)
                    top, longest = np.linalg.eigvalsh(forms)[-1], double * (whitened * sizes).max()
                    each = (np.array([x]) for x in (np.trace(forms), max(top, 0.0), longest, self.k * likely, likely))
                    noise = Lengths(self.k, *each)
                curve, most = self.precision[c] @ self.e.visits[c, w], np.concatenate([block[w] for block in largest])
                visits.append(Visits(c, w, curve, observed, most, likely * length, mismatch, noise))
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

    def points(self, weights: Array, pair: tuple[int, int] | None = None, close: bool = False) -> Points:
        """What evidence says about functionals ``[A, n, k]``.

        Args:
            weights: theirs.
            pair: of actions, if they belong to one.
            close: look for the largest terms state by state.
        """
        active = [c for c in range(self.A) if weights[c].any()] or [0]
        fixed = np.stack([self._fixed(weights[c], c) for c in range(self.A)]) if self.is_fixed else weights
        forms, kinds = self._forms(fixed, active), self._kinds
        lengths = {c: self._squares(fixed[c], c) for c in active}
        largest = self._largest(fixed, lengths, pair, close)
        squares = np.maximum(forms[:, : 2 * kinds], 0.0)  # negative by rounding alone, where paired noise cancels
        operator = self._plain(lengths) if self.s.pointwise else squares[:, 1]
        noise = Noise(squares[:, 0], operator, forms[:, 2 * kinds :], largest, self._powers(fixed, active))
        value, observed = np.einsum("cnk,ck->n", weights, self.e.residuals), self.observed(weights)
        far = np.full(len(value), np.inf)
        turned = far if self.inverse is None else np.linalg.norm(observed @ self.inverse, axis=1)
        mismatch, magnified = np.zeros((len(value), len(self.white))), np.zeros(len(value))
        for c in active:
            magnified += np.sqrt(self.e.counts[c] * _form(weights[c], self.gram[c]))
            if self.is_fixed:
                mismatch[:, c] = np.linalg.norm((weights[c] - fixed[c]) @ self._roots[c], axis=1)
        return Points(value, observed @ self.centre, turned, noise, squares[:, kinds], mismatch, magnified)

    def observed(self, weights: Array) -> Array:
        """ΣZ(f_i), i ≥ 1, of functionals ``[A, n, k]``: ``[n, m − 1]``."""
        return sum((weights[c] @ self.function_sums[c].T for c in range(self.A)), np.zeros(()))

    def _plain(self, lengths: dict[int, Array]) -> Array:
        """S₁ ``[n]``: ΣZ(u)² is at most h²S₁ for every u within h of a constant."""
        squares = np.stack(list(lengths.values()))
        return np.asarray(np.sqrt(squares).sum(axis=0) ** 2 if self.e.paired else squares.sum(axis=0))

    def _squares(self, rows: Array, c: int) -> Array:
        """Σ(w·x)² over the states of an action, as observed or as expected, for weights ``[n, k]``."""
        return _form(rows, self.design[c])

    @cached_property
    def inverse(self) -> Array | None:
        """(I − K̂)⁻¹ ``[m − 1, m − 1]``; None where it is too inaccurate."""
        if not len(self.error.value):
            return np.zeros((0, 0))
        left = np.eye(len(self.error.value)) - self.error.matrix
        values = np.linalg.svd(left, compute_uv=False)
        return np.linalg.inv(left) if values[0] <= _MOST_CONDITION * values[-1] else None

    @cached_property
    def centre(self) -> Array:
        """c̃ ``[m − 1]``; zero where there is no inverse."""
        return np.zeros(len(self.error.value)) if self.inverse is None else self.inverse @ self.error.value

    def _fixed(self, weights: Array, c: int) -> Array:
        """The weights ``[n, k]`` that bounds use for a functional with these weights in the regression of action c."""
        return weights @ self._turn[c] if self.is_fixed else weights

    def _noise_roots(self) -> list[Array]:
        """Roots of what is expected of Σ x xᵀ Y_c² for every action; none where no weights were fixed before."""
        if not self.is_fixed:
            return []
        moments = dict(zip(self._pairs, self._moments[:, self._kinds], strict=True))
        return [_root(moments[c, c]) for c in range(self.A)]

    def _of_error(self) -> Error:
        weights = self.of_error(np.linalg.inv(self.s.mix).T[1:])
        value = np.einsum("cnk,ck->n", weights, self.e.residuals)
        fixed = {c: self._fixed(weights[c], c) for c in self._used}
        mismatch, magnified = np.zeros(len(self.white)), 0.0
        for c in self._used if len(value) else ():
            magnified += float(np.sqrt(self.e.counts[c]) * np.linalg.norm(weights[c] @ _root(self.gram[c]), 2))
            if self.is_fixed:
                mismatch[c] = np.linalg.norm((weights[c] - fixed[c]) @ self._roots[c], 2)
        return Error(value, self.observed(weights), self._lengths_of(fixed), mismatch, magnified)

    def _lengths_of(self, weights: dict[int, Array]) -> Lengths:
        """What bounds the noise of a vector of functionals with these weights ``[q, k]`` of each action."""
        size = len(next(iter(weights.values())))
        forms = np.zeros((2, 2, size, size))  # observed and expected, of V̂ and of the f_i
        for c, d, moments in self._active_pairs(list(weights)):
            for kind, moment in enumerate(moments[: 2 * self._kinds]):
                product = weights[c] @ moment @ weights[d].T
                forms[divmod(kind, self._kinds)] += product if c == d else product + product.T
        if self.s.pointwise:
            each = sum(rows @ self.gram[c] @ rows.T for c, rows in weights.items())
            forms[:, 1] = (len(weights) if self.e.paired else 1) * each
        trace = np.trace(forms, axis1=2, axis2=3)
        top = np.maximum(np.linalg.eigvalsh(forms)[:, :, -1] if size else np.zeros((2, 2)), 0.0)
        dense = _blocks(self.frame.dense_values)
        lengths = {
            c: np.concatenate([np.linalg.norm(rows @ h.T, axis=0) for h in dense])[None] for c, rows in weights.items()
        }
        longest = self.frame.dense.double * self._terms(lengths, {}, None, self._lengths, self._gaps).max(axis=(1, 2))
        return Lengths(size, trace[0], top[0], longest, trace[1], top[1])

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

    def _powers(self, weights: Array, active: list[int]) -> Array:
        """ΣZ(V̂)³ and ΣZ(V̂)⁴ of functionals with these weights ``[A, n, k]``: ``[n, 2]``, or ``[n, 0]``."""
        total = np.zeros((weights.shape[1], 2 if self.s.powers else 0))
        if not self.s.powers:
            return total
        swings = {c: weights[c] @ self.frame.nodes.T for c in active}
        for actions, sums in zip(self.s.tuples(self.e.paired), self._at_nodes, strict=True):
            if {*actions} <= {*active}:
                times = factorial(len(actions)) / prod(factorial(n) for n in Counter(actions).values())
                product = np.prod([swings[c] for c in actions], axis=0)
                total[:, len(actions) - 3] += times * (product @ sums)
        return total

    def _largest(self, weights: Array, lengths: dict[int, Array], pair: tuple[int, int] | None, close: bool) -> Array:
        """Bounds on the contribution of one fresh state to V̂ and to the f_i ``[n, 2]``."""
        active, dense, largest = list(lengths), self.frame.dense_values, self._from_lengths(weights, lengths, pair)
        if not close:
            return largest
        swings = {c: weights[c] @ dense.T for c in active}
        both = {frozenset(pair): np.abs(swings[pair[0]] + swings[pair[1]])} if pair is not None else {}
        sizes = {c: np.abs(swing) for c, swing in swings.items()}
        terms = self._terms(sizes, both, pair, self._lengths, self._gaps)
        if self.e.paired:  # of V̂ the supremum is exact
            fits = np.abs(sum(swings[c] * self._fits[c] for c in active))
            terms[0] = np.minimum(terms[0], self.radius[0] * sum(sizes.values()) + fits)
        return np.minimum(largest, self.frame.dense.double * terms.max(axis=2).T)

    def _from_lengths(self, weights: Array, squares: dict[int, Array], pair: tuple[int, int] | None) -> Array:
        """The same by Cauchy and Schwarz: |w·x| is at most the root of (wᵀG w)·(the largest leverage)."""
        leverage = self._expected_leverage
        sizes, both = {c: np.sqrt(square * leverage[c])[:, None] for c, square in squares.items()}, {}
        if pair is not None:
            together = self._squares(weights[pair[0]] + weights[pair[1]], pair[0])
            both[frozenset(pair)] = np.sqrt(together * leverage[pair[0]])[:, None]
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


def _form(rows: Array, matrix: Array) -> Array:
    """wᵀGw of rows w ``[n, k]``, not below 0."""
    return np.maximum(np.einsum("ni,ni->n", rows @ matrix, rows), 0.0)


def _root(moments: Array) -> Array:
    """The symmetric root of a matrix of second moments, of which the smallest eigenvalues are raised ``[k, k]``."""
    values, vectors = np.linalg.eigh(moments)
    values = np.maximum(values, _LEAST_NOISE * values[-1]) if values[-1] > 0 else np.ones(len(values))
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


def _blocks(rows: Array, length: int = BLOCK) -> list[Array]:
    """Rows in blocks."""
    return [rows[start : start + length] for start in range(0, len(rows), length)]


def _joined(parts: list[Points]) -> Points:
    """Functionals at the points of all parts, in order."""
    noise = Noise(*map(np.concatenate, zip(*(part.noise for part in parts), strict=True)))
    rows = [(part.value, part.shift, part.turned, part.expected, part.mismatch, part.magnified) for part in parts]
    value, shift, turned, *others = map(np.concatenate, zip(*rows, strict=True))
    return Points(value, shift, turned, noise, *others)


@lru_cache(maxsize=16)  # a forecast asks again and again with another δ or size
def _workings(surrogate: Surrogate, evidence: Evidence, scaled: bool) -> Workings:
    return Workings(surrogate, evidence, scaled=scaled)


def workings(surrogate: Surrogate, evidence: Evidence, *, forecast: bool = False) -> Workings:
    """Everything that does not depend on δ, made once."""
    return _workings(surrogate, evidence, forecast and surrogate.design is not None)


# How δ is spent: the band decides, the size of the error can do with little; regret only where the expert switches.
SHARES = {"band": 0.85, "size of the error": 0.15}
SWITCHING_SHARES = {"band": 0.8, "size of the error": 0.15, "regret": 0.05}
# How much the noise of u may be amplified by itself, and the condition of I − K̂; beyond them nothing is bounded.
_MOST_GROWTH, _MOST_CONDITION = 0.95, 1e8
_LEAST_NOISE = 1e-9  # of the largest eigenvalue of second moments by which noise is whitened
# Slopes are chosen for these multiples of the second moments and of the length of u in the training data.
_CAUTION, _CAUTION_OF_LENGTH = 1.1, 1.5
_OBSERVED = 2.5  # the observed error of V̂ at points, in standard deviations of its noise: for forecasts


@dataclass(frozen=True, eq=False)
class Band(Record):
    """|(P_b − P_a)V − curve| ≤ its radius at every state, V the expert's value under the true dynamics.

    Below the curve and above it (P_b − P_a)V is bounded separately: side 0 is what is read to prove b better than a,
    side 1 to prove a better than b.

    Attributes:
        pair: (b, a), b < a.
        columns: φ.
        curve: the corrected estimate in the harmonics of the columns ``[k]``.
        estimation: the band of V̂ at the spread points, below and above ``[2, N_1, …, N_d]``.
        second_order: what the error of V̂ adds there.
        tail: what lies outside the columns.
        floating: rounding.

    :meta private:
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
        return np.asarray(frame(self.columns).values(states) @ self.curve)

    def losses(self, states: Array, side: int) -> dict[str, Array]:
        """What the radius on one side is made of at states ``[n, d]``, by name ``[n]``."""
        return self._losses(frame(self.columns).blended(self._numbers(side), states), np.zeros(()), side)

    def losses_in_cells(self, cells: CellAxes, side: int) -> dict[str, Array]:
        """The same within cells ``[n_1, …, n_d]``."""
        harmonics = frame(self.columns)
        blended = harmonics.blended_on_axes(self._numbers(side), cells.axes)
        return self._losses(blended, harmonics.drift(cells), side)

    def everywhere(self, side: int) -> dict[str, float]:
        """The same over all states at once: the largest radius at a point, and what lies between points."""
        total = self.estimation + self.second_order
        worst = np.unravel_index(int(total[side].argmax()), total[side].shape)
        most, swing = self._most(side)
        return {
            "estimation": float(self.estimation[side][worst]),
            "grid": most - float(total[side][worst]) if np.isfinite(swing) else 0.0,
            "second order": float(self.second_order[side][worst]),
            "truncation tail": self.tail,
            "floating point": self.floating,
        }

    def _numbers(self, side: int) -> Array:
        total = self.estimation + self.second_order
        if not np.isfinite(total).all():  # no number is used
            return np.ones((5, *total.shape[1:]))
        both, apart = total.sum(axis=0), total[side] - total[1 - side]
        return np.stack([np.ones_like(both), self.estimation[side], self.second_order[side], both, apart])

    def _most(self, side: int) -> tuple[float, float]:
        """The largest radius on one side over all states, and how far the error is from a middle value at most.

        At the points the error lies between −A and B, hence within f(A + B)/2 of (B − A)/2 everywhere, f the inflation.
        """
        total = self.estimation + self.second_order
        below, above = float(total[side].max()), float(total[1 - side].max())
        factor = inflation(frame(self.columns).basis, *total.shape[1:])
        swing = factor * (below + above) / 2
        return swing + (below - above) / 2, swing

    def _losses(self, blended: Array, moves: Array, side: int) -> dict[str, Array]:
        (weight, estimation, second, both, _), (*_, apart) = blended
        nothing, (most, swing) = np.zeros(weight.shape), self._most(side)
        here = estimation / weight, second / weight
        if not np.isfinite(swing):
            here, between = (nothing + np.inf, nothing + np.inf), nothing
        else:
            # Weights that are negative meet the other side of the band; or the largest radius anywhere will do.
            between = np.minimum((both + apart) / 2, most) + moves * swing - here[0] - here[1]
        return {
            "estimation": here[0],
            "grid": np.maximum(between, 0.0),
            "second order": here[1],
            "truncation tail": nothing + self.tail,
            "floating point": nothing + self.floating,
        }

    def radius(self, states: Array, side: int) -> Array:
        """All of it, at states ``[n]``."""
        return np.asarray(sum(self.losses(states, side).values()))


@dataclass(frozen=True, eq=False)
class Bands(Record):
    """What holds with probability 1 − δ, all at once.

    Attributes:
        pairs: one band for each pair of actions of which the expert uses one.
        visits: sup over states and actions of P_c of each tent ``[w]``: how often the switches are met at most.
        span: how far apart the expert's value is at least at two states; 0 if that is not bounded.

    :meta private:
    """

    pairs: tuple[Band, ...]
    visits: Array
    span: float


class _Size(NamedTuple):
    """Bounds on the error u of V̂, and on the noise Nν(V) behind it.

    Attributes:
        centre: c̃, observed ``[m − 1]``.
        inverse: (I − K̂)⁻¹ ``[m − 1, m − 1]``.
        noise: ρ ≥ ‖Nν(V)‖.
        length: κ ≥ ‖u‖ in the functions f_i; pointwise κ ≥ h_u, half the span of u.
        stretch: the norm of the inverse, for forecasts.
        white: bounds on the whitened noise of each action's columns, of V̂ and of a fixed function of length 1
            ``[A, 2]``; ``[0, 2]`` where no weights were fixed before.
    """

    centre: Array
    inverse: Array
    noise: float
    length: float
    stretch: float
    white: Array

    def moment(self, noise: Noise) -> Array:
        """ΣZ(V)² at most ``[n]``, from second moments of V̂, of the f_i and between them."""
        value, operator = np.maximum(noise.value, 0.0), self.length**2 * np.maximum(noise.operator, 0.0)
        apart = (np.sqrt(value) + np.sqrt(operator)) ** 2
        if noise.cross.shape[1] == 0:
            return np.asarray(apart)
        turned = np.linalg.norm(noise.cross @ self.inverse, axis=1)
        together = value + 2 * (noise.cross @ self.centre + self.noise * turned) + operator
        return np.asarray(np.minimum(apart, np.maximum(together, 0.0)))


def shares_of(surrogate: Surrogate) -> dict[str, float]:
    """How δ is split, by name: shares that add up to 1."""
    return SHARES if surrogate.constant else SWITCHING_SHARES


def bands(
    surrogate: Surrogate,
    evidence: Evidence,
    *,
    delta: float,
    tail: float,
    growth: float | None = None,
    only_pairs: bool = False,
) -> Bands:
    """With probability 1 − δ over the fresh data, (P_b − P_a)V lies within its band for every pair and every state.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        delta: the probability of failure.
        tail: τ.
        growth: for a forecast: the multiple of the present amount of data, with the same means. For planning only.
        only_pairs: leave visits and span out.
    """
    work = workings(surrogate, evidence, forecast=growth is not None)
    beyond = work.gamma * tail < 1  # beyond it nothing is bounded, not even V
    tail, counts = tail if beyond else 0.0, surrogate.mesh.counts
    parts = {name: share * delta for name, share in shares_of(surrogate).items()}
    more = 1.0 if growth is None else growth
    size = _size(work, parts["size of the error"], tail, growth)
    expected = _expected(work, parts["size of the error"], more)
    pairs = []
    for (pair, points), shares in zip(work.compared.items(), surrogate.shares, strict=True):
        L = -np.log(parts["band"] * shares.reshape(2, -1))
        estimation, second = _radii(size, points, expected, L, more, growth is None)
        rise = inflation(work.frame.basis, *counts)
        outside = _outside(work, tail, rise * float(points.magnified.max()), direct=2.0)
        second = second + (0.0 if size is None else size.length * work.radius[1] * outside)
        pairs.append(
            Band(
                pair=pair,
                columns=surrogate.columns,
                curve=_curve(work, *pair, size if growth is None else None),
                estimation=estimation.reshape(2, *counts),
                second_order=second.reshape(2, *counts),
                tail=work.radius[0] * outside if beyond else float("inf"),
                floating=_rounding(work, float((estimation + second).max()), more),
            )
        )
    visits, span = np.ones(len(surrogate.widths)), 0.0
    if not surrogate.constant and beyond and not only_pairs:
        visits = _visits(work, parts["regret"] / 2, tail, growth)
        span = _span(work, size, expected, parts["regret"] / 2, tail, more, growth is None)
    return Bands(tuple(pairs), visits, span)


def _size(work: Workings, delta: float, tail: float, growth: float | None) -> _Size | None:
    """How large u can be; None where operators are known too inaccurately.

    ‖Nν(V)‖ ≤ α + β‖u‖, α for V̂ and β for one fixed function of length 1, and ‖u‖ ≤ ‖c̃‖ + ‖(I − K̂)⁻¹‖‖Nν(V)‖.
    """
    error, m = work.error, len(work.error.value)
    more, L = 1.0 if growth is None else growth, _size_term(work, delta)
    white = np.array([_norms(noise.grown(1.0, more**0.5), L, conditional=True)[0] for noise in work.white])
    white = white.reshape(-1, 2)
    if m == 0:  # one column: u is a constant
        return _Size(np.zeros(0), np.zeros((0, 0)), 0.0, 0.0, 0.0, white)
    observed = growth is None
    if observed and work.inverse is None:
        return None
    centre: Array = work.centre if observed else np.zeros(m)
    inverse: Array = work.inverse if observed and work.inverse is not None else np.eye(m)
    if work.s.pointwise:
        bounds = _at_points(work, delta, tail, more, observed)
        return None if bounds is None else _Size(centre, inverse, *bounds, white)
    ahead, _ = _norms(error.noise.grown(more, more), L, conditional=work.is_fixed)
    alpha, beta = np.array(ahead) + error.mismatch @ white / more + _outside(work, tail, error.magnified) * work.radius
    if observed:
        start, stretch = float(np.linalg.norm(centre)), float(np.linalg.norm(inverse, 2))
    else:  # as large as noise makes them
        start, stretch = _forecast_sizes(error.noise.trace[0] / more, error.noise.top[1] / more)
        inverse = stretch * inverse
    noise = _solved(float(alpha), float(beta), start, stretch)
    return None if noise is None else _Size(centre, inverse, noise, start + stretch * noise, stretch, white)


def _at_points(
    work: Workings, delta: float, tail: float, more: float, observed: bool
) -> tuple[float, float, float] | None:
    """ρ and κ of an error that is bounded at points, and the norm of (I − K̂)⁻¹; None where h_u is not bounded.

    h_u ≤ h₁ + κ₁h_u: the noise of u at a point is that of a fixed function within h_u of a constant (Hoeffding).

    Args:
        work: for a pointwise surrogate.
        delta: half of it for the vector Nν(V), half for the points.
        tail: τ.
        more: the multiple of the present amount of data.
        observed: False for what training data let us expect.
    """
    vector, points, factor = work.error.noise.grown(more, more), work.at_points, work.frame.coarse.factor
    L, each = log_term(2 * (MIXED_EVENTS + 1), delta), log_term(8 * len(points.value), delta)
    noise = points.noise.grown(more)
    slope = noise.slope(points.expected / more, noise.largest[:, 0], each)
    likely = vector.expected_trace[0], vector.expected_top[0], vector.longest[0]
    scale = best_scale(*likely, L, vector.size)
    beta = float(hoeffding_norm(vector.trace[1], vector.top[1], L))
    if observed:
        terms = vector.trace[0], vector.top[0], vector.longest[0]
        noisy, turned, stretch = noise, points.turned, 1.0
        offset = float(np.ptp(points.value + points.shift)) / 2
    else:  # as large as noise makes them; the residuals of the f_i have a mean square length of 1
        # Slopes follow from this: no sum over fresh residuals may enter, so that the powers are left out.
        terms, noisy = likely, noise._replace(value=points.expected / more, powers=noise.powers[:, :0])
        _, stretch = _forecast_sizes(likely[0], vector.top[1])
        turned, offset = stretch * np.sqrt(noise.operator), _OBSERVED * float(np.sqrt(noisy.value.max()))
    # What lies outside the columns is magnified alike for V̂ and for u, which is within h_u of a constant.
    vector_tail, tails = _outside(work, tail, work.error.magnified), _outside(work, tail, points.magnified)
    alpha = float(mixed_norm(*terms, L, vector.size, scale)) + vector_tail * work.radius[0]
    beta += vector_tail
    first = noisy.radius(each, slope).max(axis=0) + alpha * turned + tails * work.radius[0]
    share = factor * float((np.sqrt(2 * each * noise.operator) + beta * turned + tails).max())
    if share >= _MOST_GROWTH:
        return None
    size = factor * (offset + float(first.max())) / (1 - share)
    return alpha + beta * size, size, stretch


def _size_term(work: Workings, delta: float) -> float:
    """L of the events about lengths of vectors: that of u, and that of every action's columns."""
    return log_term(2 * MIXED_EVENTS * (1 + len(work.white)), delta)


def _solved(alpha: float, beta: float, start: float, stretch: float) -> float | None:
    """ρ with ρ = α + β(start + stretch·ρ); None where there is none."""
    return (alpha + beta * start) / (1 - beta * stretch) if beta * stretch < _MOST_GROWTH else None


def _forecast_sizes(trace: float, top: float) -> tuple[float, float]:
    """‖c̃‖ and ‖(I − K̂)⁻¹‖ if c and K̂ are noise with these second moments."""
    stretch = 1 / (1 - min(2 * float(np.sqrt(top)), _MOST_GROWTH))
    return stretch * float(np.sqrt(trace)), stretch


def _norms(noise: Lengths, L: float, *, conditional: bool) -> tuple[list[float], list[float]]:
    """Bounds on the noise of a vector for V̂ and for a fixed function of length 1: observed, and expected.

    Conditional: rows may depend on earlier ones.
    """
    observed, expected, m = [], [], noise.size
    for trace, top, longest, likely_trace, likely_top in zip(*noise[1:], strict=True):
        likely = likely_trace, likely_top, longest
        rates = None
        if conditional:
            rates = best_rate(likely_trace, longest, L), best_rate(likely_top, longest, L + np.log(m))
        scale = best_scale(*likely, L, m, rates)
        expected.append(float(mixed_norm(*likely, L, m, scale, rates)))
        observed.append(float(mixed_norm(trace, top, longest, L, m, scale, rates)))
    return observed, expected


def _expected(work: Workings, delta: float, more: float) -> Array:
    """1 and the length of u, as training data and the fresh states let us expect it ``[2]``.

    Where weights were fixed before, as training data alone let us expect it.
    """
    error = work.error
    if not len(error.value):
        return np.array([1.0, 0.0])
    if work.s.pointwise:
        bounds = _at_points(work, delta, 0.0, more, False)
        return np.array([1.0, 0.0 if bounds is None else _CAUTION_OF_LENGTH * bounds[1]])
    noise = error.noise.grown(more, more)
    _, (alpha, beta) = _norms(noise, _size_term(work, delta), conditional=work.is_fixed)
    start, stretch = _forecast_sizes(noise.expected_trace[0], noise.expected_top[1])
    length = _solved(alpha, beta, start, stretch)
    return np.array([1.0, _CAUTION_OF_LENGTH * (start + stretch * (alpha if length is None else length))])


def _radii(
    size: _Size | None, points: Points, expected: Array, L: Array, more: float, observed: bool
) -> tuple[Array, Array]:
    """The band of V̂ at points, and what u adds to it, for several L ``[s, n]`` each.

    Args:
        size: of u; None if it is not bounded.
        points: the functionals.
        expected: 1 and the length of u that training data let us expect ``[2]``.
        L: of the events ``[s, n]``, e^−L each.
        more: the multiple of the present amount of data.
        observed: False for a forecast.
    """
    noise = points.noise.grown(more)
    slope = noise.slope(points.expected / more, noise.largest @ expected, L)
    estimation = noise.radius(L, slope)[: len(L)]
    if size is None:
        return estimation, np.full(estimation.shape, np.inf)
    turned = points.turned if observed else size.stretch * np.sqrt(noise.operator)  # as large as noise makes it
    total = noise.radius(L, slope, size.length, size.moment(noise))[: len(L)]
    estimation = np.minimum(estimation, total)
    second = total - estimation + size.noise * turned
    if len(size.white):
        value, operator = (points.mismatch / more @ size.white).T
        estimation, second = estimation + value, second + size.length * operator
    return estimation, second


def _curve(work: Workings, b: int, a: int, size: _Size | None) -> Array:
    """(P̂_b − P̂_a)V̂ and what was observed of its error, as an expansion in the harmonics; without a size V̂'s alone."""
    s = work.s
    curve = s.fits[b] - s.fits[a]
    if size is None:
        return curve
    sums = work.e.residuals + np.einsum("i,aik->ak", size.centre, work.function_sums)
    errors = np.einsum("aij,aj->ai", work.precision, sums)
    lift = work.gamma * (s.Z[b] - s.Z[a]).T @ work.resolvent.T @ errors[list(s.used)].ravel()
    return np.asarray(curve + errors[b] - errors[a] + lift)


def _outside(work: Workings, tail: float, magnified: Array | float, direct: float = 0.0) -> Any:
    """What the tail adds to functionals of a V with values between −1 and 1, if γτ < 1.

    Args:
        work: for the discount.
        tail: τ.
        magnified: Ω, by how much the functionals magnify what the columns miss.
        direct: how often what the columns miss enters as it is.
    """
    return tail * (direct + (1 + work.gamma) * magnified) / (1 - work.gamma * tail)


def _span(
    work: Workings,
    size: _Size | None,
    expected: Array,
    delta: float,
    tail: float,
    more: float,
    observed: bool,
) -> float:
    """V at one state less V at another: V̂ there, corrected, less the same losses as a band, rounding among them."""
    if size is None:
        return 0.0
    points = work.drop
    estimation, second = _radii(size, points, expected, np.full((1, 1), log_term(1, delta)), more, observed)
    outside = _outside(work, tail, float(points.magnified[0]), direct=2 * work.gamma)
    lost = float(estimation[0, 0] + second[0, 0] + outside * (work.radius[0] + size.length * work.radius[1]))
    lost += _rounding(work, lost, more)
    corrected = work.s.dropped + (float(points.value[0] + points.shift[0]) if observed else 0.0)
    return max(0.0, corrected - lost)


def _visits(work: Workings, delta: float, tail: float, growth: float | None) -> Array:
    """sup over states and actions of P_c of every tent ``[w]``."""
    mesh, most, more = work.frame.visited, np.zeros(len(work.s.widths)), 1.0 if growth is None else growth
    functions = work.A * max(len(most), 1)
    L = log_term(EVENTS * functions * len(mesh.states), delta)
    for visit in work.visits:
        curve = work.s.tent_fits[visit.action, visit.tent] + (visit.curve if growth is None else 0.0)
        if visit.noise is None:
            radius = empirical_bernstein(visit.observed / more, visit.largest / more, L)
        else:
            L = log_term(functions * (2 * len(mesh.states) + MIXED_EVENTS), delta)
            slope = best_slope(_CAUTION * visit.expected / more, visit.largest / more, L)
            ((length,), _) = _norms(visit.noise.grown(1.0, more**0.5), L, conditional=True)
            radius = sloped(visit.observed / more, visit.largest / more, L, slope) + visit.mismatch / more * length
        above = mesh.factor * float(radius.max())
        beyond = tail * work.lebesgue[visit.action] / 2 + _rounding(work, above, more, scale=2.0)
        most[visit.tent] = max(most[visit.tent], work.frame.peak(curve) + above + beyond)
    return np.clip(most, 0.0, 1.0)


def _rounding(work: Workings, radius: float, growth: float, scale: float | None = None) -> float:
    """What floating point can have done to a curve and to a radius: of V̂, or of a function of a scale by itself.

    Generous, not a proof.
    """
    s, unit = work.s, sum_error(float(work.e.counts.max()) * growth, max(work.frame.wide))
    if scale is None:  # V̂ enters with its size, not its span: a large constant costs digits
        size = s.high - s.low + max(abs(s.low), abs(s.high))
        scale = size * float(np.abs(work.resolvent).sum(axis=1).max())
    solved = unit * work.k**2 * work.condition * scale
    lifted = unit * work.k * 2**work.frame.dimension * work.spread
    if s.powers:
        lifted *= 1 + 2 * work.spread
    return float(solved + lifted * radius) if np.isfinite(radius) else float(solved)
