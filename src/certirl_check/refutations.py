"""Refutations derived again: no value function of a class makes the expert strictly optimal, or none by more than this.

The notation is that of docs/notes/certificate.md, section 12. One derivation for experts of one action and policies,
intervals and boxes, single rewards and sums. Nothing here is shared with the code that made the refutation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from certirl_check.claims import DRAWS, FIXED_BEFORE, at_most, failed, short
from certirl_check.deviations import sloped
from certirl_check.enclosures import Enclosure, Floats, enclosed, inverse, logarithm, stacked
from certirl_check.grounds import Sums, SumsClaim
from certirl_check.records import ALIKE, RELATIVE, TIGHT, DamagedError, ImpossibleError, Record


class Cover(Sums):
    """What was fixed beforehand and the sums over fresh data of one component of a refutation; names as in a file."""

    def __init__(self, record: Record) -> None:
        cover, sums = record.record("cover", "Cover"), record.record("sums", "ResidualSums")
        super().__init__(record, cover.text("name"), cover, sums)
        self.functions = cover.functions("functions")
        A, k, p, d = self.actions, self.columns.size, self.functions.size - 1, self.columns.dimension
        if self.functions.box != self.columns.box:
            raise ImpossibleError(f"the functions are on {self.functions.domain}, the columns on {self.columns.domain}")
        if p < 1:
            raise DamagedError("a refutation needs two functions or more")
        self.states = cover.array("states", (None, d))
        rows = len(self.states)
        self.compared = cover.array("actions", (rows,), "iu")
        self.probabilities = cover.array("probabilities", (rows, A))
        self.mixtures, self.corners = cover.array("mixtures", (None, rows)), cover.array("corners", (p, p))
        self.cones = len(self.mixtures) - 1
        if self.cones < p + 1:
            raise ImpossibleError("there are fewer cones than it takes to cover all value functions")
        numbers = (self.cones + 2) * p
        self.splits = cover.array("splits", (self.cones - p - 1, 4), "iu")
        self.slopes, self.shares = cover.array("slopes", (numbers,)), cover.array("shares", (numbers,))
        self.fits, self.residuals = cover.array("fits", (A, p, k)), sums.array("residuals", (A, p, k))
        # (c, i) ≤ (d, j), each as one number, whose residuals are multiplied.
        every = combinations_with_replacement(range(A * p), 2)
        self.pairs = [(one, other) for one, other in every if self.paired or one // p == other // p]
        self.moments = sums.array("moments", (len(self.pairs), *self.columns.wide))
        diagonal = [i for i, (one, other) in enumerate(self.pairs) if one == other]
        self.squares = self.moments.reshape(len(self.moments), -1)[diagonal, 0].reshape(A, p)  # ΣE_ci²

    def contradictions(self) -> list[str]:
        """What neither cones, nor mixtures, nor sums can be."""
        (lows, highs), (A, p, _), (cone, u, v, exponent) = np.array(self.columns.box).T, self.fits.shape, self.splits.T
        inside = (lows <= self.states) & (self.states <= highs)
        compared = self.compared.min(initial=0) >= 0 and self.compared.max(initial=0) < A
        whole = (self.splits[:, :3] >= 0).all() and (cone < p + 1 + np.arange(len(cone))).all()
        whole = whole and (np.maximum(u, v) < p).all()
        shared = (self.shares > 0).all() and ((self.slopes > 0) & (self.slopes < 1)).all()
        small = self.residuals**2 <= (self.counts[:, None] * self.squares * (1 + TIGHT))[:, :, None]
        return super().contradictions() + failed(
            (inside.all(), f"states are compared outside {self.columns.domain}"),
            (compared, "actions are compared that there are not"),
            (_are_mixtures(self.probabilities), "the expert's probabilities do not add up to 1"),
            (_are_mixtures(self.mixtures), "the weights of a mixture do not add up to 1"),
            (shared, "a share of δ or a slope is not between 0 and 1"),
            (whole, "a cone is split that there is not"),
            (np.isin(exponent, range(-100, 101)).all(), "a cone is split in parts of different orders of magnitude"),
            (small.all(), "the residuals of an action are larger than their second moments allow"),
        )

    @property
    def alternatives(self) -> Floats:
        """The weight of every alternative action in every mixture ``[F + 1, A]``."""
        return np.stack([self.mixtures[:, self.compared == a].sum(axis=1) for a in range(self.actions)], axis=1)

    def directions(self) -> Enclosure:
        """w of every number, of unit ‖·‖₁ but for rounding, and the mixture of each ``[F p + 2p, p]``."""
        p = len(self.corners)
        corners = Enclosure(self.corners)
        inverse(corners)  # they span all directions, or ZeroDivisionError
        simplex = [-corners.sum(0), *(corners[i] for i in range(p))]
        cones = [[corner for i, corner in enumerate(simplex) if i != v] for v in range(p + 1)]
        for number, u, v, exponent in self.splits.tolist():
            new = cones[number][u] + cones[number][v] * 2.0**exponent
            second = [*cones[number]]
            cones[number][u] = second[v] = new
            cones.append(second)
        units = [row / float(np.abs(row.middle).sum()) for cone in cones for row in cone]
        axes = np.vstack([np.eye(p), -np.eye(p)])
        return stacked([*units, *(Enclosure(axis) for axis in axes)])


def _are_mixtures(weights: Floats) -> bool:
    """Whether every row holds weights that add up to 1."""
    return bool((weights >= 0).all() and np.abs(weights.sum(axis=1) - 1).max(initial=0.0) <= TIGHT)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Of every number of a component its estimate and its error."""

    estimate: Floats  # [N]
    errors: Floats  # estimation, tail and rounding [3, N]
    above: Floats  # no smaller than the number [N]
    cones: NDArray[np.bool_]  # which belong to cones; the others give the ceiling


def numbers(g: Cover, delta: float) -> Numbers:
    """w·x for all cones and for the axes, with what they can be wrong by."""
    columns, (A, p, k) = g.columns, g.fits.shape
    condition, which, w = g.condition, np.repeat(np.arange(g.cones + 1), [p] * g.cones + [2 * p]), g.directions()
    contrast = g.probabilities - np.eye(A)[g.compared]
    x = columns.at(g.states)
    pulls = [enclosed(g.mixtures) @ (x * contrast[:, c, None]) for c in range(A)]  # g_c [F + 1, k]
    q = [pull @ g.precision[c] for c, pull in enumerate(pulls)]
    means = stacked([pulls[c] @ g.fits[c].T + q[c] @ g.residuals[c].T for c in range(A)]).sum(0)
    estimate = (means[which] * w).sum()
    middle, half = _ranges(g, w)
    bound = _largest(g, q, w, which, middle, half)
    reach = stacked([((q[c] @ g.grams[c]) * q[c]).sum().positive() * float(g.counts[c]) for c in range(A)])
    tail = (half * (reach.root().sum(0)[which] + 2.0) * (g.tail or 0.0)).above
    floating = g.rounding * k**2 * condition * (np.abs(middle) + 3 * half.above) * (1 + 1e-12)
    sizes = np.sum([np.outer(q[c].size.sum(axis=1), np.sqrt(g.squares[c])) for c in range(A)], axis=0)
    rounding = (np.abs(w.middle) * (np.sqrt(g.rounding) * sizes[which])).sum(axis=1) ** 2 * (1 + 1e-12)
    log_terms = -logarithm(enclosed(g.shares) * delta * (1 - 1e-15))
    slope = g.slopes / np.maximum(bound, 1e-300)
    estimation = sloped(_second_moments(g, q, w, which) + rounding, bound, log_terms, slope)
    above = (estimate + estimation + tail + floating).above
    return Numbers(estimate.middle, np.array([estimation, tail, floating]), above, which < g.cones)


def _second_moments(g: Cover, q: list[Enclosure], w: Enclosure, which: NDArray[np.intp]) -> Enclosure:
    """ΣZ² of the terms of every number."""
    p, total = len(g.corners), Enclosure(np.zeros(len(w)))
    for (one, other), moment in zip(g.pairs, g.moments, strict=True):
        (c, i), (d, j) = divmod(one, p), divmod(other, p)
        form = ((q[c] @ g.columns.lifted(moment)) * q[d]).sum()
        total = total + w[:, i] * w[:, j] * form[which] * (1.0 if one == other else 2.0)
    return total.positive()


def _ranges(g: Cover, w: Enclosure) -> tuple[Floats, Enclosure]:
    """w·ψ is within middle ± half at every state: ``[N]`` each."""
    table = g.functions.mesh(g.functions.dense, harmonics=False)[:, 1:]
    low, high = np.empty(len(w)), np.empty(len(w))
    for start in range(0, len(w), 256):
        values = w[start : start + 256] @ table.T
        low[start : start + 256], high[start : start + 256] = values.below.min(axis=1), values.above.max(axis=1)
    middle = (low + high) / 2
    reach = np.maximum((enclosed(high) - middle).above, (enclosed(middle) - low).above)
    return middle, enclosed(reach) * g.functions.inflation(g.functions.dense)


def _largest(
    g: Cover, q: list[Enclosure], w: Enclosure, which: NDArray[np.intp], middle: Floats, half: Enclosure
) -> Floats:
    """sup|Z| of the terms of every number ``[N]``."""
    x, A, largest = g.columns.dense_values.T, len(q), np.empty(len(w))
    fitted, double = enclosed(g.fits) @ x, g.columns.inflation(g.columns.dense, 2)  # [A, p, q]
    for number in range(len(g.mixtures)):
        rows = np.flatnonzero(which == number)
        swings = stacked([weights[number] @ x for weights in q])  # [A, q]
        guesses = [w[rows] @ fitted[c] - middle[rows][:, None] for c in range(A)]
        reach = half[rows][:, None]
        if g.paired:
            together = stacked([guesses[c] * swings[c] for c in range(A)]).sum(0).absolute()
            terms = (reach * swings.absolute().sum(0) + together).above
        else:
            each = [((reach + guesses[c].absolute()) * swings[c].absolute()).above for c in range(A)]
            terms = np.max(each, axis=0)
        largest[rows] = terms.max(axis=1) * double * (1 + 1e-15)
    return largest


class Refutation(SumsClaim):
    """A refutation as a file holds it, alone or within a solution."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        self.covers = [Cover(ground) for ground in record.records("grounds")]
        super().__init__(record, solution, self.covers)
        self.tube, self.several = record.number("tube"), len(self.covers) > 1
        # Shares of the part of δ that the numbers divide, and the expert's probabilities at all states [n, A].
        self.shares = math.fsum(float(cover.shares.sum()) for cover in self.covers)
        self.divided = self.spending.get("cones", 0.0) + self.spending.get("ceiling", 0.0)
        self.taken = np.concatenate([cover.probabilities for cover in self.covers])
        self._steady = bool((self.taken == self.taken[0]).all())  # the expert does the same at all of them
        self._away = "" if self._steady or not self.tube else f" farther than {short(self.tube)} from its switches"

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The margin that a file claims, and why it claims nothing if so."""
        margin = record.bound("margin")
        if None in [ground.entry("tail") for ground in record.records("grounds")]:
            return margin, "no tail was declared"
        if not margin > 0 and not record.bound("ceiling") < math.inf:
            return margin, "the estimates are not clear of their errors, and no ceiling is claimed"
        return margin, ""

    def contradictions(self) -> list[str]:
        """What cannot be in the refutation, or contradicts its solution."""
        alternatives = np.concatenate([cover.alternatives for cover in self.covers])
        spent = self.shares <= 1 + TIGHT and 0 < self.divided <= self.delta * (1 + TIGHT)
        apart = not self.several or (self._steady and self.taken[0].max() == 1)
        alike = not self.several or np.abs(alternatives - alternatives[0]).max() <= TIGHT
        wrong = super().contradictions() + failed(
            (spent, "the shares of δ add up to more than there is"),
            (self.tube >= 0, f"a tube of half-width {short(self.tube)} is none"),
            (apart, "the expert takes several actions, and then components cannot be looked at separately"),
            (alike, "the mixtures do not weigh the alternative actions alike"),
        )
        return wrong + ([] if self.solution is None else self._other_solution(self.solution))

    def _other_solution(self, solution: Record) -> list[str]:
        """Where a solution is about something else than its refutation."""
        A, actions, expert = self.covers[0].actions, solution.whole("n_actions"), solution.entry("expert")
        boxes = [component.functions("basis").box for component in solution.records("components")]
        takes = expert is None or (solution.whole("expert") < A and (self.taken[:, expert] == 1).all())
        same = boxes == [cover.columns.box for cover in self.covers]
        return failed(
            (actions == A, f"the refutation has {A} actions, the solution {actions}"),
            (takes, f"the refutation is about another expert than {expert}"),
            (same, "the refutation is about other components than its solution"),
        )

    # What is printed.

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much."""
        classes = ", ".join(sorted({f"{cover.functions} on {cover.functions.domain}" for cover in self.covers}))
        return [
            ("problem", f"{self.covers[0].actions} actions, any discount; states in {self.domain}"),
            ("class", f"rewards of the state whose value lies in {classes}" + " of each component" * self.several),
            *self.account,
            ("data", self.covers[0].data),
            ("spent", self.spent),
        ]

    def trusted(self) -> list[str]:
        """What no file can show."""
        fixed = FIXED_BEFORE.format("the functions, the comparisons, the cones, the guesses")
        trusted = [DRAWS.format(""), *self.notes, *self.assumptions(), fixed]
        if not self._steady:
            away = self._away and f", all of them{self._away}"
            states = f"the {len(self.covers[0].states)} states of the comparisons{away}"
            trusted.append(f"the expert takes what the file says at {states}")
        return trusted

    def _statement(self, refuted: bool, ceiling: float) -> str:
        """What is confirmed, in a sentence."""
        action = int(self.taken[0].argmax())
        expert = f"action {action}" if (self.taken[:, action] == 1).all() else "the expert"
        classes = ", ".join(sorted({str(cover.functions) for cover in self.covers}))
        rewards = f"reward of the state whose value lies in {classes}"
        if self.several:
            rewards = f"sum of rewards of the state whose values lie in {classes} of each component"
        sure = f"with probability at least {self.probability} no {rewards}"
        where = f"at the states of {self.domain}{self._away}"
        if refuted:
            return f"{sure} makes {expert} strictly optimal {where}, whatever the discount"
        return f"{sure} gives {expert} a margin above {at_most(ceiling)} per unit of ‖w‖₁ {where}"

    # What follows.

    def conclude(self) -> list[str]:
        """Derive what every direction is refuted by, and say what of the file does not follow."""
        derived = [numbers(cover, self.divided / max(1.0, self.shares)) for cover in self.covers]
        ceiling, refuted = self.record.bound("ceiling"), all(float(own.above[own.cones].max()) < 0 for own in derived)
        ceilings = [own.above[~own.cones].max() for own in derived]
        follows = 0.0 if refuted else float(np.maximum(np.max(ceilings), 0.0))
        estimate, errors, above = (
            np.concatenate([getattr(own, name)[..., own.cones] for own in derived], axis=-1)
            for name in ("estimate", "errors", "above")
        )
        total = errors.sum(axis=0)
        ratios = estimate / total
        worst = int(ratios.argmax())
        self.derived = -float(above[worst])
        near = ratios >= ratios[worst] - ALIKE * (1 + abs(ratios[worst]))  # rounding may decide between these
        most = float((RELATIVE * (np.abs(estimate) + total) + 2 * errors[2] - above)[near].max(initial=-np.inf))
        holds, cones, margin = self.margin > 0, sum(cover.cones for cover in self.covers), short(float(estimate[worst]))
        clear = f"the margin is {margin}, ± {short(float(total[worst]))}"
        where = "in the direction w with the smallest margin over error"
        self.account = [("cones", f"{cones} cones cover all value functions: {clear}, {where}")]
        self.statement = self._statement(refuted and holds, max(ceiling, follows))
        return failed(
            (self.margin <= most, "the claimed margin is larger than what follows from the sums"),
            (refuted or not holds, "not every direction is refuted by the sums"),
            (ceiling >= follows * (1 - ALIKE), f"the ceiling that follows from the sums is {short(follows, 6)}"),
        )
