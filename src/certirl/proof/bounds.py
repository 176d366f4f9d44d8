"""The inequalities behind a certificate: from a surrogate and evidence to a lower bound on every D_a(s).

With e = R + γP_πV − V and û = (I − γP̂_π)⁻¹e, exactly,

    D_a = (P_π − P_a)V + (P_π − P_a)(I − γP_π)⁻¹e
        = D̂_a + [(P_π − P̂_π) − (P_a − P̂_a)]V + F̂_a e + r_a(û),

where the middle terms are means over fresh data (bounded by Bernstein at a few points and by Ehlich–Zeller in between)
and r_a is of second order. docs/notes/certificate.md has statements, assumptions and proofs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from certirl.functions.bases import Basis
from certirl.functions.extrema import minimum
from certirl.functions.inequalities import EVENTS, degree, empirical_bernstein, inflation, log_term, spread_points
from certirl.ground.domain import Array
from certirl.kernels.blocked import LONGEST
from certirl.proof.evidence import Evidence, Surrogate

# The first-order band decides; the second-order terms are small and can do with little of δ.
BAND_SHARE = 0.85


@dataclass(frozen=True, eq=False)
class LowerBound:
    """A lower bound on D_a over all states: ``estimated`` minus the losses.

    Attributes:
        rival: a.
        curve: the corrected estimate of D_a in the columns ``[k_s]``.
        state: where it is least.
        estimated: its minimum.
        estimation: the band at the worst grid point.
        grid: what the states between the points cost.
        second_order: the remainder.
        tail: what lies outside the columns.
        floating: rounding.
    """

    rival: int
    curve: Array
    state: Array
    estimated: float
    estimation: float
    grid: float
    second_order: float
    tail: float
    floating: float

    def times(self, unit: float) -> LowerBound:
        """The same bound for a reward that is ``unit`` times as large."""
        names = ("curve", "estimated", "estimation", "grid", "second_order", "tail", "floating")
        return replace(self, **{name: unit * getattr(self, name) for name in names})

    @property
    def margin(self) -> float:
        """What is left."""
        return self.estimated - self.estimation - self.grid - self.second_order - self.tail - self.floating


class _Workings:
    """Quantities shared by all rivals."""

    def __init__(self, surrogate: Surrogate, evidence: Evidence, tail: float) -> None:
        self.s, self.e, self.tail = surrogate, evidence, tail
        self.ks, self.expert, self.gamma = surrogate.columns.size, surrogate.expert, surrogate.discount
        self.precision = np.linalg.inv(evidence.gram)
        T = surrogate.Z[self.expert]
        self.resolvent = np.linalg.inv(np.eye(self.ks) - self.gamma * T)
        self.F = {a: self.resolvent @ (T - surrogate.Z[a]) for a in surrogate.rivals}
        # sup over states of products of two expansions: a grid fine enough for twice the degree
        count = 20 * self.ks
        self.dense = surrogate.columns.values(spread_points(surrogate.columns, count))
        self.dense_factor = inflation(surrogate.columns.kind, 2 * degree(surrogate.columns), count)
        self.lebesgue = self._lebesgue()

    def _lebesgue(self) -> Array:
        """1 + sup_s Σ_r|φ(s)ᵀG⁻¹x_r| for every action, by Cauchy and Schwarz: how projection can magnify a tail."""
        leverage = np.einsum("ni,aij,nj->an", self.dense, self.precision, self.dense).max(axis=1)
        return 1 + np.sqrt(self.e.counts * leverage * self.dense_factor)

    def reach(self, action: int) -> Array:
        """sup|Y_c| given the state, on the dense grid: V(s') lies in [low, high]."""
        fit = self.dense @ self.s.fits[action]
        return np.maximum(self.s.high - fit, fit - self.s.low)

    def largest(self, weights: Array, reach: Array) -> Array:
        """sup over states of |weights·φ(x)| times reach(x), one number per row of the weights."""
        return self.dense_factor * (np.abs(weights @ self.dense.T) * reach).max(axis=1)


def lower_bounds(
    surrogate: Surrogate, evidence: Evidence, *, delta: float, tail: float, crude: bool = False
) -> list[LowerBound]:
    """With probability 1 − δ over the fresh data, D_a(s) ≥ margin for every state and every rival a.

    Args:
        surrogate: fixed beforehand.
        evidence: of the fresh data.
        delta: the probability of failure.
        tail: τ.
        crude: bound the remainder after one step by contraction alone, for comparison.
    """
    if crude and tail > 0:
        raise ValueError("the crude remainder is for comparisons without a tail")
    beyond = np.isfinite(tail)  # an infinite tail leaves nothing to bound
    work = _Workings(surrogate, evidence, tail if beyond else 0.0)
    points, factor, L = _points(work, delta * BAND_SHARE)
    second = _second_order(work, delta * (1 - BAND_SHARE), crude)
    # V enters with its size, not its span: a large constant costs digits.
    scale = surrogate.high - surrogate.low + max(abs(surrogate.low), abs(surrogate.high))
    rounding = summation_error(evidence.counts, evidence.gram) * scale * np.abs(work.resolvent).sum(axis=1).max()
    found = []
    for rival in surrogate.rivals:
        band = _band(work, rival, surrogate.columns.values(points), L)
        radii = factor * float(band.max()) + (second[rival] if np.isfinite(second[rival]) else 0.0)
        curve = _corrected_curve(work, rival)
        state, estimated = minimum(surrogate.columns, curve)
        found.append(
            LowerBound(
                rival=rival,
                curve=curve,
                state=state,
                estimated=estimated,
                estimation=float(band.max()),
                grid=float((factor - 1) * band.max()),
                second_order=second[rival],
                tail=_first_order_tail(work, rival) if beyond else float("inf"),
                floating=float(rounding + _lifting_error(work) * radii),
            )
        )
    return found


def summation_error(counts: Array, gram: Array) -> float:
    """The relative error of a least-squares answer from sums taken in blocks: generous, not a proof."""
    columns = gram.shape[-1]
    return float(sum_error(counts, columns) * columns**2 * np.linalg.cond(gram).max())


def sum_error(counts: Array, columns: int) -> float:
    """The error of Σ χ f taken in blocks, relative to sup|χ| Σ|f|.

    No number goes through more than LONGEST additions within a block and one for each block. The compiled kernel's
    chains are shorter: 256 in a block, 256 blocks in a stretch, one for each stretch of 2^16. Products with 2k − 1
    harmonics, which come by recurrences, are off by 2(2k − 1)² roundings at most before they are added.
    """
    return float((LONGEST + float(counts.max()) / LONGEST + 2 * (2 * columns - 1) ** 2) * np.finfo(float).eps)


def _lifting_error(work: _Workings) -> float:
    """The relative error of radii: second moments are off by (2k − 1)·nℓ times the error of a sum, ℓ = sup φᵀG⁻¹φ."""
    return float(sum_error(work.e.counts, work.ks) * (2 * work.ks - 1) * ((work.lebesgue - 1) ** 2).max())


def _points(work: _Workings, delta: float) -> tuple[Array, float, float]:
    """As many points as make inflation times √L least: few cost at the states between them, many in the union bound."""
    columns, rivals = work.s.columns, len(work.s.rivals)
    counts = range(max(degree(columns) + 1, 1), 20 * work.ks + 2)
    factors = [inflation(columns.kind, degree(columns), n) for n in counts]
    logs = [log_term(EVENTS * rivals * n, delta) for n in counts]
    best = int(np.argmin(np.array(factors) * np.sqrt(logs)))
    return spread_points(columns, counts[best]), factors[best], logs[best]


def _band(work: _Workings, rival: int, phi: Array, L: float) -> Array:
    """The radius of the first-order error at each point: terms p·x Y_π − q·x Y_a, one for each fresh state."""
    e, expert = work.e, work.expert
    p = (phi + work.gamma * phi @ work.F[rival].T) @ work.precision[expert]
    q = phi @ work.precision[rival]
    own, other = work.reach(expert), work.reach(rival)
    observed = _form(p, e.spread[expert, expert], p) + _form(q, e.spread[rival, rival], q)
    if e.paired:
        # p·x Y_π − q·x Y_a = q·x (Y_π − Y_a) + (p − q)·x Y_π, and the first bracket spans V's range twice at most
        observed = observed - 2 * _form(p, e.spread[expert, rival], q)
        between = work.dense @ (work.s.fits[expert] - work.s.fits[rival])
        both = (work.s.high - work.s.low) + np.abs(between)
        bound = work.dense_factor * (np.abs(q @ work.dense.T) * both + np.abs((p - q) @ work.dense.T) * own).max(axis=1)
    else:
        bound = np.maximum(work.largest(p, own), work.largest(q, other))
    return np.asarray(empirical_bernstein(observed, bound, L))


def _corrected_curve(work: _Workings, rival: int) -> Array:
    """D̂_a + the observed first-order correction, as an expansion in the columns."""
    s, e, expert = work.s, work.e, work.expert
    own = work.precision[expert] @ e.surprise[expert]
    other = work.precision[rival] @ e.surprise[rival]
    return np.asarray(s.fits[expert] - s.fits[rival] + own - other + work.gamma * work.F[rival].T @ own)


def _second_order(work: _Workings, delta: float, crude: bool) -> dict[int, float]:
    """The remainder r_a: errors of the operators acting on û, itself an error; summed to all orders.

    One step turns û into γ(P_π − P̂_π)û, whose coefficients are bounded entry by entry; the steps form a geometric
    series (I − K)⁻¹ as long as K is a contraction. Infinite where it is not: then there is too little data.
    """
    ks, s, expert = work.ks, work.s, work.expert
    if ks == 1:
        return dict.fromkeys(s.rivals, 0.0)
    count = 4 * ks
    points, factor = spread_points(s.columns, count), inflation(s.columns.kind, degree(s.columns), count)
    phi, kinds = s.columns.values(points), len(s.Z) * (ks - 1)
    L = log_term(EVENTS * (ks + (ks - 1) * ks + kinds * count), delta)
    u = _coefficients(work, work.gamma * work.resolvent.T @ work.precision[expert], L)
    entries = _operator_errors(work, expert, np.eye(ks), L, own=True)  # |T − T̂|, row i from 2 on
    lifted = work.gamma * np.abs(work.resolvent.T) @ entries.T
    if crude:
        own = _operator_errors(work, expert, phi, L, own=True).max(axis=1) * factor
        rest = {a: _operator_errors(work, a, phi, L, own=False).max(axis=1) * factor for a in s.rivals}
        return {a: float(u @ (rest[a] + own * (1 + 2 * work.gamma / (1 - work.gamma)))) for a in s.rivals}
    if np.abs(np.linalg.eigvals(lifted)).max() >= 0.95:
        return dict.fromkeys(s.rivals, float("inf"))
    total = np.linalg.solve(np.eye(ks) - lifted, u)
    low, high = _ranges(s.columns)
    far = work.tail * (high - low) / 2  # beyond the columns, for each function
    slipped = 2 * work.gamma / (1 - work.gamma) * work.lebesgue[expert] * far @ total
    result = {}
    for rival in s.rivals:
        contrast = _operator_errors(work, rival, phi, L, own=False).max(axis=1) * factor
        if not work.e.paired:
            contrast = contrast + _operator_errors(work, expert, phi, L, own=True).max(axis=1) * factor
        contrast = contrast + (work.lebesgue[expert] + work.lebesgue[rival]) * far
        steep = work.dense_factor * np.abs(work.dense @ work.F[rival].T).max(axis=0)
        result[rival] = float(total @ (contrast + work.gamma * entries @ steep) + slipped)
    return result


def _coefficients(work: _Workings, weights: Array, L: float) -> Array:
    """Bounds on |weights·E[Σ x Y_π]|, row by row."""
    observed = _form(weights, work.e.spread[work.expert, work.expert], weights)
    radius = empirical_bernstein(observed, work.largest(weights, work.reach(work.expert)), L)
    return np.asarray(np.abs(weights @ work.e.surprise[work.expert]) + radius)


def _operator_errors(work: _Workings, action: int, phi: Array, L: float, *, own: bool) -> Array:
    """Bounds on |((P_c − P̂_c)φ_i)·phi_n| for the functions i and the rows n of phi: ``[k_s, n]``; zero for i = 1.

    For a rival of paired data the contrast with the expert's operator is bounded instead.
    """
    s, e = work.s, work.e
    contrast = e.paired and not own
    weights = phi @ work.precision[action]
    drift = e.drift[work.expert] - e.drift[action] if contrast else e.drift[action]
    fits = s.Z[work.expert] - s.Z[action] if contrast else s.Z[action]
    low, high = _ranges(s.columns)
    errors = np.zeros((work.ks, len(phi)))
    for i in range(1, work.ks):
        fit = work.dense @ fits[i]
        reach = high[i] - low[i] + np.abs(fit) if contrast else np.maximum(high[i] - fit, fit - low[i])
        radius = empirical_bernstein(_form(weights, e.wobble[action, i], weights), work.largest(weights, reach), L)
        errors[i] = np.abs(weights @ drift[i]) + radius
    return errors


@lru_cache
def _ranges(columns: Basis) -> tuple[Array, Array]:
    """The least and largest value of every column function."""
    unit = np.eye(columns.size)
    low = np.array([minimum(columns, row)[1] for row in unit])
    high = np.array([-minimum(columns, -row)[1] for row in unit])
    return low, high


def _first_order_tail(work: _Workings, rival: int) -> float:
    """What the columns miss of P_πV and P_aV, and, through the residual e, of all later steps."""
    own, other = work.lebesgue[work.expert], work.lebesgue[rival]
    missed = work.tail * (work.s.high - work.s.low) / 2
    return float(missed * (own + other + 2 * work.gamma / (1 - work.gamma) * own))


def _form(left: Array, middle: Array, right: Array) -> Array:
    """The diagonal of left @ middle @ rightᵀ."""
    return np.einsum("ni,ij,nj->n", left, middle, right)
