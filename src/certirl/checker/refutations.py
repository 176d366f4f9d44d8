"""Refutations derived again: no value function of a class makes the expert strictly optimal, or none by more than this.

The notation is that of docs/notes/certificate.md, section 12. One derivation for experts of one action and policies,
intervals and boxes, single rewards and sums. Nothing here is shared with the code that made the refutation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certirl.checker.bands import TooLittleError, sloped, spectrum
from certirl.checker.enclosures import Enclosure, Floats, enclosed, inverse, logarithm, stacked
from certirl.checker.harmonics import Box, Functions
from certirl.checker.records import (
    ALIKE,
    DRAWS,
    RELATIVE,
    SEPARATE,
    TIGHT,
    DamagedError,
    Finding,
    ImpossibleError,
    Record,
    at_most,
    probability,
    short,
    spent,
    spent_wrongly,
    tail_in_words,
    transitions,
)

CEILING = 0.1  # of δ, for the bound on the margin of any value function; the rest is for the cones
LOSSES = ("estimation", "truncation tail", "floating point")
_STRETCH, _BLOCK = 8192, 512  # no sum over data had more additions within a block, or smaller blocks
FIXED_BEFORE = (
    "the functions, the comparisons, the cones, the guesses and δ were fixed before these transitions were drawn; "
    "other attempts count in δ"
)


@dataclass(frozen=True, eq=False)
class Ground:
    """What was fixed beforehand and the sums over fresh data for one component; names as in a file."""

    name: str
    coordinates: tuple[int, ...] | None
    functions: Functions
    columns: Functions
    states: Floats
    actions: NDArray[np.intp]
    probabilities: Floats
    corners: Floats
    splits: NDArray[np.intp]
    mixtures: Floats
    fits: Floats
    slopes: Floats
    shares: Floats
    tail: float | None
    counts: Floats
    gram: Floats
    residuals: Floats
    moments: Floats
    paired: bool

    @classmethod
    def of(cls, record: Record) -> Ground:
        """Read it strictly."""
        cover, sums = record.record("cover", "Cover"), record.record("sums", "ResidualSums")
        functions, columns = cover.functions("functions"), cover.functions("columns")
        if columns.dimension > 3 or not columns.closed or functions.box != columns.box:
            raise ImpossibleError(f"{columns} are no functions that a refutation can rest on")
        p, k, paired = functions.size - 1, columns.size, sums.flag("paired")
        counts = sums.array("counts", (None,), "iu").astype(float)
        A, states = len(counts), cover.array("states", (None, columns.dimension))
        if A < 2 or p < 1:
            raise DamagedError("a refutation needs two actions and two functions or more")
        rows, mixtures = len(states), cover.array("mixtures", (None, len(states)))
        cones = len(mixtures) - 1
        numbers, splits = (cones + 2) * p, cones - p - 1
        if splits < 0:
            raise ImpossibleError("there are fewer cones than it takes to cover all value functions")
        pairs = A * p * (A * p + 1) // 2 if paired else A * p * (p + 1) // 2
        wide = Box.of(columns).wide
        return cls(
            name=cover.text("name"),
            coordinates=None if cover.entry("coordinates") is None else cover.wholes("coordinates"),
            functions=functions,
            columns=columns,
            states=states,
            actions=cover.array("actions", (rows,), "iu"),
            probabilities=cover.array("probabilities", (rows, A)),
            corners=cover.array("corners", (p, p)),
            splits=cover.array("splits", (splits, 4), "iu"),
            mixtures=mixtures,
            fits=cover.array("fits", (A, p, k)),
            slopes=cover.array("slopes", (numbers,)),
            shares=cover.array("shares", (numbers,)),
            tail=record.tail(),
            counts=counts,
            gram=sums.array("gram", (A, *wide)),
            residuals=sums.array("residuals", (A, p, k)),
            moments=sums.array("moments", (pairs, *wide)),
            paired=paired,
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(c, i) ≤ (d, j), each as one number, whose residuals are multiplied."""
        A, p, _ = self.fits.shape
        every = [(one, other) for one in range(A * p) for other in range(one, A * p)]
        return [(one, other) for one, other in every if self.paired or one // p == other // p]

    def contradictions(self) -> list[str]:
        """What neither cones, nor mixtures, nor sums can be."""
        wrong, (A, p, k) = [], self.fits.shape
        inside = [
            (low <= self.states[:, j]) & (self.states[:, j] <= high) for j, (low, high) in enumerate(self.columns.box)
        ]
        if not np.all(inside):
            wrong.append(f"states are compared outside {self.columns.domain}")
        if self.actions.min(initial=0) < 0 or self.actions.max(initial=0) >= A:
            wrong.append("actions are compared that there are not")
        if (self.probabilities < 0).any() or np.abs(self.probabilities.sum(axis=1) - 1).max(initial=0.0) > TIGHT:
            wrong.append("the expert's probabilities do not add up to 1")
        if (self.mixtures < 0).any() or np.abs(self.mixtures.sum(axis=1) - 1).max() > TIGHT:
            wrong.append("the weights of a mixture do not add up to 1")
        if (self.shares <= 0).any() or ((self.slopes <= 0) | (self.slopes >= 1)).any():
            wrong.append("a share of δ or a slope is not between 0 and 1")
        cone, u, v, _ = self.splits.T
        before = p + 1 + np.arange(len(self.splits))
        if (self.splits[:, :3] < 0).any() or (cone >= before).any() or (np.maximum(u, v) >= p).any():
            wrong.append("a cone is split that there is not")
        if np.abs(self.splits[:, 3:]).max(initial=0) > 100:
            wrong.append("a cone is split in parts of different orders of magnitude")
        squares = self.moments.reshape(len(self.moments), -1)[[i for i, (a, b) in enumerate(self.pairs) if a == b], 0]
        if (
            self.residuals.reshape(A * p, k) ** 2 > np.repeat(self.counts, p)[:, None] * squares[:, None] * (1 + TIGHT)
        ).any():
            wrong.append("the residuals of an action are larger than their second moments allow")
        for c, n in enumerate(self.counts):
            if n < k:
                wrong.append(f"action {c} has {int(n)} transitions, too few for {k} functions")
            if abs(self.gram[c].flat[0] - n) > TIGHT * n or np.abs(self.gram[c]).max() > n * (1 + TIGHT):
                wrong.append(f"the Gram matrix of action {c} is not one of {int(n)} states")
        if self.paired and any(
            (own != self.gram[0]).any() or n != self.counts[0] for own, n in zip(self.gram, self.counts, strict=True)
        ):
            wrong.append("paired actions have different states")
        return wrong

    @property
    def alternatives(self) -> Floats:
        """The weight of every alternative action in every mixture ``[F + 1, A]``."""
        return np.stack([self.mixtures[:, self.actions == a].sum(axis=1) for a in range(len(self.counts))], axis=1)

    def directions(self) -> Enclosure:
        """w of every number, of unit ‖·‖₁ but for rounding, and the mixture of each ``[F p + 2p, p]``."""
        p = len(self.corners)
        corners = Enclosure(self.corners)
        inverse(corners)  # they span all directions, or ZeroDivisionError
        simplex = [-corners.sum(0), *(corners[i] for i in range(p))]
        cones = [[own for i, own in enumerate(simplex) if i != v] for v in range(p + 1)]
        for number, u, v, exponent in self.splits.tolist():
            new = cones[number][u] + cones[number][v] * 2.0**exponent
            second = [*cones[number]]
            cones[number][u] = second[v] = new
            cones.append(second)
        rows = [own for cone in cones for own in cone]
        units = [own / float(np.abs(own.middle).sum()) for own in rows]
        axes = np.vstack([np.eye(p), -np.eye(p)])
        return stacked([*units, *(Enclosure(own) for own in axes)])


@dataclass(frozen=True, eq=False)
class Numbers:
    """Of every number of a component its estimate and its error.

    Attributes:
        estimate: ``[N]``.
        errors: estimation, tail and rounding ``[3, N]``.
        above: no smaller than the number ``[N]``.
        cones: which belong to cones; the others give the ceiling.
    """

    estimate: Floats
    errors: Floats
    above: Floats
    cones: NDArray[np.bool_]


def numbers(ground: Ground, delta: float) -> Numbers:
    """w·x for all cones and for the axes, with what they can be wrong by."""
    g, box, (A, p, k) = ground, Box.of(ground.columns), ground.fits.shape
    grams = box.lifted(g.gram)
    ends = [spectrum(grams[c]) for c in range(A)]
    if min(low for low, _ in ends) <= 0:
        raise TooLittleError("a Gram matrix is not positive definite: the states cannot tell the functions apart")
    cones = len(g.mixtures) - 1
    which, w = np.repeat(np.arange(cones + 1), [p] * cones + [2 * p]), g.directions()
    contrast = g.probabilities - np.eye(A)[g.actions]
    x = box.at(g.states)
    pulls = [enclosed(g.mixtures) @ (x * contrast[:, c, None]) for c in range(A)]  # g_c [F + 1, k]
    q = [own @ inverse(grams[c]) for c, own in enumerate(pulls)]
    means = stacked([pulls[c] @ g.fits[c].T + q[c] @ g.residuals[c].T for c in range(A)]).sum(0)
    estimate = (means[which] * w).sum()
    observed = _second_moments(g, box, q, w, which)
    middle, half = _ranges(g, w)
    bound = _largest(g, box, q, w, which, middle, half)
    reach = stacked(
        [
            ((own @ grams[c]) * own).sum().positive() * float(n)
            for c, (own, n) in enumerate(zip(q, g.counts, strict=True))
        ]
    )
    tail = (half * (reach.root().sum(0)[which] + 2.0) * (g.tail or 0.0)).above
    unit = (_STRETCH + float(g.counts.max()) / _BLOCK + 2 * (2 * k - 1) ** 2) * 2.0**-52
    condition = max(high / low for low, high in ends)
    floating = unit * k**2 * condition * (np.abs(middle) + 3 * half.above) * (1 + 1e-12)
    slack = np.sqrt(unit) * _sizes(g, q)[which]
    rounding = (np.abs(w.middle) * slack).sum(axis=1) ** 2 * (1 + 1e-12)
    log_terms = -logarithm(enclosed(g.shares) * delta * (1 - 1e-15))
    slope = g.slopes / np.maximum(bound, 1e-300)
    estimation = sloped(observed + rounding, bound, log_terms, slope)
    above = (estimate + estimation + tail + floating).above
    return Numbers(estimate.middle, np.array([estimation, tail, floating]), above, which < cones)


def _second_moments(g: Ground, box: Box, q: list[Enclosure], w: Enclosure, which: NDArray[np.intp]) -> Enclosure:
    """ΣZ² of the terms of every number."""
    _, p, _ = g.fits.shape
    total = Enclosure(np.zeros(len(w)))
    for (one, other), moment in zip(g.pairs, g.moments, strict=True):
        (c, i), (d, j) = divmod(one, p), divmod(other, p)
        form = ((q[c] @ box.lifted(moment)) * q[d]).sum()
        total = total + w[:, i] * w[:, j] * form[which] * (1.0 if one == other else 2.0)
    return total.positive()


def _sizes(g: Ground, q: list[Enclosure]) -> Floats:
    """Σ_c‖q_c‖₁√ΣE_ci² ``[F + 1, p]``, which the rounding of sums is measured by."""
    A, p, _ = g.fits.shape
    squares = g.moments.reshape(len(g.moments), -1)[[i for i, (a, b) in enumerate(g.pairs) if a == b], 0].reshape(A, p)
    return np.asarray(sum(np.outer(own.size.sum(axis=1), np.sqrt(row)) for own, row in zip(q, squares, strict=True)))


def _ranges(g: Ground, w: Enclosure) -> tuple[Floats, Enclosure]:
    """w·ψ is within middle ± half at every state: ``[N]`` each."""
    box = Box.of(g.functions)
    table = box.mesh(box.dense, harmonics=False)[:, 1:]
    low, high = np.empty(len(w)), np.empty(len(w))
    for start in range(0, len(w), 256):
        values = w[start : start + 256] @ table.T
        low[start : start + 256], high[start : start + 256] = values.below.min(axis=1), values.above.max(axis=1)
    middle = (low + high) / 2
    reach = np.maximum((enclosed(high) - middle).above, (enclosed(middle) - low).above)
    return middle, enclosed(reach) * box.inflation(box.dense)


def _largest(
    g: Ground, box: Box, q: list[Enclosure], w: Enclosure, which: NDArray[np.intp], middle: Floats, half: Enclosure
) -> Floats:
    """sup|Z| of the terms of every number ``[N]``."""
    x, A = box.dense_values.T, len(q)
    fitted = enclosed(g.fits) @ x  # [A, p, q]
    largest, double = np.empty(len(w)), box.inflation(box.dense, 2)
    for number in range(len(g.mixtures)):
        rows = np.flatnonzero(which == number)
        swings = stacked([own[number] @ x for own in q])  # [A, q]
        guesses = [w[rows] @ fitted[c] - middle[rows][:, None] for c in range(A)]
        if g.paired:
            together = stacked([guesses[c] * swings[c] for c in range(A)]).sum(0).absolute()
            terms = (half[rows][:, None] * swings.absolute().sum(0) + together).above
        else:
            terms = np.max(
                [((half[rows][:, None] + guesses[c].absolute()) * swings[c].absolute()).above for c in range(A)], axis=0
            )
        largest[rows] = terms.max(axis=1) * double * (1 + 1e-15)
    return largest


def claimed(record: Record) -> tuple[float, str]:
    """By how much the least clear direction is refuted, as a file claims it, and why it claims nothing if so."""
    margin = record.bound("margin")
    if None in [own.entry("tail") for own in record.records("grounds")]:
        return margin, "no tail was declared"
    if not margin > 0 and not record.bound("ceiling") < math.inf:
        return margin, "the estimates are not clear of their errors, and no ceiling is claimed"
    return margin, ""


def derive(record: Record, solution: Record | None) -> Finding:
    """What follows for a refutation, alone in its file or within a solution."""
    grounds = [Ground.of(own) for own in record.records("grounds")]
    if not grounds:
        raise DamagedError("grounds should be those of one component or more")
    delta, spending = record.number("delta"), record.named("spending")
    wrong = spent_wrongly(delta, spending) + _together(grounds)
    for own in grounds:
        problems = own.contradictions()
        wrong += [f"component {own.name}: {text}" for text in problems] if len(grounds) > 1 else problems
    part = spending.get("cones", 0.0) + spending.get("ceiling", 0.0)
    if math.fsum(float(own.shares.sum()) for own in grounds) > 1 + TIGHT or not 0 < part <= delta * (1 + TIGHT):
        wrong.append("the shares of δ add up to more than there is")
    if solution is not None:
        wrong += _of_solution(solution, record, grounds)
    first, where = grounds[0], " × ".join(own.columns.domain for own in grounds)
    classes = ", ".join(sorted({f"{own.functions} on {own.functions.domain}" for own in grounds}))
    about = Finding(wrong)
    about.lines = [
        ("problem", f"{len(first.counts)} actions, any discount; states in {where}"),
        ("class", f"rewards whose value lies in {classes}" + " of each component" * (len(grounds) > 1)),
        ("data", transitions(first.counts, paired=first.paired)),
        ("spent", spent(delta, spending)),
    ]
    about.trusted = _trusted(grounds, record)
    if wrong:
        return about
    try:
        found = [numbers(own, part / max(1.0, math.fsum(float(g.shares.sum()) for g in grounds))) for own in grounds]
    except TooLittleError as problem:
        wrong.append(str(problem))
    except ZeroDivisionError as problem:
        wrong.append(f"nothing can be derived from the sums: {problem}")
    else:
        _conclude(about, record, grounds, found, delta, where)
    return about


def _together(grounds: list[Ground]) -> list[str]:
    """Where the components are not those of one problem, or their mixtures weigh the alternatives differently."""
    first, several = grounds[0], grounds[1:]
    if not several:
        return []
    wrong, coordinates = [], [c for own in grounds for c in own.coordinates or ()]
    if any(len(own.coordinates or ()) != own.columns.dimension for own in grounds) or len(set(coordinates)) != len(
        coordinates
    ):
        wrong.append("the components are not groups of different coordinates")
    if any(
        (own.paired, len(own.counts)) != (first.paired, len(first.counts)) or (own.counts != first.counts).any()
        for own in several
    ):
        return [*wrong, "the components were not looked at in the same transitions"]
    taken = {tuple(row) for own in grounds for row in own.probabilities.tolist()}
    if len(taken) != 1 or max(next(iter(taken))) != 1.0:
        wrong.append("the expert takes several actions, and then components cannot be looked at separately")
    weights = first.alternatives[0]
    if any(np.abs(own.alternatives - weights).max() > TIGHT for own in grounds):
        wrong.append("the mixtures do not weigh the alternative actions alike")
    return wrong


def _of_solution(solution: Record, record: Record, grounds: list[Ground]) -> list[str]:
    """Where a solution is about something else than its refutation."""
    wrong, first = [], grounds[0]
    if solution.whole("n_actions", 2) != len(first.counts):
        wrong.append(f"the refutation has {len(first.counts)} actions, the solution {solution.whole('n_actions')}")
    if solution.entry("expert") is not None:
        expert = solution.whole("expert")
        if expert >= len(first.counts) or any((own.probabilities[:, expert] != 1).any() for own in grounds):
            wrong.append(f"the refutation is about another expert than {expert}")
    boxes = [own.functions("basis").box for own in solution.records("components")]
    if boxes != [own.columns.box for own in grounds]:
        wrong.append("the refutation is about other components than its solution")
    return wrong


def _trusted(grounds: list[Ground], record: Record) -> list[str]:
    trusted = [DRAWS.replace(", valued with this reward", "")]
    if len(grounds) > 1:
        trusted.append(SEPARATE)
    trusted += [f"in {own.name} " * (len(grounds) > 1) + tail_in_words(own.tail or 0.0, own.columns) for own in grounds]
    trusted.append(FIXED_BEFORE)
    if not (grounds[0].probabilities == grounds[0].probabilities[0]).all():
        away = (
            f", all of them farther than {short(record.number('tube'))} from its switches"
            if record.number("tube")
            else ""
        )
        trusted.append(
            f"the expert takes what the file says at the {len(grounds[0].states)} states of the comparisons{away}"
        )
    return trusted


def _conclude(
    about: Finding, record: Record, grounds: list[Ground], found: list[Numbers], delta: float, where: str
) -> None:
    """Compare the file's numbers with those that follow."""
    margin, kappa, ceiling = (record.bound(name) for name in ("margin", "estimated", "ceiling"))
    losses, refuted = record.named("losses"), all(float(own.above[own.cones].max()) < 0 for own in found)
    if set(losses) != set(LOSSES):
        raise DamagedError(f"losses should be {', '.join(LOSSES)}")
    follows = 0.0 if refuted else max(max(float(own.above[~own.cones].max()), 0.0) for own in found)
    estimate, errors, above = (
        np.concatenate([getattr(own, name)[..., own.cones] for own in found], axis=-1)
        for name in ("estimate", "errors", "above")
    )
    total = errors.sum(axis=0)
    ratios = estimate / total
    worst = int(ratios.argmax())
    about.margin = -float(above[worst])
    told = np.array([losses[name] for name in LOSSES])
    slack = RELATIVE * (np.abs(estimate) + total) + 2 * errors[2]
    near = (np.abs(estimate + kappa) <= ALIKE * np.abs(estimate) + slack) & (margin <= -above + slack)
    near &= (np.abs(errors - told[:, None]) <= ALIKE * errors + slack).all(axis=0)
    if not (near & (ratios >= ratios[worst] - ALIKE * (1 + abs(ratios[worst])))).any():
        about.wrong.append("the least clear direction, or its error, is not what follows from the sums")
    if (holds := margin > 0) and not refuted:
        about.wrong.append("not every direction is refuted by the sums")
    room = ALIKE * follows
    if not ceiling >= follows - room or not (ceiling <= follows + room or holds):
        about.wrong.append(f"the ceiling that follows from the sums is {short(follows, 6)}")
    cones = sum(len(own.mixtures) - 1 for own in grounds)
    clear = (
        f"the margin is {short(float(estimate[worst]))}, ± {short(float(total[worst]))}, in the least clear direction"
    )
    about.lines.insert(2, ("cones", f"{cones} cones cover all value functions: {clear}"))
    about.statement = _statement(record, grounds, delta, where, refuted and holds, max(ceiling, follows))


def _statement(record: Record, grounds: list[Ground], delta: float, where: str, refuted: bool, ceiling: float) -> str:
    first = grounds[0].probabilities
    action = int(first[0].argmax())
    expert = f"action {action}" if (first[:, action] == 1).all() else "the expert"
    tube = record.number("tube")
    away = f" farther than {short(tube)} from its switches" if tube else ""
    classes = ", ".join(sorted({str(own.functions) for own in grounds}))
    rewards = f"reward whose value lies in {classes}"
    if len(grounds) > 1:
        rewards = f"sum of rewards whose values lie in {classes} of each component"
    sure = f"with probability at least {probability(delta)} no {rewards}"
    if refuted:
        return f"{sure} makes {expert} strictly optimal at the states of {where}{away}, whatever the discount"
    return f"{sure} gives {expert} a margin above {at_most(ceiling)} per unit of ‖w‖₁ at the states of {where}{away}"
