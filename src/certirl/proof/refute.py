"""Certified infeasibility: from fresh data, that no value function of a class makes the expert strictly optimal.

For V = wᵀφ the advantage is linear, D_a(s) = w·ρ_a(s) with ρ_a(s)_i = ((P_π − P_a)φ_i)(s), i = 2 … k, whether π is one
action or depends on s, and no w has all of them positive as soon as 0 lies in the convex hull of the rows ρ_a(s). That
is proved cone by cone: the w-space is cut into cones, each spanned by k − 1 directions w_v, and each cone is given one
mixture x = Σ λ_i ρ_{a_i}(s_i) of rows. If w_v·x < 0 for the directions of a cone then w·x < 0 for every w in it. So
finitely many numbers decide, and which they are is settled before the fresh data are seen. docs/notes/refutation.md has
statement, assumptions and proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.moments import accumulate
from certirl.data.policy import Policy, as_policy
from certirl.data.simulator import Simulator
from certirl.data.transitions import Piece, Transitions, counted
from certirl.fit.bellman import check_expert
from certirl.fit.conflicts import Conflict, Contests, contests
from certirl.fit.estimate import Operators, estimate
from certirl.functions.bases import MOST_FUNCTIONS, Basis, as_basis
from certirl.functions.inequalities import degree, empirical_bernstein, inflation, log_term, spread_points
from certirl.ground.domain import Array, as_domain, freeze, one_coordinate
from certirl.ground.doors import as_count
from certirl.ground.progress import Report
from certirl.ground.work import on
from certirl.proof.bounds import summation_error
from certirl.proof.certify import (
    FIT_SHARE,
    check_delta,
    check_endless,
    check_enough,
    check_settings,
    independence,
    least_enough,
    split,
)
from certirl.proof.certify_policies import allowed_tube
from certirl.proof.cones import CONES, Fan
from certirl.proof.surprises import Expected, Surprises, gather
from certirl.proof.tail import TailLike, tail_in_words, tail_number
from certirl.proof.weigh import check_columns

# Each number pays for two failures of probability e^−L: of the second moment, and of the mean on one side.
EVENTS = 2


@dataclass(frozen=True, eq=False)
class Refutation:
    """With probability at least 1 − δ, min over states and rivals of D_a(s) ≤ ceiling·‖w‖₁ for every V = wᵀφ.

    The class is {R = V − γP_πV : V = Σ w_iφ_i, i ≤ k}, for every discount γ at once; ‖w‖₁ leaves out the constant, w_1.
    Where the refutation holds, the expert is not even weakly optimal, unless the reward is constant. Of an expert who
    switches that is said of states farther than the plan's tube from its switches, and so is the ceiling.

    Attributes:
        holds: every direction is refuted and the tail was declared: no reward in the class makes the expert optimal.
        kappa: how far below zero the estimate lies in the least clear direction, per unit of ‖w‖₁.
        error: the error of that estimate at most; refuted if kappa is above it, there and so everywhere.
        losses: the parts of the error, by name.
        ceiling: no reward in the class has a margin above this times ‖w‖₁; 0 if all directions are refuted.
        delta: the probability of a false statement, both together.
        assumptions: what must be true besides, in words.
        tail: τ, or None if none was declared.
        states, actions, weights: the witness ``[m, d]``, ``[m]``, ``[m]``: Σ λ_iρ_{a_i}(s_i) is nearly zero.
        remainder: no entry of that sum is larger.
        taken: what the expert does at these states ``[m]``; the likeliest where it mixes.
        samples, most_samples: fresh transitions per action, the fewest and the most.
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
    taken: NDArray[np.intp]
    remainder: float
    samples: int
    most_samples: int
    samples_needed: int | None
    plan: Plan

    def __post_init__(self) -> None:
        freeze(self)

    def __str__(self) -> str:
        chance = f"with probability {1 - self.delta:g}" + ("" if self.tail is not None else " (if the tail is zero)")
        who = f"no reward whose value lies in {self.plan.rows}"
        if not self.refuted:
            first = (
                f"Undetermined: {chance} {who} has a margin above {self.ceiling:.3g} per unit of ‖w‖₁{self.plan.where}"
            )
            needed = "perhaps no number" if self.samples_needed is None else f"about {self.samples_needed:,}"
            more = f"; {needed} would show that none has any"
        else:
            word = "Certified infeasible" if self.holds else "Not certified, but infeasible"
            first = f"{word} {chance}: {who} makes {self.plan.whom} strictly optimal{self.plan.where}"
            more = f", in {len(self.plan.mixtures) - 1} cones of values"
        parts = ", ".join(f"{name} {value:.2g}" for name, value in self.losses.items() if value >= 1e-3 * self.error)
        worst = f"  in the least clear direction the margin is {-self.kappa:.3g}, ± {self.error:.3g}: {parts}"
        data = f"  from {counted((self.samples, self.most_samples))} fresh transitions per action{more}"
        named = [f"  conflict: {self.conflict}"] if self.plan.expert is None and self.refuted else []
        return "\n".join([first, worst, data, *named, *(f"  assumed: {assumption}" for assumption in self.assumptions)])

    @property
    def refuted(self) -> bool:
        """Every direction is, by the estimates and their errors; it is proved if the tail was declared."""
        return self.kappa > self.error

    @property
    def estimated(self) -> float:
        """The margin in the least clear direction, per unit of ‖w‖₁."""
        return -self.kappa

    @property
    def word(self) -> str:
        """How sure it is."""
        return "certified infeasible" if self.holds else "infeasible" if self.refuted else "undetermined"

    @property
    def conflict(self) -> Conflict:
        """The witness as a record that says what the expert does where, and instead of what."""
        return Conflict(self.states, self.taken, self.actions, self.weights, self.remainder, str(self.plan.rows))


@dataclass(frozen=True, eq=False)
class Plan:
    """The numbers w_j·Σ_i λ_i ρ_{a_i}(s_i), chosen on training data, that the fresh data will measure.

    Attributes:
        rows, columns: functions of the next state, k, and of the state, k_s.
        expert: the action it always takes; None if it depends on the state.
        states, actions: the rows of the criterion ``[m, 1]``, ``[m]``.
        contrast: π_c(s_i) − 1_{c=a_i}, how much of P_c is in row i ``[m, A]``.
        mixtures: λ, one for each cone and a last one whose mixture nearly vanishes ``[F + 1, m]``; each sums to 1.
        which: the mixture of each number ``[J]``.
        directions: its w_2 … w_k, of unit ‖·‖₁ ``[J, k − 1]``; the last 2(k − 1) are ±e_i and give the ceiling.
        fits: training estimates of P_cφ_2 … P_cφ_k ``[A, k − 1, k_s]``: control variates, any choice is sound.
        tube: all states are farther than this from the expert's switches.
        notes: what must be believed of the expert, in words.
    """

    rows: Basis
    columns: Basis
    expert: int | None
    states: Array
    actions: NDArray[np.intp]
    contrast: Array
    mixtures: Array
    which: NDArray[np.intp]
    directions: Array
    fits: Array
    tube: float = 0.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def whom(self) -> str:
        """The expert, in words."""
        return "the expert" if self.expert is None else f"action {self.expert}"

    @property
    def where(self) -> str:
        """The states that are spoken of, in words."""
        return f" farther than {self.tube:.3g} from its switches" if self.tube else ""

    def pulls(self) -> Array:
        """g with Σ_i λ_i((P_π − P_{a_i})f)(s_i) = Σ_c g_c·(coefficients of P_cf), for each number ``[J, A, k_s]``."""
        features = self.columns.values(self.states)
        g = np.einsum("fm,mc,mi->fci", self.mixtures, self.contrast, features, optimize=True)
        return np.asarray(g[self.which])


def refute(
    source: Simulator | Transitions,
    *,
    expert: Any,
    basis: Basis,
    columns: int | None = None,
    delta: float = 0.05,
    tail: TailLike = None,
    samples: int | None = None,
    rng: Any = None,
    paired: bool | None = None,
    progress: bool | Report | None = None,
    map: Any = None,
    tube: float | None = None,
) -> Refutation:
    """Prove that no V = wᵀφ has (P_π − P_a)V > 0 at all states for all rivals a, or bound the margin that it can have.

    The discount plays no part: the rewards V − γP_πV have V for the expert's value, whatever γ.

    Args:
        source: a simulator, or transitions, which are divided at random.
        expert: the action π that the expert always takes; or a function of states ``[n, d]`` to actions ``[n]`` or to
            probabilities ``[n, A]``.
        basis: the functions of V, k of them, the first constant.
        columns: how many functions of the same family describe the state, k_s; k if left out, and may well exceed k.
        delta: the probability of a false statement.
        tail: how far P_a f, |f| ≤ 1, can lie outside the span of the columns, as in `certify`; nothing is certified
            without it.
        samples: transitions per action to draw, those for choosing the cones included, 100,000 if left out; for
            simulators only.
        rng: a seed or Generator; needed with a simulator.
        paired: ask a simulator with the same states and random numbers for every action, so that noise cancels between
            actions; left out, it is done where a trial shows that rows keep their random numbers.
        progress: True, False, a function ``(done, total)``, or None for a line if standard error is a terminal.
        map: where to work through data: a number of threads, a Dask client or an executor; threads on all cores if
            left out. Results do not depend on it.
        tube: a half-width, for experts who switch: nothing is held against what it does nearer to a switch, where
            little is at stake and a switch may be known only roughly; a fortieth of the domain's width if left out.
    """
    delta = check_delta(delta)
    samples = check_settings(source, samples, tail=tail, paired=paired, progress=progress)
    one_coordinate(as_domain(source.domain), "a refutation is")
    rows = as_basis(basis, as_domain(source.domain), like="certirl.Legendre(5)")
    policy = _check(source, expert, rows, tube)
    if columns is not None:
        columns = as_count(columns, "columns", most=MOST_FUNCTIONS, meaning="a whole number of functions of the state")
    narrow = rows.resized(rows.size if columns is None else columns)
    check_columns(narrow)
    check_enough(source, samples, narrow.size)
    number = tail_number(tail, narrow)
    allowed = 0.0 if policy.constant is not None else allowed_tube(tube, rows.domain)
    rivalry = contests(policy, narrow, tube=allowed)
    training, fresh = split(source, narrow, samples, rng, FIT_SHARE, progress, role="refute", paired=paired)
    with on(map):
        plan = settle(training, rows, narrow, rivalry, delta=delta, tail=number or 0.0)
        (seen,) = gather([Expected(plan.rows, plan.columns, plan.fits)], fresh)
    return conclude(plan, seen, numbers=len(plan.which), delta=delta, tail=tail)


def _check(source: Any, expert: Any, basis: Basis, tube: float | None) -> Policy:
    """The expert, if it and the rest can be asked about."""
    check_endless(source)
    alone = not callable(expert) and not hasattr(expert, "predict")
    if alone or source.n_actions < 2:
        check_expert(expert if alone else 0, source.n_actions)
    if alone and tube is not None:
        raise ValueError("an expert who always takes one action never switches: leave tube out")
    if basis.size < 2:
        raise ValueError(f"{basis} holds constants only, which explain nothing: use at least two functions")
    return as_policy(expert, source.n_actions)


def settle(
    training: Iterable[Piece], rows: Basis, columns: Basis, rivalry: Contests, *, delta: float, tail: float
) -> Plan:
    """What fresh data will be asked, from training data alone; arguments as for `choose`."""
    wide = rows.resized(max(rows.size, columns.size))
    ((moments,),) = accumulate(training, [(wide, columns)], n_actions=rivalry.policy.n_actions)
    return choose(estimate(moments), rows=rows, rivalry=rivalry, delta=delta, tail=tail)


def choose(
    operators: Operators,
    *,
    rows: Basis,
    rivalry: Contests,
    delta: float,
    tail: float,
    shares: Array | None = None,
    most: int | None = None,
) -> Plan:
    """Cut the w-space into ``most`` cones and find for each the mixture of rows that refutes it with the least error.

    With ``shares`` ν ``[A − 1]``, for an expert of one action, the weights of every mixture add up to ν_a over the rows
    of rival a.
    """
    columns, p, contrast = operators.basis.resized(operators.columns), rows.size - 1, rivalry.contrast
    features, fits = columns.values(rivalry.states), operators.Z[:, 1 : rows.size]
    noise = operators.noise[:, :, 1 : rows.size, 1 : rows.size]
    variances, vectors = np.linalg.eigh(np.einsum("cd,cdij->ij", contrast.T @ contrast, noise) / len(contrast))
    top = variances[-1] if variances[-1] > 1e-12 else np.inf  # next to nothing is rounding: deterministic dynamics
    whitener = np.linalg.inv(np.linalg.cholesky((vectors * np.maximum(variances / top, 1e-9)) @ vectors.T))
    precision = operators.precision.mean(axis=0) * FIT_SHARE / (1 - FIT_SHARE)
    fan = Fan(
        points=np.einsum("mc,cij,mj->mi", contrast, fits, features, optimize=True) @ whitener.T,
        contrast=contrast,
        lever=np.linalg.cholesky(precision).T @ features.T,
        noise=np.einsum("xi,abij,yj->abxy", whitener, noise, whitener, optimize=True),
        values=whitener @ rows.values(rows.grid(4 * rows.size + 1)).T[1:],
        tail=tail if np.isfinite(tail) else 0.0,
        samples=operators.counts.min() * (1 - FIT_SHARE) / FIT_SHARE,
        L=log_term(EVENTS * p * (CONES + 2), delta),
        shares=shares,
        most=CONES if most is None else most,
    )
    cones, mixtures = fan.grown()
    axes = np.vstack([np.eye(p), -np.eye(p)])
    directions = np.vstack([*(cones @ whitener), axes])
    return Plan(
        rows=rows,
        columns=columns,
        expert=rivalry.policy.constant,
        states=rivalry.states,
        actions=rivalry.actions,
        contrast=contrast,
        mixtures=np.vstack([mixtures, fan.vanishing(axes @ np.linalg.inv(whitener))]),
        which=np.repeat(np.arange(len(cones) + 1), [p] * len(cones) + [2 * p]),
        directions=directions / np.abs(directions).sum(axis=1, keepdims=True),
        fits=fits,
        tube=rivalry.tube,
        notes=rivalry.notes,
    )


class _Bounds:
    """For each number of the plan, its estimate from fresh data and what its error is made of."""

    def __init__(self, plan: Plan, sums: Surprises, tail: float) -> None:
        g, w = plan.pulls(), plan.directions
        q = np.einsum("jci,cih->jch", g, np.linalg.inv(sums.gram))  # a fresh x adds the term Σ_c (q_c·x)(w·surprise)
        theta = np.einsum("jci,jl->jcil", q, w).reshape(len(w), -1)
        count = 20 * plan.rows.size
        values = w @ plan.rows.values(spread_points(plan.rows, count)).T[1:]
        middle, half = (values.max(axis=1) + values.min(axis=1)) / 2, np.ptp(values, axis=1) / 2
        half = half * inflation(plan.rows.kind, degree(plan.rows), count)  # w·φ stays within middle ± half
        self.estimate = np.einsum("jci,cli,jl->j", g, plan.fits, w) + theta @ sums.first.ravel()
        self.observed = ((theta @ sums.second.reshape(len(theta[0]), -1)) * theta).sum(axis=1)
        self.bound = _largest_term(plan, q, middle, half, paired=sums.paired)
        reach = np.sqrt(sums.counts * np.einsum("jci,cih,jch->jc", q, sums.gram, q)).sum(axis=1)  # ≥ Σ|q_c·x|
        self.tail = tail * half * (2 + reach)
        self.floating = summation_error(sums.counts, sums.gram) * (np.abs(middle) + 3 * half)

    def errors(self, L: float, more: float = 1.0) -> Array:
        """Estimation, tail and rounding ``[3, J]``, from the data or forecast for ``more`` times as much."""
        return np.array([empirical_bernstein(self.observed / more, self.bound / more, L), self.tail, self.floating])


def _largest_term(plan: Plan, q: Array, middle: Array, half: Array, *, paired: bool) -> Array:
    """sup over states and next states of the terms, for each number: products of two expansions, up to signs.

    With paired data Σ_c q_c = 0, so that the middle of the range drops out of the sum over the actions.
    """
    count = 20 * plan.columns.size
    dense = plan.columns.values(spread_points(plan.columns, count)).T
    total, fitted_part = np.zeros((len(q), count)), np.zeros((len(q), count))
    for action, fit in enumerate(plan.fits):
        weight, fitted = q[:, action] @ dense, plan.directions @ fit @ dense - middle[:, None]
        if paired:
            total, fitted_part = total + half[:, None] * np.abs(weight), fitted_part + weight * fitted
        else:
            total = np.maximum(total, np.abs(weight) * (half[:, None] + np.abs(fitted)))
    largest = (total + np.abs(fitted_part)).max(axis=1)
    return np.asarray(inflation(plan.columns.kind, 2 * degree(plan.columns), count) * largest)


def conclude(plan: Plan, sums: Surprises, *, numbers: int, delta: float, tail: TailLike) -> Refutation:
    """Compare the estimates with their errors: the cones refute, the last directions give the ceiling.

    So many ``numbers`` share δ, those of other plans included.
    """
    number = tail_number(tail, plan.columns)
    bounds, cones = _Bounds(plan, sums, number or 0.0), slice(None, -2 * (plan.rows.size - 1))
    L, samples = log_term(EVENTS * numbers, delta), int(sums.counts.min())
    parts = bounds.errors(L)
    above, errors = bounds.estimate + parts.sum(axis=0), parts.sum(axis=0)
    worst = int((bounds.estimate / errors)[cones].argmax())
    refuted, witness = bool(above[cones].max() < 0), np.flatnonzero(plan.mixtures[-1] > 1e-9)
    remainder = max(float(above[cones.stop :].max()), 0.0)

    def enough(n: int) -> bool:
        return bool((bounds.estimate + bounds.errors(L, n / samples).sum(axis=0))[cones].max() < 0)

    return Refutation(
        holds=refuted and number is not None,
        kappa=-float(bounds.estimate[worst]),
        error=float(errors[worst]),
        losses=dict(zip(("estimation", "truncation tail", "floating point"), parts[:, worst].tolist(), strict=True)),
        ceiling=0.0 if refuted else remainder,
        delta=delta,
        assumptions=(tail_in_words(tail, number, plan.columns), independence(paired=sums.paired), *plan.notes),
        tail=number,
        states=plan.states[witness],
        actions=plan.actions[witness],
        weights=plan.mixtures[-1][witness] / plan.mixtures[-1][witness].sum(),
        taken=plan.contrast[witness].argmax(axis=1),
        remainder=remainder,
        samples=samples,
        most_samples=int(sums.counts.max()),
        samples_needed=least_enough(enough, 10 * plan.columns.size, samples * 2**20),
        plan=plan,
    )
