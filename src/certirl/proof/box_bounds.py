"""The inequalities behind a certificate on a box: from a surrogate and evidence to a lower bound on every D_a(s).

As in `bounds`, D_a = D̂_a + [first order](V) + [first order](u) with the same linear functional of the errors P_c − P̂_c
in both brackets: applied to V it is a mean of numbers, applied to the unknown u = (I − γP_π)⁻¹e it is a mean of vectors
times u. Vectors are bounded by their length, which costs nothing for their number, and between the points of a mesh by
`box_products.inflation`. docs/notes/boxes.md has statements and proofs.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from certirl.functions.box_products import Mesh, counts_of, dense_mesh, half_steps, inflation, level
from certirl.functions.boxes import ProductBasis
from certirl.functions.extrema import minimum
from certirl.functions.inequalities import (
    EVENTS,
    SELF_EVENTS,
    empirical_matrix_bernstein,
    empirical_vector_bernstein,
    log_term,
    self_bounded,
)
from certirl.ground.domain import Array
from certirl.proof.bounds import BAND_SHARE, LowerBound
from certirl.proof.box_evidence import LONGEST, SHORTEST, BoxEvidence, lifted_all
from certirl.proof.evidence import Surrogate

MOST_POINTS = 30_000  # of the band
MOST_DENSE = 40_000  # of suprema that enter ranges only
LARGEST_STEP = 0.95  # of u towards itself: beyond this there is too little data


class _Rival:
    """What one rival's bounds are made of, at the points of the band."""

    def __init__(self, work: _Workings, rival: int) -> None:
        s, e, pi = work.s, work.e, work.expert
        x, P, G = work.points, work.precision, work.gram
        p = (x + s.discount * x @ work.F[rival].T) @ P[pi]
        q = x @ P[rival]
        fit, own, other = work.reach[pi], work.length[pi], work.length[rival]
        if e.paired:
            both, apart = work.contrast(rival)
            root = work.leverage[pi] ** 0.5
            weights = [root * _norms(w, G[pi]) for w in (q, p - q)]
            self.bound = weights[0] * both + weights[1] * fit
            self.bound_of_vectors = weights[0] * apart + weights[1] * own
        else:
            mine, theirs = (work.leverage[c] ** 0.5 * _norms(w, G[c]) for c, w in ((pi, p), (rival, q)))
            self.bound = np.maximum(mine * fit, theirs * work.reach[rival])
            self.bound_of_vectors = np.maximum(mine * own, theirs * other)
        self.observed, self.observed_vectors = (
            _form(p, sums[pi, pi], p) + _form(q, sums[rival, rival], q) - 2 * _form(p, sums[pi, rival], q)
            for sums in (work.spread, work.wobble)
        )
        self.drift = np.linalg.norm(p @ e.drift[pi].T - q @ e.drift[rival].T, axis=1)
        correction = [P[c] @ e.surprise[c] for c in (pi, rival)]
        self.guess = work.fits[pi] - work.fits[rival]
        self.shift = correction[0] - correction[1] + s.discount * work.F[rival].T @ correction[0]


class _Workings:
    """Everything that does not depend on δ or τ; numbers are in level functions."""

    def __init__(self, surrogate: Surrogate, evidence: BoxEvidence) -> None:
        columns = surrogate.columns
        assert isinstance(columns, ProductBasis)
        self.s, self.e, self.expert, self.level = surrogate, evidence, surrogate.expert, level(columns)
        self.Z, self.fits = self.level.matrix(surrogate.Z), self.level.coefficients(surrogate.fits)
        self.gram, self.spread, self.wobble = (
            lifted_all(self.level, sums) for sums in (evidence.gram, evidence.spread, evidence.wobble)
        )
        self.precision, self.condition = np.linalg.inv(self.gram), condition(self.gram)
        T = self.Z[self.expert]
        self.resolvent = np.linalg.inv(np.eye(columns.size) - surrogate.discount * T)
        self.F = {a: self.resolvent @ (T - self.Z[a]) for a in surrogate.rivals}
        mesh = Mesh(columns, band_counts(columns, len(surrogate.rivals)))
        self.points, self.factor = self.level.values(mesh.states), mesh.factor
        self._minima: dict[bytes, tuple[Array, Array, float]] = {}
        self._suprema(dense_mesh(columns, MOST_DENSE))
        self._residual()
        self.rivals = [_Rival(self, a) for a in surrogate.rivals]

    def _suprema(self, mesh: Mesh) -> None:
        """Of leverages, residuals and lengths of vectors over all states."""
        self._dense, self._mesh = self.level.values(mesh.states), mesh
        roots = np.linalg.cholesky(self.precision)
        self.leverage = np.array([mesh.double * self._largest(root.T) ** 2 for root in roots])
        every = (self.level.basis.sup()[1:] ** 2).sum() * self.level.basis.mass  # reached at a corner of polynomials
        self.radius = min(mesh.double * self._largest(np.eye(len(roots[0]))[1:]) ** 2, every) ** 0.5
        high, low = self.s.high, self.s.low
        around = [fit - (high + low) / 2 * np.eye(len(fit))[0] for fit in self.fits]
        self.reach = np.array([(high - low) / 2 + mesh.factor * np.abs(self._dense @ own).max() for own in around])
        self.length = np.array([self.radius + mesh.double**0.5 * self._largest(own[1:]) for own in self.Z])

    def _largest(self, matrix: Array) -> float:
        """The largest ‖matrix p(s)‖ on the dense mesh."""
        longest = 0.0
        for start in range(0, len(self._dense), 4096):
            block = self._dense[start : start + 4096] @ matrix.T
            longest = max(longest, float(np.einsum("ni,ni->n", block, block).max()))
        return longest**0.5

    def contrast(self, rival: int) -> tuple[float, float]:
        """Bounds on |Y_π − Y_a| and on ‖h_π − h_a‖."""
        fits, Z = self.fits[self.expert] - self.fits[rival], (self.Z[self.expert] - self.Z[rival])[1:]
        between = self._mesh.factor * float(np.abs(self._dense @ fits).max())
        apart = self._mesh.double**0.5 * self._largest(Z)
        return self.s.high - self.s.low + between, 2 * self.radius + apart

    def _residual(self) -> None:
        """û, and how far one step of the recursion moves u: the weights W of Σ W x Y and Σ W x hᵀ."""
        pi, e = self.expert, self.e
        W = self.s.discount * (self.resolvent.T @ self.precision[pi])[1:]
        length = self.leverage[pi] ** 0.5 * _size(W @ np.linalg.cholesky(self.gram[pi]))
        self.u_seen = float(np.linalg.norm(W @ e.surprise[pi]))
        self.u_observed = float(np.einsum("ij,jk,ik->", W, self.spread[pi, pi], W))
        self.u_bound = float(length * self.reach[pi])
        self.step_seen = _size(W @ e.drift[pi].T)
        self.step_left = _largest_eigenvalue(W @ self.wobble[pi, pi] @ W.T)
        self.step_right = float(length**2 * _largest_eigenvalue(e.noise))
        self.step_bound = float(length * self.length[pi])

    def minimum(self, curve: Array) -> tuple[Array, Array, float]:
        """An expansion in p as one in the columns, where it is least, and a proved bound of that; found once."""
        key = curve.tobytes()
        if key not in self._minima:
            state, least = minimum(self.level.basis, curve * self.level.basis.mass**0.5)
            self._minima[key] = np.linalg.solve(self.level.change.T, curve), state, least
        return self._minima[key]


@lru_cache(maxsize=2)  # a forecast asks again and again with another δ or size
def _workings(surrogate: Surrogate, evidence: BoxEvidence) -> _Workings:
    return _Workings(surrogate, evidence)


def lower_bounds_on_box(
    surrogate: Surrogate, evidence: BoxEvidence, *, delta: float, tail: float, growth: float | None = None
) -> list[LowerBound]:
    """With probability 1 − δ over the fresh data, D_a(s) ≥ margin for every state and every rival a.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        delta: the probability of failure.
        tail: τ.
        growth: a forecast instead: so many times as much data, which say nothing new. For planning only.
    """
    work, beyond = _workings(surrogate, evidence), np.isfinite(tail)
    more, loud = (1.0, 1.0) if growth is None else (growth, 0.0)
    count, rivals = len(work.points), len(work.rivals)
    L = log_term(SELF_EVENTS * rivals * count, BAND_SHARE * delta)
    lebesgue = 1 + np.sqrt(work.e.counts * work.leverage)  # how projection can magnify a tail, whatever the growth
    u = _residual_size(work, delta, more, loud)
    missed = (tail if beyond else 0.0) * (surrogate.high - surrogate.low) / 2
    later = 2 * surrogate.discount / (1 - surrogate.discount)
    found = []
    for rival, parts in zip(surrogate.rivals, work.rivals, strict=True):
        band = float(self_bounded(parts.observed / more, parts.bound / more, L).max())
        Lv = log_term(EVENTS * rivals * count, _shares(delta)[2])
        spread = empirical_vector_bernstein(parts.observed_vectors / more, parts.bound_of_vectors / more, Lv)
        both = lebesgue[work.expert] + lebesgue[rival] + later * lebesgue[work.expert]
        contrast = work.factor * float((loud * parts.drift + spread).max())
        second = u * (contrast + (tail if beyond else 0.0) * work.radius * both)
        curve, state, estimated = work.minimum(parts.guess + loud * parts.shift)
        found.append(
            LowerBound(
                rival=rival,
                curve=curve,
                state=state,
                estimated=float(estimated),
                estimation=band,
                grid=(work.factor - 1) * band,
                second_order=second,
                tail=float(missed * both) if beyond else float("inf"),
                floating=_rounding(work, work.factor * band + (second if np.isfinite(second) else 0.0)),
            )
        )
    return found


def _shares(delta: float) -> tuple[float, float, float]:
    """What û, the step and the vectors may cost of δ: the second-order part in three."""
    part = (1 - BAND_SHARE) * delta / 3
    return part, part, part


def _residual_size(work: _Workings, delta: float, more: float, loud: float) -> float:
    """A bound on ‖u‖, constants apart: ‖û‖/(1 − κ), with κ the size of one step of the recursion for u."""
    of_u, of_step, _ = _shares(delta)
    L = log_term(EVENTS, of_u)
    size = loud * work.u_seen + empirical_vector_bernstein(work.u_observed / more, work.u_bound / more, L)
    L = log_term(2 + 2 * (work.s.columns.size - 1), of_step)
    left, right, bound = work.step_left / more, work.step_right / more, work.step_bound / more
    step = loud * work.step_seen + empirical_matrix_bernstein(left, right, bound, L)
    return float(size / (1 - step)) if step < LARGEST_STEP else float("inf")


def _rounding(work: _Workings, radii: float) -> float:
    """Generous, not a proof, as in `bounds`; level functions have no large values, and few of them meet in a sum."""
    n, wide, ks = float(work.e.counts.max()), prod(work.level.doubled), work.s.columns.size
    unit = (LONGEST + n / SHORTEST + 2 * max(work.level.doubled) ** 2) * np.finfo(float).eps  # blocks, then their sums
    s = work.s
    scale = s.high - s.low + max(abs(s.low), abs(s.high))
    solved = unit * ks**2 * work.condition * np.abs(work.resolvent).sum(axis=1).max()
    second = unit * (2 ** len(work.level.doubled) * wide) ** 0.5 * n * float(work.leverage.max())
    return float(solved * scale + second * radii)


@lru_cache(maxsize=64)
def band_counts(columns: ProductBasis, rivals: int) -> tuple[int, ...]:
    """As many points as make inflation times √L least at δ = 0.05, and no more than `MOST_POINTS`."""
    best, found = np.inf, counts_of(columns, 2.0)
    for share in np.arange(1.0, 12.0, 0.125):
        counts = counts_of(columns, float(share))
        if prod(counts) > MOST_POINTS and np.isfinite(best):
            break
        factor = inflation(columns.degrees, half_steps(columns, counts))
        cost = factor * log_term(SELF_EVENTS * rivals * prod(counts), 0.05) ** 0.5
        if cost < best:
            best, found = cost, counts
    return found


def condition(gram: Array) -> float:
    """The worst condition number of symmetric matrices ``[A, k, k]``; infinite where one is not positive."""
    eigenvalues = np.linalg.eigvalsh(gram)
    least = float(eigenvalues[:, 0].min())
    return float((eigenvalues[:, -1] / eigenvalues[:, 0]).max()) if least > 0 else float("inf")


def _largest_eigenvalue(matrix: Array) -> float:
    return max(float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]), 0.0)


def _size(matrix: Array) -> float:
    """The spectral norm."""
    return _largest_eigenvalue(matrix @ matrix.T) ** 0.5


def _norms(weights: Array, gram: Array) -> Array:
    """√(wᵀGw) for every row: with `leverage`, a bound on |w·x| over all states, by Cauchy and Schwarz."""
    return np.sqrt(np.maximum(_form(weights, gram, weights), 0.0))


def _form(left: Array, middle: Array, right: Array) -> Array:
    """The diagonal of left @ middle @ rightᵀ."""
    return np.asarray(np.einsum("ni,ni->n", left @ middle, right))
