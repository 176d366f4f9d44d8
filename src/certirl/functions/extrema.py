"""The minimum of an expansion over its whole domain, in place of the paper's finite cover.

In one coordinate the stationary points are roots of a polynomial, and the minimum is exact up to rounding. On a box it
is enclosed by branch and bound. In the angles θ, with t = cos θ for polynomials and t = θ/π in periodic coordinates,
every expansion is a real trigonometric polynomial. Along any line it is a function of exponential type, and if it stays
within M of a middle value, then by the inequality of Duffin and Schaeffer, ``f'² + σ²f² ≤ σ²M²``, the angle arcsin(f/M)
changes by at most σ per unit, σ being the largest frequency along the line. So one value at the centre of a box bounds
all values in it: ``f ≥ M sin(arcsin(f(centre)/M) − σ)`` with ``σ = max_k Σ_j k_j h_j`` over the degrees k that
occur and half the sides h of the box. Near a minimum at −M the loss is of second order in σ, and M decreases as the
bound of the minimum improves.
"""

from __future__ import annotations

from itertools import product as combinations
from typing import NamedTuple

import numpy as np

from certirl.functions.bases import Basis
from certirl.ground.domain import Array, mesh

FIRST_REACH = np.pi / 4  # σ of the first boxes: four of them to the shortest wave
TOLERANCE = 1e-7  # of the range of values: distance of the bound on a box from the smallest value found
MOST_VALUES = 400_000  # function values after which branch and bound returns the bound it has proved
TIE = 1e-6  # relative to the largest value: above rounding and the tolerances of the solvers
_REFINEMENTS = 8  # of the bounds of all boxes with the new bound of the minimum; they need no new values
_BLOCK = 1 << 17  # numbers computed at once, so that they stay in the cache
_NEGLIGIBLE = 1e-10  # of the sum of all terms: terms that may be left out, and count as rounding


class Minimum(NamedTuple):
    """The minimum of an expansion."""

    state: Array  # where the smallest value was found ``[d]``
    bound: float  # a lower bound of all values, exact up to rounding in one coordinate


def minimum(basis: Basis, coefficients: Array) -> Minimum:
    """The minimum of Σ c_i φ_i over the domain.

    After a program is solved, several minima may be equal up to rounding, or the expansion may be constant. Of all
    states that tie, the one with the smallest first coordinate is returned, then with the smallest second one, and so
    on; a coordinate on which the values do not depend is at its low end.
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    basis = basis.resized(len(coefficients))
    low, high = basis.domain.ends
    if basis.dimension == 1:
        states = _interval_candidates(basis, coefficients, exact=True)
        bound = float((basis.values(states) @ coefficients).min())
        states = np.append(low, states)
        return Minimum(states[first_of_least(basis.values(states) @ coefficients), None], bound)
    wave = Wave(basis, coefficients)
    angles, bound = branch_and_bound(wave)
    states = _box_minima(wave, angles[None])
    states = states[_least(basis.values(states) @ coefficients)]
    for axis in range(len(low)):
        moved = np.where(np.arange(len(low)) == axis, low, states)
        values = np.stack([basis.values(rows) @ coefficients for rows in (states, moved)])
        states = np.where(_least(values)[1, :, None], moved, states)
    for axis in range(len(low)):
        states = states[states[:, axis] <= states[:, axis].min() + TIE * (high - low)[axis]]
    return Minimum(states[0], bound)


def value_range(basis: Basis, coefficients: Array) -> tuple[float, float]:
    """Bounds of all values of Σ c_i φ_i, as close as those of `minimum`."""
    return minimum(basis, coefficients).bound, -minimum(basis, -coefficients).bound


def local_minima(
    basis: Basis, coefficients: Array, *, exact: bool = True, below: float | None = None
) -> tuple[Array, Array]:
    """Local minima of Σ c_i φ_i over the domain, the ends included.

    In one coordinate the candidates are the roots of the derivative (eigenvalues of a companion matrix), the two ends,
    and a grid in case a root is lost to rounding; all are improved by Newton's method. A value at a stationary point is
    second-order accurate, so a root with an error of 1e-8 gives the minimum to rounding. On a box the candidates are
    the lowest points of a mesh with four points to the shortest wave, and the result of branch and bound.

    With ``exact`` the global minimum is among them; otherwise a grid is used alone, which is quicker and may miss
    narrow minima. On boxes the search for the global minimum ends at any value below ``below``.

    Returns:
        States ``[m, d]`` and the values there ``[m]``.
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    basis = basis.resized(len(coefficients))
    if basis.dimension == 1:
        states, values = _lowest(basis, coefficients, _interval_candidates(basis, coefficients, exact=exact))
        return states[:, None], values
    wave = Wave(basis, coefficients)
    states = _box_minima(wave, branch_and_bound(wave, below=below)[0][None] if exact else None)
    return states, basis.values(states) @ coefficients


# Ties: which of several values that are equal up to rounding comes first.


def _least(values: Array) -> Array:
    """Which values are the least up to rounding and the tolerances of solvers."""
    return np.asarray(values <= values.min() + TIE * np.abs(values).max())


def first_of_least(values: Array) -> int:
    """The position of the least value; the first of those that tie up to rounding."""
    return int(_least(values).argmax())


def ranked(weights: Array, *places: Array) -> Array:
    """The order from the largest weight to the smallest; ties up to rounding by their places.

    Places are the keys that decide between equal weights, ascending, the first one first: ``[m]`` or ``[m, d]`` each.
    """
    keys = [np.atleast_2d(np.asarray(place).T) for place in places]
    return np.lexsort([*np.concatenate(keys)[::-1], -np.round(weights / (np.abs(weights).max() * TIE or 1.0))])


# One coordinate.


def _interval_candidates(basis: Basis, coefficients: Array, *, exact: bool) -> Array:
    """States of an interval that include every local minimum, in order ``[m]``."""
    states = basis.grid((4 if exact else 8) * basis.size + 1)[:, 0]
    if exact:
        states = np.unique(np.concatenate([states, basis.parts[0]._stationary_points(coefficients)]))
    return _with_newton_steps(basis, coefficients, _lowest(basis, coefficients, states)[0])


def _lowest(basis: Basis, coefficients: Array, states: Array) -> tuple[Array, Array]:
    """Those of the ordered states whose value is not above their neighbours'."""
    values = basis.values(states) @ coefficients
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lowest = (values <= padded[:-2]) & (values <= padded[2:])
    return states[lowest], values[lowest]


def _with_newton_steps(basis: Basis, coefficients: Array, states: Array) -> Array:
    """The states and the results of two Newton steps on the slope from each, in order."""
    ((low, high),) = basis.domain
    reach, step = (high - low) / basis.size, 1e-6 * (high - low)
    moved = states
    for _ in range(2):
        around = np.concatenate([moved - step, moved + step])  # slightly outside the interval is harmless
        behind, ahead = (basis.derivative(around) @ coefficients).reshape(2, -1)
        curvature = (ahead - behind) / (2 * step)
        move = -(ahead + behind) / 2 / np.where(curvature > 0, curvature, np.inf)
        moved = np.clip(np.where(np.abs(moved + move - states) < reach, moved + move, moved), low, high)
    return np.unique(np.concatenate([states, moved]))


# Several coordinates.


class Wave:
    """An expansion in angles, f(θ) = Σ_i c_i Π_j χ_{i_j}(θ_j), and its derivatives.

    Attributes:
        basis: the basis of the expansion.
        reach_of: the degrees k that occur, of which the largest Σ k_j h_j counts ``[m, d]``.
        rounding: a bound on the error of a value, from rounding and from the terms that were left out.
    """

    def __init__(self, basis: Basis, coefficients: Array) -> None:
        self.basis, self.parts = basis, basis.parts
        self.periodic = np.array([part.periodic for part in self.parts])
        # The smallest terms matter less than what they cost: every degree that occurs calls for smaller boxes.
        terms = np.abs(coefficients) * basis.sup()
        order = np.argsort(terms)
        used = np.empty(len(terms), dtype=bool)
        used[order] = np.cumsum(terms[order]) > _NEGLIGIBLE * terms.sum()
        self._dense = np.zeros([part.size for part in self.parts])
        self._dense[tuple(basis.indices[used].T)] = coefficients[used]
        self.reach_of = np.unique(basis.degrees[used], axis=0) if used.any() else np.zeros((1, basis.dimension), int)
        relative = 2.0**-50 * (1 + self.reach_of.max()) * basis.dimension
        self.rounding = float(relative * terms.sum() + terms[~used].sum()) + 1e-290  # above zero even for f = 0

    def reach(self, half: Array) -> float:
        """σ of boxes with these half sides."""
        return float((self.reach_of @ half).max())

    def first_boxes(self) -> tuple[list[Array], Array]:
        """Boxes that cover all angles: centres along each coordinate, and half the sides ``[d]``."""
        highest = self.reach_of.max(axis=0)
        width = np.where(self.periodic, 2 * np.pi, np.pi)
        counts = np.ones(len(highest), dtype=int)
        # Among all with the same longest side in waves, the fewest boxes that bring σ down to FIRST_REACH.
        for scale in np.arange(0.5, 2.0 * len(highest) + 1.0, 0.125):
            counts = np.maximum(np.ceil(scale * highest * width / np.pi - 1e-9), 1).astype(int)
            if self.reach(width / counts / 2) <= FIRST_REACH + 1e-9:
                break
        low = np.where(self.periodic, -np.pi, 0.0)
        axes = [a + w * (np.arange(n) + 0.5) / n for a, w, n in zip(low, width, counts, strict=True)]
        return axes, width / counts / 2

    def on_mesh(self, axes: list[Array]) -> Array:
        """f at all combinations of the angles of each coordinate: ``[n_1, …, n_d]``."""
        total = self._dense
        for j, axis in enumerate(axes):  # each turn sums over the first coordinate and puts its angles last
            total = np.tensordot(total, self._table(j, axis), axes=(0, 0))
        return total

    def __call__(self, angles: Array) -> Array:
        """f at angles ``[n, d]``, a block at a time: ``[n]``."""
        length = max(_BLOCK * self._dense.shape[-1] // self._dense.size, 64)
        blocks = [angles[start : start + length] for start in range(0, len(angles), length)]
        return np.concatenate([self._sum([self._table(j, t) for j, t in enumerate(block.T)]) for block in blocks])

    def _sum(self, tables: list[Array]) -> Array:
        """Σ_i c_i Π_j of rows of the tables ``[k_j, n]``: ``[n]``."""
        total = self._dense @ tables[-1]
        for table in tables[-2::-1]:  # each turn sums over the last remaining coordinate
            total = np.einsum("...jn,jn->...n", total, table)
        return np.asarray(total)

    def _table(self, axis: int, angles: Array, order: int = 0) -> Array:
        """The functions of one coordinate, or their derivatives, at angles ``[n]``: ``[k_j, n]``."""
        part = self.parts[axis]
        if order == 0:  # by recurrence, which keeps all digits
            return part._reference_values(angles / np.pi if part.periodic else np.cos(angles))
        number = np.arange(part._harmonics)
        frequency = part._degree_of(number)
        phase = np.where(part.periodic & (number % 2 == 1), -np.pi / 2, 0.0)  # sines are cosines a quarter later
        shifted = np.outer(frequency, angles) + (phase + order * np.pi / 2)[:, None]
        return part._from_harmonics(frequency[:, None] ** order * np.cos(shifted))

    def slopes(self, angles: Array) -> tuple[Array, Array]:
        """The gradient ``[n, d]`` and the second derivatives ``[n, d, d]``."""
        n, d = angles.shape
        tables = [[self._table(j, t, order) for order in range(3)] for j, t in enumerate(angles.T)]
        unit = np.eye(d, dtype=int)
        gradient, hessian = np.empty((n, d)), np.empty((n, d, d))
        for i in range(d):
            gradient[:, i] = self._sum([table[order] for table, order in zip(tables, unit[i], strict=True)])
            for j in range(i, d):
                orders = unit[i] + unit[j]
                second = self._sum([table[order] for table, order in zip(tables, orders, strict=True)])
                hessian[:, i, j] = hessian[:, j, i] = second
        return gradient, hessian

    def states(self, angles: Array) -> Array:
        """The states at angles ``[n, d]``."""
        return np.column_stack([part._from_angle(t) for part, t in zip(self.parts, angles.T, strict=True)])


def _box_minima(wave: Wave, more: Array | None) -> Array:
    """Local minima ``[m, d]`` near the lowest points of a mesh and further angles, in order."""
    axes, half = wave.first_boxes()
    angles = _lowest_on_mesh(wave, axes)
    states = wave.states(_descended(wave, angles if more is None else np.concatenate([angles, more]), half))
    _, first = np.unique(wave.basis.domain.shares(states).round(7), axis=0, return_index=True)
    return states[first]


def branch_and_bound(wave: Wave, below: float | None = None) -> tuple[Array, float]:
    """The angles ``[d]`` of the smallest value found, and a proved lower bound of all values.

    Ends when the bound is within TOLERANCE of the smallest value, when a value lies ``below``, or after MOST_VALUES
    function values; the bound holds in every case.
    """
    axes, half = wave.first_boxes()
    values, centres, reach = wave.on_mesh(axes).ravel(), mesh(axes), wave.reach(half)
    best, place = float(values.min()), centres[values.argmin()]
    middle, swing = (best + float(values.max())) / 2, (float(values.max()) - best) / 2 + wave.rounding
    floor, ceiling = middle - swing / np.cos(reach), middle + swing / np.cos(reach)
    slack = max(TOLERANCE * (ceiling - floor), 4 * wave.rounding)
    descended = _descended(wave, place[None], half)  # a low value early on excludes more boxes
    count = len(values)
    while True:
        lowest = float(wave(descended)[0])
        if lowest < best:
            best, place = lowest, descended[0]
        floors, floor = _floors(values - wave.rounding, reach, floor, ceiling, best - slack)
        centres = centres[floors < best - slack]
        count += len(centres) << len(half)
        if not len(centres) or count > MOST_VALUES or (below is not None and best < below):
            break
        half, reach = half / 2, reach / 2
        steps = np.array(list(combinations((-1.0, 1.0), repeat=len(half)))) * half
        centres = (centres[:, None] + steps).reshape(-1, len(half))
        values = wave(centres)
        if values.min() < best:
            best, place = float(values.min()), centres[values.argmin()]
            descended = _descended(wave, place[None], half)
    return place, floor - wave.rounding


def _floors(values: Array, reach: float, floor: float, ceiling: float, enough: float) -> tuple[Array, float]:
    """A lower bound in each box, and of all values, from ``floor ≤ f ≤ ceiling``.

    Repeated with the improved floor. Boxes that were excluded before contain no value below ``enough``.
    """
    for _ in range(_REFINEMENTS):
        middle, swing = (floor + ceiling) / 2, (ceiling - floor) / 2
        angle = np.arcsin(np.clip((values - middle) / swing, -1.0, 1.0)) - reach
        floors = middle + swing * np.sin(np.maximum(angle, -np.pi / 2))
        floor = max(floor, min(enough, float(floors.min())))
        if floor == enough:
            break
    return floors, floor


def _lowest_on_mesh(wave: Wave, axes: list[Array]) -> Array:
    """The angles ``[m, d]`` of a mesh with values not above those of their neighbours."""
    values = wave.on_mesh(axes)
    lowest = np.ones(values.shape, dtype=bool)
    for axis, periodic in enumerate(wave.periodic):
        for shift in (1, -1):
            beside = np.roll(values, shift, axis=axis)
            if not periodic:  # the function is even at the ends
                edge = [slice(None)] * values.ndim
                edge[axis] = slice(0, 1) if shift == 1 else slice(-1, None)
                beside[tuple(edge)] = values[tuple(edge)]
            lowest &= values <= beside
    return mesh(axes)[lowest.ravel()]


def _descended(wave: Wave, angles: Array, half: Array) -> Array:
    """Angles after at most four steps of Newton's method, each no longer than a box and downhill."""
    angles, values = angles.copy(), wave(angles)
    for _ in range(4):
        gradient, hessian = wave.slopes(angles)
        scale = 1 / np.maximum(wave.reach_of.max(axis=0), 1)  # all angles in units of their shortest wave
        lengths, axes = np.linalg.eigh(hessian * np.outer(scale, scale))
        # Steps along directions of negative curvature are reversed and along flat ones shortened: all go downhill.
        firm = np.maximum(np.abs(lengths), 1e-8 * np.abs(lengths).max(axis=1, keepdims=True) + 1e-300)
        along = np.einsum("nij,ni->nj", axes, gradient * scale) / firm
        step = -np.einsum("nij,nj->ni", axes, along) * scale
        step /= np.maximum(np.abs(step / (2 * half)).max(axis=1, keepdims=True), 1.0)
        trial = wave(angles + step)
        better = trial < values
        angles[better] += step[better]
        values = np.minimum(values, trial)
        if not better.any():
            break
    return angles
