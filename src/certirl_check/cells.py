"""Certificates of deterministic simulators by cells, derived again: docs/notes/deterministic.md.

Everything is in units of sides of cells: the lines of the grid are whole numbers, and the half sides are 1/2. Built-in
physics is written down here once more, with sines that have proved bounds; of another simulator the file holds the next
states of the middles. Upper solutions are not computed but compared in one step with the inequality that makes them
upper solutions. Rounding is allowed for as the note proves: places by 2^−46·N, values by 2^−41·(8 + N)·U, terms by
2^−42 of their size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certirl_check.claims import Claim, at_least, at_most, failed, short
from certirl_check.enclosures import PI, Enclosure, Floats, enclosed, turn
from certirl_check.harmonics import Grid, in_words
from certirl_check.records import DamagedError, ImpossibleError, Record

MOST_CELLS = 4_000_000
CONSTANTS = {
    "MountainCar": ("force", "gravity", "max_speed", "min_position", "max_position", "goal_position", "goal_velocity"),
    "Pendulum": ("g", "m", "l", "dt", "max_speed", "max_torque"),
}
BLOCK = 1 << 16  # cells at once
RELATIVE = 2.0**-42  # of terms: rounding of their sums
_KEPT = 24  # tables of maxima that are kept
Integers = NDArray[np.int64]
Variants = list[tuple[Floats, Floats, Floats]]  # next states of the middles, slopes and their deviations


def refined(table: Floats, parts: int) -> Floats:
    """A multilinear function at the points of cells that are divided into parts along each coordinate."""
    for axis in range(table.ndim):
        place = np.arange((table.shape[axis] - 1) * parts + 1)
        cell = np.minimum(place // parts, table.shape[axis] - 2)
        share = ((place - cell * parts) / parts).reshape([-1 if i == axis else 1 for i in range(table.ndim)])
        table = table.take(cell, axis=axis) * (1 - share) + table.take(cell + 1, axis=axis) * share
    return table


def corners(table: Floats) -> Floats:
    """The values at the corners of each cell ``[2, …, 2, n_1, …]``."""
    every = [table[tuple(slice(bit, bit - 1 or None) for bit in bits)] for bits in product((0, 1), repeat=table.ndim)]
    return np.stack(every).reshape((2,) * table.ndim + every[0].shape)


class Maxima:
    """The largest of numbers on cells over any box of cells: two boxes of a power of two along each coordinate."""

    def __init__(self, values: Floats, periodic: tuple[bool, ...]) -> None:
        self.values, self._tables = values, dict[tuple[int, ...], Floats]()
        self._modes: Any = tuple("wrap" if wraps else "clip" for wraps in periodic)

    def _table(self, levels: tuple[int, ...]) -> Floats:
        """The maxima over boxes of 2^level cells from each cell on."""
        if levels not in self._tables:
            axis = max(range(len(levels)), key=lambda i: levels[i])
            if levels[axis] == 0:
                return self.values
            lower = self._table(tuple(level - (i == axis) for i, level in enumerate(levels)))
            shifted = np.roll(lower, -(1 << (levels[axis] - 1)), axis=axis)  # beyond the end: never asked for
            if len(self._tables) >= _KEPT:
                self._tables.clear()
            self._tables[levels] = np.maximum(lower, shifted)
        return self._tables[levels]

    def over(self, first: Integers, last: Integers) -> Floats:
        """Over the cells from one to another ``[n, d]``; along periodic coordinates they may be beyond the ends."""
        levels = np.frexp((last - first + 1).astype(np.float32))[1] - 1
        total, codes = np.empty(len(first)), levels @ (32 ** np.arange(levels.shape[1]))
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            which, each = np.flatnonzero(codes == code), tuple(code // 32**i % 32 for i in range(levels.shape[1]))
            ends = [(first[which, i], last[which, i] - ((1 << level) - 1)) for i, level in enumerate(each)]
            numbers = [np.ravel_multi_index(one, self.values.shape, mode=self._modes) for one in product(*ends)]
            total[which] = np.max(self._table(each).ravel()[numbers], axis=0)
        return total


class Image(NamedTuple):
    """Next states of n cells, and V̂ there: value + slope·(s − m) ± radius."""

    after: Floats  # y: next states are y + J·(s − m) [n, d]
    slopes: Floats  # of J [n, d, d]
    spreads: Floats  # |J − slopes| is at most this
    first: Integers  # of the cells that they meet [n, d]
    last: Integers
    value: Floats  # of V̂ at y
    slope: Floats
    radius: Floats


class Field:
    """V̂ on cells, its gradients, and what follows from them for next states."""

    def __init__(self, lattice: Grid, table: Floats) -> None:
        self.lattice, self.table, d = lattice, table, lattice.dimension
        self.near = 2.0**-46 * lattice.reach
        at = corners(table)
        edges = [np.diff(at, axis=axis).reshape(-1, *lattice.shape) for axis in range(d)]
        self.most = [Maxima(each.max(axis=0), lattice.periodic) for each in edges]
        self.least = [Maxima(-each.min(axis=0), lattice.periodic) for each in edges]

    def gradients(self, first: Integers, last: Integers) -> Iterator[tuple[Floats, Floats]]:
        """The least and largest partial derivatives over boxes of cells, coordinate by coordinate."""
        for least, most in zip(self.least, self.most, strict=True):
            yield -least.over(first, last), most.over(first, last)

    def image(self, after: Floats, slopes: Floats, spreads: Floats) -> Image:
        """The image of cells whose next states are not yet clipped to the box."""
        after, slopes, spreads = after.copy(), slopes.copy(), spreads.copy()
        reach = (np.abs(slopes) + spreads).sum(axis=2) / 2 + self.near
        low, high = after - reach, after + reach
        first, last = np.zeros((2, *after.shape), dtype=np.int64)
        for axis, (steps, wraps) in enumerate(zip(self.lattice.shape, self.lattice.periodic, strict=True)):
            if not wraps:
                beyond = (low[:, axis] < 0) | (high[:, axis] > steps)
                slopes[beyond, axis], spreads[beyond, axis] = shrunk(slopes[beyond, axis], spreads[beyond, axis])
                for array in (after, low, high):
                    array[:, axis] = np.clip(array[:, axis], 0, steps)
            below, above = np.floor(low[:, axis] - self.near), np.floor(high[:, axis] + self.near)
            whole = ~(above - below < steps) if wraps else np.zeros(len(after), dtype=bool)  # a turn, or no number
            ends = (np.where(whole, 0, below), np.where(whole, steps - 1, above))
            first[:, axis], last[:, axis] = ends if wraps else np.clip(np.nan_to_num(ends), 0, steps - 1)
        slope, radius = np.zeros(after.shape), np.zeros(len(after))
        for axis, (least, most) in enumerate(self.gradients(first, last)):
            middle, half = (most + least) / 2, (most - least) / 2
            slope += middle[:, None] * slopes[:, axis]
            radius += np.abs(middle) * spreads[:, axis].sum(axis=1) / 2
            radius += half * (np.abs(slopes[:, axis]) + spreads[:, axis]).sum(axis=1) / 2
            radius += self.near * np.maximum(np.abs(most), np.abs(least))
        radius += RELATIVE * (radius + np.abs(slope).sum(axis=1) / 2)
        return Image(after, slopes, spreads, first, last, self.lattice.at(self.table, after), slope, radius)

    def advantage(self, x: Image, y: Image) -> Floats:
        """The least V̂ at next states of one image less V̂ at those of another, in each cell."""
        values = x.value - y.value - np.abs(x.slope - y.slope).sum(axis=1) / 2 - x.radius - y.radius
        apart, shift = x.after - y.after, np.zeros(x.first.shape, dtype=np.int64)
        for axis, steps in enumerate(self.lattice.shape):
            if self.lattice.periodic[axis]:
                turns = np.round(apart[:, axis] / steps).astype(np.int64)
                apart[:, axis] -= turns * steps
                shift[:, axis] = turns * steps
        reach = (np.abs(x.slopes - y.slopes) + x.spreads + y.spreads).sum(axis=2) / 2 + 2 * self.near
        first = np.minimum(x.first, y.first + shift)
        last = np.minimum(np.maximum(x.last, y.last + shift), first + np.array(self.lattice.shape) - 1)
        along = np.zeros(len(values))
        for axis, (least, most) in enumerate(self.gradients(first, last)):
            ends = [
                gradient * (apart[:, axis] + sign * reach[:, axis]) for gradient in (least, most) for sign in (-1, 1)
            ]
            along += np.min(ends, axis=0) - RELATIVE * np.max(np.abs(ends), axis=0)
        return np.maximum(values, along)


def shrunk(slopes: Floats, spreads: Floats) -> tuple[Floats, Floats]:
    """Numbers within spreads of slopes, times a number between 0 and 1."""
    low, high = np.minimum(slopes - spreads, 0), np.maximum(slopes + spreads, 0)
    return (low + high) / 2, (high - low) / 2


# Dynamics.


class Answers:
    """Next states of the middles of live cells that a file holds, with Lipschitz constants."""

    def __init__(self, record: Record, lattice: Grid, live: Integers) -> None:
        d = lattice.dimension
        after = record.array("next_states", (None, len(live), d))
        bounds = record.array("lipschitz", (len(after), d, d))
        if (bounds < 0).any():
            raise ImpossibleError("a Lipschitz constant is negative")
        ends = np.array(lattice.box)
        if (after < ends[:, 0]).any() or (after > ends[:, 1]).any():
            raise ImpossibleError("a next state is outside the box")
        self.actions, self.terminal = len(after), None
        self.after = (after - lattice.low) / lattice.sides
        self.bounds = bounds * lattice.sides / lattice.sides[:, None]
        matrices = [" / ".join(" ".join(short(x, 6) for x in row) for row in own) for own in bounds]
        constants = "; ".join(f"{matrix} for action {a}" for a, matrix in enumerate(matrices))
        alike = "says that all states of a cell have the same next state"
        constants += "".join(f"; 0 for action {a} {alike}" for a, own in enumerate(bounds) if not own.any())
        self.name = "the next states of the middles are those of the simulator, and its Lipschitz constants are "
        self.name += constants
        self.row = np.full(math.prod(lattice.shape), -1)
        self.row[live] = np.arange(len(live))

    def variants(self, cells: Integers, numbers: Integers, action: int) -> Variants:
        """Next states of cells; no cell has more than one kind."""
        after = self.after[action, self.row[numbers]]
        spreads = np.broadcast_to(self.bounds[action], (len(after), *self.bounds.shape[1:]))
        return [(after, np.zeros(spreads.shape), spreads)]


class Physics:
    """A first coordinate that moves by the velocity, which sine or cosine of it changes: MountainCar and Pendulum.

    v' = clip(v + pull·trigonometric(position) + push), position' = position + step·v'. The trigonometric function and
    its derivative are computed at the middles along the first coordinate, with proved bounds.
    """

    def __init__(self, record: Record, lattice: Grid) -> None:
        physics = record.record("physics", "MountainCar", "Pendulum")
        self.lattice, self.is_car, number = lattice, physics.kind == "MountainCar", physics.number
        if lattice.dimension != 2 or record.box("domain") != lattice.box or record.flag("random"):
            raise ImpossibleError("the simulator is not one of two coordinates on the box of the cells")
        if any(record.numbers("noise")):
            raise ImpossibleError("the simulator has noise")
        controls = record.numbers("controls")
        self.most, self.wall = number("max_speed"), -math.inf
        self.terminal: list[list[list[float]]] = []
        if self.is_car:
            factor, self.step, self.pull = 3.0, enclosed(1.0), enclosed(-number("gravity"))
            self.push = [enclosed(number("force")) * (control - 1) for control in controls]
            bounds = ((number("min_position"), number("max_position")), (-self.most, self.most))
            self.wall = bounds[0][0]
            self.terminal = [[[number("goal_position"), bounds[0][1]], [number("goal_velocity"), self.most]]]
        else:
            factor, self.step, length = 1.0, enclosed(number("dt")), number("l")
            self.pull = self.step * 3.0 * number("g") / (enclosed(length) * 2.0)
            strongest = number("max_torque")
            torques = [min(max(control, -strongest), strongest) for control in controls]
            lever = self.step * 3.0 / (enclosed(number("m")) * length * length)
            self.push = [lever * torque for torque in torques]
            bounds = ((-math.pi, math.pi), (-self.most, self.most))
        inside = all(a <= c and d <= b for (a, b), (c, d) in zip(bounds, lattice.box, strict=True))
        around = self.is_car or lattice.box[0] == bounds[0]
        if not inside or not around or lattice.periodic != (not self.is_car, False):
            raise ImpossibleError("the box of the cells is not within that of the simulator")
        constants = ", ".join(f"{name} {short(number(name), 6)}" for name in CONSTANTS[physics.kind])
        inputs = ", ".join(short(control, 6) for control in controls)
        self.name = f"the simulator is {physics.kind} with {constants} and the controls {inputs}"
        self.actions = len(controls)
        middles = (Enclosure(np.arange(lattice.shape[0]) + 0.5)) * lattice.sides[0] + lattice.low[0]
        share = middles * factor / PI
        sine, cosine = turn(share - 2.0 * np.round(share.middle / 2))
        wave, slope = (cosine, -sine) if self.is_car else (sine, cosine)
        self.wave, self.slope = self.pull * wave, self.pull * slope * factor
        bend = float((self.pull.absolute() * factor * factor).above) / 2
        self.bend = bend * lattice.sides[0] / 2  # half of v'', times r
        error = max(float(x.radius.max()) for x in (self.wave, self.slope * lattice.sides[0], *self.push))
        if not error < 2.0**-48 * lattice.reach * lattice.sides[1]:
            raise ImpossibleError("the constants of the simulator are too large")

    def variants(self, cells: Integers, numbers: Integers, action: int) -> Variants:
        """Next states of cells; where some may stop at the wall also those that do, the others as they are."""
        lattice, (width, height), step = self.lattice, self.lattice.sides, float(self.step.middle)
        position, velocity = (lattice.low[i] + (cells[:, i] + 0.5) * lattice.sides[i] for i in (0, 1))
        velocity = velocity + self.wave.middle[cells[:, 0]] + float(self.push[action].middle)
        slopes, spreads = np.zeros((2, len(cells), 2))  # of the velocity, times sides
        slopes[:, 0], slopes[:, 1] = self.slope.middle[cells[:, 0]] * width, height
        spreads[:, 0] = self.bend * width
        reach = (np.abs(slopes) + spreads).sum(axis=1) / 2 + 2.0**-46 * lattice.reach * height
        beyond, between = np.abs(velocity) - reach > self.most, np.abs(velocity) + reach >= self.most
        slopes[between], spreads[between] = shrunk(slopes[between], spreads[between])
        slopes[beyond], spreads[beyond] = 0.0, 0.0
        velocity = np.clip(velocity, -self.most, self.most)
        position = position + step * velocity
        after = np.stack([(position - lattice.low[0]) / width, (velocity - lattice.low[1]) / height], axis=1)
        rows = np.stack([(step * slopes + [width, 0.0]) / width, slopes / height], axis=1)
        deviations = np.stack([step * spreads / width, spreads / height], axis=1)
        if not self.is_car:
            return [(after, rows, deviations)]
        wall, zero = (self.wall - lattice.low[0]) / width, -lattice.low[1] / height
        far = (np.abs(rows) + deviations).sum(axis=2) / 2 + 2.0**-46 * lattice.reach
        low, high = after - far, after + far
        stopped = (low[:, 0] <= wall) & (low[:, 1] < zero)
        always = (high[:, 0] <= wall) & (high[:, 1] < zero)
        after[always], rows[always], deviations[always] = [wall, zero], 0.0, 0.0
        rest, still = np.where(stopped[:, None], [wall, zero], after), np.where(stopped[:, None, None], 0.0, rows)
        stiff = np.where(stopped[:, None, None], 0.0, deviations)
        both = [(after, rows, deviations), (rest, still, stiff)]
        return both if (stopped & ~always).any() else both[:1]


# The certificate.


FORM = "V̂ − γ max_a V̂∘f_a"  # the reward of an answer that is proved by cells


class CellCertificate(Claim):
    """What a file claims cell by cell, and what follows."""

    def __init__(self, record: Record, solution: Record | None) -> None:
        super().__init__(record, solution)
        self.lattice = lattice = record.record("grid", "Cells").grid()
        if lattice.dimension > 2 or math.prod(lattice.shape) > MOST_CELLS:
            raise DamagedError(f"grid should be at most {MOST_CELLS:,} cells of one or two coordinates")
        size, self.discount = math.prod(lattice.shape), record.number("discount")
        self.actions = record.array("actions", (size,), "iu").astype(np.int64)
        self.margins, self.above, self.below = (record.array(name, (size,)) for name in ("margins", "above", "below"))
        self.live = np.flatnonzero(self.actions >= 0)
        self.boxes = record.array("terminal", (None, lattice.dimension, 2))
        self.table = self._function("value")
        self.paid = None if record.entry("paid") is None else self._function("paid")
        dynamics = record.record("dynamics", "Answers", "EnvSimulator")
        answers = dynamics.kind == "Answers"
        self.dynamics = Answers(dynamics, lattice, self.live) if answers else Physics(dynamics, lattice)
        largest = float(np.abs(self.table).max()) + (0.0 if self.paid is None else float(np.abs(self.paid).max()))
        self.allowed = 2.0**-41 * (8 + lattice.reach) * largest

    @staticmethod
    def claimed(record: Record) -> tuple[float, str]:
        """The least positive margin that a file claims, and why it claims nothing if it does not."""
        margins = record.array("margins", (None,))
        positive = margins[margins > 0]
        if not len(positive):
            return math.nan, "no cell is decided"
        return float(positive.min()) / (record.number("discount") or math.nan), ""  # files hold γ times the margin

    def _function(self, name: str) -> Floats:
        """A multilinear function at the points of the cells."""
        function = self.record.record(name, "Reward")
        coarse, shape = function.record("basis", "Cells").grid(), self.lattice.shape
        parts = shape[0] // coarse.shape[0]
        same = (coarse.box, coarse.periodic) == (self.lattice.box, self.lattice.periodic)
        if tuple(parts * n for n in coarse.shape) != shape or not same:
            raise DamagedError(f"{name} should be on a grid whose cells are divided into those of the proof")
        if function.entry("ends") is not None:
            raise ImpossibleError(f"{name} has numbers of its own at terminal states, where the proof takes 0")
        values = function.array("coefficients", (coarse.size,))
        if name == "value":
            self.span = float(np.ptp(values))
        return refined(coarse.closed(values), parts)

    def _everywhere(self) -> bool:
        """Whether every cell is decided that has no switch of the policy beside it, nor across a corner."""
        lattice = self.lattice
        table, margins = (each.reshape(lattice.shape) for each in (self.actions, self.margins))
        modes = [("wrap",) if wraps else ("edge",) for wraps in lattice.periodic]
        around = table
        for axis, (mode,) in enumerate(modes):
            around = np.pad(around, [(int(axis == k),) * 2 for k in range(table.ndim)], mode=mode)  # type: ignore[call-overload]
        same = np.ones(lattice.shape, dtype=bool)
        for shift in np.ndindex((3,) * table.ndim):
            beside = around[tuple(slice(k, k + n) for k, n in zip(shift, lattice.shape, strict=True))]
            same &= (beside == table) | (beside < 0)
        return bool((margins > 0)[same & (table >= 0)].all())

    def _other_solution(self, solution: Record) -> list[str]:
        """Where a solution has another problem than its certificate, or is certified for another reward."""
        proved, taken = self._everywhere(), np.unique(self.actions[self.live])
        expert = int(taken[0]) if len(taken) == 1 else None
        wrong = self.other_problem(solution, (self.discount, self.dynamics.actions), expert, proved)
        if solution.status != "certified" or wrong:
            return wrong
        basis, stated = solution.record("reward", "Reward").record("basis"), self.record.entry("paid")
        same = stated is None and basis.kind == "Features" and basis.listed("names") == [FORM]
        return failed((same, "the certificate is about another reward than its solution"))

    def contradictions(self) -> list[str]:
        """What cannot be in the certificate."""
        other = [] if self.solution is None else self._other_solution(self.solution)
        lattice, terminal = self.lattice, self.actions < 0
        over, touched, on_lines = np.zeros(lattice.shape, dtype=bool), np.zeros(self.table.shape, dtype=bool), True
        steps = np.array(lattice.shape)[:, None]
        for box in self.boxes:
            lines = (box - lattice.low[:, None]) / lattice.sides[:, None]
            inside = np.clip(np.round(lines), 0, steps).astype(int)
            on_lines &= bool((np.abs(lines - inside)[(lines > 0) & (lines < steps)] < 1e-8).all())
            over[tuple(slice(a, b) for a, b in inside)] = True
            touched[tuple(slice(a, b + 1) for a, b in inside)] = True
        expected = self.dynamics.terminal
        same = expected is None or np.array_equal(self.boxes, np.array(expected).reshape(self.boxes.shape))
        still = not any(x[terminal].any() for x in (self.margins, self.above, self.below))
        return other + failed(
            (0 < self.discount < 1, f"the discount {self.discount:g} is not between 0 and 1"),
            (lattice.reach * 2.0**-46 < 1e-9, "the cells are too small for double precision"),
            (len(self.live) > 0 and 0 < self.span < math.inf, "the certificate is about nothing"),
            (self.actions.max() < self.dynamics.actions, "the policy takes an action that there is not"),
            (on_lines, "terminal states do not end on lines of the grid"),
            ((over.ravel() == terminal).all(), "cells without an action are not those of terminal states"),
            (same, "the terminal states are not those of the simulator"),
            (not self.table[touched].any(), "the value is not 0 at terminal states"),
            (min(self.above.min(), self.below.min()) >= 0, "a bound of V* − V^π is negative"),
            (still, "something is claimed in cells of terminal states"),
            (self.paid is not None or not self.above.any(), "V* is V̂ for this reward, and a difference is claimed"),
        )

    def conclude(self) -> list[str]:
        """Why something that is claimed does not follow; nothing if all of it does."""
        field, lattice = Field(lattice=self.lattice, table=self.table), self.lattice
        above, below = (Maxima(x.reshape(lattice.shape), lattice.periodic) for x in (self.above, self.below))
        here = None if self.paid is None else self._differences(self.paid - self.table)
        margins, gained, lost = self.follows = np.zeros((3, len(self.actions)))
        for start in range(0, len(self.live), BLOCK):
            numbers = self.live[start : start + BLOCK]
            cells = np.stack(np.unravel_index(numbers, lattice.shape), axis=1).astype(np.int64)
            every = [self.dynamics.variants(cells, numbers, action) for action in range(self.dynamics.actions)]
            images = [[field.image(*one) for one in variants] for variants in every]
            excess = None if here is None else tuple(x[numbers] for x in here)
            self.follows[:, numbers] = self._block(field, images, numbers, excess, above, below)
        live = self.live  # nothing is no larger than what is no number
        wrong = failed(
            ((self.margins[live] <= margins[live]).all(), "a margin is larger than what follows"),
            ((self.above[live] >= gained[live]).all(), "the bound of V* − V̂ is no upper solution"),
            ((self.below[live] >= lost[live]).all(), "the bound of V̂ − V^π is no upper solution"),
        )
        decided = self.margins > 0
        self.derived = float(margins[decided].min()) / self.discount if decided.any() else -math.inf
        self.share, self.regret = float(decided[self.live].mean()), float((self.above + self.below).max()) / self.span
        form = "R" if self.paid is not None else "R = V̂ − γ max_a V̂∘f_a"
        self.statement = (
            "if the constants below are those of the simulator, then without any probability of error at every state "
            f"of {at_least(100 * self.share)} % of the cells the policy's action is the only optimal one for the "
            f"reward {form}, and at every state of the box V* − V^π is at most "
            f"{at_most(100 * self.regret)} % of the span of V̂"
        )
        return wrong

    def _differences(self, table: Floats) -> tuple[Floats, ...]:
        """A multilinear function in each cell: value, slopes and radius."""
        at, d = corners(table), self.lattice.dimension
        value = at.reshape(2**d, -1).mean(axis=0)
        slopes = np.stack([np.diff(at, axis=axis).reshape(2 ** (d - 1), -1).mean(axis=0) for axis in range(d)], axis=1)
        radius = np.abs(at[0, 0] - at[0, 1] - at[1, 0] + at[1, 1]).ravel() / 4 if d == 2 else np.zeros(len(value))
        return value, slopes, radius

    def _block(
        self, field: Field, images: list[list[Image]], numbers: Integers, excess: tuple[Floats, ...] | None,
        above: Maxima, below: Maxima,
    ) -> tuple[Floats, Floats, Floats]:  # fmt: skip
        """Of some cells the margins, and what the bounds of V* − V̂ and of V̂ − V^π must be there at least."""
        chosen, rows = self.actions[numbers], np.arange(len(numbers))
        count = max(map(len, images))
        kinds = zip(*(variants * (count // len(variants)) for variants in images), strict=True)
        policy = [Image(*(np.stack(entries)[chosen, rows] for entries in zip(*kind, strict=True))) for kind in kinds]
        after_policy = np.max([below.over(x.first, x.last) for x in policy], axis=0)
        least, gained = np.full(len(numbers), np.inf), np.zeros(len(numbers))
        for action, variants in enumerate(images):
            advantage = np.min([field.advantage(x, y) for x in policy for y in variants], axis=0) - self.allowed
            if excess is not None:
                after = np.max([above.over(y.first, y.last) for y in variants], axis=0)
                most = np.max([self._extreme(excess, y, 1) for y in variants], axis=0) + self.allowed
                gained = np.maximum(gained, most + self.discount * after)
                advantage = advantage - after - after_policy
            least = np.where(chosen == action, least, np.minimum(least, advantage))
        if excess is None:
            now = self.discount * np.maximum(-least, 0)
        else:
            now = np.max([-self._extreme(excess, x, -1) for x in policy], axis=0) + self.allowed
        return self.discount * least, gained, now + self.discount * after_policy

    def _extreme(self, excess: tuple[Floats, ...], image: Image, sign: int) -> Floats:
        """The largest (1) or least (−1) R − V̂ + γV̂∘f in each cell."""
        value, slopes, radius = excess
        total = np.abs(slopes + self.discount * image.slope).sum(axis=1) / 2 + radius + self.discount * image.radius
        return value + self.discount * image.value + sign * total

    def lines(self) -> list[tuple[str, str]]:
        """The problem, the cells and what follows, by name."""
        problem = f"{self.dynamics.actions} actions on {self.lattice.domain}, discount {self.discount:g}, no noise"
        counts = " × ".join(map(str, self.lattice.shape))
        return [
            ("problem", problem),
            ("cells", f"{counts}, {len(self.live):,} of them with states that are not terminal"),
            ("rounding", f"{short(self.allowed)} in each value of V̂"),
        ]

    def trusted(self) -> list[str]:
        """What the file cannot show."""
        wraps = [axis for axis, is_periodic in enumerate(self.lattice.periodic) if is_periodic]
        trusted = [f"{self.dynamics.name}; it computes next states up to 1e-9 of the side of a cell"]
        trusted += [f"coordinate {axis} is periodic: its two ends are one state" for axis in wraps]
        trusted.append("the policy takes in each cell the action of the file")
        if len(self.boxes):
            trusted.append(f"terminal states are {' and '.join(map(in_words, self.boxes))}: reward and value 0")
        return trusted
