"""What bands say of an expert: the margin at every state, or cell by cell with a tube around its switches.

The notation is that of docs/notes/certificate.md, sections 9 and 10. All bounds are rounded to the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.checker.bands import Band, TooLittleError
from certirl.checker.enclosures import Enclosure, Floats, enclosed, smaller
from certirl.checker.harmonics import Box, Cells
from certirl.checker.records import TIGHT

LOSSES = ("estimation", "grid", "second order", "truncation tail", "floating point")
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Parts:
    """A lower bound on a margin, and what it is made of: an estimate less losses, in the order of `LOSSES`."""

    estimated: float
    losses: tuple[float, ...]

    @property
    def margin(self) -> float:
        """What is left, rounded down."""
        return float((enclosed(self.estimated) - enclosed(np.array(self.losses)).sum()).below)

    @property
    def scale(self) -> float:
        """The size of the parts, which differences are measured by."""
        return abs(self.estimated) + sum(self.losses)

    def times(self, unit: float) -> Parts:
        """In other units."""
        return Parts(unit * self.estimated, tuple(unit * own for own in self.losses))

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            self.estimated + other.estimated, tuple(a + b for a, b in zip(self.losses, other.losses, strict=True))
        )

    def __str__(self) -> str:
        named = [(x, name) for x, name in zip(self.losses, LOSSES, strict=True) if x > 1e-12 * self.scale]
        return " − ".join([f"{self.estimated:.4g} estimated", *(f"{x:.2g} {name}" for x, name in named)])


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

    def everywhere(self) -> Parts:
        """The least of the curve less the largest radius."""
        own = self.total[self.side]
        worst = np.unravel_index(int(own.argmax()), own.shape)
        first, second = (float(x[self.side][worst]) for x in (self.band.estimation, self.band.second))
        between = float((enclosed(self.most) - first - second).above)
        rest = (self.band.tail, self.band.rounding)
        return Parts(self.box.minimum(self.curve), (first, max(between, 0.0), second, *rest))

    def in_cells(self, cells: Cells) -> Bounds:
        """Bounds within cells."""
        axes, (first, second) = self.box.places(cells), (self.band.estimation, self.band.second)
        one, other = self.total[self.side], self.total[1 - self.side]
        numbers = [np.ones_like(one), first[self.side], second[self.side], one + other, one - other]
        (weight, _), (estimation, _), (more, _), (both, _), (_, apart) = self.box.blended(numbers, axes)
        slack = 4e-16 * float((one + other).max()) * float(weight.above.max())  # of the sum and the difference above
        radius = smaller((both + apart) * 0.5 + slack, Enclosure(np.full(weight.shape, self.most)))
        radius = radius + enclosed(self.box.drift(cells)) * self.swing
        here = (estimation / weight).above, (more / weight).above
        between = np.maximum((radius - here[0] - here[1]).above, 0.0)
        values = self.box.on_axes(self.box.tensor(self.curve), axes)
        falls = self.box.fall(self.curve, cells)
        lost = enclosed(here[0]) + here[1] + between + falls + self.band.tail + self.band.rounding
        parts, rest = (here[0], between + falls, here[1]), (self.band.tail, self.band.rounding)
        return Bounds(self.pair, cells, values.middle, parts, rest, (values - lost).below)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on D_ba within cells.

    Attributes:
        pair: (b, a).
        cells: where.
        values: the estimates at the middles ``[n_1, …, n_d]``.
        parts: estimation, grid and second order there.
        rest: tail and rounding.
        lower: the bounds.
    """

    pair: tuple[int, int]
    cells: Cells
    values: Floats
    parts: tuple[Floats, ...]
    rest: tuple[float, float]
    lower: Floats

    def at(self, cell: Any) -> Parts:
        """In one cell."""
        return Parts(float(self.values[cell]), (*(float(own[cell]) for own in self.parts), *self.rest))


def whole(side: Side) -> list[tuple[Parts, Bounds | None]]:
    """The margin at every state by its two bounds, the better one first: at once, and cell by cell."""
    once, bounds = side.everywhere(), side.in_cells(side.box.cells())
    worst = bounds.at(np.unravel_index(int(bounds.lower.argmin()), bounds.lower.shape))
    both: list[tuple[Parts, Bounds | None]] = [(once, None), (worst, bounds)]
    return both if once.margin >= float(bounds.lower.min()) else both[::-1]


@dataclass(frozen=True, eq=False)
class Expert:
    """What the expert does at the corners of equal cells of a box.

    Attributes:
        box: (low, high) for each coordinate.
        support: the actions that it takes at each corner ``[c_1 + 1, …, c_d + 1, A]``.
    """

    box: tuple[tuple[float, float], ...]
    support: Flags

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

    def _corners(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values at the points, corner by corner of the cells ``[2ᵈ, c_1, …, c_d, …]``."""
        return np.stack([values[side] for side in self._slices])

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
        squares = np.where(self.steady, np.inf, 0.0)
        for axis, side in enumerate(self.sides):
            moved, own = np.moveaxis(squares, axis, 0), np.moveaxis(squares, axis, 0).copy()
            for step in range(1, len(moved)):
                cost = (step * side) ** 2
                np.minimum(own[step:], moved[:-step] + cost, out=own[step:])
                np.minimum(own[:-step], moved[step:] + cost, out=own[:-step])
            squares = np.moveaxis(own, 0, axis)
        return np.sqrt(squares)

    @cached_property
    def marks(self) -> Floats:
        """At every corner the least distance of a cell around it, at most twice the diagonal of the box."""
        nearest = np.full(self.support.shape[:-1], np.inf)
        for side in self._slices:
            np.minimum(nearest[side], self.away, out=nearest[side])
        return np.minimum(nearest, 2 * float(np.sqrt(sum((high - low) ** 2 for low, high in self.box))))

    def tents(self, marks: Floats, widths: Floats) -> list[Floats]:
        """No larger than each tent within cells."""
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


@dataclass(frozen=True, eq=False)
class Tube:
    """What follows for all cells.

    Attributes:
        every: the bounds of all pairs of actions, in both orders, in smaller cells.
        least: of every cell, over the actions that are taken and those that are not ``[c_1, …, c_d]``.
        margin: the least outside the tube that was asked for.
        ties_with_end: cells that end where the tube ends, but for rounding.
        half_width, share, shortfall, settled, ties, regret: as in a certificate.
    """

    every: list[Bounds]
    least: Floats
    margin: float
    ties_with_end: Flags
    half_width: float
    share: float
    shortfall: float
    settled: float
    ties: float
    regret: float


def read_tube(
    sides: list[Side], expert: Expert, allowed: float, visits: Floats, marks: Floats, widths: Floats, discount: float
) -> Tube:
    """What bands say, cell by cell.

    Args:
        sides: of all bands.
        expert: on its grid.
        allowed: the half-width outside which everything must be proved.
        visits: of the tents ``[w]``.
        marks: distances to the switches at the corners of the cells.
        widths: of the tents.
        discount: γ.
    """
    taken, away, reach = expert.taken, expert.away, expert.reach
    distance = away + reach
    end = np.abs(distance - allowed) <= TIGHT * (allowed + reach)
    outside = (distance > allowed) & ~end
    least, short, ties, every = np.full(expert.shape, np.inf), np.zeros(expert.shape), 0.0, []
    cells = sides[0].box.cells(expert.edges)
    for side in sides:
        bounds, (b, a) = side.in_cells(cells), side.pair
        every.append(bounds)
        lower = _least(bounds.lower, cells, expert)
        least = np.minimum(least, np.where(taken[..., b] & ~taken[..., a], lower, np.inf))
        short = np.maximum(short, np.where(taken[..., b], -lower, 0.0))
        ties = max(ties, float(np.where(taken[..., b] & taken[..., a] & expert.steady, -lower, 0.0).max()))
    undecided = ~(expert.steady & (least > 0))
    now = later = float(short.max())
    for cover, visit in zip(expert.tents(marks, widths), visits, strict=True):
        if (cover[short > 0] > 0).all():
            stretch = float((short[short > 0] / cover[short > 0]).max(initial=0.0)) * (1 + 1e-15)
            later = min(later, stretch * float(visit) * (1 + 1e-15))
    gamma = enclosed(discount)
    regret = float((gamma * (enclosed(now) + gamma / (1.0 - gamma) * later)).above)
    disputed = ~expert.steady | (least <= regret)
    return Tube(
        every=every,
        least=least,
        margin=float(least[outside].min(initial=np.inf)),
        ties_with_end=end,
        half_width=float(distance[undecided].max(initial=0.0)),
        share=float(undecided.mean()),
        shortfall=now,
        settled=float(distance[disputed].max(initial=0.0)),
        ties=ties,
        regret=regret,
    )


def _least(lower: Floats, cells: Cells, expert: Expert) -> Floats:
    """The least of the smaller cells in each cell of the expert's grid; one on an edge counts for both sides."""
    for axis, (own, ends) in enumerate(zip(cells.edges, expert.edges, strict=True)):
        first = np.searchsorted(own, ends[:-1], side="right") - 1
        last = np.searchsorted(own, ends[1:], side="left")
        runs = np.stack([first, np.minimum(last, len(own) - 1)], axis=1).ravel()
        padded = np.concatenate([lower, np.take(lower, [-1], axis=axis)], axis=axis)
        lower = np.take(np.minimum.reduceat(padded, runs, axis=axis), np.arange(0, len(runs), 2), axis=axis)
    return lower
