"""Functionals of regression errors: what evidence says of each, before any inequality is asked.

A functional is a row of weights ``[A, k]``: applied to a function f it is Σ_c ⟨weights_c, Σ x E_c(f)⟩, a sum over fresh
states of Z(f) = Σ_c (weights_c·x) E_c(f). `Workings` computes, for V̂ and for the functions f_1, …, f_{m−1} that its
error u is made of, the observed sums, the observed second moments and the largest terms: neither δ nor τ enters.

The error u is bounded in one of two ways, which training data choose: by its length in the f_i, whose observed second
moments are then needed, or at points (`Surrogate.pointwise`), as a function within h_u of a constant.

Where rows may depend on each other, bounds need weights that were fixed before (`Surrogate.design`). The noise of a
functional is then bounded with these weights, and what the weights of the regression differ by is multiplied by a bound
on the noise of all columns of an action, whitened: equation (9) of docs/notes/certificate.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from math import factorial, prod
from typing import NamedTuple

import numpy as np

from certirl.ground.domain import Array
from certirl.proof.sums import Evidence
from certirl.proof.surrogate import Surrogate

_MOST_CLOSE = 250_000  # numbers up to which largest terms are looked for state by state at every point
_MOST_CONDITION = 1e8  # of I − K̂; beyond it nothing is bounded
_LEAST_NOISE = 1e-9  # of the largest eigenvalue of second moments by which noise is whitened
BLOCK = 1024  # points worked on at once


class Noise(NamedTuple):
    """What bounds the noise of n functionals by (5), (5') and (5'')."""

    value: Array  # observed second moments ΣZ(V̂)² ``[n]``
    operator: Array  # bounds on ΣZ(u)² for u of size 1 ``[n]``: S₀ = Σ_i ΣZ(f_i)²; pointwise S₁, from Σ x xᵀ alone
    cross: Array  # ΣZ(V̂)Z(f_i) ``[n, r]``
    largest: Array  # bounds on |Z(V̂)| and on |Z(u)| for u of size 1 ``[n, 2]``
    powers: Array  # observed ΣZ(V̂)³ and ΣZ(V̂)⁴ ``[n, 2]``; ``[n, 0]`` where they were not summed
    expected: Array  # ΣZ(V̂)² as training data let us expect it ``[n]``

    def grown(self, growth: float) -> Noise:
        """For ``growth`` times the data: weights are inverse to their amount."""
        powers = self.powers / growth ** np.arange(2, 2 + self.powers.shape[1])
        value, operator, cross, largest, _, expected = self
        return Noise(value / growth, operator / growth, cross / growth, largest / growth, powers, expected / growth)

    def likely(self) -> Noise:
        """With the second moments that training data let us expect."""
        return self._replace(value=self.expected, powers=self.powers[:, :0])


class Points(NamedTuple):
    """Functionals at points."""

    value: Array  # observed ΣZ(V̂ + c̃) ``[n]``
    turned: Array  # the length of (I − K̂)⁻ᵀ(ΣZ(f_i))_i ``[n]``
    noise: Noise  # as above
    # by (9) the length of weights of the regression less fixed ones, times the noise ``[n, A]``; ``[n, 0]`` where no
    # weights were fixed before
    mismatch: Array
    magnified: Array  # Ω, by how much the functionals can magnify what the columns miss ``[n]``: Lemma 1


class Lengths(NamedTuple):
    """What bounds the length of the noise of a vector by Lemma 6."""

    size: int  # its entries
    # of the second moments of the vector, for V̂ and for the f_i together ``[2]``; pointwise, instead of the latter, of
    # the matrix H of Lemma 9 for every function between −1 and 1
    trace: Array
    top: Array  # their largest eigenvalues ``[2]``
    longest: Array  # bounds on the length of a term ``[2]``
    # expected_trace, expected_top: as training data let us expect them ``[2]``
    expected_trace: Array
    expected_top: Array

    def grown(self, moments: float, ranges: float) -> Lengths:
        """With second moments and largest terms divided by these factors."""
        trace, top, longest, likely_trace, likely_top = self[1:]
        return Lengths(
            self.size, trace / moments, top / moments, longest / ranges, likely_trace / moments, likely_top / moments
        )

    def likely(self) -> Lengths:
        """With the second moments that training data let us expect."""
        return self._replace(trace=self.expected_trace, top=self.expected_top)


class Error(NamedTuple):
    """The functionals that give the coefficients of û in the f_i, as one vector."""

    value: Array  # observed, of V̂ ``[m − 1]``
    matrix: Array  # K̂: column i is the vector for f_i ``[m − 1, m − 1]``
    noise: Lengths  # of the vector
    mismatch: Array  # as for `Points`, the largest over all directions ``[A]``, or ``[0]``
    magnified: float  # Ω_N, by how much the vector can magnify what the columns miss


class Visits(NamedTuple):
    """Of one action and one tent, at points ``[n]`` each, in the order of the harmonics the curve ``[k]``."""

    # action, tent: their numbers
    action: int
    tent: int
    curve: Array  # observed
    observed: Array  # second moments
    largest: Array  # the largest terms
    expected: Array  # second moments, from training data alone
    mismatch: Array  # as for `Points`; empty where no weights were fixed before
    noise: Lengths | None  # of the whitened vector; None where no weights were fixed before

    def grown(self, growth: float) -> Visits:
        """For ``growth`` times the data."""
        observed, largest, expected, mismatch = (part / growth for part in self[3:7])
        noise = None if self.noise is None else self.noise.grown(1.0, growth**0.5)
        return Visits(*self[:3], observed, largest, expected, mismatch, noise)


class Workings:
    """What evidence says of the functionals behind all inequalities of one surrogate.

    Attributes:
        gram: Σ x xᵀ ``[A, k, k]``.
        precision: their inverses ``[A, k, k]``.
        resolvent: Q = (I − γT̂)⁻¹ ``[m, m]``.
        leverage: sup of xᵀ(Σ x xᵀ)⁻¹x over the states ``[A]``.
        lebesgue: Λ_c, by how much the regression of a fixed function can magnify what the columns miss ``[A]``.
        spread: the largest leverage times the number of transitions.
        condition: the largest condition number of Σ x xᵀ.
        function_sums: Σ x E_c(f_i), i ≥ 1 ``[A, m − 1, k]``.
        radius: h_V and r_f, how far V̂ and (f_i)_i are from a middle at most ``[2]``.
        error: the functionals of û.
        is_fixed: whether weights were fixed before, as rows may depend on each other.
        design: Σ x xᵀ from which the weights of bounds come: G0, expected, or G, observed ``[A, k, k]``.
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
        moments = dict(zip(self._pairs, self._moments[:, self._kinds], strict=True))  # expected Σ x xᵀ Y_cY_d
        self._roots = [_root(moments[c, c]) for c in range(self.A) if self.is_fixed]
        self.white = [self._lengths_of({c: np.linalg.inv(root)}) for c, root in enumerate(self._roots)]
        self.error = self._of_error()

    def _suprema(self) -> None:
        """Over all states: leverages, and the sizes of V̂, of the f_i and of their fits (section 8)."""
        harmonics, s, dense = self.frame, self.s, self.frame.dense_values
        self.leverage = self._leverages(self.precision)
        self.lebesgue = 1 + np.sqrt(self.e.counts * self.leverage)
        self.spread = float(((self.lebesgue - 1) ** 2).max())
        self._expected_leverage = self.leverage
        if self.is_fixed:
            self._expected_leverage = self._leverages(np.linalg.inv(self.design))
            self.spread = max(self.spread, float((self.design[:, 0, 0] * self._expected_leverage).max()))
        self._fits = (s.fits @ dense.T - (s.low + s.high) / 2)[:, None]  # [A, 1, q]
        if s.pointwise:  # u is compared with a constant, the middle of its range
            size, fits = 1.0, np.zeros((self.A, 1, len(dense)))
        else:  # at each state f_i is an average of its polynomials, one for every used action
            values = s.mix[1:].reshape(-1, len(self._used), self.k) @ dense.T  # [m − 1, U, q]
            middle = (values.min(axis=(1, 2)) + values.max(axis=(1, 2))) / 2
            away, fits = values - middle[:, None, None], s.mix[1:] @ s.Z @ dense.T - middle[:, None]  # [A, m − 1, q]
            # Along every direction a vector of expansions is an expansion, so that its length is bounded as one.
            size = harmonics.dense.factor * float(np.linalg.norm(away, axis=0).max(initial=0.0))
        self.radius = np.array([(s.high - s.low) / 2, size])
        kinds = (self._fits, fits)
        self._lengths = np.stack([np.linalg.norm(kind, axis=1) for kind in kinds])  # [2, A, q]
        self._gaps = {
            (b, a): np.stack([np.linalg.norm(kind[b] - kind[a], axis=0) for kind in kinds]) for b, a in s.compared
        }  # [2, q]

    def _leverages(self, inverses: Array) -> Array:
        """sup of xᵀ(inverse)x over the states ``[A]``."""
        most = np.zeros(self.A)
        for states in _blocks(self.frame.fine.states):
            fine = self.frame.values(states)
            most = np.maximum(most, [np.einsum("ni,ni->n", fine @ inverse, fine).max() for inverse in inverses])
        return np.asarray(self.frame.fine.double * most)

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
        """What the data say about P_c of every tent, at the points `Frame.visited` (T3)."""
        values, moments = self.frame.values(self.frame.visited.states), self.frame.lifted(self.e.visit_moments)
        dense, double, visits = self.frame.dense_values, self.frame.dense.double, []
        every = values @ self.precision
        for c, weights in enumerate(self.fixed(every)):
            fits = dense @ self.s.tent_fits[c].T  # [q, w]
            reach = np.maximum(1 - fits, fits).T
            swings = (np.abs(rows @ dense.T) for rows in _blocks(weights, BLOCK // 4))
            largest = [np.array([double * (swing * sizes).max(axis=1) for sizes in reach]) for swing in swings]
            length, mismatch = np.zeros(0), np.zeros(0)
            if self.is_fixed:
                root = _root(self.design[c])
                length = _form(weights, self.design[c])
                mismatch = np.linalg.norm((every[c] - weights) @ root, axis=1)
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
        """G⁻¹ω(s) of (1), behind (P_b − P_a)V, at states with these harmonics ``[n, k]``: ``[A, n, k]``."""
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

        ``pair`` are the actions that they belong to, if they do; with ``close`` the largest terms are looked for state
        by state.
        """
        active = [c for c in range(self.A) if weights[c].any()] or [0]
        fixed, kinds = self.fixed(weights), self._kinds
        forms, lengths = self._forms(fixed, active), {c: self._squares(fixed[c], c) for c in active}
        squares = np.maximum(forms[:, : 2 * kinds], 0.0)  # negative by rounding alone, where paired noise cancels
        noise = Noise(
            value=squares[:, 0],
            operator=self._plain(lengths) if self.s.pointwise else squares[:, 1],
            cross=forms[:, 2 * kinds :],
            largest=self._largest(fixed, lengths, pair, close),
            powers=self._powers(fixed, active),
            expected=squares[:, kinds],
        )
        observed, turned = self.observed(weights), np.full(weights.shape[1], np.inf)
        if self.inverse is not None:
            turned = np.linalg.norm(observed @ self.inverse, axis=1)
        apart = [np.linalg.norm((weights[c] - fixed[c]) @ root, axis=1) for c, root in enumerate(self._roots)]
        return Points(
            value=np.einsum("cnk,ck->n", weights, self.e.residuals) + observed @ self.centre,
            turned=turned,
            noise=noise,
            mismatch=np.array(apart).reshape(len(apart), len(turned)).T,
            magnified=sum(np.sqrt(self.e.counts[c] * _form(weights[c], self.gram[c])) for c in active),
        )

    def observed(self, weights: Array) -> Array:
        """ΣZ(f_i), i ≥ 1, of functionals ``[A, n, k]``: ``[n, m − 1]``."""
        return sum((weights[c] @ self.function_sums[c].T for c in range(self.A)), np.zeros(()))

    def _plain(self, lengths: dict[int, Array]) -> Array:
        """S₁ of (5') ``[n]``: ΣZ(u)² is at most h²S₁ for every u within h of a constant."""
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

    def fixed(self, weights: Array) -> Array:
        """The weights that bounds use for functionals ``[A, n, k]``: the first sum of (9)."""
        return weights @ self._turn if self.is_fixed else weights

    def _of_error(self) -> Error:
        weights = self.of_error(np.linalg.inv(self.s.mix).T[1:])
        fixed = self.fixed(weights)
        return Error(
            value=np.einsum("cnk,ck->n", weights, self.e.residuals),
            matrix=self.observed(weights),
            noise=self._lengths_of({c: fixed[c] for c in self._used}),
            mismatch=np.array([norm_of((weights[c] - fixed[c]) @ root) for c, root in enumerate(self._roots)]),
            magnified=sum(
                float(np.sqrt(self.e.counts[c])) * norm_of(weights[c] @ _root(self.gram[c])) for c in self._used
            ),
        )

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
        """(5''): ΣZ(V̂)³ and ΣZ(V̂)⁴ of functionals with these weights ``[A, n, k]``: ``[n, 2]``, or ``[n, 0]``."""
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

        ``sizes`` are |w_c·x| for each action ``[n, q]``, ``both`` |(w_b + w_a)·x| for the pair (b, a), or None, ``[n,
        q]``; ``lengths`` those of the fits of V̂ and the f_i ``[2, A, q]``, ``gaps`` of the differences of two fits
        ``[2, q]``.
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


def norm_of(matrix: Array) -> float:
    """The largest singular value; 0 of a matrix without rows."""
    return float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0


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
    others = (np.concatenate([getattr(part, name) for part in parts]) for name in Points._fields if name != "noise")
    value, turned, mismatch, magnified = others
    return Points(value, turned, noise, mismatch, magnified)


@lru_cache(maxsize=16)  # a forecast asks again and again with another δ or size
def _workings(surrogate: Surrogate, evidence: Evidence, scaled: bool) -> Workings:
    return Workings(surrogate, evidence, scaled=scaled)


def workings(surrogate: Surrogate, evidence: Evidence, *, forecast: bool = False) -> Workings:
    """Everything that does not depend on δ, made once."""
    return _workings(surrogate, evidence, forecast and surrogate.design is not None)
