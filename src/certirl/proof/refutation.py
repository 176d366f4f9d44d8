"""Refutation: proved from fresh data that no value function of a class makes the expert strictly optimal.

Every bound follows from what was fixed beforehand (`value_cones.Cover`) and the sums over fresh data
(`function_residuals.ResidualSums`), both kept in the record. docs/notes/refutation.md has statement and proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from certirl.data.transitions import counted
from certirl.fit.witness import Witness
from certirl.functions.frame import frame
from certirl.functions.inequalities import sloped
from certirl.ground import archive
from certirl.ground.domain import Array
from certirl.proof.bounds import sum_error, summation_error
from certirl.proof.case import Case
from certirl.proof.certificate import independence, least_enough
from certirl.proof.certify_components import SEPARATE
from certirl.proof.function_residuals import ResidualSums, pairs_of
from certirl.proof.tail import tail_in_words
from certirl.proof.value_cones import Cover

CEILING = 0.1  # of δ, for the bound on the margin of any value function; the rest is for the cones
_LEAST = 1e-3  # of what the cones get, shared evenly: a forecast that a number is clear may be wrong
_SAFE = 0.75  # error/κ that a forecast must fall below: estimates on other data are not the same
_STEEPEST = 0.95  # the largest slope: a forecast second moment may be too small


@archive.record
@dataclass(frozen=True, eq=False)
class RefutationGround:
    """What a refutation rests on, for one component.

    Attributes:
        cover: what was fixed beforehand.
        sums: over fresh data.
        tail: τ; None if none was declared.
    """

    cover: Cover
    sums: ResidualSums
    tail: float | None


@archive.record
@dataclass(frozen=True, eq=False)
class Refutation:
    """With probability at least 1 − δ, min over states and actions of D_a(s) ≤ ceiling·‖w‖₁ for every V = w·ψ.

    The class is {R = V − γP_πV : V = Σ w_iψ_i}, or sums of such over components, for every discount γ at once; ‖w‖₁
    leaves out constants. Where it holds, the expert is not even weakly optimal unless the reward is constant. Of an
    expert that switches this is said for states farther than ``tube`` from its switches, and so is the ceiling.

    Attributes:
        kappa: how far below zero the estimate is in the least clear direction, per unit of ‖w‖₁.
        error: the bound on the error of that estimate; refuted if kappa is above it, there and so everywhere.
        losses: the parts of the error, by name.
        ceiling: no V of the class has a margin above this times ‖w‖₁; 0 if all directions are refuted.
        delta: the probability of a false statement, all together.
        spending: how δ was split, by name.
        assumptions: what must be true besides, in words.
        witness: states and actions whose comparisons nearly cancel out; of the component that is least clear.
        tube: the half-width around the switches within which nothing is compared; 0 without switches.
        samples_needed: an estimate of the fresh transitions per action that would refute; None if perhaps no number.
        grounds: one for each component; all numbers above follow from them.
    """

    kappa: float
    error: float
    losses: dict[str, float]
    ceiling: float
    delta: float
    spending: dict[str, float]
    assumptions: tuple[str, ...]
    witness: Witness
    tube: float
    samples_needed: int | None
    grounds: tuple[RefutationGround, ...]

    @property
    def refuted(self) -> bool:
        """Every direction is, by the estimates and their errors; it is proved if the tail was declared."""
        return self.kappa > self.error

    @property
    def holds(self) -> bool:
        """Every direction is refuted and the tail was declared: no reward of the class makes the expert optimal."""
        return self.refuted and self.tail is not None

    @property
    def tail(self) -> float | None:
        """τ, the largest of all components; None if none was declared."""
        tails = [ground.tail for ground in self.grounds]
        return None if None in tails else max(tail for tail in tails if tail is not None)

    @property
    def samples(self) -> int:
        """Fresh transitions per action, the fewest."""
        return int(self.grounds[0].sums.counts.min())

    @property
    def estimated(self) -> float:
        """The margin in the least clear direction, per unit of ‖w‖₁."""
        return -self.kappa

    @property
    def word(self) -> str:
        """One of "certified infeasible", "infeasible" (no tail was declared) and "undetermined"."""
        return "certified infeasible" if self.holds else "infeasible" if self.refuted else "undetermined"

    @property
    def claim(self) -> str:
        """What is refuted, in words: "no reward whose value lies in … makes … strictly optimal …"."""
        used = self.grounds[0].cover.probabilities.argmax(axis=1)
        sure = bool((self.grounds[0].cover.probabilities[:, used[0]] == 1).all())
        expert = f"action {used[0]}" if sure else "the expert"
        return f"{self._rewards} makes {expert} strictly optimal{self._where}"

    @property
    def _rewards(self) -> str:
        classes = ", ".join(sorted({str(ground.cover.functions) for ground in self.grounds}))
        if len(self.grounds) == 1:
            return f"no reward whose value lies in {classes}"
        return f"no sum of rewards whose values lie in {classes} of each component"

    @property
    def _where(self) -> str:
        return f" farther than {self.tube:.3g} from its switches" if self.tube else ""

    def __str__(self) -> str:
        chance = f"with probability {1 - self.delta:g}" + ("" if self.tail is not None else " (if the tail is zero)")
        if self.refuted:
            first = f"{'Certified' if self.holds else 'Not certified, but'} infeasible {chance}: {self.claim}"
            more = f", in {sum(ground.cover.cones for ground in self.grounds)} cones of values"
        else:
            bound = f"has a margin above {self.ceiling:.3g} per unit of ‖w‖₁{self._where}"
            first = f"Undetermined: {chance} {self._rewards} {bound}"
            needed = "perhaps no number" if self.samples_needed is None else f"about {self.samples_needed:,}"
            more = f"; {needed} would show that none has any"
        parts = ", ".join(f"{name} {value:.2g}" for name, value in self.losses.items() if value >= 1e-3 * self.error)
        lines = [
            first,
            f"  in the least clear direction the margin is {-self.kappa:.3g}, ± {self.error:.3g}: {parts}",
            f"  from {counted(self.grounds[0].sums.counts)} fresh transitions per action{more}",
            *([f"  conflict: {self.witness}"] if self.refuted else []),
        ]
        return "\n".join([*lines, *(f"  assumed: {assumption}" for assumption in self.assumptions)])


class Bounds:
    """For every number of a cover its estimate from fresh data and what its error is made of.

    Attributes:
        estimate: of w·x ``[N]``.
        observed: ΣZ² of the terms that it is a sum of ``[N]``.
        bound: |Z| is at most this ``[N]``.
        tail, floating: bounds on the bias and on rounding ``[N]``.
        cones: which numbers belong to cones ``[N]``; the others give the ceiling.
    """

    def __init__(self, cover: Cover, sums: ResidualSums, tail: float) -> None:
        columns, which, w = frame(cover.columns), cover.which, cover.directions
        gram, g = columns.lifted(sums.gram), cover.pulls
        q = np.linalg.solve(gram, g[..., None])[..., 0]  # a fresh state adds the term Σ_c (q_c·x)(w·E_c)
        means = np.einsum("fck,cik->fi", g, cover.fits) + np.einsum("fck,cik->fi", q, sums.residuals)
        self.estimate = np.einsum("ni,ni->n", means[which], w)
        moments, rounding = _second_moments(cover, sums, q), _rounding(cover, sums, q)
        self.observed = np.einsum("ni,nij,nj->n", w, moments[which], w, optimize=True)
        self.observed += (np.abs(w) * rounding[which]).sum(axis=1) ** 2
        middle, half = _ranges(cover)
        self.bound = _largest_terms(cover, q, middle, half, paired=sums.paired)
        reach = np.sqrt(sums.counts * np.einsum("fck,ckl,fcl->fc", q, gram, q, optimize=True)).sum(axis=1)  # ≥ Σ|q_c·x|
        self.tail = tail * half * (2 + reach[which]) if tail else np.zeros(len(w))
        self.floating = summation_error(sums.counts, gram) * (np.abs(middle) + 3 * half)
        self.cones = which < cover.cones

    def errors(self, cover: Cover, delta: float) -> Array:
        """Estimation, tail and rounding ``[3, N]``."""
        log_terms = -np.log(delta * cover.shares)
        estimation = sloped(self.observed, self.bound, log_terms, cover.slopes / np.maximum(self.bound, 1e-300))
        return np.array([estimation, self.tail, self.floating])


def _second_moments(cover: Cover, sums: ResidualSums, q: Array) -> Array:
    """ΣZZᵀ of the terms Z = Σ_c (q_c·x)E_c of every mixture ``[F + 1, p, p]``."""
    columns, (A, p, _) = frame(cover.columns), cover.fits.shape
    total = np.zeros((len(q), p, p))
    for first, second, moment in zip(*pairs_of(A, p, sums.paired), sums.moments, strict=True):
        (c, i), (d, j) = divmod(int(first), p), divmod(int(second), p)
        value = np.einsum("fk,fk->f", q[:, c] @ columns.lifted(moment), q[:, d])
        total[:, i, j] += value
        if first != second:
            total[:, j, i] += value
    return total


def _rounding(cover: Cover, sums: ResidualSums, q: Array) -> Array:
    """r with (Σ_i|w_i|r_i)² at least the rounding error of ΣZ² ``[F + 1, p]``."""
    A, p, k = cover.fits.shape
    first, second = pairs_of(A, p, sums.paired)
    squares = sums.moments[first == second].reshape(A, p, -1)[..., 0]  # ΣE_ci²
    sizes = np.einsum("fc,ci->fi", np.abs(q).sum(axis=2), np.sqrt(np.maximum(squares, 0.0)))
    return np.asarray(np.sqrt(sum_error(sums.counts, k)) * sizes)


def _ranges(cover: Cover) -> tuple[Array, Array]:
    """w·ψ of every number is within middle ± half at every state: ``[N]`` each."""
    mesh = frame(cover.functions).dense
    table = cover.functions.values(mesh.states).T[1:]
    blocks = [
        own @ table for own in np.array_split(cover.directions, -(-len(cover.directions) * len(table.T) // 2**20))
    ]
    low, high = (np.concatenate([of(block, axis=1) for block in blocks]) for of in (np.min, np.max))
    return (low + high) / 2, mesh.factor * (high - low) / 2


def _largest_terms(cover: Cover, q: Array, middle: Array, half: Array, *, paired: bool) -> Array:
    """sup over states and next states of the terms |Z| of every number ``[N]``.

    Up to signs these are sums of products of two expansions. With paired data Σ_c q_c = 0, so that the middle of the
    range drops out of the sum over the actions.
    """
    columns, largest = frame(cover.columns), np.empty(len(middle))
    x, which = columns.dense_values.T, cover.which
    fitted = cover.fits @ x  # [A, p, D]
    for number, own in enumerate(q):
        rows = which == number
        weights = np.abs(own @ x)
        guesses = np.einsum("vi,cid->cvd", cover.directions[rows], fitted) - middle[rows][:, None]
        if paired:
            terms = half[rows][:, None] * weights.sum(axis=0) + np.abs(np.einsum("cd,cvd->vd", own @ x, guesses))
        else:
            terms = (weights[:, None] * (half[rows][:, None] + np.abs(guesses))).max(axis=0)
        largest[rows] = terms.max(axis=1)
    return np.asarray(columns.dense.double * largest)


def _slopes_for(error: Array, observed: Array, bound: Array) -> tuple[Array, Array]:
    """The slope for which an error has the least probability, and the L of that probability: ``[N]`` each."""
    b, v = np.maximum(bound, 1e-300), np.maximum(observed, 0.0)
    slope = np.clip(b * error / (v + b * error), 1e-9, _STEEPEST)
    return slope, (slope * error - (-np.log1p(-slope) - slope) * v / b) / b


@dataclass(frozen=True, eq=False)
class Outlook:
    """Bounds on training data, from which those on fresh data are forecast.

    Attributes:
        bounds: one for each component.
        samples: transitions per action that they are of.
    """

    bounds: tuple[Bounds, ...]
    samples: int

    def ratio(self, samples: int, delta: float) -> float:
        """error/κ in the least clear direction from so many fresh transitions, δ spent at best; inf if hopeless."""
        return self._spent(samples, delta)[0]

    def needed(self, delta: float, ratio: float, least: int) -> int | None:
        """The fresh transitions per action, at least so many, that should bring error/κ below a ratio; None if none."""
        return least_enough(lambda n: self.ratio(n, delta) < ratio, least, self.samples * 2**20)

    def spent(self, covers: Sequence[Cover], samples: int, delta: float) -> tuple[Cover, ...]:
        """The covers with slopes and shares of δ: errors are to be in proportion to the estimates above them."""
        _, allowed = self._spent(samples, delta)
        growth, filled = samples / self.samples, []
        total = sum(int((~own.cones).sum()) for own in self.bounds)
        for cover, own, error in zip(covers, self.bounds, np.split(allowed, self._ends), strict=True):
            v, b = own.observed / growth, own.bound / growth
            slopes, shares = np.empty(len(v)), np.empty(len(v))
            slopes[own.cones], log_terms = _slopes_for(error, v[own.cones], b[own.cones])
            shares[own.cones] = np.exp(-log_terms) / delta + _LEAST * (1 - CEILING) / len(allowed)
            shares[~own.cones] = CEILING / total
            slopes[~own.cones] = _slope_at(-np.log(CEILING * delta / total), v[~own.cones], b[~own.cones])
            filled.append(replace(cover, slopes=slopes, shares=shares))
        return tuple(filled)

    @property
    def _ends(self) -> Array:
        return np.cumsum([int(own.cones.sum()) for own in self.bounds])[:-1]

    def _spent(self, samples: int, delta: float) -> tuple[float, Array]:
        """The ratio, and the error of estimation allowed to every number of the cones."""
        growth, most = samples / self.samples, (1 - _LEAST) * (1 - CEILING) * delta
        parts = [(own, own.cones) for own in self.bounds]
        v, b = (np.concatenate([getattr(own, name)[c] for own, c in parts]) / growth for name in ("observed", "bound"))
        fixed = np.concatenate([(own.tail + own.floating)[c] for own, c in parts])
        kappa = np.concatenate([-own.estimate[c] for own, c in parts])

        def allowed(ratio: float) -> Array:
            return np.asarray(np.maximum(ratio * kappa - fixed, 0.0))

        def enough(ratio: float) -> bool:
            return bool(np.exp(-_slopes_for(allowed(ratio), v, b)[1]).sum() <= most)

        if (kappa <= 0).any() or not np.isfinite(fixed).all() or not enough(2.0**40):
            return inf, _errors_at(np.log(len(v) / most), v, b)
        low, high = 2.0**-40, 2.0**40
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high, allowed(high)


def _errors_at(log_term: float, v: Array, b: Array) -> Array:
    """The error of least slope cost at L ``[N]``."""
    low, high = np.zeros(len(v)), 4 * (np.sqrt(2 * np.maximum(v, 0.0) * log_term) + b * log_term) + 1e-300
    for _ in range(60):
        middle = (low + high) / 2
        above = _slopes_for(middle, v, b)[1] >= log_term
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def _slope_at(log_term: float, v: Array, b: Array) -> Array:
    return _slopes_for(_errors_at(log_term, v, b), v, b)[0]


def concluded(
    case: Case,
    grounds: Sequence[RefutationGround],
    *,
    delta: float,
    notes: tuple[str, ...] = (),
    others: dict[str, float] | None = None,
) -> Refutation:
    """Compare the estimates with their errors: the cones refute, the last directions give the ceiling.

    Args:
        case: what was to be explained.
        grounds: one for each component.
        delta: for this refutation alone.
        notes: further assumptions.
        others: parts of δ that belong to other attempts, by name.
    """
    spending = {"cones": (1 - CEILING) * delta, "ceiling": CEILING * delta, **(others or {})}
    paired = grounds[0].sums.paired
    tube = case.tube if case.grid is not None and len(case.grid.switches) else 0.0
    return Refutation(
        **derived(grounds, delta),
        delta=sum(spending.values()),
        spending=spending,
        assumptions=(*_tails_in_words(case), independence(paired=paired), *case.notes, *notes),
        tube=tube,
        grounds=tuple(grounds),
    )


def _tails_in_words(case: Case) -> tuple[str, ...]:
    widest = max(case.parts, key=lambda part: part.columns.size)
    sentence = tail_in_words(case.tail, widest.tail, widest.columns)
    return (sentence,) if len(case.parts) == 1 else (SEPARATE, f"in each component {sentence}")


def derived(grounds: Sequence[RefutationGround], delta: float) -> dict[str, Any]:
    """The fields of a refutation that follow from its grounds."""
    bounds = [Bounds(own.cover, own.sums, own.tail or 0.0) for own in grounds]
    parts = [own.errors(ground.cover, delta) for own, ground in zip(bounds, grounds, strict=True)]
    ratios = [np.where(b.cones, b.estimate / e.sum(axis=0), -inf) for b, e in zip(bounds, parts, strict=True)]
    least = int(np.argmax([ratio.max() for ratio in ratios]))
    worst, ground = int(ratios[least].argmax()), grounds[least]
    above = [b.estimate + e.sum(axis=0) for b, e in zip(bounds, parts, strict=True)]
    refuted = all(bool(a[b.cones].max() < 0) for a, b in zip(above, bounds, strict=True))
    remainders = [max(float(a[~b.cones].max()), 0.0) for a, b in zip(above, bounds, strict=True)]
    outlook = Outlook(tuple(bounds), int(ground.sums.counts.min()))
    return {
        "kappa": -float(bounds[least].estimate[worst]),
        "error": float(parts[least][:, worst].sum()),
        "losses": dict(
            zip(("estimation", "truncation tail", "floating point"), parts[least][:, worst].tolist(), strict=True)
        ),
        "ceiling": 0.0 if refuted else max(remainders),
        "witness": _witness(ground.cover, remainders[least]),
        "samples_needed": outlook.samples if refuted else outlook.needed(delta, _SAFE, int(1.1 * outlook.samples) + 1),
    }


def _witness(cover: Cover, remainder: float) -> Witness:
    """The comparisons of the last mixture."""
    rows = np.flatnonzero(cover.mixtures[-1] > 1e-9)
    weights = cover.mixtures[-1][rows] / cover.mixtures[-1][rows].sum()
    taken = cover.probabilities[rows].argmax(axis=1)
    return Witness(cover.states[rows], taken, cover.actions[rows], weights, remainder, str(cover.functions))
