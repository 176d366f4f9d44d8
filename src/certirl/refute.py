"""Certified infeasibility: from fresh data, that no value function of a class makes the expert strictly optimal.

For V = wᵀφ the advantage is linear, D_a(s) = w·ρ_a(s) with ρ_a(s)_i = ((P_π − P_a)φ_i)(s), i = 2 … k, and no w has all
of them positive exactly when 0 lies in the closed convex hull of the rows ρ_a(s). That is proved cone by cone: the
w-space is cut into cones, each spanned by k − 1 directions w_v, and cone f is given one mixture x_f = Σ λ_i ρ_{a_i}(s_i)
of rows. If w_v·x_f < 0 for its directions then w·x_f < 0 for every w in it. So finitely many numbers decide, and which
ones is settled before the fresh data are seen. docs/notes/refutation.md has statement, assumptions and proof.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.bases import Basis
from certirl.certify import TailLike, _tail_in_words, check_delta, split
from certirl.concentration import degree, empirical_bernstein, inflation, log_term, spread_points
from certirl.domain import Array, as_domain, freeze
from certirl.estimate import MAX_CONDITION, Operators, estimate
from certirl.moments import accumulate
from certirl.program import least_norm
from certirl.progress import Report
from certirl.simulator import CHUNK, Simulator, check_simulator
from certirl.tail import tail_number
from certirl.transitions import Piece, Transitions

# Cones and mixtures are chosen on this part of the data: a poor choice costs more than a little less data.
CHOICE_SHARE = 0.3
# Each number pays for two failures of probability e^−L: of the second moment, and of the mean on one side.
EVENTS = 2
# Cones are halved until the training data clear the forecast error this many times over, or there are CONES·(k − 1).
COMFORT, CONES = 2.0, 30


@dataclass(frozen=True, eq=False)
class Refutation:
    """With probability at least 1 − δ, min over states and rivals of D_a(s) ≤ ceiling·‖w‖₁ for every V = wᵀφ.

    The class is {R = V − γP_πV : V = Σ w_iφ_i, i ≤ k}, for every discount γ at once; ‖w‖₁ leaves out the constant, w_1.
    Where the refutation holds, the expert is not even weakly optimal, unless the reward is constant.

    Attributes:
        holds: every direction is refuted and the tail was declared: no reward in the class makes the expert optimal.
        kappa: how far below zero the estimate lies in the least clear direction, per unit of ‖w‖₁.
        error: the error of that estimate at most; refuted if kappa is above it, there and so everywhere.
        losses: the parts of the error, by name.
        ceiling: no reward in the class has a margin above this times ‖w‖₁; 0 if all directions are refuted.
        delta: the probability of a false statement, both together.
        assumptions: what must be true besides, in words.
        tail: τ, or None if none was declared.
        states, actions, weights: the witness ``[m, d]``, ``[m]``, ``[m]``: Σ λ_iρ_{a_i}(s_i) is zero, to the ceiling.
        samples: fresh transitions per action.
        samples_needed: an estimate of how many would refute; None if perhaps no number would.
        plan: what was fixed beforehand: bases, expert, cones and mixtures.
    """

    holds: bool
    kappa: float
    error: float
    losses: dict[str, float]
    ceiling: float
    delta: float
    assumptions: tuple[str, ...]
    tail: float | None
    states: Array
    actions: NDArray[np.intp]
    weights: Array
    samples: int
    samples_needed: int | None
    plan: Plan

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def word(self) -> str:
        """One of "certified infeasible", "infeasible, not certified" (no tail declared) and "undetermined"."""
        if self.kappa <= self.error:
            return "undetermined"
        return "certified infeasible" if self.holds else "infeasible, not certified"

    def __str__(self) -> str:
        chance, who = f"with probability {1 - self.delta:g}", f"no reward whose value lies in {self.plan.rows}"
        if self.word == "undetermined":
            first = f"Undetermined: {chance} {who} has a margin above {self.ceiling:.3g} per unit of ‖w‖₁"
            more = "; perhaps no number of them is enough"
            if self.samples_needed is not None:
                more = f"; about {self.samples_needed:,} may show that there is none"
        else:
            first = f"{self.word.capitalize()} {chance}: {who} makes action {self.plan.expert} strictly optimal"
            more = f", in {self.plan.cones} cones of values"
        parts = ", ".join(f"{name} {value:.2g}" for name, value in self.losses.items() if value > 1e-3 * self.error)
        lines = [
            first,
            f"  in the least clear direction the margin is {-self.kappa:.3g}, give or take {self.error:.3g} ({parts})",
            f"  from {self.samples:,} fresh transitions per action{more}",
        ]
        return "\n".join(lines + [f"  assumed: {assumption}" for assumption in self.assumptions])


@dataclass(frozen=True, eq=False)
class Plan:
    """The numbers w_j·Σ_i λ_i ρ_{a_i}(s_i), chosen on training data, that the fresh data will measure.

    Attributes:
        rows, columns: functions of the next state, k, and of the state, k_s.
        expert: π.
        states, actions: the rows of the criterion ``[m, 1]``, ``[m]``.
        mixtures: λ, one for each cone and a last one whose mixture nearly vanishes ``[F + 1, m]``; each sums to 1.
        which: the mixture of each number ``[J]``.
        directions: its w_2 … w_k, of unit ‖·‖₁ ``[J, k − 1]``; the last 2(k − 1) are ±e_i and give the ceiling.
        fits: training estimates of P_cφ_2 … P_cφ_k ``[A, k − 1, k_s]``: control variates, any choice is sound.
    """

    rows: Basis
    columns: Basis
    expert: int
    states: Array
    actions: NDArray[np.intp]
    mixtures: Array
    which: NDArray[np.intp]
    directions: Array
    fits: Array

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def cones(self) -> int:
        """How many cones the w-space is cut into, F."""
        return len(self.mixtures) - 1

    def pulls(self) -> Array:
        """g with Σ_i λ_i((P_π − P_{a_i})f)(s_i) = Σ_c g_c·(coefficients of P_cf), for each number ``[J, A, k_s]``."""
        features = self.columns.values(self.states)
        own = self.actions == np.arange(len(self.fits))[:, None]
        g = -np.einsum("fm,am,mi->fai", self.mixtures, own, features)
        g[:, self.expert] = self.mixtures @ features
        return np.asarray(g[self.which])


def refute(
    source: Simulator | Transitions,
    *,
    expert: int,
    basis: Basis,
    columns: int | None = None,
    delta: float = 0.05,
    tail: TailLike = None,
    samples: int = 100_000,
    rng: Any = None,
    progress: bool | Report | None = None,
) -> Refutation:
    """Prove that no V = wᵀφ has (P_π − P_a)V > 0 at all states for all rivals a, or bound the margin that it can have.

    The discount plays no part: the rewards V − γP_πV have V for the expert's value, whatever γ.

    Args:
        source: a simulator, or transitions, which are divided at random.
        expert: the action π that the expert always takes.
        basis: the functions of V, k of them, the first constant.
        columns: how many functions of the same family describe the state, k_s; k if left out, and may well exceed k.
        delta: the probability of a false statement.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of the columns, as in `certify`; nothing is certified
            without it.
        samples: transitions per action to draw, those for choosing the cones included; for simulators only.
        rng: a seed or Generator; needed with a simulator.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
    """
    check_delta(delta)
    if not isinstance(source, Transitions):
        check_simulator(source)
    if source.n_actions < 2 or not 0 <= expert < source.n_actions:
        raise ValueError(f"expert must be one of at least two actions, 0 … {source.n_actions - 1}, got {expert}")
    if basis.size < 2:
        raise ValueError(f"{basis} holds constants only, which explain nothing: use at least two functions")
    rows = basis.on(as_domain(source.domain))
    narrow = rows.resized(rows.size if columns is None else columns)
    number = tail_number(tail, narrow)
    training, fresh = split(source, narrow, samples, rng, CHOICE_SHARE, progress)
    wide = rows.resized(max(rows.size, narrow.size))
    ((moments,),) = accumulate(training, [(wide, narrow)], n_actions=source.n_actions)
    plan = choose(estimate(moments), rows=rows, expert=expert, delta=delta, tail=number or 0.0)
    return _conclude(plan, _gather(plan, fresh), delta=delta, tail=tail, number=number)


def choose(operators: Operators, *, rows: Basis, expert: int, delta: float, tail: float) -> Plan:
    """Cut the w-space into cones and find for each the mixture of rows that refutes it with the least error."""
    columns, p = operators.basis.resized(operators.columns), rows.size - 1
    rivals = np.array([a for a in range(operators.n_actions) if a != expert], dtype=np.intp)
    grid = columns.grid(4 * columns.size + 1)
    features, fits = columns.values(grid), operators.Z[:, 1 : rows.size]
    noise = operators.noise[:, :, 1 : rows.size, 1 : rows.size]
    contrast = noise[expert, expert] - noise[expert, rivals] - noise[rivals, expert][:, None]
    contrast = contrast + noise[np.ix_(rivals, rivals)]  # covariances of the contrasts with two rivals [R, R, p, p]
    average = np.einsum("aaij->ij", contrast) / len(rivals)
    floor = 1e-9 * float(np.trace(average)) / p or 1.0
    whitener = np.linalg.inv(np.linalg.cholesky(average + floor * np.eye(p)))  # makes the noise of directions round
    fan = _Fan(
        points=np.concatenate([features @ (fits[expert] - fits[a]).T for a in rivals]) @ whitener.T,
        lever=np.linalg.cholesky(operators.precision[expert] * CHOICE_SHARE / (1 - CHOICE_SHARE)).T @ features.T,
        noise=np.einsum("xi,abij,yj->abxy", whitener, contrast, whitener),
        values=whitener @ rows.values(rows.grid(4 * rows.size + 1)).T[1:],
        tail=tail,
        samples=operators.counts.min() * (1 - CHOICE_SHARE) / CHOICE_SHARE,
        L=log_term(EVENTS * p * (CONES * p + 2), delta),
    )
    cones, mixtures = fan.grown()
    directions = np.concatenate([*(cones @ whitener), np.eye(p), -np.eye(p)])
    return Plan(
        rows=rows,
        columns=columns,
        expert=expert,
        states=np.tile(grid, (len(rivals), 1)),
        actions=np.repeat(rivals, len(grid)),
        mixtures=np.vstack([mixtures, fan.vanishing()]),
        which=np.repeat(np.arange(len(cones) + 1), [p] * len(cones) + [2 * p]),
        directions=directions / np.abs(directions).sum(axis=1, keepdims=True),
        fits=fits,
    )


@dataclass(frozen=True, eq=False)
class _Fan:
    """Cones that cover the w-space, in coordinates in which the noise is round; all here is forecast, nothing proved.

    Attributes:
        points: the rows ρ_i ``[m, p]``, rival by rival.
        lever: ``[k_s, n]``; squared lengths are the variances of fits at the n states, for unit noise.
        noise: covariances of the contrasts with two rivals ``[R, R, p, p]``.
        values: φ at some states ``[p, …]``, for the range of w·φ.
        tail, samples, L: of the bounds to come.
    """

    points: Array
    lever: Array
    noise: Array
    values: Array
    tail: float
    samples: float
    L: float

    def grown(self) -> tuple[Array, Array]:
        """Start from a simplex; halve the least clear cone across its widest angle, until all are clear or too many.

        Returns:
            Cones ``[F, p, p]``, one direction per row, and their mixtures ``[F, m]``.
        """
        corners, heap, p = self._simplex(), list[tuple[float, int, Array, Array]](), self.points.shape[1]

        def push(cone: Array, number: int) -> None:
            mixture = self._against(cone)
            heapq.heappush(heap, (self._clearance(cone, mixture), number, cone, mixture))

        for number in range(p + 1):
            push(np.delete(corners, number, axis=0), number)
        while p > 1 and len(heap) < CONES * p and heap[0][0] < COMFORT:
            cone, number = heap[0][2], 2 * len(heap)
            if (self.points @ cone.T).min(axis=0).max() >= 0:
                break  # one of its directions is a reward, as far as the training data know
            i, j = divmod(int((cone @ cone.T).argmin()), p)
            between = (cone[i] + cone[j]) / np.linalg.norm(cone[i] + cone[j])
            heapq.heappop(heap)
            for replaced in (i, j):
                half = cone.copy()
                half[replaced] = between
                push(half, number + (replaced == j))
        return np.array([entry[2] for entry in heap]), np.array([entry[3] for entry in heap])

    def vanishing(self) -> Array:
        """The mixture closest to zero, error included: ``[m]``."""
        system = np.vstack([self.points.T, self._error_form(np.eye(self.points.shape[1]))])
        heavy = 1e3 * float(np.abs(system).max())
        return self._weights(np.vstack([system, np.full(len(self.points), heavy)]), np.append(0 * system[:, 0], heavy))

    def _simplex(self) -> Array:
        """p + 1 unit vectors with sum zero; the first one is a reward, if the training data allow any."""
        p = self.points.shape[1]
        corners = np.linalg.svd(np.eye(p + 1) - 1 / (p + 1))[0][:, :p] * np.sqrt(1 + 1 / p)
        reward, _ = least_norm(self.points / (float(np.linalg.norm(self.points, axis=1).max()) or 1.0))
        if reward is not None:  # reflect the first corner into it
            mirror = corners[0] - reward / np.linalg.norm(reward)
            corners = corners - 2 * np.outer(corners @ mirror, mirror) / max(float(mirror @ mirror), 1e-30)
        return corners

    def _spans(self, cone: Array) -> Array:
        return np.asarray(np.ptp(cone @ self.values, axis=1))

    def _error_form(self, cone: Array) -> Array:
        """B with |Bλ| about the error of w·x(λ), averaged over the directions of the cone: ``[R k_s, m]``."""
        rivals, square = len(self.noise), float((self._spans(cone) ** 2).mean())
        form = 2 * self.L * np.einsum("vi,abij,vj->ab", cone, self.noise, cone) / len(cone)
        range_term = (2.3 * self.L) ** 2 * float((self.lever**2).sum(axis=0).max())
        tail_term = self.samples * self.tail**2 / 4 * (rivals + 1)
        form = form + square * ((range_term + tail_term) * np.eye(rivals) + tail_term)
        return np.kron(np.linalg.cholesky(form).T, self.lever)

    def _against(self, cone: Array) -> Array:
        """The λ ≥ 0 with w_v·x(λ) ≤ −1 for all directions of the cone and the least error, scaled to sum 1: ``[m]``."""
        p, error = len(cone), self._error_form(cone)
        pull = cone @ self.points.T + self.tail * self._spans(cone)[:, None]
        pull, heavy = pull / (float(np.abs(pull).max()) or 1.0), 1e3 * float(np.abs(error).max())
        system = np.block([[error, np.zeros((len(error), p))], [heavy * pull, heavy * np.eye(p)]])
        return self._weights(system, np.concatenate([np.zeros(len(error)), np.full(p, -heavy)]))

    def _weights(self, system: Array, goal: Array) -> Array:
        """Non-negative least squares, the first m unknowns scaled to sum 1; even weights where it fails."""
        from scipy.optimize import nnls

        weights = np.zeros(system.shape[1])
        with contextlib.suppress(RuntimeError):
            weights, _ = nnls(system, goal, maxiter=30 * sum(system.shape))
        weights = weights[: len(self.points)]
        return weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))

    def _clearance(self, cone: Array, mixture: Array) -> float:
        """Forecast of −w·x/error in the worst direction of the cone: above 1 it is refuted."""
        g = mixture.reshape(len(self.noise), -1) @ self.lever.T
        variance = np.einsum("vi,abij,vj,ab->v", cone, self.noise, cone, g @ g.T)
        spans, reach = self._spans(cone), np.linalg.norm(np.vstack([g, g.sum(axis=0)]), axis=1).sum()
        error = empirical_bernstein(variance, spans * np.abs(g @ self.lever).sum(axis=0).max(), self.L)
        error = error + self.tail * spans / 2 * (2 + np.sqrt(self.samples) * reach)
        return float((-(cone @ (mixture @ self.points)) / np.maximum(error, 1e-300)).min())


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over fresh transitions of z = x ⊗ (φ(s') − P̂_cφ(s)), the surprises of every action, with x = φ(s).

    Attributes:
        counts: ``[A]``.
        gram: Σ x xᵀ ``[A, k_s, k_s]``.
        first: Σ z ``[A, k_s, k − 1]``.
        second: Σ z zᵀ ``[A, k_s (k − 1), A, k_s (k − 1)]``; zero between actions unless paired.
        paired: every state was tried with every action.
    """

    counts: NDArray[np.int64]
    gram: Array
    first: Array
    second: Array
    paired: bool


def _gather(plan: Plan, stream: Iterable[Piece]) -> _Sums:
    """Walk through fresh data once; memory does not grow with its length."""
    A, p, ks = plan.fits.shape
    counts, gram, paired = np.zeros(A, dtype=np.int64), np.zeros((A, ks, ks)), True
    first, second = np.zeros((A, ks, p)), np.zeros((A, ks * p, A, ks * p))
    for piece in stream:
        chosen = list(piece.actions)
        x = plan.columns.values(piece.states).T
        ends = np.array([plan.rows.values(s).T[1:] for s in piece.next_states])
        surprise = ends - plan.fits[chosen] @ x
        z = (x[:, None] * surprise[:, None]).reshape(len(chosen) * ks * p, -1)
        counts[chosen] += x.shape[1]
        gram[chosen] += x @ x.T
        first[chosen] += z.sum(axis=1).reshape(-1, ks, p)
        products = (z @ z.T).reshape(len(chosen), ks * p, len(chosen), ks * p)
        for i, c in enumerate(chosen):
            second[c][:, chosen] += products[i]
        paired &= len(chosen) == A
    if (counts <= ks).any() or (np.linalg.cond(gram) > MAX_CONDITION).any():
        raise ValueError("the fresh states cannot tell the columns apart: use more data or fewer columns")
    return _Sums(counts, gram, first, second, bool(paired))


class _Bounds:
    """For each number of the plan, its estimate from fresh data and what its error is made of."""

    def __init__(self, plan: Plan, sums: _Sums, tail: float) -> None:
        g, w = plan.pulls(), plan.directions
        q = np.einsum("jci,cih->jch", g, np.linalg.inv(sums.gram))  # a fresh x adds the term Σ_c (q_c·x)(w·surprise)
        theta = np.einsum("jci,jl->jcil", q, w).reshape(len(w), -1)
        low, high = _ranges(plan)
        self.estimate = np.einsum("jci,cli,jl->j", g, plan.fits, w) + theta @ sums.first.ravel()
        self.observed = ((theta @ sums.second.reshape(len(theta[0]), -1)) * theta).sum(axis=1)
        self.bound = _largest_term(plan, q, low, high, paired=sums.paired)
        reach = np.sqrt(sums.counts * np.einsum("jci,cih,jch->jc", q, sums.gram, q)).sum(axis=1)  # ≥ Σ|q_c·x|
        self.tail = tail * (high - low) / 2 * (2 + reach)
        rounding = (CHUNK + sums.counts.max() / CHUNK) * np.finfo(float).eps * plan.columns.size**2
        self.floating = rounding * float(np.linalg.cond(sums.gram).max()) * (high - low)

    def errors(self, L: float, more: float = 1.0) -> Array:
        """Estimation, tail and rounding ``[3, J]``, from the data or forecast for ``more`` times as much."""
        return np.array([empirical_bernstein(self.observed / more, self.bound / more, L), self.tail, self.floating])


def _ranges(plan: Plan) -> tuple[Array, Array]:
    """Bounds on w·φ(s') for each number, from a grid and the inequality of Ehlich and Zeller."""
    count = 20 * plan.rows.size
    values = plan.directions @ plan.rows.values(spread_points(plan.rows, count)).T[1:]
    middle, half = (values.max(axis=1) + values.min(axis=1)) / 2, np.ptp(values, axis=1) / 2
    half = half * inflation(plan.rows.kind, degree(plan.rows), count)
    return middle - half, middle + half


def _largest_term(plan: Plan, q: Array, low: Array, high: Array, *, paired: bool) -> Array:
    """sup over states and next states of the terms, for each number: products of two expansions, up to signs.

    With paired data Σ_c q_c = 0 and the term is −Σ_a (q_a·x)(w·contrast), where a contrast spans high − low.
    """
    count = 20 * plan.columns.size
    dense = plan.columns.values(spread_points(plan.columns, count)).T
    total, span = np.zeros((len(q), count)), (high - low)[:, None]
    for action, fit in enumerate(plan.fits):
        weight, fitted = np.abs(q[:, action] @ dense), plan.directions @ fit @ dense
        if paired and action != plan.expert:
            total += weight * (span + np.abs(plan.directions @ plan.fits[plan.expert] @ dense - fitted))
        elif not paired:
            total = np.maximum(total, weight * np.maximum(high[:, None] - fitted, fitted - low[:, None]))
    return np.asarray(inflation(plan.columns.kind, 2 * degree(plan.columns), count) * total.max(axis=1))


def _conclude(plan: Plan, sums: _Sums, *, delta: float, tail: TailLike, number: float | None) -> Refutation:
    """Compare the estimates with their errors: the cones refute, the last directions give the ceiling."""
    bounds, cones = _Bounds(plan, sums, number or 0.0), slice(None, -2 * (plan.rows.size - 1))
    L, samples = log_term(EVENTS * len(plan.which), delta), int(sums.counts.min())
    parts = bounds.errors(L)
    above, errors = bounds.estimate + parts.sum(axis=0), parts.sum(axis=0)
    worst = int((bounds.estimate / errors)[cones].argmax())
    refuted, witness = bool(above[cones].max() < 0), np.flatnonzero(plan.mixtures[-1] > 1e-9)
    draws = "states, each tried with every action," if sums.paired else "transitions"
    return Refutation(
        holds=refuted and number is not None,
        kappa=-float(bounds.estimate[worst]),
        error=float(errors[worst]),
        losses=dict(zip(("estimation", "truncation tail", "floating point"), parts[:, worst].tolist(), strict=True)),
        ceiling=0.0 if refuted else max(float(above[cones.stop :].max()), 0.0),
        delta=delta,
        assumptions=(
            _tail_in_words(tail, number, plan.columns),
            f"given the states, the fresh {draws} are independent of each other",
        ),
        tail=number,
        states=plan.states[witness],
        actions=plan.actions[witness],
        weights=plan.mixtures[-1][witness] / plan.mixtures[-1][witness].sum(),
        samples=samples,
        samples_needed=_samples_needed(bounds, cones, L, samples),
        plan=plan,
    )


def _samples_needed(bounds: _Bounds, cones: slice, L: float, samples: int) -> int | None:
    """How many fresh transitions per action should do, if the estimates stay what they are; None if none would."""
    for more in 2.0 ** np.arange(-12, 31, 0.25):
        if (bounds.estimate + bounds.errors(L, more).sum(axis=0))[cones].max() < 0:
            return int(np.ceil(samples * more))
    return None
