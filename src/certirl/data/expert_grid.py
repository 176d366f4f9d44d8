"""The expert on a grid: where it switches, and how far that is from every cell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product as combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certirl.data.policy import Policy
from certirl.functions.cells import Cells
from certirl.ground import archive
from certirl.ground.domain import Array, Domain, describe, mesh
from certirl.ground.doors import some_rows

CELLS_ALONG = {1: 4000, 2: 400, 3: 60}  # cells along each coordinate, by the number of coordinates
_ALIKE = 0.01  # share of the answers that may differ in a second call, at ties decided by rounding


@archive.record
@dataclass(frozen=True, eq=False)
class ExpertGrid:
    """The expert's actions at the corners of the cells of a box.

    A cell is steady if the expert takes the same actions at all its corners; every other cell holds a switch. An
    interval is a box with one coordinate. Distances are Euclidean, in units of the state.

    Attributes:
        domain: one (low, high) pair for each coordinate.
        support: which actions it takes at each corner ``[c_1 + 1, …, c_d + 1, A]``.
    """

    domain: Domain
    support: NDArray[np.bool_]

    @cached_property
    def cells(self) -> Cells:
        """The grid."""
        return Cells(self.support.shape[:-1], (), self.domain)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate."""
        return self.cells.shape

    @property
    def half(self) -> Array:
        """Half the sides of a cell ``[d]``."""
        return self.cells.sides / 2

    @property
    def reach(self) -> float:
        """The diagonal of a cell: `away` misses a distance to a switch by that at most."""
        return float(np.linalg.norm(self.cells.sides))

    @cached_property
    def axes(self) -> list[Array]:
        """The middles of the cells along each coordinate."""
        return self.cells.middles()

    @cached_property
    def states(self) -> Array:
        """The middles of the cells ``[cells, d]``, the last coordinate varying fastest."""
        return mesh(self.axes)

    @cached_property
    def steady(self) -> NDArray[np.bool_]:
        """The cells whose corners agree ``[cells]``."""
        corners = self._corners(self.support)
        return np.asarray((corners == corners[0]).all(axis=(0, -1)).ravel())

    @cached_property
    def taken(self) -> NDArray[np.bool_]:
        """The actions that the expert takes at any corner ``[A, cells]``.

        In several coordinates, where corners disagree, those at the corners of the neighbouring cells too: three
        regions may meet in a cell of which only two reach a corner.
        """
        here = np.moveaxis(np.asarray(self._corners(self.support).any(axis=0)), -1, 0)
        if len(self.domain) == 1:
            return here
        from scipy.ndimage import maximum_filter

        around = np.array([maximum_filter(action, size=3) for action in here])
        return np.where(self.steady, here.reshape(len(here), -1), around.reshape(len(here), -1))

    def _corners(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values at the points, corner by corner of the cells ``[2ᵈ, c_1, …, c_d, …]``."""
        return np.stack([values[side] for side in self._sides])

    @property
    def _sides(self) -> list[tuple[slice, ...]]:
        return list(combinations((slice(None, -1), slice(1, None)), repeat=len(self.domain)))

    @property
    def used(self) -> tuple[int, ...]:
        """The actions that the expert takes somewhere."""
        return tuple(np.flatnonzero(self.support.reshape(-1, self.support.shape[-1]).any(axis=0)).tolist())

    @cached_property
    def switches(self) -> Array:
        """The middles of the cells whose corners do not agree ``[z, d]``."""
        return self.states[~self.steady]

    @cached_property
    def away(self) -> Array:
        """Distance of every middle to that of the nearest cell with a switch ``[cells]``.

        Infinite if the expert never switches.
        """
        if self.steady.all():
            return np.full(len(self.steady), np.inf)
        from scipy.ndimage import distance_transform_edt

        distances = distance_transform_edt(self.steady.reshape(self.shape), sampling=self.cells.sides)
        return np.asarray(distances, dtype=float).ravel()

    @cached_property
    def marks(self) -> Array:
        """At every corner the least distance `away` of a cell around it ``[c_1 + 1, …, c_d + 1]``."""
        nearest, away = np.full(self.support.shape[:-1], np.inf), self.away.reshape(self.shape)
        for side in self._sides:
            np.minimum(nearest[side], away, out=nearest[side])
        return np.minimum(nearest, 2 * np.linalg.norm(np.diff(np.array(self.domain), axis=1)))  # finite at any rate

    def tents(self, widths: Array) -> Array:
        """A lower bound of every tent on every cell ``[w, cells]``."""
        # A multilinear distance is largest at a corner.
        farthest = self._corners(self.marks).max(axis=0).ravel()
        return np.maximum(0.0, 1 - farthest / widths[:, None])

    def cell(self, states: Array) -> NDArray[np.intp]:
        """The number of the cell that each state is in ``[n]``."""
        return self.cells.cell(states)

    def taken_at(self, states: Array) -> NDArray[np.bool_]:
        """The actions that the expert takes in the cells of states ``[n, d]``: ``[A, n]``."""
        return self.taken[:, self.cell(states)]

    def pieces(self, chosen: NDArray[np.bool_]) -> Array:
        """The boxes around connected cells ``[t, d, 2]``."""
        from scipy.ndimage import find_objects, label

        low, sides = np.array(self.domain)[:, 0], self.cells.sides
        joined, _ = label(chosen.reshape(self.shape), structure=np.ones((3,) * len(low)))
        ends = [[(side.start, side.stop) for side in piece] for piece in find_objects(joined)]
        return low[:, None] + sides[:, None] * np.array(ends, dtype=float).reshape(-1, len(low), 2)

    @property
    def where(self) -> str:
        """The expert's switches in words."""
        if len(self.domain) > 1:
            return "where it switches"
        count = len(self.switches)
        return f"its {count} switch{'es' * (count != 1)}"

    def described(self, pieces: Array) -> str:
        """Pieces in words."""
        if len(self.domain) > 1:
            return f"{len(pieces)} connected piece{'s' * (len(pieces) != 1)}" if len(pieces) else "empty"
        places = ", ".join(f"[{low:.3f}, {high:.3f}]" for low, high in pieces.reshape(-1, 2)[:6])
        return f"{places or 'empty'}" + f" and {len(pieces) - 6} more" * (len(pieces) > 6)

    def __str__(self) -> str:
        if len(self.domain) == 1:
            between = f"between neighbours of {len(self.support)} states of {describe(self.domain)}"
            return f"{between} the expert takes only what it takes at one of the two"
        cells = " × ".join(map(str, self.shape))
        return (
            f"within each of {cells} cells of {describe(self.domain)} the expert takes what it takes at the corners, "
            "of the cells beside it too where these disagree"
        )


def expert_grid(policy: Policy, domain: Domain) -> ExpertGrid:
    """Ask the expert about the corners of all cells, and about some of them twice."""
    cells = Cells((CELLS_ALONG[len(domain)] + 1,) * len(domain), (), domain)
    corners = cells.points()
    support, some = policy.support(corners), some_rows(len(corners))
    differs = (policy.support(corners[some]) != support[some]).any(axis=1)
    if differs.mean() > _ALIKE:
        place = ", ".join(f"{x:.6g}" for x in corners[some][differs.argmax()])
        raise ValueError(
            f"the expert's answer at s = {place} changes from call to call: it must depend on one state alone, without "
            "random numbers and without means, maxima or ranks over the states"
        )
    return ExpertGrid(domain, support.reshape(*cells.counts, -1))


def compared(policy: Policy, grid: ExpertGrid) -> Policy:
    """The same expert, its answers compared with those at the corners of the cells."""
    return replace(policy, compare=partial(_compare, grid))


def _compare(grid: ExpertGrid, states: Array, probabilities: Array) -> None:
    """Refuse an expert that takes an action which no corner of the cell shows."""
    hidden = (probabilities > 0) & ~grid.taken_at(states).T
    rows = np.flatnonzero(hidden.any(axis=1))
    if not len(rows):
        return
    for shift in (-1, 1):  # rounding may count a state to the neighbouring cell
        low, high = np.array(grid.domain).T
        beside = np.clip(states[rows] + shift * 1e-9 * (high - low), low, high)
        hidden[rows] &= ~grid.taken_at(beside).T
    if hidden.any():
        row, action = (int(i) for i in np.argwhere(hidden)[0])
        place, sides = (", ".join(f"{x:.6g}" for x in numbers) for numbers in (states[row], grid.cells.sides))
        raise ValueError(
            f"the expert takes action {action} at s = {place} and nowhere around it on a grid of steps {sides}: it "
            "switches within a cell, and a certificate needs pieces that are wider"
        )
