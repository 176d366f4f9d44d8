"""Certificates derived again: of experts of one action and of policies, on intervals and boxes, alone and as sums.

One derivation: an interval is a box with one coordinate, a single reward is a sum of one component, and an expert of
one action is a policy whose grid has one cell. Nothing here is shared with the code that made the certificate. The
notation is that of docs/notes/certificate.md, sections 9 and 10. All bounds are rounded to the safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl_check.bands import (
    SHARES,
    Band,
    Claim,
    Derivation,
    Ground,
)
from certirl_check.enclosures import Enclosure, Floats, enclosed, smaller
from certirl_check.harmonics import Box, Cells
from certirl_check.records import (
    ALIKE,
    DRAWS,
    FIXED_BEFORE,
    IN_ORDER,
    RELATIVE,
    TIGHT,
    DamagedError,
    Record,
    TooLittleError,
    at_least,
    at_most,
    components_of,
    failed,
    short,
)

_NAMED = 4  # switches that are listed
Flags = NDArray[np.bool_]
Pair = tuple[int, int]


# Bounds at all states of one component.


Bound = tuple[float, float, float]  # a lower bound, the estimate that it is below, and what rounding may do to it


class Side:
    """One side of a band: D_ba from below, or D_ab.

    Attributes:
        pair: (b, a), b the better one.
        curve: D_ba as estimated, in the harmonics.
    """

    def __init__(self, band: Band, side: int, box: Box) -> None:
        self.band, self.side, self.box = band, side, box
        self.pair = band.pair if side == 0 else band.pair[::-1]
        self.curve = band.curve if side == 0 else -band.curve
        self.total = (enclosed(band.estimation) + band.second).above
        if not np.isfinite(self.total).all():
            raise TooLittleError("there is too little data: some bounds are infinite")
        below, above = float(self.total[side].max()), float(self.total[1 - side].max())
        factor = box.inflation(self.total.shape[1:])
        self.swing = float(((enclosed(below) + above) * 0.5 * factor).above)
        self.most = float(((enclosed(below) - above) * 0.5 + self.swing).above)

    def everywhere(self) -> Bound:
        """The least of the curve less the largest radius; how far the least is not known counts as rounding."""
        low, high = self.box.least(self.curve)
        radius = max(self.most, float(self.total[self.side].max()))
        lower = enclosed(low) - radius - self.band.tail - self.band.rounding
        return float(lower.below), high, float((enclosed(high) - low + self.band.rounding).above)

    def in_cells(self, cells: Cells) -> tuple[Floats, Floats]:
        """Lower bounds within cells, and the estimates at their middles ``[n_1, …, n_d]``."""
        axes = self.box.places(cells)
        here, there = self.total[self.side], self.total[1 - self.side]
        numbers = [np.ones_like(here), here, here + there, here - there]
        (weight, _), (own, _), (both, _), (_, apart) = self.box.blended(numbers, axes)
        slack = 4e-16 * float((here + there).max()) * float(weight.above.max())  # of the sum and the difference above
        radius = smaller((both + apart) * 0.5 + slack, Enclosure(np.full(weight.shape, self.most)))
        radius = radius + enclosed(self.box.drift(cells)) * self.swing
        between = np.maximum(radius.above, (own / weight).above)
        values = self.box.on_axes(self.box.tensor(self.curve), axes)
        lost = enclosed(between) + self.box.fall(self.curve, cells) + self.band.tail + self.band.rounding
        return (values - lost).below, values.middle


@dataclass(frozen=True, eq=False)
class Expert:
    """What the expert does at the corners of equal cells of a box.

    Attributes:
        box: (low, high) for each coordinate.
        support: the actions that it takes at each corner ``[c_1 + 1, …, c_d + 1, A]``.
    """

    box: tuple[tuple[float, float], ...]
    support: Flags

    @classmethod
    def of_action(cls, ground: Ground) -> Expert:
        """An expert that takes one action everywhere: one cell is the whole box."""
        box = ground.columns.box
        return cls(
            box, np.broadcast_to(np.arange(ground.actions) == ground.used[0], (*(2,) * len(box), ground.actions))
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate."""
        return tuple(n - 1 for n in self.support.shape[:-1])

    @property
    def sides(self) -> Floats:
        """Of a cell ``[d]``."""
        return np.array([(high - low) / n for (low, high), n in zip(self.box, self.shape, strict=True)])

    @property
    def reach(self) -> float:
        """The diagonal of a cell."""
        return float(np.sqrt((self.sides**2).sum()))

    @cached_property
    def edges(self) -> list[Floats]:
        """Of the cells along each coordinate."""
        return [np.linspace(low, high, n + 1) for (low, high), n in zip(self.box, self.shape, strict=True)]

    def contains(self, state: Floats) -> bool:
        """Whether a state lies in the box."""
        return all(low <= x <= high for x, (low, high) in zip(state, self.box, strict=True))

    def _corners(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values at the points, corner by corner of the cells ``[2ᵈ, c_1, …, c_d, …]``."""
        return np.stack([values[corner] for corner in self._slices])

    @property
    def _slices(self) -> list[tuple[slice, ...]]:
        return list(combinations((slice(None, -1), slice(1, None)), repeat=len(self.box)))

    @cached_property
    def steady(self) -> Flags:
        """The cells whose corners agree ``[c_1, …, c_d]``."""
        corners = self._corners(self.support)
        return np.asarray((corners == corners[0]).all(axis=(0, -1)))

    @cached_property
    def taken(self) -> Flags:
        """What it may take in a cell; beside a switch on a box in a neighbour too ``[c_1, …, c_d, A]``."""
        here = np.asarray(self._corners(self.support).any(axis=0))
        if len(self.box) == 1:
            return here
        around = here
        for axis in range(len(self.box)):
            ends = [(1, 1) if i == axis else (0, 0) for i in range(here.ndim)]
            padded = np.pad(around, ends)
            around = np.any([np.take(padded, np.arange(i, i + here.shape[axis]), axis=axis) for i in range(3)], axis=0)
        return np.where(self.steady[..., None], here, around)

    @cached_property
    def away(self) -> Floats:
        """From every middle to that of the nearest cell that is not steady; infinite if all are ``[c_1, …, c_d]``."""
        cells, steady = np.arange(len(self.steady), dtype=float), self.steady.reshape(len(self.steady), -1)
        last = np.maximum.accumulate(np.where(steady, -np.inf, cells[:, None]), axis=0)
        following = np.minimum.accumulate(np.where(steady, np.inf, cells[:, None])[::-1], axis=0)[::-1]
        steps = np.minimum(cells[:, None] - last, following - cells[:, None]).reshape(self.steady.shape)
        squares = (steps * self.sides[0]) ** 2
        for axis, side in enumerate(self.sides[1:], 1):
            before = np.moveaxis(squares, axis, 0)
            after = before.copy()
            for step in range(1, len(before)):
                cost = (step * side) ** 2
                np.minimum(after[step:], before[:-step] + cost, out=after[step:])
                np.minimum(after[:-step], before[step:] + cost, out=after[:-step])
            squares = np.moveaxis(after, 0, axis)
        return np.sqrt(squares)

    @property
    def distance(self) -> Floats:
        """The farthest that a state of each cell can be from a switch ``[c_1, …, c_d]``."""
        return self.away + self.reach

    @cached_property
    def marks(self) -> Floats:
        """At every corner the least distance of a cell around it, at most two diagonals; empty without a switch."""
        if self.steady.all():
            return np.zeros(0)
        nearest = np.full(self.support.shape[:-1], np.inf)
        for corner in self._slices:
            np.minimum(nearest[corner], self.away, out=nearest[corner])
        return np.minimum(nearest, 2 * float(np.sqrt(sum((high - low) ** 2 for low, high in self.box))))

    def tents(self, marks: Floats, widths: Floats) -> list[Floats]:
        """No larger than each tent within cells."""
        if not len(widths):
            return []
        farthest = self._corners(marks).max(axis=0)
        return [np.maximum(0.0, 1 - farthest / width * (1 + 1e-15) - 1e-15) for width in widths]

    def cell(self, state: Floats) -> tuple[int, ...]:
        """The cell of a state."""
        lows = np.array([low for low, _ in self.box])
        along = np.floor((np.asarray(state) - lows) / self.sides).astype(int)
        return tuple(int(i) for i in np.clip(along, 0, np.array(self.shape) - 1))

    def at(self, state: Floats) -> Flags:
        """The actions that it may take at a state ``[A]``: at a corner of the grid those of the corner."""
        lows = np.array([low for low, _ in self.box])
        along = (np.asarray(state) - lows) / self.sides
        near = np.clip(np.rint(along), 0, np.array(self.shape)).astype(int)
        if np.abs(along - near).max() <= 1e-6:
            return np.asarray(self.support[tuple(near)])
        return np.asarray(self.taken[self.cell(state)])

    def __str__(self) -> str:
        cells = np.argwhere(~self.steady)
        if not len(cells):
            switches = "never switches"
        elif len(self.shape) > 1:
            switches = f"switches in {len(cells):,} cells between them"
        else:
            middles = (self.edges[0][1:] + self.edges[0][:-1]) / 2
            places = [short(middles[cell]) for (cell,) in cells[:_NAMED]] + ["…"] * (len(cells) > _NAMED)
            switches = f"switches at {', '.join(places)} ({len(cells)} in all)"
        return f"looked up at {self.corners} states; {switches}"

    @property
    def corners(self) -> str:
        """How many corners there are along each coordinate, in words."""
        return " × ".join(str(n + 1) for n in self.shape)


class Reading:
    """Lower bounds on D_ba of one component for all actions b that the expert takes.

    Attributes:
        expert: on its grid.
        sides: of the bands, by pair (b, a).
        cells: those of the expert's grid, cut into smaller ones.
        bounds: within the smaller cells, and estimates there, by pair.
        lower: the least of them in each cell of the grid, by pair ``[c_1, …, c_d]``.
        everywhere: bounds at all states at once, by pair; of a grid with one cell.
    """

    def __init__(self, bands: list[Band], expert: Expert, box: Box) -> None:
        self.expert, self.box, self.cells = expert, box, box.cells(expert.edges)
        used = np.asarray(expert.taken.reshape(-1, expert.taken.shape[-1]).any(axis=0))
        pairs = [(band, side) for band in bands for side in (0, 1) if used[band.pair[side]]]
        self.sides = {side.pair: side for side in (Side(band, i, box) for band, i in pairs)}
        self.bounds = {pair: side.in_cells(self.cells) for pair, side in self.sides.items()}
        self.lower = {pair: self._least(lower) for pair, (lower, _) in self.bounds.items()}
        whole = max(expert.shape) == 1
        self.everywhere = {pair: side.everywhere() for pair, side in self.sides.items() if whole}

    def _least(self, lower: Floats) -> Floats:
        """The least of the smaller cells in each cell of the grid; one on an edge counts for both sides."""
        for axis, (small, large) in enumerate(zip(self.cells.edges, self.expert.edges, strict=True)):
            first = np.searchsorted(small, large[:-1], side="right") - 1
            last = np.searchsorted(small, large[1:], side="left")
            runs = np.stack([first, np.minimum(last, len(small) - 1)], axis=1).ravel()
            padded = np.concatenate([lower, np.take(lower, [-1], axis=axis)], axis=axis)
            lower = np.take(np.minimum.reduceat(padded, runs, axis=axis), np.arange(0, len(runs), 2), axis=axis)
        return lower

    def strict(self, pair: Pair) -> Flags:
        """The cells in which the expert takes b and does not take a ``[c_1, …, c_d]``."""
        taken, (b, a) = self.expert.taken, pair
        return np.asarray(taken[..., b] & ~taken[..., a])

    def at_end(self, allowed: float) -> Flags:
        """The cells that end where the tube ends, but for rounding ``[c_1, …, c_d]``."""
        return np.asarray(np.abs(self.expert.distance - allowed) <= TIGHT * (allowed + self.expert.reach))

    def margins(self, allowed: float) -> dict[Pair, Bound]:
        """The least of D_ba farther than ``allowed`` from the switches, by pair."""
        ends = np.abs(self.expert.distance - allowed) <= TIGHT * (allowed + self.expert.reach)  # where the tube does
        outside, margins = (self.expert.distance > allowed) & ~ends, dict[Pair, Bound]()
        for pair, grid in self.lower.items():
            if (asked := self.strict(pair) & outside).any():
                (lower, values), least = self.bounds[pair], float(grid[asked].min())
                estimate = float(values[lower == least].max(initial=-np.inf))
                margins[pair] = (least, estimate, self.sides[pair].band.rounding)
                if pair in self.everywhere:
                    margins[pair] = max(margins[pair], self.everywhere[pair])
        return margins

    @cached_property
    def least(self) -> Floats:
        """Of every cell, over the actions that are taken and those that are not ``[c_1, …, c_d]``."""
        bounds = [np.where(self.strict(pair), lower, np.inf) for pair, lower in self.lower.items()]
        return np.asarray(np.min(bounds, axis=0))

    def tube(self, ground: Ground, visits: Floats, slack: float = 0.0) -> dict[str, float]:
        """What is claimed of a tube, by name: in units, and regret among it.

        Args:
            ground: which holds the tents.
            visits: of the tents ``[w]``.
            slack: by how much the bounds of cells that are called decided may be too small.
        """
        expert, short_by, ties = self.expert, np.zeros(self.expert.shape), 0.0
        for (b, a), lower in self.lower.items():
            short_by = np.maximum(short_by, np.where(expert.taken[..., b], -lower, 0.0))
            tied = expert.taken[..., b] & expert.taken[..., a] & expert.steady
            ties = max(ties, float(np.where(tied, -lower, 0.0).max()))
        now = later = float(short_by.max())
        lacking = short_by > 0
        for cover, visit in zip(expert.tents(ground.marks, ground.widths), visits, strict=True):
            if (cover[lacking] > 0).all():
                stretch = float((short_by[lacking] / cover[lacking]).max(initial=0.0)) * (1 + 1e-15)
                later = min(later, stretch * float(visit) * (1 + 1e-15))
        gamma = enclosed(ground.discount)
        regret = float((gamma * (enclosed(now) + gamma / (1.0 - gamma) * later)).above)
        undecided = ~(expert.steady & (self.least > -slack))
        disputed = ~expert.steady | (self.least <= regret - slack)
        return {
            "half_width": float(expert.distance[undecided].max(initial=0.0)),
            "share": float(undecided.mean()),
            "settled": float(expert.distance[disputed].max(initial=0.0)),
            "shortfall": ground.unit * now,
            "ties": ground.unit * ties,
            "regret": ground.unit * regret,
        }


def other_cells(tube: Record, expert: Expert, proved: Flags) -> list[str]:
    """Whether the file calls cells decided that are not, or leaves undecided ones out of its boxes."""
    decided = tube.array("decided", (expert.steady.size,), "b").reshape(expert.shape)
    middles = np.meshgrid(*((ends[1:] + ends[:-1]) / 2 for ends in expert.edges), indexing="ij")
    outside = ~decided
    for box in tube.array("undecided", (None, len(expert.shape), 2)):
        sides = zip(middles, box, strict=True)
        outside &= ~np.all([(low < x) & (x < high) for x, (low, high) in sides], axis=0)
    return failed(
        (not (decided & ~proved).any(), "cells are called decided that are not"),
        (not outside.any(), "the boxes around the tube leave undecided cells out"),
    )


# The certificate.


class Certificate(Claim):
    """A certificate as a file holds it, alone or within a solution.

    Attributes:
        grounds: of its components.
        tube: what is claimed of a tube; None for an expert of one action.
        expert: of the tube, on its grid.
        holds: whether a margin is claimed: above zero, of something, under a tail that was declared.
    """

    def __init__(self, record: Record, solution: Record | None) -> None:
        self.grounds = [Ground(ground) for ground in record.records("grounds")]
        super().__init__(record, solution, self.grounds)
        self.first, self.tail, self.expert = self.grounds[0], record.tail(), None
        self.holds = 0 < self.margin < math.inf and self.tail is not None
        self.tube = record.optional("tube", "Tube")
        if self.tube is not None:
            grid = self.tube.record("grid", "ExpertGrid")
            shape = (*[None] * self.first.columns.dimension, self.first.actions)
            self.expert = Expert(grid.box("domain"), grid.array("support", shape, "b"))
            if min(self.expert.shape) < 1:
                raise DamagedError("support should say what the expert does at the corners of cells")

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The margin that a file claims, and why it claims nothing if it does not."""
        margin = record.bound("margin")
        if record.entry("tail") is None:
            return margin, "no tail was declared"
        return margin, "" if 0 < margin < math.inf else "the margin is not positive"

    # What cannot be.

    def contradictions(self) -> list[str]:
        """What cannot be in the certificate, or contradicts its solution."""
        grounds, first = self.grounds, self.first
        samples, counted = self.record.whole("samples"), int(first.counts.min())
        shares, total = SHARES[first.constant], math.fsum(ground.delta for ground in grounds)
        split = [abs(self.spending.get(name, 0.0) - share * total) <= TIGHT * total for name, share in shares.items()]
        problem = (first.used, first.discount)
        wrong = super().contradictions() + failed(
            (samples == counted, f"{samples:,} fresh transitions per action are claimed, the sums are of {counted:,}"),
            (
                min(ground.delta for ground in grounds) > 0 and total <= self.delta * (1 + TIGHT),
                "the components spend more of δ than there is",
            ),
            (all(split), "the parts of δ are not those of the components"),
            (
                all((ground.used, ground.discount) == problem for ground in grounds),
                "the components are not of one problem",
            ),
            (len({ground.component for ground in grounds}) == len(grounds), "two components have the same number"),
            (
                first.coordinates is None or (first.constant and self.tube is None),
                "the expert of a sum of components takes several actions",
            ),
            (
                self.tail is None or self.tail == max(ground.tau for ground in grounds),
                "the tail is not the largest of the components",
            ),
            (first.constant or self.tube is not None, "the expert takes several actions, and there is no tube"),
        )
        if self.expert is not None:
            wrong += self._other_expert(self.expert) or self._other_drop(self.expert)
        return wrong + ([] if self.solution is None else self._other_solution(self.solution))

    def _other_expert(self, expert: Expert) -> list[str]:
        """Where the expert on its grid contradicts what the sums were made with."""
        g, taken = self.first, expert.support.reshape(-1, self.first.actions)
        used, marks = tuple(np.flatnonzero(taken.any(axis=0)).tolist()), expert.marks
        same = g.marks.shape == marks.shape and np.allclose(g.marks, marks, rtol=TIGHT, atol=0)
        return failed(
            (
                expert.box == g.columns.box,
                f"the expert is on {expert.box!r:.60}, the columns are on {g.columns.domain}",
            ),
            (taken.any(axis=1).all(), "the expert takes no action at some state"),
            (used == g.used, f"the expert takes other actions somewhere than {', '.join(map(str, g.used))}"),
            (same, "the tents do not stand where the expert switches"),
            (len(marks) or not len(g.widths), "there are tents, and the expert never switches"),
        )

    def _other_drop(self, expert: Expert) -> list[str]:
        """Whether V̂ and the functions π_dh_j do not differ as stated between the two places."""
        g, used = self.first, list(self.first.used)
        if not all(expert.contains(place) for place in g.places):
            return [f"the states that the span of V is taken from lie outside {g.columns.domain}"]
        high, low = g.box.at(g.places).middle
        stated, taken = g.drop.reshape(len(used), -1), [expert.at(place)[used] for place in g.places]
        if all(actions.sum() == 1 for actions in taken):
            derived = np.outer(taken[0], high) - np.outer(taken[1], low)
        else:  # where the expert mixes its probabilities are not in the file, but they add up to one
            stated, derived = stated.sum(axis=0, keepdims=True), (high - low)[None]
        between, room = g.dropped, 0.0
        if g.reward.basis is not None:
            values = g.reward.basis.values(g.reward.coefficients, g.places)
            between = float(values[0] - values[1] + g.discount * (g.fits[used].ravel() @ g.drop))
            room = TIGHT * float(abs(g.low) + abs(g.high) + np.abs(values).sum())
        return failed(
            (
                np.abs(stated - derived).max() <= TIGHT,
                "the functions of the expert differ otherwise between the states that the span of V is taken from",
            ),
            (0 <= g.dropped <= (g.high - g.low) * (1 + TIGHT), "V differs by more than its bounds allow"),
            (
                abs(between - g.dropped) <= room,
                f"V differs by {short(g.unit * between, 6)} between the states that its span is taken from",
            ),
        )

    def _other_solution(self, solution: Record) -> list[str]:
        """Where a solution has another reward or expert than its certificate, or another problem."""
        g, action, reward = self.first, solution.entry("expert"), solution.record("reward", "Reward")
        listed = components_of(reward)
        terms, coordinates = (
            {term.coordinates: term for term in listed},
            [c for term in listed for c in term.coordinates],
        )
        whole = tuple(range(g.columns.dimension))
        grounds = {ground.coordinates or whole: ground for ground in self.grounds}
        same = all(
            term.basis == ground.reward.basis
            and np.array_equal(term.coefficients / ground.unit, ground.reward.coefficients)
            for term, ground in ((terms[place], grounds[place]) for place in terms.keys() & grounds.keys())
        )
        others = [term for place, term in terms.items() if place not in grounds]
        terminal = solution.record("stats").entry("terminal") is not None or reward.has_terminal
        discount, actions = solution.number("discount"), solution.whole("n_actions", 2)
        return failed(
            (self.holds or solution.status != "certified", "the file says that it is certified, by what is no proof"),
            (discount == g.discount, f"the certificate has discount {g.discount:g}, the solution {discount:g}"),
            (actions == g.actions, f"the certificate has {g.actions} actions, the solution {actions}"),
            (
                action is None or ((solution.whole("expert"),) == g.used and self.tube is None),
                f"the solution is about expert {action}, its certificate about another",
            ),
            (not terminal, "the solution has terminal states, and no certificate is for problems with any"),
            (same, "the certificate is about another reward than its solution"),
            (not any(term.coefficients.any() for term in others), "a component with a reward has no bound"),
            (grounds.keys() <= terms.keys(), "the certificate has components that the solution does not have"),
            (
                sorted(coordinates) == list(range(len(coordinates))),
                "the components do not hold every coordinate once",
            ),
        )

    # What is printed.

    @property
    def domain(self) -> str:
        """The states in words."""
        terms = [] if self.solution is None else components_of(self.solution.record("reward", "Reward"))
        domains = [term.basis.domain for term in terms if term.basis is not None]
        return " × ".join(domains) if len(domains) > 1 else super().domain

    def lines(self) -> list[tuple[str, str]]:
        """What is claimed of which problem, from how much."""
        g = self.first
        expert = f", the expert always takes {g.used[0]};" if self.tube is None else ","
        reward = "a sum over components: " + "; ".join(f"{part.name} {part.described}" for part in self.grounds)
        return [
            ("problem", f"{g.actions} actions{expert} discount {g.discount:g}; states in {self.domain}"),
            ("reward", g.described if g.coordinates is None else reward),
            *self.account,
            *([] if self.expert is None else [("expert", str(self.expert))]),
            ("data", g.data),
            ("spent", self.spent),
        ]

    def trusted(self) -> list[str]:
        """What no file can show."""
        rows = IN_ORDER if self.first.ordered else DRAWS
        trusted = [rows.format(", valued with this reward"), *self.record.notes(), *self.assumptions()]
        trusted.append(FIXED_BEFORE.format("the reward, the guesses"))
        if self.expert is not None:
            within = "between two neighbours only what it takes at one of them"
            if len(self.expert.shape) > 1:
                beside = "or at those of cells beside it where these disagree"
                within = f"within a cell only what it takes at its corners, {beside}"
            states = f"at {self.expert.corners} evenly spaced states"
            trusted.append(f"the expert takes what the file says {states}, and {within}")
        for ground in self.grounds:
            if ground.reward.basis is None:
                low, high, dropped = (
                    short(ground.unit * x) for x in (ground.reward.low, ground.reward.high, ground.dropped)
                )
                about = "the certificate is about your reward"
                trusted.append(f"{about}, which is not in the file and stays within [{low}, {high}]")
                if self.expert is not None:
                    value = "the value that was guessed for it"
                    trusted.append(f"{value} differs by {dropped} between two states of the file")
        return trusted

    # What follows.

    def conclude(self) -> list[str]:
        """Derive the margin, minima over components added up pair by pair, and say what of the file does not follow."""
        allowed = 0.0 if self.tube is None else self.tube.number("allowed")
        if self.expert is not None:
            width = min(high - low for low, high in self.expert.box)
            if not self.expert.reach * (1 - TIGHT) <= allowed < width * (1 + TIGHT):
                none = f"is none between a cell and the domain {self.domain}"
                return [f"a tube of half-width {short(allowed)} {none}"]
        work = [Derivation(ground) for ground in self.grounds]
        readings = [Reading(own.bands(), self.expert or Expert.of_action(own.g), own.box) for own in work]
        each = [reading.margins(allowed) for reading in readings]
        units = np.array([ground.unit for ground in self.grounds])
        bounds = {pair: units[:, None] * [own[pair] for own in each] for pair in each[0]}
        if not bounds:
            none = "no state is left outside the tube at which actions are compared"
            return failed((self.margin == math.inf, none))
        worst = min(bounds.values(), key=lambda own: math.fsum(own[:, 0]))
        self.derived = margin = float(np.nextafter(math.fsum(worst[:, 0]), -np.inf))
        estimate, lost = float(worst[:, 1].sum()), float((worst[:, 1] - worst[:, 0]).sum())
        scale = abs(estimate) + lost
        slack = RELATIVE * scale + 2 * float(worst[:, 2].sum())
        account = f"{short(estimate)} estimated − {short(lost, 2)} lost = {short(margin)}"
        self.account = [("margin", f"{account}; the file says {short(self.margin)}")]
        self.statement = self._statement(min(margin, self.margin), allowed)
        wrong = failed(
            (margin > 0 or not self.holds, "the margin that follows from the sums is not positive"),
            (
                self.margin <= margin + slack,
                f"the claimed margin is larger than what follows from the sums, {short(margin)}",
            ),
        )
        if self.tube is not None:
            return wrong + self._compare_tube(self.tube, work[0], readings[0], scale)
        shown = self.record.array("bounds", (None, self.first.actions - 1), finite=False)
        derived, numbers = np.zeros(shown.shape), [ground.component for ground in self.grounds]
        if len(shown) <= max(numbers):
            raise DamagedError("bounds should be those of all components")
        derived[numbers] = np.array([bounds[pair][:, 0] for pair in sorted(bounds)]).T
        regret = self.first.discount / (1 - self.first.discount) * max(0.0, -margin - slack)
        return wrong + failed(
            ((shown <= derived + slack).all(), "the bounds of the components are larger than what follows"),
            (self.record.bound("regret") >= regret, f"the regret that follows is {short(regret, 6)}"),
        )

    def _compare_tube(self, tube: Record, work: Derivation, reading: Reading, scale: float) -> list[str]:
        """Compare the tube with what follows, and describe it by the weaker of the two."""
        g, expert, wrong = work.g, reading.expert, []
        span, derived = g.unit * work.span(), reading.tube(g, work.visits())
        rounding = max(side.band.rounding for side in reading.sides.values())
        ahead = 10 * (RELATIVE * (scale + span) + g.unit * rounding) / (1 - g.discount)
        slack = RELATIVE * (scale + span) / g.unit + 2 * rounding
        allowed = reading.tube(g, work.visits(), slack)
        width = RELATIVE * min(high - low for low, high in expert.box)
        room = {"half_width": width, "share": RELATIVE, "settled": width}
        for name, x in derived.items():
            stated = (self.record if name == "regret" else tube).bound(name)
            if not stated >= allowed[name] - room.get(name, ALIKE * x * (name == "regret") + ahead):
                wrong.append(f"{name.replace('_', ' ')} may be {short(x, 6)}, more than is claimed")
            derived[name] = max(x, stated)
        stated = self.record.bound("value_span")
        self.record.array("bounds", (0, g.actions - 1))  # of a policy there are none
        enough = stated <= span * (1 + ALIKE) + ahead
        wrong += failed((enough, f"the value span may be {short(span, 6)}, less than is claimed"))
        span = min(span, stated)
        wrong += other_cells(tube, expert, expert.steady & (reading.least > -slack))
        regret, settled = derived["regret"], derived["settled"]
        share = f", {at_most(regret / span, 3)} of the span of V, at least {at_least(span)}" if span > 0 else ""
        away = "" if expert.steady.all() else f"farther than {at_most(settled)} from a switch "
        reach = min(high - low for low, high in expert.box) / 2  # farther from a switch there may be no state
        beyond = f"; {away}every best policy takes an action that the expert takes" if settled < reach else ""
        domain = f"{at_most(derived['share'] * 100, 3)} % of the domain"
        self.account += [
            ("tube", f"half-width at most {at_most(derived['half_width'])}, {domain}"),
            ("regret", f"at most {at_most(regret)}{share}{beyond}"),
        ]
        if derived["ties"] > 0:
            self.account.append(("ties", f"actions that the expert mixes differ by {at_most(derived['ties'])} at most"))
        return wrong

    def _statement(self, margin: float, allowed: float) -> str:
        """What is confirmed, in a sentence."""
        sure = f"with probability at least {self.probability}"
        if self.expert is None:
            return (
                f"{sure} action {self.first.used[0]} is strictly optimal at every state of {self.domain}: "
                f"D_a(s) ≥ {at_least(margin)} for every other action a, D_a being its advantage over a divided by the "
                "discount"
            )
        count = int((~self.expert.steady).sum())
        switches = "its switch" if count == 1 else f"each of its {count} switches"
        if count > 1 and len(self.expert.shape) > 1:
            switches = "where it switches"
        where = f" farther than {short(allowed)} from {switches}" if count else ""
        return (
            f"{sure}, at every state of {self.domain}{where}, every action that the expert takes is strictly better "
            "than every action that it does not take, if it is followed afterwards: "
            f"(P_b − P_a)V(s) ≥ {at_least(margin)}"
        )
