"""Bands: with probability 1 − δ, D_ba lies within them for every pair of actions and every state.

D_ba = (P_b − P_a)V + (R_b − R_a)/γ, what b is better by than a, divided by γ; the second term is known.

With d̂_c(f) = G_c⁻¹ Σ x E_c(f) the observed regression errors, ν their noise, V = V̂ + u the expert's true value and
ω(s) the functional of a pair, exactly (the tail apart), by (3)

    u = c̃ − M N ν,    (P_b − P_a)V = (P̂_b − P̂_a)V̂ + ω·d̂(V̂ + c̃) − ω·ν − η̂ M N ν,

where c̃ = M N d̂(V̂), M = (I − N d̂(f))⁻¹ and η̂ = ω·d̂(f) are observed. V is one fixed function, so that its noise needs
one inequality at each point and one for the vector Nν. docs/notes/certificate.md has statement and proof; numbers in
brackets are those of its equations.

`functionals.Workings` says what is observed; here that becomes inequalities, for any δ. What training data let us
expect of fresh ones, and of more of them, goes through the same inequalities (`Expected`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
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
from certirl.ground.records import Record, internal
from certirl.proof.functionals import Lengths, Noise, Points, Visits, Workings, norm_of, workings
from certirl.proof.sums import Evidence, sum_error
from certirl.proof.surrogate import Paid, Surrogate

# How δ is spent: the band decides, the size of the error can do with little; regret only where the expert switches.
SHARES = {"band": 0.85, "size of the error": 0.15}
SWITCHING_SHARES = {"band": 0.8, "size of the error": 0.15, "regret": 0.05}
_MOST_GROWTH = 0.95  # how much the noise of u may be amplified by itself; beyond it nothing is bounded
# Slopes are chosen for these multiples of the second moments and of the length of u in the training data.
_CAUTION, _CAUTION_OF_LENGTH = 1.1, 1.5
_PAID = 2.0**-40  # of (R_b − R_a)/γ: rounding of its values
_OBSERVED = 2.5  # the observed error of V̂ at points, in standard deviations of its noise: for forecasts


@dataclass(frozen=True, eq=False)
@internal
class Band(Record):
    """|D_ba − curve| ≤ its radius at every state, D_ba that of the expert's value under the true dynamics.

    Below the curve and above it D_ba is bounded separately: side 0 is what is read to prove b better than a,
    side 1 to prove a better than b.
    """

    pair: tuple[int, int]  # (b, a), b < a
    columns: Basis  # φ
    curve: Array  # the corrected estimate in the harmonics of ``paid.functions`` ``[K]``, but for the table of ``paid``
    estimation: Array  # the band of V̂ at the spread points, below and above ``[2, N_1, …, N_d]``
    second_order: Array  # what the error of V̂ adds there
    tail: float  # what lies outside the columns
    floating: float  # rounding
    paid: Paid  # (R_b − R_a)/γ

    @property
    def functions(self) -> Basis:
        """Those that the curve is an expansion in; they hold the columns."""
        return self.paid.functions

    def estimate(self, states: Array) -> Array:
        """The curve at states ``[n]``."""
        return np.asarray(frame(self.functions).values(states) @ self.curve + self.paid.at(states))

    def on_cells(self, cells: CellAxes) -> tuple[Array, Array]:
        """The curve at the middles of cells, and how far it can be from that within them ``[n_1, …, n_d]``."""
        harmonics, (table, moved) = frame(self.functions), self.paid.on_cells(cells)
        values = harmonics.on_axes(harmonics.tensor(self.curve), cells.axes)
        return values + table, harmonics.fall(self.curve, cells) + moved

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
@internal
class Bands(Record):
    """What holds with probability 1 − δ, all at once."""

    pairs: tuple[Band, ...]  # one band for each pair of actions of which the expert uses one
    visits: Array  # sup over states and actions of P_c of each tent ``[w]``: how often the switches are met at most
    span: float  # how far apart the expert's value is at least at two states; 0 if that is not bounded


class Findings:
    """What fresh data say, as the inequalities need it.

    Attributes:
        work: what data say of functionals.
        growth: how many times the data that work is made from.
        error, white: as of `Workings`.
        centre: c̃ ``[m − 1]``.
        inverse: M = (I − K̂)⁻¹ ``[m − 1, m − 1]``; None where it is too inaccurate.
        start, stretch: ‖c̃‖ and ‖M‖.
        residuals: Σ x Y_c ``[A, k]``.
    """

    def __init__(self, work: Workings) -> None:
        self.work, self.growth, self.error, self.white = work, 1.0, work.error, work.white
        self.centre, self.inverse = work.centre, work.inverse
        self.start = float(np.linalg.norm(self.centre))
        self.stretch = np.inf if self.inverse is None else norm_of(self.inverse)
        self.residuals = work.e.residuals

    def points(self, points: Points) -> Points:
        """What they say of functionals."""
        return points

    @property
    def at_points(self) -> Points:
        """What they say of û at points."""
        return self.work.at_points

    @property
    def offset(self) -> float:
        """Half the span of û at these points, as observed."""
        return float(np.ptp(self.at_points.value)) / 2

    @property
    def visits(self) -> list[Visits]:
        """What they say of P_c of tents."""
        return self.work.visits


class Expected(Findings):
    """What data should say that say nothing new: observed errors are as large as noise makes them. For planning only.

    Args:
        work: of training data, or of fresh ones.
        growth: how many times these.
    """

    def __init__(self, work: Workings, growth: float) -> None:
        self.work, self.growth = work, growth
        noise = work.error.noise.likely().grown(growth, growth)
        self.error = work.error._replace(noise=noise, mismatch=work.error.mismatch / growth)
        self.white = [each.grown(1.0, growth**0.5) for each in work.white]
        self.stretch = 1 / (1 - min(2 * float(np.sqrt(noise.top[1])), _MOST_GROWTH))
        self.start = self.stretch * float(np.sqrt(noise.trace[0]))
        self.centre, self.inverse = np.zeros(len(work.centre)), self.stretch * np.eye(len(work.centre))
        self.residuals = np.zeros_like(work.e.residuals)

    def points(self, points: Points) -> Points:
        """What they should say of functionals."""
        noise, mismatch = points.noise.grown(self.growth), points.mismatch / self.growth
        turned = self.stretch * np.sqrt(noise.operator)
        return Points(np.zeros_like(points.value), turned, noise, mismatch, points.magnified)

    @cached_property
    def at_points(self) -> Points:
        """What training data let us expect of û at points."""
        points = self.points(self.work.at_points)
        return points._replace(noise=points.noise.likely())

    @property
    def offset(self) -> float:
        """Half the span of û at these points, as large as noise makes it."""
        return _OBSERVED * float(np.sqrt(self.at_points.noise.value.max()))

    @property
    def visits(self) -> list[Visits]:
        """What they should say of P_c of tents."""
        return [visit.grown(self.growth)._replace(curve=np.zeros_like(visit.curve)) for visit in self.work.visits]


def shares_of(surrogate: Surrogate) -> dict[str, float]:
    """How δ is split, by name: shares that add up to 1."""
    return SHARES if surrogate.constant else SWITCHING_SHARES


def bands(surrogate: Surrogate, evidence: Evidence, *, delta: float, tail: float) -> Bands:
    """The theorem: what holds with probability 1 − δ over the fresh data, if τ is the tail."""
    return _bands(Findings(workings(surrogate, evidence)), delta, tail)


def expected_bands(
    surrogate: Surrogate, evidence: Evidence, samples: int, *, delta: float, tail: float, only_pairs: bool = False
) -> Bands:
    """The `bands` of ``samples`` fresh transitions per action that say nothing new, from evidence of other data.

    With ``only_pairs`` visits and span are left out.
    """
    growth = samples / float(evidence.counts.min())
    return _bands(Expected(workings(surrogate, evidence, forecast=True), growth), delta, tail, only_pairs=only_pairs)


def _bands(found: Findings, delta: float, tail: float, *, only_pairs: bool = False) -> Bands:
    """(T1) to (T3) from what data say."""
    work, s = found.work, found.work.s
    parts = {name: share * delta for name, share in shares_of(s).items()}
    is_bounded = work.gamma * tail < 1  # beyond it nothing is bounded, not even V
    tail = tail if is_bounded else 0.0
    size = _size(found, parts["size of the error"], tail)
    pairs = tuple(
        _band(found, size, pair, -np.log(parts["band"] * shares.reshape(2, -1)), tail)
        for pair, shares in zip(s.compared, s.shares, strict=True)
    )
    if not is_bounded:
        pairs = tuple(replace(band, tail=np.inf) for band in pairs)
    if s.constant or only_pairs or not is_bounded:
        return Bands(pairs, np.ones(len(s.widths)), 0.0)
    half = parts["regret"] / 2
    return Bands(pairs, _visits(found, half, tail), _span(found, size, half, tail))


def _band(found: Findings, size: _Size, pair: tuple[int, int], L: Array, tail: float) -> Band:
    """(T1) for a pair (b, a): (6) at the points of the mesh, with what the columns miss, by Lemma 1 and Lemma 7.

    L is that of the events below and above the curve at the points ``[2, n]``.
    """
    work, counts = found.work, found.work.s.mesh.counts
    points = found.points(work.compared[pair])
    estimation, second = _radii(work, size, points, L)
    rise = inflation(work.frame.basis, *counts)
    outside = _outside(work, tail, rise * float(points.magnified.max()), direct=2.0)
    second = second + (size.length * work.radius[1] * outside if size.is_bounded else 0.0)
    paid = work.s.paid(*pair)
    curve = paid.curve.copy()
    curve[: work.k] += _curve(found, size, pair)
    return Band(
        pair=pair,
        columns=work.s.columns,
        curve=curve,
        estimation=estimation.reshape(2, *counts),
        second_order=second.reshape(2, *counts),
        tail=work.radius[0] * outside,
        floating=_rounding(found, float((estimation + second).max())) + _PAID * paid.size,
        paid=paid,
    )


class _Size(NamedTuple):
    """Bounds on the error u of V̂, and on the noise Nν(V) behind it, by (4) or (4')."""

    centre: Array  # c̃, observed ``[m − 1]``
    inverse: Array  # M ``[m − 1, m − 1]``
    noise: float  # ρ ≥ ‖N(ν + θ)‖; infinite where there is no bound
    length: float  # κ ≥ ‖u‖ in the functions f_i; pointwise κ ≥ h_u, half the span of u
    expected: float  # the length that training data, and the fresh states where weights come from them, let us expect
    # α_c and β_c, bounds on the whitened noise of each action's columns, of V̂ and of a fixed function of length 1
    # ``[A, 2]``; ``[0, 2]`` where no weights were fixed before
    white: Array

    @property
    def is_bounded(self) -> bool:
        """Whether u is."""
        return bool(np.isfinite(self.length))

    def moment(self, noise: Noise) -> Array:
        """(5), (5'): ΣZ(V)² at most ``[n]``, from second moments of V̂, of the f_i and between them."""
        value, operator = np.maximum(noise.value, 0.0), self.length**2 * np.maximum(noise.operator, 0.0)
        apart = (np.sqrt(value) + np.sqrt(operator)) ** 2
        if noise.cross.shape[1] == 0:
            return np.asarray(apart)
        turned = np.linalg.norm(noise.cross @ self.inverse, axis=1)
        together = value + 2 * (noise.cross @ self.centre + self.noise * turned) + operator
        return np.asarray(np.minimum(apart, np.maximum(together, 0.0)))


def _size(found: Findings, delta: float, tail: float) -> _Size:
    """How large u can be: (4) by its length, (4') at points."""
    work, size = found.work, len(found.centre)
    L, expected = _size_term(work, delta), _expected_length(Expected(work, found.growth), delta)
    white = np.array([_norms(noise, L, conditional=True) for noise in found.white]).reshape(-1, 2)
    bounds = (0.0, 0.0)  # one column: u is a constant
    if size and found.inverse is None:
        bounds = (np.inf, np.inf)
    elif size:
        bounds = _at_points(found, delta, tail) if work.s.pointwise else _by_length(found, white, L, tail)
    inverse = np.eye(size) if found.inverse is None else found.inverse
    return _Size(found.centre, inverse, *bounds, expected, white)


def _by_length(found: Findings, white: Array, L: float, tail: float) -> tuple[float, float]:
    """(4): ρ and κ; infinite where operators are known too inaccurately."""
    alpha, beta = _noise_of_error(found, white, L, tail)
    amplified = beta * found.stretch
    if not amplified < _MOST_GROWTH:
        return np.inf, np.inf
    noise = (alpha + beta * found.start) / (1 - amplified)
    return noise, found.start + found.stretch * noise


def _noise_of_error(found: Findings, white: Array, L: float, tail: float) -> tuple[float, float]:
    """α and β of (4), ‖N(ν + θ)‖ ≤ α + β‖u‖: α for V̂, and β for one fixed function of length 1."""
    error, work = found.error, found.work
    ahead = _norms(error.noise, L, conditional=work.is_fixed) + error.mismatch @ white
    alpha, beta = ahead + _outside(work, tail, error.magnified) * work.radius
    return float(alpha), float(beta)


def _at_points(found: Findings, delta: float, tail: float) -> tuple[float, float]:
    """(4'): ρ and κ of an error that is bounded at points; infinite where h_u is not bounded.

    h_u ≤ h₁ + κ₁h_u: the noise of u at a point is that of a fixed function within h_u of a constant (Hoeffding).
    Half of δ is for the vector Nν(V), half for the points.
    """
    work, vector, points = found.work, found.error.noise, found.at_points
    factor, noise = work.frame.coarse.factor, points.noise
    L, each = log_term(2 * (MIXED_EVENTS + 1), delta), log_term(8 * len(points.value), delta)
    scale = best_scale(vector.expected_trace[0], vector.expected_top[0], vector.longest[0], L, vector.size)
    # What lies outside the columns is magnified alike for V̂ and for u, which is within h_u of a constant.
    vector_tail, tails = _outside(work, tail, found.error.magnified), _outside(work, tail, points.magnified)
    alpha = float(mixed_norm(vector.trace[0], vector.top[0], vector.longest[0], L, vector.size, scale))
    alpha += vector_tail * work.radius[0]
    beta = float(hoeffding_norm(vector.trace[1], vector.top[1], L)) + vector_tail
    radius = _radius(noise, each, _slope(work, noise, noise.largest[:, 0], each)).max(axis=0)
    first = radius + alpha * points.turned + tails * work.radius[0]
    share = factor * float((np.sqrt(2 * each * noise.operator) + beta * points.turned + tails).max())
    if not share < _MOST_GROWTH:
        return np.inf, np.inf
    size = factor * (found.offset + float(first.max())) / (1 - share)
    return alpha + beta * size, size


def _expected_length(expected: Expected, delta: float) -> float:
    """The length of u for which slopes are chosen; no sum over fresh residuals enters, and no tail."""
    if not len(expected.centre):
        return 0.0
    if expected.work.s.pointwise:
        _, length = _at_points(expected, delta, 0.0)
        return _CAUTION_OF_LENGTH * length if np.isfinite(length) else 0.0
    L, nothing = (
        _size_term(expected.work, delta),
        np.zeros((len(expected.white), 2)),
    )  # mismatches are those of fresh rows
    noise, length = _by_length(expected, nothing, L, 0.0)
    if not np.isfinite(noise):
        noise, _ = _noise_of_error(expected, nothing, L, 0.0)
        length = expected.start + expected.stretch * noise
    return _CAUTION_OF_LENGTH * length


def _size_term(work: Workings, delta: float) -> float:
    """L of the events about lengths of vectors: that of u, and that of every action's columns."""
    return log_term(2 * MIXED_EVENTS * (1 + len(work.white)), delta)


def _norms(noise: Lengths, L: float, *, conditional: bool) -> Array:
    """Lemma 6, or Lemma 6′: bounds on the noise of a vector for V̂ and for a fixed function of length 1 ``[2]``."""
    bounds = []
    for trace, top, longest, likely_trace, likely_top in zip(*noise[1:], strict=True):
        rates = None
        if conditional:
            rates = best_rate(likely_trace, longest, L), best_rate(likely_top, longest, L + np.log(noise.size))
        scale = best_scale(likely_trace, likely_top, longest, L, noise.size, rates)
        bounds.append(float(mixed_norm(trace, top, longest, L, noise.size, scale, rates)))
    return np.array(bounds)


def _slope(work: Workings, noise: Noise, bound: Array, L: Any) -> Array:
    """Slopes μ of Lemma 3 for the second moments that training data let us expect."""
    choose = plain_slope if work.s.powers else best_slope
    return np.asarray(choose(_CAUTION * noise.expected, bound, L))


def _radius(noise: Noise, L: Any, slope: Array, length: float = 0.0, square: Array | None = None) -> Array:
    """By how much ⟨ω, ν⟩ can exceed 0, and fall below it ``[2, n]``, but for probability e^−L each: Lemma 3 by (5'').

    L and slopes, fixed beforehand, are ``[2, n]``, or one for all. The size of u is at most κ, ``length``, and
    ΣZ(V̂ + u)² at most ``square``, that of V̂ if left out.
    """
    square = noise.value if square is None else square
    bound = noise.largest @ np.array([1.0, length])
    radius = np.broadcast_to(sloped(square, bound, L, slope), (2, len(bound)))
    if not noise.powers.shape[1]:
        return radius
    signs, (cube, fourth) = np.array([[1.0], [-1.0]]), noise.powers.T
    fourth, apart, largest = np.maximum(fourth, 0.0), length**2 * noise.operator, length * noise.largest[:, 1]
    less = 3 * np.sqrt(fourth * apart) + (3 * noise.largest[:, 0] + largest) * apart  # of Σ(Z + W)³, ΣW² ≤ apart
    whole = (fourth**0.25 + (largest**2 * apart) ** 0.25) ** 4
    return np.minimum(radius, quartic(square, signs * cube - less, whole, bound, L, slope))


def _radii(work: Workings, size: _Size, points: Points, L: Array) -> tuple[Array, Array]:
    """(6): the band of V̂ at points, and what u adds to it, for several L ``[s, n]`` each."""
    noise = points.noise
    slope = _slope(work, noise, noise.largest @ np.array([1.0, size.expected]), L)
    estimation = _radius(noise, L, slope)[: len(L)]
    if not size.is_bounded:
        return estimation, np.full(estimation.shape, np.inf)
    total = _radius(noise, L, slope, size.length, size.moment(noise))[: len(L)]
    estimation = np.minimum(estimation, total)
    second = total - estimation + size.noise * points.turned
    if len(size.white):
        value, operator = (points.mismatch @ size.white).T
        estimation, second = estimation + value, second + size.length * operator
    return estimation, second


def _curve(found: Findings, size: _Size, pair: tuple[int, int]) -> Array:
    """The curve of (3): (P̂_b − P̂_a)V̂ and what was observed of its error ``[k]``; where u has no bound V̂'s alone."""
    work, s, (b, a) = found.work, found.work.s, pair
    curve = s.fits[b] - s.fits[a]
    if not size.is_bounded:
        return curve
    sums = found.residuals + np.einsum("i,aik->ak", size.centre, work.function_sums)
    errors = np.einsum("aij,aj->ai", work.precision, sums)
    lift = work.gamma * (s.Z[b] - s.Z[a]).T @ work.resolvent.T @ errors[list(s.used)].ravel()
    return np.asarray(curve + errors[b] - errors[a] + lift)


def _outside(work: Workings, tail: float, magnified: Array | float, direct: float = 0.0) -> Any:
    """Lemma 1, (T): what the columns miss adds to functionals of a V with values between −1 and 1, if γτ < 1.

    The functionals magnify it by Ω, and ``direct`` is how often it enters as it is.
    """
    return tail * (direct + (1 + work.gamma) * magnified) / (1 - work.gamma * tail)


def _span(found: Findings, size: _Size, delta: float, tail: float) -> float:
    """(T2): V at one state less V at another: V̂ there, corrected, less the same losses as a band."""
    if not size.is_bounded:
        return 0.0
    work, points = found.work, found.points(found.work.drop)
    estimation, second = _radii(work, size, points, np.full((1, 1), log_term(1, delta)))
    outside = _outside(work, tail, float(points.magnified[0]), direct=2 * work.gamma)
    lost = float(estimation[0, 0] + second[0, 0] + outside * (work.radius[0] + size.length * work.radius[1]))
    lost += _rounding(found, lost)
    return max(0.0, work.s.dropped + float(points.value[0]) - lost)


def _visits(found: Findings, delta: float, tail: float) -> Array:
    """(T3): sup over states and actions of P_c of every tent ``[w]``."""
    work, mesh, most = found.work, found.work.frame.visited, np.zeros(len(found.work.s.widths))
    functions = work.A * max(len(most), 1)
    for visit in found.visits:
        if visit.noise is None:
            L = log_term(EVENTS * functions * len(mesh.states), delta)
            radius = empirical_bernstein(visit.observed, visit.largest, L)
        else:
            L = log_term(functions * (2 * len(mesh.states) + MIXED_EVENTS), delta)
            slope = best_slope(_CAUTION * visit.expected, visit.largest, L)
            (length,) = _norms(visit.noise, L, conditional=True)
            radius = sloped(visit.observed, visit.largest, L, slope) + visit.mismatch * length
        above = mesh.factor * float(radius.max())
        beyond = tail * work.lebesgue[visit.action] / 2 + _rounding(found, above, scale=2.0)
        curve = work.s.tent_fits[visit.action, visit.tent] + visit.curve
        most[visit.tent] = max(most[visit.tent], work.frame.peak(curve) + above + beyond)
    return np.clip(most, 0.0, 1.0)


def _rounding(found: Findings, radius: float, scale: float | None = None) -> float:
    """What floating point can have done to a curve and to a radius: of V̂, or of a function of a scale by itself.

    Generous, not a proof: section 15.
    """
    work, s = found.work, found.work.s
    unit = sum_error(float(work.e.counts.max()) * found.growth, max(work.frame.wide))
    if scale is None:  # V̂ enters with its size, not its span: a large constant costs digits
        size = s.high - s.low + max(abs(s.low), abs(s.high))
        scale = size * float(np.abs(work.resolvent).sum(axis=1).max())
    solved = unit * work.k**2 * work.condition * scale
    lifted = unit * work.k * 2**work.frame.dimension * work.spread
    if s.powers:
        lifted *= 1 + 2 * work.spread
    return float(solved + lifted * radius) if np.isfinite(radius) else float(solved)
