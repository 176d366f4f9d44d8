"""Refutation: proved from fresh data that no value function of a class makes the expert strictly optimal.

Every bound follows from what was fixed beforehand (`value_cones.Cover`) and the sums over fresh data
(`sums.ResidualSums`), both kept in the record. docs/notes/certificate.md, section 12, has the proof.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certirl.data.transitions import counted
from certirl.fit.witness import Witness, whole_rows
from certirl.functions.frame import frame
from certirl.functions.inequalities import best_slope, sloped
from certirl.ground import archive
from certirl.ground.domain import Array
from certirl.ground.status import Claim, chance, two_digits
from certirl.proof.case import largest_tail
from certirl.proof.certificate import least_enough
from certirl.proof.sums import ResidualSums, row_pairs, sum_error
from certirl.proof.value_cones import Cover

CEILING = 0.1  # of δ, for the bound on the margin of any value function; the rest is for the cones
_LEAST = 1e-3  # of what the cones get, shared evenly: a forecast that a number is clear may be wrong
_SAFE = 0.75  # error/κ that a forecast must fall below: estimates on other data are not the same
_LOSSES = ("estimation", "truncation tail", "floating point")


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
class Refutation(Claim):
    """If the margin is positive, D_a(s) < 0 for some state and action for every V = w·ψ, with probability 1 − δ.

    The class is {R = V − γP_πV : V = Σ w_iψ_i}, or sums of such over components, for every discount γ at once. With a
    positive margin the expert is not even weakly optimal unless V is constant. For an expert that switches, the
    statement is about states farther than ``tube`` from its switches. Numbers are per unit of the 1-norm of w without
    the constant, in the direction w with the smallest margin over error.

    Attributes:
        margin: ``estimated`` minus the losses; the class is refuted if it is positive.
        estimated: how far below zero a weighted mean of advantages is, by the fresh data.
        losses: what is subtracted, by name.
        ceiling: no V of the class has a margin D_a(s) above this; 0 if the class is refuted.
        delta: the probability of a false statement, all together.
        spending: how δ was split, by name.
        assumptions: what must be true besides, in words.
        witness: states and actions whose comparisons nearly cancel out.
        tube: the half-width around the switches within which nothing is compared; 0 without switches.
        samples_needed: an estimate of the fresh transitions per action that would refute; None if perhaps no number.
        grounds: one for each component; all numbers above follow from them.
    """

    margin: float
    estimated: float
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
        return self.margin > 0

    @property
    def holds(self) -> bool:  # type: ignore[override]
        """Every direction is refuted and the tail was declared: no reward of the class makes the expert optimal."""
        return self.refuted and self.tail is not None

    @property
    def tail(self) -> float | None:  # type: ignore[override]
        """τ, the largest of all components; None if none was declared."""
        return largest_tail(ground.tail for ground in self.grounds)

    @property
    def samples(self) -> int:
        """Fresh transitions per action, the fewest."""
        return int(self.grounds[0].sums.counts.min())

    @property
    def word(self) -> str:
        """One of "certified infeasible", "infeasible" (no tail was declared) and "undetermined"."""
        return "certified infeasible" if self.holds else "infeasible" if self.refuted else "undetermined"

    @property
    def claim(self) -> str:
        """What is refuted, in words: "no reward whose value lies in … makes … strictly optimal …"."""
        chances = self.grounds[0].cover.probabilities
        taken = int(chances[0].argmax())
        expert = f"action {taken}" if (chances[:, taken] == 1).all() else "the expert"
        return f"{self._rewards} makes {expert} strictly optimal{self._where}"

    @property
    def _rewards(self) -> str:
        if len(self.grounds) == 1:
            return f"no reward whose value lies in {_classes(self.grounds)}"
        return f"no sum of rewards whose values lie in {_classes(self.grounds)} of each component"

    @property
    def _where(self) -> str:
        return f" farther than {self.tube:.3g} from its switches" if self.tube else ""

    @property
    def statement(self) -> str:
        """The headline."""
        sure = f"with probability {chance(self.delta)}" + ("" if self.tail is not None else " (if the tail is zero)")
        if self.refuted:
            return f"{'Certified' if self.holds else 'Not certified, but'} infeasible {sure}: {self.claim}"
        bound = f"has a margin above {self.ceiling:.3g} per unit of ‖w‖₁{self._where}"
        return f"Undetermined: {sure} {self._rewards} {bound}"

    def lines(self) -> list[str]:
        """The account of the losses, the data, and the conflict if the class is refuted."""
        more = f", in {sum(ground.cover.cones for ground in self.grounds)} cones of values"
        if not self.refuted:
            needed = "perhaps no number" if self.samples_needed is None else f"about {two_digits(self.samples_needed)}"
            more = f"; {needed} would show that none has any"
        return [
            f"in the direction w with the smallest margin over error, per unit of ‖w‖₁: {self.account()}",
            f"from {counted(self.grounds[0].sums.counts)} fresh transitions per action{more}",
            *([f"conflict: {self.witness}"] if self.refuted else []),
        ]

    def __str__(self) -> str:
        assumed = [f"assumed: {assumption}" for assumption in self.assumptions]
        return "\n  ".join([self.statement, *self.lines(), *assumed])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to an npz file (suffix added if missing); `certirl.load` reads it back."""
        return archive.save(self, path)


class Bounds:
    """For every number of a cover its estimate from fresh data and what its error is made of.

    Attributes:
        estimate: of w·x ``[N]``.
        observed: ΣZ² of the terms that it is a sum of ``[N]``.
        bound: |Z| is at most this ``[N]``.
        tail, floating: bounds on the bias and on rounding ``[N]``.
        cones: which numbers belong to cones ``[N]``; the others give the ceiling.
        samples: transitions per action, the fewest.
    """

    def __init__(self, cover: Cover, sums: ResidualSums, tail: float) -> None:
        columns, which, w, k = frame(cover.columns), cover.which, cover.directions, cover.columns.size
        sums.check_determine(cover.columns)
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
        solved = _sum_error(cover, sums) * k**2 * float(np.linalg.cond(gram).max())  # generous, not a proof
        self.floating = solved * (np.abs(middle) + 3 * half)
        self.cones, self.samples = which < cover.cones, int(sums.counts.min())

    def errors(self, cover: Cover, delta: float) -> Array:
        """Estimation, tail and rounding ``[3, N]``."""
        log_terms = -np.log(delta * cover.shares)
        estimation = sloped(self.observed, self.bound, log_terms, cover.slopes / np.maximum(self.bound, 1e-300))
        return np.array([estimation, self.tail, self.floating])


def _second_moments(cover: Cover, sums: ResidualSums, q: Array) -> Array:
    """ΣZZᵀ of the terms Z = Σ_c (q_c·x)E_c of every mixture ``[F + 1, p, p]``."""
    columns, (A, p, _) = frame(cover.columns), cover.fits.shape
    total = np.zeros((len(q), p, p))
    for first, second, moment in zip(*row_pairs(A, p, sums.paired), sums.moments, strict=True):
        (c, i), (d, j) = divmod(int(first), p), divmod(int(second), p)
        value = np.einsum("fk,fk->f", q[:, c] @ columns.lifted(moment), q[:, d])
        total[:, i, j] += value
        if first != second:
            total[:, j, i] += value
    return total


def _rounding(cover: Cover, sums: ResidualSums, q: Array) -> Array:
    """r with (Σ_i|w_i|r_i)² at least the rounding error of ΣZ² ``[F + 1, p]``."""
    A, p, _ = cover.fits.shape
    first, second = row_pairs(A, p, sums.paired)
    squares = sums.moments[first == second].reshape(A, p, -1)[..., 0]  # ΣE_ci²
    sizes = np.einsum("fc,ci->fi", np.abs(q).sum(axis=2), np.sqrt(np.maximum(squares, 0.0)))
    return np.asarray(np.sqrt(_sum_error(cover, sums)) * sizes)


def _sum_error(cover: Cover, sums: ResidualSums) -> float:
    return sum_error(float(sums.counts.max()), 2 * cover.columns.size - 1)


def _ranges(cover: Cover) -> tuple[Array, Array]:
    """w·ψ of every number is within middle ± half at every state: ``[N]`` each."""
    mesh = frame(cover.functions).dense
    table = cover.functions.values(mesh.states).T[1:]
    count = -(-len(cover.directions) * len(table.T) // 2**20)
    blocks = [directions @ table for directions in np.array_split(cover.directions, count)]
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
    for number, functional in enumerate(q):
        rows = which == number
        weights = np.abs(functional @ x)
        guesses = np.einsum("vi,cid->cvd", cover.directions[rows], fitted) - middle[rows][:, None]
        if paired:
            terms = half[rows][:, None] * weights.sum(axis=0) + np.abs(np.einsum("cd,cvd->vd", functional @ x, guesses))
        else:
            terms = (weights[:, None] * (half[rows][:, None] + np.abs(guesses))).max(axis=0)
        largest[rows] = terms.max(axis=1)
    return np.asarray(columns.dense.double * largest)


class Outlook(NamedTuple):
    """Bounds on training data, from which those on fresh data are forecast, for all components together.

    Attributes:
        bounds: one for each component.
    """

    bounds: tuple[Bounds, ...]

    @property
    def samples(self) -> int:
        """Transitions per action that the bounds are of."""
        return self.bounds[0].samples

    def ratio(self, samples: int, delta: float) -> float:
        """Forecast the largest error/κ of all directions for a number of fresh transitions; inf if none is finite."""
        return self._spent(samples, delta)[0]

    def needed(self, delta: float, ratio: float, least: int) -> int | None:
        """The number of fresh transitions per action, at least a given one, for error/κ below a ratio; None if none."""
        return least_enough(lambda n: self.ratio(n, delta) < ratio, least, self.samples * 2**20)

    def planned(self, covers: Sequence[Cover], samples: int, delta: float) -> tuple[Cover, ...]:
        """The covers with shares of δ, so that errors are in proportion to what they must not exceed, and slopes."""
        _, shares = self._spent(samples, delta)
        parts = np.split(shares, np.cumsum([int(bounds.cones.sum()) for bounds in self.bounds])[:-1])
        others, filled = sum(int((~bounds.cones).sum()) for bounds in self.bounds), []
        for cover, bounds, cone_shares in zip(covers, self.bounds, parts, strict=True):
            each = np.full(len(bounds.cones), CEILING / others)
            each[bounds.cones] = cone_shares
            v, b = (values * self.samples / samples for values in (bounds.observed, bounds.bound))
            slopes = np.clip(best_slope(v, b, -np.log(delta * each)) * b, 1e-6, 0.9)
            filled.append(replace(cover, slopes=slopes, shares=each))
        return tuple(filled)

    def _spent(self, samples: int, delta: float) -> tuple[float, Array]:
        """The ratio, and the share of δ of every number of the cones; even if no ratio will do."""
        each = [
            (-bounds.estimate, bounds.observed, bounds.bound, bounds.tail + bounds.floating) for bounds in self.bounds
        ]
        cones = np.concatenate([bounds.cones for bounds in self.bounds])
        kappa, moment, bound, fixed = np.hstack([np.array(numbers) for numbers in each])[:, cones]
        v, b = (np.maximum(values * self.samples / samples, 1e-300) for values in (moment, bound))
        even = (1 - CEILING) / len(kappa)

        def shares(ratio: float) -> Array:
            """e^−L for the errors that the ratio allows, by the best slope of `sloped`: y − log(1 + y) = Lb²/ΣZ²."""
            y = np.maximum(ratio * kappa - fixed, 0.0) * b / v
            return np.asarray(np.exp(-(y - np.log1p(y)) * v / b**2) / delta + _LEAST * even)

        low, high = 2.0**-40, 2.0**40
        if (kappa <= 0).any() or not np.isfinite(fixed).all() or shares(high).sum() > 1 - CEILING:
            return inf, np.full(len(kappa), even)
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if shares(middle).sum() <= 1 - CEILING else (middle, high)
        return high, shares(high)


def derived(grounds: Sequence[RefutationGround], delta: float) -> dict[str, Any]:
    """The fields of a refutation that follow from its grounds: the cones refute, the last mixtures give the ceiling.

    Args:
        grounds: one for each component.
        delta: for this refutation alone.
    """
    bounds = tuple(Bounds(ground.cover, ground.sums, ground.tail or 0.0) for ground in grounds)
    estimate, cones = (np.concatenate(each) for each in zip(*((b.estimate, b.cones) for b in bounds), strict=True))
    errors = np.hstack([each.errors(ground.cover, delta) for each, ground in zip(bounds, grounds, strict=True)])
    above = estimate + errors.sum(axis=0)
    worst = int(np.where(cones, estimate / errors.sum(axis=0), -inf).argmax())
    losses = dict(zip(_LOSSES, errors[:, worst].tolist(), strict=True))
    refuted, remainder = bool(above[cones].max() < 0), max(0.0, float(above[~cones].max()))
    outlook = Outlook(bounds)
    return {
        "margin": -float(estimate[worst]) - sum(losses.values()),
        "estimated": -float(estimate[worst]),
        "losses": losses,
        "ceiling": 0.0 if refuted else remainder,
        "witness": _witness(grounds, remainder),
        "samples_needed": outlook.samples if refuted else outlook.needed(delta, _SAFE, int(1.1 * outlook.samples) + 1),
    }


def _witness(grounds: Sequence[RefutationGround], remainder: float) -> Witness:
    """The comparisons of the last mixtures, as whole states."""
    covers, classes = [ground.cover for ground in grounds], _classes(grounds)
    parts = [(cover.coordinates, cover.states, cover.actions, cover.mixtures[-1]) for cover in covers]
    states, actions, weights = whole_rows(parts)
    taken = covers[0].probabilities.argmax(axis=1)
    taken = taken if len(covers) == 1 else np.full(len(states), taken[0])
    used = weights > 1e-9
    functions = classes if len(covers) == 1 else f"sums of {classes} of each component"
    return Witness(states[used], taken[used], actions[used], weights[used] / weights[used].sum(), remainder, functions)


def _classes(grounds: Sequence[RefutationGround]) -> str:
    return ", ".join(sorted({str(ground.cover.functions) for ground in grounds}))
