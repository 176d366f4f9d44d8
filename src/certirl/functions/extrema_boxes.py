"""The proved minimum of an expansion over a box, by branch and bound.

In the angles θ, with t = cos θ for polynomials and t = θ/π on a circle, every expansion in a product basis is a real
trigonometric polynomial. Along any line it is a function of exponential type, and if it stays within M of a middle
value, then by the inequality of Duffin and Schaeffer, ``f'² + σ²f² ≤ σ²M²``, the angle arcsin(f/M) changes by at most σ
per unit, σ being the largest frequency along the line. So one value at the centre of a box bounds all values in it:
``f ≥ M sin(arcsin(f(centre)/M) − σ)`` with ``σ = max_k Σ_j k_j h_j`` over the degrees k that occur and half the sides
h of the box. Near a minimum at −M the loss is of second order in σ, and M shrinks as the minimum is closed in on.
"""

from __future__ import annotations

from itertools import product as combinations

import numpy as np

from certirl.functions.boxes import ProductBasis, mesh
from certirl.functions.harmonics import combine, is_circular
from certirl.ground.domain import Array

FIRST_REACH = np.pi / 4  # σ of the first boxes: four of them to the shortest wave
_CLOSER = 8  # times that bounds are worked out again from what they have just proved; it costs no new values
_BLOCK = 1 << 17  # numbers at once on the way to values: they stay in the cache
MOST_VALUES = 400_000  # after so many the bound proved so far must do
TIE = 1e-6  # relative to the largest value: above rounding and the tolerances of the solvers
_NEGLIGIBLE = 1e-10  # of the sum of all terms: may be left out, and counts as rounding


class Wave:
    """f(θ) = Σ_i c_i Π_j χ_{i_j}(θ_j): an expansion in angles, with its first and second derivatives.

    Attributes:
        basis: the product basis.
        reach_of: the degrees k that occur, of which the largest Σ k_j h_j counts ``[m, d]``.
        rounding: a bound on the error of a value, from rounding and from the terms that were left out.
    """

    def __init__(self, basis: ProductBasis, coefficients: Array) -> None:
        self.basis, self.parts = basis, basis.parts
        self.circular = np.array([is_circular(part) for part in self.parts])
        # The smallest terms matter less than what they cost: every degree that occurs calls for smaller boxes.
        terms = np.abs(coefficients) * basis.sup()
        order = np.argsort(terms)
        used = np.empty(len(terms), dtype=bool)
        used[order] = np.cumsum(terms[order]) > _NEGLIGIBLE * terms.sum()
        self._dense = np.zeros([part.size for part in self.parts])
        self._dense[tuple(basis.indices[used].T)] = coefficients[used]
        self.reach_of = np.unique(basis.degrees[used], axis=0) if used.any() else np.zeros((1, basis.dimension), int)
        own = 2.0**-50 * (1 + self.reach_of.max()) * basis.dimension
        self.rounding = float(own * terms.sum() + terms[~used].sum()) + 1e-290  # above zero even for f = 0

    def reach(self, half: Array) -> float:
        """σ of boxes with these half sides."""
        return float((self.reach_of @ half).max())

    def first_boxes(self) -> tuple[list[Array], Array]:
        """A mesh of boxes that covers all angles: the centres along each coordinate, and half the sides ``[d]``."""
        highest = self.reach_of.max(axis=0)
        width = np.where(self.circular, 2 * np.pi, np.pi)
        counts = np.ones(len(highest), dtype=int)
        # Among all with the same longest side in waves, as few boxes as bring σ down to what is wanted.
        for scale in np.arange(0.5, 2.0 * len(highest) + 1.0, 0.125):
            counts = np.maximum(np.ceil(scale * highest * width / np.pi - 1e-9), 1).astype(int)
            if self.reach(width / counts / 2) <= FIRST_REACH + 1e-9:
                break
        low = np.where(self.circular, -np.pi, 0.0)
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
        for table in tables[-2::-1]:  # each turn sums over the last coordinate that is left
            total = np.einsum("...jn,jn->...n", total, table)
        return np.asarray(total)

    def _table(self, axis: int, angles: Array, order: int = 0) -> Array:
        """The functions of one coordinate, or their derivatives, at angles ``[n]``: ``[k_j, n]``."""
        part = self.parts[axis]
        if order == 0:  # by recurrence, which keeps all digits
            return part._reference_values(angles / np.pi if self.circular[axis] else np.cos(angles))
        if self.circular[axis]:
            frequency = (np.arange(part.size | 1) + 1) // 2
            phase = np.where(np.arange(part.size | 1) % 2 == 1, -np.pi / 2, 0.0)  # sines are cosines a quarter later
        else:
            frequency, phase = np.arange(part.size), np.zeros(part.size)
        turned = np.outer(frequency, angles) + (phase + order * np.pi / 2)[:, None]
        return combine(part, frequency[:, None] ** order * np.cos(turned))

    def slopes(self, angles: Array) -> tuple[Array, Array]:
        """The gradient ``[n, d]`` and the second derivatives ``[n, d, d]``."""
        n, d = angles.shape
        tables = [[self._table(j, t, order) for order in range(3)] for j, t in enumerate(angles.T)]
        unit = np.eye(d, dtype=int)
        gradient, bend = np.empty((n, d)), np.empty((n, d, d))
        for i in range(d):
            gradient[:, i] = self._sum([own[order] for own, order in zip(tables, unit[i], strict=True)])
            for j in range(i, d):
                orders = unit[i] + unit[j]
                second = self._sum([own[order] for own, order in zip(tables, orders, strict=True)])
                bend[:, i, j] = bend[:, j, i] = second
        return gradient, bend

    def states(self, angles: Array) -> Array:
        """The states at angles ``[n, d]``."""
        turned = np.mod(angles + np.pi, 2 * np.pi) / np.pi - 1
        t = np.where(self.circular, turned, np.cos(angles))
        return np.column_stack([part._from_reference(own) for part, own in zip(self.parts, t.T, strict=True)])


def local_minima(
    basis: ProductBasis, coefficients: Array, *, exact: bool = True, below: float | None = None
) -> tuple[Array, Array]:
    """Local minima of Σ c_i φ_i over the box.

    The lowest points of a mesh with four points to the shortest wave, polished by Newton's method.

    Args:
        basis: a product basis.
        coefficients: c ``[k]``.
        exact: look for the global minimum by branch and bound as well, so that it is among them.
        below: any minimum below this will do in its place.

    Returns:
        States ``[m, d]`` and the values there ``[m]``.
    """
    wave = Wave(basis, np.asarray(coefficients, dtype=np.float64))
    states = _minima(wave, branch_and_bound(wave, below=below)[0][None] if exact else None)
    return states, basis.values(states) @ coefficients


def minimum(basis: ProductBasis, coefficients: Array, *, tolerance: float | None = None) -> tuple[Array, float]:
    """The state ``[d]`` with the smallest value found, and a proved lower bound of all values.

    Of minima that tie but for rounding, the one with the smallest first coordinate is named, then with the smallest
    second one, and so on. A coordinate that makes no difference is at its low end.

    Args:
        basis: a product basis.
        coefficients: c ``[k]``.
        tolerance: how far the bound may lie below the smallest value; 1e-7 of the range of values if left out.
    """
    wave = Wave(basis, np.asarray(coefficients, dtype=np.float64))
    angles, proved = branch_and_bound(wave, tolerance)
    states = _minima(wave, angles[None])
    low, high = np.array(basis.domain).T
    states = states[least(basis.values(states) @ coefficients)]
    for axis in range(len(low)):
        aside = np.where(np.arange(len(low)) == axis, low, states)
        both = np.stack([basis.values(one) @ coefficients for one in (states, aside)])
        states = np.where(least(both)[1, :, None], aside, states)
    for axis in range(len(low)):
        states = states[states[:, axis] <= states[:, axis].min() + TIE * (high - low)[axis]]
    return states[0], proved


def least(values: Array) -> Array:
    """Which of the values are the least but for rounding and the tolerances of solvers."""
    return np.asarray(values <= values.min() + TIE * np.abs(values).max())


def _minima(wave: Wave, also: Array | None) -> Array:
    """Local minima ``[m, d]``, those that the lowest points of a mesh and further angles lead to, in order."""
    axes, half = wave.first_boxes()
    angles = _lowest_on_mesh(wave, axes)
    states = wave.states(_polished(wave, angles if also is None else np.concatenate([angles, also]), half))
    low, high = np.array(wave.basis.domain).T
    _, first = np.unique(((states - low) / (high - low)).round(7), axis=0, return_index=True)
    return states[first]


def branch_and_bound(wave: Wave, tolerance: float | None = None, below: float | None = None) -> tuple[Array, float]:
    """The angles ``[d]`` of the smallest value found, and a proved lower bound of all values.

    Ends when the bound is within the tolerance of the smallest value, when a value lies ``below``, or when the values
    have cost enough; the bound holds in any case.
    """
    axes, half = wave.first_boxes()
    values, centres, reach = wave.on_mesh(axes).ravel(), mesh(axes), wave.reach(half)
    best, place = float(values.min()), centres[values.argmin()]
    middle, swing = (best + float(values.max())) / 2, (float(values.max()) - best) / 2 + wave.rounding
    floor, ceiling = middle - swing / np.cos(reach), middle + swing / np.cos(reach)
    slack = max(1e-7 * (ceiling - floor) if tolerance is None else tolerance, 4 * wave.rounding)
    polished = _polished(wave, place[None], half)  # a good value early on rules out more boxes
    spent = len(values)
    while True:
        lowest = float(wave(polished)[0])
        if lowest < best:
            best, place = lowest, polished[0]
        floors, floor = _floors(values - wave.rounding, reach, floor, ceiling, best - slack)
        centres = centres[floors < best - slack]
        spent += len(centres) << len(half)
        if not len(centres) or spent > MOST_VALUES or (below is not None and best < below):
            break
        half, reach = half / 2, reach / 2
        steps = np.array(list(combinations((-1.0, 1.0), repeat=len(half)))) * half
        centres = (centres[:, None] + steps).reshape(-1, len(half))
        values = wave(centres)
        if values.min() < best:
            best, place = float(values.min()), centres[values.argmin()]
            polished = _polished(wave, place[None], half)
    return place, floor - wave.rounding


def _floors(values: Array, reach: float, floor: float, ceiling: float, enough: float) -> tuple[Array, float]:
    """A lower bound in each box, and of all values: from ``floor ≤ f ≤ ceiling``, again and again with a better floor.

    Boxes that were ruled out before hold nothing below ``enough``.
    """
    for _ in range(_CLOSER):
        middle, swing = (floor + ceiling) / 2, (ceiling - floor) / 2
        angle = np.arcsin(np.clip((values - middle) / swing, -1.0, 1.0)) - reach
        floors = middle + swing * np.sin(np.maximum(angle, -np.pi / 2))
        floor = max(floor, min(enough, float(floors.min())))
        if floor == enough:
            break
    return floors, floor


def _lowest_on_mesh(wave: Wave, axes: list[Array]) -> Array:
    """The angles ``[m, d]`` of a mesh whose value is not above that of any neighbour along a coordinate."""
    values = wave.on_mesh(axes)
    lowest = np.ones(values.shape, dtype=bool)
    for axis, around in enumerate(wave.circular):
        for shift in (1, -1):
            beside = np.roll(values, shift, axis=axis)
            if not around:  # a mirror at the ends: the function is even there
                edge = [slice(None)] * values.ndim
                edge[axis] = slice(0, 1) if shift == 1 else slice(-1, None)
                beside[tuple(edge)] = values[tuple(edge)]
            lowest &= values <= beside
    return mesh(axes)[lowest.ravel()]


def _polished(wave: Wave, angles: Array, half: Array, steps: int = 4) -> Array:
    """Where a few steps of Newton's method lead, each no longer than a box and only downhill."""
    angles, values = angles.copy(), wave(angles)
    for _ in range(steps):
        gradient, bend = wave.slopes(angles)
        scale = 1 / np.maximum(wave.reach_of.max(axis=0), 1)  # all angles in units of their shortest wave
        lengths, axes = np.linalg.eigh(bend * np.outer(scale, scale))
        # Uphill directions are turned round and flat ones shortened: what is left is a descent.
        firm = np.maximum(np.abs(lengths), 1e-8 * np.abs(lengths).max(axis=1, keepdims=True) + 1e-300)
        along = np.einsum("nij,ni->nj", axes, gradient * scale) / firm
        step = -np.einsum("nij,nj->ni", axes, along) * scale
        step /= np.maximum(np.abs(step / (2 * half)).max(axis=1, keepdims=True), 1.0)
        there = wave(angles + step)
        better = there < values
        angles[better] += step[better]
        values = np.minimum(values, there)
        if not better.any():
            break
    return angles
