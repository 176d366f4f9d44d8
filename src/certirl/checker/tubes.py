"""What bands say of an expert, cell by cell, in exact arithmetic: where it is strictly best, and what it can lose.

Every cell of the interval is looked at. Over a cell the curve of a pair is at least its middle less half a cell of its
steepest slope, and the band at most what its interpolation from the points allows, or the largest of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import NamedTuple

from certirl.checker import enclosures, rational
from certirl.checker.bands import Band, Record
from certirl.checker.enclosures import SHORT, Short, short_above
from certirl.checker.rational import BITS, ONE
from certirl.checker.records import RELATIVE, ImpossibleError, Numbers, Parts


@dataclass(frozen=True, eq=False)
class Expert:
    """What it does at the ends of equal cells.

    Attributes:
        low, high: the ends of the interval.
        support: the actions that it takes at each end ``[cells + 1]``.
    """

    low: Fraction
    high: Fraction
    support: list[frozenset[int]]

    @property
    def cells(self) -> int:
        """Their number."""
        return len(self.support) - 1

    @property
    def width(self) -> Fraction:
        """Of a cell."""
        return (self.high - self.low) / self.cells

    @cached_property
    def steady(self) -> list[bool]:
        """Whether the ends of a cell agree."""
        return [one == other for one, other in zip(self.support, self.support[1:], strict=False)]

    def middle(self, cell: int) -> Fraction:
        """Of a cell."""
        return self.low + self.width * (2 * cell + 1) / 2

    def at(self, state: Fraction) -> frozenset[int]:
        """The actions that it may take at a state of the interval: at the end of a cell those of this end."""
        place = (state - self.low) / self.width
        cell = min(math.floor(place), self.cells - 1)
        near = min((cell, cell + 1), key=lambda end: abs(place - end))
        if abs(place - near) <= RELATIVE:
            return self.support[near]
        return self.support[cell] | self.support[cell + 1]

    @property
    def switches(self) -> Numbers:
        """The middles of cells whose ends do not agree."""
        return [self.middle(cell) for cell, steady in enumerate(self.steady) if not steady]

    @cached_property
    def away(self) -> list[Fraction] | None:
        """From every middle to the nearest switch; None if there is none."""
        switching = [cell for cell, steady in enumerate(self.steady) if not steady]
        if not switching:
            return None
        return [self.width * min(abs(cell - other) for other in switching) for cell in range(self.cells)]


@dataclass(frozen=True)
class Tents:
    """max(0, 1 − distance/width), the distance to the nearest switch: how often they are met was counted."""

    switches: Numbers
    widths: Numbers

    def away(self, state: Fraction) -> Fraction:
        """The distance."""
        return min(abs(state - switch) for switch in self.switches)


class Margin(NamedTuple):
    """The least proved difference, and what it is made of where it is as low but for rounding, the lowest first."""

    least: Fraction
    parts: list[Parts]

    def times(self, unit: Fraction) -> Margin:
        """In other units."""
        return Margin(unit * self.least, [part.times(unit) for part in self.parts])


@dataclass(frozen=True, eq=False)
class Tube:
    """What follows for all cells; lengths are None where the expert never switches and not all is decided.

    Attributes:
        outside: the margin.
        ends: that of every cell that ends where the tube asked for ends: in floating point it may fall on either side.
        half_width, share, regret, settled, ties: as in a certificate.
    """

    outside: Margin
    ends: list[Margin]
    half_width: Fraction | None
    share: Fraction
    regret: Fraction
    settled: Fraction | None
    ties: Fraction

    def margin(self, claimed: float | Fraction) -> Margin:
        """The margin that a claim can be about: with all ends that it is not larger than, its parts with or without."""
        spoken = [end for end in self.ends if claimed <= end.least + RELATIVE * end.parts[0].scale]
        every = [self.outside, *spoken]
        parts = sorted((part for margin in every for part in margin.parts), key=lambda part: part.margin)
        return Margin(min(margin.least for margin in every), parts)

    def times(self, unit: Fraction) -> Tube:
        """The same with values in other units."""
        values = {"regret": unit * self.regret, "ties": unit * self.ties}
        return replace(self, outside=self.outside.times(unit), ends=[end.times(unit) for end in self.ends], **values)


@dataclass(frozen=True, eq=False)
class _Pair:
    """A pair of actions on all cells: curve and radius in units of 2^−BITS."""

    centre: Sequence[int]
    radius: list[int]
    band: Band
    weights: list[Short]

    def second(self, cell: int) -> Fraction:
        """How much of the radius is of second order: the points' average."""
        row = self.weights[cell]
        return rational.dot(self.band.second, list(map(Fraction, row))) / sum(row)


def _up(x: Fraction) -> int:
    return -((-x.numerator * ONE) // x.denominator)


def _pairs(r: Record, bands: list[Band], cells: int) -> dict[tuple[int, int], _Pair]:
    """Every pair on all cells."""
    kind, degree, phi = r.kind, r.degree, enclosures.at_middles(r.kind, r.size, cells)
    weights = enclosures.blending_above(kind, degree, r.points, cells)
    steep = [short_above(x / cells) for x in enclosures.steepness_above(kind, degree, cells)]
    wider, found = rational.inflation_above(kind, degree, r.points), {}
    for band in bands:
        total = [a + b for a, b in zip(band.estimation, band.second, strict=True)]
        short, curve, most = list(map(short_above, total)), band.curve @ phi, _up(wider * max(total))
        falls = enclosures.slope_above(kind, degree, band.curve) / cells
        fixed = _up(falls + band.tail + band.rounding) + curve.error + 1
        near = (sum(map(mul, row, short)) << BITS - 2 * SHORT for row in weights)
        radius = [min(x, most) + (y * most >> SHORT) + fixed for x, y in zip(near, steep, strict=True)]
        found[band.pair] = _Pair(curve.rows[0], radius, band, weights)
    return found


class _Cells:
    """Lower bounds of (P_b − P_a)V over every cell."""

    def __init__(self, pairs: dict[tuple[int, int], _Pair], expert: Expert) -> None:
        self.pairs, self.expert = pairs, expert
        self.taken = [one | other for one, other in zip(expert.support, expert.support[1:], strict=False)]
        self.actions = max(max(pair) for pair in pairs) + 1

    def lower(self, b: int, a: int, cell: int) -> int:
        """In units of 2^−BITS."""
        pair = self.pairs[min(a, b), max(a, b)]
        return (pair.centre[cell] if b < a else -pair.centre[cell]) - pair.radius[cell]

    def rivals(self, cell: int) -> list[tuple[int, int]]:
        """Actions taken on a cell, each with one that is not."""
        taken = self.taken[cell]
        return [(b, a) for b in taken for a in range(self.actions) if a not in taken]

    @cached_property
    def proved(self) -> list[int | None]:
        """The least lower bound of these for every cell; None if all actions are taken."""
        each = ((self.lower(b, a, cell) for b, a in self.rivals(cell)) for cell in range(self.expert.cells))
        return [min(bounds, default=None) for bounds in each]

    def not_above(self, bound: int) -> list[int]:
        """The cells on which the expert switches, or is not proved better by more than a bound."""
        known = enumerate(zip(self.expert.steady, self.proved, strict=True))
        return [cell for cell, (steady, x) in known if not steady or (x is not None and x <= bound)]

    def short(self, cell: int) -> int:
        """How much better than one that is taken any other can be; zero at least."""
        taken = self.taken[cell]
        return max(0, *(-self.lower(b, a, cell) for b in taken for a in range(self.actions) if a != b))

    def ties(self, cell: int) -> int:
        """How far actions that are mixed can differ; zero where it is sure, or switches."""
        taken = self.taken[cell] if self.expert.steady[cell] else frozenset()
        return max((-self.lower(b, a, cell) for b in taken for a in taken if a != b), default=0)

    def parts(self, b: int, a: int, cell: int) -> Parts:
        """What a lower bound is made of."""
        pair = self.pairs[min(a, b), max(a, b)]
        band, second = pair.band, pair.second(cell)
        centre = Fraction(pair.centre[cell] if b < a else -pair.centre[cell], ONE)
        rest = Fraction(pair.radius[cell], ONE) - band.tail - band.rounding - second
        return Parts(centre, rest, second, band.tail, band.rounding)


def read_tube(
    record: Record,
    bands: list[Band],
    visits: Numbers,
    expert: Expert,
    tents: Tents,
    allowed: Fraction,
    generous: Fraction,
) -> Tube:
    """Where the expert is proved strictly best, and what it can lose elsewhere.

    Args:
        record: the sums, in units.
        bands: around (P_b − P_a)V for every pair of actions.
        visits: how often each tent is met at most.
        expert: what it does.
        tents: around its switches.
        allowed: the half-width of the tube asked for.
        generous: what the file subtracts for rounding, in units: it may name a pair that is lowest with that.
    """
    cells, every = _Cells(_pairs(record, bands, expert.cells), expert), range(expert.cells)
    regret = _regret(record.discount, [Fraction(cells.short(cell), ONE) for cell in every], visits, expert, tents)
    undecided, disputed = (cells.not_above(bound) for bound in (0, _up(regret)))
    away, slack = expert.away or [allowed + expert.width] * expert.cells, RELATIVE * expert.width
    beyond = [x + expert.width - allowed for x in away]
    outside = _margin(cells, [cell for cell in every if beyond[cell] > slack], _up(generous))
    if outside is None:
        raise ImpossibleError("outside the tube there is no action to be better than")
    ends = [_margin(cells, [cell], _up(generous)) for cell in every if abs(beyond[cell]) <= slack]
    return Tube(
        outside=outside,
        ends=[end for end in ends if end is not None],
        half_width=_farthest(expert, undecided),
        share=Fraction(len(undecided), expert.cells),
        regret=regret,
        settled=_farthest(expert, disputed),
        ties=Fraction(max(map(cells.ties, every)), ONE),
    )


def _margin(cells: _Cells, chosen: list[int], generous: int) -> Margin | None:
    """The margin over some cells; None if there is no rival on any."""
    told = {cell: x for cell in chosen if (x := cells.proved[cell]) is not None}
    if not told:
        return None
    least = min(told.values())
    nearly = least + (max(abs(least), ONE) >> 40)
    places = [(b, a, cell) for cell in told for b, a in cells.rivals(cell)]
    # Other arithmetic allows more for rounding in one pair than in another: then another pair is the lowest.
    lowest = [
        min((p for p in places if p[:2] == pair), key=lambda p: cells.lower(*p)) for pair in {p[:2] for p in places}
    ]
    low = [p for p in lowest if cells.lower(*p) <= least + generous]
    low += [p for p in places if cells.lower(*p) <= nearly and p not in low]
    return Margin(Fraction(least, ONE), sorted((cells.parts(*p) for p in low), key=lambda part: part.margin))


def _farthest(expert: Expert, cells: list[int]) -> Fraction | None:
    """How far a state of the cells can be from a switch; None if there is no switch to be near to."""
    if not cells:
        return Fraction(0)
    return None if expert.away is None else max(expert.away[cell] for cell in cells) + expert.width


def _regret(discount: Fraction, short: Numbers, visits: Numbers, expert: Expert, tents: Tents) -> Fraction:
    """γ times the shortfall now, and γ²/(1 − γ) of what is met of it later: all of it, or as often as a tent is met."""
    now = later = max(short)
    falling = [(expert.middle(cell), x) for cell, x in enumerate(short) if x > 0]
    for width, visit in zip(tents.widths, visits, strict=True):
        # On a cell a tent is at least its middle less half a cell of its slope.
        covers = (
            [1 - (tents.away(middle) + expert.width / 2) / width for middle, _ in falling] if tents.switches else []
        )
        if covers and min(covers) > 0:
            stretch = max(x / cover for (_, x), cover in zip(falling, covers, strict=True))
            later = min(later, rational.rounded_up(stretch * visit))
    return rational.rounded_up(discount * (now + discount / (1 - discount) * later))
