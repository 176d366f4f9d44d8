"""What the expert does on a grid: which cells hold a switch, and how far every other cell is from one.

The expert is asked about the corners of all cells; a cell whose corners disagree holds a switching state. An interval
and a box answer the same questions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product as combinations

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.functions.boxes import mesh
from certirl.ground.domain import Array, Domain, describe
from certirl.ground.doors import some_rows

CELLS = 4000  # of an interval
CELLS_ALONG = {2: 400, 3: 60}  # of a box, along each coordinate
_ALIKE = 0.01  # of the answers: how many may differ in a second call, at ties decided by rounding


@dataclass(frozen=True, eq=False)
class Lookup:
    """The expert at the ends of all cells of an interval.

    Attributes:
        domain: one (low, high) pair.
        support: which actions it takes at each end ``[cells + 1, A]``.
    """

    domain: Domain
    support: NDArray[np.bool_]

    @property
    def width(self) -> float:
        """Of a cell."""
        ((low, high),) = self.domain
        return (high - low) / (len(self.support) - 1)

    @property
    def middles(self) -> Array:
        """Of the cells ``[cells]``."""
        ((low, _),) = self.domain
        return low + self.width * (np.arange(len(self.support) - 1) + 0.5)

    @property
    def states(self) -> Array:
        """The middles as states ``[cells, d]``."""
        return self.middles[:, None]

    @property
    def half(self) -> Array:
        """Half the sides of a cell ``[d]``."""
        return np.array([self.width / 2])

    @property
    def reach(self) -> float:
        """No state of a cell is farther from a switch than its middle from that of a cell with one, and this."""
        return self.width

    @property
    def steady(self) -> NDArray[np.bool_]:
        """The cells whose ends agree ``[cells]``."""
        return np.asarray((self.support[1:] == self.support[:-1]).all(axis=1))

    @property
    def taken(self) -> NDArray[np.bool_]:
        """The actions that the expert takes at either end ``[A, cells]``."""
        return np.asarray((self.support[1:] | self.support[:-1]).T)

    @property
    def switches(self) -> Array:
        """The middles of the cells whose ends do not agree ``[z]``."""
        return self.middles[~self.steady]

    @property
    def places(self) -> Array:
        """The same as states ``[z, d]``."""
        return self.switches[:, None]

    @property
    def marks(self) -> Array:
        """What `Frame.away` needs to know of the switches."""
        return self.switches

    @property
    def away(self) -> Array:
        """From the middle of every cell to the nearest switch ``[cells]``; infinite if the expert never switches."""
        found = np.full(len(self.middles), np.inf)
        for switch in self.switches:
            np.minimum(found, np.abs(self.middles - switch), out=found)
        return found

    def tents(self, widths: Array) -> Array:
        """What every tent is at least on every cell ``[w, cells]``: its middle less its slope times half a cell."""
        peaks = np.maximum(0.0, 1 - self.away / widths[:, None])
        return np.maximum(0.0, peaks - self.width / 2 / widths[:, None])

    def cell(self, states: Array) -> NDArray[np.intp]:
        """The number of the cell that each state is in ``[n]``."""
        return _cell(self.domain, self.support.shape[:-1], states)

    def taken_at(self, states: Array) -> NDArray[np.bool_]:
        """The actions that the expert takes at a corner of the cells of some states ``[n, d]``: ``[A, n]``."""
        return self.taken[:, self.cell(states)]

    def pieces(self, chosen: NDArray[np.bool_]) -> Array:
        """Neighbouring cells as intervals ``[t, 2]``."""
        ((low, _),) = self.domain
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
        return np.asarray(low + self.width * edges.reshape(-1, 2), dtype=float)

    @property
    def where(self) -> str:
        """What the expert's switches are called."""
        count = len(self.switches)
        return f"its {count} switch{'es' * (count != 1)}"

    def told(self, pieces: Array) -> str:
        """Pieces in words."""
        places = ", ".join(f"[{low:.3f}, {high:.3f}]" for low, high in pieces[:6])
        return f"{places or 'empty'}" + f" and {len(pieces) - 6} more" * (len(pieces) > 6)

    def __str__(self) -> str:
        steps = len(self.support)
        between = f"between neighbours of {steps} states of {describe(self.domain)}"
        return f"{between} the expert takes only what it takes at one of the two"


@dataclass(frozen=True, eq=False)
class BoxLookup:
    """The expert at the corners of all cells of a box, with the members of `Lookup`; distances are Euclidean.

    Attributes:
        domain: one (low, high) pair for each coordinate.
        support: which actions it takes at each corner ``[c_1 + 1, …, c_d + 1, A]``.
    """

    domain: Domain
    support: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate."""
        return tuple(count - 1 for count in self.support.shape[:-1])

    @property
    def half(self) -> Array:
        """Half the sides of a cell ``[d]``."""
        return np.diff(np.array(self.domain), axis=1)[:, 0] / np.array(self.shape) / 2

    @property
    def reach(self) -> float:
        """A diagonal: half of it from a state to the middle of its cell, half of it from a middle to a switch."""
        return float(np.linalg.norm(2 * self.half))

    @cached_property
    def states(self) -> Array:
        """The middles of the cells ``[cells, d]``, the last coordinate varying fastest."""
        sides = zip(self.domain, self.half, self.shape, strict=True)
        return mesh([low + half * (2 * np.arange(count) + 1) for (low, _), half, count in sides])

    @cached_property
    def steady(self) -> NDArray[np.bool_]:
        """The cells whose corners agree ``[cells]``."""
        corners = self._corners()
        return np.asarray((corners == corners[0]).all(axis=(0, -1)).ravel())

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """The actions that the expert takes at any corner; where corners disagree, of the cells beside it too.

        Three regions may meet in a cell of which only two reach a corner ``[A, cells]``.
        """
        from scipy.ndimage import maximum_filter

        own = np.moveaxis(np.asarray(self._corners().any(axis=0)), -1, 0)
        around = np.array([maximum_filter(one, size=3) for one in own])
        return np.where(self.steady, own.reshape(len(own), -1), around.reshape(len(own), -1))

    def _corners(self) -> NDArray[np.bool_]:
        sides = list(combinations((slice(None, -1), slice(1, None)), repeat=len(self.domain)))
        return np.stack([self.support[side] for side in sides])

    @property
    def switches(self) -> Array:
        """The middles of the cells whose corners do not agree ``[z, d]``."""
        return self.states[~self.steady]

    @property
    def places(self) -> Array:
        """The same."""
        return self.switches

    @cached_property
    def away(self) -> Array:
        """From the middle of every cell to that of the nearest with a switch ``[cells]``; infinite without any."""
        from scipy.ndimage import distance_transform_edt

        if self.steady.all():
            return np.full(len(self.steady), np.inf)
        found = distance_transform_edt(self.steady.reshape(self.shape), sampling=2 * self.half)
        return np.asarray(found, dtype=float).ravel()

    @cached_property
    def marks(self) -> Array:
        """At every corner the least that a cell around it is away ``[c_1 + 1, …, c_d + 1]``."""
        found, away = np.full(self.support.shape[:-1], np.inf), self.away.reshape(self.shape)
        for side in combinations((slice(None, -1), slice(1, None)), repeat=len(self.domain)):
            np.minimum(found[side], away, out=found[side])
        return np.minimum(found, 2 * np.linalg.norm(np.diff(np.array(self.domain), axis=1)))  # finite without a switch

    def tents(self, widths: Array) -> Array:
        """What every tent is at least on every cell ``[w, cells]``: a multilinear distance is largest at a corner."""
        sides = combinations((slice(None, -1), slice(1, None)), repeat=len(self.domain))
        farthest = np.max([self.marks[side] for side in sides], axis=0).ravel()
        return np.maximum(0.0, 1 - farthest / widths[:, None])

    def cell(self, states: Array) -> NDArray[np.intp]:
        """The number of the cell that each state is in ``[n]``."""
        return _cell(self.domain, self.support.shape[:-1], states)

    def taken_at(self, states: Array) -> NDArray[np.bool_]:
        """The actions that the expert takes at a corner of the cells of some states ``[n, d]``: ``[A, n]``."""
        return self.taken[:, self.cell(states)]

    def pieces(self, chosen: NDArray[np.bool_]) -> Array:
        """The boxes around cells that hang together ``[t, d, 2]``."""
        from scipy.ndimage import find_objects, label

        low, sides = np.array(self.domain)[:, 0], 2 * self.half
        joined, _ = label(chosen.reshape(self.shape), structure=np.ones((3,) * len(low)))
        ends = [[(side.start, side.stop) for side in piece] for piece in find_objects(joined)]
        return low[:, None] + sides[:, None] * np.array(ends, dtype=float).reshape(-1, len(low), 2)

    @property
    def where(self) -> str:
        """What the expert's switches are called."""
        return "where it switches"

    def told(self, pieces: Array) -> str:
        """Pieces in words."""
        return f"{len(pieces)} connected piece{'s' * (len(pieces) != 1)}" if len(pieces) else "empty"

    def __str__(self) -> str:
        cells = " × ".join(map(str, self.shape))
        return (
            f"within each of {cells} cells of {describe(self.domain)} the expert takes what it takes at the corners, "
            "of the cells beside it too where these disagree"
        )


def _cell(domain: Domain, corners: tuple[int, ...], states: Array) -> NDArray[np.intp]:
    low, high = np.array(domain).T
    shape = np.array(corners) - 1
    along = np.clip(((states - low) / (high - low) * shape).astype(np.intp), 0, shape - 1)
    return np.asarray(np.ravel_multi_index(tuple(along.T), tuple(shape)), dtype=np.intp)


AnyLookup = Lookup | BoxLookup


def look_up(policy: Policy, domain: Domain) -> AnyLookup:
    """Ask the expert about the corners of all cells."""
    if len(domain) == 1:
        ((low, high),) = domain
        return Lookup(domain, _support(policy, np.linspace(low, high, CELLS + 1)[:, None]))
    count = CELLS_ALONG[len(domain)] + 1
    corners = mesh([np.linspace(low, high, count) for low, high in domain])
    return BoxLookup(domain, _support(policy, corners).reshape(*[count] * len(domain), -1))


def _support(policy: Policy, states: Array) -> NDArray[np.bool_]:
    """The actions that the expert takes ``[n, A]``; some states are asked about again, since one state must decide."""
    found, some = policy.support(states), some_rows(len(states))
    other = (policy.support(states[some]) != found[some]).any(axis=1)
    if other.mean() > _ALIKE:
        place = ", ".join(f"{x:.6g}" for x in states[some][other.argmax()])
        raise ValueError(
            f"the expert's answer at s = {place} changes from call to call: it must depend on one state alone, without "
            "random numbers and without means, maxima or ranks over the states"
        )
    return found


def compared(policy: Policy, lookup: AnyLookup) -> Policy:
    """The same expert, its answers compared with what the cells of a lookup say of it."""
    return replace(policy, compare=partial(_compare, lookup))


def _compare(lookup: AnyLookup, states: Array, probabilities: Array) -> None:
    """Refuse an expert that takes an action where no corner of the cell shows it: a switch that the grid missed."""
    hidden = (probabilities > 0) & ~lookup.taken_at(states).T
    rows = np.flatnonzero(hidden.any(axis=1))
    if not len(rows):
        return
    for shift in (-1, 1):  # rounding may count a state to the cell beside its own
        low, high = np.array(lookup.domain).T
        beside = np.clip(states[rows] + shift * 1e-9 * (high - low), low, high)
        hidden[rows] &= ~lookup.taken_at(beside).T
    if hidden.any():
        row, action = (int(i) for i in np.argwhere(hidden)[0])
        place, sides = (", ".join(f"{x:.6g}" for x in numbers) for numbers in (states[row], 2 * lookup.half))
        raise ValueError(
            f"the expert takes action {action} at s = {place} and nowhere around it on a grid of steps {sides}: it "
            "switches within a cell, and a certificate needs pieces that are wider"
        )


def kept(domain: Domain, support: Array) -> AnyLookup:
    """The lookup that a file holds."""
    return (Lookup if len(domain) == 1 else BoxLookup)(domain, support.astype(bool))
