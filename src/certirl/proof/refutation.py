"""Refutation: proved from fresh data that no value function of a class makes the expert strictly optimal.

`attempt` chooses on training data what fresh data will be asked, forecasts the outcome, and concludes. Every bound
follows from what was fixed beforehand (`value_cones.Cover`) and the sums over fresh data (`sums.ResidualSums`), both
kept in the record. docs/notes/certificate.md, section 12, has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

import numpy as np

from certirl.data.moments import Moments, accumulate
from certirl.data.transitions import Piece, action_in_words, counted
from certirl.fit.program import Rows, least_norm_of_sums
from certirl.fit.witness import Witness, whole_rows
from certirl.functions.bases import Basis
from certirl.functions.frame import frame
from certirl.functions.inequalities import best_slope, sloped
from certirl.ground import archive
from certirl.ground.domain import Array
from certirl.ground.records import Record, internal
from certirl.ground.status import Claim, chance, two_digits
from certirl.proof.case import Case, too_many_functions
from certirl.proof.certificate import CLEAR, least_enough
from certirl.proof.sums import ResidualSums, gather_residuals, row_pairs, sum_error
from certirl.proof.tails import largest_tail
from certirl.proof.value_cones import Comparisons, Cover, Regression, comparisons, cover_of, obstacle, regression

CEILING = 0.1  # of δ, for the bound on the margin of any value function; the rest is for the cones
_LEAST = 1e-3  # of what the cones get, shared evenly: a forecast that a number is clear may be wrong
_SAFE = 0.75  # error/κ that a forecast must fall below: estimates on other data are not the same
_LOSSES = ("estimation", "truncation tail", "floating point")


@archive.record
@dataclass(frozen=True, eq=False)
class RefutationGround(Record):
    """What a refutation rests on, for one component.

    Attributes:
        cover: what was fixed beforehand.
        sums: over fresh data.
        tail: τ; None if none was declared.

    Example:
        >>> room = certirl.problems.thermostat(power=(0.0, 1.5, -1.5), noise=3.0)
        >>> asked = {"basis": certirl.Legendre(2), "columns": 7, "tail": room.tail, "samples": 20_000}
        >>> refutation = certirl.refute(room, expert=0, rng=1, **asked)
        >>> refutation.grounds[0].tail == refutation.tail
        True
    """

    cover: Cover
    sums: ResidualSums
    tail: float | None

    @property
    @internal
    def columns(self) -> Basis:
        """The functions of the state."""
        return self.cover.columns


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
        action_names: of the actions, if the data have them.
        log_notes: what was done to the log while it was read, in sentences; they are among the assumptions.
        about: the call and what it was about, in words by name: data and code with their hashes, and versions.

    Example:
        >>> room = certirl.problems.thermostat(power=(0.0, 1.5, -1.5), noise=3.0)
        >>> asked = {"basis": certirl.Legendre(2), "columns": 7, "tail": room.tail, "samples": 20_000}
        >>> refutation = certirl.refute(room, expert=0, rng=1, **asked)
        >>> refutation.holds, refutation.word, sorted(refutation.witness.shares)
        (True, 'certified infeasible', [1, 2])
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
    action_names: tuple[str, ...] = ()
    log_notes: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)

    verb: ClassVar[str] = "refute"

    @property
    def refuted(self) -> bool:
        """Whether every direction w is refuted by estimates and their errors; proved if the tail was declared."""
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
    def samples(self) -> int:  # type: ignore[override]
        """Fresh transitions per action, the fewest."""
        return int(self.grounds[0].sums.counts.min())

    @property
    def word(self) -> str:
        """One of "certified infeasible", "infeasible" (no tail was declared) and "undetermined"."""
        return "certified infeasible" if self.holds else "infeasible" if self.refuted else "undetermined"

    @property
    @internal
    def in_noise(self) -> str:  # type: ignore[override]
        """That there may be a reward by the estimates, in words; empty if they speak against it beyond their noise."""
        is_open = not self.refuted and self.samples_needed is None
        return "whether the class has a reward cannot be told yet: use more samples" if is_open else ""

    @property
    def claim(self) -> str:
        """What is refuted, in words: "no reward of the state whose value lies in … makes … strictly optimal …"."""
        chances = self.grounds[0].cover.probabilities
        taken = int(chances[0].argmax())
        expert = action_in_words(taken, self.action_names) if (chances[:, taken] == 1).all() else "the expert"
        return f"{self._rewards} makes {expert} strictly optimal{self._where}"

    @property
    def _rewards(self) -> str:
        if len(self.grounds) == 1:
            return f"no reward of the state whose value lies in {_classes(self.grounds)}"
        return f"no sum of rewards of the state whose values lie in {_classes(self.grounds)} of each component"

    @property
    def _where(self) -> str:
        return f" farther than {self.tube:.3g} from its switches" if self.tube else ""

    @property
    def statement(self) -> str:
        """What is proved, or not, in a sentence."""
        sure = f"with probability {chance(self.delta)}" + ("" if self.tail is not None else " (if the tail is zero)")
        if self.refuted:
            return f"{'Certified' if self.holds else 'Not certified, but'} infeasible {sure}: {self.claim}"
        bound = f"has a margin above {self.ceiling:.3g} per unit of ‖w‖₁{self._where}"
        return f"Undetermined: {sure} {self._rewards} {bound}"

    def lines(self) -> list[str]:
        """The account of the losses, the data, and the conflict if the class is refuted.

        Example:
            >>> len(refutation.lines())
            3
        """
        more = f", in {sum(ground.cover.cones for ground in self.grounds)} cones of values"
        if not self.refuted:
            needed = "perhaps no number" if self.samples_needed is None else f"about {two_digits(self.samples_needed)}"
            more = f"; {needed} would show that none has any"
        return [
            f"in the direction w with the smallest margin over error, per unit of ‖w‖₁: {self.account()}",
            f"from {counted(self.grounds[0].sums.counts)} fresh transitions per action{more}",
            *([f"conflict: {self.witness.in_words(self.action_names)}"] if self.refuted else []),
        ]

    def __str__(self) -> str:
        last = [f"assumed: {assumption}" for assumption in self.assumptions]
        last += [f"next: {self.next}"] if self.next else []
        return "\n  ".join([self.statement, *self.lines(), *last])


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


@dataclass(frozen=True, eq=False)
class Attempt(Record):
    """A refutation that training data suggest: what fresh data will be asked, and what they should answer."""

    case: Case  # the expert and the components
    covers: tuple[Cover, ...]  # fixed before fresh data, one for each component
    bounds: tuple[Bounds, ...]  # on training data, one for each component

    def forecast(self, samples: int, delta: float) -> float:
        """Forecast 1 − error/κ for a number of fresh transitions; −inf if no bound is finite."""
        return 1 - _divided(self.bounds, samples, delta)[0]

    def conclude(self, fresh: Iterable[Piece], *, delta: float, others: dict[str, float] | None = None) -> Refutation:
        """What fresh data prove: the cones refute, the last mixtures give the ceiling.

        On ``fresh`` data nothing was chosen; ``others`` are parts of δ that belong to other attempts, by name.
        """
        case, each = self.case, gather_residuals(self.covers, fresh)
        grounds = tuple(
            RefutationGround(cover, sums, part.tail)
            for cover, sums, part in zip(self.covers, each, case.parts, strict=True)
        )
        bounds = tuple(Bounds(ground.cover, ground.sums, ground.tail or 0.0) for ground in grounds)
        estimate, cones = (
            np.concatenate(arrays) for arrays in zip(*((b.estimate, b.cones) for b in bounds), strict=True)
        )
        errors = np.hstack([limits.errors(cover, delta) for limits, cover in zip(bounds, self.covers, strict=True)])
        above, n = estimate + errors.sum(axis=0), bounds[0].samples
        worst = int(np.where(cones, estimate / errors.sum(axis=0), -inf).argmax())
        losses = dict(zip(_LOSSES, errors[:, worst].tolist(), strict=True))
        refuted, remainder = bool(above[cones].max() < 0), max(0.0, float(above[~cones].max()))
        needed: int | None = n
        noise = np.hstack([CLEAR * np.sqrt(limits.observed) + limits.tail for limits in bounds])
        if not (estimate + noise)[cones].max() < 0:
            needed = None  # some direction may have a positive margin in truth
        elif not refuted:
            needed = least_enough(lambda m: _divided(bounds, m, delta)[0] < _SAFE, int(1.1 * n) + 1, n * 2**20)
        spending = {"cones": (1 - CEILING) * delta, "ceiling": CEILING * delta, **(others or {})}
        return Refutation(
            margin=-float(estimate[worst]) - sum(losses.values()),
            estimated=-float(estimate[worst]),
            losses=losses,
            ceiling=0.0 if refuted else remainder,
            delta=sum(spending.values()),
            spending=spending,
            assumptions=(*case.assumptions(range(len(case.parts)), paired=each[0].paired, single=True), *case.notes),
            witness=_witness(grounds, remainder),
            tube=0.0 if case.switching is None else case.tube,
            samples_needed=needed,
            grounds=grounds,
            action_names=case.action_names,
            log_notes=case.log_notes,
        )


def attempt(
    case: Case,
    classes: Sequence[Basis],
    training: Iterable[Piece],
    *,
    samples: int,
    delta: float,
    moments: Sequence[Moments] | None = None,
    only_conflicts: bool = True,
) -> Attempt | None:
    """Choose on training data what fresh data will be asked.

    ``classes`` are the functions of V, one basis for each component of the case; ``samples`` fresh transitions per
    action are planned. Training data are walked through again. ``moments`` are those of all of them, in rows that begin
    with the classes, and the columns of the case; measured on ``training`` if left out. With ``only_conflicts`` the
    answer is None if some value function obeys all comparisons on training data, if these are too few, or if the
    classes are too rich.
    """
    if only_conflicts and too_many_functions(classes):
        return None
    measured = _measured(case, classes, training) if moments is None else moments
    rows = [comparisons(case, part) for part in case.parts]
    reason = obstacle(case, rows, measured)
    if reason and only_conflicts:
        return None
    if reason:
        raise ValueError(reason)
    fitted = [regression(sums, functions.size) for sums, functions in zip(measured, classes, strict=True)]
    most, alternatives = None, None
    if len(case.parts) > 1:
        alternatives = _alternatives(case, rows, fitted)
        if alternatives is None and only_conflicts:
            return None
        if alternatives is None:  # fresh data will hardly show a conflict that training data do not
            most, alternatives = 1, np.full(case.policy.n_actions - 1, 1 / (case.policy.n_actions - 1))
    covers = []
    for part, functions, compared, fit in zip(case.parts, classes, rows, fitted, strict=True):
        cover = cover_of(
            part,
            functions,
            compared,
            fit,
            samples=samples,
            delta=delta / len(case.parts),
            alternatives=alternatives,
            most=most,
            only_conflicts=only_conflicts,
        )
        if cover is None:
            return None
        covers.append(cover)
    each = zip(covers, gather_residuals(covers, training), case.parts, strict=True)
    bounds = tuple(Bounds(cover, sums, part.tail or 0.0) for cover, sums, part in each)
    return Attempt(case, _planned(covers, bounds, samples, delta), bounds)


def _measured(case: Case, classes: Sequence[Basis], training: Iterable[Piece]) -> list[Moments]:
    pairs = [(functions, part.columns) for functions, part in zip(classes, case.parts, strict=True)]
    views = None if case.parts[0].coordinates is None else [part.coordinates or () for part in case.parts]
    return [sums for (sums,) in accumulate(training, pairs, n_actions=case.policy.n_actions, views=views)]


def _alternatives(case: Case, rows: Sequence[Comparisons], fitted: Sequence[Regression]) -> Array | None:
    """The weights ν of the alternatives in the conflict of the training data; None if there is no conflict."""
    others = [a for a in range(case.policy.n_actions) if a not in case.used]
    block = Rows.empty(max(fit.fits.shape[1] for fit in fitted))
    for j, (part, compared, fit) in enumerate(zip(case.parts, rows, fitted, strict=True)):
        points = compared.rows(fit.fits, part.columns)
        for i, action in enumerate(others):
            block = block.with_rows(j, i, points[compared.actions == action])
    status, _, weights = least_norm_of_sums(block)
    if status != "infeasible":
        return None
    first = block.component == 0
    shares = np.bincount(block.alternative[first], weights[first], minlength=len(others))
    return np.asarray(shares / shares.sum())


def _planned(covers: Sequence[Cover], bounds: tuple[Bounds, ...], samples: int, delta: float) -> tuple[Cover, ...]:
    """The covers with shares of δ, so that errors are in proportion to what they must not exceed, and slopes."""
    _, shares = _divided(bounds, samples, delta)
    parts = np.split(shares, np.cumsum([int(limits.cones.sum()) for limits in bounds])[:-1])
    others, filled = sum(int((~limits.cones).sum()) for limits in bounds), []
    for cover, limits, cone_shares in zip(covers, bounds, parts, strict=True):
        each = np.full(len(limits.cones), CEILING / others)
        each[limits.cones] = cone_shares
        v, b = (values * bounds[0].samples / samples for values in (limits.observed, limits.bound))
        slopes = np.clip(best_slope(v, b, -np.log(delta * each)) * b, 1e-6, 0.9)
        filled.append(replace(cover, slopes=slopes, shares=each))
    return tuple(filled)


def _divided(bounds: tuple[Bounds, ...], samples: int, delta: float) -> tuple[float, Array]:
    """Forecast for a number of fresh transitions the largest error/κ of all directions, from bounds on other data.

    The ratio, infinite if none is finite, and the share of δ of every number of the cones; even if no ratio will do.
    """
    each = [(-limits.estimate, limits.observed, limits.bound, limits.tail + limits.floating) for limits in bounds]
    cones = np.concatenate([limits.cones for limits in bounds])
    kappa, moment, bound, fixed = np.hstack([np.array(numbers) for numbers in each])[:, cones]
    v, b = (np.maximum(values * bounds[0].samples / samples, 1e-300) for values in (moment, bound))
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
