"""Lower bounds on cells, read: what they say of an expert on its grid, whatever theorem they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl_check.claims import LikelyClaim, at_least, at_most, failed, short
from certirl_check.enclosures import Floats, enclosed
from certirl_check.records import RELATIVE, TIGHT, Record, TooLittleError

_NAMED = 4  # switches that are listed
Flags = NDArray[np.bool_]
Pair = tuple[int, int]


@dataclass(eq=False)
class Expert:
    """What the expert does at the corners of equal cells of a box."""

    box: tuple[tuple[float, float], ...]  # (low, high) for each coordinate
    support: Flags  # the actions that it takes at each corner [c_1 + 1, …, c_d + 1, A]

    def __post_init__(self) -> None:
        self.shape = tuple(n - 1 for n in self.support.shape[:-1])  # cells along each coordinate
        ends = np.array(self.box)
        self.sides = np.ptp(ends, axis=1) / self.shape  # of a cell, whose diagonal is its reach
        self.reach, self.width = float(np.sqrt((self.sides**2).sum())), float(np.ptp(ends, axis=1).min())
        self.edges = [np.linspace(low, high, n + 1) for (low, high), n in zip(self.box, self.shape, strict=True)]
        self.corners = " × ".join(str(n + 1) for n in self.shape)
        self._slices = list(combinations((slice(None, -1), slice(1, None)), repeat=len(self.box)))
        corners = self._corners(self.support)
        self.steady = np.asarray((corners == corners[0]).all(axis=(0, -1)))  # the cells whose corners agree

    @classmethod
    def of_action(cls, box: tuple[tuple[float, float], ...], action: int, actions: int) -> Expert:
        """An expert that takes one action everywhere: one cell is the whole box."""
        return cls(box, np.broadcast_to(np.arange(actions) == action, (*(2,) * len(box), actions)))

    def contains(self, state: Floats) -> bool:
        """Whether a state lies in the box."""
        return all(low <= x <= high for x, (low, high) in zip(state, self.box, strict=True))

    def _corners(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values at the points, corner by corner of the cells ``[2ᵈ, c_1, …, c_d, …]``."""
        return np.stack([values[corner] for corner in self._slices])

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
        numbers = np.arange(self.shape[0]).reshape(-1, *[1] * (len(self.shape) - 1))
        before, after = np.where(self.steady, -np.inf, numbers), np.where(self.steady, np.inf, numbers)
        steps = numbers - np.maximum.accumulate(before), np.minimum.accumulate(after[::-1])[::-1] - numbers
        squares = (np.minimum(*steps) * self.sides[0]) ** 2  # along the first coordinate alone
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
        return np.minimum(nearest, 2 * float(np.sqrt((np.ptp(self.box, axis=1) ** 2).sum())))

    def tents(self, marks: Floats, widths: Floats) -> list[Floats]:
        """No larger than each tent within cells."""
        if not len(widths):
            return []
        farthest = self._corners(marks).max(axis=0)
        return [np.maximum(0.0, 1 - farthest / width * (1 + 1e-15) - 1e-15) for width in widths]

    def at(self, state: Floats) -> Flags:
        """The actions that it may take at a state ``[A]``: at a corner of the grid those of the corner."""
        along = (np.asarray(state) - [low for low, _ in self.box]) / self.sides
        near = np.clip(np.rint(along), 0, self.shape).astype(int)
        if np.abs(along - near).max() <= 1e-6:
            return np.asarray(self.support[tuple(near)])
        return np.asarray(self.taken[tuple(np.clip(np.floor(along).astype(int), 0, np.array(self.shape) - 1))])

    @property
    def assumption(self) -> str:
        """What the file does not show of it."""
        within = "between two neighbours only what it takes at one of them"
        if len(self.shape) > 1:
            beside = "or at those of cells beside it where these disagree"
            within = f"within a cell only what it takes at its corners, {beside}"
        return f"the expert takes what the file says at {self.corners} evenly spaced states, and {within}"

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


class Reading:
    """What lower bounds on D_ba in the cells of an expert's grid say of it, by pair (b, a) ``[c_1, …, c_d]``."""

    def __init__(self, expert: Expert, lower: Mapping[Pair, Floats], required: float = 0.0) -> None:
        self.expert, self.lower, self.required = expert, lower, required  # of bounds, below 0 for an inexact expert
        self.shortfall = np.zeros(expert.shape)  # how much better than the expert's another action can be in each cell
        for (b, _), bounds in lower.items():
            if np.isnan(bounds).any():
                raise TooLittleError("some bounds are no numbers")
            self.shortfall = np.maximum(self.shortfall, np.where(expert.taken[..., b], -bounds, 0.0))

    def strict(self, pair: Pair) -> Flags:
        """The cells in which the expert takes b and does not take a ``[c_1, …, c_d]``."""
        taken, (b, a) = self.expert.taken, pair
        return np.asarray(taken[..., b] & ~taken[..., a])

    def asked(self, pair: Pair) -> Flags:
        """The cells in which b must be as good as required: an inexact expert's actions also beside each other."""
        return np.asarray(self.expert.taken[..., pair[0]]) if self.required < 0 else self.strict(pair)

    def decided(self, slack: float = 0.0) -> Flags:
        """The cells in which that is proved, by bounds that may be too small by the slack ``[c_1, …, c_d]``."""
        if not self.required < 0:
            return np.asarray(self.expert.steady & (self.least > -slack))
        bounds = [np.where(self.asked(pair), lower, np.inf) for pair, lower in self.lower.items()]
        return np.asarray(np.min(bounds, axis=0) > self.required - slack)

    def outside(self, allowed: float, share: float = TIGHT) -> Flags:
        """The cells with states farther than a half-width from the switches, but for rounding ``[c_1, …, c_d]``."""
        return np.asarray(self.expert.distance > allowed + share * (allowed + self.expert.reach))

    @cached_property
    def least(self) -> Floats:
        """Of every cell, over the actions that are taken and those that are not ``[c_1, …, c_d]``."""
        bounds = [np.where(self.strict(pair), lower, np.inf) for pair, lower in self.lower.items()]
        return np.asarray(np.min(bounds, axis=0))

    def regret(self, discount: float, later: float) -> float:
        """What is lost by the expert: γ times the shortfall now, and γ²/(1 − γ) of what is met of it later at most."""
        now, gamma = float(self.shortfall.max()), enclosed(discount)
        return float((gamma * (enclosed(now) + gamma / (1.0 - gamma) * min(now, later))).above) if now else 0.0

    def tube(self, regret: float, slack: float = 0.0) -> dict[str, float]:
        """What is claimed of a tube, by name; bounds of cells that are called decided may be too small by the slack."""
        expert, ties = self.expert, 0.0
        for (b, a), lower in self.lower.items():
            tied = expert.taken[..., b] & expert.taken[..., a] & expert.steady
            ties = max(ties, float(np.where(tied, -lower, 0.0).max()))
        undecided = ~self.decided(slack)
        disputed = ~expert.steady | (self.least <= regret - slack)
        return {
            "half_width": float(expert.distance[undecided].max(initial=0.0)),
            "share": float(undecided.mean()),
            "settled": float(expert.distance[disputed].max(initial=0.0)),
            "shortfall": float(self.shortfall.max()),
            "ties": ties,
        }


def compare_tube(
    claim: LikelyClaim, tube: Record, reading: Reading, regret: tuple[float, float], span: tuple[float, float], *,
    unit: float = 1.0, slack: float = 0.0, room: float = 0.0,
) -> list[str]:  # fmt: skip
    """What of a tube does not follow from a reading in units; the claim's account describes it by the weaker of both.

    Regret and span are what follows and what may be claimed; slack and room are what rounding may do to the bounds and
    to sums of them.
    """
    expert, wrong = reading.expert, []
    derived, allowed = (reading.tube(regret[0] / unit, more) for more in (0.0, slack))
    width = expert.width
    rooms = {"half_width": RELATIVE * width, "share": RELATIVE, "settled": RELATIVE * width}
    for name, x in derived.items():
        in_units = 1.0 if name in rooms else unit
        if not tube.bound(name) >= in_units * allowed[name] - rooms.get(name, room):
            wrong.append(f"{name.replace('_', ' ')} may be {short(in_units * x, 6)}, more than is claimed")
        derived[name] = max(in_units * x, tube.bound(name))
    stated_regret, stated_span = claim.record.bound("regret"), claim.record.bound("value_span")
    wrong += failed(
        (stated_regret >= regret[1], f"regret may be {short(regret[0], 6)}, more than is claimed"),
        (stated_span <= span[1], f"the value span may be {short(span[0], 6)}, less than is claimed"),
    )
    wrong += _other_cells(tube, expert, reading.decided(slack))
    lost, whole, settled = max(regret[0], stated_regret), min(span[0], stated_span), derived["settled"]
    share = f", {at_most(lost / whole, 3)} of the span of V, at least {at_least(whole)}" if whole > 0 else ""
    away = "" if expert.steady.all() else f"farther than {at_most(settled)} from a switch "
    beyond = f"; {away}every best policy takes an action that the expert takes"
    beyond = beyond if settled < width / 2 else ""  # farther from a switch there may be no state
    domain = f"{at_most(derived['share'] * 100, 3)} % of the domain"
    claim.account += [
        ("tube", f"half-width at most {at_most(derived['half_width'])}, {domain}"),
        ("regret", f"at most {at_most(lost)}{share}{beyond}"),
    ]
    if derived["ties"] > 0:
        claim.account.append(("ties", f"actions that the expert mixes differ by {at_most(derived['ties'])} at most"))
    return wrong


def _other_cells(tube: Record, expert: Expert, proved: Flags) -> list[str]:
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
